//! What a run came to: one line for the eye, a structure for programs.
//!
//! Worked example: 268 MB used of which all were fetched ahead, 4.1 MB more in vain:
//!
//! ```text
//! bowwave: 12.4 s; 1.02 bytes fetched per byte used (268 MB used); 3 streams; 4.1 MB fetched in vain
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bowwave_core::{Counters, PAGE_SIZE};
use serde::Serialize;

/// Of what was fetched in vain more is said only beyond the share that the brain keeps to where waits do not pay for more.
const WASTE_PERCENT: u64 = 15;
/// Less than so much is not worth a word.
const TOLD_MIN: u64 = 1 << 20;

/// What the agent has to tell when a run ends.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Seconds from the agent's start to its end.
    pub elapsed_s: f64,
    /// Different bytes read, in whole pages.
    pub bytes_used: u64,
    /// Bytes that the agent fetched: pages that were absent when it asked.
    pub bytes_fetched: u64,
    /// Bytes that the programs' own reads brought.
    pub bytes_missed: u64,
    /// Bytes fetched that nobody read.
    pub bytes_in_vain: u64,
    /// Of those, bytes that were gone from memory before their reader came.
    pub bytes_lost: u64,
    /// Pages fetched in vain that were allowed for each hundred used, if that was said.
    pub waste_percent: Option<u32>,
    /// (fetched + missed) / used; absent where nothing was used.
    pub fetched_per_used: Option<f64>,
    /// Calls of readahead(2), and the time that they took.
    pub fetch_calls: u64,
    /// Seconds spent in them.
    pub fetch_calls_s: f64,
    /// Processor seconds of the agent.
    pub agent_cpu_s: f64,
    /// The brain's counters.
    pub decisions: Decisions,
    /// Programs that started with the library in them.
    pub processes: u64,
    /// Events that found the ring full.
    pub events_lost: u64,
    /// Times the agent could not keep up and the kernel's own heuristics were switched on again for a while.
    pub handed_back: u64,
    /// Events handled.
    pub events: u64,
    /// Whether reads were observed from outside too.
    pub observed_outside: bool,
    /// Who told of them: BPF programs, perf samples, or nobody.
    pub outside_known_by: String,
    /// Why it was perf and no BPF program, if it was.
    pub outside_instead: Option<String>,
    /// What was to be told of and found its ring full.
    pub outside_lost: u64,
    /// How page faults of mapped files were known: perf samples, page tables, or not seen.
    pub faults_known_by: String,
    /// Mappings that were watched.
    pub mappings: u64,
    /// Touches of them that were heard of.
    pub faults: u64,
    /// Samples that found their ring full.
    pub faults_lost: u64,
    /// Memory that prefetched pages might occupy at the end.
    pub memory: u64,
    /// What was not steered, and how often.
    pub not_steered: BTreeMap<String, u64>,
    /// Of those, what is no news: files that the user excluded, or that were closed at once.
    #[serde(skip)]
    pub unsurprising: BTreeSet<String>,
    /// Devices as they were learnt.
    pub devices: Vec<DeviceReport>,
    /// Files, most used first.
    pub files: Vec<FileReport>,
    /// Files beside those, of which only the sums above tell.
    pub files_folded: u64,
}

/// The counters of the brain.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Decisions {
    /// Reads told.
    pub reads: u64,
    /// Reads that waited.
    pub stalls: u64,
    /// Seconds that reads waited.
    pub stalled_s: f64,
    /// Windows decided.
    pub windows: u64,
    /// Windows that seemed to have lost a page before its read: one that was seen to be gone, or, where nobody could look, a read that
    /// waited for what should have been there. Bytes that were gone are in `bytes_lost`.
    pub windows_thrashed: u64,
    /// Streams found.
    pub streams: u64,
    /// Pages fetched ahead.
    pub pages_ahead: u64,
    /// Of those, read later.
    pub pages_useful: u64,
    /// Of those, still under way when their reader came.
    pub pages_late: u64,
    /// Fetches that failed.
    pub fetches_failed: u64,
}

impl From<&Counters> for Decisions {
    fn from(c: &Counters) -> Self {
        Self {
            reads: c.reads,
            stalls: c.stalls,
            stalled_s: c.stalled_ns as f64 / 1e9,
            windows: c.windows,
            windows_thrashed: c.windows_thrashed,
            streams: c.streams,
            pages_ahead: c.pages_ahead,
            pages_useful: c.pages_useful,
            pages_late: c.pages_late,
            fetches_failed: c.fetches_failed,
        }
    }
}

/// A device as this run has learnt it.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// `major:minor`.
    pub device: String,
    /// Time of a lone small read.
    pub latency_us: Option<f64>,
    /// Bytes a second at best.
    pub bytes_per_s: Option<u64>,
    /// Requests that we keep in flight at most.
    pub in_flight_max: u32,
    /// Pages that one call brings.
    pub pages_per_call: u64,
    /// Whether our descriptors were lent a larger window.
    pub window_lent: bool,
}

/// A file of the run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileReport {
    /// Number in the run, as in the file of decisions.
    pub number: u64,
    /// Its name when it was met.
    pub path: PathBuf,
    /// Bytes in it.
    pub size: u64,
    /// Different bytes read.
    pub used: u64,
    /// Bytes that the agent fetched.
    pub fetched: u64,
    /// Bytes that the program's own reads brought.
    pub missed: u64,
    /// Bytes fetched that nobody read.
    pub wasted: u64,
    /// Of those, bytes that were gone before their reader came.
    pub lost: u64,
}

impl Report {
    /// The line at the end of a run.
    pub fn one_line(&self) -> String {
        let mut parts = vec![format!("{} s", seconds(self.elapsed_s))];
        match self.fetched_per_used {
            Some(ratio) if ratio < 0.005 => {
                parts.push(format!("all {} used were in memory already", shown_bytes(self.bytes_used)))
            }
            Some(ratio) => {
                let there = self.bytes_there();
                let rest = if there < (self.bytes_used / 100).max(TOLD_MIN) {
                    String::new()
                } else {
                    format!(", {} of it in memory already", shown_bytes(there))
                };
                parts.push(format!(
                    "{ratio:.2} bytes fetched per byte used ({} used{rest})",
                    shown_bytes(self.bytes_used)
                ));
            }
            None => parts.push("nothing to steer was read (files below 128 KiB are left alone)".into()),
        }
        if self.fetched_per_used.is_none() && self.bytes_fetched == 0 {
            return self.with_what_was_left(parts);
        }
        parts.push(count(self.decisions.streams, "stream"));
        parts.push(format!("{} fetched in vain{}", shown_bytes(self.bytes_in_vain), self.beyond()));
        if 100 * self.bytes_lost >= self.bytes_used.max(1) {
            parts.push(format!("{} of that lost from memory unread", shown_bytes(self.bytes_lost)));
        }
        self.with_what_was_left(parts)
    }

    /// The line of these parts, and what was not heard of or not steered.
    fn with_what_was_left(&self, mut parts: Vec<String>) -> String {
        if self.events_lost > 0 {
            parts.push(format!("{} lost", count(self.events_lost, "event")));
        }
        let left: Vec<String> = self
            .not_steered
            .iter()
            .filter(|(what, _)| !self.unsurprising.contains(*what))
            .map(|(what, n)| count(*n, what))
            .collect();
        if !left.is_empty() {
            parts.push(format!("not steered: {}", left.join(", ")));
        }
        format!("bowwave: {}", parts.join("; "))
    }

    /// What there is to say of what was fetched in vain beyond the usual share, or beyond the ceiling.
    fn beyond(&self) -> String {
        let percent = self.waste_percent.map_or(WASTE_PERCENT, u64::from);
        if self.bytes_in_vain <= self.bytes_used.saturating_mul(percent) / 100 + TOLD_MIN {
            return String::new();
        }
        match self.waste_percent {
            Some(percent) => format!(" (more than --waste {percent} allows)"),
            None => " to save waits (--waste PERCENT limits it)".into(),
        }
    }

    /// Bytes used that nobody brought during the run.
    fn bytes_there(&self) -> u64 {
        let brought = self.bytes_fetched + self.bytes_missed;
        self.bytes_used.saturating_sub(brought.saturating_sub(self.bytes_in_vain))
    }
}

/// Whole pages in bytes.
pub(crate) const fn page_bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE
}

fn seconds(s: f64) -> String {
    if s < 9.995 { format!("{s:.2}") } else { format!("{s:.1}") }
}

/// Bytes as a line shows them: `999 B`, `1.0 kB`, `4.1 MB`, `84 MB`.
pub fn shown_bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 || unit == "TB" {
            let digits = usize::from(unit != "B" && value < 9.95);
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    unreachable!("the last unit takes whatever is left")
}

/// `1 stream`, `2 streams`; in a longer phrase the first noun takes the s: `2 files not readable`.
fn count(n: u64, what: &str) -> String {
    let mut words = what.splitn(2, " | ");
    let (noun, rest) = (words.next().unwrap_or(what), words.next());
    let plural = if n == 1 { "" } else { "s" };
    match rest {
        Some(rest) => format!("{n} {noun}{plural} {rest}"),
        None => format!("{n} {noun}{plural}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_reads_as_promised() {
        let mut report = Report {
            elapsed_s: 12.41,
            bytes_used: 268_435_456,
            bytes_fetched: 272_535_456,
            bytes_in_vain: 4_100_000,
            fetched_per_used: Some(1.0153),
            ..Report::default()
        };
        report.decisions.streams = 3;
        assert_eq!(
            report.one_line(),
            "bowwave: 12.4 s; 1.02 bytes fetched per byte used (268 MB used); 3 streams; 4.1 MB fetched in vain"
        );
        report.bytes_lost = 1_000_000;
        assert!(report.one_line().ends_with("; 4.1 MB fetched in vain"), "less than one in a hundred");
        report.bytes_lost = 3_000_000;
        let lost = "; 4.1 MB fetched in vain; 3.0 MB of that lost from memory unread";
        assert!(report.one_line().ends_with(lost));
        report.bytes_lost = 0;
        report.not_steered.insert("static program".into(), 2);
        report.not_steered.insert("file | not readable by bowwave".into(), 1);
        assert!(
            report.one_line().ends_with("; not steered: 1 file not readable by bowwave, 2 static programs")
        );
    }

    #[test]
    fn where_nothing_was_read_nothing_is_counted() {
        let mut report = Report::default();
        let nothing = "bowwave: 0.00 s; nothing to steer was read (files below 128 KiB are left alone)";
        assert_eq!(report.one_line(), nothing);
        report.not_steered.insert("static program".into(), 1);
        assert_eq!(report.one_line(), format!("{nothing}; not steered: 1 static program"));
    }

    #[test]
    fn what_was_bought_says_why_and_how_not_to() {
        let told = |bytes_in_vain, waste_percent| {
            let report = Report {
                bytes_used: 15_000_000,
                bytes_in_vain,
                bytes_fetched: 15_000_000,
                fetched_per_used: Some(1.0),
                waste_percent,
                ..Report::default()
            };
            report.one_line()
        };
        let usual = told(3_000_000, None);
        assert!(usual.ends_with("; 3.0 MB fetched in vain"), "{usual}");
        let bought = told(81_000_000, None);
        assert!(
            bought.ends_with("; 81 MB fetched in vain to save waits (--waste PERCENT limits it)"),
            "{bought}"
        );
        let beyond = told(3_000_000, Some(5));
        assert!(beyond.ends_with("; 3.0 MB fetched in vain (more than --waste 5 allows)"), "{beyond}");
    }

    #[test]
    fn what_was_in_memory_is_not_called_cheap() {
        let told = |bytes_fetched| {
            let fetched_per_used = Some(bytes_fetched as f64 / 96e6);
            let report =
                Report { bytes_used: 96_000_000, bytes_fetched, fetched_per_used, ..Report::default() };
            report.one_line()
        };
        assert!(told(96_000_000).contains("1.00 bytes fetched per byte used (96 MB used); "));
        assert!(
            told(48_000_000)
                .contains("0.50 bytes fetched per byte used (96 MB used, 48 MB of it in memory already); ")
        );
        assert!(told(131_072).contains("; all 96 MB used were"));
        assert!(told(0).contains("; all 96 MB used were in memory already; 0 streams; "));
    }

    #[test]
    fn bytes_have_three_digits() {
        for (n, text) in
            [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (9_960_000, "10 MB"), (4_100_000, "4.1 MB")]
        {
            assert_eq!(shown_bytes(n), text);
        }
    }
}
