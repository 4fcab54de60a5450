//! What the observer costs a program that reads what is cached: instructions of a hit are judged; time is only printed, since
//! a machine that shares its cores would judge differently each time (`cargo test -p bowwave-preload -- --ignored --nocapture
//! cost`).

use std::path::Path;

use crate::agent::Manner;
use crate::program::{Bench, compile, library, tool};

const WAYS: [(&str, u32); 10] = [
    ("pread", 10_000_000),
    ("pread100", 4_000_000),
    ("pread2", 4_000_000),
    ("read", 10_000_000),
    ("fread", 4_000_000),
    ("fread20", 20_000_000),
    ("fgets", 20_000_000),
    ("getc", 80_000_000),
    ("open", 400_000),
    ("pipe", 1_000_000),
];

#[test]
#[ignore = "takes a minute and prints figures"]
fn cost_of_a_settled_read_in_ns_and_instructions() {
    let Some(program) = compile("cost.c", &[]) else { return };
    println!("way          plain ns  steered ns  more ns  ratio   more instructions");
    for (way, calls) in WAYS {
        let bench = Bench::with(Manner::SettleAll);
        let printed = bench.steered(&program, &[way, &calls.to_string()]).output().unwrap().stdout;
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let figures: Vec<&str> = printed.split_whitespace().collect();
        let [plain, steered, more, ratio] = figures[..] else { panic!("{way}: {printed}") };
        let counted = instructions(&bench, &program, way).map_or("no valgrind".into(), |n| format!("{n:.1}"));
        println!("{way:<10} {plain:>10} {steered:>11} {more:>8} {ratio:>6}   {counted:>17}");
    }
}

#[test]
fn a_hit_stays_short() {
    // Measured 42 and 63: one more look at a table, or a frame, is seen.
    for (way, instructions_max) in [("pread", 48.0), ("read", 69.0)] {
        let Some(program) = compile("cost.c", &[]) else { return };
        // The program waits 20 ms for its file to be settled; an agent that was not run meanwhile hears of each read.
        let mut counted = Vec::new();
        while counted.len() < 3 && counted.last().is_none_or(|count| *count > instructions_max) {
            let Some(count) = instructions(&Bench::with(Manner::SettleAll), &program, way) else { return };
            counted.push(count);
        }
        assert!(counted.last().is_some_and(|count| *count <= instructions_max), "{way}: {counted:?}");
    }
}

/// Instructions a call in user space, with the library less without.
fn instructions(bench: &Bench, program: &Path, way: &str) -> Option<f64> {
    let valgrind = tool("valgrind")?;
    let count = |steered: bool, calls: &str| {
        let mut command = bench.plain(&valgrind, &["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg(program).args([way, calls, "only"]);
        if steered {
            command.env("LD_PRELOAD", library()).env("BOWWAVE_SEGMENT", &bench.agent.path);
        }
        let text = String::from_utf8_lossy(&command.output().ok()?.stderr).into_owned();
        text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<f64>().ok())
    };
    let (few, many) = ("20000", "120000");
    let with = count(true, many)? - count(true, few)?;
    let without = count(false, many)? - count(false, few)?;
    Some((with - without) / 200_000.0)
}
