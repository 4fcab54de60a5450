//! A stream: what is remembered of one reader's progress. locate.rs decides where a read belongs, windows/reach.rs how far to fetch.
//!
//! A stream is found by the page it is expected to read next: the greatest expectation at or before the read. So any number
//! of streams cost one look-up in an ordered map, and none gives way to another; of seeds a file has 4,096, and the oldest goes.
//!
//! ```text
//! forward    first ....read.... next |.....fetched ahead.....| frontier       reads [next, frontier) belong here
//! backward   frontier |...fetched ahead...| next ....read.... first           the next read ends at `next`
//! stride     +--run--+            +--run--+            +--run--+              next = last + period
//! ```

use crate::units::{Extent, FileId, Nanos, PageCount, PageIndex};
use crate::wave::memory::epochs::Counted;
use crate::wave::memory::losses::Robbed;
use crate::wave::streams::begin::Begun;
use crate::wave::streams::manner::Manner;
use crate::wave::streams::pace::Pace;
use crate::wave::streams::returns::Returns;
use crate::wave::streams::sweep::InLine;
use crate::wave::stride::beat::Beat;
use crate::wave::windows::runs::{Direction, Noted};
use crate::wave::windows::waits::Waits;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::size_of;

/// Which way a stream goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Course {
    /// One read so far: may become anything.
    Seed,
    /// Upwards, page after page.
    Forward,
    /// Downwards.
    Backward,
    /// Reads of `run` pages, each `period` pages from the last (negative: downwards).
    Stride {
        /// Pages from one read's start to the next one's.
        period: i64,
        /// Pages of one read.
        run: u64,
    },
}

/// One reader's progress. Pages are plain numbers here: the arithmetic runs both ways.
#[derive(Clone, Debug)]
pub(in crate::wave) struct Stream {
    pub(crate) file: FileId,
    pub(crate) course: Course,
    /// How it began: as which seed, and when.
    pub(crate) begun: Begun,
    /// Where the run began: its first page; for a backward stream the page after its highest.
    pub(crate) first: u64,
    /// Forward: page after the last one read. Backward: lowest page read. Stride: start of the read expected next.
    pub(crate) next: u64,
    /// How far was fetched or asked for. Forward: first page not asked for. Backward: lowest page asked for.
    /// Stride: start of the first run not asked for.
    pub(crate) frontier: u64,
    /// Pages that the rules want ahead of the reader; for a stride, runs.
    pub(crate) ahead: u64,
    /// Pages of the latest read.
    pub(crate) request: u64,
    /// Reads seen, quiet ones not counted.
    pub(crate) reads: u64,
    /// Its reader went away from it, and is not back (R9).
    pub(crate) left: bool,
    /// Page behind the one at which its reader has looked before it went on from the first (R9); of one that goes down, the first page, at
    /// which he was before he began with the last; 0 for none.
    pub(crate) looked: u64,
    /// Where the runs of a stride lie (R7); seeds and runs, of which there are many more, have none.
    pub(in crate::wave) beat: Option<Box<Beat>>,
    /// A stride that its reader walks by turns with whatever else: that he is elsewhere is no sign (R7).
    pub(crate) by_turns: bool,
    /// A stride that was asked for with its first read, as those before it (R7).
    pub(crate) foreseen: bool,
    /// Of a stride: what was first asked for ahead of it was there when its reader came (R7).
    pub(crate) found: bool,
    /// Of a stride: runs behind which its reader read on (R9).
    pub(crate) followed: u32,
    /// Of a stride: pages that are fetched for a run, with what its reader reads on; 0 where that is the run alone.
    pub(crate) whole: u64,
    /// In what manner its reader goes on, how fast, and after what else.
    pub(crate) manner: Manner,
    pub(crate) pace: Pace,
    pub(crate) returns: Returns,
    /// What he has paid for by waiting (R3).
    pub(crate) waits: Waits,
    /// What he has lost of what was ahead of him (R12).
    pub(crate) robbed: Robbed,
    /// When it was active last (R13), and when it is looked at next whether it has ended.
    pub(crate) counted: Counted,
    pub(crate) line: InLine,
}

/// Streams and seeds of all files; where so many are alive none begins. Of 500 bytes each: 65 MB.
pub(in crate::wave) const STREAMS_MAX: usize = 1 << 17;
/// Pages that come with one that is told where all are: a fault maps 16 around it, and its reader may touch them in any order.
pub(crate) const UNTOLD_MAX: u64 = 31;

impl Stream {
    /// A stream of one read of `request` pages at `start`.
    pub(crate) fn seed(file: FileId, start: u64, request: u64, now: Nanos) -> Self {
        Self {
            file,
            course: Course::Seed,
            first: start,
            next: start + request,
            frontier: start + request,
            ahead: 0,
            request,
            reads: 1,
            manner: Manner::default(),
            pace: Pace::begins(now),
            line: InLine::default(),
            counted: Counted::default(),
            waits: Waits::default(),
            returns: Returns::default(),
            robbed: Robbed::default(),
            left: false,
            looked: 0,
            beat: None,
            by_turns: false,
            foreseen: false,
            found: true,
            followed: 0,
            whole: 0,
            begun: Begun::default(),
        }
    }

    /// A stride that has read `pages` and goes on as `beat` says; `None` if the next run lies before the file.
    pub(in crate::wave) fn stride(file: FileId, pages: Extent, beat: Beat, now: Nanos) -> Option<Self> {
        let mut s = Self::seed(file, pages.start.0, pages.count.0, now);
        s.course = Course::Stride { period: beat.pages(), run: pages.count.0 };
        s.next = beat.after(1)?.start.0;
        (s.frontier, s.beat) = (s.next, Some(Box::new(beat)));
        Some(s)
    }

    /// Where the runs of a stride lie; of another stream nothing is known.
    pub(in crate::wave) fn beat(&self) -> &Beat {
        self.beat.as_deref().unwrap_or(&Beat::NONE)
    }

    /// Pages that the run has come.
    pub(crate) fn progress(&self) -> u64 {
        match self.course {
            Course::Backward => self.first.saturating_sub(self.next),
            Course::Stride { run, .. } => run * self.reads,
            Course::Seed | Course::Forward => self.next.saturating_sub(self.first),
        }
    }

    /// R9: if it goes up and was left, and its reader is back at a page within it, it begins there.
    pub(crate) fn begins_anew_at(&mut self, page: u64) {
        if self.left && (self.first + 1..self.next).contains(&page) {
            (self.first, self.left) = (page, false);
        }
    }

    /// Whether it goes down, and not back to where its reader was first.
    pub(crate) fn goes_down(&self) -> bool {
        self.course == Course::Backward && self.looked == 0
    }

    /// In which direction it goes, as a run that may end.
    pub(crate) fn direction(&self) -> Direction {
        if self.goes_down() { Direction::Down } else { Direction::Up }
    }

    /// Whether its length was noted when its reader left it.
    pub(crate) fn noted(&self) -> Noted {
        if self.left { Noted::WhenLeft } else { Noted::NotYet }
    }

    /// Whether it may be no way down, but a look at what lies before: its second read, more than twice as long as the first. So footers are
    /// read, the last bytes of a file first, and then what they say the length of (R6).
    pub(crate) fn looks_back(&self) -> bool {
        self.course == Course::Backward
            && self.reads == 2
            && self.request > 2 * self.progress().saturating_sub(self.request)
    }

    /// Whether its reader reads each page twice or more on average: his reads overlap by half.
    pub(crate) fn reads_again(&self) -> bool {
        self.reads > 3 && 2 * self.progress() < (self.reads + 2) * self.request
    }

    /// Pages that it had when it ended: to where its reader had looked, if what he did not tell of is all that was left.
    pub(crate) fn length(&self) -> u64 {
        let near = match self.course {
            Course::Forward => (self.next..=self.next + UNTOLD_MAX).contains(&self.looked),
            Course::Backward => {
                self.looked > 0 && (self.looked..=self.looked + UNTOLD_MAX).contains(&self.next)
            }
            Course::Seed | Course::Stride { .. } => false,
        };
        if near { self.looked.abs_diff(self.first) } else { self.progress() }
    }

    /// Pages between it and where its reader has looked; 0 where he has not.
    pub(crate) fn to_look(&self) -> u64 {
        match self.course {
            Course::Backward if self.looked > 0 => self.next.saturating_sub(self.looked),
            Course::Seed | Course::Forward => self.looked.saturating_sub(self.next),
            Course::Backward | Course::Stride { .. } => 0,
        }
    }

    /// Whether `page` lies where the reader of a stride has come by.
    pub(crate) fn went_by(&self, page: PageIndex) -> bool {
        let Course::Stride { period, .. } = self.course else { return false };
        let way = (self.reads + 1).saturating_mul(period.unsigned_abs());
        let (low, high) = match period > 0 {
            true => (self.next.saturating_sub(way), self.next),
            false => (self.next, self.next.saturating_add(way)),
        };
        (low..=high).contains(&page.0)
    }

    /// The run of a stride that was read last; `None` for another stream, and for a stride beyond all page numbers.
    pub(crate) fn latest_run(&self) -> Option<Extent> {
        let Course::Stride { run, .. } = self.course else { return None };
        self.beat().read(0, run)
    }

    /// What was fetched for the run of a stride that was read last, where its reader reads on behind each.
    pub(crate) fn latest_whole(&self) -> Option<Extent> {
        let run = self.latest_run().filter(|run| self.whole > run.count.0 || self.beat().is_read_on())?;
        let count = PageCount(self.whole.max(run.count.0));
        run.start.0.checked_add(count.0)?;
        Some(Extent { count, ..run })
    }

    /// Whether the reader of a stride reads on at `pages` behind its latest run; the page behind its whole makes that longer.
    pub(crate) fn reads_on(&mut self, pages: Extent) -> bool {
        let Some(whole) = self.latest_whole() else { return false };
        if self.whole > 0 {
            self.whole = self.whole.max(pages.end().since(whole.start).0.min(self.whole + 1));
        }
        pages.start > whole.start
    }

    /// Pages asked for and not passed by the reader.
    pub(crate) fn out(&self) -> u64 {
        self.frontier.abs_diff(self.next)
    }

    /// Whether its reader is to come to `page`, as far as is known: it was asked for, or would be again if what was lost before it were
    /// not, and he has not left.
    pub(crate) fn comes_to(&self, page: u64) -> bool {
        let (low, high) = (self.next.min(self.frontier), self.next.max(self.frontier));
        let again =
            if self.robbed.of_late() && self.course == Course::Forward { self.next + self.ahead } else { 0 };
        !self.left && (low..high.max(again)).contains(&page)
    }

    /// Counts one more read at `now`.
    pub(crate) fn touched(&mut self, now: Nanos) {
        self.heard_of(now);
        self.reads += 1;
    }

    /// Whether its reader goes up, and takes what comes as fast as it comes.
    pub(crate) fn takes_what_comes(&self) -> bool {
        self.pace.takes_at_once() && self.course == Course::Forward
    }

    /// It was heard of at `now`, by a read or by what was read quietly.
    pub(crate) fn heard_of(&mut self, now: Nanos) {
        self.pace.heard_of(now, self.reads);
    }
}

/// Names a stream; a name outlives its stream without ever naming another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StreamId {
    index: u32,
    generation: u32,
}

/// All streams of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    slots: Vec<(u32, Option<Stream>)>,
    free: Vec<u32>,
    /// Where [`Streams::next_few`] goes on.
    turn: usize,
}

impl Streams {
    /// Adds a stream, unless [`STREAMS_MAX`] are alive. O(1).
    pub(crate) fn add(&mut self, mut stream: Stream) -> Option<StreamId> {
        if self.len() >= STREAMS_MAX {
            return None;
        }
        stream.line = InLine::default();
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(stream);
        Some(StreamId { index, generation: slot.0 })
    }

    /// The stream, unless it has ended.
    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.slots.get(id.index as usize).filter(|s| s.0 == id.generation)?.1.as_ref()
    }

    /// The stream, unless it has ended.
    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.slots.get_mut(id.index as usize).filter(|s| s.0 == id.generation)?.1.as_mut()
    }

    /// Ends a stream and returns it.
    pub(crate) fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let slot = self.slots.get_mut(id.index as usize).filter(|s| s.0 == id.generation)?;
        let stream = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(id.index);
        Some(stream)
    }

    /// Of streams by the page that they are expected at, the nearest at `page` or below it. O(log streams).
    pub(crate) fn below(&self, places: &BTreeMap<u64, StreamId>, page: PageIndex) -> Option<&Stream> {
        places.range(..=page.0).next_back().and_then(|(_, &sid)| self.get(sid))
    }

    /// And the nearest above it. O(log streams).
    pub(crate) fn above(&self, places: &BTreeMap<u64, StreamId>, page: PageIndex) -> Option<&Stream> {
        places.range(page.0 + 1..).next().and_then(|(_, &sid)| self.get(sid))
    }

    /// Streams in turn: those of the next `max` places, all of them where there are no more.
    pub(crate) fn next_few(&mut self, max: usize) -> Vec<&Stream> {
        let places = self.slots.len();
        let from = if self.turn < places { self.turn } else { 0 };
        self.turn = from + max;
        (from..from + max.min(places)).filter_map(|i| self.slots[i % places].1.as_ref()).collect()
    }

    /// Bytes that they take.
    pub(crate) fn bytes_of_memory(&self) -> usize {
        self.slots.capacity() * size_of::<(u32, Option<Stream>)>() + self.free.capacity() * size_of::<u32>()
    }

    /// Streams that were ever alive at once.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Streams alive.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
pub(in crate::wave) mod tests {
    use super::*;
    use crate::table::PageBit;
    use crate::units::Bytes;
    use crate::wave::devices::device::tests::play;
    use crate::wave::{Action, Config, Input, Wave};

    /// A stream that has read file 0 of 1 GiB up to `out`, all of which is there for it, with a mark at `mark`.
    pub(in crate::wave) fn fetched_ahead(out: Extent, mark: u64) -> (Wave, StreamId) {
        let mut wave = Wave::new(Config::default());
        wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 30) });
        let mut s = Stream::seed(FileId(0), 0, out.start.0, Nanos(0));
        (s.course, s.reads, s.frontier, s.ahead) = (Course::Forward, 3, out.end().0, out.count.0);
        let sid = wave.adopt(Nanos(0), s).unwrap();
        let f = wave.files.get_mut(&FileId(0)).unwrap();
        for bit in [PageBit::Present, PageBit::Ahead] {
            f.table.set(bit, out);
        }
        f.table.set(PageBit::Mark, Extent::new(mark, 1));
        wave.ledger.has_unread(out.count.0);
        (wave, sid)
    }

    /// Four reads on a head of 8 ms buy this region of file 0 (R11), and what was missing of it comes.
    pub(in crate::wave) fn buy_region(wave: &mut Wave) -> Extent {
        wave.queue(0).device.timed_alone(Nanos::from_ms(8));
        for page in [2050, 2120, 2180, 2250] {
            let read = Input::Read { file: FileId(0), pages: Extent::new(page, 8), actor: page as u32 };
            wave.handle(Nanos::from_ms(page), read);
        }
        let now = Nanos::from_ms(2300);
        while let Some(Action::Fetch { id, .. }) = wave.poll(now) {
            wave.handle(now, Input::Arrived { fetch: id });
        }
        Extent::new(2048, 256)
    }

    #[test]
    fn a_name_outlives_its_stream_without_naming_another() {
        let mut streams = Streams::default();
        let a = streams.add(Stream::seed(FileId(1), 10, 2, Nanos(0))).unwrap();
        assert_eq!(streams.get(a).unwrap().next, 12);
        assert!(streams.remove(a).is_some());
        let b = streams.add(Stream::seed(FileId(1), 20, 2, Nanos(0))).unwrap();
        assert!(streams.get(a).is_none() && streams.remove(a).is_none());
        assert_eq!((streams.get(b).unwrap().first, streams.len()), (20, 1));
    }

    /// 64 pages that go on by 16, as who asks again for what he did not use; by 32; by 40; and by 64.
    #[test]
    fn who_reads_each_page_twice_reads_again() {
        let reads_again = |by: u64| {
            let mut s = Stream::seed(FileId(0), 0, 64, Nanos(0));
            (s.course, s.reads, s.next) = (Course::Forward, 10, 64 + 9 * by);
            s.reads_again()
        };
        assert_eq!([16, 32, 40, 64].map(reads_again), [true, true, false, false]);
    }

    /// A footer: the last page, then the twelve before it. On a head what lies below would be a trip: nothing is fetched, but with the third
    /// read. Reads of 12 pages each are a way down at once, and without a head so is the footer.
    #[test]
    fn a_head_makes_no_trip_for_a_look_at_a_footer() {
        let fetched_after = |slots: usize, reads: &[(u64, u64)]| {
            let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
            wave.queue(0).device = play(slots, 8_000, 500);
            wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(8 << 20) });
            let mut now = Nanos(0);
            let mut fetched = |&(start, count): &(u64, u64)| {
                now.0 += 10_000_000;
                wave.handle(now, Input::Read { file: id, pages: Extent::new(start, count), actor: 0 });
                wave.check();
                let mut pages = 0;
                while let Some(Action::Fetch { id, pages: fetch, .. }) = wave.poll(now) {
                    pages += fetch.count.0;
                    wave.handle(now, Input::Arrived { fetch: id });
                }
                pages > 0
            };
            reads.iter().map(&mut fetched).collect::<Vec<bool>>()
        };
        let footer = [(2047, 1), (2035, 12), (2023, 12)];
        assert_eq!(fetched_after(1, &footer), [false, false, true]);
        assert_eq!(fetched_after(1, &[(2036, 12), (2024, 12)]), [false, true]);
        assert_eq!(fetched_after(64, &footer[..2]), [false, true]);
    }
}
