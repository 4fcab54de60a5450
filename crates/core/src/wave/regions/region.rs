//! R11: what is known of one region: the random reads in it, in which order and how far apart, and what became of it.
//!
//! ```text
//! pages 4096 to 8191; read were           5000    6000    7000    8000        low 5000, high 8001, each above the one before it
//! from one to the next on average         750                                 so from 3500 to 9501 surrounds them: two of those on either side
//! the fifth, at 8100                      swept, upwards                      had it been at 5500: it is no sweep any more
//! ```
//!
//! What surrounds the reads is all that is bought of a large region; one that a single reader has swept is not bought at all (density.rs).

use crate::units::{Extent, PageIndex};

/// What surrounds the reads goes so many times the way from one to the next, on average, beyond them.
const MARGIN: u64 = 2;
/// So many reads, each beyond the one before it, are no chance.
pub(super) const SWEEP_MIN: u64 = 5;

/// A region of a file that is read at random.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Region {
    /// Reads that have paid here, and the pages of those and of what was served since.
    pub(super) count: u64,
    pub(super) pages_read: u64,
    /// The lowest page that was read, and the one behind the highest.
    low: u64,
    high: u64,
    /// Each read ended no lower than those before it, or each began no higher.
    up: bool,
    down: bool,
    pub(super) paid_ns: u64,
    pub(super) bought: bool,
    /// Pages that were gone before anybody read them, since somebody last came for one.
    pub(super) lost: u64,
    /// It was bought before one page in 32 was read (fills.rs).
    pub(super) thin: bool,
    /// It was bought at its first read, and so many pages are still to be read of it if it is like those before.
    pub(super) at_once: bool,
    pub(super) to_read: u64,
    /// It was bought with one that fills, beside it.
    pub(super) beside: bool,
    /// The read of the file that touched it last.
    pub(super) last: u64,
    /// Its fill has been counted.
    pub(super) ended: bool,
    /// It stands in line to be looked at.
    pub(super) in_line: bool,
}

impl Region {
    /// A random read of `pages`, the file's `nth`, has paid so much.
    pub(super) fn paid(&mut self, pages: Extent, wait_ns: u64, nth: u64) {
        let first = self.count == 0;
        self.up = first || self.up && pages.end().0 >= self.high;
        self.down = first || self.down && pages.start.0 <= self.low;
        self.count += 1;
        self.pages_read += pages.count.0;
        self.low = if first { pages.start.0 } else { self.low.min(pages.start.0) };
        self.high = self.high.max(pages.end().0);
        self.paid_ns = self.paid_ns.saturating_add(wait_ns);
        self.last = nth;
    }

    /// A read that has paid was none at random.
    pub(super) fn takes_back(&mut self, read: Extent, wait_ns: u64) {
        self.count = self.count.saturating_sub(1);
        self.pages_read = self.pages_read.saturating_sub(read.count.0);
        self.paid_ns = self.paid_ns.saturating_sub(wait_ns);
    }

    /// Whether its reader went through it, up or down: what is left of it lies behind him.
    pub(super) fn swept(&self) -> bool {
        self.count >= SWEEP_MIN && (self.up || self.down)
    }

    /// Whether all its reads went upwards, or all down.
    pub(super) fn went(&self, up: bool) -> bool {
        if up { self.up } else { self.down }
    }

    /// From its lowest read to its highest, and a little beyond.
    pub(super) fn surroundings(&self) -> Extent {
        let beyond = MARGIN * (self.high - self.low) / self.count.max(1);
        Extent::between(PageIndex(self.low.saturating_sub(beyond)), PageIndex(self.high + beyond))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture, and the same downwards.
    #[test]
    fn reads_are_surrounded_and_swept() {
        let after = |starts: &[u64]| {
            let mut region = Region::default();
            starts.iter().for_each(|&start| region.paid(Extent::new(start, 1), 0, 1));
            region
        };
        let four = [5000, 6000, 7000, 8000];
        assert_eq!(after(&four).surroundings(), Extent::between(PageIndex(3500), PageIndex(9501)));
        let swept = |fifth: u64| after(&[&four[..], &[fifth]].concat()).swept();
        assert_eq!([8100, 5500, 8000].map(swept), [true, false, true], "the last page may be read again");
        assert!(!after(&four).swept() && after(&[9, 8, 7, 6, 5]).swept());
    }
}
