//! Files of the run: a slot a file, claimed by whoever meets it first, freed by the agent.
//!
//! ```text
//! bind(dev, ino) --> the place its mix says, or one of the 15 behind it: slot 7, generation 0
//! recycle(7)     --> free, generation 1: who holds (7, 0) finds it stale and binds anew
//! ```

use crate::Segment;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Files that a run can know at once.
pub const FILES_MAX: usize = 32_768;
/// Slots that a file's probe may visit before it gives up.
pub const FILE_PROBES_MAX: usize = 16;

/// A file of the run. The shim that meets it first claims the slot; the agent writes `kernel` and recycles.
#[repr(C, align(64))]
pub struct FileSlot {
    /// 0 free; else a nonzero mix of dev and ino.
    key: AtomicU64,
    /// Device number as stat gives it.
    pub dev: AtomicU64,
    /// Inode number.
    pub ino: AtomicU64,
    /// Bytes in the file when it was last met; a shim raises it when a read finds more, nobody lowers it.
    pub size: AtomicU64,
    /// Counts up when the agent recycles the slot: bindings made before are stale.
    pub generation: AtomicU32,
    /// What the agent wants the kernel's own heuristics to do with descriptors of this file: a `KERNEL_` value.
    pub kernel: AtomicU32,
    /// Nonzero once the agent has said that it cannot steer this file: no more events, please.
    pub ignored: AtomicU32,
    spare: [AtomicU32; 5],
}

/// Leave the descriptor as it is.
pub const KERNEL_AS_IS: u32 = 0;
/// Kernel heuristics on: FADV_NORMAL if we had switched them off.
pub const KERNEL_ON: u32 = 1;
/// Kernel heuristics off: FADV_RANDOM, since we fetch what is needed.
pub const KERNEL_OFF: u32 = 2;

/// A descriptor's file: slot and generation, as both sides name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRef {
    /// Index into the file slots.
    pub index: u32,
    /// Generation of the slot.
    pub generation: u32,
}

impl Segment {
    /// Finds or claims the slot of the file (`dev`, `ino`). `None` when its neighbourhood is full: leave it alone; it is counted.
    pub fn bind(&self, dev: u64, ino: u64, size: u64) -> Option<FileRef> {
        let key = mix(dev.rotate_left(32) ^ mix(ino)) | 1;
        for probe in 0..FILE_PROBES_MAX {
            let index = (key as usize >> 8).wrapping_add(probe) % FILES_MAX;
            let slot = &self.files[index];
            match slot.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.files_bound.fetch_add(1, Ordering::Relaxed);
                    slot.dev.store(dev, Ordering::Relaxed);
                    slot.ino.store(ino, Ordering::Relaxed);
                    slot.size.store(size, Ordering::Relaxed);
                    slot.ignored.store(0, Ordering::Relaxed);
                    slot.kernel.store(self.kernel_default.load(Ordering::Relaxed), Ordering::Release);
                }
                Err(found) if found == key => {}
                Err(_) => continue,
            }
            return Some(FileRef {
                index: index as u32,
                generation: slot.generation.load(Ordering::Acquire),
            });
        }
        self.files_lost.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Slots that have a file, about.
    pub fn files_bound(&self) -> u32 {
        self.files_bound.load(Ordering::Relaxed)
    }

    /// Whether the slot at `index` has a file.
    pub fn has_file(&self, index: u32) -> bool {
        self.file(index).is_some_and(|slot| slot.key.load(Ordering::Relaxed) != 0)
    }

    /// The slot at `index`, if there is such an index.
    pub fn file(&self, index: u32) -> Option<&FileSlot> {
        self.files.get(index as usize)
    }

    /// The file that the slot at `index` is now.
    pub fn file_ref(&self, index: u32) -> Option<FileRef> {
        let generation = self.file(index)?.generation.load(Ordering::Relaxed);
        Some(FileRef { index, generation })
    }

    /// Agent: frees a slot that has a file; descriptors bound to it find their generation stale and bind anew.
    pub fn recycle(&self, index: u32) {
        if self.has_file(index)
            && let Some(slot) = self.file(index)
        {
            slot.generation.fetch_add(1, Ordering::AcqRel);
            slot.key.store(0, Ordering::Release);
            self.files_bound.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// SplitMix64's finaliser: a cheap, good mix of 64 bits.
const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
