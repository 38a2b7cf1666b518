//! The contents of a plan, and the plan for a given number of workers.

use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::execution::ExecutionTimes;
use spillgate_pipeline::id::ModuleId;

use super::{PlanError, PlanName, batch_sizes, bottleneck, sizes_for_workers, throughput_of_one};

/// A plan: what is known of a pipeline before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Batch size by module; the source's is not used.
    pub batch: Vec<u32>,
    /// Expected execution times.
    pub execution: ExecutionTimes,
    /// Workers by module; the source's are not used.
    pub workers: Vec<u32>,
    /// Whether each module has devices of its own. If so, sizes are chosen for all workers together. Where modules
    /// share devices, sizes are chosen by the gain of each module.
    pub alone: bool,
}

impl Planned {
    /// Execution time of a module at its planned batch; zero for the source.
    pub fn duration(&self, module: ModuleId) -> Duration {
        self.duration_of(module, self.batch[module.idx()])
    }

    /// Execution time of a batch of that size; zero for the source.
    pub fn duration_of(&self, module: ModuleId, size: u32) -> Duration {
        let times = &self.execution[module.idx()];
        let time = times.get(size.max(1) as usize - 1);
        time.copied().unwrap_or(Duration::ZERO)
    }

    /// Requests a second that all workers of a module serve in full batches when each has a device for itself; infinite for
    /// a module that takes no time.
    pub fn throughput(&self, module: usize) -> f64 {
        f64::from(self.workers[module]) * throughput_of_one(&self.execution, &self.batch, module)
    }

    /// Requests a second that the pipeline serves: the least over its modules of throughput / share, where
    /// `share` is the part of the requests that reach a module (empty: all of them reach every module).
    pub fn bottleneck(&self, share: &[f64]) -> f64 {
        bottleneck(&self.execution, &self.batch, &self.workers, share)
    }

    /// How many workers there are in all.
    pub fn n_workers(&self) -> u32 {
        self.workers.iter().sum()
    }
}

/// The plan of that name for this number of `workers` by module. `alone`: each worker has a device of its own. The
/// reference plan chooses batch sizes by its rule, ours for the workers. Where even batches of one do not fit the SLO,
/// batches of one are planned, and the second value says so.
///
/// # Panics
/// When a module after the source has no execution times.
pub fn plan_for_workers(
    name: PlanName,
    pipeline: &Pipeline,
    execution: ExecutionTimes,
    workers: Vec<u32>,
    alone: bool,
) -> (Planned, Option<PlanError>) {
    let (mut batch, problem) = match batch_sizes(pipeline, &execution, name.slack()) {
        Ok(batch) => (batch, None),
        Err(problem @ PlanError::SloTooShort { .. }) => {
            (vec![1; pipeline.modules.len()], Some(problem))
        }
        Err(problem) => panic!("{problem}"),
    };
    if name == PlanName::Spillgate && alone {
        let capacity = |m: usize, size: u32| {
            let time = execution[m][size as usize - 1];
            f64::from(workers[m]) * f64::from(size) / time.as_secs_f64()
        };
        if let Some(sizes) = sizes_for_workers(pipeline, &execution, capacity, name.slack()) {
            batch = sizes;
        }
    }
    for module in &pipeline.modules[1..] {
        // A module that takes no time gains nothing from batches by the rule. Large batches cost nothing there either.
        if execution[module.id.idx()].iter().all(Duration::is_zero) {
            batch[module.id.idx()] = module.batch.max;
        }
    }
    batch[ModuleId::SOURCE.idx()] = 1;
    let planned = Planned {
        batch,
        execution,
        workers,
        alone,
    };
    (planned, problem)
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;

    /// Batch sizes when the first of two modules takes no time and the second that long, and whether the SLO was too short.
    fn plan_of(second: impl Fn(u32) -> Duration) -> (Vec<u32>, bool) {
        let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0], &[1]], &[]);
        for module in &mut pipeline.modules {
            module.batch.max = 16;
        }
        let times = vec![
            Vec::new(),
            vec![Duration::ZERO; 16],
            (1..=16).map(second).collect(),
        ];
        let workers = vec![0, 1, 1];
        let name = PlanName::Reference;
        let (planned, problem) = plan_for_workers(name, &pipeline, times.into(), workers, true);
        (planned.batch, problem.is_some())
    }

    #[test]
    fn batches_fill_the_slo_and_what_takes_no_time_takes_all() {
        let (batch, too_short) = plan_of(|n| Duration::from_millis(10) + 5 * n * MS);
        assert_eq!((batch, too_short), (vec![1, 16, 8], false));
    }

    #[test]
    fn an_slo_that_holds_no_batch_of_one_is_served_all_the_same() {
        let (batch, too_short) = plan_of(|n| 150 * n * MS);
        assert_eq!((batch, too_short), (vec![1, 16, 1], true));
    }

    const MS: Duration = Duration::from_millis(1);
}
