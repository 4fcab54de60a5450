//! The number itself: what Linux set the ceiling to, and the three rules of 2010 that would have set it better.
//!
//! ```text
//! 2.6.11 .. today   128 KiB   for every device that does not ask for more
//! 2010              512 KiB   for every device, because disks had grown faster in bandwidth than in access time,
//!                   less      for small ones: four times the capacity buys twice the ceiling,
//!                   less      around a fault where memory is small
//! ```
//!
//! Worked example: a USB stick of 64 MiB gets 64 KiB in its second version (32 KiB was the price of 128 MiB in the
//! first) and a disk of 4 GiB or more the full 512 KiB. A disk that does not know its capacity gets no limit: the
//! first version gave it 4 KiB, and a striped array behind multipath lost 40 % of its throughput (spec 5.1, 5.2, 5.3,
//! 5.12; seed 001).

use crate::units::{Bytes, PageCount};

/// Linux's ceiling, then as now: 128 KiB.
pub const DEFAULT_MAX: PageCount = PageCount(32);

/// The ceiling that seed 001 proposes: 512 KiB, 39 MB/s instead of 13 where a disk seeks 8 ms and reads 100 MB/s.
pub const DEFAULT_MAX_2010: PageCount = PageCount::holding(Bytes(512 * 1024));

/// The smallest window after a thrash, 32 KiB: below it, batching no longer pays for the seek. Rounded up, so that
/// pages larger than it would still leave one.
pub const THRASH_MIN: PageCount = PageCount::holding(Bytes(32 * 1024));

/// Ceiling of a device of `sectors` 512-byte sectors, as first posted in 2010: 2 MiB earn one page.
///
/// A capacity of 0 earns one page too: this is the defect that the second posting repairs ([`small_device_limit`]).
pub fn small_device_limit_v0(sectors: u64) -> PageCount {
    root_of_capacity(sectors >> 12)
}

/// Ceiling of a device of `sectors` 512-byte sectors, as corrected: 256 KiB earn one page. `None`, no limit, if the
/// device does not tell its capacity.
pub fn small_device_limit(sectors: u64) -> Option<PageCount> {
    (sectors > 0).then(|| root_of_capacity(sectors >> 9))
}

/// Ceiling of read-around where memory holds `total` pages: a thousandth of it, as a power of two (spec 5.12).
/// Read-*ahead* is not limited so, because the thrash-safe mode adapts.
pub fn around_limit(total: PageCount) -> PageCount {
    let share = (total.0 / 1024).max(1);
    PageCount(share.checked_next_power_of_two().unwrap_or(u64::MAX))
}

/// 2^floor(log2(units) / 2): twice the ceiling for four times the capacity.
fn root_of_capacity(units: u64) -> PageCount {
    PageCount(1 << (units.max(1).ilog2() / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Both tables of spec 5.1, row by row: capacity in MiB, ceiling in KiB.
    #[test]
    fn capacity_buys_ceiling_by_its_root() {
        for (mib, kib) in [
            (2, 4),
            (8, 8),
            (32, 16),
            (128, 32),
            (512, 64),
            (2048, 128),
            (8192, 256),
            (32768, 512),
            (131072, 1024),
        ] {
            assert_eq!(small_device_limit_v0(mib * MIB / 512).bytes(), Bytes(kib * 1024), "{mib} MiB, first");
        }
        for (mib, kib) in [
            (1, 8),
            (4, 16),
            (16, 32),
            (64, 64),
            (256, 128),
            (1024, 256),
            (4096, 512),
            (16384, 1024),
            (65536, 2048),
            (262144, 4096),
        ] {
            let limit = small_device_limit(mib * MIB / 512).map(PageCount::bytes);
            assert_eq!(limit, Some(Bytes(kib * 1024)), "{mib} MiB, corrected");
        }
    }

    #[test]
    fn an_unknown_capacity_is_no_limit() {
        assert_eq!(small_device_limit(0), None);
        assert_eq!(small_device_limit_v0(0), PageCount(1));
        assert!(small_device_limit(u64::MAX).is_some());
    }

    #[test]
    fn defaults_of_2010() {
        assert_eq!((DEFAULT_MAX_2010, THRASH_MIN), (PageCount(128), PageCount(8)));
        assert_eq!(DEFAULT_MAX.bytes(), Bytes(128 * 1024));
    }

    #[test]
    fn small_memory_reads_less_around() {
        for (mib, kib) in [(512, 512), (128, 128), (32, 32)] {
            let limit = around_limit(PageCount::holding(Bytes(mib * MIB)));
            assert_eq!(limit.bytes(), Bytes(kib * 1024), "{mib} MiB of memory");
        }
    }
}
