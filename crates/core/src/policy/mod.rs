//! The history of readahead, one file an era. All answer one question over one view: *a page is missing, or a marked
//! page was touched: which window next, and why?*

use crate::decision::Decision;
use crate::units::{Nanos, PageCount, PageIndex};
use crate::view::View;
use crate::window::Window;
use alloc::vec::Vec;

/// Why the policy is asked (spec 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskKind {
    /// `page` is absent and somebody waits for it: a synchronous call.
    Miss,
    /// `page` is present and carries the mark: an asynchronous call.
    Mark,
    /// `page` of a mapping is absent and a fault waits for it.
    Fault,
    /// The program itself asked for these pages (WILLNEED, readahead(2)).
    Forced,
}

/// The question: which page, how much of the request is left from it, and what called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The page that is missing or marked.
    pub page: PageIndex,
    /// Pages from `page` to the end of the caller's request, at least 1.
    pub count: PageCount,
    /// What called.
    pub kind: AskKind,
    /// When. Policies before `wave` do not look at it.
    pub now: Nanos,
}

/// What an open file remembers between asks: `file_ra_state` (spec 1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadState {
    /// The most recent window.
    pub window: Window,
    /// The last page read; `None` before the first read. (Kernel: `prev_index`, with -1 for none.)
    pub prev: Option<PageIndex>,
    /// Ceiling of a window in pages: the device's, doubled by sequential advice.
    pub max: PageCount,
    /// Misses minus hits of mapped reads, saturating (spec 5.4).
    pub mmap_miss: u16,
    /// A readahead page was lost before its use (spec 5.6).
    pub thrashed: bool,
    /// A seek moved the position to where it was then read (spec 5.10).
    pub sought: bool,
    /// The program said that it reads at random: fetch exactly what is asked.
    pub random_advice: bool,
}

impl ReadState {
    /// A fresh open file under a ceiling of `max` pages.
    pub const fn new(max: PageCount) -> Self {
        Self {
            window: Window::new(0, 0, 0),
            prev: None,
            max,
            mmap_miss: 0,
            thrashed: false,
            sought: false,
            random_advice: false,
        }
    }
}

/// One era's answer.
pub trait Policy {
    /// The era's name, as `--policy` takes it.
    fn name(&self) -> &'static str;

    /// Answers one ask: pushes the windows to fetch, in the order to submit them, and moves `state` on.
    ///
    /// Does not know whether anybody obeys: pages of a pushed window count as present only once `view` says so.
    fn decide(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>);
}
