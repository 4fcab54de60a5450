//! The example in C, compiled against the library and the header, prints what the core's own example in Rust prints.

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../core/examples/own_cache.rs"]
mod own_cache;

/// The archive that cargo made beside this test.
fn archive() -> PathBuf {
    let deps = std::env::current_exe().expect("a test has a file").parent().map(Path::to_path_buf);
    let deps = deps.expect("a file lies in a directory");
    let archives = std::fs::read_dir(&deps).expect("the directory can be read").filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?;
        (name.starts_with("libbowwave_c") && name.ends_with(".a")).then_some(path)
    });
    // Archives of earlier builds may lie there too.
    let modified = |path: &PathBuf| path.metadata().and_then(|about| about.modified()).ok();
    archives.max_by_key(modified).unwrap_or_else(|| panic!("no libbowwave_c.a in {}", deps.display()))
}

#[test]
fn c_says_what_rust_says() {
    let mut rust = Vec::new();
    own_cache::drive(&mut rust).expect("a Vec can be written to");

    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let at = tempfile::tempdir().expect("a directory can be made");
    let program = at.path().join("own_cache");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(here.join("examples/own_cache.c"))
        .arg(archive())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .expect("cc, which links this test too, can be run");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().expect("the example can be run");
    assert!(ran.status.success(), "{:?}", ran.status);

    let (rust, c) = (String::from_utf8_lossy(&rust), String::from_utf8_lossy(&ran.stdout));
    assert!(rust.lines().count() > 4 && rust.contains("R1 start"), "{rust}");
    assert_eq!(c, rust);
}
