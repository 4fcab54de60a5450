//! Random readers against the truth, over a storage with faults, from seeds: no wrong byte, no lost frame, no hang.
//!
//! Every door of the library is used at once: `read_at`, `read_at_bytes` (views that are kept for a while), `Read` and `Seek`, and
//! with feature `tokio` the async twins, some of which are dropped on the way. Each third seed is a hard day: 5 % errors, 1 %
//! stalls longer than the time-out, 3 % short bodies, 2 % other lengths, and now and then a store that does not look at its
//! deadline at all. An object that changes is `Changed` from then on.
//!
//! `BOWWAVE_FUZZ_SECONDS=600 cargo test -p bowwave --features tokio --test truth -- --nocapture` goes on with fresh seeds
//! for ten minutes, and says what came of it; `BOWWAVE_FUZZ_SEED=N` plays one. How the same looks through a mount is in
//! `crates/fuse/tests/truth.rs`.

mod common;

use bowwave::{Advice, Bytes, Cache, Error, File};
use common::{Content, Faults, Faulty, Random};
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A read that takes longer than this hangs: far more than any time-out here, and than a busy machine adds.
const HANG: Duration = Duration::from_secs(120);

/// What came of all seeds.
#[derive(Default)]
struct Sum {
    reads: AtomicU64,
    bytes: AtomicU64,
    /// Reads that failed, and may.
    failed: AtomicU64,
    /// Of those, because their object had changed.
    changed: AtomicU64,
    longest_us: AtomicU64,
}

/// What one seed draws.
struct World<'a> {
    cache: Cache,
    contents: Vec<Content>,
    storages: Vec<Arc<Faulty>>,
    memory: u64,
    may_change: bool,
    sum: &'a Sum,
}

impl<'a> World<'a> {
    fn new(seed: u64, sum: &'a Sum) -> Self {
        let mut random = Random::new(seed);
        let memory = (1 + random.below(6)) << 20;
        let hard = seed.is_multiple_of(3);
        let timeout = Duration::from_millis(if hard { 600 } else { 4000 });
        let cache = Cache::builder().memory(Bytes(memory)).timeout(timeout).build().unwrap();
        // The seed also draws which faults there are.
        let mut on = |percent| if random.below(3) == 0 { 0 } else { percent };
        let faults = if hard {
            Faults {
                error_percent: 5,
                short_percent: 3,
                wrong_percent: 2,
                stall_percent: 1,
                stall_ms: 900,
                deaf_permille: 1,
                ..Faults::default()
            }
        } else {
            Faults {
                error_percent: on(5),
                short_percent: on(3),
                stall_percent: on(2),
                stall_ms: 20,
                panic_percent: if seed.is_multiple_of(4) { 2 } else { 0 },
                ..Faults::default()
            }
        };
        let lens = [0, 1, 4095, 4096, 4097, 300_001, 3 << 20, 20 << 20];
        let contents: Vec<_> =
            lens.iter().enumerate().map(|(i, &len)| Content::new(seed ^ i as u64, len)).collect();
        let storages = contents.iter().map(|content| Faulty::new(content.clone(), faults, seed)).collect();
        let may_change = seed.is_multiple_of(5);
        Self { cache, contents, storages, memory, may_change, sum }
    }

    fn open(&self) -> Vec<File> {
        self.storages.iter().map(|storage| self.cache.open(Arc::clone(storage)).unwrap()).collect()
    }

    /// A read of so many bytes has begun then and ended so.
    fn check(&self, file: usize, at: u64, asked: usize, begun: Instant, result: Result<Vec<u8>, Error>) {
        let took = begun.elapsed();
        assert!(took < HANG, "a read of [{at}, +{asked}) of {file} hung for {took:?}");
        self.sum.longest_us.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
        self.sum.reads.fetch_add(1, Ordering::Relaxed);
        let len = bowwave::Storage::meta(&self.contents[file]).len;
        match result {
            Ok(bytes) => {
                assert_eq!(
                    bytes.len() as u64,
                    len.saturating_sub(at).min(asked as u64),
                    "short at the end only"
                );
                assert!(self.contents[file].holds(at, &bytes), "a wrong byte in [{at}, +{asked}) of {file}");
                self.sum.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Err(error) => {
                assert!(error.to_string().starts_with("content: "), "{error}");
                let changed = matches!(error, Error::Changed { .. });
                assert!(!changed || self.may_change);
                self.sum.failed.fetch_add(1, Ordering::Relaxed);
                self.sum.changed.fetch_add(u64::from(changed), Ordering::Relaxed);
            }
        }
    }

    /// One reader: sequential runs, jumps, strides, ends of files, views that are kept for a while, a cursor, advice.
    fn reader(&self, seed: u64, files: &[File], reads: u64) {
        let mut random = Random::new(seed);
        let mut kept = Vec::new();
        let (mut file, mut at, mut step) = (7, 0, 4096i64);
        let mut buf = vec![0; 600_000];
        for i in 0..reads {
            (file, at, step) = self.place(&mut random, (file, at, step));
            let asked = length(&mut random);
            let begun = Instant::now();
            match random.below(24) {
                0 => files[file].advise(Advice::DontNeed),
                1 => files[file].advise([Advice::Normal, Advice::Random][(i % 2) as usize]),
                2 => files[file].will_read(&[at..at + 30_000, 0..10, at..at]),
                3..8 => {
                    let view = files[file].read_at_bytes_by(seed as u32, at, asked);
                    self.check(
                        file,
                        at,
                        asked,
                        begun,
                        view.as_ref().map(|v| v.to_vec()).map_err(Error::clone),
                    );
                    kept.extend(view.ok().map(|view| (file, at, view)));
                }
                8..12 => {
                    let mut cursor = files[file].cursor();
                    cursor.seek(SeekFrom::Start(at)).unwrap();
                    let read = cursor.read(&mut buf[..asked]).map_err(|error| {
                        let error = error.into_inner().expect("what the storage said lies in it");
                        error.downcast::<Error>().map(|error| *error).expect("an error of a storage")
                    });
                    let moved = cursor.stream_position().unwrap() - at;
                    assert_eq!(
                        moved,
                        read.as_ref().map_or(0, |n| *n as u64),
                        "a cursor stands behind its read"
                    );
                    self.check(file, at, asked, begun, read.map(|n| buf[..n].to_vec()));
                }
                _ => {
                    let read = files[file].read_at_by(seed as u32, &mut buf[..asked], at);
                    self.check(file, at, asked, begun, read.map(|n| buf[..n].to_vec()));
                }
            }
            if kept.len() > 6 {
                let (file, at, view) = kept.swap_remove(random.below(6) as usize);
                assert!(self.contents[file].holds(at, &view.to_vec()), "a view changed while it was held");
            }
            at = at.saturating_add_signed(step);
        }
    }

    /// The async twins; one read in eight is dropped on the way.
    #[cfg(feature = "tokio")]
    async fn task(&self, seed: u64, files: &[File], reads: u64) {
        let mut random = Random::new(seed);
        let (mut file, mut at, mut step) = (7, 0, 4096i64);
        let mut buf = vec![0; 600_000];
        for _ in 0..reads {
            (file, at, step) = self.place(&mut random, (file, at, step));
            let asked = length(&mut random);
            let patience = match random.below(8) {
                0 => Duration::from_micros(random.below(3000)),
                _ => HANG,
            };
            let begun = Instant::now();
            let view = random.below(3) == 0;
            let read = async {
                if view {
                    let bytes = files[file].read_at_bytes_async_by(seed as u32, at, asked).await;
                    bytes.map(|bytes| bytes.to_vec())
                } else {
                    let read = files[file].read_at_async_by(seed as u32, &mut buf[..asked], at).await;
                    read.map(|n| buf[..n].to_vec())
                }
            };
            match tokio::time::timeout(patience, read).await {
                Ok(read) => self.check(file, at, asked, begun, read),
                Err(_) => assert!(patience < HANG, "a task hung at [{at}, +{asked}) of {file}"),
            }
            at = at.saturating_add_signed(step);
        }
    }

    /// Where a reader goes on: mostly where it is.
    fn place(&self, random: &mut Random, (file, at, step): (usize, u64, i64)) -> (usize, u64, i64) {
        if random.below(8) != 0 {
            return (file, at, step);
        }
        let file = random.below(self.contents.len() as u64) as usize;
        let at = random.below(bowwave::Storage::meta(&self.contents[file]).len + 5000);
        (file, at, [4096, 1000, 65_536, -8192, 40_000, 0][random.below(6) as usize])
    }
}

fn length(random: &mut Random) -> usize {
    match random.below(10) {
        0 => random.below(600_000) as usize,
        1 => 0,
        2..5 => 4096,
        _ => random.below(20_000) as usize,
    }
}

fn play(seed: u64, reads: u64, sum: &Sum) {
    let world = World::new(seed, sum);
    let files = world.open();
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (world, files) = (&world, &files);
            scope.spawn(move || world.reader(seed * 10 + reader, files, reads));
        }
        #[cfg(feature = "tokio")]
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let tasks =
                async { tokio::join!(world.task(seed, &files, reads), world.task(!seed, &files, reads)) };
            runtime.block_on(tasks);
        });
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
    for storage in &world.storages {
        storage.settle();
    }
    drop(files);
    common::wait_until(|| world.cache.stats().in_flight_bytes == 0);
    world.cache.check();
    let stats = world.cache.stats();
    assert_eq!((stats.files, stats.memory_bytes), (0, stats.metadata_bytes), "everything was given back");
}

#[test]
fn random_readers_get_the_truth_or_an_error() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (sum, begun) = (Sum::default(), Instant::now());
    let seconds = Duration::from_secs(number("BOWWAVE_FUZZ_SECONDS").unwrap_or(0));
    let one = number("BOWWAVE_FUZZ_SEED");
    for seed in one.map_or(1..=10, |seed| seed..=seed) {
        play(seed, 400, &sum);
    }
    let mut seed = 1000 + u64::from(std::process::id()) * 1000;
    while begun.elapsed() < seconds {
        seed += 1;
        println!("seed {seed}");
        play(seed, 2000, &sum);
    }
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} reads of {} MB right in {} s; {} failed ({} of changed objects); the longest took {} ms",
        of(&sum.reads) - of(&sum.failed),
        of(&sum.bytes) / 1_000_000,
        begun.elapsed().as_secs(),
        of(&sum.failed),
        of(&sum.changed),
        of(&sum.longest_us) / 1000
    );
    assert!(of(&sum.failed) * 4 < of(&sum.reads), "most reads succeed");
}
