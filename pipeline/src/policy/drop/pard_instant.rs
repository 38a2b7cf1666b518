//! `pard-instant`: the order changes at a load factor of 1, without the delayed transition (PARD §5.3).

use super::pard;
use crate::policy::recipe::{Order, Recipe, Transition};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-instant",
    summary: "PARD with an order that changes at a load factor of 1",
    order: Order::Guided(Transition::AtOnce),
    ..pard::RECIPE
};
