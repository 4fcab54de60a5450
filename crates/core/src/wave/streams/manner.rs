//! R2, R5, R8: in what manner a stream's reader goes on, where that is not page after page.
//!
//! ```text
//! skips       read 100, read 116        16 pages at most: marks are so wide, and a read so far past what is out still belongs to it
//! hops        from run to run           his window is pushed on by halves, and a mark behind him says nothing (hops.rs)
//! by blocks   each in another order     a read within a block from where he has come belongs to it (blocks.rs)
//! overlooks   mark after mark unheard   he is not taken any more to have read up to where he is (locate.rs)
//! passes      what he does not read     too much of it, and nothing is fetched (windows/passes.rs)
//! ```

use crate::wave::windows::passes::Passes;

/// Marks in a row that a reader has overlooked, each time by more than a way would cost, when he is not taken any more to have read up
/// to where he is: one may be chance.
const OVERLOOKED_MAX: u8 = 2;

/// How one stream's reader goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Manner {
    /// Largest forward skip over unread pages that he has shown.
    skip: u64,
    /// Pages of a block, where he goes block after block and reads each in another order (R5); else 0.
    block: u32,
    /// Marks in a row that he has not seen on his way, though what lies before where he is was not read (R5).
    overlooked: u8,
    /// He hops from run to run (R8).
    hops: bool,
    /// What he passes that was fetched for him (R2).
    passes: Passes,
}

impl Manner {
    /// The same reader goes by blocks of so many pages from now on.
    pub(in crate::wave) fn by_blocks(self, block: u64) -> Self {
        Self { block: u32::try_from(block).unwrap_or(u32::MAX), ..self }
    }

    /// He skipped so many unread pages.
    pub(in crate::wave) fn skipped(&mut self, pages: u64) {
        self.skip = self.skip.max(pages);
    }

    /// He hops, the last time over so many pages: marks are as wide from now on, and he cannot hop over one.
    pub(in crate::wave) fn hopped(&mut self, pages: u64) {
        self.hops = true;
        self.skipped(pages);
    }

    /// He came by a mark and did not see it, or saw all there were.
    pub(in crate::wave) fn overlooked(&mut self, one: bool) {
        self.overlooked = if one { self.overlooked.saturating_add(1) } else { 0 };
    }

    /// Whether he is taken no more to have read what lies before where he is.
    pub(in crate::wave) fn overlooks(&self) -> bool {
        self.overlooked >= OVERLOOKED_MAX
    }

    /// Whether he hops from run to run.
    pub(in crate::wave) fn hops(&self) -> bool {
        self.hops
    }

    /// Pages of a block; 0 where he does not go by blocks.
    pub(in crate::wave) fn block(&self) -> u64 {
        u64::from(self.block)
    }

    /// Pages of a mark: as many as he has skipped.
    pub(in crate::wave) fn mark_pages(&self) -> u64 {
        self.skip.max(1)
    }

    /// How far past what is out a read may lie that belongs to the stream: a quarter of it, or as much as he has shown.
    pub(in crate::wave) fn slack(&self, out: u64) -> u64 {
        (out / 4).max(self.skip).max(self.block())
    }

    /// How far behind a stream a read of it may lie: a quarter of what is out, one read, or a block.
    pub(in crate::wave) fn slack_behind(&self, out: u64, request: u64) -> u64 {
        (out / 4).max(request).max(self.block()).max(1)
    }

    /// What he passes.
    pub(in crate::wave) fn passes(&self) -> &Passes {
        &self.passes
    }

    /// The same, to count one more read.
    pub(in crate::wave) fn passes_mut(&mut self) -> &mut Passes {
        &mut self.passes
    }
}

#[cfg(test)]
mod tests {
    use super::Manner;

    #[test]
    fn who_skips_hops_or_goes_by_blocks_may_be_farther_off() {
        let mut manner = Manner::default();
        assert_eq!((manner.slack(64), manner.slack_behind(64, 2), manner.mark_pages()), (16, 16, 1));
        manner.skipped(20);
        manner.skipped(5);
        assert_eq!((manner.slack(64), manner.slack_behind(64, 2), manner.mark_pages()), (20, 16, 20));
        manner.hopped(30);
        assert_eq!((manner.hops(), manner.mark_pages()), (true, 30));
        let manner = manner.by_blocks(40);
        assert_eq!((manner.slack(64), manner.slack_behind(64, 2)), (40, 40));
    }

    #[test]
    fn two_marks_overlooked_in_a_row_are_no_chance() {
        let mut manner = Manner::default();
        let overlooks = [true, false, true, true].map(|one| {
            manner.overlooked(one);
            manner.overlooks()
        });
        assert_eq!(overlooks, [false, false, false, true]);
    }
}
