//! `bowwave stat DIR`: what a mount has done so far. It computes nothing: the mount tells, in `.bowwave/stat` and `stats`.
//!
//! ```text
//!   $ bowwave stat /mnt/data
//!   s3://bucket/data
//!   reads                          16384  reads that the kernel asked for
//!   ...
//! ```

use super::failure::{Failure, IO_ERROR, NO_INPUT, NO_PERMISSION, exit_code};
use super::out::print;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print what a mount of bowwave has done so far.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where it is mounted
    dir: PathBuf,
    /// Print one object of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let told = told(&args.dir, if args.json { "stats" } else { "stat" });
    Ok(exit_code("stat", told.and_then(print)))
}

/// What a mount tells under this name.
pub(crate) fn told(dir: &Path, name: &str) -> Result<String, Failure> {
    fs::read_to_string(dir.join(".bowwave").join(name)).map_err(|error| {
        let dir = dir.display();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                let sentence =
                    format!("{dir} is no mount of bowwave; name the directory that bowwave mount was given");
                Failure::new(NO_INPUT, sentence)
            }
            io::ErrorKind::PermissionDenied => {
                Failure::new(NO_PERMISSION, format!("cannot read {dir}: {error}"))
            }
            _ => Failure::new(IO_ERROR, format!("cannot read {dir}: {error}")),
        }
    })
}
