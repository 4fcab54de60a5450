//! Mixtures: several patterns on one file by turns, one after another, changing their period or direction, or stopping.
//!
//! Nothing is published about these; they are what keeps rules from being written for the pure patterns. `composed:SEED`
//! draws a mixture of its own from the seed: two to four parts, by turns or one after another.
//!
//! ```text
//! by turns        a a b a a b a a b ...        each part in a region of its own, 4 GiB apart
//! in phases       a a a a | b b b b | a a a a  the plan says where phases begin
//! ```

use super::params::{Knobs, Misfit};
use super::plan::{GIB, KIB, MIB, Phase, Plan};
use super::sequential::{VOLUME, sequential};
use super::streams::{Door, Turns, interleaved};
use super::strided::{matrix, reverse, stride};

/// Bytes between the regions of two parts; no part reads further than this.
const REGION: u64 = 3 * GIB;

/// A part of a mixture.
type Part = (&'static str, fn(&mut Knobs) -> Result<Plan, Misfit>);

const SEQUENTIAL: Part = ("sequential", |k| sequential(k, 16 * KIB, VOLUME));
const LARGE: Part = ("large", |k| sequential(k, 256 * KIB, VOLUME));
const STRIDE: Part = ("stride", |k| stride(k, 64 * KIB, MIB));
const STRIDE_SHORT: Part = ("stride_short", |k| stride(k, 16 * KIB, 96 * KIB));
const STRIDE_LONG: Part = ("stride_long", |k| stride(k, 64 * KIB, 1600 * KIB));
const SPARSE: Part = ("sparse", |k| stride(k, 8 * KIB, 16 * KIB));
const REVERSE: Part = ("reverse", |k| reverse(k, 16 * KIB));
const STREAMS: Part = ("streams", |k| interleaved(k, 8, Door::OneFd, Turns::RoundRobin));
const MANY: Part = ("many_streams", |k| interleaved(k, 32, Door::OneFd, Turns::RoundRobin));
const MATRIX: Part = ("matrix", |k| matrix(k, 64));
const RANDOM: Part = ("random", random);
const DENSE: Part = ("dense", super::random::dense);

/// Sequential and strided by turns.
pub(super) fn sequential_and_stride(k: &mut Knobs) -> Result<Plan, Misfit> {
    by_turns(k, &[(SEQUENTIAL, 4, 0.5), (STRIDE, 1, 0.5)])
}

/// Forwards here, backwards there, by turns.
pub(super) fn forwards_and_backwards(k: &mut Knobs) -> Result<Plan, Misfit> {
    by_turns(k, &[(SEQUENTIAL, 1, 0.5), (REVERSE, 1, 0.5)])
}

/// Two strides of different period by turns.
pub(super) fn two_strides(k: &mut Knobs) -> Result<Plan, Misfit> {
    by_turns(k, &[(STRIDE, 1, 0.6), (STRIDE_SHORT, 3, 0.4)])
}

/// Columns of a matrix and a stream by turns.
pub(super) fn matrix_and_sequential(k: &mut Knobs) -> Result<Plan, Misfit> {
    by_turns(k, &[(MATRIX, 64, 0.5), (LARGE, 1, 0.5)])
}

/// Eight streams and random pages by turns.
pub(super) fn streams_and_random(k: &mut Knobs) -> Result<Plan, Misfit> {
    by_turns(k, &[(STREAMS, 8, 1.0), (RANDOM, 1, 0.1)])
}

/// Forwards, backwards, forwards elsewhere.
pub(super) fn turn_about(k: &mut Knobs) -> Result<Plan, Misfit> {
    in_phases(k, &[(SEQUENTIAL, 0.34), (REVERSE, 0.33), (LARGE, 0.33)])
}

/// Random, sequential, random.
pub(super) fn random_then_not(k: &mut Knobs) -> Result<Plan, Misfit> {
    in_phases(k, &[(RANDOM, 0.05), (SEQUENTIAL, 0.9), (RANDOM, 0.05)])
}

/// A stride whose period changes twice.
pub(super) fn changing_period(k: &mut Knobs) -> Result<Plan, Misfit> {
    in_phases(k, &[(STRIDE, 0.34), (STRIDE_SHORT, 0.33), (STRIDE_LONG, 0.33)])
}

/// Sparse, dense, sparse.
pub(super) fn changing_density(k: &mut Knobs) -> Result<Plan, Misfit> {
    in_phases(k, &[(SPARSE, 0.34), (SEQUENTIAL, 0.33), (SPARSE, 0.33)])
}

/// One stream, then eight, then thirty-two.
pub(super) fn growing_streams(k: &mut Knobs) -> Result<Plan, Misfit> {
    in_phases(k, &[(SEQUENTIAL, 0.2), (STREAMS, 0.3), (MANY, 0.5)])
}

/// Runs of 4 MiB that are read forwards, backwards, forwards, ... each after the one before.
pub(super) fn zigzag(k: &mut Knobs) -> Result<Plan, Misfit> {
    let block = k.block("block", 16 * KIB)?;
    let run = k.value("run", 4 * MIB, MIB, 8 * MIB, 64 * KIB)? / block * block;
    let start = k.place("start", 64 * MIB, 0, 512 * MIB, 4 * KIB)?;
    let mut plan = Plan::on_one_file();
    for number in 0..(k.scaled(VOLUME) / run.max(block)).max(2) {
        let blocks = (run / block).max(1);
        for turn in 0..blocks {
            let place = if number % 2 == 0 { turn } else { blocks - 1 - turn };
            // Where the next run begins follows from where this one ends only when it goes on forwards.
            plan.read(0, start + (number * blocks + place) * block, block)?.fresh = turn == 0;
        }
    }
    Ok(plan)
}

/// A mixture drawn from `seed`.
pub(super) fn drawn(k: &mut Knobs, seed: u64) -> Result<Plan, Misfit> {
    const PARTS: [Part; 12] = [
        SEQUENTIAL,
        LARGE,
        STRIDE,
        STRIDE_SHORT,
        STRIDE_LONG,
        SPARSE,
        REVERSE,
        STREAMS,
        MANY,
        MATRIX,
        RANDOM,
        DENSE,
    ];
    let mut rng = crate::rng::Rng::named(seed, &["composed"]);
    let phases = rng.below(2) == 1;
    let count = 2 + rng.below(3);
    let parts: Vec<(Part, u64, f64)> = (0..count)
        .map(|_| (PARTS[rng.below(12) as usize], 1 + rng.below(8), 1.0 / count as f64))
        .map(|(part, turn, share)| (part, turn, if part.0 == RANDOM.0 { share * 0.1 } else { share }))
        .collect();
    if phases {
        in_phases(k, &parts.into_iter().map(|(part, _, share)| (part, share)).collect::<Vec<_>>())
    } else {
        by_turns(k, &parts)
    }
}

/// Uniformly random pages of a region; a full share is as many bytes as a full share of any other part.
fn random(k: &mut Knobs) -> Result<Plan, Misfit> {
    let mut rng = k.rng("page");
    let mut plan = Plan::on_one_file();
    for _ in 0..(k.scaled(VOLUME) / (4 * KIB)).max(1) {
        plan.read(0, rng.below(REGION / (4 * KIB)) * 4 * KIB, 4 * KIB)?.fresh = true;
    }
    Ok(plan)
}

/// Parts by turns: so many reads of the first, so many of the second, until all are done.
fn by_turns(k: &mut Knobs, parts: &[(Part, u64, f64)]) -> Result<Plan, Misfit> {
    let mut queues: Vec<_> = parts
        .iter()
        .enumerate()
        .map(|(number, &(part, turn, share))| {
            let turn = k.value(&format!("{number}.turn"), turn, turn.div_ceil(2), turn * 2, 1)?.max(1);
            Ok((region(k, number, part, share)?.ops.into_iter(), turn))
        })
        .collect::<Result<_, Misfit>>()?;
    let mut plan = Plan::on_one_file();
    loop {
        let before = plan.ops.len();
        for (queue, turn) in &mut queues {
            plan.ops.extend(queue.take(*turn as usize));
        }
        if plan.ops.len() == before {
            return Ok(plan);
        }
    }
}

/// Parts one after another.
fn in_phases(k: &mut Knobs, parts: &[(Part, f64)]) -> Result<Plan, Misfit> {
    let mut plan = Plan::on_one_file();
    for (number, &(part, share)) in parts.iter().enumerate() {
        plan.phases.push(Phase { first_op: plan.ops.len(), name: part.0.to_string() });
        plan.ops.extend(region(k, number, part, share)?.ops);
    }
    Ok(plan)
}

/// The plan of part `number`, moved to a region of its own.
fn region(k: &mut Knobs, number: usize, part: Part, share: f64) -> Result<Plan, Misfit> {
    let mut knobs = k.part(&number.to_string(), share);
    let plan = part.1(&mut knobs);
    k.used.append(&mut knobs.used);
    let mut plan = plan?;
    for op in &mut plan.ops {
        op.offset += number as u64 * REGION;
        if op.offset + op.asked > (number as u64 + 2) * REGION {
            return Err(Misfit(format!("part {number} reads past its region, 3 GiB and 3 more behind it")));
        }
    }
    Ok(plan)
}
