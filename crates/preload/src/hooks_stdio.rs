//! Streams: `fread`, `fgets`, `getline`, `getc` and their kin read inside glibc, where no hook reaches.
//!
//! But a stream's buffer is public (`struct_FILE.h`; the `getc` macro of old programs reads it), so before such a call we
//! see whether it will have to refill: only then is the position asked and the refill told as a read.
//!
//! ```text
//!   buf_base                  read_ptr        read_end = buf_end        file position
//!   | handed out already ..... | still to come |                        = what the next refill reads
//!
//!   fread of 10, 300 buffered:         no refill, nothing to do
//!   fread of 40,000, 300 buffered:     the remaining 39,700 are read in whole buffers of 4096: 40,960 bytes
//!   fgets with a newline buffered:     no refill
//! ```
//!
//! A line longer than a buffer refills more often than we tell; it costs time, nothing else. What is read here is a hint
//! taken without the stream's lock: each pointer is checked against the buffer's bounds.
#![allow(non_snake_case, reason = "hooks are named as in C")]

use core::ffi::{c_char, c_int, c_long, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::{FILE, off_t, size_t, ssize_t};

use crate::observe::{Place, is_watched, observe};
use crate::real;
use crate::state;
use crate::sys;

/// glibc's buffer where the file does not say better (`st_blksize`).
const BUFFER_BYTES: usize = 4096;
/// `_IO_NO_READS`: opened for writing only.
const NO_READS: c_int = 0x0004;
/// `_IO_IN_BACKUP`: the pointers are those of characters pushed back.
const IN_BACKUP: c_int = 0x0100;
/// `_IO_CURRENTLY_PUTTING`: written to last; a read flushes first.
const PUTTING: c_int = 0x0800;

/// The beginning of glibc's `struct _IO_FILE`, unchanged since 1999.
#[repr(C)]
struct Layout {
    flags: c_int,
    read_ptr: *const u8,
    read_end: *const u8,
    read_base: *const u8,
    write_base: *const u8,
    write_ptr: *const u8,
    write_end: *const u8,
    buf_base: *const u8,
    buf_end: *const u8,
    save_base: *const u8,
    backup_base: *const u8,
    save_end: *const u8,
    markers: *const c_void,
    chain: *const c_void,
    fileno: c_int,
    flags2: c_int,
    old_offset: c_long,
    cur_column: u16,
    vtable_offset: i8,
    shortbuf: [u8; 1],
    lock: *const c_void,
    /// Where glibc believes the descriptor's position to be; -1 before the first seek.
    offset: i64,
}

/// Whether this libc is glibc, and streams are laid out as above.
static IS_GLIBC: AtomicBool = AtomicBool::new(false);

/// Called once by the constructor.
pub(crate) fn begin() {
    IS_GLIBC.store(real::gnu_get_libc_version::next().is_some(), Relaxed);
}

/// What a stream has buffered.
#[derive(Clone, Copy)]
struct Stream {
    fd: c_int,
    unread: *const u8,
    unread_len: usize,
    buffer_len: usize,
    /// Position of the descriptor, if glibc knows it.
    position: Option<u64>,
}

macro_rules! field {
    ($fp:expr, $field:ident) => {
        ptr::read_volatile(&raw const (*$fp.cast::<Layout>()).$field)
    };
}

impl Stream {
    /// A stream that reads from a descriptor which is watched, or may become so.
    #[inline]
    fn of(fp: *mut FILE) -> Option<Self> {
        if fp.is_null() || state::segment().is_none() || !IS_GLIBC.load(Relaxed) {
            return None;
        }
        // SAFETY: the program hands this stream to glibc, which reads the same words; a racing writer changes pointers,
        // not the place of the struct.
        unsafe {
            let fd = field!(fp, fileno);
            if fd < 0 || !is_watched(fd) || field!(fp, flags) & (NO_READS | IN_BACKUP | PUTTING) != 0 {
                return None;
            }
            let (unread, end) = (field!(fp, read_ptr), field!(fp, read_end));
            let (base, limit) = (field!(fp, buf_base), field!(fp, buf_end));
            let inside = base <= unread && unread <= end && end <= limit;
            if !inside && !base.is_null() {
                return None;
            }
            let buffer_len = if base.is_null() { BUFFER_BYTES } else { limit as usize - base as usize };
            let unread_len = if base.is_null() { 0 } else { end as usize - unread as usize };
            let position = u64::try_from(field!(fp, offset)).ok();
            Some(Self { fd, unread, unread_len, buffer_len, position })
        }
    }

    /// Whether the first `limit` unread bytes contain `delimiter`.
    #[inline]
    fn has(&self, delimiter: c_int, limit: usize) -> bool {
        let len = self.unread_len.min(limit);
        // SAFETY: within the stream's buffer, which lives as long as the stream.
        len > 0 && !unsafe { libc::memchr(self.unread.cast(), delimiter, len) }.is_null()
    }

    /// Performs `call`, which will read at least `missing` bytes more than are buffered.
    #[cold]
    #[inline(never)]
    fn refill(&self, missing: usize, call: &mut dyn FnMut() -> isize) -> isize {
        let known = state::known(self.fd);
        let trusted = self.position.filter(|_| known.is_some_and(|known| !known.is_uncertain()));
        let Some(position) = trusted.or_else(|| sys::position(self.fd)) else { return call() };
        let buffer = self.buffer_len.max(1);
        let len = missing.max(1).div_ceil(buffer).saturating_mul(buffer);
        let place = i64::try_from(position).map_or(Place::At(-1), Place::At);
        let returned = observe(self.fd, place, len, call);
        state::moved(self.fd);
        returned
    }
}

/// Performs a read of `wanted` bytes of a stream.
#[inline(always)]
fn reading<R>(fp: *mut FILE, wanted: usize, mut call: impl FnMut() -> R, bytes: impl Fn(&R) -> isize) -> R {
    match Stream::of(fp) {
        Some(stream) if wanted > stream.unread_len => {
            let mut result = None;
            stream.refill(wanted - stream.unread_len, &mut || bytes(result.insert(call())));
            match result {
                Some(result) => result,
                None => call(),
            }
        }
        _ => call(),
    }
}

/// Performs a read of a stream up to `delimiter`, or up to `limit` bytes.
#[inline(always)]
fn reading_to<R>(
    fp: *mut FILE,
    delimiter: c_int,
    limit: usize,
    mut call: impl FnMut() -> R,
    bytes: impl Fn(&R) -> isize,
) -> R {
    match Stream::of(fp) {
        Some(stream) if limit > stream.unread_len && !stream.has(delimiter, limit) => {
            reading(fp, stream.unread_len + 1, call, bytes)
        }
        _ => call(),
    }
}

macro_rules! streams {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, else $none:expr, |$call:ident| $body:expr;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                let Some(next) = real::$name::find() else { return $none };
                // SAFETY: the program's own arguments, for the function that it meant.
                let $call = || unsafe { next($($arg),*) };
                $body
            }
        )*
    };
}

fn items(size: size_t, count: size_t) -> usize {
    size.saturating_mul(count)
}

fn line(result: &*mut c_char) -> isize {
    isize::from(!result.is_null())
}

fn character(result: &c_int) -> isize {
    isize::from(*result >= 0)
}

const NEWLINE: c_int = b'\n' as c_int;

streams! {
    fn fread(to: *mut c_void, size: size_t, count: size_t, fp: *mut FILE) -> size_t, else 0,
        |call| reading(fp, items(size, count), call, |n| items(size, *n) as isize);
    fn fread_unlocked(to: *mut c_void, size: size_t, count: size_t, fp: *mut FILE) -> size_t, else 0,
        |call| reading(fp, items(size, count), call, |n| items(size, *n) as isize);
    fn __fread_chk(to: *mut c_void, room: size_t, size: size_t, count: size_t, fp: *mut FILE) -> size_t, else 0,
        |call| reading(fp, items(size, count), call, |n| items(size, *n) as isize);
    fn __fread_unlocked_chk(to: *mut c_void, room: size_t, size: size_t, count: size_t, fp: *mut FILE) -> size_t, else 0,
        |call| reading(fp, items(size, count), call, |n| items(size, *n) as isize);

    fn fgets(to: *mut c_char, room: c_int, fp: *mut FILE) -> *mut c_char, else ptr::null_mut(),
        |call| reading_to(fp, NEWLINE, room.max(1) as usize - 1, call, line);
    fn fgets_unlocked(to: *mut c_char, room: c_int, fp: *mut FILE) -> *mut c_char, else ptr::null_mut(),
        |call| reading_to(fp, NEWLINE, room.max(1) as usize - 1, call, line);
    fn __fgets_chk(to: *mut c_char, size: size_t, room: c_int, fp: *mut FILE) -> *mut c_char, else ptr::null_mut(),
        |call| reading_to(fp, NEWLINE, room.max(1) as usize - 1, call, line);
    fn __fgets_unlocked_chk(to: *mut c_char, size: size_t, room: c_int, fp: *mut FILE) -> *mut c_char, else ptr::null_mut(),
        |call| reading_to(fp, NEWLINE, room.max(1) as usize - 1, call, line);
    fn getline(to: *mut *mut c_char, room: *mut size_t, fp: *mut FILE) -> ssize_t, else -1,
        |call| reading_to(fp, NEWLINE, usize::MAX, call, |n| *n);
    fn getdelim(to: *mut *mut c_char, room: *mut size_t, delimiter: c_int, fp: *mut FILE) -> ssize_t, else -1,
        |call| reading_to(fp, delimiter, usize::MAX, call, |n| *n);
    fn __getdelim(to: *mut *mut c_char, room: *mut size_t, delimiter: c_int, fp: *mut FILE) -> ssize_t, else -1,
        |call| reading_to(fp, delimiter, usize::MAX, call, |n| *n);

    fn fgetc(fp: *mut FILE) -> c_int, else -1, |call| reading(fp, 1, call, character);
    fn getc(fp: *mut FILE) -> c_int, else -1, |call| reading(fp, 1, call, character);
    fn _IO_getc(fp: *mut FILE) -> c_int, else -1, |call| reading(fp, 1, call, character);
    fn fgetc_unlocked(fp: *mut FILE) -> c_int, else -1, |call| reading(fp, 1, call, character);
    fn getc_unlocked(fp: *mut FILE) -> c_int, else -1, |call| reading(fp, 1, call, character);
    fn __uflow(fp: *mut FILE) -> c_int, else -1, |call| reading(fp, 1, call, character);
    fn __underflow(fp: *mut FILE) -> c_int, else -1, |call| reading(fp, 1, call, character);

    fn fseek(fp: *mut FILE, offset: c_long, whence: c_int) -> c_int, else -1,
        |call| seeking(fp, offset, whence, call);
    fn fseeko(fp: *mut FILE, offset: off_t, whence: c_int) -> c_int, else -1,
        |call| seeking(fp, offset, whence, call);
    fn fseeko64(fp: *mut FILE, offset: off_t, whence: c_int) -> c_int, else -1,
        |call| seeking(fp, offset, whence, call);

    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, else ptr::null_mut(), |call| opened(call());
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, else ptr::null_mut(), |call| opened(call());
    fn freopen(path: *const c_char, mode: *const c_char, fp: *mut FILE) -> *mut FILE, else ptr::null_mut(), |call| {
        closing(fp);
        opened(call())
    };
    fn freopen64(path: *const c_char, mode: *const c_char, fp: *mut FILE) -> *mut FILE, else ptr::null_mut(), |call| {
        closing(fp);
        opened(call())
    };
    fn fclose(fp: *mut FILE) -> c_int, else -1, |call| {
        closing(fp);
        call()
    };
}

/// A seek of a stream reads too: glibc goes to the buffer's boundary below the target and reads from there, so that
/// seek-and-read programs wait here and not in their `fread`.
#[inline(always)]
fn seeking(fp: *mut FILE, offset: i64, whence: c_int, mut call: impl FnMut() -> c_int) -> c_int {
    let Some((stream, boundary)) =
        Stream::of(fp).and_then(|stream| Some((stream, stream.sought(offset, whence)?)))
    else {
        let result = call();
        state::moved(fileno(fp));
        return result;
    };
    let mut result = -1;
    observe(stream.fd, Place::At(boundary), stream.buffer_len, || {
        result = call();
        isize::from(result == 0) * stream.buffer_len as isize
    });
    state::moved(stream.fd);
    result
}

impl Stream {
    /// Where the seek will read one buffer; `None` if it will not read.
    fn sought(&self, offset: i64, whence: c_int) -> Option<i64> {
        let target = match whence {
            libc::SEEK_SET => offset,
            libc::SEEK_CUR => {
                let position = i64::try_from(self.position?).ok()?;
                position.checked_sub(self.unread_len as i64)?.checked_add(offset)?
            }
            _ => return None,
        };
        let buffer = i64::try_from(self.buffer_len).ok().filter(|len| *len > 0 && len & (len - 1) == 0)?;
        let buffered = self.position.is_some_and(|end| target <= end as i64 && target >= end as i64 - buffer);
        (target >= 0 && !buffered && target & (buffer - 1) != 0).then_some(target & !(buffer - 1))
    }
}

/// The descriptor of a stream; -1 for none.
fn fileno(fp: *mut FILE) -> c_int {
    if fp.is_null() || state::segment().is_none() || !IS_GLIBC.load(Relaxed) {
        return -1;
    }
    // SAFETY: as in `Stream::of`.
    unsafe { field!(fp, fileno) }
}

fn opened(fp: *mut FILE) -> *mut FILE {
    state::opened(fileno(fp));
    fp
}

/// glibc closes the descriptor itself, after it has put the position back to what was handed out.
fn closing(fp: *mut FILE) {
    let fd = fileno(fp);
    state::moved(fd);
    state::closing(fd);
}
