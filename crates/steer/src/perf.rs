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
//! Worked example: a mapped scan of cached pages makes a sample of 40 bytes each 16 pages (the kernel maps that many at
//! once); a ring of 256 KiB a processor holds 6,500 of them, 400 MiB of scan.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping::Mapping;

/// Sizes of a ring's data that are tried, in pages: an unprivileged user may lock 516 KiB for each processor.
const RING_PAGES: [usize; 3] = [64, 16, 4];
const PAGE: usize = 4096;
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

/// Events on the thread that opened them and on all that it starts, one ring a processor.
pub(crate) struct Watch {
    rings: Vec<Ring>,
    events: Vec<OwnedFd>,
    ids: Vec<(u64, usize)>,
    /// Samples that found their ring full.
    pub(crate) lost: u64,
}

impl Watch {
    /// Opens `sources` on this thread and what it will start. Nothing is sampled before [`Watch::enable`].
    pub(crate) fn of_this_thread(sources: &[Source]) -> io::Result<Self> {
        let mut this = Self { rings: Vec::new(), events: Vec::new(), ids: Vec::new(), lost: 0 };
        for processor in processors() {
            let mut output: Option<RawFd> = None;
            for (place, source) in sources.iter().enumerate() {
                let event = open(&source.attr(), processor)?;
                match output {
                    None => this.rings.push(Ring::of(&event)?),
                    Some(first) => control(&event, IOC_SET_OUTPUT, first as usize)?,
                }
                output.get_or_insert(event.as_raw_fd());
                let mut id = 0u64;
                control(&event, IOC_ID, (&raw mut id).addr())?;
                this.ids.push((id, place));
                this.events.push(event);
            }
        }
        Ok(this)
    }

    /// Begins or ends sampling of a source, in all processes.
    pub(crate) fn enable(&self, source: usize, on: bool) {
        for (event, _) in self.events.iter().zip(&self.ids).filter(|(_, id)| id.1 == source) {
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
        samples
    }
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

fn open(attr: &Attr, processor: i32) -> io::Result<OwnedFd> {
    // SAFETY: the structure has the kernel's layout and says its size; this thread, one processor, no group.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const *attr, 0, processor, -1, FLAG_CLOEXEC) };
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
