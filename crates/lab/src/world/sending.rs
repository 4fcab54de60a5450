//! Requests to the device and their answers: who goes on when one has come.

use super::faults::Answer;
use super::machine::Sent;
use super::{Event, World};
use bowwave_core::{Extent, FetchId, FileId, Input, Nanos, PageCount, PageIndex, Submission};
use std::collections::VecDeque;

pub(super) struct Request {
    pub(super) file: u32,
    pub(super) pages: Extent,
    fetch: Option<FetchId>,
    write: bool,
    sent: Nanos,
}

/// Requests on their way, by number: they come back about in the order in which they were sent.
#[derive(Default)]
pub(super) struct OnTheWay {
    /// The number of the first in line.
    first: u64,
    line: VecDeque<Option<Request>>,
    len: usize,
}

impl OnTheWay {
    /// One more; its number.
    fn add(&mut self, request: Request) -> u64 {
        self.line.push_back(Some(request));
        self.len += 1;
        self.first + self.line.len() as u64 - 1
    }

    /// Request number `id` is back, for the first time.
    fn take(&mut self, id: u64) -> Option<Request> {
        let request = self.line.get_mut(id.checked_sub(self.first)? as usize)?.take()?;
        self.len -= 1;
        while let Some(None) = self.line.front() {
            self.line.pop_front();
            self.first += 1;
        }
        Some(request)
    }

    /// How many are on their way.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Programs that wait, in the order of their pages, those that wait for one page in the order in which they came to it. A program waits
/// for one page at a time, so they are few.
#[derive(Default)]
pub(super) struct Waiters {
    all: Vec<((u32, PageIndex), u32)>,
}

impl Waiters {
    /// Program `who` waits for `page`.
    pub(super) fn add(&mut self, page: (u32, PageIndex), who: u32) {
        let at = self.all.partition_point(|&(other, _)| other <= page);
        self.all.insert(at, (page, who));
    }

    /// Those that wait for a page of a file no longer do.
    fn take(&mut self, file: u32, pages: Extent) -> impl Iterator<Item = u32> + '_ {
        let before = |page| self.all.partition_point(|&(other, _)| other < (file, page));
        let those = before(pages.start)..before(pages.end());
        self.all.drain(those).map(|(_, who)| who)
    }
}

impl World<'_> {
    /// Pages that a decision has fetched and that are neither read nor lost.
    pub(super) fn count_unread(&mut self, pages: PageCount) {
        self.outcome.unread += pages.0;
        self.outcome.unread_max = self.outcome.unread_max.max(self.outcome.unread);
    }

    pub(super) fn send(&mut self, number: u32, submission: &Submission, fetch: Option<FetchId>, who: u32) {
        let max = PageCount(self.config.request_max.0.max(1));
        let last = submission.fetch.last().map(|part| part.end());
        for part in &submission.fetch {
            let mut at = part.start;
            while at < part.end() {
                let pages = Extent::between(at, part.end().min(at + max));
                at = pages.end();
                // A fetch has arrived when its last piece has.
                self.request(number, pages, fetch.filter(|_| Some(at) == last), who, false);
            }
        }
    }

    /// Sends a request; its number.
    pub(super) fn request(
        &mut self,
        number: u32,
        pages: Extent,
        fetch: Option<FetchId>,
        who: u32,
        write: bool,
    ) -> u64 {
        let id = self.on_the_way.add(Request { file: number, pages, fetch, write, sent: self.now });
        let address = self.config.files[number as usize].address + pages.start.byte();
        let bytes = pages.count.bytes().0;
        self.machine.submit(self.now, Sent { id, stream: who, address, bytes });
        self.outcome.request(pages.count, write, self.now, self.config.bucket);
        self.plan_machine();
        id
    }

    pub(super) fn plan_machine(&mut self) {
        if let Some(when) = self.machine.next_event()
            && self.machine_planned.is_none_or(|planned| when < planned || planned <= self.now)
        {
            self.machine_planned = Some(when);
            self.at(when.max(self.now), Event::Machine);
        }
    }

    pub(super) fn machine_event(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        while let Some(id) = self.machine.complete(self.now) {
            match self.draws.late(self.now) {
                Nanos(0) => self.answered(id, &mut woken),
                late => self.at(self.now + late, Event::Late(id)),
            }
        }
        self.went_on(woken);
        self.plan_machine();
    }

    /// An answer that the device gave a while ago.
    pub(super) fn late_answer(&mut self, id: u64) {
        let mut woken = std::mem::take(&mut self.woken);
        self.answered(id, &mut woken);
        self.went_on(woken);
    }

    /// A request is done, or has failed: who waited for its pages joins `woken`.
    fn answered(&mut self, id: u64, woken: &mut Vec<u32>) {
        let Some(request) = self.on_the_way.take(id) else { return };
        let (file, answer) = (FileId(request.file.into()), self.draws.answer());
        if request.write {
            self.written_back(id, &request, answer == Answer::Whole);
            return;
        }
        self.outcome.answered(request.sent, self.now);
        let arrived = match answer {
            Answer::Whole => request.pages.count,
            Answer::Short => PageCount(request.pages.count.0 / 2),
            Answer::Failed => PageCount(0),
        };
        let got = Extent { count: arrived, ..request.pages };
        let lost = Extent::between(got.end(), request.pages.end());
        self.cache.arrived(file, got);
        self.filled(request.file, got);
        if !lost.is_empty() {
            self.cache.failed(file, lost);
            self.emptied(request.file, lost);
        }
        woken.extend(self.waiters.take(request.file, request.pages));
        if let Some(fetch) = request.fetch {
            self.tell_wave(if arrived.0 > 0 { Input::Arrived { fetch } } else { Input::Failed { fetch } });
            if let Some((file, pages)) = self.frameless.remove(&fetch) {
                self.tell_wave(Input::Dropped { file, pages });
            }
        }
        if !lost.is_empty() {
            self.tell_wave(Input::Dropped { file, pages: lost });
        }
    }

    /// Programs that waited go on, and whoever writes back or waits to write.
    fn went_on(&mut self, mut woken: Vec<u32>) {
        // Those whose page did not come ask for it again before the others go on, and have something fetched ahead.
        let lost: Vec<u32> = woken.iter().copied().filter(|&who| !self.has_come(who)).collect();
        woken.retain(|who| !lost.contains(who));
        lost.into_iter().for_each(|who| self.resume(who));
        // Whoever waited takes its page now; what is fetched ahead, which may take the frame of a page that one of them has
        // not come to yet, is sent when all of them have gone on.
        self.waking = true;
        woken.drain(..).for_each(|who| self.resume(who));
        self.waking = false;
        self.woken = woken;
        self.serve_wave();
        if !self.blocked_writers.is_empty() || self.over_background() {
            self.write_back();
        }
        if !self.cache.over_dirty_limit(self.config.dirty.limit_percent) {
            while let Some(who) = self.blocked_writers.pop_front() {
                self.at(self.now, Event::Resume(who));
            }
        }
    }

    /// Whether the page is there that this program waits for.
    pub(super) fn has_come(&self, who: u32) -> bool {
        self.running[who as usize].reading.is_none_or(|r| {
            let number = self.config.descriptors[r.fd as usize];
            self.cache.table(FileId(number.into())).state(r.at).present
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_page_goes_on_in_the_order_of_pages_and_then_of_coming() {
        let mut waiters = Waiters::default();
        for (file, page, who) in [(0, 7, 3), (0, 5, 4), (0, 7, 1), (1, 5, 2), (0, 9, 0)] {
            waiters.add((file, PageIndex(page)), who);
        }
        assert_eq!(waiters.take(0, Extent::new(5, 4)).collect::<Vec<_>>(), [4, 3, 1]);
        assert_eq!(waiters.take(0, Extent::new(0, 9)).count(), 0);
        assert_eq!(waiters.take(0, Extent::new(0, 10)).collect::<Vec<_>>(), [0]);
        assert_eq!(waiters.all, [((1, PageIndex(5)), 2)]);
    }

    #[test]
    fn requests_come_back_in_any_order() {
        let request = |page| Request {
            file: 0,
            pages: Extent::new(page, 1),
            fetch: None,
            write: false,
            sent: Nanos(0),
        };
        let mut way = OnTheWay::default();
        let ids: Vec<u64> = (0..4).map(|page| way.add(request(page))).collect();
        let mut back = |id: u64| way.take(id).map(|request| (request.pages.start.0, way.len()));
        assert_eq!([1, 1, 0, 3].map(|i| back(ids[i])), [Some((1, 3)), None, Some((0, 2)), Some((3, 1))]);
        let id = way.add(request(9));
        assert_eq!((id, way.take(id).map(|request| request.pages.start.0), way.line.len()), (4, Some(9), 3));
        assert!(way.take(2).is_some() && way.line.is_empty() && way.take(0).is_none());
    }
}
