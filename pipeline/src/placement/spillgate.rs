//! Our placement: the set of batches with the most requests in time, and the models whose weights save most requests.

use std::time::Duration;

use crate::policy::placed;
use crate::predict::{Cap, EstimatorName};

use super::recipe::{
    Ahead, Choice, Constants, Earliest, Eviction, HostToDeviceOrder, LateLoads, Latest, LoadRule,
    Recipe,
};

pub(super) const RECIPE: Recipe = Recipe {
    name: "spillgate",
    summary: "most requests in time, models by the requests that they save",
    estimator: EstimatorName::Ewma,
    cap: Cap::Typical(1.5),
    ahead: Ahead::LastMoment(Duration::from_micros(200)),
    earliest: Earliest::Now,
    latest: Latest::LastUseful,
    late_loads: LateLoads::WaitedFor,
    counts_input: true,
    kept_back: Duration::from_micros(200),
    knows_lateness: true,
    requeues: true,
    choice: Choice::MooreHodgson,
    load: LoadRule::Value,
    eviction: Eviction::LeastRate,
    host_to_device_order: HostToDeviceOrder::Load,
    weighs_for_one: true,
    is_fair: true,
    beside: Some(&placed::RECIPE),
    constants: Constants::USUAL,
};
