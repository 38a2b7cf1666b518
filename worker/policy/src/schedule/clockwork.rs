//! `clockwork` and `clockwork-mean`: Clockwork (Gujarati et al., OSDI 2020, §5.3), for one model. In the paper's words
//! every request has a strategy for each batch size: the latest start at which the request is in time. The controller
//! plans a little ahead, with one predicted duration for each size.
//!
//! Among the strategies that are still valid, the scheduler takes the largest size with enough requests, earliest
//! required start first. Only requests with a valid strategy *for that size* count; otherwise a long queue with tight
//! SLOs would never run. An action is planned 5 ms before the running one is predicted to end and must start within 5
//! ms of that prediction: when the running batch overruns by more, the action is refused and its requests are dropped.
//! Deviation: the plan is reconstructed when the device becomes free, from the requests that had arrived when the plan
//! was due.

use std::time::Duration;

use spillgate_pipeline::predict::{Action, ActionKind, Cap, EstimatorName, Predictor, Rule};
use spillgate_pipeline::time::Timestamp;

use super::book::Book;
use super::merge::earliest;
use super::pending::Pending;
use super::score::ms;
use super::strategy::{Chosen, Leaving, Strategy, View};
use super::{GiveUpReason, span};

/// How far ahead actions are planned, and how long after its earliest moment one may start, ms (Clockwork §5.3).
const AHEAD_MS: f64 = 5.0;

#[derive(Debug)]
pub(crate) struct Clockwork {
    estimator: EstimatorName,
    predictor: Predictor,
    predicted_end: Option<Timestamp>,
}

impl Clockwork {
    /// The scheduler with that estimator, without a cap: as in the paper.
    pub(crate) fn new(estimator: EstimatorName) -> Self {
        Clockwork {
            estimator,
            predictor: Predictor::new(Rule::BySize(estimator, Cap::None)),
            predicted_end: None,
        }
    }

    /// Predicted duration of a batch of the size at that position; before any was measured, by the laws.
    pub(crate) fn predict(&self, book: &Book, at: usize) -> f64 {
        let size = book.sizes()[at];
        let measured = self.predictor.measured(batch(size));
        measured.map_or_else(|| self.by_laws(book, size), ms)
    }

    /// The same quantity of the law of lengths: their 99th percentile, or their mean.
    fn by_laws(&self, book: &Book, size: u32) -> f64 {
        let law = book.mixture();
        let length = match self.estimator {
            EstimatorName::LastMax => law.quantile(0.99),
            _ => law.mean(),
        };
        book.time().ms(size, length, length * f64::from(size))
    }

    /// The largest size that can be filled with requests that arrived by `known_at` and are in time in a batch of that size
    /// from `start` on.
    fn select(&self, start: View<'_>, known_at: Timestamp) -> Option<(usize, Vec<Pending>)> {
        let applications: Vec<usize> = (0..start.set.applications()).collect();
        for (at, &size) in start.book.sizes().iter().enumerate().rev() {
            let from = start.in_ms(self.predict(start.book, at));
            let mut members = Vec::new();
            earliest(
                start.set,
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

impl Strategy for Clockwork {
    fn executed(&mut self, view: View<'_>, at: usize, took: Duration) {
        let size = view.book.sizes()[at];
        let profiled = span(self.by_laws(view.book, size));
        self.predictor
            .observe(view.now, batch(size), profiled, took);
    }

    /// Gives up the requests of the action that was planned after the one that just ended, if that one ended too late
    /// for it.
    fn give_up(&mut self, view: View<'_>, leaving: &mut Vec<Leaving>) {
        let Some(planned) = self.predicted_end.take() else {
            return;
        };
        if view.now <= planned + span(AHEAD_MS) {
            return;
        }
        let start = View {
            now: planned,
            ..view
        };
        let action = self.select(start, planned - span(AHEAD_MS));
        let refused = action.into_iter().flat_map(|(_, members)| members);
        leaving.extend(refused.map(|pending| Leaving {
            id: pending.id,
            reason: GiveUpReason::ActionRefused,
            needed_ms: None,
        }));
    }

    fn needed_ms(&self, book: &Book, _law: usize) -> Option<f64> {
        Some(self.predict(book, 0))
    }

    fn choose(&mut self, view: View<'_>) -> Option<Chosen> {
        let (at, members) = self.select(view, view.now)?;
        let expected_ms = self.predict(view.book, at);
        self.predicted_end = Some(view.in_ms(expected_ms));
        Some(Chosen {
            size: view.book.sizes()[at],
            members: members.iter().map(|p| p.id).collect(),
            expected_ms,
        })
    }
}

/// A batch of that size. A scheduler serves one model.
fn batch(size: u32) -> Action {
    Action {
        kind: ActionKind::Execute,
        model: 0,
        size,
    }
}
