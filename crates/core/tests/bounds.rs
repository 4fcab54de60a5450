//! Every small case of every era: what a decision may never be.
//!
//! Requests of 1 to 66 pages, ceilings of 0 to 64, every cache of five pages about the asked one, three files and four
//! memories: four million questions, each answered by every era. Then questions with numbers at the ends of their
//! types.

use bowwave_core::{
    Ask, AskKind, Decision, Extent, NAMES, PageBit, PageCount, PageIndex, PageTable, Pattern, Play, Policy,
    ReadState, Submission, THRASH_MIN, ThrashSafe, View, Window, by_name,
};

/// The page that is asked about.
const PAGE: u64 = 4;
/// The pages that are cached or not: two before, the page itself, two behind.
const ABOUT: std::ops::Range<u64> = 2..7;

fn eras() -> Vec<Box<dyn Policy>> {
    let mut eras: Vec<_> = NAMES.into_iter().filter_map(by_name).collect();
    eras.push(Box::new(ThrashSafe::v3().with_rules_of_2011().with_memory(PageCount(8192))));
    eras
}

/// What must hold of each decision on `ask`.
fn check(table: &PageTable, before: &ReadState, ask: Ask, snaps: bool, decisions: &[Decision]) {
    let context = || format!("{ask:?}, {before:?}, {decisions:?}");
    let max = before.max;
    for decision in decisions {
        let Window { start, size, async_size } = decision.window;
        assert!(async_size <= size, "a tail longer than its window: {}", context());
        let bound = match decision.pattern {
            // Exactly what is asked, one page of it, or at most that.
            Pattern::Random => ask.count,
            Pattern::Fadvise => ask.count.min(PageCount(512)),
            Pattern::Thrash => (before.window.size).max(THRASH_MIN),
            // A request that covers its first window has the next folded in; so has a probe of 2010, exactly.
            Pattern::Initial | Pattern::Subsequent | Pattern::Context if start == ask.page => max + max,
            // Linux 6.18 never shortens a window at its mark, though the ceiling be lower now.
            Pattern::Subsequent if decision.why.0 == "mark-hit" => max.max(before.window.size),
            // The stretch to the end of the file.
            _ if snaps => PageCount(max.0 + max.0 / 4),
            _ => max,
        };
        assert!(size <= bound.max(PageCount(1)), "a window of more than {bound}: {}", context());
        let backwards = matches!(decision.pattern, Pattern::Backwards | Pattern::Around);
        let head = ask.page.0 == 0 || size.0 == 0;
        assert!(backwards || head || start >= ask.page, "a window before its reader: {}", context());
    }
    let waits = matches!(ask.kind, AskKind::Miss | AskKind::Fault);
    let fetches = |d: &Decision| d.window.extent().contains(ask.page);
    // A lost mark pushes its window forward and is left to its reader: so every era of Linux (spec 3.3, rule 1).
    let there = ask.page < table.end_of_file()
        && before.window.start + (before.window.size - before.window.async_size) != ask.page;
    assert!(!waits || !there || decisions.iter().any(fetches), "nobody fetches the page: {}", context());
}

/// What must hold of each submission.
fn check_submission(table: &mut PageTable, window: Window) {
    let before = table.clone();
    let submission = Submission::of(table, window);
    let mut pages = PageCount(0);
    for &extent in &submission.fetch {
        assert!(!extent.is_empty() && extent.end() <= table.end_of_file(), "{extent} is past the end");
        assert_eq!(before.resident(extent), PageCount(0), "{extent} was there");
        assert_eq!(table.count(PageBit::InFlight, extent), extent.count);
        pages += extent.count;
    }
    assert_eq!(pages, submission.actual);
    assert!(pages <= window.size);
    assert!(submission.mark.is_none_or(|mark| table.has(PageBit::Mark, mark) && !before.present(mark)));
}

/// A cache of the pages [`ABOUT`] the asked one, one bit each.
fn cache(bits: u64, end_of_file: u64) -> PageTable {
    let mut table = PageTable::new(PageIndex(end_of_file));
    for page in ABOUT.filter(|page| bits >> (page - ABOUT.start) & 1 == 1) {
        table.set(PageBit::Present, Extent::new(page, 1));
    }
    table
}

/// What an open file may remember: nothing, one random page, a window on the page, a lost window and a seek.
fn memories() -> [ReadState; 4] {
    let fresh = ReadState::new(PageCount(0));
    let prev = Some(PageIndex(PAGE - 1));
    [
        fresh,
        ReadState { window: Window::new(PAGE - 1, 1, 0), prev, ..fresh },
        ReadState { window: Window::new(PAGE, 8, 8), ..fresh },
        ReadState { window: Window::new(5, 7, 2), prev, thrashed: true, sought: true, ..fresh },
    ]
}

#[test]
fn every_small_question() {
    let (mut eras, mut out) = (eras(), Vec::new());
    for bits in 0..1u64 << (ABOUT.end - ABOUT.start) {
        for (end_of_file, page) in [(1 << 20, PAGE), (PAGE + 3, PAGE), (1 << 20, 0)] {
            let table = cache(bits, end_of_file);
            let page = PageIndex(page);
            let kinds: &[AskKind] = if table.present(page) {
                &[AskKind::Mark, AskKind::Forced]
            } else {
                &[AskKind::Miss, AskKind::Fault, AskKind::Forced]
            };
            for (max, count) in (0..=64).flat_map(|max| (1..=66).map(move |count| (max, PageCount(count)))) {
                for &kind in kinds {
                    for memory in memories() {
                        let before = ReadState { max: PageCount(max), ..memory };
                        let ask = Ask { page, count, kind };
                        for (i, era) in eras.iter_mut().enumerate() {
                            out.clear();
                            era.decide(&table, &mut before.clone(), ask, &mut out);
                            check(&table, &before, ask, i == NAMES.len(), &out);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_small_submission() {
    for bits in 0..1u64 << (ABOUT.end - ABOUT.start) {
        for end_of_file in 0..12 {
            for (start, size) in (0..12).flat_map(|start| (0..12).map(move |size| (start, size))) {
                for async_size in 0..=size {
                    let mut table = cache(bits, end_of_file);
                    check_submission(&mut table, Window::new(start, size, async_size));
                }
            }
        }
    }
}

/// Numbers at the ends of their types: an answer is bounded, and there is no panic.
#[test]
fn every_absurd_question() {
    let ends = [0, 1, 63, 64, 4095, u64::MAX / 2, u64::MAX - 4096, u64::MAX - 1, u64::MAX];
    let (mut eras, mut out) = (eras(), Vec::new());
    let mut table = PageTable::new(PageIndex(u64::MAX));
    for page in ends {
        table.set(PageBit::Present, Extent::new(page, 3));
    }
    for page in ends.map(PageIndex) {
        for (count, max) in ends.iter().flat_map(|&count| ends.map(|max| (PageCount(count), PageCount(max))))
        {
            for (start, size) in ends.iter().flat_map(|&start| ends.map(|size| (start, size))) {
                // The pieces of a forced read of 2^64 pages are counted elsewhere.
                for kind in [AskKind::Miss, AskKind::Mark, AskKind::Fault] {
                    let before =
                        ReadState { window: Window::new(start, size, size / 2), ..ReadState::new(max) };
                    for era in &mut eras {
                        out.clear();
                        let ask = Ask { page, count, kind };
                        era.decide(&table, &mut before.clone(), ask, &mut out);
                        assert!(out.iter().all(|d| d.window.async_size <= d.window.size));
                    }
                }
            }
        }
    }
}

/// One call cannot fill memory: 2^64 pages are advised, 128 GiB of them in pieces of 2 MiB are taken.
#[test]
fn forced_reads_end() {
    let table = PageTable::new(PageIndex(u64::MAX));
    let ask = Ask { page: PageIndex(7), count: PageCount(u64::MAX), kind: AskKind::Forced };
    for era in &mut eras() {
        let mut out = Vec::new();
        era.decide(&table, &mut ReadState::new(PageCount(32)), ask, &mut out);
        assert_eq!(out.len(), 1 << 16);
    }
}

/// Reads, faults, advice and evictions at random: every page that was fetched is used or wasted in the end, and the same story
/// told twice is decided the same.
#[test]
fn every_page_is_accounted_for() {
    for era in 0..eras().len() {
        let story = || {
            let mut dice = Dice(42);
            let policy = eras().swap_remove(era);
            let mut file = Play::new(policy, PageIndex(2000), PageCount(32));
            let mut decided = Vec::new();
            for _ in 0..5000 {
                let (page, count) = (dice.below(2000), dice.below(40) + 1);
                // Half of the reads go on where the last one ended.
                let next = file.state().prev.map_or(0, |prev| prev.0 + 1);
                let page = if dice.below(2) == 0 { next % 2000 } else { page };
                match dice.below(10) {
                    0 => file.evict(Extent::new(page, count * 4)),
                    1 => decided.extend(file.fault(PageIndex(page))),
                    2 => decided.extend(file.will_need(Extent::new(page, count))),
                    _ => decided.extend(file.read(PageIndex(page), PageCount(count))),
                }
            }
            (decided, file.close())
        };
        let (decided, stats) = story();
        let all = stats.all();
        assert_eq!(all.actual, all.used + all.wasted);
        assert!(all.evicted <= all.wasted && all.actual.0 > 10_000 && all.stalls > 0);
        assert_eq!((decided, stats), story());
    }
}

/// A small generator with a fixed seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}
