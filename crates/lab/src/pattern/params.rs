//! Parameters of a pattern: the published ones, a freshly drawn set, or set by hand.
//!
//! A pattern names each of its parameters where it uses it, with the published value and the range that a fresh draw may
//! take. Nothing is tuned to the published figures unnoticed: the drawn set moves every offset, spacing, size and count.
//!
//! Worked example (test `three_ways_to_a_value`): `il8_1fd` asks for `block`, published 8192; the set `drawn:7` takes a
//! multiple of 4096 between 4096 and 16384; `--param block=65536` takes 65536.

use crate::rng::Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// By hand a parameter may lie so many times below and above the range of a fresh draw: far enough for any question, and a plan still
/// has an end.
const BY_HAND: (u64, u64) = (256, 1024);

/// Why parameters set by hand make no plan: what one of them, or what comes of them, would have to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misfit(pub(crate) String);

impl Misfit {
    /// `what` must be so.
    pub(crate) fn unless(holds: bool, what: &str) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self(what.into())) }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl std::error::Error for Misfit {}

/// Which values parameters take where nobody set them by hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Set {
    /// Exactly those of the kernel's published baseline.
    #[default]
    Published,
    /// Freshly drawn from this seed.
    Drawn(u64),
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published => f.pad("published"),
            Self::Drawn(seed) => write!(f, "drawn:{seed}"),
        }
    }
}

impl FromStr for Set {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let seed = text.strip_prefix("drawn:").and_then(|seed| seed.parse().ok());
        match (text, seed) {
            ("published", _) => Ok(Self::Published),
            (_, Some(seed)) => Ok(Self::Drawn(seed)),
            _ => Err(format!("no parameter set '{text}': write published, or drawn:SEED with a number")),
        }
    }
}

/// What a plan is made from, beside its pattern.
#[derive(Clone, PartialEq, Debug)]
pub struct Params {
    /// Which values parameters take.
    pub set: Set,
    /// Seed of the pattern's own random choices (which page is read next).
    pub seed: u64,
    /// Share of the published volume to read: 0.25 reads a quarter.
    pub volume: f64,
    /// Time the program computes for each MiB that it uses; 0 for none.
    pub think_ns_per_mib: u64,
    /// Parameters set by hand, by name.
    pub options: BTreeMap<String, u64>,
}

impl Params {
    /// The published parameters at full volume, without think time.
    pub fn published() -> Self {
        Self { set: Set::Published, seed: 1, volume: 1.0, think_ns_per_mib: 0, options: BTreeMap::new() }
    }

    /// A freshly drawn set at full volume; the random choices are fresh too.
    pub fn drawn(seed: u64) -> Self {
        Self { set: Set::Drawn(seed), seed: seed ^ 0x0d8a_a11e, ..Self::published() }
    }
}

/// What a pattern's builder asks for its parameters, and what it answered.
pub(crate) struct Knobs<'a> {
    params: &'a Params,
    pattern: &'a str,
    prefix: String,
    share: f64,
    pub(crate) used: BTreeMap<String, u64>,
}

impl<'a> Knobs<'a> {
    pub(crate) fn new(params: &'a Params, pattern: &'a str) -> Self {
        Self { params, pattern, prefix: String::new(), share: 1.0, used: BTreeMap::new() }
    }

    /// The knobs of one part of a composed pattern: its own names (`a.block`), its share of the volume.
    pub(crate) fn part(&self, name: &str, share: f64) -> Self {
        Self {
            params: self.params,
            pattern: self.pattern,
            prefix: format!("{}{name}.", self.prefix),
            share: self.share * share,
            used: BTreeMap::new(),
        }
    }

    /// The parameter `name`: `published`, or drawn as a multiple of `step` in `[low, high]`, or as set by hand.
    ///
    /// # Errors
    /// If it was set by hand to what no reader would have: no size of nothing, no count that never ends.
    pub(crate) fn value(
        &mut self,
        name: &str,
        published: u64,
        low: u64,
        high: u64,
        step: u64,
    ) -> Result<u64, Misfit> {
        self.within(low.div_ceil(BY_HAND.0), name, published, (low, high, step))
    }

    /// The same for a place in a file, which may be its start.
    pub(crate) fn place(
        &mut self,
        name: &str,
        published: u64,
        low: u64,
        high: u64,
        step: u64,
    ) -> Result<u64, Misfit> {
        self.within(0, name, published, (low, high, step))
    }

    fn within(
        &mut self,
        least: u64,
        name: &str,
        published: u64,
        draw: (u64, u64, u64),
    ) -> Result<u64, Misfit> {
        let (name, (low, high, step)) = (format!("{}{name}", self.prefix), draw);
        let value = match (self.params.options.get(&name), self.params.set) {
            (Some(&by_hand), _) => {
                let most = high.saturating_mul(BY_HAND.1);
                if !(least..=most).contains(&by_hand) {
                    let what = format!("{name} lies between {least} and {most}, not at {by_hand}");
                    return Err(Misfit(what));
                }
                by_hand
            }
            (None, Set::Published) => published,
            (None, Set::Drawn(seed)) => {
                let (first, last) = (low.div_ceil(step), (high / step).max(low.div_ceil(step)));
                step * (first + Rng::named(seed, &[self.pattern, &name]).below(last - first + 1))
            }
        };
        self.used.insert(name, value);
        Ok(value)
    }

    /// A size in bytes near the published one: half to twice, in whole pages where the published one is several.
    pub(crate) fn block(&mut self, name: &str, published: u64) -> Result<u64, Misfit> {
        let step = if published.is_multiple_of(4096) && published >= 8192 { 4096 } else { 512 };
        Ok(self.value(name, published, published / 2, published * 2, step)?.max(1))
    }

    /// A count near the published one: three quarters to five quarters.
    pub(crate) fn count(&mut self, name: &str, published: u64) -> Result<u64, Misfit> {
        Ok(self.value(name, published, published.div_ceil(4) * 3, published * 5 / 4, 1)?.max(1))
    }

    /// `published` scaled by the volume asked for, at least 1.
    pub(crate) fn scaled(&self, published: u64) -> u64 {
        ((published as f64 * self.params.volume * self.share) as u64).max(1)
    }

    /// The generator for one purpose of the pattern's random choices.
    pub(crate) fn rng(&self, purpose: &str) -> Rng {
        Rng::named(self.params.seed, &[self.pattern, &self.prefix, purpose])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_a_value() {
        let block = |params: &Params| Knobs::new(params, "il8_1fd").block("block", 8192);
        assert_eq!(block(&Params::published()), Ok(8192));
        let drawn = block(&Params::drawn(7)).unwrap();
        assert!((4096..=16384).contains(&drawn) && drawn.is_multiple_of(4096));
        let mut by_hand = Params::drawn(7);
        by_hand.options.insert("block".into(), 65536);
        assert_eq!(block(&by_hand), Ok(65536));
        for odd in [0, 1, u64::MAX] {
            by_hand.options.insert("block".into(), odd);
            let misfit = block(&by_hand).unwrap_err().to_string();
            assert_eq!(misfit, format!("block lies between 16 and 16777216, not at {odd}"));
        }
    }

    #[test]
    fn sets_are_written_as_they_are_read() {
        for text in ["published", "drawn:42"] {
            assert_eq!(text.parse::<Set>().unwrap().to_string(), text);
        }
        assert!("drawn:".parse::<Set>().is_err());
    }
}
