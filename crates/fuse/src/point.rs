//! The directory to mount on: whether it does, whether a dead mount of ours lies on it, and how it is taken away again.
//!
//! ```text
//!   DIR -> absolute -> dead (ENOTCONN)? ours: detached; another's: refused -> a directory? -> ours and alive: refused
//! ```
//!
//! Ours are known by what the kernel's table says of them, without touching them: a touch of a dead or a hanging mount may
//! hang.

use crate::mount::MountError;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The source that slow stores show in the kernel's table.
pub(crate) const SLOW_SOURCE: &str = "bowwave-slow";
/// What kind of file system the mounts of our page cache show there, behind `fuse.`.
pub(crate) const CACHED_SUBTYPE: &str = "bowwave";

/// Which of our two kinds of mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ours {
    /// A slow store.
    Slow,
    /// A source through our page cache.
    Cached,
}

impl Ours {
    fn is(self, mounted: Option<(String, String)>) -> bool {
        mounted.is_some_and(|(kind, source)| match self {
            Self::Slow => source == SLOW_SOURCE,
            Self::Cached => kind.strip_prefix("fuse.") == Some(CACHED_SUBTYPE),
        })
    }

    fn what(self) -> &'static str {
        match self {
            Self::Slow => "a slow store",
            Self::Cached => "a source",
        }
    }
}

/// The directory to mount on, absolute, cleared of a dead mount of ours.
pub(crate) fn mount_point(dir: &Path, ours: Ours) -> Result<PathBuf, MountError> {
    let cannot = |why: String| MountError::MountPoint(dir.into(), why);
    let absolute = std::path::absolute(dir).map_err(|error| cannot(error.to_string()))?;
    let mut metadata = fs::metadata(&absolute);
    if metadata.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN)) {
        if !ours.is(mounted(&absolute)) {
            return Err(cannot(
                "a dead mount of another program is on it; unmount that first (umount -l)".into(),
            ));
        }
        unmount(&absolute, libc::MNT_DETACH)
            .map_err(|error| cannot(format!("a dead mount is on it and cannot be unmounted: {error}")))?;
        metadata = fs::metadata(&absolute);
    }
    match metadata {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(cannot("it is not a directory; name an empty directory".into())),
        Err(error) => return Err(cannot(format!("{error}; make the directory first (mkdir -p)"))),
    }
    let real = fs::canonicalize(&absolute).map_err(|error| cannot(error.to_string()))?;
    if ours.is(mounted(&real)) {
        return Err(cannot(format!(
            "{} is mounted there already; unmount it first, or choose another",
            ours.what()
        )));
    }
    Ok(real)
}

pub(crate) fn check_rights(dir: &Path) -> Result<(), MountError> {
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        return Err(match error.kind() {
            io::ErrorKind::PermissionDenied => MountError::NotPermitted(dir.into()),
            _ => MountError::NoFuse(error),
        });
    }
    if is_root() || Command::new("fusermount3").arg("-V").output().is_ok() {
        Ok(())
    } else {
        Err(MountError::NotPermitted(dir.into()))
    }
}

pub(crate) fn refused(dir: &Path, error: io::Error) -> MountError {
    match error.kind() {
        // The kernel refused, and there is no fusermount3 to ask.
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => MountError::NotPermitted(dir.into()),
        _ => MountError::Mount(dir.into(), error),
    }
}

pub(crate) fn set_read_ahead(dir: &Path, kib: u64) -> Result<(), MountError> {
    let device = fs::metadata(dir).map_err(|error| MountError::Mount(dir.into(), error))?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let file = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    fs::write(&file, kib.to_string()).map_err(|error| MountError::ReadAhead(file, error))
}

/// Mounts by the system call itself, which is root's: the kernel's table then shows `fuse.bowwave`, as fstab has it. Whoever gets
/// the descriptor serves the mount.
pub(crate) fn mount_as_root(dir: &Path, source: &str) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let mode = fs::metadata(dir)?.mode() & libc::S_IFMT;
    let said = format!(
        "fd={},rootmode={mode:o},user_id=0,group_id=0,default_permissions,allow_other",
        device.as_raw_fd()
    );
    let (target, said) = (CString::new(dir.as_os_str().as_bytes())?, CString::new(said)?);
    let (source, kind) = (CString::new(source)?, CString::new(format!("fuse.{CACHED_SUBTYPE}"))?);
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOATIME;
    // SAFETY: four strings that outlive the call, the last of them text as FUSE wants it.
    let mounted =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, said.as_ptr().cast()) };
    if mounted == 0 { Ok(device.into()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn unmount(dir: &Path, flags: i32) -> io::Result<()> {
    if !is_root() {
        let mut fusermount = Command::new("fusermount3");
        fusermount.args(if flags == 0 { &["-u", "-q"][..] } else { &["-u", "-q", "-z"][..] });
        let status = fusermount.arg("--").arg(dir).status()?;
        return if status.success() { Ok(()) } else { Err(io::ErrorKind::ResourceBusy.into()) };
    }
    let path = CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: `path` is a string that outlives the call.
    match unsafe { libc::umount2(path.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn is_root() -> bool {
    // SAFETY: it cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Type and source of the topmost mount on exactly `dir`, without touching `dir`.
fn mounted(dir: &Path) -> Option<(String, String)> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    table.split(|byte| *byte == b'\n').rev().find_map(|line| mounted_by(line, dir))
}

/// One line of mountinfo: `36 35 0:52 / /mnt/slow ro - fuse bowwave-slow rw`, with optional fields before the dash.
fn mounted_by(line: &[u8], dir: &Path) -> Option<(String, String)> {
    let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
    if unescape(fields.get(4)?) != dir.as_os_str().as_bytes() {
        return None;
    }
    let dash = fields.iter().skip(5).position(|field| *field == b"-")? + 5;
    let text = |at: usize| fields.get(at).map(|field| String::from_utf8_lossy(field).into_owned());
    Some((text(dash + 1)?, text(dash + 2)?))
}

/// The table writes blanks and backslashes as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read() {
        let line = b"36 35 0:52 / /mnt/a\\040b ro,noatime shared:7 - fuse bowwave-slow ro,user_id=0";
        assert!(Ours::Slow.is(mounted_by(line, Path::new("/mnt/a b"))));
        assert!(!Ours::Cached.is(mounted_by(line, Path::new("/mnt/a b"))));
        assert_eq!(mounted_by(line, Path::new("/mnt/a")), None);
        assert_eq!(mounted_by(b"", Path::new("/")), None);
        let line = b"36 35 0:52 / /mnt/c ro,noatime - fuse.bowwave s3://b/ ro,user_id=0";
        assert!(Ours::Cached.is(mounted_by(line, Path::new("/mnt/c"))));
        assert!(mounted(Path::new("/proc")).is_some());
    }

    #[test]
    fn no_line_of_the_table_is_too_odd() {
        let corpus: [&[u8]; 3] = [
            b"36 35 0:52 / /mnt/a\\040b ro,noatime shared:7 - fuse bowwave-slow ro,user_id=0",
            b"36 35 0:52 / /mnt/c ro,noatime - fuse.bowwave s3://b/ ro",
            b"36 35 0:52 / /mnt/\\377\\134\\08 - -",
        ];
        bowwave_fuzz::fuzz("a line of mountinfo", &corpus, |line| {
            let dir = line.split(|byte| *byte == b' ').nth(4).map(unescape);
            assert!(dir.as_ref().is_none_or(|dir| dir.len() <= line.len()));
            // It is of the directory that it names, and of no other.
            let dir = dir.unwrap_or_default();
            let own = mounted_by(line, Path::new(std::ffi::OsStr::from_bytes(&dir)));
            assert!(own.is_none() || line.windows(3).any(|three| three == b" - "));
            assert_eq!(mounted_by(line, Path::new("/nobody's")).filter(|_| dir != b"/nobody's"), None);
        });
    }
}
