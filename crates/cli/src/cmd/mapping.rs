//! A file, mapped as a whole: what `bench`, `doctor` and `lab judge` touch.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;

/// A mapping of a whole file; given back when it is dropped. Nobody may shorten the file meanwhile: a touch behind its end
/// kills the process.
pub(crate) struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: an address that lives as long as this; what is behind it is read and written as volatile bytes only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd` to be read; or with `copies` to be written too, as copies of one's own.
    pub(crate) fn of(fd: RawFd, len: usize, copies: bool) -> io::Result<Self> {
        let (protection, flags) = match copies {
            false => (libc::PROT_READ, libc::MAP_SHARED),
            true => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE),
        };
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at: NonNull::new(at.cast()).expect("mmap never returns null"), len })
    }

    /// Tells the kernel how it will be touched: a `MADV_` value.
    pub(crate) fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: of the mapping made above.
        let failed = unsafe { libc::madvise(self.at.as_ptr().cast(), self.len, advice) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Bytes that are mapped.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of `bytes` bytes from `place` on, which lie in the mapping.
    pub(crate) fn at(&self, place: usize, bytes: usize) -> *mut u8 {
        assert!(place.checked_add(bytes).is_some_and(|end| end <= self.len), "byte {place} lies in the file");
        // SAFETY: inside the mapping.
        unsafe { self.at.as_ptr().add(place) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made above; addresses in it live no longer than this.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}
