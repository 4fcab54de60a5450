//! Arrivals where the kernel does not let us look: a thread of its own waits for them by reading one byte.
//!
//! `mincore` answers only owners and those who may write; to everybody else it calls every page present. Such files are
//! waited for: the thread reads the first byte of a fetch's last page on our own descriptor. It blocks until the page is
//! there, and the moment when it returns is the arrival. The agent itself never blocks.
//!
//! ```text
//!   agent   readahead [12,28) -> ask(#7, page 27) ........ ring: #7 arrived at 30.1 ms
//!   prober                          pread(1 byte) ...30 ms... '
//! ```
//!
//! One thread a device, so that a hung one holds up nobody else; fetches behind the oldest are seen when it has come. Those of one that
//! hangs are given up after a while by whoever asked; so that they are few, no more than so many wait.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use bowwave_core::{FetchId, PAGE_SIZE};

use crate::segment::{SharedSegment, monotonic_ns, ring};

/// What a prober found: the fetch, whether its page could be read, and when (CLOCK_MONOTONIC).
pub(crate) struct Found {
    pub(crate) fetch: FetchId,
    pub(crate) arrived: bool,
    pub(crate) at_ns: u64,
    /// The read returned before a device could have answered: its page was there already.
    pub(crate) at_once: bool,
}

struct Question {
    fetch: FetchId,
    descriptor: Arc<OwnedFd>,
    page: u64,
}

/// Reads that return faster than this waited for nothing.
const AT_ONCE_NS: u64 = 15_000;

/// Fetches that wait at one device; each keeps its descriptor open.
const QUESTIONS_MAX: usize = 1024;

/// The threads, one a device, made when they are first needed.
pub(crate) struct Probers {
    segment: Arc<SharedSegment>,
    lines: BTreeMap<u64, SyncSender<Question>>,
    found: (Sender<Found>, Receiver<Found>),
}

impl Probers {
    pub(crate) fn new(segment: Arc<SharedSegment>) -> Self {
        Self { segment, lines: BTreeMap::new(), found: channel() }
    }

    /// Waits for `page`, the last of `fetch`. Whether anybody could be found to do so, who has not too many to wait for.
    pub(crate) fn ask(&mut self, device: u64, fetch: FetchId, descriptor: Arc<OwnedFd>, page: u64) -> bool {
        if !self.lines.contains_key(&device) {
            let (question, questions) = sync_channel(QUESTIONS_MAX);
            let (found, segment) = (self.found.0.clone(), Arc::clone(&self.segment));
            let thread = std::thread::Builder::new()
                .name("bowwave-probe".into())
                .stack_size(64 * 1024)
                .spawn(move || probe(&questions, &found, &segment));
            if thread.is_err() {
                return false;
            }
            self.lines.insert(device, question);
        }
        self.lines[&device].try_send(Question { fetch, descriptor, page }).is_ok()
    }

    /// What was found since the last call.
    pub(crate) fn found(&mut self) -> Vec<Found> {
        self.found.1.try_iter().collect()
    }
}

fn probe(questions: &Receiver<Question>, found: &Sender<Found>, segment: &SharedSegment) {
    while let Ok(Question { fetch, descriptor, page }) = questions.recv() {
        let began = monotonic_ns();
        let mut byte = 0u8;
        // SAFETY: reads at most one byte into one that is ours; the descriptor is kept open by its Arc.
        let got = unsafe {
            libc::pread(descriptor.as_raw_fd(), (&raw mut byte).cast(), 1, (page * PAGE_SIZE) as libc::off_t)
        };
        let at_ns = monotonic_ns();
        let told = found.send(Found { fetch, arrived: got >= 0, at_ns, at_once: at_ns - began < AT_ONCE_NS });
        if told.is_err() {
            return;
        }
        ring(&segment.bell);
    }
}
