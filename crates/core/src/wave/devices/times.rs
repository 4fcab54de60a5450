//! How long requests take: at best, by size, and a lone small read. What takes much longer waits for others (flight.rs).
//!
//! A read that is told as a miss may find its pages just arrived, and a fetch may find them under way: such times say nothing of the device.
//! So no single time is believed, only the lower quartile of the last sixteen of its size class; the median while there are fewer than four.
//! Of a class that was never timed the next smaller one tells, and what carrying the rest takes:
//!
//! ```text
//! 4 KiB took, ms            8    9    30    9     1        believed, ms    8    9    9    9    8       best 8
//! 8 KiB, never timed                                       8 ms, and what carrying 4 KiB takes
//!
//! lone reads took, ms       13.6     8.1      30, 30 ...    latency, ms    13.6    8.1   8.1 + 5.5/64, and on
//! ```
//!
//! The first lone read of a run may wait for more than the device: of the first two the shorter is believed. From then on readers that queue
//! behind one another say little: it is believed slower only step by step, a sixty-fourth of the way. A single one of a quarter of
//! a second and more is not believed where something of any size came in less than a sixty-fourth of it: four threads begin on a disk whose head stays
//! with three of them, and the fourth has waited for 1 s.
//!
//! Where several readers go on page by page before any was alone, the head stands right before many of their reads, and the best of them tells no
//! way. But then each jump of ours costs one (jumps.rs). Where that was seen twice to be more than four times what is believed, it is believed:
//!
//! ```text
//! four processes copy tensors from hdd: 4 KiB at best 0.1 ms, a jump 8 ms      a trip of 11 pages, and of 781 once 8 ms are believed
//! ```

use crate::units::{Bytes, Nanos};

/// Size classes by power of four from 4 KiB: 4, 16, 64, 256, 1024 KiB and above.
const CLASSES: usize = 6;
/// A best time is believed for one to two of these, so that a device that became slower is believed in the end.
const BEST_SPAN: Nanos = Nanos::from_ms(10_000);
/// What is believed of a lone read goes up by one part in so many of what is missing.
const SLOWER: u64 = 64;

/// What is believed of it is wrong if jumps cost more than so many times as much,
const FAR_OFF: u64 = 4;
/// and at least this: no head goes elsewhere sooner, and where others keep the processors busy all that arrives may be seen late.
const WAY_NS_MIN: u64 = 1_000_000;

/// A single lone read was starved by others if it took more than so many times as long as they did,
const STARVED: u64 = 64;
/// and at least this, as no device does.
const STARVED_MIN: Nanos = Nanos::from_ms(256);

/// Times of one device.
#[derive(Clone, Debug, Default)]
pub(in crate::wave) struct Times {
    /// Best times of this memory span and the one before; 0 for none.
    best_ns: [[u64; CLASSES]; 2],
    best_since: Nanos,
    recent: [Recent; CLASSES],
    /// Times of our own requests that went out when none of ours was under way.
    first: [Recent; CLASSES],
    first_ns: [u64; CLASSES],
    /// Times of lone small reads; 0 while there is none.
    alone: Recent,
    alone_ns: u64,
}

/// The last few times of a size class.
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

impl Times {
    /// A read of `bytes` that found nothing took `took`.
    pub(in crate::wave) fn timed(&mut self, now: Nanos, bytes: Bytes, took: Nanos) {
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

    /// A request of ours that went out when none of ours was under way took `took`.
    pub(in crate::wave) fn timed_first(&mut self, bytes: Bytes, took: Nanos) {
        let class = class(bytes);
        self.first_ns[class] = self.first[class].push(took.0.max(1));
    }

    /// A read that nothing was fetched for, away from every stream, took `took`.
    pub(in crate::wave) fn timed_alone(&mut self, took: Nanos) {
        let took = took.0.max(1);
        let lower = self.alone.push(took);
        let lower = if self.alone.count == 2 { took.min(self.alone_ns) } else { lower };
        let slower = self.alone_ns + lower.saturating_sub(self.alone_ns) / SLOWER;
        self.alone_ns = if self.alone_ns == 0 { lower } else { lower.min(slower) };
    }

    /// Each jump of several cost so much, as was reckoned twice: no lone read takes less than a part of that, though others may have been served
    /// meanwhile.
    pub(in crate::wave) fn jumps_cost(&mut self, cost_ns: u64) {
        if cost_ns >= WAY_NS_MIN && self.latency().is_some_and(|believed| cost_ns > FAR_OFF * believed.0) {
            self.alone_ns = cost_ns;
        }
    }

    /// Time of a lone small read, if any was timed; the best of any small request while none was.
    pub(in crate::wave) fn latency(&self) -> Option<Nanos> {
        let mut bests = (0..CLASSES).map(|class| self.best(class)).filter(|&ns| ns > 0);
        let alone = Some(self.alone_ns).filter(|&ns| ns > 0);
        let believed = if self.alone.count == 1 && self.alone_ns >= STARVED_MIN.0 {
            bests.filter(|&best| self.alone_ns / STARVED > best).max().or(alone)
        } else {
            alone.or_else(|| bests.next())
        };
        believed.map(Nanos)
    }

    /// Time of a lone small read; 0 if none was timed.
    pub(in crate::wave) fn alone_ns(&self) -> u64 {
        self.alone_ns
    }

    /// What requests of this size take that none of ours delayed; 0 if none was timed.
    pub(in crate::wave) fn first_ns(&self, bytes: Bytes) -> u64 {
        self.first_ns[class(bytes)]
    }

    /// The best time of requests of this size, or of the next smaller class that was timed, with the bytes that those do not have of it.
    pub(in crate::wave) fn best_of(&self, bytes: Bytes) -> Option<(u64, Bytes)> {
        let class = class(bytes);
        let timed = (0..=class).rev().find(|&c| self.best(c) > 0)?;
        let rest = if timed < class { bytes.0 - class_bytes_max(timed) } else { 0 };
        Some((self.best(timed), Bytes(rest)))
    }

    /// The best time of a size class; 0 if none was timed.
    fn best(&self, class: usize) -> u64 {
        [self.best_ns[0][class], self.best_ns[1][class]].into_iter().filter(|&ns| ns > 0).min().unwrap_or(0)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The first worked example.
    #[test]
    fn no_single_time_is_believed() {
        let mut recent = Recent::default();
        assert_eq!([8, 9, 30, 9, 1].map(|ms| recent.push(ms)), [8, 9, 9, 9, 8]);
        let mut times = Times::default();
        [8, 9, 30, 9, 1].into_iter().for_each(|ms| times.timed(Nanos(0), Bytes(4096), Nanos::from_ms(ms)));
        assert_eq!(times.best_of(Bytes(4096)), Some((8_000_000, Bytes(0))));
        assert_eq!(times.best_of(Bytes(8192)), Some((8_000_000, Bytes(4096))), "never timed");
        assert_eq!(Times::default().best_of(Bytes(8192)), None);
    }

    /// And the second: 5 ms late for its own reasons, the first would have made gaps of 1 MiB worth buying on a disk of 8 ms and 100 MB/s.
    #[test]
    fn of_two_lone_reads_the_shorter_is_believed() {
        let mut times = Times::default();
        let mut after = |us: u64| {
            times.timed_alone(Nanos::from_us(us));
            times.latency().unwrap().0 / 1000
        };
        assert_eq!([13_600, 8_100, 30_000, 30_000].map(&mut after), [13_600, 8_100, 8_185, 8_270]);
    }

    /// Three threads have read on by turns in 8 ms when the first read of the fourth is told, which has waited for 1 s.
    #[test]
    fn who_was_starved_tells_no_latency() {
        let mut times = Times::default();
        (0..3).for_each(|_| times.timed(Nanos(0), Bytes(65_536), Nanos::from_ms(8)));
        let mut after = |ms: u64| {
            times.timed(Nanos(0), Bytes(4096), Nanos::from_ms(ms));
            times.timed_alone(Nanos::from_ms(ms));
            times.latency().unwrap().0 / 1_000_000
        };
        assert_eq!([1000, 9].map(&mut after), [8, 9]);
    }

    /// Readers go on by turns on a disk, at once or after a way: the best tells no way, but jumps do. What is alone later tells more than those.
    #[test]
    fn a_lone_read_takes_no_less_than_jumps_cost() {
        let mut times = Times::default();
        (0..8).for_each(|_| times.timed(Nanos(0), Bytes(4096), Nanos::from_us(116)));
        let mut after = |cost_us: u64| {
            times.jumps_cost(cost_us * 1000);
            times.latency().unwrap().0 / 1000
        };
        assert_eq!([0, 400, 900, 8_000, 12_000].map(&mut after), [116, 116, 116, 8_000, 8_000]);
        times.timed_alone(Nanos::from_ms(5));
        assert_eq!(times.latency(), Some(Nanos::from_ms(5)));
    }

    /// 8 ms at first, then 20: believed for 10 s at least, and for 20 at most.
    #[test]
    fn a_device_that_became_slower_is_believed_in_the_end() {
        let mut times = Times::default();
        times.timed(Nanos(0), Bytes(4096), Nanos::from_ms(8));
        let best_at = |s: u64| {
            (0..16).for_each(|_| times.timed(Nanos::from_ms(1000 * s), Bytes(4096), Nanos::from_ms(20)));
            times.best_of(Bytes(4096)).unwrap().0 / 1_000_000
        };
        assert_eq!([9, 11, 22].map(best_at), [8, 8, 20]);
    }
}
