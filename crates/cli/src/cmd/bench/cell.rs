//! One cell: one pattern under one arm, once, from cold; and what came of it.
//!
//! ```text
//! set the window, drop pages, reset the store ─> player (under `bowwave run`, in a cgroup) ─> the store's counters
//!      start | phase 1 | end: lines of the player; at each, and around what is measured, the counters are read
//! ```

use super::arm::Arm;
use super::memory::MemoryGroup;
use super::place::Place;
use super::player::{Event, Report, Spec};
use super::thrash::Thrash;
use super::undo::stopped;
use crate::cmd::failure::{Failure, INTERRUPTED, SOFTWARE};
use bowwave_fuse::Stats;
use bowwave_lab::{Plan, Yardsticks};
use serde::Serialize;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How much longer than its cap a player may take before it is given up.
const GRACE: Duration = Duration::from_secs(90);

/// Everything about one run, raw.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) pattern: String,
    pub(crate) family: String,
    pub(crate) regular: bool,
    pub(crate) device: String,
    pub(crate) arm: String,
    pub(crate) pair: u64,
    /// Seconds since the bench began.
    pub(crate) at_s: f64,
    pub(crate) spec: Spec,
    /// The pattern's parameters as used.
    pub(crate) parameters: std::collections::BTreeMap<String, u64>,
    pub(crate) report: Report,
    pub(crate) exit_code: Option<i32>,
    /// Of the reads that were executed; absent where the device is not known.
    pub(crate) yardsticks: Option<Yardsticks>,
    /// The store's counters after the run.
    pub(crate) store: Option<Stats>,
    /// The store's counters at the beginning of each phase.
    pub(crate) store_at_phases: Vec<Stats>,
    /// Bytes used in each phase as executed: distinct pages of the phase alone.
    pub(crate) useful_at_phases: Vec<u64>,
    /// The store's counters when the measured part of paced streams began and ended.
    pub(crate) store_measured: Option<(Stats, Stats)>,
    /// Requests whose pages had to be sent again, of patterns in scarce memory.
    pub(crate) thrash: Option<Thrash>,
    /// What `bowwave run` said of itself.
    pub(crate) bowwave: Option<serde_json::Value>,
}

/// The player and all its children; none of them outlives this value. It is waited for last of all: until then its number, which is
/// its group's as well, can be nobody else's.
struct Running {
    player: Child,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Whether the player has ended by itself.
    fn has_ended(&self) -> bool {
        let news = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: a structure of numbers, which is written; a child that is not waited for.
        unsafe {
            let mut told: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, self.player.id(), &mut told, news) == 0 && told.si_pid() != 0
        }
    }

    /// Ends what is left of the group, and says how the player ended.
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let group = -(self.player.id() as libc::pid_t);
        let asked = Instant::now();
        // SAFETY: signals to a process group that we made and whose leader was not waited for.
        unsafe { libc::kill(group, libc::SIGTERM) };
        while asked.elapsed() < Duration::from_secs(2) && !self.has_ended() {
            std::thread::sleep(Duration::from_millis(10));
        }
        // SAFETY: as above.
        unsafe { libc::kill(group, libc::SIGKILL) };
        let status = self.player.wait()?;
        self.ended = Some(status);
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What to play, and where.
pub(crate) struct Cell<'a> {
    pub(crate) exe: &'a Path,
    pub(crate) place: &'a Place,
    pub(crate) arm: Arm,
    pub(crate) spec: Spec,
    pub(crate) plan: &'a Plan,
    /// Where `bowwave run` is to write its decisions.
    pub(crate) explain: Option<&'a Path>,
}

/// What was seen from outside while the player played.
#[derive(Default)]
struct Watched {
    report: Option<Box<Report>>,
    at_phases: Vec<Stats>,
    measured: (Option<Stats>, Option<Stats>),
}

impl Cell<'_> {
    /// Plays it once. The caller fills in which pattern of which pair it was.
    pub(crate) fn play(self) -> Result<Run, Failure> {
        self.place.start_from_cold(self.plan)?;
        self.set_window()?;
        let group = self.plan.memory_bytes_max.map(MemoryGroup::new).transpose()?;
        let summary = tempfile::NamedTempFile::new()
            .map_err(|error| Failure::on(&std::env::temp_dir(), "make a file in", &error))?;
        let mut command = self.command(summary.path());
        if let Some(group) = &group {
            group.enclose(&mut command);
        }
        // However bench ends, nothing of the cell goes on: a reader would keep the mount busy.
        end_with_parent(&mut command);
        let child = command.spawn().map_err(|error| Failure::on(self.exe, "start", &error))?;
        let mut running = Running { player: child, ended: None };
        let lines = running.player.stdout.take().expect("piped");
        let watched = self.watch(&events(lines))?;
        let status = self.wait(&mut running)?;
        let Some(report) = watched.report else {
            let sentence =
                format!("the player of {} under {} said nothing: {status}", self.spec.pattern, self.arm);
            return Err(Failure::new(SOFTWARE, sentence));
        };
        // A `cat` that did not come to its end left no reads to judge: as if all of them had taken no time.
        let none = report.done.iter().sum::<u64>() == 0;
        let executed = if none { self.plan.clone() } else { self.plan.executed(&report.done) };
        let bowwave = std::fs::read(summary.path()).ok();
        Ok(Run {
            pattern: self.spec.pattern.clone(),
            family: String::new(),
            regular: false,
            device: String::new(),
            arm: self.arm.to_string(),
            pair: 0,
            at_s: 0.0,
            parameters: self.plan.options.clone(),
            exit_code: status.code(),
            yardsticks: self.place.model.map(|model| Yardsticks::of(&executed, &model)),
            store: self.place.stats(),
            thrash: self.plan.memory_bytes_max.and_then(|_| self.place.thrash()),
            store_at_phases: watched.at_phases,
            useful_at_phases: self.useful_at_phases(&report),
            store_measured: watched.measured.0.zip(watched.measured.1),
            bowwave: bowwave.and_then(|text| serde_json::from_slice(&text).ok()),
            report: *report,
            spec: self.spec,
        })
    }

    /// A mount has its own since it was mounted.
    fn set_window(&self) -> Result<(), Failure> {
        let wanted = self.arm.window_kib();
        if matches!(self.arm, Arm::Mount(_)) {
            return Ok(());
        }
        let chosen = matches!(self.arm, Arm::Window(_));
        match self.place.set_window(wanted) {
            Err(_) if !chosen || self.place.window_kib() == Some(wanted) => Ok(()),
            outcome => outcome,
        }
    }

    fn command(&self, summary: &Path) -> Command {
        let spec = serde_json::to_string(&self.spec).expect("a specification is plain data");
        let mut command = Command::new(self.exe);
        if self.arm.is_bowwave() {
            command.args(["run", "--quiet", "--json"]).arg(summary);
            if self.arm == Arm::BowwaveUser {
                command.arg("--no-window-lending");
            }
            if let Some(path) = self.explain {
                command.arg("--explain").arg(path);
            }
            command.arg("--").arg(self.exe);
        }
        command.arg("bench-play").arg(spec);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        command
    }

    /// Follows the player until its last line.
    fn watch(&self, events: &Receiver<Event>) -> Result<Watched, Failure> {
        let mut watched = Watched::default();
        let (mut started, asked) = (Instant::now(), Instant::now());
        let measured = self.plan.pace.map(|pace| {
            let threads = self.plan.threads;
            (
                Duration::from_nanos(pace.measure_from_ns(threads)),
                Duration::from_nanos(pace.total_ns(threads)),
            )
        });
        let paced = measured.map_or(Duration::ZERO, |(_, to)| to);
        let patience = Duration::from_nanos(self.spec.cap_ns) + paced + GRACE;
        loop {
            match events.recv_timeout(Duration::from_millis(20)) {
                Ok(Event::Start) => started = Instant::now(),
                Ok(Event::Phase { .. }) => watched.at_phases.extend(self.place.stats()),
                Ok(Event::End { report }) => watched.report = Some(report),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(watched),
            }
            if let Some((from, to)) = measured {
                if watched.measured.0.is_none() && started.elapsed() >= from {
                    watched.measured.0 = self.place.stats();
                }
                if watched.measured.1.is_none() && started.elapsed() >= to {
                    watched.measured.1 = self.place.stats();
                }
            }
            if stopped() {
                return Err(Failure::new(INTERRUPTED, "stopped"));
            }
            if asked.elapsed() > patience {
                let sentence = format!("the player of {} under {} does not end", self.spec.pattern, self.arm);
                return Err(Failure::new(SOFTWARE, sentence));
            }
        }
    }

    fn wait(&self, running: &mut Running) -> Result<ExitStatus, Failure> {
        let asked = Instant::now();
        while !running.has_ended() {
            if asked.elapsed() > GRACE || stopped() {
                let sentence =
                    format!("the player of {} under {} does not exit", self.spec.pattern, self.arm);
                return Err(Failure::new(if stopped() { INTERRUPTED } else { SOFTWARE }, sentence));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        running.end().map_err(|error| Failure::on(self.exe, "wait for", &error))
    }

    fn useful_at_phases(&self, report: &Report) -> Vec<u64> {
        let Some(model) = self.place.model else { return Vec::new() };
        let done = report.done.iter().sum::<u64>() as usize;
        let firsts = self.plan.phases.iter().map(|phase| phase.first_op.min(done));
        let ends: Vec<usize> = firsts.clone().skip(1).chain([done]).collect();
        firsts
            .zip(ends)
            .map(|(from, to)| {
                let ops = self.plan.ops[from..to].to_vec();
                Yardsticks::of(&Plan { ops, ..self.plan.clone() }, &model).useful_bytes
            })
            .collect()
    }
}

/// Makes the kernel end `command` when bench ends, even by a signal that nobody can catch.
fn end_with_parent(command: &mut Command) {
    // SAFETY: one async-signal-safe call between fork and exec.
    let ask = || match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: see above.
    unsafe { command.pre_exec(ask) };
}

/// The player's lines as they come; a line that is not ours is passed over.
fn events(lines: ChildStdout) -> Receiver<Event> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            if let Ok(event) = serde_json::from_str(&line)
                && send.send(event).is_err()
            {
                break;
            }
        }
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        Running { player: command.spawn().unwrap(), ended: None }
    }

    #[test]
    fn who_outlives_the_player_is_ended_before_its_number_is_given_back() {
        let mut running = running("sleep 600 & exit 3");
        let mut lines = BufReader::new(running.player.stdout.take().unwrap()).lines();
        while !running.has_ended() {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(running.has_ended(), "looking does not wait for it");
        assert_eq!(running.end().unwrap().code(), Some(3));
        // The sleeper had the pipe open: it ends because he has ended.
        assert!(lines.next().is_none());
        assert_eq!(running.end().unwrap().code(), Some(3), "once and for all");
    }

    #[test]
    fn a_player_that_does_not_end_is_ended() {
        let running = running("exec sleep 600");
        let group = -(running.player.id() as libc::pid_t);
        assert!(!running.has_ended());
        drop(running);
        // SAFETY: signal 0 only asks.
        assert_ne!(unsafe { libc::kill(group, 0) }, 0, "the group is gone");
    }
}
