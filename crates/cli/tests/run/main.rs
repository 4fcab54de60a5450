//! `bowwave run` as its user and the programs' parents see it: exit codes, signals, job control, what is written where,
//! and that nothing is left behind.
//!
//! Whether it starts and how it ends says `outcome`, who gets which signal `signals`, what is open where `descriptors`, and what is steered `steered`.
//! No test needs a mount, and none judges time: deadlines only keep a hang from lasting.

mod descriptors;
mod outcome;
mod signals;
mod steered;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

// Scripts that wait for a signal wait in `read`: dash loses one that comes while it starts a program.

/// A hang is called one after so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Large enough to be steered, and no whole number of pages.
const DATA_BYTES: usize = (2 << 20) + 1234;

/// Who calls us in the background, or by nohup, has these signals ignored, and what is ignored is inherited.
fn as_from_a_terminal(command: &mut Command) {
    // SAFETY: sets dispositions, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for number in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                libc::signal(number, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// A folder with a file `data` to read, on a disk if the build lies on one.
struct Place {
    dir: TempDir,
    bowwave: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(dir.path().join("data"), bytes(DATA_BYTES)).unwrap();
        Self { dir, bowwave: env!("CARGO_BIN_EXE_bowwave").into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `bowwave run OPTIONS -- COMMAND`, in this folder.
    fn run(&self, options: &[&str], command: &[&str]) -> Command {
        let mut run = Command::new(&self.bowwave);
        run.arg("run").args(options).arg("--").args(command).current_dir(self.dir.path());
        run.env_remove("BOWWAVE").env_remove("LD_PRELOAD").env_remove("BOWWAVE_SEGMENT");
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        as_from_a_terminal(&mut run);
        run
    }

    /// Runs to the end, and says what the run came to.
    fn report(&self, options: &[&str], command: &[&str]) -> (Output, Value) {
        let json = self.path("report.json");
        let named = [&["--json", json.to_str().unwrap()], options].concat();
        let output = self.run(&named, command).output().unwrap();
        let text = fs::read_to_string(&json).unwrap();
        (output, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}")))
    }

    /// Starts a shell script in a process group of its own, with pipes to talk through.
    fn talk(&self, script: &str) -> Talk {
        let mut command = self.run(&["--quiet"], &["sh", "-c", script]);
        Talk::begin(command.process_group(0))
    }

    /// The same in a session of its own, with a terminal that signals it.
    fn talk_at(&self, terminal: &File, script: &str) -> Talk {
        let mut command = self.run(&["--quiet"], &["sh", "-c", script]);
        let fd = terminal.as_raw_fd();
        // SAFETY: system calls only.
        unsafe {
            command.pre_exec(move || {
                libc::setsid();
                let given = libc::ioctl(fd, libc::TIOCSCTTY, 0);
                if given == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        Talk::begin(&mut command)
    }
}

/// Bytes that differ from page to page.
fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

/// The names of the files that a report tells of.
fn files(report: &Value) -> BTreeSet<String> {
    let name = |file: &Value| Path::new(file["path"].as_str().unwrap()).file_name().unwrap().to_owned();
    let files = report["files"].as_array().unwrap();
    files.iter().map(|file| name(file).into_string().unwrap()).collect()
}

/// How many files were met: told of, excluded, or closed before a busy machine let us look.
fn met(report: &Value) -> u64 {
    let left = report["not_steered"].as_object().unwrap().iter();
    let left = left.filter(|(what, _)| what.starts_with("file | ")).map(|(_, n)| n.as_u64().unwrap());
    files(report).len() as u64 + left.sum::<u64>()
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|&name| name.into()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A run that is under way.
struct Talk {
    run: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Talk {
    fn begin(command: &mut Command) -> Self {
        let mut run = command.stdin(Stdio::piped()).spawn().unwrap();
        let (to, from) = (run.stdin.take(), BufReader::new(run.stdout.take().unwrap()));
        Self { run, to, from }
    }

    fn pid(&self) -> i32 {
        self.run.id() as i32
    }

    /// The next line that the program prints.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    /// Waits until the program waits for a line, and we for the program.
    fn settle(&self, program: i32) {
        until("both wait", || [self.pid(), program].iter().all(|&pid| state(pid) == Some('S')));
    }

    fn say(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Everything else that it prints, and how the run ended.
    fn end(mut self) -> (String, ExitStatus) {
        let mut rest = Vec::new();
        self.from.read_to_end(&mut rest).unwrap();
        let status = self.run.wait().unwrap();
        let mut said = String::new();
        self.run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "", "a quiet run says nothing");
        (text(&rest), status)
    }
}

/// `pid` below 0 is a process group.
fn signal(pid: i32, signal: i32) {
    // SAFETY: a plain system call; the process or group is ours and was not waited for.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Waits until `pid`, a child of ours, has stopped.
fn wait_stopped(pid: i32) {
    let mut status = 0;
    // SAFETY: writes one status that is ours.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) }, pid);
    assert!(libc::WIFSTOPPED(status), "ended instead of stopping: {status:#x}");
}

/// The state of a process as /proc tells it: `T` is stopped, nothing is gone.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Segments of the run that was this process.
fn segments(pid: i32) -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = [Some("/dev/shm".into()), runtime, Some("/tmp".into())];
    let entries =
        places.into_iter().flatten().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    let ours = format!("bowwave-{pid}-");
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours))
        .map(|entry| entry.path())
        .collect()
}

/// Drops a file's pages from the cache, so that reading it is worth a decision.
fn chill(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: a plain system call on an open descriptor; advice never fails a test.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn is_root() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::geteuid() == 0 }
}
