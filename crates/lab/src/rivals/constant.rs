//! One window of one size, sent again when half of it is read: no rule at all, but the best such number is what a patient
//! administrator would find.

use super::{Rule, pages};
use bowwave_core::{Extent, PageCount, PageIndex, View};

pub(super) struct Constant {
    window: PageCount,
    frontier: PageIndex,
}

impl Constant {
    pub(super) fn of(window: PageCount) -> Self {
        Self { window, frontier: PageIndex(0) }
    }
}

impl Rule for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn read(&mut self, _: &dyn View, request: Extent, missing: bool, out: &mut Vec<Extent>) {
        // What was lost, or a jump: from here.
        if missing {
            self.frontier = request.end();
        }
        self.frontier = self.frontier.max(request.end());
        if self.frontier.since(request.end()).0 <= self.window.0 / 2 {
            out.push(pages(self.frontier, self.window.0));
            self.frontier = self.frontier + self.window;
        }
    }
}
