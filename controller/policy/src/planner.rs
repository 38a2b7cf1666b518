//! The State Planner of one module (PARD §4.2, §4.3): watches its own module, hears of the others, and tells its
//! brokers what to reserve downstream and whom to serve first.
//!
//! Each period it publishes its state, versioned; shortly after, when the others' states of that period are in,
//! it computes its guidance. States may be lost, late or out of order: an older version never replaces a newer
//! one, and what is missing is the last that came.

mod computation;
mod door;
mod order;
mod pace;
mod shared;
mod sizes;
mod window;

use std::sync::Arc;
use std::time::Duration;

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::estimate::{PathEstimate, Scratch, Stage, Waits};
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::message::{BatchReport, BatchShape, Demand, Incarnation};
use spillgate_pipeline::policy::recipe::{Order, Recipe, Reserve};
use spillgate_pipeline::policy::{BudgetOrder, Guidance};
use spillgate_pipeline::schedule::ScheduleName;
use spillgate_pipeline::time::Timestamp;

use crate::plan::Planned;

pub use computation::{Computation, Computed};
use order::next_order;
use pace::Pace;
use sizes::{Asked, Observed};
pub use spillgate_pipeline::message::ModuleState;
pub use window::{Reservoir, SAMPLES_MAX, Window};

/// States are exchanged this often (PARD §4.2: every second).
pub const EXCHANGE_PERIOD: Duration = Duration::from_secs(1);
/// Time from publishing to computing: what the others published at the same time should be in by then.
const SETTLE: Duration = Duration::from_millis(10);
/// The input rate of the load factor is that of this last span.
const INPUT_SPAN: Duration = Duration::from_secs(1);
/// Span of the rate offered to the pipeline: long enough for a rate, short enough to follow a burst.
const DEMAND_SPAN: Duration = Duration::from_secs(2);

/// What a planner has to say when it is woken.
#[derive(Debug, Default)]
pub struct Woken {
    /// Its state, for the others.
    pub publish: Option<Arc<ModuleState>>,
    /// An estimate to be made and brought back.
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
    /// Requests enter the pipeline here: it waits for no other module.
    is_first: bool,
    /// Share of the SLO that the door leaves to spare.
    door_margin: f64,
    planned: Arc<Planned>,
    rng: ChaCha8Rng,
    scratch: Scratch,
    /// The newest state of each module, this one included, and the life of the controller that published it.
    states: Vec<Option<(Incarnation, Arc<ModuleState>)>>,

    workers_up: usize,
    queueing: Window,
    last_second: Window,
    offered: Window,
    /// Requests offered to the pipeline, refused ones included.
    demand: Window,
    input: Window,
    dropped: Window,
    batches: Window,
    latency: Window,
    batch_waits: Reservoir,
    executions: Reservoir,
    pace: Pace,
    asked: Asked,
    /// The sizes in force leave whoever comes the time to wait for the next batch: there may be a door.
    leaves_time: bool,
    /// Batch sizes in force; fewer than planned when requests ask for less time than the SLO.
    batch: Vec<u32>,
    /// Requests that ran it (1) or skipped it (0).
    ran: Window,
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
        let recipe = pipeline.policy.drop.recipe();
        let length = pipeline.policy.window;
        let successors: Arc<[Vec<ModuleId>]> = pipeline
            .modules
            .iter()
            .map(|m| pipeline.successors(m.id))
            .collect();
        let n_modules = pipeline.modules.len();
        let is_first = pipeline.predecessors(module) == [ModuleId::SOURCE];
        let batch = planned.batch.clone();
        let first_shape = BatchShape {
            size: batch[module.idx()],
            execution: planned.duration(module),
        };
        let mut planner = StatePlanner {
            is_first,
            door_margin: crate::plan::door_margin(&pipeline),
            pipeline,
            successors,
            module,
            recipe,
            planned,
            rng: ChaCha8Rng::seed_from_u64(seed ^ (u64::from(module.0) << 48)),
            scratch: Scratch::default(),
            states: vec![None; n_modules],
            workers_up: n_workers,
            queueing: Window::new(length, born),
            last_second: Window::new(INPUT_SPAN, born),
            offered: Window::new(length, born),
            demand: Window::new(DEMAND_SPAN, born),
            input: Window::new(INPUT_SPAN, born),
            dropped: Window::new(length, born),
            batches: Window::new(length, born),
            latency: Window::new(length, born),
            batch_waits: Reservoir::new(length),
            executions: Reservoir::new(length),
            pace: Pace::new(length, born),
            asked: Asked::new(length, born),
            leaves_time: true,
            batch,
            ran: Window::new(length, born),
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

    /// So much more was asked of the module.
    pub fn demanded(&mut self, now: Timestamp, more: &Demand) {
        self.demand.add(now, 0.0, more.offered, 0.0);
        self.demand.take_back(more.returned);
        let (ran, skipped) = (more.reached, more.skipped);
        self.ran.add(now, ran as f64, ran + skipped, 1.0);
        for window in [&mut self.offered, &mut self.input] {
            window.add(now, 0.0, ran, 0.0);
            window.take_back(more.unasked);
        }
        self.dropped.add(now, 0.0, more.dropped, 0.0);
        if self.is_first {
            self.asked.add(now, &more.asked);
        }
    }

    /// A batch ended.
    pub fn batch(&mut self, now: Timestamp, report: &BatchReport) {
        let n = report.members.len();
        self.batches.add(now, n as f64, 1, n as f64);
        let (mut queueing, mut worst) = (0.0, 0.0f64);
        let took = report.ended_at.since(report.started_at);
        let is_dynamic = self.is_dynamic();
        for (arrived_at, batched_at) in &report.members {
            queueing += batched_at.since(*arrived_at).as_secs_f64();
            worst = worst.max(report.ended_at.since(*arrived_at).as_secs_f64());
            let wait = report.started_at.since(*batched_at).as_secs_f64();
            self.batch_waits.add(now, wait as f32);
            if is_dynamic {
                self.executions.add(now, took.as_secs_f32());
            }
        }
        let planned = self.planned.execution[self.module.idx()].get(n.wrapping_sub(1));
        if let Some(planned) = planned {
            self.pace.add(now, took, *planned);
        }
        self.queueing.add(now, queueing, n as u64, queueing);
        self.last_second.add(now, queueing, n as u64, queueing);
        self.latency.add(now, worst, 1, worst);
    }

    /// Whether execution times are exchanged as a distribution.
    fn is_dynamic(&self) -> bool {
        let schedule = self.pipeline.modules[self.module.idx()].schedule;
        self.recipe.learns_pace && schedule.is_some_and(|s| s != ScheduleName::Static)
    }

    /// Part of the requests of the pipeline that run the module, 1 before any came.
    pub fn probability(&mut self, now: Timestamp) -> f64 {
        self.ran.weighted_mean(now).unwrap_or(1.0)
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
        self.demand.rate(now)
    }

    /// The next moment at which [`StatePlanner::wake`] has something to do. `None` when nothing of what it
    /// decides changes with time.
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

    /// An estimate was made.
    pub fn computed(&mut self, computed: Computed) -> Guidance {
        self.guidance = computed.guidance;
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

    /// What the brokers go by now.
    pub fn guidance(&self) -> Guidance {
        self.guidance
    }

    /// The paths behind the guidance, heaviest first.
    pub fn paths(&self) -> &[PathEstimate] {
        &self.paths
    }

    /// Share of arrivals that this module admits now (`pard-oc`); 1 without overload.
    pub fn admits(&self) -> f64 {
        self.admits
    }

    /// The least share that this module or one after it asks for.
    fn least_admitted(&self) -> f64 {
        let states = self.states.iter().flatten().map(|(_, state)| state);
        states
            .filter(|s| self.reaches_from(self.module, s.module))
            .map(|s| s.admit)
            .fold(1.0, f64::min)
    }

    fn reaches_from(&self, from: ModuleId, other: ModuleId) -> bool {
        from == other
            || self.successors[from.idx()]
                .iter()
                .any(|s| *s <= other && self.reaches_from(*s, other))
    }

    fn state(&mut self, now: Timestamp) -> ModuleState {
        self.version += 1;
        let span = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        let batch = self.batch[self.module.idx()].max(1);
        let mut planned = self.planned.duration_of(self.module, batch);
        let pace = self.pace.mean(now);
        if self.recipe.learns_pace {
            planned = planned.mul_f64(pace);
        }
        let capacity = if planned.is_zero() {
            f64::INFINITY
        } else {
            self.workers_up as f64 * f64::from(batch) / planned.as_secs_f64()
        };
        let offered = self.offered.rate(now);
        let dropped = self.dropped.rate(now);
        let input = self.input.rate(now);
        let overloaded = self.recipe.overload.is_some_and(|control| {
            let queueing = self.last_second.weighted_mean(now).unwrap_or(0.0);
            queueing > control.queueing.as_secs_f64()
        });
        let admit = match self.recipe.overload {
            Some(control) if overloaded && input > 0.0 => {
                (control.admitted * capacity / input).min(1.0)
            }
            _ => 1.0,
        };
        let batch_size = self.batches.weighted_mean(now).unwrap_or(0.0);
        ModuleState {
            module: self.module,
            version: self.version,
            queueing: span(self.queueing.weighted_mean(now).unwrap_or(0.0)),
            execution: planned,
            batch_waits: self.batch_waits.samples(now).into(),
            executions: self.executions.samples(now).into(),
            worst: span(self.latency.max(now)),
            offered,
            executed: self.batches.rate(now) * batch_size,
            drop_rate: if offered > 0.0 {
                dropped / offered
            } else {
                0.0
            },
            batch_size,
            capacity,
            probability: self.probability(now),
            workers: self.workers_up as u32,
            pace,
            spread: self.pace.spread(now),
            asked: self.asked.shares(now),
            admit,
        }
    }

    /// Sets the guidance, or says which estimate is needed for it.
    fn compute(&mut self, now: Timestamp) -> Option<Computation> {
        if self.recipe.adapts_batch {
            self.adapt_batch(now);
        }
        if self.recipe.overload.is_some() {
            self.admits = self.least_admitted();
        }
        let mine = self.state_of(self.module);
        let (capacity, smoothed) = mine.map_or((0.0, 0.0), |s| (s.capacity, s.offered));
        let input = self.input.rate(now);
        let before = self.guidance.order;
        let order = match self.recipe.order {
            Order::Guided(transition) => next_order(transition, before, input, capacity, smoothed),
            _ => before,
        };
        self.guidance = match self.recipe.reserve {
            Reserve::Nothing => Guidance {
                order,
                ..Guidance::NONE
            },
            Reserve::Split => Guidance {
                share: self.cumulative_share(|p, m| p.planned.duration(m).as_secs_f64()),
                order,
                ..Guidance::NONE
            },
            Reserve::SplitByWorst => Guidance {
                share: self.cumulative_share(|p, m| {
                    let worst = p.state_of(m).map_or(0.0, |s| s.worst.as_secs_f64());
                    worst.max(p.planned.duration(m).as_secs_f64())
                }),
                order,
                ..Guidance::NONE
            },
            Reserve::Execution => return Some(self.estimated(Waits::Zero, false, order)),
            Reserve::Estimate => {
                let waits = Waits::Quantile(self.pipeline.policy.lambda());
                return Some(self.estimated(waits, true, order));
            }
            Reserve::LowerEstimate => return Some(self.estimated(Waits::Zero, true, order)),
            Reserve::UpperEstimate => return Some(self.estimated(Waits::Full, true, order)),
        };
        None
    }

    /// Batch sizes for what is observed: every planner that knows the same states comes to the same sizes.
    fn adapt_batch(&mut self, now: Timestamp) {
        let demand = self.demand(now);
        self.batch.clone_from(&self.planned.batch);
        let modules = (1..self.states.len()).map(|m| ModuleId(m as u16));
        let states: Option<Vec<&ModuleState>> = modules.map(|m| self.state_of(m)).collect();
        let Some(states) = states else { return };
        let first = self.successors[ModuleId::SOURCE.idx()].first();
        let Some(first) = first.map(|m| states[m.idx() - 1]) else {
            return;
        };
        let observed: Vec<Observed> = states.iter().map(|s| Observed::new(s)).collect();
        let scene = sizes::Scene {
            pipeline: &self.pipeline,
            planned: &self.planned,
            slack: self.recipe.plan.slack(),
            rate: first.offered,
            demand: demand.max(first.offered),
            shares: &first.asked,
            observed: &observed,
        };
        let batch = scene.batch_sizes();
        self.leaves_time = scene.leaves_time(&batch);
        self.batch = batch;
    }

    /// Batch size in force at this module, if it is not the planned one.
    fn guided_batch(&self) -> Option<u32> {
        let idx = self.module.idx();
        (self.batch[idx] != self.planned.batch[idx]).then_some(self.batch[idx])
    }

    /// The shape of the module's batches by what is known now.
    fn current_shape(&self) -> BatchShape {
        let size = self.batch[self.module.idx()];
        let execution = self.planned.duration_of(self.module, size);
        let execution = execution.mul_f64(self.stretch());
        BatchShape { size, execution }
    }

    fn estimated(&mut self, waits: Waits, queueing: bool, order: BudgetOrder) -> Computation {
        let here = self.state_of(self.module).map_or(1.0, |s| s.probability);
        let stages: Vec<Stage> = (0..self.states.len())
            .map(|idx| {
                let id = ModuleId(idx as u16);
                let state = self.state_of(id);
                Stage {
                    queueing: match state {
                        Some(s) if queueing => s.queueing.as_secs_f64(),
                        _ => 0.0,
                    },
                    execution: state
                        .map_or(self.planned.duration(id), |s| s.execution)
                        .as_secs_f64(),
                    executions: state.map_or_else(|| [].into(), |s| s.executions.clone()),
                    waits: state.map_or_else(|| [].into(), |s| s.batch_waits.clone()),
                    // A module that needs this one runs as often as it does given that this one ran.
                    probability: state.map_or(1.0, |s| (s.probability / here.max(1e-9)).min(1.0)),
                }
            })
            .collect();
        Computation {
            pipeline: self.pipeline.clone(),
            successors: self.successors.clone(),
            module: self.module,
            stages,
            waits,
            order,
            batch: self.guided_batch(),
            rng: ChaCha8Rng::seed_from_u64(self.rng.next_u64()),
            scratch: std::mem::take(&mut self.scratch),
        }
    }

    /// The part of the SLO at which a request must have left this module, modules weighted by `weight`: the
    /// longest way up to and including this module over the longest way through it.
    fn cumulative_share(&self, weight: impl Fn(&Self, ModuleId) -> f64) -> f64 {
        let n = self.pipeline.modules.len();
        let weights: Vec<f64> = (0..n).map(|i| weight(self, ModuleId(i as u16))).collect();
        let (mut up, mut down) = (weights.clone(), weights.clone());
        for i in 0..n {
            for s in &self.successors[i] {
                up[s.idx()] = up[s.idx()].max(up[i] + weights[s.idx()]);
            }
        }
        for i in (0..n).rev() {
            let after = self.successors[i].iter().map(|s| down[s.idx()]);
            down[i] = weights[i] + after.fold(0.0, f64::max);
        }
        let k = self.module.idx();
        let through = up[k] + down[k] - weights[k];
        if through > 0.0 { up[k] / through } else { 1.0 }
    }
}

#[cfg(test)]
pub(crate) mod tests;
