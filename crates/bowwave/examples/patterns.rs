//! Plays the lab's access patterns through the library over a device model in real time, and judges each by the bounds.
//!
//! ```text
//! cargo run --release -p bowwave --example patterns -- s3 seq_64k il8_1fd
//! cargo run --release -p bowwave --example patterns -- --volume 0.1 --memory 256 hdd,ssd,nfs,s3 published
//! ```
//!
//! `--will-read` announces all reads of a file when it is opened; then the offline bound is the one to reach.

mod slow;

use bowwave::{Bytes, Cache, File};
use bowwave_lab::{DeviceModel, Dispatch, Params, Pattern, Plan, Yardsticks, find, published};
use slow::{SlowDevice, SlowFile, verify};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

struct Options {
    volume: f64,
    memory_mib: u64,
    will_read: bool,
    explain: bool,
    cap: Duration,
}

struct Played {
    seconds: f64,
    requests: u64,
    bytes: u64,
    memory_max: u64,
    ops: usize,
}

/// Makes the reads of `plan` through a fresh cache.
fn play(plan: &Plan, model: DeviceModel, options: &Options) -> Result<Played, Box<dyn std::error::Error>> {
    let device = SlowDevice::start(model);
    let cache = Cache::builder().memory(Bytes(options.memory_mib << 20)).build()?;
    let open = |(number, file): (usize, &bowwave_lab::PlanFile)| {
        cache.open(SlowFile::new(&device, number as u64, file.size))
    };
    let files: Vec<File> = plan.files.iter().enumerate().map(open).collect::<Result<_, _>>()?;
    if options.will_read {
        for (number, file) in files.iter().enumerate() {
            let ops = plan.ops.iter().filter(|op| op.file as usize == number);
            let ranges: Vec<_> = ops.map(|op| op.offset..op.offset + op.asked).collect();
            file.will_read(&ranges);
        }
    }
    let next = AtomicUsize::new(0);
    let made = AtomicUsize::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..plan.threads {
            let (files, next, made) = (&files, &next, &made);
            scope.spawn(move || {
                let mut buf = Vec::new();
                let mut own = plan.ops.iter().filter(|op| op.thread == thread);
                while let Some(op) = match plan.dispatch {
                    Dispatch::Assigned => own.next(),
                    Dispatch::QueueOwn | Dispatch::QueueShared => {
                        plan.ops.get(next.fetch_add(1, Ordering::Relaxed))
                    }
                } {
                    if begun.elapsed() > options.cap {
                        break;
                    }
                    buf.resize(op.asked as usize, 0);
                    let file = &files[op.file as usize];
                    let n = file.read_at(&mut buf, op.offset).expect("a slow device makes no mistakes");
                    assert!(verify(u64::from(op.file), op.offset, &buf[..n]), "{op:?}");
                    made.fetch_add(1, Ordering::Relaxed);
                    let end = Instant::now() + Duration::from_nanos(op.think_ns);
                    while op.think_ns > 0 && Instant::now() < end {
                        std::hint::spin_loop();
                    }
                }
            });
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    if options.explain {
        for (_, e) in cache.explain().iter().rev().take(400).rev() {
            let d = &e.decision;
            println!(
                "{:>10.3} ms f{} read {} {} {} ahead={} streams={} why={}",
                e.at.0 as f64 / 1e6,
                e.file,
                e.read,
                d.pattern,
                d.window.extent(),
                d.window.async_size,
                e.streams,
                d.why
            );
        }
        println!("{:?}\n{:?}", cache.stats(), cache.endpoint(1));
    }
    let (requests, bytes) = device.traffic();
    let memory_max = cache.stats().pages_bytes_max;
    Ok(Played { seconds, requests, bytes, memory_max, ops: made.load(Ordering::Relaxed) })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options {
        volume: 0.25,
        memory_mib: 1024,
        will_read: false,
        explain: false,
        cap: Duration::from_secs(20),
    };
    let (mut models, mut patterns): (Vec<(String, DeviceModel)>, Vec<Pattern>) = (Vec::new(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--volume" => options.volume = value()?.parse()?,
            "--memory" => options.memory_mib = value()?.parse()?,
            "--cap" => options.cap = Duration::from_secs(value()?.parse()?),
            "--will-read" => options.will_read = true,
            "--explain" => options.explain = true,
            "published" => patterns.extend(published()),
            names if models.is_empty() => {
                for name in names.split(',') {
                    models.push((name.into(), name.parse()?));
                }
            }
            name => patterns.push(find(name).ok_or_else(|| format!("no pattern {name}"))?),
        }
    }
    println!(
        "{:<6} {:<18} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9}",
        "device", "pattern", "seconds", "online", "offline", "bytes", "requests", "MiB held"
    );
    let (mut sum, mut count) = (0.0, 0);
    for (name, model) in &models {
        for pattern in &patterns {
            let plan = pattern
                .plan(&Params { volume: options.volume, ..Params::published() })
                .expect("none is set by hand");
            let played = play(&plan, *model, &options)?;
            let capped = played.ops < plan.ops.len();
            let judged = if capped { Plan { ops: plan.ops[..played.ops].to_vec(), ..plan } } else { plan };
            let bound = Yardsticks::of(&judged, model);
            let share = |ns: u64| ns as f64 / 1e9 / played.seconds;
            println!(
                "{name:<6} {:<18} {:>9.3} {:>8.3} {:>8.3} {:>8.3} {:>9} {:>9.1}{}",
                pattern.name,
                played.seconds,
                share(bound.online_ns),
                share(bound.offline_ns),
                played.bytes as f64 / bound.plan_bytes.max(1) as f64,
                played.requests,
                played.memory_max as f64 / f64::from(1 << 20),
                if capped { "  capped" } else { "" }
            );
            sum += share(if options.will_read { bound.offline_ns } else { bound.online_ns }).min(1.0).ln();
            count += 1;
        }
    }
    if count > 0 {
        println!("geometric mean of the shares: {:.3}", (sum / f64::from(count)).exp());
    }
    Ok(())
}
