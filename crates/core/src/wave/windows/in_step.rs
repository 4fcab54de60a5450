//! R10: streams of one file that go in step, and what those before say of those behind.
//!
//! Twelve readers of one file take turns. Each read of the first round is the first of a stream, a seed, and may as well be a
//! read at random. In the second round those that go on say what the others will do (`tests/wave/r10-in-step.txt` owns it):
//!
//! ```text
//! seeds, oldest first      A B C D E F G H I J K L
//! second reads of A, B     x x                            two may be a coincidence: no more than their own windows
//! second read of C         x x x o o o o                  opens four that wait: D to G
//! second read of D         x x x x o o o o o o o o        and twice as many and four: H to L, which is all of them
//! ```
//!
//! Streams in step come to the end of what is out one after the other. Where one has waited, those that have nothing left are looked
//! after with it, by a head those on its way: it has gone on, and so will they, though other runs ended just there. Rows of a matrix in a
//! file whose records are of 16 pages: nothing is fetched ahead of any at its 16th page (R9). The first waits for its 17th, and for its
//! 18th; the other 63 do not.
//!
//! A seed is passed over where one sown after it is read a third time: its turn would have come before. It ends where fewer than half
//! of the 64 seeds up to the newest that went on did, 64 before that one, and 64 behind: what was sown later may be another reader's. Rows of a
//! matrix whose first read nobody has told are opened without a number, and say nothing of those that have one.

use crate::decision::{Pattern, Why};
use crate::units::{Extent, FileId, Nanos, PageIndex};
use crate::wave::Wave;
use crate::wave::memory::shares::first_window;
use crate::wave::plan::Asked;
use crate::wave::streams::stream::{Course, Stream, StreamId, Streams};
use crate::wave::windows::reach::FEW;
use crate::wave::windows::runs::Direction;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem::size_of;

/// Streams that are looked at at most when one of their file has waited.
const SISTERS_MAX: usize = 256;
/// Streams in a row that have windows, after which no more are looked at: they were a moment ago.
const LOOKED_AFTER: usize = 16;
/// Streams that may wait for their second read in one file; the oldest gives up its place.
const SEEDS_MAX: usize = 4096;
/// Seeds that are opened behind the newest that went on, and before it.
const NEAR_MAX: u64 = 64;
/// Seeds in a row that did not go on, after which runs are over.
const LATEST: u64 = 8;
/// Once in so many times it may be chance that somebody comes back, and is taken for it.
const BACK_BY_CHANCE: u64 = 64;

/// R2: whether a reader may have come back to a run by chance, after so many reads of a file of `end` pages: as many at random come to the
/// `count` pages behind a run once in [`BACK_BY_CHANCE`] times. Who reads each block of a file once, in random order, comes to all of them in the end.
///
/// A file of 1 GiB is 262,144 pages: reads of four pages are a run of their own up to 1,024 reads later. 512 streams in turn are.
pub(in crate::wave) fn by_chance(reads: u64, count: u64, end: u64) -> bool {
    reads.saturating_mul(count).saturating_mul(BACK_BY_CHANCE) > end
}

/// The seeds of one file, in the order in which they were sown, and what became of them.
#[derive(Clone, Debug, Default)]
pub(in crate::wave) struct Seeds {
    /// Those that may wait for their second read, at most [`SEEDS_MAX`], and how many of the first R10 has opened.
    waiting: VecDeque<StreamId>,
    opened: usize,
    /// Seeds sown so far: the number of the newest, from 1.
    sown: u64,
    /// Of the 64 seeds up to the newest that went on, which did: bit 0 is that newest, number `fates_newest`.
    fates: u64,
    fates_newest: u64,
    /// The newest seed that was read a third time.
    third_newest: u64,
}

impl Seeds {
    /// The number of a seed that is sown now.
    pub(in crate::wave) fn next_serial(&mut self) -> u64 {
        self.sown += 1;
        self.sown
    }

    /// It stands in line behind all others; the oldest, if it gives up its place.
    pub(in crate::wave) fn sow(&mut self, seed: StreamId) -> Option<StreamId> {
        self.waiting.push_back(seed);
        if self.waiting.len() > SEEDS_MAX { self.pass_oldest() } else { None }
    }

    fn pass_oldest(&mut self) -> Option<StreamId> {
        self.opened = self.opened.saturating_sub(1);
        self.waiting.pop_front()
    }

    /// Seeds sown since number `serial` was.
    pub(in crate::wave) fn sown_since(&self, serial: u64) -> u64 {
        self.sown - serial
    }

    /// The seed that stands with `others` from the end of the line on.
    pub(in crate::wave) fn followed_by(&self, others: usize) -> Option<StreamId> {
        self.waiting.len().checked_sub(others).map(|i| self.waiting[i])
    }

    /// Number `serial` went on; 0 is no seed.
    pub(in crate::wave) fn went_on(&mut self, serial: u64) {
        if serial == 0 {
            return;
        }
        if serial > self.fates_newest {
            self.fates = self.fates.checked_shl((serial - self.fates_newest).min(64) as u32).unwrap_or(0) | 1;
            self.fates_newest = serial;
        } else if self.fates_newest - serial < 64 {
            self.fates |= 1 << (self.fates_newest - serial);
        }
    }

    /// Number `serial` was read a third time.
    pub(in crate::wave) fn read_thrice(&mut self, serial: u64) {
        self.third_newest = self.third_newest.max(serial);
    }

    /// How many of those up to the newest that went on did, and of how many: 64 at most.
    fn fates(&self) -> (u64, u64) {
        (u64::from(self.fates.count_ones()), self.fates_newest.min(64))
    }

    /// Whether one of the latest seeds went on: of eight, or of two of each of so many readers, whose turn may not have come.
    pub(in crate::wave) fn go_on_of_late(&self, readers: usize) -> bool {
        self.sown < self.fates_newest + LATEST.max(2 * readers as u64)
    }

    /// R4's caution (2013, spec 4.3): where reads fall thick at random, two neighbours are a coincidence. So they are taken
    /// for while fewer than one in eight of the seeds up to the newest that went on did; a third read in order counts.
    pub(in crate::wave) fn coincide(&self) -> bool {
        let (went_on, of) = self.fates();
        of >= 16 && 8 * went_on < of
    }

    /// Those that wait behind those that went on, and are to be opened now: twice as many each time, while half of the 64 up to the newest that
    /// went on did.
    fn next_to_open(&mut self, streams: &Streams) -> Vec<StreamId> {
        let (went_on, of) = self.fates();
        if went_on < 3 || 2 * went_on < of {
            return Vec::new();
        }
        let waits = |sid| streams.get(sid).is_some_and(|s| s.course == Course::Seed);
        while self.waiting.front().is_some_and(|&sid| !waits(sid)) {
            self.pass_oldest();
        }
        // Those far before it have not gone on, and will not.
        let newest = self.fates_newest;
        let far = |sid: &StreamId| streams.get(*sid).is_none_or(|s| s.begun.serial() + NEAR_MAX <= newest);
        let opened = self.opened.min(self.waiting.len());
        let from = opened + self.waiting.range(opened..).take_while(|&sid| far(sid)).count();
        let to = (2 * from + 4).min(self.waiting.len());
        let near = |sid: &&StreamId| streams.get(**sid).is_none_or(|s| s.begun.serial() <= newest + NEAR_MAX);
        let mut next: Vec<StreamId> = self.waiting.range(from..to).take_while(near).copied().collect();
        self.opened = from + next.len();
        next.retain(|&sid| streams.get(sid).is_some_and(|s| s.begun.serial() > self.third_newest));
        next
    }

    /// Bytes that it takes, about.
    pub(in crate::wave) fn bytes_of_memory(&self) -> usize {
        self.waiting.capacity() * size_of::<StreamId>()
    }

    /// States what must hold between inputs.
    pub(in crate::wave) fn check(&self) {
        assert!(self.waiting.len() <= SEEDS_MAX, "seeds are bounded");
        assert!(self.fates_newest.max(self.third_newest) <= self.sown, "what went on was sown");
    }
}

impl Wave {
    /// R10: seeds that wait behind those that went on are opened.
    pub(in crate::wave) fn open_in_step(&mut self, now: Nanos, id: FileId, pages: Extent) {
        if self.holds_back() {
            return;
        }
        let Some(f) = self.files.get_mut(&id).filter(|f| !f.goes_from_run_to_run()) else { return };
        for seed in f.seeds.next_to_open(&self.streams) {
            self.open_seed(now, seed, pages, Why("R10 in step"));
        }
    }

    /// A seed that waits for its second read has four pages ahead for each of its first, because of a read of `pages` elsewhere.
    pub(in crate::wave) fn open_seed(&mut self, now: Nanos, sid: StreamId, pages: Extent, why: Why) {
        let waits = |s: &&mut Stream| s.course == Course::Seed && s.ahead == 0;
        let Some(s) = self.streams.get_mut(sid).filter(waits) else { return };
        s.ahead = first_window(s.request);
        let (id, start, ahead, next) = (s.file, s.frontier, s.ahead, s.next);
        let end = next + ahead.min(self.speculation_share(&self.files[&id]));
        let Some(s) = self.streams.get_mut(sid) else { return };
        s.frontier = s.frontier.max(end);
        let window = Extent::between(PageIndex(start), PageIndex(end));
        let mark = Some(Extent::new(start, 1));
        let asked = Asked { read: pages, window, mark, pattern: Pattern::Context, why, urgent: true };
        self.fetch(now, sid, asked);
    }

    /// R10: streams that go in step come to the end of what is out one after the other. When one has waited, those behind it
    /// whose windows are small are not left to wait in their turn.
    pub(in crate::wave) fn plan_sisters(&mut self, now: Nanos, sid: StreamId, pages: Extent) {
        // Among so many that a few pages are all that each may have, there is nothing to look after.
        let Some(s) = self.streams.get(sid).filter(|_| !self.holds_back()) else { return };
        let Some(f) = self.files.get(&s.file) else { return };
        // Who is alone and reads on has waited for what is being carried, which says nothing of others.
        if self.glides(f, s) {
            return;
        }
        if self.share().min(self.speculation_share(f)) <= 2 * FEW {
            return;
        }
        let (came, request, overlaps) = (s.progress(), s.request, self.overlaps(f));
        // Where it has come farther than any that ended, it will not have stopped at its next page.
        let ended = if f.runs.telling().known() { f.runs.telling() } else { self.ended.by(Direction::Up) };
        let goes_on = if ended.known() && came > ended.longest() { came + request } else { came };
        let alone = f.goes_from_run_to_run();
        // To a head each is a trip, made as soon when its reader comes, but for what lies on its way.
        let way = if self.is_head(f) { self.unit(f) } else { u64::MAX };
        let behind = s.next.saturating_add(1);
        let behind = behind..behind.saturating_add(way);
        let before = s.next.saturating_sub(way)..s.next;
        let sisters = f.expected.up().range(behind).chain(f.expected.up().range(before)).take(SISTERS_MAX);
        let (mut short, mut looked_after): (Vec<StreamId>, usize) = (Vec::new(), 0);
        for &sister in sisters.map(|(_, sister)| sister) {
            let forward =
                self.streams.get(sister).filter(|s| s.course == Course::Forward && !(s.left && alone));
            if forward.is_some_and(|s| s.out() <= FEW.max(2 * s.request) && !self.outlived(s, s.next)) {
                short.push(sister);
                looked_after = 0;
            } else {
                looked_after += 1;
            }
            if looked_after == LOOKED_AFTER {
                break;
            }
        }
        for sister in short {
            // About as far as the one that waited, it goes on as that did, whatever runs ended there.
            let progress = self.streams.get(sister).map_or(0, Stream::progress);
            let came = if overlaps && progress + request >= came { goes_on.max(progress) } else { progress };
            self.plan_stream_as(now, sister, pages, Why("R10 in step"), came);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, PageCount};
    use crate::wave::devices::device::Device;
    use crate::wave::devices::device::tests::{gliding, play};
    use crate::wave::windows::runs::Noted;
    use crate::wave::{Config, Input};

    /// The eighth seed since one that went on, and of 16 readers the 32nd, says that runs are over.
    #[test]
    fn runs_are_over_when_nobody_has_gone_on_for_two_turns() {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        let mut goes_on = |sown: u64, readers: usize| {
            let f = wave.files.get_mut(&id).unwrap();
            (f.seeds.sown, f.seeds.fates_newest) = (100 + sown, 100);
            f.seeds.go_on_of_late(readers)
        };
        assert_eq!([7, 8].map(|sown| goes_on(sown, 1)), [true, false]);
        assert_eq!([31, 32].map(|sown| goes_on(sown, 16)), [true, false]);
    }

    /// 400 first reads of a column, and eight second ones. A row that is opened behind them, of which no first read was told, goes on as well: it
    /// says nothing of the 400, or who reads their second pages would be taken to come back by chance, 392 times.
    #[test]
    fn a_row_that_nobody_began_says_nothing_of_seeds() {
        let coincidence = |serial: fn(u64) -> u64| {
            let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
            wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 32) });
            let read = |row: u64| Extent::new(1000 * row, 2);
            for row in 1..=400 {
                wave.sow(Nanos(0), id, read(row), None).unwrap();
            }
            let went_on = |wave: &mut Wave, serial| wave.files.get_mut(&id).unwrap().seeds.went_on(serial);
            (1..=8).for_each(|serial| went_on(&mut wave, serial));
            let row = wave.sow_as(Nanos(0), id, read(401), None, serial(401)).unwrap();
            let serial = wave.streams.get(row).unwrap().begun.serial();
            went_on(&mut wave, serial);
            went_on(&mut wave, 9);
            wave.files[&id].seeds.coincide()
        };
        assert!(!coincidence(|_| 0));
        assert!(coincidence(|sown| sown), "numbered it would");
    }

    /// The last example at the top: one row has come `came` pages, the others `progress`, and records of 16 pages ended here. What is asked
    /// for of each of those.
    fn ahead_of_sisters(slots: usize, came: u64, progress: u64) -> PageCount {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.queue(0).device = play(slots, 30_000, 500);
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        wave.counters.pages_used = 100_000;
        (0..64).for_each(|_| wave.witness(id, Direction::Up, 16, Noted::NotYet));
        let mut rows = (0..3).map(|row| {
            let mut s = Stream::seed(id, 1000 * row, if row == 0 { came } else { progress }, Nanos(0));
            (s.course, s.reads, s.request, s.ahead) = (Course::Forward, 6, 1, 64);
            wave.adopt(Nanos(0), s).unwrap()
        });
        let first = rows.next().unwrap();
        rows.for_each(drop);
        wave.plan_sisters(Nanos(0), first, Extent::new(came - 1, 1));
        let asked: alloc::vec::Vec<_> = wave.take_trace().collect();
        assert!([0, 2].contains(&asked.len()), "both or none: {asked:?}");
        asked.first().map_or(PageCount(0), |e| e.decision.window.size)
    }

    /// The example beside it; and a run of four pages a read, to which somebody comes back after so many reads elsewhere, twice: whether that
    /// is taken for chance, and for what is asked then.
    #[test]
    fn who_comes_back_after_many_reads_elsewhere_may_have_come_by_chance() {
        assert_eq!([512, 1024, 1025].map(|reads| by_chance(reads, 4, 262_144)), [false, false, true]);
        let back = |elsewhere: u64| {
            let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
            wave.queue(0).device = play(16, 1_000, 500);
            wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
            let mut s = Stream::seed(id, 1000, 64, Nanos(0));
            (s.course, s.reads, s.request) = (Course::Forward, 16, 4);
            assert_eq!(s.returns.told(1, false), None);
            let sid = wave.adopt(Nanos(0), s).unwrap();
            let f = wave.files.get_mut(&id).unwrap();
            (0..elsewhere).for_each(|_| assert!(f.told.count() > 0));
            [1064, 1068].map(|page| {
                wave.handle(Nanos(1), Input::Read { file: id, pages: Extent::new(page, 4), actor: 0 });
                wave.check();
                (wave.streams.get(sid).unwrap().returns.by_chance(), wave.take_trace().count())
            })
        };
        assert_eq!(back(1024)[0], (false, 1));
        assert_eq!(back(1025), [(true, 0), (false, 1)], "the second time he has read nothing else");
    }

    /// Streams that have come 17 pages each, one that begins at page 0 and others at `starts`, the first of which had its turn meanwhile, or not:
    /// for how many something is asked when the one at page 0 waits.
    fn asked_beside(device: Device, starts: &[u64], meanwhile: bool) -> usize {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.queue(0).device = device;
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        let mut began = |start: u64| {
            let mut s = Stream::seed(id, start, 17, Nanos(0));
            (s.course, s.reads, s.request, s.ahead) = (Course::Forward, 6, 1, 64);
            s.returns.begins_with(u64::from(start == 0));
            wave.adopt(Nanos(0), s).unwrap()
        };
        let others: Vec<StreamId> = starts.iter().map(|&start| began(start)).collect();
        let first = began(0);
        wave.queue(0).turn_of(first);
        if meanwhile {
            wave.queue(0).turn_of(others[0]);
        }
        wave.plan_sisters(Nanos(0), first, Extent::new(16, 1));
        wave.take_trace().count()
    }

    /// On a head where who reads on need not wait, and the first waits for what is carried.
    #[test]
    fn who_is_alone_and_reads_on_says_nothing_of_others() {
        assert_eq!([false, true].map(|meanwhile| asked_beside(gliding(), &[100], meanwhile)), [0, 1]);
    }

    /// Of the others one is 83 pages further on, and one farther than the 195 that a way costs.
    #[test]
    fn where_one_has_waited_a_head_brings_what_lies_on_its_way() {
        let devices = [gliding(), play(1, 8_000, 500), play(64, 8_000, 500)];
        assert_eq!(devices.map(|device| asked_beside(device, &[1000, 100], true)), [1, 1, 2]);
    }

    #[test]
    fn rows_go_on_where_one_went_on_whatever_ended_there() {
        assert!(ahead_of_sisters(64, 17, 16) > PageCount(16));
        assert!(ahead_of_sisters(64, 18, 17) > PageCount(16));
        assert_eq!(ahead_of_sisters(64, 18, 16), PageCount(0), "two pages behind it is no sister");
        assert_eq!(ahead_of_sisters(64, 16, 15), PageCount(0), "none has gone on yet");
        assert_eq!(ahead_of_sisters(1, 17, 16), PageCount(0), "a head would make a trip for each");
    }
}
