//! What a server without a plan does: earliest deadline first, models loaded on demand, the least recently used one gives way,
//! and a batch is sent when the device is idle.

use std::time::Duration;

use crate::predict::{Cap, EstimatorName};

use super::recipe::{
    Ahead, Choice, Constants, Earliest, Eviction, HostToDeviceOrder, LateLoads, Latest, LoadRule,
    Recipe,
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "lru",
    summary: "earliest deadline first, models loaded on demand",
    estimator: EstimatorName::LastMax,
    cap: Cap::None,
    ahead: Ahead::Fixed(Duration::from_nanos(1)),
    earliest: Earliest::Now,
    latest: Latest::Never,
    late_loads: LateLoads::Refused,
    counts_input: false,
    kept_back: Duration::ZERO,
    knows_lateness: false,
    requeues: false,
    choice: Choice::EarliestDeadline,
    load: LoadRule::OnDemand,
    eviction: Eviction::LeastRecentlyUsed,
    host_to_device_order: HostToDeviceOrder::Free,
    weighs_for_one: false,
    is_fair: false,
    beside: None,
    constants: Constants::USUAL,
};
