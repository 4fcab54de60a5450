//! The names that the kernel knows: inodes, attributes and listings of a source, and how old they may be.
//!
//! An inode's number comes from its path by a fixed hash (FNV-1a), so it is the same after the next mount, whichever release makes
//! it. An object that changed under its readers is another inode from then on (`files`), whose number comes from its path and which
//! change it is; the old one stays what it was. Attributes and listings are believed for the *staleness* (5 s unless told); then
//! the source is asked again. The kernel is told the same, and keeps them as long.
//!
//! ```text
//!   LOOKUP data/a   known for less than 5 s?             answered at once
//!                   a listing of data/ younger than 5 s? from it (a bucket's listing tells lengths)
//!                   else                                 the source is asked, up to 3 times where that may help
//! ```
//!
//! A name lives as long as the kernel remembers it (it says FORGET), so the table is bounded by the kernel's own; listings
//! go with the names. A file that has grown is seen with its new length after the
//! staleness, or when it is opened: by its name, for who has it open sees what he opened.

use crate::content::fnv1a;
use bowwave_io::{Attr, Error, Kind, Listing, Storage, Tree, TreePath, Until};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The root's number is the kernel's choice.
pub(crate) const ROOT: u64 = 1;
/// Numbers below are for the root and the control files.
const FIRST: u64 = 1 << 16;
/// How long a question about names may take, with all its repetitions.
const PATIENCE: Duration = Duration::from_secs(30);
/// Times that a question is asked.
const TIMES: u32 = 3;
/// Before the second time; twice as long before the third.
const PAUSE: Duration = Duration::from_millis(100);

/// The names of a mount.
pub(crate) struct Names {
    tree: Arc<dyn Tree>,
    staleness: Duration,
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    by_number: HashMap<u64, Node>,
    /// How often objects have changed that the kernel knows and that did.
    changes: HashMap<TreePath, u64>,
}

struct Node {
    path: TreePath,
    /// How often the kernel was told of it and has not forgotten.
    lookups: u64,
    attr: Option<(Attr, Instant)>,
    listing: Option<(Listed, Instant)>,
}

/// A listing in the order of its source, which readers of the folder see, and its places in the order of names: `ls -l` looks up each of
/// the names, and 10,000 of them would be 50 million comparisons otherwise.
struct Listed {
    listing: Arc<Listing>,
    by_name: Vec<usize>,
}

impl Listed {
    fn new(listing: Arc<Listing>) -> Self {
        let mut by_name: Vec<usize> = (0..listing.entries.len()).collect();
        // Stable: of entries with one name the first counts.
        by_name.sort_by(|&a, &b| listing.entries[a].name.cmp(&listing.entries[b].name));
        Self { listing, by_name }
    }

    /// What a listing says of a name: that it is not there, or all of it, if it says so much.
    fn says(&self, name: &OsStr) -> Option<Option<Attr>> {
        let entries = &self.listing.entries;
        let first = self.by_name.partition_point(|&place| entries[place].name.as_os_str() < name);
        match self.by_name.get(first).map(|&place| &entries[place]).filter(|entry| entry.name == name) {
            Some(entry) => entry.attr.clone().map(Some),
            None if self.listing.left_out == 0 => Some(None),
            None => None,
        }
    }
}

impl Names {
    pub(crate) fn new(tree: Arc<dyn Tree>, staleness: Duration) -> Self {
        let root = Node { path: TreePath::root(), lookups: 1, attr: None, listing: None };
        let nodes = Nodes { by_number: HashMap::from([(ROOT, root)]), ..Nodes::default() };
        Self { tree, staleness, nodes: Mutex::new(nodes) }
    }

    pub(crate) fn staleness(&self) -> Duration {
        self.staleness
    }

    pub(crate) fn tree(&self) -> &dyn Tree {
        &*self.tree
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self, ino: u64) -> Option<TreePath> {
        self.nodes().by_number.get(&ino).map(|node| node.path.clone())
    }

    /// What is known of an inode and young enough. What an object was before it changed stays so.
    pub(crate) fn known(&self, ino: u64) -> Option<Attr> {
        let nodes = self.nodes();
        let node = nodes.by_number.get(&ino)?;
        let (attr, at) = node.attr.as_ref()?;
        let old = ino != ROOT && number(&nodes, &node.path) != ino;
        (old || at.elapsed() < self.staleness).then(|| attr.clone())
    }

    /// What was learnt last of an inode, however long ago.
    pub(crate) fn last_known(&self, ino: u64) -> Option<Attr> {
        self.nodes().by_number.get(&ino)?.attr.as_ref().map(|(attr, _)| attr.clone())
    }

    /// The object at `path` is another than the one that `ino` stands for: from now on its name leads to another inode.
    pub(crate) fn renew(&self, ino: u64, path: &TreePath) {
        let mut nodes = self.nodes();
        if number(&nodes, path) == ino {
            *nodes.changes.entry(path.clone()).or_default() += 1;
        }
    }

    /// What a listing that is young enough says of a name: that it is not there, or all of it.
    pub(crate) fn listed(&self, parent: u64, name: &OsStr) -> Option<Option<Attr>> {
        self.fresh_listing(&self.nodes(), parent)?.says(name)
    }

    /// Asks the source what an inode is.
    pub(crate) fn ask(&self, path: &TreePath) -> Result<Attr, Error> {
        again(|until| self.tree.look_up(path, until))
    }

    /// Counts a lookup of `path` and says its number.
    pub(crate) fn found(&self, path: TreePath, attr: &Attr) -> u64 {
        let mut nodes = self.nodes();
        let ino = number(&nodes, &path);
        let fresh = || Node { path, lookups: 0, attr: None, listing: None };
        let node = nodes.by_number.entry(ino).or_insert_with(fresh);
        node.lookups += 1;
        node.attr = Some((attr.clone(), Instant::now()));
        ino
    }

    /// What was learnt of an inode that is known.
    pub(crate) fn learn(&self, ino: u64, attr: &Attr) {
        if let Some(node) = self.nodes().by_number.get_mut(&ino) {
            node.attr = Some((attr.clone(), Instant::now()));
        }
    }

    /// An object was opened and has this length, whatever its name was said to have.
    pub(crate) fn opened(&self, ino: u64, len: u64) {
        if let Some(Node { attr: Some((attr, _)), .. }) = self.nodes().by_number.get_mut(&ino) {
            attr.len = len;
        }
    }

    /// The kernel forgets so many lookups of an inode; whether it knows it no more.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) -> bool {
        let mut nodes = self.nodes();
        let Some(node) = nodes.by_number.get_mut(&ino).filter(|_| ino != ROOT) else { return false };
        node.lookups = node.lookups.saturating_sub(lookups);
        let gone = node.lookups == 0;
        if gone
            && let Some(node) = nodes.by_number.remove(&ino)
            && nodes.changes.contains_key(&node.path)
            && !nodes.by_number.values().any(|other| other.path == node.path)
        {
            // Not sooner: the kernel may forget the new inode for a moment between two lookups, while it still has the old one.
            nodes.changes.remove(&node.path);
        }
        gone
    }

    fn fresh_listing<'a>(&self, nodes: &'a Nodes, ino: u64) -> Option<&'a Listed> {
        let (listed, at) = nodes.by_number.get(&ino)?.listing.as_ref()?;
        (at.elapsed() < self.staleness).then_some(listed)
    }

    /// What is in a folder, in the order of the source.
    pub(crate) fn list(&self, ino: u64) -> Result<Arc<Listing>, Error> {
        if let Some(listed) = self.fresh_listing(&self.nodes(), ino) {
            return Ok(listed.listing.clone());
        }
        let Some(path) = self.path(ino) else {
            return Err(Error::NotFound { object: self.tree.name().into() });
        };
        let listing = Arc::new(again(|until| self.tree.list(&path, until))?);
        let listed = Listed::new(listing.clone());
        if let Some(node) = self.nodes().by_number.get_mut(&ino) {
            node.listing = Some((listed, Instant::now()));
        }
        Ok(listing)
    }

    /// The number that a name of a folder has, or would have.
    pub(crate) fn number_of(&self, folder: u64, name: &OsStr) -> u64 {
        let nodes = self.nodes();
        let path = nodes.by_number.get(&folder).and_then(|node| node.path.join(name).ok());
        path.map_or(FIRST, |path| number(&nodes, &path))
    }

    /// The number that leads to `path`, or would.
    pub(crate) fn number_of_path(&self, path: &TreePath) -> u64 {
        number(&self.nodes(), path)
    }

    pub(crate) fn open(&self, path: &TreePath) -> Result<Arc<dyn Storage>, Error> {
        again(|until| self.tree.open(path, until))
    }

    pub(crate) fn read_link(&self, path: &TreePath) -> Result<PathBuf, Error> {
        again(|until| self.tree.read_link(path, until))
    }
}

/// The same path has the same number, in every mount; the next one where another path has it already, which 64 bits make a
/// curiosity.
fn number(nodes: &Nodes, path: &TreePath) -> u64 {
    if path.is_root() {
        return ROOT;
    }
    let named = path.as_path().as_os_str().as_bytes();
    // Behind a byte that no name has.
    let change = nodes.changes.get(path).map(|count| [&[0], &count.to_le_bytes()[..]].concat());
    let mut ino = fnv1a(named.iter().chain(change.iter().flatten())).max(FIRST);
    while nodes.by_number.get(&ino).is_some_and(|node| node.path != *path) {
        ino = ino.wrapping_add(1).max(FIRST);
    }
    ino
}

/// Asks again where that may help; names are few and small, so what the engine does for bytes is not needed here.
fn again<T>(ask: impl Fn(&Until) -> Result<T, Error>) -> Result<T, Error> {
    let until = Until::after(PATIENCE);
    let mut pause = PAUSE;
    for _ in 1..TIMES {
        match ask(&until) {
            Err(error) if error.transient() && until.left() > pause => thread::sleep(pause),
            other => return other,
        }
        pause *= 2;
    }
    ask(&until)
}

/// What kind of thing the kernel is told it is.
pub(crate) fn file_type(kind: Kind) -> fuser::FileType {
    match kind {
        Kind::File => fuser::FileType::RegularFile,
        Kind::Folder => fuser::FileType::Directory,
        Kind::Link => fuser::FileType::Symlink,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowwave_io::{DirTree, Entry};

    #[test]
    fn names_are_believed_for_a_while_and_forgotten_when_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"abc").unwrap();
        let names = Names::new(Arc::new(DirTree::open(dir.path()).unwrap()), Duration::from_millis(50));
        let path = TreePath::parse("a").unwrap();
        let attr = names.ask(&path).unwrap();
        let ino = names.found(path.clone(), &attr);
        assert_eq!(ino, names.found(path.clone(), &attr));
        assert_eq!(ino, names.number_of(ROOT, "a".as_ref()));
        assert_eq!(names.known(ino).unwrap().len, 3);
        assert_eq!(names.list(ROOT).unwrap().entries.len(), 1);
        assert_eq!(names.listed(ROOT, "b".as_ref()), Some(None), "it is known not to be there");
        assert_eq!(names.listed(ROOT, "a".as_ref()), None, "a directory's listing tells no lengths");
        thread::sleep(Duration::from_millis(60));
        assert_eq!(names.known(ino), None);
        assert_eq!(names.listed(ROOT, "b".as_ref()), None);
        assert!(!names.forget(ino, 1));
        assert_eq!(names.path(ino), Some(path.clone()));
        assert!(names.forget(ino, 1));
        assert_eq!(names.path(ino), None);
    }

    /// As a directory has them, in no order of names; of two entries with one name the first counts.
    #[test]
    fn a_name_is_found_wherever_it_is_listed() {
        let entry = |(len, name): (u64, &str)| {
            let attr = Some(Attr::file(len, None));
            Entry { name: name.into(), kind: Kind::File, attr }
        };
        let names = ["c", "a", "e", "b", "a"];
        let listing = Listing { entries: (0..).zip(names).map(entry).collect(), left_out: 0 };
        let kept = Listed::new(Arc::new(listing.clone()));
        assert_eq!(*kept.listing, listing, "readers of the folder see the order of the source");
        let says = |name: &str| kept.says(name.as_ref()).map(|attr| attr.map(|attr| attr.len));
        assert_eq!(["a", "b", "c", "e"].map(says), [1, 3, 0, 2].map(|len| Some(Some(len))));
        assert_eq!(["", "aa", "d", "f"].map(says), [Some(None); 4], "it is known not to be there");
        let cut = Listed::new(Arc::new(Listing { left_out: 1, ..listing }));
        assert_eq!(cut.says("d".as_ref()), None, "it may be one that was left out");
        assert_eq!(cut.says("e".as_ref()).flatten().map(|attr| attr.len), Some(2));
    }

    /// Somebody keeps them: a backup, `tar --listed-incremental`, a server of NFS.
    #[test]
    fn numbers_are_the_same_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let names = Names::new(Arc::new(DirTree::open(dir.path()).unwrap()), Duration::ZERO);
        // As the authors of FNV-1a have them.
        assert_eq!(names.number_of(ROOT, "a".as_ref()), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(names.number_of(ROOT, "foobar".as_ref()), 0x8594_4171_F739_67E8);
        let path = TreePath::parse("foobar").unwrap();
        names.renew(0x8594_4171_F739_67E8, &path);
        assert_eq!(names.number_of(ROOT, "foobar".as_ref()), 0xDEC5_D5F2_2F9A_F059, "once changed");
    }

    #[test]
    fn what_changed_is_another_inode_and_the_old_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"abc").unwrap();
        let names = Names::new(Arc::new(DirTree::open(dir.path()).unwrap()), Duration::ZERO);
        let path = TreePath::parse("a").unwrap();
        let old = names.found(path.clone(), &names.ask(&path).unwrap());
        assert_eq!(names.known(old), None, "it may have changed");
        std::fs::write(dir.path().join("a"), b"abcd").unwrap();
        names.renew(old, &path);
        names.renew(old, &path);
        let new = names.found(path.clone(), &names.ask(&path).unwrap());
        assert!(new != old && new == names.number_of(ROOT, "a".as_ref()), "once for each change");
        assert_eq!(names.known(old).unwrap().len, 3, "whoever has it open sees what it was");
        assert!(names.forget(new, 1));
        assert_eq!(names.number_of(ROOT, "a".as_ref()), new, "the old one is known still");
        assert!(names.forget(old, 1));
        assert_eq!(names.number_of(ROOT, "a".as_ref()), old, "nothing is left of it");
    }
}
