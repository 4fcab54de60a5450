//! One file a subcommand: its arguments, and a `main` that returns the exit code.

pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod lab;
pub(crate) mod run;
pub(crate) mod slow;
