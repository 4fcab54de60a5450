//! What must be put back however bench ends: window sizes, cgroups. Run at the end, on a signal, and on a panic.
//!
//! A signal only sets a flag; the main loop sees it within 50 ms, stops what it started and returns. A panic aborts the
//! process in a release build, so the hook puts things back before.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

static STOP: AtomicBool = AtomicBool::new(false);
static PENDING: Mutex<Vec<(u64, Undo)>> = Mutex::new(Vec::new());

/// One thing to put back.
#[derive(Debug)]
pub(crate) enum Undo {
    /// Write this text to this file.
    Write(PathBuf, String),
    /// Remove this (cgroup) directory.
    RemoveDir(PathBuf),
}

impl Undo {
    fn perform(&self) {
        // Putting back is best effort: the mount or the cgroup may be gone already.
        match self {
            Self::Write(path, text) => drop(std::fs::write(path, text)),
            Self::RemoveDir(path) => {
                for _ in 0..100 {
                    match std::fs::remove_dir(path) {
                        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                            std::thread::sleep(std::time::Duration::from_millis(20));
                        }
                        _ => break,
                    }
                }
            }
        }
    }
}

/// Puts something back when dropped, or earlier if the process ends in a panic.
#[derive(Debug)]
pub(crate) struct Guard(u64);

impl Guard {
    pub(crate) fn new(undo: Undo) -> Self {
        let mut pending = pending();
        let number = pending.last().map_or(0, |(last, _)| last + 1);
        pending.push((number, undo));
        Self(number)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let undo = {
            let mut pending = pending();
            let at = pending.iter().position(|(number, _)| *number == self.0);
            at.map(|at| pending.remove(at).1)
        };
        if let Some(undo) = undo {
            undo.perform();
        }
    }
}

fn pending() -> MutexGuard<'static, Vec<(u64, Undo)>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, SeqCst);
}

/// Whether a signal asked to stop.
pub(crate) fn stopped() -> bool {
    STOP.load(SeqCst)
}

/// Makes INT, TERM and HUP stop the bench in order, and a panic put things back.
pub(crate) fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, on_signal as *const () as libc::sighandler_t) };
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Ok(mut pending) = PENDING.try_lock() {
            pending.drain(..).rev().for_each(|(_, undo)| undo.perform());
        }
        before(info);
    }));
}
