//! Mapped files: faults become reads of the brain, and pages that a fault has mapped beside its own become used.
//!
//! ```text
//!   pages      0 .............. 15 | 16 ............. 31 | 32             all fetched ahead, mark at 20
//!   reader     fault at 0: the kernel maps 0-15    fault at 16: maps 16-31     fault at 32
//!   told       Read 0                              Used 1-15, 16               Used 17-31 held the mark: Used, Read 32
//! ```
//!
//! The kernel maps up to 16 present pages around a fault, and what is mapped is touched without a word. So a stream is
//! heard of each 16 pages; a page between two faults that was there was passed. A page that is not there always faults.
//!
//! Two ways to know of faults (docs/decisions/0008): perf samples (samples.rs), each as it happens, in user mode; and, where those are
//! refused or the kernel touches on a program's behalf, page tables, looked at while a program's count of faults rises.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowwave_core::{Extent, FileId, Input, Nanos, PAGE_SIZE, PageCount, PageIndex};
use bowwave_wire::Event;

use super::samples::{Heard, Samples};
use super::turns::{REST, Turn, WATCH_LATENCIES};
use super::{LOOK_NS_MIN, State, Told};
use crate::address_space::{AddressSpaces, Place, Region};
use crate::files::bits_in;
use crate::pagemap::{PageTables, can_scan};
use crate::perf::Watch;
use crate::segment::{SharedSegment, process_lives};

/// Pages that the kernel maps around a fault: 64 KiB, aligned (its default; debugfs can change it).
const AROUND: u64 = 16;
/// Faults in files of ours so recent that more may come at any moment.
const LATELY_NS: u64 = 20_000_000;
/// Between two looks at a program's count of faults: while it rises, and where it does not, twice as long each time.
const SCAN_NS_MIN: u64 = 2_000_000;
const SCAN_NS_MAX: u64 = 50_000_000;
/// The same where perf tells of faults, and only the kernel's own are missing.
const SCAN_SELDOM_NS: u64 = 20_000_000;
/// Faults that perf may have told of after the count was read.
const UNTOLD_MIN: u64 = 8;
/// So many touches in a row that led to no fetch, and of those that stand alone not all are told to the brain any more:
/// telling one costs 12 us, and what touches at random would have us busy for nothing. Of each 64 the first 8 are told, so
/// that a stride is still found; a second touch near one is always told.
const VAIN_TOUCHES: u32 = 64;
/// On a device faster than this; a slower one leaves us all the time that we want: 12 us of 300.
const FAST_NS: u64 = 300_000;
/// Of so many touches that stand alone,
const ALONE_OF: u32 = 64;
/// so many are told.
const ALONE_TOLD: u32 = 8;
/// A touch is near another that is no more pages than this from it.
const BESIDE: u64 = 2;
/// A page that has not come after so long is not waited for any more.
const GIVEN_UP_NS: u64 = 2_000_000_000;
/// Threads whose fault has begun and not ended.
const PENDING_MAX: usize = 4096;
/// Samples that are heard before what was decided is sent: else, where many come at once, readers are page by page at windows that lie ready.
const HEARD_MAX: usize = 32;

/// While samples are of everybody, from one look whether that can end to the next.
const WARM_LOOK_NS: u64 = 1_000_000;

/// What a run's page faults are known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Faults {
    /// Nothing: mappings are the kernel's.
    #[default]
    Unseen,
    /// Perf samples, and page tables for the rest.
    Sampled,
    /// Page tables only.
    Scanned,
}

impl Faults {
    /// In a report.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Unseen => "not seen",
            Self::Sampled => "perf samples",
            Self::Scanned => "page tables",
        }
    }
}

/// A fault that has begun.
struct Pending {
    address: u64,
    at: Nanos,
}

/// A touch of a page that was under way. The kernel counts it as a minor fault and does not say when it ends, so it is
/// over when the page has arrived, or when its thread is heard of again.
struct Waiting {
    tid: u32,
    place: Place,
    since: Nanos,
}

/// What the agent knows of mappings.
#[derive(Default)]
pub(super) struct Mapped {
    pub(super) spaces: AddressSpaces,
    pub(super) samples: Samples,
    can_scan: bool,
    tables: PageTables,
    pending: HashMap<u32, Pending>,
    waiting: Vec<Waiting>,
    /// Faults that perf told of since the last look at a process's count.
    told: HashMap<u32, u64>,
    alone: u32,
    turn: Turn,
    /// Whether it rested since page tables were looked at last.
    rested: bool,
    lately: Nanos,
    /// Whether the latest touch was of a file on a device that is known to be no fast one: others of the run may be.
    slow: bool,
    scanned: Nanos,
    scan_gap: Nanos,
    scan_ns: u64,
    pub(super) mappings: u64,
    pub(super) faults: u64,
}

impl Mapped {
    pub(super) fn known_by(&self) -> Faults {
        match (self.samples.are_told(), self.can_scan) {
            (true, _) => Faults::Sampled,
            (false, true) => Faults::Scanned,
            (false, false) => Faults::Unseen,
        }
    }

    /// What there is to see faults by, from now on.
    pub(super) fn begin(&mut self, watch: Option<Watch>, segment: &Arc<SharedSegment>) {
        self.samples = Samples::of(watch, segment);
        self.can_scan = can_scan();
        self.scan_ns = SCAN_NS_MIN;
    }
}

impl State {
    // ---- mappings --------------------------------------------------------------------------------------------------

    /// A program has mapped a part of a file that we know.
    pub(super) fn map(&mut self, event: &Event) {
        let region = Region {
            end: event.address().saturating_add(event.len),
            file: event.file,
            generation: event.generation,
            page: event.offset / PAGE_SIZE,
        };
        self.mapped.spaces.map(event.pid, event.address(), region);
        self.mapped.mappings += 1;
        self.mapped.turn = Turn::Always;
        self.mapped.samples.enable(true);
        self.mapped.scan_ns = SCAN_NS_MIN;
        if !self.mapped.samples.are_told() {
            // What is mapped from now on is news; what is already there is not ours to account for.
            let _ = self.mapped.tables.faults(event.pid);
        }
    }

    pub(super) fn unmap(&mut self, event: &Event) {
        self.mapped.spaces.unmap(event.pid, event.address(), event.address().saturating_add(event.len));
    }

    /// A process became another program, or ended; or a child began with what its parent has.
    pub(super) fn new_space(&mut self, pid: u32, parent: Option<u32>) {
        self.mapped.spaces.clear(pid);
        if let Some(parent) = parent {
            self.mapped.spaces.fork(parent, pid);
        }
    }

    /// Ten times a second: nobody samples where nothing is mapped, and the dead are forgotten.
    pub(super) fn keep_maps(&mut self) {
        if self.mapped.spaces.is_empty() {
            self.mapped.samples.enable(false);
            self.mapped.told.clear();
        }
        let processes = self.mapped.spaces.processes();
        for &pid in &processes {
            if !process_lives(pid as i32) {
                self.mapped.spaces.clear(pid);
            }
        }
        self.mapped.tables.keep(&processes);
    }

    // ---- faults as they happen -------------------------------------------------------------------------------------

    pub(super) fn faults(&mut self) {
        self.mapped.samples.narrow(self.child.load(Ordering::Relaxed));
        self.take_turns();
        self.take_samples();
        self.scan();
    }

    /// Hears of the next few faults.
    pub(super) fn take_samples(&mut self) {
        for _ in 0..HEARD_MAX {
            let Some(heard) = self.mapped.samples.next() else { break };
            self.sampled(&heard);
        }
        let now = self.now();
        self.waits_end(now, |state, w| state.is_settled_page(w.place) || now.since(w.since).0 > GIVEN_UP_NS);
    }

    /// Where touches come to nothing on a fast device, faults are watched by turns.
    fn take_turns(&mut self) {
        if self.mapped.spaces.is_empty() {
            return;
        }
        let (now, watch) = (self.now(), self.watch_ns());
        let lately = now.since(self.mapped.lately).0 < LATELY_NS + REST * watch.0;
        // Who goes in order comes to his next window after many touches of others.
        let processes = u32::try_from(self.mapped.spaces.count()).unwrap_or(u32::MAX);
        let many = VAIN_TOUCHES.saturating_mul(processes.saturating_mul(processes));
        let in_vain = lately && !self.mapped.slow && self.vain > many;
        let turn = self.mapped.turn.next(now, in_vain, watch);
        if turn != self.mapped.turn {
            let rests = matches!(turn, Turn::Resting(_));
            self.mapped.turn = turn;
            self.mapped.rested |= rests;
            self.mapped.samples.enable(!rests);
        }
    }

    fn watch_ns(&self) -> Nanos {
        Nanos(WATCH_LATENCIES * self.latency_min().map_or(LOOK_NS_MIN, |latency| latency.0))
    }

    fn sampled(&mut self, heard: &Heard) {
        let (sample, waited) = (&heard.sample, heard.waited);
        if !self.mapped.spaces.has(sample.pid) {
            return;
        }
        if heard.begins() {
            *self.mapped.told.entry(sample.pid).or_default() += 1;
        }
        let Some(place) = self.mapped.spaces.find(sample.pid, sample.address) else { return };
        let at = Nanos(sample.at_ns.saturating_sub(self.start_ns));
        if heard.begins() {
            self.waits_end(at, |_, w| w.tid == sample.tid);
            self.touched(sample.tid, place, 1, Some(waited));
            if !waited && self.is_under_way(place) && self.mapped.waiting.len() < PENDING_MAX {
                self.mapped.waiting.push(Waiting { tid: sample.tid, place, since: at });
            }
            if self.mapped.pending.len() >= PENDING_MAX {
                self.mapped.pending.clear();
            }
            self.mapped.pending.insert(sample.tid, Pending { address: sample.address, at });
        } else if heard.ends() {
            let begun = self.mapped.pending.remove(&sample.tid);
            let began = begun.filter(|begun| begun.address == sample.address).map(|begun| begun.at);
            self.brought(place, began.unwrap_or(at));
            if let Some(began) = began {
                self.came(sample.tid, place, began, at);
            }
        }
    }

    /// Pages that a program has touched, the last of them by the fault that we hear of. `waited` says whether that fault had
    /// to wait for its page, as far as is known.
    fn touched(&mut self, tid: u32, place: Place, count: u64, waited: Option<bool>) {
        let now = self.now();
        let slot = place.file;
        let Some((end, fast)) = self.heard_of(place, now) else { return };
        let all = Extent::new(place.page, count).intersection(Extent::between(PageIndex(0), end));
        if all.is_empty() {
            return;
        }
        let last = Extent::between(PageIndex(all.end().0 - 1), all.end());
        let unknown = !self.wave.resident(FileId(u64::from(slot)), last.start);
        let alone = self.stands_alone(slot, last.start);
        let tired = self.vain > VAIN_TOUCHES && fast;
        if tired && alone && unknown && waited == Some(true) && !self.is_chosen() {
            self.account_brings(slot, last);
            self.used(slot, last, now);
            self.leaves_out(slot, 1);
            return;
        }
        let passed = if alone { None } else { self.passed(slot, all.start) };
        let passed = passed.unwrap_or(Extent::between(all.start, all.start));
        if unknown && waited != Some(true) {
            // It was there before, or has come in the meantime; if it is under way we shall hear when it has come.
            self.sample(slot, last, true, now);
        }
        let silent = |pages: Extent| pages.is_empty() || self.is_quiet(slot, pages);
        let loud = unknown || !silent(passed) || !silent(all) || waited == Some(true);
        let quietly = if passed.start < all.start {
            Extent::between(passed.start, last.start)
        } else {
            Extent::between(all.start, last.start)
        };
        for pages in [quietly, passed].into_iter().filter(|pages| !pages.is_empty()) {
            self.used(slot, pages, now);
        }
        if !loud {
            self.used(slot, last, now);
            return;
        }
        let place = Place { page: last.start.0, ..place };
        let missing = self.tell_touch(tid, place, alone, now);
        if waited.is_none() {
            self.waited_unseen(tid, place, end, missing, now);
        }
    }

    /// A mapping of a file that we steer was touched. Where the file ends, and whether its device is so fast that not every touch is
    /// worth telling.
    fn heard_of(&mut self, place: Place, now: Nanos) -> Option<(PageIndex, bool)> {
        let held = self.files.get_mut(&place.file).filter(|held| held.generation == place.generation)?;
        self.mapped.faults += 1;
        self.mapped.lately = now;
        self.active = now;
        held.active = now;
        let latency = self.wave.device(held.origin.dev).and_then(|device| device.latency);
        let fast = latency.is_some_and(|latency| latency.0 < FAST_NS);
        self.mapped.slow = latency.is_some() && !fast;
        Some((PageIndex(held.size.div_ceil(PAGE_SIZE)), fast))
    }

    /// Tells the brain of a touch as of a read of its page. Whether it missed it.
    fn tell_touch(&mut self, tid: u32, place: Place, alone: bool, now: Nanos) -> bool {
        let (slot, file, page) = (place.file, FileId(u64::from(place.file)), Extent::new(place.page, 1));
        self.vain = self.vain.saturating_add(1);
        let missing = !self.wave.resident(file, page.start);
        self.remember_told(tid, Told { file: slot, offset: page.start.byte(), missing: u64::from(missing) });
        self.account_used(slot, page);
        self.tell_all(slot, true, now);
        if alone && missing {
            self.leaves_out(slot, 0);
            let untold = self.files.get_mut(&slot).map_or(0, |held| core::mem::take(&mut held.untold));
            if untold > 0 {
                self.wave.handle(now, Input::Untold { file, reads: untold });
            }
        }
        self.wave.handle(now, Input::Read { file, pages: page, actor: tid });
        missing
    }

    /// A page that was touched is mapped, so it has come; how long that took nobody knows. Where what follows is not there the reader
    /// has caught up with what was fetched, and waits, or will: since we last looked, at most.
    fn waited_unseen(&mut self, tid: u32, place: Place, end: PageIndex, missing: bool, now: Nanos) {
        let page = Extent::new(place.page, 1);
        if missing {
            self.account_brings(place.file, page);
        }
        let next = Place { page: page.end().0, ..place };
        let waits = page.end() < end && !self.is_settled_page(next);
        let took = if waits { self.mapped.scan_gap } else { Nanos(0) };
        let file = FileId(u64::from(place.file));
        self.wave.handle(now, Input::Waited { file, pages: page, actor: tid, took, ended: now });
    }

    /// A fault has waited for its page since it `began`. Where it was taken to be there before, it was lost.
    fn brought(&mut self, place: Place, began: Nanos) {
        let page = Extent::new(place.page, 1);
        if !self.knows(place.file, place.generation) {
            return;
        }
        let file = FileId(u64::from(place.file));
        if self.is_settled_page(place) && !self.wave.arrived_since(file, page, began) {
            self.account_lacks(place.file, page);
        }
        self.account_brings(place.file, page);
    }

    /// The page of a fault that waited from then till then has come.
    fn came(&mut self, tid: u32, place: Place, began: Nanos, ended: Nanos) {
        let told = self.told.get(&tid).copied();
        if told.is_none_or(|t| (t.file, t.offset) != (place.file, place.page * PAGE_SIZE)) {
            return;
        }
        self.told.remove(&tid);
        let now = self.now();
        let pages = Extent::new(place.page, 1);
        let file = FileId(u64::from(place.file));
        let took = ended.since(began);
        self.wave.handle(now, Input::Waited { file, pages, actor: tid, took, ended });
    }

    /// Ends the waits for which `over` holds, at `at`.
    fn waits_end(&mut self, at: Nanos, over: impl Fn(&Self, &Waiting) -> bool) {
        let mut i = 0;
        while let Some(waiting) = self.mapped.waiting.get(i) {
            if !over(self, waiting) {
                i += 1;
                continue;
            }
            let Waiting { tid, place, since } = self.mapped.waiting.swap_remove(i);
            self.told.remove(&tid);
            let (took, now) = (at.since(since), self.now());
            let pages = Extent::new(place.page, 1);
            if self.is_wait(place.file, pages, took.0) {
                let file = FileId(u64::from(place.file));
                self.wave.handle(now, Input::Waited { file, pages, actor: tid, took, ended: at });
            }
        }
    }

    /// Whether the brain knows of the page, and knows it there.
    fn is_settled_page(&self, place: Place) -> bool {
        let (_, settled) = self.wave.leaf(FileId(u64::from(place.file)), place.page / 64);
        settled >> (place.page % 64) & 1 == 1
    }

    fn is_under_way(&self, place: Place) -> bool {
        let file = FileId(u64::from(place.file));
        self.wave.resident(file, PageIndex(place.page)) && !self.is_settled_page(place)
    }

    /// Pages that were passed on the way to `page`: those between it and a page used before, no further than one fault
    /// maps, if each of them was there.
    fn passed(&self, slot: u32, page: PageIndex) -> Option<Extent> {
        let held = self.files.get(&slot)?;
        let file = FileId(u64::from(slot));
        let there = |q: PageIndex| self.wave.resident(file, q);
        let used = |q: PageIndex| held.account.is_used(q);
        let lowest = page.back(PageCount(2 * AROUND - 1));
        let mut q = page;
        while q > lowest {
            q = q.back(PageCount(1));
            if used(q) {
                return Some(Extent::between(q + PageCount(1), page));
            }
            if !there(q) {
                break;
            }
        }
        let mut q = page;
        for _ in 1..2 * AROUND {
            q = q + PageCount(1);
            if used(q) {
                return Some(Extent::between(page + PageCount(1), q));
            }
            if !there(q) {
                break;
            }
        }
        None
    }

    /// Whether a touch that stands alone, after many in vain, is one of those that are told all the same.
    fn is_chosen(&mut self) -> bool {
        self.vain = self.vain.saturating_add(1);
        self.mapped.alone = self.mapped.alone.wrapping_add(1);
        self.mapped.alone % ALONE_OF < ALONE_TOLD
    }

    /// A touch that stands alone is `left_out`, or told; where faults are watched by turns there were as many in each rest, about.
    fn leaves_out(&mut self, slot: u32, left_out: u64) {
        let rests = if self.mapped.turn == Turn::Always { 0 } else { REST };
        if let Some(held) = self.files.get_mut(&slot) {
            held.untold += left_out + rests;
        }
    }

    /// Whether the pages beside this one were neither touched nor are there.
    fn stands_alone(&self, slot: u32, page: PageIndex) -> bool {
        let file = FileId(u64::from(slot));
        self.files.get(&slot).is_some_and(|held| {
            (page.0.saturating_sub(BESIDE)..=page.0 + BESIDE)
                .map(PageIndex)
                .all(|q| q == page || !held.account.is_used(q) && !self.wave.resident(file, q))
        })
    }

    /// Whether the brain need not hear of a touch of these pages.
    pub(super) fn is_quiet(&self, slot: u32, pages: Extent) -> bool {
        let file = FileId(u64::from(slot));
        let (first, last) = (pages.start.0, pages.end().0 - 1);
        (first / 64..=last / 64).all(|leaf| {
            let mask = bits_in(pages, leaf);
            self.wave.leaf(file, leaf).0 & mask == mask
        })
    }

    // ---- faults that nobody tells of -------------------------------------------------------------------------------

    fn scan(&mut self) {
        let now = self.now();
        let sampled = self.mapped.samples.are_told();
        let patience = if sampled { self.mapped.scan_ns.max(SCAN_SELDOM_NS) } else { self.mapped.scan_ns };
        if !self.mapped.can_scan
            || self.mapped.spaces.is_empty()
            || self.mapped.turn != Turn::Always
            || now.since(self.mapped.scanned).0 < patience
        {
            return;
        }
        self.mapped.scan_gap = now.since(self.mapped.scanned);
        self.mapped.scanned = now;
        let counted: Vec<(u32, u64)> = self
            .mapped
            .spaces
            .processes()
            .into_iter()
            .filter_map(|pid| Some((pid, self.mapped.tables.faults(pid)?)))
            .collect();
        // What was counted has been sampled by now: what is heard of here is told one by one, in the order in which it happened,
        // and not as page tables have it, by which touches at random would seem to walk through the file.
        self.take_samples();
        while self.mapped.samples.are_left() {
            self.take_samples();
        }
        let mut news = false;
        for (pid, faults) in counted {
            let untold = faults.saturating_sub(self.mapped.told.remove(&pid).unwrap_or(0));
            if untold > if sampled { UNTOLD_MIN } else { 0 } {
                news |= self.look(pid, sampled);
            }
        }
        self.mapped.rested = false;
        self.mapped.scan_ns = if news { SCAN_NS_MIN } else { (2 * self.mapped.scan_ns).min(SCAN_NS_MAX) };
    }

    /// Looks at what is mapped of the process's regions; whether anything is new.
    fn look(&mut self, pid: u32, sampled: bool) -> bool {
        let mut news = false;
        for (start, region) in self.mapped.spaces.regions(pid) {
            for run in self.mapped.tables.look(pid, start, region.end) {
                let place = Place {
                    file: region.file,
                    generation: region.generation,
                    page: region.page + run.start.0,
                };
                let held = self.files.get(&region.file);
                let end = PageIndex(held.map_or(0, |held| held.size.div_ceil(PAGE_SIZE)));
                let pages =
                    Extent::new(place.page, run.count.0).intersection(Extent::between(PageIndex(0), end));
                let known = held.is_none_or(|held| sampled && held.account.used_of(pages) == pages.count);
                if known {
                    continue;
                }
                if self.mapped.rested {
                    // Touched while nobody watched: it is known as used, and says nothing of what comes next.
                    self.used(region.file, pages, self.now());
                    continue;
                }
                news = true;
                self.touched(pid, place, run.count.0, None);
            }
        }
        news
    }

    // ---- sleep -----------------------------------------------------------------------------------------------------

    /// How long may be slept on account of mappings; `None` as long as one likes, since somebody will ring.
    pub(super) fn mapped_patience(&mut self, now: Nanos) -> Option<u64> {
        if self.mapped.samples.are_left() {
            return Some(0);
        }
        if self.mapped.samples.are_to_be_narrowed() {
            return Some(WARM_LOOK_NS);
        }
        if self.mapped.spaces.is_empty() {
            return None;
        }
        let scan = self.mapped.can_scan.then_some(self.mapped.scan_ns);
        if let Turn::Resting(until) = self.mapped.turn {
            return Some(until.since(now).0);
        }
        if !self.mapped.samples.are_on() {
            return scan;
        }
        if self.mapped.turn != Turn::Always || now.since(self.mapped.lately).0 < LATELY_NS {
            let look = self.look_ns();
            return Some(match (self.mapped.turn, self.vain) {
                (Turn::Watching(since), _) => self.watch_ns().0.saturating_sub(now.since(since).0),
                (_, super::VAIN_MAX..) => look.max(self.doze_ns()),
                _ => look,
            });
        }
        self.mapped.samples.wake_at_next();
        scan.map(|scan| scan.max(SCAN_SELDOM_NS))
    }
}
