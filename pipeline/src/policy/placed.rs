//! What our placement goes by beside its own choice of batches and LOADs. A placement sees one module. Under overload the first modules
//! would serve requests that the later ones drop, so State Planners tell it how long requests will wait and run after its own
//! module (PARD §4.2), and the entry gate refuses what exceeds the bottleneck. Frames are decoded outside of the placement, by Request
//! Brokers: they drop as `pard` does, so no frame is decoded that the placement could only drop.

use super::recipe::{Bind, Constants, Keep, Order, Recipe, Reserve, Transition};
use super::{DispatchPolicyName, PlanName};

pub(crate) const RECIPE: Recipe = Recipe {
    name: "placed",
    summary: "what a placement drops, by the end-to-end estimate, behind an entry gate",
    order: Order::Guided(Transition::Delayed),
    keep: Keep::Estimate,
    bind: Bind::Ahead,
    reserve: Reserve::Estimate,
    lambda: 0.1,
    overload: None,
    learns_pace: true,
    adapts_batch: false,
    backlog_check: false,
    // The placement chooses among a few more requests than can be in time.
    gate: Some(1.05),
    gate_overfills: false,
    ranks: false,
    dispatch: DispatchPolicyName::LeastOutstanding,
    plan: PlanName::Reference,
    dynamic_schedule: None,
    constants: Constants::USUAL,
};

const _: () = RECIPE.assert_valid();
