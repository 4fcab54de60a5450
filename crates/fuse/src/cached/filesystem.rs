//! What the kernel asks of a mount, and who answers: names, files and control files on one side, the page cache on the other.
//!
//! ```text
//!   READ  there?  ────────────────────────────── answered by the thread that took it off the device
//!         missing ── told to the brain, in the kernel's order ── a task waits, and answers when it is there
//!   LOOKUP, OPENDIR, OPEN  known and young? answered at once    else: a thread asks the source, and answers
//! ```
//!
//! The threads that take requests off the device do not wait for a source, so a read that hits is never behind one that does
//! not; but for two more of them, which wait for a device that answers at once: being woken would take as long. What may wait: tasks,
//! as many as the kernel has requests out (it bounds them: 512 that nobody waits for, and one for each thread of a program); threads
//! for names, 64 at most, the rest in a queue behind them.
//!
//! Who reads backwards or by strides is given the next pages with his own, where they are here: `push`.
//!
//! A reader is the thread that reads (`pid` of the request): two threads on one descriptor are two readers.

use super::control::{self, Control, FOLDER, FOLDER_INO, Served};
use super::files::{Files, Opened};
use super::modelled::Modelled;
use super::names::{self, Names, ROOT};
use super::push::Steps;
use super::threads;
use crate::session::agree;
use bowwave::{File, PageBytes};
use bowwave_io::{Attr, Error, Kind, Listing, TreePath};
use fuser::{
    Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, Notifier, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::future::Future;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// Of what the mount makes up itself.
const TTL: Duration = Duration::from_secs(3600);
/// An error of one object is written once in this time.
const SAY_AGAIN: Duration = Duration::from_secs(10);
/// Objects whose errors are remembered.
const SAID_MAX: usize = 1024;

/// Threads that may wait for a device that answers at once, beside those that never wait for one.
pub(super) const WAITING_MAX: usize = 2;

/// Bytes of a read for which they do: those of a longer one, the kernel's reading ahead, nobody waits for as a rule.
const SMALL_MAX: u32 = 32 << 10;

/// What mount, file system and command share.
pub(crate) struct Inner {
    pub(crate) names: Names,
    pub(crate) files: Files,
    pub(crate) modelled: Option<Arc<Modelled>>,
    pub(crate) runtime: Runtime,
    /// Reads go through the kernel's page cache first.
    pub(crate) kernel_cache: bool,
    /// Threads that push, and that wait for a quick device, at this moment.
    pushing: Semaphore,
    waiting: Semaphore,
    handles: RwLock<HashMap<u64, Handle>>,
    next_handle: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    pushed: AtomicU64,
    errors: AtomicU64,
    said: Mutex<HashMap<String, Instant>>,
    /// Tells the kernel, once there is one to tell.
    pub(crate) notifier: OnceLock<Notifier>,
    born: SystemTime,
}

#[derive(Clone)]
enum Handle {
    File(Arc<OpenFile>),
    Told(Arc<Vec<u8>>),
    Folder(Arc<Listing>),
}

struct OpenFile {
    path: TreePath,
    file: File,
    steps: Steps,
}

impl Inner {
    pub(crate) fn new(
        names: Names,
        files: Files,
        modelled: Option<Arc<Modelled>>,
        runtime: Runtime,
        kernel_cache: bool,
    ) -> Self {
        Self {
            names,
            files,
            modelled,
            runtime,
            kernel_cache,
            pushing: Semaphore::new(threads() - 1),
            waiting: Semaphore::new(WAITING_MAX),
            handles: RwLock::default(),
            next_handle: AtomicU64::new(1),
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            pushed: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            said: Mutex::default(),
            notifier: OnceLock::new(),
            born: SystemTime::now(),
        }
    }

    pub(crate) fn source(&self) -> &str {
        self.names.tree().name()
    }

    pub(crate) fn served(&self) -> Served {
        let open = self.handles.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Served {
            reads: of(&self.reads),
            bytes: of(&self.bytes),
            pushed: of(&self.pushed),
            errors: of(&self.errors),
            open,
        }
    }

    fn keep(&self, handle: Handle) -> FileHandle {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles.write().unwrap_or_else(PoisonError::into_inner).insert(number, handle);
        FileHandle(number)
    }

    fn handle(&self, handle: FileHandle) -> Option<Handle> {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).get(&handle.0).cloned()
    }

    fn drop_handle(&self, handle: FileHandle) {
        let gone = self.handles.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        if let Some(Handle::File(open)) = gone {
            self.files.close(&open.path, &open.file);
        }
    }

    fn attr(&self, ino: u64, attr: &Attr) -> FileAttr {
        let time = attr.modified.unwrap_or(self.born).max(UNIX_EPOCH);
        FileAttr {
            ino: INodeNo(ino),
            size: attr.len,
            blocks: attr.len.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: names::file_type(attr.kind),
            perm: attr.permissions,
            nlink: 1,
            uid: attr.owner.0,
            gid: attr.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn control_attr(&self, ino: u64) -> FileAttr {
        let attr = if ino == FOLDER_INO { Attr::folder() } else { Attr::file(0, None) };
        self.attr(ino, &attr)
    }

    /// What a control file says now.
    fn tell(&self, control: Control) -> Vec<u8> {
        let plain = |json: serde_json::Result<Vec<u8>>| {
            // Plain data always has a JSON form.
            let mut text = json.unwrap_or_default();
            text.push(b'\n');
            text
        };
        match (control, &self.modelled) {
            (Control::Stat, _) => {
                control::table(self.source(), self.served(), self.files.cache()).into_bytes()
            }
            // With a modelled device its figures stand here, as in a slow store.
            (Control::Stats, Some(modelled)) => plain(serde_json::to_vec_pretty(&modelled.stats())),
            (Control::Stats, None) => {
                control::json(self.source(), self.served(), self.files.cache()).into_bytes()
            }
            (Control::Explain, _) => {
                control::explain(&self.files.cache().explain(), &self.files.lens()).into_bytes()
            }
            (Control::Files, Some(modelled)) => plain(serde_json::to_vec_pretty(&modelled.files())),
            (Control::Model, Some(modelled)) => plain(serde_json::to_vec_pretty(&modelled.model)),
            (Control::Reset, Some(modelled)) => {
                // The kernel tells of a close when it likes.
                for _ in 0..1000 {
                    if self.files.drop_closed() == 0 {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                modelled.reset();
                b"ok\n".to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// What the kernel is told of an error, which is written once in a while.
    fn failed(&self, error: &Error) -> Errno {
        let errno = match error {
            Error::Changed { .. } => Errno::ESTALE,
            Error::NotFound { .. } => return Errno::ENOENT,
            Error::Denied { .. } | Error::NoCredentials { .. } => Errno::EACCES,
            Error::TimedOut { .. } => Errno::ETIMEDOUT,
            Error::Cancelled { .. } => Errno::EINTR,
            Error::Io { source, .. } => match source.raw_os_error() {
                Some(libc::ENOTDIR) => return Errno::ENOTDIR,
                // A link where the path has none any more.
                Some(libc::ELOOP) => return Errno::ELOOP,
                Some(code) => Errno::from(io::Error::from_raw_os_error(code)),
                // As open(2) has it; EFBIG is of writes.
                None if source.kind() == io::ErrorKind::FileTooLarge => Errno::EOVERFLOW,
                None => Errno::EIO,
            },
            Error::Wrong { .. } | Error::NoRanges { .. } => Errno::EIO,
        };
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= SAID_MAX {
            said.clear();
        }
        let now = Instant::now();
        let sentence = error.to_string();
        if said.get(&sentence).is_none_or(|at| at.elapsed() > SAY_AGAIN) {
            // Nobody may be there to read it, which is no reason to end a mount.
            let _ = writeln!(io::stderr(), "bowwave: {sentence}");
            said.insert(sentence, now);
        }
        errno
    }

    /// Asks the source on a thread that may wait for it.
    fn aside(self: &Arc<Self>, ask: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let inner = self.clone();
        self.runtime.spawn_blocking(move || ask(&inner));
    }

    /// Counts a lookup of `path`, which leads to `attr` now, and says its inode: another than before where that is of another length.
    fn found(&self, path: TreePath, attr: &Attr) -> u64 {
        let ino = self.names.number_of_path(&path);
        if self.is_another(ino, Some(attr)) {
            self.names.renew(ino, &path);
        }
        self.names.found(path, attr)
    }

    /// The source says what the name of an inode leads to, if to anything. Returns what the inode is: that, or for those who have it open what it
    /// was.
    fn learn(&self, ino: u64, path: &TreePath, now: Option<&Attr>) -> Option<Attr> {
        if self.is_another(ino, now) {
            self.names.renew(ino, path);
        } else {
            self.names.learn(ino, now?);
        }
        self.names.last_known(ino)
    }

    /// Whether the kernel has an inode of a version that is not what its name leads to: of another length, or gone.
    fn is_another(&self, ino: u64, now: Option<&Attr>) -> bool {
        let len = self.files.kernel_len(ino).filter(|_| self.kernel_cache);
        len.is_some_and(|len| now.is_none_or(|attr| attr.len != len))
    }

    /// A read is over.
    fn read_done(&self, open: &OpenFile, outcome: Result<PageBytes, Error>, reply: ReplyData) {
        match outcome {
            Ok(view) => {
                self.bytes.fetch_add(view.len() as u64, Ordering::Relaxed);
                reply.data(&view.in_one_piece());
            }
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                if matches!(error, Error::Changed { .. }) {
                    self.files.changed(&open.path, &open.file);
                }
                reply.error(self.failed(&error));
            }
        }
    }

    fn opened(&self, ino: u64, path: TreePath, opened: Opened, reply: ReplyOpen) {
        let flags = if !self.kernel_cache {
            FopenFlags::FOPEN_DIRECT_IO
        } else if self.files.kernel_has(ino, &opened) {
            FopenFlags::FOPEN_KEEP_CACHE
        } else {
            // The kernel looks the name up again, and opens what it finds then.
            self.files.close(&path, &opened.0);
            self.names.renew(ino, &path);
            return reply.error(Errno::ESTALE);
        };
        let handle =
            self.keep(Handle::File(Arc::new(OpenFile { path, file: opened.0, steps: Steps::default() })));
        reply.opened(handle, flags | FopenFlags::FOPEN_NOFLUSH);
    }
}

/// The file system as the kernel sees it.
pub(crate) struct Mounted(pub(crate) Arc<Inner>);

impl Filesystem for Mounted {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA;
        if !self.0.kernel_cache {
            wanted |= InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        }
        // Without the last, direct files cannot be mapped shared.
        agree(config, wanted, InitFlags::empty())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent.0 == ROOT && name == FOLDER {
            return reply.entry(&TTL, &self.0.control_attr(FOLDER_INO), Generation(0));
        }
        if parent.0 == FOLDER_INO {
            return match Control::named(name, self.0.modelled.is_some()) {
                Some(control) => reply.entry(&TTL, &self.0.control_attr(control.ino()), Generation(0)),
                None => reply.error(Errno::ENOENT),
            };
        }
        let names = &self.0.names;
        let Some(folder) = names.path(parent.0) else { return reply.error(Errno::ENOENT) };
        let path = match folder.join(name) {
            Ok(path) => path,
            Err(bowwave_io::BadName::Long) => return reply.error(Errno::ENAMETOOLONG),
            Err(_) => return reply.error(Errno::ENOENT),
        };
        let answer = |inner: &Inner, path, attr: &Attr, reply: ReplyEntry| {
            let ino = inner.found(path, attr);
            reply.entry(&inner.names.staleness(), &inner.attr(ino, attr), Generation(0));
        };
        let known = names.known(names.number_of(parent.0, name)).map(Some);
        match known.or_else(|| names.listed(parent.0, name)) {
            Some(Some(attr)) => answer(&self.0, path, &attr, reply),
            Some(None) => reply.error(Errno::ENOENT),
            None => self.0.aside(move |inner| match inner.names.ask(&path) {
                Ok(attr) => answer(inner, path, &attr, reply),
                Err(error) => reply.error(inner.failed(&error)),
            }),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        if self.0.names.forget(ino.0, lookups) {
            self.0.files.kernel_forgot(ino.0);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino.0 == FOLDER_INO || Control::of(ino.0).is_some() {
            return reply.attr(&TTL, &self.0.control_attr(ino.0));
        }
        let names = &self.0.names;
        if let Some(attr) = names.known(ino.0) {
            return reply.attr(&names.staleness(), &self.0.attr(ino.0, &attr));
        }
        let Some(path) = names.path(ino.0) else { return reply.error(Errno::ENOENT) };
        self.0.aside(move |inner| {
            let asked = inner.names.ask(&path);
            let known = match &asked {
                Ok(attr) => inner.learn(ino.0, &path, Some(attr)),
                Err(Error::NotFound { .. }) => inner.learn(ino.0, &path, None),
                Err(_) => None,
            };
            match (known, asked) {
                (Some(attr), _) => reply.attr(&inner.names.staleness(), &inner.attr(ino.0, &attr)),
                (None, Ok(_)) => reply.error(Errno::ENOENT),
                (None, Err(error)) => reply.error(inner.failed(&error)),
            }
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let Some(path) = self.0.names.path(ino.0) else { return reply.error(Errno::ENOENT) };
        self.0.aside(move |inner| match inner.names.read_link(&path) {
            Ok(target) => reply.data(target.as_os_str().as_encoded_bytes()),
            Err(error) => reply.error(inner.failed(&error)),
        });
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        if let Some(control) = Control::of(ino.0) {
            let handle = self.0.keep(Handle::Told(Arc::new(self.0.tell(control))));
            return reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH);
        }
        let Some(path) = self.0.names.path(ino.0) else { return reply.error(Errno::ENOENT) };
        if let Some(opened) = self.0.files.fresh(ino.0, &path, &self.0.names) {
            return self.0.opened(ino.0, path, opened, reply);
        }
        self.0.aside(move |inner| match inner.files.open(&path, &inner.names) {
            Ok(opened) => {
                // An inode of another version keeps its length: its readers know it by that.
                if !inner.kernel_cache || inner.files.kernel_has(ino.0, &opened) {
                    inner.names.opened(ino.0, opened.0.len());
                    // The kernel reads to the length that it knows, for as long as it was told to believe it.
                    if let Some(notifier) = inner.notifier.get() {
                        // It may have forgotten the inode meanwhile, which is as good.
                        let _ = notifier.inval_inode(ino, -1, 0);
                    }
                }
                inner.opened(ino.0, path, opened, reply);
            }
            Err(error) => reply.error(inner.failed(&error)),
        });
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let open = match self.0.handle(handle) {
            Some(Handle::File(open)) => open,
            Some(Handle::Told(text)) => {
                let from = text.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                let to = text.len().min(from + size as usize);
                return reply.data(&text[from..to]);
            }
            Some(Handle::Folder(_)) => return reply.error(Errno::EISDIR),
            None => return reply.error(Errno::EBADF),
        };
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        let (actor, len) = (request.pid(), size as usize);
        let done = |outcome, reply| {
            if let Some(notifier) = self.0.notifier.get().filter(|_| self.0.kernel_cache) {
                let read = (offset, u64::from(size));
                let pushed = open.steps.push((notifier, ino), &self.0.pushing, (&open.file, actor), read);
                self.0.pushed.fetch_add(pushed, Ordering::Relaxed);
            }
            self.0.read_done(&open, outcome, reply);
        };
        if size <= SMALL_MAX
            && open.file.is_quick()
            && let Ok(_waiting) = self.0.waiting.try_acquire()
        {
            return done(open.file.read_at_bytes_by(actor, offset, len), reply);
        }
        let mut reading = Box::pin({
            let open = open.clone();
            async move { open.file.read_at_bytes_async_by(actor, offset, len).await }
        });
        // Most are there; the others are told to the brain here, in the order in which they came.
        let entered = self.0.runtime.enter();
        let first = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(entered);
        match first {
            Poll::Ready(outcome) => done(outcome, reply),
            Poll::Pending => {
                let (inner, open) = (self.0.clone(), open.clone());
                self.0.runtime.spawn(async move {
                    let outcome = reading.await;
                    inner.read_done(&open, outcome, reply);
                });
            }
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.drop_handle(handle);
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let answer = |inner: &Inner, listing, reply: ReplyOpen| {
            reply.opened(inner.keep(Handle::Folder(listing)), FopenFlags::empty());
        };
        if ino.0 == FOLDER_INO {
            return answer(&self.0, Arc::default(), reply);
        }
        self.0.aside(move |inner| match inner.names.list(ino.0) {
            Ok(listing) => answer(inner, listing, reply),
            Err(error) => reply.error(inner.failed(&error)),
        });
    }

    fn readdir(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(Handle::Folder(listing)) = self.0.handle(handle) else { return reply.error(Errno::EBADF) };
        let own = [(OsStr::new("."), Kind::Folder), (OsStr::new(".."), Kind::Folder)];
        let listed = listing.entries.iter().map(|entry| (entry.name.as_os_str(), entry.kind));
        let hidden = |name: &OsStr| ino.0 == ROOT && name == FOLDER;
        for (place, (name, kind)) in (0..).zip(own.into_iter().chain(listed)).skip(offset as usize) {
            if hidden(name) {
                continue;
            }
            let number = if place < 2 { ino.0 } else { self.0.names.number_of(ino.0, name) };
            if reply.add(INodeNo(number), place + 1, names::file_type(kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.drop_handle(handle);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // Nobody knows how large a bucket is; what is certain is that there is no room.
        reply.statfs(0, 0, 0, 0, 0, 4096, bowwave_io::NAME_BYTES_MAX as u32, 4096);
    }
}
