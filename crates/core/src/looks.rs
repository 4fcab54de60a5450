//! When to look whether a fetch has arrived, where nobody says so: seldom, and at the right moment. And how far around a read for what was read
//! without a word.
//!
//! ```text
//!   sent 0 ms                               expected 30 ms
//!     |---------- nobody looks -----------|24..|..|..|.|      first look at four fifths of the latency known,
//!                                                               then every 1/24 of its age, at least 50 us apart
//! ```
//!
//! The agent beside a program looks so, and the lab sees arrivals as late as it does.
//!
//! ```text
//! leaf       6        7        8        9        10                       looked at downwards from a read in leaf 10, until two
//! read     ....     ....     ##..     ....     ####                      in a row have nothing: 9, 8, 7, 6
//! ```
//!
//! Who reads elsewhere now may have read on where he was, of which nobody heard, for it was there. That is told before: else the length of the
//! run that he has left is not known before it has been judged, and with it what the next is given.
//!
//! ```text
//! rows of 8 pages, 512 apart      heard of at the first page of row 2, in leaf 8, then of row 3, in leaf 16
//! leaf       8        9        10 ... 16        looked at upwards from where he was, but not to where he is: 8, 9, 10
//! read     ########   ....     ....   #
//! ```
//!
//! Worked example: sent at 0 with 30 ms known, looked at 24 ms, then at 25 ms (test `the_worked_example`).

use crate::units::{Extent, FileId, Nanos};
use core::ops::Range;

/// Pages of a leaf.
const LEAF_PAGES: u64 = 64;
/// Looks are no closer than this: 50 us.
const APART: Nanos = Nanos::from_us(50);

/// When to look first for what was sent at `sent`, on a device on which a lone read takes `latency`, if that is known.
pub fn first_look(sent: Nanos, latency: Option<Nanos>) -> Nanos {
    sent + latency.map_or(Nanos(0), |l| Nanos(l.0 / 5 * 4)).max(APART)
}

/// When to look again for what was sent at `sent` and had not come at `looked`.
pub fn next_look(sent: Nanos, looked: Nanos) -> Nanos {
    looked + Nanos(looked.since(sent).0 / 24).max(APART)
}

/// Has `take` take what was read without a word of each of `leaves` in turn, and say whether that was anything, until `unread` of them in a row
/// had nothing. O(leaves read and `unread`).
pub fn while_read(leaves: impl Iterator<Item = u64>, unread: u32, mut take: impl FnMut(u64) -> bool) {
    let mut in_a_row = 0;
    for leaf in leaves {
        in_a_row = if take(leaf) { 0 } else { in_a_row + 1 };
        if in_a_row == unread {
            return;
        }
    }
}

/// The file in which a reader has left off, and the leaves to look at upwards for what he read there without a word, when he was heard of last
/// `was` there, and is `now` here. Nothing where a look around `now` over so many leaves as are `near` finds it.
pub fn left_off(was: (FileId, Extent), now: (FileId, Extent), near: u32) -> Option<(FileId, Range<u64>)> {
    let leaf = |page: u64| page / LEAF_PAGES;
    let ((file, was), (here, now)) = (was, now);
    let (from, to) = (leaf(was.end().0.saturating_sub(1)), leaf(now.start.0));
    if file != here {
        return Some((file, from..u64::MAX));
    }
    let end = if from < to { to } else { u64::MAX };
    (from.abs_diff(to) > u64::from(near)).then_some((file, from..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The third picture at the top; and in another file, below, and too near.
    #[test]
    fn who_has_left_is_looked_for_where_he_was() {
        let at = |file, page| (FileId(file), Extent::new(page, 1));
        assert_eq!(left_off(at(0, 512), at(0, 1024), 2), Some((FileId(0), 8..16)));
        assert_eq!(left_off(at(0, 1024), at(0, 512), 2), Some((FileId(0), 16..u64::MAX)));
        assert_eq!(left_off(at(0, 512), at(1, 512), 2), Some((FileId(0), 8..u64::MAX)));
        assert_eq!(left_off(at(0, 512), at(0, 640), 2), None);
        assert_eq!(left_off(at(0, 512), at(0, 704), 2), Some((FileId(0), 8..11)));
    }

    /// The second picture at the top; and where all was read to the last of the leaves.
    #[test]
    fn looks_go_on_while_something_was_read() {
        let looked = |read: &[u64]| {
            let mut looked = alloc::vec::Vec::new();
            while_read((0..10).rev(), 2, |leaf| {
                looked.push(leaf);
                read.contains(&leaf)
            });
            looked
        };
        assert_eq!(looked(&[8]), [9, 8, 7, 6]);
        assert_eq!(looked(&[9, 7, 5, 3, 1]), [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn the_worked_example() {
        let first = first_look(Nanos(0), Some(Nanos::from_ms(30)));
        assert_eq!((first, next_look(Nanos(0), first)), (Nanos::from_ms(24), Nanos::from_ms(25)));
        assert_eq!(
            (first_look(Nanos(7), None), next_look(Nanos(7), Nanos(7))),
            (Nanos(50_007), Nanos(50_007))
        );
    }
}
