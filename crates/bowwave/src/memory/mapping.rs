//! Memory from the system: zero, not there until it is touched, and given back where it is not needed.

use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// Types of which all bits zero are a value, and that are shared by reference.
///
/// # Safety
/// All bits zero must be a valid value of the type.
pub(super) unsafe trait Zero: Sync {}

/// A region of anonymous memory.
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the region belongs to this value alone; who writes where is the business of its users.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `bytes`; nothing of it takes memory yet.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1);
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a fresh anonymous mapping, wherever the system likes.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, bytes })
    }

    /// Large pages where the system has them: a copy from a frame then costs no walk of a page table.
    pub(super) fn prefer_large_pages(&self) {
        // SAFETY: advice about our own mapping.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes, "inside the mapping");
        // SAFETY: inside the mapping, as just asserted.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Gives the memory of a part back; it is zero when it is touched again.
    pub(super) fn release(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes, "inside the mapping");
        // SAFETY: inside our own anonymous mapping; callers own the part.
        unsafe { libc::madvise(self.at(offset).cast(), bytes, libc::MADV_DONTNEED) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A slice of zeroed `T` that takes memory only where it is touched.
pub(super) struct Zeroed<T: Zero> {
    mapping: Mapping,
    count: usize,
    of: PhantomData<T>,
}

impl<T: Zero> Zeroed<T> {
    pub(super) fn new(count: usize) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096 && !std::mem::needs_drop::<T>()) };
        Ok(Self { mapping: Mapping::new(count * size_of::<T>())?, count, of: PhantomData })
    }
}

impl<T: Zero> Deref for Zeroed<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `count` of them, page aligned, zero at first, and `T` allows that.
        unsafe { std::slice::from_raw_parts(self.mapping.at(0).cast(), self.count) }
    }
}
