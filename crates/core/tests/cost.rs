//! What one input costs does not grow with the streams that are alive, beyond the depth of an ordered map.
//!
//! Times are the example's to show (`cargo run --release -p bowwave-core --example cost`); what is counted here repeats
//! exactly: allocations a touch, and bytes a stream. One test, since the counter counts the whole process.

#[path = "../examples/cost/herd.rs"]
mod herd;

use herd::{Herd, Touch, allocations, bytes_a_page, bytes_alive};

/// Touches that a figure is the mean of.
const TOUCHES: u64 = 100;
/// Bytes that a stream may cost, with the leaf of pages that it has read and its share of vectors that double: today 1,025 of 1,000 streams.
const STREAM_BYTES_MAX: u64 = 1_100;
/// Bytes that a cached page may cost: five bits and its share of the leaf's place, today 0.64; alone in its leaf, 41.
const PAGE_BYTES_MAX: (f64, f64) = (1.0, 64.0);

fn allocations_a_touch(streams: u64, touch: Touch) -> f64 {
    let mut herd = Herd::new(streams);
    let places = herd.prepare(touch, TOUCHES);
    let before = allocations();
    let fetches: u64 = places.iter().map(|&place| herd.touch(place)).sum();
    assert!(fetches <= 16 * TOUCHES, "a touch sends few requests");
    (allocations() - before) as f64 / places.len() as f64
}

#[test]
fn a_touch_costs_the_same_among_many_streams() {
    for touch in [Touch::Mark, Touch::Miss, Touch::Stray] {
        let few = allocations_a_touch(1_000, touch);
        for streams in [10_000, 100_000u64] {
            let many = allocations_a_touch(streams, touch);
            // One allocation more for each tenfold: the arrays that grow with the streams double now and then.
            let allowed = few + (streams / 1_000).ilog10() as f64 + 1.0;
            assert!(many <= allowed, "{touch:?}: {few:.1} allocations among 1000, {many:.1} among {streams}");
        }
    }
    for streams in [1_000, 100_000] {
        let before = bytes_alive();
        let herd = Herd::new(streams);
        let bytes = (bytes_alive() - before) / herd.streams();
        assert!(herd.streams() >= streams, "{} of {streams} streams are alive", herd.streams());
        assert!(bytes <= STREAM_BYTES_MAX, "{bytes} bytes a stream among {streams}");
    }
    let (dense, scattered) = bytes_a_page();
    let within = dense <= PAGE_BYTES_MAX.0 && scattered <= PAGE_BYTES_MAX.1;
    assert!(within, "{dense} bytes a cached page, {scattered} where it is alone");
}
