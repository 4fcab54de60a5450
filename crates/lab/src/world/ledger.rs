//! Which version of each page lies in memory, on the device, and which was written last: a world holds no byte, and this is how
//! it is known that a reader got the right one.
//!
//! ```text
//! write p7          latest 1   memory 1   device 0
//! written back      latest 1   memory 1   device 1      the version that was sent, even if p7 was written again meanwhile
//! evicted           latest 1   memory -   device 1
//! fetched, read     latest 1   memory 1   -> right
//! ```
//!
//! A page that nobody wrote has version 0. Filling a page that was written while its fetch was under way changes nothing: the
//! writer's version stays. O(log pages) a page.

use bowwave_core::PageIndex;
use std::collections::BTreeMap;

type Page = (u32, PageIndex);

/// The versions.
#[derive(Default)]
pub(super) struct Ledger {
    writes: u64,
    latest: BTreeMap<Page, u64>,
    memory: BTreeMap<Page, u64>,
    device: BTreeMap<Page, u64>,
    /// What each write on its way carries.
    sent: BTreeMap<u64, Vec<(Page, u64)>>,
}

impl Ledger {
    pub(super) fn wrote(&mut self, page: Page) {
        self.writes += 1;
        self.latest.insert(page, self.writes);
        self.memory.insert(page, self.writes);
    }

    pub(super) fn arrived(&mut self, page: Page) {
        let version = self.device.get(&page).copied().unwrap_or(0);
        self.memory.entry(page).or_insert(version);
    }

    pub(super) fn gone(&mut self, page: Page) {
        self.memory.remove(&page);
    }

    /// A write of these pages leaves for the device.
    pub(super) fn sent(&mut self, request: u64, pages: impl Iterator<Item = Page>) {
        let carried = pages.filter_map(|page| Some((page, *self.memory.get(&page)?)));
        self.sent.insert(request, carried.collect());
    }

    /// It has come so far, or not at all.
    pub(super) fn written_back(&mut self, request: u64, stored: bool) {
        let carried = self.sent.remove(&request).unwrap_or_default();
        if stored {
            self.device.extend(carried);
        }
    }

    /// What is wrong with what a reader of `page` gets.
    pub(super) fn wrong(&self, page: Page) -> Option<String> {
        let wanted = self.latest.get(&page).copied().unwrap_or(0);
        match self.memory.get(&page) {
            Some(&version) if version == wanted => None,
            Some(version) => Some(format!("a reader got version {version} of {page:?}, not {wanted}")),
            None => Some(format!("a reader got {page:?}, which nobody brought")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example, and a write between sending and storing.
    #[test]
    fn what_was_sent_is_what_is_stored() {
        let (mut ledger, page) = (Ledger::default(), (0, PageIndex(7)));
        ledger.wrote(page);
        ledger.sent(1, [page].into_iter());
        ledger.wrote(page);
        ledger.written_back(1, true);
        assert_eq!(ledger.wrong(page), None);
        ledger.gone(page);
        ledger.arrived(page);
        assert!(ledger.wrong(page).unwrap().contains("version 1"), "the second write was never written back");
        ledger.gone(page);
        assert!(ledger.wrong(page).unwrap().contains("nobody brought"));
    }
}
