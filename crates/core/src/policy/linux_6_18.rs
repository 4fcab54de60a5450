//! Linux 6.18: conservative context readahead over large folios, with its defects and without them.
//!
//! The rules are those of 2013, the pages are not: a window is filled with *folios* of up to 2^order pages, and each time a
//! mark is hit the order grows by two. So the window's end is cut back to a multiple of the folio, and questions to the cache
//! are answered in folios where they were meant in pages. The running kernel is the judge of this file: `bowwave lab judge`
//! records its decisions and compares them, window for window (spec 8).
//!
//! ```text
//! read 0    [0, 4)        order 0                                     reader: 1 page at a time, max 2048
//! read 1    [4, 20)       order 2
//! read 4    [20, 80)      order 4
//! read 20   [80, 320)     order 6
//! read 80   [320, 768)    order 8    twice 240 would be [320, 800): cut back to a multiple of 256 pages
//! read 320  [768, 1024)   order 10   twice 448 would be [768, 1664): cut back to a multiple of 1024
//! ```
//!
//! **Defects**, each with its row in spec 8.8; [`Linux618::mended`] has none of them:
//!
//! 1. *The cut* (P1, P4): a ramping window loses up to most of its growth, 896 pages to 256 above.
//! 2. *One too far* (P4b): the search for the next hole that begins inside a folio of 2 to 32 pages counts from the folio's
//!    head. What it returns lies as many pages too far as the search began behind the head, if the hole lies in the same 64
//!    pages. The page that is jumped over is missing when its reader comes.
//! 3. *History too short*: the search backwards does the same, and reports a hole where a whole run is cached.
//! 4. *Half a stride* (Q1): the last position is the byte *behind* the last read, so a reader of every second page passes
//!    for sequential, and never touches a mark.
//!
//! Worked example of 2 and 3, two streams of 4 pages on one descriptor, as the reference machine decides it (`tests/judge`):
//! page 788 carries the mark, `[788, 796)` is cached in folios of 4; the hole at 796 is reported at 797, and `[797, 832)` is
//! fetched. Page 796 is then a miss with a history of 28 pages, which is counted as 25.

use crate::decision::{Decision, Pattern, Why};
use crate::policy::around::Around;
use crate::policy::shared::{exact, nothing, settled, window};
use crate::policy::{Ask, AskKind, Policy, ReadState};
use crate::units::{Extent, PageCount, PageIndex};
use crate::view::View;
use crate::window::{init_size, next_size};
use alloc::vec::Vec;

/// Slots of a node of the kernel's page tree.
const NODE: u64 = 64;
/// Largest folio: 2 MiB, on the reference machine's ext4.
const ORDER_MAX: u32 = 9;

/// The rules of 6.18.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Linux618 {
    defects: bool,
    grown: u32,
    asked: u32,
    request_max: PageCount,
}

impl Linux618 {
    /// As it runs.
    pub const fn as_is() -> Self {
        Self { defects: true, grown: 0, asked: 0, request_max: PageCount(0) }
    }
    /// The same rules, asked in pages.
    pub const fn mended() -> Self {
        Self { defects: false, grown: 0, asked: 0, request_max: PageCount(0) }
    }

    /// On a device that takes requests of so many pages: a read larger than the ceiling then raises it up to that.
    #[must_use]
    pub const fn with_request_max(mut self, pages: PageCount) -> Self {
        self.request_max = pages;
        self
    }

    /// The ceiling for a request of `count` pages.
    fn ceiling(&self, state: &ReadState, count: PageCount) -> PageCount {
        if count > state.max { state.max.max(count.min(self.request_max)) } else { state.max }
    }

    /// A page is missing.
    fn miss(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask) -> Decision {
        let (page, count, max) = (ask.page, ask.count, self.ceiling(state, ask.count));
        if page.0 == 0 || count > max || self.continues(state, page) {
            let size = init_size(count, max);
            let tail = if size > count { size - count } else { PageCount(size.0 / 2) };
            let why = if page.0 == 0 { "start-of-file" } else { "sequential" };
            return self.fresh(state, page, size, tail, Pattern::Initial, why);
        }
        let (history, whole) = self.history(view, page, max);
        if history <= count {
            return Decision { window: exact(ask), pattern: Pattern::Random, why: Why("random") };
        }
        let history = if whole { history + history } else { history };
        self.fresh(state, page, (history + count).min(max), PageCount(1), Pattern::Context, "long-history")
    }

    /// A mark was touched.
    fn mark(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask) -> Decision {
        let (last, max) = (state.window, self.ceiling(state, ask.count));
        let folio = if self.defects { view.folio(ask.page).count.0.max(1) } else { 1 };
        let expected = (last.start + (last.size - last.async_size)).0 / folio * folio;
        let (start, size, pattern, why) = if ask.page.0 == expected && last.size.0 > 0 {
            // Never shorter than it was, though a smaller request may have lowered the ceiling.
            (last.end(), next_size(last.size, max).max(last.size), Pattern::Subsequent, "mark-hit")
        } else {
            let hole = self.next_hole(view, ask.page + PageCount(1), max);
            let ahead = hole.since(ask.page);
            if hole.0 == 0 || ahead > max {
                return nothing(Pattern::Context, "enough-ahead");
            }
            (hole, next_size(ahead + ask.count, max), Pattern::Context, "mark-of-another")
        };
        self.grown += 2;
        let size = if self.defects { self.cut(start, size, max) } else { size };
        self.settle(size);
        self.asked = self.grown;
        state.window = window(start, size, size);
        Decision { window: state.window, pattern, why: Why(why) }
    }

    fn fresh(
        &mut self,
        state: &mut ReadState,
        start: PageIndex,
        size: PageCount,
        tail: PageCount,
        pattern: Pattern,
        why: &'static str,
    ) -> Decision {
        (self.grown, self.asked) = (0, 0);
        state.window = window(start, size, tail);
        Decision { window: state.window, pattern, why: Why(why) }
    }

    /// The window ends where a folio does, if that leaves anything of it.
    fn cut(&self, start: PageIndex, size: PageCount, max: PageCount) -> PageCount {
        let align = 1_u64 << self.grown.min(max.0.trailing_zeros());
        let end = (start + size).0 / align * align;
        if end > start.0 { PageCount(end - start.0) } else { size }
    }

    /// No folio is larger than its window.
    fn settle(&mut self, size: PageCount) {
        self.grown = self.grown.min(ORDER_MAX).min(size.0.max(1).ilog2());
    }

    /// Whether the read goes on where the last one ended. As it runs, one page may be left out.
    fn continues(&self, state: &ReadState, page: PageIndex) -> bool {
        match state.prev {
            None => false,
            Some(prev) if self.defects => page >= prev && page.since(prev).0 <= 1,
            Some(prev) => page == prev || (page < prev && prev.since(page).0 == 1),
        }
    }

    /// Cached pages just before `page`, and whether they reach back to the start of the file.
    fn history(&self, view: &dyn View, page: PageIndex, max: PageCount) -> (PageCount, bool) {
        if !self.defects {
            let history = view.history(page, max);
            return (history, history.0 >= page.0);
        }
        let from = page.back(PageCount(1));
        let (mut at, mut slot) = (from.0, head(view, from));
        for _ in 0..max.0 {
            if !view.present(PageIndex(slot)) {
                return (PageCount(page.0 - at - 1), false);
            }
            let Some(before) = at.checked_sub(1) else { return (page.since(PageIndex(0)), true) };
            at = before;
            slot = match slot % NODE {
                0 if slot == 0 => return (PageCount(page.0 - at - 1), false),
                0 => slot - NODE + at % NODE,
                _ => slot - 1,
            };
        }
        (max, false)
    }

    fn next_hole(&self, view: &dyn View, from: PageIndex, max: PageCount) -> PageIndex {
        if !self.defects {
            return view.next_hole(from, max);
        }
        let (mut at, mut slot) = (from.0, head(view, from));
        for _ in 0..max.0 {
            if !view.present(PageIndex(slot)) {
                return PageIndex(at);
            }
            at += 1;
            slot = if slot % NODE == NODE - 1 { at } else { slot + 1 };
        }
        PageIndex(at)
    }
}

/// Where a search that begins at `page` looks first: at the head of a folio that lies within a node of the tree.
fn head(view: &dyn View, page: PageIndex) -> u64 {
    let folio = view.folio(page);
    if folio.count.0 < NODE { folio.start.0 } else { page.0 }
}

impl Policy for Linux618 {
    fn name(&self) -> &'static str {
        if self.defects { "linux-6.18" } else { "linux-6.18-mended" }
    }

    fn decide(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        if settled(&Around::TODAY, view, state, ask, out) {
            if out.last().is_some_and(|decision| decision.pattern == Pattern::Around) {
                // A fault is read around in single pages.
                (self.grown, self.asked) = (0, 0);
            }
            return;
        }
        match ask.kind {
            AskKind::Miss => out.push(self.miss(view, state, ask)),
            AskKind::Mark => out.push(self.mark(view, state, ask)),
            _ => {}
        }
    }

    /// The page of the byte behind the last one read.
    fn read_done(&mut self, state: &mut ReadState, _: Extent, end_byte: u64) {
        state.prev = Some(PageIndex::of_byte(end_byte));
    }

    fn order(&self) -> u32 {
        self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folio::FolioPlay;

    fn windows(policy: Linux618, max: u64, reads: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64, u64)> {
        let mut play = FolioPlay::new(policy, PageIndex(1 << 20), PageCount(max));
        let mut all = Vec::new();
        for (page, count) in reads {
            all.extend(play.read(page * 4096, count * 4096).iter().map(|d| (d.start.0, d.size.0, d.tail.0)));
        }
        all
    }

    /// The picture above, and P1 of spec 8.8.
    #[test]
    fn the_ramp_of_the_reference_machine() {
        let ramp = windows(Linux618::as_is(), 2048, (0..1025).map(|page| (page, 1)));
        assert_eq!(
            ramp,
            [
                (0, 4, 3),
                (4, 16, 16),
                (20, 60, 60),
                (80, 240, 240),
                (320, 448, 448),
                (768, 256, 256),
                (1024, 512, 512),
                (1536, 512, 512)
            ]
        );
        let mended = windows(Linux618::mended(), 2048, (0..321).map(|page| (page, 1)));
        // Nothing is cut: 4, 16, 64, 256, 512.
        assert_eq!(mended.last(), Some(&(340, 512, 512)));
    }

    /// The worked example above, as the reference machine printed it.
    #[test]
    fn two_streams_of_four_pages() {
        let two = (0..16).flat_map(|i| [(768 + i * 4, 4), (8192 + i * 4, 4)]);
        let all = windows(Linux618::as_is(), 2048, two.clone());
        assert!(all.contains(&(797, 35, 35)) && all.contains(&(796, 29, 1)), "{all:?}");
        assert!(all.contains(&(797, 28, 1)) && all.contains(&(832, 152, 152)), "{all:?}");
        let mended = windows(Linux618::mended(), 2048, two);
        assert!(!mended.iter().any(|w| w.0 == 797), "{mended:?}");
    }

    /// Q1: a reader of every second page.
    #[test]
    fn every_second_page_passes_for_sequential() {
        let half = windows(Linux618::as_is(), 2048, (0..20).map(|i| (i * 2, 1)));
        assert_eq!(half[..3], [(0, 4, 3), (4, 4, 3), (8, 4, 3)]);
        let mended = windows(Linux618::mended(), 2048, (0..20).map(|i| (i * 2, 1)));
        assert_eq!(mended[1], (4, 9, 1), "four cached pages are a history, and a gap is none");
    }
}
