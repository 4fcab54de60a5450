//! The rule that today's object-store mounts share: one read position a handle, a first window of 1 MiB and a request, doubled
//! with each window used up to 64 MiB; a jump beyond a mebibyte behind or a window ahead begins anew.

use super::{Rule, pages};
use bowwave_core::{Extent, PageCount, PageIndex, View};

#[derive(Default)]
pub(super) struct Mount {
    next: Option<PageIndex>,
    window: u64,
    frontier: PageIndex,
}

const FIRST: u64 = 288;
const WINDOW_MAX: u64 = 16384;
const BACK: u64 = 256;

impl Rule for Mount {
    fn name(&self) -> &'static str {
        "mount"
    }

    fn read(&mut self, _: &dyn View, request: Extent, _: bool, out: &mut Vec<Extent>) {
        let goes_on = self
            .next
            .is_some_and(|next| request.start.0 + BACK >= next.0 && request.start <= self.frontier.max(next));
        self.next = Some(request.end());
        if !goes_on {
            (self.window, self.frontier) = (FIRST, request.end());
            // The first read of a handle fetches nothing ahead; the second finds a position.
            return;
        }
        self.frontier = self.frontier.max(request.end());
        if self.frontier.since(request.end()).0 <= self.window / 2 {
            out.push(pages(self.frontier, self.window));
            self.frontier = self.frontier + PageCount(self.window);
            self.window = (self.window * 2).min(WINDOW_MAX);
        }
    }
}
