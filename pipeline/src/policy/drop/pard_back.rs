//! `pard-back`: counts the time that has passed and this module, nothing downstream (PARD §5.3).

use super::pard;
use crate::policy::recipe::{Recipe, Reserve};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-back",
    summary: "PARD with nothing reserved downstream",
    reserve: Reserve::Nothing,
    ..pard::RECIPE
};
