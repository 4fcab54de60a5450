//! Two worlds, written apart: the player of `play.rs` and the world of `world/`. Where both can play a plan (one device,
//! memory for all, every event told) they must agree on what `wave` does, or one of them tells it something else.

use bowwave_core::{Bytes, Config, Extent, Nanos, PAGE_SIZE, PageCount};
use bowwave_lab::{
    Brain, DeviceModel, Fetcher, Knowledge, MachineModel, Op, Params, Plan, Step, World, WorldConfig, find,
    play_knowing,
};
use std::collections::VecDeque;

fn in_the_world(plan: &Plan, model: DeviceModel, config: Config) -> (u64, u64) {
    let sizes: Vec<u64> = plan.files.iter().map(|file| file.size.div_ceil(PAGE_SIZE)).collect();
    let mut made = WorldConfig::new(MachineModel::Plain(model), 1 << 20, Brain::Wave(config), &sizes);
    for (i, file) in made.files.iter_mut().enumerate() {
        file.address = (i as u64) << 36;
    }
    made.descriptors.clone_from(&plan.descriptors);
    let mut world = World::new(made);
    for thread in 0..plan.threads {
        let mut ops: VecDeque<Op> = plan.ops.iter().filter(|op| op.thread == thread).copied().collect();
        world.add(
            Nanos(0),
            Box::new(move |_| {
                let Some(op) = ops.pop_front() else { return Step::End };
                let pages = Extent::covering(op.offset, op.asked);
                Step::Read { fd: op.fd, pages, transfer: pages.count }
            }),
        );
    }
    let outcome = world.run();
    world.check();
    (outcome.elapsed.0, outcome.pages_fetched * PAGE_SIZE)
}

#[test]
fn both_worlds_tell_the_same() {
    // Of a fifth of it, one window more or less at the end would be a quarter of all bytes on s3.
    let params = Params::published();
    let config = Config { memory: Bytes(6 << 30), request_max: PageCount(64), ..Config::default() };
    for (device, model) in DeviceModel::NAMED {
        for name in ["seq_64k", "il32_32t", "sparse_8k", "rev_64k", "rnd_sparse"] {
            let plan = find(name).expect("a published pattern").plan(&params).expect("published parameters");
            let player = play_knowing(&plan, &model, Fetcher::Wave(config), Knowledge::Event, false);
            let (elapsed, bytes) = in_the_world(&plan, model, config);
            let apart = |a: u64, b: u64| (a as f64 / b as f64 - 1.0).abs();
            let (time, fetched) = (apart(elapsed, player.elapsed.0), apart(bytes, player.fetched_bytes));
            println!("{device:>4} {name:<12} time {:.3} bytes {:.3} apart", time, fetched);
            // The player charges its agent 8 us and more a fetch, the world does not: a tenth on the object store.
            assert!(time <= 0.1 && fetched <= 0.1, "{device} {name}: {time:.3} {fetched:.3}");
        }
    }
}
