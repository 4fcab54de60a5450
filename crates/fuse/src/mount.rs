//! Mounting and unmounting a slow store, and what can go wrong with either.
//!
//! ```text
//!   checks (/dev/fuse, rights, DIR) -> clear a dead mount of ours -> mount -> read_ahead_kb -> SlowStore
//!   SlowStore::unmount            refuses while files are open (EBUSY)
//!   SlowStore::detach             takes the name away at once; open files fail when the process ends
//! ```

use std::fs;
use std::io::{self, PipeReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowwave_io::{Haste, hurry};
use bowwave_lab::DeviceModel;
use fuser::{Config, MountOption, Session, SessionACL};

use crate::log::RequestLog;
use crate::pace::Pacer;
use crate::point::{Ours, SLOW_SOURCE, check_rights, is_root, mount_point, refused, set_read_ahead};
use crate::session::Serving;
use crate::stats::{FileStats, Stats};
use crate::store::{Inner, Store};
use crate::tree::Tree;

/// What the kernel's FUSE path adds to a read, measured on the reference machine (baseline 1.2).
pub const ROUND_TRIP: Duration = Duration::from_micros(55);

/// What to serve, where, and how slowly.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory to serve; generated files if there is none.
    pub source: Option<PathBuf>,
    /// Existing directory to mount on.
    pub dir: PathBuf,
    /// The device to imitate.
    pub model: DeviceModel,
    /// Sets the mount's read_ahead_kb; the kernel's default (128) if not given.
    pub read_ahead_kb: Option<u64>,
    /// Writes a line for each read request.
    pub log: Option<PathBuf>,
    /// Names and attributes cost one latency each, instead of nothing.
    pub metadata: bool,
    /// Taken off the completion times of a device without a head; see [`ROUND_TRIP`].
    pub round_trip: Duration,
}

/// Why a store could not be mounted. Each message says what failed, on what, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory to serve is not there.
    #[error("cannot serve {0}: {1}; name an existing directory, or none for generated files")]
    Source(PathBuf, io::Error),
    /// This machine has no FUSE.
    #[error(
        "cannot open /dev/fuse: {0}; load the fuse module (modprobe fuse), or give the container the device"
    )]
    NoFuse(io::Error),
    /// This user may not mount.
    #[error("no permission to mount on {0}; run as root, or install fusermount3 (package fuse3)")]
    NotPermitted(PathBuf),
    /// The mount point does not do.
    #[error("cannot mount on {0}: {1}")]
    MountPoint(PathBuf, String),
    /// The kernel refused.
    #[error("cannot mount on {0}: {1}; see dmesg for the kernel's reason")]
    Mount(PathBuf, io::Error),
    /// The readahead size could not be set.
    #[error("cannot set {0}: {1}; run as root, or leave --read-ahead-kb out")]
    ReadAhead(PathBuf, io::Error),
    /// The log could not be created.
    #[error("cannot create the request log {0}: {1}; name a file in a directory that can be written")]
    Log(PathBuf, io::Error),
    /// The source of a cached mount cannot be read.
    #[error("cannot mount {0}")]
    Look(bowwave_io::Error),
    /// The source is made when it is read.
    #[error(
        "cannot mount {0}: its files say that they are empty and are not, as in /proc, so a mount would show nothing of them; \
         read them there"
    )]
    NoLengths(String),
    /// So much memory is not to be had, or too little to work with.
    #[error(
        "cannot take {0} bytes of memory: {1}; name another size (--memory), or raise the limit (ulimit -v)"
    )]
    Memory(u64, io::Error),
    /// Figures cannot be served there.
    #[error("cannot serve metrics on {0}: {1}; name another address or port")]
    Metrics(std::net::SocketAddr, io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; raise the limit of processes (ulimit -u)")]
    Thread(io::Error),
}

/// A mounted slow store; dropping it unmounts, lazily if files are still open.
pub struct SlowStore {
    serving: Serving,
    inner: Arc<Inner>,
}

impl SlowStore {
    /// Mounts a store; it serves from threads of its own until it is unmounted or dropped.
    pub fn mount(options: &Options) -> Result<Self, MountError> {
        let dir = mount_point(&options.dir, Ours::Slow)?;
        check_rights(&dir)?;
        let tree = match &options.source {
            Some(source) => serve(source, &dir)?,
            None => Tree::generated(),
        };
        let log = match &options.log {
            Some(path) => {
                Some(RequestLog::create(path).map_err(|error| MountError::Log(path.clone(), error))?)
            }
            None => None,
        };
        let generated = options.source.is_none();
        let pacer =
            Pacer::start(options.model, options.round_trip, generated, log).map_err(MountError::Thread)?;
        let inner = Arc::new(Inner::new(tree, pacer, options.model, options.metadata));
        let session =
            Session::new(Store(inner.clone()), &dir, &config()).map_err(|error| refused(&dir, error))?;

        // The receiver that the session starts inherits it.
        let serving = Serving::start(session, dir, || hurry(Haste::Receive))?;
        let store = Self { serving, inner };
        if let Some(kib) = options.read_ahead_kb {
            set_read_ahead(store.dir(), kib)?;
        }
        Ok(store)
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.serving.dir()
    }

    /// Becomes readable (at its end) when the store is unmounted, by whomever: for `poll`.
    pub fn ended(&self) -> &PipeReader {
        self.serving.ended()
    }

    /// What was asked since the last reset, as in `.bowwave/stats`.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// The same by file, as in `.bowwave/files`.
    pub fn files(&self) -> Vec<FileStats> {
        self.inner.files()
    }

    /// Unmounts; fails with `EBUSY` ([`io::ErrorKind::ResourceBusy`]) while files are open.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.serving.unmount()
    }

    /// Takes the mount out of the name space at once. Files that are open go on until this process ends.
    pub fn detach(&mut self) -> io::Result<()> {
        self.serving.detach()
    }
}

impl Drop for SlowStore {
    fn drop(&mut self) {
        self.serving.end();
        self.inner.pacer.flush_log();
    }
}

fn serve(source: &Path, dir: &Path) -> Result<Tree, MountError> {
    let failed = |error| MountError::Source(source.into(), error);
    let real = fs::canonicalize(source).map_err(failed)?;
    if !real.is_dir() {
        return Err(failed(io::Error::from_raw_os_error(libc::ENOTDIR)));
    }
    // Our receiver would wait for itself.
    if dir.starts_with(&real) || real.starts_with(dir) {
        let why = format!("it and {} must not contain one another", real.display());
        return Err(MountError::MountPoint(dir.into(), why));
    }
    Tree::of(&real).map_err(failed)
}

fn config() -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
        MountOption::FSName(SLOW_SOURCE.into()),
    ];
    // Others may read where root mounts; fusermount3 allows it to few.
    config.acl = if is_root() { SessionACL::All } else { SessionACL::Owner };
    config
}
