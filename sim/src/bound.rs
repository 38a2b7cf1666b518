//! An upper bound on the number of requests that any policy can complete in time: every policy is measured against
//! it.
//!
//! **Bound by windows.** Take a request that is completed in time, and a module that every request passes. Its batch
//! there starts no earlier than its arrival + `before`, the least time of the way to that module (a hop an edge,
//! batches of one on idle devices). The batch ends no later than its deadline - `after`, the least time of the way from
//! there to the result. So its whole service lies in a window. A batch of `k` keeps a worker busy for `d(k)`. Spread
//! the service of its members evenly over that time, each at a rate of `1 / d(k)`: then `n` workers never serve more
//! than `rate = n * max k/d(k)` requests a second, the maximum taken over sizes that fit into the longest window. In
//! any interval at most `rate * length` requests are served. Cut time into slots of length `1 / rate`: then at most `s`
//! requests have windows that touch only `s` given consecutive slots. By Hall's theorem all of them can be matched to
//! slots, one request a slot, each inside its window. The largest such matching over all requests is therefore at least
//! the number completed in time. Giving each slot to the waiting request of the earliest deadline finds it (Glover
//! 1967). Every module gives such a bound; the least of them counts.
//!
//! **For a given plan** ([`Bounded::of_plan`]) sizes go up to the plan's and workers are the plan's. **Over all plans**
//! ([`Bounded::of_any_plan`]) sizes go up to what the module allows and workers are split in the best way.
//!
//! Modules with a `when:` and the modules behind them may be skipped, so they count as taking no time. Where execution
//! times vary or workers come and go, the caller passes the least times and the most workers.
//!
//! **How tight.** On the reference workload (4 pipelines x 3 traces x 3 windows, loads 0.9 and 1.1, 24 GPUs, one
//! seed) at least 10.4% must be dropped on average on the reference plan, 8.6% on the larger one and 7.4% on any.
//! Long overload is bounded tightly. The ends of bursts are bounded loosely: each module alone may serve the backlog
//! until the last moment, as if the others then served it in batches of one at the same rate.
//!
//! **A tighter bound** uses prices on the workers' time of all modules at once (the dual of filling workers with
//! fractions of batches; each request must pay at least its prices). It takes seconds a run and is tighter by a few
//! tenths of a point at most, except for load that jumps each second, so it is not used. Latency over the whole path
//! does not limit the rate over all plans: on all four pipelines, sizes that reach the rate of the best split fit the
//! SLO together. So most of the remaining gap seems to come from whole batches and the unknown future.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use spillgate_controller_policy::plan::{PlanError, Planned};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::execution::ExecutionTimes;
use spillgate_pipeline::time::Timestamp;

/// The inputs of the bound: the load of a pipeline, and its least execution times.
#[derive(Clone, Copy)]
pub struct Bounded<'a> {
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// Execution times; the source's are not used.
    pub execution: &'a ExecutionTimes,
    /// Travel time along an edge.
    pub hop: Duration,
    /// Arrival times, in order.
    pub arrivals: &'a [Timestamp],
    /// Deadlines, one an arrival; `None`: arrival + SLO.
    pub deadlines: Option<&'a [Timestamp]>,
}

/// A module that every request passes, in the terms of the bound.
struct Passed {
    module: usize,
    before: Duration,
    after: Duration,
}

impl Bounded<'_> {
    /// Most requests that can be completed in time with the workers of a plan and batches up to its sizes.
    pub fn of_plan(&self, plan: &Planned) -> u64 {
        let bound = |passed: &Passed| {
            let worker = self.worker_rate(passed, plan.batch[passed.module]);
            self.served(passed, f64::from(plan.workers[passed.module]) * worker)
        };
        let all = self.passed();
        all.iter().map(bound).min().unwrap_or(self.offered())
    }

    /// Most requests that can be completed in time with that many GPUs: over every split of the GPUs among the
    /// modules and every mix of the batch sizes that `batch: max` and the execution times allow.
    ///
    /// # Errors
    /// When there are fewer GPUs than modules.
    pub fn of_any_plan(&self, gpus: u32) -> Result<u64, PlanError> {
        let modules = self.pipeline.modules.len() as u32 - 1;
        if gpus < modules {
            return Err(PlanError::TooFewGpus { gpus, modules });
        }
        let all = self.passed();
        if all.is_empty() {
            return Ok(self.offered());
        }
        // Modules that may be skipped still have a worker each.
        let free = gpus - (modules - all.len() as u32);
        let rates: Vec<f64> = all.iter().map(|p| self.worker_rate(p, u32::MAX)).collect();
        let mut known = BTreeMap::new();
        let mut bound = |i: usize, workers: u32| {
            let compute = || self.served(&all[i], f64::from(workers) * rates[i]);
            *known.entry((i, workers)).or_insert_with(compute)
        };
        let mut split = balanced(&rates, free);
        loop {
            let of_split = split.iter().enumerate().map(|(i, &n)| bound(i, n));
            let least = of_split.min().unwrap_or_default();
            // The fewest workers with which each module alone exceeds the present minimum: every better split has at
            // least these.
            for (i, workers) in split.iter_mut().enumerate() {
                while *workers > 1 && bound(i, *workers - 1) > least {
                    *workers -= 1;
                }
                while *workers <= free && bound(i, *workers) <= least {
                    *workers += 1;
                }
            }
            if split.iter().sum::<u32>() > free {
                return Ok(least);
            }
        }
    }

    fn offered(&self) -> u64 {
        self.arrivals.len() as u64
    }

    /// Modules that no request skips, with the least times around each.
    fn passed(&self) -> Vec<Passed> {
        let modules = &self.pipeline.modules;
        let mut skippable = vec![false; modules.len()];
        for module in &modules[1..] {
            let behind = self.pipeline.predecessors(module.id).into_iter().any(|id| {
                let edge = self.pipeline.edge(id, module.id);
                skippable[id.idx()] && edge.is_some_and(|edge| edge.required)
            });
            skippable[module.id.idx()] = behind || module.when.is_some();
        }
        let least = |m: usize| match m {
            0 => Duration::ZERO,
            m if skippable[m] => Duration::ZERO,
            m => self.execution[m].iter().min().copied().unwrap_or_default(),
        };
        let mut before = vec![Duration::ZERO; modules.len()];
        for module in &modules[1..] {
            let ways = self.pipeline.predecessors(module.id).into_iter();
            let ways = ways.map(|id| before[id.idx()] + least(id.idx()) + self.hop);
            before[module.id.idx()] = ways.max().unwrap_or_default();
        }
        let mut after = vec![Duration::ZERO; modules.len()];
        for module in modules[1..].iter().rev() {
            let ways = self.pipeline.successors(module.id).into_iter();
            let ways = ways.map(|id| self.hop + least(id.idx()) + after[id.idx()]);
            after[module.id.idx()] = ways.max().unwrap_or_default();
        }
        (1..modules.len())
            .filter(|m| !skippable[*m])
            .map(|module| Passed {
                module,
                before: before[module],
                after: after[module],
            })
            .collect()
    }

    /// The longest time from arrival to deadline of any request.
    fn longest(&self) -> Duration {
        match self.deadlines {
            None => self.pipeline.slo,
            Some(deadlines) => {
                let spans = deadlines.iter().zip(self.arrivals);
                spans.map(|(d, a)| d.since(*a)).max().unwrap_or_default()
            }
        }
    }

    /// Most requests a second of one worker, in batches up to `largest` that fit into the longest window.
    fn worker_rate(&self, passed: &Passed, largest: u32) -> f64 {
        let window = self.longest().saturating_sub(passed.before + passed.after);
        let largest = largest.min(self.pipeline.modules[passed.module].batch.max);
        let sizes = self.execution[passed.module].iter().take(largest as usize);
        sizes
            .enumerate()
            .filter(|(_, d)| **d <= window)
            .map(|(i, d)| (i + 1) as f64 / d.as_secs_f64())
            .fold(0.0, f64::max)
    }

    /// The bound of one module: the number of requests that get a slot inside their window.
    fn served(&self, passed: &Passed, rate: f64) -> u64 {
        if rate.is_infinite() {
            return self.offered();
        }
        if rate <= 0.0 {
            return 0;
        }
        let slots_a_ns = rate * 1e-9;
        let mut served = 0;
        // The next slot, and the last slots of the waiting requests, the earliest first.
        let (mut slot, mut waiting) = (0u64, VecDeque::new());
        let mut serve_until = |end: u64, waiting: &mut VecDeque<u64>| {
            while slot < end
                && let Some(last) = waiting.pop_front()
            {
                if last >= slot {
                    slot += 1;
                    served += 1;
                }
            }
            slot = slot.max(end);
        };
        for (i, &arrival) in self.arrivals.iter().enumerate() {
            let deadline = match self.deadlines {
                Some(deadlines) => deadlines[i],
                None => arrival + self.pipeline.slo,
            };
            let (from, until) = (arrival + passed.before, deadline - passed.after);
            if from >= until {
                continue;
            }
            // Every slot that the window touches: more than the slots inside it.
            let first = (from.as_ns() as f64 * slots_a_ns) as u64;
            let last = ((until.as_ns() - 1) as f64 * slots_a_ns) as u64;
            serve_until(first, &mut waiting);
            if waiting.back().is_none_or(|other| *other <= last) {
                waiting.push_back(last);
            } else {
                // Needed only where deadlines are not in the order of arrivals.
                waiting.insert(waiting.partition_point(|other| *other <= last), last);
            }
        }
        serve_until(u64::MAX, &mut waiting);
        served
    }
}

/// Workers that make the slowest module as fast as possible, at least one each; the start of the search.
fn balanced(rates: &[f64], gpus: u32) -> Vec<u32> {
    let mut workers = vec![1; rates.len()];
    for _ in rates.len() as u32..gpus {
        let rate = |i: usize, workers: &[u32]| f64::from(workers[i]) * rates[i];
        let slowest = (0..rates.len())
            .min_by(|&a, &b| rate(a, &workers).total_cmp(&rate(b, &workers)))
            .unwrap_or_default();
        workers[slowest] += 1;
    }
    workers
}
