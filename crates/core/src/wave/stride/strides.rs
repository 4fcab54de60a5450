//! R7, R8: how far ahead of a stride to fetch, and whether to fetch its gaps.
//!
//! ```text
//! period 16, run 1      read 0 . . . 16 . . . 32      the fourth is known: 48, then 64 and 80 ...
//! R7  gaps dear         asked for  [48,49) [64,65) [80,81) ...     one request each
//! R8  gaps cheap        asked for  [48,81)                         one request, gaps and all
//!                       then       [81,129)                        right behind it: no head travels, and nobody waits in a gap
//! ```
//!
//! Four runs are asked for first. If their reader finds them there one after the other, each within a quarter of a latency, the device
//! brings several at once: a head would have made him wait for each. From then on, and where that is known, he has four runs ahead for each
//! that he has read, up to what one latency carries or the device takes at once; and once he has found all four, as much as opens a
//! window (R13), for nobody knows where he ends: what three connections carry in a latency. Some of what the device takes at once is left
//! free: the rows of a matrix are read like a stride, and who begins with the next would wait behind what the last had too many. He has
//! more by waiting (R3), and asks again when a quarter of it is behind him, four runs at least, not half: what is out does not run low
//! before the next go.
//!
//! ```text
//! s3, runs of 16 pages     read 3: 4 runs are asked for     reads 4 to 7 find them: 20 and 24 ahead after the fifth and sixth,
//!                          and 60 after the seventh, but for four all that the device takes at once
//! a head of 8 ms           read 5 comes 8 ms after read 4: 6 ahead, because the third waited
//! ```
//!
//! Nor is more asked for than what the device takes at once, twice, or where gaps are bought what it can use of all streams (R13): on ssd 3,700
//! pages. A reader who waits for a device that is busy would have all that he may have out, to no use, and leave it there when he ends: behind
//! the first column of a matrix of 256 rows 900 more were asked for on s3, and who read the second waited behind them.
//!
//! A gap is cheap up to three quarters of what one connection carries in a latency, divided by the requests that overlap
//! (device.rs, `gap_max`): 600 KB on hdd, 140 KB on s3, 2 KB on ssd. Where answers are late, runs whose gaps are cheap are read as a stream is,
//! and the third read opens as much as a window has (R3), unless somebody read near the three of late: in a cluster they may be chance. The
//! scenarios are `tests/wave/r07-stride.txt` and `r08-gaps.txt`. Runs right behind pages that were read are the rows of a matrix that is read by
//! columns: each is opened as a stream of its own (R4). How long a run is says whole_runs.rs.

use crate::decision::{Pattern, Why};
use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageCount, PageIndex};
use crate::wave::devices::device::{Device, PIECE_MIN};
use crate::wave::memory::shares::{SPECULATION_MAX, UNITS_FIRST, first_window};
use crate::wave::plan::whole;
use crate::wave::requests::queue::{Turn, Wanted};
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::stride::beat::Beat;
use crate::wave::windows::lengths::USED_PERCENT;
use crate::wave::windows::reach::PROMISE;
use crate::wave::{File, Wave};
use alloc::vec::Vec;
use core::ops::Range;

/// A reader comes on at once if one of his reads follows another within so small a part of a latency: a quarter.
const AT_ONCE: u64 = 4;
/// Runs that a stride has ahead of it first.
const FIRST_RUNS: u64 = 4;
/// One in so many of the requests that a device takes at once is left to reads that nobody foresaw: 4 of 64 on s3.
const LEFT_FREE: u64 = 16;
/// Periods on either side of three reads in which nobody read of late, if they are more than chance.
const CLEAR_PERIODS: i64 = 8;
/// Reads that make a stride.
pub(in crate::wave) const STRIDE_READS: u64 = 3;

impl Stream {
    /// Whether the reader of this stride has found what was first fetched ahead of it there, one run after the other, as far as he
    /// has come to it: on a device that serves one at once he would have waited for each.
    fn found_first(&self) -> bool {
        self.found && self.reads > STRIDE_READS + 1
    }

    /// Whether a device serves several runs of this stride at once, as far as is known.
    pub(in crate::wave) fn comes_together(&self, device: &Device) -> bool {
        device.overlaps() || !device.is_head() && self.found_first()
    }
}

impl File {
    /// Whether nothing was read of late near the three reads of a stride that goes on at `next`: in a cluster three lie equally far apart by
    /// chance.
    fn alone(&self, next: u64, period: i64) -> bool {
        let at = |periods: i64| next.saturating_add_signed(periods.saturating_mul(period));
        let (one, other) = (at(-(STRIDE_READS as i64) - CLEAR_PERIODS), at(CLEAR_PERIODS));
        let own = |page: u64| (1..=STRIDE_READS as i64).any(|read| at(-read).abs_diff(page) <= 1);
        self.expected.down().range(one.min(other)..=one.max(other)).all(|(&page, _)| own(page))
    }
}

/// Pages that a stride may have ahead of it.
#[derive(Clone, Copy)]
struct Allowed {
    /// Its share of the memory,
    share: u64,
    /// and what others have left of what all may have out.
    left: u64,
    speculation: u64,
    /// Gaps are no speculation, but three times as much as that may be is enough for any device and for who looks after it.
    most: u64,
    /// What the device can use of all streams (R13).
    enough: u64,
    /// Nothing is fetched for short runs (R12).
    holds_back: bool,
}

impl Allowed {
    /// Runs of so many pages that a stride may have ahead of it, each with its `gap` where that is fetched.
    fn runs_max(self, f: &File, s: &Stream, device: &Device, run: u64, gap: Option<u64>) -> u64 {
        // Gaps that are bought take memory like the rest.
        let bought = run + gap.unwrap_or(0);
        // Twice what it takes at once is enough for any device, and more where gaps are bought than what it can use of all streams, if others
        // read on in their windows; there a request is of the smallest size at least.
        let piece = if gap.is_some() { bought.max(PIECE_MIN.0) } else { run };
        let at_once = 2 * u64::from(device.flight_max()) * piece;
        let enough = if gap.is_some() { self.enough.max(at_once) } else { at_once };
        let pages = self.share.min(self.most).min(enough);
        let ends =
            f.runs.strides().window(s.reads, PageCount(u64::MAX), USED_PERCENT).map_or(u64::MAX, |w| w.0);
        // A head that goes apart brings a run by each trip, as it would for its reader: no more of them than a quarter of those he has read.
        let few = if self.holds_back || device.is_head() && gap.is_none() { s.reads / 4 } else { u64::MAX };
        (pages / bought.max(1))
            .min(self.speculation / run.max(1))
            .max(1)
            .min(ends)
            .min(few)
            .min(s.beat().sure_runs())
    }
}

/// Where the next runs of a stride lie.
#[derive(Clone, Copy)]
struct NextRuns {
    beat: Beat,
    /// Pages that are fetched of each at least.
    run: u64,
}

impl NextRuns {
    /// The run after so many of them; `None` beyond all page numbers.
    fn run(self, after: i64) -> Option<Extent> {
        self.beat.fetched(after + 1, self.run)
    }

    /// How many of them lie before `frontier`, where one begins.
    fn before(self, frontier: u64) -> i64 {
        self.beat.nearest(frontier).saturating_sub(1)
    }

    /// What is asked for of those `runs`, which the stream has come to then: one window for all with their gaps, or one for each; and those that
    /// lie right behind pages that were read, each the column of a matrix.
    fn ask(self, f: &File, s: &mut Stream, runs: Range<i64>, gaps: bool) -> (Vec<Extent>, Vec<Extent>) {
        // A head need not travel where a stretch begins right behind the one before; and others may read in the gap, quietly until now.
        let before = self.run(runs.start - 1).filter(|_| gaps && runs.start > 0);
        let mut stretch = before
            .map(|last| Extent::new(if self.beat.pages() > 0 { last.end().0 } else { last.start.0 }, 0));
        let (mut windows, mut columns) = (Vec::new(), Vec::new());
        for k in runs {
            let Some(this) = self.run(k).filter(|run| run.start.0 < f.end) else { break };
            let start = this.start.0;
            s.frontier = self.run(k + 1).map_or(s.next, |next| next.start.0);
            if start > 0 && f.table.has(PageBit::Used, PageIndex(start - 1)) {
                columns.push(this);
                continue;
            }
            stretch = match stretch {
                Some(before) if gaps => Some(before.hull(this)),
                other => {
                    windows.extend(other);
                    Some(this)
                }
            };
        }
        windows.extend(stretch.filter(|stretch| !stretch.is_empty()));
        (windows, columns)
    }
}

impl Wave {
    /// R7: what a stride has ahead of it at least when it has come on by a read.
    pub(in crate::wave) fn widen_stride(&mut self, sid: StreamId) {
        let Some(s) = self.streams.get_mut(sid) else { return };
        s.ahead = s.ahead.max(FIRST_RUNS);
        let f = &self.files[&s.file];
        let Some(queue) = self.queues.get(&f.device) else { return };
        // From the first of them to the second he may have waited for the one that he had been reading when they were asked for.
        let first = STRIDE_READS + 2..=STRIDE_READS + FIRST_RUNS;
        if first.contains(&s.reads) {
            s.found &= queue.device.latency().is_some_and(|latency| AT_ONCE * s.pace.gap_ns() < latency.0);
        }
        // Where strides were seen to end, one that is not much longer may end as well, though some of its reads were not told.
        if f.runs.strides().known() && s.reads < 2 * f.runs.strides().longest() {
            return;
        }
        let (Course::Stride { run, period }, device) = (s.course, &queue.device) else { return };
        let in_one = fetches_gaps(device, period.unsigned_abs().saturating_sub(run));
        let opens = in_one && device.is_far() && (s.reads > STRIDE_READS || f.alone(s.next, period));
        if opens || s.reads > STRIDE_READS + 1 && s.comes_together(device) {
            // Seven reads that all came at once: what is not known to end is opened as a window is.
            let all_found = s.found && s.reads >= STRIDE_READS + FIRST_RUNS;
            let (connections, promise) =
                if opens || all_found { (UNITS_FIRST, u64::MAX) } else { (1, PROMISE * s.reads) };
            let at_once = u64::from(device.flight_max());
            let worth = if in_one {
                connections * device.unit_pages() / period.unsigned_abs()
            } else {
                (connections * device.unit_pages() / run).min(at_once - at_once / LEFT_FREE)
            };
            s.ahead = s.ahead.max(worth.min(promise));
        }
    }

    /// R7, R8: asks for the next runs of a stride, together where the gaps are cheap.
    pub(in crate::wave) fn plan_stride(&mut self, now: Nanos, sid: StreamId, pages: Extent) {
        let Some(s) = self.streams.get(sid) else { return };
        let allowed = self.allowed(&self.files[&s.file], s);
        let Some(s) = self.streams.get_mut(sid) else { return };
        let Course::Stride { period, .. } = s.course else { return };
        let (id, f) = (s.file, &self.files[&s.file]);
        let Some(device) = self.queues.get(&f.device).map(|queue| &queue.device) else { return };
        if f.said.at_random() {
            return;
        }
        let (run, rest) = s.settle_run(f, pages, [allowed.share, allowed.left], allowed.speculation);
        let gap = Some(period.unsigned_abs().saturating_sub(run)).filter(|&gap| fetches_gaps(device, gap));
        // Three may be chance, and to a head each run apart is a trip, which it makes for its reader as soon.
        if device.is_head() && gap.is_none() && s.reads <= STRIDE_READS {
            return;
        }
        let next = NextRuns { beat: *s.beat(), run };
        let ahead = s.ahead.min(allowed.runs_max(f, s, device, run, gap)) as i64;
        let half = ahead - ahead / 2;
        let step = if s.comes_together(device) { half.min((ahead / 4).max(FIRST_RUNS as i64)) } else { half };
        let asked = next.before(s.frontier);
        let far = asked - (ahead - step);
        if far > 0 && asked > 0 {
            // Far enough. It will be time again when he has come so much nearer: the mark of before lies where more was to be out.
            if let Some(mark) = next.run(far) {
                self.mark(id, mark);
            }
            return;
        }
        let (windows, columns) = next.ask(f, s, asked.max(0)..ahead, gap.is_some());
        let why = if gap.is_some() { Why("R8 gaps are cheap") } else { Why("R7 stride") };
        for column in columns {
            self.open_column(now, id, pages, column);
        }
        let rest = rest.filter(|rest| !rest.is_empty()).map(|rest| (rest, Turn::Urgent));
        for (window, turn) in rest.into_iter().chain(windows.into_iter().map(|window| (window, Turn::Ahead)))
        {
            self.explain(now, id, pages, whole(window), Pattern::Stride, why);
            self.want(Wanted { file: id, pages: window, turn, why, stream: Some(sid) });
        }
        // The reader asks again when it has come a step.
        if let Some(mark) = next.run(step) {
            self.mark(id, mark);
        }
    }

    /// What a stride may have ahead of it.
    fn allowed(&self, f: &File, s: &Stream) -> Allowed {
        let others = if s.whole > 0 { 0 } else { self.out_of_others(s) };
        Allowed {
            share: self.share(),
            left: self.room().saturating_sub(others),
            speculation: self.speculation_of(f, s),
            most: (3 * SPECULATION_MAX).max(self.earned()),
            enough: self.enough(f),
            holds_back: self.holds_back(),
        }
    }

    /// R4 by R7: where a stride goes on right behind pages that were read, it walks the columns of a matrix: each row is a
    /// stream of its own, and is opened as one (seed 004: large reads ahead in every row, not small ones early).
    fn open_column(&mut self, now: Nanos, id: FileId, read: Extent, run: Extent) {
        let f = &self.files[&id];
        let waiting =
            f.expected.up().get(&run.start.0).copied().filter(|&sid| self.streams.get(sid).is_some());
        let sid = waiting.or_else(|| {
            let mut s = Stream::seed(id, run.start.0 - 1, 1, now);
            s.course = Course::Forward;
            self.adopt(now, s)
        });
        let Some(sid) = sid else { return };
        let Some(s) = self.streams.get_mut(sid) else { return };
        if s.ahead == 0 {
            s.ahead = first_window(run.count.0);
        }
        self.plan_stream(now, sid, read, Why("R4 rows of a stride"));
    }
}

/// R8: whether gaps of so many pages are fetched with the runs on either side.
fn fetches_gaps(device: &Device, gap: u64) -> bool {
    4 * PageCount(gap).bytes().0 <= 3 * device.gap_max().0
}

#[cfg(test)]
mod tests {
    use crate::units::{Bytes, Extent, FileId, Nanos};
    use crate::wave::devices::device::tests::play;
    use crate::wave::streams::stream::Stream;
    use crate::wave::stride::beat::Beat;
    use crate::wave::{Action, Config, Input, Wave};
    use alloc::vec::Vec;

    /// The second worked example at the top: runs ahead after each of `reads`, where the first four found come `apart`; and none of it where
    /// strides have ended after seven.
    #[test]
    fn who_finds_the_first_runs_there_has_more_ahead() {
        let ahead_after = |ended: usize, latency_ms: u64, apart: Nanos, reads: u64| {
            let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
            wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
            let pages = Extent::new(0, 16);
            let mut before = Stream::stride(id, pages, Beat::whole(pages, 256).unwrap(), Nanos(0)).unwrap();
            before.reads = 7;
            (0..ended).for_each(|_| wave.files.get_mut(&id).unwrap().runs.stride_ended(1, &before));
            let (mut now, mut runs) = (Nanos(0), Vec::new());
            for k in 0..reads {
                let pages = Extent::new(4096 + 256 * k, 16);
                wave.handle(now, Input::Read { file: id, pages, actor: 0 });
                while let Some(Action::Fetch { .. }) = wave.poll(now) {}
                wave.check();
                let took = if k < 3 { Nanos::from_ms(latency_ms) } else { apart };
                now.0 += took.0;
                if k < 3 {
                    wave.handle(now, Input::Waited { file: id, pages, actor: 0, took, ended: now });
                }
                let sid = wave.files[&id].expected.strides().values().next().copied();
                runs.push(sid.and_then(|sid| wave.streams.get(sid)).map_or(0, |s| s.ahead));
            }
            runs
        };
        let ahead = |latency_ms, apart, reads| ahead_after(0, latency_ms, apart, reads);
        let s3 = ahead(30, Nanos(10_000), 20);
        assert_eq!(ahead_after(4, 30, Nanos(10_000), 20)[2..15], [6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 60, 60]);
        assert_eq!(s3[2..8], [6, 6, 20, 24, 60, 60]);
        assert_eq!(ahead(8, Nanos::from_ms(8), 7)[2..7], [6, 6, 6, 6, 6]);
    }

    /// One page in 1,024: how far ahead of the reader the farthest run is that was asked for, after so many reads, by a head and where 16 requests
    /// are served at once.
    #[test]
    fn a_head_goes_apart_for_a_quarter_of_what_was_read() {
        let farthest = |slots: usize, reads: u64| {
            let mut wave = Wave::new(Config::default());
            wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 32) });
            wave.queue(0).device = play(slots, 8_000, 500);
            let mut last = 0;
            for k in 0..reads {
                let now = Nanos::from_ms(100 * k);
                let pages = Extent::new(4096 + 1024 * k, 1);
                wave.handle(now, Input::Read { file: FileId(0), pages, actor: 0 });
                wave.handle(
                    now,
                    Input::Waited { file: FileId(0), pages, actor: 0, took: Nanos::from_ms(8), ended: now },
                );
                while let Some(Action::Fetch { id, pages, .. }) = wave.poll(now) {
                    last = last.max(pages.start.0);
                    wave.handle(now, Input::Skipped { fetch: id });
                }
                wave.check();
            }
            last.saturating_sub(4096 + 1024 * (reads - 1)) / 1024
        };
        assert_eq!([3, 4, 8, 9, 12].map(|reads| farthest(1, reads)), [0, 1, 2, 2, 3]);
        assert_eq!([3, 4, 8, 9, 12].map(|reads| farthest(16, reads)), [4, 6, 26, 26, 26]);
    }

    /// One page in 1,024, each of which is waited for: no more are ahead than twice what the device takes at once.
    #[test]
    fn a_device_is_asked_for_no_more_runs_than_it_can_use() {
        let mut wave = Wave::new(Config::default());
        wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 40) });
        wave.queue(0).device = play(64, 30_000, 500);
        let at_once = u64::from(wave.queue(0).device.flight_max());
        let mut farthest = 0;
        for k in 0..500 {
            let (now, took) = (Nanos::from_ms(100 * k), Nanos::from_ms(30));
            let pages = Extent::new(4096 + 1024 * k, 1);
            wave.handle(now, Input::Read { file: FileId(0), pages, actor: 0 });
            wave.handle(now, Input::Waited { file: FileId(0), pages, actor: 0, took, ended: now });
            wave.check();
            let asked = wave.take_trace().map(|e| e.decision.window.extent());
            farthest = asked.map(|run| (run.start.0 - pages.start.0) / 1024).fold(farthest, u64::max);
        }
        assert_eq!(farthest, 2 * at_once, "of runs ahead of their reader");
    }

    /// Three reads of 2 pages, 4 apart, on s3: what three connections carry in a latency; what four runs span where others read near them of
    /// late, or where answers come soon.
    #[test]
    fn who_reads_alone_in_equal_steps_far_away_has_a_window() {
        let asked = |latency_us: u64, others: &[u64]| {
            let mut wave = Wave::new(Config::default());
            wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 32) });
            wave.queue(0).device = play(64, latency_us, 500);
            for (i, &start) in others.iter().chain(&[40_000, 40_004, 40_008]).enumerate() {
                let now = Nanos(i as u64 * latency_us * 1000);
                let read = Input::Read { file: FileId(0), pages: Extent::new(start, 2), actor: 0 };
                wave.handle(now, read);
                wave.check();
            }
            let last = wave.take_trace().last().expect("a decision").decision;
            assert_eq!((last.why.0, last.window.start.0), ("R8 gaps are cheap", 40_012));
            last.window.size.0
        };
        assert_eq!(asked(30_000, &[]), 2194);
        assert_eq!(asked(30_000, &[39_000, 40_100]), 2194);
        assert_eq!(asked(30_000, &[39_990]), 14);
        assert_eq!(asked(30_000, &[40_030]), 14);
        assert_eq!(asked(10_000, &[]), 14);
    }

    /// A head of 8 ms fetches 4 pages in every 16 with their gaps, each stretch right behind the one before, up or down.
    #[test]
    fn a_head_goes_on_where_the_stretch_before_ended() {
        let up: Vec<u64> = (0..200).map(|k| 16 * k).collect();
        let down: Vec<u64> = up.iter().rev().copied().collect();
        for starts in [up, down] {
            let mut wave = Wave::new(Config::default());
            wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 30) });
            wave.queue(0).device = play(1, 8_000, 500);
            let mut stretches = Vec::new();
            for (i, &start) in starts.iter().enumerate() {
                let now = Nanos::from_ms(i as u64);
                let read = Input::Read { file: FileId(0), pages: Extent::new(4096 + start, 4), actor: 0 };
                wave.handle(now, read);
                while let Some(Action::Fetch { id, .. }) = wave.poll(now) {
                    wave.handle(now, Input::Skipped { fetch: id });
                }
                stretches.extend(wave.take_trace().filter(|e| e.decision.why.0 == "R8 gaps are cheap"));
                wave.check();
            }
            assert!(stretches.len() > 3, "{stretches:?}");
            for pair in stretches.windows(2) {
                let (one, next) = (pair[0].decision.window.extent(), pair[1].decision.window.extent());
                assert!(one.end() == next.start || next.end() == one.start, "{one} {next}");
            }
        }
    }
}
