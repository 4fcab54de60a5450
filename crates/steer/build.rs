//! Builds the library that goes into steered programs, so that the command can carry it: one binary to copy.
//!
//! ```text
//!   cargo build ──> this ──> cargo build --release -p bowwave-preload ──> OUT_DIR/.../libbowwave_preload.so
//!                                                                          └─ src/library.rs includes its bytes
//! ```
//!
//! Always in release (it needs `panic = "abort"` and no std), in a target folder of its own (the outer cargo holds the
//! lock of the other), from the same lock file and without a network: its one dependency, libc, is ours too.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set by an outer cargo (test, clippy, a wrapper) for its own build; the inner one must not inherit them.
const NOT_INHERITED: [&str; 5] = [
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_PROFILE_RELEASE_PANIC",
];

fn main() {
    let crates = path("CARGO_MANIFEST_DIR").join("..");
    let workspace = crates.join("..");
    for watched in ["preload/src", "preload/Cargo.toml", "wire/src", "wire/Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", crates.join(watched).display());
    }
    for watched in ["Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", workspace.join(watched).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let library = build(&crates.join("preload/Cargo.toml"), &path("OUT_DIR").join("preload"));
    println!("cargo::rustc-env=BOWWAVE_PRELOAD_LIBRARY={}", library.display());
}

fn build(manifest: &Path, target_dir: &Path) -> PathBuf {
    let target = env::var("TARGET").expect("cargo tells the target");
    let mut cargo = Command::new(path("CARGO"));
    for name in NOT_INHERITED {
        cargo.env_remove(name);
    }
    cargo
        .args(["build", "--release", "--lib", "--locked", "--offline", "--quiet"])
        .args(["--config", "profile.release.strip=\"symbols\""])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(target_dir)
        .args(["--target", &target]);
    let status =
        cargo.status().unwrap_or_else(|why| panic!("cannot run cargo for the preload library: {why}"));
    assert!(status.success(), "the preload library does not build: {cargo:?} ended with {status}");
    target_dir.join(target).join("release/libbowwave_preload.so")
}

fn path(name: &str) -> PathBuf {
    env::var_os(name).unwrap_or_else(|| panic!("cargo tells {name}")).into()
}
