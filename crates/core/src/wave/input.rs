//! What a driver fixes for a run, what it tells, what it is told, and what it may ask.

use crate::decision::{Decision, Why};
use crate::units::{Bytes, Extent, FileId, Nanos, PageCount};

/// What a driver fixes for a run. Everything else is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Memory that prefetched pages may occupy. Half of it is shared out to streams (R13): the other half is full of what they
    /// have read.
    pub memory: Bytes,
    /// The driver lets pages that were read go before those that a reader still comes to ([`crate::wave::Wave::awaits`]): seven eighths
    /// are shared out then. Default: no, as no kernel does.
    pub read_goes_first: bool,
    /// What is read without a word is told at most so late ([`Input::Used`]). A reader with pages ahead of him is not taken to have
    /// gone for silence as long as that, unless he was heard reading elsewhere. Default: 0, as it is told.
    pub told_within: Nanos,
    /// Misses, marks and arrivals are told at most so late: what a device carries until then must be out ahead of its readers
    /// (R13). Default: 20 ms, as to a thread that others keep from the processors.
    pub seen_within: Nanos,
    /// Pages fetched ahead in vain that are tolerated for each hundred used. Default 15: at most 1.15 bytes a byte.
    pub waste_percent: u32,
    /// Whether that is absolute: then nothing is fetched ahead while more is out unread than 128 KiB and that
    /// share of what was used, whatever it would have saved. Default: no.
    pub waste_absolute: bool,
    /// Largest request that the driver can send at once, to a device of which [`Input::Device`] was not told.
    pub request_max: PageCount,
    /// Pages that the reader's own read brings at once there, however large it is; the rest is ours (R14).
    pub reader_max: PageCount,
}

impl Default for Config {
    /// 1 GiB, 15 %, requests of 128 KiB, 20 ms: what an unprivileged driver has where nothing is known of the machine.
    fn default() -> Self {
        Self {
            memory: Bytes(1 << 30),
            read_goes_first: false,
            told_within: Nanos(0),
            seen_within: Nanos::from_ms(20),
            waste_percent: 15,
            waste_absolute: false,
            request_max: PageCount(32),
            reader_max: PageCount(32),
        }
    }
}

/// Names a fetch from its [`Action::Fetch`] to its arrival or failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FetchId(pub u64);

/// What a program says of its reads (posix_fadvise).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Nothing special.
    Normal,
    /// In order.
    Sequential,
    /// In no order: fetch nothing ahead.
    Random,
    /// These pages soon: fetch them.
    WillNeed,
    /// Not these pages: forget them.
    DontNeed,
}

/// What a driver tells. All but `Read` are optional, may be late and may be partial: see the table of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// What is sent to a device at once; without it what [`Config`] says. Again: it is so much from now on.
    Device {
        /// Its number.
        device: u64,
        /// Largest request that the driver can send it.
        request_max: PageCount,
        /// Pages that a reader's own read brings at once.
        reader_max: PageCount,
    },
    /// A file appears, on the device of that number, so many bytes long. Again: it has that size now.
    Open {
        /// The driver's number.
        file: FileId,
        /// Files with the same number share what is learnt of their device.
        device: u64,
        /// Its size.
        size: Bytes,
    },
    /// A file is read no more.
    Close {
        /// Which.
        file: FileId,
    },
    /// These pages are about to be read.
    Read {
        /// Of which file.
        file: FileId,
        /// Which pages.
        pages: Extent,
        /// By whom: a thread, say.
        actor: u32,
    },
    /// Where the read lies to the byte that this actor makes next. Told just before its `Read` by who knows it: records are seldom as long as
    /// a number of whole pages (R7). Without it, and where it is whole pages, a read is known to begin somewhere in its first page.
    Exactly {
        /// By whom.
        actor: u32,
        /// The byte of the file at which it begins.
        from: u64,
        /// How many bytes it has.
        bytes: Bytes,
    },
    /// A read has taken so long. Told after its `Read`, or alone where its pages were quiet and yet it was slow.
    Waited {
        /// Of which file.
        file: FileId,
        /// Which pages.
        pages: Extent,
        /// By whom.
        actor: u32,
        /// How long.
        took: Nanos,
        /// When it ended: a driver may hear of that late. What has arrived since it began was late, and not gone (R12).
        ended: Nanos,
    },
    /// These pages were read some time ago, quietly. Best told just before the `Read` of a page behind them: it shows that
    /// the reader came page by page.
    Used {
        /// Of which file.
        file: FileId,
        /// Which pages.
        pages: Extent,
    },
    /// Whether each page read of a file is told, by `Read` or `Used`, but for those that come with one at once, 31 at most: so it is
    /// where pages are mapped. What is passed untold is skipped then, and not read quietly. Until told otherwise it is not so.
    Told {
        /// Of which file.
        file: FileId,
        /// Whether it is.
        all: bool,
    },
    /// So many reads of single pages, here and there in a file, have waited, and nobody told of them: a driver leaves some out where telling takes
    /// longer than it is worth. They pay rent for the file as those that are told (R11).
    Untold {
        /// Of which file.
        file: FileId,
        /// How many, about.
        reads: u64,
    },
    /// A fetch has arrived.
    Arrived {
        /// Which.
        fetch: FetchId,
    },
    /// A fetch found its pages there, or brought by others: nothing was sent, and its time says nothing.
    Skipped {
        /// Which.
        fetch: FetchId,
    },
    /// A fetch has failed, or was never sent.
    Failed {
        /// Which.
        fetch: FetchId,
    },
    /// A sample found these pages present.
    Present {
        /// Of which file.
        file: FileId,
        /// Which pages.
        pages: Extent,
    },
    /// A sample, or an eviction, found these pages absent.
    Dropped {
        /// Of which file.
        file: FileId,
        /// Which pages.
        pages: Extent,
    },
    /// The program gave advice.
    Advised {
        /// Of which file.
        file: FileId,
        /// Which pages; all of the file for the first three kinds.
        pages: Extent,
        /// What it said.
        advice: Advice,
    },
    /// Memory that prefetched pages may occupy from now on. What was learnt of it is kept while it changes by no more than a sixteenth.
    Memory {
        /// So much.
        bytes: Bytes,
    },
}

/// What the driver is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Fetch these pages, none of which is present or in flight as far as is known, but for those next to them that their
    /// reader is about to bring himself: whoever is first brings them (R14).
    Fetch {
        /// To be named on arrival.
        id: FetchId,
        /// Of which file.
        file: FileId,
        /// At most [`Config::request_max`] pages.
        pages: Extent,
        /// Whether somebody waits for it already.
        demand: bool,
        /// The rule.
        why: Why,
    },
}

/// One decision, as `explain` prints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explained {
    /// When.
    pub at: Nanos,
    /// Of which file.
    pub file: FileId,
    /// The read that led to it.
    pub read: Extent,
    /// The window, its pattern and the reason.
    pub decision: Decision,
    /// Streams active then.
    pub streams: u64,
}

/// The counters of a run. The one set: every figure shown to a user comes from here or from the driver's own bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Reads told.
    pub reads: u64,
    /// Reads that waited.
    pub stalls: u64,
    /// Time that reads waited, in ns.
    pub stalled_ns: u64,
    /// Different pages read.
    pub pages_used: u64,
    /// Pages fetched ahead.
    pub pages_ahead: u64,
    /// Of those, pages read later.
    pub pages_useful: u64,
    /// Of those, pages whose reader came while they were under way.
    pub pages_late: u64,
    /// Windows decided.
    pub windows: u64,
    /// Windows that lost pages before their read, found so by their reader or told by the driver; a few that were fetched again at once
    /// apart (R12).
    pub windows_thrashed: u64,
    /// Streams of two reads or more that were found.
    pub streams: u64,
    /// Fetches that failed.
    pub fetches_failed: u64,
}
