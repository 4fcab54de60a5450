//! The frames, and the lists that they lie in: two a shard, youngest in front, linked by numbers.
//!
//! ```text
//! list     young <-> ... <-> old        `newer` points left, `older` right
//!
//! frame    file  owner  page, low  page, high : flags : shard  age  newer  older
//! bits     32    32     32         20         : 4     : 8      32   32     32        28 bytes, 0.7 % of its page
//!
//! free     next <-- ... <-- last         linked by `newer` too: a chain that leaves a list lies there as it lay in the list
//! ```
//!
//! Frames that lie side by side leave a list as one [`Chain`]: pages that came together go together, and those that come in
//! their place take their frames in the same order.
//!
//! Every frame carries its *age*: the count of insertions at the moment it came, or came back, to the young end. Ages
//! fall along a list from young to old, so the old ends of two shards can be compared. Of the count the last 32 bits are
//! kept: a page that nothing has moved while 2^32 others came (16 TiB) is taken for a young one where shards are compared.

use crate::units::{Bytes, Extent, FileId, PageCount, PageIndex};
use alloc::vec::Vec;
use core::mem::size_of;

/// No frame: the end of a list, an absent page.
pub(super) const NO_FRAME: u32 = u32::MAX;
/// Pages of a file: as many as 2^64 bytes hold.
pub(super) const PAGES_MAX: u64 = 1 << (32 + PAGE_HIGH_BITS);
/// Shards: their numbers fit 8 bits.
const SHARDS_MAX: usize = 1 << SHARD_BITS;

const PAGE_HIGH_BITS: u32 = 20;
const SHARD_BITS: u32 = 8;
const SHARD_SHIFT: u32 = 32 - SHARD_BITS;

/// Room is made for so many frames at once, at least: 28 KiB.
const GROWTH_MIN: usize = 1024;

/// A frame's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameId(pub(super) u32);

/// A file's short number, while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileSlot(u32);

/// Which list a frame lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum List {
    /// Read once or not yet.
    Inactive,
    /// Read twice or more.
    Active,
}

/// What is noted of a frame: bits of [`Frame::rest`], between the page's and the shard's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flag {
    /// It lies in the active list.
    Active = PAGE_HIGH_BITS as isize,
    /// Its page was read once since it came, or came back, to the inactive list.
    Referenced,
    /// Its page is being fetched.
    InFlight,
    /// Its page was written and not written back.
    Dirty,
}

/// A frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    file: FileSlot,
    pub(super) owner: u32,
    page_low: u32,
    rest: u32,
    age: u32,
    newer: u32,
    older: u32,
}

const _: () = assert!(size_of::<Frame>() == 28, "as the picture says");
const _: () = assert!((Flag::Dirty as u32) < SHARD_SHIFT, "the last flag lies below the shard");

impl Frame {
    pub(super) fn has(&self, flag: Flag) -> bool {
        self.rest >> flag as u32 & 1 == 1
    }

    /// What it was before.
    fn replace(&mut self, flag: Flag, set: bool) -> bool {
        let was = self.has(flag);
        // Not `^=` of `was != set`: where a caller branches on what it was, rustc 1.95 reads `was` unset in an optimised build
        // (rust-lang/rust#158206), and a page that was read again stayed inactive.
        self.rest = self.rest & !(1 << flag as u32) | u32::from(set) << flag as u32;
        was
    }

    /// Whether its page can go: it is neither in flight nor dirty.
    pub(super) fn idle(&self) -> bool {
        self.rest & (1 << Flag::InFlight as u32 | 1 << Flag::Dirty as u32) == 0
    }

    pub(super) fn list(&self) -> List {
        if self.has(Flag::Active) { List::Active } else { List::Inactive }
    }

    pub(super) fn shard(&self) -> usize {
        (self.rest >> SHARD_SHIFT) as usize
    }

    pub(super) fn page(&self) -> PageIndex {
        let high = self.rest & ((1 << PAGE_HIGH_BITS) - 1);
        PageIndex(u64::from(high) << 32 | u64::from(self.page_low))
    }
}

/// Frames that lie side by side in one list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chain {
    old: FrameId,
    young: FrameId,
    len: u64,
}

impl Chain {
    pub(super) fn of(id: FrameId) -> Self {
        Self { old: id, young: id, len: 1 }
    }
    pub(super) fn len(&self) -> PageCount {
        PageCount(self.len)
    }
    /// The one at its young end.
    pub(super) fn young(&self) -> FrameId {
        self.young
    }
}

#[derive(Clone, Copy)]
struct Ends {
    young: u32,
    old: u32,
    len: u64,
}

/// Every frame and list.
pub(super) struct Frames {
    frames: Vec<Frame>,
    /// As many are there at most.
    frames_max: usize,
    /// The free frame that is taken next.
    free: u32,
    lists: Vec<[Ends; 2]>,
    /// Of each shard, frames whose page is in flight.
    in_flight: Vec<u64>,
    insertions: u64,
    /// By slot; of a slot in `free_slots` nothing.
    names: Vec<FileId>,
    free_slots: Vec<FileSlot>,
}

impl Frames {
    pub(super) fn new(frames_max: u64, shards: usize) -> Self {
        assert!(frames_max < u64::from(NO_FRAME), "a frame's number fits 32 bits");
        assert!(shards <= SHARDS_MAX, "a shard's number fits 8 bits");
        let empty = Ends { young: NO_FRAME, old: NO_FRAME, len: 0 };
        Self {
            frames: Vec::new(),
            frames_max: frames_max as usize,
            free: NO_FRAME,
            lists: alloc::vec![[empty; 2]; shards],
            in_flight: alloc::vec![0; shards],
            insertions: 0,
            names: Vec::new(),
            free_slots: Vec::new(),
        }
    }

    /// A short number for a file that is opened.
    pub(super) fn open(&mut self, file: FileId) -> FileSlot {
        if let Some(slot) = self.free_slots.pop() {
            self.names[slot.0 as usize] = file;
            return slot;
        }
        assert!(self.names.len() < u32::MAX as usize, "a slot's number fits 32 bits");
        self.names.push(file);
        FileSlot(self.names.len() as u32 - 1)
    }

    /// The file is closed: none of its pages has a frame.
    pub(super) fn close(&mut self, slot: FileSlot) {
        self.free_slots.push(slot);
    }

    pub(super) fn bytes_of_memory(&self) -> Bytes {
        let frames = self.frames.capacity() * size_of::<Frame>();
        let files =
            self.names.capacity() * size_of::<FileId>() + self.free_slots.capacity() * size_of::<FileSlot>();
        Bytes((frames + files) as u64)
    }
    pub(super) fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }
    /// Whose page has it.
    pub(super) fn file(&self, frame: &Frame) -> FileId {
        self.names[frame.file.0 as usize]
    }
    /// Notes, or takes back, what is not kept by a list; what it was before.
    pub(super) fn replace(&mut self, id: FrameId, flag: Flag, set: bool) -> bool {
        debug_assert!(
            matches!(flag, Flag::Referenced | Flag::Dirty),
            "{flag:?} changes with a list or a count"
        );
        self.get_mut(id).replace(flag, set)
    }
    /// Insertions before the one that brought it to the young end.
    pub(super) fn age(&self, id: FrameId) -> u64 {
        self.insertions - u64::from((self.insertions as u32).wrapping_sub(self.get(id).age))
    }
    fn get_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.frames[id.0 as usize]
    }
    pub(super) fn len(&self, shard: usize, list: List) -> u64 {
        self.lists[shard][list as usize].len
    }
    pub(super) fn oldest(&self, shard: usize, list: List) -> Option<FrameId> {
        some(self.lists[shard][list as usize].old)
    }
    pub(super) fn younger(&self, id: FrameId) -> Option<FrameId> {
        some(self.get(id).newer)
    }
    /// The age of a shard's oldest inactive page, or active page where there is no other.
    pub(super) fn oldest_age(&self, shard: usize) -> Option<u64> {
        let id = self.oldest(shard, List::Inactive).or_else(|| self.oldest(shard, List::Active))?;
        Some(self.age(id))
    }

    /// Whether every page of a shard is in flight.
    pub(super) fn all_in_flight(&self, shard: usize) -> bool {
        self.in_flight[shard] == self.len(shard, List::Inactive) + self.len(shard, List::Active)
    }

    /// The page is there.
    pub(super) fn landed(&mut self, id: FrameId) {
        let frame = &mut self.frames[id.0 as usize];
        self.in_flight[frame.shard()] -= u64::from(frame.replace(Flag::InFlight, false));
    }

    /// Frames for pages in flight, at the young end of the inactive list, the last page's youngest. Their numbers join `taken`.
    pub(super) fn allocate(
        &mut self,
        file: FileSlot,
        pages: Extent,
        owner: u32,
        shard: usize,
        taken: &mut Vec<u32>,
    ) {
        debug_assert!(pages.end().0 <= PAGES_MAX, "a file ends before");
        let flags = (shard as u32) << SHARD_SHIFT | 1 << Flag::InFlight as u32;
        let ends = &mut self.lists[shard][List::Inactive as usize];
        let mut older = ends.young;
        for page in pages.start.0..pages.end().0 {
            self.insertions += 1;
            let (rest, age) = (flags | (page >> 32) as u32, self.insertions as u32);
            let frame = Frame { file, owner, page_low: page as u32, rest, age, newer: NO_FRAME, older };
            let id = match self.free {
                NO_FRAME => {
                    // A doubling would take twice what is needed just when memory is short.
                    let len = self.frames.len();
                    if len == self.frames.capacity() {
                        let left = self.frames_max.saturating_sub(len);
                        self.frames.reserve_exact((len / 16).max(GROWTH_MIN).min(left));
                    }
                    self.frames.push(frame);
                    len as u32
                }
                id => {
                    self.free = core::mem::replace(&mut self.frames[id as usize], frame).newer;
                    id
                }
            };
            if older == NO_FRAME {
                ends.old = id;
            } else {
                self.frames[older as usize].newer = id;
            }
            taken.push(id);
            older = id;
        }
        ends.young = older;
        ends.len += pages.count.0;
        self.in_flight[shard] += pages.count.0;
    }

    /// `old` and those that lie beside it towards the young end, `most` at most, as far as their pages can go, follow one another in one
    /// file and were fetched by one owner.
    pub(super) fn run(&self, old: FrameId, most: u64) -> Chain {
        let (first, mut run) = (self.get(old), Chain::of(old));
        while run.len < most
            && let Some(next) = self.younger(run.young)
        {
            let frame = self.get(next);
            let goes_on = frame.page() == first.page() + run.len();
            if !goes_on || !frame.idle() || (frame.file, frame.owner) != (first.file, first.owner) {
                break;
            }
            (run.young, run.len) = (next, run.len + 1);
        }
        run
    }

    /// These frames, of pages that are not in flight, are free, and the first to be taken.
    pub(super) fn free(&mut self, chain: Chain) {
        debug_assert!(!self.get(chain.old).has(Flag::InFlight), "its page has landed");
        self.unlink(chain);
        self.get_mut(chain.young).newer = self.free;
        self.free = chain.old.0;
    }
    /// To the young end of its list.
    pub(super) fn rejuvenate(&mut self, id: FrameId) {
        let list = self.get(id).list();
        self.unlink(Chain::of(id));
        self.link(id, list);
    }
    /// To the young end of the active list.
    pub(super) fn activate(&mut self, id: FrameId) {
        self.unlink(Chain::of(id));
        self.link(id, List::Active);
    }
    /// The oldest active page becomes the youngest inactive one, and must prove itself again.
    pub(super) fn deactivate_oldest(&mut self, shard: usize) {
        if let Some(id) = self.oldest(shard, List::Active) {
            self.unlink(Chain::of(id));
            self.replace(id, Flag::Referenced, false);
            self.link(id, List::Inactive);
        }
    }

    fn link(&mut self, id: FrameId, list: List) {
        self.insertions += 1;
        let shard = self.get(id).shard();
        let ends = &mut self.lists[shard][list as usize];
        let young = core::mem::replace(&mut ends.young, id.0);
        ends.len += 1;
        if young == NO_FRAME {
            ends.old = id.0;
        } else {
            self.frames[young as usize].newer = id.0;
        }
        let age = self.insertions as u32;
        let frame = self.get_mut(id);
        frame.replace(Flag::Active, list == List::Active);
        (frame.age, frame.newer, frame.older) = (age, NO_FRAME, young);
    }

    fn unlink(&mut self, chain: Chain) {
        let old = *self.get(chain.old);
        let (newer, older) = (self.get(chain.young).newer, old.older);
        let ends = &mut self.lists[old.shard()][old.list() as usize];
        ends.len -= chain.len;
        if newer == NO_FRAME {
            ends.young = older;
        }
        if older == NO_FRAME {
            ends.old = newer;
        }
        if newer != NO_FRAME {
            self.frames[newer as usize].older = older;
        }
        if older != NO_FRAME {
            self.frames[older as usize].newer = newer;
        }
    }

    /// Walks every list; the number of frames in them.
    pub(super) fn check(&self) -> u64 {
        let mut listed = 0;
        for (shard, lists) in self.lists.iter().enumerate() {
            let mut in_flight = 0;
            for (list, ends) in [List::Inactive, List::Active].into_iter().zip(lists) {
                let (mut at, mut len, mut age) = (some(ends.old), 0, 0);
                while let Some(id) = at {
                    let frame = self.get(id);
                    assert_eq!((frame.shard(), frame.list()), (shard, list), "a frame lies where it says");
                    assert!(self.age(id) > age, "ages rise from old to young");
                    assert!(!self.free_slots.contains(&frame.file), "a page of an open file");
                    in_flight += u64::from(frame.has(Flag::InFlight));
                    (age, len) = (self.age(id), len + 1);
                    at = self.younger(id);
                }
                assert_eq!(len, ends.len, "a list's length is counted");
                listed += len;
            }
            assert_eq!(in_flight, self.in_flight[shard], "frames in flight are counted");
        }
        let free = core::iter::successors(some(self.free), |&id| self.younger(id)).count() as u64;
        assert_eq!(listed + free, self.frames.len() as u64, "a frame is listed or free");
        listed
    }
}

fn some(id: u32) -> Option<FrameId> {
    (id != NO_FRAME).then_some(FrameId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six pages of one owner and two of another: what leaves the list as one chain, and comes back into it in the same order.
    #[test]
    fn frames_leave_a_list_by_chains() {
        let (mut frames, mut taken) = (Frames::new(8, 1), Vec::new());
        let file = frames.open(FileId(1));
        frames.allocate(file, Extent::new(10, 6), 7, 0, &mut taken);
        frames.allocate(file, Extent::new(16, 2), 8, 0, &mut taken);
        taken.iter().for_each(|&id| frames.landed(FrameId(id)));
        let listed = |frames: &Frames| -> Vec<u64> {
            let all = core::iter::successors(frames.oldest(0, List::Inactive), |&id| frames.younger(id));
            all.map(|id| frames.get(id).page().0).collect()
        };
        // Page 13 is dirty: nothing before it goes with what is behind it, and 16 has another owner than 15.
        frames.replace(FrameId(3), Flag::Dirty, true);
        let lens = [(0, 9), (0, 2), (4, 9)].map(|(id, most)| frames.run(FrameId(id), most).len().0);
        assert_eq!(lens, [3, 2, 2]);
        frames.free(frames.run(FrameId(4), 9));
        frames.free(frames.run(FrameId(0), 2));
        assert_eq!((listed(&frames), frames.check()), ([12, 13, 16, 17].to_vec(), 4));
        taken.clear();
        frames.allocate(file, Extent::new(90, 4), 9, 0, &mut taken);
        assert_eq!(
            (taken, listed(&frames)),
            ([0, 1, 4, 5].to_vec(), [12, 13, 16, 17, 90, 91, 92, 93].to_vec())
        );
        assert_eq!(frames.check(), 8);
    }
}
