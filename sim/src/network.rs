//! A camera's link to the server: a trace of bandwidths, over which frames go one after another, and the estimate that
//! the camera makes of it.
//!
//! Source: Jellyfish (`jellyfish.txt`, §3.3 and §6): a frame takes its bits over the link's rate, plus the round trip; each frame is
//! acknowledged; bandwidth is the harmonic mean over the last second.
//!
//! So that the estimate is of what frames meet, time that they wait before a slow link counts as slow, and so does the time in which
//! the host answers (1 to 3 ms there, §7.2): both make it careful.
//!
//! Deviations: rates change at once, and nothing is lost on the way.

use std::collections::VecDeque;
use std::time::Duration;

use spillgate_pipeline::bandwidth::BandwidthTrace;
use spillgate_pipeline::time::Timestamp;

/// Acknowledgements that an estimate counts are at most this old.
pub const ESTIMATED: Duration = Duration::from_secs(1);

/// The synthetic trace of the evaluation (§7.2): 20, 15, 10, 7.5 Mbit/s and back, 20 s each.
///
/// # Panics
/// Never: it is a trace.
pub fn synthetic() -> BandwidthTrace {
    let text = "second,mbps\n0,20\n20,15\n40,10\n60,7.5\n80,10\n100,15\n120,20\n";
    BandwidthTrace::parse(text).expect("it is a trace")
}

/// How a frame travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When the server has it.
    pub arrives: Timestamp,
    /// When the camera knows that.
    pub acknowledged: Timestamp,
}

/// One camera's link. Frames go through it in order, one at a time.
#[derive(Clone, Debug)]
pub struct Link {
    trace: BandwidthTrace,
    /// The place in the trace at time 0.
    offset: Duration,
    round_trip: Duration,
    /// From a frame's arrival until the host acknowledges it.
    host: Duration,
    /// When the last frame is through.
    is_free_at: Timestamp,
}

impl Link {
    /// A link that nothing has been sent over, at this place of its trace.
    pub fn new(
        trace: BandwidthTrace,
        offset: Duration,
        round_trip: Duration,
        host: Duration,
    ) -> Self {
        Link {
            trace,
            offset,
            round_trip,
            host,
            is_free_at: Timestamp::ZERO,
        }
    }

    /// Sends a frame.
    pub fn send(&mut self, now: Timestamp, bits: f64) -> Sent {
        let begins = now.max(self.is_free_at);
        let begins = self.offset + begins.since(Timestamp::ZERO);
        let through = self.trace.time_of(self.trace.carried(begins) + bits);
        self.is_free_at = Timestamp::ZERO + through.saturating_sub(self.offset);
        let arrives = self.is_free_at + self.round_trip / 2;
        Sent {
            arrives,
            acknowledged: arrives + self.host + self.round_trip / 2,
        }
    }
}

/// What a camera thinks of its link.
#[derive(Clone, Debug)]
pub struct Estimator {
    round_trip: Duration,
    /// Of each acknowledgement of the last time: when it came, and seconds a bit.
    seen: VecDeque<(Timestamp, f64)>,
}

impl Estimator {
    /// Nothing is known yet.
    pub fn new(round_trip: Duration) -> Self {
        Estimator {
            round_trip,
            seen: VecDeque::new(),
        }
    }

    /// A frame of so many bits, sent at that time, is acknowledged.
    pub fn acknowledged(&mut self, now: Timestamp, sent: Timestamp, bits: f64) {
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
    pub fn bandwidth(&self) -> Option<f64> {
        if self.seen.is_empty() {
            return None;
        }
        let sum: f64 = self.seen.iter().map(|(_, per_bit)| per_bit).sum();
        Some(self.seen.len() as f64 / sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(4);

    fn link(trace: BandwidthTrace, host_ms: u64) -> Link {
        Link::new(trace, Duration::ZERO, TRIP, Duration::from_millis(host_ms))
    }

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_frame_takes_its_bits_over_the_rate_and_half_a_round_trip() {
        let mut link = link(BandwidthTrace::constant(8e6), 1);
        let sent = link.send(ms(1_990), 400e3);
        assert_eq!([sent.arrives, sent.acknowledged], [ms(2_042), ms(2_045)]);
    }

    #[test]
    fn a_link_that_is_too_slow_queues_without_end() {
        // 25 frames a second of 400 kbit are 10 Mbit/s: each frame waits 10 ms more than the one before.
        let mut link = link(BandwidthTrace::constant(8e6), 0);
        for n in 0..100 {
            let sent = link.send(ms(40 * n), 400e3);
            assert_eq!(sent.arrives, ms(50 * (n + 1) + 2));
        }
    }

    #[test]
    fn rates_change_within_a_frame_and_repeat() {
        let rates = BandwidthTrace::parse("second,mbps\n0,1\n1,2\n").unwrap();
        assert_eq!(rates.period(), Duration::from_secs(2));
        // From 0.5 s: half a second at 1 Mbit/s, then a quarter at 2.
        const NONE: Duration = Duration::ZERO;
        let mut link = Link::new(rates.clone(), NONE, NONE, NONE);
        assert_eq!(link.send(ms(500), 1e6).arrives, ms(1_250));
        // Once around: 1.5 Mbit of this second, a second of 1 Mbit/s.
        assert_eq!(link.send(ms(1_250), 2.5e6).arrives, ms(3_000));
        let mut link = Link::new(rates, Duration::from_secs(1), NONE, NONE);
        assert_eq!(link.send(ms(0), 1e6).arrives, ms(500));
    }

    /// The estimate after frames of so many bits, 25 a second for two seconds, over 8 Mbit/s.
    fn estimate(bits: f64, host_ms: u64) -> f64 {
        let mut link = link(BandwidthTrace::constant(8e6), host_ms);
        let mut estimator = Estimator::new(TRIP);
        assert_eq!(estimator.bandwidth(), None);
        for n in 0..50 {
            let sent = link.send(ms(40 * n), bits);
            estimator.acknowledged(sent.acknowledged, ms(40 * n), bits);
        }
        estimator.bandwidth().unwrap()
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
        let mut estimator = Estimator::new(TRIP);
        let mut seen = Vec::new();
        for n in 0..60 {
            let sent = link.send(ms(40 * n), 100e3);
            estimator.acknowledged(sent.acknowledged, ms(40 * n), 100e3);
            seen.push(estimator.bandwidth().unwrap() / 1e6);
        }
        assert!((seen[24] - 20.0).abs() < 1e-3, "{seen:?}");
        // Half of the values are new: the harmonic mean is near the lower one.
        assert!((6.0..9.0).contains(&seen[37]), "{seen:?}");
        assert!((seen[55] - 5.0).abs() < 1e-3, "{seen:?}");
    }

    #[test]
    fn the_synthetic_trace_follows_its_law() {
        let trace = synthetic();
        assert_eq!(trace.period(), Duration::from_secs(140));
        let at = |s: u64| {
            let carried = |s| trace.carried(Duration::from_secs(s));
            (carried(s + 1) - carried(s)) / 1e6
        };
        assert_eq!([0, 25, 45, 65, 139].map(at), [20.0, 15.0, 10.0, 7.5, 20.0]);
    }
}
