//! A file's pages in folios, and an open file of 6.18 played over them.
//!
//! A window is filled with folios as large as its order allows and as the alignment of each place allows:
//!
//! ```text
//! window [797, 832), order 5     797 | 798 799 | 800 ............. 831
//!                                 1      2             32 pages
//! ```
//!
//! A folio that contains the mark carries it: touching any page of it asks for the next window, at the folio's first page.
//! Where a page of the window is cached already, the folios end, and the rest is filled page by page (spec 8.4).
//!
//! What a mapping adds is told in `mapped`.

mod mapped;

pub use mapped::{MapAdvice, Touched};

use crate::decision::Pattern;
use crate::policy::{Ask, AskKind, Linux618, Policy, ReadState};
use crate::table::{PageBit, PageTable};
use crate::units::{Extent, PageCount, PageIndex};
use crate::view::View;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A file's pages and the folios that they lie in.
#[derive(Clone, Debug, Default)]
pub struct FolioTable {
    table: PageTable,
    /// Folios of more than one page, by their first.
    folios: BTreeMap<u64, u64>,
}

/// What a kernel's tracepoint says of one submission: `page_cache_ra_order`, or `page_cache_ra_unbounded` where pages come
/// one by one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Submitted {
    /// Page by page, not in folios.
    pub unbounded: bool,
    /// First page.
    pub start: PageIndex,
    /// Pages.
    pub size: PageCount,
    /// Pages of the tail that the mark begins.
    pub tail: PageCount,
}

impl FolioTable {
    /// An empty table of a file of `end_of_file` pages.
    pub fn new(end_of_file: PageIndex) -> Self {
        Self { table: PageTable::new(end_of_file), folios: BTreeMap::new() }
    }

    /// Fills a window with folios of up to 2^`order` pages. Returns the first page that was cached already, if any.
    fn fill(&mut self, window: Extent, order: u32, mark: PageIndex) -> Option<PageIndex> {
        let end = window.end().min(self.table.end_of_file());
        let order = order.min(window.count.0.max(1).ilog2());
        let mut at = window.start;
        while at < end {
            let mut pages = 1_u64 << order.min(at.0.trailing_zeros());
            while pages > 1 && at.0 + pages > end.0 {
                pages /= 2;
            }
            let folio = Extent { start: at, count: PageCount(pages) };
            if self.table.resident(folio).0 > 0 {
                return Some(at);
            }
            self.table.set(PageBit::Present, folio);
            if pages > 1 {
                self.folios.insert(at.0, pages);
            }
            if folio.contains(mark) {
                self.table.set(PageBit::Mark, Extent { start: at, count: PageCount(1) });
            }
            at = folio.end();
        }
        None
    }

    /// Fills what is missing of `window` page by page; the mark only on a new page.
    fn fill_singly(&mut self, window: Extent, mark: Option<PageIndex>) {
        let inside = Extent::between(window.start, window.end().min(self.table.end_of_file()));
        for hole in self.table.holes(inside).collect::<Vec<_>>() {
            self.table.set(PageBit::Present, hole);
            if let Some(mark) = mark.filter(|&mark| hole.contains(mark)) {
                self.table.set(PageBit::Mark, Extent { start: mark, count: PageCount(1) });
            }
        }
    }

    fn take_mark(&mut self, folio: Extent) -> bool {
        self.table.clear(PageBit::Mark, Extent { start: folio.start, count: PageCount(1) }).0 > 0
    }
}

impl View for FolioTable {
    fn end_of_file(&self) -> PageIndex {
        self.table.end_of_file()
    }
    fn present(&self, page: PageIndex) -> bool {
        self.table.present(page)
    }
    fn next_hole(&self, from: PageIndex, limit: PageCount) -> PageIndex {
        self.table.next_hole(from, limit)
    }
    fn history(&self, page: PageIndex, limit: PageCount) -> PageCount {
        self.table.history(page, limit)
    }
    fn folio(&self, page: PageIndex) -> Extent {
        let held = self.folios.range(..=page.0).next_back().map(|(&start, &pages)| Extent::new(start, pages));
        held.filter(|folio| folio.contains(page)).unwrap_or(Extent { start: page, count: PageCount(1) })
    }
}

/// One open file of 6.18, over folios, without time: what `bowwave lab judge` holds against the running kernel.
pub struct FolioPlay {
    policy: Linux618,
    state: ReadState,
    folios: FolioTable,
    submitted: Vec<Submitted>,
    /// Pages that the mapping has: to touch them is no fault.
    mapped: BTreeSet<u64>,
}

impl FolioPlay {
    /// Opens a file of `end_of_file` pages, nothing cached, under a ceiling of `max` pages.
    pub fn new(policy: Linux618, end_of_file: PageIndex, max: PageCount) -> Self {
        Self {
            policy,
            state: ReadState::new(max),
            folios: FolioTable::new(end_of_file),
            submitted: Vec::new(),
            mapped: BTreeSet::new(),
        }
    }

    /// Reads `len` bytes from byte `offset`; returns what was submitted on the way.
    pub fn read(&mut self, offset: u64, len: u64) -> Vec<Submitted> {
        let request = Extent::covering(offset, len);
        let end = request.end().min(self.folios.end_of_file());
        let mut at = request.start;
        while at < end {
            if !self.folios.present(at) {
                self.ask(AskKind::Miss, at, request.end().since(at));
                if !self.folios.present(at) {
                    self.folios.fill_singly(Extent { start: at, count: PageCount(1) }, None);
                }
            }
            let folio = self.folios.folio(at);
            if self.folios.take_mark(folio) {
                self.ask(AskKind::Mark, folio.start, request.end().since(folio.start));
            }
            at = folio.end();
        }
        let read_to = (offset + len).min(self.folios.end_of_file().byte());
        self.policy.read_done(&mut self.state, request, read_to);
        core::mem::take(&mut self.submitted)
    }

    fn ask(&mut self, kind: AskKind, page: PageIndex, count: PageCount) {
        let mut out = Vec::new();
        self.policy.decide(&self.folios, &mut self.state, Ask { page, count, kind }, &mut out);
        for decision in out {
            let (window, end) = (decision.window, self.folios.end_of_file());
            if window.size.0 == 0 {
                continue;
            }
            if decision.pattern == Pattern::Random {
                let clipped = Extent::between(window.start, window.end().min(end));
                // A fault without readahead fetches its page where no tracepoint is.
                if kind != AskKind::Fault {
                    self.note(true, clipped.start, clipped.count, PageCount(0));
                }
                self.folios.fill_singly(clipped, None);
                continue;
            }
            self.note(false, window.start, window.size, window.async_size);
            let mark = window.start + (window.size - window.async_size);
            if let Some(at) = self.folios.fill(window.extent(), self.policy.order(), mark) {
                // The rest of the window page by page, its tail as long as before.
                let rest = Extent::between(at, window.end().min(end));
                self.note(true, rest.start, rest.count, window.async_size);
                let mark = rest.end().back(window.async_size);
                self.folios.fill_singly(rest, (window.async_size.0 > 0).then_some(mark));
            }
        }
    }

    fn note(&mut self, unbounded: bool, start: PageIndex, size: PageCount, tail: PageCount) {
        self.submitted.push(Submitted { unbounded, start, size, tail });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture above.
    #[test]
    fn a_window_is_cut_into_folios() {
        let mut file = FolioTable::new(PageIndex(1 << 20));
        assert_eq!(file.fill(Extent::new(797, 35), 5, PageIndex(797)), None);
        let folio = |page| file.folio(PageIndex(page));
        assert_eq!(
            [797, 799, 831].map(folio),
            [Extent::new(797, 1), Extent::new(798, 2), Extent::new(800, 32)]
        );
        assert_eq!(folio(832), Extent::new(832, 1));
        assert_eq!(file.fill(Extent::new(790, 16), 2, PageIndex(790)), Some(PageIndex(796)));
    }
}
