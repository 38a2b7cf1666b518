//! `pard-hbf`: `pard` with the highest remaining budget always first (PARD §5.3).

use super::pard;
use crate::policy::BudgetOrder;
use crate::policy::recipe::{Order, Recipe};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-hbf",
    summary: "PARD with the highest remaining budget always first",
    order: Order::Budget(BudgetOrder::HighestFirst),
    ..pard::RECIPE
};
