//! `deadline`: earliest deadline first; a request is dropped when its deadline has passed.

use super::none;
use crate::policy::BudgetOrder;
use crate::policy::recipe::{Keep, Order, Recipe};

pub(super) const RECIPE: Recipe = Recipe {
    name: "deadline",
    summary: "earliest deadline first, drops what is too late already",
    order: Order::Budget(BudgetOrder::LowestFirst),
    keep: Keep::Unexpired,
    ..none::RECIPE
};
