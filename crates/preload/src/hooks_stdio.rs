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
//! Looking for the newline twice (glibc will, too) costs most of what we cost, so it is looked for only where less than
//! 1 KiB is left. A longer line may then refill unforeseen: it is noticed afterwards, the pointer having gone backwards,
//! and told late. What is read here is a hint taken without the stream's lock: each pointer is checked against the
//! buffer's bounds.
#![allow(non_snake_case, reason = "hooks are named as in C")]

use bowwave_wire::FileRef;
use core::ffi::{c_char, c_int, c_long, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::{FILE, off_t, size_t, ssize_t};

use crate::observe::{is_watched, observe_refill};
use crate::process;
use crate::real;
use crate::state;
use crate::sys;

/// glibc's buffer where the file does not say better (`st_blksize`).
const BUFFER_BYTES: usize = 4096;
/// Where more than this is left, a line is believed to end.
const LINE_BYTES: usize = 1024;
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

/// Bytes of a stream that were read from the file and not yet handed out.
#[inline(always)]
fn unread(fp: *mut FILE) -> usize {
    if fp.is_null() {
        return 0;
    }
    // SAFETY: the program hands this stream to libc, which reads words of it too.
    unsafe { (field!(fp, read_end) as usize).saturating_sub(field!(fp, read_ptr) as usize) }
}

impl Stream {
    /// A stream that reads from a descriptor.
    #[inline(always)]
    fn of(fp: *mut FILE) -> Option<Self> {
        if fp.is_null() || process::segment().is_none() || !IS_GLIBC.load(Relaxed) {
            return None;
        }
        // SAFETY: the program hands this stream to glibc, which reads the same words; a racing writer changes pointers,
        // not the place of the struct.
        unsafe {
            let fd = field!(fp, fileno);
            if fd < 0 || field!(fp, flags) & (NO_READS | IN_BACKUP | PUTTING) != 0 {
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

    /// Whether the unread bytes contain `delimiter`.
    fn has(&self, delimiter: c_int) -> bool {
        // SAFETY: within the stream's buffer, which lives as long as the stream.
        self.unread_len > 0
            && !unsafe { libc::memchr(self.unread.cast(), delimiter, self.unread_len) }.is_null()
    }

    /// Where the descriptor is. Once the program has sought, glibc knows it; before, we have seen every refill; and the
    /// kernel is asked where somebody else may have moved it, and now and then.
    #[inline(always)]
    fn position(&self) -> Option<u64> {
        let certain = state::known(self.fd).filter(|known| !known.is_uncertain());
        let expected = certain.and_then(|known| self.position.or_else(|| known.next(0)));
        expected.or_else(|| sys::position(self.fd))
    }

    /// Performs `call`, which will read between `missing` and `missing_max` bytes more than are buffered, and returns how
    /// many it handed out; less than 0, unknown.
    #[inline(always)]
    fn refill(&self, fp: *mut FILE, missing: usize, missing_max: usize, mut call: impl FnMut() -> isize) {
        let Some(position) = self.position() else {
            call();
            return;
        };
        let buffer = self.buffer_len.max(1);
        let len = missing.max(1).div_ceil(buffer).saturating_mul(buffer);
        let mut handed_out = 0;
        observe_refill(self.fd, position, len, &mut || {
            handed_out = call();
            if handed_out == 0 { 0 } else { len as isize }
        });
        if self.position.is_some() {
            return state::moved(self.fd);
        }
        match self.expected(position, handed_out, missing_max <= buffer, fp) {
            Some(now) => state::sought(self.fd, now),
            None => state::moved(self.fd),
        }
    }

    /// Where the descriptor is after the call. What was read is what was handed out and not buffered before, and what is
    /// buffered now; where one refill was enough, it is what the buffer holds. Worked example: at 8192 with 96 unread,
    /// 200 handed out, 3992 unread afterwards: 8192 - 96 + 200 + 3992 = 12288, one buffer further.
    #[inline(always)]
    fn expected(&self, before: u64, handed_out: isize, is_one: bool, fp: *mut FILE) -> Option<i64> {
        // SAFETY: as in `Stream::of`.
        let (is_plain, filled) = unsafe {
            let is_plain = field!(fp, flags) & IN_BACKUP == 0 && field!(fp, offset) < 0;
            (is_plain, (field!(fp, read_end) as usize).wrapping_sub(field!(fp, buf_base) as usize))
        };
        let read = match u64::try_from(handed_out) {
            Ok(bytes) => bytes.wrapping_add(unread(fp) as u64).wrapping_sub(self.unread_len as u64),
            Err(_) if is_one => filled as u64,
            Err(_) => return None,
        };
        i64::try_from(before.wrapping_add(read)).ok().filter(|_| is_plain)
    }

    /// Tells of a buffer that was read already.
    fn refilled(&self) {
        let end = sys::position(self.fd);
        if let Some(start) = end.and_then(|end| end.checked_sub(self.buffer_len as u64)) {
            observe_refill(self.fd, start, self.buffer_len, &mut || 1);
        }
        state::moved(self.fd);
    }
}

/// Performs a read of `wanted` bytes of a stream. `bytes` says of a result how many it handed out; less than 0, unknown.
#[inline(always)]
fn reading<R>(
    fp: *mut FILE,
    wanted: usize,
    mut call: impl FnMut() -> R + Copy,
    bytes: impl Fn(&R) -> isize,
) -> R {
    if wanted <= unread(fp) {
        return call();
    }
    let call = call;
    refilling(fp, wanted, wanted, call, bytes)
}

/// The same where the buffer does not hold as much.
#[inline(never)]
fn refilling<R>(
    fp: *mut FILE,
    wanted: usize,
    wanted_max: usize,
    mut call: impl FnMut() -> R,
    bytes: impl Fn(&R) -> isize,
) -> R {
    let Some(stream) = Stream::of(fp).filter(|stream| wanted > stream.unread_len && is_watched(stream.fd))
    else {
        return call();
    };
    let mut result = None;
    let missing = |wanted: usize| wanted.saturating_sub(stream.unread_len);
    stream.refill(fp, missing(wanted), missing(wanted_max), || bytes(result.insert(call())));
    match result {
        Some(result) => result,
        None => call(),
    }
}

/// Performs a read of a stream up to `delimiter`, or up to `limit` bytes.
#[inline(always)]
fn reading_to<R>(
    fp: *mut FILE,
    delimiter: c_int,
    limit: usize,
    mut call: impl FnMut() -> R + Copy,
    bytes: impl Fn(&R) -> isize,
) -> R {
    let before = unread(fp);
    if limit <= before || process::segment().is_none() {
        return call();
    }
    if before >= LINE_BYTES {
        let result = call();
        if unread(fp) > before {
            late(fp);
        }
        return result;
    }
    let mut again = call;
    match Stream::of(fp) {
        Some(stream) if is_watched(stream.fd) && !stream.has(delimiter) => {
            refilling(fp, stream.unread_len + 1, limit, again, bytes)
        }
        _ => again(),
    }
}

#[cold]
#[inline(never)]
fn late(fp: *mut FILE) {
    if let Some(stream) = Stream::of(fp).filter(|stream| is_watched(stream.fd)) {
        stream.refilled();
    }
}

macro_rules! streams {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, else $none:expr, |$call:ident| $body:expr;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                let Some(next) = real::$name::find() else { return $none };
                // SAFETY: the program's own arguments, for the function that it meant.
                let $call = move || unsafe { next($($arg),*) };
                $body
            }
        )*
    };
}

fn items(size: size_t, count: size_t) -> usize {
    size.saturating_mul(count)
}

/// At the end of the file a part of an item may have been handed out too.
fn handed_out(size: size_t, count: size_t, got: size_t) -> isize {
    if got == count { isize::try_from(items(size, got)).unwrap_or(-1) } else { -1 }
}

/// A line may contain zeros: only counting to its end would tell how long it is, and only if it has one.
fn line(_: &*mut c_char) -> isize {
    -1
}

fn character(result: &c_int) -> isize {
    if *result >= 0 { 1 } else { -1 }
}

const NEWLINE: c_int = b'\n' as c_int;

streams! {
    fn fread(to: *mut c_void, size: size_t, count: size_t, fp: *mut FILE) -> size_t, else 0,
        |call| reading(fp, items(size, count), call, |n| handed_out(size, count, *n));
    fn fread_unlocked(to: *mut c_void, size: size_t, count: size_t, fp: *mut FILE) -> size_t, else 0,
        |call| reading(fp, items(size, count), call, |n| handed_out(size, count, *n));
    fn __fread_chk(to: *mut c_void, room: size_t, size: size_t, count: size_t, fp: *mut FILE) -> size_t, else 0,
        |call| reading(fp, items(size, count), call, |n| handed_out(size, count, *n));
    fn __fread_unlocked_chk(to: *mut c_void, room: size_t, size: size_t, count: size_t, fp: *mut FILE) -> size_t, else 0,
        |call| reading(fp, items(size, count), call, |n| handed_out(size, count, *n));

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
    fn __underflow(fp: *mut FILE) -> c_int, else -1, |call| reading(fp, 1, call, |c| character(c) - 1);

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
        let fd = fileno(fp);
        let file = closing(fp);
        let result = call();
        state::closed(fd, file);
        result
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
    observe_refill(stream.fd, boundary, stream.buffer_len, &mut || {
        result = call();
        isize::from(result == 0) * stream.buffer_len as isize
    });
    state::moved(stream.fd);
    result
}

impl Stream {
    /// Where the seek will read one buffer; `None` if it will not read.
    fn sought(&self, offset: i64, whence: c_int) -> Option<u64> {
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
        (target >= 0 && !buffered && target & (buffer - 1) != 0)
            .then_some((target & !(buffer - 1)).cast_unsigned())
    }
}

/// The descriptor of a stream; -1 for none.
fn fileno(fp: *mut FILE) -> c_int {
    if fp.is_null() || process::segment().is_none() || !IS_GLIBC.load(Relaxed) {
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
fn closing(fp: *mut FILE) -> Option<FileRef> {
    let fd = fileno(fp);
    state::moved(fd);
    state::closing(fd)
}
