//! The last durations, in order.

use std::collections::VecDeque;
use std::time::Duration;

/// The last durations that were measured, of which any quantile is known at once.
#[derive(Clone, Debug)]
pub struct Last {
    most: usize,
    /// At most `most`, the oldest first.
    measured: VecDeque<Duration>,
    /// The same, the shortest first.
    sorted: Vec<Duration>,
}

impl Last {
    /// None yet, and at most that many.
    ///
    /// # Panics
    /// When that is 0.
    pub fn new(most: usize) -> Self {
        assert!(most > 0, "nothing could be kept");
        Last {
            most,
            measured: VecDeque::new(),
            sorted: Vec::new(),
        }
    }

    /// One more; the oldest is forgotten where there are too many.
    pub fn push(&mut self, duration: Duration) {
        if self.measured.len() == self.most
            && let Some(oldest) = self.measured.pop_front()
        {
            self.sorted.remove(self.place(oldest));
        }
        self.measured.push_back(duration);
        self.sorted.insert(self.place(duration), duration);
    }

    /// How many there are, and how many are missing to the most.
    pub(super) fn len_and_missing(&self) -> (usize, usize) {
        (self.measured.len(), self.most - self.measured.len())
    }

    /// All of them, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Duration> {
        self.measured.iter().copied()
    }

    /// The `n`-th shortest, from 1; `None` where there is none.
    pub(super) fn nth(&self, n: usize) -> Option<Duration> {
        self.sorted.get(n.checked_sub(1)?).copied()
    }

    /// The `ceil(percent / 100 n)`-th shortest of `n`; `None` before the first.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        self.nth((self.sorted.len() * percent).div_ceil(100))
    }

    /// Where a duration stands among the sorted ones.
    fn place(&self, duration: Duration) -> usize {
        self.sorted.partition_point(|shorter| *shorter < duration)
    }
}
