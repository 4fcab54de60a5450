//! Worlds drawn from a seed: device, memory, policy, programs. Whatever they are, every program gets every page that it asked
//! for, the parts stay consistent, and the same seed gives the same outcome.
//!
//! `BOWWAVE_SEEDS=10000 cargo test --release -p bowwave-lab --test swarm` plays more; `BOWWAVE_SEED=N` one.

use bowwave_core::{CacheConfig, Config, Extent, Nanos, PageCount, Placement, Victim};
use bowwave_lab::{
    Brain, DeviceModel, DiskModel, MachineModel, RIVALS, Rng, Step, World, WorldConfig, WorldOutcome, rival,
};

const FILE: u64 = 2048;

fn machine(rng: &mut Rng) -> MachineModel {
    let disk = DiskModel::hitachi_2007();
    match rng.below(5) {
        0 => MachineModel::Disk(disk),
        1 => MachineModel::Disk(disk.with_slices(100 + rng.below(500))),
        2 => MachineModel::Raid { disk, disks: 2 + rng.below(6) as u32, stripe_bytes: 64 << 10 },
        3 => MachineModel::Table { bytes_per_s: 200_000_000, rows: vec![(4096, 20_000), (1 << 20, 100_000)] },
        _ => MachineModel::Plain(DeviceModel::NAMED[rng.below(4) as usize].1),
    }
}

fn brain(rng: &mut Rng, frames: u64) -> Brain {
    let eras = bowwave_core::NAMES;
    match rng.below(3) {
        0 => Brain::era(eras[rng.below(eras.len() as u64) as usize], 1 << (3 + rng.below(6))),
        1 => rival(RIVALS[rng.below(RIVALS.len() as u64) as usize]).expect("a rival by its name"),
        _ => Brain::Wave(Config { memory: PageCount(frames).bytes(), ..Config::default() }),
    }
}

/// Plays the world of a seed: how many pages its programs were to get, and what came of it.
fn played(seed: u64) -> (u64, WorldOutcome) {
    let mut rng = Rng::named(seed, &["swarm"]);
    let frames = 48 + rng.below(2000);
    let files = vec![FILE; 1 + rng.below(4) as usize];
    let mut config = WorldConfig::new(machine(&mut rng), frames, brain(&mut rng, frames), &files);
    if rng.below(2) == 0 {
        let placement = [Placement::Fair, Placement::Fill, Placement::Hashed][rng.below(3) as usize];
        let victim = [Victim::Oldest, Victim::Same][rng.below(2) as usize];
        let shards = vec![PageCount(frames / 3), PageCount(frames - frames / 3)];
        config.memory = CacheConfig { shards, placement, victim, ..CacheConfig::of(PageCount(frames)) };
    }
    config.request_max = PageCount(1 << (2 + rng.below(8)));
    let programs = 1 + rng.below(8);
    config.descriptors = (0..programs).map(|i| (i % files.len() as u64) as u32).collect();
    let mut world = World::new(config);
    let mut wanted = 0;
    for fd in 0..programs as u32 {
        let (mut steps, mut at) = (Vec::new(), rng.below(FILE));
        let (kind, len) = (rng.below(5), 1 + rng.below(16));
        for _ in 0..rng.below(200) {
            at = match kind {
                0 => (at + len) % FILE,
                1 => (at + 3 * len) % FILE,
                2 => at.saturating_sub(len),
                3 => rng.below(FILE),
                _ if rng.below(8) == 0 => rng.below(FILE),
                _ => (at + len) % FILE,
            };
            let pages = Extent::new(at, len.min(FILE - at));
            match rng.below(20) {
                0 => steps.push(Step::Write { fd, pages }),
                1 => steps.push(Step::DontNeed { fd, pages: Extent::new(0, at) }),
                2 => steps.push(Step::Think(Nanos::from_us(rng.below(5000)))),
                _ => {
                    let transfer = PageCount(1 + rng.below(pages.count.0));
                    wanted += transfer.0;
                    steps.push(Step::Read { fd, pages, transfer });
                }
            }
        }
        let mut steps = steps.into_iter();
        world.add(Nanos(rng.below(1_000_000)), Box::new(move |_| steps.next().unwrap_or(Step::End)));
    }
    let outcome = world.run();
    world.check();
    (wanted, outcome)
}

#[test]
fn whatever_the_world_everybody_gets_what_he_asked_for() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = number("BOWWAVE_SEED").map_or(1..1 + number("BOWWAVE_SEEDS").unwrap_or(300), |n| n..n + 1);
    for seed in seeds {
        let (wanted, outcome) = played(seed);
        assert_eq!(outcome.pages_read, wanted, "BOWWAVE_SEED={seed}");
        if seed % 16 == 0 {
            assert_eq!(played(seed).1, outcome, "BOWWAVE_SEED={seed}: played twice");
        }
    }
}
