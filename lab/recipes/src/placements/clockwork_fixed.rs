//! Clockwork with the faults of its text repaired:
//!
//! - one outlier cannot stop a model for good: the estimate has a cap;
//! - a model that no waiting request can wait for is loaded too, since more will come;
//! - an action may start as soon as its device is free: an estimate that is a maximum leaves the device idle otherwise;
//! - the copies of inputs and outputs count;
//! - the requests of a refused action wait again.

use std::time::Duration;

use spillgate_pipeline::placement::recipe::{
    Ahead, Choice, Constants, Earliest, Eviction, HostToDeviceOrder, LateLoads, Latest, LoadRule,
    Recipe,
};
use spillgate_pipeline::predict::{Cap, EstimatorName};

pub(super) const RECIPE: Recipe = Recipe {
    name: "clockwork-fixed",
    summary: "Clockwork with the faults of its text repaired",
    estimator: EstimatorName::LastMax,
    cap: Cap::Seed(1.5),
    ahead: Ahead::Fixed(Duration::from_millis(5)),
    earliest: Earliest::Now,
    latest: Latest::After(Duration::from_millis(5)),
    late_loads: LateLoads::Refused,
    counts_input: true,
    kept_back: Duration::from_micros(200),
    knows_lateness: false,
    requeues: true,
    choice: Choice::RequiredStart,
    load: LoadRule::Unfulfilled {
        also_too_late: true,
    },
    eviction: Eviction::LeastRecentlyUsed,
    host_to_device_order: HostToDeviceOrder::Load,
    weighs_for_one: false,
    is_fair: false,
    beside: None,
    constants: Constants::USUAL,
};
