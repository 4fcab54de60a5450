//! A source, read-only, through our page cache: a directory, a URL or a bucket as a mount.
//!
//! ```text
//!   program ── read, mmap ──> kernel ── READ ──> page cache of ours ──> storage ──> NFS, HTTP, S3 ...
//!                                                  |  wave: what next, and why
//!                                                  +── .bowwave/stat, explain; metrics
//! ```
//!
//! Reading order: [`CachedOptions`] and [`CachedMount`] (what a caller does), `filesystem` (what the kernel asks), `names`
//! (inodes, listings and how old they may be), `files` (which opens share a file of the cache), `push` (pages that the kernel gets
//! before it asks), `control` and `metrics` (what it tells of itself), `modelled` (generated files on a modelled device, to be
//! measured).

mod control;
mod files;
mod filesystem;
mod metrics;
mod modelled;
mod names;
mod push;

use crate::mount::MountError;
use crate::point::{
    CACHED_SUBTYPE, Ours, check_rights, is_root, mount_as_root, mount_point, refused, set_read_ahead, unmount,
};
use crate::session::Serving;
use bowwave::{Bytes, Cache};
use bowwave_io::{Entry, Error, Kind, Listing, Tree, TreePath, Until};
use bowwave_lab::DeviceModel;
use files::Files;
use filesystem::{Inner, Mounted, WAITING_MAX};
use fuser::{Config, MountOption, Session, SessionACL};
use modelled::Modelled;
use names::Names;
use std::io::{self, IoSliceMut, PipeReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Threads that wait for sources with questions about names.
const ASKING_MAX: usize = 64;
/// How long the first look at a source may take.
const FIRST_LOOK: Duration = Duration::from_secs(30);
/// How long may be looked whether a server gives parts of its files, in how many of a folder, and in how many folders.
const RANGES_LOOK: Duration = Duration::from_secs(5);
const FILES_TRIED: usize = 3;
const FOLDERS_TRIED: usize = 4;
/// Files that say that they are empty are looked into, so many at most.
const LENGTHS_TRIED: usize = 8;

/// What to mount.
pub enum CachedSource {
    /// A source with names.
    Tree(Arc<dyn Tree>),
    /// Generated files on a modelled device, and where to write a line for each of its requests.
    Modelled(DeviceModel, Option<PathBuf>),
}

/// What to mount, where, and with how much memory.
pub struct CachedOptions {
    /// What to mount.
    pub source: CachedSource,
    /// Existing directory to mount on.
    pub dir: PathBuf,
    /// The ceiling of all memory that the cache takes.
    pub memory: Bytes,
    /// For how long names, attributes and listings are believed.
    pub staleness: Duration,
    /// Whether reads go through the kernel's page cache first.
    pub kernel_cache: bool,
    /// The kernel's window in KiB, if reads do.
    pub read_ahead_kb: Option<u64>,
    /// Where figures are served for Prometheus.
    pub metrics: Option<SocketAddr>,
}

/// The address that a text of the user means: a port alone is one of loopback.
pub fn metrics_address(text: &str) -> Option<SocketAddr> {
    metrics::address(text)
}

/// A mounted source; dropping it unmounts, lazily if files are still open.
pub struct CachedMount {
    serving: Serving,
    inner: Arc<Inner>,
    metrics: Option<SocketAddr>,
}

impl CachedMount {
    /// Mounts a source; it is served by threads of its own until it is unmounted or dropped.
    ///
    /// # Errors
    /// See [`MountError`]: the source is looked at first, so that a wrong one is no mount.
    pub fn mount(options: CachedOptions) -> Result<Self, MountError> {
        let dir = mount_point(&options.dir, Ours::Cached)?;
        check_rights(&dir)?;
        let (tree, modelled): (Arc<dyn Tree>, _) = match options.source {
            CachedSource::Tree(tree) => (tree, None),
            CachedSource::Modelled(model, log) => {
                let modelled = Arc::new(Modelled::start(model, log.as_deref()).map_err(MountError::Thread)?);
                (modelled.clone(), Some(modelled))
            }
        };
        look(&*tree)?;
        let cache = Cache::builder()
            .memory(options.memory)
            .build()
            .map_err(|error| MountError::Memory(options.memory.0, error))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads())
            .max_blocking_threads(ASKING_MAX)
            .thread_name("mount")
            .enable_time()
            .build()
            .map_err(MountError::Thread)?;
        let shown = tree.name().to_owned();
        let names = Names::new(tree, options.staleness);
        let inner = Arc::new(Inner::new(names, Files::new(cache), modelled, runtime, options.kernel_cache));
        let metrics = match options.metrics {
            Some(address) => {
                Some(metrics::serve(address, &inner).map_err(|error| MountError::Metrics(address, error))?)
            }
            None => None,
        };
        let session = session(inner.clone(), &dir, &shown).map_err(|error| refused(&dir, error))?;
        // The only one that is ever set.
        let _ = inner.notifier.set(session.notifier());
        let serving = Serving::start(session, dir, || ())?;
        let mount = Self { serving, inner, metrics };
        if let Some(kib) = options.read_ahead_kb {
            set_read_ahead(mount.dir(), kib)?;
        }
        Ok(mount)
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.serving.dir()
    }

    /// What is mounted, with no secret in it.
    pub fn source(&self) -> &str {
        self.inner.source()
    }

    /// Where its figures are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Becomes readable (at its end) when it is unmounted, by whomever: for `poll`.
    pub fn ended(&self) -> &PipeReader {
        self.serving.ended()
    }

    /// Unmounts; fails with `EBUSY` ([`io::ErrorKind::ResourceBusy`]) while files are open.
    ///
    /// # Errors
    /// What the system says.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.serving.unmount()
    }

    /// Takes the mount out of the name space at once. Files that are open go on until this process ends.
    ///
    /// # Errors
    /// What the system says.
    pub fn detach(&mut self) -> io::Result<()> {
        self.serving.detach()
    }
}

/// Whether there is anything at all: its root, and what is in it.
fn look(tree: &dyn Tree) -> Result<(), MountError> {
    let until = Until::after(FIRST_LOOK);
    let root = TreePath::root();
    tree.look_up(&root, &until).map_err(MountError::Look)?;
    let listing = match tree.list(&root, &until) {
        Ok(listing) => listing,
        // A server that lists nothing may serve what it is asked for.
        Err(Error::Denied { .. } | Error::NotFound { .. }) if tree.name().starts_with("http") => {
            return Ok(());
        }
        Err(error) => return Err(MountError::Look(error)),
    };
    if listing.left_out > 0 {
        eprintln!(
            "bowwave: {} names of {} cannot be shown (no file can have them, or a folder has the name too)",
            listing.left_out,
            tree.name()
        );
    }
    match listing.entries.as_slice() {
        entries if !tree.name().starts_with("http") => files_have_lengths(tree, entries, &until),
        // A URL of one object: there it is, or the mount is a mistake.
        [only] if only.attr.is_none() && !tree.name().ends_with('/') => {
            let path = root.join(&only.name).map_err(|_| MountError::Look(no_name(tree)))?;
            tree.open(&path, &until).map(|_| ()).map_err(MountError::Look)
        }
        _ => serves_ranges(tree, listing, &Until::after(RANGES_LOOK)),
    }
}

/// Files of /proc say that they are empty and are not: they are made when they are read. A mount of them would show nothing, and say
/// nothing.
fn files_have_lengths(tree: &dyn Tree, entries: &[Entry], until: &Until) -> Result<(), MountError> {
    let files = entries.iter().filter(|entry| entry.kind == Kind::File && entry.attr.is_none());
    for path in files.filter_map(|file| TreePath::root().join(&file.name).ok()).take(LENGTHS_TRIED) {
        let is_empty = || tree.look_up(&path, until).is_ok_and(|attr| attr.len == 0);
        let Some(storage) = is_empty().then(|| tree.open(&path, until).ok()).flatten() else { continue };
        let read = storage.read_at(0, &mut [IoSliceMut::new(&mut [0])], until);
        // It may have been written to in between.
        if storage.meta().len == 0 && read.is_ok() && is_empty() {
            return Err(MountError::NoLengths(tree.name().into()));
        }
    }
    Ok(())
}

/// Whether a server gives parts of what it lists. A file or two that it makes anew for each request say nothing of the others; where
/// the first folder has none, one of those in it may.
fn serves_ranges(tree: &dyn Tree, mut listing: Listing, until: &Until) -> Result<(), MountError> {
    let mut folder = TreePath::root();
    for _ in 0..FOLDERS_TRIED {
        let mut whole = None;
        let files = listing.entries.iter().filter(|entry| entry.kind == Kind::File);
        for file in files.filter_map(|file| folder.join(&file.name).ok()).take(FILES_TRIED) {
            match tree.open(&file, until) {
                Ok(storage) if storage.meta().len > 0 => return Ok(()),
                Err(error @ Error::NoRanges { .. }) => whole = Some(error),
                // Empty, or not for us: the mount shows it as it is.
                _ => {}
            }
        }
        if let Some(error) = whole {
            return Err(MountError::Look(error));
        }
        let below = listing.entries.iter().find(|entry| entry.kind == Kind::Folder);
        let Some(below) = below.and_then(|below| folder.join(&below.name).ok()) else { break };
        let Ok(listed) = tree.list(&below, until) else { break };
        (folder, listing) = (below, listed);
    }
    Ok(())
}

fn no_name(tree: &dyn Tree) -> Error {
    Error::NotFound { object: tree.name().into() }
}

/// Threads that take requests off the device, and as many that run tasks: one a processor, and two at least, for one of the former
/// never pushes.
fn threads() -> usize {
    thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 16)
}

/// By the system call where we are root, else by `fusermount3`.
fn session(inner: Arc<Inner>, dir: &Path, source: &str) -> io::Result<Session<Mounted>> {
    // A comma would end the option, and what follows be another.
    let source: String = source.chars().map(|c| if c == ',' || c.is_control() { '_' } else { c }).collect();
    if !is_root() {
        return Session::new(Mounted(inner), dir, &config(source));
    }
    let device = mount_as_root(dir, &source)?;
    let session = Session::from_fd(Mounted(inner), device, SessionACL::All, config(source));
    if session.is_err() {
        // Nobody serves it: a mount that hangs must not stay.
        let _ = unmount(dir, libc::MNT_DETACH);
    }
    session
}

fn config(source: String) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoAtime,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::DefaultPermissions,
        MountOption::FSName(source),
        MountOption::Subtype(CACHED_SUBTYPE.into()),
    ];
    config.acl = if is_root() { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(threads() + WAITING_MAX);
    config.clone_fd = true;
    config
}
