//! One file a subcommand: its arguments, and a `main` that returns the exit code.

mod amount;
pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod failure;
pub(crate) mod lab;
pub(crate) mod mapping;
pub(crate) mod mount;
mod out;
pub(crate) mod run;
mod serving;
pub(crate) mod slow;
pub(crate) mod stat;
