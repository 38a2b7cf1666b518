//! Our own plan: batch sizes and workers chosen together.
//!
//! The reference chooses sizes by the gain of each module alone, and workers for these sizes afterwards. But larger
//! batches help only at a module that is short of workers. Other modules have throughput to spare, and larger batches
//! there use the same SLO for no gain.
//!
//! So this plan searches for the rate. For a given rate each module gets the fewest workers that reach it with their
//! largest batches, then the smallest batches that still reach it. While the longest path does not leave the slack, the
//! plan adds the worker that shortens this path most. Bisection finds the highest rate that the GPUs can serve.

use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::execution::ExecutionTimes;

use super::{ROUNDING, Sizes, bottleneck, longest_path, share_of, size_limit, throughput_of_one};

/// Bisection steps for the highest rate: to a millionth of the span.
const HALVINGS: u32 = 20;
/// The search doubles the rate of the plan that chooses sizes and workers apart, until the rate is too high. This is
/// the largest number of doublings: it ends the search where no rate is too high.
const DOUBLINGS: u32 = 16;

/// A pipeline to be planned.
pub(super) struct JointPlan<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) execution: &'a ExecutionTimes,
    pub(super) share: &'a [f64],
    /// The longest path times this must fit into the SLO.
    pub(super) slack: f64,
}

impl JointPlan<'_> {
    /// The plan of the highest rate, or `apart` where that is as good.
    pub(super) fn for_gpus(&self, gpus: u32, apart: Sizes) -> Sizes {
        let mut low = bottleneck(self.execution, &apart.batch, &apart.workers, self.share);
        if !low.is_finite() {
            return apart;
        }
        let (mut best, mut high) = (None, 2.0 * low);
        for _ in 0..DOUBLINGS {
            let Some(plan) = self.serve(high, gpus) else {
                break;
            };
            (low, high, best) = (high, 2.0 * high, Some(plan));
        }
        for _ in 0..HALVINGS {
            let rate = f64::midpoint(low, high);
            match self.serve(rate, gpus) {
                Some(plan) => (low, best) = (rate, Some(plan)),
                None => high = rate,
            }
        }
        best.map_or(apart, |plan| self.largest(plan))
    }

    /// The plan of the fewest workers for a rate, or `apart` where that has as few.
    pub(super) fn for_rate(&self, rate: f64, apart: Sizes) -> Sizes {
        let most: u32 = apart.workers.iter().sum();
        let fewer = self.serve(rate, most.saturating_sub(1));
        fewer.map_or(apart, |plan| self.largest(plan))
    }

    /// The same workers with the sizes that serve the most.
    fn largest(&self, plan: Sizes) -> Sizes {
        let batch = self.sizes(&plan.workers).unwrap_or(plan.batch);
        Sizes { batch, ..plan }
    }

    /// The fewest workers for a rate whose batches leave the slack, if at most `gpus` are enough.
    fn serve(&self, rate: f64, gpus: u32) -> Option<Sizes> {
        let n = self.pipeline.modules.len();
        let mut plan = Sizes {
            batch: vec![0; n],
            workers: vec![0; n],
        };
        for m in 1..n {
            let size = size_limit(self.pipeline, self.execution, m);
            plan.batch[m] = size;
            let quotient =
                rate * share_of(self.share, m) / throughput_of_one(self.execution, &plan.batch, m);
            plan.workers[m] = ((quotient * (1.0 - ROUNDING)).ceil() as u32).max(1);
            plan.batch[m] = self.smallest(m, plan.workers[m], rate)?;
        }
        while !self.leaves_slack(&plan.batch) {
            let left = gpus.checked_sub(plan.workers.iter().sum())?;
            let critical = self.critical(&plan.batch);
            let shortens = |m: usize| self.next(m, &plan, rate, left).map(|step| (m, step));
            let steps = critical.into_iter().filter_map(shortens);
            let (m, step) = steps.max_by(|a, b| a.1.gain.total_cmp(&b.1.gain))?;
            plan.workers[m] = step.workers;
            plan.batch[m] = step.size;
        }
        (plan.workers.iter().sum::<u32>() <= gpus).then_some(plan)
    }

    fn time(&self, m: usize, size: u32) -> Duration {
        let at = (size as usize).wrapping_sub(1);
        self.execution[m].get(at).copied().unwrap_or_default()
    }

    fn leaves_slack(&self, batch: &[u32]) -> bool {
        let path = longest_path(self.pipeline, |m| self.time(m, batch[m]));
        self.slack * path.as_secs_f64() <= self.pipeline.slo.as_secs_f64() * (1.0 + ROUNDING)
    }

    /// The smallest batch with which that many workers reach the rate.
    fn smallest(&self, m: usize, workers: u32, rate: f64) -> Option<u32> {
        let needed = rate * share_of(self.share, m) * (1.0 - ROUNDING);
        (1..=size_limit(self.pipeline, self.execution, m)).find(|&size| {
            f64::from(workers) * f64::from(size) >= needed * self.time(m, size).as_secs_f64()
        })
    }

    /// The modules on a longest path.
    fn critical(&self, batch: &[u32]) -> Vec<usize> {
        let n = batch.len();
        let time = |m: usize| self.time(m, batch[m]);
        let whole = longest_path(self.pipeline, time);
        // When the module takes no time, the longest path through it is shorter by exactly the module's time.
        let is_on = |&m: &usize| {
            let longer = longest_path(self.pipeline, |i| {
                let more = if i == m {
                    Duration::from_nanos(1)
                } else {
                    Duration::ZERO
                };
                time(i) + more
            });
            longer > whole
        };
        (1..n).filter(is_on).collect()
    }

    /// The next number of workers, at most `left` more, with which smaller batches reach the rate.
    fn next(&self, m: usize, plan: &Sizes, rate: f64, left: u32) -> Option<Step> {
        let (workers, size) = (plan.workers[m], plan.batch[m]);
        let smaller = size.checked_sub(1).filter(|s| *s > 0)?;
        let needed = rate * share_of(self.share, m) * self.time(m, smaller).as_secs_f64();
        let needed = (needed / f64::from(smaller) * (1.0 - ROUNDING)).ceil() as u32;
        let needed = needed.max(workers + 1);
        if needed - workers > left {
            return None;
        }
        let size_then = self.smallest(m, needed, rate)?;
        let shorter = self.time(m, size).saturating_sub(self.time(m, size_then));
        Some(Step {
            workers: needed,
            size: size_then,
            gain: shorter.as_secs_f64() / f64::from(needed - workers),
        })
    }

    /// The sizes with which that many workers serve the most.
    fn sizes(&self, workers: &[u32]) -> Option<Vec<u32>> {
        let capacity = |m: usize, size: u32| {
            let rate = f64::from(workers[m]) * f64::from(size) / self.time(m, size).as_secs_f64();
            rate / share_of(self.share, m)
        };
        sizes_for_workers(self.pipeline, self.execution, capacity, self.slack)
    }
}

/// More workers for a module, and the batch size that they then need.
struct Step {
    workers: u32,
    size: u32,
    /// Seconds that a worker shortens the path by.
    gain: f64,
}

/// Batch sizes for given workers. Starting from 1 each, the module with the least capacity (`capacity` by module and
/// size) is raised by one, as long as `slack * d` on the longest path is at most the SLO. So the slowest module is as
/// fast as possible. A module that takes no time gets its largest size. `None` when even batches of 1 do not fit.
pub fn sizes_for_workers(
    pipeline: &Pipeline,
    execution: &ExecutionTimes,
    capacity: impl Fn(usize, u32) -> f64,
    slack: f64,
) -> Option<Vec<u32>> {
    let limit = |m: usize| size_limit(pipeline, execution, m);
    let is_free = |m: usize| execution[m].last() == execution[m].first();
    let mut batch: Vec<u32> = (0..pipeline.modules.len())
        .map(|m| match m {
            0 => 0,
            m if is_free(m) => limit(m),
            _ => 1,
        })
        .collect();
    let fits = |batch: &[u32]| {
        let path = longest_path(pipeline, |m| execution[m][batch[m] as usize - 1]);
        slack * path.as_secs_f64() <= pipeline.slo.as_secs_f64() * (1.0 + ROUNDING)
    };
    if !fits(&batch) {
        return None;
    }
    loop {
        let slowest = (1..batch.len())
            .map(|m| (capacity(m, batch[m]), m))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        match slowest {
            Some((_, m)) if batch[m] < limit(m) => {
                batch[m] += 1;
                if !fits(&batch) {
                    batch[m] -= 1;
                    return Some(batch);
                }
            }
            _ => return Some(batch),
        }
    }
}
