//! Which pages a program has touched, read from its page tables: for faults that nobody told of.
//!
//! ```text
//!   /proc/PID/stat      faults so far     unchanged: nothing was touched that was not mapped; look again later     8 us
//!   /proc/PID/pagemap   PAGEMAP_SCAN      runs of pages that are mapped now; those that were not before are new
//! ```
//!
//! The kernel maps up to 16 present pages around a fault, so that is how exactly touches are known where everything is
//! cached; where nothing is, each page shows for itself. What a scan costs: docs/decisions/0008.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;

use bowwave_core::{Extent, PAGE_SIZE, PageBit, PageIndex, PageTable};

/// struct page_region.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Run {
    start: u64,
    end: u64,
    categories: u64,
}

/// struct pm_scan_arg.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const PAGEMAP_SCAN: libc::c_ulong = 0xC060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;
/// Runs that one call hands out.
const RUNS_MAX: usize = 512;
/// Calls in one look at a region: what is left is seen at the next.
const CALLS_MAX: usize = 64;

/// A program's page tables, and what they held when we last looked.
struct Tables {
    file: File,
    faults: u64,
    regions: HashMap<u64, PageTable>,
}

/// Those of all programs that are watched.
#[derive(Default)]
pub(crate) struct PageTables {
    of: HashMap<u32, Tables>,
}

/// Whether page tables can be scanned here (Linux 6.7).
pub(crate) fn can_scan() -> bool {
    let Ok(file) = File::open("/proc/self/pagemap") else { return false };
    scan(&file, 0, PAGE_SIZE, &mut [Run::default(); 1]).is_some()
}

fn scan(file: &File, start: u64, end: u64, runs: &mut [Run]) -> Option<(usize, u64)> {
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        start,
        end,
        vec: runs.as_mut_ptr().addr() as u64,
        vec_len: runs.len() as u64,
        category_mask: PAGE_IS_PRESENT,
        return_mask: PAGE_IS_PRESENT,
        ..Scan::default()
    };
    // SAFETY: the structure has the kernel's layout and says its size; it names `runs` with its length.
    let found = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut scan) };
    (found >= 0).then_some((found as usize, scan.walk_end))
}

impl PageTables {
    /// Faults that the process has made since the last call; `None` if it cannot be asked.
    pub(crate) fn faults(&mut self, pid: u32) -> Option<u64> {
        let now = fault_count(pid)?;
        let tables = match self.of.get_mut(&pid) {
            Some(tables) => tables,
            None => {
                let file = File::open(format!("/proc/{pid}/pagemap")).ok()?;
                self.of.entry(pid).or_insert(Tables { file, faults: now, regions: HashMap::new() })
            }
        };
        Some(now.saturating_sub(std::mem::replace(&mut tables.faults, now)))
    }

    /// Pages of `[start, end)` that are mapped now and were not at the last look, as pages from `start` on.
    pub(crate) fn look(&mut self, pid: u32, start: u64, end: u64) -> Vec<Extent> {
        let Some(tables) = self.of.get_mut(&pid) else { return Vec::new() };
        let pages = PageIndex((end - start) / PAGE_SIZE);
        let before = tables.regions.entry(start).or_insert_with(|| PageTable::new(pages));
        before.set_end_of_file(pages);
        let mut now = PageTable::new(pages);
        let mut fresh = Vec::new();
        let (mut at, mut calls) = (start, 0);
        let mut runs = [Run::default(); RUNS_MAX];
        while at < end && calls < CALLS_MAX {
            let Some((found, walked)) = scan(&tables.file, at, end, &mut runs) else { break };
            for run in &runs[..found.min(RUNS_MAX)] {
                let first = (run.start.max(start) - start) / PAGE_SIZE;
                let run = Extent::new(first, (run.end.min(end) - run.start.max(start)) / PAGE_SIZE);
                now.set(PageBit::Used, run);
                let mut next = run.start;
                for known in before.runs(PageBit::Used, run) {
                    fresh.push(Extent::between(next, known.start));
                    next = known.end();
                }
                fresh.push(Extent::between(next, run.end()));
            }
            calls += 1;
            if walked <= at {
                break;
            }
            at = walked;
        }
        if at >= end {
            *before = now;
        } else {
            for run in &fresh {
                before.set(PageBit::Used, *run);
            }
        }
        fresh.retain(|run| !run.is_empty());
        fresh
    }

    /// Nothing of these processes is needed any more.
    pub(crate) fn keep(&mut self, wanted: &[u32]) {
        self.of.retain(|pid, _| wanted.contains(pid));
    }
}

/// Minor and major faults of all threads of a process.
fn fault_count(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything; what follows its parenthesis does not.
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    let minor: u64 = words.nth(7)?.parse().ok()?;
    let major: u64 = words.nth(1)?.parse().ok()?;
    Some(minor + major)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_show_once() {
        if !can_scan() {
            println!("skipped: page tables cannot be scanned here (PAGEMAP_SCAN came with Linux 6.7)");
            return;
        }
        let dir = tempfile::tempdir_in(".").unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![1; 64 * 4096]).unwrap();
        let file = File::open(&path).unwrap();
        let len = 64 * PAGE_SIZE as usize;
        // SAFETY: a mapping of our own, of a file that keeps its length, touched inside and given back at the end.
        unsafe {
            let flags = libc::MAP_SHARED;
            let at = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, flags, file.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            let (start, end) = (at.addr() as u64, (at.addr() + len) as u64);
            let pid = std::process::id();
            let mut tables = PageTables::default();
            assert_eq!(tables.faults(pid), Some(0));
            assert_eq!(tables.look(pid, start, end), []);
            at.cast::<u8>().add(40 * 4096).read_volatile();
            assert!(tables.faults(pid).unwrap() > 0);
            let seen = tables.look(pid, start, end);
            assert!(seen.iter().any(|run| run.contains(PageIndex(40))), "{seen:?}");
            assert_eq!(tables.look(pid, start, end), [], "once");
            libc::munmap(at, len);
        }
    }
}
