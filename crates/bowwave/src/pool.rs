//! The threads that read from storages, and what they do next.
//!
//! ```text
//! demand   oldest first                                     any free thread     \ and with it, where more waits than threads
//! ahead    oldest first, while two thirds are not at it     any free thread     / can take, what lies behind it
//! ```
//!
//! The bound. The brain lets out no more requests than the device digests, at most 512; a device that digests more than 64 is
//! an object store, whose own clients stop at 64 connections. So 64 threads carry speculation and 32 more are left for those
//! who wait: 96 threads of 256 KiB of stack, of which one touches 16 KiB, about; 1.5 MiB in all, which the ceiling is charged with
//! from the start. A cache below 24 MiB has fewer, one for each 256 KiB, but 8. A thread with nothing to do ends after 5 s.
//!
//! Worked example (test `neighbours_go_together_where_no_thread_is_free`): with 64 speculations under way and [0,32), [32,64) and
//! [96,128) waiting, the next free thread takes [0,64) in one request.
//!
//! A storage that takes several reads of one thread at once ([`Storage::at_once`](bowwave_io::Storage::at_once)) is given up to 64 KiB of
//! small ones together: of pages 0, 16, 32, .. 320 of a stride one thread takes 16 and the next the other five (test
//! `small_reads_go_at_once_where_the_storage_takes_them_so`). A thread of its own for each of them took 20 us to come to a disk
//! that has one every 8 us (`docs/decisions/0060`).

use crate::engine::Engine;
use crate::flight::{Flight, lock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// All threads, at most and at least; of three, two may fetch what nobody waits for.
const THREADS_MAX: u64 = 96;
const THREADS_MIN: u64 = 8;
/// Memory of a cache that makes one more worth it.
const BYTES_A_THREAD: u64 = 256 << 10;
const STACK_BYTES: usize = 256 << 10;
/// What a thread takes of memory: the part of its stack that it has touched, about.
const THREAD_BYTES: u64 = 16 << 10;
const IDLE: Duration = Duration::from_secs(5);
/// Pages of a request that was merged: 4 MiB.
const MERGED_PAGES_MAX: u64 = 1024;
/// Pages of requests that one thread makes at once: 64 KiB, which a disk that takes them so brings while it answers.
const TOGETHER_PAGES_MAX: u64 = 16;

#[derive(Default)]
struct Lines {
    demand: VecDeque<Arc<Flight>>,
    ahead: VecDeque<Arc<Flight>>,
    /// What waits in either line, by where it begins.
    places: BTreeMap<(u32, u64), Arc<Flight>>,
    threads: usize,
    threads_max: usize,
    /// Threads that wait and were not called.
    idle: usize,
    /// Threads that were called and have not come yet.
    called: usize,
    at_ahead: usize,
    ahead_max: usize,
    closed: bool,
}

/// The lines, and those who serve them.
pub(crate) struct Pool {
    lines: Mutex<Lines>,
    work: Condvar,
}

/// Flights side by side, in one request.
pub(crate) type Request = Vec<Arc<Flight>>;

/// What a thread does next: one request, or several to one storage that takes them at once.
pub(crate) struct Job {
    pub(crate) requests: Vec<Request>,
    ahead: bool,
}

impl Job {
    /// A flight that its reader performs.
    pub(crate) fn own(flight: Arc<Flight>) -> Self {
        Self { requests: vec![vec![flight]], ahead: false }
    }
}

impl Lines {
    fn next(&mut self) -> Option<Job> {
        while let Some(flight) = self.demand.pop_front() {
            if self.claim(&flight) {
                return Some(Job { requests: vec![self.with_neighbours(flight)], ahead: false });
            }
        }
        while self.at_ahead < self.ahead_max
            && let Some(flight) = self.ahead.pop_front()
        {
            if self.claim(&flight) {
                self.at_ahead += 1;
                return Some(Job { requests: self.with_others(flight), ahead: true });
            }
        }
        None
    }

    /// What nobody waits for goes with what is lined up behind it for the same storage, where that takes several reads at once
    /// and they are small: a thread for each would take longer to come than the device does to answer.
    fn with_others(&mut self, flight: Arc<Flight>) -> Vec<Request> {
        let (number, at_once) = (flight.file.number, flight.file.storage.at_once());
        let pages = |request: &Request| request.iter().map(|flight| flight.pages.count.0).sum::<u64>();
        let first = self.with_neighbours(flight);
        let mut sum = pages(&first);
        let mut requests = vec![first];
        while requests.len() < at_once
            && let Some(next) = self.ahead.front()
            && next.file.number == number
            && sum + next.pages.count.0 <= TOGETHER_PAGES_MAX
            && let Some(next) = self.ahead.pop_front()
        {
            if self.claim(&next) {
                let request = self.with_neighbours(next);
                sum += pages(&request);
                requests.push(request);
            }
        }
        requests
    }

    fn push(&mut self, flight: Arc<Flight>) {
        self.places.insert(place(&flight), Arc::clone(&flight));
        if flight.is_demand() { &mut self.demand } else { &mut self.ahead }.push_back(flight);
    }

    fn claim(&mut self, flight: &Arc<Flight>) -> bool {
        let claimed = flight.claim();
        if claimed {
            self.places.remove(&place(flight));
        }
        claimed
    }

    /// Where more waits than threads can take, what lies behind a flight goes with it: one request costs less than two, no
    /// connection stays idle for it, and a head that is there need not come back. What nobody waits for goes so to a head at all times: two
    /// threads might arrive there in the wrong order.
    fn with_neighbours(&mut self, flight: Arc<Flight>) -> Vec<Arc<Flight>> {
        let (number, mut end, mut count) = (flight.file.number, flight.pages.end(), flight.pages.count.0);
        let joined_max = if flight.is_demand() { 0 } else { flight.file.joined_max() };
        let mut flights = vec![flight];
        while let max = if self.is_crowded() { MERGED_PAGES_MAX } else { joined_max }
            && count < max
            && let Some(next) = self.places.get(&(number, end.0)).map(Arc::clone)
            && count + next.pages.count.0 <= max
        {
            if !self.claim(&next) {
                // It was cancelled where it stood.
                self.places.remove(&place(&next));
                break;
            }
            (end, count) = (next.pages.end(), count + next.pages.count.0);
            flights.push(next);
        }
        flights
    }

    fn is_crowded(&self) -> bool {
        let ahead = self.ahead_max - self.at_ahead.min(self.ahead_max);
        let free = self.idle + self.threads_max - self.threads;
        self.places.len() > free.min(ahead)
    }

    /// Calls up to `wanted` threads that wait; how many there were: the caller wakes them when the lines are free again, as the
    /// first that they do is to look there. Who was called waits no more, though he may need a moment to come: whoever lines work
    /// up meanwhile must not count on him.
    fn call(&mut self, wanted: usize) -> usize {
        let count = wanted.min(self.idle);
        (self.idle, self.called) = (self.idle - count, self.called + count);
        count
    }

    fn call_another(&mut self) -> usize {
        if self.work_for_another() { self.call(1) } else { 0 }
    }

    fn work_for_another(&self) -> bool {
        !self.demand.is_empty() || (!self.ahead.is_empty() && self.at_ahead < self.ahead_max)
    }
}

/// Flights like this one that a thread takes at once.
fn together(flight: &Arc<Flight>) -> usize {
    if flight.is_demand() {
        return 1;
    }
    let fit = TOGETHER_PAGES_MAX / flight.pages.count.0.max(1);
    flight.file.storage.at_once().min(fit as usize).max(1)
}

/// Where a flight begins.
fn place(flight: &Flight) -> (u32, u64) {
    (flight.file.number, flight.pages.start.0)
}

/// Threads of a cache of so many bytes.
fn threads_max(ceiling: u64) -> u64 {
    (ceiling / BYTES_A_THREAD).clamp(THREADS_MIN, THREADS_MAX)
}

/// What the threads of a cache of so many bytes take, were all of them at work.
pub(crate) fn bytes_of_threads(ceiling: u64) -> u64 {
    threads_max(ceiling) * THREAD_BYTES
}

impl Pool {
    /// For a cache of so many bytes.
    pub(crate) fn new(ceiling: u64) -> Self {
        let threads_max = threads_max(ceiling) as usize;
        let lines = Lines { threads_max, ahead_max: threads_max * 2 / 3, ..Lines::default() };
        Self { lines: Mutex::new(lines), work: Condvar::new() }
    }

    /// Threads that may hang in the storages of one endpoint: a quarter.
    pub(crate) fn hung_max(&self) -> usize {
        lock(&self.lines).threads_max / 4
    }

    /// Lines flights up and sees that there are threads for them, beside `free` that come by themselves: mostly one flight has landed and
    /// one follows from it, and to wake a thread for that while another goes to sleep takes longer than a fast device does.
    pub(crate) fn send(&self, engine: &Arc<Engine>, flights: Vec<Arc<Flight>>, free: usize) {
        if flights.is_empty() {
            return;
        }
        let mut lines = lock(&self.lines);
        let mut wanted = flights.len().saturating_sub(free);
        let together = flights.iter().map(together).min().unwrap_or(1);
        if together > 1 {
            // Who was called and has not come takes as many.
            wanted = wanted.saturating_sub(lines.called * together);
        }
        for flight in flights {
            lines.push(flight);
        }
        let called = lines.call(wanted);
        wanted -= called;
        let room = if lines.demand.is_empty() { lines.ahead_max } else { lines.threads_max };
        while wanted > 0 && lines.threads < room {
            let engine = Arc::clone(engine);
            let thread = std::thread::Builder::new().name("bowwave-io".into()).stack_size(STACK_BYTES);
            if thread.spawn(move || engine.serve()).is_err() {
                break;
            }
            lines.threads += 1;
            wanted -= 1;
        }
        let none = lines.threads == 0;
        drop(lines);
        self.wake(called);
        if none {
            // No thread can be had: the caller does it himself.
            engine.serve_what_waits();
        }
    }

    /// Wakes threads that were called.
    fn wake(&self, called: usize) {
        for _ in 0..called {
            self.work.notify_one();
        }
    }

    /// Somebody waits for a flight that is lined up.
    pub(crate) fn promote(&self, engine: &Arc<Engine>, flight: &Arc<Flight>) {
        if !flight.is_claimed() {
            self.send(engine, vec![Arc::clone(flight)], 0);
        }
    }

    /// The next job, waiting for it where that is allowed; `None` when the thread is to end.
    pub(crate) fn next(&self, wait: bool) -> Option<Job> {
        let mut lines = lock(&self.lines);
        loop {
            if let Some(job) = lines.next() {
                let called = lines.call_another();
                drop(lines);
                self.wake(called);
                return Some(job);
            }
            if !wait {
                return None;
            }
            if lines.closed {
                lines.threads -= 1;
                return None;
            }
            lines.idle += 1;
            let waits = |lines: &mut Lines| lines.called == 0 && !lines.closed;
            let (guard, _) =
                self.work.wait_timeout_while(lines, IDLE, waits).unwrap_or_else(PoisonError::into_inner);
            lines = guard;
            if lines.called > 0 {
                // Whoever comes first was called; the other goes on waiting.
                lines.called -= 1;
                continue;
            }
            lines.idle -= 1;
            if !lines.work_for_another() {
                lines.threads -= 1;
                return None;
            }
        }
    }

    /// A job is done.
    pub(crate) fn done(&self, job: &Job) {
        if job.ahead {
            let mut lines = lock(&self.lines);
            lines.at_ahead -= 1;
            let called = lines.call_another();
            drop(lines);
            self.wake(called);
        }
    }

    /// Threads end when they have done what is lined up.
    pub(crate) fn close(&self) {
        lock(&self.lines).closed = true;
        self.work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::FileShared;
    use crate::memory::FreeFrames;
    use bowwave_core::{Extent, Learnt, PageCount};
    use bowwave_io::{Error, MemoryStorage, Meta, Storage, Until};
    use std::io::IoSliceMut;

    #[test]
    fn neighbours_go_together_where_no_thread_is_free() {
        let file = Arc::new(FileShared::new(1, Box::new(MemoryStorage::new("x", vec![0; 1 << 20]))));
        let mut frames = FreeFrames::new(512);
        let mut flight = |start: u64, demand: bool| {
            let runs = frames.take(32).into_iter().collect();
            Arc::new(Flight::new(Arc::clone(&file), Extent::new(start, 32), None, demand, runs))
        };
        let starts = |job: Option<Job>| -> Vec<u64> {
            job.map_or(Vec::new(), |job| {
                job.requests.iter().flatten().map(|flight| flight.pages.start.0).collect()
            })
        };
        let mut lines =
            Lines { threads: 96, threads_max: 96, ahead_max: 64, at_ahead: 63, ..Lines::default() };
        for start in [0, 32, 96] {
            lines.push(flight(start, false));
        }
        assert_eq!(starts(lines.next()), [0, 32]);
        assert_eq!(starts(lines.next()), [0; 0], "64 are at it");
        lines.push(flight(200, true));
        assert_eq!(starts(lines.next()), [200], "who waits goes all the same");
        // With threads to spare each goes alone.
        let mut lines = Lines { threads_max: 96, ahead_max: 64, ..Lines::default() };
        for start in [0, 32] {
            lines.push(flight(start, false));
        }
        assert_eq!((starts(lines.next()), starts(lines.next())), (vec![0], vec![32]));
        // Unless the device has a head, and nobody waits.
        file.learnt(Some(Learnt { joined_max: PageCount(80), ..Learnt::default() }));
        for start in [0, 32, 64] {
            lines.push(flight(start, false));
        }
        assert_eq!((starts(lines.next()), starts(lines.next())), (vec![0, 32], vec![64]));
        for (start, demand) in [(0, true), (32, false)] {
            lines.push(flight(start, demand));
        }
        assert_eq!((starts(lines.next()), starts(lines.next())), (vec![0], vec![32]));
    }

    /// A storage that takes many reads at once, and the bytes of another.
    struct Many(MemoryStorage);

    impl Storage for Many {
        fn meta(&self) -> &Meta {
            self.0.meta()
        }
        fn read_at(&self, offset: u64, into: &mut [IoSliceMut<'_>], until: &Until) -> Result<(), Error> {
            self.0.read_at(offset, into, until)
        }
        fn at_once(&self) -> usize {
            32
        }
    }

    #[test]
    fn small_reads_go_at_once_where_the_storage_takes_them_so() {
        let storage = || MemoryStorage::new("x", vec![0; 4 << 20]);
        let many = Arc::new(FileShared::new(1, Box::new(Many(storage()))));
        let other = Arc::new(FileShared::new(2, Box::new(Many(storage()))));
        let single = Arc::new(FileShared::new(3, Box::new(storage())));
        let mut frames = FreeFrames::new(512);
        let mut flight = |file: &Arc<FileShared>, start: u64, pages: u64, demand: bool| {
            let runs = frames.take(pages).into_iter().collect();
            Arc::new(Flight::new(Arc::clone(file), Extent::new(start, pages), None, demand, runs))
        };
        let sizes = |lines: &mut Lines| -> Vec<usize> {
            std::iter::from_fn(|| lines.next().map(|job| job.requests.len())).collect()
        };
        let lines = || Lines { threads_max: 96, ahead_max: 64, ..Lines::default() };
        let mut stride = lines();
        (0..21).for_each(|n| stride.push(flight(&many, n * 16, 1, false)));
        assert_eq!(sizes(&mut stride), [16, 5]);
        let mut alone = lines();
        (0..3).for_each(|n| alone.push(flight(&single, n * 16, 1, false)));
        assert_eq!(sizes(&mut alone), [1, 1, 1], "each of its reads blocks a thread");
        let mut mixed = lines();
        for (file, start, pages, demand) in
            [(&many, 0, 12, false), (&many, 16, 4, false), (&many, 32, 1, false), (&other, 0, 1, false)]
                .into_iter()
                .chain([(&many, 64, 1, true)])
        {
            mixed.push(flight(file, start, pages, demand));
        }
        assert_eq!(sizes(&mut mixed), [1, 2, 1, 1], "who waits goes first and alone; 64 KiB; one storage");
    }

    #[test]
    fn a_thread_is_called_once_for_two_pieces_of_work() {
        let mut lines = Lines { threads: 3, idle: 1, ..Lines::default() };
        assert_eq!(lines.call(2), 1);
        assert_eq!(lines.call(1), 0, "he was called already: another thread is to be had");
        assert_eq!((lines.idle, lines.called), (0, 1));
    }
}
