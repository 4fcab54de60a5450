//! What the kernel asks and what it is told: the read-only file system of a slow store.
//!
//! Names, attributes and control files are answered at once (or one latency later with `metadata`); reads go to the
//! [`Pacer`]. One thread receives, so reads reach the device in the kernel's order.
//!
//! ```text
//!   kernel -- LOOKUP, GETATTR, OPEN, READDIR --> tree --> at once
//!          -- READ big/000 [0, 131072) --------> counters --> pacer --> at its modelled time
//!          -- READ .bowwave/stats -------------> counters --> at once, past the page cache
//! ```

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowwave_lab::DeviceModel;
use fuser::{
    Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, Request,
};

use crate::pace::{Pacer, Read};
use crate::session::agree;
use crate::stats::{Counters, FileStats, Stats};
use crate::tree::{CONTROL_FOLDER, Control, Tree};

/// Generated files never change, so the kernel may keep names and attributes for good.
const TTL: Duration = Duration::from_secs(86_400);
/// Those of a source it asks for again after so long. Who opens what has changed by then is sent to look anew at once.
const TTL_SOURCE: Duration = Duration::from_secs(1);

/// What mount, file system and command share.
pub(crate) struct Inner {
    pub(crate) tree: Tree,
    pub(crate) pacer: Pacer,
    pub(crate) model: DeviceModel,
    /// Names and attributes cost one latency each.
    pub(crate) metadata: bool,
    counters: Mutex<Counters>,
    handles: Mutex<HashMap<u64, Handle>>,
    next_handle: AtomicU64,
}

/// An open file or folder.
enum Handle {
    Real(Arc<File>),
    Told { text: Arc<Vec<u8>>, control: Control },
    Folder(Arc<Vec<(OsString, INodeNo, FileType)>>),
}

impl Inner {
    pub(crate) fn new(tree: Tree, pacer: Pacer, model: DeviceModel, metadata: bool) -> Self {
        let (counters, handles) = (Mutex::default(), Mutex::default());
        Self { tree, pacer, model, metadata, counters, handles, next_handle: AtomicU64::new(1) }
    }

    pub(crate) fn stats(&self) -> Stats {
        let (in_flight, lateness) = self.pacer.state();
        Stats {
            in_flight,
            late_us_mean: lateness.mean_us(),
            late_us_max: lateness.max_us(),
            ..self.counters().stats()
        }
    }

    pub(crate) fn files(&self) -> Vec<FileStats> {
        self.counters().files()
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<u64, Handle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, handle: Handle) -> FileHandle {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles().insert(number, handle);
        FileHandle(number)
    }

    /// The text of a control file at the moment it is opened.
    fn tell(&self, control: Control) -> Vec<u8> {
        let json = match control {
            Control::Reset => return b"ok\n".to_vec(),
            Control::Stats => serde_json::to_vec_pretty(&self.stats()),
            Control::Files => serde_json::to_vec_pretty(&self.files()),
            Control::Model => serde_json::to_vec_pretty(&self.model),
        };
        self.pacer.flush_log();
        // Plain data always has a JSON form.
        let mut text = json.unwrap_or_default();
        text.push(b'\n');
        text
    }

    fn reset(&self) {
        self.counters().reset();
        self.pacer.reset();
    }

    /// How long the kernel may believe what it is told of names.
    fn believed(&self) -> Duration {
        if self.tree.has_source() { TTL_SOURCE } else { TTL }
    }

    /// Answers a question about names or attributes.
    fn metadata(&self, answer: impl FnOnce() + Send + 'static) {
        if self.metadata { self.pacer.after_latency(answer) } else { answer() }
    }
}

/// The file system as the kernel sees it.
pub(crate) struct Store(pub(crate) Arc<Inner>);

impl Filesystem for Store {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA;
        // Without asynchronous reads there would be nothing to study.
        agree(config, wanted, InitFlags::FUSE_ASYNC_READ)
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.0.tree.lookup(parent, name);
        // Control files cost no modelled time, and neither does finding them.
        let control = found.as_ref().is_ok_and(|node| node.path.starts_with(CONTROL_FOLDER));
        let believed = self.0.believed();
        let answer = move || match found {
            Ok(node) => reply.entry(&believed, &node.attr, Generation(0)),
            Err(error) => reply.error(error.into()),
        };
        if control { answer() } else { self.0.metadata(answer) }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let Some(node) = self.0.tree.node(ino) else { return reply.error(Errno::ENOENT) };
        let believed = self.0.believed();
        let answer = move || reply.attr(&believed, &node.attr);
        // The root is asked for on the way to the control files.
        if ino == INodeNo::ROOT { answer() } else { self.0.metadata(answer) }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = match self.0.tree.node(ino).and_then(|node| self.0.tree.real_path(&node)) {
            Some(path) => std::fs::read_link(path),
            None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        self.0.metadata(move || match target {
            Ok(target) => reply.data(target.as_os_str().as_encoded_bytes()),
            Err(error) => reply.error(error.into()),
        });
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let Some(node) = self.0.tree.node(ino) else { return reply.error(Errno::ENOENT) };
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        if let Some(control) = node.control {
            let handle = Handle::Told { text: Arc::new(self.0.tell(control)), control };
            return reply
                .opened(self.0.keep(handle), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH);
        }
        let opened = match self.0.tree.real_path(&node) {
            // The kernel takes a stale one for a reason to look the name up again, and opens what it finds.
            Some(path) => match File::open(path) {
                Ok(file) if !self.0.tree.is_current(&node, &file) => {
                    Err(io::Error::from_raw_os_error(libc::ESTALE))
                }
                opened => opened.map(|file| self.0.keep(Handle::Real(Arc::new(file)))),
            },
            None => Ok(FileHandle(0)),
        };
        self.0.metadata(move || match opened {
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
            Err(error) => reply.error(error.into()),
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(node) = self.0.tree.node(ino) else { return reply.error(Errno::ENOENT) };
        let mut file = None;
        let mut told = None;
        match self.0.handles().get(&handle.0) {
            Some(Handle::Real(real)) => file = Some(real.clone()),
            Some(Handle::Told { text, control }) => told = Some((text.clone(), *control)),
            Some(Handle::Folder(_)) => return reply.error(Errno::EISDIR),
            None if self.0.tree.real_path(&node).is_some() => return reply.error(Errno::EBADF),
            None => {}
        }
        if let Some((text, control)) = told {
            if control == Control::Reset && offset == 0 {
                self.0.reset();
            }
            let from = text.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
            let to = text.len().min(from + size as usize);
            return reply.data(&text[from..to]);
        }
        let bytes = u64::from(size).min(node.attr.size.saturating_sub(offset));
        if bytes == 0 {
            return reply.data(&[]);
        }
        self.0.counters().count(ino.0, offset, bytes, || (node.path.display().to_string(), node.attr.size));
        self.0.pacer.submit(Read { reply, node, file, offset, bytes: bytes as usize });
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
        self.0.handles().remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let listed = self.0.tree.list(ino).map(|list| self.0.keep(Handle::Folder(Arc::new(list))));
        self.0.metadata(move || match listed {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(error) => reply.error(error.into()),
        });
    }

    fn readdir(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let list = match self.0.handles().get(&handle.0) {
            Some(Handle::Folder(list)) => list.clone(),
            _ => return reply.error(Errno::EBADF),
        };
        let own = [(".".as_ref(), ino, FileType::Directory), ("..".as_ref(), ino, FileType::Directory)];
        let listed = list.iter().map(|(name, ino, kind)| (name.as_os_str(), *ino, *kind));
        for (place, (name, ino, kind)) in (0..).zip(own.into_iter().chain(listed)).skip(offset as usize) {
            if reply.add(ino, place + 1, kind, name) {
                break;
            }
        }
        self.0.metadata(move || reply.ok());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.handles().remove(&handle.0);
        reply.ok();
    }
}
