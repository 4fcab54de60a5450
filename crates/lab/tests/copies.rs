//! Tensors copied out of a mapped file: a program that copies memory touches its first page, then its last, and goes up or down from there, as the
//! lowest bits of its addresses are. Who goes down must not wait for each page.
//!
//! ```text
//! hdd, 16 of 64 tensors of 257 pages    first, last, last - 1 ... first + 1      0.47 s; each page a way 33 s
//! ```
//!
//! Until 2026-11-29 a look that was believed brought no more than is enough ahead of who goes from run to run, and each touch on the way down from
//! there passed for the same look: 16.9 s. `scripts/algorithms.py DIR copies` has 48 such programs.

use bowwave_core::{Bytes, Config, PageCount};
use bowwave_lab::{DeviceModel, Fetcher, Knowledge, play_knowing, trace_of};

const PAGE: u64 = 4096;
const TENSOR: u64 = 257;

/// Each fourth tensor of a file of so many, the ends of which lie in one page with the next one's begin.
fn touches(tensors: u64, down: bool) -> impl Iterator<Item = (String, u64, u64)> {
    (0..tensors).step_by(4).flat_map(move |i| {
        let (first, last) = (1 + i * (TENSOR - 1), 1 + i * (TENSOR - 1) + TENSOR - 1);
        let between = (first + 1..last).map(move |page| if down { first + last - page } else { page });
        let ends = if down { vec![first, last] } else { vec![first, last, last - 1] };
        ends.into_iter().chain(between).map(|page| ("tensors".to_owned(), page * PAGE, PAGE))
    })
}

#[test]
fn whoever_copies_memory_does_not_wait_for_each_page() {
    let config = Config { memory: Bytes(6 << 30), request_max: PageCount(256), ..Config::default() };
    for (device, model) in DeviceModel::NAMED {
        for down in [false, true] {
            let plan = trace_of(touches(64, down)).expect("a trace").plan;
            let took = |fetcher| play_knowing(&plan, &model, fetcher, Knowledge::Event, false).elapsed.0;
            let (ours, carried) = (took(Fetcher::Wave(config)), plan.ops.len() as u64 * PAGE);
            // What it carries in one go, and three latencies a tensor: its first page, its last, and what lies between. Half as much again will do.
            let enough = carried * 1_000_000_000 / model.bytes_per_s + 3 * 16 * model.latency_ns;
            println!(
                "{device:>4} {} {:.3} s of {:.3}",
                if down { "down" } else { "up" },
                ours as f64 / 1e9,
                enough as f64 / 1e9
            );
            assert!(2 * ours <= 3 * enough, "{device}: {ours} ns");
        }
    }
}
