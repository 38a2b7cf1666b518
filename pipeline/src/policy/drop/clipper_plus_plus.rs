//! `clipper++`: drops a request that has used up its cumulative share of the SLO (PARD §5.1).

use super::none;
use crate::policy::recipe::{Keep, Recipe, Reserve};

pub(super) const RECIPE: Recipe = Recipe {
    name: "clipper++",
    summary: "drops what has used up its cumulative share of the SLO",
    keep: Keep::Elapsed,
    reserve: Reserve::Split,
    ..none::RECIPE
};
