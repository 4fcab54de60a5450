//! What this process is to the run: whether it observes, who it is, in whose memory its code runs, and what it tells of itself.
//!
//! ```text
//!   begin ──> observes ──> seccomp, chroot: dormant, for ever (SEGMENT is null)          end: the kernel's heuristics again
//!               │ fork      the child has a number of its own, and a place of its own if it is the first of a namespace
//!               │ vfork     the thread waits (LENDERS), its child runs here: it writes no table and makes no call of ours
//! ```

use bowwave_wire::{ENDS, Event, FORKED, Kind, ProcessId, Segment};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::maps;
use crate::state;
use crate::sys;

/// Beside the real functions, since each hit needs both.
#[unsafe(link_section = ".data.bowwave")]
static SEGMENT: AtomicPtr<Segment> = AtomicPtr::new(ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);
/// The process that forked this one, if it is known; else 0.
static PARENT: AtomicU32 = AtomicU32::new(0);
/// The place of our PID namespace in the segment.
static NAMESPACE: AtomicU32 = AtomicU32::new(0);
/// Threads whose vfork child runs in this process's memory until it calls exec or ends. It has the thread's own data, so it has the
/// thread's word; and the thread itself waits meanwhile.
static LENDERS: [Lender; LENDERS_MAX] =
    [const { Lender { thread: AtomicU64::new(0), returns_to: AtomicUsize::new(0) } }; LENDERS_MAX];
/// How many of them there are.
static LENT: AtomicU32 = AtomicU32::new(0);
/// One found no place, and nobody hears of its end: from then on the kernel is asked who we are.
static LENT_UNNOTED: AtomicBool = AtomicBool::new(false);
/// Threads that wait for a vfork child at once, and are noted.
const LENDERS_MAX: usize = 16;

/// A thread that waits for its vfork child; free while `thread` is 0.
struct Lender {
    thread: AtomicU64,
    /// Where its `vfork` returns to: what lies on the stack the child has overwritten by then.
    returns_to: AtomicUsize,
}

/// The segment, while we observe. Null is passive: no agent, switched off, or dormant.
#[inline(always)]
pub(crate) fn segment() -> Option<&'static Segment> {
    // SAFETY: null, or a mapping of the whole segment that is never unmapped; it consists of atomics.
    unsafe { SEGMENT.load(Relaxed).as_ref() }
}

/// This process, as it sees itself in its namespace.
fn process() -> u32 {
    ProcessId::new(NAMESPACE.load(Relaxed), PID.load(Relaxed)).0
}

/// This thread, likewise.
fn thread() -> u32 {
    ProcessId::new(NAMESPACE.load(Relaxed), sys::thread_id()).0
}

/// Begins to observe.
pub(crate) fn begin(segment: *mut Segment) {
    PID.store(sys::process_id(), Relaxed);
    // SAFETY: a mapping of the whole segment that is never unmapped; it consists of atomics.
    look_at_namespace(unsafe { &*segment });
    SEGMENT.store(segment, Relaxed);
}

/// Where nothing can be seen of it, it is taken for the agent's.
fn look_at_namespace(segment: &Segment) {
    let place = sys::pid_namespace().map_or(0, |inode| segment.place_of_namespace(inode));
    NAMESPACE.store(place, Relaxed);
}

/// Wakes the agent.
pub(crate) fn ring(segment: &Segment) {
    segment.bell.fetch_add(1, Relaxed);
    sys::wake(segment.bell.as_ptr());
}

/// An event of this thread, of no file and no place in one.
pub(crate) fn event(kind: Kind, detail: u32, at_ns: u64) -> Event {
    Event {
        kind,
        detail,
        pid: process(),
        tid: thread(),
        fd: -1,
        file: u32::MAX,
        generation: 0,
        offset: 0,
        len: 0,
        at_ns,
        waited_ns: 0,
    }
}

/// Tells of the process itself. Not urgent: nobody is woken.
pub(crate) fn tell(detail: u32) {
    tell_of(detail, 0);
}

fn tell_of(detail: u32, parent: u32) {
    let Some(segment) = segment() else { return };
    let now = sys::now_ns();
    if segment.agent_alive(now) {
        segment.push(&Event { offset: u64::from(parent), ..event(Kind::Process, detail, now) });
    }
}

/// We are the child of a fork.
pub(crate) fn forked_child() {
    state::begun_by_fork();
    if let Some(segment) = segment() {
        let parent = process();
        PARENT.store(PID.load(Relaxed), Relaxed);
        PID.store(sys::process_id(), Relaxed);
        // The first of its namespace: whoever forked it had unshared.
        if sys::process_id() == 1 {
            look_at_namespace(segment);
        }
        LENDERS.iter().for_each(|lender| lender.thread.store(0, Relaxed));
        LENT.store(0, Relaxed);
        LENT_UNNOTED.store(false, Relaxed);
        tell_of(FORKED, parent);
    }
}

/// Whether this process began as the child of a fork, and its parent lives.
pub(crate) fn parent_lives() -> bool {
    let parent = PARENT.load(Relaxed);
    parent != 0 && sys::parent_id() == parent
}

/// From now on a child may run in this process's memory until it calls exec, and close or replace *its* descriptors. Says
/// whether that is noted: then [`lent_memory`] is to be called in the child and in the parent, before they return to there.
pub(crate) fn lending_memory(returns_to: usize) -> bool {
    state::shared_by_fork();
    let me = sys::this_thread();
    if is_lender(me) {
        return false; // a child of the child: all is as it is
    }
    LENT.fetch_add(1, Relaxed);
    for lender in &LENDERS {
        if lender.thread.compare_exchange(0, me, Relaxed, Relaxed).is_ok() {
            lender.returns_to.store(returns_to, Relaxed);
            return true;
        }
    }
    LENT_UNNOTED.store(true, Relaxed);
    false
}

/// Where this thread's vfork returns to. In the parent, the memory is its own again.
pub(crate) fn lent_memory(in_parent: bool) -> usize {
    let me = sys::this_thread();
    let Some(lender) = LENDERS.iter().find(|lender| lender.thread.load(Relaxed) == me) else { return 0 };
    let returns_to = lender.returns_to.load(Relaxed);
    if in_parent {
        lender.thread.store(0, Relaxed);
        LENT.fetch_sub(1, Relaxed);
    }
    returns_to
}

/// Whether this code runs in a child that borrowed its parent's memory: it must not write in the parent's tables. Nor does it
/// make a system call of ours: it may have a filter that kills for them, of which it can leave no note in memory that is not its.
#[inline(always)]
pub(crate) fn memory_is_lent() -> bool {
    LENT.load(Relaxed) != 0 && runs_in_lent_memory()
}

#[cold]
#[inline(never)]
fn runs_in_lent_memory() -> bool {
    is_lender(sys::this_thread())
        || LENT_UNNOTED.load(Relaxed) && segment().is_some() && sys::process_id() != PID.load(Relaxed)
}

fn is_lender(thread: u64) -> bool {
    LENDERS.iter().any(|lender| lender.thread.load(Relaxed) == thread)
}

/// Never makes a system call of its own again, in this process and its forks.
pub(crate) fn go_dormant(detail: u32) {
    if segment().is_none() || memory_is_lent() {
        return;
    }
    state::restore_all();
    maps::restore_all();
    tell(detail);
    SEGMENT.store(ptr::null_mut(), Relaxed);
}

/// The process ends: descriptions that outlive it get the kernel's heuristics back.
pub(crate) fn end() {
    if segment().is_some() && !memory_is_lent() {
        state::restore_inherited();
        tell(ENDS);
        // What it still has open the agent lets go of now.
        if let Some(segment) = segment().filter(|_| state::any_bound() || maps::any()) {
            ring(segment);
        }
    }
}
