//! R11: whether reads fall thicker in a region than chance would bring them there.
//!
//! Of reads spread evenly over a file some regions have more than others. By Chernoff's bound any of them has so many with a chance of
//! `regions * 2^-bits`, where `bits = count * log2(count / even) - (count - even) / ln 2` and `even` is what each would have. Once in 16,384 files is
//! rare enough:
//!
//! ```text
//! a file of 1 GiB, regions of 1 MiB: 1024 of them
//!   reads of the file            4     100   1,000   10,000   100,000
//!   of which one would have      -     0.1       1       10        98
//!   and gather where it has      3       6      12       40       196
//! ```
//!
//! It is reckoned in quarters of a bit, rounded against what gathers.

/// Even reading would gather as many in any region of the file once in two to this power files.
const CHANCE_BITS: u64 = 14;

/// Whether `count` of `reads` reads in one region of `pages` pages are more than even reading of `end_of_file` pages would bring to any such region.
pub(in crate::wave) fn gathers(count: u64, reads: u64, pages: u64, end_of_file: u64) -> bool {
    let regions = end_of_file.div_ceil(pages.max(1)).max(1);
    let even_256 =
        (u128::from(256 * reads) * u128::from(pages) / u128::from(end_of_file.max(1))).max(1) as u64;
    let ratio_256 = (count << 16) / even_256;
    if ratio_256 <= 256 {
        return false;
    }
    // Quarters of a bit, rounded down; 6/4 is more than 1 / ln 2.
    let quarters = u64::from(u128::from(ratio_256.min(1 << 30)).pow(4).ilog2()) - 32;
    let even = even_256 / 256;
    count * quarters >= 6 * (count - even) + 4 * (CHANCE_BITS + u64::from(regions.ilog2()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture: reads of a region of 1 MiB that gather, of so many of a file of 1 GiB.
    #[test]
    fn the_more_is_read_the_more_must_lie_together() {
        let least = |reads: u64| (1..).find(|&count| gathers(count, reads, 256, 262_144)).unwrap();
        assert_eq!([4, 100, 1_000, 10_000, 100_000].map(least), [3, 6, 12, 40, 196]);
    }
}
