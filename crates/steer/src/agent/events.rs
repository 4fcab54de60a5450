//! What programs tell, and what the brain hears of it: files met, reads before and after, advice, ends of processes.
//!
//! An event names a slot of the segment. The first of a file makes us open it (`/proc/PID/fd/FD`) or refuse it; the others
//! become inputs of the brain. A read is told with what was read quietly before it, so that the brain sees one history.

use std::sync::atomic::Ordering;

use bowwave_core::{
    Advice, Bytes, Extent, FileId, Input, Nanos, PAGE_SIZE, PageCount, PageIndex, Wave, is_wait,
};
use bowwave_wire::{ENDS, Event, FORKED, KERNEL_OFF, KERNEL_ON, Kind, ProcessId, STARTS};

use super::account::Account;
use super::{Held, State, THREADS_MAX, Told, raise_descriptor_limit};
use crate::files::{Descriptor, NO_FD, Origin, Refusal, bits_in, runs};

/// An event this old, and older than two latencies, comes too late.
const BEHIND_NS: u64 = 10_000_000;
/// So long we must have kept up before the kernel's heuristics are switched off again.
const KEPT_UP_NS: u64 = 250_000_000;
/// A place in the ring that is claimed and not published for so long is given away: its program was stopped or killed.
const STUCK_NS: u64 = 1_000_000;
/// The size of a file that is read past its end is looked at so often.
const REFRESH_NS: u64 = 10_000_000;
/// Pages looked at around a read of unknown pages that were there: 256 KiB, twice that next to it, up to 8 MiB (60 us).
const SAMPLE_MIN: u64 = 64;
const SAMPLE_MAX: u64 = 2048;
/// Where nothing is cached but what is read, the agent looks around at one read in so many.
const SAMPLES_SKIP_MAX: u32 = 32;
/// A read told so recently cannot have been served by a device yet: what is present was present before.
const FRESH_NS: u64 = 60_000;
/// A read told so long ago, of pages that are settled by now, was told before that was published: it is old news. A reader
/// of cached pages sends a thousand of these while the agent takes the first.
const STALE_NS: u64 = 200_000;
/// Pages of a read that are looked at one by one.
const JUDGED_MAX: u64 = 4096;

/// Pages that are fetched at once of what a program says it will need: 2 MiB, more than any program asks for of which it reads each page. The kernel
/// takes a window of such a call, so larger ones cost nothing, and libraries name all of a mapping of which few columns are read. Who reads on behind
/// them has a window like others.
const WILL_NEED_MAX: PageCount = PageCount(512);

impl State {
    pub(super) fn drain(&mut self, max: usize) {
        for _ in 0..max {
            let Some(event) = self.segment.pop() else {
                self.unstick();
                return;
            };
            let event = self.as_we_see_it(event);
            self.stuck = None;
            self.events += 1;
            self.vain = self.vain.saturating_add(1);
            self.take(&event);
        }
    }

    /// The event with its process by the number that we know it by: a program tells its own.
    fn as_we_see_it(&mut self, event: Event) -> Event {
        let news = (event.kind == Kind::Process).then_some(event.detail);
        if matches!(news, Some(STARTS | FORKED)) {
            self.who.forget(event.pid);
        }
        let mut find = |pid| self.who.find(&self.segment, pid);
        let offset = if news == Some(FORKED) { u64::from(find(event.offset as u32)) } else { event.offset };
        let seen = Event { pid: find(event.pid), offset, ..event };
        if news == Some(ENDS) {
            self.who.forget(event.pid);
        }
        seen
    }

    /// A place that is claimed and not published holds up everybody behind it.
    pub(super) fn unstick(&mut self) {
        if !self.segment.has_events() {
            self.stuck = None;
            return;
        }
        let now = self.now();
        let since = *self.stuck.get_or_insert(now);
        if now.since(since).0 > STUCK_NS {
            self.segment.skip_stuck();
            self.stuck = None;
        }
    }

    pub(super) fn take(&mut self, event: &Event) {
        let now = self.now();
        self.active = now;
        if event.kind == Kind::Process {
            return self.process(event);
        }
        if event.kind == Kind::Unmap {
            return self.unmap(event);
        }
        if event.kind == Kind::Closed {
            if self.files.contains_key(&event.file) {
                self.closed.insert(event.file);
            }
            return;
        }
        // What a program has mapped, and says that it needs, it needs later too.
        if !matches!(event.kind, Kind::Map | Kind::Advice) && self.is_behind(event, now) {
            return self.only_count(event, now);
        }
        if !self.meet(event, now) {
            return;
        }
        match event.kind {
            Kind::Read => self.read(event, now),
            Kind::Done | Kind::Surprise => self.done(event, now),
            Kind::Advice => self.advised(event, now),
            Kind::Map => self.map(event),
            Kind::Seen | Kind::Process | Kind::Unmap | Kind::Closed => {}
        }
    }

    /// Whether we have come too late to be of use to the read that the event tells of. Where readers keep every processor
    /// busy we get our share of it and no more; then the kernel's own heuristics, which need no agent, are switched on
    /// again until we have kept up for a while.
    pub(super) fn is_behind(&mut self, event: &Event, now: Nanos) -> bool {
        let told = Nanos(event.at_ns.saturating_sub(self.start_ns));
        let bearable = 2 * self.latency_min().unwrap_or_default().0;
        let behind = now.since(told).0 > bearable.max(BEHIND_NS) && self.begun;
        if behind {
            self.kept_up_since = now;
        }
        let hand_back = now.since(self.kept_up_since).0 < KEPT_UP_NS && self.kept_up_since > Nanos(0);
        if hand_back != self.handed_back {
            self.handed_back = hand_back;
            self.hand_backs += u64::from(hand_back);
            self.set_kernel(if hand_back { KERNEL_ON } else { KERNEL_OFF });
        }
        behind
    }

    /// What comes too late to be of use came to something all the same.
    fn only_count(&mut self, event: &Event, now: Nanos) {
        let is_read = matches!(event.kind, Kind::Read | Kind::Done | Kind::Surprise);
        if !is_read || !self.knows(event.file, event.generation) {
            return;
        }
        let pages = self.within(event, now);
        self.account_used(event.file, pages);
        if event.kind != Kind::Read && self.is_wait(event.file, pages, u64::from(event.waited_ns)) {
            self.account_brings(event.file, pages);
        }
    }

    /// Switches the kernel's heuristics for every file that we steer.
    pub(super) fn set_kernel(&self, kernel: u32) {
        if !self.options.kernel_off || self.options.dry_run {
            return;
        }
        for slot in self.files.keys().filter_map(|&slot| self.segment.file(slot)) {
            slot.kernel.store(kernel, Ordering::Relaxed);
        }
    }

    pub(super) fn process(&mut self, event: &Event) {
        match event.detail {
            STARTS => {
                self.processes += 1;
                self.outside.covers(event.pid, true);
                self.new_space(event.pid, None);
                // What was to be closed when it became another program is closed.
                self.closed.extend(self.files_of(event.pid));
            }
            FORKED => {
                self.outside.covers(event.pid, true);
                self.new_space(event.pid, Some(event.offset as u32));
            }
            2 => *self.dormant.entry("process | that sealed itself off (seccomp)").or_default() += 1,
            3 => *self.dormant.entry("process | behind another root (chroot)").or_default() += 1,
            ENDS => {
                self.outside.covers(event.pid, false);
                self.new_space(event.pid, None);
                // It says so before its end: what it has open still, it will not have when its parent hears of that.
                for slot in self.files_of(event.pid) {
                    if let Some(held) = self.files.get_mut(&slot) {
                        held.origin.fd = NO_FD;
                    }
                    self.closed.insert(slot);
                }
            }
            _ => {}
        }
    }

    /// Files of which this process told last.
    fn files_of(&self, pid: u32) -> Vec<u32> {
        self.files.iter().filter(|(_, held)| held.origin.pid == pid).map(|(&slot, _)| slot).collect()
    }

    /// Makes sure that the event's file is known; whether it is one that we steer.
    pub(super) fn meet(&mut self, event: &Event, now: Nanos) -> bool {
        let Some(slot) = self.segment.file(event.file) else { return false };
        if slot.generation.load(Ordering::Acquire) != event.generation
            || slot.ignored.load(Ordering::Relaxed) != 0
        {
            return false;
        }
        let (dev, ino) = (slot.dev.load(Ordering::Relaxed), slot.ino.load(Ordering::Relaxed));
        let mapped = if event.kind == Kind::Map { event.address() } else { 0 };
        let origin = Origin { pid: event.pid, fd: event.fd, dev, ino, mapped };
        if let Some(held) = self.files.get_mut(&event.file)
            && held.generation == event.generation
        {
            held.active = now;
            if held.descriptor.is_some() && event.fd >= 0 && mapped == 0 && held.origin.mapped == 0 {
                // Who told last has it open, whoever it was met by.
                held.origin = origin;
            }
            if held.descriptor.is_some() || event.fd < 0 {
                return true;
            }
            held.origin = origin;
            self.reopen(event.file);
            return true;
        }
        if event.fd < 0 {
            return false;
        }
        if event.pid == ProcessId::NOBODY.0 {
            self.refuse(event.file, Refusal::Elsewhere);
            return false;
        }
        self.forget(event.file);
        match Descriptor::open(&origin) {
            Ok(descriptor) => self.welcome(event, origin, descriptor, now),
            Err(refusal) => {
                self.refuse(event.file, refusal);
                false
            }
        }
    }

    pub(super) fn welcome(
        &mut self,
        event: &Event,
        origin: Origin,
        descriptor: Descriptor,
        now: Nanos,
    ) -> bool {
        let path = origin.path().or_else(|| descriptor.path()).unwrap_or_default();
        if !self.options.selection.takes(&path) {
            self.refuse(event.file, Refusal::NotAskedFor);
            return false;
        }
        self.make_room();
        if !self.begun {
            self.begin();
        }
        self.windows.prepare(origin.dev, descriptor.borrow());
        if let Some(news) = self.windows.news(origin.dev) {
            self.wave.handle(now, news);
        }
        self.devices.insert(origin.dev);
        self.numbered += 1;
        let size = descriptor.size();
        let held = Held {
            generation: event.generation,
            origin,
            number: self.numbered,
            named: false,
            path,
            descriptor: Some(descriptor),
            size,
            active: now,
            refreshed: now,
            outstanding: 0,
            account: Account::new(size),
            samples_vain: 0,
            samples_skip: 0,
            untold: 0,
            touched_only: None,
        };
        self.files.insert(event.file, held);
        self.descriptors += 1;
        let file = FileId(u64::from(event.file));
        self.wave.handle(now, Input::Open { file, device: origin.dev, size: Bytes(size) });
        if self.options.kernel_off
            && !self.options.dry_run
            && !self.handed_back
            && let Some(slot) = self.segment.file(event.file)
        {
            slot.kernel.store(KERNEL_OFF, Ordering::Relaxed);
        }
        true
    }

    /// The brain begins with the first file.
    fn begin(&mut self) {
        raise_descriptor_limit(&mut self.descriptors_max);
        self.config.memory = Bytes(self.memory);
        self.wave = Wave::new(self.config);
        self.begun = true;
    }

    pub(super) fn reopen(&mut self, slot: u32) {
        self.make_room();
        let Some(held) = self.files.get_mut(&slot) else { return };
        let Ok(descriptor) = Descriptor::open(&held.origin) else { return };
        self.windows.prepare(held.origin.dev, descriptor.borrow());
        held.descriptor = Some(descriptor);
        self.descriptors += 1;
    }

    pub(super) fn refuse(&mut self, slot: u32, refusal: Refusal) {
        self.refused.entry(refusal).or_default().insert(slot);
        if !refusal.passes() {
            self.forget(slot);
            if let Some(slot) = self.segment.file(slot) {
                slot.kernel.store(KERNEL_ON, Ordering::Relaxed);
                slot.ignored.store(1, Ordering::Release);
            }
        }
    }

    pub(super) fn read(&mut self, event: &Event, now: Nanos) {
        let pages = self.within(event, now);
        if pages.is_empty() {
            return;
        }
        let told_ns = event.at_ns.saturating_sub(self.start_ns);
        if now.0.saturating_sub(told_ns) > STALE_NS && self.is_settled(event.file, pages) {
            self.used(event.file, pages, now);
            return;
        }
        if self.missing(event.file, pages) > 0 {
            self.sample(event.file, pages, now.0.saturating_sub(told_ns) < FRESH_NS, now);
        }
        let missing = self.missing(event.file, pages);
        self.tell_read(event, pages, missing, now);
    }

    /// What a thread has read last, until it says how long it waited.
    pub(super) fn remember_told(&mut self, tid: u32, told: Told) {
        if self.told.len() >= THREADS_MAX {
            self.told.clear();
        }
        self.told.insert(tid, told);
    }

    /// Tells of a read between what was read quietly before it and what was read since.
    fn tell_read(&mut self, event: &Event, pages: Extent, missing: u64, now: Nanos) {
        self.remember_told(event.tid, Told { file: event.file, offset: event.offset, missing });
        self.account_used(event.file, pages);
        self.tell_all(event.file, false, now);
        let file = FileId(u64::from(event.file));
        let left_off = self.harvest_left_off(event.tid, (file, pages));
        let [before, since] = self.harvest_around(event.file, pages);
        for harvest in left_off.into_iter().chain(before) {
            self.harvested(harvest, now);
        }
        let exactly = Input::Exactly { actor: event.tid, from: event.offset, bytes: Bytes(event.len) };
        self.wave.handle(now, exactly);
        self.wave.handle(now, Input::Read { file, pages, actor: event.tid });
        for harvest in since {
            self.harvested(harvest, now);
        }
    }

    /// Says whether each page read of a file is told: it is where pages are touched, until a call reads some of them.
    pub(super) fn tell_all(&mut self, slot: u32, touched: bool, now: Nanos) {
        let Some(held) = self.files.get_mut(&slot) else { return };
        let all = touched && held.touched_only != Some(false);
        if held.touched_only.replace(all).unwrap_or(false) != all {
            self.wave.handle(now, Input::Told { file: FileId(u64::from(slot)), all });
        }
    }

    /// A read has returned, or a quiet one was slow. Of a quiet one the brain has not heard: it is told first.
    pub(super) fn done(&mut self, event: &Event, now: Nanos) {
        let took = Nanos(u64::from(event.waited_ns));
        let told = self.told.get(&event.tid).copied();
        let told = told.filter(|t| (t.file, t.offset) == (event.file, event.offset));
        let pages = self.within(event, now);
        match told {
            Some(_) => {}
            None if pages.is_empty() => return,
            None => {
                let missing = self.missing(event.file, pages);
                self.tell_read(event, pages, missing, now);
            }
        }
        self.told.remove(&event.tid);
        let waited = self.is_wait(event.file, pages, took.0);
        if waited {
            self.account_brings(event.file, pages);
        }
        if self.options.dry_run && told.is_none_or(|t| t.missing == 0) {
            // It waited because we did not fetch: nothing to learn from.
            return;
        }
        let file = FileId(u64::from(event.file));
        let ended = Nanos(event.at_ns.saturating_sub(self.start_ns));
        self.wave.handle(now, Input::Waited { file, pages, actor: event.tid, took, ended });
        if told.is_none() && waited && self.correct(event.file, pages, now) {
            // It was not there either, or it would not have taken so long.
            self.account_lacks(event.file, pages);
            self.account_brings(event.file, pages);
        }
    }

    pub(super) fn advised(&mut self, event: &Event, now: Nanos) {
        let Some(held) = self.files.get(&event.file) else { return };
        let advice = match event.detail as i32 {
            libc::POSIX_FADV_NORMAL => Advice::Normal,
            libc::POSIX_FADV_SEQUENTIAL => Advice::Sequential,
            libc::POSIX_FADV_RANDOM => Advice::Random,
            libc::POSIX_FADV_WILLNEED => Advice::WillNeed,
            libc::POSIX_FADV_DONTNEED => Advice::DontNeed,
            _ => return,
        };
        // A length of 0 means: to the end.
        let len = if event.len == 0 { held.size.saturating_sub(event.offset) } else { event.len };
        let mut pages =
            Extent::covering(event.offset, len).intersection(Extent::new(0, held.size.div_ceil(PAGE_SIZE)));
        if advice == Advice::WillNeed {
            pages.count = pages.count.min(WILL_NEED_MAX);
        }
        if advice == Advice::DontNeed {
            self.account_lacks(event.file, pages);
        }
        self.wave.handle(now, Input::Advised { file: FileId(u64::from(event.file)), pages, advice });
    }

    /// The pages of an event that the file has. Past its known end, looks at its size again.
    pub(super) fn within(&mut self, event: &Event, now: Nanos) -> Extent {
        let Some(held) = self.files.get_mut(&event.file) else { return Extent::new(0, 0) };
        if event.offset.saturating_add(event.len) > held.size && now.since(held.refreshed).0 > REFRESH_NS {
            held.refreshed = now;
            if let Some(descriptor) = &mut held.descriptor
                && descriptor.refresh()
            {
                held.size = descriptor.size();
                held.account.resize(held.size);
                let file = FileId(u64::from(event.file));
                let size = Bytes(held.size);
                self.wave.handle(now, Input::Open { file, device: held.origin.dev, size });
            }
        }
        Extent::covering(event.offset, event.len).intersection(Extent::new(0, held.size.div_ceil(PAGE_SIZE)))
    }

    /// Whether the brain would not ask to be told of a read of these pages.
    pub(super) fn is_settled(&self, slot: u32, pages: Extent) -> bool {
        let file = FileId(u64::from(slot));
        let mut leaves = pages.start.0 / 64..=(pages.end().0 - 1) / 64;
        pages.count.0 <= JUDGED_MAX
            && leaves.all(|leaf| bits_in(pages, leaf) & !self.wave.leaf(file, leaf).1 == 0)
    }

    /// Whether a read of these pages that took so long waited for the file's device.
    pub(super) fn is_wait(&self, slot: u32, pages: Extent, took_ns: u64) -> bool {
        let device = self.files.get(&slot).and_then(|held| self.wave.device(held.origin.dev));
        is_wait(Nanos(took_ns), pages.count, device.and_then(|device| device.latency))
    }

    /// Pages that the brain does not know of.
    pub(super) fn missing(&self, slot: u32, pages: Extent) -> u64 {
        let file = FileId(u64::from(slot));
        let judged = pages.count.0.min(JUDGED_MAX);
        (0..judged).filter(|&i| !self.wave.resident(file, pages.start + PageCount(i))).count() as u64
    }

    // ---- what the kernel's cache holds ---------------------------------------------------------------------------------

    /// Looks at unknown pages that are read and, where they are there, around them as far as everything is there. Reads
    /// that find nothing cost one look at their own pages; where looking around was vain, it is done less and less often.
    pub(super) fn sample(&mut self, slot: u32, pages: Extent, fresh: bool, now: Nanos) {
        let Some(held) = self.files.get_mut(&slot) else { return };
        let Some(descriptor) = &held.descriptor else { return };
        if held.samples_skip > 0 {
            held.samples_skip -= 1;
            return;
        }
        let own = Extent { count: pages.count.min(PageCount(SAMPLE_MAX)), ..pages };
        if descriptor.presence(own).is_none_or(|presence| presence.iter().any(|&b| b & 1 == 0)) {
            return;
        }
        let end = PageIndex(held.size.div_ceil(PAGE_SIZE));
        let start = PageIndex(pages.start.0 / SAMPLE_MIN * SAMPLE_MIN);
        let (mut at, mut span) = (start, PageCount(SAMPLE_MIN.max(own.end().since(start).0)));
        let mut present: Vec<Extent> = Vec::new();
        while at < end && at.since(start).0 < SAMPLE_MAX {
            let around = Extent::between(at, end.min(at + span));
            let Some(presence) = descriptor.presence(around) else { break };
            let found = runs(around, &presence, true);
            let all = found.first() == Some(&around);
            present.extend(found);
            (at, span) = (around.end(), span + span);
            if !all {
                break;
            }
        }
        let there: u64 = present.iter().map(|run| run.count.0).sum();
        held.samples_vain =
            if there > own.count.0 { 0 } else { (held.samples_vain + 1).min(SAMPLES_SKIP_MAX) };
        held.samples_skip = held.samples_vain;
        let file = FileId(u64::from(slot));
        for run in present {
            // The read itself may have brought its pages by now, unless it was told just now.
            let parts = if fresh {
                [run, Extent::new(0, 0)]
            } else {
                [
                    Extent::between(run.start, run.end().min(own.start)),
                    Extent::between(run.start.max(own.end()), run.end()),
                ]
            };
            for part in parts.into_iter().filter(|part| !part.is_empty()) {
                held.account.finds(part);
                self.wave.handle(now, Input::Present { file, pages: part });
            }
        }
    }

    /// A page that was believed there was slow: what else around it is not what we believe? Whether anything is.
    pub(super) fn correct(&mut self, slot: u32, pages: Extent, now: Nanos) -> bool {
        let Some(held) = self.files.get(&slot) else { return false };
        let end = held.size.div_ceil(PAGE_SIZE);
        let around = Extent::between(
            pages.start.back(PageCount(SAMPLE_MIN)),
            PageIndex((pages.end().0 + SAMPLE_MIN).min(end)),
        );
        self.tell_lost(now, FileId(u64::from(slot)), around)
    }
}
