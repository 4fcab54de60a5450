//! When a stream is taken to have ended because nobody touches it.
//!
//! ```text
//! patience   sixteen of its own intervals, eight latencies of its device, four of the longest waits of late, 10 ms: the longest
//!            64 times as much for a seed, whose reader may come back in the next row of a matrix
//! by turns   as long as the longest wait of late for each read of his file since, up to two rounds' (returns.rs)
//! looked at  when its patience may end, and every two latencies before: who was overtaken then goes at once
//! ```
//!
//! One reader comes every second, a hundred others read a member of an archive each and are gone (test
//! `one_patient_reader_holds_up_nobody`): each of these goes in its time, 80 ms on hdd, however long the first may be silent. Who has not
//! gone counts as active, and has a share of the memory (R13).

use crate::units::Nanos;
use crate::wave::Wave;
use crate::wave::streams::stream::{Course, Stream, StreamId};
use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

/// Intervals of its own that a stream may be silent, latencies of its device, waits as long as the longest of late, and no less than
/// 10 ms.
const INTERVALS: u64 = 16;
const LATENCIES: u64 = 8;
const WAITS: u64 = 4;
const PATIENCE_MIN: Nanos = Nanos::from_ms(10);
/// Where no latency is known.
const LATENCY_UNKNOWN: Nanos = Nanos::from_ms(50);
/// A seed is given so many times as long.
const SEED: u64 = 64;
/// Latencies from one look at a stream to the next, and for which who was overtaken is left.
const OVERTAKEN: u64 = 2;
/// Streams that one read may have to look at, whether they have ended.
const SWEPT_MAX: usize = 3;
/// Entries beside two a stream.
const SPARE: usize = 64;

/// Streams by the moment at which they are looked at next. Each has one entry that counts, named by [`InLine`]; others are passed
/// over. At most [`Wave::line_max`].
pub(in crate::wave) type SilenceLine = BinaryHeap<Reverse<(Nanos, StreamId)>>;

/// A stream's place in that line.
#[derive(Clone, Copy, Debug)]
pub(in crate::wave) struct InLine {
    /// When it is looked at next, or [`NEVER`].
    due: Nanos,
    /// It was lined up as a stream: seeds are given longer.
    as_stream: bool,
}

/// The moment of who does not stand in line.
const NEVER: Nanos = Nanos(u64::MAX);

impl Default for InLine {
    fn default() -> Self {
        Self { due: NEVER, as_stream: false }
    }
}

impl InLine {
    /// It is active; whether it has to be lined up for that, once.
    pub(in crate::wave) fn is_stream(&mut self) -> bool {
        !core::mem::replace(&mut self.as_stream, true)
    }
}

impl Wave {
    /// Entries in the line: two for each stream that there ever was at once, so that stale ones are cleared out once in as many touches.
    pub(in crate::wave) fn line_max(&self) -> usize {
        2 * self.streams.places() + SPARE
    }

    /// A stream is looked at when `due`. O(log streams), amortised.
    pub(in crate::wave) fn line_up(&mut self, due: Nanos, sid: StreamId) {
        if self.silent.len() >= self.line_max() {
            let streams = &self.streams;
            self.silent.retain(|&Reverse((at, sid))| streams.get(sid).is_some_and(|s| s.line.due == at));
        }
        let Some(s) = self.streams.get_mut(sid) else { return };
        s.line.due = due;
        self.silent.push(Reverse((due, sid)));
    }

    /// Ends streams that nobody has touched for longer than their patience; and those with pages ahead of them not before it is told what
    /// they read without a word, unless they were heard elsewhere.
    pub(in crate::wave) fn sweep(&mut self, now: Nanos) {
        for _ in 0..SWEPT_MAX {
            let Some(&Reverse((due, sid))) = self.silent.peek().filter(|entry| entry.0.0 <= now) else {
                return;
            };
            self.silent.pop();
            if let Some(s) = self.streams.get(sid).filter(|s| s.line.due == due) {
                match self.look_again(now, sid, s) {
                    Some(again) => self.line_up(again, sid),
                    None => self.end(sid),
                }
            }
        }
    }

    /// When a stream is to be looked at again, if it has not ended.
    fn look_again(&self, now: Nanos, sid: StreamId, s: &Stream) -> Option<Nanos> {
        let device = self.files.get(&s.file).and_then(|f| self.queues.get(&f.device));
        let latency = device.and_then(|q| q.device.latency()).unwrap_or(LATENCY_UNKNOWN).0;
        let patience = (INTERVALS * s.pace.interval_ns())
            .max(LATENCIES * latency)
            .max(PATIENCE_MIN.0)
            .max(WAITS * self.epochs.longest_wait_ns());
        let patience = if s.course == Course::Seed { SEED * patience } else { patience };
        let idle = now.since(s.pace.last()).0;
        let overtaken = idle >= OVERTAKEN * latency && self.overtaken(s);
        if !overtaken && idle <= self.until_its_turn_ns(s).min(SEED * patience) {
            return Some(Nanos(now.0 + OVERTAKEN * latency));
        }
        if overtaken || idle >= patience && !self.may_read_quietly(sid, s, idle) {
            return None;
        }
        let end = s.pace.last().0 + if idle < patience { patience } else { self.config.told_within.0 };
        Some(Nanos(end.min(now.0 + OVERTAKEN * latency).max(now.0 + 1)))
    }

    /// How long a stream may be silent because its reader, who is in its file still, walks others by turns and waits at each: 256 rows of a matrix that
    /// wait for a disk take two seconds.
    fn until_its_turn_ns(&self, s: &Stream) -> u64 {
        let there = || s.begun.by().and_then(|by| self.latest.get(&by)).is_some_and(|l| l.file == s.file);
        let f = self.files.get(&s.file).filter(|_| there());
        let reads = f.and_then(|f| s.returns.before_its_turn(f.told.reads())).unwrap_or(0);
        reads * self.epochs.longest_wait_ns()
    }

    /// Whether a stream that is idle so long, in nanoseconds, may have been read from without a word, and it is not told yet: there are
    /// pages ahead of its reader, and he was not heard reading elsewhere since.
    fn may_read_quietly(&self, sid: StreamId, s: &Stream, idle: u64) -> bool {
        let elsewhere =
            || s.begun.by().and_then(|by| self.latest.get(&by)).is_some_and(|l| l.stream != Some(sid));
        idle < self.config.told_within.0 && s.frontier != s.next && !elsewhere()
    }
}

#[cfg(test)]
mod tests {
    use crate::units::{Bytes, Extent, FileId, Nanos};
    use crate::wave::streams::stream::{Course, Stream};
    use crate::wave::{Config, Input, Wave};

    fn opened(config: Config) -> Wave {
        let mut wave = Wave::new(config);
        wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 30) });
        wave
    }

    #[test]
    fn one_patient_reader_holds_up_nobody() {
        let mut wave = opened(Config::default());
        let mut patient = Stream::seed(FileId(0), 0, 1, Nanos(0));
        (patient.course, patient.reads) = (Course::Forward, 9);
        patient.pace.comes_every(1_000_000_000);
        let patient = wave.streams.add(patient).unwrap();
        wave.mark_active(Nanos(0), patient);
        wave.queue(0).device.timed_alone(Nanos::from_ms(8));
        for member in 1..=100 {
            let now = Nanos::from_ms(10 * member);
            let mut s = Stream::seed(FileId(0), 1000 * member, 1, now);
            (s.course, s.reads) = (Course::Forward, 9);
            let sid = wave.streams.add(s).unwrap();
            wave.mark_active(now, sid);
            wave.sweep(now);
        }
        assert!(wave.streams.get(patient).is_some());
        assert_eq!(wave.streams.len(), 10, "those of the last 90 ms, and the patient one");
    }

    /// Rows that one reader walks by turns, 10 us each while he finds them there, and then waits 8 ms at each of a hundred reads: none that he may be on
    /// his way to has ended, 800 ms later; but ten that he would have come to ten times have, and all when he went to another file.
    #[test]
    fn who_waits_at_each_of_his_rows_has_not_left_the_others() {
        let left = |rows: u64, rounds: u64, elsewhere: bool| {
            let mut wave = opened(Config::default());
            wave.handle(Nanos(0), Input::Open { file: FileId(1), device: 0, size: Bytes(1 << 30) });
            let mut now = 0;
            let mut read = |wave: &mut Wave, file: u64, page: u64, took: Nanos| {
                let (file, pages) = (FileId(file), Extent::new(page, 1));
                wave.handle(Nanos(now), Input::Read { file, pages, actor: 7 });
                now += took.0;
                wave.handle(Nanos(now), Input::Waited { file, pages, actor: 7, took, ended: Nanos(now) });
                wave.check();
            };
            (0..rounds).for_each(|r| {
                (0..rows).for_each(|row| read(&mut wave, 0, 2000 * row + r, Nanos::from_us(10)))
            });
            let file = u64::from(elsewhere);
            (0..100).for_each(|k| read(&mut wave, file, 210_000 + 37 * k * k % 50_000, Nanos::from_ms(8)));
            let gone = |row: &u64| !wave.files[&FileId(0)].expected.up().contains_key(&(2000 * row + rounds));
            (0..rows).filter(gone).count()
        };
        assert_eq!([left(100, 4, false), left(10, 40, false), left(100, 4, true)], [0, 10, 100]);
    }

    /// A driver that tells late of quiet reads: who finds everything there says nothing until then, and is there all the same.
    #[test]
    fn silence_says_nothing_before_it_is_told() {
        let left_after_a_while = |told_within: Nanos, course: Course, frontier: u64, elsewhere: bool| {
            let mut wave = opened(Config { told_within, ..Config::default() });
            let mut s = Stream::seed(FileId(0), 0, 1, Nanos(0));
            let interval_ns = if course == Course::Seed { 0 } else { 40_000_000 };
            (s.course, s.reads, s.frontier) = (course, 3, frontier);
            s.pace.comes_every(interval_ns);
            s.begun.as_seed(0, Some(7));
            let (next, seed) = (s.next, course == Course::Seed);
            let sid = wave.streams.add(s).unwrap();
            let f = wave.files.get_mut(&FileId(0)).unwrap();
            assert_eq!(f.expected.expect(Course::Forward, next, sid), None);
            wave.line_up(Nanos(0), sid);
            wave.remember(7, FileId(0), Extent::new(0, 1), Some(sid).filter(|_| !elsewhere));
            let until = if seed { 60_000 } else { 1000 };
            (1..=100).for_each(|part| wave.sweep(Nanos::from_ms(until * part / 100)));
            wave.streams.get(sid).is_some()
        };
        let late = Nanos::from_ms(3000);
        assert!(!left_after_a_while(Nanos(0), Course::Forward, 100, false));
        assert!(left_after_a_while(late, Course::Forward, 100, false));
        assert!(
            !left_after_a_while(late, Course::Forward, 1, false),
            "who has nothing ahead is heard at once"
        );
        assert!(!left_after_a_while(late, Course::Forward, 100, true), "he was heard elsewhere");
        assert!(!left_after_a_while(late, Course::Seed, 100, false), "a minute is late enough for a seed");
    }
}
