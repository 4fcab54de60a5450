//! R7 by R9: where strides were alike, the next is asked for with its first read.
//!
//! A program cuts one rectangle after another out of a matrix: tiles, windows of an image, a few channels of a recording. The rows of each are a
//! stride, which is seen with its third row only; that costs three waits where one would do. So once four strides of a file have ended, and the
//! runs of the last three lay equally far apart, a first read somewhere else is taken to begin another such stride:
//!
//! ```text
//! rows of 2 pages in every 512     100 612 1124 1636    9000 .. 10536    7000 .. 8536    20000 .. 21536    300
//!                                  four that ended, of 4 reads each                                        foreseen: 812, 1324, 1836
//! ```
//!
//! How many runs are asked for, the strides that ended say (R9). Those that were foreseen and did not come count too, as strides of one read: if one in
//! six was such, no stride is foreseen until enough have come again. Nothing is foreseen for a head: it goes to each run anyway, and goes there as
//! soon when the reader asks.

use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageCount};
use crate::wave::lately::Lately;
use crate::wave::streams::locate::PLAY;
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::stride::beat::Beat;
use crate::wave::windows::lengths::USED_PERCENT;
use crate::wave::{File, Wave};

/// Strides in a row that must have had one period.
const ALIKE_MIN: u8 = 3;
/// Runs of one that tell how long runs are.
pub(in crate::wave) const TELLING: usize = 2;

/// How far apart the runs of a file's strides lie, and how long they were.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Usual {
    period: i64,
    alike: u8,
    /// That of the latest of them.
    beat: Beat,
    /// Pages that were fetched for each run of the latest of them; 0 where that was the first read of each alone.
    whole: u64,
    /// Whether its reader read on behind them.
    followed: bool,
}

impl Usual {
    /// A stride of that period ended.
    pub(in crate::wave) fn ended(&mut self, period: i64, s: &Stream) {
        self.beat = *s.beat();
        // Periods that differ by so little are one.
        let alike = self.period.abs_diff(period) <= PLAY;
        (self.whole, self.followed) = (s.whole, s.followed > 0);
        (self.period, self.alike) =
            if alike { (self.period, self.alike.saturating_add(1)) } else { (period, 1) };
    }

    /// The beat that strides have had lately, if they had one.
    fn beat(self) -> Option<Beat> {
        (self.alike >= ALIKE_MIN).then_some(self.beat)
    }
}

impl File {
    /// Pages that are read on behind runs of `run` pages of a stride, as far as others tell: what was fetched for the runs of the stride before, else
    /// what runs here go on (R9), `most` at most.
    pub(in crate::wave) fn reads_on_as_usual(&self, run: u64, most: PageCount) -> u64 {
        let usual = self.runs.usual();
        if !usual.followed {
            return 0;
        }
        if usual.whole > run {
            return usual.whole - run;
        }
        self.runs.telling().promise(run, most, PageCount(0)).map_or(0, |pages| pages.0)
    }

    /// Pages of the last runs of a stride that was foreseen, but for its latest, which may have been left: of others the first two were seeds, and
    /// tell how long runs are.
    pub(in crate::wave) fn whole_runs(&self, s: &Stream) -> Lately<u64, TELLING> {
        let mut told = Lately::default();
        let Course::Stride { period, run } = s.course else { return told };
        if !s.foreseen {
            return told;
        }
        let most = period.unsigned_abs();
        for k in 1..(s.reads as i64).min(1 + TELLING as i64) {
            let start = s.beat().read(-k, run).map(|run| run.start.0);
            let run = start.and_then(|start| self.table.runs(PageBit::Used, Extent::new(start, most)).next());
            if let Some(run) = run.filter(|run| Some(run.start.0) == start) {
                told.push(run.count.0);
            }
        }
        told
    }
}

impl Wave {
    /// The stride that a first read of `pages` begins, if it is as those before it, and what it has ahead.
    pub(in crate::wave) fn foresee(
        &mut self,
        now: Nanos,
        id: FileId,
        pages: Extent,
        actor: u32,
    ) -> Option<StreamId> {
        // The one before did not come.
        let before = self.latest.get(&actor).and_then(|latest| latest.stride);
        if let Some(before) = before
            && self.streams.get(before).is_some_and(|s| s.foreseen && s.reads == 1)
        {
            self.end(before);
        }
        let f = self.files.get(&id)?;
        let beat = f.runs.usual().beat()?;
        let ahead = f.runs.strides().window(1, PageCount(u64::MAX), USED_PERCENT)?.0;
        let there = f.there(pages);
        // The first reads alone would be had, and what he reads on behind each waited for.
        let in_part = f.runs.usual().followed && f.reads_on_as_usual(pages.count.0, PageCount(u64::MAX)) == 0;
        if there || in_part || ahead == 0 || beat.pages().unsigned_abs() <= pages.count.0 || !self.overlaps(f)
        {
            return None;
        }
        let mut s = Stream::stride(id, pages, beat.from(pages, self.lies(pages))?, now)?;
        (s.foreseen, s.ahead) = (true, ahead);
        self.adopt(now, s)
    }
}

#[cfg(test)]
mod tests {
    use crate::units::{Bytes, Extent, FileId, Nanos};
    use crate::wave::devices::device::tests::play;
    use crate::wave::{Action, Config, Input, Wave};
    use alloc::vec::Vec;

    /// Where strides were asked for with the read of each of these pages, which waited; on a device of 8 ms that serves so many requests at
    /// once.
    fn asked(pages: &[u64], slots: usize) -> Vec<Vec<u64>> {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        wave.queue(0).device = play(slots, 8_000, 64);
        let mut now = Nanos(0);
        let mut read = |&page: &u64| {
            let pages = Extent::new(page, 2);
            wave.handle(now, Input::Read { file: id, pages, actor: 0 });
            let mut fetches = Vec::new();
            while let Some(Action::Fetch { id, .. }) = wave.poll(now) {
                fetches.push(id);
            }
            let asked = wave.take_trace().filter(|e| e.read == pages && e.decision.why.0.starts_with("R7"));
            let asked = asked.map(|e| e.decision.window.extent().start.0).collect();
            now.0 += 1_000_000;
            fetches.into_iter().for_each(|fetch| wave.handle(now, Input::Arrived { fetch }));
            wave.handle(
                now,
                Input::Waited { file: id, pages, actor: 0, took: Nanos::from_ms(1), ended: now },
            );
            wave.check();
            asked
        };
        pages.iter().map(&mut read).collect()
    }

    /// Four reads of each, 512 apart.
    fn rows(starts: &[u64]) -> Vec<u64> {
        starts.iter().flat_map(|&start| (0..4).map(move |row| start + 512 * row)).collect()
    }

    /// The picture at the top; and what a head is not asked for.
    #[test]
    fn who_has_read_four_begins_the_fifth() {
        // The last is over when its reader is elsewhere the second time.
        let reads = |starts: &[u64]| [rows(starts), Vec::from([150_000, 300])].concat();
        let last = |starts: &[u64], slots| asked(&reads(starts), slots).pop().unwrap();
        assert_eq!(last(&[100, 9000, 7000, 20_000], 16), [812, 1324, 1836]);
        assert_eq!(last(&[100, 9000, 7000, 20_000], 1), [], "a head");
        assert_eq!(last(&[100, 9000, 7000], 16), [], "three that ended");
    }

    /// Single reads in between: each of the first is taken for a stride, and is counted as one of one read.
    #[test]
    fn what_did_not_come_is_not_foreseen_for_long() {
        let single = (0..24).map(|n| 50_000 + n * n * 677).collect::<Vec<u64>>();
        let reads = [rows(&[100, 9000, 7000, 20_000, 30_000]), single].concat();
        let foreseen: Vec<bool> = asked(&reads, 16)[20..].iter().map(|asked| !asked.is_empty()).collect();
        assert!(foreseen[0] && foreseen.iter().filter(|&&foreseen| foreseen).count() <= 2, "{foreseen:?}");
    }
}
