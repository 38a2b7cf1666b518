//! What a placement hears and says.

use std::time::Duration;

use spillgate_pipeline::action::Action;
use spillgate_pipeline::id::{ActionId, DeviceId, ModelId, RequestId};
use spillgate_pipeline::time::Timestamp;

/// How an INFER action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its batch ran.
    Ran {
        /// When it ended on the device, on this clock.
        at: Timestamp,
        /// How long it executed.
        took: Duration,
    },
    /// It did not run.
    Refused,
}

/// What a placement hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementEvent {
    /// A request for a model.
    Arrived {
        /// The request.
        request: RequestId,
        /// Its model.
        model: ModelId,
        /// `Timestamp::MAX`: none.
        deadline: Timestamp,
    },
    /// A request that waits is wanted no more.
    Left {
        /// The request.
        request: RequestId,
        /// Its model.
        model: ModelId,
    },
    /// An INFER action has ended.
    Inferred {
        /// Its device.
        device: DeviceId,
        /// The action.
        action: ActionId,
        /// How.
        ended: Ended,
    },
    /// A LOAD action has ended.
    Loaded {
        /// Its device.
        device: DeviceId,
        /// The action.
        action: ActionId,
        /// How long it took; none: the weights are not there.
        took: Option<Duration>,
    },
    /// The moment that `next_wakeup` named has come.
    Wakeup,
}

/// What a placement says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementCommand {
    /// A device is to carry out an action. Those for one device arrive in this order.
    Do {
        /// The device.
        device: DeviceId,
        /// The action.
        action: Action<RequestId>,
    },
    /// A request cannot be in time.
    Cancel {
        /// The request.
        request: RequestId,
    },
}
