//! `bowwave demo` from outside, in virtual time: no root, no mount, the same figures each time.

use std::path::Path;
use std::process::{Command, Output};

fn demo(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowwave"));
    command.args(["demo", "--virtual"]).args(args).current_dir(dir).env_remove("LC_ALL").env("LANG", "C");
    command.env_remove("LC_CTYPE").output().unwrap()
}

#[test]
fn draws_a_table_bars_and_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let output = demo(&["--json", "out.json"], dir.path());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // No glyphs and no colours where nobody said that they can be shown.
    assert!(said.is_ascii() && said.contains("####") && !said.contains('\x1b'), "{said}");
    assert!(said.contains("VIRTUAL TIME") && said.contains("Worst row"), "{said}");
    let page = std::fs::read_to_string(dir.path().join("bowwave-demo.html")).unwrap();
    assert!(page.contains("virtual time") && page.contains("<svg") && !page.contains("NaN"));
    let text = std::fs::read(dir.path().join("out.json")).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let rows = document["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &document["virtual_time"]), (10, &true.into()));
    for row in rows {
        assert!(!row["windows"].as_array().unwrap().is_empty() || row["pattern"] == "rnd_sparse", "{row}");
    }
    let again = demo(&["--json", "again.json"], dir.path());
    assert!(again.status.success());
    let text = std::fs::read(dir.path().join("again.json")).unwrap();
    let second: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(document["rows"], second["rows"]);
}

#[test]
fn a_page_that_cannot_be_written_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let output = demo(&["--html", "no/such/dir/page.html"], dir.path());
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(73), "{words}");
    assert!(words.contains("cannot write no/such/dir/page.html") && words.lines().count() == 1, "{words}");
}
