//! Policies by name, their settings, and the guidance that a State Planner gives to its Request Brokers.

use std::time::Duration;

use crate::request::Request;
use crate::schedule::ScheduleName;
use crate::time::Timestamp;

/// Which policies decide, and their settings.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyConfig {
    /// Which requests are dropped.
    pub drop: DropPolicyName,
    /// The file names it; else schedulers that drop by themselves decide at their modules.
    pub drop_is_named: bool,
    /// Which worker a request goes to; `None`: what the drop policy runs best with.
    pub dispatch: Option<DispatchPolicyName>,
    /// Quantile of the summed waits of all modules downstream that the estimate counts with (PARD §4.2);
    /// `None`: the drop policy's own.
    pub lambda: Option<f64>,
    /// Requests are refused at the gateway over this multiple of the bottleneck's capacity; 0: never. `None`:
    /// the drop policy's own, which is never for published ones.
    pub gate: Option<f64>,
    /// Length of the sliding windows of the State Planners (PARD §4.2: 5 s).
    pub window: Duration,
}

/// Default length of the sliding windows (PARD §4.2, footnote).
pub const WINDOW_DEFAULT: Duration = Duration::from_secs(5);

/// What our own policy lets pass, as a multiple of the bottleneck's capacity (docs/policy.md has the sweep).
const GATE_FACTOR: f64 = 1.0;

/// Policies of a file that names none.
pub const POLICY_DEFAULT: PolicyConfig = PolicyConfig {
    drop: DropPolicyName::Spillgate,
    drop_is_named: false,
    dispatch: None,
    lambda: None,
    gate: None,
    window: WINDOW_DEFAULT,
};

impl PolicyConfig {
    /// The drop policy that counts where modules have these schedulers: the named one; if none is, and the only module's
    /// scheduler drops by itself, nothing else drops. In a pipeline a scheduler sees one module, and what it drops late has
    /// cost the modules before: there our own default stays (docs/schedulers.md has both).
    pub fn drop_under(
        &self,
        schedules: impl IntoIterator<Item = Option<ScheduleName>>,
    ) -> DropPolicyName {
        let mut schedules = schedules.into_iter();
        let first_drops = schedules.next().flatten().is_some_and(ScheduleName::drops);
        if first_drops && schedules.next().is_none() && !self.drop_is_named {
            DropPolicyName::None
        } else {
            self.drop
        }
    }

    /// The dispatch policy that counts.
    pub fn dispatch(&self) -> DispatchPolicyName {
        self.dispatch.unwrap_or(if self.drop.is_ours() {
            DispatchPolicyName::EarliestStart
        } else {
            DispatchPolicyName::LeastOutstanding
        })
    }

    /// The quantile that counts: PARD's 0.1 for PARD and its ablations; our own is in docs/policy.md.
    pub fn lambda(&self) -> f64 {
        self.lambda
            .unwrap_or(if self.drop.is_ours() { 0.9 } else { 0.1 })
    }

    /// The gate that counts.
    pub fn gate(&self) -> Option<f64> {
        let of_policy = self.drop.is_ours().then_some(GATE_FACTOR);
        self.gate.or(of_policy).filter(|gate| *gate > 0.0)
    }
}

/// Drop policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropPolicyName {
    /// `spillgate`: our own, explained in docs/policy.md.
    Spillgate,
    /// `spillgate-nodoor`: without the refusal at the first module.
    SpillgateNodoor,
    /// `spillgate-ahead`: binds a batch ahead, in PARD's order.
    SpillgateAhead,
    /// `spillgate-hbf`: always the highest remaining budget first.
    SpillgateHbf,
    /// `spillgate-lbf`: always the lowest remaining budget first.
    SpillgateLbf,
    /// `pard`: drops what the end-to-end estimate says will be late, in adaptive order (PARD §4).
    Pard,
    /// `pard-back`: counts what has passed and this module, nothing downstream.
    PardBack,
    /// `pard-sf`: adds the downstream execution times, no waits and no queueing.
    PardSf,
    /// `pard-oc`: overload control by admission (after DAGOR) with the test of `pard-back`.
    PardOc,
    /// `pard-split`: a static split of the SLO over the modules, cumulative.
    PardSplit,
    /// `pard-wcl`: a split by each module's largest recent latency.
    PardWcl,
    /// `pard-lower`: batch waits downstream counted as zero.
    PardLower,
    /// `pard-upper`: batch waits downstream counted in full.
    PardUpper,
    /// `pard-fcfs`: first come, first served.
    PardFcfs,
    /// `pard-hbf`: always the highest remaining budget first.
    PardHbf,
    /// `pard-lbf`: always the lowest remaining budget first.
    PardLbf,
    /// `pard-instant`: the order flips at load factor 1, without the delayed transition.
    PardInstant,
    /// `nexus-split`: Nexus' sliding window against a static cumulative split of the SLO.
    NexusSplit,
    /// `nexus`: Nexus' sliding window against the end-to-end SLO, as PARD §5.1 describes it.
    Nexus,
    /// `clipper++`: drops what has used up its cumulative share of the SLO (PARD §5.1).
    ClipperPlusPlus,
    /// `deadline`: earliest deadline first; a request whose deadline has passed is dropped.
    Deadline,
    /// `none`: first come, first served; nothing is dropped but what does not fit the queue.
    None,
}

impl DropPolicyName {
    /// All, in the order of the documentation.
    pub const ALL: [DropPolicyName; 22] = [
        DropPolicyName::Spillgate,
        DropPolicyName::SpillgateNodoor,
        DropPolicyName::SpillgateAhead,
        DropPolicyName::SpillgateHbf,
        DropPolicyName::SpillgateLbf,
        DropPolicyName::Pard,
        DropPolicyName::PardBack,
        DropPolicyName::PardSf,
        DropPolicyName::PardOc,
        DropPolicyName::PardSplit,
        DropPolicyName::PardWcl,
        DropPolicyName::PardLower,
        DropPolicyName::PardUpper,
        DropPolicyName::PardFcfs,
        DropPolicyName::PardHbf,
        DropPolicyName::PardLbf,
        DropPolicyName::PardInstant,
        DropPolicyName::NexusSplit,
        DropPolicyName::Nexus,
        DropPolicyName::ClipperPlusPlus,
        DropPolicyName::Deadline,
        DropPolicyName::None,
    ];

    /// Its name in YAML.
    pub fn name(self) -> &'static str {
        match self {
            DropPolicyName::Spillgate => "spillgate",
            DropPolicyName::SpillgateNodoor => "spillgate-nodoor",
            DropPolicyName::SpillgateAhead => "spillgate-ahead",
            DropPolicyName::SpillgateHbf => "spillgate-hbf",
            DropPolicyName::SpillgateLbf => "spillgate-lbf",
            DropPolicyName::Pard => "pard",
            DropPolicyName::PardBack => "pard-back",
            DropPolicyName::PardSf => "pard-sf",
            DropPolicyName::PardOc => "pard-oc",
            DropPolicyName::PardSplit => "pard-split",
            DropPolicyName::PardWcl => "pard-wcl",
            DropPolicyName::PardLower => "pard-lower",
            DropPolicyName::PardUpper => "pard-upper",
            DropPolicyName::PardFcfs => "pard-fcfs",
            DropPolicyName::PardHbf => "pard-hbf",
            DropPolicyName::PardLbf => "pard-lbf",
            DropPolicyName::PardInstant => "pard-instant",
            DropPolicyName::NexusSplit => "nexus-split",
            DropPolicyName::Nexus => "nexus",
            DropPolicyName::ClipperPlusPlus => "clipper++",
            DropPolicyName::Deadline => "deadline",
            DropPolicyName::None => "none",
        }
    }

    /// The policy of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Whether it is our own or one of its ablations.
    pub fn is_ours(self) -> bool {
        matches!(
            self,
            DropPolicyName::Spillgate
                | DropPolicyName::SpillgateNodoor
                | DropPolicyName::SpillgateAhead
                | DropPolicyName::SpillgateHbf
                | DropPolicyName::SpillgateLbf
        )
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
}

impl DispatchPolicyName {
    /// All, in the order of the documentation.
    pub const ALL: [DispatchPolicyName; 4] = [
        DispatchPolicyName::EarliestStart,
        DispatchPolicyName::LeastOutstanding,
        DispatchPolicyName::LeastOutstandingFree,
        DispatchPolicyName::RoundRobin,
    ];

    /// Its name in YAML.
    pub fn name(self) -> &'static str {
        match self {
            DispatchPolicyName::RoundRobin => "round-robin",
            DispatchPolicyName::LeastOutstanding => "least-outstanding",
            DispatchPolicyName::LeastOutstandingFree => "least-outstanding-free",
            DispatchPolicyName::EarliestStart => "earliest-start",
        }
    }

    /// The policy of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
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
    /// Part of the SLO that may have passed when a request leaves this module, for policies that split it;
    /// 1 for all others.
    pub share: f64,
    /// Which end comes first.
    pub order: BudgetOrder,
    /// Most requests in a batch, where it is less than planned: some requests have less time than the plan counts
    /// with.
    pub batch: Option<u32>,
}

impl Guidance {
    /// Nothing is known of what comes after.
    pub const NONE: Guidance = Guidance {
        downstream: Duration::ZERO,
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
    use super::*;
    use crate::id::RequestId;

    #[test]
    fn names_are_found_again_and_differ() {
        for policy in DropPolicyName::ALL {
            assert_eq!(DropPolicyName::by_name(policy.name()), Some(policy));
        }
        for policy in DispatchPolicyName::ALL {
            assert_eq!(DispatchPolicyName::by_name(policy.name()), Some(policy));
        }
        assert_eq!(DropPolicyName::by_name("pards"), None);
    }

    #[test]
    fn the_names_users_write() {
        let names = DropPolicyName::ALL.map(DropPolicyName::name).join(" ");
        expect_test::expect!["spillgate spillgate-nodoor spillgate-ahead spillgate-hbf spillgate-lbf pard pard-back pard-sf pard-oc pard-split pard-wcl pard-lower pard-upper pard-fcfs pard-hbf pard-lbf pard-instant nexus-split nexus clipper++ deadline none"].assert_eq(&names);
        let names = DispatchPolicyName::ALL
            .map(DispatchPolicyName::name)
            .join(" ");
        expect_test::expect!["earliest-start least-outstanding least-outstanding-free round-robin"]
            .assert_eq(&names);
    }

    #[test]
    fn a_module_deadline_counts_what_comes_after_or_the_share() {
        let ms = |n: u64| Timestamp::from_ns(n * 1_000_000);
        let request = Request {
            id: RequestId(1),
            sent_at: ms(100),
            deadline: ms(500),
            application: crate::schedule::Application::default(),
            client: Default::default(),
            decoding_us: 0,
        };
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
