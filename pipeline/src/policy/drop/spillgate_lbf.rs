//! `spillgate-lbf`: `spillgate` with the lowest remaining budget always first.

use super::spillgate;
use crate::policy::BudgetOrder;
use crate::policy::recipe::{Order, Recipe};

pub(super) const RECIPE: Recipe = Recipe {
    name: "spillgate-lbf",
    summary: "spillgate with the lowest remaining budget always first",
    order: Order::Budget(BudgetOrder::LowestFirst),
    ..spillgate::RECIPE
};
