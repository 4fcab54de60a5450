//! Whether a device has one head, learnt from reads that began while one request of ours was under way.
//!
//! Where a program reads at random beside a stream on a disk, few requests of ours jump: each continues the window before it. But some reads of
//! the program begin while one of our requests is under way. A head serves such a read after ours; where requests overlap it is served meanwhile:
//!
//! ```text
//!   its read       |---------------------------->|     hdd   13 ms, of which 8 after ours has come: as long as a lone read takes
//!   ours       |---------->|                           nfs   1 ms, of which half after ours has come; little, if ours is long and so is carried first
//! ```
//!
//! A head is shown by four reads that ended as long after ours as a lone read takes (three quarters of that will do), if they are three times as many
//! as those that ended within half of that time. That a device has no head is not learnt here: jumps of ours tell it (jumps.rs).

/// Reads that must have stood.
const STOOD_MIN: u8 = 4;
/// And so many times as many as did not.
const MORE: u8 = 3;
/// Both are halved when so many were seen.
const SEEN_MAX: u8 = 32;

/// Reads that found one request of ours on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Behind {
    stood: u8,
    passed: u8,
}

impl Behind {
    /// A read ended `since_ns` after the latest of ours had come, and had begun `waited_ns` before; lone ones take `alone_ns`. Less than a quarter
    /// of that is no wait, and something between three quarters and a half no word. Returns whether the device has one head.
    pub(in crate::wave) fn read(&mut self, waited_ns: u64, since_ns: u64, alone_ns: u64) -> bool {
        if 4 * waited_ns < alone_ns {
            return false;
        }
        self.stood += u8::from(4 * since_ns >= 3 * alone_ns);
        self.passed += u8::from(2 * since_ns <= alone_ns);
        let head = self.stood >= STOOD_MIN && self.stood >= MORE.saturating_mul(self.passed);
        if self.stood + self.passed >= SEEN_MAX {
            (self.stood, self.passed) = (self.stood / 2, self.passed / 2);
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture at the top, in us: read after read.
    #[test]
    fn who_stands_in_line_shows_a_head() {
        let after = |reads: &[(u64, u64)], alone_us: u64| {
            let mut behind = Behind::default();
            reads.iter().fold(false, |_, &(waited, since)| behind.read(waited, since, alone_us))
        };
        assert!(!after(&[(5_000, 8_000); 3], 8_000));
        assert!(after(&[(5_000, 8_000); 4], 8_000));
        assert!(!after(&[(1_900, 8_000); 99], 8_000), "too little to tell");
        assert!(!after(&[(500, 500); 99], 1_000), "nfs");
        assert!(!after(&[(2_000, 10); 99], 1_000), "nfs, behind half a megabyte");
        let mixed = |stood: usize, passed: usize| {
            let mut reads = alloc::vec![(500, 500); passed];
            reads.extend(alloc::vec![(500, 1000); stood]);
            after(&reads, 1_000)
        };
        assert_eq!((mixed(8, 3), mixed(9, 3)), (false, true));
        assert!(!mixed(4, 30), "a hiccup now and then");
    }
}
