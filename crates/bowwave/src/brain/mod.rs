//! The brain of a cache behind its one lock: the core's decisions, turned into flights, and what became of them told back.
//!
//! It decides nothing of readahead: what to fetch next is `bowwave_core::Wave`'s, which page goes is `bowwave_core::Cache`'s.
//!
//! ```text
//!  Read, Waited, Used -->  Wave  --Fetch-->  Cache: a frame each  -->  Flight  --> the pool of threads
//!                           ^  ^                    | evicted
//!                           |  '------ Dropped -----'
//!                           '--------- Arrived, Failed -------------------------------- landed
//! ```
//!
//! The doors: `quiet` what readers read without a word, `announced` what they said that they will, `flying` fetches into flights,
//! `ceiling` what is left for pages.
//!
//! Between two calls: a page that is present or in flight in `pages` has one frame; a page in flight lies in one flight; the
//! frames of flights and of present pages, the free and the retired ones are all frames there are.

mod announced;
mod ceiling;
mod flying;
mod quiet;

use crate::engine::FileShared;
use crate::flight::Flight;
use crate::memory::{FreeFrames, Memory};
use crate::notes::Notes;
use crate::reading::Call;
use crate::stats::PatternStats;
use announced::Announced;
use bowwave_core::{
    Action, Advice, Bytes, Cache as Pages, CacheConfig, Config, Evicted, Explained, Extent, FetchId, FileId,
    Hold, Holds, Input, Learnt, Nanos, PageBit, PageCount, PageIndex, Pattern, Wave,
};
use bowwave_io::Error;
use flying::Fetching;
pub(crate) use flying::Orders;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Decisions that are kept for whoever asks: a 256th of the memory, 4,096 of about 130 bytes at most.
const TRACE_MAX: u64 = 4096;
const TRACE_SHARE: u64 = 256;
/// Rounds of fetching and evicting before somebody else may have the lock.
const ROUNDS_MAX: usize = 64;
/// Pages that a reader brings at once himself; the rest of a large read is the brain's to split (R14).
pub(crate) const READER_MAX: u64 = 32;
/// Pages of the largest request: 1 MiB.
const REQUEST_MAX: PageCount = PageCount(256);
/// Pages that stay in one search for a frame because their reader still comes; then they go as well, or a search among nothing else
/// would not end. Where seven eighths of memory are shared out, seven of them stand before each that was read.
const AWAITED_MAX: usize = 2048;

pub(crate) struct Brain {
    memory: Arc<Memory>,
    notes: Arc<Notes>,
    wave: Wave,
    pages: Pages,
    free: FreeFrames,
    files: HashMap<u32, Arc<FileShared>>,
    /// Flights of files that were closed meanwhile.
    orphans: HashMap<u32, u32>,
    flights: BTreeMap<(u32, u64), Arc<Flight>>,
    fetches: HashMap<FetchId, Fetching>,
    announced: Announced,
    to_send: Vec<Arc<Flight>>,
    to_land: Vec<(Arc<Flight>, Error)>,
    trace: VecDeque<Explained>,
    trace_max: usize,
    patterns: [PatternStats; Pattern::ALL.len()],
    next_file: u32,
    ceiling: u64,
    kept: Nanos,
    heard: Nanos,
    /// Room for the leaves that are looked at: numbers, and bits of pages read. At most 2,048 and those of one read.
    read_quietly: Vec<(u64, u64)>,
    /// What the reader who is here comes for, while the brain sends for what comes next.
    being_read: Option<(FileId, Extent)>,
    /// Pages that got a frame since the ceiling was looked at.
    grown: u64,
    in_flight: u64,
    bytes_fetched: u64,
    requests: u64,
    frames_max: u64,
    in_use_max: u64,
}

const fn id(file: u32) -> FileId {
    FileId(file as u64)
}

impl Brain {
    /// A brain over `frames` frames, under a ceiling of so many bytes for all that there is.
    pub(crate) fn new(memory: Arc<Memory>, notes: Arc<Notes>, frames: u32, ceiling: u64) -> Self {
        let all = PageCount(u64::from(frames));
        let config = Config {
            memory: all.bytes(),
            read_goes_first: true,
            told_within: quiet::TOLD_WITHIN,
            seen_within: Nanos(0),
            request_max: REQUEST_MAX,
            reader_max: PageCount(READER_MAX),
            ..Config::default()
        };
        let trace_max = (ceiling / TRACE_SHARE / size_of::<Explained>() as u64).min(TRACE_MAX);
        // A cache that hears of every loss needs no ghosts.
        let pages = Pages::new(CacheConfig { ghosts_max: 0, ..CacheConfig::of(all) });
        Self {
            memory,
            notes,
            wave: Wave::new(config),
            pages,
            free: FreeFrames::new(frames),
            files: HashMap::new(),
            orphans: HashMap::new(),
            flights: BTreeMap::new(),
            fetches: HashMap::new(),
            announced: Announced::default(),
            to_send: Vec::new(),
            to_land: Vec::new(),
            trace: VecDeque::with_capacity(trace_max as usize),
            trace_max: trace_max as usize,
            patterns: Pattern::ALL.map(|pattern| PatternStats {
                pattern,
                windows: 0,
                pages: 0,
                pages_async: 0,
            }),
            next_file: 0,
            ceiling,
            kept: Nanos(0),
            heard: Nanos(0),
            read_quietly: Vec::new(),
            being_read: None,
            grown: 0,
            in_flight: 0,
            bytes_fetched: 0,
            requests: 0,
            frames_max: all.0,
            in_use_max: 0,
        }
    }

    // ---- files -----------------------------------------------------------------------------------------------------

    /// A number for a file to be opened.
    pub(crate) fn number(&mut self) -> u32 {
        loop {
            self.next_file = self.next_file.wrapping_add(1).max(1);
            if !self.files.contains_key(&self.next_file) && !self.orphans.contains_key(&self.next_file) {
                return self.next_file;
            }
        }
    }

    pub(crate) fn open(&mut self, now: Nanos, file: &Arc<FileShared>) {
        let (device, size) = (file.meta.endpoint, Bytes(file.meta.len));
        self.files.insert(file.number, Arc::clone(file));
        self.pages.open(id(file.number), PageIndex(PageCount::holding(size).0));
        self.wave.handle(now, Input::Open { file: id(file.number), device, size });
    }

    pub(crate) fn close(&mut self, now: Nanos, number: u32) {
        if self.files.remove(&number).is_none() {
            return;
        }
        self.announced.forget(number);
        self.wave.handle(now, Input::Close { file: id(number) });
        let flights: Vec<_> = self.flights.range((number, 0)..=(number, u64::MAX)).collect();
        let flights: Vec<Arc<Flight>> = flights.into_iter().map(|(_, flight)| Arc::clone(flight)).collect();
        let mut orphans = 0;
        for flight in flights {
            if flight.claim() {
                let error = Error::Cancelled { object: flight.file.meta.name.clone() };
                let runs = flight.take_runs();
                self.settle(now, &flight, runs, false);
                self.to_land.push((flight, error));
            } else {
                flight.cancel();
                orphans += 1;
            }
        }
        self.forget(number, Extent::new(0, u64::MAX), true);
        if orphans == 0 {
            self.pages.close(id(number));
        } else {
            self.orphans.insert(number, orphans);
        }
    }

    /// Gives up the pages of a part of a file that nobody holds; all of them where nobody can, but for the instant in which
    /// a reader of another file passes by.
    fn forget(&mut self, number: u32, pages: Extent, all: bool) {
        let table = self.pages.table(id(number));
        let runs: Vec<Extent> = table.runs(PageBit::Present, pages).collect();
        for page in runs.iter().flat_map(|run| run.start.0..run.end().0) {
            let mut taken = self.memory.unpublish(number, page);
            while all && taken.is_none() {
                std::thread::yield_now();
                taken = self.memory.unpublish(number, page);
            }
            if let Some((run, _)) = taken {
                self.free.give(run);
                self.pages.forget(id(number), Extent::new(page, 1));
            }
        }
    }

    // ---- readers ---------------------------------------------------------------------------------------------------

    /// A read is about to be made of which not everything is there and quiet: the reader's own request goes first, then the
    /// brain hears of it, unless it was announced.
    pub(crate) fn read(&mut self, now: Nanos, file: &Arc<FileShared>, call: Call) -> Begun {
        let (pages, actor) = (call.pages(), call.actor);
        file.learnt(self.learnt(file));
        self.hear(now);
        self.look_left_off(now, (id(file.number), pages), actor);
        self.look_around(now, file.number, pages, pages);
        let table = self.pages.table(id(file.number));
        let missing = table.count(PageBit::Present, pages) < pages.count;
        let hole = table.holes(pages).next();
        if let Some(hole) = hole {
            let before = Extent::between(pages.start, hole.start);
            let waits = table.count(PageBit::InFlight, before).0 > 0;
            if !waits && file.changed().is_none() {
                self.bring(now, file, hole);
            }
        }
        self.tell_evicted(now);
        let told = !self.announced.holds(file.number, pages)
            || self.learnt(file).is_none_or(|learnt| learnt.latency.is_none());
        if told {
            let bytes = Bytes(call.len as u64);
            self.wave.handle(now, Input::Exactly { actor, from: call.from, bytes });
            self.wave.handle(now, Input::Read { file: id(file.number), pages, actor });
        } else {
            self.wave.handle(now, Input::Used { file: id(file.number), pages });
        }
        self.announced.over(file.number, pages);
        // For the core they are read now. Their reader copies them next.
        self.being_read = Some((id(file.number), pages));
        self.pump(now);
        self.being_read = None;
        Begun { told, missing }
    }

    /// A read has taken so long.
    pub(crate) fn waited(&mut self, now: Nanos, number: u32, pages: Extent, actor: u32, took: Nanos) {
        if !self.files.contains_key(&number) {
            return;
        }
        self.wave.handle(now, Input::Waited { file: id(number), pages, actor, took, ended: now });
        // The brain takes it that they are there now. Some were lost again, or never came.
        let table = self.pages.table(id(number));
        let absent: Vec<Extent> = table.holes(pages).collect();
        for pages in absent {
            self.wave.handle(now, Input::Dropped { file: id(number), pages });
        }
        self.pump(now);
    }

    /// What a reader needs next is at `page`.
    pub(crate) fn need(&mut self, now: Nanos, file: &Arc<FileShared>, wanted: Extent) -> Need {
        let page = wanted.start;
        let state = self.pages.table(id(file.number)).state(page);
        if state.present {
            return Need::Present;
        }
        if state.in_flight {
            let before = self.flights.range(..=(file.number, page.0)).next_back();
            let flight = before.map(|(_, flight)| Arc::clone(flight));
            return Need::Flight(flight.expect("a page in flight lies in a flight"));
        }
        if let Some(error) = file.changed() {
            return Need::Error(error);
        }
        let launched = self.bring(now, file, wanted);
        self.tell_evicted(now);
        self.pump(now);
        let flight = self.flights.get(&(file.number, page.0)).filter(|_| launched > 0);
        flight.map_or(Need::NoFrame, |flight| Need::Flight(Arc::clone(flight)))
    }

    /// A reader brings the first of what he needs himself; of what he announced, more of its run. How many flights it takes.
    fn bring(&mut self, now: Nanos, file: &Arc<FileShared>, needs: Extent) -> u32 {
        let own = Extent { count: PageCount(needs.count.0.min(READER_MAX)), ..needs };
        let gap = self.wave.gap_worth(file.meta.endpoint);
        let trip = self.announced.trip(file.number, own, gap);
        self.fly(now, file, Extent { count: own.count.max(trip.count), ..own }, None, true)
    }

    /// The program says how it will read.
    pub(crate) fn advise(&mut self, now: Nanos, number: u32, pages: Extent, advice: Advice) {
        let pages = pages.intersection(Extent::between(PageIndex(0), self.end(number)));
        if advice == Advice::DontNeed {
            self.forget(number, pages, false);
        }
        self.wave.handle(now, Input::Advised { file: id(number), pages, advice });
        self.pump(now);
    }

    fn end(&self, number: u32) -> PageIndex {
        let len = self.files.get(&number).map_or(0, |file| file.meta.len);
        PageIndex(PageCount::holding(Bytes(len)).0)
    }

    // ---- fetching --------------------------------------------------------------------------------------------------

    /// Does what the brain wants, until it wants nothing more for now.
    pub(crate) fn pump(&mut self, now: Nanos) {
        for _ in 0..ROUNDS_MAX {
            self.tell_announced(now);
            let mut any = false;
            while let Some(Action::Fetch { id, file, pages, demand, .. }) = self.wave.poll(now) {
                any |= self.fetch(now, id, file.0 as u32, pages, demand);
            }
            if !self.tell_evicted(now) && !any {
                break;
            }
        }
        self.publish();
        self.keep_house(now);
    }

    /// Tells of what was evicted; whether anything was.
    fn tell_evicted(&mut self, now: Nanos) -> bool {
        let evicted = self.pages.take_evicted();
        for (file, pages) in Evicted::runs(&evicted) {
            self.wave.handle(now, Input::Dropped { file, pages });
            self.announced.over(file.0 as u32, pages);
        }
        !evicted.is_empty()
    }

    /// Says which pages nobody needs to hear of.
    fn publish(&mut self) {
        for (file, leaf) in self.wave.take_changed() {
            let (quiet, _) = self.wave.leaf(file, leaf);
            self.memory.hush(file.0 as u32, leaf, quiet);
        }
    }

    // ---- what is asked ---------------------------------------------------------------------------------------------

    fn keep_trace(&mut self) {
        for explained in self.wave.take_trace() {
            let window = explained.decision.window;
            if let Some(row) = self.patterns.iter_mut().find(|row| row.pattern == explained.decision.pattern)
            {
                row.windows += 1;
                row.pages += window.size.0;
                row.pages_async += window.async_size.0;
            }
            if self.trace.len() == self.trace_max {
                self.trace.pop_front();
            }
            self.trace.push_back(explained);
        }
    }

    pub(crate) fn learnt(&self, file: &FileShared) -> Option<Learnt> {
        self.wave.device(file.meta.endpoint)
    }

    pub(crate) fn wave(&self) -> &Wave {
        &self.wave
    }
    pub(crate) fn frames(&self) -> (u64, u64, u64) {
        (self.pages.used().0, self.in_flight, self.pages.capacity().0)
    }
    pub(crate) fn in_use_max(&self) -> u64 {
        self.in_use_max
    }
    pub(crate) fn traffic(&self) -> (u64, u64) {
        (self.requests, self.bytes_fetched)
    }
    pub(crate) fn resident_of(&self, number: u32) -> u64 {
        if !self.files.contains_key(&number) {
            return 0;
        }
        self.pages.table(id(number)).count(PageBit::Present, Extent::new(0, u64::MAX)).0
    }
    pub(crate) fn patterns(&mut self) -> [PatternStats; Pattern::ALL.len()] {
        self.keep_trace();
        self.patterns
    }
    pub(crate) fn explained(&mut self) -> Vec<Explained> {
        self.keep_trace();
        self.trace.iter().copied().collect()
    }
    pub(crate) fn file(&self, number: u32) -> Option<&Arc<FileShared>> {
        self.files.get(&number)
    }
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// States what must hold between two calls.
    ///
    /// # Panics
    /// When it does not hold.
    pub(crate) fn check(&self) {
        self.wave.check();
        self.pages.check();
        let flying: u64 = self.flights.values().map(|flight| flight.pages.count.0).sum();
        assert_eq!(flying, self.in_flight, "pages in flight are counted");
        let all = self.pages.used().0 + self.free.free() + self.free.retired();
        assert_eq!(all, self.frames_max, "a frame is in use, free or retired");
    }
}

/// How a read began.
pub(crate) struct Begun {
    /// The core heard of it, and is to hear how long it took if it waits.
    pub(crate) told: bool,
    /// Not all of it is there.
    pub(crate) missing: bool,
}

/// What a reader has to do for a page.
pub(crate) enum Need {
    /// Nothing: it came.
    Present,
    /// Wait for this.
    Flight(Arc<Flight>),
    /// Fail: what is missing cannot be had.
    Error(Error),
    /// Every frame is held or in flight: the reader goes to the storage himself.
    NoFrame,
}

impl Brain {
    /// Does to the pages what may take frames from some of them, and asks of each whether it may go. Those that were read quietly
    /// are told of before it is told that they went.
    fn asking<T>(&mut self, now: Nanos, act: impl FnOnce(&mut Pages, Holds<'_>) -> T) -> T {
        let Self { pages, free, memory, wave, being_read, .. } = self;
        let mut asked =
            Asked { memory, free, wave, being_read: *being_read, quietly: Vec::new(), awaited: 0 };
        let done = act(pages, &mut |file, page, known| asked.hold(file, page, known));
        let quietly = asked.quietly;
        self.tell_going(now, quietly);
        done
    }
}

/// Asked of each page that is about to go.
struct Asked<'a> {
    memory: &'a Memory,
    free: &'a mut FreeFrames,
    wave: &'a Wave,
    /// What the reader who is here comes for.
    being_read: Option<(FileId, Extent)>,
    /// Those that were read without a word.
    quietly: Vec<(FileId, PageIndex)>,
    /// Pages that stayed because their reader still comes, since one went for which nobody does.
    awaited: usize,
}

impl Asked<'_> {
    /// Takes the page from the readers, unless one of them holds it, it was read again, or it was not read and its reader comes.
    fn hold(&mut self, file: FileId, page: PageIndex, known: bool) -> Hold {
        let number = file.0 as u32;
        let was_read = self.memory.is_used(number, page.0);
        if known && was_read {
            self.memory.take_used_bit(number, page.0);
            self.quietly.push((file, page));
            return Hold::Read;
        }
        let being_read = self.being_read.is_some_and(|(read, pages)| read == file && pages.contains(page));
        let awaited = !known && !was_read && (being_read || self.wave.awaits(file, page));
        if awaited && self.awaited < AWAITED_MAX {
            self.awaited += 1;
            return Hold::Stay;
        }
        let Some((run, used)) = self.memory.unpublish(number, page.0) else { return Hold::Stay };
        if used {
            self.quietly.push((file, page));
        }
        if !awaited {
            self.awaited = 0;
        }
        self.free.give(run);
        Hold::Go
    }
}
