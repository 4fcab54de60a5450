//! A store under the running kernel: the bytes, the counts, the time, and that nothing is left mounted.
//!
//! Needs root and /dev/fuse; says so and passes without.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use bowwave_fuse::{FileStats, MountError, Options, SlowStore, Stats, content};
use tempfile::TempDir;

const FAST: &str = "lat=100us,bw=4GB/s,slots=64";

fn options(dir: &Path, model: &str) -> Options {
    Options {
        source: None,
        dir: dir.into(),
        model: model.parse().unwrap(),
        read_ahead_kb: None,
        log: None,
        metadata: false,
        round_trip: Duration::ZERO,
    }
}

/// Mounts, or says why this machine cannot.
fn mount(options: &Options) -> Option<SlowStore> {
    match SlowStore::mount(options) {
        Ok(store) => Some(store),
        Err(why @ (MountError::NoFuse(_) | MountError::NotPermitted(_))) => {
            println!("skipped: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn stats(dir: &Path) -> Stats {
    serde_json::from_slice(&fs::read(dir.join(".bowwave/stats")).unwrap()).unwrap()
}

fn reset(dir: &Path) {
    assert_eq!(fs::read(dir.join(".bowwave/reset")).unwrap(), b"ok\n");
}

fn drop_pages(file: &File) {
    // SAFETY: plain system call on an open file.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

#[test]
fn generated_files_are_right_and_counted() {
    let (dir, aside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let log = aside.path().join("log");
    let options = Options { log: Some(log.clone()), read_ahead_kb: Some(512), ..options(dir.path(), FAST) };
    let Some(mut store) = mount(&options) else { return };

    // A whole file, whose size is neither whole pages nor whole words.
    let name = "gen/whole-3000003";
    let id = content::file_id(name);
    let mut file = File::open(dir.path().join(name)).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!((bytes.len(), content::first_wrong(id, 0, &bytes)), (3_000_003, None));
    let once = stats(dir.path());
    assert_eq!((once.bytes, once.unique_bytes, once.resent_bytes), (3_000_003, 3_000_003, 0));
    assert!(once.sizes.keys().all(|size| *size <= 512 << 10), "{:?}", once.sizes);

    // Again from the device: every byte is sent a second time.
    drop_pages(&file);
    let mut again = vec![0; 3_000_003];
    file.read_exact_at(&mut again, 0).unwrap();
    assert_eq!(bytes, again);
    let twice = stats(dir.path());
    assert_eq!((twice.unique_bytes, twice.resent_bytes), (3_000_003, 3_000_003));

    drop(file);
    reset(dir.path());
    assert_eq!(stats(dir.path()), Stats::default());

    // Far into a big file, at an odd place.
    let file = File::open(dir.path().join("big/255")).unwrap();
    let mut piece = [0; 10_001];
    let offset = (15 << 30) + 4093;
    file.read_exact_at(&mut piece, offset).unwrap();
    assert_eq!(content::first_wrong(content::file_id("big/255"), offset, &piece), None);
    let files: Vec<FileStats> =
        serde_json::from_slice(&fs::read(dir.path().join(".bowwave/files")).unwrap()).unwrap();
    assert_eq!((files.len(), files[0].path.as_str(), files[0].size), (1, "big/255", 16 << 30));

    // The log begins with the reset, and has a line for each request since.
    let requests = stats(dir.path()).requests as usize;
    let lines = fs::read_to_string(&log).unwrap();
    assert_eq!(lines.lines().count(), requests);
    let fields: Vec<_> = lines.lines().next().unwrap().split('\t').collect();
    assert_eq!((fields.len(), fields[2]), (5, "big/255"));
    let micros = |field: usize| fields[field].parse::<u64>().unwrap();
    assert!(micros(1) >= micros(0) + 100);

    // Hidden, but there.
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(fs::read_to_string(dir.path().join(".bowwave/model")).unwrap().contains("\"slots\": 64"));

    // Busy while a file is open; gone when it is closed.
    assert_eq!(store.unmount().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    drop(file);
    // The kernel lets go of a file a moment after it is closed.
    let closed = Instant::now();
    while let Err(error) = store.unmount() {
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert!(closed.elapsed() < Duration::from_secs(2), "still busy");
    }
    assert_eq!(store.stats().requests as usize, requests, "the counts outlive the mount");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_is_served_as_it_is() {
    let (source, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let bytes: Vec<u8> =
        (0..1_234_567u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::create_dir(source.path().join("sub folder")).unwrap();
    fs::write(source.path().join("sub folder/data"), &bytes).unwrap();
    std::os::unix::fs::symlink("sub folder/data", source.path().join("link")).unwrap();
    let options = Options { source: Some(source.path().into()), ..options(dir.path(), "hdd") };
    let Some(_store) = mount(&options) else { return };

    assert_eq!(fs::read(dir.path().join("link")).unwrap(), bytes);
    assert_eq!(fs::read_link(dir.path().join("link")).unwrap(), Path::new("sub folder/data"));
    assert_eq!(stats(dir.path()).unique_bytes, bytes.len() as u64);
    let write = File::options().write(true).open(dir.path().join("link")).unwrap_err();
    assert_eq!(write.raw_os_error(), Some(libc::EROFS));
    assert_eq!(fs::read(dir.path().join("nothing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    fs::write(source.path().join("late"), b"made after the mount").unwrap();
    assert_eq!(fs::read(dir.path().join("late")).unwrap(), b"made after the mount");
}

/// Written again, longer and shorter; replaced; removed.
#[test]
fn what_is_opened_anew_is_the_file_as_it_is_now() {
    let (dir, source) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (real, shown) = (source.path().join("file"), dir.path().join("file"));
    fs::write(&real, [1; 10_000]).unwrap();
    let Some(_store) = mount(&Options { source: Some(source.path().into()), ..options(dir.path(), FAST) })
    else {
        return;
    };
    assert!(fs::read(&shown).unwrap() == [1; 10_000]);
    for (round, len) in [(2, 20_000), (3, 5_000), (4, 20_000)] {
        fs::write(&real, vec![round; len]).unwrap();
        assert!(fs::read(&shown).unwrap() == vec![round; len], "round {round}");
        assert_eq!(fs::metadata(&shown).unwrap().len(), len as u64);
    }
    let open = File::open(&shown).unwrap();
    fs::write(source.path().join("new"), [5; 30_000]).unwrap();
    fs::rename(source.path().join("new"), &real).unwrap();
    assert!(fs::read(&shown).unwrap() == [5; 30_000]);
    let mut before = [0; 20_000];
    open.read_exact_at(&mut before, 0).unwrap();
    assert!(before == [4; 20_000], "who has it open has what he opened");
    fs::remove_file(&real).unwrap();
    assert!(File::open(&shown).is_err());
}

#[test]
fn reads_take_the_time_of_the_model() {
    let dir = TempDir::new().unwrap();
    let Some(_store) = mount(&options(dir.path(), "lat=20ms,bw=1GB/s,slots=8")) else { return };
    let start = Instant::now();
    let file = File::open(dir.path().join("big/001")).unwrap();
    assert!(start.elapsed() < Duration::from_millis(55), "two lookups and an open cost nothing, not 60 ms");
    // SAFETY: plain system call on an open file.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    let start = Instant::now();
    for n in 0..5 {
        file.read_exact_at(&mut [0; 4096], n << 30).unwrap();
    }
    // Never early; late only by what a busy machine adds.
    let took = start.elapsed();
    assert!((100..400).contains(&took.as_millis()), "five reads of 20 ms took {took:?}");

    // Eight at once take the time of one.
    let start = Instant::now();
    std::thread::scope(|scope| {
        for n in 8..16 {
            scope.spawn({
                let file = &file;
                move || file.read_exact_at(&mut [0; 4096], n << 30).unwrap()
            });
        }
    });
    let took = start.elapsed();
    assert!((20..140).contains(&took.as_millis()), "eight reads at once took {took:?}");
}

#[test]
fn metadata_costs_a_latency_if_asked_to() {
    let dir = TempDir::new().unwrap();
    let options = Options { metadata: true, ..options(dir.path(), "lat=20ms,bw=1GB/s") };
    let Some(_store) = mount(&options) else { return };
    let start = Instant::now();
    File::open(dir.path().join("small/000")).unwrap();
    let took = start.elapsed();
    assert!((60..400).contains(&took.as_millis()), "two lookups and an open took {took:?}");
    let start = Instant::now();
    stats(dir.path());
    assert!(start.elapsed() < Duration::from_millis(55), "control files cost nothing");
}

#[test]
fn a_mount_point_that_does_not_do_is_refused() {
    let dir = TempDir::new().unwrap();
    let missing = options(&dir.path().join("missing"), FAST);
    assert!(matches!(SlowStore::mount(&missing), Err(MountError::MountPoint(..))));
    let inside = Options { source: Some(dir.path().into()), ..options(dir.path(), FAST) };
    match SlowStore::mount(&inside) {
        Err(MountError::NoFuse(_) | MountError::NotPermitted(_)) => println!("skipped: no FUSE for us here"),
        Err(MountError::MountPoint(_, why)) => assert!(why.contains("contain"), "{why}"),
        _ => panic!("a store that serves itself would wait for itself"),
    }
}
