//! `spillgate-ahead`: `spillgate`, but it binds a batch ahead, in PARD's order.

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::policy::recipe::{Bind, Order, Recipe, Transition};

pub(super) const RECIPE: Recipe = Recipe {
    name: "spillgate-ahead",
    summary: "spillgate with requests bound a batch ahead, in PARD's order",
    order: Order::Guided(Transition::Delayed),
    bind: Bind::Ahead,
    ranks: false,
    ..*DropPolicy::SPILLGATE.recipe()
};
