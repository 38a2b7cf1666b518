//! How many tokens of the gate are kept for clients within their share, so that the pipeline does not idle for it.
//!
//! A token that is kept is not lost: only the level of the gate is higher. A token is lost when the gate overflows, and a
//! request that was refused for the reserve might have prevented that. Therefore a gate without shares runs beside the
//! gate, on the same requests. What the gate loses more than this one is the *price* of the reserve. The reserve grows
//! with what is admitted, by a small part, and pays the price.

use spillgate_pipeline::time::Timestamp;

use crate::gate::Gate;

/// The part of the admitted requests that shares may cost.
const PRICE_MAX: f64 = 0.006;
/// Largest reserve as a part of the tokens of the gate: the rest is for waiting requests of all clients.
const PART_MAX: f64 = 0.5;
/// Largest reserve at first, in tokens.
const FIRST_MAX: f64 = 5.0;

/// The reserve of a gate.
#[derive(Clone, Debug)]
pub(super) struct Reserve {
    /// The gate as it would be without shares.
    alone: Gate,
    tokens: f64,
}

impl Reserve {
    pub(super) fn new(gate: &Gate) -> Self {
        Reserve {
            alone: gate.clone(),
            tokens: most(gate).min(FIRST_MAX),
        }
    }

    /// See [`Gate::set`].
    pub(super) fn set(&mut self, now: Timestamp, gate: &Gate) {
        self.alone.set(now, gate.rate(), gate.depth());
        self.pay(0.0);
    }

    /// Time has passed, and the gate overflowed by so many tokens.
    pub(super) fn on_time(&mut self, now: Timestamp, lost: f64) {
        let price = lost - self.alone.refill(now);
        // Both are infinite when a new gate is filled.
        if price.is_finite() {
            self.pay(price);
        }
    }

    /// A request is offered: the gate without shares decides about it.
    pub(super) fn on_offer(&mut self, now: Timestamp) {
        self.alone.pass(now);
    }

    /// A request was admitted.
    pub(super) fn on_admit(&mut self) {
        self.pay(-PRICE_MAX);
    }

    /// A request gives its place back.
    pub(super) fn give_back(&mut self) {
        self.alone.give_back();
    }

    /// Tokens that are kept.
    pub(super) fn tokens(&self) -> f64 {
        self.tokens
    }

    fn pay(&mut self, tokens: f64) {
        self.tokens = (self.tokens - tokens).clamp(0.0, most(&self.alone));
    }
}

/// The largest reserve of a gate: a request must be able to pass when the gate is full.
fn most(gate: &Gate) -> f64 {
    (gate.most() * PART_MAX).min(gate.most() - 1.0)
}
