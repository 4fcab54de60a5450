//! `bowwave slow`: a directory, or generated files, at a modelled device's pace.

use std::process::ExitCode;

/// Serve a directory, or generated files, at a modelled device's pace.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn main(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
