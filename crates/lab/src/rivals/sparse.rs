//! The slides' test for sparse reads, `index - prev_index <= 8 * req_size`, before the rules of 2.6.31 (seed 004). It was never
//! merged. All it does is to move the last page read up to the one that is asked for, where the gap is small enough: what
//! 2.6.31 then decides is its own. A window pushed on by a gap begins where its reader now is.

use bowwave_core::{Ask, AskKind, Context, Decision, PageCount, PageIndex, Policy, ReadState, View};

/// 2.6.31 that forgives gaps.
#[derive(Default)]
pub(crate) struct SparseContext {
    context: Context,
}

impl Policy for SparseContext {
    fn name(&self) -> &'static str {
        "context + sparse"
    }

    fn hears_reads(&self) -> bool {
        true
    }

    fn decide(&mut self, view: &dyn View, state: &mut ReadState, ask: Ask, out: &mut Vec<Decision>) {
        let Some(prev) = state.prev else { return self.context.decide(view, state, ask, out) };
        let gap = ask.page.since(prev).0;
        let forgiven = ask.page > prev && gap <= 8 * ask.count.0 + 1;
        match ask.kind {
            // The mark lay in a gap that was skipped: the first page read behind it stands for it.
            AskKind::Read => {
                let mark = state.window.mark();
                let skipped = mark.is_some_and(|mark| prev < mark && mark < ask.page);
                if forgiven && skipped && view.present(ask.page) && state.window.extent().contains(ask.page) {
                    let mark = mark.unwrap_or(PageIndex(0));
                    self.context.decide(view, state, Ask { page: mark, kind: AskKind::Mark, ..ask }, out);
                }
            }
            AskKind::Miss if forgiven && state.window.size.0 > 0 && ask.page >= state.window.end() => {
                // The window ended in the gap: it goes on from here, larger.
                state.window.start = ask.page.back(state.window.size);
                self.context.decide(view, state, ask, out);
            }
            AskKind::Miss if forgiven => {
                state.prev = Some(ask.page.back(PageCount(1)));
                self.context.decide(view, state, ask, out);
            }
            _ => self.context.decide(view, state, ask, out),
        }
    }
}
