//! What the agent is told: every read that it has not declared quiet, once, where it really starts.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

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

/// After its reads, and not while the description has another name.
#[test]
fn the_last_close_of_a_file_is_told() {
    let bench = Bench::new();
    let told = |bench: &Bench| {
        let file = bench.agent.slot_of(&bench.data()).expect("it was met");
        let its = |event: &Event| (event.file == file).then_some(event.kind);
        bench.agent.events().iter().filter_map(its).collect::<Vec<_>>()
    };
    let closes = |told: &[Kind]| told.iter().filter(|kind| **kind == Kind::Closed).count();
    bench.same("cat".as_ref(), &["data"]);
    let of_cat = told(&bench);
    assert_eq!((of_cat.last(), closes(&of_cat)), (Some(&Kind::Closed), 1), "{of_cat:?}");
    let Some(program) = compile("reads.c", &[]) else { return };
    bench.same(&program, &["dups"]);
    assert_eq!(closes(&told(&bench)), 1, "each description of it has another name until the end");
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
}

/// Plays `program`, and does what each line of it says before it goes on.
fn in_step(mut program: Command, mut done: impl FnMut(&str)) {
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut go = program.stdin.take().unwrap();
    for line in BufReader::new(program.stdout.take().unwrap()).lines() {
        done(&line.unwrap());
        // A last word is not waited for.
        let _ = writeln!(go);
    }
    assert!(program.wait().unwrap().success());
}

#[test]
fn a_settled_page_that_is_slow_after_all_is_told_of_once_its_use_was_harvested() {
    for way in ["again_pread", "again_read"] {
        let bench = Bench::with(Manner::SettleAll);
        let Some(program) = compile("hostile.c", &[]) else { return };
        let Some(slow) = compile("slow.c", &["-shared", "-fPIC"]) else { return };
        let mut program = bench.steered(&program, &[way]);
        program.env("LD_PRELOAD", format!("{}:{}", library().display(), slow.display()));
        let mut told = Vec::new();
        in_step(program, |line| {
            let slot = bench.agent.slot_of(&bench.data()).unwrap();
            match line {
                "met" => bench.agent.wait_settled(slot),
                "harvest" => assert_eq!(bench.agent.harvest(slot), 256),
                _ => {}
            }
            told.push(bench.agent.events().iter().filter(|e| e.kind == Kind::Surprise).count());
        });
        // 256 settled reads a round, all of them slow. Harvested: one in 64 is timed; else they are hits, of which at most
        // the one before which the kernel is asked for the position.
        let [_, before, first, second, hits] = told[..] else { panic!("{way}: {told:?}") };
        assert!((4..=5).contains(&(first - before)), "{way}: {told:?}");
        assert!((4..=5).contains(&(second - first)), "{way}: {told:?}");
        assert!(hits - second <= 1, "{way}: {told:?}");
    }
}

#[test]
fn a_mark_behind_many_hits_is_told_in_place_whoever_read_them() {
    for who in ["alone", "thread", "dup", "fork"] {
        let bench = Bench::with(Manner::SettleAll);
        let Some(program) = compile("hostile.c", &[]) else { return };
        in_step(bench.steered(&program, &["follow", who]), |line| {
            let slot = bench.agent.slot_of(&bench.data()).unwrap();
            match line {
                "met" => bench.agent.wait_settled(slot),
                "mark 192" => assert!(bench.agent.segment.publish(slot, 3, !1, !1).is_some()),
                _ => {}
            }
        });
        let told = bench.agent.reads_of(&bench.data());
        assert_eq!(told.last(), Some(&(192 * 4096, 4096)), "{who}: {told:?}");
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
