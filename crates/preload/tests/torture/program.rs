//! Building small C programs, and running any program with and without the library.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use crate::agent::{Agent, Manner};
use tempfile::TempDir;

/// A place for a test, with a file to read.
pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) agent: Agent,
}

/// Size of the file to read: not a multiple of a page.
pub(crate) const DATA_BYTES: usize = (1 << 20) + 1234;

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Manner::Listen)
    }

    pub(crate) fn with(manner: Manner) -> Self {
        let dir = TempDir::new().unwrap();
        let agent = Agent::new(dir.path(), manner);
        fs::write(dir.path().join("data"), lines(DATA_BYTES)).unwrap();
        Self { dir, agent }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// `program` in this test's folder, without the library.
    pub(crate) fn plain(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// The same with the library.
    pub(crate) fn steered(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = self.plain(program, args);
        command.env("LD_PRELOAD", library()).env("BOWWAVE_SEGMENT", &self.agent.path);
        command
    }

    /// Runs both, asserts that they behave the same, and returns what they printed.
    pub(crate) fn same(&self, program: &Path, args: &[&str]) -> String {
        let plain = self.plain(program, args).output().unwrap();
        let steered = self.steered(program, args).output().unwrap();
        let name = program.display();
        assert_same(&plain, &steered, &format!("{name} {args:?}"));
        String::from_utf8_lossy(&steered.stdout).into_owned()
    }

    /// Runs a C program both ways; its lines `E offset len` are what the agent should be told of `data`.
    pub(crate) fn tells(&self, source: &str, args: &[&str]) {
        let Some(program) = compile(source, &[]) else { return };
        let printed = self.same(&program, args);
        assert_eq!(self.agent.reads_of(&self.data()), expected(&printed), "{source} {args:?}");
    }
}

/// The lines `E offset len` of an output.
pub(crate) fn expected(printed: &str) -> Vec<(u64, u64)> {
    let numbers = |line: &str| {
        let (offset, len) = line.split_once(' ')?;
        Some((offset.parse().ok()?, len.parse().ok()?))
    };
    printed.lines().filter_map(|line| numbers(line.strip_prefix("E ")?)).collect()
}

pub(crate) fn assert_same(plain: &Output, steered: &Output, what: &str) {
    let text = String::from_utf8_lossy;
    assert_eq!(plain.status, steered.status, "{what}: {}", text(&steered.stderr));
    assert_eq!(text(&plain.stderr), text(&steered.stderr), "{what}");
    assert!(
        plain.stdout == steered.stdout,
        "{what}:\n{}\n---\n{}",
        text(&plain.stdout),
        text(&steered.stdout)
    );
}

/// Numbered lines of changing length, `bytes` in all.
pub(crate) fn lines(bytes: usize) -> Vec<u8> {
    let mut text = String::with_capacity(bytes + 200);
    let mut number = 0_usize;
    while text.len() < bytes {
        let filler = "abcdefghijklmnopqrstuvwxyz".repeat(number % 7);
        let _ = writeln!(text, "{number:06} {filler}"); // into a string: cannot fail
        number += 1;
    }
    text.truncate(bytes);
    text.into_bytes()
}

/// The library as it ships, built once.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release-build");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "--release",
                "--lib",
                "--locked",
                "--offline",
                "--quiet",
                "--manifest-path",
                manifest,
            ])
            .arg("--target-dir")
            .arg(&target)
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .status()
            .unwrap();
        assert!(status.success(), "the library does not build");
        target.join("release/libbowwave_preload.so")
    })
}

/// Builds `source` (a file beside this one) with cc, once for each set of flags. `None`, with a word, without a compiler.
pub(crate) fn compile(source: &str, flags: &[&str]) -> Option<PathBuf> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torture").join(source);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    fs::create_dir_all(&folder).unwrap();
    let name = format!("{source}{}", flags.concat()).replace(['.', '=', '-', '/'], "_");
    let (program, beside) =
        (folder.join(&name), folder.join(format!("{name}.{:?}", std::thread::current().id())));
    let built = Command::new("cc")
        .args([
            "-O2",
            "-D_FORTIFY_SOURCE=2",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Werror",
            "-Wno-unused-result",
            "-pthread",
        ])
        .arg("-o")
        .arg(&beside)
        .arg(&from)
        .args(flags)
        .output();
    let Ok(built) = built else {
        println!("skipped: no C compiler (cc) to build {source}");
        return None;
    };
    assert!(built.status.success(), "{source}: {}", String::from_utf8_lossy(&built.stderr));
    fs::rename(&beside, &program).unwrap();
    Some(program)
}

/// Where a tool lies. `None`, with a word, where it is not installed.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: no {name}");
    }
    found
}
