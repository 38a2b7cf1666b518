//! What plugs into the broker, by the name of the policy: in which order waiting requests are served, which of
//! them are kept, and when they are bound to a batch. The fourth point, what is reserved for the modules
//! downstream, comes from the State Planner as [`Guidance`](spillgate_pipeline::policy::Guidance).

use spillgate_pipeline::policy::{BudgetOrder, DropPolicyName};

/// The policy of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerPolicy {
    /// Who comes first.
    pub order: Order,
    /// Who is kept.
    pub keep: Keep,
    /// When a request is bound to a batch.
    pub bind: Bind,
    /// Execution times follow what the worker shows; published policies trust the profile, as their authors do.
    pub learns_pace: bool,
}

/// Order of the waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First come, first served.
    Arrival,
    /// By remaining budget, always this end first.
    Budget(BudgetOrder),
    /// By remaining budget, the end that the State Planner says (PARD §4.3).
    Guided,
    /// By remaining budget, the end decided for each batch by whether the backlog is feasible.
    Feasibility,
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
    /// It is in the first window, as long as the batch, of which every request meets the module deadline;
    /// all before that window are dropped (Nexus as PARD §5.1 describes it).
    Window,
    /// Its batch is expected to end before the module deadline (PARD §4.2, equation 3).
    Estimate,
}

/// When a request is bound to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// A batch ahead: the next batch is collected the moment one starts, and later arrivals join it while
    /// there is room (PARD §3).
    Ahead,
    /// When the device is about to be free.
    Late,
}

impl BrokerPolicy {
    /// The policy of that name.
    pub fn by_name(name: DropPolicyName) -> Self {
        use DropPolicyName as Name;
        let late = |order| BrokerPolicy {
            order,
            keep: Keep::Estimate,
            bind: Bind::Late,
            learns_pace: true,
        };
        let (order, keep) = match name {
            Name::Spillgate | Name::SpillgateNodoor => return late(Order::Feasibility),
            Name::SpillgateHbf => return late(Order::Budget(BudgetOrder::HighestFirst)),
            Name::SpillgateLbf => return late(Order::Budget(BudgetOrder::LowestFirst)),
            Name::SpillgateAhead
            | Name::Pard
            | Name::PardBack
            | Name::PardSf
            | Name::PardOc
            | Name::PardSplit
            | Name::PardWcl
            | Name::PardLower
            | Name::PardUpper
            | Name::PardInstant => (Order::Guided, Keep::Estimate),
            Name::PardFcfs => (Order::Arrival, Keep::Estimate),
            Name::PardHbf => (Order::Budget(BudgetOrder::HighestFirst), Keep::Estimate),
            Name::PardLbf => (Order::Budget(BudgetOrder::LowestFirst), Keep::Estimate),
            Name::NexusSplit | Name::Nexus => (Order::Arrival, Keep::Window),
            Name::ClipperPlusPlus => (Order::Arrival, Keep::Elapsed),
            Name::Deadline => (Order::Budget(BudgetOrder::LowestFirst), Keep::Unexpired),
            Name::None => (Order::Arrival, Keep::Always),
        };
        BrokerPolicy {
            order,
            keep,
            bind: Bind::Ahead,
            learns_pace: name.is_ours(),
        }
    }

    /// Whether waiting requests are sorted by deadline (else by arrival).
    pub(crate) fn sorts_by_deadline(self) -> bool {
        self.order != Order::Arrival
    }

    /// Whether a waiting request is answered by timer once it cannot make it. It needs the queue in order of
    /// deadlines, to find the first in constant time.
    pub(crate) fn expires(self) -> bool {
        self.sorts_by_deadline()
    }
}
