//! Readers and a taker at once: every order of their steps in a model of the protocol, and the code itself under load.

use super::{FreeFrames, LEAF, Memory, Run};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The protocol, one shared access a step: a leaf of one page whose key and frame may become others'.
///
/// Reader: pin, load present, load key, copy (only if both are right), unpin. Taker, again and again for the next owner: clear
/// present, load pins, (give up, or) overwrite the frame, set the key of the next owner, set present.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Model {
    key: u8,
    present: bool,
    pins: u8,
    /// Whose bytes lie in the frame; 0 while it is being written.
    bytes: u8,
    readers: [Reader; 2],
    taker: Taker,
    owners_left: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Reader {
    step: u8,
    saw_present: bool,
    saw_key: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Taker {
    Clear,
    Look,
    PutBack,
    Unkey,
    Write,
    Key,
    Publish,
    Done,
}

/// The order in which a reader looks: present first, as it must be, or the key first.
#[derive(Clone, Copy)]
enum Looks {
    PresentThenKey,
    KeyThenPresent,
    BeforePinning,
}

impl Model {
    /// The states that one step of reader `r` leads to; what it copied, if it did.
    fn read(&self, r: usize, looks: Looks) -> Option<(Self, Option<u8>)> {
        let mut next = self.clone();
        let mut copied = None;
        let reader = &mut next.readers[r];
        let order = match looks {
            Looks::PresentThenKey => [0, 1, 2],
            Looks::KeyThenPresent => [0, 2, 1],
            Looks::BeforePinning => [1, 2, 0],
        };
        match reader.step {
            step @ 0..3 => match order[step as usize] {
                0 => next.pins += 1,
                1 => reader.saw_present = self.present,
                _ => reader.saw_key = self.key == 1,
            },
            3 if reader.saw_present && reader.saw_key => copied = Some(self.bytes),
            3 => {}
            4 => next.pins -= 1,
            _ => return None,
        }
        next.readers[r].step += 1;
        Some((next, copied))
    }

    fn take(&self) -> Option<Self> {
        let mut next = self.clone();
        next.taker = match self.taker {
            Taker::Clear => {
                next.present = false;
                Taker::Look
            }
            Taker::Look if self.pins > 0 => Taker::PutBack,
            Taker::Look => Taker::Unkey,
            Taker::PutBack => {
                next.present = true;
                Taker::Clear
            }
            Taker::Unkey => {
                next.key = 0;
                Taker::Write
            }
            Taker::Write => {
                next.bytes = 0;
                Taker::Key
            }
            Taker::Key => {
                // The next owner of leaf and frame: another file, then the first again.
                next.key = if self.owners_left.is_multiple_of(2) { 2 } else { 1 };
                next.bytes = next.key;
                Taker::Publish
            }
            Taker::Publish => {
                next.present = true;
                next.owners_left -= 1;
                if next.owners_left == 0 { Taker::Done } else { Taker::Clear }
            }
            Taker::Done => return None,
        };
        Some(next)
    }
}

/// Goes through every order of steps; the states seen, or the first wrong copy.
fn explore(looks: Looks) -> Result<usize, Model> {
    let start = Model {
        key: 1,
        present: true,
        pins: 0,
        bytes: 1,
        readers: [Reader::default(); 2],
        taker: Taker::Clear,
        owners_left: 3,
    };
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        let reads = (0..2).filter_map(|r| state.read(r, looks));
        for (next, copied) in reads.chain(state.take().map(|next| (next, None))) {
            // Who wants the bytes of owner 1 must get those, whole.
            if copied.is_some_and(|bytes| bytes != 1) {
                return Err(next);
            }
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn no_order_of_steps_gives_wrong_bytes() {
    let states = explore(Looks::PresentThenKey).unwrap();
    assert!(states > 500, "{states}");
    // The model would see it: looking before pinning is wrong.
    assert!(explore(Looks::BeforePinning).is_err());
    // And so is looking at the key first, for leaf and frame may have gone to another in between.
    assert!(explore(Looks::KeyThenPresent).is_err());
}

/// A page of file `file` is filled with this.
fn word(file: u32, page: u64) -> u64 {
    (u64::from(file) << 32 | page).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

#[test]
fn readers_never_see_what_is_not_theirs() {
    const FRAMES: u32 = 24;
    const PAGES: u64 = 4 * LEAF;
    let memory = Arc::new(Memory::new(FRAMES).unwrap());
    let (stop, copies) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 1..=3u64 {
            let (memory, stop, copies) = (&memory, &stop, &copies);
            scope.spawn(move || {
                let (mut x, mut out) = (seed, vec![0; 8192]);
                while !stop.load(Ordering::Relaxed) {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (file, page) = ((x >> 33) as u32 % 3 + 1, (x >> 40) % PAGES);
                    let copied = memory.copy(file, page * 4096, &mut out, false).bytes;
                    for (i, bytes) in out[..copied].chunks_exact(8).enumerate() {
                        let value = u64::from_le_bytes(bytes.try_into().unwrap());
                        assert_eq!(value, word(file, page + i as u64 / 512), "bytes of another page");
                    }
                    copies.fetch_add(u64::from(copied > 0), Ordering::Relaxed);
                }
            });
        }
        // One thread fills and takes, as whoever holds the lock of the cache does.
        let mut free = FreeFrames::new(FRAMES);
        let mut present: Vec<(u32, u64)> = Vec::new();
        let (mut x, mut held) = (7u64, 0);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
        while std::time::Instant::now() < end {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (file, page) = ((x >> 33) as u32 % 3 + 1, (x >> 40) % PAGES);
            if free.free() > 0 && !present.contains(&(file, page)) {
                memory.expect(file, page / LEAF, 1);
                let mut runs: [Run; 1] = [free.take(1).unwrap()];
                for bytes in memory.slices(&mut runs)[0].chunks_exact_mut(8) {
                    bytes.copy_from_slice(&word(file, page).to_le_bytes());
                }
                let [run] = runs;
                memory.publish(file, page, run);
                present.push((file, page));
            } else if !present.is_empty() {
                let i = x as usize % present.len();
                match memory.unpublish(present[i].0, present[i].1) {
                    Some((run, _)) => {
                        free.give(run);
                        present.swap_remove(i);
                    }
                    None => held += 1,
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(held < 1_000_000_000);
    });
    assert!(copies.into_inner() > 1000, "readers found something");
}
