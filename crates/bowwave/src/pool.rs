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

/// What a thread does next: flights side by side, in one request.
pub(crate) struct Job {
    pub(crate) flights: Vec<Arc<Flight>>,
    ahead: bool,
}

impl Job {
    /// A flight that its reader performs.
    pub(crate) fn own(flight: Arc<Flight>) -> Self {
        Self { flights: vec![flight], ahead: false }
    }
}

impl Lines {
    fn next(&mut self) -> Option<Job> {
        while let Some(flight) = self.demand.pop_front() {
            if self.claim(&flight) {
                return Some(Job { flights: self.with_neighbours(flight), ahead: false });
            }
        }
        while self.at_ahead < self.ahead_max
            && let Some(flight) = self.ahead.pop_front()
        {
            if self.claim(&flight) {
                self.at_ahead += 1;
                return Some(Job { flights: self.with_neighbours(flight), ahead: true });
            }
        }
        None
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

    /// Calls up to `wanted` threads that wait; how many there were. Who was called waits no more, though he may need a moment to
    /// come: whoever lines work up meanwhile must not count on him.
    fn call(&mut self, work: &Condvar, wanted: usize) -> usize {
        let count = wanted.min(self.idle);
        (self.idle, self.called) = (self.idle - count, self.called + count);
        for _ in 0..count {
            work.notify_one();
        }
        count
    }

    fn call_another(&mut self, work: &Condvar) {
        if self.work_for_another() {
            self.call(work, 1);
        }
    }

    fn work_for_another(&self) -> bool {
        !self.demand.is_empty() || (!self.ahead.is_empty() && self.at_ahead < self.ahead_max)
    }
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
        for flight in flights {
            lines.push(flight);
        }
        wanted -= lines.call(&self.work, wanted);
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
        if lines.threads == 0 {
            // No thread can be had: the caller does it himself.
            drop(lines);
            engine.serve_what_waits();
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
                lines.call_another(&self.work);
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
            lines.call_another(&self.work);
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
    use bowwave_io::MemoryStorage;

    #[test]
    fn neighbours_go_together_where_no_thread_is_free() {
        let file = Arc::new(FileShared::new(1, Box::new(MemoryStorage::new("x", vec![0; 1 << 20]))));
        let mut frames = FreeFrames::new(512);
        let mut flight = |start: u64, demand: bool| {
            let runs = frames.take(32).into_iter().collect();
            Arc::new(Flight::new(Arc::clone(&file), Extent::new(start, 32), None, demand, runs))
        };
        let starts = |job: Option<Job>| -> Vec<u64> {
            job.map_or(Vec::new(), |job| job.flights.iter().map(|flight| flight.pages.start.0).collect())
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

    #[test]
    fn a_thread_is_called_once_for_two_pieces_of_work() {
        let (mut lines, work) = (Lines { threads: 3, idle: 1, ..Lines::default() }, Condvar::new());
        assert_eq!(lines.call(&work, 2), 1);
        assert_eq!(lines.call(&work, 1), 0, "he was called already: another thread is to be had");
        assert_eq!((lines.idle, lines.called), (0, 1));
    }
}
