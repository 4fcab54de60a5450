//! What a cache counts, as plain numbers.

use bowwave_core::{Counters, Nanos, Pattern};

/// A cache at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// The ceiling.
    pub memory_bytes_max: u64,
    /// What pages, pages in flight and everything around them take of it.
    pub memory_bytes: u64,
    /// Of that, everything around the pages: tables, lists, leaves, threads.
    pub metadata_bytes: u64,
    /// Of that, pages in flight.
    pub in_flight_bytes: u64,
    /// The most that pages and pages in flight ever took.
    pub pages_bytes_max: u64,
    /// Files open.
    pub files: usize,
    /// Streams that are followed.
    pub streams: usize,
    /// Requests that were made, before neighbours were merged.
    pub requests: u64,
    /// Bytes that arrived.
    pub fetched_bytes: u64,
    /// The brain's counters. Reads that found everything there are not among its reads, their pages are.
    pub counters: Counters,
}

/// What was decided of one pattern since the cache was made. Of all patterns together there are as many windows as
/// [`Counters::windows`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PatternStats {
    /// Which.
    pub pattern: Pattern,
    /// Windows decided.
    pub windows: u64,
    /// Pages in them.
    pub pages: u64,
    /// Of those, pages that nobody waited for.
    pub pages_async: u64,
}

/// What was learnt of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointStats {
    /// Its number, as storages give it.
    pub endpoint: u64,
    /// Time of a lone small read.
    pub latency: Option<Nanos>,
    /// Bytes a second at best.
    pub bytes_per_s: Option<u64>,
    /// Requests that may be in flight.
    pub in_flight_max: u32,
}

/// A file at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStats {
    /// Bytes in it.
    pub len: u64,
    /// Bytes of it that are cached.
    pub cached_bytes: u64,
}
