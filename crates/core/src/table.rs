//! A file's pages, five bits each: which are present, in flight, ahead, used, marked.
//!
//! The table holds no page, only what is known of it. It is sparse: a file of a terabyte of which ten pages were
//! touched costs a few hundred bytes. Sixty-four pages make a *leaf* (one word a bit), sixty-four leaves a *chunk*; a
//! chunk keeps only the leaves that have a bit set, packed, and finds one by counting the bits before it.
//!
//! ```text
//! page         0 ........ 63 | 64 ...... 127 | 128 ............. 4095 | 4096 ...
//! chunk 0      leaf 0          leaf 1          (none)                   chunk 1
//! present      11111...1111    11110...0000
//! in_flight    00000...0000    00001...1100
//! resident     11111...1111    11111...1100                             = present | in_flight
//!              one compare     one count of leading or trailing ones
//! ```
//!
//! A hole search therefore looks once at each leaf that it passes, not once at each page: where a reader of 64-page
//! windows looks back over `8 * 64` pages, a search slot by slot takes 512 looks. This table takes 8 comparisons of
//! whole leaves and, in the one leaf that is not full, passes 32 slots on average (spec 1.4, T17) -- and those in one
//! instruction. [`PageTable::history_counting`] counts both.

mod chunk;

use crate::chunks::Chunks;
use crate::units::{Bytes, Extent, PageCount, PageIndex};
use crate::view::View;
use alloc::vec::Vec;
use chunk::{CHUNK_PAGES, Chunk, LEAF_PAGES, Leaf, Select, leaf_masks};
use core::mem::size_of;

/// One fact about a page. The table attaches no rule to them; `ahead` and `used` are what a driver says they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PageBit {
    /// In memory.
    Present,
    /// Being fetched.
    InFlight,
    /// Brought in by readahead and not yet read.
    Ahead,
    /// Read at least once.
    Used,
    /// Carries the mark: reading it asks for the next window (spec 1.3).
    Mark,
}

impl PageBit {
    /// Every bit.
    pub const ALL: [Self; 5] = [Self::Present, Self::InFlight, Self::Ahead, Self::Used, Self::Mark];
}

/// Everything that the table knows of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageState {
    /// In memory.
    pub present: bool,
    /// Being fetched.
    pub in_flight: bool,
    /// Brought in by readahead and not yet read.
    pub ahead: bool,
    /// Read at least once.
    pub used: bool,
    /// Carries the mark.
    pub mark: bool,
}

/// What a hole search looked at (T17).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Visits {
    /// Leaves answered by one comparison: full of resident pages, or without any.
    pub leaves: u64,
    /// Slots passed inside the leaves that were neither. One instruction a leaf here, one look a slot in a search that
    /// has no bitmap.
    pub slots: u64,
}

/// Chunks of the first gibibyte: their row takes 2 KiB at most.
const CHUNKS_NEAR: usize = 64;

/// A file's pages as bitmaps, bounded by the pages that have a bit set.
#[derive(Clone, Debug, Default)]
pub struct PageTable {
    end_of_file: PageIndex,
    /// By page index / 4096. No chunk is empty.
    chunks: Chunks<Chunk, CHUNKS_NEAR>,
    /// Leaves that the chunks have room for, counted as it changes: the library asks after every miss.
    room: usize,
}

impl PageTable {
    /// An empty table of a file of `end_of_file` pages.
    pub fn new(end_of_file: PageIndex) -> Self {
        Self { end_of_file, chunks: Chunks::default(), room: 0 }
    }

    /// Tells the file's size in pages. Pages past a smaller size are forgotten.
    pub fn set_end_of_file(&mut self, end_of_file: PageIndex) {
        if end_of_file < self.end_of_file {
            self.forget(Extent::between(end_of_file, PageIndex(u64::MAX)));
        }
        self.end_of_file = end_of_file;
    }

    /// The file's size in pages.
    pub(crate) fn end(&self) -> PageIndex {
        self.end_of_file
    }

    /// Sets `bit` on the pages of `extent` and returns how many had it clear.
    ///
    /// A page past the end of the file does not exist: it is passed over, so that the table stays bounded by the file.
    pub fn set(&mut self, bit: PageBit, extent: Extent) -> PageCount {
        let mut changed = 0;
        self.fill(extent, |_, leaf, mask| changed += leaf.set(bit, mask));
        PageCount(changed)
    }

    /// Clears `bit` on the pages of `extent` and returns how many had it set.
    pub fn clear(&mut self, bit: PageBit, extent: Extent) -> PageCount {
        let mut changed = 0;
        self.edit(extent, |_, leaf, mask| changed += leaf.clear(bit, mask));
        PageCount(changed)
    }

    /// Clears every bit on the pages of `extent`: they were evicted, or never were.
    pub fn forget(&mut self, extent: Extent) {
        self.edit(extent, |_, leaf, mask| leaf.forget(mask));
    }

    /// Clears every bit on the pages of `extent`, and names them in order: runs of those that were ahead, and of those that were not.
    pub(crate) fn lose(&mut self, extent: Extent, mut lost: impl FnMut(Extent, bool)) {
        self.edit(extent, |at, leaf, mask| {
            let ahead = leaf.word(Select::Bit(PageBit::Ahead));
            let (mut from, end) = (mask.trailing_zeros(), u64::BITS - mask.leading_zeros());
            while from < end {
                let was_ahead = ahead >> from & 1 == 1;
                let alike = if was_ahead { ahead } else { !ahead } >> from;
                let len = alike.trailing_ones().min(end - from);
                lost(Extent { start: at + PageCount(from.into()), count: PageCount(len.into()) }, was_ahead);
                from += len;
            }
            leaf.forget(mask);
        });
    }

    /// What was in flight of `extent` is present.
    pub(crate) fn arrived(&mut self, extent: Extent) {
        self.edit(extent, |_, leaf, mask| {
            let came = leaf.word(Select::Bit(PageBit::InFlight)) & mask;
            leaf.set(PageBit::Present, came);
            leaf.clear(PageBit::InFlight, came);
        });
    }

    /// `page`, which is present, is read: it is used, and ahead no more. Whether it was ahead.
    pub(crate) fn used(&mut self, page: PageIndex) -> bool {
        let Some((leaf, mask)) = self.leaf_mut(page) else { return false };
        leaf.set(PageBit::Used, mask);
        leaf.clear(PageBit::Ahead, mask) > 0
    }

    /// The pages of `extent` that are neither present nor in flight, as far as the file goes: they are in flight and ahead now. As runs, in
    /// order.
    pub(crate) fn fetch(&mut self, extent: Extent) -> Vec<Extent> {
        let mut fetched: Vec<Extent> = Vec::new();
        self.fill(extent, |at, leaf, mask| {
            let missing = mask & !leaf.word(Select::Resident);
            leaf.set(PageBit::InFlight, missing);
            leaf.set(PageBit::Ahead, missing);
            for run in runs_of_bits(at, missing) {
                match fetched.last_mut() {
                    Some(last) if last.end() == run.start => last.count += run.count,
                    _ => fetched.push(run),
                }
            }
        });
        fetched
    }

    /// Whether `bit` is set on `page`.
    pub fn has(&self, bit: PageBit, page: PageIndex) -> bool {
        self.leaf(page).is_some_and(|(leaf, mask)| leaf.word(Select::Bit(bit)) & mask != 0)
    }

    /// Everything known of `page`.
    pub fn state(&self, page: PageIndex) -> PageState {
        let Some((leaf, mask)) = self.leaf(page) else { return PageState::default() };
        let has = |bit| leaf.word(Select::Bit(bit)) & mask != 0;
        PageState {
            present: has(PageBit::Present),
            in_flight: has(PageBit::InFlight),
            ahead: has(PageBit::Ahead),
            used: has(PageBit::Used),
            mark: has(PageBit::Mark),
        }
    }

    /// `bit` of the 64 pages from `64 * leaf`, one bit a page, the lowest first.
    pub fn word(&self, bit: PageBit, leaf: u64) -> u64 {
        self.leaf(PageIndex(leaf.saturating_mul(LEAF_PAGES)))
            .map_or(0, |(leaf, _)| leaf.word(Select::Bit(bit)))
    }

    /// How many pages of `extent` have `bit` set.
    pub fn count(&self, bit: PageBit, extent: Extent) -> PageCount {
        self.count_of(Select::Bit(bit), extent)
    }

    /// How many pages of `extent` are present or in flight.
    pub fn resident(&self, extent: Extent) -> PageCount {
        self.count_of(Select::Resident, extent)
    }

    /// The runs of pages within `extent` that have `bit` set, in order.
    pub fn runs(&self, bit: PageBit, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        self.runs_of(Select::Bit(bit), true, extent)
    }

    /// The runs of pages within `extent` that are neither present nor in flight, in order. A hole may reach past the
    /// end of the file; clip `extent` first where that matters.
    pub fn holes(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        self.runs_of(Select::Resident, false, extent)
    }

    /// [`View::history`], and what the search looked at.
    pub fn history_counting(&self, page: PageIndex, limit: PageCount) -> (PageCount, Visits) {
        let mut visits = Visits::default();
        let from = page.0.saturating_sub(limit.0);
        let hole = self.last_hole(from, page.0, &mut visits);
        (PageCount(page.0 - hole.map_or(from, |hole| hole + 1)), visits)
    }

    /// Bytes that the table itself takes, about: its leaves and its chunks. O(1).
    pub fn bytes_of_memory(&self) -> Bytes {
        Bytes((size_of::<Self>() + self.chunks.bytes_of_memory() + self.room * size_of::<Leaf>()) as u64)
    }

    fn leaf(&self, page: PageIndex) -> Option<(&Leaf, u64)> {
        let chunk = self.chunks.get(page.0 / CHUNK_PAGES)?;
        let leaf = chunk.get((page.0 % CHUNK_PAGES / LEAF_PAGES) as u32)?;
        Some((leaf, 1 << (page.0 % LEAF_PAGES)))
    }

    fn leaf_mut(&mut self, page: PageIndex) -> Option<(&mut Leaf, u64)> {
        let chunk = self.chunks.get_mut(page.0 / CHUNK_PAGES)?;
        let leaf = chunk.get_mut((page.0 % CHUNK_PAGES / LEAF_PAGES) as u32)?;
        Some((leaf, 1 << (page.0 % LEAF_PAGES)))
    }

    /// Applies `f`, which sets a bit, to the leaves of `extent`, as far as the file goes, each with its first page; those that are not there
    /// are made.
    fn fill(&mut self, extent: Extent, mut f: impl FnMut(PageIndex, &mut Leaf, u64)) {
        let (mut page, end) = (extent.start.0, extent.end().min(self.end_of_file).0);
        while page < end {
            let base = page - page % CHUNK_PAGES;
            let stop = end.min(base.saturating_add(CHUNK_PAGES));
            let chunk = self.chunks.get_or_insert_with(base / CHUNK_PAGES, Chunk::default);
            let before = chunk.room();
            for (leaf, mask) in leaf_masks(page - base, stop - base) {
                f(PageIndex(base + u64::from(leaf) * LEAF_PAGES), chunk.leaf_or_new(leaf), mask);
            }
            self.room += chunk.room() - before;
            page = stop;
        }
    }

    /// Applies `f` to the leaves of `extent` that exist, each with its first page, and frees those that it emptied.
    fn edit(&mut self, extent: Extent, mut f: impl FnMut(PageIndex, &mut Leaf, u64)) {
        if extent.is_empty() {
            return;
        }
        let (from, end) = (extent.start.0, extent.end().0);
        let (first, last) = (from / CHUNK_PAGES, (end - 1) / CHUNK_PAGES);
        let mut emptied = Vec::new();
        let mut edit_chunk = |key: u64, chunk: &mut Chunk| {
            let base = key * CHUNK_PAGES;
            let before = chunk.room();
            for (leaf, mask) in leaf_masks(from.saturating_sub(base), (end - base).min(CHUNK_PAGES)) {
                let at = PageIndex(base + u64::from(leaf) * LEAF_PAGES);
                chunk.edit(leaf, |leaf| f(at, leaf, mask));
            }
            self.room -= before - chunk.room();
            if chunk.is_empty() {
                emptied.push(key);
            }
        };
        // To look one chunk up is much cheaper than to look up the ends of a range, and most edits lie in one.
        if first == last {
            if let Some(chunk) = self.chunks.get_mut(first) {
                edit_chunk(first, chunk);
            }
        } else {
            self.chunks.range_mut(first, last).for_each(|(key, chunk)| edit_chunk(key, chunk));
        }
        for key in emptied {
            let chunk = self.chunks.remove(key).expect("it was seen above");
            self.room -= chunk.room();
        }
    }

    fn count_of(&self, select: Select, extent: Extent) -> PageCount {
        if extent.is_empty() {
            return PageCount(0);
        }
        let (from, end) = (extent.start.0, extent.end().0);
        let (first, last) = (from / CHUNK_PAGES, (end - 1) / CHUNK_PAGES);
        let in_chunk = |key: u64, chunk: &Chunk| -> u64 {
            let base = key * CHUNK_PAGES;
            leaf_masks(from.saturating_sub(base), (end - base).min(CHUNK_PAGES))
                .map(|(leaf, mask)| u64::from((chunk.word(leaf, select) & mask).count_ones()))
                .sum()
        };
        PageCount(if first == last {
            self.chunks.get(first).map_or(0, |chunk| in_chunk(first, chunk))
        } else {
            self.chunks.range(first, last).map(|(key, chunk)| in_chunk(key, chunk)).sum()
        })
    }

    fn runs_of(&self, select: Select, want: bool, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let end = extent.end().0;
        let mut at = extent.start.0;
        core::iter::from_fn(move || {
            let start = self.first(select, want, at, end)?;
            at = self.first(select, !want, start, end).unwrap_or(end);
            Some(Extent::between(PageIndex(start), PageIndex(at)))
        })
    }

    /// The first page of `[from, end)` that is selected (`want`) or is not (`!want`).
    fn first(&self, select: Select, want: bool, from: u64, end: u64) -> Option<u64> {
        let mut page = from;
        while page < end {
            let key = page / CHUNK_PAGES;
            let base = key * CHUNK_PAGES;
            let Some(chunk) = self.chunks.get(key) else {
                // Pages between chunks have no bit set.
                if !want {
                    return Some(page);
                }
                page = self.chunks.range(key, u64::MAX).next()?.0 * CHUNK_PAGES;
                continue;
            };
            for (leaf, mask) in leaf_masks(page - base, (end - base).min(CHUNK_PAGES)) {
                let word = chunk.word(leaf, select);
                let found = if want { word } else { !word } & mask;
                if found != 0 {
                    return Some(base + u64::from(leaf) * LEAF_PAGES + u64::from(found.trailing_zeros()));
                }
            }
            page = base.saturating_add(CHUNK_PAGES);
        }
        None
    }

    /// The last page of `[from, end)` that is neither present nor in flight.
    fn last_hole(&self, from: u64, end: u64, visits: &mut Visits) -> Option<u64> {
        let mut end = end;
        while from < end {
            let key = (end - 1) / CHUNK_PAGES;
            let Some(chunk) = self.chunks.get(key) else { return Some(end - 1) };
            let base = key * CHUNK_PAGES;
            for (leaf, mask) in leaf_masks(from.saturating_sub(base), end - base).rev() {
                let word = chunk.word(leaf, Select::Resident);
                let found = !word & mask;
                let looked = if found == 0 { mask } else { mask & !(u64::MAX >> found.leading_zeros() >> 1) };
                match word {
                    0 | u64::MAX => visits.leaves += 1,
                    _ => visits.slots += u64::from(looked.count_ones()),
                }
                if found != 0 {
                    return Some(base + u64::from(leaf) * LEAF_PAGES + u64::from(63 - found.leading_zeros()));
                }
            }
            end = base;
        }
        None
    }
}

impl View for PageTable {
    fn end_of_file(&self) -> PageIndex {
        self.end_of_file
    }

    fn present(&self, page: PageIndex) -> bool {
        self.leaf(page).is_some_and(|(leaf, mask)| leaf.word(Select::Resident) & mask != 0)
    }

    fn next_hole(&self, from: PageIndex, limit: PageCount) -> PageIndex {
        let end = from + limit;
        self.first(Select::Resident, false, from.0, end.0).map_or(end, PageIndex)
    }

    fn history(&self, page: PageIndex, limit: PageCount) -> PageCount {
        self.history_counting(page, limit).0
    }
}

/// The runs of pages whose bits are set, upwards: a bit a page, that of `first` the lowest. 0b1101 from page 64 on: [64, 65) and [66, 68).
pub fn runs_of_bits(first: PageIndex, mut bits: u64) -> impl Iterator<Item = Extent> {
    core::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let from = bits.trailing_zeros();
        let len = (bits >> from).trailing_ones();
        bits &= !(u64::MAX >> (64 - len) << from);
        Some(Extent { start: first + PageCount(from.into()), count: PageCount(len.into()) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// The same table without any cleverness: five bools a page.
    struct Model {
        pages: Vec<[bool; 5]>,
    }

    impl Model {
        fn resident(&self, page: u64) -> bool {
            let bits = self.pages[page as usize];
            bits[PageBit::Present as usize] || bits[PageBit::InFlight as usize]
        }
        fn runs(&self, extent: Extent, f: impl Fn(u64) -> bool) -> Vec<Extent> {
            let mut runs: Vec<Extent> = Vec::new();
            for page in extent.start.0..extent.end().0 {
                match runs.last_mut() {
                    _ if !f(page) => {}
                    Some(run) if run.end().0 == page => run.count += PageCount(1),
                    _ => runs.push(Extent::new(page, 1)),
                }
            }
            runs
        }
        fn history(&self, page: u64, limit: u64) -> u64 {
            (0..limit.min(page)).take_while(|i| self.resident(page - 1 - i)).count() as u64
        }
        fn next_hole(&self, from: u64, limit: u64) -> u64 {
            (from..from + limit).find(|&page| !self.resident(page)).unwrap_or(from + limit)
        }
    }

    /// A small generator with a fixed seed (the constants are Knuth's MMIX).
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % n
        }
    }

    /// Every answer of the table about `extent` equals the model's.
    fn check(table: &PageTable, model: &Model, extent: Extent) {
        for (i, bit) in PageBit::ALL.into_iter().enumerate() {
            let expected = model.runs(extent, |page| model.pages[page as usize][i]);
            assert_eq!(table.runs(bit, extent).collect::<Vec<_>>(), expected, "{bit:?} in {extent}");
            let expected = expected.iter().fold(PageCount(0), |sum, run| sum + run.count);
            assert_eq!(table.count(bit, extent), expected, "{bit:?} in {extent}");
        }
        let holes = model.runs(extent, |page| !model.resident(page));
        let absent = holes.iter().fold(PageCount(0), |sum, run| sum + run.count);
        assert_eq!(table.holes(extent).collect::<Vec<_>>(), holes, "holes of {extent}");
        assert_eq!(table.resident(extent), extent.count - absent, "resident in {extent}");
        let (page, limit) = (extent.start, extent.count);
        assert_eq!(table.present(page), model.resident(page.0), "page {page}");
        assert_eq!(table.next_hole(page, limit).0, model.next_hole(page.0, limit.0), "next hole of {extent}");
        assert_eq!(
            table.history(page, limit).0,
            model.history(page.0, limit.0),
            "history of {page}, {limit}"
        );
    }

    #[test]
    fn bits_have_runs() {
        let runs = |bits| runs_of_bits(PageIndex(64), bits).map(|run| (run.start.0, run.count.0)).collect();
        let cases: [(u64, Vec<(u64, u64)>); 5] = [
            (0, vec![]),
            (0b1101, vec![(64, 1), (66, 2)]),
            (!0, vec![(64, 64)]),
            (1 << 63, vec![(127, 1)]),
            (!0 << 62 | 1, vec![(64, 1), (126, 2)]),
        ];
        for (bits, wanted) in cases {
            let found: Vec<(u64, u64)> = runs(bits);
            assert_eq!(found, wanted, "{bits:b}");
        }
    }

    #[test]
    fn answers_as_a_plain_list_of_pages_would() {
        const PAGES: u64 = 3 * CHUNK_PAGES;
        let (mut table, mut model) =
            (PageTable::new(PageIndex(PAGES)), Model { pages: vec![[false; 5]; PAGES as usize] });
        let mut dice = Dice(7);
        for _ in 0..3_000 {
            let start = dice.below(PAGES);
            let longest = if dice.below(8) == 0 { PAGES } else { 200 };
            let extent = Extent::new(start, dice.below(longest).min(PAGES - start));
            let bit = PageBit::ALL[dice.below(5) as usize];
            let had = table.count(bit, extent);
            let pages = &mut model.pages[start as usize..extent.end().0 as usize];
            match dice.below(9) {
                0 => {
                    table.forget(extent);
                    pages.fill([false; 5]);
                }
                8 => {
                    let holes = model.runs(extent, |page| !model.resident(page));
                    assert_eq!(table.fetch(extent), holes, "fetched of {extent}");
                    for page in holes.iter().flat_map(|hole| hole.start.0..hole.end().0) {
                        model.pages[page as usize][PageBit::InFlight as usize] = true;
                        model.pages[page as usize][PageBit::Ahead as usize] = true;
                    }
                }
                1..4 => {
                    assert_eq!(table.clear(bit, extent), had);
                    pages.iter_mut().for_each(|page| page[bit as usize] = false);
                }
                _ => {
                    assert_eq!(table.set(bit, extent), extent.count - had);
                    pages.iter_mut().for_each(|page| page[bit as usize] = true);
                }
            }
            let state = table.state(extent.start);
            let bits = [state.present, state.in_flight, state.ahead, state.used, state.mark];
            assert_eq!(bits, model.pages[start as usize]);
            assert_eq!(bits, PageBit::ALL.map(|bit| table.has(bit, extent.start)));
            let room: usize = table.chunks.range(0, u64::MAX).map(|(_, chunk)| chunk.room()).sum();
            assert_eq!(table.room, room, "room is counted as it changes");
            table.chunks.range(0, u64::MAX).for_each(|(_, chunk)| chunk.check());
            let start = dice.below(PAGES);
            check(&table, &model, Extent::new(start, dice.below(600).min(PAGES - start)));
        }
        check(&table, &model, Extent::new(0, PAGES));
    }

    /// Every extent and every hole around the border of two leaves and of two chunks.
    #[test]
    fn leaf_and_chunk_borders_are_no_borders() {
        for border in [LEAF_PAGES, CHUNK_PAGES] {
            let pages = border + 8;
            let low = border - 6;
            for start in low..pages {
                for end in start..pages {
                    let mut table = PageTable::new(PageIndex(pages));
                    let extent = Extent::between(PageIndex(start), PageIndex(end));
                    table.set(PageBit::Present, extent);
                    let mut model = Model { pages: vec![[false; 5]; pages as usize] };
                    (start..end).for_each(|page| model.pages[page as usize][0] = true);
                    for from in low..pages {
                        for to in from..pages {
                            check(&table, &model, Extent::between(PageIndex(from), PageIndex(to)));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn costs_what_was_touched() {
        let terabyte = PageIndex(1 << 28);
        let mut table = PageTable::new(terabyte);
        let empty = table.bytes_of_memory();
        for i in 0..10 {
            table.set(PageBit::Present, Extent::new(i << 24, 1));
        }
        assert!(table.bytes_of_memory().0 < 4096, "ten pages cost {} bytes", table.bytes_of_memory());
        table.set(PageBit::Used, Extent::new(5 << 24, 1));
        table.clear(PageBit::Present, Extent::new(0, terabyte.0));
        table.clear(PageBit::Used, Extent::new(0, u64::MAX));
        assert_eq!(table.bytes_of_memory(), empty);
    }

    #[test]
    fn the_file_ends_where_it_ends() {
        let mut table = PageTable::new(PageIndex(10));
        assert_eq!(table.set(PageBit::Present, Extent::new(8, u64::MAX)), PageCount(2));
        assert_eq!(table.set(PageBit::Present, Extent::new(u64::MAX, u64::MAX)), PageCount(0));
        table.set_end_of_file(PageIndex(9));
        assert_eq!(table.resident(Extent::new(0, u64::MAX)), PageCount(1));
        assert_eq!(table.next_hole(PageIndex(8), PageCount(u64::MAX)), PageIndex(9));
        assert_eq!(table.history(PageIndex(u64::MAX), PageCount(u64::MAX)), PageCount(0));
    }

    /// T17: a reader with windows of 64 pages looks back over `8 * 64`. Slot by slot that is 512 looks; leaf by leaf
    /// it is 8 whole leaves and, over all positions of the reader in its own leaf, 32 slots on average.
    #[test]
    fn hole_search_of_t17() {
        let (limit, from) = (PageCount(8 * 64), 10 * LEAF_PAGES);
        let (mut leaves, mut slots) = (0, 0);
        for page in (from..from + LEAF_PAGES).map(PageIndex) {
            let mut table = PageTable::new(PageIndex(1 << 20));
            table.set(PageBit::Present, Extent::between(PageIndex(0), page));
            let (history, visits) = table.history_counting(page, limit);
            assert_eq!(history, limit);
            leaves += visits.leaves;
            slots += visits.slots;
        }
        // Sixty-four positions: 8 leaves each; 0 to 63 slots in the reader's own leaf, 31.5 on average.
        assert_eq!((leaves, slots), (64 * 8, 63 * 64 / 2));
    }
}
