//! The ring: what a program tells of its reads. Any thread of any process pushes, the agent pops.
//!
//! ```text
//! head            tail          a place is claimed by moving the tail, and published by its own word (Vyukov's bounded queue)
//!   [e][e][ ][e]               the third was claimed and not published: the agent waits there, or gives the place away
//! ```

use crate::Segment;
use core::sync::atomic::{AtomicU64, Ordering};

/// Events that the ring holds.
pub const EVENTS_MAX: usize = 16_384;
/// Times that a pusher tries to claim a place: as often as a thousand others can be quicker.
const CLAIMS_MAX: usize = 1024;

/// The `detail` of [`Kind::Process`]: the process starts.
pub const STARTS: u32 = 0;
/// The `detail` of [`Kind::Process`]: the process is the child of a fork.
pub const FORKED: u32 = 1;
/// The `detail` of [`Kind::Process`]: the process goes dormant, since a filter may kill it for our system calls.
pub const SECCOMP: u32 = 2;
/// The `detail` of [`Kind::Process`]: the process goes dormant, since our library is not where it was.
pub const CHROOT: u32 = 3;
/// The `detail` of [`Kind::Process`]: the process ends.
pub const ENDS: u32 = 4;

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
    /// A process of the run starts ([`STARTS`]), forks ([`FORKED`]; `offset` is its parent), goes dormant ([`SECCOMP`], [`CHROOT`])
    /// or ends ([`ENDS`]).
    Process = 6,
    /// Bytes `[offset, offset + len)` of the file are mapped at [`Event::address`] now.
    Map = 7,
    /// `len` bytes from [`Event::address`] on are mapped no more, or are something else.
    Unmap = 8,
    /// The last descriptor of a description was closed: nothing of the file may be held open for its sake.
    Closed = 9,
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
            9 => Self::Closed,
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
    /// Process, as it sees itself in its namespace: a [`ProcessId`](crate::ProcessId).
    pub pid: u32,
    /// Thread, likewise.
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
pub(crate) struct EventSlot {
    pub(crate) seq: AtomicU64,
    pub(crate) kind_detail: AtomicU64, // kind | detail << 32
    who: AtomicU64,                    // pid | tid << 32
    file: AtomicU64,                   // file | generation << 32
    offset: AtomicU64,
    len: AtomicU64,
    at_ns: AtomicU64,
    fd_waited: AtomicU64, // fd | waited_ns << 32
}

impl Segment {
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
}
