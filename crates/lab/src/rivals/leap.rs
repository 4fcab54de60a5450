//! Leap: the majority of the last distances between reads, over a history that is searched in growing parts (Boyer-Moore),
//! and a window that grows while what it fetched is used (Maruf and Chowdhury, ATC'20).

use super::{Rule, pages};
use bowwave_core::{Extent, PageIndex, View};
use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Leap {
    last: Option<PageIndex>,
    deltas: VecDeque<i64>,
    window: u64,
}

const HISTORY: usize = 32;
const WINDOW_MAX: u64 = 64;

impl Leap {
    fn majority(&self) -> Option<i64> {
        let mut part = HISTORY / 8;
        while part <= HISTORY {
            let recent: Vec<i64> = self.deltas.iter().rev().take(part).copied().collect();
            let (mut candidate, mut votes) = (0, 0);
            for &delta in &recent {
                if votes == 0 {
                    candidate = delta;
                }
                votes += if delta == candidate { 1 } else { -1 };
            }
            if !recent.is_empty() && recent.iter().filter(|&&d| d == candidate).count() * 2 > recent.len() {
                return Some(candidate).filter(|&d| d != 0);
            }
            part *= 2;
        }
        None
    }
}

impl Rule for Leap {
    fn name(&self) -> &'static str {
        "leap"
    }

    fn read(&mut self, view: &dyn View, request: Extent, missing: bool, out: &mut Vec<Extent>) {
        if let Some(last) = self.last.replace(request.start) {
            self.deltas.push_back(request.start.0 as i64 - last.0 as i64);
            if self.deltas.len() > HISTORY {
                self.deltas.pop_front();
            }
        }
        let Some(delta) = self.majority() else {
            self.window /= 2;
            return;
        };
        self.window = if missing { self.window.max(2) } else { self.window * 2 }.clamp(2, WINDOW_MAX);
        for i in 1..=self.window as i64 {
            let at = request.start.0 as i64 + i * delta;
            if at >= 0 && (at as u64) < view.end_of_file().0 {
                out.push(pages(PageIndex(at as u64), request.count.0));
            }
        }
    }
}
