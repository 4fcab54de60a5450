//! When a request is done: the device models, for virtual time and for the slow store alike.
//!
//! A [`Device`] is a machine in nanoseconds without a clock: requests go in with the moment they arrive, completions
//! come out with the moment they are due. It decides *when*, never *what*: no bytes, files or caches here.
//!
//! Two kinds. **A head** (`hdd`) serves one request at a time, and chooses the next when it becomes free: the one that
//! starts where the last one ended, else the next higher address, else the lowest (C-SCAN); a request that has
//! waited 1 s goes first. Service is 8 ms unless contiguous, plus the bytes at 100 MB/s:
//!
//! ```text
//!   arrives  address  bytes     the head                           done
//!   0 ms     0        1 MB      seeks 8 ms, reads 10 ms            18 ms
//!   1 ms     900 MB   1 MB      waits; last in the order           54 ms   seeks
//!   2 ms     1 MB     1 MB      waits; contiguous: goes next       28 ms   no seek
//!   20 ms    500 MB   0 MB      arrives while the second is read   36 ms   seeks, nothing to transfer
//! ```
//!
//! **Slots** (`ssd`, `nfs`, `s3`) serve many at once. Every request waits for the slot that is free first, then for
//! the latency, then shares one pipe (baseline 1.2):
//!
//! ```text
//!   start     = max(arrival, earliest free slot)
//!   pipe_free = max(pipe_free, start + latency) + bytes / aggregate
//!   done      = max(start + latency + bytes / connection, pipe_free)       the slot is taken until done
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::str::FromStr;

use bowwave_core::Nanos;
use serde::{Deserialize, Serialize};

/// A request that has waited this long is served before all others, so that C-SCAN starves nobody.
const WAIT_NS_MAX: u64 = 1_000_000_000;

/// What a device can do: plain data, from which a [`Device`] is built.
///
/// Read from text by [`FromStr`]: a name (`hdd`, `ssd`, `nfs`, `s3`), parts, or a name followed by the parts that differ.
///
/// ```text
///   model = [name ","] part *("," part)        hdd,fifo     s3,slots=16     lat=30ms,conn=90MB/s,slots=64,bw=1GB/s
///   part  = "lat=" time          time to the first byte, or of a seek; 0 if not given
///         | "bw=" rate           of the whole device; must be given where no name gives it
///         | "conn=" rate         of one request; the whole device's if not given
///         | "slots=" number      requests served at once; 1 if not given
///         | "head"               one head that seeks: `lat` is charged unless contiguous
///         | "fifo"               the head takes requests in the order of arrival
///         | "skip"               a forward gap costs no more than reading over it
///   time  = number ("s" | "ms" | "us" | "ns")
///   rate  = number ("GB/s" | "MB/s" | "KB/s" | "B/s" | "GiB/s" | "MiB/s" | "KiB/s")
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceModel {
    /// Time to the first byte; for a head, the time of a seek.
    pub latency_ns: u64,
    /// Bytes a second of one request.
    pub connection_bytes_per_s: u64,
    /// Bytes a second of all requests together.
    pub bytes_per_s: u64,
    /// Requests served at once.
    pub slots: u32,
    /// How the head works, if the device has one.
    pub head: Option<Head>,
}

/// How a head chooses and moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Head {
    /// Takes requests in the order of arrival, not in that of addresses.
    pub fifo: bool,
    /// Reads over a forward gap where that is quicker than a seek.
    pub skip: bool,
}

impl DeviceModel {
    /// A disk with one head: 8 ms to seek, 100 MB/s.
    pub const HDD: Self = Self {
        latency_ns: 8_000_000,
        connection_bytes_per_s: 100_000_000,
        bytes_per_s: 100_000_000,
        slots: 1,
        head: Some(Head { fifo: false, skip: false }),
    };
    /// A solid-state disk: 100 us, 500 MB/s, 32 requests at once.
    pub const SSD: Self = Self::slots(100_000, 500_000_000, 500_000_000, 32);
    /// A network file system: 1 ms, 250 MB/s, 16 requests at once.
    pub const NFS: Self = Self::slots(1_000_000, 250_000_000, 250_000_000, 16);
    /// An object store: 30 ms to the first byte, 90 MB/s a connection, 64 connections, 1 GB/s in all.
    pub const S3: Self = Self::slots(30_000_000, 90_000_000, 1_000_000_000, 64);

    /// The named models, in the order in which tables show them.
    pub const NAMED: [(&'static str, Self); 4] =
        [("hdd", Self::HDD), ("ssd", Self::SSD), ("nfs", Self::NFS), ("s3", Self::S3)];

    const fn slots(latency_ns: u64, connection_bytes_per_s: u64, bytes_per_s: u64, slots: u32) -> Self {
        Self { latency_ns, connection_bytes_per_s, bytes_per_s, slots, head: None }
    }

    /// Time to the first byte, or of a seek.
    pub const fn latency(&self) -> Nanos {
        Nanos(self.latency_ns)
    }
    /// The name, if the model is one of the [named](Self::NAMED).
    pub fn name(&self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, model)| model == self).map(|(name, _)| *name)
    }
}

/// Time for `bytes` at `bytes_per_s`; rounds up, so that no device is ever faster than its figures.
fn transfer(bytes: u64, bytes_per_s: u64) -> Nanos {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_s.max(1)));
    Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// A modelled device in virtual nanoseconds.
///
/// Moments given to [`submit`](Self::submit) and [`complete`](Self::complete) must not go back. The driver's loop:
/// submit what arrives, sleep or jump to [`next_completion`](Self::next_completion), take it with `complete`.
#[derive(Clone, Debug)]
pub struct Device {
    model: DeviceModel,
    /// Numbers the submissions; ties are decided by it.
    sequence: u64,
    /// Earliest first. Most are decided in the order in which they are due, so a new one belongs at the end, or near it.
    decided: VecDeque<Completion>,
    server: Server,
}

/// A completion that is decided. They are ordered by moment and submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Completion {
    due: Nanos,
    sequence: u64,
    /// The driver's.
    id: u64,
}

#[derive(Clone, Debug)]
enum Server {
    Head(HeadState),
    Slots { free_at: BinaryHeap<Reverse<Nanos>>, pipe_free: Nanos },
}

#[derive(Clone, Debug, Default)]
struct HeadState {
    order: Head,
    /// Where the head will be after the request in service; unknown at first, so that the first request seeks.
    position: Option<u64>,
    /// When the request in service is done.
    busy_until: Nanos,
    /// Waiting requests by `(address, sequence)`.
    waiting: BTreeMap<(u64, u64), Waiting>,
    /// Keys of `waiting` by age; keys of served requests are dropped when they reach the front.
    by_age: VecDeque<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u64,
    bytes: u64,
    arrival: Nanos,
}

impl Device {
    /// An idle device; its first request pays a seek.
    pub fn new(model: DeviceModel) -> Self {
        let server = match model.head {
            Some(order) => Server::Head(HeadState { order, ..HeadState::default() }),
            None => Server::Slots { free_at: all_free(&model), pipe_free: Nanos(0) },
        };
        Self { model, sequence: 0, decided: VecDeque::new(), server }
    }

    /// What the device was built from.
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// A request for `bytes` bytes at disk address `address` arrives at `now`. `id` is the driver's and comes back on
    /// completion.
    pub fn submit(&mut self, now: Nanos, id: u64, address: u64, bytes: u64) {
        self.advance(now);
        let key = self.sequence;
        self.sequence += 1;
        match &mut self.server {
            Server::Head(head) => {
                head.waiting.insert((address, key), Waiting { id, bytes, arrival: now });
                head.by_age.push_back((address, key));
                self.advance(now);
            }
            Server::Slots { free_at, pipe_free } => {
                let slot = free_at.pop().map_or(Nanos(0), |Reverse(at)| at);
                let first_byte = now.max(slot) + self.model.latency();
                *pipe_free = first_byte.max(*pipe_free) + transfer(bytes, self.model.bytes_per_s);
                let done =
                    pipe_free.0.max((first_byte + transfer(bytes, self.model.connection_bytes_per_s)).0);
                free_at.push(Reverse(Nanos(done)));
                decide(&mut self.decided, Completion { due: Nanos(done), sequence: key, id });
            }
        }
    }

    /// The earliest completion, if a request is in service.
    pub fn next_completion(&self) -> Option<(Nanos, u64)> {
        self.upcoming().next()
    }

    /// The completions that are decided already, earliest first: all of them with slots, with a head the request in
    /// service (and those that were done but not taken yet).
    pub fn upcoming(&self) -> impl Iterator<Item = (Nanos, u64)> {
        self.decided.iter().map(|completion| (completion.due, completion.id))
    }

    /// Takes the earliest completion that is due at `now` or was due before.
    pub fn complete(&mut self, now: Nanos) -> Option<(Nanos, u64)> {
        self.advance(now);
        let first = *self.decided.front().filter(|first| first.due <= now)?;
        self.decided.pop_front();
        Some((first.due, first.id))
    }

    /// Requests that wait or are in service.
    pub fn in_flight(&self) -> usize {
        let waiting = match &self.server {
            Server::Head(head) => head.waiting.len(),
            Server::Slots { .. } => 0,
        };
        self.decided.len() + waiting
    }

    /// Makes the device idle again for the requests to come: the next one seeks, all slots and the pipe are free.
    /// Requests that are decided keep their time.
    pub fn reset(&mut self) {
        match &mut self.server {
            Server::Head(head) => head.position = None,
            Server::Slots { free_at, pipe_free } => {
                *free_at = all_free(&self.model);
                *pipe_free = Nanos(0);
            }
        }
    }

    /// A head serves the waiting requests in turn while it becomes free at or before `now`.
    fn advance(&mut self, now: Nanos) {
        let Server::Head(head) = &mut self.server else { return };
        while head.busy_until <= now {
            let free_at = head.busy_until;
            let Some((key, request)) = head.next(free_at) else { break };
            // It may have arrived after the head became free.
            let start = free_at.max(request.arrival);
            let done = start + head.service(key.0, request.bytes, &self.model);
            head.busy_until = done;
            head.position = Some(key.0.saturating_add(request.bytes));
            decide(&mut self.decided, Completion { due: done, sequence: key.1, id: request.id });
        }
    }
}

impl HeadState {
    /// Takes the request that the head serves next, free at `free_at`.
    fn next(&mut self, free_at: Nanos) -> Option<((u64, u64), Waiting)> {
        while self.by_age.front().is_some_and(|key| !self.waiting.contains_key(key)) {
            self.by_age.pop_front();
        }
        let oldest = *self.by_age.front()?;
        let starved = free_at.since(self.waiting[&oldest].arrival) >= Nanos(WAIT_NS_MAX);
        let key = if self.order.fifo || starved {
            oldest
        } else {
            // The contiguous request, if any, is the first at or above the head.
            let at = self.position.unwrap_or(0);
            let (key, _) = self.waiting.range((at, 0)..).next().or_else(|| self.waiting.first_key_value())?;
            *key
        };
        self.waiting.remove(&key).map(|request| (key, request))
    }

    fn service(&self, address: u64, bytes: u64, model: &DeviceModel) -> Nanos {
        let seek = match self.position {
            Some(at) if at == address => Nanos(0),
            Some(at) if self.order.skip && address > at => {
                model.latency().min(transfer(address - at, model.bytes_per_s))
            }
            _ => model.latency(),
        };
        seek + transfer(bytes, model.bytes_per_s)
    }
}

/// `completion` takes its place among those that are decided.
fn decide(decided: &mut VecDeque<Completion>, completion: Completion) {
    let at = match decided.back() {
        Some(last) if *last > completion => decided.partition_point(|other| *other < completion),
        _ => decided.len(),
    };
    decided.insert(at, completion);
}

fn all_free(model: &DeviceModel) -> BinaryHeap<Reverse<Nanos>> {
    (0..model.slots.max(1)).map(|_| Reverse(Nanos(0))).collect()
}

/// Why a text is no device model.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("device model '{model}': {why}; try hdd, ssd, nfs, s3, 's3,slots=16' or 'lat=8ms,bw=100MB/s,head'")]
pub struct DeviceModelError {
    model: String,
    why: String,
}

impl FromStr for DeviceModel {
    type Err = DeviceModelError;

    fn from_str(model: &str) -> Result<Self, DeviceModelError> {
        parse(model).map_err(|why| DeviceModelError { model: model.into(), why })
    }
}

/// Slots that a model may have: enough for any queue that the kernel sends.
const SLOTS_MAX: u32 = 65_536;

fn parse(text: &str) -> Result<DeviceModel, String> {
    let (first, rest) = text.split_once(',').unwrap_or((text, ""));
    let named = DeviceModel::NAMED.iter().find(|(name, _)| *name == first).map(|(_, model)| *model);
    let parts = if named.is_some() { rest } else { text };
    let mut model = named.unwrap_or(DeviceModel::slots(0, 0, 0, 1));
    let mut connection = named.map(|m| m.connection_bytes_per_s).filter(|&c| c != model.bytes_per_s);
    for part in parts.split(',').filter(|part| named.is_none() || !part.is_empty()) {
        match part.split_once('=') {
            Some(("lat", time)) => {
                model.latency_ns = quantity(time, &TIMES)
                    .ok_or_else(|| format!("'{part}' is no time such as lat=8ms or lat=100us"))?;
            }
            Some(("bw", rate)) => {
                model.bytes_per_s = quantity(rate, &RATES)
                    .filter(|&rate| rate > 0)
                    .ok_or_else(|| format!("'{part}' is no rate such as bw=100MB/s"))?;
            }
            Some(("conn", rate)) => {
                connection = Some(
                    quantity(rate, &RATES)
                        .filter(|&rate| rate > 0)
                        .ok_or_else(|| format!("'{part}' is no rate such as conn=90MB/s"))?,
                );
            }
            Some(("slots", number)) => {
                model.slots = number
                    .parse()
                    .ok()
                    .filter(|slots| (1..=SLOTS_MAX).contains(slots))
                    .ok_or_else(|| format!("'{part}' is no number of slots from 1 to {SLOTS_MAX}"))?;
            }
            None if part == "head" => model.head = Some(model.head.unwrap_or_default()),
            None if part == "fifo" || part == "skip" => {
                let head = model.head.as_mut().ok_or_else(|| format!("'{part}' needs a head before it"))?;
                head.fifo |= part == "fifo";
                head.skip |= part == "skip";
            }
            _ => return Err(format!("'{part}' is no name of a device and no part of one")),
        }
    }
    if model.bytes_per_s == 0 {
        return Err("no bandwidth is given (bw=)".into());
    }
    model.connection_bytes_per_s = connection.unwrap_or(model.bytes_per_s);
    if model.head.is_some() && model.slots != 1 {
        return Err(format!("a head serves one request at a time, not slots={}", model.slots));
    }
    if model.head.is_some() && model.connection_bytes_per_s != model.bytes_per_s {
        return Err("a head has one bandwidth; leave conn= out".into());
    }
    Ok(model)
}

type Units = [(&'static str, u64)];
const TIMES: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
const RATES: [(&str, u64); 7] = [
    ("GB/s", 1_000_000_000),
    ("MB/s", 1_000_000),
    ("KB/s", 1_000),
    ("GiB/s", 1 << 30),
    ("MiB/s", 1 << 20),
    ("KiB/s", 1 << 10),
    ("B/s", 1),
];

/// `1.5ms` in the smallest unit; a plain 0 needs no unit.
fn quantity(text: &str, units: &Units) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let value = number.parse::<f64>().ok()? * *scale as f64;
    (value <= 1e18).then(|| value.round() as u64)
}

/// The way back: the largest decimal unit that leaves no fraction.
fn spell(value: u64, units: &Units) -> String {
    let (unit, scale) =
        units.iter().find(|(_, scale)| value >= *scale && value.is_multiple_of(*scale)).unwrap_or(&("", 1));
    format!("{}{unit}", value / scale)
}

/// Spelt out in full, whatever the name: what [`FromStr`] reads back as the same model.
impl fmt::Display for DeviceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lat={},bw={}", spell(self.latency_ns, &TIMES), spell(self.bytes_per_s, &RATES))?;
        if self.connection_bytes_per_s != self.bytes_per_s {
            write!(f, ",conn={}", spell(self.connection_bytes_per_s, &RATES))?;
        }
        write!(f, ",slots={}", self.slots)?;
        if let Some(head) = self.head {
            f.write_str(",head")?;
            f.write_str(if head.fifo { ",fifo" } else { "" })?;
            f.write_str(if head.skip { ",skip" } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// Submits `(arrival, address, bytes)`, moments in microseconds, and returns the completions as `(id, us)`.
    fn run(model: DeviceModel, requests: &[(u64, u64, u64)]) -> Vec<(u64, u64)> {
        let mut device = Device::new(model);
        let mut done = Vec::new();
        for (id, &(arrival, address, bytes)) in requests.iter().enumerate() {
            while let Some((due, id)) = device.complete(Nanos::from_us(arrival)) {
                done.push((id, due.0 / 1000));
            }
            device.submit(Nanos::from_us(arrival), id as u64, address, bytes);
        }
        while let Some((due, id)) = device.next_completion() {
            assert_eq!(device.complete(due), Some((due, id)), "a completion is due when it is due");
            done.push((id, due.0 / 1000));
        }
        assert_eq!(device.in_flight(), 0);
        done
    }

    /// The table of spec T11: 8 ms and 100 MiB/s, one request at a time at random places.
    #[test]
    fn closed_form_of_t11() {
        let model: DeviceModel = "lat=8ms,bw=100MiB/s,head".parse().unwrap();
        let table = [
            (4, 8.04, 497.57),
            (8, 8.08, 990.33),
            (16, 8.16, 1961.69),
            (32, 8.31, 3849.62),
            (1024, 18.0, 56888.89),
        ];
        for (kib, latency_ms, kib_per_s) in table {
            let mut device = Device::new(model);
            device.submit(Nanos(0), 0, 7 << 30, kib * 1024);
            let (due, _) = device.next_completion().unwrap();
            let ms = due.0 as f64 / 1e6;
            assert!((ms - (8.0 + kib as f64 / 102.4)).abs() < 1e-5, "{kib} KiB takes {ms} ms");
            assert!((ms - latency_ms).abs() < 0.006, "{kib} KiB takes {ms} ms");
            assert!((kib as f64 * 1e3 / ms - kib_per_s).abs() < 0.01 * kib_per_s);
        }
    }

    /// The picture at the top of this file.
    #[test]
    fn the_head_of_the_picture() {
        let requests = [(0, 0, MB), (1_000, 900 * MB, MB), (2_000, MB, MB), (20_000, 500 * MB, 0)];
        assert_eq!(run(DeviceModel::HDD, &requests), [(0, 18_000), (2, 28_000), (3, 36_000), (1, 54_000)]);
    }

    #[test]
    fn the_head_turns_back_to_the_lowest() {
        let requests = [(0, 500 * MB, MB), (1, 100 * MB, 0), (2, 50 * MB, 0), (3, 600 * MB, 0)];
        let order: Vec<u64> = run(DeviceModel::HDD, &requests).into_iter().map(|(id, _)| id).collect();
        assert_eq!(order, [0, 3, 2, 1]);
        let fifo = "hdd,fifo".parse().unwrap();
        let order: Vec<u64> = run(fifo, &requests).into_iter().map(|(id, _)| id).collect();
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn a_request_that_waited_a_second_goes_first() {
        // A stream that is always contiguous, 100 ms a request, against one request far below.
        let mut requests = vec![(0, 1000 * MB, 10 * MB), (1, 0, 0)];
        requests.extend((1..20).map(|i| (2 + i, (1000 + 10 * i) * MB, 10 * MB)));
        let done = run(DeviceModel::HDD, &requests);
        let place = done.iter().position(|&(id, _)| id == 1).unwrap();
        // Served when the head became free for the first time after 1 s: 8 ms + 10 x 100 ms, then its own seek.
        assert_eq!((place, done[place].1), (10, 1_016_000));
    }

    #[test]
    fn skipping_a_gap_costs_at_most_a_seek() {
        let skip: DeviceModel = "hdd,skip".parse().unwrap();
        // 100 KB of gap are read over in 1 ms; 10 MB would take 100 ms, so the head seeks.
        let requests = [(0, 0, 0), (10_000, MB / 10, 0), (20_000, 10 * MB + MB / 10, 0)];
        assert_eq!(run(skip, &requests), [(0, 8_000), (1, 11_000), (2, 28_000)]);
    }

    #[test]
    fn a_late_driver_changes_no_decision() {
        // Both arrived before the head was free; nobody looked until 100 ms.
        let mut device = Device::new(DeviceModel::HDD);
        device.submit(Nanos(0), 0, 0, MB);
        device.submit(Nanos(1), 1, 5 * MB, 0);
        device.submit(Nanos::from_ms(100), 2, 2 * MB, 0);
        assert_eq!(device.complete(Nanos::from_ms(100)), Some((Nanos::from_ms(18), 0)));
        assert_eq!(device.complete(Nanos::from_ms(100)), Some((Nanos::from_ms(26), 1)));
        assert_eq!(device.complete(Nanos::from_ms(100)), None);
        assert_eq!(device.next_completion(), Some((Nanos::from_ms(108), 2)));
    }

    #[test]
    fn slots_share_one_pipe() {
        // 900 KB on one connection: 30 ms + 10 ms. Twelve at once: 12 x 0.9 ms in the pipe, then the pipe decides.
        assert_eq!(run(DeviceModel::S3, &[(0, 0, 900_000)]), [(0, 40_000)]);
        let twelve = run(DeviceModel::S3, &[(0, 0, 900_000); 12]);
        assert_eq!((twelve[0].1, twelve[10].1, twelve[11].1), (40_000, 40_000, 40_800));
        // 65 empty requests: the last waits for a slot.
        let full = run(DeviceModel::S3, &[(0, 0, 0); 65]);
        assert_eq!((full[63].1, full[64].1), (30_000, 60_000));
        // nfs, sequential 128 KiB at a time: 1 ms + 0.524 ms.
        assert_eq!(run(DeviceModel::NFS, &[(0, 0, 131_072)]), [(0, 1_524)]);
    }

    #[test]
    fn after_a_reset_the_head_seeks_and_slots_are_free() {
        let mut device = Device::new(DeviceModel::HDD);
        device.submit(Nanos(0), 0, 0, 0);
        device.complete(Nanos::from_ms(8));
        device.reset();
        device.submit(Nanos::from_ms(10), 1, 0, 0);
        assert_eq!(device.next_completion(), Some((Nanos::from_ms(18), 1)));

        let mut device = Device::new(DeviceModel::NFS);
        (0..40).for_each(|id| device.submit(Nanos(0), id, 0, 0));
        device.reset();
        device.submit(Nanos(0), 99, 0, 0);
        assert!(device.upcoming().any(|completion| completion == (Nanos::from_ms(1), 99)));
    }

    #[test]
    fn models_are_read_and_spelt() {
        for (name, model) in DeviceModel::NAMED {
            assert_eq!(name.parse(), Ok(model));
            assert_eq!(model.name(), Some(name));
            assert_eq!(model.to_string().parse(), Ok(model), "{model}");
        }
        assert_eq!("lat=8ms,bw=100MB/s,slots=1,head".parse(), Ok(DeviceModel::HDD));
        assert_eq!("lat=30ms,conn=90MB/s,slots=64,bw=1GB/s".parse(), Ok(DeviceModel::S3));
        assert_eq!("lat=0.1ms,bw=0.5GB/s,slots=32".parse(), Ok(DeviceModel::SSD));
        let fast: DeviceModel = "lat=0,bw=100GB/s,slots=512".parse().unwrap();
        assert_eq!(fast.to_string(), "lat=0,bw=100GB/s,slots=512");
        let skip: DeviceModel = "hdd,fifo,skip".parse().unwrap();
        assert_eq!(skip.to_string(), "lat=8ms,bw=100MB/s,slots=1,head,fifo,skip");
    }

    #[test]
    fn a_wrong_model_names_its_wrong_part() {
        for (model, part) in [
            ("hd", "'hd' is no name"),
            ("", "'' is no name"),
            ("lat=8ms", "no bandwidth"),
            ("lat=8,bw=1GB/s", "'lat=8'"),
            ("s3,slots=0", "'slots=0'"),
            ("ssd,fifo", "'fifo' needs a head"),
            ("hdd,slots=2", "slots=2"),
            ("hdd,conn=90MB/s", "one bandwidth"),
            ("bw=fast", "'bw=fast'"),
            ("bw=1.2.3GB/s", "'bw=1.2.3GB/s'"),
        ] {
            let error = model.parse::<DeviceModel>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("try hdd"), "{model}: {error}");
        }
    }
}
