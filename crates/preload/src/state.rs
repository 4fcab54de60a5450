//! What this process knows of its descriptors: tables in memory that the loader zeroed, of atomics only.
//!
//! ```text
//!   FDS    fd 3 ─────> 17|stamp 5 ──┐            entry: which description, and which life of it
//!          fd 4 ─────> 17|stamp 5 ──┤ dup
//!          fd 5 ─────> 0            │            unknown: not seen being opened (inherited, received, or never read)
//!   ODS    17: stamp 5, refs 2, position 8192, file slot 1203 generation 0, flags
//! ```
//!
//! Two descriptors made by `dup` share one open file description, and so one position; that is why there are two tables.
//! Nothing here waits: a thread that reads while another closes may see the description's next life and send a hint for
//! the wrong file. The stamp in the entry keeps it from moving the wrong position afterwards. Where a position is, and who reads
//! there, is position.rs.
//!
//! Sums: the 4,096 near descriptors x 8 B and as many descriptions x 64 B are 288 KiB of zero pages, of which a program that
//! has a hundred files open touches three. Those up to 65,536 are far: 4.2 MiB that are mapped when the first of them is
//! opened, since all of it counts as the program's (`ulimit -d`). Larger descriptors are passed through.

use bowwave_wire::{Event, FileRef, FileSlot, FileTag, KERNEL_OFF, KERNEL_ON, Kind, Segment};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use crate::process::{self, memory_is_lent, segment};
use crate::sys;

mod position;

use position::{ASK, FORKS};
pub(crate) use position::{begun_by_fork, moved, shared_by_fork, sought};

/// Descriptors that are followed, and open file descriptions: as many.
const FDS_MAX: usize = 65_536;
/// Those that are near.
const NEAR_MAX: usize = 4_096;
const FAR_MAX: usize = FDS_MAX - NEAR_MAX;
/// Places that a new description may try; in a process with fewer descriptors than that it always finds one.
const OD_PROBES_MAX: usize = 64;
/// Descriptors that dormancy and exit walk through: 20 us at most.
const RESTORED_FDS_MAX: usize = 1024;

static FDS: [AtomicU64; NEAR_MAX] = [const { AtomicU64::new(0) }; NEAR_MAX];
static ODS: [Description; NEAR_MAX] = [const { Description::new() }; NEAR_MAX];
static FAR: AtomicPtr<Far> = AtomicPtr::new(ptr::null_mut());
/// One more than the largest descriptor that ever had an entry, so that a program which closes 65,536 descriptors in a
/// loop does not page in a table of zeros.
static FDS_END: AtomicUsize = AtomicUsize::new(0);
/// In place of a slot's index: not bound.
const NO_FILE: u32 = u32::MAX;
/// Not bound to a file yet.
const UNBOUND: u32 = 0;
/// Bound to a slot of the segment.
const BOUND: u32 = 1;
/// Nothing to steer: a pipe, a tiny file, O_DIRECT, written only.
const LEFT_ALONE: u32 = 2;

/// Somebody else may move the position: the description was inherited, or it is written too.
const SHARED: u32 = 1;
/// The program gave advice of its own; the kernel's heuristics are its business.
const ADVISED: u32 = 2;
/// We have switched the kernel's heuristics off.
const SWITCHED_OFF: u32 = 4;
/// It lives outside this process too, so what we switched off must be on again when we go.
const INHERITED: u32 = 8;

/// An open file description, as far as one process can know it.
#[repr(C, align(64))]
pub(crate) struct Description {
    refs: AtomicU32,
    stamp: AtomicU32,
    state: AtomicU32,
    flags: AtomicU32,
    file: AtomicU32,
    generation: AtomicU32,
    forks: AtomicU32,
    reads: AtomicU32,
    position: AtomicU64,
    /// The [`FileTag`] of `file` and `generation`; of no file unless bound.
    tag: AtomicU64,
    /// The only thread that reads at the position, as [`sys::this_thread`] says; 0 for none yet, or [`MANY`].
    reader: AtomicU64,
    /// How far `reader` may go on unasked: the file's size when it was last looked at.
    size: AtomicU64,
}

/// Where the tables go on; of zeros it is one.
struct Far {
    fds: [AtomicU64; FAR_MAX],
    ods: [Description; FAR_MAX],
}

/// A descriptor with its description.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) fd: c_int,
    pub(crate) od: &'static Description,
    entry: u64,
}

/// A descriptor bound to a file of the run.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) known: Known,
    pub(crate) slot: FileRef,
    pub(crate) file: &'static FileSlot,
}

/// How a descriptor stands.
pub(crate) enum Standing {
    Bound(Bound),
    LeftAlone,
    /// Must be met first.
    Unmet,
}

/// How `fd` stands, without a system call.
#[inline(always)]
pub(crate) fn standing(segment: &'static Segment, fd: c_int) -> Standing {
    let Some(known) = known(fd) else {
        let outside = fd as u32 as usize >= FDS_MAX;
        return if outside { Standing::LeftAlone } else { Standing::Unmet };
    };
    match known.od.state.load(Relaxed) {
        BOUND => match known.bound(segment) {
            Some(bound) if bound.file.ignored.load(Relaxed) == 0 => Standing::Bound(bound),
            Some(_) => Standing::LeftAlone,
            None => Standing::Unmet,
        },
        LEFT_ALONE => Standing::LeftAlone,
        _ => Standing::Unmet,
    }
}

/// What `fd` is bound to, met first if need be; nothing if it is left alone.
pub(crate) fn bound(segment: &'static Segment, fd: c_int, now_ns: u64) -> Option<Bound> {
    match standing(segment, fd) {
        Standing::Bound(bound) => Some(bound),
        Standing::Unmet => meet(segment, fd, now_ns),
        Standing::LeftAlone => None,
    }
}

/// The description of `fd`, if there is one yet.
#[inline(always)]
pub(crate) fn known(fd: c_int) -> Option<Known> {
    let entry = place(fd as u32 as usize)?.load(Relaxed);
    let od = description(entry)?;
    Some(Known { fd, od, entry })
}

/// The same; of a descriptor that was not seen being opened, a new one of which nothing is known.
fn known_or_new(fd: c_int) -> Option<Known> {
    known(fd).or_else(|| {
        attach(fd, claim(fd, ASK, SHARED | INHERITED)?);
        known(fd)
    })
}

#[inline(always)]
fn place(index: usize) -> Option<&'static AtomicU64> {
    FDS.get(index).or_else(|| far()?.fds.get(index - NEAR_MAX))
}

#[inline(always)]
fn description(entry: u64) -> Option<&'static Description> {
    let index = (entry as u32).wrapping_sub(1) as usize;
    ODS.get(index).or_else(|| far()?.ods.get(index - NEAR_MAX))
}

#[cold]
fn far() -> Option<&'static Far> {
    // SAFETY: null, or a mapping that stays, of atomics.
    unsafe { FAR.load(Relaxed).as_ref() }
}

/// The same, made if need be and if there is room.
#[cold]
fn far_made() -> Option<&'static Far> {
    if far().is_none() {
        let made: *mut Far = ptr::with_exposed_provenance_mut(sys::memory(size_of::<Far>())?);
        if FAR.compare_exchange(ptr::null_mut(), made, Relaxed, Relaxed).is_err() {
            sys::forget_memory(made.addr(), size_of::<Far>()); // another thread was first
        }
    }
    far()
}

/// The description of `fd` if it is near and lies in its first place, as all but duplicated ones do. Found from `fd` alone: what is
/// looked up there is not waited for, where [`known`] has to load the entry first.
#[inline(always)]
pub(crate) fn known_at_once(fd: c_int) -> Option<Known> {
    let index = fd as u32 as usize;
    let entry = FDS.get(index)?.load(Relaxed);
    (entry as u32 == index as u32 + 1).then_some(Known { fd, od: ODS.get(index)?, entry })
}

/// Finds out what `fd` is and binds it: two system calls, once a description.
#[cold]
#[inline(never)]
pub(crate) fn meet(segment: &'static Segment, fd: c_int, now_ns: u64) -> Option<Bound> {
    if memory_is_lent() {
        return None;
    }
    let known = known_or_new(fd)?;
    let od = known.od;
    if od.state.load(Relaxed) == BOUND {
        // The agent recycled the file's slot. While it was ignored nobody followed the position.
        od.position.store(ASK, Relaxed);
    }
    let Some(stat) = worth_steering(segment, fd, od) else {
        od.leave_alone();
        return None;
    };
    let Some(file) = segment.bind(stat.dev, stat.ino, stat.size) else {
        od.leave_alone();
        return None;
    };
    od.file.store(file.index, Relaxed);
    od.generation.store(file.generation, Relaxed);
    od.tag.store(file.tag().word(), Relaxed);
    od.state.store(BOUND, Relaxed);
    let bound = known.bound(segment)?;
    bound.file.size.fetch_max(stat.size, Relaxed);
    segment.push(&bound.event(Kind::Seen, 0, 0, stat.size, now_ns));
    bound.steer_kernel();
    Some(bound)
}

/// Regular, big enough, read through the page cache.
fn worth_steering(segment: &Segment, fd: c_int, od: &Description) -> Option<sys::Stat> {
    let stat = sys::stat(fd)?;
    if !stat.regular || stat.size < segment.size_min.load(Relaxed).max(1) {
        return None;
    }
    let flags = sys::status_flags(fd);
    let flags = c_int::try_from(flags).ok().filter(|flags| *flags >= 0)?;
    if flags & (libc::O_DIRECT | libc::O_PATH) != 0 || flags & libc::O_ACCMODE == libc::O_WRONLY {
        return None;
    }
    if flags & libc::O_ACCMODE == libc::O_RDWR {
        od.flags.fetch_or(SHARED, Relaxed);
    }
    Some(stat)
}

/// `fd` was opened just now: its position is 0, and nobody else has it.
pub(crate) fn opened(fd: c_int) {
    if segment().is_none() || fd < 0 || memory_is_lent() {
        return;
    }
    attach(fd, claim(fd, 0, 0).unwrap_or(0));
}

/// `fd` is about to be closed, or to become something else. Returns the file if no descriptor of ours has that description then:
/// what [`closed`] wants to be told of, once it is so.
pub(crate) fn closing(fd: c_int) -> Option<FileRef> {
    let index = fd as u32 as usize;
    if index < FDS_END.load(Relaxed) && segment().is_some() && !memory_is_lent() {
        return detach(fd);
    }
    None
}

/// A description of `file` was closed, whose latest descriptor was `fd`. The agent is woken: what it holds open itself keeps the file
/// system from being unmounted, and who unmounts is perhaps the next program.
pub(crate) fn closed(fd: c_int, file: Option<FileRef>) {
    let (Some(segment), Some(file)) = (segment(), file) else { return };
    let now = sys::now_ns();
    if !segment.agent_alive(now) {
        return;
    }
    let of =
        Event { fd, file: file.index, generation: file.generation, ..process::event(Kind::Closed, 0, now) };
    if segment.push(&of) {
        process::ring(segment);
    }
}

/// All of `[first, last]` are about to be closed.
pub(crate) fn closing_range(first: usize, last: usize) {
    if segment().is_none() || memory_is_lent() {
        return;
    }
    for fd in first..FDS_END.load(Relaxed).min(last.saturating_add(1)) {
        detach(fd as c_int);
    }
}

/// `new` is now another name of what `old` names.
pub(crate) fn duplicated(old: c_int, new: c_int) {
    if segment().is_none() || new < 0 || old == new || memory_is_lent() {
        return;
    }
    attach(new, known_or_new(old).and_then(Known::another).unwrap_or(0));
}

/// `fd` may have changed its nature (F_SETFL): meet it again.
pub(crate) fn changed(fd: c_int) {
    if segment().is_some()
        && !memory_is_lent()
        && let Some(known) = known(fd)
    {
        known.od.position.store(ASK, Relaxed);
        known.od.unbind();
    }
}

/// The program wants `fd`'s file for itself. Whether it may have to wait for the agent, who leaves the file alone from now on.
#[cold]
pub(crate) fn leased(fd: c_int) -> bool {
    let Some(segment) = segment().filter(|_| !memory_is_lent()) else { return false };
    let Some(stat) = sys::stat(fd).filter(|stat| stat.regular) else { return false };
    if let Some(known) = known_or_new(fd) {
        known.restore_kernel();
        known.od.leave_alone();
    }
    let file = segment.bind(stat.dev, stat.ino, stat.size).and_then(|file| segment.file(file.index));
    file.inspect(|file| file.ignored.store(1, SeqCst));
    segment.agent_alive(sys::now_ns())
}

/// Puts `entry` in the place of `fd` and lets go of what was there.
fn attach(fd: c_int, entry: u64) {
    let index = fd as u32 as usize;
    let Some(place) = place(index) else {
        release(entry);
        return;
    };
    if entry != 0 && index >= FDS_END.load(Relaxed) {
        FDS_END.fetch_max(index + 1, Relaxed);
    }
    release(place.swap(entry, Relaxed));
}

/// Leaves the place of `fd` empty and lets go of what was there.
fn detach(fd: c_int) -> Option<FileRef> {
    release(place(fd as u32 as usize)?.swap(0, Relaxed))
}

/// One reference less; after the last one the file that the description was bound to.
fn release(entry: u64) -> Option<FileRef> {
    let od = description(entry)?;
    let file = FileRef { index: od.file.load(Relaxed), generation: od.generation.load(Relaxed) };
    let bound = od.state.load(Relaxed) == BOUND;
    (od.refs.fetch_sub(1, Relaxed) == 1 && bound).then_some(file)
}

/// A fresh description, or `None` when its neighbourhood is full.
fn claim(fd: c_int, position: u64, flags: u32) -> Option<u64> {
    let fd = fd as u32 as usize;
    let (near, far) = (fd < NEAR_MAX, if fd < NEAR_MAX { fd } else { fd - NEAR_MAX });
    for probe in 0..2 * OD_PROBES_MAX {
        let (index, od) = if probe >= OD_PROBES_MAX || !near {
            let index = (far + probe * 1031) % FAR_MAX;
            (index + NEAR_MAX, far_made()?.ods.get(index)?)
        } else {
            let index = (fd + probe * 1031) % NEAR_MAX;
            (index, ODS.get(index)?)
        };
        if od.refs.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
            continue;
        }
        let stamp = od.stamp.load(Relaxed).wrapping_add(1);
        od.stamp.store(stamp, Relaxed);
        od.unbind();
        od.flags.store(flags, Relaxed);
        od.forks.store(FORKS.load(Relaxed), Relaxed);
        od.reads.store(0, Relaxed);
        od.reader.store(0, Relaxed);
        od.position.store(position, Relaxed);
        return Some((index as u64 + 1) | (u64::from(stamp) << 32));
    }
    None
}

impl Known {
    #[inline(always)]
    pub(crate) fn is_left_alone(self) -> bool {
        self.od.state.load(Relaxed) == LEFT_ALONE
    }

    /// Whether a read lies in a page or two that are settled and known to be used. Says no to much that it need not say no
    /// to; but what it says yes to is cheap. Use is noted only as far as the file goes, so its size is not asked for.
    #[inline(always)]
    pub(crate) fn is_hit(self, segment: &'static Segment, offset: u64, len: usize) -> bool {
        let tag = FileTag::from_word(self.od.tag.load(Relaxed));
        segment.is_hit(tag, offset, offset.wrapping_add(len as u64))
    }

    #[inline(always)]
    pub(crate) fn bound(self, segment: &'static Segment) -> Option<Bound> {
        let (index, generation) = (self.od.file.load(Relaxed), self.od.generation.load(Relaxed));
        let file = segment.file(index)?;
        let slot = FileRef { index, generation };
        (file.generation.load(Relaxed) == generation).then_some(Bound { known: self, slot, file })
    }

    /// One more reference to the same life of the description.
    fn another(self) -> Option<u64> {
        let refs = &self.od.refs;
        refs.fetch_update(Relaxed, Relaxed, |refs| (refs > 0).then(|| refs.saturating_add(1))).ok()?;
        if self.od.stamp.load(Relaxed) == (self.entry >> 32) as u32 {
            return Some(self.entry);
        }
        refs.fetch_sub(1, Relaxed);
        None
    }

    /// Whether `fd` still is what it was when we looked.
    #[inline(always)]
    fn is_current(self) -> bool {
        place(self.fd as u32 as usize).is_some_and(|place| place.load(Relaxed) == self.entry)
    }

    /// The program gave advice on the whole description: it decides from now on.
    pub(crate) fn advised(self) {
        self.od.flags.fetch_or(ADVISED, Relaxed);
        self.od.flags.fetch_and(!SWITCHED_OFF, Relaxed);
    }

    /// Switches the kernel's heuristics on again, if it was us who switched them off.
    pub(crate) fn restore_kernel(self) {
        if self.od.flags.fetch_and(!SWITCHED_OFF, Relaxed) & SWITCHED_OFF != 0 {
            sys::advise(self.fd, libc::POSIX_FADV_NORMAL);
        }
    }
}

impl Bound {
    /// Does with the kernel's own heuristics what the agent wants, unless the program has spoken.
    pub(crate) fn steer_kernel(&self) {
        let od = self.known.od;
        let flags = od.flags.load(Relaxed);
        if flags & ADVISED != 0 {
            return;
        }
        match self.file.kernel.load(Relaxed) {
            KERNEL_OFF if flags & SWITCHED_OFF == 0 => {
                od.flags.fetch_or(SWITCHED_OFF, Relaxed);
                sys::advise(self.known.fd, libc::POSIX_FADV_RANDOM);
            }
            KERNEL_ON => self.known.restore_kernel(),
            _ => {}
        }
    }

    /// Whether the descriptor still names the file that we think; checked now and then, since a descriptor can change
    /// hands behind our back (glibc's own `daemon` does it).
    pub(crate) fn is_still_that_file(&self) -> bool {
        sys::stat(self.known.fd).is_some_and(|stat| {
            self.file.size.fetch_max(stat.size, Relaxed);
            stat.dev == self.file.dev.load(Relaxed) && stat.ino == self.file.ino.load(Relaxed)
        })
    }

    /// An event about this file.
    pub(crate) fn event(&self, kind: Kind, detail: u32, offset: u64, len: u64, at_ns: u64) -> Event {
        let (fd, FileRef { index: file, generation }) = (self.known.fd, self.slot);
        Event { fd, file, generation, offset, len, ..process::event(kind, detail, at_ns) }
    }
}

impl Description {
    fn unbind(&self) {
        self.file.store(NO_FILE, Relaxed);
        self.tag.store(FileTag::NONE.word(), Relaxed);
        self.state.store(UNBOUND, Relaxed);
    }

    fn leave_alone(&self) {
        self.file.store(NO_FILE, Relaxed);
        self.tag.store(FileTag::NONE.word(), Relaxed);
        self.state.store(LEFT_ALONE, Relaxed);
    }

    const fn new() -> Self {
        Self {
            refs: AtomicU32::new(0),
            stamp: AtomicU32::new(0),
            state: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            file: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            forks: AtomicU32::new(0),
            reads: AtomicU32::new(0),
            position: AtomicU64::new(0),
            tag: AtomicU64::new(0),
            reader: AtomicU64::new(0),
            size: AtomicU64::new(0),
        }
    }
}

/// Gives the descriptions back to the kernel's heuristics that outlive this process.
pub(crate) fn restore_inherited() {
    restore_where(|known| known.od.flags.load(Relaxed) & INHERITED != 0);
}

/// This process is about to become a program that may know nothing of us: gives back what that will have open, and what others have.
/// Where that fails, and in a program that has our library too, the next read that is told switches it off again. What a parent that
/// lives has open stays as it is: it is the parent's to read, and its to switch.
pub(crate) fn restore_before_exec() {
    if segment().is_none() || memory_is_lent() {
        return;
    }
    let parent_lives = process::parent_lives();
    restore_where(|known| {
        let flags = known.od.flags.load(Relaxed);
        flags & SWITCHED_OFF != 0
            && !(parent_lives && known.is_of_parent())
            && (flags & INHERITED != 0 || !sys::closes_at_exec(known.fd))
    });
}

/// Gives all of them back.
pub(crate) fn restore_all() {
    restore_where(|_| true);
}

/// Whether any is bound to a file.
pub(crate) fn any_bound() -> bool {
    (0..looked_through())
        .any(|fd| known(fd as c_int).is_some_and(|known| known.od.state.load(Relaxed) == BOUND))
}

/// Descriptors that are walked through when all are.
fn looked_through() -> usize {
    FDS_END.load(Relaxed).min(RESTORED_FDS_MAX)
}

fn restore_where(wanted: impl Fn(Known) -> bool) {
    for fd in 0..looked_through() {
        if let Some(known) = known(fd as c_int)
            && wanted(known)
        {
            known.restore_kernel();
        }
    }
}
