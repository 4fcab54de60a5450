//! The memory that the programs in the kernel and the agent share: whose reads are told, what nobody needs to hear of, and what
//! was read of that.
//!
//! ```text
//!   control     asleep, lost, our own process
//!   processes   a bit for each process that the run has started          512 KiB: all numbers that Linux gives
//!   threads     when each of them was last seen                           direct-mapped, 4,096 of 16 bytes
//!   leaves      64 pages of a file: settled, used                          direct-mapped, 65,536 of 32 bytes
//! ```
//!
//! It is the one value of an array that both have mapped, so nobody calls anybody to look something up. What is told wrong by
//! two that write at once costs an event or an entry of the account, never a byte that a program reads.
//!
//! Worked example (test `a_leaf_is_published_and_harvested`): pages 0 to 3 of a file are settled; a program in the kernel marks
//! page 1 used and tells nobody; ten times a second the agent takes the mark and clears it.

use std::collections::HashMap;
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use bowwave_wire::Harvest;

use crate::mapping::Mapping;

/// The largest number of a process, 2^22 on 64 bits, in words of 64.
pub(super) const PROCESS_WORDS: usize = (1 << 22) / 64;
/// Threads whose latest read is remembered.
pub(super) const THREADS: usize = 4096;
/// Leaves of 64 pages: 16 GiB.
pub(super) const LEAVES: usize = 65_536;
/// Odd numbers without a pattern in their bits, that spread files over the table.
pub(super) const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The layout. Offsets are what the programs are assembled with.
#[repr(C)]
pub(super) struct Layout {
    /// 1 while the agent sleeps: who tells first rings, and clears it.
    pub(super) asleep: AtomicU64,
    /// Touches that found the ring full.
    pub(super) lost: AtomicU64,
    /// Our own process: those that it starts are the run's, itself it is not.
    pub(super) own: AtomicU64,
    reserved: AtomicU64,
    pub(super) processes: [AtomicU64; PROCESS_WORDS],
    pub(super) threads: [Thread; THREADS],
    pub(super) leaves: [Leaf; LEAVES],
}

/// When a thread was last seen.
#[repr(C)]
pub(super) struct Thread {
    pub(super) who: AtomicU64,
    pub(super) at_ns: AtomicU64,
}

/// 64 pages of a file.
#[repr(C)]
pub(super) struct Leaf {
    pub(super) key: AtomicU64,
    pub(super) settled: AtomicU64,
    pub(super) used: AtomicU64,
    reserved: AtomicU64,
}

/// The key of a file's first leaf; the others count up from it, so that a stream walks through the table.
pub(super) const fn file_key(dev: u32, ino: u64) -> u64 {
    (ino.wrapping_mul(SPREAD)).wrapping_add(dev as u64).wrapping_mul(SPREAD)
}

/// Our mapping of it.
pub(super) struct Shared {
    mapping: Mapping,
    /// Which file of the run a published leaf belongs to, by its key.
    owners: HashMap<u64, (u32, u64)>,
}

impl Shared {
    pub(super) fn of(map: BorrowedFd<'_>) -> io::Result<Self> {
        let mapping = Mapping::of(map, size_of::<Layout>(), 0, true)?;
        Ok(Self { mapping, owners: HashMap::new() })
    }

    pub(super) fn layout(&self) -> &Layout {
        // SAFETY: as many bytes are mapped for as long as self lives, zeroed by the kernel, and every bit pattern of the layout's
        // atomics is a value.
        unsafe { self.mapping.at().cast().as_ref() }
    }

    /// Says which pages of a leaf nobody needs to hear of. Returns what was read of the leaf that held its place, or of itself.
    pub(super) fn publish(
        &mut self,
        (dev, ino): (u32, u64),
        file: u32,
        leaf: u64,
        settled: u64,
    ) -> Option<Harvest> {
        let key = file_key(dev, ino).wrapping_add(leaf);
        let place = &self.layout().leaves[key as usize % LEAVES];
        let held = place.key.load(Ordering::Relaxed);
        if held != key && settled == 0 {
            return None;
        }
        place.settled.store(0, Ordering::Relaxed);
        let used = place.used.swap(0, Ordering::Relaxed);
        place.key.store(key, Ordering::Release);
        place.settled.store(settled, Ordering::Release);
        let owner = if held == key { None } else { self.owners.remove(&held) };
        let owner = owner.or_else(|| self.owners.get(&key).copied());
        self.owners.insert(key, (file, leaf));
        let (file, leaf) = owner?;
        (used != 0).then_some(Harvest { file, leaf, used })
    }

    /// Nobody needs to hear of hits of this file, which is no longer than a leaf. Done only where its place is free: it is not
    /// worth that anybody else is told of.
    pub(super) fn leave_alone(&self, (dev, ino): (u32, u64)) {
        let key = file_key(dev, ino);
        let place = &self.layout().leaves[key as usize % LEAVES];
        if place.key.load(Ordering::Relaxed) == 0 {
            place.key.store(key, Ordering::Release);
            place.settled.store(!0, Ordering::Release);
        }
    }

    /// Takes the marks of a leaf, if it still has its place.
    pub(super) fn harvest(&self, (dev, ino): (u32, u64), file: u32, leaf: u64) -> Option<Harvest> {
        let key = file_key(dev, ino).wrapping_add(leaf);
        let place = &self.layout().leaves[key as usize % LEAVES];
        if place.key.load(Ordering::Relaxed) != key || place.used.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let used = place.used.swap(0, Ordering::Relaxed);
        (used != 0).then_some(Harvest { file, leaf, used })
    }
}

/// Bytes at which the programs find what they share.
pub(super) const ASLEEP: usize = offset_of!(Layout, asleep);
pub(super) const LOST: usize = offset_of!(Layout, lost);
pub(super) const OWN: usize = offset_of!(Layout, own);
pub(super) const PROCESSES_AT: usize = offset_of!(Layout, processes);
pub(super) const THREADS_AT: usize = offset_of!(Layout, threads);
pub(super) const LEAVES_AT: usize = offset_of!(Layout, leaves);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// Memory as the kernel gives it: zeroes.
    fn shared() -> Shared {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size_of::<Layout>() as u64).unwrap();
        Shared::of(file.as_fd()).unwrap()
    }

    /// What a program in the kernel does.
    fn mark(shared: &Shared, of: (u32, u64), leaf: u64, pages: u64) {
        let key = file_key(of.0, of.1).wrapping_add(leaf);
        shared.layout().leaves[key as usize % LEAVES].used.fetch_or(pages, Ordering::Relaxed);
    }

    #[test]
    fn a_leaf_is_published_and_harvested() {
        let mut shared = shared();
        let of = (3, 77);
        assert_eq!(shared.publish(of, 5, 0, 0b1111), None);
        mark(&shared, of, 0, 0b10);
        assert_eq!(shared.harvest(of, 5, 0), Some(Harvest { file: 5, leaf: 0, used: 0b10 }));
        assert_eq!(shared.harvest(of, 5, 0), None);
        mark(&shared, of, 0, 0b100);
        assert_eq!(shared.publish(of, 5, 0, 0), Some(Harvest { file: 5, leaf: 0, used: 0b100 }));
    }

    #[test]
    fn who_loses_its_place_is_harvested_first() {
        let mut shared = shared();
        let of = (3, 77);
        shared.publish(of, 5, 1, !0);
        mark(&shared, of, 1, 0b1);
        let other = 1 + LEAVES as u64;
        assert_eq!(shared.publish(of, 5, other, 0), None, "what is not settled displaces nobody");
        assert_eq!(shared.publish(of, 5, other, !0), Some(Harvest { file: 5, leaf: 1, used: 0b1 }));
        assert_eq!(shared.harvest(of, 5, 1), None);
        assert_eq!(shared.owners.len(), 1, "as many owners as places");
    }

    #[test]
    fn a_small_file_is_left_alone_where_there_is_room() {
        let mut shared = shared();
        let (of, leaf) = ((3, 77), |shared: &Shared, key: u64| {
            let leaf = &shared.layout().leaves[key as usize % LEAVES];
            (leaf.key.load(Ordering::Relaxed), leaf.settled.load(Ordering::Relaxed))
        });
        let key = file_key(of.0, of.1);
        shared.leave_alone(of);
        assert_eq!(leaf(&shared, key), (key, !0));
        mark(&shared, of, 0, 0b1);
        // Who needs the place gets it, and nobody is told what was read of the small file.
        let large = LEAVES as u64;
        assert_eq!(shared.publish(of, 5, large, 0b11), None);
        shared.leave_alone(of);
        assert_eq!(leaf(&shared, key), (key + large, 0b11));
    }

    #[test]
    fn processes_have_a_bit_each() {
        assert_eq!(PROCESS_WORDS * 64, 4_194_304);
        assert_eq!(size_of::<Layout>(), 32 + (512 << 10) + 4096 * 16 + 65_536 * 32);
    }
}
