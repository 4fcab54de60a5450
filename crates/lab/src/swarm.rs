//! Worlds drawn from a seed: device, memory, policy, programs, faults. An oracle of invariants judges after every event; a
//! scenario that fails is made smaller while it still fails, and is a text that is kept and played again.
//!
//! ```text
//! machine s3                                hdd ssd nfs s3 | disk | slices MS | raid N | table
//! memory 96 shards 2 fair oldest            pages; how they are cut; fair fill hashed; oldest same
//! brain wave                                or an era and its ceiling in pages: legacy 64; or a rival: amp
//! request_max 64
//! files 2048 2048                           pages of each
//! faults seed 7 fail 40 short 20 jitter 2000 slow 50 10 20 squeeze 40 10 300 taken 250 20
//! program fd 0 start 120                    its steps follow: us from the beginning
//!   read 0 4 2                              page, pages, those that it waits for
//!   write 8 2 | dontneed 0 8 | think 300    us
//! ```
//!
//! What must hold, whatever the world (spec: the lab's oracle):
//!
//! - *right bytes*: a reader gets the version of a page that was written last; nothing is read that nobody brought;
//! - *progress*: every program comes to its end, within [`EVENTS_MAX`] events;
//! - *bounds*: no more pages have a frame than there are frames, and the parts' own checks hold;
//! - *order*: nothing is fetched ahead while a reader waits for a page that nobody fetches;
//! - *sums*: programs got as many pages as they asked for, and a page that was read ahead was read or lost at most once.
//!
//! Worked example (test `a_broken_world_shrinks`): of a scenario with 3 programs of 40 reads, in which whoever reads page 77
//! is said to fail, one program with one read remains.

use crate::device::DeviceModel;
use crate::rivals::{RIVALS, rival};
use crate::rng::Rng;
use crate::world::{Brain, DiskModel, Faults, MachineModel, Spell, Step, World, WorldConfig, WorldOutcome};
use bowwave_core::{CacheConfig, Config, Extent, Nanos, PageCount, Placement, Victim};
use std::fmt;
use std::str::FromStr;

/// Events of a world that has not come to its end: it never will.
pub const EVENTS_MAX: u64 = 2_000_000;
/// Pages of a drawn file.
const FILE: u64 = 2048;
/// The parts' own checks look at all of memory: they are made after every event where there are up to so many frames, and as
/// much more seldom as there are more.
const CHECK_FRAMES: u64 = 64;

/// A program: its descriptor's file, when it begins, what it does.
#[derive(Clone, PartialEq, Debug)]
struct Program {
    file: u32,
    start: Nanos,
    steps: Vec<Step>,
}

/// A world and what its programs do, small enough to be read.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    machine: String,
    frames: u64,
    shards: u64,
    placement: Placement,
    victim: Victim,
    brain: String,
    request_max: u64,
    files: Vec<u64>,
    faults: Faults,
    programs: Vec<Program>,
}

/// Why a text is not a scenario: the line, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct NotAScenario {
    /// Counted from 1.
    pub line: usize,
    /// In words.
    pub what: String,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn drawn(seed: u64) -> Self {
        let mut rng = Rng::named(seed, &["swarm"]);
        let most = 1 << (6 + rng.below(6));
        let frames = 48 + rng.below(most);
        let machine = match rng.below(6) {
            0 => "disk".into(),
            1 => format!("slices {}", 100 + rng.below(500)),
            2 => format!("raid {}", 2 + rng.below(6)),
            3 => "table".into(),
            _ => DeviceModel::NAMED[rng.below(4) as usize].0.into(),
        };
        let brain = match rng.below(4) {
            0 => {
                let eras = bowwave_core::NAMES;
                format!("{} {}", eras[rng.below(eras.len() as u64) as usize], 1 << (3 + rng.below(6)))
            }
            1 => RIVALS[rng.below(RIVALS.len() as u64) as usize].into(),
            _ => "wave".into(),
        };
        let files = vec![FILE; 1 + rng.below(4) as usize];
        let mut pick = || rng.below(2) == 0;
        let spell = |every, lasting| Spell { every: Nanos::from_ms(every), lasting: Nanos::from_ms(lasting) };
        let (fails, shorts, jitters, slows, squeezes, takes) =
            (pick(), pick(), pick(), pick(), pick(), pick());
        let faults = Faults {
            fail_one_in: if fails { 4 + rng.below(100) } else { 0 },
            short_one_in: if shorts { 4 + rng.below(100) } else { 0 },
            jitter_max: Nanos::from_us(if jitters { 1 + rng.below(5000) } else { 0 }),
            slow: slows
                .then(|| (spell(20 + rng.below(200), 1 + rng.below(20)), Nanos::from_ms(1 + rng.below(50)))),
            squeeze: squeezes.then(|| (spell(20 + rng.below(200), 1 + rng.below(20)), 100 + rng.below(900))),
            taken: takes.then(|| (Nanos::from_ms(10 + rng.below(200)), 1 + rng.below(200))),
            seed,
        };
        let (request_max, programs) = (1 << (2 + rng.below(8)), 1 + rng.below(8));
        let programs = (0..programs).map(|i| Program {
            file: (i % files.len() as u64) as u32,
            start: Nanos::from_us(rng.below(1000)),
            steps: drawn_steps(i as u32, &mut rng),
        });
        let programs = programs.collect();
        let placement = [Placement::Fair, Placement::Fill, Placement::Hashed][rng.below(3) as usize];
        let victim = [Victim::Oldest, Victim::Same][rng.below(2) as usize];
        Self {
            machine,
            frames,
            shards: 1 + rng.below(2),
            placement,
            victim,
            brain,
            request_max,
            files,
            faults,
            programs,
        }
    }

    /// Plays it, judging after every event.
    ///
    /// # Errors
    /// The first thing that does not hold, in words.
    ///
    /// # Panics
    /// Where a part's own check fails: those are assertions.
    pub fn play(&self) -> Result<WorldOutcome, String> {
        let mut config = WorldConfig::new(
            machine(&self.machine)?,
            self.frames,
            brain(&self.brain, self.frames)?,
            &self.files,
        );
        let first = self.frames / self.shards;
        let shards = (0..self.shards)
            .map(|i| PageCount(if i == 0 { self.frames - first * (self.shards - 1) } else { first }));
        config.memory = CacheConfig {
            shards: shards.collect(),
            placement: self.placement,
            victim: self.victim,
            ..CacheConfig::of(PageCount(self.frames))
        };
        config.request_max = PageCount(self.request_max);
        config.descriptors = self.programs.iter().map(|program| program.file).collect();
        config.faults = self.faults;
        config.judged = true;
        let mut world = World::new(config);
        for (fd, program) in self.programs.iter().enumerate() {
            let mut steps = program.steps.iter().map(move |&step| through(fd as u32, step));
            world.add(program.start, Box::new(move |_| steps.next().unwrap_or(Step::End)));
        }
        let (mut events, every) = (0, (self.frames / CHECK_FRAMES).max(1));
        while world.step() {
            events += 1;
            if let Some(violation) = world.violation() {
                return Err(violation);
            }
            if world.cache().used().0 > self.frames {
                return Err(format!("{} pages have a frame, of {}", world.cache().used(), self.frames));
            }
            if events % every == 0 {
                world.check();
            }
            if events > EVENTS_MAX {
                return Err(format!("no end after {EVENTS_MAX} events"));
            }
        }
        world.check();
        if let Some(violation) = world.violation() {
            return Err(violation);
        }
        let outcome = world.run();
        let wanted = self.wanted();
        if outcome.pages_read != wanted {
            return Err(format!("programs got {} pages of {wanted}", outcome.pages_read));
        }
        if outcome.pages_used_ahead + outcome.pages_lost_unread > outcome.pages_fetched {
            return Err("more pages were read or lost than were fetched".into());
        }
        Ok(outcome)
    }

    /// Pages that its programs ask for, within their files.
    fn wanted(&self) -> u64 {
        let of = |program: &Program| {
            let size = self.files[program.file as usize];
            let one = |step: &Step| match step {
                Step::Read { pages, transfer, .. } => {
                    transfer.0.min(pages.intersection(Extent::new(0, size)).count.0)
                }
                _ => 0,
            };
            program.steps.iter().map(one).sum::<u64>()
        };
        self.programs.iter().map(of).sum()
    }

    /// How much there is to read: steps, programs, faults.
    fn size(&self) -> usize {
        let f = &self.faults;
        let faults = [
            f.fail_one_in > 0,
            f.short_one_in > 0,
            f.jitter_max.0 > 0,
            f.slow.is_some(),
            f.squeeze.is_some(),
            f.taken.is_some(),
        ];
        let steps: usize = self.programs.iter().map(|program| program.steps.len()).sum();
        steps
            + self.programs.len()
            + faults.into_iter().filter(|&there| there).count()
            + (self.shards > 1) as usize
    }

    /// Scenarios that lack something of it: a fault, a program, a stretch of steps.
    fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut without = |change: &dyn Fn(&mut Self)| {
            let mut less = self.clone();
            change(&mut less);
            if less.size() < self.size() {
                all.push(less);
            }
        };
        for i in 0..self.programs.len() {
            without(&|s| drop(s.programs.remove(i)));
        }
        without(&|s| s.faults.fail_one_in = 0);
        without(&|s| s.faults.short_one_in = 0);
        without(&|s| s.faults.jitter_max = Nanos(0));
        without(&|s| s.faults.slow = None);
        without(&|s| s.faults.squeeze = None);
        without(&|s| s.faults.taken = None);
        without(&|s| s.shards = 1);
        for (i, program) in self.programs.iter().enumerate() {
            let mut len = program.steps.len();
            while len > 0 {
                for from in (0..program.steps.len()).step_by(len) {
                    let to = (from + len).min(program.steps.len());
                    without(&|s| drop(s.programs[i].steps.drain(from..to)));
                }
                len /= 2;
            }
        }
        all
    }

    /// The smallest scenario found that still fails, one thing after another left out. `fails` is asked at most `tries` times.
    #[must_use]
    pub fn shrunk(&self, mut tries: u32, mut fails: impl FnMut(&Self) -> bool) -> Self {
        let mut least = self.clone();
        'again: loop {
            for less in least.smaller() {
                if tries == 0 {
                    return least;
                }
                tries -= 1;
                if fails(&less) {
                    least = less;
                    continue 'again;
                }
            }
            return least;
        }
    }
}

/// The step through that descriptor: programs that were left out have moved the numbers of those behind them.
fn through(to: u32, mut step: Step) -> Step {
    if let Step::Read { fd, .. } | Step::Write { fd, .. } | Step::DontNeed { fd, .. } = &mut step {
        *fd = to;
    }
    step
}

fn drawn_steps(fd: u32, rng: &mut Rng) -> Vec<Step> {
    let (mut steps, mut at) = (Vec::new(), rng.below(FILE));
    let (kind, len) = (rng.below(5), 1 + rng.below(16));
    for _ in 0..rng.below(120) {
        at = match kind {
            0 => (at + len) % FILE,
            1 => (at + 3 * len) % FILE,
            2 => at.saturating_sub(len),
            3 => rng.below(FILE),
            _ if rng.below(8) == 0 => rng.below(FILE),
            _ => (at + len) % FILE,
        };
        let pages = Extent::new(at, len.min(FILE - at));
        steps.push(match rng.below(20) {
            0 | 1 => Step::Write { fd, pages },
            2 => Step::DontNeed { fd, pages: Extent::new(0, at) },
            3 => Step::Think(Nanos::from_us(rng.below(5000))),
            _ => Step::Read { fd, pages, transfer: PageCount(1 + rng.below(pages.count.0)) },
        });
    }
    steps
}

fn machine(text: &str) -> Result<MachineModel, String> {
    let disk = DiskModel::hitachi_2007();
    let mut words = text.split_whitespace();
    let (name, number) = (words.next().unwrap_or(""), words.next().and_then(|n| n.parse::<u64>().ok()));
    match (name, number) {
        ("disk", _) => Ok(MachineModel::Disk(disk)),
        ("slices", Some(ms)) => Ok(MachineModel::Disk(disk.with_slices(ms))),
        ("raid", Some(disks)) => Ok(MachineModel::Raid { disk, disks: disks as u32, stripe_bytes: 64 << 10 }),
        ("table", _) => Ok(MachineModel::Table {
            bytes_per_s: 200_000_000,
            rows: vec![(4096, 20_000), (1 << 20, 100_000)],
        }),
        _ => text.parse::<DeviceModel>().map(MachineModel::Plain).map_err(|e| format!("machine {text}: {e}")),
    }
}

fn brain(text: &str, frames: u64) -> Result<Brain, String> {
    if text == "wave" {
        return Ok(Brain::Wave(Config { memory: PageCount(frames).bytes(), ..Config::default() }));
    }
    if let Some((name, max)) = text.split_once(' ') {
        let era = bowwave_core::NAMES.into_iter().find(|known| *known == name);
        return Ok(Brain::era(era.ok_or(format!("no era {name}"))?, max.parse().map_err(|_| "no ceiling")?));
    }
    rival(text).ok_or(format!("no brain {text}"))
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placement = match self.placement {
            Placement::Fair => "fair",
            Placement::Fill => "fill",
            Placement::Hashed => "hashed",
        };
        let victim = if self.victim == Victim::Oldest { "oldest" } else { "same" };
        writeln!(f, "machine {}", self.machine)?;
        writeln!(f, "memory {} shards {} {placement} {victim}", self.frames, self.shards)?;
        writeln!(f, "brain {}", self.brain)?;
        writeln!(f, "request_max {}", self.request_max)?;
        writeln!(f, "files {}", self.files.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))?;
        let (ms, us) = (|n: Nanos| n.0 / 1_000_000, |n: Nanos| n.0 / 1000);
        let faults = &self.faults;
        write!(f, "faults seed {} fail {} short {}", faults.seed, faults.fail_one_in, faults.short_one_in)?;
        write!(f, " jitter {}", us(faults.jitter_max))?;
        if let Some((spell, late)) = faults.slow {
            write!(f, " slow {} {} {}", ms(spell.every), ms(spell.lasting), ms(late))?;
        }
        if let Some((spell, permille)) = faults.squeeze {
            write!(f, " squeeze {} {} {permille}", ms(spell.every), ms(spell.lasting))?;
        }
        if let Some((every, permille)) = faults.taken {
            write!(f, " taken {} {permille}", ms(every))?;
        }
        writeln!(f)?;
        for program in &self.programs {
            writeln!(f, "program file {} start {}", program.file, us(program.start))?;
            for step in &program.steps {
                match step {
                    Step::Read { pages, transfer, .. } => {
                        writeln!(f, "  read {} {} {}", pages.start, pages.count, transfer)?
                    }
                    Step::Write { pages, .. } => writeln!(f, "  write {} {}", pages.start, pages.count)?,
                    Step::DontNeed { pages, .. } => {
                        writeln!(f, "  dontneed {} {}", pages.start, pages.count)?
                    }
                    Step::Think(time) => writeln!(f, "  think {}", us(*time))?,
                    Step::Fault { .. } | Step::Until(_) | Step::End => {}
                }
            }
        }
        Ok(())
    }
}

impl FromStr for Scenario {
    type Err = NotAScenario;

    /// Reads what `Display` writes; `#` begins a comment.
    fn from_str(text: &str) -> Result<Self, NotAScenario> {
        let mut s = Self {
            machine: "hdd".into(),
            frames: 256,
            shards: 1,
            placement: Placement::Fair,
            victim: Victim::Oldest,
            brain: "wave".into(),
            request_max: 256,
            files: vec![FILE],
            faults: Faults::default(),
            programs: Vec::new(),
        };
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if !line.is_empty() {
                s.line(line).map_err(|what| NotAScenario { line: at + 1, what })?;
            }
        }
        if let Some(program) = s.programs.iter().find(|program| program.file as usize >= s.files.len()) {
            return Err(NotAScenario { line: 0, what: format!("there is no file {}", program.file) });
        }
        Ok(s)
    }
}

impl Scenario {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |i: usize| -> Result<u64, String> {
            let word = words.get(i).ok_or(format!("{word}: a number is missing"))?;
            word.parse().map_err(|_| format!("{word} is no number"))
        };
        let fd = self.programs.len().saturating_sub(1) as u32;
        let step = match word {
            "machine" => {
                machine(rest)?;
                self.machine = rest.into();
                return Ok(());
            }
            "brain" => {
                brain(rest, 256)?;
                self.brain = rest.into();
                return Ok(());
            }
            "memory" => return self.memory(number(0)?, number(2)?, words.get(3..).unwrap_or(&[])),
            "request_max" => {
                self.request_max = number(0)?.max(1);
                return Ok(());
            }
            "files" => {
                self.files = (0..words.len()).map(number).collect::<Result<_, _>>()?;
                return Ok(());
            }
            "faults" => return self.faults(&words),
            "program" => {
                let (file, start) = (number(1)? as u32, Nanos::from_us(number(3)?));
                self.programs.push(Program { file, start, steps: Vec::new() });
                return Ok(());
            }
            "read" => Step::Read {
                fd,
                pages: Extent::new(number(0)?, number(1)?.max(1)),
                transfer: PageCount(number(2)?.clamp(1, number(1)?.max(1))),
            },
            "write" => Step::Write { fd, pages: Extent::new(number(0)?, number(1)?) },
            "dontneed" => Step::DontNeed { fd, pages: Extent::new(number(0)?, number(1)?) },
            "think" => Step::Think(Nanos::from_us(number(0)?)),
            _ => return Err(format!("what is {word}?")),
        };
        self.programs.last_mut().ok_or("a step before any program")?.steps.push(step);
        Ok(())
    }

    fn memory(&mut self, frames: u64, shards: u64, words: &[&str]) -> Result<(), String> {
        (self.frames, self.shards) = (frames.max(1), shards.clamp(1, frames.max(1)));
        self.placement = match words.first() {
            Some(&"fair") => Placement::Fair,
            Some(&"fill") => Placement::Fill,
            Some(&"hashed") => Placement::Hashed,
            _ => return Err("placement is fair, fill or hashed".into()),
        };
        self.victim = match words.get(1) {
            Some(&"oldest") => Victim::Oldest,
            Some(&"same") => Victim::Same,
            _ => return Err("a victim is oldest or same".into()),
        };
        Ok(())
    }

    fn faults(&mut self, words: &[&str]) -> Result<(), String> {
        let of = |name: &str, i: usize| -> Result<u64, String> {
            let Some(at) = words.iter().position(|word| *word == name) else { return Ok(0) };
            let word = words.get(at + i).ok_or(format!("{name}: a number is missing"))?;
            word.parse().map_err(|_| format!("{word} is no number"))
        };
        let spell = |name: &str| -> Result<Spell, String> {
            Ok(Spell { every: Nanos::from_ms(of(name, 1)?.max(1)), lasting: Nanos::from_ms(of(name, 2)?) })
        };
        self.faults = Faults {
            seed: of("seed", 1)?,
            fail_one_in: of("fail", 1)?,
            short_one_in: of("short", 1)?,
            jitter_max: Nanos::from_us(of("jitter", 1)?),
            slow: if words.contains(&"slow") {
                Some((spell("slow")?, Nanos::from_ms(of("slow", 3)?)))
            } else {
                None
            },
            squeeze: if words.contains(&"squeeze") {
                Some((spell("squeeze")?, of("squeeze", 3)?))
            } else {
                None
            },
            taken: if words.contains(&"taken") {
                Some((Nanos::from_ms(of("taken", 1)?.max(1)), of("taken", 2)?))
            } else {
                None
            },
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_read_as_it_is_written() {
        for seed in 0..200 {
            let drawn = Scenario::drawn(seed);
            assert_eq!(drawn.to_string().parse::<Scenario>().unwrap(), drawn, "seed {seed}");
        }
        let wrong = "machine disk\nread 0 1 1\n".parse::<Scenario>().unwrap_err();
        assert_eq!(wrong.to_string(), "line 2: a step before any program");
    }

    /// The worked example of the module.
    #[test]
    fn a_broken_world_shrinks() {
        let mut text = String::from("machine disk\nfiles 2048\n");
        for program in 0..3 {
            text.push_str("program file 0 start 0\n");
            (0..40).for_each(|i| text.push_str(&format!("  read {} 1 1\n", program * 37 + i)));
        }
        let reads_77 = |s: &Scenario| s.to_string().contains("read 77 1 1");
        let all = text.parse::<Scenario>().unwrap();
        assert!(reads_77(&all) && all.play().is_ok());
        let least = all.shrunk(10_000, reads_77);
        assert_eq!(least.programs.len(), 1);
        assert_eq!(least.programs[0].steps.len(), 1);
    }
}
