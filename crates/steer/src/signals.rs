//! Signals that reach us and were meant for the program.
//!
//! ```text
//!   kill -TERM BOWWAVE       one process to another      handed on
//!   Ctrl-C at the terminal   to the whole group          the program has it already: we only wait
//!   kill -TERM -GROUP        the same, by a process      handed on as well: that it went to a group is not told
//!
//!   before the program is there: kept, and handed on once it is          after it has ended: ours, and we hurry
//! ```
//!
//! Handed on is to the program and not to its group: what would have reached one process without us reaches one. Its children get
//! what it passes on, and what the group is sent they get without us.
//!
//! Handlers run in any thread, and the program may be waited for in between: it is signalled by a descriptor (pidfd_open(2)), which
//! means nobody else once it is gone, and by its number only where there is no such descriptor.
//!
//! Worked example: `timeout 5 bowwave run -- CMD` sends TERM to us; CMD dies of it, and so do we (test `signals_to_us_are_handed_on`
//! of crates/cli).

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

/// The program that signals are handed on to; 0 for none.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// A descriptor of that program (pidfd_open(2)); below 0 where the kernel has none. It is never closed: a handler may be about to
/// use it for as long as this process lives.
static CHILD_FD: AtomicI32 = AtomicI32::new(-1);
/// The latest signal that came when there was no program to hand it on to; 0 for none.
static CALLED: AtomicI32 = AtomicI32::new(0);

/// Whether somebody has signalled us since the program ended.
pub(crate) fn is_called() -> bool {
    CALLED.load(Ordering::SeqCst) != 0
}

/// From now on signals are handed on to the program `pid`, a child that was not waited for, and so is the one that called before.
pub(crate) fn hand_on_to(pid: i32) {
    CHILD_FD.store(descriptor(pid).unwrap_or(-1), Ordering::SeqCst);
    CHILD.store(pid, Ordering::SeqCst);
    hand_on_what_called(pid);
}

/// The program has ended: what comes from now on is ours.
pub(crate) fn hand_on_no_more() {
    CHILD.store(0, Ordering::SeqCst);
}

/// A descriptor by which `pid`, a child that was not waited for, can be signalled. Nothing where the kernel cannot (before 5.3), or
/// a sandbox does not let us.
fn descriptor(pid: i32) -> Option<RawFd> {
    // SAFETY: makes a descriptor that is ours, closed at exec.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = RawFd::try_from(fd).ok().filter(|&fd| fd >= 0)?;
    if send(pid, fd, 0) {
        return Some(fd);
    }
    // SAFETY: nobody else knows it.
    unsafe { libc::close(fd) };
    None
}

/// Sends by the descriptor `fd`, or where there is none by the number `pid`. Whether it could be sent. Callable in a handler.
///
/// A handler of another thread may come here with what it read before the program was waited for. By then the number may be another
/// program's, and only a descriptor still means ours, of which it says that it is gone.
fn send(pid: i32, fd: RawFd, signal: libc::c_int) -> bool {
    // SAFETY: both calls may be made in a handler, and the errno of whom it interrupts is put back.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let sent = match fd {
            0.. => {
                let by_us = std::ptr::null::<libc::siginfo_t>();
                libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, by_us, 0) == 0
            }
            _ => libc::kill(pid, signal) == 0,
        };
        *errno = before;
        sent
    }
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

extern "C" fn hand_on(signal: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let pid = CHILD.load(Ordering::SeqCst);
    if pid > 0 {
        send(pid, CHILD_FD.load(Ordering::SeqCst), signal);
    } else {
        CALLED.store(signal, Ordering::SeqCst);
        // The program may have been started since it was looked for, and what had called before that handed on.
        let pid = CHILD.load(Ordering::SeqCst);
        if pid > 0 {
            hand_on_what_called(pid);
        }
    }
}

/// Hands on the signal that came when there was no program yet: once, whoever comes to it first.
fn hand_on_what_called(pid: i32) {
    let called = CALLED.swap(0, Ordering::SeqCst);
    if called != 0 {
        send(pid, CHILD_FD.load(Ordering::SeqCst), called);
    }
}

/// What a terminal sends it sends to the program as well; what a process sends us was meant for the program, unless the
/// program itself or we have sent it.
extern "C" fn hand_on_if_sent(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes what it knows of the signal, and of one that a process has sent the process.
    let sender = unsafe { ((*info).si_code <= 0).then(|| (*info).si_pid()) };
    let ours = std::process::id() as i32;
    if sender.is_some_and(|sender| sender != ours && sender != CHILD.load(Ordering::SeqCst)) {
        hand_on(signal, info, context);
    }
}

extern "C" fn stand_by(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

/// Signals that would end us while the program lives on are handed on: those of the keyboard, and of our own use of the processor,
/// if a process sent them; a timer that we inherited (`alarm(2)` outlives exec) whoever set it. Those of a fault (SEGV, BUS, ILL,
/// FPE, SYS), PIPE and the real-time ones are left as they are. These are handlers, not SIG_IGN, so that the program starts with
/// the default; what we were started ignoring, it ignores as well.
pub(crate) fn catch_all() {
    // SAFETY: a plain system call. Where it is ignored nobody can be waited for.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let always = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGVTALRM];
    let also = [libc::SIGPROF, libc::SIGIO, libc::SIGPWR, libc::SIGSTKFLT];
    let sent = [libc::SIGINT, libc::SIGQUIT, libc::SIGXCPU, libc::SIGABRT, libc::SIGTRAP];
    always.iter().chain(&also).for_each(|&signal| catch(signal, hand_on));
    sent.iter().for_each(|&signal| catch(signal, hand_on_if_sent));
}

/// From now on a file of ours that may not grow (`ulimit -f`) is an error of its write, and not our end: the program runs all the same.
/// It starts with the signal as it was.
pub fn outlive_file_limits() {
    catch(libc::SIGXFSZ, stand_by);
}

fn catch(signal: libc::c_int, handler: Handler) {
    // SAFETY: the structures are ours and filled; the handlers only make async-signal-safe calls.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut before) != 0 || before.sa_sigaction == libc::SIG_IGN
        {
            return;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    #[test]
    fn a_number_that_is_anothers_by_now_is_not_hit() {
        let (mut ours, mut other) = (sleeper(), sleeper());
        let Some(fd) = descriptor(ours.id() as i32) else {
            println!("skipped: this kernel has no descriptors of processes");
            [ours, other].iter_mut().for_each(|child| _ = child.kill().and_then(|()| child.wait()));
            return;
        };
        assert!(send(ours.id() as i32, fd, libc::SIGTERM));
        assert_eq!(ours.wait().unwrap().signal(), Some(libc::SIGTERM));
        // As if the number had been given to the other.
        assert!(!send(other.id() as i32, fd, libc::SIGKILL), "it is gone");
        assert!(send(other.id() as i32, -1, libc::SIGTERM), "without a descriptor the number counts");
        assert_eq!(other.wait().unwrap().signal(), Some(libc::SIGTERM), "and not of the one meant for ours");
    }

    #[test]
    fn who_is_interrupted_finds_his_errno() {
        // SAFETY: this thread's own.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { *errno = libc::ENOTTY };
        assert!(!send(i32::MAX, -1, 0), "no such process");
        // SAFETY: as above.
        assert_eq!(unsafe { *errno }, libc::ENOTTY);
    }
}
