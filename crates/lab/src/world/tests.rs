//! Stories of the world.

use super::*;
use crate::device::DeviceModel;
use crate::sweep::sweep_brain;

fn t11() -> MachineModel {
    MachineModel::Plain("lat=8ms,bw=100MiB/s,head".parse::<DeviceModel>().unwrap())
}

/// Reads pages `[0, pages)` of descriptor 0, `count` at a time.
fn sequential(pages: u64, count: u64) -> Actor<'static> {
    let mut at = 0;
    Box::new(move |_| {
        if at >= pages {
            return Step::End;
        }
        at += count;
        Step::read(0, at - count, count)
    })
}

fn played(brain: Brain, frames: u64, pages: u64, count: u64) -> Outcome {
    played_on(t11(), brain, frames, pages, count)
}

fn played_on(machine: MachineModel, brain: Brain, frames: u64, pages: u64, count: u64) -> Outcome {
    let mut config = WorldConfig::new(machine, frames, brain, &[pages]);
    config.trace = true;
    let mut world = World::new(config);
    world.add(Nanos(0), sequential(pages, count));
    let outcome = world.run();
    world.check();
    outcome
}

fn brains() -> Vec<(&'static str, Brain)> {
    let eras = bowwave_core::NAMES.into_iter().map(|name| (name, Brain::era(name, 32)));
    eras.chain([("wave", Brain::Wave(bowwave_core::Config::default()))]).collect()
}

/// The worked example: 8 ms, and 4 KiB at 100 MiB/s.
#[test]
fn one_page_of_t11() {
    for (name, brain) in brains() {
        let outcome = played(brain, 100, 1, 1);
        assert_eq!(outcome.waits_ns, [8_039_063], "{name}");
    }
}

/// Who reads each page in four bits goes through memory as who reads it whole: nothing is promoted, and memory of 8 MiB carries as
/// much ahead of him.
#[test]
fn a_page_in_bits_is_read_once() {
    let [whole, bits] = [1, 4].map(|bits| {
        let brain = sweep_brain("wave", 2048).unwrap();
        let machine = MachineModel::Plain(DeviceModel::S3);
        let mut world = World::new(WorldConfig::new(machine, 2048, brain, &[16_384]));
        let mut read = 0;
        world.add(
            Nanos(0),
            Box::new(move |_| {
                read += 1;
                if read > 16_384 * bits { Step::End } else { Step::read(0, (read - 1) / bits, 1) }
            }),
        );
        let outcome = world.run();
        world.check();
        (outcome.elapsed.0, outcome.pages_lost_unread)
    });
    assert!(bits.1 <= whole.1 && bits.0 < whole.0 * 11 / 10, "{bits:?} for {whole:?}");
}

/// Who fetches ahead reads a file several times as fast as who does not, and every byte once.
#[test]
fn a_sequential_file_is_read_once_and_faster() {
    let nfs = || MachineModel::Plain(DeviceModel::NFS);
    let alone = played_on(nfs(), Brain::era("none", 32), 10_000, 4096, 1);
    assert_eq!(alone.stalls, 4096);
    for (name, brain) in brains().into_iter().skip(1) {
        let outcome = played_on(nfs(), brain, 10_000, 4096, 1);
        assert!(outcome.elapsed.0 * 3 < alone.elapsed.0 * 2, "{name}: {}", outcome.elapsed);
        assert_eq!((outcome.pages_read, outcome.pages_fetched), (4096, 4096), "{name}");
    }
}

#[test]
fn the_same_world_twice_is_the_same_to_the_byte() {
    for (name, brain) in brains() {
        let once = played(brain.clone(), 300, 2000, 3);
        assert_eq!(once, played(brain, 300, 2000, 3), "{name}");
    }
}

/// The world holds no opinion: every page that was fetched was in a window of the policy, or was the very page that a
/// reader waited for.
#[test]
fn every_fetch_was_decided_by_the_core_or_waited_for() {
    for name in bowwave_core::NAMES {
        let outcome = played(Brain::era(name, 32), 64, 3000, 2);
        let decided: u64 = outcome.trace.iter().map(|record| record.actual.0).sum();
        assert_eq!(decided + outcome.pages_by_reader, outcome.pages_fetched, "{name}");
        assert!(outcome.pages_by_reader <= outcome.stalls, "{name}");
        assert!(outcome.trace.iter().all(|record| record.actual <= record.window.size), "{name}");
    }
}

/// A reader that loses its window before it comes there asks again, and gets every page.
#[test]
fn in_too_little_memory_everybody_still_gets_everything() {
    for (name, brain) in brains() {
        let mut config = WorldConfig::new(t11(), 64, brain, &[4096; 8]);
        config.request_max = PageCount(8);
        let mut world = World::new(config);
        for fd in 0..8 {
            let mut at = 0;
            let actor = move |_| {
                if at == 300 {
                    return Step::End;
                }
                at += 1;
                Step::read(fd, at - 1, 1)
            };
            world.add(Nanos(0), Box::new(actor));
        }
        let outcome = world.run();
        world.check();
        assert_eq!(outcome.pages_read, 8 * 300, "{name}");
        assert!(outcome.actors.iter().all(|actor| actor.pages == 300), "{name}");
    }
}

/// 64 pages are less than a tenth of memory: nobody writes them back until somebody asks.
#[test]
fn what_little_is_dirty_is_written_when_somebody_asks() {
    let mut world = World::new(WorldConfig::new(t11(), 1000, Brain::era("ondemand", 32), &[4096]));
    let mut steps = vec![Step::Write { fd: 0, pages: Extent::new(0, 64) }];
    world.add(Nanos(0), Box::new(move |_| steps.pop().unwrap_or(Step::End)));
    let wrote = world.run();
    assert_eq!((wrote.pages_written, world.cache().dirty()), (0, PageCount(64)));
    assert!(world.sync() > wrote.quiet);
    assert_eq!(world.cache().dirty(), PageCount(0));
    world.check();
}

/// Written pages are read back from memory while they are there, and reach the device before their frames are taken.
#[test]
fn what_is_written_is_written_back() {
    let mut world = World::new(WorldConfig::new(t11(), 1000, Brain::era("ondemand", 32), &[4096]));
    let mut at = 0;
    let actor = move |_| {
        if at == 4096 {
            return Step::End;
        }
        at += 64;
        Step::Write { fd: 0, pages: Extent::new(at - 64, 64) }
    };
    world.add(Nanos(0), Box::new(actor));
    let wrote = world.run();
    assert_eq!(wrote.actors[0].pages_written, 4096);
    assert!(wrote.pages_written >= 3000, "{}", wrote.pages_written);
    world.check();
    world.add(
        wrote.elapsed,
        Box::new({
            let mut at = 4000;
            move |_| {
                at += 1;
                if at > 4096 { Step::End } else { Step::read(0, at - 1, 1) }
            }
        }),
    );
    let read = world.run();
    assert_eq!((read.pages_fetched, read.pages_read), (0, 96));
}
