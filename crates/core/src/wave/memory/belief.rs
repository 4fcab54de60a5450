//! R12: how much memory there is believed to be, and what an epoch has lost of what was fetched ahead.
//!
//! An eighth less is believed in when what was out did not fit, though no less than half of what is out; a sixty-fourth more after an epoch in
//! which little was lost. The numbers at the top of losses.rs are these; who has lost what, and whether that tells, is decided there.

use crate::wave::memory::losses::LOST_FEW;

/// In an epoch few pages lost are [`LOST_FEW`], and one in so many of those that are out; many are as many, and one in so many of the memory.
const LOST_SHARE: u64 = 16;
/// Memory has room if what is out is less than one page in so many of it.
const ROOMY_SHARE: u64 = 4;
/// Memory that changes by no more than this share is the same one: a cache's own tables grow and shrink.
const SAME_MEMORY: u64 = 16;
/// Where fewer than one in so many streams find pages gone in an epoch, it is not the memory: a device may have taken long for them.
const THRASHED_SHARE: u64 = 64;
/// What did not fit takes one part in so many off the memory believed in.
const LESS: u64 = 8;
/// Pages that are believed in at least: 1 MiB.
const BELIEVED_MIN: u64 = 256;
/// Part of the memory that is believed in again after an epoch in which little was lost: what an eighth less has mended is not tried anew
/// for 16 s.
const RECOVERY: u64 = 64;

/// All in pages.
#[derive(Clone, Debug)]
pub(in crate::wave) struct Belief {
    pages: u64,
    /// Pages lost unread in this epoch, and how many of those have told on the memory believed in.
    lost: u64,
    weighed: u64,
    /// Readers that found gone what had arrived, in this epoch.
    robbed: u64,
}

impl Belief {
    /// All of a memory is believed in.
    pub(in crate::wave) fn new(memory: u64) -> Self {
        Self { pages: memory, lost: 0, weighed: 0, robbed: 0 }
    }

    /// The memory believed in.
    pub(in crate::wave) fn pages(&self) -> u64 {
        self.pages
    }

    /// The memory was of so many pages `before` and is of so many `now`. What was learnt of it holds while it stays about the same; another
    /// one is believed in, all of it.
    pub(in crate::wave) fn memory_is(&mut self, before: u64, now: u64) {
        let another = before.abs_diff(now) > before / SAME_MEMORY;
        let believed = if another || self.pages == before { now } else { self.pages };
        self.pages = believed.min(now);
    }

    /// So many pages were lost unread.
    pub(in crate::wave) fn lost(&mut self, pages: u64) {
        self.lost += pages;
    }

    /// A reader found gone what had arrived. Whether so many have, of those that are `active`, that it is the memory.
    pub(in crate::wave) fn robbed(&mut self, active: u64) -> bool {
        self.robbed += 1;
        THRASHED_SHARE * self.robbed > active
    }

    /// Whether what was lost is few while so many are out `unread`: where those fill much of the memory, it is the memory that is short.
    pub(in crate::wave) fn lost_few(&self, unread: u64) -> bool {
        ROOMY_SHARE * unread < self.pages && LOST_FEW + unread / LOST_SHARE >= self.lost
    }

    /// Whether so much was lost, that was no news, that memory is short.
    pub(in crate::wave) fn is_short(&self) -> bool {
        self.lost.saturating_sub(self.weighed) > LOST_FEW + self.pages / LOST_SHARE
    }

    /// What was lost has told, and that so many more will be is no news.
    pub(in crate::wave) fn has_told(&mut self, more: u64) {
        self.weighed = self.lost + more;
    }

    /// What was out `unread` did not fit: less is believed in, and no more than `most`.
    pub(in crate::wave) fn less(&mut self, unread: u64, most: u64) {
        let less = self.pages - self.pages / LESS;
        self.pages = less.min(most).max(unread / 2).max(BELIEVED_MIN);
    }

    /// An epoch is over. What was believed lost of the `memory` comes back in epochs in which little is lost: R12 recovers, it is never sticky.
    pub(in crate::wave) fn next_epoch(&mut self, memory: u64) {
        if self.weighed == 0 {
            self.pages = (self.pages + memory / RECOVERY).min(memory);
        }
        (self.lost, self.weighed, self.robbed) = (0, 0, 0);
    }
}

#[cfg(test)]
pub(in crate::wave) mod tests {
    use super::*;

    impl Belief {
        /// So many pages are believed in.
        pub(in crate::wave) fn is(&mut self, pages: u64) {
            self.pages = pages;
        }

        /// Pages lost in this epoch.
        pub(in crate::wave) fn lost_now(&self) -> u64 {
            self.lost
        }
    }

    /// 4096 pages: an eighth less, no less than half of what is out, and 64 more after each epoch but one in which that was.
    #[test]
    fn an_eighth_less_and_a_sixty_fourth_more() {
        let mut belief = Belief::new(4096);
        belief.lost(400);
        assert!(belief.is_short() && !belief.lost_few(0));
        belief.less(1000, u64::MAX);
        belief.has_told(0);
        assert_eq!((belief.pages(), belief.is_short()), (3584, false));
        belief.next_epoch(4096);
        assert_eq!(belief.pages(), 3584, "much was lost in that one");
        belief.next_epoch(4096);
        assert_eq!(belief.pages(), 3648);
        belief.less(7000, u64::MAX);
        assert_eq!(belief.pages(), 3500, "half of what is out");
        assert_eq!([64, 128].map(|active| belief.robbed(active)), [false, false]);
        assert!(belief.robbed(128), "three of 128 streams");
    }
}
