//! What programs said that they will read: sent for as memory allows.
//!
//! ```text
//! will_read   [100,104) [0,4) [104,108) [6,10) [200,209)
//! told on     [100,108) [0,10) [200,201)       17 pages of room, gaps of two are cheaper than a request
//! ```
//!
//! What is to be fetched is the core's R15 to send, exactly and no more; here is decided only how much of a list is told at a
//! time, and which ranges are one. The figures are owned by the test `what_is_announced_goes_out_in_runs`.

use super::{Brain, id};
use bowwave_core::{Advice, Extent, Input, Nanos, PageCount};
use std::collections::VecDeque;

/// Pages of a list of what will be read that are sent for before the device was timed: 16 MiB.
const ANNOUNCED_FIRST: u64 = 4096;

/// What is to be read, as the program said.
pub(super) struct Announced {
    pub(super) file: u32,
    pub(super) ranges: VecDeque<Extent>,
}

impl Brain {
    /// The program says what it will read. It is told on as memory allows: half of it may be out unread.
    pub(crate) fn announce(&mut self, now: Nanos, number: u32, ranges: VecDeque<Extent>) {
        self.announced.push_back(Announced { file: number, ranges });
        self.pump(now);
    }

    pub(super) fn tell_announced(&mut self, now: Nanos) {
        while let Some(next) = self.announced.front_mut() {
            let out = self.wave.unread().0 + self.announced_out;
            let Some(file) = self.files.get(&next.file) else { return };
            let gap = self.wave.gap_worth(file.meta.endpoint);
            let first = if gap.0 == 0 { ANNOUNCED_FIRST } else { u64::MAX };
            let room = (self.pages.capacity().0 / 2).min(first).saturating_sub(out);
            if next.ranges.is_empty() {
                self.announced.pop_front();
                continue;
            }
            if room == 0 {
                return;
            }
            let number = next.file;
            let table = self.pages.table(id(number));
            for pages in batch(&mut next.ranges, room, gap.0) {
                // Until it is sent it is not counted as unread.
                self.announced_out += table.holes(pages).map(|hole| hole.count.0).sum::<u64>();
                self.wave.handle(now, Input::Advised { file: id(number), pages, advice: Advice::WillNeed });
            }
        }
    }
}

/// Takes about `room` pages from the front of `ranges`: as runs, in the order in which the first page of each is read; what lies
/// no further apart than `gap` is one run.
fn batch(ranges: &mut VecDeque<Extent>, room: u64, gap: u64) -> Vec<Extent> {
    let (mut taken, mut sorted) = (0, Vec::new());
    while taken < room
        && let Some(range) = ranges.pop_front()
    {
        let part = Extent { count: PageCount(range.count.0.min(room - taken)), ..range };
        let rest = Extent::between(part.end(), range.end());
        if !rest.is_empty() {
            ranges.push_front(rest);
        }
        taken += part.count.0;
        sorted.push((part, sorted.len()));
    }
    sorted.sort_unstable();
    let mut runs: Vec<(usize, Extent)> = Vec::new();
    for (part, order) in sorted {
        match runs.last_mut() {
            Some((first, run)) if part.start.0 <= run.end().0 + gap => {
                *run = Extent::between(run.start, run.end().max(part.end()));
                *first = order.min(*first);
            }
            _ => runs.push((order, part)),
        }
    }
    runs.sort_unstable();
    runs.into_iter().map(|(_, run)| run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_announced_goes_out_in_runs() {
        let ranges = [
            Extent::new(100, 4),
            Extent::new(0, 4),
            Extent::new(104, 4),
            Extent::new(6, 4),
            Extent::new(200, 9),
        ];
        let mut left = VecDeque::from(ranges);
        assert_eq!(batch(&mut left, 17, 2), [Extent::new(100, 8), Extent::new(0, 10), Extent::new(200, 1)]);
        assert_eq!(left, [Extent::new(201, 8)]);
    }
}
