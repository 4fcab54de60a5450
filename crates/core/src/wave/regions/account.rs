//! R11: whether what is bought pays for itself, where memory cannot hold all of it.
//!
//! A region is bought on the word of the reads before it, and memory may lose it before those come that it was bought for. So accounts are kept, in
//! pages that the device could have carried: what was bought and the ways to it, against what was read of it and the waits that it saved. Who
//! has spent as much as memory holds, and a thirty-second of all waits, more than came back, buys nothing until it has.
//!
//! ```text
//! hdd, where a way is worth 195 pages, and 8 MiB of memory, 2048 pages; reads of 4 pages
//!   2 regions of 256 pages, of which 16 were read in 4 places: 5 ways and 240 pages each      2430 > 2048 + 8 * 195 / 32 after 8 waits
//!   a read was served out of them, 4 pages and the way to them                                2231 > 2096
//!   another                                                                                   2032: the next may be bought
//!   47 more, and 9751 have come back for 2430: regions are bought though much else is lost (R12)
//! ```
//!
//! Where memory is large nothing of this is felt: 1 GiB is 262,144 pages.

/// One part in so many of all waits may be spent in vain.
const VAIN_SHARE: u64 = 32;
/// What was bought pays well if it brought so many times what it took.
const PAYS: u64 = 4;

/// What buying in a file took and brought, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Account {
    spent: u64,
    earned: u64,
    /// What might have been carried while reads waited for which nothing was fetched, and their own pages.
    waited: u64,
    pages: u64,
}

impl Account {
    /// A read of `pages` pages waited as long as `way` pages take.
    pub(in crate::wave) fn waited(&mut self, pages: u64, way: u64) {
        self.waited = self.waited.saturating_add(way);
        self.pages = self.pages.saturating_add(pages);
    }

    /// So many pages were bought by so many ways, each as long as `way` pages take.
    pub(in crate::wave) fn bought(&mut self, pages: u64, ways: u64, way: u64) {
        self.spent = self.spent.saturating_add(pages).saturating_add(ways.saturating_mul(way));
    }

    /// About so many pages were read out of what was bought, by reads as large as those that waited, and as long.
    pub(in crate::wave) fn served(&mut self, pages: u64) {
        let ways = (u128::from(pages) * u128::from(self.waited) / u128::from(self.pages.max(1))) as u64;
        self.earned = self.earned.saturating_add(pages).saturating_add(ways);
    }

    /// Whether what was bought has brought four times what it took: it pays, whatever else memory loses (R12).
    pub(in crate::wave) fn pays(&self) -> bool {
        self.spent > 0 && self.earned >= self.spent.saturating_mul(PAYS)
    }

    /// Whether more may be bought, where memory holds so many pages.
    pub(in crate::wave) fn allows(&self, memory: u64) -> bool {
        self.spent <= self.earned.saturating_add(memory).saturating_add(self.waited / VAIN_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example.
    #[test]
    fn what_was_bought_pays_for_itself() {
        let mut account = Account::default();
        (0..8).for_each(|_| account.waited(4, 195));
        account.bought(240, 5, 195);
        assert!(account.allows(2048));
        account.bought(240, 5, 195);
        assert!(!account.allows(2048) && account.allows(262_144));
        account.served(4);
        assert!(!account.allows(2048));
        account.served(4);
        assert!(account.allows(2048));
        (0..46).for_each(|_| account.served(4));
        assert!(!account.pays());
        account.served(4);
        assert!(account.pays(), "49 reads of 4 pages, each with the way to them");
    }
}
