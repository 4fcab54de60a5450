//! The ceiling: what everything beside the frames takes of the memory is taken from the frames.
//!
//! ```text
//! 64 MiB = 63.0 of frames + 1 of slack, for what grows until it is measured again, less what leaves, tables and lists take
//! ```

use super::Brain;
use crate::pool::bytes_of_threads;
use bowwave_core::{Explained, Input, Nanos, PAGE_SIZE, PageCount};

/// A share of the ceiling that stays free for what grows until it is measured again: and what a page may cost at
/// worst, alone in its leaf, its tables and lists.
const SLACK_SHARE: u64 = 64;
const SLACK_MIN: u64 = 128 << 10;
const PAGE_COST_MAX: u64 = 1024;
/// Files of which the tables are measured after every miss; where there are more, that would take too long.
const FILES_FEW: usize = 64;
/// Frames come and go by this share of all, for each time asks the system to take memory back.
const STEP_SHARE: u64 = 1024;
/// What a file costs beside its tables, about.
const FILE_BYTES: u64 = 1024;
/// What a flight costs.
const FLIGHT_BYTES: u64 = 512;

impl Brain {
    /// What everything beside the frames takes of the memory is taken from the frames: looked at whenever something was
    /// missing; with many files ten times a second, and before it can have grown by a quarter of the slack.
    pub(super) fn keep_house(&mut self, now: Nanos) {
        let many = self.files.len() > FILES_FEW;
        let soon = many && now.since(self.kept) < Nanos::from_ms(100) && self.kept > Nanos(0);
        if soon && self.grown * PAGE_COST_MAX < self.slack() / 4 {
            return;
        }
        (self.kept, self.grown) = (now, 0);
        self.keep_trace();
        let left = self.ceiling.saturating_sub(self.metadata() + self.slack()) / PAGE_SIZE;
        let step = (self.frames_max / STEP_SHARE).max(1);
        self.fit(now, (left / step * step).clamp(1, self.frames_max));
    }

    fn slack(&self) -> u64 {
        (self.ceiling / SLACK_SHARE).max(SLACK_MIN)
    }

    /// As many frames as there is memory left for.
    pub(super) fn fit(&mut self, now: Nanos, frames: u64) {
        let capacity = self.pages.capacity().0;
        if frames == capacity {
            return;
        }
        self.asking(now, |pages, hold| pages.resize_unless(0, PageCount(frames), hold));
        let retired = self.frames_max - frames;
        if self.free.retired() < retired {
            // What is pinned or in flight is retired when it comes back: frames in use are never over the capacity for long.
            let runs = self.free.retire(retired - self.free.retired());
            self.memory.release(runs);
        } else {
            self.free.revive(self.free.retired() - retired);
        }
        self.tell_evicted(now);
        self.wave.handle(now, Input::Memory { bytes: PageCount(frames).bytes() });
    }

    /// Bytes that everything beside the frames takes.
    pub(crate) fn metadata(&self) -> u64 {
        let files = (self.files.len() + self.orphans.len()) as u64 * FILE_BYTES;
        let flights = self.flights.len() as u64 * FLIGHT_BYTES;
        let trace = (self.trace.capacity() * size_of::<Explained>()) as u64;
        self.memory.bytes_of_leaves()
            + bytes_of_threads(self.ceiling)
            + self.wave.bytes_of_memory().0
            + self.pages.bytes_of_memory().0
            + self.free.bytes_of_memory()
            + (files + flights + trace + self.announced.bytes_of_memory())
    }
}
