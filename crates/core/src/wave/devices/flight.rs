//! How many requests of ours may be in flight: steered, not measured.
//!
//! It grows when it held something back and few requests were slow, and it shrinks by a quarter when requests only wait for one another. As long
//! as they never did it doubles, up to 64; then it grows by half, for each step too far makes readers wait behind what nobody needs yet:
//!
//! ```text
//!   s3: 30 ms, 64 at once         in flight  64, all done after 33 ms: free to grow
//!                                            96 -> 144: most of them done after 66 ms: queueing, back to 108
//!   hdd: 8 ms, one at a time      in flight  8, each done after the ones before it: no growth
//!
//!   after as many as may be, quick or slow     8   quick 16   quick 32   quick 64   quick 96   slow 72   slow 54   slow 41   quick 61   quick 91
//! ```
//!
//! What is slow is not said here: the device compares a request's time with the best time seen of a request of its size class, so a slow device is
//! not mistaken for a busy one (delay-based congestion control, as TCP Vegas has it).

use crate::wave::memory::shares::UNITS_FIRST;

/// Requests in flight that even an unknown or busy device gets: two for each of a few streams.
const FLIGHT_MIN: u32 = 8;
/// Requests in flight that a device of long latency gets before its rate is known: what the object stores' own limits are.
const FLIGHT_FIRST: u32 = 64;
/// Requests that may go out beside those for each reader that waits.
const FLIGHT_FOR_WAITING: u32 = 4;
/// The most: what a FUSE mount queues without blocking (max_background of the slow store: 512).
const FLIGHT_MAX: u32 = 512;

/// What is out, and how much may be.
#[derive(Clone, Debug)]
pub(in crate::wave) struct Flight {
    max: u32,
    /// Requests that are out now.
    out: u32,
    /// Requests that are out now and have jumped.
    jumping: u32,
    /// Whether the limit held anything back since it last changed.
    limited: bool,
    /// More than now were too many once.
    shrunk: bool,
    /// Requests that came back since the limit last changed, and how many of them were slow.
    back: u32,
    slow: u32,
}

/// How a request of ours went out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// It continued neither the one sent before nor one under way.
    pub(in crate::wave::devices) jump: bool,
    /// None of ours was under way.
    pub(in crate::wave::devices) alone: bool,
    /// Of ours so many were under way then that had jumped, with it.
    pub(in crate::wave::devices) jumping: u32,
}

impl Default for Flight {
    fn default() -> Self {
        Self { max: FLIGHT_MIN, out: 0, jumping: 0, limited: false, shrunk: false, back: 0, slow: 0 }
    }
}

impl Flight {
    /// Requests that may be in flight.
    pub(in crate::wave) fn max(&self) -> u32 {
        self.max
    }

    /// The same of a device that has carried nothing yet, if it is a pipe of so many requests: what a stream opens its window by. A disk needs few.
    pub(in crate::wave) fn max_of_pipe(&self, requests: u32) -> u32 {
        let opens = if requests > FLIGHT_MIN { UNITS_FIRST as u32 * requests } else { requests };
        self.max.max(opens.min(FLIGHT_FIRST))
    }

    /// Whether more than now were too many once.
    pub(in crate::wave) fn was_too_many(&self) -> bool {
        self.shrunk
    }

    /// Whether more may be in flight than of a device of which nothing is known.
    pub(in crate::wave) fn grew(&self) -> bool {
        self.max > FLIGHT_MIN
    }

    /// Requests that are in flight.
    pub(in crate::wave) fn out(&self) -> u32 {
        self.out
    }

    /// Whether one more may go out where `max` may be, while so many readers wait for the device themselves. What is fetched for those lies next
    /// to what they wait for: their requests stand in the queue anyway, so a few of ours may join each.
    pub(in crate::wave) fn has_room(&mut self, max: u32, waiting: u32) -> bool {
        self.max = max;
        let room = self.out < max.saturating_add(FLIGHT_FOR_WAITING * waiting).min(FLIGHT_MAX);
        self.limited |= !room;
        room
    }

    /// One goes out; `jump` if it continues neither the one sent before nor one under way.
    pub(in crate::wave) fn issued(&mut self, jump: bool) -> Sent {
        self.out += 1;
        self.jumping += u32::from(jump);
        Sent { jump, alone: self.out == 1, jumping: self.jumping }
    }

    /// One is not in flight any more, whatever became of it.
    pub(in crate::wave) fn gone(&mut self, sent: Sent) {
        self.out = self.out.saturating_sub(1);
        self.jumping = self.jumping.saturating_sub(u32::from(sent.jump));
    }

    /// One of those has come back, slow or not. When as many have as may be out, the limit is looked at.
    pub(in crate::wave) fn came_back(&mut self, slow: bool) {
        self.back += 1;
        self.slow += u32::from(slow);
        if self.back < self.max {
            return;
        }
        if 4 * self.slow > 3 * self.back {
            self.max = (self.max - self.max / 4).max(FLIGHT_MIN);
            self.shrunk = true;
        } else if self.limited && 4 * self.slow < self.back {
            let doubles = !self.shrunk && self.max < FLIGHT_FIRST;
            let more = if doubles { self.max } else { self.max / 2 };
            self.max = (self.max + more).min(FLIGHT_MAX);
        }
        (self.back, self.slow, self.limited) = (0, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit after as many as it allows went out, held one more back, and came back so.
    fn max_after(flight: &mut Flight, slow: bool) -> u32 {
        let sent: alloc::vec::Vec<Sent> = (0..flight.max()).map(|_| flight.issued(false)).collect();
        assert!(!flight.has_room(flight.max(), 0));
        for sent in sent {
            flight.gone(sent);
            flight.came_back(slow);
        }
        flight.max()
    }

    /// The last line of the picture.
    #[test]
    fn once_too_many_were_out_it_grows_by_half() {
        let mut flight = Flight::default();
        let mut after = |slow: bool| max_after(&mut flight, slow);
        assert_eq!([false; 4].map(&mut after), [16, 32, 64, 96]);
        assert_eq!([true, true, true, false, false].map(&mut after), [72, 54, 41, 61, 91]);
        assert_eq!([false; 9].map(&mut after)[3..6], [459, 512, 512]);
        assert_eq!([true; 16].map(&mut after)[13..], [11, 9, 8]);
    }

    /// None was held back: who has no more to ask for needs no more.
    #[test]
    fn what_holds_nothing_back_does_not_grow() {
        let mut flight = Flight::default();
        (0..99).for_each(|_| flight.came_back(false));
        assert_eq!(flight.max(), 8);
    }

    /// Requests of a pipe, and how many open a window of it; four more for each who waits.
    #[test]
    fn a_pipe_is_opened_by_what_it_holds() {
        let flight = Flight::default();
        assert_eq!([0, 8, 9, 21, 22].map(|requests| flight.max_of_pipe(requests)), [8, 8, 27, 63, 64]);
        let room = |out: u32, waiting: u32| Flight { out, ..flight.clone() }.has_room(8, waiting);
        assert_eq!(
            [(7, 0), (8, 0), (15, 2), (16, 2)].map(|(out, n)| room(out, n)),
            [true, false, true, false]
        );
        assert!(!room(512, 999));
    }
}
