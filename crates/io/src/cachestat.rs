//! What the kernel's page cache holds of a file (`cachestat`, Linux 6.5).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The same number on all machines that Rust knows; libc does not name it on most.
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of `bytes` bytes from `offset` on that have a frame, those too that are still being read in; of the whole rest of the
/// file where `bytes` is 0. O(pages that are cached).
///
/// # Errors
/// What the system says: no such call before Linux 6.5, not of this kind of file, or not of one that is neither ours nor writable.
pub fn cached_pages(file: &File, offset: u64, bytes: u64) -> io::Result<u64> {
    let (range, mut counts) = ([offset, bytes], [0u64; 5]);
    // SAFETY: the kernel's `cachestat_range` is these two numbers, its `cachestat` these five; both outlive the call.
    let failed =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
    if failed == 0 { Ok(counts[0]) } else { Err(io::Error::last_os_error()) }
}
