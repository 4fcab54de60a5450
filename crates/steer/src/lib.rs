//! Steers the kernel's page cache for programs that know nothing of it.
//!
//! ```text
//!   bowwave run -- CMD
//!      |-- launch     finds CMD, starts it with the preload library, waits
//!      '-- Agent      one thread:   segment --events--> Wave (bowwave-core) --fetches--> readahead(2)
//!                                   quiet pages <-------------'   arrivals <--mincore-- page cache
//! ```
//!
//! The agent is the real-time twin of the lab's player: both drive the same brain through the same door. Reading order:
//! `agent` (the loop), `files` (descriptors, what is cached), `arrivals` and `prober` (when a fetch has come),
//! `device_window` (how much one call brings), `processes` (who a program is), `memory`, `segment`, `launch`, `signals`, `inherited`, `summary`, `explain_file`; `observer`, `bpf` and `perf`
//! for programs that no library reaches, and for page faults.

mod address_space;
mod agent;
mod arrivals;
mod bpf;
mod device_window;
mod explain_file;
mod files;
mod inherited;
mod launch;
mod library;
mod mapping;
mod memory;
mod observer;
mod pagemap;
mod perf;
mod priority;
mod prober;
mod processes;
mod segment;
mod select;
mod signals;
mod summary;
mod tracepoints;

pub use agent::{Agent, Faults, Options};
pub use explain_file::{DecisionLine, ExplainFile, FileLine, HEADER, Line, NotALine};
pub use inherited::give_up_descriptors;
pub use launch::{Child, Ended, LaunchError, Program, Reach, Steering, exec_unsteered, find, spawn};
pub use library::{LibraryError, install as install_library};
pub use memory::meminfo;
pub use observer::OutsideBy;
pub use segment::{SegmentError, SharedSegment};
pub use select::Selection;
pub use signals::outlive_file_limits;
pub use summary::{Decisions, DeviceReport, FileReport, Report, shown_bytes};
