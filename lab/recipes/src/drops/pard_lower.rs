//! `pard-lower`: batch waits downstream count as zero (PARD §5.3).

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::policy::recipe::{Recipe, Reserve};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-lower",
    summary: "PARD with batch waits downstream counted as zero",
    reserve: Reserve::LowerEstimate,
    ..*DropPolicy::PARD.recipe()
};
