//! When to look whether a fetch has arrived, where nobody says so: seldom, and at the right moment.
//!
//! ```text
//!   sent 0 ms                               expected 30 ms
//!     |---------- nobody looks -----------|24..|..|..|.|      first look at four fifths of the latency known,
//!                                                               then every 1/24 of its age, at least 50 us apart
//! ```
//!
//! The agent beside a program looks so, and the lab sees arrivals as late as it does.
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

#[cfg(test)]
mod tests {
    use super::*;

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
