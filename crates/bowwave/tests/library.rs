//! What a program sees of the library: bytes, ends of files, errors, memory, and that nothing is lost on the way.

mod common;

use bowwave::{Advice, Bytes, Cache, Error, MemoryStorage, Storage};
use bowwave_io::{FileStorage, SlowDevice, SlowStorage};
use common::{Content, Faults, Faulty};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

fn cache(mib: u64) -> Cache {
    Cache::builder().memory(Bytes(mib << 20)).timeout(Duration::from_secs(5)).build().unwrap()
}

#[test]
fn a_read_is_short_at_the_end_only() {
    let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
    let cache = cache(1);
    let file = cache.open(MemoryStorage::new("ten thousand", bytes.clone())).unwrap();
    let mut buf = [0; 4096];
    assert_eq!(file.read_at(&mut buf, 8000).unwrap(), 2000);
    assert_eq!(buf[..2000], bytes[8000..]);
    assert_eq!(file.read_at(&mut buf, 10_000).unwrap(), 0);
    assert_eq!(file.read_at(&mut buf, u64::MAX).unwrap(), 0);
    assert_eq!(file.read_at(&mut [], 5).unwrap(), 0);
    assert_eq!(file.read_at(&mut buf, 4000).unwrap(), 4096);
    assert_eq!(buf[..], bytes[4000..8096]);
    cache.check();
}

#[test]
fn a_file_reads_as_std_io_does() {
    let content = Content::new(3, 3_000_001);
    let file = cache(8).open(content.clone()).unwrap();
    let mut cursor = file.cursor();
    let mut all = Vec::new();
    cursor.read_to_end(&mut all).unwrap();
    assert!(content.holds(0, &all) && all.len() == 3_000_001);
    assert_eq!(cursor.seek(SeekFrom::End(-5)).unwrap(), 2_999_996);
    all.clear();
    assert_eq!(cursor.read_to_end(&mut all).unwrap(), 5);
    assert!(content.holds(2_999_996, &all));
    assert!(cursor.seek(SeekFrom::Current(-4_000_000)).is_err());
}

#[test]
fn an_empty_file_is_empty() {
    let cache = cache(1);
    let file = cache.open(MemoryStorage::new("empty", [])).unwrap();
    assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 0);
    assert!(file.read_at_bytes(0, 10).unwrap().is_empty() && file.is_empty());
    file.will_read(&[0..10, 5..5]);
    cache.check();
}

#[test]
fn a_view_is_the_caches_own_bytes_and_keeps_them() {
    let content = Content::new(1, 64 << 20);
    let cache = cache(4);
    let file = cache.open(content.clone()).unwrap();
    let view = file.read_at_bytes(5000, 295_000).unwrap();
    assert!(view.is_view());
    let kept = view.to_vec();
    assert!(content.holds(5000, &kept));
    // All of the cache passes by, many times over.
    let mut buf = vec![0; 1 << 20];
    for at in (0..64).map(|i| i << 20) {
        file.read_at(&mut buf, at).unwrap();
        assert!(content.holds(at, &buf));
    }
    assert!(view == kept[..], "a page that is held is not taken");
    drop(file);
    assert!(view == kept[..], "a view outlives the file's handle");
    drop(view);
    cache.check();
    let stats = cache.stats();
    assert_eq!(
        (stats.files, stats.memory_bytes - stats.metadata_bytes),
        (0, 0),
        "what is closed is given back"
    );
}

#[test]
fn a_read_larger_than_the_cache_passes_through() {
    let content = Content::new(2, 40 << 20);
    let cache = cache(2);
    let file = cache.open(content.clone()).unwrap();
    let mut all = vec![0; 40 << 20];
    assert_eq!(file.read_at(&mut all, 0).unwrap(), 40 << 20);
    assert!(content.holds(0, &all));
    let bytes = file.read_at_bytes(1, 39 << 20).unwrap();
    assert!(!bytes.is_view() && content.holds(1, bytes.contiguous().unwrap()));
    cache.check();
}

#[test]
fn where_everything_is_held_reads_still_progress() {
    let content = Content::new(4, 64 << 20);
    let cache = cache(2);
    let file = cache.open(content.clone()).unwrap();
    let views: Vec<_> = (0..600).map(|i| (i << 16, file.read_at_bytes(i << 16, 50_000).unwrap())).collect();
    let mut buf = [0; 10_000];
    for at in (0..600).map(|i| 5_000_000 + i * 77_777) {
        file.read_at(&mut buf, at).unwrap();
        assert!(content.holds(at, &buf));
    }
    for (at, view) in &views {
        assert!(content.holds(*at, &view.to_vec()));
    }
    assert!(views.iter().any(|(_, view)| view.is_view()) && views.iter().any(|(_, view)| !view.is_view()));
    drop(views);
    cache.check();
}

#[test]
fn an_object_that_changed_fails_for_good() {
    let content = Content::new(5, 8 << 20);
    let faulty = Faulty::new(content.clone(), Faults::default(), 1);
    let cache = cache(4);
    let file = cache.open(Arc::clone(&faulty)).unwrap();
    let mut buf = [0; 8192];
    file.read_at(&mut buf, 0).unwrap();
    faulty.change();
    assert!(matches!(file.read_at(&mut buf, 4 << 20), Err(Error::Changed { .. })));
    faulty.change_back();
    assert!(matches!(file.read_at(&mut buf, 5 << 20), Err(Error::Changed { .. })), "it is never a mix");
    file.read_at(&mut buf, 0).unwrap();
    assert!(content.holds(0, &buf), "what was cached is of the version that was opened");
    let error = file.read_at_bytes(6 << 20, 100).unwrap_err();
    assert_eq!(error.to_string(), "content: changed while it was read; open it again");
    cache.check();
}

#[test]
fn a_storage_that_panics_loses_no_frame() {
    let content = Content::new(6, 8 << 20);
    let faulty = Faulty::new(content.clone(), Faults { panic_percent: 50, ..Faults::default() }, 7);
    let cache = cache(2);
    let file = cache.open(Arc::clone(&faulty)).unwrap();
    let (mut failed, mut buf) = (0, [0; 5000]);
    for i in 0..300 {
        let at = i * 25_000 % (8 << 20);
        match file.read_at(&mut buf, at) {
            Ok(n) => assert!(content.holds(at, &buf[..n])),
            Err(error) => {
                failed += 1;
                assert!(error.to_string().starts_with("content: the storage panicked"), "{error}");
            }
        }
    }
    assert!(failed > 10);
    faulty.settle();
    common::wait_until(|| cache.stats().in_flight_bytes == 0);
    cache.check();
    file.read_at(&mut buf, 77).unwrap();
    assert!(content.holds(77, &buf));
}

#[test]
fn errors_that_pass_are_not_seen_and_others_are() {
    let content = Content::new(8, 8 << 20);
    // The engine tries six times: with more in a row than four an error does not pass.
    let faults = Faults { error_percent: 20, errors_in_a_row_max: 4, ..Faults::default() };
    let faulty = Faulty::new(content.clone(), faults, 3);
    let cache = cache(4);
    let file = cache.open(Arc::clone(&faulty)).unwrap();
    let mut buf = [0; 70_000];
    for at in (0..100).map(|i| i * 80_000) {
        let n = file.read_at(&mut buf, at).unwrap();
        assert!(content.holds(at, &buf[..n]));
    }
    drop(file);
    let missing = Faulty::new(content, Faults { missing: true, ..Faults::default() }, 3);
    let file = cache.open(missing).unwrap();
    assert!(matches!(file.read_at(&mut buf, 0), Err(Error::NotFound { .. })));
    cache.check();
}

#[test]
fn advice_and_announcements_are_obeyed() {
    let content = Content::new(9, 8 << 20);
    let counted = Faulty::new(content.clone(), Faults::default(), 3);
    let cache = cache(4);
    let file = cache.open(Arc::clone(&counted)).unwrap();
    let ranges = [1 << 20..(1 << 20) + 100_000, 4 << 20..(4 << 20) + 5];
    file.will_read(&ranges);
    common::wait_until(|| file.stats().cached_bytes >= 26 * 4096 && cache.stats().in_flight_bytes == 0);
    let asked = counted.bytes();
    let mut buf = [0; 100_000];
    file.read_at(&mut buf, 1 << 20).unwrap();
    assert!(content.holds(1 << 20, &buf));
    file.read_at(&mut buf[..5], 4 << 20).unwrap();
    assert!(content.holds(4 << 20, &buf[..5]));
    assert_eq!((asked, counted.bytes()), (26 * 4096, 26 * 4096), "exactly, and once");
    assert!(file.explain().iter().any(|explained| explained.decision.why.0.starts_with("R15")));
    file.advise(Advice::DontNeed);
    assert_eq!(file.stats().cached_bytes, 0);
    cache.check();
}

#[test]
fn a_hung_storage_is_waited_for_no_longer_than_was_said() {
    let content = Content::new(10, 1 << 20);
    let faulty = Faulty::new(content, Faults { hang: true, ..Faults::default() }, 3);
    let cache = Cache::builder().memory(Bytes(2 << 20)).timeout(Duration::from_millis(300)).build().unwrap();
    let file = cache.open(Arc::clone(&faulty)).unwrap();
    let begun = std::time::Instant::now();
    let error = file.read_at(&mut [0; 10], 0).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3));
    faulty.settle();
    drop(file);
    common::wait_until(|| cache.stats().in_flight_bytes == 0);
    cache.check();
}

#[test]
fn a_store_that_hangs_takes_a_quarter_of_the_threads() {
    let hung = Faulty::new(Content::new(12, 8 << 20), Faults { hang: true, ..Faults::default() }, 3);
    let timeout = Duration::from_millis(200);
    let cache = Cache::builder().memory(Bytes(2 << 20)).timeout(timeout).build().unwrap();
    let file = cache.open(Arc::clone(&hung)).unwrap();
    // Eight threads, so two may hang; which of the reads finds out is a matter of time.
    let told = (0..20).find_map(|i| {
        let error = file.read_at(&mut [0; 10], i << 18).unwrap_err();
        error.to_string().contains("reads hang there").then(|| error.to_string())
    });
    assert!(told.as_ref().is_some_and(|told| told.starts_with("content: ")), "{told:?}");
    let other = cache.open(MemoryStorage::new("another endpoint", vec![7; 1 << 20])).unwrap();
    let mut buf = [0; 5000];
    for at in (0..100).map(|i| i * 10_000) {
        assert_eq!(other.read_at(&mut buf, at).unwrap(), 5000);
    }
    hung.settle();
    common::wait_until(|| file.read_at(&mut [0; 10], 5 << 20).is_ok());
    drop((file, other));
    common::wait_until(|| cache.stats().in_flight_bytes == 0);
    cache.check();
}

#[test]
fn every_window_is_counted_by_its_pattern() {
    let cache = cache(8);
    let file = cache.open(Content::new(13, 40 << 20)).unwrap();
    let mut buf = [0; 8192];
    let mut before = 0;
    for round in 0..4 {
        for at in (round * (10 << 20)..round * (10 << 20) + (8 << 20)).step_by(8192) {
            file.read_at(&mut buf, at).unwrap();
        }
        let windows = cache.patterns().iter().map(|row| row.windows).sum::<u64>();
        assert_eq!(windows, cache.stats().counters.windows, "none is forgotten");
        assert!(windows > before && cache.patterns().iter().all(|row| row.pages >= row.pages_async));
        before = windows;
    }
}

#[test]
fn the_ceiling_holds() {
    let cache = cache(4);
    let contents: Vec<Content> = (0..40).map(|i| Content::new(i, 16 << 20)).collect();
    let files: Vec<_> = contents.iter().map(|content| cache.open(content.clone()).unwrap()).collect();
    let mut buf = [0; 30_000];
    let mut random = common::Random::new(5);
    for _ in 0..4000 {
        let i = random.below(40) as usize;
        let at = random.below(16 << 20);
        let n = files[i].read_at(&mut buf, at).unwrap();
        assert!(contents[i].holds(at, &buf[..n]));
        let stats = cache.stats();
        assert!(stats.memory_bytes <= stats.memory_bytes_max, "{stats:?}");
    }
    cache.check();
}

#[test]
fn what_a_reader_still_comes_for_outlives_what_was_read() {
    // A reader of a page at a time beside one of 64: all of the 8 MiB passes through memory while he reads 30 pages.
    let contents = [Content::new(14, 8 << 20), Content::new(15, 512 << 20)];
    let cache = cache(8);
    let files = contents.clone().map(|content| cache.open(content).unwrap());
    let mut buf = vec![0; 256 << 10];
    for turn in 0..2000u64 {
        for (file, content, len) in [(&files[0], &contents[0], 4096), (&files[1], &contents[1], 256 << 10)] {
            let at = turn * len;
            file.read_at(&mut buf[..len as usize], at).unwrap();
            assert!(content.holds(at, &buf[..len as usize]));
        }
    }
    let stats = cache.stats();
    // None where nobody else computes; the reader's thread may be stopped anywhere.
    assert!(100 * stats.counters.windows_thrashed <= stats.counters.windows, "{stats:?}");
    assert!(stats.fetched_bytes <= 2000 * (260 << 10) * 102 / 100, "{stats:?}");
}

fn _storages_can_be_shared(storage: Arc<dyn Storage>, cache: &Cache) -> Result<bowwave::File, Error> {
    cache.open(storage)
}

#[test]
fn a_reader_who_comes_far_between_two_notes_is_one_stream() {
    // Three seconds: notes of quiet reads are handed over twice a second, a stream's every other second.
    let content = Content::new(11, 120 << 20);
    let cache = cache(16);
    let file = cache.open(content.clone()).unwrap();
    let mut buf = vec![0; 64 << 10];
    for at in (0..120u64 << 20).step_by(64 << 10) {
        file.read_at(&mut buf, at).unwrap();
        assert!(content.holds(at, &buf));
        std::thread::sleep(Duration::from_micros(1500));
    }
    let stats = cache.stats();
    assert!(stats.counters.streams <= 3, "{stats:?}");
    assert!(stats.fetched_bytes <= (120 << 20) * 103 / 100, "{stats:?}");
}

#[test]
fn a_stride_that_is_read_quietly_goes_on() {
    // On a device of 20 ms windows are long and read quietly. Each 16 MiB have a note, and those of half a second are looked at
    // together: they are old news, and no reads out of order.
    let content = Content::new(12, 256 << 20);
    let cache = cache(256);
    let slow = SlowStorage::new(
        content.clone(),
        &SlowDevice::start("lat=20ms,bw=2GB/s,slots=32".parse().unwrap()).unwrap(),
        0,
    );
    let file = cache.open(slow).unwrap();
    let mut buf = vec![0; 8 << 10];
    for at in (0..256u64 << 20).step_by(16 << 10) {
        file.read_at(&mut buf, at).unwrap();
        assert!(content.holds(at, &buf));
        std::thread::sleep(Duration::from_micros(50));
    }
    let stats = cache.stats();
    assert_eq!(stats.counters.streams, 1, "{stats:?}");
}

#[test]
fn a_file_has_a_pebibyte_at_most() {
    let cache = cache(8);
    let longer = Content::new(9, (1 << 50) + 1);
    let error = cache.open(longer).unwrap_err();
    let text = "content: 1125899906842625 bytes long; a file of a cache has 2^50 (1 PiB) at most";
    assert_eq!(error.to_string(), text);
    assert!(matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::FileTooLarge));
    // Nothing is left of it, and one that has exactly so much is read to its last byte, on the way up and on the way down.
    assert_eq!(cache.stats().files, 0);
    let content = Content::new(9, 1 << 50);
    let file = cache.open(content.clone()).unwrap();
    let mut buf = vec![0; 10_000];
    let all_from = (1u64 << 50) - (8 << 20);
    let starts: Vec<u64> = (all_from..1 << 50).step_by(buf.len()).collect();
    for &at in starts.iter().chain(starts.iter().rev()).chain(&[0]) {
        let n = file.read_at(&mut buf, at).unwrap();
        assert_eq!(n as u64, (buf.len() as u64).min((1 << 50) - at));
        assert!(content.holds(at, &buf[..n]), "at {at}");
    }
    cache.check();
}

#[test]
fn frames_suit_what_is_read_past_the_kernels_cache() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large");
    let content = Content::new(9, 1 << 40);
    let mut bytes = vec![0; 4 << 20];
    content.fill(0, &mut bytes);
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&bytes).unwrap();
    // The rest is a hole: more than the kernel could keep of any file.
    if let Err(error) = file.set_len(1 << 40) {
        return println!("skipped: no file of 1 TiB with holes here: {error}");
    }
    file.sync_all().unwrap();
    // SAFETY: advice on a descriptor of ours.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    let storage = Arc::new(FileStorage::open(&path).unwrap());
    let cache = cache(8);
    let file = cache.open(Arc::clone(&storage)).unwrap();
    let mut buf = vec![0; 10_000];
    for at in (0..400).map(|i| i * 10_000) {
        file.read_at(&mut buf, at).unwrap();
        assert!(content.holds(at, &buf), "at {at}");
    }
    cache.check();
    let reads = storage.reads();
    println!("{reads:?}");
    if reads.direct == 0 {
        return println!("skipped: no file is read past the kernel's cache here");
    }
    assert_eq!(reads.cached, 0, "no page is read twice, and every request lies on blocks");
}
