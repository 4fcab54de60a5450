//! R7: who goes on in one row after another, equally far apart, walks the columns of a matrix: the rows behind are opened.
//!
//! The first column is a stride (strides.rs), and each run of it that is told is the seed of a row, opened in step with others (R10). Not
//! all are told: what was fetched ahead is read without a word, and such a row goes on from what the cache remembers (R4), one latency each;
//! nor does R10 see rows that go in step among many other reads. But three that go on, equally far apart, say where the next will:
//!
//! ```text
//! rows of 1000 pages, the first column read quietly    0 1000 2000 3000 4000 5000 6000 7000 ... 63000
//! the second, reads that take up a row                 1 1001 2001 .    .    .    .    .
//!   with the third of them opened                                  3001 4001 5001 6001            four
//!   with the fourth                                                |                   7001 ... 11001   eight behind that one
//! ```
//!
//! Seeds that wait at the next places are opened at once. Where there is none, two of those before must have been unknown as well, and the
//! page before be there: else what a stride fetched beyond the last row would count as rows.
//!
//! Who has walked the first column as a stride, and told of it, says so with the first row that he takes up.
//!
//! A read of a stream that has come farther takes up nothing, and of those that take up something by turns with the rows the rows are told as
//! strides by turns are (by_turns.rs): by their places, from the fourth on where they are 256 pages apart. From then on what is taken up
//! elsewhere does not disturb the column.
//!
//! ```text
//! 1 500001 1001 320001 2001 770001 3001      four rows, and between two of them something else: 4001 5001 6001 7001 are opened
//! ```
//!
//! Where requests do not overlap nothing is opened: to a head each row is a trip, made as soon when its reader comes.

use crate::decision::Why;
use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageIndex};
use crate::wave::Wave;
use crate::wave::streams::stream::Course;
use crate::wave::stride::by_turns::reads_of;

/// Rows that are opened first, and how often twice as many are: 64 at most.
const ROWS_FIRST: u64 = 4;
const DOUBLED: u32 = 4;
/// Reads that take up rows equally far apart, from which on the next are opened,
const READS: u32 = 3;
/// and how many of them must have been unknown, before others that are unknown are.
const UNKNOWN: u32 = 2;
/// Reads of a stride that were the first column of a matrix if one of its runs but the latest is taken up.
const WALKED: u64 = 8;
/// Places taken up that are remembered, with whatever else comes by turns.
pub(in crate::wave) const TAKEN_MAX: usize = 32;

/// A row, or something else, that was taken up.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Taken {
    at: u64,
    /// Only the cache remembered what was read before it.
    unknown: bool,
}

/// Where a reader took up rows.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Column {
    /// The latest row, and how far that was from the one before.
    at: u64,
    period: i64,
    /// Rows equally far apart, those of them that were unknown, and rows that are open behind the latest.
    reads: u32,
    unknown: u32,
    opened: u64,
    /// Its first column was a stride whose runs came together.
    walked: bool,
}

impl Column {
    /// Something is taken up, after all that was `taken` of late, the newest first; whether it is a row of the column.
    fn takes(&mut self, row: Taken, taken: &[Taken], walked: Option<i64>) -> bool {
        let at = row.at;
        let goes_on = self.reads >= READS && at.wrapping_sub(self.at) as i64 == self.period;
        let seen = || in_a_row(taken, at).or_else(|| by_turns(taken, at)).or(walked);
        let begins = if goes_on { None } else { seen() };
        if goes_on {
            self.reads = self.reads.saturating_add(1);
            self.unknown = self.unknown.saturating_add(u32::from(row.unknown));
            self.opened = self.opened.saturating_sub(1);
        } else if let Some(period) = begins {
            let before = [1, 2].map(|rows| at.wrapping_add_signed(-rows * period));
            let unknown = taken.iter().filter(|row| row.unknown && before.contains(&row.at)).count();
            (self.period, self.reads, self.opened) = (period, READS, 0);
            self.walked = walked == Some(period);
            self.unknown = unknown as u32 + u32::from(row.unknown);
        }
        let of_column = goes_on || begins.is_some();
        if of_column {
            self.at = at;
        }
        of_column
    }

    /// Rows that are to be open behind it: none, or four and then twice as many.
    fn rows(self) -> u64 {
        self.reads.checked_sub(READS).map_or(0, |more| ROWS_FIRST << more.min(DOUBLED))
    }
}

/// The distance to `at` from what was taken up last, if that lay as far behind what was taken up before it.
fn in_a_row(taken: &[Taken], at: u64) -> Option<i64> {
    let [last, before, ..] = taken else { return None };
    let period = at.wrapping_sub(last.at) as i64;
    (period == last.at.wrapping_sub(before.at) as i64).then_some(period)
}

/// The distance to `at` from the nearest place, if there are as many so far apart as chance does not make. O([`TAKEN_MAX`]).
fn by_turns(taken: &[Taken], at: u64) -> Option<i64> {
    let serial = |page: u64| taken.iter().position(|row| row.at == page).map(|age| (TAKEN_MAX - age) as u64);
    let below = taken.iter().map(|row| row.at).filter(|&page| page < at).max();
    let above = taken.iter().map(|row| row.at).filter(|&page| page > at).min();
    [below, above].into_iter().flatten().find_map(|nearest| {
        let period = at.wrapping_sub(nearest) as i64;
        reads_of(period, nearest, serial).map(|_| period)
    })
}

impl Wave {
    /// `actor` has taken something up with a read of `pages`, which was unknown if only the cache remembers what was read before it. The rows
    /// behind are opened, if it is seen to be a row. O([`TAKEN_MAX`]), and O(log streams) for each row that is opened, 64 at most.
    pub(in crate::wave) fn open_rows(
        &mut self,
        now: Nanos,
        id: FileId,
        pages: Extent,
        actor: u32,
        unknown: bool,
    ) {
        let walked = self.row_of_walked(id, pages, actor);
        let Some(latest) = self.latest.get_mut(&actor) else { return };
        let row = Taken { at: pages.start.0, unknown };
        let of_column = latest.column.takes(row, latest.taken.all(), walked);
        latest.taken.push(row);
        let mut column = latest.column;
        // Who walked the first column by a stride has found its runs there together.
        let together = column.walked || self.files.get(&id).is_some_and(|f| self.overlaps(f));
        if of_column && !self.holds_back() && together && column.period.unsigned_abs() > pages.count.0 {
            while column.opened < column.rows() && self.open_row(now, id, pages, actor, column) {
                column.opened += 1;
            }
        }
        if let Some(latest) = self.latest.get_mut(&actor) {
            latest.column.opened = column.opened;
        }
    }

    /// How far rows lie apart, if `pages` begin right behind a run of the stride that `actor` has walked, though not its latest; where memory is
    /// not short.
    fn row_of_walked(&self, id: FileId, pages: Extent, actor: u32) -> Option<i64> {
        let s = self.streams.get(self.latest.get(&actor)?.stride?).filter(|s| s.file == id)?;
        let f = self.files.get(&id)?;
        if !s.comes_together(&self.queues.get(&f.device)?.device) || self.is_short(f) {
            return None;
        }
        let (Course::Stride { period, run }, latest) = (s.course, s.latest_run()?) else { return None };
        let before = PageIndex(pages.start.0.checked_sub(run)?);
        let on = s.beat().is_at(s.beat().nearest(before.0), before.0, 0);
        (on && before != latest.start && s.reads >= WALKED && s.went_by(before)).then_some(period)
    }

    /// Opens the first row of a column that is not open yet; whether there is one.
    fn open_row(&mut self, now: Nanos, id: FileId, pages: Extent, actor: u32, column: Column) -> bool {
        let distance = column.period.checked_mul(column.opened as i64 + 1);
        let start = distance.and_then(|distance| pages.start.0.checked_add_signed(distance));
        let Some(start) = start.filter(|&start| start > 0) else { return false };
        let seed = match self.files[&id].expected.up().get(&start) {
            Some(&known) => Some(known),
            None if column.unknown >= UNKNOWN && self.may_be_row(id, start) => {
                self.sow_as(now, id, Extent::new(start - 1, 1), Some(actor), 0)
            }
            None => None,
        };
        let Some(seed) = seed else { return false };
        self.open_seed(now, seed, pages, Why("R7 rows of a column"));
        true
    }

    /// Whether a row may go on at page `start`: what lies before was read, or is there and was not bought; what was fetched ahead is read
    /// without a word, and may be told late.
    fn may_be_row(&self, id: FileId, start: u64) -> bool {
        let f = &self.files[&id];
        let before = PageIndex(start - 1);
        let there = f.table.has(PageBit::Present, before) && !f.density.was_bought(before);
        start < f.end && (f.table.has(PageBit::Used, before) || there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use crate::wave::devices::device::tests::play;
    use crate::wave::{Config, Input};
    use alloc::vec::Vec;

    /// Pages of the matrix: what lies behind it is something else.
    const MATRIX: u64 = 64_000;

    /// Rows opened with each of `reads`, where the first pages of 64 rows of 1000 were read quietly, and what lies before each read elsewhere; on
    /// a device of so many slots.
    fn opened(slots: usize, reads: &[u64]) -> Vec<Vec<u64>> {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.queue(0).device = play(slots, 30_000, 500);
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        let before = (0..64)
            .map(|row| 1000 * row)
            .chain(reads.iter().filter(|&&page| page > MATRIX).map(|page| page - 1));
        for page in before {
            let table = &mut wave.files.get_mut(&id).unwrap().table;
            for bit in [PageBit::Present, PageBit::Used] {
                table.set(bit, Extent::new(page, 1));
            }
        }
        let mut opened_by = |(i, &page): (usize, &u64)| {
            let pages = Extent::new(page, 1);
            wave.handle(Nanos::from_ms(30 * i as u64), Input::Read { file: id, pages, actor: 0 });
            wave.check();
            let rows = wave.take_trace().filter(|e| e.decision.why.0 == "R7 rows of a column");
            rows.map(|e| e.decision.window.start.0).collect()
        };
        reads.iter().enumerate().map(&mut opened_by).collect()
    }

    /// The picture at the top; and the column ends with the last row.
    #[test]
    fn rows_are_opened_by_their_distance() {
        let second: Vec<u64> = (0..64).map(|row| 1000 * row + 1).collect();
        let rows = opened(64, &second);
        assert_eq!(rows[..2].concat(), []);
        assert_eq!(rows[2], [3001, 4001, 5001, 6001]);
        assert_eq!(rows[3], [7001, 8001, 9001, 10_001, 11_001]);
        assert_eq!(rows.concat(), second[3..], "each once");
        assert_eq!(opened(1, &second).concat(), [], "to a head each is a trip");
    }

    /// The picture of rows by turns with something else, and on from there.
    #[test]
    fn rows_are_told_by_their_places_among_what_is_taken_up_elsewhere() {
        let among = |second: &[u64]| -> Vec<u64> {
            let elsewhere = |i: u64| MATRIX + 500 + 7_919 * i * i * i % 99_991;
            second.iter().enumerate().flat_map(|(i, &row)| [row, elsewhere(i as u64)]).collect()
        };
        let second: Vec<u64> = (0..64).map(|row| 1000 * row + 1).collect();
        let rows = opened(64, &among(&second));
        assert_eq!(rows[..6].concat(), []);
        assert_eq!(rows[6], [4001, 5001, 6001, 7001]);
        assert_eq!(rows.concat(), second[4..], "each once");
    }

    /// The stride that was the first column is heard of: with the first row taken up four are opened behind it, and twice as many with each.
    #[test]
    fn who_has_walked_a_column_takes_up_the_next() {
        let opened_by = |rows: u64, latency_us: u64| {
            let (mut wave, file) = (Wave::new(Config::default()), FileId(0));
            wave.queue(0).device = play(64, latency_us, 500);
            wave.handle(Nanos(0), Input::Open { file, device: 0, size: Bytes(1 << 30) });
            let mut read = |at: u64, page: u64| {
                wave.handle(Nanos(at), Input::Read { file, pages: Extent::new(page, 1), actor: 0 });
                while wave.poll(Nanos(at)).is_some() {}
                wave.check();
                let column = wave.take_trace().filter(|e| e.decision.why.0 == "R7 rows of a column");
                column.map(|e| e.decision.window.start.0).collect::<Vec<_>>()
            };
            (0..rows).for_each(|row| assert_eq!(read(1_000 * row, 5 + 1000 * row), []));
            [read(1_000_000, 6), read(1_001_000, 1006)]
        };
        assert_eq!(opened_by(7, 30_000), [const { Vec::new() }; 2], "too few");
        let [first, second] = opened_by(20, 30_000);
        assert_eq!(first, [1006, 2006, 3006, 4006]);
        assert_eq!(second.len(), 5, "eight behind it");
    }

    #[test]
    fn other_distances_are_no_column() {
        let uneven = opened(64, &[1, 1001, 3001, 4001, 9001, 14_001]);
        assert_eq!(uneven.concat(), [19_001, 24_001, 29_001, 34_001]);
        assert_eq!(opened(64, &[1, 2, 3, 4, 1001, 5001]).concat(), []);
    }
}
