//! PostgreSQL 19 `read_stream`: how far ahead doubles only when the reader waited and decays by one with each hit, after a
//! hold-off of a whole window. Its caller knows the blocks; here the next ones in a row stand for them. That a reader waits
//! is taken from a page that is missing, as fetches that are late cannot be told apart through this door.

use super::{Rule, pages};
use bowwave_core::{Extent, PageCount, PageIndex, View};

#[derive(Default)]
pub(super) struct Pg19 {
    next: Option<PageIndex>,
    distance: u64,
    hold_off: u64,
    frontier: PageIndex,
}

/// `(effective_io_concurrency + 1) x io_combine_limit` of its defaults: 17 times 128 KiB.
const DISTANCE_MAX: u64 = 17 * 32;

impl Rule for Pg19 {
    fn name(&self) -> &'static str {
        "pg19"
    }

    fn read(&mut self, _: &dyn View, request: Extent, missing: bool, out: &mut Vec<Extent>) {
        if self.next.replace(request.end()) != Some(request.start) {
            (self.distance, self.frontier) = (request.count.0, request.end());
            return;
        }
        if missing {
            self.distance = (self.distance * 2).clamp(1, DISTANCE_MAX);
            self.hold_off = self.distance;
        } else if self.hold_off > 0 {
            self.hold_off -= request.count.0.min(self.hold_off);
        } else {
            self.distance = self.distance.saturating_sub(1).max(request.count.0);
        }
        self.frontier = self.frontier.max(request.end());
        let until = request.end() + PageCount(self.distance);
        let room = until.since(self.frontier).0;
        // It combines neighbours up to 128 KiB before it sends them.
        if room >= self.distance.min(32) {
            out.push(pages(self.frontier, room));
            self.frontier = until;
            self.hold_off = self.distance;
        }
    }
}
