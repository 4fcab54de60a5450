//! What the device can do, learnt by timing reads: never configured, never looked up.
//!
//! Here it is asked; what answers is learnt in the rooms beside this one, each from the same few events:
//!
//! ```text
//! a read waited, or a request came back --> times   how long?  a lone small read (`latency`), and each size at best
//!                                           rates   how many bytes a second, at best (`rate`), by one request, in a burst
//!                                           crawls  is it carrying that takes its time?
//!                                           jumps   how many requests does it serve at once? (behind: what readers in line tell of it)
//!                                           glides  has who reads on to wait?
//!                                           sizes   do larger requests bring more?
//!                                           flight  how many of ours may be in flight?
//!
//! before any request has carried more than a disk does, 100 MB/s      hdd        s3       nfs       ssd
//! `latency`     a lone small read                                     8 ms     30 ms      1 ms    100 us
//! `unit`        what passes in it                                   800 KB      3 MB    100 KB     10 KB
//!   overlap     small requests that it serves at once                  1        16        16        16
//! `gap_max`     so much between two is fetched with them            800 KB    187 KB      6 KB    625 B
//! `trip_pages`  so much at once is worth a way                      3.2 MB      -         -         -
//!               it is                                               a head     far      near      near
//! ```
//!
//! `latency * rate` is what must be under way to keep the device busy.

use crate::units::{Bytes, Nanos, PageCount};
use crate::wave::devices::flight::Flight;
use crate::wave::devices::glides::{Glides, is_glide};
use crate::wave::devices::jumps::{Arrival, Jumps};
use crate::wave::devices::rates::{RATE_MAX, Rates, carried, carrying_ns};
use crate::wave::devices::sizes::Sizes;
use crate::wave::devices::times::Times;

pub(crate) use crate::wave::devices::flight::Sent;

/// The smallest request that a window is cut into: 128 KiB.
pub(in crate::wave) const PIECE_MIN: PageCount = PageCount(32);
/// What works at fewer requests than these four at once is a head, in 1/256.
const HEAD_OVERLAP_256: u64 = 4 * 256;
/// A device that answers so soon has told what it carries before it matters how much is ahead of whom.
const SOON: Nanos = Nanos::from_ms(20);

/// One device as this run knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    times: Times,
    rates: Rates,
    jumps: Jumps,
    glides: Glides,
    sizes: Sizes,
    flight: Flight,
}

/// What was learnt of a device by timing reads of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// Time of a lone small read.
    pub latency: Option<Nanos>,
    /// Bytes a second at best.
    pub bytes_per_s: Option<u64>,
    /// Requests of ours that may be in flight.
    pub flight_max: u32,
    /// Pages side by side that had better go in one request: what a head carries in the time of going elsewhere, 195 on hdd.
    /// 0 where requests overlap, or it was not seen yet that they do not.
    pub joined_max: PageCount,
}

/// What it is told.
impl Device {
    /// A read of `bytes` that found nothing took `took`.
    pub(crate) fn timed(&mut self, now: Nanos, bytes: Bytes, took: Nanos) {
        self.times.timed(now, bytes, took);
    }

    /// A read that nothing was fetched for, away from every stream, took `took`.
    pub(crate) fn timed_alone(&mut self, took: Nanos) {
        self.times.timed_alone(took);
    }

    /// A request, or a read, took so long; `on` if it was to read on, and nothing of ours was under way.
    pub(crate) fn read_on(&mut self, bytes: Bytes, took: Nanos, on: bool) {
        let lone_ns = self.times.alone_ns();
        if lone_ns > 0 {
            self.glides.took(took, self.carrying_ns(bytes.0), lone_ns, on);
        }
    }

    /// A read away from every stream took so long, where nobody else waited.
    pub(crate) fn read_beside(&mut self, now: Nanos, bytes: Bytes, took: Nanos) {
        if let Some(latency) = self.latency() {
            let alone_ns = latency.0 + self.carrying_ns(bytes.0);
            self.jumps.read_beside(now, took, alone_ns);
        }
    }

    /// A request of ours goes out; `jump` if it continues neither the one sent before nor one under way.
    pub(crate) fn issued(&mut self, now: Nanos, jump: bool) -> Sent {
        if self.flight.out() == 0 {
            self.jumps.begun(now);
            self.rates.begins(now);
            self.sizes.begins(now);
        }
        self.flight.issued(jump)
    }

    /// A request of ours of `bytes` has arrived `took` after it went out; it continues the one that came before it, or not.
    pub(crate) fn finished(&mut self, now: Nanos, bytes: Bytes, took: Nanos, sent: Sent, follows: bool) {
        self.gone(sent);
        if sent.alone {
            self.times.timed_first(bytes, took);
        }
        let slow = self.is_slow(bytes, took);
        self.rates.one_took(bytes, took, self.carried_max(took));
        // The first to come back tells a latency, though it may have been sent behind others: all that follows stands on one.
        if sent.alone || self.latency().is_none() {
            self.timed(now, bytes, took);
        }
        let (carrying_ns, latency) = (self.carrying_ns(bytes.0), self.latency().unwrap_or_default());
        self.read_on(bytes, took, sent.alone && !sent.jump);
        let gap = self.jumps.since_last(now);
        self.rates.came_behind(bytes, (follows && took > gap).then_some(gap));
        if follows && self.weighed_head() {
            self.glides.took(gap, carrying_ns, self.times.alone_ns(), false);
        }
        let (jump, jumping, last) = (sent.jump && !follows, sent.jumping, self.flight.out() == 0);
        let arrival = Arrival { took_ns: took.0, carrying_ns, jump, jumping, last };
        self.jumps.arrived(now, arrival, latency.0);
        self.times.jumps_cost(self.jumps.cost_ns());
        let matters = self.may_idle(self.piece_min());
        self.sizes.came(now, bytes, self.flight.out(), jump, [matters, self.weighed()]);
        self.rates.came(now, bytes, [jump, last], latency, self.weighed_head());
        self.flight.came_back(slow);
    }

    /// Whether a request of ours waited for others: it took more than one and a half times the best of its size. What is seen of our own requests
    /// is seen late: they are held against one that nothing of ours delayed; where requests overlap against a lone read as well, which is told
    /// as late.
    fn is_slow(&self, bytes: Bytes, took: Nanos) -> bool {
        let lone = self.latency().filter(|_| self.overlaps()).unwrap_or_default();
        let best = self.best_of(bytes).max(self.times.first_ns(bytes)).max(lone.0);
        best > 0 && 2 * took.0 > 3 * best
    }

    /// Bytes a second that a request which took so long is believed to have carried at most. What came sooner than a lone read lay in a buffer
    /// on the way, or had the head beside it: it says no more of a head than was measured, and nothing of others.
    fn carried_max(&self, took: Nanos) -> u64 {
        match self.latency() {
            Some(latency) if took < latency && self.is_head() => self.rate().unwrap_or(0),
            Some(latency) if took < latency => 0,
            _ => RATE_MAX,
        }
    }

    /// A request of ours is not in flight any more, whatever became of it.
    pub(crate) fn gone(&mut self, sent: Sent) {
        self.flight.gone(sent);
    }
}

/// How long, and how much?
impl Device {
    /// What a driver may want to know.
    pub(crate) fn learnt(&self) -> Learnt {
        Learnt {
            latency: self.latency(),
            bytes_per_s: self.rate(),
            flight_max: self.flight_max(),
            joined_max: self.joined_max(),
        }
    }

    /// Time of a lone small read, if any was timed; the best of any small request while none was.
    pub(crate) fn latency(&self) -> Option<Nanos> {
        self.times.latency()
    }

    /// The best time of requests of this size; or of the next smaller class that was timed, and what carrying the rest takes. 0 if none was.
    pub(in crate::wave) fn best_of(&self, bytes: Bytes) -> u64 {
        self.times.best_of(bytes).map_or(0, |(best_ns, rest)| best_ns + self.carrying_ns(rest.0))
    }

    /// Bytes a second at best, if anything was measured.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rates.best()
    }

    /// Bytes a second that a long fetch may count on behind its first latency: what bursts carried so, the best rate measured, or
    /// what one request carried.
    pub(crate) fn bulk_rate(&self) -> u64 {
        self.rates.bulk()
    }

    /// Whether that was seen, and is no guess.
    pub(crate) fn bulk_is_known(&self) -> bool {
        self.rates.bulk_is_known()
    }

    /// What one connection takes to carry so many bytes.
    pub(in crate::wave) fn carrying_ns(&self, bytes: u64) -> u64 {
        carrying_ns(bytes, self.connection())
    }

    /// Bytes a second that one connection is taken to carry; a head, which is known as one by what jumps and glides cost.
    fn connection(&self) -> u64 {
        self.rates.connection(self.seeks() || self.glides.known() && !self.weighed())
    }

    /// What one connection carries in the time of one lone read: fetching so much more costs no more than waiting once
    /// more. 0 while no read was timed.
    pub(crate) fn unit(&self) -> Bytes {
        carried(self.latency().unwrap_or_default(), self.connection())
    }

    /// Whole pages of what one connection carries in the time of one lone read.
    pub(crate) fn unit_pages(&self) -> u64 {
        self.unit().0 / crate::units::PAGE_SIZE
    }

    /// What gaps are priced by: the same, where the device was seen to crawl by what it carries.
    pub(in crate::wave) fn priced_unit(&self) -> Bytes {
        carried(self.latency().unwrap_or_default(), self.rates.crawling())
    }

    /// Bytes that pass in the time of one lone read: `latency * rate`; a megabyte while nothing is known.
    pub(crate) fn bytes_per_latency(&self) -> Bytes {
        match (self.latency(), self.rate()) {
            (Some(latency), Some(rate)) => carried(latency, rate).max(self.unit()),
            (Some(_), None) => self.unit(),
            _ => Bytes(1 << 20),
        }
    }

    /// Pages that a long fetch would carry in the time of one lone read: what a way costs it.
    pub(crate) fn way_pages(&self) -> u64 {
        PageCount::holding(carried(self.latency().unwrap_or_default(), self.bulk_rate())).0
    }

    /// Bytes between two small reads that cost no more than a request of their own: what one connection carries in one
    /// latency, divided by the requests that overlap. 16 KiB while nothing is known.
    pub(crate) fn gap_max(&self) -> Bytes {
        if self.latency().is_none() {
            return Bytes(16384);
        }
        let one_by_one = self.glides() && !self.weighed();
        Bytes(256 * self.priced_unit().0 / if one_by_one { 256 } else { self.jumps.overlap_256() })
    }

    /// Whether jumps were seen to take their time.
    fn seeks(&self) -> bool {
        self.jumps.overlap_256() < HEAD_OVERLAP_256
    }

    /// Pages worth fetching at once, since a request elsewhere costs time that would have carried a quarter as much: four
    /// times what one latency carries. 3.2 MB for a head that seeks, 0 where requests overlap.
    pub(crate) fn trip_pages(&self) -> u64 {
        if !self.seeks() {
            return 0;
        }
        4 * self.unit().0 / (self.jumps.overlap_256() / 256) / crate::units::PAGE_SIZE
    }

    /// Pages side by side that are as well one request as several: what a head carries in the time of going elsewhere; 0 for what is
    /// not known to be one.
    pub(crate) fn joined_max(&self) -> PageCount {
        PageCount(if self.weighed_head() { self.unit_pages() } else { 0 })
    }
}

/// What kind of device is it?
impl Device {
    /// Whether it was seen how many requests the device serves at once.
    pub(crate) fn weighed(&self) -> bool {
        self.jumps.weighed()
    }

    /// Whether the device is known to work at several requests at once.
    pub(crate) fn overlaps(&self) -> bool {
        self.jumps.weighed() && self.trip_pages() == 0
    }

    /// Whether jumps of several requests were seen to take their time.
    pub(in crate::wave) fn weighed_head(&self) -> bool {
        self.weighed() && self.trip_pages() > 0
    }

    /// Whether the device works at one request at a time: jumps of several were seen to take their time, or reading on to take none.
    pub(crate) fn is_head(&self) -> bool {
        self.trip_pages() > 0 || self.glides()
    }

    /// Whether who reads on has not to wait, and the device is not known to work at several requests at once.
    pub(crate) fn glides(&self) -> bool {
        self.glides.known() && !self.overlaps()
    }

    /// Whether a read went nowhere, and tells of no way: it took half of what a lone one takes at most, and lay right behind the one before it,
    /// or took no longer than two of them are carried by what is known to be a head, which stood there for another's sake.
    pub(crate) fn glided(&self, bytes: Bytes, took: Nanos, behind: bool) -> bool {
        let stood = || self.weighed_head() && took.0 <= 2 * self.carrying_ns(bytes.0);
        self.latency().is_some_and(|lone| is_glide(took, lone.0)) && (behind || stood())
    }

    /// Whether it does, and answers soon: nfs, ssd.
    pub(in crate::wave) fn is_near(&self) -> bool {
        self.overlaps() && self.latency().is_some_and(|latency| latency < SOON)
    }

    /// Whether small requests leave it idle: they overlap, more at once were too many, as many of 128 KiB as it takes come to less than passes in two
    /// latencies, and one takes hardly longer than a latency: a connection that is slow itself is busy with those.
    pub(in crate::wave) fn starves(&self) -> bool {
        let (small, latency) = (PIECE_MIN.bytes(), self.latency().unwrap_or_default());
        let several = self.overlaps() || !self.is_head() && self.flight.grew();
        several
            && self.flight.was_too_many()
            && u64::from(self.flight.max()) * small.0 < 2 * self.bytes_per_latency().0
            && 4 * self.best_of(small) <= 5 * latency.0
    }

    /// Whether it answers late, and is not known to be a head: a bucket, as likely as not.
    pub(in crate::wave) fn is_far(&self) -> bool {
        !self.is_head() && self.latency().is_some_and(|latency| latency >= SOON)
    }

    /// Whether the device may stand idle between requests of so many pages: they are less than passes in two latencies; it is not known to serve
    /// several at once, or eight were too many though what they carry does not fill it; and it does not stand before what is read on.
    pub(in crate::wave) fn may_idle(&self, pages: u64) -> bool {
        let (bytes, passing) = (PageCount(pages).bytes().0, self.bytes_per_latency().0);
        let several = self.overlaps();
        let few = self.flight.was_too_many() && !self.flight.grew() && 3 * bytes <= passing;
        bytes < 2 * passing && (!several || few) && !self.glides()
    }
}

/// How many requests of ours may be out, and how large?
impl Device {
    /// Whether one more request of ours may go out, while so many readers wait for the device themselves.
    pub(crate) fn has_room(&mut self, waiting: u32) -> bool {
        let room = self.flight.has_room(self.flight_max(), waiting);
        if !room {
            self.sizes.limited();
        }
        room
    }

    /// How many more of ours may go out; one where none may.
    pub(crate) fn room(&self) -> u32 {
        self.flight_max().saturating_sub(self.flight.out()).max(1)
    }

    /// Requests of ours that may be in flight; while nothing was carried yet, if it is a pipe, what a stream opens its window by, in the
    /// smallest of them.
    pub(crate) fn flight_max(&self) -> u32 {
        match self.rate() {
            Some(_) => self.flight.max(),
            None => self.flight.max_of_pipe((self.unit().0 / PIECE_MIN.bytes().0) as u32),
        }
    }

    /// Whether requests overlap, and so many streams are more than it takes requests at once.
    pub(crate) fn crowded_by(&self, streams: u64) -> bool {
        self.overlaps() && streams > u64::from(self.flight_max())
    }

    /// Whether so many streams have no more than four requests each of those that it takes at once, and it is no head.
    pub(crate) fn scarce_for(&self, streams: u64) -> bool {
        self.trip_pages() == 0 && 4 * streams >= u64::from(self.flight_max())
    }

    /// Pages of the smallest request that a window is cut into: 32, or more where that was seen to bring more (sizes.rs).
    pub(in crate::wave) fn piece_min(&self) -> u64 {
        self.sizes.pages()
    }
}

#[cfg(test)]
pub(in crate::wave) mod tests {
    use super::*;
    use alloc::collections::BinaryHeap;
    use core::cmp::Reverse;

    /// Keeps a device of `slots` that takes `latency_us` a request as full as it may be, for `n` requests and those under way then.
    pub(in crate::wave) fn play(slots: usize, latency_us: u64, n: usize) -> Device {
        let mut device = Device::default();
        let mut free: BinaryHeap<Reverse<u64>> = (0..slots).map(|_| Reverse(0)).collect();
        let mut flying: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
        let mut sent = alloc::collections::VecDeque::new();
        let mut now = 0;
        for i in 0.. {
            while i < n && device.has_room(0) {
                let start = free.pop().unwrap().0.max(now);
                free.push(Reverse(start + latency_us * 1000));
                flying.push(Reverse((start + latency_us * 1000, now)));
                sent.push_back(device.issued(Nanos(now), true));
            }
            let Some(Reverse((done, issued))) = flying.pop() else { break };
            now = done;
            let sent = sent.pop_front().unwrap();
            device.finished(Nanos(now), Bytes(131_072), Nanos(now - issued), sent, false);
        }
        device
    }

    /// The table at the top.
    #[test]
    fn four_devices() {
        let device = |overlap: u64, latency_us: u64| {
            let mut device = Device::default();
            device.timed_alone(Nanos::from_us(latency_us));
            let took_ns = 2000 * latency_us;
            for n in 1..=8 {
                let jump = Arrival { took_ns, carrying_ns: 0, jump: true, jumping: 2, last: false };
                device.jumps.arrived(Nanos(n * took_ns / 2 / overlap), jump, took_ns / 2);
            }
            let kind = [device.is_head(), device.is_far(), device.is_near()];
            (device.unit().0, device.gap_max().0, 4096 * device.trip_pages(), kind)
        };
        assert_eq!(device(1, 8_000), (800_000, 800_000, 781 * 4096, [true, false, false]));
        assert_eq!(device(16, 30_000), (3_000_000, 187_500, 0, [false, true, false]));
        assert_eq!(device(16, 1_000), (100_000, 6_250, 0, [false, false, true]));
        assert_eq!(device(16, 100), (10_000, 625, 0, [false, false, true]));
    }

    #[test]
    fn a_parallel_device_is_filled_but_not_drowned() {
        let device = play(64, 33_000, 5000);
        assert!((48..=160).contains(&device.flight_max()), "{}", device.flight_max());
        let mb_per_s = device.rate().unwrap() / 1_000_000;
        assert!((200..=300).contains(&mb_per_s), "64 x 128 KiB every 33 ms is 254 MB/s, not {mb_per_s}");
    }

    /// A device of which nothing else is known than that lone reads take 8 ms, and two that read on came in 2.
    pub(in crate::wave) fn gliding() -> Device {
        let mut device = Device::default();
        device.timed_alone(Nanos::from_ms(8));
        (0..2).for_each(|_| device.read_on(Bytes(131_072), Nanos::from_ms(2), true));
        device
    }

    /// What reads on without waiting is a head, before and after it is weighed as one; not what was seen to serve several at once.
    #[test]
    fn what_glides_is_taken_for_a_head_until_it_is_weighed() {
        let mut device = Device::default();
        device.timed_alone(Nanos::from_ms(8));
        let gap_max = device.gap_max();
        assert!(!device.is_head());
        let device = gliding();
        assert_eq!((device.is_head(), device.trip_pages(), device.overlaps()), (true, 0, false));
        assert_eq!(device.gap_max().0, 16 * gap_max.0, "one request at a time");
        for (slots, is_head) in [(1, true), (16, false)] {
            let mut device = play(slots, 8_000, 500);
            device.timed_alone(Nanos::from_ms(8));
            (0..8).for_each(|_| device.read_on(Bytes(4096), Nanos::from_us(100), true));
            assert_eq!((device.weighed(), device.is_head(), device.glides()), (true, is_head, is_head));
        }
    }

    /// Two pages that took as long as carrying them, 16 pages behind another's read: a head of 8 ms stood there. Not where several are served at
    /// once, nor where it took a millisecond; and right behind the read before it is no way in either case.
    #[test]
    fn what_a_head_stands_before_tells_of_no_way() {
        let glided = |slots: usize, took_us: u64, behind: bool| {
            let mut device = play(slots, 8_000, 500);
            device.timed_alone(Nanos::from_ms(8));
            device.glided(Bytes(8192), Nanos::from_us(took_us), behind)
        };
        assert_eq!([81, 160, 1_000, 8_000].map(|us| glided(1, us, false)), [true, true, false, false]);
        assert_eq!([81, 160, 1_000, 8_000].map(|us| glided(16, us, false)), [false; 4]);
        assert_eq!([81, 1_000, 8_000].map(|us| glided(16, us, true)), [true, true, false]);
    }

    /// How many may be in flight after a round of as many as may be, with another under way, all of which took so long.
    fn flight_after(device: &mut Device, took: Nanos) -> u32 {
        let sent: alloc::vec::Vec<Sent> =
            (0..device.flight_max()).map(|_| device.issued(Nanos(0), false)).collect();
        assert!(!device.has_room(0));
        for sent in sent.into_iter().rev() {
            device.finished(Nanos::from_ms(1), Bytes(4096), took, sent, false);
        }
        device.flight_max()
    }

    /// An agent that looks every now and then sees an SSD's 100 us as 300, of a lone read as of eight together; once it saw 100. A head of
    /// 8 ms may have the next right behind the last: that those take no longer than a way says nothing.
    #[test]
    fn who_comes_as_late_as_a_lone_read_is_not_slow() {
        for (slots, latency_us, grown) in [(32, 100, 16), (1, 8_000, 8)] {
            let mut device = play(slots, latency_us, 500);
            device.flight = Flight::default();
            // Another is always under way: none of them is the first.
            device.flight.issued(false);
            device.timed(Nanos(0), Bytes(4096), Nanos::from_us(latency_us));
            device.timed_alone(Nanos::from_us(3 * latency_us));
            assert_eq!(flight_after(&mut device, Nanos::from_us(3 * latency_us)), grown);
            assert!(flight_after(&mut device, Nanos::from_us(5 * latency_us)) <= grown);
        }
    }

    #[test]
    fn a_single_head_gets_no_deeper_queue() {
        assert_eq!(play(1, 8_000, 500).flight_max(), 8);
    }

    /// Reading backwards a disk has the rest of the track in its buffer: 128 KiB in 65 us are no 2 GB/s, and 16 MB are no gap worth buying.
    #[test]
    fn what_lay_in_a_buffer_was_not_carried() {
        let (mut device, mut now) = (Device::default(), Nanos(0));
        device.timed_alone(Nanos::from_ms(8));
        (0..8).for_each(|_| burst(&mut device, &mut now, 8, 256));
        let unit = device.unit();
        let sent = device.issued(now, false);
        device.finished(now + Nanos::from_us(65), Bytes(131_072), Nanos::from_us(65), sent, false);
        assert!(device.unit().0 <= 2 * unit.0 && unit.0 >= 800_000, "{unit:?} {:?}", device.unit());
    }

    /// Sends `count` requests of `pages` pages to a head, one behind the other, 8 ms before the first, 41 us a page.
    fn burst(device: &mut Device, now: &mut Nanos, count: u64, pages: u64) {
        let (begun, bytes) = (*now, Bytes(pages * 4096));
        let sent: alloc::vec::Vec<Sent> = (0..count).map(|i| device.issued(begun, i == 0)).collect();
        for (i, sent) in (1..).zip(sent) {
            *now = Nanos(begun.0 + 8_000_000 + i * pages * 40_960);
            device.finished(*now, bytes, Nanos(now.0 - begun.0), sent, false);
        }
    }

    #[test]
    fn files_fetched_one_at_a_time_do_not_make_a_head_look_parallel() {
        let (mut device, mut now) = (Device::default(), Nanos(0));
        device.timed_alone(Nanos::from_ms(8));
        for _ in 0..100 {
            burst(&mut device, &mut now, 8, 256);
            // Members of an archive, one after the other.
            for _ in 0..12 {
                burst(&mut device, &mut now, 1, 24);
            }
            assert!(!device.overlaps());
        }
        assert!(device.trip_pages() > 0);
    }

    /// Eight requests of 4 KiB go out at once; the first of them comes back last, after 122 ms in a queue with an elevator.
    #[test]
    fn the_first_to_come_back_tells_the_latency() {
        let mut device = Device::default();
        let sent: alloc::vec::Vec<Sent> = (0..8).map(|_| device.issued(Nanos(0), true)).collect();
        for (i, &sent) in (1..).zip(sent[1..].iter().chain(&sent[..1])) {
            let took = Nanos::from_ms(if i < 8 { 30 } else { 122 });
            device.finished(took, Bytes(4096), took, sent, false);
            assert_eq!(device.latency(), Some(Nanos::from_ms(30)));
            assert!(i == 8 || device.rate().is_none(), "what comes in one latency is no rate");
            assert!(device.has_room(0) && device.flight_max() == 64, "as many as a window is opened by");
        }
    }
}
