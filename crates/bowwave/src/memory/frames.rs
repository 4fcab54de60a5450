//! Which frames are free, and how runs of them are found.
//!
//! A bit a frame, searched from where the last search ended. Pages leave memory in the order in which they came, so what a
//! window gives back is mostly one run, and the next window finds it whole:
//!
//! ```text
//! ....####....##########....      # free      take(8) from the cursor: the second run, 8 of its 10
//!         ^ cursor                            take(4): the 2 that are left, and a second run for the other 2
//! ```

use super::mapping::Mapping;
use std::io;

pub(super) const FRAME: usize = 4096;
/// Words looked at for a run that is long enough; then the longest so far is taken.
const LOOKED_MAX: usize = 64;

/// Frames side by side. Whoever holds it is the only one to touch their bytes. Not to be dropped, but to be given back.
#[derive(Debug)]
pub(crate) struct Run {
    pub(super) start: u32,
    pub(super) count: u32,
}

impl Run {
    pub(crate) const fn count(&self) -> u64 {
        self.count as u64
    }

    /// Parts with the first `count` of it, or all of it.
    pub(super) fn take_front(&mut self, count: u32) -> Self {
        let front = Self { start: self.start, count: count.min(self.count) };
        self.start += front.count;
        self.count -= front.count;
        front
    }
}

/// The frames that nobody has.
pub(crate) struct FreeFrames {
    words: Vec<u64>,
    free: u64,
    cursor: usize,
    retired: Vec<u32>,
}

impl FreeFrames {
    /// All of `frames` are free.
    pub(crate) fn new(frames: u32) -> Self {
        let mut words = vec![u64::MAX; frames.div_ceil(64) as usize];
        if let Some(last) = words.last_mut().filter(|_| !frames.is_multiple_of(64)) {
            *last = (1 << (frames % 64)) - 1;
        }
        Self { words, free: u64::from(frames), cursor: 0, retired: Vec::new() }
    }

    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    pub(crate) fn bytes_of_memory(&self) -> u64 {
        (self.words.capacity() * 8 + self.retired.capacity() * 4) as u64
    }

    /// A run of at most `count` frames, as long as one is found without looking far; `None` only where none is free.
    pub(crate) fn take(&mut self, count: u64) -> Option<Run> {
        if self.free == 0 || count == 0 {
            return None;
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let mut best: Option<Run> = None;
        let mut word = self.cursor;
        let mut looked = 0;
        for _ in 0..=self.words.len() {
            if self.words[word] != 0 {
                looked += 1;
                let run = self.run_in(word, count);
                if best.as_ref().is_none_or(|best| best.count < run.count) {
                    best = Some(run);
                }
                if looked == LOOKED_MAX || best.as_ref().is_some_and(|best| best.count == count) {
                    break;
                }
            }
            word = (word + 1) % self.words.len();
        }
        let run = best?;
        self.set(&run, false);
        self.free -= run.count();
        self.cursor = (run.start + run.count - 1) as usize / 64;
        Some(run)
    }

    /// The longest run that begins in `word`, up to `count`.
    fn run_in(&self, word: usize, count: u32) -> Run {
        let (mut best, mut bits, mut at) = (Run { start: 0, count: 0 }, self.words[word], 0);
        while bits != 0 {
            let skip = bits.trailing_zeros();
            bits >>= skip;
            at += skip;
            let mut length = bits.trailing_ones();
            let start = word as u32 * 64 + at;
            let to_end = at + length == 64;
            at += length;
            bits = bits.checked_shr(length).unwrap_or(0);
            let mut next = word + 1;
            while to_end && length < count && next < self.words.len() {
                let ones = self.words[next].trailing_ones();
                length += ones;
                if ones < 64 {
                    break;
                }
                next += 1;
            }
            let length = length.min(count);
            if length > best.count {
                best = Run { start, count: length };
            }
            if best.count == count {
                break;
            }
        }
        best
    }

    /// Takes a run back.
    pub(crate) fn give(&mut self, run: Run) {
        self.set(&run, true);
        self.free += run.count();
    }

    fn set(&mut self, run: &Run, free: bool) {
        for frame in run.start..run.start + run.count {
            let (word, bit) = (frame as usize / 64, 1u64 << (frame % 64));
            assert_eq!(self.words[word] & bit == 0, free, "a frame has one owner");
            self.words[word] ^= bit;
        }
    }

    /// Takes up to `count` free frames out of use; says which, so that their memory can be given back.
    pub(crate) fn retire(&mut self, count: u64) -> Vec<Run> {
        let mut left = count;
        let mut runs = Vec::new();
        while left > 0
            && let Some(run) = self.take(left)
        {
            left -= run.count();
            self.retired.extend(run.start..run.start + run.count);
            runs.push(run);
        }
        runs
    }

    /// Puts up to `count` frames that were retired back into use.
    pub(crate) fn revive(&mut self, count: u64) -> u64 {
        let mut revived = 0;
        while revived < count
            && let Some(start) = self.retired.pop()
        {
            self.give(Run { start, count: 1 });
            revived += 1;
        }
        revived
    }

    pub(crate) fn retired(&self) -> u64 {
        self.retired.len() as u64
    }
}

/// The frames' bytes.
pub(super) struct Arena {
    mapping: Mapping,
    frames: u32,
}

impl Arena {
    pub(super) fn new(frames: u32) -> io::Result<Self> {
        let mapping = Mapping::new(frames as usize * FRAME)?;
        mapping.prefer_large_pages();
        Ok(Self { mapping, frames })
    }

    pub(super) fn frame(&self, number: u32) -> *mut u8 {
        assert!(number < self.frames, "a frame of this arena");
        self.mapping.at(number as usize * FRAME)
    }

    /// The bytes of runs, for the one who fills them.
    pub(super) fn slices<'a>(&'a self, runs: &'a mut [Run]) -> Vec<&'a mut [u8]> {
        let slice = |run: &'a mut Run| {
            assert!(run.start + run.count <= self.frames, "frames of this arena");
            let len = run.count as usize * FRAME;
            // SAFETY: the caller holds the run alone and for as long as the slice; no two runs overlap.
            unsafe { std::slice::from_raw_parts_mut(self.frame(run.start), len) }
        };
        runs.iter_mut().map(slice).collect()
    }

    /// Gives the memory of frames that were retired back to the system.
    pub(super) fn release(&self, runs: Vec<Run>) {
        for run in runs {
            self.mapping.release(run.start as usize * FRAME, run.count as usize * FRAME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_whole_where_there_is_one() {
        let mut free = FreeFrames::new(200);
        let a = free.take(70).unwrap();
        assert_eq!((a.start, a.count), (0, 70));
        let b = free.take(100).unwrap();
        assert_eq!((b.start, b.count, free.free()), (70, 100, 30));
        free.give(a);
        // 30 are left behind the cursor, 70 in front: the longer one is taken.
        let c = free.take(60).unwrap();
        assert_eq!((c.start, c.count), (0, 60));
        let left: u64 = std::iter::from_fn(|| free.take(64)).map(|run| run.count()).sum();
        assert_eq!((left, free.free()), (40, 0));
    }

    #[test]
    fn what_is_retired_comes_back() {
        let mut free = FreeFrames::new(64);
        let runs = free.retire(10);
        assert_eq!((runs.len(), free.free(), free.retired()), (1, 54, 10));
        assert_eq!((free.revive(4), free.free(), free.retired()), (4, 58, 6));
    }
}
