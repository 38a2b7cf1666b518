//! `spillgate`: our own policy. docs/policy.md explains it and holds the sweeps behind its numbers.

use crate::policy::recipe::{Bind, Constants, Keep, Order, Recipe, Reserve};
use crate::policy::{DispatchPolicyName, PlanName};
use crate::schedule::SchedulePolicy;

pub(super) const RECIPE: Recipe = Recipe {
    name: "spillgate",
    summary: "our own: binds late, refuses at the gate and drops at the door what will be late",
    order: Order::Feasibility,
    keep: Keep::Estimate,
    bind: Bind::Late,
    reserve: Reserve::Estimate,
    lambda: 0.9,
    overload: None,
    learns_pace: true,
    adapts_batch: true,
    backlog_check: true,
    gate: Some(1.0),
    gate_overfills: true,
    ranks: true,
    dispatch: DispatchPolicyName::EarliestStart,
    plan: PlanName::Spillgate,
    dynamic_schedule: Some(SchedulePolicy::GOODPUT),
    constants: Constants::USUAL,
};
