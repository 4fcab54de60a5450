//! `bowwave bench` from outside, in an ordinary directory: no root, no mount.

use std::path::Path;
use std::process::{Command, Output};

fn bench(args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bowwave")).arg("bench").args(args).current_dir(dir).output().unwrap()
}

#[test]
fn plays_verifies_and_keeps_everything_raw() {
    let dir = tempfile::tempdir().unwrap();
    let args = "--on . --device ssd --arm off,cat --pairs 2 --volume 0.01 --json out.json seq_64k zip";
    let output = bench(&args.split(' ').collect::<Vec<_>>(), dir.path());
    let (table, words) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{words}");
    assert!(table.contains("Geometric means") && table.contains("seq_64k"), "{table}");
    let text = std::fs::read(dir.path().join("out.json")).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * 2 * 2);
    for run in runs {
        assert_eq!((&run["report"]["wrong"], &run["report"]["errors"]), (&0.into(), &0.into()));
        assert_eq!(run["spec"]["verify"], true);
    }
    // The arms take turns at going first.
    let arms: Vec<&str> = runs.iter().take(4).map(|run| run["arm"].as_str().unwrap()).collect();
    assert_eq!(arms, ["off", "cat", "cat", "off"]);
}

#[test]
fn a_changed_byte_is_an_error_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let args: Vec<&str> = "--on . --arm off --volume 0.01 seq_64k".split(' ').collect();
    assert!(bench(&args, dir.path()).status.success());
    let path = dir.path().join("big/000");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 8], 1 << 20).unwrap();
    let output = bench(&args, dir.path());
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(65), "{words}");
    assert!(words.contains("wrong bytes at 1048576"), "{words}");
}

#[test]
fn content_of_others_is_read_but_not_judged() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("big")).unwrap();
    std::fs::write(dir.path().join("big/000"), vec![1; 4 << 20]).unwrap();
    let output = bench(&["--on", ".", "--arm", "off", "--volume", "0.01", "seq_64k"], dir.path());
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && words.contains("not of our making"), "{words}");
}

#[test]
fn what_cannot_be_played_is_said_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    for (args, code, words) in [
        ("nothing", 64, "no pattern 'nothing'"),
        ("seq_1m --arm off --against 8m", 64, "cannot compare with 8m"),
        ("seq_1m --param x=1", 64, "has a parameter 'x'"),
        ("seq_1m --param block=0", 64, "block lies between"),
        ("seq_1k --param start=99999G", 64, "cannot play seq_1k so"),
        (
            "seq_1k --param start=100G",
            64,
            "cannot play seq_1k so: a read would end past its file; see bowwave bench --list",
        ),
        ("seq_1m --arm 128k --explain out", 64, "needs an arm that decides"),
        ("ordered:x", 64, "SEED is a number"),
        ("composed", 64, "composed:SEED"),
        ("seq_1m --device floppy", 64, "floppy"),
        ("seq_1m --on missing", 66, "cannot use missing"),
    ] {
        let output = bench(&args.split(' ').collect::<Vec<_>>(), dir.path());
        assert_eq!(output.status.code(), Some(code), "{args}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(words) && said.lines().count() == 1, "{args}: {said}");
    }
}
