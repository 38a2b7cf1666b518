//! The entry gate: a token bucket at the capacity of the bottleneck. It refuses requests that cannot be served before
//! they cost anything.

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::message::{ClientReport, Portion};
use spillgate_pipeline::schedule::ScheduleName;
use spillgate_pipeline::time::Timestamp;

use crate::plan::Planned;
use crate::plan::{self, Bound};
use crate::planner::ModuleState;
use crate::shares::{Party, Shares, Shortfall, Ticket};

/// Least part of the capacity for a gateway beside others: the first requests of an idle one must pass.
const PORTION_MIN: f64 = 0.02;

/// Least part of the accepted requests that is assumed to be in time.
const PART_MIN: f64 = 0.1;

/// Least depth in requests: one request runs and one waits.
const TOKENS_MIN: f64 = 2.0;

/// Least time of a request at a module whose time depends on the input, as a part of the shortest batch seen.
const SHORTEST_PART: f64 = 0.5;

/// A token bucket.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Requests a second that pass.
    rate: f64,
    /// The requests of this span may pass at once.
    depth: Duration,
    tokens: f64,
    updated_at: Timestamp,
}

impl Gate {
    /// A gate that lets `rate` requests a second pass, and the requests of `depth` at once. Full at first.
    pub fn new(rate: f64, depth: Duration) -> Self {
        Gate {
            rate,
            depth,
            tokens: f64::INFINITY,
            updated_at: Timestamp::ZERO,
        }
    }

    /// Changes the rate and the depth.
    pub fn set(&mut self, now: Timestamp, rate: f64, depth: Duration) {
        self.refill(now);
        self.rate = rate;
        self.depth = depth;
    }

    /// Requests a second that pass.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether one more request passes now.
    pub fn pass(&mut self, now: Timestamp) -> bool {
        self.refill(now);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    /// A request that passed gives its place back: another may pass instead.
    pub fn give_back(&mut self) {
        self.tokens += 1.0;
    }

    /// The requests of this span may pass at once.
    pub(crate) fn depth(&self) -> Duration {
        self.depth
    }

    /// The tokens that it holds at most.
    pub(crate) fn most(&self) -> f64 {
        (self.rate * self.depth.as_secs_f64()).max(TOKENS_MIN)
    }

    /// The tokens that it holds; less than zero after more were taken than it held.
    pub(crate) fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Takes a token, whether there is one or not.
    pub(crate) fn take(&mut self) {
        self.tokens -= 1.0;
    }

    /// Adds the tokens of the time that has passed. Returns those that it cannot hold.
    pub(crate) fn refill(&mut self, now: Timestamp) -> f64 {
        let passed = now.since(self.updated_at).as_secs_f64();
        self.updated_at = self.updated_at.max(now);
        let filled = self.tokens + passed * self.rate;
        self.tokens = filled.min(self.most());
        filled - self.tokens
    }
}

/// The gate at the entry of a pipeline, set to the bottleneck that its modules report and shared fairly.
pub(crate) struct EntryGate {
    factor: f64,
    /// The part of the bottleneck's capacity that is for this gateway.
    part: f64,
    pipeline: Pipeline,
    /// Open until every module has reported once.
    shares: Option<Shares>,
    /// Reports of all modules but the source.
    reports: Vec<Option<Bound>>,
    /// By device: the modules of its workers, one entry a worker.
    devices: Vec<Vec<usize>>,
    /// By module: the least time that a request needs there, as far as it is known; zero where requests may skip the
    /// module.
    least: Vec<Duration>,
    /// The least time from the entry to the answer.
    least_path: Duration,
    planned: Arc<Planned>,
}

impl EntryGate {
    /// The gate that the pipeline's policy asks for, if any. `workers`: the device of each worker, by module.
    pub(crate) fn new(
        pipeline: &Pipeline,
        planned: &Arc<Planned>,
        workers: &[Vec<usize>],
    ) -> Option<Self> {
        let factor = pipeline.policy.gate()?;
        let n_devices = workers.iter().flatten().max().map_or(0, |d| d + 1);
        let mut devices = vec![Vec::new(); n_devices];
        // The source does not bound the gate: decoding costs little beside the modules.
        for (module, on) in workers.iter().enumerate().skip(1) {
            for &device in on {
                devices[device].push(module);
            }
        }
        let mut gate = EntryGate {
            factor,
            part: 1.0,
            shares: None,
            reports: vec![None; pipeline.modules.len() - 1],
            least: vec![Duration::ZERO; pipeline.modules.len()],
            least_path: Duration::ZERO,
            planned: planned.clone(),
            pipeline: pipeline.clone(),
            devices,
        };
        for module in 1..pipeline.modules.len() {
            if gate.pipeline.modules[module].schedule.is_none() {
                gate.set_least(module, gate.alone(module));
            }
        }
        Some(gate)
    }

    /// Execution of a single request at a module, as planned.
    fn alone(&self, module: usize) -> Duration {
        let times = self.planned.execution.get(module);
        times.and_then(|t| t.first()).copied().unwrap_or_default()
    }

    fn set_least(&mut self, module: usize, least: Duration) {
        if !may_be_skipped(&self.pipeline, module) {
            self.least[module] = least;
            self.least_path = plan::longest_path(&self.pipeline, |m| self.least[m]);
        }
    }

    /// Whether a request that needs `decoding` first would miss its deadline even alone in the pipeline.
    pub(crate) fn is_hopeless(
        &self,
        now: Timestamp,
        deadline: Timestamp,
        decoding: Duration,
    ) -> bool {
        now + decoding + self.least_path > deadline
    }

    /// See [`Shares::give_back`].
    pub(crate) fn give_back(&mut self, ticket: &Ticket) {
        if let Some(shares) = &mut self.shares {
            shares.give_back(ticket);
        }
    }

    pub(crate) fn learn(&mut self, now: Timestamp, state: &ModuleState) {
        let Some(module) = state.module.idx().checked_sub(1) else {
            return;
        };
        self.learn_least(state);
        self.reports[module] = Some(Bound {
            capacity: state.capacity,
            probability: state.probability,
            execution: state.execution,
            workers: state.workers,
        });
        self.follow(now);
    }

    /// The part of the bottleneck's capacity that is for this gateway is another one from now on.
    pub(crate) fn set_part(&mut self, now: Timestamp, part: f64) {
        if self.part != part {
            self.part = part;
            self.follow(now);
        }
    }

    /// What the clients asked for in the last `period`; `None` while it is open or tells no clients apart.
    pub(crate) fn report_clients(&mut self, period: Duration) -> Option<ClientReport> {
        let shares = self.shares.as_mut().filter(|s| s.has_clients())?;
        Some(shares.report(shares.rate() / self.part, period))
    }

    /// Takes over the part of what all clients share that is for this gateway; `None`: all of each client's share.
    pub(crate) fn divide(&mut self, now: Timestamp, portion: Option<&Portion>) {
        let Some(shares) = &mut self.shares else {
            return;
        };
        shares.divide(portion);
        if let Some(portion) = portion {
            let whole = shares.rate() / self.part;
            self.set_part(now, (portion.rate / whole).clamp(PORTION_MIN, 1.0));
        }
    }

    /// Sets the gate to what is known.
    fn follow(&mut self, now: Timestamp) {
        let known: Option<Vec<Bound>> = self.reports.iter().copied().collect();
        let Some(known) = known else { return };
        let of = |&module: &usize| Load {
            capacity: known[module - 1].capacity,
            probability: known[module - 1].probability,
            drops: self.drops(module),
        };
        let bears = |device: &Vec<usize>| borne(device.iter().map(of));
        let rate = self.factor * self.devices.iter().map(bears).fold(f64::INFINITY, f64::min);
        let rate = self.part * rate / self.part_in_time(&known);
        let path = plan::longest_path(&self.pipeline, |m| known[m - 1].execution);
        // The time that the SLO leaves for waiting beside the executions.
        let depth = self.pipeline.slo.saturating_sub(path);
        // Of n gateways each sees a part of the requests, which varies more than all of them do: by the square root of n,
        // in its own requests. Bursts of different gateways seldom coincide.
        let depth = depth.div_f64(self.part.sqrt());
        match &mut self.shares {
            _ if rate.is_infinite() => self.shares = None,
            Some(shares) => shares.set(now, rate, depth),
            None => self.shares = Some(Shares::new(rate, depth)),
        }
    }

    /// A worker that is quicker than planned lowers the least time; a slower one does not raise it, since it may be
    /// slow for a moment only.
    fn learn_least(&mut self, state: &ModuleState) {
        let module = state.module.idx();
        let least = if self.pipeline.modules[module].schedule.is_none() {
            self.alone(module).mul_f64(state.pace.clamp(0.0, 1.0))
        } else {
            let shortest = state
                .executions
                .iter()
                .copied()
                .fold(f32::INFINITY, f32::min);
            if !shortest.is_finite() {
                return;
            }
            Duration::from_secs_f32(shortest.max(0.0)).mul_f64(SHORTEST_PART)
        };
        self.set_least(module, least);
    }

    /// Whether the module's batch scheduler drops by itself.
    fn drops(&self, module: usize) -> bool {
        let schedule = self.pipeline.modules[module].schedule;
        schedule.is_some_and(ScheduleName::drops)
    }

    /// Part of the accepted requests that can be in time. Where a batch takes most of the SLO, the others arrive at
    /// the wrong moment, and only brokers know which. Where modules share devices the part counts as 1: the brokers
    /// have more requests to choose from.
    fn part_in_time(&self, known: &[Bound]) -> f64 {
        let overfills = self.pipeline.policy.drop.recipe().gate_overfills;
        if !overfills || self.devices.iter().any(|on| on.len() > 1) {
            return 1.0;
        }
        let bounds = |(module, &bound): (usize, &Bound)| match self.drops(module) {
            true => Bound {
                probability: 0.0,
                ..bound
            },
            false => bound,
        };
        let modules: Vec<Bound> = (1..).zip(known).map(bounds).collect();
        plan::part_in_time(&self.pipeline, 1.0, &modules).max(PART_MIN)
    }

    /// Requests a second that pass; `None` while it is open.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.shares.as_ref().map(Shares::rate)
    }

    /// Whether one more request of that party passes now: see [`Shares::pass`]. There is no ticket while the gate is open.
    pub(crate) fn pass(
        &mut self,
        now: Timestamp,
        party: &Party,
        cost: f64,
    ) -> Result<Option<Ticket>, Shortfall> {
        let shares = self.shares.as_mut();
        shares.map(|s| s.pass(now, party, cost)).transpose()
    }
}

/// Whether some requests skip the module: it has a condition, or requires a module that some requests skip.
fn may_be_skipped(pipeline: &Pipeline, module: usize) -> bool {
    let module = &pipeline.modules[module];
    let needs_one_that_may = |from: ModuleId| {
        let required = pipeline.edge(from, module.id).is_some_and(|e| e.required);
        required && may_be_skipped(pipeline, from.idx())
    };
    module.when.is_some()
        || pipeline
            .predecessors(module.id)
            .into_iter()
            .any(needs_one_that_may)
}

/// The load of a worker's module on its device.
struct Load {
    /// Requests a second.
    capacity: f64,
    /// Part of the requests that run it.
    probability: f64,
    /// Its batch scheduler drops by itself.
    drops: bool,
}

/// Capacity of a device with these workers, in requests a second into the pipeline. Each request takes `probability /
/// capacity` of the device's time for each worker.
///
/// A module that only some requests run does not bound the device alone: requests that skip it need not wait for it,
/// and which requests run it is known only at the module, where its brokers drop. Nor does a module whose scheduler
/// drops: the gate would refuse long and short requests alike, while the scheduler serves more of the short ones.
/// Beside a module that bounds the device, both take its time.
fn borne(workers: impl Iterator<Item = Load>) -> f64 {
    let (mut busy, mut is_bound) = (0.0, false);
    for load in workers {
        is_bound |= load.probability >= 1.0 && !load.drops;
        busy += load.probability / load.capacity;
    }
    if is_bound { 1.0 / busy } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::policy::DropPolicyName;
    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;
    use crate::planner::tests::state;

    #[test]
    fn decoders_bound_nothing_and_live_workers_count() {
        let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0]], &[]);
        pipeline.policy.drop = DropPolicyName::Spillgate;
        let planned = Arc::new(Planned {
            batch: vec![1; 2],
            execution: vec![vec![], vec![Duration::from_millis(60)]].into(),
            workers: vec![0, 2],
            alone: false,
        });
        let mut gate = EntryGate::new(&pipeline, &planned, &[vec![0], vec![1, 2]]).unwrap();
        let mut report = |workers: u32| {
            gate.learn(
                Timestamp::ZERO,
                &ModuleState {
                    execution: Duration::from_millis(60),
                    capacity: 100.0,
                    workers,
                    ..state(1, 1, 0)
                },
            );
            gate.rate().unwrap() / pipeline.policy.gate().unwrap()
        };
        // 40 ms are left, and a batch starts every 30 or every 60 ms.
        assert_eq!(report(2), 100.0);
        assert!((report(1) - 150.0).abs() < 1e-6);
    }

    #[test]
    fn modules_that_share_a_device_share_its_time() {
        let load = |&(capacity, probability): &(f64, f64)| Load {
            capacity,
            probability,
            drops: false,
        };
        let of = |workers: &[(f64, f64)]| borne(workers.iter().map(load));
        assert_eq!(of(&[(100.0, 1.0)]), 100.0);
        assert_eq!(of(&[(100.0, 1.0), (100.0, 1.0)]), 50.0);
        assert_eq!(of(&[(100.0, 1.0), (50.0, 0.5)]), 50.0);
        assert_eq!(of(&[(50.0, 0.5)]), f64::INFINITY);
        assert_eq!(of(&[(f64::INFINITY, 1.0)]), f64::INFINITY);
        let scheduled = || Load {
            drops: true,
            ..load(&(100.0, 1.0))
        };
        assert_eq!(borne([scheduled()].into_iter()), f64::INFINITY);
        let beside = [scheduled(), load(&(100.0, 1.0))].into_iter();
        assert_eq!(borne(beside), 50.0);
    }

    /// A slow module under a short SLO: its depth is less than a request, and still one may come while another runs.
    #[test]
    fn two_that_come_together_pass_a_gate_that_was_idle() {
        let mut gate = Gate::new(50.0, Duration::from_millis(5));
        let mut pass = |ms: u64| gate.pass(Timestamp::from_ns(ms * 1_000_000));
        assert_eq!([pass(0), pass(1), pass(2)], [true, true, false]);
        assert_eq!([pass(20), pass(21)], [true, false]);
    }

    #[test]
    fn passes_its_rate_and_its_depth() {
        let mut gate = Gate::new(100.0, Duration::from_millis(50));
        let mut passed = 0;
        for i in 0..10_000u64 {
            passed += u32::from(gate.pass(Timestamp::from_ns(i * 1_000_000)));
        }
        assert!((1000..=1006).contains(&passed), "{passed}");
        gate.set(
            Timestamp::from_ns(10_000_000_000),
            0.0,
            Duration::from_millis(50),
        );
        for i in 10_000..20_000u64 {
            passed -= u32::from(gate.pass(Timestamp::from_ns(i * 1_000_000)));
        }
        assert!(passed >= 999, "a closed gate passes what was left at most");
    }
}
