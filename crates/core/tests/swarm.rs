//! Random inputs for the brain, from a seed: whatever a driver tells, in whatever order, must not break what must hold.
//!
//! A seed draws a world (files, devices, memory, which kinds of input come how often) and some thousand inputs; readers
//! follow patterns, so that streams, strides and clusters come about, and answers come late, never, twice, or for
//! fetches that do not exist. After every input `check()` must pass, and every fetch must be fit to send:
//!
//! ```text
//!   seed -> world -> input -> Wave::handle -> check() -> poll ... -> not empty, not too large, inside the file,
//!                      ^                                        |    no page of it under way already
//!                      '--- arrived, skipped, failed, never <---'
//! ```
//!
//! Each seed is played twice and must give the same actions, decisions and counters. A failure prints its seed:
//!
//! `BOWWAVE_FUZZ_SEED=N cargo test -p bowwave-core --test swarm -- --nocapture` plays it alone, and with
//! `BOWWAVE_FUZZ_ALL=1` prints all of its inputs and actions;
//! `BOWWAVE_FUZZ_SECONDS=60` goes on for so long, from a seed that nobody has played yet.

use bowwave_core::{
    Action, Advice, Bytes, Config, Extent, FetchId, FileId, Input, Nanos, PAGE_SIZE, PageCount, PageIndex,
    Wave,
};
use bowwave_fuzz::Chance;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Without a word of the environment: this long, from seed 1.
const SECONDS_DEFAULT: u64 = 2;
/// Inputs and actions shown of a failure, the latest.
const SHOWN: usize = 24;

#[test]
fn whatever_a_driver_tells() {
    let number =
        |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    if let Some(seed) = number("BOWWAVE_FUZZ_SEED") {
        println!("seed={seed}");
        return twice(seed);
    }
    let seconds = number("BOWWAVE_FUZZ_SECONDS");
    let fresh =
        || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64 * 1000);
    let first = seconds.map_or(1, |_| fresh());
    let (begun, mut seed) = (Instant::now(), first);
    let mut failed = Vec::new();
    while begun.elapsed() < Duration::from_secs(seconds.unwrap_or(SECONDS_DEFAULT)) && failed.len() < 8 {
        if catch_unwind(|| twice(seed)).is_err() {
            eprintln!(
                "seed={seed} failed; BOWWAVE_FUZZ_SEED={seed} cargo test -p bowwave-core --test swarm plays it"
            );
            failed.push(seed);
        }
        seed += 1;
    }
    println!("seeds {first} to {}: {} failed", seed - 1, failed.len());
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

fn twice(seed: u64) {
    let first = play(seed, true);
    let second = play(seed, false);
    assert!(first == second, "seed {seed} gave other actions the second time");
}

// ---- chance --------------------------------------------------------------------------------------------------------

/// What a scenario draws.
trait Draws {
    /// Of any magnitude up to 2^bits.
    fn scale(&mut self, bits: u64) -> u64;
    /// One time in `n`.
    fn one_in(&mut self, n: u64) -> bool;
}

impl Draws for Chance {
    fn scale(&mut self, bits: u64) -> u64 {
        let shift = self.below(bits + 1);
        self.below(1 << shift) + (1 << shift) / 2
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

// ---- a world -------------------------------------------------------------------------------------------------------

/// How a reader goes on.
#[derive(Clone, Copy, Debug)]
enum Habit {
    Forward,
    Backward,
    Stride(u64),
    Random,
    Nearby(u64),
    Again,
}

struct Reader {
    file: u64,
    page: u64,
    pages: u64,
    habit: Habit,
}

struct World {
    chance: Chance,
    config: Config,
    now: u64,
    /// Open files: pages in them.
    files: BTreeMap<u64, u64>,
    readers: Vec<Reader>,
    /// What was sent and not answered: file, pages, and whether the brain can still know of it.
    flights: BTreeMap<u64, (u64, Extent, bool)>,
    last_read: Vec<Option<(u64, Extent)>>,
    /// What comes next in any case: the read of which was told where it lies.
    next: Option<Input>,
    /// Pages of a request at most, by device.
    request_max: [PageCount; DEVICES as usize],
    /// How often each kind of input comes.
    weights: [u64; KINDS],
    file_max: u64,
    time_bits: u64,
    page_bits: u64,
}

const KINDS: usize = 15;
const DEVICES: u64 = 3;

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let request_max = 1 << chance.below(10);
        let config = Config {
            memory: Bytes(chance.scale(34)),
            waste_absolute: chance.below(4) == 0,
            waste_percent: [0, 5, 15, 100, 1000][chance.below(5) as usize],
            request_max: PageCount(request_max),
            reader_max: PageCount(1 << chance.below(9)),
            read_goes_first: chance.one_in(4),
            told_within: Nanos(if chance.one_in(4) { chance.scale(34) } else { 0 }),
            seen_within: Nanos(if chance.one_in(4) { chance.scale(34) } else { 0 }),
        };
        // A swarm: each world leaves some kinds of input out, and drowns in others.
        let usual = [60, 20, 4, 20, 4, 2, 3, 3, 2, 1, 1, 2, 4, 1, 1];
        let weights = usual
            .map(|weight| if chance.one_in(4) { 0 } else { weight << chance.below(3) >> chance.below(2) });
        let weights =
            if weights[0] == 0 { [30, 10, 1, 10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] } else { weights };
        let file_max = 1 + chance.below(6);
        let readers = (0..1 + chance.scale(6))
            .map(|_| Reader { file: chance.below(file_max), page: 0, pages: 1, habit: Habit::Forward })
            .collect::<Vec<_>>();
        let last_read = readers.iter().map(|_| None).collect();
        let (time_bits, page_bits) = (10 + chance.below(22), 1 + chance.below(20));
        let files = BTreeMap::new();
        let flights = BTreeMap::new();
        Self {
            chance,
            config,
            now: 0,
            files,
            readers,
            flights,
            last_read,
            next: None,
            request_max: [config.request_max; DEVICES as usize],
            weights,
            file_max,
            time_bits,
            page_bits,
        }
    }

    fn extent(&mut self, file: u64) -> Extent {
        let end = self.files.get(&file).copied().unwrap_or(1000);
        // Some of it past the end of the file.
        let (start, count) = (self.chance.below(end + end / 8 + 1), self.chance.scale(10));
        Extent::new(start, count)
    }

    fn any_file(&mut self) -> u64 {
        let beyond = self.chance.one_in(64);
        self.chance.below(self.file_max + u64::from(beyond))
    }

    fn read(&mut self) -> Input {
        let who = self.chance.below(self.readers.len() as u64) as usize;
        let (fresh, turn) = (self.chance.one_in(40), self.chance.one_in(200));
        if turn || (fresh && self.chance.one_in(2)) {
            let file = self.any_file();
            let period = self.chance.scale(8) + 1;
            let habit = [
                Habit::Forward,
                Habit::Forward,
                Habit::Backward,
                Habit::Stride(period),
                Habit::Random,
                Habit::Nearby(period * 4),
                Habit::Again,
            ][self.chance.below(7) as usize];
            let bits = if self.chance.one_in(8) { 9 } else { 3 };
            let pages = self.chance.scale(bits).max(1);
            let page = if self.chance.one_in(3) {
                0
            } else {
                self.chance.below(self.files.get(&file).copied().unwrap_or(9) + 1)
            };
            self.readers[who] = Reader { file, page, pages, habit };
        }
        let end = self.files.get(&self.readers[who].file).copied().unwrap_or(100).max(1);
        let random = self.chance.below(end);
        let near = self.chance.number();
        let r = &mut self.readers[who];
        r.page = match r.habit {
            Habit::Forward => r.page + r.pages,
            Habit::Backward => r.page.checked_sub(r.pages).unwrap_or(end),
            Habit::Stride(period) => r.page + period,
            Habit::Random => random,
            Habit::Nearby(span) => (r.page + near % (2 * span)).saturating_sub(span),
            Habit::Again => r.page,
        };
        if fresh {
            r.page = random;
        } else if r.page >= end && self.chance.one_in(2) {
            r.page = 0;
        }
        let (file, pages) = (r.file, Extent::new(r.page, r.pages));
        self.last_read[who] = Some((file, pages));
        Input::Read { file: FileId(file), pages, actor: who as u32 }
    }

    /// An answer's number: mostly one that is under way, mostly the oldest.
    fn answer(&mut self) -> FetchId {
        let many = self.flights.len() as u64;
        if many == 0 || self.chance.one_in(50) {
            return FetchId(self.chance.below(5000));
        }
        let nth = if self.chance.one_in(3) { self.chance.below(many) } else { 0 };
        FetchId(*self.flights.keys().nth(nth as usize).expect("as many as counted"))
    }

    fn open(&mut self, file: u64) -> Input {
        let size = match self.files.get(&file) {
            // The size changes: a little more, a little less, nothing at all.
            Some(&pages) if !self.chance.one_in(4) => pages + self.chance.scale(4),
            Some(&pages) if self.chance.one_in(2) => self.chance.below(pages + 1),
            _ => self.chance.scale(self.page_bits),
        };
        let odd = if size > 0 { self.chance.below(PAGE_SIZE) } else { 0 };
        Input::Open {
            file: FileId(file),
            device: file % DEVICES,
            size: Bytes((size * PAGE_SIZE).saturating_sub(odd)),
        }
    }

    /// Where a read lies to the byte: as it does, mostly at one place of its page, or anywhere.
    fn exactly(&mut self, read: Input) -> Input {
        let Input::Read { pages, actor, .. } = read else { return read };
        let from = match self.chance.below(8) {
            0 => self.chance.scale(63),
            1 => pages.start.0.saturating_mul(PAGE_SIZE).saturating_add(self.chance.below(PAGE_SIZE)),
            _ => pages.start.0.saturating_mul(PAGE_SIZE).saturating_add(pages.start.0 * 1000 % PAGE_SIZE),
        };
        Input::Exactly { actor, from, bytes: Bytes(self.chance.scale(24)) }
    }

    fn input(&mut self) -> Input {
        if let Some(next) = self.next.take() {
            return next;
        }
        let mut at = self.chance.below(self.weights.iter().sum());
        let kind = self.weights.iter().position(|&weight| {
            let here = at < weight;
            at = at.saturating_sub(weight);
            here
        });
        let file = self.any_file();
        match kind.expect("the weights add up") {
            0 => {
                let read = self.read();
                if self.chance.one_in(2) {
                    return read;
                }
                self.next = Some(read);
                self.exactly(read)
            }
            1 => {
                let who = self.chance.below(self.readers.len() as u64);
                let (file, pages) = self.last_read[who as usize].unwrap_or((file, Extent::new(0, 1)));
                let took = if self.chance.one_in(2) { self.chance.scale(14) } else { self.chance.scale(36) };
                let ended = Nanos(self.chance.scale(36));
                Input::Waited { file: FileId(file), pages, actor: who as u32, took: Nanos(took), ended }
            }
            2 => Input::Used { file: FileId(file), pages: self.extent(file) },
            3 => Input::Arrived { fetch: self.answer() },
            4 => Input::Skipped { fetch: self.answer() },
            5 => Input::Failed { fetch: self.answer() },
            6 => Input::Present { file: FileId(file), pages: self.extent(file) },
            7 => Input::Dropped { file: FileId(file), pages: self.extent(file) },
            8 => {
                let all =
                    [Advice::Normal, Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed];
                let advice = all[self.chance.below(5) as usize];
                Input::Advised { file: FileId(file), pages: self.extent(file), advice }
            }
            9 => Input::Close { file: FileId(file) },
            10 => Input::Memory { bytes: Bytes(self.chance.scale(35)) },
            11 => self.open(file),
            12 => {
                let device = self.chance.below(DEVICES);
                let request_max = PageCount(1 << self.chance.below(10));
                self.request_max[device as usize] = request_max;
                Input::Device { device, request_max, reader_max: PageCount(1 << self.chance.below(9)) }
            }
            13 if self.chance.one_in(2) => Input::Untold { file: FileId(file), reads: self.chance.scale(20) },
            13 => Input::Told { file: FileId(file), all: self.chance.one_in(2) },
            _ => {
                self.now += self.chance.scale(self.time_bits + 4);
                Input::Used { file: FileId(file), pages: Extent::new(0, 0) }
            }
        }
    }

    /// Keeps the books of what the brain was told.
    fn told(&mut self, input: Input) {
        let mut forget = |file: u64, from: u64| {
            for flight in self.flights.values_mut().filter(|f| f.0 == file && f.1.end().0 > from) {
                flight.2 = false;
            }
        };
        match input {
            Input::Open { file, size, .. } => {
                let pages = size.0.div_ceil(PAGE_SIZE);
                if let Some(before) = self.files.insert(file.0, pages)
                    && pages < before
                {
                    forget(file.0, pages);
                }
            }
            Input::Close { file } => {
                self.files.remove(&file.0);
                forget(file.0, 0);
            }
            // Pages that a sample found or a read has waited for were there: their fetch has arrived, though that may be
            // told later, even after they were dropped.
            Input::Present { file, pages } | Input::Waited { file, pages, .. } => {
                for flight in self.flights.values_mut().filter(|f| f.0 == file.0) {
                    flight.2 &= flight.1.intersection(pages).is_empty();
                }
            }
            Input::Arrived { fetch } | Input::Skipped { fetch } | Input::Failed { fetch } => {
                // Two fetches of the same pages may be out after such a drop; the answer to one stands for both.
                if let Some((file, pages, _)) = self.flights.remove(&fetch.0) {
                    for flight in self.flights.values_mut().filter(|f| f.0 == file) {
                        flight.2 &= flight.1.intersection(pages).is_empty();
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether an action may be sent.
    fn fit(&mut self, action: Action) {
        let Action::Fetch { id, file, pages, .. } = action;
        let end = self.files.get(&file.0).copied();
        assert!(end.is_some(), "a fetch of file {file:?}, which is not open: {action:?}");
        assert!(!pages.is_empty(), "an empty fetch: {action:?}");
        assert!(
            pages.count <= self.request_max[(file.0 % DEVICES) as usize],
            "larger than {:?}: {action:?}",
            self.request_max
        );
        assert!(Some(pages.end().0) <= end, "past the end of a file of {end:?} pages: {action:?}");
        for (other, &(of, under_way, known)) in &self.flights {
            let meets = of == file.0 && known && !under_way.intersection(pages).is_empty();
            assert!(!meets, "fetched twice at once: {action:?} while #{other} {under_way} is in flight");
        }
        assert!(
            self.flights.insert(id.0, (file.0, pages, true)).is_none(),
            "a number used twice: {action:?}"
        );
    }
}

/// Everything that a brain let be seen.
#[derive(PartialEq, Debug, Default)]
struct Seen {
    actions: Vec<Action>,
    decisions: Vec<bowwave_core::Explained>,
    changed: Vec<(FileId, u64)>,
    counters: bowwave_core::Counters,
}

fn play(seed: u64, checked: bool) -> Seen {
    let mut world = World::new(seed);
    let mut wave = Wave::new(world.config);
    let mut seen = Seen::default();
    let mut told: Vec<(u64, String)> = Vec::new();
    let steps = 200 + world.chance.below(4000);
    let mut played = || {
        for step in 0..steps {
            let input = if step < world.file_max { world.open(step) } else { world.input() };
            world.now += world.chance.scale(world.time_bits);
            told.push((world.now, format!("{input:?}")));
            wave.handle(Nanos(world.now), input);
            world.told(input);
            if checked {
                wave.check();
            }
            // A driver may be busy elsewhere for a while.
            if world.chance.one_in(16) {
                continue;
            }
            while let Some(action) = wave.poll(Nanos(world.now)) {
                told.push((world.now, format!("  -> {action:?}")));
                world.fit(action);
                seen.actions.push(action);
            }
            if checked {
                wave.check();
            }
            seen.changed.extend(wave.take_changed());
            seen.decisions.extend(wave.take_trace());
            let leaf = world.chance.below(64);
            let (quiet, arrived) = wave.leaf(FileId(step % world.file_max), leaf);
            assert_eq!(arrived & !quiet, 0, "what has arrived and needs no event is quiet");
        }
    };
    let outcome = catch_unwind(AssertUnwindSafe(&mut played));
    if let Err(cause) = outcome {
        eprintln!("seed={seed} {:?}; the last inputs and actions:", world.config);
        let skipped =
            if std::env::var_os("BOWWAVE_FUZZ_ALL").is_some() { 0 } else { told.len().saturating_sub(SHOWN) };
        for (now, words) in &told[skipped..] {
            eprintln!("  {now:>14} ns  {words}");
        }
        std::panic::resume_unwind(cause);
    }
    seen.counters = *wave.counters();
    assert!(seen.counters.pages_useful <= seen.counters.pages_ahead, "{:?}", seen.counters);
    seen
}

/// Files without a reader end, too: nothing is left under way for ever where every fetch is answered.
#[test]
fn the_queue_empties() {
    for seed in 1..20 {
        let mut chance = Chance::new(seed);
        let mut wave = Wave::new(Config::default());
        let size = Bytes(chance.scale(16) * PAGE_SIZE + 1);
        wave.handle(Nanos(0), Input::Open { file: FileId(1), device: 0, size });
        let all = Extent::covering(0, size.0);
        wave.handle(Nanos(1), Input::Advised { file: FileId(1), pages: all, advice: Advice::WillNeed });
        let (mut now, mut fetched) = (1, 0);
        loop {
            let mut sent = Vec::new();
            while let Some(Action::Fetch { id, pages, .. }) = wave.poll(Nanos(now)) {
                assert!(pages.start >= PageIndex(0) && pages.end() <= all.end());
                fetched += pages.count.0;
                sent.push(id);
            }
            if sent.is_empty() {
                break;
            }
            for fetch in sent {
                now += 1_000_000;
                wave.handle(Nanos(now), Input::Arrived { fetch });
                wave.check();
            }
        }
        assert_eq!(fetched, all.count.0, "seed {seed}: advice is carried out to its end");
    }
}
