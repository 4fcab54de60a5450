//! One endpoint of 1 GB/s behind 30 ms, one sequential reader: what share of it does he get, within how much memory?
//!
//! ```text
//! cargo run --release -p bowwave --example one_reader -- [GIB] [MEMORY_MIB] [READ_KIB] [MODEL]
//! ```
//!
//! At least 0.9 within 256 MiB is what must hold, over a file long enough that its start does not count.

mod slow;

use bowwave::{Bytes, Cache};
use slow::{SlowDevice, SlowFile, verify};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (gib, memory_mib, read_kib) = (number(4)?, number(256)?, number(256)?);
    let model: bowwave_lab::DeviceModel = arguments.next().unwrap_or_else(|| "s3".into()).parse()?;
    let device = SlowDevice::start(model);
    let cache = Cache::builder().memory(Bytes(memory_mib << 20)).build()?;
    let file = cache.open(SlowFile::new(&device, 0, gib << 30))?;
    let mut buf = vec![0; (read_kib << 10) as usize];
    let (begun, mut at) = (Instant::now(), 0);
    loop {
        let n = file.read_at(&mut buf, at)?;
        if n == 0 {
            break;
        }
        assert!(verify(0, at, &buf[..n]));
        at += n as u64;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let stats = cache.stats();
    let share = at as f64 / model.bytes_per_s as f64 / seconds;
    println!("{at} bytes in {seconds:.3} s: {share:.3} of the endpoint");
    println!(
        "memory {} of {} bytes, {} of it around the pages; the most that pages took: {}",
        stats.memory_bytes, stats.memory_bytes_max, stats.metadata_bytes, stats.pages_bytes_max
    );
    println!(
        "{} requests of {} KiB; {} reads told, {} waited, {:.0} ms in all",
        device.traffic().0,
        (device.traffic().1 >> 10) / device.traffic().0.max(1),
        stats.counters.reads,
        stats.counters.stalls,
        stats.counters.stalled_ns as f64 / 1e6
    );
    println!("{:?}", cache.endpoint(1));
    Ok(())
}
