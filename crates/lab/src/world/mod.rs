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
mod config;
mod disk;
mod faults;
mod judging;
mod ledger;
mod machine;
mod outcome;
mod sending;
mod writing;

pub use brain::{Brain, MakePolicy};
pub use config::{Actor, Cpu, Dirty, Step, WorldConfig, WorldFile};
pub use disk::{DiskModel, Queue};
pub use faults::{Faults, Spell};
pub use machine::MachineModel;
use outcome::WorldOutcome as Outcome;
pub use outcome::{ActorOutcome, Bucket, Cost, WorldOutcome};
use sending::{OnTheWay, Waiters};

use bowwave_core::{
    AskKind, Cache, Decision, Dev, Evicted, Extent, FetchId, FileId, Hold, Input, Nanos, PageCount,
    PageIndex, Pattern, Stats, Submission, Touch, TraceRecord, Window,
};
use brain::{OpenFile, WaveBrain};
use faults::Draws;
use ledger::Ledger;
use machine::Machine;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// A reader that finds no frame for its page tries again after this: everything is in flight or dirty.
const NO_FRAME_RETRY: Nanos = Nanos::from_ms(1);
/// Pages that stay in one search for a frame because their reader still comes, as in the library.
const STAY_MAX: usize = 2048;
/// A read that took longer than this waited.
const WAITED: Nanos = Nanos::from_us(5);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Machine,
    Resume(u32),
    /// An answer that the device gave a while ago.
    Late(u64),
    /// Memory changes its size.
    Squeeze,
    /// Somebody takes pages.
    Take,
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
    /// Room for the windows of one question.
    decisions: Vec<Decision>,
    running: Vec<Running<'a>>,
    on_the_way: OnTheWay,
    waiters: Waiters,
    /// Room for those who go on after one event.
    woken: Vec<u32>,
    /// What of a fetch under way got no frame: told when it has arrived, for then all of it is taken to be there.
    frameless: BTreeMap<FetchId, (FileId, Extent)>,
    owners: Vec<Owner>,
    /// The page that the latest read of each descriptor ended in.
    ended_in: Vec<Option<PageIndex>>,
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
        let ended_in = vec![None; config.descriptors.len()];
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
            decisions: Vec::new(),
            running: Vec::new(),
            on_the_way: OnTheWay::default(),
            waiters: Waiters::default(),
            woken: Vec::new(),
            frameless: BTreeMap::new(),
            owners: vec![Owner { pattern: Pattern::Random }],
            ended_in,
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
        if let Some((every, _)) = world.config.faults.taken {
            world.at(every, Event::Take);
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
            Event::Late(id) => self.late_answer(id),
            Event::Squeeze => self.squeeze(),
            Event::Take => self.take(),
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
            let mut touch = self.come_to(&r, file);
            if touch == Touch::Absent {
                if era {
                    let kind = if r.mapped { AskKind::Fault } else { AskKind::Miss };
                    self.ask(who, r.fd, kind, r.at, left, r.mapped);
                    r.cpu += Nanos(self.config.cpu.ask_ns + self.config.cpu.look_ns);
                    self.outcome.cost.looks += 1;
                    touch = self.come_to(&r, file);
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
                    self.waiters.add((number, r.at), who);
                    self.running[who as usize].reading = Some(r);
                    return false;
                }
            }
        }
        self.read_done(who, r, number);
        false
    }

    /// What a reader finds at the page that he has come to.
    fn come_to(&mut self, r: &Reading, file: FileId) -> Touch {
        let again = !r.mapped && r.at == r.request.start && self.ended_in[r.fd as usize] == Some(r.at);
        if again { self.cache.touch_on(file, r.at) } else { self.cache.touch(file, r.at) }
    }

    fn read_done(&mut self, who: u32, r: Reading, number: u32) {
        let pages = Extent::between(r.request.start, r.end);
        let took = self.now.since(r.began);
        self.running[who as usize].reading = None;
        if !r.mapped && !pages.is_empty() {
            self.ended_in[r.fd as usize] = Some(PageIndex(r.end.0 - 1));
        }
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
        let congested = self.config.congested_from.is_some_and(|from| self.on_the_way.len() >= from);
        self.open[fd as usize].state().congested = congested;
        let mut decisions = std::mem::take(&mut self.decisions);
        let table = self.cache.table(file);
        let retain = self.open[fd as usize].ask(table, kind, page, count, &mut decisions);
        if !retain.is_empty() {
            self.cache.retain(file, retain);
        }
        for decision in decisions.drain(..) {
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
        self.decisions = decisions;
        self.after_submission();
    }

    /// The reader fetches what nobody else does; false if there is no frame.
    fn fetch_own(&mut self, number: u32, pages: Extent, who: u32) -> bool {
        let window = Window { start: pages.start, size: pages.count, async_size: PageCount(0) };
        let submission = self.submit(FileId(number.into()), window, READER);
        self.outcome.pages_by_reader += submission.actual.0;
        self.send(number, &submission, None, who);
        self.after_submission();
        submission.actual.0 > 0
    }

    /// Gives a window its frames. Where what was read goes first, a page that a reader still comes to stays, as in the library.
    fn submit(&mut self, file: FileId, window: Window, owner: u32) -> Submission {
        let Some(wave) = self.wave.as_ref().filter(|wave| wave.read_goes_first()) else {
            return self.cache.submit(file, window, owner);
        };
        let mut stayed = 0;
        self.cache.submit_unless(file, window, owner, &mut |file, page, was_read| {
            let stays = !was_read && stayed < STAY_MAX && wave.awaits(file, page);
            stayed += usize::from(stays);
            if stays { Hold::Stay } else { Hold::Go }
        })
    }

    fn tell_wave(&mut self, input: Input) {
        if let Some(wave) = &mut self.wave {
            wave.tell(self.now, input);
        }
    }

    /// Sends what `wave` wants.
    fn serve_wave(&mut self) {
        loop {
            self.let_go();
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
                let submission = self.submit(want.file, window, owner);
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
                    self.frameless.insert(want.fetch, (want.file, rest));
                }
                self.after_submission();
            }
        }
    }

    /// What `wave` gives up makes room.
    fn let_go(&mut self) {
        let Some(wave) = self.wave.as_mut().filter(|_| !self.waking) else { return };
        let given_up: Vec<_> = std::iter::from_fn(|| wave.given_up()).collect();
        if !given_up.is_empty() {
            given_up.into_iter().for_each(|(file, pages)| self.cache.let_go(file, pages));
            self.after_submission();
        }
    }

    /// Reclaim, and tell of what was lost.
    fn after_submission(&mut self) {
        self.cache.reclaim_in_background();
        let evicted = self.cache.take_evicted();
        for gone in &evicted {
            // A page may have lost its frame and have been written anew in one call.
            if let Some(ledger) = &mut self.ledger {
                let table = self.cache.table(gone.file);
                let pages = (gone.pages.start.0..gone.pages.end().0).map(PageIndex);
                pages
                    .filter(|&page| !table.state(page).present)
                    .for_each(|page| ledger.gone((gone.file.0 as u32, page)));
            }
            if gone.unread {
                let pattern = self.owners[gone.owner as usize].pattern;
                self.outcome.stats.evicted(pattern, gone.pages.count);
                let by_others = if gone.owner == READER { 0 } else { gone.pages.count.0 };
                self.outcome.pages_lost_unread += by_others;
                self.outcome.unread -= by_others;
            }
        }
        if self.wave.is_some() {
            for (file, pages) in Evicted::runs(&evicted) {
                self.tell_wave(Input::Dropped { file, pages });
            }
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
}

#[cfg(test)]
mod tests;
