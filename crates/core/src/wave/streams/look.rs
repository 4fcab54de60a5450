//! R9: who looks ahead before he reads on, and what he so says of where his run ends.
//!
//! Whoever copies memory touches its first page, then its last, and the one before that where the end of it is cut so, then what lies between,
//! from the first page up or from the last one down. So a reader who goes on where he began, after such a look farther on, has seen where his run
//! ends, and one who goes on downwards from there where it begins. Where that was so three times in a row, the next look is believed.
//!
//! ```text
//! read 1000, 1256, 1255       the last two are a look, if 1001 comes next: it does, and [1002, 1257) is fetched
//! 40000 and 90000             the same
//! read 150000, 150256         believed: [150001, 150257) is fetched at the look
//! ```
//!
//! What it waited for at such a look pays no rent (density.rs): it is of the run. However little is enough ahead of who goes from run to run (alone.rs),
//! what lies before a look that is believed is fetched with it, if others came as far. Who looks farther, and comes down through pages that are not
//! there, reads a run of his own from the third read on.
//!
//! Where all is told, a reader in the middle of a run may look ahead in what is out for it as well. If he does not come back he has left it. The
//! numbers are those of `tests/wave/r09-lengths.txt`.

use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageIndex};
use crate::wave::streams::locate::Place;
use crate::wave::streams::stream::{Course, StreamId, UNTOLD_MAX};
use crate::wave::{Look, Wave};

/// Reads of a look: of the last page of what is copied, and of the one before it where the end is cut so.
const LOOK_READS_MAX: u64 = 2;

impl Wave {
    /// Says whether a read of `actor` at `place` is a look that is believed, or in what is out for the run already: then it begins none of its own.
    pub(in crate::wave) fn look(
        &mut self,
        now: Nanos,
        id: FileId,
        actor: u32,
        place: Place,
        pages: Extent,
    ) -> bool {
        let told_all = self.files.get(&id).is_some_and(|f| f.told.all());
        let Some(latest) = self.latest.get_mut(&actor).filter(|l| l.file == id) else { return false };
        let before = core::mem::take(&mut latest.look);
        let mut at = latest.stream;
        let continues = match place {
            Place::Continues(sid) => Some(sid),
            _ => None,
        };
        if let Some(look) = before {
            if place == Place::Stray && self.reads_between(now, id, look, pages) {
                self.keep_look(actor, Look { passed: true, ..look });
                return true;
            }
            let moved = told_all && self.streams.get(look.from).is_some_and(|s| s.next != look.next);
            if moved || continues == Some(look.from) {
                if !look.passed {
                    self.came_true(id, look, at);
                }
                at = Some(look.from);
            } else if continues.is_some() && continues == at && self.goes_down(look, at, pages) {
                self.dismiss(look.from);
            } else if look.first == pages.end().0
                && (look.end - look.first < LOOK_READS_MAX * pages.count.0 || self.there(id, pages))
                && (place == Place::Stray || continues.is_some() && continues == at)
            {
                // A look at the page before is the same look; a run may have begun at the first, and he reads on downwards there. Where he would
                // wait for each page on his way down, that is a run of its own.
                let look = Look { first: pages.start.0, ..look };
                self.keep_look(actor, look);
                return place == Place::Stray && self.looks(id, look);
            } else if look.leaves && place == Place::Stray && self.looks_again(id, look, pages) {
                self.keep_look(actor, Look { first: pages.start.0, end: pages.end().0, ..look });
                return true;
            } else if look.leaves {
                self.end(look.from);
            } else if let Some(f) = self.files.get_mut(&id).filter(|_| !look.passed) {
                f.runs.looked(false);
            }
        }
        if place == Place::Stray {
            self.came_down(id, at);
        }
        let from = at.filter(|_| place == Place::Stray).and_then(|sid| Some((sid, self.streams.get(sid)?)));
        let anew = from.and_then(|(from, s)| {
            let leaves = s.course == Course::Forward;
            let within = told_all && (s.next..s.frontier).contains(&pages.start.0);
            let ahead = s.course == Course::Seed && s.next <= pages.start.0;
            let look =
                Look { from, next: s.next, first: pages.start.0, end: pages.end().0, leaves, passed: false };
            (ahead || leaves && within).then_some(look)
        });
        let Some(look) = anew else { return false };
        self.keep_look(actor, look);
        self.looks(id, look)
    }

    /// Whether these pages are there, or under way.
    fn there(&self, id: FileId, pages: Extent) -> bool {
        self.files.get(&id).is_some_and(|f| f.there(pages))
    }

    /// A look that the next read of `actor` may show to be one.
    fn keep_look(&mut self, actor: u32, look: Look) {
        if let Some(latest) = self.latest.get_mut(&actor) {
            latest.look = Some(look);
        }
    }

    /// Whether a read is one of what lies between the first page and one at which its reader looked and was believed: he comes down, and what is
    /// out for the run is all of it. The first such read is noted: the look came true, and the run is as good as read.
    fn reads_between(&mut self, now: Nanos, id: FileId, look: Look, pages: Extent) -> bool {
        let Some(s) = self.streams.get(look.from).filter(|_| !look.leaves) else { return false };
        let between = self.there(id, pages)
            && s.looked == look.end
            && s.first <= pages.start.0
            && pages.end().0 < look.first;
        if between && !look.passed {
            self.came_true(id, look, None);
            self.advance(now, look.from, Extent::between(PageIndex(look.first), PageIndex(look.end)));
            self.leave(look.from);
        }
        between
    }

    /// A look came true; `at` is what its reader read last: the run that was taken to begin where he looked, perhaps.
    fn came_true(&mut self, id: FileId, look: Look, at: Option<StreamId>) {
        if !look.leaves {
            if let Some(f) = self.files.get_mut(&id) {
                f.runs.looked(true);
                f.density.takes_back(Extent::between(PageIndex(look.first), PageIndex(look.end)));
            }
            if let Some(s) = self.streams.get_mut(look.from) {
                s.looked = look.end;
            }
        }
        if let Some(there) = at.filter(|&there| there != look.from) {
            self.dismiss(there);
        }
    }

    /// Whether who looked ahead in what is out for his run, and now looks farther ahead in it, may have come to the first place meanwhile:
    /// what lies before it is there, and is read without a word.
    fn looks_again(&self, id: FileId, look: Look, pages: Extent) -> bool {
        let (Some(f), Some(s)) = (self.files.get(&id), self.streams.get(look.from)) else { return false };
        let before = Extent::between(PageIndex(s.next), PageIndex(look.first.max(s.next)));
        f.told.all() && (look.end..s.frontier).contains(&pages.start.0) && f.there(before)
    }

    /// Whether who looked farther on reads downwards from there, page after page: memory is copied so as well, and where he was first
    /// is where he is going, which is noted.
    fn goes_down(&mut self, look: Look, at: Option<StreamId>, pages: Extent) -> bool {
        let Some(to) = self.streams.get(look.from).map(|s| s.first) else { return false };
        let Some(s) = at.and_then(|at| self.streams.get_mut(at)) else { return false };
        let down =
            !look.leaves && s.course == Course::Backward && pages.end().0 <= look.first && pages.start.0 > to;
        if down {
            s.looked = to;
        }
        down
    }

    /// A run downwards was left: did it come to where its reader had been first?
    fn came_down(&mut self, id: FileId, at: Option<StreamId>) {
        let Some(s) = at.and_then(|at| self.streams.get(at)) else { return };
        let Some(f) = self.files.get_mut(&id).filter(|_| s.course == Course::Backward && s.looked > 0) else {
            return;
        };
        let near = s.looked + UNTOLD_MAX + 1;
        f.runs.looked(near >= s.next || f.table.has(PageBit::Used, PageIndex(near)));
    }

    /// Whether a look is believed, or in what is out for its run.
    fn looks(&mut self, id: FileId, look: Look) -> bool {
        let believed = !look.leaves && self.files.get(&id).is_some_and(|f| f.runs.believe_looks());
        let Some(s) = self.streams.get_mut(look.from) else { return false };
        if believed {
            s.looked = look.end;
        }
        believed || look.first < s.frontier
    }
}
