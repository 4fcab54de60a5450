//! Which pages of a file were read past the kernel's cache of late.
//!
//! A table of leaves, 64 pages of a file each, found by place; a leaf that needs the place of another takes it. So it is bounded,
//! remembers the latest 8 GiB of a file that is read in order, and forgets what is longer ago. It may be wrong where two threads
//! take one place at a time: then a read goes the other way, and brings the same bytes.
//!
//! ```text
//!   place   0         1         2     ...  32767
//!   leaf    32768     1         -          32767        read were: page 5 of leaf 1, all of leaf 32768, which forgot leaf 0
//!   pages   111...1   000001..  -
//! ```
//!
//! The picture is owned by the test `the_latest_are_remembered`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_SHIFT: u32 = 12;
/// Pages of a leaf: a word.
const LEAF: u64 = 64;
/// 512 KiB of leaves, which stand for 8 GiB.
const LEAVES_MAX: u64 = 1 << 15;

/// The pages that were read.
pub(super) struct Seen {
    leaves: Box<[Leaf]>,
}

#[derive(Default)]
struct Leaf {
    /// Which it is, counted from one.
    number: AtomicU64,
    pages: AtomicU64,
}

impl Seen {
    /// Nothing of a file of `len` bytes was read.
    pub(super) fn new(len: u64) -> Self {
        let leaves = (len >> PAGE_SHIFT) / LEAF + 1;
        Self { leaves: (0..leaves.min(LEAVES_MAX)).map(|_| Leaf::default()).collect() }
    }

    /// These bytes were read: every page that has one of them.
    pub(super) fn add(&self, offset: u64, bytes: u64) {
        for (number, mask) in masks(offset, bytes) {
            let leaf = self.leaf(number);
            if leaf.number.swap(number + 1, Ordering::Relaxed) == number + 1 {
                leaf.pages.fetch_or(mask, Ordering::Relaxed);
            } else {
                leaf.pages.store(mask, Ordering::Relaxed);
            }
        }
    }

    /// Whether every page of a range was.
    pub(super) fn has_all(&self, offset: u64, bytes: u64) -> bool {
        masks(offset, bytes).all(|(number, mask)| {
            let leaf = self.leaf(number);
            leaf.number.load(Ordering::Relaxed) == number + 1
                && leaf.pages.load(Ordering::Relaxed) & mask == mask
        })
    }

    fn leaf(&self, number: u64) -> &Leaf {
        &self.leaves[(number % self.leaves.len() as u64) as usize]
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").field("leaves", &self.leaves.len()).finish_non_exhaustive()
    }
}

/// The leaves of a range, and the pages of each that it touches.
fn masks(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let (first, end) = (offset >> PAGE_SHIFT, (offset + bytes).div_ceil(1 << PAGE_SHIFT));
    (first / LEAF..end.div_ceil(LEAF)).filter_map(move |leaf| {
        let (from, to) = (first.max(leaf * LEAF), end.min((leaf + 1) * LEAF));
        let ones = u64::MAX.checked_shr((LEAF - (to - from)) as u32)?;
        Some((leaf, ones << (from % LEAF)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF_BYTES: u64 = LEAF << PAGE_SHIFT;

    #[test]
    fn the_latest_are_remembered() {
        let seen = Seen::new(1 << 40);
        seen.add(0, LEAF_BYTES);
        seen.add(LEAF_BYTES + 5 * 4096, 1);
        assert!(seen.has_all(0, LEAF_BYTES) && seen.has_all(LEAF_BYTES + 5 * 4096, 4096));
        assert!(!seen.has_all(0, LEAF_BYTES + 1) && !seen.has_all(LEAF_BYTES + 5 * 4096, 4097));
        seen.add(LEAVES_MAX * LEAF_BYTES, LEAF_BYTES);
        assert!(seen.has_all(LEAVES_MAX * LEAF_BYTES, LEAF_BYTES) && !seen.has_all(0, 1));
    }

    #[test]
    fn a_range_over_leaves_and_nothing_at_all() {
        let seen = Seen::new(3 * LEAF_BYTES);
        seen.add(4096, 2 * LEAF_BYTES);
        assert!(seen.has_all(4096, 2 * LEAF_BYTES) && seen.has_all(100 << PAGE_SHIFT, 1));
        assert!(!seen.has_all(0, 8192) && !seen.has_all(4096, 2 * LEAF_BYTES + 1));
        seen.add(0, 0);
        assert!(!seen.has_all(0, 1));
    }
}
