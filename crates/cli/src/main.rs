//! The `bowwave` command: parses, hands on, prints. No decision lives here.

/// As the standard one, but who does not listen any more is no reason to end in another way.
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod cmd;

use clap::{Parser, Subcommand};
use cmd::failure::{SOFTWARE, USAGE};
use std::process::ExitCode;

/// Readahead without the number.
///
/// bowwave sees how each file is really read and fetches just far enough ahead, for any program on any slow disk,
/// network mount or bucket, with nothing to tune.
#[derive(Parser)]
#[command(name = "bowwave", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(cmd::demo::Args),
    Doctor(cmd::doctor::Args),
    Run(cmd::run::Args),
    Mount(cmd::mount::Args),
    Stat(cmd::stat::Args),
    Slow(cmd::slow::Args),
    Bench(cmd::bench::Args),
    Explain(cmd::explain::Args),
    Lab(cmd::lab::Args),
    #[command(hide = true)]
    BenchPlay(cmd::bench::PlayArgs),
    #[command(hide = true)]
    DoctorPlay(cmd::doctor::JobArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(cmd::mount::as_helper(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(said) => {
            // Help and version are no error, and nobody need hear them to the end.
            let _ = said.print();
            return if said.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let outcome = match cli.command {
        Command::Demo(args) => cmd::demo::main(args),
        Command::Doctor(args) => cmd::doctor::main(args),
        Command::Run(args) => cmd::run::main(args),
        Command::Mount(args) => cmd::mount::main(args),
        Command::Stat(args) => cmd::stat::main(args),
        Command::Slow(args) => cmd::slow::main(args),
        Command::Bench(args) => cmd::bench::main(args),
        Command::Explain(args) => cmd::explain::main(args),
        Command::Lab(args) => cmd::lab::main(args),
        Command::BenchPlay(args) => cmd::bench::play(args),
        Command::DoctorPlay(args) => cmd::doctor::play(args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("bowwave: {error:#}");
        ExitCode::from(SOFTWARE)
    })
}
