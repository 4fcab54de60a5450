//! What goes out next: parts of windows in line, and requests made of them.

pub(in crate::wave) mod queue;
pub(in crate::wave) mod sending;
