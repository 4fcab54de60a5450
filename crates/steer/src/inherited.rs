//! What we were started with, so that the program starts with the same; and what of it we must not keep.
//!
//! ```text
//!   parent --exec--> bowwave --fork, exec--> program
//!            |           |                      |
//!            |           |                      '- descriptors 0 to 2 closed if they were, signals ignored if they were
//!            |           '- once it runs: stdin, stdout and what else we were handed are its alone
//!            '- looked at here before `main`: Rust opens what is closed of 0 to 2, and ignores SIGPIPE
//! ```
//!
//! Who reads a pipe waits for its end, which comes when the *last* descriptor is closed: one of ours that stays open where
//! the program has closed its own changes what its neighbours see, and so does a lock that is not let go. Stderr we keep as
//! long as there may be something to say.
//!
//! Worked example: `sh -c 'echo data; exec >&-; read answer'` whose reader answers once the output has ended (test
//! `what_the_program_closes_is_closed`).

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Signals are numbered from 1 to 64.
const SIGNALS_MAX: i32 = 64;
/// The kernel's set of signals, in bytes.
const SET_BYTES: usize = 8;
/// Descriptors that are looked at where there is no list of them.
const UNLISTED_MAX: RawFd = 1024;

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

/// Gives up the descriptors that we were handed: 0 and 1, 2 unless there may be something to say, and all that the program
/// has inherited as well. Ours are closed at exec, so what is not is not ours. One by which this process holds a lock of
/// fcntl(2) stays: whoever closes any descriptor of that file lets go of the lock.
pub fn give_up_descriptors(keep_stderr: bool) {
    let Ok(nothing) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") else { return };
    for fd in listed().unwrap_or_else(|| (0..UNLISTED_MAX).collect()) {
        // SAFETY: reads a number.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if flags < 0 || flags & libc::FD_CLOEXEC != 0 || (fd == 2 && keep_stderr) || holds_a_lock(fd) {
            continue;
        }
        // SAFETY: the descriptor is nobody's of ours: stdin and stdout are not used any more, and name something to the end.
        unsafe {
            if fd > 2 {
                libc::close(fd);
            } else {
                libc::dup2(nothing.as_raw_fd(), fd);
            }
        }
    }
}

fn listed() -> Option<Vec<RawFd>> {
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    Some(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn holds_a_lock(fd: RawFd) -> bool {
    let about: io::Result<String> = fs::read_to_string(format!("/proc/self/fdinfo/{fd}"));
    about.is_ok_and(|text| text.lines().any(|line| line.starts_with("lock:") && line.contains(" POSIX ")))
}
