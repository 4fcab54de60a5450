//! `bowwave lab swarm`: worlds drawn from seeds, judged after every event; what fails is made smaller and kept.
//!
//! ```text
//!   $ bowwave lab swarm --seeds 10000
//!   10000 worlds from seed 1: what must hold held in all of them
//! ```
//!
//! An assertion of the core ends the process. So a world that is to be made smaller is played by another process of this
//! program (`--play -`), and what that one came to is all that is known of it.

use crate::cmd::failure::{Failure, IO_ERROR, OS_ERROR, USAGE};
use crate::cmd::out::{print, write_file};
use bowwave_lab::Scenario;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Worlds that are tried at most to make one smaller.
const TRIES_MAX: u32 = 3000;

/// Worlds that are played at once at most.
const JOBS_MAX: usize = 256;

/// Draw worlds from seeds and judge them after every event: right bytes, progress, bounds, demand before what is fetched ahead.
///
/// The seed picks device, memory, policy, programs and faults: requests that fail, short reads, slow spells, jitter, memory
/// pressure. A world that fails is made smaller while it still fails, and printed as a scenario that --play plays again.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many seeds; 300, or 1 if the first is named
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Play this scenario instead; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "seed"])]
    play: Option<PathBuf>,
    /// Keep what failed in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Worlds that are played at once
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
}

pub(crate) fn main(args: &Args) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.play {
        return play(path);
    }
    let count = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { 300 });
    let first = args.seed.unwrap_or(1);
    let failed = match count {
        1 => played_apart(&Scenario::drawn(first))?.map(|why| (first, why)).into_iter().collect(),
        _ => failing(first, count, args.jobs),
    };
    if failed.is_empty() {
        print(format_args!("{count} worlds from seed {first}: what must hold held in all of them\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(failed.iter().map(|(seed, why)| format!("seed {seed}: {why}\n")).collect::<String>())?;
    let (seed, _) = failed[0];
    let fails = |scenario: &Scenario| played_apart(scenario).is_ok_and(|why| why.is_some());
    let least = Scenario::drawn(seed).shrunk(TRIES_MAX, fails);
    let why = played_apart(&least)?.unwrap_or_default();
    let text = format!("# Seed {seed}. {why}\n{least}");
    match &args.keep {
        None => print(text)?,
        Some(directory) => {
            let path = directory.join(format!("seed_{seed}.txt"));
            write_file(&path, &text)?;
            print(format_args!("kept as {}\n", path.display()))?;
        }
    }
    Ok(ExitCode::FAILURE)
}

fn play(path: &Path) -> Result<ExitCode, Failure> {
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Failure::new(IO_ERROR, format_args!("cannot read standard input: {error}")))?;
    } else {
        text = std::fs::read_to_string(path).map_err(|error| Failure::on(path, "read", &error))?;
    }
    let scenario: Scenario =
        text.parse().map_err(|error| Failure::new(USAGE, format_args!("{}: {error}", path.display())))?;
    let (said, code) = match scenario.play() {
        Ok(outcome) => {
            let seconds = outcome.elapsed.0 as f64 / 1e9;
            let said = format!("what must hold held: {} reads in {seconds:.6} s", outcome.reads);
            (said, ExitCode::SUCCESS)
        }
        Err(why) => (why, ExitCode::FAILURE),
    };
    print(said + "\n")?;
    Ok(code)
}

/// What failed, by seed. An assertion of the core ends the process, and says of which seed.
fn failing(first: u64, count: u64, jobs: usize) -> Vec<(u64, String)> {
    let (next, failed) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    std::thread_local!(static SEED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let said = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let seed = SEED.get();
        eprintln!("seed {seed}: an assertion failed; `bowwave lab swarm --seed {seed}` makes it smaller");
        said(info);
    }));
    let bar = indicatif::ProgressBar::new(count);
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, JOBS_MAX) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed - first >= count {
                        return;
                    }
                    SEED.set(seed);
                    if let Err(why) = Scenario::drawn(seed).play() {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push((seed, why));
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    drop(std::panic::take_hook());
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort();
    failed
}

/// Why a scenario fails, played by a process of its own; `None` if it does not.
fn played_apart(scenario: &Scenario) -> Result<Option<String>, Failure> {
    let cannot =
        |what: &str, error: std::io::Error| Failure::new(OS_ERROR, format_args!("cannot {what}: {error}"));
    let mut child =
        Command::new(std::env::current_exe().map_err(|error| cannot("find this program", error))?)
            .args(["lab", "swarm", "--play", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| cannot("start this program again", error))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(scenario.to_string().as_bytes())
            .map_err(|error| cannot("hand over a scenario", error))?;
    }
    let out = child.wait_with_output().map_err(|error| cannot("wait for a played scenario", error))?;
    let said = if out.stdout.is_empty() { out.stderr } else { out.stdout };
    let why =
        String::from_utf8_lossy(&said).lines().find(|line| !line.trim().is_empty()).unwrap_or("").to_string();
    Ok((!out.status.success()).then_some(why))
}
