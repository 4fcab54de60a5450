//! Mapped files under `bowwave run`, the observer outside, and the doctor: right bytes above all.
//!
//! The program that is run is this test itself (`program`), told by its environment what to do. BOWWAVE_TEST_OBSERVER=bpf
//! or =perf plays the suite under the observer outside by either way, as `./x test` does where it may.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const PAGE: usize = 4096;
const PAGES: usize = 1024;
/// Pages touched of a file far away.
const FAR: usize = 240;
const DO: &str = "BOWWAVE_TEST_DO";
const DIR: &str = "BOWWAVE_TEST_DIR";
/// Under which observer: `preload`, `outside`, or `bpf` and `perf` for either way of that.
const OBSERVER: &str = "BOWWAVE_TEST_OBSERVER";

/// Runs this test's `program` under `bowwave run`, in `dir`; whether it went well is asserted.
fn run(dir: &Path, options: &[&str], what: &str) -> Value {
    run_by(&[], dir, options, what)
}

/// The same, started by the program and arguments `by`.
fn run_by(by: &[&str], dir: &Path, options: &[&str], what: &str) -> Value {
    let report = dir.join("report.json");
    let observer = std::env::var(OBSERVER).ok().map(|observer| format!("--observer={observer}"));
    let output = Command::new(env!("CARGO_BIN_EXE_bowwave"))
        .args(["run", "--json"])
        .arg(&report)
        .args(observer.filter(|_| options.is_empty()))
        .args(options)
        .arg("--")
        .args(by)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "program", "--nocapture", "--test-threads=1"])
        .env(DO, what)
        .env(DIR, dir)
        .env_remove("BOWWAVE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap()
}

/// Whether the suite is played under the observer outside.
fn is_from_outside() -> bool {
    std::env::var(OBSERVER).is_ok_and(|observer| observer != "preload")
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn is_root() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn a_mapping_is_steered_after_its_descriptor_was_closed() {
    if is_from_outside() {
        println!(
            "skipped: from outside a mapping without a descriptor is not always found (docs/decisions/0009)"
        );
        return;
    }
    let dir = temporary();
    make(&dir.path().join("data"), 7);
    let report = run(dir.path(), &[], "touch");
    if report["faults_known_by"] == "not seen" {
        println!("skipped: neither perf samples nor PAGEMAP_SCAN here");
        return;
    }
    assert!(report["mappings"].as_u64().unwrap() >= 1, "{report}");
    let used =
        report["files"].as_array().unwrap().iter().find(|f| f["path"].as_str().unwrap().ends_with("data"));
    assert!(used.is_some_and(|f| f["used"].as_u64().unwrap() > 0), "{report}");
}

/// It was there before the kernel was ready to sample the faults of anybody (perf.rs).
#[test]
fn a_child_that_a_shell_starts_at_once_is_watched() {
    if is_from_outside() {
        println!("skipped: from outside each fault is told, whoever started the program");
        return;
    }
    let dir = temporary();
    make(&dir.path().join("data"), 7);
    let report = run_by(&["sh", "-c", "\"$0\" \"$@\" & wait $!"], dir.path(), &[], "touch");
    if report["faults_known_by"] != "perf samples" {
        println!("skipped: perf is refused here");
        return;
    }
    let told = report["faults"].as_u64().unwrap();
    assert!(told >= (PAGES / 16 * 3 / 4) as u64, "{told} of {}: {report}", PAGES / 16);
}

/// A program comes from a fast disk, as most do. Its touches of a file far away are watched all the time nonetheless.
#[test]
fn a_fast_device_beside_it_does_not_hide_a_slow_one() {
    if is_from_outside() {
        println!("skipped: from outside each fault is told, on whatever device");
        return;
    }
    let dir = temporary();
    let mut stores = Vec::new();
    for (name, model) in [("near", "lat=100us,bw=4GB/s,slots=64"), ("far", "lat=4ms,bw=1GB/s,slots=16")] {
        let (at, ready) = (dir.path().join(name), dir.path().join(name.to_owned() + ".ready"));
        fs::create_dir(&at).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bowwave"));
        command
            .arg("slow")
            .arg(&at)
            .args(["--device", model, "--exit-with-parent", "--ready-file"])
            .arg(&ready);
        let mut store =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !ready.exists() {
            if store.try_wait().unwrap().is_some() {
                println!("skipped: no slow store without root and /dev/fuse");
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        stores.push(store);
    }
    let report = run(dir.path(), &[], "far");
    for mut store in stores {
        // SAFETY: a plain system call; the child has not been waited for, so its number is its own.
        unsafe { libc::kill(store.id() as i32, libc::SIGTERM) };
        store.wait().unwrap();
    }
    if report["faults_known_by"] != "perf samples" {
        println!("skipped: perf is refused here");
        return;
    }
    let told = report["faults"].as_u64().unwrap();
    assert!(told >= (FAR * 9 / 10) as u64, "{told} of {FAR}: {report}");
}

#[test]
fn a_reader_is_seen_from_outside() {
    if !is_root() {
        println!("skipped: tracepoints take root");
        return;
    }
    for by in ["bpf", "perf"] {
        let dir = temporary();
        make(&dir.path().join("data"), 7);
        let report = run(dir.path(), &["--observer", by], "read");
        if report["observed_outside"] == false {
            println!("skipped: {by}: this kernel lacks it, or refuses it");
            continue;
        }
        assert_eq!(report["outside_known_by"], if by == "bpf" { "BPF programs" } else { "perf samples" });
        let files = report["files"].as_array().unwrap();
        let data = files.iter().find(|f| f["path"].as_str().unwrap().ends_with("data")).expect("it was read");
        assert_eq!(data["used"].as_u64().unwrap(), (PAGES * PAGE) as u64, "{by}");
    }
}

/// Among processes of its own numbers, as in a container, no BPF program is taken.
#[test]
fn where_bpf_is_refused_perf_is_taken() {
    let dir = temporary();
    make(&dir.path().join("data"), 7);
    let report = dir.path().join("report.json");
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_bowwave")])
        .args(["run", "--observer", "outside", "--json"])
        .arg(&report)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "program", "--nocapture", "--test-threads=1"])
        .env(DO, "read")
        .env(DIR, dir.path())
        .env_remove("BOWWAVE")
        .stdin(Stdio::null())
        .output();
    let Ok(Ok(report)) = output.map(|_| fs::read_to_string(report)) else {
        println!("skipped: unshare cannot be had, or may not part the numbers of processes");
        return;
    };
    let report: Value = serde_json::from_str(&report).unwrap();
    if report["observed_outside"] == false {
        println!("skipped: this kernel lacks the tracepoints, or refuses them");
        return;
    }
    assert_eq!(report["outside_known_by"], "perf samples");
    assert!(report["outside_instead"].as_str().unwrap().contains("BPF"), "{report}");
}

/// BOWWAVE_STRESS_SECONDS=60 for the minute that a release takes.
#[test]
fn stress_gives_right_bytes() {
    let dir = temporary();
    let report = run(dir.path(), &[], "stress");
    assert_eq!(report["events_lost"].as_u64().unwrap(), 0);
}

/// The same in C (`stress.c`), as AddressSanitizer and UBSan see it, and valgrind.
#[test]
fn stress_under_a_sanitizer() {
    let dir = temporary();
    let seconds = std::env::var("BOWWAVE_STRESS_SECONDS").unwrap_or("3".into());
    let build = |name: &str, options: &[&str]| {
        let to = dir.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stress.c");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-pthread"]).args(options).arg("-o").arg(&to).arg(source);
        let built = cc.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        built.then(|| to.into_os_string())
    };
    let sanitized = build("sanitized", &["-fsanitize=address,undefined", "-fno-sanitize-recover"]);
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    let plain = build("plain", &[]).filter(|_| valgrind.is_ok());
    let checked = plain.map(|plain| vec!["valgrind".into(), "-q".into(), "--error-exitcode=9".into(), plain]);
    let ways =
        [("a compiler with sanitizers", sanitized.map(|program| vec![program])), ("valgrind", checked)];
    for (what, command) in ways {
        let Some(command) = command else {
            println!("skipped: stress without {what}, which is not here");
            continue;
        };
        let observer = std::env::var(OBSERVER).ok().map(|observer| format!("--observer={observer}"));
        let output = Command::new(env!("CARGO_BIN_EXE_bowwave"))
            .args(["run", "--quiet"])
            .args(observer)
            .arg("--")
            .args(command)
            .arg(dir.path())
            .args([&seconds, "4"])
            .env_remove("BOWWAVE")
            .output()
            .unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_doctor_measures_and_leaves_nothing() {
    let dir = temporary();
    let output = Command::new(env!("CARGO_BIN_EXE_bowwave"))
        .args(["doctor", "--json"])
        .arg(dir.path())
        .env_remove("BOWWAVE")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("free") {
        println!("skipped: {errors}");
        return;
    }
    assert!(output.status.success(), "{errors}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let touches = &said["findings"][0];
    assert_eq!((touches["job"].as_str(), touches["used_bytes"].as_u64()), (Some("touches"), Some(40_960)));
    assert!(touches["plain"]["bytes"].as_u64().unwrap() > 0);
    assert!(said["words"].as_array().unwrap().len() >= 3);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // What it does not like is one sentence and an exit code.
    let refused =
        Command::new(env!("CARGO_BIN_EXE_bowwave")).args(["doctor", "/nonexistent"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(66));
}

// ---- the program -------------------------------------------------------------------------------------------------------

/// Not a test by itself: what is run.
#[test]
fn program() {
    let (Ok(what), Some(dir)) = (std::env::var(DO), std::env::var_os(DIR)) else { return };
    let dir = PathBuf::from(dir);
    match what.as_str() {
        "touch" => {
            let file = File::open(dir.join("data")).unwrap();
            cold(&file);
            let map = Map::of(&file, libc::PROT_READ, libc::MAP_SHARED);
            drop(file);
            // A program of a millisecond may be over before the agent has had its turn.
            thread::sleep(Duration::from_millis(300));
            (0..PAGES).for_each(|page| map.check(7, page));
            thread::sleep(Duration::from_millis(300));
        }
        "far" => {
            let [near, far] = ["near", "far"].map(|name| File::open(dir.join(name).join("big/000")).unwrap());
            let mut page = [0u8; PAGE];
            // Over a gigabyte: nothing gathers.
            let places = |step: usize| (0..).map(move |i: usize| (i * step + i * i * 37) % (1 << 18) * PAGE);
            for at in places(6151).take(40) {
                near.read_exact_at(&mut page, at as u64).unwrap();
            }
            // SAFETY: a new mapping at an address of the kernel's choice, of a file that is larger.
            let map = unsafe {
                libc::mmap(ptr::null_mut(), 1 << 30, libc::PROT_READ, libc::MAP_SHARED, far.as_raw_fd(), 0)
            };
            assert_ne!(map, libc::MAP_FAILED);
            thread::sleep(Duration::from_millis(300));
            for at in places(7919).take(FAR) {
                // SAFETY: inside the mapping.
                unsafe { map.cast::<u8>().add(at).read_volatile() };
            }
        }
        "read" => {
            let file = File::open(dir.join("data")).unwrap();
            cold(&file);
            let mut page = [0u8; PAGE];
            // A file that a busy agent did not find while it was read first is met when it is read again.
            for at in (0..PAGES).chain(0..PAGES) {
                file.read_exact_at(&mut page, (at * PAGE) as u64).unwrap();
                assert_eq!(u64::from_ne_bytes(page[..8].try_into().unwrap()), word(7, at));
                if at == PAGES - 1 {
                    thread::sleep(Duration::from_millis(300));
                }
            }
        }
        _ => stress(&dir),
    }
}

fn word(file: usize, page: usize) -> u64 {
    (file * 1_000_003 + page * 7919 + 1) as u64
}

fn make(path: &Path, id: usize) {
    let words = (0..PAGES).flat_map(|page| std::iter::repeat_n(word(id, page), PAGE / 8));
    let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    fs::write(path, bytes).unwrap();
    cold(&File::open(path).unwrap());
}

fn cold(file: &File) {
    file.sync_all().unwrap();
    // SAFETY: advice touches no memory.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// All of a file in memory.
struct Map(*mut u8);

impl Map {
    fn of(file: &File, prot: i32, flags: i32) -> Self {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), PAGES * PAGE, prot, flags, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    fn at(&self, page: usize) -> *mut u64 {
        self.0.wrapping_add(page * PAGE).cast()
    }

    fn check(&self, id: usize, page: usize) {
        // SAFETY: inside the mapping, of a file that is long enough there.
        assert_eq!(unsafe { self.at(page).read_volatile() }, word(id, page), "file {id} page {page}");
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { libc::munmap(self.0.cast(), PAGES * PAGE) };
    }
}

fn stress(dir: &Path) {
    let seconds = std::env::var("BOWWAVE_STRESS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4);
    let until = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for id in 0..6 {
            scope.spawn(move || stress_one(dir, id, until));
        }
    });
    let open = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open < 32, "{open} descriptors are open");
}

/// One thread: maps, cuts, moves, forks, writes, truncates, advises; and checks what it reads.
fn stress_one(dir: &Path, id: usize, until: Instant) {
    let (path, other) = (dir.join(format!("s{id}")), dir.join(format!("x{id}")));
    make(&path, id);
    let mut x = id as u64 * 77 + 1;
    let mut chance = move |below: usize| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x % below as u64) as usize
    };
    while Instant::now() < until {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let way = [libc::MAP_SHARED, libc::MAP_PRIVATE][chance(2)];
        let mut map = Map::of(&file, libc::PROT_READ | libc::PROT_WRITE, way);
        let mut file = (chance(2) == 0).then_some(file);
        // SAFETY: every call concerns this thread's own mapping, inside its length.
        unsafe {
            match chance(9) {
                0 => (0..PAGES).for_each(|page| map.check(id, page)),
                1 => (0..200).for_each(|_| map.check(id, chance(PAGES))),
                2 => {
                    let cut = chance(PAGES - 64);
                    libc::munmap(map.at(cut).cast(), 64 * PAGE);
                    let left = (0..PAGES).filter(|page| !(cut..cut + 64).contains(page));
                    left.step_by(3).for_each(|page| map.check(id, page));
                }
                3 => {
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    let to = libc::mmap(ptr::null_mut(), PAGES * PAGE, libc::PROT_NONE, flags, -1, 0);
                    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                    let at = libc::mremap(map.0.cast(), PAGES * PAGE, PAGES * PAGE, flags, to);
                    assert_eq!(at, to);
                    map.0 = at.cast();
                    (0..PAGES).step_by(7).for_each(|page| map.check(id, page));
                }
                4 => {
                    let prot = libc::PROT_READ | libc::PROT_WRITE;
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                    libc::mmap(map.at(128).cast(), 128 * PAGE, prot, flags, -1, 0);
                    (128..256).for_each(|page| assert_eq!(map.at(page).read_volatile(), 0));
                    (0..128).chain(256..PAGES).for_each(|page| map.check(id, page));
                }
                5 => {
                    let child = libc::fork();
                    if child == 0 {
                        // No assertion in the child of a process with threads: it says so by how it ends.
                        let wrong =
                            (0..PAGES).step_by(5).any(|page| map.at(page).read_volatile() != word(id, page));
                        libc::_exit(i32::from(wrong));
                    }
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &mut status, 0), child);
                    assert_eq!(status, 0, "the child saw wrong bytes, or died");
                }
                6 => {
                    let all =
                        [libc::MADV_NORMAL, libc::MADV_RANDOM, libc::MADV_SEQUENTIAL, libc::MADV_WILLNEED];
                    libc::madvise(map.0.cast(), PAGES * PAGE, all[chance(4)]);
                    (0..PAGES).rev().for_each(|page| map.check(id, page));
                }
                7 => {
                    make(&other, id + 500);
                    let file = OpenOptions::new().read(true).write(true).open(&other).unwrap();
                    let shorter = Map::of(&file, libc::PROT_READ, libc::MAP_SHARED);
                    (0..PAGES / 2).for_each(|page| shorter.check(id + 500, page));
                    file.set_len((PAGES / 2 * PAGE) as u64).unwrap();
                    fs::remove_file(&other).unwrap();
                    (0..PAGES / 2).step_by(9).for_each(|page| shorter.check(id + 500, page));
                    file.set_len((PAGES * PAGE) as u64).unwrap();
                    (PAGES / 2..PAGES)
                        .step_by(9)
                        .for_each(|page| assert_eq!(shorter.at(page).read_volatile(), 0));
                }
                _ => {
                    (0..PAGES).step_by(2).for_each(|page| map.at(page).write_volatile(word(id, page)));
                    libc::mlock(map.0.cast(), 16 * PAGE);
                    libc::madvise(map.at(64).cast(), 64 * PAGE, libc::MADV_POPULATE_READ);
                    (0..PAGES).for_each(|page| map.check(id, page));
                    libc::munlock(map.0.cast(), 16 * PAGE);
                }
            }
        }
        if let Some(file) = file.take() {
            cold(&file);
        }
    }
}
