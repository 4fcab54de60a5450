//! A source through our page cache, as programs see it: bytes, names, changes, faults, and the end of a mount.

mod common;

use bowwave::Bytes;
use bowwave_fuse::{CachedMount, CachedOptions, CachedSource, MountError};
use bowwave_io::{Attr, DirTree, Error, Faults, Listing, Meta, Storage, Tree, TreePath, Until};
use common::FaultyTree;
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn possible() -> bool {
    // SAFETY: it cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let possible = root && Path::new("/dev/fuse").exists();
    if !possible {
        println!("skipped: tests of mounts need root and /dev/fuse");
    }
    possible
}

struct Place {
    mount: Option<CachedMount>,
    dir: tempfile::TempDir,
}

impl Place {
    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }
    fn mounted(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    fn new() -> Self {
        let place = Self { mount: None, dir: tempfile::tempdir().unwrap() };
        fs::create_dir(place.source()).unwrap();
        fs::create_dir(place.mounted()).unwrap();
        place
    }

    fn mount(&mut self, tree: Arc<dyn Tree>, memory: Bytes, staleness: Duration) -> Result<(), MountError> {
        let options = CachedOptions {
            source: CachedSource::Tree(tree),
            dir: self.mounted(),
            memory,
            staleness,
            kernel_cache: true,
            read_ahead_kb: None,
            metrics: Some(([127, 0, 0, 1], 0).into()),
        };
        self.mount = Some(CachedMount::mount(options)?);
        Ok(())
    }

    fn of_source() -> Self {
        let mut place = Self::new();
        let tree = Arc::new(DirTree::open(place.source()).unwrap());
        place.mount(tree, Bytes(32 << 20), Duration::from_millis(50)).unwrap();
        place
    }

    /// A file of `body` in the source; where the mount shows it.
    fn put(&self, name: &str, body: &[u8]) -> PathBuf {
        fs::write(self.source().join(name), body).unwrap();
        self.mounted().join(name)
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[test]
fn bytes_and_names_are_those_of_the_source() {
    if !possible() {
        return;
    }
    let place = Place::of_source();
    let body = bytes(5 * MIB + 123);
    fs::create_dir(place.source().join("deep")).unwrap();
    fs::write(place.source().join("deep/data"), &body).unwrap();
    fs::write(place.source().join("two\nlines"), b"odd").unwrap();
    fs::write(place.source().join("empty"), b"").unwrap();
    symlink("deep/data", place.source().join("link")).unwrap();
    symlink("../../etc/passwd", place.source().join("deep/out")).unwrap();
    let at = place.mounted();
    let mut names: Vec<_> = fs::read_dir(&at).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["deep", "empty", "link", "two\nlines"]);
    assert!(fs::read(at.join("deep/data")).unwrap() == body);
    assert!(fs::read(at.join("link")).unwrap() == body);
    assert_eq!(fs::read(at.join("two\nlines")).unwrap(), b"odd");
    assert_eq!(fs::read(at.join("empty")).unwrap(), b"");
    assert_eq!(fs::metadata(at.join("deep/data")).unwrap().len(), body.len() as u64);
    let refused = |result: io::Result<Vec<u8>>| result.unwrap_err().raw_os_error();
    assert_eq!(refused(fs::read(at.join("deep/out"))), Some(libc::EACCES));
    assert_eq!(refused(fs::read(at.join("nowhere"))), Some(libc::ENOENT));
    assert_eq!(refused(fs::read(at.join("x".repeat(256)))), Some(libc::ENAMETOOLONG));
    assert_eq!(File::create(at.join("new")).unwrap_err().raw_os_error(), Some(libc::EROFS));
    let stat = fs::read_to_string(at.join(".bowwave/stat")).unwrap();
    assert!(stat.contains("fetched_bytes") && stat.starts_with(place.source().to_str().unwrap()), "{stat}");
    assert!(fs::read_to_string(at.join(".bowwave/explain")).unwrap().contains("deep/data"));
    assert!(!at.join(".bowwave/reset").exists(), "of modelled devices only");
}

#[test]
fn many_threads_and_mappings_read_right() {
    if !possible() {
        return;
    }
    let place = Place::of_source();
    let body = bytes(24 * MIB);
    let path = place.put("data", &body);
    thread::scope(|scope| {
        for n in 0..16_u64 {
            let (path, body) = (&path, &body);
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                let mut buffer = vec![0; 70_000];
                for i in 0..60_u64 {
                    let at = (n * 1_572_864 + i * (4096 + 37 * n) * 7) % (body.len() as u64 - 70_000);
                    let read = file.read_at(&mut buffer, at).unwrap();
                    assert!(buffer[..read] == body[at as usize..][..read], "{n} at {at}");
                }
            });
        }
    });
    let file = File::open(&path).unwrap();
    // SAFETY: a new private mapping of our own file, read only, as long as the file is, and unmapped before it is closed.
    unsafe {
        for flags in [libc::MAP_PRIVATE, libc::MAP_SHARED] {
            let map =
                libc::mmap(std::ptr::null_mut(), body.len(), libc::PROT_READ, flags, file.as_raw_fd(), 0);
            assert_ne!(map, libc::MAP_FAILED, "{}", io::Error::last_os_error());
            let mapped = std::slice::from_raw_parts(map.cast::<u8>(), body.len());
            assert!(mapped == &body[..]);
            libc::munmap(map, body.len());
        }
    }
}

#[test]
fn who_goes_backwards_finds_the_next_pages_in_the_kernels_cache() {
    if !possible() {
        return;
    }
    let place = Place::of_source();
    let body = bytes(8 * MIB);
    let path = place.put("data", &body);
    let figure = |name: &str| -> u64 {
        let stats = fs::read_to_string(place.mounted().join(".bowwave/stats")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        stats[name].as_u64().unwrap()
    };
    let backwards = |file: &File, part: std::ops::Range<usize>| {
        let mut page = [0; 4096];
        for at in part.step_by(4096).rev() {
            file.read_exact_at(&mut page, at as u64).unwrap();
            assert!(page == body[at..at + 4096], "at {at}");
        }
    };
    // How much of it is here when it is asked for depends on the machine, so all of it is read before, and the kernel forgets it.
    let file = File::open(&path).unwrap();
    assert!(fs::read(&path).unwrap() == body);
    // SAFETY: it only tells the kernel something about an open descriptor.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    let before = (figure("reads"), figure("pushed_bytes"));
    backwards(&file, 0..body.len());
    let (reads, pushed) = (figure("reads") - before.0, figure("pushed_bytes") - before.1);
    println!("{reads} requests for 2048 pages, {pushed} bytes were pushed");
    assert!(
        reads <= 64 + 16 && pushed >= 7 << 20,
        "{reads} requests for 2048 pages, {pushed} bytes were pushed"
    );
    // Several on one part of one inode that nobody has read: what one of them is given, others wait for.
    let path = place.put("other", &body);
    thread::scope(|scope| {
        for n in 0..8 {
            let (path, backwards) = (&path, &backwards);
            scope.spawn(move || {
                let from = (2 << 20) + n * (64 << 10);
                backwards(&File::open(path).unwrap(), from..from + (4 << 20));
            });
        }
    });
}

#[test]
fn a_changed_object_is_stale_and_new_when_opened_again() {
    if !possible() {
        return;
    }
    let place = Place::of_source();
    let file = File::open(place.put("data", &bytes(20 * MIB))).unwrap();
    let mut buffer = [0; 4096];
    file.read_exact_at(&mut buffer, 0).unwrap();
    thread::sleep(Duration::from_millis(30));
    let mut changed = File::options().write(true).open(place.source().join("data")).unwrap();
    changed.write_all(&[7; 4096]).unwrap();
    let error = file.read_exact_at(&mut buffer, 15 << 20).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
    thread::sleep(Duration::from_millis(60));
    assert_eq!(fs::read(place.mounted().join("data")).unwrap()[..4096], [7; 4096]);
    // While the old one is open the new one is another inode, and can be mapped in every way.
    let new = File::open(place.mounted().join("data")).unwrap();
    assert_ne!(new.metadata().unwrap().ino(), file.metadata().unwrap().ino());
    for flags in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        // SAFETY: a new mapping of our own file, read only, as long as the file is, and unmapped before it is closed.
        unsafe {
            let map = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, new.as_raw_fd(), 0);
            assert_ne!(map, libc::MAP_FAILED, "{}", io::Error::last_os_error());
            assert_eq!(std::slice::from_raw_parts(map.cast::<u8>(), 4096), [7; 4096]);
            libc::munmap(map, 4096);
        }
    }
    let old = bytes(4096);
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer == old[..], "what was cached of the old one is of the old one");
}

/// Who has a file open reads the version that he opened, or an error: never zeros behind its end, nor less of it, and nobody who maps it dies,
/// whatever others are told of the name.
#[test]
fn who_has_a_file_open_keeps_its_length() {
    if !possible() {
        return;
    }
    let place = Place::of_source();
    let old = vec![b'A'; 200_000];
    let replaced = |name: &str, body: &[u8]| {
        fs::write(place.source().join("new"), body).unwrap();
        fs::rename(place.source().join("new"), place.source().join(name)).unwrap();
    };
    type Change<'a> = (&'a str, usize, &'a dyn Fn(&str));
    let in_place = |name: &str| File::options().append(true).open(place.source().join(name)).unwrap();
    let changes: [Change<'_>; 4] = [
        ("appended", 230_000, &|name| in_place(name).write_all(&[b'A'; 30_000]).unwrap()),
        ("truncated", 100_000, &|name| in_place(name).set_len(100_000).unwrap()),
        ("longer", 250_000, &|name| replaced(name, &[b'B'; 250_000])),
        ("shorter", 150_001, &|name| replaced(name, &[b'B'; 150_001])),
    ];
    for (name, len, change) in changes {
        let path = place.put(name, &old);
        let file = File::open(&path).unwrap();
        let mut buffer = vec![0; 300_000];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), old.len());
        // SAFETY: a mapping of our own file, read only, of pages that it has.
        let mapped = unsafe {
            let map = libc::mmap(
                std::ptr::null_mut(),
                old.len(),
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(map, libc::MAP_FAILED, "{}", io::Error::last_os_error());
            std::slice::from_raw_parts(map.cast::<u8>(), old.len())
        };
        assert!(mapped == old);
        change(name);
        thread::sleep(Duration::from_millis(60));
        // By the descriptor, by the name, by the descriptor again.
        assert_eq!(file.metadata().unwrap().len(), 200_000, "{name}");
        assert_eq!(fs::metadata(&path).unwrap().len() as usize, len, "{name}");
        assert_eq!(file.metadata().unwrap().len(), 200_000, "{name}");
        for at in [0, 199_000] {
            match file.read_at(&mut buffer, at) {
                Ok(read) => assert!(buffer[..read] == old[at as usize..], "{name}: {read} bytes at {at}"),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{name}"),
            }
        }
        assert!(mapped == old, "{name}");
        let new = fs::read(&path).unwrap();
        assert!(new.len() == len && new == fs::read(place.source().join(name)).unwrap(), "{name}");
        // SAFETY: nothing uses the mapping any more.
        unsafe { libc::munmap(mapped.as_ptr() as *mut _, mapped.len()) };
    }
    let file = File::open(place.put("gone", &old)).unwrap();
    fs::remove_file(place.source().join("gone")).unwrap();
    thread::sleep(Duration::from_millis(60));
    assert_eq!(file.metadata().unwrap().len(), 200_000, "as on any file system");
    assert!(fs::metadata(place.mounted().join("gone")).is_err());
}

#[test]
fn faults_of_a_store_make_no_wrong_byte_and_no_hang() {
    if !possible() {
        return;
    }
    let mut place = Place::new();
    let body = bytes(16 * MIB);
    fs::write(place.source().join("data"), &body).unwrap();
    let stall = Duration::from_millis(300);
    let faults = Faults {
        seed: 20261121,
        errors_ppm: 50_000,
        stalls_ppm: 10_000,
        stall,
        short_ppm: 10_000,
        wrong_ppm: 10_000,
        change_at: None,
    };
    let tree = FaultyTree::open(&place.source(), move || faults);
    place.mount(Arc::new(tree), Bytes(4 << 20), Duration::from_secs(5)).unwrap();
    let path = place.mounted().join("data");
    let begun = Instant::now();
    thread::scope(|scope| {
        for n in 0..8_u64 {
            let (path, body) = (&path, &body);
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                let mut buffer = vec![0; 30_000];
                for i in 0..120_u64 {
                    let at = (n * 0x9E37_79B9 + i * 0x85EB_CA6B) % (body.len() as u64 - 30_000);
                    match file.read_at(&mut buffer, at) {
                        Ok(read) => assert!(buffer[..read] == body[at as usize..][..read], "{n} at {at}"),
                        Err(error) => assert_ne!(error.raw_os_error(), Some(libc::ESTALE)),
                    }
                }
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(90), "{:?}", begun.elapsed());
}

#[test]
fn metrics_are_there_for_prometheus() {
    if !possible() {
        return;
    }
    let place = Place::of_source();
    assert_eq!(fs::read(place.put("data", &bytes(MIB))).unwrap().len(), MIB);
    let at = place.mount.as_ref().unwrap().metrics().unwrap();
    assert!(at.ip().is_loopback());
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    assert!(text.contains("bowwave_read_bytes_total{source=") && text.contains("} 1048576"), "{text}");
    assert!(text.contains("# TYPE bowwave_memory_bytes gauge"), "{text}");
}

/// A store may say any length: pages of such a file could be taken for those of another.
#[test]
fn a_file_longer_than_a_cache_can_name_is_not_opened() {
    if !possible() {
        return;
    }
    struct Long(Meta);
    impl Storage for Long {
        fn meta(&self) -> &Meta {
            &self.0
        }
        fn read_at(&self, _: u64, _: &mut [IoSliceMut<'_>], _: &Until) -> Result<(), Error> {
            unreachable!("nothing is opened")
        }
    }
    const LEN: u64 = (1 << 50) + 1;
    struct Store;
    impl Tree for Store {
        fn name(&self) -> &str {
            "store"
        }
        fn list(&self, _: &TreePath, _: &Until) -> Result<Listing, Error> {
            Ok(Listing { left_out: 1, ..Listing::default() })
        }
        fn look_up(&self, path: &TreePath, _: &Until) -> Result<Attr, Error> {
            Ok(if path.is_root() { Attr::folder() } else { Attr::file(LEN, None) })
        }
        fn open(&self, _: &TreePath, _: &Until) -> Result<Arc<dyn Storage>, Error> {
            Ok(Arc::new(Long(Meta { name: "long".into(), len: LEN, version: None, endpoint: 1 })))
        }
        fn read_link(&self, _: &TreePath, _: &Until) -> Result<PathBuf, Error> {
            unreachable!("there is no link")
        }
    }
    let mut place = Place::new();
    place.mount(Arc::new(Store), Bytes(8 << 20), Duration::ZERO).unwrap();
    let at = place.mounted().join("long");
    assert_eq!(fs::metadata(&at).unwrap().len(), LEN);
    assert_eq!(File::open(&at).unwrap_err().raw_os_error(), Some(libc::EOVERFLOW));
}

#[test]
fn a_wrong_source_or_place_is_no_mount() {
    let mut place = Place::new();
    if !possible() {
        return;
    }
    struct Gone;
    impl Tree for Gone {
        fn name(&self) -> &str {
            "gone"
        }
        fn list(&self, _: &TreePath, _: &Until) -> Result<Listing, Error> {
            Err(Error::Denied { object: "gone".into() })
        }
        fn look_up(&self, _: &TreePath, _: &Until) -> Result<Attr, Error> {
            Ok(Attr::folder())
        }
        fn open(&self, _: &TreePath, _: &Until) -> Result<Arc<dyn Storage>, Error> {
            unreachable!("nothing is listed")
        }
        fn read_link(&self, _: &TreePath, _: &Until) -> Result<PathBuf, Error> {
            unreachable!("nothing is listed")
        }
    }
    let error = place.mount(Arc::new(Gone), Bytes(8 << 20), Duration::ZERO).unwrap_err();
    assert_eq!(error.to_string(), "cannot mount gone: permission denied; look at its owner and permissions");
    let tree: Arc<dyn Tree> = Arc::new(DirTree::open(place.source()).unwrap());
    let error = place.mount(tree.clone(), Bytes(4096), Duration::ZERO).unwrap_err().to_string();
    assert!(error.matches("bytes").count() == 1 && error.contains("1 MiB at least"), "{error}");
    place.mount(tree.clone(), Bytes(8 << 20), Duration::ZERO).unwrap();
    let again = place.mount.take();
    let error = place.mount(tree.clone(), Bytes(8 << 20), Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("is mounted there already"), "{error}");
    drop(again);
    fs::remove_dir(place.mounted()).unwrap();
    let error = place.mount(tree, Bytes(8 << 20), Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("make the directory first"), "{error}");
}
