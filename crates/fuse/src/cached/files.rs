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
//! The kernel keeps pages by inode, whoever reads them, in calls or through a mapping. So an inode is of one version for ever:
//! who opens an inode and finds another version is told ESTALE, upon which the kernel looks the name up again (it does so
//! once, by itself), is given another inode for it, and opens that; whoever still reads the old version keeps the old one:
//!
//! ```text
//!   open v1 ── inode 7: v1       OPEN 7, the source has v2 ── ESTALE ── LOOKUP ── inode 8 ── OPEN 8: v2      inode 7 stays v1
//! ```
//!
//! That holds for its length as well: told another, the kernel would show zeros behind what it has of the last page, cut off what readers
//! have, or kill who maps it. So an inode that was opened keeps its length, and a name that leads to another length leads to another inode:
//!
//! ```text
//!   inode 7: v1, 200,000 bytes     the source has 200,704 ── LOOKUP ── inode 8, 200,704 bytes      GETATTR 7 ── 200,000, for ever
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
    /// Which version the kernel has pages of, for each inode that it knows and that was opened.
    kernel: HashMap<u64, (Meta, u64)>,
    serials: u64,
}

/// A file, and the number of its opening: where a store tells no version, what was opened once is one version.
pub(crate) type Opened = (File, u64);

struct Held {
    file: File,
    serial: u64,
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

    /// The file that there is, if its version was looked at lately, and is as long as inode `ino` is said to be.
    pub(crate) fn fresh(&self, ino: u64, path: &TreePath, names: &Names) -> Option<Opened> {
        let said = names.last_known(ino).map(|attr| attr.len);
        let mut open = self.lock();
        let held = open.files.get_mut(path).filter(|held| held.seen.elapsed() < names.staleness())?;
        if said.is_some_and(|len| len != held.file.len()) {
            return None;
        }
        held.handles += 1;
        Some((held.file.clone(), held.serial))
    }

    /// Asks the source for the object, and takes the file that there is if it is of the same version.
    pub(crate) fn open(&self, path: &TreePath, names: &Names) -> Result<Opened, Error> {
        let storage = names.open(path)?;
        let mut open = self.lock();
        if let Some(held) = open.files.get_mut(path)
            && storage.meta().version.is_some()
            && held.file.meta() == storage.meta()
        {
            held.seen = Instant::now();
            held.handles += 1;
            return Ok((held.file.clone(), held.serial));
        }
        let file = self.cache.open(Arc::clone(&storage))?;
        open.serials += 1;
        let serial = open.serials;
        // Handles of the old version keep it; it goes with the last of them.
        let held = Held { file: file.clone(), serial, seen: Instant::now(), handles: 1, closing: 0 };
        let old = open.files.insert(path.clone(), held);
        drop(open);
        drop(old);
        Ok((file, serial))
    }

    /// Whether an inode is of the version that was opened, or of none so far: then it is of this one from now on.
    pub(crate) fn kernel_has(&self, ino: u64, (file, serial): &Opened) -> bool {
        let mut open = self.lock();
        let (meta, number) = open.kernel.entry(ino).or_insert_with(|| (file.meta().clone(), *serial));
        number == serial || (meta.version.is_some() && meta == file.meta())
    }

    /// How long the version is that an inode is of, if it is of one.
    pub(crate) fn kernel_len(&self, ino: u64) -> Option<u64> {
        self.lock().kernel.get(&ino).map(|(meta, _)| meta.len)
    }

    /// The kernel knows an inode no more, and has no page of it.
    pub(crate) fn kernel_forgot(&self, ino: u64) {
        self.lock().kernel.remove(&ino);
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
        assert!(files.fresh(7, &path, &names).is_none());
        let opened = files.open(&path, &names).unwrap();
        assert!(files.kernel_has(7, &opened), "of none so far");
        let again = files.open(&path, &names).unwrap();
        assert!(again.1 == opened.1 && files.kernel_has(7, &again));
        std::fs::write(dir.path().join("a"), b"abcd").unwrap();
        let changed = files.open(&path, &names).unwrap();
        assert_eq!((opened.0.len(), changed.0.len()), (3, 4));
        assert_eq!(files.kernel_len(7), Some(3), "it keeps its length");
        assert_eq!(files.kernel_len(9), None, "no version, no length");
        assert!(
            !files.kernel_has(7, &changed) && files.kernel_has(8, &changed) && files.kernel_has(7, &opened)
        );
        files.kernel_forgot(7);
        assert!(files.kernel_has(7, &changed));
        let (first, second) = (opened.0, changed.0);
        files.changed(&path, &first);
        assert!(files.fresh(7, &path, &names).is_some(), "an old handle says nothing of the new version");
        files.changed(&path, &second);
        assert!(files.fresh(7, &path, &names).is_none());
    }
}
