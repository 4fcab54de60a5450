//! Patches 1, 2, 4 and 5 of seed 003, which save processor time: the same savings in our own code, counted in instructions.
//!
//! Nothing is counted here. `patches.txt` was written by the example of that name, which runs itself under callgrind:
//!
//! ```text
//! cargo run --release -p bowwave-lab --example patches > crates/lab/src/tables/patches.txt
//!
//! row            each  instructions  reads  writes  lines
//! dirty.kept-2  10000        435338  ...                    43.5 instructions for each of 10,000 pages written
//! ```
//!
//! Counts repeat exactly for the same compiler and core; another compiler's differ by a few in a hundred, which no statement
//! here rests on.

use super::{Entry, Table, Verdict};

/// What the example wrote.
const COUNTED: &str = include_str!("patches.txt");

/// One row of it, for each decision, hit or page.
struct Row {
    instructions: f64,
    accesses: f64,
    lines: f64,
}

/// The row of that name.
///
/// # Panics
/// If the file has no such row: it was written by another example than this one's.
fn row(name: &str) -> Row {
    let mut rows = COUNTED.lines().skip(1).map(|line| line.split_whitespace());
    let mut found = rows.find_map(|mut words| (words.next() == Some(name)).then_some(words)).expect(name);
    let mut next = || found.next().and_then(|word| word.parse::<f64>().ok()).expect("five numbers a row");
    let (each, instructions, reads, writes, lines) = (next(), next(), next(), next(), next());
    Row { instructions: instructions / each, accesses: (reads + writes) / each, lines: lines / each }
}

const MODEL: &str = "our own code under callgrind, counted by `cargo run --release -p bowwave-lab --example patches` and kept in \
                     crates/lab/src/tables/patches.txt; nothing is free";

pub(super) fn p1(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        format!(
            "1,000 files that wave is told of, 16 reads each; nobody listens, somebody takes each record, somebody writes it as a line. {MODEL}"
        ),
    );
    let (unheard, taken, line) = (row("trace.unheard"), row("trace.taken"), row("trace.line"));
    let record = taken.instructions - unheard.instructions;
    let text = line.instructions - taken.instructions;
    let unit = "instructions a window";
    table.figure("16 reads, nobody listens", unit, None, "wave", None, unheard.instructions);
    table.figure("more if the record is taken", unit, None, "wave", None, record);
    table.figure("more if it is written as a line", unit, None, "wave", None, text);
    table.order(
        format!(
            "a line costs {text:.0} instructions, and nobody pays them who does not listen ({:.1} % of a window)",
            text * 100.0 / line.instructions
        ),
        text > 10.0 * record.abs(),
    );
    table.settled(
        Verdict::NoFigure,
        "the patch is known by its title and diffstat alone, and no figure of it was published. Here words are made where they are \
         read: a decision keeps numbers and a static reason. The record itself (and how many streams are active) is kept whether or \
         not somebody listens, and cannot be counted apart: the compiler has it inside the decision",
    )
}

pub(super) fn p2(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        format!(
            "hits of cached pages, 65,536 of them: one behind the other, and each far from the last; a first-level cache of 32 KiB. {MODEL}"
        ),
    );
    let (near, far) = (row("hit.in-order"), row("hit.spread"));
    for (name, hit) in [("in order", &near), ("far apart", &far)] {
        let mut say = |what: &str, x: f64| {
            table.figure(format!("a hit, {name}: {what}"), "a hit", None, "the core's cache", x, None);
        };
        say("instructions", hit.instructions);
        say("reads and writes of memory", hit.accesses);
        say("lines of 64 bytes fetched", hit.lines);
        say("bytes of them", hit.lines * 64.0);
    }
    table.order(
        format!("pages that are read together lie together: {:.1} lines for {:.1}", near.lines, far.lines),
        near.lines * 4.0 < far.lines,
    );
    table.settled(
        Verdict::NoFigure,
        "the patch is known by its diffstat alone (mmzone.h, 210 lines), and no figure of it was published. A hit of a page far \
         from the last one fetches the leaf that maps it, the words of its five bits, its frame, and the two neighbours in its list",
    )
}

pub(super) fn p4(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        format!(
            "10,000 pages submitted one at a time to a cache with room: one shard, two and sixteen that are filled fairly by credits, the same by hash. {MODEL}"
        ),
    );
    table.figure("system time of tiobench, before", "s", 395.23, "", None, None);
    table.figure("system time of tiobench, after", "s", 391.50, "", None, None);
    let one = row("place.one-shard").instructions;
    let mut shares = Vec::new();
    for (name, key) in [
        ("two shards, credits", "place.fair"),
        ("two shards, by hash", "place.hashed"),
        ("16 shards, credits", "place.fair-16"),
        ("16 shards, by hash", "place.hashed-16"),
    ] {
        let more = row(key).instructions - one;
        table.figure(
            format!("more than one shard: {name}"),
            "instructions a page",
            None,
            "the core's cache",
            more,
            None,
        );
        shares.push(more * 100.0 / one);
    }
    table.figure("one shard", "instructions a page", None, "the core's cache", one, None);
    table.order(
        format!("fair placement is a small part of taking a frame: {:.1} % with two shards", shares[0]),
        (0.0..5.0).contains(&shares[0]),
    );
    table.order(format!("and grows with the shards: {:.1} % with sixteen", shares[2]), shares[2] > shares[0]);
    table.judged(
        "0.9 % of a benchmark's system time was saved; what that system did beside is not published, so no figure of ours can stand \
         beside it. A hash costs more than credits here, and needs no counter",
    )
}

pub(super) fn p5(entry: &Entry) -> Table {
    let mut table = Table::new(
        entry,
        format!(
            "a writer asks at each of 10,000 pages whether too much is dirty: by the limits that the shards keep (spec 7.1.5), or by looking at every count. {MODEL}"
        ),
    );
    table.figure("system time of tiobench, before", "s", 391.50, "", None, None);
    table.figure("system time of tiobench, after", "s", 388.64, "", None, None);
    let mut saved = Vec::new();
    for shards in [2, 16] {
        let reckoned = row(&format!("dirty.reckoned-{shards}")).instructions;
        let kept = row(&format!("dirty.kept-{shards}")).instructions;
        for (name, x) in [("looked at", reckoned), ("kept", kept)] {
            table.figure(
                format!("{shards} shards, limits {name}"),
                "instructions a page",
                None,
                "the core's cache",
                x,
                None,
            );
        }
        saved.push(reckoned - kept);
    }
    table.order(
        format!("two shards, as the kernel has two zones: {:.0} instructions a page saved", saved[0]),
        saved[0] > 0.0,
    );
    table.judged(format!(
        "0.7 % of a benchmark's system time was saved; what that system did beside is not published. With sixteen shards the kept \
         limits cost {:.0} instructions a page more: each shard's is looked at, where a sum over all is one addition a shard",
        -saved[1]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 435,338 instructions for 10,000 pages: the worked example above.
    #[test]
    fn a_row_is_for_each() {
        let dirty = row("dirty.kept-2");
        assert!((dirty.instructions - 43.5338).abs() < 1e-9, "{}", dirty.instructions);
        assert!((dirty.accesses - 17.0628).abs() < 1e-9, "{}", dirty.accesses);
    }
}
