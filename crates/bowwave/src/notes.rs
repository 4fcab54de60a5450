//! Reads that found everything there, noted without a lock for the brain to hear of a little later.
//!
//! A reader that hits tells nobody, and yet the brain has to know that its stream lives and how far it has come: a stream of
//! which nothing is heard for long is taken to have ended. So a read that uses pages for the first time leaves a note; twice a
//! second whoever comes to the brain next, for any reader, hands the notes over, a stream's every other second.
//!
//! ```text
//! slot = hash of (reader, file, 16 MiB of it)        the latest read of a stream stands there, or in one of the three slots beside
//!                                                    it; those before it are in the leaves' used bits
//! ```
//!
//! A slot is a lock that nobody waits for: who finds somebody there goes on to the next. A read of pages that were all used before
//! leaves none.
//!
//! Worked examples: three reads of one stream and one of another: two notes (test `the_latest_read_of_a_stream_is_handed_over`); 300
//! streams read once each: 297 notes (test `streams_seldom_hide_each_other`).

use crate::flight::lock;
use bowwave_core::Nanos;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Streams that are told apart: 1,024 notes of 48 bytes.
const SLOTS: usize = 1024;
/// Slots that are looked at for a place. Looked at one only, 38 of 300 streams would have none.
const TRIED: usize = 4;
/// A stream of which something is heard so often stays active: the brain counts by epochs of two seconds.
pub(crate) const TOLD_EVERY: Nanos = Nanos::from_ms(2000);
/// Pages of a file that one stream is taken to be in.
const REGION: u64 = 4096;

/// A quiet read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Note {
    pub(crate) file: u32,
    pub(crate) actor: u32,
    pub(crate) start: u64,
    pub(crate) count: u64,
    /// Its last page was read in part: the rest of it is likely to come.
    pub(crate) part: bool,
}

impl Note {
    /// What tells its stream from others: file, reader, region.
    const fn stream(&self) -> (u32, u32, u64) {
        (self.file, self.actor, self.start / REGION)
    }
}

/// The latest quiet reads.
pub(crate) struct Notes {
    slots: Box<[Mutex<(Note, Nanos)>]>,
    written: [AtomicU64; SLOTS / 64],
}

impl Notes {
    pub(crate) fn new() -> Self {
        let slots = (0..SLOTS).map(|_| Mutex::default()).collect();
        Self { slots, written: [const { AtomicU64::new(0) }; SLOTS / 64] }
    }

    /// Leaves a note in the first of a few slots that is the stream's own or free and that nobody is at, if there is one.
    #[inline]
    pub(crate) fn leave(&self, note: Note) {
        let (file, actor, region) = note.stream();
        let key = u64::from(file) << 32 ^ u64::from(actor) ^ region << 20;
        let first = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
        for slot in (0..TRIED).map(|i| first ^ i) {
            let Ok(mut place) = self.slots[slot].try_lock() else { continue };
            let (word, bit) = (&self.written[slot / 64], 1 << (slot % 64));
            let free = word.load(Ordering::Relaxed) & bit == 0;
            if place.0.stream() != note.stream() {
                if !free {
                    continue;
                }
                place.1 = Nanos(0);
            }
            place.0 = note;
            if free {
                word.fetch_or(bit, Ordering::Release);
            }
            return;
        }
    }

    /// Takes the notes of streams of which nothing was heard for two seconds.
    pub(crate) fn take(&self, now: Nanos, mut each: impl FnMut(Note)) {
        for (i, word) in self.written.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Acquire);
            let mut later = 0;
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                bits ^= bit;
                let mut place = lock(&self.slots[i * 64 + bit.trailing_zeros() as usize]);
                let (note, told) = *place;
                if told > Nanos(0) && now.since(told) < TOLD_EVERY {
                    later |= bit;
                    continue;
                }
                place.1 = now;
                drop(place);
                each(note);
            }
            if later != 0 {
                word.fetch_or(later, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_seldom_hide_each_other() {
        let notes = Notes::new();
        for n in 0..300 {
            notes.leave(Note { file: n * n, actor: n, start: 0, count: 1, part: false });
        }
        let mut taken = 0;
        notes.take(Nanos(1), |_| taken += 1);
        assert_eq!(taken, 297);
    }

    #[test]
    fn the_latest_read_of_a_stream_is_handed_over() {
        let notes = Notes::new();
        for start in [0, 4, 8] {
            notes.leave(Note { file: 1, actor: 7, start, count: 4, part: false });
        }
        notes.leave(Note { file: 2, actor: 7, start: 0, count: 1, part: true });
        let mut taken = Vec::new();
        notes.take(Nanos(1), |note| taken.push((note.file, note.start)));
        taken.sort_unstable();
        assert_eq!(taken, [(1, 8), (2, 0)]);
        notes.leave(Note { file: 2, actor: 7, start: 1, count: 1, part: true });
        notes.take(Nanos::from_ms(1000), |_| panic!("it is told too often"));
        notes.take(Nanos::from_ms(3000), |note| taken.push((note.file, note.start)));
        assert_eq!(taken[2..], [(2, 1)]);
    }
}
