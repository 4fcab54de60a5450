//! What a driver may ask of the brain beside telling it inputs:
//!
//! - how much memory the brain takes, for a driver that has to keep all of its memory below a ceiling;
//! - which pages a reader is still to come to, and whether something that was decided was not sent yet;
//! - which gaps are worth fetching, for a driver that is told a long list of what will be read.

use crate::table::PageBit;
use crate::units::{Bytes, Extent, FileId, Nanos, PAGE_SIZE, PageCount, PageIndex};
use crate::wave::requests::queue::Queue;
use crate::wave::{Explained, File, Flight, Latest, Wave};
use core::mem::size_of;

/// What an entry of an ordered map takes: its nodes are at worst half full.
pub(in crate::wave) const fn entries<K, V>(count: usize) -> usize {
    2 * count * (size_of::<K>() + size_of::<V>())
}

impl Wave {
    /// Pages between two reads of this device that cost no more to fetch than a request of their own; none while no read was
    /// timed.
    pub fn gap_worth(&self, device: u64) -> PageCount {
        let known = self.queues.get(&device).filter(|queue| queue.device.latency().is_some());
        known.map_or(PageCount(0), |queue| PageCount(queue.device.gap_max().0 / PAGE_SIZE))
    }

    /// Whether it was seen how many requests this device serves at once: until then [`Wave::gap_worth`] may be a sixteenth of what
    /// it comes to be.
    pub fn gap_is_known(&self, device: u64) -> bool {
        self.queues.get(&device).is_some_and(|queue| queue.device.weighed())
    }

    /// Whether a page was fetched ahead of a reader on his way up, or down, who still comes to it. O(log streams).
    pub fn awaits(&self, file: FileId, page: PageIndex) -> bool {
        let Some(f) = self.files.get(&file).filter(|f| f.table.has(PageBit::Ahead, page)) else {
            return false;
        };
        let below = self.streams.below(f.expected.up(), page);
        let above = self.streams.above(f.expected.down(), page);
        below.is_some_and(|s| s.frontier > page.0)
            || above.is_some_and(|s| s.goes_down() && s.frontier <= page.0)
    }

    /// Whether one of these pages has arrived since then, as far as the latest arrivals are remembered: what a reader waited for who
    /// came before was late, and not gone. O(arrivals since then).
    pub fn arrived_since(&self, file: FileId, pages: Extent, since: Nanos) -> bool {
        let mut of_late = self.arrivals.iter().rev().take_while(|a| a.0 >= since);
        of_late.any(|&(_, of, arrived)| of == file && !arrived.intersection(pages).is_empty())
    }

    /// Whether something for this device was decided and not sent so far.
    pub fn is_behind(&self, device: u64) -> bool {
        self.queues.get(&device).is_some_and(|queue| !queue.is_empty())
    }

    /// Bytes that the brain takes, about. O(files).
    pub fn bytes_of_memory(&self) -> Bytes {
        let file = |f: &File| {
            entries::<u64, u64>(f.expected.len())
                + f.seeds.bytes_of_memory()
                + f.density.bytes_of_memory()
                + f.runs.bytes_of_memory()
                + f.said.bytes_of_memory()
        };
        let files: usize = self.files.values().map(file).sum();
        let tables: u64 = self.files.values().map(|f| f.table.bytes_of_memory().0).sum();
        let queues: usize = self.queues.values().map(Queue::bytes_of_memory).sum();
        let fixed = queues
            + self.ended.bytes_of_memory()
            + entries::<u32, Latest>(self.latest.len())
            + self.changed.capacity() * size_of::<(FileId, u64)>()
            + self.arrivals.capacity() * size_of::<(Nanos, FileId, Extent)>()
            + self.given_up.capacity() * size_of::<(FileId, Extent)>()
            + entries::<FileId, File>(self.files.len())
            + entries::<u64, Flight>(self.flights.len())
            + self.streams.bytes_of_memory()
            + self.silent.capacity() * size_of::<(Nanos, u64)>()
            + self.trace.capacity() * size_of::<Explained>();
        Bytes((files + fixed) as u64 + tables)
    }
}

#[cfg(test)]
mod tests {
    use crate::table::PageBit;
    use crate::units::{Bytes, Extent, FileId, Nanos, PageIndex};
    use crate::wave::streams::stream::tests::fetched_ahead;
    use crate::wave::streams::stream::{Course, Stream};
    use crate::wave::{Action, Config, Input, Wave};

    #[test]
    fn a_page_is_awaited_while_its_reader_has_not_come_and_is_not_gone() {
        let (mut wave, sid) = fetched_ahead(Extent::new(100, 50), 120);
        let awaited = |wave: &Wave| [99, 100, 149, 150].map(|page| wave.awaits(FileId(0), PageIndex(page)));
        assert_eq!(awaited(&wave), [false, true, true, false]);
        assert!(!wave.awaits(FileId(1), PageIndex(100)), "another file");
        wave.end(sid);
        assert_eq!(awaited(&wave), [false; 4], "nobody comes for them");
    }

    #[test]
    fn so_it_is_on_the_way_down() {
        let (mut wave, sid) = fetched_ahead(Extent::new(100, 50), 120);
        wave.end(sid);
        let mut s = Stream::seed(FileId(0), 150, 8, Nanos(0));
        (s.course, s.reads, s.frontier) = (Course::Backward, 3, 120);
        (s.next, s.first) = (150, 158);
        let sid = wave.streams.add(s).unwrap();
        let f = wave.files.get_mut(&FileId(0)).unwrap();
        assert_eq!(f.expected.expect(Course::Backward, 150, sid), None);
        let awaited = [119, 120, 149, 150].map(|page| wave.awaits(FileId(0), PageIndex(page)));
        assert_eq!(awaited, [false, true, true, false]);
    }

    /// What a driver need not say: that a wait ended, and what became of the requests of a file that it closed.
    #[test]
    fn nothing_is_left_of_who_tells_no_more() {
        let (mut wave, file) = (Wave::new(Config::default()), FileId(0));
        let open = Input::Open { file, device: 0, size: Bytes(1 << 30) };
        wave.handle(Nanos(0), open);
        wave.handle(Nanos(0), Input::Read { file, pages: Extent::new(5000, 8), actor: 7 });
        assert_eq!((wave.queue(0).waiting.len(), wave.queue(0).lacking.len()), (1, 1));
        // It is there, since somebody has looked: and it is not under way any more.
        wave.handle(Nanos(1), Input::Present { file, pages: Extent::new(5000, 8) });
        assert_eq!(wave.files[&file].table.count(PageBit::InFlight, Extent::new(5000, 8)).0, 0);
        wave.handle(Nanos(2), Input::Read { file, pages: Extent::new(5000, 8), actor: 7 });
        assert_eq!((wave.queue(0).waiting.len(), wave.queue(0).lacking.len()), (0, 0), "he has it");

        wave.handle(Nanos(3), Input::Read { file, pages: Extent::new(0, 300), actor: 8 });
        let Some(Action::Fetch { id, pages, .. }) = wave.poll(Nanos(3)) else {
            panic!("the rest of it is fetched")
        };
        wave.handle(Nanos(4), Input::Close { file });
        assert!(wave.queue(0).lacking.is_empty() && !wave.is_behind(0), "nobody wants anything of it");
        wave.handle(Nanos(5), open);
        wave.handle(Nanos(6), Input::Arrived { fetch: id });
        assert!(!wave.resident(file, pages.start), "that was of another file");
        wave.check();
    }
}
