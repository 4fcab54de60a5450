//! `bowwave lab`: the policies of every era and ours, in virtual time against modelled devices.
//!
//! A file a verb: `tables` runs the seeds' tables again, `sweep` plays every
//! policy on every device, `replay` your own reads, `judge` asks the running kernel, `swarm` draws worlds and judges them. Nothing here reads a clock but to say how long it took.

mod explained;
pub(crate) mod judge;
pub(crate) mod page;
pub(crate) mod replay;
pub(crate) mod swarm;
pub(crate) mod sweep;
pub(crate) mod tables;

use super::failure::{Failure, exit_code};
use std::process::ExitCode;

/// Readahead in virtual time: published tables, every policy on every device, your own reads, the kernel as judge.
///
/// The core that decides here is the one that ships; devices, memory and programs are models. The same command prints the same
/// figures on every machine.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Tables(tables::Args),
    Sweep(sweep::Args),
    Replay(replay::Args),
    Judge(judge::Args),
    Swarm(swarm::Args),
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    match args.verb {
        Verb::Tables(args) => Ok(exit_code("lab tables", tables::main(&args))),
        Verb::Sweep(args) => Ok(exit_code("lab sweep", sweep::main(&args))),
        Verb::Replay(args) => Ok(exit_code("lab replay", replay::main(&args))),
        Verb::Judge(args) => Ok(ended("lab judge", judge::main(&args))),
        Verb::Swarm(args) => Ok(ended("lab swarm", swarm::main(&args))),
    }
}

/// As [`exit_code`], where a verdict has a code of its own.
fn ended(command: &str, outcome: Result<ExitCode, Failure>) -> ExitCode {
    outcome.unwrap_or_else(|failure| exit_code(command, Err(failure)))
}

/// The world numbers its frames with 32 bits: 16 TiB.
const MEMORY_MIB_MAX: u64 = (1 << 24) - 1;

fn memory(text: &str) -> Result<u64, String> {
    let mib = text.parse().ok().filter(|mib| (1..=MEMORY_MIB_MAX).contains(mib));
    mib.ok_or_else(|| format!("give MiB from 1 to {MEMORY_MIB_MAX}"))
}
