//! R2, R6, R7: where the streams of a file are expected to be read next. No two stand at one page.
//!
//! ```text
//! up         the page that is read next           seeds, and streams that go up
//! down       the page before which a read ends    seeds, and streams that go down
//! strides    where the next run starts            strides
//! ```
//!
//! Where a stream comes to stand at a page, another may have stood there. What becomes of that depends on why it came:
//!
//! ```text
//! a seed             the newer of two first reads is the likelier: a seed that stood there has ended, after one read. A stream that
//!                    goes on is only not found there any more; it is swept in its time (sweep.rs)
//! a stream begins    it is the same stream, of which the record was gone: that one is dismissed, and says nothing of how long runs are
//! a stride begins    two strides may meet in one place: the other rests, and is swept in its time
//! a read             the reader has come to where another is: they are in line (R5), and the other is not found until it is read on
//! a mark is passed   nobody told of the read: the other was come by on the way, and has ended
//! read quietly       so was it, but all of it is known to be of one reader: dismissed, for no run ended
//! ```

use crate::wave::Wave;
use crate::wave::streams::stream::{Course, StreamId};
use alloc::collections::BTreeMap;

/// The streams of one file, by the page that each is expected at.
#[derive(Clone, Debug, Default)]
pub(in crate::wave) struct Expected {
    up: BTreeMap<u64, StreamId>,
    down: BTreeMap<u64, StreamId>,
    strides: BTreeMap<u64, StreamId>,
}

/// Why a stream came to stand where another did: the table at the top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::wave) enum Displaced {
    BySeed,
    ByStream,
    ByStride,
    ByRead,
    ByMark,
    Quietly,
}

impl Expected {
    /// Streams and seeds that go up, by the page expected next.
    pub(in crate::wave) fn up(&self) -> &BTreeMap<u64, StreamId> {
        &self.up
    }

    /// Streams that go down and seeds, by the page before which the next read ends.
    pub(in crate::wave) fn down(&self) -> &BTreeMap<u64, StreamId> {
        &self.down
    }

    /// Strides, by the start of the next read.
    pub(in crate::wave) fn strides(&self) -> &BTreeMap<u64, StreamId> {
        &self.strides
    }

    fn of(&mut self, course: Course) -> &mut BTreeMap<u64, StreamId> {
        match course {
            Course::Seed | Course::Forward => &mut self.up,
            Course::Backward => &mut self.down,
            Course::Stride { .. } => &mut self.strides,
        }
    }

    /// A stream is expected at `page`; returns the other one that was.
    #[must_use]
    pub(in crate::wave) fn expect(&mut self, course: Course, page: u64, sid: StreamId) -> Option<StreamId> {
        self.of(course).insert(page, sid).filter(|&other| other != sid)
    }

    /// A seed may go on at `next`, or down from `first`.
    #[must_use]
    pub(in crate::wave) fn expect_seed(
        &mut self,
        first: u64,
        next: u64,
        sid: StreamId,
    ) -> [Option<StreamId>; 2] {
        [self.up.insert(next, sid), self.down.insert(first, sid)]
    }

    /// Nobody is expected at `page` any more who takes this course.
    pub(in crate::wave) fn clear(&mut self, course: Course, page: u64) {
        self.of(course).remove(&page);
    }

    /// A stream is not expected at `page` any more.
    pub(in crate::wave) fn unlink(&mut self, sid: StreamId, page: u64) {
        for map in [&mut self.up, &mut self.down, &mut self.strides] {
            if map.get(&page) == Some(&sid) {
                map.remove(&page);
            }
        }
    }

    /// Places where a stream is expected.
    pub(in crate::wave) fn len(&self) -> usize {
        self.up.len() + self.down.len() + self.strides.len()
    }

    /// All streams that are found.
    pub(in crate::wave) fn into_streams(self) -> impl Iterator<Item = StreamId> {
        self.up.into_values().chain(self.strides.into_values()).chain(self.down.into_values())
    }
}

impl Wave {
    /// What becomes of a stream where another has come to stand.
    pub(in crate::wave) fn displaced(&mut self, other: StreamId, why: Displaced) {
        let seed = || self.streams.get(other).is_some_and(|s| s.course == Course::Seed);
        match why {
            Displaced::BySeed if seed() => self.end(other),
            Displaced::BySeed | Displaced::ByStride | Displaced::ByRead => {}
            Displaced::ByMark => self.end(other),
            Displaced::ByStream | Displaced::Quietly => drop(self.dismiss(other)),
        }
    }
}
