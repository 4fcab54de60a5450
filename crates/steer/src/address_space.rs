//! Where the programs of a run have files mapped, as they told it.
//!
//! ```text
//!   4711:  7f10_0000_0000 .. 7f10_4000_0000   slot 1203, page 0 on        fault at 7f10_0000_2123 --> slot 1203, page 2
//!          7f20_0000_0000 .. 7f20_0010_0000   slot 77, page 512 on
//! ```
//!
//! A program may map and unmap where nobody hooks it; then a region here is old news, and a hint goes astray. So nothing
//! is ever done *to* an address of a program.

use std::collections::{BTreeMap, HashMap};

use bowwave_core::PAGE_SIZE;

/// Regions of a process that are remembered; more are not.
const REGIONS_MAX: usize = 4096;

/// A part of a file in a process's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    /// Address past its end.
    pub(crate) end: u64,
    /// Slot of its file, and that slot's generation.
    pub(crate) file: u32,
    pub(crate) generation: u32,
    /// The file's page at its start.
    pub(crate) page: u64,
}

/// What lies at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Slot of the file, and that slot's generation.
    pub(crate) file: u32,
    pub(crate) generation: u32,
    /// The file's page there.
    pub(crate) page: u64,
}

/// The regions of all processes.
#[derive(Default)]
pub(crate) struct AddressSpaces {
    of: HashMap<u32, BTreeMap<u64, Region>>,
    /// Regions of each file.
    files: HashMap<u32, usize>,
}

impl AddressSpaces {
    /// Whether nobody has anything mapped.
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// How many processes have something mapped.
    pub(crate) fn count(&self) -> usize {
        self.of.len()
    }

    /// Whether the process has something mapped.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.of.contains_key(&pid)
    }

    /// Whether anybody has the file mapped.
    pub(crate) fn maps(&self, file: u32) -> bool {
        self.files.contains_key(&file)
    }

    /// Processes that have something mapped.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.of.keys().copied().collect()
    }

    /// The regions of a process.
    pub(crate) fn regions(&self, pid: u32) -> Vec<(u64, Region)> {
        self.of.get(&pid).into_iter().flatten().map(|(&start, &region)| (start, region)).collect()
    }

    pub(crate) fn map(&mut self, pid: u32, start: u64, region: Region) {
        self.unmap(pid, start, region.end);
        let space = self.of.entry(pid).or_default();
        if space.len() < REGIONS_MAX && start < region.end {
            space.insert(start, region);
            *self.files.entry(region.file).or_default() += 1;
        } else if space.is_empty() {
            self.of.remove(&pid);
        }
    }

    /// Cuts `[start, end)` out of what the process has.
    pub(crate) fn unmap(&mut self, pid: u32, start: u64, end: u64) {
        let Some(space) = self.of.get_mut(&pid) else { return };
        let hit: Vec<(u64, Region)> = space
            .range(..end)
            .rev()
            .take_while(|(_, region)| region.end > start)
            .map(|(&at, &region)| (at, region))
            .collect();
        for (at, region) in hit {
            space.remove(&at);
            let mut left = 0;
            if at < start {
                space.insert(at, Region { end: start, ..region });
                left += 1;
            }
            // What is cut in two may be one more than is remembered.
            if end < region.end && space.len() < REGIONS_MAX {
                space.insert(end, Region { page: region.page + (end - at) / PAGE_SIZE, ..region });
                left += 1;
            }
            let count = self.files.entry(region.file).or_default();
            *count = *count + left - 1;
            if *count == 0 {
                self.files.remove(&region.file);
            }
        }
        if space.is_empty() {
            self.of.remove(&pid);
        }
    }

    /// A child has what its parent has.
    pub(crate) fn fork(&mut self, parent: u32, child: u32) {
        for (start, region) in self.regions(parent) {
            self.map(child, start, region);
        }
    }

    /// The process has ended, or become another program.
    pub(crate) fn clear(&mut self, pid: u32) {
        self.unmap(pid, 0, u64::MAX);
    }

    /// What lies at `address`.
    pub(crate) fn find(&self, pid: u32, address: u64) -> Option<Place> {
        let (&start, region) = self.of.get(&pid)?.range(..=address).next_back()?;
        (address < region.end).then(|| Place {
            file: region.file,
            generation: region.generation,
            page: region.page + (address - start) / PAGE_SIZE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(end: u64, file: u32, page: u64) -> Region {
        Region { end, file, generation: 1, page }
    }

    #[test]
    fn what_is_cut_out_leaves_its_ends() {
        let mut spaces = AddressSpaces::default();
        spaces.map(7, 0x10_000, region(0x20_000, 3, 100));
        assert_eq!(spaces.find(7, 0x12_345), Some(Place { file: 3, generation: 1, page: 102 }));
        spaces.unmap(7, 0x14_000, 0x16_000);
        assert_eq!(spaces.find(7, 0x15_000), None);
        assert_eq!(spaces.find(7, 0x16_000).unwrap().page, 106);
        assert_eq!(spaces.find(7, 0x20_000), None);
        assert_eq!(spaces.find(8, 0x12_000), None);
        spaces.map(7, 0x11_000, region(0x1f_000, 4, 0));
        assert_eq!(spaces.regions(7).len(), 3);
        assert_eq!(spaces.find(7, 0x11_000).unwrap().file, 4);
        assert!(spaces.maps(3) && spaces.maps(4));
        spaces.fork(7, 8);
        spaces.clear(7);
        assert!(spaces.maps(3) && spaces.find(8, 0x11_000).is_some());
        spaces.clear(8);
        assert!(spaces.is_empty() && !spaces.maps(3) && !spaces.maps(4));
    }

    /// A mapping of 16,384 pages of which every second is unmapped: as many parts are remembered as may be, and forgotten with it.
    #[test]
    fn a_region_that_is_cut_to_pieces_is_no_more_than_a_process_may_have() {
        let mut spaces = AddressSpaces::default();
        let pages = 4 * REGIONS_MAX as u64;
        spaces.map(7, 0, region(pages * PAGE_SIZE, 3, 0));
        for page in (1..pages).step_by(2) {
            spaces.unmap(7, page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
        }
        assert_eq!(spaces.regions(7).len(), REGIONS_MAX);
        assert_eq!(spaces.find(7, 2 * PAGE_SIZE).map(|place| place.page), Some(2));
        spaces.clear(7);
        assert!(spaces.is_empty() && !spaces.maps(3));
    }
}
