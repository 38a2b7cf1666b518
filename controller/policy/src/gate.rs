//! The entry gate: a token bucket at the capacity of the bottleneck. It refuses requests that cannot be served before
//! they cost anything.

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::schedule::{Application, SchedulePolicy};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Offered, Portion};

use crate::costs::Costs;
use crate::history::History;
use crate::plan::Planned;
use crate::plan::{self, Bound};
use crate::planner::ModuleState;
use crate::shares::{Party, Shares, Shortfall, Ticket};

/// Least part of the capacity for a gateway beside others: the first requests of an idle one must pass.
const PORTION_MIN: f64 = 0.02;

/// What a gateway beside others lets pass, over its part of the capacity: some of their gates are full at times while
/// others refuse, and pools decide on what is too much. Clients that share are refused what is over their shares.
const EXCESS: f64 = 1.03;

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

    /// Gets tokens besides those of its rate.
    pub(crate) fn add(&mut self, tokens: f64) {
        self.tokens += tokens;
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
    /// The part is what its clients share, rather than what was offered to it.
    is_portion: bool,
    /// Requests a second that all gateways together let pass.
    whole: f64,
    pipeline: Pipeline,
    /// Open until every module has reported once.
    shares: Option<Shares>,
    /// Reports of all modules but the source.
    reports: Vec<Option<Bound>>,
    /// By device: the modules of its workers, one entry a worker.
    devices: Vec<Vec<usize>>,
    /// By module: how many times as long as reported requests take there now.
    changes: Vec<f64>,
    /// By module: the least time that a request needs there, as far as it is known; zero where requests may skip the
    /// module.
    least: Vec<Duration>,
    /// The least time from the entry to the answer.
    least_path: Duration,
    planned: Arc<Planned>,
    costs: Costs,
    history: History,
    /// By module: measured over planned execution time.
    paces: Vec<f64>,
    /// By module, for the modules on the device that bears least: what a request that runs the module costs there, in
    /// requests of average cost. `None` elsewhere.
    bottleneck: Vec<Option<f64>>,
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
            is_portion: false,
            whole: f64::INFINITY,
            shares: None,
            reports: vec![None; pipeline.modules.len() - 1],
            changes: vec![1.0; pipeline.modules.len()],
            least: vec![Duration::ZERO; pipeline.modules.len()],
            least_path: Duration::ZERO,
            costs: Costs::new(),
            history: History::default(),
            paces: vec![1.0; pipeline.modules.len()],
            bottleneck: vec![None; pipeline.modules.len()],
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

    /// Execution of a single request at a module, as planned; of its fastest variant where variants are chosen.
    fn alone(&self, module: usize) -> Duration {
        let id = ModuleId(module as u16);
        let of = self.planned.execution.of_module(id);
        if self.pipeline.adapted() == Some(id) {
            let variants = 0..self.pipeline.modules[module].variants.len();
            let alone = variants.filter_map(|v| of.variant(v)?.first());
            return alone.min().copied().unwrap_or_default();
        }
        of.served().first().copied().unwrap_or_default()
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

    /// See [`Shares::overtaken`].
    pub(crate) fn overtaken(&mut self, ticket: &Ticket) {
        if let Some(shares) = &mut self.shares {
            shares.overtaken(ticket);
        }
    }

    pub(crate) fn learn(&mut self, now: Timestamp, state: &ModuleState) {
        let Some(module) = state.module.idx().checked_sub(1) else {
            return;
        };
        self.learn_least(state);
        self.paces[state.module.idx()] = state.pace;
        self.reports[module] = Some(Bound {
            capacity: state.capacity,
            probability: state.probability,
            execution: state.execution,
            workers: state.workers,
        });
        self.follow(now);
    }

    /// A worker of a module joins, on that device.
    pub(crate) fn join(&mut self, now: Timestamp, module: ModuleId, device: usize) {
        if module == ModuleId::SOURCE {
            return;
        }
        if self.devices.len() <= device {
            self.devices.resize(device + 1, Vec::new());
        }
        self.devices[device].push(module.idx());
        self.follow(now);
    }

    /// A device is none of the pipeline's any more, nor are its workers.
    pub(crate) fn forget(&mut self, now: Timestamp, device: usize) {
        if let Some(modules) = self.devices.get_mut(device) {
            modules.clear();
            self.follow(now);
        }
    }

    /// So many workers of a module take requests, each as quick as when its controller reported last. Without any, requests are
    /// dropped at the module.
    pub(crate) fn set_workers(&mut self, now: Timestamp, module: ModuleId, n_workers: u32) {
        let report = module.idx().checked_sub(1);
        let Some(report) = report.and_then(|idx| self.reports[idx].as_mut()) else {
            return;
        };
        if report.workers == n_workers || n_workers == 0 {
            return;
        }
        let of_one = match report.workers {
            0 => {
                plan::throughput_of_one(&self.planned.execution, &self.planned.batch, module.idx())
            }
            n => report.capacity / f64::from(n),
        };
        report.capacity = of_one * f64::from(n_workers);
        report.workers = n_workers;
        self.follow(now);
    }

    /// Requests of a module take so many times as long now as its controller reported.
    pub(crate) fn set_change(&mut self, now: Timestamp, module: ModuleId, change: f64) {
        if self.changes[module.idx()] != change {
            self.changes[module.idx()] = change;
            self.follow(now);
        }
    }

    /// The part of the bottleneck's capacity that is for this gateway is another one from now on.
    pub(crate) fn set_part(&mut self, now: Timestamp, part: f64) {
        if self.part != part {
            self.part = part;
            self.follow(now);
        }
    }

    /// The capacity of the pipeline in requests a second, and what the clients asked for in the last `period`; `None` while it
    /// is open or tells no clients apart.
    pub(crate) fn report_clients(&mut self, period: Duration) -> Option<(f64, Vec<Offered>)> {
        let shares = self.shares.as_mut().filter(|s| s.has_clients())?;
        Some((self.whole, shares.report(period)))
    }

    /// Takes over the part of what all clients share that is for this gateway; `None`: all of each client's share.
    pub(crate) fn divide(&mut self, now: Timestamp, portion: Option<&Portion>) {
        let Some(shares) = &mut self.shares else {
            return;
        };
        shares.divide(portion);
        self.is_portion = portion.is_some();
        // While no worker serves, the part stays as it was.
        if let Some(portion) = portion
            && self.whole > 0.0
        {
            self.part = (portion.rate / self.whole).clamp(PORTION_MIN, 1.0);
        }
        self.follow(now);
    }

    /// Sets the gate to what is known.
    fn follow(&mut self, now: Timestamp) {
        let known: Option<Vec<Bound>> = self.reports.iter().copied().collect();
        let Some(known) = known else { return };
        let of = |&module: &usize| Load {
            capacity: known[module - 1].capacity / self.changes[module],
            probability: known[module - 1].probability,
            drops: self.drops(module),
        };
        let bears = |device: &Vec<usize>| borne(device.iter().map(of));
        let devices = self.devices.iter();
        let least = devices.min_by(|a, b| bears(a).total_cmp(&bears(b)));
        let borne = least.map_or(f64::INFINITY, bears);
        self.bottleneck = match least.filter(|_| borne.is_finite()) {
            Some(device) => self.costs_on(device, &known),
            None => vec![None; self.paces.len()],
        };
        self.whole = self.factor * borne / self.part_in_time(&known);
        let excess = match self.part < 1.0 && !self.is_portion {
            true => EXCESS,
            false => 1.0,
        };
        let rate = excess * self.part * self.whole;
        let path = plan::longest_path(&self.pipeline, |m| known[m - 1].execution);
        // The time that the SLO leaves for waiting beside the executions.
        let depth = self.pipeline.slo.saturating_sub(path);
        // Of n gateways each sees a part of the requests, which varies more than all of them do: by the square root of n,
        // in its own requests. Bursts of different gateways seldom coincide.
        let depth = depth.div_f64(self.part.sqrt());
        match &mut self.shares {
            _ if rate.is_infinite() => self.shares = None,
            Some(shares) => shares.set(now, rate, depth),
            None => {
                let overtakes = self.overtakes();
                self.shares = Some(Shares::new(rate, depth).overtaking(overtakes));
            }
        }
    }

    /// By module: the time of a request at the modules of a device, as a part of what an average request takes there.
    fn costs_on(&self, device: &[usize], known: &[Bound]) -> Vec<Option<f64>> {
        let time = |module: usize| {
            let batch = self.planned.duration(ModuleId(module as u16)).as_secs_f64();
            batch / f64::from(self.planned.batch[module]) * self.paces[module]
        };
        let modules = (1..self.paces.len()).filter(|module| device.contains(module));
        let average: f64 = modules
            .clone()
            .map(|module| known[module - 1].probability * time(module))
            .sum();
        let mut costs = vec![None; self.paces.len()];
        for module in modules {
            costs[module] = Some(time(module) / average);
        }
        costs
    }

    /// A worker that is quicker than planned lowers the least time; a slower one does not raise it, since it may be
    /// slow for a moment only.
    fn learn_least(&mut self, state: &ModuleState) {
        let module = state.module.idx();
        let least = if self.pipeline.adapted() == Some(state.module) {
            // The pace is that of all variants together.
            self.alone(module)
        } else if self.pipeline.modules[module].schedule.is_none() {
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

    /// Whether all workers serve requests of a higher rank first. Batch schedulers do not look at ranks.
    fn overtakes(&self) -> bool {
        let mut modules = self.pipeline.modules.iter();
        self.pipeline.policy.recipe().ranks && modules.all(|m| m.schedule.is_none())
    }

    /// Whether the module's batch scheduler drops by itself.
    fn drops(&self, module: usize) -> bool {
        let schedule = self.pipeline.modules[module].schedule;
        schedule.is_some_and(SchedulePolicy::drops)
    }

    /// Part of the accepted requests that can be in time. Where a batch takes most of the SLO, the others arrive at
    /// the wrong moment, and only brokers know which. Where modules share devices the part counts as 1: the brokers
    /// have more requests to choose from.
    fn part_in_time(&self, known: &[Bound]) -> f64 {
        let recipe = self.pipeline.policy.recipe();
        if !recipe.gate_overfills || self.devices.iter().any(|on| on.len() > 1) {
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
        plan::part_in_time(&self.pipeline, 1.0, &modules).max(recipe.constants.in_time_least)
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
        application: Application,
    ) -> Result<Option<Ticket>, Shortfall> {
        let Some(shares) = &mut self.shares else {
            return Ok(None);
        };
        let (party, stranger) = self.history.party(now, party);
        let cost = self.costs.expected(application, party.client);
        let ticket = shares.pass(now, &party, cost)?;
        Ok(Some(ticket.of(stranger)))
    }

    /// A request was answered while its client was there: its client has more history.
    pub(crate) fn answered(&mut self, now: Timestamp, ticket: &Ticket) {
        if let Some(client) = ticket.stranger() {
            self.history.answered(now, client);
        }
    }

    /// What an admitted request is expected to cost by now.
    pub(crate) fn expected(&self, application: Application, ticket: &Ticket) -> f64 {
        self.costs.expected(application, ticket.client())
    }

    /// What a batch of that time and size cost, in requests of average cost. `None` when its module is not on the bottleneck.
    pub(crate) fn cost_of_batch(
        &self,
        module: ModuleId,
        (took, size): (Duration, u32),
    ) -> Option<f64> {
        let each = self.bottleneck[module.idx()]?;
        let usual = self.planned.duration_of(module, size).as_secs_f64() * self.paces[module.idx()];
        (usual > 0.0).then(|| f64::from(size) * each * took.as_secs_f64() / usual)
    }

    /// A request has ended and took so much on the bottleneck, in requests of average cost: see [`Shares::settle`].
    pub(crate) fn settle(
        &mut self,
        now: Timestamp,
        ticket: &Ticket,
        application: Application,
        cost: f64,
    ) {
        let Some(shares) = &mut self.shares else {
            return;
        };
        let cost = self.costs.learn(now, application, ticket.client(), cost);
        shares.settle(ticket, cost);
    }

    /// See [`Costs::forget`].
    pub(crate) fn reassigned(&mut self, application: Application) {
        self.costs.forget(application);
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
mod tests;
