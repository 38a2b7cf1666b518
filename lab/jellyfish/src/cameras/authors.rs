//! A camera that decides as the authors' does, for the contenders that are theirs.
//!
//! Source: Jellyfish (`jellyfish.txt`, §3.2, §3.3 and §6): each frame is acknowledged, bandwidth is the harmonic mean over the last
//! second, and it is reported with each frame. Frames have the largest size up to what was told that the link bears at the camera's rate.
//!
//! So that the estimate is of what frames meet, time that they wait before a slow link counts as slow, and so does the time in which
//! the host answers (1 to 3 ms there, §7.2): both make it careful.

use std::collections::VecDeque;
use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

use super::setting::Zoo;

/// Acknowledgements that an estimate counts are at most this old.
const ESTIMATED: Duration = Duration::from_secs(1);

/// The estimate, and the size that the camera was told.
#[derive(Clone, Debug)]
pub(super) struct AuthorsPolicy {
    round_trip: Duration,
    /// Frames a second.
    rate: f64,
    /// The size that it was told, as a variant.
    wish: usize,
    /// Of each acknowledgement of the last time: when it came, and seconds a bit.
    seen: VecDeque<(Timestamp, f64)>,
}

impl AuthorsPolicy {
    /// Nothing is known yet.
    pub(super) fn new(rate: f64, round_trip: Duration, wish: usize) -> Self {
        AuthorsPolicy {
            round_trip,
            rate,
            wish,
            seen: VecDeque::new(),
        }
    }

    /// It is told a size, as a variant.
    pub(super) fn told(&mut self, wish: usize) {
        self.wish = wish;
    }

    /// A frame of so many bits, sent at that time, is acknowledged.
    pub(super) fn acknowledged(&mut self, now: Timestamp, sent: Timestamp, bits: f64) {
        // A frame that takes no time measures nothing.
        let took = now.since(sent + self.round_trip);
        let took = took.max(Duration::from_nanos(1));
        self.seen.push_back((now, took.as_secs_f64() / bits));
        // The last value stays, however old: a camera that sends rarely has nothing else.
        while self.seen.len() > 1 && now.since(self.seen[0].0) > ESTIMATED {
            self.seen.pop_front();
        }
    }

    /// Bits a second: the harmonic mean of what was seen. `None` before the first acknowledgement.
    pub(super) fn bandwidth(&self) -> Option<f64> {
        if self.seen.is_empty() {
            return None;
        }
        let sum: f64 = self.seen.iter().map(|(_, per_bit)| per_bit).sum();
        Some(self.seen.len() as f64 / sum)
    }

    /// The largest size up to the wish that the link bears at its rate; the smallest of all if it bears none.
    pub(super) fn size(&self, zoo: &Zoo) -> usize {
        let Some(bandwidth) = self.bandwidth() else {
            return 0;
        };
        let is_borne = |size: &usize| bandwidth / zoo.frame_bits(*size) > self.rate;
        (0..=self.wish).rev().find(is_borne).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use spillgate_camera::bandwidth::BandwidthTrace;

    use super::*;
    use spillgate_sim::network::EmulatedUplink;

    const TRIP: Duration = Duration::from_millis(4);

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    fn link(trace: BandwidthTrace, host_ms: u64) -> EmulatedUplink {
        EmulatedUplink::new(trace, Duration::ZERO, TRIP, Duration::from_millis(host_ms))
    }

    /// The estimate after frames of so many bits, 25 a second for two seconds, over 8 Mbit/s.
    fn estimate(bits: f64, host_ms: u64) -> f64 {
        let mut link = link(BandwidthTrace::constant(8e6), host_ms);
        let mut camera = AuthorsPolicy::new(25.0, TRIP, 0);
        assert_eq!(camera.bandwidth(), None);
        for n in 0..50 {
            let sent = link.send(ms(40 * n), bits);
            camera.acknowledged(sent.acknowledged, ms(40 * n), bits);
        }
        camera.bandwidth().unwrap()
    }

    #[test]
    fn the_estimate_is_the_rate_and_careful_where_hosts_are_slow_or_frames_wait() {
        for bits in [8e3, 80e3, 316e3] {
            assert!((estimate(bits, 0) / 8e6 - 1.0).abs() < 1e-6, "{bits}");
        }
        // 10 ms on the link and 2 ms at the host.
        let slow = estimate(80e3, 2);
        assert!((slow / 8e6 - 10.0 / 12.0).abs() < 1e-6, "{slow}");
        // Each frame takes 10 ms longer than the one before.
        assert!(estimate(400e3, 0) < 2e6);
    }

    #[test]
    fn an_estimate_follows_a_new_rate_within_a_second() {
        let rates = BandwidthTrace::parse("second,mbps\n0,20\n1,5\n2,5\n").unwrap();
        let mut link = link(rates, 0);
        let mut camera = AuthorsPolicy::new(25.0, TRIP, 0);
        let mut seen = Vec::new();
        for n in 0..60 {
            let sent = link.send(ms(40 * n), 100e3);
            camera.acknowledged(sent.acknowledged, ms(40 * n), 100e3);
            seen.push(camera.bandwidth().unwrap() / 1e6);
        }
        assert!((seen[24] - 20.0).abs() < 1e-3, "{seen:?}");
        // Half of the values are new: the harmonic mean is near the lower one.
        assert!((6.0..9.0).contains(&seen[37]), "{seen:?}");
        assert!((seen[55] - 5.0).abs() < 1e-3, "{seen:?}");
    }
}
