//! Era play: an open file whose reads a policy answers, over a page table, without time.
//!
//! What the kernel does around its decision, every era does alike: look the page up, ask if it is missing, submit what
//! was decided, ask again if the page carries the mark, and go on (spec 1.6, 3.1). Here every fetch arrives at once,
//! so a play shows decisions and nothing else; what they cost is the lab's to say.
//!
//! ```text
//! read 4 1    page 4 is cached and marked --> Mark --> (12, 16, 16) --> submit: 16 new pages, mark on 12
//! read 28 1   page 28 is missing          --> Miss --> ...
//! ```
//!
//! A submission is clipped at the end of the file, passes over pages that are there, and sets the mark only if the
//! marked page is new: a window whose mark falls on a cached page has none, and its stream is not heard of until the
//! next miss (spec 1.3).
//!
//! Worked example: pages `[8, 10)` cached, window (4, 8, 4) in a file of 11 pages: `[4, 8)` and `[10, 11)` are
//! fetched, 5 pages; the mark would lie on page 8, which is cached, so there is none.

use crate::decision::{Decision, Pattern};
use crate::policy::{Ask, AskKind, Policy, ReadState};
use crate::stats::Stats;
use crate::table::{PageBit, PageTable};
use crate::trace::{Dev, TraceRecord};
use crate::units::{Extent, FileId, Nanos, PageCount, PageIndex};
use crate::view::View;
use crate::window::Window;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What the submission of one window came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Submission {
    /// The pages that were neither present nor in flight, in order: these are to be fetched.
    pub fetch: Vec<Extent>,
    /// How many they are.
    pub actual: PageCount,
    /// The page that took the mark.
    pub mark: Option<PageIndex>,
}

impl Submission {
    /// Submits `window`: its missing pages become in flight and ahead, and the first of its tail takes the mark.
    pub fn of(table: &mut PageTable, window: Window) -> Self {
        let fetch = table.fetch(window.extent());
        let mark = window.mark().filter(|&page| fetch.iter().any(|hole| hole.contains(page)));
        if let Some(page) = mark {
            table.set(PageBit::Mark, Extent { start: page, count: PageCount(1) });
        }
        let actual = fetch.iter().fold(PageCount(0), |sum, hole| sum + hole.count);
        Self { fetch, actual, mark }
    }
}

/// One open file of one era.
pub struct Play {
    policy: Box<dyn Policy>,
    table: PageTable,
    state: ReadState,
    stats: Stats,
    /// Which pattern brought each page that is still unread.
    unread: BTreeMap<PageIndex, Pattern>,
    records: Vec<TraceRecord>,
    retained: Vec<Extent>,
}

impl Play {
    /// Opens a file of `end_of_file` pages under a ceiling of `max` pages.
    pub fn new(policy: Box<dyn Policy>, end_of_file: PageIndex, max: PageCount) -> Self {
        Self {
            policy,
            table: PageTable::new(end_of_file),
            state: ReadState::new(max),
            stats: Stats::default(),
            unread: BTreeMap::new(),
            records: Vec::new(),
            retained: Vec::new(),
        }
    }

    /// Reads `count` pages from `page` and returns what was decided on the way.
    pub fn read(&mut self, page: PageIndex, count: PageCount) -> Vec<TraceRecord> {
        let end = (page + count).min(self.table.end_of_file());
        let mut at = page;
        self.retained.clear();
        while at < end {
            if self.policy.hears_reads() {
                self.ask(AskKind::Read, at, end.since(at), false);
            }
            self.one_page(AskKind::Miss, at, end.since(at), end.since(at));
            at = at + PageCount(1);
        }
        // Only now: within a request, the kernel still compares with the request before.
        if at > page {
            self.policy.read_done(&mut self.state, Extent::between(page, at), at.byte());
        }
        self.take_records()
    }

    /// Touches one page of a mapping. A hit makes good a miss; a hit on the mark asks for a whole ceiling (spec 8.5).
    pub fn fault(&mut self, page: PageIndex) -> Vec<TraceRecord> {
        self.retained.clear();
        if page < self.table.end_of_file() {
            if self.table.present(page) {
                self.state.mapped_hit();
            }
            self.one_page(AskKind::Fault, page, PageCount(1), self.state.max);
        }
        self.take_records()
    }

    /// The program says that it will need `extent`.
    pub fn will_need(&mut self, extent: Extent) -> Vec<TraceRecord> {
        self.retained.clear();
        self.ask(AskKind::Forced, extent.start, extent.count, false);
        self.take_records()
    }

    /// Somebody else brought `extent` into the cache.
    pub fn cached(&mut self, extent: Extent) {
        self.table.set(PageBit::Present, extent);
    }

    /// The cache lost `extent`.
    pub fn evict(&mut self, extent: Extent) {
        let lost: Vec<PageIndex> =
            self.unread.range(extent.start..extent.end()).map(|(&page, _)| page).collect();
        for page in lost {
            if let Some(pattern) = self.unread.remove(&page) {
                self.stats.evicted(pattern, PageCount(1));
            }
        }
        self.table.forget(extent);
    }

    /// Opens the file anew over the same cache.
    pub fn reopen(&mut self) {
        self.state = ReadState::new(self.state.max);
    }

    /// Drops what was never read, and returns the final count.
    pub fn close(mut self) -> Stats {
        for &pattern in self.unread.values() {
            self.stats.dropped(pattern, PageCount(1));
        }
        self.stats
    }

    /// What the open file remembers.
    pub fn state(&mut self) -> &mut ReadState {
        &mut self.state
    }
    /// The file's pages.
    pub fn table(&self) -> &PageTable {
        &self.table
    }
    /// What was counted so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
    /// What the last read, fault or advice asked to retain (spec 5.5).
    pub fn retained(&self) -> &[Extent] {
        &self.retained
    }

    /// The kernel's look at one page: `miss` asks for `left` pages if it is absent, its mark for `left_at_mark`.
    fn one_page(&mut self, miss: AskKind, page: PageIndex, left: PageCount, left_at_mark: PageCount) {
        let one = Extent { start: page, count: PageCount(1) };
        let mapped = miss == AskKind::Fault;
        if !self.table.present(page) {
            let before = self.records.len();
            self.ask(miss, page, left, mapped);
            if let Some(waited) = self.records[before..].iter().find(|r| r.window.extent().contains(page)) {
                self.stats.stalled(waited.pattern);
            }
            // A policy that leaves the page out leaves it to the reader itself, page by page.
            self.table.set(PageBit::Present, one);
        }
        if self.table.clear(PageBit::Mark, one).0 > 0 {
            self.ask(AskKind::Mark, page, left_at_mark, mapped);
        }
        self.table.clear(PageBit::Ahead, one);
        self.table.set(PageBit::Used, one);
        if let Some(pattern) = self.unread.remove(&page) {
            self.stats.used(pattern, PageCount(1));
        }
    }

    fn ask(&mut self, kind: AskKind, page: PageIndex, count: PageCount, mapped: bool) {
        let mut out = Vec::new();
        let ask = Ask { page, count, kind };
        self.policy.decide(&self.table, &mut self.state, ask, &mut out);
        self.retained.extend(Some(self.policy.retain()).filter(|extent| !extent.is_empty()));
        for decision in out {
            self.submit(decision, Extent { start: page, count }, mapped);
        }
    }

    fn submit(&mut self, decision: Decision, request: Extent, mapped: bool) {
        let submission = Submission::of(&mut self.table, decision.window);
        for &extent in &submission.fetch {
            self.table.set(PageBit::Present, extent);
            self.table.clear(PageBit::InFlight, extent);
            self.unread
                .extend((extent.start.0..extent.end().0).map(|page| (PageIndex(page), decision.pattern)));
        }
        let record = TraceRecord {
            dev: Dev::default(),
            ino: 0,
            request,
            mapped,
            pattern: decision.pattern,
            window: decision.window,
            actual: submission.actual,
            why: decision.why,
            time: Nanos(0),
            file: FileId(0),
            stream: 0,
        };
        self.stats.submitted(&record, self.table.end_of_file());
        self.records.push(record);
    }

    fn take_records(&mut self) -> Vec<TraceRecord> {
        core::mem::take(&mut self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example above.
    #[test]
    fn a_submission_passes_over_what_is_there() {
        let mut table = PageTable::new(PageIndex(11));
        table.set(PageBit::Present, Extent::new(8, 2));
        let submission = Submission::of(&mut table, Window::new(4, 8, 4));
        assert_eq!(submission.fetch, [Extent::new(4, 4), Extent::new(10, 1)]);
        assert_eq!((submission.actual, submission.mark), (PageCount(5), None));
        assert_eq!(Submission::of(&mut table, Window::new(4, 8, 4)), Submission::default());
    }

    #[test]
    fn the_mark_takes_only_to_a_new_page() {
        let mut table = PageTable::new(PageIndex(100));
        assert_eq!(Submission::of(&mut table, Window::new(0, 4, 3)).mark, Some(PageIndex(1)));
        assert_eq!(Submission::of(&mut table, Window::new(99, 4, 3)).mark, None);
        assert!(table.has(PageBit::Mark, PageIndex(1)) && table.has(PageBit::InFlight, PageIndex(99)));
    }
}
