//! The environment that this process passes on, read and changed without libc's functions and without allocation.
//!
//! ```text
//!   LD_PRELOAD=/opt/a.so:/tmp/x/libbowwave.so      dormant: LD_PRELOAD=/opt/a.so
//!   BOWWAVE_SEGMENT=/dev/shm/bowwave-7/segment              BOWWAVE_SEGMENT=
//! ```
//!
//! Our name is taken out of LD_PRELOAD in the string, to which the program may have pointers of its own, or where nobody may write that (a
//! literal given to `putenv`) in a copy that takes its place.

use bowwave_wire::ENV_SEGMENT;
use core::ffi::{CStr, c_char};

use crate::sys;

#[link(name = "c")]
unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Every string of the environment. Not through `getenv`, which some programs (bash) replace with their own.
fn variables() -> impl Iterator<Item = *mut u8> {
    // SAFETY: null, or an array that a null ends, as every exec makes it.
    unsafe { variables_of(environ) }
}

/// Every string of a list: null, or an array that a null ends.
unsafe fn variables_of(list: *mut *mut c_char) -> impl Iterator<Item = *mut u8> {
    let mut next = list;
    core::iter::from_fn(move || {
        // SAFETY: the caller's; we stop at its end.
        let variable = if next.is_null() { core::ptr::null_mut() } else { unsafe { next.read() } };
        if variable.is_null() {
            return None;
        }
        next = next.wrapping_add(1);
        Some(variable.cast())
    })
}

/// The value of an environment variable, where it lies.
pub(crate) fn variable(name: &str) -> Option<&'static CStr> {
    // SAFETY: each is a C string that lives as long as the environment that the process was started with.
    variables().find_map(|text| unsafe { Some(CStr::from_ptr(value_of(text, name)?.cast())) })
}

/// Takes our library out of LD_PRELOAD and empties the segment's path, in what the next exec passes on.
pub(crate) fn leave_no_name() {
    // SAFETY: the list of every program; its name is libc's, and every program may set it.
    unsafe {
        if let Some(copy) = leave_no_name_in(environ) {
            environ = copy;
        }
    }
}

/// The same in a list of variables that a null ends; returns the copy that was made of it where it cannot be written.
pub(crate) unsafe fn leave_no_name_in(mut list: *mut *mut c_char) -> Option<*mut *mut c_char> {
    let mut copy = None;
    // SAFETY: the caller's list. What is written was found to be writable, or is a copy of our own.
    for (index, text) in unsafe { variables_of(list) }.enumerate() {
        unsafe {
            if !names_us(text) {
                continue;
            }
            let len = CStr::from_ptr(text.cast()).count_bytes() + 1;
            if sys::writable(text.addr(), len) {
                forget_us(text);
                continue;
            }
            if !sys::writable(list.wrapping_add(index).addr(), size_of::<*mut c_char>()) {
                let len = (variables_of(list).count() + 1) * size_of::<*mut c_char>();
                list = copied(list.cast(), len)?.cast();
                copy = Some(list);
            }
            let text = copied(text, len)?;
            forget_us(text);
            list.add(index).write(text.cast());
        }
    }
    copy
}

/// Whether the file is there that LD_PRELOAD names last, which is where `bowwave run` puts ours, and where its path ends as the
/// kernel wants it. If that is not ours, nobody asks.
pub(crate) fn is_library_there() -> bool {
    let Some(list) = variable("LD_PRELOAD").map(CStr::to_bytes) else { return true };
    let name = list.rsplit(|byte| matches!(byte, b':' | b' ')).next().unwrap_or_default();
    // SAFETY: a C string, up to whose end the name goes.
    !is_ours(name)
        || unsafe {
            let words = [libc::AT_FDCWD as usize, name.as_ptr().addr(), libc::R_OK as usize, 0, 0, 0];
            sys::raw(libc::SYS_faccessat, words) == 0
        }
}

unsafe fn names_us(text: *mut u8) -> bool {
    // SAFETY: a C string, read to its end at most.
    unsafe {
        if let Some(list) = value_of(text, "LD_PRELOAD") {
            let entries = CStr::from_ptr(list.cast()).to_bytes();
            return entries.split(|byte| matches!(byte, b':' | b' ')).any(is_ours);
        }
        value_of(text, ENV_SEGMENT).is_some_and(|path| path.read() != 0)
    }
}

unsafe fn forget_us(text: *mut u8) {
    // SAFETY: a C string that may be written.
    unsafe {
        if let Some(list) = value_of(text, "LD_PRELOAD") {
            drop_ours(list);
        } else if let Some(path) = value_of(text, ENV_SEGMENT) {
            path.write(0);
        }
    }
}

/// A copy of `len` bytes, which stays.
unsafe fn copied(from: *const u8, len: usize) -> Option<*mut u8> {
    let to: *mut u8 = core::ptr::with_exposed_provenance_mut(sys::memory(len)?);
    // SAFETY: as many bytes are there, and room for them.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
    Some(to)
}

/// What stands behind `name=` in `text`.
unsafe fn value_of(text: *mut u8, name: &str) -> Option<*mut u8> {
    let mut at = text;
    for byte in name.bytes().chain([b'=']) {
        // SAFETY: stops at the first difference, so at the string's end at the latest.
        if unsafe { at.read() } != byte {
            return None;
        }
        at = at.wrapping_add(1);
    }
    Some(at)
}

/// Closes the gaps that entries of ours leave in a list separated by colons or spaces.
unsafe fn drop_ours(list: *mut u8) {
    // SAFETY: reads up to the terminator; writes never overtake reads.
    unsafe {
        let (mut from, mut to) = (list, list);
        while from.read() != 0 {
            let mut end = from;
            while !matches!(end.read(), 0 | b':' | b' ') {
                end = end.add(1);
            }
            let last = end.read() == 0;
            let len = end.offset_from(from) as usize;
            if !is_ours(core::slice::from_raw_parts(from, len)) {
                core::ptr::copy(from, to, len + usize::from(!last));
                to = to.add(len + usize::from(!last));
            }
            from = if last { end } else { end.add(1) };
        }
        to.write(0);
    }
}

/// Whether a file name of this library, as `bowwave run` and cargo call it, ends the path.
fn is_ours(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"libbowwave"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(list: &str) -> String {
        let mut bytes = list.as_bytes().to_vec();
        bytes.push(0);
        // SAFETY: terminated.
        unsafe { drop_ours(bytes.as_mut_ptr()) };
        CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn only_our_name_leaves_the_list() {
        assert_eq!(dropped("/c/bowwave/libbowwave-0.1.0-9f.so"), "");
        assert_eq!(dropped("/c/libbowwave_preload.so:/usr/lib/libasan.so"), "/usr/lib/libasan.so");
        assert_eq!(dropped("a.so:/c/libbowwave.so:b.so"), "a.so:b.so");
        assert_eq!(dropped("a.so b.so"), "a.so b.so");
        assert_eq!(dropped(""), "");
    }
}
