//! Every policy on every pattern and device in the world, as a share of what an oracle does.
//!
//! ```text
//! rho = T_O / T_A      T_O: the best feasible schedule found: the oracle's, or the quickest policy's
//! LB  <= T_O           what nobody can beat; T_O / LB says how far below T_O the truth may lie
//! eta = useful / fetched bytes
//! ```
//!
//! A policy that wins by wasting has not won: cells are compared at equal waste, the best rho among those whose eta is at least
//! what `wave` has, less a hundredth.

use crate::bound::Yardsticks;
use crate::device::DeviceModel;
use crate::pattern::{Dispatch, Op, Params, Pattern, Plan};
use crate::rivals;
use crate::world::{Actor, Brain, MachineModel, Step, World, WorldConfig, WorldOutcome};
use bowwave_core::{Config, Extent, Nanos, PAGE_SIZE, PageCount};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// How one policy did in one cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Score {
    /// Its name.
    pub policy: String,
    /// Seconds.
    pub seconds: f64,
    /// Share of the oracle.
    pub rho: f64,
    /// Share of what nobody can beat: what a run on a real device is a share of too.
    pub of_bound: f64,
    /// Useful bytes of those fetched.
    pub eta: f64,
    /// Reads that waited.
    pub stalls: u64,
    /// Requests to the device.
    pub requests: u64,
    /// Jain's index of the pace of its threads: 1 is fair.
    pub fairness: f64,
}

/// One pattern on one device in one memory.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepCell {
    /// Pattern.
    pub pattern: String,
    /// Whether a rule could foresee its reads.
    pub regular: bool,
    /// Device.
    pub device: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Seconds of the best feasible schedule.
    pub oracle_s: f64,
    /// Seconds below which nobody can be.
    pub bound_s: f64,
    /// Seconds of the bound for who cannot foresee the unforeseeable.
    pub online_s: f64,
    /// Bytes that the oracle's schedule fetched, for each useful one.
    pub oracle_amplification: f64,
    /// Reads that were played, under every policy and the oracle's depths.
    pub reads: u64,
    /// Policies, in the order asked for.
    pub scores: Vec<Score>,
}

impl SweepCell {
    /// The policy with the best rho at no more waste than `policy`, if it is more than `percent` better.
    pub fn beaten(&self, policy: &str, percent: f64) -> Option<&Score> {
        let own = self.of(policy)?;
        let equal = self.scores.iter().filter(|score| score.eta >= own.eta - 0.01);
        let best = equal.max_by(|a, b| a.rho.total_cmp(&b.rho))?;
        (best.rho > own.rho * (1.0 + percent / 100.0)).then_some(best)
    }

    /// Whether a rule could foresee what the oracle knows: the pattern is regular, and whoever is surprised by the first touch
    /// of each of its runs need not be slower than the oracle, which knows where runs begin. So not 512 streams of one file that
    /// begin within a few latencies of an object store (test `what_a_rule_could_foresee`).
    pub fn foreseeable(&self) -> bool {
        self.regular && self.online_s <= self.oracle_s
    }

    /// Bytes that `policy` fetched for each byte that the oracle did.
    pub fn bytes_of_oracle(&self, policy: &str) -> Option<f64> {
        Some(1.0 / self.of(policy)?.eta / self.oracle_amplification)
    }

    /// That policy's score.
    pub fn of(&self, policy: &str) -> Option<&Score> {
        self.scores.iter().find(|score| score.policy == policy)
    }
}

/// The policies that a sweep knows: the eras of the core, the rivals, and `wave`.
pub fn sweep_policies() -> Vec<&'static str> {
    bowwave_core::NAMES.into_iter().chain(rivals::RIVALS).chain(["wave"]).collect()
}

/// The brain of that name in a memory of `frames` pages; eras of Linux run under a ceiling of 128 KiB, `NAME@KIB` under
/// another; `wave:PERCENT:PAGES:SHARE` is `wave` that tolerates so much waste for what was used (`=PERCENT`: never more), with
/// requests of at most so many pages, told of so many per cent of the memory (15, 256 and 100 where they are not given).
pub fn sweep_brain(name: &str, frames: u64) -> Option<Brain> {
    let (base, max) = match name.split_once('@') {
        Some((base, kib)) => (base, kib.parse::<u64>().ok()? / 4),
        None => (name, 32),
    };
    let mut parts = base.split(':');
    if parts.next() == Some("wave") {
        let waste = parts.next().unwrap_or("15");
        let mut number = |default: u64| parts.next().map_or(Some(default), |part| part.parse().ok());
        let (request, share) = (number(256)?, number(100).filter(|&share| share <= 1000)?);
        return Some(Brain::Wave(Config {
            memory: PageCount(frames * share / 100).bytes(),
            waste_percent: waste.trim_start_matches('=').parse().ok()?,
            waste_absolute: waste.starts_with('='),
            request_max: PageCount(request.max(1)),
            reader_max: PageCount(256),
            seen_within: Nanos(0),
            ..Config::default()
        }));
    }
    let era = bowwave_core::NAMES.into_iter().find(|known| *known == base);
    era.map(|era| Brain::era(era, max)).or_else(|| rivals::rival(base))
}

/// Plays `plan` in the world.
pub fn sweep_play(plan: &Plan, model: &DeviceModel, frames: u64, brain: Brain) -> WorldOutcome {
    let sizes: Vec<u64> = plan.files.iter().map(|file| file.size.div_ceil(PAGE_SIZE)).collect();
    let mut config = WorldConfig::new(MachineModel::Plain(*model), frames, brain, &sizes);
    for (i, file) in config.files.iter_mut().enumerate() {
        file.address = (i as u64) << 36;
    }
    config.descriptors.clone_from(&plan.descriptors);
    let mut world = World::new(config);
    let common: Rc<RefCell<VecDeque<Op>>> = Rc::new(RefCell::new(plan.ops.iter().copied().collect()));
    let mut own: Vec<VecDeque<Op>> = vec![VecDeque::new(); plan.threads as usize];
    plan.ops.iter().for_each(|op| own[op.thread as usize].push_back(*op));
    for (thread, mut own) in own.into_iter().enumerate() {
        let (dispatch, common) = (plan.dispatch, Rc::clone(&common));
        let mut think = 0;
        let actor: Actor<'static> = Box::new(move |_| {
            if think > 0 {
                return Step::Think(Nanos(std::mem::take(&mut think)));
            }
            let next = match dispatch {
                Dispatch::Assigned => own.pop_front(),
                Dispatch::QueueOwn | Dispatch::QueueShared => common.borrow_mut().pop_front(),
            };
            let Some(op) = next else { return Step::End };
            think = op.think_ns;
            let fd = match dispatch {
                Dispatch::Assigned => op.fd,
                Dispatch::QueueOwn => thread as u32,
                Dispatch::QueueShared => 0,
            };
            let pages = Extent::covering(op.offset, op.asked);
            Step::Read { fd, pages, transfer: pages.count }
        });
        world.add(Nanos(0), actor);
    }
    world.run()
}

/// The oracle that may know a file's reads from its open on, at several depths; the quickest, and the reads of all.
fn oracle(plan: &Plan, model: &DeviceModel, frames: u64) -> (WorldOutcome, u64) {
    let bdp =
        (u128::from(model.latency_ns) * u128::from(model.bytes_per_s) / 1_000_000_000) as u64 / PAGE_SIZE + 1;
    let files = plan.files.len().max(1) as u64;
    let most = (frames * 3 / 4 / files).max(64);
    let gap_worth = if model.head.is_some() { bdp } else { bdp / u64::from(model.slots) };
    let (mut best, mut reads): (Option<WorldOutcome>, u64) = (None, 0);
    for depth in [2 * bdp, 8 * bdp, most] {
        for gap in [0, gap_worth] {
            let known: Vec<_> = (0..plan.files.len() as u32)
                .map(|file| {
                    let of_file = plan.ops.iter().filter(|op| op.file == file);
                    rivals::Foreseen::of(of_file.map(|op| Extent::covering(op.offset, op.asked)))
                })
                .collect();
            let of_fd: Vec<_> =
                plan.descriptors.iter().map(|&file| Rc::clone(&known[file as usize])).collect();
            let brain = rivals::oracle(of_fd, depth.clamp(64, most), PageCount(gap));
            let outcome = sweep_play(plan, model, frames, brain);
            reads += outcome.reads;
            if best.as_ref().is_none_or(|b| outcome.elapsed < b.elapsed) {
                best = Some(outcome);
            }
        }
    }
    (best.expect("several depths were tried"), reads)
}

/// Jain's index of how fast the threads went.
fn fairness(outcome: &WorldOutcome) -> f64 {
    let paces: Vec<f64> = outcome
        .actors
        .iter()
        .filter(|actor| actor.pages > 0)
        .map(|actor| actor.pages as f64 / actor.ended.since(actor.began.unwrap_or_default()).0.max(1) as f64)
        .collect();
    let (sum, squares) = paces.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    if squares > 0.0 { sum * sum / (paces.len() as f64 * squares) } else { 1.0 }
}

/// What no schedule can beat: with a head the offline bound; with slots the first byte's latency and then the pipe, or the
/// least requests at a slot's latency each, whichever is longer (engines 4.4: LB). The offline bound of `bound.rs` adds a latency
/// to the second, and a schedule in two whole rounds has been seen below it.
fn bound_ns(yard: &Yardsticks, model: &DeviceModel) -> u64 {
    if model.head.is_some() {
        return yard.offline_ns;
    }
    let pipe = (u128::from(yard.useful_bytes) * 1_000_000_000 / u128::from(model.bytes_per_s)) as u64;
    let slots = yard.plan_requests * model.latency_ns / u64::from(model.slots);
    (pipe + model.latency_ns).max(slots).max(yard.compute_ns)
}

/// Plays one cell.
///
/// # Panics
/// If parameters set by hand make no plan.
pub fn sweep_cell(
    pattern: &Pattern,
    params: &Params,
    device: &str,
    model: &DeviceModel,
    memory_mib: u64,
    policies: &[String],
) -> SweepCell {
    let plan = pattern.plan(params).expect("parameters that fit");
    sweep_plan(&plan, (&pattern.name, pattern.regular), device, model, memory_mib, policies)
}

/// Plays one plan, of that name, whether a rule could foresee it.
pub fn sweep_plan(
    plan: &Plan,
    (name, regular): (&str, bool),
    device: &str,
    model: &DeviceModel,
    memory_mib: u64,
    policies: &[String],
) -> SweepCell {
    let frames = memory_mib * 256;
    let yard = Yardsticks::of(plan, model);
    let (foreseen, oracle_reads) = oracle(plan, model, frames);
    let played: Vec<(String, WorldOutcome)> = policies
        .iter()
        .filter_map(|name| Some((name.clone(), sweep_play(plan, model, frames, sweep_brain(name, frames)?))))
        .collect();
    let s = |ns: u64| ns as f64 / 1e9;
    let reads = oracle_reads + played.iter().map(|(_, outcome)| outcome.reads).sum::<u64>();
    let bound_s = s(bound_ns(&yard, model));
    let oracle_s = played.iter().map(|(_, o)| o.elapsed.0).chain([foreseen.elapsed.0]).min().map_or(0.0, s);
    let scores = played.into_iter().map(|(policy, outcome)| Score {
        policy,
        seconds: s(outcome.elapsed.0),
        rho: oracle_s / s(outcome.elapsed.0.max(1)),
        of_bound: bound_s / s(outcome.elapsed.0.max(1)),
        eta: yard.useful_bytes as f64 / (outcome.pages_fetched * PAGE_SIZE).max(1) as f64,
        stalls: outcome.stalls,
        requests: outcome.requests,
        fairness: fairness(&outcome),
    });
    SweepCell {
        pattern: name.into(),
        regular,
        device: device.into(),
        memory_mib,
        oracle_s,
        bound_s,
        online_s: s(yard.online_ns),
        oracle_amplification: (foreseen.pages_fetched * PAGE_SIZE) as f64 / yard.useful_bytes.max(1) as f64,
        reads,
        scores: scores.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::find;

    /// LB <= T_O <= T_A for every policy: the check that finds an oracle that cheats.
    #[test]
    fn the_bound_lies_below_the_oracle_and_the_oracle_below_everybody() {
        let params = Params { volume: 0.02, ..Params::published() };
        let all: Vec<String> = sweep_policies().into_iter().map(String::from).collect();
        for (device, model) in DeviceModel::NAMED {
            for name in ["seq_64k", "il8_1fd", "stride_64k_1m", "rnd_sparse"] {
                let cell = sweep_cell(&find(name).unwrap(), &params, device, &model, 256, &all);
                assert_eq!(cell.scores.len(), all.len());
                assert!(cell.bound_s <= cell.oracle_s * 1.001, "{device} {name}: {cell:?}");
                assert!(cell.scores.iter().all(|score| score.rho <= 1.0 + 1e-9), "{device} {name}");
            }
        }
    }

    #[test]
    fn what_a_rule_could_foresee() {
        let params = Params { volume: 0.02, ..Params::published() };
        let cell = |name: &str| {
            sweep_cell(&find(name).unwrap(), &params, "s3", &DeviceModel::S3, 256, &["none".to_string()])
        };
        let (one, many) = (cell("stride_4k_64k"), cell("il512_1fd"));
        assert!(one.foreseeable(), "{one:?}");
        assert!(many.regular && !many.foreseeable(), "{many:?}");
        let (bytes, eta) = (one.bytes_of_oracle("none").unwrap(), one.of("none").unwrap().eta);
        assert!((bytes * eta * one.oracle_amplification - 1.0).abs() < 1e-9 && bytes <= 1.0);
    }

    #[test]
    fn a_policy_by_its_name() {
        assert!(sweep_policies().into_iter().all(|name| sweep_brain(name, 256).is_some()));
        assert!(matches!(sweep_brain("ondemand@512", 256), Some(Brain::Era(_, PageCount(128)))));
        assert!(sweep_brain("nobody", 256).is_none());
        let Some(Brain::Wave(tuned)) = sweep_brain("wave:=40:64:50", 256) else {
            panic!("a setting of wave")
        };
        let wanted = (40, true, PageCount(64), PageCount(128).bytes());
        assert_eq!((tuned.waste_percent, tuned.waste_absolute, tuned.request_max, tuned.memory), wanted);
        assert!(sweep_brain("wave:many", 256).is_none());
    }
}
