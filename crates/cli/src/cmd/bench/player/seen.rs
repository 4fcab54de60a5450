//! What the player saw: each thread for itself, and all of them together, as the report tells it.

use super::stage::Stage;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the player saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// From the start to the end of the last thread.
    pub(crate) elapsed_ns: u64,
    /// Stopped at its time cap.
    pub(crate) capped: bool,
    /// Reads made by each thread.
    pub(crate) done: Vec<u64>,
    /// Bytes read, repeats and all.
    pub(crate) bytes: u64,
    /// Reads that failed.
    pub(crate) errors: u64,
    /// Reads that returned wrong bytes.
    pub(crate) wrong: u64,
    /// The first of either, in words.
    pub(crate) first_error: Option<String>,
    /// Time spent in reads, all threads together.
    pub(crate) wait_ns: u64,
    /// Half of the reads took at most this.
    pub(crate) p50_ns: u64,
    /// 99 % of the reads took at most this.
    pub(crate) p99_ns: u64,
    /// The slowest read.
    pub(crate) max_ns: u64,
    /// Time that `cat` took, if it went first; part of `elapsed_ns`.
    pub(crate) cat_ns: u64,
    /// Each phase's time and stall.
    pub(crate) phases: Vec<PhaseReport>,
    /// How well a pace was kept.
    pub(crate) paced: Option<PacedReport>,
}

/// One phase of a plan that changes its behaviour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PhaseReport {
    pub(crate) name: String,
    pub(crate) start_ns: u64,
    /// Time spent in the phase's reads.
    pub(crate) wait_ns: u64,
    /// Time spent in its first [`FIRST_READS`] reads: what the change cost.
    pub(crate) first_wait_ns: u64,
    pub(crate) reads: u64,
}

/// Reads after a change that count as its start.
pub(crate) const FIRST_READS: u64 = 64;

/// Many streams at a given rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PacedReport {
    /// Bytes that all streams together want in a second.
    pub(crate) demand_bytes_per_s: u64,
    /// Bytes used in the measured part.
    pub(crate) measured_bytes: u64,
    /// How long that was.
    pub(crate) measured_ns: u64,
    /// Bytes used in each second from the start on.
    pub(crate) by_second: Vec<u64>,
    /// Reads of the measured part that began more than 100 ms late.
    pub(crate) late: u64,
    /// 99 % of reads of the measured part began at most so late.
    pub(crate) late_p99_ns: u64,
}

/// What one thread saw.
pub(super) struct Seen {
    pub(super) done: u64,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    pub(super) wrong: u64,
    pub(super) first_error: Option<String>,
    pub(super) wait_ns: u64,
    pub(super) latency: Histogram<u32>,
    pub(super) phases: Vec<PhaseReport>,
    pub(super) late: Histogram<u32>,
    pub(super) late_reads: u64,
    pub(super) measured: u64,
    pub(super) by_second: Vec<u64>,
}

impl Seen {
    /// `figures` significant ones of each time: two take 17 KB a thread, one 2 KB.
    pub(super) fn new(figures: u8) -> Self {
        let histogram = || Histogram::new_with_bounds(1, 600_000_000_000, figures).expect("sane bounds");
        Self {
            done: 0,
            bytes: 0,
            errors: 0,
            wrong: 0,
            first_error: None,
            wait_ns: 0,
            latency: histogram(),
            phases: Vec::new(),
            late: histogram(),
            late_reads: 0,
            measured: 0,
            by_second: Vec::new(),
        }
    }

    pub(super) fn complain(&mut self, sentence: String) {
        self.first_error.get_or_insert(sentence);
    }
}

/// What all threads saw together.
pub(super) fn report(
    stage: &Stage,
    seen: Vec<Seen>,
    elapsed: Duration,
    cat_took: Duration,
    capped: bool,
) -> Report {
    let (elapsed_ns, cat_ns) = (elapsed.as_nanos() as u64, cat_took.as_nanos() as u64);
    let mut total = Report { elapsed_ns, capped, cat_ns, ..Report::default() };
    let mut latency = Histogram::<u32>::new(2).expect("two figures");
    let mut late = latency.clone();
    let mut paced = stage.pace.map(|pace| PacedReport {
        demand_bytes_per_s: pace.bytes_per_s * stage.threads as u64,
        measured_bytes: 0,
        measured_ns: pace.measure_ns,
        by_second: Vec::new(),
        late: 0,
        late_p99_ns: 0,
    });
    for one in seen {
        total.done.push(one.done);
        total.bytes += one.bytes;
        total.errors += one.errors;
        total.wrong += one.wrong;
        total.wait_ns += one.wait_ns;
        total.first_error = total.first_error.or(one.first_error);
        total.phases.extend(one.phases);
        latency.add(&one.latency).expect("it grows by itself");
        late.add(&one.late).expect("it grows by itself");
        if let Some(paced) = &mut paced {
            paced.measured_bytes += one.measured;
            paced.late += one.late_reads;
            paced.by_second.resize(one.by_second.len().max(paced.by_second.len()), 0);
            paced.by_second.iter_mut().zip(one.by_second).for_each(|(all, one)| *all += one);
        }
    }
    if let Some(paced) = &mut paced {
        paced.late_p99_ns = late.value_at_quantile(0.99);
    }
    total.p50_ns = latency.value_at_quantile(0.5);
    total.p99_ns = latency.value_at_quantile(0.99);
    total.max_ns = latency.max();
    total.paced = paced;
    total
}
