//! Mapped files: read around the fault, unless faults have been missing too often.
//!
//! A fault says which page, never how many, and the next fault of a program's code is as likely before it as behind
//! it. So Linux reads the whole ceiling with the fault in its middle, and counts: a miss adds one, a hit takes one
//! away. Past a hundred misses more than hits it gives up reading around.
//!
//! ```text
//! fault on page 100, max 32            84 ............ 100 ........... 115
//!                                      [------- 16 ----]^[----- 15 -----]        start = 100 - 32/2, size = 32
//! fault on page 5, max 32              0 .. 5 ........................ 31        the file begins earlier
//! ```
//!
//! Worked example: 101 faults far apart. The first hundred read 32 pages each, the 101st reads 1. When the ceiling
//! rose to 128 pages in 2010, a hundred such misses cost 50 MB, so v3 gave up after 10 -- and still read around where
//! the 64 pages about the fault already hold one, as evidence that this neighbourhood is in use (spec 5.4, 5.12, 8.5;
//! seed 001).
//!
//! Advice comes first. A mapping read at random faults one page. One that is read in sequence asks as a read does
//! ([`AskKind::Miss`](crate::AskKind::Miss) with `count` = `max`), and so does a fault that hits a mark.

use crate::decision::{Decision, Pattern, Why};
use crate::policy::shared::{single, window};
use crate::policy::{Ask, ReadState};
use crate::units::{PageCount, PageIndex};
use crate::view::View;

/// The neighbourhood that counts as evidence: one leaf of the page table, 256 KiB.
const NEIGHBOURHOOD: u64 = 64;

/// How an era reads around a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Around {
    /// Give up once misses outnumber hits by more than this.
    pub misses_tolerated: u16,
    /// The counter saturates here.
    pub misses_counted_max: u16,
    /// Which share of the window is unwaited-for: `Some(4)` puts the mark at its last quarter, `None` sets no mark.
    pub async_share: Option<u64>,
    /// Ceiling that memory sets, where the era has one ([`around_limit`](crate::around_limit)).
    pub memory_max: Option<PageCount>,
    /// After too many misses, still read around where the neighbourhood has a cached page.
    pub trusts_neighbours: bool,
}

impl Around {
    /// 2.6.23 to the first postings of 2010: a hundred misses, no mark.
    pub const CLASSIC: Self = Self {
        misses_tolerated: 100,
        misses_counted_max: u16::MAX,
        async_share: None,
        memory_max: None,
        trusts_neighbours: false,
    };
    /// v3 of 2010: ten misses, counted in twelve bits, and the neighbourhood (spec 5.12).
    pub const V3: Self =
        Self { misses_tolerated: 10, misses_counted_max: 0xfff, trusts_neighbours: true, ..Self::CLASSIC };
    /// Today: a hundred misses, counted to a thousand, and a mark at the last quarter (spec 8.5).
    pub const TODAY: Self = Self { misses_counted_max: 1000, async_share: Some(4), ..Self::CLASSIC };

    /// The window of one fault that missed, recorded in `state`.
    pub(super) fn fault(&self, view: &dyn View, state: &mut ReadState, ask: Ask) -> Decision {
        state.mmap_miss = state.mmap_miss.saturating_add(1).min(self.misses_counted_max);
        let given_up = state.mmap_miss > self.misses_tolerated;
        if given_up && !(self.trusts_neighbours && neighbours(view, ask.page)) {
            return single(ask, "too-many-misses");
        }
        let size = self.memory_max.unwrap_or(state.max).min(state.max);
        let async_size = self.async_share.map_or(PageCount(0), |share| PageCount(size.0 / share.max(1)));
        state.window = window(ask.page.back(PageCount(size.0 / 2)), size.max(PageCount(1)), async_size);
        let why = if given_up { "neighbour-cached" } else { "read-around" };
        Decision { window: state.window, pattern: Pattern::Around, why: Why(why) }
    }
}

impl ReadState {
    /// A mapped read found its page: one miss is made good (spec 5.4).
    pub fn mapped_hit(&mut self) {
        self.mmap_miss = self.mmap_miss.saturating_sub(1);
    }
}

/// Whether any page of the aligned 64 about `page` is cached. Known failure: faults at `64 * i + 1` walk into each
/// other's windows and never stop (spec 5.12).
fn neighbours(view: &dyn View, page: PageIndex) -> bool {
    let first = page.0 - page.0 % NEIGHBOURHOOD;
    (first..=first | (NEIGHBOURHOOD - 1)).any(|page| view.present(PageIndex(page)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::AskKind;
    use crate::table::{PageBit, PageTable};
    use crate::units::Extent;
    use crate::window::Window;

    fn fault(page: u64) -> Ask {
        Ask { page: PageIndex(page), count: PageCount(1), kind: AskKind::Fault }
    }

    #[test]
    fn reads_around_the_fault() {
        let table = PageTable::new(PageIndex(1 << 20));
        let mut state = ReadState::new(PageCount(32));
        assert_eq!(Around::CLASSIC.fault(&table, &mut state, fault(100)).window, Window::new(84, 32, 0));
        assert_eq!(Around::CLASSIC.fault(&table, &mut state, fault(5)).window, Window::new(0, 32, 0));
        assert_eq!(Around::TODAY.fault(&table, &mut state, fault(100)).window, Window::new(84, 32, 8));
        let limited = Around { memory_max: Some(PageCount(8)), ..Around::V3 };
        assert_eq!(limited.fault(&table, &mut state, fault(100)).window, Window::new(96, 8, 0));
    }

    #[test]
    fn gives_up_after_too_many_misses_until_hits_make_them_good() {
        for (era, tolerated) in [(Around::CLASSIC, 100), (Around::V3, 10), (Around::TODAY, 100)] {
            let table = PageTable::new(PageIndex(1 << 30));
            let mut state = ReadState::new(PageCount(32));
            for i in 1..=tolerated + 1 {
                let around = era.fault(&table, &mut state, fault(i * 1000)).pattern == Pattern::Around;
                assert_eq!(around, i <= tolerated, "miss {i}");
            }
            state.mapped_hit();
            state.mapped_hit();
            assert_eq!(era.fault(&table, &mut state, fault(77_000)).pattern, Pattern::Around);
        }
    }

    #[test]
    fn the_counter_stops_at_both_ends() {
        let table = PageTable::new(PageIndex(1 << 30));
        let mut state = ReadState::new(PageCount(32));
        state.mapped_hit();
        assert_eq!(state.mmap_miss, 0);
        for i in 0..5_000 {
            Around::V3.fault(&table, &mut state, fault(i * 1000));
        }
        assert_eq!(state.mmap_miss, 0xfff);
    }

    /// The failure that its author names: one cached page in the neighbourhood is evidence enough.
    #[test]
    fn a_cached_neighbour_keeps_v3_reading_around() {
        let mut table = PageTable::new(PageIndex(1 << 20));
        let mut state = ReadState::new(PageCount(32));
        state.mmap_miss = 500;
        table.set(PageBit::Present, Extent::new(640, 1));
        assert_eq!(Around::V3.fault(&table, &mut state, fault(703)).why, Why("neighbour-cached"));
        assert_eq!(Around::V3.fault(&table, &mut state, fault(704)).why, Why("too-many-misses"));
        assert_eq!(Around::CLASSIC.fault(&table, &mut state, fault(703)).why, Why("too-many-misses"));
    }
}
