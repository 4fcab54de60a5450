//! R11: a file that is read at random all over is worn: its reader has waited for as long as all of it takes.
//!
//! Reads that gather nowhere pay rent in no region of their file, and in all of it together. A file that memory holds is *worn* once one
//! page in 512 of it was read at random and the rent came to the price of the whole; what is bought of it then is said in density.rs. Of one larger
//! than 128 MiB more must have been read, as the square of its size: of 256 MiB one page in 128, of 1 GiB one in 8. Who touches some pages of a large
//! file pays for no more than those; who comes by all of it by and by, as a store does that is read by its keys, gets it.
//!
//! ```text
//! s3 (30 ms, 100 MB/s by one connection), lookups at random in 80 MB: 30 ms + 819 ms
//!   read 29  rent 870 ms >= 849 ms, but 29 pages of 20,000 do not wear it
//!   read 40  rent 1200 ms: worn
//! nfs (1 ms, 250 MB/s), the same: 1 ms + 328 ms
//!   read 40  rent 40 ms, not yet; it is with the 330th, looked at when there are an eighth more reads
//!
//! hdd (8 ms, 100 MB/s), lookups at random in 80 MB: 8 ms + 819 ms, and 8 ms for each hole
//!   read 52   rent 416 ms >= 827 ms / 2: worn, and bought for 1.2 s; 20,000 lookups take 1.7 s instead of 160 s, and 300 1.7 instead of 2.4
//! ```
//!
//! While nobody knows whether the device is a head, a read brings 256 KiB around it once the rent comes to an eighth of the price: how its holes
//! come tells whether requests overlap, and so the price. Reads that nobody told count all the same ([`crate::wave::Input::Untold`]): 3,000 of an
//! SSD wear 150 MB, of which its driver tells one in 240.
//!
//! A head pays a way for each hole that the reads have left, so the price of what is left grows with the rent, and the rent never comes to it. So a head
//! buys once the rent comes to half of the price without the holes: a reader that stops just then has spent four times what it waited, with the waits
//! themselves, one that stops later less, and one that goes on saves all of its waits. What seemed worn while nobody knew whether the device is a head is
//! looked at again when it is known.
//!
//! Nothing is bought that takes longer than reading all of it in such reads would wait: 64 KiB take an SSD as long to carry as to come to.
//!
//! A head buys from the 16th random read on only, and for reads of two pages on average or fewer, and so is shown what nobody knows: the larger the
//! reads are, the fewer of them are left, and programs that read runs here and there stop before it pays.

use crate::units::Extent;

/// One page in so many must have been read at random: from there on the kernel's own reading around, 32 pages a fault, would meet 3 % of
/// the touches that are random here.
pub(in crate::wave) const WORN: u64 = 512;
/// Pages of the largest file for which that is enough, 128 MiB: of a larger one more must have been read.
const SMALL_MAX: u64 = 32_768;
/// While nobody knows whether requests overlap, nor by what the price is to be reckoned, part of a file shows it to who reads single pages, for
/// one part in so many of the price.
const SHOWS: u64 = 8;
/// Random reads from which on a head buys what is left: so many are no chance.
const HEAD_READS_MIN: u64 = 16;
/// A head buys it once the rent comes to one part in so many of the price without the holes.
const HEAD_RENT: u64 = 2;
/// A head buys it for reads of no more pages than this on average, and so a part is bought to see what the device is.
const HEAD_PAGES_MAX: u64 = 2;

/// The random reads of one file, and whether they have worn it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Worn {
    reads: u64,
    /// Pages of all of them, and what they paid.
    pages_read: u64,
    paid_ns: u64,
    worn: bool,
    /// What was known of the device when it was looked at last: a head asks for more than one that nobody knows.
    overlaps: Option<bool>,
    /// Reads until it is looked at again whether it is, an eighth more each time: a look counts the pages that are there.
    look: u64,
}

impl Worn {
    /// So many random reads of so many pages in all waited, or are expected to wait, `waits_ns` together.
    pub(in crate::wave) fn count_all(&mut self, reads: u64, pages: u64, waits_ns: u64) {
        self.reads = self.reads.saturating_add(reads);
        self.pages_read = self.pages_read.saturating_add(pages);
        self.paid_ns = self.paid_ns.saturating_add(waits_ns);
    }

    /// One of them, of so many pages, was none at random.
    pub(in crate::wave) fn takes_back(&mut self, pages: u64, waits_ns: u64) {
        self.reads = self.reads.saturating_sub(1);
        self.pages_read = self.pages_read.saturating_sub(pages);
        self.paid_ns = self.paid_ns.saturating_sub(waits_ns);
    }

    /// Whether the file is worn, to what serves several requests at once, to a head, or while nobody knows (`overlaps`): `price(pages)` is how many of
    /// them are missing, and what fetching those would take in ns. For good, but for a head.
    pub(in crate::wave) fn says_so(
        &mut self,
        end_of_file: u64,
        overlaps: Option<bool>,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> bool {
        let touched = self.pages_read >= wears(end_of_file);
        let is_head = overlaps == Some(false);
        let mut shows = false;
        let news = core::mem::replace(&mut self.overlaps, overlaps) != overlaps;
        if touched && (is_head || !self.worn) && (news || self.reads >= self.look) {
            self.look = self.reads.saturating_add(self.reads / 8);
            let (missing, price_ns) = price(Extent::new(0, end_of_file));
            let single = self.reads >= HEAD_READS_MIN && self.pages_read / HEAD_PAGES_MAX <= self.reads;
            let for_a_head = single && self.paid_ns >= price_ns / HEAD_RENT;
            let saves_ns = waits_ns(missing, self.pages_read, self.paid_ns);
            self.worn = if is_head { for_a_head } else { self.paid_ns >= price_ns } && saves_ns >= price_ns;
            shows = overlaps.is_none() && single && self.paid_ns >= price_ns / SHOWS;
        }
        shows || self.worn
    }
}

/// What reads of so many pages that are missing would wait, if they are like those that have paid `paid_ns` for `pages_read`.
fn waits_ns(missing: u64, pages_read: u64, paid_ns: u64) -> u64 {
    let waits = u128::from(missing) * u128::from(paid_ns) / u128::from(pages_read.max(1));
    u64::try_from(waits).unwrap_or(u64::MAX)
}

/// Pages that must have been read of a file of so many.
fn wears(end_of_file: u64) -> u64 {
    let times = u128::from(end_of_file.max(SMALL_MAX));
    let pages = u128::from(end_of_file.div_ceil(WORN)).saturating_mul(times).saturating_mul(times);
    u64::try_from(pages / u128::from(SMALL_MAX * SMALL_MAX)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The read with which a file is worn, of 1000, each of so many pages and as long as `wait_us`; `page_ns` is what a page takes.
    fn worn_by(end_of_file: u64, pages: u64, wait_us: u64, page_ns: u64, overlaps: bool) -> Option<u64> {
        let mut worn = Worn::default();
        (1..=1000).find(|_| {
            worn.count_all(1, pages, wait_us * 1000);
            let price = |pages: Extent| (pages.count.0, wait_us * 1000 + pages.count.0 * page_ns);
            worn.says_so(end_of_file, Some(overlaps), price)
        })
    }

    /// The picture at the top.
    #[test]
    fn by_one_page_in_512_and_by_its_price() {
        let worn_by_many = |end_of_file, wait_us, page_ns| worn_by(end_of_file, 1, wait_us, page_ns, true);
        assert_eq!(worn_by_many(20_000, 30_000, 40_960), Some(40), "s3");
        assert_eq!(worn_by_many(10_000, 30_000, 40_960), Some(20), "s3, half as large");
        assert!(worn_by_many(20_000, 1_000, 16_384).is_some_and(|read| (329..=371).contains(&read)), "nfs");
    }

    /// Of 128 MiB, of 256 and of 1 GiB.
    #[test]
    fn a_large_file_is_not_worn_by_some_touches() {
        assert_eq!([32_768, 65_536, 262_144].map(wears), [64, 65_536 / 128, 262_144 / 8]);
        assert_eq!(worn_by(262_144, 1, 30_000, 0, true), None);
    }

    /// The same of a head: 16 MB, 80, and reads of three pages.
    #[test]
    fn by_a_head_for_half_of_its_price() {
        assert_eq!(worn_by(3900, 1, 8_000, 40_960, false), Some(16));
        assert!(worn_by(20_000, 1, 8_000, 40_960, false).is_some_and(|read| (52..=58).contains(&read)));
        assert_eq!(worn_by(20_000, 3, 8_000, 40_960, false), None);
    }

    /// 80 MB by reads of four pages, which to a device that nobody knows seem worn: it is a head, to which they are not.
    #[test]
    fn what_seemed_worn_is_looked_at_again_by_a_head() {
        let price = |pages: Extent| (pages.count.0, pages.count.0 * 40_960);
        let mut worn = Worn::default();
        worn.count_all(120, 480, 120 * 8_000_000);
        assert!(worn.says_so(20_000, None, price));
        assert!(!worn.says_so(20_000, Some(false), price));
    }

    /// A page takes an SSD 8 us: reads of one that wait 100 us each wear 16 MB, reads of 16 do not, however many.
    #[test]
    fn nothing_is_bought_that_takes_longer_than_all_waits() {
        assert!(worn_by(3900, 1, 100, 8_192, true).is_some());
        assert_eq!(worn_by(3900, 16, 100, 8_192, true), None);
    }
}
