//! Files of a run as the agent holds them: a description of its own for each, and what the page cache has of it.
//!
//! ```text
//!   program: fd 3 of 4711 --> /proc/4711/fd/3 --open--> our own description: own position, own window, own advice
//!                                              `-mmap-> a mapping that is never touched: mincore asks through it
//! ```
//!
//! A description of our own disturbs nobody: advice on it is not the program's. It also keeps the file alive and its file
//! system busy, so it is given up as soon as the program says that it has closed the file or ends, a tenth of a second after one that did so without a
//! word, or when it has left it alone for a second.
//!
//! Worked example: 4 pages of which the kernel holds the first two: `presence([0, 4))` is `1100`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use bowwave_core::{Extent, PAGE_SIZE, PageCount, PageIndex};

use crate::mapping::Mapping;

/// Why a file is not steered. The words are those of the summary.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Refusal {
    /// The descriptor was closed, or bound to another file, before we could look.
    Gone,
    /// Its program cannot be found by the number that it has in its PID namespace.
    Elsewhere,
    NotPermitted,
    NotRegular,
    NoReadahead,
    NotAskedFor,
    TooManyOpen,
    Other,
}

impl Refusal {
    /// As the summary counts it.
    pub(crate) fn kind(self) -> String {
        format!("file | {}", self.words())
    }

    /// In a sentence "12 files ...".
    const fn words(self) -> &'static str {
        match self {
            Self::Gone => "closed before they could be looked at",
            Self::Elsewhere => "of a PID namespace that bowwave cannot see into",
            Self::NotPermitted => "not readable by bowwave",
            Self::NotRegular => "not regular files",
            Self::NoReadahead => "on a file system without readahead",
            Self::NotAskedFor => "excluded by --only or --except",
            Self::TooManyOpen => "beyond the limit of open files",
            Self::Other => "not to be opened",
        }
    }

    /// Whether a later descriptor of the same file may fare better.
    pub(crate) const fn passes(self) -> bool {
        matches!(self, Self::Gone | Self::Elsewhere | Self::TooManyOpen)
    }
}

/// A description of our own of a file.
pub(crate) struct Descriptor {
    fd: Arc<OwnedFd>,
    map: Option<Map>,
    size: u64,
    /// Whether the kernel tells us the truth about what is present.
    trusted: bool,
}

/// No program has a descriptor of this number.
pub(crate) const NO_FD: i32 = -1;

/// Where a program has a file open, and which file that must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub(crate) pid: u32,
    pub(crate) fd: i32,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// An address where the program has it mapped; 0 where it has not.
    pub(crate) mapped: u64,
}

impl Origin {
    fn link(&self) -> String {
        format!("/proc/{}/fd/{}", self.pid, self.fd)
    }

    /// Other ways to a file of which the program has closed the descriptor, but which it has mapped: the mapping itself, for
    /// which one must be privileged, and the name that the kernel prints for it, which may lead to another file by now.
    fn ways_by_mapping(&self) -> Vec<Vec<u8>> {
        let text = if self.mapped == 0 { None } else { fs::read(format!("/proc/{}/maps", self.pid)).ok() };
        let Some(line) = text.as_deref().and_then(|text| mapping_line(text, self.mapped)) else {
            return Vec::new();
        };
        let range = line.split(|&b| b == b' ').next().unwrap_or_default();
        let by_range = [format!("/proc/{}/map_files/", self.pid).as_bytes(), range].concat();
        let path = line.iter().position(|&b| b == b'/').map_or(&[][..], |at| &line[at..]);
        let by_name = [format!("/proc/{}/root", self.pid).as_bytes(), path].concat();
        [by_range, by_name].into_iter().map(|way| [&way[..], b"\0"].concat()).collect()
    }

    /// The file's name, as the kernel prints it.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        fs::read_link(self.link()).ok()
    }

    /// Whether the program still has this file open there.
    pub(crate) fn holds(&self) -> bool {
        let mut path = self.link().into_bytes();
        path.push(0);
        stat(&path).is_ok_and(|s| (s.st_dev, s.st_ino) == (self.dev, self.ino))
    }
}

impl Descriptor {
    /// Opens what `origin` names.
    pub(crate) fn open(origin: &Origin) -> Result<Self, Refusal> {
        let mut path = origin.link().into_bytes();
        path.push(0);
        match Self::open_at(&path, origin) {
            Err(Refusal::Gone) if origin.mapped != 0 => {
                let ways = origin.ways_by_mapping();
                ways.iter().find_map(|way| Self::open_at(way, origin).ok()).ok_or(Refusal::Gone)
            }
            other => other,
        }
    }

    fn open_at(path: &[u8], origin: &Origin) -> Result<Self, Refusal> {
        // Looked at first: opening a pipe or a device may have effects.
        let s = stat(path).map_err(|e| refusal(&e))?;
        check(&s, origin)?;
        let fd = open(path).map_err(|e| refusal(&e))?;
        let s = fstat(fd.as_fd()).map_err(|e| refusal(&e))?;
        check(&s, origin)?;
        let size = s.st_size as u64;
        let trusted = tells_the_truth(fd.as_fd(), &s);
        let map = if trusted { Map::new(fd.as_fd(), size) } else { None };
        Ok(Self { trusted: trusted && (map.is_some() || size == 0), fd: Arc::new(fd), map, size })
    }

    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn share(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// The file's name, where the program has closed its descriptor.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/self/fd/{}", self.fd.as_raw_fd())).ok()
    }

    /// Bytes in the file when we last looked.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn trusted(&self) -> bool {
        self.trusted
    }

    /// Looks at the size again; whether it has changed.
    pub(crate) fn refresh(&mut self) -> bool {
        let Ok(s) = fstat(self.fd.as_fd()) else { return false };
        let size = s.st_size as u64;
        if size == self.size {
            return false;
        }
        self.size = size;
        if self.trusted {
            self.map = Map::new(self.fd.as_fd(), size);
        }
        true
    }

    /// Whether the file has no name any more.
    pub(crate) fn unlinked(&self) -> bool {
        fstat(self.fd.as_fd()).is_ok_and(|s| s.st_nlink == 0)
    }

    /// Which of `pages` are present and up to date, one byte a page (bit 0). `None` where the kernel does not tell.
    pub(crate) fn presence(&self, pages: Extent) -> Option<Vec<u8>> {
        self.map.as_ref()?.presence(pages)
    }

    /// Asks the kernel to start reading `pages`.
    pub(crate) fn readahead(&self, pages: Extent) -> io::Result<()> {
        // SAFETY: a plain system call on an open descriptor.
        let rc = unsafe {
            libc::readahead(
                self.fd.as_raw_fd(),
                pages.start.byte() as libc::off64_t,
                pages.count.bytes().0 as usize,
            )
        };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Lets `pages` go: what is clean, mapped by nobody and not under way leaves the cache. What the kernel says is of no use.
    pub(crate) fn let_go(&self, pages: Extent) {
        let (start, len) = (pages.start.byte() as libc::off64_t, pages.count.bytes().0 as libc::off64_t);
        // SAFETY: a plain system call on an open descriptor.
        unsafe { libc::posix_fadvise64(self.fd.as_raw_fd(), start, len, libc::POSIX_FADV_DONTNEED) };
    }

    /// Pages of `pages` that the page cache holds, present or under way. `None` where the kernel does not tell.
    pub(crate) fn cached(&self, pages: Extent) -> Option<u64> {
        cachestat(self.fd.as_fd(), pages).ok()
    }
}

/// The bits that `pages` have in the word of a leaf, 64 pages: of [100, 130) in leaf 1, [64, 128), the upper 28.
pub(crate) fn bits_in(pages: Extent, leaf: u64) -> u64 {
    let own = pages.intersection(Extent::new(leaf * 64, 64));
    let ones = !0u64 >> (64 - own.count.0.clamp(1, 64));
    if own.is_empty() { 0 } else { ones << (own.start.0 % 64) }
}

/// Runs of present pages, or of absent ones, in what [`Descriptor::presence`] told of `pages`.
pub(crate) fn runs(pages: Extent, presence: &[u8], present: bool) -> Vec<Extent> {
    let mut runs: Vec<Extent> = Vec::new();
    for (i, byte) in presence.iter().enumerate() {
        if (byte & 1 == 1) != present {
            continue;
        }
        let page = pages.start + PageCount(i as u64);
        match runs.last_mut() {
            Some(run) if run.end() == page => run.count += PageCount(1),
            _ => runs.push(Extent { start: page, count: PageCount(1) }),
        }
    }
    runs
}

/// The line of a /proc/PID/maps whose range holds `address`.
fn mapping_line(maps: &[u8], address: u64) -> Option<&[u8]> {
    maps.split(|&b| b == b'\n').find(|line| {
        let range = std::str::from_utf8(line.split(|&b| b == b' ').next().unwrap_or_default()).ok();
        let ends = range.and_then(|range| range.split_once('-'));
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        ends.is_some_and(|(from, to)| {
            number(from).is_some_and(|from| from <= address) && number(to).is_some_and(|to| address < to)
        })
    })
}

/// A file mapped whole. It is never touched, so a file that shrinks cannot hurt: only named in calls to mincore.
struct Map {
    mapping: Mapping,
    pages: u64,
}

impl Map {
    fn new(fd: BorrowedFd<'_>, size: u64) -> Option<Self> {
        let pages = size.div_ceil(PAGE_SIZE);
        let len = usize::try_from(pages * PAGE_SIZE).ok().filter(|&len| len > 0)?;
        Mapping::of(fd, len, 0, false).ok().map(|mapping| Self { mapping, pages })
    }

    fn presence(&self, pages: Extent) -> Option<Vec<u8>> {
        let inside = pages.intersection(Extent::between(PageIndex(0), PageIndex(self.pages)));
        let mut bytes = vec![0u8; pages.count.0 as usize];
        if inside.is_empty() {
            return Some(bytes);
        }
        // SAFETY: the range lies in the mapping, and there is a byte for each page of it.
        let rc = unsafe {
            libc::mincore(
                self.mapping.at().as_ptr().add(inside.start.byte() as usize).cast(),
                inside.count.bytes().0 as usize,
                bytes.as_mut_ptr(),
            )
        };
        (rc == 0).then_some(bytes)
    }
}

fn check(s: &libc::stat, origin: &Origin) -> Result<(), Refusal> {
    if (s.st_dev, s.st_ino) != (origin.dev, origin.ino) {
        Err(Refusal::Gone)
    } else if s.st_mode & libc::S_IFMT != libc::S_IFREG {
        Err(Refusal::NotRegular)
    } else {
        Ok(())
    }
}

fn refusal(error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => Refusal::Gone,
        Some(libc::EACCES | libc::EPERM) => Refusal::NotPermitted,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Refusal::TooManyOpen,
        _ => Refusal::Other,
    }
}

fn open(path: &[u8]) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    let mut last = None;
    // Only the owner may ask that our looking leaves no trace in the file's access time.
    for flags in [flags | libc::O_NOATIME, flags] {
        // SAFETY: the path ends with a zero byte.
        let fd = unsafe { libc::open(path.as_ptr().cast(), flags) };
        if fd >= 0 {
            // SAFETY: new and ours.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EPERM) {
            return Err(error);
        }
        last = Some(error);
    }
    Err(last.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EPERM)))
}

fn stat(path: &[u8]) -> io::Result<libc::stat> {
    // SAFETY: all-zero bytes are a stat; the path ends with a zero byte.
    unsafe {
        let mut s: libc::stat = std::mem::zeroed();
        if libc::stat(path.as_ptr().cast(), &mut s) == 0 { Ok(s) } else { Err(io::Error::last_os_error()) }
    }
}

fn fstat(fd: BorrowedFd<'_>) -> io::Result<libc::stat> {
    // SAFETY: all-zero bytes are a stat, which the call fills.
    unsafe {
        let mut s: libc::stat = std::mem::zeroed();
        if libc::fstat(fd.as_raw_fd(), &mut s) == 0 { Ok(s) } else { Err(io::Error::last_os_error()) }
    }
}

/// Whether mincore tells us the truth of this file: it does so to the owner, and to those who may write. Kernels since
/// 6.14 ask the same before they answer cachestat, and say so.
fn tells_the_truth(fd: BorrowedFd<'_>, s: &libc::stat) -> bool {
    if cachestat(fd, Extent::new(0, 1)).is_err_and(|e| e.raw_os_error() == Some(libc::EPERM)) {
        return false;
    }
    // SAFETY: plain system calls; the path ends with a zero byte.
    unsafe {
        let user = libc::geteuid();
        let path = format!("/proc/self/fd/{}\0", fd.as_raw_fd());
        user == 0
            || s.st_uid == user
            || libc::faccessat(libc::AT_FDCWD, path.as_ptr().cast(), libc::W_OK, libc::AT_EACCESS) == 0
    }
}

/// The kernel's struct cachestat_range.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

/// The kernel's struct cachestat; of these only the first is used here.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    rest: [u64; 4],
}

const SYS_CACHESTAT: libc::c_long = 451;

fn cachestat(fd: BorrowedFd<'_>, pages: Extent) -> io::Result<u64> {
    let range = CachestatRange { offset: pages.start.byte(), len: pages.count.bytes().0 };
    let mut stat = Cachestat::default();
    // SAFETY: both structures have the kernel's layout and live through the call.
    let rc = unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut stat, 0) };
    if rc == 0 { Ok(stat.cached) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    fn origin(file: &fs::File) -> Origin {
        let meta = file.metadata().unwrap();
        Origin { pid: std::process::id(), fd: file.as_raw_fd(), dev: meta.dev(), ino: meta.ino(), mapped: 0 }
    }

    #[test]
    fn a_file_is_reached_through_the_program_that_has_it() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 4 * 4096]).unwrap();
        let from = origin(&file);
        let mut ours = Descriptor::open(&from).unwrap();
        assert_eq!((ours.size(), ours.trusted(), ours.unlinked()), (4 * 4096, true, true));
        assert_eq!(ours.presence(Extent::new(0, 4)).unwrap(), [1; 4], "just written");
        file.write_all(&[1; 4096]).unwrap();
        assert!(ours.refresh() && ours.size() == 5 * 4096);
        assert!(from.holds());
        drop(file);
        assert!(!from.holds());
    }

    /// The worked example, and the ends.
    #[test]
    fn pages_have_their_bits_in_their_leaf() {
        let pages = Extent::new(100, 30);
        assert_eq!([0, 1, 2, 3].map(|leaf| bits_in(pages, leaf).count_ones()), [0, 28, 2, 0]);
        assert_eq!((bits_in(pages, 1), bits_in(pages, 2)), (!0 << 36, 0b11));
        assert_eq!((bits_in(Extent::new(64, 64), 1), bits_in(Extent::new(64, 0), 1)), (!0, 0));
    }

    /// What the cache does not hold at all is told apart from what is under way: by the count, where presence says the same of both.
    #[test]
    fn what_was_let_go_is_not_under_way() {
        // Not in /tmp, which may be memory.
        let dir = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![1; 4 << 20]).unwrap();
        let file = fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        let ours = Descriptor::open(&origin(&file)).unwrap();
        ours.let_go(Extent::new(256, 768));
        // What lies across the edge in one folio stays.
        assert_eq!([0, 600].map(|page| ours.presence(Extent::new(page, 2)).unwrap()), [[1, 1], [0, 0]]);
        let counts = [0, 600].map(|page| ours.cached(Extent::new(page, 2)));
        if counts == [None, None] {
            println!("skipped: this kernel has no cachestat");
            return;
        }
        assert_eq!(counts, [Some(2), Some(0)]);
    }

    #[test]
    fn another_file_is_not_taken_for_the_one_meant() {
        let file = tempfile::tempfile().unwrap();
        let wrong = Origin { ino: 1, ..origin(&file) };
        assert_eq!(Descriptor::open(&wrong).err(), Some(Refusal::Gone));
        let pipe = Origin { fd: 1_000_000, ..origin(&file) };
        assert_eq!(Descriptor::open(&pipe).err(), Some(Refusal::Gone));
    }

    #[test]
    fn a_mapped_file_is_reached_after_its_descriptor_was_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("a file");
        fs::write(&path, vec![3; 4096]).unwrap();
        let file = fs::File::open(&path).unwrap();
        let map = Map::new(file.as_fd(), 4096).unwrap();
        let from = Origin { fd: 1_000_000, mapped: map.mapping.at().addr().get() as u64, ..origin(&file) };
        drop(file);
        let ours = Descriptor::open(&from).unwrap();
        assert_eq!((ours.size(), ours.path()), (4096, Some(path)));
        let unmapped = Origin { mapped: 0, ..from };
        assert_eq!(Descriptor::open(&unmapped).err(), Some(Refusal::Gone));
    }

    #[test]
    fn presence_has_runs() {
        let seen = [1, 1, 0, 0, 1];
        assert_eq!(runs(Extent::new(8, 5), &seen, true), [Extent::new(8, 2), Extent::new(12, 1)]);
        assert_eq!(runs(Extent::new(8, 5), &seen, false), [Extent::new(10, 2)]);
    }
}
