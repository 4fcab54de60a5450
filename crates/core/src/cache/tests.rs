//! Stories of the cache, and random calls against a model that keeps its pages in one list.

use super::*;
use crate::view::View;

const F: FileId = FileId(1);
const G: FileId = FileId(2);

fn cache(frames: u64) -> Cache {
    let mut cache = Cache::new(CacheConfig::of(PageCount(frames)));
    cache.open(F, PageIndex(1 << 20));
    cache.open(G, PageIndex(1 << 20));
    cache
}

/// Submits and brings `count` pages from `start`, and reads each once.
fn stream(cache: &mut Cache, file: FileId, start: u64, count: u64) {
    for page in start..start + count {
        cache.submit(file, Window::new(page, 1, 0), 0);
        cache.arrived(file, Extent::new(page, 1));
        cache.touch(file, PageIndex(page));
    }
    cache.check();
}

fn present(cache: &Cache, file: FileId, pages: impl IntoIterator<Item = u64>) -> Vec<u64> {
    pages.into_iter().filter(|&page| cache.table(file).present(PageIndex(page))).collect()
}

/// The worked example of the module.
#[test]
fn what_is_retained_outlives_what_is_not() {
    let mut cache = cache(4);
    stream(&mut cache, F, 0, 4);
    assert_eq!(cache.retain(F, Extent::new(0, 2)), PageCount(2));
    stream(&mut cache, F, 10, 2);
    assert_eq!(present(&cache, F, 0..4), [0, 1]);
}

#[test]
fn a_stream_loses_its_pages_in_the_order_in_which_it_read_them() {
    let mut cache = cache(8);
    stream(&mut cache, F, 0, 12);
    assert_eq!(present(&cache, F, 0..12), (4..12).collect::<Vec<_>>());
    let lost: Vec<Extent> = cache.take_evicted().iter().map(|gone| gone.pages).collect();
    assert_eq!(lost, [Extent::new(0, 4)]);
}

/// A page in four reads of 1 KiB is read once: only who comes again from elsewhere keeps it.
#[test]
fn who_goes_on_within_a_page_has_not_come_again() {
    for (again, kept) in [(false, &[][..]), (true, &[0])] {
        let mut cache = cache(8);
        stream(&mut cache, F, 0, 2);
        for _ in 0..3 {
            cache.touch_on(F, PageIndex(0));
        }
        if again {
            cache.touch(F, PageIndex(0));
        }
        stream(&mut cache, G, 0, 20);
        assert_eq!(present(&cache, F, 0..2), kept);
    }
}

#[test]
fn what_is_let_go_makes_room_for_others() {
    let mut cache = cache(8);
    stream(&mut cache, F, 0, 8);
    cache.let_go(F, Extent::new(6, 10));
    assert_eq!(present(&cache, F, 0..8), (0..6).collect::<Vec<_>>());
    stream(&mut cache, G, 0, 2);
    assert_eq!(present(&cache, F, 0..8), (0..6).collect::<Vec<_>>());
    assert_eq!(Evicted::runs(&cache.take_evicted()), [(F, Extent::new(6, 2))]);
    cache.check();
}

#[test]
fn what_is_read_twice_survives_a_scan() {
    let mut cache = cache(8);
    stream(&mut cache, F, 0, 2);
    cache.touch(F, PageIndex(0));
    stream(&mut cache, G, 0, 20);
    assert_eq!(present(&cache, F, 0..2), [0]);
}

#[test]
fn a_page_in_flight_keeps_its_frame_and_a_window_stops_where_there_is_none() {
    let mut cache = cache(8);
    stream(&mut cache, F, 0, 3);
    let first = cache.submit(F, Window::new(10, 6, 3), 7);
    assert_eq!((first.actual, first.mark), (PageCount(6), Some(PageIndex(13))));
    // Two frames can be taken from pages that were read; the rest is in flight.
    let second = cache.submit(F, Window::new(100, 6, 2), 7);
    assert_eq!((second.fetch, second.mark), ([Extent::new(100, 2)].to_vec(), None));
    assert_eq!(present(&cache, F, 0..20), (10..16).collect::<Vec<_>>());
    cache.check();
    cache.failed(F, Extent::new(10, 6));
    assert_eq!(cache.used(), PageCount(2));
    cache.check();
}

#[test]
fn a_ghost_knows_its_owner_and_how_long_ago_it_died() {
    let mut cache = cache(4);
    cache.submit(F, Window::new(0, 4, 3), 7);
    cache.arrived(F, Extent::new(0, 4));
    cache.touch(F, PageIndex(0));
    stream(&mut cache, G, 0, 3);
    let (ghost, distance) = cache.ghost(F, PageIndex(1)).unwrap();
    assert_eq!((ghost.owner, ghost.unread, distance), (7, true, 1));
    assert!(!cache.ghost(F, PageIndex(0)).unwrap().0.unread);
    assert!(cache.take_evicted().iter().any(|gone| gone.unread && gone.pages.contains(PageIndex(2))));
    stream(&mut cache, F, 1, 1);
    assert_eq!(cache.ghost(F, PageIndex(1)), None);
}

#[test]
fn fair_credits_follow_the_sizes() {
    let config =
        CacheConfig { shards: [PageCount(60), PageCount(40)].to_vec(), ..CacheConfig::of(PageCount(0)) };
    let mut cache = Cache::new(CacheConfig { ghosts_max: 100, ..config });
    cache.open(F, PageIndex(1 << 20));
    stream(&mut cache, F, 0, 100);
    assert_eq!((cache.used_of(0), cache.used_of(1)), (PageCount(60), PageCount(40)));
}

/// Weiner's test of 2014: cache one file a little larger than memory, then another of the same size. Where shards age
/// together the second one is cached. Where a reclaimer passes over a balanced shard and pages are placed by what is
/// free, a part of memory keeps the head of the first for ever (spec 7.2).
#[test]
fn weiners_two_files() {
    let two = [PageCount(600), PageCount(400)].to_vec();
    let second_file_cached = |placement, victim, background| {
        let config = CacheConfig { shards: two.clone(), placement, victim, background, ghosts_max: 1000 };
        let mut cache = Cache::new(config);
        cache.open(F, PageIndex(4000));
        cache.open(G, PageIndex(4000));
        for file in [F, G] {
            for page in 0..1100 {
                stream_one(&mut cache, file, page);
            }
        }
        cache.check();
        (cache.table(G).count(PageBit::Present, Extent::new(0, 1100)).0, cache.age_inversion())
    };
    let mark = |skip_balanced| Some(Background { low_permille: 20, high_permille: 40, skip_balanced });
    let (cached, inversion) = second_file_cached(Placement::Fair, Victim::Oldest, None);
    assert!(cached >= 1000 && inversion == 0, "{cached} pages, inversion {inversion}");
    let (cached, _) = second_file_cached(Placement::Hashed, Victim::Oldest, None);
    assert!(cached >= 1000, "{cached} pages");
    let (stuck, inversion) = second_file_cached(Placement::Fill, Victim::Same, mark(true));
    assert!(stuck < 700 && inversion > 300, "{stuck} pages, inversion {inversion}");
}

fn stream_one(cache: &mut Cache, file: FileId, page: u64) {
    cache.submit(file, Window::new(page, 1, 0), 0);
    cache.arrived(file, Extent::new(page, 1));
    cache.touch(file, PageIndex(page));
    cache.reclaim_in_background();
}

#[test]
fn dirty_pages_are_written_before_they_go() {
    let mut cache = cache(8);
    assert_eq!(cache.write(F, Extent::new(0, 4), 0), None);
    assert_eq!(cache.dirty(), PageCount(4));
    assert!(cache.over_dirty_limit(40) && !cache.over_dirty_limit(60));
    stream(&mut cache, G, 0, 6);
    assert_eq!(present(&cache, F, 0..4), [0, 1, 2, 3]);
    assert!(cache.take_to_write().contains(&(F, PageIndex(0))));
    cache.cleaned(F, Extent::new(0, 4));
    stream(&mut cache, G, 10, 6);
    assert!(present(&cache, F, 0..4).is_empty());
    assert_eq!(cache.dirty(), PageCount(0));
}

#[test]
fn what_was_written_while_it_was_fetched_outlives_a_fetch_that_fails() {
    let mut cache = cache(8);
    let window = Window { start: PageIndex(0), size: PageCount(4), async_size: PageCount(0) };
    cache.submit(F, window, 0);
    assert_eq!(cache.write(F, Extent::new(1, 2), 0), None);
    cache.failed(F, Extent::new(0, 4));
    cache.check();
    assert_eq!(present(&cache, F, 0..4), [1, 2]);
    assert_eq!((cache.dirty(), cache.used()), (PageCount(2), PageCount(2)));
}

#[test]
fn memory_that_is_taken_away_is_gone_at_once() {
    let mut cache = cache(16);
    stream(&mut cache, F, 0, 16);
    cache.resize(0, PageCount(4));
    assert_eq!((cache.used(), present(&cache, F, 0..16)), (PageCount(4), (12..16).collect()));
    stream(&mut cache, F, 20, 8);
    assert_eq!(cache.used(), PageCount(4));
}

/// Ten thousand random calls: the cache says what a plain list says.
#[test]
fn a_plain_list_agrees() {
    for seed in 1..=20_u64 {
        let mut state = seed;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut cache = cache(32);
        // Young in front; (page, reads). Active pages are those with two reads.
        let (mut inactive, mut active): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut referenced = alloc::collections::BTreeSet::new();
        for _ in 0..500 {
            let page = next(64);
            match next(4) {
                0 => {
                    let from = next(64);
                    cache.retain(F, Extent::new(from, 4));
                    for page in from..from + 4 {
                        if let Some(at) = inactive.iter().position(|&p| p == page) {
                            inactive.remove(at);
                            inactive.insert(0, page);
                        }
                    }
                }
                1 if next(4) == 0 => {
                    cache.forget(F, Extent::new(page, 2));
                    for list in [&mut inactive, &mut active] {
                        list.retain(|p| !(page..page + 2).contains(p));
                    }
                    referenced.retain(|p| !(page..page + 2).contains(p));
                }
                _ => {
                    if !inactive.contains(&page) && !active.contains(&page) {
                        if inactive.len() + active.len() == 32 {
                            while active.len() > inactive.len() {
                                let old = active.pop().unwrap();
                                referenced.remove(&old);
                                inactive.insert(0, old);
                            }
                            let gone = inactive.pop().unwrap();
                            referenced.remove(&gone);
                        }
                        inactive.insert(0, page);
                        cache.submit(F, Window::new(page, 1, 0), 0);
                        cache.arrived(F, Extent::new(page, 1));
                    }
                    if let Some(at) = inactive.iter().position(|&p| p == page)
                        && !referenced.insert(page)
                    {
                        inactive.remove(at);
                        active.insert(0, page);
                    }
                    assert!(matches!(cache.touch(F, PageIndex(page)), Touch::Present { .. }));
                }
            }
            cache.check();
            let mut expected: Vec<u64> = inactive.iter().chain(&active).copied().collect();
            expected.sort_unstable();
            assert_eq!(present(&cache, F, 0..70), expected, "seed {seed}");
        }
    }
}

#[test]
fn who_uses_a_page_without_a_word_is_asked_before_it_goes() {
    let mut cache = Cache::new(CacheConfig::of(PageCount(4)));
    let file = FileId(1);
    cache.open(file, PageIndex(64));
    cache.submit(file, Window { start: PageIndex(0), size: PageCount(4), async_size: PageCount(0) }, 0);
    cache.arrived(file, Extent::new(0, 4));
    cache.touch(file, PageIndex(1));
    // Page 0 is in use, page 1 was read a second time, page 2 goes.
    let mut asked = Vec::new();
    let window = Window { start: PageIndex(9), size: PageCount(1), async_size: PageCount(0) };
    let submission = cache.submit_unless(file, window, 0, &mut |_, page, known| {
        asked.push((page.0, known));
        [Hold::Stay, Hold::Read, Hold::Go, Hold::Go][page.0 as usize]
    });
    assert_eq!((submission.actual, asked), (PageCount(1), [(0, false), (1, true), (2, false)].to_vec()));
    assert_eq!(cache.take_evicted()[0].pages, Extent::new(2, 1));
    cache.check();
    cache.arrived(file, Extent::new(9, 1));
    cache.close(file);
    assert_eq!(cache.used(), PageCount(0));
    cache.check();
}

/// Eight frames: pages 0 to 3 are in flight, 4 to 7 have come, 5 was written. Five are wanted: they take the frames of 4, 6 and 7, and
/// end where what is left is in flight or dirty.
#[test]
fn a_search_for_frames_goes_on_where_the_last_one_was() {
    let mut cache = Cache::new(CacheConfig::of(PageCount(8)));
    let window =
        |start, size| Window { start: PageIndex(start), size: PageCount(size), async_size: PageCount(0) };
    cache.open(F, PageIndex(1000));
    cache.submit(F, window(0, 8), 0);
    cache.arrived(F, Extent::new(4, 4));
    cache.write(F, Extent::new(5, 1), 0);
    let submission = cache.submit(F, window(100, 5), 1);
    assert_eq!(submission.fetch, [Extent::new(100, 3)]);
    let gone: Vec<Extent> = cache.take_evicted().iter().map(|gone| gone.pages).collect();
    assert_eq!(gone, [Extent::new(4, 1), Extent::new(6, 2)]);
    assert!(cache.take_to_write().contains(&(F, PageIndex(5))));
    cache.cleaned(F, Extent::new(5, 1));
    assert_eq!(cache.submit(F, window(200, 2), 1).fetch, [Extent::new(200, 1)], "then all are in flight");
    cache.check();
}

/// Two thousand random calls: who submits a window gets and evicts what who submits its pages one by one does, in one shard and in two.
#[test]
fn a_window_is_its_pages_one_by_one() {
    for (seed, shards) in (1..=20_u64).flat_map(|seed| [(seed, &[40_u64][..]), (seed, &[24, 16])]) {
        let mut state = seed;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let shards: Vec<PageCount> = shards.iter().copied().map(PageCount).collect();
        let config = CacheConfig { shards, ghosts_max: 20, ..CacheConfig::of(PageCount(0)) };
        let mut caches = [Cache::new(config.clone()), Cache::new(config)];
        caches.iter_mut().for_each(|cache| cache.open(F, PageIndex(100)));
        for call in 0..2000 {
            let (pages, kind, resizes) = (Extent::new(next(100), 1 + next(12)), next(12), next(4) == 0);
            let [whole, single] = &mut caches;
            if kind < 4 {
                let window = |start, size| Window { start, size, async_size: PageCount(0) };
                let at_once = whole.submit(F, window(pages.start, pages.count), call).actual;
                let inside = pages.intersection(Extent::new(0, 100));
                let holes: Vec<Extent> = single.table(F).holes(inside).collect();
                let missing = holes.iter().flat_map(|hole| hole.start.0..hole.end().0).map(PageIndex);
                let mut got =
                    |&page: &PageIndex| single.submit(F, window(page, PageCount(1)), call).actual.0 == 1;
                let one_by_one = PageCount(missing.take_while(|page| got(page)).count() as u64);
                assert_eq!(at_once, one_by_one, "seed {seed}");
            } else {
                for cache in [whole, single] {
                    match kind {
                        4..8 => cache.arrived(F, pages),
                        8 => _ = cache.touch(F, pages.start),
                        9 => _ = cache.retain(F, pages),
                        10 if resizes => cache.resize(0, PageCount(8 + pages.start.0 % 16)),
                        10 => _ = cache.write(F, Extent { count: PageCount(1), ..pages }, call),
                        _ => cache.cleaned(F, Extent::new(0, 100)),
                    }
                }
            }
            let [whole, single] = &mut caches;
            whole.check();
            let (gone, alone) = (whole.take_evicted(), single.take_evicted());
            assert_eq!(gone, alone, "seed {seed}, call {call}");
            assert_eq!(whole.age_inversion(), single.age_inversion());
            for page in (0..100).map(PageIndex) {
                assert_eq!(whole.table(F).state(page), single.table(F).state(page), "seed {seed}");
                assert_eq!(whole.ghost(F, page), single.ghost(F, page));
            }
        }
    }
}
