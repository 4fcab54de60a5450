//! The programs of the tables: who reads what, when.

use crate::rng::Rng;
use crate::sweep::sweep_brain;
use crate::world::{Actor, Brain, MachineModel, Step, World, WorldConfig, WorldOutcome};
use bowwave_core::{Extent, Nanos};

/// Pages in a mebibyte.
pub(super) const MIB: u64 = 256;

/// `wave` as the library runs it: it knows its memory, sends requests of up to 1 MiB, and reads of its own as large.
pub(super) fn wave(frames: u64) -> Brain {
    sweep_brain("wave", frames).expect("wave is one of the sweep's")
}

/// Reads `count` pages at a time from `start` to `end`, as fast as it goes.
pub(super) fn sequential(fd: u32, start: u64, end: u64, count: u64) -> Actor<'static> {
    let mut at = start;
    Box::new(move |_| {
        if at >= end {
            return Step::End;
        }
        at += count;
        Step::read(fd, at - count, count)
    })
}

/// A client that is sent a stream at `bytes_per_s`, a page at a time, from the moment it connects; who falls behind
/// catches up by `catch_up` at most, and skips the rest of its time.
pub(super) fn paced(fd: u32, pages: u64, bytes_per_s: u64, start: Nanos, catch_up: Nanos) -> Actor<'static> {
    let interval = 4096 * 1_000_000_000 / bytes_per_s;
    let (mut at, mut due, mut slept) = (0, start.0, false);
    Box::new(move |now| {
        if at >= pages {
            return Step::End;
        }
        if !slept {
            slept = true;
            return Step::Until(Nanos(due));
        }
        slept = false;
        due = (due + interval).max(now.since(catch_up).0);
        at += 1;
        Step::read(fd, at - 1, 1)
    })
}

/// The steps of a list, then the end.
pub(super) fn listed(steps: Vec<Step>) -> Actor<'static> {
    let mut steps = steps.into_iter();
    Box::new(move |_| steps.next().unwrap_or(Step::End))
}

/// `times` reads of `count` pages at random places aligned to `count`, in `[0, pages)`.
pub(super) fn random(fd: u32, pages: u64, count: u64, times: u64, mut rng: Rng) -> Actor<'static> {
    let mut left = times;
    Box::new(move |_| {
        if left == 0 {
            return Step::End;
        }
        left -= 1;
        Step::read(fd, rng.below(pages / count) * count, count)
    })
}

/// A world, its programs, played.
pub(super) fn played(config: WorldConfig, actors: Vec<(Nanos, Actor<'_>)>) -> WorldOutcome {
    let mut world = World::new(config);
    for (start, actor) in actors {
        world.add(start, actor);
    }
    world.run()
}

/// One program from the start.
pub(super) fn alone(config: WorldConfig, actor: Actor<'_>) -> WorldOutcome {
    played(config, vec![(Nanos(0), actor)])
}

/// A world of one file.
pub(super) fn one_file(machine: MachineModel, frames: u64, brain: Brain, pages: u64) -> WorldConfig {
    WorldConfig::new(machine, frames, brain, &[pages])
}

/// `x` in 10^6 a second.
pub(super) fn mb(x: f64) -> f64 {
    x / 1e6
}

/// Pages `[start, start + count)`.
pub(super) const fn pages(start: u64, count: u64) -> Extent {
    Extent::new(start, count)
}

/// Whether `a` lies within `percent` of `b`.
pub(super) fn near(a: f64, b: f64, percent: f64) -> bool {
    (a - b).abs() <= b.abs() * percent / 100.0
}

/// As it is printed with two decimals.
pub(super) fn cents(x: f64) -> i64 {
    (x * 100.0).round() as i64
}

/// Bytes a second of `pages` read in `time`.
pub(super) fn rate(outcome: &WorldOutcome) -> f64 {
    outcome.bytes_per_s()
}
