//! Lustre `llite/rw.c`: one state a descriptor, eight pages of slack, a window that grows by one RPC (1 MiB) a time, and
//! strides once distance and length were equal twice. Any other jump begins anew. Either way it goes on where it has come, and
//! asks for nothing twice.

use super::{Rule, pages};
use bowwave_core::{Extent, PageCount, PageIndex, View};

#[derive(Default)]
pub(super) struct Lustre {
    last: Option<Extent>,
    window: u64,
    frontier: PageIndex,
    gap: i64,
    equal_gaps: u32,
    strides: u64,
    /// The first stride that was not asked for.
    next_stride: PageIndex,
}

const SLACK: u64 = 8;
const RPC: u64 = 256;
const WINDOW_MAX: u64 = 16384;

impl Rule for Lustre {
    fn name(&self) -> &'static str {
        "lustre"
    }

    fn read(&mut self, _: &dyn View, request: Extent, _: bool, out: &mut Vec<Extent>) {
        let Some(last) = self.last.replace(request) else { return };
        let gap = request.start.0 as i64 - last.start.0 as i64;
        let near = request.start.0.abs_diff(last.end().0) <= SLACK;
        if near {
            (self.equal_gaps, self.strides, self.next_stride) = (0, 0, request.start);
            self.window = (self.window + RPC).min(WINDOW_MAX);
            let until = request.end() + PageCount(self.window);
            self.frontier = self.frontier.max(request.end());
            if until.since(self.frontier).0 >= RPC {
                out.push(pages(self.frontier, until.since(self.frontier).0));
                self.frontier = until;
            }
        } else if gap > 0 && gap == self.gap && request.count == last.count {
            self.equal_gaps += 1;
            if self.equal_gaps >= 1 {
                // One RPC's worth of strides more each time.
                self.strides = (self.strides + (RPC / request.count.0.max(1)).max(1)).min(1024);
                let (gap, until) = (gap as u64, request.start.0 + self.strides * gap as u64);
                let mut next = self.next_stride.0.max(request.start.0 + gap);
                while next <= until {
                    out.push(pages(PageIndex(next), request.count.0));
                    next += gap;
                }
                self.next_stride = PageIndex(next);
            }
        } else {
            (self.window, self.frontier, self.equal_gaps, self.strides) = (0, request.end(), 0, 0);
            self.next_stride = request.start;
        }
        self.gap = gap;
    }
}
