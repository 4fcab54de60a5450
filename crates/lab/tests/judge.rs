//! What kernels did, kept as text in `judge/`: 6.18's policy must open the same windows, or the difference is named here with
//! its cause.

use bowwave_lab::{JudgeRecord, judge_compare};
use std::path::Path;

#[test]
fn recorded_kernels_agree_with_the_policy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judge");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "there are records in {}", folder.display());
    let (mut all, mut equal, mut wrong) = (0, 0, Vec::new());
    for file in files {
        let record = JudgeRecord::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        for compared in judge_compare(&record) {
            all += compared.windows;
            equal += compared.equal;
            if let Some(difference) = compared.difference {
                wrong.push(format!("{} max {} {}: {difference}", file.display(), record.max, compared.name));
            }
        }
    }
    println!("{equal} of {all} windows");
    assert!(all > 1000, "{all} windows are recorded");
    assert!(wrong.is_empty(), "{equal} of {all} windows\n{}", wrong.join("\n"));
}
