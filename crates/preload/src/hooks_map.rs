//! The calls that map files, move and unmap them, and the program's own advice on them. What is noted of them: `maps`.
//!
//! Each is performed as it came. A mapping is noted after it was made and before its address is returned, so that nobody
//! else can have touched it; one is forgotten before it is unmapped, since afterwards its addresses may be anybody's.

use core::ffi::{c_int, c_uint, c_void};
use libc::{off_t, size_t};

use crate::hooks_fd::hook;
use crate::maps::{self, Range};
use crate::process;
use crate::real::{self, or_raw};
use crate::sys;

fn note(at: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) {
    // Anonymous memory where nothing can have been is no business of ours: the way of every large malloc.
    let nothing = flags & libc::MAP_ANONYMOUS != 0 && flags & libc::MAP_FIXED == 0;
    if at != libc::MAP_FAILED && !nothing && process::segment().is_some() {
        maps::mapped(Range::new(at.addr(), len), prot, flags, fd, offset.cast_unsigned());
    }
}

/// A pointer from the number that a plain system call gives.
macro_rules! map_hook {
    ($(#[doc = $doc:literal] fn $name:ident;)*) => {
        $(
            #[doc = $doc]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name(
                address: *mut c_void,
                len: size_t,
                prot: c_int,
                flags: c_int,
                fd: c_int,
                offset: off_t,
            ) -> *mut c_void {
                // SAFETY: the program's own arguments, for the function that it meant.
                let at = unsafe {
                    match real::$name::next() {
                        Some(next) => next(address, len, prot, flags, fd, offset),
                        None => core::ptr::with_exposed_provenance_mut(sys::as_libc(
                            libc::SYS_mmap,
                            real::words!(address, len, prot, flags, fd, offset),
                        ) as usize),
                    }
                };
                note(at, len, prot, flags, fd, offset);
                at
            }
        )*
    };
}

map_hook! {
    /// A file in memory, or memory.
    fn mmap;
    /// The same under its large-file name.
    fn mmap64;
}

hook! {
    /// Forgotten first: afterwards the addresses may be another thread's.
    fn munmap(address: *mut c_void, len: size_t) -> c_int = libc::SYS_munmap, |call| {
        if process::segment().is_some() {
            maps::unmapped(Range::new(address.addr(), len));
        }
        call()
    };
    /// Advice of the program's own: the kernel's way with the range, from now on.
    fn madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int = libc::SYS_madvise, |call| {
        let populates = matches!(advice, libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE);
        if populates && process::segment().is_some() {
            maps::populating(Range::new(address.addr(), len));
        }
        let result = call();
        if result == 0 && process::segment().is_some() {
            maps::advised(Range::new(address.addr(), len), advice);
        }
        result
    };
    /// The same; returns the error number.
    fn posix_madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int = real::LOOK_UP, |call| {
        let result = call();
        if result == 0 && process::segment().is_some() {
            maps::advised(Range::new(address.addr(), len), advice);
        }
        result
    };
    /// Touches all of it.
    fn mlock(address: *const c_void, len: size_t) -> c_int = libc::SYS_mlock, |call| {
        if process::segment().is_some() {
            maps::populating(Range::new(address.addr(), len));
        }
        call()
    };
    /// Touches all of it, or what is touched later.
    fn mlock2(address: *const c_void, len: size_t, flags: c_uint) -> c_int = real::LOOK_UP, |call| {
        if process::segment().is_some() {
            maps::populating(Range::new(address.addr(), len));
        }
        call()
    };
    /// Touches all that there is.
    fn mlockall(flags: c_int) -> c_int = libc::SYS_mlockall, |call| {
        if process::segment().is_some() {
            maps::populating_all();
        }
        call()
    };
}

/// Variadic in C; a fixed fifth argument is the same thing.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: size_t,
    len: size_t,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    // SAFETY: the program's own arguments, for the function that it meant.
    let call = || unsafe {
        match real::mremap::next() {
            Some(next) => next(old, old_len, len, flags, new),
            None => core::ptr::with_exposed_provenance_mut(sys::as_libc(
                libc::SYS_mremap,
                real::words!(old, old_len, len, flags, new),
            ) as usize),
        }
    };
    let mut at = call();
    // SAFETY: libc gives each thread an errno of its own.
    let in_pieces = at == libc::MAP_FAILED && unsafe { *libc::__errno_location() } == libc::EFAULT;
    if in_pieces && process::segment().is_some() && maps::made_whole(Range::new(old.addr(), old_len)) {
        at = call();
    }
    if at != libc::MAP_FAILED && process::segment().is_some() {
        maps::moved(Range::new(old.addr(), old_len), Range::new(at.addr(), len));
    }
    at
}
