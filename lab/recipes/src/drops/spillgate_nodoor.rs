//! `spillgate-nodoor`: `spillgate` without the door of the first module.

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::policy::recipe::Recipe;

pub(super) const RECIPE: Recipe = Recipe {
    name: "spillgate-nodoor",
    summary: "spillgate without the door",
    backlog_check: false,
    ..*DropPolicy::SPILLGATE.recipe()
};
