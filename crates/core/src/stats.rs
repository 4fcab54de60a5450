//! The stats table: what readahead did, a row a pattern, and what came of it.
//!
//! The first nine columns are those of `/debug/readahead/stats` of 2010 (spec 5.9, seed 001), in its layout:
//!
//! ```text
//! pattern     readahead    eof_hit  cache_hit         io    sync_io    mmap_io       size async_size    io_size
//! context         61325          1       5479      61325       6788          5         14          2         13
//!             windows   cut short    overlap   that read   somebody    a fault       mean       mean       mean
//!                         by the end     cached    anything      waits      asked      pages       tail  pages read
//! ```
//!
//! Its authors advise to look at `io` and `io_size`. The kernel stopped there; it never knew what became of the pages.
//! We do: pages *used*, *evicted* before their use, *wasted* in all (evicted, or dropped when the file was closed),
//! and how often a reader *stalled*. Every page that was read is used or wasted in the end: `actual = used + wasted +
//! unread`.
//!
//! One quirk of 2010 is mended knowingly: its row `all` was fed with the pattern alone, so `all` always said `mmap_io`
//! 0 where the rows of seed 001 add up to 254. Here every cell of `all` is the sum of its column.

use crate::decision::Pattern;
use crate::trace::TraceRecord;
use crate::units::{PageCount, PageIndex};
use core::fmt;

/// One row: counts of windows, then sums of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Row {
    /// Windows submitted.
    pub readahead: u64,
    /// Windows cut short by the end of the file.
    pub eof_hit: u64,
    /// Windows of which some pages were cached, the end of the file apart.
    pub cache_hit: u64,
    /// Windows that read anything.
    pub io: u64,
    /// Windows that read anything, with the page in them that somebody waits for.
    pub sync_io: u64,
    /// Windows that read anything, asked for by a fault.
    pub mmap_io: u64,
    /// Pages in all windows.
    pub size: PageCount,
    /// Pages in all their tails.
    pub async_size: PageCount,
    /// Pages read.
    pub actual: PageCount,
    /// Pages read and then used.
    pub used: PageCount,
    /// Pages read and lost to other pages before their use.
    pub evicted: PageCount,
    /// Pages read and never used: evicted, or dropped at the end.
    pub wasted: PageCount,
    /// Reads that waited for a window of this row.
    pub stalls: u64,
}

/// The table: one [`Row`] a [`Pattern`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    rows: [Row; Pattern::ALL.len()],
}

impl Row {
    /// Mean pages of a window, rounded down.
    pub fn size_mean(&self) -> u64 {
        self.size.0 / self.readahead.max(1)
    }
    /// Mean pages of a tail, rounded down.
    pub fn async_size_mean(&self) -> u64 {
        self.async_size.0 / self.readahead.max(1)
    }
    /// Mean pages of a window that read anything, rounded down.
    pub fn io_size_mean(&self) -> u64 {
        self.actual.0 / self.io.max(1)
    }
    /// Pages read of which nothing is known yet.
    pub fn unread(&self) -> PageCount {
        self.actual - self.used - self.wasted
    }

    fn add(&mut self, other: &Self) {
        self.readahead += other.readahead;
        self.eof_hit += other.eof_hit;
        self.cache_hit += other.cache_hit;
        self.io += other.io;
        self.sync_io += other.sync_io;
        self.mmap_io += other.mmap_io;
        self.size += other.size;
        self.async_size += other.async_size;
        self.actual += other.actual;
        self.used += other.used;
        self.evicted += other.evicted;
        self.wasted += other.wasted;
        self.stalls += other.stalls;
    }
}

impl Stats {
    /// Counts one submission to a file of `end_of_file` pages. A decision to fetch nothing does not count.
    pub fn submitted(&mut self, record: &TraceRecord, end_of_file: PageIndex) {
        let window = record.window;
        if window.size.0 == 0 {
            return;
        }
        let row = self.row_mut(record.pattern);
        let short = record.actual < window.size;
        // As in 2010: the window need only touch the last page to be called short because of it.
        let at_end = window.end() > end_of_file.back(PageCount(1));
        let read = record.actual.0 > 0;
        row.readahead += 1;
        row.eof_hit += u64::from(short && at_end);
        row.cache_hit += u64::from(short && !at_end);
        row.io += u64::from(read);
        row.sync_io += u64::from(read && window.extent().contains(record.request.start));
        row.mmap_io += u64::from(read && record.mapped);
        row.size += window.size;
        row.async_size += window.async_size;
        row.actual += record.actual;
    }

    /// `pages` that a window of this pattern read were used.
    pub fn used(&mut self, pattern: Pattern, pages: PageCount) {
        self.row_mut(pattern).used += pages;
    }
    /// `pages` that a window of this pattern read were evicted before their use.
    pub fn evicted(&mut self, pattern: Pattern, pages: PageCount) {
        self.row_mut(pattern).evicted += pages;
        self.row_mut(pattern).wasted += pages;
    }
    /// `pages` that a window of this pattern read were dropped unused when nobody could want them any more.
    pub fn dropped(&mut self, pattern: Pattern, pages: PageCount) {
        self.row_mut(pattern).wasted += pages;
    }
    /// A read waited for a window of this pattern.
    pub fn stalled(&mut self, pattern: Pattern) {
        self.row_mut(pattern).stalls += 1;
    }
    /// Adds another table to this one, cell by cell.
    pub fn merge(&mut self, other: &Self) {
        for pattern in Pattern::ALL {
            self.row_mut(pattern).add(other.row(pattern));
        }
    }

    /// The row of `pattern`.
    pub fn row(&self, pattern: Pattern) -> &Row {
        &self.rows[pattern as usize]
    }
    /// The row `all`: every cell the sum of its column.
    pub fn all(&self) -> Row {
        let mut all = Row::default();
        self.rows.iter().for_each(|row| all.add(row));
        all
    }
    /// What became of the pages, as a second table of the same layout.
    pub fn outcome(&self) -> impl fmt::Display + '_ {
        Outcome(self)
    }

    fn row_mut(&mut self, pattern: Pattern) -> &mut Row {
        &mut self.rows[pattern as usize]
    }

    /// The rows to print: the seven of 2010 always, the later ones once they have counted anything.
    fn printed(&self) -> impl Iterator<Item = (&'static str, Row)> + '_ {
        use Pattern::{Around, Context, Fadvise, Initial, Random, Subsequent, Thrash};
        let always = [Initial, Subsequent, Context, Thrash, Around, Fadvise, Random];
        Pattern::ALL
            .into_iter()
            .filter(move |pattern| always.contains(pattern) || *self.row(*pattern) != Row::default())
            .map(|pattern| (pattern.name(), *self.row(pattern)))
            .chain([("all", self.all())])
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = [
            "readahead",
            "eof_hit",
            "cache_hit",
            "io",
            "sync_io",
            "mmap_io",
            "size",
            "async_size",
            "io_size",
        ];
        line(f, "pattern", columns)?;
        self.printed().try_for_each(|(name, row)| {
            let means = [row.size_mean(), row.async_size_mean(), row.io_size_mean()];
            let counts = [row.readahead, row.eof_hit, row.cache_hit, row.io, row.sync_io, row.mmap_io];
            line(f, name, counts.into_iter().chain(means))
        })
    }
}

struct Outcome<'a>(&'a Stats);

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "pattern", ["read", "used", "evicted", "wasted", "unread", "stalls"])?;
        self.0.printed().try_for_each(|(name, row)| {
            let pages = [row.actual, row.used, row.evicted, row.wasted, row.unread()];
            line(f, name, pages.map(|pages| pages.0).into_iter().chain([row.stalls]))
        })
    }
}

/// A name, ten wide, and cells of ten behind a blank each.
fn line<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    cells: impl IntoIterator<Item = T>,
) -> fmt::Result {
    write!(f, "{name:<10}")?;
    cells.into_iter().try_for_each(|cell| write!(f, " {cell:>10}"))?;
    f.write_str("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    /// The table of seed 001, printed by the sums behind its means. Only `all mmap_io` differs: 254 for the kernel's 0.
    #[test]
    fn prints_the_table_of_seed_001() {
        let published = include_str!("../tests/data/seed-001-stats.txt");
        let mut stats = Stats::default();
        for text in published.lines().skip(1).filter(|line| !line.starts_with("all")) {
            let mut words = text.split_whitespace();
            let name = words.next().unwrap();
            let cells: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
            let pattern = Pattern::ALL.into_iter().find(|p| p.name() == name).unwrap();
            // The kernel rounded its means down; half a page a window puts the mean of `all` where it was.
            let sum = |mean: u64, windows: u64| PageCount(mean * windows + windows / 2);
            *stats.row_mut(pattern) = Row {
                readahead: cells[0],
                eof_hit: cells[1],
                cache_hit: cells[2],
                io: cells[3],
                sync_io: cells[4],
                mmap_io: cells[5],
                size: sum(cells[6], cells[0]),
                async_size: sum(cells[7], cells[0]),
                actual: sum(cells[8], cells[3]),
                ..Row::default()
            };
        }
        let (rows, all) = published.split_at(published.find("all").unwrap());
        let mended = all.replacen("          0", "        254", 1);
        assert_ne!(all, mended);
        let printed = stats.to_string();
        for (ours, theirs) in printed.lines().zip(rows.lines().chain([mended.trim_end()])) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(printed.lines().count(), published.lines().count());
    }

    #[test]
    fn a_row_appears_once_it_counted() {
        let mut stats = Stats::default();
        assert!(!stats.to_string().contains("stride"));
        stats.evicted(Pattern::Stride, PageCount(3));
        assert!(stats.to_string().contains("stride"));
        assert_eq!((stats.all().evicted, stats.all().wasted), (PageCount(3), PageCount(3)));
    }
}
