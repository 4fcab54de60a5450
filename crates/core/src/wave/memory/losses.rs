//! R12: pages that are gone before they are read, and what is believed of memory then.
//!
//! A stream is *robbed* whose pages ahead were lost unread, until its reader is back in time. A stream is *outlived* whose page read last is gone when
//! its reader comes back: what is fetched ahead of it would be gone as well. The brain is *losing* while more is lost, of late, than speculation may waste
//! (trials.rs).
//!
//! ```text
//! a reader finds gone what had arrived    thrash: the window of its stream is halved, and fetched again. Once more than one in 64 of the active
//!                                         streams did so in an epoch, of 300 from the fifth on: an eighth less memory is believed in
//! pages are seen to be gone, a few        the cache drops single pages for reasons of its own: fetched again, but not by a head
//! more than a few                         the streams that had asked for them have not, and ask again for what they may have then; how far short ones
//!                                         have come says how far such runs come (R9)
//! many                                    an eighth less memory is believed in, for each 64 pages and a sixteenth of it; and none comes back at the end
//!                                         of such an epoch
//! a stream is outlived                    nothing is fetched ahead of it, if its run is short or was robbed before
//! memory is short, and a stream was hit   what it has ahead beyond its new share is given up: the driver may let it go
//! losing                                  nothing is fetched ahead but of runs longer than 4 reads, as much as they have come, and no region is bought,
//!                                         unless those before brought four times what they took (account.rs); then a little on trial
//! ```
//!
//! A few are 64 pages and a sixteenth of what is out, in an epoch, while what is out fills less than a quarter of the memory believed in.
//! `tests/wave/r12-thrash.txt` tells it as a story.
//!
//! Where a head stays with one reader for long, what others have ahead of them ages. A reader who takes pages as soon as they arrive (R13) would
//! have read these in time, had the disk served him sooner. Where all that is out fits in memory, his loss does not mean that memory is short.
//!
//! Only what somebody is to come to is lost when it is gone: what streams have ahead that were not left, and what the program said that
//! it needs. What others left behind was in vain before. Of a region that was bought (R11) nobody knows: half of a cluster is never
//! read. Its pages are lost when somebody comes for one of them after all, and then all of those that are gone. If they are few, and what
//! is out fills less than a sixteenth of memory, somebody took them for reasons of his own (a reclaimer that goes by what it believes
//! idle): they pay for themselves anew.
//!
//! ```text
//! 4096 pages believed in, 1000 out; 400 are seen to be gone      more than 64 + 4096/16: 3584 are believed in
//! 200 more in the same epoch                                     fewer than 64 + 3584/16: no more is learnt from them
//! 100 more                                                       3136
//! told that there are 4000 now, then 4096            3136 still; then 3000, then 4096: 3000, 4096
//! with 3000 out 400 are seen to be gone                          3584, of which 1792 may be out: that 808 more will go is no news
//! 1097 more: those, and one more than 64 + 3584/16               3136
//! all 3000 from page 1000 on are one stream's: it may have [1000, 2792)   [2792, 4000) are given up, and 1392 are left
//! ```

use crate::decision::{Pattern, Why};
use crate::table::PageBit;
use crate::units::{Bytes, Extent, FileId, Nanos, PAGE_SIZE, PageCount, PageIndex};
use crate::view::View;
use crate::wave::memory::shares::AHEAD_MIN;
use crate::wave::memory::trials::Scale;
use crate::wave::requests::queue::{Queue, Turn, Wanted};
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::windows::runs::{Direction, Noted};
use crate::wave::{File, Wave, plan};
use alloc::vec::Vec;

/// Streams below pages that were dropped that may have asked for them.
const DROPPED_FROM_MAX: usize = 4;
/// Pages lost unread that nobody counts.
pub(in crate::wave) const LOST_FEW: u64 = 64;
/// What is out fills little of the memory believed in if it is less than one page in so many.
const LITTLE_SHARE: u64 = 16;
/// Runs of pages given up that are kept for a driver that asks for them.
pub(in crate::wave) const GIVEN_UP_MAX: usize = 64;
/// Reads that a run is long at most, quiet ones counted, if it is a short one: nothing is fetched ahead of those where much is
/// lost unread.
const LOSING_READS: u64 = 4;

/// What a stream has lost of what was ahead of it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Robbed {
    /// Where its frontier was before what is behind it was lost: what is still there up to that is its own.
    asked: u64,
    /// What was fetched ahead of it was lost, and its reader has not been back in time since.
    of_late: bool,
    /// Others have been where it is: the pages that it read last were there, fetched for somebody else, or those behind are, for which it has
    /// not asked.
    trodden: bool,
}

impl Robbed {
    /// What it had asked for up to `frontier` was lost; whether that is news.
    fn of(&mut self, frontier: u64) -> bool {
        self.asked = self.asked.max(frontier);
        !core::mem::replace(&mut self.of_late, true)
    }

    /// Its reader is back in time.
    pub(in crate::wave) fn is_over(&mut self) {
        self.of_late = false;
    }

    /// Whether it was robbed, and its reader has not been back in time since.
    pub(in crate::wave) fn of_late(&self) -> bool {
        self.of_late
    }

    /// How far it had asked before what is behind its frontier was lost.
    pub(in crate::wave) fn asked(&self) -> u64 {
        self.asked
    }

    /// Whether others have been where it is.
    pub(in crate::wave) fn is_trodden(&mut self, trodden: bool) {
        self.trodden = trodden;
    }
}

impl Wave {
    /// R12: a page that had arrived was gone when its reader came.
    pub(in crate::wave) fn thrashed(&mut self, now: Nanos, sid: StreamId, pages: Extent) {
        self.counters.windows_thrashed += 1;
        let Some(s) = self.streams.get_mut(sid) else { return };
        let (id, from, to) = (s.file, s.next, s.frontier);
        s.ahead = (s.ahead / 2).max(AHEAD_MIN);
        s.frontier = s.next;
        if let Some(f) = self.files.get_mut(&id) {
            f.taught.lost();
        }
        let Some(s) = self.streams.get(sid) else { return };
        let (held_up, again_alone) = (self.is_held_up(s), self.reads_again_alone(s));
        if !held_up && self.belief.robbed(self.epochs.active()) {
            self.believe_less(again_alone);
        }
        self.forget(id, Extent::between(PageIndex(from), PageIndex(to)), true);
        match self.streams.get(sid).map(|s| s.course) {
            Some(Course::Stride { .. }) => self.plan_stride(now, sid, pages),
            _ => self.plan_stream(now, sid, pages, Why("R12 thrashed")),
        }
        self.give_up(sid, to);
    }

    /// What a stream had ahead of it, up to `to`, beyond what it has and may have now, is given up: what was lost of the rest comes
    /// back into those frames. Else it would take the frames of what came before it, which is what the reader comes to next. Not so
    /// where another stream stands there: what lies before that is for both; nor where what was read goes first, for there what readers
    /// come to next stays anyway.
    fn give_up(&mut self, sid: StreamId, to: u64) {
        let Some(s) = self.streams.get(sid).filter(|s| s.course == Course::Forward) else { return };
        let Some(f) = self.files.get(&s.file) else { return };
        let keep = s.frontier.max(s.next + self.share_asked_for(f));
        if keep >= to || self.config.read_goes_first || f.expected.up().range(s.next + 1..to).next().is_some()
        {
            return;
        }
        let (id, beyond) = (s.file, Extent::between(PageIndex(keep), PageIndex(to)));
        let unread: Vec<Extent> = f.table.runs(PageBit::Ahead, beyond).collect();
        for pages in unread {
            self.forget(id, pages, true);
            if self.given_up.len() == GIVEN_UP_MAX {
                self.given_up.pop_front();
            }
            self.given_up.push_back((id, pages));
        }
    }

    /// What was out did not fit. Who reads again alone has no room for more than that.
    fn believe_less(&mut self, again_alone: bool) {
        let unread = self.ledger.unread();
        self.belief.less(unread, if again_alone { unread + unread / 7 } else { u64::MAX });
    }

    /// Whether a stream is read again from a head, by who is the only one to read: what is kept of that leaves him no room for what he has ahead,
    /// and a head that stands before what he reads next needs little.
    fn reads_again_alone(&self, s: &Stream) -> bool {
        let head = || self.files.get(&s.file).is_some_and(|f| self.is_head(f));
        self.active() <= 1 && s.reads_again() && head()
    }

    /// Whether what is out fills so little of the memory believed in that it can lose no page for lack of it.
    pub(in crate::wave) fn fills_little(&self) -> bool {
        LITTLE_SHARE * self.ledger.unread() < self.belief.pages()
    }

    /// R12: the memory is so large from now on.
    pub(in crate::wave) fn memory_is(&mut self, bytes: Bytes) {
        let before = core::mem::replace(&mut self.config.memory, bytes).0 / PAGE_SIZE;
        self.belief.memory_is(before, bytes.0 / PAGE_SIZE);
    }

    /// Pages are gone. What was fetched ahead and not read is fetched again while it is little: a cache loses single pages
    /// for reasons of its own (R12). Not so by a head, which would travel as far for them as for their reader, should he come.
    /// A stream that lost much has not asked for it, and asks for what it may have then.
    pub(in crate::wave) fn dropped(&mut self, now: Nanos, id: FileId, pages: Extent) {
        let Some(f) = self.files.get(&id) else { return };
        if f.table.count(PageBit::Present, pages).0 == 0 {
            // Not there yet is not gone.
            return;
        }
        let unread: Vec<Extent> = f.table.runs(PageBit::Ahead, pages).collect();
        let gone: Vec<Extent> = unread.iter().flat_map(|&run| f.table.runs(PageBit::Present, run)).collect();
        let all: u64 = gone.iter().map(|run| run.count.0).sum();
        let lost: Vec<Extent> = gone.into_iter().filter(|&run| self.is_lost(id, run)).collect();
        let count: u64 = lost.iter().map(|run| run.count.0).sum();
        // Nobody was to come to the others, and that they are gone tells nothing.
        self.ledger.dead_no_more(all - count);
        let held_up = |run: &&Extent| self.is_held_up_at(id, run.start);
        let held_up: u64 = lost.iter().filter(held_up).map(|run| run.count.0).sum();
        let telling = count.saturating_sub(held_up);
        self.belief.lost(telling);
        self.trials.lost(telling);
        let few = self.belief.lost_few(self.ledger.unread());
        let head = self.files.get(&id).is_some_and(|f| self.is_head(f));
        let short = self.belief.is_short();
        if short {
            let below = self.streams.below(self.files[&id].expected.up(), pages.start);
            self.believe_less(below.is_some_and(|s| self.reads_again_alone(s)));
        }
        self.forget(id, pages, true);
        if few && head {
            // As far to travel for them as for their reader, should he come.
        } else if few && count > 0 {
            let why = Why("R12 lost, asked again");
            for run in lost {
                self.explain(now, id, run, plan::whole(run), Pattern::Thrash, why);
                self.want(Wanted { file: id, pages: run, turn: Turn::Urgent, why, stream: None });
            }
        } else {
            self.unask(id, pages.start);
        }
        if short {
            // What others still have out beyond what may be out now will be lost as well, which is no news.
            self.belief.has_told(self.out().saturating_sub(self.room()));
        }
    }

    /// Whether pages that are gone before they were read were to be read: not if they were bought, as far as is known yet.
    fn is_lost(&mut self, id: FileId, pages: Extent) -> bool {
        let bought = self.files.get_mut(&id).is_some_and(|f| f.density.lost(pages));
        !bought && self.is_to_come(id, pages.start)
    }

    /// Whether the reader of a stream would have come for what it has ahead, were the head not with others, and what is out fits.
    fn is_held_up(&self, s: &Stream) -> bool {
        let queue = self.files.get(&s.file).and_then(|f| self.queues.get(&f.device));
        s.pace.takes_at_once() && self.out() <= self.room() && queue.is_some_and(Queue::crowded_head)
    }

    /// The same of the stream below `page`, if that comes to it.
    fn is_held_up_at(&self, id: FileId, page: PageIndex) -> bool {
        let stream = self.streams.below(self.files[&id].expected.up(), page);
        stream.is_some_and(|s| s.comes_to(page.0) && self.is_held_up(s))
    }

    /// Whether somebody is to come to `page`: a stream that was not left, or the program has said so. O(log streams).
    fn is_to_come(&self, id: FileId, page: PageIndex) -> bool {
        let f = &self.files[&id];
        let comes = |s: Option<&Stream>| s.is_some_and(|s| s.comes_to(page.0));
        let below = |places| comes(self.streams.below(places, page));
        let above = |places| comes(self.streams.above(places, page));
        let stream = below(f.expected.up())
            || above(f.expected.down())
            || below(f.expected.strides())
            || above(f.expected.strides());
        stream || f.said.needed_until(page.0).is_some()
    }

    /// Streams that had asked for `page` and what is behind it have not asked for it. For what is fetched ahead short ones have
    /// ended there (R9), however long their readers take to come back; of long ones it says that memory is short.
    pub(in crate::wave) fn unask(&mut self, id: FileId, page: PageIndex) {
        let Some(f) = self.files.get(&id) else { return };
        let asked: Vec<StreamId> =
            f.expected.up().range(..=page.0).rev().take(DROPPED_FROM_MAX).map(|(_, &sid)| sid).collect();
        for sid in asked {
            if let Some(s) = self.streams.get_mut(sid).filter(|s| s.frontier > page.0) {
                let to = core::mem::replace(&mut s.frontier, page.0.max(s.next));
                let news = s.robbed.of(to);
                let (short, came) = (is_short(s), s.progress());
                // Where what is out is lost bit by bit, its window has lost pages once.
                self.counters.windows_thrashed += u64::from(news);
                if short && news {
                    self.witness(id, Direction::Up, came, Noted::NotYet);
                }
                self.give_up(sid, to);
            }
        }
    }

    /// A reader came to pages that are gone, and what is behind them is gone as well: it has not been asked for.
    pub(in crate::wave) fn ask_again(&mut self, sid: StreamId) {
        let Some(s) = self.streams.get_mut(sid).filter(|s| s.course == Course::Forward) else { return };
        let Some(f) = self.files.get(&s.file) else { return };
        let wanted = self.queues.get(&f.device).is_some_and(|queue| queue.wants(s.file, s.next));
        if !wanted && !f.table.present(PageIndex(s.next)) {
            s.frontier = s.next;
        }
    }

    /// Windows that were asked for and not read yet, each with the pages of it that are believed present or under way: a
    /// driver whose cache loses pages without a word looks at them now and then, and tells [`crate::wave::Input::Dropped`]. At most `max`
    /// streams are gone through; the next call goes on behind them.
    pub fn take_windows(&mut self, max: usize) -> Vec<(FileId, Extent, PageCount)> {
        let streams = self.streams.next_few(max);
        let windows = streams.into_iter().filter_map(|s| {
            let (low, high) = (s.next.min(s.frontier), s.next.max(s.frontier));
            let f = self.files.get(&s.file).filter(|_| s.course != Course::Seed && low < high)?;
            let window = Extent::new(low, high - low).intersection(Extent::new(0, f.end));
            Some((s.file, window, f.table.resident(window)))
        });
        windows.filter(|window| window.2.0 > 0).collect()
    }

    /// R12: whether it is worth while to fetch for short runs and regions (trials.rs).
    pub(in crate::wave) fn weigh_losses(&mut self) {
        self.trials.weigh(Scale {
            memory: self.memory(),
            believed: self.belief.pages(),
            waste_percent: u64::from(self.config.waste_percent),
            ahead: self.counters.pages_ahead,
            useful: self.counters.pages_useful,
        });
    }

    /// R12: whether nothing is fetched for short runs and regions, since too much of that is lost.
    pub(in crate::wave) fn holds_back(&self) -> bool {
        self.trials.hold_back()
    }

    /// R12: whether the page that a stream's reader had read last when he stood at `page` is gone, and the stream is short, or
    /// was robbed. Where a file larger than memory is read at random, reads meet by chance, but late.
    pub(in crate::wave) fn outlived(&self, s: &Stream, page: u64) -> bool {
        let last = if s.course == Course::Backward { Some(page) } else { page.checked_sub(1) };
        let Some(last) = last.filter(|_| is_short(s) || s.robbed.of_late()).map(PageIndex) else {
            return false;
        };
        let table = &self.files[&s.file].table;
        table.has(PageBit::Used, last) && !table.present(last)
    }

    /// R12: pages that a stream may have ahead of it, which is as many as it is long while much is lost unread. None where others have been:
    /// chance has brought the pages together that its reader comes to, and to a head each hole between them is a trip.
    pub(in crate::wave) fn proved(&self, f: &File, s: &Stream) -> u64 {
        match self.holds_back() && !f.said.in_order() {
            true if is_short(s) || s.robbed.trodden && self.is_head(f) => 0,
            true => s.progress(),
            false => u64::MAX,
        }
    }
}

/// Whether a run has come no further than [`LOSING_READS`] reads.
fn is_short(s: &Stream) -> bool {
    s.progress() <= LOSING_READS * s.request
}

#[cfg(test)]
mod tests {
    use crate::table::PageBit;
    use crate::units::{Bytes, Extent, FileId, Nanos};
    use crate::wave::devices::device::tests::play;
    use crate::wave::streams::pace::Pace;
    use crate::wave::streams::stream::tests::{buy_region, fetched_ahead};
    use crate::wave::streams::stream::{Course, Stream};
    use crate::wave::{Config, Input, Wave};

    /// The second worked example at the top.
    #[test]
    fn what_is_lost_unread_tells_on_the_memory() {
        let brain_after = |out: u64, losses: &[u64]| {
            let id = FileId(0);
            let mut wave = Wave::new(Config { memory: Bytes(4096 * 4096), ..Config::default() });
            wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
            let out = Extent::new(0, out);
            let file = wave.files.get_mut(&id).unwrap();
            file.said.needs(out);
            file.table.set(PageBit::Present, out);
            wave.ledger.has_unread(file.table.set(PageBit::Ahead, out).0);
            let mut from = 0;
            for &pages in losses {
                wave.handle(Nanos(1), Input::Dropped { file: id, pages: Extent::new(from, pages) });
                wave.check();
                from += pages;
            }
            wave
        };
        let after = |out: u64, losses: &[u64]| brain_after(out, losses).belief.pages();
        assert_eq!(after(1000, &[400]), 3584);
        assert_eq!(after(1000, &[400, 200]), 3584);
        assert_eq!(after(1000, &[400, 200, 100]), 3136);
        let mut wave = brain_after(1000, &[400, 200, 100]);
        let mut told = |pages: u64| {
            wave.handle(Nanos(2), Input::Memory { bytes: Bytes(pages * 4096) });
            wave.belief.pages()
        };
        assert_eq!([4000, 4096, 3000, 4096].map(&mut told), [3136, 3136, 3000, 4096]);
        assert_eq!(after(3000, &[400, 808 + 288]), 3584);
        assert_eq!(after(3000, &[400, 808 + 289]), 3136);
    }

    /// Of a region that was bought, all that is gone is lost when somebody comes for a page of it; where a reader has left, nothing.
    #[test]
    fn what_nobody_comes_for_is_not_lost() {
        let (mut wave, sid) = fetched_ahead(Extent::new(1000, 400), 1399);
        wave.streams.get_mut(sid).unwrap().left = true;
        wave.handle(Nanos(1), Input::Dropped { file: FileId(0), pages: Extent::new(1000, 100) });
        assert_eq!((wave.belief.lost_now(), wave.trials.lost_of_late(), wave.ledger.unread()), (0, 0, 300));
        let region = buy_region(&mut wave);
        assert_eq!(wave.files[&FileId(0)].table.count(PageBit::Ahead, region).0, 256 - 32, "R11");
        wave.handle(Nanos::from_ms(2400), Input::Dropped { file: FileId(0), pages: region });
        assert_eq!((wave.belief.lost_now(), wave.ledger.unread()), (0, 300));
        let read = Input::Read { file: FileId(0), pages: Extent::new(2100, 8), actor: 9 };
        wave.handle(Nanos::from_ms(2500), read);
        wave.check();
        assert_eq!((wave.belief.lost_now(), wave.trials.lost_of_late()), (224, 224));
    }

    /// What is fetched ahead is lost whenever it is tried: after one memory full of reading, twice as much, and so on, and a little more.
    #[test]
    fn what_is_lost_again_soon_is_tried_ever_later() {
        let mut wave = Wave::new(Config { memory: Bytes(2048 * 4096), ..Config::default() });
        let (mut tried, mut read) = (alloc::vec::Vec::new(), 0);
        while tried.len() < 8 {
            let losing = wave.holds_back();
            wave.trials.missed(64);
            read += 64;
            wave.trials.lost(if losing { 0 } else { 64 });
            wave.weigh_losses();
            if losing && !wave.holds_back() {
                tried.push(read / 2048);
                read = 0;
            }
        }
        assert_eq!(tried, [2, 2, 4, 8, 16, 32, 32, 32]);
    }

    /// Much is lost, and a run of 400 pages comes to what others have read before: a head does not go for the holes between.
    #[test]
    fn a_head_makes_no_trips_for_holes_where_much_is_lost() {
        let proved = |slots: usize, trodden: bool| {
            let (mut wave, sid) = fetched_ahead(Extent::new(256, 400), 300);
            wave.queue(0).device = play(slots, 8_000, 500);
            wave.trials.lost(1 << 20);
            wave.weigh_losses();
            let s = wave.streams.get_mut(sid).unwrap();
            (s.first, s.next, s.request) = (256, 656, 4);
            s.robbed.is_trodden(trodden);
            wave.proved(&wave.files[&FileId(0)], wave.streams.get(sid).unwrap())
        };
        assert_eq!((proved(1, true), proved(1, false), proved(16, true)), (0, 400, 400));
    }

    /// Where there is room, a few pages of a region that was bought are gone: their reader waits once, and all of them are bought again.
    #[test]
    fn what_somebody_took_is_bought_again() {
        let there = |memory: u64, gone: u64| {
            let mut wave = Wave::new(Config { memory: Bytes(memory), ..Config::default() });
            wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 30) });
            let region = buy_region(&mut wave);
            wave.handle(
                Nanos::from_ms(2400),
                Input::Dropped { file: FileId(0), pages: Extent::new(2100, gone) },
            );
            let read = Input::Read { file: FileId(0), pages: Extent::new(2100, 8), actor: 9 };
            wave.handle(Nanos::from_ms(2500), read);
            while wave.poll(Nanos::from_ms(2500)).is_some() {}
            wave.check();
            wave.files[&FileId(0)].table.resident(region) == region.count
        };
        assert!(there(4 << 30, 40));
        assert!(!there(4 << 30, 80), "more than a quarter of it");
        assert!(!there(8 << 20, 40), "what is out fills more than a sixteenth of 8 MiB");
    }

    /// 464 pages are ahead of who reads each page twice, and some of them are gone: so many are too many. On s3, and for who reads each once, it is
    /// an eighth less.
    #[test]
    fn who_reads_again_has_what_is_left() {
        let believed = |slots: usize, request: u64| {
            let (mut wave, sid) = fetched_ahead(Extent::new(1000, 464), 1400);
            wave.queue(0).device = play(slots, 8_000, 500);
            wave.belief.is(2048);
            let s = wave.streams.get_mut(sid).unwrap();
            (s.first, s.request, s.reads) = (480, request, 20);
            wave.thrashed(Nanos(1), sid, Extent::new(1000, 26));
            wave.belief.pages()
        };
        assert_eq!((believed(1, 52), believed(1, 26), believed(16, 52)), (530, 1792, 1792));
    }

    /// Two wait for a head, and one of them takes what comes as it comes: what he loses tells nothing while what is out fits.
    #[test]
    fn who_waits_for_a_head_loses_nothing_by_the_memory() {
        let believed = |takes_at_once: bool, waiting: u32, memory: u64| {
            let (mut wave, sid) = fetched_ahead(Extent::new(1000, 1600), 2599);
            wave.queue(0).device = play(1, 8_000, 500);
            wave.queue(0).waiting.extend(0..waiting);
            wave.streams.get_mut(sid).unwrap().pace = Pace::taking(takes_at_once);
            wave.belief.is(memory);
            wave.handle(Nanos(1), Input::Dropped { file: FileId(0), pages: Extent::new(1000, 400) });
            wave.check();
            wave.thrashed(Nanos(1), sid, Extent::new(1000, 1));
            (wave.belief.pages(), wave.belief.lost_now())
        };
        assert_eq!(believed(true, 2, 4096), (4096, 0));
        assert_eq!(believed(true, 1, 4096), (3136, 400), "the head is with nobody else");
        assert_eq!(believed(false, 2, 4096), (3136, 400), "he has not come for it");
        assert_eq!(believed(true, 2, 2048), (1568, 400), "1,600 are more than half of memory");
    }

    /// Of 1,000 pages ahead of him 200 are gone in the middle. The 400 behind them are his as well: were they taken for another's, memory would
    /// seem full to him, and he come on by four pages at a time until he had passed them.
    #[test]
    fn what_is_left_behind_a_loss_is_nobody_elses() {
        let (mut wave, sid) = fetched_ahead(Extent::new(1000, 1000), 1999);
        let others = |wave: &Wave| wave.out_of_others(wave.streams.get(sid).unwrap());
        let before = others(&wave);
        wave.handle(Nanos(1), Input::Dropped { file: FileId(0), pages: Extent::new(1400, 200) });
        wave.check();
        assert_eq!(wave.streams.get(sid).map(|s| (s.frontier, s.robbed.asked())), Some((1400, 2000)));
        assert_eq!(others(&wave), before);
    }

    #[test]
    fn one_reader_of_many_says_nothing_of_the_memory() {
        for (streams, thrashes) in [(1, 1), (63, 1), (64, 2), (300, 5)] {
            let (mut wave, sid) = fetched_ahead(Extent::new(1000, 400), 1399);
            wave.epochs.are_active(streams);
            let memory = wave.belief.pages();
            let after = core::array::from_fn::<_, 5, _>(|_| {
                wave.thrashed(Nanos(1), sid, Extent::new(1000, 1));
                wave.belief.pages() < memory
            });
            assert_eq!(after, core::array::from_fn(|i| i + 1 >= thrashes), "{streams}");
        }
    }

    /// A reader waited for 8 ms. What arrived meanwhile was late, whenever the driver hears of his wait; what was there before he came was gone.
    #[test]
    fn what_arrived_while_he_waited_was_not_gone() {
        let thrashed = |heard_ms: u64, ended_ms: u64| {
            let (mut wave, _) = fetched_ahead(Extent::new(1000, 400), 1399);
            wave.queue(0).device = play(16, 8_000, 500);
            let (file, pages) = (FileId(0), Extent::new(1000, 1));
            wave.arrivals.push_back((Nanos::from_ms(100), file, Extent::new(1000, 400)));
            let (now, took, ended) = (Nanos::from_ms(heard_ms), Nanos::from_ms(8), Nanos::from_ms(ended_ms));
            wave.handle(now, Input::Read { file, pages, actor: 1 });
            wave.handle(now, Input::Waited { file, pages, actor: 1, took, ended });
            wave.check();
            wave.counters.windows_thrashed
        };
        assert_eq!(
            [(104, 104), (150, 104), (150, 150)].map(|(heard, ended)| thrashed(heard, ended)),
            [0, 0, 1]
        );
    }

    /// The last line of it.
    #[test]
    fn what_there_is_no_room_for_is_given_up() {
        let (mut wave, _) = fetched_ahead(Extent::new(1000, 3000), 3999);
        wave.belief.is(4096);
        wave.handle(Nanos(1), Input::Dropped { file: FileId(0), pages: Extent::new(1000, 400) });
        wave.check();
        assert_eq!(wave.belief.pages(), 3584);
        assert_eq!(wave.take_given_up(), Some((FileId(0), Extent::new(2792, 1208))));
        assert_eq!((wave.take_given_up(), wave.ledger.unread()), (None, 1392));
        assert_eq!(wave.counters.windows_thrashed, 1);
        wave.handle(Nanos(2), Input::Dropped { file: FileId(0), pages: Extent::new(1400, 400) });
        assert_eq!(wave.counters.windows_thrashed, 1, "the same window, before its reader has come");
    }

    /// Nor is anything of it where another reader stands in the way, or what somebody has read.
    #[test]
    fn what_others_use_is_not_given_up() {
        let given_up = |other: bool| {
            let (mut wave, _) = fetched_ahead(Extent::new(1000, 3000), 3999);
            wave.belief.is(4096);
            wave.handle(Nanos(0), Input::Used { file: FileId(0), pages: Extent::new(3000, 100) });
            if other {
                let sid = wave.streams.add(Stream::seed(FileId(0), 2000, 1, Nanos(0))).unwrap();
                let f = wave.files.get_mut(&FileId(0)).unwrap();
                assert_eq!(f.expected.expect(Course::Forward, 2001, sid), None);
            }
            wave.handle(Nanos(1), Input::Dropped { file: FileId(0), pages: Extent::new(1000, 400) });
            let all: alloc::vec::Vec<_> = core::iter::from_fn(|| wave.take_given_up()).collect();
            all.into_iter().map(|(_, pages)| pages).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(given_up(false), [Extent::new(2792, 208), Extent::new(3100, 900)]);
        assert_eq!(given_up(true), []);
    }

    /// 1000 pages that a stream left are gone: they are nobody's no more, and that tells nothing of the memory.
    #[test]
    fn what_is_nobodys_and_goes_is_out_no_more() {
        let (mut wave, sid) = fetched_ahead(Extent::new(1000, 1000), 1900);
        wave.end(sid);
        assert_eq!(wave.ledger.all(), (1000, 1000, 0));
        let lost = wave.belief.lost_now();
        wave.handle(Nanos(1), Input::Dropped { file: FileId(0), pages: Extent::new(1000, 600) });
        assert_eq!((wave.ledger.all(), wave.belief.lost_now()), ((400, 400, 0), lost));
    }
}
