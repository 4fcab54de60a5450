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

mod files;
mod leaves;
mod namespaces;
mod ring;

pub use files::{FILE_PROBES_MAX, FILES_MAX, FileRef, FileSlot, KERNEL_AS_IS, KERNEL_OFF, KERNEL_ON};
pub use leaves::{FileTag, Harvest, LEAVES_MAX, LeafSlot, Standing};
pub use namespaces::{NAMESPACES_MAX, ProcessId};
pub use ring::{CHROOT, ENDS, EVENTS_MAX, Event, FORKED, Kind, SECCOMP, STARTS};

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use ring::EventSlot;

/// First word of a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"bowwave\x01");
/// Layout version; shim and agent must agree exactly.
pub const VERSION: u32 = 5;
/// Environment variable that tells a program's shim where the segment is: a path to open and map.
pub const ENV_SEGMENT: &str = "BOWWAVE_SEGMENT";
/// Environment variable that switches a program's shim off when it says `off`.
pub const ENV_SWITCH: &str = "BOWWAVE";

/// Mappings are the kernel's: nobody sees their page faults.
pub const MAPS_UNSEEN: u32 = 0;
/// Mappings are told to the agent and left as they are.
pub const MAPS_TOLD: u32 = 1;
/// Mappings are told, and the kernel is told that touches are random, so that it reads nothing around them.
pub const MAPS_STEERED: u32 = 2;

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
    /// Inodes of the PID namespaces in which programs of the run live; 0 for none. The first is the agent's.
    namespaces: [AtomicU64; NAMESPACES_MAX],
    /// What new files start with: a `KERNEL_` value.
    pub kernel_default: AtomicU32,
    /// What the agent wants of new mappings: a `MAPS_` value.
    pub steer_maps: AtomicU32,
    /// Files smaller than this many bytes are left alone.
    pub size_min: AtomicU64,
    /// CLOCK_MONOTONIC in ns when the agent last looked around: its longest sleep ago at most (100 ms), unless a device holds it up in a
    /// readahead(2).
    pub heartbeat_ns: AtomicU64,
    /// Futex word: changes whenever somebody rings.
    pub bell: AtomicU32,
    /// 1 while the agent sleeps on `bell` and wants to be woken.
    pub asleep: AtomicU32,
    /// Events that found the ring full.
    pub events_lost: AtomicU64,
    /// Files that found no slot: they are left alone.
    pub files_lost: AtomicU64,
    /// Slots that have a file, about: who is killed while it takes one has not counted it.
    files_bound: AtomicU32,
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

/// An agent with a heartbeat older than this is taken for dead: 2 s, twenty times its longest sleep. One that a device holds up in a readahead(2)
/// for as long is so too, until it looks around again; its programs read unsteered meanwhile.
pub const HEARTBEAT_MAX_NS: u64 = 2_000_000_000;

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
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::leaves::leaf_index;
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};
    use std::boxed::Box;

    fn segment() -> Box<Segment> {
        // SAFETY: every field is an atomic integer, for which all-zero bytes are a value; the layout is not empty.
        let segment = unsafe { Box::from_raw(alloc_zeroed(Layout::new::<Segment>()).cast::<Segment>()) };
        segment.initialise(1);
        segment
    }

    /// A file in the first life of its slot.
    fn tag(index: u32) -> FileTag {
        FileRef { index, generation: 0 }.tag()
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
    fn a_process_is_its_number_in_its_namespace() {
        let s = segment();
        s.set_namespace_of_agent(4_026_531_836);
        assert_eq!(s.place_of_namespace(4_026_531_836), 0);
        let numbers: std::vec::Vec<u32> = (1..=100).map(|inode| s.place_of_namespace(inode)).collect();
        assert_eq!((numbers[0], numbers[62], numbers[63], numbers[99]), (1, 63, 64, 64), "full after 63");
        assert_eq!((s.place_of_namespace(7), s.namespace(7), s.namespace(64)), (7, Some(7), None));
        let who = ProcessId::new(7, 1 << 21);
        assert_eq!((who.namespace(), who.number()), (7, 1 << 21));
        assert_eq!(ProcessId::new(0, 4711).0, 4711);
        assert!(ProcessId::NOBODY.namespace() as usize > NAMESPACES_MAX);
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
        assert_eq!(s.touch(tag(3), 0, 4096), Standing::Loud);
        s.publish(3, 0, 0xFF, 0x0F);
        assert_eq!(s.touch(tag(3), 0, 4096), Standing::Settled);
        assert_eq!(s.touch(tag(3), 4 << 12, 4096), Standing::Quiet);
        assert_eq!(s.touch(tag(3), 7 << 12, 8192), Standing::Loud);
        assert_eq!(s.harvest(3, 0), Some(Harvest { file: 3, leaf: 0, used: 0b1_1001_0001 }));
        assert_eq!(s.harvest(3, 0), None);
    }

    /// 8 MiB in one read: 32 leaves, of which ten are asked how they stand.
    #[test]
    fn a_large_read_leaves_its_trace_everywhere() {
        let s = segment();
        for leaf in 0..32 {
            s.publish(3, leaf, !0, !0);
        }
        s.publish(3, 20, 1, 1);
        assert_eq!(s.touch(tag(3), 0, 32 << 18), Standing::Settled, "a mark in the middle is not met");
        assert!((0..32).all(|leaf| s.harvest(3, leaf) == Some(Harvest { file: 3, leaf, used: !0 })));
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
        let hit = |file, page: u64, bytes| s.is_hit(tag(file), page << 12, (page << 12) + bytes);
        assert!(!hit(3, 1, 4096), "its use is not known yet");
        s.touch(tag(3), 0, 8 << 12);
        assert!(hit(3, 1, 4096) && hit(3, 3, 1) && hit(3, 2, 4097));
        assert!(!hit(3, 4, 4096) && !hit(3, 3, 4097), "quiet only");
        assert!(!hit(3, 0, 8193), "three pages are for touch to judge");
        assert!(!hit(3, 65, 1) && !hit(4, 1, 1), "another leaf, another file");
        s.publish(3, 0, !0, !0);
        s.touch(tag(3), 0, 64 << 12);
        assert!(hit(3, 63, 4096) && !hit(3, 63, 4097), "the second page is of the next leaf");
        s.harvest(3, 0);
        assert!(!hit(3, 1, 1), "the agent took the bit: set it again");
    }

    #[test]
    fn a_displaced_leaf_hands_over_what_was_used() {
        let s = segment();
        s.publish(0, 5, !0, !0);
        s.touch(tag(0), 5 << 18, 4096);
        let other = 5 + LEAVES_MAX as u64;
        assert_eq!(s.publish(0, other, !0, !0), Some(Harvest { file: 0, leaf: 5, used: 1 }));
        assert_eq!(s.touch(tag(0), 5 << 18, 4096), Standing::Loud);
    }

    /// A read of pages that stay what they were may be on its way to the agent, who tells of it himself.
    #[test]
    fn a_leaf_that_is_published_again_hands_over_only_what_was_read_of_pages_that_are_quiet_no_longer() {
        let s = segment();
        s.publish(3, 0, 0xFF, 0xFF);
        s.touch(tag(3), 6 << 12, 4 << 12);
        assert_eq!(s.publish(3, 0, 0xFFFF, 0xFF), None, "[8, 10) was loud, and is told of");
        assert_eq!(s.publish(3, 0, 0xFF7F, 0x7F), Some(Harvest { file: 3, leaf: 0, used: 1 << 7 }));
        assert_eq!(s.harvest(3, 0), Some(Harvest { file: 3, leaf: 0, used: 0b11_0100_0000 }));
    }

    #[test]
    fn files_bind_once_and_anew_after_recycling() {
        let s = segment();
        let a = s.bind(1, 2, 100).unwrap();
        assert_eq!(s.bind(1, 2, 100), Some(a));
        assert_ne!(s.bind(1, 3, 100).unwrap().index, a.index);
        assert_eq!(s.files_bound(), 2);
        s.recycle(a.index);
        s.recycle(a.index + 1);
        assert_eq!((s.files_bound(), s.has_file(a.index)), (1, false), "what is free is not freed");
        let anew = s.bind(1, 2, 100).unwrap();
        assert_eq!(anew.generation, a.generation + 1);
        s.publish(a.index, 0, !0, !0);
        s.touch(anew.tag(), 0, 4096);
        assert!(s.is_hit(anew.tag(), 0, 4096) && !s.is_hit(a.tag(), 0, 4096), "the next life's page");
        assert_eq!(s.touch(a.tag(), 0, 4096), Standing::Loud);
        assert_eq!(s.harvest(a.index, 0), Some(Harvest { file: a.index, leaf: 0, used: 1 }));
    }

    /// A neighbourhood is full once 16 files that want the same place are there.
    #[test]
    fn a_file_that_finds_no_slot_is_counted() {
        let s = segment();
        let lost = (0..FILES_MAX as u64).filter(|&ino| s.bind(1, ino, 1).is_none()).count() as u64;
        assert_eq!(s.files_lost.load(Ordering::Relaxed), lost);
        assert_eq!(u64::from(s.files_bound()) + lost, FILES_MAX as u64);
        assert!(lost > 0 && (lost as usize) < FILES_MAX / 8, "{lost}");
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
            let leaf = &s.leaves[leaf_index(tag(3).word())];
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
                    6 => drop(s.touch(FileTag::from_word(word), word, word.rotate_left(32))),
                    7 => drop(s.is_hit(FileTag::from_word(word), word, word)),
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
