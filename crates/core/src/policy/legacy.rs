//! Two windows, 2.6.11 to 2.6.22: the readahead that had to see every read (what seed 000 replaced).
//!
//! One window is being read, the next one is under way. When the reader crosses into the second, it becomes the first
//! and a new second is sent: there is always one window of work ahead.
//!
//! ```text
//! page      0 1 2 3 | 4 ............ 19 | 20 ..................... 51 | 52 ...       reader: 1 page at a time, max 128
//! read 0    [cur 4  ]
//! read 1    [cur 4  ] [ahead 16        ]
//! read 4              [cur              ] [ahead 32                  ]             crossed: a new ahead window
//! read 20                                 [cur                       ] [ahead 64
//! ```
//!
//! There is no mark. The routine is told of every read and answers with the page at which it wants to be told again;
//! so it counts what it cannot see (256 pages that were all cached, and it stops looking until a page is missing), and
//! it mistakes what it does see: a read that was cut short and is retried looks like a seek, and **any seek switches
//! everything off** -- one stream for each open file (spec 2; seed 004: "1/fd").
//!
//! Worked example, a thrash: window `[4, 20)`, pages 8 to 19 were lost before their reader came. The routine never looks
//! back, so each of them is read **alone**, 4 KiB and a seek at a time, and the only lesson is that the next window is two
//! pages shorter. That is the collapse of seed 000 ("tiny average I/O sizes"), T10 and T23.

use crate::decision::{Decision, Pattern, Why};
use crate::policy::around::Around;
use crate::policy::shared::{exact, settled, single, window};
use crate::policy::{Ask, AskKind, Policy, ReadState};
use crate::units::{Extent, PageCount, PageIndex};
use crate::view::View;
use crate::window::{Window, init_size, next_size};
use alloc::vec::Vec;

/// No window shrinks below this: 16 KiB.
const WINDOW_MIN: PageCount = PageCount(4);
/// So many pages in a row that were all cached, and it stops looking: 1 MiB. Most files are smaller, as seed 000
/// complains, and so it looked in vain at every read of theirs.
const CACHED_ENOUGH: u64 = 256;

/// The two-window readahead of one open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Legacy {
    /// Empty where there is none.
    current: Extent,
    ahead: Extent,
    prev: Option<PageIndex>,
    /// The page at which it wants to be told again; `None` at the start of a request.
    next_call: Option<PageIndex>,
    missed: bool,
    all_cached: bool,
    cached_pages: u64,
}

impl Legacy {
    /// A file that was just opened.
    pub const fn new() -> Self {
        let none = Extent::new(0, 0);
        Self {
            current: none,
            ahead: none,
            prev: None,
            next_call: None,
            missed: false,
            all_cached: false,
            cached_pages: 0,
        }
    }

    /// The routine that sees every read.
    fn told(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        if self.next_call.is_some_and(|next| ask.page != next) {
            return;
        }
        self.routine(view, state, ask, out);
        self.next_call = Some(self.prev.map_or(ask.page, |prev| prev + PageCount(1)));
    }

    fn routine(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        // The rest of a page that was read in part.
        let seen = u64::from(self.prev == Some(ask.page));
        let (page, count) = (ask.page + PageCount(seen), ask.count - PageCount(seen));
        if count.0 == 0 {
            return;
        }
        let sequential = self.prev.map_or(page.0 == 0, |prev| page == prev + PageCount(1));
        let request = count.min(state.max);
        self.prev = Some(page);
        if self.all_cached {
            return;
        }
        self.prev = Some(page + (request - PageCount(1)));
        if !sequential {
            self.switch_off();
            out.push(Decision { window: exact(Ask { page, count: request, ..ask }), ..RANDOM });
        } else if self.current.is_empty() {
            self.open(view, state, page, count, out);
        } else {
            self.push_on(view, state, out);
        }
    }

    /// A stream begins.
    fn open(
        &mut self,
        view: &dyn View,
        state: &ReadState,
        page: PageIndex,
        count: PageCount,
        out: &mut Vec<Decision>,
    ) {
        let size = init_size(count.min(state.max), state.max);
        self.current = Extent { start: page, count: size };
        self.submit(view, self.current, Pattern::Initial, "sequential", out);
        // A read of the ceiling or more wants two windows under way.
        if count >= state.max && !self.all_cached {
            self.make_ahead(view, state, "two-under-way", out);
        }
    }

    /// A stream goes on.
    fn push_on(&mut self, view: &dyn View, state: &ReadState, out: &mut Vec<Decision>) {
        if self.ahead.is_empty() {
            self.make_ahead(view, state, "window-ahead", out);
        }
        let Some(prev) = self.prev else { return };
        if !self.ahead.is_empty() && prev >= self.ahead.start {
            self.prev = Some(prev.min(self.ahead.end().back(PageCount(1))));
            self.current = self.ahead;
            self.make_ahead(view, state, "crossed", out);
        }
    }

    /// The next window, unless the device is congested and nobody waits for it yet: then it is tried again at the next read.
    fn make_ahead(&mut self, view: &dyn View, state: &ReadState, why: &'static str, out: &mut Vec<Decision>) {
        let size = self.next_size(state.max);
        let start = self.current.end();
        let waited_for = self.prev.is_some_and(|prev| prev >= start);
        if state.congested && !waited_for {
            self.ahead = Extent::default();
            return;
        }
        self.ahead = Extent { start, count: size };
        self.submit(view, self.ahead, Pattern::Subsequent, why, out);
    }

    /// A miss makes the next window two pages shorter; else it grows as in every later era.
    fn next_size(&mut self, max: PageCount) -> PageCount {
        if core::mem::take(&mut self.missed) {
            (self.current.count - PageCount(2)).max(WINDOW_MIN).min(max)
        } else {
            next_size(self.current.count, max)
        }
    }

    /// Sends a window, and counts those that bring nothing.
    fn submit(
        &mut self,
        view: &dyn View,
        extent: Extent,
        pattern: Pattern,
        why: &'static str,
        out: &mut Vec<Decision>,
    ) {
        let end = extent.end().min(view.end_of_file());
        if view.next_hole(extent.start, end.since(extent.start)) < end {
            self.cached_pages = 0;
        } else {
            self.cached_pages += extent.count.0;
        }
        let window = window(extent.start, extent.count, PageCount(0));
        out.push(Decision { window, pattern, why: Why(why) });
        if self.cached_pages >= CACHED_ENOUGH {
            self.switch_off();
            self.all_cached = true;
        }
    }

    fn switch_off(&mut self) {
        (self.current, self.ahead) = (Extent::default(), Extent::default());
        (self.missed, self.all_cached, self.cached_pages) = (false, false, 0);
    }

    /// A page that should have been there is not: it comes alone.
    fn miss(&mut self, ask: Ask, out: &mut Vec<Decision>) {
        (self.missed, self.all_cached, self.cached_pages) = (true, false, 0);
        out.push(single(ask, "one-by-one"));
    }
}

/// A read that continues nothing.
const RANDOM: Decision =
    Decision { window: Window::new(0, 0, 0), pattern: Pattern::Random, why: Why("seek-switches-off") };

impl Policy for Legacy {
    fn name(&self) -> &'static str {
        "legacy"
    }

    fn decide(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        if settled(&Around::CLASSIC, view, state, ask, out) {
            return;
        }
        match ask.kind {
            AskKind::Read => self.told(view, state, ask, out),
            AskKind::Miss => self.miss(ask, out),
            _ => {}
        }
    }

    fn hears_reads(&self) -> bool {
        true
    }

    /// The routine noted the whole request when it was told of it, read to its end or not: a retried read therefore
    /// looks like a seek.
    fn read_done(&mut self, state: &mut ReadState, _: Extent, _: u64) {
        (self.next_call, state.prev) = (None, self.prev);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::play::Play;
    use alloc::boxed::Box;
    use alloc::string::{String, ToString};
    use alloc::vec;

    fn play(max: u64) -> Play {
        Play::new(Box::new(Legacy::new()), PageIndex(1 << 20), PageCount(max))
    }

    fn windows(play: &mut Play, page: u64, count: u64) -> Vec<(u64, u64, String)> {
        let records = play.read(PageIndex(page), PageCount(count));
        records.iter().map(|r| (r.window.start.0, r.window.size.0, r.why.0.to_string())).collect()
    }

    /// The picture above, window by window.
    #[test]
    fn one_window_of_work_is_always_ahead() {
        let mut file = play(128);
        let mut all = Vec::new();
        for page in 0..60 {
            all.extend(windows(&mut file, page, 1).into_iter().map(|(start, size, _)| (page, start, size)));
        }
        assert_eq!(all, [(0, 0, 4), (1, 4, 16), (4, 20, 32), (20, 52, 64), (52, 116, 128)]);
    }

    /// The worked example above.
    #[test]
    fn lost_pages_come_one_by_one() {
        let mut file = play(128);
        for page in 0..8 {
            windows(&mut file, page, 1);
        }
        file.evict(Extent::new(8, 12));
        for page in 8..20 {
            assert_eq!(windows(&mut file, page, 1), [(page, 1, "one-by-one".into())]);
        }
        // The lesson: 30 pages behind a window of 32.
        assert_eq!(windows(&mut file, 20, 1), [(52, 30, "crossed".into())]);
    }

    #[test]
    fn any_seek_switches_it_off() {
        let mut file = play(32);
        for page in 0..10 {
            windows(&mut file, page, 1);
        }
        assert_eq!(windows(&mut file, 500, 1), [(500, 1, "seek-switches-off".into())]);
        // Back at the stream, which now looks like one more seek; then it starts small again.
        assert_eq!(windows(&mut file, 60, 1)[0].2, "seek-switches-off");
        assert_eq!(windows(&mut file, 61, 1), [(61, 4, "sequential".into())]);
    }

    /// 64 pages are asked for and 10 come; the rest is asked for again. The routine has already noted all 64.
    #[test]
    fn a_retried_read_looks_like_a_seek() {
        let (mut policy, mut state) = (Legacy::new(), ReadState::new(PageCount(32)));
        let table = crate::table::PageTable::new(PageIndex(1 << 20));
        let mut whys = vec![];
        for page in [0, 10, 20] {
            let ask = Ask { page: PageIndex(page), count: PageCount(64 - page), kind: AskKind::Read };
            let mut out = Vec::new();
            policy.decide(&table, &mut state, ask, &mut out);
            policy.read_done(&mut state, Extent::new(page, 10), 0);
            whys.push(out[0].why.0);
        }
        assert_eq!(whys, ["sequential", "seek-switches-off", "seek-switches-off"]);
    }

    #[test]
    fn a_mebibyte_that_is_cached_ends_the_looking_until_a_page_is_missing() {
        let mut file = play(32);
        file.cached(Extent::new(0, 2000));
        let looked: Vec<u64> = (0..400).filter(|&page| !windows(&mut file, page, 1).is_empty()).collect();
        let last = looked.last();
        assert!(last.is_some_and(|&page| page < 256), "{last:?}");
        file.evict(Extent::new(500, 1));
        assert_eq!(windows(&mut file, 500, 1), [(500, 1, "one-by-one".into())]);
        assert_eq!(windows(&mut file, 501, 1), [(501, 4, "sequential".into())]);
    }

    #[test]
    fn a_large_read_has_two_windows_under_way() {
        let mut file = play(32);
        let all = windows(&mut file, 0, 100);
        assert_eq!(all[..2], [(0, 32, "sequential".into()), (32, 32, "two-under-way".into())]);
        assert!(all[2..].iter().all(|w| w.1 == 32 && w.2 == "crossed"), "{all:?}");
    }
}
