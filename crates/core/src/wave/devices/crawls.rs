//! R8: whether carrying is what takes a device its time, so that gaps and regions are priced by what it carries.
//!
//! While a request takes little more than a latency, nobody sees what one connection carries: it is taken for 100 MB/s, as a disk has it. By that price
//! a link of 12 MB/s is made to carry gaps that cost far more than the waits they save. But where requests are under way all the time, and yet no
//! more than one comes back in two latencies, it is carrying that takes the time:
//!
//! ```text
//!   10 ms, 12 MB/s, four at once     a request of 1 MiB comes each 97 ms, less 10 for its jump: 12 MB/s     120 KB in a latency, not 1 MB
//!   s3: 30 ms                        a request comes each 1 ms: nothing is known                            3 MB
//! ```
//!
//! A request that jumps pays a latency for it, which is taken off. Where none has jumped, one in one and a half latencies is slow enough; and a head that
//! did not have to go anywhere has only carried, however fast it was. A single request says so only where it took three, since the head may have gone to
//! what its reader came for himself, and back. Two such rounds are believed, until a round that does not crawl carries a quarter more.

use crate::units::{Bytes, Nanos};
use crate::wave::devices::rates::per_second;

/// Rounds after which a device is believed to crawl.
const ROUNDS_MIN: u32 = 2;

/// What has come back since some time, while requests were under way without a pause.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Round {
    start: Nanos,
    bytes: u64,
    pub(in crate::wave) requests: u64,
    pub(in crate::wave) jumps: u64,
}

impl Round {
    /// It begins.
    pub(in crate::wave) fn begins(now: Nanos) -> Self {
        Self { start: now, ..Self::default() }
    }

    /// A request has come back.
    pub(in crate::wave) fn came(&mut self, bytes: Bytes, jump: bool) {
        self.bytes += bytes.0;
        self.requests += 1;
        self.jumps += u64::from(jump);
    }

    /// How long it has lasted.
    pub(in crate::wave) fn took(&self, now: Nanos) -> Nanos {
        now.since(self.start)
    }

    /// Bytes a second, if it took so long to carry them.
    pub(in crate::wave) fn rate(&self, took: Nanos) -> u64 {
        per_second(Bytes(self.bytes), took)
    }
}

/// What the latest rounds that crawled carried a second, and how many they were.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Crawls {
    rate: u64,
    rounds: u32,
}

impl Crawls {
    /// A round has ended, of a device whose lone reads take `latency`.
    pub(in crate::wave) fn ended(&mut self, round: &Round, took: Nanos, latency: Nanos, is_head: bool) {
        let each = match (round.requests, round.jumps) {
            (0..=1, _) => 3 * latency.0,
            (_, 0) if is_head => 0,
            (_, 0) => 3 * latency.0 / 2,
            _ => 2 * latency.0,
        };
        let crawls = took.0 >= round.requests.saturating_mul(each);
        let ways = if crawls { round.jumps * latency.0 } else { 0 };
        let rate = round.rate(Nanos(took.0 - ways));
        if crawls {
            // The best rate forgets by 1/16 a round.
            self.rate = rate.max(self.rate - self.rate / 16);
            self.rounds = self.rounds.saturating_add(1);
        } else if 4 * rate > 5 * self.rate {
            *self = Self::default();
        }
    }

    /// Bytes a second, if it crawls.
    pub(in crate::wave) fn rate(self) -> Option<u64> {
        (self.rounds >= ROUNDS_MIN).then_some(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::{Crawls, Round};
    use crate::units::{Bytes, Nanos};
    use crate::wave::devices::device::Device;

    /// The worked example: four requests of 1 MiB under way all the time to a device of 10 ms, one of which comes back in so long; KB that it is
    /// priced by after each.
    #[test]
    fn what_crawls_is_believed_after_two_rounds_until_more_comes() {
        let mut device = Device::default();
        device.timed_alone(Nanos::from_ms(10));
        let mut sent: alloc::collections::VecDeque<_> =
            (0..4).map(|_| device.issued(Nanos(0), true)).collect();
        let mut now = Nanos(0);
        let mut priced_after = |every_ms: u64, bytes: u64| {
            now += Nanos::from_ms(every_ms);
            let took = Nanos::from_ms(4 * every_ms);
            device.finished(now, Bytes(bytes), took, sent.pop_front().unwrap(), false);
            sent.push_back(device.issued(now, true));
            device.priced_unit().0 / 1000
        };
        assert_eq!([97; 3].map(|ms| priced_after(ms, 1 << 20)), [1000, 120, 120]);
        // 128 KiB in 11 ms are as much. 1 MiB in 10 ms is more: one of them was carried at 26 MB/s, and the round says that it does not crawl.
        assert_eq!([11; 4].map(|ms| priced_after(ms, 1 << 17)), [120; 4]);
        assert_eq!([10; 2].map(|ms| priced_after(ms, 1 << 20)), [262, 1000]);
    }

    /// 72 KiB that continue what came before, of a head of 8 ms: its reader read elsewhere first, and the head went there and back.
    #[test]
    fn one_request_may_have_waited_for_the_reader_s_own() {
        let rate = |took_ms: u64| {
            let mut crawls = Crawls::default();
            for _ in 0..2 {
                let mut round = Round::begins(Nanos(0));
                round.came(Bytes(73_728), false);
                crawls.ended(&round, Nanos::from_ms(took_ms), Nanos::from_ms(8), true);
            }
            crawls.rate().map(|rate| rate / 1_000_000)
        };
        assert_eq!([17, 24].map(rate), [None, Some(3)]);
    }

    /// Two rounds of two requests each in so many ms, a lone read taking 10: MB/s of what crawls.
    #[test]
    fn who_does_not_jump_need_not_be_so_slow() {
        let rate = |took_ms: u64, jump: bool, is_head: bool| {
            let mut crawls = Crawls::default();
            for _ in 0..2 {
                let mut round = Round::begins(Nanos(0));
                (0..2).for_each(|_| round.came(Bytes(300_000), jump));
                crawls.ended(&round, Nanos::from_ms(took_ms), Nanos::from_ms(10), is_head);
            }
            crawls.rate().map(|rate| rate / 1_000_000)
        };
        assert_eq!([39, 40].map(|ms| rate(ms, true, false)), [None, Some(30)]);
        assert_eq!([29, 30].map(|ms| rate(ms, false, false)), [None, Some(20)]);
        assert_eq!(
            [6, 39].map(|ms| [false, true].map(|jump| rate(ms, jump, true))),
            [[Some(100), None], [Some(15), None]]
        );
    }
}
