//! System calls without libc: no errno is touched, no hook of ours (or of anybody) is entered, no cancellation point is
//! made. Everything that the observer does of its own accord goes through here; what the *program* asked for goes to the
//! real function (see `real`).
//!
//! A call that fails returns the negated error number, as the kernel gives it.

use core::ffi::{c_int, c_long};
use core::mem::MaybeUninit;

use crate::real;

/// Performs system call `number`.
///
/// # Safety
/// As for the call itself.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn raw(number: c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's convention on x86-64: it clobbers rcx and r11 and nothing else; the rest is the caller's.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Performs system call `number`.
///
/// # Safety
/// As for the call itself.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn raw(number: c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's convention on aarch64: it clobbers x0 only; the rest is the caller's.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number as isize,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    result
}

/// Performs a call that the program asked for before the real function was known, and reports it as libc would.
///
/// # Safety
/// As for the call itself.
#[cold]
pub(crate) unsafe fn as_libc(number: c_long, a: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    let result = unsafe { raw(number, a) };
    if !(-4095..0).contains(&result) {
        return result;
    }
    // SAFETY: libc gives each thread an errno of its own.
    unsafe { *libc::__errno_location() = -result as c_int };
    -1
}

/// What the observer wants to know of a descriptor's file.
#[derive(Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) regular: bool,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) size: u64,
}

pub(crate) fn stat(fd: c_int) -> Option<Stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes a `struct stat`, which libc's is on the architectures that we know; read only if it did.
    unsafe {
        if raw(libc::SYS_fstat, [fd as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) != 0 {
            return None;
        }
        let stat = stat.assume_init();
        Some(Stat {
            regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size as u64,
        })
    }
}

/// The inode of this process's PID namespace, which is the same wherever it is looked at. `None` without /proc.
pub(crate) fn pid_namespace() -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    let path = c"/proc/self/ns/pid".as_ptr();
    let at = libc::AT_FDCWD as usize;
    // SAFETY: as above; the path ends with a zero byte.
    unsafe {
        let done = raw(libc::SYS_newfstatat, [at, path as usize, stat.as_mut_ptr() as usize, 0, 0, 0]) == 0;
        done.then(|| stat.assume_init().st_ino)
    }
}

/// The descriptor's status flags (O_DIRECT, access mode), or a negated error.
pub(crate) fn status_flags(fd: c_int) -> isize {
    // SAFETY: reads a number.
    unsafe { raw(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0]) }
}

/// Whether the descriptor goes when this process becomes another program.
pub(crate) fn closes_at_exec(fd: c_int) -> bool {
    // SAFETY: reads a number.
    let flags = unsafe { raw(libc::SYS_fcntl, [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0]) };
    flags & libc::FD_CLOEXEC as isize != 0
}

/// Where a plain `read` would start. `None` when the descriptor has no position.
pub(crate) fn position(fd: c_int) -> Option<u64> {
    // SAFETY: moves nothing.
    let at = unsafe { raw(libc::SYS_lseek, [fd as usize, 0, libc::SEEK_CUR as usize, 0, 0, 0]) };
    u64::try_from(at).ok()
}

/// Advice for the whole file. It is only advice: a failure changes nothing.
pub(crate) fn advise(fd: c_int, advice: c_int) {
    // SAFETY: touches no memory.
    unsafe { raw(libc::SYS_fadvise64, [fd as usize, 0, 0, advice as usize, 0, 0]) };
}

/// Advice for a range of memory. It is only advice: a failure changes nothing.
pub(crate) fn advise_memory(address: usize, len: usize, advice: c_int) {
    // SAFETY: MADV_NORMAL and MADV_RANDOM change no byte of memory, whoever it belongs to.
    unsafe { raw(libc::SYS_madvise, [address, len, advice as usize, 0, 0, 0]) };
}

/// Wakes one sleeper on a futex word that processes share.
pub(crate) fn wake(word: *const u32) {
    // SAFETY: FUTEX_WAKE reads nothing and writes nothing through `word`.
    unsafe { raw(libc::SYS_futex, [word as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0]) };
}

/// Lets so many ns pass, or fewer if a signal comes.
pub(crate) fn pause(ns: u64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns as i64 };
    // SAFETY: reads `time`.
    unsafe { raw(libc::SYS_nanosleep, [(&raw const time).addr(), 0, 0, 0, 0, 0]) };
}

pub(crate) fn process_id() -> u32 {
    // SAFETY: no argument.
    unsafe { raw(libc::SYS_getpid, [0; 6]) as u32 }
}

pub(crate) fn parent_id() -> u32 {
    // SAFETY: no argument.
    unsafe { raw(libc::SYS_getppid, [0; 6]) as u32 }
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: no argument.
    unsafe { raw(libc::SYS_gettid, [0; 6]) as u32 }
}

/// A word that no other living thread of this process has: where its own data lies. One instruction.
#[inline(always)]
pub(crate) fn this_thread() -> u64 {
    let word: u64;
    // SAFETY: reads the word that libc keeps there for each thread before it runs any code, which is its own address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) word, options(pure, readonly, nostack, preserves_flags));
    }
    // SAFETY: reads a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) word, options(pure, nomem, nostack, preserves_flags));
    }
    word
}

/// CLOCK_MONOTONIC in ns. The vDSO answers without a system call, through the next `clock_gettime` after ours: a program, or a library
/// in front of us, may have one of its own, whose clock is not the agent's and which may do anything.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours to write; this clock always exists, so errno stays as it is.
    unsafe {
        match real::clock_gettime::next() {
            Some(next) => _ = next(libc::CLOCK_MONOTONIC, &mut time),
            None => {
                let to = (&raw mut time).addr();
                raw(libc::SYS_clock_gettime, [libc::CLOCK_MONOTONIC as usize, to, 0, 0, 0, 0]);
            }
        }
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether the `words` 8-byte words from `at` may be read, so that a program's bad pointer is answered by the kernel
/// with EFAULT, as it would be without us, and not by a crash of ours. The kernel copies the set before it finds that
/// there is no such `how`.
pub(crate) fn readable(at: *const u64, words: usize) -> bool {
    let probe = |at: usize| {
        // SAFETY: an unknown `how` changes nothing; a bad address is what is being asked about.
        let answer = unsafe { raw(libc::SYS_rt_sigprocmask, [usize::MAX >> 1, at, 0, 8, 0, 0]) };
        answer == -(libc::EINVAL as isize)
    };
    !at.is_null() && words > 0 && each_page(at.addr(), 8 * words, 8).all(probe)
}

/// Whether the `len` bytes from `at` on may be written: asked of the kernel, by adding 0 to a word of each page.
pub(crate) fn writable(at: usize, len: usize) -> bool {
    const ADD_ZERO: usize = (libc::FUTEX_OP_ADD as usize) << 28;
    let nobody_sleeps_here = 0_u32;
    let probe = |at: usize| {
        let call = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
        let own = (&raw const nobody_sleeps_here).addr();
        // SAFETY: wakes nobody, and changes no word.
        unsafe { raw(libc::SYS_futex, [own, call, 0, 0, at & !3, ADD_ZERO]) >= 0 }
    };
    each_page(at, len, 1).all(probe)
}

/// The first of `len` bytes from `at` on, the first of each further page, and the last `last` of them.
fn each_page(at: usize, len: usize, last: usize) -> impl Iterator<Item = usize> {
    let end = at.saturating_add(len);
    let starts = (at / PAGE + 1..=end.saturating_sub(1) / PAGE).map(|page| page * PAGE);
    core::iter::once(at)
        .chain(starts.filter(move |start| start + last <= end))
        .chain([end.saturating_sub(last)])
}

/// The smallest page that there is.
const PAGE: usize = 4096;

/// Fresh memory for as long as the process lives; `None` where there is none.
pub(crate) fn memory(len: usize) -> Option<usize> {
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a mapping that nobody else knows.
    let at = unsafe { raw(libc::SYS_mmap, [0, len, access, flags, usize::MAX, 0]) };
    (!(-4095..0).contains(&at)).then_some(at as usize)
}

/// Gives back what [`memory`] gave and nobody knows.
pub(crate) fn forget_memory(at: usize, len: usize) {
    // SAFETY: the caller's.
    unsafe { raw(libc::SYS_munmap, [at, len, 0, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn each_page_is_asked_for_once() {
        let asked = |at, len, last| each_page(at, len, last).collect::<Vec<_>>();
        assert_eq!(asked(0x1000, 8, 8), [0x1000, 0x1000]);
        assert_eq!(asked(0x1ff8, 16, 8), [0x1ff8, 0x2000, 0x2000]);
        assert_eq!(asked(0x1ffc, 0x2000, 8), [0x1ffc, 0x2000, 0x3000, 0x3ff4]);
        assert_eq!(asked(0x1ffc, 8, 8), [0x1ffc, 0x1ffc], "the kernel reads all of a word");
    }

    #[test]
    fn a_hole_is_found_wherever_it_is() {
        let all = memory(5 * PAGE).unwrap();
        let words = 5 * PAGE / 8;
        assert!(readable(all as *const u64, words) && writable(all, 5 * PAGE));
        // SAFETY: a mapping of this test's own.
        unsafe {
            libc::mprotect((all + 3 * PAGE) as *mut _, PAGE, libc::PROT_READ);
            assert!(
                readable(all as *const u64, words) && !writable(all, 5 * PAGE) && writable(all, 3 * PAGE)
            );
            libc::mprotect((all + 3 * PAGE) as *mut _, PAGE, libc::PROT_NONE);
            assert!(!readable(all as *const u64, words) && readable(all as *const u64, words / 2));
            libc::munmap(all as *mut _, 5 * PAGE);
        }
        assert!(!readable(all as *const u64, 1) && !writable(all, 1));
    }
}
