//! Clockwork (Gujarati et al., OSDI 2020, §5.3), for one model: every request has a strategy for each batch size with
//! the start that it requires, and the controller plans a little ahead on one predicted duration.
//!
//! Of the strategies that are still valid the largest size with enough requests is taken, earliest required start first.
//! Only requests whose strategy *for that size* is valid count as enough, else a long queue with tight SLOs never
//! runs. An action is planned 5 ms before the running one is predicted to end and must start within 5 ms of that
//! prediction: when the running batch overruns by more, the action is refused and its requests are lost. Here the
//! plan is reconstructed when the device frees, from what had arrived by then.

use std::collections::VecDeque;

use spillgate_pipeline::time::Timestamp;

use super::Chosen;
use super::book::Book;
use super::merge::earliest;
use super::score::span;
use super::window::{Pending, PendingSet};

/// How far ahead actions are planned, and how long after its earliest moment one may start, ms (Clockwork §5.3).
const AHEAD_MS: f64 = 5.0;
/// Durations of a batch size that the prediction rests on (Clockwork §5.2).
const DURATIONS: usize = 10;

/// How a duration is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Estimator {
    /// The 99th percentile of the last ten: their largest.
    P99,
    /// Their mean.
    Mean,
}

#[derive(Debug)]
pub(crate) struct Clockwork {
    estimator: Estimator,
    /// The last durations of each size, ms.
    measured: Vec<VecDeque<f64>>,
    predicted_end: Option<Timestamp>,
}

impl Clockwork {
    pub(crate) fn new(sizes: &[u32], estimator: Estimator) -> Self {
        Clockwork {
            estimator,
            measured: vec![VecDeque::new(); sizes.len()],
            predicted_end: None,
        }
    }

    /// Predicted duration of a batch of the size at that position; before any was measured, by the laws.
    pub(crate) fn predict(&self, book: &Book, at: usize) -> f64 {
        let measured = &self.measured[at];
        if measured.is_empty() {
            let size = book.sizes()[at];
            let law = book.mixture();
            let length = match self.estimator {
                Estimator::P99 => law.quantile(0.99),
                Estimator::Mean => law.mean(),
            };
            return book.time().ms(size, length, length * f64::from(size));
        }
        match self.estimator {
            Estimator::P99 => measured.iter().copied().fold(0.0, f64::max),
            Estimator::Mean => measured.iter().sum::<f64>() / measured.len() as f64,
        }
    }

    pub(crate) fn executed(&mut self, at: usize, took_ms: f64) {
        let measured = &mut self.measured[at];
        if measured.len() == DURATIONS {
            measured.pop_front();
        }
        measured.push_back(took_ms);
    }

    /// Requests of the action that was planned behind the one that just ended, if that ended too late for it.
    pub(crate) fn refused(
        &mut self,
        now: Timestamp,
        book: &Book,
        set: &PendingSet,
    ) -> Vec<Pending> {
        let Some(planned) = self.predicted_end.take() else {
            return Vec::new();
        };
        if now <= planned + span(AHEAD_MS) {
            return Vec::new();
        }
        let known_at = planned - span(AHEAD_MS);
        self.select(planned, book, set, known_at)
            .map_or(Vec::new(), |(_, members)| members)
    }

    pub(crate) fn choose(
        &mut self,
        now: Timestamp,
        book: &Book,
        set: &PendingSet,
    ) -> Option<Chosen> {
        let (at, members) = self.select(now, book, set, now)?;
        let expected_ms = self.predict(book, at);
        self.predicted_end = Some(now + span(expected_ms));
        Some(Chosen {
            size: book.sizes()[at],
            members: members.iter().map(|p| p.id).collect(),
            expected_ms,
        })
    }

    /// The largest size that can be filled with requests which arrived by `known_at` and whose strategy for it is
    /// valid at `start`.
    fn select(
        &self,
        start: Timestamp,
        book: &Book,
        set: &PendingSet,
        known_at: Timestamp,
    ) -> Option<(usize, Vec<Pending>)> {
        let applications: Vec<usize> = (0..set.applications()).collect();
        for (at, &size) in book.sizes().iter().enumerate().rev() {
            let from = start + span(self.predict(book, at));
            let mut members = Vec::new();
            earliest(
                set,
                &applications,
                |_| from,
                |pending| {
                    if pending.arrived_at <= known_at {
                        members.push(pending);
                    }
                    members.len() < size as usize
                },
            );
            if members.len() == size as usize {
                return Some((at, members));
            }
        }
        None
    }
}
