//! What programs do with files, as the kernel's tracepoints tell it: by programs of ours in the kernel, or sampled by perf.
//!
//! ```text
//!                    BPF (`bpf`)                                  perf (`perf`)
//!   whose            what we start, by a bit a process            what this thread starts, by inheritance
//!   told             what is not settled                          everything
//!   settled          marked, harvested as the library's marks     told, 0.65 us each
//!   closing          0.6 ms                                       0.1 s: grace periods of the kernel
//! ```
//!
//! Who listens cannot tell one from the other: both say the same of the same touch. BPF is taken where it is to be had.

use std::collections::HashMap;
use std::os::fd::RawFd;

use bowwave_wire::Harvest;

use crate::bpf::Programs;
use crate::perf::{Source, Watch};
use crate::tracepoints::{Kind, Named, Tracepoint, device, kernels_device};

/// Threads whose latest touch perf's side remembers.
const THREADS_MAX: usize = 4096;

/// Who may tell of what happens outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutsideBy {
    /// Programs in the kernel, and perf where those are refused.
    Best,
    /// Programs in the kernel.
    Bpf,
    /// Samples of tracepoints.
    Perf,
}

/// One touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Touch {
    pub(crate) kind: Kind,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// CLOCK_MONOTONIC.
    pub(crate) at_ns: u64,
    /// When the thread touched anything before, if that is known.
    pub(crate) since_ns: Option<u64>,
    pub(crate) named: Named,
}

/// Who tells.
pub(crate) enum Observer {
    Bpf(Programs),
    Perf(Box<Sampled>),
}

impl Observer {
    /// Watches what this thread will start; or says why nobody can. With it why the better way was refused, if it was.
    pub(crate) fn open(by: OutsideBy) -> Result<(Self, Option<String>), String> {
        let programs = || Programs::watch_what_we_start().map(Self::Bpf);
        let sampled = || Sampled::of_this_thread().map(|sampled| Self::Perf(Box::new(sampled)));
        match by {
            OutsideBy::Bpf => Ok((programs()?, None)),
            OutsideBy::Perf => Ok((sampled()?, None)),
            OutsideBy::Best => match programs() {
                Ok(this) => Ok((this, None)),
                Err(why) => Ok((sampled()?, Some(why))),
            },
        }
    }

    /// In words, for the report.
    pub(crate) fn words(&self) -> &'static str {
        match self {
            Self::Bpf(_) => "BPF programs",
            Self::Perf(_) => "perf samples",
        }
    }

    /// Descriptors that become readable when somebody rings.
    pub(crate) fn bells(&self) -> Vec<RawFd> {
        match self {
            Self::Bpf(programs) => vec![programs.bell()],
            Self::Perf(sampled) => sampled.watch.bells(),
        }
    }

    /// Who tells next rings, and takes the bell down.
    pub(crate) fn hang_bell(&mut self) {
        match self {
            Self::Bpf(programs) => programs.hang_bell(),
            Self::Perf(sampled) => sampled.hang_bell(true),
        }
    }

    /// All that happened since the last call, in its order.
    pub(crate) fn drain(&mut self) -> Vec<Touch> {
        match self {
            Self::Bpf(programs) => programs
                .drain()
                .iter()
                .map(|told| Touch {
                    kind: told.kind(),
                    pid: told.pid(),
                    tid: told.tid(),
                    at_ns: told.at_ns,
                    since_ns: (told.since_ns != 0).then_some(told.since_ns),
                    named: Named {
                        dev: device(told.dev),
                        ino: told.ino,
                        first: told.first,
                        count: told.last.saturating_sub(told.first).saturating_add(1),
                    },
                })
                .collect(),
            Self::Perf(sampled) => sampled.drain(),
        }
    }

    /// Touches that found their ring full.
    pub(crate) fn lost(&self) -> u64 {
        match self {
            Self::Bpf(programs) => programs.lost(),
            Self::Perf(sampled) => sampled.watch.lost,
        }
    }

    /// Pages of a leaf that nobody needs to hear of. Returns what was read of the leaf that had its place.
    pub(crate) fn publish(
        &mut self,
        (dev, ino): (u64, u64),
        file: u32,
        leaf: u64,
        settled: u64,
    ) -> Option<Harvest> {
        match self {
            Self::Bpf(programs) => programs.publish((kernels_device(dev), ino), file, leaf, settled),
            Self::Perf(_) => None,
        }
    }

    /// Hits of this file, of 64 pages at most, nobody needs to hear of.
    pub(crate) fn leave_alone(&self, (dev, ino): (u64, u64)) {
        if let Self::Bpf(programs) = self {
            programs.leave_alone((kernels_device(dev), ino));
        }
    }

    /// What was read of a leaf and not told.
    pub(crate) fn harvest(&self, (dev, ino): (u64, u64), file: u32, leaf: u64) -> Option<Harvest> {
        match self {
            Self::Bpf(programs) => programs.harvest((kernels_device(dev), ino), file, leaf),
            Self::Perf(_) => None,
        }
    }
}

/// Tracepoints, by their place; the last is the first with a bell, on only while somebody sleeps.
const KINDS: [Kind; 4] = [Kind::Miss, Kind::Read, Kind::Fault, Kind::Miss];
const RINGS: usize = 3;

/// Tracepoints as this kernel has them, sampled.
pub(crate) struct Sampled {
    watch: Watch,
    points: [Tracepoint; 3],
    latest: HashMap<u32, u64>,
    bell: bool,
}

impl Sampled {
    fn of_this_thread() -> Result<Self, String> {
        let find = |name: &str| {
            Tracepoint::find(name)
                .ok_or_else(|| format!("the tracepoint {name} cannot be read in tracefs (it takes root)"))
        };
        let points = [
            find("readahead/page_cache_sync_ra")?,
            find("filemap/mm_filemap_get_pages")?,
            find("filemap/mm_filemap_fault")?,
        ];
        let source =
            |place: usize| Source::Tracepoint { id: points[place % RINGS].id, rings: place == RINGS };
        match Watch::of_this_thread(&[0, 1, 2, RINGS].map(source)) {
            Ok(mut watch) => {
                for source in 0..KINDS.len() {
                    watch.enable(source, true);
                }
                Ok(Self { watch, points, latest: HashMap::new(), bell: true })
            }
            Err(error) => {
                Err(format!("tracepoints cannot be sampled: {error} (it takes root or CAP_PERFMON)"))
            }
        }
    }

    fn hang_bell(&mut self, on: bool) {
        if self.bell != on {
            self.watch.enable(RINGS, on);
            self.bell = on;
        }
    }

    fn drain(&mut self) -> Vec<Touch> {
        let samples = self.watch.drain();
        if samples.iter().any(|sample| sample.source == RINGS) {
            self.hang_bell(false);
        }
        let mut touches = Vec::new();
        for sample in samples.iter().filter(|sample| sample.source != RINGS) {
            let Some(named) = self.points.get(sample.source).and_then(|point| point.read(&sample.raw)) else {
                continue;
            };
            if self.latest.len() >= THREADS_MAX {
                self.latest.clear();
            }
            touches.push(Touch {
                kind: KINDS[sample.source],
                pid: sample.pid,
                tid: sample.tid,
                at_ns: sample.at_ns,
                since_ns: self.latest.insert(sample.tid, sample.at_ns),
                named,
            });
        }
        touches
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    /// A directory for files that the tracepoints name as stat(2) does: not in memory, and not under another file system.
    pub(crate) fn on_a_disk() -> Option<tempfile::TempDir> {
        let beside = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(beside.parent().unwrap()).unwrap();
        let path = std::ffi::CString::new(dir.path().to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with a zero byte, and one structure of ours that is filled.
        let kind = unsafe {
            let mut of: libc::statfs = std::mem::zeroed();
            assert_eq!(libc::statfs(path.as_ptr(), &mut of), 0);
            of.f_type
        };
        if [libc::TMPFS_MAGIC, libc::OVERLAYFS_SUPER_MAGIC].contains(&kind) {
            println!("skipped: {} is on tmpfs or overlayfs", dir.path().display());
            return None;
        }
        Some(dir)
    }

    /// A file of 40 pages is read through by 8 under either way.
    #[test]
    fn both_ways_tell_the_same_of_the_same_reads() {
        let Some(dir) = on_a_disk() else { return };
        let path = dir.path().join("data");
        fs::write(&path, vec![1; 40 * 4096]).unwrap();
        let meta = File::open(&path).unwrap().metadata().unwrap();
        let told: Vec<Vec<(Kind, u64, bool)>> = [OutsideBy::Bpf, OutsideBy::Perf]
            .into_iter()
            .filter_map(|by| match Observer::open(by) {
                Ok((mut observer, _)) => Some(read_through(&mut observer, &path, &meta)),
                Err(why) => {
                    println!("skipped: {by:?}: {why}");
                    None
                }
            })
            .collect();
        for told in &told {
            assert_eq!(told[0].0, Kind::Read);
            assert_eq!(told.iter().filter(|touch| touch.1 == 8).count(), 1, "{told:?}");
        }
        assert!(told.windows(2).all(|two| two[0] == two[1]), "{told:?}");
    }

    /// What was told of the file: what happened, where, and whether its thread was known.
    fn read_through(
        observer: &mut Observer,
        path: &std::path::Path,
        meta: &fs::Metadata,
    ) -> Vec<(Kind, u64, bool)> {
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", path.display())).args(["of=/dev/null", "bs=32768", "status=none"]);
        let mut dd = dd.spawn().unwrap();
        assert!(dd.wait().unwrap().success());
        assert_eq!(observer.lost(), 0);
        let told = observer.drain();
        let its = |touch: &&Touch| (touch.named.dev, touch.named.ino) == (meta.dev(), meta.ino());
        let its: Vec<&Touch> = told.iter().filter(its).collect();
        assert!(its.iter().all(|touch| touch.pid == dd.id() && touch.tid == dd.id()));
        its.iter().map(|touch| (touch.kind, touch.named.first, touch.since_ns.is_some())).collect()
    }
}
