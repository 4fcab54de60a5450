//! What came of a world: sums, a bucket of time each second, each program's own figures, and every decision if wanted.

use bowwave_core::{Counters, Explained, Nanos, PAGE_SIZE, PageCount, Stats, TraceRecord};

/// What a program got.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ActorOutcome {
    /// Reads that were served.
    pub reads: u64,
    /// Pages read.
    pub pages: u64,
    /// Pages written.
    pub pages_written: u64,
    /// When the first read or write began.
    pub began: Option<Nanos>,
    /// When the last read or write was done.
    pub ended: Nanos,
    /// The longest wait of one read.
    pub waited_max: Nanos,
}

impl ActorOutcome {
    pub(super) fn read(&mut self, pages: PageCount, began: Nanos, ended: Nanos, took: Nanos) {
        self.reads += 1;
        self.pages += pages.0;
        self.began.get_or_insert(began);
        self.ended = ended;
        self.waited_max = self.waited_max.max(took);
    }
    pub(super) fn wrote(&mut self, pages: PageCount, ended: Nanos) {
        self.pages_written += pages.0;
        self.ended = ended;
    }
}

/// A stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bucket {
    /// Pages that programs got.
    pub pages_read: u64,
    /// Pages that the device was asked for.
    pub pages_asked: u64,
    /// Requests for them.
    pub requests: u64,
}

/// What readahead cost the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Calls of a policy.
    pub asks: u64,
    /// Looks at the page cache.
    pub looks: u64,
    /// Time of reads beside their waits.
    pub cpu_ns: u64,
}

/// What came of a world.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WorldOutcome {
    /// When the last read or write was done.
    pub elapsed: Nanos,
    /// When nothing was under way any more, or the world was stopped.
    pub quiet: Nanos,
    /// Reads that were served.
    pub reads: u64,
    /// Pages that programs got.
    pub pages_read: u64,
    /// Reads that waited.
    pub stalls: u64,
    /// How long in all.
    pub stalled_ns: u64,
    /// Waits, one a read, in the order of their ends.
    pub waits_ns: Vec<u64>,
    /// Pages that the device was asked for.
    pub pages_fetched: u64,
    /// Requests for them.
    pub requests: u64,
    /// From sending to completion, read requests together: iostat's `r_await` times their number.
    pub answers_ns: u64,
    /// The slowest of them.
    pub answer_ns_max: u64,
    /// Pages written to the device.
    pub pages_written: u64,
    /// Pages that the reader itself had to ask for, because no decision did.
    pub pages_by_reader: u64,
    /// Pages fetched by a decision and then read.
    pub pages_used_ahead: u64,
    /// Pages fetched by a decision and lost before their read.
    pub pages_lost_unread: u64,
    /// The most pages that were fetched by decisions, not yet read and not yet lost.
    pub unread_max: u64,
    pub(super) unread: u64,
    /// Windows of an era, by pattern.
    pub stats: Stats,
    /// Counters of `wave`.
    pub counters: Counters,
    /// What it cost the processor.
    pub cost: Cost,
    /// How far shards aged apart.
    pub age_inversion: u64,
    /// Time, in stretches.
    pub buckets: Vec<Bucket>,
    /// Each program.
    pub actors: Vec<ActorOutcome>,
    /// Decisions of an era, if kept.
    pub trace: Vec<TraceRecord>,
    /// Decisions of `wave`, if kept.
    pub explained: Vec<Explained>,
}

impl WorldOutcome {
    pub(super) fn read(&mut self, pages: PageCount, now: Nanos, waited: bool, took: Nanos, bucket: Nanos) {
        self.reads += 1;
        self.pages_read += pages.0;
        self.stalls += u64::from(waited);
        self.stalled_ns += took.0;
        self.waits_ns.push(took.0);
        self.bucket(now, bucket).pages_read += pages.0;
    }

    /// A read request that was sent at `sent` is done.
    pub(super) fn answered(&mut self, sent: Nanos, now: Nanos) {
        let took = now.since(sent).0;
        self.answers_ns += took;
        self.answer_ns_max = self.answer_ns_max.max(took);
    }

    pub(super) fn request(&mut self, pages: PageCount, write: bool, now: Nanos, bucket: Nanos) {
        if write {
            self.pages_written += pages.0;
            return;
        }
        self.pages_fetched += pages.0;
        self.requests += 1;
        let bucket = self.bucket(now, bucket);
        bucket.pages_asked += pages.0;
        bucket.requests += 1;
    }

    fn bucket(&mut self, now: Nanos, width: Nanos) -> &mut Bucket {
        let at = (now.0 / width.0.max(1)) as usize;
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, Bucket::default());
        }
        &mut self.buckets[at]
    }

    /// Bytes that programs got, a second.
    pub fn bytes_per_s(&self) -> f64 {
        (self.pages_read * PAGE_SIZE) as f64 * 1e9 / self.elapsed.0.max(1) as f64
    }
    /// Bytes that the device was asked for, for each that programs got.
    pub fn amplification(&self) -> f64 {
        self.pages_fetched as f64 / self.pages_read.max(1) as f64
    }
    /// Mean bytes of a request.
    pub fn request_bytes(&self) -> f64 {
        (self.pages_fetched * PAGE_SIZE) as f64 / self.requests.max(1) as f64
    }
    /// The wait that `share` of all reads did not exceed.
    pub fn wait_ns_at(&self, share: f64) -> u64 {
        let mut waits = self.waits_ns.clone();
        waits.sort_unstable();
        let at = ((waits.len() as f64 * share) as usize).min(waits.len().saturating_sub(1));
        waits.get(at).copied().unwrap_or(0)
    }
}
