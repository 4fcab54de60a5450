//! Many slow streams and little memory, for real: are they all on time, and how large are the requests?
//!
//! ```text
//! cargo run --release -p bowwave --example paced -- [STREAMS] [BYTES_A_SECOND] [DEVICE] [MEMORY_MIB] [SECONDS]
//! ```
//!
//! A thread a stream, a file each. A stream reads 4 KiB whenever its pace allows; they start ten a second, and are
//! judged from twenty seconds after the last start on. It is on time if it read, while it was judged, at least
//! 99 % of what its pace allows. What must hold for 300 streams of 100 KB/s on `hdd` in 128 MiB: all on time, at most 1 % of
//! requests lost before their use, 343 KB a request on average, resident memory below the ceiling and 32 MiB.
//!
//! Many more and slower ones: `paced -- 2000 5000 hdd 256`, 10 MB/s of which each stream reads a page in 0.8 s; and many on a network
//! mount: `paced -- 2000 100000 nfs 512`, 200 of its 250 MB/s.

mod slow;

use bowwave::{Bytes, Cache};
use slow::{SlowDevice, SlowFile, verify};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const READ: u64 = 4 << 10;
/// Streams that start in a second, as in the published runs; and all within half a minute, however many there are.
const STARTS_A_SECOND: f64 = 10.0;
const STARTS_S_MAX: f64 = 30.0;
const SETTLE_S: f64 = 20.0;

fn resident_kib() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).ok_or("no VmHWM")?;
    Ok(line.split_whitespace().nth(1).ok_or("no figure")?.parse()?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| arguments.get(i).map_or(Ok(default), |text| text.parse());
    let (streams, pace) = (number(0, 300)?, number(1, 100_000)?);
    let model: bowwave_lab::DeviceModel = arguments.get(2).map_or("hdd", String::as_str).parse()?;
    let (memory_mib, seconds) = (number(3, 128)?, number(4, 40)?);
    let before_kib = resident_kib()?;
    let device = SlowDevice::start(model);
    let cache = Cache::builder().memory(Bytes(memory_mib << 20)).build()?;
    let starts_s = (streams as f64 / STARTS_A_SECOND).min(STARTS_S_MAX);
    let total = Duration::from_secs_f64(starts_s + SETTLE_S + seconds as f64);
    let len = (pace * total.as_secs() * 2).next_multiple_of(1 << 20);
    let begun = Instant::now();
    let judged_from = begun + Duration::from_secs_f64(starts_s + SETTLE_S);
    let late = AtomicU64::new(0);
    let (worst, longest_ms) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
    let judged = std::sync::Mutex::new(None);
    std::thread::scope(|scope| {
        for stream in 0..streams {
            let (cache, device) = (&cache, &device);
            let (late, worst, longest_ms) = (&late, &worst, &longest_ms);
            let body = move || {
                let file = cache.open(SlowFile::new(device, stream, len)).expect("a file");
                let start = begun + Duration::from_secs_f64(starts_s * stream as f64 / streams as f64);
                let mut buf = vec![0; READ as usize];
                let (mut at, mut read_judged) = (0, 0);
                let mut due = start;
                while begun.elapsed() < total {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    let asked = Instant::now();
                    let n = file.read_at(&mut buf, at).expect("a slow device makes no mistakes");
                    assert!(verify(stream, at, &buf[..n]));
                    at += n as u64;
                    // Who falls behind catches up at most a second.
                    due += Duration::from_nanos(READ * 1_000_000_000 / pace);
                    due = due.max(Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or(due));
                    if asked >= judged_from {
                        read_judged += n as u64;
                        longest_ms.fetch_max(asked.elapsed().as_millis() as u64, Ordering::Relaxed);
                    }
                }
                let permille = (read_judged + READ) * 1000 / (pace * seconds);
                worst.fetch_min(permille, Ordering::Relaxed);
                late.fetch_add(u64::from(permille < 990), Ordering::Relaxed);
            };
            let builder = std::thread::Builder::new().stack_size(128 << 10);
            builder.spawn_scoped(scope, body).expect("a thread");
        }
        std::thread::sleep(judged_from.saturating_duration_since(Instant::now()));
        *judged.lock().expect("nobody panics") = Some((device.traffic(), cache.stats()));
    });
    let (before, then) = judged.into_inner()?.ok_or("not judged")?;
    let (requests, bytes) = device.traffic();
    let stats = cache.stats();
    let (requests, bytes) = (requests - before.0, bytes - before.1);
    println!(
        "{streams} streams of {pace} B/s, {memory_mib} MiB: {} late; the slowest had {:.1} % of its pace, the longest read {} ms",
        late.into_inner(),
        worst.into_inner() as f64 / 10.0,
        longest_ms.into_inner()
    );
    println!(
        "{requests} requests of {:.0} KB, {:.2} bytes fetched a byte used; {} of {} windows thrashed",
        bytes as f64 / requests.max(1) as f64 / 1e3,
        bytes as f64 / (streams * pace * seconds) as f64,
        stats.counters.windows_thrashed - then.counters.windows_thrashed,
        stats.counters.windows - then.counters.windows
    );
    let (resident_kib, threads_kib) = (resident_kib()? - before_kib, streams * (READ / 1024 + 20));
    println!(
        "resident at most {:.1} MiB above the start, {:.1} of it the readers' own buffers and stacks; the cache says {:.1}",
        resident_kib as f64 / 1024.0,
        threads_kib as f64 / 1024.0,
        stats.memory_bytes as f64 / f64::from(1 << 20)
    );
    Ok(())
}
