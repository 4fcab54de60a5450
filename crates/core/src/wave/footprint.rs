//! What drivers ask beside their inputs: what the brain itself takes of memory, for those that hold a ceiling over all they
//! have, and which gaps are worth fetching, for those that are told long lists of what will be read.

use super::{Explained, File, Flight, Wave};
use crate::units::{Bytes, FileId, Nanos, PAGE_SIZE, PageCount};
use core::mem::size_of;

/// What an entry of an ordered map takes: its nodes are at worst half full.
const fn entries<K, V>(count: usize) -> usize {
    2 * count * (size_of::<K>() + size_of::<V>())
}

impl Wave {
    /// Pages between two reads of this device that cost no more to fetch than a request of their own; none while no read was
    /// timed.
    pub fn gap_worth(&self, device: u64) -> PageCount {
        let known = self.queues.get(&device).filter(|queue| queue.device.latency().is_some());
        known.map_or(PageCount(0), |queue| PageCount(queue.device.gap_max().0 / PAGE_SIZE))
    }

    /// Whether it was seen how many requests this device serves at once: until then [`Wave::gap_worth`] may be a sixteenth of what
    /// it comes to be.
    pub fn gap_is_known(&self, device: u64) -> bool {
        self.queues.get(&device).is_some_and(|queue| queue.device.weighed())
    }

    /// Whether something for this device was decided and not sent so far.
    pub fn is_behind(&self, device: u64) -> bool {
        self.queues.get(&device).is_some_and(|queue| !queue.is_empty())
    }

    /// Bytes that the brain takes, about. O(files).
    pub fn bytes_of_memory(&self) -> Bytes {
        let file = |f: &File| {
            let streams = f.forward.len() + f.backward.len() + f.strides.len();
            entries::<u64, u64>(streams) + f.seeds.capacity() * size_of::<u64>()
        };
        let files: usize = self.files.values().map(file).sum();
        let tables: u64 = self.files.values().map(|f| f.table.bytes_of_memory().0).sum();
        let fixed = entries::<FileId, File>(self.files.len())
            + entries::<u64, Flight>(self.flights.len())
            + self.streams.bytes_of_memory()
            + (self.idle.capacity() + self.idle_seeds.capacity()) * size_of::<(Nanos, u64)>()
            + self.trace.capacity() * size_of::<Explained>();
        Bytes((files + fixed) as u64 + tables)
    }
}
