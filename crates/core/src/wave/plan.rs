//! R1, R3, R11, R14, R15: what a read leads to. Whose it is says locate.rs, how far to fetch ahead of it reach.rs.
//!
//! ```text
//! read --> left a run, a stride? (ends.rs) --> its stream goes on, begins, resumes --> rest of a large read (R14)
//!      --> seed: R1 start, R9 or R11 rent     stream: its window is pushed on     stride: its next runs (strides.rs)
//! ```

use crate::decision::{Pattern, Why};
use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageCount, PageIndex};
use crate::view::View;
use crate::waits::is_wait;
use crate::wave::devices::device::Device;
use crate::wave::devices::glides::is_way;
use crate::wave::memory::shares::{AHEAD_MIN, first_window};
use crate::wave::requests::queue::Queue;
use crate::wave::streams::locate::Place;
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::stride::strides::STRIDE_READS;
use crate::wave::windows::in_step::by_chance;
use crate::wave::windows::needed::Order;
use crate::wave::windows::passes::Seen;
use crate::wave::windows::reach::PROMISE;
use crate::wave::windows::runs::Direction;
use crate::wave::{Advice, Latest, Look, Turn, Wanted, Wave};
use crate::window::Window;

/// An arrival is seen, and a wait told, about so late.
const LOOK_NS: u64 = 2_000_000;
/// A run of so few pages is one read at random, whether it is made at once or, of a mapped file, page by page.
const SHORT_MAX: u64 = 4;
/// No rule wants more ahead of a stream: 4 GiB.
const AHEAD_MAX: u64 = 1 << 20;
/// Readers that are remembered as waiting.
const WAITING_MAX: usize = 1024;
/// Why a window goes as far as its reader has looked (R9).
pub(in crate::wave) const LOOKED: &str = "R9 its reader looked so far";
/// A window as a stream asks for it: because of which read, where its mark lies, and whether somebody will wait for it soon.
pub(in crate::wave) struct Asked {
    pub(in crate::wave) read: Extent,
    pub(in crate::wave) window: Extent,
    pub(in crate::wave) mark: Option<Extent>,
    pub(in crate::wave) pattern: Pattern,
    pub(in crate::wave) why: Why,
    pub(in crate::wave) urgent: bool,
}

impl Wave {
    pub(in crate::wave) fn read(&mut self, now: Nanos, id: FileId, pages: Extent, actor: u32) {
        self.weigh_losses();
        self.waits_no_more(actor);
        let Some(f) = self.files.get_mut(&id) else { return };
        let pages = pages.intersection(Extent::new(0, f.end));
        if pages.is_empty() {
            return;
        }
        self.counters.reads += 1;
        let marked = f.table.clear(PageBit::Mark, pages).0;
        self.began_quietly(now, id, pages);
        let place = self.place(id, pages);
        let was_in = self.latest.get(&actor).and_then(|l| l.stream);
        let place = self.another_run(id, was_in, place, pages);
        let place = self.next_block(now, id, actor, place, pages);
        self.count_place(id, place, pages);
        let place = self.hop(id, actor, place, pages);
        // The mark may be that of its own window.
        let own = |s: &Stream| s.reads > 2 || s.ahead > 0;
        let in_stream = matches!(place, Place::Continues(sid) if self.streams.get(sid).is_some_and(own));
        if marked > 0
            && !in_stream
            && let Some(f) = self.files.get_mut(&id)
        {
            f.served(pages.start, marked);
        }
        self.goes_on_behind_run(id, actor, pages);
        self.leave_stride(id, actor, place, pages);
        self.leave_behind(id, actor, place, pages);
        let looks = self.look(now, id, actor, place, pages);
        self.leave_run(id, actor, place, pages);
        self.remember(actor, id, pages, None);
        let missing = pages.count.0 - self.files[&id].table.resident(pages).0;
        self.trials.missed(missing);
        self.lacks(id, actor, pages, missing);
        let useful = self.use_pages(id, pages);
        if place == Place::Stray {
            self.ledger.dead_no_more(useful);
        }
        let stream = match place {
            Place::Continues(sid) => {
                self.pass_marks(sid, pages, Seen::Read { marked: marked > 0 });
                self.advance(now, sid, pages);
                Some(sid)
            }
            Place::Repeats(sid) => {
                self.pass_marks(sid, pages, Seen::Read { marked: marked > 0 });
                Some(sid)
            }
            Place::History(history) => self.resume(now, id, pages, history),
            Place::Stray => self.begin(now, id, pages, actor, looks),
        };
        if let Some(sid) = stream {
            self.told_of(sid, pages, place, was_in, missing + useful);
        }
        if let Some(latest) = self.latest.get_mut(&actor) {
            latest.stream = stream;
            if let Some(s) = stream.and_then(|sid| self.streams.get(sid))
                && matches!(s.course, Course::Stride { .. })
                && !s.by_turns
            {
                (latest.stride, latest.off_stride) = (stream, 0);
            }
        }
        self.bring(now, id, pages);
        self.touch_leaves(id, pages);
        if let Some(sid) = stream {
            self.plan_read(now, sid, pages, (place, actor), missing);
        } else if let Some(look) = self.latest.get(&actor).and_then(|l| l.look).filter(|_| looks) {
            self.plan_looked(now, look, pages);
        }
        self.sweep(now);
    }

    /// `actor` reads pages of which so many are `missing`: he waits for those, and for what is under way.
    fn lacks(&mut self, id: FileId, actor: u32, pages: Extent, missing: u64) {
        let device = self.files[&id].device;
        let lacking = pages.count.0 - self.files[&id].table.count(PageBit::Present, pages).0;
        if lacking > 0
            && let Some(queue) = self.queues.get_mut(&device)
            && queue.lacking.len() < WAITING_MAX
        {
            queue.lacking.insert(actor, lacking);
            if missing > 0 {
                queue.waiting.insert(actor);
            }
        }
    }

    /// A read of a stream was told, by a reader who had been in `was_in` before; so many of its pages were missing, or fetched for it.
    fn told_of(&mut self, sid: StreamId, pages: Extent, place: Place, was_in: Option<StreamId>, own: u64) {
        let Some(s) = self.streams.get_mut(sid) else { return };
        let Some(f) = self.files.get_mut(&s.file) else { return };
        let since = s.returns.told(f.told.count(), was_in == Some(sid));
        let since = since.filter(|_| matches!(place, Place::Continues(_)));
        s.returns.came_by_chance(since.is_some_and(|reads| by_chance(reads, pages.count.0, f.end)));
        let unasked = s.frontier == s.next;
        s.robbed.is_trodden(own == 0 || unasked && f.table.present(PageIndex(s.next)));
        let turn = self.queues.get_mut(&f.device).map_or(0, |queue| queue.turn_of(sid));
        if s.reads <= 1 {
            s.returns.begins_with(turn);
        }
    }

    /// R9: where looks are believed, what lies between is fetched at the look.
    fn plan_looked(&mut self, now: Nanos, look: Look, pages: Extent) {
        if !look.leaves && !look.passed && self.streams.get(look.from).is_some_and(|s| s.looked == look.end) {
            self.plan_stream(now, look.from, pages, Why(LOOKED));
        }
    }

    /// R14: the reader's own read goes from page to page. It brings the first of those that are missing, as many as one
    /// read brings, unless it waits for others before them; what it comes to later is fetched for it now.
    fn bring(&mut self, now: Nanos, id: FileId, pages: Extent) {
        let Some(f) = self.files.get_mut(&id) else { return };
        let own_max = self.queues.get(&f.device).map_or(self.config.reader_max, |q| q.reader_max);
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

    fn plan_read(
        &mut self,
        now: Nanos,
        sid: StreamId,
        pages: Extent,
        (place, actor): (Place, u32),
        missing: u64,
    ) {
        let Some(s) = self.streams.get_mut(sid) else { return };
        let id = s.file;
        if place == Place::Repeats(sid) && s.reads_on(pages) {
            // What comes behind the run was asked for at its begin.
            s.heard_of(now);
            self.mark_active(now, sid);
            return;
        }
        if self.has_enough(id) {
            return;
        }
        let Some(s) = self.streams.get_mut(sid) else { return };
        match s.course {
            Course::Seed => self.plan_seed(now, sid, pages, missing),
            Course::Stride { .. } => {
                self.widen_stride(sid);
                // A head that the reader waits for would go elsewhere first: he is asked for again when he has it.
                let told = self.counters.stalls > 0;
                if missing == 0 || !told || self.files.get(&id).is_none_or(|f| !self.is_head(f)) {
                    self.plan_stride(now, sid, pages);
                }
                // What a stride visits may become streams of their own: a matrix read by columns.
                if self.streams.get(sid).is_some_and(|s| s.whole == 0) {
                    self.sow(now, id, pages, Some(actor));
                }
            }
            Course::Forward | Course::Backward => self.plan_run(now, sid, pages, (place, actor), missing),
        }
    }

    /// R2, R3, R4: the read of a run: what is ahead of it is pushed on, unless chance has brought it there.
    fn plan_run(
        &mut self,
        now: Nanos,
        sid: StreamId,
        pages: Extent,
        (place, actor): (Place, u32),
        missing: u64,
    ) {
        let Some(s) = self.streams.get_mut(sid) else { return };
        let id = s.file;
        let established = matches!(place, Place::Continues(_)) && s.reads > 2;
        if missing > 0 {
            self.promote(id, pages.start.0);
        }
        // A page of a stream that is read again, and is gone, is no stray.
        if !established && missing > 0 && !matches!(place, Place::Repeats(_)) {
            self.rent(now, id, pages);
        }
        self.pace(now, sid);
        let Some(s) = self.streams.get(sid) else { return };
        let came_to = if s.course == Course::Backward { pages.end() } else { pages.start };
        let looks_back = s.looks_back() && self.is_head(&self.files[&id]);
        let chance = s.returns.by_chance() || !established && self.files[&id].seeds.coincide();
        if chance || looks_back || self.outlived(s, came_to.0) {
            return;
        }
        let early =
            missing > 0 && s.waits.first_missed() && s.reads == 2 && self.opens_early(&self.files[&id], s);
        let opens = missing > 0 && established || early;
        let Some(s) = self.streams.get_mut(sid) else { return };
        s.robbed.is_over();
        // Who reads again where he was with his second read is counted once.
        let counted = early && s.waits.opens_early();
        if s.ahead == 0 {
            s.ahead = first_window(s.request);
        }
        let why = if opens { Why("R3 waited") } else { Why("R2 next") };
        let why = if matches!(place, Place::History(_)) { Why("R4 context") } else { why };
        if counted && let Some(f) = self.files.get_mut(&id) {
            f.taught.opened_early();
        }
        if opens {
            self.ask_again(sid);
            self.grow(sid);
        }
        self.plan_stream(now, sid, pages, why);
        if opens {
            self.plan_sisters(now, sid, pages);
        }
        if !established {
            self.open_others(now, sid, id, pages, (place, actor));
        }
    }

    /// R7, R10: a run goes on: others are opened that go in step with it, and the rows behind if it is the row of a matrix.
    fn open_others(
        &mut self,
        now: Nanos,
        sid: StreamId,
        id: FileId,
        pages: Extent,
        (place, actor): (Place, u32),
    ) {
        // Who reads on at once goes no round.
        let stays = self.streams.get(sid).is_some_and(|s| s.returns.stayed() > 0);
        if !stays || !self.files[&id].has_one_reader() {
            self.open_in_step(now, id, pages);
        }
        if !matches!(place, Place::Repeats(_)) {
            self.open_rows(now, id, pages, actor, matches!(place, Place::History(_)));
        }
    }

    /// R13: whether nothing is asked for ahead in this file: readers fill its device by themselves, and memory was seen to be short, so that some of
    /// what came before them would be gone. Where there is room it may as well come before them.
    fn has_enough(&self, id: FileId) -> bool {
        let queue = self.files.get(&id).and_then(|f| self.queues.get(&f.device));
        self.belief.pages() < self.memory() && queue.is_some_and(Queue::is_filled)
    }

    /// A reader is heard of, perhaps for the first time since he got what he had waited for.
    fn pace(&mut self, now: Nanos, sid: StreamId) {
        let Some(s) = self.streams.get_mut(sid) else { return };
        let latency = self.files.get(&s.file).and_then(|f| self.queues.get(&f.device)?.device.latency());
        s.pace.goes_on(now, latency);
    }

    /// Who reads again, or goes, waits for nothing any more, though nobody told that his wait ended.
    pub(in crate::wave) fn waits_no_more(&mut self, actor: u32) {
        let file = self.latest.get(&actor).and_then(|latest| self.files.get(&latest.file));
        if let Some(queue) = file.and_then(|f| self.queues.get_mut(&f.device)) {
            queue.has_his(actor);
        }
    }

    /// A read took so long, and ended then.
    pub(in crate::wave) fn waited(
        &mut self,
        now: Nanos,
        id: FileId,
        pages: Extent,
        actor: u32,
        (took, ended): (Nanos, Nanos),
    ) {
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
        if let Some(queue) = self.queues.get_mut(&device)
            && queue.has_his(actor)
        {
            queue.waits_long = took.0 >= 2 * queue.device.best_of(pages.count.bytes()).max(1);
        }
        self.touch_leaves(latest.file, pages);
        let latency = self.queues.get(&device).and_then(|q| q.device.latency());
        if !is_wait(took, pages.count, latency) {
            return;
        }
        self.counters.stalls += 1;
        self.counters.stalled_ns += took.0;
        self.epochs.waited(took);
        self.time(now, device, pages, latest, took);
        let Some(sid) = latest.stream else { return };
        let began = Nanos(ended.0.saturating_sub(took.0 + took.0 / 4 + LOOK_NS));
        let late = self.arrived_since(latest.file, pages, began);
        let device = self.queues.get(&device).map(|queue| &queue.device);
        let latency = device.and_then(Device::latency).unwrap_or_default();
        let carrying = device.map_or(0, |device| device.carrying_ns(pages.count.bytes().0));
        // Gone before it was read, as far as it took what reading it anew takes; while nobody knows what that is, anything may have held him up.
        if latest.believed && !late && latency.0 > 0 && 2 * took.0 > latency.0 {
            self.thrashed(now, sid, pages);
            return;
        }
        if latest.late || late {
            self.counters.pages_late += pages.count.0;
        }
        let Some(s) = self.streams.get_mut(sid) else { return };
        s.pace.served(now);
        if s.reads > 1 && is_way(took, carrying, latency.0) {
            s.returns.is_disturbed();
        }
        match s.course {
            // Who only looks ahead (R9) does not go on there.
            Course::Forward | Course::Backward if latest.missing == 0 && latest.look.is_none() => {
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

    /// A wait times the device, where all that was waited for had to be brought; and says whether who reads on waits for it.
    fn time(&mut self, now: Nanos, device: u64, pages: Extent, latest: Latest, took: Nanos) {
        if latest.missing == pages.count.0
            && let Some(queue) = self.queues.get_mut(&device)
            && pages.count <= queue.reader_max
        {
            // Where others wait too, a time says more of them than of the device, unless it is the shortest so far.
            let news = queue.device.latency().is_none_or(|latency| took < latency);
            if queue.waiting.is_empty() || news {
                queue.device.timed(now, pages.count.bytes(), took);
                // A head that stood before it went nowhere: what it took tells of no way.
                let glided = queue.device.glided(pages.count.bytes(), took, latest.behind);
                let seed = |s: &Stream| s.course == Course::Seed;
                if !glided && latest.stream.and_then(|sid| self.streams.get(sid)).is_some_and(seed) {
                    queue.device.timed_alone(took);
                    queue.device.read_beside(now, pages.count.bytes(), took);
                }
            }
        }
        // Who reads on tells whether he has to wait, also where a page of what he reads was there.
        let reads_on = latest.stream.and_then(|sid| self.streams.get(sid)).is_some_and(|s| s.reads > 1);
        if latest.missing > 0
            && reads_on
            && let Some(queue) = self.queues.get_mut(&device)
        {
            let all = latest.missing == pages.count.0 && queue.waiting.is_empty();
            queue.device.read_on(PageCount(latest.missing).bytes(), took, all);
        }
    }

    /// R3: the reader waited. Fourfold while small, then twofold (spec 3.2's shape), without a ceiling of its own: R13
    /// has those. A stride is taken to go on as long as a run is. Streams of one file learn from one another: the next to begin
    /// starts where this one has come to.
    fn grow(&mut self, sid: StreamId) {
        let Some(s) = self.streams.get(sid) else { return };
        let Some(f) = self.files.get(&s.file) else { return };
        let unit = self.unit(f);
        let overlaps = self.overlaps(f);
        let Some(s) = self.streams.get_mut(sid) else { return };
        s.waits.waited();
        if let Course::Stride { period, .. } = s.course {
            // Three reads at equal distance may be chance; the fourth came where it was expected. To a head each is a trip.
            let promise = if s.reads > STRIDE_READS && overlaps { PROMISE } else { 2 };
            let known = promise * s.ahead.min(s.reads);
            let worth = if s.reads > STRIDE_READS { unit / period.unsigned_abs().max(1) } else { 0 };
            s.ahead = known.max(worth);
            return;
        }
        s.ahead = (if s.ahead < 256 { s.ahead * 4 } else { s.ahead * 2 }).max(unit).min(AHEAD_MAX);
        self.ledger.waited(unit, s.waits.pay(unit));
        let ahead = s.ahead;
        if let Some(f) = self.files.get_mut(&s.file) {
            f.taught.waited(ahead, unit);
        }
    }

    /// R1, R9, R11: the first read of what may become a stream.
    fn plan_seed(&mut self, now: Nanos, sid: StreamId, pages: Extent, missing: u64) {
        let Some(s) = self.streams.get_mut(sid) else { return };
        s.waits.first(missing > 0);
        let id = s.file;
        let f = &self.files[&id];
        if f.said.at_random() || self.holds_back() && !f.said.in_order() {
            return;
        }
        if missing > 0 && self.buy_whole(now, id, pages) {
            return;
        }
        if missing > 0 && self.bring_near(now, id, sid, pages) {
            self.rent(now, id, pages);
            return;
        }
        let n = pages.count.0;
        let (ahead, why, pattern, guessed) = self.first_ahead(sid, pages);
        if ahead > 0 {
            let Some(s) = self.streams.get_mut(sid) else { return };
            s.ahead = ahead;
            if let Some(f) = self.files.get_mut(&id).filter(|_| guessed) {
                f.runs.guessed();
            }
            let Some(s) = self.streams.get_mut(sid) else { return };
            let (start, end) = (s.frontier, (s.next + ahead).min(self.files[&id].end));
            s.frontier = s.frontier.max(end);
            let window = Extent::between(PageIndex(start), PageIndex(end));
            let mark = Some(Extent::new(start, 1));
            self.fetch(now, sid, Asked { read: pages, window, mark, pattern, why, urgent: true });
            let short = n + ahead <= SHORT_MAX && self.files[&id].has_one_reader();
            let goes_on = !short && self.files[&id].seeds.go_on_of_late(self.latest.len());
            if goes_on || !self.fills_little() {
                return;
            }
        }
        // Where nothing goes on any more he pays rent in spite of runs that ended: what he reads may be thick.
        if missing > 0 {
            self.rent(now, id, pages);
        }
    }

    /// R1, R9, R11: pages that are fetched behind the first read of a stream, why, and whether that is a guess by runs of other files. Where none of
    /// the latest streams went on no more than a wait is worth: runs that ended before say nothing of who looks up single pages now.
    fn first_ahead(&self, sid: StreamId, pages: Extent) -> (u64, Why, Pattern, bool) {
        let nothing = (0, Why("R11"), Pattern::Cluster, false);
        let Some(s) = self.streams.get(sid) else { return nothing };
        let f = &self.files[&s.file];
        let n = pages.count.0;
        if pages.start.0 == 0
            && let Some(rest) = self.rest_of_file(f, n)
        {
            return (rest, Why("R11 files here are read through"), Pattern::Initial, false);
        }
        let (cap, wait) = (self.share(), self.wait_pages(f));
        // Where looks are believed (R9) nothing is fetched in vain to find longer runs: the look will tell.
        let longest = if f.runs.believe_looks() { f.runs.telling().longest().saturating_sub(n) } else { cap };
        let own = f.runs.telling().promise(n, PageCount(cap.min(longest)), wait);
        let others = own.is_none() && f.runs.believe_others();
        let known = if others { self.ended.by(Direction::Up).promise(n, PageCount(cap), wait) } else { own };
        match known {
            Some(w) if w.0 > 0 => {
                let ahead = self.enough_between_runs(f, s).map_or(w.0, |enough| w.0.min(enough));
                let ahead = if f.seeds.go_on_of_late(self.latest.len()) { ahead } else { ahead.min(wait.0) };
                (ahead, Why("R9 runs here went on"), Pattern::Initial, others)
            }
            _ if f.said.in_order() || pages.start.0 == 0 && known.is_none() => {
                (first_window(n), Why("R1 start"), Pattern::Initial, others)
            }
            _ => nothing,
        }
    }

    /// Pushes a stream's frontier as far as the rules want it.
    pub(in crate::wave) fn plan_stream(&mut self, now: Nanos, sid: StreamId, pages: Extent, why: Why) {
        let came = self.streams.get(sid).map_or(0, Stream::progress);
        self.plan_stream_as(now, sid, pages, why, came);
    }

    /// The same, held against runs that ended (R9) as one that has come so many pages.
    pub(in crate::wave) fn plan_stream_as(
        &mut self,
        now: Nanos,
        sid: StreamId,
        pages: Extent,
        why: Why,
        came: u64,
    ) {
        if self.follows(sid) {
            return;
        }
        let Some(s) = self.streams.get(sid) else { return };
        let f = &self.files[&s.file];
        if f.said.at_random() || self.passes_too_much(s) {
            return;
        }
        let end_of_file = f.end;
        self.press(sid);
        let (target, why) = self.target(sid, why, came);
        if target == 0 {
            // That he waited counts when he may have something.
            return;
        }
        let Some(s) = self.streams.get(sid) else { return };
        let f = &self.files[&s.file];
        let step = if self.stays(s) || s.manner.hops() { target.div_ceil(2) } else { self.step(f, target) };
        let target = self.cut(f, s, target, why);
        let little = if self.trip(f) > 0 { step / 16 } else { step / 4 };
        let Some(s) = self.streams.get_mut(sid) else { return };
        let out = s.out();
        let urgent = s.waits.take_waited() || out == 0;
        // What it may not have it need not want: else waits would add up to a wish that no later share could bound.
        s.ahead = s.ahead.min(2 * target.max(AHEAD_MIN));
        // What it may have changes with every stream that comes and goes: a little less than a step is worth asking for, since
        // a reader in a hurry is past the next mark before that is seen. A trip of a head should be a whole one. The rest of a run that ends
        // there is asked for at once: who comes down from its end begins with it.
        let rest = why.0 == LOOKED && target > out;
        if target < out + step - little && !rest {
            self.mark_later(sid, target.saturating_sub(step).min(out));
            return;
        }
        let Some(s) = self.streams.get_mut(sid) else { return };
        let (window, mark) = s.push_on(target, step, end_of_file);
        let (id, next, mark_width, first_of_file) = (s.file, s.next, s.manner.mark_pages(), s.first == 0);
        let down = s.course == Course::Backward;
        let pattern = match (down, why.0) {
            (true, _) => Pattern::Backwards,
            (_, "R4 context") => Pattern::Context,
            (_, "R12 thrashed") => Pattern::Thrash,
            _ if s.reads <= 2 && first_of_file => Pattern::Initial,
            _ => Pattern::Subsequent,
        };
        let mark = Some(Extent::new(mark, mark_width));
        if urgent
            && !down
            && let Some(queue) = self.files.get(&id).and_then(|f| self.queues.get_mut(&f.device))
        {
            queue.hurry(sid, id, Extent::between(PageIndex(next.min(window.start.0)), window.start));
        }
        self.fetch(now, sid, Asked { read: pages, window, mark, pattern, why, urgent });
    }

    /// A stream has enough ahead of it. It will be time again where no more than `left` pages of that are.
    fn mark_later(&mut self, sid: StreamId, left: u64) {
        let Some(s) = self.streams.get(sid).filter(|s| s.out() > 0) else { return };
        let mark = if s.course == Course::Backward {
            (s.frontier + left).min(s.next.saturating_sub(1))
        } else {
            (s.frontier - left).max(s.next)
        };
        let (file, mark) = (s.file, Extent::new(mark, s.manner.mark_pages()));
        self.mark(file, mark);
    }

    /// Notes a window as decided, marks it, and has it fetched.
    pub(in crate::wave) fn fetch(&mut self, now: Nanos, sid: StreamId, asked: Asked) {
        let Asked { read, window, mark, pattern, why, urgent } = asked;
        let Some(file) = self.streams.get(sid).map(|s| s.file) else { return };
        if window.is_empty() {
            return;
        }
        let marked = mark.filter(|m| window.contains(m.start));
        let tail = marked.map_or(window.count, |m| window.end().since(m.start));
        let decision = Window { start: window.start, size: window.count, async_size: tail };
        self.explain(now, file, read, decision, pattern, why);
        if let Some(mark) = mark {
            self.mark(file, mark);
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
    pub(in crate::wave) fn advised(&mut self, now: Nanos, id: FileId, pages: Extent, advice: Advice) {
        let Some(f) = self.files.get_mut(&id) else { return };
        match advice {
            Advice::Normal => f.said.reads(Order::Unsaid),
            Advice::Sequential => f.said.reads(Order::Sequential),
            Advice::Random => f.said.reads(Order::Random),
            Advice::DontNeed => {
                self.forget(id, pages, true);
                self.unask(id, pages.start);
            }
            Advice::WillNeed => {
                let why = Why("R15 the program will need it");
                let pages = pages.intersection(Extent::new(0, f.end));
                if pages.is_empty() {
                    return;
                }
                f.said.needs(pages);
                let pages = Extent { count: pages.count.min(PageCount(self.room())), ..pages };
                self.explain(now, id, pages, whole(pages), Pattern::Fadvise, why);
                self.want(Wanted { file: id, pages, turn: Turn::Urgent, why, stream: None });
            }
        }
    }
}

impl Stream {
    /// Pushes its frontier to `target` pages ahead of it: the window to fetch, and the page with which it will be time again, a `step` on.
    fn push_on(&mut self, target: u64, step: u64, end_of_file: u64) -> (Extent, u64) {
        let before = self.frontier;
        if self.course == Course::Backward {
            self.frontier = self.next.saturating_sub(target);
            let window = Extent::between(PageIndex(self.frontier), PageIndex(before));
            return (window, self.next.saturating_sub(step.max(1)));
        }
        let end = self.next.saturating_add(target);
        // A short rest of the file is fetched with the window (spec 5.13).
        let end = if end_of_file.saturating_sub(end) <= step { end_of_file } else { end.min(end_of_file) };
        self.frontier = before.max(end);
        (Extent::between(PageIndex(before), PageIndex(end)), self.next + step - 1)
    }
}

/// A window that nobody waits for.
pub(in crate::wave) fn whole(pages: Extent) -> Window {
    Window { start: pages.start, size: pages.count, async_size: pages.count }
}
