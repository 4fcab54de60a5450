//! The observer inside real processes: nothing that a program can see may change, and the agent must hear what it needs.
//!
//! ```text
//!   C program ──prints "E 8192 4096"──> stdout ──> what the agent should be told ─┐
//!      └── with the library: Read 8192 4096 ──> fake agent ──> what it was told ──┴── equal?
//!   C program without the library ──> stdout, stderr, exit code ──────────────────── equal to those with it?
//! ```
//!
//! Each program is run twice, without and with the library (the release build, which is the one that ships), and must
//! behave the same. Needs a C compiler; says so and passes without.

mod agent;
mod program;

mod cost;
mod hostile;
mod told;
mod tools;
