use super::*;
use crate::{Error, FileReads, FileStorage, Storage, Until};
use bowwave_fuzz::Chance;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Memory as the frames of a cache are.
#[repr(C, align(4096))]
struct Frames([u8; 64 << 10]);

fn frames() -> Box<Frames> {
    Box::new(Frames([0xEE; 64 << 10]))
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect()
}

/// A file on the disk, of which the kernel's cache has nothing.
fn cold(path: &Path, bytes: &[u8]) -> FileStorage {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
    forget(&file);
    FileStorage::open(path).unwrap()
}

/// The kernel's cache has nothing of a file afterwards.
fn forget(file: &File) {
    // SAFETY: advice on a descriptor of ours.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn until() -> Until {
    Until::after(Duration::from_secs(9))
}

fn read(storage: &FileStorage, offset: usize, into: &mut [u8]) -> Result<(), Error> {
    storage.read_at(offset as u64, &mut [IoSliceMut::new(into)], &until())
}

fn past_the_cache(storage: FileStorage) -> Option<FileStorage> {
    direct(Path::new(&*storage.meta().name)).map(|_| storage.not_kept())
}

/// The way past the cache, or why a test has to be left out.
fn direct(path: &Path) -> Option<Direct> {
    let file = File::open(path).unwrap();
    let direct =
        cached_pages(&file, 0, 1).ok().and_then(|_| Direct::of(&file, file.metadata().unwrap().len()));
    if direct.is_none() {
        println!(
            "skipped: no reads past the cache here: the file system has none, or the kernel is older than 6.5"
        );
    }
    direct
}

#[test]
fn a_tail_comes_in_the_same_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd");
    let (truth, mut frames) = (bytes(10_000), frames());
    let Some(storage) = past_the_cache(cold(&path, &truth)) else { return };
    read(&storage, 0, &mut frames.0[..10_000]).unwrap();
    assert_eq!(&frames.0[..10_000], truth);
    assert!(frames.0[10_000..].iter().all(|byte| *byte == 0xEE), "what is not the file's stays as it is");
    assert_eq!(storage.reads(), FileReads { direct: 1, cached: 0 });
    assert_eq!(cached_pages(&File::open(&path).unwrap(), 0, 10_000).unwrap(), 0);
}

#[test]
fn what_comes_back_goes_through_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("again");
    let (truth, mut frames) = (bytes(64 << 10), frames());
    let Some(storage) = past_the_cache(cold(&path, &truth)) else { return };
    for (offset, reads) in [(0, (1, 0)), (16 << 10, (2, 0)), (4096, (2, 1)), (4096, (2, 2))] {
        read(&storage, offset, &mut frames.0[..16 << 10]).unwrap();
        let FileReads { direct, cached } = storage.reads();
        assert_eq!((direct, cached), reads, "at {offset}");
        assert_eq!(frames.0[..16 << 10], truth[offset..][..16 << 10]);
    }
}

#[test]
fn both_ways_bring_the_same_bytes() {
    let (dir, memory) = (tempfile::tempdir(), tempfile::tempdir_in("/dev/shm"));
    for dir in [dir, memory].into_iter().flatten() {
        let mut past = 0;
        for len in [1, 511, 512, 4095, 4096, 4097, 40_960, 300_007] {
            let path = dir.path().join(len.to_string());
            let truth = bytes(len);
            drop(cold(&path, &truth));
            let mut chance = Chance::new(len as u64);
            for _ in 0..100 {
                let unit = [1, 512, 4096][chance.below(3) as usize];
                let mut any = |below: usize| (chance.below(below as u64 / unit + 1) * unit) as usize;
                let offset = any(len);
                let to_end = len - offset;
                let count = if any(1) == 0 { to_end.min(60 << 10) } else { any(64 << 10).min(to_end) };
                let (at, cut) = (any((64 << 10) - count), any(count));
                let mut frames = frames();
                let (first, second) = frames.0[at..][..count].split_at_mut(cut);
                let mut slices = [IoSliceMut::new(first), IoSliceMut::new(second)];
                let storage = FileStorage::open(&path).unwrap().not_kept();
                forget(&File::open(&path).unwrap());
                storage.read_at(offset as u64, &mut slices, &until()).unwrap();
                assert_eq!(frames.0[at..][..count], truth[offset..][..count], "{len}: {offset} +{count}");
                past += storage.reads().direct;
            }
        }
        let dir = dir.path().display();
        match past {
            0 => println!("skipped: in {dir} no file is read past the cache"),
            _ => println!("{dir}: {past} of 800 reads went past the cache"),
        }
    }
}

#[test]
fn a_change_is_seen_past_the_cache_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("changing");
    let mut frames = frames();
    let change: [fn(&File); 2] =
        [|file| file.write_all_at(b"new", 40_000).unwrap(), |file| file.set_len(4096).unwrap()];
    for change in change {
        let Some(storage) = past_the_cache(cold(&path, &bytes(60_000))) else { return };
        read(&storage, 0, &mut frames.0[..4096]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        change(&File::options().write(true).open(&path).unwrap());
        let error = read(&storage, 8192, &mut frames.0[..8192]).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        assert_eq!(storage.reads().direct, 2, "it was seen after a read past the cache");
    }
}

#[test]
fn what_is_not_on_the_disk_yet_is_read_past_the_cache_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dirty");
    drop(cold(&path, &bytes(8192)));
    let Some(direct) = direct(&path) else { return };
    File::options().write(true).open(&path).unwrap().write_all_at(&[7; 4096], 4096).unwrap();
    let mut frames = frames();
    assert_eq!(direct.read(0, &mut [IoSliceMut::new(&mut frames.0[..8192])]).unwrap(), 8192);
    assert_eq!((&frames.0[..4096], &frames.0[4096..8192]), (&bytes(4096)[..], &[7; 4096][..]));
}

#[test]
fn who_is_refused_once_does_not_ask_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("refused");
    drop(cold(&path, &bytes(8192)));
    let Some(mut direct) = direct(&path) else { return };
    // As if the system had named an alignment that is not true.
    direct.alignment = Alignment { memory: 1, block: 1 };
    let (file, mut frames) = (File::open(&path).unwrap(), frames());
    assert!(direct.read_some(&file, 1, &mut [IoSliceMut::new(&mut frames.0[..100])]).is_none());
    assert!(direct.refused.load(Ordering::Relaxed));
    assert!(direct.read_some(&file, 0, &mut [IoSliceMut::new(&mut frames.0[..4096])]).is_none());
}

#[test]
fn only_what_the_kernel_cannot_keep_goes_past_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("holes");
    let storage = cold(&path, b"small");
    read(&storage, 0, &mut [0; 5]).unwrap();
    assert_eq!(storage.reads(), FileReads { direct: 0, cached: 1 });
    if let Err(error) = File::options().write(true).open(&path).unwrap().set_len(1 << 40) {
        return println!("skipped: no file of 1 TiB with holes here: {error}");
    }
    let (storage, mut frames) = (FileStorage::open(&path).unwrap(), frames());
    let Some(_) = direct(&path) else { return };
    read(&storage, 1 << 39, &mut frames.0).unwrap();
    assert_eq!((storage.reads(), frames.0), (FileReads { direct: 1, cached: 0 }, [0; 64 << 10]));
}
