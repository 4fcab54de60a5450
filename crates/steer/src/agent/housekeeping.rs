//! Ten times a second: what was read quietly is harvested, descriptors that nobody needs are given up, memory is measured.
//!
//! What a program has closed, or left alone for a second, we hold open no longer: a file system shall be unmountable as
//! soon as the program is done with it. A close that is told, and an end, are looked at within the turn of the loop in which they
//! are heard, whatever is under way: what nobody has open may come for nobody.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use bowwave_core::{Bytes, Extent, FileId, Input, Nanos, PageCount, PageIndex, left_off, while_read};
use bowwave_wire::{FILES_MAX, Harvest};

use super::report::file_report;
use super::{DESCRIPTORS_MAX, State};
use crate::files::{bits_in, runs};
use crate::memory;
use crate::segment::monotonic_ns;

/// A descriptor of ours that is left alone so long is closed, and sooner if the program has closed the file.
const IDLE_NS: u64 = 1_000_000_000;
/// So often what was read quietly is harvested, and descriptors are closed; the lab's player does it as often (play.rs). It is how late the
/// brain may be told of a read that found its pages; a mark is told at once.
const HOUSEKEEPING_NS: u64 = 100_000_000;
/// Windows that wait to be read are looked after no more often than this, and so many at a time.
const LOOK_AFTER_NS_MIN: u64 = 5_000_000;
const WINDOWS_LOOKED_AFTER: usize = 256;
/// So often it is looked up how much memory there is.
const MEMORY_NS: u64 = 1_000_000_000;
/// What is gone is told apart from what is under way by so many pages.
const GONE_TOGETHER: u64 = 16;
/// Leaves harvested in one housekeeping: 2 GiB of pages. The segment has places for 65,536: eight housekeepings go round them all.
pub(super) const HARVEST_MAX: usize = 8192;
/// So many slots have files before it is looked which of them we do not hold. Where half of them have, one file in thousands
/// finds all of its 16 places taken.
const UNHELD_FROM: usize = FILES_MAX / 4;
/// Leaves on either side of a read that are harvested before it is told: 256 MiB at most, and only as far as there are
/// no so many in a row of which nothing was read.
const LEAVES_BEHIND: u64 = 1024;
const LEAVES_UNREAD: u32 = 2;

impl State {
    pub(super) fn keep_house(&mut self) {
        let now = self.now();
        if now.since(self.kept).0 < HOUSEKEEPING_NS {
            return;
        }
        self.kept = now;
        self.harvest(now, HARVEST_MAX);
        self.keep_maps();
        self.keep_outside(now);
        self.give_up_probed(now);
        let idle: Vec<u32> = self
            .files
            .iter()
            .filter(|(_, f)| {
                f.descriptor.is_some() && f.outstanding == 0 && now.since(f.active).0 > HOUSEKEEPING_NS
            })
            .map(|(&slot, _)| slot)
            .filter(|&slot| !self.mapped.spaces.maps(slot))
            .take(256)
            .collect();
        for slot in idle {
            let tired = self.files.get(&slot).is_some_and(|f| now.since(f.active).0 > IDLE_NS);
            if tired {
                self.let_go(slot);
            } else {
                self.let_go_if_closed(slot);
            }
        }
        self.free_slots();
        if now.since(self.measured).0 > MEMORY_NS {
            self.measured = now;
            let pid = Some(self.child.load(Ordering::Relaxed)).filter(|&pid| pid > 0);
            let pid = pid.map(|pid| self.who.find(&self.segment, pid));
            let memory = memory::allowance(self.options.memory, pid);
            if memory::differs(self.memory, memory) {
                self.memory = memory;
                self.wave.handle(now, Input::Memory { bytes: Bytes(memory) });
            }
            if let Some(explain) = &mut self.explain {
                explain.flush();
            }
        }
    }

    /// What was fetched and waits to be read: is it still there? A page that the cache has lost without a word costs its
    /// reader a whole latency, one after the other; seen here they come back together. Looked at once a latency, and so
    /// seldom that it costs a fiftieth of the time at most.
    pub(super) fn look_after_windows(&mut self) {
        let now = self.now();
        if now < self.look_after || self.options.dry_run {
            return;
        }
        let latency = self.latencies().max().unwrap_or(Nanos(LOOK_AFTER_NS_MIN)).0;
        let windows = self.wave.take_windows(WINDOWS_LOOKED_AFTER);
        let mut looked_ns = 0;
        for (file, window, believed) in windows {
            let descriptor = self.files.get(&(file.0 as u32)).and_then(|held| held.descriptor.as_ref());
            let Some(descriptor) = descriptor else { continue };
            let before = monotonic_ns();
            let cached = descriptor.cached(window);
            looked_ns += monotonic_ns() - before;
            if cached.is_none_or(|cached| cached >= believed.0) {
                continue;
            }
            self.tell_lost(now, file, window);
        }
        self.look_after = Nanos(now.0 + latency.max(LOOK_AFTER_NS_MIN).max(50 * looked_ns));
    }

    /// Tells of those of `pages` that the cache does not hold, nor are under way. Whether any of them was believed there.
    pub(super) fn tell_lost(&mut self, now: Nanos, file: FileId, pages: Extent) -> bool {
        let descriptor = self.files.get(&(file.0 as u32)).and_then(|held| held.descriptor.as_ref());
        let Some(descriptor) = descriptor else { return false };
        let Some(presence) = descriptor.presence(pages) else { return false };
        let mut gone = Vec::new();
        for run in runs(pages, &presence, false) {
            gone_of(run, &|pages| descriptor.cached(pages), &mut gone);
        }
        let mut lost = false;
        for pages in gone {
            lost = lost || (0..pages.count.0).any(|i| self.wave.resident(file, pages.start + PageCount(i)));
            self.account_lacks(file.0 as u32, pages);
            self.wave.handle(now, Input::Dropped { file, pages });
        }
        lost
    }

    /// Takes what was read quietly in up to `max` published leaves, going round them from where the last time ended. One of which
    /// nothing is quiet any more is looked at for the last time.
    pub(super) fn harvest(&mut self, now: Nanos, max: usize) {
        let last = self.harvested_last;
        let behind = self.published.range((Bound::Excluded(last), Bound::Unbounded));
        let leaves: Vec<(u32, u64)> =
            behind.chain(self.published.range(..=last)).take(max).copied().collect();
        for &(slot, leaf) in &leaves {
            for harvest in self.harvest_leaf(slot, leaf) {
                self.harvested(harvest, now);
            }
            if self.wave.leaf(FileId(u64::from(slot)), leaf).0 == 0 {
                self.published.remove(&(slot, leaf));
            }
        }
        self.harvested_last = leaves.last().copied().unwrap_or(last);
    }

    /// What was read quietly around a read that the brain is to be told of, leaf by leaf as far as pages were read lately: what
    /// lies before it, then what lies behind it, both upwards. The pages of the read itself are in neither.
    ///
    /// What lies before is to be told before the read: its reader came through there. What lies behind, after it: he has read on
    /// since, before the agent came to it.
    pub(super) fn harvest_around(&self, slot: u32, pages: Extent) -> [Vec<Harvest>; 2] {
        let (first, last) = (pages.start.0 / 64, (pages.end().0 - 1) / 64);
        let mut found: Vec<Harvest> = Vec::new();
        for leaf in first..=last.min(first + LEAVES_BEHIND) {
            found.extend(self.harvest_leaf(slot, leaf));
        }
        self.harvest_while_read(slot, (0..first).rev(), &mut found);
        self.harvest_while_read(slot, last + 1.., &mut found);
        found.sort_unstable_by_key(|harvest| harvest.leaf);
        let sides =
            [Extent::between(PageIndex(0), pages.start), Extent::between(pages.end(), PageIndex(u64::MAX))];
        sides.map(|side| {
            let on_it = found.iter().map(|h| Harvest { used: h.used & bits_in(side, h.leaf), ..*h });
            on_it.filter(|harvest| harvest.used != 0).collect()
        })
    }

    /// What the reader `tid` read quietly where he was before, if he is elsewhere now: it is to be told before what he reads `here`.
    pub(super) fn harvest_left_off(&self, tid: u32, here: (FileId, Extent)) -> Vec<Harvest> {
        let was = self.wave.heard_at(tid);
        let left = was.and_then(|was| left_off(was, here, LEAVES_UNREAD));
        let mut found = Vec::new();
        let Some((file, leaves)) = left else { return found };
        self.harvest_while_read(file.0 as u32, leaves, &mut found);
        found
    }

    /// Adds what was read quietly in `leaves`, as far as pages were read lately.
    fn harvest_while_read(&self, slot: u32, leaves: impl Iterator<Item = u64>, found: &mut Vec<Harvest>) {
        while_read(leaves.take(LEAVES_BEHIND as usize), LEAVES_UNREAD, |leaf| {
            let before = found.len();
            found.extend(self.harvest_leaf(slot, leaf));
            found.len() > before
        });
    }

    /// Takes what was read quietly in a leaf, as those inside and the observer outside saw it.
    fn harvest_leaf(&self, slot: u32, leaf: u64) -> impl Iterator<Item = Harvest> + use<> {
        let inside = self.segment.harvest(slot, leaf);
        let of = self.files.get(&slot).map(|held| (held.origin.dev, held.origin.ino));
        let outside = of.and_then(|of| self.outside.harvest(of, slot, leaf));
        inside.into_iter().chain(outside)
    }

    /// All of a turn at once: who opens and closes a file again and again costs us one descriptor a turn.
    pub(super) fn let_go_of_closed(&mut self) {
        for slot in std::mem::take(&mut self.closed) {
            self.let_go_if_closed(slot);
        }
    }

    fn let_go_if_closed(&mut self, slot: u32) {
        let closed = self.files.get(&slot).is_some_and(|held| {
            !self.mapped.spaces.maps(slot)
                && held.descriptor.as_ref().is_some_and(|d| !held.origin.holds() || d.unlinked())
        });
        if closed {
            self.let_go(slot);
        }
    }

    /// Closes our descriptor. What is known of the file stays.
    pub(super) fn let_go(&mut self, slot: u32) {
        if let Some(held) = self.files.get_mut(&slot)
            && held.descriptor.take().is_some()
        {
            self.descriptors -= 1;
        }
    }

    /// Keeps descriptors below the limit: the one left alone longest goes.
    pub(super) fn make_room(&mut self) {
        while self.descriptors >= self.descriptors_max {
            let oldest = self
                .files
                .iter()
                .filter(|(_, f)| f.descriptor.is_some() && f.outstanding == 0)
                .filter(|(slot, _)| !self.mapped.spaces.maps(**slot))
                .min_by_key(|(_, f)| f.active)
                .map(|(&slot, _)| slot);
            let Some(oldest) = oldest else { return };
            self.let_go(oldest);
        }
    }

    /// Half of the slots are enough: those left alone longest are given back, an eighth at a time. Before them go the slots of files
    /// that we do not hold: refused, or never heard of.
    pub(super) fn free_slots(&mut self) {
        self.free_unheld();
        if self.files.len() < FILES_MAX / 2 {
            return;
        }
        let mut by_age: Vec<(Nanos, u32)> = self
            .files
            .iter()
            .filter(|(slot, f)| f.outstanding == 0 && !self.mapped.spaces.maps(**slot))
            .map(|(&slot, f)| (f.active, slot))
            .collect();
        by_age.sort_unstable();
        for (_, slot) in by_age.into_iter().take(FILES_MAX / 8) {
            self.forget(slot);
            self.recycle(slot);
        }
    }

    /// A slot that we did not hold at the last look either is given back, once a quarter of all is taken. A program that has just bound a
    /// file was not heard of yet, and may still be writing what its slot says of it.
    fn free_unheld(&mut self) {
        if (self.segment.files_bound() as usize) < UNHELD_FROM {
            self.unheld.clear();
            return;
        }
        let unheld = |slot: &u32| self.segment.has_file(*slot) && !self.files.contains_key(slot);
        let unheld: BTreeSet<u32> = (0..FILES_MAX as u32).filter(unheld).collect();
        for slot in std::mem::take(&mut self.unheld) {
            if unheld.contains(&slot) {
                self.recycle(slot);
            }
        }
        self.unheld = unheld;
    }

    /// The slot may become another file's. Its own, if it was refused, was a refused one all the same.
    fn recycle(&mut self, slot: u32) {
        for (&refusal, slots) in &mut self.refused {
            if slots.remove(&slot) {
                *self.refused_before.entry(refusal).or_default() += 1;
            }
        }
        self.segment.recycle(slot);
    }

    /// Forgets a file altogether; what came of it stays in the report.
    pub(super) fn forget(&mut self, slot: u32) {
        self.let_go(slot);
        let Some(held) = self.files.remove(&slot) else { return };
        let published: Vec<(u32, u64)> =
            self.published.range((slot, 0)..=(slot, u64::MAX)).copied().collect();
        for (slot, leaf) in published {
            self.published.remove(&(slot, leaf));
            self.segment.publish(slot, leaf, 0, 0);
            self.outside.publish((held.origin.dev, held.origin.ino), slot, leaf, 0);
        }
        self.retired.push(file_report(&held));
        self.wave.handle(self.now(), Input::Close { file: FileId(u64::from(slot)) });
    }
}

/// Adds what is gone of `absent` pages: what the cache does not even have under way, as far as `cached` tells how many it has of some. Where both lie
/// within a few pages all of those are.
fn gone_of(absent: Extent, cached: &impl Fn(Extent) -> Option<u64>, gone: &mut Vec<Extent>) {
    match cached(absent) {
        Some(count) if count >= absent.count.0 => {}
        Some(1..) if absent.count.0 > GONE_TOGETHER => {
            let half = Extent { count: PageCount(absent.count.0 / 2), ..absent };
            gone_of(half, cached, gone);
            gone_of(Extent::between(half.end(), absent.end()), cached, gone);
        }
        _ => match gone.last_mut() {
            Some(last) if last.end() == absent.start => last.count += absent.count,
            _ => gone.push(absent),
        },
    }
}

/// As many descriptors as we may have; half of them, and no more than [`DESCRIPTORS_MAX`], for files.
pub(super) fn raise_descriptor_limit(max: &mut usize) {
    // SAFETY: reads and writes one structure that is ours.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            let want = limit.rlim_max.min(2 * DESCRIPTORS_MAX as u64 + 64);
            let raised = libc::rlimit { rlim_cur: want.max(limit.rlim_cur), ..limit };
            let now = if libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 { raised } else { limit };
            *max = (now.rlim_cur as usize / 2).clamp(8, DESCRIPTORS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 256 absent pages [0, 64) are under way and [192, 200) as well; the kernel counts them.
    #[test]
    fn what_is_under_way_is_not_gone() {
        let gone = |from: u64, count: u64| {
            let cached = |pages: Extent| {
                let under_way = [Extent::new(0, 64), Extent::new(192, 8)];
                Some(under_way.iter().map(|run| run.intersection(pages).count.0).sum())
            };
            let mut gone = Vec::new();
            gone_of(Extent::new(from, count), &cached, &mut gone);
            gone
        };
        assert_eq!(gone(0, 64), []);
        assert_eq!(gone(64, 128), [Extent::new(64, 128)]);
        assert_eq!(gone(0, 256), [Extent::new(64, 192)], "eight pages are not told apart");
        assert_eq!(gone(0, 128), [Extent::new(64, 64)]);
        let mut all = Vec::new();
        gone_of(Extent::new(0, 64), &|_| None, &mut all);
        assert_eq!(all, [Extent::new(0, 64)], "where the kernel does not tell, what is absent is gone");
    }
}
