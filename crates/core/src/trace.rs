//! A trace record: what was asked, what was decided, what came of it -- and the three lines that show it.
//!
//! ```text
//! 2010      readahead-context(dev=0:2, ino=0, req=287352+1, ra=287354+10-2, async=1) = 10
//! 2011      pattern=context bdi=0:2 ino=0 req=287352+1 ra=287354+10-2 async=1 actual=10
//! explain   12.034ms f3 s1 read [287352,+1) -> fetch [287354, 287364) ahead=2 mark=287362 got=10 context why=...
//! ```
//!
//! In the kernel's lines `req=` is first page + pages, `ra=` is start + size - async size, `async` says that nobody
//! waits for the window's first page, and the last number counts the pages that were not there already (spec 5.8; seed
//! 001). The 2010 line can be read back: the trace of seed 001 is our first golden vector.

use crate::decision::{Pattern, Why};
use crate::units::{Extent, FileId, Nanos, PageCount, PageIndex};
use crate::window::Window;
use alloc::format;
use core::fmt;

/// A device as the kernel numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Dev {
    /// The driver.
    pub major: u32,
    /// The device under it.
    pub minor: u32,
}

/// One window, submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRecord {
    /// The file's device.
    pub dev: Dev,
    /// The file's inode.
    pub ino: u64,
    /// What was left of the request when it was asked about.
    pub request: Extent,
    /// Whether a fault asked, not a read.
    pub mapped: bool,
    /// What kind of readahead it is.
    pub pattern: Pattern,
    /// What was decided. Empty if the decision was to fetch nothing.
    pub window: Window,
    /// How many of its pages were neither present nor in flight.
    pub actual: PageCount,
    /// The rule and its reason; the kernel's lines do not carry it.
    pub why: Why,
    /// When; the kernel's lines leave it to the tracer.
    pub time: Nanos,
    /// The file as its driver numbers it.
    pub file: FileId,
    /// The stream that the window belongs to.
    pub stream: u64,
}

/// Why a line is not a trace line of 2010.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotATraceLine {
    /// No `readahead-<pattern>(` in it.
    NoEvent,
    /// The pattern is none of ours.
    UnknownPattern,
    /// The named field is missing or is not a number.
    Field(&'static str),
    /// The async size exceeds the size.
    TailLongerThanWindow,
}

impl fmt::Display for NotATraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEvent => f.write_str("no readahead event in this line"),
            Self::UnknownPattern => f.write_str("a readahead pattern of an unknown name"),
            Self::Field(name) => write!(f, "field `{name}` is missing or is not a number"),
            Self::TailLongerThanWindow => f.write_str("the window's async size exceeds its size"),
        }
    }
}

impl core::error::Error for NotATraceLine {}

impl TraceRecord {
    /// Whether nobody waits for the window's first page.
    pub fn is_async(&self) -> bool {
        self.window.start > self.request.start
    }

    /// The line of 2010 (seed 001).
    pub fn line_2010(&self) -> impl fmt::Display + '_ {
        shown(self, |r, f| {
            let Dev { major, minor } = r.dev;
            write!(f, "readahead-{}(dev={major}:{minor}, ino={}, {}, {}", r.pattern, r.ino, Req(r), Ra(r))?;
            write!(f, ", async={}) = {}", u8::from(r.is_async()), r.actual)
        })
    }

    /// The line of 2011-12, for a device of the name `bdi`.
    pub fn line_2011<'a>(&'a self, bdi: &'a str) -> impl fmt::Display + 'a {
        shown(self, move |r, f| {
            write!(f, "pattern={} bdi={bdi} ino={} {} {}", r.pattern, r.ino, Req(r), Ra(r))?;
            write!(f, " async={} actual={}", u8::from(r.is_async()), r.actual)
        })
    }

    /// Our line, in fixed columns.
    pub fn explain(&self) -> impl fmt::Display + '_ {
        shown(self, |r, f| {
            let us = r.time.0 / 1000;
            let time = format!("{}.{:03}ms", us / 1000, us % 1000);
            let verb = if r.mapped { "fault" } else { "read" };
            let asked = format!("{verb} [{},+{})", r.request.start, r.request.count);
            write!(f, "{time:>12} f{:<4} s{:<4} {asked:<20}", r.file.0, r.stream)?;
            write!(f, " -> {:<60} {:<10} why={}", format!("{}", r.fetch()), r.pattern, r.why)
        })
    }

    /// The window in words: `fetch [12, 28) ahead=16 mark=12 got=16`, or `nothing`.
    pub fn fetch(&self) -> impl fmt::Display + '_ {
        shown(self, |r, f| {
            if r.window.size.0 == 0 {
                return f.write_str("nothing");
            }
            write!(
                f,
                "fetch {:<18} ahead={:<5}",
                format!("{}", Extent::between(r.window.start, r.window.end())),
                r.window.async_size
            )?;
            match r.window.mark() {
                Some(mark) => write!(f, " mark={mark:<8}")?,
                None => write!(f, " mark={:<8}", "-")?,
            }
            write!(f, " got={:<5}", r.actual)
        })
    }

    /// Reads a line of 2010; what a tracer writes before the event is passed over.
    ///
    /// The reason becomes `traced`, time, file and stream 0: the line does not tell.
    pub fn parse_2010(line: &str) -> Result<Self, NotATraceLine> {
        let (_, event) = line.split_once("readahead-").ok_or(NotATraceLine::NoEvent)?;
        let (pattern, rest) = event.split_once('(').ok_or(NotATraceLine::NoEvent)?;
        let pattern = Pattern::ALL.into_iter().find(|p| p.name() == pattern);
        let field = |name: &'static str, key: &str| {
            let (_, rest) = rest.split_once(key).ok_or(NotATraceLine::Field(name))?;
            Ok(rest.split([',', ')']).next().unwrap_or(rest).trim())
        };
        let dev = field("dev", "dev=")?;
        let (major, minor) = pair(dev, ':', "dev")?;
        let (offset, req_size) = pair(field("req", "req=")?, '+', "req")?;
        let (start, window) = field("ra", "ra=")?.split_once('+').ok_or(NotATraceLine::Field("ra"))?;
        let (size, async_size) = pair(window, '-', "ra")?;
        if async_size > size {
            return Err(NotATraceLine::TailLongerThanWindow);
        }
        Ok(Self {
            dev: Dev { major, minor },
            ino: number(field("ino", "ino=")?, "ino")?,
            request: Extent::new(offset, req_size),
            mapped: false,
            pattern: pattern.ok_or(NotATraceLine::UnknownPattern)?,
            window: Window {
                start: PageIndex(number(start, "ra")?),
                size: PageCount(size),
                async_size: PageCount(async_size),
            },
            actual: PageCount(number(field("actual", ") =")?, "actual")?),
            why: Why("traced"),
            time: Nanos(0),
            file: FileId(0),
            stream: 0,
        })
    }
}

fn number<T: core::str::FromStr>(digits: &str, name: &'static str) -> Result<T, NotATraceLine> {
    digits.parse().map_err(|_| NotATraceLine::Field(name))
}

fn pair<T: core::str::FromStr>(
    text: &str,
    between: char,
    name: &'static str,
) -> Result<(T, T), NotATraceLine> {
    let (first, second) = text.split_once(between).ok_or(NotATraceLine::Field(name))?;
    Ok((number(first, name)?, number(second, name)?))
}

struct Line<'a, F>(&'a TraceRecord, F);

fn shown<'a, F>(record: &'a TraceRecord, line: F) -> Line<'a, F>
where
    F: Fn(&TraceRecord, &mut fmt::Formatter<'_>) -> fmt::Result + 'a,
{
    Line(record, line)
}

impl<F: Fn(&TraceRecord, &mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Line<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.1)(self.0, f)
    }
}

struct Req<'a>(&'a TraceRecord);

impl fmt::Display for Req<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "req={}+{}", self.0.request.start, self.0.request.count)
    }
}

struct Ra<'a>(&'a TraceRecord);

impl fmt::Display for Ra<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { start, size, async_size } = self.0.window;
        write!(f, "ra={start}+{size}-{async_size}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const LINE: &str = "readahead-thrash(dev=8:17, ino=4711, req=287425+1, ra=287425+8-0, async=0) = 1";

    #[test]
    fn the_2010_line_reads_back() {
        let record =
            TraceRecord::parse_2010(&format!("  cat-3162  [000]  8606.919614: readahead: {LINE}")).unwrap();
        assert_eq!(record.line_2010().to_string(), LINE);
        assert_eq!((record.pattern, record.window), (Pattern::Thrash, Window::new(287425, 8, 0)));
        assert_eq!(
            (record.dev, record.ino, record.actual),
            (Dev { major: 8, minor: 17 }, 4711, PageCount(1))
        );
    }

    #[test]
    fn the_other_two_lines() {
        let mut record = TraceRecord::parse_2010(LINE).unwrap();
        assert_eq!(
            record.line_2011("8:16").to_string(),
            "pattern=thrash bdi=8:16 ino=4711 req=287425+1 ra=287425+8-0 async=0 actual=1"
        );
        (record.time, record.file, record.stream) = (Nanos(12_034_567), FileId(3), 1);
        (record.window, record.why) = (Window::new(287428, 8, 2), Why("mark-hit"));
        assert_eq!(
            record.explain().to_string(),
            "    12.034ms f3    s1    read [287425,+1)     -> fetch [287428, 287436)   ahead=2     mark=287434   got=1     \
             thrash     why=mark-hit"
        );
    }

    #[test]
    fn what_is_no_line_is_an_answer() {
        for (line, expected) in [
            ("cat: readahead", NotATraceLine::NoEvent),
            (&LINE.replace("thrash", "guess"), NotATraceLine::UnknownPattern),
            (&LINE.replace("8-0", "8-9"), NotATraceLine::TailLongerThanWindow),
            (&LINE.replace("4711", "-1"), NotATraceLine::Field("ino")),
            (&LINE.replace("+8", "+99999999999999999999"), NotATraceLine::Field("ra")),
            (&LINE.replace(" = 1", ""), NotATraceLine::Field("actual")),
        ] {
            assert_eq!(TraceRecord::parse_2010(line), Err(expected), "{line}");
        }
        assert!(TraceRecord::parse_2010(&LINE.replace("287425+8", "18446744073709551615+8")).is_ok());
    }

    #[test]
    fn what_is_read_prints_back_to_itself() {
        let corpus = [LINE, "readahead-context(dev=0:2, ino=0, req=287352+1, ra=287354+10-2, async=1) = 10"];
        bowwave_fuzz::fuzz_text("a trace line of 2010", &corpus, |line| {
            let Ok(record) = TraceRecord::parse_2010(line) else { return };
            let printed = record.line_2010().to_string();
            assert_eq!(TraceRecord::parse_2010(&printed), Ok(record), "{printed}");
            assert!(record.window.async_size <= record.window.size);
            assert!(record.line_2011("0:2").to_string().starts_with("pattern="));
            assert!(record.explain().to_string().contains("why="));
        });
    }
}
