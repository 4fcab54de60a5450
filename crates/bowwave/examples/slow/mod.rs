//! A storage at the pace of the lab's device models, in real time: what the examples read from.
//!
//! Its threads and those of the cache have real-time priority where that is permitted: what is measured is the cache, and not
//! who else wants the processors. For a device with a head one thread sleeps until the next completion of the [`Device`] and wakes
//! who waits for it. Contents are made up: every eight bytes say where they are, so every read can be verified without keeping a
//! byte.
#![allow(dead_code, unreachable_pub, reason = "each example uses what it needs")]

use bowwave::{Error, Meta, Nanos, ReadOne, Storage, Until};
use bowwave_io::{Haste, hurry};
use bowwave_lab::{Device, DeviceModel};
use std::collections::HashMap;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Sleeps of a virtual machine end up to this much late: the rest is waited out awake, where few wait.
const AWAKE: Duration = Duration::from_micros(100);
const FEW: usize = 2;
/// Where many wait, being awake would take the processors from those who are to read.
const AWAKE_AMONG_MANY: Duration = Duration::from_micros(15);
/// Where the sleep is longer than this, being late by that little does not count.
const LONG: Duration = Duration::from_millis(5);

/// A device that storages share.
pub struct SlowDevice {
    model: DeviceModel,
    epoch: Instant,
    state: Mutex<State>,
    clock: Condvar,
    requests: AtomicU64,
    bytes: AtomicU64,
}

struct State {
    device: Device,
    waiting: HashMap<u64, (Thread, Arc<AtomicBool>)>,
    next: u64,
}

impl SlowDevice {
    /// Starts its clock.
    pub fn start(model: DeviceModel) -> Arc<Self> {
        let state = State { device: Device::new(model), waiting: HashMap::new(), next: 0 };
        let device = Arc::new(Self {
            model,
            epoch: Instant::now(),
            state: Mutex::new(state),
            clock: Condvar::new(),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        // Whoever reads, and the threads of the cache that he starts, sleep as a device would.
        hurry(Haste::Answer);
        let clock = Arc::downgrade(&device);
        std::thread::spawn(move || {
            while let Some(device) = clock.upgrade() {
                device.tick();
            }
        });
        device
    }

    /// Requests and bytes so far.
    pub fn traffic(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn now(&self) -> Nanos {
        Nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    fn tick(&self) {
        let mut state = self.state.lock().expect("nobody panics here");
        while let Some((_, id)) = state.device.complete(self.now()) {
            if let Some((thread, done)) = state.waiting.remove(&id) {
                done.store(true, Ordering::Release);
                thread.unpark();
            }
        }
        let next = state.device.next_completion();
        let wait =
            next.map_or(Duration::from_millis(50), |(due, _)| Duration::from_nanos(due.since(self.now()).0));
        if wait > AWAKE {
            let _unused = self.clock.wait_timeout(state, wait - AWAKE);
        } else {
            drop(state);
            std::hint::spin_loop();
        }
    }

    /// Returns when the device has carried these bytes.
    fn pass(&self, address: u64, bytes: u64) {
        if self.model.head.is_none() {
            return self.sleep(self.submit(&[(address, bytes)]));
        }
        self.count(&[(address, bytes)]);
        let done = Arc::new(AtomicBool::new(false));
        {
            let mut state = self.state.lock().expect("nobody panics here");
            let (id, now) = (state.next, self.now());
            state.next += 1;
            state.device.submit(now, id, address, bytes);
            state.waiting.insert(id, (std::thread::current(), Arc::clone(&done)));
        }
        self.clock.notify_one();
        while !done.load(Ordering::Acquire) {
            std::thread::park();
        }
    }
}

impl SlowDevice {
    fn count(&self, requests: &[(u64, u64)]) {
        self.requests.fetch_add(requests.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(requests.iter().map(|(_, bytes)| bytes).sum(), Ordering::Relaxed);
    }

    /// Requests that come at once, where there is no head: when the last of them is done, for that is known then, and how many wait.
    fn submit(&self, requests: &[(u64, u64)]) -> (Nanos, usize) {
        self.count(requests);
        let mut state = self.state.lock().expect("nobody panics here");
        let (first, now) = (state.next, self.now());
        while state.device.complete(now).is_some() {}
        for (address, bytes) in requests {
            let id = state.next;
            state.next += 1;
            state.device.submit(now, id, *address, *bytes);
        }
        let own = state.device.upcoming().filter(|upcoming| upcoming.1 >= first);
        let due = own.map(|(due, _)| due).max().unwrap_or(now);
        (due, state.device.upcoming().count())
    }

    /// Whoever made requests sleeps until they are done.
    fn sleep(&self, (due, waiting): (Nanos, usize)) {
        let awake = if waiting <= FEW { AWAKE } else { AWAKE_AMONG_MANY };
        let left = Duration::from_nanos(due.since(self.now()).0);
        if left > LONG {
            std::thread::sleep(left);
        } else if left > awake {
            std::thread::sleep(left - awake);
        }
        while self.now() < due {
            std::thread::yield_now();
        }
    }
}

/// An object on a slow device.
pub struct SlowFile {
    meta: Meta,
    device: Arc<SlowDevice>,
    number: u64,
}

impl SlowFile {
    /// Object number `number`, of `len` bytes.
    pub fn new(device: &Arc<SlowDevice>, number: u64, len: u64) -> Self {
        let name = format!("slow/{number}").into();
        Self { meta: Meta { name, len, version: None, endpoint: 1 }, device: Arc::clone(device), number }
    }
}

fn word(number: u64, place: u64) -> u64 {
    (place ^ (number << 44)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Whether the first and the last whole words of a read are what they should be.
pub fn verify(number: u64, offset: u64, bytes: &[u8]) -> bool {
    let first = offset.next_multiple_of(8);
    let last = (offset + bytes.len() as u64) / 8 * 8;
    let holds = |at: u64| {
        let i = (at - offset) as usize;
        bytes.get(i..i + 8).is_none_or(|bytes| bytes == word(number, at / 8).to_le_bytes())
    };
    last < first + 8 || (holds(first) && holds(last - 8))
}

impl Storage for SlowFile {
    fn meta(&self) -> &Meta {
        &self.meta
    }
    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        until.check(&self.meta.name)?;
        let bytes = self.fill(offset, into);
        self.device.pass((self.number << 36) + offset, bytes);
        until.check(&self.meta.name)
    }

    fn at_once(&self) -> usize {
        self.device.model.slots as usize
    }

    fn read_each(&self, reads: &mut [ReadOne<'_, '_>], until: &Until) {
        let requests: Vec<(u64, u64)> = reads
            .iter_mut()
            .map(|read| ((self.number << 36) + read.offset, self.fill(read.offset, read.into)))
            .collect();
        self.device.sleep(self.device.submit(&requests));
        for read in reads {
            read.outcome = until.check(&self.meta.name);
        }
    }
}

impl SlowFile {
    /// The bytes of a read, and how many they are.
    fn fill(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> u64 {
        assert!(offset.is_multiple_of(8), "requests are whole pages");
        let mut at = offset;
        for slice in into.iter_mut() {
            let mut words = slice.chunks_exact_mut(8);
            for word8 in &mut words {
                word8.copy_from_slice(&word(self.number, at / 8).to_le_bytes());
                at += 8;
            }
            let rest = words.into_remainder();
            let tail = word(self.number, at / 8).to_le_bytes();
            rest.copy_from_slice(&tail[..rest.len()]);
            at += rest.len() as u64;
        }
        at - offset
    }
}
