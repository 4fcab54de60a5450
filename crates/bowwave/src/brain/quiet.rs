//! What readers read without a word: told to the core before whatever comes next.
//!
//! A reader who finds all pages there and quiet takes no lock; what he leaves is a bit a page, and a note of where he was
//! ([`notes`](crate::notes)). Whoever comes to the brain next looks at the bits around his own read, and twice a second around
//! every note.

use super::{Brain, id};
use crate::memory::{LEAF, mask};
use crate::notes::Note;
use bowwave_core::{Extent, Input, Nanos, PageBit, PageIndex};
use std::sync::Arc;

/// Leaves on either side of a read of which is looked what was read quietly, and how many of which nothing was end it.
const LEAVES_AROUND: u64 = 1024;
const LEAVES_UNREAD: u32 = 2;
/// Notes of quiet reads are handed over so often.
const HEARD_EVERY: Nanos = Nanos::from_ms(500);

impl Brain {
    /// Hears of the latest quiet reads, each after what was read quietly before it.
    pub(super) fn hear(&mut self, now: Nanos) {
        if now.since(self.heard) < HEARD_EVERY {
            return;
        }
        self.heard = now;
        let notes = Arc::clone(&self.notes);
        notes.take(now, |Note { file, actor, start, count, part }| {
            let pages = Extent::new(start, count);
            if self.files.contains_key(&file) && self.is_where_its_reader_is(file, pages) {
                for leaf in (start / LEAF).saturating_sub(1)..(start + count).div_ceil(LEAF) {
                    self.look(now, file, leaf, if part { Extent::new(start + count - 1, 1) } else { none() });
                }
                self.wave.handle(now, Input::Read { file: id(file), pages, actor });
            }
        });
    }

    /// Whether a quiet read is the latest of its stream still: its reader may have come further since, and been heard of there.
    /// Then what lies on both sides of it was read, or it is gone already.
    fn is_where_its_reader_is(&self, number: u32, pages: Extent) -> bool {
        let table = self.pages.table(id(number));
        let used = |page| table.has(PageBit::Used, page) || self.memory.is_used(number, page.0);
        let present = table.count(PageBit::Present, pages) == pages.count;
        let before = pages.start.0 == 0 || used(PageIndex(pages.start.0 - 1));
        present && !(before && used(pages.end()))
    }

    /// What was read quietly around a read, told before it: leaf by leaf, as far as pages were read lately.
    pub(super) fn look_around(&mut self, now: Nanos, number: u32, pages: Extent) {
        let (first, last) = (pages.start.0 / LEAF, (pages.end().0.max(1) - 1) / LEAF);
        for leaf in first..=last {
            self.look(now, number, leaf, pages);
        }
        let mut unread = 0;
        for leaf in (first.saturating_sub(LEAVES_AROUND)..first).rev() {
            unread = if self.look(now, number, leaf, none()) { 0 } else { unread + 1 };
            if unread == LEAVES_UNREAD {
                break;
            }
        }
        unread = 0;
        for leaf in last + 1..=last + LEAVES_AROUND {
            unread = if self.look(now, number, leaf, none()) { 0 } else { unread + 1 };
            if unread == LEAVES_UNREAD {
                break;
            }
        }
    }

    /// Whether pages of a leaf were read quietly; if so, tells. Pages that are being read are not looked at: a reader who takes
    /// a page in four pieces has not read it four times.
    fn look(&mut self, now: Nanos, number: u32, leaf: u64, except: Extent) -> bool {
        let except = except.intersection(Extent::new(leaf * LEAF, LEAF));
        let from = except.start.0.saturating_sub(leaf * LEAF);
        let mut used = self.memory.take_used(number, leaf, !mask(from, from + except.count.0));
        let any = used != 0;
        while used != 0 {
            let first = used.trailing_zeros();
            let count = (used >> first).trailing_ones();
            let pages = Extent::new(leaf * LEAF + u64::from(first), u64::from(count));
            used &= if first + count == 64 { 0 } else { !0 << (first + count) };
            self.wave.handle(now, Input::Used { file: id(number), pages });
            for page in pages.start.0..pages.end().0 {
                self.pages.touch(id(number), PageIndex(page));
            }
        }
        any
    }
}

const fn none() -> Extent {
    Extent::new(0, 0)
}
