//! `spillgate-hbf`: `spillgate` with the highest remaining budget always first.

use super::spillgate;
use crate::policy::BudgetOrder;
use crate::policy::recipe::{Order, Recipe};

pub(super) const RECIPE: Recipe = Recipe {
    name: "spillgate-hbf",
    summary: "spillgate with the highest remaining budget always first",
    order: Order::Budget(BudgetOrder::HighestFirst),
    ..spillgate::RECIPE
};
