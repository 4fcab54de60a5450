//! Thrash-safe context readahead, 2010: let the cache say how much is safe (seed 001, patch 06).
//!
//! The number of today, 128 KiB, was to become 512 KiB; and where memory is short, four times the window is four times
//! the loss. So the series first made readahead adapt: history, looked for over eight windows, sizes the next window;
//! one eighth of it becomes the tail; and a page of the last window that is missing *again* is proof of a loss, after
//! which the open file trusts history alone.
//!
//! ```text
//! page        287352 53 54 55 ...         61 62 63 64        one stream of 300 under 128 MiB, first lines of the trace
//! history     ####### H = 12 (back to 287340)
//! reader             ^ mark
//! ahead              [52 53]  A = 2
//! window                     [54 ............. 62 63]        H - A = 10 pages, tail 1 + 10/8 = 2
//! next mark                                   ^ 287362
//! ```
//!
//! Worked example, the thrash of the seventh line: the window was `[287426, 287438)`, page 287425 is missing and page
//! 287424 too. 287425 lies less than a window before the window: it was lost. Half of 12 is 6, the least is 8, so 8
//! pages from 287425 are fetched without a mark; seven of them are still cached, and are *retained* (moved to the
//! young end of their list), so that one page is read and eight live on.
//!
//! The inference holds only in a cache that evicts in the order of insertion: there, a lost page has lost its
//! predecessors first, so that *no history* and *in the last window* together mean a thrash (spec 5.6). With a steady
//! load the window stays between half the safe size and all of it.
//!
//! **v0** is the posting of seed 001: its tail is `1 + (H - A)/8`, which all 25 lines of its trace show. **v3** makes
//! it `1 + H/8`, so that a long history pipelines fully, and gives up mapped read-around after 10 misses.

use crate::decision::{Decision, Pattern, Why};
use crate::policy::around::Around;
use crate::policy::context::weighed_history;
use crate::policy::limits::THRASH_MIN;
use crate::policy::ondemand::subsequent;
use crate::policy::rules_2011::{backwards, snap_to_end};
use crate::policy::shared::{exact, expected, nothing, opened, self_hit_merge, settled, window};
use crate::policy::{Ask, AskKind, Policy, ReadState};
use crate::units::{Extent, PageCount, PageIndex};
use crate::view::View;
use crate::window::{Window, init_size};
use alloc::vec::Vec;

/// History is looked for over this many windows, and this share of it becomes the tail.
const RATIO: u64 = 8;

/// A window is looked through for cached pages up to here, twice the largest ceiling of a stock kernel: bounded work.
const LOOKED_MAX: PageCount = PageCount(4096);

/// What a program's seek was relative to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// The start of the file.
    Set,
    /// The position.
    Current,
    /// The end of the file.
    End,
}

impl ReadState {
    /// The program moved the position: page 0 is then read exactly, for it is likely a probe (spec 5.10, Linus
    /// Torvalds' USB stick). A seek to the end is how programs ask for a file's size, and says nothing of what they
    /// will read.
    pub fn seek(&mut self, whence: Whence) {
        self.sought |= whence != Whence::End;
    }
}

/// Thrash-safe context readahead in one of its postings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThrashSafe {
    posting: Posting,
    around: Around,
    rules_of_2011: bool,
    retain: Extent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Posting {
    V0,
    V3,
}

impl ThrashSafe {
    /// The posting of 2 February 2010, seed 001.
    pub const fn v0() -> Self {
        Self {
            posting: Posting::V0,
            around: Around::CLASSIC,
            rules_of_2011: false,
            retain: Extent::new(0, 0),
        }
    }
    /// The posting of 1 March 2010, the last.
    pub const fn v3() -> Self {
        Self { posting: Posting::V3, around: Around::V3, ..Self::v0() }
    }
    /// Limits read-around to what memory of `total` pages allows (spec 5.12).
    #[must_use]
    pub fn with_memory(mut self, total: PageCount) -> Self {
        self.around.memory_max = Some(super::limits::around_limit(total));
        self
    }
    /// Adds backwards reading and the snap to the end of the file (spec 5.13).
    #[must_use]
    pub const fn with_rules_of_2011(mut self) -> Self {
        self.rules_of_2011 = true;
        self
    }

    /// The rules, in their order.
    fn rule(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask) -> Decision {
        if ask.page.0 == 0 {
            return start_of_file(state, ask);
        }
        if !state.thrashed {
            if expected(state, ask.page) {
                return subsequent(state, ask);
            }
            if ask.kind == AskKind::Miss && ask.count > state.max {
                let window = window(ask.page, state.max, state.max);
                return Decision { window, pattern: Pattern::Initial, why: Why("oversize") };
            }
            if self.rules_of_2011
                && ask.kind == AskKind::Miss
                && let Some(decision) = backwards(state, ask)
            {
                return decision;
            }
        }
        self.context(view, state, ask)
    }

    fn context(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask) -> Decision {
        let start = match ask.kind {
            AskKind::Mark => view.next_hole(ask.page + PageCount(1), state.max),
            _ => ask.page,
        };
        let ahead = start.since(ask.page);
        if ahead > state.max {
            return nothing(Pattern::Context, "enough-ahead");
        }
        let history = view.history(ask.page, PageCount(state.max.0.saturating_mul(RATIO)));
        if history.0 == 0 && ask.kind == AskKind::Miss {
            if lost(state, ask.page) {
                return self.thrash(state, ask);
            }
            let window = window(ask.page, ask.count.min(state.max), PageCount(0));
            return Decision { window, pattern: Pattern::Random, why: Why("random") };
        }
        let history = weighed_history(history, ask.page);
        if history <= ahead {
            return nothing(Pattern::Context, "enough-ahead");
        }
        let proven = history - ahead;
        let size = proven.max(THRASH_MIN).min(state.max);
        let eighth = match self.posting {
            Posting::V0 => proven.0 / RATIO,
            Posting::V3 => history.0 / RATIO,
        };
        let fresh = window(start, size, PageCount(eighth.saturating_add(1)));
        let window = self_hit_merge(fresh, ask.page, state.max);
        Decision { window, pattern: Pattern::Context, why: Why("history-proves") }
    }

    /// What a window finds cached shall live as long as what it fetches (spec 5.5).
    fn retain_cached(&mut self, view: &dyn View, window: Window) {
        let end = window.end().min(view.end_of_file());
        let looked = end.min(window.start + LOOKED_MAX);
        if (window.start.0..looked.0).any(|page| view.present(PageIndex(page))) {
            let kept = if self.retain.is_empty() { end } else { self.retain.end().max(end) };
            let start =
                if self.retain.is_empty() { window.start } else { self.retain.start.min(window.start) };
            self.retain = Extent::between(start, kept);
        }
    }

    /// A page was lost: half the window, at least [`THRASH_MIN`], no mark -- and what is left of the old one stays.
    fn thrash(&mut self, state: &mut ReadState, ask: Ask) -> Decision {
        let left = state.window.end().since(ask.page).min(state.max + state.max);
        self.retain = Extent::new(ask.page.0, left.0);
        state.thrashed = true;
        let size = PageCount(state.window.size.0 / 2).max(THRASH_MIN);
        let window = window(ask.page, size, PageCount(0));
        Decision { window, pattern: Pattern::Thrash, why: Why("lost-before-use") }
    }
}

impl Policy for ThrashSafe {
    fn name(&self) -> &'static str {
        match self.posting {
            Posting::V0 => "thrash-safe-v0",
            Posting::V3 => "thrash-safe",
        }
    }

    fn decide(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        self.retain = Extent::default();
        let first = out.len();
        if !settled(&self.around, view, state, ask, out) {
            let mut decision = self.rule(view, state, ask);
            if self.rules_of_2011 {
                decision = snap_to_end(decision, view, state.max);
            }
            // Random reads too: the next read behind one, or before it, then finds a window to continue.
            if decision.window.size.0 > 0 {
                state.window = decision.window;
            }
            out.push(decision);
        }
        out[first..].iter().for_each(|decision| self.retain_cached(view, decision.window));
    }

    fn retain(&self) -> Extent {
        self.retain
    }
}

/// A window from page 0 -- or exactly the request, after a seek.
fn start_of_file(state: &ReadState, ask: Ask) -> Decision {
    let probe = state.sought && ask.count <= state.max;
    let (window, why) = if probe {
        (exact(ask), "start-after-seek")
    } else {
        (opened(ask.page, ask.count, init_size(ask.count, state.max)), "start-of-file")
    };
    Decision { window, pattern: Pattern::Initial, why: Why(why) }
}

/// Whether the page belonged to the last window or to the one before it (spec 5.6). The lower bound is loose on
/// purpose, and saturates: the kernel's wraps near the head of a file and calls those thrashes random.
fn lost(state: &ReadState, page: PageIndex) -> bool {
    let last = state.window;
    last.start.back(last.size) <= page && page < last.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{PageBit, PageTable};

    fn ask(kind: AskKind, page: u64, count: u64) -> Ask {
        Ask { page: PageIndex(page), count: PageCount(count), kind }
    }

    fn decide(policy: &mut ThrashSafe, view: &dyn View, state: &mut ReadState, ask: Ask) -> Decision {
        let mut out = Vec::new();
        policy.decide(view, state, ask, &mut out);
        out[0]
    }

    /// The picture and the worked example above.
    #[test]
    fn one_window_and_one_loss_of_the_trace() {
        let mut table = PageTable::new(PageIndex(1 << 20));
        table.set(PageBit::Present, Extent::between(PageIndex(287340), PageIndex(287354)));
        let mut state = ReadState::new(PageCount(60));
        state.thrashed = true;
        let mut policy = ThrashSafe::v0();
        let decision = decide(&mut policy, &table, &mut state, ask(AskKind::Mark, 287352, 1));
        assert_eq!(decision.window, Window::new(287354, 10, 2));

        state.window = Window::new(287426, 12, 2);
        let decision = decide(&mut policy, &table, &mut state, ask(AskKind::Miss, 287425, 1));
        assert_eq!((decision.window, decision.pattern), (Window::new(287425, 8, 0), Pattern::Thrash));
        assert_eq!(policy.retain(), Extent::new(287425, 13));
    }

    /// Pages 104 and 105 are cached already: they shall not die before the window that they lie in.
    #[test]
    fn what_is_cached_lives_as_long_as_what_is_fetched() {
        let mut table = PageTable::new(PageIndex(1 << 20));
        let mut state = ReadState::new(PageCount(32));
        let mut policy = ThrashSafe::v3();
        table.set(PageBit::Present, Extent::new(90, 10));
        decide(&mut policy, &table, &mut state, ask(AskKind::Miss, 100, 1));
        assert_eq!((state.window, policy.retain()), (Window::new(100, 10, 2), Extent::default()));
        table.set(PageBit::Present, Extent::new(104, 2));
        decide(&mut policy, &table, &mut state, ask(AskKind::Miss, 100, 1));
        assert_eq!(policy.retain(), Extent::new(100, 10));
    }

    /// Where the kernel's subtraction wraps: window `[4, 12)`, page 3 lost.
    #[test]
    fn a_loss_at_the_head_of_a_file_is_a_loss() {
        let table = PageTable::new(PageIndex(100));
        let mut state = ReadState::new(PageCount(32));
        state.window = Window::new(4, 8, 8);
        let decision = decide(&mut ThrashSafe::v3(), &table, &mut state, ask(AskKind::Miss, 3, 1));
        assert_eq!(decision.pattern, Pattern::Thrash);
        assert!(state.thrashed);
    }

    #[test]
    fn the_first_read_after_a_seek_is_exact_but_not_after_asking_for_the_size() {
        let table = PageTable::new(PageIndex(100));
        for (whence, window) in [
            (Whence::Set, Window::new(0, 1, 0)),
            (Whence::Current, Window::new(0, 1, 0)),
            (Whence::End, Window::new(0, 4, 3)),
        ] {
            let mut state = ReadState::new(PageCount(32));
            state.seek(whence);
            let decision = decide(&mut ThrashSafe::v3(), &table, &mut state, ask(AskKind::Miss, 0, 1));
            assert_eq!(decision.window, window, "{whence:?}");
        }
    }

    /// With history at its cap of eight windows, v3 marks the first page of a full window; v0 stops short of that.
    #[test]
    fn v3_pipelines_fully_where_v0_does_not() {
        let max = PageCount(32);
        let mut table = PageTable::new(PageIndex(1 << 20));
        table.set(PageBit::Present, Extent::between(PageIndex(1000), PageIndex(1500)));
        for (mut policy, tail) in [(ThrashSafe::v0(), 29), (ThrashSafe::v3(), 32)] {
            let mut state = ReadState::new(max);
            let decision = decide(&mut policy, &table, &mut state, ask(AskKind::Mark, 1468, 1));
            assert_eq!(decision.window, Window::new(1500, 32, tail));
        }
    }

    /// The two random reads that make the second one subsequent: the opposite direction of 2013.
    #[test]
    fn two_adjacent_random_reads_open_a_window() {
        let table = PageTable::new(PageIndex(1 << 20));
        let mut state = ReadState::new(PageCount(32));
        let mut policy = ThrashSafe::v3();
        let first = decide(&mut policy, &table, &mut state, ask(AskKind::Miss, 700, 2));
        let second = decide(&mut policy, &table, &mut state, ask(AskKind::Miss, 702, 2));
        assert_eq!((first.window, second.window), (Window::new(700, 2, 0), Window::new(702, 4, 4)));
    }
}
