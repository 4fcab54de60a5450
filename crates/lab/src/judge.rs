//! The running kernel as judge: which windows it opened for which reads, and which ones 6.18's policy opens for the same.
//!
//! A *record* is what a kernel did, as text: a few lines of where, then for each pattern its reads and the submissions that
//! the kernel traced. Records are kept in `tests/judge`, so that the comparison runs where no tracefs is.
//!
//! ```text
//! # bowwave judge 1
//! kernel 6.18.44 max 2048 pages 16384 request 1024
//! pattern seq-1
//! read 0 4096 x 2200 step 4096          2,200 reads of 4,096 bytes, each 4,096 bytes further on
//! order 0 4 3                           page_cache_ra_order: start, size, tail
//! unbounded 797 28 1                    page_cache_ra_unbounded
//! ```

use crate::rng::Rng;
use bowwave_core::{FolioPlay, Linux618, PAGE_SIZE, PageCount, PageIndex, Submitted};
use std::fmt::Write;

/// First line of a record.
const HEADER: &str = "# bowwave judge 1";

/// A run of equal reads: byte offset, bytes, how many, and how far apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reads {
    /// Offset of the first.
    pub offset: u64,
    /// Bytes of each.
    pub len: u64,
    /// How many.
    pub count: u64,
    /// Bytes from one to the next; negative reads backwards.
    pub step: i64,
}

impl Reads {
    /// Each as `(offset, bytes)`.
    pub fn each(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count).map(move |i| (self.offset.wrapping_add_signed(self.step * i as i64), self.len))
    }
}

/// A pattern that the judge plays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Its name, with the generator of spec 10.
    pub name: String,
    /// Its reads.
    pub reads: Vec<Reads>,
}

/// What a kernel did on one pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judged {
    /// The pattern.
    pub case: Case,
    /// Its submissions.
    pub submitted: Vec<Submitted>,
}

/// What a kernel did on one machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its release.
    pub kernel: String,
    /// Ceiling of a window.
    pub max: PageCount,
    /// Largest request of its device.
    pub request_max: PageCount,
    /// Pages in the file that was read.
    pub pages: PageCount,
    /// Pattern by pattern.
    pub judged: Vec<Judged>,
}

/// How one pattern compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compared {
    /// The pattern's name.
    pub name: String,
    /// Submissions of the kernel.
    pub windows: usize,
    /// Of those, equal in start, size, tail and kind, in their order, before the first that is not.
    pub equal: usize,
    /// The first difference, in words.
    pub difference: Option<String>,
}

const P: u64 = PAGE_SIZE;

/// The patterns that the judge claims, for a file of `pages` pages (at least 16,384).
pub fn cases(pages: u64) -> Vec<Case> {
    let run = |first: u64, len: u64, count: u64, step: i64| Reads { offset: first, len, count, step };
    let one = |name: &str, reads: Reads| Case { name: name.into(), reads: vec![reads] };
    let each = |name: &str, reads: Vec<(u64, u64)>| Case {
        name: name.into(),
        reads: reads.into_iter().map(|(page, n)| run(page * P, n * P, 1, 0)).collect(),
    };
    let p = P as i64;
    let mut rng = Rng::named(4, &["judge"]);
    let mut random = |n: usize, len: u64, range: u64| -> Vec<(u64, u64)> {
        (0..n).map(|_| (rng.below(range / len) * len, len)).collect()
    };
    let mut mixed = Vec::new();
    for i in 0..200 {
        mixed.push((4096 + i * 2, 2));
        if i % 5 == 4 {
            mixed.extend(random(1, 2, pages));
        }
    }
    let irregular = [1, 1001, 2, 1002, 3, 4, 1003, 5, 1004, 1005, 6, 7, 8, 1006, 1007, 9, 10, 11];
    vec![
        one("G1 seq-1", run(0, P, 5000, p)),
        one("G2 seq-4", run(0, 4 * P, 1500, 4 * p)),
        one("G2 seq-32", run(0, 32 * P, 300, 32 * p)),
        one("G3 unaligned 1 KiB", run(0, 1024, 3000, 1024)),
        one("G3 unaligned 10 KiB", run(512, 10_240, 600, 10_240)),
        one("G5 large reads", run(0, 3000 * P, 3, 3000 * p)),
        one("G7 mid-file", run(5000 * P, P, 1500, p)),
        one("G7 mid-file by 16", run(3001 * P, 16 * P, 200, 16 * p)),
        each("G11 two streams of 1", (0..400).flat_map(|i| [(768 + i, 1), (9000 + i, 1)]).collect()),
        each("G11 two streams of 4", (0..300).flat_map(|i| [(768 + i * 4, 4), (8192 + i * 4, 4)]).collect()),
        each(
            "G11 eight streams of 4",
            (0..60).flat_map(|i| (0..8).map(move |s| (s * 2000 + 100 + i * 4, 4))).collect(),
        ),
        each("G12 irregular", irregular.into_iter().map(|page| (page, 1)).collect()),
        each("G13 sequential and random", mixed),
        each(
            "G14 columns of a matrix",
            (0..40).flat_map(|c| (0..16).map(move |r| (r * 1000 + c, 1))).collect(),
        ),
        each("G17 sparse 2 of 4", (0..400).map(|i| (3000 + i * 4, 2)).collect()),
        one("G19 stride 2", run(0, P, 300, 2 * p)),
        one("G19 stride 10", run(2000 * P, P, 200, 10 * p)),
        one("G20 reverse by 1", run(8000 * P, P, 400, -p)),
        one("G20 reverse by 8", run(8000 * P, 8 * P, 200, -8 * p)),
        each("G21 clustered random", random(400, 4, 1200)),
        each("G22 random", random(300, 1, pages)),
        each("G23 dense random", random(1000, 1, 2000)),
        each(
            "G25 seek, then a run",
            (0..12).flat_map(|r| (0..30).map(move |i| (500 + r * 1300 + i, 1))).collect(),
        ),
        one("end of the file", run((pages - 100) * P, P, 100, p)),
    ]
}

/// Plays the record's reads through 6.18's policy and compares, submission by submission.
pub fn compare(record: &Record) -> Vec<Compared> {
    record.judged.iter().map(|judged| compared(record, judged)).collect()
}

fn compared(record: &Record, judged: &Judged) -> Compared {
    let mut play = FolioPlay::new(
        Linux618::as_is().with_request_max(record.request_max),
        PageIndex(record.pages.0),
        record.max,
    );
    let ours: Vec<Submitted> = judged
        .case
        .reads
        .iter()
        .flat_map(|reads| reads.each())
        .flat_map(|(at, n)| play.read(at, n))
        .collect();
    let theirs = &judged.submitted;
    let equal = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let same = equal == ours.len() && equal == theirs.len();
    let shown = |s: Option<&Submitted>| s.map_or("nothing".into(), |s| line(*s));
    let difference = (!same).then(|| {
        format!(
            "window {}: the kernel {}, the policy {}",
            equal + 1,
            shown(theirs.get(equal)),
            shown(ours.get(equal))
        )
    });
    Compared { name: judged.case.name.clone(), windows: theirs.len(), equal, difference }
}

fn line(s: Submitted) -> String {
    let kind = if s.unbounded { "unbounded" } else { "order" };
    format!("{kind} {} {} {}", s.start, s.size, s.tail)
}

/// One line of a kernel's trace: the inode it is about, the ceiling if it says so, and the submission.
pub fn trace_line(text: &str) -> Option<(u64, Option<u64>, Submitted)> {
    let (unbounded, rest) = match text.split_once("page_cache_ra_order: ") {
        Some((_, rest)) => (false, rest),
        None => (true, text.split_once("page_cache_ra_unbounded: ")?.1),
    };
    let field =
        |name: &str| rest.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let ino = u64::from_str_radix(field("ino")?, 16).ok()?;
    let (size, tail) = if unbounded { ("nr_to_read", "lookahead_size") } else { ("size", "async_size") };
    let submitted = Submitted {
        unbounded,
        start: PageIndex(number("index")?),
        size: PageCount(number(size)?),
        tail: PageCount(number(tail)?),
    };
    Some((ino, number("ra_pages"), submitted))
}

impl Record {
    /// As text.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{HEADER}\nkernel {} max {} pages {} request {}\n",
            self.kernel, self.max, self.pages, self.request_max
        );
        for judged in &self.judged {
            let _ = writeln!(text, "pattern {}", judged.case.name);
            for r in &judged.case.reads {
                let more =
                    if r.count == 1 { String::new() } else { format!(" x {} step {}", r.count, r.step) };
                let _ = writeln!(text, "read {} {}{more}", r.offset, r.len);
            }
            for &s in &judged.submitted {
                let _ = writeln!(text, "{}", line(s));
            }
        }
        text
    }

    /// From text; the number of the line that is wrong, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut record = Self {
            kernel: String::new(),
            max: PageCount(0),
            request_max: PageCount(0),
            pages: PageCount(0),
            judged: Vec::new(),
        };
        for (number, line) in text.lines().enumerate() {
            let bad = |what: &str| format!("line {}: {what}: {line}", number + 1);
            let words: Vec<&str> = line.split_whitespace().collect();
            let n =
                |i: usize| words.get(i).and_then(|w| w.parse::<u64>().ok()).ok_or_else(|| bad("no number"));
            match words.first().copied() {
                _ if number == 0 && line != HEADER => return Err(bad("not a record of the judge")),
                None | Some("#") => {}
                Some("kernel") => {
                    record.kernel = words.get(1).copied().unwrap_or_default().into();
                    (record.max, record.pages) = (PageCount(n(3)?), PageCount(n(5)?));
                    record.request_max = PageCount(n(7)?);
                }
                Some("pattern") => {
                    let name = line.trim_start_matches("pattern ").to_string();
                    record.judged.push(Judged { case: Case { name, reads: vec![] }, submitted: vec![] });
                }
                Some(word) => {
                    let judged = record.judged.last_mut().ok_or_else(|| bad("before the first pattern"))?;
                    if word == "read" {
                        if words.len() == 3 {
                            judged.case.reads.push(Reads { offset: n(1)?, len: n(2)?, count: 1, step: 0 });
                            continue;
                        }
                        let step = words.get(6).and_then(|w| w.parse().ok()).ok_or_else(|| bad("no step"))?;
                        judged.case.reads.push(Reads { offset: n(1)?, len: n(2)?, count: n(4)?, step });
                    } else if word == "order" || word == "unbounded" {
                        judged.submitted.push(Submitted {
                            unbounded: word == "unbounded",
                            start: PageIndex(n(1)?),
                            size: PageCount(n(2)?),
                            tail: PageCount(n(3)?),
                        });
                    } else {
                        return Err(bad("no such word"));
                    }
                }
            }
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_line_is_read() {
        let text = "python3-1 [000] ..... 12.3: page_cache_ra_order: dev=254:0 ino=99e1fe index=788 order=2 size=8 async_size=8 ra_pages=2048";
        let (ino, max, submitted) = trace_line(text).unwrap();
        assert_eq!((ino, max, line(submitted)), (0x99e1fe, Some(2048), "order 788 8 8".into()));
        assert_eq!(trace_line("page_cache_sync_ra: dev=1:1 ino=1 index=0"), None);
    }

    #[test]
    fn a_record_survives_its_text() {
        let judged = cases(16_384).into_iter().map(|case| Judged { case, submitted: vec![] }).collect();
        let (max, request_max) = (PageCount(32), PageCount(320));
        let record = Record { kernel: "6.18.0".into(), max, request_max, pages: PageCount(16_384), judged };
        assert_eq!(Record::parse(&record.to_text()).unwrap(), record);
        assert!(Record::parse("pattern x").is_err());
    }
}
