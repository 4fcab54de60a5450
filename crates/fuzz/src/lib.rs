//! Random inputs for whatever reads what others wrote: keys, headers, options, traces, lines, shared memory. For tests only.
//!
//! A *target* is a function of bytes that states a property: it panics where that does not hold. It is given the corpus as it is,
//! and then inputs made from it by a few random edits, each input from a seed of its own:
//!
//! ```text
//!   corpus   bytes 0-4/5          seed 7: a number becomes an odd one     bytes 18446744073709551615-4/5
//!            bytes */0            seed 8: halves of two are joined        bytes 0-*/0
//!                                 seed 9: a piece is said twice           bytes 0-4bytes 0-4/5
//! ```
//!
//! Without a word of the environment: [`INPUTS`] inputs from seed 1, the same each time, a second or less.
//! `BOWWAVE_FUZZ_SECONDS=60` goes on for so long for each target, from a seed that nobody has played yet; a failure prints its
//! input and its seed, and `BOWWAVE_FUZZ_SEED=N` plays that one alone. It needs no nightly compiler, and knows nothing of what
//! the code under test covers; targets lie beside what they test, which is private to its crate.
//!
//! Worked example (test `a_wrong_property_is_found`): a target that says that no number is 0 fails within a hundred inputs.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Inputs of a target where nothing else is said.
pub const INPUTS: u64 = 20_000;
/// Longest input in bytes: what is doubled again and again ends there.
pub const INPUT_BYTES_MAX: usize = 16 << 10;
/// Edits of an input, at most.
const EDITS_MAX: u64 = 6;

/// Numbers at which arithmetic ends, and what only looks like one.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "+1",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999",
    "1e308",
    "0x10",
    "NaN",
    "inf",
];
/// What means more than itself to somebody.
const PIECES: [&[u8]; 18] = [
    b"..",
    b"/",
    b"//",
    b".",
    b"\0",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"%2e%2e%2f",
    b"%",
    b"\\",
    b"\"",
    b"\xff\xfe",
    b"\xc3",
    "\u{202e}\u{e9}".as_bytes(),
    b"\x1b[31m",
    b"=,:;+-<>[](){}",
];

/// Plays `target` on the corpus and on inputs made from it.
///
/// # Panics
/// Where the target does, after the input and its seed were printed.
pub fn fuzz(name: &str, corpus: &[&[u8]], target: impl Fn(&[u8])) {
    assert!(!corpus.is_empty(), "{name}: there is nothing to make inputs from");
    let number =
        |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    let alone = number("BOWWAVE_FUZZ_SEED");
    let seconds = number("BOWWAVE_FUZZ_SECONDS").filter(|_| alone.is_none());
    for input in corpus.iter().filter(|_| alone.is_none()) {
        play(name, None, input, &target);
    }
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64);
    let first = alone.unwrap_or_else(|| seconds.map_or(1, |_| fresh()));
    let (begun, mut seed) = (Instant::now(), first);
    loop {
        let done = match (alone, seconds) {
            (Some(_), _) => seed > first,
            (None, Some(seconds)) => begun.elapsed() >= Duration::from_secs(seconds),
            (None, None) => seed - first == INPUTS,
        };
        if done {
            break;
        }
        play(name, Some(seed), &input(corpus, seed), &target);
        seed += 1;
    }
    println!("{name}: seeds {first} to {}", seed - 1);
}

/// The same for what reads text: bytes that are none become the sign for that.
///
/// # Panics
/// As [`fuzz`].
pub fn fuzz_text(name: &str, corpus: &[&str], target: impl Fn(&str)) {
    let corpus: Vec<&[u8]> = corpus.iter().map(|text| text.as_bytes()).collect();
    fuzz(name, &corpus, |bytes| target(&String::from_utf8_lossy(bytes)));
}

fn play(name: &str, seed: Option<u64>, input: &[u8], target: &impl Fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let seed = seed.map_or("the corpus".to_owned(), |seed| format!("BOWWAVE_FUZZ_SEED={seed}"));
        eprintln!("{name} failed on this input ({seed}):\n{}", input.escape_ascii());
        resume_unwind(panic);
    }
}

/// The input of a seed.
fn input(corpus: &[&[u8]], seed: u64) -> Vec<u8> {
    let mut chance = Chance::new(seed);
    let mut bytes = corpus[chance.place(corpus.len())].to_vec();
    for _ in 0..=chance.number() % EDITS_MAX {
        edit(&mut bytes, corpus, &mut chance);
        bytes.truncate(INPUT_BYTES_MAX);
    }
    bytes
}

fn edit(bytes: &mut Vec<u8>, corpus: &[&[u8]], chance: &mut Chance) {
    let at = chance.place(bytes.len() + 1);
    let end = at + chance.place(bytes.len() - at + 1);
    match chance.number() % 9 {
        0 if at < bytes.len() => bytes[at] ^= 1 << chance.place(8),
        1 if at < bytes.len() => bytes[at] = chance.number() as u8,
        2 => drop(bytes.drain(at..end)),
        3 => {
            let again = bytes[at..end].to_vec();
            let times = 1 + chance.place(4).pow(3);
            let all = again.repeat(times.min(INPUT_BYTES_MAX / again.len().max(1)));
            drop(bytes.splice(at..at, all));
        }
        4 => {
            let other = corpus[chance.place(corpus.len())];
            bytes.truncate(at);
            bytes.extend(&other[chance.place(other.len() + 1)..]);
        }
        5 => drop(bytes.splice(at..at, PIECES[chance.place(PIECES.len())].iter().copied())),
        6 => {
            // A piece of another in the place of one of ours.
            let other = corpus[chance.place(corpus.len())];
            let from = chance.place(other.len() + 1);
            let to = from + chance.place(other.len() - from + 1);
            drop(bytes.splice(at..end, other[from..to].iter().copied()));
        }
        _ => {
            // The first number from here on.
            let digit = |byte: &u8| byte.is_ascii_digit();
            let Some(start) = bytes[at..].iter().position(digit).map(|i| at + i) else { return };
            let end = bytes[start..].iter().position(|b| !digit(b)).map_or(bytes.len(), |i| start + i);
            let odd = if chance.place(4) == 0 {
                chance.number().to_string()
            } else {
                NUMBERS[chance.place(NUMBERS.len())].into()
            };
            drop(bytes.splice(start..end, odd.into_bytes()));
        }
    }
}

/// Numbers drawn from a seed, by SplitMix64: the same ones each time. O(1) a number.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Begins at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`; 0 for an `n` of 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n.max(1)
    }

    /// A place among `len`.
    fn place(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_wrong_property_is_found() {
        let played = Cell::new(0);
        let no_zero = |text: &str| {
            played.set(played.get() + 1);
            assert!(text.split(',').all(|number| number.parse() != Ok(0)));
        };
        let found = catch_unwind(AssertUnwindSafe(|| fuzz_text("no zero", &["1,2,3"], no_zero)));
        assert!(found.is_err());
        assert!(played.get() < 100 || std::env::var_os("BOWWAVE_FUZZ_SEED").is_some(), "{}", played.get());
    }

    #[test]
    fn a_seed_is_one_input_and_inputs_are_bounded() {
        let corpus: [&[u8]; 2] = [b"bytes 0-4/5", &[b'x'; INPUT_BYTES_MAX]];
        for seed in 0..2000 {
            let made = input(&corpus, seed);
            assert_eq!(made, input(&corpus, seed));
            assert!(made.len() <= INPUT_BYTES_MAX);
        }
        assert!((0..100).map(|seed| input(&corpus, seed)).filter(|made| made != corpus[0]).count() > 90);
    }
}
