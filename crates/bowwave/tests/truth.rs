//! Random readers against the truth, over a storage with faults, from seeds: no wrong byte, no lost frame, no hang.
//!
//! `BOWWAVE_FUZZ_SECONDS=600 cargo test --release -p bowwave --test truth -- --nocapture` goes on with fresh seeds for ten minutes.

mod common;

use bowwave::{Advice, Bytes, Cache, Error, File};
use common::{Content, Faults, Faulty, Random};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What one seed draws.
struct World {
    cache: Cache,
    contents: Vec<Content>,
    storages: Vec<Arc<Faulty>>,
    memory: u64,
    may_change: bool,
    /// The reads that failed and may.
    failed: AtomicU64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let memory = (1 + random.below(6)) << 20;
        let cache = Cache::builder().memory(Bytes(memory)).timeout(Duration::from_secs(4)).build().unwrap();
        // The seed also draws which faults there are.
        let mut on = |percent| if random.below(3) == 0 { 0 } else { percent };
        let faults = Faults {
            error_percent: on(5),
            short_percent: on(3),
            stall_percent: on(2),
            stall_ms: 20,
            panic_percent: if seed.is_multiple_of(4) { 2 } else { 0 },
            ..Faults::default()
        };
        let lens = [0, 1, 4095, 4096, 4097, 300_001, 3 << 20, 20 << 20];
        let contents: Vec<_> =
            lens.iter().enumerate().map(|(i, &len)| Content::new(seed ^ i as u64, len)).collect();
        let storages = contents.iter().map(|content| Faulty::new(content.clone(), faults, seed)).collect();
        let may_change = seed.is_multiple_of(5);
        Self { cache, contents, storages, memory, may_change, failed: AtomicU64::new(0) }
    }

    fn open(&self) -> Vec<File> {
        self.storages.iter().map(|storage| self.cache.open(Arc::clone(storage)).unwrap()).collect()
    }

    fn check(&self, file: usize, at: u64, asked: usize, result: Result<Vec<u8>, Error>) {
        let len = bowwave::Storage::meta(&self.contents[file]).len;
        match result {
            Ok(bytes) => {
                assert_eq!(
                    bytes.len() as u64,
                    len.saturating_sub(at).min(asked as u64),
                    "short at the end only"
                );
                assert!(self.contents[file].holds(at, &bytes), "a wrong byte in [{at}, +{asked}) of {file}");
            }
            Err(Error::Changed { .. }) => assert!(self.may_change),
            Err(error) => {
                assert!(error.to_string().starts_with("content: "), "{error}");
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// One reader: sequential runs, jumps, strides, ends of files, views that are kept for a while, advice.
    fn reader(&self, seed: u64, files: &[File], reads: u64) {
        let mut random = Random::new(seed);
        let mut kept = Vec::new();
        let (mut file, mut at, mut step) = (7, 0, 4096i64);
        let mut buf = vec![0; 600_000];
        for i in 0..reads {
            if random.below(8) == 0 {
                file = random.below(files.len() as u64) as usize;
                at = random.below(files[file].len() + 5000);
                step = [4096, 1000, 65_536, -8192, 40_000, 0][random.below(6) as usize];
            }
            let asked = match random.below(10) {
                0 => random.below(600_000),
                1 => 0,
                2..5 => 4096,
                _ => random.below(20_000),
            } as usize;
            match random.below(20) {
                0 => files[file].advise(Advice::DontNeed),
                1 => files[file].advise([Advice::Normal, Advice::Random][(i % 2) as usize]),
                2 => files[file].will_read(&[at..at + 30_000, 0..10, at..at]),
                3..8 => {
                    let view = files[file].read_at_bytes_by(seed as u32, at, asked);
                    self.check(file, at, asked, view.as_ref().map(|v| v.to_vec()).map_err(Error::clone));
                    kept.extend(view.ok().map(|view| (file, at, view)));
                }
                _ => {
                    let read = files[file].read_at_by(seed as u32, &mut buf[..asked], at);
                    self.check(file, at, asked, read.map(|n| buf[..n].to_vec()));
                }
            }
            if kept.len() > 6 {
                let (file, at, view) = kept.swap_remove(random.below(6) as usize);
                assert!(self.contents[file].holds(at, &view.to_vec()), "a view changed while it was held");
            }
            at = at.saturating_add_signed(step);
        }
    }
}

fn play(seed: u64, reads: u64) {
    let world = World::new(seed);
    let files = world.open();
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (world, files) = (&world, &files);
            scope.spawn(move || world.reader(seed * 10 + reader, files, reads));
        }
        // One opens and closes files of its own meanwhile.
        scope.spawn(|| {
            for round in 0..3 {
                world.reader(seed * 10 + 5 + round, &world.open(), reads / 5);
            }
        });
        if world.may_change {
            std::thread::sleep(Duration::from_millis(30));
            world.storages[7].change();
        }
    });
    let stats = world.cache.stats();
    assert!(stats.memory_bytes <= world.memory, "{stats:?}");
    drop(files);
    common::wait_until(|| world.cache.stats().in_flight_bytes == 0);
    world.cache.check();
    let stats = world.cache.stats();
    assert_eq!((stats.files, stats.memory_bytes), (0, stats.metadata_bytes), "everything was given back");
    let failed = world.failed.load(Ordering::Relaxed);
    println!(
        "seed {seed}: {} reads told, {} requests, {failed} failed",
        stats.counters.reads, stats.requests
    );
}

#[test]
fn random_readers_get_the_truth_or_an_error() {
    let seconds = std::env::var("BOWWAVE_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    for seed in 1..=10 {
        play(seed, 400);
    }
    let mut seed = 1000 + u64::from(std::process::id()) * 1000;
    while Instant::now() < end {
        seed += 1;
        play(seed, 2000);
    }
}
