//! What a client reports, and how far it is believed. Shares of workers follow from reports, so each is bounded before it counts:
//! a client that reports nonsense is served worse, or not at all, and nobody else is.

use std::time::Duration;

use spillgate_controller_policy::uplink::{BANDWIDTH_BOUNDS, ROUND_TRIP_MAX, UplinkReport};

/// Least and most requests a second of a client: one in ten seconds, and the fastest cameras. One that claims more holds no more
/// of a worker than such a camera.
pub const RATE_BOUNDS: [f64; 2] = [0.1, 240.0];
/// Shortest and longest SLO.
pub const SLO_BOUNDS: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(60)];

/// What a client says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientReport {
    /// Requests a second.
    pub rate: f64,
    /// Time from sending a request to its result.
    pub slo: Duration,
    /// Bits a second of its link to the server.
    pub bandwidth: f64,
    /// Time of a small message there and back.
    pub round_trip: Duration,
}

impl ClientReport {
    /// The report within bounds. A number that cannot be true (not finite, not above 0) is taken from the report before; `None` if
    /// there is none.
    pub fn bounded(self, before: Option<ClientReport>) -> Option<ClientReport> {
        let number = |new: f64, before: Option<f64>, [least, most]: [f64; 2]| {
            let is_true = new.is_finite() && new > 0.0;
            if is_true {
                Some(new.clamp(least, most))
            } else {
                before
            }
        };
        let [least, most] = SLO_BOUNDS;
        Some(ClientReport {
            rate: number(self.rate, before.map(|b| b.rate), RATE_BOUNDS)?,
            slo: self.slo.clamp(least, most),
            bandwidth: number(
                self.bandwidth,
                before.map(|b| b.bandwidth),
                BANDWIDTH_BOUNDS,
            )?,
            round_trip: self.round_trip.min(ROUND_TRIP_MAX),
        })
    }

    /// Its link.
    pub fn link(&self) -> UplinkReport {
        UplinkReport {
            bandwidth: self.bandwidth,
            round_trip: self.round_trip,
        }
    }

    /// Time that the module may take for frames of this size: the SLO less network time (§3.3) and less `rest`, what the other
    /// modules of the pipeline are expected to take. Zero where the link does not bear them.
    pub fn budget(&self, frame_bits: f64, rest: Duration) -> Duration {
        let link = self.link();
        if !link.bears(frame_bits, self.rate) {
            return Duration::ZERO;
        }
        let network = link.carries_in(frame_bits);
        self.slo.saturating_sub(network).saturating_sub(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: ClientReport = ClientReport {
        rate: 25.0,
        slo: Duration::from_millis(100),
        bandwidth: 20e6,
        round_trip: Duration::from_millis(4),
    };

    #[test]
    fn a_budget_is_what_network_and_other_modules_leave() {
        let rest = Duration::from_millis(16);
        assert_eq!(GOOD.budget(400e3, rest), Duration::from_millis(60));
        assert_eq!(GOOD.budget(400e3, Duration::from_secs(1)), Duration::ZERO);
        // 25 frames a second of 800 kbit fill the link exactly: they would queue.
        assert_eq!(GOOD.budget(800e3, rest), Duration::ZERO);
    }

    #[test]
    fn nonsense_is_bounded_or_not_believed() {
        let huge = ClientReport {
            rate: 1e12,
            bandwidth: 1e12,
            slo: Duration::MAX,
            ..GOOD
        };
        let bounded = huge.bounded(None).expect("numbers are above 0");
        assert_eq!(
            [bounded.rate, bounded.bandwidth],
            [RATE_BOUNDS[1], BANDWIDTH_BOUNDS[1]]
        );
        assert_eq!(bounded.slo, SLO_BOUNDS[1]);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                ClientReport {
                    bandwidth: bad,
                    ..GOOD
                }
                .bounded(None),
                None
            );
            assert_eq!(
                ClientReport { rate: bad, ..GOOD }.bounded(Some(GOOD)),
                Some(GOOD)
            );
        }
    }
}
