//! How many bytes a second a device carries: in all at best, by one request, and in a burst behind its first latency.
//!
//! ```text
//! s3: 30 ms; 64 requests of 128 KiB are under way all the time, one comes back every 0.5 ms, 33 ms after it went out
//!   best         the most that came in one round, of two latencies at least            254 MB/s
//!   connection   128 KiB in 33 ms with the latency, that is 4 MB/s: taken for no less than what a disk carries     100 MB/s
//! and then 8 MiB in one go, the last of which comes after 40 ms
//!   bulk         8 MiB in the 10 ms behind the latency                                 838 MB/s: with those before it, the mean of the latest
//!
//! a head of 8 ms and 200 MB/s: 8 ms for the first of ten requests of 128 KiB in a row, and each of the others 0.66 ms behind the one before it
//!   connection   1 MiB in 5.2 ms, once it is known as a head                           200 MB/s
//! ```
//!
//! What a connection carries is not seen while the latency is longer than the carrying, but of a head: where several connections carry, requests
//! that continue one another come as fast as all of them together. Else it is taken for 100 MB/s, and for less only where the device
//! was seen to crawl (crawls.rs). The device says how much a request is believed to have carried at most: what came sooner than a lone read lay in a
//! buffer.

use crate::units::{Bytes, Nanos};
use crate::wave::devices::crawls::{Crawls, Round};

/// What a connection is taken to carry until it has carried more, or was seen to crawl (crawls.rs): 100 MB/s.
const RATE_UNKNOWN: u64 = 100_000_000;
/// And at most, whatever a single fetch seemed to show: 2 GB/s.
pub(in crate::wave::devices) const RATE_MAX: u64 = 2_000_000_000;
/// A rate is measured over at least this much time, so that a burst out of a cache does not count as a device.
const ROUND_NS_MIN: u64 = 10_000_000;
/// A burst tells what a device carries from so many bytes on: a few requests.
const BURST_MIN: u64 = 1 << 20;

/// What one device was seen to carry.
#[derive(Clone, Debug, Default)]
pub(in crate::wave) struct Rates {
    round: Round,
    /// Of the best round; 0 while there is none.
    best: u64,
    crawls: Crawls,
    /// Of the fastest request that says anything of it.
    request: u64,
    burst: Burst,
    gliding: Gliding,
}

/// Requests that continued one another and stood in line: nothing but carrying passes between two of them, to a head.
#[derive(Clone, Copy, Debug, Default)]
struct Gliding {
    bytes: u64,
    ns: u64,
    /// Something has come since the latest jump, and not with it.
    begun: bool,
    /// What they carried a second.
    rate: Mean,
}

impl Gliding {
    /// One came so long after the one that it continued, or continued nothing. What is seen to come together came in the time before the first of it.
    fn came(&mut self, bytes: Bytes, gap: Option<Nanos>) {
        let Some(gap) = gap else {
            self.begun = false;
            return;
        };
        if per_second(bytes, gap) < RATE_MAX {
            self.begun = true;
            if self.bytes >= BURST_MIN {
                self.rate.add(Bytes(self.bytes), Nanos(self.ns));
                (self.bytes, self.ns) = (0, 0);
            }
        }
        if self.begun {
            self.bytes += bytes.0;
            self.ns += gap.0;
        }
    }
}

/// Bytes a second, the mean of the latest; 0 while there is none.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(u64);

impl Mean {
    /// So many bytes were carried in so long.
    fn add(&mut self, bytes: Bytes, took: Nanos) {
        let rate = per_second(bytes, took).min(RATE_MAX);
        self.0 = if self.0 == 0 { rate } else { (3 * self.0 + rate) / 4 };
    }
}

/// Requests under way without a pause.
#[derive(Clone, Copy, Debug, Default)]
struct Burst {
    since: Nanos,
    bytes: u64,
    /// What such bursts carried a second, without the latency at their begin.
    rate: Mean,
}

impl Burst {
    /// Nothing is under way any more.
    fn ended(&mut self, now: Nanos, latency: Nanos) {
        if self.bytes < BURST_MIN {
            return;
        }
        let all = now.since(self.since).0;
        let carrying = all.saturating_sub(latency.0).max(all / 8).max(1);
        self.rate.add(Bytes(self.bytes), Nanos(carrying));
    }
}

impl Rates {
    /// Nothing was under way until now.
    pub(in crate::wave) fn begins(&mut self, now: Nanos) {
        (self.burst.since, self.burst.bytes) = (now, 0);
        self.round = Round::begins(now);
    }

    /// A request took so long, and is believed to have carried `most` bytes a second.
    pub(in crate::wave) fn one_took(&mut self, bytes: Bytes, took: Nanos, most: u64) {
        self.request = self.request.max(per_second(bytes, took).min(most));
    }

    /// It came so long after the one that it continued, behind which it had stood in line; `None` if it did not.
    pub(in crate::wave) fn came_behind(&mut self, bytes: Bytes, gap: Option<Nanos>) {
        self.gliding.came(bytes, gap);
    }

    /// It has come back to a device of that latency, that is known as a head or not; it has jumped or not, and was the last under way or not.
    pub(in crate::wave) fn came(
        &mut self,
        now: Nanos,
        bytes: Bytes,
        [jump, last]: [bool; 2],
        latency: Nanos,
        is_head: bool,
    ) {
        self.burst.bytes += bytes.0;
        if last {
            self.burst.ended(now, latency);
        }
        self.round.came(bytes, jump);
        let round = self.round.took(now);
        if round.0 >= ROUND_NS_MIN.max(2 * latency.0) {
            // The best rate forgets by 1/16 a round.
            self.best = self.round.rate(round).max(self.best - self.best / 16);
            self.crawls.ended(&self.round, round, latency, is_head);
            self.round = Round::begins(now);
        }
    }

    /// Bytes a second at best, if anything was measured.
    pub(in crate::wave) fn best(&self) -> Option<u64> {
        (self.best > 0).then_some(self.best)
    }

    /// Of one request, about: what the best one carried, latency and all, but no less than a disk does. To a head, what those carried that continued one
    /// another, where that was seen.
    pub(in crate::wave) fn connection(&self, is_head: bool) -> u64 {
        let glided = if is_head { self.gliding.rate.0 } else { 0 };
        self.request.max(glided).max(RATE_UNKNOWN)
    }

    /// The same of a device that was seen to crawl: less than a disk does.
    pub(in crate::wave) fn crawling(&self) -> u64 {
        self.request.max(self.crawls.rate().map_or(RATE_UNKNOWN, |rate| rate.min(RATE_UNKNOWN)))
    }

    /// That a long fetch may count on behind its first latency: what bursts carried so, the best rate measured, or what one request carried.
    pub(in crate::wave) fn bulk(&self) -> u64 {
        self.burst.rate.0.max(self.best).max(self.crawling())
    }

    /// Whether that was seen, and is no guess.
    pub(in crate::wave) fn bulk_is_known(&self) -> bool {
        self.burst.rate.0.max(self.best) > 0
    }
}

/// Bytes a second, if so many took so long; no more than can be reckoned with.
pub(in crate::wave::devices) fn per_second(bytes: Bytes, took: Nanos) -> u64 {
    let rate = u128::from(bytes.0) * 1_000_000_000 / u128::from(took.0.max(1));
    rate.min(u128::from(u64::MAX / 8)) as u64
}

/// Bytes carried in so long at so many a second.
pub(in crate::wave::devices) fn carried(time: Nanos, bytes_per_s: u64) -> Bytes {
    Bytes((u128::from(time.0) * u128::from(bytes_per_s) / 1_000_000_000) as u64)
}

/// How long so many bytes take at so many a second.
pub(in crate::wave::devices) fn carrying_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// The picture.
    #[test]
    fn what_s3_carries() {
        let (mut rates, latency) = (Rates::default(), Nanos::from_ms(30));
        rates.begins(Nanos(0));
        for n in 1..=256 {
            rates.one_took(Bytes(131_072), Nanos::from_ms(33), RATE_MAX);
            // 64 every 33 ms, the first of them after 30.
            let now = Nanos(30_000_000 + 515_625 * n);
            rates.came(now, Bytes(131_072), [true, false], latency, false);
        }
        let mb = [rates.best().unwrap(), rates.connection(false), rates.crawling()].map(|rate| rate / MB);
        assert_eq!(mb, [254, 100, 100]);
        rates.begins(Nanos::from_ms(1000));
        for n in 1..=64 {
            rates.came(Nanos::from_ms(1040), Bytes(131_072), [true, n == 64], latency, false);
        }
        assert_eq!(rates.bulk() / MB, 838);
    }

    /// The head of the picture, seen request by request, and in twos: the first two say nothing, for nobody saw when the first came.
    #[test]
    fn what_a_head_carries() {
        let mb = |gaps_us: [u64; 10], is_head| {
            let mut rates = Rates::default();
            rates.came_behind(Bytes(131_072), None);
            gaps_us.into_iter().for_each(|gap| rates.came_behind(Bytes(131_072), Some(Nanos::from_us(gap))));
            rates.connection(is_head) / MB
        };
        assert_eq!([true, false].map(|is_head| mb([656; 10], is_head)), [199, 100]);
        assert_eq!(mb([0, 1311, 0, 1311, 0, 1311, 0, 1311, 0, 1311], true), 199);
        assert_eq!(mb([3000; 10], true), 100, "no less than a disk does");
    }

    /// Less than 1 MiB says nothing, and all of what came in one latency an eighth of the time at least.
    #[test]
    fn a_burst_tells_what_comes_behind_its_latency() {
        let bulk = |bytes: u64, took_ms: u64| {
            let mut burst = Burst { bytes, ..Burst::default() };
            burst.ended(Nanos::from_ms(took_ms), Nanos::from_ms(30));
            burst.rate.0 / MB
        };
        assert_eq!([bulk(1 << 19, 40), bulk(1 << 20, 40), bulk(1 << 20, 32)], [0, 104, 262]);
    }
}
