//! R3: whether who reads on has to wait, learnt from what came sooner than anything that has to go somewhere first.
//!
//! A head that has read one page stands before the next, and a server that reads ahead has it in memory. There a reader alone gains little by what
//! is fetched ahead: it saves time only while the reader is busy with what it has read. So a quarter of what was read is fetched ahead, and not four
//! times as much, until it is known how long runs are, somebody else has read there too, or the reader waited after all. Where half a megabyte is
//! read and the rest left, 96 KiB were fetched in vain then, instead of 1.5 MiB.
//!
//! ```text
//! lone reads take 8 ms          so a glide is what takes at most 4, and at least half of what carrying it takes, else it lay in a cache
//!
//! hdd, 128 KiB behind a read                    1.3 ms    one glide
//! the next, behind that                         2.6 ms    two: known until one takes 6 ms
//! hdd, four of them behind one another          5.2 ms    no word
//! hdd, 128 KiB elsewhere                        9.3 ms    half of the glides, if it was to read on; no word of a jump
//! hdd, 1 MiB behind a read                     10.7 ms    no word: carrying it takes all of that
//! hdd, weighed, 128 KiB that continue what      1.3 ms    one glide: counted from when what came before them had come, for until
//!   came before them                                        then they stood in line
//! hdd, 16 KiB that were there                   0.02 ms   no word: carrying them takes 0.16
//! s3, 128 KiB                                   31 ms     lone reads take 30: never a glide
//! nfs, 128 KiB                                  1.5 ms    lone reads take 1: never
//! ```
//!
//! A glide is not timed as a lone read, even if nobody knows the stream that it belongs to: else the time that lone reads take would be forgotten.
//!
//! What glides is taken for a head until its jumps were weighed (jumps.rs).

use crate::units::Nanos;

/// Glides after which it is known.
const KNOWN: u32 = 2;
/// And after which more make no difference.
const GLIDES_MAX: u32 = 8;

/// Whether a read took so little of what lone ones take that nothing had to go anywhere for it: half at most.
pub(in crate::wave) fn is_glide(took: Nanos, lone_ns: u64) -> bool {
    2 * took.0 <= lone_ns
}

/// Whether a read took as long as if something had to go somewhere for it: three quarters of what lone ones take, beside what carrying it takes.
pub(in crate::wave) fn is_way(took: Nanos, carrying_ns: u64, lone_ns: u64) -> bool {
    4 * took.0.saturating_sub(carrying_ns) >= 3 * lone_ns
}

/// What came of reading on.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Glides(u32);

impl Glides {
    /// A request or a read that takes `carrying_ns` to carry took so long, where lone reads take `lone_ns`; `on` if it was to read on, and
    /// nothing of ours was under way.
    pub(in crate::wave) fn took(&mut self, took: Nanos, carrying_ns: u64, lone_ns: u64, on: bool) {
        if is_glide(took, lone_ns) && 2 * took.0 >= carrying_ns {
            self.0 = (self.0 + 1).min(GLIDES_MAX);
        } else if on && is_way(took, carrying_ns, lone_ns) {
            self.0 /= 2;
        }
    }

    /// Whether who reads on has not to wait.
    pub(in crate::wave) fn known(self) -> bool {
        self.0 >= KNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::Glides;
    use crate::units::{Bytes, Extent, FileId, Nanos};
    use crate::wave::{Config, Input, Wave};

    /// The worked example: lone reads of 8, 30 and 1 ms, and what was timed since, in us, with what carrying it takes and whether it was
    /// to read on.
    #[test]
    fn only_who_reads_on_glides() {
        let glides = |lone_us: u64, timed: &[(u64, u64, bool)]| {
            let mut glides = Glides::default();
            for &(took, carrying, on) in timed {
                glides.took(Nanos::from_us(took), carrying * 1000, lone_us * 1000, on);
            }
            (glides.0, glides.known())
        };
        assert_eq!(glides(8_000, &[(1_300, 1_300, true)]), (1, false));
        let two = [(1_300, 1_300, true), (2_600, 1_300, false)];
        let and = |more: (u64, u64, bool)| glides(8_000, &[two[0], two[1], more]);
        assert_eq!(glides(8_000, &two), (2, true));
        assert_eq!(and((5_200, 1_300, false)), (2, true));
        assert_eq!(and((9_300, 1_300, false)), (2, true), "a jump");
        assert_eq!(and((9_300, 1_300, true)), (1, false), "he has read on, and waited");
        assert_eq!(and((10_700, 10_500, true)), (2, true), "1 MiB: all of that is carrying");
        assert_eq!(and((20, 160, false)), (2, true), "it was there");
        assert_eq!(glides(30_000, &[(31_000, 1_300, true); 9]), (0, false), "s3");
        assert_eq!(glides(1_000, &[(1_500, 500, false); 9]), (0, false), "nfs");
        assert_eq!(glides(8_000, &[(1_300, 1_300, true); 99]).0, 8);
    }

    /// Four lone reads here and there took 8 ms each, three more take 82 us. Where what was fetched last ended right before them the head stood
    /// there, and they say nothing of the way to anywhere; elsewhere they do.
    #[test]
    fn where_the_head_stood_a_read_tells_no_latency() {
        let latency = |last_end: u64| {
            let (mut wave, id) = (Wave::new(Config::default()), FileId(0));
            wave.handle(Nanos(0), Input::Open { file: id, device: 0, size: Bytes(16 << 30) });
            for (i, page) in [9_000, 700_000, 40_000, 300_000, 5_000, 500_000, 80_000].into_iter().enumerate()
            {
                let (now, pages) = (Nanos::from_ms(100 * i as u64), Extent::new(page, 2));
                let took = if i < 4 { Nanos::from_ms(8) } else { Nanos::from_us(82) };
                wave.queue(0).last_end = (id, if i < 4 { 0 } else { page + last_end });
                wave.handle(now, Input::Read { file: id, pages, actor: 0 });
                wave.handle(now, Input::Waited { file: id, pages, actor: 0, took, ended: now });
                wave.check();
            }
            wave.queue(0).device.latency()
        };
        assert_eq!(latency(0), Some(Nanos::from_ms(8)));
        assert_eq!(latency(2), Some(Nanos::from_us(82)));
    }
}
