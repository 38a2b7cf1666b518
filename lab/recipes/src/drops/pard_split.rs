//! `pard-split`: a static, cumulative split of the SLO over the modules (PARD §5.3).

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::policy::recipe::{Recipe, Reserve};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-split",
    summary: "PARD with a static split of the SLO",
    reserve: Reserve::Split,
    ..*DropPolicy::PARD.recipe()
};
