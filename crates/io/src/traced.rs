//! Any storage with a record of what it was asked: for tests that say which requests must go out, and for people.
//!
//! ```text
//!   us      took us  offset  bytes   of                a line a read, in the order of completion
//!   104233  31458    0       131072  s3://b/model      ok
//! ```
//!
//! The last 65,536 reads are kept (some 5 MB); older ones are forgotten and counted.

use crate::{Error, Meta, ReadOne, Storage, Until};
use std::collections::VecDeque;
use std::fmt;
use std::io::IoSliceMut;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Reads that are remembered.
const READS_MAX: usize = 1 << 16;

/// One read of a traced storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedRead {
    /// When it began, in microseconds since the trace did.
    pub begun_us: u64,
    /// How long it took.
    pub took_us: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Of which object.
    pub object: Arc<str>,
    /// What went wrong, if anything did.
    pub error: Option<String>,
}

impl fmt::Display for TracedRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.error.as_deref().unwrap_or("ok");
        let Self { begun_us, took_us, offset, bytes, object, .. } = self;
        write!(f, "{begun_us}\t{took_us}\t{offset}\t{bytes}\t{object}\t{told}")
    }
}

/// A trace that any number of storages may share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Traced(Arc<(Instant, Mutex<Reads>)>);

#[derive(Debug, Default)]
struct Reads {
    kept: VecDeque<TracedRead>,
    forgotten: u64,
}

impl Default for Traced {
    fn default() -> Self {
        Self(Arc::new((Instant::now(), Mutex::default())))
    }
}

impl Traced {
    /// The reads so far, in the order of completion, and how many older ones were forgotten.
    pub fn reads(&self) -> (Vec<TracedRead>, u64) {
        let reads = self.0.1.lock().unwrap_or_else(PoisonError::into_inner);
        (reads.kept.iter().cloned().collect(), reads.forgotten)
    }

    fn add(&self, read: TracedRead) {
        let mut reads = self.0.1.lock().unwrap_or_else(PoisonError::into_inner);
        if reads.kept.len() == READS_MAX {
            reads.kept.pop_front();
            reads.forgotten += 1;
        }
        reads.kept.push_back(read);
    }
}

/// A storage whose reads are written down.
#[derive(Clone, Debug)]
pub struct TracedStorage<S> {
    inner: S,
    trace: Traced,
}

impl<S: Storage> TracedStorage<S> {
    /// `inner`, its reads written into `trace`.
    pub fn new(inner: S, trace: &Traced) -> Self {
        Self { inner, trace: trace.clone() }
    }
}

impl<S: Storage> Storage for TracedStorage<S> {
    fn meta(&self) -> &Meta {
        self.inner.meta()
    }

    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        let bytes = into.iter().map(|slice| slice.len() as u64).sum();
        let begun = Instant::now();
        let result = self.inner.read_at(offset, into, until);
        self.add(begun, offset, bytes, &result);
        result
    }

    fn at_once(&self) -> usize {
        self.inner.at_once()
    }

    fn read_each(&self, reads: &mut [ReadOne<'_, '_>], until: &Until) {
        // A storage may shorten slices that it fills.
        let asked: Vec<u64> = reads.iter().map(ReadOne::bytes).collect();
        let begun = Instant::now();
        self.inner.read_each(reads, until);
        for (read, bytes) in reads.iter().zip(asked) {
            self.add(begun, read.offset, bytes, &read.outcome);
        }
    }
}

impl<S: Storage> TracedStorage<S> {
    fn add(&self, begun: Instant, offset: u64, bytes: u64, result: &Result<(), Error>) {
        self.trace.add(TracedRead {
            begun_us: begun.duration_since(self.trace.0.0).as_micros() as u64,
            took_us: begun.elapsed().as_micros() as u64,
            offset,
            bytes,
            object: self.meta().name.clone(),
            error: result.as_ref().err().map(ToString::to_string),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStorage;
    use std::time::Duration;

    #[test]
    fn reads_are_written_down() {
        let trace = Traced::default();
        let storage = TracedStorage::new(MemoryStorage::new("letters", *b"abcdefgh"), &trace);
        let until = Until::after(Duration::from_secs(9));
        storage
            .read_at(2, &mut [IoSliceMut::new(&mut [0; 2]), IoSliceMut::new(&mut [0; 1])], &until)
            .unwrap();
        storage.read_at(7, &mut [IoSliceMut::new(&mut [0; 2])], &until).unwrap_err();
        let (reads, forgotten) = trace.reads();
        let told: Vec<_> = reads.iter().map(|read| (read.offset, read.bytes, read.error.is_some())).collect();
        assert_eq!((told, forgotten), (vec![(2, 3, false), (7, 2, true)], 0));
        assert!(reads[0].to_string().ends_with("\t2\t3\tletters\tok"));
    }
}
