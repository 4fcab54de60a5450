//! The leaves of 4,096 pages, packed: a chunk keeps only those that have a bit set, and finds one by counting the bits before it.
//!
//! ```text
//! leaf         0  1  2  3  4  5 ... 63        leaf 4 is the third of those that are there:
//! occupied     1  0  0  1  1  0     0         two bits are set before its own
//! leaves       [0] [3] [4]
//! ```

use super::PageBit;
use alloc::vec::Vec;

/// Pages in a leaf: one bit of a word each.
pub(super) const LEAF_PAGES: u64 = 64;
/// Pages in a chunk: 64 leaves, 16 MiB of file.
pub(super) const CHUNK_PAGES: u64 = 64 * LEAF_PAGES;

#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    /// Which of the 64 leaves exist.
    occupied: u64,
    /// Those leaves, in order. No leaf is all zero.
    leaves: Vec<Leaf>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaf {
    bits: [u64; PageBit::ALL.len()],
}

/// Which pages a search looks for.
#[derive(Clone, Copy)]
pub(super) enum Select {
    Bit(PageBit),
    /// Present or in flight.
    Resident,
}

impl Chunk {
    /// Where leaf `leaf` lies in `leaves`, if it exists.
    fn rank(&self, leaf: u32) -> Option<usize> {
        (self.occupied >> leaf & 1 == 1).then(|| self.rank_or_place(leaf))
    }

    /// How many leaves exist before `leaf`.
    fn rank_or_place(&self, leaf: u32) -> usize {
        let before = (1 << leaf) - 1;
        // A file that is read from its start has all of them, and to count bits takes many instructions where there is none for it.
        if self.occupied & before == before {
            leaf as usize
        } else {
            (self.occupied & before).count_ones() as usize
        }
    }

    /// A leaf, if it exists.
    pub(super) fn get(&self, leaf: u32) -> Option<&Leaf> {
        self.rank(leaf).map(|rank| &self.leaves[rank])
    }

    /// What is selected of a leaf, one bit a page.
    pub(super) fn word(&self, leaf: u32, select: Select) -> u64 {
        self.get(leaf).map_or(0, |leaf| leaf.word(select))
    }

    /// A leaf, if it exists, to set a bit of: else see [`Chunk::edit`].
    pub(super) fn get_mut(&mut self, leaf: u32) -> Option<&mut Leaf> {
        self.rank(leaf).map(|rank| &mut self.leaves[rank])
    }

    /// Applies `f` to a leaf, if it exists, and frees it if that emptied it.
    pub(super) fn edit(&mut self, leaf: u32, f: impl FnOnce(&mut Leaf)) {
        let Some(rank) = self.rank(leaf) else { return };
        f(&mut self.leaves[rank]);
        if self.leaves[rank].is_empty() {
            self.free(leaf, rank);
        }
    }

    /// A leaf in which the caller sets a bit; it is made if it does not exist.
    pub(super) fn leaf_or_new(&mut self, leaf: u32) -> &mut Leaf {
        let rank = self.rank_or_place(leaf);
        if self.rank(leaf).is_none() {
            self.occupied |= 1 << leaf;
            self.leaves.insert(rank, Leaf::default());
        }
        &mut self.leaves[rank]
    }

    /// Whether no leaf exists.
    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Leaves that it has room for.
    pub(super) fn room(&self) -> usize {
        self.leaves.capacity()
    }

    fn free(&mut self, leaf: u32, rank: usize) {
        self.occupied &= !(1 << leaf);
        self.leaves.remove(rank);
        if self.leaves.len() <= self.leaves.capacity() / 4 {
            self.leaves.shrink_to(self.leaves.len() * 2);
        }
    }
}

impl Leaf {
    pub(super) fn word(&self, select: Select) -> u64 {
        match select {
            Select::Bit(bit) => self.bits[bit as usize],
            Select::Resident => self.bits[PageBit::Present as usize] | self.bits[PageBit::InFlight as usize],
        }
    }

    /// How many changed.
    pub(super) fn set(&mut self, bit: PageBit, mask: u64) -> u64 {
        let word = &mut self.bits[bit as usize];
        let changed = mask & !*word;
        *word |= mask;
        changed.count_ones().into()
    }

    /// How many changed.
    pub(super) fn clear(&mut self, bit: PageBit, mask: u64) -> u64 {
        let word = &mut self.bits[bit as usize];
        let changed = mask & *word;
        *word &= !mask;
        changed.count_ones().into()
    }

    fn is_empty(&self) -> bool {
        self.bits.iter().fold(0, |all, word| all | word) == 0
    }

    pub(super) fn forget(&mut self, mask: u64) {
        self.bits.iter_mut().for_each(|word| *word &= !mask);
    }
}

/// The leaves that pages `[from, end)` of a chunk touch, each with the mask of those pages in it.
pub(super) fn leaf_masks(from: u64, end: u64) -> impl DoubleEndedIterator<Item = (u32, u64)> {
    let (first, past) = (from / LEAF_PAGES, end.div_ceil(LEAF_PAGES));
    (first..past).map(move |leaf| {
        let low = from.saturating_sub(leaf * LEAF_PAGES);
        let high = (end - leaf * LEAF_PAGES).min(LEAF_PAGES);
        (leaf as u32, (u64::MAX << low) & (u64::MAX >> (LEAF_PAGES - high)))
    })
}

#[cfg(test)]
impl Chunk {
    /// What its comments say: some leaf exists, and none is all zero.
    pub(super) fn check(&self) {
        assert!(!self.is_empty() && !self.leaves.iter().any(Leaf::is_empty));
        assert_eq!(self.occupied.count_ones() as usize, self.leaves.len());
    }
}
