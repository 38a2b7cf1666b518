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
use spillgate_pipeline::policy::recipe::{Order, Recipe, Reserve};
use spillgate_pipeline::policy::{BudgetOrder, Guidance};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::schedule::ScheduleName;
use spillgate_pipeline::time::Timestamp;

use crate::dispatcher::BatchShape;

pub use computation::{Computation, Computed};
use order::next_order;
use pace::Pace;
pub use sizes::Shares;
use sizes::{Asked, Observed};
pub use window::{Reservoir, SAMPLES_MAX, Window};

/// States are exchanged this often (PARD §4.2: every second).
pub const EXCHANGE_PERIOD: Duration = Duration::from_secs(1);
/// Time from publishing to computing: what the others published at the same time should be in by then.
const SETTLE: Duration = Duration::from_millis(10);
/// The input rate of the load factor is that of this last span.
const INPUT_SPAN: Duration = Duration::from_secs(1);

/// What is known of a pipeline before it runs.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Batch size by module; the source's is not used.
    pub batch: Vec<u32>,
    /// Execution time by module and batch size from 1; the source's is empty.
    pub execution: Vec<Vec<Duration>>,
    /// Workers by module that the sizes were chosen for. `None` where modules share devices: there sizes are chosen
    /// by what each gains, since none has workers of its own.
    pub workers: Option<Vec<u32>>,
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
}

/// What a module tells the others.
#[derive(Clone, Debug)]
pub struct ModuleState {
    /// The module.
    pub module: ModuleId,
    /// Rises with each publication.
    pub version: u64,
    /// q: mean queueing delay over the window.
    pub queueing: Duration,
    /// d: execution at the planned batch; for our own policy at the pace that its workers show.
    pub execution: Duration,
    /// Recent batch waits in seconds.
    pub batch_waits: Arc<[f32]>,
    /// Recent execution times of batches in seconds, one a request, where a batch scheduler forms them: they depend on
    /// what requests bring, and so does what to leave for them. Empty elsewhere and under published policies.
    pub executions: Arc<[f32]>,
    /// The largest latency (Q + W + D) in the window.
    pub worst: Duration,
    /// Requests offered to it, per second.
    pub offered: f64,
    /// Requests that it executed, per second.
    pub executed: f64,
    /// Requests that it dropped / requests offered, in the window.
    pub drop_rate: f64,
    /// Mean batch size in the window.
    pub batch_size: f64,
    /// T_m: requests a second that its workers can serve in planned batches.
    pub capacity: f64,
    /// Part of the requests of the pipeline that run it (1 without conditions).
    pub probability: f64,
    /// Workers that serve it.
    pub workers: u32,
    /// Measured over planned execution time.
    pub pace: f64,
    /// Standard deviation of that from batch to batch.
    pub spread: f64,
    /// What part of the SLO its requests ask for.
    pub asked: Shares,
    /// Share of arrivals that it and its predecessors are to admit (`pard-oc`); 1 without overload.
    pub admit: f64,
}

/// One batch that ended, as its worker reports it.
#[derive(Clone, Copy, Debug)]
pub struct BatchReport<'a> {
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// t_r and t_b of each member.
    pub members: &'a [(Timestamp, Timestamp)],
}

/// What a planner has to say when it is woken.
#[derive(Debug, Default)]
pub struct Woken {
    /// Its state, for the others.
    pub publish: Option<ModuleState>,
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
    /// The newest state of each module, this one included.
    states: Vec<Option<ModuleState>>,
    workers_up: usize,
    queueing: Window,
    last_second: Window,
    offered: Window,
    /// Requests a second that are offered to the pipeline, as far as it is known.
    demand: f64,
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
            queueing: Window::new(length),
            last_second: Window::new(INPUT_SPAN),
            offered: Window::new(length),
            demand: 0.0,
            input: Window::new(INPUT_SPAN),
            dropped: Window::new(length),
            batches: Window::new(length),
            latency: Window::new(length),
            batch_waits: Reservoir::new(length),
            executions: Reservoir::new(length),
            pace: Pace::new(length),
            asked: Asked::new(length),
            leaves_time: true,
            batch,
            ran: Window::new(length),
            version: 0,
            publishes_at: Timestamp::ZERO + EXCHANGE_PERIOD,
            computes_at: None,
            guidance: Guidance::NONE,
            admits: 1.0,
            paths: Vec::new(),
        };
        let first = planner.compute(Timestamp::ZERO);
        if let Some(computation) = first {
            planner.computed(computation.run());
        }
        planner
    }

    /// A request reached the module and runs it, or skips it.
    pub fn reached(&mut self, now: Timestamp, request: &Request, runs: bool) {
        if self.is_first {
            self.asked.add(now, self.pipeline.slo, request);
        }
        self.ran.add(now, f64::from(u8::from(runs)), 1, 1.0);
        if runs {
            self.offered.add(now, 0.0, 1, 0.0);
            self.input.add(now, 0.0, 1, 0.0);
        }
    }

    /// A request that had reached the module asks for nothing after all.
    pub fn unasked(&mut self) {
        self.offered.take_back();
        self.input.take_back();
    }

    /// A request was dropped here.
    pub fn dropped(&mut self, now: Timestamp) {
        self.dropped.add(now, 0.0, 1, 0.0);
    }

    /// A batch ended.
    pub fn batch(&mut self, now: Timestamp, report: &BatchReport<'_>) {
        let n = report.members.len();
        self.batches.add(now, n as f64, 1, n as f64);
        let (mut queueing, mut worst) = (0.0, 0.0f64);
        let took = report.ended_at.since(report.started_at);
        let is_dynamic = self.is_dynamic();
        for (arrived_at, batched_at) in report.members {
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
    pub fn peer(&mut self, state: ModuleState) {
        let known = &mut self.states[state.module.idx()];
        if known.as_ref().is_none_or(|k| k.version < state.version) {
            *known = Some(state);
        }
    }

    /// So many requests a second are offered to the pipeline.
    pub fn offered(&mut self, rate: f64) {
        self.demand = rate;
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

    /// Whether guidance changes while a pipeline runs: if not, planners need not exchange anything.
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
            let state = self.state(now);
            self.states[self.module.idx()] = Some(state.clone());
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
        self.guidance
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
        let states = self.states.iter().flatten();
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
            self.adapt_batch();
        }
        if self.recipe.overload.is_some() {
            self.admits = self.least_admitted();
        }
        let mine = &self.states[self.module.idx()];
        let (capacity, smoothed) = mine
            .as_ref()
            .map_or((0.0, 0.0), |s| (s.capacity, s.offered));
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
                    let worst = p.states[m.idx()]
                        .as_ref()
                        .map_or(0.0, |s| s.worst.as_secs_f64());
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
    fn adapt_batch(&mut self) {
        self.batch.clone_from(&self.planned.batch);
        let states: Option<Vec<&ModuleState>> =
            self.states[1..].iter().map(Option::as_ref).collect();
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
            demand: self.demand.max(first.offered),
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

    /// The shape of the module's batches now.
    pub fn shape(&self) -> BatchShape {
        let size = self.batch[self.module.idx()];
        let execution = self.planned.duration_of(self.module, size);
        let execution = execution.mul_f64(self.stretch());
        BatchShape { size, execution }
    }

    fn estimated(&mut self, waits: Waits, queueing: bool, order: BudgetOrder) -> Computation {
        let here = self.states[self.module.idx()]
            .as_ref()
            .map_or(1.0, |s| s.probability);
        let stages: Vec<Stage> = (0..self.states.len())
            .map(|idx| {
                let id = ModuleId(idx as u16);
                let state = self.states[idx].as_ref();
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
