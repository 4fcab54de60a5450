//! `bowwave run` as its user and the programs' parents see it: exit codes, signals, job control, what is written where,
//! and that nothing is left behind.
//!
//! No test needs a mount, and none judges time: deadlines only keep a hang from lasting.

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
        // Who calls us in the background, or by nohup, has them ignored, and what is ignored is inherited.
        // SAFETY: sets dispositions, between fork and exec.
        unsafe {
            run.pre_exec(|| {
                for number in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                    libc::signal(number, libc::SIG_DFL);
                }
                Ok(())
            });
        }
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

/// A program that cannot be started, and what the one sentence about it says.
fn refused(place: &Place, program: &str, code: i32, part: &str) {
    let Output { status, stdout, stderr } = place.run(&[], &[program]).output().unwrap();
    let said = text(&stderr);
    assert_eq!((status.code(), text(&stdout).as_str()), (Some(code), ""), "{program}: {said}");
    assert!(said.starts_with("bowwave: ") && said.contains(part), "{program}: {said}");
    assert_eq!(said.lines().count(), 1, "{program}: {said}");
}

#[test]
fn a_program_that_is_not_there_or_may_not_run() {
    let place = Place::new();
    refused(&place, "no-such-program-anywhere", 127, "cannot find the program \"no-such-program-anywhere\"");
    refused(&place, "./missing", 127, "cannot find");
    refused(&place, "./data/within", 127, "cannot find");
    refused(&place, "./data", 126, "cannot execute ./data");
    refused(&place, "/", 126, "cannot execute /");
    refused(&place, "", 127, "cannot find");
    // Executable by its mode, and nothing there that could run it.
    fs::write(place.path("orphan"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(place.path("orphan"), fs::Permissions::from_mode(0o755)).unwrap();
    refused(&place, "./orphan", 126, "cannot execute ./orphan: its interpreter /");
}

#[test]
fn reports_that_cannot_be_made_are_said_before_the_program_starts() {
    let place = Place::new();
    for option in ["--json", "--explain"] {
        let output = place.run(&[option, "missing/file"], &["sh", "-c", "echo started"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(73), 0), "{said}");
        assert!(said.contains("cannot create missing/file") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn the_programs_exit_code_is_ours() {
    let place = Place::new();
    for code in [0, 1, 3, 126, 127, 255] {
        let script = format!("exit {code}");
        let output = place.run(&[], &["sh", "-c", &script]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.starts_with("bowwave: ") && said.lines().count() == 1, "{said}");
        let quiet = place.run(&["--quiet"], &["sh", "-c", &script]).output().unwrap();
        assert_eq!((quiet.status.code(), quiet.stderr.len()), (Some(code), 0));
    }
}

#[test]
fn a_program_killed_by_a_signal_is_seen_to_be() {
    let place = Place::new();
    for number in [libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGSEGV, libc::SIGPIPE, libc::SIGUSR1] {
        let mut command = place.run(&["--quiet"], &["sh", "-c", &format!("kill -{number} $$; sleep 60")]);
        let run = command.spawn().unwrap();
        let pid = run.id() as i32;
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(number), "{:?}: {}", output.status, text(&output.stderr));
        assert_eq!(segments(pid), Vec::<PathBuf>::new());
    }
}

/// Both ends of a terminal: what is typed into the first, the second is told.
fn terminal() -> (File, File) {
    let (mut keys, mut screen) = (0, 0);
    let (name, modes, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: writes two descriptors, which are nobody else's.
    unsafe {
        assert_eq!(libc::openpty(&mut keys, &mut screen, name, modes, size), 0);
        [keys, screen].iter().for_each(|&fd| _ = libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC));
        (File::from_raw_fd(keys), File::from_raw_fd(screen))
    }
}

#[test]
fn ctrl_c_twice_is_the_programs_and_leaves_nothing() {
    let place = Place::new();
    let script = "trap 'trap - INT; echo once' INT; echo $$; while :; do read line; done";
    let (mut keys, screen) = terminal();
    let mut talk = place.talk_at(&screen, script);
    let (run, program) = (talk.pid(), talk.hear().parse::<i32>().unwrap());
    talk.settle(program);
    keys.write_all(b"\x03").unwrap();
    assert_eq!(talk.hear(), "once");
    keys.write_all(b"\x03").unwrap();
    let (_, status) = talk.end();
    assert_eq!(status.signal(), Some(libc::SIGINT), "{status:?}");
    until("the program is gone", || state(program).is_none());
    assert_eq!(segments(run), Vec::<PathBuf>::new());

    // Two at once, to a program that knows nothing of them.
    let (mut keys, screen) = terminal();
    let mut talk = place.talk_at(&screen, "echo $$; exec sleep 600");
    let run = talk.pid();
    let program = talk.hear().parse().unwrap();
    talk.settle(program);
    keys.write_all(b"\x03\x03").unwrap();
    assert_eq!(talk.end().1.signal(), Some(libc::SIGINT));
    assert_eq!(segments(run), Vec::<PathBuf>::new());
}

#[test]
fn signals_to_us_are_handed_on() {
    let place = Place::new();
    for (name, number) in [
        ("TERM", libc::SIGTERM),
        ("HUP", libc::SIGHUP),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("ALRM", libc::SIGALRM),
        ("XCPU", libc::SIGXCPU),
    ] {
        let script = format!("trap 'echo got {name}; exit 7' {name}; echo $$; while :; do read line; done");
        let mut talk = place.talk(&script);
        let program = talk.hear().parse().unwrap();
        talk.settle(program);
        signal(talk.pid(), number);
        let (said, status) = talk.end();
        assert_eq!((said.as_str(), status.code()), (format!("got {name}\n").as_str(), Some(7)));

        let mut talk = place.talk("echo $$; exec sleep 600");
        let program = talk.hear().parse().unwrap();
        talk.settle(program);
        signal(talk.pid(), number);
        assert_eq!(talk.end().1.signal(), Some(number));
    }
}

/// `alarm(2)` outlives exec, and was meant for the program.
#[test]
fn a_timer_that_we_inherit_is_the_programs() {
    let place = Place::new();
    let mut command =
        place.run(&["--quiet"], &["sh", "-c", "trap 'exit 7' ALRM; while :; do read line; done"]);
    // SAFETY: a system call.
    unsafe {
        command.stdin(Stdio::piped()).pre_exec(|| {
            libc::alarm(1);
            Ok(())
        });
    }
    let mut run = command.spawn().unwrap();
    let _open = run.stdin.take();
    assert_eq!(run.wait().unwrap().code(), Some(7));
}

/// Who starts us may have blocked the signal that the program dies of.
#[test]
fn a_blocked_signal_is_died_of_all_the_same() {
    let place = Place::new();
    let script =
        "import os, signal; signal.pthread_sigmask(signal.SIG_UNBLOCK, [15]); os.kill(os.getpid(), 15)";
    let mut command = place.run(&["--quiet"], &["python3", "-c", script]);
    // SAFETY: a set of this function's.
    unsafe {
        command.pre_exec(|| {
            let mut set = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Ok(())
        });
    }
    let status = command.status().unwrap();
    if status.code() == Some(127) {
        println!("skipped: no python3");
        return;
    }
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{status:?}");
}

#[test]
fn what_was_ignored_stays_ignored() {
    let place = Place::new();
    let asked = "grep SigIgn /proc/self/status";
    let ignoring = |mut command: Command| {
        // SAFETY: signal may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                for number in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
                    libc::signal(number, libc::SIG_IGN);
                }
                Ok(())
            })
        };
        let output = command.output().unwrap();
        let said = text(&output.stdout);
        u64::from_str_radix(said.split_whitespace().last().unwrap(), 16).unwrap() & 0x7fff
    };
    let mut plain = Command::new("sh");
    plain.args(["-c", asked]);
    assert_eq!(ignoring(place.run(&["--quiet"], &["sh", "-c", asked])), ignoring(plain));
}

#[test]
fn stdin_passes_through() {
    let place = Place::new();
    let output =
        place.run(&["--quiet"], &["cat"]).stdin(File::open(place.path("data")).unwrap()).output().unwrap();
    assert!(output.stdout == bytes(DATA_BYTES));

    let mut talk = place.talk("while read line; do echo \"<$line>\"; done; echo end");
    for line in ["one", "two three"] {
        talk.say(line);
        assert_eq!(talk.hear(), format!("<{line}>"));
    }
    talk.to = None;
    let (said, status) = talk.end();
    assert_eq!((said.as_str(), status.code()), ("end\n", Some(0)));
}

/// Descriptors that are closed, signals that are ignored or blocked, whoever ignores SIGCHLD: as it is without us.
#[test]
fn the_program_starts_with_what_we_were_started_with() {
    let place = Place::new();
    let script = "grep -E 'Sig(Ign|Blk)' /proc/self/status >said
        for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] && echo $fd >>said; done; exit 3";
    let said = |mut command: Command| {
        // SAFETY: system calls only, on this process; the kernel's sigaction begins with the handler.
        unsafe {
            command.pre_exec(|| {
                for number in [libc::SIGUSR1, libc::SIGPIPE, libc::SIGCHLD, 32] {
                    let ignore = [libc::SIG_IGN, 0, 0, 0, 0, 0, 0, 0];
                    let none = std::ptr::null_mut::<usize>();
                    libc::syscall(libc::SYS_rt_sigaction, number, ignore.as_ptr(), none, 8);
                }
                let mut set = std::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGUSR2);
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                (0..3).for_each(|fd| _ = libc::close(fd));
                Ok(())
            });
        }
        let code = command.status().unwrap().code();
        (code, fs::read_to_string(place.path("said")).unwrap())
    };
    let mut plain = Command::new("sh");
    plain.args(["-c", script]).current_dir(place.dir.path());
    let plain = said(plain);
    assert_eq!(plain.0, Some(3));
    for options in [&["--quiet"][..], &[], &["--off"]] {
        assert_eq!(said(place.run(options, &["sh", "-c", script])), plain, "{options:?}");
    }
}

/// Who waits for the end of a pipe that the program has closed waits for nobody else; nor for a message under --quiet.
#[test]
fn what_the_program_closes_is_closed() {
    let place = Place::new();
    let script = "exec <&-; echo closed; exec >&- 2>&-; while [ ! -e go ]; do sleep 0.01; done; exit 5";
    let mut talk = place.talk(script);
    assert_eq!(talk.hear(), "closed");
    until("nobody reads", || talk.to.as_mut().unwrap().write_all(b"x").is_err());
    let mut rest = Vec::new();
    talk.from.read_to_end(&mut rest).unwrap();
    talk.run.stderr.as_mut().unwrap().read_to_end(&mut rest).unwrap();
    assert_eq!((rest.len(), talk.run.try_wait().unwrap()), (0, None));
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(talk.run.wait().unwrap().code(), Some(5));
}

/// A lock of fcntl(2) belongs to the process that becomes us; closing its file would let it go.
#[test]
fn a_lock_that_we_inherit_lasts_as_long_as_the_program() {
    let place = Place::new();
    let whole = |kind| libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    let mut command = place.run(&["--quiet"], &["sh", "-c", "echo began; read line; exit 5"]);
    // SAFETY: system calls only; the descriptor stays open at exec.
    unsafe {
        command.stdin(Stdio::piped()).pre_exec(move || {
            let fd = libc::open(c"data".as_ptr(), libc::O_RDWR);
            libc::fcntl(fd, libc::F_SETLK, &whole(libc::F_WRLCK));
            Ok(())
        });
    }
    let mut run = command.spawn().unwrap();
    let mut began = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut began).unwrap();
    // What we give up we have given up by now, or soon; either way the lock must be there.
    sleep(Duration::from_millis(50));
    let file = File::options().read(true).write(true).open(place.path("data")).unwrap();
    let mut holder = whole(libc::F_WRLCK);
    // SAFETY: asks who holds a lock, of a file that is open.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut holder) };
    assert_eq!((holder.l_type, holder.l_pid), (libc::F_WRLCK as libc::c_short, run.id() as i32));
    drop(run.stdin.take());
    assert_eq!(run.wait().unwrap().code(), Some(5));
}

/// Whoever opens a leased file has its holder signalled, and who has it open keeps it from being leased: neither is to be us.
#[test]
fn a_program_that_leases_what_it_reads() {
    let place = Place::new();
    let script = "
import fcntl, os, sys, time
fd = os.open('data', os.O_RDONLY)
def reads(): [(os.read(fd, 4096), time.sleep(0.001)) for _ in range(100)]
if sys.argv[1] == 'late': reads()
try: print(fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK))
except OSError as error: print(error)
reads()
print(fcntl.fcntl(fd, fcntl.F_GETLEASE))";
    for when in ["early", "late"] {
        let command = ["python3", "-c", script, when];
        let Ok(plain) = Command::new("python3").args(&command[1..]).current_dir(place.dir.path()).output()
        else {
            println!("skipped: no python3");
            return;
        };
        chill(&place.path("data"));
        let run = place.run(&["--quiet"], &command).output().unwrap();
        let said = |output: &Output| (output.status, text(&output.stdout), text(&output.stderr));
        assert_eq!(said(&run), said(&plain), "{when}");
    }
}

#[test]
fn ctrl_z_stops_both_and_both_go_on() {
    let place = Place::new();
    let mut talk = place.talk("echo $$; read line; echo \"<$line>\"; exit 5");
    let (run, program) = (talk.pid(), talk.hear().parse::<i32>().unwrap());
    for _ in 0..3 {
        signal(-run, libc::SIGTSTP);
        wait_stopped(run);
        until("the program stops", || state(program) == Some('T'));
        signal(-run, libc::SIGCONT);
        until("both go on", || state(program) != Some('T') && state(run) != Some('T'));
    }
    talk.say("on");
    let (said, status) = talk.end();
    assert_eq!((said.as_str(), status.code()), ("<on>\n", Some(5)));
}

#[test]
fn a_program_that_stops_alone_stops_us_and_goes_on_with_us() {
    let place = Place::new();
    let mut talk = place.talk("echo $$; read line; kill -STOP $$; echo \"<$line>\"; exit 5");
    let (run, program) = (talk.pid(), talk.hear().parse::<i32>().unwrap());
    talk.say("on");
    wait_stopped(run);
    assert_eq!(state(program), Some('T'));
    signal(run, libc::SIGCONT);
    let (said, status) = talk.end();
    assert_eq!((said.as_str(), status.code()), ("<on>\n", Some(5)));
}

/// A limit of file sizes below a segment costs the program nothing, and is its own to die of.
#[test]
fn a_limit_of_files_is_the_programs_to_die_of() {
    let place = Place::new();
    let options = ["--observer", "preload"];
    let mut command = place.run(&options, &["sh", "-c", "echo ran; kill -XFSZ $$; echo lived"]);
    // SAFETY: sets a limit and a disposition, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            Ok(())
        });
    }
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(
        (text(&output.stdout).as_str(), output.status.signal()),
        ("ran\n", Some(libc::SIGXFSZ)),
        "{said}"
    );
    assert!(said.contains("(ulimit -f)") && said.contains("unsteered"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_full_disk_is_said_once_and_costs_the_program_nothing() {
    if !Path::new("/dev/full").exists() {
        println!("skipped: no /dev/full");
        return;
    }
    let place = Place::new();
    // A decision a file at least: more than any buffer holds.
    for number in 0..150 {
        fs::write(place.path(&format!("part{number:03}")), bytes(200 << 10)).unwrap();
        chill(&place.path(&format!("part{number:03}")));
    }
    let plain = Command::new("sh").args(["-c", "cat part*"]).current_dir(place.dir.path()).output().unwrap();
    for (options, sentences) in [
        (&["--json", "/dev/full"][..], 1),
        (&["--explain", "/dev/full"], 1),
        (&["--json", "/dev/full", "--explain", "/dev/full"], 2),
    ] {
        (0..150).for_each(|number| chill(&place.path(&format!("part{number:03}"))));
        let options = [options, &["--quiet"]].concat();
        let output = place.run(&options, &["sh", "-c", "cat part*; exit 3"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(output.stdout == plain.stdout, "{options:?}");
        assert_eq!(said.lines().filter(|line| line.contains("cannot write")).count(), sentences, "{said}");
        assert_eq!(said.lines().count(), sentences, "{said}");
    }
}

#[test]
fn a_program_goes_on_when_we_are_killed() {
    let place = Place::new();
    chill(&place.path("data"));
    let mut talk =
        place.talk("head -c 1000000 data >/dev/null; echo ready; read line; cat data; echo \"ended $?\"");
    assert_eq!(talk.hear(), "ready");
    let run = talk.pid();
    let left = segments(run);
    signal(run, libc::SIGKILL);
    assert_eq!(talk.run.wait().unwrap().signal(), Some(libc::SIGKILL));
    talk.say("on");
    let mut rest = Vec::new();
    talk.from.read_to_end(&mut rest).unwrap();
    let wanted = [&bytes(DATA_BYTES)[..], b"ended 0\n"].concat();
    assert!(rest == wanted, "{} bytes instead of {}", rest.len(), wanted.len());
    // A later run would remove it; nobody shall have to wait for that here.
    left.iter().for_each(|path| drop(fs::remove_file(path)));
}

#[test]
fn what_outlives_the_program_goes_on_without_us() {
    let place = Place::new();
    let script = "(read line <go; cat data data >late.part; mv late.part late) >/dev/null 2>&1 & echo left";
    let made = Command::new("mkfifo").arg(place.path("go")).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: no mkfifo");
        return;
    }
    let (output, _) = place.report(&[], &["sh", "-c", script]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "left\n"));
    fs::write(place.path("go"), "go\n").unwrap();
    until("the late child is done", || place.path("late").exists());
    assert!(fs::read(place.path("late")).unwrap() == [bytes(DATA_BYTES), bytes(DATA_BYTES)].concat());
}

#[test]
fn what_is_read_is_told_and_off_switches_it_off() {
    let place = Place::new();
    let (output, report) = place.report(&[], &["sh", "-c", "cat data"]);
    assert!(output.stdout == bytes(DATA_BYTES));
    assert!(text(&output.stderr).starts_with("bowwave: "), "{}", text(&output.stderr));
    assert_eq!(met(&report), 1, "{report}");
    if files(&report) == names(&["data"]) {
        assert_eq!(report["bytes_used"], DATA_BYTES.next_multiple_of(4096));
    }

    let (output, report) = place.report(&[], &["sh", "-c", "BOWWAVE=off cat data"]);
    assert!(output.stdout == bytes(DATA_BYTES));
    assert_eq!((met(&report), &report["processes"]), (0, &Value::from(1)), "{report}");

    let asked = ["sh", "-c", "echo \"$LD_PRELOAD$BOWWAVE_SEGMENT\"; exit 4"];
    for output in [
        place.run(&["--off"], &asked).output().unwrap(),
        place.run(&[], &asked).env("BOWWAVE", "off").output().unwrap(),
    ] {
        assert_eq!(
            (output.status.code(), text(&output.stdout), text(&output.stderr)),
            (Some(4), "\n".into(), String::new())
        );
    }
    assert_eq!(
        place.run(&["--off"], &["no-such-program-anywhere"]).output().unwrap().status.code(),
        Some(127)
    );
}

#[test]
fn a_dry_run_fetches_nothing() {
    let place = Place::new();
    chill(&place.path("data"));
    let (output, report) = place.report(&["--dry-run"], &["cat", "data"]);
    assert!(output.stdout == bytes(DATA_BYTES));
    assert_eq!((&report["fetch_calls"], &report["bytes_fetched"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(met(&report), 1, "it observes: {report}");
}

#[test]
fn only_and_except_choose_files() {
    let place = Place::new();
    for name in ["a.dat", "b.dat", "c.txt"] {
        fs::write(place.path(name), bytes(300_000)).unwrap();
    }
    let whole = place.path("b.dat");
    let whole = whole.to_str().unwrap();
    for (options, steered) in [
        (&["--only", "*.dat"][..], &["a.dat", "b.dat"][..]),
        (&["--except", "*.dat"], &["c.txt"]),
        (&["--only", "*.dat", "--except", "a*"], &["b.dat"]),
        (&["--only", whole, "--only", "c.*"], &["b.dat", "c.txt"]),
        (&["--only", "nothing"], &[]),
    ] {
        let (output, report) = place.report(options, &["cat", "a.dat", "b.dat", "c.txt"]);
        assert_eq!(output.stdout.len(), 900_000);
        assert!(files(&report).is_subset(&names(steered)), "{options:?}: {report}");
        assert_eq!(met(&report), 3, "{options:?}: {report}");
    }
}

#[test]
fn a_static_program_runs_unchanged_and_is_named() {
    let place = Place::new();
    fs::write(
        place.path("fixed.c"),
        "#include <stdio.h>\nint main(void) { FILE *f = fopen(\"data\", \"r\"); int c; \
         while ((c = getc(f)) != EOF) putchar(c); return 6; }\n",
    )
    .unwrap();
    let mut cc = Command::new("cc");
    let built = cc.args(["-static", "-o", "fixed", "fixed.c"]).current_dir(place.dir.path()).output();
    if !built.is_ok_and(|built| built.status.success()) {
        println!("skipped: cc -static does not work here");
        return;
    }
    let (output, report) = place.report(&["--observer", "preload"], &["./fixed"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(output.stdout == bytes(DATA_BYTES));
    assert_eq!(report["not_steered"]["static program"], 1);
    assert!(said.contains("not steered: 1 static program"), "{said}");
}

#[test]
fn a_setuid_program_runs_unchanged_and_is_named() {
    let place = Place::new();
    let command: Vec<String> = if is_root() {
        let program = place.path("other");
        fs::copy("/bin/cat", &program).unwrap();
        std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        vec![program.to_str().unwrap().into()]
    } else {
        vec!["su".into(), "--version".into()]
    };
    let program = if is_root() { PathBuf::from(&command[0]) } else { "/usr/bin/su".into() };
    if !fs::metadata(&program).is_ok_and(|about| about.permissions().mode() & 0o4000 != 0) {
        println!("skipped: no set-uid program");
        return;
    }
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let (output, report) = place.report(&["--observer", "preload"], &command);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(report["not_steered"]["set-uid program"], 1);
    assert!(said.contains("not steered: 1 set-uid program"), "{said}");
    assert_eq!(said.lines().count(), 1, "the loader has nothing to complain of: {said}");
}

#[test]
fn a_copied_binary_carries_its_library() {
    let mut place = Place::new();
    let elsewhere = place.path("else where");
    fs::create_dir(&elsewhere).unwrap();
    fs::copy(&place.bowwave, elsewhere.join("bw")).unwrap();
    place.bowwave = elsewhere.join("bw");
    for cache in [place.path("cache"), "/dev/null/nowhere".into()] {
        let json = place.path("report.json");
        let mut run = place.run(&["--json", json.to_str().unwrap()], &["cat", "data"]);
        let output = run.env("XDG_CACHE_HOME", &cache).env_remove("XDG_RUNTIME_DIR").output().unwrap();
        let said = text(&output.stderr);
        assert!(output.stdout == bytes(DATA_BYTES) && said.lines().count() == 1, "{said}");
        let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        assert_eq!(met(&report), 1, "{said}");
    }
}

#[test]
fn two_runs_at_once_know_nothing_of_each_other() {
    let place = Place::new();
    fs::write(place.path("other"), bytes(400_000)).unwrap();
    let mut both: Vec<_> = ["data", "other"]
        .map(|name| {
            let mut talk =
                place.talk(&format!("echo ready; read line; cat {name}; echo $BOWWAVE_SEGMENT >&2"));
            assert_eq!(talk.hear(), "ready");
            talk
        })
        .into();
    let each: Vec<_> = both.iter().map(|talk| segments(talk.pid())).collect();
    assert!(each.iter().all(|of_one| of_one.len() == 1), "{each:?}");
    both.iter_mut().for_each(|talk| talk.say("go"));
    for (mut talk, size) in both.into_iter().zip([DATA_BYTES, 400_000]) {
        let mut said = Vec::new();
        talk.from.read_to_end(&mut said).unwrap();
        assert!(said == bytes(size));
        let run = talk.pid();
        let output = talk.run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains(&format!("bowwave-{run}-")), "{}", text(&output.stderr));
        assert_eq!(segments(run), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_run_inside_a_run() {
    let place = Place::new();
    let (outer, inner) = (place.path("outer.json"), place.path("inner.json"));
    let bowwave = place.bowwave.to_str().unwrap();
    let within = [bowwave, "run", "--json", inner.to_str().unwrap(), "--", "sh", "-c", "cat data; exit 9"];
    let output = place.run(&["--json", outer.to_str().unwrap()], &within).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{said}");
    assert!(output.stdout == bytes(DATA_BYTES));
    assert_eq!(said.lines().filter(|line| line.starts_with("bowwave: ")).count(), 2, "{said}");
    let report = |path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    assert_eq!(met(&report(inner)), 1);
    assert!(report(outer)["processes"].as_u64() > Some(0), "the inner bowwave is a program, too");
}

/// Its programs tell numbers of their own; who cannot make a namespace here says so and passes.
#[test]
fn programs_in_a_pid_namespace_of_their_own_are_steered() {
    let place = Place::new();
    let possible = Command::new("unshare").args(["-Urpf", "--mount-proc", "true"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        println!("skipped: no PID namespaces here (unshare -Urpf --mount-proc)");
        return;
    }
    chill(&place.path("data"));
    // It has the file open as long as it waits for what to compare it with.
    let script = "sleep 1 | cmp -s data -; true";
    let command = ["unshare", "-Urpf", "--mount-proc", "sh", "-c", script];
    let output = place.run(&["--observer", "preload", "--json", "out"], &command).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&fs::read_to_string(place.path("out")).unwrap()).unwrap();
    let files = report["files"].as_array().unwrap();
    assert!(
        files.iter().any(|file| file["path"].as_str().is_some_and(|at| at.ends_with("/data"))),
        "{report}"
    );
    assert!(!report["not_steered"].to_string().contains("namespace"), "{report}");
}

/// Root watches from outside where there is no place for a segment; who may not runs unsteered. Either is said, once.
#[test]
fn without_a_place_for_the_segment_it_is_observed_from_outside_where_that_may_be() {
    let place = Place::new();
    chill(&place.path("data"));
    let limited = |options: &[&str]| {
        let mut command = place.run(options, &["cat", "data"]);
        // SAFETY: sets a limit, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                Ok(())
            });
        }
        let output = command.output().unwrap();
        assert!(output.stdout == bytes(DATA_BYTES) && output.status.success());
        text(&output.stderr)
    };
    let said = limited(&[]);
    let instead = said.contains("(ulimit -f); observing from outside instead");
    let summed_up = said.contains("windows thrashed");
    assert!(instead == summed_up && (instead || said.contains("running cat unsteered")), "{said}");
    assert_eq!(said.lines().count(), if instead { 2 } else { 1 }, "{said}");
    let asked = limited(&["--observer", "outside"]);
    assert_eq!(asked.lines().count(), 1, "nothing is missing where it was asked for: {asked}");
    assert_eq!(limited(&["--quiet"]), "");
}
