//! What a cached read costs, beside `pread` of a file that the kernel has cached.
//!
//! ```text
//! cargo run --release -p bowwave --example hits [MIB]
//! ```
//!
//! Both read the same file, of 8 MiB unless said, in the same run, turn and turn about, the best of seven rounds each; and into
//! the same buffer, which lies where `rep movsb`, the kernel's copy, is quick (straight from malloc it would lie where that takes
//! ten times as long on current AMD processors). What must hold: 4 KiB at most half of pread, 64 KiB and 1 MiB at most nine
//! tenths, without a copy 4 KiB at most 0.15 and 1 MiB at most 0.02; two threads together at least 1.8 times as many reads as
//! one. What a page takes beside its own bytes is aimed at 1 % of them.

use bowwave::{Bytes, Cache, Error, File, Meta, Storage, Until};
use std::fs;
use std::hint::black_box;
use std::io::{IoSliceMut, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Barrier};
use std::time::Instant;

const ROUNDS: usize = 7;
const BYTES_A_ROUND: u64 = 256 << 20;

/// A local file by pread, as simple as can be.
struct Plain {
    meta: Meta,
    file: fs::File,
}

impl Storage for Plain {
    fn meta(&self) -> &Meta {
        &self.meta
    }
    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], _: &Until) -> Result<(), Error> {
        let mut at = offset;
        for slice in into {
            self.file.read_exact_at(slice, at).map_err(|error| Error::io(&self.meta.name, error))?;
            at += slice.len() as u64;
        }
        Ok(())
    }
}

/// Offsets of `size` bytes: one after the other, or shuffled.
fn offset(i: u64, size: u64, len: u64, random: bool) -> u64 {
    let places = len / size;
    if random { (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % places * size } else { i % places * size }
}

/// Nanoseconds of one read, over a round.
fn round(size: u64, len: u64, random: bool, mut read: impl FnMut(u64)) -> f64 {
    let count = (BYTES_A_ROUND / size).clamp(2000, 65_536);
    let begun = Instant::now();
    for i in 0..count {
        read(offset(i, size, len, random));
    }
    begun.elapsed().as_nanos() as f64 / count as f64
}

fn best(of: &mut [f64], news: f64) {
    of[0] = if of[0] == 0.0 { news } else { of[0].min(news) };
}

fn row(name: &str, ours_ns: f64, theirs_ns: f64, most: f64) {
    let ratio = ours_ns / theirs_ns;
    let verdict = if ratio <= most { "ok" } else { "MISSED" };
    println!(
        "{name:<28} {ours_ns:>11.0} ns {theirs_ns:>11.0} ns   {ratio:>6.3}  at most {most:<5} {verdict}"
    );
}

/// Reads a second of `threads` threads, 4 KiB at random.
fn reads_per_s(file: &File, threads: u64) -> f64 {
    let barrier = Arc::new(Barrier::new(threads as usize));
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (file, barrier) = (file.clone(), Arc::clone(&barrier));
            std::thread::spawn(move || {
                let mut buf = [0; 4096];
                barrier.wait();
                let begun = Instant::now();
                for i in 0..500_000 {
                    let at = offset(i * threads + thread, 4096, file.len(), true);
                    file.read_at(&mut buf, at).expect("a cached read");
                }
                black_box(&buf);
                500_000.0 / begun.elapsed().as_secs_f64()
            })
        })
        .collect();
    workers.into_iter().map(|worker| worker.join().expect("a reader")).sum()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mib = std::env::args().nth(1).map_or(Ok(8), |mib| mib.parse())?;
    let len: u64 = mib << 20;
    let path = std::env::temp_dir().join(format!("bowwave-cost-{}", std::process::id()));
    let mut made = fs::File::create(&path)?;
    let block: Vec<u8> = (0..1 << 20).map(|i: u32| ((i * 7) >> 3) as u8).collect();
    for _ in 0..len >> 20 {
        made.write_all(&block)?;
    }
    let plain = fs::File::open(&path)?;
    fs::remove_file(&path)?;
    let cache = Cache::builder().memory(Bytes(len + (32 << 20))).build()?;
    let meta = Meta { name: "cost".into(), len, version: None, endpoint: 1 };
    let file = cache.open(Plain { meta, file: plain.try_clone()? })?;
    let empty = cache.stats().metadata_bytes;
    let mut buf = vec![0; (1 << 20) + 8192];
    let skip = buf.as_ptr().align_offset(4096) + 512;
    let buf = &mut buf[skip..skip + (1 << 20)];
    let mut again = vec![0; 1 << 20];
    for at in (0..len).step_by(1 << 20) {
        file.read_at(buf, at)?;
        plain.read_exact_at(&mut again, at)?;
        assert_eq!(buf, again);
    }
    println!("{:<28} {:>14} {:>14}   {:>6}", "", "bowwave", "pread", "ratio");
    for (size, random, most) in [
        (4096, false, 0.5),
        (4096, true, 0.5),
        (64 << 10, false, 0.9),
        (64 << 10, true, 0.9),
        (1 << 20, false, 0.9),
        (1 << 20, true, 0.9),
    ] {
        let (mut ours, mut views, mut theirs) = ([0.0], [0.0], [0.0]);
        for _ in 0..ROUNDS {
            let buf = &mut buf[..size as usize];
            best(
                &mut ours,
                round(size, len, random, |at| {
                    black_box(file.read_at(buf, at).expect("a cached read"));
                }),
            );
            best(
                &mut theirs,
                round(size, len, random, |at| plain.read_exact_at(buf, at).expect("a cached read")),
            );
            best(
                &mut views,
                round(size, len, random, |at| {
                    black_box(file.read_at_bytes(at, size as usize).expect("a cached read"));
                }),
            );
        }
        let name = format!("{} KiB {}", size >> 10, if random { "at random" } else { "in order" });
        row(&format!("{name}, copied"), ours[0], theirs[0], most);
        let most = match size {
            4096 => 0.15,
            1_048_576 => 0.02,
            _ => 1.0,
        };
        row(&format!("{name}, no copy"), views[0], theirs[0], most);
    }
    let one = (0..3).map(|_| reads_per_s(&file, 1)).fold(0.0, f64::max);
    let two = (0..3).map(|_| reads_per_s(&file, 2)).fold(0.0, f64::max);
    let verdict = if two >= 1.8 * one { "ok" } else { "MISSED" };
    println!(
        "two threads: {:.2} times the reads of one ({one:.0} and {two:.0} a second), at least 1.8: {verdict}",
        two / one
    );
    let view = file.read_at_bytes(0, 1 << 20)?;
    println!("slices of the first MiB: {}", view.slices().count());
    let stats = cache.stats();
    let pages = (stats.memory_bytes - stats.metadata_bytes) / 4096;
    let a_page = (stats.metadata_bytes - empty) as f64 / pages as f64;
    println!(
        "metadata: {a_page:.1} bytes a page of {pages}, {:.2} % of it; and {} KiB before the first",
        100.0 * a_page / 4096.0,
        empty >> 10
    );
    Ok(())
}
