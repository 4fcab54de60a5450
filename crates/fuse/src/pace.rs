//! When each read is answered: a modelled device in real time.
//!
//! The receiver submits a read at the moment it arrives. One thread sleeps until the next completion and answers it; where
//! completions come faster than it can answer, a second helps. The bytes are there before the time comes: generated
//! content is made by the thread that would sleep, content of real files is read by two workers, because a real disk may
//! block.
//!
//! ```text
//!   nfs, 4 KiB, microseconds after the arrival            the program waited
//!   0 ........... submitted, due at 1016
//!   10 .......... 4 KiB made
//!   941 ......... awake; the last 20 us are spun away
//!   961 ......... answered: 55 us early, for the two     ~1060
//!                 switches that the kernel's FUSE path costs and a real device does not
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bowwave_core::Nanos;
use bowwave_io::{Haste, Oversleep, hurry, rest};
use bowwave_lab::{Device, DeviceModel};
use fuser::{Errno, ReplyData};

use crate::content;
use crate::log::RequestLog;
use crate::tree::Node;

/// Requests prepared ahead of their time, and buffers kept for the next: at 1 MiB a request, 32 MiB each.
const AHEAD: usize = 32;
/// Making content is slower than this only under load; a request whose turn comes sooner is not delayed for it.
const PREPARED_BYTES_PER_NS: u64 = 4;
/// The kernel copies an answer into fresh pages at about this rate.
const ANSWERED_BYTES_PER_NS: u64 = 2;
/// Threads that answer.
const DEVICE_THREADS: usize = 2;
/// Threads that read real files.
const WORKERS: usize = 2;

/// A read that the kernel waits for.
pub(crate) struct Read {
    pub(crate) reply: ReplyData,
    pub(crate) node: Arc<Node>,
    /// The real file; content is generated where there is none.
    pub(crate) file: Option<Arc<File>>,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// How late answers were, since the last reset.
#[derive(Clone, Copy, Default)]
pub(crate) struct Lateness {
    answers: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Lateness {
    pub(crate) fn mean_us(self) -> f64 {
        self.sum_ns as f64 / self.answers.max(1) as f64 / 1e3
    }
    pub(crate) fn max_us(self) -> f64 {
        self.max_ns as f64 / 1e3
    }
}

/// The device and its threads; they end when it is dropped, and reads that wait then fail.
pub(crate) struct Pacer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    epoch: Instant,
    /// Taken off completion times.
    round_trip_ns: u64,
    /// The device's thread makes the content itself.
    generated: bool,
    queue: Mutex<Queue>,
    /// Wakes the leader of the device's threads.
    leader: Condvar,
    /// Wakes another to lead.
    followers: Condvar,
    workers: Condvar,
    log: Mutex<Option<RequestLog>>,
}

struct Queue {
    device: Device,
    reads: HashMap<u64, Pending>,
    /// Reads whose time came before anybody began to prepare them, oldest first.
    overdue: VecDeque<u64>,
    /// Answers to metadata, by time and number.
    later: BTreeMap<(u64, u64), Box<dyn FnOnce() + Send>>,
    sequence: u64,
    buffers: Vec<Vec<u8>>,
    lateness: Lateness,
    oversleep: Oversleep,
    /// Whether one of the device's threads leads.
    led: bool,
    stopped: bool,
}

struct Pending {
    read: Read,
    arrival_ns: u64,
    /// Set when the device is done with it.
    due_ns: Option<u64>,
    data: Data,
}

enum Data {
    Missing,
    /// Some thread is at it.
    Coming,
    Ready(io::Result<Vec<u8>>),
}

type Locked<'a> = MutexGuard<'a, Queue>;

impl Pacer {
    /// Starts the threads. `round_trip` is taken off the completion times of a device without a head.
    pub(crate) fn start(
        model: DeviceModel,
        round_trip: Duration,
        generated: bool,
        log: Option<RequestLog>,
    ) -> io::Result<Self> {
        let round_trip_ns =
            if model.head.is_some() { 0 } else { u64::try_from(round_trip.as_nanos()).unwrap_or(0) };
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            round_trip_ns,
            generated,
            queue: Mutex::new(Queue {
                device: Device::new(model),
                reads: HashMap::new(),
                overdue: VecDeque::new(),
                later: BTreeMap::new(),
                sequence: 0,
                buffers: Vec::new(),
                lateness: Lateness::default(),
                oversleep: Oversleep::default(),
                led: false,
                stopped: false,
            }),
            leader: Condvar::new(),
            followers: Condvar::new(),
            workers: Condvar::new(),
            log: Mutex::new(log),
        });
        let mut pacer = Self { shared: shared.clone(), threads: Vec::new() };
        for _ in 0..DEVICE_THREADS {
            pacer.spawn("device", Shared::run_device)?;
        }
        for _ in 0..if generated { 0 } else { WORKERS } {
            pacer.spawn("source", Shared::run_worker)?;
        }
        Ok(pacer)
    }

    fn spawn(&mut self, name: &str, run: fn(&Shared)) -> io::Result<()> {
        let shared = self.shared.clone();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            hurry(Haste::Answer);
            run(&shared);
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// A read arrives.
    pub(crate) fn submit(&self, read: Read) {
        let mut queue = self.shared.queue();
        // Taken under the lock: the device's moments must not go back.
        let now = self.shared.now_ns();
        let before = queue.device.next_completion();
        let id = queue.next_number();
        queue.device.submit(Nanos(now), id, read.node.address.saturating_add(read.offset), read.bytes as u64);
        queue.reads.insert(id, Pending { read, arrival_ns: now, due_ns: None, data: Data::Missing });
        let sooner = queue.device.next_completion() != before;
        drop(queue);
        if sooner {
            self.shared.leader.notify_one();
        }
        if !self.shared.generated {
            self.shared.workers.notify_one();
        }
    }

    /// Calls `answer` one latency of the device from now.
    pub(crate) fn after_latency(&self, answer: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue();
        let due = self.shared.now_ns() + queue.device.model().latency_ns;
        let number = queue.next_number();
        queue.later.insert((due, number), Box::new(answer));
        drop(queue);
        self.shared.leader.notify_one();
    }

    /// The device is idle again for the requests to come, and the log starts anew.
    pub(crate) fn reset(&self) {
        let mut queue = self.shared.queue();
        queue.device.reset();
        queue.lateness = Lateness::default();
        drop(queue);
        self.shared.with_log(RequestLog::reset);
    }

    /// Reads not answered yet, and how late answers were.
    pub(crate) fn state(&self) -> (u64, Lateness) {
        let queue = self.shared.queue();
        (queue.reads.len() as u64, queue.lateness)
    }

    pub(crate) fn flush_log(&self) {
        self.shared.with_log(RequestLog::flush);
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.shared.queue().stopped = true;
        self.shared.leader.notify_all();
        self.shared.followers.notify_all();
        self.shared.workers.notify_all();
        for thread in self.threads.drain(..) {
            // A panic has been printed already, and there is nothing left to save.
            let _ = thread.join();
        }
        self.flush_log();
    }
}

impl Queue {
    fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn next_due_ns(&self, round_trip_ns: u64) -> Option<u64> {
        let read = self.device.next_completion().map(|(due, _)| due.0.saturating_sub(round_trip_ns));
        let later = self.later.first_key_value().map(|(&(due, _), _)| due);
        read.into_iter().chain(later).min()
    }

    /// The read to prepare next: what is late already, else what is due first.
    fn unprepared(&mut self) -> Option<u64> {
        if let Some(id) = self.overdue.pop_front() {
            return Some(id);
        }
        let missing = |id: &u64| matches!(self.reads.get(id), Some(Pending { data: Data::Missing, .. }));
        self.device.upcoming().take(AHEAD).map(|(_, id)| id).find(missing)
    }
}

impl Shared {
    fn queue(&self) -> Locked<'_> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn with_log(&self, act: impl FnOnce(&mut RequestLog)) {
        if let Some(log) = self.log.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            act(log);
        }
    }

    /// One thread leads: it alone watches the time. Before it answers a read that will keep it past the next completion, it
    /// hands the lead to the other, so that a burst is answered from two processors.
    fn run_device(&self) {
        let mut queue = self.queue();
        let mut leading = false;
        while !queue.stopped {
            if !leading {
                if queue.led {
                    queue = self.followers.wait(queue).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                (queue.led, leading) = (true, true);
            }
            let now = self.now_ns();
            if let Some(entry) = queue.later.first_entry()
                && entry.key().0 <= now
            {
                let answer = entry.remove();
                drop(queue);
                answer();
                queue = self.queue();
            } else if let Some((due, id)) = queue.device.complete(Nanos(now + self.round_trip_ns)) {
                let bytes = queue.reads.get(&id).map_or(0, |pending| pending.read.bytes as u64);
                let answered = now + bytes / ANSWERED_BYTES_PER_NS;
                if queue.next_due_ns(self.round_trip_ns).is_some_and(|next| next < answered) {
                    (queue.led, leading) = (false, false);
                    self.followers.notify_one();
                }
                queue = self.done(queue, id, due.0.saturating_sub(self.round_trip_ns));
            } else {
                queue = self.pass_time(queue, now);
            }
        }
    }

    /// Nothing is due: makes content for what is to come, or sleeps.
    fn pass_time<'a>(&'a self, mut queue: Locked<'a>, now: u64) -> Locked<'a> {
        let spare = queue.next_due_ns(self.round_trip_ns).map(|due| due.saturating_sub(now));
        if self.generated
            && let Some(id) = queue.unprepared()
        {
            let next_is_ready = queue.device.next_completion().is_some_and(|(_, next)| next != id);
            let takes = queue.reads[&id].read.bytes as u64 / PREPARED_BYTES_PER_NS;
            if !next_is_ready || spare.is_none_or(|spare| takes < spare) {
                return self.prepare(queue, id);
            }
        }
        rest(&self.queue, queue, &self.leader, spare, |queue| &mut queue.oversleep)
    }

    fn run_worker(&self) {
        let mut queue = self.queue();
        while !queue.stopped {
            queue = match queue.unprepared() {
                Some(id) => self.prepare(queue, id),
                None => self.workers.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The device is done with a read: answers it, or has it answered as soon as its bytes are there.
    fn done<'a>(&'a self, mut queue: Locked<'a>, id: u64, due_ns: u64) -> Locked<'a> {
        let Some(pending) = queue.reads.get_mut(&id) else { return queue };
        let due_ns = due_ns.max(pending.arrival_ns);
        pending.due_ns = Some(due_ns);
        if !self.generated {
            // One more is decided, or among the first.
            self.workers.notify_one();
        }
        match pending.data {
            Data::Ready(_) => self.answer(queue, id),
            Data::Missing if self.generated => self.prepare(queue, id),
            Data::Missing => {
                queue.overdue.push_back(id);
                self.workers.notify_one();
                queue
            }
            Data::Coming => queue,
        }
    }

    /// Gets the bytes of a read without holding the lock, and answers it if it was due meanwhile.
    fn prepare<'a>(&'a self, mut queue: Locked<'a>, id: u64) -> Locked<'a> {
        let mut buffer = queue.buffers.pop().unwrap_or_default();
        let Some(pending) = queue.reads.get_mut(&id) else { return queue };
        pending.data = Data::Coming;
        let read = &pending.read;
        let (node, file, offset, bytes) = (read.node.clone(), read.file.clone(), read.offset, read.bytes);
        drop(queue);

        buffer.resize(bytes, 0);
        let data = match file {
            Some(file) => read_fully(&file, offset, &mut buffer).map(|length| buffer.truncate(length)),
            None => {
                content::fill(node.file_id, offset, &mut buffer);
                Ok(())
            }
        };

        queue = self.queue();
        let Some(pending) = queue.reads.get_mut(&id) else { return queue };
        pending.data = Data::Ready(data.map(|()| buffer));
        if pending.due_ns.is_some() { self.answer(queue, id) } else { queue }
    }

    /// Answers a read whose bytes are ready and whose time has come.
    fn answer<'a>(&'a self, mut queue: Locked<'a>, id: u64) -> Locked<'a> {
        let Some(Pending { read, arrival_ns, due_ns, data: Data::Ready(data) }) = queue.reads.remove(&id)
        else {
            return queue;
        };
        drop(queue);
        let late = due_ns.map_or(0, |due| self.now_ns().saturating_sub(due));
        let mut spare_buffer = None;
        match data {
            Ok(bytes) => {
                read.reply.data(&bytes);
                spare_buffer = Some(bytes);
            }
            Err(error) => read.reply.error(Errno::from(error)),
        }
        self.with_log(|log| {
            let (arrival_us, completion_us) = (arrival_ns / 1000, self.now_ns() / 1000);
            log.line(arrival_us, completion_us, &read.node.path, read.offset, read.bytes as u64);
        });
        queue = self.queue();
        queue.lateness.answers += 1;
        queue.lateness.sum_ns += late;
        queue.lateness.max_ns = queue.lateness.max_ns.max(late);
        if queue.buffers.len() < AHEAD {
            queue.buffers.extend(spare_buffer);
        }
        queue
    }
}

/// Reads until the buffer is full or the file ends; returns the bytes read.
fn read_fully(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
