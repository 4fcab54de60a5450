//! The path of a read: what is looked at before the real call, and what is told.
//!
//! ```text
//!   pread(fd, 8192, 4096)
//!     description of fd bound? ──no──> meet it: fstat, F_GETFL, bind, tell Seen               once a description
//!     clip to the file's size  ──nothing left──> real call
//!     touch the leaf's bits
//!       settled ──────────────────────> real call                                            + a few ns
//!         each 64th ──────────────────> timed; slower than 50 us: tell Surprise
//!       quiet ────────────────────────> timed; slower than 20 us: tell Done
//!       loud ─────────────────────────> tell Read, ring the bell, timed; slower than 5 us: tell Done
//! ```
//!
//! The real call is always made, once, with the program's own arguments, and its result and errno are the program's.
//! What comes after it is atomics, the clock and the ring; nothing that could fail or wait.

use bowwave_wire::{Kind, Segment, Standing as Pages};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::state::{self, Bound, Known, Standing};
use crate::sys;

/// Of the settled reads, one in so many is timed.
pub(crate) const SAMPLE_READS: u32 = 64;
/// A settled page slower than this was not there after all. A cached 1 MiB read takes 100 us, so it is per 64 KiB.
const SURPRISE_NS: u64 = 50_000;
/// A quiet page slower than this was waited for.
const QUIET_NS: u64 = 20_000;
/// A loud page faster than this was there; the agent learns nothing from being told again.
const LOUD_NS: u64 = 5_000;
/// Bytes that may take one threshold to copy.
const COPY_BYTES: u64 = 64 << 10;

/// Where a read starts.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// At an offset of its own.
    At(i64),
    /// At the descriptor's position.
    Position,
}

/// Performs `call`, a read of `len` bytes of `fd` that returns how many it got, and tells the agent what it needs.
///
/// `call` is copied into the slow path, so that on a hit the arguments stay in their registers and the real function is
/// jumped to.
#[inline(always)]
pub(crate) fn observe<F: FnMut() -> isize + Copy>(fd: c_int, place: Place, len: usize, mut call: F) -> isize {
    let Some(segment) = state::segment() else { return call() };
    match place {
        Place::At(offset) => {
            if !state::is_hit(segment, fd, offset as u64, len) {
                return no_hit_at(segment, fd, offset, len, call);
            }
            if is_sampled(segment) {
                return no_hit(segment, fd, place, len, call);
            }
            call()
        }
        Place::Position => {
            let Some(known) = state::known(fd) else { return no_hit(segment, fd, place, len, call) };
            if known.is_left_alone() {
                return call();
            }
            let Some(offset) = known.next(len) else { return no_hit(segment, fd, place, len, call) };
            let hit = known.is_hit(segment, offset, len);
            if if hit { !known.is_sampled(segment) } else { is_settled(segment, known, offset, len) } {
                let returned = call();
                known.give_back(len, returned);
                return returned;
            }
            known.give_back(len, 0);
            no_hit(segment, fd, place, len, call)
        }
    }
}

/// Not cold: a program that reads large pieces comes here each time.
#[inline(never)]
fn no_hit_at<F: FnMut() -> isize + Copy>(
    segment: &'static Segment,
    fd: c_int,
    offset: i64,
    len: usize,
    mut call: F,
) -> isize {
    if may_pass(segment, fd, offset, len) {
        return call();
    }
    not_settled(segment, fd, Place::At(offset), len, &mut call)
}

/// Keeps the frame that `call` needs to be in memory for the slow path out of the fast one.
#[cold]
#[inline(never)]
fn no_hit<F: FnMut() -> isize + Copy>(
    segment: &'static Segment,
    fd: c_int,
    place: Place,
    len: usize,
    mut call: F,
) -> isize {
    not_settled(segment, fd, place, len, &mut call)
}

/// Whether a read at an offset that is no plain hit may pass untold all the same: nothing to steer, nothing to read, or
/// settled pages that are read for the first time or are many.
fn may_pass(segment: &'static Segment, fd: c_int, offset: i64, len: usize) -> bool {
    match state::standing(segment, fd) {
        // A negative offset is the kernel's to refuse.
        Standing::Bound(bound) => {
            offset < 0 || len == 0 || is_settled(segment, bound.known, offset as u64, len)
        }
        Standing::LeftAlone => true,
        Standing::Unmet => false,
    }
}

/// Everything but the plain hit. Looks the descriptor up again, so that a hit keeps nothing for us.
#[cold]
#[inline(never)]
fn not_settled(
    segment: &'static Segment,
    fd: c_int,
    place: Place,
    len: usize,
    call: &mut dyn FnMut() -> isize,
) -> isize {
    match (state::standing(segment, fd), place) {
        // A negative offset is the kernel's to refuse.
        (Standing::Bound(_), Place::At(offset)) if offset < 0 || len == 0 => call(),
        (Standing::Bound(bound), Place::At(offset)) => told(segment, bound, offset as u64, len, call),
        (Standing::Bound(bound), Place::Position) => told_at_position(segment, bound, len, call),
        (Standing::LeftAlone, _) => call(),
        (Standing::Unmet, _) => meet(segment, fd, place, len, call),
    }
}

/// The same for a stream that refills its buffer from `offset` on.
pub(crate) fn observe_refill(fd: c_int, offset: u64, len: usize, call: &mut dyn FnMut() -> isize) -> isize {
    let Some(segment) = state::segment() else { return call() };
    match state::standing(segment, fd) {
        Standing::Bound(bound) => {
            let hit = bound.known.is_hit(segment, offset, len);
            if if hit { !is_sampled(segment) } else { is_settled(segment, bound.known, offset, len) } {
                return call();
            }
            told(segment, bound, offset, len, call)
        }
        Standing::LeftAlone => call(),
        Standing::Unmet => meet(segment, fd, Place::At(offset.cast_signed()), len, call),
    }
}

/// Whether `fd` is one that is watched or may become so. Saves the price of finding out where a read starts.
#[inline]
pub(crate) fn is_watched(fd: c_int) -> bool {
    state::segment().is_some_and(|segment| !matches!(state::standing(segment, fd), Standing::LeftAlone))
}

/// Whether all pages of a read are settled, and it is not one that is timed.
#[inline(never)]
fn is_settled(segment: &'static Segment, known: Known, offset: u64, len: usize) -> bool {
    let Some(bound) = known.bound(segment) else { return false };
    let Some(len) = clipped(&bound, offset, len) else { return false };
    matches!(segment.touch(bound.index, offset, len), Pages::Settled) && !is_sampled(segment)
}

/// Counts a read that nobody needs to hear of, and picks one in 64 to be timed.
#[inline(always)]
fn is_sampled(segment: &Segment) -> bool {
    let sampled = tick().is_multiple_of(SAMPLE_READS);
    if sampled {
        segment.quiet_reads_64.fetch_add(1, Relaxed);
    }
    sampled
}

/// The part of `[offset, offset + len)` that lies in the file, as far as its size is known. A program that asks for
/// 128 KiB where 10 are left must not be loud for 28 pages that do not exist.
#[inline(always)]
fn clipped(bound: &Bound, offset: u64, len: usize) -> Option<u64> {
    let left = bound.file.size.load(Relaxed).checked_sub(offset)?;
    let len = left.min(len as u64);
    (len > 0).then_some(len)
}

/// Counts this thread's reads, roughly: a thread is known by where its stack is, so that threads do not fight for one
/// cache line and no thread-local storage is needed, whose first use in a thread may allocate.
#[inline(always)]
fn tick() -> u32 {
    #[repr(align(64))]
    struct Tick(AtomicU32);
    static TICKS: [Tick; 64] = [const { Tick(AtomicU32::new(0)) }; 64];
    let here = 0_u8;
    let stack = (&raw const here) as u64 >> 16;
    let Some(Tick(ticks)) = TICKS.get((stack.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize) else {
        return 1;
    };
    let count = ticks.load(Relaxed).wrapping_add(1);
    ticks.store(count, Relaxed);
    count
}

fn meet(
    segment: &'static Segment,
    fd: c_int,
    place: Place,
    len: usize,
    call: &mut dyn FnMut() -> isize,
) -> isize {
    let now = sys::now_ns();
    let bound = if segment.agent_alive(now) { state::meet(segment, fd, now) } else { None };
    match (bound, place) {
        (Some(bound), Place::At(offset)) if offset >= 0 && len > 0 => {
            told(segment, bound, offset as u64, len, call)
        }
        (Some(bound), Place::Position) => told_at_position(segment, bound, len, call),
        (None, Place::Position) => {
            let returned = call();
            // Nobody follows this description now; whoever meets it later must ask.
            state::moved(fd);
            returned
        }
        _ => call(),
    }
}

/// A read at the position that is not a plain hit: make sure of the position first where that is worth a system call.
fn told_at_position(
    segment: &'static Segment,
    bound: Bound,
    len: usize,
    call: &mut dyn FnMut() -> isize,
) -> isize {
    let known = bound.known;
    let sure = known.reserve(len).filter(|_| !known.is_uncertain());
    if sure.is_none() && !bound.is_still_that_file() {
        state::closing(known.fd);
        return call();
    }
    let Some(offset) = sure.or_else(|| known.reserve_anew(len)) else {
        state::closing(known.fd);
        return call();
    };
    let returned = told(segment, bound, offset, len, call);
    known.give_back(len, returned);
    returned
}

/// A read at a known place that is not a plain hit.
#[cold]
#[inline(never)]
fn told(
    segment: &'static Segment,
    bound: Bound,
    offset: u64,
    len: usize,
    call: &mut dyn FnMut() -> isize,
) -> isize {
    let Some(inside) = clipped(&bound, offset, len) else {
        let returned = call();
        if returned > 0 {
            // It has grown since, or another process moved the position: see `is_still_that_file`.
            bound.is_still_that_file();
            state::moved(bound.known.fd);
        }
        return returned;
    };
    let mut started = sys::now_ns();
    if !segment.agent_alive(started) {
        bound.known.restore_kernel();
        return call();
    }
    let (kind, slow_ns) = match segment.touch(bound.index, offset, inside) {
        Pages::Loud => {
            bound.steer_kernel();
            if segment.push(&bound.event(Kind::Read, 0, offset, inside, started)) {
                segment.bell.fetch_add(1, Relaxed);
                sys::wake(segment.bell.as_ptr());
            }
            started = sys::now_ns();
            (Kind::Done, LOUD_NS)
        }
        Pages::Quiet => {
            is_sampled(segment);
            (Kind::Done, QUIET_NS)
        }
        Pages::Settled => {
            bound.steer_kernel();
            (Kind::Surprise, SURPRISE_NS)
        }
    };
    let returned = call();
    let ended = sys::now_ns();
    let waited = ended.saturating_sub(started);
    // The program may have gone dormant while it read: another thread, or a signal's handler.
    if waited > slow_ns * (1 + inside / COPY_BYTES) && state::segment().is_some() {
        let mut event = bound.event(kind, 0, offset, returned.max(0) as u64, ended);
        event.waited_ns = u32::try_from(waited).unwrap_or(u32::MAX);
        segment.push(&event);
    }
    returned
}
