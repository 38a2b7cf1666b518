//! `pard-lbf`: `pard` with the lowest remaining budget always first (PARD §5.3).

use spillgate_pipeline::policy::recipe::{Order, Recipe};
use spillgate_pipeline::policy::{BudgetOrder, DropPolicy};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-lbf",
    summary: "PARD with the lowest remaining budget always first",
    order: Order::Budget(BudgetOrder::LowestFirst),
    ..*DropPolicy::PARD.recipe()
};
