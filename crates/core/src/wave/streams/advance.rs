//! R2, R5-R7: how a stream moves on when a read belongs to it, and what its reader has passed without a word.
//!
//! ```text
//!                                                         is expected at     and these were read without a word
//! up, at 120, [120,152) fetched     read [120,122)        122
//!                                   read [140,142)        142                [122,140), what was fetched of it
//! a seed [120,122)                  read [122,124)        124, up
//!                                   read [118,120)        118, down
//! down, at 118, [86,118) fetched    read [100,102)        100                [102,118), the same
//! a stride at 48, period 16         read [95,96)          110, 111 (beat.rs) the runs at 48, 64 and 80
//! ```
//!
//! Where another stream was expected at the same page that one is displaced: this one goes on for both (expected.rs).

use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageIndex};
use crate::wave::streams::expected::Displaced;
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::stride::beat::{Beat, Lies};
use crate::wave::{File, Wave};
use alloc::vec::Vec;

/// Runs of a stride that may have been read quietly since the last that was told.
const QUIET_MAX: u64 = 4096;

/// Each returns the stream that was expected where this one is now.
impl File {
    /// A seed turns round: the read at `page` lies before it.
    fn turn_down(&mut self, sid: StreamId, s: &mut Stream, page: u64) -> Option<StreamId> {
        self.expected.clear(Course::Forward, s.next);
        self.expected.clear(Course::Backward, s.first);
        s.course = Course::Backward;
        (s.first, s.next, s.frontier) = (s.next, page, page);
        self.expected.expect(Course::Backward, page, sid)
    }

    /// A stream goes up, or a seed begins to; `way` is what one connection carries in a latency, where a device is known.
    fn move_up(
        &mut self,
        sid: StreamId,
        s: &mut Stream,
        pages: Extent,
        way: Option<u64>,
    ) -> Option<StreamId> {
        if s.course == Course::Seed {
            self.expected.clear(Course::Backward, s.first);
            s.course = Course::Forward;
        }
        let next = self.come_up_to(s, pages);
        if s.manner.block() == 0 {
            s.manner.skipped(pages.start.0.saturating_sub(s.frontier.max(s.next)));
        }
        // Who came page by page has seen the mark, or read the page before; who reads 16 pages in every 272 has not.
        let between = Extent::between(PageIndex(s.next), pages.start);
        let overlooked = self.unheard(between, pages.start.0.checked_sub(1)).next().is_some()
            && way.is_none_or(|way| between.count.0 > way.max(s.manner.block()));
        s.manner.overlooked(overlooked);
        self.expected.clear(Course::Forward, s.next);
        s.next = next;
        s.frontier = s.frontier.max(next);
        self.expected.expect(Course::Forward, next, sid)
    }

    /// A stream goes down.
    fn move_down(&mut self, sid: StreamId, s: &mut Stream, pages: Extent) -> Option<StreamId> {
        self.expected.clear(Course::Backward, s.next);
        s.next = self.come_down_to(s, pages);
        s.frontier = s.frontier.min(s.next);
        self.expected.expect(Course::Backward, s.next, sid)
    }

    /// A stride has come to `pages`, of which was told where they lie, or not.
    fn stride_on(
        &mut self,
        sid: StreamId,
        s: &mut Stream,
        pages: Extent,
        told: Option<Lies>,
    ) -> Option<StreamId> {
        let Course::Stride { period, .. } = s.course else { return None };
        self.expected.clear(s.course, s.next);
        if let Some(beat) = &mut s.beat {
            beat.comes(beat.nearest(pages.start.0).max(1), pages, told);
        }
        let next = s.beat().after(1).map_or(u64::MAX, |run| run.start.0);
        s.next = next;
        if (period > 0 && s.frontier < next) || (period < 0 && s.frontier > next) {
            s.frontier = next;
        }
        self.expected.expect(s.course, next, sid)
    }
}

impl Wave {
    /// Moves the stream over `pages`, or turns a seed into what it has become.
    pub(in crate::wave) fn advance(&mut self, now: Nanos, sid: StreamId, pages: Extent) {
        let told = self.lies(pages);
        let Some(s) = self.streams.get_mut(sid) else { return };
        let Some(f) = self.files.get_mut(&s.file) else { return };
        let (id, serial, guessed) = (s.file, s.begun.serial(), s.ahead > 0);
        let (course, next, first, beat) = (s.course, s.next, s.first, *s.beat());
        s.request = pages.count.0;
        s.touched(now);
        if s.reads == 3 {
            f.seeds.read_thrice(serial);
            f.taught.read_thrice(s.waits.is_early_no_more());
        }
        let way = self.queues.get(&f.device).map(|queue| queue.device.unit_pages());
        let displaced = match course {
            Course::Seed if pages.start.0 < first => f.turn_down(sid, s, pages.start.0),
            Course::Seed | Course::Forward => f.move_up(sid, s, pages, way),
            Course::Backward => f.move_down(sid, s, pages),
            Course::Stride { .. } => f.stride_on(sid, s, pages, told),
        };
        if let Some(other) = displaced {
            self.displaced(other, Displaced::ByRead);
        }
        if course == Course::Seed {
            self.went_on(id, serial, guessed);
        }
        if let Course::Stride { run, .. } = course {
            self.strode_to(now, sid, (beat, run), pages.start.0);
        }
        let passed = match self.streams.get(sid).map(|s| (s.course, s.next)) {
            Some((Course::Forward, now_next)) => {
                Extent::between(PageIndex(next), pages.start.min(PageIndex(now_next)))
            }
            Some((Course::Backward, now_next)) if course != Course::Seed => {
                Extent::between(pages.end().max(PageIndex(now_next)), PageIndex(next.min(first)))
            }
            _ => Extent::new(0, 0),
        };
        self.use_what_was_ahead(id, passed);
        self.mark_active(now, sid);
    }

    /// A seed has become a stream; something was fetched for its first read or not.
    fn went_on(&mut self, id: FileId, serial: u64, guessed: bool) {
        self.counters.streams += 1;
        let Some(f) = self.files.get_mut(&id) else { return };
        if guessed {
            f.runs.guess_came_true();
        }
        f.seeds.went_on(serial);
    }

    /// Pages that were passed quietly inside the window were read.
    fn use_what_was_ahead(&mut self, id: FileId, passed: Extent) {
        if passed.is_empty() {
            return;
        }
        let quiet: Vec<Extent> = self.files[&id].table.runs(PageBit::Ahead, passed).collect();
        for run in quiet {
            self.use_pages(id, run);
        }
    }

    /// R7: a stride has come to page `q`; the runs between the latest, of so many pages, and this one were read as well, as the `beat` of before
    /// has them.
    fn strode_to(&mut self, now: Nanos, sid: StreamId, (beat, run): (Beat, u64), q: u64) {
        let Some(s) = self.streams.get_mut(sid) else { return };
        let (id, latest) = (s.file, beat.read(0, run));
        let runs = (beat.nearest(q).max(1).unsigned_abs() - 1).min(QUIET_MAX);
        s.reads += runs;
        self.pass_runs(now, id, (beat, run), runs);
        // Did its reader go on where the run before ended?
        let went_on = latest.is_some_and(|latest| self.files[&id].table.has(PageBit::Used, latest.end()));
        if let Some(s) = self.streams.get_mut(sid).filter(|_| went_on) {
            s.followed = s.followed.saturating_add(1);
        }
        // Gaps that were fetched with the runs (R8) are behind the reader: nobody will read them.
        let before = latest.map_or(q, |latest| latest.start.0);
        let gaps = Extent::between(PageIndex(before.min(q)), PageIndex(before.max(q)));
        let passed = self.files[&id].table.count(PageBit::Ahead, gaps).0;
        self.ledger.died(passed);
    }

    /// So many runs of a stride, of `run` pages where they lie whole pages apart, were read quietly; [`QUIET_MAX`] are believed.
    pub(in crate::wave) fn pass_runs(&mut self, now: Nanos, id: FileId, (beat, run): (Beat, u64), runs: u64) {
        for passed in (1..=runs.min(QUIET_MAX) as i64).map_while(|k| beat.fetched(k, run)) {
            self.use_pages(id, passed);
            self.sow(now, id, passed, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use crate::wave::{Config, Input};

    /// A stream of this course at `[first, next)`, that has `ahead` fetched, after a read: which page it is expected at, whether it goes down, and
    /// how many pages of those were used.
    fn after(course: Course, [first, next]: [u64; 2], ahead: Extent, read: Extent) -> (u64, bool, u64) {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        let mut s = Stream::seed(id, first, next.abs_diff(first), Nanos(0));
        if course == Course::Backward {
            (s.first, s.next) = (first, next);
        }
        (s.course, s.ahead) = (course, ahead.count.0);
        s.frontier = if course == Course::Backward { ahead.start.0 } else { ahead.end().0 };
        let sid = wave.adopt(Nanos(0), s).unwrap();
        let f = wave.files.get_mut(&id).unwrap();
        for bit in [PageBit::Present, PageBit::Ahead] {
            f.table.set(bit, ahead);
        }
        wave.ledger.has_unread(ahead.count.0);
        wave.advance(Nanos(1), sid, read);
        let s = wave.streams.get(sid).unwrap();
        let used = ahead.count.0 - wave.files[&id].table.count(PageBit::Ahead, ahead).0;
        (s.next, s.course == Course::Backward, used)
    }

    /// The picture, but for its last line.
    #[test]
    fn a_stream_moves_over_what_was_read() {
        let (up, down) = (Extent::new(120, 32), Extent::new(86, 32));
        assert_eq!(after(Course::Forward, [100, 120], up, Extent::new(120, 2)), (122, false, 0));
        assert_eq!(after(Course::Forward, [100, 122], up, Extent::new(140, 2)), (142, false, 18));
        let seed = |start: u64| after(Course::Seed, [120, 122], Extent::new(122, 0), Extent::new(start, 2));
        assert_eq!([seed(122), seed(118)], [(124, false, 0), (118, true, 0)]);
        assert_eq!(after(Course::Backward, [200, 118], down, Extent::new(100, 2)), (100, true, 16));
    }

    /// And that: one run is read a page early, and those before it were read without a word, all of them.
    #[test]
    fn a_run_that_is_a_page_early_is_counted_with_those_before() {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        let pages = Extent::new(32, 1);
        let s = Stream::stride(id, pages, Beat::whole(pages, 16).unwrap(), Nanos(0)).unwrap();
        let sid = wave.adopt(Nanos(0), s).unwrap();
        assert_eq!(wave.streams.get(sid).unwrap().next, 48);
        wave.advance(Nanos(1), sid, Extent::new(95, 1));
        assert_eq!(wave.streams.get(sid).unwrap().next, 110);
        let f = &wave.files[&id];
        assert_eq!([48, 64, 80].map(|page| f.table.has(PageBit::Used, PageIndex(page))), [true; 3]);
    }
}
