//! How far ahead, as reach.rs tells it.

use crate::decision::Why;
use crate::units::{Bytes, Extent, FileId, Nanos};
use crate::wave::devices::device::tests::{gliding, play};
use crate::wave::memory::shares::AHEAD_MIN;
use crate::wave::streams::pace::Pace;
use crate::wave::streams::returns::Returns;
use crate::wave::streams::stream::tests::fetched_ahead;
use crate::wave::streams::stream::{Course, Stream};
use crate::wave::windows::runs::{Direction, Noted};
use crate::wave::windows::waits::Waits;
use crate::wave::{Config, Input, Wave};

/// 8 MiB are 1024 pages for one reader of s3, 32 of the smallest requests.
#[test]
fn where_memory_is_short_each_request_counts() {
    let (mut wave, _) = fetched_ahead(Extent::new(256, 400), 300);
    wave.queue(0).device = play(64, 30_000, 200);
    wave.epochs.are_active(1);
    let f = |wave: &super::Wave| (wave.step(&wave.files[&FileId(0)], 1024), wave.room());
    wave.belief.is(2048);
    assert_eq!(f(&wave), (32, 1024));
    let mut s = Stream::seed(FileId(0), 999, 1, Nanos(0));
    let cut = |s: &Stream, target| wave.cut(&wave.files[&FileId(0)], s, target, Why("R2 next"));
    assert_eq!((cut(&s, 1024), cut(&s, 200)), (1016, 200));
    (s.course, s.next) = (Course::Backward, 2000);
    assert_eq!(cut(&s, 1024), 2000 - 992);
    wave.belief.is(262_144);
    assert!(f(&wave).0 >= 100, "{:?}", f(&wave));
}

/// A device of 8 ms of which nobody knows how many requests it serves at once, and one that serves sixteen: a stream at page 1000 that may have
/// 1000 ahead, in requests of 32 pages.
#[test]
fn where_a_device_may_idle_no_request_is_of_a_few_pages() {
    let cut = |device, why: &'static str| {
        let (mut wave, _) = fetched_ahead(Extent::new(256, 400), 300);
        wave.queue(0).device = device;
        let s = Stream::seed(FileId(0), 999, 1, Nanos(0));
        wave.cut(&wave.files[&FileId(0)], &s, 1000, Why(why))
    };
    let unknown = || {
        let mut device = crate::wave::devices::device::Device::default();
        device.timed_alone(Nanos::from_ms(8));
        device
    };
    assert_eq!(cut(unknown(), super::ENOUGH), 1984 - 1000);
    assert_eq!(cut(unknown(), "R9 runs here ended"), 1000);
    assert_eq!(cut(play(16, 8_000, 500), super::ENOUGH), 1000);
}

/// A head of 8 ms that carries 100 MB/s: reads of 64 KiB, 384 KiB and 1 MiB.
#[test]
fn who_stays_has_whole_reads_ahead() {
    let (mut wave, _) = fetched_ahead(Extent::new(256, 64), 300);
    wave.queue(0).device = play(1, 8_000, 500);
    let ahead = |request| {
        let s = Stream::seed(FileId(0), 0, request, Nanos(0));
        wave.stays_by(&wave.files[&FileId(0)], &s)
    };
    assert_eq!([16, 96, 256].map(ahead), [97, 97, 512]);
}

/// 512 streams in 8 MiB: the worked example of [`Wave::least`], by pages of a read, and of pages out.
#[test]
fn where_streams_have_two_pages_each_they_have_whole_reads() {
    let least = |slots: usize, reads: u64, request: u64, out: u64, waited: bool| {
        let (mut wave, sid) = fetched_ahead(Extent::new(256, out), 300);
        wave.queue(0).device = play(slots, 8_000, 500);
        wave.epochs.are_active(512);
        wave.config.memory = Bytes(8 << 20);
        let s = wave.streams.get_mut(sid).unwrap();
        (s.request, s.reads, s.waits) = (request, reads, Waits::of(0, waited));
        wave.least(&wave.files[&FileId(0)], wave.streams.get(sid).unwrap(), 2)
    };
    assert_eq!([1, 2, 4].map(|request| least(16, 9, request, 64, false)), [2, 2, 0]);
    assert_eq!([768, 769].map(|out| least(16, 9, 2, out, false)), [2, 0]);
    assert_eq!([false, true].map(|waited| least(1, 9, 2, 64, waited)), [0, 2], "a head");
    assert_eq!(least(16, 3, 4, 64, false), AHEAD_MIN, "nobody knows yet how many they are");
}

/// 16 streams share 8 MiB, 64 pages each; others had more when they were fewer, and have 1,780 of the 1,792 out.
#[test]
fn others_leave_what_they_do_not_have() {
    let left = |streams: u64, out: u64| {
        let (mut wave, sid) = fetched_ahead(Extent::new(256, 12), 260);
        wave.epochs.are_active(streams);
        wave.ledger.has_unread(12 + out);
        wave.belief.is(2048);
        wave.left_by_others(wave.streams.get(sid).unwrap())
    };
    assert_eq!([0, 1700, 1780, 1790].map(|out| left(16, out)), [1792, 92, 12, AHEAD_MIN]);
    assert_eq!(left(1, 1780), u64::MAX, "there are no others");
}

/// 256 rows of a matrix, 9,830 pages for all of them: 66 for one while others have 8,000 out, 50 of what the others left, and its own 38 where
/// they left none; no more than that where streams are as few as requests in flight, or answers come soon.
#[test]
fn who_stands_in_line_for_late_answers_asks_for_more() {
    let asked = |latency_us: u64, streams: u64, others: u64| {
        let (mut wave, sid) = fetched_ahead(Extent::new(256, 12), 260);
        wave.queue(0).device = play(64, latency_us, 500);
        wave.epochs.are_active(streams);
        wave.ledger.has_unread(12 + others);
        wave.counters.pages_used = 16_384;
        wave.speculation_asked_for(&wave.files[&FileId(0)], wave.streams.get(sid).unwrap())
    };
    assert_eq!([8_000, 9_780, 13_000].map(|others| asked(30_000, 256, others)), [66, 50, 38]);
    assert_eq!([(30_000, 64), (1_000, 256)].map(|(us, streams)| asked(us, streams, 0)), [153, 38]);
}

/// Four at once of 128 KiB in 1 ms each, 524 MB/s: 2.1 MB in four latencies and half as much again are 768 pages for four streams.
/// Told up to 20 ms later they would be given 4,000, but for what is enough for any device: 512, of which one reader who goes between all four
/// has a part for each, and four readers all of it each.
#[test]
fn who_is_told_at_once_needs_less_ahead() {
    let enough = |seen_ms: u64, streams: u64, readers: u32| {
        let (mut wave, _) = fetched_ahead(Extent::new(256, 400), 300);
        for actor in 0..readers {
            wave.handle(Nanos(0), Input::Read { file: FileId(0), pages: Extent::new(256, 1), actor });
        }
        wave.config.seen_within = Nanos::from_ms(seen_ms);
        wave.queue(0).device = play(4, 1_000, 500);
        wave.epochs.are_active(streams);
        wave.enough(&wave.files[&FileId(0)])
    };
    assert_eq!([0, 2, 20].map(|seen_ms| enough(seen_ms, 4, 4)), [192, 192, 512]);
    assert_eq!([0, 2, 20].map(|seen_ms| enough(seen_ms, 4, 1)), [128; 3]);
    assert_eq!(enough(0, 32, 32), 64, "two requests each, however many they are");
}

/// 128 MiB are 54 pages for each of 300 streams, so that 95 may be asked for; 65 and 114 for each of 250. A head of 8 ms stays
/// with 97.
#[test]
fn a_head_stays_only_where_memory_has_room_for_that() {
    let (mut wave, sid) = fetched_ahead(Extent::new(256, 400), 300);
    let queue = wave.queue(0);
    queue.device = play(1, 8_000, 500);
    queue.waiting.extend([0, 1]);
    wave.streams.get_mut(sid).unwrap().pace = Pace::taking(true);
    wave.belief.is(32_768);
    let mut stays_among = |streams, new| {
        wave.epochs.are_active(streams);
        wave.epochs.came(new);
        wave.stays(wave.streams.get(sid).unwrap())
    };
    assert!(stays_among(250, 0));
    assert!(!stays_among(300, 0));
    assert!(stays_among(250, 250), "what he has is read before those to come are there");
}

/// Who waited at page 300 for what one connection of s3 carries, 732 pages, may have three times as much; not so where it is known that
/// several are served at once, and soon.
#[test]
fn one_connection_is_enough_where_the_device_answers_soon() {
    let opened = |latency_us: u64| {
        let (mut wave, sid) = fetched_ahead(Extent::new(256, 400), 300);
        wave.queue(0).device = play(64, latency_us, 500);
        wave.streams.get_mut(sid).unwrap().waits = Waits::of(732, false);
        wave.opened_by(&wave.files[&FileId(0)], wave.streams.get(sid).unwrap())
    };
    assert_eq!([30_000, 1_000].map(opened), [2196, 732]);
}

/// Reads of page 100,000 and of the next, so far away and so many others between them: 732 pages come in 30 ms by one connection, three
/// times as many are asked for.
#[test]
fn two_reads_that_wait_open_a_window_where_answers_are_late() {
    let asked = |latency_ms: u64, others: u64| {
        let (mut wave, latency) = (Wave::new(Config::default()), Nanos::from_ms(latency_ms));
        wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 30) });
        let between = (1..=others).map(|i| 110_000 + 997 * i * i);
        for (i, page) in (0..).zip(core::iter::once(100_000).chain(between).chain([100_001])) {
            let now = Nanos(i * latency.0);
            let (file, pages, actor) = (FileId(0), Extent::new(page, 1), i as u32);
            wave.handle(now, Input::Read { file, pages, actor });
            let ended = now + latency;
            wave.handle(ended, Input::Waited { file, pages, actor, took: latency, ended });
            wave.check();
        }
        wave.take_trace().last().map(|e| (e.decision.window.size.0, e.decision.why.0))
    };
    assert_eq!(asked(30, 0), Some((2196, "R3 waited")));
    assert_eq!(asked(30, 7), Some((2196, "R3 waited")));
    assert_eq!(asked(30, 8), Some((4, "R2 next")), "it may be a row of a matrix");
    assert_eq!(asked(8, 0), Some((4, "R2 next")));
}

/// Alone on a head a reader of 400 pages has 100 ahead of him; as much as suits the device when another has read there.
/// Where runs have ended those say how far.
#[test]
fn who_need_not_wait_has_a_quarter_of_what_he_has_come() {
    let target = |meanwhile: bool, ended: bool| {
        let (mut wave, sid) = fetched_ahead(Extent::new(256, 400), 300);
        wave.queue(0).device = gliding();
        wave.epochs.are_active(1);
        wave.counters.pages_used = 100_000;
        let s = wave.streams.get_mut(sid).unwrap();
        (s.ahead, s.reads, s.request, s.first, s.next) = (4096, 100, 4, 256, 656);
        wave.queue(0).turn_of(sid);
        wave.streams.get_mut(sid).unwrap().returns.begins_with(1);
        if meanwhile {
            let other = wave.streams.add(Stream::seed(FileId(0), 9000, 1, Nanos(0))).unwrap();
            wave.queue(0).turn_of(other);
        }
        (0..if ended { 64 } else { 0 })
            .for_each(|_| wave.witness(FileId(0), Direction::Up, 700, Noted::NotYet));
        wave.target(sid, Why("R2 next"), 400).0
    };
    assert_eq!(target(false, false), 100);
    assert_eq!(target(true, false), 512, "all that a device of which no more is known can use");
    assert_eq!(target(false, true), 300);
}

/// Of five runs one came to 700 pages: of 352 ahead of who has come 400, 85 % are used if he ends there too. By turns with others nothing is known.
#[test]
fn few_that_came_as_far_cut_a_window() {
    let target = |stayed_in: u8, ended: &[u64]| {
        let (mut wave, sid) = fetched_ahead(Extent::new(256, 400), 300);
        wave.queue(0).device = play(64, 30_000, 500);
        wave.epochs.are_active(1);
        wave.counters.pages_used = 100_000;
        let s = wave.streams.get_mut(sid).unwrap();
        (s.ahead, s.reads, s.request, s.first, s.next) = (4096, 100, 4, 256, 656);
        s.returns = Returns::stayed_for(stayed_in);
        ended.iter().for_each(|&pages| wave.witness(FileId(0), Direction::Up, pages, Noted::NotYet));
        wave.target(sid, Why("R2 next"), 400)
    };
    let ended = [100, 200, 100, 300, 700];
    assert_eq!(target(3, &ended), (352, Why("R9 runs here ended")));
    assert_eq!(target(2, &ended), (1600, Why("R2 next")));
    assert_eq!(target(3, &ended[..4]), (1600, Why("R2 next")), "none came so far");
}

/// Of 8 MiB one reader may have 1024 pages out, but 768 where he reads each page four times.
#[test]
fn who_reads_again_leaves_room_for_that() {
    let target = |request: u64| {
        let (mut wave, sid) = fetched_ahead(Extent::new(256, 400), 300);
        wave.queue(0).device = play(64, 30_000, 500);
        wave.epochs.are_active(1);
        wave.belief.is(2048);
        wave.counters.pages_used = 100_000;
        let s = wave.streams.get_mut(sid).unwrap();
        (s.ahead, s.reads, s.request) = (4096, 16, request);
        (s.next, s.frontier) = (2000, 2400);
        wave.target(sid, super::Why("R2 next"), 2000)
    };
    assert_eq!(
        [125, 500].map(target),
        [(1024, super::Why("R13 share of memory")), (768, super::Why("R13 share of memory"))]
    );
}

/// The same reader, of page by page: 1,024 pages are half of 8 MiB, 1,536 three quarters, 1,136 what
/// another with 400 has left of those.
#[test]
fn who_takes_what_comes_from_afar_has_half_as_much_again() {
    let target = |latency_us: u64, stayed_in: u8, request: u64, others: u64| {
        let (mut wave, sid) = fetched_ahead(Extent::new(256, 400), 300);
        wave.queue(0).device = play(64, latency_us, 500);
        wave.epochs.are_active(1);
        wave.belief.is(2048);
        wave.counters.pages_used = 100_000;
        let s = wave.streams.get_mut(sid).unwrap();
        (s.ahead, s.reads, s.request) = (4096, 1744 / request, request);
        (s.next, s.frontier, s.returns) = (2000, 2400, Returns::stayed_for(stayed_in));
        s.pace = Pace::taking(true);
        wave.ledger.has_unread(s.out() + others);
        let rushes = wave.rushes(wave.streams.get(sid).unwrap());
        (rushes, wave.target(sid, Why("R2 next"), 2000).0)
    };
    assert_eq!(target(30_000, 3, 1, 0), (true, 1536));
    assert_eq!(target(30_000, 3, 1, 400), (true, 1136));
    assert_eq!(target(30_000, 3, 1, 768), (true, 1024), "his share he has");
    assert_eq!(target(30_000, 2, 1, 0), (false, 1024), "he may be at two places by turns");
    assert_eq!(target(30_000, 3, 257, 0), (false, 1024), "his reads are large");
    assert!(!target(1_000, 3, 1, 0).0, "answers are soon there");
}

/// Two threads with a stream each, and one with two by turns: of those nobody stays in one.
#[test]
fn who_reads_by_turns_stays_nowhere() {
    let stayed = |threads: u32| {
        let mut wave = Wave::new(Config::default());
        wave.handle(Nanos(0), Input::Open { file: FileId(0), device: 0, size: Bytes(1 << 30) });
        for turn in 0..12 {
            let (file, place) = (FileId(0), turn / 2);
            let pages = Extent::new(100_000 * (turn % 2) + place, 1);
            let input = Input::Read { file, pages, actor: turn as u32 % 2 % threads };
            wave.handle(Nanos::from_ms(turn), input);
            wave.check();
        }
        let streams = wave.streams.next_few(2);
        streams.into_iter().map(|s| s.returns.stayed()).collect::<alloc::vec::Vec<_>>()
    };
    assert_eq!(stayed(2), [5, 5]);
    assert_eq!(stayed(1), [0, 0]);
}
