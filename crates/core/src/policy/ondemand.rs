//! On-demand readahead, 2007: ask only when a page is missing or a marked page is touched (seed 000).
//!
//! Up to 2.6.22 the kernel ran its readahead routine on every read, kept two windows, and lost both at any seek. Seed
//! 000 replaces that by one window, one mark, and four cases, tried in this order:
//!
//! ```text
//! sequential-next     the page is the window's mark, or the page past its end      push the window forward
//! random              missing, and not next to the last read                       read exactly that, remember nothing
//! sequential-first    missing, next to the last read -- or larger than the ceiling open a window
//! lookahead-clueless  marked, but not by the window we remember                    guess a window behind it
//!
//! page    0 1 2 3 | 4 ............ 11 | 12 ..................... 27 | 28 ...       reader: 1 page at a time, max 32
//! window  (0,4,3)   (4,8,8)             (12,16,16)                    (28,32,32)   (start, size, async_size)
//! mark      ^1       ^4                  ^12                           ^28
//! ```
//!
//! Nothing is recorded of a read that finds its pages, so a retried, unaligned or cached read cannot confuse it, and a
//! lost window is opened again where its reader stands instead of page by page: under thrashing the smallest I/O grew
//! from 16 KB to 140 KB (T10).
//!
//! Two ages live here (spec 3.3, 3.4). **2.6.23**, as merged, answers a mark that it does not know by `4 * init` pages
//! behind it. **2.6.24** asks the cache instead: from the mark to the first hole is what was the tail of the window
//! that set the mark, and the tail was all of that window, so the next is [`next_size`] of it. It also folds two
//! windows into one where the mark would lie on the very page that waits (spec 3.6).
//!
//! Worked example: pages `[100, 108)` cached, the mark on 100, another stream's window remembered. 2.6.23 opens 16
//! pages at 101, of which 7 are there already. 2.6.24 finds the hole at 108 and opens `[108, 124)`.

use crate::decision::{Decision, Pattern, Why};
use crate::policy::around::Around;
use crate::policy::shared::{
    exact, expected, nothing, opened, pushed_forward, self_hit_merge, sequential, settled, window,
};
use crate::policy::{Ask, AskKind, Policy, ReadState};
use crate::units::PageCount;
use crate::view::View;
use crate::window::{init_size, next_size};
use alloc::vec::Vec;

/// 2.6.23, as merged in July 2007.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ondemand2623;

/// 2.6.24 to 2.6.30: a mark without its window is looked up in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ondemand;

impl Policy for Ondemand2623 {
    fn name(&self) -> &'static str {
        "ondemand-2.6.23"
    }

    fn decide(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        if settled(&Around::CLASSIC, view, state, ask, out) {
            return;
        }
        let decision = match known_stream(state, ask) {
            Some(decision) => decision,
            None if ask.kind == AskKind::Mark => clueless(state, ask),
            None => random(ask),
        };
        commit(state, decision, out);
    }
}

impl Policy for Ondemand {
    fn name(&self) -> &'static str {
        "ondemand"
    }

    fn decide(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        if settled(&Around::CLASSIC, view, state, ask, out) {
            return;
        }
        let mut decision = match known_stream(state, ask) {
            Some(decision) => decision,
            None if ask.kind == AskKind::Mark => found_mark(view, state, ask, PageCount(0)),
            None => random(ask),
        };
        decision.window = self_hit_merge(decision.window, ask.page, state.max);
        commit(state, decision, out);
    }
}

/// The cases in which the open file's own memory knows the stream: sequential-next and sequential-first.
fn known_stream(state: &ReadState, ask: Ask) -> Option<Decision> {
    if expected(state, ask.page) {
        return Some(subsequent(state, ask));
    }
    if ask.kind == AskKind::Mark {
        return None;
    }
    let why = if ask.page.0 == 0 && sequential(state, ask.page) {
        "start-of-file"
    } else if sequential(state, ask.page) {
        "sequential"
    } else if ask.count > state.max {
        "oversize"
    } else {
        return None;
    };
    let size = init_size(ask.count, state.max);
    Some(Decision { window: opened(ask.page, ask.count, size), pattern: Pattern::Initial, why: Why(why) })
}

/// Sequential-next: the window we remember, pushed forward.
pub(super) fn subsequent(state: &ReadState, ask: Ask) -> Decision {
    let why = if ask.kind == AskKind::Mark { "mark-hit" } else { "window-end" };
    Decision { window: pushed_forward(state), pattern: Pattern::Subsequent, why: Why(why) }
}

/// Lookahead-clueless, 2.6.23: a window guessed from the request alone, behind the mark.
fn clueless(state: &ReadState, ask: Ask) -> Decision {
    let init = init_size(ask.count, state.max);
    let size = PageCount(init.0.saturating_mul(4)).min(state.max);
    let window = opened(ask.page + PageCount(1), ask.count, size);
    Decision { window, pattern: Pattern::Initial, why: Why("lookahead-clueless") }
}

/// A mark without its window, since 2.6.24: the pages cached from the mark on were a window's tail. From 2.6.31 on,
/// `more` pages of the request count to that tail.
pub(super) fn found_mark(view: &dyn View, state: &ReadState, ask: Ask, more: PageCount) -> Decision {
    let hole = view.next_hole(ask.page + PageCount(1), state.max);
    let old_tail = hole.since(ask.page);
    if old_tail > state.max {
        return nothing(Pattern::Context, "enough-ahead");
    }
    let size = next_size(old_tail + more, state.max);
    Decision { window: window(hole, size, size), pattern: Pattern::Context, why: Why("mark-found") }
}

/// Random: exactly what is asked.
pub(super) fn random(ask: Ask) -> Decision {
    Decision { window: exact(ask), pattern: Pattern::Random, why: Why("random") }
}

/// Pushes the decision, and remembers its window unless it is a random read or nothing at all.
pub(super) fn commit(state: &mut ReadState, decision: Decision, out: &mut Vec<Decision>) {
    if decision.pattern != Pattern::Random && decision.window.size.0 > 0 {
        state.window = decision.window;
    }
    out.push(decision);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{PageBit, PageTable};
    use crate::units::{Extent, PageIndex};
    use crate::window::Window;

    fn decide(policy: &mut dyn Policy, view: &dyn View, state: &mut ReadState, ask: Ask) -> Window {
        let mut out = Vec::new();
        policy.decide(view, state, ask, &mut out);
        out[0].window
    }

    /// The worked example above.
    #[test]
    fn a_mark_without_its_window() {
        let mut table = PageTable::new(PageIndex(1 << 20));
        table.set(PageBit::Present, Extent::new(100, 8));
        let ask = Ask { page: PageIndex(100), count: PageCount(1), kind: AskKind::Mark };
        let mut state = ReadState::new(PageCount(32));
        state.window = Window::new(5000, 32, 32);
        let clueless = decide(&mut Ondemand2623, &table, &mut state.clone(), ask);
        assert_eq!((clueless.start, clueless.size), (PageIndex(101), PageCount(16)));
        assert_eq!(decide(&mut Ondemand, &table, &mut state, ask), Window::new(108, 16, 16));
    }

    #[test]
    fn nothing_to_do_where_a_whole_window_lies_ahead() {
        let mut table = PageTable::new(PageIndex(1 << 20));
        table.set(PageBit::Present, Extent::new(100, 33));
        let ask = Ask { page: PageIndex(100), count: PageCount(1), kind: AskKind::Mark };
        let mut state = ReadState::new(PageCount(32));
        assert_eq!(decide(&mut Ondemand, &table, &mut state, ask), Window::default());
        assert_eq!(state, ReadState::new(PageCount(32)));
    }

    /// A read larger than the ceiling becomes a pipeline of windows of the ceiling: one waited for, one in flight
    /// behind it.
    #[test]
    fn an_oversize_read_is_a_pipeline() {
        let table = PageTable::new(PageIndex(1 << 20));
        let ask = Ask { page: PageIndex(500), count: PageCount(100), kind: AskKind::Miss };
        let mut state = ReadState::new(PageCount(32));
        assert_eq!(decide(&mut Ondemand2623, &table, &mut state.clone(), ask), Window::new(500, 32, 32));
        assert_eq!(decide(&mut Ondemand, &table, &mut state, ask), Window::new(500, 64, 32));
    }
}
