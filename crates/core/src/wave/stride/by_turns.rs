//! R7: strides that their reader walks by turns with whatever else, told by where reads lie and not by when they came.
//!
//! One who reads three records here, a column there, something at random and then the next three records leaves, where he went by a
//! stride, reads that lie equally far apart, each newer than the one before. So a read that belongs nowhere is held against those
//! nearest to it, and against those as far behind them.
//!
//! ```text
//! pages      787312      787336      787360      787384            period 24
//! read as         7          19          31          44            of all reads that belonged nowhere: each newer than the last
//! ```
//!
//! Reads at random meet so by chance, the more often the thicker they lie. Where they are `period` pages apart, the next lies at the right
//! place, give or take a page, once in `period / 3`; and `m` of them were made in this order once in `m!`. Enough steps are asked for that
//! no more than one such row in [`COINCIDENCE`] is a coincidence:
//!
//! ```text
//! period   256     three steps after one another     (256/3)^2 * 2!  = 14,563
//!           24     five                              (24/3)^4  * 4!  = 98,304
//!            4     eight                             (4/3)^7   * 7!  = 37,758
//! ```

use crate::units::{Extent, FileId, Nanos};
use crate::wave::Wave;
use crate::wave::streams::stream::Course;

/// Strides that are none: one of so many.
const COINCIDENCE: u64 = 4096;
/// Steps that are looked at; with any period of three pages or more they are enough.
const STEPS_MAX: u64 = 12;

impl Wave {
    /// A stride upwards or downwards that `pages`, which `actor` reads and which belong nowhere, are the latest read of: its period, the
    /// reads that show it, and when the one before was made.
    pub(in crate::wave) fn by_turns(
        &self,
        id: FileId,
        pages: Extent,
        actor: u32,
    ) -> Option<(i64, u64, Nanos)> {
        let f = self.files.get(&id)?;
        let q = pages.start.0;
        let seed = |page: u64| {
            let s = self.streams.get(*f.expected.down().get(&page)?)?;
            let own = s.course == Course::Seed && s.begun.by() == Some(actor);
            (own && s.request.abs_diff(pages.count.0) <= 1).then_some(s)
        };
        let below = f.expected.down().range(..q).next_back().map(|(&page, _)| page);
        let above = f.expected.down().range(q + 1..).next().map(|(&page, _)| page);
        [below, above].into_iter().flatten().find_map(|nearest| {
            let period = q.wrapping_sub(nearest) as i64;
            let overlap = period.unsigned_abs() <= pages.count.0;
            let serial = |page| Some(seed(page)?.begun.serial());
            let reads = if overlap { None } else { reads_of(period, nearest, serial) };
            Some((period, reads?, seed(nearest)?.pace.last()))
        })
    }
}

/// How many reads, with the one now, lie `period` apart and were made in that order, back from the one at `nearest`; if they are more than
/// chance makes. `serial` is the number, in the order in which they were made, of the read at a page, if one counts.
pub(in crate::wave) fn reads_of(
    period: i64,
    nearest: u64,
    serial: impl Fn(u64) -> Option<u64>,
) -> Option<u64> {
    let (mut at, mut newer) = (nearest, serial(nearest)?);
    let (mut odds, mut steps) = (1, 1);
    while odds < COINCIDENCE {
        if steps == STEPS_MAX {
            return None;
        }
        let exact = at.checked_add_signed(-period)?;
        let (page, older) = [exact, exact.saturating_sub(1), exact.saturating_add(1)]
            .into_iter()
            .find_map(|page| Some((page, serial(page)?)))?;
        if older >= newer {
            return None;
        }
        odds = period.unsigned_abs().saturating_mul(odds * steps) / 3;
        (at, newer, steps) = (page, older, steps + 1);
    }
    Some(steps + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, Nanos};
    use crate::wave::{Config, Input, Wave};
    use alloc::vec::Vec;

    /// What is found at the last of these reads, each of two pages, by the first actor but where another is named.
    fn found(reads: &[(u64, u32)]) -> Option<(i64, u64)> {
        let id = FileId(0);
        let mut wave = Wave::new(Config::default());
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 40) });
        let (&(last, actor), before) = reads.split_last()?;
        for &(page, by) in before {
            wave.sow(Nanos(0), id, Extent::new(page, 2), Some(by));
        }
        let found = wave.by_turns(id, Extent::new(last, 2), actor);
        found.map(|(period, reads, _)| (period, reads))
    }

    fn steps(period: u64, steps: u64) -> Vec<(u64, u32)> {
        (0..=steps).map(|k| (100_000 + k * period, 0)).collect()
    }

    /// The table at the top.
    #[test]
    fn as_many_steps_as_chance_does_not_make() {
        for (period, least) in [(256, 3), (24, 5), (4, 8)] {
            assert_eq!(found(&steps(period, least)), Some((period as i64, least + 1)));
            assert_eq!(found(&steps(period, least - 1)), None, "{period}");
        }
        assert_eq!(found(&steps(2, 40)), None, "pages after one another are no stride");
    }

    #[test]
    fn where_reads_lie_counts_and_in_which_order_they_came() {
        let up = steps(24, 5);
        let among_others: Vec<_> =
            up.iter().flat_map(|&read| [(7 * read.0 % 90_000, 0), (read.0 + 500_000, 0), read]).collect();
        assert_eq!(found(&among_others), Some((24, 6)));
        let mut down = up.clone();
        down.reverse();
        assert_eq!(found(&down), Some((-24, 6)));
        let mut mixed = up.clone();
        mixed.swap(1, 3);
        assert_eq!(found(&mixed), None);
        let others: Vec<_> = up.iter().enumerate().map(|(i, &(page, _))| (page, i as u32)).collect();
        assert_eq!(found(&others), None, "six readers that begin equally far apart walk no stride");
    }

    /// One read in every 270 ms of 256 pages apart, and eight of others between two of them: half a second later, and four seconds later, the
    /// stride that they are is still there; not a minute later.
    #[test]
    fn who_comes_by_turns_is_waited_for_as_long_as_a_turn_takes() {
        let still_there = |later_ms: u64| {
            let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
            wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 40) });
            for turn in 0..4 {
                for other in 0..9 {
                    let number = 9 * turn + other;
                    let anywhere = 7_919 * number * number * number % 9_999_991;
                    let page = if other == 0 { 20_000_000 + 256 * turn } else { anywhere };
                    let (now, pages) = (Nanos::from_ms(30 * number), Extent::new(page, 2));
                    wave.handle(now, Input::Read { file: id, pages, actor: 0 });
                    wave.check();
                    if turn == 3 {
                        break;
                    }
                }
            }
            assert_eq!(wave.files[&id].expected.strides().len(), 1);
            (0..99).for_each(|_| wave.sweep(Nanos::from_ms(810 + later_ms)));
            wave.files[&id].expected.strides().len() == 1
        };
        assert_eq!([500, 4_000, 60_000].map(still_there), [true, true, false]);
    }
}
