//! Servers and file formats: sixteen threads that take reads out of order, columns found through a footer, members of
//! an archive found through its directory.
//!
//! ```text
//! nfs16     queue 3 0 5 1 .. 15 | 18 16 31 ..      shuffled within every 16 reads, taken by 16 threads
//! parquet   |  [chunk 0]    [chunk 1]    [chunk 2]    [chunk 3]   [footer]8|     8, footer, then chunks
//! zip       |[h data] [h data] ..             [directory][last 64 KiB: 22|]     22, 64 KiB, directory, then members
//! ```

use super::params::{Knobs, Misfit};
use super::plan::{Dispatch, KIB, Plan, SMALL_FILE_BYTES};
use super::sequential::VOLUME;

/// Threads take reads from one common queue, sequential but shuffled within every few reads.
pub(super) fn server(k: &mut Knobs, dispatch: Dispatch) -> Result<Plan, Misfit> {
    let threads = k.count("threads", 16)?;
    let window = k.count("window", 16)?;
    let block = k.block("block", 32 * KIB)?;
    let start = k.place("start", 0, 0, 512 * 1024 * KIB, 4 * KIB)?;
    let reads: Vec<u64> = (0..(k.scaled(VOLUME) / block).max(1)).collect();
    let mut rng = k.rng("queue");
    let mut plan = Plan::on_one_file();
    plan.threads = threads as u32;
    plan.dispatch = dispatch;
    if dispatch == Dispatch::QueueOwn {
        plan.descriptors = vec![0; threads as usize];
    }
    for window in reads.chunks(window as usize) {
        let mut window = window.to_vec();
        rng.shuffle(&mut window);
        for read in window {
            let turn = plan.ops.len();
            let thread = turn as u32 % plan.threads;
            let op = plan.read(0, start + read * block, block)?;
            op.thread = thread;
            op.fd = if dispatch == Dispatch::QueueOwn { thread } else { 0 };
            op.fresh = turn == 0;
        }
    }
    Ok(plan)
}

/// Files of columns: the tail tells where the footer is, the footer where the chunks are.
pub(super) fn columns(k: &mut Knobs) -> Result<Plan, Misfit> {
    let footer = k.value("footer", 48 * KIB, 16 * KIB, 128 * KIB, 4 * KIB)?;
    let chunks = k.value("chunks", 4, 3, 4, 1)?;
    let chunk = k.value("chunk", 512 * KIB, 256 * KIB, 768 * KIB, 64 * KIB)?;
    let spacing = k.value("spacing", 1900 * KIB, 1400 * KIB, 2000 * KIB, KIB)?;
    let block = k.value("block", 64 * KIB, 32 * KIB, 128 * KIB, 32 * KIB)?;
    Misfit::unless(footer <= SMALL_FILE_BYTES - 8, "footer and 8 bytes lie in 8 MiB")?;
    let mut rng = k.rng("gaps");
    let mut plan = Plan::new();
    for number in 0..k.scaled(64).min(256) {
        let fd = plan.open_small(number);
        plan.read(fd, SMALL_FILE_BYTES - 8, 8)?.fresh = true;
        plan.read(fd, SMALL_FILE_BYTES - 8 - footer, footer)?;
        for c in 0..chunks {
            let start = c * spacing + rng.below(300) * KIB + 4;
            blocks(&mut plan, fd, start, chunk, block, true)?;
        }
    }
    Ok(plan)
}

/// Archives: the end tells where the directory is, the directory where the members are.
pub(super) fn archive(k: &mut Knobs) -> Result<Plan, Misfit> {
    let members = k.value("members", 12, 8, 12, 1)?;
    let spacing = k.value("spacing", 640 * KIB, 500 * KIB, 640 * KIB, KIB)?;
    let block = k.value("block", 32 * KIB, 8 * KIB, 64 * KIB, 8 * KIB)?;
    let directory = k.value("directory", 64 * KIB, 16 * KIB, 128 * KIB, 4 * KIB)?;
    Misfit::unless(directory <= SMALL_FILE_BYTES - 64 * KIB, "directory and 64 KiB lie in 8 MiB")?;
    let mut rng = k.rng("members");
    let mut plan = Plan::new();
    for number in 0..k.scaled(64).min(256) {
        let fd = plan.open_small(number);
        plan.read(fd, SMALL_FILE_BYTES - 22, 22)?.fresh = true;
        plan.read(fd, SMALL_FILE_BYTES - 64 * KIB, 64 * KIB)?;
        blocks(&mut plan, fd, SMALL_FILE_BYTES - 64 * KIB - directory, directory, 4 * KIB, false)?;
        for member in 0..members {
            let header = member * spacing + rng.below(64) * KIB;
            plan.read(fd, header, 30)?.fresh = true;
            blocks(&mut plan, fd, header + 60, (16 + rng.below(200)) * KIB, block, false)?;
        }
    }
    Ok(plan)
}

/// `bytes` from `start` on, block by block.
fn blocks(plan: &mut Plan, fd: u32, start: u64, bytes: u64, block: u64, fresh: bool) -> Result<(), Misfit> {
    for at in (0..bytes).step_by(block as usize) {
        plan.read(fd, start + at, block.min(bytes - at))?.fresh = fresh && at == 0;
    }
    Ok(())
}
