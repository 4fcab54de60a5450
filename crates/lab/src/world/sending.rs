//! Requests to the device and their answers: who goes on when one has come.

use super::faults::Answer;
use super::machine::Sent;
use super::{Event, Request, World};
use bowwave_core::{Extent, FetchId, FileId, Input, Nanos, PageCount, Submission};

impl World<'_> {
    /// Pages that a decision has fetched and that are neither read nor lost.
    pub(super) fn count_unread(&mut self, pages: PageCount) {
        self.outcome.unread += pages.0;
        self.outcome.unread_max = self.outcome.unread_max.max(self.outcome.unread);
    }

    pub(super) fn send(&mut self, number: u32, submission: &Submission, fetch: Option<FetchId>, who: u32) {
        if submission.fetch.is_empty() {
            return;
        }
        let max = self.config.request_max.0.max(1);
        let pieces: Vec<Extent> = submission
            .fetch
            .iter()
            .flat_map(|part| {
                (0..part.count.0.div_ceil(max)).map(move |i| {
                    let start = part.start + PageCount(i * max);
                    Extent::between(start, part.end().min(start + PageCount(max)))
                })
            })
            .collect();
        let last = pieces.len().saturating_sub(1);
        for (i, pages) in pieces.into_iter().enumerate() {
            // A fetch has arrived when its last piece has.
            self.request(number, pages, fetch.filter(|_| i == last), who, false);
        }
    }

    pub(super) fn request(
        &mut self,
        number: u32,
        pages: Extent,
        fetch: Option<FetchId>,
        who: u32,
        write: bool,
    ) {
        let id = self.next_request;
        self.next_request += 1;
        let address = self.config.files[number as usize].address + pages.start.byte();
        let bytes = pages.count.bytes().0;
        self.machine.submit(self.now, Sent { id, stream: who, address, bytes });
        self.requests.insert(id, Request { file: number, pages, fetch, write, sent: self.now });
        self.outcome.request(pages.count, write, self.now, self.config.bucket);
        self.plan_machine();
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
        let mut woken = Vec::new();
        while let Some(id) = self.machine.complete(self.now) {
            match self.draws.late(self.now) {
                Nanos(0) => woken.extend(self.answered(id)),
                late => self.at(self.now + late, Event::Late(id)),
            }
        }
        self.went_on(woken);
        self.plan_machine();
    }

    /// A request is done, or has failed: who waited for its pages.
    pub(super) fn answered(&mut self, id: u64) -> Vec<u32> {
        let Some(request) = self.requests.remove(&id) else { return Vec::new() };
        let (file, answer) = (FileId(request.file.into()), self.draws.answer());
        if request.write {
            self.written_back(id, &request, answer == Answer::Whole);
            return Vec::new();
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
        let (from, to) = ((request.file, request.pages.start), (request.file, request.pages.end()));
        let keys: Vec<_> = self.waiters.range(from..to).map(|(key, _)| *key).collect();
        let woken = keys.into_iter().flat_map(|key| self.waiters.remove(&key).unwrap_or_default()).collect();
        if let Some(fetch) = request.fetch {
            self.tell_wave(if arrived.0 > 0 { Input::Arrived { fetch } } else { Input::Failed { fetch } });
            if let Some((file, pages)) = self.frameless.remove(&fetch) {
                self.tell_wave(Input::Dropped { file, pages });
            }
        }
        if !lost.is_empty() {
            self.tell_wave(Input::Dropped { file, pages: lost });
        }
        woken
    }

    /// Programs that waited go on, and whoever writes back or waits to write.
    pub(super) fn went_on(&mut self, woken: Vec<u32>) {
        // Those whose page did not come ask for it again before the others go on, and have something fetched ahead.
        let (came, lost): (Vec<u32>, Vec<u32>) = woken.into_iter().partition(|&who| self.has_come(who));
        lost.into_iter().for_each(|who| self.resume(who));
        // Whoever waited takes its page now; what is fetched ahead, which may take the frame of a page that one of them has
        // not come to yet, is sent when all of them have gone on.
        self.waking = true;
        came.into_iter().for_each(|who| self.resume(who));
        self.waking = false;
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
