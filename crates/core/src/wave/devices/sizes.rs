//! R13: how large requests should be, where one latency does not explain it (queue.rs): as large as brings more.
//!
//! Requests of an eighth of what one latency carries keep a device busy that works on eight at once. A device that works on two stands idle
//! between them, and while a single reader reads on nobody sees on how many it works. So it is tried: sixteen requests of one size are timed that
//! stand in line, each behind the one before it, and the next are twice as large. If these carry a twelfth more, the size stays; if not, the old one
//! is used again, and nothing is tried for the next 64 times sixteen requests:
//!
//! ```text
//!                                    128 KiB       256 KiB       512 KiB        1 MiB
//!   8 ms, 30 MB/s, two at once     15.7 MB/s     20.6          24.4           26.9: stays
//!   1 ms, 25 MB/s, one at a time   21.0          22.8          23.9: back     -
//!   hdd, who reads on              100           100: back     -              -
//! ```
//!
//! If some of the sixteen jumped, it is tried only where it is known what a jump costs, and a third more is asked for and not a twelfth, since the
//! sixteen before may have jumped more often or less.
//!
//! Nothing is tried where requests are known to overlap, unless eight at once were too many and one carries no more than a third of what passes in
//! a latency; nor where who reads on need not wait (glides.rs), nor once a request of the present size carries what passes in two latencies. So ssd and nfs
//! keep the smallest size; s3 has requests of 1 MiB without a trial.
//!
//! ```text
//!                                    128 KiB       256 KiB       512 KiB        1 MiB       all of them jumps
//!   2 ms, 1 GB/s, four at once       207 MB/s     343           511            677: back
//! ```

use crate::units::{Bytes, Nanos, PageCount};
use crate::wave::devices::crawls::Round;
use crate::wave::devices::device::PIECE_MIN;

/// Requests that are timed together, a stretch.
const STRETCH: u64 = 16;
/// So many of a stretch must have the size that is tried; the last request of a window is smaller, since it is what is left of it.
const OF_ONE_SIZE: u32 = 12;
/// Requests twice as large must carry more by one part in so many.
const MORE: u64 = 12;
/// The same where some of them jumped.
const MORE_AMONG_JUMPS: u64 = 3;
/// After a size went back, so many stretches pass before one is tried again.
const REST: u32 = 64;
/// The smallest request is doubled so often at most: from 128 KiB to 1 MiB.
const DOUBLINGS_MAX: u8 = 3;

/// What one device has shown so far.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Sizes {
    /// How often the smallest request is doubled now.
    doublings: u8,
    /// What requests of half the size carried a second, while that is on trial.
    before: Option<u64>,
    /// Stretches that are still to pass before a size is tried.
    rest: u32,
    /// Requests under way that went out before the size changed: they are not timed.
    old: u32,
    stretch: Stretch,
}

/// Requests that came back while others were under way all the time.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    round: Round,
    /// Requests of the present size.
    whole: u32,
    /// Others stood in line meanwhile.
    limited: bool,
}

impl Stretch {
    fn begins(now: Nanos) -> Self {
        Self { round: Round::begins(now), ..Self::default() }
    }
}

impl Sizes {
    /// Pages of a request of the present size.
    pub(in crate::wave) fn pages(&self) -> u64 {
        PIECE_MIN.0 << self.doublings
    }

    /// Nothing was under way until now.
    pub(in crate::wave) fn begins(&mut self, now: Nanos) {
        self.stretch = Stretch::begins(now);
        self.old = 0;
    }

    /// A request stands in line: it may not go out yet.
    pub(in crate::wave) fn limited(&mut self) {
        self.stretch.limited = true;
    }

    /// A request came back; `jump` says whether it had jumped. `in_flight` others are under way. `matters` says whether requests of the present size
    /// may be too small, and `weighed` whether it is known what a jump costs.
    pub(in crate::wave) fn came(
        &mut self,
        now: Nanos,
        bytes: Bytes,
        in_flight: u32,
        jump: bool,
        [matters, weighed]: [bool; 2],
    ) {
        if self.old > 0 {
            self.old -= 1;
            self.stretch = Stretch::begins(now);
            return;
        }
        self.stretch.round.came(bytes, jump);
        self.stretch.whole += u32::from(bytes >= PageCount(self.pages()).bytes());
        if self.stretch.round.requests < STRETCH {
            return;
        }
        let ended = core::mem::replace(&mut self.stretch, Stretch::begins(now));
        if !ended.limited || ended.whole < OF_ONE_SIZE {
            return;
        }
        let rate = ended.round.rate(ended.round.took(now));
        let more = if ended.round.jumps > 0 { MORE_AMONG_JUMPS } else { MORE };
        let doublings = self.doublings;
        match self.before.take() {
            Some(before) if rate < before.saturating_add(before / more) => {
                self.doublings -= 1;
                self.rest = REST;
            }
            _ if self.rest > 0 => self.rest -= 1,
            _ if matters && (weighed || ended.round.jumps == 0) && self.doublings < DOUBLINGS_MAX => {
                self.before = Some(rate);
                self.doublings += 1;
            }
            _ => {}
        }
        if self.doublings != doublings {
            self.old = in_flight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device that carries `rate` bytes a second in all, `slots` at once, comes to after so many requests in order: KiB of each.
    fn kib_after(requests: u32, latency: Nanos, rate: u64, slots: u64, is_head: bool) -> u64 {
        let (mut sizes, mut now) = (Sizes::default(), Nanos(0));
        sizes.begins(now);
        for _ in 0..requests {
            let bytes = PageCount(sizes.pages()).bytes();
            let carrying = bytes.0 * 1_000_000_000 / rate;
            let idle = if is_head { 0 } else { latency.0 / slots };
            now += Nanos(carrying + idle);
            sizes.limited();
            sizes.came(now, bytes, 8, false, [true, false]);
        }
        sizes.pages() * 4
    }

    /// The second table: KiB after so many requests, and what those carry.
    #[test]
    fn jumps_are_tried_where_it_is_known_what_they_cost() {
        let after = |requests: u32, weighed: bool| {
            let (mut sizes, mut now, mut took) = (Sizes::default(), Nanos(0), 0);
            sizes.begins(now);
            for _ in 0..requests {
                let bytes = PageCount(sizes.pages()).bytes();
                took = bytes.0 + 500_000;
                now += Nanos(took);
                sizes.limited();
                sizes.came(now, bytes, 8, true, [true, weighed]);
            }
            (sizes.pages() * 4, PageCount(sizes.pages()).bytes().0 * 1000 / took)
        };
        assert_eq!([15, 39, 63].map(|n| after(n, true)), [(128, 207), (256, 343), (512, 511)]);
        assert_eq!([80, 999].map(|n| after(n, true)), [(1024, 677), (512, 511)]);
        assert_eq!(after(999, false).0, 128);
    }

    #[test]
    fn requests_grow_while_larger_ones_bring_more() {
        let ms = Nanos::from_ms;
        assert_eq!([16, 48, 80].map(|n| kib_after(n, ms(8), 30_000_000, 2, false)), [256, 512, 1024]);
        assert_eq!(kib_after(999, ms(8), 30_000_000, 2, false), 1024);
        assert_eq!([16, 48, 999].map(|n| kib_after(n, ms(1), 25_000_000, 1, false)), [256, 512, 256]);
        assert_eq!([16, 48, 999].map(|n| kib_after(n, ms(8), 100_000_000, 1, true)), [256, 128, 128]);
    }

    #[test]
    fn only_what_stands_in_line_behind_one_another_is_tried() {
        let grown = |pages: u64, limited: bool, jump: bool, matters: bool| {
            let matters = [matters, false];
            let mut sizes = Sizes::default();
            sizes.begins(Nanos(0));
            for n in 1..=STRETCH {
                if limited {
                    sizes.limited();
                }
                let now = Nanos::from_ms(n);
                sizes.came(now, PageCount(pages).bytes(), 8, jump, matters);
            }
            sizes.pages() > PIECE_MIN.0
        };
        assert!(grown(32, true, false, true));
        assert!(!grown(8, true, false, true), "of other sizes");
        assert!(!grown(32, false, false, true), "nothing stood in line");
        assert!(!grown(32, true, true, true), "they jumped");
        assert!(!grown(32, true, false, false));
    }
}
