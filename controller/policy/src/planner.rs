//! The State Planner of one module (PARD §4.2, §4.3). It watches its own module, receives the states of the other
//! modules, and tells its brokers how much time to reserve downstream and which end of the queue to serve first.
//!
//! Each period it publishes its state, with a version. Shortly after, when the states of the other modules of that
//! period have arrived, it computes its guidance. States may be lost, late or out of order: an older version never
//! replaces a newer one, and for a missing state the last one that arrived counts.

mod backlog_check;
mod computation;
mod guidance;
mod in_force;
mod measured;
mod order;
pub(crate) mod reservoir;
mod shared;
mod sizes;
mod state;

use std::sync::Arc;
use std::time::Duration;

use crate::estimate::{PathEstimate, Scratch};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{Incarnation, ModuleId};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::policy::recipe::{Order, Recipe};
use spillgate_pipeline::schedule::SchedulePolicy;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{BatchReport, BatchShape, Demand};

use crate::plan::Planned;

pub use computation::{Computation, Computed};
use measured::Measured;
pub use reservoir::{Reservoir, SAMPLES_MAX};
pub use spillgate_protocol::message::ModuleState;

/// States are exchanged this often (PARD §4.2: every second).
pub const EXCHANGE_PERIOD: Duration = Duration::from_secs(1);
/// Time from publishing to computing: the states that the others published at the same time should have arrived by
/// then.
const SETTLE: Duration = Duration::from_millis(10);

/// The results of waking a planner.
#[derive(Debug, Default)]
pub struct Woken {
    /// Its state, for the other modules.
    pub publish: Option<Arc<ModuleState>>,
    /// An estimate that the driver makes and brings back.
    pub compute: Option<Computation>,
    /// New guidance.
    pub guidance: Option<Guidance>,
}

/// The State Planner of one module.
pub struct StatePlanner {
    pipeline: Arc<Pipeline>,
    successors: Arc<[Vec<ModuleId>]>,
    module: ModuleId,
    recipe: &'static Recipe,
    /// Requests enter the pipeline at this module: it waits for no other module.
    is_first: bool,
    /// Its time depends on what requests bring.
    is_dynamic: bool,
    /// Share of the SLO that the backlog check leaves to spare.
    backlog_margin: f64,
    planned: Arc<Planned>,
    rng: ChaCha8Rng,
    scratch: Scratch,
    /// The newest state of each module, this one included, and the incarnation of the controller that published it.
    states: Vec<Option<(Incarnation, Arc<ModuleState>)>>,
    workers_up: usize,
    measured: Measured,
    /// The sizes in force leave every request the time to wait for the next batch, so there may be a backlog check.
    leaves_time: bool,
    /// Batch sizes in force. They differ from the plan when something differs from what the plan assumes.
    batch: Vec<u32>,
    version: u64,
    publishes_at: Timestamp,
    computes_at: Option<Timestamp>,
    guidance: Guidance,
    /// The shape of the module's batches as of the last estimate.
    shape: BatchShape,
    admits: f64,
    paths: Vec<PathEstimate>,
}

impl StatePlanner {
    /// The planner of `module`, which has that many workers.
    pub fn new(
        pipeline: Arc<Pipeline>,
        module: ModuleId,
        planned: Arc<Planned>,
        n_workers: usize,
        seed: u64,
        born: Timestamp,
    ) -> Self {
        let recipe = pipeline.policy.recipe();
        let length = pipeline.policy.window;
        let successors: Arc<[Vec<ModuleId>]> = pipeline
            .modules
            .iter()
            .map(|m| pipeline.successors(m.id))
            .collect();
        let n_modules = pipeline.modules.len();
        let is_first = pipeline.predecessors(module) == [ModuleId::SOURCE];
        let schedule = pipeline.modules[module.idx()].schedule;
        let is_dynamic =
            recipe.learns_pace && schedule.is_some_and(|s| s != SchedulePolicy::STATIC);
        let n_variants = match pipeline.adapted() == Some(module) {
            true => pipeline.modules[module.idx()].variants.len(),
            false => 0,
        };
        let batch = planned.batch.clone();
        let first_shape = BatchShape {
            size: batch[module.idx()],
            execution: planned.duration(module),
        };
        let mut planner = StatePlanner {
            is_first,
            is_dynamic,
            backlog_margin: crate::plan::backlog_margin(&pipeline),
            pipeline,
            successors,
            module,
            recipe,
            planned,
            rng: ChaCha8Rng::seed_from_u64(seed ^ (u64::from(module.0) << 48)),
            scratch: Scratch::default(),
            states: vec![None; n_modules],
            workers_up: n_workers,
            measured: Measured::new(module, length, born, is_first, is_dynamic, n_variants),
            leaves_time: true,
            batch,
            version: 0,
            publishes_at: born + EXCHANGE_PERIOD,
            computes_at: None,
            guidance: Guidance::NONE,
            shape: first_shape,
            admits: 1.0,
            paths: Vec::new(),
        };
        let first = planner.compute(born);
        if let Some(computation) = first {
            planner.computed(computation.run());
        }
        planner
    }

    /// Adds the demand since the last report.
    pub fn demanded(&mut self, now: Timestamp, more: &Demand) {
        self.measured.demanded(now, more);
    }

    /// A batch ended.
    pub fn batch(&mut self, now: Timestamp, report: &BatchReport) {
        let planned = self.planned_time(report);
        self.measured.batch(now, report, planned);
    }

    /// Measured over planned time of a batch. `None` where the time depends on what requests bring, or under a policy that trusts
    /// the profile.
    pub fn ratio(&self, report: &BatchReport) -> Option<f64> {
        let planned = self.planned_time(report).filter(|p| !p.is_zero())?;
        let took = report.ended_at.since(report.started_at);
        let compares = self.recipe.learns_pace && !self.is_dynamic;
        compares.then(|| took.as_secs_f64() / planned.as_secs_f64())
    }

    /// What a batch was planned to take, of its variant.
    fn planned_time(&self, report: &BatchReport) -> Option<Duration> {
        let times = self.planned.execution.of_module(self.module);
        let times = times.of_variant(report.variant);
        times.get((report.size as usize).wrapping_sub(1)).copied()
    }

    /// Part of the requests of the pipeline that run the module, 1 before any came.
    pub fn probability(&mut self, now: Timestamp) -> f64 {
        self.measured.probability(now)
    }

    /// Measured over planned time of the module's batches, each by its own variant and size. 1 before any was measured, and under a
    /// policy that trusts the profile.
    pub fn pace(&mut self, now: Timestamp) -> f64 {
        match self.recipe.learns_pace {
            true => self.measured.pace(now),
            false => 1.0,
        }
    }

    /// How many workers serve the module now.
    pub fn set_workers(&mut self, up: usize) {
        self.workers_up = up;
    }

    /// The state of another module came in. Late and repeated ones change nothing.
    pub fn peer(&mut self, incarnation: Incarnation, state: Arc<ModuleState>) {
        let known = &mut self.states[state.module.idx()];
        let is_newer = |(life, known): &(Incarnation, Arc<ModuleState>)| {
            *life != incarnation || known.version < state.version
        };
        if known.as_ref().is_none_or(is_newer) {
            *known = Some((incarnation, state));
        }
    }

    /// Requests a second that are offered to the pipeline, refused ones included.
    pub fn demand(&mut self, now: Timestamp) -> f64 {
        self.measured.demand.rate(now)
    }

    /// The next moment at which [`StatePlanner::wake`] has something to do. `None` when none of its decisions changes
    /// with time.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        if !self.adapts() {
            return None;
        }
        Some(
            self.computes_at
                .map_or(self.publishes_at, |at| at.min(self.publishes_at)),
        )
    }

    /// Whether guidance changes while a pipeline runs. If not, planners exchange nothing.
    fn adapts(&self) -> bool {
        self.recipe.reserve.follows_load()
            || matches!(self.recipe.order, Order::Guided(_))
            || self.recipe.overload.is_some()
            || self.pipeline.policy.gate().is_some()
    }

    /// The time of [`StatePlanner::next_wakeup`] has come.
    pub fn wake(&mut self, now: Timestamp) -> Woken {
        let mut woken = Woken::default();
        if self.publishes_at <= now {
            let state = Arc::new(self.state(now));
            self.states[self.module.idx()] = Some((Incarnation::default(), state.clone()));
            self.publishes_at = now + EXCHANGE_PERIOD;
            self.computes_at = Some(now + SETTLE);
            woken.publish = Some(state);
        }
        if self.computes_at.is_some_and(|at| at <= now) {
            self.computes_at = None;
            woken.compute = self.compute(now);
            woken.guidance = woken.compute.is_none().then_some(self.guidance);
        }
        woken
    }

    /// Takes in a finished estimate.
    pub fn computed(&mut self, computed: Computed) -> Guidance {
        self.guidance = computed.guidance;
        if !self.adapts() {
            // It is given once, and does not age.
            self.guidance.planned = self.guidance.downstream;
        }
        self.paths = computed.paths;
        self.scratch = computed.scratch;
        self.shape = self.current_shape();
        self.guidance
    }

    /// The state that was published last.
    pub fn published(&self) -> Option<&ModuleState> {
        self.state_of(self.module)
    }

    /// The newest state of a module.
    fn state_of(&self, module: ModuleId) -> Option<&ModuleState> {
        self.states[module.idx()]
            .as_ref()
            .map(|(_, state)| &**state)
    }

    /// The current guidance of the brokers.
    pub fn guidance(&self) -> Guidance {
        self.guidance
    }

    /// Share of arrivals that this module admits now (`pard-oc`); 1 without overload.
    pub fn admits(&self) -> f64 {
        self.admits
    }
}

#[cfg(test)]
pub(crate) mod tests;
