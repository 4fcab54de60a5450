//! Bytes from anywhere.
//!
//! A [`Storage`] is one object that can be read: a local file, a URL, an object in a bucket, a piece of memory. This crate
//! moves its bytes and knows nothing of pages or windows; who decides what to read is above it.
//!
//! ```text
//!   bowwave (the engine) ── read_at(offset, frames, until) ──> Storage ──> a disk, a server, memory
//! ```
#![deny(unsafe_op_in_unsafe_fn)]

mod cachestat;
mod dir;
mod error;
mod faulty;
mod file;
#[cfg(feature = "http")]
mod http;
mod memory;
#[cfg(feature = "object-store")]
mod object;
#[cfg(feature = "slow")]
mod pace;
mod scatter;
#[cfg(feature = "slow")]
mod slow;
mod storage;
mod traced;
mod tree;

pub use cachestat::cached_pages;
pub use dir::DirTree;
pub use error::Error;
pub use faulty::{Faults, FaultyStorage};
pub use file::{FileReads, FileStorage};
#[cfg(feature = "http")]
pub use http::{HttpClient, HttpStorage, HttpTree};
pub use memory::MemoryStorage;
#[cfg(feature = "s3")]
pub use object::S3Options;
#[cfg(feature = "object-store")]
pub use object::{BucketTree, ObjectStorage};
#[cfg(feature = "slow")]
pub use pace::{Haste, Oversleep, hurry, rest};
pub use scatter::Scatter;
#[cfg(feature = "slow")]
pub use slow::{SlowDevice, SlowStorage};
pub use storage::{Meta, ReadOne, Storage, Until};
pub use traced::{Traced, TracedRead, TracedStorage};
pub use tree::{Attr, BadName, Entry, Kind, Listing, NAME_BYTES_MAX, PATH_BYTES_MAX, Tree, TreePath};
