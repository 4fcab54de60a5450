//! OpenZFS `dmu_zfetch`: a list of streams a file; the second read in a row starts one, its distance doubles to 4 MiB and
//! grows by an eighth from there to 64 MiB. In the original
//! the eighth needs a fetch that came late; here a page that is missing stands for that.

use super::{Rule, pages};
use bowwave_core::{Extent, PageCount, PageIndex, View};

#[derive(Clone, Copy)]
struct Stream {
    next: PageIndex,
    distance: u64,
    frontier: PageIndex,
}

pub(super) struct Zfetch {
    streams_max: usize,
    /// The one used last is last.
    streams: Vec<Stream>,
}

const DOUBLING_MAX: u64 = 1024;
const DISTANCE_MAX: u64 = 16384;
/// A read may begin so far behind where it is expected: one request of 128 KiB.
const SLACK: u64 = 32;

impl Zfetch {
    pub(super) fn of(streams_max: usize) -> Self {
        Self { streams_max, streams: Vec::new() }
    }
}

impl Rule for Zfetch {
    fn name(&self) -> &'static str {
        "zfetch"
    }

    fn read(&mut self, _: &dyn View, request: Extent, missing: bool, out: &mut Vec<Extent>) {
        let at = self.streams.iter().position(|s| {
            request.start >= s.next && request.start.since(s.next).0 <= SLACK.min(s.distance / 4)
        });
        let Some(at) = at else {
            if self.streams.len() == self.streams_max {
                self.streams.remove(0);
            }
            self.streams.push(Stream { next: request.end(), distance: 0, frontier: request.end() });
            return;
        };
        let mut s = self.streams.remove(at);
        s.distance = match s.distance {
            0 => request.count.0,
            d if d < DOUBLING_MAX => (d * 2).min(DOUBLING_MAX),
            d if missing => (d + d / 8).min(DISTANCE_MAX),
            d => d,
        };
        s.next = request.end();
        let until = request.end() + PageCount(s.distance);
        s.frontier = s.frontier.max(request.end());
        // A block's worth at least, as its blocks of 128 KiB make it.
        if until.since(s.frontier).0 >= SLACK.min(s.distance) {
            out.push(pages(s.frontier, until.since(s.frontier).0));
            s.frontier = until;
        }
        self.streams.push(s);
    }
}
