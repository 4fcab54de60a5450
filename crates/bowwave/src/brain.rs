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
//! Between two calls: a page that is present or in flight in `pages` has one frame; a page in flight lies in one flight; the
//! frames of flights and of present pages, the free and the retired ones are all frames there are.

use crate::engine::FileShared;
use crate::flight::Flight;
use crate::memory::{FreeFrames, LEAF, Memory, Run, mask};
use crate::notes::{Note, Notes};
use crate::pool::bytes_of_threads;
use crate::stats::PatternStats;
use bowwave_core::{
    Action, Advice, Bytes, Cache as Pages, CacheConfig, Config, Evicted, Explained, Extent, FetchId, FileId,
    Hold, Input, Nanos, PAGE_SIZE, PageBit, PageCount, PageIndex, Pattern, Wave, Window,
};
use bowwave_io::Error;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Decisions that are kept for whoever asks: a 256th of the memory, 4,096 of about 130 bytes at most.
const TRACE_MAX: u64 = 4096;
const TRACE_SHARE: u64 = 256;
/// Leaves on either side of a read of which is looked what was read quietly, and how many of which nothing was end it.
const LEAVES_AROUND: u64 = 1024;
const LEAVES_UNREAD: u32 = 2;
/// Rounds of fetching and evicting before somebody else may have the lock.
const ROUNDS_MAX: usize = 64;
/// Pages that a reader brings at once himself; the rest of a large read is the brain's to split (R14).
pub(crate) const READER_MAX: u64 = 32;
/// Pages of the largest request: 1 MiB.
const REQUEST_MAX: PageCount = PageCount(256);
/// A share of the ceiling that stays free for what grows until it is measured again: and what a page may cost at
/// worst, alone in its leaf, its tables and lists.
const SLACK_SHARE: u64 = 64;
const SLACK_MIN: u64 = 128 << 10;
/// Files of which the tables are measured after every miss; where there are more, that would take too long.
const FILES_FEW: usize = 64;
const PAGE_COST_MAX: u64 = 1024;
/// Pages of a list of what will be read that are sent for before the device was timed: 16 MiB.
const ANNOUNCED_FIRST: u64 = 4096;
/// Notes of quiet reads are handed over so often.
const HEARD_EVERY: Nanos = Nanos::from_ms(500);
/// What a file costs beside its tables, about.
const FILE_BYTES: u64 = 1024;
/// What a flight costs.
const FLIGHT_BYTES: u64 = 512;

/// A fetch of the brain's that is under way.
struct Fetching {
    file: u32,
    pages: Extent,
    flights: u32,
    arrived: bool,
}

/// What is to be read, as the program said.
struct Announced {
    file: u32,
    ranges: VecDeque<Extent>,
}

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
    announced: VecDeque<Announced>,
    /// Pages that were announced, sent for, and not read so far, at most.
    announced_out: u64,
    to_send: Vec<Arc<Flight>>,
    to_land: Vec<(Arc<Flight>, Error)>,
    trace: VecDeque<Explained>,
    trace_max: usize,
    patterns: [PatternStats; Pattern::ALL.len()],
    next_file: u32,
    ceiling: u64,
    kept: Nanos,
    heard: Nanos,
    /// Pages that got a frame since the ceiling was looked at.
    grown: u64,
    in_flight: u64,
    bytes_fetched: u64,
    requests: u64,
    frames_max: u64,
    /// Frames that the brain was told of.
    frames_told: u64,
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
            announced: VecDeque::new(),
            announced_out: 0,
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
            grown: 0,
            in_flight: 0,
            bytes_fetched: 0,
            requests: 0,
            frames_max: all.0,
            frames_told: all.0,
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
        self.announced.retain(|announced| announced.file != number);
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
    /// brain hears of it. Whether something is missing: then the reader tells when his read is over.
    pub(crate) fn read(&mut self, now: Nanos, file: &Arc<FileShared>, pages: Extent, actor: u32) -> bool {
        self.hear(now);
        self.look_around(now, file.number, pages);
        let table = self.pages.table(id(file.number));
        let missing = table.count(PageBit::Present, pages) < pages.count;
        let hole = table.holes(pages).next();
        if let Some(hole) = hole {
            let before = Extent::between(pages.start, hole.start);
            let waits = table.count(PageBit::InFlight, before).0 > 0;
            if !waits && file.changed().is_none() {
                let own = Extent { count: PageCount(hole.count.0.min(READER_MAX)), ..hole };
                self.fly(now, file, own, None, true);
            }
        }
        self.tell_evicted(now);
        self.wave.handle(now, Input::Read { file: id(file.number), pages, actor });
        self.pump(now);
        missing
    }

    /// A read has taken so long.
    pub(crate) fn waited(&mut self, now: Nanos, number: u32, pages: Extent, actor: u32, took: Nanos) {
        if !self.files.contains_key(&number) {
            return;
        }
        self.wave.handle(now, Input::Waited { file: id(number), pages, actor, took });
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
        let own = Extent { count: PageCount(wanted.count.0.min(READER_MAX)), ..wanted };
        let launched = self.fly(now, file, own, None, true);
        self.tell_evicted(now);
        self.pump(now);
        let flight = self.flights.get(&(file.number, page.0)).filter(|_| launched > 0);
        flight.map_or(Need::NoFrame, |flight| Need::Flight(Arc::clone(flight)))
    }

    /// Hears of the latest quiet reads, each after what was read quietly before it.
    fn hear(&mut self, now: Nanos) {
        if now.since(self.heard) < HEARD_EVERY {
            return;
        }
        self.heard = now;
        let notes = Arc::clone(&self.notes);
        notes.take(now, |Note { file, actor, start, count, part }| {
            let pages = Extent::new(start, count);
            if self.files.contains_key(&file) && self.is_where_its_reader_is(file, pages) {
                for leaf in (start / LEAF).saturating_sub(1)..(start + count).div_ceil(LEAF) {
                    self.look(now, file, leaf, if part { Extent::new(start + count - 1, 1) } else { none() });
                }
                self.wave.handle(now, Input::Read { file: id(file), pages, actor });
            }
        });
    }

    /// Whether a quiet read is the latest of its stream still: its reader may have come further since, and been heard of there.
    /// Then what lies on both sides of it was read, or it is gone already.
    fn is_where_its_reader_is(&self, number: u32, pages: Extent) -> bool {
        let table = self.pages.table(id(number));
        let used = |page| table.has(PageBit::Used, page) || self.memory.is_used(number, page.0);
        let present = table.count(PageBit::Present, pages) == pages.count;
        let before = pages.start.0 == 0 || used(PageIndex(pages.start.0 - 1));
        present && !(before && used(pages.end()))
    }

    /// What was read quietly around a read, told before it: leaf by leaf, as far as pages were read lately.
    fn look_around(&mut self, now: Nanos, number: u32, pages: Extent) {
        let (first, last) = (pages.start.0 / LEAF, (pages.end().0.max(1) - 1) / LEAF);
        for leaf in first..=last {
            self.look(now, number, leaf, pages);
        }
        let mut unread = 0;
        for leaf in (first.saturating_sub(LEAVES_AROUND)..first).rev() {
            unread = if self.look(now, number, leaf, none()) { 0 } else { unread + 1 };
            if unread == LEAVES_UNREAD {
                break;
            }
        }
        unread = 0;
        for leaf in last + 1..=last + LEAVES_AROUND {
            unread = if self.look(now, number, leaf, none()) { 0 } else { unread + 1 };
            if unread == LEAVES_UNREAD {
                break;
            }
        }
    }

    /// Whether pages of a leaf were read quietly; if so, tells. Pages that are being read are not looked at: a reader who takes
    /// a page in four pieces has not read it four times.
    fn look(&mut self, now: Nanos, number: u32, leaf: u64, except: Extent) -> bool {
        let except = except.intersection(Extent::new(leaf * LEAF, LEAF));
        let from = except.start.0.saturating_sub(leaf * LEAF);
        let mut used = self.memory.take_used(number, leaf, !mask(from, from + except.count.0));
        let any = used != 0;
        while used != 0 {
            let first = used.trailing_zeros();
            let count = (used >> first).trailing_ones();
            let pages = Extent::new(leaf * LEAF + u64::from(first), u64::from(count));
            used &= if first + count == 64 { 0 } else { !0 << (first + count) };
            self.wave.handle(now, Input::Used { file: id(number), pages });
            for page in pages.start.0..pages.end().0 {
                self.pages.touch(id(number), PageIndex(page));
            }
        }
        any
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

    /// The program says what it will read. It is told on as memory allows: half of it may be out unread.
    pub(crate) fn announce(&mut self, now: Nanos, number: u32, ranges: VecDeque<Extent>) {
        self.announced.push_back(Announced { file: number, ranges });
        self.pump(now);
    }

    fn end(&self, number: u32) -> PageIndex {
        let len = self.files.get(&number).map_or(0, |file| file.meta.len);
        PageIndex(PageCount::holding(Bytes(len)).0)
    }

    fn tell_announced(&mut self, now: Nanos) {
        while let Some(next) = self.announced.front_mut() {
            let out = self.wave.unread().0 + self.announced_out;
            let Some(file) = self.files.get(&next.file) else { return };
            let gap = self.wave.gap_worth(file.meta.endpoint);
            let first = if gap.0 == 0 { ANNOUNCED_FIRST } else { u64::MAX };
            let room = (self.pages.capacity().0 / 2).min(first).saturating_sub(out);
            if next.ranges.is_empty() {
                self.announced.pop_front();
                continue;
            }
            if room == 0 {
                return;
            }
            let number = next.file;
            let table = self.pages.table(id(number));
            for pages in batch(&mut next.ranges, room, gap.0) {
                // Until it is sent it is not counted as unread.
                self.announced_out += table.holes(pages).map(|hole| hole.count.0).sum::<u64>();
                self.wave.handle(now, Input::Advised { file: id(number), pages, advice: Advice::WillNeed });
            }
        }
    }

    // ---- fetching --------------------------------------------------------------------------------------------------

    /// Does what the brain wants, until it wants nothing more for now.
    pub(crate) fn pump(&mut self, now: Nanos) {
        for _ in 0..ROUNDS_MAX {
            if self.flights.is_empty() {
                // What was announced and is neither here nor on its way will not come.
                self.announced_out = 0;
            }
            self.tell_announced(now);
            let mut any = false;
            while let Some(Action::Fetch { id, file, pages, demand, why }) = self.wave.poll(now) {
                if why.0.starts_with("R15") {
                    self.announced_out = self.announced_out.saturating_sub(pages.count.0);
                }
                any |= self.fetch(now, id, file.0 as u32, pages, demand);
            }
            if !self.tell_evicted(now) && !any {
                break;
            }
        }
        self.publish();
        self.keep_house(now);
    }

    /// Performs one fetch of the brain's. Whether its end was told at once.
    fn fetch(&mut self, now: Nanos, fetch: FetchId, number: u32, pages: Extent, demand: bool) -> bool {
        let Some(file) = self.files.get(&number).filter(|file| file.changed().is_none()).map(Arc::clone)
        else {
            self.wave.handle(now, Input::Failed { fetch });
            return true;
        };
        if self.pages.table(id(number)).resident(pages) == pages.count {
            self.wave.handle(now, Input::Skipped { fetch });
            return true;
        }
        let flights = self.fly(now, &file, pages, Some(fetch), demand);
        if flights == 0 {
            self.wave.handle(now, Input::Failed { fetch });
            return true;
        }
        self.fetches.insert(fetch, Fetching { file: number, pages, flights, arrived: false });
        false
    }

    /// Gives the missing pages of `wanted` frames, as far as there are any, and lines flights up for them.
    fn fly(
        &mut self,
        now: Nanos,
        file: &Arc<FileShared>,
        wanted: Extent,
        fetch: Option<FetchId>,
        demand: bool,
    ) -> u32 {
        let number = file.number;
        let window = Window { start: wanted.start, size: wanted.count, async_size: PageCount(0) };
        if self.pages.table(id(number)).resident(wanted).0 > 0 {
            self.pages.retain(id(number), wanted);
        }
        let Self { pages, free, memory, wave, .. } = self;
        let mut quietly = Vec::new();
        let submission = pages.submit_unless(id(number), window, 0, &mut |file, page, known| {
            hold(memory, free, &mut quietly, file, page, known)
        });
        tell_quietly(wave, now, &quietly);
        let mut flights = 0;
        for hole in submission.fetch {
            let mut runs = Vec::new();
            let mut left = hole.count.0;
            while left > 0 {
                let run = self.free.take(left).expect("a frame for each page that the cache took");
                left -= run.count();
                runs.push(run);
            }
            for (leaf, count) in leaves(hole) {
                self.memory.expect(number, leaf, count);
            }
            let flight = Arc::new(Flight::new(Arc::clone(file), hole, fetch, demand, runs));
            self.flights.insert((number, hole.start.0), Arc::clone(&flight));
            self.in_flight += hole.count.0;
            self.grown += hole.count.0;
            self.to_send.push(flight);
            flights += 1;
        }
        self.in_use_max = self.in_use_max.max(self.pages.used().0);
        flights
    }

    /// A flight has landed, or will never start: its frames go to the readers, or back.
    pub(crate) fn settle(&mut self, now: Nanos, flight: &Arc<Flight>, runs: Vec<Run>, arrived: bool) {
        let (number, pages) = (flight.file.number, flight.pages);
        self.flights.remove(&(number, pages.start.0));
        self.in_flight -= pages.count.0;
        let open = self.files.contains_key(&number);
        if arrived && open {
            self.bytes_fetched += pages.count.bytes().0;
            self.pages.arrived(id(number), pages);
            let mut page = pages.start.0;
            for run in runs {
                let count = run.count();
                self.memory.publish(number, page, run);
                page += count;
            }
        } else {
            self.pages.failed(id(number), pages);
            for run in runs {
                self.free.give(run);
            }
            for (leaf, count) in leaves(pages) {
                self.memory.expect_no_more(number, leaf, count);
            }
        }
        if let Some(orphans) = self.orphans.get_mut(&number) {
            *orphans -= 1;
            if *orphans == 0 {
                self.orphans.remove(&number);
                self.pages.close(id(number));
            }
        }
        if let Some(fetch) = flight.fetch {
            self.progress(now, fetch, arrived && open);
        }
    }

    /// One flight of a fetch is over.
    fn progress(&mut self, now: Nanos, fetch: FetchId, arrived: bool) {
        let Some(fetching) = self.fetches.get_mut(&fetch) else { return };
        fetching.flights -= 1;
        fetching.arrived |= arrived;
        if fetching.flights > 0 {
            return;
        }
        let Some(fetching) = self.fetches.remove(&fetch) else { return };
        let over = if fetching.arrived { Input::Arrived { fetch } } else { Input::Failed { fetch } };
        self.wave.handle(now, over);
        if fetching.arrived && self.files.contains_key(&fetching.file) {
            // A part had no frame, or failed.
            let table = self.pages.table(id(fetching.file));
            let absent: Vec<Extent> = table.holes(fetching.pages).collect();
            for pages in absent {
                self.wave.handle(now, Input::Dropped { file: id(fetching.file), pages });
            }
        }
    }

    /// Tells of what was evicted; whether anything was.
    fn tell_evicted(&mut self, now: Nanos) -> bool {
        let evicted = self.pages.take_evicted();
        for (file, pages) in Evicted::runs(&evicted) {
            self.wave.handle(now, Input::Dropped { file, pages });
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

    /// Flights to be lined up, and such as will never start: the caller does both without the lock.
    pub(crate) fn take_orders(&mut self) -> Orders {
        self.requests += self.to_send.len() as u64;
        Orders { send: std::mem::take(&mut self.to_send), land: std::mem::take(&mut self.to_land) }
    }

    // ---- the ceiling -----------------------------------------------------------------------------------------------

    /// What everything beside the frames takes of the memory is taken from the frames: looked at whenever something was
    /// missing; with many files ten times a second, and before it can have grown by a quarter of the slack.
    fn keep_house(&mut self, now: Nanos) {
        let many = self.files.len() > FILES_FEW;
        let soon = many && now.since(self.kept) < Nanos::from_ms(100) && self.kept > Nanos(0);
        if soon && self.grown * PAGE_COST_MAX < self.slack() / 4 {
            return;
        }
        (self.kept, self.grown) = (now, 0);
        self.keep_trace();
        let left = self.ceiling.saturating_sub(self.metadata() + self.slack()) / PAGE_SIZE;
        self.fit(now, left.clamp(1, self.frames_max));
    }

    fn slack(&self) -> u64 {
        (self.ceiling / SLACK_SHARE).max(SLACK_MIN)
    }

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

    /// As many frames as there is memory left for.
    fn fit(&mut self, now: Nanos, frames: u64) {
        let capacity = self.pages.capacity().0;
        if frames == capacity {
            return;
        }
        let Self { pages, free, memory, wave, .. } = self;
        let mut quietly = Vec::new();
        pages.resize_unless(0, PageCount(frames), &mut |file, page, known| {
            hold(memory, free, &mut quietly, file, page, known)
        });
        tell_quietly(wave, now, &quietly);
        let retired = self.frames_max - frames;
        if self.free.retired() < retired {
            // What is pinned or in flight is retired when it comes back: frames in use are never over the capacity for long.
            let runs = self.free.retire(retired - self.free.retired());
            self.memory.release(runs);
        } else {
            self.free.revive(self.free.retired() - retired);
        }
        self.tell_evicted(now);
        // The brain believes anew in all of it: only where it is another memory, or what it learnt of it (R12) would be lost.
        if frames.abs_diff(self.frames_told) * 16 > self.frames_told {
            self.frames_told = frames;
            self.wave.handle(now, Input::Memory { bytes: PageCount(frames).bytes() });
        }
    }

    /// Bytes that everything beside the frames takes.
    pub(crate) fn metadata(&self) -> u64 {
        let files = (self.files.len() + self.orphans.len()) as u64 * FILE_BYTES;
        let flights = self.flights.len() as u64 * FLIGHT_BYTES;
        let trace = (self.trace.capacity() * size_of::<Explained>()) as u64;
        let announced: usize = self.announced.iter().map(|a| a.ranges.capacity() * size_of::<Extent>()).sum();
        self.memory.bytes_of_leaves()
            + bytes_of_threads(self.ceiling)
            + self.wave.bytes_of_memory().0
            + self.pages.bytes_of_memory().0
            + self.free.bytes_of_memory()
            + (files + flights + trace + announced as u64)
    }

    // ---- what is asked ---------------------------------------------------------------------------------------------

    pub(crate) fn latency(&self, file: &FileShared) -> Option<Nanos> {
        self.wave.device(file.meta.endpoint)?.0
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

/// What is to be done without the lock.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) send: Vec<Arc<Flight>>,
    pub(crate) land: Vec<(Arc<Flight>, Error)>,
}

/// Asked of a page that is about to go: takes it from the readers, unless one of them holds it or it was read again.
fn hold(
    memory: &Memory,
    free: &mut FreeFrames,
    quietly: &mut Vec<(FileId, PageIndex)>,
    file: FileId,
    page: PageIndex,
    known: bool,
) -> Hold {
    let number = file.0 as u32;
    if known && memory.is_used(number, page.0) {
        memory.take_used_bit(number, page.0);
        quietly.push((file, page));
        return Hold::Read;
    }
    let Some((run, used)) = memory.unpublish(number, page.0) else { return Hold::Stay };
    if used {
        quietly.push((file, page));
    }
    free.give(run);
    Hold::Go
}

/// Tells of pages that were read quietly, before it is told that they went.
fn tell_quietly(wave: &mut Wave, now: Nanos, quietly: &[(FileId, PageIndex)]) {
    for &(file, page) in quietly {
        wave.handle(now, Input::Used { file, pages: Extent { start: page, count: PageCount(1) } });
    }
}

/// The leaves of an extent, and how many of its pages lie in each.
fn leaves(pages: Extent) -> impl Iterator<Item = (u64, u64)> {
    let (start, end) = (pages.start.0, pages.end().0);
    (start / LEAF..end.div_ceil(LEAF))
        .map(move |leaf| (leaf, end.min((leaf + 1) * LEAF) - start.max(leaf * LEAF)))
}

/// Takes about `room` pages from the front of `ranges`: as runs, in the order in which the first page of each is read; what lies
/// no further apart than `gap` is one run.
fn batch(ranges: &mut VecDeque<Extent>, room: u64, gap: u64) -> Vec<Extent> {
    let (mut taken, mut sorted) = (0, Vec::new());
    while taken < room
        && let Some(range) = ranges.pop_front()
    {
        let part = Extent { count: PageCount(range.count.0.min(room - taken)), ..range };
        let rest = Extent::between(part.end(), range.end());
        if !rest.is_empty() {
            ranges.push_front(rest);
        }
        taken += part.count.0;
        sorted.push((part, sorted.len()));
    }
    sorted.sort_unstable();
    let mut runs: Vec<(usize, Extent)> = Vec::new();
    for (part, order) in sorted {
        match runs.last_mut() {
            Some((first, run)) if part.start.0 <= run.end().0 + gap => {
                *run = Extent::between(run.start, run.end().max(part.end()));
                *first = order.min(*first);
            }
            _ => runs.push((order, part)),
        }
    }
    runs.sort_unstable();
    runs.into_iter().map(|(_, run)| run).collect()
}

const fn none() -> Extent {
    Extent::new(0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_announced_goes_out_in_runs() {
        let ranges = [
            Extent::new(100, 4),
            Extent::new(0, 4),
            Extent::new(104, 4),
            Extent::new(6, 4),
            Extent::new(200, 9),
        ];
        let mut left = VecDeque::from(ranges);
        assert_eq!(batch(&mut left, 17, 2), [Extent::new(100, 8), Extent::new(0, 10), Extent::new(200, 1)]);
        assert_eq!(left, [Extent::new(201, 8)]);
    }
}
