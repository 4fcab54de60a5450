//! The reads behind a file of decisions (`bowwave run --explain`).
//!
//! A decision names the read that led to it; a read that found everything there led to none, and is not in the file. What was fetched
//! between two reads of a stream was fetched to be read, so it is taken to be: in order, in reads of the same size.
//!
//! ```text
//! read [0,+32)  -> [32,160)       named
//!                                 assumed  [32,+32) [64,+32) [96,+32)
//! read [128,+32) -> [160,288)     named    and from there to the end, if what was fetched reaches it
//! ```

use bowwave_lab::{Trace, trace_of};
use bowwave_steer::{DecisionLine, Line};
use std::collections::BTreeMap;

const PAGE: u64 = 4096;
/// Reads that are played at most: a file of decisions need not be one.
const READS_MAX: usize = 1 << 24;

/// A trace of reads, and how many of them no decision names.
pub(super) fn explained(text: &str) -> Result<(Trace, usize), String> {
    let (mut files, mut reads) = (BTreeMap::<u64, File>::new(), Reads::default());
    for line in text.lines() {
        match Line::parse(line).map_err(|error| error.to_string())? {
            Some(Line::File(line)) => {
                let file = files.entry(line.number).or_default();
                (file.name, file.bytes) = (Some(line.path), Some(line.size));
            }
            Some(Line::Decision(line)) => {
                files.entry(line.file).or_default().decided(&line, &mut reads)?;
            }
            None => {}
        }
    }
    if reads.all.is_empty() {
        return Err("there is no decision in this file".into());
    }
    for (number, file) in &mut files {
        file.read_to_the_end(*number, &mut reads)?;
    }
    let of_file = |(number, start, pages): (u64, u64, u64)| {
        let file = &files[&number];
        let offset = start * PAGE;
        let bytes = file.bytes.map_or(pages * PAGE, |end| (pages * PAGE).min(end.saturating_sub(offset)));
        (file.name.clone().unwrap_or_else(|| format!("f{number}")), offset, bytes)
    };
    let all = reads.all.into_iter().map(of_file).filter(|(.., bytes)| *bytes > 0);
    Ok((trace_of(all)?, reads.assumed))
}

/// Reads in their order: file, first page, pages.
#[derive(Default)]
struct Reads {
    all: Vec<(u64, u64, u64)>,
    assumed: usize,
}

/// What is known of a file: pages that were read and pages that were fetched ahead, as runs (first page, end).
#[derive(Default)]
struct File {
    name: Option<String>,
    bytes: Option<u64>,
    read: BTreeMap<u64, u64>,
    ahead: BTreeMap<u64, u64>,
    /// Pages of the latest read.
    pages: u64,
}

impl File {
    fn decided(&mut self, line: &DecisionLine, reads: &mut Reads) -> Result<(), String> {
        let (start, pages) = (line.read.0, line.read.1.max(1));
        let possible = |page: u64| page <= i64::MAX as u64 / PAGE;
        if !start.checked_add(pages).is_some_and(possible) || !possible(line.window.1) {
            return Err(format!("a read or a window past the end of any file: {line}"));
        }
        self.pages = pages;
        let begins = ["initial", "random"].contains(&line.pattern.as_str());
        let before = self.read.range(..=start).next_back().map(|(_, &end)| end);
        // One read may lead to several decisions.
        let again = before.is_some_and(|end| start < end);
        if let Some(from) = before.filter(|_| !begins && !again) {
            let fetched = self.ahead.range(..=start).next_back().is_some_and(|(_, &end)| start <= end);
            let first = self.ahead.range(..=from).next_back().map_or(from, |(&at, _)| at);
            let between: Vec<(u64, u64)> = match fetched {
                true => {
                    self.ahead.range(first..start).map(|(&at, &end)| (at.max(from), end.min(start))).collect()
                }
                false => Vec::new(),
            };
            for (at, end) in between {
                self.assume(line.file, at, end, reads)?;
            }
        }
        if !again {
            self.push((line.file, start, pages), reads)?;
        }
        if line.window.0 < line.window.1 {
            let end = self.ahead.entry(line.window.0).or_default();
            *end = line.window.1.max(*end);
        }
        Ok(())
    }

    /// Where what was fetched goes on from a read to the end of the file, no decision was left to make.
    fn read_to_the_end(&mut self, number: u64, reads: &mut Reads) -> Result<(), String> {
        let (Some(bytes), Some((_, &from))) = (self.bytes, self.read.last_key_value()) else { return Ok(()) };
        let (mut at, end) = (from, bytes.div_ceil(PAGE));
        while let Some(further) = self.ahead.range(..=at).map(|(_, &end)| end).max().filter(|&end| end > at) {
            at = further;
        }
        if at >= end { self.assume(number, from, end, reads) } else { Ok(()) }
    }

    fn assume(&mut self, number: u64, from: u64, end: u64, reads: &mut Reads) -> Result<(), String> {
        let mut at = from;
        while at < end {
            let pages = self.pages.min(end - at);
            reads.assumed += 1;
            self.push((number, at, pages), reads)?;
            at += pages;
        }
        Ok(())
    }

    fn push(&mut self, read: (u64, u64, u64), reads: &mut Reads) -> Result<(), String> {
        if reads.all.len() == READS_MAX {
            return Err(format!("more than {READS_MAX} reads"));
        }
        reads.all.push(read);
        let (_, start, pages) = read;
        match self.read.range_mut(..=start).next_back() {
            Some((_, end)) if *end >= start => *end = (*end).max(start + pages),
            _ => drop(self.read.insert(start, start + pages)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &str, expected: &[(u64, u64)], assumed: usize) {
        let text = format!("# f1 = 1048576 bytes, device 0:45, /a\n{lines}");
        let (trace, counted) = explained(&text).unwrap();
        let reads: Vec<_> = trace.plan.ops.iter().map(|op| (op.offset / PAGE, op.asked / PAGE)).collect();
        assert_eq!((reads.as_slice(), counted), (expected, assumed), "{lines}");
    }

    /// The picture above, and a read that led to two decisions.
    #[test]
    fn between_two_decisions_of_a_stream_what_was_fetched_is_read() {
        check(
            "1.0ms f1 read [0,+64) initial [64,128) ahead=64 mark=64 streams=0 why=R1 start\n\
             2.0ms f1 read [128,+64) subsequent [192,256) ahead=64 mark=192 streams=1 why=R2 next\n\
             2.0ms f1 read [128,+64) subsequent [256,256) ahead=0 mark=- streams=1 why=R3 waited\n",
            &[(0, 64), (64, 64), (128, 64), (192, 64)],
            2,
        );
    }

    /// A stride reads the places that were fetched; streams by turns each their own; and of what is not known nothing is made up.
    #[test]
    fn only_what_was_fetched_is_taken_to_be_read() {
        check(
            "1.0ms f1 read [0,+1) stride [16,17) ahead=1 mark=16 streams=1 why=R7 stride\n\
             1.0ms f1 read [0,+1) stride [32,33) ahead=1 mark=32 streams=1 why=R7 stride\n\
             2.0ms f1 read [32,+1) stride [48,49) ahead=1 mark=48 streams=1 why=R7 stride\n",
            &[(0, 1), (16, 1), (32, 1)],
            1,
        );
        check(
            "1.0ms f1 read [0,+4) initial [4,12) ahead=8 mark=4 streams=0 why=R1 start\n\
             1.0ms f1 read [100,+4) initial [104,112) ahead=8 mark=104 streams=1 why=R1 start\n\
             2.0ms f1 read [108,+4) subsequent [112,120) ahead=8 mark=112 streams=2 why=R2 next\n\
             3.0ms f1 read [7,+1) random [7,8) ahead=0 mark=- streams=2 why=R7 no stride\n",
            &[(0, 4), (100, 4), (104, 4), (108, 4), (7, 1)],
            1,
        );
    }

    #[test]
    fn what_is_no_read_is_refused() {
        let far = "1.0ms f1 read [0,+1) initial [0,18446744073709551615) ahead=0 mark=- streams=0 why=R1\n";
        assert!(explained(far).unwrap_err().contains("past the end"));
        let long = "1.0ms f1 read [0,+99999999999) initial [0,0) ahead=0 mark=- streams=0 why=R1\n";
        assert!(explained(long).unwrap_err().contains("at most 256"));
        assert!(explained("").is_err());
    }
}
