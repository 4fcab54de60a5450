//! `bowwave demo`: ten patterns on a slow store, before and after, drawn in the terminal and on one page of HTML.
//!
//! ```text
//!   ten scenes x (off | 128 KiB | 8 MiB | cat first | bowwave), each from cold ─> table, bars, page; worst row first
//! ```
//!
//! It plays with bench's own store, player and yardsticks and adds no figure of its own. Where nothing can be mounted it
//! says so and plays in virtual time, with the brain that ships.

mod page;
mod scenes;
mod stage;
mod terminal;

use super::bench::undo;
use super::failure::{DATA, Failure, INTERRUPTED, IO_ERROR, OS_ERROR, exit_code};
use super::out::{print, writable, write_file};
use scenes::SCENES;
use serde::Serialize;
use stage::Progress;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Two minutes: a slow store, ten patterns, before and after, drawn.
///
/// Plays each pattern with readahead off, under the kernel's windows of 128 KiB and 8 MiB, after a cat of the files, and
/// under bowwave. Runs longer than a few seconds are stopped and marked. Without root or /dev/fuse it plays in virtual
/// time.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the page here
    #[arg(long, value_name = "FILE", default_value = "bowwave-demo.html")]
    html: PathBuf,
    /// Write all figures here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Play in virtual time even where a slow store could be mounted
    #[arg(long = "virtual")]
    virtual_time: bool,
    /// Stop a run after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    cap: f64,
}

/// Everything that was seen: what is printed, drawn and kept is this.
#[derive(Serialize)]
struct Show {
    /// Modelled devices in virtual time, not a mount in real time.
    virtual_time: bool,
    seconds: f64,
    cap_s: f64,
    version: &'static str,
    kernel: String,
    /// Worst first.
    rows: Vec<Row>,
}

/// One scene under all arms.
#[derive(Serialize)]
struct Row {
    title: &'static str,
    about: &'static str,
    pattern: &'static str,
    device: &'static str,
    arms: Vec<ArmFigures>,
    /// Our windows: seconds since the run began, pages.
    windows: Vec<(f64, u64)>,
}

/// One scene under one arm.
#[derive(Clone, Serialize)]
struct ArmFigures {
    arm: String,
    seconds: f64,
    mb_per_s: f64,
    /// Share of the online bound.
    share: f64,
    /// A `cat` that was stopped before the first read: speed and share are what they would be, had all reads been free.
    at_most: bool,
    fetched_per_used: Option<f64>,
    requests: Option<f64>,
    p99_us: Option<f64>,
    capped: bool,
    failed: bool,
}

impl Row {
    fn ours(&self) -> Option<&ArmFigures> {
        self.arms.iter().find(|arm| arm.arm == "bowwave")
    }

    /// Our speed by that of arm `name`.
    fn by(&self, name: &str) -> Option<f64> {
        let other = self.arms.iter().find(|arm| arm.arm == name)?;
        Some(self.ours()?.mb_per_s / other.mb_per_s.max(1e-9))
    }

    /// Our speed by that of the best other arm: the smaller, the worse for us.
    fn by_best(&self) -> f64 {
        let others = self.arms.iter().filter(|arm| arm.arm != "bowwave" && !arm.at_most);
        let best = others.map(|arm| arm.mb_per_s).fold(0.0, f64::max);
        self.ours().map_or(0.0, |ours| ours.mb_per_s / best.max(1e-9))
    }
}

impl Show {
    /// The arms' names in the order of play.
    fn arms(&self) -> Vec<&str> {
        self.rows.first().map_or(Vec::new(), |row| row.arms.iter().map(|arm| arm.arm.as_str()).collect())
    }

    /// The geometric mean of an arm's shares of the online bound, as text: `0.41`, or `< 0.2` where some are limits.
    fn mean(&self, arm: &str) -> String {
        let all = || self.rows.iter().flat_map(|row| row.arms.iter().filter(|figures| figures.arm == arm));
        let shares: Vec<f64> = all().map(|figures| figures.share.max(0.001)).collect();
        let mean = super::bench::verdict::geometric_mean(&shares).unwrap_or(0.0);
        format!("{}{mean:.2}", if all().any(|figures| figures.at_most) { "< " } else { "" })
    }
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    Ok(exit_code("demo", run(&args)))
}

fn run(args: &Args) -> Result<(), Failure> {
    writable(&args.html)?;
    args.json.as_deref().map_or(Ok(()), writable)?;
    undo::install();
    let exe = std::env::current_exe()
        .map_err(|error| Failure::new(OS_ERROR, format!("cannot find this program's own file: {error}")))?;
    let begun = Instant::now();
    let why_not = if args.virtual_time { Some("as asked".to_string()) } else { stage::why_not(&exe) };
    let progress = Progress::new(SCENES.len() * if why_not.is_some() { 2 } else { stage::ARMS.len() });
    if let Some(why) = &why_not {
        progress.say(&format!("playing in virtual time, on modelled devices, without a mount: {why}"));
    }
    let played = match &why_not {
        Some(_) => stage::play_virtually(&progress),
        None => stage::play(&exe, args.cap, &progress),
    };
    progress.end();
    let mut rows = played?;
    rows.sort_by(|a, b| a.by_best().total_cmp(&b.by_best()));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let show = Show {
        virtual_time: why_not.is_some(),
        seconds: begun.elapsed().as_secs_f64(),
        cap_s: args.cap,
        version: env!("CARGO_PKG_VERSION"),
        kernel: kernel.trim().to_string(),
        rows,
    };
    write_file(&args.html, page::page(&show))?;
    print(format_args!("{}The page with the plots: {}\n", terminal::draw(&show), args.html.display()))?;
    if let Some(path) = &args.json {
        write_file(path, serde_json::to_vec_pretty(&show).expect("plain data"))?;
    }
    verdict(&show)
}

/// Whether every read of every run was right.
fn verdict(show: &Show) -> Result<(), Failure> {
    let failed = |row: &Row| row.arms.iter().find(|arm| arm.failed).map(|arm| (row.title, arm.arm.clone()));
    match show.rows.iter().find_map(failed) {
        None => Ok(()),
        Some((title, arm)) => {
            let sentence = format!("'{title}' under {arm}: reads failed or returned wrong bytes");
            Err(Failure::new(if show.virtual_time { IO_ERROR } else { DATA }, sentence))
        }
    }
}

fn interrupted() -> Failure {
    Failure::new(INTERRUPTED, "stopped; nothing is left mounted")
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.1..=600.0).contains(&seconds) { Ok(seconds) } else { Err("give 0.1 to 600 seconds".to_string()) }
}
