//! Which objects are open, and when two opens are one file of the cache.
//!
//! All who open one object share one file of the cache, and so its pages and what is known of its readers. It stays for the next
//! one after the last has closed it: its pages leave when the memory is wanted, not when a program ends.
//!
//! ```text
//!   open a  ── younger than the staleness? the file that there is
//!           ── else the source is asked: the same version?  the file that there is     another? a new one
//!   read    ── Error::Changed ──> the file is forgotten: the next open has the new version, this one ESTALE
//! ```
//!
//! The kernel keeps pages by inode, not by version. So its pages of an inode are of one version as long as anybody reads through
//! them; who opens another version meanwhile reads past them:
//!
//! ```text
//!   open v1 ── through the kernel's cache        open v2 while v1 is open ── past it       open v2, v1 closed ── through it, emptied first
//! ```
//!
//! At most 4,096 closed files are kept (with a descriptor each, if they are local ones); the one that was closed longest ago goes first.

use super::names::Names;
use bowwave::{Cache, File};
use bowwave_io::{Error, Meta, TreePath};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Closed files that are kept.
const CLOSED_MAX: usize = 4096;

/// The open files, by what they are called.
pub(crate) struct Files {
    cache: Cache,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    files: HashMap<TreePath, Held>,
    /// Closed ones in the order of closing; some were opened again since.
    closed: VecDeque<(TreePath, u64)>,
    closings: u64,
    /// What the kernel has pages of.
    kernel: HashMap<TreePath, KernelPages>,
}

/// The kernel's pages of an inode.
struct KernelPages {
    meta: Meta,
    handles: u64,
}

/// How a handle stands to the kernel's page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KernelCache {
    /// It reads through it, and what is there is of its version.
    Keep,
    /// It reads through it once it is empty.
    Empty,
    /// It reads past it.
    Past,
}

struct Held {
    file: File,
    seen: Instant,
    handles: u64,
    /// Which of the closings was its last.
    closing: u64,
}

impl Files {
    pub(crate) fn new(cache: Cache) -> Self {
        Self { cache, open: Mutex::default() }
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that there is, if its version was looked at lately.
    pub(crate) fn fresh(&self, path: &TreePath, names: &Names) -> Option<File> {
        let mut open = self.lock();
        let held = open.files.get_mut(path).filter(|held| held.seen.elapsed() < names.staleness())?;
        held.handles += 1;
        Some(held.file.clone())
    }

    /// Asks the source for the object, and takes the file that there is if it is of the same version.
    pub(crate) fn open(&self, path: &TreePath, names: &Names) -> Result<File, Error> {
        let storage = names.open(path)?;
        let mut open = self.lock();
        if let Some(held) = open.files.get_mut(path)
            && storage.meta().version.is_some()
            && held.file.meta() == storage.meta()
        {
            held.seen = Instant::now();
            held.handles += 1;
            return Ok(held.file.clone());
        }
        let file = self.cache.open(Arc::clone(&storage))?;
        // Handles of the old version keep it; it goes with the last of them.
        let old = open
            .files
            .insert(path.clone(), Held { file: file.clone(), seen: Instant::now(), handles: 1, closing: 0 });
        drop(open);
        drop(old);
        Ok(file)
    }

    /// A handle of `file` is opened that would read through the kernel's page cache.
    pub(crate) fn kernel_open(&self, path: &TreePath, file: &File) -> KernelCache {
        let mut open = self.lock();
        let Some(pages) = open.kernel.get_mut(path) else {
            let pages = KernelPages { meta: file.meta().clone(), handles: 1 };
            open.kernel.insert(path.clone(), pages);
            return KernelCache::Empty;
        };
        let same = file.meta().version.is_some() && pages.meta == *file.meta();
        if !same && pages.handles > 0 {
            return KernelCache::Past;
        }
        pages.handles += 1;
        if same {
            return KernelCache::Keep;
        }
        pages.meta = file.meta().clone();
        KernelCache::Empty
    }

    /// Such a handle is gone, if it did.
    pub(crate) fn kernel_close(&self, path: &TreePath) {
        if let Some(pages) = self.lock().kernel.get_mut(path) {
            pages.handles = pages.handles.saturating_sub(1);
        }
    }

    /// A handle is gone.
    pub(crate) fn close(&self, path: &TreePath, file: &File) {
        let mut open = self.lock();
        open.closings += 1;
        let closing = open.closings;
        let Some(held) = open.files.get_mut(path).filter(|held| held.file.meta() == file.meta()) else {
            return;
        };
        held.handles = held.handles.saturating_sub(1);
        if held.handles > 0 {
            return;
        }
        held.closing = closing;
        open.closed.push_back((path.clone(), closing));
        let mut gone = Vec::new();
        if open.kernel.len() > 2 * CLOSED_MAX {
            // Whoever opens one of these again empties the kernel's pages first.
            open.kernel.retain(|_, pages| pages.handles > 0);
        }
        while open.closed.len() > CLOSED_MAX {
            let Some((path, closing)) = open.closed.pop_front() else { break };
            if open.files.get(&path).is_some_and(|held| held.handles == 0 && held.closing == closing) {
                gone.extend(open.files.remove(&path));
            }
        }
        drop(open);
        drop(gone);
    }

    /// The object is another now: the next open asks for it.
    pub(crate) fn changed(&self, path: &TreePath, file: &File) {
        let mut open = self.lock();
        if open.files.get(path).is_some_and(|held| held.file.meta() == file.meta()) {
            let held = open.files.remove(path);
            drop(open);
            drop(held);
        }
    }

    /// Bytes of each file by the name of its object.
    pub(crate) fn lens(&self) -> HashMap<Arc<str>, u64> {
        self.lock().files.values().map(|held| (held.file.meta().name.clone(), held.file.len())).collect()
    }

    /// All that is closed leaves the cache; says how many are open.
    pub(crate) fn drop_closed(&self) -> usize {
        let mut open = self.lock();
        open.closed.clear();
        let all = std::mem::take(&mut open.files);
        let (kept, gone): (HashMap<_, _>, HashMap<_, _>) =
            all.into_iter().partition(|(_, held)| held.handles > 0);
        let left = kept.len();
        open.files = kept;
        drop(open);
        drop(gone);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowwave::Bytes;
    use bowwave_io::DirTree;
    use std::time::Duration;

    #[test]
    fn one_version_is_one_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"abc").unwrap();
        let names = Names::new(Arc::new(DirTree::open(dir.path()).unwrap()), Duration::from_secs(60));
        let files = Files::new(Cache::builder().memory(Bytes(8 << 20)).build().unwrap());
        let path = TreePath::parse("a").unwrap();
        assert!(files.fresh(&path, &names).is_none());
        let first = files.open(&path, &names).unwrap();
        assert_eq!(files.kernel_open(&path, &first), KernelCache::Empty);
        assert_eq!(files.open(&path, &names).unwrap().meta(), first.meta());
        assert_eq!(files.kernel_open(&path, &first), KernelCache::Keep);
        std::fs::write(dir.path().join("a"), b"abcd").unwrap();
        let second = files.open(&path, &names).unwrap();
        assert_eq!((first.len(), second.len()), (3, 4));
        assert_eq!(files.kernel_open(&path, &second), KernelCache::Past, "the old one is being read");
        files.kernel_close(&path);
        files.kernel_close(&path);
        assert_eq!(files.kernel_open(&path, &second), KernelCache::Empty);
        assert_eq!(files.kernel_open(&path, &second), KernelCache::Keep);
        files.changed(&path, &first);
        assert!(files.fresh(&path, &names).is_some(), "an old handle says nothing of the new version");
        files.changed(&path, &second);
        assert!(files.fresh(&path, &names).is_none());
    }
}
