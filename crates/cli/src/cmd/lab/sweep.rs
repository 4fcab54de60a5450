//! `bowwave lab sweep`: every policy on every pattern and device, as a share of what an oracle does.
//!
//! ```text
//!   $ bowwave lab sweep --pattern seq_64k --device s3
//!   seq_64k on s3, 1024 MiB    oracle 0.66 s = 1.02 of the bound
//!        wave  rho 0.97  eta 0.97 ...
//! ```

use bowwave_lab::{DeviceModel, Params, Set, SweepCell, published, sweep_brain, sweep_cell, sweep_policies};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A name that nobody knows.
const USAGE: u8 = 64;

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
    #[arg(long, value_name = "MIB", default_values_t = [1024])]
    memory: Vec<u64>,
    /// Share of each pattern's volume that is read
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    volume: f64,
    /// Parameters of the patterns: published, or drawn:SEED
    #[arg(long, value_name = "SET", default_value_t = Set::Published)]
    set: Set,
    /// Print one line of JSON a cell
    #[arg(long)]
    json: bool,
    /// Cells that are played at once
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let devices = match devices(args) {
        Ok(devices) => devices,
        Err(error) => return Ok(refused(&error)),
    };
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
        return Ok(refused(&format!(
            "there is no policy {unknown}; there are {}",
            sweep_policies().join(", ")
        )));
    }
    let chosen =
        |name: &str| args.pattern.is_empty() || args.pattern.iter().any(|p| name.starts_with(p.as_str()));
    let patterns: Vec<_> = published().into_iter().filter(|pattern| chosen(&pattern.name)).collect();
    if patterns.is_empty() {
        return Ok(refused(&format!("no pattern's name begins with {}", args.pattern.join(" or "))));
    }
    let params = match args.set {
        Set::Published => Params::published(),
        Set::Drawn(seed) => Params::drawn(seed),
    };
    let params = Params { volume: args.volume, ..params };
    let mut jobs = Vec::new();
    for pattern in &patterns {
        for (device, model) in &devices {
            for &memory in &args.memory {
                jobs.push((pattern, device, model, memory));
            }
        }
    }
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let bar = indicatif::ProgressBar::new(jobs.len() as u64);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.clamp(1, jobs.len()) {
            scope.spawn(|| {
                while let Some((pattern, device, model, memory)) =
                    jobs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let at = jobs.iter().position(|job| {
                        std::ptr::eq(job.0, *pattern) && job.1 == *device && job.3 == *memory
                    });
                    let cell = sweep_cell(pattern, &params, device, model, *memory, &policies);
                    if let Ok(mut done) = done.lock() {
                        done.push((at, cell));
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut cells = done.into_inner().unwrap_or_default();
    cells.sort_by_key(|(at, _)| *at);
    let cells: Vec<SweepCell> = cells.into_iter().map(|(_, cell)| cell).collect();
    let mut out = std::io::stdout().lock();
    for cell in &cells {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(cell)?)?;
        } else {
            write!(out, "{}", shown(cell))?;
        }
    }
    if !args.json {
        write!(out, "{}", summary(&cells, &policies))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn refused(why: &str) -> ExitCode {
    eprintln!("bowwave lab sweep: {why}");
    ExitCode::from(USAGE)
}

fn devices(args: &Args) -> Result<Vec<(String, DeviceModel)>, String> {
    if args.device.is_empty() {
        return Ok(DeviceModel::NAMED.into_iter().map(|(name, model)| (name.to_string(), model)).collect());
    }
    let one = |name: &String| Ok((name.clone(), name.parse::<DeviceModel>().map_err(|e| e.to_string())?));
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
            "  {:<18} rho {:>6.3}  eta {:>6.3}  {:>9.3} s  {:>8} stalls {:>8} requests  fair {:.2}  {}\n",
            s.policy,
            s.rho,
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

/// Shares and means over all cells, and each cell in which another policy wins at no more waste.
fn summary(cells: &[SweepCell], policies: &[String]) -> String {
    let mut text = String::from(
        "\npolicy              geometric mean of rho: regular   all     mean eta   best or equal (1 %)\n",
    );
    for policy in policies {
        let mean = |regular: bool| {
            let logs: Vec<f64> = cells
                .iter()
                .filter(|cell| !regular || cell.regular)
                .filter_map(|cell| cell.of(policy))
                .map(|score| score.rho.max(1e-9).ln())
                .collect();
            (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
        };
        let etas: Vec<f64> = cells.iter().filter_map(|cell| cell.of(policy)).map(|score| score.eta).collect();
        let best = cells
            .iter()
            .filter(|cell| cell.of(policy).is_some() && cell.beaten(policy, 1.0).is_none())
            .count();
        text.push_str(&format!(
            "  {policy:<30} {:>13.3} {:>9.3} {:>9.3}   {best} of {}\n",
            mean(true),
            mean(false),
            etas.iter().sum::<f64>() / etas.len().max(1) as f64,
            cells.len()
        ));
    }
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
        (own.rho < none.rho * 0.97)
            .then(|| format!("{} on {}: {:.3} for {:.3}", cell.pattern, cell.device, own.rho, none.rho))
    });
    named("cells in which wave is more than 3 % slower than none", below.collect());
    text
}
