//! A cache: one ceiling over all files that are opened in it.
//!
//! ```text
//! ceiling = frames in use and in flight + leaves + tables of the core + lists + threads          held to the byte
//! ```
//!
//! The arena is reserved in full, and touched only where a page lies. What the rest takes is measured ten times a second and
//! taken from the frames.

use crate::engine::{Engine, Settings};
use crate::file::File;
use crate::stats::{CacheStats, EndpointStats, PatternStats};
use bowwave_core::{Bytes, Explained, FileId, Learnt, PAGE_SIZE};
use bowwave_io::{Error, Storage};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// 256 MiB: what one endpoint of 1 GB/s and 30 ms needs, with room for a few streams more.
const MEMORY: Bytes = Bytes(256 << 20);
/// Below this a cache would be all tables: 1 MiB.
const MEMORY_MIN: Bytes = Bytes(1 << 20);
/// As long as the clients of the object stores wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How a cache is to be made.
#[derive(Clone, Copy, Debug)]
pub struct CacheBuilder {
    settings: Settings,
}

impl CacheBuilder {
    /// The ceiling of all memory that the cache takes: pages, pages in flight and everything around them. Default: 256 MiB.
    #[must_use]
    pub const fn memory(mut self, bytes: Bytes) -> Self {
        self.settings.memory = bytes;
        self
    }

    /// No read waits longer than this for the storage before it fails, from its latest progress on and give or take a
    /// second. Default: 30 s. A storage that does not look at its deadline keeps a thread of the cache for as long as it hangs, at
    /// most a quarter of the threads an endpoint (24 of 96): then reads of it fail at once, and say so.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// If the ceiling is below 1 MiB, or the system has no address space for it.
    pub fn build(self) -> io::Result<Cache> {
        if self.settings.memory < MEMORY_MIN {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a cache needs 1 MiB at least"));
        }
        let engine = Arc::new(Engine::new(self.settings)?);
        Ok(Cache { handle: Arc::new(Handle { engine }) })
    }
}

/// The engine, for as long as a cache or a file of it is held.
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.close();
    }
}

/// A page cache. Clones are the same cache.
#[derive(Clone)]
pub struct Cache {
    handle: Arc<Handle>,
}

impl Cache {
    /// A cache to be described.
    pub const fn builder() -> CacheBuilder {
        CacheBuilder { settings: Settings { memory: MEMORY, timeout: TIMEOUT } }
    }

    /// Opens what can be read. Whoever opens the same object twice has two files.
    ///
    /// # Errors
    /// If it is longer than 2^50 bytes (1 PiB). Whatever else is wrong a storage says when it is read.
    pub fn open(&self, storage: impl Storage + 'static) -> Result<File, Error> {
        let file = self.handle.engine.open(Box::new(storage))?;
        Ok(File::new(file, Arc::clone(&self.handle)))
    }

    /// What it counts.
    pub fn stats(&self) -> CacheStats {
        let engine = &self.handle.engine;
        engine.with(|brain, _| {
            let (used, in_flight, _) = brain.frames();
            let metadata_bytes = brain.metadata();
            let (requests, fetched_bytes) = brain.traffic();
            CacheStats {
                memory_bytes_max: engine.settings.memory.0,
                memory_bytes: used * PAGE_SIZE + metadata_bytes,
                metadata_bytes,
                in_flight_bytes: in_flight * PAGE_SIZE,
                pages_bytes_max: brain.in_use_max() * PAGE_SIZE,
                files: brain.files(),
                streams: brain.wave().streams(),
                requests,
                fetched_bytes,
                counters: *brain.wave().counters(),
            }
        })
    }

    /// What was decided so far, by pattern: a row for each that there was.
    pub fn patterns(&self) -> Vec<PatternStats> {
        let rows = self.handle.engine.with(|brain, _| brain.patterns());
        rows.into_iter().filter(|row| row.windows > 0).collect()
    }

    /// What was learnt of an endpoint, once a file of it was opened.
    pub fn endpoint(&self, endpoint: u64) -> Option<EndpointStats> {
        let learnt = self.handle.engine.with(|brain, _| brain.wave().device(endpoint))?;
        let Learnt { latency, bytes_per_s, flight_max, .. } = learnt;
        Some(EndpointStats { endpoint, latency, bytes_per_s, in_flight_max: flight_max })
    }

    /// The latest decisions, oldest first, each with the name of its file where that is still open.
    pub fn explain(&self) -> Vec<(Option<Arc<str>>, Explained)> {
        self.handle.engine.with(|brain, _| {
            let all = brain.explained();
            let name = |id: FileId| brain.file(id.0 as u32).map(|file| file.meta.name.clone());
            all.into_iter().map(|explained| (name(explained.file), explained)).collect()
        })
    }

    /// States what must hold while no read is under way.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check(&self) {
        self.handle.engine.with(|brain, _| brain.check());
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("memory", &self.handle.engine.settings.memory).finish()
    }
}
