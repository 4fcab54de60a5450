//! Where a command's words and files go, and what becomes of those that cannot be written.

use super::failure::{CANNOT_CREATE, Failure, IO_ERROR};
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes to standard output, all of it.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    printed(write!(out, "{text}").and_then(|()| out.flush()))
}

/// What came of writing to standard output. Who reads no further (`| head`) has what he wanted: there is nothing left to say, and
/// nothing wrong.
pub(crate) fn printed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(IO_ERROR, format_args!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Refuses a file that cannot be written before time is spent on what belongs into it; leaves nothing behind.
pub(crate) fn writable(path: &Path) -> Result<(), Failure> {
    let there = fs::metadata(path).ok();
    // A reader of a pipe would take the try for the end.
    if there.as_ref().is_some_and(|there| !there.is_file() && !there.is_dir()) {
        return Ok(());
    }
    let new = there.is_none();
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened
        .and_then(|_| if new { fs::remove_file(path) } else { Ok(()) })
        .map_err(|error| cannot_write(path, &error))
}

/// Writes a whole file.
pub(crate) fn write_file(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let advice = advice(error);
    Failure::new(CANNOT_CREATE, format_args!("cannot write {}: {error}; {advice}", path.display()))
}

/// What to do about a file that cannot be made or written.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there, or name a file elsewhere"
        }
        io::ErrorKind::FileTooLarge => "raise the limit of file sizes (ulimit -f)",
        _ => "name a file in a directory that you may write to",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_named_and_what_to_do() {
        let told = |name: &str| write_file(Path::new(name), [0]).unwrap_err().sentence;
        let full = "cannot write /dev/full: No space left on device (os error 28); make room there, or name a file elsewhere";
        assert_eq!(told("/dev/full"), full);
        assert!(told("/no/such/out").ends_with("; name a file in a directory that you may write to"));
    }
}
