//! `bowwave lab replay`: a user's own reads, on modelled devices: which window would be best, and what wave would do.

use super::explained::explained;
use super::page;
use super::sweep::played;
use crate::cmd::failure::{DATA, Failure, IO_ERROR, USAGE};
use crate::cmd::out::{print, writable, write_file};
use bowwave_lab::{DeviceModel, SweepCell, Trace, TraceFormat, read_trace, sweep_plan};
use bowwave_steer::HEADER;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Which readahead would be best for your own reads, and what wave would do, on modelled devices.
///
/// TRACE is text: strace (best with -f -ttt -T), a fio iolog, blkparse, darshan-dxt-parser, a file of `bowwave run --explain`, or
/// a table with the columns file,offset,length. The answer comes first, the figures below it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The trace; - reads standard input
    trace: PathBuf,
    /// What recorded it; guessed from its first lines if not given
    #[arg(long, value_name = "FORMAT", value_parser = ["strace", "fio", "blktrace", "darshan", "csv", "explain"])]
    format: Option<String>,
    /// Devices to try: names or models such as lat=8ms,bw=100MB/s,head; all four if none is given
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,
    /// Memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = super::memory)]
    memory: u64,
    /// Print one line of JSON a device
    #[arg(long)]
    json: bool,
    /// Also write a page with a plot a device
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Windows that are tried, in KiB, with today's rules of Linux.
const WINDOWS: [u64; 6] = [64, 128, 512, 1024, 2048, 8192];

/// Devices that are played at once.
const AT_ONCE: usize = 2;

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let known = |name: &String| {
        let model: DeviceModel = name.parse().map_err(|error| Failure::new(USAGE, error))?;
        Ok((name.clone(), model))
    };
    let mut devices = args.device.iter().map(known).collect::<Result<Vec<_>, Failure>>()?;
    if devices.is_empty() {
        devices = DeviceModel::NAMED.into_iter().map(|(name, model)| (name.to_string(), model)).collect();
    }
    args.html.as_deref().map_or(Ok(()), writable)?;
    let (trace, assumed) = parsed(&text(&args.trace)?, args.format.as_deref())
        .map_err(|why| Failure::new(DATA, format_args!("{}: {why}", args.trace.display())))?;
    let mut policies = vec!["none".to_string()];
    policies.extend(WINDOWS.map(|kib| format!("linux-6.18@{kib}")));
    policies.push("wave".into());
    let (cells, _) = played(&devices, AT_ONCE, |(name, model)| {
        sweep_plan(&trace.plan, ("trace", true), name, model, args.memory, &policies)
    });
    if let Some(assumed) = assumed.filter(|_| args.json) {
        eprintln!("{}", decisions_only(&trace, assumed));
    }
    let printed = print(match args.json {
        true => cells.iter().map(|cell| serde_json::to_string(cell).expect("plain data") + "\n").collect(),
        false => answer(&trace, assumed, &cells) + &table(&cells),
    });
    if let Some(path) = &args.html {
        write_file(path, page::replay(&answer(&trace, assumed, &cells), &cells, &WINDOWS))?;
        eprintln!("wrote {}", path.display());
    }
    printed
}

fn text(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin()
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::new(IO_ERROR, format_args!("cannot read standard input: {error}")))?;
    } else {
        bytes = std::fs::read(path).map_err(|error| Failure::on(path, "read", &error))?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The trace, and how many of its reads a file of decisions does not name, if it is one.
fn parsed(text: &str, format: Option<&str>) -> Result<(Trace, Option<usize>), String> {
    if format == Some("explain") || (format.is_none() && text.starts_with(HEADER)) {
        return explained(text).map(|(trace, assumed)| (trace, Some(assumed)));
    }
    let format = format.and_then(|name| TraceFormat::NAMED.iter().find(|f| f.0 == name).map(|f| f.1));
    Ok((read_trace(text, format)?, None))
}

/// The two sentences.
fn answer(trace: &Trace, assumed: Option<usize>, cells: &[SweepCell]) -> String {
    let (reads, files) = (trace.plan.ops.len(), trace.plan.files.len());
    let bytes: u64 = trace.plan.ops.iter().map(|op| op.asked).sum();
    let mut text = format!(
        "{reads} read{} of {:.1} MB in {files} file{} by {} thread{}, {:.0} % of them where an earlier one ended.",
        if reads == 1 { "" } else { "s" },
        bytes as f64 / 1e6,
        if files == 1 { "" } else { "s" },
        trace.plan.threads,
        if trace.plan.threads == 1 { "" } else { "s" },
        trace.continued * 100.0
    );
    if let Some(assumed) = assumed {
        text.push_str(&format!(" {}", decisions_only(trace, assumed)));
    }
    if trace.mappings > 0 {
        text.push_str(&format!(" Faults of its {} mappings are not in the trace.", trace.mappings));
    }
    let parts: Vec<String> = cells
        .iter()
        .map(|cell| {
            let (best, wave) = (best(cell), cell.of("wave"));
            let window = best.map_or("none".to_string(), |b| b.policy.replace("linux-6.18@", "") + " KiB");
            let window = if window == "none KiB" { "no readahead".to_string() } else { window };
            format!(
                "on {} {window} ({:.3} s; wave {:.3} s, an oracle {:.3} s)",
                cell.device,
                best.map_or(0.0, |b| b.seconds),
                wave.map_or(0.0, |w| w.seconds),
                cell.oracle_s
            )
        })
        .collect();
    text.push_str(&format!("\nThe best fixed window would be {}.\n", parts.join(", ")));
    text
}

fn decisions_only(trace: &Trace, assumed: usize) -> String {
    format!(
        "A file of decisions names only the reads that led to one, {} of these; the other {assumed} are assumed, in order through \
         what was fetched between them, and what was cached before is missing: strace shows every read.",
        trace.plan.ops.len().saturating_sub(assumed)
    )
}

/// The quickest fixed window; of equally quick ones (1 %) the smallest.
fn best(cell: &SweepCell) -> Option<&bowwave_lab::Score> {
    let fixed = || cell.scores.iter().filter(|score| score.policy != "wave");
    let quickest = fixed().map(|score| score.seconds).fold(f64::INFINITY, f64::min);
    fixed().find(|score| score.seconds <= quickest * 1.01)
}

fn table(cells: &[SweepCell]) -> String {
    let mut text = String::from(
        "\ndevice        readahead          seconds    of oracle  used/fetched     waits  requests\n",
    );
    for cell in cells {
        for score in &cell.scores {
            text.push_str(&format!(
                "{:<13} {:<16} {:>9.3}  {:>10.3}  {:>12.3} {:>9} {:>9}\n",
                cell.device, score.policy, score.seconds, score.rho, score.eta, score.stalls, score.requests
            ));
        }
        text.push_str(&format!(
            "{:<13} {:<16} {:>9.3}  {:>10.3}   nobody can need less than {:.3} s\n",
            cell.device, "oracle", cell.oracle_s, 1.0, cell.bound_s
        ));
    }
    text
}
