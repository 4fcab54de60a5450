//! Which files a store has: names, inodes, attributes, and where each file lies on the modelled disk.
//!
//! A store serves a source directory as it is, or generated files:
//!
//! ```text
//!   /                     inode    disk address
//!   |- big/000 .. 255     16 GiB each, every one in a range of its own, 32 GiB from the next
//!   |- small/000 .. 255   8 MiB each, one directly after another
//!   |- gen/NAME-BYTES     made when it is looked up: gen/model-268435456 has 256 MiB
//!   `- .bowwave/          stats, files, reset, model: not listed, found by name
//! ```
//!
//! Nodes live as long as the mount (a few hundred bytes a name that was seen, and a version of it that was). The files of a
//! source directory are placed on the disk in the order of their names when the directory is first looked into.
//!
//! A file of the source that has another inode, length or time of modification than when it was last looked at is another version: a
//! node of its own, so that the kernel mixes no page of one with the other. Folders stay what they are; their attributes follow.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};

use crate::content;

/// Files above this size get a range of the disk of their own.
const SMALL_MAX: u64 = 64 << 20;
/// Free space after every big file, at least.
const APART: u64 = 16 << 30;

/// A name of the mount.
pub(crate) struct Node {
    /// From the root of the mount.
    pub(crate) path: PathBuf,
    pub(crate) attr: FileAttr,
    /// The place of byte 0 on the modelled disk.
    pub(crate) address: u64,
    /// Of a generated file.
    pub(crate) file_id: u64,
    pub(crate) control: Option<Control>,
    /// What the file of a source was when it was looked at.
    version: Option<Version>,
}

/// Who was sent to look a name up anew is back so soon.
const LOOKED_ANEW: Duration = Duration::from_millis(100);

/// What tells two versions of a file apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    dev: u64,
    ino: u64,
    len: u64,
    modified: (i64, i64),
}

impl Version {
    fn of(metadata: &fs::Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { dev: metadata.dev(), ino: metadata.ino(), len: metadata.len(), modified }
    }
}

/// The files in `.bowwave/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    Stats,
    Files,
    Reset,
    Model,
}

const CONTROLS: [(&str, Control); 4] = [
    ("stats", Control::Stats),
    ("files", Control::Files),
    ("reset", Control::Reset),
    ("model", Control::Model),
];
/// The folder of the control files.
pub(crate) const CONTROL_FOLDER: &str = ".bowwave";

/// The names of a mount, found as the kernel asks for them.
pub(crate) struct Tree {
    source: Option<PathBuf>,
    names: Mutex<Names>,
    /// Whose opener was sent to look it up anew, and when.
    stale: Mutex<Option<(PathBuf, Instant)>>,
}

struct Names {
    nodes: Vec<Arc<Node>>,
    /// Of each folder by its inode.
    children: HashMap<u64, BTreeMap<OsString, u64>>,
    /// Folders of the source that were looked into.
    listed: HashSet<u64>,
    layout: Layout,
    born: SystemTime,
}

/// Hands out places on the modelled disk.
struct Layout {
    small: u64,
    big: u64,
}

impl Layout {
    fn place(&mut self, size: u64) -> u64 {
        let size = size.next_multiple_of(4096);
        if size <= SMALL_MAX {
            self.small += size;
            self.small - size
        } else {
            let address = self.big;
            self.big = (address + size + APART).next_multiple_of(APART);
            address
        }
    }
}

impl Tree {
    /// The generated files of the picture.
    pub(crate) fn generated() -> Self {
        let tree = Self::empty(None);
        {
            let mut names = tree.names();
            let root = INodeNo::ROOT.0;
            let big = names.add(root, "big".as_ref(), Shape::folder()).attr.ino.0;
            let small = names.add(root, "small".as_ref(), Shape::folder()).attr.ino.0;
            names.add(root, "gen".as_ref(), Shape::folder());
            for (folder, size) in [(big, 16 << 30), (small, 8 << 20)] {
                for n in 0..256 {
                    names.add(folder, format!("{n:03}").as_ref(), Shape::file(size));
                }
            }
        }
        tree
    }

    /// The files of a directory.
    pub(crate) fn of(source: &Path) -> io::Result<Self> {
        let tree = Self::empty(Some(source.into()));
        let metadata = fs::metadata(source)?;
        let mut names = tree.names();
        let root =
            Node { attr: attr(INodeNo::ROOT, &Shape::of(&metadata), names.born), ..Node::root(names.born) };
        names.nodes[0] = Arc::new(root);
        drop(names);
        Ok(tree)
    }

    fn empty(source: Option<PathBuf>) -> Self {
        let born = SystemTime::now();
        let mut names = Names {
            nodes: vec![Arc::new(Node::root(born))],
            children: HashMap::new(),
            listed: HashSet::new(),
            layout: Layout { small: 0, big: 1 << 44 },
            born,
        };
        let folder = names.add(INodeNo::ROOT.0, CONTROL_FOLDER.as_ref(), Shape::folder()).attr.ino.0;
        for (name, control) in CONTROLS {
            names.add(folder, name.as_ref(), Shape { control: Some(control), ..Shape::file(0) });
        }
        Self { source, names: Mutex::new(names), stale: Mutex::default() }
    }

    pub(crate) fn node(&self, ino: INodeNo) -> Option<Arc<Node>> {
        self.names().node(ino.0)
    }

    /// Whether it serves a directory, whose files may change.
    pub(crate) fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// The file behind a node of a source directory.
    pub(crate) fn real_path(&self, node: &Node) -> Option<PathBuf> {
        self.source.as_ref().map(|source| source.join(&node.path))
    }

    /// The node called `name` in a folder.
    pub(crate) fn lookup(&self, parent: INodeNo, name: &OsStr) -> io::Result<Arc<Node>> {
        let mut names = self.names();
        let folder = names.node(parent.0).ok_or_else(missing)?;
        let known = names.child(parent.0, name);
        if let Some(node) = known.filter(|node| self.source.is_none() || node.is_control()) {
            return Ok(node);
        }
        match &self.source {
            Some(source) => {
                let path = source.join(&folder.path);
                names.list_once(parent.0, &path)?;
                // It may have changed since the folder was looked into, or been made since, or be gone.
                match fs::symlink_metadata(path.join(name)) {
                    Ok(metadata) => Ok(names.see(parent.0, name, &metadata)),
                    Err(error) => {
                        names.children.entry(parent.0).or_default().remove(name);
                        Err(error)
                    }
                }
            }
            None if folder.path == Path::new("gen") => {
                let size = generated_size(name).ok_or_else(missing)?;
                Ok(names.add(parent.0, name, Shape::file(size)))
            }
            None => Err(missing()),
        }
    }

    /// What a folder lists: name, inode and kind, by name.
    pub(crate) fn list(&self, ino: INodeNo) -> io::Result<Vec<(OsString, INodeNo, FileType)>> {
        let mut names = self.names();
        let folder = names.node(ino.0).ok_or_else(missing)?;
        if let Some(source) = &self.source
            && folder.path != Path::new(CONTROL_FOLDER)
        {
            names.list(ino.0, &source.join(&folder.path))?;
        }
        let children = names.children.get(&ino.0).into_iter().flatten();
        Ok(children
            .filter(|(name, _)| *name != CONTROL_FOLDER)
            .filter_map(|(name, child)| {
                names.node(*child).map(|node| (name.clone(), node.attr.ino, node.attr.kind))
            })
            .collect())
    }

    /// Whether `opened`, a file of the source, may be had as `node`: it still is what that was made from. Who is told that it is not
    /// looks the name up anew, once; where somebody keeps writing he gets what there is.
    pub(crate) fn is_current(&self, node: &Node, opened: &fs::File) -> bool {
        let now = opened.metadata().ok().map(|metadata| Version::of(&metadata));
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        let looked_anew =
            stale.take().is_some_and(|(path, at)| path == node.path && at.elapsed() < LOOKED_ANEW);
        let current = now == node.version || looked_anew;
        if !current {
            *stale = Some((node.path.clone(), Instant::now()));
        }
        current
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    fn node(&self, ino: u64) -> Option<Arc<Node>> {
        // Inodes count from 1.
        self.nodes.get(usize::try_from(ino.checked_sub(1)?).ok()?).cloned()
    }

    fn child(&self, folder: u64, name: &OsStr) -> Option<Arc<Node>> {
        self.node(*self.children.get(&folder)?.get(name)?)
    }

    /// The name as the source has it now: the node that it was, or another if the file is another.
    fn see(&mut self, folder: u64, name: &OsStr, metadata: &fs::Metadata) -> Arc<Node> {
        let shape = Shape::of(metadata);
        let Some(known) = self.child(folder, name) else { return self.add(folder, name, shape) };
        let same = known.attr.kind == shape.kind
            && (shape.kind == FileType::Directory || known.version == shape.version);
        if !same {
            return self.add(folder, name, shape);
        }
        let ino = known.attr.ino;
        let attr = attr(ino, &shape, self.born);
        if attr == known.attr {
            return known;
        }
        let Node { path, address, file_id, control, .. } = &*known;
        let (path, address, file_id, control) = (path.clone(), *address, *file_id, *control);
        let version = shape.version;
        let node = Arc::new(Node { path, attr, address, file_id, control, version });
        if let Some(place) = self.nodes.get_mut(ino.0 as usize - 1) {
            *place = node.clone();
        }
        node
    }

    fn add(&mut self, folder: u64, name: &OsStr, shape: Shape) -> Arc<Node> {
        let path = self.node(folder).map_or_else(PathBuf::new, |folder| folder.path.join(name));
        let ino = self.nodes.len() as u64 + 1;
        let on_disk = shape.kind == FileType::RegularFile && shape.control.is_none();
        // Another version lies where the one before lay, if there is room.
        let room =
            |node: &Arc<Node>| shape.size <= node.attr.size.next_multiple_of(4096) && node.attr.size > 0;
        let before = self.child(folder, name).filter(|node| on_disk && room(node)).map(|node| node.address);
        let node = Arc::new(Node {
            attr: attr(INodeNo(ino), &shape, self.born),
            address: if on_disk { before.unwrap_or_else(|| self.layout.place(shape.size)) } else { 0 },
            file_id: content::file_id(&path),
            path,
            control: shape.control,
            version: shape.version,
        });
        self.nodes.push(node.clone());
        self.children.entry(folder).or_default().insert(name.into(), ino);
        node
    }

    fn list_once(&mut self, ino: u64, path: &Path) -> io::Result<()> {
        if self.listed.contains(&ino) { Ok(()) } else { self.list(ino, path) }
    }

    /// Reads a folder of the source: adds what is new, forgets the names that are gone.
    fn list(&mut self, ino: u64, path: &Path) -> io::Result<()> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            // A file may vanish between the two calls.
            if let Ok(metadata) = entry.metadata() {
                found.insert(entry.file_name(), metadata);
            }
        }
        self.listed.insert(ino);
        self.children
            .entry(ino)
            .or_default()
            .retain(|name, _| found.contains_key(name) || name == CONTROL_FOLDER);
        for (name, metadata) in found {
            self.see(ino, &name, &metadata);
        }
        Ok(())
    }
}

impl Node {
    fn root(born: SystemTime) -> Self {
        Self {
            path: PathBuf::new(),
            attr: attr(INodeNo::ROOT, &Shape::folder(), born),
            address: 0,
            file_id: 0,
            control: None,
            version: None,
        }
    }

    /// A control file, or their folder.
    fn is_control(&self) -> bool {
        self.path.starts_with(CONTROL_FOLDER)
    }
}

/// What a new node is to be.
struct Shape {
    kind: FileType,
    size: u64,
    perm: u16,
    owner: (u32, u32),
    modified: Option<SystemTime>,
    control: Option<Control>,
    version: Option<Version>,
}

impl Shape {
    fn folder() -> Self {
        Self { kind: FileType::Directory, perm: 0o555, ..Self::file(0) }
    }

    fn file(size: u64) -> Self {
        let kind = FileType::RegularFile;
        Self { kind, size, perm: 0o444, owner: (0, 0), modified: None, control: None, version: None }
    }

    fn of(metadata: &fs::Metadata) -> Self {
        let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
        let modified = UNIX_EPOCH + Duration::new(seconds, metadata.mtime_nsec() as u32);
        Self {
            kind: FileType::from_std(metadata.file_type()).unwrap_or(FileType::RegularFile),
            size: metadata.len(),
            perm: (metadata.permissions().mode() & 0o7777) as u16,
            owner: (metadata.uid(), metadata.gid()),
            modified: Some(modified),
            control: None,
            version: Some(Version::of(metadata)),
        }
    }
}

fn attr(ino: INodeNo, shape: &Shape, born: SystemTime) -> FileAttr {
    let time = shape.modified.unwrap_or(born);
    FileAttr {
        ino,
        size: shape.size,
        blocks: shape.size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: shape.kind,
        perm: shape.perm,
        nlink: 1,
        uid: shape.owner.0,
        gid: shape.owner.1,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The size in a name such as `model-268435456`.
fn generated_size(name: &OsStr) -> Option<u64> {
    let (_, digits) = name.to_str()?.rsplit_once('-')?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // A file offset is signed; a page less keeps the last one whole.
    digits.parse().ok().filter(|&size| plain && size <= i64::MAX as u64 - 4096)
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(tree: &Tree, path: &str) -> io::Result<Arc<Node>> {
        let root = tree.node(INodeNo::ROOT).unwrap();
        path.split('/').try_fold(root, |folder, name| tree.lookup(folder.attr.ino, name.as_ref()))
    }

    #[test]
    fn the_tree_of_the_picture() {
        let tree = Tree::generated();
        let names: Vec<_> = tree.list(INodeNo::ROOT).unwrap().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["big", "gen", "small"]);
        let (first, second) = (find(&tree, "big/000").unwrap(), find(&tree, "big/001").unwrap());
        assert_eq!((first.attr.size, second.address - first.address), (16 << 30, 32 << 30));
        let (first, second) = (find(&tree, "small/254").unwrap(), find(&tree, "small/255").unwrap());
        assert_eq!((first.attr.size, second.address - first.address), (8 << 20, 8 << 20));
        assert_eq!(find(&tree, ".bowwave/stats").unwrap().control, Some(Control::Stats));
        assert!(find(&tree, "big/256").is_err());
    }

    #[test]
    fn a_file_is_made_by_its_name() {
        let tree = Tree::generated();
        let made = find(&tree, "gen/model-268435456").unwrap();
        assert_eq!(made.attr.size, 256 << 20);
        assert_eq!(made.file_id, content::file_id("gen/model-268435456"));
        assert_eq!(made.attr.ino, find(&tree, "gen/model-268435456").unwrap().attr.ino);
        for wrong in ["gen/model", "gen/model-", "gen/model-4K", "gen/model-+4", "gen/m-99999999999999999999"]
        {
            assert!(find(&tree, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_source_is_placed_by_name_and_followed() {
        let source = std::env::temp_dir().join(format!("bowwave-tree-{}", std::process::id()));
        fs::create_dir_all(source.join("sub")).unwrap();
        fs::write(source.join("b"), [0; 5000]).unwrap();
        fs::write(source.join("a"), [0; 10]).unwrap();
        std::os::unix::fs::symlink("a", source.join("link")).unwrap();
        let tree = Tree::of(&source).unwrap();
        assert_eq!(find(&tree, "b").unwrap().address, 4096, "after a, although asked for first");
        assert_eq!(find(&tree, "link").unwrap().attr.kind, FileType::Symlink);
        fs::write(source.join("sub/late"), [0; 1]).unwrap();
        assert_eq!(find(&tree, "sub/late").unwrap().attr.size, 1);
        fs::remove_file(source.join("a")).unwrap();
        let names: Vec<_> = tree.list(INodeNo::ROOT).unwrap().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["b", "link", "sub"]);
        fs::remove_dir_all(source).unwrap();
    }

    #[test]
    fn a_file_that_was_written_again_is_another_and_its_folder_is_not() {
        let source = tempfile::tempdir().unwrap();
        fs::create_dir(source.path().join("sub")).unwrap();
        let file = source.path().join("sub/file");
        fs::write(&file, [1; 5000]).unwrap();
        let tree = Tree::of(source.path()).unwrap();
        let (folder, first) = (find(&tree, "sub").unwrap(), find(&tree, "sub/file").unwrap());
        assert_eq!(find(&tree, "sub/file").unwrap().attr.ino, first.attr.ino, "nothing has changed");
        assert!(tree.is_current(&first, &fs::File::open(&file).unwrap()));
        fs::write(&file, [2; 6000]).unwrap();
        assert!(!tree.is_current(&first, &fs::File::open(&file).unwrap()));
        let second = find(&tree, "sub/file").unwrap();
        assert_eq!(second.attr.size, 6000);
        assert_ne!(second.attr.ino, first.attr.ino);
        assert_eq!(second.address, first.address, "it has room where it lay");
        fs::rename(&file, source.path().join("sub/other")).unwrap();
        assert!(find(&tree, "sub/file").is_err() && find(&tree, "sub/other").is_ok());
        assert_eq!(find(&tree, "sub").unwrap().attr.ino, folder.attr.ino);
        fs::set_permissions(source.path().join("sub/other"), fs::Permissions::from_mode(0o600)).unwrap();
        let before = find(&tree, "sub/other").unwrap();
        assert_eq!(tree.node(before.attr.ino).unwrap().attr.perm, 0o600);
    }

    #[test]
    fn a_name_gives_a_size_that_a_file_can_have() {
        let corpus = ["model-268435456", "model-", "a-b-4096", "m-9223372036854771711"];
        bowwave_fuzz::fuzz_text("a name of a generated file", &corpus, |name| {
            let Some(size) = generated_size(OsStr::new(name)) else { return };
            assert!(size.next_multiple_of(4096) <= i64::MAX as u64);
            let digits = name.rsplit('-').next().expect("a part").trim_start_matches('0');
            assert_eq!(if digits.is_empty() { "0" } else { digits }, size.to_string());
        });
    }
}
