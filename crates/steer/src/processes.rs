//! Whom a program of a run means by its own number: the process of that number in its PID namespace, by the number that our
//! /proc has for it.
//!
//! ```text
//!   bowwave run -- unshare -pf --mount-proc cat x       cat says: 1, in the namespace of inode 4026532201
//!       /proc/30127/ns/pid    4026532201
//!       /proc/30127/status    NSpid: 30127 1             so it is 30127
//! ```
//!
//! Who shares our namespace is whom he says, unless our own /proc is another's (`unshare -pf` without `--mount-proc`): then we are
//! looked for ourselves in it, and everybody else. What was found is remembered until the process starts anew or ends. The newest
//! processes are looked at first: who begins to tell has just begun.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bowwave_wire::{ProcessId, Segment};

/// Processes of other namespaces that are remembered.
const KNOWN_MAX: usize = 4096;

/// The processes of a run, by their own numbers.
pub(crate) struct Processes {
    /// Our /proc is that of our namespace.
    direct: bool,
    known: HashMap<u32, u32>,
}

impl Processes {
    /// Tells the segment where we live.
    pub(crate) fn new(segment: &Segment) -> Self {
        let ours = fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        segment.set_namespace_of_agent(ours);
        Self { direct: proc_is_ours(), known: HashMap::new() }
    }

    /// The number that our /proc has for `pid`; else [`ProcessId::GONE`], or [`ProcessId::NOBODY`] where we may not look.
    pub(crate) fn find(&mut self, segment: &Segment, pid: u32) -> u32 {
        let who = ProcessId(pid);
        if who.namespace() == 0 && self.direct {
            return pid;
        }
        if let Some(&known) = self.known.get(&pid) {
            return known;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let inode = segment.namespace(who.namespace());
        let found = inode.map_or(ProcessId::NOBODY.0, |inode| search(inode, who.number()));
        self.known.insert(pid, found);
        found
    }

    /// The process of that number has begun, or has ended: another may have it.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.known.remove(&pid);
    }
}

/// Whether /proc has our numbers for us and for what we start.
pub(crate) fn proc_is_ours() -> bool {
    let told = fs::read_link("/proc/self").ok();
    told.is_none_or(|told| told == Path::new(&std::process::id().to_string()))
}

/// The process that has `number` in the namespace of that inode.
fn search(inode: u64, number: u32) -> u32 {
    let named = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut numbers: Vec<u32> =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(named).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let (mut seen, mut refused) = (false, false);
    for process in numbers {
        match fs::metadata(format!("/proc/{process}/ns/pid")) {
            Ok(meta) if meta.ino() == inode => seen = true,
            Ok(_) => continue,
            Err(error) => {
                refused |= error.kind() == io::ErrorKind::PermissionDenied;
                continue;
            }
        }
        let status = fs::read_to_string(format!("/proc/{process}/status"));
        if status.is_ok_and(|status| innermost(&status) == Some(number)) {
            return process;
        }
    }
    if refused && !seen { ProcessId::NOBODY.0 } else { ProcessId::GONE.0 }
}

/// The number of a process in its own namespace, as /proc/PID/status has it.
fn innermost(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::SharedSegment;

    #[test]
    fn the_last_number_is_that_of_the_innermost_namespace() {
        assert_eq!(innermost("Name:\tcat\nNSpid:\t30127\t17\t1\nVmSize:\t1 kB\n"), Some(1));
        assert_eq!(innermost("Name:\tcat\n"), None, "a kernel without namespaces");
    }

    #[test]
    fn who_shares_our_namespace_is_whom_he_says_and_is_found_by_his_namespace_too() {
        let dir = tempfile::tempdir().unwrap();
        let segment = SharedSegment::create_in(dir.path()).unwrap();
        let mut processes = Processes::new(&segment);
        let me = std::process::id();
        assert_eq!(processes.find(&segment, me), me);
        processes.direct = false;
        assert_eq!(processes.find(&segment, me), me, "as if /proc were another's");
        let elsewhere = ProcessId::new(5, 1).0;
        assert_eq!(processes.find(&segment, elsewhere), ProcessId::NOBODY.0, "no such namespace is known");
        let nobody = ProcessId::new(0, (1 << 22) - 1).0;
        assert_eq!(processes.find(&segment, nobody), ProcessId::GONE.0);
    }
}
