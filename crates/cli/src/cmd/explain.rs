//! `bowwave explain`: the decisions of a run, one line each; or the kernel's two published lines; or the table of counts.
//!
//! It reads what `bowwave run --explain FILE` wrote, and traces of the kernel of 2010. It computes nothing: the lines are
//! the core's trace, the counts the core's statistics.
//!
//! ```text
//!   $ bowwave explain FILE
//!          time file   read               pattern     fetch                  pages  ahead  mark       streams  why
//!       0.112ms f1     [0,+32)            initial     [32, 160)                128    128  32               1  R1 start
//!
//!   $ bowwave explain --format kernel2011 FILE
//!   pattern=initial bdi=0:45 ino=1 req=0+32 ra=32+128-128 async=1 actual=128
//! ```
//!
//! A file of decisions knows no inodes and not what was cached already: in the kernel's lines the file's number stands
//! for the first, and the window, cut at the end of the file, for the second.

use super::failure::{DATA, Failure, exit_code};
use super::out::printed;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bowwave_core::{
    Dev, Extent, FileId, Nanos, PAGE_SIZE, PageCount, PageIndex, Pattern, Stats, TraceRecord, Why, Window,
    rules,
};
use bowwave_steer::{DecisionLine, FileLine, HEADER, Line};
use serde_json::json;

/// Print the decisions of a run, one line each.
///
/// FILE is what `bowwave run --explain FILE -- CMD` wrote, the directory of a `bowwave mount` (its latest decisions), or a kernel trace of 2010 (lines with readahead-PATTERN(...)).
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The decisions, or a mount; - reads standard input
    #[arg(required_unless_present = "rules")]
    file: Option<PathBuf>,
    /// Say what the rules R1, R2, ... do that reasons name
    #[arg(long, conflicts_with_all = ["file", "format", "stats", "json"])]
    rules: bool,
    /// How a decision is written
    #[arg(long, value_enum, default_value_t = Format::Columns)]
    format: Format,
    /// Print the counts by pattern instead, in the columns of the kernel's statistics of 2010, and those by reason
    #[arg(long)]
    stats: bool,
    /// Print a line of JSON a decision; with --stats one object
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Format {
    /// Fixed columns, with the reason
    Columns,
    /// The kernel's line of 2010
    Kernel2010,
    /// The kernel's line of 2011
    Kernel2011,
}

/// One decision, from either kind of file.
struct Entry {
    record: TraceRecord,
    /// The reason in words; of a kernel's trace there is none.
    why: String,
    /// Absent in a kernel's trace.
    streams: Option<u64>,
    /// Pages in the file, where that is known.
    end_of_file: PageIndex,
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitCode> {
    Ok(exit_code("explain", run(&args)))
}

fn run(args: &Args) -> Result<(), Failure> {
    let Some(file) = args.file.as_ref().filter(|_| !args.rules) else {
        return print_rules();
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut met_rules = BTreeSet::new();
    let mut summary = Summary::default();
    // A mount tells its latest decisions itself.
    let mount = file.is_dir().then(|| file.join(".bowwave/explain"));
    let mut lines = Lines::open(mount.as_ref().unwrap_or(file))?;
    let mut written = Ok(());
    let in_columns = args.format == Format::Columns && !args.json && !args.stats;
    let mut headed = !in_columns;
    while let Some(met) = lines.next_met()? {
        if args.stats {
            summary.count(&met);
            continue;
        }
        if !headed {
            written = writeln!(out, "{}", legend());
            headed = true;
        }
        written = written.and_then(|()| print(&mut out, args, &met));
        if let Met::Entry(entry) = &met
            && let Some(rule) =
                entry.why.split(' ').next().filter(|rule| in_columns && !met_rules.contains(*rule))
        {
            met_rules.insert(rule.to_string());
        }
        // Nobody reads on (`| head`): there is nothing left to say, and nothing wrong.
        if written.is_err() {
            break;
        }
    }
    if in_columns {
        written = written.and_then(|()| legend_of_rules(&mut out, &met_rules));
    }
    if args.stats {
        written = if args.json { writeln!(out, "{}", summary.json()) } else { write!(out, "{summary}") };
    }
    printed(written.and_then(|()| out.flush()))
}

/// What those rules do that were met, a line each.
fn legend_of_rules(out: &mut impl Write, met: &BTreeSet<String>) -> io::Result<()> {
    let mut rules = rules().filter(|rule| met.contains(rule.number)).peekable();
    if rules.peek().is_some() {
        writeln!(out, "\nRules (in full: bowwave explain --rules):")?;
    }
    rules.try_for_each(|rule| writeln!(out, "  {:<3} {}", rule.number, rule.in_short()))
}

fn print_rules() -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut rules = rules();
    printed(rules.try_for_each(|rule| writeln!(out, "{} {}: {}", rule.number, rule.name, rule.says)))
}

/// A line that says something.
enum Met {
    File(FileLine),
    Entry(Box<Entry>),
}

struct Lines {
    path: PathBuf,
    input: Box<dyn BufRead>,
    number: u64,
    /// Which kind of file it is, once its first line told.
    ours: Option<bool>,
    files: BTreeMap<u64, FileLine>,
}

impl Lines {
    fn open(path: &Path) -> Result<Self, Failure> {
        let input: Box<dyn BufRead> = if path == Path::new("-") {
            Box::new(BufReader::new(io::stdin()))
        } else {
            Box::new(BufReader::new(File::open(path).map_err(|error| Failure::on(path, "read", &error))?))
        };
        Ok(Self { path: path.into(), input, number: 0, ours: None, files: BTreeMap::new() })
    }

    /// The next line that says something.
    fn next_met(&mut self) -> Result<Option<Met>, Failure> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            if self
                .input
                .read_until(b'\n', &mut bytes)
                .map_err(|error| Failure::on(&self.path, "read", &error))?
                == 0
            {
                return Ok(None);
            }
            self.number += 1;
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_end_matches(['\n', '\r']);
            let ours = match self.ours {
                Some(ours) => ours,
                None if text.trim().is_empty() => continue,
                // The first line tells which kind of file it is.
                None => *self.ours.insert(self.kind(text)?),
            };
            let met = if ours { self.decision(text)? } else { self.traced(text)? };
            if met.is_some() {
                return Ok(met);
            }
        }
    }

    /// Whether a file that begins with this line is ours (else it is a kernel's trace).
    fn kind(&self, first: &str) -> Result<bool, Failure> {
        if first == HEADER {
            Ok(true)
        } else if first.starts_with("# bowwave explain") {
            Err(self.bad(&format!("'{first}' is a format of another version: record it anew")))
        } else if first.starts_with('#') || first.contains("readahead-") {
            Ok(false)
        } else if matches!(Line::parse(first), Ok(Some(_))) {
            Ok(true) // a part of a file, without its head
        } else {
            Err(self.bad(&"neither what bowwave run --explain FILE wrote nor lines of a kernel's readahead trace (readahead-PATTERN(...))"))
        }
    }

    fn decision(&mut self, text: &str) -> Result<Option<Met>, Failure> {
        match Line::parse(text).map_err(|error| self.bad(&error))? {
            None => Ok(None),
            Some(Line::File(file)) => {
                self.files.insert(file.number, file.clone());
                Ok(Some(Met::File(file)))
            }
            Some(Line::Decision(line)) => {
                let entry = entry(&line, self.files.get(&line.file));
                Ok(Some(Met::Entry(Box::new(entry.map_err(|why| self.bad(&why))?))))
            }
        }
    }

    fn traced(&self, text: &str) -> Result<Option<Met>, Failure> {
        if text.trim().is_empty() || text.trim_start().starts_with('#') {
            return Ok(None);
        }
        let record = TraceRecord::parse_2010(text).map_err(|error| self.bad(&error))?;
        let why = record.why.0.to_string();
        Ok(Some(Met::Entry(Box::new(Entry { record, why, streams: None, end_of_file: PageIndex(u64::MAX) }))))
    }

    fn bad(&self, what: &dyn Display) -> Failure {
        Failure::new(DATA, format_args!("{}, line {}: {what}", self.path.display(), self.number))
    }
}

/// The core's record of a line of ours.
fn entry(line: &DecisionLine, file: Option<&FileLine>) -> Result<Entry, String> {
    let pattern = Pattern::ALL.into_iter().find(|pattern| pattern.name() == line.pattern);
    let pattern =
        pattern.ok_or_else(|| format!("a readahead pattern of an unknown name: {}", line.pattern))?;
    let pages = line.window.1.checked_sub(line.window.0).filter(|pages| line.ahead <= *pages);
    let pages = pages.ok_or("a window that ends before its start, or is shorter than its tail")?;
    let end_of_file = file.map_or(u64::MAX, |file| file.size.div_ceil(PAGE_SIZE));
    let record = TraceRecord {
        dev: file.and_then(|file| device(&file.device)).unwrap_or_default(),
        ino: line.file,
        request: Extent::new(line.read.0, line.read.1),
        mapped: false,
        pattern,
        window: Window {
            start: PageIndex(line.window.0),
            size: PageCount(pages),
            async_size: PageCount(line.ahead),
        },
        actual: PageCount(line.window.1.min(end_of_file).saturating_sub(line.window.0)),
        why: Why(""),
        time: Nanos(line.at_ns),
        file: FileId(line.file),
        stream: 0,
    };
    Ok(Entry {
        record,
        why: line.why.clone(),
        streams: Some(line.streams),
        end_of_file: PageIndex(end_of_file),
    })
}

fn device(text: &str) -> Option<Dev> {
    let (major, minor) = text.split_once(':')?;
    Some(Dev { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

fn print(out: &mut impl Write, args: &Args, met: &Met) -> io::Result<()> {
    match (met, args.format) {
        (Met::File(file), _) if args.json => {
            let FileLine { number, size, device, path } = file;
            writeln!(out, "{}", json!({"file": number, "size": size, "device": device, "path": path}))
        }
        (Met::Entry(entry), _) if args.json => writeln!(out, "{}", as_json(entry)),
        (Met::File(file), Format::Columns) => writeln!(out, "{file}"),
        (Met::File(_), _) => Ok(()),
        (Met::Entry(entry), Format::Columns) => writeln!(out, "{}", columns(entry)),
        (Met::Entry(entry), Format::Kernel2010) => writeln!(out, "{}", entry.record.line_2010()),
        (Met::Entry(entry), Format::Kernel2011) => {
            let Dev { major, minor } = entry.record.dev;
            writeln!(out, "{}", entry.record.line_2011(&format!("{major}:{minor}")))
        }
    }
}

fn legend() -> String {
    format!(
        "{:>14} {:<6} {:<18} {:<11} {:<22} {:>6} {:>6}  {:<10} {:>7}  why",
        "time", "file", "read", "pattern", "fetch", "pages", "ahead", "mark", "streams"
    )
}

/// One line: `ahead` pages nobody waits for yet, `mark` the page that asks for the next window.
fn columns(entry: &Entry) -> String {
    let r = &entry.record;
    let us = r.time.0 / 1000;
    let time = entry.streams.map_or("-".to_string(), |_| format!("{}.{:03}ms", us / 1000, us % 1000));
    let nothing = r.window.size.0 == 0;
    let fetch = if nothing { "nothing".to_string() } else { r.window.extent().to_string() };
    let mark = r.window.mark().filter(|_| !nothing).map_or("-".to_string(), |page| page.to_string());
    format!(
        "{time:>14} {:<6} {:<18} {:<11} {fetch:<22} {:>6} {:>6}  {mark:<10} {:>7}  {}",
        format!("f{}", r.ino),
        format!("[{},+{})", r.request.start, r.request.count),
        r.pattern,
        r.window.size.0,
        r.window.async_size.0,
        entry.streams.map_or("-".to_string(), |streams| streams.to_string()),
        entry.why
    )
}

fn as_json(entry: &Entry) -> serde_json::Value {
    let r = &entry.record;
    json!({
        "at_ns": entry.streams.map(|_| r.time.0),
        "file": r.ino,
        "read": [r.request.start.0, r.request.count.0],
        "pattern": r.pattern.name(),
        "fetch": [r.window.start.0, r.window.end().0],
        "ahead": r.window.async_size.0,
        "mark": r.window.mark().map(|page| page.0),
        "streams": entry.streams,
        "why": entry.why,
    })
}

/// The counts of a whole file.
#[derive(Default)]
struct Summary {
    stats: Stats,
    /// Decisions, and pages of them, by reason.
    reasons: BTreeMap<String, (u64, u64)>,
}

impl Summary {
    fn count(&mut self, met: &Met) {
        let Met::Entry(entry) = met else { return };
        self.stats.submitted(&entry.record, entry.end_of_file);
        let reason = self.reasons.entry(entry.why.clone()).or_default();
        *reason = (reason.0 + 1, reason.1 + entry.record.window.size.0);
    }

    /// The reasons, most pages first.
    fn sorted(&self) -> Vec<(&str, u64, u64)> {
        let mut reasons: Vec<_> = self.reasons.iter().map(|(why, n)| (why.as_str(), n.0, n.1)).collect();
        reasons.sort_by_key(|&(why, decisions, pages)| (std::cmp::Reverse((pages, decisions)), why));
        reasons
    }

    fn json(&self) -> serde_json::Value {
        let row = |row: &bowwave_core::Row| {
            json!({
                "readahead": row.readahead, "eof_hit": row.eof_hit, "cache_hit": row.cache_hit, "io": row.io,
                "sync_io": row.sync_io, "mmap_io": row.mmap_io, "size": row.size_mean(),
                "async_size": row.async_size_mean(), "io_size": row.io_size_mean(),
            })
        };
        let mut patterns: BTreeMap<&str, _> =
            Pattern::ALL.into_iter().map(|pattern| (pattern.name(), row(self.stats.row(pattern)))).collect();
        patterns.insert("all", row(&self.stats.all()));
        let reasons: BTreeMap<&str, _> = self
            .sorted()
            .into_iter()
            .map(|(why, decisions, pages)| (why, json!({"decisions": decisions, "pages": pages})))
            .collect();
        json!({"patterns": patterns, "reasons": reasons})
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.stats)?;
        writeln!(f, "{:>10} {:>10}  why", "decisions", "pages")?;
        self.sorted()
            .into_iter()
            .try_for_each(|(why, decisions, pages)| writeln!(f, "{decisions:>10} {pages:>10}  {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a file holds is printed or refused with its line; nothing of it stops the program.
    #[test]
    fn any_file_is_printed_or_refused() {
        let ours = "# bowwave explain 1\n# f3 = 4097 bytes, device 0:45, /a b\n      12.034ms f3 read [4,+1) subsequent \
                    [12,28) ahead=16 mark=12 streams=1 why=R2 next\n1.0ms f9 read [7,+1) initial [7,7) ahead=0 mark=- \
                    streams=1 why=R1 start\n";
        let kernel = "# tracer: nop\n cat-3162 [000] 8606.9: readahead: readahead-thrash(dev=8:17, ino=4711, \
                      req=287425+1, ra=287425+8-0, async=0) = 1\n";
        bowwave_fuzz::fuzz("a file of decisions", &[ours.as_bytes(), kernel.as_bytes()], |bytes| {
            let input = Box::new(io::Cursor::new(bytes.to_vec()));
            let mut lines = Lines { path: "-".into(), input, number: 0, ours: None, files: BTreeMap::new() };
            let mut summary = Summary::default();
            loop {
                match lines.next_met() {
                    Ok(None) => break,
                    Err(failure) => {
                        assert!(
                            failure.code == DATA
                                && failure.sentence.contains(&format!("line {}", lines.number))
                        );
                        break;
                    }
                    Ok(Some(met)) => {
                        summary.count(&met);
                        if let Met::Entry(entry) = &met {
                            assert!(as_json(entry).is_object() && !columns(entry).contains('\n'));
                            let back = TraceRecord::parse_2010(&entry.record.line_2010().to_string());
                            assert_eq!(back.map(|back| back.window), Ok(entry.record.window));
                        }
                    }
                }
            }
            assert!(summary.json().is_object());
        });
    }
}
