//! R9 by R7: how long the runs of a stride are, where the read that the stride is known by is only the first of each run.
//!
//! A tensor in every fourth place is read so, or a record that the kernel reads in pieces. From the fourth run on, whole runs are fetched. Their length is
//! what two of the three runs before have about alike. If no two are alike, but the reader read on behind every other run at least (three without are
//! let pass), it is what the runs that ended in this file promise. A page of such a run belongs to the stride: a read of it begins no stream. Where half
//! of the memory has no room for two such runs beside what others have out, only the first read of each is fetched.
//!
//! ```text
//! 256 pages in every 1024, page by page                read 0..256   1024..1280   2048..2304   3072
//! the fourth; 255 were read on behind 1024 and 2048    asked for  [3073,3329), then [4096,4353) [5120,5377)
//! ```
//!
//! The scenario is in `tests/wave/r09-lengths.txt`.

use crate::table::PageBit;
use crate::units::{Extent, FileId, PageCount, PageIndex};
use crate::wave::streams::locate::PLAY;
use crate::wave::streams::stream::{Course, Stream};
use crate::wave::stride::strides::STRIDE_READS;
use crate::wave::windows::lengths::ALIKE;
use crate::wave::{File, Wave};

impl Stream {
    /// Pages of a run of this stride from now on, and what is to be fetched of the latest, of which `pages` are read, where its reader is found
    /// only now to read on. It may have so many pages of memory, where others have left so much room, and so much of speculation.
    pub(in crate::wave) fn settle_run(
        &mut self,
        f: &File,
        pages: Extent,
        [memory, room]: [u64; 2],
        speculation: u64,
    ) -> (u64, Option<Extent>) {
        let Course::Stride { run: first, .. } = self.course else { return (self.request, None) };
        let run = whole_run(f, self, [memory, room], speculation);
        let before = core::mem::replace(&mut self.whole, if run > first { run } else { 0 });
        if before > 0 || run <= first {
            return (run, None);
        }
        // Until now only their first reads were asked for.
        self.frontier = self.next;
        let rest = self.latest_whole().map(|whole| {
            Extent::between(pages.end().clamp(whole.start, whole.end()), whole.end().min(PageIndex(f.end)))
        });
        (run, rest)
    }
}

impl Wave {
    /// R9: `actor` reads `pages`, told to the byte: perhaps he goes on behind a run of the stride that he walks.
    pub(in crate::wave) fn goes_on_behind_run(&mut self, id: FileId, actor: u32, pages: Extent) {
        let Some(read) = self.lies(pages) else { return };
        let walked = self.latest.get(&actor).and_then(|latest| latest.stride);
        let stride = walked.and_then(|sid| self.streams.get_mut(sid)).filter(|s| s.file == id);
        if let Some(beat) = stride.and_then(|s| s.beat.as_mut()) {
            beat.goes_on(read);
        }
    }
}

/// Pages of a stride's next runs with what its reader will read on behind them (R9), the run alone where he does not.
fn whole_run(f: &File, s: &Stream, [memory, room]: [u64; 2], speculation: u64) -> u64 {
    let Course::Stride { period, run } = s.course else { return s.request };
    // Three may be the turning points of one who goes to and fro.
    let seen = match s.reads {
        reads if reads > STRIDE_READS => read_on(f, s),
        _ if s.foreseen => f.reads_on_as_usual(run, PageCount(memory)),
        _ => 0,
    };
    // Unless what he reads on is known to the byte.
    let begins = !s.beat().is_read_on() && s.followed > 0 && 2 * u64::from(s.followed) + 4 >= s.reads;
    let goes_on = match seen.min(speculation.saturating_sub(run)) {
        0 if begins => f.runs.telling().promise(run, PageCount(memory), PageCount(0)).map_or(0, |w| w.0),
        seen => seen,
    };
    let whole = match run + goes_on {
        // About as long as they were taken for, they are not taken for shorter: their last pages may have been read quietly.
        whole if goes_on > 0 && about(whole, s.whole) => s.whole,
        whole => whole,
    };
    // This one and the next are out at once, or neither is fetched whole.
    let whole = whole.min(period.unsigned_abs());
    if 2 * whole <= room { whole } else { run }
}

/// Pages that were read on behind the runs of a stride before its latest: what two of the last three have about alike, for some may
/// have been read quietly and not be told of yet.
fn read_on(f: &File, s: &Stream) -> u64 {
    let Course::Stride { period, run } = s.course else { return 0 };
    let play = if s.beat().is_uneven() { PLAY } else { 0 };
    let behind = |k: i64| {
        let run = s.beat().read(-k, run)?;
        let gap = Extent::new(run.end().0, period.unsigned_abs().saturating_sub(run.count.0));
        // Looked at first, for the next page that was read may lie far behind it.
        let mut runs = f.table.has(PageBit::Used, gap.start).then(|| f.table.runs(PageBit::Used, gap))?;
        let mut end = runs.next()?.end().0;
        for next in runs {
            // Records that are shorter than they lie apart leave holes.
            if next.start.0 - end > PLAY {
                break;
            }
            end = next.end().0;
        }
        Some(end - gap.start.0)
    };
    let mut pages = [1, 2, 3].map(|k| behind(k).unwrap_or(0));
    pages.sort_unstable();
    // Unaligned, the next may have a page more.
    let alike = |least: u64, most: u64| {
        (least > 0 && about(least, most.max(least + play) - play)).then_some(most + 1)
    };
    let seen = alike(pages[1], pages[2]).or_else(|| alike(pages[0], pages[1])).unwrap_or(0);
    // Short of a page it may end in the page in which the run does; and of the latest not all may be told.
    let before = s.whole.saturating_sub(run);
    let as_before = play > 0 && pages[2] > 0 && (seen == 0 || pages[2] + 2 * play >= before);
    if as_before { seen.max(before) } else { seen }
}

/// Whether `more` pages are `pages`, and one in [`ALIKE`] of them more at most.
fn about(pages: u64, more: u64) -> bool {
    (pages..=pages + pages / ALIKE).contains(&more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, Nanos};
    use crate::wave::stride::beat::Beat;
    use crate::wave::{Config, Input, Wave};

    /// The runs at 2048, 1024 and 0 were read on by so many pages: what the next is taken to be read on, give or take its last page.
    #[test]
    fn two_of_the_last_three_are_believed() {
        let read_on = |pages: [u64; 3]| {
            let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
            wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
            for (start, pages) in [2048, 1024, 0].into_iter().zip(pages) {
                let f = wave.files.get_mut(&id).unwrap();
                f.table.set(PageBit::Used, Extent::new(start, 1 + pages));
            }
            let pages = Extent::new(3072, 1);
            let stride = Stream::stride(id, pages, Beat::whole(pages, 1024).unwrap(), Nanos(0)).unwrap();
            read_on(&wave.files[&id], &stride)
        };
        assert_eq!([[255, 255, 0], [0, 255, 255], [255, 0, 255]].map(read_on), [256; 3]);
        assert_eq!(read_on([255, 270, 0]), 271, "about alike");
        assert_eq!([[255, 0, 0], [255, 128, 0], [0, 0, 0]].map(read_on), [0; 3]);
    }
}
