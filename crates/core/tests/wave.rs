//! `wave`, told: each file of `wave/` is a story of one rule, of what a driver tells and of what is decided on it.
//!
//! A command, a rule of dashes, the answer, a blank line; `#` tells what is going on. `BOWWAVE_UPDATE=1` rewrites the
//! answers: read the difference, and commit only what you can explain.
//!
//! ```text
//! new [memory=1G] [request=32] [reader=32] [waste=15] [read-first=no]
//!                                                           a brain that knows nothing
//! open f0 64M [device=0]                                    a file; the first one opened is meant where none is named
//! store 30ms                                                from here on fetches arrive, and reads that miss wait, by themselves
//! read PAGE[,PAGE...] COUNT [f1] [by=1] [at=20ms]           a read is told; `at` moves the clock to that moment
//! scan FROM..TO[..STEP] COUNT [by=1]                        one read after another, downwards where FROM is the greater
//! bytes FROM..TO..STEP COUNT [by=1]                         the same by bytes, and told to the byte
//! random FROM..TO COUNT times=200                           so many reads at random, always the same ones
//! waited 30ms [by=1]                                        the latest read has taken so long
//! arrived all | failed all | skipped all                    what becomes of the fetches under way
//! present PAGE COUNT | dropped PAGE COUNT | used PAGE COUNT
//! lost PAGE COUNT                                           the cache dropped them, and nobody says so
//! advise normal|sequential|random | advise willneed|dontneed PAGE COUNT
//! memory 64M | pass 5s | close f0
//! unread | streams                                          pages fetched ahead and not read; streams found so far
//! ```
//!
//! Answers: one line a decision, `pattern [pages) mark=page why=rule`, and one with the requests that went out;
//! several reads at once tell at which page something was decided, and sum the requests up. Three windows and more of
//! one decision are told as `first to last`; `given up [pages)` is what a driver may let go.

use bowwave_core::{
    Action, Advice, Bytes, Config, Extent, FetchId, FileId, Input, Nanos, PageCount, PageIndex, Wave, Why,
    Window,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// From one command to the next.
const STEP_NS: u64 = 10_000;

fn stories() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wave");
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn every_story_is_still_true() {
    let mut changed = Vec::new();
    for path in stories() {
        let told = std::fs::read_to_string(&path).unwrap();
        let played = play(&told);
        if told != played {
            changed.push(format!("{}\n{}", path.display(), first_difference(&told, &played)));
            if std::env::var("BOWWAVE_UPDATE").is_ok_and(|v| v == "1") {
                std::fs::write(&path, played).unwrap();
            }
        }
    }
    assert!(changed.is_empty(), "{}\nBOWWAVE_UPDATE=1 rewrites; read the difference", changed.join("\n"));
}

/// The rules of the table in `wave/mod.rs`: number and name.
fn table() -> BTreeMap<u32, String> {
    let source = std::fs::read_to_string(sources().join("mod.rs")).unwrap();
    source
        .lines()
        .filter_map(|line| line.strip_prefix("//! | R")?.split_once(" | "))
        .map(|(rule, _)| rule.split_once(' ').expect("a number and a name"))
        .map(|(number, name)| (number.parse().expect("a number"), name.to_string()))
        .collect()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wave")
}

/// The sources below a folder; what lies in a file of tests is none.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.file_name().is_some_and(|name| name != "tests.rs"));
    folders.iter().flat_map(|folder| files_below(folder)).chain(files).collect()
}

/// The files that the table names for a rule are there, and each of them says that it is of that rule.
#[test]
fn every_rule_is_where_the_table_says() {
    let source = std::fs::read_to_string(sources().join("mod.rs")).unwrap();
    let rows: Vec<&str> = source.lines().filter(|line| line.starts_with("//! | R")).collect();
    assert!(rows.len() >= 15);
    for row in rows {
        let columns: Vec<&str> = row.trim_start_matches("//! | ").split(" | ").collect();
        let rule = columns[0].split(' ').next().unwrap();
        // `a.rs, folder/{b,c}.rs`.
        let mut places = Vec::new();
        for part in columns[2].split(", ") {
            let (folder, names) = part.rsplit_once('/').unwrap_or((".", part));
            let names = names.trim_end_matches(".rs").trim_matches(['{', '}']);
            places.extend(names.split(',').map(|name| sources().join(folder).join(format!("{name}.rs"))));
        }
        for place in places {
            let text =
                std::fs::read_to_string(&place).unwrap_or_else(|_| panic!("{rule}: no {}", place.display()));
            let cites = text
                .match_indices(rule)
                .any(|(at, _)| !text[at + rule.len()..].starts_with(|c: char| c.is_ascii_digit()));
            let spans = text.contains("-R");
            assert!(cites || spans, "{} says nothing of {rule}", place.display());
        }
    }
}

/// A rule's story is named after it, begins with its name, and ends with more than silence.
#[test]
fn every_rule_has_a_story() {
    let rules = table();
    assert!(rules.len() >= 15, "the table of rules in wave/mod.rs: {rules:?}");
    assert!(rules.keys().copied().eq(1..=rules.len() as u32), "rules are numbered from 1 without a gap");
    for (number, name) in &rules {
        let slug = name.replace(' ', "-");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/wave/r{number:02}-{slug}.txt"));
        let story = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("no story {}", path.display()));
        let title = format!("# R{number} {name}");
        assert!(story.starts_with(&title), "{} begins with `{title}`", path.display());
        assert!(story.contains(" why=R"), "{} decides something", path.display());
    }
}

/// Every reason that the code gives names a rule of the table, and none of the table's rules goes unmentioned.
#[test]
fn every_reason_is_a_rule_of_the_table() {
    let rules = table();
    let mut cited = BTreeSet::new();
    for path in files_below(&sources()) {
        let source = std::fs::read_to_string(&path).unwrap();
        for (at, _) in source.match_indices("\"R") {
            let digits: String = source[at + 2..].chars().take_while(char::is_ascii_digit).collect();
            if let Ok(number) = digits.parse::<u32>() {
                assert!(rules.contains_key(&number), "{}: R{number} is not in the table", path.display());
            }
        }
        let code = source.lines().filter(|line| !line.starts_with("//! |")).collect::<Vec<_>>().join("\n");
        for (at, _) in code.match_indices('R') {
            let alone = !code[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
            let digits: String = code[at + 1..].chars().take_while(char::is_ascii_digit).collect();
            let number = digits.parse::<u32>().ok().filter(|_| alone);
            cited.extend(number);
            // A span: R4-R7.
            if let (Some(from), Some(rest)) = (number, code[at + 1 + digits.len()..].strip_prefix("-R")) {
                let to: String = rest.chars().take_while(char::is_ascii_digit).collect();
                cited.extend(from..=to.parse().unwrap_or(from));
            }
        }
    }
    for (number, name) in &rules {
        assert!(cited.contains(number), "no line of the code says that it is R{number} {name}");
    }
}

/// The story with its answers played anew.
fn play(story: &str) -> String {
    let mut out = String::new();
    let mut world = World::new(Config::default());
    let mut lines = story.lines();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // The old answer, up to the blank line.
        lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = world.answer(&words);
        writeln!(out, "----\n{}\n", if answer.is_empty() { "nothing" } else { answer.trim_end() }).unwrap();
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    out
}

/// The program, the store and the clock around one brain.
struct World {
    wave: Wave,
    now: u64,
    /// How long the store takes; without it, the story tells what arrives and what waited.
    store_ns: Option<u64>,
    sizes: BTreeMap<u64, u64>,
    present: BTreeSet<(u64, u64)>,
    flights: BTreeMap<FetchId, (u64, Extent, u64)>,
    latest: BTreeMap<u32, (u64, Extent)>,
    /// What came of the latest input: the windows, and how each is told but for its pages.
    decisions: Vec<(Window, String, Why)>,
    requests: Vec<(Extent, bool)>,
    /// And what the driver let go.
    given_up: Vec<Extent>,
}

impl World {
    fn new(config: Config) -> Self {
        Self {
            wave: Wave::new(config),
            now: 0,
            store_ns: None,
            sizes: BTreeMap::new(),
            present: BTreeSet::new(),
            flights: BTreeMap::new(),
            latest: BTreeMap::new(),
            decisions: Vec::new(),
            requests: Vec::new(),
            given_up: Vec::new(),
        }
    }

    fn answer(&mut self, words: &[&str]) -> String {
        self.now += STEP_NS;
        if let Some(at) = option(words, "at") {
            let at = nanos(at);
            assert!(at >= self.now, "the clock stands at {} ns already", self.now);
            self.pass_until(at);
        }
        let file = words.iter().skip(1).find_map(|w| w.strip_prefix('f')?.parse().ok());
        let file = file.or_else(|| self.sizes.keys().next().copied()).unwrap_or(0);
        let actor = option(words, "by").map_or(1, |by| number(by) as u32);
        match *words {
            ["new", ref options @ ..] => {
                *self = Self::new(config(options));
                return "ok".into();
            }
            ["read", pages, count, ..] if pages.contains(',') => {
                let pages = pages.split(',').map(number).collect::<Vec<_>>();
                return self.reads(file, &pages, number(count), actor);
            }
            ["read", page, count, ..] => self.read(file, Extent::new(number(page), number(count)), actor),
            ["scan", range, count, ..] => {
                return self.reads(file, &scanned(range, number(count)), number(count), actor);
            }
            ["bytes", range, count, ..] => {
                let bytes = scanned(range, number(count));
                return self.reads_exactly(file, &bytes, number(count), actor);
            }
            ["random", range, count, ..] => {
                let times = option(words, "times").map_or(1, number);
                return self.reads(file, &drawn(range, times), number(count), actor);
            }
            ["streams"] => return format!("{} found", self.wave.counters().streams),
            ["unread"] => return format!("{} pages", self.wave.unread()),
            _ => self.happens(file, actor, words),
        }
        self.told()
    }

    fn happens(&mut self, file: u64, actor: u32, words: &[&str]) {
        let id = FileId(file);
        match *words {
            ["open", _, size, ..] => {
                let device = option(words, "device").map_or(0, number);
                self.sizes.insert(file, bytes(size));
                self.tell(Input::Open { file: id, device, size: Bytes(bytes(size)) });
            }
            ["close", ..] => self.tell(Input::Close { file: id }),
            ["store", took] => self.store_ns = Some(nanos(took)),
            ["pass", time] => self.pass_until(self.now + nanos(time)),
            ["waited", took, ..] => {
                let (file, pages) = self.latest[&actor];
                let took = nanos(took);
                self.pass_until(self.now + took);
                self.waited(file, pages, actor, took);
            }
            [fate @ ("arrived" | "failed" | "skipped"), "all"] => {
                for (fetch, (file, pages, _)) in std::mem::take(&mut self.flights) {
                    let input = match fate {
                        "arrived" => Input::Arrived { fetch },
                        "skipped" => Input::Skipped { fetch },
                        _ => Input::Failed { fetch },
                    };
                    if fate != "failed" {
                        self.there(file, pages);
                    }
                    self.tell(input);
                }
            }
            ["present", page, count, ..] => {
                let pages = Extent::new(number(page), number(count));
                self.there(file, pages);
                self.tell(Input::Present { file: id, pages });
            }
            ["dropped", page, count, ..] => {
                let pages = Extent::new(number(page), number(count));
                self.present.retain(|&(f, p)| f != file || !pages.contains(PageIndex(p)));
                self.tell(Input::Dropped { file: id, pages });
            }
            // Nobody says so: the story knows, the brain does not.
            ["lost", page, count, ..] => {
                let pages = Extent::new(number(page), number(count));
                self.present.retain(|&(f, p)| f != file || !pages.contains(PageIndex(p)));
            }
            ["told", all @ ("all" | "some")] => self.tell(Input::Told { file: id, all: all == "all" }),
            ["used", page, count, ..] => {
                self.tell(Input::Used { file: id, pages: Extent::new(number(page), number(count)) });
            }
            ["advise", advice, ref pages @ ..] => {
                let pages = match *pages {
                    [page, count, ..] => Extent::new(number(page), number(count)),
                    _ => Extent::covering(0, self.sizes[&file]),
                };
                let advice = match advice {
                    "normal" => Advice::Normal,
                    "sequential" => Advice::Sequential,
                    "random" => Advice::Random,
                    "willneed" => Advice::WillNeed,
                    "dontneed" => Advice::DontNeed,
                    _ => panic!("no such advice: {advice}"),
                };
                self.tell(Input::Advised { file: id, pages, advice });
            }
            ["device", number_of, ref options @ ..] => {
                let Config { request_max, reader_max, .. } = config(options);
                self.tell(Input::Device { device: number(number_of), request_max, reader_max });
            }
            ["memory", size] => self.tell(Input::Memory { bytes: Bytes(bytes(size)) }),
            _ => panic!("no such command: {words:?}"),
        }
    }

    fn tell(&mut self, input: Input) {
        self.wave.handle(Nanos(self.now), input);
        self.wave.check();
        while let Some(Action::Fetch { id, file, pages, demand, .. }) = self.wave.poll(Nanos(self.now)) {
            self.flights.insert(id, (file.0, pages, self.now + self.store_ns.unwrap_or(0)));
            self.requests.push((pages, demand));
        }
        self.wave.check();
        for e in self.wave.take_trace() {
            let file = if e.file.0 == 0 { String::new() } else { format!("f{} ", e.file) };
            let what = format!("{file}{}", e.decision.pattern);
            self.decisions.push((e.decision.window, what, e.decision.why));
        }
        while let Some((file, pages)) = self.wave.take_given_up() {
            self.present.retain(|&(f, page)| f != file.0 || !pages.contains(PageIndex(page)));
            self.given_up.push(pages);
        }
    }

    fn there(&mut self, file: u64, pages: Extent) {
        self.present.extend((pages.start.0..pages.end().0).map(|page| (file, page)));
    }

    /// Lets time pass, and what arrives in it arrive.
    fn pass_until(&mut self, then: u64) {
        while self.store_ns.is_some()
            && let Some((&fetch, &(file, pages, due))) = self.flights.iter().min_by_key(|(id, f)| (f.2, **id))
            && due <= then
        {
            self.flights.remove(&fetch);
            self.now = self.now.max(due);
            self.there(file, pages);
            self.tell(Input::Arrived { fetch });
        }
        self.now = self.now.max(then);
    }

    fn read(&mut self, file: u64, pages: Extent, actor: u32) {
        let pages = pages.intersection(Extent::covering(0, self.sizes[&file]));
        self.pass_until(self.now);
        self.latest.insert(actor, (file, pages));
        self.tell(Input::Read { file: FileId(file), pages, actor });
        let Some(store_ns) = self.store_ns else { return };
        let began = self.now;
        // The read itself brings what nobody is fetching.
        let arrives = |page: u64| {
            let page = PageIndex(page);
            let mut due = self.flights.values().filter(|f| f.0 == file && f.1.contains(page)).map(|f| f.2);
            due.next().unwrap_or(began + store_ns)
        };
        let missing = (pages.start.0..pages.end().0).filter(|&page| !self.present.contains(&(file, page)));
        if let Some(then) = missing.map(arrives).max() {
            self.pass_until(then);
            self.there(file, pages);
            self.waited(file, pages, actor, then - began);
        }
    }

    fn waited(&mut self, file: u64, pages: Extent, actor: u32, took: u64) {
        let (file, took, ended) = (FileId(file), Nanos(took), Nanos(self.now));
        self.tell(Input::Waited { file, pages, actor, took, ended });
    }

    fn reads(&mut self, file: u64, pages: &[u64], count: u64, actor: u32) -> String {
        let mut out = String::new();
        for &page in pages {
            self.read_on(file, Extent::new(page, count), actor, &mut out);
        }
        self.sum_up(out)
    }

    /// The same, each of so many bytes, and told to the byte.
    fn reads_exactly(&mut self, file: u64, bytes: &[u64], count: u64, actor: u32) -> String {
        let mut out = String::new();
        for &from in bytes {
            self.tell(Input::Exactly { actor, from, bytes: Bytes(count) });
            self.read_on(file, Extent::covering(from, count), actor, &mut out);
        }
        self.sum_up(out)
    }

    /// One read of several: what was decided goes to `out`.
    fn read_on(&mut self, file: u64, pages: Extent, actor: u32, out: &mut String) {
        self.read(file, pages, actor);
        self.now += STEP_NS;
        for line in self.decided() {
            writeln!(out, "{:<6} {line}", pages.start.0).unwrap();
        }
    }

    /// And the requests that went out.
    fn sum_up(&mut self, mut out: String) -> String {
        let fetched: u64 = self.requests.iter().map(|r| r.0.count.0).sum();
        if fetched > 0 {
            writeln!(out, "fetch  {fetched} pages in {} requests", self.requests.len()).unwrap();
        }
        self.requests.clear();
        out
    }

    /// The decisions since the last call, one line each; three and more of one kind are one line.
    fn decided(&mut self) -> Vec<String> {
        let decisions = std::mem::take(&mut self.decisions);
        let mut lines = Vec::new();
        for alike in decisions.chunk_by(|a, b| (&a.1, a.2) == (&b.1, b.2)) {
            if let [(first, what, why), .., (last, ..)] = alike
                && alike.len() > 2
            {
                let (first, last) = (first.extent(), last.extent());
                lines.push(format!("{what} {first} to {last}, {} windows why={why}", alike.len()));
                continue;
            }
            for (window, what, why) in alike {
                let mark = window.mark().map_or(String::new(), |mark| format!(" mark={mark}"));
                lines.push(format!("{what} {}{mark} why={why}", window.extent()));
            }
        }
        lines.extend(self.given_up.drain(..).map(|pages| format!("given up {pages}")));
        lines
    }

    fn told(&mut self) -> String {
        let mut out = String::new();
        for line in self.decided() {
            writeln!(out, "{line}").unwrap();
        }
        if !self.requests.is_empty() {
            out += "fetch ";
            for (pages, demand) in self.requests.drain(..) {
                write!(out, " {pages}{}", if demand { " demanded" } else { "" }).unwrap();
            }
        }
        out
    }
}

fn config(options: &[&str]) -> Config {
    let usual = Config::default();
    let pages = |name: &str, usual: PageCount| option(options, name).map_or(usual, |n| PageCount(number(n)));
    Config {
        memory: option(options, "memory").map_or(usual.memory, |size| Bytes(bytes(size))),
        waste_absolute: option(options, "waste").is_some(),
        waste_percent: option(options, "waste").map_or(usual.waste_percent, |n| number(n) as u32),
        request_max: pages("request", usual.request_max),
        reader_max: pages("reader", usual.reader_max),
        read_goes_first: option(options, "read-first") == Some("yes"),
        told_within: usual.told_within,
        seen_within: usual.seen_within,
    }
}

fn scanned(range: &str, count: u64) -> Vec<u64> {
    let mut parts = range.split("..").map(number);
    let (from, to) = (parts.next().expect("FROM"), parts.next().expect("FROM..TO"));
    let step = parts.next().unwrap_or(count) as usize;
    if from <= to { (from..to).step_by(step).collect() } else { (to..=from).rev().step_by(step).collect() }
}

/// Pages of the range, the same ones each time (the constants are Knuth's MMIX).
fn drawn(range: &str, times: u64) -> Vec<u64> {
    let (from, to) = range.split_once("..").expect("FROM..TO");
    let (from, to) = (number(from), number(to));
    let mut state = 7u64;
    (0..times)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            from + (state >> 33) % (to - from)
        })
        .collect()
}

fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("`{word}` is not a number"))
}

fn bytes(word: &str) -> u64 {
    let unit = [("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];
    unit.iter().find_map(|(u, n)| Some(number(word.strip_suffix(u)?) * n)).unwrap_or_else(|| number(word))
}

fn nanos(word: &str) -> u64 {
    let unit = [("ms", 1_000_000), ("us", 1_000), ("ns", 1), ("s", 1_000_000_000)];
    let found = unit.iter().find_map(|(u, n)| Some(word.strip_suffix(u)?.parse::<u64>().ok()? * n));
    found.unwrap_or_else(|| panic!("`{word}` is no time: 30ms, 200us, 5s"))
}

fn first_difference(told: &str, played: &str) -> String {
    let differs = |(_, (a, b)): &(usize, (&str, &str))| a != b;
    match told.lines().zip(played.lines()).enumerate().find(differs) {
        Some((i, (a, b))) => format!("line {}\n  told   {a}\n  played {b}", i + 1),
        None => "one is longer than the other".into(),
    }
}

/// R11: a driver tells quiet reads in batches. What they show of a bought region counts as much as a read that is told by itself:
/// the first read in a region like those before it buys it.
#[test]
fn marks_told_as_used_show_what_was_read_of_a_region() {
    let fetched_first = |tells: bool| {
        let (file, mut now) = (FileId(1), 0);
        let mut wave = Wave::new(Config::default());
        wave.handle(Nanos(0), Input::Open { file, device: 0, size: Bytes(16 << 30) });
        // Each read waits for 30 ms, by which time what was fetched has come.
        let mut read = |wave: &mut Wave, page: u64| -> u64 {
            let pages = Extent::new(page, 2);
            now += 30_100_000;
            wave.handle(Nanos(now), Input::Read { file, pages, actor: 1 });
            let mut fetched = 0;
            while let Some(Action::Fetch { id, pages, .. }) = wave.poll(Nanos(now)) {
                fetched += pages.count.0;
                wave.handle(Nanos(now + 30_000_000), Input::Arrived { fetch: id });
            }
            let took = Nanos(30_000_000);
            let ended = Nanos(now + took.0);
            wave.handle(ended, Input::Waited { file, pages, actor: 1, took, ended });
            fetched
        };
        let mut first = 0;
        for n in 1..=24 {
            let base = 256 * (1024 + n * n * 7);
            first = read(&mut wave, base + 6);
            for at in [180, 82, 154, 240] {
                read(&mut wave, base + at);
            }
            for mark in (base..base + 256).step_by(8).filter(|_| tells) {
                wave.handle(Nanos(0), Input::Used { file, pages: Extent::new(mark, 1) });
            }
        }
        first
    };
    assert_eq!((fetched_first(false), fetched_first(true)), (0, 256));
}
