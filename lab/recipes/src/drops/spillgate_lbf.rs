//! `spillgate-lbf`: `spillgate` with the lowest remaining budget always first.

use spillgate_pipeline::policy::recipe::{Order, Recipe};
use spillgate_pipeline::policy::{BudgetOrder, DropPolicy};

pub(super) const RECIPE: Recipe = Recipe {
    name: "spillgate-lbf",
    summary: "spillgate with the lowest remaining budget always first",
    order: Order::Budget(BudgetOrder::LowestFirst),
    ..*DropPolicy::SPILLGATE.recipe()
};
