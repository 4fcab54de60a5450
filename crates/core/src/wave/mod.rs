//! `wave`, the policy of this project: twenty years of readahead, and what was missing.
//!
//! Linux asks one question of one open file: a page is missing or marked, which window next? `wave` asks it of the whole
//! run: every file, every stream, one memory, each device timed. There is no number to set.
//!
//! ```text
//!  Input                                   Wave                                            Action
//!  Read f3 [4,+2) by thread 7  --> which stream? (R1-R7) --> how far? (R8-R13) --> queue --> Fetch [12,28) why=R2 next
//!  Waited 30 ms                --> grow (R3)                                    ^ room in flight (flight.rs)
//!  Arrived #12                 --> present; device timed -----------------------'
//! ```
//!
//! | rule | says | where | knowledge it needs; without it |
//! |---|---|---|---|
//! | R1 start | the first read of a file at page 0 opens a window of four times the read | plan.rs | reads; misses will do |
//! | R2 next | a read where a stream is expected pushes its window on, unless reads at random would come there as often, or the reader skips so much inside the window that, with each of its reads, over a quarter more pages pass than the device carries while one read waits | streams/{locate,quiet}.rs, windows/{in_step,passes}.rs | reads or marks |
//! | R3 waited | a window grows only when its reader waited: from the third read of the stream on, or from the second where answers are late; to four times its size below 256 pages, to twice from there on, and to one unit at least. Until it is known how long runs are, a reader alone on a head, which need not wait to read on, has a quarter of what it has read ahead of it | plan.rs, windows/{waits,reach}.rs, devices/glides.rs | timed reads; else a miss counts as a wait |
//! | R4 context | no stream, but the page before was read: the cache's history is the stream, of a bought region what was read of it | streams/{locate,begin}.rs, stride/strides.rs | event or sampled |
//! | R5 reorder | a read up to a quarter of the window off, or among its holes, belongs to the stream; who reads block after block, each in another order than the file's, is one; streams in line have one window | streams/{locate,blocks,ends}.rs | reads |
//! | R6 reverse | a read that ends where a run began turns it round; on a head not yet where it is as a footer is read | streams/{locate,stream}.rs, requests/sending.rs | reads |
//! | R7 stride | three reads equally far apart predict the fourth; interleaved with other reads, as many as rule out coincidence. Periods of no whole number of pages are known to the byte where that is told, else as far as the pages read allow. Where runs begin at them, whole runs are fetched. Who steps aside goes on; who walks rows equally far apart opens those behind. Where strides were alike the next is asked for with its first read | streams/begin.rs, stride/{strides,beat,whole_runs,by_turns,aside,columns,foreseen}.rs | reads; marks only: learns from misses |
//! | R8 gaps | runs of a stride nearer than what one latency carries are fetched as one; who goes from run to run, always up or always down and so near, reads on through what lies between | stride/strides.rs, devices/crawls.rs, streams/hops.rs | device timed; else apart |
//! | R9 lengths | a window is cut or raised to what runs before this one have proved, which ended or were left for good: to a length of which 85 % is used on average, or at which waits and pages in vain together cost least; and to where the reader has looked ahead, as programs do that copy memory. A reader that goes from run to run has little ahead where that costs no wait, and what was not sent of a run is taken back when it leaves. Behind a first read no more is fetched than a wait is worth while none of the latest went on | windows/{lengths,runs,alone}.rs, streams/{ends,look}.rs, plan.rs | ends of runs, reads |
//! | R10 in step | waiting seeds are opened when half of those before them went on, but not by who reads on at once | windows/in_step.rs | reads |
//! | R11 density | a region read at random is bought (fetched whole) when the waits in it (its rent) come to half of what fetching it takes (its price); sooner where regions like it filled, a few at once, or beside what was bought. A small file is bought whole when those before it were worth it, and any file that memory holds when enough of it was read and the rent of all its reads came to its price. Where files were read through, the rest of one comes with its first read; where reads come nearer and nearer to those before them, so does what lies around them. Nothing is bought that one reader has gone through in order, nor what lies behind a reader that goes one way, nor where what was bought before did not pay | regions/{rent,density,going,grids,fills,beside,near,worn,wholes,through,account}.rs | timed reads |
//! | R12 thrash | a page that had arrived and is gone when it is read (thrash) halves the window of its stream, and many of them take an eighth off the memory believed in. What the stream has ahead beyond its new share is given up: it counts as absent, and the cache may drop it. While much is lost unread, nothing is fetched ahead but of runs longer than four reads, and little for regions | memory/{losses,trials}.rs | arrivals; else never |
//! | R13 shares | streams share half of the memory, and speculation: 15 % of what was used, what waits have paid for, and on a head enough to make each way worth while; who reads more has more of it; no stream has more than keeps its device busy, in requests as large as bring most | memory/shares.rs, windows/reach.rs, devices/sizes.rs | none |
//! | R14 large | what a read only comes to later, because it is large or waits for its first pages, is fetched with it | plan.rs | reads |
//! | R15 advice | what the program advises is done: exactly, and no more; of each range that it will need `bowwave run` passes on 2 MiB at most; a stream in what it needs goes no further | plan.rs, windows/needed.rs | advice |
//!
//! A file says at its top what exactly, when not, and with which numbers. A folder is a question: whose read is it (streams/, stride/), how far ahead
//! (windows/), how much may be out (memory/), what of reads at random (regions/), what can the device do (devices/), what goes out next (requests/).
//! plan.rs is the path of a read through all of them.
//!
//! | word | means |
//! |---|---|
//! | seed | a first read, of which nobody knows yet whether it is a stream's |
//! | told, quiet | a read that the brain hears of when it is made, and one of pages that were there, of which it hears later or never |
//! | unit | the bandwidth-delay product of one connection, in pages: what it carries in the time that one lone read takes (hdd 195, s3 656) |
//! | way | the time that a head takes to go elsewhere, one latency; in pages, what is carried in that time |
//! | trip | one such journey of a head, and the pages that it should bring: what four ways carry, so that the way costs a quarter of the carrying (hdd 781) |
//! | piece | pages of one request |
//! | unread | pages fetched ahead, present or in flight, and not read so far |
//! | dead | those of them that no stream will read, about: left by streams that ended, gaps behind a stride, regions that were bought |
//! | out | unread, less the dead: somebody may still come to them |
//! | rent, price | the time that reads at random in a region have waited; the time that fetching what is missing of it would take |
//! | credit, debt | pages of speculation that waits have paid for; pages that were fetched in vain |
//! | head, near, far | a device that serves one request at a time and goes from place to place; one that answers soon; one that answers late |
//! | glide, crawl | who reads on need not wait for a head; a link carries little, whatever is asked |
//! | sister, row | another stream of the same reader, in line with this one; what a reader of a matrix goes through |
//!
//! Worked example, one reader of 8 KiB on a device that takes 30 ms (pages; `tests/wave/r03-waited.txt` owns the numbers):
//!
//! ```text
//! read [0,2)     fetch [2,10)     mark 2      R1 start: four times the read
//! read [4,6)     fetch [10,14)    mark 10     R2 next
//! read [8,10)    fetch [14,18)    mark 14     R2 next
//! read [10,12)   fetch [18,2208)  mark 285    R3 waited: three connections of 100 MB/s carry 2196 pages in one latency
//! ```

mod devices;
mod footprint;
mod input;
mod lately;
mod memory;
mod plan;
mod regions;
mod requests;
mod rules;
mod streams;
mod stride;
mod windows;

use crate::decision::{Decision, Pattern, Why};
use crate::table::{PageBit, PageTable};
use crate::units::{Bytes, Extent, FileId, Nanos, PageCount, PageIndex};
use crate::view::View;
use crate::window::Window;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;
use devices::device::Sent;
use lately::Lately;
use memory::belief::Belief;
use memory::epochs::Epochs;
use memory::ledger::Ledger;
use memory::losses::GIVEN_UP_MAX;
use memory::trials::Trials;
use regions::account::Account;
use regions::density::Density;
use regions::near::Near;
use regions::wholes::Visits;
use requests::queue::{Queue, Turn, Wanted};
use streams::expected::Expected;
use streams::quiet::Told;
use streams::stream::{Course, STREAMS_MAX, StreamId, Streams};
use streams::sweep::SilenceLine;
use stride::beat::Lies;
use stride::columns::{Column, Taken};
use windows::in_step::Seeds;
use windows::needed::Said;
use windows::runs::{Ended, Runs};
use windows::waits::Taught;

pub use devices::device::Learnt;
pub use input::{Action, Advice, Config, Counters, Explained, FetchId, Input};
pub use rules::{Rule, rules};

/// Decisions kept for whoever asks; the oldest goes.
const TRACE_MAX: usize = 65_536;
/// Leaves that changed, for whoever takes them; where there are more, each is kept once.
const CHANGED_MIN: usize = 65_536;
/// Arrivals remembered: twice what can be in flight on one device.
const ARRIVALS_MAX: usize = 1024;

/// A file, and what its reads have taught. Each part belongs to the folder that asks the question it answers.
struct File {
    device: u64,
    /// Pages that it has.
    end: u64,
    /// Which of them are there, and what became of them.
    table: PageTable,
    /// Whose read is it?
    expected: Expected,
    /// Which of the first reads will go on (R10)?
    seeds: Seeds,
    /// Where do reads at random fall thick (R11)?
    density: Density,
    /// What came of fetching around reads that were near to one another (R11)?
    near: Near,
    /// Whether what is bought there pays for itself (R11).
    account: Account,
    /// In how many places it was read (R11).
    visits: Visits,
    /// How long are its runs (R9)?
    runs: Runs,
    /// What have waits taught (R3)?
    taught: Taught,
    /// What the program said of it (R15).
    said: Said,
    /// What is told of its reads.
    told: Told,
    /// Readers who read it last of all files.
    readers: u32,
}

/// What a thread read last: a read is told before and after.
#[derive(Clone, Copy)]
struct Latest {
    file: FileId,
    pages: Extent,
    missing: u64,
    late: bool,
    believed: bool,
    /// It began where the latest request of its device ended, and not elsewhere.
    behind: bool,
    stream: Option<StreamId>,
    /// Where he came to that stream.
    came_at: PageIndex,
    look: Option<Look>,
    /// The stride that it walks, and how many reads in a row did not belong to it.
    stride: Option<StreamId>,
    off_stride: u8,
    /// Starts of its latest reads that belonged to no stream.
    strays: Lately<u64, { 3 * streams::begin::TURNS_MAX }>,
    /// Where the latest of them lay to the byte, as far as that was told.
    lay: Lately<Option<Lies>, { 2 * streams::begin::TURNS_MAX + 1 }>,
    /// Runs in a row that it left for one not far ahead, below 0 downwards (R8).
    hops: i8,
    /// The column of a matrix that it walks, and what it took up of late (R7).
    column: Column,
    taken: Lately<Taken, { stride::columns::TAKEN_MAX }>,
}

/// A read farther on that a thread made right after one of a seed of its own, or inside the window of its run (R9).
#[derive(Clone, Copy)]
struct Look {
    /// That seed or run, and where it was expected next.
    from: StreamId,
    next: u64,
    /// The first page that was looked at, and the page behind the last.
    first: u64,
    end: u64,
    /// He has left that run, unless he comes back.
    leaves: bool,
    /// He comes back from there downwards: the run is as good as read.
    passed: bool,
}

struct Flight {
    file: FileId,
    device: u64,
    pages: Extent,
    /// What the reader does not bring himself.
    ours: PageCount,
    issued: Nanos,
    sent: Sent,
    /// Its file is no more.
    closed: bool,
}

/// The brain of a run.
pub struct Wave {
    config: Config,
    files: BTreeMap<FileId, File>,
    streams: Streams,
    silent: SilenceLine,
    latest: BTreeMap<u32, Latest>,
    queues: BTreeMap<u64, Queue>,
    flights: BTreeMap<FetchId, Flight>,
    /// The latest arrivals: a read that began before one of them was late, not robbed (R12).
    arrivals: VecDeque<(Nanos, FileId, Extent)>,
    next_fetch: u64,
    /// What the reader of this very input is about to bring himself.
    own: Option<(FileId, Extent)>,
    /// Where the read lies to the byte that this actor makes now, as far as it was told.
    exactly: Option<(u32, Lies)>,
    /// Runs of all files that ended (R9).
    ended: Ended,
    belief: Belief,
    ledger: Ledger,
    trials: Trials,
    epochs: Epochs,
    counters: Counters,
    /// At most `changed_max`: twice the leaves of all that was touched since they were taken.
    changed: Vec<(FileId, u64)>,
    changed_max: usize,
    /// At most [`GIVEN_UP_MAX`]: who does not ask does not miss them.
    given_up: VecDeque<(FileId, Extent)>,
    trace: VecDeque<Explained>,
}

impl Wave {
    /// A brain that knows nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            files: BTreeMap::new(),
            streams: Streams::default(),
            silent: SilenceLine::new(),
            latest: BTreeMap::new(),
            queues: BTreeMap::new(),
            flights: BTreeMap::new(),
            arrivals: VecDeque::new(),
            next_fetch: 0,
            own: None,
            exactly: None,
            ended: Ended::default(),
            belief: Belief::new(config.memory.0 / crate::units::PAGE_SIZE),
            ledger: Ledger::default(),
            trials: Trials::default(),
            epochs: Epochs::default(),
            counters: Counters::default(),
            changed: Vec::new(),
            changed_max: CHANGED_MIN,
            given_up: VecDeque::new(),
            trace: VecDeque::new(),
        }
    }

    /// Takes one input. What is to be done then comes out of [`Wave::poll`].
    pub fn handle(&mut self, now: Nanos, input: Input) {
        self.own = None;
        let exactly = self.exactly.take();
        match input {
            Input::Device { device, request_max, reader_max } => {
                let queue = self.queue(device);
                (queue.request_max, queue.reader_max) = (request_max, reader_max);
            }
            Input::Open { file, device, size } => self.open(file, device, size),
            Input::Close { file } => self.close(file),
            Input::Read { file, pages, actor } => {
                self.exactly = exactly.filter(|&(by, _)| by == actor);
                self.read(now, file, pages, actor);
                self.exactly = None;
            }
            Input::Exactly { actor, from, bytes } => {
                self.exactly = Lies::told(from, bytes.0).map(|lies| (actor, lies));
            }
            Input::Waited { file, pages, actor, took, ended } => {
                self.waited(now, file, pages, actor, (took, ended.min(now)));
            }
            Input::Used { file, pages } => self.used_quietly(now, file, pages),
            Input::Untold { file, reads } => self.untold(file, reads),
            Input::Told { file, all } => {
                if let Some(f) = self.files.get_mut(&file) {
                    f.told.is_all(all);
                }
            }
            Input::Arrived { fetch } => self.arrived(now, fetch, true),
            Input::Skipped { fetch } => self.arrived(now, fetch, false),
            Input::Failed { fetch } => self.failed(fetch),
            Input::Present { file, pages } => self.present(file, pages),
            Input::Dropped { file, pages } => self.dropped(now, file, pages),
            Input::Advised { file, pages, advice } => self.advised(now, file, pages, advice),
            Input::Memory { bytes } => self.memory_is(bytes),
        }
    }

    /// The next thing to do, demand before speculation, never more in flight than the device digests. Call until `None`
    /// after each input.
    pub fn poll(&mut self, now: Nanos) -> Option<Action> {
        let mut behind = Bound::Unbounded;
        loop {
            let mut queues = self.queues.range((behind, Bound::Unbounded));
            let device = *queues.find(|(_, queue)| !queue.is_empty())?.0;
            if let Some(action) = self.poll_device(now, device) {
                return Some(action);
            }
            behind = Bound::Excluded(device);
        }
    }

    /// Files' leaves of 64 pages whose state changed since the last call, for drivers that publish what is quiet.
    pub fn take_changed(&mut self) -> Vec<(FileId, u64)> {
        self.changed_max = CHANGED_MIN;
        core::mem::take(&mut self.changed)
    }

    /// Pages that were fetched ahead and turned out to be more than memory has room for (R12), the oldest such run first; `None` when
    /// there are no more. They count as absent already. A driver that lets them go at once keeps what readers come to next: else the
    /// frames for what was lost are taken from that. It may as well leave them where they are. Ask after each input. Nothing is given
    /// up where [`Config::read_goes_first`].
    pub fn take_given_up(&mut self) -> Option<(FileId, Extent)> {
        self.given_up.pop_front()
    }

    /// One bit for each of the 64 pages of a leaf: (needs no event, has arrived). A page needs an event where it is
    /// neither present nor in flight, or carries a mark.
    pub fn leaf(&self, file: FileId, leaf: u64) -> (u64, u64) {
        let Some(f) = self.files.get(&file) else { return (0, 0) };
        let word = |bit| f.table.word(bit, leaf);
        let present = word(PageBit::Present);
        let quiet = (present | word(PageBit::InFlight)) & !word(PageBit::Mark);
        (quiet, present & quiet)
    }

    /// Where `actor` was when the latest of his reads was told: what he read there since goes before his next ([`left_off`](crate::left_off)).
    pub fn heard_at(&self, actor: u32) -> Option<(FileId, Extent)> {
        self.latest.get(&actor).map(|latest| (latest.file, latest.pages))
    }

    /// Whether `page` is known present or in flight.
    pub fn resident(&self, file: FileId, page: PageIndex) -> bool {
        self.files.get(&file).is_some_and(|f| f.table.present(page))
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Pages fetched ahead and not read so far.
    pub fn unread(&self) -> PageCount {
        PageCount(self.ledger.unread())
    }

    /// Streams and seeds alive.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// What was learnt of a device; nothing until a file of it was opened.
    pub fn device(&self, device: u64) -> Option<Learnt> {
        self.queues.get(&device).map(|queue| queue.device.learnt())
    }

    /// Takes the decisions made since the last call, oldest first.
    pub fn take_trace(&mut self) -> impl Iterator<Item = Explained> {
        core::mem::take(&mut self.trace).into_iter()
    }

    /// States what must hold between inputs.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check(&self) {
        let mut ahead = 0;
        for (id, f) in &self.files {
            let all = Extent::new(0, f.end);
            ahead += f.table.count(PageBit::Ahead, all).0;
            for run in f.table.runs(PageBit::Ahead, all) {
                assert_eq!(
                    f.table.resident(run),
                    run.count,
                    "file {id}: a page fetched ahead is present or in flight"
                );
            }
            for (&next, &sid) in f.expected.up() {
                if let Some(s) = self.streams.get(sid) {
                    assert_eq!((s.file, s.next), (*id, next), "a stream is found where it is expected");
                    assert!(s.frontier >= s.next || s.course == Course::Backward, "{s:?}");
                }
            }
            f.seeds.check();
        }
        let readers: u64 = self.files.values().map(|f| u64::from(f.readers)).sum();
        assert_eq!(readers, self.latest.len() as u64, "each reader reads one file");
        assert_eq!(ahead, self.ledger.unread(), "unread pages are counted one by one");
        assert!(self.trace.len() <= TRACE_MAX);
        let (silent, places) = (self.silent.len(), self.streams.places());
        assert!(silent <= self.line_max(), "{silent} in line of {places} that were alive at once");
        assert!(self.given_up.len() <= GIVEN_UP_MAX);
        assert!(self.changed.len() < self.changed_max, "nobody need take what changed");
        for (device, queue) in &self.queues {
            let reads_there = |actor| {
                let file = self.latest.get(actor).and_then(|latest| self.files.get(&latest.file));
                file.is_some_and(|f| f.device == *device)
            };
            assert!(queue.lacking.keys().all(reads_there), "who lacks something reads a file of the device");
        }
        assert!(self.streams.len() <= STREAMS_MAX, "streams are bounded");
        let ends: usize = self.queues.values().map(|queue| queue.ends.len()).sum();
        assert!(ends <= self.flights.len(), "a request in flight has one end");
    }

    fn queue(&mut self, device: u64) -> &mut Queue {
        self.queues.entry(device).or_insert_with(|| Queue::new(&self.config))
    }

    fn open(&mut self, id: FileId, device: u64, size: Bytes) {
        let end = PageCount::holding(size).0;
        let file = self.files.entry(id).or_insert_with(|| File {
            device,
            end,
            table: PageTable::new(PageIndex(end)),
            expected: Expected::default(),
            seeds: Seeds::default(),
            density: Density::default(),
            near: Near::default(),
            account: Account::default(),
            visits: Visits::default(),
            runs: Runs::default(),
            taught: Taught::default(),
            said: Said::default(),
            told: Told::default(),
            readers: 0,
        });
        if end < file.end {
            let lost = file.table.count(PageBit::Ahead, Extent::between(PageIndex(end), PageIndex(file.end)));
            self.ledger.closed(lost.0);
        }
        file.end = end;
        file.table.set_end_of_file(PageIndex(end));
        self.queue(device);
    }

    fn close(&mut self, id: FileId) {
        self.leave_file(id);
        let readers = self.latest.iter().filter(|(_, latest)| latest.file == id);
        for actor in readers.map(|(&actor, _)| actor).collect::<Vec<u32>>() {
            self.waits_no_more(actor);
        }
        let Some(file) = self.files.remove(&id) else { return };
        // The next file may be given its number.
        self.flights.values_mut().filter(|flight| flight.file == id).for_each(|flight| flight.closed = true);
        if let Some(queue) = self.queues.get_mut(&file.device) {
            queue.close(id);
        }
        self.ledger.closed(file.table.count(PageBit::Ahead, Extent::new(0, file.end)).0);
        for sid in file.expected.into_streams() {
            if let Some(stream) = self.dismiss(sid) {
                self.ended.push(stream.direction(), stream.progress());
            }
        }
        self.latest.retain(|_, latest| latest.file != id);
    }

    /// Marks pages read; returns how many of them had been fetched ahead and not read before.
    fn use_pages(&mut self, id: FileId, pages: Extent) -> u64 {
        let Some(f) = self.files.get_mut(&id) else { return 0 };
        let useful = f.table.clear(PageBit::Ahead, pages).0;
        self.counters.pages_used += f.table.set(PageBit::Used, pages).0;
        self.counters.pages_useful += useful;
        self.trials.used(useful);
        self.ledger.read(useful);
        useful
    }

    /// Pages are there, whoever brought them. What a reader was to bring himself is not under way any more, also where nobody tells that his
    /// wait ended; what we fetch is until it arrives. O(requests in flight).
    fn present(&mut self, id: FileId, pages: Extent) {
        let Some(f) = self.files.get_mut(&id) else { return };
        f.table.set(PageBit::Present, pages);
        if f.table.count(PageBit::InFlight, pages).0 > 0 {
            f.table.clear(PageBit::InFlight, pages);
            for flight in self.flights.values().filter(|flight| flight.file == id && !flight.closed) {
                f.table.set(PageBit::InFlight, flight.pages.intersection(pages));
            }
        }
        self.touch_leaves(id, pages);
    }

    fn arrived(&mut self, now: Nanos, id: FetchId, sent: bool) {
        let Some(flight) = self.flights.remove(&id) else { return };
        if let Some(f) = self.files.get_mut(&flight.file).filter(|_| !flight.closed) {
            f.table.clear(PageBit::InFlight, flight.pages);
            f.table.set(PageBit::Present, flight.pages);
            self.touch_leaves(flight.file, flight.pages);
        }
        if self.arrivals.len() == ARRIVALS_MAX {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back((now, flight.file, flight.pages));
        if let Some(queue) = self.queues.get_mut(&flight.device) {
            let follows = queue.back(flight.file, flight.pages);
            if sent {
                let took = now.since(flight.issued);
                queue.device.finished(now, flight.ours.bytes(), took, flight.sent, follows);
            } else {
                queue.device.gone(flight.sent);
            }
        }
        self.price_again(now, flight.file);
    }

    fn failed(&mut self, id: FetchId) {
        let Some(flight) = self.flights.remove(&id) else { return };
        self.counters.fetches_failed += 1;
        if let Some(queue) = self.queues.get_mut(&flight.device) {
            queue.back(flight.file, flight.pages);
            queue.device.gone(flight.sent);
        }
        if !flight.closed {
            self.forget(flight.file, flight.pages, false);
        }
    }

    /// Takes it that pages are not there (any more). Pages in flight stay so where `arrived_only`.
    fn forget(&mut self, id: FileId, pages: Extent, arrived_only: bool) {
        let Some(f) = self.files.get_mut(&id) else { return };
        let bit = if arrived_only { PageBit::Present } else { PageBit::InFlight };
        let runs: Vec<Extent> = f.table.runs(bit, pages).collect();
        for run in runs {
            self.ledger.gone(f.table.clear(PageBit::Ahead, run).0);
            f.table.clear(bit, run);
            f.table.clear(PageBit::Mark, run);
        }
        self.touch_leaves(id, pages);
    }

    /// `pages` are marked, and said to have changed: else a driver that has published them would not hear of their being read.
    fn mark(&mut self, id: FileId, pages: Extent) {
        let Some(f) = self.files.get_mut(&id) else { return };
        let pages = pages.intersection(Extent::new(0, f.end));
        f.table.set(PageBit::Mark, pages);
        self.touch_leaves(id, pages);
    }

    fn touch_leaves(&mut self, file: FileId, pages: Extent) {
        let end = self.files.get(&file).map_or(0, |f| f.end);
        let pages = pages.intersection(Extent::new(0, end));
        if pages.is_empty() {
            return;
        }
        for leaf in pages.start.0 / 64..=(pages.end().0 - 1) / 64 {
            if self.changed.last() != Some(&(file, leaf)) {
                self.changed.push((file, leaf));
            }
        }
        if self.changed.len() >= self.changed_max {
            self.changed.sort_unstable();
            self.changed.dedup();
            self.changed_max = CHANGED_MIN.max(2 * self.changed.len());
        }
    }

    fn explain(
        &mut self,
        now: Nanos,
        file: FileId,
        read: Extent,
        window: Window,
        pattern: Pattern,
        why: Why,
    ) {
        self.counters.windows += 1;
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        let streams = self.active();
        self.trace.push_back(Explained {
            at: now,
            file,
            read,
            decision: Decision { window, pattern, why },
            streams,
        });
    }
}
