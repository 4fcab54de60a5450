//! Plays a plan in virtual time: readers, a page cache, a modelled device, and `wave` (or nobody) fetching ahead.
//!
//! The brain is the one that ships, driven through its public door with the knowledge that the shim inside a program
//! has: it hears of a read only where a page is not quiet, a little late, and of arrivals when somebody looked.
//!
//! ```text
//! reader   read [0,2) --miss--> device .......30 ms.......> page present, read returns
//! agent      +40 us: Read [0,2) -> Fetch [2,10) -> device .......30 ms.......> present; agent looks at 24 ms, 25 ms, 26 ms ...
//! ```
//!
//! Worked example: one read of 4 KiB on the s3 model takes 30 ms + 45.5 us, in every world.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use bowwave_core::{
    Action, Bytes, Config, Counters, Extent, FetchId, FileId, Input, Nanos, PAGE_SIZE, PageBit, PageCount,
    PageIndex, PageTable, Wave, first_look, left_off, next_look, while_read,
};

use crate::device::{Device, DeviceModel};
use crate::pattern::{Dispatch, Plan};

/// From a read to the agent's looking at it.
const NOTICE_NS: u64 = 40_000;
/// What one fetch costs the agent: a system call, and each page of it.
const FETCH_NS: u64 = 8_000;
const FETCH_PAGE_NS: u64 = 500;
/// Quiet reads are noted by leaves of so many pages.
const LEAF_PAGES: u64 = 64;
/// Leaves without quiet reads at which a driver looks no farther around a read: as many as for the agent.
const LEAVES_UNREAD: u32 = 2;
/// So often a driver looks at all that was read quietly: as often as the agent (steer's housekeeping).
const HOUSEKEEPING_NS: u64 = 100_000_000;
/// What one read costs the reader, and each page of it.
const READ_NS: u64 = 700;
const READ_PAGE_NS: u64 = 400;
/// From one sample of the cache to the next, where arrivals are learnt so.
const SAMPLE_NS: u64 = 50_000_000;

/// Who fetches ahead in a played world.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fetcher {
    /// Nobody: every read brings its own pages.
    Nobody,
    /// `wave`, with what its driver can do.
    Wave(Config),
}

/// What the brain of a played world hears: the three grades of knowledge that drivers can have.
///
/// ```text
/// grade    reads                      arrivals
/// Event    each, at once              each, at once                    our own cache
/// Marks    misses and marks, +40 us   from 4/5 of a latency on         the shim inside a program
/// Sampled  misses and marks, +40 us   up to 50 ms late, without time   an observer outside
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Knowledge {
    /// Every read and every arrival, when it happens.
    Event,
    /// Reads of pages that are missing or marked, and arrivals when somebody looks: at four fifths of a latency, and then each twenty-fourth
    /// of the time since.
    #[default]
    Marks,
    /// The same reads; what arrived is found by samples every 50 ms, which do not tell when it did.
    Sampled,
}

/// What came of a play.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Virtual time from the first read to the end of the last.
    pub elapsed: Nanos,
    /// Bytes that the device delivered.
    pub fetched_bytes: u64,
    /// Requests that the device served.
    pub requests: u64,
    /// Reads that were served to their last byte.
    pub reads_served: u64,
    /// Events that reached the agent.
    pub events: u64,
    /// The brain's counters.
    pub counters: Counters,
    /// Its decisions, one line each, if asked for.
    pub decisions: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Device,
    Told(usize),
    Resume(u32),
}

struct Reader {
    ops: VecDeque<usize>,
    current: Option<(usize, u64, Nanos)>,
    waits_for: Option<(u32, u64)>,
    /// Whether the brain has heard of the current read.
    told: bool,
}

struct Request {
    file: u32,
    pages: Extent,
    fetch: Option<FetchId>,
    sent: u64,
}

struct World<'a> {
    plan: &'a Plan,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    device: Device,
    truth: Vec<PageTable>,
    /// What was read since that was told, in the leaves of which the brain has said anything.
    quiet: Vec<PageTable>,
    /// Which pages of each leaf need no event, as the agent has published it.
    published: Vec<Vec<u64>>,
    /// When all that was read quietly was told last.
    kept: u64,
    requests: BTreeMap<u64, Request>,
    next_request: u64,
    readers: Vec<Reader>,
    common: VecDeque<usize>,
    wave: Option<(Wave, Config)>,
    knowledge: Knowledge,
    /// What the brain hears of, each when its event comes.
    told: Vec<Input>,
    /// Where the read lies to the byte that is told next.
    exactly: Option<Input>,
    agent_free: u64,
    device_planned: u64,
    outcome: Outcome,
    explain: bool,
}

/// Plays `plan` on a device of `model` with `fetcher`, which knows what the shim does ([`Knowledge::Marks`]); with
/// `explain`, keeps the decisions as text.
///
/// O(n log n) in reads and requests. Deterministic: the same arguments give the same outcome, byte for byte.
pub fn play(plan: &Plan, model: &DeviceModel, fetcher: Fetcher, explain: bool) -> Outcome {
    play_knowing(plan, model, fetcher, Knowledge::Marks, explain)
}

/// [`play`] with a fetcher of the given knowledge. In a debug build the brain's [`Wave::check`] is called after every
/// input.
pub fn play_knowing(
    plan: &Plan,
    model: &DeviceModel,
    fetcher: Fetcher,
    knowledge: Knowledge,
    explain: bool,
) -> Outcome {
    let wave = match fetcher {
        Fetcher::Nobody => None,
        Fetcher::Wave(config) => {
            let mut wave = Wave::new(config);
            for (i, file) in plan.files.iter().enumerate() {
                let size = bowwave_core::Bytes(file.size);
                wave.handle(Nanos(0), Input::Open { file: FileId(i as u64), device: 0, size });
            }
            Some((wave, config))
        }
    };
    let mut readers: Vec<Reader> = (0..plan.threads)
        .map(|_| Reader { ops: VecDeque::new(), current: None, waits_for: None, told: false })
        .collect();
    let mut common = VecDeque::new();
    for (i, op) in plan.ops.iter().enumerate() {
        match plan.dispatch {
            Dispatch::Assigned => readers[op.thread as usize].ops.push_back(i),
            Dispatch::QueueOwn | Dispatch::QueueShared => common.push_back(i),
        }
    }
    let mut world = World {
        plan,
        now: 0,
        order: 0,
        events: BinaryHeap::new(),
        device: Device::new(*model),
        truth: plan.files.iter().map(|f| PageTable::new(PageIndex(f.size.div_ceil(PAGE_SIZE)))).collect(),
        kept: 0,
        published: plan
            .files
            .iter()
            .map(|f| vec![0; f.size.div_ceil(LEAF_PAGES * PAGE_SIZE) as usize])
            .collect(),
        quiet: plan.files.iter().map(|f| PageTable::new(PageIndex(f.size.div_ceil(PAGE_SIZE)))).collect(),
        requests: BTreeMap::new(),
        next_request: 0,
        readers,
        common,
        wave,
        knowledge,
        told: Vec::new(),
        exactly: None,
        agent_free: 0,
        device_planned: u64::MAX,
        outcome: Outcome::default(),
        explain,
    };
    for reader in 0..plan.threads {
        world.at(0, Event::Resume(reader));
    }
    world.run();
    world.outcome
}

impl World<'_> {
    fn at(&mut self, when: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((when, self.order, event)));
    }

    fn run(&mut self) {
        while let Some(Reverse((when, _, event))) = self.events.pop() {
            self.now = when;
            self.keep_house();
            match event {
                Event::Device => self.device_done(),
                Event::Told(i) => {
                    let input = self.told[i];
                    match input {
                        Input::Exactly { .. } => self.exactly = Some(input),
                        Input::Read { file, pages, .. } if self.knowledge != Knowledge::Event => {
                            self.hear_of_read(file.0 as u32, pages, input);
                        }
                        Input::Read { .. } => self.agent_hears(input),
                        _ => self.agent(input),
                    }
                }
                Event::Resume(reader) => self.step(reader),
            }
        }
        if let Some((wave, _)) = &self.wave {
            wave.check();
            self.outcome.counters = *wave.counters();
        }
    }

    /// Goes on with a reader's read, or begins its next.
    fn step(&mut self, who: u32) {
        let shared = matches!(self.plan.dispatch, Dispatch::QueueOwn | Dispatch::QueueShared);
        let reader = &mut self.readers[who as usize];
        reader.waits_for = None;
        let fresh = reader.current.is_none();
        let (op, mut page, began) = match reader.current {
            Some(current) => current,
            None => {
                let next = if shared { self.common.pop_front() } else { reader.ops.pop_front() };
                let Some(op) = next else { return };
                let offset = self.plan.ops[op].offset;
                (op, offset / PAGE_SIZE, Nanos(self.now))
            }
        };
        let o = self.plan.ops[op];
        let pages = Extent::covering(o.offset, o.asked).intersection(Extent::between(
            PageIndex(0),
            PageIndex(self.plan.files[o.file as usize].size.div_ceil(PAGE_SIZE)),
        ));
        let file = FileId(u64::from(o.file));
        let read = Input::Read { file, pages, actor: who };
        if fresh {
            self.note(o.file, pages);
            let told = self.loud(o.file, pages);
            self.readers[who as usize].told = told;
            if told {
                // An observer outside sees pages.
                if self.knowledge != Knowledge::Sampled {
                    self.tell(Input::Exactly { actor: who, from: o.offset, bytes: Bytes(o.asked) });
                }
                self.tell(read);
            }
        }
        while page < pages.end().0 {
            let state = self.truth[o.file as usize].state(PageIndex(page));
            if state.present {
                page += 1;
                continue;
            }
            if !state.in_flight {
                let room = self.wave.as_ref().map_or(u64::MAX, |w| w.1.reader_max.0);
                let hole = self.truth[o.file as usize]
                    .holes(Extent::between(PageIndex(page), pages.end()))
                    .next()
                    .unwrap_or(Extent::new(page, 1));
                let hole = Extent { count: hole.count.min(PageCount(room)), ..hole };
                self.submit(o.file, hole, None, self.now);
            }
            self.readers[who as usize].current = Some((op, page, began));
            self.readers[who as usize].waits_for = Some((o.file, page));
            return;
        }
        self.readers[who as usize].current = None;
        self.outcome.reads_served += 1;
        let took = self.now - began.0;
        if took > 5_000 {
            if !self.readers[who as usize].told {
                self.tell(read);
            }
            let ended = Nanos(self.now);
            self.tell(Input::Waited { file, pages, actor: who, took: Nanos(took), ended });
        }
        let cost = READ_NS + READ_PAGE_NS * pages.count.0 + o.think_ns;
        self.outcome.elapsed = Nanos(self.now + cost);
        self.at(self.now + cost, Event::Resume(who));
    }

    /// The brain hears of a read, between what was read quietly before it and what its reader has read since, upwards: leaf by leaf as
    /// far as anything was read.
    fn hear_of_read(&mut self, file: u32, pages: Extent, read: Input) {
        self.quiet[file as usize].clear(PageBit::Used, pages);
        self.tell_left_off(read);
        let (first, last) = (pages.start.0 / LEAF_PAGES, (pages.end().0 - 1) / LEAF_PAGES);
        let mut found: Vec<Extent> = Vec::new();
        self.take_quiet(file, Extent::new(first * LEAF_PAGES, (last - first + 1) * LEAF_PAGES), &mut found);
        self.take_while_read(file, (0..first).rev(), &mut found);
        self.take_while_read(file, last + 1..u64::MAX, &mut found);
        found.sort_unstable_by_key(|run| run.start);
        let since = found.partition_point(|run| run.start < pages.start);
        let used = |&pages: &Extent| Input::Used { file: FileId(u64::from(file)), pages };
        let before = found[..since].iter().map(used);
        before.for_each(|input| self.agent(input));
        self.agent_hears(read);
        found[since..].iter().map(used).for_each(|input| self.agent(input));
    }

    /// The brain hears of a read, to the byte as far as that was told.
    fn agent_hears(&mut self, read: Input) {
        if let Some(exactly) = self.exactly.take() {
            self.agent(exactly);
        }
        self.agent(read);
    }

    /// Tells of what the reader of `read` read without a word where he was before, if that is elsewhere.
    fn tell_left_off(&mut self, read: Input) {
        let (Input::Read { file, pages, actor }, Some((wave, _))) = (read, &self.wave) else { return };
        let was = wave.heard_at(actor);
        let Some((file, leaves)) = was.and_then(|was| left_off(was, (file, pages), LEAVES_UNREAD)) else {
            return;
        };
        let mut found = Vec::new();
        self.take_while_read(file.0 as u32, leaves, &mut found);
        for pages in found {
            self.agent(Input::Used { file, pages });
        }
    }

    /// Takes what was read quietly in `leaves`, as far as anything was.
    fn take_while_read(&mut self, file: u32, leaves: impl Iterator<Item = u64>, found: &mut Vec<Extent>) {
        while_read(leaves, LEAVES_UNREAD, |leaf| {
            let before = found.len();
            self.take_quiet(file, Extent::new(leaf * LEAF_PAGES, LEAF_PAGES), found);
            found.len() > before
        });
    }

    fn take_quiet(&mut self, file: u32, within: Extent, found: &mut Vec<Extent>) {
        found.extend(self.quiet[file as usize].runs(PageBit::Used, within));
        self.quiet[file as usize].clear(PageBit::Used, within);
    }

    /// Tells of all that was read quietly, as a driver does ten times a second.
    fn keep_house(&mut self) {
        if self.knowledge == Knowledge::Event || self.now < self.kept + HOUSEKEEPING_NS {
            return;
        }
        self.kept = self.now;
        for (file, f) in (0..).zip(&self.plan.files) {
            let mut found = Vec::new();
            let all = PageIndex(f.size.div_ceil(PAGE_SIZE));
            self.take_quiet(file, Extent::between(PageIndex(0), all), &mut found);
            for pages in found {
                self.tell(Input::Used { file: FileId(u64::from(file)), pages });
            }
        }
    }

    /// Notes what is read in the leaves of which the brain has said anything.
    fn note(&mut self, file: u32, pages: Extent) {
        for leaf in pages.start.0 / LEAF_PAGES..pages.end().0.div_ceil(LEAF_PAGES) {
            if self.published[file as usize][leaf as usize] != 0 {
                let own = pages.intersection(Extent::new(leaf * LEAF_PAGES, LEAF_PAGES));
                self.quiet[file as usize].set(PageBit::Used, own);
            }
        }
    }

    /// Whether the brain is told of a read at once.
    fn loud(&self, file: u32, pages: Extent) -> bool {
        let Some((wave, _)) = &self.wave else { return false };
        if self.knowledge == Knowledge::Event {
            return true;
        }
        let (id, leaves) = (FileId(u64::from(file)), &self.published[file as usize]);
        for leaf in pages.start.0 / LEAF_PAGES..pages.end().0.div_ceil(LEAF_PAGES) {
            let same = wave.leaf(id, leaf).0 == leaves[leaf as usize];
            assert!(same, "leaf {leaf} of {id} has changed, and nobody said so");
        }
        let quiet = |p: u64| leaves[(p / LEAF_PAGES) as usize] >> (p % LEAF_PAGES) & 1;
        (pages.start.0..pages.end().0).any(|p| quiet(p) == 0)
    }

    /// Publishes what the brain has changed, as a driver does.
    fn publish(&mut self) {
        let Some((wave, _)) = &mut self.wave else { return };
        for (file, leaf) in wave.take_changed() {
            self.published[file.0 as usize][leaf as usize] = wave.leaf(file, leaf).0;
        }
    }

    fn tell(&mut self, input: Input) {
        if self.wave.is_none() {
            return;
        }
        self.outcome.events += u64::from(!matches!(input, Input::Used { .. } | Input::Exactly { .. }));
        let notice_ns = if self.knowledge == Knowledge::Event { 0 } else { NOTICE_NS };
        let when = (self.now + notice_ns).max(self.agent_free);
        self.tell_at(when, input);
    }

    fn agent(&mut self, input: Input) {
        let Some((wave, _)) = &mut self.wave else { return };
        let mut at = self.now.max(self.agent_free);
        wave.handle(Nanos(at), input);
        let mut sent = Vec::new();
        while let Some(Action::Fetch { id, file, pages, .. }) = wave.poll(Nanos(at)) {
            at += FETCH_NS + FETCH_PAGE_NS * pages.count.0;
            sent.push((id, file, pages, at));
        }
        if cfg!(debug_assertions) {
            wave.check();
        }
        for e in wave.take_trace() {
            if self.explain {
                self.outcome.decisions.push(format!(
                    "{:>10.3}ms f{} read {} {:<10} {} size={} ahead={} streams={} why={}",
                    e.at.0 as f64 / 1e6,
                    e.file,
                    e.read,
                    e.decision.pattern,
                    e.decision.window.extent(),
                    e.decision.window.size,
                    e.decision.window.async_size,
                    e.streams,
                    e.decision.why
                ));
            }
        }
        self.agent_free = at;
        self.publish();
        for (id, file, pages, when) in sent {
            // The kernel skips what is there already; what is left may be nothing.
            let holes: Vec<Extent> = self.truth[file.0 as usize].holes(pages).collect();
            if holes.is_empty() {
                self.tell_at(first_look(Nanos(when), None).0, Input::Skipped { fetch: id });
                continue;
            }
            let last = holes.len() - 1;
            for (i, hole) in holes.into_iter().enumerate() {
                self.submit(file.0 as u32, hole, (i == last).then_some(id), when);
            }
        }
    }

    fn submit(&mut self, file: u32, pages: Extent, fetch: Option<FetchId>, when: u64) {
        let id = self.next_request;
        self.next_request += 1;
        self.truth[file as usize].set(PageBit::InFlight, pages);
        let address = u64::from(file) * (1 << 36) + pages.start.byte();
        self.outcome.requests += 1;
        self.outcome.fetched_bytes += pages.count.bytes().0;
        self.device.submit(Nanos(when), id, address, pages.count.bytes().0);
        self.requests.insert(id, Request { file, pages, fetch, sent: when });
        self.plan_device();
    }

    fn plan_device(&mut self) {
        if let Some((when, _)) = self.device.next_completion()
            && (when.0 < self.device_planned || self.device_planned <= self.now)
        {
            self.device_planned = when.0;
            self.at(when.0.max(self.now), Event::Device);
        }
    }

    fn device_done(&mut self) {
        while let Some((_, id)) = self.device.complete(Nanos(self.now)) {
            let Some(request) = self.requests.remove(&id) else { continue };
            let table = &mut self.truth[request.file as usize];
            table.clear(PageBit::InFlight, request.pages);
            table.set(PageBit::Present, request.pages);
            for who in 0..self.readers.len() as u32 {
                if let Some((file, page)) = self.readers[who as usize].waits_for
                    && file == request.file
                    && request.pages.contains(PageIndex(page))
                {
                    self.at(self.now, Event::Resume(who));
                    self.readers[who as usize].waits_for = None;
                }
            }
            if self.knowledge == Knowledge::Sampled {
                // A sample sees pages, whoever brought them, and no time at all.
                let file = FileId(u64::from(request.file));
                let seen = self.now + SAMPLE_NS - self.now % SAMPLE_NS;
                self.tell_at(seen, Input::Present { file, pages: request.pages });
                if let Some(fetch) = request.fetch {
                    self.tell_at(seen, Input::Skipped { fetch });
                }
            } else if let Some(fetch) = request.fetch {
                let seen =
                    if self.knowledge == Knowledge::Event { self.now } else { self.seen(request.sent) };
                self.tell_at(seen, Input::Arrived { fetch });
            }
        }
        self.device_planned = u64::MAX;
        self.plan_device();
    }

    /// The brain hears of it at `when`.
    fn tell_at(&mut self, when: u64, input: Input) {
        self.told.push(input);
        self.at(when, Event::Told(self.told.len() - 1));
    }

    /// When the agent sees what was sent then and has come.
    fn seen(&self, sent: u64) -> u64 {
        let known = self.wave.as_ref().and_then(|(wave, _)| wave.device(0)?.latency);
        let mut look = first_look(Nanos(sent), known);
        while look.0 < self.now {
            look = next_look(Nanos(sent), look);
        }
        look.0
    }
}
