//! The one trait of this crate: an object whose bytes can be read, and what is known of it.

use crate::Error;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is known of an object since it was opened. It does not change while the [`Storage`] lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Its name in errors and traces, with no secret in it (no query string, no user information).
    pub name: Arc<str>,
    /// Bytes in it.
    pub len: u64,
    /// Which version of the object this is (an entity tag, a version id, time and inode); `None` where the store knows none.
    pub version: Option<Arc<str>>,
    /// Objects behind the same endpoint (a disk, a server, a bucket) share one number here, and so one device model and one
    /// bound of requests at once.
    pub endpoint: u64,
}

/// How long a read may take, and whether anybody still wants it. One is shared by a fetch and those who wait for it.
#[derive(Debug)]
pub struct Until {
    begun: Instant,
    deadline: Instant,
    cancelled: AtomicBool,
}

impl Until {
    /// From now on at most `wait`.
    pub fn after(wait: Duration) -> Self {
        let begun = Instant::now();
        Self { begun, deadline: begun + wait, cancelled: AtomicBool::new(false) }
    }

    /// Nobody wants it any more. A storage that can stop a request does so; one that cannot may ignore it.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// What is left of the time; zero when it is over.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// `Ok` while the read is wanted and in time; otherwise the error to give back. Storages ask between two steps.
    ///
    /// # Errors
    /// [`Error::Cancelled`] or [`Error::TimedOut`].
    pub fn check(&self, object: &Arc<str>) -> Result<(), Error> {
        if self.cancelled.load(Ordering::Acquire) {
            return Err(Error::Cancelled { object: object.clone() });
        }
        if Instant::now() < self.deadline {
            return Ok(());
        }
        Err(Error::TimedOut { object: object.clone(), waited_ms: self.begun.elapsed().as_millis() as u64 })
    }
}

/// One object that can be read. Many threads read it at once, each read blocks its thread; the engine above bounds how many.
///
/// The contract:
/// - `read_at` fills *every* byte of `into` with the bytes at `offset` of the version in [`Storage::meta`], or fails. Never fewer,
///   never those of another version: that is [`Error::Changed`].
/// - The caller asks for nothing beyond `meta().len`.
/// - A storage does not read ahead, cache or retry by itself, so that what it is asked is what the device sees.
pub trait Storage: Send + Sync {
    /// What is known of the object.
    fn meta(&self) -> &Meta;

    /// Reads the bytes from `offset` on into the slices of `into`, one after the other, all of them full.
    ///
    /// # Errors
    /// See [`Error`]. After one the contents of `into` mean nothing.
    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error>;

    /// Reads that one thread may have under way at once by [`Storage::read_each`]; 1 where each blocks its thread.
    fn at_once(&self) -> usize {
        1
    }

    /// Makes several reads, each as [`Storage::read_at`] would, and returns when all are over: where [`Storage::at_once`] is more
    /// than 1, all of them under way at once. What became of each is in its [`ReadOne::outcome`].
    fn read_each(&self, reads: &mut [ReadOne<'_, '_>], until: &Until) {
        for read in reads {
            read.outcome = self.read_at(read.offset, read.into, until);
        }
    }
}

/// One of several reads that are made together.
#[derive(Debug)]
pub struct ReadOne<'a, 'b> {
    /// Where it begins.
    pub offset: u64,
    /// What it fills, slice by slice.
    pub into: &'a mut [IoSliceMut<'b>],
    /// What became of it; [`Error::Cancelled`] until it was made.
    pub outcome: Result<(), Error>,
}

impl<'a, 'b> ReadOne<'a, 'b> {
    /// A read of `object` that was not made yet.
    pub fn new(object: &Arc<str>, offset: u64, into: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { offset, into, outcome: Err(Error::Cancelled { object: object.clone() }) }
    }

    /// Bytes that it asks for.
    pub fn bytes(&self) -> u64 {
        self.into.iter().map(|slice| slice.len() as u64).sum()
    }
}

impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn meta(&self) -> &Meta {
        (**self).meta()
    }

    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        (**self).read_at(offset, into, until)
    }

    fn at_once(&self) -> usize {
        (**self).at_once()
    }

    fn read_each(&self, reads: &mut [ReadOne<'_, '_>], until: &Until) {
        (**self).read_each(reads, until);
    }
}
