//! Reading past the kernel's page cache (`O_DIRECT`): when that pays, and how an odd tail is read.
//!
//! What is read here is kept in frames of the reader's own. In the kernel's cache it lies a second time; that is worth its memory where
//! the kernel can keep it, for the next program or the next run, and is in the way where it cannot. So:
//!
//! ```text
//!   a file that the kernel can keep (`room`)                               through the cache, always
//!   a larger one, and
//!     the system names no alignment (statx), or more than a page           through the cache, always
//!     the kernel refused a read, or cannot say what it has cached          through the cache, from then on
//!     slices or an end do not lie on blocks, and it is not the file's end  through the cache
//!     the kernel has a page of it (cachestat)                              through the cache: no device is waited for
//!     all of it was read past the cache before (`seen`)                    through the cache: our memory did not hold it,
//!                                                                          the kernel's may
//!     otherwise                                                            past the cache: 1 MiB in 0.5 to 0.7 of the time
//!                                                                          and 0.15 of the processor's
//! ```
//!
//! A network or FUSE mount names no alignment. Nobody looks at names or paths.
//!
//! The bytes are those of the cache: before it reads from the device, the kernel writes back what is dirty there; a writer sets the
//! time of change before he writes, so the `fstat` after the read sees him whichever way was taken.
//!
//! Worked example (test `a_tail_comes_in_the_same_request`), a file of 10,000 bytes, blocks of 512, one slice:
//!
//! ```text
//!   file    0 ........................ 9728 ....... 10,000
//!   slice   [ 9728 bytes, from the device  |  272  ]
//!   block                             [ 272 | 240 that do not exist ]      read with it, copied into the slice
//! ```

use super::seen::Seen;
use super::{SLICES_MAX, preadv};
use crate::cached_pages;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

/// The largest block: a page.
const BLOCK_MAX: usize = 4096;

/// A file's second descriptor, which goes past the cache.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    len: u64,
    alignment: Alignment,
    refused: AtomicBool,
    seen: Seen,
}

/// What must lie on multiples of what, in bytes.
#[derive(Clone, Copy, Debug)]
struct Alignment {
    memory: usize,
    block: usize,
}

/// Memory that every block fits into.
#[repr(align(4096))]
struct Block([u8; BLOCK_MAX]);

impl Direct {
    /// For a file of `len` bytes; `None` where the system has no such way, or descriptors are scarce.
    pub(super) fn of(file: &File, len: u64) -> Option<Self> {
        let alignment = alignment(file)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let second = File::options().read(true).custom_flags(libc::O_DIRECT).open(path).ok()?;
        let place = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
        let is_same = place(file)? == place(&second)?;
        let seen = Seen::new(len);
        (is_same && !is_scarce(&second)).then_some(Self {
            file: second,
            len,
            alignment,
            refused: AtomicBool::new(false),
            seen,
        })
    }

    /// Reads some bytes past the cache, if that is the way for them; `file` is the descriptor that goes through it.
    pub(super) fn read_some(
        &self,
        file: &File,
        offset: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Option<io::Result<usize>> {
        let slices = into.len().min(SLICES_MAX - 1);
        let into = &mut into[..slices];
        let takes = self.takes(file, offset, into);
        let read = takes.and_then(|takes| if takes { self.read(offset, into).map(Some) } else { Ok(None) });
        match read {
            Ok(read) => {
                let read = read?;
                self.came(offset, read as u64);
                Some(Ok(read))
            }
            Err(error) if is_refusal(&error) => {
                self.refused.store(true, Ordering::Relaxed);
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// The descriptor that goes past the cache.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether this is the way for a read, and it ends on a block.
    pub(super) fn takes_whole(&self, file: &File, offset: u64, into: &[IoSliceMut<'_>]) -> bool {
        let is_even = into.last().is_some_and(|last| last.len().is_multiple_of(self.alignment.block));
        is_even && self.takes(file, offset, into).unwrap_or(false)
    }

    /// These bytes were read past the cache.
    pub(super) fn came(&self, offset: u64, bytes: u64) {
        self.seen.add(offset, bytes);
    }

    /// Whether this is the way for a read.
    fn takes(&self, file: &File, offset: u64, into: &[IoSliceMut<'_>]) -> io::Result<bool> {
        let bytes = into.iter().map(|slice| slice.len() as u64).sum();
        let wanted = !self.refused.load(Ordering::Relaxed)
            && self.fits(offset, bytes, into)
            && !self.seen.has_all(offset, bytes);
        Ok(wanted && cached_pages(file, offset, bytes)? == 0)
    }

    fn fits(&self, offset: u64, bytes: u64, into: &[IoSliceMut<'_>]) -> bool {
        let Alignment { memory, block } = self.alignment;
        let Some((last, others)) = into.split_last() else { return false };
        let is_end = offset.checked_add(bytes) == Some(self.len);
        offset.is_multiple_of(block as u64)
            && into.iter().all(|slice| slice.as_ptr().addr().is_multiple_of(memory))
            && others.iter().all(|slice| slice.len().is_multiple_of(block))
            && (is_end || last.len().is_multiple_of(block))
    }

    /// One `preadv`; with a block of ours behind the slices where the last does not end on one.
    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let size = self.alignment.block;
        let Some((last, others)) = into.split_last_mut() else { return Ok(0) };
        let whole = last.len() / size * size;
        if whole == last.len() {
            return preadv(&self.file, offset, into);
        }
        let mut block = Block([0; BLOCK_MAX]);
        let (whole, tail) = last.split_at_mut(whole);
        let before = others.iter().map(|slice| slice.len()).sum::<usize>() + whole.len();
        let others = others.iter_mut().map(|slice| &mut **slice);
        let all = others.chain([whole, &mut block.0[..size]]).filter(|slice| !slice.is_empty());
        let read = preadv(&self.file, offset, &mut all.map(IoSliceMut::new).collect::<Vec<_>>())?;
        let end = read.saturating_sub(before).min(tail.len());
        tail[..end].copy_from_slice(&block.0[..end]);
        Ok(read.min(before + end))
    }
}

/// What the system asks of reads past the cache; `None` where it names nothing, or what frames do not do.
fn alignment(file: &File) -> Option<Alignment> {
    // SAFETY: all zero is a valid `statx`; the path is empty and ends in NUL, which means the descriptor itself.
    let stat = unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        let (path, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
        let failed = libc::statx(file.as_raw_fd(), path, flags, libc::STATX_DIOALIGN, &raw mut stat);
        (failed == 0).then_some(stat)?
    };
    let (memory, block) = (stat.stx_dio_mem_align as usize, stat.stx_dio_offset_align as usize);
    let is_usable = |bytes: usize| bytes.is_power_of_two() && bytes <= BLOCK_MAX;
    let is_named = stat.stx_mask & libc::STATX_DIOALIGN != 0;
    (is_named && is_usable(memory) && is_usable(block)).then_some(Alignment { memory, block })
}

/// Whether more than half of the descriptors that the process may have are taken: the lowest free number is given out first.
fn is_scarce(file: &File) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is plain numbers and outlives the call.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    failed != 0 || file.as_raw_fd() as u64 > limit.rlim_cur / 2
}

/// No such call, not of this file, not for us, not so.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM))
}

#[cfg(test)]
mod tests;
