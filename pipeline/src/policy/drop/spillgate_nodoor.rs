//! `spillgate-nodoor`: `spillgate` without the door of the first module.

use super::spillgate;
use crate::policy::recipe::Recipe;

pub(super) const RECIPE: Recipe = Recipe {
    name: "spillgate-nodoor",
    summary: "spillgate without the door",
    door: false,
    ..spillgate::RECIPE
};
