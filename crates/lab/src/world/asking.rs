//! Asks who decides, and does what he says: what is fetched gets frames and is sent, and what lost its frame is told.
//!
//! ```text
//!   a policy of an era    asked at a read, a miss, a fault, a mark     its windows are sent at once
//!   `wave`                told of everything                           its windows are taken up after each event, until it wants no more
//! ```

use super::brain::Wanted;
use super::{Owner, READER, World};
use bowwave_core::{
    AskKind, Dev, Evicted, Extent, FileId, Hold, Input, PageCount, PageIndex, Pattern, Submission,
    TraceRecord, Window,
};

/// Pages that stay in one search for a frame because their reader still comes, as in the library.
const STAY_MAX: usize = 2048;

impl World<'_> {
    /// An era's policy is asked about `page`, of which `count` are wanted from there on, and what it decides is sent.
    pub(super) fn ask(
        &mut self,
        who: u32,
        fd: u32,
        kind: AskKind,
        page: PageIndex,
        count: PageCount,
        mapped: bool,
    ) {
        let number = self.config.descriptors[fd as usize];
        let file = FileId(number.into());
        self.outcome.cost.asks += 1;
        let congested = self.config.congested_from.is_some_and(|from| self.on_the_way.len() >= from);
        self.open[fd as usize].state().congested = congested;
        let mut decisions = std::mem::take(&mut self.decisions);
        let table = self.cache.table(file);
        let retain = self.open[fd as usize].ask(table, kind, page, count, &mut decisions);
        if !retain.is_empty() {
            self.cache.retain(file, retain);
        }
        for decision in decisions.drain(..) {
            self.outcome.cost.looks += decision.window.size.0;
            let owner = self.owners.len() as u32;
            let submission = self.cache.submit(file, decision.window, owner);
            if submission.actual.0 > 0 {
                self.owners.push(Owner { pattern: decision.pattern });
                self.count_unread(submission.actual);
            }
            let record = TraceRecord {
                dev: Dev::default(),
                ino: u64::from(number),
                request: Extent { start: page, count },
                mapped,
                pattern: decision.pattern,
                window: decision.window,
                actual: submission.actual,
                why: decision.why,
                time: self.now,
                file,
                stream: u64::from(fd),
            };
            let end = PageIndex(self.config.files[number as usize].pages);
            self.outcome.stats.submitted(&record, end);
            if self.config.trace {
                self.outcome.trace.push(record);
            }
            self.send(number, &submission, None, who);
        }
        self.decisions = decisions;
        self.after_submission();
    }

    /// The reader fetches what nobody else does; false if there is no frame.
    pub(super) fn fetch_own(&mut self, number: u32, pages: Extent, who: u32) -> bool {
        let window = Window { start: pages.start, size: pages.count, async_size: PageCount(0) };
        let submission = self.submit(FileId(number.into()), window, READER);
        self.outcome.pages_by_reader += submission.actual.0;
        self.send(number, &submission, None, who);
        self.after_submission();
        submission.actual.0 > 0
    }

    /// Gives a window its frames. Where what was read goes first, a page that a reader still comes to stays, as in the library.
    fn submit(&mut self, file: FileId, window: Window, owner: u32) -> Submission {
        let Some(wave) = self.wave.as_ref().filter(|wave| wave.read_goes_first()) else {
            return self.cache.submit(file, window, owner);
        };
        let mut stayed = 0;
        self.cache.submit_unless(file, window, owner, &mut |file, page, was_read| {
            let stays = !was_read && stayed < STAY_MAX && wave.awaits(file, page);
            stayed += usize::from(stays);
            if stays { Hold::Stay } else { Hold::Go }
        })
    }

    /// `wave` hears of something, if it decides here.
    pub(super) fn tell_wave(&mut self, input: Input) {
        if let Some(wave) = &mut self.wave {
            wave.tell(self.now, input);
        }
    }

    /// Sends what `wave` wants.
    pub(super) fn serve_wave(&mut self) {
        loop {
            self.let_go();
            let Some(wave) = self.wave.as_mut().filter(|_| !self.waking) else { return };
            let wanted = wave.wanted(self.now);
            if wanted.is_empty() {
                return;
            }
            wanted.into_iter().for_each(|want| self.fetch_wanted(want));
        }
    }

    /// A window of `wave` gets its frames and is sent; where a reader waits for a frame, nothing that nobody waits for may take one.
    fn fetch_wanted(&mut self, want: Wanted) {
        if !want.demand && !self.starved.is_empty() {
            self.tell_wave(Input::Failed { fetch: want.fetch });
            return;
        }
        let window = Window { start: want.pages.start, size: want.pages.count, async_size: PageCount(0) };
        let missing = want.pages.count - self.cache.table(want.file).resident(want.pages);
        let owner = self.owners.len() as u32;
        let submission = self.submit(want.file, window, owner);
        if submission.actual.0 > 0 {
            self.judge_order(want.file.0 as u32, want.pages);
            self.owners.push(Owner { pattern: Pattern::Subsequent });
            self.count_unread(submission.actual);
            self.send(want.file.0 as u32, &submission, Some(want.fetch), u32::MAX);
        } else if missing.0 == 0 {
            self.tell_wave(Input::Skipped { fetch: want.fetch });
        } else {
            self.tell_wave(Input::Failed { fetch: want.fetch });
        }
        if submission.actual < missing && submission.actual.0 > 0 {
            let end = submission.fetch.last().map_or(want.pages.start, |part| part.end());
            let rest = Extent::between(end, want.pages.end());
            self.frameless.insert(want.fetch, (want.file, rest));
        }
        self.after_submission();
    }

    /// What `wave` gives up makes room.
    pub(super) fn let_go(&mut self) {
        let Some(wave) = self.wave.as_mut().filter(|_| !self.waking) else { return };
        let given_up: Vec<_> = std::iter::from_fn(|| wave.given_up()).collect();
        if !given_up.is_empty() {
            given_up.into_iter().for_each(|(file, pages)| self.cache.let_go(file, pages));
            self.after_submission();
        }
    }

    /// Reclaim, and tell of what was lost.
    pub(super) fn after_submission(&mut self) {
        self.cache.reclaim_in_background();
        let evicted = self.cache.take_evicted();
        evicted.iter().for_each(|gone| self.count_lost(gone));
        if self.wave.is_some() {
            for (file, pages) in Evicted::runs(&evicted) {
                self.tell_wave(Input::Dropped { file, pages });
            }
        }
        if !self.cache.take_to_write().is_empty() {
            self.write_back();
        }
    }

    /// Pages have lost their frames.
    fn count_lost(&mut self, gone: &Evicted) {
        // A page may have lost its frame and have been written anew in one call.
        if let Some(ledger) = &mut self.ledger {
            let table = self.cache.table(gone.file);
            let pages = (gone.pages.start.0..gone.pages.end().0).map(PageIndex);
            pages
                .filter(|&page| !table.state(page).present)
                .for_each(|page| ledger.gone((gone.file.0 as u32, page)));
        }
        if gone.unread {
            let pattern = self.owners[gone.owner as usize].pattern;
            self.outcome.stats.evicted(pattern, gone.pages.count);
            let by_others = if gone.owner == READER { 0 } else { gone.pages.count.0 };
            self.outcome.pages_lost_unread += by_others;
            self.outcome.unread -= by_others;
        }
    }

    /// What `wave` decided, for who wants to see all of it.
    pub(super) fn keep_decisions(&mut self) {
        let Some(wave) = &mut self.wave else { return };
        let explained: Vec<_> = wave.decisions().collect();
        if self.config.trace {
            self.outcome.explained.extend(explained);
        }
    }
}
