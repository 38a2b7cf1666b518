//! Which batch a device runs next.
//!
//! Each model that the device holds offers one strategy: its largest size for which enough requests are still in time *at that
//! size*. The deadline of the first of them less the expected duration is the strategy's required start. A batch is never padded. One with requests
//! that have no deadline is short (`background_time`): a running batch is not stopped, and requests that arrive meanwhile wait for its end.
//!
//! - `RequiredStart` takes the smallest required start (Clockwork, Appendix B).
//! - `MooreHodgson` takes the first of the strategies that all start in time one after another; of the others, those went that take the
//!   most time a request (`most.rs`).
//! - `EarliestDeadline` takes the model of the first request that is in time alone.

#[cfg(test)]
mod tests;

use spillgate_pipeline::id::{ModelId, WeightsId};
use spillgate_pipeline::time::Timestamp;

use super::Placement;
use super::most::{Job, most_in_time};
use super::shadow::Shadow;
use spillgate_pipeline::placement::recipe::Choice;

/// Strategies that are weighed against each other, the most urgent first.
pub(crate) const WEIGHED_MAX: usize = 128;

/// A batch to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) model: ModelId,
    /// Position of its size.
    pub(super) at: usize,
    /// Position of its first request in the queue.
    pub(super) first: usize,
    pub(super) starts_at: Timestamp,
}

/// A device as it is when its next batch is chosen.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) device: &'a Shadow,
    /// When an action sent now arrives.
    pub(super) arrival: Timestamp,
    /// When the device is expected to be free.
    pub(super) free: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Strategy {
    required_start: Timestamp,
    chosen: Chosen,
}

impl Placement {
    /// The next batch of a device, and where batches are weighed against each other the price of its time.
    pub(super) fn choose(&self, view: View<'_>) -> (Option<Chosen>, Option<f64>) {
        match self.recipe.choice {
            Choice::RequiredStart => (self.by_required_start(view), None),
            Choice::MooreHodgson => self.by_moore_hodgson(view),
            Choice::EarliestDeadline => (self.by_deadline(view), None),
        }
    }

    /// When a batch starts: the device is free, and its inputs are there.
    fn starts_at(&self, view: View<'_>, model: ModelId, at: usize) -> Timestamp {
        if !self.recipe.counts_input {
            return view.free;
        }
        let copied = self.copies(model, self.sizes[at]);
        view.free
            .max(view.device.input_free().max(view.arrival) + copied)
    }

    /// The largest size of a model for which enough requests are in time at that size.
    fn strategy(&self, view: View<'_>, model: ModelId) -> Option<Strategy> {
        let waiting = self.queues.len(model);
        for at in (0..self.executions[model.idx()].len()).rev() {
            let size = self.sizes[at] as usize;
            if waiting < size {
                continue;
            }
            let starts_at = self.starts_at(view, model, at);
            let takes = self.estimate(model, at) + self.recipe.kept_back;
            let Some((first, deadline)) = self.queues.first_from(model, starts_at + takes) else {
                continue;
            };
            // Others wait for the end of a batch, so requests that have time do not make one long.
            let is_short = at == 0 || takes <= self.background_time;
            if waiting - first >= size
                && (is_short || self.queues.has_deadline(model, first + size - 1))
            {
                return Some(Strategy {
                    required_start: deadline - takes,
                    chosen: Chosen {
                        model,
                        at,
                        first,
                        starts_at,
                    },
                });
            }
        }
        None
    }

    fn by_required_start(&self, view: View<'_>) -> Option<Chosen> {
        let longest = self.longest;
        let mut best: Option<Strategy> = None;
        for (deadline, model) in view.device.ready() {
            // No later strategy requires an earlier start.
            if best.is_some_and(|b| deadline - longest > b.required_start) {
                break;
            }
            if let Some(strategy) = self.strategy(view, model) {
                let rank = |s: &Strategy| (s.required_start, s.chosen.model);
                if best.is_none_or(|b| rank(&strategy) < rank(&b)) {
                    best = Some(strategy);
                }
            }
        }
        best.map(|b| b.chosen)
    }

    fn by_deadline(&self, view: View<'_>) -> Option<Chosen> {
        let mut best: Option<(Timestamp, ModelId)> = None;
        for (deadline, model) in view.device.ready() {
            if best.is_some_and(|(b, _)| deadline > b) {
                break;
            }
            let takes = self.estimate(model, 0) + self.recipe.kept_back;
            let starts_at = self.starts_at(view, model, 0);
            if let Some((_, deadline)) = self.queues.first_from(model, starts_at + takes)
                && best.is_none_or(|b| (deadline, model) < b)
            {
                best = Some((deadline, model));
            }
        }
        let (_, model) = best?;
        self.strategy(view, model).map(|s| s.chosen)
    }

    /// What a request of a model in time counts: more than 1 where it got less than its fair share.
    pub(super) fn worth(&self, model: ModelId) -> f64 {
        self.fairness.as_ref().map_or(1.0, |f| f.worth(model))
    }

    /// The same of weights: that of the model in most need which runs with them.
    pub(super) fn worth_of(&self, weights: WeightsId) -> f64 {
        let models = self.models(weights).iter();
        models.map(|m| self.worth(*m)).fold(0.0, f64::max)
    }

    fn by_moore_hodgson(&self, view: View<'_>) -> (Option<Chosen>, Option<f64>) {
        let ready = view.device.ready().take(WEIGHED_MAX);
        let mut strategies: Vec<Strategy> = ready
            .filter_map(|(_, model)| self.strategy(view, model))
            .collect();
        strategies.sort_unstable_by_key(|s| (s.required_start, s.chosen.model));
        let jobs = strategies.iter().map(|s| {
            let Chosen { model, at, .. } = s.chosen;
            // A model that several devices hold takes its part of each.
            let holders = self.demands.holders(self.weights_of(model)).len().max(1);
            Job {
                latest: s.required_start.as_ns() as f64,
                takes: self.estimate(model, at).as_nanos() as f64 / holders as f64,
                gains: f64::from(self.sizes[at]) * self.worth(model),
            }
        });
        let jobs: Vec<Job> = jobs.collect();
        let kept = most_in_time(
            view.free.as_ns() as f64,
            &jobs,
            self.recipe.constants.batch_crowding,
        );
        let chosen = kept.first.map(|first| strategies[first].chosen);
        (chosen, Some(kept.price))
    }
}
