//! What is sent next: of what is wanted, which pages, as how large a request, and whether at all now.
//!
//! ```text
//! demand  -> urgent -> ahead      in this order, while the device digests it (device.rs)
//!    |  what continues the latest request first, for as long as a trip is worth (queue.rs)
//!    v
//! wanted [10,100), [40,48) present, requests of 32 pages at most
//!    Fetch [10,32)   up to a multiple of 32: windows that meet share no request
//!    Fetch [32,40)   up to what is there
//!    Fetch [48,64) [64,96) [96,100)
//! a run of a stride, [86,107)
//!    Fetch [86,107)   nothing meets it
//! [10,100) ahead of one who comes down from there, where requests overlap
//!    Fetch [96,100) [64,96) [48,64) ...   in his order
//! ```
//!
//! What nobody waits for is held back where readers fill the device by themselves (queue.rs): it would come no sooner than they come for it, and they
//! later. While half of the memory is out unread, seven eighths where requests overlap, no window is begun.
//!
//! On a head, where a window may wait for long, its end is moved on first by what its reader has read meanwhile: else 300 streams of
//! 100 KB/s in 128 MiB would be brought less than they read with each way.

use crate::decision::Pattern;
use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageCount, PageIndex};
use crate::wave::plan::whole;
use crate::wave::requests::queue::{Queue, Turn, Wanted, piece_pages, spread_pages, take_next, together};
use crate::wave::streams::stream::{Course, Stream};
use crate::wave::windows::reach::FEW;
use crate::wave::{Action, FetchId, File, Flight, Wave};

/// Pages that may be out unread under an absolute waste ceiling before anything was used: 128 KiB.
const WASTE_FREE: u64 = 32;

/// What decides how large a request is, and which end of what is wanted it brings first.
struct Terms {
    /// Streams that are active, and pages that may be out.
    streams: u64,
    most: PageCount,
    /// Its reader comes down.
    down: bool,
    /// It is a run of a stride.
    strides: bool,
}

impl Wave {
    /// The request that goes to `device` next, if one may.
    pub(in crate::wave) fn poll_device(&mut self, now: Nanos, device: u64) -> Option<Action> {
        loop {
            let mut wanted = self.next_wanted(now, device)?;
            let Some(terms) = self.terms(&wanted) else { continue };
            let queue = self.queues.get_mut(&device)?;
            let Some(file) = self.files.get_mut(&wanted.file) else { continue };
            let Some(hole) = missing(file, &mut wanted, terms.down) else { continue };
            let unread = if wanted.turn == Turn::Ahead { self.ledger.unread() } else { 0 };
            let ours = cut(queue, &wanted, hole, PageCount(unread), &terms);
            let pages = with_own(queue, self.own, wanted.file, ours);
            let ours = ours.intersection(pages);
            self.own = if pages == ours { self.own } else { None };
            wanted.pages = if terms.down {
                Extent::between(wanted.pages.start, pages.start)
            } else {
                Extent::between(pages.end(), wanted.pages.end())
            };
            let (demand, why, id) = (wanted.turn == Turn::Demand, wanted.why, wanted.file);
            assert!(pages.end().0 <= file.end, "nothing is fetched past the end of a file");
            file.table.set(PageBit::InFlight, pages);
            if !demand {
                self.ledger.sent(file.table.set(PageBit::Ahead, ours).0);
                self.counters.pages_ahead += ours.count.0;
            }
            let sent = queue.sent(now, id, pages);
            if !wanted.pages.is_empty() {
                queue.line(wanted.turn).push_front(wanted);
            }
            let fetch = FetchId(self.next_fetch);
            self.next_fetch += 1;
            self.flights.insert(
                fetch,
                Flight { file: id, device, pages, ours: ours.count, issued: now, sent, closed: false },
            );
            self.touch_leaves(id, pages);
            return Some(Action::Fetch { id: fetch, file: id, pages, demand, why });
        }
    }

    /// Whose turn it is on `device`: taken from its queue, if anything of it may go now.
    fn next_wanted(&mut self, now: Nanos, device: u64) -> Option<Wanted> {
        let earned = self.earned();
        let (most, out, most_out) = (self.room(), self.out(), self.seven_eighths());
        let queue = self.queues.get_mut(&device)?;
        let waiting = if queue.urgent.is_empty() { 0 } else { queue.waiting.len() as u32 };
        let continued = queue.continued().or_else(|| queue.joined());
        if queue.demand.is_empty() && continued.is_none() && !queue.device.has_room(waiting) {
            return None;
        }
        // What continues the latest request goes first, for as long as a trip is worth, and longer while what would
        // go instead lies only a little further on: a head that is there already should not come back for it.
        let trip = queue.device.trip_pages().max(256);
        let (file, end) = queue.last_end;
        let urgent = queue.urgent.oldest();
        let further = urgent.is_some_and(|(f, start)| f == file && start >= end && start - end <= trip);
        let near = continued.or((trip > queue.run || further).then_some(queue.last_end));
        if queue.demand.is_empty()
            && self.config.waste_absolute
            && self.ledger.unread() >= WASTE_FREE + earned
        {
            return None;
        }
        // On a head windows lie for long: none is begun while half of the memory is out unread.
        let head = queue.device.trip_pages() > 0;
        let full = out >= if head { most } else { most_out };
        let ahead = if queue.is_filled() { None } else { Some(&mut queue.ahead) };
        let mut wanted = take_next([&mut queue.demand, &mut queue.urgent], ahead, near, full)?;
        if head {
            self.lengthen(now, &mut wanted);
        }
        Some(wanted)
    }

    /// For whom it is sent, and what follows of that; nothing if its stream has ended, for then nobody wants it.
    fn terms(&self, wanted: &Wanted) -> Option<Terms> {
        let (streams, most) = (self.active(), PageCount(self.room()));
        let Some(sid) = wanted.stream else {
            return Some(Terms { streams, most, down: false, strides: false });
        };
        let s = self.streams.get(sid)?;
        let most = if self.rushes(s) { PageCount(self.room_of_who_rushes()) } else { most };
        let strides = matches!(s.course, Course::Stride { .. });
        Some(Terms { streams, most, down: self.in_order_down(s), strides })
    }

    /// R6: whether what is ahead of a stream goes out from its end, since its reader comes down. A head brings it from below; and so it goes where
    /// memory is short, for there column files, whose ends are read first, take a quarter longer otherwise (decision 51).
    fn in_order_down(&self, s: &Stream) -> bool {
        let Some(f) = self.files.get(&s.file) else { return false };
        s.course == Course::Backward && self.overlaps(f) && !self.is_short(f)
    }

    /// R13: moves the end of a window that waited for its turn on by what its reader has read meanwhile: a head that has come so
    /// far should bring as much as it would be asked for now.
    fn lengthen(&mut self, now: Nanos, wanted: &mut Wanted) {
        let Some(sid) = wanted.stream else { return };
        let (Some(s), Some(f)) = (self.streams.get(sid), self.files.get(&wanted.file)) else { return };
        let end_of_file = f.end;
        if s.course != Course::Forward || s.frontier != wanted.pages.end().0 || s.reads <= 2 {
            return;
        }
        let (target, why) = self.target(sid, wanted.why, s.progress());
        let Some(s) = self.streams.get_mut(sid) else { return };
        let end = s.next.saturating_add(target).min(end_of_file);
        if end >= s.frontier + FEW {
            let more = Extent::between(PageIndex(s.frontier), PageIndex(end));
            s.frontier = end;
            wanted.pages = Extent::between(wanted.pages.start, more.end());
            self.explain(now, wanted.file, more, whole(more), Pattern::Subsequent, why);
        }
    }

    /// What was to be fetched ahead around `page` is wanted now: it goes before what nobody waits for.
    pub(in crate::wave) fn promote(&mut self, id: FileId, page: u64) {
        let Some(queue) = self.files.get(&id).and_then(|f| self.queues.get_mut(&f.device)) else { return };
        let crowded = queue.crowded_head() && !self.config.waste_absolute;
        let urgent = if crowded { queue.urgent.take_around(id, page) } else { None };
        if let Some(wanted) = urgent.or_else(|| queue.ahead.take_around(id, page)) {
            let turn = if crowded { Turn::Beside } else { Turn::Urgent };
            queue.line(turn).push_back(Wanted { turn, ..wanted });
        }
    }

    pub(in crate::wave) fn want(&mut self, wanted: Wanted) {
        let Some(f) = self.files.get(&wanted.file) else { return };
        let pages = wanted.pages.intersection(Extent::new(0, f.end));
        if pages.is_empty() {
            return;
        }
        let device = f.device;
        self.queue(device).line(wanted.turn).push_back(Wanted { pages, ..wanted });
    }
}

/// The first run of what is wanted that is not there, or the last if its reader comes `down`. The file may have become shorter since the
/// window was decided.
fn missing(file: &File, wanted: &mut Wanted, down: bool) -> Option<Extent> {
    wanted.pages = wanted.pages.intersection(Extent::new(0, file.end));
    let mut holes = file.table.holes(wanted.pages);
    if down { holes.last() } else { holes.next() }
}

/// What of `hole` is one request. Pieces keep to multiples of their size, so that two windows that meet share no request. Runs of a stride meet
/// none; and where streams are many, requests are what is scarce.
fn cut(queue: &Queue, wanted: &Wanted, hole: Extent, unread: PageCount, terms: &Terms) -> Extent {
    let piece_max = piece_pages(queue, Some(wanted), unread, terms.most);
    let piece_max = piece_max.min(spread_pages(queue, terms.most, terms.streams));
    let whole = (queue.device.scarce_for(terms.streams) || terms.strides) && hole.count.0 <= piece_max;
    if whole { hole } else { piece(hole, piece_max, terms.down) }
}

/// The request together with what its reader brings himself of the same file, if it is small: a quarter of a unit at most.
fn with_own(queue: &Queue, own: Option<(FileId, Extent)>, file: FileId, ours: Extent) -> Extent {
    let joins = 4 * ours.count.bytes().0 <= queue.device.unit().0;
    let own = own.filter(|own| joins && own.0 == file).map(|own| own.1);
    own.map_or(ours, |own| together(own, ours, queue.request_max))
}

/// What goes out first of what is missing, cut at multiples of `most` pages, so that two windows that meet share no request; from its end if
/// its reader comes `down`.
fn piece(missing: Extent, most: u64, down: bool) -> Extent {
    if down {
        let cut = PageIndex((missing.end().0 - 1) / most * most);
        Extent::between(missing.start.max(cut), missing.end())
    } else {
        let cut = PageIndex((missing.start.0 / most + 1).saturating_mul(most));
        Extent::between(missing.start, missing.end().min(cut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Why;
    use crate::wave::devices::device::tests::play;
    use crate::wave::streams::stream::tests::fetched_ahead;

    /// The picture at the top: [10,100), of which [40,48) is there.
    #[test]
    fn windows_go_out_in_the_order_of_their_reader() {
        let sent = |course: Course, slots: usize| {
            let (mut wave, sid) = fetched_ahead(Extent::new(256, 400), 300);
            wave.queue(0).device = play(slots, 8_000, 500);
            wave.streams.get_mut(sid).unwrap().course = course;
            wave.files.get_mut(&FileId(0)).unwrap().table.set(PageBit::Present, Extent::new(40, 8));
            let (pages, why) = (Extent::new(10, 90), Why("R2 next"));
            wave.want(Wanted { file: FileId(0), pages, turn: Turn::Ahead, why, stream: Some(sid) });
            let next = || match wave.poll(Nanos(0)) {
                Some(Action::Fetch { pages, .. }) => Some((pages.start.0, pages.end().0)),
                _ => None,
            };
            core::iter::from_fn(next).collect::<alloc::vec::Vec<_>>()
        };
        let up = [(10, 32), (32, 40), (48, 64), (64, 96), (96, 100)];
        let down = [(96, 100), (64, 96), (48, 64), (32, 40), (10, 32)];
        assert_eq!(sent(Course::Forward, 16), up);
        assert_eq!(sent(Course::Backward, 16), down);
        assert_eq!(sent(Course::Backward, 1), up, "a head brings them from below");
    }

    /// Of 8 MiB 1,024 pages are half, and 1,792 seven eighths.
    #[test]
    fn what_nobody_waits_for_stays_while_much_of_the_memory_is_out() {
        let goes = |slots: usize, out: u64, turn: Turn| {
            let (mut wave, sid) = fetched_ahead(Extent::new(256, out), 300);
            wave.queue(0).device = play(slots, 8_000, 500);
            wave.belief.is(2048);
            let pages = Extent::new(8192, 32);
            wave.want(Wanted { file: FileId(0), pages, turn, why: Why("R2 next"), stream: Some(sid) });
            wave.poll(Nanos(0)).is_some()
        };
        assert_eq!([1023, 1024].map(|out| goes(1, out, Turn::Ahead)), [true, false]);
        assert_eq!([1791, 1792].map(|out| goes(16, out, Turn::Ahead)), [true, false]);
        assert!(goes(1, 1024, Turn::Urgent), "its reader waits");
    }
}
