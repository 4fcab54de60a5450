//! R2: a reader who passes more than his reads would wait for has no window.
//!
//! Pages arrive in the order of the file, so a reader that skips pages inside its window waits until those have come as well. However much it skips, it
//! goes on in that window; and where a device answers soon, what is skipped may take longer than if each read had waited alone. How much is skipped
//! nobody tells, since what is there is read without a word. But a mark that is read is heard of, so each mark that the reader came by is a sample of
//! one page:
//!
//! ```text
//! what an index finds: 4 pages every 26 on the average, so of 24 marks about 4 are heard, and for one of them 20 / 4.5 = 4.4 are not
//! ssd, 100 us, 12 pages of 500 MB/s     4.4 * 4 = 17 pages are passed with each read, more than 12 and a quarter: no more windows
//! nfs, 1 ms, 61 pages                   17 are less than 61: he reads on
//! ```
//!
//! What he goes back to he has not passed, and where the page before a read was read, a mark may have been set behind him. His next reads are strays.
//! Where he goes on page by page again, another stream begins.

use crate::units::{Extent, PAGE_SIZE, PageIndex};
use crate::wave::Wave;
use crate::wave::streams::stream::{Course, Stream, StreamId};

/// Marks that are not judged by yet.
const MARKS_MIN: u32 = 24;
/// Marks after which each of them counts half.
const MARKS_MAX: u32 = 64;
/// What is passed costs more if it takes so many quarters of the waits: where the two are near one another, going on is the surer way.
const QUARTERS: u64 = 5;

/// How it became known that a reader came by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::wave) enum Seen {
    /// His read was told; there was a mark in it, or not.
    Read { marked: bool },
    /// Nobody told of the read, but a mark in it was read.
    Mark,
}

/// The marks that a stream's reader came by, and what he read meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passes {
    heard: u32,
    unheard: u32,
    reads: u64,
    pages: u64,
}

impl Passes {
    /// A read of so many pages, if it was told, passed `unheard` marks and told of one that it `heard`.
    pub(in crate::wave) fn read(&mut self, pages: Option<u64>, unheard: u64, heard: bool) {
        if self.heard.saturating_add(self.unheard) >= MARKS_MAX {
            let Self { heard, unheard, reads, pages } = self;
            [heard, unheard].into_iter().for_each(|marks| *marks /= 2);
            [reads, pages].into_iter().for_each(|count| *count /= 2);
        }
        self.heard += u32::from(heard);
        self.unheard = self.unheard.saturating_add(u32::try_from(unheard).unwrap_or(u32::MAX));
        self.reads += u64::from(pages.is_some());
        self.pages += pages.unwrap_or(0);
    }

    /// Whether reads as large as those pass more with each than the `unit` pages that come while one of them waits alone.
    pub(in crate::wave) fn cost_more(&self, unit: u64) -> bool {
        let (heard, unheard) = (u64::from(self.heard), u64::from(self.unheard));
        let passed = 4 * unheard * self.pages;
        heard + unheard >= u64::from(MARKS_MIN) && 2 * passed > QUARTERS * (2 * heard + 1) * unit * self.reads
    }
}

impl Wave {
    /// R2: which marks a read of a stream has passed, and whether it told of one; what is left of the one before is none.
    pub(in crate::wave) fn pass_marks(&mut self, sid: StreamId, pages: Extent, seen: Seen) {
        let Some(s) = self.streams.get_mut(sid).filter(|s| s.manner.block() == 0) else { return };
        let (from, to) = (pages.start.0, pages.end().0);
        let (passed, comes_back, before) = match s.course {
            Course::Forward => (s.next.min(from)..from, to <= s.next, from.checked_sub(1)),
            Course::Backward => (to..s.next.max(to), from >= s.next, Some(to)),
            _ => return,
        };
        let passed = Extent::between(PageIndex(passed.start), PageIndex(passed.end));
        let Some(f) = self.files.get(&s.file).filter(|f| !f.told.all()) else { return };
        let whole = |mark: &Extent| mark.start.0 != s.next && mark.end().0 != s.next;
        let unheard = f.unheard(passed, before).filter(whole).count();
        let (told, heard) = match seen {
            Seen::Read { marked } => (Some(pages.count.0), marked),
            Seen::Mark => (None, true),
        };
        s.manner.passes_mut().read(told, unheard as u64, heard || comes_back);
    }

    /// R2: whether its reader passes more than his reads would wait for, each by itself.
    pub(in crate::wave) fn passes_too_much(&self, s: &Stream) -> bool {
        let device = self.files.get(&s.file).and_then(|f| self.queues.get(&f.device)).map(|q| &q.device);
        device.is_some_and(|d| {
            d.rate().is_some() && s.manner.passes().cost_more(d.bytes_per_latency().0 / PAGE_SIZE)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of four pages by which so many marks were heard and so many not.
    fn after(heard: u64, unheard: u64) -> Passes {
        let mut passes = Passes::default();
        (0..heard).for_each(|_| passes.read(Some(4), 0, true));
        (0..unheard).for_each(|_| passes.read(Some(4), 1, false));
        passes
    }

    /// The worked example.
    #[test]
    fn who_skips_much_is_better_left_alone() {
        assert!(after(4, 20).cost_more(12) && !after(4, 20).cost_more(61));
        assert!(!after(4, 19).cost_more(12), "so few marks are no sample");
        assert!(!after(6, 18).cost_more(12), "11 pages with each read, and 12 with each wait");
    }

    #[test]
    fn who_reads_in_order_again_is_believed_again() {
        let mut passes = after(0, 200);
        assert!(passes.cost_more(12));
        (0..64).for_each(|_| passes.read(Some(4), 0, true));
        assert!(!passes.cost_more(12), "what is long ago counts little");
    }
}
