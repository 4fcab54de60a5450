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
//! Whatever fails here costs speed, never the run: a file that cannot be opened is left alone and counted.
//!
//! Worked example, `cat` of a file on a device of 30 ms (test `a_reader_is_run_ahead_of`): Seen, Read [0,+32) -> fetch
//! [32,160) in calls of 64 pages -> Done 30 ms -> `Waited` -> arrivals at 30 ms -> leaves published quiet but for the mark.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bowwave_core::{
    Action, Advice, Bytes, Config, Extent, FetchId, FileId, Input, Nanos, PAGE_SIZE, PageBit, PageCount,
    PageIndex, PageTable, Wave,
};
use bowwave_wire::{
    AGENT_GONE, AGENT_SERVING, Event, FILES_MAX, Harvest, KERNEL_AS_IS, KERNEL_OFF, KERNEL_ON, Kind,
};

use crate::arrivals::{Arrivals, Look, Outcome};
use crate::device_window::{CALL_PAGES_MAX, DeviceWindows};
use crate::explain_file::{DecisionLine, FileLine, HEADER, LEGEND};
use crate::files::{Descriptor, Origin, Refusal, runs};
use crate::memory;
use crate::priority;
use crate::prober::Probers;
use crate::segment::{SegmentError, SharedSegment, futex_wait, monotonic_ns, ring};
use crate::select::Selection;
use crate::summary::{Decisions, DeviceReport, FileReport, Report, page_bytes};

/// Files below 128 KiB are left alone: one window of the kernel holds them.
const SIZE_MIN: u64 = 128 << 10;
/// Events taken before anything else is looked at.
const DRAIN_MAX: usize = 256;
/// The longest sleep; the heartbeat is no older.
const SLEEP_MAX_NS: u64 = 100_000_000;
/// So many events in a row that led to no fetch, and the agent dozes: it looks again by itself after about twice the device's
/// latency, and nobody need ring. Ringing costs the reader a system call, and on a fast device its turn on the processor.
const VAIN_MAX: u32 = 16;
const DOZE_NS_MIN: u64 = 100_000;
const DOZE_NS_MAX: u64 = 2_000_000;
/// It dozes as long as something comes at least each so many dozes.
const DOZES: u64 = 4;
/// While something may come at any moment the agent does not sleep longer.
const NAP_NS: u64 = 50_000;
/// An event this old, and older than two latencies, comes too late.
const BEHIND_NS: u64 = 10_000_000;
/// So long we must have kept up before the kernel's heuristics are switched off again.
const KEPT_UP_NS: u64 = 250_000_000;
/// A place in the ring that is claimed and not published for so long is given away: its program was stopped or killed.
const STUCK_NS: u64 = 1_000_000;
/// The size of a file that is read past its end is looked at so often.
const REFRESH_NS: u64 = 10_000_000;
/// A descriptor of ours that is left alone so long is closed, and sooner if the program has closed the file.
const IDLE_NS: u64 = 1_000_000_000;
const HOUSEKEEPING_NS: u64 = 100_000_000;
const MEMORY_NS: u64 = 1_000_000_000;
/// Pages looked at around a read of unknown pages that were there: 256 KiB, twice that next to it, up to 8 MiB (60 us).
const SAMPLE_MIN: u64 = 64;
const SAMPLE_MAX: u64 = 2048;
/// Where nothing is cached but what is read, the agent looks around at one read in so many.
const SAMPLES_SKIP_MAX: u32 = 32;
/// A read told so recently cannot have been served by a device yet: what is present was present before.
const FRESH_NS: u64 = 60_000;
/// A read told so long ago, of pages that are settled by now, was told before that was published: it is old news. A reader
/// of cached pages sends a thousand of these while the agent takes the first.
const STALE_NS: u64 = 200_000;
/// Pages of a read that are looked at one by one.
const JUDGED_MAX: u64 = 4096;
/// A wait that is told as such: longer than a hit.
const HIT_NS: u64 = 20_000;
/// Leaves harvested in one housekeeping: 65,536 are all.
const HARVEST_MAX: usize = 8192;
/// Leaves on either side of a read that are harvested before it is told: 256 MiB at most, and only as far as there are
/// no so many in a row of which nothing was read.
const LEAVES_BEHIND: u64 = 1024;
const LEAVES_UNREAD: u32 = 2;
/// Threads whose latest read is remembered.
const THREADS_MAX: usize = 4096;
const DESCRIPTORS_MAX: usize = 16_384;

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
    pub explain: Option<(Box<dyn Write + Send>, String)>,
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

/// A running agent: a thread and the segment that it serves.
pub struct Agent {
    segment: Arc<SharedSegment>,
    stop: Arc<AtomicBool>,
    child: Arc<AtomicU32>,
    thread: Option<JoinHandle<Report>>,
}

impl Agent {
    /// Makes a segment and serves it.
    pub fn start(options: Options) -> Result<Self, SegmentError> {
        let segment = Arc::new(SharedSegment::create()?);
        Ok(Self::serve(segment, options))
    }

    fn serve(segment: Arc<SharedSegment>, options: Options) -> Self {
        let (stop, child) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        segment.size_min.store(SIZE_MIN, Ordering::Relaxed);
        // The first reads of a file are the kernel's to help, until we have met it: opening it takes us a moment.
        segment.kernel_default.store(KERNEL_AS_IS, Ordering::Relaxed);
        segment.heartbeat_ns.store(monotonic_ns(), Ordering::Relaxed);
        segment.agent_state.store(AGENT_SERVING, Ordering::SeqCst);
        let state = State::new(Arc::clone(&segment), options, Arc::clone(&child));
        let flag = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("bowwave-agent".into()).spawn(move || state.run(&flag));
        if thread.is_err() {
            segment.agent_state.store(AGENT_GONE, Ordering::SeqCst);
        }
        Self { segment, stop, child, thread: thread.ok() }
    }

    /// The segment's file, for the environment of the program.
    pub fn segment_path(&self) -> &Path {
        self.segment.path()
    }

    /// The program has this process id: its memory group counts from now on.
    pub fn serves(&self, pid: u32) {
        self.child.store(pid, Ordering::Relaxed);
    }

    /// Ends the service and returns what it came to.
    pub fn stop(mut self) -> Report {
        self.stop.store(true, Ordering::SeqCst);
        ring(&self.segment.bell);
        let report = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        self.segment.retire();
        report
    }
}

/// A file that was met.
struct Held {
    generation: u32,
    origin: Origin,
    number: u64,
    path: std::path::PathBuf,
    descriptor: Option<Descriptor>,
    size: u64,
    active: Nanos,
    refreshed: Nanos,
    outstanding: u32,
    published: BTreeSet<u64>,
    /// Our own account: pages read (Used), pages fetched and not read yet (Ahead).
    account: PageTable,
    fetched: u64,
    missed: u64,
    /// Looks around in a row that found nothing, and reads until the next look.
    samples_vain: u32,
    samples_skip: u32,
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
    issued: Nanos,
}

struct Explain {
    to: Box<dyn Write + Send>,
    named: BTreeSet<u64>,
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
    devices: BTreeSet<u64>,
    windows: DeviceWindows,
    arrivals: Arrivals,
    probers: Probers,
    out: HashMap<FetchId, Out>,
    told: HashMap<u32, Told>,
    explain: Option<Explain>,
    descriptors_max: usize,
    descriptors: usize,
    numbered: u64,
    active: Nanos,
    /// Events in a row that led to no fetch.
    vain: u32,
    stuck: Option<Nanos>,
    /// When we were behind last, whether the kernel's heuristics are on for that, and how often they were switched on.
    kept_up_since: Nanos,
    handed_back: bool,
    hand_backs: u64,
    kept: Nanos,
    measured: Nanos,
    memory: u64,
    refused: BTreeMap<Refusal, BTreeSet<u32>>,
    dormant: BTreeMap<&'static str, u64>,
    retired: Vec<FileReport>,
    processes: u64,
    events: u64,
    fetched: u64,
    missed: u64,
    calls: u64,
    calls_ns: u64,
}

impl State {
    fn new(segment: Arc<SharedSegment>, mut options: Options, child: Arc<AtomicU32>) -> Self {
        let memory = memory::allowance(options.memory, None);
        let mut config = Config { memory: Bytes(memory), ..Config::default() };
        if let Some(waste) = options.waste_percent {
            (config.waste_percent, config.waste_absolute) = (waste, true);
        }
        let explain = options.explain.take().map(|(mut to, command)| {
            let told = writeln!(to, "{HEADER}\n# run {command}\n{LEGEND}");
            (told.map_err(complain).is_ok(), Explain { to, named: BTreeSet::new() })
        });
        let start_ns = monotonic_ns();
        Self {
            windows: DeviceWindows::new(options.lend_windows && is_root()),
            probers: Probers::new(Arc::clone(&segment)),
            segment,
            options,
            child,
            start_ns,
            wave: Wave::new(config),
            config,
            begun: false,
            files: HashMap::new(),
            devices: BTreeSet::new(),
            arrivals: Arrivals::default(),
            out: HashMap::new(),
            told: HashMap::new(),
            explain: explain.and_then(|(works, explain)| works.then_some(explain)),
            descriptors_max: 512,
            descriptors: 0,
            numbered: 0,
            active: Nanos(0),
            vain: 0,
            stuck: None,
            kept_up_since: Nanos(0),
            handed_back: false,
            hand_backs: 0,
            kept: Nanos(0),
            measured: Nanos(0),
            memory,
            refused: BTreeMap::new(),
            dormant: BTreeMap::new(),
            retired: Vec::new(),
            processes: 0,
            events: 0,
            fetched: 0,
            missed: 0,
            calls: 0,
            calls_ns: 0,
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Report {
        priority::prompt(self.options.lend_windows && is_root());
        loop {
            self.beat();
            self.drain(DRAIN_MAX);
            self.arrive();
            self.act();
            self.publish();
            self.keep_house();
            if stop.load(Ordering::SeqCst) {
                return self.finish();
            }
            self.sleep();
        }
    }

    fn now(&self) -> Nanos {
        Nanos(monotonic_ns().saturating_sub(self.start_ns))
    }

    fn beat(&self) {
        self.segment.heartbeat_ns.store(monotonic_ns(), Ordering::Relaxed);
    }

    // ---- events ----------------------------------------------------------------------------------------------------

    fn drain(&mut self, max: usize) {
        for _ in 0..max {
            let Some(event) = self.segment.pop() else {
                self.unstick();
                return;
            };
            self.stuck = None;
            self.events += 1;
            self.vain = self.vain.saturating_add(1);
            self.take(&event);
        }
    }

    /// A place that is claimed and not published holds up everybody behind it.
    fn unstick(&mut self) {
        if !self.segment.has_events() {
            self.stuck = None;
            return;
        }
        let now = self.now();
        let since = *self.stuck.get_or_insert(now);
        if now.since(since).0 > STUCK_NS {
            self.segment.skip_stuck();
            self.stuck = None;
        }
    }

    fn take(&mut self, event: &Event) {
        let now = self.now();
        self.active = now;
        if event.kind == Kind::Process {
            return self.process(event);
        }
        if self.is_behind(event, now) {
            return;
        }
        if !self.meet(event, now) {
            return;
        }
        match event.kind {
            Kind::Read => self.read(event, now),
            Kind::Done | Kind::Surprise => self.done(event, now),
            Kind::Advice => self.advised(event, now),
            Kind::Seen | Kind::Process => {}
        }
    }

    /// Whether we have come too late to be of use to the read that the event tells of. Where readers keep every processor
    /// busy we get our share of it and no more; then the kernel's own heuristics, which need no agent, are switched on
    /// again until we have kept up for a while.
    fn is_behind(&mut self, event: &Event, now: Nanos) -> bool {
        let told = Nanos(event.at_ns.saturating_sub(self.start_ns));
        let latencies = self.devices.iter().filter_map(|&device| self.wave.device(device)?.0);
        let bearable = 2 * latencies.min().unwrap_or_default().0;
        let behind = now.since(told).0 > bearable.max(BEHIND_NS) && self.begun;
        if behind {
            self.kept_up_since = now;
        }
        let hand_back = now.since(self.kept_up_since).0 < KEPT_UP_NS && self.kept_up_since > Nanos(0);
        if hand_back != self.handed_back {
            self.handed_back = hand_back;
            self.hand_backs += u64::from(hand_back);
            self.set_kernel(if hand_back { KERNEL_ON } else { KERNEL_OFF });
        }
        behind
    }

    /// Switches the kernel's heuristics for every file that we steer.
    fn set_kernel(&self, kernel: u32) {
        if !self.options.kernel_off || self.options.dry_run {
            return;
        }
        for slot in self.files.keys().filter_map(|&slot| self.segment.file(slot)) {
            slot.kernel.store(kernel, Ordering::Relaxed);
        }
    }

    fn process(&mut self, event: &Event) {
        match event.detail {
            0 => self.processes += 1,
            2 => *self.dormant.entry("process | that sealed itself off (seccomp)").or_default() += 1,
            3 => *self.dormant.entry("process | behind another root (chroot)").or_default() += 1,
            4 => {
                // What it had open it has open no more: its file systems may be unmounted now.
                let its: Vec<u32> = self
                    .files
                    .iter()
                    .filter(|(_, f)| f.origin.pid == event.pid)
                    .map(|(&slot, _)| slot)
                    .collect();
                for slot in its {
                    self.let_go_if_closed(slot);
                }
            }
            _ => {}
        }
    }

    /// Makes sure that the event's file is known; whether it is one that we steer.
    fn meet(&mut self, event: &Event, now: Nanos) -> bool {
        let Some(slot) = self.segment.file(event.file) else { return false };
        if slot.generation.load(Ordering::Acquire) != event.generation
            || slot.ignored.load(Ordering::Relaxed) != 0
        {
            return false;
        }
        let (dev, ino) = (slot.dev.load(Ordering::Relaxed), slot.ino.load(Ordering::Relaxed));
        let origin = Origin { pid: event.pid, fd: event.fd, dev, ino };
        if let Some(held) = self.files.get_mut(&event.file)
            && held.generation == event.generation
        {
            held.active = now;
            if held.descriptor.is_some() || event.fd < 0 {
                return true;
            }
            held.origin = origin;
            self.reopen(event.file);
            return true;
        }
        if event.fd < 0 {
            return false;
        }
        self.forget(event.file);
        match Descriptor::open(&origin) {
            Ok(descriptor) => self.welcome(event, origin, descriptor, now),
            Err(refusal) => {
                self.refuse(event.file, refusal);
                false
            }
        }
    }

    fn welcome(&mut self, event: &Event, origin: Origin, descriptor: Descriptor, now: Nanos) -> bool {
        let path = origin.path().unwrap_or_default();
        if !self.options.selection.takes(&path) {
            self.refuse(event.file, Refusal::NotAskedFor);
            return false;
        }
        self.make_room();
        if !self.begun {
            self.begin(origin.dev, &descriptor);
        } else {
            self.windows.prepare(origin.dev, descriptor.borrow());
        }
        self.devices.insert(origin.dev);
        self.numbered += 1;
        let size = descriptor.size();
        let held = Held {
            generation: event.generation,
            origin,
            number: self.numbered,
            path,
            descriptor: Some(descriptor),
            size,
            active: now,
            refreshed: now,
            outstanding: 0,
            published: BTreeSet::new(),
            account: PageTable::new(PageIndex(size.div_ceil(PAGE_SIZE))),
            fetched: 0,
            missed: 0,
            samples_vain: 0,
            samples_skip: 0,
        };
        self.files.insert(event.file, held);
        self.descriptors += 1;
        let file = FileId(u64::from(event.file));
        self.wave.handle(now, Input::Open { file, device: origin.dev, size: Bytes(size) });
        if self.options.kernel_off
            && !self.options.dry_run
            && !self.handed_back
            && let Some(slot) = self.segment.file(event.file)
        {
            slot.kernel.store(KERNEL_OFF, Ordering::Relaxed);
        }
        true
    }

    /// The first file tells how large requests can be; the brain begins with that.
    fn begin(&mut self, device: u64, descriptor: &Descriptor) {
        raise_descriptor_limit(&mut self.descriptors_max);
        self.windows.prepare(device, descriptor.borrow());
        self.config.request_max = PageCount(self.windows.cap(device));
        self.config.reader_max = PageCount(self.windows.reader_pages(device));
        self.config.memory = Bytes(self.memory);
        self.wave = Wave::new(self.config);
        self.begun = true;
    }

    fn reopen(&mut self, slot: u32) {
        self.make_room();
        let Some(held) = self.files.get_mut(&slot) else { return };
        let Ok(descriptor) = Descriptor::open(&held.origin) else { return };
        self.windows.prepare(held.origin.dev, descriptor.borrow());
        held.descriptor = Some(descriptor);
        self.descriptors += 1;
    }

    fn refuse(&mut self, slot: u32, refusal: Refusal) {
        self.refused.entry(refusal).or_default().insert(slot);
        if !refusal.passes() {
            self.forget(slot);
            if let Some(slot) = self.segment.file(slot) {
                slot.kernel.store(KERNEL_ON, Ordering::Relaxed);
                slot.ignored.store(1, Ordering::Release);
            }
        }
    }

    fn read(&mut self, event: &Event, now: Nanos) {
        let pages = self.within(event, now);
        if pages.is_empty() {
            return;
        }
        let told_ns = event.at_ns.saturating_sub(self.start_ns);
        if now.0.saturating_sub(told_ns) > STALE_NS && self.is_settled(event.file, pages) {
            self.account_used(event.file, pages);
            self.wave.handle(now, Input::Used { file: FileId(u64::from(event.file)), pages });
            return;
        }
        self.harvest_around(event.file, pages, now);
        if self.missing(event.file, pages) > 0 {
            self.sample(event.file, pages, now.0.saturating_sub(told_ns) < FRESH_NS, now);
        }
        let missing = self.missing(event.file, pages);
        self.tell_read(event, pages, missing, now);
    }

    fn tell_read(&mut self, event: &Event, pages: Extent, missing: u64, now: Nanos) {
        if self.told.len() >= THREADS_MAX {
            self.told.clear();
        }
        self.told.insert(event.tid, Told { file: event.file, offset: event.offset, missing });
        self.account_used(event.file, pages);
        let file = FileId(u64::from(event.file));
        self.wave.handle(now, Input::Read { file, pages, actor: event.tid });
    }

    /// A read has returned, or a quiet one was slow. Of a quiet one the brain has not heard: it is told first.
    fn done(&mut self, event: &Event, now: Nanos) {
        let took = Nanos(u64::from(event.waited_ns));
        let told = self.told.get(&event.tid).copied();
        let told = told.filter(|t| (t.file, t.offset) == (event.file, event.offset));
        let pages = self.within(event, now);
        match told {
            Some(told) => {
                if took.0 > HIT_NS {
                    self.missed += told.missing;
                    if let Some(held) = self.files.get_mut(&event.file) {
                        held.missed += told.missing;
                    }
                }
            }
            None if pages.is_empty() => return,
            None => {
                let missing = self.missing(event.file, pages);
                self.tell_read(event, pages, missing, now);
            }
        }
        self.told.remove(&event.tid);
        if self.options.dry_run && told.is_none_or(|t| t.missing == 0) {
            // It waited because we did not fetch: nothing to learn from.
            return;
        }
        let file = FileId(u64::from(event.file));
        self.wave.handle(now, Input::Waited { file, pages, actor: event.tid, took });
        if told.is_none() && took.0 > HIT_NS {
            self.correct(event.file, pages, now);
        }
    }

    fn advised(&mut self, event: &Event, now: Nanos) {
        let Some(held) = self.files.get(&event.file) else { return };
        let advice = match event.detail as i32 {
            libc::POSIX_FADV_NORMAL => Advice::Normal,
            libc::POSIX_FADV_SEQUENTIAL => Advice::Sequential,
            libc::POSIX_FADV_RANDOM => Advice::Random,
            libc::POSIX_FADV_WILLNEED => Advice::WillNeed,
            libc::POSIX_FADV_DONTNEED => Advice::DontNeed,
            _ => return,
        };
        // A length of 0 means: to the end.
        let len = if event.len == 0 { held.size.saturating_sub(event.offset) } else { event.len };
        let pages =
            Extent::covering(event.offset, len).intersection(Extent::new(0, held.size.div_ceil(PAGE_SIZE)));
        self.wave.handle(now, Input::Advised { file: FileId(u64::from(event.file)), pages, advice });
    }

    /// The pages of an event that the file has. Past its known end, looks at its size again.
    fn within(&mut self, event: &Event, now: Nanos) -> Extent {
        let Some(held) = self.files.get_mut(&event.file) else { return Extent::new(0, 0) };
        if event.offset.saturating_add(event.len) > held.size && now.since(held.refreshed).0 > REFRESH_NS {
            held.refreshed = now;
            if let Some(descriptor) = &mut held.descriptor
                && descriptor.refresh()
            {
                held.size = descriptor.size();
                held.account.set_end_of_file(PageIndex(held.size.div_ceil(PAGE_SIZE)));
                let file = FileId(u64::from(event.file));
                let size = Bytes(held.size);
                self.wave.handle(now, Input::Open { file, device: held.origin.dev, size });
            }
        }
        Extent::covering(event.offset, event.len).intersection(Extent::new(0, held.size.div_ceil(PAGE_SIZE)))
    }

    /// Whether the brain would not ask to be told of a read of these pages.
    fn is_settled(&self, slot: u32, pages: Extent) -> bool {
        let file = FileId(u64::from(slot));
        let (first, last) = (pages.start.0, pages.end().0 - 1);
        pages.count.0 <= JUDGED_MAX
            && (first / 64..=last / 64).all(|leaf| {
                let from = if leaf == first / 64 { first % 64 } else { 0 };
                let to = if leaf == last / 64 { last % 64 } else { 63 };
                let mask = (!0 << from) & (!0 >> (63 - to));
                self.wave.leaf(file, leaf).1 & mask == mask
            })
    }

    /// Pages that the brain does not know of.
    fn missing(&self, slot: u32, pages: Extent) -> u64 {
        let file = FileId(u64::from(slot));
        let judged = pages.count.0.min(JUDGED_MAX);
        (0..judged).filter(|&i| !self.wave.resident(file, pages.start + PageCount(i))).count() as u64
    }

    // ---- what the kernel's cache holds -----------------------------------------------------------------------------

    /// Looks at unknown pages that are read and, where they are there, around them as far as everything is there. Reads
    /// that find nothing cost one look at their own pages; where looking around was vain, it is done less and less often.
    fn sample(&mut self, slot: u32, pages: Extent, fresh: bool, now: Nanos) {
        let Some(held) = self.files.get_mut(&slot) else { return };
        let Some(descriptor) = &held.descriptor else { return };
        if held.samples_skip > 0 {
            held.samples_skip -= 1;
            return;
        }
        let own = Extent { count: pages.count.min(PageCount(SAMPLE_MAX)), ..pages };
        if descriptor.presence(own).is_none_or(|presence| presence.iter().any(|&b| b & 1 == 0)) {
            return;
        }
        let end = PageIndex(held.size.div_ceil(PAGE_SIZE));
        let start = PageIndex(pages.start.0 / SAMPLE_MIN * SAMPLE_MIN);
        let (mut at, mut span) = (start, PageCount(SAMPLE_MIN.max(own.end().since(start).0)));
        let mut present: Vec<Extent> = Vec::new();
        while at < end && at.since(start).0 < SAMPLE_MAX {
            let around = Extent::between(at, end.min(at + span));
            let Some(presence) = descriptor.presence(around) else { break };
            let found = runs(around, &presence, true);
            let all = found.first() == Some(&around);
            present.extend(found);
            (at, span) = (around.end(), span + span);
            if !all {
                break;
            }
        }
        let there: u64 = present.iter().map(|run| run.count.0).sum();
        held.samples_vain =
            if there > own.count.0 { 0 } else { (held.samples_vain + 1).min(SAMPLES_SKIP_MAX) };
        held.samples_skip = held.samples_vain;
        let file = FileId(u64::from(slot));
        for run in present {
            // The read itself may have brought its pages by now, unless it was told just now.
            let parts = if fresh {
                [run, Extent::new(0, 0)]
            } else {
                [
                    Extent::between(run.start, run.end().min(own.start)),
                    Extent::between(run.start.max(own.end()), run.end()),
                ]
            };
            for part in parts.into_iter().filter(|part| !part.is_empty()) {
                self.wave.handle(now, Input::Present { file, pages: part });
            }
        }
    }

    /// A page that was believed there was slow: what else around it is not what we believe?
    fn correct(&mut self, slot: u32, pages: Extent, now: Nanos) {
        let Some(held) = self.files.get(&slot) else { return };
        let Some(descriptor) = &held.descriptor else { return };
        let end = held.size.div_ceil(PAGE_SIZE);
        let around = Extent::between(
            pages.start.back(PageCount(SAMPLE_MIN)),
            PageIndex((pages.end().0 + SAMPLE_MIN).min(end)),
        );
        let Some(presence) = descriptor.presence(around) else { return };
        let file = FileId(u64::from(slot));
        for run in runs(around, &presence, false) {
            self.wave.handle(now, Input::Dropped { file, pages: run });
        }
    }

    // ---- fetches ---------------------------------------------------------------------------------------------------

    fn arrive(&mut self) {
        let now = self.now();
        for found in self.probers.found() {
            let Some(out) = self.out.get(&found.fetch) else { continue };
            let at = Nanos(found.at_ns.saturating_sub(self.start_ns)).max(out.issued);
            let latency = self.wave.device(out.device).and_then(|d| d.0).unwrap_or_default();
            let was_there = found.at_once && 4 * at.since(out.issued).0 < latency.0;
            match (found.arrived, was_there) {
                (false, _) => self.landed(now, found.fetch, |fetch| Input::Failed { fetch }),
                (true, true) => self.landed(now, found.fetch, |fetch| Input::Skipped { fetch }),
                (true, false) => self.landed(now, found.fetch, |fetch| Input::Arrived { fetch }),
            }
        }
        if self.arrivals.next_look().is_none_or(|due| due > now) {
            return;
        }
        let files = &self.files;
        let landed = self.arrivals.look(now, |out| {
            let descriptor = files.get(&out.file).and_then(|held| held.descriptor.as_ref());
            match descriptor.and_then(|d| d.presence(Extent::new(out.page, 1))) {
                Some(presence) if presence[0] & 1 == 1 => Look::There,
                Some(_) => Look::NotYet,
                None => Look::Lost,
            }
        });
        for (out, outcome) in landed {
            match outcome {
                Outcome::Arrived => self.landed(now, out.fetch, |fetch| Input::Arrived { fetch }),
                Outcome::Failed => self.landed(now, out.fetch, |fetch| Input::Failed { fetch }),
            }
        }
    }

    fn landed(&mut self, now: Nanos, fetch: FetchId, input: impl FnOnce(FetchId) -> Input) {
        if let Some(out) = self.out.remove(&fetch)
            && let Some(held) = self.files.get_mut(&out.file)
        {
            held.outstanding = held.outstanding.saturating_sub(1);
        }
        self.wave.handle(now, input(fetch));
    }

    /// Sends what the brain wants sent. Between calls of up to 70 us, hears whoever has come in the meantime.
    fn act(&mut self) {
        loop {
            let now = self.now();
            let Some(Action::Fetch { id, file, pages, .. }) = self.wave.poll(now) else { break };
            self.vain = 0;
            let input = self.fetch(id, file.0 as u32, pages, now);
            if let Some(input) = input {
                self.wave.handle(self.now(), input);
            }
            self.publish();
            self.beat();
            if self.segment.has_events() {
                self.drain(DRAIN_MAX);
            }
            self.arrive();
        }
        self.explain();
    }

    /// Performs a fetch. What is known of it at once is returned; otherwise it is out.
    fn fetch(&mut self, id: FetchId, slot: u32, pages: Extent, now: Nanos) -> Option<Input> {
        if self.options.dry_run {
            return Some(Input::Skipped { fetch: id });
        }
        if self.files.get(&slot).is_some_and(|held| held.descriptor.is_none()) {
            self.reopen(slot);
        }
        let latency = self
            .files
            .get(&slot)
            .and_then(|held| self.wave.device(held.origin.dev))
            .and_then(|device| device.0);
        let Some(held) = self.files.get_mut(&slot) else { return Some(Input::Failed { fetch: id }) };
        let Some(descriptor) = &held.descriptor else { return Some(Input::Failed { fetch: id }) };
        let device = held.origin.dev;
        let presence = descriptor.presence(pages);
        let absent = match &presence {
            Some(presence) => runs(pages, presence, false),
            None => vec![pages],
        };
        let (Some(first), Some(last)) = (absent.first(), absent.last()) else {
            return Some(Input::Skipped { fetch: id });
        };
        let hull = Extent::between(first.start, last.end());
        let count: u64 = absent.iter().map(|run| run.count.0).sum();
        let before = monotonic_ns();
        let mut at = hull.start;
        while at < hull.end() {
            let cap = self.windows.cap(device);
            let piece = Extent::between(at, (at + PageCount(cap)).min(hull.end()));
            self.calls += 1;
            let held_before = if absent.len() == 1 { descriptor.cached(piece) } else { None };
            if let Err(error) = descriptor.readahead(piece) {
                self.calls_ns += monotonic_ns() - before;
                if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) {
                    self.refuse(slot, Refusal::NoReadahead);
                }
                return Some(Input::Failed { fetch: id });
            }
            if held_before == Some(0)
                && let Some(started) = descriptor.cached(piece)
                && started < piece.count.0
            {
                // The kernel cut it short. What it has not started is asked for again, from there.
                self.windows.observed(device, piece.count.0, started);
                if started == 0 {
                    self.calls_ns += monotonic_ns() - before;
                    return Some(Input::Failed { fetch: id });
                }
                at = piece.start + PageCount(started);
                continue;
            }
            at = piece.end();
        }
        self.calls_ns += monotonic_ns() - before;
        let page = hull.end().0 - 1;
        let issued = Nanos(before.saturating_sub(self.start_ns)).max(now);
        let trusted = descriptor.trusted();
        if trusted {
            self.arrivals.add(device, id, slot, page, issued, latency);
        } else if !self.probers.ask(device, id, descriptor.share(), page) {
            return Some(Input::Failed { fetch: id });
        }
        held.outstanding += 1;
        held.fetched += count;
        self.fetched += count;
        for run in absent {
            let fresh: Vec<Extent> = run_without(&held.account, run);
            for part in fresh {
                held.account.set(PageBit::Ahead, part);
            }
        }
        self.out.insert(id, Out { file: slot, device, issued });
        None
    }

    // ---- leaves ----------------------------------------------------------------------------------------------------

    fn publish(&mut self) {
        let changed = self.wave.take_changed();
        if changed.is_empty() || self.options.dry_run {
            return;
        }
        let now = self.now();
        for (file, leaf) in changed {
            let slot = file.0 as u32;
            let (quiet, settled) = self.wave.leaf(file, leaf);
            let Some(held) = self.files.get_mut(&slot) else { continue };
            if quiet == 0 && !held.published.contains(&leaf) {
                continue;
            }
            held.published.insert(leaf);
            if let Some(harvest) = self.segment.publish(slot, leaf, quiet, settled) {
                self.harvested(harvest, now);
            }
        }
    }

    fn harvested(&mut self, harvest: Harvest, now: Nanos) {
        let Some(held) = self.files.get_mut(&harvest.file) else { return };
        held.active = now;
        let mut bits = harvest.used;
        while bits != 0 {
            let first = bits.trailing_zeros();
            let count = (bits >> first).trailing_ones();
            let pages = Extent::new(harvest.leaf * 64 + u64::from(first), u64::from(count));
            bits &= if first + count == 64 { 0 } else { !0 << (first + count) };
            self.account_used(harvest.file, pages);
            self.wave.handle(now, Input::Used { file: FileId(u64::from(harvest.file)), pages });
        }
    }

    fn account_used(&mut self, slot: u32, pages: Extent) {
        if let Some(held) = self.files.get_mut(&slot) {
            held.account.set(PageBit::Used, pages);
            held.account.clear(PageBit::Ahead, pages);
        }
    }

    // ---- housekeeping ----------------------------------------------------------------------------------------------

    fn keep_house(&mut self) {
        let now = self.now();
        if now.since(self.kept).0 < HOUSEKEEPING_NS {
            return;
        }
        self.kept = now;
        self.harvest(now, HARVEST_MAX);
        let idle: Vec<u32> = self
            .files
            .iter()
            .filter(|(_, f)| {
                f.descriptor.is_some() && f.outstanding == 0 && now.since(f.active).0 > HOUSEKEEPING_NS
            })
            .map(|(&slot, _)| slot)
            .take(256)
            .collect();
        for slot in idle {
            let tired = self.files.get(&slot).is_some_and(|f| now.since(f.active).0 > IDLE_NS);
            if tired {
                self.let_go(slot);
            } else {
                self.let_go_if_closed(slot);
            }
        }
        self.free_slots();
        if now.since(self.measured).0 > MEMORY_NS {
            self.measured = now;
            let pid = Some(self.child.load(Ordering::Relaxed)).filter(|&pid| pid > 0);
            let memory = memory::allowance(self.options.memory, pid);
            if memory::differs(self.memory, memory) {
                self.memory = memory;
                self.wave.handle(now, Input::Memory { bytes: Bytes(memory) });
            }
            if let Some(explain) = &mut self.explain
                && let Err(error) = explain.to.flush()
            {
                complain(error);
                self.explain = None;
            }
        }
    }

    fn harvest(&mut self, now: Nanos, max: usize) {
        let leaves: Vec<(u32, u64)> = self
            .files
            .iter()
            .flat_map(|(&slot, f)| f.published.iter().map(move |&leaf| (slot, leaf)))
            .take(max)
            .collect();
        for (slot, leaf) in leaves {
            if let Some(harvest) = self.segment.harvest(slot, leaf) {
                self.harvested(harvest, now);
            }
        }
    }

    /// What was read quietly on the way here, before the brain is asked where this read belongs: leaf by leaf backwards, and
    /// forwards, as far as pages were read lately.
    fn harvest_around(&mut self, slot: u32, pages: Extent, now: Nanos) {
        let (first, last) = (pages.start.0 / 64, (pages.end().0 - 1) / 64);
        let own = first..=last.min(first + LEAVES_BEHIND);
        let before = (first.saturating_sub(LEAVES_BEHIND)..first).rev();
        let after = last + 1..=last + LEAVES_BEHIND;
        for leaf in own {
            self.harvest_leaf(slot, leaf, now);
        }
        let mut gone = 0;
        for leaf in before {
            gone = if self.harvest_leaf(slot, leaf, now) { 0 } else { gone + 1 };
            if gone == LEAVES_UNREAD {
                break;
            }
        }
        gone = 0;
        for leaf in after {
            gone = if self.harvest_leaf(slot, leaf, now) { 0 } else { gone + 1 };
            if gone == LEAVES_UNREAD {
                break;
            }
        }
    }

    fn harvest_leaf(&mut self, slot: u32, leaf: u64, now: Nanos) -> bool {
        let harvest = self.segment.harvest(slot, leaf);
        if let Some(harvest) = harvest {
            self.harvested(harvest, now);
        }
        harvest.is_some()
    }

    fn let_go_if_closed(&mut self, slot: u32) {
        let closed = self.files.get(&slot).is_some_and(|held| {
            held.outstanding == 0
                && held.descriptor.as_ref().is_some_and(|d| !held.origin.holds() || d.unlinked())
        });
        if closed {
            self.let_go(slot);
        }
    }

    /// Closes our descriptor. What is known of the file stays.
    fn let_go(&mut self, slot: u32) {
        if let Some(held) = self.files.get_mut(&slot)
            && held.descriptor.take().is_some()
        {
            self.descriptors -= 1;
        }
    }

    /// Keeps descriptors below the limit: the one left alone longest goes.
    fn make_room(&mut self) {
        while self.descriptors >= self.descriptors_max {
            let oldest = self
                .files
                .iter()
                .filter(|(_, f)| f.descriptor.is_some() && f.outstanding == 0)
                .min_by_key(|(_, f)| f.active)
                .map(|(&slot, _)| slot);
            let Some(oldest) = oldest else { return };
            self.let_go(oldest);
        }
    }

    /// Half of the slots are enough: those left alone longest are given back, an eighth at a time.
    fn free_slots(&mut self) {
        if self.files.len() < FILES_MAX / 2 {
            return;
        }
        let mut by_age: Vec<(Nanos, u32)> = self
            .files
            .iter()
            .filter(|(_, f)| f.outstanding == 0)
            .map(|(&slot, f)| (f.active, slot))
            .collect();
        by_age.sort_unstable();
        for (_, slot) in by_age.into_iter().take(FILES_MAX / 8) {
            self.forget(slot);
            self.segment.recycle(slot);
        }
    }

    /// Forgets a file altogether; what came of it stays in the report.
    fn forget(&mut self, slot: u32) {
        self.let_go(slot);
        let Some(held) = self.files.remove(&slot) else { return };
        for &leaf in &held.published {
            self.segment.publish(slot, leaf, 0, 0);
        }
        self.retired.push(file_report(&held));
        self.wave.handle(self.now(), Input::Close { file: FileId(u64::from(slot)) });
    }

    // ---- the file of decisions -------------------------------------------------------------------------------------

    fn explain(&mut self) {
        let decisions: Vec<_> = self.wave.take_trace().collect();
        let Some(explain) = &mut self.explain else { return };
        let files = &self.files;
        let written = decisions.iter().try_for_each(|decision| {
            let Some(held) = files.get(&(decision.file.0 as u32)) else { return Ok(()) };
            if explain.named.insert(held.number) {
                let line = FileLine {
                    number: held.number,
                    size: held.size,
                    device: device_name(held.origin.dev),
                    path: held.path.to_string_lossy().into_owned(),
                };
                writeln!(explain.to, "{line}")?;
            }
            writeln!(explain.to, "{}", DecisionLine::of(decision, held.number))
        });
        if let Err(error) = written {
            complain(error);
            self.explain = None;
        }
    }

    // ---- sleep and end ---------------------------------------------------------------------------------------------

    /// Sleeps until somebody rings or something is due. `asleep` is said before the ring is looked at for the last time,
    /// so that whoever pushes after that look rings.
    fn sleep(&mut self) {
        let now = self.now();
        let due = self.arrivals.next_look().map_or(SLEEP_MAX_NS, |due| due.since(now).0).min(SLEEP_MAX_NS);
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
    fn doze_ns(&self) -> u64 {
        let latencies = self.devices.iter().filter_map(|&device| self.wave.device(device)?.0);
        let once = latencies.min().map_or(DOZE_NS_MIN, |latency| 2 * latency.0);
        (once * u64::from(self.vain / VAIN_MAX)).clamp(DOZE_NS_MIN, DOZE_NS_MAX)
    }

    fn finish(mut self) -> Report {
        self.segment.agent_state.store(AGENT_GONE, Ordering::SeqCst);
        self.drain(bowwave_wire::EVENTS_MAX);
        let now = self.now();
        self.harvest(now, usize::MAX);
        self.explain();
        if let Some(explain) = &mut self.explain
            && let Err(error) = explain.to.flush()
        {
            complain(error);
        }
        for &slot in self.files.keys() {
            if let Some(slot) = self.segment.file(slot) {
                slot.kernel.store(KERNEL_ON, Ordering::Relaxed);
            }
        }
        self.report(now)
    }

    fn report(self, now: Nanos) -> Report {
        let mut files = self.retired;
        files.extend(self.files.values().map(file_report));
        files.sort_by_key(|f| (std::cmp::Reverse(f.used), f.number));
        let used: u64 = files.iter().map(|f| f.used).sum();
        let (fetched, missed) = (page_bytes(self.fetched), page_bytes(self.missed));
        let devices = self.devices.iter().filter_map(|&device| {
            let (latency, rate, in_flight_max) = self.wave.device(device)?;
            Some(DeviceReport {
                device: device_name(device),
                latency_us: latency.map(|l| l.0 as f64 / 1e3),
                bytes_per_s: rate,
                in_flight_max,
                pages_per_call: self.windows.cap(device).min(CALL_PAGES_MAX),
                window_lent: self.windows.lent(device),
            })
        });
        let mut not_steered: BTreeMap<String, u64> =
            self.refused.iter().map(|(refusal, slots)| (refusal.kind(), slots.len() as u64)).collect();
        not_steered.extend(self.dormant.iter().map(|(&words, &n)| (words.to_string(), n)));
        Report {
            elapsed_s: now.0 as f64 / 1e9,
            bytes_used: used,
            bytes_fetched: fetched,
            bytes_missed: missed,
            bytes_in_vain: files.iter().map(|f| f.wasted).sum(),
            fetched_per_used: (used > 0).then(|| (fetched + missed) as f64 / used as f64),
            fetch_calls: self.calls,
            fetch_calls_s: self.calls_ns as f64 / 1e9,
            agent_cpu_s: thread_cpu_s(),
            decisions: Decisions::from(self.wave.counters()),
            processes: self.processes,
            events_lost: self.segment.events_lost.load(Ordering::Relaxed),
            events: self.events,
            handed_back: self.hand_backs,
            memory: self.memory,
            not_steered,
            unsurprising: [Refusal::Gone, Refusal::NotAskedFor].map(Refusal::kind).into(),
            devices: devices.collect(),
            files,
        }
    }
}

/// Parts of `run` that were not read yet.
fn run_without(account: &PageTable, run: Extent) -> Vec<Extent> {
    let mut parts = Vec::new();
    let mut at = run.start;
    for used in account.runs(PageBit::Used, run) {
        parts.push(Extent::between(at, used.start));
        at = used.end();
    }
    parts.push(Extent::between(at, run.end()));
    parts.retain(|part| !part.is_empty());
    parts
}

fn file_report(held: &Held) -> FileReport {
    let all = Extent::new(0, u64::MAX);
    FileReport {
        number: held.number,
        path: held.path.clone(),
        size: held.size,
        used: page_bytes(held.account.count(PageBit::Used, all).0),
        fetched: page_bytes(held.fetched),
        missed: page_bytes(held.missed),
        wasted: page_bytes(held.account.count(PageBit::Ahead, all).0),
    }
}

fn device_name(device: u64) -> String {
    format!("{}:{}", libc::major(device), libc::minor(device))
}

fn complain(error: std::io::Error) {
    eprintln!("bowwave: cannot write the decisions: {error}; going on without");
}

fn is_root() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::geteuid() == 0 }
}

/// As many descriptors as we may have; half of them, and no more than [`DESCRIPTORS_MAX`], for files.
fn raise_descriptor_limit(max: &mut usize) {
    // SAFETY: reads and writes one structure that is ours.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            let want = limit.rlim_max.min(2 * DESCRIPTORS_MAX as u64 + 64);
            let raised = libc::rlimit { rlim_cur: want.max(limit.rlim_cur), ..limit };
            let now = if libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 { raised } else { limit };
            *max = (now.rlim_cur as usize / 2).clamp(8, DESCRIPTORS_MAX);
        }
    }
}

fn thread_cpu_s() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec that is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::time::Instant;

    /// The program's side: what the shim does, in a few lines.
    struct Program<'a> {
        segment: &'a SharedSegment,
        file: File,
        slot: bowwave_wire::FileRef,
    }

    impl<'a> Program<'a> {
        fn open(segment: &'a SharedSegment, file: File) -> Self {
            let meta = file.metadata().unwrap();
            let slot = segment.bind(meta.dev(), meta.ino(), meta.len()).unwrap();
            let this = Self { segment, file, slot };
            this.tell(Kind::Seen, 0, meta.len(), 0);
            this
        }

        fn tell(&self, kind: Kind, offset: u64, len: u64, waited_ns: u32) {
            let event = Event {
                kind,
                detail: 0,
                pid: std::process::id(),
                tid: 1,
                fd: self.file.as_raw_fd(),
                file: self.slot.index,
                generation: self.slot.generation,
                offset,
                len,
                at_ns: monotonic_ns(),
                waited_ns,
            };
            if self.segment.push(&event) {
                ring(&self.segment.bell);
            }
        }

        /// Reads, and says whether anybody wanted to hear of it.
        fn read(&self, offset: u64, len: usize) -> bool {
            let standing = self.segment.touch(self.slot.index, offset, len as u64);
            let loud = standing == bowwave_wire::Standing::Loud;
            if loud {
                self.tell(Kind::Read, offset, len as u64, 0);
            }
            let began = Instant::now();
            self.file.read_at(&mut vec![0; len], offset).unwrap();
            let waited = began.elapsed().as_nanos() as u32;
            if waited > 5_000 {
                self.tell(Kind::Done, offset, len as u64, waited);
            }
            loud
        }
    }

    fn temporary(pages: usize) -> (tempfile::TempDir, File) {
        // Not in /tmp, which may be memory: there is nothing to read ahead there.
        let dir = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; pages * 4096]).unwrap();
        (dir, File::open(path).unwrap())
    }

    fn absent(file: &File) {
        file.sync_all().unwrap();
        // SAFETY: advice on an open descriptor touches no memory of ours.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }

    fn agent() -> (tempfile::TempDir, Agent) {
        let dir = tempfile::tempdir().unwrap();
        let segment = Arc::new(SharedSegment::create_in(dir.path()).unwrap());
        let agent = Agent::serve(segment, Options { lend_windows: false, ..Options::default() });
        (dir, agent)
    }

    #[test]
    fn a_reader_is_run_ahead_of() {
        let (_dir, agent) = agent();
        let (_tmp, file) = temporary(4096);
        absent(&file);
        let segment = Arc::clone(&agent.segment);
        let program = Program::open(&segment, file);
        let loud = (0..4096 / 32).filter(|i| program.read(i * 131_072, 131_072)).count();
        std::thread::sleep(Duration::from_millis(5));
        let report = agent.stop();
        assert!(loud < 128, "some pages became quiet");
        assert_eq!(report.bytes_used, 4096 * 4096);
        assert_eq!(report.files.len(), 1);
        assert!(report.decisions.windows > 0 && report.decisions.pages_ahead > 0, "{report:?}");
        assert_eq!((report.events_lost, report.not_steered.len()), (0, 0), "{report:?}");
    }

    #[test]
    fn a_cached_file_goes_quiet() {
        let (_dir, agent) = agent();
        let (_tmp, file) = temporary(2048);
        let segment = Arc::clone(&agent.segment);
        let program = Program::open(&segment, file);
        for i in 0..64 {
            program.read(i * 4096, 4096);
            std::thread::sleep(Duration::from_millis(1));
        }
        let loud = (0..2048).filter(|i| program.read(i * 4096, 4096)).count();
        let report = agent.stop();
        assert!(loud < 200, "{loud} of 2048 reads of present pages were told");
        assert_eq!(report.bytes_fetched, 0, "{report:?}");
    }

    #[test]
    fn a_dry_run_fetches_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let segment = Arc::new(SharedSegment::create_in(dir.path()).unwrap());
        let agent = Agent::serve(Arc::clone(&segment), Options { dry_run: true, ..Options::default() });
        assert_eq!(segment.kernel_default.load(Ordering::Relaxed), KERNEL_AS_IS);
        let (_tmp, file) = temporary(1024);
        absent(&file);
        let program = Program::open(&segment, file);
        assert!((0..32).all(|i| program.read(i * 131_072, 131_072)), "nothing is quiet");
        let report = agent.stop();
        assert_eq!((report.bytes_fetched, report.fetch_calls), (0, 0));
        assert!(report.decisions.windows > 0);
    }

    #[test]
    fn a_file_that_was_not_asked_for_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let segment = Arc::new(SharedSegment::create_in(dir.path()).unwrap());
        let selection = Selection { only: vec!["*.gguf".into()], except: Vec::new() };
        let agent = Agent::serve(Arc::clone(&segment), Options { selection, ..Options::default() });
        let (_tmp, file) = temporary(64);
        let program = Program::open(&segment, file);
        let slot = segment.file(program.slot.index).unwrap();
        let began = Instant::now();
        while slot.ignored.load(Ordering::Acquire) == 0 && began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(slot.kernel.load(Ordering::Relaxed), KERNEL_ON);
        assert_eq!(agent.stop().not_steered.values().sum::<u64>(), 1);
    }
}
