//! Births, borrowed memory, and the two doors behind which we must not move: seccomp and chroot.
//!
//! ```text
//!   fork            child: same tables, every position now uncertain in both; tells Process 1 (pthread_atfork)
//!   vfork           child runs in the parent's memory until exec: it has the word of the thread that waits for it, and is left alone
//!   posix_spawn     the same inside glibc, where no hook is entered; positions become uncertain
//!   seccomp         a filter may kill for futex or fadvise64: from now on not one system call of our own
//!   chroot, setns   our library's path may be nowhere: exec'd children must not be told to load it
//!   exec, spawn     is it still there? something may be mounted over its folder; asked by who is about to have a child, too,
//!                   since a vfork child asks nothing
//! ```
//!
//! Dormancy is for ever, for this process and its forks. What exec gives on is in the environment; our name is taken out
//! of LD_PRELOAD there: in the string, to which the program may have pointers of its own, or where nobody may write that (a
//! literal given to `putenv`) in a copy that takes its place.

use bowwave_wire::ENV_SEGMENT;
use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::FILE;

use crate::real;
use crate::state;
use crate::sys;

#[link(name = "c")]
unsafe extern "C" {
    static mut environ: *mut *mut c_char;
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

/// Called once by the constructor.
pub(crate) fn begin() {
    // SAFETY: both are functions that may be called at any fork; we are never unloaded.
    unsafe { pthread_atfork(Some(forking), Some(parent_forked), Some(child_forked)) };
}

unsafe extern "C" fn forking() {
    leave_what_is_gone(core::ptr::null_mut());
}

unsafe extern "C" fn parent_forked() {
    state::shared_by_fork();
}

unsafe extern "C" fn child_forked() {
    state::forked_child();
}

/// Whether our name is to be kept out of what this process passes on, also of lists that it makes anew (bash), and we may still
/// make system calls for that.
static NAMELESS: AtomicBool = AtomicBool::new(false);

fn go_dormant(detail: u32) {
    NAMELESS.fetch_and(detail != state::SECCOMP, Relaxed);
    if state::segment().is_some() && !state::memory_is_lent() {
        NAMELESS.fetch_or(detail != state::SECCOMP, Relaxed);
        state::go_dormant(detail);
        leave_no_name();
    }
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
fn leave_no_name() {
    // SAFETY: the list of every program; its name is libc's, and every program may set it.
    unsafe {
        if let Some(copy) = leave_no_name_in(environ) {
            environ = copy;
        }
    }
}

/// The same in a list of variables that a null ends; returns the copy that was made of it where it cannot be written.
unsafe fn leave_no_name_in(mut list: *mut *mut c_char) -> Option<*mut *mut c_char> {
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

/// Before an exec, or before there is a child that may call it: where our library is gone, the next program is not told of it.
fn leave_what_is_gone(passed_on: *mut *mut c_char) {
    if state::memory_is_lent() {
        return;
    }
    if state::segment().is_some() && !is_library_there() {
        go_dormant(state::CHROOT);
    }
    if NAMELESS.load(Relaxed) {
        // SAFETY: null, or a list that the program is about to pass on. Where that cannot be written our name stays in it.
        _ = unsafe { leave_no_name_in(passed_on) };
    }
}

/// Whether the file is there that LD_PRELOAD names last, which is where `bowwave run` puts ours, and where its path ends as the
/// kernel wants it. If that is not ours, nobody asks.
fn is_library_there() -> bool {
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

macro_rules! hook {
    ($(#[doc = $doc:literal] fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, else $none:expr, |$call:ident| $body:expr;)*) => {
        $(
            #[doc = $doc]
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

hook! {
    /// After it, our library's path means another file or none.
    fn chroot(path: *const c_char) -> c_int, else -1, |call| {
        let result = call();
        if result == 0 {
            go_dormant(state::CHROOT);
        }
        result
    };
    /// Another mount namespace: the same.
    fn setns(fd: c_int, kind: c_int) -> c_int, else -1, |call| {
        let result = call();
        if result == 0 && (kind == 0 || kind & libc::CLONE_NEWNS != 0) {
            go_dormant(state::CHROOT);
        }
        result
    };
    /// Before it, while our last system calls are still allowed.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, else -1, |call| {
        if option == libc::PR_SET_SECCOMP {
            go_dormant(state::SECCOMP);
        }
        call()
    };
    /// A child inside glibc shares our descriptions.
    fn system(command: *const c_char) -> c_int, else -1, |call| {
        leave_what_is_gone(core::ptr::null_mut());
        state::shared_by_fork();
        call()
    };
    /// A child inside glibc shares our descriptions.
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE, else core::ptr::null_mut(), |call| {
        leave_what_is_gone(core::ptr::null_mut());
        state::shared_by_fork();
        call()
    };
    /// A child inside glibc shares our descriptions.
    fn posix_spawn(pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int, else libc::ENOSYS, |call| {
        leave_what_is_gone(environment.cast_mut());
        state::shared_by_fork();
        call()
    };
    /// A child inside glibc shares our descriptions.
    fn posix_spawnp(pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int, else libc::ENOSYS, |call| {
        leave_what_is_gone(environment.cast_mut());
        state::shared_by_fork();
        call()
    };
}

// ---- functions that must not find a frame of ours on the stack -----------------------------------------------------------

/// Where to go on, and whether to come back.
#[repr(C)]
struct Vfork {
    next: *const c_void,
    comes_back: usize,
}

/// Notes that memory is lent, and says where to go on.
extern "C" fn before_vfork(returns_to: usize) -> Vfork {
    let next = real::vfork::find().map_or(core::ptr::null(), |next| next as *const c_void);
    leave_what_is_gone(core::ptr::null_mut());
    let comes_back = state::segment().is_some() && state::lending_memory(returns_to);
    Vfork { next, comes_back: usize::from(comes_back) }
}

/// In the child first, which got 0, and then in the parent. Says where to return to.
extern "C" fn after_vfork(got: c_int) -> usize {
    state::lent_memory(got != 0)
}

/// Notes what a direct system call does to our tables, and says where to go on.
extern "C" fn before_syscall(number: c_long, a: usize, b: usize, c: usize) -> *const c_void {
    match number {
        // Strict mode, or a filter; a null filter is a probe of what the kernel can do.
        libc::SYS_seccomp if a == 0 || (a == 1 && c != 0) => go_dormant(state::SECCOMP),
        libc::SYS_prctl if a == libc::PR_SET_SECCOMP as usize => go_dormant(state::SECCOMP),
        _ => {}
    }
    if state::segment().is_some() {
        let fd = a as c_int;
        match number {
            libc::SYS_read | libc::SYS_readv | libc::SYS_lseek => state::moved(fd),
            libc::SYS_close => _ = state::closing(fd),
            libc::SYS_dup3 => _ = state::closing(b as c_int),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => _ = state::closing(b as c_int),
            libc::SYS_close_range if c as u32 & libc::CLOSE_RANGE_CLOEXEC == 0 => {
                state::closing_range(a as u32 as usize, b as u32 as usize);
            }
            libc::SYS_chroot | libc::SYS_pivot_root | libc::SYS_setns => go_dormant(state::CHROOT),
            _ => {}
        }
    }
    real::syscall::find().map_or(core::ptr::null(), |next| next as *const c_void)
}

// `syscall` takes its last argument from the stack: it is noted, and then jumped to, with every register as it was.
#[cfg(target_arch = "x86_64")]
macro_rules! jump_through {
    ($name:ident, $before:ident) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
                "call {before}",
                "mov r11, rax",
                "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                before = sym $before,
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump_through {
    ($name:ident, $before:ident) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!", "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]", "stp x6, x7, [sp, #64]",
                "bl {before}",
                "mov x16, x0",
                "ldp x6, x7, [sp, #64]", "ldp x4, x5, [sp, #48]", "ldp x2, x3, [sp, #32]",
                "ldp x0, x1, [sp, #16]", "ldp x29, x30, [sp], #80",
                "br x16",
                before = sym $before,
            )
        }
    };
}

jump_through!(syscall, before_syscall);

/// The functions that become another program: some take arguments without number, so each is jumped to.
macro_rules! execs {
    ($($name:ident, $before:ident, |$environment:ident| $passed_on:expr;)*) => {
        $(
            extern "C" fn $before(_: usize, _: usize, $environment: *mut *mut c_char) -> *const c_void {
                leave_what_is_gone($passed_on);
                real::$name::find().map_or(core::ptr::null(), |next| next as *const c_void)
            }
            jump_through!($name, $before);
        )*
    };
}

execs! {
    execve, before_execve, |environment| environment;
    execvpe, before_execvpe, |environment| environment;
    fexecve, before_fexecve, |environment| environment;
    execv, before_execv, |_environment| core::ptr::null_mut();
    execvp, before_execvp, |_environment| core::ptr::null_mut();
    execl, before_execl, |_environment| core::ptr::null_mut();
    execlp, before_execlp, |_environment| core::ptr::null_mut();
    execle, before_execle, |_environment| core::ptr::null_mut();
}

// A vfork child returns through the caller's frame while its parent waits to do the same, and by then whatever lay below that frame
// is overwritten: where both return to is kept beside the stack, and the next `vfork` is called with the stack as our caller had it.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn vfork() {
    core::arch::naked_asm!(
        "mov rdi, [rsp]",
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "test rdx, rdx",
        "jnz 2f",
        "jmp rax",
        "2:",
        "add rsp, 8",
        "call rax",
        "sub rsp, 16",
        "mov [rsp], rax",
        "mov edi, eax",
        "call {after}",
        "mov rcx, rax",
        "mov rax, [rsp]",
        "add rsp, 16",
        "jmp rcx",
        before = sym before_vfork,
        after = sym after_vfork,
    )
}

#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn vfork() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x0, x30",
        "bl {before}",
        "ldp x29, x30, [sp], #16",
        "mov x16, x0",
        "cbnz x1, 2f",
        "br x16",
        "2:",
        "blr x16",
        "sub sp, sp, #16",
        "str x0, [sp]",
        "bl {after}",
        "mov x30, x0",
        "ldr x0, [sp]",
        "add sp, sp, #16",
        "ret",
        before = sym before_vfork,
        after = sym after_vfork,
    )
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
