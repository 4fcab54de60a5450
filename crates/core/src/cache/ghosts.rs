//! What is remembered of pages that lost their frame: who had them fetched, whether they were ever read, and when.
//!
//! The kernel keeps such *shadow entries* and readahead never looks at them; a page that comes back soon says how much
//! more memory its stream would have needed (spec 1.5). Bounded: the oldest ghost goes when there are too many.

use super::Evicted;
use crate::units::{Bytes, Extent, FileId, PageIndex};
use alloc::collections::{BTreeMap, VecDeque};
use core::mem::size_of;

/// A lost page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ghost {
    /// How many pages had lost their frame before it.
    pub clock: u64,
    /// Who had it fetched.
    pub owner: u32,
    /// It was fetched ahead and lost before its read.
    pub unread: bool,
}

pub(super) struct Ghosts {
    max: usize,
    clock: u64,
    by_page: BTreeMap<(FileId, PageIndex), Ghost>,
    /// In the order of loss; entries that are stale (the page came back, or was lost again) are passed over.
    order: VecDeque<(u64, FileId, PageIndex)>,
}

impl Ghosts {
    pub(super) fn new(max: usize) -> Self {
        Self { max, clock: 0, by_page: BTreeMap::new(), order: VecDeque::new() }
    }

    pub(super) fn bytes_of_memory(&self) -> Bytes {
        // A B-tree node is at worst half full, so an entry counts twice.
        let by_page = 2 * self.by_page.len() * size_of::<((FileId, PageIndex), Ghost)>();
        Bytes((by_page + self.order.capacity() * size_of::<(u64, FileId, PageIndex)>()) as u64)
    }

    pub(super) fn remember(&mut self, gone: &Evicted) {
        if self.max == 0 {
            return;
        }
        for page in (gone.pages.start.0..gone.pages.end().0).map(PageIndex) {
            self.clock += 1;
            let ghost = Ghost { clock: self.clock, owner: gone.owner, unread: gone.unread };
            self.by_page.insert((gone.file, page), ghost);
            self.order.push_back((self.clock, gone.file, page));
            // Each loss adds one entry and takes away at least one once there are `max`: the queue stays as short.
            while self.order.len() > self.max {
                let (clock, file, page) = self.order.pop_front().expect("longer than max");
                if self.by_page.get(&(file, page)).is_some_and(|ghost| ghost.clock == clock) {
                    self.by_page.remove(&(file, page));
                }
            }
        }
    }

    pub(super) fn forget(&mut self, file: FileId, pages: Extent) {
        if !self.by_page.is_empty() {
            (pages.start.0..pages.end().0).for_each(|page| _ = self.by_page.remove(&(file, PageIndex(page))));
        }
    }

    pub(super) fn of(&self, file: FileId, page: PageIndex) -> Option<(Ghost, u64)> {
        self.by_page.get(&(file, page)).map(|&ghost| (ghost, self.clock - ghost.clock))
    }

    pub(super) fn check(&self) {
        assert!(self.by_page.len() <= self.order.len() && self.order.len() <= self.max, "ghosts are bounded");
    }
}
