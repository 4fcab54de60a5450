//! The history of readahead, one file an era. All answer one question over one view: *a page is missing, or a marked
//! page was touched: which window next, and why?*
//!
//! ```text
//! none            before        exactly what is asked                         the row that others are compared with
//! legacy          2.6.22        two windows, and it must see every read       seed 000
//! ondemand-2.6.23 July 2007     one window, one mark, four cases              seed 000
//! ondemand        2.6.24        a mark without its window asks the cache
//! context-2008    the slides    as much as history proves safe                seed 004
//! context         2.6.31        history opens a window: any number of streams
//! thrash-safe-v0  Feb 2010      history sizes it; a lost page halves it       seed 001
//! thrash-safe     Mar 2010      the last posting
//! conservative    2013          more history than request                     seed 002
//! linux-6.18      today         the same over large folios, with its defects  spec 8
//! ```
//!
//! They share the moves of `shared`, mapped faults of `around`, the ceilings of `limits` and, for whoever asks for
//! them, the two `rules_2011`. The `prev` of a [`ReadState`] is moved by whoever plays the reads, after each request.
//! And whoever plays them must fetch the asked page itself where no answer does: an era of Linux that misses its own
//! mark, because the marked page was lost, pushes the window forward and leaves that one page to the reader.

mod around;
mod conservative;
mod context;
mod legacy;
mod limits;
mod linux_6_18;
mod none;
mod ondemand;
mod rules_2011;
mod shared;
mod thrash_safe;

pub use around::Around;
pub use conservative::{Conservative, SlowerRamp};
pub use context::{Context, Context2008};
pub use legacy::Legacy;
pub use limits::{
    DEFAULT_MAX, DEFAULT_MAX_2010, THRASH_MIN, around_limit, small_device_limit, small_device_limit_v0,
};
pub use linux_6_18::Linux618;
pub use none::NoReadahead;
pub use ondemand::{Ondemand, Ondemand2623};
pub use thrash_safe::{ThrashSafe, Whence};

use crate::decision::Decision;
use crate::units::{Extent, PageCount, PageIndex};
use crate::view::View;
use crate::window::Window;
use alloc::boxed::Box;
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
    /// `page` is about to be read, cached or not. Only a policy that [hears reads](Policy::hears_reads) is told.
    Read,
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
    /// The device has so many requests waiting that none is sent ahead (spec 1.6, 2; through 5.x). Set by whoever plays.
    pub congested: bool,
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
            congested: false,
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

    /// Whether the policy is to be told of every page that is read ([`AskKind::Read`]), as Linux was before 2.6.23. The
    /// later eras are called on demand: at a missing page, or at a marked one.
    fn hears_reads(&self) -> bool {
        false
    }

    /// A read of `pages` is over; its last byte lies before byte `end_byte` of the file. What an era remembers of it as
    /// the last page read drifted over the years (spec 1.1, 8.8).
    fn read_done(&mut self, state: &mut ReadState, pages: Extent, end_byte: u64) {
        let _ = end_byte;
        if !pages.is_empty() {
            state.prev = Some(pages.end().back(PageCount(1)));
        }
    }

    /// The last answer's folios may hold 2^order pages. 0 in the eras without large folios.
    fn order(&self) -> u32 {
        0
    }

    /// Pages that the last answer wants to live as long as the pages that it fetches: move those that are cached to
    /// the young end of their list (spec 5.5). Empty in the eras without such a rule.
    fn retain(&self) -> Extent {
        Extent::default()
    }
}

/// The names that [`by_name`] knows, oldest era first.
pub const NAMES: [&str; 11] = [
    "none",
    "legacy",
    "ondemand-2.6.23",
    "ondemand",
    "context-2008",
    "context",
    "thrash-safe-v0",
    "thrash-safe",
    "conservative",
    "linux-6.18",
    "linux-6.18-mended",
];

/// The era of that name, ready to be asked.
pub fn by_name(name: &str) -> Option<Box<dyn Policy>> {
    Some(match name {
        "none" => Box::new(NoReadahead),
        "legacy" => Box::new(Legacy::new()),
        "ondemand-2.6.23" => Box::new(Ondemand2623),
        "ondemand" => Box::new(Ondemand),
        "context-2008" => Box::new(Context2008),
        "context" => Box::new(Context),
        "thrash-safe-v0" => Box::new(ThrashSafe::v0()),
        "thrash-safe" => Box::new(ThrashSafe::v3()),
        "conservative" => Box::new(Conservative),
        "linux-6.18" => Box::new(Linux618::as_is()),
        "linux-6.18-mended" => Box::new(Linux618::mended()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_names_itself() {
        for name in NAMES {
            assert_eq!(by_name(name).map(|policy| policy.name()), Some(name));
        }
        assert!(by_name("wavy").is_none());
    }
}
