//! The bytes, and who may touch them: the one module of this crate with `unsafe` in it.
//!
//! ```text
//! frames   one mapping, 4 KiB each           [ 0 | 1 | 2 | 3 | ...                ]   a number is a place
//! leaf     64 pages of one file              key | pins | present 1101.. | quiet | used | frame of each page
//! table    hash of (file, leaf) -> leaf      chained through the leaves
//! ```
//!
//! A reader takes no lock: `gate` says how he and whoever takes pages away keep out of each other's way.
//!
//! Leaves are never given back to the system, only to other parts of files, so a stale number leads to a leaf that says so by
//! its key, never to nowhere. A [`Run`] of frames has one owner: it is made by [`FreeFrames`], filled by a fetch, handed in by
//! [`Memory::publish`] and comes back out of [`Memory::unpublish`]. What is safe here is safe because of these two facts.
//!
//! Worked example (test `what_is_pinned_is_not_taken`): page 3 is present, a reader holds the leaf: `unpublish` gives nothing;
//! he lets go: it gives frame 7, and the next reader finds nothing.

mod atomics;
mod frames;
mod gate;
mod leaf;
mod mapping;

pub(crate) use frames::{FreeFrames, Run};
pub(crate) use leaf::{Memory, PinnedLeaf};

/// Pages of a leaf.
pub(crate) const LEAF: u64 = 64;

/// Leaves of a file at most: a leaf is found by 32 bits of its file's number and 32 of its own.
pub(crate) const LEAVES_MAX: u64 = 1 << 32;

/// Bytes of a file at most: 1 PiB.
pub(crate) const FILE_BYTES_MAX: u64 = LEAVES_MAX * LEAF * bowwave_core::PAGE_SIZE;

/// Bits `[from, to)` of a leaf.
pub(crate) const fn mask(from: u64, to: u64) -> u64 {
    if to <= from {
        return 0;
    }
    (u64::MAX >> (LEAF - (to - from))) << from
}

#[cfg(test)]
mod tests;
