//! R11: what is bought ends where the grid does, and its readers go on: what lies beside it is bought with their first read there.
//!
//! Regions lie on grids (grids.rs), what is read does not. Of 21 MiB in random order the 16 in one region are bought after some reads; those
//! that fall in the next begin anew there, four for each of the ever smaller regions that they fill. But what was bought because its reads
//! lay thick says how thick: where the next read beside it lies no farther from it than half of its length, it is the same place.
//!
//! ```text
//! bought [262144, 266240), after five reads: one in 819 pages            4096 pages
//! read    266476           236 pages behind it, no more than 2048: bought [266240, 268118), twice 819 pages beyond the read
//! read    267280           is there
//! ```
//!
//! It must be as thick as any region must be of its like (fills.rs): where those have ended and little of them was read, so it was of what lies
//! beside them. The rent of that one read must come to half of the price, as always, or that of all that were made there since. A head buys
//! nothing so: what it carries in the time of one read is little, and a trip.
//!
//! And it must be no chance. Who reads a file of 3 GiB evenly comes to the 4096 pages beside what was bought of it, 2048 on either side, once in
//! 192 reads. After 24 reads elsewhere, since somebody was seen in what was bought, one has come beside it by chance once in eight times: then
//! nothing is bought.

use crate::units::{Extent, PageCount, PageIndex};
use alloc::collections::VecDeque;

/// A read lies beside what was bought if it is no farther from it than one in so many of its pages: half.
const NEAR: u64 = 2;
/// Beyond the read so many times the way from one to the next is bought.
const MARGIN: u64 = 2;
/// Once in so many times it may be chance.
const CHANCE: u64 = 8;
/// Of smaller places what lies beside them is known from those like them (fills.rs): 4 MiB.
const PAGES_MIN: u64 = 1024;
/// Places that are remembered; the oldest goes.
const PLACES_MAX: usize = 32;

/// A place of which something was bought.
#[derive(Clone, Copy, Debug)]
struct Spot {
    /// What was bought first, and with what lies beside it.
    first: Extent,
    all: Extent,
    /// Pages from one read to the next in what was bought first, on average, and pages for each that was read.
    apart: u64,
    for_each: u64,
    /// What reads beside it have paid since something was bought there.
    paid_ns: u64,
    /// Which of the reads of the file was the latest when somebody was seen there.
    seen: u64,
}

/// What was bought of a file of late.
#[derive(Clone, Debug, Default)]
pub(in crate::wave) struct Places(VecDeque<Spot>);

/// What is to be bought beside a place.
#[derive(Clone, Copy, Debug)]
pub(in crate::wave) struct Beside {
    place: usize,
    pub(in crate::wave) pages: Extent,
    /// Pages of the place then, and pages of what was bought of it first for each that had been read.
    pub(in crate::wave) then: PageCount,
    pub(in crate::wave) for_each: u64,
}

impl Places {
    /// `pages` are bought because of `count` reads of `pages_read` pages there, at read number `now` of the file.
    pub(in crate::wave) fn bought(&mut self, pages: Extent, count: u64, pages_read: u64, now: u64) {
        if pages.count.0 < PAGES_MIN {
            return;
        }
        if self.0.len() == PLACES_MAX {
            self.0.pop_front();
        }
        let (apart, for_each) = (pages.count.0 / count.max(1), pages.count.0 / pages_read.max(1));
        self.0.push_back(Spot { first: pages, all: pages, apart, for_each, paid_ns: 0, seen: now });
    }

    /// What a read of `pages`, number `now`, would have bought beside the latest such place, no more than `most` pages and those that it reads
    /// among them. O([`PLACES_MAX`]).
    pub(in crate::wave) fn beside(
        &self,
        pages: Extent,
        now: u64,
        end_of_file: u64,
        most: u64,
    ) -> Option<Beside> {
        let place = |(place, p): (usize, &Spot)| {
            let near = p.all.count.0 / NEAR;
            if (now - p.seen).saturating_mul(2 * near).saturating_mul(CHANCE) > end_of_file {
                return None;
            }
            let beyond = MARGIN * p.apart;
            let (low, high) = (p.all.start, p.all.end());
            let all = if pages.start >= high && pages.start.since(high).0 <= near {
                let end = (pages.end().0 + beyond).min(high.0.saturating_add(most)).min(end_of_file);
                Extent::between(high, PageIndex(end))
            } else if pages.end() <= low && low.since(pages.end()).0 <= near {
                let start = pages.start.0.saturating_sub(beyond).max(low.0.saturating_sub(most));
                Extent::between(PageIndex(start), low)
            } else {
                return None;
            };
            let holds = all.intersection(pages) == pages;
            holds.then(|| Beside { place, pages: all, then: p.all.count + all.count, for_each: p.for_each })
        };
        self.0.iter().enumerate().rev().find_map(place)
    }

    /// The read beside it pays: what all of them have, since something was bought there.
    pub(in crate::wave) fn pays(&mut self, beside: Beside, wait_ns: u64) -> u64 {
        let place = &mut self.0[beside.place];
        place.paid_ns = place.paid_ns.saturating_add(wait_ns);
        place.paid_ns
    }

    /// That is bought, at read number `now`.
    pub(in crate::wave) fn grown(&mut self, beside: Beside, now: u64) {
        let place = &mut self.0[beside.place];
        place.paid_ns = 0;
        place.all = place.all.hull(beside.pages);
        place.seen = now;
    }

    /// Somebody was seen at `page`; whether that was bought because it lay beside a place.
    pub(in crate::wave) fn seen(&mut self, page: PageIndex, now: u64) -> bool {
        let Some(place) = self.0.iter_mut().rev().find(|place| place.all.contains(page)) else {
            return false;
        };
        place.seen = now;
        !place.first.contains(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3 GiB.
    const END: u64 = 786_432;

    fn places() -> Places {
        let mut places = Places::default();
        places.bought(Extent::new(262_144, 4096), 5, 20, 5);
        places
    }

    /// The worked example, and the same downwards; what is farther from it is another place.
    #[test]
    fn the_first_read_beside_a_place_buys_what_lies_there() {
        let beside =
            |page| places().beside(Extent::new(page, 4), 6, END, u64::MAX).map(|beside| beside.pages);
        assert_eq!(beside(266_476), Some(Extent::between(PageIndex(266_240), PageIndex(268_118))));
        assert_eq!(beside(262_000), Some(Extent::between(PageIndex(260_362), PageIndex(262_144))));
        assert_eq!([266_240 + 2049, 262_144 - 2053, 263_000].map(beside), [None; 3]);
        let at_most = |page, most| {
            let beside = places().beside(Extent::new(page, 4), 6, END, most);
            beside.map(|beside| (beside.pages.start.0, beside.pages.end().0))
        };
        assert_eq!(at_most(266_476, 1000), Some((266_240, 267_240)));
        assert_eq!(at_most(262_000, 1000), Some((261_144, 262_144)));
        assert_eq!(
            [266_476, 262_000].map(|page| at_most(page, 140)),
            [None; 2],
            "the read itself would be left out"
        );
    }

    /// Reads beside it that bought nothing have paid, until something is bought.
    #[test]
    fn what_is_paid_beside_a_place_adds_up() {
        let mut places = places();
        let first = places.beside(Extent::new(266_476, 4), 6, END, u64::MAX).unwrap();
        assert_eq!([0; 2].map(|_| places.pays(first, 30)), [30, 60]);
        places.grown(first, 6);
        let beyond = places.beside(Extent::new(269_000, 4), 6, END, u64::MAX).unwrap();
        assert_eq!(places.pays(beyond, 30), 30);
    }

    /// It grows with what was bought there, and remembers what it was at first.
    #[test]
    fn a_place_grows() {
        let mut places = places();
        let next = |places: &Places, page| places.beside(Extent::new(page, 4), 6, END, u64::MAX);
        let first = next(&places, 266_476).unwrap();
        places.grown(first, 6);
        assert_eq!(next(&places, 267_280).map(|beside| beside.pages), None, "it is there");
        let second = next(&places, 270_000).unwrap();
        assert_eq!(second.pages.start, PageIndex(268_118));
        let seen: alloc::vec::Vec<bool> =
            [263_000, 267_000, 269_000].into_iter().map(|page| places.seen(PageIndex(page), 7)).collect();
        assert_eq!(seen, [false, true, false]);
    }

    /// The last paragraph at the top.
    #[test]
    fn who_reads_evenly_comes_beside_a_place_by_chance() {
        let after =
            |elsewhere: u64| places().beside(Extent::new(266_476, 4), 5 + elsewhere, END, u64::MAX).is_some();
        assert_eq!([1, 24, 25].map(after), [true, true, false]);
        let mut places = places();
        places.seen(PageIndex(263_000), 100);
        assert!(
            places.beside(Extent::new(266_476, 4), 124, END, u64::MAX).is_some(),
            "somebody was seen there since"
        );
    }
}
