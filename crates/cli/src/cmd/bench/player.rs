//! The player: makes exactly the reads of a plan, in a process of its own, and verifies every one of them.
//!
//! It is a program like any other: it opens files, calls `pread` until its bytes are there, thinks, closes. It is given
//! the plan's name and parameters, not its reads, and makes the plan anew. What it observes it prints on stdout, a line
//! of JSON an event:
//!
//! ```text
//! {"event":"start"}                       the clock runs; descriptors are opened from here on
//! {"event":"phase","index":1}             the program changes its behaviour
//! {"event":"end","report":{...}}
//! ```
//!
//! Verification takes one word of each page of each read; wrong bytes are an outcome to report, never a panic.

mod seen;
mod stage;

pub(crate) use seen::{FIRST_READS, Report};

use crate::cmd::failure::{DATA, Failure, IO_ERROR, USAGE};
use bowwave_lab::{Dispatch, Pace, Params, Plan, find};
use seen::{PhaseReport, Seen, report};
use serde::{Deserialize, Serialize};
use stage::{Stage, Step, first_wrong, open, read_all};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// Think time is slept in slices of at least this; shorter sleeps would mostly be overhead.
const SLICE_NS: i64 = 500_000;
/// Stack of a thread: hundreds of them must fit beside 128 MB of page cache.
const STACK_BYTES: usize = 128 << 10;

/// What to play: everything that a plan follows from, and how to play it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) pattern: String,
    pub(crate) set: String,
    pub(crate) seed: u64,
    pub(crate) volume: f64,
    pub(crate) think_ns_per_mib: u64,
    pub(crate) options: BTreeMap<String, u64>,
    /// Directory that the plan's file names are below.
    pub(crate) root: PathBuf,
    /// No read starts later than this.
    pub(crate) cap_ns: u64,
    /// Compare what is read with what generated files hold.
    pub(crate) verify: bool,
    /// Tell the kernel that reads are random, which switches its readahead off.
    pub(crate) random_advice: bool,
    /// Read the files' used spans sequentially first.
    pub(crate) cat_first: bool,
}

impl Spec {
    /// The plan that it names.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let no = |what: &str| Failure::new(USAGE, format_args!("cannot play {}: {what}", self.pattern));
        let pattern = find(&self.pattern).ok_or_else(|| no("there is no such pattern"))?;
        let params = Params {
            set: self.set.parse().map_err(|error: String| no(&error))?,
            seed: self.seed,
            volume: self.volume,
            think_ns_per_mib: self.think_ns_per_mib,
            options: self.options.clone(),
        };
        pattern.plan(&params).map_err(|misfit| no(&misfit.to_string()))
    }
}

/// What the player says while it plays.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// The clock runs.
    Start,
    /// Phase `index` begins.
    Phase { index: usize },
    /// All is done.
    End { report: Box<Report> },
}

/// Plays `text`, a [`Spec`] in JSON; the exit code says whether every read was right.
pub(crate) fn main(text: &str) -> Result<(), Failure> {
    let spec: Spec = serde_json::from_str(text).map_err(|error| {
        Failure::new(USAGE, format_args!("cannot read the plan's specification: {error}"))
    })?;
    let report = play(&spec)?;
    let words = report.first_error.clone().unwrap_or_default();
    let (wrong, errors) = (report.wrong, report.errors);
    say(&Event::End { report: Box::new(report) });
    match (wrong, errors) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::new(IO_ERROR, format_args!("{errors} reads failed; the first: {words}"))),
        _ => Err(Failure::new(DATA, format_args!("{wrong} reads returned wrong bytes; the first: {words}"))),
    }
}

fn say(event: &Event) {
    let mut line = serde_json::to_string(event).expect("an event is plain data");
    line.push('\n');
    // Nobody listening is the parent's business; the reads go on.
    let _ = io::stdout().lock().write_all(line.as_bytes());
}

/// What all threads share while they play.
struct Show<'a> {
    stage: &'a Stage,
    begin: Instant,
    cap: Duration,
    capped: &'a AtomicBool,
    next: &'a AtomicUsize,
}

impl Show<'_> {
    /// One read: from before the call to after the last byte, verified outside of that time.
    fn read(&self, step: Step, door: u32, buffer: &mut [u8], seen: &mut Seen) -> u64 {
        let file = self.stage.files[door as usize];
        let buffer = &mut buffer[..step.asked as usize];
        let from = Instant::now();
        let outcome = if self.stage.mapped {
            self.stage.touch(door, buffer, step.offset, step.asked as usize)
        } else {
            self.stage.enter(door).and_then(|fd| read_all(fd, buffer, step.offset))
        };
        let wait_ns = from.elapsed().as_nanos() as u64;
        self.stage.leave(door);
        seen.done += 1;
        seen.wait_ns += wait_ns;
        seen.latency.saturating_record(wait_ns);
        let place = || format!("{} at {}", self.stage.path(file).display(), step.offset);
        match outcome {
            Err(error) => {
                seen.errors += 1;
                seen.complain(format!("{}: {error}", place()));
            }
            Ok(n) if n < step.asked as usize => {
                seen.errors += 1;
                seen.complain(format!("{}: the file ended after {n} of {} bytes", place(), step.asked));
            }
            Ok(n) => {
                seen.bytes += n as u64;
                let id = self.stage.ids[file as usize];
                if self.stage.verify
                    && let Some(at) = first_wrong(id, step.offset, buffer)
                {
                    seen.wrong += 1;
                    seen.complain(format!("{}: wrong bytes at {at}", place()));
                }
            }
        }
        wait_ns
    }

    fn over(&self) -> bool {
        let over = self.begin.elapsed() >= self.cap;
        if over {
            self.capped.store(true, Relaxed);
        }
        over
    }

    /// The part of one thread, as fast as it goes.
    fn run_free(&self, thread: usize, buffer: &mut [u8]) -> Seen {
        let mut seen = Seen::new(2);
        let mut debt_ns = 0_i64;
        let queue = self.stage.dispatch != Dispatch::Assigned;
        let steps = &self.stage.steps[if queue { 0 } else { thread }];
        let mut phases = self.stage.phases.iter().enumerate().peekable();
        let mut own = 0..steps.len();
        while let Some(turn) = if queue { Some(self.next.fetch_add(1, Relaxed)) } else { own.next() } {
            let Some(&step) = steps.get(turn) else { break };
            if self.over() {
                break;
            }
            if let Some((index, (_, name))) = phases.next_if(|(_, (first, _))| *first <= turn) {
                say(&Event::Phase { index });
                let start_ns = self.begin.elapsed().as_nanos() as u64;
                let name = name.clone();
                seen.phases.push(PhaseReport { name, start_ns, wait_ns: 0, first_wait_ns: 0, reads: 0 });
            }
            let door = if self.stage.dispatch == Dispatch::QueueOwn { thread as u32 } else { step.fd };
            let wait_ns = self.read(step, door, buffer, &mut seen);
            if let Some(phase) = seen.phases.last_mut() {
                phase.wait_ns += wait_ns;
                phase.first_wait_ns += if phase.reads < FIRST_READS { wait_ns } else { 0 };
                phase.reads += 1;
            }
            debt_ns += i64::from(step.think_ns);
            if debt_ns >= SLICE_NS {
                let from = Instant::now();
                std::thread::sleep(Duration::from_nanos(debt_ns as u64));
                debt_ns -= from.elapsed().as_nanos() as i64;
            }
        }
        seen
    }

    /// The part of one thread at a given pace.
    fn run_paced(&self, pace: &Pace, thread: usize, buffer: &mut [u8]) -> Seen {
        // Hundreds of threads must fit beside the page cache that is measured.
        let mut seen = Seen::new(1);
        let measure_from = pace.measure_from_ns(self.stage.threads as u32);
        let end = pace.total_ns(self.stage.threads as u32);
        let now = || self.begin.elapsed().as_nanos() as u64;
        let mut due = thread as u64 * pace.start_every_ns;
        seen.by_second = vec![0; (end / 1_000_000_000) as usize + 2];
        for &step in &self.stage.steps[thread] {
            let early = due.saturating_sub(now());
            if early > 0 {
                std::thread::sleep(Duration::from_nanos(early));
            }
            let begins = now();
            if begins >= end {
                break;
            }
            let late = begins.saturating_sub(due);
            due += late.saturating_sub(pace.catch_up_ns_max);
            due += u64::from(step.asked) * 1_000_000_000 / pace.bytes_per_s;
            self.read(step, step.fd, buffer, &mut seen);
            let ended = now();
            if (measure_from..end).contains(&ended) {
                seen.measured += u64::from(step.used);
                seen.late.saturating_record(late);
                seen.late_reads += u64::from(late > 100_000_000);
            }
            if let Some(second) = seen.by_second.get_mut((ended / 1_000_000_000) as usize) {
                *second += u64::from(step.used);
            }
        }
        seen
    }
}

/// Reads the used spans of all files from their start to their end, and says how long that took.
fn cat(stage: &Stage, cap: Duration) -> Result<Duration, Failure> {
    let begin = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    for &(file, from, to) in &stage.spans {
        let path = stage.path(file);
        let fd = open(&path).map_err(|error| Failure::on(&path, "open", &error))?;
        let mut at = from / PAGE * PAGE;
        while at < to && begin.elapsed() < cap {
            let wanted = buffer.len().min((to - at) as usize);
            let n = read_all(fd, &mut buffer[..wanted], at)
                .map_err(|error| Failure::on(&path, "read", &error))?;
            at += n.max(1) as u64;
        }
        // SAFETY: opened above, used no more.
        unsafe { libc::close(fd) };
    }
    Ok(begin.elapsed())
}

fn play(spec: &Spec) -> Result<Report, Failure> {
    let stage = Stage::of(spec.plan()?, spec);
    // SAFETY: gives free memory back to the system; the plan was larger than the stage.
    unsafe { libc::malloc_trim(0) };
    let largest = stage.steps.iter().flatten().map(|step| step.asked).max().unwrap_or(1) as usize;
    let cap = if stage.pace.is_some() { Duration::MAX } else { Duration::from_nanos(spec.cap_ns) };
    let cat_took = if spec.cat_first { cat(&stage, cap)? } else { Duration::ZERO };

    let (ready, begin) = (Barrier::new(stage.threads + 1), OnceLock::new());
    let (next, capped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let part = |thread: usize| {
            let mut buffer = vec![0; largest];
            ready.wait();
            let begin = *begin.get_or_init(Instant::now);
            let show =
                Show { stage: &stage, begin, cap: cap - cat_took.min(cap), capped: &capped, next: &next };
            match &stage.pace {
                Some(pace) => show.run_paced(pace, thread, &mut buffer),
                None => show.run_free(thread, &mut buffer),
            }
        };
        let threads: Vec<_> = (0..stage.threads)
            .map(|thread| {
                let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
                builder.spawn_scoped(scope, move || part(thread)).expect("a thread can be started")
            })
            .collect();
        say(&Event::Start);
        begin.get_or_init(Instant::now);
        ready.wait();
        threads.into_iter().map(|thread| thread.join().expect("a reader does not panic")).collect()
    });
    let elapsed = begin.get().expect("set above").elapsed() + cat_took;
    Ok(report(&stage, seen, elapsed, cat_took, capped.into_inner()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowwave_fuse::content;
    use std::path::Path;

    fn spec(root: &Path, pattern: &str) -> Spec {
        Spec {
            pattern: pattern.to_string(),
            set: "published".to_string(),
            seed: 1,
            volume: 0.004,
            think_ns_per_mib: 0,
            options: BTreeMap::new(),
            root: root.to_path_buf(),
            cap_ns: 60_000_000_000,
            verify: true,
            random_advice: false,
            cat_first: false,
        }
    }

    fn make(root: &Path, plan: &Plan) {
        for (file, (_, to)) in plan.spans() {
            let path = root.join(&plan.files[file as usize].name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut bytes = vec![0; to as usize];
            content::fill(content::file_id(&plan.files[file as usize].name), 0, &mut bytes);
            std::fs::write(path, bytes).unwrap();
        }
    }

    #[test]
    fn every_read_is_made_and_verified() {
        for pattern in
            ["seq_10k", "retry", "nfs16_own", "nfs16_shared", "zip", "rnd_dense", "mmap_seq", "mmap_il8"]
        {
            let root = tempfile::tempdir().unwrap();
            let mut spec = spec(root.path(), pattern);
            spec.options.insert("base".into(), 0);
            let plan = spec.plan().unwrap();
            make(root.path(), &plan);
            let report = play(&spec).unwrap();
            assert_eq!(report.done.iter().sum::<u64>(), plan.ops.len() as u64, "{pattern}");
            assert_eq!(report.bytes, plan.ops.iter().map(|op| op.asked).sum::<u64>(), "{pattern}");
            assert_eq!((report.errors, report.wrong), (0, 0), "{pattern}: {:?}", report.first_error);
        }
    }

    #[test]
    fn a_shifted_byte_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let spec = spec(root.path(), "seq_64k");
        make(root.path(), &spec.plan().unwrap());
        let path = root.path().join("big/000");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.insert(0, 7);
        std::fs::write(path, bytes).unwrap();
        let report = play(&spec).unwrap();
        assert_eq!(report.wrong, report.done[0]);
        assert!(report.first_error.unwrap().contains("wrong bytes at 0"));
    }

    #[test]
    fn a_missing_file_is_an_error_of_each_read() {
        let root = tempfile::tempdir().unwrap();
        let report = play(&spec(root.path(), "seq_1m")).unwrap();
        assert_eq!(report.errors, report.done[0]);
        assert!(report.first_error.unwrap().contains("No such file"));
    }
}
