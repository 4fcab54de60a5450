//! The shared segment between the programs of a run and its agent: what lies where, and who writes what.
//!
//! ```text
//!   program (shim, any process of the run)                       agent (bowwave run)
//!   read(fd) -- page quiet? --yes--> set used bits ............> harvests used bits when it wants
//!                   |no
//!                   +--> push Event into the ring, ring the bell --> pops, decides, fetches
//!   FileSlot.kernel  <............................................ kernel's own readahead: on or off
//!   LeafSlot.quiet, settled  <.................................... "no need to tell me about these pages"
//! ```
//!
//! A *quiet* page is one that the agent knows of and needs no event for: prefetched, without a mark. A *settled* page is
//! quiet and known to have arrived: its read need not even be timed. The page where the agent wants to be told that the
//! reader has come so far (the mark) is simply not quiet. So a program that reads what is cached touches one word of
//! shared memory and sends nothing: on-demand readahead's own idea of when to be called.
//!
//! Everything here is a hint. A torn, late or lost word may cost time, never a wrong byte: the program always performs
//! the read that it was going to perform. All words are atomics; there is no lock; nobody ever waits for anybody.
//!
//! Sums: ring 16,384 events x 64 B = 1 MiB; files 32,768 x 64 B = 2 MiB; leaves 65,536 x 32 B = 2 MiB (16 GiB of pages
//! known at once). The segment is 5 MiB and 4 KiB, of which a small program touches a dozen pages.
#![no_std]

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// First word of a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"bowwave\x01");
/// Layout version; shim and agent must agree exactly.
pub const VERSION: u32 = 2;
/// Environment variable that tells a program's shim where the segment is: a path to open and map.
pub const ENV_SEGMENT: &str = "BOWWAVE_SEGMENT";
/// Environment variable that switches a program's shim off when it says `off`.
pub const ENV_SWITCH: &str = "BOWWAVE";

/// Events that the ring holds.
pub const EVENTS_MAX: usize = 16_384;
/// Files that a run can know at once.
pub const FILES_MAX: usize = 32_768;
/// Leaves of 64 pages whose bits a run can hold at once.
pub const LEAVES_MAX: usize = 65_536;
/// Times that a pusher tries to claim a place: as often as a thousand others can be quicker.
const CLAIMS_MAX: usize = 1024;
/// Slots that a file's probe may visit before it gives up.
pub const FILE_PROBES_MAX: usize = 16;

/// What an event tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A read is about to happen: `offset`, `len`.
    Read = 1,
    /// The read just told has returned after `waited_ns`; `len` is what it returned.
    Done = 2,
    /// The program gave advice: `detail` is the POSIX_FADV_ value.
    Advice = 3,
    /// A descriptor was met for the first time: the agent may open `/proc/PID/fd/FD` now.
    Seen = 4,
    /// A page believed settled was slow after all: `waited_ns`.
    Surprise = 5,
    /// A process of the run starts (`detail` 0), forks (1; `offset` is its parent), goes dormant (2: seccomp, 3: chroot)
    /// or ends (4).
    Process = 6,
    /// Bytes `[offset, offset + len)` of the file are mapped at [`Event::address`] now.
    Map = 7,
    /// `len` bytes from [`Event::address`] on are mapped no more, or are something else.
    Unmap = 8,
}

impl Kind {
    /// The kind that `byte` stands for.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Read,
            2 => Self::Done,
            3 => Self::Advice,
            4 => Self::Seen,
            5 => Self::Surprise,
            6 => Self::Process,
            7 => Self::Map,
            8 => Self::Unmap,
            _ => return None,
        })
    }
}

/// One event, as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// Depends on `kind`; 0 where it says nothing.
    pub detail: u32,
    /// Process, as it sees itself.
    pub pid: u32,
    /// Thread, as it sees itself.
    pub tid: u32,
    /// Descriptor in that process, or -1.
    pub fd: i32,
    /// Index of the file's slot; `u32::MAX` for none.
    pub file: u32,
    /// Generation of the slot when the descriptor was bound to it.
    pub generation: u32,
    /// Byte offset of the read.
    pub offset: u64,
    /// Bytes asked (Read) or returned (Done).
    pub len: u64,
    /// CLOCK_MONOTONIC when the event was made.
    pub at_ns: u64,
    /// How long the read took; saturates at 4.29 s.
    pub waited_ns: u32,
}

impl Event {
    /// The same event at an address, which takes the place of `detail` and `waited_ns`: its page's number in two halves.
    pub const fn at_address(self, address: u64) -> Self {
        let page = address >> 12;
        Self { detail: page as u32, waited_ns: (page >> 32) as u32, ..self }
    }

    /// Where a Map or Unmap is, a multiple of a page.
    pub const fn address(&self) -> u64 {
        (self.detail as u64 | ((self.waited_ns as u64) << 32)) << 12
    }
}

/// A place in the ring. `seq` says whose turn it is, as in Vyukov's bounded queue.
#[repr(C, align(64))]
struct EventSlot {
    seq: AtomicU64,
    kind_detail: AtomicU64, // kind | detail << 32
    who: AtomicU64,         // pid | tid << 32
    file: AtomicU64,        // file | generation << 32
    offset: AtomicU64,
    len: AtomicU64,
    at_ns: AtomicU64,
    fd_waited: AtomicU64, // fd | waited_ns << 32
}

/// A file of the run. The shim that meets it first claims the slot; the agent writes `kernel` and recycles.
#[repr(C, align(64))]
pub struct FileSlot {
    /// 0 free; else a nonzero mix of dev and ino.
    key: AtomicU64,
    /// Device number as stat gives it.
    pub dev: AtomicU64,
    /// Inode number.
    pub ino: AtomicU64,
    /// Bytes in the file when it was last met; a shim raises it when a read finds more, nobody lowers it.
    pub size: AtomicU64,
    /// Counts up when the agent recycles the slot: bindings made before are stale.
    pub generation: AtomicU32,
    /// What the agent wants the kernel's own heuristics to do with descriptors of this file: a `KERNEL_` value.
    pub kernel: AtomicU32,
    /// Nonzero once the agent has said that it cannot steer this file: no more events, please.
    pub ignored: AtomicU32,
    spare: [AtomicU32; 5],
}

/// Leave the descriptor as it is.
pub const KERNEL_AS_IS: u32 = 0;
/// Kernel heuristics on: FADV_NORMAL if we had switched them off.
pub const KERNEL_ON: u32 = 1;
/// Kernel heuristics off: FADV_RANDOM, since we fetch what is needed.
pub const KERNEL_OFF: u32 = 2;

/// Mappings are the kernel's: nobody sees their page faults.
pub const MAPS_UNSEEN: u32 = 0;
/// Mappings are told to the agent and left as they are.
pub const MAPS_TOLD: u32 = 1;
/// Mappings are told, and the kernel is told that touches are random, so that it reads nothing around them.
pub const MAPS_STEERED: u32 = 2;

/// The bits of 64 pages of a file, direct-mapped: a leaf that loses its place is simply not quiet any more.
#[repr(C, align(32))]
pub struct LeafSlot {
    key: AtomicU64,
    quiet: AtomicU64,
    settled: AtomicU64,
    used: AtomicU64,
}

/// The agent has not begun, or has gone.
pub const AGENT_GONE: u32 = 0;
/// The agent serves.
pub const AGENT_SERVING: u32 = 1;

/// The whole segment. Lives in memory shared by every process of a run; made by the agent, zeroed.
#[repr(C, align(4096))]
pub struct Segment {
    magic: AtomicU64,
    version: AtomicU32,
    /// [`AGENT_SERVING`] or [`AGENT_GONE`].
    pub agent_state: AtomicU32,
    /// Process id of the agent, in the pid namespace of `bowwave run`.
    pub agent_pid: AtomicI32,
    /// What new files start with: a `KERNEL_` value.
    pub kernel_default: AtomicU32,
    /// What the agent wants of new mappings: a `MAPS_` value.
    pub steer_maps: AtomicU32,
    /// Files smaller than this many bytes are left alone.
    pub size_min: AtomicU64,
    /// CLOCK_MONOTONIC in ns when the agent last looked around; at most [`HEARTBEAT_MAX_NS`] old while it lives.
    pub heartbeat_ns: AtomicU64,
    /// Futex word: changes whenever somebody rings.
    pub bell: AtomicU32,
    /// 1 while the agent sleeps on `bell` and wants to be woken.
    pub asleep: AtomicU32,
    /// Events that found the ring full.
    pub events_lost: AtomicU64,
    /// Reads that found their page quiet, counted in steps of 64 by each thread's sampling.
    pub quiet_reads_64: AtomicU64,
    _head_end: Pad,
    head: AtomicU64,
    _tail_end: Pad,
    tail: AtomicU64,
    _ring_end: Pad,
    ring: [EventSlot; EVENTS_MAX],
    files: [FileSlot; FILES_MAX],
    leaves: [LeafSlot; LEAVES_MAX],
}

#[repr(C, align(128))]
struct Pad([u8; 0]);

/// A heartbeat older than this means that the agent is dead: 2 s, forty times its longest sleep.
pub const HEARTBEAT_MAX_NS: u64 = 2_000_000_000;

/// A descriptor's file: slot and generation, as both sides name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRef {
    /// Index into the file slots.
    pub index: u32,
    /// Generation of the slot.
    pub generation: u32,
}

/// How the shim finds the pages of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nobody needs to hear of it and it need not be timed.
    Settled,
    /// Nobody needs to hear of it beforehand; tell if it was slow.
    Quiet,
    /// Tell before reading.
    Loud,
}

impl Segment {
    /// Makes a zeroed segment ready. Called once by the agent before anybody else maps it.
    pub fn initialise(&self, agent_pid: i32) {
        for (i, slot) in self.ring.iter().enumerate() {
            slot.seq.store(i as u64, Ordering::Relaxed);
        }
        self.agent_pid.store(agent_pid, Ordering::Relaxed);
        self.version.store(VERSION, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether this is a segment that we understand.
    pub fn is_ours(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC && self.version.load(Ordering::Relaxed) == VERSION
    }

    /// Whether the agent serves and has looked around lately.
    pub fn agent_alive(&self, now_ns: u64) -> bool {
        self.agent_state.load(Ordering::Relaxed) == AGENT_SERVING
            && now_ns.saturating_sub(self.heartbeat_ns.load(Ordering::Relaxed)) < HEARTBEAT_MAX_NS
    }

    // ---- the ring: any thread of any process pushes, the agent pops ------------------------------------------------

    /// Puts `event` into the ring. Returns whether the agent sleeps and somebody should wake `bell`; a full ring loses
    /// the event and counts it. Never waits: O(1) but for other pushers' races.
    pub fn push(&self, event: &Event) -> bool {
        let Some((tail, slot)) = self.claim() else {
            self.events_lost.fetch_add(1, Ordering::Relaxed);
            return self.asleep.load(Ordering::Relaxed) != 0;
        };
        slot.kind_detail.store(event.kind as u64 | (u64::from(event.detail) << 32), Ordering::Relaxed);
        slot.who.store(u64::from(event.pid) | (u64::from(event.tid) << 32), Ordering::Relaxed);
        slot.file.store(u64::from(event.file) | (u64::from(event.generation) << 32), Ordering::Relaxed);
        slot.offset.store(event.offset, Ordering::Relaxed);
        slot.len.store(event.len, Ordering::Relaxed);
        slot.at_ns.store(event.at_ns, Ordering::Relaxed);
        slot.fd_waited
            .store(u64::from(event.fd as u32) | (u64::from(event.waited_ns) << 32), Ordering::Relaxed);
        // A pusher that was stopped here so long that the agent gave its place away must not publish any more.
        let _ = slot.seq.compare_exchange(tail, tail.wrapping_add(1), Ordering::SeqCst, Ordering::Relaxed);
        self.asleep.load(Ordering::SeqCst) != 0
    }

    /// Claims the next place. `None` where the ring is full, or others are always quicker, or its words are not ours: a program
    /// that waits for better ones would wait for ever.
    fn claim(&self) -> Option<(u64, &EventSlot)> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        for _ in 0..CLAIMS_MAX {
            let slot = &self.ring[tail as usize % EVENTS_MAX];
            let seq = slot.seq.load(Ordering::Acquire);
            if seq == tail {
                let next = tail.wrapping_add(1);
                match self.tail.compare_exchange_weak(tail, next, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return Some((tail, slot)),
                    Err(now) => tail = now,
                }
            } else if seq < tail {
                return None;
            } else {
                tail = self.tail.load(Ordering::Relaxed);
            }
        }
        None
    }

    /// Takes the oldest event. `None` when there is none, or when the oldest is claimed but not yet published: see
    /// [`Segment::skip_stuck`].
    pub fn pop(&self) -> Option<Event> {
        // One look at each place: programs that write what is no event, as fast as we read, keep nobody here.
        for _ in 0..EVENTS_MAX {
            if let Some(event) = self.pop_place()? {
                return Some(event);
            }
        }
        None
    }

    /// Takes what lies in the oldest place: `Some(None)` where that is no event, `None` where nothing is there.
    fn pop_place(&self) -> Option<Option<Event>> {
        let head = self.head.load(Ordering::Relaxed);
        let slot = &self.ring[head as usize % EVENTS_MAX];
        if slot.seq.load(Ordering::Acquire) != head.wrapping_add(1) {
            return None;
        }
        let kind_detail = slot.kind_detail.load(Ordering::Relaxed);
        let who = slot.who.load(Ordering::Relaxed);
        let file = slot.file.load(Ordering::Relaxed);
        let fd_waited = slot.fd_waited.load(Ordering::Relaxed);
        let event = Kind::from_byte(kind_detail as u8).map(|kind| Event {
            kind,
            detail: (kind_detail >> 32) as u32,
            pid: who as u32,
            tid: (who >> 32) as u32,
            fd: fd_waited as u32 as i32,
            file: file as u32,
            generation: (file >> 32) as u32,
            offset: slot.offset.load(Ordering::Relaxed),
            len: slot.len.load(Ordering::Relaxed),
            at_ns: slot.at_ns.load(Ordering::Relaxed),
            waited_ns: (fd_waited >> 32) as u32,
        });
        self.give_back(head);
        Some(event)
    }

    /// Whether anything lies in the ring, published or not.
    pub fn has_events(&self) -> bool {
        self.tail.load(Ordering::SeqCst) != self.head.load(Ordering::Relaxed)
    }

    /// Gives away the place of a pusher that claimed it and never published: it was killed in between, or stopped. The
    /// agent calls this when [`Segment::pop`] has found the same place claimed for longer than it is willing to wait.
    pub fn skip_stuck(&self) {
        let head = self.head.load(Ordering::Relaxed);
        let slot = &self.ring[head as usize % EVENTS_MAX];
        if self.tail.load(Ordering::SeqCst) != head && slot.seq.load(Ordering::SeqCst) != head.wrapping_add(1)
        {
            self.give_back(head);
        }
    }

    fn give_back(&self, head: u64) {
        let next_round = head.wrapping_add(EVENTS_MAX as u64);
        self.ring[head as usize % EVENTS_MAX].seq.store(next_round, Ordering::Release);
        self.head.store(head.wrapping_add(1), Ordering::Relaxed);
    }

    // ---- files -----------------------------------------------------------------------------------------------------

    /// Finds or claims the slot of the file (`dev`, `ino`). `None` when its neighbourhood is full: leave it alone.
    pub fn bind(&self, dev: u64, ino: u64, size: u64) -> Option<FileRef> {
        let key = mix(dev.rotate_left(32) ^ mix(ino)) | 1;
        for probe in 0..FILE_PROBES_MAX {
            let index = (key as usize >> 8).wrapping_add(probe) % FILES_MAX;
            let slot = &self.files[index];
            match slot.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    slot.dev.store(dev, Ordering::Relaxed);
                    slot.ino.store(ino, Ordering::Relaxed);
                    slot.size.store(size, Ordering::Relaxed);
                    slot.ignored.store(0, Ordering::Relaxed);
                    slot.kernel.store(self.kernel_default.load(Ordering::Relaxed), Ordering::Release);
                }
                Err(found) if found == key => {}
                Err(_) => continue,
            }
            return Some(FileRef {
                index: index as u32,
                generation: slot.generation.load(Ordering::Acquire),
            });
        }
        None
    }

    /// The slot at `index`, if there is such an index.
    pub fn file(&self, index: u32) -> Option<&FileSlot> {
        self.files.get(index as usize)
    }

    /// Agent: frees a slot; descriptors bound to it find their generation stale and bind anew.
    pub fn recycle(&self, index: u32) {
        if let Some(slot) = self.file(index) {
            slot.generation.fetch_add(1, Ordering::AcqRel);
            slot.key.store(0, Ordering::Release);
        }
    }

    // ---- leaves ----------------------------------------------------------------------------------------------------

    /// Shim: the hit. Whether bytes `[offset, end)` of `file` lie in one page or two that are settled and whose use is
    /// known already, so that there is nothing to do; otherwise [`Segment::touch`] says how they stand. A third of its
    /// instructions.
    #[inline(always)]
    pub fn is_hit(&self, file: u32, offset: u64, end: u64) -> bool {
        let (first, last) = (offset >> 12, end.wrapping_sub(1) >> 12);
        let more = last.wrapping_sub(first);
        let slot = &self.leaves[leaf_index(file, first >> 6)];
        let pages = slot.settled.load(Ordering::Relaxed) & slot.used.load(Ordering::Relaxed);
        let wanted = 1 + 2 * (more & 1);
        more <= 1
            && slot.key.load(Ordering::Acquire) == leaf_key(file, first >> 6)
            && (pages >> (first & 63)) & wanted == wanted
    }

    /// Shim: how bytes `[offset, offset + len)` of `file` stand, and marks their pages used. Reads over more than two
    /// leaves are judged by their first and last: a mark in between is met by the agent's own clock. O(1).
    #[inline]
    pub fn touch(&self, file: u32, offset: u64, len: u64) -> Standing {
        let first = offset >> 12;
        let last = offset.saturating_add(len.max(1) - 1) >> 12;
        if first >> 6 == last >> 6 {
            return self.touch_leaf(file, first >> 6, mask(first & 63, last & 63));
        }
        let mut standing = self.touch_leaf(file, first >> 6, mask(first & 63, 63));
        let mut leaf = (first >> 6) + 1;
        while leaf < last >> 6 && leaf < (first >> 6) + 9 {
            standing = standing.louder(self.touch_leaf(file, leaf, !0));
            leaf += 1;
        }
        standing.louder(self.touch_leaf(file, last >> 6, mask(0, last & 63)))
    }

    #[inline]
    fn touch_leaf(&self, file: u32, leaf: u64, pages: u64) -> Standing {
        let slot = &self.leaves[leaf_index(file, leaf)];
        if slot.key.load(Ordering::Acquire) != leaf_key(file, leaf) {
            return Standing::Loud;
        }
        if slot.used.load(Ordering::Relaxed) & pages != pages {
            slot.used.fetch_or(pages, Ordering::Relaxed);
        }
        if slot.quiet.load(Ordering::Relaxed) & pages != pages {
            Standing::Loud
        } else if slot.settled.load(Ordering::Relaxed) & pages != pages {
            Standing::Quiet
        } else {
            Standing::Settled
        }
    }

    /// Agent: sets the bits of 64 pages of `file` from `leaf * 64`. Returns what was displaced or harvested: the leaf
    /// that held the place before (possibly the same) and its used bits, which are cleared.
    pub fn publish(&self, file: u32, leaf: u64, quiet: u64, settled: u64) -> Option<Harvest> {
        let slot = &self.leaves[leaf_index(file, leaf)];
        let key = leaf_key(file, leaf);
        let held = slot.key.load(Ordering::Relaxed);
        let harvest = self.harvest_slot(slot, held);
        if held != key {
            slot.key.store(0, Ordering::Release);
            slot.used.store(0, Ordering::Relaxed);
        }
        slot.quiet.store(quiet, Ordering::Relaxed);
        slot.settled.store(settled & quiet, Ordering::Relaxed);
        slot.key.store(key, Ordering::Release);
        harvest
    }

    /// Agent: takes and clears the used bits of a leaf, if it still has its place.
    pub fn harvest(&self, file: u32, leaf: u64) -> Option<Harvest> {
        let slot = &self.leaves[leaf_index(file, leaf)];
        let key = leaf_key(file, leaf);
        (slot.key.load(Ordering::Relaxed) == key).then(|| self.harvest_slot(slot, key)).flatten()
    }

    fn harvest_slot(&self, slot: &LeafSlot, held: u64) -> Option<Harvest> {
        if held == 0 || slot.used.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let used = slot.used.swap(0, Ordering::Relaxed);
        Some(Harvest { file: (held >> 40).wrapping_sub(1) as u32, leaf: held & LEAF_MASK, used })
    }
}

/// Pages of a leaf that were read since somebody last looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Harvest {
    /// Index of the file's slot.
    pub file: u32,
    /// Leaf number: pages `[64 * leaf, 64 * leaf + 64)`.
    pub leaf: u64,
    /// One bit a page.
    pub used: u64,
}

impl Standing {
    const fn louder(self, other: Self) -> Self {
        match (self, other) {
            (Self::Loud, _) | (_, Self::Loud) => Self::Loud,
            (Self::Quiet, _) | (_, Self::Quiet) => Self::Quiet,
            _ => Self::Settled,
        }
    }
}

const LEAF_MASK: u64 = (1 << 40) - 1;

/// Leaf and file in one nonzero word: 40 bits of leaf (2^58 bytes), 24 bits of file index plus one.
const fn leaf_key(file: u32, leaf: u64) -> u64 {
    ((file as u64 + 1) << 40) | (leaf & LEAF_MASK)
}

/// Neighbouring leaves of a file lie side by side, so a stream walks through the table; files start apart.
const fn leaf_index(file: u32, leaf: u64) -> usize {
    (leaf.wrapping_add((file as u64).wrapping_mul(0x9E37_79B1)) % LEAVES_MAX as u64) as usize
}

/// Bits `[first, last]`.
const fn mask(first: u64, last: u64) -> u64 {
    (!0 << first) & (!0 >> (63 - last))
}

/// SplitMix64's finaliser: a cheap, good mix of 64 bits.
const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};
    use std::boxed::Box;

    fn segment() -> Box<Segment> {
        // SAFETY: every field is an atomic integer, for which all-zero bytes are a value; the layout is not empty.
        let segment = unsafe { Box::from_raw(alloc_zeroed(Layout::new::<Segment>()).cast::<Segment>()) };
        segment.initialise(1);
        segment
    }

    fn event(offset: u64) -> Event {
        Event {
            kind: Kind::Read,
            detail: 7,
            pid: 1,
            tid: 2,
            fd: -1,
            file: 3,
            generation: 4,
            offset,
            len: 4096,
            at_ns: 5,
            waited_ns: 6,
        }
    }

    #[test]
    fn the_segment_is_as_large_as_it_says() {
        assert!(size_of::<Segment>() <= (5 << 20) + 8192, "{}", size_of::<Segment>());
    }

    #[test]
    fn events_come_out_as_they_went_in() {
        let s = segment();
        assert!(s.is_ours() && s.pop().is_none());
        for i in 0..3 * EVENTS_MAX as u64 {
            s.push(&event(i));
            assert_eq!(s.pop(), Some(event(i)));
        }
    }

    #[test]
    fn a_full_ring_loses_the_newest_and_counts_it() {
        let s = segment();
        for i in 0..EVENTS_MAX as u64 + 2 {
            s.push(&event(i));
        }
        assert_eq!(s.events_lost.load(Ordering::Relaxed), 2);
        assert_eq!(s.pop(), Some(event(0)));
    }

    #[test]
    fn a_pusher_that_died_in_the_middle_does_not_stop_the_ring() {
        let s = segment();
        s.tail.store(1, Ordering::Relaxed); // claimed place 0, never published
        s.push(&event(1));
        assert_eq!(s.pop(), None);
        s.skip_stuck();
        assert_eq!(s.pop(), Some(event(1)));
        assert_eq!(s.pop(), None);
        s.skip_stuck(); // nothing is stuck: nothing happens
        s.push(&event(2));
        assert_eq!(s.pop(), Some(event(2)));
    }

    #[test]
    fn quiet_pages_are_quiet_and_leave_a_trace() {
        let s = segment();
        assert_eq!(s.touch(3, 0, 4096), Standing::Loud);
        s.publish(3, 0, 0xFF, 0x0F);
        assert_eq!(s.touch(3, 0, 4096), Standing::Settled);
        assert_eq!(s.touch(3, 4 << 12, 4096), Standing::Quiet);
        assert_eq!(s.touch(3, 7 << 12, 8192), Standing::Loud);
        assert_eq!(s.harvest(3, 0), Some(Harvest { file: 3, leaf: 0, used: 0b1_1001_0001 }));
        assert_eq!(s.harvest(3, 0), None);
    }

    #[test]
    fn an_address_travels_whole() {
        for address in [0, 0x7f12_3456_7000, 0x00ff_ffff_ffff_f000] {
            assert_eq!(event(0).at_address(address).address(), address);
        }
        assert_eq!(event(0).at_address(0x1fff).address(), 0x1000);
    }

    #[test]
    fn a_hit_is_a_page_or_two_settled_and_of_known_use() {
        let s = segment();
        s.publish(3, 0, 0xFF, 0x0F);
        let hit = |file, page: u64, bytes| s.is_hit(file, page << 12, (page << 12) + bytes);
        assert!(!hit(3, 1, 4096), "its use is not known yet");
        s.touch(3, 0, 8 << 12);
        assert!(hit(3, 1, 4096) && hit(3, 3, 1) && hit(3, 2, 4097));
        assert!(!hit(3, 4, 4096) && !hit(3, 3, 4097), "quiet only");
        assert!(!hit(3, 0, 8193), "three pages are for touch to judge");
        assert!(!hit(3, 65, 1) && !hit(4, 1, 1), "another leaf, another file");
        s.publish(3, 0, !0, !0);
        s.touch(3, 0, 64 << 12);
        assert!(hit(3, 63, 4096) && !hit(3, 63, 4097), "the second page is of the next leaf");
        s.harvest(3, 0);
        assert!(!hit(3, 1, 1), "the agent took the bit: set it again");
    }

    #[test]
    fn a_displaced_leaf_hands_over_what_was_used() {
        let s = segment();
        s.publish(0, 5, !0, !0);
        s.touch(0, 5 << 18, 4096);
        let other = 5 + LEAVES_MAX as u64;
        assert_eq!(s.publish(0, other, !0, !0), Some(Harvest { file: 0, leaf: 5, used: 1 }));
        assert_eq!(s.touch(0, 5 << 18, 4096), Standing::Loud);
    }

    #[test]
    fn files_bind_once_and_anew_after_recycling() {
        let s = segment();
        let a = s.bind(1, 2, 100).unwrap();
        assert_eq!(s.bind(1, 2, 100), Some(a));
        assert_ne!(s.bind(1, 3, 100).unwrap().index, a.index);
        s.recycle(a.index);
        assert_eq!(s.bind(1, 2, 100).unwrap().generation, a.generation + 1);
    }

    /// Any program of a run may write any word at any time: what it breaks is its own readahead.
    #[test]
    fn no_word_of_a_program_stops_the_agent() {
        let s = segment();
        let odd: std::vec::Vec<u8> = [0, 1, 2, 1 << 40, 1 << 63, u64::MAX, EVENTS_MAX as u64]
            .iter()
            .flat_map(|word| (0..11_u8).flat_map(move |what| [what].into_iter().chain(word.to_le_bytes())))
            .collect();
        bowwave_fuzz::fuzz("words of a segment", &[&odd, &[8, 0, 0, 0, 0, 0, 0, 0, 0]], |bytes| {
            s.initialise(1);
            s.head.store(0, Ordering::Relaxed);
            s.tail.store(0, Ordering::Relaxed);
            let leaf = &s.leaves[leaf_index(3, 0)];
            for step in bytes.chunks_exact(9) {
                let word = u64::from_le_bytes(step[1..].try_into().expect("eight bytes"));
                let oldest = &s.ring[s.head.load(Ordering::Relaxed) as usize % EVENTS_MAX];
                match step[0] % 11 {
                    0 => s.head.store(word, Ordering::Relaxed),
                    1 => s.tail.store(word, Ordering::Relaxed),
                    2 => oldest.seq.store(s.head.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed),
                    3 => oldest.kind_detail.store(word, Ordering::Relaxed),
                    4 => leaf.key.store(word, Ordering::Relaxed),
                    5 => leaf.used.store(word, Ordering::Relaxed),
                    6 => drop(s.touch(word as u32, word, word.rotate_left(32))),
                    7 => drop(s.is_hit(3, word, word)),
                    8 => assert!(s.bind(word, word, 1).is_none_or(|file| s.file(file.index).is_some())),
                    9 => drop(s.publish(3, word % 2, word, !word)),
                    // Nobody sleeps here, and a ring as odd as this may be full.
                    _ => assert!(!s.push(&event(word))),
                }
                let mut popped = 0;
                while s.pop().is_some() {
                    popped += 1;
                    assert!(popped <= EVENTS_MAX, "an end, when nobody writes");
                }
                if s.has_events() {
                    s.skip_stuck();
                }
                for harvest in [s.harvest(3, 0), s.harvest(word as u32, word)] {
                    assert!(harvest.is_none_or(|harvest| harvest.used != 0));
                }
            }
        });
    }
}
