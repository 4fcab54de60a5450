//! Which page gives up its frame, and to whom.
//!
//! ```text
//! inactive  old [p1 p2 p3  p7* p8 p9] young         * dirty; four frames are wanted
//!                --------  ---  --
//!                    |      |    goes next; p9 stays, for four are enough
//!                    |     passed over, and named to be written
//!                   a run: goes first, as one
//! ```
//!
//! Pages that came together lie together, and go together: a run leaves its list as one chain, and a window takes its frames. Where
//! somebody is asked of each page, they go one by one. What gave up its frame leaves its file's table when all of them have.
//!
//! A page in flight that a search comes to goes to the young end, as a kernel puts back what it finds locked. It got its frame when it was
//! asked for, and may have stood in line for its device while all that was older went: it would be the first to go when it has come.
//!
//! ```text
//! six frames, 32 readers of one disk     [a1 a2 in flight  b1 b2 c1 c2]   d1 d2 are wanted
//!                                        [c1 c2  a1 a2  d1 d2]            b1 b2 went; when a1 a2 come, c1 c2 go before them
//! ```
//!
//! Worked examples: the pictures; p1, p2, p3 go as one, then p8 (test `pages_that_came_together_go_together`); a1, a2 outlive c1, c2 (test
//! `what_waited_for_its_device_is_not_old_when_it_comes`).

use super::frames::{Flag, FrameId, List};
use super::shards::Victim;
use super::{Cache, Evicted};
use crate::units::{Extent, FileId, PageCount, PageIndex};

/// Frames at the old end of a list that one search for a victim looks at though they are in flight or dirty.
const LOOKED_MAX: usize = 4096;

/// What the driver of a cache knows of a page that is about to lose its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Nothing: it goes.
    Go,
    /// It was read again since the cache was last told of it: it stays, and is active.
    Read,
    /// Somebody is using it at this moment: it stays, and is not asked about soon.
    Stay,
}

/// Asked of each page that is about to lose its frame, and told whether a first read of it is known. Where it answers
/// [`Hold::Go`], the page goes.
pub type Holds<'a> = &'a mut dyn FnMut(FileId, PageIndex, bool) -> Hold;

/// Where searches for a victim have come in a shard's lists, while nothing but they moves pages: the page to look at next, and
/// how many were passed over before it.
#[derive(Default)]
pub(super) struct Sought {
    shard: usize,
    next: [Option<(FrameId, usize)>; 2],
}

impl Cache {
    /// The memory of a shard changes to `frames` pages, at most what it began with; what no longer fits loses its frame
    /// at once, as far as it is neither in flight nor dirty.
    pub fn resize(&mut self, shard: usize, frames: PageCount) {
        self.resize_asking(shard, frames, None);
    }

    /// [`Cache::resize`], asking as [`Cache::submit_unless`] does.
    pub fn resize_unless(&mut self, shard: usize, frames: PageCount, holds: Holds<'_>) {
        self.resize_asking(shard, frames, Some(holds));
    }

    fn resize_asking(&mut self, shard: usize, frames: PageCount, mut holds: Option<Holds<'_>>) {
        self.shards.resize(shard, frames);
        let mut sought = Sought::default();
        while self.shards.over(shard) && self.evict_oldest(shard, 1, &mut holds, &mut sought) {}
        self.settle();
    }

    /// Reclaims ahead of need, if the cache was told to: called by its driver after each submission. Dirty pages at the
    /// old end come out of [`Cache::take_to_write`].
    pub fn reclaim_in_background(&mut self) {
        for shard in self.shards.wanting() {
            let mut sought = Sought::default();
            while self.shards.below_high(shard) && self.evict_oldest(shard, 1, &mut None, &mut sought) {}
            self.settle();
        }
    }

    /// Frames for `pages`, which have none, in flight, at the young end; the oldest pages give up theirs where there are none. How many
    /// of them got one: fewer where no more can be had.
    pub(super) fn take_frames(
        &mut self,
        file: FileId,
        pages: Extent,
        owner: u32,
        holds: &mut Option<Holds<'_>>,
        sought: &mut Sought,
    ) -> PageCount {
        let slot = self.files[&file].slot;
        let (mut taken, mut rest) = (core::mem::take(&mut self.taken), pages);
        taken.clear();
        while !rest.is_empty() {
            let Some((shard, count)) = self.room(file, rest, holds, sought) else { break };
            let next = Extent { count, ..rest };
            self.frames.allocate(slot, next, owner, shard, &mut taken);
            self.shards.took(shard, count);
            self.ghosts.forget(file, next);
            rest = Extent::between(next.end(), rest.end());
        }
        self.settle();
        self.files.get_mut(&file).expect("looked up above").places.put(pages.start, &taken);
        self.taken = taken;
        pages.count - rest.count
    }

    /// The shard that the first of `pages` goes to, and for how many of them it has a frame, one at least. A full one evicts its
    /// oldest pages, no more than would have gone if each of these had come alone.
    fn room(
        &mut self,
        file: FileId,
        pages: Extent,
        holds: &mut Option<Holds<'_>>,
        sought: &mut Sought,
    ) -> Option<(usize, PageCount)> {
        let mut shard = self.shards.place(file, pages.start);
        // Several shards take turns, page by page.
        let together = if self.shards.len() == 1 { pages.count.0 } else { 1 };
        while self.shards.free(shard) == 0 {
            let from = match self.shards.victim() {
                Victim::Same => shard,
                Victim::Oldest => self.shard_of_oldest(),
            };
            let most = if self.shards.over(shard) { 1 } else { together };
            let found = self.evict_oldest(from, most, holds, sought);
            if !found && !self.evict_oldest(shard, most, holds, sought) {
                return None;
            }
            shard = from;
        }
        Some((shard, PageCount(together.min(self.shards.free(shard)))))
    }

    /// Where the page lies that was inserted first.
    fn shard_of_oldest(&self) -> usize {
        if self.shards.len() == 1 {
            return 0;
        }
        (0..self.shards.len())
            .filter_map(|shard| self.frames.oldest_age(shard).map(|age| (age, shard)))
            .min()
            .map_or(0, |(_, shard)| shard)
    }

    /// Evicts the oldest page of a shard that can go: of the inactive list, into which the oldest of the active list come while
    /// that is the longer. Dirty pages are passed over, and named to be written; those in flight and in use go to the
    /// young end. It goes on where the last search was: what that passed over has not changed. Where nobody is asked, those of its run
    /// go with it, `most` in all. False if none can go.
    fn evict_oldest(
        &mut self,
        shard: usize,
        most: u64,
        holds: &mut Option<Holds<'_>>,
        sought: &mut Sought,
    ) -> bool {
        if sought.shard != shard {
            *sought = Sought { shard, ..Sought::default() };
        }
        while self.frames.len(shard, List::Active) > self.frames.len(shard, List::Inactive) {
            sought.next[List::Active as usize] = None;
            self.frames.deactivate_oldest(shard);
        }
        if self.frames.all_in_flight(shard) {
            return false;
        }
        for list in [List::Inactive, List::Active] {
            let (mut at, mut passed) = match sought.next[list as usize].take() {
                Some((next, passed)) => (Some(next), passed),
                None => (self.frames.oldest(shard, list), 0),
            };
            let looks = LOOKED_MAX - passed;
            for _ in 0..looks {
                let Some(id) = at else { break };
                let frame = self.frames.get(id);
                if frame.has(Flag::InFlight) {
                    at = self.frames.younger(id);
                    self.frames.rejuvenate(id);
                    continue;
                }
                if !frame.idle() {
                    passed += 1;
                    at = self.frames.younger(id);
                    self.to_write.push((self.frames.file(frame), frame.page()));
                    continue;
                }
                let (hold, most) = match holds {
                    None => (Hold::Go, most),
                    // One that stays goes to the young end, where the frames of those before it have to be by then.
                    Some(holds) => {
                        let known = frame.has(Flag::Referenced);
                        (holds(self.frames.file(frame), frame.page(), known), 1)
                    }
                };
                match hold {
                    Hold::Go => {
                        let next = self.evict(id, most);
                        sought.next[list as usize] = next.map(|next| (next, passed));
                        return true;
                    }
                    Hold::Read | Hold::Stay => {
                        at = self.frames.younger(id);
                        if hold == Hold::Read {
                            self.touch_frame(id);
                        } else {
                            self.frames.rejuvenate(id);
                        }
                    }
                }
            }
        }
        false
    }

    /// The page, and those of its run that are younger, `most` in all, give up their frames. They leave their file's table with those
    /// that go with them, in [`Cache::settle`]. Says which frame was the next in their list.
    pub(super) fn evict(&mut self, id: FrameId, most: u64) -> Option<FrameId> {
        if self.shards.len() > 1 {
            let age = self.frames.age(id);
            let oldest = (0..self.shards.len()).filter_map(|shard| self.frames.oldest_age(shard)).min();
            self.age_inversion = self.age_inversion.max(age.saturating_sub(oldest.unwrap_or(age)));
        }
        let run = self.frames.run(id, most);
        let next = self.frames.younger(run.young());
        let frame = self.frames.get(id);
        let pages = Extent { start: frame.page(), count: run.len() };
        let gone = Evicted { file: self.frames.file(frame), pages, owner: frame.owner, unread: false };
        self.shards.gave(frame.shard(), run.len());
        self.frames.free(run);
        gone.join(&mut self.leaving);
        next
    }

    /// Those that gave up their frames are absent.
    pub(super) fn settle(&mut self) {
        for gone in self.leaving.drain(..) {
            let f = self.files.get_mut(&gone.file).expect("a frame's file is open");
            f.table.lose(gone.pages, |pages, unread| {
                let gone = Evicted { pages, unread, ..gone };
                self.ghosts.remember(&gone);
                gone.join(&mut self.evicted);
            });
            f.places.take(gone.pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CacheConfig;
    use super::*;
    use crate::window::Window;

    /// The picture at the top.
    #[test]
    fn pages_that_came_together_go_together() {
        let (mut cache, file) = (Cache::new(CacheConfig::of(PageCount(6))), FileId(1));
        cache.open(file, PageIndex(100));
        for start in [1, 7] {
            cache.submit(file, Window::new(start, 3, 0), 0);
            cache.arrived(file, Extent::new(start, 3));
        }
        assert_eq!(cache.write(file, Extent::new(7, 1), 0), None);
        assert_eq!(cache.submit(file, Window::new(90, 4, 0), 0).actual, PageCount(4));
        let gone: alloc::vec::Vec<Extent> = cache.take_evicted().into_iter().map(|gone| gone.pages).collect();
        assert_eq!(gone, [Extent::new(1, 3), Extent::new(8, 1)]);
        assert_eq!(cache.take_to_write(), [(file, PageIndex(7))]);
        cache.check();
    }

    /// The second picture.
    #[test]
    fn what_waited_for_its_device_is_not_old_when_it_comes() {
        let (mut cache, file) = (Cache::new(CacheConfig::of(PageCount(6))), FileId(1));
        cache.open(file, PageIndex(100));
        let gone = |cache: &mut Cache, start: u64| -> alloc::vec::Vec<Extent> {
            assert_eq!(cache.submit(file, Window::new(start, 2, 0), 0).actual, PageCount(2));
            cache.check();
            cache.take_evicted().into_iter().map(|gone| gone.pages).collect()
        };
        let [a, b, c, d, e, f] = [0, 10, 20, 30, 40, 50];
        assert_eq!([a, b, c].map(|start| gone(&mut cache, start).len()), [0; 3]);
        [b, c].into_iter().for_each(|start| cache.arrived(file, Extent::new(start, 2)));
        assert_eq!(gone(&mut cache, d), [Extent::new(b, 2)]);
        [a, d].into_iter().for_each(|start| cache.arrived(file, Extent::new(start, 2)));
        assert_eq!([e, f].map(|start| gone(&mut cache, start)), [[Extent::new(c, 2)], [Extent::new(a, 2)]]);
    }
}
