//! R13: who counts as reading. Time goes by epochs, and a stream is active if it was touched in this one or the last.
//!
//! ```text
//! epoch             1          2          3                    an epoch: 2 s, or two turns of who ends it, or the longest wait of late
//! stream a       touched    touched       .                    active in 1, 2 and 3
//! stream b          .       touched       ends                 active in 2; from its end on it never was
//! active            1          2        2, then 1              the more of this epoch and the one before
//! newcomers         -          1          1                    b, if it came in the second half of its epoch; the next may bring as many
//! ```
//!
//! What each of them may have is decided in shares.rs.

use crate::units::Nanos;

/// An active stream is one that was touched in this epoch or the last. An epoch is longer where turns are, and where readers wait for
/// longer: 2,000 of them for one disk wait for up to 16 s.
const EPOCH: Nanos = Nanos::from_ms(2000);
/// The epoch of a stream that was never active.
const NEVER: u32 = u32::MAX;

/// When a stream was counted last: its part of [`Epochs`].
#[derive(Clone, Copy, Debug)]
pub(in crate::wave) struct Counted {
    /// The epoch in which it was counted last, or [`NEVER`].
    epoch: u32,
    /// Whether it was counted in the epoch before that as well.
    before: bool,
    /// Whether it was counted as one that reads in what was bought (R11).
    in_bought: bool,
}

impl Default for Counted {
    fn default() -> Self {
        Self { epoch: NEVER, before: false, in_bought: false }
    }
}

/// How many streams are active, and what of that is new.
#[derive(Clone, Debug)]
pub(in crate::wave) struct Epochs {
    /// From 1, so that none is the one after [`NEVER`].
    number: u32,
    began: Nanos,
    active_now: u64,
    /// Streams that were active in the epoch before this one, and in the one before that.
    active_before: [u64; 2],
    /// Of those of this epoch, and of the one before, so many read in what was bought (R11).
    in_bought: [u64; 2],
    /// Streams that became active for the first time in the second half of this epoch, and of the one before.
    came_late: [u64; 2],
    /// The longest that somebody waited in this epoch and in the one before.
    longest_ns: [u64; 2],
}

impl Default for Epochs {
    fn default() -> Self {
        Self {
            number: 1,
            began: Nanos(0),
            active_now: 0,
            active_before: [0; 2],
            in_bought: [0; 2],
            came_late: [0; 2],
            longest_ns: [0; 2],
        }
    }
}

impl Epochs {
    /// Somebody waited so long.
    pub(in crate::wave) fn waited(&mut self, took: Nanos) {
        self.longest_ns[0] = self.longest_ns[0].max(took.0);
    }

    /// The longest that somebody waited of late, in ns.
    pub(in crate::wave) fn longest_wait_ns(&self) -> u64 {
        self.longest_ns[0].max(self.longest_ns[1])
    }

    /// Whether the next epoch begins when a stream is touched whose reader comes every `interval_ns`. An epoch lasts for two turns of whoever ends
    /// it, and for the longest wait of late: streams by long turns, and such as wait for their device, are active all the same.
    pub(in crate::wave) fn is_over(&self, now: Nanos, interval_ns: u64) -> bool {
        now.since(self.began).0 > EPOCH.0.max(2 * interval_ns).max(self.longest_wait_ns())
    }

    /// The next epoch begins.
    pub(in crate::wave) fn next(&mut self, now: Nanos) {
        self.number = self.number.wrapping_add(1);
        self.began = now;
        self.active_before = [core::mem::take(&mut self.active_now), self.active_before[0]];
        self.in_bought = [0, self.in_bought[0]];
        self.came_late = [0, self.came_late[0]];
        self.longest_ns = [0, self.longest_ns[0]];
    }

    /// Whether a stream was counted in this epoch already.
    pub(in crate::wave) fn has(&self, counted: Counted) -> bool {
        counted.epoch == self.number
    }

    /// A stream is touched: it is active, and reads in what was bought or not. It is counted once an epoch.
    pub(in crate::wave) fn count(&mut self, now: Nanos, counted: &mut Counted, in_bought: bool) {
        if self.has(*counted) {
            return;
        }
        let began_late = counted.epoch == NEVER && now.since(self.began).0 > EPOCH.0 / 2;
        self.came_late[0] += u64::from(began_late);
        let before = counted.epoch == self.number.wrapping_sub(1);
        *counted = Counted { epoch: self.number, before, in_bought };
        self.active_now += 1;
        self.in_bought[0] += u64::from(in_bought);
    }

    /// A stream that was counted so is not active any more.
    pub(in crate::wave) fn uncount(&mut self, counted: Counted) {
        let Counted { epoch, before, in_bought } = counted;
        let now = epoch == self.number;
        let then = if now { before } else { epoch == self.number.wrapping_sub(1) };
        let [bought_now, bought_before] = &mut self.in_bought;
        for (count, less) in [
            (&mut self.active_now, now),
            (&mut self.active_before[0], then),
            (bought_now, now && in_bought),
            (bought_before, then && in_bought),
        ] {
            *count = count.saturating_sub(u64::from(less));
        }
    }

    /// Streams active in this epoch or the last.
    pub(in crate::wave) fn active(&self) -> u64 {
        self.active_now.max(self.active_before[0])
    }

    /// Those of them that read elsewhere than in what was bought (R11).
    pub(in crate::wave) fn active_elsewhere(&self) -> u64 {
        let [now, before] = self.in_bought;
        self.active_now.saturating_sub(now).max(self.active_before[0].saturating_sub(before))
    }

    /// Streams that the last epoch has brought to those that were there, and the next may bring as well. If they came all at once
    /// when it began, none will follow.
    pub(in crate::wave) fn newcomers(&self) -> u64 {
        let [before, earlier] = self.active_before;
        before.saturating_sub(earlier).min(2 * self.came_late[1])
    }
}

#[cfg(test)]
pub(in crate::wave) mod tests {
    use super::*;

    impl Epochs {
        /// So many streams are active.
        pub(in crate::wave) fn are_active(&mut self, streams: u64) {
            self.active_now = streams;
        }

        /// So many came in the second half of the last epoch, to none that were there.
        pub(in crate::wave) fn came(&mut self, streams: u64) {
            (self.active_before, self.came_late) = ([streams, 0], [0, streams]);
        }

        /// Streams counted in this epoch, and those of them that read in what was bought.
        pub(in crate::wave) fn counted_now(&self) -> (u64, u64) {
            (self.active_now, self.in_bought[0])
        }
    }

    /// The picture at the top.
    #[test]
    fn a_stream_is_active_in_the_epoch_behind_its_own() {
        let (mut epochs, mut a, mut b) = (Epochs::default(), Counted::default(), Counted::default());
        let seconds = |s: u64| Nanos::from_ms(1000 * s);
        epochs.count(seconds(0), &mut a, false);
        assert_eq!(epochs.active(), 1);
        assert!(!epochs.is_over(seconds(2), 0) && epochs.is_over(seconds(3), 0));
        assert!(!epochs.is_over(seconds(3), 2_000_000_000), "turns are longer");
        epochs.next(seconds(3));
        epochs.count(seconds(3), &mut a, false);
        epochs.count(Nanos::from_ms(4500), &mut b, true);
        assert_eq!((epochs.active(), epochs.active_elsewhere()), (2, 1));
        epochs.next(seconds(6));
        assert_eq!((epochs.active(), epochs.newcomers()), (2, 1));
        epochs.uncount(b);
        assert_eq!((epochs.active(), epochs.active_elsewhere()), (1, 1));
        assert!(!epochs.has(a), "not in this one so far");
    }
}
