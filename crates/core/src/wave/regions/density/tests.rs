//! R11, as density.rs tells it.

use super::*;
use crate::units::PageCount;
use crate::wave::regions::worn::WORN;

const FREELY: Terms = Terms {
    wait_ns: 0,
    end_of_file: 0,
    gaps_are_cheap: true,
    overlaps: Some(true),
    rate_is_known: true,
    most: u64::MAX,
    alone: false,
};

impl Density {
    /// A read that waits so long in a file of so many pages, on these terms otherwise.
    fn reads(
        &mut self,
        pages: Extent,
        wait_ns: u64,
        end_of_file: u64,
        terms: Terms,
        price: impl Fn(Extent) -> (u64, u64),
    ) -> Option<(Extent, &'static str)> {
        self.read(pages, Terms { wait_ns, end_of_file, ..terms }, price)
    }
}

/// 8 ms and 100 MB/s, as in the picture.
fn hdd(region: Extent) -> (u64, u64) {
    (region.count.0, 8_000_000 + region.count.bytes().0 * 10)
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
}

#[test]
fn a_cluster_is_bought_once_it_has_paid() {
    let mut density = Density::default();
    let end = 1 << 22;
    let mut bought = alloc::vec::Vec::new();
    for (i, block) in [3u64, 90, 41, 77, 120, 60, 10, 100].into_iter().enumerate() {
        let pages = Extent::new(256 * 1000 + 2 * block, 2);
        bought.extend(density.reads(pages, 8_000_000, end, FREELY, hdd).map(|b| (i + 1, b.0)));
    }
    assert_eq!(bought, [(4, Extent::new(256_000, 256))]);
}

#[test]
fn what_is_thick_in_one_half_is_bought_in_that_half() {
    let mut density = Density::default();
    let (end, mut seed, mut bought) = (1 << 22, 7, alloc::vec::Vec::new());
    for _ in 0..200 {
        // Blocks of 8 KiB in the lower half of a region of 4 MiB.
        let pages = Extent::new(1_024_000 + random(&mut seed) % 256 * 2, 2);
        bought.extend(density.reads(pages, 8_000_000, end, FREELY, hdd).map(|b| b.0));
    }
    let largest = bought.iter().map(|region| region.count.0).max();
    assert_eq!(largest, Some(256), "{bought:?}");
    assert!(bought.iter().all(|region| region.end() <= PageIndex(1_024_512)), "{bought:?}");
}

/// s3: 30 ms, 1 GB/s.
fn bucket(region: Extent) -> (u64, u64) {
    (region.count.0, 30_000_000 + region.count.bytes().0)
}

#[test]
fn the_thick_part_of_a_large_file_is_bought_after_some_ten_reads() {
    let (mut density, mut seed) = (Density::default(), 7);
    let numbers = |region: Extent| region.start.0..region.end().0;
    let mut held = alloc::collections::BTreeSet::new();
    let reads = (1..).find(|_| {
        // Blocks of 16 KiB of 64 MiB in 16 GiB.
        let pages = Extent::new((1 << 18) + random(&mut seed) % 4096 * 4, 4);
        let missing = |region: Extent| numbers(region).filter(|page| !held.contains(page)).count() as u64;
        let price = |region| (missing(region), 30_000_000 + missing(region) * 4096);
        let bought = density.reads(pages, 30_000_000, 1 << 22, FREELY, price);
        held.extend(bought.into_iter().flat_map(|(region, _)| numbers(region)));
        held.len() == 16_384
    });
    assert!(reads.is_some_and(|reads| (4..16).contains(&reads)), "{reads:?}");
}

/// The example of the guess at the top.
#[test]
fn a_part_is_bought_to_learn_the_price() {
    let (mut density, mut seed) = (Density::default(), 7);
    let mut bought = alloc::vec::Vec::new();
    for read in 1..=7 {
        let rate_is_known = read > 6;
        let bytes_per_us = if rate_is_known { 1000 } else { 100 };
        let here = if rate_is_known { PART } else { 0 };
        let price = |region: Extent| {
            let missing = PageCount(region.count.0.saturating_sub(here));
            (missing.0, 30_000_000 + missing.bytes().0 * 1000 / bytes_per_us)
        };
        let pages = Extent::new((1 << 18) + random(&mut seed) % 4096 * 4, 4);
        let terms = Terms { rate_is_known, ..FREELY };
        let region = density.reads(pages, 30_000_000, 1 << 22, terms, price);
        bought.extend(region.map(|(region, _)| (read, region.count.0)));
    }
    assert_eq!(bought, [(4, 1024), (7, 16_384)]);
}

#[test]
fn clusters_that_turned_out_thin_are_bought_no_more() {
    let mut density = Density::default();
    let (end, mut seed, mut bought) = (1 << 22, 7, alloc::vec::Vec::new());
    for cluster in 0..256 {
        // Sixteen pages of 16 MiB.
        let start = random(&mut seed) % (end / 4096) * 4096;
        for _ in 0..16 {
            let pages = Extent::new(start + random(&mut seed) % 4096, 1);
            bought.extend(density.reads(pages, 30_000_000, end, FREELY, bucket).map(|_| cluster));
        }
    }
    let late = bought.iter().filter(|&&cluster| cluster >= 16).count();
    assert!(bought.len() > late && late <= 2, "{bought:?}");
}

/// The last picture: clusters of 256 pages, of each three quarters read in random order, and then one read in each of 60 places. Where nothing bounds
/// it 60 regions of 256 pages are bought for those.
#[test]
fn who_goes_on_elsewhere_at_random_buys_few_regions_for_what_filled() {
    let (mut density, mut seed) = (Density::default(), 7);
    let end = 1 << 22;
    let mut at_once = |cluster: u64, blocks: u64| {
        let mut bought = 0;
        for _ in 0..blocks {
            let page = cluster * 256 + random(&mut seed) % 64 * 4;
            if density.was_bought(PageIndex(page)) {
                density.served(PageIndex(page), 4);
            } else if let Some((region, why)) =
                density.reads(Extent::new(page, 4), 8_000_000, end, FREELY, hdd)
            {
                bought += if why == "R11 regions like this filled" { region.count.0 } else { 0 };
            }
        }
        bought
    };
    let clusters: u64 = (0..40).map(|n| at_once(100 * n, 48)).sum();
    assert!(clusters > 20 * 256, "{clusters}");
    let elsewhere: u64 = (0..60).map(|n| at_once(5000 + 97 * n, 1)).sum();
    assert_eq!(elsewhere, 6 * 256);
}

#[test]
fn a_cluster_across_the_grid_is_bought_at_two_places_and_not_at_five() {
    let (mut density, mut seed) = (Density::default(), 7);
    let (mut waits, mut read, mut bought) = (0, 0, 0);
    for cluster in 0..200 {
        // Half of the 72 blocks of 16 KiB in 288 pages, each once, in random order.
        let start = random(&mut seed) % (1 << 20) * 4;
        let mut blocks: alloc::vec::Vec<u64> = (0..72).collect();
        (1..72).rev().for_each(|i| blocks.swap(i, (random(&mut seed) % (i as u64 + 1)) as usize));
        let mut held: alloc::vec::Vec<Extent> = alloc::vec::Vec::new();
        for block in blocks.into_iter().take(36) {
            let pages = Extent::new(start + 4 * block, 4);
            let settled = cluster >= 16;
            read += if settled { 4 } else { 0 };
            if held.iter().any(|region| region.contains(pages.start)) {
                density.served(pages.start, 4);
                continue;
            }
            let region = density.reads(pages, 30_000_000, 1 << 23, FREELY, bucket).map(|b| b.0);
            waits += u64::from(settled);
            bought += region.filter(|_| settled).map_or(4, |region| region.count.0);
            held.extend(region);
        }
    }
    // Five regions of 64 pages would be five waits and more.
    assert!(waits <= 184 * 11 / 4, "{waits} waits for 184 clusters");
    assert!(4 * bought <= 13 * read, "{bought} pages for {read}");
}

#[test]
fn a_small_file_far_away_is_bought_once_it_is_worn() {
    // Random pages of 80 MB: on s3, by one connection, it is; on nfs (1 ms, 250 MB/s) its price is 330 waits.
    let s3 = |region: Extent| (region.count.0, 30_000_000 + region.count.0 * 40_960);
    let nfs = |region: Extent| (region.count.0, 1_000_000 + region.count.0 * 16_384);
    let end = 20_000;
    let bought_by = |wait_ns, most, overlaps, price: &dyn Fn(Extent) -> (u64, u64)| {
        let (mut density, mut seed) = (Density::default(), 7);
        let mut bought = alloc::vec::Vec::new();
        for read in 0..300 {
            let page = Extent::new(random(&mut seed) % end, 1);
            bought.extend(
                density
                    .reads(page, wait_ns, end, Terms { most, overlaps, ..FREELY }, price)
                    .map(|b| (read, b.0.count.0)),
            );
        }
        bought
    };
    let far = Some(true);
    assert_eq!(bought_by(30_000_000, end, far, &s3), [(39, 20_000)], "with the fortieth read");
    assert_eq!(bought_by(1_000_000, end, far, &nfs), []);
    // Nor where memory does not hold it. By a head as well, whose holes are 40 ways by then.
    assert_eq!(bought_by(30_000_000, end / 5, far, &s3), []);
    assert_eq!(bought_by(60_000_000, end, Some(false), &s3), [(39, 20_000)]);
    let to_know = bought_by(30_000_000, end, None, &s3);
    assert!(to_know.len() > 8 && to_know.iter().all(|b| b.1 <= 64), "{to_know:?}");
    // And sooner if it is worn sooner: some waits are at stake.
    let hdd = |region: Extent| (region.count.0, 8_000_000 + region.count.0 * 40_960);
    let mut small = Density::default();
    let on_a_head = Terms { overlaps: Some(false), ..FREELY };
    let bought = (0..32).find_map(|read| {
        Some((read, small.reads(Extent::new(read * 1201 % 4000, 1), 8_000_000, 4000, on_a_head, hdd)?))
    });
    assert_eq!(bought, Some((15, (Extent::new(0, 4000), "R11 a file read all over"))));
}

/// A file that somebody cut to nothing, while who had worn it reads on where it was: nothing is left to buy (found by the swarm, seed 1795796129668088).
#[test]
fn of_a_file_that_is_empty_now_nothing_is_bought() {
    let s3 = |region: Extent| (region.count.0, 30_000_000 + region.count.0 * 40_960);
    for overlaps in [Some(true), None] {
        let (mut density, mut seed) = (Density::default(), 7);
        let terms = Terms { overlaps, ..FREELY };
        for _ in 0..30 {
            density.reads(Extent::new(random(&mut seed) % 20_000, 1), 30_000_000, 20_000, terms, s3);
        }
        let bought: alloc::vec::Vec<_> = (0..30)
            .filter_map(|page| density.reads(Extent::new(64 * page, 1), 30_000_000, 0, terms, s3))
            .collect();
        assert_eq!(bought, []);
    }
}

#[test]
fn of_a_large_region_no_more_is_bought_than_is_read() {
    // Blocks of 16 KiB, in random order, of 52 of 64 MiB on hdd.
    let (mut density, mut seed) = (Density::default(), 7);
    let (start, pages) = (16_384 * 10 + 3000, 13_312);
    let mut held = alloc::collections::BTreeSet::new();
    let numbers = |region: Extent| region.start.0..region.end().0;
    let (mut waits, mut largest) = (0, 0);
    for _ in 0..20_000 {
        let page = Extent::new(start + random(&mut seed) % (pages / 4) * 4, 4);
        if numbers(page).all(|p| held.contains(&p)) {
            continue;
        }
        waits += 1;
        let missing = |region: Extent| numbers(region).filter(|p| !held.contains(p)).count() as u64;
        let price = |region| (missing(region), 8_000_000 + missing(region) * 40_960);
        let bought = density.reads(page, 8_000_000, 1 << 22, FREELY, price).map_or(page, |b| b.0);
        largest = largest.max(bought.count.0);
        held.extend(numbers(bought));
    }
    assert!(largest > 4096 && largest < 16_384, "{largest}");
    let beyond = held.len() as u64 - pages;
    assert!(waits < 100 && beyond < pages / 10, "{waits} waits, {beyond} pages beyond {pages}");
}

#[test]
fn where_gaps_are_dear_an_eighth_is_read_before_the_first_are_bought() {
    let mut density = Density::default();
    let dear = Terms { gaps_are_cheap: false, ..FREELY };
    let mut bought_after = |region: u64, reads: u64| {
        // Every fourth page, from a quarter of 256 KiB to the next.
        let pages = (0..reads).map(|i| Extent::new(region * 64 + i % 4 * 16 + i / 4 * 4, 1));
        let price = |region: Extent| (region.count.0, 1);
        pages.filter(|&p| density.reads(p, 80_000, 1 << 22, dear, price).is_some()).count()
    };
    assert_eq!(bought_after(1000, 7), 0);
    assert_eq!(bought_after(2000, 8), 1);
    // Of three such that ended not two fifths were read: then half must have been.
    (0..4).for_each(|i| {
        bought_after(3000 + 100 * i, 16);
    });
    assert_eq!(bought_after(8000, 16), 0);
}

#[test]
fn where_gaps_are_dear_what_was_read_and_is_gone_is_one() {
    let dear = Terms { gaps_are_cheap: false, ..FREELY };
    // 24 pages of 64 are read, six in each quarter; the price is right only then.
    let bought = |missing: u64| {
        let mut density = Density::default();
        let pages = (0..24).map(|i| Extent::new(64_000 + i % 4 * 16 + i / 4, 1));
        let last = pages.enumerate().map(|(i, p)| {
            let price = |_: Extent| (missing, if i == 23 { 1 } else { u64::MAX });
            density.reads(p, 80_000, 1 << 22, dear, price)
        });
        last.last().flatten().map(|(region, _)| region)
    };
    assert_eq!(bought(40), Some(Extent::new(64_000, 64)), "what was read is there: 40 of 40 are new");
    assert_eq!(bought(53), Some(Extent::new(64_000, 64)), "40 of 53");
    assert_eq!(bought(64), None, "40 of 64");
}

#[test]
fn chance_gathers_nothing_however_small_the_file() {
    // From 64 MiB to 64 GiB, at a price of nothing, as long as the file is not worn.
    for (seed, end) in (14..=24).flat_map(|bits| (1..=8).map(move |seed| (seed, 1 << bits))) {
        let (mut density, mut state) = (Density::default(), seed);
        for read in 0..4096.min(end / WORN - 1) {
            let page = Extent::new(random(&mut state) % end, 1);
            let terms = Terms { rate_is_known: seed % 2 == 0, ..FREELY };
            let bought = density.reads(page, 8_000_000, end, terms, |region| (region.count.0, 1));
            assert_eq!(bought, None, "read {read} of seed {seed} in {end} pages");
        }
    }
}

#[test]
fn a_region_that_is_most_of_its_file_gathers_no_more_than_its_part() {
    // 16,384 of 20,133 pages get four reads of five, and not one of two. Of three pages each, which wear no head's file.
    for seed in 1..=64 {
        let (mut density, mut state, end) = (Density::default(), seed, 20_133);
        for read in 0..1000 {
            let page = Extent::new(random(&mut state) % end, 3);
            let terms = Terms { overlaps: Some(false), ..FREELY };
            let bought = density.reads(page, 8_000_000, end, terms, |region| (region.count.0, 1));
            assert_eq!(bought, None, "read {read} of seed {seed}");
        }
    }
}

#[test]
fn a_uniformly_random_reader_buys_nothing() {
    let mut density = Density::default();
    let end = 3 << 20; // 12 GiB
    let mut seed = 7;
    for _ in 0..8192 {
        let page = random(&mut seed) % end;
        assert_eq!(density.reads(Extent::new(page, 1), 8_000_000, end, FREELY, hdd), None);
    }
}

#[test]
fn a_read_before_anybody_knows_what_a_wait_is_pays_with_the_next() {
    let bought_by = |owing: u64| {
        let mut density = Density::default();
        let page = |i: u64| Extent::new(64_000 + i % 4 * 16 + i / 4, 1);
        (0..owing).for_each(|i| density.owes(page(i)));
        (owing..8).find(|&i| density.reads(page(i), 80_000_000, 1 << 22, FREELY, |_| (64, 1)).is_some())
    };
    assert_eq!([0, 1, 3].map(bought_by), [Some(3); 3], "the fourth of all");
    let mut density = Density::default();
    (0..1000).for_each(|i| density.owes(Extent::new(64 * i, 1)));
    assert_eq!(density.owing.len(), OWING_MAX);
}

#[test]
fn ends_that_come_in_a_quarter_of_a_wait_are_not_left_out() {
    // Six reads from page 1100 of 16 MiB to page 3084, 330 pages apart on average: 439 and 351 pages are farther than twice that from any.
    let bought = |page_ns: u64| {
        let mut density = Density::default();
        let price = |region: Extent| (region.count.0, 30_000_000 + region.count.0 * page_ns);
        let reads = [1200, 1100, 1300, 2200, 2100, 3080].map(|page| Extent::new(262_144 + page, 4));
        let bought = |read| density.reads(read, 30_000_000, 1 << 22, FREELY, price).map(|bought| bought.0);
        reads.map(bought)[5].map(|region| (region.start.0 - 262_144, region.count.0))
    };
    assert_eq!(bought(9_000), Some((0, 4096)), "they come in 7.1 ms");
    assert_eq!(bought(10_000), Some((439, 3306)), "in 7.9 ms");
}

#[test]
fn a_part_is_bought_where_reads_lie_in_two_quarters_and_not_in_one() {
    let unknown = Terms { rate_is_known: false, ..FREELY };
    let bought = |apart: u64| {
        let mut density = Density::default();
        // Three reads of 16 KiB in 16 MiB, by a guess of 100 MB/s.
        let price = |region: Extent| (region.count.0, 30_000_000 + region.count.0 * 40_960);
        let reads = (0..3).map(|i| Extent::new(262_144 + i * apart, 4));
        reads.filter_map(|read| density.reads(read, 30_000_000, 1 << 22, unknown, price)).last()
    };
    assert_eq!(bought(1000), Some((Extent::new(262_144 + 1024, 1024), LEARNS)));
    assert_eq!(bought(300), None, "a cluster");
}

/// 8 KiB here and there, upwards: what is left of a region is behind its reader. In any other order, and where others read too, it is bought.
#[test]
fn who_goes_through_a_region_leaves_nothing_to_buy() {
    let ups = [51204, 51231, 51280, 51290, 51344, 51370, 51400, 51441];
    let mut mixed = ups;
    mixed.swap(0, 1);
    let mut down = ups;
    down.reverse();
    let buys = |pages: &[u64], alone: bool| {
        let mut density = Density::default();
        let terms = Terms { alone, ..FREELY };
        pages
            .iter()
            .any(|&page| density.reads(Extent::new(page, 2), 8_000_000, 1 << 22, terms, hdd).is_some())
    };
    assert_eq!([buys(&ups, true), buys(&down, true)], [false; 2]);
    assert_eq!([buys(&mixed, true), buys(&ups, false)], [true; 2]);
}
