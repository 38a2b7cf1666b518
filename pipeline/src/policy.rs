//! Policies by name, their settings, and the guidance that a State Planner gives to its Request Brokers.

pub mod adapt;
mod age;
mod drop;
pub(crate) mod placed;
pub mod recipe;

pub use adapt::{Adapt, AdaptName};
pub use age::{AGE_STEP, AGED_AFTER, AGES_AFTER};
pub use drop::DropPolicy;

use std::time::Duration;

use crate::placement::{Decider, PlacementPolicy};
use crate::problem::Problem;
use crate::request::Request;
use crate::schedule::SchedulePolicy;
use crate::time::Timestamp;
use recipe::{Bind, Recipe};

/// Which policies decide, and their settings.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyConfig {
    /// Which requests are dropped.
    pub drop: DropPolicy,
    /// What decides about the models of the devices that serve the pipeline, where not all stay that were read. A placement decides about
    /// requests, too: then brokers drop none.
    pub decider: Option<Decider>,
    /// The file names it. If not, a scheduler that drops by itself may take its place ([`PolicyConfig::drop_under`]).
    pub drop_is_named: bool,
    /// Which worker a request goes to; `None`: the dispatch policy of the drop policy's recipe.
    pub dispatch: Option<DispatchPolicyName>,
    /// Quantile of the summed waits of all modules downstream that the estimate counts with (PARD §4.2);
    /// `None`: the drop policy's own.
    pub lambda: Option<f64>,
    /// Requests are refused at the gateway over this multiple of the bottleneck's capacity; 0: never. `None`:
    /// that of the [recipe](PolicyConfig::recipe), which is never for published policies and placements.
    pub gate: Option<f64>,
    /// Length of the sliding windows of the State Planners (PARD §4.2: 5 s).
    pub window: Duration,
}

/// Default length of the sliding windows (PARD §4.2, footnote).
pub const WINDOW_DEFAULT: Duration = Duration::from_secs(5);

/// Policies of a file that names none.
pub const POLICY_DEFAULT: PolicyConfig = PolicyConfig {
    drop: DropPolicy::SPILLGATE,
    decider: None,
    drop_is_named: false,
    dispatch: None,
    lambda: None,
    gate: None,
    window: WINDOW_DEFAULT,
};

impl PolicyConfig {
    /// The drop policy in force where modules have these schedulers. It is the named one. If none is named and the
    /// pipeline has one module, whose scheduler drops by itself, it is `none`. In a pipeline of several modules a
    /// scheduler sees only one of them, and a request that it drops has already cost the modules before; so our own
    /// default stays there (docs/schedulers.md has both).
    pub fn drop_under(
        &self,
        schedules: impl IntoIterator<Item = Option<SchedulePolicy>>,
    ) -> DropPolicy {
        let mut schedules = schedules.into_iter();
        let first_drops = schedules
            .next()
            .flatten()
            .is_some_and(SchedulePolicy::drops);
        if first_drops && schedules.next().is_none() && !self.drop_is_named {
            DropPolicy::NONE
        } else {
            self.drop
        }
    }

    /// The same where that decides about models.
    #[must_use]
    pub fn decided_by(&self, decider: Decider) -> Self {
        PolicyConfig {
            decider: Some(decider),
            ..self.clone()
        }
    }

    /// The placement that decides which requests are served, if one does.
    pub fn placement(&self) -> Option<PlacementPolicy> {
        self.decider.and_then(Decider::placement)
    }

    /// The drop policy of brokers: none under a placement.
    pub fn drop_in_force(&self) -> DropPolicy {
        match self.placement() {
            Some(_) => DropPolicy::NONE,
            None => self.drop,
        }
    }

    /// What brokers, State Planners, the entry gate and plans go by. Published placements know their own module alone, and the brokers of
    /// decoders before it drop nothing. Ours counts with the modules after it and has an entry gate, and decoders drop what would be late.
    pub fn recipe(&self) -> &'static Recipe {
        let beside = self.placement().and_then(|p| p.recipe().beside);
        beside.unwrap_or(self.drop_in_force().recipe())
    }

    /// What decides about drops, as people read it: the drop policy, or `placement NAME` where a placement decides.
    pub fn dropper(&self) -> String {
        match self.placement() {
            Some(placement) => format!("placement {}", placement.name()),
            None => self.drop.name().to_owned(),
        }
    }

    /// The dispatch policy in force.
    pub fn dispatch(&self) -> DispatchPolicyName {
        self.dispatch.unwrap_or(self.recipe().dispatch)
    }

    /// The `dispatch:` where so many gateways decide and modules have these schedulers. Several gateways that push
    /// to the worker that seems to start first all choose the same one. So our own policies pull there; published ones push.
    pub fn dispatch_of(
        &self,
        n_gateways: usize,
        schedules: impl IntoIterator<Item = Option<SchedulePolicy>>,
    ) -> Option<DispatchPolicyName> {
        let is_late = self.recipe().bind == Bind::Late;
        let mut schedules = schedules.into_iter();
        let is_ours = is_late || schedules.any(|s| s == Some(SchedulePolicy::GOODPUT));
        match self.dispatch {
            None if n_gateways > 1 && is_ours => Some(DispatchPolicyName::Pull),
            named => named,
        }
    }

    /// Why these settings cannot be had together. Under `none` a batch scheduler may form the batches, and ask for requests.
    pub fn contradiction(&self) -> Option<Problem> {
        let may_pull =
            |drop: &DropPolicy| *drop == DropPolicy::NONE || drop.recipe().bind == Bind::Late;
        if self.dispatch != Some(DispatchPolicyName::Pull) || may_pull(&self.drop) {
            return None;
        }
        let others = DropPolicy::OFFERED.into_iter().filter(may_pull);
        Some(Problem::PulledAhead {
            drop: self.drop.name().to_owned(),
            others: others.map(|drop| drop.name().to_owned()).collect(),
        })
    }

    /// The quantile in force.
    pub fn lambda(&self) -> f64 {
        self.lambda.unwrap_or(self.recipe().lambda)
    }

    /// The gate in force.
    pub fn gate(&self) -> Option<f64> {
        let gate = self.gate.or(self.recipe().gate);
        gate.filter(|gate| *gate > 0.0)
    }
}

/// Dispatch policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DispatchPolicyName {
    /// `round-robin`.
    RoundRobin,
    /// `least-outstanding`: the worker with the fewest requests sent and not yet answered.
    LeastOutstanding,
    /// `least-outstanding-free`: the same, where a tie goes to the worker that is free first.
    LeastOutstandingFree,
    /// `earliest-start`: the worker whose next batch with room starts first.
    EarliestStart,
    /// `pull`: requests wait at their gateway until a worker asks for them. Workers that bind a batch ahead do not ask: requests
    /// go to them as by `earliest-start`.
    Pull,
    /// `affinity`: a request goes to a worker that has its model of the module's family in memory, or to the one that is to load it. At
    /// modules without a family `least-outstanding`.
    Affinity,
}

impl DispatchPolicyName {
    /// Those that files and the command line name, in the order of the documentation.
    pub const OFFERED: [DispatchPolicyName; 5] = [
        DispatchPolicyName::EarliestStart,
        DispatchPolicyName::LeastOutstanding,
        DispatchPolicyName::RoundRobin,
        DispatchPolicyName::Pull,
        DispatchPolicyName::Affinity,
    ];
    /// Those of the laboratory, for those who write one in a file.
    pub const LABORATORY: [&str; 1] = [DispatchPolicyName::LeastOutstandingFree.name()];

    /// Its name in files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            DispatchPolicyName::RoundRobin => "round-robin",
            DispatchPolicyName::LeastOutstanding => "least-outstanding",
            DispatchPolicyName::LeastOutstandingFree => "least-outstanding-free",
            DispatchPolicyName::EarliestStart => "earliest-start",
            DispatchPolicyName::Pull => "pull",
            DispatchPolicyName::Affinity => "affinity",
        }
    }

    /// The policy of that name among those that are offered.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::OFFERED.into_iter().find(|p| p.name() == name)
    }
}

/// Plans of batch sizes and workers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanName {
    /// `reference`: the one that all published policies share.
    Reference,
    /// `spillgate`: our own: larger batches on the same workers.
    Spillgate,
}

impl PlanName {
    /// All, in the order of the documentation.
    pub const ALL: [PlanName; 2] = [PlanName::Reference, PlanName::Spillgate];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PlanName::Reference => "reference",
            PlanName::Spillgate => "spillgate",
        }
    }

    /// The plan of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plan| plan.name() == name)
    }

    /// The slack of its batch sizes: `slack * execution <= SLO` on every path.
    pub fn slack(self) -> f64 {
        match self {
            // Waiting may take as long as the executions.
            PlanName::Reference => 2.0,
            // Late binding makes requests wait less, so batches may use more of the SLO (docs/policy.md has the sweep).
            PlanName::Spillgate => 1.6,
        }
    }
}

/// Which end of the queue of remaining budgets is served first (PARD §4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BudgetOrder {
    /// Lowest budget first: the load is within capacity.
    #[default]
    LowestFirst,
    /// Highest budget first: the module is overloaded.
    HighestFirst,
}

/// What a State Planner tells the brokers of its module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guidance {
    /// L_sub: the time that a request is expected to need after it leaves this module.
    pub downstream: Duration,
    /// L_sub as a plan has it, from the executions alone: nothing that was measured of queues and waits.
    pub planned: Duration,
    /// Part of the SLO that may have passed when a request leaves this module, for policies that split it;
    /// 1 for all others.
    pub share: f64,
    /// Which end comes first.
    pub order: BudgetOrder,
    /// Most requests in a batch, where it differs from the plan, because something differs from what the plan assumes.
    pub batch: Option<u32>,
}

impl Guidance {
    /// Nothing is known of the modules downstream.
    pub const NONE: Guidance = Guidance {
        downstream: Duration::ZERO,
        planned: Duration::ZERO,
        share: 1.0,
        order: BudgetOrder::LowestFirst,
        batch: None,
    };

    /// The module deadline: the latest moment at which the request may leave this module and still be expected
    /// to arrive in time. It is `sent_at + SLO - L_sub`, the test of PARD §4.2 solved for the end of the batch.
    pub fn module_deadline(&self, request: &Request) -> Timestamp {
        let end = if self.share < 1.0 {
            let slo = request.deadline.since(request.sent_at);
            request.sent_at + slo.mul_f64(self.share)
        } else {
            request.deadline
        };
        end - self.downstream
    }
}

#[cfg(test)]
mod tests {
    use super::recipe::Reserve;
    use super::*;
    use crate::id::RequestId;
    use crate::placement::ServedBy;
    use crate::testing::noop_pipeline;

    #[test]
    fn names_are_found_again_and_differ() {
        for policy in DispatchPolicyName::OFFERED {
            assert_eq!(DispatchPolicyName::by_name(policy.name()), Some(policy));
        }
        for plan in PlanName::ALL {
            assert_eq!(PlanName::by_name(plan.name()), Some(plan));
        }
    }

    #[test]
    fn the_names_users_write() {
        let names = DispatchPolicyName::OFFERED
            .map(DispatchPolicyName::name)
            .join(" ");
        expect_test::expect!["earliest-start least-outstanding round-robin pull affinity"]
            .assert_eq(&names);
        let names = PlanName::ALL.map(PlanName::name).join(" ");
        expect_test::expect!["reference spillgate"].assert_eq(&names);
    }

    #[test]
    fn our_placement_has_a_gate_where_modules_follow_each_other() {
        let gate = |name, modules: &[&[u16]], named| {
            let mut pipeline = noop_pipeline(Duration::from_millis(100), modules, &[]);
            pipeline.policy.gate = named;
            let by = ServedBy::one_process(Decider::Placement(name));
            pipeline.served_by(by).policy.gate()
        };
        let ours = PlacementPolicy::SPILLGATE;
        assert!(gate(ours, &[&[0], &[1]], None).is_some());
        assert_eq!(gate(ours, &[&[0]], None), None);
        for modules in [&[&[0][..], &[1]][..], &[&[0]]] {
            assert_eq!(gate(ours, modules, Some(0.0)), None);
            assert_eq!(gate(ours, modules, Some(1.2)), Some(1.2));
            for published in PlacementPolicy::OFFERED
                .into_iter()
                .filter(|name| *name != ours)
            {
                assert_eq!(gate(published, modules, None), None);
            }
        }
    }

    #[test]
    fn under_a_placement_nobody_reads_that_nothing_is_dropped() {
        assert_eq!(POLICY_DEFAULT.dropper(), "spillgate");
        let placed = POLICY_DEFAULT.decided_by(Decider::Placement(PlacementPolicy::LRU));
        assert_eq!(placed.dropper(), "placement lru");
    }

    #[test]
    fn our_placement_reserves_what_the_state_planner_estimates() {
        let placed = |name| POLICY_DEFAULT.decided_by(Decider::Placement(name));
        let reserve = |name| placed(name).recipe().reserve;
        assert_eq!(reserve(PlacementPolicy::SPILLGATE), Reserve::Estimate);
        assert_eq!(reserve(PlacementPolicy::CLOCKWORK), Reserve::Nothing);
    }

    #[test]
    fn a_module_deadline_counts_what_comes_after_or_the_share() {
        let ms = |n: u64| Timestamp::from_ns(n * 1_000_000);
        let request = Request::new(RequestId(1), ms(100), ms(500));
        let mut guidance = Guidance::NONE;
        assert_eq!(guidance.module_deadline(&request), ms(500));
        guidance.downstream = Duration::from_millis(120);
        assert_eq!(guidance.module_deadline(&request), ms(380));
        guidance = Guidance {
            share: 0.25,
            ..Guidance::NONE
        };
        assert_eq!(guidance.module_deadline(&request), ms(200));
    }
}
