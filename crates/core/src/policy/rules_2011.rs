//! Two small rules of 2011 that were never merged: read backwards, and read to the end.
//!
//! **Backwards.** A reader that goes down (`tail`, `tac`) looks like random reads, except that each ends where the
//! last window begins. Then the next window lies before it:
//!
//! ```text
//! 8-page reads downwards     [9840 ................ 9967][9968 ...... 9999][10000 .. 10007]
//!                             128                        32               8 read first, at random
//! ```
//!
//! It needs that random read to have been remembered, and sits after the sequential tests and before context. There is
//! no mark: the windows grow until every wait is for a full one.
//!
//! **Snap to the end.** A window that stops just short of the end of the file leaves a small I/O for later and a mark
//! that nobody touches. So a window reaches for the end if half its length more (at most a quarter of the ceiling)
//! gets there:
//!
//! ```text
//! 20 pages, window [4, 12), 8 pages     8 + 8/2 = 12, and 4 + 12 = 16 < 20     stays
//! 15 pages, window [4, 12), 8 pages              16 > 15                       [4, 15), no mark
//! ```
//!
//! Spec 5.13; both ladders of it are tests.

use crate::decision::{Decision, Pattern, Why};
use crate::policy::shared::window;
use crate::policy::{Ask, ReadState};
use crate::units::{PageCount, PageIndex};
use crate::view::View;
use crate::window::next_size;

/// The window before the last one, if the ask ends where that begins.
pub(super) fn backwards(state: &ReadState, ask: Ask) -> Option<Decision> {
    let last = state.window.start;
    if ask.page >= last || ask.page + ask.count < last {
        return None;
    }
    let size = next_size(state.window.size, state.max);
    let (start, size) = if size.0 > last.0 {
        (PageIndex(0), PageCount(last.0).min(state.max))
    } else {
        (last.back(size), size)
    };
    let window = window(start, size, PageCount(0));
    Some(Decision { window, pattern: Pattern::Backwards, why: Why("backwards") })
}

/// Stretches a window that ends just short of the end of the file, and takes its mark away.
pub(super) fn snap_to_end(mut decision: Decision, view: &dyn View, max: PageCount) -> Decision {
    use Pattern::{Around, Context, Initial, Subsequent};
    let (fresh, end) = (decision.window, view.end_of_file());
    let stretch = fresh.size + PageCount((fresh.size.0 / 2).min(max.0 / 4));
    let kind = matches!(decision.pattern, Initial | Subsequent | Context | Around);
    if kind && fresh.size.0 > 0 && fresh.start < end && fresh.start + stretch > end {
        decision.window = window(fresh.start, end.since(fresh.start), PageCount(0));
    }
    decision
}
