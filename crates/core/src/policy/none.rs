//! No readahead at all: fetch what is asked, when it is asked.
//!
//! The era before every era, and the row that every other row is compared with. A program that advises *random* gets
//! the same from any Linux. A sequential reader pays one access of the device for each of its reads:
//!
//! ```text
//! read 0 1   fetch [0, 1)      wait
//! read 1 1   fetch [1, 2)      wait
//! read 2 4   fetch [2, 6)      wait
//! ```
//!
//! Worked example: 100 MB/s and 8 ms of access time give 497.57 KB/s to a reader of single pages -- 0.5 % of the disk
//! (T11). Random reads, though, are exact: not one byte is wasted, and spec 8.9 shows 64 readers in 128 MiB for whom
//! that is faster than the readahead of 6.18.

use crate::decision::{Decision, Pattern, Why};
use crate::policy::shared::{exact, forced, nothing, single};
use crate::policy::{Ask, AskKind, Policy, ReadState};
use crate::view::View;
use alloc::vec::Vec;

/// Fetches exactly what is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoReadahead;

impl Policy for NoReadahead {
    fn name(&self) -> &'static str {
        "none"
    }

    fn decide(&mut self, view: &dyn View, _: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        match ask.kind {
            AskKind::Miss => {
                out.push(Decision { window: exact(ask), pattern: Pattern::Random, why: Why("exact") });
            }
            AskKind::Mark | AskKind::Read => out.push(nothing(Pattern::Random, "exact")),
            AskKind::Fault => out.push(single(ask, "exact")),
            AskKind::Forced => forced(view, ask, "forced", out),
        }
    }
}
