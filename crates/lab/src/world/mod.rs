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

mod asking;
mod brain;
mod config;
mod disk;
mod faults;
mod judging;
mod ledger;
mod machine;
mod outcome;
mod reading;
mod sending;
mod writing;

pub use brain::{Brain, MakePolicy};
pub use config::{Actor, Cpu, Dirty, Step, WorldConfig, WorldFile};
pub use disk::{DiskModel, Queue};
pub use faults::{Faults, Spell};
pub use machine::MachineModel;
use outcome::WorldOutcome as Outcome;
pub use outcome::{ActorOutcome, Bucket, Cost, WorldOutcome};
use reading::Reading;
use sending::{OnTheWay, Waiters};

use bowwave_core::{
    Cache, Decision, Extent, FetchId, FileId, Input, Nanos, PageCount, PageIndex, Pattern, Window,
};
use brain::{OpenFile, WaveBrain};
use faults::Draws;
use ledger::Ledger;
use machine::Machine;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

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
}

#[cfg(test)]
mod tests;
