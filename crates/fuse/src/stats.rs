//! What the kernel asked of the store since the last reset: requests, bytes, and which of them it had asked for before.
//!
//! Every byte sent is either new or sent again, page by page: `bytes = unique_bytes + resent_bytes`.
//!
//! ```text
//!   read [0, 8192)        2 new pages                     requests 1   unique  8192   resent    0
//!   read [4096, 12288)    page 1 again, page 2 new        requests 2   unique 12288   resent 4096
//! ```

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

const PAGE: u64 = 4096;

/// Read requests since the last reset, as `.bowwave/stats` tells them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Read requests that reached the device.
    pub requests: u64,
    /// Bytes they asked for, up to the ends of the files.
    pub bytes: u64,
    /// Bytes that had not been asked for before.
    pub unique_bytes: u64,
    /// Bytes that had, in whole or partial pages: evicted before use, or fetched twice.
    pub resent_bytes: u64,
    /// Requests by size, rounded up to a power of two of bytes.
    pub sizes: BTreeMap<u64, u64>,
    /// Requests not answered yet.
    pub in_flight: u64,
    /// How long after its modelled time a request was answered, on average: the noise of this machine.
    pub late_us_mean: f64,
    /// The same, at worst.
    pub late_us_max: f64,
}

/// Read requests of one file since the last reset; `.bowwave/files` tells a list of them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FileStats {
    /// Path from the root of the mount.
    pub path: String,
    /// Bytes in the file.
    pub size: u64,
    /// Read requests.
    pub requests: u64,
    /// Bytes they asked for.
    pub bytes: u64,
    /// Bytes that had not been asked for before.
    pub unique_bytes: u64,
    /// Bytes that had.
    pub resent_bytes: u64,
}

/// Counts requests as they arrive.
#[derive(Default)]
pub(crate) struct Counters {
    total: Stats,
    files: HashMap<u64, FileCounters>,
}

#[derive(Default)]
struct FileCounters {
    stats: FileStats,
    seen: PageSet,
}

impl Counters {
    /// A request for `bytes` bytes at `offset` of the file `ino`.
    pub(crate) fn count(&mut self, ino: u64, offset: u64, bytes: u64, name: impl FnOnce() -> (String, u64)) {
        let file = self.files.entry(ino).or_insert_with(|| {
            let (path, size) = name();
            FileCounters { stats: FileStats { path, size, ..FileStats::default() }, seen: PageSet::default() }
        });
        let unique = file.seen.insert(offset, bytes);
        file.stats.requests += 1;
        file.stats.bytes += bytes;
        file.stats.unique_bytes += unique;
        file.stats.resent_bytes += bytes - unique;
        self.total.requests += 1;
        self.total.bytes += bytes;
        self.total.unique_bytes += unique;
        self.total.resent_bytes += bytes - unique;
        *self.total.sizes.entry(bytes.next_power_of_two()).or_default() += 1;
    }

    pub(crate) fn stats(&self) -> Stats {
        self.total.clone()
    }

    /// One row a file that was read, by path.
    pub(crate) fn files(&self) -> Vec<FileStats> {
        let mut files: Vec<_> = self.files.values().map(|file| file.stats.clone()).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// The pages of a file that were asked for: bitmaps of 4096 pages each, for the parts of the file that were touched.
/// A whole 16 GiB file takes 512 KiB.
#[derive(Default)]
struct PageSet {
    parts: HashMap<u64, Box<[u64; 64]>>,
}

impl PageSet {
    /// Adds the pages of `[offset, offset + bytes)`; returns the bytes that lie in pages which were not there.
    fn insert(&mut self, offset: u64, bytes: u64) -> u64 {
        let end = offset + bytes;
        let (first, past) = (offset / PAGE, end.div_ceil(PAGE));
        let mut unique = 0;
        let mut page = first;
        while page < past {
            let part = self.parts.entry(page / 4096).or_insert_with(|| Box::new([0; 64]));
            let part_end = past.min((page / 4096 + 1) * 4096);
            for page in page..part_end {
                let (word, bit) = ((page % 4096 / 64) as usize, 1 << (page % 64));
                if part[word] & bit == 0 {
                    part[word] |= bit;
                    unique += end.min((page + 1) * PAGE) - offset.max(page * PAGE);
                }
            }
            page = part_end;
        }
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture at the top of this file.
    #[test]
    fn a_byte_is_new_or_sent_again() {
        let mut counters = Counters::default();
        counters.count(7, 0, 8192, || ("a".into(), 20_000));
        counters.count(7, 4096, 8192, || unreachable!("the file is known"));
        let stats = counters.stats();
        assert_eq!((stats.requests, stats.bytes), (2, 16384));
        assert_eq!((stats.unique_bytes, stats.resent_bytes), (12288, 4096));
        assert_eq!(stats.sizes, BTreeMap::from([(8192, 2)]));
        assert_eq!(counters.files()[0].unique_bytes, 12288);
        counters.reset();
        assert_eq!(counters.stats(), Stats::default());
    }

    #[test]
    fn a_page_set_crosses_its_parts_and_ends_within_a_page() {
        let mut pages = PageSet::default();
        assert_eq!(pages.insert(4095 * PAGE, 2 * PAGE), 2 * PAGE);
        assert_eq!(pages.insert(4094 * PAGE, 4 * PAGE), 2 * PAGE);
        assert_eq!(pages.insert(9000 * PAGE, 100), 100);
        assert_eq!(pages.insert(9000 * PAGE, 100), 0);
    }
}
