//! Why a command stopped: one sentence and an exit code after sysexits.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// The command line asks for something that does not exist.
pub(crate) const USAGE: u8 = 64;
/// Input is not what it should be; a read returned bytes that the file does not hold.
pub(crate) const DATA: u8 = 65;
/// A file is missing.
pub(crate) const NO_INPUT: u8 = 66;
/// Something that is needed is not there: a mount, a cgroup.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A program of ours misbehaved.
pub(crate) const SOFTWARE: u8 = 70;
/// The system refused.
pub(crate) const OS_ERROR: u8 = 71;
/// A file could not be written.
pub(crate) const CANNOT_CREATE: u8 = 73;
/// A read failed.
pub(crate) const IO_ERROR: u8 = 74;
/// Try again: the source did not answer in time.
pub(crate) const TEMPORARY: u8 = 75;
/// We may not; only root, or the owner, may.
pub(crate) const NO_PERMISSION: u8 = 77;
/// Stopped by the user (128 + SIGINT).
pub(crate) const INTERRUPTED: u8 = 130;

/// What failed, on what, and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) sentence: String,
}

impl Failure {
    pub(crate) fn new(code: u8, sentence: impl Display) -> Self {
        Self { code, sentence: sentence.to_string() }
    }

    /// `doing` to `path` failed with `error`.
    pub(crate) fn on(path: &Path, doing: &str, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound => NO_INPUT,
            io::ErrorKind::PermissionDenied => NO_PERMISSION,
            _ => IO_ERROR,
        };
        Self::new(code, format_args!("cannot {doing} {}: {error}", path.display()))
    }
}

/// Says why `command` stopped, if it did, and with what it ends.
pub(crate) fn exit_code(command: &str, outcome: Result<(), Failure>) -> ExitCode {
    outcome.map_or_else(
        |failure| {
            eprintln!("bowwave {command}: {}", failure.sentence);
            ExitCode::from(failure.code)
        },
        |()| ExitCode::SUCCESS,
    )
}
