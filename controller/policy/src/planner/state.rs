//! The state of its module that the planner publishes.

use std::time::Duration;

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::predict::Action;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::ModuleState;

use super::StatePlanner;

impl StatePlanner {
    /// The state of the module now.
    pub(super) fn state(&mut self, now: Timestamp) -> ModuleState {
        self.version += 1;
        let span = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        let batch = self.batch[self.module.idx()].max(1);
        let variants = self.measured.variants(now);
        let mixed = self.mixed(&variants, batch);
        let mut planned = self.planned.duration_of(self.module, batch).mul_f64(mixed);
        if self.recipe.learns_pace {
            self.measured.forget_waits_at_rest(now);
        }
        let predictor = &mut self.measured.predictor;
        predictor.age(now);
        let action = Action::execute(self.module, batch as usize);
        let pace = predictor.pace(action);
        let (pace_by_variant, spread) = pace.map_or((1.0, 0.0), |p| (p.factor(), p.spread()));
        if self.recipe.learns_pace {
            planned = predictor.expect(action, planned);
        }
        let capacity = if planned.is_zero() {
            f64::INFINITY
        } else {
            self.workers_up as f64 * f64::from(batch) / planned.as_secs_f64()
        };
        let offered = self.measured.offered.rate(now);
        let input = self.measured.input.rate(now);
        let overloaded = self.recipe.overload.is_some_and(|control| {
            let queueing = self.measured.last_second.weighted_mean(now).unwrap_or(0.0);
            queueing > control.queueing.as_secs_f64()
        });
        let admit = match self.recipe.overload {
            Some(control) if overloaded && input > 0.0 => {
                (control.admitted * capacity / input).min(1.0)
            }
            _ => 1.0,
        };
        let batch_size = self.measured.batches.weighted_mean(now).unwrap_or(0.0);
        ModuleState {
            module: self.module,
            version: self.version,
            queueing: span(self.measured.queueing.weighted_mean(now).unwrap_or(0.0)),
            execution: planned,
            batch_waits: self.measured.batch_waits.samples(now).into(),
            executions: self.measured.executions.samples(now).into(),
            worst: span(self.measured.latency.max(now)),
            offered,
            executed: self.measured.batches.rate(now) * batch_size,
            batch_size,
            capacity,
            probability: self.probability(now),
            workers: self.workers_up as u32,
            pace: mixed * pace_by_variant,
            pace_by_variant,
            variants: variants.into(),
            spread,
            asked: self.measured.asked.shares(now),
            admit,
        }
    }

    /// Planned time of a batch of that size with these parts of each variant, over that of the variant that serves where none is chosen.
    fn mixed(&self, variants: &[f32], batch: u32) -> f64 {
        let served = self.planned.duration_of(self.module, batch);
        if variants.is_empty() || served.is_zero() {
            return 1.0;
        }
        let of = self.planned.execution.of_module(self.module);
        let mixed = of.mixed(variants).get(batch as usize - 1).copied();
        mixed.unwrap_or(served).as_secs_f64() / served.as_secs_f64()
    }

    /// The same as the module published it last: 1 where no variants are chosen.
    pub(super) fn published_mix(&self, module: ModuleId) -> f64 {
        let state = self.state_of(module).filter(|s| s.pace_by_variant > 0.0);
        state.map_or(1.0, |s| s.pace / s.pace_by_variant)
    }
}
