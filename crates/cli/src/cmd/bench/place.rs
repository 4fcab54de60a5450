//! Where patterns are played: a slow store that bench mounts for itself, or a directory that is there already.
//!
//! A place prepares each cell: the window is set, the plan's pages are dropped and checked absent, the store's counters
//! and device are reset. It never stays: the store ends with the bench however that ends, the window is put back.

use super::arm::{Ground, Kernel};
use super::thrash::Thrash;
use super::undo::{Guard, Undo, stopped};
use crate::cmd::failure::{CANNOT_CREATE, Failure, NO_PERMISSION, OS_ERROR, UNAVAILABLE};
use bowwave_fuse::{Stats, content};
use bowwave_io::cached_pages;
use bowwave_lab::{DeviceModel, Plan};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a mount may take to appear, or to go.
const MOUNT_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the store may be busy with what the last cell left behind.
const QUIET_TIME_MAX: Duration = Duration::from_secs(20);
/// How the directories are named that stores are mounted in.
const PREFIX: &str = "bowwave-bench-";
/// What was made later may not be locked yet.
const STALE: Duration = Duration::from_secs(60);
/// Files of our own content are made this much longer than what is read on both sides, for readahead to be wrong in.
const MARGIN_BYTES: u64 = 8 << 20;

/// A directory to play in.
#[derive(Debug)]
pub(crate) struct Place {
    /// Below it lie the plan's files.
    pub(crate) dir: PathBuf,
    /// The modelled device, if the place is a slow store or bench was told.
    pub(crate) model: Option<DeviceModel>,
    store: bool,
    log: Option<PathBuf>,
    window: Option<PathBuf>,
    _window_guard: Option<Guard>,
    foreign: BTreeSet<String>,
    // Dropped in this order: the store unmounts before its directory goes.
    child: Option<Store>,
    _mount_point: Option<TempDir>,
    /// Locked for as long as the mount point is needed.
    _in_use: Option<File>,
}

/// The child process that serves the mount.
#[derive(Debug)]
struct Store(Child);

impl Drop for Store {
    fn drop(&mut self) {
        // Waited for already if it did not start: its number may be anybody's.
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        // SAFETY: a signal to a child that we have not waited for.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGTERM) };
        let asked = Instant::now();
        while asked.elapsed() < MOUNT_TIME_MAX {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // A store that hangs is killed; the kernel then fails its requests and the mount can be detached.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    /// A slow store at the pace of `model`, mounted for this bench alone.
    pub(crate) fn mount(exe: &Path, model: &str) -> Result<Self, Failure> {
        Self::mount_on(exe, model, Ground::SlowStore)
    }

    /// The same files on any ground.
    pub(crate) fn mount_on(exe: &Path, model: &str, ground: Ground) -> Result<Self, Failure> {
        clear_stale(&std::env::temp_dir());
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir();
        let point =
            made.map_err(|error| Failure::on(&std::env::temp_dir(), "make a directory in", &error))?;
        let in_use = File::open(point.path()).map_err(|error| Failure::on(point.path(), "open", &error))?;
        lock(&in_use);
        let (dir, ready) = (point.path().join("store"), point.path().join("ready"));
        fs::create_dir(&dir).map_err(|error| Failure::on(&dir, "make", &error))?;
        let mut slow = Command::new(exe);
        match ground {
            Ground::SlowStore => slow.arg("slow"),
            Ground::Mount(Kernel::Chosen) => slow.arg("mount"),
            Ground::Mount(Kernel::Window(kib)) => slow.args(["mount", "--read-ahead-kb", &kib.to_string()]),
            Ground::Mount(Kernel::Past) => slow.args(["mount", "--kernel-cache", "false"]),
        };
        slow.arg(&dir).args(["--device", model, "--exit-with-parent", "--ready-file"]).arg(&ready);
        let (words, log) = (point.path().join("words"), point.path().join("log"));
        let said = File::create(&words).map_err(|error| Failure::on(&words, "make", &error))?;
        slow.arg("--log").arg(&log);
        slow.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        // Ctrl-C reaches bench, which ends the store when the cell is stopped.
        std::os::unix::process::CommandExt::process_group(&mut slow, 0);
        let child = slow.spawn().map_err(|error| Failure::on(exe, "start", &error))?;
        let mut store = Store(child);
        let asked = Instant::now();
        while !ready.exists() {
            if let Ok(Some(status)) = store.0.try_wait() {
                let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(UNAVAILABLE);
                let said = fs::read_to_string(&words).unwrap_or_default();
                let sentence = format!("the slow store did not start ({status}): {}", said.trim());
                return Err(Failure::new(code, sentence));
            }
            if asked.elapsed() > MOUNT_TIME_MAX || stopped() {
                let sentence = format!("the slow store did not mount on {} in time", dir.display());
                return Err(Failure::new(UNAVAILABLE, sentence));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut place = Self::on(&dir, None)?;
        place.log = Some(log);
        place.child = Some(store);
        place._mount_point = Some(point);
        place._in_use = Some(in_use);
        Ok(place)
    }

    /// A directory that is there already; `model` is what to judge it by, if it is not a slow store.
    pub(crate) fn on(dir: &Path, model: Option<DeviceModel>) -> Result<Self, Failure> {
        let device = fs::metadata(dir).map_err(|error| Failure::on(dir, "use", &error))?.dev();
        let told = fs::read(dir.join(".bowwave/model")).ok();
        let stored = told.and_then(|text| serde_json::from_slice(&text).ok());
        let (major, minor) = (libc::major(device), libc::minor(device));
        let window = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
        let before = fs::read_to_string(&window).ok();
        let writable = OpenOptions::new().write(true).open(&window).is_ok();
        let guard = match &before {
            Some(text) if writable => Some(Guard::new(Undo::Write(window.clone(), text.trim().to_string()))),
            _ => None,
        };
        Ok(Self {
            dir: dir.to_path_buf(),
            model: stored.or(model),
            store: stored.is_some(),
            log: None,
            window: guard.is_some().then_some(window),
            _window_guard: guard,
            foreign: BTreeSet::new(),
            child: None,
            _mount_point: None,
            _in_use: None,
        })
    }

    /// Sets the window of descriptors opened from now on.
    pub(crate) fn set_window(&self, kib: u64) -> Result<(), Failure> {
        let Some(path) = &self.window else {
            let sentence = format!(
                "cannot set the readahead window of {} to {kib} KiB: only root may; choose other arms",
                self.dir.display()
            );
            return Err(Failure::new(NO_PERMISSION, sentence));
        };
        fs::write(path, kib.to_string()).map_err(|error| Failure::on(path, "write", &error))?;
        let holds = fs::read_to_string(path).unwrap_or_default();
        if holds.trim() == kib.to_string() {
            return Ok(());
        }
        let sentence = format!("{} took {} instead of {kib}", path.display(), holds.trim());
        Err(Failure::new(OS_ERROR, sentence))
    }

    /// The window as it is.
    pub(crate) fn window_kib(&self) -> Option<u64> {
        let device = fs::metadata(&self.dir).ok()?.dev();
        let name = format!("/sys/class/bdi/{}:{}/read_ahead_kb", libc::major(device), libc::minor(device));
        fs::read_to_string(name).ok()?.trim().parse().ok()
    }

    /// What the store was asked since it was reset.
    pub(crate) fn stats(&self) -> Option<Stats> {
        let text = self.store.then(|| fs::read(self.dir.join(".bowwave/stats")))?.ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// How much of what the store sent was lost before its use; complete after [`stats`](Self::stats).
    pub(crate) fn thrash(&self) -> Option<Thrash> {
        fs::read_to_string(self.log.as_ref()?).ok().map(|log| Thrash::of(&log))
    }

    /// Makes the files of `plan` where an ordinary directory has none, and finds out whose they are.
    pub(crate) fn make_files(&mut self, plan: &Plan) -> Result<(), Failure> {
        if self.store {
            let first = self.dir.join(&plan.files[0].name);
            return match fs::metadata(&first) {
                Ok(_) => Ok(()),
                Err(error) => Err(Failure::on(&first, "use", &error)),
            };
        }
        for (file, (from, to)) in plan.spans() {
            let (name, size) = (&plan.files[file as usize].name, plan.files[file as usize].size);
            let path = self.dir.join(name);
            if self.foreign.contains(name) {
                continue;
            }
            if path.exists() && !is_ours(&path, name) {
                eprintln!("bench: {} is not of our making: its content is not verified", path.display());
                self.foreign.insert(name.clone());
                continue;
            }
            let wanted = (from.saturating_sub(MARGIN_BYTES), (to + MARGIN_BYTES).min(size));
            fill(&path, name, size, wanted).map_err(|error| {
                let sentence = format!(
                    "cannot make {} ({} MB from {from} on): {error}",
                    path.display(),
                    (to - from) / 1_000_000
                );
                Failure::new(CANNOT_CREATE, sentence)
            })?;
        }
        Ok(())
    }

    /// Whether the content of all files of `plan` is known.
    pub(crate) fn verifies(&self, plan: &Plan) -> bool {
        plan.files.iter().all(|file| !self.foreign.contains(&file.name))
    }

    /// Makes a cell start from nothing: the store idle, no page of the plan's files cached, all counters at 0.
    pub(crate) fn start_from_cold(&self, plan: &Plan) -> Result<(), Failure> {
        self.wait_until_quiet()?;
        let asked = Instant::now();
        for file in &plan.files {
            let path = self.dir.join(&file.name);
            let opened = File::open(&path).map_err(|error| Failure::on(&path, "open", &error))?;
            loop {
                // SAFETY: a descriptor of our own; the calls touch no memory of ours.
                unsafe { libc::posix_fadvise(opened.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
                // Where the kernel does not tell, nobody can say, and 0 is assumed.
                match cached_pages(&opened, 0, 0).unwrap_or(0) {
                    0 => break,
                    left if asked.elapsed() > QUIET_TIME_MAX => {
                        let sentence = format!(
                            "{left} pages of {} stay cached: somebody else has it mapped or reads it",
                            path.display()
                        );
                        return Err(Failure::new(UNAVAILABLE, sentence));
                    }
                    _ => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        }
        if self.store {
            let reset = self.dir.join(".bowwave/reset");
            fs::read(&reset).map_err(|error| Failure::on(&reset, "read", &error))?;
        }
        Ok(())
    }

    /// Waits until the store has answered what is under way.
    fn wait_until_quiet(&self) -> Result<(), Failure> {
        let asked = Instant::now();
        while self.stats().is_some_and(|stats| stats.in_flight > 0) {
            if asked.elapsed() > QUIET_TIME_MAX || stopped() {
                let sentence = format!("the store on {} does not come to rest", self.dir.display());
                return Err(Failure::new(UNAVAILABLE, sentence));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Whether nobody else has it locked; now we have.
fn lock(file: &File) -> bool {
    // SAFETY: a descriptor of our own.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Removes mount points that a bench of ours left behind when it was killed: those that nobody has locked. One that was just made is
/// not locked yet, and one on which something is mounted stays.
fn clear_stale(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let named =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
        // SAFETY: it takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        let ours = |meta: &fs::Metadata| {
            let old =
                meta.modified().ok().and_then(|then| then.elapsed().ok()).is_some_and(|age| age > STALE);
            meta.is_dir() && meta.uid() == user && old
        };
        if !named || !fs::symlink_metadata(&path).is_ok_and(|meta| ours(&meta)) {
            continue;
        }
        if File::open(&path).is_ok_and(|held| lock(&held)) && fs::remove_dir(path.join("store")).is_ok() {
            let _ = fs::remove_dir_all(&path); // the next bench tries again
        }
    }
}

/// Whether `path` holds what the generated file `name` holds, as far as its first data tells.
fn is_ours(path: &Path, name: &str) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // SAFETY: a descriptor of our own.
    let data = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) };
    let at = data.max(0) as u64 / 8 * 8;
    let mut word = [0; 8];
    data < 0
        || file.read_exact_at(&mut word, at).is_ok()
            && u64::from_le_bytes(word) == content::word(content::file_id(name), at / 8)
}

/// Fills `[from, to)` of the file with its generated content where it has holes.
fn fill(path: &Path, name: &str, size: u64, (from, to): (u64, u64)) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().expect("a file lies in a directory"))?;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.len() < size {
        file.set_len(size)?;
    }
    let mut buffer = vec![0; 1 << 20];
    let mut at = from / 4096 * 4096;
    while at < to {
        // SAFETY: a descriptor of our own.
        let hole = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, libc::SEEK_HOLE) };
        at = hole.max(at as libc::off_t) as u64;
        if at >= to {
            break;
        }
        let bytes = buffer.len().min((to - at) as usize);
        content::fill(content::file_id(name), at, &mut buffer[..bytes]);
        file.write_all_at(&buffer[..bytes], at)?;
        at += bytes as u64;
    }
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_killed_bench_left_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, age: u64| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.join("store")).unwrap();
            let made = std::time::SystemTime::now() - Duration::from_secs(age);
            File::open(&path).unwrap().set_modified(made).unwrap();
            path
        };
        let (left, new, other) = (make("bowwave-bench-a", 90), make("bowwave-bench-b", 0), make("mine", 90));
        let played = make("bowwave-bench-c", 90);
        let held = File::open(&played).unwrap();
        assert!(lock(&held));
        clear_stale(dir.path());
        assert!(!left.exists() && new.exists() && other.exists() && played.exists());
    }
}
