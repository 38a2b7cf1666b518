//! Limits of what may be sent: requests a second, and requests in flight. Tokens ([`crate::access`]) and clients
//! ([`crate::clients`]) have them.

use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

use crate::gate::Gate;

/// The requests of this span of a rate may come at once, for instance after a network stood still. After as long without a
/// request the full rate is there again.
pub(crate) const DEPTH: Duration = Duration::from_secs(1);

/// What may be sent; `None`: any number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    /// Requests a second.
    pub(crate) rate: Option<f64>,
    /// Requests in flight.
    pub(crate) in_flight: Option<u32>,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reached {
    /// So many requests a second.
    Rate(f64),
    /// So many requests in flight.
    InFlight(u32),
}

/// Limits, and how much of them is used.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    limits: Limits,
    gate: Option<Gate>,
    in_flight: u32,
}

impl Used {
    /// Nothing is used.
    pub(crate) fn new(limits: Limits) -> Self {
        Used {
            limits,
            gate: limits.rate.map(|rate| Gate::new(rate, DEPTH)),
            in_flight: 0,
        }
    }

    /// Other limits hold from now on.
    pub(crate) fn set(&mut self, now: Timestamp, limits: Limits) {
        if self.limits == limits {
            return;
        }
        match (&mut self.gate, limits.rate) {
            (Some(gate), Some(rate)) => gate.set(now, rate, DEPTH),
            (gate, rate) => *gate = rate.map(|rate| Gate::new(rate, DEPTH)),
        }
        self.limits = limits;
    }

    /// Requests in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Counts one more request, in flight until [`Self::done`].
    ///
    /// # Errors
    /// When a limit is reached; then nothing is used.
    pub(crate) fn ask(&mut self, now: Timestamp) -> Result<(), Reached> {
        // Checked before the rate: a request that is refused here uses none of the rate.
        if let Some(limit) = self.limits.in_flight
            && self.in_flight >= limit
        {
            return Err(Reached::InFlight(limit));
        }
        if let Some(gate) = &mut self.gate
            && !gate.pass(now)
        {
            return Err(Reached::Rate(gate.rate()));
        }
        self.in_flight += 1;
        Ok(())
    }

    /// A request has ended.
    pub(crate) fn done(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}
