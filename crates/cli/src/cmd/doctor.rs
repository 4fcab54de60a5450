//! `bowwave doctor`: ten seconds on your own disk; what does readahead cost here, and what would `run` make of it?
//!
//! ```text
//!   $ bowwave doctor
//!   vda (ext4 on /), Linux 6.18, read-ahead of 8192 KiB (/sys/block/vda/queue/read_ahead_kb)
//!                                        now                            with bowwave run
//!   10 touches of a mapped file          84 MB read (2048x), 160 ms     41 kB (1.0x), 9 ms
//! ```
//!
//! Three jobs, each played by a process of its own, cold, by turns with and without `run`: ten random touches of a mapped
//! file, a short sequential read, two streams by turns. Bytes are those that the kernel says were read on the process's
//! behalf and that the file has in the cache afterwards. The file is made for it, has no name, and is gone with us;
//! a file that the user names is only read.

mod job;
mod place;

use std::path::PathBuf;
use std::process::ExitCode;

use bowwave_steer::shown_bytes;
use job::{JOBS, Measured};
use place::Place;
use serde::Serialize;

use super::failure::{Failure, SOFTWARE, exit_code};
use super::out::print;

/// What readahead costs on this machine, measured in ten seconds.
///
/// Makes a file without a name on the file system of PATH (here, without it), plays three short jobs on it with and
/// without bowwave, and says in words what came of it and which setting causes it. Needs no root; leaves nothing behind.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory on the file system to look at, or a file of 64 MiB or more that is only read
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// One job (used by doctor)
#[derive(clap::Args)]
pub(crate) struct JobArgs {
    job: String,
    file: PathBuf,
    seed: u64,
}

pub(crate) fn play(args: JobArgs) -> anyhow::Result<ExitCode> {
    Ok(exit_code("doctor", job::play(&args.job, &args.file, args.seed)))
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    Ok(exit_code("doctor", examine(&args)))
}

/// What one job came to, with and without.
#[derive(Serialize)]
struct Finding {
    job: &'static str,
    what: &'static str,
    used_bytes: u64,
    plain: Measured,
    run: Measured,
}

/// Everything, as `--json` prints it.
#[derive(Serialize)]
struct Examination {
    device: String,
    file_system: String,
    kernel: String,
    read_ahead_kb: Option<u64>,
    setting: Option<String>,
    findings: Vec<Finding>,
    fine: bool,
    words: Vec<String>,
}

/// Times each job is played with and without: the median of three, by turns.
const TURNS: usize = 3;

fn examine(args: &Args) -> Result<(), Failure> {
    let place = Place::at(&args.path)?;
    let mut findings = Vec::new();
    for job in &JOBS {
        let (mut plain, mut run) = (Vec::new(), Vec::new());
        for turn in 0..TURNS as u64 {
            // The same offsets in both arms, others in the next turn.
            for (steered, measured) in [(false, &mut plain), (true, &mut run)] {
                place.make_cold()?;
                measured.push(job::measure(job.name, place.reach(), turn + 1, steered)?);
            }
        }
        let bytes = job.used_bytes;
        findings.push(Finding {
            job: job.name,
            what: job.what,
            used_bytes: bytes,
            plain: median(plain)?,
            run: median(run)?,
        });
    }
    let words = words(&place, &findings);
    let examination = Examination {
        device: place.device.clone(),
        file_system: place.file_system.clone(),
        kernel: place.kernel.clone(),
        read_ahead_kb: place.read_ahead_kb,
        setting: place.setting.as_ref().map(|path| path.display().to_string()),
        fine: is_fine(&findings),
        findings,
        words,
    };
    if args.json {
        let text = serde_json::to_string_pretty(&examination)
            .map_err(|error| Failure::new(SOFTWARE, format_args!("cannot write JSON: {error}")))?;
        print(format_args!("{text}\n"))
    } else {
        print(shown(&examination))
    }
}

fn median(mut all: Vec<Measured>) -> Result<Measured, Failure> {
    all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = all.len() / 2;
    all.into_iter().nth(middle).ok_or_else(|| Failure::new(SOFTWARE, "nothing was measured"))
}

fn finding<'a>(findings: &'a [Finding], job: &str) -> Option<&'a Finding> {
    findings.iter().find(|finding| finding.job == job)
}

/// A touch may cost what the kernel has always read around one, 128 KiB; more is waste that somebody pays for. A stream is
/// fine where fetching further ahead would not make it a quarter faster, or where it takes no time worth speaking of.
fn is_fine(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| match finding.job {
        "touches" => finding.plain.bytes <= 40 * finding.used_bytes,
        _ => !is_slow(finding),
    })
}

fn is_slow(finding: &Finding) -> bool {
    finding.plain.seconds > 1.25 * finding.run.seconds && finding.plain.seconds > 0.05
}

fn words(place: &Place, findings: &[Finding]) -> Vec<String> {
    let mut words = Vec::new();
    let setting = match (&place.setting, place.read_ahead_kb) {
        (Some(path), Some(kb)) => format!("read_ahead_kb={kb} ({})", path.display()),
        _ => "the file system's own read-ahead".to_string(),
    };
    if let Some(touches) = finding(findings, "touches") {
        let times = touches.plain.bytes as f64 / touches.used_bytes as f64;
        let (plain, run) = (shown_bytes(touches.plain.bytes), shown_bytes(touches.run.bytes));
        if touches.plain.bytes > 40 * touches.used_bytes {
            words.push(format!(
                "10 touches of 4 KiB in a mapped file read {plain} from {}: {times:.0} times what was used. The \
                 setting is {setting}. The same touches under bowwave run read {run}.",
                place.device
            ));
        } else {
            words.push(format!(
                "10 touches of 4 KiB in a mapped file read {plain} from {} ({times:.0} times what was used, which is the \
                 kernel's usual way); under bowwave run {run}.",
                place.device
            ));
        }
    }
    for (job, name) in [("sequential", "A sequential read"), ("streams", "Two streams by turns")] {
        let Some(one) = finding(findings, job) else { continue };
        let (plain, run) = (one.rate(&one.plain), one.rate(&one.run));
        words.push(if is_slow(one) {
            format!(
                "{name} gets {plain} here and {run} under bowwave run: {setting} is too short for the time that {} takes \
                 to answer.",
                place.device
            )
        } else {
            format!("{name} gets {plain} here ({run} under bowwave run): nothing to mend.")
        });
    }
    words.push(if is_fine(findings) {
        "This machine is fine: readahead costs little here. To see where it would not be, try bowwave demo."
            .into()
    } else {
        "To mend it for one program: bowwave run -- PROGRAM.".into()
    });
    words
}

impl Finding {
    fn rate(&self, measured: &Measured) -> String {
        format!("{:.0} MB/s", self.used_bytes as f64 / 1e6 / measured.seconds.max(1e-6))
    }
}

fn shown(examination: &Examination) -> String {
    let window =
        examination.read_ahead_kb.map_or("an unknown read-ahead".into(), |kb| format!("{kb} KiB read-ahead"));
    let mut text = format!(
        "{} ({}), Linux {}, {window}\n\n{:<34} {:>26}   {:>26}\n",
        examination.device, examination.file_system, examination.kernel, "", "now", "with bowwave run"
    );
    for finding in &examination.findings {
        let cell = |m: &Measured| {
            let times = m.bytes as f64 / finding.used_bytes as f64;
            format!("{} ({times:.1}x) {:.0} ms", shown_bytes(m.bytes), m.seconds * 1e3)
        };
        let (plain, run) = (cell(&finding.plain), cell(&finding.run));
        text.push_str(&format!("{:<34} {plain:>26}   {run:>26}\n", finding.what));
    }
    format!("{text}\n{}\n", examination.words.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(job: &'static str, plain: (u64, f64), run: (u64, f64)) -> Finding {
        let measured = |(bytes, seconds)| Measured { bytes, seconds, major_faults: 0 };
        Finding { job, what: "", used_bytes: 40_960, plain: measured(plain), run: measured(run) }
    }

    #[test]
    fn a_machine_is_fine_or_not() {
        let usual = found("touches", (1_310_720, 0.01), (40_960, 0.01));
        let huge = found("touches", (83_886_080, 0.1), (40_960, 0.01));
        let quick = found("sequential", (40_960, 0.20), (40_960, 0.19));
        let slow = found("sequential", (40_960, 4.0), (40_960, 0.2));
        let brief = found("streams", (40_960, 0.03), (40_960, 0.01));
        assert!(is_fine(&[usual, quick, brief]));
        assert!(!is_fine(&[huge]));
        assert!(!is_fine(&[slow]));
    }
}
