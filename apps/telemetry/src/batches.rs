//! Decides which batches are exported: those with a sampled member. A batch is reported separately from its members,
//! before or after them, so each waits here for the other.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::entry::BatchEntry;

/// Batches remembered. The longest wait is that of a batch of the first module for the end of its slowest member; at
/// 1000 batches a second this allows 16 s, more than any usual latency objective.
const BATCHES_MAX: usize = 16_384;

enum State {
    /// It ended; no member is known to be sampled so far.
    Ended(BatchEntry),
    /// A sampled member named it; it has not been reported yet.
    Wanted,
    /// Its span was made.
    Exported,
}

/// Recent batches by the id of their span.
#[derive(Default)]
pub(crate) struct Batches {
    states: FxHashMap<u64, State>,
    oldest_first: VecDeque<u64>,
    /// Batches that were wanted and removed before they were reported.
    n_unknown: u64,
}

impl Batches {
    /// A batch ended. It is returned when its span is wanted now.
    pub(crate) fn ended(&mut self, span: u64, entry: BatchEntry) -> Option<BatchEntry> {
        match self.states.get_mut(&span) {
            None => {
                self.remember(span, State::Ended(entry));
                None
            }
            Some(state @ State::Wanted) => {
                *state = State::Exported;
                Some(entry)
            }
            Some(State::Ended(_) | State::Exported) => None,
        }
    }

    /// A sampled request was in this batch. The batch is returned when its span is to be made now.
    pub(crate) fn wanted(&mut self, span: u64) -> Option<BatchEntry> {
        match self.states.get_mut(&span) {
            None => {
                self.remember(span, State::Wanted);
                None
            }
            Some(state) => match std::mem::replace(state, State::Exported) {
                State::Ended(entry) => Some(entry),
                other => {
                    *state = other;
                    None
                }
            },
        }
    }

    /// Number of batches that were wanted but removed unreported, since the last call of this.
    pub(crate) fn take_unknown(&mut self) -> u64 {
        std::mem::take(&mut self.n_unknown)
    }

    fn remember(&mut self, span: u64, state: State) {
        if self.oldest_first.len() == BATCHES_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
            && let Some(State::Wanted) = self.states.remove(&oldest)
        {
            self.n_unknown += 1;
        }
        self.oldest_first.push_back(span);
        self.states.insert(span, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_batch_is_exported_once_whoever_comes_first() {
        let pipeline = testing::pipeline();
        let entry = || BatchEntry {
            pipeline: pipeline.clone(),
            record: testing::batch(),
        };
        let mut batches = Batches::default();
        assert!(batches.ended(1, entry()).is_none());
        assert!(batches.wanted(1).is_some());
        assert!(batches.wanted(1).is_none());

        assert!(batches.wanted(2).is_none());
        assert!(batches.wanted(2).is_none());
        assert!(batches.ended(2, entry()).is_some());
        assert!(batches.wanted(2).is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_losses_count() {
        let mut batches = Batches::default();
        for span in 0..BATCHES_MAX as u64 + 10 {
            assert!(batches.wanted(span).is_none());
        }
        assert_eq!(batches.states.len(), BATCHES_MAX);
        assert_eq!(batches.take_unknown(), 10);
        assert_eq!(batches.take_unknown(), 0);
    }
}
