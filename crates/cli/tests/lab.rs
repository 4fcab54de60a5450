//! `bowwave lab` as its user sees it: what it prints, and how it ends.

use std::process::{Command, Output};

fn lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bowwave")).arg("lab").args(args).output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn exact_tables_are_reproduced_and_print_the_same_twice() {
    let args = ["tables", "T11", "T16", "t17"];
    let (once, twice) = (lab(&args), lab(&args));
    assert!(once.status.success());
    assert_eq!(once.stdout, twice.stdout, "virtual time has no noise");
    let said = text(&once.stdout);
    assert!(said.contains("all 55 cells to the printed digit") && said.contains("25 of 25 lines"), "{said}");
    assert!(said.contains("3 tables: 3 reproduced"), "{said}");
}

#[test]
fn a_table_is_json_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("tables.html");
    let out = lab(&["tables", "T17", "T21", "--json", "--html", page.to_str().unwrap()]);
    let tables: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&tables[0]["id"], &tables[0]["verdict"]), (&"T17".into(), &"reproduced".into()));
    assert_eq!(tables[1]["verdict"], "no-figure");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("id=\"T17\"") && !page.contains("http"));
}

#[test]
fn an_unknown_name_is_refused_with_the_known_ones() {
    let out = lab(&["tables", "T30"]);
    assert_eq!((out.status.code(), text(&out.stderr).contains("T1 to T29")), (Some(64), true));
    let out = lab(&["sweep", "--policy", "clairvoyant"]);
    assert_eq!((out.status.code(), text(&out.stderr).contains("thrash-safe")), (Some(64), true));
    let out = lab(&["swep"]);
    assert_eq!((out.status.code(), text(&out.stderr).contains("sweep")), (Some(64), true));
}

#[test]
fn a_file_that_is_missing_has_the_code_of_one() {
    for args in [["replay", "no/such"], ["judge", "no/such"]] {
        let out = lab(&args);
        let said = text(&out.stderr);
        assert_eq!((out.status.code(), said.lines().count()), (Some(66), 1), "{said}");
        assert!(said.starts_with(&format!("bowwave lab {}: cannot read no/such", args[0])), "{said}");
    }
}

#[test]
fn a_swarm_is_judged_and_a_scenario_is_played() {
    let out = lab(&["swarm", "--seed", "3", "--seeds", "20"]);
    assert!(out.status.success(), "{}", text(&out.stdout));
    assert!(text(&out.stdout).contains("20 worlds from seed 3"), "{}", text(&out.stdout));
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
    std::fs::write(&good, "machine s3\nfiles 64\nprogram file 0 start 0\n  read 0 4 4\n").unwrap();
    std::fs::write(&bad, "machine s3\nprogram file 1 start 0\n").unwrap();
    let played = lab(&["swarm", "--play", good.to_str().unwrap()]);
    assert!(played.status.success() && text(&played.stdout).contains("1 reads"), "{}", text(&played.stdout));
    let refused = lab(&["swarm", "--play", bad.to_str().unwrap()]);
    assert_eq!((refused.status.code(), text(&refused.stderr).contains("no file 1")), (Some(64), true));
}

#[test]
fn a_sweep_names_every_policy_and_sums_up() {
    let out = lab(&[
        "sweep",
        "--pattern",
        "seq_64k",
        "--device",
        "nfs",
        "--volume",
        "0.02",
        "--policy",
        "context,amp",
    ]);
    let said = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    for name in ["context", "amp", "none", "wave"] {
        assert!(said.lines().any(|line| line.trim_start().starts_with(name)), "{name}: {said}");
    }
    assert!(said.contains("cells in which wave is more than 1 % slower than none: none"), "{said}");
}

#[test]
fn a_trace_is_answered_in_two_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("reads.csv");
    let rows: String = (0..2000).map(|i| format!("big,{},65536\n", i * 65536)).collect();
    std::fs::write(&trace, format!("file,offset,length\n{rows}")).unwrap();
    let out = lab(&["replay", trace.to_str().unwrap(), "--device", "s3"]);
    let said = text(&out.stdout);
    assert!(said.starts_with("2000 reads of 131.1 MB in 1 file by 1 thread, 100 % of them"), "{said}");
    assert!(said.contains("The best fixed window would be on s3"), "{said}");
    std::fs::write(
        &trace,
        "# bowwave explain 1\n1.0ms f1 read [0,+1) initial [1,5) ahead=4 mark=1 streams=0 why=R1\n",
    )
    .unwrap();
    let said = text(&lab(&["replay", trace.to_str().unwrap(), "--device", "s3"]).stdout);
    assert!(
        said.starts_with("1 read of") && said.contains("names only the reads that led to one, 1 of"),
        "{said}"
    );
    std::fs::write(&trace, "nothing of interest\n").unwrap();
    let out = lab(&["replay", trace.to_str().unwrap()]);
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(65), 1));
}

#[test]
fn recorded_kernels_are_judged_anywhere() {
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/judge/6.18.44-ext4-32.txt");
    let out = lab(&["judge", record]);
    assert!(out.status.success(), "{}", text(&out.stdout));
    assert!(text(&out.stdout).contains("40 of 40 patterns"));
    let out = lab(&["judge", "/dev/null"]);
    assert_eq!((out.status.code(), text(&out.stderr).contains("nothing to judge")), (Some(65), true));
    // One window changed: it is found, and named.
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.txt");
    let changed = std::fs::read_to_string(record).unwrap().replacen("order 0 4 3", "order 0 4 2", 1);
    std::fs::write(&wrong, changed).unwrap();
    let out = lab(&["judge", wrong.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("the kernel order 0 4 2, the policy order 0 4 3"));
}

/// A file costs what is read of it, however long it is; and what would never end is refused in a sentence.
#[test]
fn odd_reads_and_memories_have_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("reads.csv");
    let replayed = |rows: &str, more: &[&str]| {
        std::fs::write(&trace, format!("file,offset,length\n{rows}")).unwrap();
        lab(&[&["replay", trace.to_str().unwrap()], more].concat())
    };
    let out = replayed("a,1000000000000000,4096\na,0,4096\nb,9223372036854771711,4096\n", &[]);
    assert!(out.status.success() && text(&out.stdout).starts_with("3 reads"), "{}", text(&out.stderr));
    let out = replayed("a,0,1099511627776\n", &[]);
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(65), 1));
    for mib in ["0", "20000000", "99999999999999"] {
        let out = replayed("a,0,4096\n", &["--memory", mib]);
        assert!(text(&out.stderr).contains("give MiB from 1 to 16777215"), "{mib}");
        assert_eq!(out.status.code(), Some(64), "{mib}");
    }
    for (what, value) in
        [("--memory", "0"), ("--memory", "99999999999"), ("--volume", "0"), ("--volume", "nan")]
    {
        let out = lab(&["sweep", "--pattern", "seq_1k", "--policy", "none", what, value]);
        assert!(text(&out.stderr).contains(value), "{what} {value}");
        assert_eq!(out.status.code(), Some(64), "{what} {value}");
    }
}
