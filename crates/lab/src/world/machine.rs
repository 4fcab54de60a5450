//! The devices of the world, behind one door: requests go in, completions come out, all in virtual nanoseconds.
//!
//! ```text
//! Plain    the slow store's models (device.rs): a head with a fixed seek, or slots and a pipe
//! Disk     a platter: a seek that grows with the root of the distance, half a turn, a track that is read on
//! Raid     n platters, striped
//! Table    a solid-state drive by a published table: time for a window by its size, in however many requests it is sent
//! ```

use super::disk::{DiskModel, DiskState};
use crate::device::{Device, DeviceModel};
use bowwave_core::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// A device, before it is built.
#[derive(Clone, PartialEq, Debug)]
pub enum MachineModel {
    /// One of the slow store's.
    Plain(DeviceModel),
    /// A platter.
    Disk(DiskModel),
    /// Platters side by side.
    Raid {
        /// What each is.
        disk: DiskModel,
        /// How many hold data.
        disks: u32,
        /// Bytes on one before the next.
        stripe_bytes: u64,
    },
    /// One request at a time, `bytes / bytes_per_s` and what the table says for its size: `(bytes, ns)`, sizes rising;
    /// between two rows by the logarithm of the size, beyond them the nearest row. Requests that are sent at one moment and
    /// continue one another have that time as if they were one.
    Table {
        /// The pipe.
        bytes_per_s: u64,
        /// Time beside the pipe's.
        rows: Vec<(u64, u64)>,
    },
}

/// A device at work.
pub(super) enum Machine {
    Plain(Device),
    Disk(Box<DiskState>),
    Raid { disks: Vec<DiskState>, stripe_bytes: u64, parts: BTreeMap<u64, u32> },
    Table { model: MachineModel, free_at: Nanos, done: VecDeque<(Nanos, u64)>, last: Together },
}

/// Requests that were sent at one moment and continue one another.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Together {
    sent: Nanos,
    bytes: u64,
    end: u64,
}

/// A request on its way in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    pub(super) id: u64,
    /// Whose it is: the scheduler's slices go by this.
    pub(super) stream: u32,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl Machine {
    pub(super) fn new(model: &MachineModel) -> Self {
        match model {
            MachineModel::Plain(model) => Self::Plain(Device::new(*model)),
            MachineModel::Disk(model) => Self::Disk(Box::new(DiskState::new(*model))),
            MachineModel::Raid { disk, disks, stripe_bytes } => Self::Raid {
                disks: (0..*disks).map(|_| DiskState::new(*disk)).collect(),
                stripe_bytes: *stripe_bytes,
                parts: BTreeMap::new(),
            },
            MachineModel::Table { .. } => {
                let last = Together::default();
                Self::Table { model: model.clone(), free_at: Nanos(0), done: VecDeque::new(), last }
            }
        }
    }

    pub(super) fn submit(&mut self, now: Nanos, sent: Sent) {
        match self {
            Self::Plain(device) => device.submit(now, sent.id, sent.address, sent.bytes),
            Self::Disk(disk) => disk.submit(now, sent),
            Self::Raid { disks, stripe_bytes, parts } => {
                for (disk, address, bytes) in striped(sent, *stripe_bytes, disks.len() as u64) {
                    *parts.entry(sent.id).or_insert(0) += 1;
                    disks[disk].submit(now, Sent { address, bytes, ..sent });
                }
            }
            Self::Table { model, free_at, done, last } => {
                let goes_on = last.sent == now && last.end == sent.address && last.bytes > 0;
                let before = if goes_on { last.bytes } else { 0 };
                let paid = if goes_on { beside_ns(model, before) } else { Nanos(0) };
                let beside = beside_ns(model, before + sent.bytes).since(paid);
                *last = Together { sent: now, bytes: before + sent.bytes, end: sent.address + sent.bytes };
                *free_at = now.max(*free_at) + pipe_ns(model, sent.bytes) + beside;
                done.push_back((*free_at, sent.id));
            }
        }
    }

    /// When something will have happened, if nothing more is sent: a completion, or a change of the scheduler's mind.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        match self {
            Self::Plain(device) => device.next_completion().map(|(due, _)| due),
            Self::Disk(disk) => disk.next_event(),
            Self::Raid { disks, .. } => disks.iter().filter_map(DiskState::next_event).min(),
            Self::Table { done, .. } => done.front().map(|&(due, _)| due),
        }
    }

    /// The earliest request that is done by `now`.
    pub(super) fn complete(&mut self, now: Nanos) -> Option<u64> {
        match self {
            Self::Plain(device) => device.complete(now).map(|(_, id)| id),
            Self::Disk(disk) => disk.complete(now),
            Self::Raid { disks, parts, .. } => loop {
                let id = disks.iter_mut().find_map(|disk| disk.complete(now))?;
                let left = parts.get_mut(&id).expect("a part of a request that was sent");
                *left -= 1;
                if *left == 0 {
                    parts.remove(&id);
                    return Some(id);
                }
            },
            Self::Table { done, .. } => done
                .front()
                .is_some_and(|&(due, _)| due <= now)
                .then(|| done.pop_front().map(|(_, id)| id))?,
        }
    }
}

/// Which platter holds which part of a request: `(disk, address on it, bytes)`, one entry a platter.
fn striped(sent: Sent, stripe: u64, disks: u64) -> Vec<(usize, u64, u64)> {
    let mut parts: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    let (mut at, end) = (sent.address, sent.address + sent.bytes.max(1));
    while at < end {
        let unit = at / stripe;
        let bytes = (unit * stripe + stripe).min(end) - at;
        let address = unit / disks * stripe + at % stripe;
        let part = parts.entry((unit % disks) as usize).or_insert((address, 0));
        part.1 += bytes;
        at += bytes;
    }
    parts.into_iter().map(|(disk, (address, bytes))| (disk, address, bytes)).collect()
}

/// What a request's bytes take on the pipe.
fn pipe_ns(model: &MachineModel, bytes: u64) -> Nanos {
    let MachineModel::Table { bytes_per_s, .. } = model else { return Nanos(0) };
    Nanos((bytes as f64 * 1e9 / (*bytes_per_s).max(1) as f64).round() as u64)
}

/// What a request takes beside that by the table.
fn beside_ns(model: &MachineModel, bytes: u64) -> Nanos {
    let MachineModel::Table { rows, .. } = model else { return Nanos(0) };
    let beside = match rows.partition_point(|row| row.0 <= bytes) {
        0 => rows.first().map_or(0.0, |row| row.1 as f64),
        at if at == rows.len() => rows[at - 1].1 as f64,
        at => {
            let ((low, a), (high, b)) = (rows[at - 1], rows[at]);
            let share = (bytes as f64 / low as f64).ln() / (high as f64 / low as f64).ln();
            a as f64 + (b as f64 - a as f64) * share
        }
    };
    Nanos(beside.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 KiB from byte 60 KiB over three platters of 64 KiB stripes: 4, 64 and 32 KiB.
    #[test]
    fn a_request_is_striped() {
        let sent = Sent { id: 1, stream: 0, address: 60 << 10, bytes: 100 << 10 };
        let kib = striped(sent, 64 << 10, 3);
        assert_eq!(kib, [(0, 60 << 10, 4 << 10), (1, 0, 64 << 10), (2, 0, 32 << 10)]);
    }

    #[test]
    fn a_table_is_read_between_its_rows() {
        let model = MachineModel::Table { bytes_per_s: 1_000_000_000, rows: vec![(4096, 100), (16384, 300)] };
        assert_eq!(pipe_ns(&model, 8192), Nanos(8192));
        let beside = |bytes: u64| beside_ns(&model, bytes).0;
        assert_eq!([512, 4096, 8192, 16384, 1 << 20].map(beside), [100, 100, 200, 300, 300]);
    }

    /// 4 KiB take 100 ns beside the pipe's 4,096, and 8 KiB 150: two that continue one another take 50 more, at one moment
    /// only.
    #[test]
    fn what_is_sent_together_is_one_window() {
        let rows = vec![(4096, 100), (8192, 150)];
        let mut drive = Machine::new(&MachineModel::Table { bytes_per_s: 1_000_000_000, rows });
        let mut due = 0;
        for (now, page, wanted) in [(0, 0, 4196), (0, 1, 4146), (0, 3, 4196), (20_000, 4, 4196)] {
            drive.submit(Nanos(now), Sent { id: page, stream: 0, address: page * 4096, bytes: 4096 });
            let begins = due.max(now);
            due = if let Machine::Table { free_at, .. } = &drive { free_at.0 } else { 0 };
            assert_eq!(due - begins, wanted, "page {page}");
        }
    }

    #[test]
    fn a_raid_is_done_when_its_last_part_is() {
        let disk = DiskModel::hitachi_2007();
        let model = MachineModel::Raid { disk, disks: 4, stripe_bytes: 64 << 10 };
        let mut raid = Machine::new(&model);
        raid.submit(Nanos(0), Sent { id: 7, stream: 0, address: 0, bytes: 256 << 10 });
        let mut seen = None;
        while let Some(at) = raid.next_event() {
            seen = raid.complete(at).map(|id| (id, at)).or(seen);
        }
        let mut alone = Machine::new(&MachineModel::Disk(disk));
        alone.submit(Nanos(0), Sent { id: 7, stream: 0, address: 0, bytes: 64 << 10 });
        assert_eq!(seen, alone.next_event().map(|at| (7, at)));
    }
}
