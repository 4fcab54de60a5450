//! Sleeping to the microsecond, for whoever imitates a device in real time: the slow store and [`SlowStorage`](crate::SlowStorage).
//!
//! ```text
//!   due in 30 ms    asleep for 29.9 ms (this machine oversleeps 80 us) ... awake ... the last 20 us are spun away
//! ```
//!
//! The numbers are owned by the test `sleep_learns_to_end_in_time`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a timed sleep may oversleep on an idle machine: woken this much early, the rest is spun.
const SPIN_NS: u64 = 20_000;

/// How much longer than asked this machine sleeps: 80 us after 30 ms on a virtual machine that went idle meanwhile, 5 us
/// after 100 us.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oversleep {
    mean_ns: u64,
}

impl Oversleep {
    /// Sleeps below this are over before the machine goes idle; they teach nothing, and need no allowance.
    const LONG_NS: u64 = 300_000;

    /// How long to sleep so as to wake after `ns`.
    pub fn before(&self, ns: u64) -> u64 {
        if ns < Self::LONG_NS { ns } else { ns - self.mean_ns.min(ns / 4) }
    }

    /// A sleep of `asked_ns` took `slept_ns`.
    pub fn learn(&mut self, asked_ns: u64, slept_ns: u64) {
        if asked_ns >= Self::LONG_NS {
            // One late wake must not make many early ones, which would be spun away.
            let over = slept_ns.saturating_sub(asked_ns).min(200_000);
            self.mean_ns = (self.mean_ns * 15 + over) / 16;
        }
    }
}

/// Lets go of a queue until what comes next is due, in `spare_ns`, or somebody rings `sooner`; until somebody rings where nothing is
/// to come (`None`). May return early: whoever calls looks at the queue and the clock again.
pub fn rest<'a, Q>(
    mutex: &'a Mutex<Q>,
    mut queue: MutexGuard<'a, Q>,
    sooner: &Condvar,
    spare_ns: Option<u64>,
    oversleep: impl Fn(&mut Q) -> &mut Oversleep,
) -> MutexGuard<'a, Q> {
    let begun = Instant::now();
    let slept_ns = || begun.elapsed().as_nanos() as u64;
    match spare_ns {
        None => sooner.wait(queue).unwrap_or_else(PoisonError::into_inner),
        Some(spare) if spare > SPIN_NS => {
            let sleep = oversleep(&mut queue).before(spare - SPIN_NS);
            let woken = sooner.wait_timeout(queue, Duration::from_nanos(sleep));
            let (mut queue, result) = woken.unwrap_or_else(PoisonError::into_inner);
            if result.timed_out() {
                oversleep(&mut queue).learn(sleep, slept_ns());
            }
            queue
        }
        Some(spare) => {
            drop(queue);
            while slept_ns() < spare {
                std::hint::spin_loop();
            }
            mutex.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// Who goes first where both want the processor: a late arrival would shift the whole model.
#[derive(Clone, Copy, Debug)]
pub enum Haste {
    /// Receives requests.
    Receive = 11,
    /// Answers them.
    Answer = 10,
}

/// Real-time priority for this thread and those it starts, where permitted; and timers without slack, where not.
pub fn hurry(haste: Haste) {
    let priority = libc::sched_param { sched_priority: haste as i32 };
    // SAFETY: both calls act on the calling thread only; `priority` outlives its call. A refusal changes nothing.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_RR, &priority);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_learns_to_end_in_time() {
        let mut oversleep = Oversleep::default();
        for _ in 0..100 {
            let asked = oversleep.before(30_000_000);
            oversleep.learn(asked, asked + 80_000);
        }
        let asked = oversleep.before(30_000_000);
        assert!((29_920_000..29_925_000).contains(&asked), "{asked}");
        assert_eq!(oversleep.before(100_000), 100_000, "short sleeps are left alone");
        oversleep.learn(1_000_000, 100_000_000);
        assert!(oversleep.before(30_000_000) > 29_900_000, "one starved wake changes little");
    }
}
