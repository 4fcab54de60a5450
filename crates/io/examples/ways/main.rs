//! What each way of reading a local file costs on your disk: through the kernel's page cache, past it, by `io_uring`, and what
//! `FileStorage` chooses.
//!
//! ```text
//! cargo run --release -p bowwave-io --no-default-features --example ways -- DIR [MIB] [ROUNDS]
//! ```
//!
//! It writes a file of 512 MiB into DIR, unless said otherwise, with a hole of 1 TiB behind it, so that it is more than any memory can
//! keep, and removes it at the end. Every way reads the same places, turn and turn about, 7 rounds after one that does not count;
//! before each the file leaves the kernel's cache, in `cached` it is brought there. A line: the median time and processor time of
//! an operation (of this process, its share of the kernel included), both in shares of `plain`'s too, and how much of what was read
//! lies in the kernel's cache afterwards.
//!
//! ```text
//! plain      preadv through the cache, no readahead               ring       io_uring past it, a ring a thread, buffers registered
//! dropped    the same with RWF_DONTCACHE                          shared     io_uring past it, one ring, a thread that reaps
//! direct     preadv past the cache                                batch      io_uring past it, one thread drives all at once
//! storage    FileStorage: what it chooses                         together   FileStorage: one thread has all at once (`read_each`)
//! ```

use bowwave_io::{FileStorage, ReadOne, Storage, Until, cached_pages};
use rings::{Shared, drive};
use std::error::Error;
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

mod rings;

const WAYS: [Way; 8] =
    [Way::Plain, Way::Dropped, Way::Direct, Way::Ring, Way::Shared, Way::Batch, Way::Storage, Way::Together];
const LOADS: [Load; 6] = [
    Load { name: "1 MiB in order", bytes: 1 << 20, threads: 1, reads: 256, cached: false },
    Load { name: "1 MiB in order, 4 threads", bytes: 1 << 20, threads: 4, reads: 256, cached: false },
    Load { name: "64 KiB at random", bytes: 64 << 10, threads: 1, reads: 1024, cached: false },
    Load { name: "4 KiB at random", bytes: 4096, threads: 1, reads: 2048, cached: false },
    Load { name: "4 KiB at random, 16 threads", bytes: 4096, threads: 16, reads: 16_384, cached: false },
    Load { name: "4 KiB at random, cached", bytes: 4096, threads: 1, reads: 8192, cached: true },
];
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Plain,
    Dropped,
    Direct,
    Ring,
    Shared,
    Batch,
    Storage,
    Together,
}

struct Load {
    name: &'static str,
    bytes: usize,
    threads: usize,
    reads: usize,
    cached: bool,
}

/// Microseconds an operation, of the clock and of the processors, and the share left in the kernel's cache.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
    kept: f64,
}

/// Page-aligned memory.
struct Buffer(Vec<u8>, usize);

impl Buffer {
    fn new(bytes: usize) -> Self {
        let memory = vec![1; bytes + 4096];
        let at = memory.as_ptr().align_offset(4096);
        Self(memory, at)
    }

    fn bytes(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.0[self.1..][..bytes]
    }
}

fn preadv2(file: &File, offset: u64, into: &mut [u8], flags: i32) -> io::Result<()> {
    let slice = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: one slice of ours, which outlives the call.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const slice, 1, offset as i64, flags) };
    full(read as i64, into.len())
}

/// What the system answered: all of it, or an error.
fn full(read: i64, wanted: usize) -> io::Result<()> {
    match read {
        -1 => Err(io::Error::last_os_error()),
        ..-1 => Err(io::Error::from_raw_os_error(-read as i32)),
        _ if read as usize == wanted => Ok(()),
        _ => Err(io::Error::other("a short read")),
    }
}

/// Makes the reads of a load, its threads beside each other.
fn perform(way: Way, path: &Path, load: &Load, offsets: &[u64]) -> io::Result<()> {
    let flags = if matches!(way, Way::Plain | Way::Dropped) { 0 } else { libc::O_DIRECT };
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    // SAFETY: advice on our own descriptor.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    let storage = FileStorage::open(path).map_err(io::Error::other)?;
    let shared = (way == Way::Shared).then(Shared::new).transpose()?;
    if way == Way::Batch {
        return drive(&file, load.bytes, offsets, load.threads);
    }
    let until = Until::after(Duration::from_secs(60));
    if way == Way::Together {
        return together(&storage, load, offsets, &until);
    }
    let barrier = Barrier::new(load.threads);
    let (file, storage, shared, until, barrier) = (&file, &storage, shared.as_ref(), &until, &barrier);
    thread::scope(|scope| {
        let reaper = shared.map(|shared| (shared, scope.spawn(|| shared.reap())));
        let readers: Vec<_> = offsets
            .chunks(offsets.len() / load.threads)
            .map(|offsets| {
                scope.spawn(move || {
                    barrier.wait();
                    if way == Way::Ring {
                        return drive(file, load.bytes, offsets, 1);
                    }
                    let mut buffer = Buffer::new(load.bytes);
                    let into = buffer.bytes(load.bytes);
                    offsets.iter().try_for_each(|offset| match way {
                        Way::Dropped => preadv2(file, *offset, into, libc::RWF_DONTCACHE),
                        Way::Shared => shared.expect("made for it").read(file, *offset, into),
                        Way::Storage => storage
                            .read_at(*offset, &mut [IoSliceMut::new(into)], until)
                            .map_err(io::Error::other),
                        _ => preadv2(file, *offset, into, 0),
                    })
                })
            })
            .collect();
        let joined = readers.into_iter().map(|reader| reader.join().expect("no panic"));
        let all = joined.fold(Ok(()), io::Result::and);
        if let Some((shared, reaper)) = reaper {
            shared.end()?;
            reaper.join().expect("no panic")?;
        }
        all
    })
}

/// One thread, which has as many reads out at once as the load has threads.
fn together(storage: &FileStorage, load: &Load, offsets: &[u64], until: &Until) -> io::Result<()> {
    let name = storage.meta().name.clone();
    let mut buffers: Vec<_> = (0..load.threads).map(|_| Buffer::new(load.bytes)).collect();
    for offsets in offsets.chunks(load.threads) {
        let mut slices: Vec<_> =
            buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer.bytes(load.bytes))]).collect();
        let places = slices.iter_mut().zip(offsets);
        let mut reads: Vec<_> = places.map(|(slices, offset)| ReadOne::new(&name, *offset, slices)).collect();
        storage.read_each(&mut reads, until);
        reads.into_iter().try_for_each(|read| read.outcome).map_err(io::Error::other)?;
    }
    Ok(())
}

fn cpu_us() -> f64 {
    // SAFETY: the structure is plain numbers and outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

fn measure(way: Way, path: &Path, len: u64, load: &Load, offsets: &[u64]) -> io::Result<Cost> {
    let file = File::open(path)?;
    // SAFETY: advice on our own descriptor.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if load.cached {
        io::copy(&mut (&file).take(len), &mut io::sink())?;
    }
    let (begun, cpu) = (Instant::now(), cpu_us());
    perform(way, path, load, offsets)?;
    let (wall, cpu) = (begun.elapsed().as_micros() as f64, cpu_us() - cpu);
    let reads = offsets.len() as f64;
    let cached = cached_pages(&file, 0, len).unwrap_or(0) * 4096;
    let kept = (cached as f64 / (reads * load.bytes as f64)).min(1.0);
    Ok(Cost { wall: wall / reads, cpu: cpu / reads, kept })
}

/// Places of a round: one after the other, or all over the file; others in each round.
fn offsets(load: &Load, len: u64, round: u64) -> Vec<u64> {
    let (bytes, places) = (load.bytes as u64, len / load.bytes as u64);
    let first = round * load.reads as u64;
    let random = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % places * bytes;
    let place = |i| if bytes == 1 << 20 { i % places * bytes } else { random(i) };
    (first..first + load.reads as u64).map(place).collect()
}

fn median(costs: &[Cost], of: impl Fn(&Cost) -> f64) -> f64 {
    let mut values: Vec<_> = costs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("say in which directory")?;
    let mib: u64 = args.next().map_or(Ok(512), |text| text.parse())?;
    let rounds: u64 = args.next().map_or(Ok(7), |text| text.parse())?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    let mut word = 1u64;
    for _ in 0..mib {
        let words = std::iter::repeat_with(|| {
            word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            word.to_le_bytes()
        });
        file.write_all(&words.take(1 << 17).flatten().collect::<Vec<_>>())?;
    }
    let len = mib << 20;
    if let Err(error) = file.as_file().set_len(len + (1 << 40)) {
        println!("no hole of 1 TiB here ({error}): `storage` is `plain`");
    }
    file.as_file().sync_all()?;
    for load in &LOADS {
        let mut costs = vec![Vec::new(); WAYS.len()];
        for round in 0..=rounds {
            let offsets = offsets(load, len, round);
            for turn in 0..WAYS.len() {
                // Another begins each round: what lies below may remember what it read last.
                let way = (turn + round as usize) % WAYS.len();
                match measure(WAYS[way], file.path(), len, load, &offsets) {
                    Err(error) if round == 0 => println!("{:?} cannot be had here: {error}", WAYS[way]),
                    Ok(cost) if round > 0 => costs[way].push(cost),
                    _ => {}
                }
            }
        }
        println!("\n{:<28} {:>9} {:>9} {:>7} {:>7} {:>6}", load.name, "us", "cpu us", "time", "cpu", "kept");
        let plain = [median(&costs[0], |cost| cost.wall), median(&costs[0], |cost| cost.cpu)];
        for (way, costs) in WAYS.iter().zip(&costs).filter(|(_, costs)| !costs.is_empty()) {
            let (wall, cpu) = (median(costs, |cost| cost.wall), median(costs, |cost| cost.cpu));
            let name = format!("{way:?}").to_lowercase();
            let kept = median(costs, |cost| cost.kept) * 100.0;
            println!(
                "  {name:<26} {wall:>9.1} {cpu:>9.1} {:>7.2} {:>7.2} {kept:>5.0}%",
                wall / plain[0],
                cpu / plain[1]
            );
        }
    }
    Ok(())
}
