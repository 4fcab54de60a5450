//! The one loop: readers come in, the brain decides, threads bring bytes, readers go on.
//!
//! ```text
//!  reader                       the lock                     a thread of the pool
//!  all there and quiet? copy    -                            -
//!  else: own request, Read  --> flights --- lined up ------> storage.read_at, again where an error may pass
//!  waits for its flight    <-------------- landed: present <- or failed
//!  Waited                   -->
//! ```
//!
//! Nothing is decided here but how often and how long a storage is asked: at most six times, 20, 40, .. 320 ms apart give or
//! take half, each for a quarter of the time-out, all of it within the time-out. What nobody waits for is asked once. And a
//! storage that hangs past every deadline is not asked any more while it keeps a quarter of the threads, which leaves the others to
//! other endpoints.

use crate::brain::{Brain, Orders};
use crate::flight::{Flight, lock};
use crate::memory::{FILE_BYTES_MAX, Memory, Run};
use crate::notes::Notes;
use crate::pool::{Job, Pool, Request};
use bowwave_core::{Bytes, Learnt, Nanos, PAGE_SIZE};
use bowwave_io::{Error, Meta, ReadOne, Storage, Until};
use std::io::{self, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Times that a storage is asked for what somebody waits for.
const ATTEMPTS_MAX: u32 = 6;
const BACKOFF: Duration = Duration::from_millis(20);
/// Shares of the time-out that one attempt may take.
const ATTEMPTS_IN_TIME: u32 = 4;
/// Slices that one request fills at most: what the system's own calls take (IOV_MAX).
const SLICES_MAX: usize = 1024;

/// A device with this latency is read by the reader himself. What hangs there hangs him, as it would have without us.
const QUICK: Nanos = Nanos::from_us(250);

/// What a file is to everybody.
pub(crate) struct FileShared {
    pub(crate) number: u32,
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) meta: Meta,
    /// Whether its device answers at once, by what was known at the latest read that was told.
    quick: AtomicBool,
    /// Pages side by side that had better go in one request, by what was known then.
    joined_max: AtomicU64,
    /// Set once the object was found to be another: what is cached stays readable, nothing else.
    changed: OnceLock<Error>,
}

impl FileShared {
    pub(crate) fn new(number: u32, storage: Box<dyn Storage>) -> Self {
        let meta = storage.meta().clone();
        let (quick, joined_max) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { number, storage, meta, quick, joined_max, changed: OnceLock::new() }
    }

    /// What is known of its device, if anything.
    pub(crate) fn learnt(&self, learnt: Option<Learnt>) {
        let quick = learnt.and_then(|learnt| learnt.latency).is_some_and(|latency| latency < QUICK);
        self.quick.store(quick, Ordering::Relaxed);
        self.joined_max.store(learnt.map_or(0, |learnt| learnt.joined_max.0), Ordering::Relaxed);
    }

    /// Pages side by side that had better go in one request, beside the first.
    pub(crate) fn joined_max(&self) -> u64 {
        self.joined_max.load(Ordering::Relaxed)
    }

    /// Whether who reads it waits for its device himself.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick.load(Ordering::Relaxed)
    }

    pub(crate) fn changed(&self) -> Option<Error> {
        self.changed.get().cloned()
    }
}

/// How a cache was built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) memory: Bytes,
    pub(crate) timeout: Duration,
}

/// Everything that the readers, the threads and the brain share.
pub(crate) struct Engine {
    pub(crate) memory: Arc<Memory>,
    pub(crate) settings: Settings,
    pub(crate) frames: u32,
    /// Leaves that views hold.
    pub(crate) pinned: AtomicU64,
    pub(crate) notes: Arc<Notes>,
    brain: Mutex<Brain>,
    pool: Pool,
    epoch: Instant,
    chance: AtomicU64,
    /// What storages are asked at this moment: the endpoint, and when the answer is overdue. At most a thread or a reader each.
    asked: Mutex<Vec<(u64, Instant)>>,
}

impl Engine {
    pub(crate) fn new(settings: Settings) -> io::Result<Self> {
        let frames = u32::try_from(settings.memory.0 / PAGE_SIZE).unwrap_or(u32::MAX - 1);
        let memory = Arc::new(Memory::new(frames)?);
        let notes = Arc::new(Notes::new());
        let brain = Brain::new(Arc::clone(&memory), Arc::clone(&notes), frames, settings.memory.0);
        Ok(Self {
            brain: Mutex::new(brain),
            notes,
            memory,
            settings,
            frames,
            pinned: AtomicU64::new(0),
            pool: Pool::new(settings.memory.0),
            epoch: Instant::now(),
            chance: AtomicU64::new(0x9E37_79B9_7F4A_7C15),
            asked: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// Does something under the lock, and what follows from it without.
    pub(crate) fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut Brain, Nanos) -> T) -> T {
        let (result, orders) = self.decide(act);
        self.obey(orders, 0);
        result
    }

    /// Does something under the lock, and says what follows from it.
    fn decide<T>(&self, act: impl FnOnce(&mut Brain, Nanos) -> T) -> (T, Orders) {
        let now = self.now();
        let mut brain = lock(&self.brain);
        let result = act(&mut brain, now);
        (result, brain.take_orders())
    }

    /// [`Engine::with`] for a reader who may bring his own pages himself: on a device that answers at once, waking a thread for
    /// it and being woken by it would take longer than the read.
    pub(crate) fn with_own<T>(
        self: &Arc<Self>,
        file: &FileShared,
        act: impl FnOnce(&mut Brain, Nanos) -> T,
    ) -> T {
        let (result, mut orders) = self.decide(act);
        let is_own = |flight: &Arc<Flight>| flight.fetch.is_none() && flight.file.number == file.number;
        let own =
            orders.send.iter().position(is_own).filter(|_| file.is_quick()).map(|at| orders.send.remove(at));
        self.obey(orders, 0);
        let own = own.filter(|flight| flight.claim());
        if let Some(flight) = &own {
            self.perform(&Job::own(Arc::clone(flight)), 0);
        }
        result
    }

    /// Sees that orders are carried out; `free` of their flights the caller will take next.
    fn obey(self: &Arc<Self>, orders: Orders, free: usize) {
        for (flight, error) in orders.land {
            flight.land(Err(error));
        }
        self.pool.send(self, orders.send, free);
    }

    /// Opens what can be read, where its length can be told by the number of a leaf. It keeps that length for its life.
    pub(crate) fn open(self: &Arc<Self>, storage: Box<dyn Storage>) -> Result<Arc<FileShared>, Error> {
        self.with(|brain, now| {
            let file = Arc::new(FileShared::new(brain.number(), storage));
            let Meta { name, len, .. } = &file.meta;
            if *len > FILE_BYTES_MAX {
                let what = format!("{len} bytes long; a file of a cache has 2^50 (1 PiB) at most");
                let source = Arc::new(io::Error::new(io::ErrorKind::FileTooLarge, what));
                return Err(Error::Io { object: name.clone(), source });
            }
            brain.open(now, &file);
            brain.pump(now);
            Ok(file)
        })
    }

    /// Somebody waits for this flight.
    pub(crate) fn join(self: &Arc<Self>, flight: &Arc<Flight>) {
        if flight.want() {
            self.pool.promote(self, flight);
        }
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }

    // ---- the threads -----------------------------------------------------------------------------------------------

    /// What a thread of the pool does with its life.
    pub(crate) fn serve(self: Arc<Self>) {
        while let Some(job) = self.pool.next(true) {
            self.perform(&job, 1);
        }
    }

    /// Where no thread can be had, whoever lined work up does it.
    pub(crate) fn serve_what_waits(self: &Arc<Self>) {
        while let Some(job) = self.pool.next(false) {
            self.perform(&job, 1);
        }
    }

    /// Does a job, and sees that what follows from it is done; `free` of those flights the caller will take next.
    fn perform(self: &Arc<Self>, job: &Job, free: usize) {
        let flights = || job.requests.iter().flatten();
        let mut runs: Vec<Vec<Run>> = flights().map(|flight| flight.take_runs()).collect();
        let together = self.bring_all(&job.requests, &mut runs);
        let mut outcomes: Vec<Result<(), Error>> = Vec::with_capacity(runs.len());
        for (request, outcome) in job.requests.iter().zip(together) {
            if outcome.is_ok() || request.len() == 1 {
                outcomes.extend(request.iter().map(|_| outcome.clone()));
                continue;
            }
            // Of several, one may have been the cause: each is asked for alone.
            for flight in request {
                let at = outcomes.len();
                outcomes.push(self.bring(std::slice::from_ref(flight), &mut runs[at..=at]));
            }
        }
        for (flight, outcome) in flights().zip(&outcomes) {
            if let Err(error @ Error::Changed { .. }) = outcome {
                // The first to see it says it for good.
                let _ = flight.file.changed.set(error.clone());
            }
        }
        self.pool.done(job);
        let ((), orders) = self.decide(|brain, now| {
            for ((flight, runs), outcome) in flights().zip(runs).zip(&outcomes) {
                brain.settle(now, flight, runs, outcome.is_ok());
            }
            brain.pump(now);
        });
        self.obey(orders, free);
        for (flight, outcome) in flights().zip(outcomes) {
            flight.land(outcome);
        }
    }

    /// Fills the frames of requests: of one as often as it takes, of several at once, and again alone of those that failed while
    /// somebody waits for them.
    fn bring_all(&self, requests: &[Request], runs: &mut [Vec<Run>]) -> Vec<Result<(), Error>> {
        if let [request] = requests {
            return vec![self.bring(request, runs)];
        }
        let file = &requests[0][0].file;
        let mut outcomes = Vec::new();
        let asked = self.insist(
            file,
            || false,
            |until| {
                requests.iter().flatten().for_each(|flight| flight.attempt(until));
                let mut rest = &mut *runs;
                let mut slices: Vec<(u64, Vec<IoSliceMut<'_>>)> = Vec::with_capacity(requests.len());
                for request in requests {
                    let (own, others) = std::mem::take(&mut rest).split_at_mut(request.len());
                    rest = others;
                    let start = request[0].pages.start.byte();
                    slices.push((start, self.slices(own, file.meta.len - start)));
                }
                let mut reads: Vec<ReadOne<'_, '_>> = slices
                    .iter_mut()
                    .map(|(start, slices)| ReadOne::new(&file.meta.name, *start, slices))
                    .collect();
                file.storage.read_each(&mut reads, until);
                outcomes = reads.into_iter().map(|read| read.outcome).collect();
                Ok(())
            },
        );
        if let Err(error) = asked {
            outcomes = requests.iter().map(|_| Err(error.clone())).collect();
        }
        let mut at = 0;
        for (request, outcome) in requests.iter().zip(&mut outcomes) {
            let own = at..at + request.len();
            at = own.end;
            let Err(error) = outcome else { continue };
            if request.iter().any(|flight| flight.is_demand()) {
                *outcome = self.bring(request, &mut runs[own]);
            } else {
                *outcome = Err(unwanted(file, error.clone()));
            }
        }
        outcomes
    }

    /// Runs of frames as slices to be filled, so many bytes of them.
    fn slices<'a>(&'a self, runs: &'a mut [Vec<Run>], mut left: u64) -> Vec<IoSliceMut<'a>> {
        let frames = runs.iter_mut().flat_map(|runs| self.memory.slices(runs));
        frames
            .map(|slice| {
                let n = left.min(slice.len() as u64);
                left -= n;
                IoSliceMut::new(&mut slice[..n as usize])
            })
            .collect()
    }

    /// Fills the frames of flights that lie side by side.
    fn bring(&self, flights: &[Arc<Flight>], runs: &mut [Vec<Run>]) -> Result<(), Error> {
        let file = &flights[0].file;
        let start = flights[0].pages.start.byte();
        let wanted = || flights.iter().any(|flight| flight.is_demand());
        self.insist(file, wanted, |until| {
            if flights.iter().all(|flight| flight.is_cancelled()) {
                return Err(Error::Cancelled { object: file.meta.name.clone() });
            }
            for flight in flights {
                flight.attempt(until);
            }
            let mut at = start;
            for part in self.slices(runs, file.meta.len - start).chunks_mut(SLICES_MAX) {
                let bytes: u64 = part.iter().map(|slice| slice.len() as u64).sum();
                file.storage.read_at(at, part, until)?;
                at += bytes;
            }
            Ok(())
        })
    }

    /// Reads past the cache, for a reader who found every frame held.
    pub(crate) fn bypass(&self, file: &FileShared, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        if let Some(error) = file.changed() {
            return Err(error);
        }
        let outcome = self.insist(
            file,
            || true,
            |until| file.storage.read_at(offset, &mut [IoSliceMut::new(out)], until),
        );
        if let Err(error @ Error::Changed { .. }) = &outcome {
            let _ = file.changed.set(error.clone());
        }
        outcome
    }

    /// Asks until it works, may not pass, or has taken too long; of what nobody waits for, once.
    fn insist(
        &self,
        file: &FileShared,
        wanted: impl Fn() -> bool,
        mut ask: impl FnMut(&Arc<Until>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + self.settings.timeout;
        let each = self.settings.timeout / ATTEMPTS_IN_TIME;
        for attempt in 1.. {
            let left = deadline.saturating_duration_since(Instant::now());
            let until = Arc::new(Until::after(each.min(left)));
            let _asking = self.asking(file)?;
            let outcome = catch_unwind(AssertUnwindSafe(|| ask(&until)));
            let (error, passes) = match outcome {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => {
                    let passes = error.transient();
                    (error, passes)
                }
                Err(_) => {
                    let source = Arc::new(io::Error::other("the storage panicked; this is a mistake in it"));
                    (Error::Io { object: file.meta.name.clone(), source }, false)
                }
            };
            let pause = self.pause(attempt);
            let in_time = Instant::now() + pause < deadline;
            if !passes || attempt == ATTEMPTS_MAX || !in_time {
                return Err(error);
            }
            if !wanted() {
                return Err(unwanted(file, error));
            }
            std::thread::sleep(pause);
        }
        unreachable!("the last attempt returns")
    }

    /// Takes note that the storage of a file is asked, until the value is dropped; not where too many answers are overdue.
    fn asking(&self, file: &FileShared) -> Result<Asking<'_>, Error> {
        let (now, endpoint) = (Instant::now(), file.meta.endpoint);
        let mut asked = lock(&self.asked);
        let overdue = asked.iter().filter(|(of, due)| *of == endpoint && *due < now).count();
        if overdue >= self.pool.hung_max() {
            let what = format!(
                "{overdue} reads hang there, past every deadline; nothing is asked until one returns"
            );
            let source = Arc::new(io::Error::new(io::ErrorKind::TimedOut, what));
            return Err(Error::Io { object: file.meta.name.clone(), source });
        }
        let due = now + self.settings.timeout;
        asked.push((endpoint, due));
        Ok(Asking { asked: &self.asked, entry: (endpoint, due) })
    }

    /// Before the next attempt: doubled each time, give or take half, so that many do not come back at once.
    fn pause(&self, attempt: u32) -> Duration {
        let mut x = self.chance.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let percent = 50 + (x >> 33) % 101;
        BACKOFF * (1 << (attempt - 1).min(4)) * percent as u32 / 100
    }
}

/// What is told of a read that nobody waited for. Whoever comes to want it before it has landed asks anew: an error that may pass is not his.
fn unwanted(file: &FileShared, error: Error) -> Error {
    if error.transient() { Error::Cancelled { object: file.meta.name.clone() } } else { error }
}

/// A storage is being asked.
struct Asking<'a> {
    asked: &'a Mutex<Vec<(u64, Instant)>>,
    entry: (u64, Instant),
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asked = lock(self.asked);
        if let Some(at) = asked.iter().position(|entry| *entry == self.entry) {
            asked.swap_remove(at);
        }
    }
}
