//! Memory that is shared with the kernel or with other programs through a descriptor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A shared mapping of a descriptor; given back when it is dropped. Who holds it says why what he reads and writes there is sound.
pub(crate) struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: an address that lives as long as this; nothing is done with what lies there.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from byte `from` on, to be read; or with `writes` to be written too.
    pub(crate) fn of(fd: BorrowedFd<'_>, len: usize, from: usize, writes: bool) -> io::Result<Self> {
        let rights = libc::PROT_READ | if writes { libc::PROT_WRITE } else { 0 };
        let from = libc::off_t::try_from(from).map_err(io::Error::other)?;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), len, rights, libc::MAP_SHARED, fd.as_raw_fd(), from) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at: NonNull::new(at.cast()).expect("mmap never returns null"), len })
    }

    /// `len` bytes of zeros that only we have.
    pub(crate) fn of_nothing(len: usize) -> io::Result<Self> {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at: NonNull::new(at.cast()).expect("mmap never returns null"), len })
    }

    /// Where it lies: aligned to a page.
    pub(crate) fn at(&self) -> NonNull<u8> {
        self.at
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length; addresses in it live no longer than this.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}
