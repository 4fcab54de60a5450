//! R11: in which regions random reads are counted: five sizes, each a grid over the file, and of the two largest a second one, half a region on.
//!
//! What is read at random keeps to no grid. Of an area as large as a region half may lie in one and half in the next, and both would have to pay:
//!
//! ```text
//! 64 MiB in random order                  [189000 ............... 205384)
//! first grid       |180224 ......... 7608 in it  196608| 8776 in it ......... 212992|
//! second                    |188416 ................ 15800 in it 204800| 584 ........... 221184|
//! ```
//!
//! Three quarters of any such area lie in one region of the two. Small regions need no second grid: what fills them is bought with those beside
//! it (fills.rs).

use crate::units::{Extent, PageIndex};

/// Which grid, and which of its regions.
pub(in crate::wave) type Key = (usize, u64);

/// Pages of a region: 256 KiB, 1 MiB, 4 MiB, 16 MiB twice, 64 MiB twice.
const PAGES: [u64; GRIDS] = [64, 256, 1024, 4096, 4096, 16384, 16384];
/// How many grids there are, the smallest regions first.
pub(in crate::wave) const GRIDS: usize = 7;
/// The grid of the largest regions that begins with the file.
pub(in crate::wave) const LARGEST: usize = 5;

/// Pages of a region of that grid.
pub(in crate::wave) const fn pages(grid: usize) -> u64 {
    PAGES[grid]
}

/// By how many pages the grid begins before the file: half a region if it is the second of its size.
const fn before(grid: usize) -> u64 {
    if grid > 0 && PAGES[grid] == PAGES[grid - 1] { PAGES[grid] / 2 } else { 0 }
}

/// The region of that grid that holds `page`.
pub(in crate::wave) fn holding(grid: usize, page: PageIndex) -> Key {
    (grid, page.0.saturating_add(before(grid)) / pages(grid))
}

/// A region, as far as the file goes.
pub(in crate::wave) fn extent((grid, number): Key, end_of_file: u64) -> Extent {
    let (pages, before) = (pages(grid), before(grid));
    let (start, end) = ((number * pages).saturating_sub(before), (number + 1).saturating_mul(pages) - before);
    Extent::between(PageIndex(start), PageIndex(end.min(end_of_file)))
}

/// The grid of the smallest regions of at least so many pages, or of the largest; one that begins with the file.
pub(in crate::wave) fn at_least(least: u64) -> usize {
    PAGES.partition_point(|&pages| pages < least).min(LARGEST)
}

/// The quarters of a region, of which the first of the second grid has but two in the file; nothing for the smallest.
pub(in crate::wave) fn quarters(region: Key) -> Option<impl Iterator<Item = Key>> {
    let quarter = pages(region.0) / 4;
    let grid = (quarter >= PAGES[0]).then(|| at_least(quarter))?;
    let all = extent(region, u64::MAX);
    Some((all.start.0 / quarter..all.end().0 / quarter).map(move |number| (grid, number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The picture at the top.
    #[test]
    fn most_of_an_area_lies_in_one_region_of_two_grids() {
        let area = Extent::new(189_000, 16_384);
        let in_each = |grid: usize| -> Vec<(u64, u64)> {
            let (first, last) = (holding(grid, area.start).1, holding(grid, PageIndex(area.end().0 - 1)).1);
            let regions = (first..=last).map(|number| extent((grid, number), u64::MAX));
            regions.map(|region| (region.start.0, region.intersection(area).count.0)).collect()
        };
        assert_eq!(in_each(5), [(180_224, 7608), (196_608, 8776)]);
        assert_eq!(in_each(6), [(188_416, 15_800), (204_800, 584)]);
        // And of any other, wherever it begins.
        for start in (0..16_384).step_by(64) {
            let area = Extent::new(100_000 + start, 16_384);
            let middle = PageIndex(area.start.0 + 8192);
            let held = |grid| extent(holding(grid, middle), u64::MAX).intersection(area).count.0;
            assert!(held(5).max(held(6)) >= 12_288, "{start}");
        }
    }

    #[test]
    fn a_page_lies_in_the_region_that_holds_it() {
        for grid in 0..GRIDS {
            for page in [0, 63, 64, 2047, 2048, 8191, 8192, 8193, 24_576, u64::MAX - 9000].map(PageIndex) {
                let region = extent(holding(grid, page), u64::MAX);
                assert!(region.contains(page) && region.count.0 <= pages(grid), "{grid} {page}");
            }
        }
        assert_eq!(extent((6, 0), 5000), Extent::new(0, 5000));
        assert_eq!([1, 64, 65, 4096, 4097, 1 << 30].map(at_least), [0, 0, 1, 3, 5, 5]);
    }

    #[test]
    fn quarters_lie_on_the_first_grid_of_their_size() {
        let of = |region| quarters(region).map(Iterator::collect::<Vec<_>>);
        assert_eq!(of((0, 7)), None);
        assert_eq!(of((1, 7)), Some((28..32).map(|n| (0, n)).collect()));
        assert_eq!(of((5, 1)), Some((4..8).map(|n| (3, n)).collect()));
        assert_eq!(of((6, 1)), Some((2..6).map(|n| (3, n)).collect()));
        assert_eq!(of((6, 0)), Some((0..2).map(|n| (3, n)).collect()), "the rest lies before the file");
    }
}
