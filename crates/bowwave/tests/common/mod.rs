//! Storages for tests: content that is known without being kept, and faults on demand.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test uses what it needs")]

use bowwave::{Error, Meta, Storage, Until};
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Chance from a seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

/// An object of which every eight bytes say where they are.
#[derive(Clone)]
pub struct Content {
    meta: Meta,
    seed: u64,
}

impl Content {
    pub fn new(seed: u64, len: u64) -> Self {
        Self { meta: Meta { name: "content".into(), len, version: None, endpoint: 1 }, seed }
    }

    fn byte(&self, at: u64) -> u8 {
        let word = ((at / 8) ^ (self.seed << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word.to_le_bytes()[(at % 8) as usize]
    }

    pub fn fill(&self, at: u64, out: &mut [u8]) {
        let mut i = 0;
        while i < out.len() && !(at + i as u64).is_multiple_of(8) {
            out[i] = self.byte(at + i as u64);
            i += 1;
        }
        let mut words = out[i..].chunks_exact_mut(8);
        let mut place = (at + i as u64) / 8;
        for word in &mut words {
            let value = (place ^ (self.seed << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            word.copy_from_slice(&value.to_le_bytes());
            place += 1;
        }
        for (k, byte) in words.into_remainder().iter_mut().enumerate() {
            *byte = self.byte(place * 8 + k as u64);
        }
    }

    pub fn holds(&self, at: u64, bytes: &[u8]) -> bool {
        let mut truth = vec![0; bytes.len()];
        self.fill(at, &mut truth);
        truth == bytes
    }
}

impl Storage for Content {
    fn meta(&self) -> &Meta {
        &self.meta
    }
    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        until.check(&self.meta.name)?;
        let mut at = offset;
        for slice in into {
            assert!(at + slice.len() as u64 <= self.meta.len, "asked beyond its end");
            self.fill(at, slice);
            at += slice.len() as u64;
        }
        Ok(())
    }
}

/// What may go wrong.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub error_percent: u64,
    /// So many of those in a row at one offset at most; 0 for as many as chance will have.
    pub errors_in_a_row_max: u32,
    pub short_percent: u64,
    pub panic_percent: u64,
    pub stall_percent: u64,
    pub stall_ms: u64,
    /// Answers of another length than was asked for.
    pub wrong_percent: u64,
    /// Reads that stall without a look at their deadline.
    pub deaf_permille: u64,
    pub hang: bool,
    pub missing: bool,
}

/// An object behind a store with faults.
pub struct Faulty {
    content: Content,
    faults: Faults,
    together: bool,
    settled: AtomicBool,
    changed: AtomicBool,
    random: AtomicU64,
    bytes: AtomicU64,
    /// Errors by offset.
    errors: Mutex<HashMap<u64, u32>>,
}

impl Faulty {
    pub fn new(content: Content, faults: Faults, seed: u64) -> Arc<Self> {
        let (settled, changed) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self {
            content,
            faults,
            together: seed.is_multiple_of(2),
            settled,
            changed,
            random: AtomicU64::new(seed),
            bytes: AtomicU64::new(0),
            errors: Mutex::default(),
        })
    }
    /// Whether it may fail at this offset once more.
    fn may_fail(&self, offset: u64) -> bool {
        let mut errors = self.errors.lock().unwrap();
        let in_a_row = errors.entry(offset).or_default();
        let may = self.faults.errors_in_a_row_max == 0 || *in_a_row < self.faults.errors_in_a_row_max;
        *in_a_row = if may { *in_a_row + 1 } else { 0 };
        may
    }
    /// From now on nothing goes wrong.
    pub fn settle(&self) {
        self.settled.store(true, Ordering::SeqCst);
    }
    pub fn change(&self) {
        self.changed.store(true, Ordering::SeqCst);
    }
    pub fn change_back(&self) {
        self.changed.store(false, Ordering::SeqCst);
    }
    /// Bytes that were read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
    fn name(&self) -> Arc<str> {
        self.content.meta.name.clone()
    }
}

impl Storage for Faulty {
    fn meta(&self) -> &Meta {
        &self.content.meta
    }
    /// Every other seed has a store that takes many reads of one thread at once.
    fn at_once(&self) -> usize {
        if self.together { 32 } else { 1 }
    }
    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        let draw = Random::new(self.random.fetch_add(1, Ordering::SeqCst)).next();
        let settled = self.settled.load(Ordering::SeqCst);
        let (dice, f) = (draw % 100, self.faults);
        if self.changed.load(Ordering::SeqCst) {
            return Err(Error::Changed { object: self.name() });
        }
        if !settled {
            while f.hang && !self.settled.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if f.missing {
                return Err(Error::NotFound { object: self.name() });
            }
            assert!(dice >= f.panic_percent, "a fault that was asked for");
            if dice < f.error_percent && self.may_fail(offset) {
                return Err(Error::io(&self.name(), io::Error::other("a fault that was asked for")));
            }
            if (draw >> 8) & 127 < f.short_percent {
                // Some bytes are there, the rest is not, and they are wrong.
                into[0].fill(0xee);
                return Err(Error::Wrong { object: self.name(), what: "a short body".into() });
            }
            if (draw >> 32) & 127 < f.wrong_percent {
                for slice in into.iter_mut() {
                    slice.fill(0xdd);
                }
                return Err(Error::Wrong { object: self.name(), what: "another length".into() });
            }
            if (draw >> 40) & 1023 < f.deaf_permille {
                std::thread::sleep(Duration::from_millis(f.stall_ms));
            }
            if (draw >> 16) & 127 < f.stall_percent {
                let end = Instant::now() + Duration::from_millis(f.stall_ms);
                while Instant::now() < end {
                    until.check(&self.name())?;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        self.content.read_at(offset, into, until)?;
        self.bytes.fetch_add(into.iter().map(|slice| slice.len() as u64).sum(), Ordering::SeqCst);
        Ok(())
    }
}

/// Waits for what happens in the background.
pub fn wait_until(done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "it did not happen in 20 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}
