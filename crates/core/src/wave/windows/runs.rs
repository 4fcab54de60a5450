//! R9: what a file knows of how long its runs are: which have ended, which were left, and whether who looks ahead shows where his run ends.
//!
//! ```text
//! ended up, down     runs that are over, by their direction: what one says of the other is nothing
//! left               those that their readers went away from, while few are taken up again: they tell instead of all that ended
//! strides            reads of those that ended
//! looks              was the place where a reader looked the end of his run? Three times in a row, and the next look is believed
//! guesses            windows opened at a first read because runs of other files went on: believed while half of the runs did here
//! ```
//!
//! What is made of the lengths says lengths.rs, when a run is over or left streams/ends.rs, and what a look is streams/look.rs.

use crate::units::{PageCount, PageIndex};
use crate::wave::File;
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::stride::foreseen::Usual;
use crate::wave::windows::lengths::{ALIKE, Lengths};

/// A run counts as left if its reader went on with it for so many of his reads.
const READS_MIN: u64 = 3;
/// So many runs that were left say that those to come will not be taken up again, if no more than one in [`RETURNS`] was.
const LEFT_MIN: u32 = 3;
/// Those who leave runs do not come back if no more than one run in so many was taken up again.
const RETURNS: u32 = 4;
/// So many runs that were left, of which none was taken up again, say how far one may go.
const LEFT_FEW: u32 = 2;
/// Both counts are halved when so many were left.
const LEFT_MAX: u32 = 64;
/// Guesses that are made before it is asked how many of them came true.
const GUESSES_MIN: u64 = 4;
/// Looks in a row that must have shown the end of a run, as bits.
const LOOKS_BELIEVED: u8 = 0b111;

/// In which direction a run went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::wave) enum Direction {
    Up,
    /// Downwards, and not back to where its reader was first: a footer is read so, and nothing before it.
    Down,
}

/// Whether the length of a run that is over was noted before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::wave) enum Noted {
    /// It was, when its reader left it.
    WhenLeft,
    NotYet,
}

/// Runs that ended, by their direction: of a file, or of all.
#[derive(Clone, Debug, Default)]
pub(in crate::wave) struct Ended {
    up: Lengths,
    down: Lengths,
}

impl Ended {
    /// A run of so many pages ended.
    pub(in crate::wave) fn push(&mut self, direction: Direction, pages: u64) {
        match direction {
            Direction::Up => self.up.push(pages),
            Direction::Down => self.down.push(pages),
        }
    }

    /// Those that went in this direction.
    pub(in crate::wave) fn by(&self, direction: Direction) -> &Lengths {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// Bytes that they take beside their own.
    pub(in crate::wave) fn bytes_of_memory(&self) -> usize {
        self.up.bytes_of_memory() + self.down.bytes_of_memory()
    }
}

/// R9: runs of a file that their readers went away from, which the sweep will find ended only much later. He who reads by turns goes away
/// as well; so they count while few of them are taken up again.
#[derive(Clone, Debug, Default)]
struct Left {
    /// All that ended, and those.
    lengths: Lengths,
    /// The latest, and where its reader came to it: how far he went is known for sure when he leaves the next.
    latest: Option<(StreamId, PageIndex)>,
    left: u32,
    taken_up: u32,
}

impl Left {
    /// Whether so many were left, and so few taken up again, that those to come will not be.
    fn known(&self) -> bool {
        self.left >= LEFT_MIN && RETURNS * self.taken_up <= self.left
    }

    /// R9: how much farther a run may go that has come `progress` pages, while none of those that were left was taken up again: as far as the longest of
    /// them, and a little where it has come so far. `None` where it is longer than all.
    fn may_go_on(&self, progress: u64) -> Option<PageCount> {
        if self.left < LEFT_FEW || self.taken_up > 0 {
            return None;
        }
        let longest = self.lengths.longest();
        let end = if progress < longest { longest } else { longest + longest / ALIKE };
        (progress < end).then(|| PageCount(end - progress))
    }

    /// A run was left that its reader had come to at `came_at`. A single read is one where those who leave do not come back.
    fn count(&mut self, s: &mut Stream, came_at: PageIndex) {
        let run = match s.course {
            // Who reads by turns comes to a run that began before; what he read of it in other turns is not of this one.
            Course::Forward => s.first == came_at.0 && s.next >= s.first + READS_MIN * s.request,
            Course::Backward => s.looked > 0,
            Course::Seed | Course::Stride { .. } => false,
        };
        if s.left || !(run || s.course == Course::Seed && self.known()) {
            return;
        }
        s.left = true;
        self.lengths.push(s.length());
        self.left += 1;
        if self.left == LEFT_MAX {
            (self.left, self.taken_up) = (LEFT_MAX / 2, self.taken_up / 2);
        }
    }
}

/// What is known of the runs of one file.
#[derive(Clone, Debug, Default)]
pub(in crate::wave) struct Runs {
    ended: Ended,
    left: Left,
    /// Strides that ended, in reads.
    strides: Lengths,
    usual: Usual,
    /// Which of the latest looks showed where a run ends: bit 0 is the last.
    looks: u8,
    /// Windows opened at a first read because runs of other files went on, and how many of those did here.
    guesses: u64,
    guesses_kept: u64,
}

impl Runs {
    /// A run of so many pages ended.
    pub(in crate::wave) fn ended(&mut self, direction: Direction, pages: u64, noted: Noted) {
        self.ended.push(direction, pages);
        if direction == Direction::Up && noted == Noted::NotYet {
            self.left.lengths.push(pages);
        }
    }

    /// A stride ended, whose runs lay so far apart.
    pub(in crate::wave) fn stride_ended(&mut self, period: i64, s: &Stream) {
        self.strides.push(s.reads);
        if s.reads > 1 {
            self.usual.ended(period, s);
        }
    }

    /// A reader goes away from a run, to which he had come at `came_at`; returns the one that was left before, of which it is known now how far
    /// he went.
    pub(in crate::wave) fn is_left(
        &mut self,
        run: StreamId,
        came_at: PageIndex,
    ) -> Option<(StreamId, PageIndex)> {
        self.left.latest.replace((run, came_at))
    }

    /// A run was left that its reader had come to at `came_at`, if it was one.
    pub(in crate::wave) fn was_left(&mut self, run: &mut Stream, came_at: PageIndex) {
        self.left.count(run, came_at);
    }

    /// A reader came back to a run that was left.
    pub(in crate::wave) fn taken_up(&mut self) {
        self.left.taken_up += 1;
    }

    /// A reader looked ahead: was it where his run ends?
    pub(in crate::wave) fn looked(&mut self, at_its_end: bool) {
        self.looks = self.looks << 1 | u8::from(at_its_end);
    }

    /// Whether who looks farther on has shown three times in a row that his run goes so far.
    pub(in crate::wave) fn believe_looks(&self) -> bool {
        self.looks & LOOKS_BELIEVED == LOOKS_BELIEVED
    }

    /// A window was opened because runs of other files went on.
    pub(in crate::wave) fn guessed(&mut self) {
        self.guesses += 1;
    }

    /// A run went on for which one was.
    pub(in crate::wave) fn guess_came_true(&mut self) {
        self.guesses_kept += 1;
    }

    /// Whether what other files taught is believed: half of what it led to here came true.
    pub(in crate::wave) fn believe_others(&self) -> bool {
        self.guesses < GUESSES_MIN || 2 * self.guesses_kept >= self.guesses
    }

    /// The runs that tell how far others go in that direction.
    pub(in crate::wave) fn by(&self, direction: Direction) -> &Lengths {
        if direction == Direction::Up { self.telling() } else { self.ended.by(direction) }
    }

    /// The runs that tell how far others go up.
    pub(in crate::wave) fn telling(&self) -> &Lengths {
        if self.left.known() { &self.left.lengths } else { self.ended.by(Direction::Up) }
    }

    /// How far apart the runs of strides lay.
    pub(in crate::wave) fn usual(&self) -> Usual {
        self.usual
    }

    /// How many reads strides had that ended.
    pub(in crate::wave) fn strides(&self) -> &Lengths {
        &self.strides
    }

    /// How much farther a run may go that has come so far, by those that were left.
    pub(in crate::wave) fn may_go_on(&self, progress: u64) -> Option<PageCount> {
        self.left.may_go_on(progress)
    }

    /// Bytes that they take beside their own.
    pub(in crate::wave) fn bytes_of_memory(&self) -> usize {
        self.ended.bytes_of_memory() + self.left.lengths.bytes_of_memory() + self.strides.bytes_of_memory()
    }
}

impl File {
    /// Whether who leaves a run is taken not to come back to it.
    pub(in crate::wave) fn goes_from_run_to_run(&self) -> bool {
        self.runs.left.known()
    }
}

#[cfg(test)]
pub(in crate::wave) mod tests {
    use super::*;

    impl Runs {
        /// So many were left that those to come will not be taken up again.
        pub(in crate::wave) fn left_for_good() -> Self {
            Self { left: Left { left: LEFT_MIN, ..Left::default() }, ..Self::default() }
        }
    }

    /// Before three were left: two of 80 and of 96 pages, none taken up again.
    #[test]
    fn the_first_that_were_left_say_how_far_one_may_go() {
        let after = |runs: &[u64], taken_up| {
            let mut left = Left { left: runs.len() as u32, taken_up, ..Left::default() };
            runs.iter().for_each(|&pages| left.lengths.push(pages));
            move |came| left.may_go_on(came).map(|pages| pages.0)
        };
        let both = after(&[80, 96], 0);
        assert_eq!([16, 95, 96, 101, 102].map(both), [Some(80), Some(1), Some(6), Some(1), None]);
        assert_eq!((after(&[80], 0)(16), after(&[80, 96], 1)(16)), (None, None));
    }

    #[test]
    fn looks_and_guesses_are_believed_while_they_come_true() {
        let mut runs = Runs::default();
        let believed = [true, true, true, false, true, true, true].map(|at_its_end| {
            runs.looked(at_its_end);
            runs.believe_looks()
        });
        assert_eq!(believed, [false, false, true, false, false, false, true]);
        (0..6).for_each(|_| runs.guessed());
        (0..2).for_each(|_| runs.guess_came_true());
        assert!(!runs.believe_others());
        runs.guess_came_true();
        assert!(runs.believe_others(), "three of six");
    }
}
