//! R9: how long do runs last here? What ended before tells how much further this one goes.
//!
//! Every run that ends (a stream that its reader left, a single read that nothing followed) leaves its length. Of the
//! runs that came at least as far as this one, the share that went `w` pages further says what a window of `w` pages is
//! worth:
//!
//! ```text
//! ended: 1 1 128 128 128 128 1 128     this run has come 16 pages, window asked: 256
//! of those with at least 16 pages all had 112 more: a window of 112 is used whole, one of 256 to 44 %
//! ```
//!
//! With 85 % demanded, the answer is 131: 112 certain pages may carry 19 in vain. A uniformly random reader leaves only runs of one
//! read, so the answer for a fresh read is 0; and where fewer than four runs came so far, there is no answer.
//!
//! Where a wait costs as much as many pages, a few of them may be in vain more often. Members of an archive of 2, 8, 14 and so
//! on to 56 pages: of 14 pages 85 % is used. On a disk whose seek takes as long as 200 pages, 24 cost little: half used is enough for
//! those, and 24 it is.

use crate::units::PageCount;

/// Runs remembered. Old ones are overwritten: a program that changes its ways is followed within this many runs.
const RUNS_MAX: usize = 64;
/// Fewer witnesses than this say nothing.
const WITNESSES_MIN: usize = 4;
/// A run may be longer than its witnesses by one in so many of its pages, and be one of them.
pub(super) const NEAR: u64 = 16;

/// Of a window cut or raised by R9 this share must be used on average.
pub(super) const USED_PERCENT: u64 = 85;
/// And of one that is cheap.
const CHEAP_USED_PERCENT: u64 = 50;

/// Lengths of the last runs that ended: in the order of their ends, and by length.
#[derive(Clone, Debug)]
pub(crate) struct Lengths {
    ended: [u32; RUNS_MAX],
    sorted: [u32; RUNS_MAX],
    count: usize,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { ended: [0; RUNS_MAX], sorted: [0; RUNS_MAX], count: 0 }
    }
}

impl Lengths {
    /// A run of `pages` pages ended. O([`RUNS_MAX`]): it takes the place of the oldest among those that are kept by length.
    pub(crate) fn push(&mut self, pages: u64) {
        let pages = pages.min(u64::from(u32::MAX)) as u32;
        let kept = self.count.min(RUNS_MAX);
        let oldest = core::mem::replace(&mut self.ended[self.count % RUNS_MAX], pages);
        let from = if kept < RUNS_MAX { kept } else { self.sorted.partition_point(|&l| l < oldest) };
        let to = self.sorted[..kept].partition_point(|&l| l < pages);
        if to <= from {
            self.sorted.copy_within(to..from, to + 1);
            self.sorted[to] = pages;
        } else {
            self.sorted.copy_within(from + 1..to, from);
            self.sorted[to - 1] = pages;
        }
        self.count += 1;
    }

    /// Pages of the longest run that is remembered.
    pub(crate) fn longest(&self) -> u64 {
        self.sorted[..self.count.min(RUNS_MAX)].last().map_or(0, |&l| u64::from(l))
    }

    /// Whether enough runs ended to say anything of the next one.
    pub(crate) fn known(&self) -> bool {
        self.count >= WITNESSES_MIN
    }

    /// What is worth fetching ahead of a run that has come `progress` pages: the largest window, at most `most` pages, of which
    /// 85 % is used, or the largest of at most `cheap` pages of which half is used: in vain they cost less than the waits that
    /// they save. `None` where too few runs came so far. O([`RUNS_MAX`]).
    pub(crate) fn promise(&self, progress: u64, most: PageCount, cheap: PageCount) -> Option<PageCount> {
        let sure = self.window(progress, most, USED_PERCENT)?;
        Some(sure.max(self.window(progress, most.min(cheap), CHEAP_USED_PERCENT)?))
    }

    /// The largest window, at most `most` pages, of which at least `used_percent` is used on average by a run that has
    /// come `progress` pages; `None` where too few runs came so far. O([`RUNS_MAX`]).
    pub(crate) fn window(&self, progress: u64, most: PageCount, used_percent: u64) -> Option<PageCount> {
        let kept = &self.sorted[..self.count.min(RUNS_MAX)];
        let left = &kept[kept.partition_point(|&l| u64::from(l) < progress)..];
        let witnesses = left.len();
        if witnesses < WITNESSES_MIN {
            // As long as the longest: it gets a little more before it is taken for a longer one.
            let near = |l: u32| u64::from(l) + u64::from(l) / NEAR;
            let left = &kept[kept.partition_point(|&l| near(l) < progress)..];
            let few = left.len() >= WITNESSES_MIN;
            return few.then(|| PageCount((near(left[left.len() - 1]) - progress).min(most.0)));
        }
        // A window w is used sum(min(w, left)) / witnesses on average; between two values of `left` that sum grows
        // linearly, so on each piece the largest good w has a closed form.
        // The used share falls as w grows, so the first piece that it does not outlast holds the answer.
        let demanded = used_percent * witnesses as u64;
        let mut below = 0u64;
        for (i, &l) in left.iter().enumerate() {
            let l = u64::from(l) - progress;
            let longer = (witnesses - i) as u64;
            // On (left[i-1], left[i]]: 100 * (below + longer * w) >= demanded * w.
            if 100 * longer < demanded {
                let w = 100 * below / (demanded - 100 * longer);
                if w < l {
                    return Some(PageCount(w.min(most.0)));
                }
            }
            below += l;
        }
        // Past the longest run, what is used stays at `below`.
        let w = (100 * below).checked_div(demanded).unwrap_or(0);
        Some(PageCount(w.min(most.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(runs: &[u64]) -> Lengths {
        let mut lengths = Lengths::default();
        runs.iter().for_each(|&r| lengths.push(r));
        lengths
    }

    #[test]
    fn a_run_among_equals_goes_as_far_as_they_did() {
        let lengths = after(&[1, 1, 128, 128, 128, 128, 1, 128]);
        assert_eq!(lengths.window(16, PageCount(256), 85), Some(PageCount(131)));
        assert_eq!(lengths.window(16, PageCount(100), 85), Some(PageCount(100)));
    }

    #[test]
    fn by_length_they_are_the_same_as_in_their_order() {
        let (mut lengths, mut state) = (Lengths::default(), 7u64);
        for kept in 1..1000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            lengths.push(state >> 60);
            let mut sorted = lengths.ended;
            let kept = kept.min(RUNS_MAX);
            sorted[..kept].sort_unstable();
            assert_eq!(lengths.sorted[..kept], sorted[..kept]);
        }
    }

    #[test]
    fn where_pages_are_cheap_half_used_is_enough() {
        let lengths = after(&[2, 8, 14, 20, 26, 32, 38, 44, 50, 56]);
        assert_eq!(lengths.window(1, PageCount(999), 85), Some(PageCount(14)));
        assert_eq!(lengths.promise(1, PageCount(999), PageCount(24)), Some(PageCount(24)));
        assert_eq!(lengths.promise(1, PageCount(999), PageCount(3)), Some(PageCount(14)));
        assert_eq!(after(&[1; 40]).promise(1, PageCount(256), PageCount(24)), Some(PageCount(0)));
    }

    #[test]
    fn single_reads_promise_nothing() {
        assert_eq!(after(&[1; 40]).window(1, PageCount(256), 85), Some(PageCount(0)));
        assert_eq!(after(&[1; 40]).window(2, PageCount(256), 85), None);
    }

    #[test]
    fn the_answer_keeps_its_promise_and_no_larger_window_would() {
        let runs = [3u64, 9, 9, 17, 40, 41, 80, 200];
        let lengths = after(&runs);
        for progress in 0..10 {
            let left: alloc::vec::Vec<u64> =
                runs.iter().filter(|&&r| r >= progress).map(|r| r - progress).collect();
            let good =
                |w: u64| 100 * left.iter().map(|&l| l.min(w)).sum::<u64>() >= 85 * w * left.len() as u64;
            let best = (0..=300).filter(|&w| good(w)).max().unwrap();
            assert_eq!(
                lengths.window(progress, PageCount(300), 85),
                Some(PageCount(best)),
                "progress {progress}"
            );
        }
    }
}
