//! `pard-oc`: admission control after DAGOR, with the test of `pard-back` (PARD §5.3).

use std::time::Duration;

use super::pard_back;
use spillgate_pipeline::policy::recipe::{OverloadControl, Recipe};

pub(super) const RECIPE: Recipe = Recipe {
    name: "pard-oc",
    summary: "admission control by queueing delay, with the test of pard-back",
    // PARD §5.3 tunes both for each trace; these are the best of the values tried on the reference workload.
    overload: Some(OverloadControl {
        queueing: Duration::from_millis(40),
        admitted: 0.95,
    }),
    ..pard_back::RECIPE
};
