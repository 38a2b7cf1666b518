//! `nexus-split`: early drop by Nexus against a static, cumulative split of the SLO over the modules.

use super::nexus;
use crate::policy::recipe::{Recipe, Reserve};

pub(super) const RECIPE: Recipe = Recipe {
    name: "nexus-split",
    summary: "nexus with a static split of the SLO over the modules",
    reserve: Reserve::Split,
    ..nexus::RECIPE
};
