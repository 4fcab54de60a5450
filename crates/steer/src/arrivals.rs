//! When has a fetch arrived? The kernel does not say, so we look: when, is the core's to say (`bowwave_core::first_look`).
//!
//! A look is one `mincore` of one page, about half a microsecond, and one `cachestat` where it is not there: what is under way is
//! in the cache already, so a page that is not has come and gone between two looks. Devices answer out of order: each fetch is
//! looked at for itself. A fetch that has not come after 30 s is given up.
//!
//! Worked example: issued at 0 with 30 ms learnt, looked at 24 ms and then each 1 ms; seen at 30 ms to the millisecond.

use std::collections::{BTreeMap, VecDeque};

use bowwave_core::{FetchId, Nanos, first_look, next_look};

/// Looks in one turn at one device; the rest waits for the next turn.
const LOOKS_MAX: usize = 64;
/// A fetch of which nothing was seen for so long has failed: readers of one loaded disk wait for up to 16 s (epochs.rs of the core).
pub(crate) const GIVEN_UP_NS: u64 = 30_000_000_000;

/// A fetch that is out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outstanding {
    pub(crate) fetch: FetchId,
    /// Slot of its file.
    pub(crate) file: u32,
    /// The page to look at: its last.
    pub(crate) page: u64,
    pub(crate) issued: Nanos,
    next_look: Nanos,
}

/// What a look tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    There,
    NotYet,
    /// It is not even under way: it has come and the cache has lost it, or there was no memory for it.
    Gone,
    /// The file cannot be looked at any more.
    Lost,
}

/// What became of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Arrived,
    Gone,
    Failed,
}

/// Fetches that are out, by device, oldest first.
#[derive(Default)]
pub(crate) struct Arrivals {
    lines: BTreeMap<u64, VecDeque<Outstanding>>,
}

impl Arrivals {
    /// A fetch went out on `device`, on which a lone read takes `latency` if that is known.
    pub(crate) fn add(
        &mut self,
        device: u64,
        fetch: FetchId,
        file: u32,
        page: u64,
        issued: Nanos,
        latency: Option<Nanos>,
    ) {
        let next_look = first_look(issued, latency);
        self.lines.entry(device).or_default().push_back(Outstanding { fetch, file, page, issued, next_look });
    }

    /// Looks at those that are due, and hands out those that have come or are given up.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        mut look: impl FnMut(&Outstanding) -> Look,
    ) -> Vec<(Outstanding, Outcome)> {
        let mut done = Vec::new();
        for line in self.lines.values_mut() {
            let mut looks = 0;
            line.retain_mut(|out| {
                if out.next_look > now || looks == LOOKS_MAX {
                    return true;
                }
                looks += 1;
                let age = now.since(out.issued).0;
                match look(out) {
                    Look::There => done.push((*out, Outcome::Arrived)),
                    Look::Gone => done.push((*out, Outcome::Gone)),
                    Look::Lost => done.push((*out, Outcome::Failed)),
                    Look::NotYet if age > GIVEN_UP_NS => done.push((*out, Outcome::Failed)),
                    Look::NotYet => {
                        out.next_look = next_look(out.issued, now);
                        return true;
                    }
                }
                false
            });
        }
        done
    }

    /// When the next look is due.
    pub(crate) fn next_look(&self) -> Option<Nanos> {
        self.lines.values().flatten().map(|out| out.next_look).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_first_look_is_at_four_fifths_and_then_each_twenty_fourth() {
        let mut arrivals = Arrivals::default();
        arrivals.add(1, FetchId(7), 3, 12, Nanos(0), Some(Nanos(30 * MS)));
        assert_eq!(arrivals.next_look(), Some(Nanos(24 * MS)));
        assert!(arrivals.look(Nanos(23 * MS), |_| unreachable!()).is_empty());
        assert!(arrivals.look(Nanos(24 * MS), |_| Look::NotYet).is_empty());
        assert_eq!(arrivals.next_look(), Some(Nanos(25 * MS)));
        let done =
            arrivals.look(Nanos(30 * MS), |out| if out.page == 12 { Look::There } else { Look::NotYet });
        assert_eq!((done.len(), done[0].1), (1, Outcome::Arrived));
        assert_eq!(arrivals.next_look(), None);
    }

    #[test]
    fn the_second_may_come_before_the_first() {
        let mut arrivals = Arrivals::default();
        for page in [1, 2] {
            arrivals.add(1, FetchId(page), 3, page, Nanos(0), None);
        }
        let done = arrivals.look(Nanos(MS), |out| if out.page == 2 { Look::There } else { Look::NotYet });
        assert_eq!(done.iter().map(|d| d.0.page).collect::<Vec<_>>(), [2]);
        assert!(arrivals.next_look().is_some());
    }

    #[test]
    fn what_came_and_went_is_not_waited_for() {
        let mut arrivals = Arrivals::default();
        arrivals.add(1, FetchId(1), 3, 1, Nanos(0), None);
        assert_eq!(arrivals.look(Nanos(MS), |_| Look::Gone)[0].1, Outcome::Gone);
        assert_eq!(arrivals.next_look(), None);
    }

    #[test]
    fn what_never_comes_is_given_up() {
        let mut arrivals = Arrivals::default();
        arrivals.add(1, FetchId(1), 3, 1, Nanos(0), None);
        assert!(arrivals.look(Nanos(29_000 * MS), |_| Look::NotYet).is_empty());
        assert_eq!(arrivals.look(Nanos(31_000 * MS), |_| Look::NotYet)[0].1, Outcome::Failed);
    }
}
