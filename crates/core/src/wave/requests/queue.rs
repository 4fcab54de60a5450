//! What was decided and not yet sent, and in which order it goes out.
//!
//! ```text
//!  demand   somebody waits for it, or it lies beside what a reader of a crowded head brings himself     sent at once
//!  near     it continues the latest request, or one in flight: a head is there already                   \
//!  urgent   its reader waits, or will at its next read                                                     > while there is room
//!  ahead    nobody waits for it; held back where readers fill the device by themselves                   /
//! ```
//!
//! Worked example (test `a_trip_is_finished_before_the_head_moves_on`): urgent [100,132) and [900,932), the latest request ended
//! at 900: [900,932) goes first, then [100,132).
//!
//! Readers fill a device by themselves where what they wait for keeps it busy for longer than its latency, so that each waits for the others: nfs carries
//! 61 pages in its latency of 1 ms; sixteen readers of 64 KiB want 256 pages at once, and each of them has 240 of others before its own 16, which take
//! 4 ms instead of 1.3.

use crate::decision::Why;
use crate::units::{Bytes, Extent, FileId, Nanos, PageCount, PageIndex};
use crate::wave::Config;
use crate::wave::devices::device::{Device, PIECE_MIN, Sent};
use crate::wave::footprint::entries;
use crate::wave::regions::through::Through;
use crate::wave::regions::wholes::Wholes;
use crate::wave::streams::stream::StreamId;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::mem::size_of;

/// Trips that a head may stay with one reader while others wait: 13 MB and 136 ms on hdd; the slices of CFQ were of 100 ms.
pub(in crate::wave) const SLICE_TRIPS: u64 = 4;

/// Places of parts in a line before those of parts that were taken are looked for.
const ORDER_MIN: usize = 1024;
/// Requests that a stream has to itself before what it may have is cut so that all of it goes out at once.
const SPARE: u64 = 16;

/// Whose turn it is: earlier ones go first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::wave) enum Turn {
    /// Somebody waits for it.
    Demand,
    /// Its reader has come to it and brings the first of it himself, on a head that others wait for too: it is sent at once,
    /// so that the head finds both together.
    Beside,
    /// Its reader waits, or will at its next read.
    Urgent,
    /// Nobody waits for it.
    Ahead,
}

/// A part of a window that was decided and not yet sent.
pub(in crate::wave) struct Wanted {
    pub(in crate::wave) file: FileId,
    pub(in crate::wave) pages: Extent,
    pub(in crate::wave) turn: Turn,
    pub(in crate::wave) why: Why,
    /// The stream that it is for: if that ends, nobody wants it.
    pub(in crate::wave) stream: Option<StreamId>,
}

impl Wanted {
    /// Its pages, where nobody waits for them and no stream is to come to them.
    fn needed(&self) -> u64 {
        if self.stream.is_none() && self.turn == Turn::Urgent { self.pages.count.0 } else { 0 }
    }
}

/// Parts of windows in the order in which they were decided; any of them can be found by where it starts.
#[derive(Default)]
pub(in crate::wave) struct Line {
    /// Where parts start, the oldest first; some of them were taken out of their turn. At most `order_max`, twice the parts.
    order: VecDeque<(FileId, u64)>,
    order_max: usize,
    parts: BTreeMap<(FileId, u64), VecDeque<Wanted>>,
    /// Pages of the parts that are for no stream: what the program said that it needs, mostly.
    needed: u64,
}

impl Line {
    pub(in crate::wave) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(in crate::wave) fn push_back(&mut self, wanted: Wanted) {
        let key = (wanted.file, wanted.pages.start.0);
        self.order.push_back(key);
        self.needed += wanted.needed();
        self.parts.entry(key).or_default().push_back(wanted);
        self.tidy();
    }

    pub(in crate::wave) fn push_front(&mut self, wanted: Wanted) {
        let key = (wanted.file, wanted.pages.start.0);
        self.order.push_front(key);
        self.needed += wanted.needed();
        self.parts.entry(key).or_default().push_front(wanted);
        self.tidy();
    }

    /// Forgets where parts were that have been taken.
    fn tidy(&mut self) {
        if self.order.len() > self.order_max {
            let mut left: BTreeMap<_, _> =
                self.parts.iter().map(|(&key, parts)| (key, parts.len())).collect();
            self.order.retain(|key| {
                left.get_mut(key).filter(|count| **count > 0).map(|count| *count -= 1).is_some()
            });
            self.order_max = ORDER_MIN.max(2 * self.order.len());
        }
    }

    /// Bytes that it takes, about.
    fn bytes_of_memory(&self) -> usize {
        let part = size_of::<VecDeque<Wanted>>() + size_of::<Wanted>();
        self.order.capacity() * size_of::<(FileId, u64)>()
            + self.parts.len() * (2 * size_of::<(FileId, u64)>() + part)
    }

    /// Forgets all parts of a file.
    fn close(&mut self, file: FileId) {
        while let Some((&key, _)) = self.parts.range((file, 0)..).next().filter(|(key, _)| key.0 == file) {
            self.take(key);
        }
    }

    /// Where the oldest part starts.
    pub(in crate::wave) fn oldest(&self) -> Option<(FileId, u64)> {
        self.order.iter().find(|key| self.parts.contains_key(key)).copied()
    }

    /// Whether a part starts at `key`.
    fn has(&self, key: (FileId, u64)) -> bool {
        self.parts.contains_key(&key)
    }

    /// The part that starts at `key`.
    pub(in crate::wave) fn take(&mut self, key: (FileId, u64)) -> Option<Wanted> {
        let parts = self.parts.get_mut(&key)?;
        let wanted = parts.pop_front()?;
        if parts.is_empty() {
            self.parts.remove(&key);
        }
        self.needed -= wanted.needed();
        Some(wanted)
    }

    /// Where the part starts that holds `page`.
    fn holds(&self, file: FileId, page: u64) -> Option<(FileId, u64)> {
        let (&key, parts) = self.parts.range(..=(file, page)).next_back()?;
        (key.0 == file && parts[0].pages.end().0 > page).then_some(key)
    }

    /// The part that holds `page` or starts not far behind it.
    pub(in crate::wave) fn take_around(&mut self, file: FileId, page: u64) -> Option<Wanted> {
        let near = || Some(*self.parts.range((file, page)..=(file, page.saturating_add(64))).next()?.0);
        let key = self.holds(file, page).or_else(near)?;
        self.take(key)
    }

    /// The first part for `stream` that starts within these pages, or before them and holds the first.
    fn take_of(&mut self, stream: StreamId, file: FileId, pages: Extent) -> Option<Wanted> {
        let from = self.holds(file, pages.start.0).unwrap_or((file, pages.start.0));
        let within = self.parts.range(from..(file, pages.end().0));
        let key = *within.into_iter().find(|(_, parts)| parts[0].stream == Some(stream))?.0;
        self.take(key)
    }

    /// The oldest part. Entries of `order` whose part was taken by [`Line::take`] are passed over.
    pub(in crate::wave) fn take_oldest(&mut self) -> Option<Wanted> {
        while let Some(key) = self.order.pop_front() {
            if let Some(wanted) = self.take(key) {
                return Some(wanted);
            }
        }
        None
    }
}

/// Demand in its order; else what starts at `near`, urgent or not; else what is urgent; else the rest, unless memory is full of the like. None of
/// that where it is held back.
pub(in crate::wave) fn take_next(
    [demand, urgent]: [&mut Line; 2],
    mut ahead: Option<&mut Line>,
    near: Option<(FileId, u64)>,
    full: bool,
) -> Option<Wanted> {
    demand
        .take_oldest()
        .or_else(|| near.and_then(|key| urgent.take(key).or_else(|| ahead.as_mut()?.take(key))))
        .or_else(|| urgent.take_oldest())
        .or_else(|| ahead.filter(|_| !full)?.take_oldest())
}

impl Queue {
    /// Bytes that it takes, about.
    pub(in crate::wave) fn bytes_of_memory(&self) -> usize {
        let lines: usize =
            [&self.demand, &self.urgent, &self.ahead].into_iter().map(Line::bytes_of_memory).sum();
        lines
            + entries::<u32, u64>(self.waiting.len() + self.lacking.len())
            + entries::<(FileId, u64), u64>(self.ends.len())
    }

    /// A reader waits for nothing any more; says whether pages were to come to him.
    pub(in crate::wave) fn has_his(&mut self, actor: u32) -> bool {
        self.waiting.remove(&actor);
        self.lacking.remove(&actor).is_some()
    }

    /// A file is no more: nothing of it is wanted.
    pub(in crate::wave) fn close(&mut self, file: FileId) {
        [&mut self.demand, &mut self.urgent, &mut self.ahead].into_iter().for_each(|line| line.close(file));
    }

    /// Nothing is wanted of the device, and nothing known of it.
    pub(in crate::wave) fn new(config: &Config) -> Self {
        Self {
            device: Device::default(),
            request_max: config.request_max,
            reader_max: config.reader_max,
            demand: Line::default(),
            urgent: Line::default(),
            ahead: Line::default(),
            wholes: Wholes::default(),
            through: Through::default(),
            waiting: BTreeSet::new(),
            lacking: BTreeMap::new(),
            waits_long: false,
            last_end: (FileId(0), 0),
            run: 0,
            came: (FileId(0), 0),
            ends: BTreeMap::new(),
            reading: None,
            turns: 0,
        }
    }

    /// Whether all that was decided was sent.
    pub(in crate::wave) fn is_empty(&self) -> bool {
        [&self.demand, &self.urgent, &self.ahead].iter().all(|line| line.is_empty())
    }

    /// Whether a page was asked for and not sent.
    pub(in crate::wave) fn wants(&self, file: FileId, page: u64) -> bool {
        [&self.demand, &self.urgent, &self.ahead].iter().any(|line| line.holds(file, page).is_some())
    }

    /// What a stream has asked for before and was not sent becomes urgent, for its reader comes to it first.
    pub(in crate::wave) fn hurry(&mut self, stream: StreamId, file: FileId, pages: Extent) {
        while let Some(part) = self.ahead.take_of(stream, file, pages) {
            self.urgent.push_back(Wanted { turn: Turn::Urgent, ..part });
        }
    }

    /// What a stream wants of these pages is not wanted any more.
    pub(in crate::wave) fn let_go(&mut self, stream: StreamId, file: FileId, pages: Extent) {
        for line in [&mut self.urgent, &mut self.ahead] {
            while line.take_of(stream, file, pages).is_some() {}
        }
    }

    /// A stream is read; returns its turn among the streams of the device: the same as for its last read if none was read meanwhile.
    pub(in crate::wave) fn turn_of(&mut self, stream: StreamId) -> u64 {
        self.turns += u64::from(self.reading.replace(stream) != Some(stream));
        self.turns
    }

    /// Whether a stream that has had this turn since it began has been read alone, and need not wait to read on.
    pub(in crate::wave) fn glides_with(&self, turn: u64) -> bool {
        self.device.glides() && self.turns == turn
    }

    /// Whether several readers wait for one head.
    pub(in crate::wave) fn crowded_head(&self) -> bool {
        self.waiting.len() > 1 && self.device.trip_pages() > 0
    }

    /// Whether readers fill the device by themselves, and it is no head: each waits for the others, who lack twice what passes in a latency
    /// and more. What is fetched ahead there comes no sooner than they would have come for it, and they come later.
    ///
    /// O(readers that wait), 1,024 at most, and only while they wait for long.
    pub(in crate::wave) fn is_filled(&self) -> bool {
        self.waits_long && self.device.trip_pages() == 0 && {
            let pages: u64 = self.lacking.values().sum();
            let others = pages - pages / (self.lacking.len() as u64).max(1);
            PageCount(others).bytes().0 >= 2 * self.device.bytes_per_latency().0
        }
    }

    /// What continues a request that is in flight, where several readers wait for a head: it is there already, and stays for as long
    /// as the reader there takes what comes, up to a slice.
    pub(in crate::wave) fn continued(&self) -> Option<(FileId, u64)> {
        if !self.crowded_head() {
            return None;
        }
        let slice = SLICE_TRIPS * self.device.trip_pages();
        self.ends.iter().find(|&(&key, &run)| run < slice && self.wants_from(key)).map(|(&key, _)| key)
    }

    /// Whether a part that nobody waits for yet starts at `key`.
    fn wants_from(&self, key: (FileId, u64)) -> bool {
        self.urgent.has(key) || self.ahead.has(key)
    }

    /// What continues the latest request on its way to a head where nobody waits, up to [`Device::joined_max`]: a driver may make one of the
    /// two.
    pub(in crate::wave) fn joined(&self) -> Option<(FileId, u64)> {
        let more = self.waiting.is_empty() && self.run < self.device.joined_max().0;
        (more && self.ends.contains_key(&self.last_end) && self.wants_from(self.last_end))
            .then_some(self.last_end)
    }

    /// A request for `pages` goes out.
    pub(in crate::wave) fn sent(&mut self, now: Nanos, file: FileId, pages: Extent) -> Sent {
        let begin = (file, pages.start.0);
        let follows = self.last_end == begin;
        self.run = if follows { self.run + pages.count.0 } else { pages.count.0 };
        self.last_end = (file, pages.end().0);
        // What continues a request that is on its way is no jump either: a head is on its way there.
        let continued = self.ends.remove(&begin);
        self.ends.insert(self.last_end, continued.unwrap_or(0) + pages.count.0);
        self.device.issued(now, !follows && continued.is_none())
    }

    /// It has come back; says whether it continues the one that came before it, whichever of them went out first.
    pub(in crate::wave) fn back(&mut self, file: FileId, pages: Extent) -> bool {
        self.ends.remove(&(file, pages.end().0));
        core::mem::replace(&mut self.came, (file, pages.end().0)) == (file, pages.start.0)
    }

    /// Whether what went out or came back last ended right before `page`: a head stands there.
    pub(in crate::wave) fn stands_before(&self, file: FileId, page: PageIndex) -> bool {
        [self.last_end, self.came].contains(&(file, page.0))
    }

    pub(in crate::wave) fn line(&mut self, turn: Turn) -> &mut Line {
        match turn {
            Turn::Demand | Turn::Beside => &mut self.demand,
            Turn::Urgent => &mut self.urgent,
            Turn::Ahead => &mut self.ahead,
        }
    }
}

pub(in crate::wave) struct Queue {
    pub(in crate::wave) device: Device,
    /// Pages of our requests at most, and of what a reader's own read brings.
    pub(in crate::wave) request_max: PageCount,
    pub(in crate::wave) reader_max: PageCount,
    pub(in crate::wave) demand: Line,
    pub(in crate::wave) urgent: Line,
    pub(in crate::wave) ahead: Line,
    /// What files of it that were left say of the next (R11).
    pub(in crate::wave) wholes: Wholes,
    /// Whether those were read from begin to end (R11).
    pub(in crate::wave) through: Through,
    /// Readers that wait for the device.
    pub(in crate::wave) waiting: BTreeSet<u32>,
    /// Readers to whom pages are to come, under way or not, and how many.
    pub(in crate::wave) lacking: BTreeMap<u32, u64>,
    /// Whether the latest of them to have got his took twice the time that his pages take at best.
    pub(in crate::wave) waits_long: bool,
    /// Where the latest request ended, and how many pages have gone out since it last jumped.
    pub(in crate::wave) last_end: (FileId, u64),
    pub(in crate::wave) run: u64,
    /// Where the latest arrival ended.
    came: (FileId, u64),
    /// Where requests in flight end, and how many pages one after the other have gone out up to there.
    pub(in crate::wave) ends: BTreeMap<(FileId, u64), u64>,
    /// The stream that was read last, and how often another one was than before.
    reading: Option<StreamId>,
    turns: u64,
}

/// A request together with what the reader brings himself, where they meet: `own` before it or behind it, `max` pages at most.
///
/// The two go out at the same moment, and a head that gets the second part first has to come back: so ours has all of it, and
/// whichever is late finds its pages under way. Reader `[170, 171)`, ours `[171, 188)`: `[170, 188)`.
pub(in crate::wave) fn together(own: Extent, ours: Extent, max: PageCount) -> Extent {
    if own.end() == ours.start && own.count < max {
        Extent { start: own.start, count: PageCount((own.count.0 + ours.count.0).min(max.0)) }
    } else if ours.end() == own.start && own.count.0 + ours.count.0 <= max.0 {
        Extent::between(ours.start, own.end())
    } else {
        ours
    }
}

/// Pages of one request: an eighth of what passes in one latency, so that there are at least eight to overlap; where half of those that may be
/// under way are, and larger ones leave none of them idle, up to the next power of two: 52 pages would be 32 for ever where sixteen at once carry
/// no more because they are of 32. Where small requests leave the device idle, up to that of half as many more: 30 pages would be 32 for ever where
/// eight at once carry no more than those. While that is not known yet, a thirty-second of what is out `unread`, or of twice that where answers are late,
/// since it will be more when they come, up to the `most` that may be out; or where requests overlap, of what is wanted for no stream the part of
/// each request that there is room for. Up to half of what one connection carries in a latency, at least 128 KiB, or more where that was seen to bring more (sizes.rs) up to a
/// thirty-second of what may be out, at most what the driver can send it.
///
/// s3 before its rate is known: 2.7 MB / 8 or 256 KiB, of which 64 connections carry 0.5 GB/s; with 8 MiB out 512 KiB, then 1 MiB;
/// 1 MiB at once where the program said that it needs 64 MiB.
pub(in crate::wave) fn piece_pages(
    queue: &Queue,
    wanted: Option<&Wanted>,
    unread: PageCount,
    most: PageCount,
) -> u64 {
    let (device, request_max) = (&queue.device, queue.request_max.0);
    let passing = PageCount::holding(Bytes(device.bytes_per_latency().0 / 8)).0;
    let carried = PageCount::holding(Bytes(device.unit().0 / 2)).0;
    let needed = wanted.filter(|_| device.trip_pages() == 0).map_or(0, Wanted::needed);
    let each = if needed > 0 { (queue.urgent.needed + needed) / u64::from(device.room()) } else { 0 };
    let out = if device.is_far() { (2 * unread.0).min(most.0) } else { unread.0 };
    let tried = device.piece_min().min(most.0 / 32);
    let busy = device.trip_pages() == 0 && 2 * device.room() <= device.flight_max();
    let more = if device.starves() { passing + passing / 2 } else { passing };
    let passing = if busy { more.next_power_of_two() } else { passing };
    let worth = passing.max(carried.min(each.max(out / 32))).max(tried).max(1);
    let worth = if worth.is_power_of_two() { worth } else { worth.next_power_of_two() / 2 };
    worth.clamp(PIECE_MIN.0, request_max.max(PIECE_MIN.0)).min(request_max.max(1))
}

/// Pages of a request with which `most` pages go out over all that the device takes at once, where each of few `streams` has many of
/// those: a larger one would only come later. 32 for one reader of s3 where memory has room for 1024. No limit for a head, nor where a stream
/// has fewer than sixteen: windows would be cut into more requests than there is room for.
pub(in crate::wave) fn spread_pages(queue: &Queue, most: PageCount, streams: u64) -> u64 {
    let at_once = u64::from(queue.device.flight_max());
    if queue.device.trip_pages() > 0 || SPARE * streams > at_once {
        return u64::MAX;
    }
    (most.0 / at_once).max(1).next_power_of_two().max(PIECE_MIN.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wave::streams::stream::{Stream, Streams};

    fn part(start: u64) -> Wanted {
        let pages = Extent::new(start, 32);
        Wanted { file: FileId(1), pages, turn: Turn::Urgent, why: Why("R2 next"), stream: None }
    }

    #[test]
    fn what_memory_holds_goes_out_at_once() {
        let mut queue = Queue::new(&Config::default());
        queue.device = crate::wave::devices::device::tests::play(64, 30_000, 200);
        assert_eq!(queue.device.flight_max(), 96);
        let spread = |most, streams| spread_pages(&queue, PageCount(most), streams);
        assert_eq!(spread(1024, 1), 32);
        assert_eq!(spread(16_384, 1), 256);
        assert_eq!(spread(16_384, 12), u64::MAX);
    }

    /// Windows that go down, out in one go: a queue that sorts brings the lower one first, and the other without a trip.
    #[test]
    fn what_comes_behind_the_one_that_it_continues_is_told_so() {
        let mut queue = Queue::new(&Config::default());
        let windows = [Extent::new(200, 100), Extent::new(100, 100)];
        for pages in windows {
            queue.sent(Nanos(0), FileId(1), pages);
        }
        assert!(!queue.back(FileId(1), windows[1]));
        assert!(queue.back(FileId(1), windows[0]));
        assert!(!queue.back(FileId(2), Extent::new(300, 1)), "of another file");
    }

    /// Nothing is known but that a lone read takes so long: 128 KiB, and more the more is out.
    #[test]
    fn requests_grow_with_what_is_out_while_the_rate_is_not_known() {
        let pieces = |latency_ms: u64, most: u64| {
            let mut queue = Queue::new(&Config { request_max: PageCount(256), ..Config::default() });
            queue.device.timed_alone(Nanos::from_ms(latency_ms));
            [0, 512, 1024, 2048, 4096]
                .map(|unread| piece_pages(&queue, None, PageCount(unread), PageCount(most)))
        };
        assert_eq!(pieces(30, 1 << 20), [64, 64, 64, 128, 256]);
        assert_eq!(pieces(30, 1024), [64; 5], "no more will be out");
        assert_eq!(
            pieces(8, 1 << 20),
            [32, 32, 32, 64, 64],
            "of which one connection carries half in a latency"
        );
    }

    /// 15 ms, 40 MB/s a connection, sixteen at once: of 128 KiB they carry 114 MB/s, so that 52 pages are an eighth of what passes.
    #[test]
    fn requests_grow_while_many_are_under_way() {
        let mut queue = Queue::new(&Config { request_max: PageCount(256), ..Config::default() });
        queue.device = crate::wave::devices::device::tests::play(16, 18_300, 5000);
        queue.device.timed_alone(Nanos::from_ms(15));
        let piece = |queue: &Queue| piece_pages(queue, None, PageCount(0), PageCount(1 << 20));
        assert_eq!(piece(&queue), 32);
        for _ in 0..=queue.device.flight_max() / 2 {
            queue.device.issued(Nanos(0), true);
        }
        assert_eq!(piece(&queue), 64);
    }

    /// 10 ms, eight at once: of 128 KiB they carry 105 MB/s, an eighth of what passes is 32 pages again, and nobody would learn that twice as large
    /// ones carry twice as much. What carries 105 MB/s at most is not idle, however large they are: nor are requests larger.
    #[test]
    fn requests_grow_where_small_ones_leave_the_device_idle() {
        let piece = |slots, latency_us| {
            let mut queue = Queue::new(&Config { request_max: PageCount(256), ..Config::default() });
            queue.device = crate::wave::devices::device::tests::play(slots, latency_us, 5000);
            queue.device.timed_alone(Nanos::from_ms(10));
            for _ in 0..=queue.device.flight_max() / 2 {
                queue.device.issued(Nanos(0), true);
            }
            (queue.device.starves(), piece_pages(&queue, None, PageCount(0), PageCount(1 << 20)))
        };
        assert_eq!(piece(8, 10_000), (true, 64));
        assert_eq!(piece(32, 40_000), (false, 32));
    }

    #[test]
    fn a_trip_is_finished_before_the_head_moves_on() {
        let [mut demand, mut urgent, mut ahead] = [Line::default(), Line::default(), Line::default()];
        urgent.push_back(part(100));
        urgent.push_back(part(900));
        let mut next = |near| {
            take_next([&mut demand, &mut urgent], Some(&mut ahead), near, false).map(|w| w.pages.start.0)
        };
        assert_eq!(next(Some((FileId(1), 900))), Some(900));
        assert_eq!(next(Some((FileId(1), 932))), Some(100));
        assert_eq!(next(None), None);
    }

    /// Memory is full of what is out unread: of what nobody waits for only what continues the latest request goes, for a part of a window is
    /// of little use, and coming back for the rest is a trip.
    #[test]
    fn a_window_is_finished_though_memory_is_full() {
        let next = |near: u64, held: bool| {
            let [mut demand, mut urgent, mut ahead] = [Line::default(), Line::default(), Line::default()];
            ahead.push_back(part(100));
            ahead.push_back(part(900));
            let ahead = (!held).then_some(&mut ahead);
            let next = take_next([&mut demand, &mut urgent], ahead, Some((FileId(1), near)), true);
            next.map(|w| w.pages.start.0)
        };
        assert_eq!(
            [(900, false), (132, false), (900, true)].map(|(near, held)| next(near, held)),
            [Some(900), None, None]
        );
    }

    #[test]
    fn what_is_taken_out_of_turn_leaves_nothing_behind() {
        let mut line = Line::default();
        line.push_back(part(7));
        for start in 0..100_000 {
            line.push_back(part(32 * start));
            assert!(line.take((FileId(1), 32 * start)).is_some());
        }
        assert!(line.order.len() <= ORDER_MIN + 1, "{}", line.order.len());
        assert_eq!(line.take_oldest().map(|wanted| wanted.pages.start.0), Some(7));
        assert!(line.is_empty());
    }

    #[test]
    fn a_stream_in_a_hurry_does_not_overtake_itself() {
        let mut queue = Queue::new(&Config::default());
        let mut streams = Streams::default();
        let [sid, other] = [(); 2].map(|()| streams.add(Stream::seed(FileId(1), 0, 1, Nanos(0))).unwrap());
        for (start, stream) in [(300, sid), (200, sid), (250, other)] {
            queue.ahead.push_back(Wanted { turn: Turn::Ahead, stream: Some(stream), ..part(start) });
        }
        queue.hurry(sid, FileId(1), Extent::new(210, 190));
        queue.urgent.push_back(part(400));
        let lines = [&mut queue.demand, &mut queue.urgent, &mut queue.ahead];
        let [demand, urgent, ahead] = lines;
        let next = |_| take_next([&mut *demand, &mut *urgent], Some(&mut *ahead), None, false);
        let order: alloc::vec::Vec<u64> = (0..4).map_while(next).map(|w| w.pages.start.0).collect();
        assert_eq!(
            order,
            [200, 300, 400, 250],
            "the first of them holds page 210, to which its reader has come"
        );
    }

    /// The second worked example at the top; a head, and who does not wait longer for it, are another matter.
    #[test]
    fn sixteen_readers_fill_what_carries_sixty_pages_in_a_latency() {
        let mut queue = Queue::new(&Config::default());
        let filled = |queue: &mut Queue, slots, latency_us, readers: u32, long| {
            queue.device = crate::wave::devices::device::tests::play(slots, latency_us, 500);
            queue.lacking = (0..readers).map(|actor| (actor, 16)).collect();
            queue.waits_long = long;
            queue.is_filled()
        };
        assert!(!filled(&mut queue, 16, 1_000, 0, true));
        let passing = PageCount::holding(queue.device.bytes_per_latency()).0;
        let enough = (2 * passing).div_ceil(16) as u32 + 1;
        let by = |queue: &mut Queue, readers, long| filled(queue, 16, 1_000, readers, long);
        assert_eq!([enough - 1, enough].map(|readers| by(&mut queue, readers, true)), [false, true]);
        assert!(!by(&mut queue, enough, false), "they come as soon as one alone");
        assert!(!filled(&mut queue, 1, 8_000, 1000, true), "to a head it matters in which order they come");
        queue.device = crate::wave::devices::device::tests::play(16, 1_000, 500);
        queue.lacking = [(0, 1000)].into();
        assert!(!queue.is_filled(), "nobody waits for himself");
    }

    #[test]
    fn a_head_stays_for_a_slice_where_others_wait() {
        let mut queue = Queue::new(&Config::default());
        queue.device = crate::wave::devices::device::tests::play(1, 8_000, 200);
        let slice = SLICE_TRIPS * queue.device.trip_pages();
        assert!(slice > 0, "a device that serves one request at a time has a head");
        let there = Extent::new(100, 32);
        queue.sent(Nanos(0), FileId(1), there);
        queue.urgent.push_back(part(900));
        queue.ahead.push_back(part(132));
        queue.waiting.extend([7]);
        assert_eq!(queue.continued(), None, "nobody else waits");
        queue.waiting.extend([8]);
        assert_eq!(queue.continued(), Some((FileId(1), 132)), "before what is urgent elsewhere");
        queue.sent(Nanos(0), FileId(1), Extent::new(132, slice));
        queue.ahead.push_back(part(132 + slice));
        assert_eq!(queue.continued(), None, "its slice is over");
        queue.back(FileId(1), Extent::new(132, slice));
        assert!(queue.ends.is_empty());
    }

    #[test]
    fn a_window_goes_to_a_head_as_a_whole() {
        let mut queue = Queue::new(&Config::default());
        queue.device = crate::wave::devices::device::tests::play(1, 8_000, 200);
        assert_eq!(queue.device.joined_max(), PageCount(195));
        queue.ahead.push_back(part(132));
        assert_eq!(queue.joined(), None, "nothing that it continues is on its way");
        queue.sent(Nanos(0), FileId(1), Extent::new(100, 32));
        assert_eq!(queue.joined(), Some((FileId(1), 132)));
        queue.waiting.extend([7]);
        assert_eq!(queue.joined(), None, "who waits comes sooner so");
        queue.waiting.clear();
        queue.sent(Nanos(0), FileId(1), Extent::new(132, 163));
        queue.ahead.push_back(part(295));
        assert_eq!(queue.joined(), None, "as much as one way is worth is under way");
        queue.device = crate::wave::devices::device::tests::play(64, 30_000, 200);
        assert_eq!(queue.device.joined_max(), PageCount(0), "requests overlap");
    }

    #[test]
    fn the_reader_and_we_do_not_race() {
        let join = |own, ours, max| together(own, ours, PageCount(max));
        assert_eq!(join(Extent::new(170, 1), Extent::new(171, 17), 64), Extent::new(170, 18));
        assert_eq!(join(Extent::new(170, 1), Extent::new(171, 64), 64), Extent::new(170, 64));
        assert_eq!(join(Extent::new(2032, 15), Extent::new(2029, 3), 64), Extent::new(2029, 18));
        assert_eq!(join(Extent::new(170, 1), Extent::new(172, 17), 64), Extent::new(172, 17));
        assert_eq!(
            join(Extent::new(170, 1), Extent::new(171, 1), 1),
            Extent::new(171, 1),
            "no room for both"
        );
    }

    #[test]
    fn what_is_waited_for_goes_before_the_trip() {
        let [mut demand, mut urgent, mut ahead] = [Line::default(), Line::default(), Line::default()];
        urgent.push_back(part(900));
        demand.push_back(part(5000));
        let next = take_next([&mut demand, &mut urgent], Some(&mut ahead), Some((FileId(1), 900)), false);
        assert_eq!(next.map(|w| w.pages.start.0), Some(5000));
    }
}
