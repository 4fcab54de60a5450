//! `bowwave run`: one program, steered; a line about it at its end; its exit code.
//!
//! ```text
//!   $ bowwave run -- cat /mnt/slow/gen/a-268435456 > /dev/null
//!   bowwave: 1.12 s; 1.00 bytes fetched per byte used (268 MB used); 1 stream; 0 B fetched in vain
//!
//!   find CMD (127, 126) - segment and agent - start CMD with the library - wait - report - end as CMD ended
//! ```
//!
//! Nothing of ours keeps the program from running: without a segment or a library it is observed from outside where we may, else it
//! runs unsteered, and we say so.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use bowwave_steer::{
    Agent, Ended, ExplainFile, LaunchError, Options, OutsideBy, Program, Reach, Report, Selection, Steering,
    exec_unsteered, find, give_up_descriptors, install_library, outlive_file_limits, spawn,
};
use bowwave_wire::ENV_SWITCH;

use super::amount::amount;
use super::out::advice;

/// Exit codes after sysexits.
const CANNOT_CREATE: u8 = 73;
const OS_ERROR: u8 = 71;
/// A hundred pages in vain for each one used: who allows more wants no ceiling.
const WASTE_PERCENT_MAX: u32 = 10_000;
/// With less memory a run could not move; the agent takes as much in any case.
const MEMORY_MIN: u64 = 4 << 20;

/// Steer the kernel's readahead for one program, and tell at its end what it came to.
///
/// CMD runs unmodified, with its terminal, its descriptors and its exit code. Its descriptors are its alone, but for
/// stderr, which bowwave keeps open for its own line (not with --quiet). Its reads of files of 128 KiB and more are
/// watched, and the page cache is filled just far enough ahead. BOWWAVE=off in a program's environment leaves it alone.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print nothing at the end
    #[arg(long, short)]
    quiet: bool,
    /// Write what the run came to as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write every decision and its reason, a line each (bowwave explain FILE prints them, bowwave explain --rules the rules)
    #[arg(long, value_name = "FILE")]
    explain: Option<PathBuf>,
    /// Memory that pages fetched ahead may occupy (64M, 1GiB; 4M at least); never more than half of what is available
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    memory: Option<u64>,
    /// Ceiling of pages fetched in vain, for each hundred used (0 to 10000; 200 allows two for each one used); without it 15, and
    /// more where that saves longer waits
    #[arg(long, value_name = "PERCENT", value_parser = waste)]
    waste: Option<u32>,
    /// Steer only files that match (repeatable); with a slash the whole path must match, else the name
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Leave files alone that match (repeatable)
    #[arg(long, value_name = "GLOB")]
    except: Vec<String>,
    /// Observe and decide, fetch nothing
    #[arg(long)]
    dry_run: bool,
    /// Run CMD as if bowwave were not there
    #[arg(long)]
    off: bool,
    /// As root: do not raise a device's read_ahead_kb for the instant in which a descriptor of ours takes it over
    #[arg(long)]
    no_window_lending: bool,
    /// Who sees the reads: the library in the program (preload), tracepoints (outside: root, any program), or the library
    /// and, where it reaches no program of a run or has no place, and we may, tracepoints
    #[arg(long, value_enum, default_value_t = Observer::Auto)]
    observer: Observer,
    /// Leave the kernel's own readahead on beside ours
    #[arg(long, hide = true)]
    keep_kernel: bool,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Who sees the reads of a program.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Observer {
    Auto,
    Preload,
    Outside,
    /// Outside, and by BPF programs alone
    #[value(hide = true)]
    Bpf,
    /// Outside, and by perf alone
    #[value(hide = true)]
    Perf,
}

impl Observer {
    /// Who may tell from outside, if anybody shall.
    fn outside(self, reach: Reach) -> Option<OutsideBy> {
        match self {
            Self::Preload => None,
            Self::Auto => (reach != Reach::Steered).then_some(OutsideBy::Best),
            Self::Outside => Some(OutsideBy::Best),
            Self::Bpf => Some(OutsideBy::Bpf),
            Self::Perf => Some(OutsideBy::Perf),
        }
    }
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    let (name, rest) = args.command.split_first().context("no program was named; try bowwave run -- CMD")?;
    let program = match find(name, std::env::var_os("PATH").as_deref()) {
        Ok(program) => program,
        Err(error) => return Ok(cannot_launch(&error)),
    };
    let off = std::env::var_os(ENV_SWITCH).is_some_and(|switch| switch == "off");
    if args.off || off {
        return Ok(cannot_launch(&exec_unsteered(&program, rest)));
    }
    outlive_file_limits();
    let explain = match &args.explain {
        Some(path) => match ExplainFile::create(path) {
            Ok(file) => Some(file),
            Err(error) => return Ok(cannot_create(path, &error)),
        },
        None => None,
    };
    let json = match &args.json {
        Some(path) => match fs::File::create(path) {
            Ok(file) => Some((path.as_path(), file)),
            Err(error) => return Ok(cannot_create(path, &error)),
        },
        None => None,
    };
    let ended = steer(&args, &program, rest, explain, json);
    match ended {
        Ok(ended) => ended.follow(),
        Err(Failure::Launch(error)) => Ok(cannot_launch(&error)),
        Err(Failure::Wait(error)) => {
            eprintln!(
                "bowwave: cannot wait for {}: {error}; it may still be running",
                program.path.display()
            );
            Ok(ExitCode::from(OS_ERROR))
        }
    }
}

/// A command as one line of a file that is read by lines: a script given as an argument has many.
fn one_line(command: &str) -> String {
    command.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

enum Failure {
    Launch(LaunchError),
    Wait(io::Error),
}

fn steer(
    args: &Args,
    program: &Program,
    rest: &[OsString],
    explain: Option<ExplainFile>,
    json: Option<(&Path, fs::File)>,
) -> Result<Ended, Failure> {
    let (agent, no_segment) = begin(args, explain);
    let observing = Observing::by(args, program, agent.as_ref(), no_segment);
    let agent = match agent {
        Some(agent) if !observing.outside && observing.library.is_none() => {
            agent.stop();
            None
        }
        agent => agent,
    };
    let segment = agent.as_ref().and_then(Agent::segment_path);
    let library = observing.library.as_deref();
    let steering = segment.zip(library).map(|(segment, library)| Steering { segment, library });
    if let Some(agent) = agent.as_ref().filter(|_| library.is_some()) {
        agent.watch_faults();
    }
    let child = spawn(program, rest, steering.as_ref()).map_err(Failure::Launch)?;
    give_up_descriptors(!args.quiet || args.json.is_some() || args.explain.is_some());
    if let Some(agent) = &agent {
        agent.serves(child.pid());
    }
    let ended = child.wait();
    if let Some(agent) = agent {
        let Some(mut report) = agent.stop() else {
            say_unknown(args);
            return ended.map_err(Failure::Wait);
        };
        if program.reach != Reach::Steered && !observing.outside {
            *report.not_steered.entry(program.reach.words().into()).or_default() += 1;
        }
        tell(args, &report, json);
    }
    ended.map_err(Failure::Wait)
}

/// Starts the agent, and says why it has no segment to be told through, or is not there at all.
fn begin(args: &Args, explain: Option<ExplainFile>) -> (Option<Agent>, Option<String>) {
    let command: Vec<_> = args.command.iter().map(|part| part.to_string_lossy()).collect();
    let command = one_line(&command.join(" "));
    let started = Agent::start(Options {
        dry_run: args.dry_run,
        lend_windows: !args.no_window_lending,
        kernel_off: !args.keep_kernel,
        memory: args.memory,
        waste_percent: args.waste,
        selection: Selection { only: args.only.clone(), except: args.except.clone() },
        explain: explain.map(|file| (file, command)),
    });
    match started {
        Ok((agent, no_segment)) => (Some(agent), no_segment.map(|error| error.to_string())),
        Err(error) => (None, Some(error.to_string())),
    }
}

/// Who observes the program; it may be nobody.
struct Observing {
    /// Tracepoints, from outside.
    outside: bool,
    /// The library that it is started with.
    library: Option<PathBuf>,
}

impl Observing {
    /// Has the agent observe as it was asked for, or as it can, and says so where that is not the same.
    fn by(args: &Args, program: &Program, agent: Option<&Agent>, no_segment: Option<String>) -> Self {
        let installed = install_library().map_err(|error| error.to_string());
        let no_library = installed.as_ref().err().cloned().or(no_segment);
        let wanted = match args.observer {
            Observer::Auto if no_library.is_some() => Some(OutsideBy::Best),
            observer => observer.outside(program.reach),
        };
        let tried = agent.zip(wanted).map(|(agent, by)| agent.watch_outside(by));
        let outside = matches!(tried, Some(Ok(())));
        if !args.quiet {
            say_who_observes(args, no_library.as_deref(), tried);
        }
        let preload = no_library.is_none() && !(outside && args.observer != Observer::Auto);
        Self { outside, library: installed.ok().filter(|_| preload) }
    }
}

/// Why there is no library, and what came of observing from outside, if that was tried.
fn say_who_observes(args: &Args, no_library: Option<&str>, outside: Option<Result<(), String>>) {
    let asked_for = args.observer != Observer::Auto;
    match (no_library, outside) {
        (Some(why), None | Some(Err(_))) => {
            eprintln!("bowwave: {why}; running {} unsteered", args.command[0].to_string_lossy());
        }
        (Some(why), Some(Ok(()))) if !asked_for => {
            eprintln!("bowwave: {why}; observing from outside instead");
        }
        (None, Some(Err(why))) if asked_for => {
            eprintln!("bowwave: {why}; observing with the library instead");
        }
        _ => {}
    }
}

fn say_unknown(args: &Args) {
    if !args.quiet || args.json.is_some() || args.explain.is_some() {
        eprintln!("bowwave: a storage does not answer; what the run came to is not known");
    }
}

/// The line, and the JSON. Stderr may be closed by now; that is no reason to fail.
fn tell(args: &Args, report: &Report, json: Option<(&Path, fs::File)>) {
    if let Some((path, file)) = json
        && let Err(error) = write_json(file, report)
    {
        eprintln!("bowwave: cannot write {}: {error}; {}", path.display(), advice(&error));
    }
    if !args.quiet {
        let _ = writeln!(io::stderr(), "{}", report.one_line());
    }
}

fn write_json(file: fs::File, report: &Report) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)?;
    out.flush()
}

fn cannot_create(path: &Path, error: &io::Error) -> ExitCode {
    eprintln!("bowwave: cannot create {}: {error}; {}", path.display(), advice(error));
    ExitCode::from(CANNOT_CREATE)
}

fn cannot_launch(error: &LaunchError) -> ExitCode {
    eprintln!("bowwave: {error}");
    ExitCode::from(error.exit_code())
}

/// Pages fetched in vain for each hundred used.
fn waste(text: &str) -> Result<u32, String> {
    let percent = text.parse().ok().filter(|&percent| percent <= WASTE_PERCENT_MAX);
    percent.ok_or_else(|| {
        format!("{text:?} is no number of pages for each hundred used; write 15 (0 to {WASTE_PERCENT_MAX})")
    })
}

/// Memory for pages fetched ahead.
fn memory(text: &str) -> Result<u64, String> {
    let bytes = amount(text).ok_or_else(|| format!("{text:?} is no amount of memory; write 64M or 1GiB"))?;
    if bytes < MEMORY_MIN {
        return Err(format!("{text:?} is too little to fetch ahead in; give it 4M at least"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waste_is_a_number_of_pages() {
        assert_eq!(["0", "15", "200", "10000"].map(waste), [Ok(0), Ok(15), Ok(200), Ok(10_000)]);
        for text in ["abc", "", "15%", "-1", "10001"] {
            assert!(waste(text).is_err_and(|told| told.contains("write 15 (0 to 10000)")), "{text}");
        }
    }

    #[test]
    fn memory_is_4_mib_at_least() {
        assert_eq!((memory("4M"), memory("1GB")), (Ok(4 << 20), Ok(1 << 30)));
        for text in ["1M", "0", "4194303"] {
            assert!(memory(text).is_err_and(|told| told.ends_with("give it 4M at least")), "{text}");
        }
        assert!(memory("5x").is_err_and(|told| told.ends_with("write 64M or 1GiB")));
    }

    #[test]
    fn a_command_of_many_lines_is_told_in_one() {
        assert_eq!(one_line("python3 -c import os\nprint(1)"), "python3 -c import os print(1)");
    }
}
