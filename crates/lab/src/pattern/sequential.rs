//! Sequential reading: one stream from one place to another, by blocks of every size; and reads that are asked twice.
//!
//! ```text
//! seq_4k    |0 4K|4K 8K|8K 12K| ...        retry   asks   |0 ......... 256K|
//! seq_10k   |0   10K|10K   20K| ...                  then  .  |64K ........ 320K|   uses 64 KiB of each
//! ```

use super::params::{Knobs, Misfit};
use super::plan::{KIB, MIB, Plan};

/// Volume of a run of most patterns.
pub(super) const VOLUME: u64 = 256 * MIB;

/// Reads of `block` from the start of the file, `volume` in all.
pub(super) fn sequential(k: &mut Knobs, block: u64, volume: u64) -> Result<Plan, Misfit> {
    from(k, block, volume, 0)
}

/// A stream that begins in mid-file.
pub(super) fn mid_file(k: &mut Knobs) -> Result<Plan, Misfit> {
    from(k, 8 * KIB, VOLUME, 333 * MIB + 12 * KIB)
}

fn from(k: &mut Knobs, block: u64, volume: u64, start: u64) -> Result<Plan, Misfit> {
    let block = k.block("block", block)?;
    let start = k.place("start", start, 0, 512 * MIB, 4 * KIB)?;
    let volume = k.scaled(volume);
    let mut plan = Plan::on_one_file();
    for at in (0..volume).step_by(block as usize) {
        plan.read(0, start + at, block.min(volume - at))?.fresh = at == 0;
    }
    Ok(plan)
}

/// Each read asks for four blocks and uses one; the next asks again from there.
pub(super) fn retry(k: &mut Knobs) -> Result<Plan, Misfit> {
    let used = k.block("used", 64 * KIB)?;
    let asked = used * k.value("times", 4, 2, 8, 1)?;
    let start = k.place("start", 0, 0, 512 * MIB, 4 * KIB)?;
    let volume = k.scaled(VOLUME);
    let mut plan = Plan::on_one_file();
    for at in (0..volume).step_by(used as usize) {
        let op = plan.read(0, start + at, asked)?;
        op.used = used.min(volume - at);
        op.fresh = at == 0;
    }
    Ok(plan)
}
