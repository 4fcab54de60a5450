//! What the judge has read: the patterns of spec 10 that it claims, each a list of reads at places that never change.

use super::{Access, Case, Reads};
use crate::rng::Rng;
use bowwave_core::{MapAdvice, PAGE_SIZE, Touched};

const P: u64 = PAGE_SIZE;

/// The patterns that the judge claims, for a file of `pages` pages (at least 16,384).
pub fn cases(pages: u64) -> Vec<Case> {
    let mut all = read(pages);
    all.extend(mapped(pages));
    all
}

/// Those of a mapping.
fn mapped(pages: u64) -> Vec<Case> {
    use MapAdvice::{Normal, Random, Sequential};
    use Touched::{Read, Written};
    let run = |first: u64, count: u64, step: i64| {
        let (offset, step) = (first * P, step * P as i64);
        vec![Reads { offset, len: 1, count, step }]
    };
    let mut rng = Rng::named(4, &["judge", "mapped"]);
    let mut at_random = |count: u64, range: u64| -> Vec<Reads> {
        (0..count).map(|_| Reads { offset: rng.below(range) * P, len: 1, count: 1, step: 0 }).collect()
    };
    let far = |count: u64| run(50, count, 97);
    let of = |name: &str, advice, how, touches| {
        let access = Access::Mapped(advice, how);
        Case { name: format!("{name}, mapped"), access, reads: touches }
    };
    vec![
        of("G26 in order", Normal, Read, run(0, 5000, 1)),
        of("G26 mid-file", Normal, Read, run(5003, 1500, 1)),
        of("G26 advised sequential", Sequential, Read, run(0, 3000, 1)),
        of("G26 advised sequential, mid-file", Sequential, Read, run(5003, 3000, 1)),
        of("G26 advised random", Random, Read, run(0, 300, 1)),
        of("G26 written", Normal, Written, run(0, 3000, 1)),
        of("G19 stride 3", Normal, Read, run(2000, 400, 3)),
        of("G19 stride 40", Normal, Read, run(2000, 300, 40)),
        of("G20 reverse", Normal, Read, run(8000, 400, -1)),
        of("G22 random", Normal, Read, at_random(200, pages)),
        of("G22 random, written", Normal, Written, at_random(400, pages)),
        of("G23 dense random", Normal, Read, at_random(600, 2000)),
        of("G27 far apart", Normal, Read, far(160)),
        of("G27 far apart, written: gives up", Normal, Written, far(160)),
        of(
            "G27 far apart, then in order, written: takes up again",
            Normal,
            Written,
            [run(9000, 200, 1), far(90), run(9200, 400, 1), run(50, 60, 151)].concat(),
        ),
        of("end of the file", Normal, Read, run(pages - 100, 100, 1)),
    ]
}

/// Those of reads.
fn read(pages: u64) -> Vec<Case> {
    let run = |first: u64, len: u64, count: u64, step: i64| Reads { offset: first, len, count, step };
    let one = |name: &str, reads: Reads| Case { name: name.into(), access: Access::Read, reads: vec![reads] };
    let each = |name: &str, reads: Vec<(u64, u64)>| Case {
        name: name.into(),
        access: Access::Read,
        reads: reads.into_iter().map(|(page, n)| run(page * P, n * P, 1, 0)).collect(),
    };
    let p = P as i64;
    let mut rng = Rng::named(4, &["judge"]);
    let mut random = |n: usize, len: u64, range: u64| -> Vec<(u64, u64)> {
        (0..n).map(|_| (rng.below(range / len) * len, len)).collect()
    };
    let mut mixed = Vec::new();
    for i in 0..200 {
        mixed.push((4096 + i * 2, 2));
        if i % 5 == 4 {
            mixed.extend(random(1, 2, pages));
        }
    }
    let irregular = [1, 1001, 2, 1002, 3, 4, 1003, 5, 1004, 1005, 6, 7, 8, 1006, 1007, 9, 10, 11];
    vec![
        one("G1 seq-1", run(0, P, 5000, p)),
        one("G2 seq-4", run(0, 4 * P, 1500, 4 * p)),
        one("G2 seq-32", run(0, 32 * P, 300, 32 * p)),
        one("G3 unaligned 1 KiB", run(0, 1024, 3000, 1024)),
        one("G3 unaligned 10 KiB", run(512, 10_240, 600, 10_240)),
        one("G5 large reads", run(0, 3000 * P, 3, 3000 * p)),
        one("G7 mid-file", run(5000 * P, P, 1500, p)),
        one("G7 mid-file by 16", run(3001 * P, 16 * P, 200, 16 * p)),
        each("G11 two streams of 1", (0..400).flat_map(|i| [(768 + i, 1), (9000 + i, 1)]).collect()),
        each("G11 two streams of 4", (0..300).flat_map(|i| [(768 + i * 4, 4), (8192 + i * 4, 4)]).collect()),
        each(
            "G11 eight streams of 4",
            (0..60).flat_map(|i| (0..8).map(move |s| (s * 2000 + 100 + i * 4, 4))).collect(),
        ),
        each("G12 irregular", irregular.into_iter().map(|page| (page, 1)).collect()),
        each("G13 sequential and random", mixed),
        each(
            "G14 columns of a matrix",
            (0..40).flat_map(|c| (0..16).map(move |r| (r * 1000 + c, 1))).collect(),
        ),
        each("G17 sparse 2 of 4", (0..400).map(|i| (3000 + i * 4, 2)).collect()),
        one("G19 stride 2", run(0, P, 300, 2 * p)),
        one("G19 stride 10", run(2000 * P, P, 200, 10 * p)),
        one("G20 reverse by 1", run(8000 * P, P, 400, -p)),
        one("G20 reverse by 8", run(8000 * P, 8 * P, 200, -8 * p)),
        each("G21 clustered random", random(400, 4, 1200)),
        each("G22 random", random(300, 1, pages)),
        each("G23 dense random", random(1000, 1, 2000)),
        each(
            "G25 seek, then a run",
            (0..12).flat_map(|r| (0..30).map(move |i| (500 + r * 1300 + i, 1))).collect(),
        ),
        one("end of the file", run((pages - 100) * P, P, 100, p)),
    ]
}
