//! The observer inside a steered program: it stands in front of libc's reads, tells the agent what it must know, and
//! performs every call as it came.
//!
//! ```text
//!   program                     this library                                agent
//!   pread(fd, 8192, 4096) ───>  fd 3 is description 17, file slot 1203
//!                               page 2 is settled: one bit set       ....>  reads the bits when it likes
//!                       <────── libc's pread                                          a few ns more
//!
//!   pread(fd, 16384, 4096) ──>  page 4 is the mark: Read pushed, bell ──>  fetches the next window
//!                       <────── libc's pread, timed                                   half a microsecond more
//! ```
//!
//! It never allocates, locks, prints, waits (but for a lease, see `hooks_fd`) or panics; it changes no result, no errno and no byte. Without a segment, or
//! when told `BOWWAVE=off`, or when the agent is gone, it is not there but for one load and one branch a call.
//!
//! Reading order: `observe` (the path of a read), `state` (what is known of a descriptor), `maps` (of a mapping), `process` (what this one is), the
//! hooks (`hooks_read`, `hooks_fd`, `hooks_map`, `hooks_stdio`, `hooks_process`), `environment` (what exec gives on), `real` (what lies behind them), `sys` (our own system calls). The other
//! side's view of it all is `bowwave-wire`.

// A test does not observe itself: there, nobody enters the hooks.
#![cfg_attr(test, allow(dead_code, reason = "hooks are entered by name, from outside"))]
// Without std where it can be (release): std would bring libgcc_s along, and every exec of a run would load it.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]

mod environment;
mod hooks_fd;
mod hooks_map;
mod hooks_process;
mod hooks_read;
mod hooks_stdio;
mod maps;
mod observe;
mod process;
mod real;
mod state;
mod sys;

use bowwave_wire::{ENV_SEGMENT, ENV_SWITCH, STARTS, Segment};
use core::ptr;

/// Nothing here panics; the language wants the function all the same.
#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

// One function of core's carries the name of std's unwinder. Nothing of ours unwinds; where glibc does (a thread that is
// cancelled in `read`), 8 says "go on" (_URC_CONTINUE_UNWIND). Hidden: a program in Rust may have the real one.
#[cfg(all(panic = "abort", not(test), target_arch = "x86_64"))]
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality: mov eax, 8",
    "ret"
);
#[cfg(all(panic = "abort", not(test), target_arch = "aarch64"))]
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality: mov w0, 8",
    "ret"
);

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

/// Before `main`: find the real functions and, if there is one, the segment.
extern "C" fn constructor() {
    real::resolve();
    hooks_stdio::begin();
    let Some(segment) = map_segment() else { return };
    hooks_process::begin();
    process::begin(segment);
    process::tell(STARTS);
}

/// After `main`.
extern "C" fn destructor() {
    process::end();
}

/// Opens, checks, maps and closes what the environment names. Anything odd means that we stay out of the way, silently.
fn map_segment() -> Option<*mut Segment> {
    if environment::variable(ENV_SWITCH).is_some_and(|value| value.to_bytes() == b"off") {
        return None;
    }
    let path = environment::variable(ENV_SEGMENT).filter(|path| !path.is_empty())?;
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    // SAFETY: `path` is a C string.
    let fd = unsafe {
        sys::raw(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0])
    };
    if fd < 0 {
        return None;
    }
    let mapped = map(fd as i32);
    // SAFETY: our own descriptor, which nobody else knows.
    unsafe { sys::raw(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
    mapped
}

fn map(fd: i32) -> Option<*mut Segment> {
    let size = size_of::<Segment>();
    sys::stat(fd).filter(|stat| stat.regular && stat.size >= size as u64)?;
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: a fresh mapping of a file that is large enough.
    let at =
        unsafe { sys::raw(libc::SYS_mmap, [0, size, access, libc::MAP_SHARED as usize, fd as usize, 0]) };
    if (-4095..0).contains(&at) {
        return None;
    }
    let segment: *mut Segment = ptr::with_exposed_provenance_mut(at as usize);
    // SAFETY: mapped above, whole, and made of atomics, for which every bit pattern is a value.
    if unsafe { &*segment }.is_ours() {
        return Some(segment);
    }
    // SAFETY: nobody has seen it.
    unsafe { sys::raw(libc::SYS_munmap, [at as usize, size, 0, 0, 0, 0]) };
    None
}
