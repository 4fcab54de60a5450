//! Where the library that goes into steered programs lies: inside this binary, and on disk once somebody needs it.
//!
//! ```text
//!   libbowwave-0.1.0-5f0c2a917be34d68.so        name, version, hash of the content: two versions never meet
//!
//!   1. $XDG_CACHE_HOME/bowwave or ~/.cache/bowwave      the first that every user can reach; else
//!   2. $XDG_RUNTIME_DIR/bowwave                         the first that we can
//!   3. /var/tmp/bowwave-1000, /tmp/..., /dev/shm/...
//! ```
//!
//! A program that drops its rights and then runs another must still be able to load the library, or the loader would
//! complain on the program's stderr; hence the preference for a folder that everybody can reach, and modes 0755 and
//! 0644. A folder or a file that somebody else could have written is not used, nor one mounted noexec, nor one whose path the
//! loader would take for several (it splits LD_PRELOAD at blanks and colons) or for another (`$LIB`).

use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, process};

/// The library itself, as it was built with this binary.
const LIBRARY: &[u8] = include_bytes!(env!("BOWWAVE_PRELOAD_LIBRARY"));
/// Written by nobody but its owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why no folder would take the library.
#[derive(Debug, thiserror::Error)]
#[error("cannot put the observer library on disk: {}; set XDG_CACHE_HOME to a folder of your own that is not mounted noexec", tried.join("; "))]
pub struct LibraryError {
    /// One sentence for each folder.
    tried: Vec<String>,
}

/// Makes sure that the library lies on disk, and says where.
pub fn install() -> Result<PathBuf, LibraryError> {
    install_in(&candidates(), LIBRARY)
}

fn install_in(folders: &[PathBuf], library: &[u8]) -> Result<PathBuf, LibraryError> {
    let name = format!("libbowwave-{}-{:016x}.so", env!("CARGO_PKG_VERSION"), fnv1a(library));
    let new: Vec<&PathBuf> = folders.iter().filter(|folder| !folder.exists()).collect();
    let installed = install_as(&name, folders, library);
    for folder in new {
        let _ = fs::remove_dir(folder); // only if it is empty: the library lies in another
    }
    installed
}

fn install_as(name: &str, folders: &[PathBuf], library: &[u8]) -> Result<PathBuf, LibraryError> {
    let mut tried = Vec::new();
    let mut usable = Vec::new();
    for folder in folders {
        match prepare(folder) {
            Ok(()) => usable.push(folder),
            Err(why) => tried.push(format!("{}: {why}", folder.display())),
        }
    }
    usable.sort_by_key(|folder| !reachable_by_all(folder)); // stable: the order above within each half
    for folder in usable {
        let path = folder.join(name);
        if is_intact(&path, library) {
            return Ok(path);
        }
        match write(folder, &path, library) {
            Ok(()) => return Ok(path),
            Err(why) => tried.push(format!("{}: {why}", folder.display())),
        }
    }
    Err(LibraryError { tried })
}

/// Folders in order of preference.
fn candidates() -> Vec<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let own = format!("bowwave-{}", our_user());
    let mut folders: Vec<PathBuf> =
        cache.into_iter().chain(absolute("XDG_RUNTIME_DIR")).map(|folder| folder.join("bowwave")).collect();
    folders.extend(["/var/tmp", "/tmp", "/dev/shm"].map(|folder| Path::new(folder).join(&own)));
    folders
}

/// Makes the folder if need be, and makes sure that only we or root can put something into it and that what lies there
/// may be executed.
fn prepare(folder: &Path) -> io::Result<()> {
    let not = |what| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    if folder.as_os_str().as_bytes().iter().any(|byte| b" :$".contains(byte)) {
        return not("a blank, a colon or a dollar in its path means another to the loader");
    }
    if !folder.exists() {
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    let about = fs::symlink_metadata(folder)?;
    if !about.is_dir() {
        return not("not a folder");
    }
    if !is_trusted(&about) {
        let ours = about.uid() == our_user() || about.uid() == 0;
        return not(if ours { "others may write there" } else { "it belongs to another user" });
    }
    if is_noexec(folder)? {
        return not("mounted noexec");
    }
    Ok(())
}

fn is_trusted(about: &fs::Metadata) -> bool {
    (about.uid() == our_user() || about.uid() == 0) && about.mode() & WRITABLE_BY_OTHERS == 0
}

fn is_noexec(folder: &Path) -> io::Result<bool> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let mut answer = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a C string, and room for the answer, which is looked at only if it was given.
    unsafe {
        if libc::statvfs(folder.as_ptr(), answer.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(answer.assume_init().f_flag & libc::ST_NOEXEC != 0)
    }
}

/// Whether any user may walk to `folder` and read there.
fn reachable_by_all(folder: &Path) -> bool {
    folder.ancestors().all(|ancestor| fs::metadata(ancestor).is_ok_and(|about| about.mode() & 0o001 != 0))
}

/// Whether exactly this library lies there, written by us or root.
fn is_intact(path: &Path, library: &[u8]) -> bool {
    let Ok(about) = fs::symlink_metadata(path) else { return false };
    about.is_file()
        && is_trusted(&about)
        && about.len() == library.len() as u64
        && fs::read(path).is_ok_and(|found| found == library)
}

/// Writes beside the place and renames: whoever loads it finds all of it or nothing.
fn write(folder: &Path, path: &Path, library: &[u8]) -> io::Result<()> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or(OsStr::new("library")).to_string_lossy();
    let beside = folder.join(format!(".{name}.{}.{serial}", process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside)?;
        file.write_all(library)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?; // whatever the umask says
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside); // ours, and of no use to anybody
    }
    written
}

fn our_user() -> u32 {
    // SAFETY: no argument, cannot fail.
    unsafe { libc::geteuid() }
}

/// FNV-1a, 64 bits: it names the content; equality is checked byte by byte.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test's own, gone afterwards.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("bowwave-library-{name}-{}", process::id()));
            let _ = fs::remove_dir_all(&path); // a run that was killed may have left it
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0); // the test is over either way
        }
    }

    #[test]
    fn the_library_that_we_carry_is_one() {
        assert_eq!(&LIBRARY[..4], b"\x7FELF");
        assert!(LIBRARY.len() < 400 << 10, "{} bytes: does it carry std?", LIBRARY.len());
    }

    #[test]
    fn it_is_written_once_and_repaired_when_somebody_changed_it() {
        let scratch = Scratch::new("once");
        let folders = [scratch.0.join("a/b")];
        let path = install_in(&folders, b"content").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        let first = fs::metadata(&path).unwrap().ino();
        assert_eq!(install_in(&folders, b"content").unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), first, "not written again");
        fs::write(&path, b"CONTENT").unwrap();
        assert_eq!(install_in(&folders, b"content").unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(fs::read_dir(&folders[0]).unwrap().count(), 1, "nothing is left beside it");
        assert_ne!(install_in(&folders, b"another").unwrap(), path, "the name says the content");
    }

    #[test]
    fn a_folder_that_others_may_write_is_passed_over() {
        let scratch = Scratch::new("open");
        let (open, own) = (scratch.0.join("open"), scratch.0.join("own"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let path = install_in(&[open.clone(), own.clone()], b"content").unwrap();
        assert!(path.starts_with(&own));
        let error = install_in(&[open], b"content").unwrap_err().to_string();
        assert!(error.contains("others may write there") && error.contains("XDG_CACHE_HOME"), "{error}");
    }

    #[test]
    fn a_path_that_the_loader_would_read_otherwise_is_passed_over() {
        let scratch = Scratch::new("names");
        let own = scratch.0.join("own");
        for name in ["a b", "c:d", "e$LIB"] {
            let odd = scratch.0.join(name).join("bowwave");
            assert!(install_in(&[odd.clone(), own.clone()], b"content").unwrap().starts_with(&own));
            assert!(!odd.exists() && install_in(&[odd], b"content").is_err());
        }
    }

    #[test]
    fn a_folder_that_everybody_can_reach_comes_first() {
        let scratch = Scratch::new("reach");
        let (private, public) = (scratch.0.join("private"), scratch.0.join("public"));
        for (folder, mode) in [(&private, 0o700), (&public, 0o755)] {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        let unused = scratch.0.join("unused");
        let path = install_in(&[private.clone(), public.clone(), unused.clone()], b"content").unwrap();
        assert!(!unused.exists(), "an empty folder of ours is left behind");
        assert_eq!(path.starts_with(&public), reachable_by_all(&public));
        assert!(
            install_in(std::slice::from_ref(&private), b"content").unwrap().starts_with(private),
            "better than nothing"
        );
    }
}
