//! `pard-instant`: the order changes at a load factor of 1, without the delayed transition (PARD §5.3).

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::policy::recipe::{Order, Recipe, Transition};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-instant",
    summary: "PARD with an order that changes at a load factor of 1",
    order: Order::Guided(Transition::AtOnce),
    ..*DropPolicy::PARD.recipe()
};
