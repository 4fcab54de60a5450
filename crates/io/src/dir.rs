//! The names of a directory: whatever is mounted below it, nothing outside of it.
//!
//! The directory is opened once; every path is resolved beneath that descriptor by the kernel (`openat2` with
//! `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`), so that neither a link nor a race of renames leads out. Links are shown
//! as links, for the reader's own kernel to follow; one that would leave the directory is refused when it is read.
//!
//! ```text
//!   SOURCE/a/link -> ../b         shown: it stays inside
//!   SOURCE/a/link -> ../../b      refused: it leaves          SOURCE/link -> /etc/passwd     refused: absolute
//! ```
//!
//! Pipes, sockets and devices are not shown.

use crate::tree::shown;
use crate::{Attr, Entry, Error, FileStorage, Kind, Listing, Storage, Tree, TreePath, Until};
use std::ffi::{CString, OsStr};
use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// A directory as a source.
#[derive(Debug)]
pub struct DirTree {
    name: String,
    root: File,
}

impl DirTree {
    /// The directory at `path`.
    ///
    /// # Errors
    /// What the system says; [`Error::Wrong`] if it is no directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let name = shown(path.as_ref().as_os_str());
        let object: Arc<str> = name.as_str().into();
        let root = File::open(path).map_err(|error| Error::io(&object, error))?;
        let metadata = root.metadata().map_err(|error| Error::io(&object, error))?;
        if !metadata.is_dir() {
            return Err(Error::Wrong { object, what: "it is no directory".into() });
        }
        Ok(Self { name, root })
    }

    /// What is shown of a path in errors.
    fn shown(&self, path: &TreePath) -> Arc<str> {
        path.shown_under(&self.name)
    }

    fn open_beneath(&self, path: &TreePath, flags: i32) -> Result<File, Error> {
        let failed = |error| Error::io(&self.shown(path), error);
        let relative = if path.is_root() { Path::new(".") } else { path.as_path() };
        let relative = CString::new(relative.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
        // SAFETY: all zero is a valid `open_how`, and the fields that are not named must be zero.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = (flags | libc::O_CLOEXEC | libc::O_NOFOLLOW) as u64;
        how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
        loop {
            // SAFETY: the path ends in NUL, `how` is as large as said, and both outlive the call; a descriptor that comes back
            // is new and ours.
            let fd = unsafe {
                libc::syscall(
                    libc::SYS_openat2,
                    self.root.as_raw_fd(),
                    relative.as_ptr(),
                    &raw const how,
                    size_of::<libc::open_how>(),
                )
            };
            if fd >= 0 {
                // SAFETY: as above.
                return Ok(unsafe { File::from_raw_fd(fd as i32) });
            }
            let error = io::Error::last_os_error();
            // A rename somewhere below made the kernel unsure; it asks to be asked again.
            if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
                return Err(failed(error));
            }
        }
    }

    fn metadata(&self, path: &TreePath) -> Result<Metadata, Error> {
        let handle = self.open_beneath(path, libc::O_PATH)?;
        handle.metadata().map_err(|error| Error::io(&self.shown(path), error))
    }
}

impl Tree for DirTree {
    fn name(&self) -> &str {
        &self.name
    }

    fn list(&self, folder: &TreePath, until: &Until) -> Result<Listing, Error> {
        until.check(&self.shown(folder))?;
        let failed = |error| Error::io(&self.shown(folder), error);
        let handle = self.open_beneath(folder, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let mut listing = Listing::default();
        // The way to read a directory that is open already; the link leads to that very directory.
        for entry in fs::read_dir(format!("/proc/self/fd/{}", handle.as_raw_fd())).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().ok().and_then(kind_of);
            match (kind, folder.join(entry.file_name())) {
                (Some(kind), Ok(_)) => {
                    listing.entries.push(Entry { name: entry.file_name(), kind, attr: None })
                }
                _ => listing.left_out += 1,
            }
        }
        Ok(listing)
    }

    fn look_up(&self, path: &TreePath, until: &Until) -> Result<Attr, Error> {
        until.check(&self.shown(path))?;
        let metadata = self.metadata(path)?;
        let Some(kind) = kind_of(metadata.file_type()) else {
            return Err(Error::NotFound { object: self.shown(path) });
        };
        let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
        Ok(Attr {
            kind,
            len: metadata.len(),
            modified: Some(UNIX_EPOCH + Duration::new(seconds, metadata.mtime_nsec() as u32)),
            permissions: (metadata.mode() & 0o7777) as u16,
            owner: (metadata.uid(), metadata.gid()),
        })
    }

    fn open(&self, path: &TreePath, until: &Until) -> Result<Arc<dyn Storage>, Error> {
        let name = self.shown(path);
        until.check(&name)?;
        // A pipe must not make us wait for a writer.
        let file = self.open_beneath(path, libc::O_RDONLY | libc::O_NONBLOCK)?;
        Ok(Arc::new(FileStorage::of(&name, file)?))
    }

    fn read_link(&self, path: &TreePath, until: &Until) -> Result<PathBuf, Error> {
        let object = self.shown(path);
        until.check(&object)?;
        let handle = self.open_beneath(path, libc::O_PATH)?;
        let target = link_target(&handle).map_err(|error| Error::io(&object, error))?;
        if stays_inside(path.as_path(), &target) { Ok(target) } else { Err(Error::Denied { object }) }
    }
}

/// Where the link points that `handle` was opened as.
fn link_target(handle: &File) -> io::Result<PathBuf> {
    let mut target = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: an empty path means the descriptor itself; the buffer is as large as said.
    let bytes = unsafe {
        libc::readlinkat(handle.as_raw_fd(), c"".as_ptr(), target.as_mut_ptr().cast(), target.len())
    };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    target.truncate(bytes as usize);
    Ok(PathBuf::from(std::ffi::OsString::from_vec(target)))
}

/// Whether a link at `link`, a path from the root, leads to a place below the root, read name by name.
fn stays_inside(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count().saturating_sub(1);
    for component in target.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    target.as_os_str() != OsStr::new("")
}

fn kind_of(file_type: FileType) -> Option<Kind> {
    match file_type {
        t if t.is_file() => Some(Kind::File),
        t if t.is_dir() => Some(Kind::Folder),
        t if t.is_symlink() => Some(Kind::Link),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn until() -> Until {
        Until::after(Duration::from_secs(9))
    }

    fn path(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    #[test]
    fn links_do_not_lead_out() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), b"no").unwrap();
        let source = outside.path().join("source");
        fs::create_dir_all(source.join("a/b")).unwrap();
        fs::write(source.join("b"), b"yes").unwrap();
        symlink("../b", source.join("a/in")).unwrap();
        symlink("../../secret", source.join("a/out")).unwrap();
        symlink("/etc/passwd", source.join("absolute")).unwrap();
        symlink("..", source.join("up")).unwrap();
        let tree = DirTree::open(&source).unwrap();
        assert_eq!(tree.read_link(&path("a/in"), &until()).unwrap(), Path::new("../b"));
        for leaving in ["a/out", "absolute", "up"] {
            assert_eq!(tree.look_up(&path(leaving), &until()).unwrap().kind, Kind::Link);
            assert!(
                matches!(tree.read_link(&path(leaving), &until()), Err(Error::Denied { .. })),
                "{leaving}"
            );
            assert!(tree.open(&path(leaving), &until()).is_err(), "{leaving}");
        }
        assert!(tree.open(&path("up/secret"), &until()).is_err());
        let error = tree.list(&path("up"), &until()).unwrap_err();
        assert!(error.to_string().contains("source/up"), "{error}");
    }

    #[test]
    fn odd_names_are_names_and_pipes_are_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let odd = [&b"two\nlines"[..], b"\x1b[31m", b"\xff\xfe", b" blanks "].map(OsStr::from_bytes);
        for name in odd {
            fs::write(dir.path().join(name), name.as_bytes()).unwrap();
        }
        let pipe = CString::new(dir.path().join("pipe").as_os_str().as_bytes()).unwrap();
        // SAFETY: the path ends in NUL and outlives the call.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        let tree = DirTree::open(dir.path()).unwrap();
        let listing = tree.list(&TreePath::root(), &until()).unwrap();
        assert_eq!((listing.entries.len(), listing.left_out), (4, 1));
        for name in odd {
            let path = TreePath::root().join(name).unwrap();
            assert_eq!(tree.open(&path, &until()).unwrap().meta().len, name.len() as u64);
        }
        assert!(matches!(tree.look_up(&path("pipe"), &until()), Err(Error::NotFound { .. })));
        assert!(tree.open(&path("pipe"), &until()).is_err());
    }
}
