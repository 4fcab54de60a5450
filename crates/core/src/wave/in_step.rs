//! R10: streams of one file that go in step, and what those before say of those behind.
//!
//! Twelve readers of one file take turns. Each read of the first round is the first of a stream, a seed, and may as well be a
//! read at random. In the second round those that go on say what the others will do (`tests/wave/r10-in-step.txt` owns it):
//!
//! ```text
//! seeds, oldest first      A B C D E F G H I J K L
//! second reads of A, B     x x                            two may be a coincidence: no more than their own windows
//! second read of C         x x x o o o o                  opens four that wait: D to G
//! second read of D         x x x x o o o o o o o o        and twice as many and four: H to L, which is all of them
//! ```
//!
//! A seed is passed over where one sown after it is read a third time: its turn would have come before. It ends where fewer than half
//! of the 64 seeds up to the newest that went on did, 64 before that one, and 64 behind: what was sown later may be another reader's.

use super::Wave;
use super::plan::Asked;
use super::reach::FEW;
use super::shares::AHEAD_MIN;
use super::stream::{Course, StreamId};
use crate::decision::{Pattern, Why};
use crate::units::{Extent, FileId, Nanos, PageIndex};
use alloc::vec::Vec;

/// Streams that are looked at when one of their file has waited,
const SISTERS_MAX: usize = 256;
/// unless so many in a row have windows: then they were looked at a moment ago.
const LOOKED_AFTER: usize = 16;
/// Seeds that are opened behind the newest that went on, and before it.
const NEAR_MAX: u64 = 64;

impl Wave {
    /// The seed sown as number `serial` went on.
    pub(super) fn went_on(&mut self, id: FileId, serial: u64) {
        let Some(f) = self.files.get_mut(&id) else { return };
        if serial > f.fates_newest {
            f.fates = f.fates.checked_shl((serial - f.fates_newest).min(64) as u32).unwrap_or(0) | 1;
            f.fates_newest = serial;
        } else if f.fates_newest - serial < 64 {
            f.fates |= 1 << (f.fates_newest - serial);
        }
    }

    /// R4's caution (2013, spec 4.3): where reads fall thick at random, two neighbours are a coincidence. So they are taken
    /// for while fewer than one in eight of the seeds up to the newest that went on did; a third read in order counts.
    pub(super) fn coincidence(&self, id: FileId) -> bool {
        let f = &self.files[&id];
        let seeds = f.fates_newest.min(64);
        seeds >= 16 && 8 * u64::from(f.fates.count_ones()) < seeds
    }

    /// R10: seeds that wait behind those that went on are opened, twice as many each time, while half of the 64 up to the
    /// newest that went on did.
    pub(super) fn open_in_step(&mut self, now: Nanos, id: FileId, pages: Extent) {
        if self.losing {
            return;
        }
        let Some(f) = self.files.get_mut(&id) else { return };
        let went_on = f.fates.count_ones();
        if f.goes_from_run_to_run() || went_on < 3 || 2 * u64::from(went_on) < f.fates_newest.min(64) {
            return;
        }
        while f
            .seeds
            .front()
            .is_some_and(|&sid| self.streams.get(sid).is_none_or(|s| s.course != Course::Seed))
        {
            f.seeds.pop_front();
            f.opened = f.opened.saturating_sub(1);
        }
        // Those far before it have not gone on, and will not.
        let far =
            |sid: &StreamId| self.streams.get(*sid).is_none_or(|s| s.serial + NEAR_MAX <= f.fates_newest);
        let opened = f.opened.min(f.seeds.len());
        let from = opened + f.seeds.range(opened..).take_while(|&sid| far(sid)).count();
        let to = (2 * from + 4).min(f.seeds.len());
        let near =
            |sid: &&StreamId| self.streams.get(**sid).is_none_or(|s| s.serial <= f.fates_newest + NEAR_MAX);
        let waiting: Vec<StreamId> = f.seeds.range(from..to).take_while(near).copied().collect();
        f.opened = from + waiting.len();
        let passed = f.third_newest;
        for sid in waiting {
            let Some(s) = self
                .streams
                .get_mut(sid)
                .filter(|s| s.course == Course::Seed && s.ahead == 0 && s.serial > passed)
            else {
                continue;
            };
            s.ahead = (4 * s.request).max(AHEAD_MIN);
            let (start, ahead) = (s.frontier, s.ahead);
            let next = s.next;
            let end = next + ahead.min(self.speculation_share(&self.files[&id]));
            let Some(s) = self.streams.get_mut(sid) else { continue };
            s.frontier = s.frontier.max(end);
            let window = Extent::between(PageIndex(start), PageIndex(end));
            let mark = Some(Extent::new(start, 1));
            let (pattern, why) = (Pattern::Context, Why("R10 in step"));
            self.fetch(now, sid, Asked { read: pages, window, mark, pattern, why, urgent: true });
        }
    }

    /// R10: streams that go in step come to the end of what is out one after the other. When one has waited, those behind it
    /// whose windows are small are not left to wait in their turn.
    pub(super) fn plan_sisters(&mut self, now: Nanos, sid: StreamId, pages: Extent) {
        // Among so many that a few pages are all that each may have, there is nothing to look after.
        let Some(s) = self.streams.get(sid).filter(|_| !self.losing) else { return };
        let Some(f) = self.files.get(&s.file) else { return };
        if self.share().min(self.speculation_share(f)) <= 2 * FEW {
            return;
        }
        let alone = f.goes_from_run_to_run();
        let sisters = f.forward.range(s.next + 1..).chain(f.forward.range(..s.next)).take(SISTERS_MAX);
        let (mut short, mut looked_after): (Vec<StreamId>, usize) = (Vec::new(), 0);
        for &sister in sisters.map(|(_, sister)| sister) {
            let forward =
                self.streams.get(sister).filter(|s| s.course == Course::Forward && !(s.left && alone));
            if forward.is_some_and(|s| s.out() <= FEW.max(2 * s.request) && !self.outlived(s, s.next)) {
                short.push(sister);
                looked_after = 0;
            } else {
                looked_after += 1;
            }
            if looked_after == LOOKED_AFTER {
                break;
            }
        }
        for sister in short {
            self.plan_stream(now, sister, pages, Why("R10 in step"));
        }
    }
}
