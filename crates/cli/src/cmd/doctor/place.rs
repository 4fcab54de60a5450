//! Where the doctor looks: a file of its own without a name, or one that the user names, on whichever device that is.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bowwave_core::PAGE_SIZE;
use bowwave_io::cached_pages;

use crate::cmd::failure::{CANNOT_CREATE, Failure, NO_INPUT, UNAVAILABLE};

/// The file that is made: ten touches shall not fall into each other's windows of 8 MiB too often.
const BYTES: u64 = 256 << 20;
/// A named file must be as large as this.
pub(super) const BYTES_MIN: u64 = 64 << 20;
/// So much must stay free.
const FREE_MIN: u64 = 512 << 20;

pub(super) struct Place {
    file: File,
    pub(super) device: String,
    pub(super) file_system: String,
    pub(super) kernel: String,
    pub(super) read_ahead_kb: Option<u64>,
    pub(super) setting: Option<PathBuf>,
}

impl Place {
    pub(super) fn at(path: &Path) -> Result<Self, Failure> {
        let meta = fs::metadata(path).map_err(|error| Failure::on(path, "look at", &error))?;
        if in_memory(path) {
            let words = format_args!(
                "{} lives in memory and has no readahead; name a directory on a disk or a network mount",
                path.display()
            );
            return Err(Failure::new(UNAVAILABLE, words));
        }
        let file = if meta.is_dir() { make(path)? } else { named(path, &meta)? };
        let device = file.metadata().map_err(|error| Failure::on(path, "look at", &error))?.dev();
        let setting = setting(device);
        let read_ahead_kb = setting
            .as_deref()
            .and_then(|path| fs::read_to_string(path).ok())
            .and_then(|text| text.trim().parse().ok());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let (source, file_system) = mount(&mounts, device).unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string();
        Ok(Self { file, device: source, file_system, kernel, read_ahead_kb, setting })
    }

    /// How another process reaches the file.
    pub(super) fn reach(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Puts the file out of the page cache, and makes sure that it is.
    pub(super) fn make_cold(&self) -> Result<(), Failure> {
        for _ in 0..20 {
            // SAFETY: advice on a descriptor of ours.
            unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            match cached_bytes(&self.file) {
                Some(0) | None => return Ok(()),
                Some(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        }
        let words =
            "the page cache does not let go of the file: another program reads it; name a directory instead";
        Err(Failure::new(UNAVAILABLE, words))
    }
}

/// Bytes of the file that the page cache holds, where the kernel tells (Linux 6.5).
pub(super) fn cached_bytes(file: &File) -> Option<u64> {
    cached_pages(file, 0, 0).ok().map(|pages| pages * PAGE_SIZE)
}

/// A new file in `dir`, written out, without a name.
fn make(dir: &Path) -> Result<File, Failure> {
    let cannot = |error: &std::io::Error| {
        let words = format_args!(
            "cannot make a file in {}: {error}; name a directory that you may write to, or a large file to read",
            dir.display()
        );
        Failure::new(CANNOT_CREATE, words)
    };
    // First, for where nothing can be made there is no room either.
    let mut file = tempfile::tempfile_in(dir).map_err(|error| cannot(&error))?;
    let mut bytes = BYTES;
    while bytes > BYTES_MIN && free_bytes(dir).is_some_and(|free| free < bytes + FREE_MIN) {
        bytes /= 2;
    }
    if free_bytes(dir).is_some_and(|free| free < bytes + FREE_MIN) {
        let mib = (bytes + FREE_MIN) >> 20;
        let words = format_args!("{} has less than {mib} MiB free; name another directory", dir.display());
        return Err(Failure::new(UNAVAILABLE, words));
    }
    // Not zeros: a file system might compress them.
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    let mut block = vec![0u8; 1 << 20];
    for _ in 0..bytes >> 20 {
        for word in block.chunks_exact_mut(8) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            word.copy_from_slice(&x.to_ne_bytes());
        }
        file.write_all(&block).map_err(|error| cannot(&error))?;
    }
    file.sync_all().map_err(|error| cannot(&error))?;
    Ok(file)
}

fn named(path: &Path, meta: &fs::Metadata) -> Result<File, Failure> {
    if !meta.is_file() || meta.len() < BYTES_MIN {
        let words = format_args!("{} is no file of 64 MiB or more; name one, or a directory", path.display());
        return Err(Failure::new(NO_INPUT, words));
    }
    File::open(path).map_err(|error| Failure::on(path, "open", &error))
}

/// Whether the file system of `path` is the page cache itself.
fn in_memory(path: &Path) -> bool {
    const RAMFS_MAGIC: u32 = 0x8584_58f6;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    // SAFETY: all-zero bytes are a statfs, which the call fills; the path ends with a zero byte.
    unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &mut stat) == 0
            && [libc::TMPFS_MAGIC as u32, RAMFS_MAGIC].contains(&(stat.f_type as u32))
    }
}

fn free_bytes(dir: &Path) -> Option<u64> {
    let path = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: all-zero bytes are a statvfs, which the call fills; the path ends with a zero byte.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut stat) == 0).then(|| stat.f_bavail * stat.f_frsize)
    }
}

/// Where the device's read-ahead is set: of the disk that a partition is on, or of a file system that has its own.
fn setting(device: u64) -> Option<PathBuf> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let block = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok();
    let of_block = |block: &PathBuf| {
        let disk = if block.join("partition").exists() { block.parent()? } else { block };
        Some(Path::new("/sys/block").join(disk.file_name()?).join("queue/read_ahead_kb"))
    };
    let bdi = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    [block.as_ref().and_then(of_block), Some(bdi)].into_iter().flatten().find(|path| path.exists())
}

/// Source and type of the mount of this device.
fn mount(mountinfo: &str, device: u64) -> Option<(String, String)> {
    let wanted = format!("{}:{}", libc::major(device), libc::minor(device));
    let line = mountinfo.lines().find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    let mut after = line.split_once(" - ")?.1.split(' ');
    let (kind, source) = (after.next()?.to_string(), after.next()?.to_string());
    Some((source, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_device() {
        let text = "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:40 / /mnt rw shared:1 - fuse.x slow rw";
        assert_eq!(mount(text, libc::makedev(0, 40)), Some(("slow".into(), "fuse.x".into())));
        assert_eq!(mount(text, libc::makedev(254, 0)), Some(("/dev/vda".into(), "ext4".into())));
        assert_eq!(mount(text, libc::makedev(9, 9)), None);
    }

    #[test]
    fn memory_is_no_place_to_look_at() {
        if in_memory(Path::new("/dev/shm")) {
            let failure = Place::at(Path::new("/dev/shm")).err().expect("no readahead");
            assert!(failure.sentence.contains("lives in memory"), "{}", failure.sentence);
        }
        assert!(!in_memory(Path::new("/proc")));
    }

    #[test]
    fn where_nothing_can_be_made_that_is_the_reason() {
        let failure = Place::at(Path::new("/proc")).err().expect("no file can be made");
        assert!(failure.sentence.contains("cannot make a file in /proc"), "{}", failure.sentence);
    }

    #[test]
    fn nothing_is_left_behind() {
        let dir = tempfile::tempdir_in(".").unwrap();
        match Place::at(dir.path()) {
            Ok(place) => {
                assert!(fs::metadata(place.reach()).unwrap().len() >= BYTES_MIN);
                assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
            }
            Err(failure) => println!("skipped: {}", failure.sentence),
        }
    }
}
