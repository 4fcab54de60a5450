//! What the brain itself takes of memory, about: for drivers that hold a ceiling over all they have.

use super::{Explained, File, Flight, Wave};
use crate::units::{Bytes, FileId, Nanos};
use core::mem::size_of;

/// What an entry of an ordered map takes: its nodes are at worst half full.
const fn entries<K, V>(count: usize) -> usize {
    2 * count * (size_of::<K>() + size_of::<V>())
}

impl Wave {
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
