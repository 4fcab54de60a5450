//! Pages that the kernel will ask for next, and does not read ahead itself: put into its cache before it asks.
//!
//! Forwards the kernel reads ahead of a program by itself, 128 KiB a request. Backwards and by strides it asks for each read when it is
//! made, and 4 KiB take 25 us on their way there and back, of which the copy is one. So a reader whose last three requests were equally
//! far apart is given the next ones together with his own, if they are here and nobody needs to hear of them: up to 128 KiB.
//!
//! ```text
//! READ 4 KiB at 200, at 199, at 198 (pages)     one step of -1 twice     STORE [166, 198) and then the answer: 32 hits, READ at 165
//! ```
//!
//! By strides it is given no more of them than it has come by steps of that length, and its own: where records are not as long as a number of whole
//! pages two steps are alike by chance, and a page pushed beside the right one has the kernel ask for what lies behind it.
//!
//! What the brain wants to hear of, a mark before all, is not pushed: the program's read of it comes as a request.
//!
//! The kernel holds a page locked that it waits for, and a push of such a page waits with it. So a push is made only by threads that take
//! requests off the device, and never by the last of them: what is waited for can always be answered.
//!
//! The figures are owned by the test `what_is_equally_far_apart_is_pushed`.

use bowwave::{File, PageBytes};
use bowwave_core::PAGE_SIZE;
use fuser::{INodeNo, Notifier};
use std::sync::{Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Bytes that are pushed with one answer at most.
const PUSH_MAX: u64 = 128 << 10;
/// And pushes, where they do not lie side by side.
const PIECES_MAX: u64 = 16;

/// The requests of one handle.
#[derive(Default)]
pub(super) struct Steps(Mutex<Latest>);

#[derive(Clone, Copy, Default)]
struct Latest {
    start: u64,
    len: u64,
    step: i64,
    /// Steps of that length in a row, those over what was pushed too.
    alike: u64,
}

impl Steps {
    /// Whether a request for `len` bytes at `start` is as far from the one before as that was from the one before it, how far, and how many steps
    /// in a row were so long.
    fn step(&self, start: u64, len: u64) -> Option<(i64, u64)> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *latest;
        let step = start.wrapping_sub(before.start) as i64;
        let again = step == before.step && len == before.len && step != 0;
        let alike = if again { before.alike + 1 } else { 1 };
        *latest = Latest { start, len, step, alike };
        (again && step != len as i64).then_some((step, alike))
    }

    /// He was given all up to this, so many reads.
    fn came_to(&self, start: u64, reads: u64) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (latest.start, latest.alike) = (start, latest.alike.saturating_add(reads));
    }

    /// Pushes what comes behind a request for `len` bytes at `start`; says how many bytes.
    pub(super) fn push(
        &self,
        (notifier, ino): (&Notifier, INodeNo),
        pushing: &Semaphore,
        (file, actor): (&File, u32),
        (start, len): (u64, u64),
    ) -> u64 {
        if !len.is_multiple_of(PAGE_SIZE)
            || !start.is_multiple_of(PAGE_SIZE)
            || len > PUSH_MAX / 2
            || len == 0
        {
            return 0;
        }
        let Some((step, alike)) = self.step(start, len) else { return 0 };
        let Ok(_pushing) = pushing.try_acquire() else { return 0 };
        let here = |&(at, bytes): &(u64, u64)| {
            let view = file.try_read_at_bytes_by(actor, at, bytes as usize)?;
            (view.len() as u64 == bytes).then_some((at, view))
        };
        let put = |(at, view): (u64, PageBytes)| {
            notifier.store(ino, at, &view.in_one_piece()).ok()?;
            Some((at, view.len() as u64))
        };
        let pieces = pieces(start, len, step, alike);
        let pushed: Vec<(u64, u64)> = if step == -(len as i64) {
            pieces.iter().find_map(here).and_then(put).into_iter().collect()
        } else {
            pieces.iter().map_while(here).map_while(put).collect()
        };
        if let Some(&(last, _)) = pushed.last() {
            self.came_to(last, pushed.len() as u64);
        }
        pushed.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// What to push behind a request: where, and how many bytes. Backwards without a gap it is one of these, the longest that is here.
fn pieces(start: u64, len: u64, step: i64, alike: u64) -> Vec<(u64, u64)> {
    let at = |k: u64| start.checked_add_signed(step.checked_mul(k as i64)?);
    if step == -(len as i64) {
        let most = (PUSH_MAX / len).min(start / len);
        let halves = std::iter::successors(Some(most), |k| Some(k / 2)).take_while(|&k| k > 0);
        return halves.filter_map(|k| Some((at(k)?, k * len))).collect();
    }
    let most = (PUSH_MAX / len).min(PIECES_MAX).min(alike - 1);
    (1..=most).map_while(|k| at(k).map(|at| (at, len))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equally_far_apart_is_pushed() {
        let steps = Steps::default();
        let asked = [200, 199, 198].map(|page: u64| steps.step(page * PAGE_SIZE, PAGE_SIZE));
        assert_eq!(asked, [None, None, Some((-4096, 2))]);
        let first = pieces(198 * PAGE_SIZE, PAGE_SIZE, -4096, 2)[0];
        assert_eq!(first, (166 * PAGE_SIZE, 32 * PAGE_SIZE));
        steps.came_to(first.0, 1);
        assert_eq!(steps.step(165 * PAGE_SIZE, PAGE_SIZE), Some((-4096, 4)));
        assert_eq!(steps.step(500 * PAGE_SIZE, PAGE_SIZE), None);
        let strided = [1, 2, 5].map(|alike| pieces(0, PAGE_SIZE, 65_536, alike + 1).len());
        assert_eq!(strided, [1, 2, 5]);
    }
}
