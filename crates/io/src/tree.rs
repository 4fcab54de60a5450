//! Names: which objects a source has, and how a hostile name is kept from being more than a name.
//!
//! A [`Tree`] lists, looks up and opens. Every path in it is a [`TreePath`], made name by name, and a name that could mean
//! another place is refused when it is made, whoever sent it: the kernel, a listing, a server.
//!
//! ```text
//!   key or name                    as a name of the tree
//!   data/part-0.parquet            data, then part-0.parquet
//!   a/../../etc/passwd             refused: `..`           /etc/passwd, a//b    refused: empty
//!   a/./b                          refused: `.`            a\0b                 refused: NUL
//!   4 KiB without a slash          refused: over 255 bytes
//!   two\nlines, \x1b[31m, not UTF-8    names like any other; errors show them escaped
//! ```
//!
//! The picture is owned by the test `the_names_of_the_picture`.

use crate::{Error, Storage, Until};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Bytes of a name; Linux takes no longer ones (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a whole path; Linux takes no longer ones (`PATH_MAX`, with its closing NUL).
pub const PATH_BYTES_MAX: usize = 4095;

/// A path inside a [`Tree`], from its root: only plain names, so it never leaves the tree.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TreePath(PathBuf);

/// Why something is no name of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadName {
    /// Nothing between two slashes, or a leading one.
    #[error("a name is empty")]
    Empty,
    /// `.` or `..`.
    #[error("a name is '.' or '..'")]
    Dots,
    /// A byte that no file name can have.
    #[error("a name holds a slash or a NUL")]
    Byte,
    /// Longer than Linux takes.
    #[error("a name is longer than {NAME_BYTES_MAX} bytes, or its path than {PATH_BYTES_MAX}")]
    Long,
}

impl TreePath {
    /// The root of the tree.
    pub fn root() -> Self {
        Self::default()
    }

    /// The path of `name` in this folder.
    ///
    /// # Errors
    /// [`BadName`] of anything that is more, or less, than a name.
    pub fn join(&self, name: impl AsRef<OsStr>) -> Result<Self, BadName> {
        let name = name.as_ref();
        match name.as_bytes() {
            [] => return Err(BadName::Empty),
            b"." | b".." => return Err(BadName::Dots),
            bytes if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => return Err(BadName::Byte),
            bytes if bytes.len() > NAME_BYTES_MAX => return Err(BadName::Long),
            bytes if self.0.as_os_str().len() + 1 + bytes.len() > PATH_BYTES_MAX => {
                return Err(BadName::Long);
            }
            _ => {}
        }
        Ok(Self(self.0.join(name)))
    }

    /// The path that a key of several names means.
    ///
    /// # Errors
    /// [`BadName`] if any of its names is bad.
    pub fn parse(key: impl AsRef<OsStr>) -> Result<Self, BadName> {
        let names = key.as_ref().as_bytes().split(|byte| *byte == b'/');
        names.map(OsStr::from_bytes).try_fold(Self::root(), |path, name| path.join(name))
    }

    /// As a relative path; empty for the root.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// As the key of an object, if it can be one.
    pub fn as_key(&self) -> Option<&str> {
        self.0.to_str()
    }

    /// The last name; `None` for the root.
    pub fn name(&self) -> Option<&OsStr> {
        self.0.file_name()
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// `base` and this path as one line of text: what cannot be shown is escaped.
    pub fn shown_under(&self, base: &str) -> Arc<str> {
        let path = shown(self.0.as_os_str());
        match (base, path.as_str()) {
            ("", path) => path.into(),
            (base, "") => base.into(),
            (base, path) => format!("{}/{path}", base.trim_end_matches('/')).into(),
        }
    }
}

/// Any name as one line of text: what a terminal would take for more than text is escaped.
pub(crate) fn shown(name: &OsStr) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An object that can be read.
    File,
    /// A folder of names.
    Folder,
    /// A symbolic link within the tree.
    Link,
}

/// What is known of a name without opening it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attr {
    /// File, folder or link.
    pub kind: Kind,
    /// Bytes in it.
    pub len: u64,
    /// When it last changed, if the source knows.
    pub modified: Option<SystemTime>,
    /// Permission bits, as the source has them, or what reading needs.
    pub permissions: u16,
    /// User and group.
    pub owner: (u32, u32),
}

impl Attr {
    /// A file of `len` bytes that everyone may read.
    pub fn file(len: u64, modified: Option<SystemTime>) -> Self {
        Self { kind: Kind::File, len, modified, permissions: 0o444, owner: (0, 0) }
    }

    /// A folder that everyone may look into.
    pub fn folder() -> Self {
        Self { kind: Kind::Folder, len: 0, modified: None, permissions: 0o555, owner: (0, 0) }
    }
}

/// One name of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The name in its folder; one that [`TreePath::join`] takes.
    pub name: OsString,
    /// What it stands for.
    pub kind: Kind,
    /// The rest, where listing tells it; otherwise [`Tree::look_up`] does.
    pub attr: Option<Attr>,
}

/// A source with names. Names that [`TreePath`] refuses are left out of listings; [`Listing::left_out`] counts them.
pub trait Tree: Send + Sync {
    /// What it is, for people, with no secret in it.
    fn name(&self) -> &str;

    /// What is in a folder, in no particular order.
    ///
    /// # Errors
    /// See [`Error`].
    fn list(&self, folder: &TreePath, until: &Until) -> Result<Listing, Error>;

    /// What a path stands for.
    ///
    /// # Errors
    /// [`Error::NotFound`] where nothing is; otherwise see [`Error`].
    fn look_up(&self, path: &TreePath, until: &Until) -> Result<Attr, Error>;

    /// The object at a path, ready to be read.
    ///
    /// # Errors
    /// See [`Error`].
    fn open(&self, path: &TreePath, until: &Until) -> Result<Arc<dyn Storage>, Error>;

    /// Where a link points: a relative path that stays in the tree.
    ///
    /// # Errors
    /// [`Error::Denied`] of one that would leave it.
    fn read_link(&self, path: &TreePath, until: &Until) -> Result<PathBuf, Error>;
}

/// What is in a folder.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// The names.
    pub entries: Vec<Entry>,
    /// Names that cannot be shown.
    pub left_out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_picture() {
        let parse = |key: &[u8]| TreePath::parse(OsStr::from_bytes(key));
        assert_eq!(parse(b"data/part-0.parquet").unwrap().as_path(), Path::new("data/part-0.parquet"));
        assert_eq!(parse(b"a/../../etc/passwd"), Err(BadName::Dots));
        assert_eq!(parse(b"a/./b"), Err(BadName::Dots));
        for empty in [&b"/etc/passwd"[..], b"a//b", b"a/", b""] {
            assert_eq!(parse(empty), Err(BadName::Empty));
        }
        assert_eq!(parse(b"a\0b"), Err(BadName::Byte));
        assert_eq!(TreePath::root().join("a/b"), Err(BadName::Byte));
        assert_eq!(parse(&[b'x'; 4096]), Err(BadName::Long));
        assert!(parse(&[b'x'; 255]).is_ok());
        assert_eq!(parse(&b"x/".repeat(2049)[..4097]), Err(BadName::Long), "the sum counts too");
        for (odd, shown) in [
            (&b"two\nlines"[..], "s/two\\nlines"),
            (b"\x1b[31m", "s/\\u{1b}[31m"),
            (b"\xff\xfe", "s/\\xff\\xfe"),
        ] {
            assert_eq!(&*parse(odd).unwrap().shown_under("s"), shown);
        }
        assert_eq!(parse(b"\xff\xfe").unwrap().as_key(), None);
    }

    /// Whatever a listing or a program calls a thing: what is taken as a path stays in its tree, and is shown as one line.
    #[test]
    fn no_key_leads_out_of_the_tree() {
        let corpus: [&[u8]; 6] = [
            b"data/part-0.parquet",
            b"a/../../etc/passwd",
            b"/etc/passwd",
            b"a//b",
            b"\xff\xfe/x y",
            &[b'x'; 300],
        ];
        bowwave_fuzz::fuzz("TreePath::parse", &corpus, |key| {
            let Ok(path) = TreePath::parse(OsStr::from_bytes(key)) else { return };
            assert_eq!(path.as_path().as_os_str().as_bytes(), key, "a path is what it was called");
            let normal = |part| matches!(part, std::path::Component::Normal(_));
            assert!(path.as_path().components().all(normal) && key.len() <= PATH_BYTES_MAX);
            assert!(Path::new("/source").join(path.as_path()).starts_with("/source"));
            let shown = path.shown_under("s3://bucket/");
            assert!(shown.starts_with("s3://bucket/") && !shown.chars().any(char::is_control), "{shown:?}");
            assert!(path.join("..").is_err() && path.join("a/b").is_err() && path.join("").is_err());
        });
    }
}
