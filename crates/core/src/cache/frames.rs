//! The frames, and the lists that they lie in: two a shard, youngest in front, linked by numbers.
//!
//! ```text
//! list   young <-> ... <-> old        `newer` points left, `older` right
//! ```
//!
//! Every frame carries its *age*: the count of insertions at the moment it came, or came back, to the young end. Ages
//! fall along a list from young to old, so the old ends of two shards can be compared.

use crate::units::{Bytes, FileId, PageIndex};
use alloc::vec::Vec;
use core::mem::size_of;

/// No frame: the end of a list, an absent page.
pub(super) const NO_FRAME: u32 = u32::MAX;

/// A frame's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameId(pub(super) u32);

/// Which list a frame lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum List {
    /// Read once or not yet.
    Inactive,
    /// Read twice or more.
    Active,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) file: FileId,
    pub(super) page: PageIndex,
    pub(super) age: u64,
    pub(super) owner: u32,
    newer: u32,
    older: u32,
    pub(super) shard: usize,
    pub(super) list: List,
    pub(super) referenced: bool,
    in_flight: bool,
    pub(super) dirty: bool,
}

impl Frame {
    pub(super) fn in_flight(&self) -> bool {
        self.in_flight
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
    free: Vec<u32>,
    lists: Vec<[Ends; 2]>,
    /// Of each shard, frames whose page is in flight.
    in_flight: Vec<u64>,
    insertions: u64,
}

impl Frames {
    pub(super) fn new(frames_max: u64, shards: usize) -> Self {
        assert!(frames_max < u64::from(NO_FRAME), "a frame's number fits 32 bits");
        let empty = Ends { young: NO_FRAME, old: NO_FRAME, len: 0 };
        Self {
            frames: Vec::new(),
            free: Vec::new(),
            lists: alloc::vec![[empty; 2]; shards],
            in_flight: alloc::vec![0; shards],
            insertions: 0,
        }
    }

    pub(super) fn bytes_of_memory(&self) -> Bytes {
        Bytes((self.frames.capacity() * size_of::<Frame>() + self.free.capacity() * size_of::<u32>()) as u64)
    }
    pub(super) fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }
    pub(super) fn get_mut(&mut self, id: FrameId) -> &mut Frame {
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
        Some(self.get(id).age)
    }

    /// Whether every page of a shard is in flight.
    pub(super) fn all_in_flight(&self, shard: usize) -> bool {
        self.in_flight[shard] == self.len(shard, List::Inactive) + self.len(shard, List::Active)
    }

    /// The page is there.
    pub(super) fn landed(&mut self, id: FrameId) {
        let frame = &mut self.frames[id.0 as usize];
        self.in_flight[frame.shard] -= u64::from(core::mem::take(&mut frame.in_flight));
    }

    /// A frame for a page in flight, at the young end of the inactive list.
    pub(super) fn allocate(&mut self, file: FileId, page: PageIndex, owner: u32, shard: usize) -> FrameId {
        let frame = Frame {
            file,
            page,
            age: 0,
            owner,
            newer: NO_FRAME,
            older: NO_FRAME,
            shard,
            list: List::Inactive,
            referenced: false,
            in_flight: true,
            dirty: false,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.frames[id as usize] = frame;
                id
            }
            None => {
                // A doubling would take twice what is needed just when memory is short.
                if self.frames.len() == self.frames.capacity() {
                    self.frames.reserve_exact((self.frames.len() / 16).max(64));
                }
                self.frames.push(frame);
                self.frames.len() as u32 - 1
            }
        };
        self.in_flight[shard] += 1;
        self.link(FrameId(id), List::Inactive);
        FrameId(id)
    }

    pub(super) fn free(&mut self, id: FrameId) {
        self.landed(id);
        self.unlink(id);
        self.free.push(id.0);
    }
    /// To the young end of its list.
    pub(super) fn rejuvenate(&mut self, id: FrameId) {
        let list = self.get(id).list;
        self.unlink(id);
        self.link(id, list);
    }
    /// To the young end of the active list.
    pub(super) fn activate(&mut self, id: FrameId) {
        self.unlink(id);
        self.link(id, List::Active);
    }
    /// The oldest active page becomes the youngest inactive one, and must prove itself again.
    pub(super) fn deactivate_oldest(&mut self, shard: usize) {
        if let Some(id) = self.oldest(shard, List::Active) {
            self.unlink(id);
            self.get_mut(id).referenced = false;
            self.link(id, List::Inactive);
        }
    }

    fn link(&mut self, id: FrameId, list: List) {
        self.insertions += 1;
        let shard = self.get(id).shard;
        let ends = &mut self.lists[shard][list as usize];
        let young = core::mem::replace(&mut ends.young, id.0);
        ends.len += 1;
        if young == NO_FRAME {
            ends.old = id.0;
        } else {
            self.frames[young as usize].newer = id.0;
        }
        let insertions = self.insertions;
        let frame = self.get_mut(id);
        (frame.list, frame.age, frame.newer, frame.older) = (list, insertions, NO_FRAME, young);
    }

    fn unlink(&mut self, id: FrameId) {
        let Frame { newer, older, shard, list, .. } = *self.get(id);
        let ends = &mut self.lists[shard][list as usize];
        ends.len -= 1;
        if newer == NO_FRAME {
            ends.young = older;
        } else {
            self.frames[newer as usize].older = older;
        }
        let ends = &mut self.lists[shard][list as usize];
        if older == NO_FRAME {
            ends.old = newer;
        } else {
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
                    assert_eq!((frame.shard, frame.list), (shard, list), "a frame lies where it says");
                    assert!(frame.age > age, "ages rise from old to young");
                    in_flight += u64::from(frame.in_flight);
                    (age, len) = (frame.age, len + 1);
                    at = self.younger(id);
                }
                assert_eq!(len, ends.len, "a list's length is counted");
                listed += len;
            }
            assert_eq!(in_flight, self.in_flight[shard], "frames in flight are counted");
        }
        assert_eq!(listed + self.free.len() as u64, self.frames.len() as u64, "a frame is listed or free");
        listed
    }
}

fn some(id: u32) -> Option<FrameId> {
    (id != NO_FRAME).then_some(FrameId(id))
}
