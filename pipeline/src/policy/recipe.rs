//! The recipe of a drop policy: the fields that brokers, State Planners, the entry gate and plans read.

use std::time::Duration;

use super::{BudgetOrder, DispatchPolicyName, PlanName};
use crate::schedule::SchedulePolicy;
use crate::spec::GATE_MAX;

/// How a drop policy works. Readers ask for a field, never for the policy's name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// Its name in YAML.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Which waiting request is served first.
    pub order: Order,
    /// The test that a request must pass to enter a batch.
    pub keep: Keep,
    /// When requests are bound to a batch.
    pub bind: Bind,
    /// What is reserved for the modules downstream.
    pub reserve: Reserve,
    /// Quantile of the summed batch waits downstream that [`Reserve::Estimate`] counts with (PARD §4.2), 0 to 1.
    pub lambda: f64,
    /// Admission control by the queueing delay of the modules.
    pub overload: Option<OverloadControl>,
    /// Execution times and capacity follow the pace of the workers; published policies trust the profile, as their
    /// authors do.
    pub learns_pace: bool,
    /// Batch sizes change while the pipeline runs, where other sizes than the plan's have a higher expected goodput.
    pub adapts_batch: bool,
    /// The first module drops a request when its estimate leaves less than a share of the SLO for the waits
    /// downstream.
    pub backlog_check: bool,
    /// Requests are refused at the gateway over this multiple of the bottleneck's capacity.
    pub gate: Option<f64>,
    /// The gate lets in more than that where a part of the requests cannot be in time: brokers choose among them.
    pub gate_overfills: bool,
    /// When not all waiting requests can be in time, requests of a higher rank are served first
    /// ([`Request::rank`](crate::request::Request::rank)).
    pub ranks: bool,
    /// Which worker a request goes to, unless the file says it.
    pub dispatch: DispatchPolicyName,
    /// Which plan sets batch sizes and workers, unless another is named.
    pub plan: PlanName,
    /// Which scheduler forms the batches of modules whose execution time varies, unless the file says it. `None`:
    /// batches as planned.
    pub dynamic_schedule: Option<SchedulePolicy>,
    /// Numbers of these rules.
    pub constants: Constants,
}

/// Numbers of the rules that a recipe switches on. All policies by name have the same ones; the laboratory hands in others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Margin of the door, as a share of the SLO, for waits that the executions downstream do not contain.
    pub door_margin: f64,
    /// Least part of the accepted requests that the gate assumes to be in time.
    pub in_time_least: f64,
    /// Batches with less slack are chosen only if their expected goodput is at least this many times as high, because it is
    /// only an estimate.
    pub tighter_pays: f64,
    /// Sizes with at least this part of the highest expected goodput count as equally good.
    pub equally_good: f64,
    /// Execution times count as their mean plus this many deviations where sizes are chosen: the slack is for waiting, not for
    /// deviations.
    pub deviations: f64,
    /// Workers that differ from their profile by this much get other batch sizes.
    pub off_pace: f64,
    /// So do workers whose execution times stray this far from batch to batch.
    pub spread: f64,
}

impl Constants {
    /// Those of all policies by name.
    pub const USUAL: Constants = Constants {
        door_margin: 0.12,
        in_time_least: 0.1,
        tighter_pays: 1.25,
        equally_good: 0.99,
        deviations: 1.5,
        off_pace: 0.2,
        spread: 0.05,
    };
}

/// Order of the waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First come, first served.
    Arrival,
    /// By remaining budget, always this end first.
    Budget(BudgetOrder),
    /// By remaining budget, from the end that the State Planner says (PARD §4.3).
    Guided(Transition),
    /// By remaining budget. Each batch starts at the lowest budget if the whole backlog is feasible, else at the
    /// highest.
    Feasibility,
}

impl Order {
    /// Whether waiting requests are sorted by deadline (else by arrival).
    pub fn is_by_deadline(self) -> bool {
        self != Order::Arrival
    }
}

/// When the State Planner changes the end of the queue that is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Highest budget first above a load factor of 1 + eps, lowest first below 1 - eps, unchanged between (PARD §4.3).
    Delayed,
    /// At a load factor of 1: as `Delayed` with eps = 0.
    AtOnce,
}

/// The test that a request must pass to enter a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// None.
    Always,
    /// Its deadline has not passed.
    Unexpired,
    /// Less than this module's cumulative share of the SLO has passed (Clipper++, PARD §5.1).
    Elapsed,
    /// It belongs to the first run of consecutive requests, as long as the batch, that all meet the module deadline.
    /// All requests before that run are dropped (early drop in Nexus, as PARD §5.1 describes it).
    EarlyDrop,
    /// Its batch is expected to end before the module deadline (PARD §4.2, equation 3).
    Estimate,
}

/// When a request is bound to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// A batch ahead: the next batch is collected the moment one starts, and later arrivals join it while there is room
    /// (PARD §3).
    Ahead,
    /// When the device is about to be free.
    Late,
}

/// What is reserved for the modules downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Nothing.
    Nothing,
    /// The executions.
    Execution,
    /// Queueing, executions and the quantile [`Recipe::lambda`] of the batch waits (PARD §4.2).
    Estimate,
    /// Queueing and executions, batch waits counted as zero.
    LowerEstimate,
    /// Queueing and executions, each batch wait counted as long as its execution.
    UpperEstimate,
    /// A share of the SLO, cumulative along the pipeline, in proportion to the planned executions.
    Split,
    /// A share of the SLO in proportion to each module's largest recent latency.
    SplitByWorst,
}

impl Reserve {
    /// Whether it changes while a pipeline runs.
    pub fn follows_load(self) -> bool {
        match self {
            Reserve::Nothing | Reserve::Execution | Reserve::Split => false,
            Reserve::Estimate
            | Reserve::LowerEstimate
            | Reserve::UpperEstimate
            | Reserve::SplitByWorst => true,
        }
    }
}

/// Admission control after DAGOR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverloadControl {
    /// A module is overloaded when its mean queueing delay of the last second is larger.
    pub queueing: Duration,
    /// Then the module and its predecessors accept this share of its capacity.
    pub admitted: f64,
}

impl Recipe {
    /// Stops the build when fields contradict each other.
    pub(super) const fn assert_valid(&self) {
        assert!(!self.name.is_empty() && !self.summary.is_empty());
        assert!(0.0 <= self.lambda && self.lambda <= 1.0);
        if let Some(gate) = self.gate {
            assert!(0.0 < gate && gate <= GATE_MAX);
        }
        if let Some(control) = self.overload {
            assert!(0.0 < control.admitted && control.admitted <= 1.0);
        }
        assert!(
            matches!(self.bind, Bind::Late) || !matches!(self.order, Order::Feasibility),
            "whether the backlog is feasible is known when the batch is formed"
        );
        assert!(
            matches!(self.bind, Bind::Ahead)
                || matches!(self.keep, Keep::Estimate)
                    && matches!(self.order, Order::Feasibility | Order::Budget(_)),
            "a late batch is formed by deadlines and by the estimate"
        );
        assert!(
            matches!(self.bind, Bind::Late) || !self.ranks,
            "whether the backlog is feasible is known when the batch is formed"
        );
        assert!(
            !matches!(self.keep, Keep::EarlyDrop) || matches!(self.order, Order::Arrival),
            "early drop looks for a run in order of arrival"
        );
    }
}
