//! The programs against the kernel that runs: what they tell, what they do not, and whose.

use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::observer::tests::on_a_disk;
use crate::tracepoints::kernels_device;

/// One test at a time: what this process starts is everybody's.
static TURN: Mutex<()> = Mutex::new(());

/// The programs, or why they cannot be had here.
fn programs() -> Option<(Programs, MutexGuard<'static, ()>)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match Programs::watch_what_we_start() {
        Ok(programs) => Some((programs, turn)),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

#[test]
fn only_what_is_not_settled_is_told() {
    let Some((mut programs, _turn)) = programs() else { return };
    let Some(dir) = on_a_disk() else { return };
    let path = dir.path().join("data");
    std::fs::write(&path, vec![7; 128 * PAGE]).unwrap();
    let file = File::open(&path).unwrap();
    let meta = file.metadata().unwrap();
    let of = (kernels_device(meta.dev()), meta.ino());
    let ours = |programs: &mut Programs| -> Vec<Record> {
        let told = programs.drain();
        told.into_iter().filter(|record| (record.dev, record.ino) == of).collect()
    };
    assert_eq!(programs.publish(of, 3, 0, !0), None);
    // Ourselves we do not watch.
    file.read_at(&mut [0; PAGE], 100 * PAGE as u64).unwrap();
    assert_eq!(ours(&mut programs), []);
    let child = || {
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", path.display())).args(["of=/dev/null", "bs=4096", "status=none"]);
        let mut child = dd.spawn().unwrap();
        assert!(child.wait().unwrap().success());
        child.id()
    };
    let pid = child();
    let told = ours(&mut programs);
    let pages: Vec<u64> = told.iter().map(|record| record.first).collect();
    assert_eq!(pages, (64..128).collect::<Vec<_>>());
    assert!(told.iter().all(|record| record.pid() == pid && record.kind() == Kind::Read));
    assert!(told.iter().all(|record| record.since_ns > 0 && record.since_ns < record.at_ns));
    assert_eq!(programs.harvest(of, 3, 0), Some(Harvest { file: 3, leaf: 0, used: !0 }));
    assert_eq!(programs.harvest(of, 3, 0), None);
    assert_eq!(programs.lost(), 0);
    // What is gone is no longer settled: its miss is told, and its end.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    file.sync_all().unwrap();
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    child();
    let told = ours(&mut programs);
    let first = |kind: Kind| told.iter().find(|record| record.kind() == kind).map(|record| record.first);
    assert_eq!((first(Kind::Miss), first(Kind::Read)), (Some(0), Some(0)));
}

#[test]
fn a_process_is_the_runs_until_it_ends() {
    let Some((programs, _turn)) = programs() else { return };
    let watched = |pid: u32| {
        let word = &programs.shared.layout().processes[pid as usize / 64];
        word.load(Ordering::SeqCst) >> (pid % 64) & 1 == 1
    };
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    assert!(watched(child.id()) && !watched(std::process::id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!watched(child.id()));
}

#[test]
fn the_bell_is_rung_once_for_each_time_it_is_hung() {
    let Some((mut programs, _turn)) = programs() else { return };
    let rang = |programs: &Programs| {
        let mut poll = libc::pollfd { fd: programs.bell(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure of ours.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    };
    assert!(!rang(&programs));
    programs.hang_bell();
    let read = Command::new("cat").arg(std::env::current_exe().unwrap()).stdout(Stdio::null()).status();
    assert!(read.unwrap().success());
    assert!(rang(&programs));
    assert_eq!(programs.shared.layout().asleep.load(Ordering::SeqCst), 0);
    assert!(!programs.drain().is_empty());
    assert!(!rang(&programs));
}

#[test]
fn a_refusal_is_told_in_the_kernels_words() {
    if programs().is_none() {
        return;
    }
    // A program without an end.
    let why = load(0, &[]).unwrap_err();
    assert!(why.starts_with("a BPF program is refused: "), "{why}");
    assert_eq!(last_words(b"0: (95) exit\nR0 !read_ok\nprocessed 1 insns\n\0\0"), Some("R0 !read_ok"));
    assert_eq!(last_words(b"\0"), None);
}

#[test]
fn no_record_is_too_short() {
    let record =
        Record { at_ns: 9, who: 5 << 32 | 6, ino: 1, first: 2, last: 3, since_ns: 4, dev: 7, kind: 1 };
    // SAFETY: plain words without padding.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const record).cast::<u8>(), size_of::<Record>()) };
    assert_eq!(Record::parse(bytes), Some(record));
    assert_eq!((record.pid(), record.tid(), record.kind()), (5, 6, Kind::Read));
    assert_eq!(Record::parse(&bytes[..55]), None);
}
