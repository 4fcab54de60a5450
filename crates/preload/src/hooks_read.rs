//! The calls that read: each is performed as it came, under [`observe`].
//!
//! `read` and `readv` start at the position of the description, `pread` and its kin at their own offset; `preadv2` with
//! offset -1 is a `readv`. `sendfile`, `copy_file_range` and `splice` read their input file; only that side is watched.

use core::ffi::{c_int, c_uint, c_void};
use libc::{iovec, loff_t, off_t, size_t, ssize_t};

use crate::observe::{Place, is_watched, observe, passes_at, passes_here, passes_unseen};
use crate::real::{self, or_raw};
use crate::sys;

/// Entries that the kernel accepts in one call; more are its to refuse.
const IOV_MAX: c_int = 1024;

/// Bytes that `iov` asks for; 0 where the kernel will refuse it.
unsafe fn total(fd: c_int, iov: *const iovec, count: c_int) -> usize {
    if !(1..=IOV_MAX).contains(&count) || !is_watched(fd) || !sys::readable(iov.cast(), 2 * count as usize) {
        return 0;
    }
    // SAFETY: the kernel has just read of each of its pages.
    let parts = unsafe { core::slice::from_raw_parts(iov, count as usize) };
    parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.iov_len))
}

/// Where a call with an offset pointer starts: there, or at the position if there is none.
unsafe fn pointed(fd: c_int, offset: *const i64) -> Option<Place> {
    if offset.is_null() {
        return Some(Place::Position);
    }
    // SAFETY: the kernel has just read it.
    (is_watched(fd) && sys::readable(offset.cast(), 1)).then(|| Place::At(unsafe { offset.read_unaligned() }))
}

/// `$passes` is the short way: where it says yes, the arguments are still in their registers and the real function is
/// jumped to. Everything else is judged out of line.
macro_rules! hook {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $number:expr,
        $reads:expr, unless $passes:expr;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                if $passes && let Some(next) = real::$name::next() {
                    // SAFETY: the program's own arguments, for the function that it meant.
                    return unsafe { next($($arg),*) };
                }
                #[inline(never)]
                unsafe extern "C" fn judged($($arg: $ty),*) -> $ret {
                    // SAFETY: as above.
                    let mut call = || unsafe { or_raw!($name($($arg),*), $number) };
                    // SAFETY: as above; pointers are read only after the kernel could.
                    let reads: Option<(c_int, Place, usize)> = unsafe { $reads };
                    match reads {
                        Some((fd, place, len)) => observe(fd, place, len, &mut call),
                        None => call(),
                    }
                }
                // SAFETY: as above.
                unsafe { judged($($arg),*) }
            }
        )*
    };
}

#[allow(
    unused_unsafe,
    reason = "the macro wraps every description of a read, also those that read no memory"
)]
mod hooks {
    use super::*;

    hook! {
        fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = libc::SYS_read,
            Some((fd, Place::Position, len)), unless passes_here(fd, len);
        fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t = libc::SYS_read,
            Some((fd, Place::Position, len)), unless passes_here(fd, len);
        fn pread(fd: c_int, to: *mut c_void, len: size_t, offset: off_t) -> ssize_t = libc::SYS_pread64,
            Some((fd, Place::At(offset), len)), unless passes_at(fd, offset, len);
        fn pread64(fd: c_int, to: *mut c_void, len: size_t, offset: off_t) -> ssize_t = libc::SYS_pread64,
            Some((fd, Place::At(offset), len)), unless passes_at(fd, offset, len);
        fn __pread_chk(fd: c_int, to: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t
            = libc::SYS_pread64, Some((fd, Place::At(offset), len)), unless passes_at(fd, offset, len);
        fn __pread64_chk(fd: c_int, to: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t
            = libc::SYS_pread64, Some((fd, Place::At(offset), len)), unless passes_at(fd, offset, len);

        fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = real::LOOK_UP,
            Some((fd, Place::Position, total(fd, iov, count))), unless passes_unseen();
        fn preadv(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t = real::LOOK_UP,
            Some((fd, Place::At(offset), total(fd, iov, count))), unless passes_unseen();
        fn preadv64(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t = real::LOOK_UP,
            Some((fd, Place::At(offset), total(fd, iov, count))), unless passes_unseen();
        fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t
            = real::LOOK_UP, Some((fd, at_or_position(offset), total(fd, iov, count))), unless passes_unseen();
        fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t
            = real::LOOK_UP, Some((fd, at_or_position(offset), total(fd, iov, count))), unless passes_unseen();

        fn sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t = real::LOOK_UP,
            pointed(from, offset).map(|place| (from, place, len)), unless passes_unseen();
        fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t = real::LOOK_UP,
            pointed(from, offset).map(|place| (from, place, len)), unless passes_unseen();
        fn copy_file_range(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, len: size_t,
            flags: c_uint) -> ssize_t = real::LOOK_UP,
            pointed(from, from_offset).map(|place| (from, place, len)), unless passes_unseen();
        fn splice(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, len: size_t,
            flags: c_uint) -> ssize_t = real::LOOK_UP,
            pointed(from, from_offset).map(|place| (from, place, len)), unless passes_unseen();
    }

    fn at_or_position(offset: off_t) -> Place {
        if offset == -1 { Place::Position } else { Place::At(offset) }
    }
}
