//! R7: strides whose reader steps aside, and goes on as before.
//!
//! Every so many records there is a header, or blocks are padded to the end of a stripe: then the next run lies a little beside where
//! it was expected, and so do all behind it. Three reads would show the stride anew, each a latency of its own. It goes on at
//! once instead: the old one ends, the new one has as many runs ahead as that one had, unless strides were seen to end sooner (R9).
//!
//! ```text
//! 512 streams begin 6,149 pages apart, each seventh 30 less; s3
//!
//! read 12298 18447 24596 30745 36894      20 runs are ahead of him, from 43043 on
//! read 43013                               30 beside it, at most an eighth of 6149: 20 runs are asked for with it, from 49162 on
//! read 49162                               is there
//! ```
//!
//! What was asked for where the stride went is in vain, once: small runs, which a device that works at several at once brings beside others.
//! A head would go for each; there three reads must show the stride again.

use crate::units::{Extent, FileId, Nanos};
use crate::wave::Wave;
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::stride::strides::STRIDE_READS;

/// Part of its period by which a stride may step aside: reads at random come so near once in four times, but three of them lie equally far
/// apart first.
const ASIDE: u64 = 8;

impl Wave {
    /// Where `pages` lie beside one of the runs asked for of the stride that `actor` has walked until now, or beside the next, and are as many:
    /// that stride ends, and one goes on from them, unless it would come out of the file. Some of its runs may have been read quietly.
    pub(in crate::wave) fn step_aside(
        &mut self,
        now: Nanos,
        id: FileId,
        pages: Extent,
        actor: u32,
    ) -> Option<StreamId> {
        let sid = self.latest.get(&actor).filter(|latest| latest.file == id)?.stride?;
        let old = self.streams.get(sid)?;
        let Course::Stride { period, run } = old.course else { return None };
        if !old.strides_to(pages.start.0, period.unsigned_abs() / ASIDE) {
            return None;
        }
        let (beat, quiet) = (*old.beat(), old.beat().nearest(pages.start.0).unsigned_abs() - 1);
        let together = old.comes_together(&self.queues.get(&self.files.get(&id)?.device)?.device);
        if !together || old.reads + quiet <= STRIDE_READS || run != pages.count.0 {
            return None;
        }
        let mut s = Stream::stride(id, pages, beat.from(pages, self.lies(pages))?, now)?;
        (s.ahead, s.found) = (old.ahead, old.found);
        s.pace.comes_every(old.pace.interval_ns());
        self.pass_runs(now, id, (beat, run), quiet);
        self.end(sid);
        self.adopt(now, s)
    }
}

#[cfg(test)]
mod tests {
    use crate::table::PageBit;
    use crate::units::{Bytes, Extent, FileId, Nanos, PageIndex};
    use crate::wave::devices::device::tests::play;
    use crate::wave::{Action, Config, Input, Wave};
    use alloc::vec::Vec;

    /// After these reads of two pages, on a device of 30 ms with so many slots; and what was asked for because of the last.
    fn told(slots: usize, reads: &[u64]) -> (Wave, Vec<u64>) {
        let (mut wave, file) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file, device: 0, size: Bytes(1 << 40) });
        wave.queue(0).device = play(slots, 30_000, 500);
        for (i, &start) in (0..).zip(reads) {
            let (now, pages) = (Nanos::from_ms(100 * i), Extent::new(start, 2));
            wave.take_trace().for_each(drop);
            wave.handle(now, Input::Read { file, pages, actor: 0 });
            while let Some(Action::Fetch { id, .. }) = wave.poll(now) {
                wave.handle(now, Input::Skipped { fetch: id });
            }
            wave.check();
        }
        let asked = wave.take_trace().map(|e| e.decision.window.start.0).collect();
        (wave, asked)
    }

    fn asked(slots: usize, reads: &[u64]) -> Vec<u64> {
        told(slots, reads).1
    }

    const WALKED: [u64; 5] = [12_298, 18_447, 24_596, 30_745, 36_894];

    /// The worked example: and what lies farther aside, is no run, or goes to a head, begins anew.
    #[test]
    fn who_steps_aside_goes_on() {
        let at = |slots: usize, page: u64| asked(slots, &[&WALKED[..], &[page]].concat());
        assert_eq!(at(64, 43_013)[..2], [43_013 + 6_149, 43_013 + 2 * 6_149]);
        assert_eq!(at(64, 43_013).len(), 20);
        assert_eq!(at(64, 43_043 + 768)[0], 43_043 + 768 + 6_149, "an eighth of 6,149");
        assert_eq!(at(64, 43_043 + 769), []);
        assert_eq!(at(1, 43_013), []);
        assert_eq!(asked(64, &[12_298, 18_447, 24_596, 30_715]), [], "three may be chance");
    }

    /// Three runs were read quietly before he stepped aside: they are his as well, and may be rows of a matrix.
    #[test]
    fn what_was_passed_quietly_was_read() {
        let (wave, _) = told(64, &[&WALKED[..], &[43_043 + 3 * 6_149 - 30]].concat());
        let f = &wave.files[&FileId(0)];
        let used =
            |page: u64| f.table.has(PageBit::Used, PageIndex(page)) && f.expected.down().contains_key(&page);
        assert_eq!([0, 1, 2, 3].map(|run| used(43_043 + run * 6_149)), [true, true, true, false]);
    }

    /// He reads on quietly, and steps aside again at the seventh.
    #[test]
    fn who_reads_on_quietly_steps_aside_again() {
        let again = 43_013 + 7 * 6_149 - 30;
        assert_eq!(asked(64, &[&WALKED[..], &[43_013, again]].concat())[0], again + 6_149);
        assert_eq!(asked(64, &[&WALKED[..], &[43_013, 43_013 + 2 * 6_149 - 30]].concat()), [], "too soon");
    }

    /// Downwards it is the same.
    #[test]
    fn downwards_too() {
        let down: Vec<u64> = WALKED.iter().rev().copied().chain([6_149 + 30]).collect();
        assert_eq!(asked(64, &down), [30]);
        let (wave, asked) = told(64, &[&down[..5], &[6_149 - 30, 20]].concat());
        assert_eq!(
            (asked.len(), wave.files[&FileId(0)].expected.down().contains_key(&20)),
            (0, true),
            "the last is a seed"
        );
        // One that came to page 0 goes on nowhere, and what is read then lies beside nothing.
        let (wave, _) = told(64, &[&down[..5], &[6_149, 0, 20]].concat());
        assert!(wave.files[&FileId(0)].expected.down().contains_key(&20));
    }
}
