//! The doctor's jobs, and what each cost: played by a process of its own, as any program would, and measured around it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::place::{BYTES_MIN, cached_bytes};
use crate::cmd::failure::{Failure, IO_ERROR, OS_ERROR, SOFTWARE, USAGE};
use crate::cmd::mapping::Mapping;
use crate::cmd::out::print;

pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) used_bytes: u64,
}

const TOUCHES: u64 = 10;
const PAGE: u64 = 4096;
const SEQUENTIAL_BYTES: u64 = 16 << 20;
const STREAM_BYTES: u64 = 4 << 20;

pub(super) const JOBS: [Job; 3] = [
    Job { name: "touches", what: "10 random touches, mapped", used_bytes: TOUCHES * PAGE },
    Job { name: "sequential", what: "16 MiB in order, 64 KiB reads", used_bytes: SEQUENTIAL_BYTES },
    Job { name: "streams", what: "2 streams of 4 MiB by turns", used_bytes: 2 * STREAM_BYTES },
];

/// What a job cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Of the file in the page cache afterwards: there was nothing before.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) major_faults: u64,
}

/// Plays `job` in a process of its own, steered or not. What `run` fetches on its behalf is counted as well.
pub(super) fn measure(job: &str, file: PathBuf, seed: u64, steered: bool) -> Result<Measured, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::new(OS_ERROR, format_args!("cannot start a process of our own: {error}"))
    };
    let own = std::env::current_exe().map_err(|error| wrong(&error))?;
    let mut command = Command::new(&own);
    if steered {
        command.args(["run", "--quiet", "--"]).arg(&own);
    }
    command.arg("doctor-play").args([job]).arg(&file).arg(seed.to_string());
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|e| wrong(&e))?;
    if !output.status.success() {
        return Err(Failure::new(SOFTWARE, format_args!("the job {job} failed: {}", output.status)));
    }
    let mut measured: Measured = serde_json::from_slice(&output.stdout).map_err(|error| {
        Failure::new(SOFTWARE, format_args!("the job {job} said nothing sensible: {error}"))
    })?;
    // The kernel may still be reading what it began.
    let file = File::open(&file).map_err(|error| wrong(&error))?;
    if let Some(bytes) = cached_bytes(&file) {
        measured.bytes = bytes;
    }
    Ok(measured)
}

/// Plays `job` on `path` and prints what it took.
pub(super) fn play(job: &str, path: &Path, seed: u64) -> Result<(), Failure> {
    let on = |error: std::io::Error| Failure::on(path, "read", &error);
    let file = File::open(path).map_err(on)?;
    let size = file.metadata().map_err(on)?.len();
    if size < BYTES_MIN {
        return Err(Failure::new(USAGE, format_args!("{} is too small", path.display())));
    }
    let before = read_bytes();
    let begun = Instant::now();
    match job {
        "touches" => touch(&file, size, seed).map_err(on)?,
        "sequential" => {
            let mut buffer = vec![0; 64 << 10];
            for at in (0..SEQUENTIAL_BYTES).step_by(buffer.len()) {
                file.read_exact_at(&mut buffer, at).map_err(on)?;
            }
        }
        "streams" => {
            let mut buffer = vec![0; 16 << 10];
            for at in (0..STREAM_BYTES).step_by(buffer.len()) {
                file.read_exact_at(&mut buffer, at).map_err(on)?;
                file.read_exact_at(&mut buffer, size / 2 + at).map_err(on)?;
            }
        }
        _ => return Err(Failure::new(USAGE, format_args!("there is no job {job}"))),
    }
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = read_bytes().saturating_sub(before);
    let measured = Measured { bytes, seconds, major_faults: major_faults() };
    let text = serde_json::to_string(&measured)
        .map_err(|error| Failure::new(IO_ERROR, format_args!("cannot write JSON: {error}")))?;
    print(format_args!("{text}\n"))
}

/// Ten pages, drawn from the seed, through a mapping of the whole file.
fn touch(file: &File, size: u64, seed: u64) -> std::io::Result<()> {
    let mapping = Mapping::of(file.as_raw_fd(), size as usize, false)?;
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for _ in 0..TOUCHES {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let byte = mapping.at((x % (size / PAGE) * PAGE) as usize, 1);
        // SAFETY: a byte of the mapping. Should somebody shorten the file meanwhile, this process of its own dies, and its parent
        // says so.
        unsafe { byte.read_volatile() };
    }
    Ok(())
}

/// Bytes that this process has had read from devices.
fn read_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

fn major_faults() -> u64 {
    // SAFETY: all-zero bytes are a rusage, which the call fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_majflt as u64
    }
}
