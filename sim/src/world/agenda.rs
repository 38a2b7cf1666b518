//! The events to come. Messages under way are in order of arrival ([`super::travel`]). Offers come from a sorted list. The few
//! other events are on a heap.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use spillgate_pipeline::id::{BatchId, DeviceId, Incarnation, ModuleId, RequestId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Envelope, EnvelopeSender};

use super::cameras;
use super::cluster::Due;
use super::config::Disturbance;
use super::travel::Travel;
use crate::placement::device;

/// An event that is no message.
#[derive(Debug)]
pub(super) enum Occurrence {
    BatchStart {
        device: usize,
        life: u32,
    },
    BatchEnd {
        device: usize,
        batch: BatchId,
        life: u32,
    },
    RerunEnd {
        device: usize,
        batch: BatchId,
        life: u32,
    },
    DeviceWakeup {
        device: usize,
    },
    GatewayWakeup {
        owner: usize,
    },
    ControllerWakeup {
        module: ModuleId,
        life: Incarnation,
    },
    Leave(RequestId),
    /// The next request of the hostile clients of that ordinal.
    Hostile(usize),
    /// At a camera, or at its gateway.
    Camera {
        camera: usize,
        due: cameras::Due,
    },
    /// What a device read is there.
    ReadEnd {
        device: usize,
        life: u32,
    },
    Disturbance(Disturbance),
    Cluster(Due),
    /// On a device of a fleet.
    Placed {
        fleet: usize,
        device: DeviceId,
        due: device::Due,
    },
    FleetWakeup {
        fleet: usize,
    },
}

/// The next thing that happens.
#[derive(Debug)]
pub(super) enum Next {
    Occurrence(Occurrence),
    Message(Envelope<()>),
    /// The request of that ordinal is offered.
    Offer(usize),
}

struct Entry {
    at: Timestamp,
    sequence: u64,
    occurrence: Occurrence,
}

impl Entry {
    fn rank(&self) -> (Timestamp, u64) {
        (self.at, self.sequence)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

pub(super) struct Agenda {
    offers: Arc<[Timestamp]>,
    next_offer: usize,
    /// Offers come from elsewhere, too.
    is_offered_more: bool,
    now: Timestamp,
    messages: RefCell<Travel>,
    heap: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
}

impl Agenda {
    pub(super) fn new(travel: Travel, offers: Arc<[Timestamp]>) -> Self {
        Agenda {
            offers,
            next_offer: 0,
            is_offered_more: false,
            now: Timestamp::ZERO,
            messages: RefCell::new(travel),
            heap: BinaryHeap::new(),
            sequence: 0,
        }
    }

    pub(super) fn at(&mut self, at: Timestamp, occurrence: Occurrence) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.heap.push(Reverse(Entry {
            at,
            sequence,
            occurrence,
        }));
    }

    /// An agenda of a revision: its offers come from elsewhere.
    pub(super) fn without_offers(&mut self) {
        self.offers = Arc::default();
        self.is_offered_more = true;
    }

    /// When the next event is.
    pub(super) fn next_at(&mut self) -> Option<Timestamp> {
        let heap = self.heap.peek().map(|Reverse(e)| e.at);
        let message = self.messages.get_mut().next_at();
        let offer = self.offers.get(self.next_offer).copied();
        [heap, message, offer].into_iter().flatten().min()
    }

    /// Takes out the next event. Among events of the same time occurrences come first, then messages, then offers.
    pub(super) fn next(&mut self) -> Option<(Timestamp, Next)> {
        let heap = self.heap.peek().map(|Reverse(e)| e.at);
        let message = self.messages.get_mut().next_at();
        let offer = self.offers.get(self.next_offer).copied();
        let first = [heap, message, offer].into_iter().flatten().min()?;
        self.now = first;
        if heap == Some(first) {
            let Reverse(entry) = self.heap.pop()?;
            return Some((first, Next::Occurrence(entry.occurrence)));
        }
        if message == Some(first) {
            return Some((first, Next::Message(self.messages.get_mut().pop()?)));
        }
        self.next_offer += 1;
        Some((first, Next::Offer(self.next_offer - 1)))
    }

    /// Whether all requests have been offered.
    pub(super) fn all_offered(&self) -> bool {
        self.next_offer == self.offers.len() && !self.is_offered_more
    }
}

/// The simulated link.
impl EnvelopeSender<()> for Agenda {
    fn send(&self, envelope: Envelope<()>) {
        self.messages.borrow_mut().send(self.now, envelope);
    }
}
