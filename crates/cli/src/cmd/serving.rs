//! A mount in the foreground: ready, served, and taken away again, however it ends. Shared by `slow` and `mount`.
//!
//! ```text
//!   Ctrl-C, TERM, HUP -> unmount - busy -> again for 3 s - still busy, or Ctrl-C -> detach -> exit
//! ```

use super::failure::{
    CANNOT_CREATE, Failure, IO_ERROR, NO_INPUT, NO_PERMISSION, OS_ERROR, TEMPORARY, UNAVAILABLE,
};
use bowwave_fuse::{CachedMount, MountError, SlowStore};
use bowwave_io::Error;
use std::fs;
use std::io::{self, PipeReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The kernel's window in KiB at most: FUSE counts its bytes with 32 bits.
pub(crate) const READ_AHEAD_KB_MAX: u64 = (1 << 22) - 1;

/// How long a busy mount is asked again before it is detached.
const BUSY: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(50);

/// A mount that can be waited for and taken away.
pub(crate) trait Mount {
    fn dir(&self) -> &Path;
    fn ended(&self) -> &PipeReader;
    fn unmount(&mut self) -> io::Result<()>;
    fn detach(&mut self) -> io::Result<()>;
}

macro_rules! mount {
    ($($kind:ty)*) => {$(
        impl Mount for $kind {
            fn dir(&self) -> &Path {
                self.dir()
            }
            fn ended(&self) -> &PipeReader {
                self.ended()
            }
            fn unmount(&mut self) -> io::Result<()> {
                self.unmount()
            }
            fn detach(&mut self) -> io::Result<()> {
                self.detach()
            }
        }
    )*};
}
mount!(SlowStore CachedMount);

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        let code = match &error {
            MountError::Source(..) | MountError::NoLengths(_) => NO_INPUT,
            MountError::NoFuse(_) | MountError::Metrics(..) => UNAVAILABLE,
            MountError::Look(error) => code_of(error),
            MountError::NotPermitted(_) => NO_PERMISSION,
            MountError::ReadAhead(_, cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                NO_PERMISSION
            }
            MountError::ReadAhead(..)
            | MountError::MountPoint(..)
            | MountError::Mount(..)
            | MountError::Log(..) => CANNOT_CREATE,
            MountError::Thread(_) | MountError::Memory(..) => OS_ERROR,
        };
        Self::new(code, error.to_string())
    }
}

/// With what a source that cannot be read ends a command.
pub(crate) fn code_of(error: &Error) -> u8 {
    match error {
        Error::NotFound { .. } => NO_INPUT,
        Error::Denied { .. } | Error::NoCredentials { .. } => NO_PERMISSION,
        Error::TimedOut { .. } => TEMPORARY,
        Error::Io { .. } => UNAVAILABLE,
        // Not what it was taken for.
        _ => NO_INPUT,
    }
}

pub(crate) fn tell_ready(ready_fd: Option<i32>, ready_file: Option<&Path>) -> Result<(), Failure> {
    if let Some(fd) = ready_fd {
        let cannot = |error: io::Error| {
            let advice = "pass an open descriptor";
            Failure::new(IO_ERROR, format_args!("cannot write to --ready-fd {fd}: {error}; {advice}"))
        };
        // SAFETY: only asks. What is not open must not be closed either.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(cannot(io::Error::last_os_error()));
        }
        // SAFETY: the caller gave us this descriptor to write to and to close; nobody else in this process knows it.
        let mut pipe = unsafe { fs::File::from_raw_fd(fd) };
        pipe.write_all(b"ready\n").map_err(cannot)?;
    }
    if let Some(path) = ready_file {
        publish(path).map_err(|error| {
            Failure::new(
                CANNOT_CREATE,
                format!(
                    "cannot create --ready-file {}: {error}; name a file in an existing directory",
                    path.display()
                ),
            )
        })?;
    }
    Ok(())
}

/// Whoever sees the file sees it whole.
fn publish(path: &Path) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    fs::write(&partial, "ready\n")?;
    fs::rename(&partial, path)
}

/// Serves until a signal asks for the end, or somebody else unmounts.
pub(crate) fn serve(signals: &Signals, mount: &mut impl Mount) -> Result<(), Failure> {
    let cannot_wait =
        |error: io::Error| Failure::new(OS_ERROR, format!("cannot wait for signals: {error}; unmounted"));
    if signals.wait(mount, None).map_err(cannot_wait)? == Event::Unmounted {
        return Ok(());
    }
    let cannot_unmount = |error: io::Error, dir: &Path| {
        let dir = dir.display();
        Failure::new(OS_ERROR, format!("cannot unmount {dir}: {error}; try umount -l {dir}"))
    };
    let first = Instant::now();
    let mut said = false;
    loop {
        match mount.unmount() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Err(cannot_unmount(error, mount.dir())),
        }
        if !said {
            let dir = mount.dir().display();
            eprintln!("{dir} is in use; detaching it in {} s, or at once at the next Ctrl-C", BUSY.as_secs());
            said = true;
        }
        let event = signals.wait(mount, Some(AGAIN)).map_err(cannot_wait)?;
        if event == Event::Signal || first.elapsed() >= BUSY {
            return mount.detach().map_err(|error| cannot_unmount(error, mount.dir()));
        }
    }
}

/// SIGTERM when the parent ends, or if it just did.
pub(crate) fn follow_parent() {
    // SAFETY: plain system calls on this process.
    unsafe {
        let parent = libc::getppid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong);
        if libc::getppid() != parent {
            libc::raise(libc::SIGTERM);
        }
    }
}

#[derive(PartialEq, Eq)]
enum Event {
    Signal,
    Unmounted,
    Timeout,
}

/// INT, TERM and HUP, kept from their usual effect.
pub(crate) struct Signals(OwnedFd);

impl Signals {
    /// From now on for every thread that starts.
    pub(crate) fn take() -> Result<Self, Failure> {
        Self::block().map_err(|error| {
            let what = format!("cannot wait for signals: {error}; raise the limit of open files (ulimit -n)");
            Failure::new(OS_ERROR, what)
        })
    }

    fn block() -> io::Result<Self> {
        // SAFETY: the set is initialised by sigemptyset before use; the descriptor is new and ours.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    /// Waits for a signal, the end of the mount, or the end of `patience`.
    fn wait(&self, mount: &impl Mount, patience: Option<Duration>) -> io::Result<Event> {
        let on = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [on(self.0.as_raw_fd()), on(mount.ended().as_raw_fd())];
        let timeout = patience.map_or(-1, |patience| patience.as_millis() as i32);
        loop {
            // SAFETY: `fds` is an array of two that outlives the call.
            match unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) } {
                0 => return Ok(Event::Timeout),
                -1 => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
                _ if fds[1].revents != 0 => return Ok(Event::Unmounted),
                _ => {
                    let mut signal = [0u8; size_of::<libc::signalfd_siginfo>()];
                    // SAFETY: the buffer has room for one record; a signal that is gone again leaves it empty.
                    unsafe { libc::read(self.0.as_raw_fd(), signal.as_mut_ptr().cast(), signal.len()) };
                    return Ok(Event::Signal);
                }
            }
        }
    }
}
