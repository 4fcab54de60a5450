//! Where the words of the commands go: a reader that has left, a disk that is full, a file that cannot be made.

use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

/// Commands that print without a mount or root, and where none of them reads for long.
const PRINTERS: [&str; 8] = [
    "bench --list",
    "bench --on . --device ssd --arm off --volume 0.001 seq_64k",
    "lab tables T17",
    "lab sweep --pattern seq_64k --device ssd --policy none --volume 0.001",
    "lab replay reads.csv --device ssd",
    "lab swarm --seed 3 --seeds 2",
    "explain decisions",
    "demo --virtual",
];

fn said(args: &str, stdout: Stdio) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("reads.csv"), "file,offset,length\na,0,4096\n").unwrap();
    let decision =
        "1.0ms f3 read [7,+1) initial [7,9) ahead=1 mark=8 streams=1 why=R1 start\n".repeat(20_000);
    fs::write(dir.path().join("decisions"), decision).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowwave"));
    command.args(args.split(' ')).current_dir(dir.path()).stdout(stdout).stderr(Stdio::piped());
    let Output { status, stderr, .. } = command.spawn().unwrap().wait_with_output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn who_reads_no_further_has_what_he_wanted() {
    for args in PRINTERS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, words) = said(args, writer.into());
        assert!(code == Some(0) && !words.contains("roken pipe"), "{args}: {code:?} {words}");
    }
}

#[test]
fn a_full_disk_is_said_in_a_sentence() {
    for args in PRINTERS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, words) = said(args, full.into());
        let last = words.lines().last().unwrap_or_default();
        assert_eq!(code, Some(74), "{args}: {words}");
        assert!(last.contains("cannot write to standard output: No space left"), "{args}: {words}");
    }
}

#[test]
fn words_that_nobody_hears_are_no_failure() {
    for args in ["lab tables T30", "bench nothing", "explain missing"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_bowwave"));
        let status = command.args(args.split(' ')).stderr(writer).status().unwrap();
        assert!(matches!(status.code(), Some(64 | 66)), "{args}: {status}");
    }
}

#[test]
fn a_file_that_cannot_be_made_is_refused_before_anything_is_played() {
    for args in [
        "bench --on . --arm off seq_64k --json no/such/out",
        "bench --on . --arm bowwave seq_64k --explain no/such/out",
        "lab tables --html no/such/out",
        "lab sweep --html no/such/out",
        "lab replay reads.csv --html no/such/out",
        "lab judge --record no/such/out",
        "demo --virtual --json no/such/out",
    ] {
        let (code, words) = said(args, Stdio::null());
        assert_eq!(code, Some(73), "{args}: {words}");
        assert!(words.contains("cannot write no/such/out") && words.lines().count() == 1, "{args}: {words}");
    }
}
