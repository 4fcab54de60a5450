//! Two kinds of mount, both read-only: a source through our page cache (`cached`, [`CachedMount`]), and the slow store: a
//! directory, or generated files, at a modelled device's pace.
//!
//! In the slow store every read passes through the kernel's page cache and readahead as with any file system; what misses the cache reaches
//! the store and is answered when the modelled device would have answered it, in real time. So a laptop shows what a
//! disk, a network mount or a bucket would do, and a reader can prove that every byte was right.
//!
//! ```text
//!   program --read--> page cache --miss, readahead--> store --> device model: done in 31.46 ms
//!           <-- bytes ---------------------------------------- answered 31.4 ms after it arrived
//! ```
//!
//! Reading order: [`Options`] and [`SlowStore`] (what a caller does), `store` (what the kernel asks), `pace` (when it is
//! answered), `tree` (which files), [`content`] (what they hold), [`Stats`] (what was asked).

/// As the standard one, but who does not listen any more is no reason to end: a log that is full, `| head` that has left.
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod cached;
pub mod content;
mod log;
mod mount;
mod pace;
mod point;
mod session;
mod stats;
mod store;
mod tree;

pub use cached::{CachedMount, CachedOptions, CachedSource, metrics_address};
pub use mount::{MountError, Options, ROUND_TRIP, SlowStore};
pub use stats::{FileStats, Stats};
