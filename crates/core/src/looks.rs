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
//! Worked example: sent at 0 with 30 ms known, looked at 24 ms, then at 25 ms (test `the_worked_example`).

use crate::units::Nanos;

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

#[cfg(test)]
mod tests {
    use super::*;

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
