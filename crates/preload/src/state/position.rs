//! Where the position of a description is, and who reads at it: followed from read to read, and asked of the kernel now and then.
//!
//! ```text
//!   opened                         0
//!   read 4096, told                0 taken before the call: 4096      the call brought 100: the rest is given back, 100
//!   lseek to 8192               8192
//!   read 4096, a hit            8192 -> 12288, without a locked instruction: this thread alone reads here, inside the file
//!   the 256th read               ASK  asked of the kernel first; the 16th where another process may move it too, the 1024th of hits alone
//!   moved, we do not know how    ASK  the same
//! ```

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bowwave_wire::{FileSlot, Segment};

use super::{Known, SHARED, known};
use crate::process::segment;
use crate::sys;

/// Positions from here on mean: ask the kernel. A read's length added to it by another thread leaves it one.
pub(super) const ASK: u64 = 1 << 63;
/// A position is checked against the kernel's this often ...
const RESYNC_READS: u32 = 256;
/// ... this often where another process may move it too ...
const RESYNC_READS_SHARED: u32 = 16;
/// ... and this often where all are hits: to ask, and to time that read, takes half a microsecond.
const RESYNC_HITS: u32 = 4 * RESYNC_READS;

/// Several threads read at the position. No thread's word.
const MANY: u64 = 1;

/// Counts the forks that made this process's descriptions shared.
pub(super) static FORKS: AtomicU32 = AtomicU32::new(0);
/// As many as there were when this process began as the child of one.
static BORN: AtomicU32 = AtomicU32::new(0);

/// The position of `fd` has moved in a way that we did not see.
pub(crate) fn moved(fd: c_int) {
    if let Some(known) = known(fd) {
        known.od.position.store(ASK, Relaxed);
    }
}

/// `lseek` says that the position of `fd` is `at` now.
#[inline]
pub(crate) fn sought(fd: c_int, at: i64) {
    if segment().is_none() || at < 0 {
        return;
    }
    if let Some(known) = known(fd) {
        known.od.position.store(at as u64, Relaxed);
    }
}

/// From now on every description that exists may be moved by somebody else.
pub(crate) fn shared_by_fork() {
    FORKS.fetch_add(1, Relaxed);
}

/// This process begins as the child of a fork: every description that exists is its parent's too.
pub(crate) fn begun_by_fork() {
    shared_by_fork();
    BORN.store(FORKS.load(Relaxed), Relaxed);
}

impl Known {
    /// [`Known::reserve`], unless it is time to ask the kernel: `None`.
    #[inline(always)]
    pub(crate) fn next(self, len: usize) -> Option<u64> {
        let reads = self.od.reads.load(Relaxed).wrapping_add(1);
        self.od.reads.store(reads, Relaxed);
        if reads.is_multiple_of(RESYNC_READS_SHARED) && self.is_due(reads) {
            self.od.position.store(ASK, Relaxed);
            return None;
        }
        self.reserve(len)
    }

    /// The plain hit at the position, and takes it: where one thread reads and nobody else moves the position, nobody writes
    /// the word between our look and our store, and inside the file all of what is asked comes. So it needs neither a locked
    /// instruction nor a look at what came of the call; a read that fails, or a file cut short, leaves the position wrong
    /// until the next look at the kernel's. The read before which to ask is left to [`Known::next`].
    #[inline(always)]
    pub(crate) fn takes_hit(self, segment: &'static Segment, len: usize) -> bool {
        let od = self.od;
        let takes = od.reader.load(Relaxed) == sys::this_thread()
            && od.forks.load(Relaxed) == FORKS.load(Relaxed)
            && !od.reads.load(Relaxed).wrapping_add(1).is_multiple_of(RESYNC_HITS)
            && self.is_inside(len)
            && self.is_hit(segment, od.position.load(Relaxed), len);
        if takes {
            od.reads.store(od.reads.load(Relaxed).wrapping_add(1), Relaxed);
            od.position.store(od.position.load(Relaxed).wrapping_add(len as u64), Relaxed);
        }
        takes
    }

    /// Whether `len` bytes from the position on lie in what `reader` may read unasked. ASK lies beyond every file.
    #[inline(always)]
    fn is_inside(self, len: usize) -> bool {
        self.od.position.load(Relaxed).wrapping_add(len as u64) <= self.od.size.load(Relaxed)
    }

    /// Notes that this thread reads at the position, and how large the file is.
    pub(crate) fn note_reader(self, file: &FileSlot) {
        if self.is_uncertain() {
            return;
        }
        let (od, me) = (self.od, sys::this_thread());
        if let Err(other) = od.reader.compare_exchange(0, me, Relaxed, Relaxed)
            && other != me
        {
            od.reader.store(MANY, Relaxed);
        }
        od.size.store(file.size.load(Relaxed), Relaxed);
    }

    /// Takes the next `len` bytes of the position, as the kernel will. `None`: ask the kernel first.
    ///
    /// Taken before the call and not after it, so that sixteen threads that wait in `read` on one descriptor tell of
    /// sixteen different places.
    #[inline(always)]
    pub(crate) fn reserve(self, len: usize) -> Option<u64> {
        let at = self.od.position.fetch_add(len as u64, Relaxed);
        (at < ASK).then_some(at)
    }

    /// Takes the next `len` bytes of where the kernel says that the position is.
    pub(crate) fn reserve_anew(self, len: usize) -> Option<u64> {
        let at = sys::position(self.fd)?;
        self.od.position.store(at.wrapping_add(len as u64), Relaxed);
        Some(at)
    }

    /// Gives back what the call did not take of a reservation of `len`.
    #[inline(always)]
    pub(crate) fn give_back(self, len: usize, returned: isize) {
        let taken = returned.max(0) as usize;
        if taken != len && self.is_current() {
            self.od.position.fetch_sub(len.wrapping_sub(taken) as u64, Relaxed);
        }
    }

    /// Whether another process may have moved the position since we looked.
    pub(crate) fn is_uncertain(self) -> bool {
        self.od.flags.load(Relaxed) & SHARED != 0 || self.od.forks.load(Relaxed) != FORKS.load(Relaxed)
    }

    /// Whether it was there before the fork that this process began with.
    pub(super) fn is_of_parent(self) -> bool {
        (self.od.forks.load(Relaxed).wrapping_sub(BORN.load(Relaxed)) as i32) < 0
    }

    #[cold]
    #[inline(never)]
    fn is_due(self, reads: u32) -> bool {
        reads.is_multiple_of(RESYNC_READS) || self.is_uncertain()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Description;
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    /// A description of this position and these flags that no descriptor names.
    fn at(position: u64, flags: u32) -> Known {
        let od: &'static Description = Box::leak(Box::new(Description::new()));
        od.position.store(position, Relaxed);
        od.flags.store(flags, Relaxed);
        Known { fd: -1, od, entry: 0 }
    }

    /// The kernel is asked before every 256th read, and before every 16th where others may move the position.
    #[test]
    fn the_kernel_is_asked_now_and_then() {
        for (flags, every) in [(0, 256), (SHARED, 16)] {
            let known = at(0, flags);
            let taken: Vec<_> = (0..every).map(|_| known.next(4096)).collect();
            assert!(taken[..every - 1].iter().copied().eq((0..every as u64 - 1).map(|n| Some(4096 * n))));
            assert_eq!(taken[every - 1], None);
            assert_eq!(known.next(4096), None, "and again, until it has said");
        }
    }

    /// What was taken stays taken where the descriptor is another's by now; a position that is not known stays so.
    #[test]
    fn a_reservation_is_given_back_by_who_still_has_the_descriptor() {
        let known = at(8192, 0);
        assert_eq!((known.reserve(4096), known.reserve(4096)), (Some(8192), Some(12_288)));
        known.give_back(4096, 100);
        assert_eq!(known.reserve(0), Some(16_384));
        assert_eq!([at(ASK, 0), at(ASK + 4096, 0)].map(|known| known.reserve(4096)), [None; 2]);
    }
}
