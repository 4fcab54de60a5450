//! R1, R4, R7: what a read begins that belongs to no stream.
//!
//! ```text
//! read 1000         a seed: who reads on comes to 1002, or down to 1000
//! read 1500         another
//! read 2000         as far from the last two as they lie apart: a stride, which comes to 2500 next
//! read 7030         7000 to 7029 were read, and only the cache knows of it: a stream that has come 30 pages before this read (R4)
//! ```
//!
//! A stride that steps aside goes on (aside.rs), one that is as those before it begins with its first read (foreseen.rs), and one that is walked by turns with others takes more reads to be seen (by_turns.rs). A seed
//! that 64 others have followed counts as a run that ended.

use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageIndex};
use crate::view::View;
use crate::wave::Wave;
use crate::wave::streams::expected::Displaced;
use crate::wave::streams::locate::HISTORY_MAX;
use crate::wave::streams::stream::{Course, Stream, StreamId};
use crate::wave::stride::beat::{Beat, Lies};
use crate::wave::stride::strides::STRIDE_READS;
use crate::wave::windows::runs::Direction;

/// Seeds that must follow one before it counts as a run that ended.
const FOLLOWERS: usize = 64;
/// A stream that was forgotten and came back is given so long between its reads.
const RETURN_NS: u64 = 500_000_000;
/// Strides by turns that are told apart.
pub(in crate::wave) const TURNS_MAX: usize = 3;

/// How a stream began.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Begun {
    /// Its number among the seeds of its file, from 1; 0 for a stream that was no seed.
    serial: u64,
    /// Who read it, if that is known and it was a seed.
    by: Option<u32>,
    /// Pages that it had come, and that the run had used, when it was first known (R13).
    came: u64,
    used: u64,
}

impl Begun {
    /// As seed number `serial`, read by `by`.
    pub(in crate::wave) fn as_seed(&mut self, serial: u64, by: Option<u32>) {
        (self.serial, self.by) = (serial, by);
    }

    /// When it had come, and all had used, so many pages.
    pub(in crate::wave) fn at(&mut self, came: u64, used: u64) {
        (self.came, self.used) = (came, used);
    }

    /// Its number among the seeds of its file, from 1; 0 for a stream that was no seed.
    pub(in crate::wave) fn serial(&self) -> u64 {
        self.serial
    }

    /// Who read it, if that is known and it was a seed.
    pub(in crate::wave) fn by(&self) -> Option<u32> {
        self.by
    }

    /// Of what it has come, and of what all have used, the pages since it was first known.
    pub(in crate::wave) fn since(&self, came: u64, used: u64) -> (u64, u64) {
        (came.saturating_sub(self.came), used - self.used)
    }
}

impl Wave {
    /// A read that belongs nowhere begins a seed, unless it is the third of a stride or only looks ahead (R9).
    pub(in crate::wave) fn begin(
        &mut self,
        now: Nanos,
        id: FileId,
        pages: Extent,
        actor: u32,
        looks: bool,
    ) -> Option<StreamId> {
        // Looks ahead from one run are equally far apart where it is copied in equal pieces: no stride.
        if looks && self.latest.get(&actor).and_then(|l| l.look).is_some_and(|look| look.leaves) {
            return None;
        }
        if let Some(sid) = self.step_aside(now, id, pages, actor) {
            return Some(sid);
        }
        if let Some((period, turns)) = self.stray(id, pages, actor) {
            let beat = self.beat_of(actor, pages, period, turns)?;
            return self.stride(now, Stream::stride(id, pages, beat, now)?, STRIDE_READS, now);
        }
        if let Some((period, reads, before)) = self.by_turns(id, pages, actor) {
            let mut s = Stream::stride(id, pages, Beat::whole(pages, period)?, now)?;
            s.by_turns = true;
            return self.stride(now, s, reads, before);
        }
        if looks {
            return None;
        }
        self.foresee(now, id, pages, actor).or_else(|| self.sow(now, id, pages, Some(actor)))
    }

    /// Adds a stride that so many reads show, of which the last but one was made at `before`.
    fn stride(&mut self, now: Nanos, mut s: Stream, reads: u64, before: Nanos) -> Option<StreamId> {
        s.reads = reads;
        s.pace.comes_every(now.since(before).0);
        self.adopt(now, s)
    }

    /// Adds a seed at `pages`, read by `by`.
    pub(in crate::wave) fn sow(
        &mut self,
        now: Nanos,
        id: FileId,
        pages: Extent,
        by: Option<u32>,
    ) -> Option<StreamId> {
        let serial = self.files.get_mut(&id)?.seeds.next_serial();
        self.sow_as(now, id, pages, by, serial)
    }

    /// The same, as number `serial` of its file; 0 for what nobody has begun just now, which says nothing of what seeds come to (R10).
    pub(in crate::wave) fn sow_as(
        &mut self,
        now: Nanos,
        id: FileId,
        pages: Extent,
        by: Option<u32>,
        serial: u64,
    ) -> Option<StreamId> {
        let (q, n) = (pages.start.0, pages.count.0);
        let f = self.files.get_mut(&id)?;
        let mut seed = Stream::seed(id, q, n, now);
        seed.begun.as_seed(serial, by);
        seed.begun.at(0, self.counters.pages_used - n.min(self.counters.pages_used));
        let sid = self.streams.add(seed)?;
        // Two expectations cannot stand at one page: the newer one is the likelier.
        let displaced = f.expected.expect_seed(q, q + n, sid);
        let oldest = f.seeds.sow(sid);
        for other in displaced.into_iter().flatten() {
            self.displaced(other, Displaced::BySeed);
        }
        if let Some(oldest) = oldest
            && self.streams.get(oldest).is_some_and(|s| s.course == Course::Seed)
        {
            self.end(oldest);
        }
        self.line_up(now, sid);
        // A seed that many others have followed counts as a run that ended, though it may still go on.
        let followed = self.files[&id].seeds.followed_by(FOLLOWERS);
        if let Some(s) = followed.and_then(|sid| self.streams.get(sid)).filter(|s| s.course == Course::Seed) {
            self.witness(id, Direction::Up, s.request, s.noted());
        }
        Some(sid)
    }

    /// A stream found in the cache's history of `history` pages before `pages` (R4).
    pub(in crate::wave) fn resume(
        &mut self,
        now: Nanos,
        id: FileId,
        pages: Extent,
        history: u64,
    ) -> Option<StreamId> {
        let (q, n) = (pages.start.0, pages.count.0);
        let mut s = Stream::seed(id, q, n, now);
        s.course = Course::Forward;
        s.first = q - history.min(q);
        s.reads = 2;
        // It has been away long enough to be forgotten, and may be again; what was fetched for it is its own once more.
        s.pace.comes_every(RETURN_NS);
        let f = self.files.get(&id)?;
        s.frontier = f.table.next_hole(PageIndex(s.next), HISTORY_MAX).0.min(f.end).max(s.next);
        let own = Extent::between(PageIndex(s.next), PageIndex(s.frontier));
        let own = f.table.count(PageBit::Ahead, own).0;
        self.ledger.taken_up(own);
        self.adopt(now, s)
    }

    /// Adds a stream, no seed. One that was expected at the same page is the same stream, unless they are strides: it is replaced.
    pub(in crate::wave) fn adopt(&mut self, now: Nanos, mut s: Stream) -> Option<StreamId> {
        s.begun.at(s.progress(), self.counters.pages_used);
        let (id, next, course) = (s.file, s.next, s.course);
        let f = self.files.get_mut(&id)?;
        let sid = self.streams.add(s)?;
        self.counters.streams += 1;
        if let Some(other) = f.expected.expect(course, next, sid) {
            let stride = matches!(course, Course::Stride { .. });
            self.displaced(other, if stride { Displaced::ByStride } else { Displaced::ByStream });
        }
        self.mark_active(now, sid);
        Some(sid)
    }

    /// Where `pages` lie that are read now, to the byte, if it was told.
    pub(in crate::wave) fn lies(&self, pages: Extent) -> Option<Lies> {
        self.exactly.map(|(_, lies)| lies).filter(|lies| lies.begins(pages))
    }

    /// R7: the beat of the last three strays of `actor`, each so many before the next, the latest of which are `pages`; `None` if they lie
    /// `period` pages apart beyond all files. Told to the byte, they lie as many bytes apart or on no beat.
    fn beat_of(&self, actor: u32, pages: Extent, period: i64, turns: usize) -> Option<Beat> {
        let lay = self.latest.get(&actor).map_or(&[][..], |latest| latest.lay.all());
        let whole = || Beat::whole(pages, period);
        let lies = |back: usize| lay.get(back * turns).copied().flatten();
        let (Some(latest), Some(second), Some(first)) = (lies(0), lies(1), lies(2)) else { return whole() };
        let apart = [latest.since(second), second.since(first)];
        let beat = Beat::told(latest, apart[0]?);
        match apart[0] == apart[1] {
            true if beat.pages().unsigned_abs() > pages.count.0 => Some(beat),
            true => whole(),
            false => whole().map(Beat::by_pages),
        }
    }

    /// Notes a stray of `actor` and says whether it is the third at equal distance, or the fourth by turns with others: how far apart they
    /// lie, and with how many by turns.
    fn stray(&mut self, id: FileId, pages: Extent, actor: u32) -> Option<(i64, usize)> {
        let lies = self.lies(pages);
        let latest = self.latest.get_mut(&actor).filter(|l| l.file == id)?;
        let (q, before) = (pages.start.0, latest.strays);
        latest.strays.push(q);
        latest.lay.push(lies);
        let lay = latest.lay;
        // From the n-th read before this one to the one `turns` before that.
        let step = |n: usize, turns: usize| {
            let later = if n == 0 { q } else { *before.all().get(n - 1)? };
            Some(later.wrapping_sub(*before.all().get(n + turns - 1)?) as i64)
        };
        let alike = |a: i64, b: i64| a.abs_diff(b) <= 1;
        let told = |back: usize, turns: usize| {
            let [later, earlier] = [back, back + turns].map(|n| lay.all().get(n).copied().flatten());
            later?.since(earlier?)
        };
        (1..=TURNS_MAX).find_map(|turns| {
            let period = step(0, turns).filter(|p| p.unsigned_abs() > pages.count.0)?;
            let by_turns = || {
                // Streams that begin here and there, not quite equally far apart, are no strides by turns.
                let zigzag = step(0, 1)?.abs_diff(step(1, 1)?) > period.unsigned_abs();
                Some(zigzag && alike(step(2 * turns, turns)?, period))
            };
            // Equal to the byte is no chance, whatever lies between.
            let equal = told(0, turns).is_some_and(|apart| told(turns, turns) == Some(apart));
            let sure = equal || alike(step(turns, turns)?, period) && (turns == 1 || by_turns()?);
            sure.then_some((period, turns))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use crate::wave::{Config, Input};
    use alloc::vec::Vec;

    /// The worked example at the top.
    #[test]
    fn what_reads_begin() {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        let mut read = |start: u64| {
            wave.handle(Nanos(start), Input::Read { file: id, pages: Extent::new(start, 2), actor: 0 });
            wave.check();
            let f = &wave.files[&id];
            let seed = f.expected.up().contains_key(&(start + 2)) && f.expected.down().contains_key(&start);
            (seed, f.expected.strides().keys().copied().collect::<Vec<u64>>())
        };
        assert_eq!(read(1000), (true, Vec::new()));
        assert_eq!(read(1500), (true, Vec::new()));
        assert_eq!(read(2000).1, [2500]);
        let table = &mut wave.files.get_mut(&id).unwrap().table;
        for bit in [PageBit::Present, PageBit::Used] {
            table.set(bit, Extent::new(7000, 30));
        }
        wave.handle(Nanos(9000), Input::Read { file: id, pages: Extent::new(7030, 2), actor: 0 });
        let sid = wave.files[&id].expected.up()[&7032];
        assert_eq!(wave.streams.get(sid).unwrap().progress(), 32, "with its own two");
    }
}
