//! What readers read without a word: told to the core before whatever comes next.
//!
//! A reader who finds all pages there and quiet takes no lock; what he leaves is a bit a page, and a note of where he was
//! ([`notes`](crate::notes)). Whoever comes to the brain next looks at the bits around his own read, and twice a second around
//! every note.
//!
//! ```text
//! leaf       6        7        8        9        10       11               a read of page 10*64 + 3 is told:
//! used     ....     ..##     ####     ####     ###[#]    ....              Used [7*64 + 32, 10*64 + 3), then Read
//!          nothing in 16 leaves: the end        being read
//! ```
//!
//! So a record of up to 4 MiB that is read backwards, in pieces, is found behind the one that its reader has begun.
//!
//! What was read is told as used and never as a read of now: a note may be older than what its reader did since, and reads that
//! are told out of their order end strides.

use super::{Brain, id};
use crate::memory::{LEAF, LEAVES_MAX, mask};
use crate::notes::{Note, TOLD_EVERY};
use bowwave_core::{Extent, FileId, Input, Nanos, PageIndex, left_off, runs_of_bits, while_read};
use std::sync::Arc;

/// Leaves on either side of a read of which is looked what was read quietly, and how many of which nothing was end it.
const LEAVES_AROUND: u64 = 1024;
const LEAVES_UNREAD: u32 = 16;
/// The same where a reader was before: who reads on there goes from page to page.
const LEAVES_LEFT_UNREAD: u32 = 2;
/// Notes of quiet reads are looked at so often.
const HEARD_EVERY: Nanos = Nanos::from_ms(500);
/// What is read quietly is told at most so late, while anybody comes to the brain: the notes of a stream are taken at the first look
/// after their time, and a look more is allowed for.
pub(super) const TOLD_WITHIN: Nanos = Nanos(TOLD_EVERY.0 + 2 * HEARD_EVERY.0);

impl Brain {
    /// Tells of what was read around the latest notes.
    pub(super) fn hear(&mut self, now: Nanos) {
        if now.since(self.heard) < HEARD_EVERY {
            return;
        }
        self.heard = now;
        let notes = Arc::clone(&self.notes);
        notes.take(now, |Note { file, start, count, part, .. }| {
            if self.files.contains_key(&file) {
                let rest_to_come =
                    if part { Extent::new(start + count - 1, 1) } else { Extent::new(start, 0) };
                self.look_around(now, file, Extent::new(start, count), rest_to_come);
            }
        });
    }

    /// Tells what was read quietly in the leaves of `pages` and around them, as far as pages were read lately, in the order of
    /// the file. Pages that are `being_read` are not looked at: a reader who takes a page in four pieces has not read it four
    /// times.
    pub(super) fn look_around(&mut self, now: Nanos, number: u32, pages: Extent, being_read: Extent) {
        let (first, last) = (pages.start.0 / LEAF, (pages.end().0.max(1) - 1) / LEAF);
        let mut read = std::mem::take(&mut self.read_quietly);
        self.look(number, (first.saturating_sub(LEAVES_AROUND)..first).rev(), LEAVES_UNREAD, &mut read);
        read.reverse();
        for leaf in first..=last {
            let from = being_read.start.0.clamp(leaf * LEAF, (leaf + 1) * LEAF) - leaf * LEAF;
            let to = being_read.end().0.clamp(leaf * LEAF, (leaf + 1) * LEAF) - leaf * LEAF;
            read.push((leaf, self.memory.take_used(number, leaf, !mask(from, to))));
        }
        let end = (last + 1 + LEAVES_AROUND).min(LEAVES_MAX);
        self.look(number, last + 1..end, LEAVES_UNREAD, &mut read);
        self.tell_read(now, number, read);
    }

    /// Tells what a reader who is `here` now has read quietly where he was before, if that is elsewhere.
    pub(super) fn look_left_off(&mut self, now: Nanos, here: (FileId, Extent), actor: u32) {
        let was = self.wave.heard_at(actor);
        let Some((file, leaves)) = was.and_then(|was| left_off(was, here, LEAVES_UNREAD)) else { return };
        let mut read = std::mem::take(&mut self.read_quietly);
        let leaves = leaves.take_while(|&leaf| leaf < LEAVES_MAX).take(LEAVES_AROUND as usize);
        self.look(file.0 as u32, leaves, LEAVES_LEFT_UNREAD, &mut read);
        self.tell_read(now, file.0 as u32, read);
    }

    /// Tells of pages that were read without a word and go now, and before them of those below them that their reader read on his
    /// way there: else he would seem to stand there still, with what goes ahead of him.
    pub(super) fn tell_going(&mut self, now: Nanos, mut going: Vec<(FileId, PageIndex)>) {
        going.sort_unstable();
        for going in going.chunk_by(|one, next| one.0 == next.0) {
            let number = going[0].0.0 as u32;
            let mut read = std::mem::take(&mut self.read_quietly);
            for going in going.chunk_by(|one, next| one.1.0 / LEAF == next.1.0 / LEAF) {
                let (leaf, last) = (going[0].1.0 / LEAF, going[going.len() - 1].1.0 % LEAF);
                let (from, looked) = (read.last().map_or(0, |&(leaf, _)| leaf + 1), read.len());
                let below = (from.max(leaf.saturating_sub(LEAVES_AROUND))..leaf).rev();
                self.look(number, below, 1, &mut read);
                read[looked..].reverse();
                let bits = going.iter().fold(0, |bits, &(_, page)| bits | 1 << (page.0 % LEAF));
                read.push((leaf, bits | self.memory.take_used(number, leaf, mask(0, last))));
            }
            self.tell_read(now, number, read);
        }
    }

    /// Tells of what was read in these leaves, and keeps the room they lie in.
    fn tell_read(&mut self, now: Nanos, number: u32, mut read: Vec<(u64, u64)>) {
        runs(&read, |pages| {
            self.wave.handle(now, Input::Used { file: id(number), pages });
            self.announced.over(number, pages);
            for page in pages.start.0..pages.end().0 {
                self.pages.touch(id(number), PageIndex(page));
            }
        });
        read.clear();
        self.read_quietly = read;
    }

    /// Adds what was read quietly in `leaves`, up to where nothing was in so many.
    fn look(
        &self,
        number: u32,
        leaves: impl Iterator<Item = u64>,
        unread_max: u32,
        read: &mut Vec<(u64, u64)>,
    ) {
        while_read(leaves, unread_max, |leaf| {
            let used = self.memory.take_used(number, leaf, !0);
            read.push((leaf, used));
            used != 0
        });
    }
}

/// The runs of pages whose bits are set, leaf for leaf upwards; a run may go on in the next leaf.
fn runs(leaves: &[(u64, u64)], mut each: impl FnMut(Extent)) {
    let mut run = Extent::new(0, 0);
    for &(leaf, bits) in leaves {
        for next in runs_of_bits(PageIndex(leaf * LEAF), bits) {
            if run.end() == next.start {
                run.count += next.count;
                continue;
            }
            if !run.is_empty() {
                each(run);
            }
            run = next;
        }
    }
    if !run.is_empty() {
        each(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_on_from_leaf_to_leaf() {
        let told = |leaves: &[(u64, u64)]| {
            let mut told = Vec::new();
            runs(leaves, |run| told.push((run.start.0, run.count.0)));
            told
        };
        assert_eq!(told(&[(7, !0 << 32), (8, !0), (9, 0b1011)]), [(7 * 64 + 32, 98), (9 * 64 + 3, 1)]);
        assert_eq!(told(&[(7, 1 << 63), (9, 1)]), [(7 * 64 + 63, 1), (9 * 64, 1)]);
        assert_eq!(told(&[(0, 1), (3, 0)]), [(0, 1)]);
        assert_eq!(told(&[]), []);
    }
}
