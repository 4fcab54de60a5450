//! What the device can do, learnt by timing reads: never configured, never looked up.
//!
//! Two facts steer everything: how long a lone small read takes (`latency`), and how many bytes a second come at best
//! (`rate`). Their product is what must be under way to keep the device busy. A third value is steered, not measured:
//! how many requests we keep in flight. It grows when it held something back and few requests were slow, and it shrinks by a quarter when
//! requests only wait for one another. As long as they never did it doubles, up to 64; then it grows by half, for each step too far makes readers
//! wait behind what nobody needs yet:
//!
//! ```text
//!   s3: 30 ms, 64 at once         in flight  64, all done after 33 ms: free to grow
//!                                            96 -> 144: most of them done after 66 ms: queueing, back to 108
//!   hdd: 8 ms, one at a time      in flight  8, each done after the ones before it: no growth
//! ```
//!
//! The rule compares a request's time with the best time seen of a request of its size class, so a slow device is not
//! mistaken for a busy one (delay-based congestion control, as TCP Vegas has it).

use crate::units::{Bytes, Nanos, PageCount};
use crate::wave::devices::crawls::{Crawls, Round};
use crate::wave::devices::glides::{Glides, is_glide};
use crate::wave::devices::jumps::{Arrival, Jumps};
use crate::wave::devices::sizes::Sizes;
use crate::wave::memory::shares::UNITS_FIRST;

/// Requests in flight that even an unknown or busy device gets: two for each of a few streams.
const FLIGHT_MIN: u32 = 8;
/// Requests in flight that a device of long latency gets before its rate is known: what the object stores' own limits are.
const FLIGHT_FIRST: u32 = 64;
/// The smallest request that a window is cut into: 128 KiB.
pub(in crate::wave) const PIECE_MIN: PageCount = PageCount(32);
/// Requests that may go out beside those for each reader that waits.
const FLIGHT_FOR_WAITING: u32 = 4;
/// The most: what a FUSE mount queues without blocking (max_background of the slow store: 512).
const FLIGHT_MAX: u32 = 512;
/// Size classes by power of four from 4 KiB: 4, 16, 64, 256, 1024 KiB and above.
const CLASSES: usize = 6;
/// A best time is believed for one to two of these, so that a device that became slower is believed in the end.
const BEST_SPAN: Nanos = Nanos::from_ms(10_000);
/// What a connection is taken to carry until it has carried more, or was seen to crawl (crawls.rs): 100 MB/s.
const RATE_UNKNOWN: u64 = 100_000_000;
/// And at most, whatever a single fetch seemed to show: 2 GB/s.
const RATE_MAX: u64 = 2_000_000_000;
/// A rate is measured over at least this much time, so that a burst out of a cache does not count as a device.
const ROUND_NS_MIN: u64 = 10_000_000;
/// A device that answers so soon has told what it carries before it matters how much is ahead of whom.
const SOON: Nanos = Nanos::from_ms(20);
/// A burst tells what a device carries from so many bytes on: a few requests.
const BURST_MIN: u64 = 1 << 20;

/// One device as this run knows it.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// Best times of this memory span and the one before; 0 for none.
    best_ns: [[u64; CLASSES]; 2],
    best_since: Nanos,
    recent: [Recent; CLASSES],
    /// Times of our own requests that went out when none of ours was under way.
    first: [Recent; CLASSES],
    first_ns: [u64; CLASSES],
    alone: Recent,
    alone_ns: u64,
    flight_max: u32,
    in_flight: u32,
    /// Those of them that have jumped.
    jumping: u32,
    /// Whether the limit held anything back since it last changed.
    limited: bool,
    /// More than now were too many once.
    shrunk: bool,
    /// Requests finished since the limit last changed, and how many of them took more than one and a half times their best.
    finished: u32,
    slow: u32,
    round: Round,
    rate: u64,
    crawls: Crawls,
    sizes: Sizes,
    /// Bytes a second of the fastest request that says anything of it.
    carried: u64,
    /// Since when requests have been under way without a pause, and their bytes;
    burst_since: Nanos,
    burst_bytes: u64,
    /// and what such bursts carried a second, without the latency at their begin: the mean of the latest.
    burst_rate: u64,
    jumps: Jumps,
    /// Whether who reads on has to wait.
    glides: Glides,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            best_ns: [[0; CLASSES]; 2],
            best_since: Nanos(0),
            recent: [Recent::default(); CLASSES],
            first: [Recent::default(); CLASSES],
            first_ns: [0; CLASSES],
            alone: Recent::default(),
            alone_ns: 0,
            flight_max: FLIGHT_MIN,
            in_flight: 0,
            jumping: 0,
            limited: false,
            shrunk: false,
            finished: 0,
            slow: 0,
            round: Round::default(),
            rate: 0,
            crawls: Crawls::default(),
            sizes: Sizes::default(),
            carried: 0,
            burst_since: Nanos(0),
            burst_bytes: 0,
            burst_rate: 0,
            jumps: Jumps::default(),
            glides: Glides::default(),
        }
    }
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

/// How a request of ours went out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// It continued neither the one sent before nor one under way.
    jump: bool,
    /// None of ours was under way.
    alone: bool,
    /// Of ours so many were under way then that had jumped, with it.
    jumping: u32,
}

/// The last few times of a size class.
///
/// A read that is told as a miss may find its pages just arrived, and a fetch may find them under way: such times say
/// nothing of the device. So no single time is believed, only the lower quartile of the last sixteen.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    ns: [u64; 16],
    count: usize,
}

impl Recent {
    /// Adds a time and returns the lower quartile; the median while there are fewer than four.
    fn push(&mut self, ns: u64) -> u64 {
        self.ns[self.count % self.ns.len()] = ns;
        self.count += 1;
        let mut sorted = self.ns;
        let n = self.count.min(sorted.len());
        let sorted = &mut sorted[..n];
        sorted.sort_unstable();
        sorted[if n < 4 { n / 2 } else { n / 4 }]
    }
}

fn class(bytes: Bytes) -> usize {
    let mut class = 0;
    while class + 1 < CLASSES && bytes.0 > class_bytes_max(class) {
        class += 1;
    }
    class
}

/// The largest request of a class but the last.
fn class_bytes_max(class: usize) -> u64 {
    4096 << (2 * class)
}

/// Bytes a second, if so many took so long; no more than can be reckoned with.
pub(in crate::wave) fn per_second(bytes: Bytes, took: Nanos) -> u64 {
    let rate = u128::from(bytes.0) * 1_000_000_000 / u128::from(took.0.max(1));
    rate.min(u128::from(u64::MAX / 8)) as u64
}

/// Bytes carried in so long at so many a second.
fn carried(time: Nanos, bytes_per_s: u64) -> Bytes {
    Bytes((u128::from(time.0) * u128::from(bytes_per_s) / 1_000_000_000) as u64)
}

impl Device {
    /// A read of `bytes` that found nothing took `took`.
    pub(crate) fn timed(&mut self, now: Nanos, bytes: Bytes, took: Nanos) {
        if now.since(self.best_since) > BEST_SPAN {
            self.best_ns = [[0; CLASSES], self.best_ns[0]];
            self.best_since = now;
        }
        let class = class(bytes);
        let lower = self.recent[class].push(took.0.max(1));
        let best = &mut self.best_ns[0][class];
        if *best == 0 || lower < *best {
            *best = lower;
        }
    }

    /// The best time of a size class; 0 if none was timed.
    fn best(&self, class: usize) -> u64 {
        [self.best_ns[0][class], self.best_ns[1][class]].into_iter().filter(|&ns| ns > 0).min().unwrap_or(0)
    }

    /// The best time of requests of this size; or of the next smaller class that was timed, and what carrying the rest takes.
    pub(in crate::wave) fn best_of(&self, bytes: Bytes) -> u64 {
        let class = class(bytes);
        let Some(timed) = (0..=class).rev().find(|&c| self.best(c) > 0) else { return 0 };
        let rest = if timed < class { bytes.0 - class_bytes_max(timed) } else { 0 };
        self.best(timed) + self.carrying_ns(rest)
    }

    /// A read that nothing was fetched for, away from every stream, took `took`.
    pub(crate) fn timed_alone(&mut self, took: Nanos) {
        let took = took.0.max(1);
        let lower = self.alone.push(took);
        // The first read of a run may wait for more than the device; what it took would stand for as long as gaps are bought by it.
        let lower = if self.alone.count == 2 { took.min(self.alone_ns) } else { lower };
        // Readers that queue behind one another say little of the device: it is believed slower only step by step.
        let slower = self.alone_ns + lower.saturating_sub(self.alone_ns) / 64;
        self.alone_ns = if self.alone_ns == 0 { lower } else { lower.min(slower) };
    }

    /// Time of a lone small read, if any was timed; the best of any small request while none was.
    pub(crate) fn latency(&self) -> Option<Nanos> {
        let best = (0..CLASSES).map(|c| self.best(c)).find(|&ns| ns > 0);
        if self.alone_ns > 0 { Some(Nanos(self.alone_ns)) } else { best.map(Nanos) }
    }

    /// What a driver may want to know.
    pub(crate) fn learnt(&self) -> Learnt {
        Learnt {
            latency: self.latency(),
            bytes_per_s: self.rate(),
            flight_max: self.flight_max(),
            joined_max: self.joined_max(),
        }
    }

    /// Pages side by side that are as well one request as several: what a head carries in the time of going elsewhere; 0 for what is
    /// not known to be one.
    pub(crate) fn joined_max(&self) -> PageCount {
        PageCount(if self.weighed_head() { self.unit_pages() } else { 0 })
    }

    /// Pages worth fetching at once, since a request elsewhere costs time that would have carried a quarter as much: four
    /// times what one latency carries. 3.2 MB for a head that seeks, 0 where requests overlap.
    pub(crate) fn trip_pages(&self) -> u64 {
        if self.jumps.overlap_256() >= 4 * 256 {
            return 0;
        }
        4 * self.unit().0 / (self.jumps.overlap_256() / 256) / crate::units::PAGE_SIZE
    }

    /// Bytes a second at best, if anything was measured.
    pub(crate) fn rate(&self) -> Option<u64> {
        (self.rate > 0).then_some(self.rate)
    }

    /// Bytes that pass in the time of one lone read: `latency * rate`; a megabyte while nothing is known.
    pub(crate) fn bytes_per_latency(&self) -> Bytes {
        match (self.latency(), self.rate()) {
            (Some(latency), Some(rate)) => carried(latency, rate).max(self.unit()),
            (Some(_), None) => self.unit(),
            _ => Bytes(1 << 20),
        }
    }

    /// What one connection carries in the time of one lone read: fetching so much more costs no more than waiting once
    /// more. 0 while no read was timed.
    ///
    /// s3: 30 ms x 100 MB/s = 3 MB. hdd: 800 KB. nfs: 100 KB. ssd: 10 KB.
    pub(crate) fn unit(&self) -> Bytes {
        carried(self.latency().unwrap_or_default(), self.connection_rate())
    }

    /// What gaps are priced by: the same, where the device was seen to crawl by what it carries.
    pub(in crate::wave) fn priced_unit(&self) -> Bytes {
        carried(self.latency().unwrap_or_default(), self.crawling_rate())
    }

    /// Whole pages of what one connection carries in the time of one lone read.
    pub(crate) fn unit_pages(&self) -> u64 {
        self.unit().0 / crate::units::PAGE_SIZE
    }

    /// Bytes between two small reads that cost no more than a request of their own: what one connection carries in one
    /// latency, divided by the requests that overlap. 16 KiB while nothing is known.
    ///
    /// hdd: 8 ms x 100 MB/s / 1 = 800 KB. s3: 30 ms x 90 MB/s / 16 = 169 KB. ssd: 100 us x 500 MB/s / 16 = 3 KB.
    pub(crate) fn gap_max(&self) -> Bytes {
        if self.latency().is_none() {
            return Bytes(16384);
        }
        let one_by_one = self.glides() && !self.weighed();
        Bytes(256 * self.priced_unit().0 / if one_by_one { 256 } else { self.jumps.overlap_256() })
    }

    /// Bytes a second that a long fetch may count on behind its first latency: what bursts carried so, the best rate measured, or
    /// what one request carried.
    pub(crate) fn bulk_rate(&self) -> u64 {
        self.burst_rate.max(self.rate).max(self.crawling_rate())
    }

    /// Whether that was seen, and is no guess.
    pub(crate) fn bulk_is_known(&self) -> bool {
        self.burst_rate.max(self.rate) > 0
    }

    /// Pages that a long fetch would carry in the time of one lone read: what a way costs it.
    pub(crate) fn way_pages(&self) -> u64 {
        PageCount::holding(carried(self.latency().unwrap_or_default(), self.bulk_rate())).0
    }

    /// Bytes a second of one request, about: what the best one carried, latency and all, but no less than a disk does.
    fn connection_rate(&self) -> u64 {
        self.carried.max(RATE_UNKNOWN)
    }

    /// The same of a device that was seen to crawl: less than a disk does.
    fn crawling_rate(&self) -> u64 {
        self.carried.max(self.crawls.rate().map_or(RATE_UNKNOWN, |rate| rate.min(RATE_UNKNOWN)))
    }

    /// What one connection takes to carry so many bytes.
    pub(in crate::wave) fn carrying_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.connection_rate())) as u64
    }

    /// Whether one more request of ours may go out, while so many readers wait for the device themselves. What is fetched
    /// for those lies next to what they wait for: their requests stand in the queue anyway, so a few of ours may join each.
    pub(crate) fn has_room(&mut self, waiting: u32) -> bool {
        self.flight_max = self.flight_max();
        let room =
            self.in_flight < self.flight_max.saturating_add(FLIGHT_FOR_WAITING * waiting).min(FLIGHT_MAX);
        self.limited |= !room;
        if !room {
            self.sizes.limited();
        }
        room
    }

    /// Requests of ours that may be in flight; while nothing was carried yet, if it is a pipe, what a stream opens its window by, in the
    /// smallest of them. A disk needs few.
    pub(crate) fn flight_max(&self) -> u32 {
        if self.rate > 0 {
            return self.flight_max;
        }
        let pipe = (self.unit().0 / PIECE_MIN.bytes().0) as u32;
        let pipe = if pipe > FLIGHT_MIN { UNITS_FIRST as u32 * pipe } else { pipe };
        self.flight_max.max(pipe.min(FLIGHT_FIRST))
    }

    /// Bytes a second that a request which took so long is believed to have carried at most. What came sooner than a lone read lay in a buffer
    /// on the way, or had the head beside it: it says no more of a head than was measured, and nothing of others.
    fn carried_max(&self, took: Nanos) -> u64 {
        match self.latency() {
            Some(latency) if took < latency && self.is_head() => self.rate,
            Some(latency) if took < latency => 0,
            _ => RATE_MAX,
        }
    }

    /// Pages of the smallest request that a window is cut into: 32, or more where that was seen to bring more (sizes.rs).
    pub(in crate::wave) fn piece_min(&self) -> u64 {
        self.sizes.pages()
    }

    /// How many more of ours may go out; one where none may.
    pub(crate) fn room(&self) -> u32 {
        self.flight_max().saturating_sub(self.in_flight).max(1)
    }

    /// Whether it was seen how many requests the device serves at once.
    pub(crate) fn weighed(&self) -> bool {
        self.jumps.weighed()
    }

    /// Whether the device is known to work at several requests at once.
    pub(crate) fn overlaps(&self) -> bool {
        self.jumps.weighed() && self.trip_pages() == 0
    }

    /// Whether it does, and answers soon: nfs, ssd.
    pub(in crate::wave) fn is_near(&self) -> bool {
        self.overlaps() && self.latency().is_some_and(|latency| latency < SOON)
    }

    /// Whether it answers late, and is not known to be a head: a bucket, as likely as not.
    pub(in crate::wave) fn is_far(&self) -> bool {
        !self.is_head() && self.latency().is_some_and(|latency| latency >= SOON)
    }

    /// Whether requests overlap, and so many streams are more than it takes requests at once.
    pub(crate) fn crowded_by(&self, streams: u64) -> bool {
        self.overlaps() && streams > u64::from(self.flight_max())
    }

    /// Whether so many streams have no more than four requests each of those that it takes at once, and it is no head.
    pub(crate) fn scarce_for(&self, streams: u64) -> bool {
        self.trip_pages() == 0 && 4 * streams >= u64::from(self.flight_max())
    }

    /// A request of ours goes out; `jump` if it continues neither the one sent before nor one under way.
    pub(crate) fn issued(&mut self, now: Nanos, jump: bool) -> Sent {
        if self.in_flight == 0 {
            self.jumps.begun(now);
            (self.burst_since, self.burst_bytes) = (now, 0);
            self.round = Round::begins(now);
            self.sizes.begins(now);
        }
        self.in_flight += 1;
        self.jumping += u32::from(jump);
        Sent { jump, alone: self.in_flight == 1, jumping: self.jumping }
    }

    /// A request of ours of `bytes` has arrived `took` after it went out; it continues the one that came before it, or not.
    pub(crate) fn finished(&mut self, now: Nanos, bytes: Bytes, took: Nanos, sent: Sent, follows: bool) {
        self.gone(sent);
        let class = class(bytes);
        if sent.alone {
            self.first_ns[class] = self.first[class].push(took.0.max(1));
        }
        // What is seen of our own requests is seen late: they are held against one that nothing of ours delayed; where requests overlap against
        // a lone read as well, which is told as late.
        let lone = self.latency().filter(|_| self.overlaps()).unwrap_or_default();
        let best = self.best_of(bytes).max(self.first_ns[class]).max(lone.0);
        let slow = best > 0 && 2 * took.0 > 3 * best;
        self.carried = self.carried.max(per_second(bytes, took).min(self.carried_max(took)));
        // The first to come back tells a latency, though it may have been sent behind others: all that follows stands on one.
        if sent.alone || self.latency().is_none() {
            self.timed(now, bytes, took);
        }
        let carrying_ns = self.carrying_ns(bytes.0);
        self.read_on(bytes, took, sent.alone && !sent.jump);
        if follows && self.weighed_head() {
            self.glides.took(self.jumps.since_last(now), carrying_ns, self.alone_ns, false);
        }
        let (jump, jumping, last) = (sent.jump && !follows, sent.jumping, self.in_flight == 0);
        let arrival = Arrival { took_ns: took.0, carrying_ns, jump, jumping, last };
        self.jumps.arrived(now, arrival, self.latency().map_or(0, |l| l.0));
        self.burst_bytes += bytes.0;
        if self.in_flight == 0 && self.burst_bytes >= BURST_MIN {
            let all = now.since(self.burst_since).0;
            let carrying = all.saturating_sub(self.latency().map_or(0, |l| l.0)).max(all / 8).max(1);
            let rate = per_second(Bytes(self.burst_bytes), Nanos(carrying)).min(RATE_MAX);
            self.burst_rate = if self.burst_rate == 0 { rate } else { (3 * self.burst_rate + rate) / 4 };
        }
        self.finished += 1;
        self.slow += u32::from(slow);
        self.round.came(bytes, jump);
        let matters = self.may_idle(self.piece_min());
        self.sizes.came(now, bytes, self.in_flight, jump, matters);
        let round = self.round.took(now);
        if round.0 >= ROUND_NS_MIN.max(2 * self.latency().map_or(0, |l| l.0)) {
            // The best rate forgets by 1/16 a round.
            self.rate = self.round.rate(round).max(self.rate - self.rate / 16);
            if let Some(latency) = self.latency() {
                self.crawls.ended(&self.round, round, latency, self.weighed_head());
            }
            self.round = Round::begins(now);
        }
        if self.finished >= self.flight_max {
            if 4 * self.slow > 3 * self.finished {
                self.flight_max = (self.flight_max - self.flight_max / 4).max(FLIGHT_MIN);
                self.shrunk = true;
            } else if self.limited && 4 * self.slow < self.finished {
                let doubles = !self.shrunk && self.flight_max < FLIGHT_FIRST;
                let more = if doubles { self.flight_max } else { self.flight_max / 2 };
                self.flight_max = (self.flight_max + more).min(FLIGHT_MAX);
            }
            (self.finished, self.slow, self.limited) = (0, 0, false);
        }
    }

    /// A request, or a read, took so long; `on` if it was to read on, and nothing of ours was under way.
    pub(crate) fn read_on(&mut self, bytes: Bytes, took: Nanos, on: bool) {
        if self.alone_ns > 0 {
            let carrying_ns = self.carrying_ns(bytes.0);
            self.glides.took(took, carrying_ns, self.alone_ns, on);
        }
    }

    /// A read away from every stream took so long, where nobody else waited.
    pub(crate) fn read_beside(&mut self, now: Nanos, bytes: Bytes, took: Nanos) {
        if let Some(latency) = self.latency() {
            let alone_ns = latency.0 + self.carrying_ns(bytes.0);
            self.jumps.read_beside(now, took, alone_ns);
        }
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

    /// Whether the device may stand idle between requests of so many pages: they are less than passes in two latencies, it is not known to serve
    /// many at once, nor to stand before what is read on.
    pub(in crate::wave) fn may_idle(&self, pages: u64) -> bool {
        let small = PageCount(pages).bytes().0 < 2 * self.bytes_per_latency().0;
        small && !self.overlaps() && !self.glides()
    }

    /// Whether jumps of several requests were seen to take their time.
    pub(in crate::wave) fn weighed_head(&self) -> bool {
        self.weighed() && self.trip_pages() > 0
    }

    /// Whether the device works at one request at a time: jumps of several were seen to take their time, or reading on to take none.
    pub(crate) fn is_head(&self) -> bool {
        self.trip_pages() > 0 || self.glides()
    }

    /// A request of ours is not in flight any more, whatever became of it.
    pub(crate) fn gone(&mut self, sent: Sent) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.jumping = self.jumping.saturating_sub(u32::from(sent.jump));
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

    /// How many may be in flight after a round of as many as may be, all of which took so long.
    fn flight_after(device: &mut Device, took: Nanos) -> u32 {
        device.limited = true;
        let sent: alloc::vec::Vec<Sent> =
            (0..device.flight_max()).map(|_| device.issued(Nanos(0), false)).collect();
        for sent in sent.into_iter().rev() {
            device.finished(Nanos::from_ms(1), Bytes(4096), took, sent, false);
        }
        device.flight_max()
    }

    #[test]
    fn once_too_many_were_out_it_grows_by_half() {
        let mut device = Device::default();
        device.timed(Nanos(0), Bytes(4096), Nanos::from_ms(1));
        let mut after = |took_ms: u64| flight_after(&mut device, Nanos::from_ms(took_ms));
        assert_eq!([1, 1, 1, 1].map(&mut after), [16, 32, 64, 96]);
        assert_eq!([9, 9, 9, 1, 1].map(&mut after), [72, 54, 41, 61, 91]);
    }

    /// An agent that looks every now and then sees an SSD's 100 us as 300, of a lone read as of eight together; once it saw 100. A head of
    /// 8 ms may have the next right behind the last: that those take no longer than a way says nothing.
    #[test]
    fn who_comes_as_late_as_a_lone_read_is_not_slow() {
        for (slots, latency_us, grown) in [(32, 100, 16), (1, 8_000, 8)] {
            let mut device = play(slots, latency_us, 500);
            (device.flight_max, device.shrunk, device.finished, device.slow) = (8, false, 0, 0);
            // Another is always under way: none of them is the first.
            device.in_flight = 1;
            device.timed(Nanos(0), Bytes(4096), Nanos::from_us(latency_us));
            device.timed_alone(Nanos::from_us(3 * latency_us));
            assert_eq!(flight_after(&mut device, Nanos::from_us(3 * latency_us)), grown);
            assert!(flight_after(&mut device, Nanos::from_us(5 * latency_us)) <= grown);
        }
    }

    #[test]
    fn a_single_head_gets_no_deeper_queue() {
        assert_eq!(play(1, 8_000, 500).flight_max(), FLIGHT_MIN);
    }

    /// 5 ms late for its own reasons, it would have made gaps of 1 MiB worth buying on a disk of 8 ms and 100 MB/s.
    #[test]
    fn of_two_lone_reads_the_shorter_is_believed() {
        let mut device = Device::default();
        device.timed_alone(Nanos::from_us(13_600));
        device.timed_alone(Nanos::from_us(8_100));
        assert_eq!(device.latency(), Some(Nanos::from_us(8_100)));
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
