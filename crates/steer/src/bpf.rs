//! Reads and faults as they happen, by programs of our own in the kernel, which tell only what somebody needs to hear of.
//!
//! ```text
//!   a read of the run ---> program at the tracepoint ---> settled? a bit in shared memory, and that is all
//!                                                    '--> ring of 1 MiB ---> drained by the agent
//! ```
//!
//! The programs are assembled when a run begins (`assemble`, `programs`), with the places of the kernel's fields as the running
//! kernel describes them (`btf`); no compiler, no file of code. The kernel proves each before it takes it: that it ends, and reads
//! nothing that it must not. They hang on raw tracepoints by links that are descriptors of ours: when those are closed, or we
//! are killed, nothing is left, and closing them waits for nobody. It takes root, or CAP_BPF and CAP_PERFMON.
//!
//! Bounds: the ring holds 16,384 touches of 64 bytes, what four readers of 1 us a read tell in twice the 2 ms that the agent dozes
//! at most; what finds it full is counted. The shared memory has 2.6 MiB (`shared`).

mod assemble;
mod btf;
mod programs;
mod shared;

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bowwave_wire::Harvest;

use assemble::Insn;
use btf::Wanted;
use programs::{Fields, Maps};
use shared::{Layout, Shared};

use crate::mapping::Mapping;
use crate::tracepoints::Kind;

/// The ring's data: a power of two.
const RING_BYTES: usize = 1 << 20;
const PAGE: usize = 4096;
/// The first namespace of processes has this inode: numbers that the programs see are those that we see.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// What the kernel has to say of a program that it refuses, at most.
const LOG_BYTES: usize = 64 << 10;

/// One touch, as the programs tell it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// CLOCK_MONOTONIC.
    pub(crate) at_ns: u64,
    /// Process in the upper half, thread in the lower.
    who: u64,
    /// The file: the kernel's own dev_t below, and its inode.
    pub(crate) ino: u64,
    /// First page.
    pub(crate) first: u64,
    /// Last page.
    pub(crate) last: u64,
    /// When the thread was seen before; 0 if that is not known.
    pub(crate) since_ns: u64,
    /// Twelve bits and twenty.
    pub(crate) dev: u32,
    kind: u32,
}

impl Record {
    /// Process.
    pub(crate) fn pid(&self) -> u32 {
        (self.who >> 32) as u32
    }

    /// Thread.
    pub(crate) fn tid(&self) -> u32 {
        self.who as u32
    }

    /// What happened.
    pub(crate) fn kind(&self) -> Kind {
        match self.kind {
            0 => Kind::Miss,
            1 => Kind::Read,
            _ => Kind::Fault,
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Self {
            at_ns: word(0)?,
            who: word(8)?,
            ino: word(16)?,
            first: word(24)?,
            last: word(32)?,
            since_ns: word(40)?,
            dev: half(48)?,
            kind: half(52)?,
        })
    }
}

/// Programs in the kernel that watch what this process will start.
pub(crate) struct Programs {
    shared: Shared,
    ring: Ring,
    _links: Vec<OwnedFd>,
    _maps: OwnedFd,
}

impl Programs {
    /// Loads them and hangs them up; or says, in one sentence, who refuses what.
    pub(crate) fn watch_what_we_start() -> Result<Self, String> {
        let namespace = fs::metadata("/proc/self/ns/pid").map(|meta| meta.ino());
        if namespace.ok() != Some(FIRST_PID_NAMESPACE) {
            return Err("a BPF program sees other numbers of processes than this container does".into());
        }
        let [get_pages, fault, sync_ra, fork, exit, fields @ ..] = btf::ask_kernel(&[
            Wanted::Tracepoint("mm_filemap_get_pages"),
            Wanted::Tracepoint("mm_filemap_fault"),
            Wanted::Tracepoint("page_cache_sync_ra"),
            Wanted::Tracepoint("sched_process_fork"),
            Wanted::Tracepoint("sched_process_exit"),
            Wanted::Field("address_space", "host"),
            Wanted::Field("inode", "i_ino"),
            Wanted::Field("inode", "i_sb"),
            Wanted::Field("super_block", "s_dev"),
            Wanted::Field("task_struct", "tgid"),
        ])?;
        let [host, ino, sb, dev, tgid] = fields.map(|byte| i16::try_from(byte).unwrap_or(i16::MAX));
        let fields = Fields { host, ino, sb, dev, tgid };
        let refused = |what: &str, error: io::Error| format!("a BPF {what} is refused: {error}");
        let map = shared_map().map_err(|error| refused("map", error))?;
        let ring = ring_map().map_err(|error| refused("ring", error))?;
        let shared = Shared::of(map.as_fd()).map_err(|error| refused("map", error))?;
        shared.layout().own.store(u64::from(std::process::id()), Ordering::SeqCst);
        let maps = Maps { shared: map.as_fd(), ring: ring.as_fd() };
        // Those that keep account come first.
        let mut links = Vec::new();
        for (point, code) in [
            (exit, programs::exit(maps)),
            (fork, programs::fork(fields, maps)),
            (sync_ra, programs::touches(Kind::Miss, fields, maps)),
            (get_pages, programs::touches(Kind::Read, fields, maps)),
            (fault, programs::touches(Kind::Fault, fields, maps)),
        ] {
            let program = load(point, &code)?;
            links.push(hang(program.as_fd()).map_err(|error| refused("link to a tracepoint", error))?);
        }
        let ring = Ring::of(ring).map_err(|error| refused("ring", error))?;
        Ok(Self { shared, ring, _links: links, _maps: map })
    }

    /// Becomes readable when somebody rings.
    pub(crate) fn bell(&self) -> RawFd {
        self.ring.fd.as_raw_fd()
    }

    /// Who tells next rings, and takes the bell down.
    pub(crate) fn hang_bell(&self) {
        self.shared.layout().asleep.store(1, Ordering::SeqCst);
    }

    /// All that was told since the last call.
    pub(crate) fn drain(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        self.ring.take(|bytes| records.extend(Record::parse(bytes)));
        // Each processor's are in their order; between two of them the time decides.
        records.sort_by_key(|record| record.at_ns);
        records
    }

    /// Touches that found the ring full.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.layout().lost.load(Ordering::Relaxed)
    }

    /// Says which pages of a leaf nobody needs to hear of; returns what was read of whoever had its place.
    pub(crate) fn publish(&mut self, of: (u32, u64), file: u32, leaf: u64, settled: u64) -> Option<Harvest> {
        self.shared.publish(of, file, leaf, settled)
    }

    /// Says that nobody needs to hear of hits of this file, of 64 pages at most.
    pub(crate) fn leave_alone(&self, of: (u32, u64)) {
        self.shared.leave_alone(of);
    }

    /// Takes what was read of a leaf and not told.
    pub(crate) fn harvest(&self, of: (u32, u64), file: u32, leaf: u64) -> Option<Harvest> {
        self.shared.harvest(of, file, leaf)
    }
}

// ---- the system call ---------------------------------------------------------------------------------------------------

const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;

const MAP_ARRAY: u32 = 2;
const MAP_RING: u32 = 27;
const MAPPABLE: u32 = 1 << 10;

const PROGRAM_TRACING: u32 = 26;
const ATTACH_RAW: u32 = 23;

/// The kernel's structures may be read only by programs under a licence that it knows. Ours are these files: MIT is one.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
    unused: [u32; 9],
    attach_to: u32,
    attach_in: u32,
}

#[repr(C)]
#[derive(Default)]
struct TracepointOpen {
    name: u64,
    program: u32,
    padding: u32,
}

/// bpf(2) with a command that returns a descriptor.
fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the structure has the layout of the command and says its size; what it points to lives through the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new and ours; bpf(2) opens descriptors close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn shared_map() -> io::Result<OwnedFd> {
    bpf(
        MAP_CREATE,
        &mut MapCreate {
            kind: MAP_ARRAY,
            key_size: 4,
            value_size: size_of::<Layout>() as u32,
            entries: 1,
            flags: MAPPABLE,
        },
    )
}

fn ring_map() -> io::Result<OwnedFd> {
    bpf(MAP_CREATE, &mut MapCreate { kind: MAP_RING, entries: RING_BYTES as u32, ..MapCreate::default() })
}

/// Has the kernel check a program for the tracepoint of this type; if it refuses, its last words on why.
fn load(tracepoint: u32, code: &[Insn]) -> Result<OwnedFd, String> {
    let attempt = |log: &mut [u8]| {
        bpf(
            PROG_LOAD,
            &mut ProgramLoad {
                kind: PROGRAM_TRACING,
                instructions: code.len() as u32,
                code: code.as_ptr().addr() as u64,
                licence: LICENCE.as_ptr().addr() as u64,
                log_level: u32::from(!log.is_empty()),
                log_size: log.len() as u32,
                log: if log.is_empty() { 0 } else { log.as_mut_ptr().addr() as u64 },
                attach: ATTACH_RAW,
                attach_to: tracepoint,
                ..ProgramLoad::default()
            },
        )
    };
    attempt(&mut []).or_else(|error| {
        let mut log = vec![0; LOG_BYTES];
        attempt(&mut log).map_err(|_| {
            format!("a BPF program is refused: {error}: {}", last_words(&log).unwrap_or("no more is said"))
        })
    })
}

/// The last line of a log but its statistics: what the verifier did not like.
fn last_words(log: &[u8]) -> Option<&str> {
    let text = log.split(|&byte| byte == 0).next()?;
    let text = std::str::from_utf8(text).ok()?;
    text.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed "))
}

/// Hangs a program on the tracepoint that it was checked for.
fn hang(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    bpf(
        RAW_TRACEPOINT_OPEN,
        &mut TracepointOpen { program: program.as_raw_fd() as u32, ..TracepointOpen::default() },
    )
}

// ---- the ring ----------------------------------------------------------------------------------------------------------

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// A page with how far we have read, a page with how far is written, and the data twice in a row, so that no record is split.
struct Ring {
    consumer: Mapping,
    producer: Mapping,
    fd: OwnedFd,
}

impl Ring {
    fn of(fd: OwnedFd) -> io::Result<Self> {
        let consumer = Mapping::of(fd.as_fd(), PAGE, 0, true)?;
        let producer = Mapping::of(fd.as_fd(), PAGE + 2 * RING_BYTES, PAGE, false)?;
        Ok(Self { consumer, producer, fd })
    }

    fn take(&mut self, mut tell: impl FnMut(&[u8])) {
        // SAFETY: the first word of each page is a position that the kernel and we change only as a whole.
        let (consumed, produced) = unsafe {
            (self.consumer.at().cast::<AtomicU64>().as_ref(), self.producer.at().cast::<AtomicU64>().as_ref())
        };
        let mut at = consumed.load(Ordering::Relaxed);
        while at < produced.load(Ordering::Acquire) {
            let offset = at as usize % RING_BYTES;
            // SAFETY: below what was produced lies a record with its header, in the data that is mapped twice; the kernel does not
            // write in it once its header is not busy, until we say that we have read it.
            let record = unsafe {
                let header = self.producer.at().as_ptr().add(PAGE + offset);
                let len = (*header.cast::<AtomicU32>()).load(Ordering::Acquire);
                if len & BUSY != 0 {
                    break;
                }
                (len, std::slice::from_raw_parts(header.add(8), (len & !DISCARDED) as usize))
            };
            if record.0 & DISCARDED == 0 {
                tell(record.1);
            }
            at += (record.1.len() as u64 + 8).next_multiple_of(8);
            consumed.store(at, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
