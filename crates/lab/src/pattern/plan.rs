//! A plan: the exact list of reads that a pattern makes, and everything a player needs to make them.
//!
//! A plan decides nothing about time: it says which thread reads what from which descriptor, in which order. The same
//! list is played against a real mount, in virtual time, and by the yardsticks.
//!
//! ```text
//! thread  fd  file     offset   asked   used  think  fresh
//!      0   0  big/000       0    4096   4096      0    yes     <- nobody could foresee where the stream starts
//!      0   0  big/000    4096    4096   4096      0     no
//! ```

use super::params::Misfit;
use std::collections::BTreeMap;

/// One mebibyte.
pub(crate) const MIB: u64 = 1 << 20;
/// One kibibyte.
pub(crate) const KIB: u64 = 1 << 10;
/// One gibibyte.
pub(crate) const GIB: u64 = 1 << 30;
/// Bytes in each of the store's 256 big files, `big/000` to `big/255`.
pub const BIG_FILE_BYTES: u64 = 16 * GIB;
/// Bytes in each of the store's 256 small files, `small/000` to `small/255`.
pub const SMALL_FILE_BYTES: u64 = 8 * MIB;
/// Reads of a plan: eight times those of the longest one that is published, at four times its volume.
const OPS_MAX: usize = 1 << 24;

/// A file that a plan reads, by its name below the store's root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanFile {
    /// Path below the root: `big/000`.
    pub name: String,
    /// Bytes in it.
    pub size: u64,
}

/// One read: a loop of `pread` until all bytes asked for are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// The thread that makes it (nominal where the plan is a queue).
    pub thread: u32,
    /// The descriptor it goes through, an index into [`Plan::descriptors`] (nominal where the plan is a queue).
    pub fd: u32,
    /// The file, an index into [`Plan::files`].
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes of those that the program goes on to use: all, except where reads are retried.
    pub used: u64,
    /// Time the program computes after the read.
    pub think_ns: u64,
    /// The first touch of a run that no rule could foresee: of a stream, a cluster, a file, a column chunk; and each
    /// uniformly random read.
    pub fresh: bool,
}

/// Who makes the next read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dispatch {
    /// Each thread makes its own reads, in their order in the list.
    Assigned,
    /// Threads take reads from the head of one common queue, each through the descriptor of its own number.
    QueueOwn,
    /// Threads take reads from the head of one common queue, all through descriptor 0.
    QueueShared,
}

/// Reads made at a given rate rather than as fast as they go: many slow streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Bytes a second and thread.
    pub bytes_per_s: u64,
    /// Thread `i` starts `i` times this after the first.
    pub start_every_ns: u64,
    /// A thread that falls behind catches up at most this much; the rest of its delay is forgiven.
    pub catch_up_ns_max: u64,
    /// What is measured begins this long after the last start,
    pub settle_ns: u64,
    /// and lasts so long.
    pub measure_ns: u64,
}

impl Pace {
    /// When thread number `threads - 1` has started, everything settled, and the measured part ended.
    pub const fn total_ns(&self, threads: u32) -> u64 {
        self.measure_from_ns(threads) + self.measure_ns
    }
    /// When the measured part begins.
    pub const fn measure_from_ns(&self, threads: u32) -> u64 {
        self.start_every_ns * threads as u64 + self.settle_ns
    }
}

/// A part of a plan in which the program behaves in one way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// Index of its first read.
    pub first_op: usize,
    /// What it does, in a word or two.
    pub name: String,
}

/// Everything a pattern asks for, read by read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Files, each named once.
    pub files: Vec<PlanFile>,
    /// The file behind each descriptor. Each is opened at its first read and closed after its last.
    pub descriptors: Vec<u32>,
    /// Number of threads.
    pub threads: u32,
    /// Who makes the next read.
    pub dispatch: Dispatch,
    /// The reads' pace, if they are paced.
    pub pace: Option<Pace>,
    /// The memory that program and page cache may have together, if the pattern is about scarce memory.
    pub memory_bytes_max: Option<u64>,
    /// Where the program changes its behaviour; empty where it never does.
    pub phases: Vec<Phase>,
    /// Whether the files are mapped, and a read is a touch of each of its pages.
    pub mapped: bool,
    /// The reads.
    pub ops: Vec<Op>,
    /// The pattern's parameters as they were used, by name.
    pub options: BTreeMap<String, u64>,
}

impl Plan {
    /// An empty plan of one thread.
    pub(crate) fn new() -> Self {
        Self {
            files: Vec::new(),
            descriptors: Vec::new(),
            threads: 1,
            dispatch: Dispatch::Assigned,
            pace: None,
            memory_bytes_max: None,
            phases: Vec::new(),
            mapped: false,
            ops: Vec::new(),
            options: BTreeMap::new(),
        }
    }

    /// An empty plan over the first big file, opened once.
    pub(crate) fn on_one_file() -> Self {
        let mut plan = Self::new();
        plan.open_big(0);
        plan
    }

    /// One more descriptor, of big file `number`.
    pub(crate) fn open_big(&mut self, number: u64) -> u32 {
        self.open(format!("big/{number:03}"), BIG_FILE_BYTES)
    }

    /// One more descriptor, of small file `number`.
    pub(crate) fn open_small(&mut self, number: u64) -> u32 {
        self.open(format!("small/{number:03}"), SMALL_FILE_BYTES)
    }

    fn open(&mut self, name: String, size: u64) -> u32 {
        let known = self.files.iter().position(|file| file.name == name);
        let file = known.unwrap_or_else(|| {
            self.files.push(PlanFile { name, size });
            self.files.len() - 1
        });
        self.descriptors.push(file as u32);
        self.descriptors.len() as u32 - 1
    }

    /// One more read, by thread 0; the caller changes what is special about it.
    pub(crate) fn read(&mut self, fd: u32, offset: u64, bytes: u64) -> Result<&mut Op, Misfit> {
        let file = self.descriptors[fd as usize];
        let end = offset.checked_add(bytes);
        let inside = end.is_some_and(|end| end <= self.files[file as usize].size);
        if !inside {
            return Err(Misfit("a read would end past its file".into()));
        }
        if self.ops.len() >= OPS_MAX {
            return Err(Misfit(format!("it would make more than {OPS_MAX} reads")));
        }
        self.ops.push(Op {
            thread: 0,
            fd,
            file,
            offset,
            asked: bytes,
            used: bytes,
            think_ns: 0,
            fresh: false,
        });
        Ok(self.ops.last_mut().expect("just pushed"))
    }

    /// The part of the plan that was executed when thread `t` made its first `done[t]` reads (of the whole queue, the
    /// first `done` summed): what a run stopped at its time cap is judged by.
    pub fn executed(&self, done: &[u64]) -> Self {
        let mut left = done.to_vec();
        left.resize(self.threads as usize, 0);
        let mut queue: u64 = left.iter().sum();
        let mut plan = self.clone();
        plan.ops.retain(|op| {
            let room = match self.dispatch {
                Dispatch::Assigned => &mut left[op.thread as usize],
                Dispatch::QueueOwn | Dispatch::QueueShared => &mut queue,
            };
            let made = *room > 0;
            *room -= u64::from(made);
            made
        });
        plan
    }

    /// Bytes from the first to past the last byte that the plan asks of each file, for files it asks anything of.
    pub fn spans(&self) -> BTreeMap<u32, (u64, u64)> {
        let mut spans = BTreeMap::new();
        for op in &self.ops {
            let span = spans.entry(op.file).or_insert((op.offset, op.offset + op.asked));
            *span = (span.0.min(op.offset), span.1.max(op.offset + op.asked));
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capped_run_is_judged_by_what_it_did() {
        let mut plan = Plan::on_one_file();
        plan.threads = 2;
        for k in 0..6 {
            plan.read(0, k * 4096, 4096).unwrap().thread = (k % 2) as u32;
        }
        let offsets = |plan: Plan| plan.ops.iter().map(|op| op.offset / 4096).collect::<Vec<_>>();
        assert_eq!(offsets(plan.executed(&[1, 3])), [0, 1, 3, 5]);
        plan.dispatch = Dispatch::QueueShared;
        assert_eq!(offsets(plan.executed(&[1, 3])), [0, 1, 2, 3]);
    }
}
