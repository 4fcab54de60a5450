//! A memory cgroup for patterns about scarce memory: the whole arm, whatever steers it included, lives in it.

use super::undo::{Guard, Undo};
use crate::cmd::failure::{Failure, UNAVAILABLE};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cgroup that is removed with this value.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    processes: PathBuf,
    _guard: Guard,
}

impl MemoryGroup {
    /// A new group that may use `bytes` of memory, page cache included.
    pub(crate) fn new(bytes: u64) -> Result<Self, Failure> {
        let no = |path: &Path, error: &std::io::Error| {
            let sentence = format!(
                "cannot limit memory to {} MB with {}: {error}; patterns in scarce memory need root",
                bytes / 1_000_000,
                path.display()
            );
            Failure::new(UNAVAILABLE, sentence)
        };
        let root = Path::new("/sys/fs/cgroup");
        let first = root.join("memory/memory.limit_in_bytes").exists();
        let name = format!("bowwave-bench-{}", std::process::id());
        let (dir, limit) = if first {
            (root.join("memory").join(name), "memory.limit_in_bytes")
        } else {
            // Version 2: children get the controller only if their parent hands it on. It often does already.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            (root.join(name), "memory.max")
        };
        fs::create_dir(&dir).map_err(|error| no(&dir, &error))?;
        let guard = Guard::new(Undo::RemoveDir(dir.clone()));
        let limit = dir.join(limit);
        fs::write(&limit, bytes.to_string()).map_err(|error| no(&limit, &error))?;
        if !first {
            // No swapping instead of reclaim; a system without swap has no such file.
            let _ = fs::write(dir.join("memory.swap.max"), "0");
        }
        Ok(Self { processes: dir.join("cgroup.procs"), _guard: guard })
    }

    /// Makes `command` start inside the group.
    pub(crate) fn enclose(&self, command: &mut Command) {
        use std::os::unix::ffi::OsStrExt;
        let path =
            std::ffi::CString::new(self.processes.as_os_str().as_bytes()).expect("no zero in our path");
        let enter = move || {
            // SAFETY: between fork and exec only async-signal-safe calls, on memory made before.
            unsafe {
                let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                if fd < 0 || libc::write(fd, c"0".as_ptr().cast(), 1) != 1 {
                    return Err(std::io::Error::last_os_error());
                }
                libc::close(fd);
            }
            Ok(())
        };
        // SAFETY: see above.
        unsafe { command.pre_exec(enter) };
    }
}
