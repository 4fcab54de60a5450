//! `include/bowwave.h` says what the library has: it is written from the sources, and this fails where it was not.
//!
//! After a change: `BOWWAVE_UPDATE=1 cargo test -p bowwave-c --test header` writes it anew; read the difference.

use std::path::Path;

/// What stands at the top of the header.
const HEADER: &str = "\
/* bowwave.h: what to read next, and why, for programs that keep a cache of their own.
 *
 * Tell the brain of reads, waits and arrivals (bowwave_read, bowwave_waited, bowwave_arrived, ...); ask it with bowwave_poll what
 * to fetch until there is nothing. It does no I/O, has no clock and starts no thread: moments are nanoseconds of any
 * clock that does not go back, files, devices and actors are numbers of yours. One thread at a time for each brain.
 *
 * Functions that return int give 0 (or 0, 1 where they answer a question), or a negative BOWWAVE_... error. In a library built
 * with --profile embed no failure of the brain ends the process: it says BOWWAVE_BROKEN from then on.
 *
 * Written from crates/c/src by crates/c/tests/header.rs: change it there. */";

#[test]
fn the_header_is_not_stale() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(HEADER.to_owned()),
        include_guard: Some("BOWWAVE_H".to_owned()),
        style: cbindgen::Style::Tag,
        cpp_compat: true,
        documentation_style: cbindgen::DocumentationStyle::C99,
        line_length: 120,
        usize_is_size_t: true,
        export: cbindgen::ExportConfig { include: vec!["bowwave_advice".to_owned()], ..Default::default() },
        ..cbindgen::Config::default()
    };
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(here.join("src/border.rs"))
        .generate()
        .expect("the border can be read");
    let mut written = Vec::new();
    bindings.write(&mut written);
    // What is said of safety in Rust is said once, at the top, in C.
    let written = String::from_utf8(written).expect("text");
    let mut lines: Vec<&str> = Vec::new();
    let mut in_safety = false;
    for line in written.lines() {
        in_safety = line.starts_with("//") && (in_safety || line == "// # Safety");
        if in_safety {
            while lines.last() == Some(&"//") {
                lines.pop();
            }
        } else {
            lines.push(line);
        }
    }
    let written = lines.join("\n") + "\n";
    let path = here.join("include/bowwave.h");
    if std::env::var_os("BOWWAVE_UPDATE").is_some() {
        std::fs::write(&path, &written).expect("the header can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == written, "bowwave.h is stale: BOWWAVE_UPDATE=1 cargo test -p bowwave-c --test header");
}
