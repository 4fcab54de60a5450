//! R11: which way the random reads of a file go. What lies behind who goes one way is not bought.
//!
//! An archive is listed member by member, a journal is followed back to its begin, `dd` skips from place to place. Such reads pay rent as others do, and
//! a region that they have paid for lies behind them, but for what they have not come to:
//!
//! ```text
//! reads at 9, 2, 5, 7                           the last three upwards                no way yet
//! at 760, 1520, 2280, 3040, the fourth buys     [252, 3549) to a head, by its price:  it buys [3040, 3549)
//! at 4096, 4171, 4246, 4321, 4396, ...          elsewhere nothing, from the fifth on: what lies between is read through where that pays (hops.rs)
//! ```
//!
//! To a head four are no chance, since no more is left out than lies behind its reader; elsewhere nothing is bought, and five are asked for. In the region
//! all must have gone that way, since one that was read to and fro before may be again.

use crate::units::{Extent, PageIndex};
use crate::wave::regions::region::{Region, SWEEP_MIN};

/// Reads in a row that are no chance, to a head.
const HEAD_MIN: u64 = 4;

/// Of a file that is read at random, how many reads in a row have gone up with the latest, and down.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Going {
    latest: Option<PageIndex>,
    up: u64,
    down: u64,
}

impl Going {
    /// The next read begins at `start`.
    pub(super) fn read(&mut self, start: PageIndex) {
        let latest = self.latest.replace(start).unwrap_or(start);
        self.up = if start >= latest { self.up + 1 } else { 1 };
        self.down = if start <= latest { self.down + 1 } else { 1 };
    }

    /// Whether they go one way, up or down, long enough for what is bought by a `head`, or elsewhere.
    pub(super) fn is_one_way(self, head: bool) -> bool {
        self.up.max(self.down) >= if head { HEAD_MIN } else { SWEEP_MIN }
    }

    /// Whether they do, and went that way in a region.
    pub(super) fn is_one_way_in(self, region: Region, head: bool) -> bool {
        self.is_one_way(head) && region.went(self.up > self.down)
    }

    /// What of `extent` lies before who goes one way, and has come to `pages`.
    pub(super) fn before_him(self, pages: Extent, extent: Extent) -> Extent {
        if self.up > self.down {
            Extent::between(pages.start.max(extent.start), extent.end().max(pages.start))
        } else {
            extent.intersection(Extent::between(PageIndex(0), pages.end()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(starts: &[u64]) -> (Going, Region) {
        let (mut going, mut region) = (Going::default(), Region::default());
        for &start in starts {
            going.read(PageIndex(start));
            region.paid(Extent::new(start, 1), 0, 1);
        }
        (going, region)
    }

    /// The picture at the top.
    #[test]
    fn what_lies_behind_who_goes_one_way_is_left_out() {
        let one_way = |starts: &[u64], head: bool| {
            let (going, region) = after(starts);
            going.is_one_way_in(region, head)
        };
        assert!(!one_way(&[9, 2, 5, 7], true));
        let four = [760, 1520, 2280, 3040];
        assert_eq!((one_way(&four, true), one_way(&four, false)), (true, false));
        let clipped = after(&four).0.before_him(Extent::new(3040, 3), Extent::new(252, 3297));
        assert_eq!(clipped, Extent::between(PageIndex(3040), PageIndex(3549)));
        assert!(one_way(&[4096, 4171, 4246, 4321, 4396], false));
        let down = [9000, 7000, 5000, 4000];
        assert!(one_way(&down, true));
        let clipped = after(&down).0.before_him(Extent::new(4000, 2), Extent::new(3000, 9000));
        assert_eq!(clipped, Extent::between(PageIndex(3000), PageIndex(4002)));
        assert!(!one_way(&[5000, 760, 1520, 2280, 3040], true), "the region was read to and fro");
    }
}
