//! How memory is cut, which part a new page goes to, and which part is reclaimed.
//!
//! ```text
//!               shard 0 (60 %)      shard 1 (40 %)
//! Fair          6 pages              then 4 pages           by credits, given anew when both are used up (spec 7.1.4)
//! Fill          while above its low mark                    then here
//! Hashed        by extent of 64 pages                       fairness without counting
//! background    below low: up to high, `skip_balanced`: only shards that are below; else every one before them too
//! ```
//!
//! Worked example (test `fair_credits_follow_the_sizes`): shards of 60 and 40 frames and ten new pages: six and four.

use super::CacheConfig;
use crate::units::{FileId, PageCount, PageIndex};
use alloc::vec::Vec;

/// Pages that are placed together where placement is by hash.
const HASHED_TOGETHER: u64 = 64;
/// Credits are dealt in hundredths of memory, at least one page a shard.
const ROUND: u64 = 100;
/// Reckonings of a shard's dirty limit are kept for so many pages dirtied.
const LIMIT_KEPT: u64 = 32;

/// Which shard a new page goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// In proportion to the shards' sizes.
    Fair,
    /// The first shard while it has more than its low mark free, then the next; without background reclaim while it
    /// has any.
    Fill,
    /// By a hash of file and extent.
    Hashed,
}

/// Whose page goes when a frame is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// The page that was inserted first, in whichever shard.
    Oldest,
    /// The oldest page of the shard that the new page was placed in.
    Same,
}

/// Reclaim ahead of need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Background {
    /// It starts when a shard has fewer thousandths of its frames free,
    pub low_permille: u64,
    /// and goes on until it has so many.
    pub high_permille: u64,
    /// Leaves shards alone that have enough free. Without it, every shard before the last one that is short is shrunk
    /// once too, whatever it has free (spec 7.1.3).
    pub skip_balanced: bool,
}

#[derive(Clone, Copy)]
struct Shard {
    frames: u64,
    used: u64,
    credit: u64,
    dirty: u64,
    /// Dirty pages at which the limit is reckoned again.
    dirty_looked: u64,
    /// It was shrunk although it had enough, and is let down to this many pages.
    shrink_to: Option<u64>,
}

pub(super) struct Shards {
    shards: Vec<Shard>,
    placement: Placement,
    victim: Victim,
    background: Option<Background>,
}

impl Shards {
    pub(super) fn new(config: &CacheConfig) -> Self {
        let shard = |frames: &PageCount| Shard {
            frames: frames.0,
            used: 0,
            credit: 0,
            dirty: 0,
            dirty_looked: 0,
            shrink_to: None,
        };
        Self {
            shards: config.shards.iter().map(shard).collect(),
            placement: config.placement,
            victim: config.victim,
            background: config.background,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }
    pub(super) fn victim(&self) -> Victim {
        self.victim
    }
    pub(super) fn used(&self) -> PageCount {
        PageCount(self.shards.iter().map(|shard| shard.used).sum())
    }
    pub(super) fn used_of(&self, shard: usize) -> PageCount {
        PageCount(self.shards[shard].used)
    }
    pub(super) fn capacity(&self) -> PageCount {
        PageCount(self.shards.iter().map(|shard| shard.frames).sum())
    }
    /// Frames that a shard has left.
    pub(super) fn free(&self, shard: usize) -> u64 {
        self.shards[shard].frames.saturating_sub(self.shards[shard].used)
    }
    pub(super) fn over(&self, shard: usize) -> bool {
        self.shards[shard].used > self.shards[shard].frames
    }
    pub(super) fn resize(&mut self, shard: usize, frames: PageCount) {
        self.shards[shard].frames = frames.0;
    }
    pub(super) fn took(&mut self, shard: usize, pages: PageCount) {
        self.shards[shard].used += pages.0;
    }
    pub(super) fn gave(&mut self, shard: usize, pages: PageCount) {
        self.shards[shard].used -= pages.0;
    }

    /// The shard of a new page.
    pub(super) fn place(&mut self, file: FileId, page: PageIndex) -> usize {
        if self.shards.len() == 1 {
            return 0;
        }
        match self.placement {
            Placement::Fair => self.next_with_credit(),
            Placement::Fill => {
                let low = |shard: &Shard| self.background.map_or(0, |b| shard.frames * b.low_permille / 1000);
                let free = |shard: &Shard| shard.frames.saturating_sub(shard.used);
                let place = self.shards.iter().position(|shard| free(shard) > low(shard));
                place.or_else(|| self.shards.iter().position(|shard| free(shard) > 0)).unwrap_or(0)
            }
            Placement::Hashed => {
                let frames = self.capacity().0.max(1);
                let at = mixed(file.0, page.0 / HASHED_TOGETHER) % frames;
                let mut below = 0;
                let within = |shard: &Shard| {
                    below += shard.frames;
                    at < below
                };
                self.shards.iter().position(within).unwrap_or(0)
            }
        }
    }

    fn next_with_credit(&mut self) -> usize {
        if self.shards.iter().all(|shard| shard.credit == 0) {
            let frames = self.capacity().0.max(1);
            for shard in &mut self.shards {
                shard.credit = (shard.frames * ROUND / frames).max(1);
            }
        }
        let at = self.shards.iter().position(|shard| shard.credit > 0).unwrap_or(0);
        self.shards[at].credit -= 1;
        at
    }

    /// The shards that background reclaim works on now, the first in front.
    pub(super) fn wanting(&mut self) -> Vec<usize> {
        let Some(background) = self.background else { return Vec::new() };
        let low = |shard: &Shard| shard.frames * background.low_permille / 1000;
        let free = |shard: &Shard| shard.frames.saturating_sub(shard.used);
        let Some(last) = self.shards.iter().rposition(|shard| free(shard) < low(shard)) else {
            return Vec::new();
        };
        let high = |shard: &Shard| shard.frames * background.high_permille / 1000;
        // As many pages as the last one is short of are taken from each that is not.
        let share =
            |shard: &Shard, of: &Shard| (high(of) - free(of).min(high(of))) * shard.frames / of.frames.max(1);
        let of = self.shards[last];
        for shard in &mut self.shards[..=last] {
            let balanced = free(shard) >= high(shard);
            shard.shrink_to = match balanced {
                true if background.skip_balanced => None,
                true => Some(shard.used.saturating_sub(share(shard, &of))),
                false => Some(shard.frames.saturating_sub(high(shard))),
            };
        }
        (0..=last).filter(|&at| self.shards[at].shrink_to.is_some()).collect()
    }

    pub(super) fn below_high(&self, shard: usize) -> bool {
        let shard = &self.shards[shard];
        shard.shrink_to.is_some_and(|to| shard.used > to)
    }

    pub(super) fn dirtied(&mut self, shard: usize, pages: u64) {
        self.shards[shard].dirty += pages;
    }
    pub(super) fn cleaned(&mut self, shard: usize, pages: u64) {
        self.shards[shard].dirty -= pages;
    }
    pub(super) fn dirty(&self) -> PageCount {
        PageCount(self.shards.iter().map(|shard| shard.dirty).sum())
    }
    pub(super) fn over_dirty_limit(&mut self, percent: u64) -> bool {
        let mut over = false;
        for shard in &mut self.shards {
            if shard.dirty < shard.dirty_looked {
                continue;
            }
            let limit = shard.frames * percent / 100;
            over |= shard.dirty > limit;
            shard.dirty_looked = if shard.dirty > limit { 0 } else { limit.min(shard.dirty + LIMIT_KEPT) };
        }
        over
    }
}

/// A number that depends on every bit of both.
fn mixed(a: u64, b: u64) -> u64 {
    let x = (a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 11
}
