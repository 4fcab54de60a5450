//! What goes wrong with a world, and whether all is right in it.

use super::reading::Reading;
use super::{Event, World};
use bowwave_core::{Extent, FileId, Input, Nanos, PageBit, PageCount, PageIndex};

/// Pages that are taken together.
const TAKEN_PAGES: u64 = 16;

impl World<'_> {
    /// Others want memory for a while, or give it back.
    pub(super) fn squeeze(&mut self) {
        let Some((spell, permille)) = self.config.faults.squeeze else { return };
        self.squeezed = spell.holds(self.now) && self.running.iter().any(|running| !running.ended);
        let share = if self.squeezed { permille } else { 1000 };
        let shards = self.config.memory.shards.clone();
        for (shard, frames) in shards.into_iter().enumerate() {
            self.cache.resize(shard, PageCount((frames.0 * share / 1000).max(1)));
        }
        let bytes = self.cache.capacity().bytes();
        self.tell_wave(Input::Memory { bytes });
        self.after_submission();
        self.serve_wave();
        if self.running.iter().any(|running| !running.ended) {
            let within = self.now.0 % spell.every.0;
            let next = if within < spell.lasting.0 { spell.lasting.0 } else { spell.every.0 };
            self.at(Nanos(self.now.0 - within + next), Event::Squeeze);
        }
    }

    /// Somebody takes pages here and there, though there is room.
    pub(super) fn take(&mut self) {
        let Some((every, _)) = self.config.faults.taken else { return };
        for number in 0..self.config.files.len() {
            let file = FileId(number as u64);
            for at in (0..self.config.files[number].pages).step_by(TAKEN_PAGES as usize) {
                let pages = Extent::new(at, TAKEN_PAGES);
                if self.cache.table(file).count(PageBit::Present, pages).0 > 0 && self.draws.takes() {
                    self.cache.let_go(file, pages);
                }
            }
        }
        self.after_submission();
        self.serve_wave();
        if self.running.iter().any(|running| !running.ended) {
            self.at(self.now + every, Event::Take);
        }
    }

    /// These pages hold what the device had of them, if they are present.
    pub(super) fn filled(&mut self, file: u32, pages: Extent) {
        let Some(ledger) = &mut self.ledger else { return };
        let table = self.cache.table(FileId(file.into()));
        for run in table.runs(PageBit::Present, pages) {
            (run.start.0..run.end().0).for_each(|page| ledger.arrived((file, PageIndex(page))));
        }
    }

    /// Those of these pages that are no longer in memory hold nothing.
    pub(super) fn emptied(&mut self, file: u32, pages: Extent) {
        let Some(ledger) = &mut self.ledger else { return };
        for hole in self.cache.table(FileId(file.into())).holes(pages) {
            (hole.start.0..hole.end().0).for_each(|page| ledger.gone((file, PageIndex(page))));
        }
    }

    /// A reader holds this page: it must have been brought, and be no old version of it.
    pub(super) fn judge_page(&mut self, file: u32, page: PageIndex) {
        let wrong = self.ledger.as_ref().and_then(|ledger| ledger.wrong((file, page)));
        if let Some(wrong) = wrong {
            self.violation.get_or_insert(wrong);
        }
    }

    /// No fetch of `pages` may go ahead of a reader who waits for a page that nobody fetches, unless another is reading just those: the
    /// rest of his read is demand as well, and either of the two may have the next frame.
    pub(super) fn judge_order(&mut self, file: u32, pages: Extent) {
        if self.ledger.is_none() {
            return;
        }
        let read = |r: &Reading| {
            self.config.descriptors[r.fd as usize] == file && pages.start >= r.at && pages.end() <= r.end
        };
        if self.running.iter().any(|running| running.reading.as_ref().is_some_and(read)) {
            return;
        }
        for (who, running) in self.running.iter().enumerate() {
            let Some(r) = running.reading else { continue };
            let number = self.config.descriptors[r.fd as usize];
            let own = number == file && pages.contains(r.at);
            let state = self.cache.table(FileId(number.into())).state(r.at);
            if !own && r.waited && !state.present && !state.in_flight {
                self.violation.get_or_insert(format!(
                    "pages {pages} of file {file} were sent ahead of page {} of file {number}, for which program {who} waits",
                    r.at
                ));
            }
        }
    }
}
