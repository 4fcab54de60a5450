//! A disk with a platter, a buffer and a queue.
//!
//! ```text
//! a far access        seek (least + root of the distance) + half a turn + the bytes at the media's pace
//! behind the head     the drive reads on while nobody asks: what follows is in its buffer, or about to pass
//! a gap ahead         read over, if that is quicker
//! just before         the track has just passed: a turn to wait for its start, a turn to read all of it into the buffer
//! ```
//!
//! The queue in front of it takes requests in the order of arrival, by elevator, or gives each stream a *slice* of time
//! and waits a little for its next request (spec 7.1.6).
//!
//! Worked example (test `backwards_is_two_turns_a_track`): 7,200 turns a minute and 63.6 MB/s make tracks of 530 KB; a short
//! seek of 2.2 ms and two turns of 8.33 ms a track are 28 MB/s. iozone's reverse read of a file of which half is cached then
//! runs at 50 MB/s, as it was measured (T4).

use super::machine::Sent;
use bowwave_core::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A request that has waited so long goes first under the elevator.
const WAIT_NS_MAX: u64 = 1_000_000_000;

/// A disk, before it is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskModel {
    /// Media rate.
    pub bytes_per_s: u64,
    /// Time to the neighbouring track.
    pub seek_min_ns: u64,
    /// Time from the first track to the last.
    pub seek_full_ns: u64,
    /// One turn.
    pub turn_ns: u64,
    /// Bytes from the first track to the last.
    pub bytes: u64,
    /// Bytes that the drive reads on behind a request while nobody asks.
    pub look_ahead_bytes: u64,
    /// Its queue.
    pub queue: Queue,
}

/// Which waiting request goes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// The one that came first.
    Fifo,
    /// The next higher address, then the lowest again; one that has waited 1 s first.
    Elevator,
    /// By address, but after so many requests the one that came first: a deadline scheduler's batches. Requests that lie side by side
    /// are one while they wait, as a block layer joins them.
    Batches {
        /// Requests before it looks for the oldest.
        batch: u32,
        /// Bytes of a request that others are joined to at most: what the drive takes at once.
        joined_bytes_max: u64,
    },
    /// The streams in turn, each for a slice of time; within it by address.
    Slices {
        /// All streams together should have had their turn in this time.
        target_ns: u64,
        /// How long an empty stream of the current slice is waited for.
        idle_ns: u64,
        /// Shortest slice.
        slice_min_ns: u64,
        /// Longest slice.
        slice_max_ns: u64,
    },
}

impl DiskModel {
    /// The disk of seed 000 (Hitachi, 160 GB, 7,200 turns a minute, 8 MB of buffer). Its streaming rate is that of T4's
    /// row *Read*; the short seek is fixed by T4's *Stride read*; the full seek by its *Random read*.
    pub const fn hitachi_2007() -> Self {
        Self {
            bytes_per_s: 63_600_000,
            seek_min_ns: 2_200_000,
            seek_full_ns: 15_000_000,
            turn_ns: 8_333_333,
            bytes: 160_000_000_000,
            look_ahead_bytes: 516_000,
            queue: Queue::Elevator,
        }
    }

    /// The slices of CFQ with a target latency of `ms` (spec 7.1.6): `target / busy streams`, 16 to 100 ms, and 8 ms of
    /// patience.
    #[must_use]
    pub const fn with_slices(mut self, ms: u64) -> Self {
        self.queue = Queue::Slices {
            target_ns: ms * 1_000_000,
            idle_ns: 8_000_000,
            slice_min_ns: 16_000_000,
            slice_max_ns: 100_000_000,
        };
        self
    }

    /// Slice of each of `streams` busy streams.
    pub fn slice_ns(&self, streams: u64) -> u64 {
        match self.queue {
            Queue::Slices { target_ns, slice_min_ns, slice_max_ns, .. } => {
                (target_ns / streams.max(1)).clamp(slice_min_ns, slice_max_ns)
            }
            _ => u64::MAX,
        }
    }

    fn transfer_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s)) as u64
    }

    fn track_bytes(&self) -> u64 {
        (u128::from(self.bytes_per_s) * u128::from(self.turn_ns) / 1_000_000_000) as u64
    }

    fn seek_ns(&self, distance: u64) -> u64 {
        let share = (distance as f64 / self.bytes.max(1) as f64).min(1.0).sqrt();
        self.seek_min_ns + ((self.seek_full_ns - self.seek_min_ns) as f64 * share).round() as u64
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    sent: Sent,
    arrival: Nanos,
}

/// A disk at work.
#[derive(Debug)]
pub(super) struct DiskState {
    model: DiskModel,
    sequence: u64,
    waiting: BTreeMap<(u64, u64), Waiting>,
    by_age: VecDeque<(u64, u64)>,
    done: BTreeMap<(Nanos, u64), u64>,
    busy_until: Nanos,
    /// Where the media passes the head next; nowhere at first.
    position: Option<u64>,
    /// First byte of the buffer: from here to `position` nothing moves.
    buffer_start: u64,
    in_batch: u32,
    /// When the head took up the request that it is at, and its bytes with what was joined to it until then.
    joined: (Nanos, u64),
    slices: Slices,
}

#[derive(Debug, Default)]
struct Slices {
    /// Who is at work, and until when.
    current: Option<(u32, Nanos)>,
    /// Since when the current stream had nothing waiting while the head was free.
    patient_until: Option<Nanos>,
    turn: VecDeque<u32>,
    of: BTreeMap<u32, BTreeSet<(u64, u64)>>,
}

impl DiskState {
    pub(super) fn new(model: DiskModel) -> Self {
        Self {
            model,
            sequence: 0,
            waiting: BTreeMap::new(),
            by_age: VecDeque::new(),
            done: BTreeMap::new(),
            busy_until: Nanos(0),
            position: None,
            buffer_start: 0,
            in_batch: 0,
            joined: (Nanos(0), 0),
            slices: Slices::default(),
        }
    }

    pub(super) fn submit(&mut self, now: Nanos, sent: Sent) {
        self.advance(now);
        let key = (sent.address, self.sequence);
        self.sequence += 1;
        self.waiting.insert(key, Waiting { sent, arrival: now });
        self.by_age.push_back(key);
        let of = self.slices.of.entry(sent.stream).or_default();
        if of.is_empty() && !self.slices.turn.contains(&sent.stream) {
            self.slices.turn.push_back(sent.stream);
        }
        of.insert(key);
        self.advance(now);
    }

    pub(super) fn next_event(&self) -> Option<Nanos> {
        let done = self.done.first_key_value().map(|((due, _), _)| *due);
        let patience = self.slices.patient_until.filter(|_| !self.waiting.is_empty());
        [done, patience].into_iter().flatten().min()
    }

    pub(super) fn complete(&mut self, now: Nanos) -> Option<u64> {
        self.advance(now);
        let entry = self.done.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// The head takes request after request while it becomes free at or before `now`.
    fn advance(&mut self, now: Nanos) {
        while self.busy_until <= now {
            let Some((key, from)) = self.next(now) else { break };
            let Some(taken) = self.waiting.remove(&key) else { break };
            if let Some(of) = self.slices.of.get_mut(&taken.sent.stream) {
                of.remove(&key);
            }
            let start = from.max(taken.arrival);
            let done = Nanos(self.served(start, taken.sent.address, taken.sent.bytes));
            self.busy_until = done;
            self.done.insert((done, key.1), taken.sent.id);
        }
    }

    /// Which request goes next, and from when on; `None`: nothing, or nothing yet.
    fn next(&mut self, now: Nanos) -> Option<((u64, u64), Nanos)> {
        match self.model.queue {
            Queue::Fifo => self.oldest().map(|key| (key, self.busy_until)),
            Queue::Elevator => {
                let oldest = self.oldest()?;
                let starved = self.busy_until.since(self.waiting[&oldest].arrival) >= Nanos(WAIT_NS_MAX);
                let key = if starved { oldest } else { self.at_or_above(self.position.unwrap_or(0))? };
                Some((key, self.busy_until))
            }
            Queue::Batches { batch, joined_bytes_max } => {
                let (oldest, position) = (self.oldest()?, self.position.unwrap_or(0));
                let ahead = self.at_or_above(position)?;
                let (since, bytes) = self.joined;
                let next = self.waiting[&ahead];
                if ahead.0 == position && next.arrival <= since && bytes + next.sent.bytes <= joined_bytes_max
                {
                    self.joined.1 += next.sent.bytes;
                    return Some((ahead, self.busy_until));
                }
                self.in_batch = (self.in_batch + 1) % batch.max(1);
                let key = if self.in_batch == 0 { oldest } else { ahead };
                let first = self.waiting[&key];
                self.joined = (self.busy_until.max(first.arrival), first.sent.bytes);
                Some((key, self.busy_until))
            }
            Queue::Slices { idle_ns, .. } => self.next_of_slice(now, idle_ns),
        }
    }

    fn oldest(&mut self) -> Option<(u64, u64)> {
        while self.by_age.front().is_some_and(|key| !self.waiting.contains_key(key)) {
            self.by_age.pop_front();
        }
        self.by_age.front().copied()
    }

    fn at_or_above(&self, address: u64) -> Option<(u64, u64)> {
        let above = self.waiting.range((address, 0)..).next();
        above.or_else(|| self.waiting.first_key_value()).map(|(key, _)| *key)
    }

    fn next_of_slice(&mut self, now: Nanos, idle_ns: u64) -> Option<((u64, u64), Nanos)> {
        let mut from = self.busy_until;
        if let Some((stream, until)) = self.slices.current {
            let own = self.slices.of.get(&stream).and_then(|of| {
                of.range((self.position.unwrap_or(0), 0)..).next().or_else(|| of.first()).copied()
            });
            match own {
                Some(key) if from < until => {
                    self.slices.patient_until = None;
                    return Some((key, from));
                }
                None if from < until => {
                    let patient_until = (from + Nanos(idle_ns)).min(until);
                    if now < patient_until {
                        self.slices.patient_until = Some(patient_until);
                        return None;
                    }
                    from = patient_until;
                }
                _ => {}
            }
            // The turn goes on.
            self.slices.patient_until = None;
            self.slices.current = None;
            if self.slices.of.get(&stream).is_some_and(|of| !of.is_empty()) {
                self.slices.turn.push_back(stream);
            }
        }
        while let Some(stream) = self.slices.turn.pop_front() {
            let busy = self.slices.of.values().filter(|of| !of.is_empty()).count() as u64;
            let Some(of) = self.slices.of.get(&stream).filter(|of| !of.is_empty()) else { continue };
            let key = *of.range((self.position.unwrap_or(0), 0)..).next().or_else(|| of.first())?;
            let start = from.max(self.waiting[&key].arrival);
            self.slices.current = Some((stream, start + Nanos(self.model.slice_ns(busy))));
            return Some((key, start));
        }
        None
    }

    /// When a request that the head takes up at `start` is done; the head and the buffer move.
    fn served(&mut self, start: Nanos, address: u64, bytes: u64) -> u64 {
        let done = self.moved(start, address, bytes);
        // The buffer holds so much behind the head as the drive reads on ahead of it.
        let kept = self.position.unwrap_or(0).saturating_sub(self.model.look_ahead_bytes.max(bytes));
        self.buffer_start = self.buffer_start.max(kept);
        done
    }

    fn moved(&mut self, start: Nanos, address: u64, bytes: u64) -> u64 {
        let (model, end) = (self.model, address + bytes);
        let Some(at) = self.position else { return self.accessed(start, address, end, model.bytes / 3) };
        // While nobody asked, the drive read on.
        let read_on = (u128::from(start.since(self.busy_until).0) * u128::from(model.bytes_per_s)
            / 1_000_000_000) as u64;
        let buffered_to = at + read_on.min(model.look_ahead_bytes);
        if address >= self.buffer_start && address <= buffered_to {
            // In the buffer, or passing.
            self.position = Some(end.max(buffered_to));
            return start.0 + model.transfer_ns(end.saturating_sub(buffered_to));
        }
        let far = model.seek_ns(address.abs_diff(at)) + model.turn_ns / 2;
        if address > at {
            let over = model.transfer_ns(address - buffered_to);
            if over <= far {
                self.position = Some(end);
                return start.0 + over + model.transfer_ns(bytes);
            }
        } else if address < self.buffer_start
            && self.buffer_start - address < model.track_bytes() + bytes
            && model.look_ahead_bytes > 0
        {
            let track = model.track_bytes().max(bytes);
            self.buffer_start = end.saturating_sub(track);
            self.position = Some(end);
            return start.0 + model.seek_min_ns + model.turn_ns + model.transfer_ns(track);
        }
        self.accessed(start, address, end, address.abs_diff(at))
    }

    fn accessed(&mut self, start: Nanos, address: u64, end: u64, distance: u64) -> u64 {
        self.buffer_start = address;
        self.position = Some(end);
        start.0
            + self.model.seek_ns(distance)
            + self.model.turn_ns / 2
            + self.model.transfer_ns(end - address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends one request after another and returns bytes a second.
    fn rate(model: DiskModel, requests: impl Iterator<Item = (u64, u64)>) -> f64 {
        let mut disk = DiskState::new(model);
        let (mut now, mut all) = (Nanos(0), 0);
        for (id, (address, bytes)) in requests.enumerate() {
            disk.submit(now, Sent { id: id as u64, stream: 0, address, bytes });
            now = disk.next_event().unwrap();
            assert_eq!(disk.complete(now), Some(id as u64));
            all += bytes;
        }
        all as f64 * 1e9 / now.0 as f64
    }

    const KB: u64 = 1 << 10;

    #[test]
    fn streaming_is_the_medias_pace() {
        let model = DiskModel::hitachi_2007();
        let streamed = rate(model, (0..4000).map(|i| (i * 64 * KB, 64 * KB)));
        assert!(streamed / model.bytes_per_s as f64 > 0.99);
    }

    /// What was read half a gigabyte ago is not in the buffer.
    #[test]
    fn a_second_pass_pays_again() {
        let model = DiskModel::hitachi_2007();
        let twice = (0..2).flat_map(|_| (0..8000).map(|i| (i * 64 * KB, 64 * KB)));
        assert!(rate(model, twice) < 1.01 * model.bytes_per_s as f64);
    }

    #[test]
    fn backwards_is_two_turns_a_track() {
        let model = DiskModel::hitachi_2007();
        let back = rate(model, (0..4000).rev().map(|i| (i * 64 * KB, 64 * KB)));
        let share = back / model.bytes_per_s as f64;
        assert!((0.35..0.45).contains(&share), "{share}");
    }

    /// T11's shape: larger requests at random places pay the same seek.
    #[test]
    fn random_requests_pay_seek_and_turn() {
        let model = DiskModel::hitachi_2007();
        let far = |i: u64| (i * 7_919_000_003) % (model.bytes - (1 << 30));
        let small = rate(model, (0..500).map(|i| (far(i), 4 * KB)));
        let large = rate(model, (0..500).map(|i| (far(i), 1024 * KB)));
        assert!(large > 50.0 * small, "{large} {small}");
    }

    /// Two streams far apart, each asking again as soon as it is served. By elevator the head runs to and fro; with
    /// slices it stays a while, and waits for the next request of the stream that it serves.
    #[test]
    fn slices_keep_the_head_where_it_is() {
        let with = |model: DiskModel| {
            let mut disk = DiskState::new(model);
            let (mut now, mut next) = (Nanos(0), [0_u64, 80_000_000_000]);
            for stream in 0..2_u64 {
                let sent = Sent {
                    id: stream,
                    stream: stream as u32,
                    address: next[stream as usize],
                    bytes: 128 * KB,
                };
                disk.submit(now, sent);
            }
            let mut served = 0_u64;
            while now < Nanos::from_ms(5_000) {
                now = disk.next_event().expect("somebody always waits");
                while let Some(id) = disk.complete(now) {
                    served += 128 * KB;
                    let stream = (id % 2) as usize;
                    next[stream] += 128 * KB;
                    // The reader thinks for a tenth of a millisecond.
                    let again =
                        Sent { id: id + 2, stream: stream as u32, address: next[stream], bytes: 128 * KB };
                    disk.submit(now + Nanos::from_us(100), again);
                }
            }
            served
        };
        let model = DiskModel::hitachi_2007();
        let (fifo, short, long) = (
            with(DiskModel { queue: Queue::Fifo, ..model }),
            with(model.with_slices(50)),
            with(model.with_slices(300)),
        );
        assert!(fifo < short && short < long, "{fifo} {short} {long}");
    }

    /// Four streams far apart send a piece of 64 KiB each, and again, eight times before the head is free. Joined they are one request of
    /// each, and the head goes to each once; else it looks for the oldest after two pieces.
    #[test]
    fn what_lies_side_by_side_is_one_request_of_a_batch() {
        let goes_to = |joined_bytes_max: u64| {
            let queue = Queue::Batches { batch: 2, joined_bytes_max };
            let mut disk = DiskState::new(DiskModel { queue, ..DiskModel::hitachi_2007() });
            let sent = |id: u64, address: u64| Sent { id, stream: id as u32, address, bytes: 64 * KB };
            disk.submit(Nanos(0), sent(9, 50_000_000_000));
            for piece in 0..8 {
                (0..4).for_each(|id| disk.submit(Nanos(1), sent(id, id * 1_000_000_000 + piece * 64 * KB)));
            }
            let mut order = Vec::new();
            while let Some(now) = disk.next_event() {
                order.extend(disk.complete(now));
            }
            assert_eq!(order.len(), 33);
            order.dedup();
            order
        };
        assert_eq!(goes_to(512 * KB), [9, 0, 1, 2, 3]);
        assert_eq!(goes_to(64 * KB).len(), 1 + 4 * 8 / 2);
    }

    #[test]
    fn the_slices_of_spec_7_1_6() {
        let model = DiskModel::hitachi_2007();
        let slices = |ms| [1, 2, 4, 8, 16].map(|n| model.with_slices(ms).slice_ns(n) as f64 / 1e6);
        assert_eq!(slices(300), [100.0, 100.0, 75.0, 37.5, 18.75]);
        assert_eq!(slices(600), [100.0, 100.0, 100.0, 75.0, 37.5]);
    }
}
