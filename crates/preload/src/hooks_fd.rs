//! The calls that make, name, move and close descriptors, and the program's own advice.
//!
//! A descriptor is forgotten *before* it is closed and noted *after* it was opened: between the two its number may be
//! anybody's. `open` and `fcntl` are variadic in C; a fixed third argument is the same thing in the calling conventions
//! of x86-64 and aarch64, and what the caller did not pass is not looked at by who is called.

use bowwave_wire::Kind;
use core::ffi::{c_char, c_int, c_uint};
use libc::{off_t, size_t, ssize_t};

use crate::process;
use crate::real::{self, or_raw};
use crate::state;
use crate::sys;

macro_rules! openers {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) = $number:expr, ($($raw:expr),*);)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
                // SAFETY: the program's own arguments, for the function that it meant.
                let fd = unsafe {
                    match real::$name::next() {
                        Some(next) => next($($arg),*),
                        None => sys::as_libc($number, real::words!($($raw),*)) as c_int,
                    }
                };
                state::opened(fd);
                fd
            }
        )*
    };
}

const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

openers! {
    fn open(path: *const c_char, flags: c_int, mode: c_uint) = libc::SYS_openat, (libc::AT_FDCWD, path, flags, mode);
    fn open64(path: *const c_char, flags: c_int, mode: c_uint) = libc::SYS_openat, (libc::AT_FDCWD, path, flags, mode);
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) = libc::SYS_openat, (dir, path, flags, mode);
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) = libc::SYS_openat, (dir, path, flags, mode);
    fn creat(path: *const c_char, mode: c_uint) = libc::SYS_openat, (libc::AT_FDCWD, path, CREAT, mode);
    fn creat64(path: *const c_char, mode: c_uint) = libc::SYS_openat, (libc::AT_FDCWD, path, CREAT, mode);
    fn __open_2(path: *const c_char, flags: c_int) = libc::SYS_openat, (libc::AT_FDCWD, path, flags);
    fn __open64_2(path: *const c_char, flags: c_int) = libc::SYS_openat, (libc::AT_FDCWD, path, flags);
    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) = libc::SYS_openat, (dir, path, flags);
    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) = libc::SYS_openat, (dir, path, flags);
}

/// A function that is ours where the program calls libc's: `$call` is the one that it meant.
macro_rules! hook {
    ($(#[doc = $doc:literal] fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $number:expr, |$call:ident| $body:expr;)*) => {
        $(
            #[doc = $doc]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                // SAFETY: the program's own arguments, for the function that it meant.
                let $call = || unsafe { or_raw!($name($($arg),*), $number) as $ret };
                $body
            }
        )*
    };
}
pub(crate) use hook;

hook! {
    /// Forgotten first: afterwards the number may be another thread's.
    fn close(fd: c_int) -> c_int = libc::SYS_close, |call| {
        let file = state::closing(fd);
        let result = call();
        state::closed(fd, file);
        result
    };
    /// With CLOSE_RANGE_CLOEXEC nothing is closed yet.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = real::LOOK_UP, |call| {
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
            state::closing_range(first as usize, last as usize);
        }
        call()
    };
    /// Two names, one position.
    fn dup(fd: c_int) -> c_int = libc::SYS_dup, |call| duplicated(fd, call());
    /// `new` is closed by it.
    fn dup2(fd: c_int, new: c_int) -> c_int = real::LOOK_UP, |call| replacing(fd, new, call);
    /// `new` is closed by it.
    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int = real::LOOK_UP, |call| replacing(fd, new, call);
    /// Another way to duplicate, and the way to become O_DIRECT.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = libc::SYS_fcntl, |call| {
        leasing(fd, command, argument, || after_fcntl(fd, command, call()))
    };
    /// Another way to duplicate, and the way to become O_DIRECT.
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = libc::SYS_fcntl, |call| {
        leasing(fd, command, argument, || after_fcntl(fd, command, call()))
    };
    /// A probe of the end (SEEK_END) is a position like any other: only a read says where the program reads.
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = libc::SYS_lseek, |call| {
        let at = call();
        state::sought(fd, at);
        at
    };
    /// A probe of the end (SEEK_END) is a position like any other: only a read says where the program reads.
    fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t = libc::SYS_lseek, |call| {
        let at = call();
        state::sought(fd, at);
        at
    };
    /// The program's own readahead.
    fn readahead(fd: c_int, offset: off_t, len: size_t) -> ssize_t = real::LOOK_UP, |call| {
        let result = call();
        if result == 0 {
            advised(fd, offset, len as off_t, libc::POSIX_FADV_WILLNEED);
        }
        result
    };
}

/// Makes `new` a name of what `fd` names, by `call`, which closes what it was.
fn replacing(fd: c_int, new: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let file = if fd != new { state::closing(new) } else { None };
    let result = duplicated(fd, call());
    state::closed(new, file);
    result
}

fn duplicated(old: c_int, new: c_int) -> c_int {
    state::duplicated(old, new);
    new
}

/// Nobody else may have open what a program leases for itself, and whoever opens it later breaks the lease, for which the program
/// is signalled (SIGIO, which ends it). So the agent is to leave the file alone, and where it has it open, the call is made
/// again until it has let go: it does with whatever was not read for a second. This is the one place where we wait.
fn leasing(fd: c_int, command: c_int, argument: usize, call: impl Fn() -> c_int) -> c_int {
    if command != libc::F_SETLEASE || argument as c_int != libc::F_WRLCK as c_int || !state::leased(fd) {
        return call();
    }
    let mut result = call();
    for _ in 0..LET_GO_LOOKS_MAX {
        // SAFETY: libc gives each thread an errno of its own.
        if result != -1 || unsafe { *libc::__errno_location() } != libc::EAGAIN {
            break;
        }
        sys::pause(LET_GO_LOOK_NS);
        result = call();
    }
    result
}

/// Longer than the agent keeps a file that nobody reads: 1.5 s in all.
const LET_GO_LOOKS_MAX: u32 = 150;
const LET_GO_LOOK_NS: u64 = 10_000_000;

fn after_fcntl(fd: c_int, command: c_int, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => state::duplicated(fd, result),
        libc::F_SETFL => state::changed(fd),
        _ => {}
    }
    result
}

/// Closes everything from `first` on.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn closefrom(first: c_int) {
    state::closing_range(first.max(0) as usize, usize::MAX);
    // SAFETY: the program's own argument.
    unsafe {
        if let Some(next) = real::closefrom::find() {
            next(first);
        }
    }
}

/// These return the error number and leave errno alone.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_fadvise(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int {
    // SAFETY: touches no memory.
    let result =
        unsafe { real::posix_fadvise::find().map_or(libc::ENOSYS, |next| next(fd, offset, len, advice)) };
    if result == 0 {
        advised(fd, offset, len, advice);
    }
    result
}

/// The same under its large-file name.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_fadvise64(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int {
    // SAFETY: touches no memory.
    let result =
        unsafe { real::posix_fadvise64::find().map_or(libc::ENOSYS, |next| next(fd, offset, len, advice)) };
    if result == 0 {
        advised(fd, offset, len, advice);
    }
    result
}

/// Tells of the program's advice, which is obeyed: the kernel has it already, and what it says of the whole description
/// ends our say in the kernel's heuristics.
fn advised(fd: c_int, offset: off_t, len: off_t, advice: c_int) {
    let Some(segment) = process::segment().filter(|_| !process::memory_is_lent()) else { return };
    let now = sys::now_ns();
    if !segment.agent_alive(now) {
        return;
    }
    let Some(bound) = state::bound(segment, fd, now) else { return };
    if matches!(advice, libc::POSIX_FADV_NORMAL | libc::POSIX_FADV_SEQUENTIAL | libc::POSIX_FADV_RANDOM) {
        bound.known.advised();
    }
    segment.push(&bound.event(Kind::Advice, advice as u32, offset.max(0) as u64, len.max(0) as u64, now));
}
