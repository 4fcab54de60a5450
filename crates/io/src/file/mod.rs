//! A local file: `preadv`, past the kernel's page cache where that pays (`direct`), through it otherwise.
//!
//! It chooses by itself, read by read; [`FileStorage::reads`] says how often each. Through the cache the kernel's own readahead is
//! off (`POSIX_FADV_RANDOM`), so that either way the disk, or the file system below, is asked for just what it was asked for.
//!
//! The version is inode, length and time of modification; it is looked at again after every read, so that bytes of two versions
//! never come together. Who opens a file is told its time of change as well, which nobody can set back, and whether it was written to a moment
//! ago: the time of modification is that of the *begin* of a write, so a file that is opened in the middle of one is another version once
//! it has settled. A file that is *replaced* (written beside and renamed) stays the old one for whoever has it open, as
//! always on Unix, and that is no change.
//!
//! ```text
//!   preadv(fd, frames, offset) -> fstat(fd): same version? -> the bytes     0.3 us beside the read
//!                                            another?      -> Error::Changed
//! ```
//!
//! What this cannot see: of a file that is open already, a writer who writes within the clock tick in which it was opened (4 ms on most
//! kernels), goes on with one long write that had begun, or sets the time back.
//! A read that has begun cannot be stopped; it is asked once before. Where each read has a thread that waits for it, `io_uring` is no
//! faster (`docs/decisions/0019`); small reads that come together go by a ring (`rings`, `docs/decisions/0060`).

mod direct;
mod rings;
mod room;
mod seen;

use crate::tree::shown;
use crate::{Error, Meta, ReadOne, Storage, Until};
use direct::Direct;
use rings::Place;
use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// Slices of one call; the kernel refuses more (`IOV_MAX`).
const SLICES_MAX: usize = 1024;

/// A write that began longer ago than this is over.
const SETTLED: Duration = Duration::from_secs(2);

/// A local file that can be read as any object can.
#[derive(Debug)]
pub struct FileStorage {
    meta: Meta,
    file: File,
    version: FileVersion,
    /// The way past the cache, where there is one; decided by the first read.
    direct: OnceLock<Option<Direct>>,
    /// Whether several reads at once overlap; decided by the first read.
    overlaps: OnceLock<bool>,
    reads_direct: AtomicU64,
    reads_cached: AtomicU64,
}

/// How a file was read so far, in calls of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileReads {
    /// Past the kernel's page cache.
    pub direct: u64,
    /// Through it.
    pub cached: u64,
}

/// What tells two versions of a file apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileVersion {
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// The version as who opens the file is told it: with the time of change, and `new` while a write may not be over.
fn told(metadata: &Metadata, now: SystemTime) -> String {
    let FileVersion { inode, len, modified: (seconds, nanoseconds) } = FileVersion::of(metadata);
    let (changed, changed_ns) = (metadata.ctime(), metadata.ctime_nsec());
    let settled =
        metadata.modified().ok().and_then(|at| now.duration_since(at).ok()).is_some_and(|age| age >= SETTLED);
    let new = if settled { "" } else { "-new" };
    format!("{inode:x}-{len:x}-{seconds:x}.{nanoseconds:x}-{changed:x}.{changed_ns:x}{new}")
}

impl FileStorage {
    /// The file at `path`, following symbolic links as `open` does.
    ///
    /// # Errors
    /// What the system says, and [`Error::Wrong`] of what is no regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let name: Arc<str> = shown(path.as_ref().as_os_str()).into();
        let file = File::open(path).map_err(|error| Error::io(&name, error))?;
        Self::of(&name, file)
    }

    /// A file that is open already, called `name` in errors.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of(name: &Arc<str>, file: File) -> Result<Self, Error> {
        let metadata = file.metadata().map_err(|error| Error::io(name, error))?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() { "it is a directory" } else { "it is no regular file" };
            return Err(Error::Wrong { object: name.clone(), what: what.into() });
        }
        // SAFETY: a call on our own descriptor that only advises; a refusal changes nothing.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
        let version = FileVersion::of(&metadata);
        let meta = Meta {
            name: name.clone(),
            len: version.len,
            version: Some(told(&metadata, SystemTime::now()).into()),
            endpoint: metadata.dev(),
        };
        let (direct, overlaps, reads_direct, reads_cached) = Default::default();
        Ok(Self { meta, file, version, direct, overlaps, reads_direct, reads_cached })
    }

    /// Which ways were taken until now.
    pub fn reads(&self) -> FileReads {
        FileReads {
            direct: self.reads_direct.load(Ordering::Relaxed),
            cached: self.reads_cached.load(Ordering::Relaxed),
        }
    }

    /// The way past the cache, if this file has one.
    fn direct(&self) -> Option<&Direct> {
        let len = self.meta.len;
        let past = || (!room::is_kept(len)).then(|| Direct::of(&self.file, len)).flatten();
        self.direct.get_or_init(past).as_ref()
    }

    /// One read of the system, whichever way is right for it.
    fn read_some(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if let Some(direct) = self.direct()
            && let Some(read) = direct.read_some(&self.file, offset, into)
        {
            self.reads_direct.fetch_add(1, Ordering::Relaxed);
            return read;
        }
        self.reads_cached.fetch_add(1, Ordering::Relaxed);
        preadv(&self.file, offset, into)
    }

    /// As if the kernel could not keep it.
    #[cfg(test)]
    fn not_kept(self) -> Self {
        let direct = Direct::of(&self.file, self.meta.len);
        Self { direct: OnceLock::from(direct), ..self }
    }

    /// Whether the file still is what it was when it was opened.
    fn unchanged(&self) -> Result<(), Error> {
        let now = self.file.metadata().map_err(|error| self.failed(error))?;
        if FileVersion::of(&now) == self.version {
            Ok(())
        } else {
            Err(Error::Changed { object: self.meta.name.clone() })
        }
    }

    /// The system's error; of a network mount whose file was replaced, that it changed.
    fn failed(&self, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::ESTALE) => Error::Changed { object: self.meta.name.clone() },
            _ => Error::io(&self.meta.name, error),
        }
    }
}

impl Storage for FileStorage {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        let (mut rest, mut at) = (into, offset);
        IoSliceMut::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            until.check(&self.meta.name)?;
            match self.read_some(at, rest) {
                Ok(0) => {
                    self.unchanged()?;
                    let what = "it ended before its length".into();
                    return Err(Error::Wrong { object: self.meta.name.clone(), what });
                }
                Ok(bytes) => {
                    IoSliceMut::advance_slices(&mut rest, bytes);
                    at += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        if at > offset {
            // File systems that can be read past the cache do; and to ask would bring a page into it.
            let is_past = || self.reads_direct.load(Ordering::Relaxed) > 0;
            self.overlaps.get_or_init(|| is_past() || rings::overlap(&self.file, offset));
        }
        self.unchanged()
    }

    fn at_once(&self) -> usize {
        let overlaps = self.overlaps.get().is_some_and(|overlaps| *overlaps) && !rings::are_refused();
        if overlaps { rings::AT_ONCE } else { 1 }
    }

    fn read_each(&self, reads: &mut [ReadOne<'_, '_>], until: &Until) {
        for reads in reads.chunks_mut(self.at_once()) {
            match reads {
                [read] => read.outcome = self.read_at(read.offset, read.into, until),
                _ => self.read_together(reads, until),
            }
        }
    }
}

impl FileStorage {
    /// Makes some reads at once, and alone those that did not come whole so.
    fn read_together(&self, reads: &mut [ReadOne<'_, '_>], until: &Until) {
        let past: Vec<Option<&Direct>> = reads
            .iter()
            .map(|read| self.direct().filter(|direct| direct.takes_whole(&self.file, read.offset, read.into)))
            .collect();
        let mut came = vec![0; reads.len()];
        if until.check(&self.meta.name).is_ok() {
            let places = reads.iter_mut().zip(&past).map(|(read, past)| Place {
                file: past.map_or(&self.file, |direct| direct.file()),
                offset: read.offset,
                into: &mut *read.into,
            });
            came = rings::read_all(&mut places.collect::<Vec<_>>());
        }
        // Asked once, when all have come: that is later than each.
        let mut unchanged = None;
        for ((read, came), past) in reads.iter_mut().zip(came).zip(past) {
            let came = came as u64;
            if came == 0 || came != read.bytes() {
                read.outcome = self.read_at(read.offset, read.into, until);
                continue;
            }
            if let Some(direct) = past {
                direct.came(read.offset, came);
            }
            let counter = if past.is_some() { &self.reads_direct } else { &self.reads_cached };
            counter.fetch_add(1, Ordering::Relaxed);
            read.outcome = unchanged.get_or_insert_with(|| self.unchanged()).clone();
        }
    }
}

/// One `preadv`.
fn preadv(file: &File, offset: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let slices = into.len().min(SLICES_MAX) as libc::c_int;
    // SAFETY: an `IoSliceMut` has the layout of an `iovec` (std promises it); each names memory that we may write to and
    // that outlives the call, and there are at least `slices` of them.
    let read = unsafe { libc::preadv(file.as_raw_fd(), into.as_mut_ptr().cast(), slices, offset) };
    if read < 0 { Err(io::Error::last_os_error()) } else { Ok(read as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;

    fn read(storage: &FileStorage, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        let mut buffer = vec![0; bytes];
        let (first, second) = buffer.split_at_mut(bytes / 3);
        let mut slices = [IoSliceMut::new(first), IoSliceMut::new(second)];
        storage.read_at(offset, &mut slices, &Until::after(Duration::from_secs(9)))?;
        Ok(buffer)
    }

    /// A file of eight letters, open; and where it lies, for as long as its directory is kept.
    fn letters() -> (tempfile::TempDir, PathBuf, FileStorage) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("letters");
        std::fs::write(&path, b"abcdefgh").unwrap();
        let storage = FileStorage::open(&path).unwrap();
        (dir, path, storage)
    }

    #[test]
    fn a_file_is_read_and_its_change_is_an_error() {
        let (_dir, path, storage) = letters();
        assert_eq!(read(&storage, 2, 5).unwrap(), b"cdefg");
        assert_eq!(read(&storage, 8, 0).unwrap(), b"");
        std::thread::sleep(Duration::from_millis(20));
        File::options().append(true).open(&path).unwrap().write_all(b"ij").unwrap();
        let error = read(&storage, 2, 5).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        assert!(error.to_string().ends_with("letters: changed while it was read; open it again"));
    }

    /// A time of modification that is set back hides nothing from who opens the file; nor does one write that was not over at an earlier open.
    #[test]
    fn who_opens_a_file_is_told_of_changes_that_keep_its_time() {
        let version = |path: &PathBuf| FileStorage::open(path).unwrap().meta.version.unwrap();
        let (_dir, path, storage) = letters();
        assert!(storage.meta.version.as_ref().unwrap().ends_with("-new"), "it was written a moment ago");
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        let before = version(&path);
        assert!(!before.ends_with("-new") && before == version(&path));
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(&path, b"ABCDEFGH").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        assert_ne!(before, version(&path));
    }

    #[test]
    fn a_file_that_shrank_is_changed_too() {
        let (_dir, path, storage) = letters();
        File::options().write(true).open(&path).unwrap().set_len(3).unwrap();
        assert!(matches!(read(&storage, 2, 5), Err(Error::Changed { .. })));
    }

    #[test]
    fn a_replaced_file_stays_the_old_one() {
        let (_dir, path, storage) = letters();
        let new = path.with_file_name("new");
        std::fs::write(&new, b"ABCDEFGH").unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert_eq!(read(&storage, 0, 8).unwrap(), b"abcdefgh");
    }

    #[test]
    fn more_slices_than_one_call_takes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("many");
        let bytes: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mut buffer = vec![0; 5000];
        let mut slices: Vec<_> = buffer.chunks_mut(2).map(IoSliceMut::new).collect();
        let storage = FileStorage::open(&path).unwrap();
        storage.read_at(0, &mut slices, &Until::after(Duration::from_secs(9))).unwrap();
        assert_eq!(buffer, bytes);
    }

    #[test]
    fn reads_that_go_together_bring_what_each_would_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("many");
        let bytes: Vec<u8> = (0..1_000_003u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        let until = Until::after(Duration::from_secs(9));
        for kept in [true, false] {
            std::fs::write(&path, &bytes).unwrap();
            let storage = FileStorage::open(&path).unwrap();
            let storage = if kept { storage } else { storage.not_kept() };
            assert_eq!(storage.at_once(), 1, "nothing is known of it");
            assert_eq!(read(&storage, 0, 5).unwrap(), bytes[..5]);
            if storage.at_once() == 1 {
                println!("skipped: no io_uring here, or a file system whose reads do not overlap");
            }
            // 40 of them: more than a ring has room for; of other lengths, in two slices each, and one beyond the end.
            let places: Vec<_> = (0..40).map(|n| (n * 24_989, 3 + n * 613)).collect();
            let mut buffers: Vec<_> = places.iter().map(|(_, len)| vec![0; *len]).collect();
            let mut slices: Vec<_> = buffers
                .iter_mut()
                .map(|buffer| {
                    let (first, second) = buffer.split_at_mut(3);
                    [IoSliceMut::new(first), IoSliceMut::new(second)]
                })
                .collect();
            let name = storage.meta().name.clone();
            let mut reads: Vec<_> = slices
                .iter_mut()
                .zip(&places)
                .map(|(slices, (at, _))| ReadOne::new(&name, *at as u64, slices))
                .collect();
            storage.read_each(&mut reads, &until);
            let outcomes: Vec<_> = reads.into_iter().map(|read| read.outcome).collect();
            for (((at, len), outcome), buffer) in places.into_iter().zip(outcomes).zip(buffers) {
                if at + len > bytes.len() {
                    assert!(matches!(outcome, Err(Error::Wrong { .. })), "{outcome:?}");
                } else {
                    outcome.unwrap();
                    assert_eq!(buffer, bytes[at..][..len], "{at}");
                }
            }
            // Of a file that changed, none.
            std::thread::sleep(Duration::from_millis(20));
            File::options().append(true).open(&path).unwrap().write_all(b"x").unwrap();
            let mut buffers = [[0; 8]; 4];
            let mut slices = buffers.each_mut().map(|buffer| [IoSliceMut::new(buffer)]);
            let mut reads: Vec<_> =
                slices.iter_mut().map(|slices| ReadOne::new(&name, 4096, slices)).collect();
            storage.read_each(&mut reads, &until);
            assert!(reads.iter().all(|read| matches!(read.outcome, Err(Error::Changed { .. }))));
        }
    }

    #[test]
    fn what_is_no_file_is_said() {
        let error = FileStorage::open("/proc").unwrap_err();
        assert_eq!(error.to_string(), "/proc: the store answered wrongly: it is a directory");
        assert!(matches!(FileStorage::open("/nowhere/at/all"), Err(Error::NotFound { .. })));
    }
}
