//! How many small requests a device works on at once: learnt from what it costs to go elsewhere while others are under way.
//!
//! A head pays a seek for each jump (a request that does not begin where another ended). Where requests overlap, all of the time between two arrivals is
//! spent on carrying. But a request that went out when nothing else was under way arrives one latency later from either kind of device. So a jump
//! tells of its device only where its own latency does not explain when it came:
//!
//! ```text
//! it stood in line for a latency when the one before it came;        what passed since that one came is what the jump
//! or for a quarter of one, and came so much later than one alone;    cost, with its carrying
//! or was the fourth under way that had jumped, and came within
//!   1 1/2 times what one alone takes
//! none of these: it begins a leg, with the requests behind it        the same of the whole leg, if that carries for a latency or
//!   that do not jump                                                 longer: several connections would have brought it sooner
//!
//! hdd, beside others, after 3.9 ms in line      11.9 ms, 3.9 later than alone, 8.0 after the one before: a jump of 8.0 ms
//! hdd, reverse windows of 8 x 128 KiB           18.5 ms = 8 ms + 8 x 1.3 ms, one jump: 8 ms of 8 ms, overlap 1
//! nfs, 32 streams, 128 KiB each                 0.5 ms = 0.5 ms, a jump each: nothing, overlap 16 (the most)
//! s3, 136 pages at a time, 5 requests           31 ms, of which 5.6 are carrying: a leg too short to say anything
//! s3, files of 8 MiB, 8 requests                40 ms, which is less than the 84 ms that one connection takes: nothing
//! hdd, members of an archive, one at a time     8 ms each, and each came one latency after it was sent: no word
//! hdd, beside one that its reader waits for     9 ms, 4 of them after what came before: the head was there, and one jump is not four
//! the same, 6 ms after it was sent              sooner than any that jumps: none
//! hdd twice as fast as is known yet, behind one   2.6 ms, 0.65 after what came before: carried in that, not in the 1.3 that it is
//!                                               taken to need, of which eleven would seem to bring the jump's 9 ms back
//! ```
//!
//! What comes behind a jump without one tells of it for a latency's worth of carrying, and of a leg what was sent before the jump was
//! back. Of 400 ms in order it would be told that they were 416, since nobody knows the rate so well, and eight jumps would seem to
//! have cost 2 ms more each than they did, or nothing.
//!
//! Four jumps make the first figure, eight one of those that follow, and each weighs as much as all before it.

use crate::units::Nanos;
use crate::wave::devices::behind::Behind;

/// Requests that have jumped of which it can be told whether they overlap: a head serves four one by one, and what serves two of them at
/// once is taken to serve more.
const TOGETHER_MIN: u32 = 4;
/// Requests that a device is taken to overlap at most.
const OVERLAP_MAX: u64 = 16;
/// Jumps after which the overlap is reckoned first: two readers in turn may jump no more often before they have what they need.
const JUMPS_FIRST: u64 = 4;
/// And again.
const JUMPS: u64 = 8;

/// What is known of jumps.
#[derive(Clone, Debug)]
pub(in crate::wave) struct Jumps {
    /// Small requests that the device works on at once, in 1/256: 16 until it is known better.
    overlap_256: u64,
    /// Whether that was measured.
    weighed: bool,
    /// The latest arrival, or when the first request went out since nothing was under way.
    since: Nanos,
    /// Time that passed since the overlap was last reckoned, as far as it tells.
    busy_ns: u64,
    /// Time that the bytes take that were carried in it.
    carrying_ns: u64,
    /// Jumps in it.
    jumps: u64,
    /// Requests that had jumped and were under way when each of those jumps was sent, summed.
    flying: u64,
    leg: Option<Leg>,
    /// Readers who found one of ours on the way.
    behind: Behind,
    /// Carrying behind the latest jump that still tells of it.
    behind_ns: u64,
    /// What a jump cost when that was reckoned last, and the time before.
    cost_ns: [u64; 2],
}

/// A jump that its own latency may explain, and what came behind it.
#[derive(Clone, Copy, Debug)]
struct Leg {
    /// When the jump arrived: what was sent later says how soon it was asked for.
    arrived: Nanos,
    busy_ns: u64,
    carrying_ns: u64,
    /// Time that the bytes of all of it take.
    length_ns: u64,
    jumping: u32,
}

/// A request of ours that has arrived.
#[derive(Clone, Copy, Debug)]
pub(in crate::wave) struct Arrival {
    pub(in crate::wave) took_ns: u64,
    /// What one connection takes to carry its bytes.
    pub(in crate::wave) carrying_ns: u64,
    /// It continued nothing when it went out, nor the one that came before it.
    pub(in crate::wave) jump: bool,
    /// So many that had jumped were under way when it went out, with it where it had.
    pub(in crate::wave) jumping: u32,
    /// Nothing is under way any more.
    pub(in crate::wave) last: bool,
}

impl Default for Jumps {
    fn default() -> Self {
        Self {
            overlap_256: OVERLAP_MAX * 256,
            weighed: false,
            since: Nanos(0),
            busy_ns: 0,
            carrying_ns: 0,
            jumps: 0,
            flying: 0,
            leg: None,
            behind: Behind::default(),
            behind_ns: 0,
            cost_ns: [0; 2],
        }
    }
}

impl Jumps {
    pub(in crate::wave) fn overlap_256(&self) -> u64 {
        self.overlap_256
    }

    pub(in crate::wave) fn weighed(&self) -> bool {
        self.weighed
    }

    /// What a jump cost at least, as was reckoned twice; 0 before.
    pub(in crate::wave) fn cost_ns(&self) -> u64 {
        self.cost_ns[0].min(self.cost_ns[1])
    }

    /// Something goes out when nothing was under way.
    pub(in crate::wave) fn begun(&mut self, now: Nanos) {
        self.since = now;
    }

    /// Time since the latest arrival.
    pub(in crate::wave) fn since_last(&self, now: Nanos) -> Nanos {
        now.since(self.since)
    }

    /// A request has arrived at a device of that latency.
    pub(in crate::wave) fn arrived(&mut self, now: Nanos, a: Arrival, latency_ns: u64) {
        let gap_ns = now.since(core::mem::replace(&mut self.since, now)).0;
        let waited_ns = a.took_ns.saturating_sub(gap_ns);
        let late_ns = a.took_ns.saturating_sub(latency_ns + a.carrying_ns);
        let stood = waited_ns >= latency_ns
            || 4 * waited_ns >= latency_ns && 4 * late_ns.abs_diff(waited_ns) <= waited_ns;
        let prompt = a.jumping >= TOGETHER_MIN && 2 * a.took_ns <= 3 * (latency_ns + a.carrying_ns);
        // Sooner than any that jumps: its reader had brought the head there.
        let soon = 8 * a.took_ns < 7 * latency_ns;
        let beside = a.jump && soon;
        let jump = a.jump && !beside;
        if (stood || prompt) && (jump || self.behind_ns > 0) {
            self.busy_ns += gap_ns;
            // What came so soon was carried in the time since the one before it, however fast that is.
            self.carrying_ns += if soon { a.carrying_ns.min(gap_ns) } else { a.carrying_ns };
        }
        let behind_ns = if beside { 0 } else { self.behind_ns.saturating_sub(a.carrying_ns) };
        self.behind_ns = if jump { latency_ns } else { behind_ns };
        if a.jump {
            self.close_leg(latency_ns);
        }
        if jump {
            if stood || prompt {
                self.jumps += 1;
                self.flying += u64::from(a.jumping);
            } else {
                let (busy_ns, carrying_ns, jumping) = (gap_ns, a.carrying_ns, a.jumping);
                self.leg = Some(Leg { arrived: now, busy_ns, carrying_ns, length_ns: carrying_ns, jumping });
            }
        } else if let Some(leg) = self.leg.as_mut().filter(|leg| a.took_ns >= now.since(leg.arrived).0) {
            leg.length_ns += a.carrying_ns;
            if !stood {
                leg.busy_ns += gap_ns.min(a.carrying_ns);
                leg.carrying_ns += a.carrying_ns;
            }
        }
        if a.last {
            self.close_leg(latency_ns);
        }
        if self.jumps >= if self.weighed { JUMPS } else { JUMPS_FIRST } {
            self.reckon(latency_ns);
        }
    }

    /// A lone read that takes `alone_ns` where nothing is under way took so long: what of ours arrived meanwhile says whether it stood behind that.
    /// Until jumps of ours tell more.
    pub(in crate::wave) fn read_beside(&mut self, now: Nanos, took: Nanos, alone_ns: u64) {
        let since = self.since_last(now);
        if !self.weighed && self.behind.read(took.0.saturating_sub(since.0), since.0, alone_ns) {
            (self.overlap_256, self.weighed) = (256, true);
        }
    }

    fn close_leg(&mut self, latency_ns: u64) {
        if let Some(leg) = self.leg.take().filter(|leg| leg.length_ns >= latency_ns) {
            self.busy_ns += leg.busy_ns;
            self.carrying_ns += leg.carrying_ns;
            self.jumps += 1;
            self.flying += u64::from(leg.jumping);
        }
    }

    fn reckon(&mut self, latency_ns: u64) {
        let cost = self.busy_ns.saturating_sub(self.carrying_ns) / self.jumps;
        let overlap = (256 * latency_ns / cost.max(1)).clamp(256, OVERLAP_MAX * 256);
        // Where several overlapped about as much as they were together, more would have overlapped more.
        let several = self.flying >= u64::from(TOGETHER_MIN) * self.jumps;
        let all = several && 2 * overlap * self.jumps >= 256 * self.flying;
        let overlap = if all { OVERLAP_MAX * 256 } else { overlap };
        self.overlap_256 = if self.weighed { (self.overlap_256 + overlap) / 2 } else { overlap };
        self.weighed = true;
        self.cost_ns = [cost, self.cost_ns[0]];
        (self.busy_ns, self.carrying_ns, self.jumps, self.flying) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `bursts` of `count` requests of `pages` pages, the first of each a jump, to a device that needs `latency_us` for a jump
    /// and 41 us a page: one after the other, or `parallel`. Requests of one burst go out together, the next when all are there.
    fn overlap_after(bursts: u64, count: u64, pages: u64, latency_us: u64, parallel: bool) -> Option<u64> {
        let (mut jumps, mut now) = (Jumps::default(), Nanos(0));
        for _ in 0..bursts {
            let begun = now;
            jumps.begun(now);
            for i in 0..count {
                let carrying_ns = pages * 41_000;
                let carried_ns = if parallel { carrying_ns } else { (i + 1) * carrying_ns };
                now = Nanos(begun.0 + latency_us * 1000 + carried_ns);
                let took_ns = now.since(begun).0;
                let (jump, jumping) = (i == 0, 1);
                let arrival = Arrival { took_ns, carrying_ns, jump, jumping, last: i + 1 == count };
                jumps.arrived(now, arrival, latency_us * 1000);
            }
        }
        jumps.weighed().then_some(jumps.overlap_256())
    }

    /// The lines of the picture at the top.
    #[test]
    fn only_what_its_own_latency_does_not_explain_counts() {
        assert_eq!(overlap_after(8, 8, 32, 8_000, false), Some(256), "reverse windows on hdd");
        assert_eq!(overlap_after(8, 5, 27, 30_000, true), None, "136 pages at a time on s3");
        assert_eq!(overlap_after(8, 8, 256, 30_000, true), Some(OVERLAP_MAX * 256), "files on s3");
        assert_eq!(overlap_after(8, 8, 256, 8_000, false), Some(256), "files on hdd");
        assert_eq!(overlap_after(99, 1, 24, 8_000, false), None, "members on hdd");
    }

    /// The head was brought there by what the reader reads himself, or what follows was asked for later and seen late.
    #[test]
    fn what_lies_beside_a_reader_s_own_read_says_nothing() {
        let behind_others = [(6_000, 9_300, false), (6_100, 9_300, false), (10_000, 9_300, true)];
        let before_others = [(6_500, 6_500, true), (7_800, 6_500, false), (20_000, 6_500, false)];
        let seen_late = [(9_000, 9_000, true), (16_500, 6_500, false), (16_500, 6_500, false)];
        for arrivals in [behind_others, before_others, seen_late] {
            let mut jumps = Jumps::default();
            for i in 0..99 {
                jumps.begun(Nanos::from_us(40_000 * i));
                for (k, (at_us, took_us, jump)) in arrivals.into_iter().enumerate() {
                    let (took_ns, carrying_ns) = (took_us * 1000, 4_000_000);
                    let arrival = Arrival { took_ns, carrying_ns, jump, jumping: 1, last: k == 2 };
                    jumps.arrived(Nanos::from_us(40_000 * i + at_us), arrival, 8_000_000);
                }
            }
            assert!(!jumps.weighed());
        }
    }

    /// On s3 it would have come 26 ms after the one before it, one latency after it was sent.
    #[test]
    fn who_stood_in_line_for_a_while_comes_so_much_later() {
        for (latency_us, gap_us, weighed) in [(8_000, 8_000, true), (30_000, 26_000, false)] {
            let mut jumps = Jumps::default();
            for i in 1..=9 {
                let took_ns = (3_900 + gap_us) * 1000;
                let arrival = Arrival { took_ns, carrying_ns: 40_000, jump: true, jumping: 2, last: false };
                jumps.arrived(Nanos::from_us(gap_us * i), arrival, latency_us * 1000);
            }
            assert_eq!(jumps.weighed(), weighed);
            assert!(!weighed || jumps.overlap_256() < 260);
        }
    }

    /// 50 windows in order between two jumps take 4 % longer than they are thought to.
    #[test]
    fn a_long_stretch_in_order_says_nothing_of_jumps() {
        for (slower_ns, faster_ns) in [(52_000, 0), (0, 52_000)] {
            let mut jumps = Jumps::default();
            let mut now = 0;
            for i in 0..8 * 51 {
                let (jump, carrying_ns) = (i % 51 == 0, 1_310_000);
                now += if jump { 9_310_000 } else { carrying_ns + slower_ns - faster_ns };
                let arrival = Arrival { took_ns: 40_000_000, carrying_ns, jump, jumping: 1, last: false };
                jumps.arrived(Nanos(now), arrival, 8_000_000);
            }
            assert!(jumps.weighed() && jumps.overlap_256() < 256 * 5 / 4, "{}", jumps.overlap_256());
        }
    }

    /// A disk of 14 ms and 200 MB/s by which nothing was carried yet but 128 KiB in 1.3 ms; 16 of them behind each jump.
    #[test]
    fn a_disk_that_is_faster_than_known_is_a_disk() {
        let (mut jumps, mut now) = (Jumps::default(), 0);
        for i in 0..4 * 17 {
            let jump = i % 17 == 0;
            let (gap_ns, took_ns) = if jump { (9_100_000, 32_000_000) } else { (655_000, 2_620_000) };
            now += gap_ns;
            let arrival = Arrival { took_ns, carrying_ns: 1_310_000, jump, jumping: 4, last: false };
            jumps.arrived(Nanos(now), arrival, 14_400_000);
        }
        assert!(jumps.weighed() && jumps.overlap_256() < 256 * 2, "{}", jumps.overlap_256());
    }

    /// 32 streams have one request each under way, and each jumps.
    #[test]
    fn many_that_jump_tell_a_head_from_others() {
        for (one_ns, overlap) in [(500_000, OVERLAP_MAX * 256), (8_500_000, 256)] {
            let mut jumps = Jumps::default();
            for i in 0..64 {
                let (took_ns, carrying_ns) = (32 * one_ns, 500_000);
                let arrival = Arrival { took_ns, carrying_ns, jump: true, jumping: 32, last: false };
                jumps.arrived(Nanos(i * one_ns), arrival, 8_000_000);
            }
            assert_eq!(jumps.overlap_256(), overlap);
        }
    }
}
