//! What can be had exactly: closed forms, golden vectors, counts.

use super::programs::{MIB, alone, cents, listed, one_file, pages, played, random, sequential, wave};
use super::{Entry, Table};
use crate::device::DeviceModel;
use crate::rng::Rng;
use crate::world::{Brain, Cpu, MachineModel, Step, WorldConfig, WorldOutcome};
use bowwave_core::{
    Ask, AskKind, Extent, Nanos, PageBit, PageCount, PageIndex, PageTable, Pattern, Play, Policy, ReadState,
    Submission, ThrashSafe, TraceRecord, View, by_name,
};

/// The disk of T11.
pub(super) fn t11_disk() -> MachineModel {
    MachineModel::Plain("lat=8ms,bw=100MiB/s,head".parse::<DeviceModel>().expect("a model of its language"))
}

/// What is printed of a row: KB, transfer and latency in ms, utilisation in percent, KB/s, I/Os a second.
const T11: [(u64, f64, f64, f64, f64, f64); 11] = [
    (4, 0.04, 8.04, 0.49, 497.57, 124.39),
    (8, 0.08, 8.08, 0.97, 990.33, 123.79),
    (16, 0.16, 8.16, 1.92, 1961.69, 122.61),
    (32, 0.31, 8.31, 3.76, 3849.62, 120.30),
    (64, 0.62, 8.62, 7.25, 7420.29, 115.94),
    (128, 1.25, 9.25, 13.51, 13837.84, 108.11),
    (256, 2.50, 10.50, 23.81, 24380.95, 95.24),
    (512, 5.00, 13.00, 38.46, 39384.62, 76.92),
    (1024, 10.00, 18.00, 55.56, 56888.89, 55.56),
    (2048, 20.00, 28.00, 71.43, 73142.86, 35.71),
    (4096, 40.00, 48.00, 83.33, 85333.33, 20.83),
];

pub(super) fn t11(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        "one program reads so many KiB at random places of a file of 16 TiB, 40 times; a head that seeks 8 ms and reads \
         100 MiB/s; nothing is free",
    );
    table.axes = ("KiB a read", "KiB/s");
    let (mut published, mut curve) = (Vec::new(), Vec::new());
    let mut wrong = Vec::new();
    for (kib, transfer, latency, util, rate, iops) in T11 {
        let play = |brain| {
            let far = random(0, 1 << 32, kib / 4, 40, Rng::named(1, &["T11"]));
            alone(one_file(t11_disk(), 1 << 14, brain, 1 << 32), far)
        };
        let (none, wave) = (play(Brain::era("none", 32)), play(wave(1 << 14)));
        let ms = |outcome: &WorldOutcome| outcome.stalled_ns as f64 / 1e6 / outcome.reads as f64;
        let (ours, theirs) = (ms(&none), ms(&wave));
        let cells = [
            (ours - 8.0, transfer),
            (ours, latency),
            ((ours - 8.0) / ours * 100.0, util),
            (kib as f64 * 1000.0 / ours, rate),
            (1000.0 / ours, iops),
        ];
        for (which, (cell, printed)) in cells.into_iter().enumerate() {
            // Half a cent may have been rounded either way (0.625 was printed as 0.62).
            if (cents(cell) - cents(printed)).abs()
                > i64::from(which < 2 && (cell * 1000.0).round() as i64 % 10 == 5)
            {
                wrong.push(format!("{kib} KiB, cell {which}: {cell:.4} for {printed}"));
            }
        }
        table.figure(format!("{kib} KiB"), "KiB/s", rate, "none", cells[3].0, kib as f64 * 1000.0 / theirs);
        published.push((kib as f64, rate));
        curve.push((kib as f64, cells[3].0));
    }
    table.curve("published", published);
    table.curve("none", curve);
    let said =
        if wrong.is_empty() { String::from("all 55 cells to the printed digit") } else { wrong.join("; ") };
    table.exact(said, wrong.is_empty());
    table.judged("a request's time is 8 ms and its bytes at 100 MiB/s; no policy can help at random places, and wave does not try")
}

pub(super) fn t14(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        "one stream, a page at a time at 1 MB/s, under a ceiling of 512 KiB; the most pages fetched and not yet read; the \
         device of T11",
    );
    let play = |brain| {
        let mut at = 0;
        let reader = move |now: Nanos| {
            at += 1;
            match at {
                12_001 => Step::End,
                _ if at % 2 == 0 => Step::Until(Nanos(now.0 + 4_000_000)),
                _ => Step::read(0, at / 2, 1),
            }
        };
        alone(one_file(t11_disk(), 1 << 14, brain, 1 << 20), Box::new(reader))
    };
    let (ours, wave) = (play(Brain::era("ondemand", 128)), play(wave(1 << 14)));
    let kib = |outcome: &WorldOutcome| outcome.unread_max as f64 * 4.0;
    // At the mark the reader holds one page of a window of 128, and 128 more are sent.
    table.figure("readahead buffer", "KiB", 1024.0, "ondemand, 512 KiB", kib(&ours), kib(&wave));
    table.exact(
        format!("{} KiB within one page of 1,024", kib(&ours)),
        (1020.0..=1024.0).contains(&kib(&ours)),
    );
    table.judged("the window being read and the next one; wave takes what the device can use instead")
}

const TRACE: &str = include_str!("../../../core/tests/data/seed-001-trace.txt");

/// The 25 lines decided again, as `tests/golden.rs` of the core does: how many windows, tails and page counts agree.
fn decided_again(mut policy: ThrashSafe) -> (usize, usize) {
    let mut table = PageTable::new(PageIndex(1 << 20));
    let mut state = ReadState::new(PageCount(60));
    state.thrashed = true;
    let (mut lines, mut agree, mut reader): (usize, usize, Option<PageIndex>) = (0, 0, None);
    for printed in TRACE.lines().filter_map(|line| TraceRecord::parse_2010(line).ok()) {
        lines += 1;
        let (page, start) = (printed.request.start, printed.window.start);
        let ahead = start.since(page);
        let history = match printed.pattern {
            Pattern::Thrash => PageCount(0),
            _ if printed.window.async_size.0 == 1 => {
                table.history(page, PageCount(480)).min(ahead + PageCount(7))
            }
            _ => printed.window.size + ahead,
        };
        if reader.is_none_or(|reader| page.since(reader).0 > 100) {
            table.set(PageBit::Present, Extent::between(page.back(history), start));
        }
        table.forget(Extent::between(PageIndex(0), page.back(history)));
        table.forget(Extent { start, count: PageCount(1) });
        let kind = if printed.is_async() { AskKind::Mark } else { AskKind::Miss };
        let mut out = Vec::new();
        let ask = Ask { page, count: printed.request.count, kind };
        policy.decide(&table, &mut state, ask, &mut out);
        state.window = printed.window;
        let submission = Submission::of(&mut table, printed.window);
        let same = out.first().is_some_and(|d| d.window == printed.window && d.pattern == printed.pattern);
        agree += usize::from(same && submission.actual == printed.actual);
        reader = Some(page);
    }
    (lines, agree)
}

pub(super) fn t16(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        "the pages in memory follow from the lines (a window of N with A ahead means a history of N + A); each line is then \
         decided again, and must come out with its window, tail, pattern and count of pages read; nothing is free",
    );
    let ((lines, v0), (_, v3)) = (decided_again(ThrashSafe::v0()), decided_again(ThrashSafe::v3()));
    table.figure("lines decided as printed", "lines", 25.0, "thrash-safe-v0", v0 as f64, None);
    table.figure("lines decided as printed", "lines", None, "thrash-safe (v3)", v3 as f64, None);
    let tails = TRACE.lines().filter_map(|line| TraceRecord::parse_2010(line).ok()).filter(|r| {
        let clamped = r.window.size.0 == 8 && r.window.async_size.0 == 1;
        r.pattern == Pattern::Thrash || clamped || r.window.async_size.0 == 1 + r.window.size.0 / 8
    });
    let tails = tails.count();
    table.exact(format!("{v0} of {lines} lines"), (lines, v0) == (25, 25));
    table.exact(format!("{tails} tails are one and an eighth of the window, three clamped"), tails == 25);
    table.judged("the posting of the seed is v0: its last posting, v3, would have printed longer tails; wave has no such lines to compare")
}

pub(super) fn t17(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        "a look back over 8 x 64 pages that are all cached, from each of the 64 places in a leaf; what the search looks at; \
         nothing is free",
    );
    let mut cached = PageTable::new(PageIndex(1 << 20));
    cached.set(PageBit::Present, Extent::new(64 * 100, 64 * 20));
    // A leaf that is not full, so that its slots are looked at one by one: the one being read.
    let (mut leaves, mut slots) = (0, 0);
    for place in 0..64 {
        let reader = 64 * 110 + place;
        let mut at_reader = cached.clone();
        at_reader.forget(Extent::new(reader, 64 * 20));
        let (history, visits) = at_reader.history_counting(PageIndex(reader), PageCount(512));
        assert_eq!(history, PageCount(512), "all of it is cached");
        (leaves, slots) = (leaves + visits.leaves, slots + visits.slots);
    }
    let (leaves, slots) = (leaves as f64 / 64.0, slots as f64 / 64.0);
    table.figure("slots looked at, before", "slots", 512.0, "slot by slot", 512.0, None);
    table.figure("slots looked at, after", "slots", 32.0, "leaf by leaf", slots, slots);
    table.figure("leaves looked at, after", "leaves", 8.0, "leaf by leaf", leaves, leaves);
    table.exact(
        format!("{slots} slots and {leaves} leaves in the mean, 32 and 8 to the nearest whole"),
        slots.round() as u64 == 32 && leaves.round() as u64 == 8,
    );
    table.judged(
        "every policy looks through the same page table; the slots of a leaf are one instruction here",
    )
}

/// Reads of one program; asks, looks and time.
fn cost(brain: Brain, request: u64, cached: bool, order: &[u64], cpu: Cpu) -> WorldOutcome {
    let pages_in_file = 1 << 15;
    // A sparse file: what is missing is made of zeroes at once.
    let sparse = MachineModel::Plain("lat=0,bw=1000GB/s,slots=512".parse().expect("a model"));
    let mut config = WorldConfig::new(sparse, 1 << 16, brain, &[pages_in_file]);
    config.cpu = cpu;
    let mut world = crate::world::World::new(config);
    if cached {
        world.cached(0, pages(0, pages_in_file));
    }
    let steps = order.iter().map(|&page| Step::read(0, page, request)).collect();
    world.add(Nanos(0), listed(steps));
    world.run()
}

pub(super) fn t1(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        "32,768 pages, one program; a sparse file costs no I/O; calls of the policy and looks at the page cache are counted, and \
         timed at 20 ns a look, 9 ns a call, 250 ns a page, 400 ns a read(2)",
    );
    table.free("9 ns a call of the policy", "256-page cache-hot reads, +3.2 %");
    table.free("20 ns a look, 250 ns a page, 400 ns a read(2): a Core 2 of 2007", "no cell");
    let cpu = Cpu { call_ns: 400, page_ns: 250, look_ns: 20, ask_ns: 9 };
    let by = |count: u64| (0..(1_u64 << 15) / count).map(|i| i * count).collect::<Vec<_>>();
    let mut shuffled = by(1);
    Rng::named(1, &["T1"]).shuffle(&mut shuffled);
    // `tar /lib`: files of 40 pages, read by 10 KiB; here one file stands for all, its marks long gone.
    let cases: [(&str, f64, u64, bool, Vec<u64>); 5] = [
        ("1-page sequential reads, sparse file", 0.3, 1, false, by(1)),
        ("1-page cache-hot sequential reads", 1.2, 1, true, by(1)),
        ("256-page cache-hot sequential reads", 3.2, 256, true, by(256)),
        ("cache-hot tar /lib (10 KiB reads)", 1.3, 3, true, by(3)),
        ("1-page random reads, sparse file", -1.0, 1, false, shuffled),
    ];
    for (name, published, request, cached, order) in cases {
        let of = |brain| cost(brain, request, cached, &order, cpu);
        let (legacy, ondemand) = (of(Brain::era("legacy", 256)), of(Brain::era("ondemand-2.6.23", 256)));
        let gain = (legacy.cost.cpu_ns as f64 / ondemand.cost.cpu_ns as f64 - 1.0) * 100.0;
        let fitted = name.starts_with("256");
        let asks = |o: &WorldOutcome| o.cost.asks as f64 / 32768.0;
        table.figure(name, "% faster", published, "ondemand-2.6.23 against legacy", gain, None).fitted =
            fitted;
        table.figure(format!("  calls a page, {name}"), "calls", None, "legacy", asks(&legacy), None);
        table.figure(
            format!("  calls a page, {name}"),
            "calls",
            None,
            "ondemand-2.6.23",
            asks(&ondemand),
            None,
        );
        if !fitted {
            table.order(
                format!("{name}: {gain:+.1} % has the sign of {published:+.1} %"),
                gain.signum() == published.signum(),
            );
            table.exact(
                format!("{name}: within one point ({gain:+.1} for {published:+.1} %)"),
                (gain - published).abs() <= 1.0,
            );
        }
    }
    table.judged(
        "the calls are exact: legacy hears of every read, on demand of misses and marks. The percentages are those of a \
         processor of 2007 with caches that no count knows; wave in the library hears of every read and is measured in \
         docs/measured/core-cost.md instead",
    )
}

/// `k` streams on one descriptor in turn, a page each: the share of pages that nobody waited for.
fn carried(brain: Brain, k: u64) -> f64 {
    let (rounds, apart) = (96, 1 << 12);
    let frames = (k * 2048).max(1 << 16);
    let steps =
        (0..rounds).flat_map(|r| (0..k).map(move |s| Step::read(0, s * apart + 1000 + r, 1))).collect();
    // A wide pipe: what is judged is the finding of streams, not the size of windows.
    let wide = MachineModel::Plain("lat=1ms,bw=100GB/s,slots=512".parse::<DeviceModel>().expect("a model"));
    let outcome = played(one_file(wide, frames, brain, k * apart + 4096), vec![(Nanos(0), listed(steps))]);
    1.0 - outcome.stalls as f64 / outcome.reads as f64
}

pub(super) fn t24(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        "k streams on one descriptor in turn, a page each, 96 rounds, from the middle of the file; carried if at least half of \
         the reads waited for nothing; a ceiling of 128 KiB, memory for all; nothing is free",
    );
    let most = |brain: &dyn Fn() -> Brain| {
        let carries = |k: &u64| carried(brain(), *k) >= 0.5;
        [1, 2, 8, 32, 128, 1024].into_iter().take_while(carries).last().unwrap_or(0) as f64
    };
    let legacy = most(&|| Brain::era("legacy", 32));
    let zfs = most(&|| crate::rivals::zfetch(32));
    let context = most(&|| Brain::era("context", 32));
    let safe = most(&|| Brain::era("thrash-safe", 32));
    let wave = most(&|| wave(1 << 18));
    table.figure("Linux 2.6.22", "streams a descriptor", 1.0, "legacy", legacy, None);
    table.figure("Solaris/ZFS", "streams a descriptor", 32.0, "a list of 32 (zfetch)", zfs, None);
    table.figure("context readahead (1,024 tried)", "streams a descriptor", None, "context", context, wave);
    table.figure("thrash-safe (1,024 tried)", "streams a descriptor", None, "thrash-safe", safe, None);
    table.exact(format!("legacy carries {legacy}"), legacy == 1.0);
    table.exact(format!("a list of 32 carries {zfs}"), zfs == 32.0);
    table.exact(format!("context carries all {context} that were tried"), context == 1024.0);
    table.judged("any seek switches legacy off; a list ends; the cache's own history does not")
}

pub(super) fn t25(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        "a matrix of 16 rows of 1,000 pages read column by column through one descriptor, 64 columns, a ceiling of 128 KiB; \
         windows of the first row; nothing is free",
    );
    let windows = |name: &str| {
        let mut file = Play::new(by_name(name).expect("an era"), PageIndex(16_000), PageCount(32));
        let mut first = Vec::new();
        for column in 0..64 {
            for row in 0..16 {
                for record in file.read(PageIndex(row * 1000 + column), PageCount(1)) {
                    if row == 1 && record.actual.0 > 0 {
                        first.push((record.window.start.0 - 1000, record.actual.0));
                    }
                }
            }
        }
        first
    };
    let shown = |w: &[(u64, u64)]| w.iter().map(|(s, n)| format!("{s}+{n}")).collect::<Vec<_>>().join(", ");
    let (slides, merged) = (windows("context-2008"), windows("context"));
    for (name, list) in [("context-2008", &slides), ("context", &merged)] {
        let first = list.get(1).map_or(0.0, |w| w.1 as f64);
        let largest = list.iter().map(|w| w.1).max().unwrap_or(0) as f64;
        table.figure("second I/O of a row", "pages", 4.0, name, first, None);
        table.figure("largest I/O of a row", "pages", None, name, largest, None);
    }
    let stride = by_row(Brain::era("none", 32));
    let with_wave = by_row(wave(1 << 15));
    let context = by_row(Brain::era("context", 32));
    table.figure("mean I/O, one page at a time (stride prefetch)", "pages", 1.0, "none", stride, None);
    table.figure("mean I/O", "pages", None, "context", context, with_wave);
    let grows = |list: &[(u64, u64)]| list.iter().any(|w| w.1 == 32);
    table.order(format!("a row's I/O grows to the ceiling: {}", shown(&merged)), grows(&merged));
    table.order(
        format!("its mean is larger than that of a stride's ({context:.1} pages for 1)"),
        context > 4.0,
    );
    table.exact(
        format!("0+1, 1+4, 5+8 as drawn: {}", shown(&merged)),
        merged.get(1) == Some(&(1, 4)) && merged.get(2) == Some(&(5, 8)),
    );
    table.judged(format!(
        "2.6.31 folds the window behind a mark on the waiting page into it, so the slides' 1+4 and 5+8 go out as one; the slides' \
         own rule opens {}",
        shown(&slides)
    ))
}

/// Mean pages of a request for the matrix of T25.
fn by_row(brain: Brain) -> f64 {
    let steps = (0..64).flat_map(|c| (0..16).map(move |r| Step::read(0, r * 1000 + c, 1))).collect();
    let outcome = alone(one_file(t11_disk(), 1 << 15, brain, 16_000), listed(steps));
    outcome.pages_fetched as f64 / outcome.requests as f64
}

/// A sequential read of `pages`, to be shared with other tables.
pub(super) fn streamed(machine: MachineModel, brain: Brain, pages: u64, count: u64) -> WorldOutcome {
    alone(one_file(machine, 64 * MIB, brain, pages), sequential(0, 0, pages, count))
}
