//! The core for programs in C that keep a cache of their own. This crate decides nothing: it translates.
//!
//! ```text
//!  your cache (C)                     this crate                                   bowwave-core
//!  bowwave_read(b, now, 1, pages) --> null? broken? pages cut at the file's end --> Wave::handle(now, Input::Read)
//!  bowwave_poll(b, now, &fetch)   <-- 1: there is something to fetch            <-- Wave::poll(now)
//! ```
//!
//! It is the one place where the core meets `unsafe`. Three things are held here and nowhere else:
//!
//! 1. *A panic stops at the border.* The brain that panicked is broken: that call and every later one say [`BOWWAVE_BROKEN`],
//!    and the cache goes on without readahead. That needs a build that unwinds, `--profile embed`; in the release profile of
//!    this workspace a panic ends the process.
//! 2. *Null pointers* are answered by [`BOWWAVE_NULL`].
//! 3. *Numbers are cut*: pages at the end of their file, times at what the brain can reckon with. No number that a caller
//!    gives breaks it.
//!
//! The header `include/bowwave.h` is written from this file by `tests/header.rs`, which fails where it is stale. Worked
//! example: `examples/own_cache.c` prints, line by line, what `own_cache.rs` of the core prints (`tests/example.rs`).

#![allow(non_camel_case_types, reason = "the names of C")]

mod border;

pub use border::{
    BOWWAVE_BROKEN, BOWWAVE_NULL, BOWWAVE_OK, bowwave, bowwave_advice, bowwave_advised, bowwave_arrived,
    bowwave_awaits, bowwave_close, bowwave_config, bowwave_config_default, bowwave_counters,
    bowwave_counters_read, bowwave_device, bowwave_dropped, bowwave_exactly, bowwave_extent, bowwave_failed,
    bowwave_fetch, bowwave_free, bowwave_given_up, bowwave_gone, bowwave_leaf, bowwave_memory, bowwave_new,
    bowwave_open, bowwave_poll, bowwave_present, bowwave_read, bowwave_resident, bowwave_skipped,
    bowwave_told, bowwave_used, bowwave_waited,
};
