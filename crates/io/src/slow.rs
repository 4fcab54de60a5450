//! Any storage at a modelled device's pace, in real time: the lab's models under a real engine.
//!
//! The device is one, whatever the number of objects on it, as a disk or a bucket is one. A read is submitted when it arrives, its
//! bytes are had meanwhile, and it returns when the model is done with it:
//!
//! ```text
//!   reader 1  read_at ── submit ── bytes ── asleep ........... woken at 30.0 ms
//!   reader 2     read_at ── submit ── bytes ── asleep .............. woken at 30.4 ms
//!   device    one thread: sleeps to the next completion, wakes that reader
//! ```
//!
//! Worked example: s3 answers 1 MB in 30 ms and 1 MB at 90 MB/s: 41.1 ms; 16 such reads at once share 1 GB/s and are back after
//! 46 ms, not after 658 (test `reads_overlap_as_the_model_has_it`). A read that is cancelled returns at once; the device
//! serves it all the same, as devices do.

use crate::{Error, Haste, Meta, Oversleep, ReadOne, Storage, Until, hurry, rest};
use bowwave_core::Nanos;
use bowwave_lab::{Device, DeviceModel};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How often a waiting reader looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);
/// Waking a reader on another processor takes this much here (25 to 60 us), so a device without a head wakes it earlier. A
/// head's order depends on when the next request comes, and is left alone.
const WAKE_NS: u64 = 30_000;

/// A modelled device that lives in real time. Cheap to clone; its thread ends with the last clone.
#[derive(Clone, Debug)]
pub struct SlowDevice(Arc<Running>);

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Of the objects on it.
    endpoint: u64,
    /// Requests that it serves at a time: whoever makes as many of a thread loses nothing.
    at_once: usize,
}

#[derive(Debug)]
struct Shared {
    epoch: Instant,
    wake_ns: u64,
    queue: Mutex<Queue>,
    /// Something is due earlier than it was.
    sooner: Condvar,
    requests: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    device: Device,
    readers: HashMap<u64, Arc<Reader>>,
    number: u64,
    oversleep: Oversleep,
    stopped: bool,
}

/// A reader who waits.
#[derive(Debug)]
struct Reader {
    thread: Thread,
    done: AtomicBool,
}

impl SlowDevice {
    /// An idle device.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(model: DeviceModel) -> io::Result<Self> {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let mut hasher = DefaultHasher::new();
        ("slow", STARTED.fetch_add(1, Ordering::Relaxed)).hash(&mut hasher);
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            wake_ns: if model.head.is_some() { 0 } else { WAKE_NS },
            queue: Mutex::new(Queue {
                device: Device::new(model),
                readers: HashMap::new(),
                number: 0,
                oversleep: Oversleep::default(),
                stopped: false,
            }),
            sooner: Condvar::new(),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        let at_once = model.slots as usize;
        let running = shared.clone();
        let thread = thread::Builder::new().name("device".into()).spawn(move || {
            hurry(Haste::Answer);
            running.run();
        })?;
        Ok(Self(Arc::new(Running { shared, thread: Some(thread), endpoint: hasher.finish(), at_once })))
    }

    /// Requests and bytes that it was asked for.
    pub fn asked(&self) -> (u64, u64) {
        let shared = &self.0.shared;
        (shared.requests.load(Ordering::Relaxed), shared.bytes.load(Ordering::Relaxed))
    }

    /// It is idle again for the requests to come.
    pub fn reset(&self) {
        self.0.shared.queue().device.reset();
    }

    /// A request arrives now.
    fn submit(&self, address: u64, bytes: u64) -> Arc<Reader> {
        self.submit_all([(address, bytes)]).pop().expect("a reader for each request")
    }

    /// Requests arrive now, all at once.
    fn submit_all(&self, requests: impl IntoIterator<Item = (u64, u64)>) -> Vec<Arc<Reader>> {
        let shared = &self.0.shared;
        let mut queue = shared.queue();
        // Taken under the lock: the device's moments must not go back.
        let now = shared.now_ns();
        let before = queue.device.next_completion();
        let mut readers = Vec::new();
        for (address, bytes) in requests {
            shared.requests.fetch_add(1, Ordering::Relaxed);
            shared.bytes.fetch_add(bytes, Ordering::Relaxed);
            let reader = Arc::new(Reader { thread: thread::current(), done: AtomicBool::new(false) });
            queue.number += 1;
            let number = queue.number;
            queue.device.submit(Nanos(now), number, address, bytes);
            queue.readers.insert(number, reader.clone());
            readers.push(reader);
        }
        let sooner = queue.device.next_completion() != before;
        drop(queue);
        if sooner {
            shared.sooner.notify_one();
        }
        readers
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.queue().stopped = true;
        self.shared.sooner.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn run(&self) {
        let mut queue = self.queue();
        while !queue.stopped {
            let now = self.now_ns();
            if let Some((_, number)) = queue.device.complete(Nanos(now + self.wake_ns)) {
                if let Some(reader) = queue.readers.remove(&number) {
                    reader.done.store(true, Ordering::Release);
                    reader.thread.unpark();
                }
                continue;
            }
            let due = queue.device.next_completion().map(|(due, _)| due.0.saturating_sub(self.wake_ns));
            let spare = due.map(|due| due.saturating_sub(now));
            queue = rest(&self.queue, queue, &self.sooner, spare, |queue| &mut queue.oversleep);
        }
    }
}

/// A storage on a slow device.
#[derive(Clone, Debug)]
pub struct SlowStorage<S> {
    inner: S,
    meta: Meta,
    device: SlowDevice,
    address: u64,
}

impl<S: Storage> SlowStorage<S> {
    /// `inner` on `device`, its first byte at `address` of it.
    pub fn new(inner: S, device: &SlowDevice, address: u64) -> Self {
        let meta = Meta { endpoint: device.0.endpoint, ..inner.meta().clone() };
        Self { inner, meta, device: device.clone(), address }
    }
}

impl<S: Storage> Storage for SlowStorage<S> {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
        until.check(&self.meta.name)?;
        let bytes = into.iter().map(|slice| slice.len() as u64).sum();
        let reader = self.device.submit(self.address.saturating_add(offset), bytes);
        self.inner.read_at(offset, into, until)?;
        self.wait(&reader, until)
    }

    fn at_once(&self) -> usize {
        self.device.0.at_once
    }

    fn read_each(&self, reads: &mut [ReadOne<'_, '_>], until: &Until) {
        let requests = reads.iter().map(|read| (self.address.saturating_add(read.offset), read.bytes()));
        let readers = self.device.submit_all(requests);
        self.inner.read_each(reads, until);
        for (read, reader) in reads.iter_mut().zip(readers) {
            if read.outcome.is_ok() {
                read.outcome = self.wait(&reader, until);
            }
        }
    }
}

impl<S> SlowStorage<S> {
    /// Returns when the device is done with a request.
    fn wait(&self, reader: &Reader, until: &Until) -> Result<(), Error> {
        while !reader.done.load(Ordering::Acquire) {
            until.check(&self.meta.name)?;
            thread::park_timeout(LOOK.min(until.left()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStorage;

    const MB: usize = 1_000_000;

    #[test]
    fn reads_overlap_as_the_model_has_it() {
        let device = SlowDevice::start(DeviceModel::S3).unwrap();
        let storage = SlowStorage::new(MemoryStorage::new("zeros", vec![7; 16 * MB]), &device, 0);
        let begun = Instant::now();
        thread::scope(|scope| {
            for n in 0..16 {
                let storage = &storage;
                scope.spawn(move || {
                    let mut buffer = vec![0; MB];
                    let until = Until::after(Duration::from_secs(9));
                    let at = (n * MB) as u64;
                    storage.read_at(at, &mut [IoSliceMut::new(&mut buffer)], &until).unwrap();
                    assert!(buffer.iter().all(|byte| *byte == 7));
                });
            }
        });
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(45), "{took:?}");
        assert!(took < Duration::from_millis(400), "16 in a row would take 658 ms: {took:?}");
        assert_eq!(device.asked(), (16, 16 * MB as u64));
    }

    #[test]
    fn reads_of_one_thread_overlap_too() {
        let device = SlowDevice::start(DeviceModel::S3).unwrap();
        let storage = SlowStorage::new(MemoryStorage::new("sevens", vec![7; 16 << 12]), &device, 0);
        assert_eq!(storage.at_once(), 64);
        let mut buffer = vec![0; 17 << 12];
        let mut slices: Vec<_> = buffer.chunks_mut(1 << 12).map(|chunk| [IoSliceMut::new(chunk)]).collect();
        let name = storage.meta().name.clone();
        let places = slices.iter_mut().enumerate();
        let mut reads: Vec<_> =
            places.map(|(n, slices)| ReadOne::new(&name, (n as u64) << 12, slices)).collect();
        let begun = Instant::now();
        storage.read_each(&mut reads, &Until::after(Duration::from_secs(9)));
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(240), "16 in a row would take 480 ms: {took:?}");
        assert!(reads[..16].iter().all(|read| read.outcome.is_ok()));
        assert!(reads[16].outcome.is_err(), "beyond the end");
        assert!(buffer[..16 << 12].iter().all(|byte| *byte == 7));
        assert_eq!(device.asked().0, 17);
    }

    #[test]
    fn who_is_not_wanted_does_not_wait() {
        let device = SlowDevice::start("lat=60s,bw=1GB/s".parse().unwrap()).unwrap();
        let storage = SlowStorage::new(MemoryStorage::new("zeros", [0; 8]), &device, 0);
        let until = Arc::new(Until::after(Duration::from_secs(60)));
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(30));
                until.cancel();
            });
            let error = storage.read_at(0, &mut [IoSliceMut::new(&mut [0; 8])], &until).unwrap_err();
            assert!(matches!(error, Error::Cancelled { .. }));
        });
        let soon = Until::after(Duration::from_millis(10));
        let error = storage.read_at(0, &mut [IoSliceMut::new(&mut [0; 8])], &soon).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
