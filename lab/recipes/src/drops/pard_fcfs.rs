//! `pard-fcfs`: `pard` in order of arrival (PARD §5.3).

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::policy::recipe::{Order, Recipe};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-fcfs",
    summary: "PARD with requests served in order of arrival",
    order: Order::Arrival,
    ..*DropPolicy::PARD.recipe()
};
