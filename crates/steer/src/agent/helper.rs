//! Who waits for perf's bells while the agent sleeps: it may be rung by a program or by the kernel, and can wait for one of them.
//!
//! ```text
//!   agent     arm, sleep on the futex ............................ woken, drains the rings
//!   helper    poll(bells) ......... a sample came: rings the futex   waits to be armed
//! ```

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::segment::{SharedSegment, futex_wait, ring};

/// A thread that waits for perf's bells on the agent's behalf, only while the agent sleeps.
pub(super) struct Helper {
    bells: Vec<RawFd>,
    armed: AtomicU32,
    segment: Arc<SharedSegment>,
}

impl Helper {
    pub(super) fn start(bells: Vec<RawFd>, segment: Arc<SharedSegment>) -> Option<Arc<Self>> {
        let this = Arc::new(Self { bells, armed: AtomicU32::new(0), segment });
        let helper = Arc::downgrade(&this);
        let wait = move || {
            while let Some(helper) = helper.upgrade() {
                helper.turn();
            }
        };
        let builder = std::thread::Builder::new().name("bowwave-faults".into()).stack_size(64 * 1024);
        builder.spawn(wait).ok().map(|_| this)
    }

    fn turn(&self) {
        if self.armed.load(Ordering::SeqCst) == 0 {
            futex_wait(&self.armed, 0, Duration::from_millis(200));
            return;
        }
        let mut polls: Vec<libc::pollfd> =
            self.bells.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: an array of ours with its length. The descriptors are closed after the helper has gone.
        let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 200) };
        if ready > 0 {
            self.armed.store(0, Ordering::SeqCst);
            ring(&self.segment.bell);
        }
        // Everybody has gone: perf says so on every call.
        if polls.iter().all(|poll| poll.revents & (libc::POLLHUP | libc::POLLERR) != 0) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn arm(&self) {
        if self.armed.swap(1, Ordering::SeqCst) == 0 {
            ring(&self.armed);
        }
    }
}
