//! What is told of a run: each decision in the explain file, and the whole at the end.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use bowwave_core::Nanos;
use bowwave_wire::{AGENT_GONE, KERNEL_ON};

use super::{Held, State};
use crate::device_window::CALL_PAGES_MAX;
use crate::explain_file::{DecisionLine, FileLine};
use crate::files::Refusal;
use crate::summary::{Decisions, DeviceReport, FileReport, Report, page_bytes};

impl State {
    pub(super) fn explain(&mut self) {
        let decisions: Vec<_> = self.wave.take_trace().collect();
        let Some(explain) = self.explain.as_mut().filter(|explain| explain.is_written()) else { return };
        for decision in &decisions {
            let Some(held) = self.files.get_mut(&(decision.file.0 as u32)) else { continue };
            if !std::mem::replace(&mut held.named, true) {
                let line = FileLine {
                    number: held.number,
                    size: held.size,
                    device: device_name(held.origin.dev),
                    path: held.path.to_string_lossy().into_owned(),
                };
                explain.line(line);
            }
            explain.line(DecisionLine::of(decision, held.number));
        }
    }

    pub(super) fn finish(mut self) -> Report {
        self.segment.agent_state.store(AGENT_GONE, Ordering::SeqCst);
        self.drain(bowwave_wire::EVENTS_MAX);
        self.look_outside();
        let now = self.now();
        self.harvest(now, usize::MAX);
        self.explain();
        if let Some(explain) = &mut self.explain {
            explain.flush();
        }
        for &slot in self.files.keys() {
            if let Some(slot) = self.segment.file(slot) {
                slot.kernel.store(KERNEL_ON, Ordering::Relaxed);
            }
        }
        self.report(now)
    }

    pub(super) fn report(self, now: Nanos) -> Report {
        let (files, sums, files_folded) = self.retired.with(self.files.values().map(file_report));
        let FileReport { used, fetched, missed, .. } = sums;
        let devices = self.devices.iter().filter_map(|&device| {
            let learnt = self.wave.device(device)?;
            Some(DeviceReport {
                device: device_name(device),
                latency_us: learnt.latency.map(|l| l.0 as f64 / 1e3),
                bytes_per_s: learnt.bytes_per_s,
                in_flight_max: learnt.flight_max,
                pages_per_call: self.windows.cap(device).min(CALL_PAGES_MAX),
                window_lent: self.windows.lent(device),
            })
        });
        let mut refused = self.refused_before;
        for (&refusal, slots) in &self.refused {
            *refused.entry(refusal).or_default() += slots.len() as u64;
        }
        let mut not_steered: BTreeMap<String, u64> =
            refused.into_iter().filter(|&(_, n)| n > 0).map(|(refusal, n)| (refusal.kind(), n)).collect();
        let lost = self.segment.files_lost.load(Ordering::Relaxed);
        if lost > 0 {
            not_steered.insert("file | for which the table of files had no room".into(), lost);
        }
        not_steered.extend(self.dormant.iter().map(|(&words, &n)| (words.to_string(), n)));
        Report {
            elapsed_s: now.0 as f64 / 1e9,
            bytes_used: used,
            bytes_fetched: fetched,
            bytes_missed: missed,
            bytes_in_vain: sums.wasted,
            waste_percent: self.options.waste_percent,
            bytes_lost: sums.lost,
            fetched_per_used: (used > 0).then(|| (fetched + missed) as f64 / used as f64),
            fetch_calls: self.calls,
            fetch_calls_s: self.calls_ns as f64 / 1e9,
            agent_cpu_s: thread_cpu_s(),
            decisions: Decisions::from(self.wave.counters()),
            processes: self.processes,
            events_lost: self.segment.events_lost.load(Ordering::Relaxed),
            events: self.events,
            observed_outside: self.outside.is_open(),
            outside_known_by: self.outside.known_by().to_string(),
            outside_instead: self.outside.instead(),
            outside_lost: self.outside.lost(),
            faults_known_by: self.mapped.known_by().words().to_string(),
            mappings: self.mapped.mappings,
            faults: self.mapped.faults,
            faults_lost: self.mapped.samples.lost(),
            handed_back: self.hand_backs,
            memory: self.memory,
            not_steered,
            unsurprising: [Refusal::Gone, Refusal::NotAskedFor].map(Refusal::kind).into(),
            devices: devices.collect(),
            files,
            files_folded,
        }
    }
}

pub(super) fn file_report(held: &Held) -> FileReport {
    FileReport {
        number: held.number,
        path: held.path.clone(),
        size: held.size,
        used: page_bytes(held.account.used()),
        fetched: page_bytes(held.account.fetched),
        missed: page_bytes(held.account.missed),
        wasted: page_bytes(held.account.in_vain()),
        lost: page_bytes(held.account.lost),
    }
}

pub(super) fn device_name(device: u64) -> String {
    format!("{}:{}", libc::major(device), libc::minor(device))
}

pub(super) fn thread_cpu_s() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec that is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
