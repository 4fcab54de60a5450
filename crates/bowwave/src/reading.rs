//! A read that is not all there: told to the brain, waited for page by page, and told again when it is over.
//!
//! ```text
//! read [10, 20)   10 11 12 there: copied     13.. in flight: wait     landed: copied     18 gone again: asked for once more
//!                                                                                        the fourth time: read past the cache
//! ```
//!
//! Blocking reads and their async twins take the same way: [`Filling`] and [`Viewing`] say what comes next, and the two differ in how
//! they wait for a flight and read past the cache.
//!
//! However it ends - bytes, an error, a panic, a future that is dropped - the brain hears that this reader waits no more.

use crate::brain::Need;
use crate::engine::FileShared;
use crate::file::{File, Open};
use crate::flight::Flight;
use crate::page_bytes::PageBytes;
use bowwave_core::{Extent, Nanos, PAGE_SIZE, PageCount, PageIndex};
use bowwave_io::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Times that a page may be lost again between its arrival and its reader, before he reads past the cache.
const LOST_MAX: u32 = 4;
/// Bytes that are read past the cache at once.
const BYPASS_MAX: usize = 1 << 20;

/// What is read, and by whom.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) actor: u32,
    /// The byte at which it begins, and how many it has.
    pub(crate) from: u64,
    pub(crate) len: usize,
}

impl Call {
    pub(crate) fn pages(self) -> Extent {
        pages(self.from, self.len)
    }
}

/// One read on its way.
pub(crate) struct Reading<'a> {
    open: &'a Open,
    actor: u32,
    pages: Extent,
    begun: Instant,
    /// The core heard of it; of what was announced it does not.
    told: bool,
    /// Something was missing: the brain takes it that he waits until he says that he does not.
    waited: bool,
    lost: u32,
    over: bool,
}

/// What comes next for a page.
enum Step {
    /// Look again: it is there.
    Ready,
    /// Wait for this.
    Wait(Arc<Flight>),
    /// Read the storage past the cache.
    Bypass,
}

impl<'a> Reading<'a> {
    /// Tells of a read of `len` bytes at `from`, and sends for what is missing; or brings the first of it himself, where that is quicker.
    pub(crate) fn begin(open: &'a Open, actor: u32, from: u64, len: usize) -> Self {
        let (begun, call) = (Instant::now(), Call { actor, from, len });
        let file = open.file();
        let read = open.engine().with_own(file, |brain, now| brain.read(now, file, call));
        let waited = read.told && read.missing;
        Self { open, actor, pages: call.pages(), begun, told: read.told, waited, lost: 0, over: false }
    }

    /// [`Reading::begin`] for a task, which must not block.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "for the async twins"))]
    pub(crate) fn begin_task(open: &'a Open, actor: u32, from: u64, len: usize) -> Self {
        let (begun, call) = (Instant::now(), Call { actor, from, len });
        let read = open.engine().with(|brain, now| brain.read(now, open.file(), call));
        let waited = read.told && read.missing;
        Self { open, actor, pages: call.pages(), begun, told: read.told, waited, lost: 0, over: false }
    }

    fn file(&self) -> &'a Arc<FileShared> {
        self.open.file()
    }

    /// What to do for the page of byte `at`.
    fn next(&mut self, at: u64) -> Result<Step, Error> {
        let page = PageIndex(at / PAGE_SIZE);
        let wanted = Extent::between(page, self.pages.end());
        if self.lost > LOST_MAX {
            return Ok(Step::Bypass);
        }
        self.lost += 1;
        let engine = self.open.engine();
        match engine.with(|brain, now| brain.need(now, self.file(), wanted)) {
            Need::Present => Ok(Step::Ready),
            Need::Flight(flight) => {
                engine.join(&flight);
                self.waited = self.told;
                Ok(Step::Wait(flight))
            }
            Need::Error(error) => Err(error),
            Need::NoFrame => Ok(Step::Bypass),
        }
    }

    /// What is left of the time that a read may take from its latest progress on.
    pub(crate) fn patience(&self) -> Duration {
        // An attempt that began just before may end this late, and its thread needs a moment to say so.
        self.open.engine().settings.timeout + Duration::from_secs(1)
    }

    /// A flight took longer than any may.
    pub(crate) fn timed_out(&self) -> Error {
        let waited_ms = self.begun.elapsed().as_millis() as u64;
        Error::TimedOut { object: self.file().meta.name.clone(), waited_ms }
    }

    /// What to make of a flight's end.
    pub(crate) fn landed(&self, outcome: Result<(), Error>) -> Result<(), Error> {
        match outcome {
            // It was speculation that nobody wanted a moment ago; we do.
            Err(Error::Cancelled { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// The read is over, and how long it took is known.
    fn end(&mut self) {
        self.over = true;
        if self.waited {
            let took = Nanos(self.begun.elapsed().as_nanos() as u64);
            self.tell(took);
        }
    }

    fn tell(&self, took: Nanos) {
        let (file, pages, actor) = (self.file().number, self.pages, self.actor);
        self.open.engine().with(|brain, now| brain.waited(now, file, pages, actor, took));
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if !self.over && self.waited {
            self.tell(Nanos(0));
        }
    }
}

/// What whoever reads has to do next.
pub(crate) enum Turn<T> {
    /// Nothing more: this is what was read.
    Done(T),
    /// Wait for this, then ask again.
    Wait(Arc<Flight>),
    /// Read this part of the buffer past the cache, then ask again; a view has no buffer, and is copied together instead.
    Bypass(Range<usize>),
}

/// A buffer that is filled from the front on.
pub(crate) struct Filling<'a> {
    pub(crate) reading: Reading<'a>,
    file: &'a File,
    offset: u64,
    at: usize,
}

impl<'a> Filling<'a> {
    pub(crate) fn new(reading: Reading<'a>, file: &'a File, offset: u64) -> Self {
        Self { reading, file, offset, at: 0 }
    }

    /// Copies what is there, and says what comes next.
    pub(crate) fn turn(&mut self, buf: &mut [u8]) -> Result<Turn<()>, Error> {
        loop {
            let copied = self.file.copy(&mut buf[self.at..], self.offset + self.at as u64);
            self.at += copied;
            if self.at == buf.len() {
                self.reading.end();
                return Ok(Turn::Done(()));
            }
            if copied > 0 {
                self.reading.lost = 0;
            }
            match self.reading.next(self.offset + self.at as u64)? {
                Step::Ready => {}
                Step::Wait(flight) => return Ok(Turn::Wait(flight)),
                Step::Bypass => {
                    let from = self.at;
                    self.at = buf.len().min(from + BYPASS_MAX);
                    self.reading.lost = 0;
                    return Ok(Turn::Bypass(from..self.at));
                }
            }
        }
    }
}

/// A view of which all pages are wanted at once.
pub(crate) struct Viewing<'a> {
    pub(crate) reading: Reading<'a>,
    file: &'a File,
    offset: u64,
    len: usize,
}

impl<'a> Viewing<'a> {
    pub(crate) fn new(reading: Reading<'a>, file: &'a File, offset: u64, len: usize) -> Self {
        Self { reading, file, offset, len }
    }

    /// Pins all pages, or says what comes next.
    pub(crate) fn turn(&mut self) -> Result<Turn<PageBytes>, Error> {
        loop {
            let missing = match self.file.view(self.offset, self.len) {
                Ok(view) => {
                    self.reading.end();
                    return Ok(Turn::Done(view));
                }
                Err(missing) => missing,
            };
            match self.reading.next(missing)? {
                Step::Ready => {}
                Step::Wait(flight) => return Ok(Turn::Wait(flight)),
                Step::Bypass => return Ok(Turn::Bypass(0..self.len)),
            }
        }
    }
}

/// The pages that bytes `[at, at + len)` touch.
pub(crate) fn pages(at: u64, len: usize) -> Extent {
    Extent::covering(at, len as u64)
}

/// Bytes that one read is told as at most: an eighth of the cache, so that a read larger than it passes through, and no more
/// than 8 MiB, but 256 KiB where a cache is very small.
pub(crate) fn segment_bytes(frames: u32) -> usize {
    (PageCount(u64::from(frames) / 8).bytes().0).clamp(256 << 10, 8 << 20) as usize
}
