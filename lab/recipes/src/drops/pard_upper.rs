//! `pard-upper`: batch waits downstream count in full (PARD §5.3).

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::policy::recipe::{Recipe, Reserve};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-upper",
    summary: "PARD with batch waits downstream counted in full",
    reserve: Reserve::UpperEstimate,
    ..*DropPolicy::PARD.recipe()
};
