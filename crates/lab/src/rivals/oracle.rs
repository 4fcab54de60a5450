//! The feasible oracle, O-open: it knows every read of a file, but only from the file's first read on, and keeps so many pages
//! ahead of the reader in flight, each fetched once, neighbours together. A schedule that can be had: its time is no bound
//! below, but nothing that must guess should beat it by much. `sweep` tries several depths and keeps the best (engines 4.4).

use super::Rule;
use bowwave_core::{Extent, PageCount, View};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// What all descriptors of one file know of it.
pub(crate) struct Foreseen {
    /// The reads to come, in their order, not yet fetched.
    to_fetch: VecDeque<Extent>,
    /// Reads that were fetched for, and how many of them were not made yet.
    ahead: BTreeMap<Extent, u64>,
    pages_ahead: u64,
}

impl Foreseen {
    pub(crate) fn of(reads: impl Iterator<Item = Extent>) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self { to_fetch: reads.collect(), ahead: BTreeMap::new(), pages_ahead: 0 }))
    }
}

pub(crate) struct Oracle {
    pub(crate) foreseen: Rc<RefCell<Foreseen>>,
    /// Pages that may be ahead of the reader.
    pub(crate) depth: u64,
    /// Absent pages between two reads that are fetched with them.
    pub(crate) gap: PageCount,
}

impl Rule for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn read(&mut self, view: &dyn View, request: Extent, _: bool, out: &mut Vec<Extent>) {
        let mut known = self.foreseen.borrow_mut();
        let known = &mut *known;
        if let Some(times) = known.ahead.get_mut(&request) {
            *times -= 1;
            known.pages_ahead -= request.count.0.min(known.pages_ahead);
            if *times == 0 {
                known.ahead.remove(&request);
            }
        } else if let Some(at) = known.to_fetch.iter().take(64).position(|read| *read == request) {
            // It comes before it was fetched for: it is on its way by itself.
            known.to_fetch.remove(at);
        }
        // In batches of a quarter, so that neighbours meet and a head can sort them.
        if known.pages_ahead > self.depth - self.depth / 4 {
            return;
        }
        let mut fresh: Vec<Extent> = Vec::new();
        while known.pages_ahead < self.depth {
            let Some(read) = known.to_fetch.pop_front() else { break };
            *known.ahead.entry(read).or_insert(0) += 1;
            known.pages_ahead += read.count.0;
            if view.next_hole(read.start, read.count) < read.end() {
                fresh.push(read);
            }
        }
        fresh.sort_unstable();
        for extent in fresh {
            match out.last_mut() {
                Some(last) if extent.start.since(last.end()) <= self.gap => {
                    last.count = extent.end().max(last.end()).since(last.start);
                }
                _ => out.push(extent),
            }
        }
    }
}
