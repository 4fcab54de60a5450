//! What seed 003's patches 1, 2, 4 and 5 are about, in our own code: instructions, data accesses and cache lines, counted.
//!
//! `cargo run --release -p bowwave-lab --example patches > crates/lab/src/tables/patches.txt`
//!
//! The example runs itself under callgrind, once a row, and counts only what `measured` does; counts repeat exactly where
//! times do not. `bowwave lab tables P1 P2 P4 P5` shows the file that it wrote.
//!
//! ```text
//! row                    each  instructions  reads  writes  lines     all of them for one decision, hit, page
//! hit.spread            10000           ...    ...     ...    ...
//! ```
//!
//! *Lines* are misses of a first-level data cache of 32 KiB, eight ways, lines of 64 bytes: where every hit is of a page far
//! from the last one, what a hit touches beyond its own stack and the list's ends.

use bowwave_core::{
    Action, Bytes, Cache, CacheConfig, Config, Dev, Explained, Extent, FileId, Input, Nanos, PageCount,
    PageIndex, Placement, TraceRecord, Victim, Wave, Window,
};
use std::hint::black_box;
use std::process::{Command, ExitCode};

/// Hits or pages that a row is the mean of.
const EACH: u64 = 10_000;
/// Frames of the caches: 256 MiB, more than any first-level cache of a processor describes.
const FRAMES: u64 = 1 << 16;

/// Every row.
const ROWS: [&str; 14] = [
    "trace.unheard",
    "trace.taken",
    "trace.line",
    "hit.in-order",
    "hit.spread",
    "place.one-shard",
    "place.fair",
    "place.hashed",
    "place.fair-16",
    "place.hashed-16",
    "dirty.kept-2",
    "dirty.reckoned-2",
    "dirty.kept-16",
    "dirty.reckoned-16",
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [] => {}
        [row] => {
            child(row);
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("usage: patches");
            return ExitCode::from(64);
        }
    }
    println!("row each instructions reads writes lines");
    for row in ROWS {
        let Some([each, instructions, reads, writes, lines]) = counted(row) else {
            eprintln!("patches: {row} could not be counted; that takes valgrind (apt-get install valgrind)");
            return ExitCode::FAILURE;
        };
        println!("{row} {each} {instructions} {reads} {writes} {lines}");
    }
    ExitCode::SUCCESS
}

/// How many decisions, hits or pages; instructions, data reads, data writes and lines missed of all of them.
fn counted(row: &str) -> Option<[u64; 5]> {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .args(["--cache-sim=yes", "--D1=32768,8,64", "--toggle-collect=*patches*measured*"])
        .arg(std::env::current_exe().ok()?)
        .arg(row)
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    // Collected : Ir Dr Dw I1mr D1mr D1mw ...
    let collected = said.lines().find_map(|line| line.split("Collected :").nth(1))?;
    let n: Vec<u64> = collected.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let each = String::from_utf8_lossy(&out.stdout).trim().parse().ok()?;
    (n.len() >= 6).then(|| [each, n[0], n[1], n[2], n[4] + n[5]])
}

fn child(row: &str) {
    let each = match row.split_once('.').expect("a row's name has two parts") {
        ("trace", heard) => decisions(heard),
        ("hit", order) => hits(order == "spread"),
        ("place", "one-shard") => places(Placement::Fair, 1),
        ("place", "fair") => places(Placement::Fair, 2),
        ("place", "hashed") => places(Placement::Hashed, 2),
        ("place", "fair-16") => places(Placement::Fair, 16),
        ("place", _) => places(Placement::Hashed, 16),
        (_, kept) => dirtied(kept.starts_with("kept"), if kept.ends_with("16") { 16 } else { 2 }),
    };
    println!("{each}");
}

/// The only function that is counted.
#[inline(never)]
fn measured<T>(call: impl FnOnce() -> T) -> T {
    black_box(call())
}

/// Files that `wave` is told of from their start on, 16 reads each: nobody listens; somebody takes the records; somebody writes
/// them as lines. Returns the windows decided.
fn decisions(heard: &str) -> u64 {
    let mut wave = Wave::new(Config { memory: Bytes(1 << 30), ..Config::default() });
    let size = PageCount(1 << 20).bytes();
    let (mut now, mut text) = (0, 0);
    for file in 0..EACH / 10 {
        let file = FileId(file);
        wave.handle(Nanos(now), Input::Open { file, device: 0, size });
        for read in 0..16 {
            now += 100_000;
            measured(|| {
                wave.handle(Nanos(now), Input::Read { file, pages: Extent::new(read * 4, 4), actor: 0 });
                match heard {
                    "line" => text += wave.take_trace().map(|kept| line_of(&kept).len()).sum::<usize>(),
                    "taken" => text += wave.take_trace().count(),
                    _ => {}
                }
            });
            while let Some(Action::Fetch { id, .. }) = wave.poll(Nanos(now)) {
                wave.handle(Nanos(now), Input::Arrived { fetch: id });
            }
        }
        wave.handle(Nanos(now), Input::Close { file });
        wave.take_changed();
    }
    black_box(text);
    wave.counters().windows
}

/// A record as a line that a person reads.
fn line_of(kept: &Explained) -> String {
    let record = TraceRecord {
        dev: Dev::default(),
        ino: kept.file.0,
        request: kept.read,
        mapped: false,
        pattern: kept.decision.pattern,
        window: kept.decision.window,
        actual: kept.decision.window.size,
        why: kept.decision.why,
        time: kept.at,
        file: kept.file,
        stream: 0,
    };
    record.explain().to_string()
}

/// Hits of cached pages that were read before: one behind the other, or each far from the last.
fn hits(spread: bool) -> u64 {
    let mut cache = filled(shards(Placement::Fair, 1));
    for i in 0..EACH {
        let page = if spread { i * 40_503 % FRAMES } else { i };
        measured(|| cache.touch(FileId(0), PageIndex(page)));
    }
    EACH
}

fn shards(placement: Placement, n: u64) -> CacheConfig {
    let shards = vec![PageCount(FRAMES / n); n as usize];
    let base = CacheConfig::of(PageCount(FRAMES));
    CacheConfig { shards, placement, victim: Victim::Oldest, ghosts_max: 0, ..base }
}

/// A cache whose frames all hold a page of file 0, read twice.
fn filled(config: CacheConfig) -> Cache {
    let mut cache = Cache::new(config);
    for file in 0..2 {
        cache.open(FileId(file), PageIndex(FRAMES));
    }
    cache.submit(FileId(0), Window::new(0, FRAMES, 0), 0);
    cache.arrived(FileId(0), Extent::new(0, FRAMES));
    for page in (0..FRAMES).chain(0..FRAMES) {
        cache.touch(FileId(0), PageIndex(page));
    }
    cache.take_evicted();
    cache
}

/// Pages submitted one at a time to a cache with room.
fn places(placement: Placement, n: u64) -> u64 {
    let mut cache = Cache::new(shards(placement, n));
    cache.open(FileId(0), PageIndex(FRAMES));
    for page in 0..EACH {
        measured(|| cache.submit(FileId(0), Window::new(page, 1, 0), 0));
    }
    EACH
}

/// A writer's question at each page whether too much is dirty: by the limits that the shards keep, or by looking at all.
fn dirtied(kept: bool, n: u64) -> u64 {
    let mut cache = Cache::new(shards(Placement::Fair, n));
    cache.open(FileId(0), PageIndex(FRAMES));
    let mut over = 0_u64;
    for page in 0..EACH {
        cache.write(FileId(0), Extent::new(page, 1), 0);
        over += u64::from(measured(|| {
            if kept { cache.over_dirty_limit(40) } else { cache.dirty().0 * 100 > cache.capacity().0 * 40 }
        }));
    }
    assert_eq!(over, 0, "less than 40 % is dirty");
    EACH
}
