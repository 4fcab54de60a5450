//! `bowwave explain` from outside: both kinds of file, all kinds of lines, and what is no such file.

use std::process::{Command, Output};

const DECISIONS: &str = "\
# bowwave explain 1
# run cat /mnt/big/000
# f1 = 1048576 bytes, device 0:45, /mnt/big/000
     0.112ms f1 read [0,+32) initial [32,160) ahead=128 mark=32 streams=1 why=R1 start
    30.410ms f1 read [32,+32) subsequent [160,288) ahead=96 mark=192 streams=1 why=R2 next
    31.000ms f1 read [64,+1) random [65,65) ahead=0 mark=- streams=1 why=R7 no stride
";
const TRACE: &str = include_str!("../../core/tests/data/seed-001-trace.txt");

fn explain(text: &str, args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("decisions");
    std::fs::write(&file, text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_bowwave")).arg("explain").args(args).arg(file).output().unwrap()
}

fn said(text: &str, args: &[&str]) -> String {
    let output = explain(text, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn decisions_in_columns() {
    let printed = said(DECISIONS, &[]);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 10, "{printed}");
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    assert_eq!(
        words(lines[2]),
        ["0.112ms", "f1", "[0,+32)", "initial", "[32,", "160)", "128", "128", "32", "1", "R1", "start"]
    );
    // The reasons stand under their head, whatever is before them.
    let why = lines[0].find("why").unwrap();
    assert!(lines[2][why..].starts_with("R1") && lines[4][why..].starts_with("R7 no stride"));
    // The rules that were met, and no others.
    let rules: Vec<&str> = lines[7..].iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(rules, ["R1", "R2", "R7"], "{printed}");
    assert!(lines[7].ends_with("the first read of a file at page 0 opens a window of four times the read"));
}

#[test]
fn all_rules_are_told_in_full() {
    let output = Command::new(env!("CARGO_BIN_EXE_bowwave")).args(["explain", "--rules"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.lines().count() == 15, "{text}");
    assert!(
        text.starts_with("R1 start: the first read of a file at page 0") && text.contains("\nR15 advice: ")
    );
}

#[test]
fn the_kernels_lines() {
    assert_eq!(
        said(DECISIONS, &["--format", "kernel2010"]).lines().next(),
        Some("readahead-initial(dev=0:45, ino=1, req=0+32, ra=32+128-128, async=1) = 128")
    );
    assert_eq!(
        said(DECISIONS, &["--format", "kernel2011"]).lines().nth(1),
        Some("pattern=subsequent bdi=0:45 ino=1 req=32+32 ra=160+128-96 async=1 actual=96")
    );
    // What the kernel printed in 2010 comes back as it was.
    let events: String =
        TRACE.lines().map(|line| format!("{}\n", &line[line.find("readahead-").unwrap()..])).collect();
    assert_eq!(said(TRACE, &["--format", "kernel2010"]), events);
}

#[test]
fn counts() {
    let printed = said(DECISIONS, &["--stats"]);
    let row = |name: &str| -> Vec<String> {
        let line = printed.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().map(str::to_string).collect()
    };
    assert_eq!(row("pattern")[1..3], ["readahead", "eof_hit"]);
    assert_eq!(row("subsequent"), ["subsequent", "1", "1", "0", "1", "0", "0", "128", "96", "96"]);
    assert_eq!(row("all")[1], "2");
    assert!(printed.contains("         1        128  R1 start"), "{printed}");
    assert!(said(TRACE, &["--stats"]).lines().any(|line| line.starts_with("all                25")));
    let json: serde_json::Value = serde_json::from_str(&said(DECISIONS, &["--stats", "--json"])).unwrap();
    assert_eq!(json["patterns"]["all"]["readahead"], 2);
}

#[test]
fn bad_lines_are_named() {
    for (text, line) in [
        (DECISIONS.replace("ahead=96", "ahead=x"), "line 5"),
        (DECISIONS.replace("[160,288)", "[288,160)"), "line 5"),
        (DECISIONS.replace("initial", "psychic"), "line 4"),
        (DECISIONS.replace("explain 1", "explain 9"), "line 1"),
        ("hello\n".to_string(), "line 1"),
        (TRACE.replacen("ino=0", "ino=?", 1), "line 1"),
    ] {
        let output = explain(&text, &[]);
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(65), "{words}");
        assert!(words.contains(line) && words.lines().count() == 1, "{words}");
    }
    let words = String::from_utf8(explain("hello\n", &[]).stderr).unwrap();
    assert!(words.contains("neither what bowwave run --explain FILE wrote nor"), "{words}");
    let missing = Command::new(env!("CARGO_BIN_EXE_bowwave")).args(["explain", "/no/such"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(66));
}
