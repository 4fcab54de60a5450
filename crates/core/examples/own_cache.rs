//! The core alone, for whoever keeps a cache of their own: inputs go in, fetches come out. Time is an argument.
//!
//! `cargo run -p bowwave-core --example own_cache`; the same in C is `crates/c/examples/own_cache.c`.

use bowwave_core::{Action, Bytes, Config, Extent, FileId, Input, Nanos, PageIndex, Wave};
use std::io::{Result, Write, stdout};

#[allow(dead_code, reason = "the test that compares this with C calls `drive` itself")]
fn main() -> Result<()> {
    drive(&mut stdout())
}

/// Drives a brain through six reads in order, and prints what it wants fetched.
pub(crate) fn drive(out: &mut impl Write) -> Result<()> {
    let mut wave = Wave::new(Config::default());
    let (file, device) = (FileId(1), 7);
    wave.handle(Nanos(0), Input::Open { file, device, size: Bytes(64 << 20) });
    let mut now = Nanos(0);
    for read in 0..6 {
        // Before a read that misses, or meets a mark (Wave::leaf says which pages are quiet), the brain is told.
        let pages = Extent::new(read * 8, 8);
        let missing = (pages.start.0..pages.end().0).any(|page| !wave.resident(file, PageIndex(page)));
        wave.handle(now, Input::Read { file, pages, actor: 1 });
        // The reader brings the first 128 KiB that he misses himself; here that takes 30 ms. What he waited is told.
        if missing {
            now += Nanos::from_ms(30);
            wave.handle(now, Input::Waited { file, pages, actor: 1, took: Nanos::from_ms(30), ended: now });
        }
        // What is to be fetched now: send it, and tell of its arrival. A cache that evicts tells Input::Dropped.
        while let Some(Action::Fetch { id, pages, why, .. }) = wave.poll(now) {
            writeln!(out, "read {read}: fetch {pages}, {why}")?;
            now += Nanos::from_ms(30);
            wave.handle(now, Input::Arrived { fetch: id });
        }
    }
    let c = wave.counters();
    let (ahead, useful) = (c.pages_ahead, c.pages_useful);
    writeln!(
        out,
        "{} reads, {} waited; {ahead} pages fetched ahead, {useful} of them read",
        c.reads, c.stalls
    )
}
