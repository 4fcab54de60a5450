//! `bowwave lab`: the policies of every era and ours, in virtual time against modelled devices.
//!
//! A file a verb: `tables` runs the seeds' tables again, `sweep` plays every
//! policy on every device, `replay` your own reads, `judge` asks the running kernel, `swarm` draws worlds and judges them. Nothing here reads a clock but to say how long it took.

pub(crate) mod judge;
pub(crate) mod page;
pub(crate) mod replay;
pub(crate) mod swarm;
pub(crate) mod sweep;
pub(crate) mod tables;

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
        Verb::Tables(args) => tables::main(&args),
        Verb::Sweep(args) => sweep::main(&args),
        Verb::Replay(args) => replay::main(&args),
        Verb::Judge(args) => judge::main(&args),
        Verb::Swarm(args) => swarm::main(&args),
    }
}
