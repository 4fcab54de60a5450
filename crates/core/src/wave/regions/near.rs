//! R11: who reads at random, and comes near to where he has just been, is looking for something there.
//!
//! A word is looked for in a sorted file by halves, an object among those packed with it, a key in the leaf that its parent named: reads that lie nowhere
//! in order, and closer and closer. As far as he came from, so far he may go from here; that much comes with his read, on both sides, where it costs less
//! than the wait that it saves.
//!
//! ```text
//! a search by halves in 200 MB     25,600   38,400   ...   31,425   31,450   31,437   31,443   31,440   31,441
//! from the nearest of the four before       12,800         50       25       12       6        3        1
//! hdd, 195 pages in a way                                           25: [31,425, 31,475) with it, and the other three wait for nothing
//! ssd, 12 in a latency                                                                6: [31,437, 31,450)
//! ```
//!
//! Who walks is no searcher: his latest step was no shorter than three quarters of the one before it. Uniformly random reads come so near to one
//! another once in some hundred, and find nothing there; so what was brought is looked at when the next is: while fewer than one in two was read of
//! again, nothing is.

use crate::decision::Why;
use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageIndex};
use crate::wave::Wave;
use crate::wave::streams::stream::StreamId;

const NEAR: &str = "R11 near where its reader was";
/// Reads to which the latest may be near.
const BEFORE: usize = 4;
/// Pages that it may be from the nearest of them; or half of what passes in a latency, where that is less.
const NEAR_MAX: u64 = 32;
/// Times that something is brought before it is asked how often that was good for something.
const ASKED_MIN: u8 = 8;
/// One time in so many must have been good for something.
const PAYS: u8 = 2;
/// Both counts are halved when so many were brought.
const BROUGHT_MAX: u8 = 32;

/// What was brought around reads that were near to others, and whether it was read of.
#[derive(Clone, Copy, Debug)]
pub(in crate::wave) struct Near {
    latest: Extent,
    /// Pages of the latest that were read when it was brought.
    read_then: u64,
    brought: u8,
    good: u8,
}

impl Default for Near {
    fn default() -> Self {
        Self { latest: Extent::new(0, 0), read_then: 0, brought: 0, good: 0 }
    }
}

impl Near {
    /// Of the latest that was brought so many pages were read.
    fn look_back(&mut self, read: u64) {
        self.good += u8::from(!self.latest.is_empty() && read > self.read_then);
        self.latest = Extent::new(0, 0);
    }

    /// Whether it is worth it.
    fn pays(&self) -> bool {
        self.brought < ASKED_MIN || PAYS * self.good >= self.brought
    }

    /// So much is brought, of which so many pages were read.
    fn bring(&mut self, pages: Extent, read: u64) {
        (self.latest, self.read_then) = (pages, read);
        self.brought += 1;
        if self.brought == BROUGHT_MAX {
            (self.brought, self.good) = (BROUGHT_MAX / 2, self.good / 2);
        }
    }
}

impl Wave {
    /// Brings what lies around the first read of a stream if its reader was near there just now; says whether he was.
    pub(in crate::wave) fn bring_near(
        &mut self,
        now: Nanos,
        id: FileId,
        sid: StreamId,
        pages: Extent,
    ) -> bool {
        let Some(around) = self.near(id, sid, pages) else { return false };
        // Without marks: those say how well regions fill.
        self.bring_all(now, id, pages, around, Why(NEAR));
        true
    }

    /// What is to be brought around the first read of a stream, of `pages`, because its reader was near there just now. O(pages of that).
    fn near(&mut self, id: FileId, sid: StreamId, pages: Extent) -> Option<Extent> {
        let by = self.streams.get(sid)?.begun.by()?;
        let before = self.latest.get(&by).filter(|latest| latest.file == id)?.strays;
        let start = pages.start.0;
        let before = before.all().get(1..)?;
        let near = before.iter().take(BEFORE).map(|&before| start.abs_diff(before)).filter(|&from| from > 0);
        let from = near.min()?;
        // Who walks goes as far as before.
        let &[latest, other, ..] = before else { return None };
        let walks = 4 * start.abs_diff(latest) > 3 * latest.abs_diff(other);
        let f = self.files.get(&id)?;
        if walks || from > NEAR_MAX.min(self.unit(f) / 2) {
            return None;
        }
        let f = self.files.get_mut(&id)?;
        let around =
            Extent::between(PageIndex(start.saturating_sub(from)), PageIndex((start + from).min(f.end)));
        f.near.look_back(f.table.count(PageBit::Used, f.near.latest).0);
        if !f.near.pays() || f.table.resident(around) == around.count {
            return None;
        }
        f.near.bring(around, f.table.count(PageBit::Used, around).0);
        Some(around)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use crate::wave::devices::device::tests::play;
    use crate::wave::{Config, Input};

    /// What is brought around the last of these reads, by its first page and its end.
    fn brought(slots: usize, latency_us: u64, reads: &[u64]) -> Option<(u64, u64)> {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(200 << 20) });
        wave.queue(0).device = play(slots, latency_us, 500);
        for (i, &page) in reads.iter().enumerate() {
            wave.take_trace().count();
            let (now, pages) = (Nanos::from_ms(10 * i as u64), Extent::new(page, 1));
            wave.handle(now, Input::Read { file: id, pages, actor: 0 });
            wave.check();
        }
        let near = |e: &crate::wave::Explained| e.decision.why.0 == NEAR;
        let window = wave.take_trace().find(near).map(|e| e.decision.window.extent());
        window.map(|window| (window.start.0, window.end().0))
    }

    /// The worked example.
    #[test]
    fn as_far_as_he_came_from() {
        let search = [25_600, 38_400, 31_425, 31_450, 31_437, 31_443, 31_440];
        assert_eq!(brought(1, 8_000, &search[..4]), Some((31_425, 31_475)));
        assert_eq!(brought(1, 8_000, &search[..3]), None);
        assert_eq!(brought(1, 8_000, &[31_425, 25_600, 38_400, 5, 700, 31_450]), None, "that is long ago");
    }

    #[test]
    fn where_nothing_is_found_nothing_is_brought() {
        let mut near = Near::default();
        let mut bring = |times: u8, good: bool| {
            for _ in 0..times {
                near.look_back(u64::from(good));
                near.bring(Extent::new(100, 50), 0);
            }
            near.look_back(u64::from(good));
            near.pays()
        };
        assert!(bring(7, false));
        assert!(!bring(1, false));
        assert!(!bring(7, true) && bring(1, true), "eight of sixteen");
    }
}
