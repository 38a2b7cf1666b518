//! `nexus`: early drop by Nexus against the end-to-end SLO, as PARD §5.1 describes it.

use super::none;
use crate::policy::recipe::{Keep, Recipe};

pub(super) const RECIPE: Recipe = Recipe {
    name: "nexus",
    summary: "drops all before the first run of requests, as long as the batch, that meet the SLO",
    keep: Keep::EarlyDrop,
    ..none::RECIPE
};
