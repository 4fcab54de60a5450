//! Which mappings of files this process has, as far as the agent must know.
//!
//! ```text
//!   mmap(fd 5, 1 GiB)  --> MADV_RANDOM on it, before the program knows its address      no reading around by the kernel
//!                      --> Map told: file slot 1203, bytes [0, 1 GiB) at 7f12...        the agent sees faults there
//!   madvise by the program ......... the kernel obeys it as ever; told; from then on the range is the program's
//!   munmap, mremap, mmap over it ... Unmap told
//! ```
//!
//! The kernel reads around a fault what its window holds, 128 KiB or 64 MiB, and learns nothing from touches that miss.
//! So a mapping that the agent can watch is told once that touches are random; what should be there ahead of them the
//! agent fetches. Where the program will touch much at once inside the kernel (mlock, MADV_POPULATE), and when the agent
//! is gone or leaves the file alone, the range is put back to normal: at the next call of these hooks.
//!
//! Nothing here reads or writes the program's memory. A stale entry costs time, never a byte. 1,024 mappings are
//! remembered (40 KiB); more are left to the kernel, and so is what is left of one that can be remembered no more.

use bowwave_wire::{Event, Kind, MAPS_STEERED, MAPS_UNSEEN, Segment};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::process;
use crate::state;
use crate::sys;

/// Mappings that are watched at once in a process; others are as they were.
const MAPS_MAX: usize = 1024;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// We told the kernel that touches are random there.
const RANDOM: u32 = 1;
/// The program has given advice of its own for all of it.
const ADVISED: u32 = 2;
/// It has for a part.
const PARTLY_ADVISED: u32 = 4;

/// A mapping of a file. Free while `len` is 0; claimed while `len` is 1.
struct Mapping {
    len: AtomicU64,
    address: AtomicU64,
    offset: AtomicU64,
    file: AtomicU32,
    generation: AtomicU32,
    flags: AtomicU32,
}

const FREE: u64 = 0;
const CLAIMED: u64 = 1;

static MAPS: [Mapping; MAPS_MAX] = [const { Mapping::new() }; MAPS_MAX];
/// One more than the last entry that was ever in use.
static MAPS_END: AtomicUsize = AtomicUsize::new(0);

/// A part of the address space.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    start: u64,
    end: u64,
}

impl Range {
    /// `len` bytes from `address` on, in whole pages.
    pub(crate) fn new(address: usize, len: usize) -> Self {
        let start = address as u64 & !(PAGE - 1);
        let end = (address as u64).saturating_add(len as u64);
        Self { start, end: end.saturating_add(PAGE - 1) & !(PAGE - 1) }
    }

    const EVERYTHING: Self = Self { start: 0, end: u64::MAX };

    fn intersection(self, other: Self) -> Option<Self> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(Self { start, end })
    }

    fn len(self) -> u64 {
        self.end - self.start
    }
}

impl Mapping {
    const fn new() -> Self {
        Self {
            len: AtomicU64::new(FREE),
            address: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            file: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            flags: AtomicU32::new(0),
        }
    }

    fn range(&self) -> Option<Range> {
        let len = self.len.load(Relaxed);
        let start = self.address.load(Relaxed);
        (len > CLAIMED).then(|| Range { start, end: start.saturating_add(len) })
    }

    fn has(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// The kernel's own way with this range again, if it was us who changed it.
    fn restore(&self, range: Range) {
        restore(range, self.flags.load(Relaxed));
    }

    fn event(&self, kind: Kind, detail: u32, range: Range, at_ns: u64) -> Event {
        let offset = self.offset.load(Relaxed) + range.start.saturating_sub(self.address.load(Relaxed));
        let (file, generation) = (self.file.load(Relaxed), self.generation.load(Relaxed));
        Event { file, generation, offset, len: range.len(), ..process::event(kind, detail, at_ns) }
    }
}

fn restore(range: Range, flags: u32) {
    if flags & (RANDOM | ADVISED) == RANDOM && range.len() > 0 {
        sys::advise_memory(range.start as usize, range.len() as usize, libc::MADV_NORMAL);
    }
}

/// Entries in use that overlap `range`, with the common part.
fn overlapping(range: Range) -> impl Iterator<Item = (&'static Mapping, Range)> {
    let end = MAPS_END.load(Relaxed).min(MAPS_MAX);
    MAPS.iter().take(end).filter_map(move |map| Some((map, map.range()?.intersection(range)?)))
}

/// The segment, if there is somebody to tell. Puts everything back to normal if there was and is no more.
fn listener() -> Option<(&'static Segment, u64)> {
    let segment = process::segment()?;
    if process::memory_is_lent() {
        return None;
    }
    let now = sys::now_ns();
    if segment.agent_alive(now) {
        return Some((segment, now));
    }
    restore_all();
    None
}

/// Everything as the kernel would have it, for good.
/// Whether anything is mapped that the agent was told of.
pub(crate) fn any() -> bool {
    overlapping(Range::EVERYTHING).next().is_some()
}

pub(crate) fn restore_all() {
    for (map, range) in overlapping(Range::EVERYTHING) {
        map.restore(range);
        map.len.store(FREE, Relaxed);
    }
}

/// The program has mapped `len` bytes of `fd` from `offset` on.
#[cold]
#[inline(never)]
pub(crate) fn mapped(range: Range, prot: c_int, flags: c_int, fd: c_int, offset: u64) {
    let Some((segment, now)) = listener() else { return };
    // Wherever the kernel put it, nothing else is there any more.
    forget(segment, range, now);
    leave_ignored(segment);
    let steerable = fd >= 0
        && flags & (libc::MAP_ANONYMOUS | libc::MAP_HUGETLB) == 0
        && prot & libc::PROT_EXEC == 0
        && range.len() >= segment.size_min.load(Relaxed).max(PAGE)
        && segment.steer_maps.load(Relaxed) != MAPS_UNSEEN;
    if !steerable {
        return;
    }
    let Some(bound) = state::bound(segment, fd, now) else { return };
    let Some(map) = claim(range, offset, bound.slot.index, bound.slot.generation, 0) else { return };
    let populated = flags & (libc::MAP_POPULATE | libc::MAP_LOCKED) != 0;
    if !populated && segment.steer_maps.load(Relaxed) == MAPS_STEERED {
        map.flags.store(RANDOM, Relaxed);
        sys::advise_memory(range.start as usize, range.len() as usize, libc::MADV_RANDOM);
    }
    let event = Event { fd, ..map.event(Kind::Map, 0, range, now) };
    // The agent opens the file through our descriptor, which may be closed at once: it must hear of it soon.
    if segment.push(&event.at_address(range.start)) {
        process::ring(segment);
    }
}

fn claim(range: Range, offset: u64, file: u32, generation: u32, flags: u32) -> Option<&'static Mapping> {
    let (index, map) = MAPS
        .iter()
        .enumerate()
        .find(|(_, map)| map.len.compare_exchange(FREE, CLAIMED, Relaxed, Relaxed).is_ok())?;
    map.address.store(range.start, Relaxed);
    map.offset.store(offset, Relaxed);
    map.file.store(file, Relaxed);
    map.generation.store(generation, Relaxed);
    map.flags.store(flags, Relaxed);
    map.len.store(range.len(), Relaxed);
    MAPS_END.fetch_max(index + 1, Relaxed);
    Some(map)
}

/// `range` is mapped no more, or about to be something else.
pub(crate) fn unmapped(range: Range) {
    if overlapping(range).next().is_none() {
        return;
    }
    if let Some((segment, now)) = listener() {
        forget(segment, range, now);
    }
}

fn forget(segment: &Segment, range: Range, now: u64) {
    for (map, common) in overlapping(range) {
        segment.push(&map.event(Kind::Unmap, 0, common, now).at_address(common.start));
        let Some(whole) = map.range() else { continue };
        let (before, after) = (common.start - whole.start, whole.end - common.end);
        let offset = map.offset.load(Relaxed);
        if before > 0 {
            map.len.store(before, Relaxed);
        } else if after > 0 {
            map.len.store(CLAIMED, Relaxed);
            map.address.store(common.end, Relaxed);
            map.offset.store(offset + whole.len() - after, Relaxed);
            map.len.store(after, Relaxed);
        } else {
            map.len.store(FREE, Relaxed);
        }
        if before > 0 && after > 0 {
            let rest = Range { start: common.end, end: whole.end };
            let (file, generation) = (map.file.load(Relaxed), map.generation.load(Relaxed));
            let offset = offset + whole.len() - after;
            if claim(rest, offset, file, generation, map.flags.load(Relaxed)).is_none() {
                // Nobody would hear of its end.
                segment.push(&map.event(Kind::Unmap, 0, rest, now).at_address(rest.start));
                map.restore(rest);
            }
        }
    }
}

/// The kernel refuses to move `range`, since it is in pieces. Where it was our advice that cut it, on all of it or after we took
/// back a part, it is made whole; says whether to try again.
#[cold]
pub(crate) fn made_whole(range: Range) -> bool {
    if process::memory_is_lent() {
        return false;
    }
    let cut = |map: &Mapping| map.flags.load(Relaxed) & (RANDOM | ADVISED | PARTLY_ADVISED) == RANDOM;
    let mut any = false;
    for (map, _) in overlapping(range).filter(|(map, _)| cut(map)) {
        let Some(whole) = map.range() else { continue };
        map.restore(whole);
        map.flags.fetch_and(!RANDOM, Relaxed);
        any = true;
    }
    any
}

/// What was at `from` is at `to` now.
pub(crate) fn moved(from: Range, to: Range) {
    if overlapping(from).next().is_none() {
        return;
    }
    if let Some((segment, now)) = listener() {
        follow(segment, from, to, now);
    }
}

fn follow(segment: &Segment, from: Range, to: Range, now: u64) {
    let Some((map, common)) = overlapping(from).next() else { return };
    let (file, generation, flags) =
        (map.file.load(Relaxed), map.generation.load(Relaxed), map.flags.load(Relaxed));
    let offset = map.offset.load(Relaxed) + common.start.saturating_sub(map.address.load(Relaxed));
    forget(segment, from, now);
    forget(segment, to, now);
    // What was said of it moves with it.
    let moved = (common.start == from.start).then(|| claim(to, offset, file, generation, flags)).flatten();
    match moved {
        Some(map) => _ = segment.push(&map.event(Kind::Map, 0, to, now).at_address(to.start)),
        None => restore(to, flags),
    }
}

/// The program has given advice, which the kernel follows already.
pub(crate) fn advised(range: Range, advice: c_int) {
    if !matches!(advice, libc::MADV_NORMAL | libc::MADV_RANDOM | libc::MADV_SEQUENTIAL | libc::MADV_WILLNEED)
        || overlapping(range).next().is_none()
    {
        return;
    }
    let Some((segment, now)) = listener() else { return };
    for (map, common) in overlapping(range) {
        if advice != libc::MADV_WILLNEED {
            let Some(whole) = map.range() else { continue };
            // What is said of a small part is between the program and the kernel.
            if 2 * common.len() < whole.len() {
                let differs = if advice == libc::MADV_NORMAL { 0 } else { PARTLY_ADVISED };
                map.flags.fetch_or(differs, Relaxed);
                continue;
            }
            // And the rest is as nobody said anything of it, unless somebody did.
            if !map.has(PARTLY_ADVISED) {
                map.restore(Range { start: whole.start, end: common.start });
                map.restore(Range { start: common.end, end: whole.end });
            }
            map.flags.fetch_or(ADVISED, Relaxed);
        }
        segment.push(&map.event(Kind::Advice, advice as u32, common, now));
    }
}

/// The kernel is about to touch all of `range` by itself: page by page, if touches were random.
pub(crate) fn populating(range: Range) {
    if overlapping(range).next().is_none() {
        return;
    }
    let Some((segment, now)) = listener() else { return };
    for (map, common) in overlapping(range) {
        map.restore(common);
        segment.push(&map.event(Kind::Advice, libc::MADV_WILLNEED as u32, common, now));
    }
}

/// The same of all that there is.
pub(crate) fn populating_all() {
    populating(Range::EVERYTHING);
}

/// Files that the agent has met and leaves alone get the kernel's own way back.
fn leave_ignored(segment: &Segment) {
    for (map, range) in overlapping(Range::EVERYTHING) {
        if map.has(RANDOM)
            && segment.file(map.file.load(Relaxed)).is_some_and(|file| file.ignored.load(Relaxed) != 0)
        {
            map.restore(range);
            map.flags.fetch_and(!RANDOM, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> std::vec::Vec<(u64, u64, u64)> {
        overlapping(Range::EVERYTHING)
            .map(|(map, range)| (range.start, range.end, map.offset.load(Relaxed)))
            .collect()
    }

    fn zeroed() -> std::boxed::Box<Segment> {
        // SAFETY: a segment is made of atomics, for which every bit pattern is a value; its layout is not empty.
        let segment = unsafe {
            let layout = std::alloc::Layout::new::<Segment>();
            std::boxed::Box::from_raw(std::alloc::alloc_zeroed(layout).cast::<Segment>())
        };
        segment.initialise(1);
        segment
    }

    /// There is one table, and each of these tests wants all of it.
    fn alone() -> std::sync::MutexGuard<'static, ()> {
        static TABLE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        TABLE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Pages of ours of which the kernel was told that touches are random.
    fn random_pages(count: u64) -> Range {
        let len = (count * PAGE) as usize;
        // SAFETY: a new mapping, which nothing else uses.
        let at = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        sys::advise_memory(at.addr(), len, libc::MADV_RANDOM);
        Range::new(at.addr(), len)
    }

    /// Whether the kernel takes touches of each of these pages for random.
    fn random(range: Range) -> std::vec::Vec<bool> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut found = std::vec::Vec::new();
        let mut part = None;
        for line in smaps.lines() {
            let ends = line.split(' ').next().and_then(|ends| ends.split_once('-'));
            let hex = |text| u64::from_str_radix(text, 16).ok();
            if let Some((start, end)) = ends.and_then(|(start, end)| Some((hex(start)?, hex(end)?))) {
                part = Range { start, end }.intersection(range);
            } else if let (Some(flags), Some(part)) = (line.strip_prefix("VmFlags:"), part) {
                let random = flags.split(' ').any(|flag| flag == "rr");
                found.extend(core::iter::repeat_n(random, (part.len() / PAGE) as usize));
            }
        }
        found
    }

    /// Fills the table, but for so many entries; what is there when it is dropped is forgotten.
    struct Crowd;

    impl Crowd {
        fn new(left: usize) -> Self {
            (left..MAPS_MAX).for_each(|i| _ = claim(Range::new(i << 20, 1), 0, 9, 0, 0).unwrap());
            Self
        }
    }

    impl Drop for Crowd {
        fn drop(&mut self) {
            MAPS.iter().for_each(|map| map.len.store(FREE, Relaxed));
        }
    }

    #[test]
    fn what_is_left_and_finds_no_place_is_the_kernels() {
        let _alone = alone();
        let segment = zeroed();
        let _crowd = Crowd::new(1);
        let all = random_pages(8);
        claim(all, 0x4000, 3, 0, RANDOM).unwrap();
        let page = |at: u64| Range { start: all.start + at * PAGE, end: all.start + (at + 1) * PAGE };
        forget(&segment, page(2), 1);
        let told = core::iter::from_fn(|| segment.pop()).map(|event| (event.kind, event.offset, event.len));
        let told: std::vec::Vec<_> = told.collect();
        assert_eq!(told, [(Kind::Unmap, 0x6000, 0x1000), (Kind::Unmap, 0x7000, 0x5000)], "the rest as well");
        // The third page itself is what is unmapped; here it stays.
        assert_eq!(random(all), [true, true, true, false, false, false, false, false]);
        let kept = overlapping(all).map(|(_, range)| (range.start, range.end));
        assert_eq!(kept.collect::<std::vec::Vec<_>>(), [(all.start, all.start + 2 * PAGE)]);
    }

    #[test]
    fn what_is_moved_and_finds_no_place_is_the_kernels() {
        let _alone = alone();
        let segment = zeroed();
        let _crowd = Crowd::new(1);
        // The kernel moves what was said of the pages with them.
        let (all, to) = (random_pages(4), random_pages(2));
        claim(all, 0, 3, 0, RANDOM).unwrap();
        follow(&segment, Range { start: all.start + 2 * PAGE, end: all.end }, to, 1);
        assert_eq!((random(to), overlapping(to).count()), ([false; 2].to_vec(), 0));
        // Whole it finds the place that it had.
        follow(&segment, Range { start: all.start, end: all.start + 2 * PAGE }, random_pages(2), 1);
        assert_eq!(overlapping(Range::EVERYTHING).count(), MAPS_MAX);
    }

    #[test]
    fn what_a_program_said_itself_stays_said() {
        let _alone = alone();
        let segment = zeroed();
        let _crowd = Crowd::new(1);
        let all = random_pages(3);
        claim(all, 0, 3, 0, RANDOM | ADVISED).unwrap();
        forget(&segment, Range { start: all.start + PAGE, end: all.start + 2 * PAGE }, 1);
        assert_eq!(random(all), [true; 3]);
    }

    /// Whether the kernel moves all of it to where there is twice the room.
    fn moves(range: Range) -> bool {
        let (at, len) = (core::ptr::with_exposed_provenance_mut(range.start as usize), range.len() as usize);
        // SAFETY: a mapping of the test's own, or parts of one.
        unsafe { libc::mremap(at, len, 2 * len, libc::MREMAP_MAYMOVE) != libc::MAP_FAILED }
    }

    #[test]
    fn what_we_cut_is_made_whole_to_be_moved() {
        let _alone = alone();
        let _crowd = Crowd::new(1);
        let all = random_pages(8);
        let part = Range { start: all.start, end: all.start + 3 * PAGE };
        sys::advise_memory(part.start as usize, part.len() as usize, libc::MADV_NORMAL);
        let map = claim(all, 0, 3, 0, RANDOM).unwrap();
        assert!(!moves(all) && made_whole(all) && moves(all));
        map.len.store(FREE, Relaxed);

        // In pieces without us as well.
        let all = random_pages(8);
        sys::advise_memory(all.start as usize, PAGE as usize, libc::MADV_SEQUENTIAL);
        claim(all, 0, 3, 0, RANDOM | PARTLY_ADVISED).unwrap();
        assert!(!moves(all) && !made_whole(all));
    }

    #[test]
    fn what_is_unmapped_in_the_middle_leaves_two() {
        let _alone = alone();
        let segment = zeroed();
        let all = Range::new(0x10_0000, 0x8000);
        claim(all, 0x4000, 3, 0, 0).unwrap();
        forget(&segment, Range::new(0x10_2000, 0x1000), 1);
        assert_eq!(table(), [(0x10_0000, 0x10_2000, 0x4000), (0x10_3000, 0x10_8000, 0x7000)]);
        let told = segment.pop().unwrap();
        assert_eq!(
            (told.kind, told.address(), told.len, told.offset),
            (Kind::Unmap, 0x10_2000, 0x1000, 0x6000)
        );
        forget(&segment, Range::new(0x10_0000, 0x4000), 1);
        assert_eq!(table(), [(0x10_4000, 0x10_8000, 0x8000)]);
        forget(&segment, Range::new(0, 0x7fff_ffff), 1);
        assert_eq!(table(), []);
    }

    #[test]
    fn ranges_are_whole_pages() {
        let range = Range::new(0x1234, 0x1000);
        assert_eq!((range.start, range.end), (0x1000, 0x3000));
        assert!(Range::new(0x1000, 0).intersection(Range::EVERYTHING).is_none());
    }
}
