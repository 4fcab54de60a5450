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
//! ```

use crate::units::Extent;

/// One page in so many must have been read at random: from there on the kernel's own reading around, 32 pages a fault, would meet 3 % of
/// the touches that are random here.
pub(in crate::wave) const WORN: u64 = 512;
/// A larger file is not worn, however much of it was read: 128 MiB, twice what may be bought thin (density.rs).
const SMALL_MAX: u64 = 32_768;

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
    }
}
