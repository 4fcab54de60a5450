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

use super::failure::{DATA, Failure, IO_ERROR, USAGE};
use bowwave_fuse::content;
use bowwave_lab::{Dispatch, Pace, Params, Plan, find};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError};
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
        Ok(pattern.plan(&Params {
            set: self.set.parse().map_err(|error: String| no(&error))?,
            seed: self.seed,
            volume: self.volume,
            think_ns_per_mib: self.think_ns_per_mib,
            options: self.options.clone(),
        }))
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

/// What the player saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// From the start to the end of the last thread.
    pub(crate) elapsed_ns: u64,
    /// Stopped at its time cap.
    pub(crate) capped: bool,
    /// Reads made by each thread.
    pub(crate) done: Vec<u64>,
    /// Bytes read, repeats and all.
    pub(crate) bytes: u64,
    /// Reads that failed.
    pub(crate) errors: u64,
    /// Reads that returned wrong bytes.
    pub(crate) wrong: u64,
    /// The first of either, in words.
    pub(crate) first_error: Option<String>,
    /// Time spent in reads, all threads together.
    pub(crate) wait_ns: u64,
    /// Half of the reads took at most this.
    pub(crate) p50_ns: u64,
    /// 99 % of the reads took at most this.
    pub(crate) p99_ns: u64,
    /// The slowest read.
    pub(crate) max_ns: u64,
    /// Time that `cat` took, if it went first; part of `elapsed_ns`.
    pub(crate) cat_ns: u64,
    /// Each phase's time and stall.
    pub(crate) phases: Vec<PhaseReport>,
    /// How well a pace was kept.
    pub(crate) paced: Option<PacedReport>,
}

/// One phase of a plan that changes its behaviour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PhaseReport {
    pub(crate) name: String,
    pub(crate) start_ns: u64,
    /// Time spent in the phase's reads.
    pub(crate) wait_ns: u64,
    /// Time spent in its first [`FIRST_READS`] reads: what the change cost.
    pub(crate) first_wait_ns: u64,
    pub(crate) reads: u64,
}

/// Reads after a change that count as its start.
pub(crate) const FIRST_READS: u64 = 64;

/// Many streams at a given rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PacedReport {
    /// Bytes that all streams together want in a second.
    pub(crate) demand_bytes_per_s: u64,
    /// Bytes used in the measured part.
    pub(crate) measured_bytes: u64,
    /// How long that was.
    pub(crate) measured_ns: u64,
    /// Bytes used in each second from the start on.
    pub(crate) by_second: Vec<u64>,
    /// Reads of the measured part that began more than 100 ms late.
    pub(crate) late: u64,
    /// 99 % of reads of the measured part began at most so late.
    pub(crate) late_p99_ns: u64,
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

/// One read, as small as it can be: pace and memory are measured together.
#[derive(Clone, Copy)]
struct Step {
    offset: u64,
    think_ns: u32,
    fd: u32,
    asked: u32,
    used: u32,
}

/// A plan made ready: reads by thread, descriptors to open.
struct Stage {
    root: PathBuf,
    names: Vec<String>,
    ids: Vec<u64>,
    files: Vec<u32>,
    doors: Vec<Door>,
    steps: Vec<Vec<Step>>,
    threads: usize,
    dispatch: Dispatch,
    pace: Option<Pace>,
    phases: Vec<(usize, String)>,
    spans: Vec<(u32, u64, u64)>,
    verify: bool,
    random_advice: bool,
    mapped: bool,
}

/// A descriptor: opened at its first read, closed after its last.
struct Door {
    fd: AtomicI32,
    opening: Mutex<()>,
    /// Where the file is mapped, if it is one to be touched; it stays so until the player ends.
    map: OnceLock<Mapping>,
    /// Reads left; never reaches 0 where it is not known beforehand who reads what.
    left: AtomicU64,
}

const CLOSED: i32 = -1;

impl Stage {
    fn of(plan: Plan, spec: &Spec) -> Self {
        let queue = plan.dispatch != Dispatch::Assigned;
        let mut steps = vec![Vec::new(); if queue { 1 } else { plan.threads as usize }];
        let mut left = vec![if queue { 1 } else { 0 }; plan.descriptors.len()];
        for op in &plan.ops {
            let thread = if queue { 0 } else { op.thread as usize };
            left[op.fd as usize] += 1;
            steps[thread].push(Step {
                offset: op.offset,
                think_ns: u32::try_from(op.think_ns).unwrap_or(u32::MAX),
                fd: op.fd,
                asked: op.asked as u32,
                used: op.used as u32,
            });
        }
        steps.iter_mut().for_each(Vec::shrink_to_fit);
        Self {
            root: spec.root.clone(),
            ids: plan.files.iter().map(|file| content::file_id(&file.name)).collect(),
            files: plan.descriptors.clone(),
            doors: left
                .into_iter()
                .map(|left| Door {
                    fd: AtomicI32::new(CLOSED),
                    opening: Mutex::new(()),
                    map: OnceLock::new(),
                    left: AtomicU64::new(left),
                })
                .collect(),
            threads: plan.threads as usize,
            dispatch: plan.dispatch,
            pace: plan.pace,
            phases: plan.phases.iter().map(|phase| (phase.first_op, phase.name.clone())).collect(),
            spans: plan.spans().into_iter().map(|(file, (from, to))| (file, from, to)).collect(),
            names: plan.files.into_iter().map(|file| file.name).collect(),
            steps,
            verify: spec.verify,
            random_advice: spec.random_advice,
            mapped: plan.mapped,
        }
    }

    fn path(&self, file: u32) -> PathBuf {
        self.root.join(&self.names[file as usize])
    }

    /// The open descriptor behind `door`.
    fn enter(&self, door: u32) -> io::Result<i32> {
        let slot = &self.doors[door as usize];
        let fd = slot.fd.load(Relaxed);
        if fd != CLOSED {
            return Ok(fd);
        }
        let _one_opens = slot.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.fd.load(Relaxed) == CLOSED {
            let fd = open(&self.path(self.files[door as usize]))?;
            if self.random_advice {
                // SAFETY: a descriptor of our own; the call touches no memory.
                unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_RANDOM) };
            }
            slot.fd.store(fd, Relaxed);
        }
        Ok(slot.fd.load(Relaxed))
    }

    /// Touches each page of `[offset, offset + len)` once, and puts what it found into `buffer`, a word a page.
    fn touch(&self, door: u32, buffer: &mut [u8], offset: u64, len: usize) -> io::Result<usize> {
        let fd = self.enter(door)?;
        let slot = &self.doors[door as usize];
        if slot.map.get().is_none() {
            let _one_maps = slot.opening.lock().unwrap_or_else(PoisonError::into_inner);
            if slot.map.get().is_none() {
                let _ = slot.map.set(Mapping::of(fd, self.random_advice)?);
            }
        }
        let map = slot.map.get().expect("set above");
        for at in (0..len).step_by(PAGE as usize) {
            let place = offset as usize + at;
            if place + 8 > map.len {
                return Ok(at);
            }
            // SAFETY: eight bytes inside a mapping that lives as long as the stage, of a file that nobody shortens; aligned,
            // since offsets of touches are whole pages.
            let word = unsafe { map.at.as_ptr().byte_add(place).read_volatile() };
            buffer[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        Ok(len)
    }

    /// One read through `door` is done.
    fn leave(&self, door: u32) {
        let slot = &self.doors[door as usize];
        if slot.left.fetch_sub(1, Relaxed) == 1 {
            // SAFETY: opened by us, and its last read is done.
            unsafe { libc::close(slot.fd.swap(CLOSED, Relaxed)) };
        }
    }
}

/// A whole file, mapped.
struct Mapping {
    at: NonNull<u64>,
    len: usize,
}

// SAFETY: memory that is only read.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(fd: i32, random_advice: bool) -> io::Result<Self> {
        // SAFETY: all-zero bytes are a stat; a new mapping at an address of the kernel's choice, and advice on it.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &mut stat) != 0 {
                return Err(io::Error::last_os_error());
            }
            let len = stat.st_size as usize;
            let at = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            if random_advice {
                libc::madvise(at, len, libc::MADV_RANDOM);
            }
            Ok(Self { at: NonNull::new(at.cast()).expect("mmap never returns null"), len })
        }
    }
}

fn open(path: &Path) -> io::Result<i32> {
    let text = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a string that ends with a zero byte.
    match unsafe { libc::open(text.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) } {
        CLOSED => Err(io::Error::last_os_error()),
        fd => Ok(fd),
    }
}

/// `pread` until all of `buffer` is filled or the file ends.
fn read_all(fd: i32, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        let rest = &mut buffer[got..];
        // SAFETY: `rest` is writable for its whole length.
        let n = unsafe {
            libc::pread(fd, rest.as_mut_ptr().cast(), rest.len(), (offset + got as u64) as libc::off_t)
        };
        match n {
            0 => break,
            1.. => got += n as usize,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(got)
}

/// The offset of the first word of `bytes` that is not what the file holds; one word of each page is looked at.
fn first_wrong(id: u64, offset: u64, bytes: &[u8]) -> Option<u64> {
    let end = offset + bytes.len() as u64;
    if offset.next_multiple_of(8) + 8 > end {
        return content::first_wrong(id, offset, bytes);
    }
    let mut at = offset.next_multiple_of(8);
    while at + 8 <= end {
        let here = (at - offset) as usize;
        let word = u64::from_le_bytes(bytes[here..here + 8].try_into().expect("eight bytes"));
        if word != content::word(id, at / 8) {
            return Some(at);
        }
        at = (at / PAGE + 1) * PAGE;
    }
    None
}

/// What one thread saw.
struct Seen {
    done: u64,
    bytes: u64,
    errors: u64,
    wrong: u64,
    first_error: Option<String>,
    wait_ns: u64,
    latency: Histogram<u32>,
    phases: Vec<PhaseReport>,
    late: Histogram<u32>,
    late_reads: u64,
    measured: u64,
    by_second: Vec<u64>,
}

impl Seen {
    /// `figures` significant ones of each time: two take 17 KB a thread, one 2 KB.
    fn new(figures: u8) -> Self {
        let histogram = || Histogram::new_with_bounds(1, 600_000_000_000, figures).expect("sane bounds");
        Self {
            done: 0,
            bytes: 0,
            errors: 0,
            wrong: 0,
            first_error: None,
            wait_ns: 0,
            latency: histogram(),
            phases: Vec::new(),
            late: histogram(),
            late_reads: 0,
            measured: 0,
            by_second: Vec::new(),
        }
    }

    fn complain(&mut self, sentence: String) {
        self.first_error.get_or_insert(sentence);
    }
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

fn report(stage: &Stage, seen: Vec<Seen>, elapsed: Duration, cat_took: Duration, capped: bool) -> Report {
    let (elapsed_ns, cat_ns) = (elapsed.as_nanos() as u64, cat_took.as_nanos() as u64);
    let mut total = Report { elapsed_ns, capped, cat_ns, ..Report::default() };
    let mut latency = Histogram::<u32>::new(2).expect("two figures");
    let mut late = latency.clone();
    let mut paced = stage.pace.map(|pace| PacedReport {
        demand_bytes_per_s: pace.bytes_per_s * stage.threads as u64,
        measured_bytes: 0,
        measured_ns: pace.measure_ns,
        by_second: Vec::new(),
        late: 0,
        late_p99_ns: 0,
    });
    for one in seen {
        total.done.push(one.done);
        total.bytes += one.bytes;
        total.errors += one.errors;
        total.wrong += one.wrong;
        total.wait_ns += one.wait_ns;
        total.first_error = total.first_error.or(one.first_error);
        total.phases.extend(one.phases);
        latency.add(&one.latency).expect("it grows by itself");
        late.add(&one.late).expect("it grows by itself");
        if let Some(paced) = &mut paced {
            paced.measured_bytes += one.measured;
            paced.late += one.late_reads;
            paced.by_second.resize(one.by_second.len().max(paced.by_second.len()), 0);
            paced.by_second.iter_mut().zip(one.by_second).for_each(|(all, one)| *all += one);
        }
    }
    if let Some(paced) = &mut paced {
        paced.late_p99_ns = late.value_at_quantile(0.99);
    }
    total.p50_ns = latency.value_at_quantile(0.5);
    total.p99_ns = latency.value_at_quantile(0.99);
    total.max_ns = latency.max();
    total.paced = paced;
    total
}

#[cfg(test)]
mod tests {
    use super::*;

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
