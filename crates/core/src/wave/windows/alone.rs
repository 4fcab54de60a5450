//! R9: how much is enough ahead of a reader who is alone in a file, goes from run to run upwards, and comes back to none.
//!
//! What is ahead of such a reader when it leaves a run was fetched in vain; what was not sent by then is taken back (ends.rs). The lengths of earlier
//! runs say how far a window may go (lengths.rs), so that 85 % of it are used on average. But where reading on costs no wait, or a short one beside the
//! read itself, a large window buys nothing. There no more is fetched ahead than
//!
//! ```text
//! a head that stands before what is read on       half of what it carries in one way, or one read if that is more     hdd             97 pages; never below 32
//! a device that answers soon, and reads as long   half of a read                                                      1 ms, 500 MB/s  256 pages, in reads of 2 MiB
//!   as four times what it carries in a latency
//! either of them, in a long run                   an eighth of the run so far, if that is more
//! any other device                                no limit here: a wait is dear                                       s3
//! ```
//!
//! A run whose end he has shown by a look that is believed (streams/look.rs) leaves nothing in vain, and is fetched to its end.
//!
//! Columns of a table, 0.2 to 6 MB each, are read 1 MiB at a time on hdd. A column has 2.8 MB on average, and without this 1 MB behind its end was fetched
//! in vain: 10 ms of carrying, and a way there and back if it was under way when the reader left.

use crate::units::PageCount;
use crate::wave::devices::device::PIECE_MIN;
use crate::wave::streams::stream::{Course, Stream};
use crate::wave::{File, Wave};

/// What is ahead is worth one part in so many of what passes in a way to elsewhere, or of a long read.
const PART: u64 = 2;
/// A read is long that is so many times what passes in a latency.
const LONG: u64 = 4;
/// Ahead of a long run is one part in so many of it.
const COME: u64 = 8;

impl Wave {
    /// Pages that are enough ahead of a stream whose reader goes from run to run and is alone; `None` where he is not, or a wait is dear. O(log files).
    pub(in crate::wave) fn enough_between_runs(&self, f: &File, s: &Stream) -> Option<u64> {
        let up = matches!(s.course, Course::Seed | Course::Forward);
        let alone = || f.has_one_reader() && f.goes_from_run_to_run();
        let queue = self.queues.get(&f.device).filter(|_| up && alone())?;
        let long = || {
            let passing = PageCount::holding(queue.device.bytes_per_latency()).0;
            queue.device.is_near() && queue.device.rate().is_some() && s.request >= LONG * passing
        };
        let enough = if queue.device.weighed_head() && queue.glides_with(s.returns.turn()) {
            s.request.max(self.unit(f) / PART).max(PIECE_MIN.0)
        } else if long() {
            s.request / PART
        } else {
            return None;
        };
        Some(enough.max(s.progress() / COME))
    }
}

#[cfg(test)]
mod tests {
    use crate::units::{Bytes, Extent, FileId, Nanos};
    use crate::wave::devices::device::tests::play;
    use crate::wave::streams::stream::tests::fetched_ahead;
    use crate::wave::windows::runs::Runs;

    /// The table at the top, after 256 pages of a run, and after 4,000.
    #[test]
    fn who_goes_from_run_to_run_has_little_ahead_where_that_costs_no_wait() {
        let enough = |device, request: u64, came: u64, turn: u64, left: bool| {
            let (mut wave, sid) = fetched_ahead(Extent::new(8192, 400), 300);
            wave.queue(0).device = device;
            wave.queue(0).turn_of(sid);
            let s = wave.streams.get_mut(sid).unwrap();
            (s.request, s.first, s.next) = (request, 8192 - came, 8192);
            s.returns.begins_with(turn);
            if left {
                wave.files.get_mut(&FileId(0)).unwrap().runs = Runs::left_for_good();
            }
            wave.enough_between_runs(&wave.files[&FileId(0)], wave.streams.get(sid).unwrap())
        };
        let hdd = || {
            let mut device = play(1, 8_000, 500);
            device.timed_alone(Nanos::from_ms(8));
            (0..2).for_each(|_| device.read_on(Bytes(128 << 10), Nanos::from_us(1300), true));
            device
        };
        let (near, s3) = (|| play(4, 1_000, 500), || play(64, 30_000, 500));
        assert_eq!(enough(hdd(), 4, 256, 1, true), Some(97));
        assert_eq!(enough(hdd(), 256, 256, 1, true), Some(256));
        assert_eq!(enough(hdd(), 4, 4000, 1, true), Some(500));
        assert_eq!(enough(hdd(), 4, 256, 0, true), None, "somebody else moves the head");
        assert_eq!(enough(hdd(), 4, 256, 1, false), None, "he may be back");
        assert_eq!(enough(near(), 512, 512, 0, true), Some(256));
        assert_eq!(enough(near(), 4, 256, 0, true), None);
        assert_eq!(enough(s3(), 256, 256, 0, true), None);
    }
}
