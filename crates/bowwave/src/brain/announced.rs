//! What programs said that they will read: sent for as memory allows, and nothing beside it.
//!
//! A list is told to the core (R15) a batch at a time, each of at most a quarter of memory with the gaps that it buys, all together
//! of half. A batch is over when all of it was read, or lost, or half of the next one of its file was read.
//!
//! ```text
//! will_read   [100,104) [0,4) [104,108) [6,10) [200,209)
//! told        [100,108) [0,10)       18 pages of room, gaps of two are cheaper than a request; the rest when these were read
//! ```
//!
//! Reads of what was told are no reads to the core: where it knows what comes it has nothing to guess. A reader who is there before
//! his page was sent for brings as much of its run as a trip is worth, four times the gap that costs as much as a request: a head
//! comes once for it. Before the device was timed 16 runs are told, for nobody knows yet which gaps are cheap, and reads are told
//! too, for it is timed by those who wait; until it was seen how many requests it serves at once, what
//! keeps it busy twice over, when all that was told before was sent.
//!
//! The figures are owned by the test `what_is_announced_goes_out_in_runs`.

use super::{Brain, READER_MAX, id};
use bowwave_core::{Advice, Bytes, Extent, Input, Learnt, Nanos, PageBit, PageCount, PageIndex, PageTable};
use std::collections::{BTreeMap, VecDeque};

/// All batches together have half of memory at most, each half of that: one is read while the next comes.
const OUT_SHARE: u64 = 2;
const BATCH_SHARE: u64 = 4;
/// Runs of the first batch, before the device was timed, and pages: 64 MiB, of which 48 requests to a far store carry 1 MiB each.
const FIRST_RUNS: usize = 16;
const FIRST_PAGES: u64 = 16_384;
/// Gaps that a trip is worth, and its pages at most: 4 MiB.
const TRIP_GAPS: u64 = 4;
const TRIP_MAX: u64 = 1024;

/// What is still to be told of one list.
struct List {
    file: u32,
    ranges: VecDeque<Extent>,
}

/// What was told of a list, and how much of it was not read so far.
struct Batch {
    /// By where they begin, gaps included.
    runs: Vec<Extent>,
    /// Pages in the runs.
    told: u64,
    /// Its pages that were not read have [`PageBit::Ahead`].
    unread: PageTable,
    pages: u64,
    left: u64,
}

/// All lists of all files.
#[derive(Default)]
pub(super) struct Announced {
    lists: VecDeque<List>,
    /// By file, oldest first.
    batches: BTreeMap<u32, VecDeque<Batch>>,
    /// Pages in the runs of all batches.
    told: u64,
}

impl Announced {
    /// These pages were read, or lost: nobody waits for them any more.
    pub(super) fn over(&mut self, file: u32, pages: Extent) {
        let Some(batches) = self.batches.get_mut(&file) else { return };
        for batch in batches.iter_mut() {
            batch.left -= batch.unread.clear(PageBit::Ahead, pages).0;
        }
        while let Some(front) = batches.front() {
            let next_read = batches.get(1).is_some_and(|next| 2 * next.left <= next.pages);
            if front.left > 0 && !next_read {
                return;
            }
            self.told -= front.told;
            batches.pop_front();
        }
        self.batches.remove(&file);
    }

    /// Whether anything of a file was told and not read.
    pub(super) fn concerns(&self, file: u32) -> bool {
        self.batches.contains_key(&file)
    }

    fn of(&self, file: u32) -> impl Iterator<Item = &Batch> {
        self.batches.get(&file).into_iter().flatten()
    }

    /// Whether all of these pages were told and not read.
    pub(super) fn holds(&self, file: u32, pages: Extent) -> bool {
        self.of(file).map(|batch| batch.unread.count(PageBit::Ahead, pages).0).sum::<u64>() >= pages.count.0
    }

    /// What a reader at `pages` brings at once: as much of the run that holds it as a trip is worth.
    pub(super) fn trip(&self, file: u32, pages: Extent, gap: PageCount) -> Extent {
        let most = (TRIP_GAPS * gap.0).clamp(READER_MAX, TRIP_MAX);
        let run = self.of(file).filter_map(|batch| holding(&batch.runs, pages.start));
        let end = run.map(Extent::end).max().unwrap_or(pages.end());
        Extent { count: end.since(pages.start).min(PageCount(most)), ..pages }
    }

    fn add(&mut self, file: u32, runs: Vec<Extent>, unread: PageTable, pages: u64) {
        let told = runs.iter().map(|run| run.count.0).sum();
        self.told += told;
        self.batches.entry(file).or_default().push_back(Batch { runs, told, unread, pages, left: pages });
    }

    pub(super) fn forget(&mut self, file: u32) {
        self.lists.retain(|list| list.file != file);
        let batches = self.batches.remove(&file).into_iter().flatten();
        self.told -= batches.map(|batch| batch.told).sum::<u64>();
    }

    pub(super) fn bytes_of_memory(&self) -> u64 {
        let lists: usize = self.lists.iter().map(|list| list.ranges.capacity()).sum();
        let batches = || self.batches.values().flatten();
        let runs: usize = batches().map(|batch| batch.runs.capacity()).sum();
        let tables: u64 = batches().map(|batch| batch.unread.bytes_of_memory().0).sum();
        ((lists + runs) * size_of::<Extent>()) as u64 + tables
    }
}

impl Brain {
    /// The program says what it will read.
    pub(crate) fn announce(&mut self, now: Nanos, number: u32, ranges: VecDeque<Extent>) {
        self.announced.lists.push_back(List { file: number, ranges });
        self.pump(now);
    }

    /// Tells the next batch, if there is room for one.
    pub(super) fn tell_announced(&mut self, now: Nanos) {
        while let Some(list) = self.announced.lists.front_mut() {
            let Some(file) = self.files.get(&list.file).filter(|_| !list.ranges.is_empty()) else {
                self.announced.lists.pop_front();
                continue;
            };
            let (number, endpoint) = (list.file, file.meta.endpoint);
            let (memory, told) = (self.pages.capacity().0, self.announced.told);
            let Learnt { latency, flight_max, .. } = self.wave.device(endpoint).unwrap_or_default();
            let (most, runs_max) = if latency.is_none() {
                (FIRST_PAGES.min(memory / OUT_SHARE), FIRST_RUNS)
            } else if !self.wave.gap_is_known(endpoint) {
                (memory / OUT_SHARE, FIRST_RUNS.max(2 * flight_max as usize))
            } else {
                (memory / OUT_SHARE, usize::MAX)
            };
            let room = most.saturating_sub(told).min(memory / BATCH_SHARE);
            let few = runs_max < usize::MAX && self.wave.is_behind(endpoint);
            let first = latency.is_none() && self.announced.batches.contains_key(&number);
            if few || first || told > 0 && room < most / BATCH_SHARE {
                return;
            }
            let gap = self.wave.gap_worth(endpoint).0;
            let (taken, mut runs) = batch(&mut list.ranges, room.max(1), runs_max, gap);
            let mut unread = PageTable::new(PageIndex(PageCount::holding(Bytes(file.meta.len)).0));
            let pages = taken.into_iter().map(|pages| unread.set(PageBit::Ahead, pages).0).sum();
            for &pages in &runs {
                self.wave.handle(now, Input::Advised { file: id(number), pages, advice: Advice::WillNeed });
            }
            runs.sort_unstable();
            self.announced.add(number, runs, unread, pages);
        }
    }
}

/// Takes ranges from the front that make runs of at most `room` pages, gaps included; of more runs than `runs_max` those that are
/// read first, whole, and the other ranges stay. And the runs, in the order in which the first page of each is read. What lies no
/// further apart than `gap` is one run.
fn batch(ranges: &mut VecDeque<Extent>, room: u64, runs_max: usize, gap: u64) -> (Vec<Extent>, Vec<Extent>) {
    let (mut count, mut near) = (0, Vec::new());
    while count < room
        && let Some(range) = ranges.pop_front()
    {
        let part = Extent { count: PageCount(range.count.0.min(room - count)), ..range };
        let rest = Extent::between(part.end(), range.end());
        if !rest.is_empty() {
            ranges.push_front(rest);
        }
        count += part.count.0;
        near.push(part);
    }
    let mut found = runs(&near, gap);
    while near.len() > 1 && found.iter().map(|run| run.count.0).sum::<u64>() > room {
        put_back(ranges, near.drain(near.len() * 7 / 8..));
        found = runs(&near, gap);
    }
    if found.len() <= runs_max {
        return (near, found);
    }
    found.truncate(runs_max);
    let mut sorted = found.clone();
    sorted.sort_unstable();
    let (taken, later): (Vec<Extent>, Vec<Extent>) =
        near.into_iter().partition(|range| holding(&sorted, range.start).is_some());
    put_back(ranges, later.into_iter());
    (taken, found)
}

fn put_back(ranges: &mut VecDeque<Extent>, back: impl DoubleEndedIterator<Item = Extent>) {
    for range in back.rev() {
        ranges.push_front(range);
    }
}

/// Which of these runs, by where they begin, holds `page`. O(log n).
fn holding(runs: &[Extent], page: PageIndex) -> Option<Extent> {
    let at = runs.partition_point(|run| run.start <= page).checked_sub(1)?;
    Some(runs[at]).filter(|run| run.contains(page))
}

/// `ranges` as runs over gaps of up to `gap` pages, in the order in which the first page of each comes in `ranges`.
fn runs(ranges: &[Extent], gap: u64) -> Vec<Extent> {
    let mut sorted: Vec<(Extent, usize)> = ranges.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut runs: Vec<(usize, Extent)> = Vec::new();
    for (range, order) in sorted {
        match runs.last_mut() {
            Some((first, run)) if range.start.0 <= run.end().0 + gap => {
                *run = Extent::between(run.start, run.end().max(range.end()));
                *first = order.min(*first);
            }
            _ => runs.push((order, range)),
        }
    }
    runs.sort_unstable();
    runs.into_iter().map(|(_, run)| run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: [Extent; 5] =
        [Extent::new(100, 4), Extent::new(0, 4), Extent::new(104, 4), Extent::new(6, 4), Extent::new(200, 9)];

    #[test]
    fn what_is_announced_goes_out_in_runs() {
        let mut left = VecDeque::from(LIST);
        let (taken, runs) = batch(&mut left, 18, usize::MAX, 2);
        assert_eq!((taken.len(), runs), (4, vec![Extent::new(100, 8), Extent::new(0, 10)]));
        assert_eq!(left, [Extent::new(200, 2), Extent::new(202, 7)]);
    }

    /// Two streams by turns: the first request of each brings all that is near of it.
    #[test]
    fn few_runs_are_whole_runs() {
        let turns = (0..4).flat_map(|i| [Extent::new(2 * i, 2), Extent::new(100 + 2 * i, 2)]);
        let mut left: VecDeque<Extent> = turns.collect();
        let (taken, runs) = batch(&mut left, 64, 1, 0);
        assert_eq!((taken.len(), runs), (4, vec![Extent::new(0, 8)]));
        assert_eq!(left, [100, 102, 104, 106].map(|start| Extent::new(start, 2)));
    }

    #[test]
    fn gaps_count_as_what_they_take() {
        let mut left = VecDeque::from([Extent::new(0, 1), Extent::new(90, 1), Extent::new(500, 1)]);
        assert_eq!(batch(&mut left, 64, usize::MAX, 100).1, [Extent::new(0, 1)]);
        assert_eq!(left, [Extent::new(90, 1), Extent::new(500, 1)]);
    }

    #[test]
    fn a_batch_is_over_when_it_was_read_or_passed() {
        let table = |pages: Extent| {
            let mut table = PageTable::new(PageIndex(1000));
            table.set(PageBit::Ahead, pages);
            table
        };
        let mut announced = Announced::default();
        for all in [Extent::new(0, 10), Extent::new(100, 10)] {
            announced.add(1, vec![all], table(all), 10);
        }
        assert!(announced.holds(1, Extent::new(0, 10)) && !announced.holds(2, Extent::new(0, 10)));
        assert_eq!(announced.trip(1, Extent::new(4, 1), PageCount(0)), Extent::new(4, 6));
        announced.over(1, Extent::new(0, 9));
        announced.over(1, Extent::new(100, 4));
        assert_eq!(announced.told, 20);
        announced.over(1, Extent::new(104, 1));
        assert_eq!(announced.told, 10, "its reader has gone on");
        announced.over(1, Extent::new(105, 5));
        assert!(!announced.concerns(1) && announced.told == 0);
    }
}
