//! Perf's samples of faults: when they are taken, of whom, and in which order they are heard of.
//!
//! ```text
//!   nothing mapped           off                                 nobody pays for it
//!   something is             on, of everybody for 25 ms (perf.rs), then of the program and what it has started
//!   the agent sleeps         the next fault that waits rings: the helper wakes it
//!   the agent looks          rings ──> backlog ──> a few at a time, each with whether its wait is known to have ended
//! ```
//!
//! A fault that waits is told of twice, when it begins and when its page has come. Both lie in one look mostly: then the touch is known to
//! have waited when it is heard of.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::helper::Helper;
use crate::perf::{Sample, Source, Watch, warm_up};
use crate::segment::SharedSegment;

/// Sources, by their place: faults that begin,
const BEGINS: usize = 0;
/// those that have waited and end,
const ENDS: usize = 1;
/// and the same with a bell, only while the agent sleeps.
const RINGS: usize = 2;

/// A sample, and whether the wait that begins with it is known to have ended since.
pub(super) struct Heard {
    pub(super) sample: Sample,
    pub(super) waited: bool,
}

impl Heard {
    /// A fault begins.
    pub(super) fn begins(&self) -> bool {
        self.sample.source == BEGINS
    }

    /// The page of one that waited has come.
    pub(super) fn ends(&self) -> bool {
        self.sample.source == ENDS
    }
}

/// What perf tells, if it may.
#[derive(Default)]
pub(super) struct Samples {
    watch: Option<Watch>,
    /// Set when it may be narrowed to the program, while it is of everybody.
    warm: Option<Arc<AtomicBool>>,
    /// Taken from perf's rings and not heard of yet, the next last: what those hold at most, since they are emptied when this is empty.
    backlog: Vec<Heard>,
    enabled: bool,
    bell: bool,
    helper: Option<Arc<Helper>>,
}

impl Samples {
    /// Opens what may be seen of the faults of what this thread will start: with privileges of everybody, at first.
    pub(super) fn open(privileged: bool) -> Option<Watch> {
        let sources = |of_kernel| {
            let major = |rings| Source::Major { of_kernel, rings };
            [Source::Fault { of_kernel }, major(false), major(true)]
        };
        let of_kernel =
            || Watch::of_everybody(&sources(true)).or_else(|_| Watch::of_this_thread(&sources(true))).ok();
        privileged.then(of_kernel).flatten().or_else(|| Watch::of_this_thread(&sources(false)).ok())
    }

    /// What was opened tells from now on.
    pub(super) fn of(watch: Option<Watch>, segment: &Arc<SharedSegment>) -> Self {
        let helper = watch.as_ref().and_then(|w| Helper::start(w.bells(), Arc::clone(segment)));
        let watch = watch.filter(|_| helper.is_some());
        let warm = watch.as_ref().filter(|watch| watch.is_of_everybody()).map(|_| warm_up());
        Self { watch, warm, helper, ..Self::default() }
    }

    /// Whether there are any.
    pub(super) fn are_told(&self) -> bool {
        self.watch.is_some()
    }

    /// Whether faults are sampled now.
    pub(super) fn are_on(&self) -> bool {
        self.enabled
    }

    /// Whether they are of everybody, and soon will not be.
    pub(super) fn are_to_be_narrowed(&self) -> bool {
        self.warm.is_some()
    }

    /// From everybody to the program and what it has started, as soon as that takes no wait.
    pub(super) fn narrow(&mut self, program: u32) {
        let warm = |warm: &Arc<AtomicBool>| warm.load(Ordering::Acquire);
        if program != 0 && self.warm.as_ref().is_some_and(warm) {
            self.warm = None;
            if let Some(watch) = &mut self.watch {
                // Where that cannot be, others are passed over one by one.
                let _ = watch.narrow_to(program);
            }
        }
    }

    /// Begins or ends sampling.
    pub(super) fn enable(&mut self, on: bool) {
        if let Some(watch) = &mut self.watch
            && self.enabled != on
        {
            watch.enable(BEGINS, on);
            watch.enable(ENDS, on);
            self.enabled = on;
        }
        if !on {
            self.hang_bell(false);
        }
    }

    /// The next fault that waits shall wake the agent, which is about to sleep.
    pub(super) fn wake_at_next(&mut self) {
        self.hang_bell(true);
        if let Some(helper) = &self.helper {
            helper.arm();
        }
    }

    fn hang_bell(&mut self, on: bool) {
        if let Some(watch) = &mut self.watch
            && self.bell != on
        {
            watch.enable(RINGS, on);
            self.bell = on;
        }
    }

    /// The next, if there is one.
    pub(super) fn next(&mut self) -> Option<Heard> {
        if self.backlog.is_empty() {
            self.drain();
        }
        self.backlog.pop()
    }

    /// Whether some were taken that were not heard of.
    pub(super) fn are_left(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Takes what is in perf's rings.
    fn drain(&mut self) {
        let Some(watch) = self.watch.as_mut().filter(|_| self.enabled) else { return };
        let samples = watch.drain();
        if samples.iter().any(|sample| sample.source == RINGS) {
            self.hang_bell(false);
        }
        let ended: HashSet<(u32, u64)> =
            samples.iter().filter(|s| s.source == ENDS).map(|s| (s.tid, s.address)).collect();
        let heard = |sample: Sample| Heard { waited: ended.contains(&(sample.tid, sample.address)), sample };
        self.backlog.extend(samples.into_iter().rev().map(heard));
    }

    /// Those that found their ring full.
    pub(super) fn lost(&self) -> u64 {
        self.watch.as_ref().map_or(0, |watch| watch.lost)
    }
}
