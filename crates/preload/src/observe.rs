//! The path of a read: what is looked at before the real call, and what is told.
//!
//! ```text
//!   pread(fd, 8192, 4096)
//!     a page or two, settled, and used since the agent last asked ──> real call              + a few ns: the hit
//!     description of fd bound? ──no──> meet it: fstat, F_GETFL, bind, tell Seen               once a description
//!     clip to the file's size  ──nothing left──> real call
//!     touch the leaf's bits
//!       settled ──────────────────────> real call
//!         each 64th ──────────────────> timed; slower than 50 us: tell Surprise
//!       quiet ────────────────────────> timed; slower than 20 us: tell Done
//!       loud ─────────────────────────> tell Read, ring the bell, timed; slower than 5 us: tell Done
//! ```
//!
//! The hit is neither timed nor counted: the agent takes the bits of use back ten times a second, so its page was read
//! within a tenth of a second, and after the next harvest its first read is no hit. What a hit waits for, instruction
//! after instruction, is what it costs: the processor begins anew after each system call, so it is the longest chain of
//! loads that counts (`docs/decisions/0002`).
//!
//! The real call is always made, once, with the program's own arguments, and its result and errno are the program's.
//! What comes after it is atomics, the clock and the ring; nothing that could fail or wait.

use bowwave_wire::{Kind, Segment, Standing as Pages};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::process;
use crate::state::{self, Bound, Standing};
use crate::sys;

/// Of the settled reads that are no hits, one in so many is timed.
const SAMPLE_READS: u32 = 64;
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

/// Whether a read of `len` bytes at `offset` may go to the real function at once, with nothing kept for afterwards: nobody
/// observes, or it is a plain hit.
#[inline(always)]
pub(crate) fn passes_at(fd: c_int, offset: i64, len: usize) -> bool {
    let Some(segment) = process::segment() else { return true };
    state::known_at_once(fd).is_some_and(|known| known.is_hit(segment, offset as u64, len))
}

/// The same of a read at the position, which it takes; and what is left alone passes too.
#[inline(always)]
pub(crate) fn passes_here(fd: c_int, len: usize) -> bool {
    let Some(segment) = process::segment() else { return true };
    state::known_at_once(fd).is_some_and(|known| known.takes_hit(segment, len) || known.is_left_alone())
}

/// Whether nobody observes, so that a read of any kind passes.
#[inline(always)]
pub(crate) fn passes_unseen() -> bool {
    process::segment().is_none()
}

/// The segment, if this is somebody whose reads are told: a vfork child is none.
#[inline]
fn listening() -> Option<&'static Segment> {
    process::segment().filter(|_| !process::memory_is_lent())
}

/// Performs `call`, a read of `len` bytes of `fd` that returns how many it got, and tells the agent what it needs.
pub(crate) fn observe(fd: c_int, place: Place, len: usize, call: &mut dyn FnMut() -> isize) -> isize {
    let Some(segment) = listening() else { return call() };
    match place {
        Place::At(offset) => match state::standing(segment, fd) {
            // A negative offset is the kernel's to refuse.
            Standing::Bound(_) if offset < 0 || len == 0 => call(),
            Standing::Bound(bound) => observe_at(segment, bound, offset as u64, len, call),
            Standing::LeftAlone => call(),
            Standing::Unmet => meet(segment, fd, place, len, call),
        },
        Place::Position => match state::standing(segment, fd) {
            Standing::Bound(bound) => observe_here(segment, bound, len, call),
            Standing::LeftAlone => call(),
            Standing::Unmet => meet(segment, fd, place, len, call),
        },
    }
}

/// A read that is no hit, or may not be one: settled pages that are read for the first time, are many, or belong to a
/// descriptor that others read as well.
fn observe_at(
    segment: &'static Segment,
    bound: Bound,
    offset: u64,
    len: usize,
    call: &mut dyn FnMut() -> isize,
) -> isize {
    if is_settled(segment, &bound, offset, len) && !is_sampled() {
        return call();
    }
    told(segment, bound, offset, len, call)
}

/// The same at the position, which is taken before it is known how the pages stand.
fn observe_here(
    segment: &'static Segment,
    bound: Bound,
    len: usize,
    call: &mut dyn FnMut() -> isize,
) -> isize {
    let known = bound.known;
    if let Some(offset) = known.next(len) {
        known.note_reader(bound.file);
        if is_settled(segment, &bound, offset, len) && !is_sampled() {
            let returned = call();
            known.give_back(len, returned);
            return returned;
        }
        known.give_back(len, 0);
    }
    told_here(segment, bound, len, call)
}

/// The same for a stream that refills its buffer from `offset` on.
pub(crate) fn observe_refill(fd: c_int, offset: u64, len: usize, call: &mut dyn FnMut() -> isize) -> isize {
    let Some(segment) = listening() else { return call() };
    match state::standing(segment, fd) {
        Standing::Bound(bound) => observe_at(segment, bound, offset, len, call),
        Standing::LeftAlone => call(),
        Standing::Unmet => meet(segment, fd, Place::At(offset.cast_signed()), len, call),
    }
}

/// Whether `fd` is one that is watched or may become so. Saves the price of finding out where a read starts.
#[inline]
pub(crate) fn is_watched(fd: c_int) -> bool {
    listening().is_some_and(|segment| !matches!(state::standing(segment, fd), Standing::LeftAlone))
}

/// Whether all pages of a read are settled. Marks them used.
fn is_settled(segment: &Segment, bound: &Bound, offset: u64, len: usize) -> bool {
    clipped(bound, offset, len)
        .is_some_and(|len| matches!(segment.touch(bound.slot.tag(), offset, len), Pages::Settled))
}

/// The part of `[offset, offset + len)` that lies in the file, as far as its size is known. A program that asks for
/// 128 KiB where 10 are left must not be loud for 28 pages that do not exist.
#[inline(always)]
fn clipped(bound: &Bound, offset: u64, len: usize) -> Option<u64> {
    let left = bound.file.size.load(Relaxed).checked_sub(offset)?;
    let len = left.min(len as u64);
    (len > 0).then_some(len)
}

/// Picks one in 64 of this thread's reads that come here, roughly: threads whose words mix to the same count together. So
/// they do not fight for one cache line, and no thread-local storage is needed, whose first use in a thread may allocate.
fn is_sampled() -> bool {
    #[repr(align(64))]
    struct Tick(AtomicU32);
    static TICKS: [Tick; 64] = [const { Tick(AtomicU32::new(0)) }; 64];
    let mixed = sys::this_thread().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
    let Some(Tick(ticks)) = TICKS.get(mixed as usize) else { return false };
    let count = ticks.load(Relaxed).wrapping_add(1);
    ticks.store(count, Relaxed);
    count.is_multiple_of(SAMPLE_READS)
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
        (Some(bound), Place::Position) => told_here(segment, bound, len, call),
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
fn told_here(segment: &'static Segment, bound: Bound, len: usize, call: &mut dyn FnMut() -> isize) -> isize {
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
    let (kind, slow_ns) = match segment.touch(bound.slot.tag(), offset, inside) {
        Pages::Loud => {
            bound.steer_kernel();
            if segment.push(&bound.event(Kind::Read, 0, offset, inside, started)) {
                process::ring(segment);
            }
            started = sys::now_ns();
            (Kind::Done, LOUD_NS)
        }
        Pages::Quiet => (Kind::Done, QUIET_NS),
        Pages::Settled => {
            bound.steer_kernel();
            (Kind::Surprise, SURPRISE_NS)
        }
    };
    let returned = call();
    let ended = sys::now_ns();
    let waited = ended.saturating_sub(started);
    // The program may have gone dormant while it read: another thread, or a signal's handler.
    if waited > slow_ns * (1 + inside / COPY_BYTES) && process::segment().is_some() {
        let mut event = bound.event(kind, 0, offset, returned.max(0) as u64, ended);
        event.waited_ns = u32::try_from(waited).unwrap_or(u32::MAX);
        segment.push(&event);
    }
    returned
}
