//! Context readahead, 2008 and 2009: where the open file remembers nothing, ask the cache (seed 004).
//!
//! A read at page `q` that misses, with page `q - 1` cached, was not a jump: somebody has read up to here. How far
//! back the cached run reaches is that stream's *history*, and the history is all the state there is. So the number of
//! streams on one open file is not one (2.6.22), not 32 (ZFS of that day), but as many as the cache remembers (T24).
//!
//! ```text
//! matrix of rows of 1000 pages, read by columns, max 32                                                      (T25)
//! column 0      0+1     1000+1    2000+1 ...     no page before, no history: exact
//! column 1      1+4     1001+4    2001+4 ...     one page of history:   [1001 1002 1003 1004 | 1005 ......... 1012]
//! column 5      5+8     1005+8    2005+8 ...                             waited for, then      ^ mark: fetched with it
//! ```
//!
//! Two ages live here (spec 4.1, 4.2). The **slides of 2008** size the window by what memory was seen to hold: with
//! `H` pages of history and `A` still cached ahead, fetch `H - A`, at most `max`. While the stream read H pages, the
//! cache took in all that it took in and still has them; so H is a *lower* bound of how far a reader may trail its
//! readahead without losing it. It doubles, waiting each time, until H is its cap of `2 * max`; from then on a full
//! window is always ahead. **2.6.31** keeps on-demand's sizes: history plus request, rounded up as a first request
//! would be, and all of it tail -- so that the next window is folded in at once. A history that reaches back to page 0
//! counts twice: whole files are read often.
//!
//! Worked example: pages `[1000, 1004)` cached, page 1004 missing, max 32. The slides fetch 4 pages. 2.6.31 opens
//! `init(4 + 1) = 16` pages and folds the next 32 in: `[1004, 1052)`, marked at 1020.
//!
//! Weakness, by its author: a program that drops its pages behind itself (DONTNEED) erases its own history.

use crate::decision::{Decision, Pattern, Why};
use crate::policy::around::Around;
use crate::policy::ondemand::{Ondemand, commit, found_mark, random, subsequent};
use crate::policy::shared::{expected, nothing, opened, self_hit_merge, sequential, settled, window};
use crate::policy::{Ask, AskKind, Policy, ReadState};
use crate::units::{PageCount, PageIndex};
use crate::view::View;
use crate::window::init_size;
use alloc::vec::Vec;

/// The slides of 2008: as much as the history proves safe; on-demand where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Context2008;

/// 2.6.31 to 3.11: history opens a window as a request of its size would.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Context;

impl Policy for Context2008 {
    fn name(&self) -> &'static str {
        "context-2008"
    }

    fn decide(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        let read = matches!(ask.kind, AskKind::Miss | AskKind::Mark);
        if !read || state.random_advice || state.max.0 == 0 || !probe(view, ask.page) {
            return Ondemand.decide(view, state, ask, out);
        }
        commit(state, proven(view, state, ask), out);
    }
}

impl Policy for Context {
    fn name(&self) -> &'static str {
        "context"
    }

    fn decide(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        if settled(&Around::CLASSIC, view, state, ask, out) {
            return;
        }
        let mut decision = known_stream(view, state, ask).unwrap_or_else(|| from_history(view, state, ask));
        decision.window = self_hit_merge(decision.window, ask.page, state.max);
        commit(state, decision, out);
    }
}

/// The slides' window, `[next hole, page + history)`, and at least the request that waits.
fn proven(view: &dyn View, state: &ReadState, ask: Ask) -> Decision {
    let begin = view.next_hole(ask.page, state.max);
    let ahead = begin.since(ask.page);
    let history = view.history(ask.page, state.max + state.max);
    let waits = if ask.kind == AskKind::Miss { ask.count } else { PageCount(0) };
    let size = (history - ahead).max(waits).min(state.max);
    if size.0 == 0 {
        return nothing(Pattern::Context, "enough-ahead");
    }
    Decision { window: window(begin, size, size), pattern: Pattern::Context, why: Why("history-proves") }
}

/// What 2.6.31 and its successor answer before they look at history: start of file, a window we remember, a mark, a
/// request larger than the ceiling, a read next to the last one. In this order (spec 4.2).
pub(super) fn known_stream(view: &dyn View, state: &ReadState, ask: Ask) -> Option<Decision> {
    let why = if ask.page.0 == 0 {
        "start-of-file"
    } else if expected(state, ask.page) {
        return Some(subsequent(state, ask));
    } else if ask.kind == AskKind::Mark {
        return Some(found_mark(view, state, ask, ask.count));
    } else if ask.count > state.max {
        "oversize"
    } else if sequential(state, ask.page) {
        "sequential"
    } else {
        return None;
    };
    let size = init_size(ask.count, state.max);
    Some(Decision { window: opened(ask.page, ask.count, size), pattern: Pattern::Initial, why: Why(why) })
}

/// The cached pages just before the miss; a run that reaches back to page 0 counts twice.
pub(super) fn weighed_history(history: PageCount, page: PageIndex) -> PageCount {
    if history.0 >= page.0 { history + history } else { history }
}

fn from_history(view: &dyn View, state: &ReadState, ask: Ask) -> Decision {
    let history = view.history(ask.page, state.max);
    if history.0 == 0 {
        return random(ask);
    }
    let size = init_size(weighed_history(history, ask.page) + ask.count, state.max);
    Decision { window: window(ask.page, size, size), pattern: Pattern::Context, why: Why("history") }
}

/// Whether the page before is cached: the slides' one question.
fn probe(view: &dyn View, page: PageIndex) -> bool {
    page.0 > 0 && view.present(page.back(PageCount(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{PageBit, PageTable};
    use crate::units::Extent;
    use crate::window::Window;

    fn decide(policy: &mut dyn Policy, cached: Extent, kind: AskKind, page: u64, count: u64) -> Decision {
        let mut table = PageTable::new(PageIndex(1 << 20));
        table.set(PageBit::Present, cached);
        let ask = Ask { page: PageIndex(page), count: PageCount(count), kind };
        let mut out = Vec::new();
        policy.decide(&table, &mut ReadState::new(PageCount(32)), ask, &mut out);
        out[0]
    }

    /// The worked example above.
    #[test]
    fn four_pages_of_history() {
        let cached = Extent::new(1000, 4);
        assert_eq!(decide(&mut Context2008, cached, AskKind::Miss, 1004, 1).window, Window::new(1004, 4, 4));
        assert_eq!(decide(&mut Context, cached, AskKind::Miss, 1004, 1).window, Window::new(1004, 48, 32));
    }

    /// Without the page before, the slides' rule has nothing to say and 2.6.31's finds no history.
    #[test]
    fn no_history_is_a_random_read() {
        for policy in [&mut Context2008 as &mut dyn Policy, &mut Context] {
            let decision = decide(policy, Extent::new(1000, 4), AskKind::Miss, 1005, 3);
            assert_eq!((decision.window, decision.pattern), (Window::new(1005, 3, 0), Pattern::Random));
        }
    }

    /// What lies ahead is subtracted: the reader may trail its readahead by H pages, and trails it by A already.
    #[test]
    fn the_slides_subtract_what_lies_ahead() {
        // H = 20, A = 5: fifteen more. H = 5, A = 20: none.
        let fetch = decide(&mut Context2008, Extent::new(1000, 25), AskKind::Mark, 1020, 1);
        assert_eq!(fetch.window, Window::new(1025, 15, 15));
        let enough = decide(&mut Context2008, Extent::new(1000, 25), AskKind::Mark, 1005, 1);
        assert_eq!(enough.window, Window::default());
    }

    #[test]
    fn a_history_back_to_page_0_counts_twice() {
        // init(8 + 1) = 32 and init(2 * 8 + 1) = 32 under 32 pages; under 256 they differ: 32 and 64.
        let mut table = PageTable::new(PageIndex(1 << 20));
        table.set(PageBit::Present, Extent::new(0, 8));
        table.set(PageBit::Present, Extent::new(1000, 8));
        for (page, size) in [(8, 64), (1008, 32)] {
            let ask = Ask { page: PageIndex(page), count: PageCount(1), kind: AskKind::Miss };
            let decision = from_history(&table, &ReadState::new(PageCount(256)), ask);
            assert_eq!(decision.window, Window::new(page, size, size));
        }
    }
}
