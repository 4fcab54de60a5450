//! Whose read is it? What is remembered of one reader's progress, where a read belongs, and when a run begins and ends.
//!
//! ```text
//! read --> locate: goes on, repeats, history, stray --> advance: where its stream is now
//!                                                       begin: a seed, a stream resumed, a stride
//!          blocks, hops: another order, short gaps      quiet: reads that nobody told
//!          look: who looks ahead                        ends, sweep: left, over, silent
//!          pace, manner, returns: how its reader goes on expected: where it is read next
//! ```

pub(in crate::wave) mod advance;
pub(in crate::wave) mod begin;
pub(in crate::wave) mod blocks;
pub(in crate::wave) mod ends;
pub(in crate::wave) mod expected;
pub(in crate::wave) mod hops;
pub(in crate::wave) mod locate;
pub(in crate::wave) mod look;
pub(in crate::wave) mod manner;
pub(in crate::wave) mod pace;
pub(in crate::wave) mod quiet;
pub(in crate::wave) mod returns;
pub(in crate::wave) mod stream;
pub(in crate::wave) mod sweep;
