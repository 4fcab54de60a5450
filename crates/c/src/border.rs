//! Each function of `bowwave.h`, and the types that it takes.
//!
//! Every input is one call of [`tell`]: look at the pointer, cut the pages, hand over, catch. Worked example (test
//! `a_brain_that_panicked_stays_away`): the call in which the brain panics says -2, and so does each one after it.

use bowwave_core::{
    Action, Advice, Bytes, Config, Extent, FetchId, FileId, Input, Nanos, PageCount, PageIndex, Wave,
};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Done.
pub const BOWWAVE_OK: c_int = 0;
/// A pointer that must point somewhere was null. Nothing was done.
pub const BOWWAVE_NULL: c_int = -1;
/// The brain met an error of its own, in this call or an earlier one. Go on without it, and free it.
pub const BOWWAVE_BROKEN: c_int = -2;

/// The latest moment, 73 years after 0, and the longest wait, an hour: what is later or longer is said to be that, because
/// the brain adds and multiplies times.
const NOW_MAX: u64 = 1 << 61;
const TOOK_MAX: u64 = 3_600_000_000_000;

/// A brain: what it knows of files, their readers, one memory and the devices. For one thread at a time.
pub struct bowwave {
    wave: Wave,
    /// Pages of each open file.
    ends: BTreeMap<FileId, PageIndex>,
    broken: bool,
}

/// What is fixed for a brain's life. Everything else is measured. Begin with `bowwave_config_default`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct bowwave_config {
    /// Bytes that pages fetched ahead may occupy. Default 1 GiB.
    pub memory: u64,
    /// Your cache lets pages that were read go before those that a reader still comes to (`bowwave_awaits`): seven eighths of
    /// memory are shared out to readers then, not a half. 0 is no, anything else yes; default 0, as no kernel does.
    pub read_goes_first: u8,
    /// What is read without a word you tell (`bowwave_used`) at most so late, in nanoseconds: a reader with pages ahead of him is not
    /// taken to have gone for silence as long as that, unless he was heard reading elsewhere. Default 0: as it is read.
    pub told_within_ns: u64,
    /// Misses, marks and arrivals you tell at most so late, in nanoseconds: what a device carries until then must be out ahead of its
    /// readers. Default 20 ms, as from a thread that others keep from the processors; 0 where it is told as it happens.
    pub seen_within_ns: u64,
    /// Largest request that can be sent at once, in pages of 4096 bytes, at least 1. Default 32.
    pub request_max: u64,
    /// Pages that a reader's own read brings at once, however large it is. Default 32.
    pub reader_max: u64,
    /// Pages fetched ahead in vain that are tolerated for each hundred used. Default 15.
    pub waste_percent: u32,
    /// Whether that is absolute, whatever it would have saved: 0 is no, anything else yes. Default 0.
    pub waste_absolute: u8,
}

/// Pages `[start, start + count)` of a file; a page is 4096 bytes. What lies past the file's end is left out.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct bowwave_extent {
    /// First page, counted from 0.
    pub start: u64,
    /// How many.
    pub count: u64,
}

/// What a program says of its reads, as posix_fadvise has it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum bowwave_advice {
    /// Nothing special.
    BOWWAVE_ADVICE_NORMAL = 0,
    /// In order.
    BOWWAVE_ADVICE_SEQUENTIAL = 1,
    /// In no order: fetch nothing ahead.
    BOWWAVE_ADVICE_RANDOM = 2,
    /// These pages soon: fetch them.
    BOWWAVE_ADVICE_WILL_NEED = 3,
    /// Not these pages: forget them.
    BOWWAVE_ADVICE_DONT_NEED = 4,
}

/// Something to fetch: none of its pages is present or under way as far as the brain was told, but for those beside them
/// that their reader is about to bring himself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bowwave_fetch {
    /// Names it in `bowwave_arrived`, `bowwave_skipped` or `bowwave_failed`; one of them must follow.
    pub id: u64,
    /// Of which file.
    pub file: u64,
    /// Which pages, at most `request_max`.
    pub pages: bowwave_extent,
    /// The rule that led to it, `why_len` bytes without a zero behind them, valid for ever.
    pub why: *const c_char,
    /// Bytes of `why`.
    pub why_len: usize,
    /// Whether somebody waits for it already.
    pub demand: bool,
}

/// Pages of a file that were given up.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct bowwave_gone {
    /// Of which file.
    pub file: u64,
    /// Which pages.
    pub pages: bowwave_extent,
}

/// What came of it, since the brain was made.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct bowwave_counters {
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
    /// Windows that lost a page before its read.
    pub windows_thrashed: u64,
    /// Streams of two reads or more that were found.
    pub streams: u64,
    /// Fetches that failed.
    pub fetches_failed: u64,
}

fn moment(now_ns: u64) -> Nanos {
    Nanos(now_ns.min(NOW_MAX))
}

/// Runs `act` on the brain, where there is one that is whole; a panic breaks it and goes no further.
///
/// # Safety
/// `brain` is null or came from `bowwave_new`, is not freed, and nobody else uses it meanwhile.
unsafe fn guarded(brain: *mut bowwave, act: impl FnOnce(&mut bowwave) -> c_int) -> c_int {
    // SAFETY: null, or one of ours and used by this thread alone, as the caller promises.
    let Some(brain) = (unsafe { brain.as_mut() }) else { return BOWWAVE_NULL };
    if brain.broken {
        return BOWWAVE_BROKEN;
    }
    let result = catch_unwind(AssertUnwindSafe(|| act(&mut *brain)));
    result.unwrap_or_else(|_| {
        brain.broken = true;
        BOWWAVE_BROKEN
    })
}

/// Hands one input over.
///
/// # Safety
/// As for [`guarded`].
unsafe fn tell(brain: *mut bowwave, now_ns: u64, input: impl FnOnce(&bowwave) -> Input) -> c_int {
    let act = |brain: &mut bowwave| {
        let input = input(brain);
        brain.wave.handle(moment(now_ns), input);
        brain.drop_unasked();
        BOWWAVE_OK
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(brain, act) }
}

/// Fills `room` with what `act` finds in the brain: `found`, or 0 where it finds nothing.
///
/// # Safety
/// As for [`guarded`]; `room` is null or room for one.
unsafe fn fill<T>(
    brain: *mut bowwave,
    room: *mut T,
    found: c_int,
    act: impl FnOnce(&mut bowwave) -> Option<T>,
) -> c_int {
    if room.is_null() {
        return BOWWAVE_NULL;
    }
    let act = |brain: &mut bowwave| {
        let Some(answer) = act(brain) else { return 0 };
        // SAFETY: not null, and room for one, as the caller promises.
        unsafe { room.write(answer) };
        found
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(brain, act) }
}

impl From<Extent> for bowwave_extent {
    fn from(pages: Extent) -> Self {
        Self { start: pages.start.0, count: pages.count.0 }
    }
}

impl From<bowwave_config> for Config {
    /// Any byte that C may leave in a question is an answer: a `bool` that is neither 0 nor 1 would be undefined here.
    fn from(config: bowwave_config) -> Self {
        Self {
            memory: Bytes(config.memory),
            read_goes_first: config.read_goes_first != 0,
            told_within: Nanos(config.told_within_ns.min(TOOK_MAX)),
            seen_within: Nanos(config.seen_within_ns.min(TOOK_MAX)),
            waste_percent: config.waste_percent,
            waste_absolute: config.waste_absolute != 0,
            request_max: PageCount(config.request_max),
            reader_max: PageCount(config.reader_max),
        }
    }
}

impl bowwave {
    /// The pages of an extent that the file has; none where the file is not open.
    fn cut(&self, file: u64, pages: bowwave_extent) -> Extent {
        let end = self.ends.get(&FileId(file)).copied().unwrap_or_default();
        Extent::new(pages.start, pages.count).intersection(Extent::between(PageIndex(0), end))
    }

    /// Lets go what the brain keeps for other drivers: which leaves changed, for those that publish them (here they are asked for one by
    /// one), and the latest 65,536 decisions, for those that explain them (here each fetch says why).
    fn drop_unasked(&mut self) {
        self.wave.take_changed();
        drop(self.wave.take_trace());
    }
}

/// What a brain is given where nothing is known of the machine.
#[unsafe(no_mangle)]
pub extern "C" fn bowwave_config_default() -> bowwave_config {
    let config = Config::default();
    bowwave_config {
        memory: config.memory.0,
        read_goes_first: config.read_goes_first.into(),
        told_within_ns: config.told_within.0,
        seen_within_ns: config.seen_within.0,
        request_max: config.request_max.0,
        reader_max: config.reader_max.0,
        waste_percent: config.waste_percent,
        waste_absolute: config.waste_absolute.into(),
    }
}

/// A brain that knows nothing yet; `config` null means the default. Null where it cannot be made: a `request_max` of 0.
///
/// # Safety
/// `config` is null or points to a configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_new(config: *const bowwave_config) -> *mut bowwave {
    // SAFETY: null or a configuration, as the caller promises.
    let config = unsafe { config.as_ref() }.copied().unwrap_or_else(|| bowwave_config_default());
    if config.request_max == 0 {
        return std::ptr::null_mut();
    }
    let make = || {
        let wave = Wave::new(config.into());
        Box::into_raw(Box::new(bowwave { wave, ends: BTreeMap::new(), broken: false }))
    };
    catch_unwind(make).unwrap_or(std::ptr::null_mut())
}

/// Ends a brain's life. Null is no error.
///
/// # Safety
/// `brain` is null or came from `bowwave_new`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_free(brain: *mut bowwave) {
    if !brain.is_null() {
        // SAFETY: made by `Box::into_raw` in `bowwave_new`, and given back once.
        let brain = unsafe { Box::from_raw(brain) };
        // Nobody is left whom a panic could be told.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(brain)));
    }
}

/// A file appears, `size` bytes long. Files with the same `device` share what is learnt of it. Again: it has that size now.
///
/// # Safety
/// `brain` is null or came from `bowwave_new`, and this thread alone uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_open(
    brain: *mut bowwave,
    now_ns: u64,
    file: u64,
    device: u64,
    size: u64,
) -> c_int {
    let act = |brain: &mut bowwave| {
        let end = PageIndex(PageCount::holding(Bytes(size)).0);
        brain.wave.handle(moment(now_ns), Input::Open { file: FileId(file), device, size: Bytes(size) });
        brain.ends.insert(FileId(file), end);
        BOWWAVE_OK
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(brain, act) }
}

/// A file is read no more.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_close(brain: *mut bowwave, now_ns: u64, file: u64) -> c_int {
    let act = |brain: &mut bowwave| {
        brain.ends.remove(&FileId(file));
        brain.wave.handle(moment(now_ns), Input::Close { file: FileId(file) });
        BOWWAVE_OK
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(brain, act) }
}

/// These pages are about to be read, by `actor`: a thread, say. Told before every read that misses a page or meets one that
/// is not quiet (`bowwave_leaf`).
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_read(
    brain: *mut bowwave,
    now_ns: u64,
    file: u64,
    pages: bowwave_extent,
    actor: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { tell(brain, now_ns, |b| Input::Read { file: FileId(file), pages: b.cut(file, pages), actor }) }
}

/// Where the read that `actor` makes next lies, to the byte: `bytes` of its file, from byte `from` on. Told just before its `bowwave_read`,
/// where you know it; with another input between the two it counts for nothing. Records that lie 2,102,395 bytes apart do not lie a whole
/// number of pages apart: told so, each from the fourth on is fetched before it is read, in the two pages that it needs. Of a read that is not
/// told so, or is whole pages, no more is known than that it begins somewhere in its first page.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_exactly(brain: *mut bowwave, actor: u32, from: u64, bytes: u64) -> c_int {
    // It belongs to the read behind it, and that says when.
    // SAFETY: as the caller promises.
    unsafe { tell(brain, 0, |_| Input::Exactly { actor, from, bytes: Bytes(bytes) }) }
}

/// A read has taken `took_ns`. Told after its `bowwave_read`, or alone where its pages were quiet and yet it was slow.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_waited(
    brain: *mut bowwave,
    now_ns: u64,
    file: u64,
    pages: bowwave_extent,
    actor: u32,
    took_ns: u64,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        tell(brain, now_ns, |b| {
            let (pages, took) = (b.cut(file, pages), Nanos(took_ns.min(TOOK_MAX)));
            Input::Waited { file: FileId(file), pages, actor, took, ended: Nanos(now_ns) }
        })
    }
}

/// These pages were read some time ago, quietly. Best told just before the `bowwave_read` of a page behind them.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_used(
    brain: *mut bowwave,
    now_ns: u64,
    file: u64,
    pages: bowwave_extent,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { tell(brain, now_ns, |b| Input::Used { file: FileId(file), pages: b.cut(file, pages) }) }
}

/// Whether each page read of a file is told, by `bowwave_read` or `bowwave_used`, but for those that come with one at once, 31 at
/// most: so it is where pages are mapped. What is passed untold is skipped then. Until told otherwise (`all` 0) it is not so.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_told(brain: *mut bowwave, now_ns: u64, file: u64, all: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { tell(brain, now_ns, |_| Input::Told { file: FileId(file), all: all != 0 }) }
}

/// A fetch has arrived. An id that is not under way is no error, here and below.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_arrived(brain: *mut bowwave, now_ns: u64, fetch: u64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { tell(brain, now_ns, |_| Input::Arrived { fetch: FetchId(fetch) }) }
}

/// A fetch found its pages there, or brought by others: nothing was sent, and its time says nothing.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_skipped(brain: *mut bowwave, now_ns: u64, fetch: u64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { tell(brain, now_ns, |_| Input::Skipped { fetch: FetchId(fetch) }) }
}

/// A fetch has failed, or was never sent.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_failed(brain: *mut bowwave, now_ns: u64, fetch: u64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { tell(brain, now_ns, |_| Input::Failed { fetch: FetchId(fetch) }) }
}

/// These pages are in the cache: a reader brought them, or they were there before.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_present(
    brain: *mut bowwave,
    now_ns: u64,
    file: u64,
    pages: bowwave_extent,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { tell(brain, now_ns, |b| Input::Present { file: FileId(file), pages: b.cut(file, pages) }) }
}

/// These pages have left the cache.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_dropped(
    brain: *mut bowwave,
    now_ns: u64,
    file: u64,
    pages: bowwave_extent,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { tell(brain, now_ns, |b| Input::Dropped { file: FileId(file), pages: b.cut(file, pages) }) }
}

/// The program gave advice, one of `BOWWAVE_ADVICE_...`; another number is none. The first three are for the whole file.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_advised(
    brain: *mut bowwave,
    now_ns: u64,
    file: u64,
    pages: bowwave_extent,
    advice: c_int,
) -> c_int {
    // A number and not the enum: C may hand over any number, and of an enum of Rust's that would be undefined.
    use bowwave_advice as said;
    let known = [
        (said::BOWWAVE_ADVICE_SEQUENTIAL, Advice::Sequential),
        (said::BOWWAVE_ADVICE_RANDOM, Advice::Random),
        (said::BOWWAVE_ADVICE_WILL_NEED, Advice::WillNeed),
        (said::BOWWAVE_ADVICE_DONT_NEED, Advice::DontNeed),
    ];
    let meant = known.iter().find(|(number, _)| *number as c_int == advice);
    let advice = meant.map_or(Advice::Normal, |&(_, advice)| advice);
    // SAFETY: as the caller promises.
    unsafe {
        tell(brain, now_ns, |b| Input::Advised { file: FileId(file), pages: b.cut(file, pages), advice })
    }
}

/// What can be sent to this device at once, where that is not what the configuration says: told before its first file, or when
/// it changes. Pages of a request, of which 0 is taken as 1, and pages that a reader's own read brings.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_device(
    brain: *mut bowwave,
    now_ns: u64,
    device: u64,
    request_max: u64,
    reader_max: u64,
) -> c_int {
    let [request_max, reader_max] = [request_max, reader_max].map(PageCount);
    // SAFETY: as the caller promises.
    unsafe { tell(brain, now_ns, |_| Input::Device { device, request_max, reader_max }) }
}

/// Pages fetched ahead may occupy so many bytes from now on. What was learnt of memory is kept while it changes by no more than a
/// sixteenth.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_memory(brain: *mut bowwave, now_ns: u64, bytes: u64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { tell(brain, now_ns, |_| Input::Memory { bytes: Bytes(bytes) }) }
}

/// What is to be fetched now: 1 and `fetch` is filled, or 0 where there is nothing. Call until 0 after each input.
///
/// # Safety
/// As for `bowwave_open`; `fetch` is null or room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_poll(brain: *mut bowwave, now_ns: u64, fetch: *mut bowwave_fetch) -> c_int {
    let act = |brain: &mut bowwave| {
        let Action::Fetch { id, file, pages, demand, why } = brain.wave.poll(moment(now_ns))?;
        brain.drop_unasked();
        let (why, why_len) = (why.0.as_ptr().cast(), why.0.len());
        Some(bowwave_fetch { id: id.0, file: file.0, pages: pages.into(), why, why_len, demand })
    };
    // SAFETY: as the caller promises.
    unsafe { fill(brain, fetch, 1, act) }
}

/// Pages that were fetched ahead and turned out to be more than memory has room for: 1 and `gone` is filled, or 0 where there are no
/// more. To the brain they are absent already. A cache that lets them go at once keeps what its readers come to next; it may as well
/// leave them. Call until 0 after `bowwave_dropped` and `bowwave_waited`, or never: 64 runs are kept at most. Nothing is given up
/// with `read_goes_first`.
///
/// # Safety
/// As for `bowwave_open`; `gone` is null or room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_given_up(brain: *mut bowwave, gone: *mut bowwave_gone) -> c_int {
    let act = |brain: &mut bowwave| {
        let (file, pages) = brain.wave.take_given_up()?;
        Some(bowwave_gone { file: file.0, pages: pages.into() })
    };
    // SAFETY: as the caller promises.
    unsafe { fill(brain, gone, 1, act) }
}

/// Whether a page is present or under way as far as the brain was told: 1 or 0.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_resident(brain: *mut bowwave, file: u64, page: u64) -> c_int {
    let act = |brain: &mut bowwave| {
        let page = bowwave_extent { start: page, count: 1 };
        let pages = brain.cut(file, page);
        c_int::from(!pages.is_empty() && brain.wave.resident(FileId(file), pages.start))
    };
    // SAFETY: as the caller promises.
    unsafe { guarded(brain, act) }
}

/// Whether a page was fetched ahead of a reader on his way up, or down, who still comes to it: 1 or 0. A cache that asks before it lets a
/// page go, and keeps what is awaited as if it had come anew, may say `read_goes_first`. Ask with a bound, as 2048 at one go:
/// where all is awaited something must go none the less.
///
/// # Safety
/// As for `bowwave_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_awaits(brain: *mut bowwave, file: u64, page: u64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { guarded(brain, |brain| c_int::from(brain.wave.awaits(FileId(file), PageIndex(page)))) }
}

/// One bit for each of the 64 pages from `leaf * 64` on: those whose read needs not be told, the lowest bit first.
///
/// # Safety
/// As for `bowwave_open`; `quiet` is null or room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_leaf(brain: *mut bowwave, file: u64, leaf: u64, quiet: *mut u64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { fill(brain, quiet, BOWWAVE_OK, |brain| Some(brain.wave.leaf(FileId(file), leaf).0)) }
}

/// Reads the counters.
///
/// # Safety
/// As for `bowwave_open`; `counters` is null or room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_counters_read(
    brain: *mut bowwave,
    counters: *mut bowwave_counters,
) -> c_int {
    let act = |brain: &mut bowwave| {
        let c = brain.wave.counters();
        Some(bowwave_counters {
            reads: c.reads,
            stalls: c.stalls,
            stalled_ns: c.stalled_ns,
            pages_used: c.pages_used,
            pages_ahead: c.pages_ahead,
            pages_useful: c.pages_useful,
            pages_late: c.pages_late,
            windows: c.windows,
            windows_thrashed: c.windows_thrashed,
            streams: c.streams,
            fetches_failed: c.fetches_failed,
        })
    };
    // SAFETY: as the caller promises.
    unsafe { fill(brain, counters, BOWWAVE_OK, act) }
}

#[cfg(test)]
mod tests;
