//! Mapped files: nobody reads, pages are touched, and what is not there faults.
//!
//! A touch is an 8-byte load from each page of its range, through one shared mapping of the whole file.

use super::params::{Knobs, Misfit};
use super::plan::{GIB, KIB, Plan};
use super::sequential::{VOLUME, sequential};
use super::streams::{Door, Turns, interleaved};

/// Every page in its order.
pub(super) fn in_order(k: &mut Knobs) -> Result<Plan, Misfit> {
    sequential(k, 4 * KIB, VOLUME).map(touched)
}

/// Eight streams by turns, two pages a turn.
pub(super) fn by_turns(k: &mut Knobs) -> Result<Plan, Misfit> {
    interleaved(k, 8, Door::OneFd, Turns::RoundRobin).map(touched)
}

/// Pages of the first GiB in no order.
pub(super) fn at_random(k: &mut Knobs) -> Result<Plan, Misfit> {
    let range = k.value("range", GIB, GIB / 2, 2 * GIB, 4 * KIB)?;
    let mut rng = k.rng("page");
    let mut plan = Plan::on_one_file();
    for _ in 0..k.scaled(8192) {
        plan.read(0, rng.below(range / (4 * KIB)) * 4 * KIB, 4 * KIB)?.fresh = true;
    }
    Ok(touched(plan))
}

fn touched(mut plan: Plan) -> Plan {
    plan.mapped = true;
    plan
}
