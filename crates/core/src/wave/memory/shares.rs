//! R12, R13: who counts as reading, and what each of them may have out.
//!
//! The share of speculation is the waste ceiling turned round. Were every reader to stop at this moment, what is out unread would be the waste; so
//! what all streams together may have out is 15 % of what was used, or if that is more
//!
//! ```text
//!   2 MiB, or if that is more what three connections of the device carry in a latency: 8 MB on s3
//! + 2 pages for each page used
//! + what readers have paid for by waiting, 2 pages for each page used at most: a stream that has waited once may have out what one latency
//!   carries, since to wait again would cost as much
//! but no more than 38 MiB in all, which 256 MiB read would allow; or on a head, if that is more, than what makes each way to a stream an eighth
//! longer: where streams are many, ways are what is scarce
//! ```
//!
//! It is divided by the streams.
//!
//! What a stream leaves when it ends is waste, and a debt: as much less is let out. It is made good page for page by what is
//! fetched ahead and read, and by waits: where a reader goes on to wait, the time costs more than the pages would have.
//!
//! Who reads in a region that was bought (R11) has nothing out there, and takes no speculation from others: random reads of 32 MiB are 120
//! streams of two reads each, and who reads in order after them would have a hundredth of what he may. They share with all; and of memory each
//! has its share, as always.
//!
//! Streams that read in step share alike. A stream that reads more than its share of the pages is given as much of the speculation by that measure
//! (its *use*), as far as the others have left it. If they leave it less than half of that, and that is more than two shares, each of the others is held
//! to its own use, though to no less than a quarter of its share, until as many pages are used as may be out. And if they leave it nothing, it has at
//! least what a wait is worth, one latency's carrying, if so much is due to it by use: the rows of a matrix that were read a while ago have
//! their windows out still, and a reader that comes to another row would wait for every few pages. That is so only where requests overlap: a head
//! brings a trip's worth for a wait.
//!
//! ```text
//! 1 stream, nothing used yet        512 pages        1 stream after 512 MiB      0.15 * 131072 = 19660 pages
//! 512 streams, 2 pages used each      5 pages each   512 streams after 512 MiB                  38 pages each
//!   each of them waited 8 ms          9 pages each   (195 paid for each; 2 for each page used)
//! 2000 streams, 20 pages used each    4 pages each   on a head of 8 ms and 100 MB/s           24 pages each
//! 1 stream after 64 MiB, where another left 6000 pages behind: 9830 - 6000 = 3830
//! 64 streams and one that reads as much as they do together, 2000 pages after they began: 9830 / 65 = 151 for each, and for
//!                                     that one 9830 * 1000 / (2000 + 9830 / 8) = 3045 if the others have no more out;
//!                                     if they have 151 each, it gets 166, and they 45 until 9830 pages more are read;
//!                                     on s3 it gets the 732 that come while it would wait
//! ```

use crate::table::PageBit;
use crate::units::{Extent, Nanos, PageIndex};
use crate::wave::streams::stream::{Stream, StreamId};
use crate::wave::{File, Wave};

/// Pages of speculation that a run may have out before it has used anything, 2 MiB; what [`UNITS_FIRST`] carry where that is more.
const SPECULATION_MIN: u64 = 512;
/// A run may begin with what so many connections of the device carry in a latency: with two streams each opens its window as if it were alone.
pub(in crate::wave) const UNITS_FIRST: u64 = 3;
/// What it may have out because half as much was used: 15 % of 256 MiB, 38 MiB, a third more than 1 GB/s carries in the 30 ms of an object
/// store. With half as much again (48 MiB) who reads 256 MiB of it and stops is 5 to 10 % faster and leaves 17 % in vain (decision 56).
pub(in crate::wave) const SPECULATION_MAX: u64 = 9830;
/// No rule wants less ahead of a stream than this.
pub(in crate::wave) const AHEAD_MIN: u64 = 4;

/// What is fetched ahead first of who reads so many pages: four times as much (R1).
pub(in crate::wave) fn first_window(request: u64) -> u64 {
    (4 * request).max(AHEAD_MIN)
}

impl File {
    /// Whether what a stream read last was bought (R11).
    fn is_in_bought(&self, s: &Stream) -> bool {
        self.density.was_bought(PageIndex(s.next.saturating_sub(1)))
    }
}

impl Wave {
    /// Pages of the memory believed in that may be out unread.
    pub(in crate::wave) fn room(&self) -> u64 {
        if self.config.read_goes_first { self.seven_eighths() } else { self.belief.pages() / 2 }
    }

    /// More than that no stream has out, however it is reckoned.
    pub(in crate::wave) fn seven_eighths(&self) -> u64 {
        self.belief.pages() / 8 * 7
    }

    /// Pages that memory holds, whatever is believed of it.
    pub(in crate::wave) fn memory(&self) -> u64 {
        self.config.memory.0 / crate::units::PAGE_SIZE
    }

    /// Room, divided by the streams, and by as many more as the last epoch has brought to those that were
    /// there: what is asked for now must still be there when those to come have had their share.
    pub(in crate::wave) fn share(&self) -> u64 {
        let streams = self.active() + self.epochs.newcomers();
        (self.room() / streams.max(1)).max(AHEAD_MIN)
    }

    /// Pages that are out unread and that somebody may still come to.
    pub(in crate::wave) fn out(&self) -> u64 {
        self.ledger.out()
    }

    /// Those that are not ahead of this stream. What it had asked for beyond what was lost is ahead of it as well.
    pub(in crate::wave) fn out_of_others(&self, s: &Stream) -> u64 {
        let beyond = s.robbed.asked().saturating_sub(s.frontier);
        let table = self.files.get(&s.file).filter(|_| beyond > 0).map(|f| &f.table);
        let left = table.map_or(0, |table| table.count(PageBit::Ahead, Extent::new(s.frontier, beyond)).0);
        self.out().saturating_sub(s.out() + left)
    }

    /// Pages that may be out in vain for what was used.
    pub(in crate::wave) fn earned(&self) -> u64 {
        self.counters.pages_used * u64::from(self.config.waste_percent) / 100
    }

    /// What may be out unread of all streams together, debts aside; to begin with, as suits the device of this file.
    pub(in crate::wave) fn speculation(&self, f: &File) -> u64 {
        let used = self.counters.pages_used;
        let first = SPECULATION_MIN.max(UNITS_FIRST * self.unit(f));
        let ways = if self.trip(f) > 0 { self.active() * self.wait_pages(f).0 } else { 0 };
        let begun = 2 * used + first + self.ledger.credit().min(2 * used);
        self.earned().max(begun.min(SPECULATION_MAX.max(ways)))
    }

    /// That, less the debt: the pool.
    pub(in crate::wave) fn pool(&self, f: &File) -> u64 {
        self.speculation(f).saturating_sub(self.ledger.debt())
    }

    /// The pool, divided by the streams that read elsewhere than in what was bought.
    pub(in crate::wave) fn speculation_share(&self, f: &File) -> u64 {
        self.part_of(self.pool(f), false)
    }

    /// What one stream has of the pool: who reads in what was bought shares with all, others with those that read elsewhere.
    fn part_of(&self, pool: u64, in_bought: bool) -> u64 {
        let streams = if in_bought { self.active() } else { self.epochs.active_elsewhere() };
        (pool / streams.max(1)).max(AHEAD_MIN)
    }

    /// What one stream may have out: its share; where it reads more than that, what is due to it by use, as far as others have left
    /// it. Where that is missed, others are held to what is due to them.
    pub(in crate::wave) fn speculation_of(&self, f: &File, s: &Stream) -> u64 {
        let (share, by_use, free) = self.due(f, s);
        if by_use > share {
            let wait = if self.overlaps(f) { self.unit(f) } else { 0 };
            return share.max(by_use.min(free.max(wait)));
        }
        if self.ledger.is_pressed(self.counters.pages_used) {
            by_use.max(share / 4).max(AHEAD_MIN)
        } else {
            share
        }
    }

    /// What is due to a stream: its share, and by use what it has read of all that was read since it began, which must be an eighth of
    /// the pool before that says half of what it will; and what others have left. What it reads out of a region that was bought (R11) was paid
    /// for by that: there it has its share.
    fn due(&self, f: &File, s: &Stream) -> (u64, u64, u64) {
        let pool = self.pool(f);
        let others = self.out_of_others(s);
        let (own, all) = s.begun.since(s.progress(), self.counters.pages_used);
        let all = (all + pool / 8).max(1);
        let bought = f.is_in_bought(s);
        let own = if bought { 0 } else { own.min(all) };
        let by_use = (u128::from(pool) * u128::from(own) / u128::from(all)) as u64;
        (self.part_of(pool, bought), by_use, pool.saturating_sub(others))
    }

    /// A stream that others leave less than half of what is due to it by use presses them, until so much is used as may be out.
    pub(in crate::wave) fn press(&mut self, sid: StreamId) {
        let Some(s) = self.streams.get(sid) else { return };
        let f = &self.files[&s.file];
        let (share, by_use, free) = self.due(f, s);
        if by_use > 2 * share && free < by_use / 2 {
            self.ledger.press(self.counters.pages_used + self.speculation(f));
        }
    }

    /// Streams that are active.
    pub(in crate::wave) fn active(&self) -> u64 {
        self.epochs.active()
    }

    /// A stream is touched: it counts as active, and is looked at in its time whether it has ended.
    pub(in crate::wave) fn mark_active(&mut self, now: Nanos, sid: StreamId) {
        let interval_ns = self.streams.get(sid).map_or(0, |s| s.pace.interval_ns());
        if self.epochs.is_over(now, interval_ns) {
            self.epochs.next(now);
            self.belief.next_epoch(self.memory());
        }
        // Looked at once an epoch: it takes a look into each size of regions.
        let new = self.streams.get(sid).filter(|s| !self.epochs.has(s.counted));
        let in_bought = new.is_some_and(|s| self.files[&s.file].is_in_bought(s));
        if let Some(s) = self.streams.get_mut(sid) {
            self.epochs.count(now, &mut s.counted, in_bought);
            if s.line.is_stream() {
                self.line_up(now, sid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::units::{Bytes, FileId, Nanos};
    use crate::wave::devices::device::Device;
    use crate::wave::devices::device::tests::play;
    use crate::wave::streams::stream::tests::buy_region;
    use crate::wave::streams::stream::{Course, Stream};
    use crate::wave::{Config, Input, Wave};
    use alloc::vec::Vec;

    /// The worked example at the top.
    #[test]
    fn shares_of_speculation() {
        let mut wave = Wave::new(Config::default());
        wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 30) });
        let mut share = |streams: u64, used: u64, paid: u64| {
            wave.epochs.are_active(streams);
            wave.counters.pages_used = used;
            wave.ledger.owes(0, paid * streams);
            wave.speculation_share(&wave.files[&FileId(0)])
        };
        assert_eq!(share(1, 0, 0), 512);
        assert_eq!(share(512, 2 * 512, 0), 5);
        assert_eq!(share(512, 2 * 512, 195), 9);
        assert_eq!(share(2000, 2000 * 20, 0), 4);
        assert_eq!(share(1, 131_072, 0), 19_660);
        assert_eq!(share(512, 131_072, 0), 38);
        assert_eq!(share(1, 16_384, 0), 9_830);
        wave.queue(0).device = play(1, 8_000, 500);
        wave.epochs.are_active(2000);
        wave.counters.pages_used = 2000 * 20;
        assert_eq!(wave.speculation_share(&wave.files[&FileId(0)]), 24);
        wave.queue(0).device = Device::default();
        wave.epochs.are_active(1);
        wave.counters.pages_used = 16_384;
        wave.ledger.owes(6000, 0);
        assert_eq!(wave.speculation_share(&wave.files[&FileId(0)]), 3830);
        wave.epochs.are_active(65);
        wave.ledger.owes(0, 0);
        wave.ledger.has_unread(6144);
        let mut large = Stream::seed(FileId(0), 0, 1000, Nanos(0));
        large.begun.at(0, 16_384 - 2000);
        let mut small = Stream::seed(FileId(0), 5000, 1000 / 64, Nanos(0));
        small.begun = large.begun;
        let of = |wave: &Wave, s: &Stream| wave.speculation_of(&wave.files[&FileId(0)], s);
        assert_eq!((of(&wave, &large), of(&wave, &small)), (3045, 151));
        wave.ledger.has_unread(64 * 151);
        assert_eq!(of(&wave, &large), 166);
        let unknown = core::mem::replace(&mut wave.queue(0).device, play(64, 30_000, 500));
        assert_eq!(of(&wave, &large), 732);
        wave.queue(0).device = unknown;
        let large = wave.streams.add(large).unwrap();
        wave.press(large);
        assert_eq!(of(&wave, &small), 45);
        wave.counters.pages_used += 9_830;
        assert_eq!(of(&wave, &small), 151);
    }

    /// Ten streams in a region that was bought, and one elsewhere: that one has all, they an eleventh each. When they have ended there
    /// are none.
    #[test]
    fn who_reads_in_what_was_bought_takes_nothing_from_others() {
        let shares = |slots: usize| {
            let mut wave = Wave::new(Config::default());
            wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 30) });
            buy_region(&mut wave);
            wave.queue(0).device = play(slots, 30_000, 500);
            wave.ledger.all_died();
            wave.counters.pages_used = 16_384;
            let (active, bought) = wave.epochs.counted_now();
            let mut stream = |start: u64| {
                let s = Stream::seed(FileId(0), start, 1, Nanos(0));
                let sid = wave.streams.add(Stream { course: Course::Forward, ..s }).unwrap();
                wave.mark_active(Nanos(0), sid);
                sid
            };
            let inside: Vec<_> = (0..10).map(|i| stream(2060 + 20 * i)).collect();
            let outside = stream(100_000);
            let of = |wave: &Wave, sid| {
                let s = wave.streams.get(sid).expect("a stream");
                wave.speculation_of(&wave.files[&FileId(0)], s)
            };
            let shares = (of(&wave, inside[0]), of(&wave, outside));
            assert_eq!(wave.epochs.counted_now().0, active + 11);
            for sid in inside.into_iter().chain([outside]) {
                assert!(wave.dismiss(sid).is_some());
            }
            assert_eq!(wave.epochs.counted_now(), (active, bought));
            shares
        };
        assert_eq!(shares(64), (9_830 / 11, 9_830));
        assert_eq!(shares(1), (9_830 / 11, 9_830));
    }

    #[test]
    fn what_a_region_paid_for_is_no_use_of_a_stream() {
        let mut wave = Wave::new(Config::default());
        wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 30) });
        buy_region(&mut wave);
        wave.epochs.are_active(65);
        wave.ledger.all_died();
        wave.counters.pages_used = 16_384;
        let due = |first: u64| {
            let mut s = Stream::seed(FileId(0), first, 250, Nanos(0));
            s.begun.at(0, 16_384 - 250);
            (
                wave.speculation_of(&wave.files[&FileId(0)], &s),
                wave.speculation_share(&wave.files[&FileId(0)]),
            )
        };
        let ((elsewhere, share), (bought, _)) = (due(100_000), due(2050));
        assert!(elsewhere > 5 * share && bought == share, "{elsewhere} {bought} {share}");
    }

    /// Who waits cannot be heard of; he is there all the same, and has his share.
    #[test]
    fn who_waits_for_long_is_active() {
        let active_after = |wait: Nanos| {
            let mut wave = Wave::new(Config::default());
            wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 30) });
            wave.epochs.waited(wait);
            for (start, seconds) in [(0, 0), (1000, 3), (2000, 6)] {
                let now = Nanos::from_ms(1000 * seconds);
                let sid = wave.streams.add(Stream::seed(FileId(0), start, 1, now)).unwrap();
                wave.mark_active(now, sid);
            }
            wave.active()
        };
        assert_eq!(active_after(Nanos::from_ms(1)), 1);
        assert_eq!(active_after(Nanos::from_ms(8000)), 3);
    }
}
