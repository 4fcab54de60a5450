//! Whether the kernel's cache has room for a file.
//!
//! Most of what is read from local disks is read again: by the next run, by another program. A file that stays in the kernel's cache
//! costs them a copy, and not a device: 1.3 us instead of 94 for 4 KiB on the machine of `docs/decisions/0019`. So a file has to be
//! more than that cache can be expected to keep before anybody reads past it.
//!
//! ```text
//!   24 GiB of memory, 20 of them free or easily freed, no limit:    a file of 10 GiB is kept, one of 11 is not
//!   the same in a group of processes that may have 4:               one of 2 is kept, one of 3 is not
//! ```
//!
//! The figures are owned by the test `half_of_what_can_be_had_is_kept`.

use std::fs;

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

/// The limit of our control group (version 2), where it has one.
fn group_limit() -> Option<u64> {
    let told = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = told.lines().find_map(|line| line.strip_prefix("0::"))?;
    fs::read_to_string(format!("/sys/fs/cgroup{group}/memory.max")).ok()?.trim().parse().ok()
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
    fn this_machine_says_what_it_has() {
        assert!(memory_available().is_some_and(|bytes| bytes > 1 << 20));
        assert!(is_kept(0) && is_kept(KEPT_ALWAYS) && !is_kept(1 << 50));
    }
}
