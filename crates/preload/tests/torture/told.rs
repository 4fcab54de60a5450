//! What the agent is told: every read that it has not declared quiet, once, where it really starts.

use std::sync::atomic::Ordering;

use bowwave_wire::{Event, Kind};

use crate::agent::{Manner, SIZE_MIN};
use crate::program::{Bench, compile, library};

#[test]
fn every_call_that_reads_is_told_once_and_in_place() {
    Bench::new().tells("reads.c", &["plain"]);
}

#[test]
fn a_probe_of_the_end_is_no_read_and_nothing_is_told_past_the_end() {
    Bench::new().tells("reads.c", &["ends"]);
}

#[test]
fn duplicated_descriptors_share_a_position() {
    Bench::new().tells("reads.c", &["dups"]);
}

#[test]
fn forked_processes_share_a_position() {
    Bench::new().tells("reads.c", &["forks"]);
}

#[test]
fn a_vfork_child_moves_positions_but_closes_only_its_own_descriptors() {
    Bench::new().tells("reads.c", &["borrowed"]);
}

#[test]
fn copies_are_reads_of_their_input_and_bad_pointers_are_refused_by_the_kernel() {
    Bench::new().tells("reads.c", &["copies"]);
}

#[test]
fn a_file_opened_for_update_asks_where_it_is() {
    Bench::new().tells("reads.c", &["updates"]);
}

#[test]
fn errno_is_the_programs() {
    Bench::new().tells("reads.c", &["errnos"]);
}

#[test]
fn streams_tell_of_each_refill_and_of_nothing_else() {
    let ways = [
        "fread",
        "fread_large",
        "fread_unlocked",
        "fread_setvbuf",
        "fread_chk",
        "fgets",
        "fgets_chk",
        "fgets_unlocked",
        "getline",
        "getdelim",
        "getc",
        "fgetc",
        "getc_unlocked",
        "ungetc",
        "fseek",
        "mixed",
        "memory",
    ];
    for way in ways {
        Bench::new().tells("streams.c", &[way]);
    }
}

#[test]
fn a_pipe_is_left_alone() {
    let bench = Bench::new();
    let Some(program) = compile("streams.c", &[]) else { return };
    bench.same(&program, &["pipe"]);
    let of_the_program = |event: &&Event| event.kind == Kind::Read && event.len == 1000;
    assert_eq!(bench.agent.events().iter().filter(of_the_program).count(), 0);
}

#[test]
fn what_is_settled_is_not_told_again() {
    let bench = Bench::with(Manner::SettleAll);
    let Some(program) = compile("hostile.c", &[]) else { return };
    assert!(bench.steered(&program, &["twice"]).status().unwrap().success());
    let told = bench.agent.reads_of(&bench.data()).len();
    // 257 reads of 4096, a pause, and 257 once more: the second time, and most of the first, nothing is loud.
    assert!(told < 257, "{told}");
    let counted = bench.agent.segment.quiet_reads_64.load(Ordering::Relaxed);
    assert!((4..=8).contains(&counted), "{counted}");
}

#[test]
fn a_settled_page_that_is_slow_after_all_is_told_of() {
    for way in ["again_pread", "again_read"] {
        let bench = Bench::with(Manner::SettleAll);
        let Some(program) = compile("hostile.c", &[]) else { return };
        let Some(slow) = compile("slow.c", &["-shared", "-fPIC"]) else { return };
        let both = format!("{}:{}", library().display(), slow.display());
        assert!(bench.steered(&program, &[way]).env("LD_PRELOAD", both).status().unwrap().success());
        let told = bench.agent.events().iter().filter(|e| e.kind == Kind::Surprise).count();
        // Four rounds of 256 settled reads: one in 64 is timed, and each is slow. The round before has four at most.
        assert!((16..=20).contains(&told), "{way}: {told}");
    }
}

#[test]
fn the_programs_own_advice_is_told_and_obeyed() {
    let bench = Bench::new();
    let Some(program) = compile("hostile.c", &[]) else { return };
    bench.same(&program, &["advice"]);
    let advice: Vec<_> = bench.agent.events().into_iter().filter(|e| e.kind == Kind::Advice).collect();
    let told: Vec<_> = advice.iter().map(|e| (e.detail, e.offset, e.len)).collect();
    let (sequential, willneed) = (libc::POSIX_FADV_SEQUENTIAL as u32, libc::POSIX_FADV_WILLNEED as u32);
    assert_eq!(told, [(sequential, 0, 0), (willneed, 4096, 8192), (willneed, 65536, 4096)]);
}

#[test]
fn births_and_deaths_are_told() {
    let bench = Bench::new();
    let Some(program) = compile("reads.c", &[]) else { return };
    assert!(bench.steered(&program, &["forks"]).output().unwrap().status.success());
    let details = |detail| {
        bench.agent.events().iter().filter(|e| e.kind == Kind::Process && e.detail == detail).count()
    };
    assert_eq!((details(0), details(1), details(4)), (1, 3, 1));
}

#[test]
fn small_files_and_direct_reads_are_left_alone() {
    let bench = Bench::new();
    let Some(program) = compile("hostile.c", &[]) else { return };
    std::fs::write(bench.dir.path().join("small"), vec![7; SIZE_MIN as usize - 1]).unwrap();
    bench.same(&program, &["ignored"]);
    let seen: Vec<_> = bench.agent.events().into_iter().filter(|e| e.kind == Kind::Seen).collect();
    assert_eq!(seen, []);
}
