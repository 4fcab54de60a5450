//! R3, R12, R13: what is out, what of that is in vain, and what waits have paid for. All in pages.
//!
//! ```text
//!                                     unread   dead   debt    out
//! 400 are sent ahead of a stream        400      0      0     400
//! its reader reads 100 of them          300      0      0     300
//! he goes away, and it ends             300    300    300       0     nobody comes to them: they were fetched in vain
//! another takes up 50 of them           300    250    250      50
//! they are read                         250    250    200       0     what is read makes good
//! 20 are gone from memory               230    250    200       0     nobody knows which of them; dead is an estimate
//! its file is closed                      0      0    200       0     a debt is made good by use and by waits only
//! ```
//!
//! How much may be out is decided in shares.rs.

use crate::wave::memory::shares::SPECULATION_MAX;

/// What is out of all streams together.
#[derive(Clone, Debug, Default)]
pub(in crate::wave) struct Ledger {
    /// Pages fetched ahead, present or in flight, not read yet.
    unread: u64,
    /// Of those, about, pages that no stream will read: what streams left that ended, gaps behind a stride, bought regions.
    dead: u64,
    /// What streams left that ended, and use and waits have not made good yet (R13).
    debt: u64,
    /// Pages that readers of streams have paid for by waiting (R3), at most [`SPECULATION_MAX`].
    credit: u64,
    /// Until so many pages are used, a stream that reads much lacks what others have out (R13).
    pressed_until: u64,
}

impl Ledger {
    /// Pages fetched ahead and not read so far.
    pub(in crate::wave) fn unread(&self) -> u64 {
        self.unread
    }

    /// Those of them that somebody may still come to.
    pub(in crate::wave) fn out(&self) -> u64 {
        self.unread.saturating_sub(self.dead)
    }

    /// What was fetched in vain and is not made good.
    pub(in crate::wave) fn debt(&self) -> u64 {
        self.debt
    }

    /// What waits have paid for.
    pub(in crate::wave) fn credit(&self) -> u64 {
        self.credit
    }

    /// They are sent ahead of somebody.
    pub(in crate::wave) fn sent(&mut self, pages: u64) {
        self.unread += pages;
    }

    /// They are read: as much of what was in vain is made good.
    pub(in crate::wave) fn read(&mut self, pages: u64) {
        self.closed(pages);
        self.debt = self.debt.saturating_sub(pages).min(self.unread);
    }

    /// They are of a file, or a part of one, that is no more.
    pub(in crate::wave) fn closed(&mut self, pages: u64) {
        self.unread -= pages;
        self.dead = self.dead.min(self.unread);
    }

    /// They are not there any more. Who has seen it says whether they were dead.
    pub(in crate::wave) fn gone(&mut self, pages: u64) {
        self.unread -= pages;
    }

    /// Nobody is to come to so many.
    pub(in crate::wave) fn died(&mut self, pages: u64) {
        self.dead += pages;
    }

    /// So many that nobody was to come to are read, or gone.
    pub(in crate::wave) fn dead_no_more(&mut self, pages: u64) {
        self.dead = self.dead.saturating_sub(pages);
    }

    /// A stream left so many when it ended: in vain, and a debt, which is no more than `most`.
    pub(in crate::wave) fn left(&mut self, pages: u64, most: u64) {
        self.died(pages);
        self.debt = (self.debt + pages).min(most);
    }

    /// A stream is there again for which so many had been fetched.
    pub(in crate::wave) fn taken_up(&mut self, pages: u64) {
        self.dead_no_more(pages);
        self.debt = self.debt.saturating_sub(pages);
    }

    /// A reader waited for as long as `pages` take, of which he had not paid for `new` before.
    pub(in crate::wave) fn waited(&mut self, pages: u64, new: u64) {
        self.credit = (self.credit + new).min(SPECULATION_MAX);
        self.debt = self.debt.saturating_sub(pages);
    }

    /// A stream that reads much lacks what others have out, until so many pages are used.
    pub(in crate::wave) fn press(&mut self, until: u64) {
        self.pressed_until = until;
    }

    /// Whether one does, when so many are used.
    pub(in crate::wave) fn is_pressed(&self, used: u64) -> bool {
        used < self.pressed_until
    }
}

#[cfg(test)]
pub(in crate::wave) mod tests {
    use super::*;

    impl Ledger {
        /// So many are out unread.
        pub(in crate::wave) fn has_unread(&mut self, pages: u64) {
            self.unread = pages;
        }

        /// So many were fetched in vain, and waits have paid for so many.
        pub(in crate::wave) fn owes(&mut self, debt: u64, credit: u64) {
            (self.debt, self.credit) = (debt, credit);
        }

        /// All that is out is dead.
        pub(in crate::wave) fn all_died(&mut self) {
            self.dead = self.unread;
        }

        /// What is out unread, what of it is dead, and what is out.
        pub(in crate::wave) fn all(&self) -> (u64, u64, u64) {
            (self.unread, self.dead, self.out())
        }
    }

    /// The table at the top.
    #[test]
    fn what_is_left_is_dead_and_a_debt_until_it_is_made_good() {
        let mut ledger = Ledger::default();
        let mut lines = alloc::vec::Vec::new();
        let steps: [&dyn Fn(&mut Ledger); 7] = [
            &|l| l.sent(400),
            &|l| l.read(100),
            &|l| l.left(300, 9_830),
            &|l| l.taken_up(50),
            &|l| l.read(50),
            &|l| l.gone(20),
            &|l| l.closed(230),
        ];
        for step in steps {
            step(&mut ledger);
            lines.push((ledger.unread, ledger.dead, ledger.debt, ledger.out()));
        }
        assert_eq!(
            lines,
            [
                (400, 0, 0, 400),
                (300, 0, 0, 300),
                (300, 300, 300, 0),
                (300, 250, 250, 50),
                (250, 250, 200, 0),
                (230, 250, 200, 0),
                (0, 0, 200, 0)
            ]
        );
        ledger.waited(195, 100);
        assert_eq!((ledger.debt, ledger.credit), (5, 100));
    }
}
