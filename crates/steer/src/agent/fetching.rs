//! Fetches: sent in the order that the brain wants, seen arriving, and published as pages that need no event.
//!
//! ```text
//!   poll --> mincore: what is absent? --> readahead(2), a piece at a time --> out --> looked at --> Arrived --> leaf quiet
//! ```

use std::io;

use bowwave_core::{Action, Extent, FetchId, FileId, Input, Nanos, PageCount, PageIndex, runs_of_bits};
use bowwave_wire::Harvest;

use super::{DRAIN_MAX, Held, Out, State};
use crate::arrivals::{GIVEN_UP_NS, Look, Outcome};
use crate::files::{Descriptor, Refusal, runs};
use crate::segment::monotonic_ns;

impl State {
    pub(super) fn arrive(&mut self) {
        let now = self.now();
        for found in self.probers.found() {
            let Some(out) = self.out.get(&found.fetch) else { continue };
            let at = Nanos(found.at_ns.saturating_sub(self.start_ns)).max(out.issued);
            let latency = self.wave.device(out.device).and_then(|d| d.latency).unwrap_or_default();
            let was_there = found.at_once && 4 * at.since(out.issued).0 < latency.0;
            match (found.arrived, was_there) {
                (false, _) => self.landed(now, found.fetch, |fetch| Input::Failed { fetch }),
                (true, true) => {
                    let (file, pages) = (out.file, out.pages);
                    if let Some(held) = self.files.get_mut(&file) {
                        held.account.was_there(pages);
                    }
                    self.landed(now, found.fetch, |fetch| Input::Skipped { fetch });
                }
                (true, false) => self.landed(now, found.fetch, |fetch| Input::Arrived { fetch }),
            }
        }
        if self.arrivals.next_look().is_none_or(|due| due > now) {
            return;
        }
        let files = &self.files;
        let landed = self.arrivals.look(now, |out| {
            let descriptor = files.get(&out.file).and_then(|held| held.descriptor.as_ref());
            let page = Extent::new(out.page, 1);
            match descriptor.and_then(|d| Some((d, d.presence(page)?))) {
                Some((_, presence)) if presence[0] & 1 == 1 => Look::There,
                Some((d, _)) if d.cached(page) == Some(0) => Look::Gone,
                Some(_) => Look::NotYet,
                None => Look::Lost,
            }
        });
        for (out, outcome) in landed {
            match outcome {
                Outcome::Arrived => self.landed(now, out.fetch, |fetch| Input::Arrived { fetch }),
                Outcome::Gone => {
                    let pages = self.out.get(&out.fetch).map(|out| out.pages);
                    self.landed(now, out.fetch, |fetch| Input::Skipped { fetch });
                    self.tell_lost(now, FileId(out.file.into()), pages.unwrap_or_default());
                }
                Outcome::Failed => self.landed(now, out.fetch, |fetch| Input::Failed { fetch }),
            }
        }
    }

    /// A storage that hangs holds up a prober for ever, and those who wait behind it. What it has not brought by then, it may bring
    /// unheard.
    pub(super) fn give_up_probed(&mut self, now: Nanos) {
        let late = |out: &Out| out.probed && now.since(out.issued).0 > GIVEN_UP_NS;
        let late: Vec<FetchId> = self.out.iter().filter(|(_, out)| late(out)).map(|(&id, _)| id).collect();
        for fetch in late {
            self.landed(now, fetch, |fetch| Input::Failed { fetch });
        }
    }

    pub(super) fn landed(&mut self, now: Nanos, fetch: FetchId, input: impl FnOnce(FetchId) -> Input) {
        if let Some(out) = self.out.remove(&fetch)
            && let Some(held) = self.files.get_mut(&out.file)
        {
            held.outstanding = held.outstanding.saturating_sub(1);
        }
        self.wave.handle(now, input(fetch));
    }

    /// Sends what the brain wants sent. Between calls of up to 70 us, hears whoever has come in the meantime.
    pub(super) fn act(&mut self) {
        self.release_given_up();
        loop {
            let now = self.now();
            let Some(Action::Fetch { id, file, pages, .. }) = self.wave.poll(now) else { break };
            self.vain = 0;
            let input = self.fetch(id, file.0 as u32, pages, now);
            if let Some(input) = input {
                self.wave.handle(self.now(), input);
            }
            self.publish();
            self.beat();
            if self.segment.has_events() {
                self.drain(DRAIN_MAX);
                self.let_go_of_closed();
            }
            self.take_samples();
            self.arrive();
        }
        self.explain();
    }

    /// Pages that were fetched ahead in vain, since memory has no room for them, leave the cache before others are fetched.
    fn release_given_up(&mut self) {
        while let Some((file, pages)) = self.wave.take_given_up() {
            let held = self.files.get(&(file.0 as u32));
            if let Some(descriptor) = held.and_then(|held| held.descriptor.as_ref()) {
                descriptor.let_go(pages);
            }
        }
    }

    /// Performs a fetch. What is known of it at once is returned; otherwise it is out.
    pub(super) fn fetch(&mut self, id: FetchId, slot: u32, pages: Extent, now: Nanos) -> Option<Input> {
        if self.options.dry_run {
            return Some(Input::Skipped { fetch: id });
        }
        if self.files.get(&slot).is_some_and(|held| held.descriptor.is_none()) {
            self.reopen(slot);
        }
        let failed = Some(Input::Failed { fetch: id });
        let Some(held) = self.files.get_mut(&slot) else { return failed };
        let Some(absent) = held.absent(pages) else { return failed };
        let (Some(first), Some(last)) = (absent.first(), absent.last()) else {
            return Some(Input::Skipped { fetch: id });
        };
        let hull = Extent::between(first.start, last.end());
        let fetched = held.not_under_way(&absent);
        let before = monotonic_ns();
        let asked = self.ask(slot, hull, absent.len() == 1, now);
        self.calls_ns += monotonic_ns() - before;
        match asked {
            Ok(()) => {
                let issued = Nanos(before.saturating_sub(self.start_ns)).max(now);
                if self.goes_out(id, slot, hull, issued, &fetched) { None } else { failed }
            }
            Err(error) => {
                if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) {
                    self.refuse(slot, Refusal::NoReadahead);
                }
                failed
            }
        }
    }

    /// Asks the kernel for `pages`, a piece at a time, each as large as one call brings. `unbroken` says that all of them are absent.
    fn ask(&mut self, slot: u32, pages: Extent, unbroken: bool, now: Nanos) -> io::Result<()> {
        let held = self.files.get(&slot);
        let (Some(descriptor), Some(held)) = (held.and_then(|held| held.descriptor.as_ref()), held) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let device = held.origin.dev;
        let mut at = pages.start;
        while at < pages.end() {
            let cap = self.windows.cap(device);
            let piece = Extent::between(at, (at + PageCount(cap)).min(pages.end()));
            self.calls += 1;
            let doubtful = unbroken && self.windows.is_doubtful(device, piece.count.0);
            let started = call(descriptor, piece, doubtful)?;
            if let Some(started) = started {
                self.windows.observed(device, piece.count.0, started);
            }
            at = match started {
                // The kernel cut it short. What it has not started is asked for again, from there.
                Some(started) if started < piece.count.0 => {
                    if let Some(news) = self.windows.news(device) {
                        self.wave.handle(now, news);
                    }
                    if started == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    piece.start + PageCount(started)
                }
                _ => piece.end(),
            };
        }
        Ok(())
    }

    /// What the kernel was asked for is out until its last page is seen to have come. Whether anybody will look; `fetched` is what
    /// of it is accounted for as fetched.
    fn goes_out(&mut self, id: FetchId, slot: u32, pages: Extent, issued: Nanos, fetched: &[Extent]) -> bool {
        let Some(held) = self.files.get_mut(&slot) else { return false };
        let Some(descriptor) = &held.descriptor else { return false };
        let (device, page) = (held.origin.dev, pages.end().0 - 1);
        let trusted = descriptor.trusted();
        if trusted {
            let latency = self.wave.device(device).and_then(|device| device.latency);
            self.arrivals.add(device, id, slot, page, issued, latency);
        } else if !self.probers.ask(device, id, descriptor.share(), page) {
            return false;
        }
        held.outstanding += 1;
        for &run in fetched {
            held.account.fetches(run);
        }
        self.out.insert(id, Out { file: slot, device, pages, issued, probed: !trusted });
        true
    }

    // ---- leaves ----------------------------------------------------------------------------------------------------

    pub(super) fn publish(&mut self) {
        let changed = self.wave.take_changed();
        if changed.is_empty() || self.options.dry_run {
            return;
        }
        let now = self.now();
        for (file, leaf) in changed {
            let slot = file.0 as u32;
            let (quiet, settled) = self.wave.leaf(file, leaf);
            let Some(held) = self.files.get(&slot) else { continue };
            if quiet == 0 && !self.published.contains(&(slot, leaf)) {
                continue;
            }
            self.published.insert((slot, leaf));
            let of = (held.origin.dev, held.origin.ino);
            if let Some(harvest) = self.segment.publish(slot, leaf, quiet, settled) {
                self.harvested(harvest, now);
            }
            if let Some(harvest) = self.outside.publish(of, slot, leaf, settled & quiet) {
                self.harvested(harvest, now);
            }
        }
    }

    pub(super) fn harvested(&mut self, harvest: Harvest, now: Nanos) {
        let Some(held) = self.files.get_mut(&harvest.file) else { return };
        held.active = now;
        for pages in runs_of_bits(PageIndex(harvest.leaf * 64), harvest.used) {
            self.used(harvest.file, pages, now);
        }
    }

    /// Pages were used, and that is all there is to say of it.
    pub(super) fn used(&mut self, slot: u32, pages: Extent, now: Nanos) {
        self.account_used(slot, pages);
        self.wave.handle(now, Input::Used { file: FileId(u64::from(slot)), pages });
    }

    pub(super) fn account_lacks(&mut self, slot: u32, pages: Extent) {
        if let Some(held) = self.files.get_mut(&slot) {
            held.account.lacks(pages);
        }
    }

    pub(super) fn account_brings(&mut self, slot: u32, pages: Extent) {
        if let Some(held) = self.files.get_mut(&slot) {
            held.account.brings(pages);
        }
    }

    pub(super) fn account_used(&mut self, slot: u32, pages: Extent) {
        if let Some(held) = self.files.get_mut(&slot) {
            held.account.uses(pages);
        }
    }
}

impl Held {
    /// What of `pages` is absent from the cache, all where we may not look; nothing if the file is not open. What is there is
    /// accounted for as found.
    fn absent(&mut self, pages: Extent) -> Option<Vec<Extent>> {
        let Some(presence) = self.descriptor.as_ref()?.presence(pages) else { return Some(vec![pages]) };
        for run in runs(pages, &presence, true) {
            self.account.finds(run);
        }
        Some(runs(pages, &presence, false))
    }

    /// Those of `absent` that are not under way already: what is asked for again meanwhile comes once.
    fn not_under_way(&self, absent: &[Extent]) -> Vec<Extent> {
        let Some(descriptor) = &self.descriptor else { return Vec::new() };
        let comes = |run: &Extent| self.account.awaits(*run) && descriptor.cached(*run) == Some(run.count.0);
        absent.iter().filter(|run| !comes(run)).copied().collect()
    }
}

/// One call. Where it is `doubtful` that it brings as much, how many pages it has started, unless some of them were there.
fn call(descriptor: &Descriptor, pages: Extent, doubtful: bool) -> io::Result<Option<u64>> {
    let held_before = if doubtful { descriptor.cached(pages) } else { None };
    descriptor.readahead(pages)?;
    Ok(if held_before == Some(0) { descriptor.cached(pages) } else { None })
}
