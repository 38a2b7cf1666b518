//! The rules in which the State Planners of the policies differ.

use std::time::Duration;

use spillgate_pipeline::estimate::Waits;
use spillgate_pipeline::policy::{BudgetOrder, DropPolicyName, PolicyConfig};

/// Queueing delay above which a module says that it is overloaded (`pard-oc`, after DAGOR). PARD §5.3 tunes it for
/// each trace; this is the best of the values tried on the reference workload.
const OVERLOAD_QUEUEING: Duration = Duration::from_millis(40);
/// Share of the capacity that is admitted while the overload lasts (`pard-oc`). See [`OVERLOAD_QUEUEING`].
const OVERLOAD_ADMITTED: f64 = 0.95;

/// What is reserved for the modules downstream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reserve {
    /// Nothing.
    Nothing,
    /// The executions.
    Execution,
    /// Queueing, executions and waits.
    Estimate(Waits),
    /// A share of the SLO, cumulative along the pipeline, in proportion to the planned executions.
    Split,
    /// The same in proportion to each module's largest recent latency.
    SplitByWorst,
}

/// How the planner chooses the end of the queue that is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRule {
    /// Always the same.
    Fixed,
    /// Highest budget first above 1 + eps, lowest first below 1 - eps, unchanged between (PARD §4.3).
    Delayed,
    /// As `Delayed` with eps = 0: the order flips at a load factor of 1.
    AtOnce,
}

/// Admission control after DAGOR (`pard-oc`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverloadControl {
    /// A module is overloaded when its mean queueing delay of the last second is larger.
    pub queueing: Duration,
    /// Then it and its predecessors accept this share of its capacity.
    pub admitted: f64,
}

/// The rules of a planner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannerPolicy {
    /// What is reserved.
    pub reserve: Reserve,
    /// The order.
    pub order: OrderRule,
    /// Overload control.
    pub overload: Option<OverloadControl>,
    /// Requests are refused at the gateway over this multiple of the bottleneck's capacity.
    pub gate: Option<f64>,
    /// Execution times and capacity follow the pace of the workers; published policies trust the profile.
    pub learns_pace: bool,
    /// Batch sizes follow what is observed, where other sizes than the plan's promise more goodput.
    pub adapts_batch: bool,
    /// The first module drops a request when its estimate leaves less than a share of the SLO for the waits
    /// downstream.
    pub door: bool,
}

impl PlannerPolicy {
    /// The rules of a pipeline's drop policy.
    pub fn of(config: &PolicyConfig) -> Self {
        use DropPolicyName as Name;
        let estimate = Reserve::Estimate(Waits::Quantile(config.lambda()));
        let (reserve, order) = match config.drop {
            Name::Spillgate | Name::SpillgateNodoor | Name::SpillgateHbf | Name::SpillgateLbf => {
                (estimate, OrderRule::Fixed)
            }
            Name::SpillgateAhead | Name::Pard => (estimate, OrderRule::Delayed),
            Name::PardBack | Name::PardOc => (Reserve::Nothing, OrderRule::Delayed),
            Name::PardSf => (Reserve::Execution, OrderRule::Delayed),
            Name::PardSplit => (Reserve::Split, OrderRule::Delayed),
            Name::PardWcl => (Reserve::SplitByWorst, OrderRule::Delayed),
            Name::PardLower => (Reserve::Estimate(Waits::Zero), OrderRule::Delayed),
            Name::PardUpper => (Reserve::Estimate(Waits::Full), OrderRule::Delayed),
            Name::PardFcfs | Name::PardHbf | Name::PardLbf => (estimate, OrderRule::Fixed),
            Name::PardInstant => (estimate, OrderRule::AtOnce),
            Name::NexusSplit | Name::ClipperPlusPlus => (Reserve::Split, OrderRule::Fixed),
            Name::Nexus | Name::Deadline | Name::None => (Reserve::Nothing, OrderRule::Fixed),
        };
        PlannerPolicy {
            reserve,
            order,
            overload: (config.drop == Name::PardOc).then_some(OverloadControl {
                queueing: OVERLOAD_QUEUEING,
                admitted: OVERLOAD_ADMITTED,
            }),
            gate: config.gate(),
            learns_pace: config.drop.is_ours(),
            adapts_batch: config.drop.is_ours(),
            door: config.drop.is_ours() && config.drop != Name::SpillgateNodoor,
        }
    }

    /// Whether guidance changes while a pipeline runs. If not, planners exchange nothing.
    pub fn adapts(&self) -> bool {
        let reserve = matches!(self.reserve, Reserve::Estimate(_) | Reserve::SplitByWorst);
        reserve || self.order != OrderRule::Fixed || self.overload.is_some() || self.gate.is_some()
    }
}

/// The order for a load factor (PARD §4.3): `input` is T_in, `capacity` T_m, `smoothed` T_s, all in requests a
/// second.
pub fn next_order(
    rule: OrderRule,
    before: BudgetOrder,
    input: f64,
    capacity: f64,
    smoothed: f64,
) -> BudgetOrder {
    if capacity <= 0.0 {
        return before;
    }
    let load = input / capacity;
    let eps = match rule {
        OrderRule::Fixed => return before,
        OrderRule::AtOnce => 0.0,
        OrderRule::Delayed if smoothed > 0.0 => (input - smoothed).abs() / smoothed,
        OrderRule::Delayed => 0.0,
    };
    if load > 1.0 + eps {
        BudgetOrder::HighestFirst
    } else if load < 1.0 - eps {
        BudgetOrder::LowestFirst
    } else {
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_changes_late_and_instantly() {
        use BudgetOrder::{HighestFirst, LowestFirst};
        // Input 110 against capacity 100: 10% over, but 30% off its own mean: unchanged.
        let at = |rule, before, input, smoothed| next_order(rule, before, input, 100.0, smoothed);
        assert_eq!(
            at(OrderRule::Delayed, LowestFirst, 110.0, 85.0),
            LowestFirst
        );
        assert_eq!(
            at(OrderRule::Delayed, HighestFirst, 110.0, 85.0),
            HighestFirst
        );
        assert_eq!(
            at(OrderRule::Delayed, LowestFirst, 110.0, 108.0),
            HighestFirst
        );
        assert_eq!(
            at(OrderRule::Delayed, HighestFirst, 90.0, 92.0),
            LowestFirst
        );
        assert_eq!(
            at(OrderRule::AtOnce, LowestFirst, 101.0, 50.0),
            HighestFirst
        );
        assert_eq!(at(OrderRule::Fixed, LowestFirst, 200.0, 200.0), LowestFirst);
        assert_eq!(
            next_order(OrderRule::AtOnce, LowestFirst, 5.0, 0.0, 5.0),
            LowestFirst
        );
    }
}
