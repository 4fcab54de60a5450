//! The page cache: which pages have a frame, in what order they lose it, and what is remembered of the lost ones.
//!
//! It holds no byte and does no I/O: a frame is a number that its driver gives memory to. Memory is cut into *shards*
//! (a NUMA node, a zone, a lock's worth of frames), each with two lists in the order of insertion:
//!
//! ```text
//! shard 0   active    young [p40 p12 p77] old       read twice or more
//!           inactive  young [p90 p91 p92 .. p13 p14] old  --> loses its frame, leaves a ghost {clock, owner, unread}
//! shard 1   ...
//! ```
//!
//! A page enters the inactive list at its young end when it is *submitted*, so that a window's pages lie side by side in
//! the order in which they will be read. Its first read only notes a reference; the second moves it to the active list.
//! Streams that are read once therefore keep their order, and that is what lets context readahead conclude from a lost
//! page that the pages before it were lost first (spec 1.2, 5.6). [`Cache::retain`] gives cached pages the lifetime of
//! the window that they lie in (spec 5.5).
//!
//! Shards must not age apart. [`Victim::Oldest`] takes the page that was inserted first, wherever it lies;
//! [`Victim::Same`] takes from the shard that was short, as a kernel's zone does. [`Cache::age_inversion`] measures what
//! the second costs: the widest distance so far between a victim and the oldest page that stayed (spec 7.3).
//!
//! Worked example: 4 frames, pages 0 to 3 submitted and read once, then `retain([0, 2))`, then two pages more: 2 and 3
//! lose their frames, 0 and 1 stay (test `what_is_retained_outlives_what_is_not`).

mod evict;
mod frames;
mod ghosts;
mod places;
mod shards;

pub use evict::{Hold, Holds};
pub use ghosts::Ghost;
pub use shards::{Background, Placement, Victim};

use crate::play::Submission;
use crate::table::{PageBit, PageTable};
use crate::units::{Bytes, Extent, FileId, PageCount, PageIndex};
use crate::window::Window;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::size_of;
use evict::Sought;
use frames::{Chain, FileSlot, Flag, FrameId, Frames, List, PAGES_MAX};
use ghosts::Ghosts;
use places::Places;
use shards::Shards;

/// What a cache is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Frames of each shard, the one that is filled first in front.
    pub shards: Vec<PageCount>,
    /// Which shard a new page goes to.
    pub placement: Placement,
    /// Whose page goes when a frame is wanted.
    pub victim: Victim,
    /// Reclaim ahead of need, if any.
    pub background: Option<Background>,
    /// Lost pages that are remembered.
    pub ghosts_max: usize,
}

impl CacheConfig {
    /// One shard of `frames` pages, no background reclaim, as many ghosts as frames.
    pub fn of(frames: PageCount) -> Self {
        Self {
            shards: [frames].to_vec(),
            placement: Placement::Fair,
            victim: Victim::Oldest,
            background: None,
            ghosts_max: frames.0 as usize,
        }
    }
}

/// Pages that lost their frames one after the other: a run of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted {
    /// Of which file.
    pub file: FileId,
    /// Which pages.
    pub pages: Extent,
    /// Who had them fetched: the number given to [`Cache::submit`].
    pub owner: u32,
    /// They were fetched ahead and never read.
    pub unread: bool,
}

impl Evicted {
    /// Lost pages as runs, whoever had them fetched, as long as they stand side by side in `evicted`. O(runs).
    pub fn runs(evicted: &[Self]) -> Vec<(FileId, Extent)> {
        let mut all: Vec<(FileId, Extent)> = Vec::new();
        for gone in evicted {
            match all.last_mut() {
                Some((file, run)) if *file == gone.file && run.end() == gone.pages.start => {
                    run.count += gone.pages.count
                }
                _ => all.push((gone.file, gone.pages)),
            }
        }
        all
    }

    /// These were lost too.
    fn join(self, evicted: &mut Vec<Self>) {
        match evicted.last_mut() {
            Some(last)
                if last.pages.end() == self.pages.start && Self { pages: last.pages, ..self } == *last =>
            {
                last.pages.count += self.pages.count
            }
            _ => evicted.push(self),
        }
    }
}

/// What a reader found at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// No frame.
    Absent,
    /// Somebody is fetching it.
    InFlight,
    /// It is there; `ahead`: this is the first read of a page that was fetched ahead, by `owner`.
    Present {
        /// First read of a page that was fetched ahead.
        ahead: bool,
        /// Who had it fetched.
        owner: u32,
    },
}

struct CachedFile {
    slot: FileSlot,
    table: PageTable,
    places: Places,
}

/// The cache.
pub struct Cache {
    files: BTreeMap<FileId, CachedFile>,
    frames: Frames,
    shards: Shards,
    ghosts: Ghosts,
    evicted: Vec<Evicted>,
    /// Those that gave up their frames and have not left their file's table: between calls none.
    leaving: Vec<Evicted>,
    to_write: Vec<(FileId, PageIndex)>,
    /// Room for the frames of one run of pages.
    taken: Vec<u32>,
    age_inversion: u64,
}

impl Cache {
    /// An empty cache.
    ///
    /// # Panics
    /// If there is no shard, or more than 256, or 2^32 frames or more in all.
    pub fn new(config: CacheConfig) -> Self {
        assert!(!config.shards.is_empty(), "a cache has at least one shard");
        let frames = config.shards.iter().fold(0, |sum, n| sum + n.0);
        Self {
            files: BTreeMap::new(),
            frames: Frames::new(frames, config.shards.len()),
            shards: Shards::new(&config),
            ghosts: Ghosts::new(config.ghosts_max),
            evicted: Vec::new(),
            leaving: Vec::new(),
            to_write: Vec::new(),
            taken: Vec::new(),
            age_inversion: 0,
        }
    }

    /// A file of `end_of_file` pages may be cached from now on. Again: it has that size now.
    ///
    /// # Panics
    /// If it has more pages than 2^64 bytes.
    pub fn open(&mut self, file: FileId, end_of_file: PageIndex) {
        assert!(end_of_file.0 <= PAGES_MAX, "file {file}: {end_of_file} pages are more than 2^64 bytes");
        if let Some(known) = self.files.get(&file) {
            let past = Extent::between(end_of_file, known.table.end());
            self.forget(file, past);
        }
        let fresh = || {
            let slot = self.frames.open(file);
            CachedFile { slot, table: PageTable::new(end_of_file), places: Places::default() }
        };
        self.files.entry(file).or_insert_with(fresh).table.set_end_of_file(end_of_file);
    }

    /// A file's pages as a policy sees them.
    ///
    /// # Panics
    /// If the file was never opened.
    pub fn table(&self, file: FileId) -> &PageTable {
        &self.files.get(&file).expect("a file is opened before it is used").table
    }

    /// Submits `window`: its missing pages get frames at the young end and are in flight until [`Cache::arrived`]; the
    /// first of its tail takes the mark. Stops where no frame can be had (spec 1.6): what comes back is what is to be
    /// fetched.
    pub fn submit(&mut self, file: FileId, window: Window, owner: u32) -> Submission {
        self.submit_asking(file, window, owner, None)
    }

    /// [`Cache::submit`] by a driver whose readers use pages without a word: `holds` is asked of each page that is about
    /// to go.
    pub fn submit_unless(
        &mut self,
        file: FileId,
        window: Window,
        owner: u32,
        holds: Holds<'_>,
    ) -> Submission {
        self.submit_asking(file, window, owner, Some(holds))
    }

    fn submit_asking(
        &mut self,
        file: FileId,
        window: Window,
        owner: u32,
        mut holds: Option<Holds<'_>>,
    ) -> Submission {
        let Some(f) = self.files.get_mut(&file) else { return Submission::default() };
        let mut submission = Submission::of(&mut f.table, window);
        let (mut lost, mut sought) = (None, Sought::default());
        for hole in &submission.fetch {
            let got = self.take_frames(file, *hole, owner, &mut holds, &mut sought);
            if got < hole.count {
                lost = Some(hole.start + got);
                break;
            }
        }
        if let Some(from) = lost {
            let f = self.files.get_mut(&file).expect("looked up above");
            for hole in &mut submission.fetch {
                let stays = Extent::between(hole.start, hole.end().min(from));
                f.table.forget(Extent::between(hole.start.max(from), hole.end()));
                *hole = stays;
            }
            submission.fetch.retain(|hole| !hole.is_empty());
            submission.actual = submission.fetch.iter().fold(PageCount(0), |sum, hole| sum + hole.count);
            submission.mark = submission.mark.filter(|&mark| mark < from);
        }
        submission
    }

    /// Pages of `extent` that are written without being read first: absent ones get a frame and are present, all of
    /// them are dirty. Returns the page at which no frame could be had, if that happened.
    pub fn write(&mut self, file: FileId, extent: Extent, owner: u32) -> Option<PageIndex> {
        for page in extent.start.0..extent.end().0 {
            let page = PageIndex(page);
            let one = Extent { start: page, count: PageCount(1) };
            match self.frame(file, page) {
                Some(id) => {
                    if !self.frames.replace(id, Flag::Dirty, true) {
                        self.shards.dirtied(self.frames.get(id).shard(), 1);
                    }
                    self.refer(id);
                }
                None => {
                    self.take_frames(file, one, owner, &mut None, &mut Sought::default());
                    let f = self.files.get_mut(&file).expect("a frame was asked for");
                    let Some(id) = f.places.get(page) else { return Some(page) };
                    f.table.set(PageBit::Present, one);
                    self.frames.replace(id, Flag::Dirty, true);
                    self.frames.landed(id);
                    self.shards.dirtied(self.frames.get(id).shard(), 1);
                }
            }
        }
        None
    }

    /// These dirty pages were written back.
    pub fn cleaned(&mut self, file: FileId, extent: Extent) {
        for page in extent.start.0..extent.end().0 {
            if let Some(id) = self.frame(file, PageIndex(page))
                && self.frames.replace(id, Flag::Dirty, false)
            {
                self.shards.cleaned(self.frames.get(id).shard(), 1);
            }
        }
    }

    /// Dirty pages in all.
    pub fn dirty(&self) -> PageCount {
        self.shards.dirty()
    }

    /// Whether a shard holds more dirty pages than `percent` of its frames, by the limit that the shard keeps: reckoned
    /// anew only when it seems to be exceeded, so that a writer does not look at every frame count (spec 7.1.5).
    pub fn over_dirty_limit(&mut self, percent: u64) -> bool {
        self.shards.over_dirty_limit(percent)
    }

    /// A fetch brought these pages.
    pub fn arrived(&mut self, file: FileId, extent: Extent) {
        let Some(f) = self.files.get_mut(&file) else { return };
        f.places.of(extent).for_each(|id| self.frames.landed(id));
        f.table.arrived(extent);
    }

    /// A fetch of these pages failed: those that are still in flight are absent again, but for those that were written
    /// meanwhile, whole, and are present.
    pub fn failed(&mut self, file: FileId, extent: Extent) {
        let Some(f) = self.files.get(&file) else { return };
        let runs: Vec<Extent> = f.table.runs(PageBit::InFlight, extent).collect();
        for page in runs.iter().flat_map(|run| run.start.0..run.end().0).map(PageIndex) {
            match self.frame(file, page) {
                Some(id) if self.frames.get(id).has(Flag::Dirty) => {
                    self.arrived(file, Extent { start: page, count: PageCount(1) });
                }
                Some(id) => self.release(id),
                None => {}
            }
        }
    }

    /// A reader comes to `page`: says what it finds, and notes the reference (first read) or moves the page to the
    /// active list (second read).
    pub fn touch(&mut self, file: FileId, page: PageIndex) -> Touch {
        self.find(file, page, true)
    }

    /// A reader comes again to the page that his last read of the same descriptor ended in: page by page that is one read, and a
    /// kernel notes no other reference.
    pub fn touch_on(&mut self, file: FileId, page: PageIndex) -> Touch {
        self.find(file, page, false)
    }

    fn find(&mut self, file: FileId, page: PageIndex, refers: bool) -> Touch {
        let Some(f) = self.files.get_mut(&file) else { return Touch::Absent };
        let Some(id) = f.places.get(page) else { return Touch::Absent };
        if self.frames.get(id).has(Flag::InFlight) {
            return Touch::InFlight;
        }
        let ahead = f.table.used(page);
        if refers {
            self.refer(id);
        }
        Touch::Present { ahead, owner: self.frames.get(id).owner }
    }

    /// Takes the mark off `page`; whether there was one.
    pub fn take_mark(&mut self, file: FileId, page: PageIndex) -> bool {
        let one = Extent { start: page, count: PageCount(1) };
        let Some(f) = self.files.get_mut(&file) else { return false };
        // Most pages carry none, and to look is cheaper than to clear.
        f.table.has(PageBit::Mark, page) && f.table.clear(PageBit::Mark, one).0 > 0
    }

    /// Moves the inactive pages of `extent` to the young end of their list, the first of them last to die but one
    /// (spec 5.5). Returns how many moved.
    pub fn retain(&mut self, file: FileId, extent: Extent) -> PageCount {
        let mut moved = 0;
        let Some(f) = self.files.get(&file) else { return PageCount(0) };
        let runs: Vec<Extent> = f.table.runs(PageBit::Present, extent).collect();
        for run in runs {
            for page in run.start.0..run.end().0 {
                if let Some(id) = self.frame(file, PageIndex(page))
                    && self.frames.get(id).list() == List::Inactive
                {
                    self.frames.rejuvenate(id);
                    moved += 1;
                }
            }
        }
        PageCount(moved)
    }

    /// Drops the pages of `extent` that are neither in flight nor dirty, without a ghost: nobody wants them back.
    pub fn forget(&mut self, file: FileId, extent: Extent) -> PageCount {
        let there = self.idle(file, extent);
        there.iter().for_each(|&id| self.release(id));
        PageCount(there.len() as u64)
    }

    /// Evicts the pages of `extent` that are neither in flight nor dirty before their turn: their reader can wait longer than others.
    pub fn let_go(&mut self, file: FileId, extent: Extent) {
        let there = self.idle(file, extent);
        there.into_iter().for_each(|id| _ = self.evict(id, 1));
        self.settle();
    }

    /// The frames of those pages of `extent` that can go at once: neither in flight nor dirty.
    fn idle(&self, file: FileId, extent: Extent) -> Vec<FrameId> {
        let there = self.files.get(&file).into_iter().flat_map(|f| f.places.of(extent));
        there.filter(|&id| self.frames.get(id).idle()).collect()
    }

    /// Forgets a file. Its pages in flight must have arrived or failed.
    ///
    /// # Panics
    /// If a page is in flight, or dirty.
    pub fn close(&mut self, file: FileId) {
        let Some(f) = self.files.get(&file) else { return };
        let all = Extent::between(PageIndex(0), f.table.end());
        self.forget(file, all);
        let left = self.files[&file].table.resident(all);
        assert_eq!(left, PageCount(0), "file {file}: closed while pages are in flight or dirty");
        if let Some(f) = self.files.remove(&file) {
            self.frames.close(f.slot);
        }
    }

    /// Bytes that the cache itself takes, about.
    pub fn bytes_of_memory(&self) -> Bytes {
        let places: u64 = self.files.values().map(|f| f.places.bytes_of_memory().0).sum();
        let tables: u64 = self.files.values().map(|f| f.table.bytes_of_memory().0).sum();
        let files = self.files.len() * 2 * size_of::<CachedFile>();
        let kept = self.frames.bytes_of_memory() + self.ghosts.bytes_of_memory();
        Bytes((files + size_of::<Self>()) as u64 + places + tables) + kept
    }

    /// What was evicted since the last call, in order.
    pub fn take_evicted(&mut self) -> Vec<Evicted> {
        // As many are likely to be evicted by then.
        let room = Vec::with_capacity(self.evicted.len());
        core::mem::replace(&mut self.evicted, room)
    }

    /// Dirty pages that a search for a victim passed over since the last call.
    pub fn take_to_write(&mut self) -> Vec<(FileId, PageIndex)> {
        core::mem::take(&mut self.to_write)
    }

    /// What is remembered of a page that lost its frame, and how many pages lost theirs since: its refault distance.
    pub fn ghost(&self, file: FileId, page: PageIndex) -> Option<(Ghost, u64)> {
        self.ghosts.of(file, page)
    }

    /// The widest distance so far, in insertions, between a victim and the oldest page that stayed. 0 where shards age
    /// together.
    pub fn age_inversion(&self) -> u64 {
        self.age_inversion
    }

    /// Frames in use.
    pub fn used(&self) -> PageCount {
        self.shards.used()
    }

    /// Frames in all.
    pub fn capacity(&self) -> PageCount {
        self.shards.capacity()
    }

    /// Frames in use in one shard.
    pub fn used_of(&self, shard: usize) -> PageCount {
        self.shards.used_of(shard)
    }

    /// States what must hold between calls.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check(&self) {
        let listed = self.frames.check();
        assert_eq!(listed, self.shards.used().0, "every frame in use lies in one list");
        let mut resident = 0;
        for (file, f) in &self.files {
            let all = Extent::between(PageIndex(0), f.table.end());
            resident += f.table.resident(all).0;
            assert_eq!(
                f.table.count(PageBit::Present, all) + f.table.count(PageBit::InFlight, all),
                f.table.resident(all),
                "file {file}: no page is both present and in flight"
            );
        }
        assert!(self.leaving.is_empty(), "who gave up his frame has left the table");
        assert_eq!(resident, self.shards.used().0, "a page is resident if and only if it has a frame");
        self.ghosts.check();
    }

    fn frame(&self, file: FileId, page: PageIndex) -> Option<FrameId> {
        self.files.get(&file)?.places.get(page)
    }

    fn refer(&mut self, id: FrameId) {
        if self.frames.get(id).list() == List::Inactive && self.frames.replace(id, Flag::Referenced, true) {
            self.frames.activate(id);
        }
    }

    fn touch_frame(&mut self, id: FrameId) {
        let frame = self.frames.get(id);
        let (file, page, list) = (self.frames.file(frame), frame.page(), frame.list());
        self.touch(file, page);
        // What is active already has been read again: it is as good as new.
        if list == List::Active {
            self.frames.rejuvenate(id);
        }
    }

    /// The frame is free and the page absent.
    fn release(&mut self, id: FrameId) {
        self.frames.landed(id);
        let frame = *self.frames.get(id);
        debug_assert!(frame.idle(), "what is dirty is not given up");
        self.frames.free(Chain::of(id));
        self.shards.gave(frame.shard(), PageCount(1));
        let f = self.files.get_mut(&self.frames.file(&frame)).expect("a frame's file is open");
        let one = Extent { start: frame.page(), count: PageCount(1) };
        f.table.forget(one);
        f.places.take(one);
    }
}

#[cfg(test)]
mod tests;
