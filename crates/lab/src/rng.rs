//! Numbers that look random and never change: splitmix64, seeded by a number and a few words.
//!
//! Every random choice of a pattern draws from here, so a plan is named by its pattern, parameters and seed alone and
//! never has to be shipped. The words keep draws apart: the block size of `zip` does not move because another pattern
//! drew one number more.
//!
//! Worked example (test `known_numbers`): seed 1234567 yields 6457827717110365317, then 3203168211198807973.

/// A generator of 64-bit numbers (splitmix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator of `seed` for one named purpose (FNV-1a of the words, mixed in).
    pub fn named(seed: u64, words: &[&str]) -> Self {
        let hash = words
            .iter()
            .flat_map(|word| word.bytes().chain([0]))
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self(Self(seed ^ hash).next_u64())
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `[0, n)`; 0 where `n` is 0. The bias of the high-word method is at most n / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Puts `items` into a random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn purposes_are_kept_apart() {
        let first = |words: &[&str]| Rng::named(7, words).next_u64();
        assert_ne!(first(&["zip", "gap"]), first(&["zip", "size"]));
        assert_ne!(first(&["ab", "c"]), first(&["a", "bc"]));
        assert_eq!(first(&["zip", "gap"]), first(&["zip", "gap"]));
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u64> = (0..100).collect();
        Rng::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
