//! `pard-lbf`: `pard` with the lowest remaining budget always first (PARD §5.3).

use super::pard;
use crate::policy::BudgetOrder;
use crate::policy::recipe::{Order, Recipe};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-lbf",
    summary: "PARD with the lowest remaining budget always first",
    order: Order::Budget(BudgetOrder::LowestFirst),
    ..pard::RECIPE
};
