//! Whether the kernel's cache has room for a file.
//!
//! Most of what is read from local disks is read again: by the next run, by another program. A file that stays in the kernel's cache
//! costs them a copy, and not a device: 1.3 us instead of 94 for 4 KiB on the machine of `docs/decisions/0019`. So a file has to be
//! more than that cache can be expected to keep before anybody reads past it.
//!
//! ```text
//!   24 GiB of memory, 20 of them free or easily freed, no limit:    a file of 10 GiB is kept, one of 11 is not
//!   the same in a group of processes that may have 4:               one of 2 is kept, one of 3 is not
//!   or in a group without a limit, inside one that may have 4:      the same
//! ```
//!
//! The figures are owned by the tests `half_of_what_can_be_had_is_kept` and `the_tightest_group_counts`.

use std::fs;
use std::path::Path;

/// A smaller file is always kept; to ask how much memory there is would cost what is gained.
const KEPT_ALWAYS: u64 = 64 << 20;

/// Whether the kernel's cache can be expected to keep a file of `len` bytes.
pub(super) fn is_kept(len: u64) -> bool {
    len <= KEPT_ALWAYS || memory_available().is_none_or(|bytes| has_room(len, bytes, group_limit()))
}

/// Half, because what takes more pushes out what others have there.
fn has_room(len: u64, available: u64, limit: Option<u64>) -> bool {
    len <= available.min(limit.unwrap_or(u64::MAX)) / 2
}

/// Bytes that programs and caches could have without anybody being swapped out, as the kernel reckons.
fn memory_available() -> Option<u64> {
    let told = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = told.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"))?;
    Some(kib.parse::<u64>().ok()? << 10)
}

/// What our control group (version 2) may have, and each group above it: the least of their limits, where any has one.
fn group_limit() -> Option<u64> {
    limit_in(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// The least limit of the group that a /proc/PID/cgroup names, and of those above it. A container may not see its group below our
/// root: then the groups count that do exist above it.
fn limit_in(root: &Path, cgroup: &str) -> Option<u64> {
    let group = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = root.join(group);
    let groups = group.ancestors().take_while(|dir| dir.starts_with(root));
    let limit = |dir: &Path| fs::read_to_string(dir.join("memory.max")).ok()?.trim().parse().ok();
    groups.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_can_be_had_is_kept() {
        let gib = |n: u64| n << 30;
        assert!(has_room(gib(10), gib(20), None) && !has_room(gib(11), gib(20), None));
        assert!(has_room(gib(2), gib(20), Some(gib(4))) && !has_room(gib(3), gib(20), Some(gib(4))));
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("a"), root.path().join("a/b"));
        fs::create_dir_all(&inner).unwrap();
        let limits = |above: &str, own: &str| {
            fs::write(outer.join("memory.max"), above).unwrap();
            fs::write(inner.join("memory.max"), own).unwrap();
            limit_in(root.path(), "0::/a/b\n")
        };
        assert_eq!(limits("4096\n", "max\n"), Some(4096), "a unit of systemd in a slice that has a limit");
        assert_eq!(limits("4096\n", "2048\n"), Some(2048));
        assert_eq!(limits("max\n", "max\n"), None);
        assert_eq!(limit_in(root.path(), "0::/elsewhere\n"), None);
        fs::write(root.path().join("memory.max"), "8192\n").unwrap();
        assert_eq!(limit_in(root.path(), "0::/\n"), Some(8192), "a container's own root");
        assert_eq!(limit_in(root.path(), "0::/elsewhere\n"), Some(8192));
        assert_eq!(limit_in(root.path(), "3:memory:/a\n"), None, "the first version has other files");
    }

    #[test]
    fn this_machine_says_what_it_has() {
        assert!(memory_available().is_some_and(|bytes| bytes > 1 << 20));
        assert!(is_kept(0) && is_kept(KEPT_ALWAYS) && !is_kept(1 << 50));
    }
}
