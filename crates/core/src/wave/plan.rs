//! R1, R3, R8-R15: how far ahead of a stream to fetch, and what to do about a read that belongs to none.
//!
//! ```text
//! wanted ahead of a stream   = ahead            grown by waits (R3), 4 pages for each page of the first read at first
//!                              cut or raised by  runs that ended (R9)
//!                              cut to            its share of half the memory, and of the speculation allowed (R13); on a head
//!                                                of half as much again of both, since half is out on average
//! ```
//!
//! The share of speculation is the waste ceiling turned round. Were every reader to stop at this moment, what is out unread
//! would be the waste; so no more is let out than 15 % of what was used, divided by the streams. While little was used,
//! twice as much is let out, and 2 MiB to begin with, but no more than 48 MiB on that ground. What readers have paid for by
//! waiting comes on top, as much again at most: a stream that has waited once may have out what one latency carries, since
//! to wait again would cost as much.
//!
//! ```text
//! 1 stream, nothing used yet        512 pages        1 stream after 512 MiB      0.15 * 131072 = 19660 pages
//! 512 streams, 2 pages used each      5 pages each   512 streams after 512 MiB                  38 pages each
//!   each of them waited 8 ms          9 pages each   (195 paid for each; 2 for each page used)
//! ```

use super::density::Terms;
use super::lengths::Lengths;
use super::locate::Place;
use super::stream::{Course, Stream, StreamId};
use super::{Advice, EPOCH, LOST_FEW, SPECULATION_MAX, SPECULATION_MIN, Turn, USED_PERCENT, Wanted, Wave};
use crate::decision::{Pattern, Why};
use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageCount, PageIndex};
use crate::window::Window;

/// A read that took no longer than this and its copying found its pages: 20 us, a few times what a hit costs.
const HIT_NS_MAX: u64 = 20_000;
/// One page in so many of a bought region carries a mark.
const SAMPLE: u64 = 8;
/// An arrival is seen, and a wait told, about so late.
const LOOK_NS: u64 = 2_000_000;
/// Copying a page, generously.
const COPY_NS: u64 = 1_000;
/// Nor more: 4 GiB.
const AHEAD_MAX: u64 = 1 << 20;
/// Pages that a window is pushed on by at least, where it is twice as long.
const FEW: u64 = 8;
/// Streams that are looked at when one of their file has waited.
const SISTERS_MAX: usize = 256;
/// Readers that are remembered as waiting.
const WAITING_MAX: usize = 1024;
/// A run is taken to go on for at most so many times what it has come.
const PROMISE: u64 = 4;
/// Reads of a stream before anything is fetched ahead of it where much is lost unread.
const LOSING_READS: u64 = 4;
/// No rule wants less ahead of a stream than this.
const AHEAD_MIN: u64 = 4;

/// A window as a stream asks for it: because of which read, where its mark lies, and whether somebody will wait for it soon.
struct Asked {
    read: Extent,
    window: Extent,
    mark: Option<Extent>,
    pattern: Pattern,
    why: Why,
    urgent: bool,
}

impl Wave {
    pub(super) fn read(&mut self, now: Nanos, id: FileId, pages: Extent, actor: u32) {
        self.weigh_losses();
        let Some(f) = self.files.get_mut(&id) else { return };
        let pages = pages.intersection(Extent::new(0, f.end));
        if pages.is_empty() {
            return;
        }
        self.counters.reads += 1;
        let marked = f.table.clear(PageBit::Mark, pages).0;
        let place = self.place(id, pages);
        let in_stream =
            matches!(place, Place::Continues(sid) if self.streams.get(sid).is_some_and(|s| s.reads > 2));
        if marked > 0
            && !in_stream
            && let Some(f) = self.files.get_mut(&id)
        {
            f.density.served(pages.start, marked * SAMPLE);
        }
        self.leave_stride(id, actor, place);
        self.leave_run(id, actor, place, pages);
        let looks = self.look(id, actor, place, pages);
        self.remember(actor, id, pages, None);
        let missing = pages.count.0 - self.files[&id].table.resident(pages).0;
        self.read_of_late += missing;
        let device = self.files[&id].device;
        if missing > 0
            && let Some(queue) = self.queues.get_mut(&device)
            && queue.waiting.len() < WAITING_MAX
        {
            queue.waiting.insert(actor);
        }
        self.use_pages(id, pages);
        let stream = match place {
            Place::Continues(sid) => {
                self.advance(now, sid, pages);
                Some(sid)
            }
            Place::Repeats(sid) => Some(sid),
            Place::History(history) => self.resume(now, id, pages, history),
            Place::Stray if looks => None,
            Place::Stray => self.begin(now, id, pages, actor),
        };
        if let Some(latest) = self.latest.get_mut(&actor) {
            latest.stream = stream;
            if let Some(s) = stream.and_then(|sid| self.streams.get(sid))
                && matches!(s.course, Course::Stride { .. })
            {
                latest.stride = stream;
            }
        }
        self.bring(now, id, pages);
        self.touch_leaves(id, pages);
        if let Some(sid) = stream {
            self.plan_read(now, sid, pages, place, missing);
        }
        self.sweep(now);
    }

    /// R14: the reader's own read goes from page to page. It brings the first of those that are missing, as many as one
    /// read brings, unless it waits for others before them; what it comes to later is fetched for it now.
    fn bring(&mut self, now: Nanos, id: FileId, pages: Extent) {
        let own_max = self.config.reader_max;
        let Some(f) = self.files.get_mut(&id) else { return };
        let holes: alloc::vec::Vec<Extent> = f.table.holes(pages).collect();
        let Some(first) = holes.first() else { return };
        let before = Extent::between(pages.start, first.start);
        let waits = f.table.count(PageBit::InFlight, before).0 > 0;
        let own = if waits { PageCount(0) } else { first.count.min(own_max) };
        self.own = (own.0 > 0).then_some((id, Extent { count: own, ..*first }));
        f.table.set(PageBit::InFlight, Extent { count: own, ..*first });
        let from = first.start + own;
        let rest = Extent::between(from, pages.end());
        let missing = rest.count.0 - f.table.resident(rest).0;
        if missing > 0 {
            let why = Why("R14 rest of a large read");
            self.explain(now, id, pages, whole(rest), Pattern::Oversize, why);
            self.want(Wanted { file: id, pages: rest, turn: Turn::Demand, why, stream: None });
        }
    }

    /// A run whose reader jumped, over a mark and more, into what was fetched for it has ended.
    fn leave_run(&mut self, id: FileId, actor: u32, place: Place, pages: Extent) {
        let Some(latest) = self.latest.get(&actor).filter(|l| l.file == id) else { return };
        let Some(sid) = latest.stream else { return };
        if matches!(place, Place::Stray | Place::History(_))
            && let Some(s) = self.streams.get(sid)
            && s.course == Course::Forward
            && (s.next..s.frontier).contains(&pages.start.0)
        {
            self.end(sid);
        }
    }

    /// R9: whoever copies memory touches its first page, then its last, then what lies between. So a reader who goes on where he
    /// began, after one read farther on, has looked where his run ends. Says whether this is such a read, in what is out for
    /// the run already: then it begins none of its own.
    fn look(&mut self, id: FileId, actor: u32, place: Place, pages: Extent) -> bool {
        let Some(latest) = self.latest.get_mut(&actor).filter(|l| l.file == id) else { return false };
        let before = core::mem::take(&mut latest.look);
        let stream = latest.stream.and_then(|sid| Some((sid, self.streams.get(sid)?)));
        let seed = stream.filter(|(_, s)| s.course == Course::Seed);
        match place {
            Place::Stray => {
                let Some((sid, s)) = seed.filter(|(_, s)| s.next <= pages.start.0) else { return false };
                latest.look = Some((sid, pages.end().0));
                pages.start.0 < s.frontier
            }
            Place::Continues(sid) => {
                let Some((_, end)) = before.filter(|look| look.0 == sid) else { return false };
                let looked = seed.map(|(seed, _)| seed).filter(|&seed| seed != sid);
                if let Some(s) = self.streams.get_mut(sid) {
                    s.looked = end;
                }
                if let Some(seed) = looked {
                    self.dismiss(seed);
                }
                false
            }
            Place::Repeats(_) | Place::History(_) => false,
        }
    }

    /// A stride whose reader went elsewhere twice in a row has ended.
    fn leave_stride(&mut self, id: FileId, actor: u32, place: Place) {
        let Some(latest) = self.latest.get_mut(&actor).filter(|l| l.file == id) else { return };
        let Some(sid) = latest.stride else { return };
        if place == Place::Continues(sid) {
            latest.off_stride = 0;
            return;
        }
        latest.off_stride += 1;
        if latest.off_stride >= 2 {
            (latest.stride, latest.off_stride) = (None, 0);
            self.end(sid);
        }
    }

    fn plan_read(&mut self, now: Nanos, sid: StreamId, pages: Extent, place: Place, missing: u64) {
        let Some(s) = self.streams.get_mut(sid) else { return };
        let id = s.file;
        match s.course {
            Course::Seed => self.plan_seed(now, sid, pages, missing),
            Course::Stride { .. } => {
                s.ahead = s.ahead.max(4);
                // A head that the reader waits for would go elsewhere first: he is asked for again when he has it.
                let told = self.counters.stalls > 0;
                if missing == 0 || !told || self.files.get(&id).is_none_or(|f| self.trip(f) == 0) {
                    self.plan_stride(now, sid, pages);
                }
                // What a stride visits may become streams of their own: a matrix read by columns.
                self.sow(now, id, pages);
            }
            Course::Forward | Course::Backward => {
                let established = matches!(place, Place::Continues(_)) && s.reads > 2;
                if missing > 0 {
                    self.promote(id, pages.start.0);
                }
                // A page of a stream that is read again, and is gone, is no stray.
                if !established && missing > 0 && !matches!(place, Place::Repeats(_)) {
                    self.rent(now, id, pages);
                }
                if !established && self.coincidence(id) {
                    return;
                }
                let Some(s) = self.streams.get_mut(sid) else { return };
                if s.ahead == 0 {
                    s.ahead = (4 * s.request).max(AHEAD_MIN);
                }
                let why = if missing > 0 && established { Why("R3 waited") } else { Why("R2 next") };
                let why = if matches!(place, Place::History(_)) { Why("R4 context") } else { why };
                if missing > 0 && established {
                    self.grow(sid);
                }
                self.plan_stream(now, sid, pages, why);
                if missing > 0 && established {
                    self.plan_sisters(now, sid, pages);
                }
                if !established {
                    self.open_in_step(now, id, pages);
                }
            }
        }
    }

    /// A read took so long.
    pub(super) fn waited(&mut self, now: Nanos, id: FileId, pages: Extent, actor: u32, took: Nanos) {
        let Some(f) = self.files.get(&id) else { return };
        let pages = pages.intersection(Extent::new(0, f.end));
        if !self.latest.get(&actor).is_some_and(|l| l.file == id && l.pages == pages) {
            // A quiet read that was slow: its reader has come so far, and its pages were late.
            self.read(now, id, pages, actor);
        }
        let Some(latest) = self.latest.get(&actor).copied() else { return };
        let Some(f) = self.files.get_mut(&id) else { return };
        f.table.clear(PageBit::InFlight, pages);
        f.table.set(PageBit::Present, pages);
        let device = f.device;
        if let Some(queue) = self.queues.get_mut(&device) {
            queue.waiting.remove(&actor);
        }
        self.touch_leaves(latest.file, pages);
        if took.0 <= HIT_NS_MAX + COPY_NS * pages.count.0 {
            return;
        }
        self.counters.stalls += 1;
        self.counters.stalled_ns += took.0;
        self.longest_ns[0] = self.longest_ns[0].max(took.0);
        if latest.missing == pages.count.0
            && pages.count <= self.config.reader_max
            && let Some(queue) = self.queues.get_mut(&device)
        {
            // Where others wait too, a time says more of them than of the device, unless it is the shortest so far.
            let news = queue.device.latency().is_none_or(|latency| took < latency);
            if queue.waiting.is_empty() || news {
                queue.device.timed(now, pages.count.bytes(), took);
                let seed = |s: &Stream| s.course == Course::Seed;
                if latest.stream.and_then(|sid| self.streams.get(sid)).is_some_and(seed) {
                    queue.device.timed_alone(took);
                }
            }
        }
        let Some(sid) = latest.stream else { return };
        let began = Nanos(now.0.saturating_sub(took.0 + took.0 / 4 + LOOK_NS));
        let late = self
            .arrivals
            .iter()
            .rev()
            .take_while(|a| a.0 >= began)
            .any(|&(_, file, arrived)| file == latest.file && !arrived.intersection(pages).is_empty());
        let latency = self.queues.get(&device).and_then(|q| q.device.latency()).unwrap_or_default();
        if latest.believed && !late && 2 * took.0 > latency.0 {
            self.thrashed(now, sid, pages);
            return;
        }
        if latest.late || late {
            self.counters.pages_late += pages.count.0;
        }
        let Some(s) = self.streams.get_mut(sid) else { return };
        match s.course {
            Course::Forward | Course::Backward if latest.missing == 0 => {
                self.grow(sid);
                self.plan_stream(now, sid, pages, Why("R3 waited"));
                self.plan_sisters(now, sid, pages);
            }
            Course::Stride { .. } => {
                self.grow(sid);
                self.plan_stride(now, sid, pages);
            }
            _ => {}
        }
    }

    /// R3: the reader waited. Fourfold while small, then twofold (spec 3.2's shape), without a ceiling of its own: R13
    /// has those. Streams of one file learn from one another: the next to begin starts where this one has come to.
    fn grow(&mut self, sid: StreamId) {
        let Some(s) = self.streams.get_mut(sid) else { return };
        s.waited = true;
        if let Course::Stride { .. } = s.course {
            s.ahead = (2 * s.ahead).min(2 * s.reads);
            return;
        }
        let unit = self
            .files
            .get(&s.file)
            .and_then(|f| self.queues.get(&f.device))
            .map_or(0, |q| q.device.unit().0 / crate::units::PAGE_SIZE);
        s.ahead = (if s.ahead < 256 { s.ahead * 4 } else { s.ahead * 2 }).max(unit).min(AHEAD_MAX);
        self.credit = (self.credit + unit.saturating_sub(s.paid)).min(SPECULATION_MAX);
        s.paid = s.paid.max(unit);
        let ahead = s.ahead;
        if let Some(f) = self.files.get_mut(&s.file) {
            f.ahead = if f.ahead < ahead { ahead } else { (7 * f.ahead + ahead) / 8 };
            f.paid = unit;
        }
    }

    /// R4's caution (2013, spec 4.3): where reads fall thick at random, two neighbours are a coincidence. So they are taken
    /// for while fewer than one in eight of the seeds up to the newest that went on did; a third read in order counts.
    fn coincidence(&self, id: FileId) -> bool {
        let f = &self.files[&id];
        let seeds = f.fates_newest.min(64);
        seeds >= 16 && 8 * u64::from(f.fates.count_ones()) < seeds
    }

    /// R12: a page that had arrived was gone when its reader came.
    fn thrashed(&mut self, now: Nanos, sid: StreamId, pages: Extent) {
        self.counters.windows_thrashed += 1;
        let Some(s) = self.streams.get_mut(sid) else { return };
        let (id, from, to) = (s.file, s.next, s.frontier);
        s.ahead = (s.ahead / 2).max(AHEAD_MIN);
        s.frontier = s.next;
        if let Some(f) = self.files.get_mut(&id) {
            f.ahead /= 2;
        }
        self.memory_believed =
            (self.memory_believed - self.memory_believed / 8).max(self.unread / 2).max(256);
        self.forget(id, Extent::between(PageIndex(from), PageIndex(to)), true);
        self.plan_stream(now, sid, pages, Why("R12 thrashed"));
    }

    /// R1, R9, R11: the first read of what may become a stream.
    fn plan_seed(&mut self, now: Nanos, sid: StreamId, pages: Extent, missing: u64) {
        let Some(s) = self.streams.get(sid) else { return };
        let id = s.file;
        let f = &self.files[&id];
        if f.random || self.losing && !f.sequential {
            return;
        }
        let n = pages.count.0;
        let cap = self.share();
        let cheap = self.cheap(f);
        let own = f.lengths.promise(n, PageCount(cap), cheap);
        // What other files taught is believed while half of what it led to here came true.
        let others = own.is_none() && (f.guesses < 4 || 2 * f.guesses_kept >= f.guesses);
        let known = if others { self.lengths.promise(n, PageCount(cap), cheap) } else { own };
        let (ahead, why, pattern) = match known {
            Some(w) if w.0 > 0 => (w.0, Why("R9 runs here went on"), Pattern::Initial),
            _ if f.sequential || pages.start.0 == 0 && known.is_none() => {
                ((4 * n).max(AHEAD_MIN), Why("R1 start"), Pattern::Initial)
            }
            _ => (0, Why("R11"), Pattern::Cluster),
        };
        if ahead > 0 {
            let Some(s) = self.streams.get_mut(sid) else { return };
            s.ahead = ahead;
            if let Some(f) = self.files.get_mut(&id).filter(|_| others) {
                f.guesses += 1;
            }
            let Some(s) = self.streams.get_mut(sid) else { return };
            let (start, end) = (s.frontier, (s.next + ahead).min(self.files[&id].end));
            s.frontier = s.frontier.max(end);
            let window = Extent::between(PageIndex(start), PageIndex(end));
            let mark = Some(Extent::new(start, 1));
            self.fetch(now, sid, Asked { read: pages, window, mark, pattern, why, urgent: true });
            return;
        }
        if missing > 0 {
            self.rent(now, id, pages);
        }
    }

    /// R11: a stray pays rent; a region may have paid its price.
    fn rent(&mut self, now: Nanos, id: FileId, pages: Extent) {
        let Some(f) = self.files.get_mut(&id) else { return };
        let Some(queue) = self.queues.get(&f.device) else { return };
        let Some(latency) = queue.device.latency() else { return };
        let rate = queue.device.bulk_rate();
        let terms = Terms {
            gaps_are_cheap: 3 * queue.device.gap_max().0 >= pages.count.bytes().0,
            overlaps: queue.device.trip_pages() == 0,
            most: self.memory_believed / 4,
        };
        let table = &f.table;
        let price = |region: Extent| {
            let missing = region.count.0 - table.resident(region).0;
            let transfer = missing.saturating_mul(crate::units::PAGE_SIZE * 1000) / (rate / 1_000_000).max(1);
            (missing, latency.0.saturating_add(transfer))
        };
        let Some((region, why)) = f.density.read(pages, latency.0, f.end, terms, price) else {
            return;
        };
        let why = Why(why);
        // Every eighth page of what is bought is marked, to learn how much of it is read.
        for page in (region.start.0..region.end().0).step_by(SAMPLE as usize) {
            if !f.table.has(PageBit::Used, PageIndex(page)) {
                f.table.set(PageBit::Mark, Extent::new(page, 1));
            }
        }
        self.explain(now, id, pages, whole(region), Pattern::Cluster, why);
        self.want(Wanted { file: id, pages: region, turn: Turn::Urgent, why, stream: None });
    }

    /// R10: seeds that wait behind those that went on are opened, twice as many each time, while half of the 64 up to the
    /// newest that went on did.
    fn open_in_step(&mut self, now: Nanos, id: FileId, pages: Extent) {
        if self.losing {
            return;
        }
        let Some(f) = self.files.get_mut(&id) else { return };
        let went_on = f.fates.count_ones();
        if went_on < 3 || 2 * u64::from(went_on) < f.fates_newest.min(64) {
            return;
        }
        while f
            .seeds
            .front()
            .is_some_and(|&sid| self.streams.get(sid).is_none_or(|s| s.course != Course::Seed))
        {
            f.seeds.pop_front();
            f.opened = f.opened.saturating_sub(1);
        }
        let from = f.opened.min(f.seeds.len());
        let to = (2 * from + 4).min(f.seeds.len());
        f.opened = to;
        let waiting: alloc::vec::Vec<StreamId> = f.seeds.range(from..to).copied().collect();
        for sid in waiting {
            let Some(s) = self.streams.get_mut(sid).filter(|s| s.course == Course::Seed && s.ahead == 0)
            else {
                continue;
            };
            s.ahead = (4 * s.request).max(AHEAD_MIN);
            let (start, ahead) = (s.frontier, s.ahead);
            let end = s.next + ahead.min(self.speculation_share());
            let Some(s) = self.streams.get_mut(sid) else { continue };
            s.frontier = s.frontier.max(end);
            let window = Extent::between(PageIndex(start), PageIndex(end));
            let mark = Some(Extent::new(start, 1));
            let (pattern, why) = (Pattern::Context, Why("R10 in step"));
            self.fetch(now, sid, Asked { read: pages, window, mark, pattern, why, urgent: true });
        }
    }

    /// R10: streams that go in step come to the end of what is out one after the other. When one has waited, those behind it
    /// whose windows are small are not left to wait in their turn.
    fn plan_sisters(&mut self, now: Nanos, sid: StreamId, pages: Extent) {
        let Some(s) = self.streams.get(sid).filter(|_| !self.losing) else { return };
        let Some(f) = self.files.get(&s.file) else { return };
        let sisters = f.forward.range(s.next + 1..).chain(f.forward.range(..s.next)).take(SISTERS_MAX);
        let short = |sister: &StreamId| {
            let s = self.streams.get(*sister);
            s.is_some_and(|s| s.course == Course::Forward && s.out() <= FEW.max(2 * s.request))
        };
        let short: alloc::vec::Vec<StreamId> = sisters.map(|(_, &sister)| sister).filter(short).collect();
        for sister in short {
            self.plan_stream(now, sister, pages, Why("R10 in step"));
        }
    }

    /// Pushes a stream's frontier as far as the rules want it.
    fn plan_stream(&mut self, now: Nanos, sid: StreamId, pages: Extent, why: Why) {
        if self.follows(sid) {
            return;
        }
        let Some(s) = self.streams.get(sid) else { return };
        let f = &self.files[&s.file];
        if f.random {
            return;
        }
        let end_of_file = f.end;
        let (target, why) = self.target(sid, why);
        let Some(s) = self.streams.get(sid) else { return };
        let f = &self.files[&s.file];
        let down = s.course == Course::Backward;
        let out = s.out();
        let step = self.step(f, target);
        let little = if self.trip(f) > 0 { step / 16 } else { step / 4 };
        let Some(s) = self.streams.get_mut(sid) else { return };
        let urgent = core::mem::take(&mut s.waited) || out == 0;
        // What it may not have it need not want: else waits would add up to a wish that no later share could bound.
        s.ahead = s.ahead.min(2 * target.max(AHEAD_MIN));
        // What it may have changes with every stream that comes and goes: a little less than a step is worth asking for, since
        // a reader in a hurry is past the next mark before that is seen. A trip of a head should be a whole one.
        if target < out + step - little {
            // Far enough. It will be time again where the reader has come a step nearer to the end of what is out.
            let left = target.saturating_sub(step).min(out);
            let mark = if down { s.frontier + left } else { s.frontier - left };
            let mark = if down { mark.min(s.next.saturating_sub(1)) } else { mark.max(s.next) };
            let (file, mark) = (s.file, Extent::new(mark, s.skip.max(1)));
            if out > 0
                && let Some(f) = self.files.get_mut(&file)
            {
                f.table.set(PageBit::Mark, mark);
                self.touch_leaves(file, mark);
            }
            return;
        }
        let (window, mark) = if down {
            let start = s.next.saturating_sub(target);
            let window = Extent::between(PageIndex(start), PageIndex(s.frontier));
            s.frontier = start;
            (window, s.next.saturating_sub(step.max(1)))
        } else {
            let mut end = s.next + target;
            // A short rest of the file is fetched with the window (spec 5.13).
            if end_of_file.saturating_sub(end) <= step {
                end = end_of_file;
            }
            let window = Extent::between(PageIndex(s.frontier), PageIndex(end.min(end_of_file)));
            s.frontier = s.frontier.max(end.min(end_of_file));
            (window, s.next + step - 1)
        };
        let (mark_width, first_of_file) = (s.skip.max(1), s.first == 0);
        let pattern = match (down, why.0) {
            (true, _) => Pattern::Backwards,
            (_, "R4 context") => Pattern::Context,
            (_, "R12 thrashed") => Pattern::Thrash,
            _ if s.reads <= 2 && first_of_file => Pattern::Initial,
            _ => Pattern::Subsequent,
        };
        let mark = Some(Extent::new(mark, mark_width));
        self.fetch(now, sid, Asked { read: pages, window, mark, pattern, why, urgent });
    }

    /// Pages by which a window of `target` is pushed on at once: its reader is heard of again when so many are read.
    ///
    /// A quarter of it, so that the next are there in time; more where several readers wait, for they do not wait for one
    /// another. A request should be worth its way: an eighth of what one latency carries, up to half of the window; on a head
    /// a whole trip, up to seven eighths.
    fn step(&self, f: &super::File, target: u64) -> u64 {
        let Some(queue) = self.queues.get(&f.device) else { return target.max(1) };
        let trip = queue.device.trip_pages();
        let worth = trip.max(PageCount::holding(queue.device.unit()).0 / 8);
        let most = target - if trip > 0 { target / 8 } else { target / 2 };
        let readers = (queue.waiting.len() as u64).max(1);
        let least = (target * readers / (readers + 3)).min(most);
        worth.clamp(least, most).max(FEW.min(target / 2)).max(1)
    }

    /// R2: a mark was passed unseen. Whose it was has come so far; a seed for which something was fetched has gone on.
    pub(super) fn passed(&mut self, now: Nanos, id: FileId, pages: Extent) {
        let Some(f) = self.files.get_mut(&id) else { return };
        let Some((&next, &sid)) = f.forward.range(..=pages.start.0).next_back() else { return };
        let Some(s) = self.streams.get_mut(sid).filter(|s| pages.start.0 < s.frontier) else { return };
        match s.course {
            Course::Forward if s.reads > 2 => {
                f.forward.remove(&next);
                s.next = next.max(pages.end().0);
                s.frontier = s.frontier.max(s.next);
                s.last = now;
                let displaced = f.forward.insert(s.next, sid).filter(|&other| other != sid);
                if let Some(other) = displaced {
                    self.end(other);
                }
                self.mark_active(now, sid);
            }
            Course::Seed | Course::Forward if next == pages.start.0 => self.advance(now, sid, pages),
            _ => return,
        }
        self.plan_stream(now, sid, pages, Why("R2 next"));
    }

    /// R2: a stream's reader has come so far without a word. It is alive and counts among those that share (R13), however long
    /// its window lasts. Several streams that were passed so have one reader, out of order (R5): the one that has asked for the
    /// most goes on for all.
    pub(super) fn came_quietly(&mut self, now: Nanos, id: FileId, pages: Extent) {
        let Some(f) = self.files.get(&id) else { return };
        let end = pages.end().0;
        let up = |sid: &StreamId| {
            self.streams.get(*sid).is_some_and(|s| s.course == Course::Forward && s.reads > 2)
        };
        let passed = f.forward.range(pages.start.0..=end).filter(|(_, sid)| up(sid));
        let passed: alloc::vec::Vec<(u64, StreamId)> = passed.map(|(&next, &sid)| (next, sid)).collect();
        let asked = |&(_, sid): &(u64, StreamId)| self.streams.get(sid).map_or(0, |s| s.frontier);
        let Some(leader) = passed.iter().copied().max_by_key(asked) else { return };
        for (_, sid) in passed.into_iter().filter(|stream| *stream != leader) {
            self.dismiss(sid);
        }
        let (Some(f), Some(s)) = (self.files.get_mut(&id), self.streams.get_mut(leader.1)) else { return };
        f.unlink(leader.1, leader.0);
        s.next = end;
        s.frontier = s.frontier.max(end);
        s.heard_of(now);
        // Whoever is expected there as well is no run that ended.
        if let Some(other) = f.forward.get(&end).copied() {
            self.dismiss(other);
        }
        if let Some(f) = self.files.get_mut(&id) {
            f.forward.insert(end, leader.1);
        }
        self.mark_active(now, leader.1);
        self.follows(leader.1);
        self.sweep(now);
    }

    /// Pages that the rules want ahead of a stream, and the rule that had the last word.
    fn target(&self, sid: StreamId, why: Why) -> (u64, Why) {
        let Some(s) = self.streams.get(sid) else { return (0, why) };
        let f = &self.files[&s.file];
        // However long its sisters' windows are, a run of four pages promises no more than sixteen.
        // Where runs have ended, waiting pays for no more than they came to.
        let unknown = !f.lengths.known() && !self.lengths.known();
        let paid = if s.reads > 2 && unknown { s.paid.max(f.paid) } else { 0 };
        let promise = (PROMISE * s.progress().max(s.request)).max(paid);
        let mut target = s.ahead.max(f.ahead).min(promise.max(AHEAD_MIN));
        let mut why = why;
        let share = self.asked_for(f, self.share());
        let by = |lengths: &Lengths| lengths.promise(s.progress(), PageCount(share), self.cheap(f));
        let known = by(&f.lengths).or_else(|| by(&self.lengths));
        match known {
            Some(w) if w.0 < target => (target, why) = (w.0, Why("R9 runs here ended")),
            Some(w) if w.0 > target => (target, why) = (w.0, Why("R9 runs here went on")),
            _ if s.next < s.looked && s.looked - s.next <= target.max(self.unit(f)) => {
                (target, why) = (s.looked - s.next, Why("R9 its reader looked so far"));
            }
            _ => {
                let speculation = self.asked_for(f, self.speculation_share());
                if speculation < target {
                    (target, why) = (speculation, Why("R13 share of speculation"));
                }
            }
        }
        let enough = self.queues.get(&f.device).map_or(u64::MAX, |q| {
            let flight = 2
                * u64::from(q.device.flight_max())
                * super::queue::piece_pages(&q.device, self.config.request_max, PageCount(self.unread));
            flight.max(2 * q.device.trip_pages())
        });
        if enough < target {
            (target, why) = (enough, Why("R13 all that the device can use"));
        }
        if share < target {
            (target, why) = (share, Why("R13 share of memory"));
        }
        // What the program says it needs, it needs; of what is behind that it would have said so (R15).
        let said = f.needed.until(s.next.saturating_sub(1)).filter(|_| s.course == Course::Forward);
        if let Some(end) = said.filter(|end| end - s.next < target) {
            (target, why) = (end - s.next, Why("R15 the program said how far"));
        }
        let proved = if s.reads > LOSING_READS { s.progress() } else { 0 };
        if self.losing && !f.sequential && proved < target {
            (target, why) = (proved, Why("R12 much is lost unread"));
        }
        (target, why)
    }

    /// R12: whether the cache loses more of what was fetched than speculation may waste, 15 % of what is read. Half of both is
    /// forgotten each time that as much as memory holds was read, for so long it takes to lose a page.
    ///
    /// In a file that is read at random and larger than memory, reads meet by chance, and what is fetched for such runs is gone
    /// before its turn comes. A run of more than [`LOSING_READS`] reads has as much ahead as it is long all the same.
    pub(super) fn weigh_losses(&mut self) {
        if self.read_of_late + self.vain > self.memory_believed {
            (self.read_of_late, self.vain) = (self.read_of_late / 2, self.vain / 2);
        }
        let allowed = LOST_FEW + self.read_of_late * u64::from(self.config.waste_percent) / 100;
        self.losing = self.vain > allowed;
    }

    /// Half the memory believed in, divided by the streams, and by as many more as the last epoch has brought to those that were
    /// there: what is asked for now must still be there when those to come have had their share.
    fn share(&self) -> u64 {
        let [before, earlier] = self.active_before;
        let newcomers = if earlier > 0 { before.saturating_sub(earlier) } else { 0 };
        (self.memory_believed / 2 / (self.active() + newcomers).max(1)).max(AHEAD_MIN)
    }

    /// Pages that may be asked for where `pages` may be out: half as much again on a head that seeks, for it fetches a window
    /// when the one before it is read, so that half of it is out on average.
    fn asked_for(&self, f: &super::File, pages: u64) -> u64 {
        if self.trip(f) > 0 { pages * 3 / 2 } else { pages }
    }

    /// Pages that come in an eighth of the time of a wait: half of them may be in vain (R9). 24 on hdd, 82 on s3, 3 on nfs.
    fn cheap(&self, f: &super::File) -> PageCount {
        let unit = self.queues.get(&f.device).map_or(0, |q| q.device.unit().0);
        PageCount(unit / 8 / crate::units::PAGE_SIZE)
    }

    /// Pages that one latency of the file's device carries.
    fn unit(&self, f: &super::File) -> u64 {
        self.queues.get(&f.device).map_or(0, |q| q.device.unit().0 / crate::units::PAGE_SIZE)
    }

    /// Pages that a trip of the file's head should bring; 0 where there is no head.
    pub(super) fn trip(&self, f: &super::File) -> u64 {
        self.queues.get(&f.device).map_or(0, |q| q.device.trip_pages())
    }

    /// What may be out unread, divided by the streams.
    fn speculation_share(&self) -> u64 {
        let used = self.counters.pages_used;
        let allowed = (used * u64::from(self.config.waste_percent) / 100)
            .max((2 * used + SPECULATION_MIN + self.credit.min(2 * used)).min(SPECULATION_MAX));
        (allowed.saturating_sub(self.dead) / self.active().max(1)).max(AHEAD_MIN)
    }

    /// R7, R8: asks for the next runs of a stride, together where the gaps are cheap.
    fn plan_stride(&mut self, now: Nanos, sid: StreamId, pages: Extent) {
        let share = self.share().min(self.speculation_share());
        let Some(s) = self.streams.get_mut(sid) else { return };
        let Course::Stride { period, run } = s.course else { return };
        let f = &self.files[&s.file];
        let Some(queue) = self.queues.get(&f.device) else { return };
        if f.random {
            return;
        }
        let runs_max = (share / run.max(1)).max(1);
        let reads = s.reads;
        let ends =
            f.stride_lengths.window(reads, PageCount(u64::MAX), USED_PERCENT).map_or(u64::MAX, |w| w.0);
        let runs_max = runs_max.min(ends).min(if self.losing { reads / 4 } else { u64::MAX });
        let ahead = s.ahead.min(runs_max) as i64;
        let distance = (s.frontier as i64).wrapping_sub(s.next as i64) / period;
        if distance > ahead / 2 && distance > 0 {
            return;
        }
        let gap = period.unsigned_abs().saturating_sub(run);
        let whole_stretch = 4 * PageCount(gap).bytes().0 <= 3 * queue.device.gap_max().0;
        let (id, from, end) = (s.file, s.next, f.end);
        let mut stretch: Option<Extent> = None;
        let mut asked = alloc::vec::Vec::new();
        let mut columns = alloc::vec::Vec::new();
        for k in distance.max(0)..ahead {
            let Some(start) = (from as i64).checked_add(k * period).filter(|&p| p >= 0).map(|p| p as u64)
            else {
                break;
            };
            if start >= end {
                break;
            }
            s.frontier = start.checked_add_signed(period).unwrap_or(from);
            let this = Extent::new(start, run);
            if start > 0 && f.table.has(PageBit::Used, PageIndex(start - 1)) {
                columns.push(this);
                continue;
            }
            stretch = match stretch {
                Some(before) if whole_stretch => {
                    Some(Extent::between(before.start.min(this.start), before.end().max(this.end())))
                }
                other => {
                    asked.extend(other);
                    Some(this)
                }
            };
        }
        asked.extend(stretch);
        let why = if whole_stretch { Why("R8 gaps are cheap") } else { Why("R7 stride") };
        // The reader asks again when it has come half way.
        let mark = (s.next as i64).checked_add(period * (ahead / 2)).filter(|&p| p >= 0).map(|p| p as u64);
        let mark = mark.map(|m| Extent::new(m, run));
        for column in columns {
            self.open_column(now, id, pages, column);
        }
        for window in asked {
            self.explain(now, id, pages, whole(window), Pattern::Stride, why);
            self.want(Wanted { file: id, pages: window, turn: Turn::Ahead, why, stream: Some(sid) });
        }
        if let Some(f) = self.files.get_mut(&id)
            && let Some(mark) = mark
        {
            f.table.set(PageBit::Mark, mark);
        }
    }

    /// R4 by R7: where a stride goes on right behind pages that were read, it walks the columns of a matrix: each row is a
    /// stream of its own, and is opened as one (seed 004: large reads ahead in every row, not small ones early).
    fn open_column(&mut self, now: Nanos, id: FileId, read: Extent, run: Extent) {
        let f = &self.files[&id];
        let waiting = f.forward.get(&run.start.0).copied().filter(|&sid| self.streams.get(sid).is_some());
        let sid = waiting.or_else(|| {
            let mut s = super::stream::Stream::seed(id, run.start.0 - 1, 1, now);
            s.course = Course::Forward;
            self.adopt(now, s)
        });
        let Some(sid) = sid else { return };
        let Some(s) = self.streams.get_mut(sid) else { return };
        if s.ahead == 0 {
            s.ahead = (4 * run.count.0).max(AHEAD_MIN);
        }
        self.plan_stream(now, sid, read, Why("R4 rows of a stride"));
    }

    /// Notes a window as decided, marks it, and has it fetched.
    fn fetch(&mut self, now: Nanos, sid: StreamId, asked: Asked) {
        let Asked { read, window, mark, pattern, why, urgent } = asked;
        let Some(file) = self.streams.get(sid).map(|s| s.file) else { return };
        if window.is_empty() {
            return;
        }
        let marked = mark.filter(|m| window.contains(m.start));
        let tail = marked.map_or(window.count, |m| window.end().since(m.start));
        let decision = Window { start: window.start, size: window.count, async_size: tail };
        self.explain(now, file, read, decision, pattern, why);
        if let Some(mark) = mark
            && let Some(f) = self.files.get_mut(&file)
        {
            f.table.set(PageBit::Mark, mark);
            self.touch_leaves(file, mark);
        }
        self.want(Wanted {
            file,
            pages: window,
            turn: if urgent { Turn::Urgent } else { Turn::Ahead },
            why,
            stream: Some(sid),
        });
    }

    /// R15: the program's own advice.
    pub(super) fn advised(&mut self, now: Nanos, id: FileId, pages: Extent, advice: Advice) {
        let Some(f) = self.files.get_mut(&id) else { return };
        match advice {
            Advice::Normal => (f.random, f.sequential) = (false, false),
            Advice::Sequential => (f.random, f.sequential) = (false, true),
            Advice::Random => (f.random, f.sequential) = (true, false),
            Advice::DontNeed => {
                self.forget(id, pages, true);
                self.unask(id, pages.start);
            }
            Advice::WillNeed => {
                let why = Why("R15 the program will need it");
                let pages = pages.intersection(Extent::new(0, f.end));
                f.needed.add(pages);
                let pages = Extent { count: pages.count.min(PageCount(self.memory_believed / 2)), ..pages };
                self.explain(now, id, pages, whole(pages), Pattern::Fadvise, why);
                self.want(Wanted { file: id, pages, turn: Turn::Urgent, why, stream: None });
            }
        }
    }

    /// Streams active in this epoch or the last.
    pub(super) fn active(&self) -> u64 {
        self.active_now.max(self.active_before[0])
    }

    pub(super) fn mark_active(&mut self, now: Nanos, sid: StreamId) {
        // An epoch lasts for two turns of whoever ends it: streams by long turns are active all the same.
        let turns = self.streams.get(sid).map_or(0, |s| 2 * s.interval_ns);
        if now.since(self.epoch_start).0 > EPOCH.0.max(turns) {
            self.epoch = self.epoch.wrapping_add(1);
            self.epoch_start = now;
            self.active_before = [core::mem::take(&mut self.active_now), self.active_before[0]];
            self.lost = 0;
            self.longest_ns = [0, self.longest_ns[0]];
            // What was believed lost comes back by a sixteenth an epoch (R12 recovers, it is never sticky).
            let memory = self.config.memory.0 / crate::units::PAGE_SIZE;
            self.memory_believed = (self.memory_believed + memory / 16).min(memory);
        }
        if let Some(s) = self.streams.get_mut(sid) {
            if s.epoch != self.epoch {
                s.epoch_before = s.epoch == self.epoch.wrapping_sub(1);
                s.epoch = self.epoch;
                self.active_now += 1;
            }
            self.idle.push_back((now, sid));
        }
    }

    /// Ends streams that nobody has touched for long: sixteen of their own intervals, eight of the device's latencies, and four
    /// of the longest waits of late, for whoever waits cannot read on. Those that were overtaken go after two latencies.
    fn sweep(&mut self, now: Nanos) {
        self.sweep_one(now, false);
        self.sweep_one(now, false);
        self.sweep_one(now, true);
    }

    /// Looks at the one left alone longest, among the seeds or the others.
    fn sweep_one(&mut self, now: Nanos, seeds: bool) {
        let longest_ns = self.longest_ns[0].max(self.longest_ns[1]);
        let line = if seeds { &mut self.idle_seeds } else { &mut self.idle };
        let Some(&(touched, sid)) = line.front() else { return };
        let stream =
            self.streams.get(sid).filter(|s| s.last == touched && (s.course == Course::Seed) == seeds);
        let Some(s) = stream else {
            line.pop_front();
            return;
        };
        let latency = self
            .files
            .get(&s.file)
            .and_then(|f| self.queues.get(&f.device))
            .and_then(|q| q.device.latency())
            .map_or(50_000_000, |l| l.0);
        let patience = (16 * s.interval_ns).max(8 * latency).max(10_000_000).max(4 * longest_ns);
        let patience = if seeds { patience * 64 } else { patience };
        let idle = now.since(touched).0;
        let overtaken = idle >= 2 * latency && self.overtaken(s);
        if !overtaken && idle < patience {
            return;
        }
        let line = if seeds { &mut self.idle_seeds } else { &mut self.idle };
        line.pop_front();
        self.end(sid);
    }
}

/// A window that nobody waits for.
pub(super) fn whole(pages: Extent) -> Window {
    Window { start: pages.start, size: pages.count, async_size: pages.count }
}
