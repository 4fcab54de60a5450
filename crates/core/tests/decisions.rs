//! The policies, told: each file of `decisions/` is a story of reads and of what an era decides on them.
//!
//! A command, a rule of dashes, the answer, a blank line; `#` tells what is going on. `BOWWAVE_UPDATE=1` rewrites the
//! answers: read the difference, and commit only what you can explain.
//!
//! ```text
//! new policy=NAME max=PAGES [file=PAGES] [memory=PAGES] [rules=2011]     open a file, nothing cached
//! read PAGE COUNT         scan FROM..TO COUNT         fault PAGE         willneed PAGE COUNT
//! cached PAGE COUNT       evict PAGE COUNT            reopen             seek set|end
//! advise normal|sequential|random                     stats              outcome
//! ```

use bowwave_core::{Extent, PageCount, PageIndex, Play, Policy, ThrashSafe, TraceRecord, Whence, by_name};
use std::fmt::Write;
use std::path::Path;

#[test]
fn every_story_is_still_true() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decisions");
    let mut changed = Vec::new();
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
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

/// Every era has its story.
#[test]
fn every_policy_has_a_story() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decisions");
    for name in bowwave_core::NAMES {
        assert!(folder.join(format!("{name}.txt")).exists(), "no story of {name}");
    }
}

/// The story with its answers played anew.
fn play(story: &str) -> String {
    let mut out = String::new();
    let mut open = None;
    let mut lines = story.lines();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // The old answer, up to the blank line.
        lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = answer(&mut open, &words);
        writeln!(out, "----\n{}\n", if answer.is_empty() { "cached" } else { answer.trim_end() }).unwrap();
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    out
}

fn answer(open: &mut Option<Play>, words: &[&str]) -> String {
    if let ["new", options @ ..] = words {
        *open = Some(opened(options));
        return "ok".into();
    }
    let file = open.as_mut().expect("a story begins with `new`");
    match *words {
        ["read", page, count] => {
            let records = file.read(PageIndex(number(page)), PageCount(number(count)));
            lines(&records, file.retained(), None)
        }
        ["scan", range, count] => scan(file, range, number(count)),
        ["fault", page] => {
            let records = file.fault(PageIndex(number(page)));
            lines(&records, file.retained(), None)
        }
        ["willneed", page, count] => {
            lines(&file.will_need(Extent::new(number(page), number(count))), &[], None)
        }
        ["stats"] => file.stats().to_string(),
        ["outcome"] => file.stats().outcome().to_string(),
        _ => {
            happens(file, words);
            "ok".into()
        }
    }
}

/// What goes on around the reads and asks no policy.
fn happens(file: &mut Play, words: &[&str]) {
    match *words {
        ["cached", page, count] => file.cached(Extent::new(number(page), number(count))),
        ["evict", page, count] => file.evict(Extent::new(number(page), number(count))),
        ["reopen"] => file.reopen(),
        ["seek", "set"] => file.state().seek(Whence::Set),
        ["seek", "end"] => file.state().seek(Whence::End),
        ["congested", "yes"] => file.state().congested = true,
        ["congested", "no"] => file.state().congested = false,
        ["advise", "normal"] => file.state().random_advice = false,
        ["advise", "random"] => file.state().random_advice = true,
        ["advise", "sequential"] => file.state().max = PageCount(file.state().max.0 * 2),
        _ => panic!("no such command: {words:?}"),
    }
}

fn opened(options: &[&str]) -> Play {
    let option = |name: &str| options.iter().find_map(|o| o.strip_prefix(name)?.strip_prefix('='));
    let name = option("policy").expect("policy=NAME");
    let mut thrash_safe = match name {
        "thrash-safe" => Some(ThrashSafe::v3()),
        "thrash-safe-v0" => Some(ThrashSafe::v0()),
        _ => None,
    };
    if let Some(memory) = option("memory") {
        thrash_safe = thrash_safe.map(|policy| policy.with_memory(PageCount(number(memory))));
    }
    if option("rules") == Some("2011") {
        thrash_safe = thrash_safe.map(ThrashSafe::with_rules_of_2011);
    }
    let policy: Box<dyn Policy> = match thrash_safe {
        Some(policy) => Box::new(policy),
        None => by_name(name).expect("a policy of that name"),
    };
    let end_of_file = PageIndex(option("file").map_or(1_000_000, number));
    Play::new(policy, end_of_file, PageCount(number(option("max").expect("max=PAGES"))))
}

/// Reads on, `count` pages at a time, and tells the reads at which something was decided.
fn scan(file: &mut Play, range: &str, count: u64) -> String {
    let (from, to) = range.split_once("..").expect("FROM..TO");
    let mut out = String::new();
    for page in (number(from)..number(to)).step_by(count as usize) {
        let records = file.read(PageIndex(page), PageCount(count));
        out += &lines(&records, file.retained(), Some(page));
    }
    out
}

fn lines(records: &[TraceRecord], retained: &[Extent], at: Option<u64>) -> String {
    let mut out = String::new();
    let at = at.map_or(String::new(), |page| format!("{page:<8}"));
    for record in records {
        writeln!(out, "{at}{} {:<10} why={}", record.fetch(), record.pattern, record.why).unwrap();
    }
    for extent in retained {
        writeln!(out, "{at}retain {extent}").unwrap();
    }
    out
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("`{word}` is not a number"))
}

fn first_difference(told: &str, played: &str) -> String {
    let differs = |(_, (a, b)): &(usize, (&str, &str))| a != b;
    match told.lines().zip(played.lines()).enumerate().find(differs) {
        Some((i, (a, b))) => format!("line {}\n  told   {a}\n  played {b}", i + 1),
        None => "one is longer than the other".into(),
    }
}
