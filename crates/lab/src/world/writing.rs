//! Programs that write, and who sends what they wrote to the device.

use super::reading::NO_FRAME_RETRY;
use super::sending::Request;
use super::{Event, READER, World};
use bowwave_core::{Extent, FileId, Input, Nanos, PageBit, PageCount, PageIndex};

/// Pages that one request of the writer-back carries at most: 1 MiB.
const WRITE_BACK_PAGES: u64 = 256;
/// Requests that write back at once.
const WRITE_BACK_REQUESTS: usize = 4;

impl World<'_> {
    pub(super) fn write_on(&mut self, who: u32, fd: u32, pages: Extent) -> bool {
        if self.cache.over_dirty_limit(self.config.dirty.limit_percent) {
            self.blocked_writers.push_back(who);
            self.write_back();
            return false;
        }
        let number = self.config.descriptors[fd as usize];
        let file = FileId(number.into());
        // A page that is being fetched is written when it has come.
        if let Some(coming) = self.cache.table(file).runs(PageBit::InFlight, pages).next() {
            self.waiters.add((number, coming.start), who);
            return false;
        }
        let stopped = self.cache.write(file, pages, READER);
        let end = stopped.unwrap_or(pages.end());
        if let Some(ledger) = &mut self.ledger {
            (pages.start.0..end.0).for_each(|page| ledger.wrote((number, PageIndex(page))));
        }
        self.dirty.extend((pages.start.0..end.0).map(|page| (number, PageIndex(page))));
        self.after_submission();
        if self.over_background() {
            self.write_back();
        }
        if let Some(page) = stopped {
            self.running[who as usize].writing = Some((fd, Extent::between(page, pages.end())));
            self.write_back();
            self.at(self.now + NO_FRAME_RETRY, Event::Resume(who));
            return false;
        }
        self.tell_wave(Input::Present { file, pages });
        let cpu = Nanos(self.config.cpu.call_ns + self.config.cpu.page_ns * pages.count.0);
        let running = &mut self.running[who as usize];
        running.writing = None;
        let end = self.now + cpu;
        running.outcome.wrote(pages.count, end);
        self.outcome.elapsed = self.outcome.elapsed.max(end);
        self.at(end, Event::Resume(who));
        false
    }

    /// Writes all that is dirty, and plays until that is done: returns when that is. For a world whose programs have ended.
    pub fn sync(&mut self) -> Nanos {
        self.write_back();
        while self.step() {
            self.write_back();
        }
        self.now
    }

    /// A write is done: its pages are clean, but for those that were written again meanwhile. Or it has failed, and all of
    /// them are to be written still.
    pub(super) fn written_back(&mut self, id: u64, request: &Request, stored: bool) {
        self.writing_back -= 1;
        if let Some(ledger) = &mut self.ledger {
            ledger.written_back(id, stored);
        }
        for page in request.pages.start.0..request.pages.end().0 {
            let page = PageIndex(page);
            self.leaving.remove(&(request.file, page));
            if !stored {
                self.dirty.insert((request.file, page));
            } else if !self.dirty.contains(&(request.file, page)) {
                self.cache.cleaned(FileId(request.file.into()), Extent { start: page, count: PageCount(1) });
            }
        }
    }

    pub(super) fn over_background(&self) -> bool {
        let memory = self.cache.capacity().0.max(1);
        self.cache.dirty().0 * 100 > memory * self.config.dirty.background_percent
    }

    /// Writes runs of dirty pages, in the order of files and pages, a few requests at a time.
    pub(super) fn write_back(&mut self) {
        while self.writing_back < WRITE_BACK_REQUESTS {
            let free = |page: &&(u32, PageIndex)| !self.leaving.contains(page);
            let next =
                self.dirty.range(self.write_cursor..).find(free).or_else(|| self.dirty.iter().find(free));
            let Some((number, start)) = next.copied() else { return };
            let mut count = 0;
            while count < WRITE_BACK_PAGES
                && !self.leaving.contains(&(number, start + PageCount(count)))
                && self.dirty.remove(&(number, start + PageCount(count)))
            {
                self.leaving.insert((number, start + PageCount(count)));
                count += 1;
            }
            let pages = Extent { start, count: PageCount(count) };
            self.write_cursor = (number, pages.end());
            self.writing_back += 1;
            let id = self.request(number, pages, None, u32::MAX - 1, true);
            if let Some(ledger) = &mut self.ledger {
                let all = (pages.start.0..pages.end().0).map(|page| (number, PageIndex(page)));
                ledger.sent(id, all);
            }
        }
    }
}
