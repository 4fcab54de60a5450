//! Interleaved streams: many sequential readers of one file, on one descriptor or on one each.
//!
//! ```text
//! stream 0 at 24 MiB             |A0 A1 A2 ...          order of reads, 3 streams: A0 B0 C0 A1 B1 C1 A2 ...
//! stream 1 at 48 MiB +  20 KiB           |B0 B1 B2 ...
//! stream 2 at 72 MiB +  40 KiB                     |C0 C1 C2 ...
//! ```

use super::params::{Knobs, Misfit};
use super::plan::{GIB, KIB, MIB, Plan};
use super::sequential::VOLUME;

/// How streams share descriptors and threads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// One descriptor, one thread.
    OneFd,
    /// A descriptor each, one thread.
    OwnFd,
    /// A descriptor and a thread each, running free.
    OwnThread,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// Read `k` belongs to stream `k mod n`.
    RoundRobin,
    /// The stream of each read is drawn.
    Random,
}

/// `n` streams of 8 KiB reads through one file.
pub(super) fn interleaved(k: &mut Knobs, n: u64, door: Door, turns: Turns) -> Result<Plan, Misfit> {
    let layout = Layout::of(k, n)?;
    let mut plan = Plan::on_one_file();
    if door != Door::OneFd {
        plan.descriptors = vec![0; layout.streams as usize];
    }
    if door == Door::OwnThread {
        plan.threads = layout.streams as u32;
    }
    let mut read = vec![0; layout.streams as usize];
    let mut rng = k.rng("turns");
    let rounds = k.scaled(VOLUME) / (layout.streams * layout.block);
    for turn in 0..rounds.max(1) * layout.streams {
        let stream = match turns {
            Turns::RoundRobin => turn % layout.streams,
            Turns::Random => rng.below(layout.streams),
        };
        let fd = if door == Door::OneFd { 0 } else { stream as u32 };
        let at = &mut read[stream as usize];
        let op = plan.read(fd, layout.start(stream) + *at, layout.block)?;
        op.thread = if door == Door::OwnThread { stream as u32 } else { 0 };
        op.fresh = *at == 0;
        *at += layout.block;
    }
    Ok(plan)
}

/// `n` streams on one descriptor, of which stream `s` stops after `(s + 1) / n` of its share.
pub(super) fn stopping(k: &mut Knobs, n: u64) -> Result<Plan, Misfit> {
    let layout = Layout::of(k, n)?;
    let mut plan = Plan::on_one_file();
    // Streams stop evenly over the run, so they read half of what they would have read together.
    let rounds = (2 * k.scaled(VOLUME) / (layout.streams * layout.block)).max(layout.streams);
    for round in 0..rounds {
        for stream in 0..layout.streams {
            if round < rounds * (stream + 1) / layout.streams {
                plan.read(0, layout.start(stream) + round * layout.block, layout.block)?.fresh = round == 0;
            }
        }
    }
    Ok(plan)
}

/// Where streams start and how they read.
struct Layout {
    streams: u64,
    block: u64,
    spacing: u64,
    skew: u64,
}

impl Layout {
    fn of(k: &mut Knobs, n: u64) -> Result<Self, Misfit> {
        let streams = k.value("streams", n, (n * 3 / 4).max(2), n * 5 / 4 + u64::from(n < 4), 1)?.max(1);
        Ok(Self {
            streams,
            block: k.block("block", 8 * KIB)?,
            // Wherever the last stream starts, its share still fits into the 16 GiB file.
            spacing: k.value(
                "spacing",
                24 * MIB,
                12 * MIB,
                (40 * MIB).min(15 * GIB / (streams + 1)),
                4 * KIB,
            )?,
            skew: k.value("skew", 20 * KIB, 4 * KIB, 64 * KIB, 4 * KIB)?,
        })
    }

    fn start(&self, stream: u64) -> u64 {
        (stream + 1) * self.spacing + (stream % 7) * self.skew
    }
}
