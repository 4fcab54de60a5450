//! The atomics of [`super::gate`]. The models of `tests/models.rs` put loom's in their place.

pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A load that sees every change before it in the one order of sequentially consistent accesses.
pub(super) fn latest(number: &AtomicU32) -> u32 {
    number.load(Ordering::SeqCst)
}
