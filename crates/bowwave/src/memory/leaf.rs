//! Leaves: 64 pages of a file each, found without a lock, pinned while they are used.

use super::frames::{Arena, FRAME};
use super::gate::Gate;
use super::mapping::{Zero, Zeroed};
use super::{LEAF, LEAVES_MAX, Run, mask};
use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// From 2 KiB on libc copies by `rep movsb`, which current AMD processors do twenty times slower where the target lies a few
/// bytes behind the source modulo 4096; a large buffer from malloc always does, by 16. There a copy is made in pieces.
const PIECE: usize = 512;
const PIECE_NEAR: usize = 64;

/// Pages that a leaf keeps in one 320-byte record, so 5 bytes a page where a file is cached whole.
#[repr(C, align(64))]
struct Leaf {
    gate: Gate,
    /// The next leaf of its chain, plus one; of the free list where it is free.
    next: AtomicU32,
    /// Pages present or in flight; the leaf is given up at 0.
    residents: AtomicU32,
    /// Pages of which nobody needs to hear.
    quiet: AtomicU64,
    /// Pages read since somebody looked.
    used: AtomicU64,
    frames: [AtomicU32; LEAF as usize],
}

// SAFETY: made of atomics only.
unsafe impl Zero for Leaf {}
// SAFETY: likewise.
unsafe impl Zero for AtomicU32 {}

/// Frames, leaves and the way to them.
pub(crate) struct Memory {
    /// Which of all that this process ever had, by which a [`PinnedLeaf`] knows its own.
    serial: NonZeroU32,
    arena: Arena,
    leaves: Zeroed<Leaf>,
    table: Zeroed<AtomicU32>,
    /// Leaves that were ever in use: what they take.
    touched: AtomicU32,
    free: AtomicU32,
}

/// What came of an attempt to copy without a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copied {
    /// Bytes that were copied, from the front.
    pub(crate) bytes: usize,
    /// Pages of it were used for the first time since somebody looked.
    pub(crate) fresh: bool,
}

/// Which part of which file. A leaf past [`LEAVES_MAX`] would be one of another file.
#[inline]
const fn key(file: u32, leaf: u64) -> u64 {
    assert!(leaf < LEAVES_MAX, "no file has so many leaves: Engine::open refuses it");
    (file as u64) << 32 | leaf
}

/// A number that no other memory has.
fn next_serial() -> NonZeroU32 {
    static LATEST: AtomicU32 = AtomicU32::new(0);
    let before = LATEST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |latest| latest.checked_add(1));
    let serial = before.expect("a process makes fewer than 2^32 caches") + 1;
    NonZeroU32::new(serial).expect("one more than another")
}

impl Memory {
    /// Room for `frames` frames; at worst each lies in a leaf of its own.
    pub(crate) fn new(frames: u32) -> io::Result<Self> {
        let buckets = (frames / 8).max(64).next_power_of_two();
        Ok(Self {
            serial: next_serial(),
            arena: Arena::new(frames)?,
            leaves: Zeroed::new(frames as usize)?,
            table: Zeroed::new(buckets as usize)?,
            touched: AtomicU32::new(0),
            free: AtomicU32::new(0),
        })
    }

    /// Bytes of leaves that were ever in use, and of the way to them.
    pub(crate) fn bytes_of_leaves(&self) -> u64 {
        let leaves = self.touched.load(Ordering::Relaxed) as usize * size_of::<Leaf>();
        (leaves.next_multiple_of(4096) + self.table.len() * size_of::<AtomicU32>()) as u64
    }

    #[inline]
    fn bucket(&self, key: u64) -> &AtomicU32 {
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.table[hash as usize & (self.table.len() - 1)]
    }

    /// Finds a leaf. Chains change under a reader, who may lose his way: then he finds nothing, and asks under the lock.
    #[inline]
    fn find(&self, key: u64) -> Option<u32> {
        let mut at = self.bucket(key).load(Ordering::Acquire);
        for _ in 0..64 {
            let number = at.checked_sub(1)?;
            let leaf = &self.leaves[number as usize];
            if leaf.gate.key() == key {
                return Some(number);
            }
            at = leaf.next.load(Ordering::Acquire);
        }
        None
    }

    /// Pins the leaf of that part of a file, if there is one.
    #[inline]
    pub(crate) fn pin(&self, file: u32, leaf: u64) -> Option<Pin<'_>> {
        let key = key(file, leaf);
        let number = self.find(key)?;
        let leaf = &self.leaves[number as usize];
        let present = leaf.gate.enter(key)?;
        Some(Pin { memory: self, number, present })
    }

    /// Copies the bytes from `offset` on into `out`, from the front, as far as pages are present; where `quiet_only`, as
    /// far as they are quiet too. Notes the pages as used.
    #[inline]
    pub(crate) fn copy(&self, file: u32, offset: u64, out: &mut [u8], quiet_only: bool) -> Copied {
        let mut copied = Copied { bytes: 0, fresh: false };
        while copied.bytes < out.len() {
            let at = offset + copied.bytes as u64;
            let page = at / FRAME as u64;
            let Some(pin) = self.pin(file, page / LEAF) else { break };
            let left = (out.len() - copied.bytes) as u64;
            let first = page % LEAF;
            let last = ((at % FRAME as u64 + left - 1) / FRAME as u64 + first).min(LEAF - 1);
            let want = mask(first, last + 1);
            let present = pin.present() & want;
            let loud = want & !pin.leaf().quiet.load(Ordering::Relaxed);
            let good = if quiet_only { present & !loud } else { present };
            let count = u64::from((good >> first).trailing_ones()).min(last + 1 - first);
            if count == 0 {
                break;
            }
            let room = count * FRAME as u64 - at % FRAME as u64;
            let bytes = room.min(left) as usize;
            pin.copy_present(first, at as usize % FRAME, &mut out[copied.bytes..copied.bytes + bytes]);
            copied.fresh |= pin.use_pages(mask(first, first + count));
            copied.bytes += bytes;
            if first + count < last + 1 {
                break;
            }
        }
        copied
    }

    // ---- under the lock of the cache ------------------------------------------------------------------------------

    /// The leaf of that part of a file, made where there was none. Never fails: there is one for each frame.
    fn grow(&self, key: u64) -> u32 {
        if let Some(number) = self.find_surely(key) {
            return number;
        }
        let number = self.take_free();
        let leaf = &self.leaves[number as usize];
        leaf.quiet.store(0, Ordering::Relaxed);
        leaf.used.store(0, Ordering::Relaxed);
        leaf.residents.store(0, Ordering::Relaxed);
        leaf.gate.settle(key);
        let bucket = self.bucket(key);
        leaf.next.store(bucket.load(Ordering::Relaxed), Ordering::Release);
        bucket.store(number + 1, Ordering::Release);
        number
    }

    fn take_free(&self) -> u32 {
        let free = self.free.load(Ordering::Relaxed);
        if let Some(number) = free.checked_sub(1) {
            self.free.store(self.leaves[number as usize].next.load(Ordering::Relaxed), Ordering::Relaxed);
            return number;
        }
        let number = self.touched.fetch_add(1, Ordering::Relaxed);
        assert!((number as usize) < self.leaves.len(), "a leaf holds a page, and a page has a frame");
        number
    }

    /// Under the lock chains do not change, so the way is walked to its end.
    fn find_surely(&self, key: u64) -> Option<u32> {
        let mut at = self.bucket(key).load(Ordering::Relaxed);
        while let Some(number) = at.checked_sub(1) {
            let leaf = &self.leaves[number as usize];
            if leaf.gate.key() == key {
                return Some(number);
            }
            at = leaf.next.load(Ordering::Relaxed);
        }
        None
    }

    /// These pages of a leaf are to come.
    pub(crate) fn expect(&self, file: u32, leaf: u64, count: u64) {
        let number = self.grow(key(file, leaf));
        self.leaves[number as usize].residents.fetch_add(count as u32, Ordering::Relaxed);
    }

    /// Pages that were to come do not.
    pub(crate) fn expect_no_more(&self, file: u32, leaf: u64, count: u64) {
        let number = self.find_surely(key(file, leaf)).expect("a page in flight has a leaf");
        self.left(number, count as u32);
    }

    /// `run` holds the bytes of the pages from `page` on, as many as it is long: from now on readers find them.
    pub(crate) fn publish(&self, file: u32, page: u64, mut run: Run) {
        let mut page = page;
        while run.count > 0 {
            let first = page % LEAF;
            let part = run.take_front((LEAF - first) as u32);
            let number = self.find_surely(key(file, page / LEAF)).expect("a page in flight has a leaf");
            let leaf = &self.leaves[number as usize];
            for i in 0..part.count {
                leaf.frames[first as usize + i as usize].store(part.start + i, Ordering::Relaxed);
            }
            let bits = mask(first, first + part.count());
            leaf.gate.show(bits);
            page += part.count();
        }
    }

    /// Takes a page from the readers; `None` where one of them holds its leaf at this moment. The second value says whether it
    /// was read since somebody looked.
    pub(crate) fn unpublish(&self, file: u32, page: u64) -> Option<(Run, bool)> {
        let number = self.find_surely(key(file, page / LEAF)).expect("a present page has a leaf");
        let leaf = &self.leaves[number as usize];
        let bit = 1 << (page % LEAF);
        if !leaf.gate.take(bit) {
            return None;
        }
        let used = leaf.used.fetch_and(!bit, Ordering::SeqCst) & bit != 0;
        let frame = leaf.frames[(page % LEAF) as usize].load(Ordering::Relaxed);
        self.left(number, 1);
        Some((Run { start: frame, count: 1 }, used))
    }

    /// Whether a page was read since somebody looked.
    pub(crate) fn is_used(&self, file: u32, page: u64) -> bool {
        let Some(number) = self.find_surely(key(file, page / LEAF)) else { return false };
        self.leaves[number as usize].used.load(Ordering::Relaxed) >> (page % LEAF) & 1 != 0
    }

    /// Takes note that somebody looked at a page.
    pub(crate) fn take_used_bit(&self, file: u32, page: u64) {
        if let Some(number) = self.find_surely(key(file, page / LEAF)) {
            self.leaves[number as usize].used.fetch_and(!(1 << (page % LEAF)), Ordering::Relaxed);
        }
    }

    /// Those pages of a leaf, among `of`, that were read since somebody looked; from now on somebody has.
    pub(crate) fn take_used(&self, file: u32, leaf: u64, of: u64) -> u64 {
        let Some(number) = self.find_surely(key(file, leaf)) else { return 0 };
        let used = &self.leaves[number as usize].used;
        if used.load(Ordering::Relaxed) & of == 0 { 0 } else { used.fetch_and(!of, Ordering::Relaxed) & of }
    }

    /// Says which pages of a leaf nobody needs to hear of.
    pub(crate) fn hush(&self, file: u32, leaf: u64, quiet: u64) {
        if let Some(number) = self.find_surely(key(file, leaf)) {
            self.leaves[number as usize].quiet.store(quiet, Ordering::Relaxed);
        }
    }

    /// A leaf lost pages. Without any it is taken out of its chain and given to whoever needs one next; readers that are just
    /// passing see another key.
    fn left(&self, number: u32, count: u32) {
        let leaf = &self.leaves[number as usize];
        if leaf.residents.fetch_sub(count, Ordering::Relaxed) > count {
            return;
        }
        let key = leaf.gate.give_up();
        let next = leaf.next.load(Ordering::Relaxed);
        let bucket = self.bucket(key);
        let mut at = bucket;
        while at.load(Ordering::Relaxed) != number + 1 {
            let before = at.load(Ordering::Relaxed).checked_sub(1).expect("a leaf lies in its chain");
            at = &self.leaves[before as usize].next;
        }
        at.store(next, Ordering::Release);
        leaf.next.store(self.free.load(Ordering::Relaxed), Ordering::Release);
        self.free.store(number + 1, Ordering::Relaxed);
    }

    /// The bytes of runs, for the one who fills them.
    pub(crate) fn slices<'a>(&'a self, runs: &'a mut [Run]) -> Vec<&'a mut [u8]> {
        self.arena.slices(runs)
    }

    /// Gives the memory of retired frames back to the system.
    pub(crate) fn release(&self, runs: Vec<Run>) {
        self.arena.release(runs);
    }
}

/// A leaf that nobody takes a page from.
pub(crate) struct Pin<'a> {
    memory: &'a Memory,
    number: u32,
    /// Pages that were there when it was pinned: they stay, though their bits may go out for a moment.
    present: u64,
}

impl<'a> Pin<'a> {
    #[inline]
    fn leaf(&self) -> &'a Leaf {
        &self.memory.leaves[self.number as usize]
    }

    /// The pages that are there, and stay while the pin is held.
    #[inline]
    pub(crate) const fn present(&self) -> u64 {
        self.present
    }

    #[inline]
    pub(crate) fn quiet(&self) -> u64 {
        self.leaf().quiet.load(Ordering::Relaxed)
    }

    /// Notes that pages were read; whether that is news.
    #[inline]
    pub(crate) fn use_pages(&self, bits: u64) -> bool {
        let used = &self.leaf().used;
        let fresh = used.load(Ordering::Relaxed) & bits != bits;
        if fresh {
            used.fetch_or(bits, Ordering::Relaxed);
        }
        fresh
    }

    /// Copies from byte `skip` of page `first` of the leaf on. The pages must be present.
    #[inline]
    fn copy_present(&self, first: u64, skip: usize, out: &mut [u8]) {
        let pages = (skip + out.len()).div_ceil(FRAME) as u64;
        let want = mask(first, first + pages);
        assert_eq!(self.present & want, want, "what is copied is there");
        let frame = |page: usize| self.leaf().frames[page].load(Ordering::Relaxed);
        let (mut page, mut skip, mut at) = (first as usize, skip, 0);
        while at < out.len() {
            let start = frame(page);
            let mut count = 1;
            while count * FRAME - skip < out.len() - at && frame(page + count) == start + count as u32 {
                count += 1;
            }
            let n = (count * FRAME - skip).min(out.len() - at);
            let from = self.memory.arena.frame(start).wrapping_add(skip);
            let behind = (out.as_ptr() as usize + at).wrapping_sub(from as usize) % FRAME;
            let piece = if behind == 0 || behind >= PIECE_NEAR { n } else { PIECE };
            for (i, piece) in out[at..at + n].chunks_mut(piece).enumerate() {
                // SAFETY: the pages are present and the leaf pinned, so their frames are not written; they lie side by side, and
                // the `n` bytes from `skip` on lie in them; `out` is the caller's own.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.add(i * PIECE), piece.as_mut_ptr(), piece.len());
                }
            }
            (page, skip, at) = (page + count, 0, at + n);
        }
    }

    /// Holds on to the leaf without holding on to its memory.
    pub(crate) fn keep(self) -> PinnedLeaf {
        let pinned = PinnedLeaf { memory: self.memory.serial, number: self.number, present: self.present };
        std::mem::forget(self);
        pinned
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.leaf().gate.leave();
    }
}

/// A pin that does not borrow its memory: its keeper has that, and hands it in. There is one of these for each time that the leaf was
/// pinned, and it ends with [`PinnedLeaf::unpin`]. Dropped instead, the leaf stays pinned for good: no byte is wrong then, but
/// whoever closes its file waits for ever.
#[derive(Debug)]
pub(crate) struct PinnedLeaf {
    memory: NonZeroU32,
    number: u32,
    present: u64,
}

impl PinnedLeaf {
    /// # Panics
    /// If it is a leaf of another memory.
    pub(crate) fn unpin(self, memory: &Memory) {
        self.leaf(memory).gate.leave();
    }

    fn leaf<'a>(&self, memory: &'a Memory) -> &'a Leaf {
        assert_eq!(self.memory, memory.serial, "a leaf of this memory");
        &memory.leaves[self.number as usize]
    }

    /// The bytes from byte `skip` of page `first` on, at most `len`, as far as they lie side by side.
    ///
    /// # Panics
    /// If a page of them is not present, `skip` is past a page, or it is a leaf of another memory.
    pub(crate) fn bytes<'a>(&'a self, memory: &'a Memory, first: u64, skip: usize, len: usize) -> &'a [u8] {
        assert!(skip < FRAME, "a byte of page `first`");
        let leaf = self.leaf(memory);
        let start = leaf.frames[first as usize].load(Ordering::Relaxed);
        let pages = (skip + len).div_ceil(FRAME).min((LEAF - first) as usize);
        let mut count = 1;
        while count < pages
            && leaf.frames[first as usize + count].load(Ordering::Relaxed) == start + count as u32
        {
            count += 1;
        }
        let want = mask(first, first + count as u64);
        assert_eq!(self.present & want, want, "what is pinned is there");
        let len = len.min(count * FRAME - skip);
        // SAFETY: the pages were present when the leaf of this very memory was pinned. It stays so until `unpin` takes `self`, which
        // the slice borrows; so the frames are not written while there is a slice of them. They lie side by side in the arena,
        // which the slice borrows too, and the `len` bytes from `skip` on lie in them.
        unsafe { std::slice::from_raw_parts(memory.arena.frame(start).add(skip), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FreeFrames;
    use super::*;

    fn filled(memory: &Memory, free: &mut FreeFrames, byte: u8) -> Run {
        let run = free.take(1).unwrap();
        let mut runs = [run];
        memory.slices(&mut runs)[0].fill(byte);
        let [run] = runs;
        run
    }

    #[test]
    fn what_is_pinned_is_not_taken() {
        let memory = Memory::new(16).unwrap();
        let mut free = FreeFrames::new(16);
        memory.expect(1, 0, 1);
        memory.publish(1, 3, filled(&memory, &mut free, 7));
        let mut out = [0; 100];
        assert_eq!(memory.copy(1, 3 * 4096 + 50, &mut out, false).bytes, 100);
        assert_eq!(out, [7; 100]);
        let pin = memory.pin(1, 0).unwrap();
        assert!(memory.unpublish(1, 3).is_none(), "somebody holds it");
        drop(pin);
        let (run, used) = memory.unpublish(1, 3).unwrap();
        assert!(used);
        free.give(run);
        assert_eq!(memory.copy(1, 3 * 4096, &mut out, false).bytes, 0);
        assert!(memory.find_surely(key(1, 0)).is_none(), "a leaf without pages is given up");
    }

    #[test]
    fn a_kept_pin_holds_its_page_and_knows_its_memory() {
        let memories = [Memory::new(16).unwrap(), Memory::new(16).unwrap()];
        let mut free = FreeFrames::new(16);
        for (memory, byte) in memories.iter().zip([7, 8]) {
            memory.expect(1, 0, 1);
            memory.publish(1, 3, filled(memory, &mut free, byte));
        }
        let [memory, other] = &memories;
        let kept = memory.pin(1, 0).unwrap().keep();
        assert_eq!(kept.bytes(memory, 3, 4000, 100_000), [7; 96]);
        assert!(memory.unpublish(1, 3).is_none(), "somebody keeps it");
        let caught = |act: &dyn Fn() -> usize| std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        assert!(caught(&|| kept.bytes(other, 3, 0, 1).len()).is_err(), "nobody holds the page of the other");
        assert!(caught(&|| kept.bytes(memory, 3, 4096, 1).len()).is_err(), "past the page");
        assert!(caught(&|| kept.bytes(memory, 4, 0, 1).len()).is_err(), "absent");
        kept.unpin(memory);
        assert!(memory.unpublish(1, 3).is_some());
    }

    #[test]
    fn the_last_leaf_of_a_file_is_none_of_the_next() {
        assert_eq!(key(1, LEAVES_MAX - 1) + 1, key(2, 0));
        let beyond = std::panic::catch_unwind(|| key(1, LEAVES_MAX));
        assert!(beyond.is_err(), "file 1 and its own first leaf, by the bits");
    }

    #[test]
    fn only_quiet_pages_are_copied_quietly() {
        let memory = Memory::new(16).unwrap();
        let mut free = FreeFrames::new(16);
        memory.expect(9, 0, 3);
        for page in 0..3 {
            memory.publish(9, page, filled(&memory, &mut free, page as u8));
        }
        memory.hush(9, 0, 0b101);
        let mut out = [9; 3 * 4096];
        assert_eq!(memory.copy(9, 0, &mut out, true), Copied { bytes: 4096, fresh: true });
        assert_eq!(memory.copy(9, 0, &mut out, false), Copied { bytes: 3 * 4096, fresh: true });
        assert_eq!((out[0], out[4096], out[8192]), (0, 1, 2));
        assert_eq!(memory.take_used(9, 0, !0b100), 0b011);
    }
}
