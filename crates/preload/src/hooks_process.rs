//! Births, borrowed memory, and the two doors behind which we must not move: seccomp and chroot.
//!
//! ```text
//!   fork            child: same tables, every position now uncertain in both; tells Process 1 (pthread_atfork)
//!   vfork           child runs in the parent's memory until exec: it has the word of the thread that waits for it, and is left alone
//!   posix_spawn     the same inside glibc, where no hook is entered; positions become uncertain
//!   seccomp         a filter may kill for futex or fadvise64: from now on not one system call of our own
//!   chroot, setns   our library's path may be nowhere: exec'd children must not be told to load it
//!   exec            what the next program has open gets the kernel's heuristics back (not from a vfork child)
//!   exec, spawn     is it still there? something may be mounted over its folder; asked by who is about to have a child, too,
//!                   since a vfork child asks nothing
//! ```
//!
//! Dormancy is for ever, for this process and its forks. What exec gives on is in the environment, out of which our name is taken
//! (environment.rs).

use bowwave_wire::{CHROOT, SECCOMP};
use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::FILE;

use crate::environment;
use crate::process;
use crate::real;
use crate::state;

#[link(name = "c")]
unsafe extern "C" {
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
    process::forked_child();
}

/// Whether our name is to be kept out of what this process passes on, also of lists that it makes anew (bash), and we may still
/// make system calls for that.
static NAMELESS: AtomicBool = AtomicBool::new(false);

fn go_dormant(detail: u32) {
    let quiet = detail == SECCOMP;
    if quiet {
        NAMELESS.store(false, Relaxed);
    }
    if process::segment().is_some() && !process::memory_is_lent() {
        if !quiet {
            NAMELESS.store(true, Relaxed);
        }
        process::go_dormant(detail);
        environment::leave_no_name();
    }
}

/// Before an exec, or before there is a child that may call it: where our library is gone, the next program is not told of it.
fn leave_what_is_gone(passed_on: *mut *mut c_char) {
    if process::memory_is_lent() {
        return;
    }
    if process::segment().is_some() && !environment::is_library_there() {
        go_dormant(CHROOT);
    }
    if NAMELESS.load(Relaxed) {
        // SAFETY: null, or a list that the program is about to pass on. Where that cannot be written our name stays in it.
        _ = unsafe { environment::leave_no_name_in(passed_on) };
    }
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
            go_dormant(CHROOT);
        }
        result
    };
    /// Another mount namespace: the same.
    fn setns(fd: c_int, kind: c_int) -> c_int, else -1, |call| {
        let result = call();
        if result == 0 && (kind == 0 || kind & libc::CLONE_NEWNS != 0) {
            go_dormant(CHROOT);
        }
        result
    };
    /// Before it, while our last system calls are still allowed.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, else -1, |call| {
        if option == libc::PR_SET_SECCOMP {
            go_dormant(SECCOMP);
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
    let comes_back = process::segment().is_some() && process::lending_memory(returns_to);
    Vfork { next, comes_back: usize::from(comes_back) }
}

/// In the child first, which got 0, and then in the parent. Says where to return to.
extern "C" fn after_vfork(got: c_int) -> usize {
    process::lent_memory(got != 0)
}

/// Notes what a direct system call does to our tables, and says where to go on.
extern "C" fn before_syscall(number: c_long, a: usize, b: usize, c: usize) -> *const c_void {
    match number {
        // Strict mode, or a filter; a null filter is a probe of what the kernel can do.
        libc::SYS_seccomp if a == 0 || (a == 1 && c != 0) => go_dormant(SECCOMP),
        libc::SYS_prctl if a == libc::PR_SET_SECCOMP as usize => go_dormant(SECCOMP),
        _ => {}
    }
    if process::segment().is_some() {
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
            libc::SYS_execve | libc::SYS_execveat => state::restore_before_exec(),
            libc::SYS_chroot | libc::SYS_pivot_root | libc::SYS_setns => go_dormant(CHROOT),
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
                state::restore_before_exec();
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
