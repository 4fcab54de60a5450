//! Plays the scenes: in real time on mounted slow stores, or in virtual time on the same device models.

use super::super::bench::arm::Arm;
use super::super::bench::cell::{Cell, Run};
use super::super::bench::place::Place;
use super::super::bench::player::Spec;
use super::super::bench::undo::stopped;
use super::super::bench::verdict::Figures;
use super::scenes::{SCENES, Scene};
use super::{ArmFigures, Row, interrupted};
use crate::cmd::failure::{Failure, SOFTWARE};
use bowwave_core::{Bytes, Config, PageCount};
use bowwave_lab::{DeviceModel, Fetcher, Params, Yardsticks, find, play as play_plan};
use bowwave_steer::Line;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell as Counter;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;

/// The arms of every scene, in the order of play.
pub(super) const ARMS: [Arm; 5] = [Arm::Off, Arm::Window(128), Arm::Window(8192), Arm::Cat, Arm::Bowwave];

/// Why no slow store can be mounted here, in a few words.
pub(super) fn why_not(exe: &Path) -> Option<String> {
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse".to_string());
    }
    // SAFETY: takes and touches nothing.
    if unsafe { libc::geteuid() } != 0 {
        return Some("the arms set the kernel's window, which only root may".to_string());
    }
    match Place::mount(exe, SCENES[0].device).and_then(|place| place.set_window(128)) {
        Ok(()) => None,
        Err(failure) => Some(failure.sentence),
    }
}

/// All scenes on mounted slow stores, one mount a device.
pub(super) fn play(exe: &Path, cap_s: f64, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut places: BTreeMap<&str, Place> = BTreeMap::new();
    let mut rows = Vec::new();
    for scene in &SCENES {
        if !places.contains_key(scene.device) {
            places.insert(scene.device, Place::mount(exe, scene.device)?);
        }
        rows.push(on_stage(exe, &places[scene.device], scene, cap_s, progress)?);
    }
    Ok(rows)
}

fn on_stage(
    exe: &Path,
    place: &Place,
    scene: &Scene,
    cap_s: f64,
    progress: &Progress,
) -> Result<Row, Failure> {
    let params = Params { volume: scene.volume, ..Params::published() };
    let decisions = tempfile::NamedTempFile::new()
        .map_err(|error| Failure::on(&std::env::temp_dir(), "make a file in", &error))?;
    let mut arms = Vec::new();
    for arm in ARMS {
        if stopped() {
            return Err(interrupted());
        }
        progress.begin(scene, &arm.to_string());
        let spec = Spec {
            pattern: scene.pattern.to_string(),
            set: params.set.to_string(),
            seed: params.seed,
            volume: params.volume,
            think_ns_per_mib: 0,
            options: params.options.clone(),
            root: place.dir.clone(),
            cap_ns: (cap_s * 1e9) as u64,
            verify: true,
            random_advice: arm == Arm::Off,
            cat_first: arm == Arm::Cat,
        };
        let plan = spec.plan()?;
        let explain = (arm == Arm::Bowwave).then(|| decisions.path());
        let run = Cell { exe, place, arm, spec, plan: &plan, explain }
            .play()
            .map_err(|failure| if stopped() { interrupted() } else { failure })?;
        let figures = figures(&run);
        progress.end_of_run(scene, &figures);
        arms.push(figures);
    }
    let text = std::fs::read_to_string(decisions.path()).unwrap_or_default();
    Ok(row(scene, arms, windows(&text)))
}

fn figures(run: &Run) -> ArmFigures {
    let figures = Figures::of(run);
    // A `cat` that was stopped left no reads to judge; its time holds against all of them.
    let at_most = run.report.bytes == 0;
    ArmFigures {
        arm: run.arm.clone(),
        seconds: figures.seconds,
        mb_per_s: figures.mb_per_s,
        share: figures.online.unwrap_or(0.0),
        at_most,
        fetched_per_used: figures.fetched_per_used.filter(|_| !at_most),
        requests: figures.requests,
        p99_us: Some(figures.p99_us),
        capped: figures.capped,
        failed: figures.failed || run.exit_code != Some(0),
    }
}

/// The windows of a file of decisions: seconds, pages.
fn windows(text: &str) -> Vec<(f64, u64)> {
    let decisions = text.lines().filter_map(|line| match Line::parse(line) {
        Ok(Some(Line::Decision(decision))) => Some(decision),
        _ => None,
    });
    decisions
        .map(|decision| (decision.at_ns as f64 / 1e9, decision.window.1 - decision.window.0))
        .filter(|&(_, pages)| pages > 0)
        .collect()
}

fn row(scene: &Scene, arms: Vec<ArmFigures>, windows: Vec<(f64, u64)>) -> Row {
    let Scene { title, about, pattern, device, .. } = *scene;
    Row { title, about, pattern, device, arms, windows }
}

/// All scenes in virtual time: nobody fetching ahead, and the brain that ships.
pub(super) fn play_virtually(progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for scene in &SCENES {
        let unknown = || Failure::new(SOFTWARE, format_args!("no pattern {}", scene.pattern));
        let pattern = find(scene.pattern).ok_or_else(unknown)?;
        let plan = pattern
            .plan(&Params { volume: scene.volume, ..Params::published() })
            .expect("none is set by hand");
        let model: DeviceModel = scene.device.parse().map_err(|error| Failure::new(SOFTWARE, error))?;
        let bounds = Yardsticks::of(&plan, &model);
        // What root's driver can do: requests of 1 MiB.
        let config = Config { memory: Bytes(1 << 30), request_max: PageCount(256), ..Config::default() };
        let (mut arms, mut seen) = (Vec::new(), Vec::new());
        for (name, fetcher) in [("off", Fetcher::Nobody), ("bowwave", Fetcher::Wave(config))] {
            if stopped() {
                return Err(interrupted());
            }
            progress.begin(scene, name);
            let outcome = play_plan(&plan, &model, fetcher, true);
            let seconds = (outcome.elapsed.0 as f64 / 1e9).max(1e-9);
            let figures = ArmFigures {
                arm: name.to_string(),
                seconds,
                mb_per_s: bounds.useful_bytes as f64 / seconds / 1e6,
                share: bounds.online_ns as f64 / 1e9 / seconds,
                at_most: false,
                fetched_per_used: Some(outcome.fetched_bytes as f64 / bounds.useful_bytes.max(1) as f64),
                requests: Some(outcome.requests as f64),
                p99_us: None,
                capped: false,
                failed: false,
            };
            progress.end_of_run(scene, &figures);
            arms.push(figures);
            seen = outcome.decisions.iter().filter_map(|line| virtual_window(line)).collect();
        }
        rows.push(row(scene, arms, seen));
    }
    Ok(rows)
}

/// Seconds and pages of one of the lab's lines: `  30.1ms f0 read [..) initial [..) size=8 ...`.
fn virtual_window(line: &str) -> Option<(f64, u64)> {
    let ms: f64 = line.trim_start().split_once("ms")?.0.parse().ok()?;
    let pages = line.split_once(" size=")?.1.split_whitespace().next()?.parse().ok()?;
    (pages > 0).then_some((ms / 1e3, pages))
}

/// How far it is: a bar on a terminal, a line a run elsewhere.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    done: Counter<usize>,
    runs: usize,
}

impl Progress {
    pub(super) fn new(runs: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = "{bar:30} {pos}/{len}  {elapsed} (about {eta} left)  {msg}";
            let style = ProgressStyle::with_template(template).expect("a fixed template");
            ProgressBar::new(runs as u64).with_style(style)
        });
        Self { bar, done: Counter::new(0), runs }
    }

    pub(super) fn say(&self, sentence: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("bowwave demo: {sentence}")),
            None => eprintln!("bowwave demo: {sentence}"),
        }
    }

    fn begin(&self, scene: &Scene, arm: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} on {}, {arm}", scene.title, scene.device));
        }
    }

    fn end_of_run(&self, scene: &Scene, figures: &ArmFigures) {
        self.done.set(self.done.get() + 1);
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => eprintln!(
                "{:>2}/{}  {:<18} {:<4} {:<8} {:>8.1} MB/s  {:>3.0} % of the bound{}",
                self.done.get(),
                self.runs,
                scene.title,
                scene.device,
                figures.arm,
                figures.mb_per_s,
                figures.share * 100.0,
                match (figures.at_most, figures.capped) {
                    (true, _) => "  ~ stopped before its first read: at most this",
                    (_, true) => "  ~",
                    _ => "",
                }
            ),
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
