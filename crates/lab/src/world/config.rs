//! What a world is made of: programs and their steps, the processor's costs, files, memory, a device, a brain.

use super::{Brain, Faults, MachineModel};
use bowwave_core::{CacheConfig, Extent, Nanos, PAGE_SIZE, PageCount, PageIndex};

/// What a program does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Reads these pages and goes on when it has the first `transfer` of them (all, unless a call is cut short).
    Read {
        /// Through which descriptor.
        fd: u32,
        /// What it asks for.
        pages: Extent,
        /// How much of it it gets in this call.
        transfer: PageCount,
    },
    /// Writes these pages.
    Write {
        /// Through which descriptor.
        fd: u32,
        /// Which.
        pages: Extent,
    },
    /// Touches a page of a mapping.
    Fault {
        /// Of which descriptor's file.
        fd: u32,
        /// Which.
        page: PageIndex,
    },
    /// Says that it needs these pages no more.
    DontNeed {
        /// Of which descriptor's file.
        fd: u32,
        /// Which.
        pages: Extent,
    },
    /// Computes for so long.
    Think(Nanos),
    /// Goes on at this moment; at once if it is past.
    Until(Nanos),
    /// Has ended.
    End,
}

impl Step {
    /// A read of `count` pages from `start`, all of them.
    pub const fn read(fd: u32, start: u64, count: u64) -> Self {
        Self::Read { fd, pages: Extent::new(start, count), transfer: PageCount(count) }
    }
}

/// A program: asked for its next step with the moment at which its last one was done.
pub type Actor<'a> = Box<dyn FnMut(Nanos) -> Step + 'a>;

/// What things cost the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu {
    /// A call.
    pub call_ns: u64,
    /// Copying a page.
    pub page_ns: u64,
    /// One look at the page cache.
    pub look_ns: u64,
    /// One call of a policy.
    pub ask_ns: u64,
}

impl Cpu {
    /// What this project measured of a read of cached data: 700 ns a call, 400 ns a page.
    pub const TODAY: Self = Self { call_ns: 700, page_ns: 400, look_ns: 0, ask_ns: 0 };
}

/// When dirty pages are written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirty {
    /// Above this share of memory, in the background.
    pub background_percent: u64,
    /// Above this share writers wait.
    pub limit_percent: u64,
}

/// A file of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorldFile {
    /// Its size.
    pub pages: u64,
    /// Where on the device it begins.
    pub address: u64,
}

/// Everything that a world is made of.
#[derive(Clone)]
pub struct WorldConfig {
    /// The device.
    pub machine: MachineModel,
    /// Memory.
    pub memory: CacheConfig,
    /// Who fetches ahead.
    pub brain: Brain,
    /// Files, laid out.
    pub files: Vec<WorldFile>,
    /// The file behind each descriptor.
    pub descriptors: Vec<u32>,
    /// What the processor takes.
    pub cpu: Cpu,
    /// When dirty pages go.
    pub dirty: Dirty,
    /// Largest request that the device takes; longer ones are cut.
    pub request_max: PageCount,
    /// The device's queue is congested from so many requests on: an era sends nothing ahead then (spec 1.6, 2). Never, if
    /// `None`.
    pub congested_from: Option<usize>,
    /// Width of the buckets of [`WorldOutcome::buckets`](super::WorldOutcome::buckets).
    pub bucket: Nanos,
    /// Keep every decision.
    pub trace: bool,
    /// Stop at this moment, whatever is left to do.
    pub stop_at: Option<Nanos>,
    /// What goes wrong.
    pub faults: Faults,
    /// Judge: know the version of every page, and what must hold when somebody fetches ahead ([`World::violation`](super::World::violation)).
    pub judged: bool,
}

impl WorldConfig {
    /// A world of one shard of `frames` pages, files one behind the other with a descriptor each.
    pub fn new(machine: MachineModel, frames: u64, brain: Brain, files: &[u64]) -> Self {
        let mut address = 0;
        let laid_out = files.iter().map(|&pages| {
            let file = WorldFile { pages, address };
            // A device may end; a trace's files need not.
            address = address.saturating_add(pages.saturating_mul(PAGE_SIZE));
            file
        });
        Self {
            machine,
            // No era, rival or wave asks for ghosts, and to keep them is a fourth of the work where memory is scarce.
            memory: CacheConfig { ghosts_max: 0, ..CacheConfig::of(PageCount(frames)) },
            brain,
            files: laid_out.collect(),
            descriptors: (0..files.len() as u32).collect(),
            cpu: Cpu::TODAY,
            dirty: Dirty { background_percent: 10, limit_percent: 40 },
            request_max: PageCount(u64::MAX),
            congested_from: None,
            bucket: Nanos::from_ms(1000),
            trace: false,
            stop_at: None,
            faults: Faults::default(),
            judged: false,
        }
    }
}
