//! Clockwork as its text describes it (Gujarati et al., OSDI 2020, §5.3 and Appendix B).

use std::time::Duration;

use crate::predict::{Cap, EstimatorName};

use super::recipe::{
    Ahead, Choice, Constants, Earliest, Eviction, HostToDeviceOrder, LateLoads, Latest, LoadRule,
    Recipe,
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "clockwork",
    summary: "Clockwork as published",
    estimator: EstimatorName::LastMax,
    cap: Cap::None,
    ahead: Ahead::Fixed(Duration::from_millis(5)),
    earliest: Earliest::PredictedStart,
    latest: Latest::After(Duration::from_millis(5)),
    late_loads: LateLoads::Refused,
    counts_input: false,
    kept_back: Duration::ZERO,
    knows_lateness: false,
    requeues: false,
    choice: Choice::RequiredStart,
    load: LoadRule::Unfulfilled {
        also_too_late: false,
    },
    eviction: Eviction::LeastRecentlyUsed,
    host_to_device_order: HostToDeviceOrder::Free,
    weighs_for_one: false,
    is_fair: false,
    beside: None,
    constants: Constants::USUAL,
};
