//! What a client says of its link, how far that is believed, and what frames take on it (Jellyfish §3.3).

use std::time::Duration;

/// Least and most bits a second of a link that are believed: a slow modem, and ten gigabits.
pub const BANDWIDTH_BOUNDS: [f64; 2] = [1e4, 1e10];
/// Longest round trip that is believed.
pub const ROUND_TRIP_MAX: Duration = Duration::from_secs(10);

/// A client's link to the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkReport {
    /// Bits a second.
    pub bandwidth: f64,
    /// Time of a small message there and back.
    pub round_trip: Duration,
}

impl LinkReport {
    /// The report within bounds; `None` for a bandwidth that cannot be true.
    pub fn bounded(self) -> Option<Self> {
        let [least, most] = BANDWIDTH_BOUNDS;
        let is_true = self.bandwidth.is_finite() && self.bandwidth > 0.0;
        is_true.then(|| LinkReport {
            bandwidth: self.bandwidth.clamp(least, most),
            round_trip: self.round_trip.min(ROUND_TRIP_MAX),
        })
    }

    /// Whether it bears frames of so many bits at that rate. The paper's (P1) lacks this condition, the authors' code has it: otherwise
    /// frames queue before the link without end.
    pub fn bears(&self, frame_bits: f64, rate: f64) -> bool {
        self.bandwidth / frame_bits > rate
    }

    /// Time that sending such a frame takes.
    pub fn transfer(&self, frame_bits: f64) -> Duration {
        Duration::try_from_secs_f64(frame_bits / self.bandwidth).unwrap_or(Duration::MAX)
    }

    /// The same with the round trip: its time on the network, and its result's.
    pub fn carries_in(&self, frame_bits: f64) -> Duration {
        self.transfer(frame_bits).saturating_add(self.round_trip)
    }
}
