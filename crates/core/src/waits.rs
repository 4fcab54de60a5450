//! What counts as a wait: a read that took longer than one that finds its pages, which is copied and no more.
//!
//! ```text
//!   pages   device     a hit takes at most
//!       1   not known       20 us + 1 us
//!      32   30 ms           20 us + 32 us
//!       1   40 us           10 us + 1 us       a quarter of what a lone read takes: else no wait on it were one
//!       1   10 us            5 us + 1 us
//! ```
//!
//! The test `a_wait_is_longer_than_a_hit` owns the numbers.

use crate::units::{Nanos, PageCount};

/// A read that took no longer than this and its copying found its pages: 20 us, a few times what a hit costs.
const HIT_NS_MAX: u64 = 20_000;
/// A hit takes at most a quarter of the device's latency, between this and [`HIT_NS_MAX`].
const HIT_NS_MIN: u64 = 5_000;
/// Copying a page, generously.
const COPY_NS: u64 = 1_000;

/// Whether a read of so many pages that took so long has waited for its device, on which a lone read takes `latency`, if that is known.
pub fn is_wait(took: Nanos, pages: PageCount, latency: Option<Nanos>) -> bool {
    let hit_ns = latency.map_or(HIT_NS_MAX, |latency| (latency.0 / 4).clamp(HIT_NS_MIN, HIT_NS_MAX));
    took.0 > hit_ns.saturating_add(COPY_NS.saturating_mul(pages.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_longer_than_a_hit() {
        for (pages, latency_us, hit_us) in
            [(1, None, 21), (32, Some(30_000), 52), (1, Some(40), 11), (1, Some(10), 6), (0, None, 20)]
        {
            let is = |us| is_wait(Nanos::from_us(us), PageCount(pages), latency_us.map(Nanos::from_us));
            assert_eq!((is(hit_us), is(hit_us + 1)), (false, true), "{pages} {latency_us:?}");
        }
    }
}
