//! R11: where reads fall thick, buy the region; pay for it first.
//!
//! Ski rental: a reader that misses at random rents, one device latency a read. Once the rent paid inside a region comes
//! to half of the price of fetching what is missing of it, the region is bought: who reads on has paid one and a half times the least, and
//! who stops just then three times what he rented. Of the regions that a page lies in (grids.rs) the smallest that has paid is bought, or
//! the largest whose like have proved themselves.
//!
//! ```text
//! hdd (8 ms, 100 MB/s), region of 1 MiB (8 ms + 10.5 ms), blocks of 8 KiB in random order
//!   read 1   rent  8 ms
//!   read 3   rent 24 ms >= 9.2 ms, but three reads do not gather yet
//!   read 4   rent 32 ms, 8 of 256 pages, in three of the four quarters -> buy [region)
//! ```
//!
//! Three guards keep a uniformly random reader from buying anything, and other readers from buying too much. In a region that is bought
//!
//! - the reads *gather*: they are four at least, and more than chance would bring to any region of a file that is read evenly (chance.rs);
//! - they lie *thick*: as much of the region was read as is asked of its like, of which those that ended say how thick they were (fills.rs). Where
//!   those filled, the first read in it buys it, with those beside it;
//! - they are *spread*: three of its quarters hold an eighth of the reads each. Else a part of it is thick, and that is bought.
//!
//! Of a region of 16 MiB and more no more is bought than from its lowest read to its highest, and twice as far beyond as its reads lie apart on
//! average; but all of it if the device is no head and the rest comes in a quarter of a wait. Where a gap costs more than a request of its own (an
//! SSD), a page that was read and is gone again is a gap as well: three quarters of what is fetched must be new.
//!
//! Where its readers go on beside what was bought, that is bought as well (beside.rs). What a single reader has gone through in order, upwards or
//! downwards, is not: what is left of it lies behind him, and what lies before him is read through where that pays (hops.rs). A head buys it
//! even so, to whom a hop is a way, but for what lies behind who goes one way through the file (going.rs).
//!
//! What those before were like says nothing of a reader who has gone on to something else. So regions are bought at their first read only while no
//! more than 4 MiB are still to be read of such, if they are like those before.
//!
//! ```text
//! 40 clusters of 1 MiB, 192 of 256 pages read of each     the next is bought at its first read: 192 to read
//!   48 blocks of 4 pages are read of it                   nothing to read
//! one read in each of 60 places elsewhere                 192 more each, some of it forgiven for clusters that end meanwhile: the seventh is not
//!                                                         bought so any more, and pays for itself as the first did
//! ```
//!
//! A price reckoned with a guess is not believed. Where nothing was carried yet, three reads that gather in two quarters of a region buy
//! the part around the last of them once the rent of the whole comes to half of its price, 4 MiB: it says what the device carries, and when it
//! has arrived the whole is looked at again.
//!
//! ```text
//! s3 (30 ms, 1 GB/s, not known), 64 MiB in random order: 30 ms + 671 ms by the guess of 100 MB/s, 30 ms + 138 ms by four requests
//!   read 4   rent 120 ms >= (30 ms + 42 ms) / 2 -> buy 4 MiB     read 5    it arrives, after 30 ms + 6 ms
//!            rent 150 ms >= (30 ms + 138 ms) / 2 -> buy the rest
//! ```
//!
//! Reads that gather nowhere buy nothing, until the file is worn (worn.rs). Where requests overlap all of it is bought then. While
//! nobody has seen whether they do, 256 KiB around each read show it: two requests that come together, or one after the other. To a head each page that
//! was read is a hole in what is left, and a way of its own (worn.rs).

use crate::units::{Extent, PageIndex};
use crate::wave::footprint::entries;
use crate::wave::regions::beside::Places;
use crate::wave::regions::chance::gathers;
use crate::wave::regions::fills::{Fills, THICK, THICK_FIRST};
use crate::wave::regions::going::Going;
use crate::wave::regions::grids::{self, GRIDS, Key, LARGEST};
use crate::wave::regions::region::Region;
use crate::wave::regions::worn::Worn;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::mem::size_of;

/// A region is bought once so many times the rent paid in it come to its price.
const RENT: u64 = 2;
/// Of a region of so many pages and more, 16 MiB, no more is bought than what surrounds its reads (region.rs).
const CLIPPED_MIN: u64 = 4096;
/// Its ends are bought with what surrounds its reads if both come in one part in so many of a wait.
const ENDS: u64 = 4;
/// Reads gather where a region has at least so many of them, and more than chance would bring there (chance.rs).
const GATHER_MIN: u64 = 4;
/// Reads are spread where so many quarters of a region hold an eighth of them each.
const QUARTERS: usize = 3;
/// So many reads that gather in a region say that its price is worth knowing, if they are spread over [`PART_QUARTERS`].
const PART_MIN: u64 = 3;
/// So many quarters of a region must hold an eighth of its reads each, if its price is to be worth knowing.
const PART_QUARTERS: usize = 2;
/// Regions watched in a file; when there are more, those read longest ago go.
const REGIONS_MAX: usize = 4096;
/// Where gaps are dear, so much of what is fetched must not have been read: three quarters.
const NEW_DEAR: (u64, u64) = (3, 4);
/// Pages of thin regions that may be bought before any of them is read, the largest region or 64 MiB, and no more than a quarter of what memory
/// holds; each page read out of them lets as many more be bought as one in [`THICK`] is worth.
const THIN_MAX: u64 = 16_384;
/// Regions are bought at their first read, as their like filled, while no more than so many pages are still to be read of such, 4 MiB, or none: a
/// reader that has gone on to read elsewhere at random shows it with the first of them, and not after dozens.
const AT_ONCE_MAX: u64 = 1024;
/// One page in so many that were read of a region that filled is forgiven beside.
const FORGIVEN: u64 = 8;
/// Pages of the part that is bought to learn what the device carries.
const PART: u64 = 1024;
/// Why that part is bought.
const LEARNS: &str = "R11 a part, to learn the price";
/// Reads from one such part to the next at least: it has arrived long before.
const PART_READS: u64 = 8;
/// A region that fills is bought at once if the waits that it saves are worth so many times its price.
const WORTH: u64 = 2;
/// Regions in a row that are counted, and bought, to each side of one.
const BESIDE_MAX: u64 = 16;
/// Of a region that lost no more than one page in so many, where there is room, somebody took them for reasons of his own.
const TAKEN_SHARE: u64 = 4;
/// Reads that are remembered until somebody knows what a wait is: the first read of each of so many threads.
const OWING_MAX: usize = 64;
/// Of so many of the latest reads that paid it can turn out that they were of a run: a look is two of them, and few come between.
const PAID_LATELY: usize = 8;
/// Reads elsewhere after which a region has ended.
const LEFT_ALONE: u64 = 32;

/// On what terms regions are bought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// What a random read waits, or is expected to wait.
    pub(crate) wait_ns: u64,
    /// Pages of the file.
    pub(crate) end_of_file: u64,
    /// A gap costs no more than a request of its own.
    pub(crate) gaps_are_cheap: bool,
    /// Whether requests overlap, where that was seen.
    pub(crate) overlaps: Option<bool>,
    /// Whether the bytes a second that a price is reckoned with were seen, and are no guess.
    pub(crate) rate_is_known: bool,
    /// Pages of a region at most: a quarter of what memory holds; none while what was bought has not paid for itself (account.rs).
    pub(crate) most: u64,
    /// One reader reads the file.
    pub(crate) alone: bool,
}

impl Terms {
    /// Whether requests were seen not to overlap: each is a trip.
    fn is_head(&self) -> bool {
        self.overlaps == Some(false)
    }

    /// Pages of thin regions that may be out before any of them is read.
    fn thin_max(&self) -> u64 {
        THIN_MAX.min(self.most)
    }
}

/// A region, or what is worth having of it, and its price.
#[derive(Clone, Copy, Debug)]
struct Offer {
    key: Key,
    extent: Extent,
    /// Pages of it that would be bought thin.
    thin: u64,
    /// What fetching it takes; `u64::MAX` while reads are too few, or keep to a part of it.
    price_ns: u64,
    /// What was paid in the region.
    paid_ns: u64,
    /// Those like it filled, and what is left to be read of it is worth its price.
    proved: bool,
    /// What was read of it says that its price is worth knowing.
    tells: bool,
}

/// Random reads of one file, by region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Density {
    regions: BTreeMap<Key, Region>,
    reads: u64,
    worn: Worn,
    /// Reads that waited before anybody knew for how long.
    owing: Vec<Extent>,
    /// The latest reads that paid, and what.
    paid_lately: VecDeque<(Extent, u64)>,
    /// The latest read, if its price was a guess and it bought nothing but a part to learn it.
    unpriced: Option<Extent>,
    /// The read from which on a part may be bought to learn the price.
    part_next: u64,
    /// Pages of regions bought thin, less [`THICK`] for each that was read since.
    thin: u64,
    /// Pages still to be read of regions bought at their first read, if they are like those before.
    at_once: u64,
    /// Regions that have not ended, and the read that touched them when they got in line.
    line: VecDeque<(u64, Key)>,
    fills: Fills,
    places: Places,
    going: Going,
}

impl Density {
    /// Bytes that it takes, about.
    pub(in crate::wave) fn bytes_of_memory(&self) -> usize {
        entries::<Key, Region>(self.regions.len())
            + self.owing.capacity() * size_of::<Extent>()
            + self.line.capacity() * size_of::<(u64, Key)>()
            + self.paid_lately.capacity() * size_of::<(Extent, u64)>()
    }

    /// A random read of `pages` waited, or is expected to wait. Returns the region to buy, if one has paid: `price(region)` is how many of
    /// its pages are missing, and what fetching those would take in ns.
    pub(crate) fn read(
        &mut self,
        pages: Extent,
        terms: Terms,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> Option<(Extent, &'static str)> {
        for read in core::mem::take(&mut self.owing).into_iter().chain([pages]) {
            self.count(read, terms.wait_ns);
        }
        let bought = self.buys(pages, terms, &price);
        let bought = bought.or_else(|| self.buy_beside(pages, terms, &price));
        let learns = bought.is_none_or(|(_, why)| why == LEARNS);
        self.unpriced = (learns && !terms.rate_is_known).then_some(pages);
        bought
    }

    /// Whether the price of the latest read was a guess, and it bought nothing but a part to learn it.
    pub(crate) fn is_unpriced(&self) -> bool {
        self.unpriced.is_some()
    }

    /// That read, to see once what it buys ([`Self::buys`]) when what the device carries is known.
    pub(crate) fn take_unpriced(&mut self) -> Option<Extent> {
        self.unpriced.take()
    }

    /// A random read waited while nobody knew for how long: it pays with the next.
    pub(crate) fn owes(&mut self, pages: Extent) {
        if self.owing.len() < OWING_MAX {
            self.owing.push(pages);
        }
    }

    /// So many random reads of single pages, nobody knows where, have paid `wait_ns` each.
    pub(crate) fn wears(&mut self, reads: u64, wait_ns: u64) {
        self.worn.count_all(reads, reads, wait_ns.saturating_mul(reads));
    }

    /// A random read of `pages` has paid so much.
    fn count(&mut self, pages: Extent, wait_ns: u64) {
        self.reads += 1;
        self.worn.count_all(1, pages.count.0, wait_ns);
        self.going.read(pages.start);
        if self.paid_lately.len() == PAID_LATELY {
            self.paid_lately.pop_front();
        }
        self.paid_lately.push_back((pages, wait_ns));
        for grid in 0..GRIDS {
            let key = grids::holding(grid, pages.start);
            let region = self.regions.entry(key).or_default();
            region.paid(pages, wait_ns, self.reads);
            if !core::mem::replace(&mut region.in_line, true) {
                self.line.push_back((self.reads, key));
            }
        }
    }

    /// Those of the latest reads that touched `pages` were of a run, as has turned out: what follows such is fetched with it, and no region need be
    /// bought for them. O([`PAID_LATELY`] [`GRIDS`] log regions).
    pub(crate) fn takes_back(&mut self, pages: Extent) {
        self.paid_lately.retain(|&(read, wait_ns)| {
            let stays = read.intersection(pages).is_empty();
            if !stays {
                self.worn.takes_back(read.count.0, wait_ns);
                for grid in 0..GRIDS {
                    if let Some(region) = self.regions.get_mut(&grids::holding(grid, read.start)) {
                        region.takes_back(read, wait_ns);
                    }
                }
            }
            stays
        });
    }

    /// What the reads counted so far buy, the latest of which was of `pages`.
    pub(crate) fn buys(
        &mut self,
        pages: Extent,
        terms: Terms,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> Option<(Extent, &'static str)> {
        let bought = self.takes(pages, terms, &price);
        self.forget_old();
        let end_of_file = terms.end_of_file;
        let going = self.going.is_one_way(terms.is_head());
        // Many readers pay at once, and gaps may be dear to them all the same.
        let waits = terms.gaps_are_cheap || terms.alone;
        let fits = end_of_file / 4 <= terms.most;
        if waits && !going && fits && self.worn.says_so(end_of_file, terms.overlaps, &price) {
            let region = self.wear(pages.start, terms.overlaps, end_of_file);
            if region.is_some() {
                return region.map(|region| (region, "R11 a file read all over"));
            }
        }
        let (offer, why) = bought?;
        Some((self.buy(offer, terms), why))
    }

    /// Which offer is taken: of the regions that the latest read lies in the largest whose like have proved themselves, or the smallest that has
    /// paid; or a part of one, to learn its price.
    fn takes(
        &mut self,
        pages: Extent,
        terms: Terms,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> Option<(Offer, &'static str)> {
        let mut taken = None;
        let mut part_paid_ns = None;
        for offer in (0..GRIDS).filter_map(|grid| self.offer(grid, pages, terms, &price)) {
            if offer.proved {
                taken = Some((offer, "R11 regions like this filled"));
            } else if taken.is_none()
                && self.thin + offer.thin <= terms.thin_max()
                && RENT * offer.paid_ns >= offer.price_ns
            {
                taken = Some((offer, "R11 rent paid"));
            } else if offer.tells && !terms.rate_is_known {
                part_paid_ns = Some(offer.paid_ns);
            }
        }
        if taken.is_none() && self.reads >= self.part_next {
            let part = part_paid_ns.and_then(|paid_ns| self.part(pages.start, terms, paid_ns, &price));
            taken = part.map(|part| (part, LEARNS));
        }
        taken
    }

    /// What the region of a grid that the latest read, of `pages`, lies in would cost, and what speaks for it; `None` where it is out of the question.
    fn offer(
        &self,
        grid: usize,
        pages: Extent,
        terms: Terms,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> Option<Offer> {
        let Terms { wait_ns, end_of_file, gaps_are_cheap, .. } = terms;
        let key = grids::holding(grid, pages.start);
        let region = self.regions.get(&key)?;
        let whole = grids::extent(key, end_of_file);
        let one_way = self.going.is_one_way_in(*region, terms.is_head());
        let swept = terms.alone && !terms.is_head() && (one_way || region.swept());
        if region.bought || swept || whole.is_empty() || whole.count.0 > terms.most {
            return None;
        }
        let gathers =
            region.count >= PART_MIN && gathers(region.count, self.reads, whole.count.0, end_of_file);
        let thick = self.fills.thick(grid, gaps_are_cheap);
        let fills = self.fills.fill(grid, gaps_are_cheap);
        let holds = region.pages_read * thick >= whole.count.0;
        let spread = if holds { self.spread(key, region.count) } else { 0 };
        let (extent, missing, price_ns) =
            if fills || spread >= QUARTERS && gathers && region.count >= GATHER_MIN {
                let whole_at_once = fills || grids::pages(grid) < CLIPPED_MIN;
                let extent = if whole_at_once { whole } else { whole.intersection(region.surroundings()) };
                if one_way {
                    let extent = self.going.before_him(pages, extent);
                    priced(extent, extent, terms, price)
                } else {
                    priced(extent, whole, terms, price)
                }
            } else {
                (whole, 0, u64::MAX)
            };
        // What was read and is gone is a gap as well.
        let unread = whole.count.0.saturating_sub(region.pages_read);
        if !gaps_are_cheap && NEW_DEAR.1 * unread < NEW_DEAR.0 * missing {
            return None;
        }
        // Pages that are still to be read of it, if it is like those before, and the waits that they would cost.
        let left = self.fills.pages(grid).saturating_sub(region.pages_read - pages.count.0);
        let waits_ns = (left * region.count / region.pages_read.max(1)).saturating_mul(wait_ns);
        let vouched = self.at_once == 0 || self.at_once + self.fills.pages(grid) <= AT_ONCE_MAX;
        let proved = fills && vouched && waits_ns >= WORTH * price_ns;
        let is_thin = thick == THICK_FIRST && region.pages_read * THICK < whole.count.0;
        let thin = if is_thin && !proved { missing } else { 0 };
        let tells = is_thin && gathers && spread >= PART_QUARTERS && grids::pages(grid) > PART;
        Some(Offer { key, extent, thin, price_ns, paid_ns: region.paid_ns, proved, tells })
    }

    /// The part around `page` that is bought to learn what the device carries, if what was paid in its region comes to half of its price.
    fn part(
        &mut self,
        page: PageIndex,
        terms: Terms,
        paid_ns: u64,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> Option<Offer> {
        let key = grids::holding(grids::at_least(PART), page);
        let extent = grids::extent(key, terms.end_of_file);
        let (missing, price_ns) = price(extent);
        if RENT * paid_ns < price_ns || self.thin + missing > terms.thin_max() {
            return None;
        }
        self.part_next = self.reads + PART_READS;
        Some(Offer { key, extent, thin: missing, price_ns, paid_ns, proved: false, tells: false })
    }

    /// An offer is taken. Returns what is fetched: a region whose like filled with those beside it.
    fn buy(&mut self, offer: Offer, terms: Terms) -> Extent {
        let Offer { key, extent, thin, .. } = offer;
        let region = self.regions.entry(key).or_default();
        self.places.bought(extent, region.count, region.pages_read, self.reads);
        let all = extent == grids::extent(key, terms.end_of_file);
        (region.bought, region.thin) = (all, thin > 0);
        if !all {
            // What is left pays for itself anew.
            region.paid_ns = 0;
        }
        self.thin += thin;
        if !offer.proved {
            return extent;
        }
        (region.at_once, region.to_read) = (true, self.fills.pages(key.0));
        self.at_once += region.to_read;
        if !terms.gaps_are_cheap {
            return extent;
        }
        self.widened(key, terms.most.saturating_sub(extent.count.0), terms.end_of_file)
    }

    /// What is bought beside a place because of a read of `pages` there, if its rent comes to half of the price.
    fn buy_beside(
        &mut self,
        pages: Extent,
        terms: Terms,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> Option<(Extent, &'static str)> {
        let most = terms.most.min(terms.thin_max().saturating_sub(self.thin));
        let beside = self.places.beside(pages, self.reads, terms.end_of_file, most)?;
        let for_each_max = self.fills.thick(grids::at_least(beside.then.0), terms.gaps_are_cheap);
        let (missing, price_ns) = price(beside.pages);
        if terms.is_head() || beside.for_each > for_each_max || missing == 0 {
            return None;
        }
        if RENT * self.places.pays(beside, terms.wait_ns) < price_ns {
            return None;
        }
        self.places.grown(beside, self.reads);
        self.thin += missing;
        Some((beside.pages, "R11 beside what was bought"))
    }

    /// What is bought of a worn file because of a read of `page`: all of it, and while nobody knows whether requests
    /// overlap the smallest region, whose holes show it. Nothing twice.
    fn wear(&mut self, page: PageIndex, overlaps: Option<bool>, end_of_file: u64) -> Option<Extent> {
        let (grid, bought) = match overlaps {
            Some(_) => (LARGEST, Extent::new(0, end_of_file)),
            None => (0, grids::extent(grids::holding(0, page), end_of_file)),
        };
        if bought.is_empty() || self.regions.get(&grids::holding(grid, page)).is_some_and(|r| r.bought) {
            return None;
        }
        let last = PageIndex(bought.end().0 - 1);
        for number in grids::holding(grid, bought.start).1..=grids::holding(grid, last).1 {
            let region = self.regions.entry((grid, number)).or_default();
            (region.bought, region.thin, region.last) = (true, true, self.reads);
        }
        self.thin += bought.count.0;
        Some(bought)
    }

    /// A region that fills with those beside it that will, as far as the like of it has shown: `most` pages more.
    fn widened(&mut self, (grid, number): Key, most: u64, end_of_file: u64) -> Extent {
        let side = self.fills.each_side(grid).min(most / 2 / grids::pages(grid));
        let extent = |number| grids::extent((grid, number), end_of_file);
        let free = |n: &u64| {
            !extent(*n).is_empty() && !self.regions.get(&(grid, *n)).is_some_and(|region| region.bought)
        };
        let first = (number.saturating_sub(side)..number).rev().take_while(free).last().unwrap_or(number);
        let last = (number + 1..=number + side).take_while(free).last().unwrap_or(number);
        let now = self.reads;
        for n in (first..=last).filter(|&n| n != number) {
            let region = self.regions.entry((grid, n)).or_default();
            (region.bought, region.beside, region.last) = (true, true, now);
            (region.at_once, region.to_read) = (true, self.fills.pages_beside(grid));
            self.at_once += region.to_read;
            if !core::mem::replace(&mut region.in_line, true) {
                self.line.push_back((now, (grid, n)));
            }
        }
        extent(first).hull(extent(last))
    }

    /// Regions in a row that filled, this one among them.
    fn row(&self, (grid, number): Key) -> u64 {
        let filled = |n: &u64| {
            let region = self.regions.get(&(grid, *n));
            region.is_some_and(|region| Fills::counts_in_a_row(grid, region.pages_read))
        };
        let below = (number.saturating_sub(BESIDE_MAX)..number).rev().take_while(filled).count();
        let above = (number + 1..=number + BESIDE_MAX).take_while(filled).count();
        1 + below as u64 + above as u64
    }

    /// How many quarters of a region hold an eighth of its `count` reads each: where they are not three what is thick is a part of
    /// it, and bought as such.
    fn spread(&self, region: Key, count: u64) -> usize {
        let Some(quarters) = grids::quarters(region) else { return 4 };
        quarters.filter_map(|key| self.regions.get(&key)).filter(|quarter| 8 * quarter.count >= count).count()
    }

    /// `pages` pages near `page` were read out of something bought: counts towards its regions' fill.
    pub(crate) fn served(&mut self, page: PageIndex, pages: u64) {
        if self.places.seen(page, self.reads) {
            self.thin = self.thin.saturating_sub(THICK * pages);
        }
        for grid in 0..GRIDS {
            if let Some(region) = self.regions.get_mut(&grids::holding(grid, page)) {
                region.pages_read += pages;
                region.last = self.reads;
                self.thin = self.thin.saturating_sub(if region.thin { THICK * pages } else { 0 });
                if region.at_once {
                    self.at_once = self.at_once.saturating_sub(pages);
                    region.to_read = region.to_read.saturating_sub(pages);
                }
            }
        }
    }

    /// The smallest region that was bought and holds `page`. O([`GRIDS`] log regions).
    fn bought(&self, page: PageIndex) -> Option<Key> {
        (0..GRIDS)
            .map(|grid| grids::holding(grid, page))
            .find(|key| self.regions.get(key).is_some_and(|region| region.bought))
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
        if room && (1..=grids::pages(key.0) / TAKEN_SHARE).contains(&region.lost) {
            (region.bought, region.paid_ns) = (false, 0);
        }
        core::mem::take(&mut region.lost)
    }

    /// Regions left alone for [`LEFT_ALONE`] reads have ended; what was read of them is a witness for their grid. O(1) a read:
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
            let grid = key.0;
            let (pages_read, beside) = (region.pages_read, region.beside);
            self.fills.ended(grid, pages_read, beside);
            if Fills::counts_in_a_row(grid, pages_read) {
                // What is left of it was not to be read, and a little more is forgiven: what others had beyond it was not counted.
                let forgiven = core::mem::take(&mut region.to_read) + pages_read / FORGIVEN;
                self.at_once = self.at_once.saturating_sub(forgiven);
                self.fills.in_a_row(grid, self.row(key));
            }
        }
        if self.regions.len() > REGIONS_MAX {
            // The older half goes.
            let middle = self.regions.values().map(|r| r.last).sum::<u64>() / self.regions.len() as u64;
            self.regions.retain(|_, region| region.last >= middle);
        }
    }
}

/// What is bought of a region, `extent` or the whole, with the pages that are missing of it and what they take in ns: the whole if that takes at most
/// a quarter of a wait longer; but not by a head, which would do nothing else meanwhile.
fn priced(
    extent: Extent,
    whole: Extent,
    terms: Terms,
    price: impl Fn(Extent) -> (u64, u64),
) -> (Extent, u64, u64) {
    let part = price(extent);
    let all = (extent != whole && !terms.is_head())
        .then(|| price(whole))
        .filter(|all| all.1 <= part.1 + terms.wait_ns / ENDS);
    let (extent, (missing, price_ns)) = all.map_or((extent, part), |all| (whole, all));
    (extent, missing, price_ns)
}

#[cfg(test)]
mod tests;
