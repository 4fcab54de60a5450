//! R2, R3: how a stream's reader comes back to it, and what was read meanwhile: by him, of its file, and of its device.
//!
//! ```text
//! he reads here, here, here                  stayed in it twice in a row
//! he reads here, elsewhere, here             not stayed in it
//! he reads 255 others between two of his     he goes by turns, a round of 256: until 512 others were read he may be on his way back (sweep.rs)
//! 400 reads of the file between two of his   may be chance, if so many reads at random of a file so small come to where he was (in_step.rs);
//! 400 between the next two as well           is none
//! nobody else read on the device meanwhile   the turn is still the one that the stream began with: he is alone there (glides.rs)
//! ```

/// Rounds are alike that differ by one part in so many.
const EVEN: u32 = 8;
/// Rounds after which a stream that is read by turns would have had its own.
const ROUNDS: u64 = 2;

/// The latest read of one stream, among those of others.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wave) struct Returns {
    /// Told reads in a row that its reader made here, and nowhere else meanwhile.
    stayed: u8,
    /// The turn among the streams of its device that it began with; 0 since it has waited as long as for a read elsewhere (R3).
    turn: u64,
    /// The number of its latest read among those of its file that were told; 0 for none.
    told: u64,
    /// Reads of its file that were told from the read before that to the latest: the round.
    round: u32,
    /// Whether the round was as long as the one before, give or take one part in [`EVEN`].
    regular: bool,
    /// Whether its latest read may have been chance (R2).
    by_chance: bool,
}

impl Returns {
    /// Its reader has made a read of it that is number `told` of its file, and the one before here too if he `stayed`. Returns the number of reads
    /// told from its latest one to this; `None` if this is the first.
    pub(in crate::wave) fn told(&mut self, told: u64, stayed: bool) -> Option<u64> {
        self.stayed = if stayed { self.stayed.saturating_add(1) } else { 0 };
        let before = core::mem::replace(&mut self.told, told);
        let since = (before > 0).then(|| told - before);
        let round = since.unwrap_or(0).min(u64::from(u32::MAX)) as u32;
        let before = core::mem::replace(&mut self.round, round);
        self.regular = before > 0 && EVEN * round.abs_diff(before) <= before;
        since
    }

    /// Reads of its file that were told since its latest, of `told` in all, while its reader may be walking others by turns and be on his way to it: two
    /// rounds' at most.
    pub(in crate::wave) fn before_its_turn(&self, told: u64) -> Option<u64> {
        let since = told.saturating_sub(self.told);
        (self.round > 1 && since <= ROUNDS * u64::from(self.round)).then_some(since)
    }

    /// Whether that may have been chance, as far as its file says; where he comes after as many reads as the last time it was not.
    pub(in crate::wave) fn came_by_chance(&mut self, by_chance: bool) {
        self.by_chance = by_chance && !self.regular;
    }

    /// Whether his latest read may have been chance.
    pub(in crate::wave) fn by_chance(&self) -> bool {
        self.by_chance
    }

    /// Told reads in a row that he made here, and nowhere else meanwhile.
    pub(in crate::wave) fn stayed(&self) -> u8 {
        self.stayed
    }

    /// It begins with this turn of its device.
    pub(in crate::wave) fn begins_with(&mut self, turn: u64) {
        self.turn = turn;
    }

    /// He waited as long as a read elsewhere takes: somebody of whom nobody hears moves the head.
    pub(in crate::wave) fn is_disturbed(&mut self) {
        self.turn = 0;
    }

    /// The turn that it began with; 0 if it was disturbed since.
    pub(in crate::wave) fn turn(&self) -> u64 {
        self.turn
    }
}

#[cfg(test)]
pub(in crate::wave) mod tests {
    use super::*;

    impl Returns {
        /// Of a reader who stayed for so many reads.
        pub(in crate::wave) fn stayed_for(stayed: u8) -> Self {
            Self { stayed, ..Self::default() }
        }
    }

    #[test]
    fn who_reads_elsewhere_has_not_stayed() {
        let mut returns = Returns::default();
        let told = [(1, false), (2, true), (3, true), (403, false)].map(|(told, stayed)| {
            let since = returns.told(told, stayed);
            (since, returns.stayed())
        });
        assert_eq!(told, [(None, 0), (Some(1), 1), (Some(1), 2), (Some(400), 0)]);
    }

    /// A row of 256 that are read by turns was read as number 1000 and 1256: the next time it is as number 1512, and none of two rounds later.
    #[test]
    fn who_walks_by_turns_is_on_his_way() {
        let mut returns = Returns::default();
        returns.told(1000, false);
        assert_eq!(returns.before_its_turn(1001), None, "nobody knows");
        returns.told(1256, false);
        assert_eq!(
            [1512, 1768, 1769].map(|told| returns.before_its_turn(told)),
            [Some(256), Some(512), None]
        );
        returns.told(1257, true);
        assert_eq!(returns.before_its_turn(1258), None, "he stayed");
    }

    /// Every 2,048th read of a file of as many rows, as a matrix is transposed: by the file alone each may have been chance.
    #[test]
    fn who_comes_back_after_as_many_reads_comes_by_no_chance() {
        let mut returns = Returns::default();
        let by_chance = [1, 2049, 4097, 6300, 6900, 6950].map(|told| {
            returns.told(told, false);
            returns.came_by_chance(true);
            returns.by_chance()
        });
        assert_eq!(by_chance, [true, true, false, false, true, true]);
    }
}
