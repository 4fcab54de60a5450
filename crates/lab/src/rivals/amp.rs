//! AMP: a degree `p` and a trigger distance `g` a stream, kept with the stream's pages (Gill and Bathen, FAST'07).
//!
//! `p` grows by a request when the last page of a prefetched set is used, and falls when a prefetched page was lost before
//! its use. `g` should grow when a reader waits for a page that is under way; this door does not tell that, so `g` is half
//! of `p`: a stand-in that keeps the rule's pipelining.

use super::{Rule, pages};
use bowwave_core::{Extent, PageIndex, View};
use std::collections::BTreeMap;

#[derive(Clone, Copy)]
struct Stream {
    degree: u64,
    frontier: PageIndex,
}

#[derive(Default)]
pub(super) struct Amp {
    /// By the page expected next: unlimited streams.
    streams: BTreeMap<PageIndex, Stream>,
}

const DEGREE_MAX: u64 = 2048;

impl Rule for Amp {
    fn name(&self) -> &'static str {
        "amp"
    }

    fn read(&mut self, _: &dyn View, request: Extent, missing: bool, out: &mut Vec<Extent>) {
        let known = self.streams.remove(&request.start);
        let mut stream = known.unwrap_or(Stream { degree: 0, frontier: request.end() });
        if known.is_some() {
            if missing && request.start < stream.frontier {
                stream.degree = (stream.degree - stream.degree / 4).max(request.count.0);
                stream.frontier = request.end();
            } else if request.end() >= stream.frontier || stream.degree == 0 {
                stream.degree = (stream.degree + request.count.0 * 2).min(DEGREE_MAX);
            }
            stream.frontier = stream.frontier.max(request.end());
            if stream.frontier.since(request.end()).0 <= stream.degree / 2 {
                out.push(pages(stream.frontier, stream.degree));
                stream.frontier = stream.frontier + bowwave_core::PageCount(stream.degree);
                stream.degree = (stream.degree + request.count.0).min(DEGREE_MAX);
            }
        }
        self.streams.insert(request.end(), stream);
    }
}
