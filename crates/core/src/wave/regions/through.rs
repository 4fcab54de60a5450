//! R11: files that are read through. If those before it were, the rest of a file comes with its first read.
//!
//! A tree is copied, packed or searched file by file. How long a run of pages is says nothing there, for a run ends where its file does. So it is counted
//! how many of the latest eight files of a device were read through (all but an eighth of their pages), before their readers left them:
//!
//! ```text
//! nfs (1 ms, in which 61 pages pass), files of 20 to 150 pages, in reads of 8
//!   three were left, all read through     of the next, 150 pages long, [8, 150) comes with the first read: less than three waits are worth
//!   then two of eight were not            the same: three in four were
//!   then three of eight were not          the first read opens what R1 and R9 say
//!   the latest eight were all             the rest may be as much as passes in a latency, if that is more: on s3 30 MB, and not 8
//! ```
//!
//! While three in four were read through, a run that began with its file is taken to go on to its end, whatever other runs did (R9). A file that is no
//! longer than its first read is not counted.

use crate::units::PageCount;
use crate::wave::streams::stream::Stream;
use crate::wave::{File, Wave};

/// Files that must have been left before they are believed.
const WITNESSES_MIN: u32 = 3;
/// The rest of a file that is likely to be read is worth so many waits.
const WAITS: u64 = 3;
/// A file was read through if all but one page in so many were read.
const MISSED: u64 = 8;

/// The latest files of a device that were longer than their first read, and left: which of them were read through.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Through {
    /// Bit 0 is the last.
    fates: u8,
    left: u8,
}

impl Through {
    /// A file of `pages` pages was left, of which so many were read.
    pub(in crate::wave) fn left(&mut self, pages: u64, read: u64) {
        self.fates = self.fates << 1 | u8::from(read >= pages - pages / MISSED);
        self.left = self.left.saturating_add(1);
    }

    /// Whether the next is likely to be: three in four were.
    fn is_likely(self) -> bool {
        let seen = u32::from(self.left).min(u8::BITS);
        seen >= WITNESSES_MIN && 4 * self.fates.count_ones() >= 3 * seen
    }

    /// Whether all of them were.
    fn is_sure(self) -> bool {
        self.fates == u8::MAX
    }
}

impl Wave {
    /// The rest of a file whose first read is of its first `pages`, if it is likely to be read, and costs no more than the waits that it saves. O(log).
    pub(in crate::wave) fn rest_of_file(&self, f: &File, pages: u64) -> Option<u64> {
        let queue = self.queues.get(&f.device).filter(|queue| queue.through.is_likely())?;
        let waits = WAITS * queue.device.unit_pages().max(pages);
        let passing = PageCount::holding(queue.device.bytes_per_latency()).0;
        let most = if queue.through.is_sure() { waits.max(passing) } else { waits };
        let rest = f.end.saturating_sub(pages);
        (rest > 0 && rest <= most.min(self.share())).then_some(rest)
    }

    /// Whether a run began with its file, and is likely to come to the end of it.
    pub(in crate::wave) fn goes_through(&self, f: &File, s: &Stream) -> bool {
        s.first == 0 && self.queues.get(&f.device).is_some_and(|queue| queue.through.is_likely())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, Extent, FileId, Nanos};
    use crate::wave::devices::device::tests::play;
    use crate::wave::{Action, Config, Input};

    #[test]
    fn three_in_four_say_so() {
        let after = |read: &[u64]| {
            let mut through = Through::default();
            read.iter().for_each(|&read| through.left(100, read));
            (through.is_likely(), through.is_sure())
        };
        assert_eq!(after(&[100; 2]), (false, false));
        assert_eq!(after(&[88; 3]), (true, false));
        assert_eq!(after(&[87; 3]), (false, false));
        assert_eq!(after(&[100; 8]), (true, true));
        assert_eq!(after(&[100, 100, 100, 100, 100, 1, 100, 1]), (true, false));
        assert_eq!(after(&[100, 100, 100, 100, 1, 1, 100, 1]), (false, false));
    }

    /// The second and the fourth line of the picture at the top, on a device in whose latency one connection carries some 30: what is asked for with the first read of a
    /// file of `pages` pages, after others of 20 were read so far.
    #[test]
    fn the_rest_of_a_file_comes_with_its_first_read() {
        let asked = |before: &[u64], pages: u64| {
            let mut wave = Wave::new(Config::default());
            wave.queue(0).device = play(16, 1_000, 500);
            let mut now = Nanos(1);
            let mut first = |wave: &mut Wave, file: u64, pages: u64, reads: u64| {
                let id = FileId(file);
                wave.handle(now, Input::Open { file: id, device: 0, size: Bytes(pages * 4096) });
                let mut asked = 0;
                for read in 0..reads {
                    let pages = Extent::new(8 * read, 8).intersection(Extent::new(0, pages));
                    wave.handle(now, Input::Read { file: id, pages, actor: 1 });
                    let sent: alloc::vec::Vec<Action> = core::iter::from_fn(|| wave.poll(now)).collect();
                    for action in &sent {
                        let Action::Fetch { id: fetch, pages, .. } = action;
                        asked = if read == 0 { pages.end().0.max(asked) } else { asked };
                        wave.handle(now, Input::Arrived { fetch: *fetch });
                    }
                    now = Nanos(now.0 + 1_000_000);
                    wave.handle(
                        now,
                        Input::Waited { file: id, pages, actor: 1, took: Nanos::from_ms(1), ended: now },
                    );
                    wave.check();
                }
                asked
            };
            before.iter().enumerate().for_each(|(i, &reads)| {
                first(&mut wave, i as u64, 20, reads);
            });
            first(&mut wave, 99, pages, 1)
        };
        assert_eq!(asked(&[3, 3, 3], 90), 90);
        assert!(asked(&[3, 3], 90) < 90);
        assert!(asked(&[3, 3, 1], 90) < 90);
        assert!(asked(&[3, 3, 3], 9_000) < 9_000, "more than waits are worth");
    }
}
