//! A file of a cache: what programs call.
//!
//! ```text
//! read_at   all pages there and quiet?  copy, no lock      else: told, waited for, copied as it comes
//! ```
//!
//! A read is short at the end of the file and nowhere else. Worked example (`tests/library.rs`,
//! `a_read_is_short_at_the_end_only`): of a file of 10,000 bytes, 4,096 from 8,000 on are 2,000, and from 10,000 on none.

use crate::cache::Handle;
use crate::engine::{Engine, FileShared};
use crate::flight::Flight;
use crate::memory::{LEAF, mask};
use crate::notes::Note;
use crate::page_bytes::{Leaves, PageBytes};
use crate::reading::{self, Filling, Reading, Turn, Viewing};
use crate::stats::FileStats;
use bowwave_core::{Advice, Explained, Extent, FileId, PAGE_SIZE};
use bowwave_io::{Error, Meta};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// An open file. Clones are the same file; its pages leave the cache when the last of them is gone.
#[derive(Clone)]
pub struct File {
    open: Arc<Open>,
}

/// A file for as long as anybody has it.
pub(crate) struct Open {
    file: Arc<FileShared>,
    handle: Arc<Handle>,
}

impl Open {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }
    pub(crate) const fn file(&self) -> &Arc<FileShared> {
        &self.file
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let number = self.file.number;
        self.engine().with(|brain, now| brain.close(now, number));
    }
}

/// A number for each thread that reads.
pub(crate) fn this_thread() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1 << 31);
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed) | 1 << 31);
        }
        number.get()
    })
}

impl File {
    pub(crate) fn new(file: Arc<FileShared>, handle: Arc<Handle>) -> Self {
        Self { open: Arc::new(Open { file, handle }) }
    }

    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "for the async twins"))]
    pub(crate) const fn open(&self) -> &Arc<Open> {
        &self.open
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.open.file.meta.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What its storage says of it.
    pub fn meta(&self) -> &Meta {
        &self.open.file.meta
    }

    /// Reads into `buf` from byte `offset` on: all of it, or up to the end of the file; says how many bytes.
    ///
    /// # Errors
    /// What the storage says of pages that are not cached, once it was asked again where that may help; see [`Error`]. Bytes
    /// of `buf` mean nothing then.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let len = self.clip(buf.len(), offset);
        let buf = &mut buf[..len];
        if self.copy_quietly(this_thread, buf, offset) {
            return Ok(len);
        }
        self.read_slowly(this_thread(), buf, offset)
    }

    /// [`File::read_at`] for a reader who is not the thread that calls: a handle, a client, a task.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_at_by(&self, actor: u32, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let len = self.clip(buf.len(), offset);
        let buf = &mut buf[..len];
        if self.copy_quietly(|| actor, buf, offset) {
            return Ok(len);
        }
        self.read_slowly(actor, buf, offset)
    }

    /// The bytes from `offset` on, up to `len` and the end of the file, without a copy: as long as they are kept, their pages
    /// stay.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_at_bytes(&self, offset: u64, len: usize) -> Result<PageBytes, Error> {
        if let Some(view) = self.view_quietly(this_thread, offset, self.clip(len, offset)) {
            return Ok(view);
        }
        self.read_at_bytes_by(this_thread(), offset, len)
    }

    /// [`File::read_at_bytes`] for a reader who is not the thread that calls.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_at_bytes_by(&self, actor: u32, offset: u64, len: usize) -> Result<PageBytes, Error> {
        let len = self.clip(len, offset);
        if !self.may_view(len) {
            let mut copy = vec![0; len];
            if !self.copy_quietly(|| actor, &mut copy, offset) {
                self.read_slowly(actor, &mut copy, offset)?;
            }
            return Ok(PageBytes::copy(copy));
        }
        if let Some(view) = self.view_quietly(|| actor, offset, len) {
            return Ok(view);
        }
        let reading = Reading::begin(&self.open, actor, offset, len);
        let mut viewing = Viewing::new(reading, self, offset, len);
        loop {
            match viewing.turn()? {
                Turn::Done(view) => return Ok(view),
                Turn::Wait(flight) => wait(&viewing.reading, &flight)?,
                Turn::Bypass(_) => break,
            }
        }
        // What is wanted at once cannot be had at once: piece by piece, then.
        drop(viewing);
        let mut copy = vec![0; len];
        self.read_slowly(actor, &mut copy, offset)?;
        Ok(PageBytes::copy(copy))
    }

    /// [`File::read_at_bytes_by`] where all of it is there and nobody needs to hear of it, as of pages that are to show how far a reader
    /// has come; `None` otherwise. It never waits.
    pub fn try_read_at_bytes_by(&self, actor: u32, offset: u64, len: usize) -> Option<PageBytes> {
        self.view_quietly(|| actor, offset, self.clip(len, offset))
    }

    /// Whether its device answers so soon, within 250 us as far as is known, that waiting for it takes less than handing a read to another
    /// thread and being woken.
    pub fn is_quick(&self) -> bool {
        self.open.file.is_quick()
    }

    /// These byte ranges will be read, in this order: they are fetched as memory allows, the next ones when those before them
    /// were read; what lies between two of them only where that costs less than a request of its own.
    pub fn will_read(&self, ranges: &[Range<u64>]) {
        let len = self.len();
        let inside = ranges.iter().map(|range| range.start.min(len)..range.end.min(len));
        let pages: VecDeque<Extent> = inside
            .filter(|range| range.start < range.end)
            .map(|range| Extent::covering(range.start, range.end - range.start))
            .collect();
        let number = self.open.file.number;
        self.engine().with(|brain, now| brain.announce(now, number, pages));
    }

    /// How the file will be read from now on: as posix_fadvise has it, for all of it. [`Advice::DontNeed`] gives its pages up.
    pub fn advise(&self, advice: Advice) {
        self.advise_range(0..u64::MAX, advice);
    }

    /// [`File::advise`] for a part of the file, where that makes a difference.
    pub fn advise_range(&self, bytes: Range<u64>, advice: Advice) {
        let end = bytes.end.min(self.len());
        let pages = Extent::covering(bytes.start, end.saturating_sub(bytes.start));
        let number = self.open.file.number;
        self.engine().with(|brain, now| brain.advise(now, number, pages, advice));
    }

    /// What is known of it.
    pub fn stats(&self) -> FileStats {
        let number = self.open.file.number;
        let resident = self.engine().with(|brain, _| brain.resident_of(number));
        FileStats { len: self.len(), cached_bytes: resident * PAGE_SIZE }
    }

    /// The latest decisions about it, oldest first.
    pub fn explain(&self) -> Vec<Explained> {
        let id = FileId(u64::from(self.open.file.number));
        let all = self.engine().with(|brain, _| brain.explained());
        all.into_iter().filter(|explained| explained.file == id).collect()
    }

    /// A reader with a position of its own.
    pub fn cursor(&self) -> Cursor {
        Cursor { file: self.clone(), position: 0 }
    }

    // ---- the way of a read -----------------------------------------------------------------------------------------

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.open.engine()
    }

    pub(crate) fn clip(&self, len: usize, offset: u64) -> usize {
        let left = self.len().saturating_sub(offset);
        usize::try_from(left).map_or(len, |left| len.min(left))
    }

    /// Copies all of it, if all of it is there and nobody needs to hear of it.
    #[inline]
    pub(crate) fn copy_quietly(&self, actor: impl Fn() -> u32, buf: &mut [u8], offset: u64) -> bool {
        let copied = self.engine().memory.copy(self.open.file.number, offset, buf, true);
        let all = copied.bytes == buf.len();
        if all && copied.fresh {
            self.leave_note(actor(), offset, buf.len());
        }
        all
    }

    fn leave_note(&self, actor: u32, offset: u64, len: usize) {
        let (file, pages) = (self.open.file.number, reading::pages(offset, len));
        let part = !(offset + len as u64).is_multiple_of(PAGE_SIZE);
        let note = Note { file, actor, start: pages.start.0, count: pages.count.0, part };
        self.engine().notes.leave(note);
    }

    /// Copies what is there from the front on.
    pub(crate) fn copy(&self, buf: &mut [u8], offset: u64) -> usize {
        self.engine().memory.copy(self.open.file.number, offset, buf, false).bytes
    }

    fn read_slowly(&self, actor: u32, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut done = 0;
        for part in buf.chunks_mut(reading::segment_bytes(self.engine().frames)) {
            let from = offset + done as u64;
            done += part.len();
            if !self.copy_quietly(|| actor, part, from) {
                self.read_segment(actor, part, from)?;
            }
        }
        Ok(done)
    }

    fn read_segment(&self, actor: u32, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let reading = Reading::begin(&self.open, actor, offset, buf.len());
        let mut filling = Filling::new(reading, self, offset);
        loop {
            match filling.turn(buf)? {
                Turn::Done(()) => return Ok(()),
                Turn::Wait(flight) => wait(&filling.reading, &flight)?,
                Turn::Bypass(part) => {
                    self.engine().bypass(&self.open.file, offset + part.start as u64, &mut buf[part])?;
                }
            }
        }
    }

    /// Whether so long a view may be had: it holds pages that nobody else can have.
    pub(crate) fn may_view(&self, len: usize) -> bool {
        let engine = self.engine();
        let frames = u64::from(engine.frames);
        let held = engine.pinned.load(Ordering::Relaxed) * LEAF;
        len as u64 <= frames * PAGE_SIZE / 4 && held + len as u64 / PAGE_SIZE <= frames / 2
    }

    pub(crate) fn view_quietly(&self, actor: impl Fn() -> u32, offset: u64, len: usize) -> Option<PageBytes> {
        if !self.may_view(len) {
            return None;
        }
        let (view, fresh) = self.pin_all(offset, len, true).ok()?;
        if fresh {
            self.leave_note(actor(), offset, len);
        }
        Some(view)
    }

    /// Pins all pages, or says which byte is missing first.
    pub(crate) fn view(&self, offset: u64, len: usize) -> Result<PageBytes, u64> {
        self.pin_all(offset, len, false).map(|(view, _)| view)
    }

    /// Pins all pages, or says which byte is missing, or loud, first; and whether some were used for the first time.
    fn pin_all(&self, offset: u64, len: usize, quietly: bool) -> Result<(PageBytes, bool), u64> {
        let mut fresh = false;
        if len == 0 {
            return Ok((PageBytes::copy(Vec::new()), fresh));
        }
        let engine = self.engine();
        let mut leaves = Leaves::new();
        let pages = reading::pages(offset, len);
        let (mut page, end) = (pages.start.0, pages.end().0);
        while page < end {
            let to = end.min((page / LEAF + 1) * LEAF);
            let want = mask(page % LEAF, (to - 1) % LEAF + 1);
            let missing = |present: u64| {
                let first = (want & !present).trailing_zeros();
                (page / LEAF * LEAF + u64::from(first)) * PAGE_SIZE
            };
            let pin = engine.memory.pin(self.open.file.number, page / LEAF);
            let good = pin
                .as_ref()
                .map_or(0, |pin| if quietly { pin.present() & pin.quiet() } else { pin.present() });
            let Some(pin) = pin.filter(|_| good & want == want) else {
                leaves.unpin(engine);
                return Err(missing(good).max(offset));
            };
            fresh |= pin.use_pages(want);
            leaves.push(pin.keep());
            engine.pinned.fetch_add(1, Ordering::Relaxed);
            page = to;
        }
        Ok((PageBytes::view(Arc::clone(&self.open), leaves, offset, len), fresh))
    }
}

fn wait(reading: &Reading<'_>, flight: &Flight) -> Result<(), Error> {
    let outcome = flight.wait(reading.patience()).ok_or_else(|| reading.timed_out())?;
    reading.landed(outcome)
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("name", &self.meta().name).field("len", &self.len()).finish()
    }
}

/// A file read from a position: [`Read`] and [`Seek`].
#[derive(Clone, Debug)]
pub struct Cursor {
    file: File,
    position: u64,
}

impl Cursor {
    /// The file.
    pub const fn file(&self) -> &File {
        &self.file
    }
}

impl Read for Cursor {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buf, self.position).map_err(into_io)?;
        self.position += n as u64;
        Ok(n)
    }
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.file.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        let before =
            || io::Error::new(io::ErrorKind::InvalidInput, "a position before the start of the file");
        self.position = position.ok_or_else(before)?;
        Ok(self.position)
    }
}

/// The error as programs of `std::io` know it, its sentence with it.
fn into_io(error: Error) -> io::Error {
    let kind = match &error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::Denied { .. } | Error::NoCredentials { .. } => io::ErrorKind::PermissionDenied,
        Error::NoRanges { .. } => io::ErrorKind::Unsupported,
        Error::TimedOut { .. } => io::ErrorKind::TimedOut,
        Error::Changed { .. } => io::ErrorKind::StaleNetworkFileHandle,
        Error::Wrong { .. } => io::ErrorKind::InvalidData,
        Error::Io { source, .. } => source.kind(),
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
