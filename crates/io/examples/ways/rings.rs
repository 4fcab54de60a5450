//! The three ways by `io_uring`: a ring a thread, one thread with many reads out, one ring for all threads and one that reaps.

use crate::{Buffer, full};
use io_uring::{IoUring, opcode, types::Fd, types::Fixed};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, Thread};

/// Its sign in the queue of completions that the reaper is to end.
const END: u64 = 0;

/// A ring for one thread, with its file and buffers registered.
fn own_ring(file: &File, buffers: &mut [Buffer], bytes: usize) -> io::Result<IoUring> {
    let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(64)?;
    ring.submitter().register_files(&[file.as_raw_fd()])?;
    let slices: Vec<_> = buffers
        .iter_mut()
        .map(|b| libc::iovec { iov_base: b.bytes(bytes).as_mut_ptr().cast(), iov_len: bytes })
        .collect();
    // SAFETY: the buffers live as long as the ring, in the caller.
    unsafe { ring.submitter().register_buffers(&slices)? };
    Ok(ring)
}

fn push(ring: &mut IoUring, buffers: &mut [Buffer], slot: usize, offset: u64, bytes: usize) {
    let at = buffers[slot].bytes(bytes).as_mut_ptr();
    let entry = opcode::ReadFixed::new(Fixed(0), at, bytes as u32, slot as u16).offset(offset).build();
    // SAFETY: the buffer is registered, and nobody touches it until its completion was seen.
    unsafe {
        ring.submission().push(&entry.user_data(slot as u64)).expect("room for as many as there are buffers")
    };
}

/// One thread has as many reads out as there are buffers.
pub(crate) fn drive(file: &File, bytes: usize, offsets: &[u64], depth: usize) -> io::Result<()> {
    let mut buffers: Vec<_> = (0..depth).map(|_| Buffer::new(bytes)).collect();
    let mut ring = own_ring(file, &mut buffers, bytes)?;
    let (mut next, mut done) = (depth.min(offsets.len()), 0);
    for (slot, offset) in offsets[..next].iter().enumerate() {
        push(&mut ring, &mut buffers, slot, *offset, bytes);
    }
    while done < offsets.len() {
        ring.submit_and_wait(1)?;
        let came: Vec<_> =
            ring.completion().map(|c| (c.user_data() as usize, i64::from(c.result()))).collect();
        for (slot, read) in came {
            full(read, bytes)?;
            done += 1;
            if let Some(offset) = offsets.get(next) {
                push(&mut ring, &mut buffers, slot, *offset, bytes);
                next += 1;
            }
        }
    }
    Ok(())
}

/// A ring that all threads submit to, and one reaps.
pub(crate) struct Shared {
    ring: IoUring,
    submitting: Mutex<()>,
}

/// Who waits for a read of the shared ring.
struct Waiter {
    thread: Thread,
    read: AtomicI32,
}

impl Shared {
    const WAITING: i32 = i32::MIN;

    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { ring: IoUring::new(256)?, submitting: Mutex::new(()) })
    }

    fn submit(&self, entry: &io_uring::squeue::Entry) -> io::Result<()> {
        let _alone = self.submitting.lock().expect("nobody panics with it");
        // SAFETY: only whoever has the lock submits; what the entry points to outlives its completion, which its owner waits for.
        unsafe { self.ring.submission_shared().push(entry).map_err(io::Error::other)? };
        self.ring.submit().map(drop)
    }

    pub(crate) fn read(&self, file: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let waiter = Waiter { thread: thread::current(), read: AtomicI32::new(Self::WAITING) };
        let entry =
            opcode::Read::new(Fd(file.as_raw_fd()), into.as_mut_ptr(), into.len() as u32).offset(offset);
        self.submit(&entry.build().user_data((&raw const waiter).expose_provenance() as u64))?;
        while waiter.read.load(Ordering::Acquire) == Self::WAITING {
            thread::park();
        }
        full(i64::from(waiter.read.load(Ordering::Acquire)), into.len())
    }

    pub(crate) fn reap(&self) -> io::Result<()> {
        loop {
            // SAFETY: it only waits, and carries no argument.
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 1, 1, None)? };
            // SAFETY: only this thread looks at completions.
            for completion in unsafe { self.ring.completion_shared() } {
                if completion.user_data() == END {
                    return Ok(());
                }
                let waiter = std::ptr::with_exposed_provenance::<Waiter>(completion.user_data() as usize);
                // SAFETY: he waits on his own stack until `read` is set, and is not looked at after that.
                unsafe {
                    let thread = (*waiter).thread.clone();
                    (*waiter).read.store(completion.result(), Ordering::Release);
                    thread.unpark();
                }
            }
        }
    }

    /// The reaper ends.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.submit(&opcode::Nop::new().build().user_data(END))
    }
}
