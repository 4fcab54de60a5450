//! R2, R7: reads of which nobody told when they were made, and what they show afterwards.
//!
//! A page that is there is read quietly. Drivers tell later that it was, in batches ([`crate::wave::Input::Used`]); a mark among the pages
//! says that it is time for the next window, and the stream has come to where they end:
//!
//! ```text
//! next 100, fetched up to 164, mark at 132
//! used [100, 120)     the stream has come to 120: its next read is expected there, nothing is fetched
//! used [120, 136)     to 136, past the mark: its window of 64 is pushed on to 200
//! ```

use crate::decision::Why;
use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageIndex};
use crate::wave::Wave;
use crate::wave::streams::expected::Displaced;
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::windows::passes::Seen;

/// What is told of the reads of one file.
#[derive(Clone, Copy, Debug)]
pub(in crate::wave) struct Told {
    /// Each page read is ([`crate::wave::Input::Told`]).
    all: bool,
    /// Reads that were told when they were made.
    reads: u64,
    /// The latest run that was read quietly (R9).
    quiet: Extent,
}

impl Default for Told {
    fn default() -> Self {
        Self { all: false, reads: 0, quiet: Extent::new(0, 0) }
    }
}

impl Told {
    /// Whether each page read is told, from now on.
    pub(in crate::wave) fn is_all(&mut self, all: bool) {
        self.all = all;
    }

    /// Whether each page read is told.
    pub(in crate::wave) fn all(&self) -> bool {
        self.all
    }

    /// Reads that were told so far.
    pub(in crate::wave) fn reads(&self) -> u64 {
        self.reads
    }

    /// A read is told; returns its number, from 1.
    pub(in crate::wave) fn count(&mut self) -> u64 {
        self.reads += 1;
        self.reads
    }

    /// These pages were read quietly.
    fn quietly(&mut self, pages: Extent) {
        let goes_on = (self.quiet.start..=self.quiet.end()).contains(&pages.start);
        let run = Extent::between(self.quiet.start, self.quiet.end().max(pages.end()));
        self.quiet = if goes_on { run } else { pages };
    }

    /// Where a run began of which only what lies before `page` was read quietly; page 0 where nobody has told.
    pub(in crate::wave) fn began_before(&self, page: PageIndex) -> PageIndex {
        if self.quiet.end() == page { self.quiet.start } else { PageIndex(0) }
    }
}

impl Wave {
    /// R2: pages were read that nobody told of. A mark among them says that it is time for the next.
    pub(in crate::wave) fn used_quietly(&mut self, now: Nanos, id: FileId, pages: Extent) {
        self.use_pages(id, pages);
        let Some(f) = self.files.get_mut(&id) else { return };
        f.told.quietly(pages);
        let marks = f.table.clear(PageBit::Mark, pages).0;
        if marks > 0 {
            f.served(pages.start, marks);
            self.touch_leaves(id, pages);
        }
        let passed = if marks > 0 { self.passed(now, id, pages) } else { None };
        let came = passed.or_else(|| self.came_quietly(now, id, pages));
        self.strode_quietly(now, id, pages);
        if let Some(sid) = came.filter(|_| marks > 0) {
            self.plan_stream(now, sid, pages, Why("R2 next"));
        }
    }

    /// R2: a mark was passed unseen. Whose it was has come so far; a seed for which something was fetched has gone on.
    fn passed(&mut self, now: Nanos, id: FileId, pages: Extent) -> Option<StreamId> {
        let (&next, &sid) = self.files.get(&id)?.expected.up().range(..=pages.start.0).next_back()?;
        self.pass_marks(sid, pages, Seen::Mark);
        let f = self.files.get_mut(&id)?;
        let s = self.streams.get_mut(sid).filter(|s| pages.start.0 < s.frontier)?;
        match s.course {
            Course::Forward if s.reads > 2 => {
                f.expected.clear(Course::Forward, next);
                s.next = next.max(pages.end().0);
                s.frontier = s.frontier.max(s.next);
                s.pace.is_there(now);
                if let Some(other) = f.expected.expect(Course::Forward, s.next, sid) {
                    self.displaced(other, Displaced::ByMark);
                }
                self.mark_active(now, sid);
            }
            Course::Seed | Course::Forward if next == pages.start.0 => self.advance(now, sid, pages),
            _ => return None,
        }
        Some(sid)
    }

    /// R7: a run of a stride was read without a word.
    fn strode_quietly(&mut self, now: Nanos, id: FileId, pages: Extent) {
        let Some(f) = self.files.get(&id).filter(|f| f.told.all()) else { return };
        let expected = f.expected.strides().range(pages.start.0..pages.end().0).next();
        let Some((next, sid)) = expected.map(|(&next, &sid)| (next, sid)) else { return };
        let Some(&Stream { course: Course::Stride { run, .. }, .. }) = self.streams.get(sid) else { return };
        self.advance(now, sid, Extent::new(next, run));
        self.plan_stride(now, sid, pages);
    }

    /// R7: a read goes on behind pages that were read without a word, from the begin of a run of a stride on: its reader has come there.
    pub(in crate::wave) fn began_quietly(&mut self, now: Nanos, id: FileId, pages: Extent) {
        let Some(f) = self.files.get(&id).filter(|f| !f.expected.strides().is_empty()) else { return };
        let used = |page| f.table.has(PageBit::Used, PageIndex(page));
        let Some(before) = pages.start.0.checked_sub(1).filter(|&before| used(before)) else { return };
        let begun = |sid: StreamId| {
            let s = self.streams.get(sid)?;
            let Course::Stride { period, run } = s.course else { return None };
            let (length, next) = (period.unsigned_abs(), s.next);
            // The nearest run, or the one below it.
            let nearest = s.beat().nearest(before);
            let below =
                [nearest, nearest - period.signum()].map(|runs| Some((runs, s.beat().after(runs)?.start.0)));
            let (runs, start) = below.into_iter().flatten().find(|&(_, start)| start <= before)?;
            if runs < 1 {
                return None;
            }
            let passed = Extent::between(PageIndex(start), pages.start);
            let within = start.abs_diff(next) <= s.frontier.abs_diff(next) && passed.count.0 < length;
            let read = within && used(start) && f.table.count(PageBit::Used, passed) == passed.count;
            read.then_some((sid, start, run))
        };
        let begun = f.strides_near(before).find_map(begun);
        if let Some((sid, start, run)) = begun {
            self.advance(now, sid, Extent::new(start, run));
        }
    }

    /// R2: a stream's reader has come so far without a word. It is alive and counts among those that share (R13), however long
    /// its window lasts. Several streams that were passed so have one reader, out of order (R5): the one that has asked for the
    /// most goes on for all.
    fn came_quietly(&mut self, now: Nanos, id: FileId, pages: Extent) -> Option<StreamId> {
        let f = self.files.get(&id)?;
        let end = pages.end().0;
        let up = |sid: &StreamId| self.streams.get(*sid).is_some_and(|s| s.course == Course::Forward);
        let passed = f.expected.up().range(pages.start.0..=end).filter(|(_, sid)| up(sid));
        let passed: alloc::vec::Vec<(u64, StreamId)> = passed.map(|(&next, &sid)| (next, sid)).collect();
        let asked = |&(_, sid): &(u64, StreamId)| self.streams.get(sid).map_or(0, |s| s.frontier);
        let leader = passed.iter().copied().max_by_key(asked)?;
        for (_, sid) in passed.into_iter().filter(|stream| *stream != leader) {
            self.dismiss(sid);
        }
        let (f, s) = (self.files.get_mut(&id)?, self.streams.get_mut(leader.1)?);
        f.expected.unlink(leader.1, leader.0);
        if f.goes_from_run_to_run() {
            s.begins_anew_at(pages.start.0);
        }
        s.next = end;
        s.frontier = s.frontier.max(end);
        s.heard_of(now);
        if let Some(other) = f.expected.expect(Course::Forward, end, leader.1) {
            self.displaced(other, Displaced::Quietly);
        }
        self.mark_active(now, leader.1);
        self.follows(leader.1);
        self.sweep(now);
        Some(leader.1)
    }
}

#[cfg(test)]
mod tests {
    use crate::units::{Extent, FileId, Nanos};
    use crate::wave::Input;
    use crate::wave::streams::stream::tests::fetched_ahead;

    /// The worked example at the top.
    #[test]
    fn a_stream_comes_as_far_as_was_read_and_past_its_mark_its_window_is_pushed_on() {
        let (mut wave, sid) = fetched_ahead(Extent::new(100, 64), 132);
        let mut used = |pages: Extent| {
            wave.handle(Nanos(1), Input::Used { file: FileId(0), pages });
            wave.check();
            wave.streams.get(sid).map(|s| (s.next, s.frontier)).unwrap()
        };
        assert_eq!(used(Extent::new(100, 20)), (120, 164));
        assert_eq!(used(Extent::new(120, 16)), (136, 200));
    }
}
