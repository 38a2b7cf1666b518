//! `pard-hbf`: `pard` with the highest remaining budget always first (PARD §5.3).

use spillgate_pipeline::policy::recipe::{Order, Recipe};
use spillgate_pipeline::policy::{BudgetOrder, DropPolicy};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-hbf",
    summary: "PARD with the highest remaining budget always first",
    order: Order::Budget(BudgetOrder::HighestFirst),
    ..*DropPolicy::PARD.recipe()
};
