//! Reads in an order of their own: block by block, shuffled, with gaps that are never the same. `ordered:SEED` draws one.
//!
//! Nobody designed a rule by them: they are what programs do between the pure patterns, drawn by the dozen to see where a rule fails.
//!
//! ```text
//! upside down    |3 2 1 0|7 6 5 4|11 ...        blocks go up, each is read downwards: images, tiles
//! from behind    ... |4 5 6 7|0 1 2 3|          blocks go down, each is read upwards: logs, films played backwards
//! shuffled       |2 0 3 1|5 7 4 6|9 ...         sorted within blocks by something else
//! displaced      0 2 1 3 5 4 ...                out of order by no more than so many
//! scan           |##|   |##| |##|        |##|   upwards, or downwards, by gaps of chance: what an index finds
//! sliding        |####|                         each read overlaps the last
//!                  |####|
//! records        |h|body|h|    |h|    |h|body|  a head tells how long the body is, which is read or not
//! windows        rows of a rectangle out of a matrix, somewhere else each time
//! ```

use super::params::{Knobs, Misfit};
use super::plan::{GIB, KIB, MIB, Op, Plan};
use super::sequential::VOLUME;
use crate::rng::Rng;

/// No part of a pattern lies beyond this.
const END: u64 = 12 * GIB;
/// Reads of one pattern.
const READS_MAX: u64 = 16_384;

/// What a kind of pattern is made of: reads of `block` bytes from `start` on, `reads` of them, in groups of `run`.
struct Draw<'a> {
    knobs: &'a Knobs<'a>,
    plan: Plan,
    rng: Rng,
    start: u64,
    block: u64,
    run: u64,
    reads: u64,
}

/// Makes the reads of one kind.
type Order = fn(&mut Draw<'_>) -> Result<(), Misfit>;

/// The pattern that `seed` draws.
pub(super) fn drawn(k: &mut Knobs, seed: u64) -> Result<Plan, Misfit> {
    const KINDS: [Order; 9] =
        [upside_down, from_behind, shuffled, displaced, scan, scan, sliding, records, windows];
    let mut rng = Rng::named(seed, &["ordered"]);
    let block = [4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB, 128 * KIB][rng.below(5) as usize];
    let run = [2, 3, 8, 16, 50][rng.below(5) as usize];
    let start = MIB * (1 + rng.below(512));
    let reads = k.scaled((VOLUME / block).min(READS_MAX)).max(2 * run);
    let kind = KINDS[rng.below(KINDS.len() as u64) as usize];
    let mut draw = Draw { knobs: k, plan: Plan::on_one_file(), rng, start, block, run, reads };
    kind(&mut draw)?;
    Ok(draw.plan)
}

impl Draw<'_> {
    /// One of the reads, by its place among them; the first is fresh.
    fn read(&mut self, place: u64) -> Result<&mut Op, Misfit> {
        let fresh = self.plan.ops.is_empty();
        let op = self.plan.read(0, self.start + place * self.block, self.block)?;
        op.fresh = fresh;
        Ok(op)
    }

    /// The same, so many places from `first` on.
    fn read_all(&mut self, first: u64, places: impl IntoIterator<Item = u64>) -> Result<(), Misfit> {
        places.into_iter().try_for_each(|place| self.read(first + place).map(drop))
    }

    /// So many of something of which a full volume has `all`, at least two.
    fn some(&self, all: u64) -> u64 {
        self.knobs.scaled(all).max(2)
    }
}

fn upside_down(draw: &mut Draw<'_>) -> Result<(), Misfit> {
    for group in 0..draw.reads / draw.run {
        draw.read_all(group * draw.run, (0..draw.run).rev())?;
    }
    Ok(())
}

fn from_behind(draw: &mut Draw<'_>) -> Result<(), Misfit> {
    for group in (0..draw.reads / draw.run).rev() {
        draw.read_all(group * draw.run, 0..draw.run)?;
    }
    Ok(())
}

fn shuffled(draw: &mut Draw<'_>) -> Result<(), Misfit> {
    for group in 0..draw.reads / draw.run {
        let mut within: Vec<u64> = (0..draw.run).collect();
        draw.rng.shuffle(&mut within);
        draw.read_all(group * draw.run, within)?;
    }
    Ok(())
}

fn displaced(draw: &mut Draw<'_>) -> Result<(), Misfit> {
    let reads = draw.reads;
    let mut order: Vec<(u64, u64)> = (0..reads).map(|n| (8 * n + draw.rng.below(8 * draw.run), n)).collect();
    order.sort_unstable();
    draw.read_all(0, order.into_iter().map(|(_, n)| n))?;
    Ok(())
}

/// By gaps of up to four times `run` blocks of 16 KiB and less, upwards or, once in three times, downwards.
fn scan(draw: &mut Draw<'_>) -> Result<(), Misfit> {
    draw.block = draw.block.min(16 * KIB);
    let down = draw.rng.below(3) == 0;
    let gaps: Vec<u64> = (0..draw.some(4096)).map(|_| 1 + draw.rng.below(4 * draw.run)).collect();
    let mut at = if down { gaps.iter().sum::<u64>() } else { 0 };
    for gap in gaps {
        if draw.start + at * draw.block < END {
            draw.read(at)?.fresh = true;
        }
        at = if down { at - gap } else { at + gap };
    }
    Ok(())
}

/// Each read begins in the middle of the one before.
fn sliding(draw: &mut Draw<'_>) -> Result<(), Misfit> {
    for n in 0..draw.reads {
        draw.plan.read(0, draw.start + n * draw.block / 2, draw.block)?.fresh = n == 0;
    }
    Ok(())
}

/// Heads of 24 bytes, each with a body of up to two blocks behind it, of which two in five are read.
fn records(draw: &mut Draw<'_>) -> Result<(), Misfit> {
    let mut at = draw.start;
    for _ in 0..draw.some(4096) {
        let body = 1 + draw.rng.below(2 * draw.block);
        draw.plan.read(0, at, 24)?.fresh = true;
        if draw.rng.below(5) < 2 {
            draw.plan.read(0, at + 24, body)?;
        }
        at += 24 + body;
    }
    Ok(())
}

/// Rectangles of `run` rows of eight blocks out of a matrix of 512 blocks a row.
fn windows(draw: &mut Draw<'_>) -> Result<(), Misfit> {
    const ROW: u64 = 512;
    draw.block = draw.block.min(16 * KIB);
    for _ in 0..draw.some(40) {
        let (top, left) = (draw.rng.below(ROW), draw.rng.below(ROW - 8));
        for n in 0..draw.run * 8 {
            draw.read((top + n / 8) * ROW + left + n % 8)?.fresh = n == 0;
        }
    }
    Ok(())
}
