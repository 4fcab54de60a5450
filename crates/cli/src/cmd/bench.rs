//! `bowwave bench`: plays access patterns under several kinds of readahead, and judges each by the yardsticks.
//!
//! ```text
//!   patterns x devices x arms, N times in turn ─> a cell each, from cold ─> tables on stdout, all raw in a JSON file
//!
//!   $ bowwave bench il32_1fd sparse_8k --device s3 --arm off,128k,bowwave
//! ```
//!
//! It leaves nothing behind: no mount, no cgroup, no changed window; not on Ctrl-C and not on a panic either.

pub(super) mod arm;
pub(super) mod cell;
mod memory;
pub(super) mod place;
pub(super) mod player;
mod show;
mod thrash;
pub(super) mod undo;
pub(super) mod verdict;

use super::amount::amount;
use super::failure::{DATA, Failure, IO_ERROR, OS_ERROR, USAGE, exit_code};
use super::out::{print, writable, write_file};
use arm::{Arm, Ground};
use bowwave_lab::{DeviceModel, Params, Pattern, Set, catalogue, find, mixtures, published, scarce};
use cell::{Cell, Run};
use indicatif::{ProgressBar, ProgressStyle};
use place::Place;
use player::Spec;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Play access patterns under several kinds of readahead, and judge them.
///
/// PATTERN is a name from --list, a name with an asterisk at its end, composed:SEED for a drawn mixture, ordered:SEED for
/// reads in a drawn order of their own, or one of the groups published (the default), regular, mixtures, scarce, all.
/// NAME+think adds think time: as long as the device needs to transfer what is used.
///
/// Arms: off (every descriptor advised as random), a window of the kernel's readahead (0k, 128k, 512k, 1m, 8m), cat (the
/// files' used spans are read first), bowwave, bowwave-user (without what only root can do), mount (the files through bowwave
/// mount), mount-direct (past the kernel's page cache), mount-128k (with that window of the kernel's).
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Patterns to play
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Print the patterns' definitions and parameters, and which are regular
    #[arg(long)]
    list: bool,
    /// Play in this directory: a mounted slow store, or any; files are made in it where they are missing
    #[arg(long, value_name = "DIR")]
    on: Option<PathBuf>,
    /// Mount a slow store at this pace for the bench (with --on: judge by this device); may be repeated [default: s3]
    #[arg(long, value_name = "MODEL")]
    device: Vec<String>,
    /// Arms, by commas or repeated
    #[arg(long = "arm", value_name = "ARM", value_delimiter = ',', default_value = "128k,bowwave")]
    arms: Vec<Arm>,
    /// Parameters: published, or drawn:SEED for a fresh set
    #[arg(long, value_name = "SET", default_value = "published")]
    set: Set,
    /// Seed of the patterns' own random choices [default: 1, or from the drawn set]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Set a parameter by hand, in every pattern that has it (see --list); sizes may end in K, M or G
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    parameters: Vec<(String, u64)>,
    /// Share of the published volume to read
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = volume)]
    volume: f64,
    /// Play every arm so many times, in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pairs: u64,
    /// Compare the other arms with this one, pair by pair
    #[arg(long, value_name = "ARM")]
    against: Option<Arm>,
    /// Start no read later than this in a run; runs stopped so are marked
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = seconds)]
    cap: f64,
    /// Write every run, raw, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the decisions of the last bowwave run or mount to this file, for `bowwave explain`
    #[arg(long, value_name = "FILE")]
    explain: Option<PathBuf>,
    /// Name of the state of the program, kept in the JSON
    #[arg(long, value_name = "TEXT")]
    commit: Option<String>,
}

/// One pattern as it is to be played.
struct Entry {
    pattern: Pattern,
    think: bool,
}

/// The player: makes the reads of a plan (used by bench)
#[derive(clap::Args)]
pub(crate) struct PlayArgs {
    /// The plan's specification, as JSON
    spec: String,
}

pub(crate) fn play(args: PlayArgs) -> anyhow::Result<ExitCode> {
    Ok(exit_code("bench-play", player::main(&args.spec)))
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    Ok(exit_code("bench", run(&args)))
}

fn run(args: &Args) -> Result<(), Failure> {
    let entries = entries(&args.patterns)?;
    fit(args, &entries)?;
    if args.list {
        let patterns: Vec<Pattern> = entries.into_iter().map(|entry| entry.pattern).collect();
        return print(show::list(&patterns, &params(args)));
    }
    check(args, &entries)?;
    [&args.json, &args.explain].into_iter().flatten().try_for_each(|path| writable(path))?;
    undo::install();
    let exe = std::env::current_exe()
        .map_err(|error| Failure::new(OS_ERROR, format!("cannot find this program's own file: {error}")))?;
    let mut bench =
        Bench { args, exe: &exe, begun: Instant::now(), runs: Vec::new(), bar: bar(args, &entries) };
    let outcome = bench.everywhere(&entries);
    bench.bar.finish_and_clear();
    let printed = match bench.runs.is_empty() {
        true => Ok(()),
        false => print(show::tables(&bench.runs, args.against.map(|arm| arm.to_string()).as_deref())),
    };
    let kept = bench.keep();
    outcome.and(kept).and(bench.verdict()).and(printed)
}

/// What is played, where, and what came of it so far.
struct Bench<'a> {
    args: &'a Args,
    exe: &'a Path,
    begun: Instant,
    runs: Vec<Run>,
    bar: ProgressBar,
}

impl Bench<'_> {
    fn everywhere(&mut self, entries: &[Entry]) -> Result<(), Failure> {
        if let Some(dir) = &self.args.on {
            let model = self.args.device.first().map(|text| model(text)).transpose()?;
            let mut place = Place::on(dir, model)?;
            let name = place.model.map_or("directory".to_string(), name_of);
            return self.at(&mut place, &name, entries, Ground::SlowStore);
        }
        let default = vec!["s3".to_string()];
        for text in if self.args.device.is_empty() { &default } else { &self.args.device } {
            for ground in grounds(&self.args.arms) {
                let mut place = Place::mount_on(self.exe, text, ground)?;
                self.at(&mut place, text, entries, ground)?;
            }
        }
        Ok(())
    }

    /// Plays the arms whose files lie on this ground.
    fn at(
        &mut self,
        place: &mut Place,
        device: &str,
        entries: &[Entry],
        ground: Ground,
    ) -> Result<(), Failure> {
        let here = |arm: &Arm| ground.is_like(arm.ground());
        let arms: Vec<Arm> = self.args.arms.iter().copied().filter(here).collect();
        for entry in entries {
            let spec = self.spec(place, entry)?;
            let plan = spec.plan()?;
            place.make_files(&plan)?;
            for pair in 0..self.args.pairs {
                // Each pair begins with another arm, so that no arm always follows the same one.
                let turn = arms.iter().cycle().skip(pair as usize % arms.len());
                for &arm in turn.take(arms.len()) {
                    self.bar.set_message(format!("{} on {device}, {arm}", entry.pattern.name));
                    if matches!(ground, Ground::Mount(_)) {
                        *place = Place::mount_on(self.exe, device, arm.ground())?;
                    }
                    let spec = Spec {
                        root: place.dir.clone(),
                        verify: place.verifies(&plan),
                        random_advice: arm == Arm::Off,
                        cat_first: arm == Arm::Cat,
                        ..spec.clone()
                    };
                    let explain = self.args.explain.as_deref();
                    let cell = Cell { exe: self.exe, place, arm, spec, plan: &plan, explain };
                    let run = cell.play()?;
                    if let Some(path) = explain.filter(|_| matches!(ground, Ground::Mount(_))) {
                        let told = place.dir.join(".bowwave/explain");
                        std::fs::copy(&told, path).map_err(|error| Failure::on(&told, "copy", &error))?;
                    }
                    self.bar.inc(1);
                    self.runs.push(Run {
                        family: entry.pattern.family.to_string(),
                        regular: entry.pattern.regular,
                        device: device.to_string(),
                        pair,
                        at_s: self.begun.elapsed().as_secs_f64(),
                        ..run
                    });
                }
            }
        }
        Ok(())
    }

    fn spec(&self, place: &Place, entry: &Entry) -> Result<Spec, Failure> {
        let params = params(self.args);
        let think_ns_per_mib = match (entry.think, place.model) {
            (false, _) => 0,
            (true, Some(model)) => (1_u64 << 20) * 1_000_000_000 / model.bytes_per_s.max(1),
            (true, None) => {
                let sentence = format!(
                    "{}+think needs a device to think as long as its transfer takes: give --device",
                    entry.pattern.name
                );
                return Err(Failure::new(USAGE, sentence));
            }
        };
        Ok(Spec {
            pattern: entry.pattern.name.clone(),
            set: params.set.to_string(),
            seed: params.seed,
            volume: params.volume,
            think_ns_per_mib,
            options: params.options,
            root: place.dir.clone(),
            cap_ns: (self.args.cap * 1e9) as u64,
            verify: true,
            random_advice: false,
            cat_first: false,
        })
    }

    /// Writes the JSON file, if one is wanted.
    fn keep(&self) -> Result<(), Failure> {
        let Some(path) = &self.args.json else { return Ok(()) };
        let document = json!({
            "command": std::env::args().collect::<Vec<_>>(),
            "version": env!("CARGO_PKG_VERSION"),
            "commit": self.args.commit,
            "machine": machine(),
            "seconds": self.begun.elapsed().as_secs_f64(),
            "runs": self.runs,
        });
        let text = serde_json::to_vec_pretty(&document).expect("plain data");
        write_file(path, text)
    }

    /// Whether every read of every run was right.
    fn verdict(&self) -> Result<(), Failure> {
        let bad = self.runs.iter().find(|run| run.report.wrong + run.report.errors > 0);
        bad.map_or(Ok(()), |run| {
            let code = if run.report.wrong > 0 { DATA } else { IO_ERROR };
            let words = run.report.first_error.as_deref().unwrap_or("no reason given");
            let sentence = format!(
                "{} under {} on {}: {} reads wrong, {} failed; the first: {words}",
                run.pattern, run.arm, run.device, run.report.wrong, run.report.errors
            );
            Err(Failure::new(code, sentence))
        })
    }
}

/// What the files of these arms lie on, one of each kind.
fn grounds(arms: &[Arm]) -> Vec<Ground> {
    let mut grounds: Vec<Ground> = Vec::new();
    for ground in arms.iter().map(|arm| arm.ground()) {
        if !grounds.iter().any(|known| known.is_like(ground)) {
            grounds.push(ground);
        }
    }
    grounds
}

fn name_of(model: DeviceModel) -> String {
    model.name().map_or_else(|| model.to_string(), str::to_string)
}

fn model(text: &str) -> Result<DeviceModel, Failure> {
    text.parse().map_err(|error| Failure::new(USAGE, error))
}

/// Refuses what cannot work before anything is mounted.
fn check(args: &Args, entries: &[Entry]) -> Result<(), Failure> {
    for text in &args.device {
        model(text)?;
    }
    if let Some(against) = args.against.filter(|against| !args.arms.contains(against)) {
        let sentence = format!("cannot compare with {against}: it is not played; add it to --arm");
        return Err(Failure::new(USAGE, sentence));
    }
    let decides = |arm: &Arm| arm.is_bowwave() || matches!(arm, Arm::Mount(_));
    if args.explain.is_some() && !args.arms.iter().any(decides) {
        let sentence = "--explain needs an arm that decides: bowwave, bowwave-user or mount";
        return Err(Failure::new(USAGE, sentence));
    }
    let known = |name: &str| {
        let plain = Params::published();
        entries
            .iter()
            .any(|entry| entry.pattern.options(&plain).is_ok_and(|options| options.contains_key(name)))
    };
    match args.parameters.iter().find(|(name, _)| !known(name)) {
        Some((name, _)) => {
            let sentence =
                format!("none of these patterns has a parameter '{name}': see bowwave bench --list");
            Err(Failure::new(USAGE, sentence))
        }
        None => Ok(()),
    }
}

/// Whether what was set by hand makes a plan of each pattern.
fn fit(args: &Args, entries: &[Entry]) -> Result<(), Failure> {
    let params = params(args);
    let set_by_hand = if args.parameters.is_empty() { &[] } else { entries };
    for Entry { pattern, .. } in set_by_hand {
        pattern.plan(&params).map_err(|misfit| {
            let name = &pattern.name;
            Failure::new(USAGE, format!("cannot play {name} so: {misfit}; see bowwave bench --list"))
        })?;
    }
    Ok(())
}

fn params(args: &Args) -> Params {
    let base = match args.set {
        Set::Published => Params::published(),
        Set::Drawn(seed) => Params::drawn(seed),
    };
    Params {
        seed: args.seed.unwrap_or(base.seed),
        volume: args.volume,
        options: args.parameters.iter().cloned().collect::<BTreeMap<_, _>>(),
        ..base
    }
}

/// The patterns that the words of the command line name, in their order, each once.
fn entries(words: &[String]) -> Result<Vec<Entry>, Failure> {
    let mut entries: Vec<Entry> = Vec::new();
    let default = vec!["published".to_string()];
    for word in if words.is_empty() { &default } else { words } {
        let (name, think) = word.strip_suffix("+think").map_or((word.as_str(), false), |name| (name, true));
        let patterns = match name {
            "published" => published(),
            "regular" => published().into_iter().filter(|pattern| pattern.regular).collect(),
            "mixtures" => mixtures(),
            "scarce" => scarce(),
            "all" => catalogue(),
            _ => match name.strip_suffix('*') {
                Some(start) => {
                    catalogue().into_iter().filter(|pattern| pattern.name.starts_with(start)).collect()
                }
                None => find(name).into_iter().collect(),
            },
        };
        if patterns.is_empty() {
            let drawn = ["composed", "ordered"].iter().find(|kind| name.split(':').next() == Some(*kind));
            let advice = match drawn {
                Some(kind) => format!("write {kind}:SEED, where SEED is a number"),
                None => "see bowwave bench --list all".to_string(),
            };
            return Err(Failure::new(USAGE, format_args!("no pattern '{word}': {advice}")));
        }
        for pattern in patterns {
            if !entries.iter().any(|entry| entry.pattern.name == pattern.name && entry.think == think) {
                entries.push(Entry { pattern, think });
            }
        }
    }
    Ok(entries)
}

fn bar(args: &Args, entries: &[Entry]) -> ProgressBar {
    let places = if args.on.is_some() { 1 } else { args.device.len().max(1) };
    let cells = entries.len() as u64 * args.pairs * args.arms.len() as u64 * places as u64;
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {elapsed} (about {eta} left)  {msg}")
        .expect("a fixed template");
    ProgressBar::new(cells).with_style(style)
}

fn machine() -> serde_json::Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = read("/proc/meminfo").lines().next().unwrap_or_default().to_string();
    let cpu = read("/proc/cpuinfo");
    let cpu = cpu.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "cpus": cpus,
        "cpu": cpu.split(':').next_back().unwrap_or_default().trim(),
        "memory": memory,
        // SAFETY: takes and touches nothing.
        "root": unsafe { libc::geteuid() } == 0,
    })
}

/// `NAME=VALUE`, the value a number with or without a unit.
fn parameter(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let number = amount(value).ok_or_else(|| format!("{value:?} is no number; write 12, 64K or 1G"))?;
    Ok((name.to_string(), number))
}

pub(super) fn volume(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().map_err(|error| error.to_string())?;
    if share > 0.0 && share <= 4.0 {
        Ok(share)
    } else {
        Err("give a share above 0 and at most 4".to_string())
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    if seconds > 0.0 && seconds < 1e6 { Ok(seconds) } else { Err("give seconds above 0".to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_patterns() {
        let names = |words: &[&str]| -> Result<Vec<String>, u8> {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            let entries = entries(&words).map_err(|failure| failure.code)?;
            Ok(entries
                .into_iter()
                .map(|entry| format!("{}{}", entry.pattern.name, if entry.think { "+think" } else { "" }))
                .collect())
        };
        assert_eq!(names(&[]).unwrap().len(), 38);
        assert_eq!(names(&["rev_*", "rev_4k"]).unwrap(), ["rev_4k", "rev_64k", "rev_1m"]);
        assert_eq!(names(&["seq_1m", "seq_1m+think"]).unwrap(), ["seq_1m", "seq_1m+think"]);
        assert_eq!(names(&["composed:7"]).unwrap(), ["composed:7"]);
        assert_eq!(names(&["il7"]), Err(USAGE));
    }

    #[test]
    fn parameters_have_units() {
        assert_eq!(parameter("block=64K").unwrap(), ("block".to_string(), 65536));
        assert_eq!(parameter("streams=12").unwrap(), ("streams".to_string(), 12));
        assert!(parameter("block").is_err() && parameter("block=K").is_err());
    }

    #[test]
    fn a_parameter_is_its_name_and_number() {
        let corpus = ["block=64K", "streams=12", "x=1=2M", "a\u{e9}=3g"];
        bowwave_fuzz::fuzz_text("a parameter", &corpus, |text| {
            let Ok((name, number)) = parameter(text) else { return };
            assert!(text.starts_with(&name));
            assert_eq!(parameter(&format!("{name}={number}")), Ok((name, number)));
        });
    }
}
