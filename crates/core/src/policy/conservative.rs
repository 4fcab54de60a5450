//! Conservative context readahead, 2013: more history than request, and no more than both together (seed 002).
//!
//! On a disk a wrong guess costs transfer time and a right one saves a seek. On an SSD there is no seek to save:
//! Taobao's database served 5,581 queries a second with context readahead and 7,536 without (T18). A random read lands
//! next to a cached page by chance; that *three* of them fall on N, N + 1 and N + 2 is no chance. Hence:
//!
//! ```text
//!                 2.6.31                             3.12 and later
//! asks for        history >= 1                       history > request
//! opens           init(history + request), 4 to max  history + request, at most max
//! mark            on its first page (folded in)      on its last page
//!
//! page 1000 1001  | 1002 1003 1004 |                 1-page reads: the third opens 3 pages, marked on the last
//!      read read    read      mark
//! ```
//!
//! The stream proves itself by touching that mark; the mark's rule then grows the window as before (spec 4.3). Three
//! quarters of the gain came from starting small, the rest from starting on the third read; what is left against no
//! context readahead at all is 5 % of the queries.
//!
//! Worked example: max 32, pages 1000 and 1001 read, 1002 missing: `[1002, 1005)`, mark 1004. Reading 1004 finds the
//! hole at 1005, one page away, and fetches `next(1 + 1) = 4` pages (8 under a ceiling of 64 or more).

use crate::decision::{Decision, Pattern, Why};
use crate::policy::around::Around;
use crate::policy::context::{known_stream, weighed_history};
use crate::policy::ondemand::{commit, random};
use crate::policy::shared::{self_hit_merge, settled, window};
use crate::policy::{Ask, Policy, ReadState};
use crate::units::PageCount;
use crate::view::View;
use alloc::vec::Vec;

/// 3.12 to the large folios of 5.18.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conservative;

impl Policy for Conservative {
    fn name(&self) -> &'static str {
        "conservative"
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

/// Half of the patch: its smaller window, opened on the second read as before. It was measured by its testers and never
/// merged (T18).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlowerRamp;

impl Policy for SlowerRamp {
    fn name(&self) -> &'static str {
        "slower-ramp"
    }

    fn decide(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        if settled(&Around::CLASSIC, view, state, ask, out) {
            return;
        }
        let history = view.history(ask.page, state.max);
        let from_history = || {
            let size = (weighed_history(history, ask.page) + ask.count).min(state.max);
            let window = window(ask.page, size, PageCount(1));
            Decision { window, pattern: Pattern::Context, why: Why("history") }
        };
        let mut decision = known_stream(view, state, ask)
            .unwrap_or_else(|| if history.0 == 0 { random(ask) } else { from_history() });
        decision.window = self_hit_merge(decision.window, ask.page, state.max);
        commit(state, decision, out);
    }
}

fn from_history(view: &dyn View, state: &ReadState, ask: Ask) -> Decision {
    let history = view.history(ask.page, state.max);
    if history <= ask.count {
        return random(ask);
    }
    let size = (weighed_history(history, ask.page) + ask.count).min(state.max);
    Decision {
        window: window(ask.page, size, PageCount(1)),
        pattern: Pattern::Context,
        why: Why("long-history"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::AskKind;
    use crate::table::{PageBit, PageTable};
    use crate::units::{Extent, PageIndex};
    use crate::window::Window;

    fn miss(cached: Extent, max: u64, page: u64, count: u64) -> Window {
        let mut table = PageTable::new(PageIndex(1 << 20));
        table.set(PageBit::Present, cached);
        let ask = Ask { page: PageIndex(page), count: PageCount(count), kind: AskKind::Miss };
        let mut out = Vec::new();
        Conservative.decide(&table, &mut ReadState::new(PageCount(max)), ask, &mut out);
        out[0].window
    }

    #[test]
    fn the_third_neighbour_opens_a_window() {
        assert_eq!(miss(Extent::new(1001, 1), 32, 1002, 1), Window::new(1002, 1, 0));
        assert_eq!(miss(Extent::new(1000, 2), 32, 1002, 1), Window::new(1002, 3, 1));
    }

    /// What the running kernel was seen to do (spec 4.3, P4b and Q5; max 2048).
    #[test]
    fn as_6_18_answers() {
        assert_eq!(miss(Extent::new(3000, 8), 2048, 3008, 4), Window::new(3008, 12, 1));
        assert_eq!(miss(Extent::new(0, 8), 2048, 8, 1), Window::new(8, 17, 1));
    }

    /// 16-page reads: 2.6.31 opened a full window next to any cached page, 3.12 reads 16 (T19).
    #[test]
    fn big_random_reads_stay_exact() {
        assert_eq!(miss(Extent::new(1000, 16), 32, 1016, 16), Window::new(1016, 16, 0));
    }
}
