//! R11: how much of regions that ended was read, and what that says of the next one of their size.
//!
//! A region must be *thick* before it may pay: one page in 1024 read, while nothing is known of its like; one in 32 once three of them ended
//! and less than a twelfth of them was read. Where a third was, they *fill*: the first read in a region like them buys it. Where a gap
//! costs more than a request of its own (an SSD), an eighth must have been read while two fifths of its like were, or nothing is known
//! of them; else half.
//!
//! Clusters keep to no grid. One of 288 pages lies across five regions of 64 that fill and two of 256 that do not, and bought one by
//! one it would cost five waits. So a region that fills says, when it ends, how many others beside it filled; the next is bought
//! with half as many to the left and to the right, as long as a quarter of what is bought so is read:
//!
//! ```text
//! ended:     . . # # # # # .    5 in a row, so 2 to each side
//! read here:     [< < # > >]    of which three quarters lie in the cluster on average; what is left is bought by its own miss
//! ```

use crate::wave::regions::grids::{self, GRIDS};

/// A region is thick of which one page in so many was read.
pub(in crate::wave) const THICK: u64 = 32;
/// One page in so many is enough while no three regions of its size have ended, or if [`FILL_THIN`] of those that did was read.
pub(in crate::wave) const THICK_FIRST: u64 = 1024;
/// Share of regions that must have been read, in 1/256, for [`THICK_FIRST`] to be enough of their like: a twelfth.
const FILL_THIN: u64 = 21;
/// Where gaps are dear, a region is thick of which one page in so many was read: half.
const THICK_DEAR: u64 = 2;
/// Where gaps are dear, one page in so many is enough while no three regions of its size have ended, or if [`FILL_MIN_DEAR`] of those that did was
/// read.
const THICK_DEAR_FIRST: u64 = 8;
/// Share of a region that must have been read, in 1/256, for its like to be bought at once: a third, or two fifths where
/// gaps are dear.
const FILL_MIN: u64 = 85;
const FILL_MIN_DEAR: u64 = 102;
/// Share of the regions bought beside one that fills that must have been read, in 1/256: a quarter.
const FILL_BESIDE: u64 = 64;
/// Regions that must have ended before their fill is believed.
const WITNESSES_MIN: u32 = 3;

/// How many were counted, and the mean of the latest: each of them weighs an eighth.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: u32,
    value: u64,
}

impl Mean {
    fn add(&mut self, value: u64) {
        let of = u64::from(self.count.min(7)) + 1;
        self.count = self.count.saturating_add(1);
        self.value = (self.value * (of - 1) + value + of / 2) / of;
    }

    fn is_known(self) -> bool {
        self.count >= WITNESSES_MIN
    }
}

/// What regions of one file left, for each grid.
#[derive(Clone, Debug, Default)]
pub(in crate::wave) struct Fills {
    /// The share that was read of regions that ended, in 1/256.
    ended: [Mean; GRIDS],
    /// The share that was read of regions that were bought beside others, in 1/256.
    beside: [Mean; GRIDS],
    /// Regions in a row that filled, in 1/256.
    in_a_row: [Mean; GRIDS],
}

impl Fills {
    /// One page in so many must have been read of a region of that grid.
    pub(in crate::wave) fn thick(&self, grid: usize, gaps_are_cheap: bool) -> u64 {
        let at_least = |fill| !self.ended[grid].is_known() || self.ended[grid].value >= fill;
        match gaps_are_cheap {
            true if at_least(FILL_THIN) => THICK_FIRST,
            true => THICK,
            false if at_least(FILL_MIN_DEAR) => THICK_DEAR_FIRST,
            false => THICK_DEAR,
        }
    }

    /// Whether regions of that grid fill, so that the first read buys them.
    pub(in crate::wave) fn fill(&self, grid: usize, gaps_are_cheap: bool) -> bool {
        let fill_min = if gaps_are_cheap { FILL_MIN } else { FILL_MIN_DEAR };
        self.ended[grid].is_known() && self.ended[grid].value >= fill_min
    }

    /// Pages that are read of one, on average.
    pub(in crate::wave) fn pages(&self, grid: usize) -> u64 {
        self.ended[grid].value * grids::pages(grid) / 256
    }

    /// The same of one that is bought beside another.
    pub(in crate::wave) fn pages_beside(&self, grid: usize) -> u64 {
        let known = self.beside[grid].is_known();
        let share = if known { self.beside[grid].value } else { self.ended[grid].value };
        share * grids::pages(grid) / 256
    }

    /// Regions of that grid that are bought to each side of one that fills.
    pub(in crate::wave) fn each_side(&self, grid: usize) -> u64 {
        let in_vain = self.beside[grid].is_known() && self.beside[grid].value < FILL_BESIDE;
        if in_vain { 0 } else { self.in_a_row[grid].value.saturating_sub(256) / 512 }
    }

    /// Whether one of that grid of which so many pages were read counts in a row of those that fill: half of a third.
    pub(in crate::wave) fn counts_in_a_row(grid: usize, pages_read: u64) -> bool {
        512 * pages_read >= FILL_MIN * grids::pages(grid)
    }

    /// A region of that grid has ended; so many pages of it were read, and it was bought beside another or not.
    pub(in crate::wave) fn ended(&mut self, grid: usize, pages_read: u64, beside: bool) {
        let share = 256 * pages_read.min(grids::pages(grid)) / grids::pages(grid);
        if beside { &mut self.beside[grid] } else { &mut self.ended[grid] }.add(share);
    }

    /// One that fills has ended among so many in a row.
    pub(in crate::wave) fn in_a_row(&mut self, grid: usize, regions: u64) {
        self.in_a_row[grid].add(256 * regions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules at the top, regions of 64 pages of which so many were read each; gaps cheap, then dear.
    #[test]
    fn what_was_read_of_three_says_how_thick_the_next_must_be() {
        let after = |pages: &[u64]| {
            let mut fills = Fills::default();
            pages.iter().for_each(|&read| fills.ended(0, read, false));
            [true, false].map(|cheap| (fills.thick(0, cheap), fills.fill(0, cheap)))
        };
        assert_eq!(after(&[]), [(1024, false), (8, false)]);
        assert_eq!(after(&[64, 64]), [(1024, false), (8, false)], "two are no witnesses");
        assert_eq!(after(&[64, 64, 64]), [(1024, true), (8, true)]);
        assert_eq!(after(&[24, 24, 24]), [(1024, true), (2, false)]);
        assert_eq!(after(&[8, 8, 8]), [(1024, false), (2, false)]);
        assert_eq!(after(&[4, 4, 4]), [(32, false), (2, false)]);
    }

    /// The picture at the top; until less than a quarter of what was bought beside others is read.
    #[test]
    fn five_in_a_row_are_two_to_each_side() {
        let mut fills = Fills::default();
        (0..5).for_each(|_| fills.in_a_row(0, 5));
        assert_eq!(fills.each_side(0), 2);
        (0..3).for_each(|_| fills.ended(0, 15, true));
        assert_eq!(fills.each_side(0), 0);
    }
}
