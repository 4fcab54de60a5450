//! A flight: pages on their way from a storage, and who waits for them.
//!
//! ```text
//! queued ---claimed by an I/O thread---> under way ---> landed: pages present, or an error
//!    \--- cancelled: nobody wants it                        every waiter is told the same
//! ```
//!
//! A prefetch that is wanted becomes demand: whoever joins a flight that nobody waited for moves it to the front, and from then
//! on it is tried again where an error may pass. Errors reach those who wait, and nobody else.

use crate::engine::FileShared;
use crate::memory::Run;
use bowwave_core::{Extent, FetchId};
use bowwave_io::{Error, Until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Pages under way.
pub(crate) struct Flight {
    pub(crate) file: Arc<FileShared>,
    pub(crate) pages: Extent,
    /// The brain's name for it; none where the reader brings the pages himself.
    pub(crate) fetch: Option<FetchId>,
    demand: AtomicBool,
    claimed: AtomicBool,
    state: Mutex<State>,
    landed: Condvar,
}

struct State {
    runs: Vec<Run>,
    until: Option<Arc<Until>>,
    cancelled: bool,
    outcome: Option<Result<(), Error>>,
    /// Threads that wait.
    waiting: u32,
    wakers: Vec<(u64, Waker)>,
    next_waker: u64,
}

/// A mutex whose holder panicked is used all the same: what it guards is changed in steps that leave it whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flight {
    pub(crate) fn new(
        file: Arc<FileShared>,
        pages: Extent,
        fetch: Option<FetchId>,
        demand: bool,
        runs: Vec<Run>,
    ) -> Self {
        assert_eq!(runs.iter().map(Run::count).sum::<u64>(), pages.count.0, "a frame for each page");
        let state = State {
            runs,
            until: None,
            cancelled: false,
            outcome: None,
            waiting: 0,
            wakers: Vec::new(),
            next_waker: 0,
        };
        Self {
            file,
            pages,
            fetch,
            demand: AtomicBool::new(demand),
            claimed: AtomicBool::new(false),
            state: Mutex::new(state),
            landed: Condvar::new(),
        }
    }

    /// Whether somebody waits for it.
    pub(crate) fn is_demand(&self) -> bool {
        self.demand.load(Ordering::Relaxed)
    }

    /// Somebody waits for it now; whether that is news.
    pub(crate) fn want(&self) -> bool {
        !self.demand.swap(true, Ordering::Relaxed)
    }

    /// Makes the caller the only one to perform it.
    pub(crate) fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Acquire)
    }

    /// Nobody wants it any more.
    pub(crate) fn cancel(&self) {
        let mut state = lock(&self.state);
        state.cancelled = true;
        if let Some(until) = &state.until {
            until.cancel();
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        lock(&self.state).cancelled
    }

    /// An attempt begins, under this deadline.
    pub(crate) fn attempt(&self, until: &Arc<Until>) {
        let mut state = lock(&self.state);
        if state.cancelled {
            until.cancel();
        }
        state.until = Some(Arc::clone(until));
    }

    /// The frames to be filled.
    pub(crate) fn take_runs(&self) -> Vec<Run> {
        std::mem::take(&mut lock(&self.state).runs)
    }

    /// It is over; everybody who waits is woken.
    pub(crate) fn land(&self, outcome: Result<(), Error>) {
        let (waiting, wakers) = {
            let mut state = lock(&self.state);
            assert!(state.outcome.is_none(), "a flight lands once");
            state.outcome = Some(outcome);
            (state.waiting, std::mem::take(&mut state.wakers))
        };
        if waiting > 0 {
            // A call of the system, even where nobody would hear it: and mostly nobody waits.
            self.landed.notify_all();
        }
        for (_, waker) in wakers {
            waker.wake();
        }
    }

    /// Waits until it has landed; `None` if that takes longer than `wait`.
    pub(crate) fn wait(&self, wait: Duration) -> Option<Result<(), Error>> {
        let mut state = lock(&self.state);
        state.waiting += 1;
        let (mut state, _) = self
            .landed
            .wait_timeout_while(state, wait, |state| state.outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state.outcome.clone()
    }

    /// Whether it has landed; otherwise wakes the task when it does. `ticket` is the task's place among those that wait.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "for the async twins"))]
    pub(crate) fn poll(&self, cx: &Context<'_>, ticket: &mut Option<u64>) -> Poll<Result<(), Error>> {
        let mut state = lock(&self.state);
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        let place = *ticket.get_or_insert(state.next_waker);
        state.next_waker = state.next_waker.max(place + 1);
        match state.wakers.iter_mut().find(|(number, _)| *number == place) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => state.wakers.push((place, cx.waker().clone())),
        }
        Poll::Pending
    }

    /// A task waits no more.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "for the async twins"))]
    pub(crate) fn leave(&self, ticket: u64) {
        lock(&self.state).wakers.retain(|(number, _)| *number != ticket);
    }
}
