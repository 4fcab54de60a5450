//! A *record*: what a kernel did, as text: a line of where, then for each pattern its reads and the submissions that the kernel
//! traced. Records are kept in `tests/judge`, so that the comparison runs where no tracefs is.
//!
//! ```text
//! # bowwave judge 1
//! kernel 6.18.44 max 2048 pages 16384 request 1024
//! pattern G1 seq-1
//! read 0 4096 x 2200 step 4096          2,200 reads of 4,096 bytes, each 4,096 bytes further on
//! order 0 4 3                           page_cache_ra_order: start, size, tail
//! unbounded 797 28 1                    page_cache_ra_unbounded
//! pattern G26 mapped, in order
//! mapped normal read                    what the program said of its mapping, and how it touches it
//! touch 0 1 x 5000 step 4096            5,000 touches of one byte
//! order 0 2048 512
//! ```

use super::{Access, Case, Judged, Reads, Record};
use bowwave_core::{MapAdvice, PAGE_SIZE, PageCount, PageIndex, Submitted, Touched};
use std::fmt::Write;

/// Pages that the patterns of a record touch at most: a thousand times those of the longest pattern of ours.
const TOUCHED_MAX: u128 = 1 << 24;
/// First line of a record.
const HEADER: &str = "# bowwave judge 1";

pub(super) fn line(s: Submitted) -> String {
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

const ADVICES: [(MapAdvice, &str); 3] =
    [(MapAdvice::Normal, "normal"), (MapAdvice::Sequential, "sequential"), (MapAdvice::Random, "random")];
const TOUCHES: [(Touched, &str); 2] = [(Touched::Read, "read"), (Touched::Written, "written")];

fn word<T: PartialEq>(words: &[(T, &'static str)], of: &T) -> &'static str {
    words.iter().find(|known| known.0 == *of).map_or("", |known| known.1)
}
fn of_word<T: Copy>(words: &[(T, &str)], word: Option<&&str>) -> Option<T> {
    words.iter().find(|known| Some(&known.1) == word).map(|known| known.0)
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
            let verb = match judged.case.access {
                Access::Read => "read",
                Access::Mapped(advice, how) => {
                    let (advice, how) = (word(&ADVICES, &advice), word(&TOUCHES, &how));
                    let _ = writeln!(text, "mapped {advice} {how}");
                    "touch"
                }
            };
            for r in &judged.case.reads {
                let once = r.count == 1 && r.step == 0;
                let more = if once { String::new() } else { format!(" x {} step {}", r.count, r.step) };
                let _ = writeln!(text, "{verb} {} {}{more}", r.offset, r.len);
            }
            for &s in &judged.submitted {
                let _ = writeln!(text, "{}", line(s));
            }
        }
        text
    }

    /// From text; the number of the line that is wrong, and why; or that there is nothing to judge.
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
                    record.judged.push(Judged {
                        case: Case { name, access: Access::Read, reads: vec![] },
                        submitted: vec![],
                    });
                }
                Some(word) => {
                    let judged = record.judged.last_mut().ok_or_else(|| bad("before the first pattern"))?;
                    if word == "mapped" {
                        let said = of_word(&ADVICES, words.get(1)).zip(of_word(&TOUCHES, words.get(2)));
                        let (advice, how) = said.ok_or_else(|| bad("no such mapping"))?;
                        judged.case.access = Access::Mapped(advice, how);
                    } else if word == "read" || word == "touch" {
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
        let reads = || record.judged.iter().flat_map(|judged| &judged.case.reads);
        let touched: u128 = reads().map(|r| u128::from(r.count) * u128::from(r.len / PAGE_SIZE + 1)).sum();
        match touched {
            0 => Err("there is nothing to judge: no pattern of it reads".into()),
            _ if touched > TOUCHED_MAX => {
                Err(format!("its reads touch {touched} pages, more than a record has"))
            }
            _ => Ok(record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::cases;

    #[test]
    fn a_trace_line_is_read() {
        let text = "python3-1 [000] ..... 12.3: page_cache_ra_order: dev=254:0 ino=99e1fe index=788 order=2 size=8 async_size=8 ra_pages=2048";
        let (ino, max, submitted) = trace_line(text).unwrap();
        assert_eq!((ino, max, line(submitted)), (0x99e1fe, Some(2048), "order 788 8 8".into()));
        assert_eq!(trace_line("page_cache_sync_ra: dev=1:1 ino=1 index=0"), None);
    }

    #[test]
    fn a_record_survives_its_text() {
        let mut all = cases(16_384);
        // One read says its step as well, if it has one.
        all[0].reads = vec![Reads { offset: 0, len: 512, count: 1, step: 4096 }];
        let judged = all.into_iter().map(|case| Judged { case, submitted: vec![] }).collect();
        let (max, request_max) = (PageCount(32), PageCount(320));
        let record = Record { kernel: "6.18.0".into(), max, request_max, pages: PageCount(16_384), judged };
        assert_eq!(Record::parse(&record.to_text()).unwrap(), record);
        assert!(Record::parse("pattern x").is_err());
        for nothing in [
            "",
            HEADER,
            "# bowwave judge 1\nkernel 6.18.0 max 32 pages 9 request 0\npattern x\norder 0 4 3\n",
        ] {
            assert!(Record::parse(nothing).unwrap_err().contains("nothing to judge"), "{nothing}");
        }
        let long = "# bowwave judge 1\npattern x\nread 0 4096 x 99999999999 step 4096\n";
        assert!(Record::parse(long).unwrap_err().contains("more than a record has"));
    }
}
