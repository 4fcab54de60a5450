//! What one input costs the brain, with one stream alive and with a million: ns, instructions, allocations, bytes.
//!
//! `cargo run --release -p bowwave-core --example cost`
//!
//! Instructions are counted where valgrind is installed: the example runs itself under callgrind, which takes minutes
//! for the last row (`-- quick` leaves them out). ns are the median of batches, on whatever machine this is.

mod herd;

use herd::{Herd, Touch, allocations, bytes_a_page, bytes_alive};
use std::process::{Command, Stdio};
use std::time::Instant;

const STREAMS: [u64; 3] = [1, 1_000, 1_000_000];
const TOUCHES: [Touch; 3] = [Touch::Mark, Touch::Miss, Touch::Stray];
/// Touches that a figure is the mean of, and batches that it is the median of.
const BATCH: u64 = 200;
const BATCHES: usize = 15;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [word, streams, touch] = &args[..]
        && word == "child"
    {
        return child(streams.parse().expect("a number"), touch.parse().expect("a number"));
    }
    let instructions = !args.iter().any(|arg| arg == "quick") && valgrind_is_there();
    println!("   streams  input                 ns  instructions  allocations  bytes a stream");
    for streams in STREAMS {
        let before = bytes_alive();
        let herd = Herd::new(streams);
        let alive = herd.streams();
        let bytes = (bytes_alive() - before) / alive;
        drop(herd);
        for (number, touch) in TOUCHES.into_iter().enumerate() {
            let (ns, allocated) = timed(streams, touch);
            let counted = if instructions { counted(streams, number) } else { None };
            let counted = counted.map_or("-".to_string(), |n| n.to_string());
            let name = match touch {
                Touch::Mark => "hit that is told",
                Touch::Miss => "miss of a stream",
                Touch::Stray => "stray miss",
            };
            println!("{alive:>10}  {name:<16} {ns:>7}  {counted:>12}  {allocated:>11.1}  {bytes:>14}");
        }
    }
    let (dense, scattered) = bytes_a_page();
    println!("\nbytes a cached page: {dense:.2} one after another, {scattered:.0} alone in its leaf of 64");
    if !instructions {
        println!(
            "instructions were not counted: that takes valgrind (apt-get install valgrind) and no `quick`"
        );
    }
}

/// The median of the batches' means: ns and allocations a touch.
fn timed(streams: u64, touch: Touch) -> (u64, f64) {
    let mut herd = Herd::new(streams);
    let mut means = Vec::new();
    let mut allocated = 0.0;
    for _ in 0..BATCHES {
        let places = herd.prepare(touch, BATCH.min(if touch == Touch::Stray { BATCH } else { streams }));
        let (began, before) = (Instant::now(), allocations());
        for &place in &places {
            std::hint::black_box(herd.touch(place));
        }
        let touches = places.len() as u64;
        means.push(began.elapsed().as_nanos() as u64 / touches);
        allocated = (allocations() - before) as f64 / touches as f64;
        if streams == 1 || touch != Touch::Stray {
            herd = again(herd, streams, touch);
        }
    }
    means.sort_unstable();
    (means[means.len() / 2], allocated)
}

/// Streams are touched once; a small herd is made anew for the next batch, a large one has more.
fn again(herd: Herd, streams: u64, touch: Touch) -> Herd {
    if touch == Touch::Stray || streams <= 1_000 { Herd::new(streams) } else { herd }
}

// ---- instructions --------------------------------------------------------------------------------------------------

fn valgrind_is_there() -> bool {
    Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Only what `touch` does is counted.
fn counted(streams: u64, number: usize) -> Option<u64> {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=*Herd*touch*")
        .arg(std::env::current_exe().ok()?)
        .args(["child", &streams.to_string(), &number.to_string()])
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let total: u64 = said.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok())?;
    let touches: u64 = String::from_utf8_lossy(&out.stdout).trim().parse().ok()?;
    Some(total / touches)
}

fn child(streams: u64, number: usize) {
    let mut herd = Herd::new(streams);
    let touch = TOUCHES[number];
    let places = herd.prepare(touch, if touch == Touch::Stray { BATCH } else { BATCH.min(streams) });
    for &place in &places {
        std::hint::black_box(herd.touch(place));
    }
    println!("{}", places.len());
}
