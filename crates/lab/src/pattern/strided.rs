//! Strides, columns of a matrix, and reading backwards: what is read next is plain, but it is never the next byte.
//!
//! ```text
//! sparse_8k      |##|  |##|  |##|  |##|          read 8 KiB, skip 8 KiB
//! stride_L_S     |L...|            |L...|        one read of L every S bytes
//! matrix         row 0 |c0 c1 c2 ..             round r reads page r of every row
//!                row 1 |c0 c1 c2 ..
//! rev            ... |3|2|1|0|                   from the end to the start
//! ```

use super::params::{Knobs, Misfit};
use super::plan::{GIB, KIB, MIB, Plan};
use super::sequential::VOLUME;

/// Reads of `length`, one every `stride` bytes from 1 MiB, until the volume is read or 15 GiB is reached.
pub(super) fn stride(k: &mut Knobs, length: u64, stride: u64) -> Result<Plan, Misfit> {
    let length = k.block("length", length)?;
    let (low, high) = (stride * 5 / 8, stride * 7 / 4);
    let stride =
        k.value("stride", stride, low.max(length + 4 * KIB), high.max(length + 64 * KIB), 4 * KIB)?;
    let start = k.place("start", MIB, 0, 256 * MIB, 4 * KIB)?;
    let reads = k.scaled(VOLUME).div_ceil(length).min(k.scaled(15 * GIB).div_ceil(stride));
    let mut plan = Plan::on_one_file();
    for read in 0..reads {
        let offset = start + read * stride;
        if offset + length > 15 * GIB + start {
            break;
        }
        plan.read(0, offset, length)?.fresh = read == 0;
    }
    Ok(plan)
}

/// Columns of a matrix of `rows` rows: page `r` of every row, then page `r + 1` of every row.
pub(super) fn matrix(k: &mut Knobs, rows: u64) -> Result<Plan, Misfit> {
    let rows = k.count("rows", rows)?;
    let row_pages = k.value("row_pages", 1000, 600, 3000, 1)?;
    let start = k.place("start", 0, 0, 256 * MIB, 4 * KIB)?;
    let rounds = (k.scaled(VOLUME) / (rows * 4 * KIB)).clamp(1, row_pages);
    let mut plan = Plan::on_one_file();
    for round in 0..rounds {
        for row in 0..rows {
            // The rows are equally far apart, so a rule that knows strides can foresee every row but the first.
            let fresh = round == 0 && row == 0;
            plan.read(0, start + (row * row_pages + round) * 4 * KIB, 4 * KIB)?.fresh = fresh;
        }
    }
    Ok(plan)
}

/// Reads of `block` going backwards, the volume in all, down to 512 MiB.
pub(super) fn reverse(k: &mut Knobs, block: u64) -> Result<Plan, Misfit> {
    let block = k.block("block", block)?;
    let bottom = k.place("bottom", 512 * MIB, 256 * MIB, 2 * GIB, 4 * KIB)?;
    let reads = (k.scaled(VOLUME) / block).max(1);
    let mut plan = Plan::on_one_file();
    for read in (0..reads).rev() {
        plan.read(0, bottom + read * block, block)?.fresh = read + 1 == reads;
    }
    Ok(plan)
}
