//! Many streams alive in one brain, and single inputs to it that can be counted: shared by the example and its test.
//!
//! ```text
//! page   0        4096       8192       12288             one stream in each stretch of 4096 pages, somewhere in it,
//!        |..rr....|.....rr..|rr.......|.......            so that nothing looks like a stride
//! ```

use bowwave_core::{
    Action, Advice, Bytes, Config, Extent, FileId, Input, Nanos, PAGE_SIZE, PageCount, PageIndex, Wave,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The system's allocator, counted.
pub(crate) struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is handed on unchanged; the counters touch no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(layout.size() as u64, Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTED: Counting = Counting;

/// Allocations made so far by this process.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Relaxed)
}

/// Bytes allocated and not given back.
pub(crate) fn bytes_alive() -> u64 {
    BYTES.load(Relaxed)
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    /// A read of pages that are there, told because one carries a mark: the next window is decided.
    Mark,
    /// A read where a stream is expected, of pages that are gone.
    Miss,
    /// A read that belongs to no stream.
    Stray,
}

const STRETCH: u64 = 4096;
const FILE: FileId = FileId(0);

/// A brain with many streams.
pub(crate) struct Herd {
    wave: Wave,
    now: u64,
    streams: u64,
    dice: u64,
}

impl Herd {
    /// A brain with `streams` streams of two reads each. Their windows are not open yet.
    pub(crate) fn new(streams: u64) -> Self {
        let mut wave = Wave::new(Config { memory: Bytes(1 << 40), ..Config::default() });
        // Room for strays behind the last stream.
        let size = Bytes((2 * streams + 1_000_000) * STRETCH * PAGE_SIZE);
        wave.handle(Nanos(0), Input::Open { file: FILE, device: 0, size });
        let mut herd = Self { wave, now: 0, streams, dice: 7 };
        herd.advise(Advice::Random);
        for stream in 0..streams {
            let page = herd.page(stream);
            herd.read(page);
            herd.read(page + 2);
        }
        herd.advise(Advice::Normal);
        herd
    }

    /// Streams alive, of those asked for.
    pub(crate) fn streams(&self) -> u64 {
        self.wave.streams() as u64
    }

    /// Where a stream begins.
    fn page(&self, stream: u64) -> u64 {
        let mixed = stream.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        stream * STRETCH + mixed % (STRETCH / 2)
    }

    fn random(&mut self) -> u64 {
        self.dice = self.dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.dice >> 33
    }

    fn advise(&mut self, advice: Advice) {
        let pages = Extent::new(0, 1);
        self.wave.handle(Nanos(self.now), Input::Advised { file: FILE, pages, advice });
    }

    fn read(&mut self, page: u64) {
        self.now += 1;
        let read = Input::Read { file: FILE, pages: Extent::new(page, 2), actor: 0 };
        self.wave.handle(Nanos(self.now), read);
    }

    /// Everything that was asked for is sent and arrives.
    fn settle(&mut self) {
        while let Some(Action::Fetch { id, .. }) = self.wave.poll(Nanos(self.now)) {
            self.wave.handle(Nanos(self.now), Input::Arrived { fetch: id });
        }
        self.wave.take_changed();
        self.wave.take_trace().for_each(drop);
    }

    /// Places at which `count` touches of this kind can be made, one after another.
    pub(crate) fn prepare(&mut self, touch: Touch, count: u64) -> Vec<u64> {
        if touch == Touch::Stray {
            let base = self.streams * STRETCH;
            return (0..count).map(|_| base + self.random() % (1_000_000 * STRETCH)).collect();
        }
        let chosen: Vec<u64> = (0..count).map(|i| (i * 7919 + self.random() % 7919) % self.streams).collect();
        let (mut places, mut seen) = (Vec::new(), BTreeSet::new());
        for stream in chosen {
            // Each stream is touched once: a third read opens its window, and the window arrives.
            let page = self.page(stream) + 4;
            if !seen.insert(stream) {
                continue;
            }
            self.read(page);
            self.settle();
            if touch == Touch::Miss {
                let pages = Extent::new(page + 2, 64);
                self.wave.handle(Nanos(self.now), Input::Dropped { file: FILE, pages });
            }
            self.settle();
            places.push(if touch == Touch::Mark { self.marked(page + 2) } else { page + 2 });
        }
        places
    }

    /// The first page of a window that has arrived and must yet be told: the one with the mark.
    fn marked(&self, from: u64) -> u64 {
        let loud = |page: &u64| self.wave.leaf(FILE, page / 64).0 >> (page % 64) & 1 == 0;
        let there = |page: &u64| self.wave.resident(FILE, PageIndex(*page));
        (from..from + 64).find(|page| there(page) && loud(page)).unwrap_or(from)
    }

    /// The touch itself: told, and the actions taken that follow at once. Returns the fetches.
    #[inline(never)]
    pub(crate) fn touch(&mut self, place: u64) -> u64 {
        self.read(place);
        let mut fetches = 0;
        while self.wave.poll(Nanos(self.now)).is_some() {
            fetches += 1;
        }
        fetches
    }
}

/// Bytes that a page costs in the table: pages one after another, and one page in each leaf of 64.
pub(crate) fn bytes_a_page() -> (f64, f64) {
    let cost = |step: u64| {
        let mut wave = Wave::new(Config::default());
        let pages = 1_000_000;
        let size = Bytes(pages * step * PAGE_SIZE);
        wave.handle(Nanos(0), Input::Open { file: FILE, device: 0, size });
        let before = bytes_alive();
        let told = if step == 1 { 1 } else { pages };
        for i in 0..told {
            let pages = Extent { count: PageCount(pages / told), ..Extent::new(i * step, 1) };
            wave.handle(Nanos(0), Input::Present { file: FILE, pages });
            // What changed is the driver's to take.
            wave.take_changed();
        }
        (bytes_alive() - before) as f64 / pages as f64
    };
    (cost(1), cost(64))
}
