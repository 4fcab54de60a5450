//! How much memory prefetched pages may occupy: the machine's, the container's, and what the user allows.
//!
//! ```text
//!   half of MemAvailable                                   12 GB
//!   memory group: limit - (usage - page cache), less a sixteenth for what its programs will yet take, and so for every group above it
//!   --memory                                               given
//!   the least of these
//! ```
//!
//! Worked example: 8 GiB available, a group of 128 MiB that holds 40 MiB of which 30 MiB are page cache: 118 MiB,
//! of which 110.6 MiB are ours.

use std::fs;
use std::path::{Path, PathBuf};

/// Part of a group's room that is left to its programs.
const RESERVE: u64 = 16;

/// Bytes that prefetched pages may occupy now, at most `ceiling`. Never less than 4 MiB, so that a run can move at all.
pub(crate) fn allowance(ceiling: Option<u64>, pid: Option<u32>) -> u64 {
    let machine = meminfo("MemAvailable:").map(|available| available / 2);
    let groups = [Some("self".to_string()), pid.map(|pid| pid.to_string())];
    let group = groups
        .into_iter()
        .flatten()
        .filter_map(|process| fs::read_to_string(format!("/proc/{process}/cgroup")).ok())
        .filter_map(|text| headroom(Path::new("/sys/fs/cgroup"), &text))
        .min();
    [machine, group, ceiling].into_iter().flatten().min().unwrap_or(1 << 30).max(4 << 20)
}

/// Whether the difference is worth telling: more than an eighth.
pub(crate) fn differs(before: u64, now: u64) -> bool {
    before.abs_diff(now) > before / 8
}

/// What /proc/meminfo says under a name such as `MemTotal:`, in bytes; `None` where it does not.
pub fn meminfo(name: &str) -> Option<u64> {
    named(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

fn named(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The least room of the memory groups that a /proc/PID/cgroup names, and of those above them.
fn headroom(root: &Path, cgroup: &str) -> Option<u64> {
    cgroup.lines().filter_map(|line| group_headroom(root, line)).min()
}

fn group_headroom(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (base, limit, usage, cache): (PathBuf, _, _, _) = if controllers.is_empty() {
        (root.into(), "memory.max", "memory.current", "file ")
    } else if controllers.split(',').any(|c| c == "memory") {
        (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache ")
    } else {
        return None;
    };
    let number = |dir: &Path, name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
    let mut least = None;
    // In a container the path may not exist below our root: then the groups that do exist above it count.
    for dir in base.join(path.trim_start_matches('/')).ancestors().take_while(|dir| dir.starts_with(&base)) {
        let (Some(limit), Some(usage)) = (number(dir, limit), number(dir, usage)) else { continue };
        let cached = fs::read_to_string(dir.join("memory.stat")).ok().and_then(|stat| {
            stat.lines().find_map(|line| line.strip_prefix(cache)?.trim().parse::<u64>().ok())
        });
        let room = limit.saturating_sub(usage.saturating_sub(cached.unwrap_or(0)));
        least = Some(least.map_or(room, |l: u64| l.min(room)));
    }
    least.map(|room| room - room / RESERVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        assert_eq!(
            named("MemTotal: 9 kB\nMemAvailable:   24226000 kB\n", "MemAvailable:"),
            Some(24_226_000 * 1024)
        );
    }

    #[test]
    fn the_tightest_group_counts_and_its_page_cache_is_room() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("a"), root.path().join("a/b"));
        fs::create_dir_all(&inner).unwrap();
        for (dir, limit) in [(&outer, "134217728"), (&inner, "max")] {
            fs::write(dir.join("memory.max"), limit).unwrap();
            fs::write(dir.join("memory.current"), "41943040\n").unwrap();
            fs::write(dir.join("memory.stat"), "anon 1\nfile 31457280\n").unwrap();
        }
        assert_eq!(headroom(root.path(), "0::/a/b\n"), Some((118 << 20) * 15 / 16));
        assert_eq!(headroom(root.path(), "0::/elsewhere\n"), None);
        assert_eq!(headroom(root.path(), "3:cpu:/a\n"), None);
    }

    #[test]
    fn groups_of_the_first_version_count_too() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("memory/x");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("memory.limit_in_bytes"), "1000000").unwrap();
        fs::write(dir.join("memory.usage_in_bytes"), "400000").unwrap();
        fs::write(dir.join("memory.stat"), "cache 1\ntotal_cache 100000\n").unwrap();
        assert_eq!(headroom(root.path(), "5:memory,hugetlb:/x\n"), Some(656_250));
    }
}
