//! What a run is known by: a hash of all that happened, in order, to whom and when.

use spillgate_pipeline::time::Timestamp;

/// What happened. The numbers go into the hash: a run keeps its hash for as long as they stay.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// A request is offered.
    Offer = 1,
    /// A request reaches a device.
    Arrival = 2,
    /// The gateway hears of a batch that was bound.
    Started = 3,
    /// The gateway hears of a result.
    Finished = 4,
    /// The gateway hears of a drop.
    Dropped = 5,
    /// A device is told to forget a request.
    Cancel = 6,
    /// Guidance reaches a device.
    Guide = 7,
    /// A module's state reaches another controller or the gateway.
    State = 8,
    /// A batch ends.
    BatchEnd = 9,
    /// A device wakes up.
    DeviceWakeup = 10,
    /// A controller wakes up.
    ControllerWakeup = 11,
    /// A client leaves.
    Leave = 12,
    /// A batch starts.
    BatchStart = 13,
    /// The world changes.
    Disturbance = 14,
    /// The gateway wakes up.
    GatewayWakeup = 15,
    /// The gateway hears that a worker serves, or serves no more: the lowest bit says which.
    Serving = 16,
    /// A request of hostile clients is offered.
    HostileOffer = 17,
    /// The gateway hears that a worker forgot a request.
    Forgotten = 18,
    /// A finished request runs again.
    RerunStart = 19,
    /// It has run again.
    RerunEnd = 20,
    /// A gateway hears what a worker asks for, or asks for no more.
    Ask = 21,
    /// A request comes back to its gateway.
    Returned = 22,
    /// The gateway hears of its part of what clients share.
    Portion = 23,
    /// The gateway hears that a worker is to be tried.
    Trial = 24,
    /// A device begins to read weights.
    LoadStart = 25,
    /// A device under a placement says what became of an action.
    ActionDone = 26,
    /// A fleet wakes up.
    FleetWakeup = 27,
    /// Something is due at a camera.
    Camera = 28,
}

/// What happened so far.
pub(super) struct Noted {
    hash: u64,
    events: u64,
}

impl Noted {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Noted {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
        }
    }

    /// Counts an event and mixes it into the hash: what happened to whom, at what time.
    pub(super) fn note(&mut self, now: Timestamp, kind: Kind, subject: u64) {
        self.events += 1;
        for word in [now.as_ns(), (kind as u64) << 56 | subject] {
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
    }

    /// Number of events.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// The hash of them all.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }
}
