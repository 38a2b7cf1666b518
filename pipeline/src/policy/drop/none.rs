//! `none`: first come, first served; a request is dropped only when it does not fit the queue (PARD's naive).

use crate::policy::recipe::{Bind, Constants, Keep, Order, Recipe, Reserve};
use crate::policy::{DispatchPolicyName, PlanName};

pub(super) const RECIPE: Recipe = Recipe {
    name: "none",
    summary: "first come, first served, drops only what does not fit a queue",
    order: Order::Arrival,
    keep: Keep::Always,
    bind: Bind::Ahead,
    reserve: Reserve::Nothing,
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
