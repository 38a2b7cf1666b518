//! What a broker is built from.

use std::time::Duration;

use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::Pipeline;
use spillgate_pipeline::policy::recipe::Recipe;

use crate::schedule::SchedulerConfig;

/// What a broker is built from.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// The module it serves.
    pub module: ModuleId,
    /// Most requests that wait, the forming batch included.
    pub capacity: usize,
    /// Requests in a batch, as planned.
    pub batch: u32,
    /// Expected execution times by variant and batch size. At least `batch` sizes.
    pub execution: ModuleExecution,
    /// The drop policy: which requests are kept, which are served first, and when they are bound.
    pub recipe: &'static Recipe,
    /// It asks gateways for requests.
    pub pulls: bool,
    /// The module has a family of models: requests of different members share no batch.
    pub is_family: bool,
    /// Each request has a variant of its own: those of different variants share no batch.
    pub is_adapted: bool,
    /// Most requests without an SLO that wait, beside the others.
    pub background: usize,
    /// Longest time of a batch of requests without an SLO, as far as one request alone does not take longer.
    pub background_time: Duration,
    /// Forms the batches of a module whose time depends on the contents of requests, and decides which requests are
    /// given up. `None`: batches as planned.
    pub schedule: Option<SchedulerConfig>,
}

impl BrokerConfig {
    /// The broker of a worker of that module, with the plan's batch size and execution times, and the module's batch
    /// scheduler if it has one. At the source wait as many requests as may be in flight; elsewhere the module's `queue:`
    /// bounds them.
    pub fn of(
        pipeline: &Pipeline,
        module: ModuleId,
        batch: u32,
        execution: ModuleExecution,
        schedule: Option<SchedulerConfig>,
    ) -> Self {
        let family = pipeline.modules[module.idx()].family.as_ref();
        BrokerConfig {
            module,
            capacity: match module {
                ModuleId::SOURCE => pipeline.limits.in_flight,
                _ => pipeline.modules[module.idx()].queue,
            },
            batch,
            execution,
            recipe: pipeline.policy.recipe(),
            pulls: pipeline.is_pulled(module),
            is_family: family.is_some(),
            is_adapted: pipeline.adapted() == Some(module),
            background: pipeline.limits.background(),
            background_time: pipeline.background_time(),
            schedule,
        }
    }
}
