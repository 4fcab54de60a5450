//! Programs that read: page by page through the cache, until one is not there.
//!
//! ```text
//!   [4,8)      page 4       there             used, the next
//!              page 5       absent            an era's policy is asked, and he looks again; still absent: he fetches it himself
//!                           in flight         the read waits: it goes on with this page when that has come
//!              page 6       there, marked     the policy is asked, the page used
//!              no frame     for what he fetches: tried again after a millisecond
//! ```
//!
//! `wave` hears of the read when it begins, and of the wait when it is done.

use super::brain::WaveBrain;
use super::{Brain, Event, READER, World};
use bowwave_core::{AskKind, Extent, FileId, Input, Nanos, PageCount, PageIndex, Touch};

/// A reader that finds no frame for its page tries again after this: everything is in flight or dirty.
pub(super) const NO_FRAME_RETRY: Nanos = Nanos::from_ms(1);
/// A read that took longer than this waited.
const WAITED: Nanos = Nanos::from_us(5);

/// A read on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) fd: u32,
    request: Extent,
    pub(super) end: PageIndex,
    pub(super) at: PageIndex,
    began: Nanos,
    cpu: Nanos,
    pub(super) waited: bool,
    mapped: bool,
    /// The page that the policy was last told of.
    told: Option<PageIndex>,
}

impl Reading {
    /// Pages of the request from here on.
    fn left(&self) -> PageCount {
        self.request.end().since(self.at)
    }
}

impl World<'_> {
    /// A read begins: of `pages`, `transfer` of them; what lies behind the end of the file is not asked for.
    pub(super) fn begin_read(&mut self, who: u32, fd: u32, pages: Extent, transfer: PageCount, mapped: bool) {
        let number = self.config.descriptors[fd as usize];
        let all = Extent::new(0, self.config.files[number as usize].pages);
        let request = pages.intersection(all);
        let end = (request.start + transfer).min(request.end());
        self.running[who as usize].reading = Some(Reading {
            fd,
            request,
            end,
            at: request.start,
            began: self.now,
            cpu: Nanos(self.config.cpu.call_ns),
            waited: false,
            mapped,
            told: None,
        });
        if self.wave.is_some() {
            // The reader's own request goes first, then the brain hears of it.
            let file = FileId(number.into());
            let own = Extent::between(request.start, end);
            let reader_max = self.wave.as_ref().map_or(PageCount(0), WaveBrain::reader_max);
            let first = Extent { count: own.count.min(reader_max), ..own };
            if self.cache.table(file).resident(first) < first.count {
                self.fetch_own(number, first, who);
            }
            self.tell_wave(Input::Read { file, pages: own, actor: who });
            self.serve_wave();
        }
    }

    /// Goes on with a read; false if it waits, or is done: it is called again then.
    pub(super) fn read_on(&mut self, who: u32) -> bool {
        let Some(mut r) = self.running[who as usize].reading else { return true };
        self.starved.remove(&who);
        let number = self.config.descriptors[r.fd as usize];
        while r.at < r.end {
            self.tell_of_read(who, &mut r);
            let Some(touch) = self.look(who, &mut r, number) else {
                self.running[who as usize].reading = Some(r);
                self.starved.insert(who);
                self.at(self.now + NO_FRAME_RETRY, Event::Resume(who));
                return false;
            };
            // The reader holds its page from here on, whatever the mark has fetched.
            if let Touch::Present { .. } = touch {
                self.judge_page(number, r.at);
            }
            self.meet_mark(who, &mut r, FileId(number.into()));
            let Touch::Present { ahead, owner } = touch else {
                r.waited = true;
                self.waiters.add((number, r.at), who);
                self.running[who as usize].reading = Some(r);
                return false;
            };
            if ahead {
                self.used_ahead(owner);
            }
            if r.mapped {
                self.mapped_hit(r.fd, r.waited);
            }
            r.cpu += Nanos(self.config.cpu.page_ns);
            r.at = r.at + PageCount(1);
        }
        self.read_done(who, r, number);
        false
    }

    /// Policies that hear of each read are asked at it, once a page.
    fn tell_of_read(&mut self, who: u32, r: &mut Reading) {
        let hears = self.wave.is_none() && self.open[r.fd as usize].hears_reads;
        if hears && !r.mapped && r.told != Some(r.at) {
            r.told = Some(r.at);
            self.ask(who, r.fd, AskKind::Read, r.at, r.left(), r.mapped);
            r.cpu += Nanos(self.config.cpu.ask_ns);
        }
    }

    /// What a reader finds at the page that it has come to: if nothing, an era's policy is asked, and what nobody fetches the reader does. `None` if
    /// there is no frame for it.
    fn look(&mut self, who: u32, r: &mut Reading, number: u32) -> Option<Touch> {
        let file = FileId(number.into());
        self.outcome.cost.looks += 1;
        r.cpu += Nanos(self.config.cpu.look_ns);
        let mut touch = self.come_to(r, file);
        if touch == Touch::Absent && self.wave.is_none() {
            let kind = if r.mapped { AskKind::Fault } else { AskKind::Miss };
            self.ask(who, r.fd, kind, r.at, r.left(), r.mapped);
            r.cpu += Nanos(self.config.cpu.ask_ns + self.config.cpu.look_ns);
            self.outcome.cost.looks += 1;
            touch = self.come_to(r, file);
        }
        if touch != Touch::Absent {
            return Some(touch);
        }
        let count = self.wave.as_ref().map_or(1, |wave| r.end.since(r.at).0.min(wave.reader_max().0));
        let own = Extent { start: r.at, count: PageCount(count) };
        self.fetch_own(number, own, who).then_some(Touch::InFlight)
    }

    /// An era's policy is asked where the reader meets a mark.
    fn meet_mark(&mut self, who: u32, r: &mut Reading, file: FileId) {
        if self.wave.is_none() && self.cache.take_mark(file, r.at) {
            let left = if r.mapped { self.era_max() } else { r.left() };
            self.ask(who, r.fd, AskKind::Mark, r.at, left, r.mapped);
            r.cpu += Nanos(self.config.cpu.ask_ns);
        }
    }

    /// A page that was fetched ahead is used.
    fn used_ahead(&mut self, owner: u32) {
        let pattern = self.owners[owner as usize].pattern;
        self.outcome.stats.used(pattern, PageCount(1));
        self.outcome.pages_used_ahead += u64::from(owner != READER);
        self.outcome.unread -= u64::from(owner != READER);
    }

    /// What a reader finds at the page that he has come to.
    fn come_to(&mut self, r: &Reading, file: FileId) -> Touch {
        let again = !r.mapped && r.at == r.request.start && self.ended_in[r.fd as usize] == Some(r.at);
        if again { self.cache.touch_on(file, r.at) } else { self.cache.touch(file, r.at) }
    }

    fn read_done(&mut self, who: u32, r: Reading, number: u32) {
        let pages = Extent::between(r.request.start, r.end);
        let took = self.now.since(r.began);
        self.running[who as usize].reading = None;
        if !r.mapped && !pages.is_empty() {
            self.ended_in[r.fd as usize] = Some(PageIndex(r.end.0 - 1));
        }
        if self.wave.is_none() && !r.mapped {
            self.open[r.fd as usize].read_done(pages, r.end.byte());
        }
        let waited = took > WAITED;
        if waited {
            let (file, ended) = (FileId(number.into()), self.now);
            self.tell_wave(Input::Waited { file, pages, actor: who, took, ended });
            self.serve_wave();
        }
        let running = &mut self.running[who as usize];
        let end = self.now + r.cpu;
        running.outcome.read(pages.count, r.began, end, took);
        self.outcome.read(pages.count, self.now, waited, took, self.config.bucket);
        self.outcome.cost.cpu_ns += r.cpu.0;
        self.outcome.elapsed = self.outcome.elapsed.max(end);
        self.at(end, Event::Resume(who));
    }

    fn era_max(&self) -> PageCount {
        match &self.config.brain {
            Brain::Era(_, max) => *max,
            Brain::Wave(_) => PageCount(0),
        }
    }

    fn mapped_hit(&mut self, fd: u32, waited: bool) {
        if let Some(open) = self.open.get_mut(fd as usize)
            && !waited
        {
            open.state().mapped_hit();
        }
    }
}
