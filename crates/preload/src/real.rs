//! The functions that we stand in front of: the next ones of that name, resolved once, before `main`.
//!
//! ```text
//!   program ──> our pread ──> next pread: libc's, or that of another preloaded library
//! ```
//!
//! The constructor asks `dlsym` for all of them. A hook entered earlier (another library's constructor may read a file)
//! does the plain system call instead, since `dlsym` inside somebody's half-made allocator is how such libraries
//! deadlock; only what cannot be a plain system call, stdio above all, is looked up on the spot.

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{FILE, clockid_t, iovec, loff_t, off_t, size_t, ssize_t, timespec};

fn look_up(name: &CStr) -> *mut c_void {
    // SAFETY: a valid name; RTLD_NEXT searches the libraries after ours.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

macro_rules! next {
    ($($name:ident($($arg:ty),*) -> $ret:ty;)*) => {
        $(
            #[allow(non_snake_case, reason = "named as in C")]
            pub(crate) mod $name {
                use super::*;

                pub(crate) type Function = unsafe extern "C" fn($($arg),*) -> $ret;
                const NAME: &str = concat!(stringify!($name), "\0");
                // One beside the other, not each where the linker likes: a page less that a hit may find gone from the TLB.
                #[unsafe(link_section = ".data.bowwave")]
                static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

                pub(super) fn resolve() {
                    if let Ok(name) = CStr::from_bytes_with_nul(NAME.as_bytes()) {
                        NEXT.store(look_up(name), Ordering::Relaxed);
                    }
                }

                /// The next function of this name; `None` before the constructor, or where libc has none.
                #[inline(always)]
                pub(crate) fn next() -> Option<Function> {
                    let next = NEXT.load(Ordering::Relaxed);
                    // SAFETY: null, or what dlsym gave for a function of this name and type; `Option` of a function
                    // pointer is the pointer, null for none.
                    unsafe { core::mem::transmute::<*mut c_void, Option<Function>>(next) }
                }

                /// The same, looked up now if need be.
                #[inline(always)]
                #[allow(dead_code, reason = "not every function needs to be found before the constructor")]
                pub(crate) fn find() -> Option<Function> {
                    next().or_else(|| {
                        resolve();
                        next()
                    })
                }
            }
        )*

        /// Resolves them all.
        pub(crate) fn resolve() {
            $($name::resolve();)*
        }
    };
}

type Stream = *mut FILE;

next! {
    open(*const c_char, c_int, c_uint) -> c_int;
    open64(*const c_char, c_int, c_uint) -> c_int;
    openat(c_int, *const c_char, c_int, c_uint) -> c_int;
    openat64(c_int, *const c_char, c_int, c_uint) -> c_int;
    creat(*const c_char, c_uint) -> c_int;
    creat64(*const c_char, c_uint) -> c_int;
    __open_2(*const c_char, c_int) -> c_int;
    __open64_2(*const c_char, c_int) -> c_int;
    __openat_2(c_int, *const c_char, c_int) -> c_int;
    __openat64_2(c_int, *const c_char, c_int) -> c_int;
    close(c_int) -> c_int;
    close_range(c_uint, c_uint, c_int) -> c_int;
    closefrom(c_int) -> ();
    dup(c_int) -> c_int;
    dup2(c_int, c_int) -> c_int;
    dup3(c_int, c_int, c_int) -> c_int;
    fcntl(c_int, c_int, usize) -> c_int;
    fcntl64(c_int, c_int, usize) -> c_int;
    lseek(c_int, off_t, c_int) -> off_t;
    lseek64(c_int, off_t, c_int) -> off_t;
    posix_fadvise(c_int, off_t, off_t, c_int) -> c_int;
    posix_fadvise64(c_int, off_t, off_t, c_int) -> c_int;
    readahead(c_int, off_t, size_t) -> ssize_t;

    mmap(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
    mmap64(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
    munmap(*mut c_void, size_t) -> c_int;
    mremap(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void;
    madvise(*mut c_void, size_t, c_int) -> c_int;
    posix_madvise(*mut c_void, size_t, c_int) -> c_int;
    mlock(*const c_void, size_t) -> c_int;
    mlock2(*const c_void, size_t, c_uint) -> c_int;
    mlockall(c_int) -> c_int;

    read(c_int, *mut c_void, size_t) -> ssize_t;
    pread(c_int, *mut c_void, size_t, off_t) -> ssize_t;
    pread64(c_int, *mut c_void, size_t, off_t) -> ssize_t;
    readv(c_int, *const iovec, c_int) -> ssize_t;
    preadv(c_int, *const iovec, c_int, off_t) -> ssize_t;
    preadv64(c_int, *const iovec, c_int, off_t) -> ssize_t;
    preadv2(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    preadv64v2(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    __read_chk(c_int, *mut c_void, size_t, size_t) -> ssize_t;
    __pread_chk(c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t;
    __pread64_chk(c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t;
    sendfile(c_int, c_int, *mut off_t, size_t) -> ssize_t;
    sendfile64(c_int, c_int, *mut off_t, size_t) -> ssize_t;
    copy_file_range(c_int, *mut loff_t, c_int, *mut loff_t, size_t, c_uint) -> ssize_t;
    splice(c_int, *mut loff_t, c_int, *mut loff_t, size_t, c_uint) -> ssize_t;

    fopen(*const c_char, *const c_char) -> Stream;
    fopen64(*const c_char, *const c_char) -> Stream;
    freopen(*const c_char, *const c_char, Stream) -> Stream;
    freopen64(*const c_char, *const c_char, Stream) -> Stream;
    fclose(Stream) -> c_int;
    fread(*mut c_void, size_t, size_t, Stream) -> size_t;
    fread_unlocked(*mut c_void, size_t, size_t, Stream) -> size_t;
    __fread_chk(*mut c_void, size_t, size_t, size_t, Stream) -> size_t;
    __fread_unlocked_chk(*mut c_void, size_t, size_t, size_t, Stream) -> size_t;
    fgets(*mut c_char, c_int, Stream) -> *mut c_char;
    fgets_unlocked(*mut c_char, c_int, Stream) -> *mut c_char;
    __fgets_chk(*mut c_char, size_t, c_int, Stream) -> *mut c_char;
    __fgets_unlocked_chk(*mut c_char, size_t, c_int, Stream) -> *mut c_char;
    getline(*mut *mut c_char, *mut size_t, Stream) -> ssize_t;
    getdelim(*mut *mut c_char, *mut size_t, c_int, Stream) -> ssize_t;
    __getdelim(*mut *mut c_char, *mut size_t, c_int, Stream) -> ssize_t;
    fgetc(Stream) -> c_int;
    getc(Stream) -> c_int;
    _IO_getc(Stream) -> c_int;
    fgetc_unlocked(Stream) -> c_int;
    getc_unlocked(Stream) -> c_int;
    __uflow(Stream) -> c_int;
    __underflow(Stream) -> c_int;
    fseek(Stream, c_long, c_int) -> c_int;
    fseeko(Stream, off_t, c_int) -> c_int;
    fseeko64(Stream, off_t, c_int) -> c_int;

    chroot(*const c_char) -> c_int;
    setns(c_int, c_int) -> c_int;
    prctl(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
    system(*const c_char) -> c_int;
    popen(*const c_char, *const c_char) -> Stream;
    posix_spawn(*mut c_int, *const c_char, *const c_void, *const c_void, *const *mut c_char, *const *mut c_char) -> c_int;
    posix_spawnp(*mut c_int, *const c_char, *const c_void, *const c_void, *const *mut c_char, *const *mut c_char) -> c_int;
    execve(*const c_char) -> c_int;
    execvpe(*const c_char) -> c_int;
    fexecve(c_int) -> c_int;
    execv(*const c_char) -> c_int;
    execvp(*const c_char) -> c_int;
    execl(*const c_char) -> c_int;
    execlp(*const c_char) -> c_int;
    execle(*const c_char) -> c_int;
    syscall(c_long) -> c_long;
    vfork() -> c_int;
    gnu_get_libc_version() -> *const c_char;
    clock_gettime(clockid_t, *mut timespec) -> c_int;
}

/// The arguments of a raw system call.
macro_rules! words {
    ($($arg:expr),*) => {{
        let mut words = [0_usize; 6];
        for (word, value) in words.iter_mut().zip([$($arg as usize),*]) {
            *word = value;
        }
        words
    }};
}
pub(crate) use words;

/// In place of a system call's number: look the function up instead, before the constructor too.
pub(crate) const LOOK_UP: c_long = -1;

/// Calls the next function of this name or, before the constructor, does the plain system call.
macro_rules! or_raw {
    ($name:ident($($arg:expr),*), $number:expr) => {
        match (real::$name::next(), $number) {
            (Some(next), _) => next($($arg),*),
            (None, real::LOOK_UP) => match real::$name::find() {
                Some(next) => next($($arg),*),
                None => sys::as_libc(real::LOOK_UP, [0; 6]) as _,
            },
            (None, number) => sys::as_libc(number, real::words!($($arg),*)) as _,
        }
    };
}
pub(crate) use or_raw;
