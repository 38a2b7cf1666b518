//! `pard-wcl`: a split of the SLO by each module's largest recent latency (PARD §5.3).

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::policy::recipe::{Recipe, Reserve};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-wcl",
    summary: "PARD with a split of the SLO by largest recent latency",
    reserve: Reserve::SplitByWorst,
    ..*DropPolicy::PARD.recipe()
};
