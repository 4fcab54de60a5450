//! Random reading: uniform, dense, in clusters tight and loose, like a database, and mixed with a stream.
//!
//! What no rule could foresee differs. A dense region, a tight cluster and an area of the table are places of which
//! much is read: their first touch comes as a surprise, the rest could be bought. A uniformly random page, and one of
//! sixteen in sixteen mebibytes, is a surprise every time.

use super::params::{Knobs, Misfit};
use super::plan::{GIB, KIB, MIB, Plan};
use super::sequential::VOLUME;

/// Sequential reads of 16 KiB; after every four of them one 4 KiB read of a random page in a distant range.
pub(super) fn mix(k: &mut Knobs) -> Result<Plan, Misfit> {
    let block = k.block("block", 16 * KIB)?;
    let every = k.value("every", 4, 2, 8, 1)?.max(1);
    let page = k.value("page", 4 * KIB, 4 * KIB, 16 * KIB, 4 * KIB)?;
    let base = k.place("base", 2 * GIB, GIB, 3 * GIB, MIB)?;
    let reads = (k.scaled(VOLUME) / block).max(every);
    let mut rng = k.rng("page");
    let mut plan = Plan::on_one_file();
    for read in 0..reads {
        plan.read(0, read * block, block)?.fresh = read == 0;
        if (read + 1) % every == 0 {
            plan.read(0, base + rng.below(12 * GIB / page) * page, page)?.fresh = true;
        }
    }
    Ok(plan)
}

/// All blocks of one region, each once, in random order.
pub(super) fn dense(k: &mut Knobs) -> Result<Plan, Misfit> {
    let block = k.block("block", 16 * KIB)?;
    let base = k.place("base", GIB, 256 * MIB, 4 * GIB, 4 * KIB)?;
    let mut order: Vec<u64> = (0..(k.scaled(64 * MIB) / block).max(1)).collect();
    k.rng("order").shuffle(&mut order);
    let mut plan = Plan::on_one_file();
    for (turn, number) in order.into_iter().enumerate() {
        plan.read(0, base + number * block, block)?.fresh = turn == 0;
    }
    Ok(plan)
}

/// Clusters one after another: half of the blocks of a random region, each once, in random order.
pub(super) fn clusters(k: &mut Knobs) -> Result<Plan, Misfit> {
    let region = k.value("region", MIB, 512 * KIB, 2 * MIB, 128 * KIB)?;
    let block = k.block("block", 8 * KIB)?;
    let blocks = (region / block).max(1);
    let picked = k.value("picked", blocks / 2, blocks * 2 / 5, blocks * 3 / 5, 1)?.clamp(1, blocks);
    let mut rng = k.rng("clusters");
    let mut plan = Plan::on_one_file();
    for _ in 0..k.scaled(512) {
        let base = rng.below(12 * GIB / region) * region;
        let mut order: Vec<u64> = (0..blocks).collect();
        rng.shuffle(&mut order);
        for (turn, number) in order.into_iter().take(picked as usize).enumerate() {
            plan.read(0, base + number * block, block)?.fresh = turn == 0;
        }
    }
    Ok(plan)
}

/// Clusters that are hardly any: sixteen random pages of a random 16 MiB.
pub(super) fn loose_clusters(k: &mut Knobs) -> Result<Plan, Misfit> {
    let region = k.value("region", 16 * MIB, 8 * MIB, 32 * MIB, MIB)?;
    let pages = k.count("pages", 16)?;
    let mut rng = k.rng("clusters");
    let mut plan = Plan::on_one_file();
    for _ in 0..k.scaled(512) {
        let base = rng.below(12 * GIB / region) * region;
        for _ in 0..pages {
            plan.read(0, base + rng.below(region / (4 * KIB)) * 4 * KIB, 4 * KIB)?.fresh = true;
        }
    }
    Ok(plan)
}

/// Uniformly random pages.
pub(super) fn sparse(k: &mut Knobs) -> Result<Plan, Misfit> {
    let page = k.value("page", 4 * KIB, 4 * KIB, 16 * KIB, 4 * KIB)?;
    let range = k.value("range", 12 * GIB, 8 * GIB, 15 * GIB, GIB)?;
    let mut rng = k.rng("page");
    let mut plan = Plan::on_one_file();
    for _ in 0..k.scaled(8192) {
        plan.read(0, rng.below(range / page) * page, page)?.fresh = true;
    }
    Ok(plan)
}

/// A table whose areas differ in popularity; a third of the reads go on to the next block; has repeats.
pub(super) fn database(k: &mut Knobs) -> Result<Plan, Misfit> {
    let block = k.value("block", 16 * KIB, 8 * KIB, 32 * KIB, 8 * KIB)?;
    let areas = k.value("areas", 256, 192, 320, 1)?.max(1);
    Misfit::unless(block <= MIB, "block is no larger than an area, 1 MiB")?;
    let area = MIB / block * block;
    let again = k.value("go_on_percent", 30, 15, 45, 1)?;
    let base = k.place("base", 0, 0, GIB, 4 * KIB)?;
    let mut rng = k.rng("table");
    let mut place: Vec<u64> = (0..areas).collect();
    rng.shuffle(&mut place);
    let mut touched = vec![false; areas as usize];
    let mut plan = Plan::on_one_file();
    let (volume, mut asked) = (k.scaled(VOLUME), 0);
    while asked < volume {
        let number = place[(areas as f64 * rng.unit().powi(3)) as usize];
        let at = number * area + rng.below(area / block) * block;
        let known = std::mem::replace(&mut touched[number as usize], true);
        plan.read(0, base + at, block)?.fresh = !known;
        asked += block;
        if rng.below(100) < again && at + 2 * block <= areas * area {
            plan.read(0, base + at + block, block)?;
            asked += block;
        }
    }
    Ok(plan)
}
