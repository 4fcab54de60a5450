//! The world: programs that read and write, a page cache in scarce memory, a device, and somebody who fetches ahead, in
//! virtual time.
//!
//! ```text
//!   program --step--> read [4,+2) --> cache: present? in flight? marked? --> brain: which window next?
//!      ^                                 |                                        |
//!      |  wakes                          | evicts the oldest, tells the brain     v
//!      +------------- arrival <------ machine (disk, raid, ssd, network) <---- requests
//! ```
//!
//! Events are ordered by time, ties by the order in which they were made; every random number comes from one seed and a
//! name. The same configuration gives the same outcome, byte for byte. The world decides nothing about readahead: it asks
//! the core (see `brain`), and what the core leaves out the reader itself fetches, page by page, as a kernel does.
//!
//! Worked example (test `one_page_of_t11`): a 4 KiB read on the disk of T11 takes 8.04 ms under every policy.

mod brain;
mod disk;
mod faults;
mod ledger;
mod machine;
mod outcome;

pub use brain::{Brain, MakePolicy};
pub use disk::{DiskModel, Queue};
pub use faults::{Faults, Spell};
pub use machine::MachineModel;
use outcome::WorldOutcome as Outcome;
pub use outcome::{ActorOutcome, Bucket, Cost, WorldOutcome};

use bowwave_core::{
    AskKind, Cache, CacheConfig, Dev, Evicted, Extent, FetchId, FileId, Input, Nanos, PAGE_SIZE, PageBit,
    PageCount, PageIndex, Pattern, Stats, Submission, Touch, TraceRecord, Window,
};
use brain::{OpenFile, WaveBrain};
use faults::{Answer, Draws};
use ledger::Ledger;
use machine::{Machine, Sent};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// A reader that finds no frame for its page tries again after this: everything is in flight or dirty.
const NO_FRAME_RETRY: Nanos = Nanos::from_ms(1);
/// A read that took longer than this waited.
const WAITED: Nanos = Nanos::from_us(5);
/// Pages that one request of the writer-back carries at most: 1 MiB.
const WRITE_BACK_PAGES: u64 = 256;
/// Requests that write back at once.
const WRITE_BACK_REQUESTS: usize = 4;

/// What a program does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Reads these pages and goes on when it has the first `transfer` of them (all, unless a call is cut short).
    Read {
        /// Through which descriptor.
        fd: u32,
        /// What it asks for.
        pages: Extent,
        /// How much of it it gets in this call.
        transfer: PageCount,
    },
    /// Writes these pages.
    Write {
        /// Through which descriptor.
        fd: u32,
        /// Which.
        pages: Extent,
    },
    /// Touches a page of a mapping.
    Fault {
        /// Of which descriptor's file.
        fd: u32,
        /// Which.
        page: PageIndex,
    },
    /// Says that it needs these pages no more.
    DontNeed {
        /// Of which descriptor's file.
        fd: u32,
        /// Which.
        pages: Extent,
    },
    /// Computes for so long.
    Think(Nanos),
    /// Goes on at this moment; at once if it is past.
    Until(Nanos),
    /// Has ended.
    End,
}

impl Step {
    /// A read of `count` pages from `start`, all of them.
    pub const fn read(fd: u32, start: u64, count: u64) -> Self {
        Self::Read { fd, pages: Extent::new(start, count), transfer: PageCount(count) }
    }
}

/// A program: asked for its next step with the moment at which its last one was done.
pub type Actor<'a> = Box<dyn FnMut(Nanos) -> Step + 'a>;

/// What things cost the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu {
    /// A call.
    pub call_ns: u64,
    /// Copying a page.
    pub page_ns: u64,
    /// One look at the page cache.
    pub look_ns: u64,
    /// One call of a policy.
    pub ask_ns: u64,
}

impl Cpu {
    /// What this project measured of a read of cached data: 700 ns a call, 400 ns a page.
    pub const TODAY: Self = Self { call_ns: 700, page_ns: 400, look_ns: 0, ask_ns: 0 };
}

/// When dirty pages are written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirty {
    /// Above this share of memory, in the background.
    pub background_percent: u64,
    /// Above this share writers wait.
    pub limit_percent: u64,
}

/// A file of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorldFile {
    /// Its size.
    pub pages: u64,
    /// Where on the device it begins.
    pub address: u64,
}

/// Everything that a world is made of.
#[derive(Clone)]
pub struct WorldConfig {
    /// The device.
    pub machine: MachineModel,
    /// Memory.
    pub memory: CacheConfig,
    /// Who fetches ahead.
    pub brain: Brain,
    /// Files, laid out.
    pub files: Vec<WorldFile>,
    /// The file behind each descriptor.
    pub descriptors: Vec<u32>,
    /// What the processor takes.
    pub cpu: Cpu,
    /// When dirty pages go.
    pub dirty: Dirty,
    /// Largest request that the device takes; longer ones are cut.
    pub request_max: PageCount,
    /// Width of the buckets of [`WorldOutcome::buckets`].
    pub bucket: Nanos,
    /// Keep every decision.
    pub trace: bool,
    /// Stop at this moment, whatever is left to do.
    pub stop_at: Option<Nanos>,
    /// What goes wrong.
    pub faults: Faults,
    /// Judge: know the version of every page, and what must hold when somebody fetches ahead ([`World::violation`]).
    pub judged: bool,
}

impl WorldConfig {
    /// A world of one shard of `frames` pages, files one behind the other with a descriptor each.
    pub fn new(machine: MachineModel, frames: u64, brain: Brain, files: &[u64]) -> Self {
        let mut address = 0;
        let laid_out = files.iter().map(|&pages| {
            let file = WorldFile { pages, address };
            address += pages * PAGE_SIZE;
            file
        });
        Self {
            machine,
            // No era, rival or wave asks for ghosts, and to keep them is a fourth of the work where memory is scarce.
            memory: CacheConfig { ghosts_max: 0, ..CacheConfig::of(PageCount(frames)) },
            brain,
            files: laid_out.collect(),
            descriptors: (0..files.len() as u32).collect(),
            cpu: Cpu::TODAY,
            dirty: Dirty { background_percent: 10, limit_percent: 40 },
            request_max: PageCount(u64::MAX),
            bucket: Nanos::from_ms(1000),
            trace: false,
            stop_at: None,
            faults: Faults::default(),
            judged: false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Machine,
    Resume(u32),
    /// An answer that the device gave a while ago.
    Late(u64),
    /// Memory changes its size.
    Squeeze,
}

/// A read on its way.
#[derive(Clone, Copy, Debug)]
struct Reading {
    fd: u32,
    request: Extent,
    end: PageIndex,
    at: PageIndex,
    began: Nanos,
    cpu: Nanos,
    waited: bool,
    mapped: bool,
    /// The page that the policy was last told of.
    told: Option<PageIndex>,
}

struct Running<'a> {
    actor: Actor<'a>,
    reading: Option<Reading>,
    writing: Option<(u32, Extent)>,
    ended: bool,
    outcome: ActorOutcome,
}

struct Request {
    file: u32,
    pages: Extent,
    fetch: Option<FetchId>,
    write: bool,
    sent: Nanos,
}

/// Who had a page fetched, by the number that its frame carries.
#[derive(Clone, Copy, Debug)]
struct Owner {
    pattern: Pattern,
}

/// A world at work.
pub struct World<'a> {
    config: WorldConfig,
    now: Nanos,
    order: u64,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    cache: Cache,
    machine: Machine,
    machine_planned: Option<Nanos>,
    open: Vec<OpenFile>,
    wave: Option<WaveBrain>,
    running: Vec<Running<'a>>,
    requests: BTreeMap<u64, Request>,
    next_request: u64,
    waiters: BTreeMap<(u32, PageIndex), Vec<u32>>,
    owners: Vec<Owner>,
    /// Pages that were written since they were last sent to the device.
    dirty: BTreeSet<(u32, PageIndex)>,
    /// Pages on their way to the device; one that is written meanwhile waits until they have come there.
    leaving: BTreeSet<(u32, PageIndex)>,
    writing_back: usize,
    write_cursor: (u32, PageIndex),
    blocked_writers: VecDeque<u32>,
    /// Readers for whose page there was no frame when they last asked.
    starved: BTreeSet<u32>,
    /// Readers that waited are going on, one after the other.
    waking: bool,
    draws: Draws,
    squeezed: bool,
    ledger: Option<Ledger>,
    violation: Option<String>,
    outcome: Outcome,
}

/// The owner of pages that the reader itself fetched.
const READER: u32 = 0;

impl<'a> World<'a> {
    /// A world in which nothing has happened.
    pub fn new(config: WorldConfig) -> Self {
        let mut cache = Cache::new(config.memory.clone());
        for (number, file) in config.files.iter().enumerate() {
            cache.open(FileId(number as u64), PageIndex(file.pages));
        }
        let open = match &config.brain {
            Brain::Era(make, max) => config.descriptors.iter().map(|_| OpenFile::new(make, *max)).collect(),
            Brain::Wave(_) => Vec::new(),
        };
        let sizes = config.files.iter().enumerate().map(|(n, file)| (FileId(n as u64), file.pages));
        let wave = match &config.brain {
            Brain::Wave(wave) => Some(WaveBrain::new(*wave, sizes)),
            Brain::Era(..) => None,
        };
        let machine = Machine::new(&config.machine);
        let draws = Draws::new(config.faults);
        let ledger = config.judged.then(Ledger::default);
        let mut world = Self {
            config,
            now: Nanos(0),
            order: 0,
            events: BinaryHeap::new(),
            cache,
            machine,
            machine_planned: None,
            open,
            wave,
            running: Vec::new(),
            requests: BTreeMap::new(),
            next_request: 0,
            waiters: BTreeMap::new(),
            owners: vec![Owner { pattern: Pattern::Random }],
            dirty: BTreeSet::new(),
            leaving: BTreeSet::new(),
            writing_back: 0,
            write_cursor: (0, PageIndex(0)),
            blocked_writers: VecDeque::new(),
            starved: BTreeSet::new(),
            waking: false,
            draws,
            squeezed: false,
            ledger,
            violation: None,
            outcome: Outcome::default(),
        };
        if world.config.faults.squeeze.is_some() {
            world.at(Nanos(0), Event::Squeeze);
        }
        world
    }

    /// A program that begins at `start`, or now if that is past: what was fetched ahead may have arrived after the last
    /// program's end, and time does not go back.
    pub fn add(&mut self, start: Nanos, actor: Actor<'a>) {
        let who = self.running.len() as u32;
        self.running.push(Running {
            actor,
            reading: None,
            writing: None,
            ended: false,
            outcome: ActorOutcome::default(),
        });
        self.at(start.max(self.now), Event::Resume(who));
    }

    /// Somebody cached these pages before anything began.
    pub fn cached(&mut self, file: u32, pages: Extent) {
        let window = Window { start: pages.start, size: pages.count, async_size: PageCount(0) };
        for part in self.cache.submit(FileId(file.into()), window, READER).fetch {
            self.cache.arrived(FileId(file.into()), part);
            self.filled(file, part);
            self.cache.touch(FileId(file.into()), part.start);
        }
    }

    /// Plays until every program has ended, or the moment at which to stop; returns what came of it. May be called again
    /// after more programs were added: time goes on.
    pub fn run(&mut self) -> Outcome {
        while self.step() {}
        self.finish()
    }

    /// Plays one event; false if there is none before the moment at which to stop. [`World::run`] returns what came of it.
    pub fn step(&mut self) -> bool {
        let stop = self.config.stop_at.unwrap_or(Nanos(u64::MAX));
        let Some(&Reverse((when, _, event))) = self.events.peek().filter(|next| next.0.0 <= stop) else {
            return false;
        };
        self.events.pop();
        self.now = when;
        match event {
            Event::Machine => self.machine_event(),
            Event::Resume(who) => self.resume(who),
            Event::Late(id) => {
                let woken = self.answered(id);
                self.went_on(woken);
            }
            Event::Squeeze => self.squeeze(),
        }
        true
    }

    /// What a judged world has found wrong, if anything: a reader got a page that nobody brought or an old version of it, a
    /// fetch ahead was sent while a reader waited for a page that nobody fetched, or a program can never go on.
    pub fn violation(&self) -> Option<String> {
        let stuck = || {
            let who = self.running.iter().position(|running| !running.ended)?;
            let waits = self.running[who].reading.map(|r| r.at);
            Some(format!("program {who} never goes on; it waits for page {waits:?}"))
        };
        self.violation.clone().or_else(|| self.events.is_empty().then(stuck).flatten())
    }

    /// Checks the invariants of all parts.
    pub fn check(&self) {
        self.cache.check();
        if let Some(wave) = &self.wave {
            wave.check();
        }
    }

    /// The cache, for whoever wants to look.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    fn finish(&mut self) -> Outcome {
        self.keep_decisions();
        let mut outcome = std::mem::take(&mut self.outcome);
        self.outcome.unread = outcome.unread;
        outcome.actors = self.running.iter_mut().map(|r| std::mem::take(&mut r.outcome)).collect();
        outcome.age_inversion = self.cache.age_inversion();
        outcome.quiet = self.now;
        if let Some(wave) = &self.wave {
            outcome.counters = wave.counters();
        }
        outcome
    }

    fn at(&mut self, when: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((when, self.order, event)));
    }

    // ---- programs --------------------------------------------------------------------------------------------------

    fn resume(&mut self, who: u32) {
        loop {
            let running = &mut self.running[who as usize];
            if running.reading.is_some() {
                if !self.read_on(who) {
                    return;
                }
                continue;
            }
            if let Some((fd, pages)) = running.writing {
                if !self.write_on(who, fd, pages) {
                    return;
                }
                continue;
            }
            match (running.actor)(self.now) {
                Step::Read { fd, pages, transfer } => self.begin_read(who, fd, pages, transfer, false),
                Step::Fault { fd, page } => {
                    self.begin_read(who, fd, Extent { start: page, count: PageCount(1) }, PageCount(1), true);
                }
                Step::Write { fd, pages } => {
                    running.outcome.began.get_or_insert(self.now);
                    running.writing = Some((fd, pages));
                }
                Step::DontNeed { fd, pages } => {
                    let file = FileId(self.config.descriptors[fd as usize].into());
                    self.cache.forget(file, pages);
                    self.emptied(file.0 as u32, pages);
                    self.tell_wave(Input::Dropped { file, pages });
                    self.serve_wave();
                }
                Step::Think(time) => {
                    self.at(self.now + time, Event::Resume(who));
                    return;
                }
                Step::Until(when) => {
                    self.at(when.max(self.now), Event::Resume(who));
                    return;
                }
                Step::End => {
                    self.running[who as usize].ended = true;
                    return;
                }
            }
        }
    }

    fn begin_read(&mut self, who: u32, fd: u32, pages: Extent, transfer: PageCount, mapped: bool) {
        let number = self.config.descriptors[fd as usize];
        let all = Extent::new(0, self.config.files[number as usize].pages);
        let request = pages.intersection(all);
        let end = (request.start + transfer).min(request.end());
        self.running[who as usize].reading = Some(Reading {
            fd,
            request,
            end,
            at: request.start,
            began: self.now,
            cpu: Nanos(self.config.cpu.call_ns),
            waited: false,
            mapped,
            told: None,
        });
        if self.wave.is_some() {
            // The reader's own request goes first, then the brain hears of it.
            let file = FileId(number.into());
            let own = Extent::between(request.start, end);
            let reader_max = self.wave.as_ref().map_or(PageCount(0), WaveBrain::reader_max);
            let first = Extent { count: own.count.min(reader_max), ..own };
            if self.cache.table(file).resident(first) < first.count {
                self.fetch_own(number, first, who);
            }
            self.tell_wave(Input::Read { file, pages: own, actor: who });
            self.serve_wave();
        }
    }

    /// Goes on with a read; false if it waits.
    fn read_on(&mut self, who: u32) -> bool {
        let Some(mut r) = self.running[who as usize].reading else { return true };
        self.starved.remove(&who);
        let number = self.config.descriptors[r.fd as usize];
        let file = FileId(number.into());
        let era = self.wave.is_none();
        let hears = era && self.open[r.fd as usize].hears_reads;
        while r.at < r.end {
            let left = r.request.end().since(r.at);
            if hears && !r.mapped && r.told != Some(r.at) {
                r.told = Some(r.at);
                self.ask(who, r.fd, AskKind::Read, r.at, left, r.mapped);
                r.cpu += Nanos(self.config.cpu.ask_ns);
            }
            self.outcome.cost.looks += 1;
            r.cpu += Nanos(self.config.cpu.look_ns);
            let mut touch = self.cache.touch(file, r.at);
            if touch == Touch::Absent {
                if era {
                    let kind = if r.mapped { AskKind::Fault } else { AskKind::Miss };
                    self.ask(who, r.fd, kind, r.at, left, r.mapped);
                    r.cpu += Nanos(self.config.cpu.ask_ns + self.config.cpu.look_ns);
                    self.outcome.cost.looks += 1;
                    touch = self.cache.touch(file, r.at);
                }
                if touch == Touch::Absent {
                    // Nobody fetches it: the reader does.
                    let holes = if era { 1 } else { r.end.since(r.at).0 };
                    let reader_max = self.wave.as_ref().map_or(1, |wave| wave.reader_max().0);
                    let own = Extent { start: r.at, count: PageCount(holes.min(reader_max)) };
                    if !self.fetch_own(number, own, who) {
                        self.running[who as usize].reading = Some(r);
                        self.starved.insert(who);
                        self.at(self.now + NO_FRAME_RETRY, Event::Resume(who));
                        return false;
                    }
                    touch = Touch::InFlight;
                }
            }
            // The reader holds its page from here on, whatever the mark has fetched.
            if let Some(ledger) = &self.ledger
                && let Touch::Present { .. } = touch
                && let Some(wrong) = ledger.wrong((number, r.at))
            {
                self.violation.get_or_insert(wrong);
            }
            if era && self.cache.take_mark(file, r.at) {
                let left = if r.mapped { self.era_max() } else { left };
                self.ask(who, r.fd, AskKind::Mark, r.at, left, r.mapped);
                r.cpu += Nanos(self.config.cpu.ask_ns);
            }
            match touch {
                Touch::Present { ahead, owner } => {
                    if ahead {
                        let pattern = self.owners[owner as usize].pattern;
                        self.outcome.stats.used(pattern, PageCount(1));
                        self.outcome.pages_used_ahead += u64::from(owner != READER);
                        self.outcome.unread -= u64::from(owner != READER);
                    }
                    if r.mapped {
                        self.mapped_hit(r.fd, r.waited);
                    }
                    r.cpu += Nanos(self.config.cpu.page_ns);
                    r.at = r.at + PageCount(1);
                }
                Touch::InFlight | Touch::Absent => {
                    r.waited = true;
                    self.waiters.entry((number, r.at)).or_default().push(who);
                    self.running[who as usize].reading = Some(r);
                    return false;
                }
            }
        }
        self.read_done(who, r, number);
        false
    }

    fn read_done(&mut self, who: u32, r: Reading, number: u32) {
        let pages = Extent::between(r.request.start, r.end);
        let took = self.now.since(r.began);
        self.running[who as usize].reading = None;
        if self.wave.is_none() && !r.mapped {
            self.open[r.fd as usize].read_done(pages, r.end.byte());
        }
        let waited = took > WAITED;
        if waited {
            self.tell_wave(Input::Waited { file: FileId(number.into()), pages, actor: who, took });
            self.serve_wave();
        }
        let running = &mut self.running[who as usize];
        let end = self.now + r.cpu;
        running.outcome.read(pages.count, r.began, end, took);
        self.outcome.read(pages.count, self.now, waited, took, self.config.bucket);
        self.outcome.cost.cpu_ns += r.cpu.0;
        self.outcome.elapsed = self.outcome.elapsed.max(end);
        self.at(end, Event::Resume(who));
    }

    fn era_max(&self) -> PageCount {
        match &self.config.brain {
            Brain::Era(_, max) => *max,
            Brain::Wave(_) => PageCount(0),
        }
    }

    fn mapped_hit(&mut self, fd: u32, waited: bool) {
        if let Some(open) = self.open.get_mut(fd as usize)
            && !waited
        {
            open.state().mapped_hit();
        }
    }

    // ---- decisions, obeyed -----------------------------------------------------------------------------------------

    fn ask(&mut self, who: u32, fd: u32, kind: AskKind, page: PageIndex, count: PageCount, mapped: bool) {
        let number = self.config.descriptors[fd as usize];
        let file = FileId(number.into());
        self.outcome.cost.asks += 1;
        let (decisions, retain) =
            self.open[fd as usize].ask(self.cache.table(file), kind, page, count, self.now);
        if !retain.is_empty() {
            self.cache.retain(file, retain);
        }
        for decision in decisions {
            self.outcome.cost.looks += decision.window.size.0;
            let owner = self.owners.len() as u32;
            let submission = self.cache.submit(file, decision.window, owner);
            if submission.actual.0 > 0 {
                self.owners.push(Owner { pattern: decision.pattern });
                self.count_unread(submission.actual);
            }
            let record = TraceRecord {
                dev: Dev::default(),
                ino: u64::from(number),
                request: Extent { start: page, count },
                mapped,
                pattern: decision.pattern,
                window: decision.window,
                actual: submission.actual,
                why: decision.why,
                time: self.now,
                file,
                stream: u64::from(fd),
            };
            let end = PageIndex(self.config.files[number as usize].pages);
            self.outcome.stats.submitted(&record, end);
            if self.config.trace {
                self.outcome.trace.push(record);
            }
            self.send(number, &submission, None, who);
        }
        self.after_submission();
    }

    /// The reader fetches what nobody else does; false if there is no frame.
    fn fetch_own(&mut self, number: u32, pages: Extent, who: u32) -> bool {
        let window = Window { start: pages.start, size: pages.count, async_size: PageCount(0) };
        let submission = self.cache.submit(FileId(number.into()), window, READER);
        self.outcome.pages_by_reader += submission.actual.0;
        self.send(number, &submission, None, who);
        self.after_submission();
        submission.actual.0 > 0
    }

    fn tell_wave(&mut self, input: Input) {
        if let Some(wave) = &mut self.wave {
            wave.tell(self.now, input);
        }
    }

    /// Sends what `wave` wants.
    fn serve_wave(&mut self) {
        loop {
            let Some(wave) = self.wave.as_mut().filter(|_| !self.waking) else { return };
            let wanted = wave.wanted(self.now);
            if wanted.is_empty() {
                return;
            }
            for want in wanted {
                let number = want.file.0 as u32;
                let window =
                    Window { start: want.pages.start, size: want.pages.count, async_size: PageCount(0) };
                if !want.demand && !self.starved.is_empty() {
                    // A reader waits for a frame: nothing that nobody waits for may take one.
                    self.tell_wave(Input::Failed { fetch: want.fetch });
                    continue;
                }
                let missing = want.pages.count - self.cache.table(want.file).resident(want.pages);
                let owner = self.owners.len() as u32;
                let submission = self.cache.submit(want.file, window, owner);
                if submission.actual.0 > 0 {
                    self.judge_order(want.file.0 as u32, want.pages);
                    self.owners.push(Owner { pattern: Pattern::Subsequent });
                    self.count_unread(submission.actual);
                    self.send(number, &submission, Some(want.fetch), u32::MAX);
                } else if missing.0 == 0 {
                    self.tell_wave(Input::Skipped { fetch: want.fetch });
                } else {
                    self.tell_wave(Input::Failed { fetch: want.fetch });
                }
                if submission.actual < missing && submission.actual.0 > 0 {
                    let end = submission.fetch.last().map_or(want.pages.start, |part| part.end());
                    let rest = Extent::between(end, want.pages.end());
                    self.tell_wave(Input::Dropped { file: want.file, pages: rest });
                }
                self.after_submission();
            }
        }
    }

    /// Reclaim, and tell of what was lost.
    fn after_submission(&mut self) {
        self.cache.reclaim_in_background();
        let evicted = self.cache.take_evicted();
        for gone in &evicted {
            // A page may have lost its frame and have been written anew in one call.
            if let Some(ledger) = &mut self.ledger
                && !self.cache.table(gone.file).state(gone.page).present
            {
                ledger.gone((gone.file.0 as u32, gone.page));
            }
            if gone.unread {
                let pattern = self.owners[gone.owner as usize].pattern;
                self.outcome.stats.evicted(pattern, PageCount(1));
                self.outcome.pages_lost_unread += u64::from(gone.owner != READER);
                self.outcome.unread -= u64::from(gone.owner != READER);
            }
        }
        for run in Evicted::runs(&evicted) {
            self.tell_wave(Input::Dropped { file: run.0, pages: run.1 });
        }
        if !self.cache.take_to_write().is_empty() {
            self.write_back();
        }
    }

    fn keep_decisions(&mut self) {
        let Some(wave) = &mut self.wave else { return };
        let explained: Vec<_> = wave.decisions().collect();
        if self.config.trace {
            self.outcome.explained.extend(explained);
        }
    }

    // ---- the device ------------------------------------------------------------------------------------------------

    /// Pages that a decision has fetched and that are neither read nor lost.
    fn count_unread(&mut self, pages: PageCount) {
        self.outcome.unread += pages.0;
        self.outcome.unread_max = self.outcome.unread_max.max(self.outcome.unread);
    }

    fn send(&mut self, number: u32, submission: &Submission, fetch: Option<FetchId>, who: u32) {
        let max = self.config.request_max.0.max(1);
        let pieces: Vec<Extent> = submission
            .fetch
            .iter()
            .flat_map(|part| {
                (0..part.count.0.div_ceil(max)).map(move |i| {
                    let start = part.start + PageCount(i * max);
                    Extent::between(start, part.end().min(start + PageCount(max)))
                })
            })
            .collect();
        let last = pieces.len().saturating_sub(1);
        for (i, pages) in pieces.into_iter().enumerate() {
            // A fetch has arrived when its last piece has.
            self.request(number, pages, fetch.filter(|_| i == last), who, false);
        }
    }

    fn request(&mut self, number: u32, pages: Extent, fetch: Option<FetchId>, who: u32, write: bool) {
        let id = self.next_request;
        self.next_request += 1;
        let address = self.config.files[number as usize].address + pages.start.byte();
        let bytes = pages.count.bytes().0;
        self.machine.submit(self.now, Sent { id, stream: who, address, bytes });
        self.requests.insert(id, Request { file: number, pages, fetch, write, sent: self.now });
        self.outcome.request(pages.count, write, self.now, self.config.bucket);
        self.plan_machine();
    }

    fn plan_machine(&mut self) {
        if let Some(when) = self.machine.next_event()
            && self.machine_planned.is_none_or(|planned| when < planned || planned <= self.now)
        {
            self.machine_planned = Some(when);
            self.at(when.max(self.now), Event::Machine);
        }
    }

    fn machine_event(&mut self) {
        let mut woken = Vec::new();
        while let Some(id) = self.machine.complete(self.now) {
            match self.draws.late(self.now) {
                Nanos(0) => woken.extend(self.answered(id)),
                late => self.at(self.now + late, Event::Late(id)),
            }
        }
        self.went_on(woken);
        self.plan_machine();
    }

    /// A request is done, or has failed: who waited for its pages.
    fn answered(&mut self, id: u64) -> Vec<u32> {
        let Some(request) = self.requests.remove(&id) else { return Vec::new() };
        let (file, answer) = (FileId(request.file.into()), self.draws.answer());
        if request.write {
            self.written_back(id, &request, answer == Answer::Whole);
            return Vec::new();
        }
        self.outcome.answered(request.sent, self.now);
        let arrived = match answer {
            Answer::Whole => request.pages.count,
            Answer::Short => PageCount(request.pages.count.0 / 2),
            Answer::Failed => PageCount(0),
        };
        let got = Extent { count: arrived, ..request.pages };
        let lost = Extent::between(got.end(), request.pages.end());
        self.cache.arrived(file, got);
        self.filled(request.file, got);
        if !lost.is_empty() {
            self.cache.failed(file, lost);
            self.emptied(request.file, lost);
        }
        let (from, to) = ((request.file, request.pages.start), (request.file, request.pages.end()));
        let keys: Vec<_> = self.waiters.range(from..to).map(|(key, _)| *key).collect();
        let woken = keys.into_iter().flat_map(|key| self.waiters.remove(&key).unwrap_or_default()).collect();
        if let Some(fetch) = request.fetch {
            self.tell_wave(if arrived.0 > 0 { Input::Arrived { fetch } } else { Input::Failed { fetch } });
        }
        if !lost.is_empty() {
            self.tell_wave(Input::Dropped { file, pages: lost });
        }
        woken
    }

    /// Programs that waited go on, and whoever writes back or waits to write.
    fn went_on(&mut self, woken: Vec<u32>) {
        // Those whose page did not come ask for it again before the others go on, and have something fetched ahead.
        let (came, lost): (Vec<u32>, Vec<u32>) = woken.into_iter().partition(|&who| self.has_come(who));
        lost.into_iter().for_each(|who| self.resume(who));
        // Whoever waited takes its page now; what is fetched ahead, which may take the frame of a page that one of them has
        // not come to yet, is sent when all of them have gone on.
        self.waking = true;
        came.into_iter().for_each(|who| self.resume(who));
        self.waking = false;
        self.serve_wave();
        if !self.blocked_writers.is_empty() || self.over_background() {
            self.write_back();
        }
        if !self.cache.over_dirty_limit(self.config.dirty.limit_percent) {
            while let Some(who) = self.blocked_writers.pop_front() {
                self.at(self.now, Event::Resume(who));
            }
        }
    }

    /// Whether the page is there that this program waits for.
    fn has_come(&self, who: u32) -> bool {
        self.running[who as usize].reading.is_none_or(|r| {
            let number = self.config.descriptors[r.fd as usize];
            self.cache.table(FileId(number.into())).state(r.at).present
        })
    }

    // ---- what goes wrong, and whether all is right ------------------------------------------------------------------

    /// Others want memory for a while, or give it back.
    fn squeeze(&mut self) {
        let Some((spell, permille)) = self.config.faults.squeeze else { return };
        self.squeezed = spell.holds(self.now) && self.running.iter().any(|running| !running.ended);
        let share = if self.squeezed { permille } else { 1000 };
        let shards = self.config.memory.shards.clone();
        for (shard, frames) in shards.into_iter().enumerate() {
            self.cache.resize(shard, PageCount((frames.0 * share / 1000).max(1)));
        }
        let bytes = self.cache.capacity().bytes();
        self.tell_wave(Input::Memory { bytes });
        self.after_submission();
        self.serve_wave();
        if self.running.iter().any(|running| !running.ended) {
            let within = self.now.0 % spell.every.0;
            let next = if within < spell.lasting.0 { spell.lasting.0 } else { spell.every.0 };
            self.at(Nanos(self.now.0 - within + next), Event::Squeeze);
        }
    }

    /// These pages hold what the device had of them, if they are present.
    fn filled(&mut self, file: u32, pages: Extent) {
        let Some(ledger) = &mut self.ledger else { return };
        let table = self.cache.table(FileId(file.into()));
        for run in table.runs(PageBit::Present, pages) {
            (run.start.0..run.end().0).for_each(|page| ledger.arrived((file, PageIndex(page))));
        }
    }

    /// Those of these pages that are no longer in memory hold nothing.
    fn emptied(&mut self, file: u32, pages: Extent) {
        let Some(ledger) = &mut self.ledger else { return };
        for hole in self.cache.table(FileId(file.into())).holes(pages) {
            (hole.start.0..hole.end().0).for_each(|page| ledger.gone((file, PageIndex(page))));
        }
    }

    /// No fetch of `pages` may go ahead of a reader who waits for a page that nobody fetches.
    fn judge_order(&mut self, file: u32, pages: Extent) {
        if self.ledger.is_none() {
            return;
        }
        for (who, running) in self.running.iter().enumerate() {
            let Some(r) = running.reading else { continue };
            let number = self.config.descriptors[r.fd as usize];
            let own = number == file && pages.contains(r.at);
            let state = self.cache.table(FileId(number.into())).state(r.at);
            if !own && r.waited && !state.present && !state.in_flight {
                self.violation.get_or_insert(format!(
                    "pages {pages} of file {file} were sent ahead of page {} of file {number}, for which program {who} waits",
                    r.at
                ));
            }
        }
    }

    // ---- writing ---------------------------------------------------------------------------------------------------

    fn write_on(&mut self, who: u32, fd: u32, pages: Extent) -> bool {
        if self.cache.over_dirty_limit(self.config.dirty.limit_percent) {
            self.blocked_writers.push_back(who);
            self.write_back();
            return false;
        }
        let number = self.config.descriptors[fd as usize];
        let file = FileId(number.into());
        // A page that is being fetched is written when it has come.
        if let Some(coming) = self.cache.table(file).runs(PageBit::InFlight, pages).next() {
            self.waiters.entry((number, coming.start)).or_default().push(who);
            return false;
        }
        let stopped = self.cache.write(file, pages, READER);
        let end = stopped.unwrap_or(pages.end());
        if let Some(ledger) = &mut self.ledger {
            (pages.start.0..end.0).for_each(|page| ledger.wrote((number, PageIndex(page))));
        }
        self.dirty.extend((pages.start.0..end.0).map(|page| (number, PageIndex(page))));
        self.after_submission();
        if self.over_background() {
            self.write_back();
        }
        if let Some(page) = stopped {
            self.running[who as usize].writing = Some((fd, Extent::between(page, pages.end())));
            self.write_back();
            self.at(self.now + NO_FRAME_RETRY, Event::Resume(who));
            return false;
        }
        self.tell_wave(Input::Present { file, pages });
        let cpu = Nanos(self.config.cpu.call_ns + self.config.cpu.page_ns * pages.count.0);
        let running = &mut self.running[who as usize];
        running.writing = None;
        let end = self.now + cpu;
        running.outcome.wrote(pages.count, end);
        self.outcome.elapsed = self.outcome.elapsed.max(end);
        self.at(end, Event::Resume(who));
        false
    }

    /// A write is done: its pages are clean, but for those that were written again meanwhile. Or it has failed, and all of
    /// them are to be written still.
    fn written_back(&mut self, id: u64, request: &Request, stored: bool) {
        self.writing_back -= 1;
        if let Some(ledger) = &mut self.ledger {
            ledger.written_back(id, stored);
        }
        for page in request.pages.start.0..request.pages.end().0 {
            let page = PageIndex(page);
            self.leaving.remove(&(request.file, page));
            if !stored {
                self.dirty.insert((request.file, page));
            } else if !self.dirty.contains(&(request.file, page)) {
                self.cache.cleaned(FileId(request.file.into()), Extent { start: page, count: PageCount(1) });
            }
        }
    }

    fn over_background(&self) -> bool {
        let memory = self.cache.capacity().0.max(1);
        self.cache.dirty().0 * 100 > memory * self.config.dirty.background_percent
    }

    /// Writes runs of dirty pages, in the order of files and pages, a few requests at a time.
    fn write_back(&mut self) {
        while self.writing_back < WRITE_BACK_REQUESTS {
            let free = |page: &&(u32, PageIndex)| !self.leaving.contains(page);
            let next =
                self.dirty.range(self.write_cursor..).find(free).or_else(|| self.dirty.iter().find(free));
            let Some((number, start)) = next.copied() else { return };
            let mut count = 0;
            while count < WRITE_BACK_PAGES
                && !self.leaving.contains(&(number, start + PageCount(count)))
                && self.dirty.remove(&(number, start + PageCount(count)))
            {
                self.leaving.insert((number, start + PageCount(count)));
                count += 1;
            }
            let pages = Extent { start, count: PageCount(count) };
            self.write_cursor = (number, pages.end());
            self.writing_back += 1;
            if let Some(ledger) = &mut self.ledger {
                let all = (pages.start.0..pages.end().0).map(|page| (number, PageIndex(page)));
                ledger.sent(self.next_request, all);
            }
            self.request(number, pages, None, u32::MAX - 1, true);
        }
    }
}

#[cfg(test)]
mod tests;
