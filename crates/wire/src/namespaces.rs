//! Who a program means by its own number: numbers of processes are those of their PID namespace.
//!
//! ```text
//!   bits 31 ...... 22 | 21 ................ 0        the kernel gives no number above 2^22
//!        namespace      number in it
//!        0              4711                         as the agent sees it
//!        3              1                            the first process of the namespace whose inode is in place 3
//! ```
//!
//! A program looks at its namespace once, when it starts; who shares the agent's has numbers as they are.

use crate::Segment;
use core::sync::atomic::Ordering;

/// PID namespaces of a run that are told apart. Whoever finds no place in the table is somebody whom the agent does not know.
pub const NAMESPACES_MAX: usize = 64;
const NUMBER_BITS: u32 = 22;

/// A process of a run, in one word of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId(pub u32);

impl ProcessId {
    /// Nobody whom the agent could find, since it may not look.
    pub const NOBODY: Self = Self(u32::MAX);
    /// Nobody any more.
    pub const GONE: Self = Self(u32::MAX - 1);

    /// The number that a process has in the namespace of that place.
    pub const fn new(namespace: u32, number: u32) -> Self {
        Self(namespace << NUMBER_BITS | number)
    }

    /// The place of its namespace in the segment's table.
    pub const fn namespace(self) -> u32 {
        self.0 >> NUMBER_BITS
    }

    /// Its number there.
    pub const fn number(self) -> u32 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }
}

impl Segment {
    /// The agent's own namespace takes the first place.
    pub fn set_namespace_of_agent(&self, inode: u64) {
        self.namespaces[0].store(inode, Ordering::Relaxed);
    }

    /// The inode of the namespace in a place of the table.
    pub fn namespace(&self, place: u32) -> Option<u64> {
        let inode = self.namespaces.get(place as usize)?.load(Ordering::Relaxed);
        (inode != 0).then_some(inode)
    }

    /// The place of a namespace, found or taken; past the table if that is full.
    pub fn place_of_namespace(&self, inode: u64) -> u32 {
        let place = self.namespaces.iter().position(|place| {
            match place.compare_exchange(0, inode, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => true,
                Err(there) => there == inode,
            }
        });
        place.unwrap_or(NAMESPACES_MAX) as u32
    }
}
