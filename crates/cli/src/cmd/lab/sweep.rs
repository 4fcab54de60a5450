//! `bowwave lab sweep`: every policy on every pattern and device, as a share of what an oracle does.
//!
//! ```text
//!   $ bowwave lab sweep --pattern seq_64k --device s3
//!   seq_64k on s3, 1024 MiB    oracle 0.66 s = 1.02 of the bound
//!        wave  rho 0.97  eta 0.97 ...
//! ```
//!
//! `--held-out` plays other cells: settings of wave, fixed on one half of patterns, devices and seeds, judged on the other, both
//! ways.

use super::page;
use crate::cmd::failure::{Failure, USAGE};
use crate::cmd::out::{print, writable, write_file};
use bowwave_lab::{
    DeviceModel, Half, HeldOut, Params, Score, Set, SweepCell, held_out, held_out_cells, held_out_settings,
    published, sweep_brain, sweep_cell, sweep_policies,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Play every policy on every pattern and device in virtual time, as a share of an oracle.
///
/// rho is the time of the best feasible schedule over the policy's: 1 is the best that can be had. eta is the share of fetched
/// bytes that was used. The oracle may know a file's reads from its first read on; `LB` says how far below it the truth may lie.
/// Policies are the eras of Linux (a ceiling of 128 KiB; ondemand@1024 has one of 1 MiB), rules of other systems, and wave.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only patterns whose name begins so; may be given several times
    #[arg(long, value_name = "NAME")]
    pattern: Vec<String>,
    /// Only these devices; a name or a model such as lat=8ms,bw=100MB/s,head
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,
    /// Only these policies (wave is always among them)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    policy: Vec<String>,
    /// Memory in MiB; may be given several times
    #[arg(long, value_name = "MIB", default_values_t = [1024, 8], value_parser = super::memory)]
    memory: Vec<u64>,
    /// Share of each pattern's volume that is read [default: 1, what `bench` reads on a mount, in some three minutes; 0.1 with
    /// --held-out]
    #[arg(long, value_name = "SHARE", value_parser = crate::cmd::bench::volume)]
    volume: Option<f64>,
    /// Parameters of the patterns: published, or drawn:SEED
    #[arg(long, value_name = "SET", default_value_t = Set::Published)]
    set: Set,
    /// Print one line of JSON a cell
    #[arg(long)]
    json: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Fix wave's settings on half of the patterns, devices and seeds, and judge them on the other half, both ways
    #[arg(long, conflicts_with_all = ["pattern", "device", "policy", "memory", "set", "json", "html"])]
    held_out: bool,
    /// Cells that are played at once
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    if args.held_out {
        return half_and_half(args);
    }
    let devices = devices(args)?;
    let mut policies: Vec<String> = match args.policy.is_empty() {
        true => sweep_policies().into_iter().map(String::from).collect(),
        false => args.policy.clone(),
    };
    for always in ["none", "wave"] {
        if !policies.iter().any(|name| name == always) {
            policies.push(always.into());
        }
    }
    if let Some(unknown) = policies.iter().find(|name| sweep_brain(name, 256).is_none()) {
        return Err(refused(&format!(
            "there is no policy {unknown}; there are {}",
            sweep_policies().join(", ")
        )));
    }
    let chosen =
        |name: &str| args.pattern.is_empty() || args.pattern.iter().any(|p| name.starts_with(p.as_str()));
    let patterns: Vec<_> = published().into_iter().filter(|pattern| chosen(&pattern.name)).collect();
    if patterns.is_empty() {
        return Err(refused(&format!("no pattern's name begins with {}", args.pattern.join(" or "))));
    }
    args.html.as_deref().map_or(Ok(()), writable)?;
    let params = match args.set {
        Set::Published => Params::published(),
        Set::Drawn(seed) => Params::drawn(seed),
    };
    let params = Params { volume: args.volume.unwrap_or(1.0), ..params };
    let mut jobs = Vec::new();
    for pattern in &patterns {
        for (device, model) in &devices {
            for &memory in &args.memory {
                jobs.push((pattern, device, model, memory));
            }
        }
    }
    let (cells, busy) = played(&jobs, args.jobs, |(pattern, device, model, memory)| {
        sweep_cell(pattern, &params, device, model, *memory, &policies)
    });
    let text: String = match args.json {
        true => cells.iter().map(|cell| serde_json::to_string(cell).expect("plain data") + "\n").collect(),
        false => cells.iter().map(shown).chain([summary(&cells, &policies)]).collect(),
    };
    let printed = print(text);
    if !args.json {
        let reads: u64 = cells.iter().map(|cell| cell.reads).sum();
        // Not among the figures, which are the same on every machine.
        eprintln!("{}", pace(reads, busy));
    }
    if let Some(path) = &args.html {
        write_file(path, page::sweep(&summary(&cells, &policies), &cells, &policies))?;
        eprintln!("wrote {}", path.display());
    }
    printed
}

/// Plays every job, `at_once` at a time; what came of them in their order, and the time that cores spent on all of them.
pub(super) fn played<J: Sync, C: Send>(
    jobs: &[J],
    at_once: usize,
    play: impl Fn(&J) -> C + Sync,
) -> (Vec<C>, Duration) {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let bar = indicatif::ProgressBar::new(jobs.len() as u64);
    std::thread::scope(|scope| {
        for _ in 0..at_once.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { return };
                    let began = on_a_core();
                    let came = play(job);
                    let took = on_a_core().saturating_sub(began);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, came, took));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, ..)| *at);
    let busy = done.iter().map(|(.., took)| *took).sum();
    (done.into_iter().map(|(_, came, _)| came).collect(), busy)
}

/// How long this thread has had a core; nothing where the kernel does not say. Others that use the core do not count.
fn on_a_core() -> Duration {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(said.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fn pace(reads: u64, busy: Duration) -> String {
    let seconds = busy.as_secs_f64();
    if seconds <= 0.0 {
        return format!("{reads} reads simulated; this kernel does not say how long a thread has had a core");
    }
    format!("{reads} reads simulated in {seconds:.1} s of one core: {:.0} a second", reads as f64 / seconds)
}

/// The held-out check, both ways, and which half is which.
fn half_and_half(args: &Args) -> Result<(), Failure> {
    let jobs = held_out_cells(args.volume.unwrap_or(0.1));
    let (cells, _) = played(&jobs, args.jobs, |job| {
        let settings = job.settings();
        let cell = sweep_cell(&job.pattern, &job.params, job.device, &job.model, job.memory_mib, &settings);
        (job.halves, cell)
    });
    let mut text = String::new();
    for half in Half::BOTH {
        let of = || jobs.iter().filter(|job| job.halves == [half; 3]);
        let mut patterns: Vec<&str> = of().map(|job| job.pattern.name.as_str()).collect();
        let mut devices: Vec<&str> = of().map(|job| job.device).collect();
        let mut memories: Vec<String> = of().map(|job| job.memory_mib.to_string()).collect();
        patterns.dedup();
        devices.sort_unstable();
        devices.dedup();
        memories.sort_unstable();
        memories.dedup();
        let set = of().next().map(|job| job.params.set.to_string()).unwrap_or_default();
        text.push_str(&format!(
            "half {half:?}: {} cells; {}; {set}; {} MiB; {}\n",
            of().count(),
            devices.join(", "),
            memories.join(" and "),
            patterns.join(", ")
        ));
    }
    print(text + &judged_both_ways(&held_out(&cells)))
}

/// What the held-out check came to: every setting, the two choices, and the default where halves are mixed.
fn judged_both_ways(came: &HeldOut) -> String {
    let settings = held_out_settings();
    let mut text = String::from(
        "\nsetting                    half A: rho    eta     half B: rho    eta   (geometric mean of rho)\n",
    );
    for (at, (name, [a, b])) in settings.iter().zip(&came.means).enumerate() {
        let mut notes: Vec<String> = came
            .choices
            .iter()
            .filter(|choice| choice.chosen == at)
            .map(|choice| format!("chosen on {:?}", choice.made_on))
            .collect();
        if at == 0 {
            notes.insert(0, "the default".into());
        }
        text.push_str(&format!(
            "{name:<26} {:>11.3} {:>6.3} {:>15.3} {:>6.3}  {}\n",
            a.rho,
            a.eta,
            b.rho,
            b.eta,
            notes.join(", ")
        ));
    }
    for choice in &came.choices {
        let (here, there) = (choice.made_on, choice.made_on.other());
        let rho = |at: usize, half: Half| came.means[at][half as usize].rho;
        text.push_str(&format!(
            "\nfixed on {here:?}, judged on {there:?}: {}\n  rho on {here:?} {:.3} for the default's {:.3}; on {there:?} {:.3} for {:.3}; the best there has {:.3} ({})\n",
            settings[choice.chosen],
            rho(choice.chosen, here),
            rho(0, here),
            rho(choice.chosen, there),
            rho(0, there),
            rho(choice.best, there),
            settings[choice.best]
        ));
        let mut changed = choice.changed.clone();
        changed.sort_by(|a, b| (b.4 / b.3).total_cmp(&(a.4 / a.3)));
        let better = changed.iter().filter(|cell| cell.4 > cell.3).count();
        text.push_str(&format!(
            "  changed by more than 1 % on {there:?}: {better} cells for the better, {} for the worse\n",
            changed.len() - better
        ));
        for (at, (pattern, device, memory, before, after)) in changed.iter().enumerate() {
            // The five that gain most and the five that lose most.
            if at < 5 || at + 5 >= changed.len() {
                text.push_str(&format!(
                    "    {pattern} on {device}, {memory} MiB: {before:.3} -> {after:.3}\n"
                ));
            }
        }
    }
    text.push_str("\nthe default, by the halves of patterns, devices and parameters: rho, eta\n");
    for ([pattern, device, set], mean) in &came.default {
        text.push_str(&format!("  {pattern:?} {device:?} {set:?} {:>6.3} {:>6.3}\n", mean.rho, mean.eta));
    }
    text
}

fn refused(why: &str) -> Failure {
    Failure::new(USAGE, why)
}

fn devices(args: &Args) -> Result<Vec<(String, DeviceModel)>, Failure> {
    if args.device.is_empty() {
        return Ok(DeviceModel::NAMED.into_iter().map(|(name, model)| (name.to_string(), model)).collect());
    }
    let one =
        |name: &String| Ok((name.clone(), name.parse::<DeviceModel>().map_err(|e| Failure::new(USAGE, e))?));
    args.device.iter().map(one).collect()
}

fn shown(cell: &SweepCell) -> String {
    let mut text = format!(
        "{} on {}, {} MiB{}: oracle {:.3} s = {:.2} of the bound, {:.2} bytes a byte\n",
        cell.pattern,
        cell.device,
        cell.memory_mib,
        if cell.regular { "" } else { " (not regular)" },
        cell.oracle_s,
        cell.oracle_s / cell.bound_s.max(1e-9),
        cell.oracle_amplification
    );
    let mut scores: Vec<_> = cell.scores.iter().collect();
    scores.sort_by(|a, b| b.rho.total_cmp(&a.rho));
    for s in scores {
        text.push_str(&format!(
            "  {:<18} rho {:>6.3}  of bound {:>6.3}  eta {:>6.3}  {:>9.3} s  {:>8} stalls {:>8} requests  fair {:.2}  {}\n",
            s.policy,
            s.rho,
            s.of_bound,
            s.eta,
            s.seconds,
            s.stalls,
            s.requests,
            s.fairness,
            if s.policy == "wave" { "<" } else { "" }
        ));
    }
    text
}

/// How wave does where a rule could foresee.
fn foreseen(cells: &[SweepCell]) -> String {
    let regular = cells.iter().filter(|cell| cell.regular).count();
    let known: Vec<&SweepCell> = cells.iter().filter(|cell| cell.foreseeable()).collect();
    if known.is_empty() {
        return String::new();
    }
    let geometric = |of: &dyn Fn(&SweepCell) -> Option<f64>| {
        let logs: Vec<f64> = known.iter().filter_map(|cell| of(cell)).map(f64::ln).collect();
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    };
    format!(
        "\nwave where a rule could foresee what the oracle knows, {} of {regular} regular cells: geometric mean of rho {:.3}, of bytes \
         {:.2} times the oracle's\n",
        known.len(),
        geometric(&|cell| Some(cell.of("wave")?.rho)),
        geometric(&|cell| cell.bytes_of_oracle("wave"))
    )
}

/// Shares and means over all cells, and each cell in which another policy wins at no more waste.
fn summary(cells: &[SweepCell], policies: &[String]) -> String {
    let mut text = String::from(
        "\npolicy              geometric mean of rho: regular   all  of bound   mean eta   stalls  requests  fair   best or equal (1 %)\n",
    );
    for policy in policies {
        let scores = |regular: bool| {
            cells.iter().filter(move |cell| !regular || cell.regular).filter_map(|cell| cell.of(policy))
        };
        let geometric = |regular: bool, of: fn(&Score) -> f64| {
            let logs: Vec<f64> = scores(regular).map(|score| of(score).max(1e-9).ln()).collect();
            (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
        };
        let mean =
            |of: fn(&Score) -> f64| scores(false).map(of).sum::<f64>() / scores(false).count().max(1) as f64;
        let best =
            cells.iter().filter(|cell| cell.of(policy).is_some() && cell.beaten(policy, 1.0).is_none());
        text.push_str(&format!(
            "  {policy:<30} {:>13.3} {:>9.3} {:>9.3} {:>9.3} {:>9.0} {:>9.0} {:>5.2}   {} of {}\n",
            geometric(true, |s| s.rho),
            geometric(false, |s| s.rho),
            geometric(false, |s| s.of_bound),
            mean(|s| s.eta),
            mean(|s| s.stalls as f64),
            mean(|s| s.requests as f64),
            mean(|s| s.fairness),
            best.count(),
            cells.len()
        ));
    }
    text.push_str(&foreseen(cells));
    let mut named = |title: &str, lines: Vec<String>| {
        text.push_str(&format!("\n{title}: {}\n", if lines.is_empty() { "none" } else { "" }));
        lines.into_iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    };
    let wins = cells.iter().filter_map(|cell| {
        let (best, own) = (cell.beaten("wave", 1.0)?, cell.of("wave")?);
        Some(format!(
            "{} on {}, {} MiB: {} {:.3} for {:.3}",
            cell.pattern, cell.device, cell.memory_mib, best.policy, best.rho, own.rho
        ))
    });
    named("cells in which another policy is better at no more waste", wins.collect());
    let below = cells.iter().filter_map(|cell| {
        let (none, own) = (cell.of("none")?, cell.of("wave")?);
        (own.rho < none.rho * 0.99).then(|| {
            format!(
                "{} on {}, {} MiB: {:.3} for {:.3}",
                cell.pattern, cell.device, cell.memory_mib, own.rho, none.rho
            )
        })
    });
    named("cells in which wave is more than 1 % slower than none", below.collect());
    text
}
