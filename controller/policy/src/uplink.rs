//! What a client says of its link, how far that is believed, and what frames take on it (Jellyfish §3.3).

use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

/// Least and most bits a second of a link that are believed: a slow modem, and ten gigabits.
pub const BANDWIDTH_BOUNDS: [f64; 2] = [1e4, 1e10];
/// Longest round trip that is believed.
pub const ROUND_TRIP_MAX: Duration = Duration::from_secs(10);

/// Least time between two reports of a client that are taken: clients need a few a second, and each costs a critical section of the gateway.
pub const REPORT_EVERY: Duration = Duration::from_millis(50);

/// A client's link to the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UplinkReport {
    /// Bits a second.
    pub bandwidth: f64,
    /// Time of a small message there and back.
    pub round_trip: Duration,
}

impl UplinkReport {
    /// The report within bounds; `None` for a bandwidth that cannot be true.
    pub fn bounded(self) -> Option<Self> {
        let [least, most] = BANDWIDTH_BOUNDS;
        let is_true = self.bandwidth.is_finite() && self.bandwidth > 0.0;
        is_true.then(|| UplinkReport {
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

/// What the server knows of the link of one client. What the client says is believed as far as it can only harm itself: a frame was sent
/// no later than it came, and no earlier than the reported link explains, or the time explains in which its bytes came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uplink {
    reported: Option<UplinkReport>,
    next_report_at: Timestamp,
}

impl Uplink {
    /// Whether a report that comes now is taken and answered. Those that come too often are left out.
    pub fn takes_report(&mut self, now: Timestamp) -> bool {
        let is_taken = now >= self.next_report_at;
        if is_taken {
            self.next_report_at = now + REPORT_EVERY;
        }
        is_taken
    }

    /// A report that was taken says this of the link; returns what the gateway hears of it. `None`: it says what cannot be.
    pub fn heard(&mut self, link: UplinkReport) -> Option<UplinkReport> {
        let link = link.bounded()?;
        self.reported = Some(link);
        Some(link)
    }

    /// When a frame of so many bytes was sent, as far as `claimed` is believed; `None` where it does not say it, or the link is not known. It came
    /// now, and its bytes took so long from the first to the last.
    pub fn sent_at(
        &self,
        (now, took): (Timestamp, Duration),
        claimed: Option<Timestamp>,
        bytes: usize,
        slo: Duration,
    ) -> Option<Timestamp> {
        let (claimed, reported) = claimed.zip(self.reported)?;
        let explained = reported.carries_in(bytes as f64 * 8.0);
        let transit = explained.max(took + reported.round_trip).min(slo);
        let transit = transit.as_nanos() as u64;
        let earliest = now.as_ns().saturating_sub(transit);
        Some(Timestamp::from_ns(
            claimed.as_ns().clamp(earliest, now.as_ns()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: Duration = Duration::from_millis(200);

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    fn report(bandwidth: f64, round_trip_ms: u64) -> UplinkReport {
        UplinkReport {
            bandwidth,
            round_trip: Duration::from_millis(round_trip_ms),
        }
    }

    /// A link that is reported as this.
    fn link(bandwidth: f64, round_trip_ms: u64) -> Uplink {
        let mut link = Uplink::default();
        link.heard(report(bandwidth, round_trip_ms));
        link
    }

    /// When a frame of 25,000 bytes, which took `took` to come, was sent that comes at 1000 ms and says `claimed`.
    fn believed(link: &Uplink, took_ms: u64, claimed: Timestamp) -> Option<Timestamp> {
        let took = Duration::from_millis(took_ms);
        link.sent_at((ms(1000), took), Some(claimed), 25_000, SLO)
    }

    #[test]
    fn a_frame_was_sent_as_early_as_its_link_explains() {
        assert_eq!(believed(&Uplink::default(), 0, ms(990)), None);
        // 20 ms of bytes, and the round trip.
        let link_10 = link(10e6, 30);
        let came = (ms(1000), Duration::ZERO);
        assert_eq!(link_10.sent_at(came, None, 25_000, SLO), None);
        assert_eq!(believed(&link_10, 0, ms(990)), Some(ms(990)));
        assert_eq!(believed(&link_10, 0, ms(1)), Some(ms(950)), "no earlier");
        assert_eq!(believed(&link_10, 0, ms(2000)), Some(ms(1000)));
        let slow = link(1e4, 0);
        assert_eq!(believed(&slow, 0, ms(1)), Some(ms(800)), "the SLO at most");
    }

    #[test]
    fn a_frame_whose_bytes_came_slowly_was_sent_before_they_came() {
        let link = link(10e6, 30);
        assert_eq!(believed(&link, 100, ms(900)), Some(ms(900)));
        assert_eq!(believed(&link, 100, ms(1)), Some(ms(870)));
        assert_eq!(believed(&link, 9_000, ms(1)), Some(ms(800)), "the SLO");
    }

    #[test]
    fn nonsense_changes_nothing_and_is_not_passed_on() {
        let mut link = link(10e6, 30);
        for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(link.heard(report(bandwidth, 0)), None);
            assert_eq!(believed(&link, 0, ms(1)), Some(ms(950)));
        }
        let absurd = link.heard(report(1e300, 1_000_000));
        assert_eq!(
            absurd,
            Some(report(
                BANDWIDTH_BOUNDS[1],
                ROUND_TRIP_MAX.as_millis() as u64
            ))
        );
    }

    #[test]
    fn reports_that_come_too_often_are_not_taken() {
        let mut link = Uplink::default();
        let taken = [100, 149, 150, 151, 260].map(|at| link.takes_report(ms(at)));
        assert_eq!(taken, [true, false, true, false, true]);
    }
}
