//! `pard`: drops at each module the requests that the end-to-end estimate expects to be late, in adaptive order (PARD
//! §4).

use crate::policy::recipe::{Bind, Constants, Keep, Order, Recipe, Reserve, Transition};
use crate::policy::{DispatchPolicyName, PlanName};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard",
    summary: "drops what the end-to-end estimate says will be late, in adaptive order",
    order: Order::Guided(Transition::Delayed),
    keep: Keep::Estimate,
    bind: Bind::Ahead,
    reserve: Reserve::Estimate,
    lambda: 0.1,
    overload: None,
    learns_pace: false,
    adapts_batch: false,
    backlog_check: false,
    gate: None,
    gate_overfills: false,
    ranks: false,
    dispatch: DispatchPolicyName::LeastOutstanding,
    plan: PlanName::Reference,
    dynamic_schedule: None,
    constants: Constants::USUAL,
};
