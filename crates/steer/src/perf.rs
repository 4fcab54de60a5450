//! What the kernel tells of processes as it happens: page faults and tracepoints, through perf's rings in shared memory.
//!
//! ```text
//!   reader touches a page that is not mapped
//!     fault begins  --> sample: who, when, where            the agent may read it before the page has come
//!     page comes    --> sample of a major fault, and a bell      ends what the first began
//! ```
//!
//! The events are opened on the thread that is about to start the program and are inherited by all that comes of it, so
//! nobody has to be searched for and nobody is missed. They count nothing until they are enabled. Faults of one's own
//! processes in user mode may be sampled without privileges where `perf_event_paranoid` is 2 or less (the kernel's
//! default); tracepoints take CAP_PERFMON.
//!
//! Before the first event of a thread the kernel waits until each processor has been elsewhere, 5 to 20 ms. Root need not have the program
//! wait for that: his events are of everybody at first, which costs .1 ms, and once the wait is over of the program and what it has started:
//!
//! ```text
//!   0 ms  of everybody opened   program starts     it maps a file: samples of everybody, others' are passed over
//!  10 ms  the wait begins
//!  25 ms  it is over            its threads and children are looked for, until no more are found; each gets events, which what it starts inherits
//!         everybody's end       who got events of his own, and had inherited some, is told of twice: the second is passed over
//! ```
//!
//! Worked example: a mapped scan of cached pages makes a sample of 40 bytes each 16 pages (the kernel maps that many at
//! once); a ring of 256 KiB a processor holds 6,500 of them, 400 MiB of scan.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::mapping::Mapping;

/// Sizes of a ring's data that are tried, in pages: an unprivileged user may lock 516 KiB for each processor.
const RING_PAGES: [usize; 3] = [64, 16, 4];
const PAGE: usize = 4096;
/// So long nothing waits for the kernel, since no process that does can end: many programs are over by then.
const COLD: Duration = Duration::from_millis(10);
/// Events, a descriptor each, that may take over from everybody's: on two processors those of 64 threads of a program that is 25 ms old. Most processes
/// may have 1,024 descriptors, and half of the agent's are files.
const TAKE_OVER_MAX: usize = 384;
/// Of two samples of one thread at one address the second is the first again, if no more than so much is between them.
const AGAIN_NS: u64 = 5_000;
/// A reader that never waits is heard of after so many bytes of samples: 400 faults, 25 MiB of scan.
const WATERMARK: u32 = 16384;

/// perf_event_attr, as far as its fifth version goes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const SW_PAGE_FAULTS: u64 = 2;
const SW_PAGE_FAULTS_MAJOR: u64 = 6;
const SW_DUMMY: u64 = 9;

const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ADDR: u64 = 1 << 3;
const SAMPLE_RAW: u64 = 1 << 10;
const SAMPLE_IDENTIFIER: u64 = 1 << 16;

const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const WATERMARKED: u64 = 1 << 14;
const USE_CLOCKID: u64 = 1 << 25;

const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const IOC_ID: libc::c_ulong = 0x8008_2407;
const FLAG_CLOEXEC: libc::c_ulong = 8;

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;

/// What is to be told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// A fault begins.
    Fault {
        /// Faults that the kernel makes on a program's behalf (a `write` from a mapping) too: takes privileges.
        of_kernel: bool,
    },
    /// A tracepoint of this number.
    Tracepoint {
        /// The number that tracefs gives.
        id: u64,
        /// Whether each one rings.
        rings: bool,
    },
    /// A fault that waited has ended.
    Major {
        /// As above.
        of_kernel: bool,
        /// Whether each one rings: an interrupt, and a switch to whoever hears it.
        rings: bool,
    },
}

impl Source {
    fn attr(self) -> Attr {
        let (kind, config, kernel, rings) = match self {
            Self::Fault { of_kernel } => (TYPE_SOFTWARE, SW_PAGE_FAULTS, of_kernel, false),
            Self::Tracepoint { id, rings } => (TYPE_TRACEPOINT, id, true, rings),
            Self::Major { of_kernel, rings } => (TYPE_SOFTWARE, SW_PAGE_FAULTS_MAJOR, of_kernel, rings),
        };
        let what = if kind == TYPE_TRACEPOINT { SAMPLE_RAW } else { SAMPLE_ADDR };
        let user_only = if kernel { 0 } else { EXCLUDE_KERNEL | EXCLUDE_HV };
        let (watermarked, wakeup) = if rings { (0, 1) } else { (WATERMARKED, WATERMARK) };
        Attr {
            kind,
            size: size_of::<Attr>() as u32,
            config,
            sample_period: 1,
            sample_type: SAMPLE_IDENTIFIER | SAMPLE_TID | SAMPLE_TIME | what,
            flags: DISABLED | INHERIT | USE_CLOCKID | user_only | watermarked,
            wakeup,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        }
    }
}

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    /// Which of the sources, by its place in the list.
    pub(crate) source: usize,
    /// Process.
    pub(crate) pid: u32,
    /// Thread.
    pub(crate) tid: u32,
    /// CLOCK_MONOTONIC.
    pub(crate) at_ns: u64,
    /// Where a fault was.
    pub(crate) address: u64,
    /// What a tracepoint says.
    pub(crate) raw: Vec<u8>,
}

/// This thread, for the kernel; and everybody.
const THIS_THREAD: i32 = 0;
const EVERYBODY: i32 = -1;

/// Events on some threads and on all that they start, one ring a processor.
pub(crate) struct Watch {
    sources: Vec<Source>,
    /// Numbers of the processors: each has the ring at its place.
    processors: Vec<i32>,
    /// Which of the sources are sampled.
    on: Vec<bool>,
    rings: Vec<Ring>,
    events: Vec<OwnedFd>,
    ids: Vec<(u64, usize)>,
    /// The first so many events are of everybody, and whether others have taken over from them.
    of_everybody: usize,
    narrowed: bool,
    /// Samples that found their ring full.
    pub(crate) lost: u64,
}

impl Watch {
    /// Opens `sources` on this thread and what it will start. Nothing is sampled before [`Watch::enable`].
    pub(crate) fn of_this_thread(sources: &[Source]) -> io::Result<Self> {
        Self::of(THIS_THREAD, sources)
    }

    /// Opens `sources` on everybody, which takes privileges, until [`Watch::narrow_to`].
    pub(crate) fn of_everybody(sources: &[Source]) -> io::Result<Self> {
        let mut this = Self::of(EVERYBODY, sources)?;
        this.of_everybody = this.events.len();
        Ok(this)
    }

    fn of(whom: i32, sources: &[Source]) -> io::Result<Self> {
        let mut this = Self {
            sources: sources.to_vec(),
            processors: processors(),
            on: vec![false; sources.len()],
            rings: Vec::new(),
            events: Vec::new(),
            ids: Vec::new(),
            of_everybody: 0,
            narrowed: false,
            lost: 0,
        };
        this.open_on(whom)?;
        Ok(this)
    }

    /// Opens all sources on a thread, on each processor.
    fn open_on(&mut self, whom: i32) -> io::Result<()> {
        for (at, &processor) in self.processors.iter().enumerate() {
            for (place, source) in self.sources.iter().enumerate() {
                let event = open(&source.attr(), whom, processor)?;
                match self.rings.get(at) {
                    None => self.rings.push(Ring::of(&event)?),
                    Some(ring) => control(&event, IOC_SET_OUTPUT, ring.event as usize)?,
                }
                let mut id = 0u64;
                control(&event, IOC_ID, (&raw mut id).addr())?;
                if self.on[place] {
                    control(&event, IOC_ENABLE, 0)?;
                }
                self.ids.push((id, place));
                self.events.push(event);
            }
        }
        Ok(())
    }

    /// Whether it is of everybody.
    pub(crate) fn is_of_everybody(&self) -> bool {
        self.of_everybody > 0 && !self.narrowed
    }

    /// What was of everybody is of this process, of what it has started, and of all that they will start. Waits, if the kernel is
    /// not warm (see [`warm_up`]).
    ///
    /// # Errors
    /// If these threads cannot be known or are too many; then it is of everybody still.
    pub(crate) fn narrow_to(&mut self, process: u32) -> io::Result<()> {
        let taken_over = self.open_on_all_of(process);
        if taken_over.is_err() {
            self.events.truncate(self.of_everybody);
            self.ids.truncate(self.of_everybody);
            return taken_over;
        }
        for event in &self.events[..self.of_everybody] {
            control(event, IOC_DISABLE, 0)?;
        }
        self.narrowed = true;
        Ok(())
    }

    /// Opens all sources on each thread of a process and of what it has started, until no more are found.
    fn open_on_all_of(&mut self, process: u32) -> io::Result<()> {
        let mut known = HashSet::new();
        loop {
            let found = threads_of(process)?;
            let new: Vec<u32> = found.into_iter().filter(|&thread| known.insert(thread)).collect();
            if new.is_empty() {
                return Ok(());
            }
            if known.len() * self.of_everybody > TAKE_OVER_MAX {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            for thread in new {
                match self.open_on(thread as i32) {
                    // It has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    opened => opened?,
                }
            }
        }
    }

    /// Begins or ends sampling of a source, in all processes.
    pub(crate) fn enable(&mut self, source: usize, on: bool) {
        self.on[source] = on;
        let ended = if self.narrowed { self.of_everybody } else { 0 };
        for (event, _) in self.events.iter().zip(&self.ids).skip(ended).filter(|(_, id)| id.1 == source) {
            // Refused only where the event is dead, and then there is nothing to sample.
            let _ = control(event, if on { IOC_ENABLE } else { IOC_DISABLE }, 0);
        }
    }

    /// Descriptors that become readable when somebody rings.
    pub(crate) fn bells(&self) -> Vec<RawFd> {
        self.rings.iter().map(|ring| ring.event).collect()
    }

    /// All that has happened since the last call, in its order.
    pub(crate) fn drain(&mut self) -> Vec<Sample> {
        let mut samples = Vec::new();
        for ring in &self.rings {
            ring.take(|record| match record.kind {
                RECORD_SAMPLE => samples.extend(parse(record.body, &self.ids)),
                RECORD_LOST => self.lost += word(record.body, 8),
                _ => {}
            });
        }
        samples.sort_by_key(|sample| sample.at_ns);
        if self.of_everybody > 0 { without_doubles(samples) } else { samples }
    }
}

/// What is told of twice, since a thread got events that it had inherited, is heard of once.
fn without_doubles(samples: Vec<Sample>) -> Vec<Sample> {
    let mut once: Vec<Sample> = Vec::with_capacity(samples.len());
    for sample in samples {
        let of = |s: &Sample| (s.source, s.tid, s.address);
        let mut of_late = once.iter().rev().take_while(|s| sample.at_ns - s.at_ns <= AGAIN_NS);
        if !of_late.any(|s| of(s) == of(&sample)) {
            once.push(sample);
        }
    }
    once
}

/// Opens an event of a thread of its own that says nothing, after a while, and says when that is done: the kernel is warm then, and stays so for a
/// second after the last of such events.
pub(crate) fn warm_up() -> Arc<AtomicBool> {
    let dummy = Attr {
        kind: TYPE_SOFTWARE,
        size: size_of::<Attr>() as u32,
        config: SW_DUMMY,
        flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HV,
        ..Attr::default()
    };
    let warm = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&warm);
    let wait = move || {
        std::thread::sleep(COLD);
        // Where it is refused, others are refused as well, or wait.
        let _ = open(&dummy, THIS_THREAD, -1);
        flag.store(true, Ordering::Release);
    };
    if std::thread::Builder::new().name("bowwave-warm".into()).stack_size(64 * 1024).spawn(wait).is_err() {
        warm.store(true, Ordering::Release);
    }
    warm
}

/// Threads of this process and of all that it has started, as far as they live and their parents do.
fn threads_of(process: u32) -> io::Result<Vec<u32>> {
    let (mut processes, mut threads) = (vec![process], Vec::new());
    while let Some(process) = processes.pop() {
        // What is not there has ended.
        for thread in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            let Some(number) = thread.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            threads.push(number);
            match fs::read_to_string(thread.path().join("children")) {
                Ok(children) => {
                    processes
                        .extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
                }
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && !thread.path().exists() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(threads)
}

fn parse(body: &[u8], ids: &[(u64, usize)]) -> Option<Sample> {
    let id = word(body, 0);
    let source = ids.iter().find(|known| known.0 == id)?.1;
    let who = word(body, 8);
    // What a tracepoint says stands in the place of an address, behind its length in four bytes.
    let len = word(body, 24) as u32 as usize;
    let raw = body.get(28..28 + len).filter(|_| body.len() > 32).unwrap_or_default().to_vec();
    Some(Sample {
        source,
        pid: who as u32,
        tid: (who >> 32) as u32,
        at_ns: word(body, 16),
        address: if raw.is_empty() { word(body, 24) } else { 0 },
        raw,
    })
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
}

/// Numbers of the processors that are on: `0-3,8`.
fn processors() -> Vec<i32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_else(|_| "0".into());
    let parse = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse::<i32>().ok()?..=to.trim().parse::<i32>().ok()?)
    };
    text.trim().split(',').filter_map(parse).flatten().collect()
}

fn open(attr: &Attr, whom: i32, processor: i32) -> io::Result<OwnedFd> {
    // SAFETY: the structure has the kernel's layout and says its size; no group.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const *attr, whom, processor, -1, FLAG_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn control(event: &OwnedFd, request: libc::c_ulong, argument: usize) -> io::Result<()> {
    // SAFETY: requests that take a number, or the address of a word of ours that they fill.
    match unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Offsets in the first page of a ring.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

struct Ring {
    mapping: Mapping,
    data: usize,
    event: RawFd,
}

struct Record<'a> {
    kind: u32,
    body: &'a [u8],
}

impl Ring {
    fn of(event: &OwnedFd) -> io::Result<Self> {
        let mut refused = io::Error::from_raw_os_error(libc::EPERM);
        for pages in RING_PAGES {
            match Mapping::of(event.as_fd(), (1 + pages) * PAGE, 0, true) {
                Ok(mapping) => return Ok(Self { mapping, data: pages * PAGE, event: event.as_raw_fd() }),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: a word of the mapping's first page, aligned, that the kernel and we change only as a whole.
        unsafe { &*self.mapping.at().as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Hands out each record and frees its place.
    fn take(&self, mut tell: impl FnMut(Record<'_>)) {
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        let mut tail = self.position(DATA_TAIL).load(Ordering::Relaxed);
        let mut bytes = Vec::new();
        while tail < head {
            let mut header = [0u8; 8];
            self.copy(tail, &mut header);
            let kind = u32::from_ne_bytes(header[..4].try_into().expect("four bytes"));
            let size = u64::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < 8 || tail + size > head {
                // What cannot be: start afresh.
                tail = head;
                break;
            }
            bytes.resize(size as usize - 8, 0);
            self.copy(tail + 8, &mut bytes);
            tell(Record { kind, body: &bytes });
            tail += size;
        }
        self.position(DATA_TAIL).store(tail, Ordering::Release);
    }

    fn copy(&self, from: u64, to: &mut [u8]) {
        let at = from as usize % self.data;
        let first = to.len().min(self.data - at);
        // SAFETY: both parts lie in the ring's data, which the kernel does not write before we free it.
        unsafe {
            let data = self.mapping.at().as_ptr().add(PAGE);
            std::ptr::copy_nonoverlapping(data.add(at), to.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, to.as_mut_ptr().add(first), to.len() - first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_with_their_address() {
        let sources = [Source::Fault { of_kernel: false }, Source::Major { of_kernel: false, rings: false }];
        let mut watch = match Watch::of_this_thread(&sources) {
            Ok(watch) => watch,
            Err(error) => {
                println!("skipped: page faults cannot be sampled here: {error}");
                return;
            }
        };
        let (quiet, _) = touch(&mut watch);
        assert_eq!(quiet, [], "nothing is told before it is wanted");
        watch.enable(0, true);
        let (told, address) = touch(&mut watch);
        let ours = told.iter().find(|sample| sample.address == address).expect("the fault that was made");
        assert_eq!((ours.source, ours.pid), (0, std::process::id()));
        watch.enable(0, false);
        touch(&mut watch);
        assert_eq!(touch(&mut watch).0, [], "nor afterwards");
    }

    /// Everybody's at first; then those of a child are none of ours, and our own those of each thread, told once.
    #[test]
    fn everybody_is_left_for_those_who_count() {
        let mut watch = match Watch::of_everybody(&[Source::Fault { of_kernel: false }]) {
            Ok(watch) => watch,
            Err(error) => {
                println!("skipped: faults of everybody cannot be sampled here: {error}");
                return;
            }
        };
        let told = |watch: &mut Watch| {
            watch.drain();
            let (told, address) = touch(watch);
            // SAFETY: a plain system call.
            let us = unsafe { libc::gettid() } as u32;
            told.iter().filter(|sample| (sample.tid, sample.address) == (us, address)).count()
        };
        watch.enable(0, true);
        assert_eq!((watch.is_of_everybody(), told(&mut watch)), (true, 1));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let mut of_other = Watch::of_everybody(&[Source::Fault { of_kernel: false }]).expect("as before");
        of_other.enable(0, true);
        of_other.narrow_to(other.id()).expect("its threads");
        assert_eq!((of_other.is_of_everybody(), told(&mut of_other)), (false, 0));
        watch.narrow_to(std::process::id()).expect("our threads");
        assert_eq!(told(&mut watch), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(told(&mut watch), 1, "of a thread that has begun since"));
        });
        watch.enable(0, false);
        assert_eq!(told(&mut watch), 0);
        assert!(
            threads_of(std::process::id()).expect("ours").contains(&other.id()),
            "our child's are among ours"
        );
        other.kill().and_then(|()| other.wait()).expect("it ends");
    }

    #[test]
    fn what_is_told_of_twice_is_heard_of_once() {
        let sample =
            |source, tid, at_ns, address| Sample { source, pid: 1, tid, at_ns, address, raw: Vec::new() };
        let told = [
            sample(0, 1, 1_000, 0x7000),
            sample(0, 2, 1_100, 0x7000),
            sample(0, 1, 1_200, 0x7000),
            sample(1, 1, 1_300, 0x7000),
            sample(0, 1, 7_000, 0x7000),
        ];
        let heard: Vec<u64> = without_doubles(told.to_vec()).iter().map(|sample| sample.at_ns).collect();
        assert_eq!(heard, [1_000, 1_100, 1_300, 7_000]);
    }

    /// Writes in one fresh page; what was told since, and where that was.
    fn touch(watch: &mut Watch) -> (Vec<Sample>, u64) {
        // SAFETY: fresh memory of our own, written once and given back.
        unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), 4 * PAGE, prot, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            at.cast::<u8>().add(2 * PAGE + 7).write_volatile(1);
            libc::munmap(at, 4 * PAGE);
            (watch.drain(), (at.addr() + 2 * PAGE + 7) as u64)
        }
    }

    #[test]
    fn processors_are_numbers() {
        assert!(!processors().is_empty());
    }

    #[test]
    fn no_record_is_too_short_or_lies_too_much() {
        let whole: Vec<u8> =
            [77_u64, 5 << 32 | 4, 1234, 8, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        bowwave_fuzz::fuzz("a record of perf", &[&whole, &[0xFF; 40], &77_u64.to_ne_bytes()], |body| {
            let Some(sample) = parse(body, &[(77, 3), (u64::MAX, 1)]) else { return };
            assert!([1, 3].contains(&sample.source) && sample.raw.len() <= body.len());
        });
    }
}
