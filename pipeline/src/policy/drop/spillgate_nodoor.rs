//! `spillgate-nodoor`: `spillgate` without the refusal at the first module.

use super::spillgate;
use crate::policy::recipe::Recipe;

pub(super) const RECIPE: Recipe = Recipe {
    name: "spillgate-nodoor",
    summary: "spillgate without the door",
    door: false,
    ..spillgate::RECIPE
};
