//! Any storage with faults that come from a seed: what a bad day at a store looks like, the same day again.
//!
//! The fault of a read depends on the seed and on which read it is, in the order of arrival: one reader sees the same day twice.
//!
//! ```text
//!   seed 7, errors 5 %, stalls 1 % of 10 s      read  1  2  3 ...  12     13 ...  40      41 ...
//!                                                     ok ok ok     error  ok      stall   ok
//! ```
//!
//! | fault | what the reader gets |
//! |---|---|
//! | error | [`Error::Io`], nothing read |
//! | stall | the right bytes, late; or [`Error::TimedOut`] if it had less time |
//! | short | [`Error::Wrong`], as a body that ends early gives; half of the frames were written |
//! | wrong | [`Error::Wrong`], as a length or a range that is another gives |
//! | change | [`Error::Changed`], from then on for ever: the object is another |
//!
//! After an error the frames hold garbage, so that whoever uses them all the same is found out.

use crate::{Error, Meta, Storage, Until};
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How often a stalled read looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(10);

/// How often what goes wrong: shares of reads, of a million.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Which day it is.
    pub seed: u64,
    /// Reads that fail, of a million.
    pub errors_ppm: u32,
    /// Reads that stall, of a million.
    pub stalls_ppm: u32,
    /// How long those stall.
    pub stall: Duration,
    /// Reads whose body is short, of a million.
    pub short_ppm: u32,
    /// Reads that are answered with another length or range, of a million.
    pub wrong_ppm: u32,
    /// The object changes at this read, counted from 0.
    pub change_at: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Error,
    Stall,
    Short,
    Wrong,
}

impl Faults {
    /// What happens to read `number`.
    fn of(&self, number: u64) -> Option<Fault> {
        let drawn = mix(self.seed ^ mix(number)) % 1_000_000;
        let shares = [
            (self.errors_ppm, Fault::Error),
            (self.stalls_ppm, Fault::Stall),
            (self.short_ppm, Fault::Short),
            (self.wrong_ppm, Fault::Wrong),
        ];
        let mut past = 0;
        shares.into_iter().find_map(|(share, fault)| {
            past += u64::from(share);
            (drawn < past).then_some(fault)
        })
    }
}

/// Spreads a number over all 64 bits (splitmix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A storage that has its bad days.
#[derive(Debug)]
pub struct FaultyStorage<S> {
    inner: S,
    faults: Faults,
    reads: AtomicU64,
    changed: AtomicBool,
}

impl<S: Storage> FaultyStorage<S> {
    /// `inner` on the day that `faults` says.
    pub fn new(inner: S, faults: Faults) -> Self {
        Self { inner, faults, reads: AtomicU64::new(0), changed: AtomicBool::new(false) }
    }

    /// Reads that arrived.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn stall(&self, until: &Until) -> Result<(), Error> {
        let mut left = self.faults.stall;
        while !left.is_zero() {
            until.check(&self.meta().name)?;
            let nap = left.min(LOOK);
            thread::sleep(nap);
            left -= nap;
        }
        until.check(&self.meta().name)
    }
}

impl<S: Storage> Storage for FaultyStorage<S> {
    fn meta(&self) -> &Meta {
        self.inner.meta()
    }

    fn at_once(&self) -> usize {
        self.inner.at_once()
    }

    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        let object = || self.meta().name.clone();
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        if self.faults.change_at.is_some_and(|at| number >= at) {
            self.changed.store(true, Ordering::Release);
        }
        if self.changed.load(Ordering::Acquire) {
            garble(into);
            return Err(Error::Changed { object: object() });
        }
        let wrong = |what: &str| Error::Wrong { object: object(), what: what.into() };
        let error = match self.faults.of(number) {
            None => return self.inner.read_at(offset, into, until),
            Some(Fault::Stall) => {
                self.stall(until)?;
                return self.inner.read_at(offset, into, until);
            }
            Some(Fault::Error) => Error::Io {
                object: object(),
                source: Arc::new(io::Error::other("a fault that was asked for")),
            },
            Some(Fault::Short) => {
                let half = into.len() / 2;
                self.inner.read_at(offset, &mut into[..half], until)?;
                wrong("a shorter body than it said")
            }
            Some(Fault::Wrong) => wrong("another range than was asked for"),
        };
        garble(into);
        Err(error)
    }
}

/// What no object holds, at the end of every slice.
fn garble(into: &mut [IoSliceMut<'_>]) {
    for slice in into {
        let from = slice.len() / 2;
        slice[from..].fill(0xA5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStorage;

    fn read(storage: &impl Storage) -> Result<(), Error> {
        let mut buffer = [0; 8];
        let until = Until::after(Duration::from_secs(9));
        storage
            .read_at(0, &mut [IoSliceMut::new(&mut buffer)], &until)
            .map(|()| assert_eq!(&buffer, b"abcdefgh"))
    }

    #[test]
    fn a_day_is_the_same_day_again() {
        let faults =
            Faults { seed: 7, errors_ppm: 50_000, short_ppm: 20_000, wrong_ppm: 20_000, ..Faults::default() };
        let day = || {
            let storage = FaultyStorage::new(MemoryStorage::new("letters", *b"abcdefgh"), faults);
            (0..2000).map(|_| read(&storage).map_err(|error| error.to_string())).collect::<Vec<_>>()
        };
        let first = day();
        assert_eq!(first, day());
        let failed = first.iter().filter(|result| result.is_err()).count();
        assert!((120..240).contains(&failed), "9 % of 2000 are 180, not {failed}");
        let io = first.iter().filter(|r| r.as_ref().is_err_and(|e| e.contains("asked for"))).count();
        assert!(io > 0 && first.iter().flat_map(|r| r.as_ref().err()).all(|e| e.starts_with("letters: ")));
    }

    #[test]
    fn a_change_is_for_good_and_a_stall_ends_with_the_time() {
        let inner = MemoryStorage::new("letters", *b"abcdefgh");
        let storage = FaultyStorage::new(inner.clone(), Faults { change_at: Some(2), ..Faults::default() });
        assert!(read(&storage).is_ok() && read(&storage).is_ok());
        assert!(matches!(read(&storage), Err(Error::Changed { .. })));
        assert!(matches!(read(&storage), Err(Error::Changed { .. })));
        let stall = Duration::from_secs(3600);
        let storage = FaultyStorage::new(inner, Faults { stalls_ppm: 1_000_000, stall, ..Faults::default() });
        let until = Until::after(Duration::from_millis(30));
        let error = storage.read_at(0, &mut [IoSliceMut::new(&mut [0; 8])], &until).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }));
    }
}
