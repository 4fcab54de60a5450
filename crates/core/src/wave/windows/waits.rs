//! R3: what waits have taught, of one stream and of all those of its file.
//!
//! ```text
//! a stream    its reader waited since the last plan     the next window is urgent
//!             he has waited for 195 pages               so many may be ahead of it, and no wait pays for them again
//! its file    streams came to want 64, 256, 1024 ahead  the next to begin wants as much at once: 1024, and if it comes to less, an eighth less
//!             four opened with their second reads       no fifth does, until one is read a third time
//! ```
//!
//! How far a window grows is decided in plan.rs, what of it is asked for in reach.rs.

/// If so many streams of a file that opened early are still without a third read, no other does.
const EARLY_MAX: u32 = 4;

/// What one stream's reader waited for. In pages.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Waits {
    /// Pages that he has paid for by waiting.
    paid: u64,
    /// He waited since the last plan.
    since_plan: bool,
    /// What its first read was neither there nor on its way.
    first_missed: bool,
    /// Its second read opened its window, and its third has not been told.
    early: bool,
}

impl Waits {
    /// Its first read is planned: it was missing, or not.
    pub(in crate::wave) fn first(&mut self, missed: bool) {
        self.first_missed = missed;
    }

    /// Whether its first read had to wait.
    pub(in crate::wave) fn first_missed(&self) -> bool {
        self.first_missed
    }

    /// Its reader waited.
    pub(in crate::wave) fn waited(&mut self) {
        self.since_plan = true;
    }

    /// Whether he waited since the last plan.
    pub(in crate::wave) fn is_waited_for(&self) -> bool {
        self.since_plan
    }

    /// The same, for the plan that is made now.
    pub(in crate::wave) fn take_waited(&mut self) -> bool {
        core::mem::take(&mut self.since_plan)
    }

    /// He waited for as long as so many pages take; returns how many of them he had not paid for before.
    pub(in crate::wave) fn pay(&mut self, pages: u64) -> u64 {
        let new = pages.saturating_sub(self.paid);
        self.paid += new;
        new
    }

    /// Pages that he has paid for.
    pub(in crate::wave) fn paid(&self) -> u64 {
        self.paid
    }

    /// Its second read opens its window; whether that is news.
    pub(in crate::wave) fn opens_early(&mut self) -> bool {
        !core::mem::replace(&mut self.early, true)
    }

    /// Its third read is told; whether its second had opened its window.
    pub(in crate::wave) fn is_early_no_more(&mut self) -> bool {
        core::mem::take(&mut self.early)
    }

    /// Whether its second read opened its window, and its third has not been told.
    pub(in crate::wave) fn is_early(&self) -> bool {
        self.early
    }
}

/// What the streams of one file have taught those that begin in it. In pages.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Taught {
    /// What they came to want ahead of them.
    ahead: u64,
    /// What a wait of one of them was worth.
    paid: u64,
    /// Those whose second read opened their windows and whose third nobody has told.
    early: u32,
}

impl Taught {
    /// One waited for as long as `paid` pages take, and wants `ahead` of it now.
    pub(in crate::wave) fn waited(&mut self, ahead: u64, paid: u64) {
        self.ahead = if self.ahead < ahead { ahead } else { (7 * self.ahead + ahead) / 8 };
        self.paid = paid;
    }

    /// What one had ahead of it was lost.
    pub(in crate::wave) fn lost(&mut self) {
        self.ahead /= 2;
    }

    /// What one that begins wants ahead of it.
    pub(in crate::wave) fn ahead(&self) -> u64 {
        self.ahead
    }

    /// What a wait of one of them was worth.
    pub(in crate::wave) fn paid(&self) -> u64 {
        self.paid
    }

    /// One opened its window early.
    pub(in crate::wave) fn opened_early(&mut self) {
        self.early += 1;
    }

    /// One that did, if it `was_early`, is read a third time.
    pub(in crate::wave) fn read_thrice(&mut self, was_early: bool) {
        self.early -= u32::from(was_early);
    }

    /// Whether one more may.
    pub(in crate::wave) fn may_open_early(&self) -> bool {
        self.early < EARLY_MAX
    }
}

#[cfg(test)]
pub(in crate::wave) mod tests {
    use super::*;

    impl Waits {
        /// Of a reader who has paid for so many pages, and waited since the last plan or not.
        pub(in crate::wave) fn of(paid: u64, since_plan: bool) -> Self {
            Self { paid, since_plan, ..Self::default() }
        }
    }

    /// The picture at the top.
    #[test]
    fn a_wait_pays_once_and_teaches_those_that_begin() {
        let mut waits = Waits::default();
        waits.waited();
        assert_eq!([195, 195, 200].map(|pages| waits.pay(pages)), [195, 0, 5]);
        assert_eq!([waits.take_waited(), waits.take_waited()], [true, false]);
        let mut taught = Taught::default();
        let ahead = [64, 256, 1024, 512].map(|ahead| {
            taught.waited(ahead, 195);
            taught.ahead()
        });
        assert_eq!(ahead, [64, 256, 1024, 960]);
        (0..4).for_each(|_| taught.opened_early());
        assert!(!taught.may_open_early());
        taught.read_thrice(false);
        assert!(!taught.may_open_early(), "that one was opened as others are");
        taught.read_thrice(true);
        assert!(taught.may_open_early());
    }
}
