//! Leaves: 64 pages of a file, which of them nobody needs to hear of, and which were read.
//!
//! ```text
//! page      8 7 6 5 4 3 2 1 0       the test `quiet_pages_are_quiet_and_leave_a_trace`
//! quiet     0 1 1 1 1 1 1 1 1       a read of 0 is settled, of 4 quiet, of 7 and 8 loud
//! settled   0 0 0 0 0 1 1 1 1
//! used      1 1 0 0 1 0 0 0 1       what the agent harvests
//!
//! key       file + 1, mirrored: 16 bits | life of its slot: 8 | leaf: 40       the upper 24 bits are the file's tag
//! ```
//!
//! Who holds a file's tag finds its leaves without looking at the file's slot, and none of whoever has the slot next.
//! Mirrored (the lowest bit first), so that the upper 16 bits say where in the table a file's leaves begin, far from those
//! of the file in the next slot: a shift and a sum, since a read waits for each step on the way to its leaf.

use crate::{FILES_MAX, FileRef, Segment};
use core::sync::atomic::{AtomicU64, Ordering};

/// Leaves of 64 pages whose bits a run can hold at once.
pub const LEAVES_MAX: usize = 65_536;

/// The bits of 64 pages of a file, direct-mapped: a leaf that loses its place is simply not quiet any more.
#[repr(C, align(32))]
pub struct LeafSlot {
    pub(crate) key: AtomicU64,
    quiet: AtomicU64,
    settled: AtomicU64,
    pub(crate) used: AtomicU64,
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

/// A file in one life of its slot: the upper part of its leaves' keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileTag(u64);

impl FileTag {
    /// Of no file: nothing is ever published under it.
    pub const NONE: Self = Self(0xFFFF << FILE_SHIFT);

    /// The tag as a word to keep.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The tag that [`FileTag::word`] gave.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    const fn key(self, leaf: u64) -> u64 {
        self.0 | (leaf & LEAF_MASK)
    }
}

impl FileRef {
    /// The tag of this file in this life of its slot; lives 256 apart are taken for one.
    pub const fn tag(self) -> FileTag {
        let file = (self.index as u16).wrapping_add(1).reverse_bits();
        FileTag((file as u64) << FILE_SHIFT | (self.generation as u64 & 0xFF) << LEAF_BITS)
    }
}

impl Segment {
    /// Shim: the hit. Whether bytes `[offset, end)` of a file lie in one page or two that are settled and whose use is
    /// known already, so that there is nothing to do; otherwise [`Segment::touch`] says how they stand. From 2^58 bytes on
    /// it may take a page for another's: such a read is not told.
    #[inline(always)]
    pub fn is_hit(&self, of: FileTag, offset: u64, end: u64) -> bool {
        let (first, last) = (offset >> 12, end.wrapping_sub(1) >> 12);
        let key = of.0 | offset >> 18;
        let slot = &self.leaves[leaf_index(key)];
        if slot.key.load(Ordering::Acquire) != key {
            return false;
        }
        let pages = slot.settled.load(Ordering::Relaxed) & slot.used.load(Ordering::Relaxed);
        let pages = match last.wrapping_sub(first) {
            0 => pages,
            1 => pages & (pages >> 1),
            _ => return false,
        };
        pages & (1 << (first & 63)) != 0
    }

    /// Shim: how bytes `[offset, offset + len)` of a file stand, and marks their pages used. Reads over more than ten leaves
    /// are judged by their first nine and their last: a mark in between is met by the agent's own clock. Some ns a leaf, for 64 pages
    /// to be copied.
    #[inline]
    pub fn touch(&self, of: FileTag, offset: u64, len: u64) -> Standing {
        let first = offset >> 12;
        let last = offset.saturating_add(len.max(1) - 1) >> 12;
        if first >> 6 == last >> 6 {
            return self.touch_leaf(of, first >> 6, mask(first & 63, last & 63));
        }
        let mut standing = self.touch_leaf(of, first >> 6, mask(first & 63, 63));
        let mut leaf = (first >> 6) + 1;
        while leaf < last >> 6 && leaf < (first >> 6) + 9 {
            standing = standing.louder(self.touch_leaf(of, leaf, !0));
            leaf += 1;
        }
        // What lies between is used as well, whatever is thought of it.
        let between = leaf..(last >> 6).min(leaf + LEAVES_MAX as u64);
        between.for_each(|leaf| _ = self.touch_leaf(of, leaf, !0));
        standing.louder(self.touch_leaf(of, last >> 6, mask(0, last & 63)))
    }

    #[inline]
    fn touch_leaf(&self, of: FileTag, leaf: u64, pages: u64) -> Standing {
        let key = of.key(leaf);
        let slot = &self.leaves[leaf_index(key)];
        if slot.key.load(Ordering::Acquire) != key {
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

    /// Agent: sets the bits of 64 pages of `file` from `leaf * 64`. Returns what was displaced: the leaf that held the place
    /// before and its used bits, which are cleared. Of the same leaf, those of pages that were quiet and are no longer: they were
    /// read before that. The others stay: a read of them may be on its way to the agent.
    pub fn publish(&self, file: u32, leaf: u64, quiet: u64, settled: u64) -> Option<Harvest> {
        let key = self.file_ref(file)?.tag().key(leaf);
        let slot = &self.leaves[leaf_index(key)];
        let held = slot.key.load(Ordering::Relaxed);
        let going = if held == key { slot.quiet.load(Ordering::Relaxed) & !quiet } else { !0 };
        let harvest = self.harvest_slot(slot, held, going);
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
        let key = self.file_ref(file)?.tag().key(leaf);
        let slot = &self.leaves[leaf_index(key)];
        (slot.key.load(Ordering::Relaxed) == key).then(|| self.harvest_slot(slot, key, !0)).flatten()
    }

    fn harvest_slot(&self, slot: &LeafSlot, held: u64, pages: u64) -> Option<Harvest> {
        if held == 0 || slot.used.load(Ordering::Relaxed) & pages == 0 {
            return None;
        }
        let used = slot.used.fetch_and(!pages, Ordering::Relaxed) & pages;
        let file = ((held >> FILE_SHIFT) as u16).reverse_bits().wrapping_sub(1);
        Some(Harvest { file: u32::from(file), leaf: held & LEAF_MASK, used })
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

const LEAF_BITS: u32 = 40; // 2^58 bytes
const LEAF_MASK: u64 = (1 << LEAF_BITS) - 1;
const FILE_SHIFT: u32 = 48;
const _: () = assert!(FILES_MAX < 0xFFFF, "a key has 16 bits for a file, and one value of them is nobody's");

/// Neighbouring leaves of a file lie side by side, so a stream walks through the table; files start apart.
pub(crate) const fn leaf_index(key: u64) -> usize {
    (key.wrapping_add(key >> FILE_SHIFT) % LEAVES_MAX as u64) as usize
}

/// Bits `[first, last]`.
const fn mask(first: u64, last: u64) -> u64 {
    (!0 << first) & (!0 >> (63 - last))
}
