//! A fake agent: makes a segment, keeps its heart beating, collects what it is told, and decides nothing by itself.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bowwave_wire::{AGENT_SERVING, Event, Kind, Segment, Standing};

/// Files smaller than this are left alone in these tests.
pub(crate) const SIZE_MIN: u64 = 16 << 10;

pub(crate) struct Agent {
    pub(crate) segment: &'static Segment,
    pub(crate) path: PathBuf,
    events: Arc<Mutex<Vec<Event>>>,
    stop: Arc<AtomicBool>,
    /// While set, nothing is popped.
    pub(crate) deaf: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the fake agent does with a page that it hears of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Nothing: every read is loud.
    Listen,
    /// Every file it meets is settled at once, all of it.
    SettleAll,
}

impl Agent {
    pub(crate) fn new(dir: &Path, manner: Manner) -> Self {
        let path = dir.join("segment");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(size_of::<Segment>() as u64).unwrap();
        let segment = map(&file);
        segment.initialise(std::process::id() as i32);
        segment.size_min.store(SIZE_MIN, Ordering::Relaxed);
        segment.heartbeat_ns.store(now_ns(), Ordering::Relaxed);
        segment.agent_state.store(AGENT_SERVING, Ordering::Release);
        let (events, stop, deaf): (Arc<Mutex<Vec<Event>>>, Arc<AtomicBool>, Arc<AtomicBool>) =
            Default::default();
        let thread = thread::spawn({
            let (events, stop, deaf) = (events.clone(), stop.clone(), deaf.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    segment.heartbeat_ns.store(now_ns(), Ordering::Relaxed);
                    if !deaf.load(Ordering::Relaxed) {
                        drain(segment, manner, &events);
                    }
                    thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Self { segment, path, events, stop, deaf, thread: Some(thread) }
    }

    /// The heart stops; the segment stays as it is.
    pub(crate) fn die(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Everything told so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        drain(self.segment, Manner::Listen, &self.events);
        self.events.lock().unwrap().clone()
    }

    /// The reads told of one file, in order: offset and length.
    pub(crate) fn reads_of(&self, path: &Path) -> Vec<(u64, u64)> {
        let file = self.slot_of(path);
        let told = self.events();
        told.iter()
            .filter(|e| e.kind == Kind::Read && Some(e.file) == file)
            .map(|e| (e.offset, e.len))
            .collect()
    }

    /// Waits until a file that was met is settled, which says of its first page that it was read.
    pub(crate) fn wait_settled(&self, slot: u32) {
        let of = self.segment.file_ref(slot).unwrap().tag();
        while self.segment.touch(of, 0, 4096) != Standing::Settled {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the use of the first 256 pages back, and counts them.
    pub(crate) fn harvest(&self, slot: u32) -> u32 {
        (0..4).filter_map(|leaf| self.segment.harvest(slot, leaf)).map(|taken| taken.used.count_ones()).sum()
    }

    /// The index of the file's slot, if it was met.
    pub(crate) fn slot_of(&self, path: &Path) -> Option<u32> {
        let about = std::fs::metadata(path).unwrap();
        (0..bowwave_wire::FILES_MAX as u32).find(|index| {
            self.segment.file(*index).is_some_and(|slot| {
                slot.dev.load(Ordering::Relaxed) == about.dev()
                    && slot.ino.load(Ordering::Relaxed) == about.ino()
            })
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.die();
    }
}

fn drain(segment: &Segment, manner: Manner, events: &Mutex<Vec<Event>>) {
    // One at a time: a test asks while the thread pops.
    let mut events = events.lock().unwrap();
    while let Some(event) = segment.pop() {
        if event.kind == Kind::Seen && manner == Manner::SettleAll {
            for leaf in 0..=event.len >> 18 {
                segment.publish(event.file, leaf, !0, !0);
            }
        }
        events.push(event);
    }
}

pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Maps a segment for the rest of the test process.
fn map(file: &File) -> &'static Segment {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of a file that is large enough; never unmapped; atomics only.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            size_of::<Segment>(),
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast::<Segment>()
    }
}
