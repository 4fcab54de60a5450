//! The agent with a program that is a few lines long.

use super::housekeeping::HARVEST_MAX;
use super::*;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::observer::Touch;
use crate::tracepoints::{self, Named};
use bowwave_core::{Action, FileId, Input};
use bowwave_wire::{ENDS, Event, FILES_MAX, Harvest, KERNEL_ON, Kind};

/// An agent that does what it is told to, with its segment and the folder of that.
fn unstarted() -> (tempfile::TempDir, Arc<SharedSegment>, State) {
    let dir = tempfile::tempdir().unwrap();
    let segment = Arc::new(SharedSegment::create_in(dir.path()).unwrap());
    let state = State::new(Arc::clone(&segment), Options::default(), Arc::default(), Arc::default());
    (dir, segment, state)
}

/// The program's side: what the shim does, in a few lines.
struct Program<'a> {
    segment: &'a SharedSegment,
    file: File,
    slot: bowwave_wire::FileRef,
}

impl<'a> Program<'a> {
    fn open(segment: &'a SharedSegment, file: File) -> Self {
        let meta = file.metadata().unwrap();
        let slot = segment.bind(meta.dev(), meta.ino(), meta.len()).unwrap();
        let this = Self { segment, file, slot };
        this.tell(Kind::Seen, 0, meta.len(), 0);
        this
    }

    fn tell(&self, kind: Kind, offset: u64, len: u64, waited_ns: u32) {
        let event = self.event(kind);
        if self.segment.push(&Event { offset, len, waited_ns, ..event }) {
            ring(&self.segment.bell);
        }
    }

    fn event(&self, kind: Kind) -> Event {
        Event {
            kind,
            detail: 0,
            pid: std::process::id(),
            tid: 1,
            fd: self.file.as_raw_fd(),
            file: self.slot.index,
            generation: self.slot.generation,
            offset: 0,
            len: 0,
            at_ns: monotonic_ns(),
            waited_ns: 0,
        }
    }

    fn close(self) {
        let (segment, event) = (self.segment, self.event(Kind::Closed));
        drop(self);
        segment.push(&event);
    }

    /// Reads, and says whether anybody wanted to hear of it.
    fn read(&self, offset: u64, len: usize) -> bool {
        let standing = self.segment.touch(self.slot.tag(), offset, len as u64);
        let loud = standing == bowwave_wire::Standing::Loud;
        if loud {
            self.tell(Kind::Read, offset, len as u64, 0);
        }
        let began = Instant::now();
        self.file.read_at(&mut vec![0; len], offset).unwrap();
        let waited = began.elapsed().as_nanos() as u32;
        if waited > 5_000 {
            self.tell(Kind::Done, offset, len as u64, waited);
        }
        loud
    }
}

fn temporary(pages: usize) -> (tempfile::TempDir, File) {
    // Not in /tmp, which may be memory: there is nothing to read ahead there.
    let dir = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; pages * 4096]).unwrap();
    (dir, File::open(path).unwrap())
}

fn absent(file: &File) {
    file.sync_all().unwrap();
    // SAFETY: advice on an open descriptor touches no memory of ours.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn agent() -> (tempfile::TempDir, Agent) {
    let dir = tempfile::tempdir().unwrap();
    let segment = Arc::new(SharedSegment::create_in(dir.path()).unwrap());
    let agent = Agent::serve(segment, Options { lend_windows: false, ..Options::default() });
    (dir, agent)
}

#[test]
fn a_reader_is_run_ahead_of() {
    let (_dir, agent) = agent();
    let (_tmp, file) = temporary(4096);
    absent(&file);
    let segment = Arc::clone(&agent.segment);
    let program = Program::open(&segment, file);
    let loud = |i: &u64| {
        let told = program.read(i * 131_072, 131_072);
        std::thread::sleep(Duration::from_millis(1)); // a reader that is over before the agent has woken meets no quiet page
        told
    };
    let loud = (0..4096 / 32).filter(loud).count();
    let report = agent.stop().unwrap();
    assert!(loud < 128, "some pages became quiet");
    assert_eq!(report.bytes_used, 4096 * 4096);
    assert_eq!(report.files.len(), 1);
    assert!(report.decisions.windows > 0 && report.decisions.pages_ahead > 0, "{report:?}");
    assert_eq!((report.events_lost, report.not_steered.len()), (0, 0), "{report:?}");
}

/// A storage that hangs holds up the agent, not the parent of the program.
#[test]
fn an_agent_that_is_held_up_is_left_behind() {
    let (_dir, mut agent) = agent();
    let segment = Arc::clone(&agent.segment);
    let (hung, report) = channel();
    agent.report = report;
    assert!(agent.stop().is_none());
    assert!(
        !segment.path().is_some_and(std::path::Path::exists)
            && segment.agent_state.load(Ordering::SeqCst) == AGENT_GONE
    );
    drop(hung);
}

#[test]
fn a_cached_file_goes_quiet() {
    let (_dir, agent) = agent();
    let (_tmp, file) = temporary(2048);
    let segment = Arc::clone(&agent.segment);
    let program = Program::open(&segment, file);
    for i in 0..64 {
        program.read(i * 4096, 4096);
        std::thread::sleep(Duration::from_millis(1));
    }
    let loud = (0..2048).filter(|i| program.read(i * 4096, 4096)).count();
    let report = agent.stop().unwrap();
    assert!(loud < 200, "{loud} of 2048 reads of present pages were told");
    assert_eq!(report.bytes_fetched, 0, "{report:?}");
}

#[test]
fn a_dry_run_fetches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let segment = Arc::new(SharedSegment::create_in(dir.path()).unwrap());
    let agent = Agent::serve(Arc::clone(&segment), Options { dry_run: true, ..Options::default() });
    assert_eq!(segment.kernel_default.load(Ordering::Relaxed), KERNEL_AS_IS);
    let (_tmp, file) = temporary(1024);
    absent(&file);
    let program = Program::open(&segment, file);
    assert!((0..32).all(|i| program.read(i * 131_072, 131_072)), "nothing is quiet");
    let report = agent.stop().unwrap();
    assert_eq!((report.bytes_fetched, report.fetch_calls), (0, 0));
    assert!(report.decisions.windows > 0);
}

#[test]
fn a_file_that_was_not_asked_for_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let segment = Arc::new(SharedSegment::create_in(dir.path()).unwrap());
    let selection = Selection { only: vec!["*.gguf".into()], except: Vec::new() };
    let agent = Agent::serve(Arc::clone(&segment), Options { selection, ..Options::default() });
    let (_tmp, file) = temporary(64);
    let program = Program::open(&segment, file);
    let slot = segment.file(program.slot.index).unwrap();
    let began = Instant::now();
    while slot.ignored.load(Ordering::Acquire) == 0 && began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(slot.kernel.load(Ordering::Relaxed), KERNEL_ON);
    assert_eq!(agent.stop().unwrap().not_steered.values().sum::<u64>(), 1);
}

/// A reader has come to page 75 when the agent comes to his read of [70, 72). What he read on his way there is told before it, what he
/// has read since after it, and the read itself once.
#[test]
fn a_read_is_told_between_what_was_read_before_it_and_what_was_read_since() {
    let (_dir, segment, state) = unstarted();
    let (_tmp, file) = temporary(256);
    let meta = file.metadata().unwrap();
    let slot = segment.bind(meta.dev(), meta.ino(), meta.len()).unwrap();
    for leaf in 0..4 {
        assert_eq!(segment.publish(slot.index, leaf, !0, !0), None);
    }
    let touch = |pages: Extent| {
        segment.touch(slot.tag(), pages.start.byte(), pages.count.bytes().0);
    };
    touch(Extent::new(62, 8));
    touch(Extent::new(70, 2));
    touch(Extent::new(72, 3));
    touch(Extent::new(250, 1));
    let of = |leaf, used| Harvest { file: slot.index, leaf, used };
    let [before, since] = state.harvest_around(slot.index, Extent::new(70, 2));
    assert_eq!(before, [of(0, 0b11 << 62), of(1, 0b11_1111)]);
    assert_eq!(since, [of(1, 0b111 << 8), of(3, 1 << (250 - 192))]);
    assert_eq!(state.harvest_around(slot.index, Extent::new(70, 2)), [vec![], vec![]], "it is told once");
}

/// Who was heard of at page 70 and is far away now has read on to page 75 meanwhile: that is told before, and where others read is not his.
#[test]
fn what_a_reader_read_where_he_left_off_is_told_before_he_reads_elsewhere() {
    let (_dir, segment, mut state) = unstarted();
    let (_tmp, file) = temporary(4096);
    let meta = file.metadata().unwrap();
    let slot = segment.bind(meta.dev(), meta.ino(), meta.len()).unwrap();
    let id = FileId(u64::from(slot.index));
    state.wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(meta.len()) });
    state.wave.handle(Nanos(0), Input::Read { file: id, pages: Extent::new(70, 2), actor: 5 });
    for leaf in 0..64 {
        assert_eq!(segment.publish(slot.index, leaf, !0, !0), None);
    }
    for pages in [Extent::new(72, 3), Extent::new(1000, 1)] {
        segment.touch(slot.tag(), pages.start.byte(), pages.count.bytes().0);
    }
    let left_off = |page, tid| state.harvest_left_off(tid, (id, Extent::new(page, 1)));
    assert_eq!(left_off(3000, 6), [], "of another reader nothing is known");
    assert_eq!(left_off(140, 5), [], "near by, a look around the read finds it");
    assert_eq!(left_off(3000, 5), [Harvest { file: slot.index, leaf: 1, used: 0b111 << 8 }]);
    assert_eq!(left_off(3000, 5), [], "it is told once");
}

/// A file system shall be unmountable by the program that comes after the one that read there.
#[test]
fn what_was_closed_is_let_go_of_at_once_and_what_another_has_open_is_not() {
    let (_dir, segment, mut state) = unstarted();
    let (tmp, file) = temporary(64);
    let second = file.try_clone().unwrap();
    let (first, second) = (Program::open(&segment, file), Program::open(&segment, second));
    let slot = first.slot.index;
    let holds_it = |state: &mut State| {
        state.drain(DRAIN_MAX);
        state.let_go_of_closed();
        state.files[&slot].descriptor.is_some()
    };
    assert!(holds_it(&mut state), "it was met");
    second.tell(Kind::Read, 0, 4096, 0);
    first.close();
    assert!(holds_it(&mut state), "the second has told last, and has it open");
    second.close();
    assert!(!holds_it(&mut state));
    // Who ends says so while he still has it open.
    let again = Program::open(&segment, File::open(tmp.path().join("file")).unwrap());
    assert!(holds_it(&mut state));
    segment.push(&Event { detail: ENDS, file: u32::MAX, fd: -1, ..again.event(Kind::Process) });
    assert!(!holds_it(&mut state));
}

/// 8 MiB in one read. The agent fetches what the read only comes to later; what it has fetched when the read returns was not brought by
/// the read as well.
#[test]
fn what_is_fetched_while_a_large_read_goes_on_is_counted_once() {
    let (_dir, segment, mut state) = unstarted();
    let (_tmp, file) = temporary(2048);
    absent(&file);
    let program = Program::open(&segment, file);
    let read = 2048 * 4096;
    program.tell(Kind::Read, 0, read, 0);
    state.drain(DRAIN_MAX);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(200) {
        state.act();
        std::thread::sleep(Duration::from_millis(1));
    }
    program.file.read_at(&mut vec![0; read as usize], 0).unwrap();
    // It has waited; it is read again, by who is held up by others.
    for waited_ns in [100_000_000, 100_000_000] {
        program.tell(Kind::Done, 0, read, waited_ns);
        state.drain(DRAIN_MAX);
    }
    let report = state.finish();
    if report.bytes_fetched == 0 {
        println!("skipped: what was written is still in memory");
        return;
    }
    assert_eq!((report.bytes_used, report.bytes_fetched + report.bytes_missed), (read, read), "{report:?}");
    assert_eq!((report.bytes_in_vain, report.fetched_per_used), (0, Some(1.0)), "{report:?}");
}

/// A read missed page 20, and its end was quiet: the page came and was published in between. The read of page 21 is one of its own.
#[test]
fn a_miss_ends_with_its_own_read() {
    let (_dir, _segment, mut state) = unstarted();
    let (_tmp, file) = temporary(64);
    let meta = file.metadata().unwrap();
    let mut touch = |kind, first| {
        let named = Named { dev: meta.dev(), ino: meta.ino(), first, count: 1 };
        let (pid, at_ns) = (std::process::id(), monotonic_ns());
        state.seen(&Touch { kind, pid, tid: 1, at_ns, since_ns: None, named });
    };
    for (kind, page) in [
        (tracepoints::Kind::Miss, 20),
        (tracepoints::Kind::Read, 21),
        (tracepoints::Kind::Miss, 40),
        (tracepoints::Kind::Read, 40),
    ] {
        touch(kind, page);
    }
    assert_eq!(state.finish().bytes_used, 3 * 4096);
}

/// 6 GiB of published leaves, a page of each read: three housekeepings have heard of them all. What is quiet no longer is left out.
#[test]
fn housekeeping_goes_round_all_published_leaves() {
    let (_dir, segment, mut state) = unstarted();
    let leaves = 3 * HARVEST_MAX as u64;
    let slot = segment.bind(1, 2, leaves << 18).unwrap();
    let id = FileId(u64::from(slot.index));
    state.wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(leaves << 18) });
    for leaf in 0..leaves {
        state.wave.handle(Nanos(0), Input::Present { file: id, pages: Extent::new(64 * leaf, 1) });
        assert_eq!(segment.publish(slot.index, leaf, 1, 1), None);
        state.published.insert((slot.index, leaf));
    }
    for round in 0..2 {
        (0..leaves).for_each(|leaf| _ = segment.touch(slot.tag(), leaf << 18, 4096));
        for _ in 0..3 {
            state.harvest(Nanos(round), HARVEST_MAX);
        }
        assert!((0..leaves).all(|leaf| segment.harvest(slot.index, leaf).is_none()), "round {round}");
    }
    assert_eq!(state.published.len() as u64, leaves);
    state.wave.handle(Nanos(0), Input::Dropped { file: id, pages: Extent::new(0, 64 * 8) });
    state.harvest(Nanos(0), usize::MAX);
    assert_eq!(state.published.len() as u64, leaves - 8);
}

/// Files that nobody tells of, or that we refuse, take no more than a third of the slots: each of five times as many as there are finds one.
#[test]
fn slots_of_files_that_are_not_steered_are_given_back() {
    let (_dir, segment, mut state) = unstarted();
    for round in 0..80 {
        for ino in 0..FILES_MAX as u64 / 16 {
            let slot = segment.bind(1, round << 32 | ino, 1 << 20).unwrap();
            if ino % 2 == 0 {
                state.refuse(slot.index, Refusal::NotPermitted);
            }
        }
        state.free_slots();
        assert!(segment.files_bound() as usize >= FILES_MAX / 16, "who has just come is not sent away");
        state.free_slots();
    }
    let report = state.finish();
    let told: Vec<(&str, u64)> = report.not_steered.iter().map(|(words, &n)| (words.as_str(), n)).collect();
    assert_eq!(told, [("file | not readable by bowwave", 80 * FILES_MAX as u64 / 32)]);
}

/// A page that nobody may look at is waited for by a thread, which a storage that hangs never answers.
#[test]
fn a_fetch_that_a_prober_waits_for_in_vain_is_given_up() {
    let (_dir, _segment, mut state) = unstarted();
    let file = FileId(3);
    state.wave.handle(Nanos(0), Input::Open { file, device: 0, size: Bytes(1 << 30) });
    state.wave.handle(Nanos(0), Input::Read { file, pages: Extent::new(0, 1), actor: 1 });
    let Some(Action::Fetch { id, pages, .. }) = state.wave.poll(Nanos(0)) else { panic!("nothing to fetch") };
    let out = |probed| Out { file: 3, device: 0, pages, issued: Nanos(0), probed };
    let failed = |state: &State| state.wave.counters().fetches_failed;
    for (probed, seconds, expected) in [(true, 30, 0), (false, 31, 0), (true, 31, 1), (true, 60, 1)] {
        if failed(&state) == 0 {
            state.out.insert(id, out(probed));
        }
        state.give_up_probed(Nanos(seconds * 1_000_000_000));
        assert_eq!((failed(&state), state.out.len() as u64), (expected, 1 - expected), "{probed} {seconds}");
    }
}
