//! The one protocol without a lock, under loom: the orders of its steps, and what a weaker machine than this may show of them.
//!
//! What runs is `src/memory/gate.rs` itself with loom's atomics. Around it stands the least that makes a cache: one leaf of two
//! pages, a frame each, whose bytes name their owner, and somebody with the lock who gives the leaf from file to file.
//! A frame is a cell in which loom sees two who touch it at once, one of them writing.
//!
//! ```text
//!   reader of file 1    enter(1)? -> page present? -> read the frame: must be 1 -> leave
//!   taker               take(page)? -> give_up -> write 2 into the frame -> settle(2) -> show(page)
//! ```
//!
//! Modelled: pin against eviction, pin against insertion, a leaf that goes to another file and comes back, two readers, two pages.
//! At most three times a thread is interrupted where it could go on. Not modelled: the chains of the hash, where a reader who loses
//! his way asks under the lock; the notes of quiet reads, each under a mutex of its own; flights and the pool, under theirs. Loom
//! knows no order of all sequentially consistent accesses: of the one load that relies on it, the taker's look at the pins, it
//! reads the latest value, which is what that order comes to there.

mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    pub(crate) fn latest(number: &AtomicU32) -> u32 {
        number.fetch_add(0, Ordering::SeqCst)
    }
}
#[path = "../src/memory/gate.rs"]
mod gate;

use gate::Gate;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A leaf of two pages, each in its frame.
struct Leaf {
    gate: Gate,
    frames: [UnsafeCell<u64>; 2],
}

impl Leaf {
    /// That of file 1, with both pages.
    fn of_file_1() -> Arc<Self> {
        let leaf = Self { gate: Gate::default(), frames: [UnsafeCell::new(1), UnsafeCell::new(1)] };
        leaf.gate.settle(1);
        leaf.gate.show(0b11);
        Arc::new(leaf)
    }

    /// A reader of `file`: how many pages he found. Whatever he reads is his.
    fn read(&self, file: u64) -> u32 {
        let Some(present) = self.gate.enter(file) else { return 0 };
        for page in (0..2).filter(|page| present >> page & 1 != 0) {
            // SAFETY: loom itself watches that nobody writes meanwhile.
            let bytes = self.frames[page].with(|frame| unsafe { *frame });
            assert_eq!(bytes, file, "bytes of another file");
        }
        self.gate.leave();
        present.count_ones()
    }

    fn fill(&self, page: usize, file: u64) {
        // SAFETY: loom itself watches that nobody reads or writes meanwhile.
        self.frames[page].with_mut(|frame| unsafe { *frame = file });
    }

    /// Takes both pages and gives the leaf to `file`, if no reader is at it.
    fn hand_over(&self, file: u64) -> bool {
        let first = self.gate.take(0b01);
        if !first || !self.gate.take(0b10) {
            if first {
                self.gate.show(0b01);
            }
            return false;
        }
        assert_ne!(self.gate.give_up(), 0);
        self.fill(0, file);
        self.gate.settle(file);
        self.gate.show(0b01);
        true
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn a_reader_finds_his_own_bytes_or_nothing() {
    model(|| {
        let leaf = Leaf::of_file_1();
        let reader = {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || leaf.read(1))
        };
        let handed = leaf.hand_over(2);
        let found = reader.join().unwrap();
        assert!([0, 1, 2].contains(&found));
        assert_eq!((leaf.gate.key(), leaf.read(2)), if handed { (2, 1) } else { (1, 0) });
    });
}

#[test]
fn two_readers_and_a_leaf_that_comes_back() {
    model(|| {
        let leaf = Leaf::of_file_1();
        let readers = [1, 2].map(|file| {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || leaf.read(file))
        });
        if leaf.hand_over(2) && leaf.gate.take(0b01) {
            // The other file's page goes too, and the leaf is the first one's again.
            leaf.gate.give_up();
            leaf.fill(0, 1);
            leaf.gate.settle(1);
            leaf.gate.show(0b01);
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn what_is_shown_is_whole() {
    model(|| {
        let leaf = Arc::new(Leaf { gate: Gate::default(), frames: [UnsafeCell::new(0), UnsafeCell::new(0)] });
        leaf.gate.settle(1);
        let reader = {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || leaf.read(1))
        };
        for page in 0..2 {
            leaf.fill(page, 1);
            leaf.gate.show(1 << page);
        }
        assert!(reader.join().unwrap() <= 2);
        assert_eq!(leaf.read(1), 2);
    });
}

#[test]
fn a_page_that_is_held_is_put_back() {
    model(|| {
        let leaf = Leaf::of_file_1();
        let held = leaf.gate.enter(1).unwrap();
        let taker = {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || leaf.hand_over(2))
        };
        assert_eq!(held, 0b11);
        // Its bit may be out for a moment; the bytes are there all the same.
        for frame in &leaf.frames {
            // SAFETY: loom itself watches that nobody writes meanwhile.
            assert_eq!(frame.with(|frame| unsafe { *frame }), 1);
        }
        assert!(!taker.join().unwrap());
        leaf.gate.leave();
        assert_eq!(leaf.read(1), 2);
        assert!(leaf.hand_over(2), "nobody holds it any more");
    });
}

/// The model would see it: a taker who does not listen.
#[test]
#[should_panic]
fn a_taker_who_writes_what_is_held_is_seen() {
    model(|| {
        let leaf = Leaf::of_file_1();
        let reader = {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || leaf.read(1))
        };
        let _ = leaf.gate.take(0b01);
        leaf.fill(0, 2);
        reader.join().unwrap();
    });
}
