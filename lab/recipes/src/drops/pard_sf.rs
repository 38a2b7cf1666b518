//! `pard-sf`: reserves the executions downstream, without waits and queueing (PARD §5.3).

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::policy::recipe::{Recipe, Reserve};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-sf",
    summary: "PARD with only executions reserved downstream",
    reserve: Reserve::Execution,
    ..*DropPolicy::PARD.recipe()
};
