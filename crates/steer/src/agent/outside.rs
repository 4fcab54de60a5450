//! The observer outside: reads of programs that no library reaches, through tracepoints of the page cache.
//!
//! ```text
//!   a static program reads 32 KiB     page_cache_sync_ra  [0,+8)   about to miss: Read is told, the clock runs
//!                                     mm_filemap_get_pages [0,+8)  has its pages: the wait has ended
//!                    reads on         mm_filemap_get_pages [8,+8)  all there: used; a mark among them, or pages under way: told
//! ```
//!
//! A tracepoint names a device and an inode. We look for a descriptor of that file in the process and open it through
//! /proc; one that was closed meanwhile is left alone for a moment. Processes that carry our library tell of themselves
//! and are passed over here. The kernel's own readahead stays as it is: from outside nobody can put it back if we die.
//!
//! Who tells of the tracepoints, programs in the kernel or perf, is `observer`'s affair (docs/decisions/0021). Pages that are
//! settled are published to it as to the library, and what was read of them is harvested as from the library. It takes root, or
//! CAP_PERFMON and leave to read tracefs.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use bowwave_core::{Extent, Nanos, PAGE_SIZE};
use bowwave_wire::{Event, Harvest, Kind};

use super::helper::Helper;
use super::{SIZE_MIN, State};
use crate::observer::{Observer, OutsideBy, Touch};
use crate::segment::SharedSegment;
use crate::tracepoints::{self, Named};

/// A file that could not be found in its process is looked for again after so long.
const LOST_NS: u64 = 20_000_000;
/// Files that are remembered.
const FILES_MAX: usize = 16_384;
/// Threads whose latest miss is remembered.
const THREADS_MAX: usize = 4096;
/// Reads so recent that more may come at any moment.
const LATELY_NS: u64 = 20_000_000;

/// So often it is looked whether those that tell of themselves still do.
const COVERED_NS: u64 = 1_000_000_000;

/// What is known of a file that a tracepoint names.
#[derive(Clone, Copy)]
enum Known {
    /// Where it was found.
    Found { pid: u32, fd: i32, mapped: u64, file: u32, generation: u32 },
    /// Nothing to steer.
    LeftAlone,
    /// Not found, then.
    Lost(Nanos),
}

/// A read that is about to miss.
#[derive(Clone, Copy)]
struct Miss {
    named: Named,
    at_ns: u64,
}

/// Who tells of what the thread that opened it starts.
pub(super) struct Opened {
    observer: Observer,
    /// Why it is not a better one.
    instead: Option<String>,
}

impl Opened {
    /// Opens it, or says why not.
    pub(super) fn on_this_thread(by: OutsideBy) -> Result<Self, String> {
        Observer::open(by).map(|(observer, instead)| Self { observer, instead })
    }
}

/// The observer outside.
#[derive(Default)]
pub(super) struct Outside {
    opened: Option<Opened>,
    helper: Option<Arc<Helper>>,
    files: HashMap<(u64, u64), Known>,
    misses: HashMap<u32, Miss>,
    /// Processes that carry our library, and those of them of which the observer told lately.
    covered: HashSet<u32>,
    covered_told: HashSet<u32>,
    covered_kept: Nanos,
    lately: Nanos,
}

impl Outside {
    pub(super) fn begin(&mut self, mut opened: Opened, segment: &Arc<SharedSegment>) {
        opened.observer.hang_bell();
        self.helper = Helper::start(opened.observer.bells(), Arc::clone(segment));
        self.opened = Some(opened);
    }

    pub(super) fn is_open(&self) -> bool {
        self.opened.is_some()
    }

    /// The process tells of itself from now on, or has ended.
    pub(super) fn covers(&mut self, pid: u32, covered: bool) {
        if covered {
            self.covered.insert(pid);
        } else {
            self.covered.remove(&pid);
        }
    }

    /// Whether the process tells of itself.
    fn passes_over(&mut self, pid: u32) -> bool {
        let covered = self.covered.contains(&pid);
        if covered {
            self.covered_told.insert(pid);
        }
        covered
    }

    /// Leaves out who tells of himself no more: who was killed, and who has become a program that our library does not reach. Neither
    /// can say so. Who is not heard of from outside is only asked whether he lives.
    fn keep_covered(&mut self, carries_it: impl Fn(u32) -> bool) {
        let told = std::mem::take(&mut self.covered_told);
        self.covered.retain(|&pid| if told.contains(&pid) { carries_it(pid) } else { lives(pid) });
    }

    /// Who tells, for the report.
    pub(super) fn known_by(&self) -> &'static str {
        self.opened.as_ref().map_or("nobody", |opened| opened.observer.words())
    }

    /// Why nobody better tells.
    pub(super) fn instead(&self) -> Option<String> {
        self.opened.as_ref()?.instead.clone()
    }

    /// Touches that found their ring full.
    pub(super) fn lost(&self) -> u64 {
        self.opened.as_ref().map_or(0, |opened| opened.observer.lost())
    }

    /// Pages of a leaf that nobody needs to hear of; returns what was read of the leaf that had its place.
    pub(super) fn publish(&mut self, of: (u64, u64), file: u32, leaf: u64, settled: u64) -> Option<Harvest> {
        self.opened.as_mut()?.observer.publish(of, file, leaf, settled)
    }

    /// What was read of a leaf and not told.
    pub(super) fn harvest(&self, of: (u64, u64), file: u32, leaf: u64) -> Option<Harvest> {
        self.opened.as_ref()?.observer.harvest(of, file, leaf)
    }

    fn hang_bell(&mut self) {
        if let Some(opened) = &mut self.opened {
            opened.observer.hang_bell();
        }
    }
}

impl State {
    pub(super) fn look_outside(&mut self) {
        let Some(opened) = &mut self.outside.opened else { return };
        for touch in opened.observer.drain() {
            if !self.outside.passes_over(touch.pid) {
                self.seen(&touch);
            }
        }
    }

    /// Once a second.
    pub(super) fn keep_outside(&mut self, now: Nanos) {
        if now.since(self.outside.covered_kept).0 < COVERED_NS {
            return;
        }
        self.outside.covered_kept = now;
        let segment = &self.segment;
        self.outside.keep_covered(|pid| segment.path().is_some_and(|path| maps(pid, path)));
    }

    pub(super) fn seen(&mut self, touch: &Touch) {
        let named = touch.named;
        let Some(Known::Found { pid, fd, mapped, file, generation }) = self.find_file(touch.pid, named)
        else {
            return;
        };
        self.outside.lately = self.now();
        if self.outside.misses.len() >= THREADS_MAX {
            self.outside.misses.clear();
        }
        let event = |kind, at_ns, waited_ns: u64, named: Named| {
            let event = Event {
                kind,
                detail: 0,
                pid,
                tid: touch.tid,
                fd,
                file,
                generation,
                offset: named.first * PAGE_SIZE,
                len: named.count * PAGE_SIZE,
                at_ns,
                waited_ns: u32::try_from(waited_ns).unwrap_or(u32::MAX),
            };
            if mapped == 0 { event } else { Event { kind: Kind::Map, ..event } }
        };
        match touch.kind {
            tracepoints::Kind::Miss => {
                self.outside.misses.insert(touch.tid, Miss { named, at_ns: touch.at_ns });
                self.take_from_outside(&event(Kind::Read, touch.at_ns, 0, named), mapped);
            }
            tracepoints::Kind::Read => {
                // The end of another read may have been quiet: its pages came, and were published, before it had them.
                let missed = self.outside.misses.remove(&touch.tid);
                if let Some(miss) = missed.filter(|miss| named.holds(miss.named)) {
                    let waited = touch.at_ns.saturating_sub(miss.at_ns);
                    self.take_from_outside(&event(Kind::Done, touch.at_ns, waited, miss.named), mapped);
                    return;
                }
                let pages = Extent::new(named.first, named.count);
                if self.knows(file, generation) && self.is_quiet(file, pages) {
                    let waited = touch.since_ns.map_or(0, |since| touch.at_ns.saturating_sub(since));
                    if !self.is_wait(file, pages, waited) || self.is_settled(file, pages) {
                        self.used(file, pages, self.now());
                    } else {
                        // It was under way; how long it was waited for is no longer than since the read before.
                        self.take_from_outside(&event(Kind::Done, touch.at_ns, waited, named), mapped);
                    }
                    return;
                }
                self.take_from_outside(&event(Kind::Read, touch.at_ns, 0, named), mapped);
                self.take_from_outside(&event(Kind::Done, touch.at_ns, 0, named), mapped);
            }
            tracepoints::Kind::Fault => {
                self.take_from_outside(&event(Kind::Read, touch.at_ns, 0, named), mapped)
            }
        }
    }

    /// A file that is only mapped is met by its mapping, whatever is told of it.
    fn take_from_outside(&mut self, event: &Event, mapped: u64) {
        self.events += 1;
        self.vain = self.vain.saturating_add(1);
        if mapped != 0 {
            if !self.meet(&event.at_address(mapped), self.now()) {
                return;
            }
            return self.take(&Event { kind: Kind::Read, fd: -1, detail: 0, waited_ns: 0, ..*event });
        }
        self.take(event);
    }

    pub(super) fn knows(&self, file: u32, generation: u32) -> bool {
        self.files.get(&file).is_some_and(|held| held.generation == generation)
    }

    /// Finds the file in the process, by its descriptors and then by its mappings; once, as long as we hold it.
    fn find_file(&mut self, pid: u32, named: Named) -> Option<Known> {
        let key = (named.dev, named.ino);
        let now = self.now();
        match self.outside.files.get(&key) {
            Some(&found @ Known::Found { file, generation, .. }) => {
                let held = self.files.get(&file).filter(|held| held.generation == generation);
                let ignored = self
                    .segment
                    .file(file)
                    .is_some_and(|slot| slot.ignored.load(std::sync::atomic::Ordering::Relaxed) != 0);
                if ignored || held.is_some_and(|held| held.descriptor.is_some()) {
                    return Some(found);
                }
            }
            Some(Known::LeftAlone) => return None,
            Some(&Known::Lost(at)) if now.since(at).0 < LOST_NS => return None,
            _ => {}
        }
        if self.outside.files.len() >= FILES_MAX {
            self.outside.files.clear();
        }
        let known = match search(pid, named) {
            None => Known::Lost(now),
            Some((_, _, size)) if size < SIZE_MIN => {
                if let Some(opened) = &self.outside.opened {
                    opened.observer.leave_alone(key);
                }
                Known::LeftAlone
            }
            Some((fd, mapped, size)) => match self.segment.bind(named.dev, named.ino, size) {
                Some(slot) => Known::Found { pid, fd, mapped, file: slot.index, generation: slot.generation },
                None => Known::LeftAlone,
            },
        };
        self.outside.files.insert(key, known);
        matches!(known, Known::Found { .. }).then_some(known)
    }

    /// How long may be slept on account of the outside.
    pub(super) fn outside_patience(&mut self, now: Nanos) -> Option<u64> {
        if !self.outside.is_open() {
            return None;
        }
        if now.since(self.outside.lately).0 < LATELY_NS {
            let look = self.look_ns();
            return Some(if self.vain >= super::VAIN_MAX { look.max(self.doze_ns()) } else { look });
        }
        self.outside.hang_bell();
        if let Some(helper) = &self.outside.helper {
            helper.arm();
        }
        None
    }
}

fn lives(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether the process has the segment at `path` mapped, as our library has until the process becomes another program. It may see the
/// folder elsewhere; the name is the segment's alone. Who cannot be looked at is believed to.
fn maps(pid: u32, path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return true };
    match fs::read(format!("/proc/{pid}/maps")) {
        Ok(maps) => maps.windows(name.len()).any(|word| word == name.as_bytes()),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// A descriptor of the file in the process, or an address where it is mapped and not to be executed; and its size.
fn search(pid: u32, named: Named) -> Option<(i32, u64, u64)> {
    let is_it = |meta: &fs::Metadata| meta.is_file() && (meta.dev(), meta.ino()) == (named.dev, named.ino);
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        if let Ok(meta) = fs::metadata(entry.path())
            && is_it(&meta)
            && let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok())
        {
            return Some((fd, 0, meta.len()));
        }
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let device = format!("{:02x}:{:02x}", libc::major(named.dev), libc::minor(named.dev));
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (range, rights) = (words.next()?, words.next()?);
        let (on, inode) = (words.nth(1)?, words.next()?);
        if on != device || inode.parse() != Ok(named.ino) || rights.contains('x') {
            continue;
        }
        let address = u64::from_str_radix(range.split_once('-')?.0, 16).ok()?;
        let meta = fs::metadata(format!("/proc/{pid}/map_files/{range}")).ok().filter(is_it)?;
        return Some((0, address, meta.len()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// Of three that told of themselves one was killed, one has become another program, and one reads on.
    #[test]
    fn who_cannot_say_so_is_covered_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let segment = SharedSegment::create_in(dir.path()).unwrap();
        let path = segment.path().unwrap();
        let start = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (mut killed, mut other) = (start(), start());
        let mut outside = Outside::default();
        let pids = [killed.id(), other.id(), std::process::id()];
        pids.iter().for_each(|&pid| outside.covers(pid, true));
        killed.kill().unwrap();
        killed.wait().unwrap();
        outside.keep_covered(|pid| maps(pid, path));
        assert_eq!(pids.map(|pid| outside.covered.contains(&pid)), [false, true, true], "nothing was told");
        assert_eq!(pids.map(|pid| outside.passes_over(pid)), [false, true, true]);
        outside.keep_covered(|pid| maps(pid, path));
        assert_eq!(pids.map(|pid| outside.passes_over(pid)), [false, false, true]);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_file_is_found_by_its_inode() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(12_345).unwrap();
        let meta = file.metadata().unwrap();
        let named = Named { dev: meta.dev(), ino: meta.ino(), first: 0, count: 1 };
        assert_eq!(search(std::process::id(), named), Some((file.as_raw_fd(), 0, 12_345)));
        assert_eq!(search(std::process::id(), Named { ino: 1, ..named }), None);
    }
}
