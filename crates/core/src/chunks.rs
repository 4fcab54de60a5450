//! Parts of a file by their number: those of its first gibibyte in a row, those beyond in a tree.
//!
//! ```text
//! number    0   1   2   3  ...  NEAR-1  |  NEAR ...
//! near      a   b   -   d               |                found by one look; as long as the last of them wants
//! far                                   |  x (91), y (7,003)        found by a search
//! ```
//!
//! Most files end within the row, and what is known of a page is looked up several times a read. A file of a terabyte of which ten
//! pages were touched still costs what those ten cost, and the row of its first gibibyte at most.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::size_of;

/// Parts by their number, the first `NEAR` of them in a row.
#[derive(Clone, Debug)]
pub(crate) struct Chunks<T, const NEAR: usize> {
    /// The last of them is there.
    near: Vec<Option<T>>,
    far: BTreeMap<u64, T>,
}

impl<T, const NEAR: usize> Default for Chunks<T, NEAR> {
    fn default() -> Self {
        Self { near: Vec::new(), far: BTreeMap::new() }
    }
}

impl<T, const NEAR: usize> Chunks<T, NEAR> {
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        if number < NEAR as u64 { self.near.get(number as usize)?.as_ref() } else { self.far.get(&number) }
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        if number < NEAR as u64 {
            self.near.get_mut(number as usize)?.as_mut()
        } else {
            self.far.get_mut(&number)
        }
    }

    pub(crate) fn get_or_insert_with(&mut self, number: u64, make: impl FnOnce() -> T) -> &mut T {
        if number >= NEAR as u64 {
            return self.far.entry(number).or_insert_with(make);
        }
        let at = number as usize;
        if at >= self.near.len() {
            self.near.resize_with(at + 1, || None);
        }
        self.near[at].get_or_insert_with(make)
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        if number >= NEAR as u64 {
            return self.far.remove(&number);
        }
        let removed = self.near.get_mut(number as usize)?.take();
        let len = self.near.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.near.truncate(len);
        if len <= self.near.capacity() / 4 {
            self.near.shrink_to(2 * len);
        }
        removed
    }

    /// Those from `first` to `last` that are there, in order.
    pub(crate) fn range(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, &T)> {
        let from = self.near.get(first.min(NEAR as u64) as usize..).unwrap_or_default();
        let near = (first..=last).zip(from).filter_map(|(number, part)| Some((number, part.as_ref()?)));
        near.chain(self.far.range(first..=last).map(|(&number, part)| (number, part)))
    }

    /// [`Chunks::range`], to change them.
    pub(crate) fn range_mut(&mut self, first: u64, last: u64) -> impl Iterator<Item = (u64, &mut T)> {
        let from = self.near.get_mut(first.min(NEAR as u64) as usize..).unwrap_or_default();
        let near = (first..=last).zip(from).filter_map(|(number, part)| Some((number, part.as_mut()?)));
        near.chain(self.far.range_mut(first..=last).map(|(&number, part)| (number, part)))
    }

    /// Bytes that the row and the tree take, about. O(1).
    pub(crate) fn bytes_of_memory(&self) -> usize {
        // A B-tree node is at worst half full, so an entry counts twice.
        let far = self.far.len() * 2 * (size_of::<T>() + size_of::<u64>());
        self.near.capacity() * size_of::<Option<T>>() + far
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of four: whatever comes and goes, a tree says the same, and what is empty takes nothing.
    #[test]
    fn a_row_and_a_tree_are_one_tree() {
        let (mut parts, mut tree) = (Chunks::<u64, 4>::default(), BTreeMap::new());
        let mut state = 1_u64;
        for call in 0..2000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (number, adds) = ((state >> 33) % 9, state >> 63 == 1);
            if adds {
                let part = parts.get_or_insert_with(number, || call);
                assert_eq!(part, tree.entry(number).or_insert(call));
                *part += 1;
                *tree.get_mut(&number).unwrap() += 1;
            } else {
                assert_eq!(parts.remove(number), tree.remove(&number));
            }
            for number in 0..10 {
                assert_eq!(parts.get(number), tree.get(&number));
                assert_eq!(parts.get_mut(number), tree.get_mut(&number));
            }
            for (first, last) in [(0, u64::MAX), (1, 2), (2, 6), (5, 8), (7, 7)] {
                let expected: Vec<(u64, u64)> =
                    tree.range(first..=last).map(|(&n, &part)| (n, part)).collect();
                assert_eq!(
                    parts.range(first, last).map(|(n, &part)| (n, part)).collect::<Vec<_>>(),
                    expected
                );
                assert_eq!(
                    parts.range_mut(first, last).map(|(n, part)| (n, *part)).collect::<Vec<_>>(),
                    expected
                );
            }
        }
        (0..9).for_each(|number| _ = parts.remove(number));
        assert_eq!(parts.bytes_of_memory(), 0);
    }
}
