//! R7: where the runs of a stride lie, to the byte where that is told: records are seldom as long as a number of whole pages.
//!
//! ```text
//! 4 KiB of every 2,102,395 bytes (513.28 pages)     read 1     read 2      read 3      the next three
//!   bytes                                            8193     2110588     4212983     6315378    8417773    10520168
//!   pages                                         [2,4)   [515,517)  [1028,1030)  [1541,1543) [2055,2057) [2568,2570)
//!   pages, if the period were 513 of them                                             1541       2054        2567
//! ```
//!
//! Three reads that lie as many bytes apart say where the next lies. Some reads are told by their pages alone (a fault, a request of the kernel).
//! Their period is taken for a number of whole pages until a run begins a page beside that. From then on each run is known to begin somewhere in
//! its page, the period lies between the least and the greatest that the first and the latest run allow, and a run is fetched from where it begins
//! at the soonest to where it ends at the latest. Each read narrows that; no run is asked for whose begin is uncertain by more than a page. If the
//! reads allow for no period the beat begins anew, by whole pages. It goes by whole pages as well where reads are told to the byte, and only their
//! pages lie equally far apart.
//!
//! ```text
//! the same by pages: 0 513 1026 1539 2053      the last is one farther: 2053 pages in four steps, give or take one page
//!                                              a period of 513.0 to 513.5; the next begins on page 2566 or 2567: [2566,2568)
//! ```

use crate::units::{Extent, PAGE_SIZE, PageCount, PageIndex};

/// Bytes of a page, for differences of offsets.
const PAGE: i64 = PAGE_SIZE as i64;

/// A period is well known that tells where each of so many runs begins, give or take a page.
const WELL_KNOWN: u64 = 8;

/// A least and a greatest value, both possible.
type Span = [i64; 2];

/// Half way between the two.
fn middle([least, most]: Span) -> i64 {
    least + (most - least) / 2
}

/// Where a read lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::wave) struct Lies {
    /// The byte at which it begins, at the soonest and at the latest.
    from: Span,
    /// From there so many bytes at most.
    bytes: i64,
}

impl Lies {
    /// As told to the byte; `None` beyond all files, and where it is whole pages: a kernel asks for those on behalf of who reads otherwise.
    pub(in crate::wave) fn told(from: u64, bytes: u64) -> Option<Self> {
        if from.is_multiple_of(PAGE_SIZE) && bytes.is_multiple_of(PAGE_SIZE) {
            return None;
        }
        let (from, bytes) = (i64::try_from(from).ok()?, i64::try_from(bytes).ok()?);
        from.checked_add(bytes)?;
        Some(Self { from: [from; 2], bytes })
    }

    /// From the first byte of `pages` to the last; `None` beyond all files.
    fn all_of(pages: Extent) -> Option<Self> {
        let bytes = |pages: u64| i64::try_from(pages).ok()?.checked_mul(PAGE);
        let (from, bytes) = (bytes(pages.start.0)?, bytes(pages.count.0)?);
        from.checked_add(bytes)?;
        Some(Self { from: [from; 2], bytes })
    }

    /// Beginning somewhere in its first page.
    fn somewhere(self) -> Self {
        let [soonest, latest] = self.from;
        Self { from: [soonest, latest.saturating_add(PAGE - 1)], ..self }
    }

    /// Bytes from `before` to here, where both are told to the byte.
    pub(in crate::wave) fn since(self, before: Self) -> Option<i64> {
        let exact = |lies: Self| lies.from[0] == lies.from[1];
        (exact(self) && exact(before)).then_some(self.from[0] - before.from[0])
    }

    /// Whether it begins in the first of `pages`.
    pub(in crate::wave) fn begins(self, pages: Extent) -> bool {
        PageIndex::of_byte(self.from[0].unsigned_abs()) == pages.start
    }
}

/// Where the runs of a stride lie.
#[derive(Clone, Copy, Debug)]
pub(in crate::wave) struct Beat {
    /// The run that was read last.
    latest: Lies,
    /// Bytes from one to the next.
    period: Span,
    /// Where one began so many runs ago, which tells of the period.
    first: Span,
    steps: i64,
    /// Pages from one to the next where no beat is known.
    nominal: i64,
    /// What is fetched of a run goes on behind its first read.
    read_on: bool,
    /// Runs are known not to lie whole pages apart.
    uneven: bool,
    /// Runs are known to lie equally far apart by pages alone, and not to the byte.
    by_pages: bool,
}

impl Default for Beat {
    fn default() -> Self {
        Self::NONE
    }
}

impl Beat {
    /// That of no stride: nothing is expected anywhere.
    pub(in crate::wave) const NONE: Self = Self {
        latest: Lies { from: [0; 2], bytes: 0 },
        period: [0; 2],
        first: [0; 2],
        steps: 0,
        nominal: 0,
        read_on: false,
        uneven: false,
        by_pages: false,
    };

    /// Runs like `pages`, which was read last, so many pages apart; `None` beyond all files.
    pub(in crate::wave) fn whole(pages: Extent, period: i64) -> Option<Self> {
        let latest = Lies::all_of(pages)?;
        let (nominal, period) = (period, [period.checked_mul(PAGE)?; 2]);
        Some(Self { latest, period, nominal, first: latest.from, ..Self::NONE })
    }

    /// Runs like `latest`, so many bytes apart.
    pub(in crate::wave) fn told(latest: Lies, period: i64) -> Self {
        let told = Self { latest, period: [period; 2], first: latest.from, uneven: true, ..Self::NONE };
        Self { nominal: told.pages(), ..told }
    }

    /// Its runs do not lie equally far apart to the byte: none is expected to.
    pub(in crate::wave) fn by_pages(self) -> Self {
        Self { by_pages: true, ..self }
    }

    /// As far apart, from a run on that `pages` hold, told to the byte or not; `None` beyond all files.
    pub(in crate::wave) fn from(self, pages: Extent, told: Option<Lies>) -> Option<Self> {
        let latest = match told {
            Some(told) if self.uneven => told,
            _ if self.uneven => Lies::all_of(pages)?.somewhere(),
            _ => Lies::all_of(pages)?,
        };
        Some(Self { latest, first: latest.from, steps: 0, ..self })
    }

    /// Whether its runs are known not to lie whole pages apart.
    pub(in crate::wave) fn is_uneven(&self) -> bool {
        self.uneven
    }

    /// Whether what is fetched of a run goes on behind its first read.
    pub(in crate::wave) fn is_read_on(&self) -> bool {
        self.read_on
    }

    /// Pages from one run to the next, about.
    pub(in crate::wave) fn pages(&self) -> i64 {
        middle(self.period).saturating_add(PAGE / 2).div_euclid(PAGE)
    }

    /// The bytes at which the run begins that comes so many after the one read last, at the soonest and at the latest.
    fn begins(&self, runs: i64) -> Option<Span> {
        let [one, other] = [self.period[0].checked_mul(runs)?, self.period[1].checked_mul(runs)?];
        let soonest = self.latest.from[0].checked_add(one.min(other))?;
        let latest = self.latest.from[1].checked_add(one.max(other))?;
        (latest >= 0).then_some([soonest.max(0), latest])
    }

    /// The pages that hold the run that comes so many after the one read last, wherever it begins; `None` before the first page and beyond
    /// the last.
    pub(in crate::wave) fn after(&self, runs: i64) -> Option<Extent> {
        let [soonest, latest] = self.begins(runs)?;
        let end = latest.checked_add(self.latest.bytes)?;
        Some(Extent::covering(soonest.unsigned_abs(), (end - soonest).unsigned_abs()))
    }

    /// The same, and `least` pages from its begin on at least.
    pub(in crate::wave) fn fetched(&self, runs: i64, least: u64) -> Option<Extent> {
        let run = self.after(runs)?;
        Some(Extent { count: run.count.max(PageCount(least)), ..run })
    }

    /// Where the run that comes so many after the one read last began at the latest, and its pages from there, `run` unless more is known.
    pub(in crate::wave) fn read(&self, runs: i64, run: u64) -> Option<Extent> {
        let [soonest, latest] = self.begins(runs)?;
        let start = PageIndex::of_byte(latest.unsigned_abs());
        let count = if soonest == latest { self.after(runs)?.count } else { PageCount(run) };
        start.0.checked_add(count.0)?;
        Some(Extent { start, count })
    }

    /// The run, counted from the one read last, that begins nearest to `page`.
    pub(in crate::wave) fn nearest(&self, page: u64) -> i64 {
        let (period, within) = (middle(self.period), if self.uneven { PAGE / 2 } else { 0 });
        let at = i64::try_from(page).ok().and_then(|page| page.checked_mul(PAGE)?.checked_add(within));
        let Some(distance) = at.and_then(|at| at.checked_sub(middle(self.latest.from))) else {
            return i64::MAX;
        };
        let length = period.saturating_abs().max(1);
        distance.saturating_add(length / 2).div_euclid(length) * period.signum()
    }

    /// Whether the run that comes so many after the one read last begins within `play` pages of `page`.
    pub(in crate::wave) fn is_at(&self, runs: i64, page: u64, play: u64) -> bool {
        self.begins(runs).is_some_and(|begins| {
            let [soonest, latest] = begins.map(|byte| PageIndex::of_byte(byte.unsigned_abs()).0);
            (soonest.saturating_sub(play)..=latest.saturating_add(play)).contains(&page)
        })
    }

    /// Whether `page` lies behind where the run begins that comes so many after the one read last, and within it, once the period is well known:
    /// a kernel asks for that which has the first page.
    pub(in crate::wave) fn goes_on_in(&self, runs: i64, page: u64) -> bool {
        let known = self.uneven && self.sure_runs() >= WELL_KNOWN;
        let within = || self.after(runs).is_some_and(|run| run.contains(PageIndex(page)));
        known && within() && !self.is_at(runs, page, 0)
    }

    /// How many of the next runs begin where they are expected, give or take a page.
    pub(in crate::wave) fn sure_runs(&self) -> u64 {
        let doubt = (self.period[1] - self.period[0]).unsigned_abs();
        PAGE_SIZE.checked_div(doubt).unwrap_or(u64::MAX).max(1)
    }

    /// The run that comes so many after the one read last, one at least, is read: `pages`, told to the byte or not.
    pub(in crate::wave) fn comes(&mut self, runs: i64, pages: Extent, told: Option<Lies>) {
        let Some(by_pages) = Lies::all_of(pages) else { return };
        let begins = self.begins(runs).unwrap_or(self.latest.from);
        // The first read of the run was quiet, and this is one behind it.
        let behind = told.is_some_and(|told| self.is_exact() && self.is_behind(told.from[0] - begins[0]));
        if behind || self.goes_on_in(runs, pages.start.0) {
            (self.latest.from, self.steps) = (begins, self.steps + runs);
            return;
        }
        let as_expected = self.begins(runs).is_some_and(|[soonest, _]| soonest == by_pages.from[0]);
        if !self.uneven && (as_expected || self.by_pages) {
            self.latest.from = by_pages.from;
            self.steps += runs;
            return;
        }
        let mut learnt = *self;
        if !self.uneven {
            learnt.uneven = true;
            (learnt.latest, learnt.first[1]) =
                (self.latest.somewhere(), self.first[1].saturating_add(PAGE - 1));
            learnt.period = [self.period[0].saturating_sub(PAGE), self.period[1].saturating_add(PAGE)];
        }
        let seen = told.map_or(by_pages.somewhere().from, |told| told.from);
        match learnt.narrowed(runs, seen, by_pages.from[0] + by_pages.bytes, told) {
            Some(narrowed) => *self = narrowed,
            // No period allows for it.
            None => {
                let run =
                    if self.uneven { pages.count.0 } else { self.latest.bytes.unsigned_abs() / PAGE_SIZE };
                let anew = Self::whole(Extent::new(pages.start.0, run), self.nominal);
                *self = anew.unwrap_or(*self);
            }
        }
    }

    /// Whether all of it is known to the byte.
    fn is_exact(&self) -> bool {
        let [least, most] = self.period;
        self.uneven && least == most && least != 0 && self.latest.from[0] == self.latest.from[1]
    }

    /// Whether what lies so many bytes behind the begin of a run is in it, or less than a page behind it.
    fn is_behind(&self, bytes: i64) -> bool {
        (1..=self.latest.bytes.saturating_add(PAGE)).contains(&bytes)
    }

    /// A read behind the begin of a run, told to the byte: where it ends less than a page behind what is fetched of the run, that is fetched too
    /// from now on. More than that is seen by pages (whole_runs.rs).
    pub(in crate::wave) fn goes_on(&mut self, read: Lies) {
        let Some(offset) = read.since(self.latest).filter(|_| self.is_exact()) else { return };
        // From the begin of the run that lies before it.
        let from = offset.rem_euclid(self.period[0]);
        let more = from.saturating_add(read.bytes) - self.latest.bytes;
        if self.is_behind(from) && (1..=PAGE).contains(&more) {
            self.latest.bytes += more;
            self.read_on = true;
        }
    }

    /// What is known of the period when the run that comes so many after the one read last began there, and ended at `end` at the latest;
    /// `None` if no period allows for it.
    fn narrowed(mut self, runs: i64, begins: Span, end: i64, told: Option<Lies>) -> Option<Self> {
        let steps = self.steps + runs;
        for (from, runs) in [(self.first, steps), (self.latest.from, runs)] {
            let least = (begins[0] - from[1]).div_euclid(runs);
            let most = -(from[0] - begins[1]).div_euclid(runs);
            self.period = [self.period[0].max(least), self.period[1].min(most)];
        }
        let before = self.latest.from;
        let at = [
            begins[0].max(before[0].checked_add(self.period[0].checked_mul(runs)?)?),
            begins[1].min(before[1].checked_add(self.period[1].checked_mul(runs)?)?),
        ];
        if self.period[0] > self.period[1] || at[0] > at[1] {
            return None;
        }
        let longest = end - at[0];
        self.latest.bytes = match told {
            // Or what he goes on to (see `goes_on`).
            Some(told) if self.read_on && (1..=PAGE).contains(&(self.latest.bytes - told.bytes)) => {
                self.latest.bytes
            }
            Some(told) => told.bytes,
            // As long as the shortest may be, unless this one is longer than that.
            None if at[1].saturating_add(self.latest.bytes) > end - PAGE => self.latest.bytes.min(longest),
            None => longest,
        };
        (self.latest.from, self.steps) = (at, steps);
        if at[1] - at[0] < self.first[1] - self.first[0] {
            (self.first, self.steps) = (at, 0);
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// At the end of the largest files that can be nothing overflows.
    #[test]
    fn the_last_bytes_are_no_trouble() {
        let last = i64::MAX as u64;
        let told = [last - 3, 5, last - 9_000].map(|from| Lies::told(from, 3));
        let pages = [last / PAGE_SIZE, 0, last / PAGE_SIZE - 2].map(|page| Extent::new(page, 1));
        for (one, other) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
            let (Some(lies), Some(before)) = (told[one], told[other]) else { panic!("in a file") };
            let mut beat = Beat::told(lies, lies.since(before).expect("both are told"));
            let whole = Beat::whole(pages[one], beat.pages());
            for read in 0..3 {
                beat.goes_on(told[read].expect("in a file"));
                beat.comes(1, pages[read], told[read]);
                let _ = (beat.after(1), beat.after(-1), beat.nearest(u64::MAX), beat.sure_runs());
            }
            let Some(mut beat) = whole else { continue };
            for &read in &pages {
                beat.comes(1, read, None);
                let _ = (beat.after(1), beat.after(-1), beat.nearest(0), beat.read(0, u64::MAX));
            }
        }
    }

    /// The first picture at the top.
    #[test]
    fn told_to_the_byte_the_next_are_known() {
        let [one, two, three] =
            [8193, 2_110_588, 4_212_983].map(|from| Lies::told(from, 4096).expect("in a file"));
        let period = three.since(two).expect("both are told");
        assert_eq!((two.since(one), period), (Some(period), 2_102_395));
        let beat = Beat::told(three, period);
        let next = [1, 2, 3].map(|runs| beat.after(runs).expect("in a file"));
        assert_eq!(next, [Extent::new(1541, 2), Extent::new(2055, 2), Extent::new(2568, 2)]);
        assert_eq!((beat.after(-2), beat.after(-3)), (Some(Extent::new(2, 2)), None));
        assert_eq!(([1541, 2055, 2567].map(|page| beat.nearest(page)), beat.pages()), ([1, 2, 3], 513));
        let whole = Beat::whole(Extent::new(1028, 1), 513).expect("in a file");
        assert_eq!(
            [1, 2, 3].map(|runs| whole.after(runs).map(|run| run.start.0)),
            [1541, 2054, 2567].map(Some)
        );
    }

    /// The second: what is known after each read of one page, the bytes of a period.
    #[test]
    fn told_by_pages_it_is_narrowed() {
        let mut beat = Beat::whole(Extent::new(1026, 1), 513).expect("in a file");
        (beat.first, beat.steps) = ([0; 2], 2);
        beat.comes(1, Extent::new(1539, 1), None);
        assert_eq!((beat.after(1), beat.sure_runs()), (Some(Extent::new(2052, 1)), u64::MAX));
        beat.comes(1, Extent::new(2053, 1), None);
        let pages = beat.period.map(|bytes| (10 * bytes + PAGE / 2).div_euclid(PAGE));
        assert_eq!(pages, [5130, 5135], "tenths of a page");
        assert_eq!(beat.after(1), Some(Extent::new(2566, 2)));
    }

    /// Each run lies where it is expected, whatever the period, and where it is told to the byte in no page more; upwards and downwards.
    #[test]
    fn each_run_is_within_what_is_fetched_for_it() {
        for (period, bytes) in
            [(2_102_395, 4096), (70_001, 5000), (-300_333, 20_000), (-99_999, 1), (8191, 100)]
        {
            let at = |k: i64| 90_000_000 + k * period;
            let pages = |k: i64| Extent::covering(at(k).unsigned_abs(), bytes);
            let steps = |k: i64| pages(k).start.0.wrapping_sub(pages(k - 1).start.0) as i64;
            let mut beat = Beat::whole(pages(2), steps(2)).expect("in a file");
            let (mut exact, mut missed, mut more) = (beat, Vec::new(), 0);
            for k in 3..200 {
                let next = beat.after(1).expect("in a file");
                if next.hull(pages(k)) != next {
                    missed.push(k);
                }
                more += next.count.0 - pages(k).count.0.min(next.count.0);
                assert!(beat.is_at(beat.nearest(pages(k).start.0), pages(k).start.0, 1), "{period} {k}");
                assert_eq!(beat.nearest(pages(k).start.0), 1);
                beat.comes(1, pages(k), None);
                let told = Lies::told(at(k).unsigned_abs(), bytes);
                if k > 8 && exact.uneven {
                    assert_eq!(exact.after(1), Some(pages(k)), "{period} {k}");
                }
                exact.comes(1, pages(k), told);
            }
            assert!(missed.len() <= 4 && more <= 230, "{period}: {missed:?}, {more} pages more");
        }
    }

    /// Runs that lie on no beat at all are taken as they come.
    #[test]
    fn what_no_period_allows_begins_anew() {
        let mut beat = Beat::whole(Extent::new(1000, 2), 100).expect("in a file");
        for page in [1101, 1200, 1299, 1401, 1499] {
            beat.comes(1, Extent::new(page, 2), None);
            let next = beat.after(1).expect("in a file");
            assert!(beat.is_at(1, page + 100, 1) && next.count.0 <= 4, "{page}: {next}");
        }
    }
}
