//! From a pipeline and its profiles to comparable runs: plans, worlds and reports.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use spillgate_controller_policy::plan::{self, PlanError, PlanName, Planned};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::execution::ExecutionTimes;
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::policy::PolicyConfig;
use spillgate_pipeline::time::Timestamp;

use crate::bound::Bounded;
use crate::clients::ClientLoad;
use crate::report::Report;
use crate::world::{Served, SimConfig, run};

/// Most devices that are planned for or simulated.
pub const DEVICES_MAX: u32 = 20_000;
/// A second counts as overloaded when the offered rate is above this part of the capacity.
const OVERLOADED: f64 = 0.95;

/// A pipeline with its execution times.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The pipeline.
    pub pipeline: Arc<Pipeline>,
    /// Its execution times.
    pub execution: ExecutionTimes,
    /// Part of the requests that reach each module, for plans; empty: all reach all.
    pub share: Vec<f64>,
}

/// One policy on one plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The policies.
    pub policy: PolicyConfig,
    /// The plan; `None`: that of the drop policy's recipe.
    pub plan: Option<PlanName>,
}

impl Contender {
    /// The plan in force.
    pub fn plan(&self) -> PlanName {
        self.plan.unwrap_or(self.policy.recipe().plan)
    }
}

/// The load of a run.
#[derive(Clone, Debug)]
pub struct Load {
    /// Arrival times.
    pub arrivals: Arc<[Timestamp]>,
    /// Duration of the load.
    pub duration: Duration,
    /// Mean rate over the bottleneck throughput of the reference plan.
    pub load: f64,
    /// That throughput, in requests a second.
    pub capacity: f64,
    /// The clients that send, where they are told apart.
    pub clients: Option<ClientLoad>,
}

/// A run, as it is printed and compared.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Drop policy.
    pub policy: &'static str,
    /// Dispatch policy.
    pub dispatch: &'static str,
    /// Plan of batch sizes and workers.
    pub plan: &'static str,
    /// The placement that decides for its devices, where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<&'static str>,
    /// How variants are chosen, where one way was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapt: Option<String>,
    /// Batch scheduler of the modules with dynamic work, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<&'static str>,
    /// Seed.
    pub seed: u64,
    /// Load.
    pub load: f64,
    /// Quantile of the waits downstream.
    pub lambda: f64,
    /// Multiple of the bottleneck that the gate lets pass; `None` without a gate.
    pub gate: Option<f64>,
    /// Devices.
    pub gpus: u32,
    /// The results.
    #[serde(flatten)]
    pub report: Report,
    /// Requests completed in time, per second, of the requests that are offered in seconds with more than 95% of the
    /// capacity.
    pub goodput_overloaded: f64,
    /// How many seconds those are.
    pub overloaded_seconds: u64,
    /// PARD's optimal goodput: min(arrivals, bottleneck throughput) each second, on the run's plan. It is not a true
    /// bound: it ignores waiting within the SLO.
    pub optimal_goodput: f64,
    /// Most requests that any policy can complete in time, where it was computed ([`Setup::bounds`]).
    #[serde(flatten)]
    pub bounds: Option<Bounds>,
}

/// Upper bounds on the number of requests completed in time; [`crate::bound`] has the proof.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// With the workers of the run's plan and batches up to its sizes.
    pub upper_bound: u64,
    /// With the same number of devices, over all plans.
    pub upper_bound_any_plan: u64,
}

impl Setup {
    /// A plan for a number of GPUs.
    ///
    /// # Errors
    /// When there is none.
    pub fn plan(&self, name: PlanName, gpus: u32) -> Result<Planned, PlanError> {
        plan::plan_for_gpus(name, &self.pipeline, &self.execution, &self.share, gpus)
    }

    /// Bottleneck throughput of a plan, in requests a second.
    pub fn capacity(&self, plan: &Planned) -> f64 {
        plan.bottleneck(&self.share)
    }

    /// The world for a contender on that plan, every worker on a device of its own, undisturbed.
    pub fn config(
        &self,
        contender: &Contender,
        plan: &Planned,
        load: &Load,
        seed: u64,
    ) -> SimConfig {
        let mut n_devices = 0u16;
        let workers = plan
            .workers
            .iter()
            .map(|&n| {
                let first = n_devices;
                n_devices += n as u16;
                (first..n_devices).collect()
            })
            .collect();
        let mut pipeline = (*self.pipeline).clone();
        pipeline.policy = contender.policy.clone();
        let served = Served {
            pipeline: Arc::new(pipeline),
            planned: Arc::new(plan.clone()),
            workers,
            arrivals: load.arrivals.clone(),
            duration: load.duration,
        };
        SimConfig {
            clients: load.clients.clone(),
            ..SimConfig::undisturbed(served, seed)
        }
    }

    /// Upper bounds under that load, hop included.
    ///
    /// # Errors
    /// When there are fewer devices than modules.
    pub fn bounds(&self, plan: &Planned, load: &Load, hop: Duration) -> Result<Bounds, PlanError> {
        let bounded = Bounded {
            pipeline: &self.pipeline,
            execution: &self.execution,
            hop,
            arrivals: &load.arrivals,
            deadlines: None,
        };
        let mut largest = plan.clone();
        let branches = self.pipeline.modules.iter().any(|m| m.when.is_some());
        if branches {
            // While the pipeline runs, batch sizes follow the number of requests that run a module, so the plan's sizes
            // are no limit.
            for module in &self.pipeline.modules[1..] {
                largest.batch[module.id.idx()] = module.batch.max;
            }
        }
        Ok(Bounds {
            upper_bound: bounded.of_plan(&largest),
            upper_bound_any_plan: bounded.of_any_plan(plan.n_workers())?,
        })
    }

    /// Runs a world and returns its results.
    ///
    /// # Errors
    /// The first invariant that did not hold.
    pub fn run(
        &self,
        contender: &Contender,
        plan: &Planned,
        load: &Load,
        config: SimConfig,
    ) -> Result<Run, Violation> {
        let seed = config.seed;
        let pipeline = config.pipeline.clone();
        let policy = &pipeline.policy;
        let gpus = plan.n_workers();
        let reported = load.duration.saturating_sub(config.warm_up);
        let report = run(config)?;
        let capacity = self.capacity(plan);
        let offered = report.offered_by_second.iter().enumerate();
        let overloaded: Vec<usize> = offered
            .filter(|(_, n)| f64::from(**n) > OVERLOADED * load.capacity)
            .map(|(second, _)| second)
            .collect();
        let good_in = |second: &usize| report.good_by_second.get(*second).copied().unwrap_or(0);
        let good: u64 = overloaded.iter().map(|s| u64::from(good_in(s))).sum();
        let optimal: f64 = report
            .offered_by_second
            .iter()
            .map(|n| f64::from(*n).min(capacity))
            .sum();
        Ok(Run {
            policy: policy.drop_in_force().name(),
            dispatch: pipeline.dispatch().name(),
            plan: contender.plan().name(),
            placement: None,
            adapt: None,
            schedule: None,
            seed,
            load: load.load,
            lambda: policy.lambda(),
            gate: policy.gate(),
            gpus,
            goodput_overloaded: good as f64 / overloaded.len().max(1) as f64,
            overloaded_seconds: overloaded.len() as u64,
            optimal_goodput: optimal / reported.as_secs_f64(),
            bounds: None,
            report,
        })
    }
}
