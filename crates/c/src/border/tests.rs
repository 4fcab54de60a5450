//! What C may hand over: brains that panicked, nothing at all, numbers that make no sense.

use super::*;

/// All pages that there can be.
const ALL: bowwave_extent = bowwave_extent { start: 0, count: u64::MAX };

fn new() -> *mut bowwave {
    // SAFETY: null means the default.
    unsafe { bowwave_new(std::ptr::null()) }
}

#[test]
fn a_brain_that_panicked_stays_away() {
    let brain = new();
    // SAFETY: ours, whole, and freed once.
    unsafe {
        assert_eq!(bowwave_open(brain, 0, 1, 7, 1 << 20), BOWWAVE_OK);
        assert_eq!(guarded(brain, |_| panic!("on purpose")), BOWWAVE_BROKEN);
        assert_eq!(bowwave_read(brain, 1, 1, bowwave_extent { start: 0, count: 1 }, 1), BOWWAVE_BROKEN);
        assert_eq!(bowwave_resident(brain, 1, 0), BOWWAVE_BROKEN);
        bowwave_free(brain);
    }
}

#[test]
fn nothing_is_asked_of_nothing() {
    let null = std::ptr::null_mut();
    let config = bowwave_config { request_max: 0, ..bowwave_config_default() };
    // SAFETY: null is what is tested; the brain is ours and freed once.
    unsafe {
        assert!(bowwave_new(&raw const config).is_null());
        assert_eq!(bowwave_open(null, 0, 1, 7, 1), BOWWAVE_NULL);
        bowwave_free(null);
        let brain = new();
        assert_eq!(bowwave_poll(brain, 0, std::ptr::null_mut()), BOWWAVE_NULL);
        assert_eq!(bowwave_leaf(brain, 1, 0, std::ptr::null_mut()), BOWWAVE_NULL);
        assert_eq!(bowwave_counters_read(brain, std::ptr::null_mut()), BOWWAVE_NULL);
        assert_eq!(bowwave_given_up(brain, std::ptr::null_mut()), BOWWAVE_NULL);
        bowwave_free(brain);
    }
}

/// C may leave any byte in a struct that it filled, and each is an answer.
#[test]
fn anything_but_0_is_yes() {
    let default = bowwave_config_default();
    assert_eq!((default.read_goes_first, default.waste_absolute), (0, 0));
    for byte in 0..=u8::MAX {
        let config = bowwave_config { read_goes_first: byte, waste_absolute: byte, ..default };
        let config = Config::from(config);
        assert_eq!((config.read_goes_first, config.waste_absolute), (byte != 0, byte != 0), "{byte}");
    }
    assert_eq!(size_of::<bowwave_config>(), 56, "as with the bools that stood there");
}

/// A reader in order comes to what was fetched ahead of him, not to what he has read.
#[test]
fn who_still_comes_to_a_page_can_be_asked() {
    let config = bowwave_config { read_goes_first: 1, ..bowwave_config_default() };
    let eight = |read: u64| bowwave_extent { start: read * 8, count: 8 };
    let mut fetch =
        bowwave_fetch { id: 0, file: 0, pages: ALL, why: std::ptr::null(), why_len: 0, demand: false };
    // SAFETY: ours, whole, and freed once; null is what is tested.
    unsafe {
        let brain = bowwave_new(&raw const config);
        assert_eq!(bowwave_open(brain, 0, 1, 7, 64 << 20), BOWWAVE_OK);
        for read in 0..4 {
            assert_eq!(bowwave_read(brain, read, 1, eight(read), 1), BOWWAVE_OK);
            while bowwave_poll(brain, read, &raw mut fetch) == 1 {
                assert_eq!(bowwave_arrived(brain, read, fetch.id), BOWWAVE_OK);
            }
        }
        let ahead = fetch.pages.start + fetch.pages.count - 1;
        assert!(ahead >= 32, "nothing was fetched ahead");
        assert_eq!(bowwave_awaits(brain, 1, ahead), 1);
        assert_eq!(bowwave_awaits(brain, 1, 0), 0);
        assert_eq!(bowwave_awaits(std::ptr::null_mut(), 1, ahead), BOWWAVE_NULL);
        bowwave_free(brain);
    }
}

/// Records of 4096 bytes, 2,102,395 apart, of a store that answers after 30 ms.
#[test]
fn a_stride_that_is_told_to_the_byte_is_foreseen() {
    let walk = |exactly: bool| {
        let mut fetch =
            bowwave_fetch { id: 0, file: 0, pages: ALL, why: std::ptr::null(), why_len: 0, demand: false };
        let (mut foreseen, mut fetched) = (0u64, 0);
        // SAFETY: ours, whole, and freed once.
        unsafe {
            let brain = new();
            assert_eq!(bowwave_open(brain, 0, 1, 7, 1 << 30), BOWWAVE_OK);
            for read in 0..64 {
                let (now, answer) = (read * 40_000_000, 30_000_000);
                let from = 8193 + read * 2_102_395;
                let pages = bowwave_extent::from(Extent::covering(from, 4096));
                let there = (pages.start..pages.start + pages.count)
                    .all(|page| bowwave_resident(brain, 1, page) == 1);
                foreseen |= u64::from(there) << read;
                if exactly {
                    assert_eq!(bowwave_exactly(brain, 1, from, 4096), BOWWAVE_OK);
                }
                assert_eq!(bowwave_read(brain, now, 1, pages, 1), BOWWAVE_OK);
                if !there {
                    assert_eq!(bowwave_waited(brain, now + answer, 1, pages, 1, answer), BOWWAVE_OK);
                }
                assert_eq!(bowwave_present(brain, now + answer, 1, pages), BOWWAVE_OK);
                while bowwave_poll(brain, now + answer, &raw mut fetch) == 1 {
                    fetched += fetch.pages.count;
                    assert_eq!(bowwave_arrived(brain, now + 2 * answer, fetch.id), BOWWAVE_OK);
                }
            }
            bowwave_free(brain);
        }
        (foreseen, fetched)
    };
    assert_eq!(walk(true), (!0b111, 134), "all but three, in the 2 pages of each, and 12 behind the last");
    let (foreseen, fetched) = walk(false);
    assert!(foreseen.count_ones() < 61 && fetched > 134, "by pages alone {foreseen:b} in {fetched}");
}

#[test]
fn whatever_is_told_to_the_byte_is_no_harm() {
    let brain = new();
    // SAFETY: ours, whole, and freed once; null is what is tested.
    unsafe {
        assert_eq!(bowwave_exactly(std::ptr::null_mut(), 1, 0, 1), BOWWAVE_NULL);
        assert_eq!(bowwave_open(brain, 0, 1, 7, 1 << 30), BOWWAVE_OK);
        for (from, bytes) in
            [(u64::MAX, u64::MAX), (0, 0), (1, u64::MAX), (i64::MAX as u64, 1), (u64::MAX - 1, 1)]
        {
            for read in 0..8 {
                assert_eq!(bowwave_exactly(brain, 1, from, bytes), BOWWAVE_OK);
                let pages = bowwave_extent { start: 7 * read, count: 1 };
                assert_eq!(bowwave_read(brain, read, 1, pages, 1), BOWWAVE_OK);
            }
        }
        bowwave_free(brain);
    }
}

/// A brain that runs for months does not keep for explaining what nobody here can ask for.
#[test]
fn no_decision_is_kept_for_explaining() {
    let one = |page| bowwave_extent { start: page, count: 1 };
    // SAFETY: ours, whole, and freed once.
    unsafe {
        let brain = new();
        assert_eq!(bowwave_open(brain, 0, 1, 7, 64 << 20), BOWWAVE_OK);
        for page in 0..100 {
            assert_eq!(bowwave_read(brain, page, 1, one(page), 1), BOWWAVE_OK);
        }
        let brain = brain.as_mut().unwrap();
        assert!(brain.wave.counters().windows > 0, "something was decided");
        assert_eq!(brain.wave.take_trace().count(), 0);
        bowwave_free(brain);
    }
}

/// Memory of 700 pages, of which 350 are out, of a store that answers after 30 ms: 150 are lost, and the farthest of the others are given up.
#[test]
fn what_there_is_no_room_for_can_be_let_go() {
    let config = bowwave_config { memory: 700 << 12, ..bowwave_config_default() };
    let eight = |read: u64| bowwave_extent { start: read * 8, count: 8 };
    let mut fetch =
        bowwave_fetch { id: 0, file: 0, pages: ALL, why: std::ptr::null(), why_len: 0, demand: false };
    let mut gone = bowwave_gone { file: 0, pages: ALL };
    // SAFETY: ours, whole, and freed once.
    unsafe {
        let brain = bowwave_new(&raw const config);
        assert_eq!(bowwave_open(brain, 0, 1, 7, 64 << 20), BOWWAVE_OK);
        for read in 0..30 {
            let (now, answer) = (read * 40_000_000, 30_000_000);
            assert_eq!(bowwave_read(brain, now, 1, eight(read), 1), BOWWAVE_OK);
            if read < 2 {
                assert_eq!(bowwave_waited(brain, now, 1, eight(read), 1, answer), BOWWAVE_OK);
            }
            while bowwave_poll(brain, now, &raw mut fetch) == 1 {
                assert_eq!(bowwave_arrived(brain, now + answer, fetch.id), BOWWAVE_OK);
            }
        }
        assert_eq!(bowwave_given_up(brain, &raw mut gone), 0);
        let lost = bowwave_extent { start: 240, count: 150 };
        assert_eq!(bowwave_dropped(brain, 1_200_000_000, 1, lost), BOWWAVE_OK);
        assert_eq!(bowwave_given_up(brain, &raw mut gone), 1);
        assert!(gone.file == 1 && gone.pages.start >= 240 + 150 && gone.pages.count > 0, "{gone:?}");
        assert_eq!(bowwave_resident(brain, 1, gone.pages.start), 0);
        assert_eq!(bowwave_given_up(brain, &raw mut gone), 0);
        bowwave_free(brain);
    }
}

/// Whatever number C hands over, a call costs no more than the file has pages, and breaks nothing.
#[test]
fn numbers_that_make_no_sense_are_cut() {
    let brain = new();
    let past = bowwave_extent { start: u64::MAX, count: u64::MAX };
    // SAFETY: ours, whole, and freed once.
    unsafe {
        for size in [u64::MAX, 1 << 20, 0, 3 << 20] {
            assert_eq!(bowwave_open(brain, u64::MAX, 1, 7, size), BOWWAVE_OK);
            assert_eq!(bowwave_read(brain, 0, 1, past, u32::MAX), BOWWAVE_OK);
        }
        for pages in [ALL, past] {
            for advice in [-7, 0, 2, 3, 4, 99] {
                assert_eq!(bowwave_advised(brain, 3, 1, pages, advice), BOWWAVE_OK);
            }
            assert_eq!(bowwave_read(brain, 5, 1, pages, 1), BOWWAVE_OK);
            assert_eq!(bowwave_waited(brain, 4, 1, pages, 1, u64::MAX), BOWWAVE_OK);
            for tell in [bowwave_present, bowwave_used, bowwave_dropped] {
                assert_eq!(tell(brain, 6, 1, pages), BOWWAVE_OK);
                assert_eq!(tell(brain, 6, 2, pages), BOWWAVE_OK, "a file that nobody opened");
            }
        }
        assert_eq!(bowwave_arrived(brain, 7, 12345), BOWWAVE_OK);
        assert_eq!(bowwave_resident(brain, 1, u64::MAX), 0);
        assert_eq!(bowwave_awaits(brain, 1, u64::MAX), 0);
        assert_eq!(bowwave_close(brain, 8, 1), BOWWAVE_OK);
        bowwave_free(brain);
    }
}
