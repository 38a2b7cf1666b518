//! Which batch a device runs next.
//!
//! Each model that the device holds offers one strategy: its largest size for which enough requests are still in time *at that
//! size*. The deadline of the first of them less the expected duration is the strategy's required start. A batch is never padded.
//!
//! - `RequiredStart` takes the smallest required start (Clockwork, Appendix B).
//! - `MooreHodgson` takes the first of a largest set of strategies that all start in time one after another (Moore 1968, the
//!   algorithm by Moore and Hodgson for one machine). In order of required start; when one would start too late, the kept one with the
//!   most time a request goes.
//! - `EarliestDeadline` takes the model of the first request that is in time alone.

use spillgate_pipeline::id::ModelId;
use spillgate_pipeline::time::Timestamp;

use super::Placement;
use super::recipe::Choice;
use super::shadow::Shadow;

/// Strategies that are weighed against each other, the most urgent first.
const WEIGHED_MAX: usize = 256;

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
    /// The next batch of a device.
    pub(super) fn choose(&self, view: View<'_>) -> Option<Chosen> {
        match self.recipe.choice {
            Choice::RequiredStart => self.by_required_start(view),
            Choice::MooreHodgson => if super::load::tune("DP",1.0) > 0.0 { self.by_dp(view) } else { self.by_moore_hodgson(view) },
            Choice::EarliestDeadline => self.by_deadline(view),
        }
    }

    /// When a batch starts: the device is free, and its inputs are there.
    fn starts_at(&self, view: View<'_>, model: ModelId, at: usize) -> Timestamp {
        if !self.recipe.counts_input {
            return view.free;
        }
        let copied = self.models[model.idx()].input * self.sizes[at];
        view.free
            .max(view.device.input_free().max(view.arrival) + copied)
    }

    /// The largest size of a model for which enough requests are in time at that size.
    fn strategy(&self, view: View<'_>, model: ModelId) -> Option<Strategy> {
        let waiting = self.queues.len(model);
        for at in (0..self.sizes.len()).rev() {
            let size = self.sizes[at] as usize;
            if waiting < size {
                continue;
            }
            let starts_at = self.starts_at(view, model, at);
            let takes = self.estimate(model, at) + self.recipe.kept_back;
            let Some((first, deadline)) = self.queues.first_from(model, starts_at + takes) else {
                continue;
            };
            if waiting - first >= size {
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

    fn by_moore_hodgson(&self, view: View<'_>) -> Option<Chosen> {
        let ready = view.device.ready().take(WEIGHED_MAX);
        let mut strategies: Vec<Strategy> = ready
            .filter_map(|(_, model)| self.strategy(view, model))
            .collect();
        strategies.sort_unstable_by_key(|s| (s.required_start, s.chosen.model));
        // Nanoseconds on this device: a model that several devices hold takes its part of each.
        let takes = |s: &Strategy| {
            let holders = self.demands.holders(s.chosen.model).len().max(1);
            let estimate = self.estimate(s.chosen.model, s.chosen.at);
            estimate.as_nanos() as f64 / holders as f64
        };
        let a_request = |s: &Strategy| takes(s) / f64::from(self.sizes[s.chosen.at]);
        let mut price: f64 = 0.0;
        let mut kept: Vec<Strategy> = Vec::new();
        let mut start = view.free.as_ns() as f64;
        for strategy in strategies {
            let is_late = start > strategy.required_start.as_ns() as f64;
            kept.push(strategy);
            start += takes(&strategy) * super::load::tune("INFL", 1.0);
            if is_late {
                let costs = kept.iter().map(a_request).enumerate();
                let most = costs.max_by(|a, b| a.1.total_cmp(&b.1));
                let (idx, _) = most.expect("one was pushed");
                let gone = kept.remove(idx);
                start -= takes(&gone) * super::load::tune("INFL", 1.0);
                price = price.max(1.0 / a_request(&gone));
            }
        }
        view.device.price.set(view.device.price.get() * 0.95 + 0.05 * price);
        kept.first().map(|s| s.chosen)
    }

    fn by_dp(&self, view: View<'_>) -> Option<Chosen> {
        use super::load::tune;
        let lambda = tune("LAMBDA", 0.0) * 1e-6;
        let edd = tune("EDD", 1.0) > 0.0;
        let ready = view.device.ready().take(WEIGHED_MAX);
        let mut strategies: Vec<Strategy> = ready
            .filter_map(|(_, model)| self.strategy(view, model))
            .collect();
        let est = |s: &Strategy| self.estimate(s.chosen.model, s.chosen.at);
        if edd {
            strategies.sort_unstable_by_key(|s| (s.required_start + est(s), s.chosen.model));
        } else {
            strategies.sort_unstable_by_key(|s| (s.required_start, s.chosen.model));
        }
        let takes = |s: &Strategy| {
            let holders = self.demands.holders(s.chosen.model).len().max(1);
            est(s).as_nanos() as f64 / holders as f64
        };
        // by weight: end, first
        let mut best: Vec<(f64, u32)> = vec![(view.free.as_ns() as f64, u32::MAX)];
        for (i, s) in strategies.iter().enumerate() {
            let size = self.sizes[s.chosen.at] as usize;
            let n = best.len();
            best.resize(n + size, (f64::INFINITY, u32::MAX));
            let t = takes(s);
            let req = s.required_start.as_ns() as f64;
            for w in (0..n).rev() {
                let (end, first) = best[w];
                if end <= req {
                    let e = end + t;
                    if e < best[w + size].0 {
                        best[w + size] = (e, if first == u32::MAX { i as u32 } else { first });
                    }
                }
            }
            while best.last().is_some_and(|b| b.0.is_infinite()) { best.pop(); }
        }
        let f0 = view.free.as_ns() as f64;
        let (_, first) = best.iter().enumerate().skip(1).filter(|(_, b)| b.0.is_finite()).map(|(w, b)| (w as f64 - lambda * (b.0 - f0), b.1)).max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(strategies[first as usize].chosen)
    }
}
