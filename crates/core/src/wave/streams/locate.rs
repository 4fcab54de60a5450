//! R2, R4-R7: which stream does a read belong to? How that moves on says advance.rs, what one begins that belongs to none begin.rs, whether it only
//! looks ahead look.rs.
//!
//! ```text
//! one file, streams expected at     120        |300 ... fetched ... 364|        900 (stride +64)
//! read 120  R2 continues            ^
//! read 119  R5 read again, or late  ^
//! read 340  R2 skipped quietly to               ^
//! read 370  R5 past a hole of 6 of 64, no more than a quarter            ^
//! read 350  R5 past an unseen mark at 340, by no more than that; the second time in a row, by more than a way is worth, no more  ^
//! read 900  R7 stride                                                             ^
//! read 908  R7 beside it: that stride ends, and one goes on from there (aside.rs)
//! a stream that has come down to 700: read 699 R6, read 700 R5 read again, as who reads unaligned does
//! read 57   page 56 was read before: R4 context, a stream whose record is gone
//! read 5000 nothing: it begins something (begin.rs); if another ends at 5000, R6
//! ```

use crate::table::PageBit;
use crate::units::{Extent, FileId, PageCount, PageIndex};
use crate::view::View;
use crate::wave::lately::Lately;
use crate::wave::streams::stream::{Course, Stream, StreamId, UNTOLD_MAX};
use crate::wave::stride::columns::Column;
use crate::wave::{File, Latest, Wave};

/// Expectations below a read that are tried before it is called a stray: random reads may lie between a stream and its window's end.
const TRIED_MAX: usize = 4;
/// Pages by which a read may lie beside a run of a stride and belong to it, and by which what is alike may differ, since reads are not aligned.
pub(in crate::wave) const PLAY: u64 = 1;
/// Pages of history looked at for R4.
pub(in crate::wave) const HISTORY_MAX: PageCount = PageCount(512);
/// How far ahead the stream may be that another follows: 64 MiB, as much as most windows have.
const FOLLOW_MAX: u64 = 16_384;
/// What its reader has read without a word since a read that is told late, at most: 64 MiB.
const LATE_MAX: u64 = 16_384;
/// Threads remembered.
const ACTORS_MAX: usize = 4096;

/// Where a read was found to belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::wave) enum Place {
    /// It pushes the stream on.
    Continues(StreamId),
    /// It was expected earlier, or is read again: nothing moves.
    Repeats(StreamId),
    /// It begins a stream whose first reads are only remembered by the cache, so many pages of them; 0 where they are gone.
    History(u64),
    /// Nothing is known of it.
    Stray,
}

impl Latest {
    /// Whether a read that belongs at `place` is of the stream that it was in.
    pub(in crate::wave) fn stays(&self, place: Place) -> bool {
        match place {
            Place::Continues(sid) => Some(sid) == self.stream,
            Place::Repeats(_) => true,
            Place::History(_) | Place::Stray => false,
        }
    }
}

impl Stream {
    /// Whether page `q` is, give or take `play`, where the next run of a stride begins, or one that was asked for behind it.
    pub(in crate::wave) fn strides_to(&self, q: u64, play: u64) -> bool {
        let Course::Stride { period, .. } = self.course else { return false };
        let (least, most) = (self.next.min(self.frontier), self.next.max(self.frontier));
        let beyond = if period > 0 { q > most.saturating_add(play) } else { q < least.saturating_sub(play) };
        let runs = self.beat().nearest(q);
        !beyond && runs > 0 && (self.beat().is_at(runs, q, play) || self.beat().goes_on_in(runs, q))
    }
}

impl File {
    /// Whether a page was read since it was fetched last.
    fn read_since(&self, page: u64) -> bool {
        let known = self.table.state(PageIndex(page));
        known.used && !known.ahead
    }

    /// Marks among pages that a read has passed, of which nobody told; none where the page `before` it was read, since they may have been set
    /// behind its reader then. O(marks).
    pub(in crate::wave) fn unheard(
        &self,
        passed: Extent,
        before: Option<u64>,
    ) -> impl Iterator<Item = Extent> + '_ {
        let in_order = move || before.is_some_and(|page| self.read_since(page));
        self.table.runs(PageBit::Mark, passed).filter(move |_| !in_order())
    }

    /// Where those pages begin that were read and lie right before `page`, so many at most; `page` itself where there are none.
    pub(in crate::wave) fn read_from(&self, page: u64, most: PageCount) -> u64 {
        let before = Extent::between(PageIndex(page).back(most), PageIndex(page));
        let run = self.table.runs(PageBit::Used, before).last().filter(|run| run.end() == before.end());
        run.map_or(page, |run| run.start.0)
    }

    /// R4: the page before a read was read: the cache remembers what nobody else does.
    fn remembered(&self, pages: Extent) -> Option<Place> {
        let q = pages.start.0;
        let used_before = q > 0 && self.table.has(PageBit::Used, PageIndex(q - 1));
        if used_before {
            // What was bought (R11) is there whether anybody read it or not: only what was read is history.
            let history = if self.told.all() || self.density.was_bought(PageIndex(q - 1)) {
                q - self.read_from(q, HISTORY_MAX)
            } else {
                self.table.history(PageIndex(q), HISTORY_MAX).0
            };
            return Some(Place::History(history));
        }
        None
    }

    /// Strides expected around a page, give or take one: the nearest below, then the nearest above.
    pub(in crate::wave) fn strides_near(&self, page: u64) -> impl Iterator<Item = StreamId> + '_ {
        let below = self.expected.strides().range(..=page.saturating_add(1)).rev().take(TRIED_MAX);
        let above = self.expected.strides().range(page..).take(TRIED_MAX);
        below.chain(above).map(|(_, &sid)| sid)
    }
}

impl Wave {
    /// Where a read belongs: to a stream expected at its page, below it or above it; to what is remembered of one; to a stride; or nowhere.
    pub(in crate::wave) fn place(&self, id: FileId, pages: Extent) -> Place {
        let Some(f) = self.files.get(&id) else { return Place::Stray };
        self.on_whole_run(f, pages)
            .map(Place::Repeats)
            .or_else(|| self.in_uneven_run(f, pages))
            .or_else(|| self.goes_on_up(f, pages))
            .or_else(|| self.lies_behind(f, pages))
            .or_else(|| self.goes_on_down(f, pages))
            .or_else(|| f.remembered(pages))
            .or_else(|| self.goes_on_by_stride(f, pages))
            .unwrap_or(Place::Stray)
    }

    /// R2: upwards, the streams expected at or before a read, nearest first.
    fn goes_on_up(&self, f: &File, pages: Extent) -> Option<Place> {
        let q = pages.start.0;
        for (&next, &sid) in f.expected.up().range(..=q).rev().take(TRIED_MAX) {
            let Some(s) = self.streams.get(sid) else { continue };
            let slack = s.manner.slack(s.out());
            let reach = match s.course {
                Course::Forward => s.frontier.max(next) + slack,
                _ => next,
            };
            // A reader that came here page by page has passed the mark, and was seen; or it was past it already when the
            // mark was set, and then it has read the page before. Out of order, it is not far past it.
            let passed = Extent::between(PageIndex(next), PageIndex(q));
            // Where all is told, it has skipped what lies between and was not.
            let skipped = f.told.all()
                && passed.count.0 > UNTOLD_MAX
                && passed.count.0 - f.table.count(PageBit::Used, passed).0 > UNTOLD_MAX.max(s.manner.block());
            let unseen = f.table.runs(PageBit::Mark, passed).next().map_or(q, |mark| mark.start.0);
            // Who hops has passed a mark that was set behind him, and need not have read the page before.
            let behind = if s.manner.hops() { s.out() } else { slack };
            let near = q == unseen || q - unseen <= behind && !s.manner.overlooks();
            if q <= reach && !skipped && (near || f.read_since(q - 1)) {
                return Some(Place::Continues(sid));
            }
        }
        None
    }

    /// R5: just behind an expectation: read again, unaligned, retried, or late among reordered ones.
    fn lies_behind(&self, f: &File, pages: Extent) -> Option<Place> {
        let (q, n) = (pages.start.0, pages.count.0);
        if let Some((&next, &sid)) = f.expected.up().range(q + 1..).next()
            && let Some(s) = self.streams.get(sid)
        {
            let slack = s.manner.slack_behind(s.out(), s.request);
            if q + n > next && q >= s.first && next - q <= slack.max(n) {
                return Some(Place::Continues(sid));
            }
            // Of several readers one may come to what lies before where another began; who reads alone goes down.
            let late = q >= s.first || s.course == Course::Forward && !f.has_one_reader();
            if q + n <= next && next - q <= slack && late {
                return Some(Place::Repeats(sid));
            }
            // Told late: what it has read quietly since then has moved its stream on already.
            let since = Extent::between(PageIndex(q), PageIndex(next));
            if s.course == Course::Forward
                && q >= s.first
                && since.count.0 <= LATE_MAX
                && f.table.count(PageBit::Used, since) == since.count
                && f.there(pages)
            {
                return Some(Place::Repeats(sid));
            }
        }
        None
    }

    /// R6: downwards.
    fn goes_on_down(&self, f: &File, pages: Extent) -> Option<Place> {
        let (q, n) = (pages.start.0, pages.count.0);
        // The stream whose lowest page is where this read ends, within it where reads are not aligned, or a
        // little above.
        if let Some((&low, &sid)) = f.expected.down().range(q + 1..).next()
            && let Some(s) = self.streams.get(sid)
            && low.saturating_sub(q + n)
                <= if s.course == Course::Backward {
                    (s.out() + s.out() / 4).max(s.manner.block())
                } else {
                    0
                }
        {
            return Some(Place::Continues(sid));
        }
        // Just above it: read again, unaligned, or retried.
        if let Some((&low, &sid)) = f.expected.down().range(..=q).next_back()
            && let Some(s) = self.streams.get(sid).filter(|s| s.course == Course::Backward)
            && q - low <= s.manner.slack_behind(s.out(), s.request)
            && q + n <= s.first
            && (s.manner.block() > 0 || f.there(pages))
        {
            return Some(Place::Repeats(sid));
        }
        None
    }

    /// R7: a stride.
    fn goes_on_by_stride(&self, f: &File, pages: Extent) -> Option<Place> {
        let q = pages.start.0;
        // Some of the runs may have been read quietly.
        for sid in f.strides_near(q) {
            if let Some(s) = self.streams.get(sid)
                && s.strides_to(q, PLAY)
            {
                return Some(Place::Continues(sid));
            }
        }
        None
    }

    /// R7: the stride of which a run that was asked for, or the latest, holds where a read begins, but not in its first page; where nobody knows
    /// to the byte where runs begin.
    fn in_uneven_run(&self, f: &File, pages: Extent) -> Option<Place> {
        let q = pages.start.0;
        f.strides_near(q).find_map(|sid| {
            let s = self.streams.get(sid)?;
            let runs = s.beat().nearest(q);
            match s.beat().goes_on_in(runs, q) {
                true if runs == 0 => Some(Place::Repeats(sid)),
                true if s.strides_to(q, 0) => Some(Place::Continues(sid)),
                _ => None,
            }
        })
    }

    /// R7: the stride whose latest run was fetched with what its reader reads on behind it, if that holds `pages`; or if they are
    /// its last page, give or take one, where reads are not aligned.
    fn on_whole_run(&self, f: &File, pages: Extent) -> Option<StreamId> {
        let holds = |&sid: &StreamId| {
            self.streams.get(sid).and_then(Stream::latest_whole).is_some_and(|whole| {
                let inside = pages.start >= whole.start && pages.end() <= whole.end();
                let last = pages.end().0.abs_diff(whole.end().0) <= 1;
                last && pages.count.0 == 1 || inside && f.there(pages)
            })
        };
        f.strides_near(pages.start.0).find(holds)
    }

    /// R5: whether a stream follows another: everything up to where that one is has been asked for, so it reads nothing that
    /// the other does not read before it. They are one reader out of order, or two in line; one window serves both.
    pub(in crate::wave) fn follows(&mut self, sid: StreamId) -> bool {
        let Some(s) = self.streams.get(sid).filter(|s| s.course == Course::Forward) else { return false };
        let Some(f) = self.files.get(&s.file) else { return false };
        let leads = |t: &&StreamId| self.streams.get(**t).is_some_and(|t| t.course == Course::Forward);
        let within = s.next + 1..s.frontier.max(s.next) + 1;
        let beyond = within.end..within.end.max(s.next + FOLLOW_MAX);
        let found =
            f.expected.up().range(within).next_back().or_else(|| f.expected.up().range(beyond).next());
        let found = found.filter(|(_, t)| leads(t));
        let asked_up_to =
            |lead: u64| f.table.next_hole(PageIndex(s.next), PageCount(lead - s.next)).0 >= lead;
        let follows = found.is_some_and(|(&lead, _)| asked_up_to(lead));
        if follows && let Some(s) = self.streams.get_mut(sid) {
            self.epochs.uncount(core::mem::take(&mut s.counted));
        }
        follows
    }

    /// Remembers what `actor` reads, and what was known of it, until it says how long that took. If that is another file than before, it
    /// has left that one.
    pub(in crate::wave) fn remember(
        &mut self,
        actor: u32,
        id: FileId,
        pages: Extent,
        stream: Option<StreamId>,
    ) {
        let Some(f) = self.files.get(&id) else { return };
        let missing = pages.count.0 - f.table.resident(pages).0;
        let late = f.table.count(PageBit::InFlight, pages).0 > 0;
        let believed = f.table.count(PageBit::Present, pages) == pages.count
            && f.table.count(PageBit::Ahead, pages).0 > 0;
        let behind = self.queues.get(&f.device).is_some_and(|queue| queue.stands_before(id, pages.start));
        if self.latest.len() >= ACTORS_MAX && !self.latest.contains_key(&actor) {
            for actor in self.latest.keys().copied().collect::<alloc::vec::Vec<u32>>() {
                self.waits_no_more(actor);
            }
            self.latest.clear();
            self.files.values_mut().for_each(|f| f.readers = 0);
        }
        let before = self.latest.get(&actor).map(|l| l.file);
        if before != Some(id) {
            if let Some(f) = before.and_then(|before| self.files.get_mut(&before)) {
                f.readers -= 1;
            }
            if let Some(f) = self.files.get_mut(&id) {
                f.readers += 1;
            }
        }
        let entry = self.latest.entry(actor).or_insert_with(|| Latest {
            file: id,
            pages,
            missing,
            late,
            believed,
            behind,
            stream,
            came_at: pages.start,
            look: None,
            stride: None,
            off_stride: 0,
            strays: Lately::default(),
            lay: Lately::default(),
            hops: 0,
            column: Column::default(),
            taken: Lately::default(),
        });
        entry.file = id;
        let left = before.filter(|&before| before != id);
        if left.is_some() {
            (entry.strays, entry.lay) = (Lately::default(), Lately::default());
            (entry.stride, entry.off_stride) = (None, 0);
            (entry.column, entry.taken) = (Column::default(), Lately::default());
            entry.came_at = pages.start;
        }
        (entry.pages, entry.missing) = (pages, missing);
        (entry.late, entry.believed, entry.behind, entry.stream) = (late, believed, behind, stream);
        if let Some(left) = left {
            self.leave_file(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;
    use crate::wave::devices::device::tests::play;
    use crate::wave::streams::stream::Streams;
    use crate::wave::streams::stream::tests::{buy_region, fetched_ahead};

    /// On a head of 8 ms, which carries 195 pages in the time of a way: windows of `pages`, with the mark 16 before the end; somebody had read
    /// all of it before. Says which of three reads behind such windows, none of which told of anything in them, belongs to the stream.
    fn belongs(pages: u64) -> [bool; 3] {
        let (mut wave, sid) = fetched_ahead(Extent::new(1000, pages), 1000 + pages - 16);
        wave.queue(0).device = play(1, 8_000, 500);
        wave.queue(0).device.timed_alone(Nanos::from_ms(8));
        [1, 2, 3].map(|window| {
            let at = 1000 + window * pages;
            let f = wave.files.get_mut(&FileId(0)).unwrap();
            f.table.set(PageBit::Used, Extent::new(at - pages, pages));
            let belongs = wave.place(FileId(0), Extent::new(at, 8)) == Place::Continues(sid);
            wave.advance(Nanos(window), sid, Extent::new(at, 8));
            let next = Extent::new(at, pages);
            let f = wave.files.get_mut(&FileId(0)).unwrap();
            for bit in [PageBit::Present, PageBit::Ahead] {
                f.table.set(bit, next);
            }
            f.table.set(PageBit::Mark, Extent::new(at + pages - 16, 1));
            wave.ledger.sent(pages);
            wave.streams.get_mut(sid).unwrap().frontier = next.end().0;
            belongs
        })
    }

    /// iozone's stride: 16 pages in every 272, a gap dearer than a way, behind those of the round before.
    #[test]
    fn who_overlooks_mark_after_mark_has_not_read_what_lies_between() {
        assert_eq!(belongs(816), [true, true, false]);
        assert_eq!(belongs(195), [true; 3], "no farther than a way costs");
    }

    /// What is there before a read says that somebody has come so far; but of a bought region all is there.
    #[test]
    fn of_what_was_bought_only_what_was_read_is_history() {
        let (mut wave, _) = fetched_ahead(Extent::new(1000, 100), 1099);
        buy_region(&mut wave);
        wave.files.get_mut(&FileId(0)).unwrap().table.set(PageBit::Used, Extent::new(1040, 1));
        wave.streams = Streams::default();
        let place = |page| wave.place(FileId(0), Extent::new(page, 8));
        assert_eq!((place(1041), place(2188)), (Place::History(41), Place::History(8)));
        wave.files.get_mut(&FileId(0)).unwrap().table.clear(PageBit::Present, Extent::new(1000, 100));
        let place = wave.place(FileId(0), Extent::new(1041, 8));
        assert_eq!(place, Place::History(0), "what is gone is no part of the run");
    }
}
