//! A mapping of an open file of 6.18: which touches of a page are faults, and which faults ask for readahead.
//!
//! ```text
//! touch    mapped already                no fault: the kernel does not hear of it
//!          cached                        a fault that reads maps what is cached of the 16 pages about it, but for a page with
//!                                        the mark; one that writes a private copy maps its page alone
//!          cached, and still not mapped  a hit: one miss is made good; a mark asks for the next window
//!          missing                       a miss: read-around, or as the mapping was advised; then it is touched again
//! ```
//!
//! Whoever only reads therefore never gives up reading around: each miss is made good by the 16 pages that are mapped when
//! its page has come (the trace shows `mmap_miss=0` after any number of them). Whoever writes private copies does, at the
//! 101st miss more than hits (spec 8.5).
//!
//! Worked example, a reader in order, max 32 (`tests/judge`): page 0 reads `[0, 32)` with the mark on 24; pages 1 to 15
//! are no faults, 16 maps 16 to 23 and 25 to 31, and 24 is a hit on the mark: `[32, 64)`.

use super::{FolioPlay, Submitted};
use crate::policy::AskKind;
use crate::table::PageBit;
use crate::units::{Extent, PageCount, PageIndex};
use crate::view::View;
use alloc::vec::Vec;

/// Pages that a fault maps together where they are cached: 64 KiB, aligned.
const FAULT_AROUND: u64 = 16;

/// What a program told the kernel of its mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapAdvice {
    /// Nothing.
    Normal,
    /// That it reads it in order.
    Sequential,
    /// That it reads it at random.
    Random,
}

/// How a page of a mapping is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// It is read.
    Read,
    /// It is written, and the program gets a copy of its own.
    Written,
}

impl FolioPlay {
    /// Touches `page` of a mapping; returns what was submitted on the way.
    pub fn touch(&mut self, page: PageIndex, how: Touched, advice: MapAdvice) -> Vec<Submitted> {
        self.state.random_advice = advice == MapAdvice::Random;
        if !self.mapped.contains(&page.0) && page < self.folios.end_of_file() {
            if !self.folios.present(page) {
                self.missed(page, advice);
                self.fault_around(page, how, advice);
                self.mapped.insert(page.0);
            } else {
                self.fault_around(page, how, advice);
                if !self.mapped.contains(&page.0) {
                    self.hit(page, advice);
                }
            }
        }
        core::mem::take(&mut self.submitted)
    }

    fn missed(&mut self, page: PageIndex, advice: MapAdvice) {
        match advice {
            MapAdvice::Sequential => self.ask(AskKind::Miss, page, self.state.max),
            MapAdvice::Normal | MapAdvice::Random => self.ask(AskKind::Fault, page, PageCount(1)),
        }
        if !self.folios.present(page) {
            self.folios.fill_singly(Extent { start: page, count: PageCount(1) }, None);
        }
    }

    /// A cached page that the fault did not map with its neighbours. Where it carries the mark, the mapping is let go of while
    /// the next window is asked for, and the fault comes again: a second hit.
    fn hit(&mut self, page: PageIndex, advice: MapAdvice) {
        self.mapped.insert(page.0);
        self.made_good(advice);
        let folio = self.folios.folio(page);
        if advice != MapAdvice::Random && self.folios.take_mark(folio) {
            self.ask(AskKind::Mark, page, self.state.max);
            self.made_good(advice);
        }
    }

    /// A hit makes a miss good, where misses are counted.
    fn made_good(&mut self, advice: MapAdvice) {
        if advice == MapAdvice::Normal {
            self.state.mapped_hit();
        }
    }

    /// Maps what is cached about `page` and carries no mark, if the fault reads; each is a miss made good.
    fn fault_around(&mut self, page: PageIndex, how: Touched, advice: MapAdvice) {
        if how == Touched::Written {
            return;
        }
        let first = page.0 / FAULT_AROUND * FAULT_AROUND;
        for near in (first..first + FAULT_AROUND).map(PageIndex) {
            let folio = self.folios.folio(near);
            let marked = self.folios.table.has(PageBit::Mark, folio.start);
            if self.folios.present(near) && !marked && self.mapped.insert(near.0) {
                self.made_good(advice);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Linux618;

    /// Touches each of `pages`; which of them submitted what.
    fn touched(how: Touched, advice: MapAdvice, pages: &[u64]) -> Vec<(u64, u64, u64, u64)> {
        let mut play = FolioPlay::new(Linux618::as_is(), PageIndex(1 << 20), PageCount(32));
        let mut all = Vec::new();
        for &page in pages {
            let came = play.touch(PageIndex(page), how, advice);
            all.extend(came.iter().map(|s| (page, s.start.0, s.size.0, s.tail.0)));
        }
        all
    }

    /// The worked example above.
    #[test]
    fn a_reader_in_order() {
        let pages: Vec<u64> = (0..70).collect();
        let all = touched(Touched::Read, MapAdvice::Normal, &pages);
        assert_eq!(all, [(0, 0, 32, 8), (24, 32, 32, 32), (32, 64, 32, 32), (64, 96, 32, 32)]);
    }

    /// A hundred misses and no more, but for hits: a plain one is worth one miss, one on a mark two.
    #[test]
    fn who_writes_far_apart_gives_up() {
        let far: Vec<u64> = (0..160).map(|i| 50 + 97 * i).collect();
        let windows = |hits: &[u64]| {
            let pages = [&far[..90], hits, &far[90..]].concat();
            let all = touched(Touched::Written, MapAdvice::Normal, &pages);
            all.iter().filter(|window| window.3 == 8).count()
        };
        assert_eq!([windows(&[]), windows(&[53]), windows(&[58])], [100, 101, 102]);
        assert_eq!(touched(Touched::Read, MapAdvice::Normal, &far).len(), 160);
        assert_eq!(touched(Touched::Read, MapAdvice::Random, &far), []);
    }

    /// Advised sequential, mid-file: as many as a window may have, and no mark (P11d of spec 8.8).
    #[test]
    fn sequential_advice_is_worse_than_none() {
        let pages: Vec<u64> = (5000..5070).collect();
        let all = touched(Touched::Read, MapAdvice::Sequential, &pages);
        assert_eq!(all, [(5000, 5000, 32, 0), (5032, 5032, 32, 0), (5064, 5064, 32, 0)]);
    }
}
