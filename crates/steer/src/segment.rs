//! The shared segment as a mapping: where its file lies, who may open it, and what becomes of forgotten ones.
//!
//! ```text
//!   /dev/shm/bowwave-4711-9f2c51d07ab3e864/     0700; 0711 for root, whose children may change uid
//!     1c07d3b85e92f46a                          5 MiB, reserved at once, 0600 (0666 for root)
//!   $XDG_RUNTIME_DIR, /tmp                      tried next, where /dev/shm is missing or full
//!   memory that only the agent has              where nothing can be written, for an agent that watches from outside
//! ```
//!
//! Who could open root's segment could cut it short below root's programs. So it lies in a folder that nobody else may list, under a
//! name that only they are told.
//!
//! Worked example: a segment of process 4711 whose process is gone and whose heartbeat is more than 10 s old is removed by
//! the next run; one that beats, or whose process lives, stays.

use std::fs;
use std::io;
use std::mem::offset_of;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bowwave_wire::{HEARTBEAT_MAX_NS, Segment};

use crate::mapping::Mapping;

const NAME: &str = "bowwave-";

/// Why there is no segment.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a shared segment of 5 MiB in {}: {cause}; {}", .dir.display(), advice(.cause))]
pub struct SegmentError {
    dir: PathBuf,
    cause: io::Error,
}

fn advice(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::EFBIG) => "raise the limit of the size of files (ulimit -f)",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
        Some(libc::ENOMEM) => "raise the limit of memory (ulimit -v)",
        Some(libc::EACCES | libc::EPERM | libc::EROFS | libc::ENOENT) => {
            "make it, or /tmp, a directory that can be written"
        }
        _ => "free some space there",
    }
}

/// A mapped segment and the file behind it, if programs are to map it too. Dropping it says that the agent has gone and removes the
/// file.
pub struct SharedSegment {
    mapping: Mapping,
    path: Option<PathBuf>,
}

// SAFETY: the mapping is of atomics only, made to be used from several threads and processes at once.
unsafe impl Sync for SharedSegment {}

impl SharedSegment {
    /// Makes, reserves, maps and initialises a segment in the first directory that has room; removes forgotten ones.
    pub fn create() -> Result<Self, SegmentError> {
        let mut failure = None;
        for dir in places() {
            remove_stale(&dir);
            match Self::create_in(&dir) {
                Ok(segment) => return Ok(segment),
                Err(cause) => {
                    failure.get_or_insert(SegmentError { dir, cause });
                }
            }
        }
        Err(failure.expect("there is at least one place"))
    }

    /// A segment that no program can map: it needs no place.
    pub(crate) fn create_alone() -> io::Result<Self> {
        let this = Self { mapping: Mapping::of_nothing(size_of::<Segment>())?, path: None };
        this.initialise(std::process::id() as i32);
        Ok(this)
    }

    /// Makes a segment in a folder of its own in `dir`.
    pub(crate) fn create_in(dir: &Path) -> io::Result<Self> {
        let folder = dir.join(format!("{NAME}{}-{:016x}", std::process::id(), random()?));
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let path = folder.join(format!("{:016x}", random()?));
        let made = Self::create_at(&path);
        if made.is_err() {
            // The error that counts is the first.
            let _ = fs::remove_dir_all(&folder);
        }
        made
    }

    fn create_at(path: &Path) -> io::Result<Self> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)?;
        // SAFETY: a plain system call on this process.
        if unsafe { libc::geteuid() } == 0 {
            // Children that give up root must still be able to map it: they know both names.
            file.set_permissions(fs::Permissions::from_mode(0o666))?;
            fs::set_permissions(path.parent().expect("its folder"), fs::Permissions::from_mode(0o711))?;
        }
        // Reserved at once: a full /dev/shm must show here, not as SIGBUS in somebody's program.
        // SAFETY: a plain system call on our own descriptor.
        let reserved = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size_of::<Segment>() as i64) };
        if reserved != 0 {
            return Err(io::Error::from_raw_os_error(reserved));
        }
        let mapping = Mapping::of(file.as_fd(), size_of::<Segment>(), 0, true)?;
        let this = Self { mapping, path: Some(path.to_path_buf()) };
        this.initialise(std::process::id() as i32);
        Ok(this)
    }

    /// The file, as children are told of it.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Says that nobody serves any more, and removes the file and its folder. Programs that have it mapped keep their mapping.
    pub fn retire(&self) {
        self.agent_state.store(bowwave_wire::AGENT_GONE, Ordering::SeqCst);
        // Somebody else may have cleaned up.
        let _ = self.path().and_then(Path::parent).map(fs::remove_dir_all);
    }
}

impl Deref for SharedSegment {
    type Target = Segment;
    fn deref(&self) -> &Segment {
        // SAFETY: as many bytes are mapped for as long as self lives, at a page's start as Segment wants, and every bit pattern of its
        // atomics is a value.
        unsafe { self.mapping.at().cast().as_ref() }
    }
}

impl Drop for SharedSegment {
    fn drop(&mut self) {
        self.retire();
    }
}

/// Sleeps until `word` is not `expected`, somebody rings, or `patience` ends.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, patience: Duration) {
    let timeout =
        libc::timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    // SAFETY: the word and the timeout live through the call; a wrong or early return only costs a look around.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const timeout);
    }
}

/// Changes `word` and wakes whoever sleeps on it.
pub(crate) fn ring(word: &AtomicU32) {
    word.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the word lives through the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// CLOCK_MONOTONIC in ns, the clock of the segment.
pub(crate) fn monotonic_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec that is ours; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn places() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    [Some("/dev/shm".into()), runtime, Some("/tmp".into())].into_iter().flatten().collect()
}

fn random() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: fills eight bytes that are ours.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes the folders of segments in `dir` whose agent is dead. Whatever cannot be read or removed stays, and so does what is no folder
/// of ours: anybody may put a link to another's folder there.
fn remove_stale(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    // SAFETY: a plain system call.
    let user = unsafe { libc::geteuid() };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = std::str::from_utf8(name.as_bytes())
            .ok()
            .and_then(|name| name.strip_prefix(NAME)?.split_once('-')?.0.parse::<i32>().ok());
        if let Some(pid) = pid
            && entry.metadata().is_ok_and(|meta| meta.is_dir() && may_clear(meta.uid(), user))
            && !process_lives(pid)
            && heartbeat_is_old(&entry.path())
        {
            // Another run may be cleaning up as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether `user` may clear away what is `owner`'s: root everybody's.
const fn may_clear(owner: u32, user: u32) -> bool {
    owner == user || user == 0
}

/// Whether some process has this number; one that is not ours as well.
pub(crate) fn process_lives(pid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    pid > 0
        && (unsafe { libc::kill(pid, 0) } == 0
            || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH))
}

/// A process that is not in our pid namespace may still beat, in the segment that `folder` holds.
fn heartbeat_is_old(folder: &Path) -> bool {
    let Ok(mut inside) = fs::read_dir(folder) else { return false };
    let Some(Ok(segment)) = inside.next() else { return true };
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(segment.path());
    let mut word = [0u8; 8];
    opened.is_ok_and(|file| {
        file.read_exact_at(&mut word, offset_of!(Segment, heartbeat_ns) as u64).is_err()
            || monotonic_ns().saturating_sub(u64::from_ne_bytes(word)) > 5 * HEARTBEAT_MAX_NS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(segment: &SharedSegment) -> &Path {
        segment.path().expect("it has a file")
    }

    #[test]
    fn a_segment_that_nobody_shares_needs_no_place() {
        let segment = SharedSegment::create_alone().unwrap();
        assert!(segment.is_ours() && segment.path().is_none());
        assert!(segment.bind(1, 2, 1 << 20).is_some());
    }

    #[test]
    fn a_segment_is_reserved_mapped_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let segment = SharedSegment::create_in(dir.path()).unwrap();
        assert!(segment.is_ours());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(fs::metadata(path_of(&segment)).unwrap().len(), size_of::<Segment>() as u64);
        let folder = path_of(&segment).parent().unwrap().to_path_buf();
        let root = unsafe { libc::geteuid() } == 0;
        assert_eq!(
            [mode(&folder), mode(path_of(&segment))],
            if root { [0o711, 0o666] } else { [0o700, 0o600] }
        );
        drop(segment);
        assert!(!folder.exists());
    }

    /// Who may not list the folder cannot find the segment, and its name says nothing of it.
    #[test]
    fn the_name_of_a_segment_is_not_that_of_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let segment = SharedSegment::create_in(dir.path()).unwrap();
        let name = path_of(&segment).file_name().unwrap().to_str().unwrap();
        assert!(name.len() == 16 && !path_of(&segment).parent().unwrap().to_str().unwrap().contains(name));
    }

    /// What to do follows from what the system says: room does not help against a limit.
    #[test]
    fn a_segment_that_cannot_be_made_names_what_is_in_its_way() {
        let told = |error| {
            SegmentError { dir: "/dev/shm".into(), cause: io::Error::from_raw_os_error(error) }.to_string()
        };
        assert!(told(libc::EFBIG).ends_with("(ulimit -f)"), "{}", told(libc::EFBIG));
        assert!(told(libc::ENOSPC).ends_with("free some space there"), "{}", told(libc::ENOSPC));
        assert!(told(libc::EROFS).ends_with("that can be written"), "{}", told(libc::EROFS));
    }

    #[test]
    fn only_segments_of_the_dead_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let alive = SharedSegment::create_in(dir.path()).unwrap();
        // No process has this number: it is above the largest that the kernel gives.
        let folder = |name: &str| {
            let folder = dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let stale = folder("bowwave-4194305-00000000000000aa");
        fs::write(stale.join("aa"), [0u8; 64]).unwrap();
        let beating = folder("bowwave-4194305-00000000000000bb");
        fs::copy(path_of(&alive), beating.join("bb")).unwrap();
        let file = fs::OpenOptions::new().write(true).open(beating.join("bb")).unwrap();
        file.write_all_at(&monotonic_ns().to_ne_bytes(), offset_of!(Segment, heartbeat_ns) as u64).unwrap();
        remove_stale(dir.path());
        assert!(!stale.exists() && beating.exists() && path_of(&alive).exists());
    }

    /// Who can write beside the segments may lead us anywhere by a link.
    #[test]
    fn what_is_no_folder_of_ours_is_not_cleared_away() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let precious = elsewhere.path().join("precious");
        fs::write(&precious, [0u8; 64]).unwrap();
        let link = dir.path().join("bowwave-4194305-00000000000000aa");
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        let file = dir.path().join("bowwave-4194305-00000000000000bb");
        fs::write(&file, []).unwrap();
        remove_stale(dir.path());
        assert!(precious.exists() && link.is_symlink() && file.exists());
        assert!(may_clear(1000, 1000) && may_clear(1000, 0) && !may_clear(0, 1000) && !may_clear(1001, 1000));
    }
}
