//! The readahead window and the two size functions that every era of Linux shares.
//!
//! A window is the latest readahead of one stream: `size` pages from `start`, of which the last `async_size` are pages
//! nobody waits for yet. The first of those carries the mark; touching it asks for the next window.
//!
//! ```text
//! page    0 1 2 3 | 4 ............ 11 | 12 ..................... 27 | 28 ...      reader: 1 page at a time, max 32
//! window  (0,4,3)   (4,8,8)             (12,16,16)                    (28,32,32)  (start, size, async_size)
//! mark      ^1       ^4                  ^12                           ^28
//! ```

use crate::units::{Extent, PageCount, PageIndex};

/// The pages of one readahead: where it starts, how long it is, and how much of its tail nobody waits for.
///
/// Holds `async_size <= size`. Kernel names: `ra->start`, `ra->size`, `ra->async_size` (spec 1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// First page.
    pub start: PageIndex,
    /// Pages in the window.
    pub size: PageCount,
    /// Pages of the tail that nobody waits for; 0 means no mark.
    pub async_size: PageCount,
}

impl Window {
    /// A window of `size` pages from `start`, the last `async_size` of them unwaited-for.
    ///
    /// # Panics
    /// If `async_size > size`: such a window would put its mark before its first page.
    pub const fn new(start: u64, size: u64, async_size: u64) -> Self {
        assert!(async_size <= size, "a window's tail is part of the window");
        Self { start: PageIndex(start), size: PageCount(size), async_size: PageCount(async_size) }
    }
    /// First page past the window.
    pub fn end(self) -> PageIndex {
        self.start + self.size
    }
    /// The marked page, if the window has a mark: page `start + size - async_size` (spec 1.3).
    pub fn mark(self) -> Option<PageIndex> {
        (self.async_size.0 > 0).then(|| self.start + (self.size - self.async_size))
    }
    /// The window's pages. Saturates as [`Window::end`] does: a trace may hold any number.
    pub fn extent(self) -> Extent {
        Extent::new(self.start.0, self.size.0)
    }
}

/// First window for a request of `n` pages under a ceiling of `max` pages (spec 3.2).
///
/// Rounds the request up to a power of two, then opens four times that for small requests, twice for middling ones,
/// the ceiling for the rest: 1 page opens 4, 8 pages open 32 under a ceiling of 256.
pub fn init_size(n: PageCount, max: PageCount) -> PageCount {
    let rounded = n.0.max(1).checked_next_power_of_two().unwrap_or(u64::MAX);
    PageCount(if rounded <= max.0 / 32 {
        rounded * 4
    } else if rounded <= max.0 / 4 {
        rounded * 2
    } else {
        max.0
    })
}

/// The window after one of `size` pages under a ceiling of `max` pages: four times while small, then twice (spec 3.2).
pub fn next_size(size: PageCount, max: PageCount) -> PageCount {
    let grown = if size.0 < max.0 / 16 { size.0.saturating_mul(4) } else { size.0.saturating_mul(2) };
    PageCount(grown.min(max.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of spec 3.2, cell by cell.
    #[test]
    fn first_windows_of_spec_3_2() {
        let table: [(u64, [u64; 4]); 6] = [
            (1, [4, 4, 4, 4]),
            (2, [4, 8, 8, 8]),
            (4, [8, 16, 16, 16]),
            (8, [16, 16, 32, 32]),
            (16, [32, 32, 32, 64]),
            (32, [32, 64, 64, 128]),
        ];
        for (n, sizes) in table {
            for (max, size) in [32, 128, 256, 2048].into_iter().zip(sizes) {
                assert_eq!(
                    init_size(PageCount(n), PageCount(max)),
                    PageCount(size),
                    "request {n}, ceiling {max}"
                );
            }
        }
    }

    #[test]
    fn ramps_of_spec_3_2() {
        for (max, ramp) in [(32, "4 8 16 32 32"), (128, "4 16 32 64 128"), (256, "4 16 32 64 128")] {
            let mut size = init_size(PageCount(1), PageCount(max));
            for step in ramp.split(' ') {
                assert_eq!(size, PageCount(step.parse().unwrap()), "ceiling {max}");
                size = next_size(size, PageCount(max));
            }
        }
    }

    #[test]
    fn the_mark_is_the_first_page_nobody_waits_for() {
        assert_eq!(Window::new(0, 4, 3).mark(), Some(PageIndex(1)));
        assert_eq!(Window::new(12, 16, 16).mark(), Some(PageIndex(12)));
        assert_eq!(Window::new(12, 16, 0).mark(), None);
    }
}
