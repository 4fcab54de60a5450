//! `bowwave slow`: a directory, or generated files, at a modelled device's pace, until a signal or an unmount ends it.
//!
//! ```text
//!   $ bowwave slow /mnt/slow --device s3
//!   serving generated files at s3 (lat=30ms,bw=1GB/s,conn=90MB/s,slots=64) on /mnt/slow; Ctrl-C unmounts
//!
//!   Ctrl-C, TERM, HUP -> unmount - busy -> again for 3 s - still busy, or Ctrl-C -> detach -> exit
//! ```

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bowwave_fuse::{MountError, Options, ROUND_TRIP, SlowStore};
use bowwave_lab::DeviceModel;

/// Exit codes after sysexits.
const USAGE: u8 = 64;
const NO_INPUT: u8 = 66;
const UNAVAILABLE: u8 = 69;
const OS_ERROR: u8 = 71;
const CANNOT_CREATE: u8 = 73;
const IO_ERROR: u8 = 74;
const NO_PERMISSION: u8 = 77;

/// How long a busy mount is asked again before it is detached.
const BUSY: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(50);

/// Serve a directory, or generated files, at a modelled device's pace.
///
/// Without SOURCE the files are generated: big/000..255 (16 GiB each), small/000..255 (8 MiB each), and gen/NAME-BYTES, which is
/// made with that many bytes when it is looked up. Reading .bowwave/stats, files or model in DIR tells JSON; reading
/// .bowwave/reset sets the counters to 0, the device to idle and starts the log anew.
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct Args {
    /// Directory to serve, read-only; generated files if not given
    source: Option<PathBuf>,
    /// Existing directory to mount on
    dir: PathBuf,
    /// hdd, ssd, nfs, s3, one of them with other parts ('hdd,fifo', 's3,slots=16'), or
    /// 'lat=30ms,conn=90MB/s,slots=64,bw=1GB/s'; parts: lat= bw= conn= slots= head fifo skip
    #[arg(long, value_name = "MODEL", default_value = "s3")]
    device: String,
    /// Set the mount's read_ahead_kb; without it the kernel's default holds (128)
    #[arg(long, value_name = "KIB")]
    read_ahead_kb: Option<u64>,
    /// Write a line for each read request: arrival us, completion us, file, offset, bytes (tab-separated; complete after a
    /// read of .bowwave/stats and at the end)
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Lookup, getattr, readdir and open cost one device latency each, instead of nothing
    #[arg(long)]
    metadata: bool,
    /// Answer this many microseconds early to make up for the FUSE round trip (devices without a head); 0 switches it off
    #[arg(long, value_name = "US", default_value_t = ROUND_TRIP.as_micros() as u64)]
    round_trip: u64,
    /// Write "ready" to this open file descriptor when mounted, and close it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    ready_fd: Option<i32>,
    /// Create this file when mounted; it is removed at the end
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// Unmount and exit when the thread that started this process ends
    #[arg(long)]
    exit_with_parent: bool,
    /// Print the statistics as JSON on stdout at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    Ok(run(&args).map_or_else(
        |failure| {
            eprintln!("bowwave slow: {}", failure.sentence);
            ExitCode::from(failure.code)
        },
        |()| ExitCode::SUCCESS,
    ))
}

/// What to print, and what to exit with.
struct Failure {
    code: u8,
    sentence: String,
}

impl Failure {
    fn new(code: u8, sentence: String) -> Self {
        Self { code, sentence }
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        let code = match &error {
            MountError::Source(..) => NO_INPUT,
            MountError::NoFuse(_) => UNAVAILABLE,
            MountError::NotPermitted(_) => NO_PERMISSION,
            MountError::ReadAhead(_, cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                NO_PERMISSION
            }
            MountError::ReadAhead(..)
            | MountError::MountPoint(..)
            | MountError::Mount(..)
            | MountError::Log(..) => CANNOT_CREATE,
            MountError::Thread(_) => OS_ERROR,
        };
        Self::new(code, error.to_string())
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let model: DeviceModel = args
        .device
        .parse()
        .map_err(|error: bowwave_lab::DeviceModelError| Failure::new(USAGE, error.to_string()))?;
    // Before any thread starts, so that every thread leaves the signals to us.
    let signals = Signals::take().map_err(|error| {
        Failure::new(
            OS_ERROR,
            format!("cannot wait for signals: {error}; raise the limit of open files (ulimit -n)"),
        )
    })?;
    if args.exit_with_parent {
        follow_parent();
    }
    let mut store = SlowStore::mount(&Options {
        source: args.source.clone(),
        dir: args.dir.clone(),
        model,
        read_ahead_kb: args.read_ahead_kb,
        log: args.log.clone(),
        metadata: args.metadata,
        round_trip: Duration::from_micros(args.round_trip),
    })?;
    let what = args.source.as_ref().map_or("generated files".into(), |source| source.display().to_string());
    let pace = model.name().map_or(model.to_string(), |name| format!("{name} ({model})"));
    eprintln!("serving {what} at {pace} on {}; Ctrl-C unmounts", store.dir().display());

    let told = tell_ready(args);
    let ended = match told {
        Ok(()) => wait(&signals, &mut store),
        Err(failure) => Err(failure),
    };
    if let Some(path) = &args.ready_file {
        // It may be gone with its directory by now.
        let _ = fs::remove_file(path);
    }
    ended?;
    if args.json {
        print_stats(&store).map_err(|error| {
            Failure::new(IO_ERROR, format!("cannot print the statistics: {error}; look at what reads stdout"))
        })?;
    }
    Ok(())
}

fn tell_ready(args: &Args) -> Result<(), Failure> {
    if let Some(fd) = args.ready_fd {
        // SAFETY: the caller gave us this descriptor to write to and to close; nobody else in this process knows it.
        let mut pipe = unsafe { fs::File::from_raw_fd(fd) };
        pipe.write_all(b"ready\n").map_err(|error| {
            Failure::new(
                IO_ERROR,
                format!("cannot write to --ready-fd {fd}: {error}; pass an open descriptor"),
            )
        })?;
    }
    if let Some(path) = &args.ready_file {
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
fn wait(signals: &Signals, store: &mut SlowStore) -> Result<(), Failure> {
    let cannot_wait =
        |error: io::Error| Failure::new(OS_ERROR, format!("cannot wait for signals: {error}; unmounted"));
    if signals.wait(store, None).map_err(cannot_wait)? == Event::Unmounted {
        return Ok(());
    }
    let cannot_unmount = |error: io::Error, store: &SlowStore| {
        let dir = store.dir().display();
        Failure::new(OS_ERROR, format!("cannot unmount {dir}: {error}; try umount -l {dir}"))
    };
    let first = Instant::now();
    let mut said = false;
    loop {
        match store.unmount() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Err(cannot_unmount(error, store)),
        }
        if !said {
            let dir = store.dir().display();
            eprintln!("{dir} is in use; detaching it in {} s, or at once at the next Ctrl-C", BUSY.as_secs());
            said = true;
        }
        let event = signals.wait(store, Some(AGAIN)).map_err(cannot_wait)?;
        if event == Event::Signal || first.elapsed() >= BUSY {
            return store.detach().map_err(|error| cannot_unmount(error, store));
        }
    }
}

fn print_stats(store: &SlowStore) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &store.stats())?;
    writeln!(out)?;
    out.flush()
}

/// SIGTERM when the parent ends, or if it just did.
fn follow_parent() {
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
struct Signals(OwnedFd);

impl Signals {
    fn take() -> io::Result<Self> {
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
    fn wait(&self, store: &SlowStore, patience: Option<Duration>) -> io::Result<Event> {
        let on = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [on(self.0.as_raw_fd()), on(store.ended().as_raw_fd())];
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
