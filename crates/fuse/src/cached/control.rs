//! The files in `.bowwave/`: what a mount tells of itself. They are found by name and not listed, and read past the page cache.
//!
//! ```text
//!   .bowwave/stat      the table for people: bowwave stat DIR prints it
//!   .bowwave/stats     the same as JSON
//!   .bowwave/explain   the latest decisions, as bowwave explain reads them
//!   .bowwave/files, model, reset     with a modelled device only: as in a slow store
//! ```

use bowwave::{Cache, CacheStats, Explained, PatternStats};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::Arc;

/// A file that tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    Stat,
    Stats,
    Explain,
    Files,
    Model,
    Reset,
}

/// The folder of the control files, and its number.
pub(crate) const FOLDER: &str = ".bowwave";
pub(crate) const FOLDER_INO: u64 = 2;

impl Control {
    const ALL: [(&'static str, Self); 6] = [
        ("stat", Self::Stat),
        ("stats", Self::Stats),
        ("explain", Self::Explain),
        ("files", Self::Files),
        ("model", Self::Model),
        ("reset", Self::Reset),
    ];

    /// The file of a name; those of a modelled device only where there is one.
    pub(crate) fn named(name: &std::ffi::OsStr, modelled: bool) -> Option<Self> {
        let (_, control) = Self::ALL.into_iter().find(|(known, _)| name == *known)?;
        (modelled || !matches!(control, Self::Files | Self::Model | Self::Reset)).then_some(control)
    }

    pub(crate) fn ino(self) -> u64 {
        FOLDER_INO + 1 + self as u64
    }

    pub(crate) fn of(ino: u64) -> Option<Self> {
        Self::ALL.into_iter().map(|(_, control)| control).find(|control| control.ino() == ino)
    }
}

/// What the mount counts beside its cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    pub(crate) reads: u64,
    pub(crate) bytes: u64,
    pub(crate) pushed: u64,
    pub(crate) errors: u64,
    pub(crate) open: u64,
}

/// The figures of a mount as name and number, in the order in which they are shown. The one list of table, JSON and metrics.
pub(crate) fn figures(served: Served, stats: &CacheStats) -> Vec<(&'static str, &'static str, u64)> {
    let c = &stats.counters;
    vec![
        ("reads", "reads that the kernel asked for", served.reads),
        ("read_bytes", "bytes that it got so", served.bytes),
        ("pushed_bytes", "bytes put into its cache before it asked", served.pushed),
        ("read_errors", "reads that failed", served.errors),
        ("open_files", "files that programs have open", served.open),
        ("told", "reads that were not all there, and so were told", c.reads),
        ("stalls", "reads that waited", c.stalls),
        ("stalled_us", "microseconds that they waited", c.stalled_ns / 1000),
        ("fetch_requests", "requests to the source", stats.requests),
        ("fetched_bytes", "bytes that came from it", stats.fetched_bytes),
        ("fetches_failed", "fetches that failed", c.fetches_failed),
        ("pages_used", "different pages read", c.pages_used),
        ("pages_ahead", "pages fetched ahead of their reader", c.pages_ahead),
        ("pages_useful", "of those, pages read later", c.pages_useful),
        ("pages_late", "of those, pages whose reader came while they were under way", c.pages_late),
        ("windows", "windows decided", c.windows),
        ("windows_thrashed", "windows that lost a page before its read", c.windows_thrashed),
        ("streams_found", "streams of two reads or more", c.streams),
        ("streams", "streams that are followed now", stats.streams as u64),
        ("files", "files in the cache", stats.files as u64),
        ("memory_bytes_max", "the ceiling of memory", stats.memory_bytes_max),
        ("memory_bytes", "of it in use", stats.memory_bytes),
        ("metadata_bytes", "of that, what is around the pages", stats.metadata_bytes),
        ("in_flight_bytes", "of that, pages under way", stats.in_flight_bytes),
    ]
}

/// The table for people.
pub(crate) fn table(source: &str, served: Served, cache: &Cache) -> String {
    let stats = cache.stats();
    let mut text = format!("{source}\n");
    for (name, what, value) in figures(served, &stats) {
        // A string takes whatever is written to it.
        let _ = writeln!(text, "{name:<18} {value:>16}  {what}");
    }
    let _ = writeln!(
        text,
        "\npattern      readahead       size async_size  windows decided; their mean pages, and of those nobody waited for"
    );
    for row in cache.patterns() {
        let (size, async_size) = (row.pages / row.windows.max(1), row.pages_async / row.windows.max(1));
        let _ = writeln!(text, "{:<12} {:>9} {size:>10} {async_size:>10}", row.pattern.name(), row.windows);
    }
    text
}

/// The same for programs.
pub(crate) fn json(source: &str, served: Served, cache: &Cache) -> String {
    let figures = figures(served, &cache.stats());
    let mut object: serde_json::Map<String, serde_json::Value> =
        figures.into_iter().map(|(name, _, value)| (name.to_owned(), value.into())).collect();
    object.insert("source".into(), source.into());
    let row = |row: PatternStats| {
        let PatternStats { pattern, windows, pages, pages_async } = row;
        let row = serde_json::json!({"windows": windows, "pages": pages, "pages_async": pages_async});
        (pattern.name().to_owned(), row)
    };
    object.insert(
        "patterns".into(),
        serde_json::Value::Object(cache.patterns().into_iter().map(row).collect()),
    );
    format!("{:#}\n", serde_json::Value::Object(object))
}

/// A decision, with the name of its file where that is still open.
type Told = (Option<Arc<str>>, Explained);

/// The latest decisions, in the words of a file of decisions (`bowwave run --explain`).
pub(crate) fn explain(decisions: &[Told], lens: &HashMap<Arc<str>, u64>) -> String {
    let mut text = String::from("# bowwave explain 1\n");
    let mut named = BTreeMap::new();
    for (name, explained) in decisions {
        let file = explained.file.0;
        if let Some(name) = name
            && named.insert(file, name).is_none()
        {
            let len = lens.get(name).copied().unwrap_or(0);
            let _ = writeln!(text, "# f{file} = {len} bytes, device 0:0, {name}");
        }
        let window = explained.decision.window;
        let us = explained.at.0 / 1000;
        let mark = window.mark().map_or_else(|| "-".into(), |page| page.0.to_string());
        let _ = writeln!(
            text,
            "{:>8}.{:03}ms f{file} read [{},+{}) {} [{},{}) ahead={} mark={mark} streams={} why={}",
            us / 1000,
            us % 1000,
            explained.read.start.0,
            explained.read.count.0,
            explained.decision.pattern.name(),
            window.start.0,
            window.end().0,
            window.async_size.0,
            explained.streams,
            explained.decision.why.0
        );
    }
    text
}
