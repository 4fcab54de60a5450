//! What goes wrong between a device and memory, drawn from a seed: requests that fail or come back short, answers that are
//! late, memory that others want for a while, pages that somebody takes.
//!
//! ```text
//! fail 1 in 40      the device says no; whoever waits asks again          short 1 in 20   the first half arrives
//! jitter 2 ms       every answer late by up to so much                    slow            late by 20 ms, for 10 of every 50 ms
//! squeeze           for 10 of every 40 ms, 300 thousandths of memory are all there is
//! taken 250 ms, 20  each 250 ms 20 thousandths of what is cached, 16 pages at a time, though there is room: a reclaimer takes what
//!                   it believes idle
//! ```
//!
//! A fault costs time, never a byte. Whether a request fails depends on the seed and on its place in the order of
//! completions, so the same world has the same faults.

use crate::rng::Rng;
use bowwave_core::Nanos;

/// A spell that comes back: the first `lasting` of every `every`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spell {
    /// From one beginning to the next.
    pub every: Nanos,
    /// How long it lasts.
    pub lasting: Nanos,
}

impl Spell {
    /// Whether it lasts at `now`.
    pub(super) fn holds(&self, now: Nanos) -> bool {
        now.0 % self.every.0.max(1) < self.lasting.0
    }
}

/// Everything that may go wrong. The default: nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// One request in so many fails; 0: none.
    pub fail_one_in: u64,
    /// One request in so many brings its first half; 0: none.
    pub short_one_in: u64,
    /// Every answer is late by up to so much.
    pub jitter_max: Nanos,
    /// While it lasts, answers are late by so much more.
    pub slow: Option<(Spell, Nanos)>,
    /// While it lasts, memory has so many thousandths of its frames.
    pub squeeze: Option<(Spell, u64)>,
    /// Each time that so long has passed, somebody takes so many thousandths of what is cached.
    pub taken: Option<(Nanos, u64)>,
    /// What the draws come from.
    pub seed: u64,
}

/// What becomes of one answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Whole,
    Short,
    Failed,
}

/// The draws of a world.
pub(super) struct Draws {
    faults: Faults,
    rng: Rng,
}

impl Draws {
    pub(super) fn new(faults: Faults) -> Self {
        Self { faults, rng: Rng::named(faults.seed, &["faults"]) }
    }

    fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.rng.below(n) == 0
    }

    /// How late an answer is that the device gives at `now`.
    pub(super) fn late(&mut self, now: Nanos) -> Nanos {
        let slow = self.faults.slow.filter(|(spell, _)| spell.holds(now)).map_or(Nanos(0), |(_, late)| late);
        slow + Nanos(self.rng.below(self.faults.jitter_max.0))
    }

    /// Whether the next few pages of what is cached are among those taken.
    pub(super) fn takes(&mut self) -> bool {
        let permille = self.faults.taken.map_or(0, |(_, permille)| permille);
        self.rng.below(1000) < permille
    }

    /// What becomes of the next answer.
    pub(super) fn answer(&mut self) -> Answer {
        if self.one_in(self.faults.fail_one_in) {
            Answer::Failed
        } else if self.one_in(self.faults.short_one_in) {
            Answer::Short
        } else {
            Answer::Whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_comes_back() {
        let spell = Spell { every: Nanos(50), lasting: Nanos(10) };
        assert_eq!(
            [0, 9, 10, 49, 50, 59, 60].map(|now| spell.holds(Nanos(now))),
            [true, true, false, false, true, true, false]
        );
    }

    #[test]
    fn one_in_forty_fails() {
        let mut draws = Draws::new(Faults { fail_one_in: 40, ..Faults::default() });
        let failed = (0..4000).filter(|_| draws.answer() == Answer::Failed).count();
        assert!((70..130).contains(&failed), "{failed} of 4,000");
        let mut none = Draws::new(Faults::default());
        assert!((0..100).all(|_| none.answer() == Answer::Whole && none.late(Nanos(5)) == Nanos(0)));
    }
}
