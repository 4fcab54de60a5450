//! The file of decisions: written by `bowwave run --explain`, read by `bowwave explain`.
//!
//! ```text
//! # bowwave explain 1
//! # run cat /mnt/big/000
//! # f1 = 268435456 bytes, device 0:45, /mnt/big/000
//!      0.112ms f1 read [0,+32) initial [32,160) ahead=128 mark=32 streams=1 why=R1 start
//!     30.410ms f1 read [32,+32) subsequent [160,416) ahead=256 mark=160 streams=1 why=R2 next
//! ```
//!
//! A decision: time since the run began; the file; the read that led to it (first page, pages); the pattern; the pages to
//! fetch `[first, end)`; how many of them nobody waits for yet (`ahead`); the page whose reading asks for the next window
//! (`mark`, `-` for none); streams active; the rule and its reason, to the end of the line. Lines of `#` tell of files
//! before their first decision; other lines of `#` are for the eye. A name's line breaks are written as `?`.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bowwave_core::Explained;

/// First line of the format.
pub const HEADER: &str = "# bowwave explain 1";
/// What the columns mean, for the eye.
const LEGEND: &str = "# time  file  read [first page,+pages)  pattern  fetch [first,end)  ahead=pages nobody waits for  \
mark=page that asks for the next  streams=active  why=rule and reason";

/// The file while it is written. What cannot be written is said once; the file ends there, and the program goes on.
pub struct ExplainFile {
    path: PathBuf,
    /// Gone after the first error.
    out: Option<BufWriter<File>>,
}

impl ExplainFile {
    /// Makes it, or empties the one that is there.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        Ok(Self { path: path.into(), out: Some(BufWriter::new(file)) })
    }

    /// Whether it is worth telling it anything.
    pub(crate) fn is_written(&self) -> bool {
        self.out.is_some()
    }

    pub(crate) fn begin(&mut self, command: &str) {
        self.attempt(|out| writeln!(out, "{HEADER}\n# run {command}\n{LEGEND}"));
    }

    pub(crate) fn line(&mut self, line: impl fmt::Display) {
        self.attempt(|out| writeln!(out, "{line}"));
    }

    pub(crate) fn flush(&mut self) {
        self.attempt(|out| out.flush());
    }

    fn attempt(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let Some(out) = &mut self.out else { return };
        if let Err(error) = write(out) {
            // Who does not listen any more is no reason to end.
            let _ = writeln!(
                io::stderr(),
                "bowwave: cannot write the decisions to {}: {error}; the program goes on, the file ends here",
                self.path.display()
            );
            if let Some(out) = self.out.take() {
                // Not flushed again on drop, which would fail again.
                let _ = out.into_parts();
            }
        }
    }
}

/// A line of the file that says something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// A file and its number in this run.
    File(FileLine),
    /// A decision.
    Decision(DecisionLine),
}

/// `# f3 = 4096 bytes, device 0:45, /path`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileLine {
    /// Number in this run, from 1.
    pub number: u64,
    /// Bytes in it.
    pub size: u64,
    /// `major:minor` of its device.
    pub device: String,
    /// Its name when it was met.
    pub path: String,
}

/// One decision. See the module's text for the columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecisionLine {
    /// Nanoseconds since the run began; written to the microsecond.
    pub at_ns: u64,
    /// The file's number.
    pub file: u64,
    /// First page and number of pages of the read.
    pub read: (u64, u64),
    /// Kind of readahead.
    pub pattern: String,
    /// First page and end of what is fetched; equal if nothing is.
    pub window: (u64, u64),
    /// Pages of it that nobody waits for yet.
    pub ahead: u64,
    /// The marked page.
    pub mark: Option<u64>,
    /// Streams active.
    pub streams: u64,
    /// Rule and reason.
    pub why: String,
}

/// A line that does not follow the format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a line of a bowwave explain file: {0:?}; record it anew with bowwave run --explain")]
pub struct NotALine(String);

impl DecisionLine {
    /// The line for a decision of the brain about the file with this number.
    pub fn of(e: &Explained, file: u64) -> Self {
        let window = e.decision.window;
        Self {
            at_ns: e.at.0,
            file,
            read: (e.read.start.0, e.read.count.0),
            pattern: e.decision.pattern.name().into(),
            window: (window.start.0, window.end().0),
            ahead: window.async_size.0,
            mark: window.mark().map(|page| page.0),
            streams: e.streams,
            why: e.decision.why.0.into(),
        }
    }
}

impl fmt::Display for FileLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: String = self.path.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        write!(f, "# f{} = {} bytes, device {}, {path}", self.number, self.size, self.device)
    }
}

impl fmt::Display for DecisionLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.at_ns / 1000;
        write!(
            f,
            "{:>8}.{:03}ms f{} read [{},+{}) {} [{},{}) ahead={} mark=",
            us / 1000,
            us % 1000,
            self.file,
            self.read.0,
            self.read.1,
            self.pattern,
            self.window.0,
            self.window.1,
            self.ahead
        )?;
        match self.mark {
            Some(page) => write!(f, "{page}")?,
            None => write!(f, "-")?,
        }
        write!(f, " streams={} why={}", self.streams, self.why)
    }
}

impl Line {
    /// Understands one line; `None` for those that are for the eye only.
    pub fn parse(line: &str) -> Result<Option<Self>, NotALine> {
        let parsed = match line.strip_prefix("# f") {
            Some(rest) => match parse_file(rest) {
                Some(file) => return Ok(Some(Self::File(file))),
                None => return Ok(None),
            },
            None if line.starts_with('#') || line.trim().is_empty() => return Ok(None),
            None => parse_decision(line),
        };
        parsed.map(|decision| Some(Self::Decision(decision))).ok_or_else(|| NotALine(line.into()))
    }
}

fn parse_file(rest: &str) -> Option<FileLine> {
    let (number, rest) = rest.split_once(" = ")?;
    let (size, rest) = rest.split_once(" bytes, device ")?;
    let (device, path) = rest.split_once(", ")?;
    Some(FileLine {
        number: number.parse().ok()?,
        size: size.parse().ok()?,
        device: device.into(),
        path: path.into(),
    })
}

fn parse_decision(line: &str) -> Option<DecisionLine> {
    let (columns, why) = line.split_once(" why=")?;
    let mut columns = columns.split_whitespace();
    let at = columns.next()?.strip_suffix("ms")?;
    let (ms, us) = at.split_once('.')?;
    let file = number(columns.next()?, "f")?;
    if columns.next()? != "read" {
        return None;
    }
    let read = pair(columns.next()?, ",+")?;
    let pattern = columns.next()?.to_string();
    let window = pair(columns.next()?, ",")?;
    let ahead = number(columns.next()?, "ahead=")?;
    let mark = match columns.next()? {
        "mark=-" => None,
        mark => Some(number(mark, "mark=")?),
    };
    let streams = number(columns.next()?, "streams=")?;
    let at_us = ms.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(us.parse().ok()?)?;
    let at_ns = at_us.checked_mul(1000)?;
    Some(DecisionLine { at_ns, file, read, pattern, window, ahead, mark, streams, why: why.into() })
}

fn number<T: FromStr>(word: &str, prefix: &str) -> Option<T> {
    word.strip_prefix(prefix)?.parse().ok()
}

fn pair(word: &str, between: &str) -> Option<(u64, u64)> {
    let (a, b) = word.strip_prefix('[')?.strip_suffix(')')?.split_once(between)?;
    Some((a.parse().ok()?, b.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let file = FileLine { number: 3, size: 4097, device: "0:45".into(), path: "/a b, c/d = e".into() };
        assert_eq!(file.to_string(), "# f3 = 4097 bytes, device 0:45, /a b, c/d = e");
        assert_eq!(Line::parse(&file.to_string()), Ok(Some(Line::File(file))));
        let decision = DecisionLine {
            at_ns: 12_034_000,
            file: 3,
            read: (4, 1),
            pattern: "subsequent".into(),
            window: (12, 28),
            ahead: 16,
            mark: Some(12),
            streams: 1,
            why: "R2 next".into(),
        };
        let line = "      12.034ms f3 read [4,+1) subsequent [12,28) ahead=16 mark=12 streams=1 why=R2 next";
        assert_eq!(decision.to_string(), line);
        assert_eq!(Line::parse(line), Ok(Some(Line::Decision(decision.clone()))));
        let bare = DecisionLine { mark: None, window: (7, 7), ahead: 0, ..decision };
        assert_eq!(Line::parse(&bare.to_string()), Ok(Some(Line::Decision(bare))));
    }

    #[test]
    fn a_full_disk_ends_the_file_and_nothing_else() {
        let mut file = ExplainFile::create(Path::new("/dev/full")).unwrap();
        file.begin("cat data");
        file.flush();
        assert!(!file.is_written());
        file.line("1.0ms");
        file.flush();
    }

    #[test]
    fn the_rest_is_for_the_eye_or_an_error() {
        assert_eq!(Line::parse(HEADER), Ok(None));
        assert_eq!(Line::parse(LEGEND), Ok(None));
        assert!(Line::parse("1.0ms f3 read").is_err());
        let late = "18446744073709551.0ms f3 read [4,+1) x [12,28) ahead=16 mark=12 streams=1 why=";
        assert!(Line::parse(late).is_err(), "later than a moment can be");
    }

    #[test]
    fn what_is_read_prints_back_to_itself() {
        let corpus = [
            "# f3 = 4097 bytes, device 0:45, /a b, c/d = e",
            "      12.034ms f3 read [4,+1) subsequent [12,28) ahead=16 mark=12 streams=1 why=R2 next",
            "1.0ms f3 read [7,+1) initial [7,7) ahead=0 mark=- streams=1 why=R1 start",
            LEGEND,
        ];
        bowwave_fuzz::fuzz_text("a line of decisions", &corpus, |line| {
            let Ok(Some(read)) = Line::parse(line) else { return };
            let printed = match &read {
                Line::File(file) => file.to_string(),
                Line::Decision(decision) => decision.to_string(),
            };
            let again =
                Line::parse(&printed).expect("what is written is a line").expect("that says something");
            match (read, again) {
                // Only what would break the line is lost of a name.
                (Line::File(read), Line::File(again)) => {
                    let path = read.path.replace(char::is_control, "?");
                    assert_eq!(again, FileLine { path, ..read }, "{printed}");
                }
                (read, again) => assert_eq!(again, read, "{printed}"),
            }
        });
    }
}
