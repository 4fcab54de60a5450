//! Several reads of local files at once from one thread: `io_uring`, where the system has it.
//!
//! A thread that waits for each read costs two switches and a wake a read; here one thread hands in up to 16 and sleeps once.
//!
//! ```text
//!   16 reads --> a ring that is free, of 8 at most --> one call: submit 16, wait for 16 --> bytes that each brought
//!                none is free                      --> whoever asked makes them one by one
//!                the system refuses                --> nobody asks again
//! ```
//!
//! Nothing here is needed for a read to come true: what did not come whole is read once more the plain way. A ring is one descriptor and
//! two pages of memory, and stays with its process: after a fork the child makes its own.

use io_uring::{IoUring, opcode, squeue::Entry, types::Fd};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Reads that one thread makes at once: what a ring has room for.
pub(super) const AT_ONCE: usize = 16;
/// Rings of a process: descriptors are scarce, and two processors keep no more of them at work.
const RINGS_MAX: usize = 8;

/// Those that nobody uses.
static RINGS: Mutex<Rings> = Mutex::new(Rings { free: Vec::new(), out: 0, process: 0 });
/// The system has none for us.
static REFUSED: AtomicBool = AtomicBool::new(false);

struct Rings {
    free: Vec<IoUring>,
    out: usize,
    /// To whom they belong.
    process: u32,
}

/// A read of several slices.
pub(super) struct Place<'a, 'b> {
    pub(super) file: &'a File,
    pub(super) offset: u64,
    pub(super) into: &'a mut [IoSliceMut<'b>],
}

/// Whether the system refused a ring until now.
pub(super) fn are_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

/// Makes reads, all at once; the bytes that each brought, 0 where it failed or was not made.
///
/// # Panics
/// Of more than [`AT_ONCE`].
pub(super) fn read_all(places: &mut [Place<'_, '_>]) -> Vec<usize> {
    assert!(places.len() <= AT_ONCE, "a ring has room for {AT_ONCE}");
    let mut read = vec![0; places.len()];
    if let Some(mut ring) = take() {
        let is_whole = drive(&mut ring, places, &mut read);
        give(is_whole.then_some(ring));
    }
    read
}

fn take() -> Option<IoUring> {
    if are_refused() {
        return None;
    }
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if rings.process != std::process::id() {
        // The parent's are at work in the parent.
        std::mem::forget(std::mem::take(&mut rings.free));
        (rings.out, rings.process) = (0, std::process::id());
    }
    let free = rings.free.pop();
    if free.is_none() && rings.out == RINGS_MAX {
        return None;
    }
    // Completions come when the thread enters the kernel, where that can be had (5.19): it waits there anyway.
    let builder = || IoUring::builder().dontfork().clone();
    let made =
        || builder().setup_coop_taskrun().build(AT_ONCE as u32).or_else(|_| builder().build(AT_ONCE as u32));
    match free.map_or_else(made, Ok) {
        Ok(ring) => {
            rings.out += 1;
            Some(ring)
        }
        Err(_) => {
            REFUSED.store(true, Ordering::Relaxed);
            None
        }
    }
}

/// A ring comes back; `None` where it is good for nothing any more.
fn give(ring: Option<IoUring>) {
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    rings.out = rings.out.saturating_sub(1);
    match ring {
        Some(ring) => rings.free.push(ring),
        None => REFUSED.store(true, Ordering::Relaxed),
    }
}

/// Hands in all reads and waits for all of them. Whether the ring can be used again; either way none of its reads is under way.
fn drive(ring: &mut IoUring, places: &mut [Place<'_, '_>], read: &mut [usize]) -> bool {
    for (number, place) in places.iter_mut().enumerate() {
        let entry = entry(place).user_data(number as u64);
        // SAFETY: what the entry points to outlives this function, which returns when no read is under way any more.
        unsafe { ring.submission().push(&entry).expect("room for as many as there are") };
    }
    let mut left = places.len();
    while left > 0 {
        let waited = ring.submit_and_wait(left);
        for completion in ring.completion() {
            read[completion.user_data() as usize] = completion.result().try_into().unwrap_or(0);
            left -= 1;
        }
        let Err(error) = waited else { continue };
        let passes = matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY));
        if !passes && left == ring.submission().len() {
            // Nothing that was handed in is missing, and the rest never will be.
            return false;
        }
        if !passes {
            // The system writes into these slices until each read is over: nobody leaves before.
            thread::sleep(Duration::from_millis(1));
        }
    }
    true
}

fn entry(place: &mut Place<'_, '_>) -> Entry {
    // An `IoSliceMut` has the layout of an `iovec` (std promises it).
    let slices = place.into.as_mut_ptr().cast::<libc::iovec>();
    opcode::Readv::new(Fd(place.file.as_raw_fd()), slices, place.into.len() as u32)
        .offset(place.offset)
        .build()
}

/// Whether reads of a file overlap in a ring: where the file system cannot begin one without waiting for it, the kernel has threads
/// wait, as we would, and fewer of them. `offset` is a place that was just read.
pub(super) fn overlap(file: &File, offset: u64) -> bool {
    let mut byte = [0u8; 1];
    let slice = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let Ok(offset) = libc::off_t::try_from(offset) else { return false };
    // SAFETY: one slice of ours, which outlives the call.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const slice, 1, offset, libc::RWF_NOWAIT) };
    read >= 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}
