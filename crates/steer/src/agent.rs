//! The agent of a run: hears what programs read, asks the brain, fetches, and tells which pages are quiet.
//!
//! ```text
//!        .--> drain events --> arrivals --> fetch, a few calls at a time --> publish leaves --> housekeeping --.
//!        '------------- sleep on the bell, until the next look at a fetch, or 100 ms at most <----------------'
//! ```
//!
//! Nothing is decided here: the agent translates. What it adds is knowledge of the kernel's cache: `mincore` before a
//! fetch (what is there is not fetched), after it (arrivals), and around reads of which the brain knows nothing (a file
//! that is cached already shall go quiet at once).
//!
//! Rooms: `events` what programs tell, `mapped` which pages of mappings they touch, `samples` what perf says of that, `fetching` what the brain
//! wants, `housekeeping` what is given up again, `account` who brought which page, `report` and `retired` what it came to. Whatever fails here
//! costs speed, never the run: a file that cannot be opened is left alone and counted.
//!
//! Worked example, `cat` of a file on a device of 30 ms (test `a_reader_is_run_ahead_of`): Seen, Read [0,+32) -> fetch
//! [32,160) in calls of 64 pages -> Done 30 ms -> `Waited` -> arrivals at 30 ms -> leaves published quiet but for the mark.

mod account;
mod events;
mod fetching;
mod helper;
mod housekeeping;
mod mapped;
mod outside;
mod report;
mod retired;
mod samples;
mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bowwave_core::{Bytes, Config, Extent, FetchId, Nanos, Wave};
use bowwave_wire::{AGENT_GONE, AGENT_SERVING, KERNEL_AS_IS, MAPS_STEERED, MAPS_TOLD, MAPS_UNSEEN};

use crate::arrivals::Arrivals;
use crate::device_window::DeviceWindows;
use crate::explain_file::ExplainFile;
use crate::files::{Descriptor, Origin, Refusal};
use crate::memory;
use crate::observer::OutsideBy;
use crate::pagemap::can_scan;
use crate::perf::Watch;
use crate::priority;
use crate::prober::Probers;
use crate::processes::{Processes, proc_is_ours};
use crate::segment::{SegmentError, SharedSegment, futex_wait, monotonic_ns, ring};
use crate::select::Selection;
use crate::signals::is_called;
use crate::summary::Report;

use account::Account;
use housekeeping::raise_descriptor_limit;
pub use mapped::Faults;
use mapped::Mapped;
use outside::{Opened, Outside};
use retired::Retired;
use samples::Samples;

/// Files below 128 KiB are left alone: one window of the kernel holds them.
const SIZE_MIN: u64 = 128 << 10;
/// Events taken before anything else is looked at.
const DRAIN_MAX: usize = 256;
/// Between two looks at perf's rings while something comes: a quarter of the device's latency, at least and at most.
const LOOK_NS_MIN: u64 = 100_000;
const LOOK_NS_MAX: u64 = 1_000_000;
/// The longest sleep; the heartbeat is no older.
const SLEEP_MAX_NS: u64 = 100_000_000;
/// So many events in a row that led to no fetch, and the agent dozes: it looks again by itself after about twice the device's
/// latency, and nobody need ring. Ringing costs the reader a system call, and on a fast device its turn on the processor.
const VAIN_MAX: u32 = 16;
/// After so many it lets others go first.
const LEISURELY_VAIN_MIN: u32 = 4 * VAIN_MAX;
const DOZE_NS_MIN: u64 = 100_000;
const DOZE_NS_MAX: u64 = 2_000_000;
/// It dozes as long as something comes at least each so many dozes.
const DOZES: u64 = 4;
/// While something may come at any moment the agent does not sleep longer.
const NAP_NS: u64 = 50_000;
/// Threads whose latest read is remembered.
const THREADS_MAX: usize = 4096;
const DESCRIPTORS_MAX: usize = 16_384;
/// The program has ended: so long its parent may have to wait until the agent has told what it came to. A storage that hangs
/// may hold up the agent for ever.
const STOP_MAX: Duration = Duration::from_secs(2);
/// The same once somebody has signalled us.
const STOP_CALLED_MAX: Duration = Duration::from_millis(100);
/// Between two looks whether somebody has.
const STOP_LOOK: Duration = Duration::from_millis(20);

/// What a run is asked to do.
pub struct Options {
    /// Observe and decide, fetch nothing.
    pub dry_run: bool,
    /// Root may lend our descriptors a larger window.
    pub lend_windows: bool,
    /// What the kernel's own heuristics shall do with the programs' descriptors; switched off if `true`.
    pub kernel_off: bool,
    /// Ceiling of the memory that prefetched pages may occupy.
    pub memory: Option<u64>,
    /// Pages fetched in vain that are tolerated for each hundred used.
    pub waste_percent: Option<u32>,
    /// Files to steer.
    pub selection: Selection,
    /// Where every decision is written, and the command to name there.
    pub explain: Option<(ExplainFile, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dry_run: false,
            lend_windows: true,
            kernel_off: true,
            memory: None,
            waste_percent: None,
            selection: Selection::default(),
            explain: None,
        }
    }
}

/// What the thread that starts the program has opened, on its way to the agent's.
#[derive(Default)]
struct Coming {
    faults: Option<Option<Watch>>,
    outside: Option<Opened>,
}

/// A running agent: a thread and the segment that it serves.
pub struct Agent {
    segment: Arc<SharedSegment>,
    stop: Arc<AtomicBool>,
    child: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
    report: Receiver<Report>,
    /// What may be seen of page faults, on its way to the agent's thread.
    coming: Arc<Mutex<Coming>>,
    dry_run: bool,
}

impl Agent {
    /// Makes a segment and serves it. Where there is no place for one the agent serves nobody but who watches from outside
    /// ([`Agent::watch_outside`]), and it is said why.
    ///
    /// # Errors
    /// If there is no memory either.
    pub fn start(options: Options) -> Result<(Self, Option<SegmentError>), SegmentError> {
        match SharedSegment::create() {
            Ok(segment) => Ok((Self::serve(Arc::new(segment), options), None)),
            Err(error) => match SharedSegment::create_alone() {
                Ok(segment) => Ok((Self::serve(Arc::new(segment), options), Some(error))),
                Err(_) => Err(error),
            },
        }
    }

    fn serve(segment: Arc<SharedSegment>, options: Options) -> Self {
        let (stop, child) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        segment.size_min.store(SIZE_MIN, Ordering::Relaxed);
        // The first reads of a file are the kernel's to help, until we have met it: opening it takes us a moment.
        segment.kernel_default.store(KERNEL_AS_IS, Ordering::Relaxed);
        segment.heartbeat_ns.store(monotonic_ns(), Ordering::Relaxed);
        segment.agent_state.store(AGENT_SERVING, Ordering::SeqCst);
        let (coming, dry_run) = (Arc::default(), options.dry_run);
        let state = State::new(Arc::clone(&segment), options, Arc::clone(&child), Arc::clone(&coming));
        let flag = Arc::clone(&stop);
        let (to, report) = channel();
        // Whoever waited for it may have gone.
        let run = move || _ = to.send(state.run(&flag));
        let thread = std::thread::Builder::new().name("bowwave-agent".into()).spawn(run);
        if thread.is_err() {
            segment.agent_state.store(AGENT_GONE, Ordering::SeqCst);
        }
        Self { segment, stop, child, thread: thread.ok(), report, coming, dry_run }
    }

    /// The segment's file, for the environment of the program, if it has one.
    pub fn segment_path(&self) -> Option<&Path> {
        self.segment.path()
    }

    /// The program has this process id: its memory group counts from now on.
    pub fn serves(&self, pid: u32) {
        self.child.store(pid, Ordering::Relaxed);
    }

    /// Watches the page faults of all programs that this thread will start. To be called before it starts one.
    pub fn watch_faults(&self) {
        // Faults are told by our numbers, and mappings are looked at in /proc.
        if !proc_is_ours() {
            return;
        }
        let watch = Samples::open(is_root());
        // Looked at in page tables, touches are known too late to do without the kernel's own reading around them.
        let maps = match (&watch, self.dry_run) {
            (Some(_), false) => MAPS_STEERED,
            (Some(_), true) => MAPS_TOLD,
            (None, _) if can_scan() => MAPS_TOLD,
            (None, _) => MAPS_UNSEEN,
        };
        self.coming.lock().unwrap_or_else(PoisonError::into_inner).faults = Some(watch);
        self.segment.steer_maps.store(maps, Ordering::Release);
        ring(&self.segment.bell);
    }

    /// Watches the reads of all programs that this thread will start, from outside; or says why that cannot be.
    pub fn watch_outside(&self, by: OutsideBy) -> Result<(), String> {
        let opened = Opened::on_this_thread(by)?;
        self.coming.lock().unwrap_or_else(PoisonError::into_inner).outside = Some(opened);
        ring(&self.segment.bell);
        Ok(())
    }

    /// Ends the service and returns what it came to; nothing, if the agent waits for a storage that does not answer. It is left
    /// behind then, and ends with this process. Who signals us meanwhile shortens the wait.
    pub fn stop(mut self) -> Option<Report> {
        self.stop.store(true, Ordering::SeqCst);
        ring(&self.segment.bell);
        let report = self.last_words();
        self.segment.retire();
        if report.is_some() {
            // It has nothing left to do.
            _ = self.thread.take().map(JoinHandle::join);
        }
        report
    }

    fn last_words(&self) -> Option<Report> {
        let begun = Instant::now();
        loop {
            match self.report.recv_timeout(STOP_LOOK) {
                Ok(report) => return Some(report),
                Err(RecvTimeoutError::Disconnected) => return Some(Report::default()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if begun.elapsed() > if is_called() { STOP_CALLED_MAX } else { STOP_MAX } {
                return None;
            }
        }
    }
}

/// A file that was met.
struct Held {
    generation: u32,
    origin: Origin,
    number: u64,
    /// Whether the file of decisions says who it is.
    named: bool,
    path: std::path::PathBuf,
    descriptor: Option<Descriptor>,
    size: u64,
    active: Nanos,
    refreshed: Nanos,
    outstanding: u32,
    account: Account,
    /// Looks around in a row that found nothing, and reads until the next look.
    samples_vain: u32,
    samples_skip: u32,
    /// Touches that stand alone and waited, and that the brain has not heard of, about.
    untold: u64,
    /// Whether its readers have only touched mappings so far, and the brain hears of every page; `None` before the first.
    touched_only: Option<bool>,
}

/// The latest read that a thread told of.
#[derive(Clone, Copy)]
struct Told {
    file: u32,
    offset: u64,
    missing: u64,
}

/// A fetch that is out.
struct Out {
    file: u32,
    device: u64,
    /// From its first absent page to its last.
    pages: Extent,
    issued: Nanos,
    /// A prober waits for it, since we may not look.
    probed: bool,
}

struct State {
    segment: Arc<SharedSegment>,
    options: Options,
    child: Arc<AtomicU32>,
    start_ns: u64,
    wave: Wave,
    config: Config,
    begun: bool,
    files: HashMap<u32, Held>,
    /// Leaves of files that we have published, by slot and number, and the one that was harvested last in going round them.
    published: BTreeSet<(u32, u64)>,
    harvested_last: (u32, u64),
    /// Files that were closed, or whose program ends, since this was looked at.
    closed: BTreeSet<u32>,
    devices: BTreeSet<u64>,
    windows: DeviceWindows,
    /// Root, and not told to do without what only root can do.
    privileged: bool,
    arrivals: Arrivals,
    probers: Probers,
    out: HashMap<FetchId, Out>,
    told: HashMap<u32, Told>,
    who: Processes,
    /// Where decisions are written.
    explain: Option<ExplainFile>,
    mapped: Mapped,
    outside: Outside,
    coming: Arc<Mutex<Coming>>,
    descriptors_max: usize,
    descriptors: usize,
    numbered: u64,
    active: Nanos,
    /// Events in a row that led to no fetch.
    vain: u32,
    /// Whether it lets others go first, since nothing comes of what it hears.
    leisurely: bool,
    stuck: Option<Nanos>,
    /// When we were behind last, whether the kernel's heuristics are on for that, and how often they were switched on.
    kept_up_since: Nanos,
    handed_back: bool,
    hand_backs: u64,
    kept: Nanos,
    /// When windows that wait to be read are looked after next.
    look_after: Nanos,
    measured: Nanos,
    memory: u64,
    /// Slots of files that were refused, and how many files were whose slots are others' now.
    refused: BTreeMap<Refusal, BTreeSet<u32>>,
    refused_before: BTreeMap<Refusal, u64>,
    /// Slots that had a file at the last look and that we do not hold.
    unheld: BTreeSet<u32>,
    dormant: BTreeMap<&'static str, u64>,
    retired: Retired,
    processes: u64,
    events: u64,
    calls: u64,
    calls_ns: u64,
}

impl State {
    fn new(
        segment: Arc<SharedSegment>,
        mut options: Options,
        child: Arc<AtomicU32>,
        coming: Arc<Mutex<Coming>>,
    ) -> Self {
        let memory = memory::allowance(options.memory, None);
        let mut config = Config { memory: Bytes(memory), ..Config::default() };
        if let Some(waste) = options.waste_percent {
            (config.waste_percent, config.waste_absolute) = (waste, true);
        }
        let explain = options.explain.take().map(|(mut file, command)| {
            file.begin(&command);
            file
        });
        let start_ns = monotonic_ns();
        let privileged = options.lend_windows && is_root();
        let who = Processes::new(&segment);
        Self {
            windows: DeviceWindows::new(privileged),
            privileged,
            probers: Probers::new(Arc::clone(&segment)),
            segment,
            options,
            child,
            start_ns,
            wave: Wave::new(config),
            config,
            begun: false,
            files: HashMap::new(),
            published: BTreeSet::new(),
            harvested_last: (0, 0),
            closed: BTreeSet::new(),
            devices: BTreeSet::new(),
            arrivals: Arrivals::default(),
            out: HashMap::new(),
            told: HashMap::new(),
            who,
            explain,
            mapped: Mapped::default(),
            outside: Outside::default(),
            coming,
            descriptors_max: 512,
            descriptors: 0,
            numbered: 0,
            active: Nanos(0),
            vain: 0,
            leisurely: false,
            stuck: None,
            kept_up_since: Nanos(0),
            handed_back: false,
            hand_backs: 0,
            kept: Nanos(0),
            look_after: Nanos(0),
            measured: Nanos(0),
            memory,
            refused: BTreeMap::new(),
            refused_before: BTreeMap::new(),
            unheld: BTreeSet::new(),
            dormant: BTreeMap::new(),
            retired: Retired::default(),
            processes: 0,
            events: 0,
            calls: 0,
            calls_ns: 0,
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Report {
        priority::prompt(self.privileged);
        loop {
            self.beat();
            self.take_watch();
            self.drain(DRAIN_MAX);
            self.let_go_of_closed();
            self.faults();
            self.look_outside();
            self.arrive();
            self.look_after_windows();
            self.act();
            self.publish();
            self.keep_house();
            if stop.load(Ordering::SeqCst) {
                return self.finish();
            }
            self.make_way();
            self.sleep();
        }
    }

    /// Goes before others while something comes of what it hears, and behind them where nothing does.
    fn make_way(&mut self) {
        let leisurely = self.vain >= LEISURELY_VAIN_MIN;
        if core::mem::replace(&mut self.leisurely, leisurely) != leisurely {
            if leisurely { priority::leisurely(self.privileged) } else { priority::prompt(self.privileged) }
        }
    }

    /// Takes over what the thread that starts the program has opened.
    fn take_watch(&mut self) {
        let Ok(mut coming) = self.coming.try_lock() else { return };
        if let Some(watch) = coming.faults.take() {
            self.mapped.begin(watch, &self.segment);
        }
        if let Some(opened) = coming.outside.take() {
            self.outside.begin(opened, &self.segment);
        }
    }

    fn now(&self) -> Nanos {
        Nanos(monotonic_ns().saturating_sub(self.start_ns))
    }

    fn beat(&self) {
        self.segment.heartbeat_ns.store(monotonic_ns(), Ordering::Relaxed);
    }

    /// Sleeps until somebody rings or something is due. `asleep` is said before the ring is looked at for the last time,
    /// so that whoever pushes after that look rings.
    pub(super) fn sleep(&mut self) {
        let now = self.now();
        let due = self.arrivals.next_look().map_or(SLEEP_MAX_NS, |due| due.since(now).0).min(SLEEP_MAX_NS);
        let due =
            if self.wave.unread().0 > 0 { due.min(self.look_after.since(now).0.max(NAP_NS)) } else { due };
        let due = self.mapped_patience(now).map_or(due, |patience| due.min(patience));
        let due = self.outside_patience(now).map_or(due, |patience| due.min(patience));
        let doze = self.doze_ns();
        let dozes = self.vain >= VAIN_MAX && now.since(self.active).0 < DOZES * doze;
        let patience = match (dozes, self.segment.has_events()) {
            (true, _) => due.min(doze),
            (false, true) => due.min(NAP_NS),
            (false, false) => due,
        };
        if patience < 5_000 {
            return;
        }
        let segment = &self.segment;
        let bell = segment.bell.load(Ordering::SeqCst);
        if dozes {
            futex_wait(&segment.bell, bell, Duration::from_nanos(patience));
            return;
        }
        segment.asleep.store(1, Ordering::SeqCst);
        if !segment.has_events() || self.stuck.is_some() {
            futex_wait(&segment.bell, bell, Duration::from_nanos(patience));
        }
        segment.asleep.store(0, Ordering::SeqCst);
    }

    /// Twice the latency of the fastest device, and longer the longer nothing came of what was heard: up to 2 ms.
    pub(super) fn doze_ns(&self) -> u64 {
        let once = self.latency_min().map_or(DOZE_NS_MIN, |latency| 2 * latency.0);
        (once * u64::from(self.vain / VAIN_MAX)).clamp(DOZE_NS_MIN, DOZE_NS_MAX)
    }

    /// From one look at perf's rings to the next: a quarter of the latency of the fastest device.
    pub(super) fn look_ns(&self) -> u64 {
        self.latency_min().map_or(LOOK_NS_MIN, |latency| latency.0 / 4).clamp(LOOK_NS_MIN, LOOK_NS_MAX)
    }

    /// Latencies of the devices, where they are known.
    pub(super) fn latencies(&self) -> impl Iterator<Item = Nanos> {
        self.devices.iter().filter_map(|&device| self.wave.device(device)?.latency)
    }

    /// That of the fastest.
    pub(super) fn latency_min(&self) -> Option<Nanos> {
        self.latencies().min()
    }
}

fn is_root() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests;
