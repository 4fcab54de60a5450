//! What to read next, and why.
//!
//! `bowwave-core` decides; it never reads. It has no clock, file, thread, lock, log, hash seed or environment, and
//! the compiler proves it: `no_std` with `alloc`, no dependency, no `unsafe`. Inputs go in, actions come out; the same
//! inputs give the same actions, byte for byte.
//!
//! ```text
//!   a read, an arrival, a sample ──> Wave ──> fetch [12, 28) ahead=16 mark=12 why=R2 next
//! ```
//!
//! Reading order: [`units`](PageIndex) and [`Window`] (the words), [`View`] (what a policy may know of a cache),
//! [`Policy`] (the one question that every era answers), then the `policy` folder, one file an era.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod cache;
mod chunks;
mod decision;
mod folio;
mod looks;
mod play;
mod policy;
mod stats;
mod table;
mod trace;
mod units;
mod view;
mod waits;
mod wave;
mod window;

pub use cache::{Background, Cache, CacheConfig, Evicted, Ghost, Hold, Holds, Placement, Touch, Victim};
pub use decision::{Decision, Pattern, Why};
pub use folio::{FolioPlay, FolioTable, MapAdvice, Submitted, Touched};
pub use looks::{first_look, left_off, next_look, while_read};
pub use play::{Play, Submission};
pub use policy::{
    Around, Ask, AskKind, Conservative, Context, Context2008, DEFAULT_MAX, DEFAULT_MAX_2010, Legacy,
    Linux618, NAMES, NoReadahead, Ondemand, Ondemand2623, Policy, ReadState, SlowerRamp, THRASH_MIN,
    ThrashSafe, Whence, around_limit, by_name, small_device_limit, small_device_limit_v0,
};
pub use stats::{Row, Stats};
pub use table::{PageBit, PageState, PageTable, Visits, runs_of_bits};
pub use trace::{Dev, NotATraceLine, TraceRecord};
pub use units::{Bytes, Extent, FileId, Nanos, PAGE_SIZE, PageCount, PageIndex};
pub use view::View;
pub use waits::is_wait;
pub use wave::{Action, Advice, Config, Counters, Explained, FetchId, Input, Learnt, Rule, Wave, rules};
pub use window::{Window, init_size, next_size};
