//! Batch sizes while the pipeline runs.
//!
//! A plan's sizes assume the planned workers, the pace of their profiles, and requests that run every module and ask
//! for the whole SLO. The sizes are chosen anew when something else is observed: workers came or went, they are slower,
//! their execution times stray from batch to batch, only some requests run a module, or requests have less time.
//!
//! Under overload batches may grow until they take nearly all of the SLO: among many requests, enough arrive shortly
//! before such a batch starts.
//!
//! A request with a shorter deadline does not fit the plan's batches, however early it is served. Smaller batches serve
//! it, at less capacity. Which is better depends on the number of such requests and on the load, so the sizes with the
//! highest expected goodput are chosen.

use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::execution::ExecutionTimes;
use spillgate_pipeline::policy::recipe::Constants;
use spillgate_pipeline::time::Timestamp;
use spillgate_pipeline::window::Window;
use spillgate_protocol::message::{SHARE_STEPS, Shares};

use super::ModuleState;
use crate::plan::{self, Planned};

/// Least share of requests in a hurry for which smaller batches are considered.
const WORTH: f32 = 0.02;

/// Parts of a plan's slack that are tried under overload.
const TIGHTER: [f64; 6] = [0.75, 0.6, 0.45, 0.3, 0.2, 0.1];

/// Counts requests by the share of the SLO that they ask for.
pub(super) struct Asked {
    steps: Vec<Window>,
}

impl Asked {
    pub(super) fn new(length: Duration, born: Timestamp) -> Self {
        let step = |_| Window::new(length, born);
        Asked {
            steps: (0..SHARE_STEPS).map(step).collect(),
        }
    }

    /// Adds the number of requests that asked for each share.
    pub(super) fn add(&mut self, now: Timestamp, asked: &[u64; SHARE_STEPS]) {
        for (step, &count) in self.steps.iter_mut().zip(asked) {
            if count > 0 {
                step.add(now, 0.0, count, 0.0);
            }
        }
    }

    pub(super) fn shares(&mut self, now: Timestamp) -> Shares {
        let mut shares = [0.0; SHARE_STEPS];
        let counts: Vec<u64> = self.steps.iter_mut().map(|s| s.count(now)).collect();
        let all: u64 = counts.iter().sum();
        for (share, count) in shares.iter_mut().zip(counts) {
            *share = count as f32 / all.max(1) as f32;
        }
        shares
    }
}

/// Number of steps in which probabilities of a module are rounded.
const PROBABILITY_STEPS: f64 = 10.0;

/// The observations of a module, rounded, so that values near the planned ones are equal to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Observed {
    workers: u32,
    /// Measured over planned execution time of the variants that ran.
    pace: f64,
    /// Standard deviation of measured over planned execution time.
    spread: f64,
    /// Part of the requests that run it.
    probability: f64,
}

impl Observed {
    pub(super) fn new(state: &ModuleState, constants: &Constants) -> Self {
        let pace = state.pace_by_variant;
        let is_usual = (pace - 1.0).abs() < constants.off_pace;
        let steps = (state.probability * PROBABILITY_STEPS).ceil().max(1.0);
        Observed {
            workers: state.workers,
            pace: if is_usual { 1.0 } else { pace },
            spread: if state.spread < constants.spread {
                0.0
            } else {
                state.spread
            },
            probability: steps / PROBABILITY_STEPS,
        }
    }

    /// Capacity of its workers in batches of that size, in requests a second into the pipeline.
    fn capacity(&self, execution: &[Duration], size: u32) -> f64 {
        let mean = execution[size as usize - 1].mul_f64(self.pace);
        f64::from(self.workers) * f64::from(size) / mean.as_secs_f64() / self.probability
    }
}

/// The inputs of the choice.
pub(super) struct Sizing<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) planned: &'a Planned,
    /// Planned execution times, of the variants that run.
    pub(super) execution: &'a ExecutionTimes,
    /// They are not those of the plan.
    pub(super) is_mixed: bool,
    /// Slack of the plan's sizes, for requests with the whole SLO.
    pub(super) slack: f64,
    /// Requests a second at the first module. Smaller batches for requests in a hurry are weighed by this rate. Weighed
    /// by the offered rate, such requests would all be given up under overload, although half of them can be served.
    pub(super) rate: f64,
    /// Offered rate of the pipeline, in requests a second.
    pub(super) demand: f64,
    /// Part of the requests by share of the SLO.
    pub(super) shares: &'a Shares,
    /// By module, from the first.
    pub(super) observed: &'a [Observed],
}

impl Sizing<'_> {
    /// The batch sizes with the highest expected goodput; the plan's sizes where everything is as planned. Execution
    /// times that stray count with [`Constants::deviations`].
    pub(super) fn batch_sizes(&self) -> Vec<u32> {
        let execution = self.execution();
        let ample = if self.is_usual() {
            Some(self.planned.batch.clone())
        } else {
            self.ample(&execution)
        };
        let tighter = self.tighter(&execution, ample.as_deref());
        let least = || vec![1; self.planned.batch.len()];
        tighter.or(ample).unwrap_or_else(least)
    }

    fn constants(&self) -> &Constants {
        &self.pipeline.policy.recipe().constants
    }

    fn is_usual(&self) -> bool {
        let is_usual = |(m, o): (usize, &Observed)| {
            let usual = Observed {
                workers: if self.planned.alone {
                    self.planned.workers[m]
                } else {
                    o.workers
                },
                pace: 1.0,
                spread: 0.0,
                probability: 1.0,
            };
            *o == usual
        };
        let asks_for_all = self.shares[SHARE_STEPS - 1] > 1.0 - WORTH;
        asks_for_all && !self.is_mixed && (1..).zip(self.observed).all(is_usual)
    }

    /// Execution times by module and size, as observed.
    fn execution(&self) -> ExecutionTimes {
        let deviations = self.constants().deviations;
        let slowed = |(times, o): (&[Duration], &Observed)| {
            let slow = |time: &Duration| time.mul_f64(o.pace + deviations * o.spread);
            times.iter().map(slow).collect()
        };
        let modules = self.execution.iter().skip(1).zip(self.observed);
        std::iter::once(Vec::new())
            .chain(modules.map(slowed))
            .collect()
    }

    /// The sizes with that slack.
    fn sizes(&self, execution: &ExecutionTimes, slack: f64) -> Option<Vec<u32>> {
        let capacity = |m: usize, size: u32| self.capacity_of(m, size);
        if self.planned.alone {
            plan::sizes_for_workers(self.pipeline, execution, capacity, slack)
        } else {
            plan::batch_sizes(self.pipeline, execution, slack).ok()
        }
    }

    fn capacity_of(&self, m: usize, size: u32) -> f64 {
        self.observed[m - 1].capacity(&self.execution[m], size)
    }

    /// Capacity of the bottleneck, in requests a second.
    fn capacity(&self, batch: &[u32]) -> f64 {
        let capacities = (1..batch.len()).map(|m| self.capacity_of(m, batch[m]));
        capacities.fold(f64::INFINITY, f64::min)
    }

    /// Sizes that leave the whole slack to the served requests.
    fn ample(&self, execution: &ExecutionTimes) -> Option<Vec<u32>> {
        let mut best: Option<(f64, Vec<u32>)> = None;
        // From the whole SLO down: smaller sizes are chosen only if their expected goodput is higher.
        for step in (0..SHARE_STEPS).rev() {
            if self.shares[step] < WORTH && step + 1 < SHARE_STEPS {
                continue;
            }
            let Some(batch) = self.sizes(execution, self.slack / share_of(step)) else {
                break;
            };
            let served: f32 = self.shares[step..].iter().sum();
            let goodput = self.capacity(&batch).min(self.rate * f64::from(served));
            if best
                .as_ref()
                .is_none_or(|(most, _)| goodput > *most * 1.001)
            {
                best = Some((goodput, batch));
            }
        }
        best.map(|(_, batch)| batch)
    }

    /// Sizes with less slack, where their expected goodput is much higher. Under overload some of the many requests
    /// arrive so late in a cycle of the bottleneck that they are in time in a batch that takes most of the SLO.
    fn tighter(&self, execution: &ExecutionTimes, ample: Option<&[u32]>) -> Option<Vec<u32>> {
        if !self.planned.alone {
            return None;
        }
        let constants = self.constants();
        let mut most =
            constants.tighter_pays * ample.map_or(0.0, |batch| self.promised(execution, batch));
        let mut best = None;
        for part in TIGHTER {
            let Some(batch) = self.sizes(execution, 1.0 + part * (self.slack - 1.0)) else {
                continue;
            };
            let goodput = self.promised(execution, &batch);
            // Among equally good sizes the largest: batches need not be full, and bursts fill them.
            let least = if best.is_some() {
                constants.equally_good * most
            } else {
                most
            };
            if goodput > least {
                (most, best) = (goodput.max(most), Some(batch));
            }
        }
        best
    }

    /// Whether batches of these sizes leave every request with the whole SLO time to wait for the next batch.
    pub(super) fn leaves_time(&self, batch: &[u32]) -> bool {
        let modules = self.bounds(&self.execution(), batch);
        plan::part_in_time(self.pipeline, 1.0, &modules) >= 1.0
    }

    fn bounds(&self, execution: &ExecutionTimes, batch: &[u32]) -> Vec<plan::Bound> {
        let bound = |m: usize| plan::Bound {
            capacity: self.capacity_of(m, batch[m]),
            probability: self.observed[m - 1].probability,
            execution: execution[m][batch[m] as usize - 1],
            workers: self.observed[m - 1].workers,
        };
        (1..batch.len()).map(bound).collect()
    }

    /// Expected goodput, in requests a second.
    fn promised(&self, execution: &ExecutionTimes, batch: &[u32]) -> f64 {
        let modules = self.bounds(execution, batch);
        let asked = self.shares.iter().enumerate().filter(|(_, s)| **s > 0.0);
        let in_time = |(step, share): (usize, &f32)| {
            let (pipeline, demand) = (self.pipeline, self.demand);
            let of_slo = share_of(step);
            let goodput = plan::goodput(pipeline, of_slo, &modules, execution, batch, demand);
            f64::from(*share) * goodput
        };
        let goodput: f64 = asked.map(in_time).sum();
        self.capacity(batch).min(goodput)
    }
}

/// The share of the SLO of a step.
fn share_of(step: usize) -> f64 {
    (step + 1) as f64 / SHARE_STEPS as f64
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::id::RequestId;
    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;

    const SLO: Duration = Duration::from_millis(400);

    fn request(asked: f64) -> spillgate_pipeline::request::Request {
        spillgate_pipeline::request::Request::new(
            RequestId(1),
            Timestamp::ZERO,
            Timestamp::ZERO + SLO.mul_f64(asked),
        )
    }

    #[test]
    fn shares_are_counted_by_step() {
        let mut asked = Asked::new(Duration::from_secs(5), Timestamp::ZERO);
        let mut demand = spillgate_protocol::message::Demand::default();
        for share in [1.0, 1.0, 0.6, 0.61] {
            demand.entered(SLO, &request(share));
        }
        asked.add(Timestamp::ZERO, &demand.asked);
        let shares = asked.shares(Timestamp::ZERO);
        assert_eq!((shares[11], shares[12], shares[19]), (0.25, 0.25, 0.5));
        assert_eq!(shares.iter().sum::<f32>(), 1.0);
    }

    #[test]
    fn batches_shrink_when_that_serves_more() {
        let mut pipeline = noop_pipeline(SLO, &[&[0], &[1]], &[]);
        for module in &mut pipeline.modules {
            module.batch.max = 32;
        }
        let ms = |b: u64| Duration::from_millis(12 + 6 * b);
        let times: Vec<Duration> = (1..=32).map(ms).collect();
        let execution = ExecutionTimes::from(vec![vec![], times.clone(), times]);
        let usual = Observed {
            workers: 4,
            pace: 1.0,
            spread: 0.0,
            probability: 1.0,
        };
        let capacity = |m: usize, size: u32| usual.capacity(&execution[m], size);
        let batch = plan::sizes_for_workers(&pipeline, &execution, capacity, 1.5).unwrap();
        let planned = Planned {
            batch,
            execution,
            workers: vec![0, 4, 4],
            alone: true,
        };
        let sizes = |hurried: f32, rate: f64, first: Observed| {
            let mut shares = [0.0; SHARE_STEPS];
            shares[11] = hurried;
            shares[SHARE_STEPS - 1] = 1.0 - hurried;
            Sizing {
                pipeline: &pipeline,
                planned: &planned,
                execution: &planned.execution,
                is_mixed: false,
                slack: 1.5,
                rate,
                demand: rate,
                shares: &shares,
                observed: &[first, usual],
            }
            .batch_sizes()
        };
        let path = |batch: &[u32]| -> Duration {
            let time = |m: usize| planned.execution[m][batch[m] as usize - 1];
            (1..3).map(time).sum()
        };
        assert_eq!(sizes(0.0, 500.0, usual), planned.batch, "all is as planned");
        let smaller = sizes(0.5, 500.0, usual);
        assert!(
            path(&smaller).mul_f64(1.5) <= SLO.mul_f64(0.6),
            "{smaller:?}"
        );
        assert!(smaller[1] > 4, "as large as that bears: {smaller:?}");
        assert_eq!(
            sizes(0.05, 5_000.0, usual),
            planned.batch,
            "a few are not worth the capacity of all"
        );
        let of_first = |change: fn(&mut Observed)| {
            let mut first = usual;
            change(&mut first);
            sizes(0.0, 500.0, first)
        };
        let deviating = of_first(|o| o.spread = 0.3);
        assert!(
            deviating[1] + deviating[2] < planned.batch[1] + planned.batch[2],
            "{deviating:?}"
        );
        for (what, change) in [
            (
                "one of four is lost",
                (|o| o.workers = 3) as fn(&mut Observed),
            ),
            ("slower", |o| o.pace = 1.3),
        ] {
            let batch = of_first(change);
            assert!(
                batch[1] > batch[2],
                "{what}: the slowest gets the larger batches: {batch:?}"
            );
            assert!(path(&batch).mul_f64(1.5) <= SLO, "{what}: {batch:?}");
        }
        let rarer = of_first(|o| o.probability = 0.2);
        assert!(
            rarer[1] < rarer[2],
            "one that few run needs no large batches: {rarer:?}"
        );
    }

    #[test]
    fn what_is_nearly_as_planned_is_as_planned() {
        let mut state = super::super::tests::state(1, 1, 0);
        (state.pace_by_variant, state.spread, state.probability) = (1.1, 0.04, 0.97);
        let observed = Observed::new(&state, &Constants::USUAL);
        assert_eq!(
            (observed.pace, observed.spread, observed.probability),
            (1.0, 0.0, 1.0)
        );
        (state.pace_by_variant, state.probability) = (1.5, 0.0);
        let observed = Observed::new(&state, &Constants::USUAL);
        assert_eq!((observed.pace, observed.probability), (1.5, 0.1));
    }
}
