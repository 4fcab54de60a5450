//! What came of a file's pages: who brought them, and whether anybody read them. The line at the end of a run adds these up.
//!
//! A page is brought once each time it comes into the cache, by the agent's fetch or by a read of the program's own. A read of
//! 8 MiB begins before any of it is there, and the agent fetches most of it while it goes on (R14): only what is not there by
//! any fetch when the read returns was brought by the read itself.
//!
//! ```text
//!   read [0,2048) begins
//!   agent fetches [32,2048)   fetches [32,2048)     2016 fetched
//!   read returns, slow        brings [0,2048)       32 missed: the rest was fetched
//!   it is read again          brings [0,2048)       0 missed: they were there
//!   memory was short          lacks [0,64)          they are gone, as a look at the cache tells
//!   it is read again          brings [0,2048)       64 missed
//! ```

use bowwave_core::{Extent, PAGE_SIZE, PageBit, PageCount, PageIndex, PageTable};

/// Pages of one file.
pub(super) struct Account {
    /// Present: brought by somebody, or found there. Ahead: fetched and not read yet. Used: read.
    pages: PageTable,
    /// Fetched by the agent.
    pub(super) fetched: u64,
    /// Brought by reads of the program's own.
    pub(super) missed: u64,
    /// Fetched, and gone before anybody read them.
    pub(super) lost: u64,
}

impl Account {
    /// Of a file of so many bytes.
    pub(super) fn new(size: u64) -> Self {
        let pages = PageTable::new(PageIndex(size.div_ceil(PAGE_SIZE)));
        Self { pages, fetched: 0, missed: 0, lost: 0 }
    }

    pub(super) fn resize(&mut self, size: u64) {
        self.pages.set_end_of_file(PageIndex(size.div_ceil(PAGE_SIZE)));
    }

    /// These pages are not there any more.
    pub(super) fn lacks(&mut self, pages: Extent) {
        self.pages.clear(PageBit::Present, pages);
        self.lost += self.pages.clear(PageBit::Ahead, pages).0;
    }

    /// These pages were there when they were looked at.
    pub(super) fn finds(&mut self, pages: Extent) {
        self.pages.set(PageBit::Present, pages);
    }

    /// The agent fetches these pages, which were not there when it looked.
    pub(super) fn fetches(&mut self, pages: Extent) {
        self.fetched += pages.count.0;
        self.lacks(pages);
        self.pages.set(PageBit::Present, pages);
        let mut at = pages.start;
        let used: Vec<Extent> = self.pages.runs(PageBit::Used, pages).collect();
        for used in used.into_iter().chain([Extent::between(pages.end(), pages.end())]) {
            self.pages.set(PageBit::Ahead, Extent::between(at, used.start));
            at = used.end();
        }
    }

    /// What is just fetched, nobody could say whether it was there, had been there all the time.
    pub(super) fn was_there(&mut self, pages: Extent) {
        self.fetched = self.fetched.saturating_sub(pages.count.0);
        self.pages.clear(PageBit::Ahead, pages);
    }

    /// The program's read of these pages has waited: it brought what nobody else had.
    pub(super) fn brings(&mut self, pages: Extent) {
        self.missed += self.pages.set(PageBit::Present, pages).0;
    }

    /// These pages were read.
    pub(super) fn uses(&mut self, pages: Extent) {
        self.pages.set(PageBit::Used, pages);
        self.pages.clear(PageBit::Ahead, pages);
    }

    pub(super) fn is_used(&self, page: PageIndex) -> bool {
        self.pages.has(PageBit::Used, page)
    }

    /// How many of these pages were read.
    pub(super) fn used_of(&self, pages: Extent) -> PageCount {
        self.pages.count(PageBit::Used, pages)
    }

    /// Different pages read.
    pub(super) fn used(&self) -> u64 {
        self.used_of(Extent::new(0, u64::MAX)).0
    }

    /// Whether some of these pages were fetched and not read: they are not fetched again, unless they are lost.
    pub(super) fn awaits(&self, pages: Extent) -> bool {
        self.pages.count(PageBit::Ahead, pages).0 > 0
    }

    /// Pages fetched that nobody read.
    pub(super) fn in_vain(&self) -> u64 {
        self.lost + self.pages.count(PageBit::Ahead, Extent::new(0, u64::MAX)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account::new(4096 * PAGE_SIZE)
    }

    /// The worked example.
    #[test]
    fn a_large_read_that_is_fetched_while_it_goes_on_is_counted_once() {
        let mut account = account();
        let read = Extent::new(0, 2048);
        account.uses(read);
        account.fetches(Extent::new(32, 2016));
        account.brings(read);
        assert_eq!((account.fetched, account.missed), (2016, 32));
        account.brings(read);
        assert_eq!((account.fetched, account.missed), (2016, 32));
        account.lacks(Extent::new(0, 64));
        account.brings(read);
        assert_eq!((account.fetched, account.missed, account.used(), account.in_vain()), (2016, 96, 2048, 0));
    }

    #[test]
    fn what_is_found_is_nobodys_until_it_is_gone() {
        let mut account = account();
        account.finds(Extent::new(0, 8));
        account.brings(Extent::new(0, 8));
        assert_eq!(account.missed, 0);
        account.lacks(Extent::new(0, 8));
        account.brings(Extent::new(0, 8));
        assert_eq!(account.missed, 8);
    }

    #[test]
    fn what_is_lost_unread_and_fetched_again_was_in_vain_once() {
        let mut account = account();
        account.fetches(Extent::new(0, 64));
        account.fetches(Extent::new(32, 32));
        assert_eq!((account.fetched, account.in_vain()), (96, 96));
        account.uses(Extent::new(0, 64));
        account.fetches(Extent::new(0, 16));
        assert_eq!((account.fetched, account.in_vain()), (112, 32), "what was read once is not in vain");
    }
}
