//! R12: whether it is worth while to fetch for short runs and regions, where memory loses it before it is read.
//!
//! In a file that is read at random and larger than memory, reads meet by chance, and what is fetched for such runs is gone before its
//! turn comes. That is seen late, for a page is lost only when as much as memory holds was fetched after it. So who has lost much
//! fetches nothing of the kind for a while, and then a little, to see whether it is different now:
//!
//! ```text
//! free       more is lost, of late, than 64 pages and 15 % of what was read                               losing
//! losing     as much was read as memory holds, and what was lost is forgotten                             on trial
//! on trial   a sixteenth of memory was fetched ahead: no more, until it has shown what it is worth
//!            half of that is read                                                                         free
//!            it is not, though as much was read as memory holds; or much was lost again                   losing, for twice as long,
//!                                                                                                         and so on up to 32 times
//!
//! 8 MiB, 2048 pages; 64 MiB are read at random, and of what regions bring an eighth is read before it is gone
//!   680 read    232 lost > 64 + 15 % of those    losing
//!  4949 read    14 lost, since half was forgotten four times: on trial, 128 pages are fetched, 16 of them are read
//!  6997 read    losing, until 4096 more were read
//! ```
//!
//! "Of late": both counts are halved whenever as many pages were read as memory is believed to hold, which is about how long a page
//! stays. Where much is lost again before eight times as much was read as memory holds nothing has changed, and the time doubles; later
//! it begins anew.

use crate::wave::memory::losses::LOST_FEW;

/// Where much is lost again before so many times as much was read as memory holds, nothing has changed, and losing lasts twice as long.
const RELAPSE_FULLS: u64 = 8;
/// Times at most that it doubles.
const RELAPSES_MAX: u32 = 5;
/// One page in so many of what memory holds is fetched on trial.
const TRIAL_SHARE: u64 = 16;

/// What is known of it, all in pages.
#[derive(Clone, Copy, Debug)]
pub(in crate::wave) struct Trials {
    /// Of late, pages that the cache lost before anybody read them, and pages that were missing when they were read.
    lost: u64,
    read: u64,
    state: State,
    /// Pages that readers missed since that began.
    read_since: u64,
    relapses: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Losing,
    /// What had been fetched ahead when it began, and how much of that had been read; and whether what may be tried was fetched.
    Trial {
        ahead: u64,
        useful: u64,
        spent: bool,
    },
}

/// What trials are held against, all in pages but the share.
#[derive(Clone, Copy, Debug)]
pub(in crate::wave) struct Scale {
    /// What memory holds, and what is believed of it.
    pub(in crate::wave) memory: u64,
    pub(in crate::wave) believed: u64,
    /// Of a hundred pages read so many may be lost.
    pub(in crate::wave) waste_percent: u64,
    /// What was fetched ahead so far, and what of it was read.
    pub(in crate::wave) ahead: u64,
    pub(in crate::wave) useful: u64,
}

impl Default for Trials {
    fn default() -> Self {
        // Nothing was lost for as long as anybody knows.
        Self { lost: 0, read: 0, state: State::Free, read_since: u64::MAX / 2, relapses: 0 }
    }
}

impl Trials {
    /// So many pages were gone before anybody read them.
    pub(in crate::wave) fn lost(&mut self, pages: u64) {
        self.lost += pages;
    }

    /// So many pages were missing when somebody read them.
    pub(in crate::wave) fn missed(&mut self, pages: u64) {
        self.read += pages;
        self.read_since += pages;
    }

    /// So many that had been fetched ahead were read.
    pub(in crate::wave) fn used(&mut self, pages: u64) {
        self.read += pages;
    }

    /// Pages that were lost of late, half of them forgotten now and then.
    #[cfg(test)]
    pub(in crate::wave) fn lost_of_late(&self) -> u64 {
        self.lost
    }

    /// Whether nothing is to be fetched for short runs and regions.
    pub(in crate::wave) fn hold_back(&self) -> bool {
        matches!(self.state, State::Losing | State::Trial { spent: true, .. })
    }

    /// Looks again whether it is worth while; before each read. O(1).
    pub(in crate::wave) fn weigh(&mut self, scale: Scale) {
        let Scale { memory, believed, waste_percent, ahead, useful } = scale;
        if self.read + self.lost > believed {
            (self.read, self.lost) = (self.read / 2, self.lost / 2);
        }
        let allowed = LOST_FEW + self.read * waste_percent / 100;
        let mut failed = self.lost > allowed;
        match &mut self.state {
            State::Free => {}
            State::Losing => {
                if self.lost <= allowed / 16 && self.read_since >= memory << self.relapses {
                    self.state = State::Trial { ahead, useful, spent: false };
                    self.read_since = 0;
                }
                return;
            }
            State::Trial { ahead: ahead_then, useful: useful_then, spent } => {
                let (tried, read) = (ahead - *ahead_then, useful - *useful_then);
                *spent = tried >= (memory / TRIAL_SHARE).max(LOST_FEW);
                if *spent && 2 * read >= tried {
                    self.state = State::Free;
                } else if *spent && self.read_since >= memory {
                    failed = true;
                }
            }
        }
        if failed {
            let soon = self.read_since < RELAPSE_FULLS * memory;
            self.relapses = if soon { (self.relapses + 1).min(RELAPSES_MAX) } else { 0 };
            (self.state, self.read_since) = (State::Losing, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Scale, Trials};

    /// 2048 pages of memory, and a reader of which so much was fetched ahead, and read of that.
    struct Reader {
        trials: Trials,
        read: u64,
        ahead: u64,
        useful: u64,
    }

    impl Reader {
        /// He misses page after page until he holds back, or does so no more; how many he had read then.
        fn until(&mut self, holds_back: bool) -> u64 {
            for _ in 0..1 << 20 {
                self.trials.missed(1);
                self.read += 1;
                let Reader { ahead, useful, .. } = *self;
                self.trials.weigh(Scale { memory: 2048, believed: 2048, waste_percent: 15, ahead, useful });
                if self.trials.hold_back() == holds_back {
                    return self.read;
                }
            }
            u64::MAX
        }

        fn fetches(&mut self, ahead: u64, useful: u64) {
            (self.ahead, self.useful) = (self.ahead + ahead, self.useful + useful);
        }
    }

    /// A reader of 679 pages who lost 232.
    fn loser() -> Reader {
        let mut reader = Reader { trials: Trials::default(), read: 679, ahead: 0, useful: 0 };
        reader.trials.missed(679);
        reader.trials.lost(232);
        reader
    }

    /// The worked example.
    #[test]
    fn a_little_is_tried_and_given_up_for_longer() {
        let mut reader = loser();
        assert_eq!(reader.until(true), 680);
        assert_eq!(reader.until(false), 4949);
        reader.fetches(127, 15);
        assert_eq!(reader.until(false), 4950, "a sixteenth of memory may be tried");
        reader.fetches(1, 1);
        assert_eq!(reader.until(true), 4951, "and no more");
        assert_eq!(reader.until(false), 6997 + 4096, "half of it was not read: losing for twice as long");
        for (n, fulls) in [(2, 4), (3, 8), (4, 16), (5, 32), (6, 32)] {
            reader.fetches(128, 16);
            let tried = reader.until(true);
            let waited = reader.until(false) - tried;
            assert_eq!(waited.div_ceil(2048), fulls + 1, "relapse {n}");
        }
    }

    #[test]
    fn what_is_read_again_sets_free() {
        let mut reader = loser();
        for _ in 0..4 {
            reader.until(true);
            reader.until(false);
            reader.fetches(128, 16);
        }
        reader.fetches(0, 47);
        let held_back = reader.until(true);
        reader.fetches(0, 1);
        assert_eq!(reader.until(false), held_back + 1, "half of what was tried is read");
        reader.fetches(4000, 0);
        assert_eq!(reader.until(true), u64::MAX, "nothing of it is lost");
        reader.trials.lost(1000);
        let lost = reader.until(true);
        let again = reader.until(false) - lost;
        assert!(again < 8192, "until that is forgotten, and not twice the 16,384 of the last time: {again}");
    }
}
