//! When a stream was heard of, and whether its reader takes what comes as fast as it comes.
//!
//! ```text
//! heard of at    0    40    80    200 ms       intervals    40    40    (3 * 40 + 120) / 4 = 60 ms
//! he waits, and has got it at 200; on a device of 8 ms     he is back by 216: he takes it at once     later: he does not
//! ```
//!
//! What is made of it is decided elsewhere: how long a silent stream is waited for (sweep.rs), and with whom a head stays (windows/reach.rs).

use crate::units::Nanos;

/// Latencies within which a reader who has got what he waited for is back, if he takes it at once.
const AT_ONCE: u64 = 2;

/// The moment of who has got nothing that he waited for.
const NOT_SERVED: Nanos = Nanos(u64::MAX);

/// The times of one stream.
#[derive(Clone, Debug)]
pub(in crate::wave) struct Pace {
    last: Nanos,
    /// Time between the two latest words of it.
    gap_ns: u64,
    /// The mean of such times, of which the latest counts a quarter.
    interval_ns: u64,
    /// When its reader got what he had waited for, until he is heard of again; else [`NOT_SERVED`].
    served: Nanos,
    takes_at_once: bool,
}

impl Pace {
    /// Of a stream that begins `now`.
    pub(in crate::wave) fn begins(now: Nanos) -> Self {
        Self { last: now, gap_ns: 0, interval_ns: 0, served: NOT_SERVED, takes_at_once: false }
    }

    /// It was heard of after so many `reads`: by another, or by what was read quietly.
    pub(in crate::wave) fn heard_of(&mut self, now: Nanos, reads: u64) {
        let gap_ns = now.since(self.last).0;
        self.interval_ns = if reads <= 1 { gap_ns } else { (self.interval_ns * 3 + gap_ns) / 4 };
        self.gap_ns = gap_ns;
        self.last = now;
    }

    /// Its reader is there, and nobody knows how often he was meanwhile: that is no interval.
    pub(in crate::wave) fn is_there(&mut self, now: Nanos) {
        self.last = now;
    }

    /// It is known from elsewhere how long its reader is away between two reads.
    pub(in crate::wave) fn comes_every(&mut self, interval_ns: u64) {
        self.interval_ns = interval_ns;
    }

    /// Its reader got what he had waited for.
    pub(in crate::wave) fn served(&mut self, now: Nanos) {
        self.served = now;
    }

    /// He is heard of again, for the first time since: did he take it at once?
    pub(in crate::wave) fn goes_on(&mut self, now: Nanos, latency: Option<Nanos>) {
        let served = core::mem::replace(&mut self.served, NOT_SERVED);
        if let Some(latency) = latency.filter(|_| served != NOT_SERVED) {
            self.takes_at_once = now.since(served).0 <= AT_ONCE * latency.0;
        }
    }

    /// When it was heard of last.
    pub(in crate::wave) fn last(&self) -> Nanos {
        self.last
    }

    /// Time between the two latest words of it, in ns.
    pub(in crate::wave) fn gap_ns(&self) -> u64 {
        self.gap_ns
    }

    /// Time between two words of it, on average, in ns.
    pub(in crate::wave) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Whether its reader was back within two latencies when he had last waited: he takes what comes as fast as it comes.
    pub(in crate::wave) fn takes_at_once(&self) -> bool {
        self.takes_at_once
    }
}

#[cfg(test)]
pub(in crate::wave) mod tests {
    use super::*;

    impl Pace {
        /// Of a reader who takes what comes at once, or does not.
        pub(in crate::wave) fn taking(takes_at_once: bool) -> Self {
            Self { takes_at_once, ..Self::begins(Nanos(0)) }
        }
    }

    /// The picture at the top.
    #[test]
    fn the_latest_interval_counts_a_quarter_and_who_is_back_soon_takes_it_at_once() {
        let mut pace = Pace::begins(Nanos(0));
        let intervals = [(1, 40), (2, 80), (3, 200)].map(|(reads, ms)| {
            pace.heard_of(Nanos::from_ms(ms), reads);
            pace.interval_ns() / 1_000_000
        });
        assert_eq!(intervals, [40, 40, 60]);
        let takes = |back_ms: u64, latency: Option<Nanos>| {
            let mut pace = pace.clone();
            pace.served(Nanos::from_ms(200));
            pace.goes_on(Nanos::from_ms(back_ms), latency);
            pace.takes_at_once()
        };
        let hdd = Some(Nanos::from_ms(8));
        assert_eq!((takes(216, hdd), takes(217, hdd), takes(201, None)), (true, false, false));
    }
}
