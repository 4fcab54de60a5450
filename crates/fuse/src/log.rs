//! The request log: one line a read request, in the order of completion.
//!
//! ```text
//!   arrival_us  completion_us  file     offset  bytes        tab-separated; microseconds since the mount
//!   104233      135691         big/000  0       131072
//! ```
//!
//! A log that cannot be written is no reason to break the mount: we say so once and go on without.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

/// A buffered log file; the last lines reach the file on [`flush`](Self::flush) and at the end.
pub(crate) struct RequestLog {
    path: PathBuf,
    /// Gone after the first error.
    out: Option<BufWriter<File>>,
}

impl RequestLog {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        Ok(Self { path: path.into(), out: Some(BufWriter::with_capacity(1 << 16, file)) })
    }

    pub(crate) fn line(&mut self, arrival_us: u64, completion_us: u64, file: &Path, offset: u64, bytes: u64) {
        let name = file.display().to_string().replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n");
        self.attempt(|out| writeln!(out, "{arrival_us}\t{completion_us}\t{name}\t{offset}\t{bytes}"));
    }

    pub(crate) fn flush(&mut self) {
        self.attempt(|out| out.flush());
    }

    /// Starts the log anew; a log that is a pipe only goes on.
    pub(crate) fn reset(&mut self) {
        self.attempt(|out| {
            out.flush()?;
            if out.get_ref().metadata()?.is_file() {
                out.get_mut().set_len(0)?;
                out.get_mut().rewind()?;
            }
            Ok(())
        });
    }

    fn attempt(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let Some(out) = &mut self.out else { return };
        if let Err(error) = write(out) {
            eprintln!(
                "bowwave: cannot write the request log {}: {error}; going on without",
                self.path.display()
            );
            if let Some(out) = self.out.take() {
                // Not flushed again on drop, which would fail again.
                let _ = out.into_parts();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_ends_the_log_and_nothing_else() {
        let mut log = RequestLog::create(Path::new("/dev/full")).unwrap();
        log.line(1, 2, Path::new("a"), 0, 4096);
        log.flush();
        assert!(log.out.is_none());
        log.line(3, 4, Path::new("a"), 4096, 4096);
        log.reset();
    }
}
