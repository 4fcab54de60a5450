//! Readahead without the number, for programs that read through a library: a page cache of our own over anything that can
//! be read.
//!
//! ```
//! use bowwave::{Bytes, Cache, MemoryStorage};
//!
//! let cache = Cache::builder().memory(Bytes(64 << 20)).build()?;
//! let file = cache.open(MemoryStorage::new("greeting", *b"hello, page cache"))?;
//! let mut five = [0; 5];
//! assert_eq!(file.read_at(&mut five, 0)?, 5);
//! assert_eq!(&five, b"hello");
//! assert_eq!(file.read_at_bytes(7, 4)?.contiguous(), Some(&b"page"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What to fetch next, and how far ahead, is decided by [`bowwave_core`]; there is nothing to set but the memory.
//!
//! ```text
//!  File::read_at ── there? ── copy, no lock
//!       │ missing, or marked
//!       v
//!  the brain (one lock): Wave decides, Cache says which page goes ──> flights ──> threads ──> Storage::read_at
//! ```
//!
//! Reading order: `file` (what programs call), `reading` (a read that is not all there), `brain` (decisions into flights),
//! `engine` and `pool` (who brings the bytes), `memory` (where they lie, and who may touch them).
#![deny(unsafe_code)]

#[cfg(feature = "tokio")]
mod asynchronous;
mod brain;
mod cache;
mod engine;
mod file;
mod flight;
#[expect(unsafe_code, reason = "bytes that readers reach without a lock")]
mod memory;
mod notes;
mod page_bytes;
mod pool;
mod reading;
mod stats;

pub use bowwave_core::{Advice, Bytes, Counters, Decision, Explained, Extent, Nanos, Pattern, Why};
pub use bowwave_io::{Error, MemoryStorage, Meta, ReadOne, Storage, Until};
pub use cache::{Cache, CacheBuilder};
pub use file::{Cursor, File};
pub use page_bytes::PageBytes;
pub use stats::{CacheStats, EndpointStats, FileStats, PatternStats};
