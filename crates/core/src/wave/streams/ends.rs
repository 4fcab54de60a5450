//! R5, R7, R9: when a stream has ended, and what it leaves.
//!
//! ```text
//! run of 256 pages, 400 fetched ahead; its reader    jumps over its mark into those 400     ended: 256 is a witness (R9)
//!                                                    begins elsewhere, and is not back for long   ended by the sweep (sweep.rs)
//! runs of 8 pages here and there; two were left      the next is asked for no farther (R9)
//!                                three were left    each counts as ended when its reader leaves the next   (R9),
//!                                                   and what was not sent for it is not wanted from when he leaves it
//!                                one in four was     they still do
//!                                taken up again
//! run left at page 256; its reader comes back        to 256, and takes it up
//!                                                    to 400, or to 200              it is another: none comes back here (R9)
//! by turns: two of five were taken up again          none does before the sweep finds it
//! stride; its reader is elsewhere twice in a row     it rests: it goes on where it was if he comes back
//!                        where he went by it         ended, if it had no more than 7 reads: they were the first of streams
//! ```
//!
//! A stride that rests has no share, and what was not sent for it is not wanted any more. What was fetched for it stays: its reader may come back, or
//! may have read it without a word while it was heard elsewhere.
//!
//! What an ended stream has left unread is a debt of the run (R13). The test below owns the numbers; `tests/wave/r07-stride.txt` tells of
//! strides by turns.

use crate::table::PageBit;
use crate::units::{Extent, FileId, PageCount, PageIndex};
use crate::wave::memory::epochs::Counted;
use crate::wave::streams::expected::Displaced;
use crate::wave::streams::locate::{HISTORY_MAX, Place};
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::windows::runs::{Direction, Noted};
use crate::wave::{File, Wave};

/// A stride of so many reads is one, though its reader goes on where he went by it.
const PROVED_READS: u64 = 8;
impl File {
    /// Whether one reads it, or none.
    pub(in crate::wave) fn has_one_reader(&self) -> bool {
        self.readers <= 1
    }
}

impl Wave {
    /// A run whose reader jumped, over a mark and more, into what was fetched for it has ended, unless he may only look there; and,
    /// where all is told, one that began at a run of a stride when its reader comes to the next.
    pub(in crate::wave) fn leave_run(&mut self, id: FileId, actor: u32, place: Place, pages: Extent) {
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
            Place::Continues(stride) => self.files[&id].told.all() && began_at(stride),
            Place::Repeats(_) => false,
        };
        if left && s.course == Course::Forward {
            self.end(sid);
        }
    }

    /// R9: where a read belongs that was found at `place`, in a file whose one reader leaves runs and does not come back to them. If it comes, from elsewhere,
    /// to a run that was left, but not to the page at which it was left, another run begins: behind pages that were not read, which ends the one that
    /// was left, or within that one, which then begins there.
    pub(in crate::wave) fn another_run(
        &mut self,
        id: FileId,
        was_in: Option<StreamId>,
        place: Place,
        pages: Extent,
    ) -> Place {
        // Of several readers one skips what another reads.
        let alone = |f: &&File| f.goes_from_run_to_run() && f.has_one_reader();
        let Some(f) = self.files.get(&id).filter(alone) else { return place };
        let q = pages.start.0;
        let began = f.told.began_before(pages.start).0;
        match place {
            Place::History(history) => Place::History(history.min(q - began)),
            Place::Continues(sid) | Place::Repeats(sid) if was_in != Some(sid) => {
                let Some(s) = self.streams.get_mut(sid).filter(|s| s.course == Course::Forward) else {
                    return place;
                };
                let from = f.read_from(q, HISTORY_MAX);
                // Two reads may have met by chance.
                if from > s.next && s.reads > 2 {
                    self.end(sid);
                    return if from < q { Place::History(q - from) } else { self.place(id, pages) };
                }
                s.begins_anew_at(q);
                place
            }
            _ => place,
        }
    }

    /// R9: notes that a reader goes away from his run, or comes back to one: he reads on behind what was read of it.
    pub(in crate::wave) fn leave_behind(&mut self, id: FileId, actor: u32, place: Place, pages: Extent) {
        let Some(latest) = self.latest.get_mut(&actor).filter(|l| l.file == id && l.look.is_none()) else {
            return;
        };
        if latest.stays(place) {
            return;
        }
        let came_at = core::mem::replace(&mut latest.came_at, pages.start);
        let was_in = latest.stream;
        let Some(f) = self.files.get_mut(&id) else { return };
        if let Some(sid) = was_in
            && let Some((before, came_at)) = f.runs.is_left(sid, came_at)
            && let Some(s) = self.streams.get_mut(before)
        {
            f.runs.was_left(s, came_at);
        }
        let read = |page| f.table.has(PageBit::Used, PageIndex(page));
        if let Place::Continues(sid) = place
            && !read(pages.end().0 - 1)
            && pages.start.0.checked_sub(1).is_none_or(read)
            && let Some(s) = self.streams.get_mut(sid).filter(|s| s.left)
        {
            s.left = false;
            f.runs.taken_up();
        }
        if let Some(sid) = was_in
            && f.goes_from_run_to_run()
            && f.has_one_reader()
        {
            self.let_go(sid);
        }
    }

    /// R9: what was not sent for a run whose reader left it, and will not be back, is not wanted any more. O(parts of its window).
    fn let_go(&mut self, sid: StreamId) {
        let Some(s) = self.streams.get_mut(sid).filter(|s| s.course == Course::Forward) else { return };
        let Some(f) = self.files.get(&s.file) else { return };
        if let Some(queue) = self.queues.get_mut(&f.device) {
            queue.let_go(sid, s.file, Extent::between(PageIndex(s.next), PageIndex(s.frontier)));
        }
        s.frontier = fetched_up_to(f, s);
    }

    /// R9: a run of so many pages ended. It says how far others go, there and elsewhere.
    pub(in crate::wave) fn witness(&mut self, id: FileId, direction: Direction, pages: u64, noted: Noted) {
        self.ended.push(direction, pages);
        if let Some(f) = self.files.get_mut(&id) {
            f.runs.ended(direction, pages, noted);
        }
    }

    /// R9: a run whose reader is done with it, or will be before he comes to another.
    pub(in crate::wave) fn leave(&mut self, sid: StreamId) {
        let Some(s) = self.streams.get_mut(sid) else { return };
        let Some(f) = self.files.get_mut(&s.file) else { return };
        f.runs.was_left(s, PageIndex(s.first));
    }

    /// A stride whose reader went elsewhere twice in a row has ended, or rests. Where he goes on with a stream of three reads and more he
    /// walks several by turns, which is no sign.
    pub(in crate::wave) fn leave_stride(&mut self, id: FileId, actor: u32, place: Place, pages: Extent) {
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
            let none =
                self.streams.get(sid).is_some_and(|s| s.reads < PROVED_READS && s.went_by(pages.start));
            if none { self.end(sid) } else { self.rest(sid) }
        }
    }

    /// Ends a stream: its length is a witness, what was queued for it is not wanted any more.
    pub(in crate::wave) fn end(&mut self, sid: StreamId) {
        let Some(s) = self.dismiss(sid) else { return };
        let Some(f) = self.files.get(&s.file) else { return };
        let left = match s.course {
            Course::Backward => Extent::between(PageIndex(s.frontier), PageIndex(s.next)),
            _ => Extent::between(PageIndex(s.next), PageIndex(s.frontier)),
        };
        let left = f.table.count(PageBit::Ahead, left).0;
        self.ledger.left(left, self.speculation(f));
        let Some(f) = self.files.get_mut(&s.file) else { return };
        // A run downwards that came to what was read is no witness, unless its reader was going there: it may have been a look ahead, which
        // another run came up to. From the end of the file down it was a footer.
        let met = s.course == Course::Backward
            && s.looked == 0
            && s.first < f.end
            && s.next > 0
            && f.table.has(PageBit::Used, PageIndex(s.next - 1));
        if met {
            return;
        }
        if let Course::Stride { .. } = s.course {
            if s.noted() == Noted::NotYet {
                self.stride_is_over(&s);
            }
        } else {
            self.witness(s.file, s.direction(), s.length(), s.noted());
        }
    }

    /// A stride is over, or is left: how long it was is a witness, and so are its runs.
    fn stride_is_over(&mut self, s: &Stream) {
        let (Course::Stride { period, .. }, Some(f)) = (s.course, self.files.get_mut(&s.file)) else {
            return;
        };
        f.runs.stride_ended(period, s);
        let told = f.whole_runs(s);
        for &pages in told.all() {
            self.witness(s.file, Direction::Up, pages, Noted::NotYet);
        }
    }

    /// R7: lets a stride rest whose reader went elsewhere: what was not sent for it is not wanted any more, and it has no share.
    /// It goes on where it was, with what was fetched for it, if he comes back before it is swept away. O(runs ahead).
    pub(in crate::wave) fn rest(&mut self, sid: StreamId) {
        let Some(mut s) = self.dismiss(sid) else { return };
        let (id, next, last) = (s.file, s.next, s.pace.last());
        s.frontier = self.files.get(&id).map_or(next, |f| fetched_up_to(f, &s));
        s.counted = Counted::default();
        if !core::mem::replace(&mut s.left, true) {
            self.stride_is_over(&s);
        }
        let course = s.course;
        let Some(sid) = self.streams.add(s) else { return };
        if let Some(other) = self.files.get_mut(&id).and_then(|f| f.expected.expect(course, next, sid)) {
            self.displaced(other, Displaced::ByStride);
        }
        self.line_up(last, sid);
    }

    /// R5: whether the next read of a stream has been made, and not by its own reader, who would have moved it on. Not where what was
    /// read then is gone: he will have to fetch it.
    pub(in crate::wave) fn overtaken(&self, s: &Stream) -> bool {
        let next = match s.course {
            Course::Forward => Some(s.next),
            Course::Backward => s.next.checked_sub(1),
            Course::Seed | Course::Stride { .. } => None,
        };
        let Some(f) = self.files.get(&s.file) else { return false };
        next.map(|page| f.table.state(PageIndex(page)))
            .is_some_and(|page| page.used && !page.ahead && (page.present || page.in_flight))
    }

    /// Takes a stream away that says nothing of how long runs are: it was another's, or it ends otherwise.
    pub(in crate::wave) fn dismiss(&mut self, sid: StreamId) -> Option<Stream> {
        let s = self.streams.remove(sid)?;
        if let Some(f) = self.files.get_mut(&s.file) {
            f.expected.unlink(sid, s.next);
            f.expected.unlink(sid, s.first);
        }
        if s.course != Course::Seed {
            self.epochs.uncount(s.counted);
        }
        Some(s)
    }
}

/// Where the first page ahead of a stream that goes up, or the first run of a stride, begins that is neither there nor on its way.
fn fetched_up_to(f: &File, s: &Stream) -> u64 {
    let run = match s.course {
        Course::Stride { run, .. } => run,
        Course::Forward => {
            let ahead = Extent::between(PageIndex(s.next), PageIndex(s.frontier));
            return f.table.holes(ahead).next().map_or(s.frontier, |hole| hole.start.0);
        }
        Course::Seed | Course::Backward => return s.next,
    };
    let starts = (1..).map_while(|k| s.beat().after(k)).map(|run| run.start.0);
    let asked_for = starts.take_while(|&at| at < f.end && at.abs_diff(s.next) <= s.out());
    let missing = |at: &u64| f.table.resident(Extent::new(*at, run)).0 < run;
    asked_for.into_iter().find(missing).unwrap_or(s.frontier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Why;
    use crate::units::{Bytes, Nanos};
    use crate::wave::requests::queue::{Turn, Wanted};
    use crate::wave::streams::stream::tests::fetched_ahead;
    use crate::wave::windows::runs::Runs;
    use crate::wave::{Action, Config, Input};

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
        assert_eq!(wave.ledger.debt(), 399, "one of the 400 is read now");
    }

    /// A run of 256 pages, fetched up to 656, that was left where nobody comes back: the run that a read of page 400 is of, by how its reader came
    /// there.
    #[test]
    fn who_comes_back_to_a_run_elsewhere_than_where_it_was_left_begins_another() {
        let belongs = |quiet: Extent, page: u64, others: u32| {
            let (mut wave, sid) = fetched_ahead(Extent::new(256, 400), 655);
            wave.streams.get_mut(sid).unwrap().left = true;
            wave.files.get_mut(&FileId(0)).unwrap().runs = Runs::left_for_good();
            (0..=others).for_each(|actor| wave.remember(actor, FileId(0), Extent::new(9000, 1), None));
            if !quiet.is_empty() {
                wave.handle(Nanos(1), Input::Used { file: FileId(0), pages: quiet });
            }
            read(&mut wave, page);
            let f = &wave.files[&FileId(0)];
            f.expected.up().get(&(page + 1)).map(|&sid| wave.streams.get(sid).unwrap().first)
        };
        let none = Extent::new(0, 0);
        assert_eq!(belongs(none, 256, 0), Some(0), "he takes it up");
        assert_eq!(belongs(none, 400, 0), Some(400), "144 pages behind it, which he did not read");
        assert_eq!(belongs(none, 400, 1), Some(0), "another may have read those");
        assert_eq!(belongs(Extent::new(350, 50), 400, 0), Some(350), "he came from there without a word");
        assert_eq!(belongs(Extent::new(200, 200), 400, 0), Some(200), "and from within it");
    }

    /// A run at page 256, of whose window of 144 pages 32 were sent: its reader keeps those where he comes back to none, and all of it where he may.
    #[test]
    fn what_was_not_sent_for_a_run_is_taken_back_when_its_reader_leaves() {
        let kept = |comes_back: bool| {
            let (mut wave, sid) = fetched_ahead(Extent::new(256, 0), 256);
            if !comes_back {
                wave.files.get_mut(&FileId(0)).unwrap().runs = Runs::left_for_good();
            }
            wave.remember(0, FileId(0), Extent::new(255, 1), Some(sid));
            let (pages, why) = (Extent::new(256, 144), Why("R2 next"));
            wave.want(Wanted { file: FileId(0), pages, turn: Turn::Ahead, why, stream: Some(sid) });
            wave.streams.get_mut(sid).unwrap().frontier = 400;
            assert!(matches!(wave.poll(Nanos(0)), Some(Action::Fetch { .. })));
            read(&mut wave, 9000);
            let sent = core::iter::from_fn(|| wave.poll(Nanos(2))).count();
            (wave.streams.get(sid).map(|s| s.frontier), sent > 1)
        };
        assert_eq!(kept(false), (Some(288), false));
        assert_eq!(kept(true), (Some(400), true));
    }

    #[test]
    fn runs_that_are_left_count_while_they_are_not_taken_up_again() {
        let mut wave = opened();
        let mut runs = |begins: &[u64]| {
            begins.iter().for_each(|&begin| (begin..begin + 8).for_each(|page| read(&mut wave, page)));
            let file = &wave.files[&FileId(0)];
            (file.goes_from_run_to_run(), file.runs.telling().longest())
        };
        // The fourth is left when the fifth begins, and how long it was is known when that is left.
        assert_eq!(runs(&[10_000, 25_000, 47_000, 61_000]), (false, 0));
        assert_eq!(runs(&[90_000]), (true, 8));
        // One of four may be taken up, two may not.
        assert_eq!(runs(&[10_008]), (true, 8));
        assert_eq!(runs(&[25_008, 47_008]), (false, 0));
    }

    /// The last three lines of the picture at the top: strides after so many reads whose reader goes elsewhere, or where he went by.
    #[test]
    fn a_stride_rests_unless_its_reads_were_the_first_of_streams() {
        let elsewhere = [700_321, 1_500_777];
        let went_by = [1001, 2001];
        for (reads, then, alive) in
            [(3, elsewhere, 1), (3, went_by, 0), (PROVED_READS - 1, went_by, 0), (PROVED_READS, went_by, 1)]
        {
            let mut wave = opened();
            (1..=reads).for_each(|k| read(&mut wave, k * 1000));
            assert_eq!(wave.files[&FileId(0)].expected.strides().len(), 1);
            then.into_iter().for_each(|page| read(&mut wave, page));
            assert_eq!(wave.files[&FileId(0)].expected.strides().len(), alive, "after {reads} reads");
        }
    }

    /// Four runs were asked for ahead of page 4000, and two were sent: a stride that rests has those, and its reader goes on with it when he
    /// is heard of at the second.
    #[test]
    fn a_stride_that_rests_keeps_what_was_sent_for_it() {
        let mut wave = opened();
        (1..=3).for_each(|k| read(&mut wave, k * 1000));
        for _ in 0..2 {
            assert!(matches!(wave.poll(Nanos(1)), Some(Action::Fetch { .. })));
        }
        let stride = |wave: &Wave| {
            let sid = wave.files[&FileId(0)].expected.strides().values().next().copied().unwrap();
            wave.streams.get(sid).map(|s| (s.next, s.frontier)).unwrap()
        };
        assert_eq!(stride(&wave), (4000, 8000));
        [700_321, 1_500_777].into_iter().for_each(|page| read(&mut wave, page));
        assert_eq!((stride(&wave), wave.active()), ((4000, 6000), 0));
        read(&mut wave, 5000);
        assert_eq!(stride(&wave).0, 6000);
        assert!(wave.active() > 0);
    }
}
