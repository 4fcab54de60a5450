//! Random readers of a mount against the truth, over a store with bad days: no wrong byte, no hang, no error that the store did not
//! make.
//!
//! Eight threads read the same files through descriptors (`pread`) and through mappings, private and shared, opening them anew
//! now and then; the kernel's page cache and its readahead are between them and us. 5 % of the store's reads fail, 1 % stall
//! longer than the mount waits for one attempt (half a second in the short run), 1 % have a short body, 1 % another length. One
//! file changes again and again while it is read: from then on its older descriptors say ESTALE, and never a mix. A mapped page that
//! cannot be had would end its program by SIGBUS; here it is copied by the kernel (`process_vm_readv`), which says EFAULT instead. The
//! readers are a process of their own: a process that serves a mount and maps its files waits for itself as soon as it needs its own
//! address space for both.
//!
//! `BOWWAVE_FUZZ_SECONDS=600 cargo test -p bowwave-fuse --test truth -- --nocapture` goes on for ten minutes.

mod common;

use bowwave::Bytes;
use bowwave_fuse::{CachedMount, CachedOptions, CachedSource};
use bowwave_fuzz::Chance;
use bowwave_io::Faults;
use common::FaultyTree;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LEN: u64 = 24 << 20;
const FILES: u64 = 3;
/// Reads of a thread where nothing else is said.
const READS: u64 = 150;
/// A read that takes longer hangs: four times what the mount waits for a store.
const HANG: Duration = Duration::from_secs(120);

/// What byte `at` of a file is, before and after it has changed.
fn byte(file: u64, changed: bool, at: u64) -> u8 {
    let word = (at / 8 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ (file << 8 | u64::from(changed)));
    word.to_le_bytes()[(at % 8) as usize]
}

fn content(file: u64, changed: bool) -> Vec<u8> {
    (0..LEN).map(|at| byte(file, changed, at)).collect()
}

/// The faults of each file that is opened, each from another seed.
fn bad_days() -> impl Fn() -> Faults + Send + Sync {
    let stall = if seconds().is_some() { Duration::from_secs(10) } else { Duration::from_millis(500) };
    let opened = AtomicU64::new(1);
    move || Faults {
        seed: opened.fetch_add(1, Ordering::Relaxed),
        errors_ppm: 50_000,
        stalls_ppm: 10_000,
        stall,
        short_ppm: 10_000,
        wrong_ppm: 10_000,
        change_at: None,
    }
}

/// How long a run was asked for.
fn seconds() -> Option<u64> {
    std::env::var("BOWWAVE_FUZZ_SECONDS").ok()?.parse().ok()
}

/// A mapping of a whole file.
struct Map(*mut libc::c_void);

impl Map {
    fn of(file: &File, flags: i32) -> io::Result<Self> {
        // SAFETY: a new mapping, read only, wherever the system likes.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), LEN as usize, libc::PROT_READ, flags, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(at)) }
    }

    /// Copies from it as the kernel does for a debugger: what cannot be had is an error and no signal.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: self.0.wrapping_byte_add(at as usize), iov_len: into.len() };
        // SAFETY: `local` is the caller's own buffer; `remote` is looked at by the kernel, which checks it.
        let n =
            unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` and unmapped once.
        unsafe { libc::munmap(self.0, LEN as usize) };
    }
}

#[derive(Default)]
struct Sum {
    right: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    stale: AtomicU64,
    longest_ms: AtomicU64,
}

/// One reader, until its reads are done and the time is over.
fn reader(seed: u64, dir: &Path, end: Instant, sum: &Sum) {
    let mut chance = Chance::new(seed);
    let mut buffer = vec![0; 300_000];
    let (mut read, mut at) = (0, 0);
    while read < READS || Instant::now() < end {
        let number = chance.below(FILES);
        let Ok(file) = File::open(dir.join(format!("{number}"))) else {
            // A file that is just changing, or a store that failed three times.
            sum.failed.fetch_add(1, Ordering::Relaxed);
            read += 1;
            continue;
        };
        let flags = [libc::MAP_PRIVATE, libc::MAP_SHARED][chance.below(2) as usize];
        let map = Map::of(&file, flags).expect("every file of the mount can be mapped");
        // One version at a time: the first read that tells them apart says which.
        let mut version = None;
        // Every third goes in steps of whole pages, backwards without a gap more often than not: those are pushed.
        let pages = 1 + chance.below(3);
        let step = [-(pages as i64), -(pages as i64), 8, -5][chance.below(4) as usize] * 4096;
        let steps = chance.below(3) == 0;
        for _ in 0..chance.below(40) {
            if steps {
                let next = at as i64 / 4096 * 4096 + step;
                at = if next < 0 || next as u64 + pages * 4096 > LEN { LEN / 2 } else { next as u64 };
            } else if chance.below(6) == 0 {
                at = chance.below(LEN);
            }
            let asked = [chance.below(300_000), 4096, chance.below(20_000)][chance.below(3) as usize];
            let asked = if steps { pages * 4096 } else { asked };
            let asked = asked.min(LEN - at) as usize;
            let begun = Instant::now();
            let result = if chance.below(3) == 0 {
                map.read_at(&mut buffer[..asked], at)
            } else {
                file.read_at(&mut buffer[..asked], at)
            };
            let took = begun.elapsed();
            assert!(took < HANG, "a read of [{at}, +{asked}) of {number} hung for {took:?}");
            sum.longest_ms.fetch_max(took.as_millis() as u64, Ordering::Relaxed);
            read += 1;
            match result {
                Ok(n) => {
                    let is = |changed: bool| {
                        (0..n as u64).all(|i| buffer[i as usize] == byte(number, changed, at + i))
                    };
                    let told = version.map_or_else(|| is(false) || is(true), is);
                    assert!(told, "a wrong byte in [{at}, +{n}) of {number}, version {version:?}");
                    // A byte or two may be the same in both.
                    if version.is_none() && is(true) != is(false) {
                        version = Some(is(true));
                    }
                    sum.right.fetch_add(1, Ordering::Relaxed);
                    sum.bytes.fetch_add(n as u64, Ordering::Relaxed);
                    at = if steps { at } else { (at + n as u64) % LEN };
                }
                Err(error) => {
                    let code = error.raw_os_error();
                    let may = [libc::EIO, libc::ESTALE, libc::ETIMEDOUT, libc::EFAULT];
                    assert!(code.is_some_and(|code| may.contains(&code)), "{error}");
                    let count = if code == Some(libc::ESTALE) { &sum.stale } else { &sum.failed };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Names the directory to the process of readers.
const DIR: &str = "BOWWAVE_TEST_TRUTH_DIR";

/// The process of readers, which the other test starts; alone it has nothing to read.
#[test]
fn process_of_readers() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let (sum, begun) = (Sum::default(), Instant::now());
    let end = begun + Duration::from_secs(seconds().unwrap_or(0));
    thread::scope(|scope| {
        for seed in 0..8 {
            let (dir, sum) = (&dir, &sum);
            scope.spawn(move || reader(seed, dir, end, sum));
        }
    });
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} reads of {} MB right in {} s; {} failed, {} of a file that had changed; the longest took {} ms",
        of(&sum.right),
        of(&sum.bytes) / 1_000_000,
        begun.elapsed().as_secs(),
        of(&sum.failed),
        of(&sum.stale),
        of(&sum.longest_ms)
    );
    assert!((of(&sum.failed) + of(&sum.stale)) * 4 < of(&sum.right), "most reads succeed");
}

#[test]
fn readers_of_a_mount_get_the_truth_or_an_error() {
    // SAFETY: it cannot fail.
    if unsafe { libc::geteuid() } != 0 || !Path::new("/dev/fuse").exists() {
        println!("skipped: tests of mounts need root and /dev/fuse");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (source, dir) = (place.path().join("source"), place.path().join("mounted"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&dir).unwrap();
    for file in 0..FILES {
        fs::write(source.join(format!("{file}")), content(file, false)).unwrap();
    }
    let tree = FaultyTree::open(&source, bad_days());
    let mount = CachedMount::mount(CachedOptions {
        source: CachedSource::Tree(Arc::new(tree)),
        dir: dir.clone(),
        memory: Bytes(8 << 20),
        staleness: Duration::from_millis(100),
        kernel_cache: true,
        read_ahead_kb: None,
        metrics: None,
    })
    .unwrap();
    let mut readers = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process_of_readers", "--nocapture"])
        .env(DIR, &dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Put in its place at once, as who writes a file anew does: an object is never half of each.
    let mut changed = false;
    while readers.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(300));
        changed = !changed;
        fs::write(place.path().join("new"), content(0, changed)).unwrap();
        fs::rename(place.path().join("new"), source.join("0")).unwrap();
    }
    let ended = readers.wait_with_output().unwrap();
    print!("{}", String::from_utf8_lossy(&ended.stdout));
    assert!(ended.status.success(), "a reader found something wrong: {}", ended.status);
    drop(mount);
}
