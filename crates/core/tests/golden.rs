//! Golden vectors: what the seeds and their patches printed, decided again.
//!
//! The trace of seed 001 (T16) is one stream of 300 under 128 MiB, after its first thrash. Its windows follow from
//! rule 5.6 alone, once we know which pages were in memory; and that the lines tell: a window of `N` pages, `A` ahead
//! of the reader, means a history of `N + A`. So we hold a page table against the 25 lines, evict behind the reader
//! what each line proves lost, and ask the policy. It must answer with the line, and the submission must find as many
//! pages missing as the line says.

use bowwave_core::{
    Ask, AskKind, Decision, Extent, PageBit, PageCount, PageIndex, PageTable, Pattern, Play, Policy,
    ReadState, Submission, THRASH_MIN, ThrashSafe, TraceRecord, View, Window, by_name,
};

const TRACE: &str = include_str!("data/seed-001-trace.txt");

fn trace() -> Vec<TraceRecord> {
    TRACE.lines().map(|line| TraceRecord::parse_2010(line).unwrap()).collect()
}

#[test]
fn all_lines_of_seed_001_read_back_to_the_letter() {
    assert_eq!(trace().len(), 25);
    for (record, line) in trace().iter().zip(TRACE.lines()) {
        assert!(line.ends_with(&record.line_2010().to_string()), "{line}");
        let flag = line.contains("async=1");
        assert_eq!(record.is_async(), flag, "{line}");
    }
}

/// T16, mechanically.
#[test]
fn the_tails_and_marks_of_seed_001() {
    let trace = trace();
    let (mut marks, mut clamped, mut fresh) = (Vec::new(), 0, 0);
    for record in &trace {
        let Window { size, async_size, .. } = record.window;
        match record.pattern {
            Pattern::Thrash => assert_eq!(async_size, PageCount(0)),
            _ if size == THRASH_MIN => {
                assert_eq!(async_size, PageCount(1));
                clamped += 1;
            }
            _ => assert_eq!(async_size.0, 1 + size.0 / 8, "{}", record.line_2010()),
        }
        // An async line hits the mark of an earlier one, but for the first line and the first after the gap of the log.
        fresh += usize::from(record.is_async() && !marks.contains(&Some(record.request.start)));
        marks.push(record.window.mark());
    }
    assert_eq!((clamped, fresh), (3, 2));
}

/// One line, decided again.
struct Again {
    decided: Decision,
    actual: PageCount,
    printed: TraceRecord,
}

/// Decides every line again. Returns them, and the pages in the middle of a run that had to be lost for their lines to
/// be: behind the reader, memory is lost in order and needs no list.
fn decide_again(mut policy: ThrashSafe) -> (Vec<Again>, Vec<u64>) {
    let mut table = PageTable::new(PageIndex(1 << 20));
    let mut state = ReadState::new(PageCount(60));
    state.thrashed = true;
    let (mut lines, mut lost) = (Vec::new(), Vec::new());
    let mut reader = None;
    for printed in trace() {
        let (page, start) = (printed.request.start, printed.window.start);
        let ahead = start.since(page);
        let kind = if printed.is_async() { AskKind::Mark } else { AskKind::Miss };
        let history = match printed.pattern {
            Pattern::Thrash => PageCount(0),
            // Clamped up, with a tail of one: anything from A + 1 to A + 7, and memory lost no more than it had to.
            _ if printed.window.async_size.0 == 1 => {
                table.history(page, PageCount(480)).min(ahead + PageCount(7))
            }
            _ => printed.window.size + ahead,
        };
        // The first line and the first after the gap: what they show is where we begin.
        if reader.is_none_or(|reader| page.since(reader).0 > 100) {
            let cached = Extent::between(page.back(history), start);
            table.set(PageBit::Present, cached);
            table.set(PageBit::Mark, Extent { start: page, count: PageCount(1) });
        } else {
            // The reader came here without a miss, for there is no line of one.
            let way = Extent::between(reader.unwrap() + PageCount(1), page);
            assert_eq!(table.resident(way), way.count, "on the way to {page}");
        }
        // Lost behind the reader, in order ...
        assert!(table.history(page, PageCount(480)) >= history, "history of {page} grew");
        table.forget(Extent::between(PageIndex(0), page.back(history)));
        // ... and lost in the middle: the page that was missing.
        if table.present(start) {
            table.forget(Extent { start, count: PageCount(1) });
            lost.push(start.0);
        }
        if kind == AskKind::Mark {
            let one = Extent { start: page, count: PageCount(1) };
            assert_eq!(table.clear(PageBit::Mark, one), PageCount(1), "no mark on {page}");
        }
        let mut out = Vec::new();
        let ask = Ask { page, count: printed.request.count, kind };
        policy.decide(&table, &mut state, ask, &mut out);
        // Go on from what was printed, so that one wrong answer does not hide the next.
        state.window = printed.window;
        let submission = Submission::of(&mut table, printed.window);
        lines.push(Again { decided: out[0], actual: submission.actual, printed });
        reader = Some(page);
    }
    (lines, lost)
}

/// The posting of the seed decides all 25 lines as they were printed: window, tail, pattern, and the pages that had to
/// be read.
#[test]
fn v0_decides_every_line_of_seed_001_again() {
    let (lines, lost) = decide_again(ThrashSafe::v0());
    for Again { decided, actual, printed } in &lines {
        let line = printed.line_2010().to_string();
        assert_eq!((decided.window, decided.pattern), (printed.window, printed.pattern), "{line}");
        assert_eq!(*actual, printed.actual, "{line}");
    }
    // Four windows begin at a page lost from the middle of a run; everything else was lost behind the reader, in order.
    assert_eq!(lost, [287425, 288087, 288122, 288165]);
}

/// v3 sizes every window the same, but 13 lines would have longer tails: seed 001 ran v0.
#[test]
fn v3_does_not_fit_the_trace_of_seed_001() {
    let (lines, _) = decide_again(ThrashSafe::v3());
    let differ = |again: &&Again| again.decided.window != again.printed.window;
    let odd: Vec<&Again> = lines.iter().filter(differ).collect();
    for again in &odd {
        let (decided, printed) = (again.decided.window, again.printed.window);
        assert_eq!((decided.start, decided.size), (printed.start, printed.size));
        assert!(decided.async_size > printed.async_size);
    }
    assert_eq!(odd.len(), 13);
}

fn windows(records: &[TraceRecord]) -> Vec<(u64, u64, u64, u64)> {
    let fetched = records.iter().filter(|record| record.window.size.0 > 0);
    fetched.map(|r| (r.window.start.0, r.window.size.0, r.window.async_size.0, r.actual.0)).collect()
}

fn play(policy: &str, max: u64, end_of_file: u64) -> Play {
    Play::new(by_name(policy).unwrap(), PageIndex(end_of_file), PageCount(max))
}

/// `cp` of 84 pages, two at a time, under a ceiling of 60: six windows that every era since on-demand decides alike
/// (spec 5.8).
#[test]
fn cp_of_84_pages() {
    let expected = [
        "req=0+2 ra=0+4-2 async=0 actual=4",
        "req=2+2 ra=4+8-8 async=1 actual=8",
        "req=4+2 ra=12+16-16 async=1 actual=16",
        "req=12+2 ra=28+32-32 async=1 actual=32",
        "req=28+2 ra=60+60-60 async=1 actual=24",
        "req=60+2 ra=120+60-60 async=1 actual=0",
    ];
    for policy in ["ondemand-2.6.23", "ondemand", "context", "thrash-safe-v0", "thrash-safe", "conservative"]
    {
        let mut file = play(policy, 60, 84);
        let records: Vec<TraceRecord> =
            (0..84).step_by(2).flat_map(|page| file.read(PageIndex(page), PageCount(2))).collect();
        let lines: Vec<String> = records.iter().map(|r| r.line_2011("nfs").to_string()).collect();
        for (i, (line, expected)) in lines.iter().zip(expected).enumerate() {
            let pattern = if i == 0 { "initial" } else { "subsequent" };
            assert_eq!(*line, format!("pattern={pattern} bdi=nfs ino=0 {expected}"), "{policy}");
        }
        assert_eq!(lines.len(), 6, "{policy}");
    }
}

/// Both ladders of spec 5.13: a reader that goes down by 1 page and by 8, from 10000, under a ceiling of 1920.
#[test]
fn backwards_ladders() {
    let one = [(9996, 4), (9980, 16), (9916, 64), (9660, 256), (9148, 512), (8124, 1024), (6204, 1920)];
    let eight = [(9968, 32), (9840, 128), (9584, 256), (9072, 512), (8048, 1024), (6128, 1920)];
    for (step, ladder) in [(1, one.as_slice()), (8, &eight)] {
        let policy = ThrashSafe::v3().with_rules_of_2011();
        let mut file = Play::new(Box::new(policy), PageIndex(20_000), PageCount(1920));
        let mut down = Vec::new();
        for page in (6204..=10_000).rev().step_by(step) {
            for record in file.read(PageIndex(page), PageCount(step as u64)) {
                if record.pattern == Pattern::Backwards {
                    down.push((record.window.start.0, record.window.size.0));
                }
            }
        }
        assert_eq!(down, ladder, "{step} pages at a time");
    }
}

/// Whole-file reads of 5 to 20 pages (G32): with the snap, nothing is ever read for a window that ends short of the
/// end by less than half its length, and the file takes fewer I/Os.
#[test]
fn snap_to_the_end_saves_the_last_small_read() {
    let ios = |snap: bool, pages: u64| {
        let policy = if snap { ThrashSafe::v3().with_rules_of_2011() } else { ThrashSafe::v3() };
        let mut file = Play::new(Box::new(policy), PageIndex(pages), PageCount(32));
        (0..pages).for_each(|page| drop(file.read(PageIndex(page), PageCount(1))));
        assert_eq!(file.stats().all().actual, PageCount(pages));
        file.stats().all().io
    };
    for pages in 5..=20 {
        assert!(ios(true, pages) <= ios(false, pages), "{pages} pages");
    }
    assert_eq!((ios(false, 5), ios(true, 5)), (2, 1));
    assert_eq!((ios(false, 15), ios(true, 15)), (3, 2));
}

/// A matrix of rows of 1000 pages, by columns (T25): column 0 is exact, column 1 opens 1+4 in every row with 5+8
/// behind it.
#[test]
fn matrix_columns_of_t25() {
    let mut file = play("context", 32, 1 << 20);
    let rows = || (1..=4).map(|row| row * 1000);
    for row in rows() {
        assert_eq!(windows(&file.read(PageIndex(row), PageCount(1))), [(row, 1, 0, 1)]);
    }
    for row in rows() {
        let record = file.read(PageIndex(row + 1), PageCount(1))[0];
        let waited = Extent::between(record.window.start, record.window.mark().unwrap());
        let behind = Extent::between(record.window.mark().unwrap(), record.window.end());
        assert_eq!((waited, behind), (Extent::new(row + 1, 4), Extent::new(row + 5, 8)));
    }
    for column in 2..5 {
        for row in rows() {
            assert_eq!(windows(&file.read(PageIndex(row + column), PageCount(1))), []);
        }
    }
    for row in rows() {
        // Touching the mark: the next window is larger again, and nobody waits for it.
        assert_eq!(windows(&file.read(PageIndex(row + 5), PageCount(1))), [(row + 13, 18, 18, 18)]);
    }
}

/// The accesses at which a policy first fetches more than it is asked.
fn detects(policy: &str, pages: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut file = play(policy, 32, 1 << 20);
    pages
        .into_iter()
        .filter(|&page| {
            let records = file.read(PageIndex(page), PageCount(1));
            records.iter().any(|r| r.window.extent().contains(PageIndex(page)) && r.window.size.0 > 1)
        })
        .take(2)
        .collect()
}

/// Two streams on one file, in turn (G11): on-demand never sees them, context on the second read of each, 2013 on the
/// third.
#[test]
fn interleaved_regularly() {
    let pages = || (1..200).flat_map(|page| [page, 1000 + page]);
    for (policy, expected) in [
        ("none", &[][..]),
        ("ondemand-2.6.23", &[]),
        ("ondemand", &[]),
        ("context", &[2, 1002]),
        ("thrash-safe-v0", &[2, 1002]),
        ("thrash-safe", &[2, 1002]),
        ("conservative", &[3, 1003]),
    ] {
        assert_eq!(detects(policy, pages()), expected, "{policy}");
    }
}

/// The example of context readahead's author (G12): on-demand detects at 4 and 1005, context at 2 and 1002.
#[test]
fn interleaved_irregularly() {
    let pages = [1, 1001, 2, 1002, 3, 4, 1003, 5, 1004, 1005, 6];
    assert_eq!(detects("ondemand", pages), [4, 1005]);
    assert_eq!(detects("context", pages), [2, 1002]);
}

/// The picture of seed 004: a lost window is opened again and grows, in every era since on-demand (spec 3.5); the
/// thrash-safe ones open half of what was lost.
#[test]
fn a_lost_window_is_opened_again() {
    for (policy, size) in [
        ("ondemand-2.6.23", 4),
        ("ondemand", 4),
        ("context", 4),
        ("conservative", 4),
        ("thrash-safe-v0", 16),
        ("thrash-safe", 16),
    ] {
        let mut file = play(policy, 32, 1 << 20);
        (0..30).for_each(|page| drop(file.read(PageIndex(page), PageCount(1))));
        // All but what the reader has under its hand: the window of 28 .. 59, and the one behind it, are gone.
        file.evict(Extent::new(0, 1000));
        let record = file.read(PageIndex(30), PageCount(1))[0];
        assert_eq!((record.window.start, record.window.size), (PageIndex(30), PageCount(size)), "{policy}");
    }
}

/// Reads of 1 KiB, of 4 KiB off their pages and of 10 KiB take the windows of whole-page reads, but for the first (G3).
#[test]
fn unaligned_reads_are_sequential() {
    for policy in ["ondemand-2.6.23", "ondemand", "context", "thrash-safe", "conservative"] {
        for (bytes, first) in [(1024u64, 0u64), (4096, 1000), (10_240, 0)] {
            let mut file = play(policy, 32, 4096);
            let mut random = 0;
            for i in 0..2000 {
                let touched = Extent::covering(first + i * bytes, bytes);
                let records = file.read(touched.start, touched.count);
                random += records.iter().filter(|r| r.pattern == Pattern::Random).count();
            }
            let all = file.stats().all();
            assert_eq!(random, 0, "{policy}, {bytes} bytes");
            assert_eq!(all.stalls, 1, "{policy}, {bytes} bytes: only the first read waits");
        }
    }
}
