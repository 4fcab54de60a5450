//! Bytes of a file without a copy: a view into the cache's own frames, which stay for as long as it lives.
//!
//! ```text
//! view of [5000, 300000)     leaf 0: pages 1..64      leaf 1: pages 64..74
//! slices                     frames 17..80 side by side -> one slice     frames 200..210 -> a second one
//! ```
//!
//! A view holds whole leaves of 64 pages, so a program that keeps many small views keeps up to 256 KiB for each. Where views
//! hold half of the cache, or one alone is longer than a quarter of it, what comes back is a copy in memory of the caller's.

use crate::engine::Engine;
use crate::file::Open;
use crate::memory::{LEAF, PinnedLeaf};
use bowwave_core::PAGE_SIZE;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a file, in one or a few slices.
pub struct PageBytes {
    held: Held,
    len: usize,
}

enum Held {
    Copy(Vec<u8>),
    View { open: Arc<Open>, leaves: Leaves, offset: u64 },
}

/// The leaves of a view: a few without a list of their own, for 1 MiB and what it sticks out.
pub(crate) struct Leaves {
    first: [Option<PinnedLeaf>; Self::FEW],
    more: Vec<PinnedLeaf>,
    count: usize,
}

impl Leaves {
    const FEW: usize = 6;

    pub(crate) const fn new() -> Self {
        Self { first: [const { None }; Self::FEW], more: Vec::new(), count: 0 }
    }

    pub(crate) fn push(&mut self, leaf: PinnedLeaf) {
        match self.first.get_mut(self.count) {
            Some(place) => *place = Some(leaf),
            None => self.more.push(leaf),
        }
        self.count += 1;
    }

    fn get(&self, i: usize) -> Option<&PinnedLeaf> {
        if i < Self::FEW { self.first[i].as_ref() } else { self.more.get(i - Self::FEW) }
    }

    /// Lets go of all of them.
    pub(crate) fn unpin(&mut self, engine: &Engine) {
        let few = self.first.iter_mut().filter_map(Option::take);
        for leaf in few.chain(self.more.drain(..)) {
            leaf.unpin(&engine.memory);
        }
        engine.pinned.fetch_sub(std::mem::take(&mut self.count) as u64, Ordering::Relaxed);
    }
}

impl PageBytes {
    pub(crate) fn copy(bytes: Vec<u8>) -> Self {
        Self { len: bytes.len(), held: Held::Copy(bytes) }
    }

    /// A view of `len` bytes from `offset` on. All of its pages must be present in its leaves.
    pub(crate) fn view(open: Arc<Open>, leaves: Leaves, offset: u64, len: usize) -> Self {
        Self { held: Held::View { open, leaves, offset }, len }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none: the read began at the end of the file.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether these are the cache's own bytes; otherwise a copy of them.
    pub fn is_view(&self) -> bool {
        matches!(self.held, Held::View { .. })
    }

    /// The slices, in order. None of them is empty.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let slice = self.slice_from(at);
            at += slice.len();
            (!slice.is_empty()).then_some(slice)
        })
    }

    /// The slice that holds byte `at` of these, from there on.
    fn slice_from(&self, at: usize) -> &[u8] {
        if at >= self.len {
            return &[];
        }
        match &self.held {
            Held::Copy(bytes) => &bytes[at..],
            Held::View { open, leaves, offset } => {
                let first_leaf = offset / PAGE_SIZE / LEAF;
                let byte = offset + at as u64;
                let page = byte / PAGE_SIZE;
                let leaf = leaves.get((page / LEAF - first_leaf) as usize).expect("a leaf for each page");
                leaf.bytes(&open.engine().memory, page % LEAF, (byte % PAGE_SIZE) as usize, self.len - at)
            }
        }
    }

    /// All of them as one slice, where they lie side by side.
    pub fn contiguous(&self) -> Option<&[u8]> {
        let slice = self.slice_from(0);
        (slice.len() == self.len).then_some(slice)
    }

    /// All of them as one slice: copied together where they do not lie side by side.
    pub fn in_one_piece(&self) -> Cow<'_, [u8]> {
        self.contiguous().map_or_else(|| Cow::Owned(self.to_vec()), Cow::Borrowed)
    }

    /// All of them in memory of the caller's.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len);
        for slice in self.slices() {
            all.extend_from_slice(slice);
        }
        all
    }
}

impl Drop for PageBytes {
    fn drop(&mut self) {
        if let Held::View { open, leaves, .. } = &mut self.held {
            leaves.unpin(open.engine());
        }
    }
}

impl fmt::Debug for PageBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBytes").field("len", &self.len).field("is_view", &self.is_view()).finish()
    }
}

impl PartialEq<[u8]> for PageBytes {
    fn eq(&self, other: &[u8]) -> bool {
        let mut rest = other;
        self.len == other.len()
            && self.slices().all(|slice| {
                let (front, back) = rest.split_at(slice.len());
                rest = back;
                front == slice
            })
    }
}
