//! The gate of a leaf: which part of which file it holds, which of its pages readers may touch, and how many are at it.
//!
//! A reader takes no lock. He *enters* (one addition), looks which pages are present and whether it still is the leaf that he
//! wants, copies, and leaves. Who takes a page away clears its present bit first and looks at the pins then; where he finds one,
//! he puts the bit back and takes another page. Both sides are sequentially consistent, so one of them sees the other:
//!
//! ```text
//! reader    pins += 1        present?  yes -> copy -> pins -= 1        no -> pins -= 1, the slow way
//! taker     present -= bit   pins?     0 -> the frame is free          else present += bit, another page
//! ```
//!
//! The key is looked at last: between being found and being pinned a leaf may have become another, and then the bits may be
//! those of the other. If the key is the one, so are they, because a leaf with a present page is not given up, and no page of
//! a pinned leaf is taken.
//!
//! `tests/models.rs` runs this very file under loom, which goes through the orders of its steps and through what a weaker
//! machine than this may show of them; `memory/tests.rs` goes through every order of a model of it, with more readers and owners.

use super::atomics::{AtomicU32, AtomicU64, Ordering, latest};

/// See the module's text. Everything but [`Gate::enter`], [`Gate::leave`] and [`Gate::key`] is for whoever has the lock of the cache.
#[repr(C)]
#[derive(Default)]
pub(super) struct Gate {
    /// File in the upper half, number of the leaf in the lower; 0 where it is free.
    key: AtomicU64,
    pins: AtomicU32,
    present: AtomicU64,
}

impl Gate {
    /// Whose leaf it is at this moment.
    #[inline]
    pub(super) fn key(&self) -> u64 {
        self.key.load(Ordering::Acquire)
    }

    /// Pins the leaf if it is that of `key`: the pages that are there, and stay until [`Gate::leave`], though their bits may go out
    /// for a moment. `None` where it is another's; then there is nothing to leave.
    #[inline]
    pub(super) fn enter(&self, key: u64) -> Option<u64> {
        self.pins.fetch_add(1, Ordering::SeqCst);
        let present = self.present.load(Ordering::SeqCst);
        if self.key.load(Ordering::SeqCst) == key {
            return Some(present);
        }
        self.leave();
        None
    }

    /// Unpins it.
    #[inline]
    pub(super) fn leave(&self) {
        self.pins.fetch_sub(1, Ordering::Release);
    }

    /// A free leaf becomes that of `key`, without a page.
    pub(super) fn settle(&self, key: u64) {
        self.present.store(0, Ordering::Relaxed);
        self.key.store(key, Ordering::SeqCst);
    }

    /// Pages whose frames hold their bytes may be touched from now on.
    pub(super) fn show(&self, pages: u64) {
        let before = self.present.fetch_or(pages, Ordering::SeqCst);
        assert_eq!(before & pages, 0, "a page is fetched once at a time");
    }

    /// Takes a page from the readers; not where one of them is at the leaf at this moment.
    pub(super) fn take(&self, page: u64) -> bool {
        let before = self.present.fetch_and(!page, Ordering::SeqCst);
        assert_ne!(before & page, 0, "a page is taken once");
        let taken = latest(&self.pins) == 0;
        if !taken {
            self.present.fetch_or(page, Ordering::SeqCst);
        }
        taken
    }

    /// A leaf without pages is nobody's; whose it was.
    pub(super) fn give_up(&self) -> u64 {
        self.key.swap(0, Ordering::SeqCst)
    }
}
