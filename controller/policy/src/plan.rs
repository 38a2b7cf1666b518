//! Plans: batch size and number of workers of each module, from execution times alone.
//!
//! The reference rule raises batch sizes where a larger batch gains most throughput, as long as the longest path fits
//! a share of the SLO. Workers are split so that the slowest module is as fast as possible. PARD leaves both rules
//! open (its implementation follows Nexus and Clipper), so the published policies share this one.

mod in_time;
mod joint;
mod planned;
#[cfg(test)]
mod tests;
mod workers;

use std::fmt;
use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::execution::ExecutionTimes;
use spillgate_pipeline::spec::BATCH_MAX;
use spillgate_pipeline::time::format_duration;

pub(crate) use in_time::{Bound, backlog_margin, goodput, part_in_time};
use joint::JointPlan;
pub use joint::sizes_for_workers;
pub use planned::{Planned, plan_for_workers};
pub use spillgate_pipeline::policy::PlanName;
pub use workers::PlacedWorkers;

/// Largest batch of a plan, even where `batch: max` allows more: the limit of the reference rule.
pub const BATCH_LIMIT: u32 = 32;
const _: () = assert!(BATCH_LIMIT <= BATCH_MAX);
/// The slack of a larger plan that comparisons use: batches may use more of the SLO.
pub const LARGER_SLACK: f64 = 1.4;

/// Counts are whole numbers computed from quotients of floats; a quotient this close to a whole number is that
/// number.
const ROUNDING: f64 = 1e-9;

/// Batch sizes and workers by module index, while a plan is sought; entry 0, the source, is 0 in both.
#[derive(Clone, Debug)]
struct Sizes {
    batch: Vec<u32>,
    workers: Vec<u32>,
}

impl Sizes {
    /// The plan with these sizes and workers, each worker on a device of its own.
    fn planned(self, execution: &ExecutionTimes) -> Planned {
        Planned {
            batch: self.batch,
            execution: execution.clone(),
            workers: self.workers,
            alone: true,
        }
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Even single requests on idle devices take longer than the SLO.
    SloTooShort {
        /// The objective.
        slo: Duration,
        /// The longest path in batches of one.
        least: Duration,
    },
    /// Every module needs a device of its own.
    TooFewGpus {
        /// What was given.
        gpus: u32,
        /// How many modules there are.
        modules: u32,
    },
    /// A module has no execution times.
    NoProfile {
        /// Its name.
        module: String,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::SloTooShort { slo, least } => write!(
                f,
                "the slo of {} cannot be met: the longest path takes {} even in batches of 1; raise slo: or shorten \
                 the path",
                format_duration(*slo),
                format_duration(*least)
            ),
            PlanError::TooFewGpus { gpus, modules } => write!(
                f,
                "a plan gives each of the {modules} modules GPUs of its own, and there {} {gpus}; give {modules} or more",
                if *gpus == 1 { "is" } else { "are" }
            ),
            PlanError::NoProfile { module } => write!(
                f,
                "module {module} has no execution times; write them to the pipeline's profile file"
            ),
        }
    }
}

impl std::error::Error for PlanError {}

/// The longest path through the pipeline when each module takes `time(module index)`; the source takes none.
pub fn longest_path(pipeline: &Pipeline, time: impl Fn(usize) -> Duration) -> Duration {
    let mut ends = vec![Duration::ZERO; pipeline.modules.len()];
    for module in &pipeline.modules[1..] {
        let before = pipeline.predecessors(module.id);
        let start = before.iter().map(|id| ends[id.idx()]).max();
        ends[module.id.idx()] = start.unwrap_or_default() + time(module.id.idx());
    }
    ends.into_iter().max().unwrap_or_default()
}

/// Batch sizes by the reference rule. Starting from 1 each, the module that gains most in `(d(b)/b - d(b+1)/(b+1)) /
/// beta` is raised by one, as long as `slack * d` on the longest path is at most the SLO. `beta` is the mean slope of
/// its table. A module stays when it gains nothing more, does not fit, or is at its limit (32, `batch: max`, its
/// table); the others go on. Of equal gains the first module's counts.
///
/// Where even batches of 1 do not leave the slack, the sizes are 1.
///
/// # Errors
/// When a module has no execution times, or the longest path exceeds the SLO in batches of 1.
pub fn batch_sizes(
    pipeline: &Pipeline,
    execution: &ExecutionTimes,
    slack: f64,
) -> Result<Vec<u32>, PlanError> {
    let mut batch = vec![1; pipeline.modules.len()];
    batch[0] = 0;
    for module in &pipeline.modules[1..] {
        if execution
            .get(module.id.idx())
            .is_none_or(<[Duration]>::is_empty)
        {
            let module = module.name.clone();
            return Err(PlanError::NoProfile { module });
        }
    }
    let path = |batch: &[u32]| longest_path(pipeline, |m| execution[m][batch[m] as usize - 1]);
    let (slo, least) = (pipeline.slo, path(&batch));
    if least > slo {
        return Err(PlanError::SloTooShort { slo, least });
    }
    let fits =
        |batch: &[u32]| slack * path(batch).as_secs_f64() <= slo.as_secs_f64() * (1.0 + ROUNDING);
    let limit = |m: usize| size_limit(pipeline, execution, m);
    let mut open: Vec<usize> = (1..batch.len()).collect();
    while !open.is_empty() {
        // From the last, so that the first of equal gains is the one that stays.
        let (mut best, mut gained) = (open.len(), 0.0);
        for (i, &m) in open.iter().enumerate().rev() {
            let gain = gain(&execution[m], batch[m], limit(m));
            if gain > 0.0 && gain >= gained {
                (best, gained) = (i, gain);
            }
        }
        let Some(&m) = open.get(best) else { break };
        batch[m] += 1;
        // A module that does not fit now never will: the other sizes only grow, and with them every path.
        if !fits(&batch) {
            batch[m] -= 1;
            open.remove(best);
        }
    }
    Ok(batch)
}

/// The largest batch of a module: its table's, `batch: max`, and [`BATCH_LIMIT`].
fn size_limit(pipeline: &Pipeline, execution: &ExecutionTimes, module: usize) -> u32 {
    let table = execution[module].len().min(BATCH_LIMIT as usize) as u32;
    table.min(pipeline.modules[module].batch.max)
}

/// What one more request in a batch of `size` gains: device time a request, in units of the table's slope.
fn gain(table: &[Duration], size: u32, limit: u32) -> f64 {
    if size >= limit {
        return 0.0;
    }
    let each = |b: u32| table[b as usize - 1].as_secs_f64() / f64::from(b);
    let (first, last) = (table[0].as_secs_f64(), table[table.len() - 1].as_secs_f64());
    let beta = (last - first) / (table.len() - 1) as f64;
    // In a table that does not rise a larger batch costs nothing, so any gain counts without bound.
    (each(size) - each(size + 1)) / beta.max(f64::MIN_POSITIVE)
}

/// Fewest workers with which every module serves `rate` requests a second (times its `share`, see
/// [`Planned::bottleneck`]); at least one each.
pub fn workers_for_rate(
    execution: &ExecutionTimes,
    batch: &[u32],
    share: &[f64],
    rate: f64,
) -> Vec<u32> {
    let needed = |m: usize| {
        let quotient = rate * share_of(share, m) / throughput_of_one(execution, batch, m);
        ((quotient * (1.0 - ROUNDING)).ceil() as u32).max(1)
    };
    (0..batch.len())
        .map(|m| if m == 0 { 0 } else { needed(m) })
        .collect()
}

/// Workers for the largest rate with `sum ceil(rate * share / throughput) <= gpus`. GPUs that would not raise that
/// rate stay unused, as in the reference: this happens only when several modules are the bottleneck at once.
///
/// # Errors
/// When there are fewer GPUs than modules.
pub fn workers_for_gpus(
    execution: &ExecutionTimes,
    batch: &[u32],
    share: &[f64],
    gpus: u32,
) -> Result<Vec<u32>, PlanError> {
    let modules = batch.len() as u32 - 1;
    if gpus < modules {
        return Err(PlanError::TooFewGpus { gpus, modules });
    }
    let mut workers = vec![1; batch.len()];
    workers[0] = 0;
    let rate = |m: usize, count: u32| {
        f64::from(count) * throughput_of_one(execution, batch, m) / share_of(share, m)
    };
    let slowest = |workers: &[u32]| {
        (1..workers.len()).min_by(|&a, &b| rate(a, workers[a]).total_cmp(&rate(b, workers[b])))
    };
    // Only a further worker of the slowest module can raise the least rate, so the best split has at least that worker.
    // Therefore giving one GPU after another to the slowest module leads to the best split.
    for _ in modules..gpus {
        if let Some(m) = slowest(&workers) {
            workers[m] += 1;
        }
    }
    let Some(m) = slowest(&workers) else {
        return Ok(workers);
    };
    let best = rate(m, workers[m]);
    if best.is_infinite() {
        // Nothing takes time: one worker each is enough for any rate.
        return Ok((0..batch.len()).map(|m| u32::from(m > 0)).collect());
    }
    Ok(workers_for_rate(execution, batch, share, best))
}

/// The plan of that name for a number of GPUs. The reference's is by [`batch_sizes`] and [`workers_for_gpus`]; ours
/// chooses sizes and workers together for the highest rate.
///
/// # Errors
/// Those of the two.
pub fn plan_for_gpus(
    name: PlanName,
    pipeline: &Pipeline,
    execution: &ExecutionTimes,
    share: &[f64],
    gpus: u32,
) -> Result<Planned, PlanError> {
    let batch = batch_sizes(pipeline, execution, name.slack())?;
    let workers = workers_for_gpus(execution, &batch, share, gpus)?;
    let apart = Sizes { batch, workers };
    let sizes = match name {
        PlanName::Reference => apart,
        PlanName::Spillgate => JointPlan {
            pipeline,
            execution,
            share,
            slack: name.slack(),
        }
        .for_gpus(gpus, apart),
    };
    Ok(sizes.planned(execution))
}

/// The plan of that name for a rate: the fewest workers that serve it.
///
/// # Errors
/// Those of [`batch_sizes`].
pub fn plan_for_rate(
    name: PlanName,
    pipeline: &Pipeline,
    execution: &ExecutionTimes,
    share: &[f64],
    rate: f64,
) -> Result<Planned, PlanError> {
    let batch = batch_sizes(pipeline, execution, name.slack())?;
    let workers = workers_for_rate(execution, &batch, share, rate);
    let apart = Sizes { batch, workers };
    let sizes = match name {
        PlanName::Reference => apart,
        PlanName::Spillgate => JointPlan {
            pipeline,
            execution,
            share,
            slack: name.slack(),
        }
        .for_rate(rate, apart),
    };
    Ok(sizes.planned(execution))
}

/// The reference plan: sizes by [`batch_sizes`] with the slack of [`PlanName::Reference`], workers by [`workers_for_gpus`].
///
/// # Errors
/// Those of [`plan_for_gpus`].
pub fn reference_plan(
    pipeline: &Pipeline,
    execution: &ExecutionTimes,
    share: &[f64],
    gpus: u32,
) -> Result<Planned, PlanError> {
    plan_for_gpus(PlanName::Reference, pipeline, execution, share, gpus)
}

/// Requests a second that the pipeline serves: [`Planned::bottleneck`].
fn bottleneck(execution: &ExecutionTimes, batch: &[u32], workers: &[u32], share: &[f64]) -> f64 {
    (1..batch.len())
        .map(|m| {
            let one = throughput_of_one(execution, batch, m);
            f64::from(workers[m]) * one / share_of(share, m)
        })
        .fold(f64::INFINITY, f64::min)
}

/// Requests a second of one worker in full batches; infinite for the source and for a module that takes no time.
pub(crate) fn throughput_of_one(execution: &ExecutionTimes, batch: &[u32], module: usize) -> f64 {
    match execution[module].get((batch[module] as usize).wrapping_sub(1)) {
        Some(d) => f64::from(batch[module]) / d.as_secs_f64(),
        None => f64::INFINITY,
    }
}

fn share_of(share: &[f64], module: usize) -> f64 {
    share.get(module).copied().unwrap_or(1.0)
}
