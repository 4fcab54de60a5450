//! Which frame each page of a file has: a map from page to frame's number, 64 pages to a leaf, 16 leaves to a chunk.
//!
//! ```text
//! page       0 ............ 63 | 64 ........... 127 |    pages that are fetched together lie in one leaf, which is
//! frame      7  8  9  -  -  -  | -  -  -  40 41 42  |    looked up once for all of them
//! used       3                   3                       a leaf without a frame is given up, and a chunk without a leaf
//! ```

use super::frames::{FrameId, NO_FRAME};
use crate::chunks::Chunks;
use crate::units::{Bytes, Extent, PageCount, PageIndex};
use alloc::boxed::Box;
use core::mem::size_of;

/// Pages in a leaf.
const LEAF: u64 = 64;
/// Leaves in a chunk: one that holds a page here and there takes 128 bytes more than its leaves.
const CHUNK: u64 = 16;
const CHUNK_PAGES: u64 = CHUNK * LEAF;

/// Chunks of the first gibibyte: their row takes 2 KiB at most.
const CHUNKS_NEAR: usize = 256;

struct Leaf {
    frames: [u32; LEAF as usize],
    used: u32,
}

struct Chunk {
    leaves: [Option<Box<Leaf>>; CHUNK as usize],
    used: u32,
}

/// The frames of a file's pages.
#[derive(Default)]
pub(super) struct Places {
    chunks: Chunks<Box<Chunk>, CHUNKS_NEAR>,
    /// Chunks that are there.
    len: usize,
    /// Leaves in all of them.
    leaves: usize,
}

impl Places {
    pub(super) fn bytes_of_memory(&self) -> Bytes {
        let chunks = self.len * size_of::<Chunk>() + self.chunks.bytes_of_memory();
        Bytes((chunks + self.leaves * size_of::<Leaf>()) as u64)
    }

    pub(super) fn get(&self, page: PageIndex) -> Option<FrameId> {
        let id = self.leaf(page.0 / LEAF)?.frames[(page.0 % LEAF) as usize];
        (id != NO_FRAME).then_some(FrameId(id))
    }

    fn leaf(&self, number: u64) -> Option<&Leaf> {
        self.chunks.get(number / CHUNK)?.leaves[(number % CHUNK) as usize].as_deref()
    }

    /// The pages from `start` on, which have no frame, get these.
    pub(super) fn put(&mut self, start: PageIndex, frames: &[u32]) {
        for (number, within, part) in parts(Extent { start, count: PageCount(frames.len() as u64) }) {
            let chunk = self.chunks.get_or_insert_with(number / CHUNK, || {
                self.len += 1;
                Box::new(Chunk { leaves: [const { None }; CHUNK as usize], used: 0 })
            });
            let leaf = &mut chunk.leaves[(number % CHUNK) as usize];
            if leaf.is_none() {
                chunk.used += 1;
                self.leaves += 1;
            }
            let empty = || Box::new(Leaf { frames: [NO_FRAME; LEAF as usize], used: 0 });
            let leaf = leaf.get_or_insert_with(empty);
            leaf.used += part.len() as u32;
            leaf.frames[within..][..part.len()].copy_from_slice(&frames[part]);
        }
    }

    /// `pages` have no frame any more.
    pub(super) fn take(&mut self, pages: Extent) {
        for (number, within, part) in parts(pages) {
            let key = number / CHUNK;
            let Some(chunk) = self.chunks.get_mut(key) else { continue };
            let place = &mut chunk.leaves[(number % CHUNK) as usize];
            let Some(leaf) = place else { continue };
            let frames = &mut leaf.frames[within..][..part.len()];
            leaf.used -= frames.iter().map(|&id| u32::from(id != NO_FRAME)).sum::<u32>();
            frames.fill(NO_FRAME);
            if leaf.used == 0 {
                *place = None;
                self.leaves -= 1;
                chunk.used -= 1;
                if chunk.used == 0 {
                    self.chunks.remove(key);
                    self.len -= 1;
                }
            }
        }
    }

    /// The frames of those of these pages that have one, in order. Chunks that are not there are not looked at.
    pub(super) fn of(&self, pages: Extent) -> impl Iterator<Item = FrameId> + '_ {
        let first = pages.start.0 / CHUNK_PAGES;
        let last = first.max(pages.end().0.saturating_sub(1) / CHUNK_PAGES);
        let parts = self.chunks.range(first, last).flat_map(move |(number, chunk)| {
            parts(Extent::new(number * CHUNK_PAGES, CHUNK_PAGES).intersection(pages)).filter_map(
                |(leaf, within, part)| {
                    let leaf = chunk.leaves[(leaf % CHUNK) as usize].as_deref()?;
                    Some(&leaf.frames[within..within + part.len()])
                },
            )
        });
        parts.flatten().filter(|&&id| id != NO_FRAME).map(|&id| FrameId(id))
    }
}

/// The leaves that `pages` lie in: each one's number, where in it they begin, and which of the pages those are.
fn parts(pages: Extent) -> impl Iterator<Item = (u64, usize, core::ops::Range<usize>)> {
    let (from, end) = (pages.start.0, pages.end().0);
    (from / LEAF..end.div_ceil(LEAF)).map(move |leaf| {
        let (first, past) = (from.max(leaf * LEAF), end.min((leaf + 1) * LEAF));
        (leaf, (first % LEAF) as usize, (first - from) as usize..(past - from) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The picture at the top, over two leaves; and a leaf that is empty again takes no memory.
    #[test]
    fn frames_of_a_run_of_pages() {
        let mut places = Places::default();
        places.put(PageIndex(62), &[7, 8, 9, 10]);
        let of = |places: &Places, start, count| -> Vec<u32> {
            places.of(Extent::new(start, count)).map(|id| id.0).collect()
        };
        assert_eq!(of(&places, 0, 200), [7, 8, 9, 10]);
        assert_eq!((of(&places, 63, 2), places.get(PageIndex(66))), ([8, 9].to_vec(), None));
        places.take(Extent::new(64, 1));
        assert_eq!(of(&places, 0, 200), [7, 8, 10]);
        for page in [62, 63, 65, 65] {
            places.take(Extent::new(page, 1));
        }
        assert_eq!(places.bytes_of_memory(), Bytes(0));
    }

    /// Four frames, far apart in a file of a pebibyte: who passed each of its leaves would be seconds on the way.
    #[test]
    fn what_is_far_apart_is_found_at_once() {
        let mut places = Places::default();
        let ends = [0, CHUNK_PAGES, 1 << 30, (1 << 38) - 1];
        for (id, page) in ends.into_iter().enumerate() {
            places.put(PageIndex(page), &[id as u32]);
        }
        let of = |start, count| -> Vec<u32> { places.of(Extent::new(start, count)).map(|id| id.0).collect() };
        assert_eq!(of(0, 1 << 38), [0, 1, 2, 3]);
        assert_eq!((of(1, 1 << 30), of(1, CHUNK_PAGES - 1)), ([1, 2].to_vec(), Vec::new()));
        assert_eq!(of(CHUNK_PAGES, 0), []);
    }
}
