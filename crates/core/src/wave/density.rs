//! R11: where reads fall thick, buy the region; pay for it first.
//!
//! Ski rental: a reader that misses at random rents, one device latency a read. Once the rent paid inside a region comes
//! to half of the price of fetching what is missing of it, the region is bought: who reads on has paid one and a half times the least, and
//! who stops just then three times what he rented. Regions are aligned powers of four pages; the smallest that has paid is bought, or the
//! largest whose like have proved themselves.
//!
//! ```text
//! hdd (8 ms, 100 MB/s), region of 1 MiB (8 ms + 10.5 ms), blocks of 8 KiB in random order
//!   read 1   rent  8 ms
//!   read 3   rent 24 ms >= 9.2 ms, but three reads do not gather yet
//!   read 4   rent 32 ms, 8 of 256 pages, in three of the four quarters -> buy [region)
//! ```
//!
//! Three guards keep a uniformly random reader from buying anything, and others from buying too much. The reads must
//! *gather*: four in the region, and more than chance would bring to any region of a file read evenly. The region must be
//! *thick*, and those like it, which ended, say how thick (fills.rs); where they filled, the first read buys it, with those beside it. And
//! they must be *spread*: three of its quarters hold an eighth of the reads each, else it is a part of it that is thick. Of a large one no
//! more is bought than from its lowest read to its highest, and as far beyond as two reads lie apart on average. Where a gap costs more than
//! a request of its own (an SSD), what was read there and is gone again is a gap as well: three quarters of what is fetched must be new.
//!
//! Where its readers go on beside what was bought, that is bought as well (beside.rs).
//!
//! A price reckoned with a guess is not believed. Where nothing was carried yet, the part around the read is bought once the rent of
//! the whole comes to half of its price, 4 MiB: it says what the device carries, and the whole is bought with the next read.
//!
//! ```text
//! s3 (30 ms, 1 GB/s, not known), 64 MiB in random order: 30 ms + 671 ms by the guess of 100 MB/s, 30 ms + 67 ms in truth
//!   read 4   rent 120 ms >= (30 ms + 42 ms) / 2 -> buy 4 MiB     read 5, 6   it arrives, after 30 ms + 4 ms
//!   read 7   rent 210 ms >= (30 ms + 67 ms) / 2 -> buy the rest
//! ```
//!
//! Reads that gather nowhere buy nothing, until a small file is worn (worn.rs). Where requests overlap all of it is bought then. While
//! nobody has seen whether they do, 256 KiB around each read show it: two requests that come together, or one after the other. A head
//! buys nothing so: each page that was read is a hole in what is left, and a trip of its own.

use super::beside::Places;
use super::fills::{Fills, THICK, THICK_FIRST};
use super::worn::Worn;
use crate::units::{Extent, PageIndex};
use alloc::collections::{BTreeMap, VecDeque};

/// Region sizes in pages: 256 KiB, 1 MiB, 4 MiB, 16 MiB, 64 MiB.
pub(crate) const SCALES: [u64; 5] = [64, 256, 1024, 4096, 16384];
/// A region is bought once so many times the rent paid in it come to its price.
const RENT: u64 = 2;
/// Of a region of so many pages and more, 16 MiB, no more is bought than from the lowest read in it to the highest,
const CLIPPED_MIN: u64 = 4096;
/// and so many times the way from one read to the next, on average, beyond.
const MARGIN: u64 = 2;
/// Reads gather where a region has at least so many,
const GATHER_MIN: u64 = 4;
/// and even reading would gather as many in any region of the file once in two to this power files.
const CHANCE_BITS: u64 = 14;
/// Regions watched in a file; when there are more, those read longest ago go.
const REGIONS_MAX: usize = 4096;
/// Where gaps are dear, so much of what is fetched must not have been read: three quarters.
const NEW_DEAR: (u64, u64) = (3, 4);
/// Pages of thin regions that may be bought before any of them is read, the largest region or 64 MiB, and no more than a quarter of what memory
/// holds; each page read out of them lets as many more be bought as one in [`THICK`] is worth.
const THIN_MAX: u64 = 16_384;
/// Pages of the part that is bought to learn what the device carries,
const PART: u64 = 1024;
/// and reads until another is: it has arrived long before.
const PART_READS: u64 = 8;
/// A region that fills is bought at once if the waits that it saves are worth so many times its price.
const WORTH: u64 = 2;
/// Regions in a row that are counted, and bought, to each side of one.
const BESIDE_MAX: u64 = 16;
/// Of a region that lost no more than one page in so many, where there is room, somebody took them for reasons of his own.
const TAKEN_SHARE: u64 = 4;
/// Reads elsewhere after which a region has ended.
const LEFT_ALONE: u64 = 32;

#[derive(Clone, Copy, Debug, Default)]
struct Region {
    count: u64,
    pages_read: u64,
    /// The lowest page that was read, and the one behind the highest.
    low: u64,
    high: u64,
    paid_ns: u64,
    bought: bool,
    /// Pages that were gone before anybody read them, since somebody last came for one.
    lost: u64,
    /// It was bought before one page in [`THICK`] was read.
    thin: bool,
    /// It was bought with one that fills, beside it.
    beside: bool,
    last: u64,
    /// Its fill has been counted.
    ended: bool,
    /// It stands in line to be looked at.
    in_line: bool,
}

impl Region {
    /// From its lowest read to its highest, and a little beyond.
    fn surroundings(&self) -> Extent {
        let beyond = MARGIN * (self.high - self.low) / self.count.max(1);
        Extent::between(PageIndex(self.low.saturating_sub(beyond)), PageIndex(self.high + beyond))
    }
}

/// On what terms regions are bought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// A gap costs no more than a request of its own.
    pub(crate) gaps_are_cheap: bool,
    /// Whether requests overlap, where that was seen.
    pub(crate) overlaps: Option<bool>,
    /// Whether the bytes a second that a price is reckoned with were seen, and are no guess.
    pub(crate) rate_is_known: bool,
    /// Pages of a region at most: a quarter of what memory holds; none while what was bought has not paid for itself (account.rs).
    pub(crate) most: u64,
}

impl Terms {
    /// Pages of thin regions that may be out before any of them is read.
    fn thin_max(&self) -> u64 {
        THIN_MAX.min(self.most)
    }
}

/// Random reads of one file, by region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Density {
    regions: BTreeMap<(u8, u64), Region>,
    reads: u64,
    worn: Worn,
    /// The read from which on a part may be bought to learn the price.
    part_next: u64,
    /// Pages of regions bought thin, less [`THICK`] for each that was read since.
    thin: u64,
    /// Regions that have not ended, and the read that touched them when they got in line.
    line: VecDeque<(u64, (u8, u64))>,
    fills: Fills,
    places: Places,
}

impl Density {
    /// A random read of `pages` waited, or is expected to wait, `wait_ns`. Returns the region to buy, if one has paid:
    /// `price(region)` is how many of its pages are missing, and what fetching those would take in ns.
    pub(crate) fn read(
        &mut self,
        pages: Extent,
        wait_ns: u64,
        end_of_file: u64,
        terms: Terms,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> Option<(Extent, &'static str)> {
        self.reads += 1;
        self.worn.count(pages.count.0, wait_ns);
        let Terms { gaps_are_cheap, overlaps, rate_is_known, most } = terms;
        let thin_max = terms.thin_max();
        let mut bought = None;
        let mut part_paid_ns = None;
        for (s, scale) in SCALES.into_iter().enumerate() {
            let number = pages.start.0 / scale;
            let key = (s as u8, number);
            let now = self.reads;
            let region = self.regions.entry(key).or_default();
            region.count += 1;
            region.pages_read += pages.count.0;
            region.low = if region.count == 1 { pages.start.0 } else { region.low.min(pages.start.0) };
            region.high = region.high.max(pages.end().0);
            region.paid_ns = region.paid_ns.saturating_add(wait_ns);
            region.last = now;
            if !core::mem::replace(&mut region.in_line, true) {
                self.line.push_back((now, key));
            }
            let region = *region;
            let whole = on_grid(scale, number, end_of_file);
            if region.bought || whole.count.0 > most {
                continue;
            }
            let gathered =
                region.count >= GATHER_MIN && gathers(region.count, now, whole.count.0, end_of_file);
            let thick = self.fills.thick(s, gaps_are_cheap);
            let fills = self.fills.fill(s, gaps_are_cheap);
            let extent =
                if fills || scale < CLIPPED_MIN { whole } else { whole.intersection(region.surroundings()) };
            let thin = thick == THICK_FIRST && region.pages_read * THICK < whole.count.0;
            let thick = region.pages_read * thick >= whole.count.0 && self.spread(s, number, region.count);
            let (missing, price_ns) = if fills || thick && gathered { price(extent) } else { (0, u64::MAX) };
            // What was read and is gone is a gap as well.
            let unread = whole.count.0.saturating_sub(region.pages_read);
            if !gaps_are_cheap && NEW_DEAR.1 * unread < NEW_DEAR.0 * missing {
                continue;
            }
            // Pages that are still to be read of it, if it is like those before, and the waits that they would cost.
            let left = self.fills.pages(s).saturating_sub(region.pages_read - pages.count.0);
            let waits_ns = (left * region.count / region.pages_read.max(1)).saturating_mul(wait_ns);
            let proved = fills && waits_ns >= WORTH * price_ns;
            let missing = if thin && !proved { missing } else { 0 };
            let why = if proved {
                "R11 regions like this filled"
            } else if bought.is_none() && self.thin + missing <= thin_max && RENT * region.paid_ns >= price_ns
            {
                "R11 rent paid"
            } else {
                if thin && gathered && thick && !rate_is_known && scale > PART {
                    part_paid_ns = Some(region.paid_ns);
                }
                continue;
            };
            bought = Some((key, extent, why, missing, proved));
        }
        if let Some(paid_ns) = part_paid_ns
            && bought.is_none()
            && self.reads >= self.part_next
        {
            let s = SCALES.partition_point(|&scale| scale < PART);
            let number = pages.start.0 / PART;
            let extent = on_grid(PART, number, end_of_file);
            let (missing, price_ns) = price(extent);
            if RENT * paid_ns >= price_ns && self.thin + missing <= thin_max {
                self.part_next = self.reads + PART_READS;
                let why = "R11 a part, to learn the price";
                bought = Some(((s as u8, number), extent, why, missing, false));
            }
        }
        self.forget_old();
        if gaps_are_cheap && end_of_file / 4 <= most && self.worn.says_so(end_of_file, &price) {
            let region = self.wear(pages.start, overlaps, end_of_file);
            if region.is_some() {
                return region.map(|region| (region, "R11 worn"));
            }
        }
        let Some((key, extent, why, missing, proved)) = bought else {
            return self.buy_beside(pages, wait_ns, end_of_file, terms, price);
        };
        let region = self.regions.entry(key).or_default();
        self.places.bought(extent, region.count, region.pages_read, self.reads);
        let all = extent == on_grid(SCALES[usize::from(key.0)], key.1, end_of_file);
        (region.bought, region.thin) = (all, missing > 0);
        if !all {
            // What is left pays for itself anew.
            region.paid_ns = 0;
        }
        self.thin += missing;
        let most = most.saturating_sub(extent.count.0);
        let widens = proved && gaps_are_cheap;
        Some((if widens { self.widened(key, most, end_of_file) } else { extent }, why))
    }

    /// What is bought beside a place because of a read of `pages` there, if its rent comes to half of the price.
    fn buy_beside(
        &mut self,
        pages: Extent,
        wait_ns: u64,
        end_of_file: u64,
        terms: Terms,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> Option<(Extent, &'static str)> {
        let beside = self.places.beside(pages, self.reads, end_of_file)?;
        let s = SCALES.partition_point(|&scale| scale < beside.then.0).min(SCALES.len() - 1);
        let thick = beside.for_each <= self.fills.thick(s, terms.gaps_are_cheap);
        let (missing, price_ns) = price(beside.pages);
        let a_trip = terms.overlaps == Some(false);
        let paid = !a_trip && thick && missing > 0 && RENT * wait_ns >= price_ns;
        if !paid || beside.pages.count.0 > terms.most || self.thin + missing > terms.thin_max() {
            return None;
        }
        self.places.grown(beside, self.reads);
        self.thin += missing;
        Some((beside.pages, "R11 beside what was bought"))
    }

    /// What is bought of a worn file because of a read of `page`: all of it where requests overlap, nothing on a head, and while that is not
    /// known the smallest region, whose holes show it. Nothing twice.
    fn wear(&mut self, page: PageIndex, overlaps: Option<bool>, end_of_file: u64) -> Option<Extent> {
        let (s, bought) = match overlaps {
            Some(true) => (SCALES.len() - 1, Extent::new(0, end_of_file)),
            Some(false) => return None,
            None => (0, on_grid(SCALES[0], page.0 / SCALES[0], end_of_file)),
        };
        let scale = SCALES[s];
        if self.regions.get(&(s as u8, page.0 / scale)).is_some_and(|region| region.bought) {
            return None;
        }
        let numbers = bought.start.0 / scale..bought.end().0.div_ceil(scale);
        for number in numbers {
            let region = self.regions.entry((s as u8, number)).or_default();
            (region.bought, region.thin, region.last) = (true, true, self.reads);
        }
        self.thin += bought.count.0;
        Some(bought)
    }

    /// A region that fills with those beside it that will, as far as the like of it has shown: `most` pages more.
    fn widened(&mut self, (s, number): (u8, u64), most: u64, end_of_file: u64) -> Extent {
        let scale = SCALES[usize::from(s)];
        let side = self.fills.each_side(usize::from(s)).min(most / 2 / scale);
        let free = |n: &u64| n * scale < end_of_file && !self.regions.get(&(s, *n)).is_some_and(|r| r.bought);
        let first = (number.saturating_sub(side)..number).rev().take_while(free).last().unwrap_or(number);
        let last = (number + 1..=number + side).take_while(free).last().unwrap_or(number);
        let now = self.reads;
        for n in (first..=last).filter(|&n| n != number) {
            let region = self.regions.entry((s, n)).or_default();
            (region.bought, region.beside, region.last) = (true, true, now);
            if !core::mem::replace(&mut region.in_line, true) {
                self.line.push_back((now, (s, n)));
            }
        }
        let end = PageIndex(((last + 1) * scale).min(end_of_file));
        Extent::between(PageIndex(first * scale), end)
    }

    /// Regions in a row that filled, this one among them.
    fn row(&self, (s, number): (u8, u64)) -> u64 {
        let filled = |n: &u64| {
            let region = self.regions.get(&(s, *n));
            region.is_some_and(|region| Fills::counts_in_a_row(usize::from(s), region.pages_read))
        };
        let below = (number.saturating_sub(BESIDE_MAX)..number).rev().take_while(filled).count();
        let above = (number + 1..=number + BESIDE_MAX).take_while(filled).count();
        1 + below as u64 + above as u64
    }

    /// Whether at least three quarters of a region hold an eighth of its `count` reads each: else what is thick is a part of
    /// it, and bought as such.
    fn spread(&self, scale: usize, number: u64, count: u64) -> bool {
        let Some(smaller) = scale.checked_sub(1) else { return true };
        let quarters = (4 * number..4 * number + 4).filter_map(|n| self.regions.get(&(smaller as u8, n)));
        quarters.filter(|quarter| 8 * quarter.count >= count).count() >= 3
    }

    /// `pages` pages near `page` were read out of something bought: counts towards its regions' fill.
    pub(crate) fn served(&mut self, page: PageIndex, pages: u64) {
        if self.places.seen(page, self.reads) {
            self.thin = self.thin.saturating_sub(THICK * pages);
        }
        for (s, scale) in SCALES.into_iter().enumerate() {
            if let Some(region) = self.regions.get_mut(&(s as u8, page.0 / scale)) {
                region.pages_read += pages;
                region.last = self.reads;
                self.thin = self.thin.saturating_sub(if region.thin { THICK * pages } else { 0 });
            }
        }
    }

    /// The smallest region that was bought and holds `page`. O([`SCALES`] log regions).
    fn bought(&self, page: PageIndex) -> Option<(u8, u64)> {
        let keys = (0..).zip(SCALES.map(|scale| page.0 / scale));
        keys.into_iter().find(|key| self.regions.get(key).is_some_and(|region| region.bought))
    }

    /// That region.
    fn bought_mut(&mut self, page: PageIndex) -> Option<&mut Region> {
        let key = self.bought(page)?;
        self.regions.get_mut(&key)
    }

    /// Whether `page` lies in a region that was bought.
    pub(crate) fn was_bought(&self, page: PageIndex) -> bool {
        self.bought(page).is_some()
    }

    /// Pages are gone that nobody has read; whether they were bought. Nobody may come for them: that is known when somebody does.
    pub(crate) fn lost(&mut self, pages: Extent) -> bool {
        self.bought_mut(pages.start).map(|region| region.lost += pages.count.0).is_some()
    }

    /// Somebody has come for `page`, and it is not there: pages that were bought with it and were gone before anybody read them. Where memory
    /// has `room` and no more than a quarter of the region is gone, somebody took it, and it pays for itself anew.
    pub(crate) fn take_lost(&mut self, page: PageIndex, room: bool) -> u64 {
        let Some(key) = self.bought(page) else { return 0 };
        let Some(region) = self.regions.get_mut(&key) else { return 0 };
        if room && (1..=SCALES[usize::from(key.0)] / TAKEN_SHARE).contains(&region.lost) {
            (region.bought, region.paid_ns) = (false, 0);
        }
        core::mem::take(&mut region.lost)
    }

    /// Regions left alone for [`LEFT_ALONE`] reads have ended; what was read of them is a witness for their scale. O(1) a read:
    /// each region that has not ended stands in line once.
    fn forget_old(&mut self) {
        let reads = self.reads;
        while let Some(&(_, key)) = self.line.front().filter(|(touched, _)| touched + LEFT_ALONE <= reads) {
            self.line.pop_front();
            let Some(region) = self.regions.get_mut(&key) else { continue };
            if region.last + LEFT_ALONE > reads {
                self.line.push_back((region.last, key));
                continue;
            }
            region.in_line = false;
            if region.ended || !(region.bought || region.count >= GATHER_MIN) {
                continue;
            }
            region.ended = true;
            let s = usize::from(key.0);
            let (pages_read, beside) = (region.pages_read, region.beside);
            self.fills.ended(s, pages_read, beside);
            if Fills::counts_in_a_row(s, pages_read) {
                self.fills.in_a_row(s, self.row(key));
            }
        }
        if self.regions.len() > REGIONS_MAX {
            // The older half goes.
            let middle = self.regions.values().map(|r| r.last).sum::<u64>() / self.regions.len() as u64;
            self.regions.retain(|_, region| region.last >= middle);
        }
    }
}

/// Region number `number` of those of `scale` pages, as far as the file goes.
fn on_grid(scale: u64, number: u64, end_of_file: u64) -> Extent {
    let start = number * scale;
    Extent::between(PageIndex(start), PageIndex((start + scale).min(end_of_file)))
}

/// Whether `count` of `reads` reads in one region of `pages` pages are more than even reading of `end_of_file` pages would bring to
/// any such region: by Chernoff's bound it would with a chance of `regions * 2^-bits`,
/// `bits = count * log2(count / even) - (count - even) / ln 2`.
fn gathers(count: u64, reads: u64, pages: u64, end_of_file: u64) -> bool {
    let regions = end_of_file.div_ceil(pages.max(1)).max(1);
    let even_256 =
        (u128::from(256 * reads) * u128::from(pages) / u128::from(end_of_file.max(1))).max(1) as u64;
    let ratio_256 = (count << 16) / even_256;
    if ratio_256 <= 256 {
        return false;
    }
    // Quarters of a bit, rounded down; 6/4 is more than 1 / ln 2.
    let quarters = u64::from(u128::from(ratio_256.min(1 << 30)).pow(4).ilog2()) - 32;
    let even = even_256 / 256;
    count * quarters >= 6 * (count - even) + 4 * (CHANCE_BITS + u64::from(regions.ilog2()))
}

#[cfg(test)]
mod tests {
    use super::super::worn::WORN;
    use super::*;
    use crate::units::PageCount;

    const FREELY: Terms =
        Terms { gaps_are_cheap: true, overlaps: Some(true), rate_is_known: true, most: u64::MAX };

    /// 8 ms and 100 MB/s, as in the picture.
    fn hdd(region: Extent) -> (u64, u64) {
        (region.count.0, 8_000_000 + region.count.bytes().0 * 10)
    }

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
    }

    #[test]
    fn a_cluster_is_bought_once_it_has_paid() {
        let mut density = Density::default();
        let end = 1 << 22;
        let mut bought = alloc::vec::Vec::new();
        for (i, block) in [3u64, 90, 41, 77, 120, 60, 10, 100].into_iter().enumerate() {
            let pages = Extent::new(256 * 1000 + 2 * block, 2);
            bought.extend(density.read(pages, 8_000_000, end, FREELY, hdd).map(|b| (i + 1, b.0)));
        }
        assert_eq!(bought, [(4, Extent::new(256_000, 256))]);
    }

    #[test]
    fn what_is_thick_in_one_half_is_bought_in_that_half() {
        let mut density = Density::default();
        let (end, mut seed, mut bought) = (1 << 22, 7, alloc::vec::Vec::new());
        for _ in 0..200 {
            // Blocks of 8 KiB in the lower half of a region of 4 MiB.
            let pages = Extent::new(1_024_000 + random(&mut seed) % 256 * 2, 2);
            bought.extend(density.read(pages, 8_000_000, end, FREELY, hdd).map(|b| b.0));
        }
        let largest = bought.iter().map(|region| region.count.0).max();
        assert_eq!(largest, Some(256), "{bought:?}");
        assert!(bought.iter().all(|region| region.end() <= PageIndex(1_024_512)), "{bought:?}");
    }

    /// s3: 30 ms, 1 GB/s.
    fn bucket(region: Extent) -> (u64, u64) {
        (region.count.0, 30_000_000 + region.count.bytes().0)
    }

    #[test]
    fn the_thick_part_of_a_large_file_is_bought_after_some_ten_reads() {
        let (mut density, mut seed) = (Density::default(), 7);
        let numbers = |region: Extent| region.start.0..region.end().0;
        let mut held = alloc::collections::BTreeSet::new();
        let reads = (1..).find(|_| {
            // Blocks of 16 KiB of 64 MiB in 16 GiB.
            let pages = Extent::new((1 << 18) + random(&mut seed) % 4096 * 4, 4);
            let missing = |region: Extent| numbers(region).filter(|page| !held.contains(page)).count() as u64;
            let price = |region| (missing(region), 30_000_000 + missing(region) * 4096);
            let bought = density.read(pages, 30_000_000, 1 << 22, FREELY, price);
            held.extend(bought.into_iter().flat_map(|(region, _)| numbers(region)));
            held.len() == 16_384
        });
        assert!(reads.is_some_and(|reads| (4..16).contains(&reads)), "{reads:?}");
    }

    /// The example of the guess at the top.
    #[test]
    fn a_part_is_bought_to_learn_the_price() {
        let (mut density, mut seed) = (Density::default(), 7);
        let mut bought = alloc::vec::Vec::new();
        for read in 1..=7 {
            let rate_is_known = read > 6;
            let bytes_per_us = if rate_is_known { 1000 } else { 100 };
            let here = if rate_is_known { PART } else { 0 };
            let price = |region: Extent| {
                let missing = PageCount(region.count.0.saturating_sub(here));
                (missing.0, 30_000_000 + missing.bytes().0 * 1000 / bytes_per_us)
            };
            let pages = Extent::new((1 << 18) + random(&mut seed) % 4096 * 4, 4);
            let terms = Terms { rate_is_known, ..FREELY };
            let region = density.read(pages, 30_000_000, 1 << 22, terms, price);
            bought.extend(region.map(|(region, _)| (read, region.count.0)));
        }
        assert_eq!(bought, [(4, 1024), (7, 16_384)]);
    }

    #[test]
    fn clusters_that_turned_out_thin_are_bought_no_more() {
        let mut density = Density::default();
        let (end, mut seed, mut bought) = (1 << 22, 7, alloc::vec::Vec::new());
        for cluster in 0..256 {
            // Sixteen pages of 16 MiB.
            let start = random(&mut seed) % (end / 4096) * 4096;
            for _ in 0..16 {
                let pages = Extent::new(start + random(&mut seed) % 4096, 1);
                bought.extend(density.read(pages, 30_000_000, end, FREELY, bucket).map(|_| cluster));
            }
        }
        let late = bought.iter().filter(|&&cluster| cluster >= 16).count();
        assert!(bought.len() > late && late <= 2, "{bought:?}");
    }

    #[test]
    fn a_cluster_across_the_grid_is_bought_at_two_places_and_not_at_five() {
        let (mut density, mut seed) = (Density::default(), 7);
        let (mut waits, mut read, mut bought) = (0, 0, 0);
        for cluster in 0..200 {
            // Half of the 72 blocks of 16 KiB in 288 pages, each once, in random order.
            let start = random(&mut seed) % (1 << 20) * 4;
            let mut blocks: alloc::vec::Vec<u64> = (0..72).collect();
            (1..72).rev().for_each(|i| blocks.swap(i, (random(&mut seed) % (i as u64 + 1)) as usize));
            let mut held: alloc::vec::Vec<Extent> = alloc::vec::Vec::new();
            for block in blocks.into_iter().take(36) {
                let pages = Extent::new(start + 4 * block, 4);
                let settled = cluster >= 16;
                read += if settled { 4 } else { 0 };
                if held.iter().any(|region| region.contains(pages.start)) {
                    density.served(pages.start, 4);
                    continue;
                }
                let region = density.read(pages, 30_000_000, 1 << 23, FREELY, bucket).map(|b| b.0);
                waits += u64::from(settled);
                bought += region.filter(|_| settled).map_or(4, |region| region.count.0);
                held.extend(region);
            }
        }
        // Five regions of 64 pages would be five waits and more.
        assert!(waits <= 184 * 11 / 4, "{waits} waits for 184 clusters");
        assert!(4 * bought <= 13 * read, "{bought} pages for {read}");
    }

    #[test]
    fn a_small_file_far_away_is_bought_once_it_is_worn() {
        // Random pages of 80 MB: on s3, by one connection, it is; on nfs (1 ms, 250 MB/s) its price is 330 waits.
        let s3 = |region: Extent| (region.count.0, 30_000_000 + region.count.0 * 40_960);
        let nfs = |region: Extent| (region.count.0, 1_000_000 + region.count.0 * 16_384);
        let end = 20_000;
        let bought_by = |wait_ns, most, overlaps, price: &dyn Fn(Extent) -> (u64, u64)| {
            let (mut density, mut seed) = (Density::default(), 7);
            let mut bought = alloc::vec::Vec::new();
            for read in 0..300 {
                let page = Extent::new(random(&mut seed) % end, 1);
                bought.extend(
                    density
                        .read(page, wait_ns, end, Terms { most, overlaps, ..FREELY }, price)
                        .map(|b| (read, b.0.count.0)),
                );
            }
            bought
        };
        let far = Some(true);
        assert_eq!(bought_by(30_000_000, end, far, &s3), [(39, 20_000)], "with the fortieth read");
        assert_eq!(bought_by(1_000_000, end, far, &nfs), []);
        // Nor where memory does not hold it, nor by a head.
        assert_eq!(bought_by(30_000_000, end / 5, far, &s3), []);
        assert_eq!(bought_by(30_000_000, end, Some(false), &s3), []);
        let to_know = bought_by(30_000_000, end, None, &s3);
        assert!(to_know.len() > 8 && to_know.iter().all(|b| b.1 <= 64), "{to_know:?}");
        // Nor is a large file worn, however much of it was read at random.
        let (mut density, mut seed, large) = (Density::default(), 7, 2 * THIN_MAX + 1);
        let touches = (0..large / 64).map(|_| Extent::new(random(&mut seed) % large, 1));
        let bought: u64 = touches
            .filter_map(|page| density.read(page, 30_000_000, large, FREELY, s3))
            .map(|b| b.0.count.0)
            .sum();
        assert!(bought <= 256, "{bought} pages");
    }

    #[test]
    fn of_a_large_region_no_more_is_bought_than_is_read() {
        // Blocks of 16 KiB, in random order, of 52 of 64 MiB on hdd.
        let (mut density, mut seed) = (Density::default(), 7);
        let (start, pages) = (16_384 * 10 + 3000, 13_312);
        let mut held = alloc::collections::BTreeSet::new();
        let numbers = |region: Extent| region.start.0..region.end().0;
        let (mut waits, mut largest) = (0, 0);
        for _ in 0..20_000 {
            let page = Extent::new(start + random(&mut seed) % (pages / 4) * 4, 4);
            if numbers(page).all(|p| held.contains(&p)) {
                continue;
            }
            waits += 1;
            let missing = |region: Extent| numbers(region).filter(|p| !held.contains(p)).count() as u64;
            let price = |region| (missing(region), 8_000_000 + missing(region) * 40_960);
            let bought = density.read(page, 8_000_000, 1 << 22, FREELY, price).map_or(page, |b| b.0);
            largest = largest.max(bought.count.0);
            held.extend(numbers(bought));
        }
        assert!(largest > 4096 && largest < 16_384, "{largest}");
        let beyond = held.len() as u64 - pages;
        assert!(waits < 100 && beyond < pages / 10, "{waits} waits, {beyond} pages beyond {pages}");
    }

    #[test]
    fn where_gaps_are_dear_an_eighth_is_read_before_the_first_are_bought() {
        let mut density = Density::default();
        let dear = Terms { gaps_are_cheap: false, ..FREELY };
        let mut bought_after = |region: u64, reads: u64| {
            // Every fourth page, from a quarter of 256 KiB to the next.
            let pages = (0..reads).map(|i| Extent::new(region * 64 + i % 4 * 16 + i / 4 * 4, 1));
            let price = |region: Extent| (region.count.0, 1);
            pages.filter(|&p| density.read(p, 80_000, 1 << 22, dear, price).is_some()).count()
        };
        assert_eq!(bought_after(1000, 7), 0);
        assert_eq!(bought_after(2000, 8), 1);
        // Of three such that ended not two fifths were read: then half must have been.
        (0..4).for_each(|i| {
            bought_after(3000 + 100 * i, 16);
        });
        assert_eq!(bought_after(8000, 16), 0);
    }

    #[test]
    fn where_gaps_are_dear_what_was_read_and_is_gone_is_one() {
        let dear = Terms { gaps_are_cheap: false, ..FREELY };
        // 24 pages of 64 are read, six in each quarter; the price is right only then.
        let bought = |missing: u64| {
            let mut density = Density::default();
            let pages = (0..24).map(|i| Extent::new(64_000 + i % 4 * 16 + i / 4, 1));
            let last = pages.enumerate().map(|(i, p)| {
                let price = |_: Extent| (missing, if i == 23 { 1 } else { u64::MAX });
                density.read(p, 80_000, 1 << 22, dear, price)
            });
            last.last().flatten().map(|(region, _)| region)
        };
        assert_eq!(bought(40), Some(Extent::new(64_000, 64)), "what was read is there: 40 of 40 are new");
        assert_eq!(bought(53), Some(Extent::new(64_000, 64)), "40 of 53");
        assert_eq!(bought(64), None, "40 of 64");
    }

    #[test]
    fn chance_gathers_nothing_however_small_the_file() {
        // From 64 MiB to 64 GiB, at a price of nothing, as long as the file is not worn.
        for (seed, end) in (14..=24).flat_map(|bits| (1..=8).map(move |seed| (seed, 1 << bits))) {
            let (mut density, mut state) = (Density::default(), seed);
            for read in 0..4096.min(end / WORN - 1) {
                let page = Extent::new(random(&mut state) % end, 1);
                let bought = density.read(page, 8_000_000, end, FREELY, |region| (region.count.0, 1));
                assert_eq!(bought, None, "read {read} of seed {seed} in {end} pages");
            }
        }
    }

    #[test]
    fn a_region_that_is_most_of_its_file_gathers_no_more_than_its_part() {
        // 16,384 of 20,133 pages get four reads of five, and not one of two.
        for seed in 1..=64 {
            let (mut density, mut state, end) = (Density::default(), seed, 20_133);
            for read in 0..1000 {
                let page = Extent::new(random(&mut state) % end, 1);
                let terms = Terms { overlaps: Some(false), ..FREELY };
                let bought = density.read(page, 8_000_000, end, terms, |region| (region.count.0, 1));
                assert_eq!(bought, None, "read {read} of seed {seed}");
            }
        }
    }

    #[test]
    fn a_uniformly_random_reader_buys_nothing() {
        let mut density = Density::default();
        let end = 3 << 20; // 12 GiB
        let mut seed = 7;
        for _ in 0..8192 {
            let page = random(&mut seed) % end;
            assert_eq!(density.read(Extent::new(page, 1), 8_000_000, end, FREELY, hdd), None);
        }
    }
}
