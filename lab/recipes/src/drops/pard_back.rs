//! `pard-back`: counts the time that has passed and this module, nothing downstream (PARD §5.3).

use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::policy::recipe::{Recipe, Reserve};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-back",
    summary: "PARD with nothing reserved downstream",
    reserve: Reserve::Nothing,
    ..*DropPolicy::PARD.recipe()
};
