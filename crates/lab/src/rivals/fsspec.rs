//! Two caches of fsspec. `readahead`: the request and one block of 5 MiB, in one piece, one buffer; what lies elsewhere is
//! fetched anew. `adaptive`: one position; from the third read in a row a window of the streak less two times the mean read,
//! up to 128 MiB, in pieces of 5 MiB.

use super::{Rule, pages};
use bowwave_core::{Extent, PageCount, PageIndex, View};

const BLOCK: u64 = 1280;

#[derive(Default)]
pub(super) struct Readahead;

impl Rule for Readahead {
    fn name(&self) -> &'static str {
        "fsspec-readahead"
    }

    fn read(&mut self, _: &dyn View, request: Extent, missing: bool, out: &mut Vec<Extent>) {
        if missing {
            out.push(pages(request.end(), BLOCK));
        }
    }
}

#[derive(Default)]
pub(super) struct Adaptive {
    next: Option<PageIndex>,
    streak: u64,
    pages_read: u64,
    reads: u64,
    frontier: PageIndex,
}

const WINDOW_MAX: u64 = 32768;

impl Rule for Adaptive {
    fn name(&self) -> &'static str {
        "fsspec-adaptive"
    }

    fn read(&mut self, _: &dyn View, request: Extent, _: bool, out: &mut Vec<Extent>) {
        let goes_on = self.next.replace(request.end()) == Some(request.start);
        self.streak = if goes_on { self.streak + 1 } else { 1 };
        (self.reads, self.pages_read) = (self.reads + 1, self.pages_read + request.count.0);
        if !goes_on {
            self.frontier = request.end();
        }
        if self.streak >= 3 {
            let mean = self.pages_read / self.reads;
            let window = ((self.streak - 2) * mean).clamp(BLOCK, WINDOW_MAX);
            let until = request.end() + PageCount(window);
            self.frontier = self.frontier.max(request.end());
            if until.since(self.frontier).0 >= BLOCK.min(window) {
                out.push(pages(self.frontier, until.since(self.frontier).0));
                self.frontier = until;
            }
        }
    }
}
