//! What the eras share: the questions that never reach an era's own rules, and the few moves that all of them make.
//!
//! ```text
//! forced      WILLNEED of 5 MiB     [0, 512)  [512, 1024)  [1024, 1280)        2 MiB at a time, no tail, no mark
//! at random   advised so, 3 pages   [7, 10)                                    exactly what is asked
//! self-hit    page 4 waits          4 5 6 7 | 8 9 10 11 12 13 14 15            (4,4,4) becomes (4,12,8):
//!                                   ^ mark    ^ mark                           the mark on 4 would be hit at once
//! ```
//!
//! Spec 1.6 (forced reads; nothing is sent ahead to a congested device), 3.6 (advice, self-hit merge), 8.2 (readahead
//! switched off).

use crate::decision::{Decision, Pattern, Why};
use crate::policy::around::Around;
use crate::policy::{Ask, AskKind, ReadState};
use crate::units::{PageCount, PageIndex};
use crate::view::View;
use crate::window::{Window, next_size};
use alloc::vec::Vec;

/// Forced reads go in pieces of 2 MiB, so that one call of a program cannot hold all of memory locked at once (spec
/// 1.6).
pub(super) const FORCED_PIECE: PageCount = PageCount(512);

/// At most so many pieces for one forced ask: 128 GiB. The kernel's bound is the machine's memory, which the core does
/// not know; without any, a file of 2^60 bytes and one call would fill `out`.
const FORCED_PIECES_MAX: u64 = 1 << 16;

/// Answers the asks that are the same in every era; `false` leaves the ask to the era's own rules.
pub(super) fn settled(
    around: &Around,
    view: &dyn View,
    state: &mut ReadState,
    ask: Ask,
    out: &mut Vec<Decision>,
) -> bool {
    match ask.kind {
        AskKind::Forced => forced(view, ask, "forced", out),
        AskKind::Mark | AskKind::Read if state.random_advice => {
            out.push(nothing(Pattern::Fadvise, "random-advice"))
        }
        AskKind::Mark | AskKind::Read if state.max.0 == 0 => {
            out.push(nothing(Pattern::Random, "readahead-off"))
        }
        AskKind::Mark if state.congested => out.push(nothing(Pattern::Subsequent, "congested")),
        AskKind::Fault if state.random_advice => out.push(single(ask, "random-advice")),
        AskKind::Miss if state.random_advice => forced(view, ask, "random-advice", out),
        AskKind::Miss | AskKind::Fault if state.max.0 == 0 => out.push(single(ask, "readahead-off")),
        AskKind::Fault => out.push(around.fault(view, state, ask)),
        AskKind::Miss | AskKind::Mark | AskKind::Read => return false,
    }
    true
}

/// The asked pages, up to the end of the file, in pieces of 2 MiB without a tail.
pub(super) fn forced(view: &dyn View, ask: Ask, why: &'static str, out: &mut Vec<Decision>) {
    let end = (ask.page + ask.count).min(view.end_of_file());
    let mut page = ask.page;
    for _ in 0..FORCED_PIECES_MAX {
        let size = end.since(page).min(FORCED_PIECE);
        if size.0 == 0 {
            break;
        }
        out.push(Decision {
            window: window(page, size, PageCount(0)),
            pattern: Pattern::Fadvise,
            why: Why(why),
        });
        page = page + size;
    }
}

/// Whether the ask continues the last read, on the same page or on the next (spec 3.3, 3.5 *unaligned*). Before the
/// first read the previous page is -1, so that page 0 continues it.
pub(super) fn sequential(state: &ReadState, page: PageIndex) -> bool {
    match state.prev {
        None => page.0 == 0,
        Some(prev) => page >= prev && page.since(prev).0 <= 1,
    }
}

/// Whether the ask is where the last window expects its reader: on its mark, or on the page past its end.
pub(super) fn expected(state: &ReadState, page: PageIndex) -> bool {
    let last = state.window;
    page.0 != 0 && (page == last.start + (last.size - last.async_size) || page == last.end())
}

/// The last window pushed forward: the next size, all of it unwaited-for.
pub(super) fn pushed_forward(state: &ReadState) -> Window {
    let size = next_size(state.window.size, state.max);
    window(state.window.end(), size, size)
}

/// A window opened at `page` for a request of `count` pages: what the request does not cover is the tail. A request
/// that covers all of it makes all of it tail, so that the next window follows at once and a big read becomes a
/// pipeline.
pub(super) fn opened(page: PageIndex, count: PageCount, size: PageCount) -> Window {
    window(page, size, if size > count { size - count } else { size })
}

/// Folds the next window in where the mark would lie on the very page that waits (spec 3.6).
pub(super) fn self_hit_merge(fresh: Window, page: PageIndex, max: PageCount) -> Window {
    if fresh.start != page || fresh.async_size != fresh.size {
        return fresh;
    }
    let tail = next_size(fresh.size, max);
    window(fresh.start, fresh.size + tail, tail)
}

/// Exactly what is asked, without a mark.
pub(super) fn exact(ask: Ask) -> Window {
    window(ask.page, ask.count, PageCount(0))
}

/// The page that waits and no other.
pub(super) fn single(ask: Ask, why: &'static str) -> Decision {
    let window = window(ask.page, PageCount(1), PageCount(0));
    Decision { window, pattern: Pattern::Random, why: Why(why) }
}

/// Fetch nothing, for a reason.
pub(super) fn nothing(pattern: Pattern, why: &'static str) -> Decision {
    Decision { window: Window::default(), pattern, why: Why(why) }
}

/// A window whose tail is cut to its size.
pub(super) fn window(start: PageIndex, size: PageCount, async_size: PageCount) -> Window {
    Window { start, size, async_size: async_size.min(size) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::PageTable;

    #[test]
    fn forced_reads_go_two_mebibytes_at_a_time() {
        let table = PageTable::new(PageIndex(1280));
        let mut out = Vec::new();
        let ask = Ask { page: PageIndex(0), count: PageCount(9999), kind: AskKind::Forced };
        forced(&table, ask, "forced", &mut out);
        let windows: Vec<Window> = out.iter().map(|d| d.window).collect();
        assert_eq!(windows, [Window::new(0, 512, 0), Window::new(512, 512, 0), Window::new(1024, 256, 0)]);
    }

    #[test]
    fn a_mark_on_the_waiting_page_is_folded_away() {
        let max = PageCount(32);
        let merged = self_hit_merge(Window::new(4, 4, 4), PageIndex(4), max);
        assert_eq!((merged, merged.mark()), (Window::new(4, 12, 8), Some(PageIndex(8))));
        assert_eq!(self_hit_merge(Window::new(4, 4, 3), PageIndex(4), max), Window::new(4, 4, 3));
        assert_eq!(self_hit_merge(Window::new(5, 4, 4), PageIndex(4), max), Window::new(5, 4, 4));
    }

    #[test]
    fn a_sequential_read_is_on_the_same_page_or_the_next() {
        let mut state = ReadState::new(PageCount(32));
        assert!(sequential(&state, PageIndex(0)) && !sequential(&state, PageIndex(1)));
        state.prev = Some(PageIndex(7));
        let at = |page| sequential(&state, PageIndex(page));
        assert_eq!([6, 7, 8, 9].map(at), [false, true, true, false]);
    }
}
