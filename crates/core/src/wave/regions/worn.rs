//! R11: a small file that is read at random all over is worn: its reader has waited for as long as all of it takes.
//!
//! Reads that gather nowhere pay rent in no region of their file, and in all of it together. A small file is *worn* once one page in 512 of
//! it was read at random and the rent came to the price of the whole; what is bought of it then is said in density.rs. Small is what memory
//! holds, and 128 MiB at most.
//!
//! ```text
//! s3 (30 ms, 100 MB/s by one connection), lookups at random in 80 MB: 30 ms + 819 ms
//!   read 29  rent 870 ms >= 849 ms, but 29 pages of 20,000 do not wear it
//!   read 40  rent 1200 ms: worn
//! nfs (1 ms, 250 MB/s), the same: 1 ms + 328 ms
//!   read 40  rent 40 ms, not yet; it is with the 330th, looked at when there are an eighth more reads
//!
//! hdd (8 ms, 100 MB/s), lookups at random in 16 MB: 8 ms + 160 ms, and 8 ms for each hole
//!   read 22  rent 176 ms: worn, and bought for 344 ms. Of 60 MB it would be with the 75th, for 1.2 s: a head leaves that
//! ```
//!
//! A head pays a way for each hole that the reads have left, so the price of what is left grows with the rent, and never comes to it. Who goes
//! on gains all the same; who stops just then has waited three times as long as he need have. So it is bought only while few waits
//! are at stake: by a head from the 16th random read of a file to the 32nd.

use crate::units::Extent;
use core::ops::RangeInclusive;

/// One page in so many must have been read at random: from there on the kernel's own reading around, 32 pages a fault, would meet 3 % of
/// the touches that are random here.
pub(in crate::wave) const WORN: u64 = 512;
/// A larger file is not worn, however much of it was read: 128 MiB, twice what may be bought thin (density.rs).
const SMALL_MAX: u64 = 32_768;

/// Random reads with the first and the last of which a head buys what is left.
const HEAD_READS: RangeInclusive<u64> = 16..=32;

/// The random reads of one file, and whether they have worn it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Worn {
    reads: u64,
    /// Pages of all of them, and what they paid.
    pages_read: u64,
    paid_ns: u64,
    worn: bool,
    /// Reads until it is looked at again whether it is, an eighth more each time: a look counts the pages that are there.
    look: u64,
}

impl Worn {
    /// A random read of so many pages waited, or is expected to wait, `wait_ns`.
    pub(in crate::wave) fn count(&mut self, pages: u64, wait_ns: u64) {
        self.reads += 1;
        self.pages_read += pages;
        self.paid_ns = self.paid_ns.saturating_add(wait_ns);
    }

    /// Whether a head buys the file, if it is worn: its holes are few, and so many reads are no chance.
    pub(in crate::wave) fn is_for_a_head(&self) -> bool {
        HEAD_READS.contains(&self.reads)
    }

    /// Whether the file is worn, for good: `price(pages)` is how many of them are missing, and what fetching those would take in ns.
    pub(in crate::wave) fn says_so(
        &mut self,
        end_of_file: u64,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> bool {
        let touched = self.pages_read * WORN >= end_of_file && end_of_file <= SMALL_MAX;
        if !self.worn && touched && self.reads >= self.look {
            self.look = self.reads + self.reads / 8;
            self.worn = self.paid_ns >= price(Extent::new(0, end_of_file)).1;
        }
        self.worn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The read with which a file is worn, of 1000, each of a page and as long as `wait_us`; `page_ns` is what a page takes.
    fn worn_by(end_of_file: u64, wait_us: u64, page_ns: u64) -> Option<u64> {
        let mut worn = Worn::default();
        (1..=1000).find(|_| {
            worn.count(1, wait_us * 1000);
            worn.says_so(end_of_file, |pages| (pages.count.0, wait_us * 1000 + pages.count.0 * page_ns))
        })
    }

    /// The picture at the top.
    #[test]
    fn by_one_page_in_512_and_by_its_price() {
        assert_eq!(worn_by(20_000, 30_000, 40_960), Some(40), "s3");
        assert_eq!(worn_by(10_000, 30_000, 40_960), Some(20), "s3, half as large");
        assert!(worn_by(20_000, 1_000, 16_384).is_some_and(|read| (329..=371).contains(&read)), "nfs");
        assert_eq!(worn_by(SMALL_MAX + 1, 30_000, 0), None);
        // A head: of 16 MB, and of 60.
        for (end_of_file, read, buys) in [(3900, 22, true), (14_648, 75, false)] {
            let mut worn = Worn::default();
            (0..read).for_each(|_| worn.count(1, 8_000_000));
            assert_eq!(worn.is_for_a_head(), buys, "{end_of_file} pages");
            assert!(
                worn_by(end_of_file, 8_000, 40_960)
                    .is_some_and(|worn| (read..read + read / 8).contains(&worn))
            );
        }
    }
}
