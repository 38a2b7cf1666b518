//! What a device asks of gateways (dispatch `pull`).
//!
//! An ask goes to all gateways, for the workers of the device that each knows. A busy device asks a round trip and a margin before it binds its
//! next batch, and binds when all have answered or its patience is over. The ask of an idle device stands: a gateway answers
//! when a request comes.
//!
//! Invariant: one ask is open at a time. The answer to another one is late, and what it brings is handed back.

use std::collections::VecDeque;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{GatewayId, WorkerId};
use spillgate_pipeline::time::Timestamp;

/// How long answers are waited for after the batch was to be bound.
const PATIENCE: Duration = Duration::from_millis(3);
/// How long an idle device waits for the requests of other gateways when the first has come: those of one batch of the module
/// before go to several gateways, and come from there one by one.
const GATHER: Duration = Duration::from_micros(200);
/// An idle device repeats its ask this often: the gateway may have lost it, and neither would speak again.
const RENEWED: Duration = Duration::from_secs(1);
/// Round trips are assumed to take this long before the first answer.
const TRIP_FIRST: Duration = Duration::from_millis(2);
/// An ask leads by a round trip and this many of its usual deviations, but not by more than [`MARGIN_MAX`].
const DEVIATIONS: f64 = 4.0;
/// See [`DEVIATIONS`].
const MARGIN_MAX: Duration = Duration::from_millis(2);
/// Weight of the newest round trip.
const WEIGHT: f64 = 0.125;
/// Asks whose late answers still tell how long a round trip takes.
pub(crate) const REMEMBERED: usize = 8;

/// The round trip to a gateway, smoothed as in RFC 6298.
#[derive(Clone, Copy, Debug)]
struct Trip {
    mean: f64,
    deviation: f64,
    /// Its last answer did not come in time: it is not waited for until it answers again.
    is_silent: bool,
}

impl Default for Trip {
    fn default() -> Self {
        Trip {
            mean: TRIP_FIRST.as_secs_f64(),
            deviation: 0.0,
            is_silent: false,
        }
    }
}

impl Trip {
    fn took(&mut self, trip: Duration) {
        let took = trip.as_secs_f64();
        self.deviation += WEIGHT * ((took - self.mean).abs() - self.deviation);
        self.mean += WEIGHT * (took - self.mean);
        self.is_silent = false;
    }

    /// How long before its answer is needed a gateway is to be asked.
    fn lead(&self) -> Duration {
        let margin = Duration::from_secs_f64(DEVIATIONS * self.deviation);
        Duration::from_secs_f64(self.mean) + margin.min(MARGIN_MAX)
    }
}

/// The ask that is open.
#[derive(Debug)]
struct Open {
    /// The device was idle: the ask stands until a batch is bound.
    is_idle: bool,
    /// Answers that are waited for.
    missing: Vec<(GatewayId, WorkerId)>,
    patience_ends: Timestamp,
    /// An idle device waits so long for what other gateways have.
    gathers_until: Option<Timestamp>,
    /// A gateway sent requests to an idle device: it takes the ask for served.
    is_served: bool,
    /// The ask of an idle device is repeated then.
    renews_at: Timestamp,
}

/// The asks of one device.
#[derive(Debug, Default)]
pub(super) struct Asks {
    serial: u64,
    open: Option<Open>,
    trips: IndexMap<GatewayId, Trip, FxBuildHasher>,
    /// Requests that waited at each gateway when it answered last.
    waiting: IndexMap<(GatewayId, WorkerId), u32, FxBuildHasher>,
    /// When the last asks were sent, by serial.
    sent: VecDeque<(u64, Timestamp)>,
}

impl Asks {
    /// How long before a batch is bound gateways are to be asked.
    pub(super) fn lead(&self) -> Duration {
        let heard = self.trips.values().filter(|trip| !trip.is_silent);
        heard.map(Trip::lead).max().unwrap_or(TRIP_FIRST)
    }

    /// How long a message to a gateway takes.
    pub(super) fn one_way(&self, gateway: GatewayId) -> Duration {
        let trip = self.trips.get(&gateway).copied().unwrap_or_default();
        Duration::from_secs_f64(trip.mean / 2.0)
    }

    /// Requests for a worker that waited at the other gateways when they answered last.
    pub(super) fn elsewhere(&self, gateway: GatewayId, worker: WorkerId) -> u32 {
        let others = self.waiting.iter();
        let others = others.filter(|((h, w), _)| *h != gateway && *w == worker);
        others.fold(0, |sum, (_, waiting)| sum.saturating_add(*waiting))
    }

    /// A gateway says how many requests wait there for a worker.
    pub(super) fn waits(&mut self, gateway: GatewayId, worker: WorkerId, waiting: u32) {
        self.waiting.insert((gateway, worker), waiting);
    }

    /// So many requests for a worker are handed back to a gateway.
    pub(super) fn go_back(&mut self, gateway: GatewayId, worker: WorkerId, requests: usize) {
        let waiting = self.waiting.entry((gateway, worker)).or_default();
        *waiting = waiting.saturating_add(requests as u32);
    }

    /// The serial of the last ask.
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Whether an ask is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The serial of the ask that stands for an idle device.
    pub(super) fn standing(&self) -> Option<u64> {
        let open = self.open.as_ref()?;
        open.is_idle.then_some(self.serial)
    }

    /// Opens an ask. `binds_at`: when its batch is to be bound; `None` for an idle device. Returns its serial.
    pub(super) fn open(
        &mut self,
        now: Timestamp,
        binds_at: Option<Timestamp>,
        asked: impl Iterator<Item = (GatewayId, WorkerId)>,
    ) -> u64 {
        self.close();
        self.serial += 1;
        let trips = &self.trips;
        let is_heard = |gateway: &GatewayId| trips.get(gateway).is_none_or(|trip| !trip.is_silent);
        self.open = Some(Open {
            is_idle: binds_at.is_none(),
            missing: match binds_at {
                Some(_) => asked.filter(|(gateway, _)| is_heard(gateway)).collect(),
                None => Vec::new(),
            },
            patience_ends: binds_at.unwrap_or(now).max(now) + PATIENCE,
            gathers_until: None,
            is_served: false,
            renews_at: now + RENEWED,
        });
        if binds_at.is_some() {
            if self.sent.len() == REMEMBERED {
                self.sent.pop_front();
            }
            self.sent.push_back((self.serial, now));
        }
        self.serial
    }

    /// A gateway answers for a worker. False when its ask is not open.
    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        gateway: GatewayId,
        worker: WorkerId,
        serial: u64,
    ) -> bool {
        let is_current = self.open.is_some() && serial == self.serial;
        let was_missing = match &mut self.open {
            Some(open) if is_current => {
                let idx = open.missing.iter().position(|m| *m == (gateway, worker));
                idx.map(|idx| open.missing.swap_remove(idx)).is_some()
            }
            _ => false,
        };
        // What comes to a gateway after its answer says nothing of the round trip.
        if was_missing || !is_current {
            let sent = self.sent.iter().find(|(of, _)| *of == serial);
            if let Some((_, at)) = sent {
                self.trips.entry(gateway).or_default().took(now.since(*at));
            }
        }
        is_current
    }

    /// Requests have come to an idle device. Where it asked several gateways, it waits for what the others have.
    pub(super) fn came(&mut self, now: Timestamp, of_several: bool) {
        if let Some(open) = &mut self.open
            && open.is_idle
        {
            open.is_served = true;
            if of_several {
                open.gathers_until.get_or_insert(now + GATHER);
            }
        }
    }

    /// When an idle device asks again: at once if a gateway takes its ask for served.
    pub(super) fn renews_at(&self) -> Option<Timestamp> {
        let open = self.open.as_ref().filter(|open| open.is_idle)?;
        Some(match open.is_served {
            true => Timestamp::ZERO,
            false => open.renews_at,
        })
    }

    /// Until when answers are waited for; `None` when nothing is waited for.
    pub(super) fn waits_until(&self) -> Option<Timestamp> {
        let open = self.open.as_ref()?;
        match open.missing.is_empty() {
            true => open.gathers_until,
            false => Some(open.patience_ends),
        }
    }

    /// The ask is open no more. Gateways that have not answered are silent.
    pub(super) fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        for (gateway, _) in open.missing {
            self.trips.entry(gateway).or_default().is_silent = true;
        }
    }

    /// A gateway is silent. It is waited for again once it has answered.
    pub(super) fn suspect(&mut self, gateway: GatewayId) {
        self.trips.entry(gateway).or_default().is_silent = true;
        self.waiting.retain(|(of, _), _| *of != gateway);
        if let Some(open) = &mut self.open {
            open.missing.retain(|(of, _)| *of != gateway);
        }
    }

    /// A gateway is gone.
    pub(super) fn forget(&mut self, gateway: GatewayId) {
        self.trips.swap_remove(&gateway);
        self.waiting.retain(|(of, _), _| *of != gateway);
        if let Some(open) = &mut self.open {
            open.missing.retain(|(of, _)| *of != gateway);
        }
    }
}
