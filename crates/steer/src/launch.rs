//! Starting the program: which file it is, whether a preload library reaches it, and living beside it until it ends.
//!
//! ```text
//!   bowwave run -- cat x        PATH -> /usr/bin/cat -> ELF with an interpreter: steered
//!                  busybox      ELF without one: static, runs unchanged; what it starts is steered
//!                  sudo         set-uid: the loader drops our library, so it runs unchanged
//!                  ./script.py  #! -> /usr/bin/python3: judged by that
//!
//!   terminal: Ctrl-C, Ctrl-\  reach the program directly; we only wait        kill us: handed on
//!             Ctrl-Z          stops both; a program that stops alone stops us too, and goes on with us
//! ```
//!
//! What it inherits is what we inherited: see `inherited`. Which signals are handed on: see `signals`.
//!
//! Worked example: a program that exits with 3 makes us exit with 3; one that dies of signal 9 makes us die of signal 9.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bowwave_wire::{ENV_SEGMENT, ENV_SWITCH};

use crate::{inherited, signals};

/// Scripts may name scripts as their interpreters; the kernel follows so many.
const INTERPRETERS_MAX: usize = 4;

/// Why a program cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is none of that name.
    #[error("cannot find the program {0:?}; give its path, or one that PATH leads to")]
    NotFound(OsString),
    /// It may not be executed.
    #[error("cannot execute {}: {cause}; make it executable (chmod +x), or name another", path.display())]
    NotExecutable {
        /// The file found.
        path: PathBuf,
        /// What the kernel says.
        cause: io::Error,
    },
    /// The script is there, and who would read it is not.
    #[error("cannot execute {}: its interpreter {} is not there; install it, or name another in the first line", path.display(), interpreter.display())]
    NoInterpreter {
        /// The script.
        path: PathBuf,
        /// What its first line names.
        interpreter: PathBuf,
    },
}

impl LaunchError {
    /// What shells exit with: 127 not found, 126 not executable.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable { .. } | Self::NoInterpreter { .. } => 126,
        }
    }
}

/// Whether a preload library reaches a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Loaded by the dynamic loader that our library was built for.
    Steered,
    /// No loader: the program runs unchanged, what it starts is steered.
    Static,
    /// Runs with other rights than ours, so the loader drops our library.
    Privileged,
    /// Another loader or machine, to which our library would be an error.
    Foreign,
}

impl Reach {
    /// In a sentence "not steered: 1 static program".
    pub const fn words(self) -> &'static str {
        match self {
            Self::Steered => "steered",
            Self::Static => "static program",
            Self::Privileged => "set-uid program",
            Self::Foreign => "program of another loader",
        }
    }
}

/// A program that is there and may be executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// As the user named it: its argv\[0\].
    pub name: OsString,
    /// Whether we reach it.
    pub reach: Reach,
}

/// Finds `name` as a shell would.
pub fn find(name: &OsStr, search: Option<&OsStr>) -> Result<Program, LaunchError> {
    let found = |path: PathBuf| Program { reach: reach(&path, 0), path, name: name.into() };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match executable(&path) {
            Ok(()) => Ok(found(path)),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
                Err(LaunchError::NotFound(name.into()))
            }
            Err(cause) => Err(LaunchError::NotExecutable { path, cause }),
        };
    }
    let mut refused = None;
    if !name.is_empty() {
        for dir in std::env::split_paths(search.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"))) {
            let dir = if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
            let path = dir.join(name);
            match executable(&path) {
                Ok(()) => return Ok(found(path)),
                Err(cause) if cause.raw_os_error() == Some(libc::EACCES) => {
                    refused.get_or_insert((path, cause));
                }
                Err(_) => {}
            }
        }
    }
    Err(match refused {
        Some((path, cause)) => LaunchError::NotExecutable { path, cause },
        None => LaunchError::NotFound(name.into()),
    })
}

fn executable(path: &Path) -> io::Result<()> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    let mut name = path.as_os_str().as_bytes().to_vec();
    name.push(0);
    // SAFETY: the path ends with a zero byte.
    match unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr().cast(), libc::X_OK, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Looks into the file: who will load it?
fn reach(path: &Path, depth: usize) -> Reach {
    let Ok(file) = fs::File::open(path) else { return Reach::Steered };
    if file.metadata().is_ok_and(|meta| changes_rights(path, &meta)) {
        return Reach::Privileged;
    }
    let mut head = [0u8; 4096];
    let got = file.read_at(&mut head, 0).unwrap_or(0);
    let head = &head[..got];
    if let Some(interpreter) = interpreter(head) {
        if interpreter.as_os_str().is_empty() || depth == INTERPRETERS_MAX {
            return Reach::Steered;
        }
        return reach(interpreter, depth + 1);
    }
    elf_reach(&file, head)
}

/// What the first line of a script names; nothing, if it is none.
fn interpreter(head: &[u8]) -> Option<&Path> {
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next().unwrap_or(&[]).trim_ascii();
    let name = line.split(|b| b" \t".contains(b)).next().unwrap_or(&[]);
    Some(Path::new(OsStr::from_bytes(name)))
}

/// Why a program that is there could not be started.
fn refused(program: &Program, cause: io::Error) -> LaunchError {
    let path = program.path.clone();
    let mut head = [0u8; 256]; // the kernel reads no more of the first line
    let read = |head: &mut [u8]| fs::File::open(&path)?.read_at(head, 0);
    if cause.raw_os_error() == Some(libc::ENOENT)
        && let Ok(got) = read(&mut head)
        && let Some(interpreter) = interpreter(&head[..got])
    {
        return LaunchError::NoInterpreter { interpreter: interpreter.into(), path };
    }
    LaunchError::NotExecutable { path, cause }
}

/// Set-uid, set-gid or file capabilities that give other rights than we have.
fn changes_rights(path: &Path, meta: &fs::Metadata) -> bool {
    // SAFETY: plain system calls; the path and the attribute's name end with a zero byte.
    let (user, group, capable) = unsafe {
        let mut name = path.as_os_str().as_bytes().to_vec();
        name.push(0);
        let attribute = c"security.capability".as_ptr();
        (
            libc::geteuid(),
            libc::getegid(),
            libc::getxattr(name.as_ptr().cast(), attribute, std::ptr::null_mut(), 0) > 0,
        )
    };
    let mode = meta.mode();
    (mode & libc::S_ISUID != 0 && meta.uid() != user)
        || (mode & libc::S_ISGID != 0 && mode & 0o010 != 0 && meta.gid() != group)
        || (capable && user != 0)
}

/// ELF, of our word length, with a PT_INTERP that is not musl's.
fn elf_reach(file: &fs::File, head: &[u8]) -> Reach {
    const CLASS_64: u8 = 2;
    const PT_INTERP: u32 = 3;
    if !head.starts_with(b"\x7fELF") || head.len() < 64 {
        return Reach::Steered;
    }
    if head[4] != CLASS_64 || u16::from_le_bytes([head[18], head[19]]) != MACHINE {
        return Reach::Foreign;
    }
    let word =
        |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (table, size, count) = (
        word(head, 32),
        u64::from(u16::from_le_bytes([head[54], head[55]])),
        u16::from_le_bytes([head[56], head[57]]),
    );
    for i in 0..u64::from(count) {
        let mut entry = [0u8; 56];
        if size < 56 || file.read_exact_at(&mut entry, table.saturating_add(i * size)).is_err() {
            return Reach::Steered;
        }
        if u32::from_le_bytes(entry[..4].try_into().expect("four bytes")) == PT_INTERP {
            let mut loader = vec![0u8; word(&entry, 32).min(4096) as usize];
            let named = file.read_exact_at(&mut loader, word(&entry, 8)).is_ok();
            let musl = named && loader.windows(7).any(|w| w == b"ld-musl");
            return if musl { Reach::Foreign } else { Reach::Steered };
        }
    }
    Reach::Static
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// Becomes the program, unsteered. Returns only if that fails.
pub fn exec_unsteered(program: &Program, args: &[OsString]) -> LaunchError {
    let become_it = |mut command: Command| {
        let command = inheriting(&mut command).env(ENV_SWITCH, "off");
        inherited::undisturbed(|| command.exec())
    };
    let cause = match become_it(command(program, &program.path, args)) {
        e if e.raw_os_error() == Some(libc::ENOEXEC) => become_it(shell(program, args)),
        e => e,
    };
    refused(program, cause)
}

/// What a steered program finds in its environment: where the segment is, and our library after those it has.
pub struct Steering<'a> {
    /// The shared segment's file.
    pub segment: &'a Path,
    /// The preload library.
    pub library: &'a Path,
}

/// A program that was started; see [`Child::wait`].
pub struct Child {
    pid: i32,
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// With this exit code.
    Exited(u8),
    /// By this signal.
    Killed(i32),
}

/// Starts the program with its terminal, descriptors and process group those of ours.
pub fn spawn(
    program: &Program,
    args: &[OsString],
    steering: Option<&Steering<'_>>,
) -> Result<Child, LaunchError> {
    signals::catch_all();
    let start = |mut command: Command| {
        if let Some(steering) = steering {
            command.env(ENV_SEGMENT, steering.segment);
            if program.reach != Reach::Foreign {
                command.env("LD_PRELOAD", preload(std::env::var_os("LD_PRELOAD"), steering.library));
                command.env("ASAN_OPTIONS", sanitizer(std::env::var_os("ASAN_OPTIONS")));
            }
        }
        inheriting(&mut command);
        // Whoever signals our process group between fork and exec means the program, and not our handlers in it.
        inherited::undisturbed(|| command.spawn())
    };
    let started = match start(command(program, &program.path, args)) {
        Err(e) if e.raw_os_error() == Some(libc::ENOEXEC) => start(shell(program, args)),
        other => other,
    };
    let child = started.map_err(|cause| refused(program, cause))?;
    let pid = child.id() as i32;
    signals::hand_on_to(pid);
    Ok(Child { pid })
}

fn command(program: &Program, path: &Path, args: &[OsString]) -> Command {
    let mut command = Command::new(path);
    command.arg0(&program.name).args(args);
    command
}

/// What it is started with is what we were started with.
fn inheriting(command: &mut Command) -> &mut Command {
    let blocked = inherited::blocked();
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(move || {
            inherited::hand_on(&blocked);
            Ok(())
        })
    }
}

/// A script without #! is the shell's, as execvp(3) has it.
fn shell(program: &Program, args: &[OsString]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg(&program.path).args(args);
    command
}

/// The new LD_PRELOAD: ours comes last, so that what others interpose stays in front.
fn preload(before: Option<OsString>, library: &Path) -> OsString {
    let ours = library.as_os_str().as_bytes();
    match before.map(OsStringExt::into_vec).filter(|before| !before.is_empty()) {
        Some(before) if before.split(|b| b" :".contains(b)).any(|one| one == ours) => {
            OsString::from_vec(before)
        }
        Some(mut before) => {
            before.push(b':');
            before.extend_from_slice(ours);
            OsString::from_vec(before)
        }
        None => ours.to_vec().into_os_string(),
    }
}

/// The new ASAN_OPTIONS: a sanitizer's library that finds ours before it ends the program, unless it is told not to look. Both
/// interpose the same calls, each hands on to the next, and their order does not matter to ours. The program's own options come
/// last, which is where they win.
fn sanitizer(before: Option<OsString>) -> OsString {
    let mut options = OsString::from("verify_asan_link_order=0");
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        options.push(":");
        options.push(before);
    }
    options
}

trait IntoOsString {
    fn into_os_string(self) -> OsString;
}

impl IntoOsString for Vec<u8> {
    fn into_os_string(self) -> OsString {
        OsString::from_vec(self)
    }
}

impl Child {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Waits until it ends; stops when it stops.
    pub fn wait(&self) -> io::Result<Ended> {
        while self.has_stopped(libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT)? {
            self.has_stopped(libc::WSTOPPED | libc::WNOHANG)?;
            // Ctrl-Z has stopped us as well, and when we get here both go on already. Only a stop that lasts is shared.
            if is_stopped(self.pid) {
                // SAFETY: stops this process until somebody continues it; then so does the program.
                unsafe {
                    libc::raise(libc::SIGSTOP);
                    libc::kill(self.pid, libc::SIGCONT);
                }
            }
        }
        // It has ended. Once it is waited for its number may be anybody's, so from now on no signal is handed on.
        signals::hand_on_no_more();
        let mut status = 0;
        // SAFETY: writes one status that is ours.
        undisturbed(|| unsafe { libc::waitpid(self.pid, &mut status, 0) })?;
        Ok(if libc::WIFSIGNALED(status) {
            Ended::Killed(libc::WTERMSIG(status))
        } else {
            Ended::Exited(libc::WEXITSTATUS(status) as u8)
        })
    }

    /// Waits for what `news` says. Whether it is that the program has stopped.
    fn has_stopped(&self, news: libc::c_int) -> io::Result<bool> {
        // SAFETY: a structure of numbers, and one that is ours to write.
        let mut told: libc::siginfo_t = unsafe { std::mem::zeroed() };
        undisturbed(|| unsafe { libc::waitid(libc::P_PID, self.pid as u32, &mut told, news) })?;
        Ok(matches!(told.si_code, libc::CLD_STOPPED | libc::CLD_TRAPPED))
    }
}

/// A system call, as often as a signal interrupts it.
fn undisturbed(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    while call() < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

impl Ended {
    /// Ends this process as the program ended: with its code, or of its signal (without a core file of our own).
    pub fn follow(self) -> ! {
        match self {
            Self::Exited(code) => std::process::exit(i32::from(code)),
            Self::Killed(signal) => {
                // SAFETY: plain system calls on this process, which is about to end.
                unsafe {
                    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::setrlimit(libc::RLIMIT_CORE, &none);
                    libc::prctl(libc::PR_SET_DUMPABLE, 0);
                    libc::signal(signal, libc::SIG_DFL);
                    let mut set: libc::sigset_t = std::mem::zeroed();
                    libc::sigaddset(&mut set, signal);
                    libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
                    libc::raise(signal);
                }
                std::process::exit(128 + signal)
            }
        }
    }
}

fn is_stopped(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("plain");
        fs::write(&plain, "text").unwrap();
        let search = dir.path().as_os_str();
        assert_eq!(find(OsStr::new("nothing"), Some(search)).unwrap_err().exit_code(), 127);
        assert_eq!(find(OsStr::new("plain"), Some(search)).unwrap_err().exit_code(), 126);
        assert_eq!(find(plain.as_os_str(), None).unwrap_err().exit_code(), 126);
        assert_eq!(find(OsStr::new(""), None).unwrap_err().exit_code(), 127);
        assert_eq!(find(dir.path().as_os_str(), None).unwrap_err().exit_code(), 126);
        assert_eq!(find(OsStr::new("sh"), Some(OsStr::new("/bin"))).unwrap().path, Path::new("/bin/sh"));
    }

    #[test]
    fn a_sanitizers_own_options_come_last() {
        assert_eq!(sanitizer(None), "verify_asan_link_order=0");
        assert_eq!(sanitizer(Some("".into())), "verify_asan_link_order=0");
        assert_eq!(sanitizer(Some("detect_leaks=0".into())), "verify_asan_link_order=0:detect_leaks=0");
    }

    #[test]
    fn the_loader_decides_who_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, content: &[u8], mode: u32| {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        assert_eq!(reach(Path::new("/bin/sh"), 0), Reach::Steered);
        assert_eq!(reach(&make("script", b"#! /bin/sh -e\n", 0o755), 0), Reach::Steered);
        let mut elf = vec![0u8; 64];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        let fixed = make("static", &elf, 0o755);
        assert_eq!(reach(&fixed, 0), Reach::Static);
        let script = format!("#!{}\n", fixed.display());
        assert_eq!(reach(&make("by-static", script.as_bytes(), 0o755), 0), Reach::Static);
        elf[4] = 1;
        assert_eq!(reach(&make("narrow", &elf, 0o755), 0), Reach::Foreign);
    }

    #[test]
    fn our_library_comes_last_and_once() {
        let ours = Path::new("/x/lib.so");
        assert_eq!(preload(None, ours), "/x/lib.so");
        assert_eq!(preload(Some("a.so b.so".into()), ours), "a.so b.so:/x/lib.so");
        assert_eq!(preload(Some("a.so:/x/lib.so".into()), ours), "a.so:/x/lib.so");
    }
}
