//! What a policy may know of a cache: one small view.
//!
//! The kernel's page cache (a shadow table, corrected by samples), our own frames and the lab's model all answer these
//! five questions, so no policy knows which of them it steers (spec 1.4).

use crate::units::{Extent, PageCount, PageIndex};

/// A file's pages as its cache knows them. A page in flight counts as present: nobody may fetch it twice.
pub trait View {
    /// Pages in the file, rounded up; the first index past the last page.
    fn end_of_file(&self) -> PageIndex;

    /// Whether `page` is present or in flight.
    fn present(&self, page: PageIndex) -> bool;

    /// The first absent page in `[from, from + limit)`, or `from + limit` if there is none.
    fn next_hole(&self, from: PageIndex, limit: PageCount) -> PageIndex {
        (0..limit.0).map(|i| from + PageCount(i)).find(|&p| !self.present(p)).unwrap_or(from + limit)
    }

    /// How many pages are present without a hole just before `page`: its history, at most `limit`.
    fn history(&self, page: PageIndex, limit: PageCount) -> PageCount {
        let limit = limit.0.min(page.0);
        PageCount((0..limit).find(|&i| !self.present(PageIndex(page.0 - 1 - i))).unwrap_or(limit))
    }

    /// The folio that holds `page`: the pages that its cache handles as one. A page by itself where there are none.
    fn folio(&self, page: PageIndex) -> Extent {
        Extent { start: page, count: PageCount(1) }
    }
}
