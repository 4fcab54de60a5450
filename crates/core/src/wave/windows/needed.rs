//! R15: what a program says that it needs ends where it says, and so does what is fetched ahead of those who read it.
//!
//! ```text
//! advised    [256, 513)                 [1536, 1793)       two columns of eight in a row group (pyarrow, mapped)
//! read       256, 272 ... 512           1536 ...
//! fetched    [256, 513)                 [1536, 1793)       and not [513, 704), which a stream of that pace would want
//! ```
//!
//! Pieces that touch or overlap are one. A reader past the end of what was said is on his own again.

use crate::units::Extent;
use crate::wave::footprint::entries;
use alloc::collections::BTreeMap;

/// Pieces remembered; where there are more, those lowest in the file go.
const PIECES_MAX: usize = 1024;

/// What the program said of one file: how it reads it, and what of it it needs.
#[derive(Clone, Debug, Default)]
pub(in crate::wave) struct Said {
    order: Order,
    needed: Needed,
}

/// In which order it reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::wave) enum Order {
    #[default]
    Unsaid,
    Sequential,
    Random,
}

impl Said {
    /// It reads in this order from now on.
    pub(in crate::wave) fn reads(&mut self, order: Order) {
        self.order = order;
    }

    /// Nothing is to be fetched ahead.
    pub(in crate::wave) fn at_random(&self) -> bool {
        self.order == Order::Random
    }

    /// All of it is read in order.
    pub(in crate::wave) fn in_order(&self) -> bool {
        self.order == Order::Sequential
    }

    /// These pages are needed.
    pub(in crate::wave) fn needs(&mut self, pages: Extent) {
        self.needed.add(pages);
    }

    /// The page behind what is needed from `page` on, if that is. O(log n).
    pub(in crate::wave) fn needed_until(&self, page: u64) -> Option<u64> {
        self.needed.until(page)
    }

    /// Bytes that it takes, about.
    pub(in crate::wave) fn bytes_of_memory(&self) -> usize {
        entries::<u64, u64>(self.needed.pieces.len())
    }
}

/// The pages that it needs.
#[derive(Clone, Debug, Default)]
struct Needed {
    /// By first page: the page behind.
    pieces: BTreeMap<u64, u64>,
}

impl Needed {
    /// These pages are needed. O(log n), and as much for each piece that they join.
    fn add(&mut self, pages: Extent) {
        let (mut start, mut end) = (pages.start.0, pages.end().0);
        while let Some((&first, &behind)) = self.pieces.range(..=end).next_back().filter(|p| *p.1 >= start) {
            self.pieces.remove(&first);
            (start, end) = (start.min(first), end.max(behind));
        }
        if self.pieces.len() == PIECES_MAX {
            self.pieces.pop_first();
        }
        self.pieces.insert(start, end);
    }

    /// The page behind the piece that holds `page`, if one does. O(log n).
    fn until(&self, page: u64) -> Option<u64> {
        self.pieces.range(..=page).next_back().map(|piece| *piece.1).filter(|&end| page < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_meet_are_one() {
        let mut needed = Needed::default();
        for (start, count) in [(256, 257), (1536, 257), (513, 7), (100, 10)] {
            needed.add(Extent::new(start, count));
        }
        let until = [99, 109, 110, 256, 519, 520, 1600].map(|page| needed.until(page));
        assert_eq!(until, [None, Some(110), None, Some(520), Some(520), None, Some(1793)]);
        needed.add(Extent::new(0, 5000));
        assert_eq!((needed.until(0), needed.pieces.len()), (Some(5000), 1));
    }

    #[test]
    fn there_are_no_more_than_can_be_kept() {
        let mut needed = Needed::default();
        (0..3000).for_each(|i| needed.add(Extent::new(10 * i, 5)));
        assert_eq!((needed.pieces.len(), needed.until(29_990)), (PIECES_MAX, Some(29_995)));
    }
}
