//! When faults are watched: always, or a thirtieth of the time where it is in vain.
//!
//! On two busy processors a fault that is watched costs its program 10 us; one that waits for an SSD takes 100. Who touches at
//! random, or touches what is cached, gets nothing for that. So after many touches that led to no fetch, on a device that is fast
//! or was never waited for, perf's events are on for ten latencies and off for thirty times as long; one fetch, and they are on all
//! the time again. Many are 64 touches, and of several processes 64 times the square of how many they are: some may go in order
//! while others touch at random.
//!
//! ```text
//!   ssd, 100 us     watch 1 ms | rest ........ 29 ms | watch 1 ms | a stream of ten pages is seen: watched all the time
//! ```

use bowwave_core::Nanos;

/// Latencies of a watch: long enough to see a stream begin.
pub(super) const WATCH_LATENCIES: u64 = 10;
/// A rest is so many watches long.
pub(super) const REST: u64 = 29;

/// Whether faults are watched all the time, or by turns with rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Turn {
    #[default]
    Always,
    /// Since then.
    Watching(Nanos),
    /// Until then.
    Resting(Nanos),
}

impl Turn {
    /// The turn at `now`, of a reader for whom watching is in vain or not.
    pub(super) fn next(self, now: Nanos, in_vain: bool, watch: Nanos) -> Self {
        match self {
            _ if !in_vain => Self::Always,
            Self::Always => Self::Watching(now),
            Self::Watching(since) if now.since(since) >= watch => {
                Self::Resting(Nanos(now.0 + REST * watch.0))
            }
            Self::Resting(until) if now >= until => Self::Watching(now),
            same => same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_in_vain_is_watched_a_thirtieth_of_the_time() {
        let (mut turn, mut watched) = (Turn::Always, 0);
        for ms in 0..1000 {
            turn = turn.next(Nanos::from_ms(ms), ms >= 100, Nanos::from_ms(1));
            watched += u32::from(ms >= 100 && !matches!(turn, Turn::Resting(_)));
        }
        assert!((25..=35).contains(&watched), "{watched} of 900 ms");
        assert_eq!(turn.next(Nanos::from_ms(1000), false, Nanos::from_ms(1)), Turn::Always);
    }
}
