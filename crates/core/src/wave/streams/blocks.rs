//! R5: who reads a file block after block, and each block in another order than the file's.
//!
//! A run down ends where it comes to pages that were read before, or to the begin of its file. If the next read of its reader lies above the run, then
//! the run was a block, and the reader goes upwards by such blocks. A run up that is followed by a read below it is a block likewise, of a reader
//! who goes down. The read may lie no farther from the run than the block may be long: four times what was told of it, since one page in four is
//! told at least. Runs up come to pages that were read by chance as well; so of them three must begin equally far apart.
//!
//! From then on all blocks are one stream. It has come to the first page that was not read, and a read belongs to it that lies no more than a block from
//! there.
//!
//! ```text
//! read 1003 1002 1001 1000        1007 1006 1005 1004        1011
//!      a run down, from chance         it comes down to 1003     above it, by 4, no more than 16: a stream
//!                                                                that has come to 1008, and reads blocks of 4
//! read 1010 1009                  of its block: nothing moves, 1008 was not read
//! read 1008                       all up to 1011 was read: it has come to 1012
//! ```
//!
//! What is stored upside down is read so, records that something else sorts within a block, a film backwards scene by scene, large reads of which a page
//! cache asks for the parts, and reads that lost their order on the way to us. A block that takes long is better taken for a run of its own: if blocks of
//! 8 MiB are read downwards each, a stream of blocks would bring the end of each first. The test owns the numbers.

use crate::table::PageBit;
use crate::units::{Extent, FileId, Nanos, PageCount, PageIndex};
use crate::view::View;
use crate::wave::memory::epochs::Counted;
use crate::wave::streams::locate::{HISTORY_MAX, Place};
use crate::wave::streams::stream::{Course, Stream};
use crate::wave::{File, Wave};

/// A block has at most so many pages: 64 MiB.
const BLOCK_MAX: u64 = 16_384;
/// A block is no longer than what the device carries in so many latencies.
const BLOCK_UNITS: u64 = 8;
/// One page in so many of a block was told of when it was read, at least.
const TOLD: u64 = 4;

impl Wave {
    /// Where a read of `actor` belongs that was found at `place`: to the next of his blocks, if the run that he was in before came to what was read,
    /// and this lies on the other side of that run by no more than [`TOLD`] times what was told of it. O(log streams + pages of a block / 64).
    pub(in crate::wave) fn next_block(
        &mut self,
        now: Nanos,
        id: FileId,
        actor: u32,
        place: Place,
        pages: Extent,
    ) -> Place {
        let Some(latest) = self.latest.get(&actor) else { return place };
        let Some((sid, s)) = latest.stream.and_then(|sid| Some((sid, self.streams.get(sid)?))) else {
            return place;
        };
        let anew = match place {
            Place::Stray => true,
            // What lies before it was bought, or he has been there since.
            Place::History(_) => s.course == Course::Forward,
            Place::Continues(_) | Place::Repeats(_) => false,
        };
        // Of several readers one skips what another reads.
        let alone = |f: &&File| anew && s.file == id && f.has_one_reader();
        let Some(f) = self.files.get(&id).filter(alone) else { return place };
        // Runs upwards come to what was read by chance as well, where much was: so blocks are of one length.
        let before = latest.strays.all().get(1);
        let alike = |block: u64| before.is_some_and(|before| before.abs_diff(s.first + block) <= 1);
        let sure = |block| s.course == Course::Backward || alike(block);
        let worth = |&block: &u64| block <= BLOCK_UNITS * self.unit(f) && sure(block);
        let Some(block) = f.block(s, pages).filter(worth) else { return place };
        let mut s = Stream { manner: s.manner.by_blocks(block), counted: Counted::default(), ..s.clone() };
        let first = PageIndex(s.first);
        if s.course == Course::Backward {
            (s.course, s.next) = (Course::Forward, first.0);
            s.first -= block.min(s.first);
            s.frontier = f.table.next_hole(first, HISTORY_MAX).0.min(f.end).max(s.next);
        } else {
            (s.course, s.next) = (Course::Backward, first.0);
            s.first = (s.first + block).min(f.end);
            s.frontier = first.0 - f.table.history(first, HISTORY_MAX).0;
        }
        self.end(sid);
        self.adopt(now, s).map_or(place, Place::Continues)
    }
}

impl File {
    /// The pages of a block, if `pages` are of the one on the other side of run `s`.
    fn block(&self, s: &Stream, pages: Extent) -> Option<u64> {
        let (block, beyond) = match s.course {
            Course::Backward if s.looked == 0 && self.met_below(s.next) => {
                let block = pages.end().0.checked_sub(s.first)?;
                (block, Extent::between(PageIndex(s.first.saturating_sub(block)), PageIndex(s.first)))
            }
            Course::Forward if self.met_above(s.next) => {
                let block = s.first.checked_sub(pages.start.0)?;
                (block, Extent::between(PageIndex(s.first), PageIndex((s.first + block).min(self.end))))
            }
            _ => return None,
        };
        let clear = block > 0 && pages.intersection(beyond).is_empty();
        (clear && block <= TOLD * s.progress() && self.was_read(beyond)).then_some(block)
    }

    /// Whether what lies before `page` was read, or that is the first page; what is left until there was fetched, perhaps, and read without a word.
    fn met_below(&self, page: u64) -> bool {
        let near = Extent::between(PageIndex(page.saturating_sub(BLOCK_MAX)), PageIndex(page));
        let bottom = self.table.runs(PageBit::Used, near).last().map_or(near.start, |run| run.end());
        (bottom.0 == 0 || bottom > near.start) && self.there(Extent::between(bottom, near.end()))
    }

    /// The same of what lies at `page` and behind it, and the end of the file.
    fn met_above(&self, page: u64) -> bool {
        let near = Extent::new(page, BLOCK_MAX.min(self.end.saturating_sub(page)));
        let top = self.table.runs(PageBit::Used, near).next().map_or(near.end(), |run| run.start);
        (top.0 == self.end || top < near.end()) && self.there(Extent::between(near.start, top))
    }

    /// Whether pages were read, as far as is known: what is there may have been read without a word, but not half of it; and what was bought
    /// (R11) is there whether anybody read it or not.
    fn was_read(&self, pages: Extent) -> bool {
        let last = pages.end().back(PageCount(1));
        let bought = self.density.was_bought(pages.start) || self.density.was_bought(last);
        let (read, all) = (self.table.count(PageBit::Used, pages), pages.count);
        if bought { read == all } else { self.there(pages) && 2 * read.0 >= all.0 }
    }

    /// Whether all of these pages are there, or under way.
    pub(in crate::wave) fn there(&self, pages: Extent) -> bool {
        self.table.resident(pages) == pages.count
    }

    /// Where a stream that goes up has come to with a read of `pages`: by blocks to the first page that was not read, or as far below this
    /// read as a block is long, for what lies before that was read without a word.
    pub(in crate::wave) fn come_up_to(&self, s: &Stream, pages: Extent) -> u64 {
        let end = pages.end().0;
        if s.manner.block() == 0 {
            return s.next.max(end);
        }
        let from = Extent::new(s.next, BLOCK_MAX);
        let read = self.table.runs(PageBit::Used, from).next().filter(|run| run.start == from.start);
        read.map_or(s.next, |run| run.end().0).max(end.saturating_sub(s.manner.block()))
    }

    /// The same of a stream that goes down.
    pub(in crate::wave) fn come_down_to(&self, s: &Stream, pages: Extent) -> u64 {
        let start = pages.start.0;
        if s.manner.block() == 0 {
            return s.next.min(start);
        }
        self.read_from(s.next, PageCount(BLOCK_MAX)).min(start + s.manner.block())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use crate::wave::{Config, Input};

    /// On a device of 1 ms that carries 61 pages in it, and serves 16 at once: how long the blocks are of the stream that the last of these pages
    /// was read in, each a read of its own, and to which page that has come.
    fn block_and_next(pages: impl IntoIterator<Item = u64>) -> (u64, u64) {
        let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
        wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(1 << 30) });
        wave.queue(0).device = crate::wave::devices::device::tests::play(16, 1_000, 16);
        for (turn, page) in (1..).zip(pages) {
            let (now, pages) = (Nanos::from_ms(turn), Extent::new(page, 1));
            wave.handle(now, Input::Read { file: id, pages, actor: 0 });
            wave.check();
        }
        let stream = wave.latest[&0].stream.and_then(|sid| wave.streams.get(sid));
        stream.map_or((0, 0), |s| (s.manner.block(), s.next))
    }

    /// The picture at the top.
    #[test]
    fn who_comes_down_to_what_was_read_goes_up_by_blocks() {
        let reads = [1003, 1002, 1001, 1000, 1007, 1006, 1005, 1004, 1011, 1010, 1009, 1008];
        assert_eq!(block_and_next(reads[..8].iter().copied()), (0, 1004));
        assert_eq!(block_and_next(reads[..9].iter().copied()), (4, 1008));
        assert_eq!(block_and_next(reads[..11].iter().copied()), (4, 1008));
        assert_eq!(block_and_next(reads), (4, 1012));
    }

    /// Each read of a block is told, and before him lie marks that he comes to when he has read down to them: those he has not overlooked.
    #[test]
    fn marks_within_a_block_are_still_to_come() {
        let block = 128;
        let reads = |blocks: u64| {
            (0..blocks).flat_map(move |b| (0..block).rev().map(move |page| 1000 + b * block + page))
        };
        let read = |blocks: u64, more: u64| {
            let last = (0..more).map(|page| 1000 + (blocks + 1) * block - 1 - page);
            block_and_next(reads(blocks).chain(last))
        };
        for (blocks, more) in [(3, 1), (4, 2), (4, 3), (4, 64), (6, 3), (8, 100)] {
            assert_eq!(
                read(blocks, more),
                (block, 1000 + blocks * block),
                "{blocks} blocks and {more} pages"
            );
        }
    }

    #[test]
    fn too_far_off_is_elsewhere() {
        let reads = [1003, 1002, 1001, 1000, 1007, 1006, 1005, 1004, 1041];
        assert_eq!(block_and_next(reads).0, 0);
    }

    #[test]
    fn who_comes_up_to_what_was_read_goes_down_if_blocks_are_of_one_length() {
        let down = |starts: &[u64]| {
            let reads = starts.iter().flat_map(|&at| at..at + 4).collect::<alloc::vec::Vec<_>>();
            block_and_next(reads)
        };
        assert_eq!(down(&[1008, 1004, 1000]), (4, 1000));
        assert_eq!(down(&[1008, 1004, 997]).0, 0, "not the same again");
    }
}
