//! The recipe of a placement: the fields that the placement reads (`worker/policy/src/weights/placement/`).

use std::time::Duration;

use crate::policy;
use crate::predict::{Cap, EstimatorName};

/// Time for which an action may wait for its start, and time ahead for which links get LOADs (Clockwork §5.3).
pub const WINDOW: Duration = Duration::from_millis(5);

/// Which batch a device runs next; see `worker/policy/src/weights/placement/choose.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// By required start (Clockwork §5.3).
    RequiredStart,
    /// The set of batches with the most requests in time (Moore and Hodgson).
    MooreHodgson,
    /// By deadline.
    EarliestDeadline,
}

/// When a device gets its next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// This long before it is expected to be free.
    Fixed(Duration),
    /// When there is just time to copy the batch's inputs, and this long.
    LastMoment(Duration),
}

impl Ahead {
    /// How long before a device is expected to be free its next batch is looked for.
    pub fn looks(self, longest_input: Duration) -> Duration {
        match self {
            Ahead::Fixed(ahead) => ahead,
            Ahead::LastMoment(margin) => margin + longest_input,
        }
    }

    /// How long before a link is expected to be free its next LOAD is chosen.
    pub fn loads(self) -> Duration {
        match self {
            Ahead::Fixed(_) => WINDOW,
            Ahead::LastMoment(margin) => margin,
        }
    }
}

/// When an INFER may start at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earliest {
    /// When the device is expected to be free.
    PredictedStart,
    /// As soon as the device is free.
    Now,
}

/// When an INFER may start at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latest {
    /// This long after the device is expected to be free.
    After(Duration),
    /// While one of its requests can be in time.
    LastUseful,
    /// It is never too late.
    Never,
}

/// What becomes of LOADs when a link is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateLoads {
    /// A LOAD may start [`WINDOW`] late.
    Refused,
    /// A LOAD may start as late as it takes, or [`WINDOW`] where it takes less: one that is refused is chosen anew, and the link is
    /// idle meanwhile. Behind a LOAD that is late only one waits, because nobody knows when the late one ends; the end of each
    /// LOAD corrects when those behind it end.
    WaitedFor,
}

impl LateLoads {
    /// How long after the link is expected to be free a LOAD may start that is expected to take that long.
    pub fn window(self, takes: Duration) -> Duration {
        match self {
            LateLoads::Refused => WINDOW,
            LateLoads::WaitedFor => takes.max(WINDOW),
        }
    }
}

/// Which model is loaded; see `load.rs` there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadRule {
    /// The one with the most demand that its holders do not fulfil (Clockwork, Appendix B).
    Unfulfilled {
        /// Also when the LOAD is too late for each request that waits: more will come.
        also_too_late: bool,
    },
    /// The one with the most requests in time for each unit of transfer, less those of the models that give way, by
    /// [`Constants`].
    Value,
    /// The one with the first deadline among those that no device holds.
    OnDemand,
}

/// Which model gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The one that was used longest ago.
    LeastRecentlyUsed,
    /// The one with the fewest requests a second by the time that its transfer takes a page.
    LeastRate,
}

/// In which order links that are about to be idle are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostToDeviceOrder {
    /// The one that is free first.
    Free,
    /// That of the device with the least load.
    Load,
}

/// How a placement decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// Its name on the command line, in files and in reports.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// How durations are estimated.
    pub estimator: EstimatorName,
    /// What an estimate cannot exceed.
    pub cap: Cap,
    /// When a device gets its next batch, and its link its next LOAD.
    pub ahead: Ahead,
    /// When an INFER may start at the earliest.
    pub earliest: Earliest,
    /// When an INFER may start at the latest.
    pub latest: Latest,
    /// What becomes of LOADs when a link is late.
    pub late_loads: LateLoads,
    /// Starts are expected when the inputs are there.
    pub counts_input: bool,
    /// Time before the deadline that stays free, for outputs.
    pub kept_back: Duration,
    /// Beside that as much time stays free as batches end later than expected.
    pub knows_lateness: bool,
    /// Requests of a refused action wait again.
    pub requeues: bool,
    /// Which batch a device runs next.
    pub choice: Choice,
    /// Which model is loaded.
    pub load: LoadRule,
    /// Which model gives way.
    pub eviction: Eviction,
    /// In which order idle links are served.
    pub host_to_device_order: HostToDeviceOrder,
    /// An event weighs batches or LOADs for one device; the others wait for the next one.
    pub weighs_for_one: bool,
    /// Models get fair shares of device time.
    pub is_fair: bool,
    /// What brokers, State Planners, the entry gate and plans go by beside it; `None`: as under the drop policy `none`.
    pub beside: Option<&'static policy::recipe::Recipe>,
    /// Numbers of these rules.
    pub constants: Constants,
}

/// Numbers of the rules that a recipe names. All placements by name have the same ones; the laboratory hands in others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Load, in devices, below which a device gets further copies of weights.
    pub copied_below: f64,
    /// Seconds for which a model is expected to be asked for at its present rate.
    pub expected_for_s: f64,
    /// The part of the price of a device's time that counts. The price is that of the best batch that went: the mean one is worth less.
    pub price_part: f64,
    /// What LOADs to come will take, as a factor on the time of those that are known: later ones come while these wait.
    pub load_crowding: f64,
    /// The same of batches.
    pub batch_crowding: f64,
    /// Weights that gave way may have to be loaded this many times, before they are kept.
    pub loads_again: f64,
    /// The weight of the newest choice in the price of a device's time.
    pub price_weight: f64,
    /// The same for the price of its link.
    pub link_price_weight: f64,
}

impl Constants {
    /// Those of all placements by name.
    pub const USUAL: Constants = Constants {
        copied_below: 0.5,
        expected_for_s: 1.0,
        price_part: 0.7,
        load_crowding: 1.5,
        batch_crowding: 1.1,
        loads_again: 2.0,
        price_weight: 0.05,
        link_price_weight: 0.05,
    };
}
