//! `spillgate-hbf`: `spillgate` with the highest remaining budget always first.

use spillgate_pipeline::policy::recipe::{Order, Recipe};
use spillgate_pipeline::policy::{BudgetOrder, DropPolicy};

pub(super) const RECIPE: Recipe = Recipe {
    name: "spillgate-hbf",
    summary: "spillgate with the highest remaining budget always first",
    order: Order::Budget(BudgetOrder::HighestFirst),
    ..*DropPolicy::SPILLGATE.recipe()
};
