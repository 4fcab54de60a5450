//! What we were started with, so that the program starts with the same.
//!
//! ```text
//!   parent --exec--> bowwave --fork, exec--> program
//!            |           |                      |
//!            |                                  '- descriptors 0 to 2 closed if they were, signals ignored if they were
//!            '- looked at here before `main`: Rust opens what is closed of 0 to 2, and ignores SIGPIPE
//! ```
//!
//! Worked example: `bowwave run -- echo x >&-` fails as `echo x >&-` does (test
//! `the_program_starts_with_what_we_were_started_with`).

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Signals are numbered from 1 to 64.
const SIGNALS_MAX: i32 = 64;
/// The kernel's set of signals, in bytes.
const SET_BYTES: usize = 8;

/// A bit each of descriptors 0 to 2 that were closed.
static CLOSED: AtomicU32 = AtomicU32::new(0);
/// A bit each of signals that were ignored, signal 1 the lowest.
static IGNORED: AtomicU64 = AtomicU64::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Before `main`, and before Rust's own beginning.
extern "C" fn look() {
    for fd in 0..3 {
        // SAFETY: reads a number.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
    for signal in 1..=SIGNALS_MAX {
        let mut found = Disposition::new(libc::SIG_DFL);
        // SAFETY: writes what the kernel calls a sigaction, for which there is room.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                ptr::null::<Disposition>(),
                &raw mut found,
                SET_BYTES,
            )
        };
        if asked == 0 && found.handler() == libc::SIG_IGN {
            IGNORED.fetch_or(1 << (signal - 1), Ordering::Relaxed);
        }
    }
}

/// A signal's disposition as the kernel has it: libc's would not show or set signals 32 and 33, which it keeps for itself.
/// Its first word is the handler; flags, and all else, are 0.
#[repr(C)]
struct Disposition([usize; 8]);

impl Disposition {
    const fn new(handler: usize) -> Self {
        Self([handler, 0, 0, 0, 0, 0, 0, 0])
    }

    const fn handler(&self) -> usize {
        self.0[0]
    }
}

/// This thread's blocked signals.
pub(crate) fn blocked() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: writes one set that is ours; of zeros it is a set as well.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), set.as_mut_ptr());
        set.assume_init()
    }
}

/// Blocks every signal in this thread while `during` runs. What comes meanwhile comes afterwards.
pub(crate) fn undisturbed<T>(during: impl FnOnce() -> T) -> T {
    let before = blocked();
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sets that are ours.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
    }
    let made = during();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    made
}

/// Gives the program what we were given. Between fork and exec: system calls and nothing else.
pub(crate) fn hand_on(blocked: &libc::sigset_t) {
    let (closed, ignored) = (CLOSED.load(Ordering::Relaxed), IGNORED.load(Ordering::Relaxed));
    // SAFETY: numbers, and structures of ours; SIGKILL and SIGSTOP are refused, as they should be.
    unsafe {
        for fd in (0..3).filter(|fd| closed & 1 << fd != 0) {
            libc::close(fd);
        }
        for signal in 1..=SIGNALS_MAX {
            let was_ignored = ignored & 1 << (signal - 1) != 0;
            let as_it_was = Disposition::new(if was_ignored { libc::SIG_IGN } else { libc::SIG_DFL });
            let none = ptr::null_mut::<Disposition>();
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const as_it_was, none, SET_BYTES);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, blocked, ptr::null_mut());
    }
}
