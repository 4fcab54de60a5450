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
//! With 85 % demanded, the answer is 131: 112 certain pages may carry 19 in vain. Once sixteen came so far, and differ by no more than one
//! page in sixteen, the next is taken to end where they did, and the answer is 112. A uniformly random reader leaves only runs of one
//! read, so the answer for a fresh read is 0. Where fewer than four runs came so far they only say where this one may end: a window is cut by
//! them, and not raised, if its reader reads nowhere else; before four have ended, by two or three that are alike. Where none did there is no
//! answer.
//!
//! Runs that go down are asked about runs that went down: a footer is read so, and how far its file's columns go up is no news of it.
//!
//! Where a wait costs as much as many pages, more of them may be in vain. Which window is best depends on those behind it, so they
//! are weighed from the longest run down. Members of an archive of 2, 8, 14 and so on to 56 pages, of which one page was read; on a
//! disk whose seek takes as long as 200 pages a wait may cost 25:
//!
//! ```text
//! windows        used              waits and pages in vain up to the end, for each member
//! 13, 18, 24     86, 86, 63 %      1.1 waits +  7.2 pages in vain, as dear as 34.7 pages
//! 25, 30         76, 60 %          0.5       + 12.0                          24.5
//! 37, 18         66, 67 %          0.3       + 14.4                          21.9, the least
//! 43, 12         61, 75 %          0.2       + 17.4                          22.4
//! ```

use crate::units::PageCount;
use alloc::boxed::Box;
use core::cell::RefCell;
use core::mem::size_of;

/// Runs remembered. Old ones are overwritten: a program that changes its ways is followed within this many runs.
const RUNS_MAX: usize = 64;
/// Fewer witnesses than this say nothing.
const WITNESSES_MIN: usize = 4;
/// And so many say for sure where runs end, if they are alike.
const ALIKE_MIN: usize = 16;
/// A run may be longer than its witnesses by one in so many of its pages, and be one of them; those that differ by no more are alike.
pub(in crate::wave) const ALIKE: u64 = 16;

/// Of a window cut or raised by R9 this share must be used on average.
pub(in crate::wave) const USED_PERCENT: u64 = 85;
/// And of one that saves waits.
const WEIGHED_USED_PERCENT: u64 = 50;

/// Lengths of the last runs that ended: in the order of their ends, and by length.
#[derive(Clone, Debug)]
pub(crate) struct Lengths {
    ended: [u32; RUNS_MAX],
    sorted: [u32; RUNS_MAX],
    count: usize,
    /// What was weighed last: all streams of a file ask, one after the other, between two ends.
    weighed: RefCell<Option<Box<Weighed>>>,
}

/// What those runs cost that go on behind each of the runs that are remembered, from the wait there on, in pages: in the order of their lengths.
#[derive(Clone, Debug)]
struct Weighed {
    /// For a wait that costs as much.
    wait: PageCount,
    costs: [u64; RUNS_MAX],
}

impl Default for Lengths {
    fn default() -> Self {
        Self { ended: [0; RUNS_MAX], sorted: [0; RUNS_MAX], count: 0, weighed: RefCell::default() }
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
        *self.weighed.get_mut() = None;
    }

    /// Pages of the longest run that is remembered.
    pub(crate) fn longest(&self) -> u64 {
        self.kept().last().map_or(0, |&l| u64::from(l))
    }

    /// The runs that are remembered, by length.
    fn kept(&self) -> &[u32] {
        &self.sorted[..self.count.min(RUNS_MAX)]
    }

    /// Those of them that came at least `progress` pages.
    fn witnesses(&self, progress: u64) -> &[u32] {
        let kept = self.kept();
        &kept[kept.partition_point(|&l| u64::from(l) < progress)..]
    }

    /// Bytes that it takes beside its own.
    pub(crate) fn bytes_of_memory(&self) -> usize {
        if self.weighed.borrow().is_some() { size_of::<Weighed>() } else { 0 }
    }

    /// Whether enough runs ended to say anything of the next one.
    pub(crate) fn known(&self) -> bool {
        self.count >= WITNESSES_MIN
    }

    /// What is worth fetching ahead of a run that has come `progress` pages: the largest window, at most `most` pages, of which
    /// 85 % is used; or, if that is more, the one that weighs waits against pages in vain. `None` where too few runs came so far.
    /// O([`RUNS_MAX`]); its square where a run has ended since the last time, or a wait costs more or less.
    pub(crate) fn promise(&self, progress: u64, most: PageCount, wait: PageCount) -> Option<PageCount> {
        let sure = self.window(progress, most, USED_PERCENT)?;
        Some(sure.max(self.weighed(progress, wait).min(most)))
    }

    /// The window for a run that has come `progress` pages with which what waits cost and what is fetched in vain are least up to its
    /// end: a wait costs as much as `wait` pages. It ends where a witness did, for from there to the next is in vain; and half of it
    /// is used on average.
    ///
    /// O([`RUNS_MAX`]) where what those behind each witness cost is known.
    fn weighed(&self, progress: u64, wait: PageCount) -> PageCount {
        let left = self.witnesses(progress);
        if left.len() < WITNESSES_MIN {
            return PageCount(0);
        }
        let kept = self.kept();
        let mut latest = self.weighed.borrow_mut();
        let weighed = match &mut *latest {
            Some(weighed) if weighed.wait == wait => weighed,
            other => other.insert(Box::new(Weighed { wait, costs: costs(kept, wait.0) })),
        };
        PageCount(best_window(progress, left, &weighed.costs[kept.len() - left.len()..], wait.0).1)
    }

    /// The largest window, at most `most` pages, of which at least `used_percent` is used on average by a run that has
    /// come `progress` pages; `None` where too few runs came so far. O([`RUNS_MAX`]).
    pub(crate) fn window(&self, progress: u64, most: PageCount, used_percent: u64) -> Option<PageCount> {
        let left = self.witnesses(progress);
        if left.len() >= WITNESSES_MIN {
            return Some(used(left, progress, most, used_percent));
        }
        // As long as the longest: it gets a little more before it is taken for a longer one.
        let near = |l: u32| u64::from(l) + u64::from(l) / ALIKE;
        let kept = self.kept();
        let left = &kept[kept.partition_point(|&l| near(l) < progress)..];
        let few = left.len() >= WITNESSES_MIN;
        few.then(|| PageCount((near(left[left.len() - 1]) - progress).min(most.0)))
    }

    /// The same by those few that came so far where others ended before, or that are alike where none did: they say where this one may end, not
    /// how far it is sure to go. `None` where there are none, or enough for [`Self::promise`].
    pub(crate) fn may_end(&self, progress: u64, most: PageCount) -> Option<PageCount> {
        let left = self.witnesses(progress);
        let enough = if self.known() { !left.is_empty() } else { left.len() > 1 && are_alike(left) };
        let few = enough && left.len() < WITNESSES_MIN;
        few.then(|| used(left, progress, most, USED_PERCENT))
    }
}

/// Whether runs, by length, differ by no more than one page in [`ALIKE`].
fn are_alike(left: &[u32]) -> bool {
    let (shortest, longest) = (u64::from(left[0]), u64::from(left[left.len() - 1]));
    shortest + shortest / ALIKE >= longest
}

/// The largest window, at most `most` pages, of which at least `used_percent` is used on average if a run that has come `progress` pages is one
/// of those in `left`. O([`RUNS_MAX`]).
fn used(left: &[u32], progress: u64, most: PageCount, used_percent: u64) -> PageCount {
    // A window w is used sum(min(w, left)) / witnesses on average; between two values of `left` that sum grows
    // linearly, so on each piece the largest good w has a closed form.
    // The used share falls as w grows, so the first piece that it does not outlast holds the answer.
    let demanded = used_percent * left.len() as u64;
    let mut below = 0u64;
    for (i, &l) in left.iter().enumerate() {
        let l = u64::from(l) - progress;
        let longer = (left.len() - i) as u64;
        // On (left[i-1], left[i]]: 100 * (below + longer * w) >= demanded * w.
        if 100 * longer < demanded {
            let w = 100 * below / (demanded - 100 * longer);
            if w < l {
                return PageCount(w.min(most.0));
            }
        }
        below += l;
    }
    // Where they are alike, the next one ends there too.
    if left.len() >= ALIKE_MIN && are_alike(left) {
        return PageCount((u64::from(left[left.len() - 1]) - progress).min(most.0));
    }
    // Past the longest run, what is used stays at `below`.
    let w = (100 * below).checked_div(demanded).unwrap_or(0);
    PageCount(w.min(most.0))
}

/// What those runs cost that go on behind each of `kept`, which are in the order of their lengths. From the longest down: what those cost that
/// go on behind one is known when that one is looked at. O([`RUNS_MAX`]^2).
fn costs(kept: &[u32], wait: u64) -> [u64; RUNS_MAX] {
    let mut costs = [0; RUNS_MAX];
    for i in (0..kept.len().saturating_sub(1)).rev() {
        (costs[i], _) = best_window(u64::from(kept[i]), &kept[i + 1..], &costs[i + 1..], wait);
    }
    costs
}

/// What the runs in `left` cost, and the window that is best for them at `from`, where `costs` is what those cost that go on
/// behind each.
fn best_window(from: u64, left: &[u32], costs: &[u64], wait: u64) -> (u64, u64) {
    let (mut best, mut shorter) = ((u64::MAX, 0), 0);
    for (i, &l) in left.iter().enumerate() {
        let w = u64::from(l) - from;
        shorter += w;
        if left.get(i + 1) == Some(&l) {
            continue;
        }
        let longer = (left.len() - i - 1) as u64;
        let (used, fetched) = (shorter + longer * w, left.len() as u64 * w);
        if 100 * used < WEIGHED_USED_PERCENT * fetched {
            break;
        }
        best = best.min((fetched - used + longer * wait + costs[i], w));
    }
    best
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
        let after_as_many = |alike: usize| after(&[128; 40][..alike]).window(16, PageCount(256), 85);
        assert_eq!([15, 16].map(after_as_many), [Some(PageCount(131)), Some(PageCount(112))]);
    }

    /// Ten that ended, two of which came farther than 300 pages: the next may end at 320. Beyond the longest nothing is known.
    #[test]
    fn few_say_where_a_run_may_end() {
        let lengths = after(&[20, 20, 40, 60, 80, 100, 120, 200, 320, 400]);
        let says = |progress| {
            let most = PageCount(999);
            (lengths.promise(progress, most, PageCount(0)).is_some(), lengths.may_end(progress, most))
        };
        assert_eq!(says(100), (true, None));
        assert_eq!(says(300), (false, Some(PageCount(28))));
        assert_eq!(says(401), (false, None));
        let early = |runs: &[u64], progress| after(runs).may_end(progress, PageCount(999)).map(|w| w.0);
        assert_eq!(early(&[20, 20, 400], 300), None, "of three that ended one is too few");
        assert_eq!((early(&[400], 300), early(&[300, 400], 100)), (None, None), "one, and two that differ");
        assert_eq!((early(&[80, 81], 60), early(&[80, 81], 82)), (Some(24), None), "two that are alike");
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
    fn waits_are_weighed_against_pages_in_vain() {
        let lengths = after(&[2, 8, 14, 20, 26, 32, 38, 44, 50, 56]);
        let promise =
            |progress, wait| lengths.promise(progress, PageCount(999), PageCount(wait)).map(|w| w.0);
        assert_eq!((promise(1, 25), promise(38, 25)), (Some(37), Some(18)));
        // Where a wait costs little, what is mostly used is enough.
        assert_eq!((promise(1, 3), promise(1, 10)), (Some(14), Some(25)));
        assert_eq!(lengths.window(1, PageCount(999), 85), Some(PageCount(14)));
        assert_eq!(after(&[1; 40]).promise(1, PageCount(256), PageCount(24)), Some(PageCount(0)));
    }

    #[test]
    fn no_other_windows_cost_less() {
        // Every way to cut 12 pages into windows of which half is used, against runs drawn.
        let cost = |runs: &[u64], cuts: u64, wait: u64| -> Option<u64> {
            let (mut cost, mut from) = (0, 0);
            for end in (1..=12).filter(|end| cuts >> (end - 1) & 1 == 1) {
                let left: alloc::vec::Vec<u64> =
                    runs.iter().filter(|&&l| from == 0 || l > from).map(|l| l - from).collect();
                let (n, w) = (left.len() as u64, end - from);
                let used: u64 = left.iter().map(|&l| l.min(w)).sum();
                if 2 * used < n * w {
                    return None;
                }
                cost += n * w - used + wait * if from == 0 { 0 } else { n };
                from = end;
            }
            runs.iter().all(|&l| l <= from).then_some(cost)
        };
        let mut state = 7u64;
        for wait in (0..200).map(|i| i % 9) {
            let runs: alloc::vec::Vec<u64> = (0..6)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    1 + (state >> 33) % 12
                })
                .collect();
            let least = (0..1 << 12).filter_map(|cuts| cost(&runs, cuts, wait)).min();
            let w = after(&runs).weighed(0, PageCount(wait)).0;
            let ours = (0..1u64 << 12).filter(|cuts| u64::from(cuts.trailing_zeros()) + 1 == w);
            assert_eq!(ours.filter_map(|cuts| cost(&runs, cuts, wait)).min(), least, "{runs:?}, {wait}: {w}");
        }
    }

    /// A run that ends, and a wait that costs more, are heard of at once.
    #[test]
    fn what_was_weighed_is_forgotten_when_it_is_no_longer_so() {
        let runs = [2, 8, 14, 20, 26, 32, 38, 44, 50, 56];
        let mut lengths = after(&runs);
        for (ended, wait) in [(None, 25), (None, 3), (Some(56), 25), (Some(2), 25), (None, 40)] {
            ended.into_iter().for_each(|pages| lengths.push(pages));
            let anew = Lengths { weighed: RefCell::default(), ..lengths.clone() };
            for progress in 0..60 {
                assert_eq!(
                    lengths.weighed(progress, PageCount(wait)),
                    anew.weighed(progress, PageCount(wait))
                );
            }
        }
        assert_eq!(after(&runs).bytes_of_memory(), 0);
        assert_eq!(lengths.bytes_of_memory(), 520);
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
