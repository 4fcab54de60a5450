//! The running kernel as judge: which windows it opened for which reads, and which ones 6.18's policy opens for the same.
//!
//! ```text
//! cases    what is read       G1 seq-1: 5,000 reads of a page, one behind the other
//! record   what came of it    order 0 4 3, order 4 16 16, ...                           a kernel's trace, or its text
//! here     the same reads through the policy, and the first submission that differs
//! ```
//!
//! Worked example: the records in `tests/judge`, each window of which `tests/judge.rs` compares.

mod cases;
mod record;

pub use cases::cases;
pub use record::trace_line;

use bowwave_core::{FolioPlay, Linux618, MapAdvice, PageCount, PageIndex, Submitted, Touched};
use record::line;

/// A run of equal reads: byte offset, bytes, how many, and how far apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reads {
    /// Offset of the first.
    pub offset: u64,
    /// Bytes of each.
    pub len: u64,
    /// How many.
    pub count: u64,
    /// Bytes from one to the next; negative reads backwards.
    pub step: i64,
}

impl Reads {
    /// Each as `(offset, bytes)`.
    pub fn each(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count).map(move |i| (self.offset.wrapping_add_signed(self.step * i as i64), self.len))
    }
}

/// How a program comes to a file's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// By reads.
    Read,
    /// By touching one byte of a mapping at each place; the next when all that is on its way has come.
    Mapped(MapAdvice, Touched),
}

/// A pattern that the judge plays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Its name, with the generator of spec 10.
    pub name: String,
    /// How.
    pub access: Access,
    /// Its reads.
    pub reads: Vec<Reads>,
}

/// What a kernel did on one pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judged {
    /// The pattern.
    pub case: Case,
    /// Its submissions.
    pub submitted: Vec<Submitted>,
}

/// What a kernel did on one machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its release.
    pub kernel: String,
    /// Ceiling of a window.
    pub max: PageCount,
    /// Largest request of its device.
    pub request_max: PageCount,
    /// Pages in the file that was read.
    pub pages: PageCount,
    /// Pattern by pattern.
    pub judged: Vec<Judged>,
}

/// How one pattern compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compared {
    /// The pattern's name.
    pub name: String,
    /// Submissions of the kernel.
    pub windows: usize,
    /// Of those, equal in start, size, tail and kind, in their order, before the first that is not.
    pub equal: usize,
    /// The first difference, in words.
    pub difference: Option<String>,
}

/// Plays the record's reads through 6.18's policy and compares, submission by submission.
pub fn compare(record: &Record) -> Vec<Compared> {
    record.judged.iter().map(|judged| compared(record, judged)).collect()
}

fn compared(record: &Record, judged: &Judged) -> Compared {
    let mut play = FolioPlay::new(
        Linux618::as_is().with_request_max(record.request_max),
        PageIndex(record.pages.0),
        record.max,
    );
    let ours: Vec<Submitted> = judged
        .case
        .reads
        .iter()
        .flat_map(|reads| reads.each())
        .flat_map(|(at, n)| match judged.case.access {
            Access::Read => play.read(at, n),
            Access::Mapped(advice, how) => play.touch(PageIndex::of_byte(at), how, advice),
        })
        .collect();
    let theirs = &judged.submitted;
    let equal = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let same = equal == ours.len() && equal == theirs.len();
    let shown = |s: Option<&Submitted>| s.map_or("nothing".into(), |s| line(*s));
    let difference = (!same).then(|| {
        format!(
            "window {}: the kernel {}, the policy {}",
            equal + 1,
            shown(theirs.get(equal)),
            shown(ours.get(equal))
        )
    });
    Compared { name: judged.case.name.clone(), windows: theirs.len(), equal, difference }
}
