//! R5, R7, R9: when a stream has ended, and what it leaves.
//!
//! ```text
//! run of 256 pages, 400 fetched ahead; its reader    jumps over its mark into those 400     ended: 256 is a witness (R9)
//!                                                    begins elsewhere, and is not back for long   ended by the sweep (shares.rs)
//! stride; its reader is elsewhere twice in a row     3 reads so far     ended
//!                                                    8 reads and more   rests: it goes on where it was if he comes back
//! ```
//!
//! What an ended stream has left unread is a debt of the run (R13). The test below owns the numbers; `tests/wave/r07-stride.txt` tells of
//! strides by turns.

use super::Wave;
use super::locate::Place;
use super::stream::{Course, NEVER, Stream, StreamId};
use crate::table::PageBit;
use crate::units::{Extent, FileId, PageCount, PageIndex};

/// A stride of so many reads is taken up again where its reader comes back to it.
const PROVED_READS: u64 = 8;

impl Wave {
    /// A run whose reader jumped, over a mark and more, into what was fetched for it has ended, unless he may only look there; and,
    /// where all is told, one that began at a run of a stride when its reader comes to the next.
    pub(super) fn leave_run(&mut self, id: FileId, actor: u32, place: Place, pages: Extent) {
        let Some(latest) = self.latest.get(&actor).filter(|l| l.file == id) else { return };
        let Some((sid, s)) = latest.stream.and_then(|sid| Some((sid, self.streams.get(sid)?))) else {
            return;
        };
        let began_at = |stride| {
            self.streams
                .get(stride)
                .and_then(Stream::latest_run)
                .is_some_and(|run| (run.start.0..=run.end().0).contains(&s.first))
        };
        let left = match place {
            Place::Stray | Place::History(_) => {
                latest.look.is_none() && (s.next..s.frontier).contains(&pages.start.0)
            }
            Place::Continues(stride) => self.files[&id].told_all && began_at(stride),
            Place::Repeats(_) => false,
        };
        if left && s.course == Course::Forward {
            self.end(sid);
        }
    }

    /// A stride whose reader went elsewhere twice in a row has ended, or rests. Where he goes on with a stream of three reads and more he
    /// walks several by turns, which is no sign.
    pub(super) fn leave_stride(&mut self, id: FileId, actor: u32, place: Place, pages: Extent) {
        let Some(latest) = self.latest.get_mut(&actor).filter(|l| l.file == id) else { return };
        let Some(sid) = latest.stride else { return };
        let known = |other| self.streams.get(other).is_some_and(|s| s.reads > 2);
        // What goes on behind the run that was read last is not elsewhere.
        let follows = || {
            let s = self.streams.get(sid)?;
            let (Course::Stride { period, .. }, run) = (s.course, s.latest_run()?) else { return None };
            let before = pages.start.back(PageCount(1));
            let gap = Extent::new(run.start.0, period.unsigned_abs());
            Some(gap.contains(before) && self.files[&id].table.has(PageBit::Used, before))
        };
        match place {
            Place::Continues(other) if other == sid => {
                latest.off_stride = 0;
                return;
            }
            Place::Continues(other) if known(other) => return,
            Place::Repeats(_) => return,
            _ if follows() == Some(true) => return,
            _ => {}
        }
        latest.off_stride += 1;
        if latest.off_stride >= 2 {
            (latest.stride, latest.off_stride) = (None, 0);
            let proved = self.streams.get(sid).is_some_and(|s| s.reads >= PROVED_READS);
            if proved { self.rest(sid) } else { self.end(sid) }
        }
    }

    /// Ends a stream: its length is a witness, what was queued for it is not wanted any more.
    pub(super) fn end(&mut self, sid: StreamId) {
        let Some(s) = self.dismiss(sid) else { return };
        let Some(f) = self.files.get(&s.file) else { return };
        let left = match s.course {
            Course::Backward => Extent::between(PageIndex(s.frontier), PageIndex(s.next)),
            _ => Extent::between(PageIndex(s.next), PageIndex(s.frontier)),
        };
        let left = f.table.count(PageBit::Ahead, left).0;
        self.dead += left;
        self.debt = (self.debt + left).min(self.speculation(f));
        let Some(f) = self.files.get_mut(&s.file) else { return };
        // A run downwards that came to what was read is no witness: it may have been a look ahead, which another run came up to.
        let met =
            s.course == Course::Backward && s.next > 0 && f.table.has(PageBit::Used, PageIndex(s.next - 1));
        if met {
            return;
        }
        if let Course::Stride { .. } = s.course {
            f.stride_lengths.push(s.reads);
        } else {
            let pages = s.length();
            f.lengths.push(pages);
            self.lengths.push(pages);
        }
    }

    /// R7: lets a stride rest whose reader went elsewhere: what was not sent for it is not wanted any more, and it has no share.
    /// It goes on where it was if he comes back before it is swept away.
    pub(super) fn rest(&mut self, sid: StreamId) {
        let Some(mut s) = self.dismiss(sid) else { return };
        let (id, next, last) = (s.file, s.next, s.last);
        s.frontier = next;
        (s.epoch, s.epoch_before) = (NEVER, false);
        let sid = self.streams.add(s);
        if let Some(f) = self.files.get_mut(&id) {
            f.strides.insert(next, sid);
        }
        self.idle.push_back((last, sid));
    }

    /// R5: whether the next read of a stream has been made, and not by its own reader, who would have moved it on.
    pub(super) fn overtaken(&self, s: &Stream) -> bool {
        let next = match s.course {
            Course::Forward => Some(s.next),
            Course::Backward => s.next.checked_sub(1),
            Course::Seed | Course::Stride { .. } => None,
        };
        let used =
            |page: u64| self.files.get(&s.file).is_some_and(|f| f.table.has(PageBit::Used, PageIndex(page)));
        next.is_some_and(used)
    }

    /// Takes a stream away that says nothing of how long runs are: it was another's, or it ends otherwise.
    pub(super) fn dismiss(&mut self, sid: StreamId) -> Option<Stream> {
        let s = self.streams.remove(sid)?;
        let f = self.files.get_mut(&s.file)?;
        f.unlink(sid, s.next);
        f.unlink(sid, s.first);
        if s.course != Course::Seed {
            self.not_active((s.epoch, s.epoch_before));
        }
        Some(s)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::tests::fetched_ahead;
    use super::super::{Config, Input};
    use super::*;
    use crate::units::{Bytes, Nanos};

    fn opened() -> Wave {
        let mut wave = Wave::new(Config::default());
        wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(16 << 30) });
        wave
    }

    fn read(wave: &mut Wave, page: u64) {
        let pages = Extent::new(page, 1);
        wave.handle(Nanos(1), Input::Read { file: FileId(0), pages, actor: 0 });
        wave.check();
    }

    #[test]
    fn a_jump_over_the_mark_ends_a_run_and_what_it_leaves_is_a_debt() {
        let (mut wave, sid) = fetched_ahead(Extent::new(256, 400), 300);
        wave.remember(0, FileId(0), Extent::new(255, 1), Some(sid));
        read(&mut wave, 600);
        assert!(wave.streams.get(sid).is_none());
        assert_eq!(wave.debt, 399, "one of the 400 is read now");
    }

    #[test]
    fn a_young_stride_ends_and_a_proved_one_rests() {
        for (reads, alive) in [(3, 0), (PROVED_READS, 1)] {
            let mut wave = opened();
            (1..=reads).for_each(|k| read(&mut wave, k * 1000));
            assert_eq!(wave.files[&FileId(0)].strides.len(), 1);
            [700_321, 1_500_777].into_iter().for_each(|page| read(&mut wave, page));
            assert_eq!(wave.files[&FileId(0)].strides.len(), alive, "after {reads} reads");
        }
    }
}
