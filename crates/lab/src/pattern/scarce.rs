//! Many streams and little memory: readers at a given pace, and readers by turns as fast as they go.
//!
//! 128 MiB among 200 streams is 655 KiB each: a window of 1 MiB each does not fit, and what was read ahead is gone
//! before its reader comes. The player puts itself (and whatever steers it) into a memory cgroup of the plan's size.

use super::params::{Knobs, Misfit};
use super::plan::{KIB, MIB, Pace, Plan};

/// `streams` readers of 100 KB/s in 4 KiB reads, a thread each, one more every 50 ms.
///
/// A file and a descriptor each, or (`one_fd`) one file and one shared descriptor, stream `i` from `i` x 64 MiB on.
pub(super) fn paced(k: &mut Knobs, streams: u64, one_fd: bool) -> Result<Plan, Misfit> {
    let streams = k.count("streams", streams)?.min(256);
    let block = k.value("block", 4 * KIB, 4 * KIB, 16 * KIB, 4 * KIB)?;
    let rate = k.value("rate", 100_000, 60_000, 120_000, 1000)?;
    let start_every_ns = k.value("start_every_ms", 50, 30, 60, 1)? * 1_000_000;
    let spacing = k.value("spacing", 64 * MIB, 40 * MIB, 60 * MIB, 4 * KIB)?;
    // The baseline writes 128 MB and means the cgroup's 128M: only so do 200 windows of 256 KiB all fit, as it found.
    let memory = k.value("memory", 128 * MIB, 128 * MIB, 128 * MIB, MIB)?;
    let mut plan = Plan::new();
    plan.threads = streams as u32;
    plan.memory_bytes_max = Some(memory);
    let pace = Pace {
        bytes_per_s: rate,
        start_every_ns,
        catch_up_ns_max: 1_000_000_000,
        settle_ns: 5_000_000_000,
        measure_ns: k.scaled(15_000_000_000),
    };
    plan.pace = Some(pace);
    for stream in 0..if one_fd { 1 } else { streams } {
        plan.open_big(stream);
    }
    let reads = |stream: u64| {
        let ns = pace.total_ns(streams as u32) - stream * start_every_ns;
        (u128::from(ns) * u128::from(rate) / 1_000_000_000) as u64 / block + 1
    };
    for stream in 0..streams {
        for read in 0..reads(stream) {
            let (fd, base) = if one_fd { (0, stream * spacing) } else { (stream as u32, 0) };
            let op = plan.read(fd, base + read * block, block)?;
            op.thread = stream as u32;
            op.fresh = read == 0;
        }
    }
    Ok(plan)
}

/// `streams` readers, a file and a descriptor each, one thread: 64 KiB of each by turns, 32 MiB of each in all.
pub(super) fn turns(k: &mut Knobs, streams: u64) -> Result<Plan, Misfit> {
    let streams = k.count("streams", streams)?.min(256);
    let block = k.value("block", 64 * KIB, 32 * KIB, 128 * KIB, 4 * KIB)?;
    let start = k.place("start", 0, 0, 256 * MIB, 4 * KIB)?;
    let memory = k.value("memory", 128 * MIB, 128 * MIB, 128 * MIB, MIB)?;
    let mut plan = Plan::new();
    plan.memory_bytes_max = Some(memory);
    for stream in 0..streams {
        plan.open_big(stream);
    }
    for round in 0..(k.scaled(32 * MIB) / block).max(1) {
        for stream in 0..streams {
            plan.read(stream as u32, start + round * block, block)?.fresh = round == 0;
        }
    }
    Ok(plan)
}
