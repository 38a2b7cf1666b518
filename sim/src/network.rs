//! A camera's link to the server: a trace of bandwidths, over which messages go one after another. What cameras think of it is theirs.
//!
//! Source: Jellyfish (`jellyfish.txt`, §3.3 and §6): a frame takes its bits over the link's rate, plus the round trip; each frame is
//! acknowledged, which takes the host 1 to 3 ms (§7.2).
//!
//! Deviations: rates change at once, nothing is lost on the way, and what the server sends waits for nothing.

use std::time::Duration;

use spillgate_camera::bandwidth::BandwidthTrace;
use spillgate_pipeline::time::Timestamp;

/// The synthetic trace of the evaluation (§7.2): 20, 15, 10, 7.5 Mbit/s and back, 20 s each.
///
/// # Panics
/// Never: it is a trace.
pub fn synthetic() -> BandwidthTrace {
    let text = "second,mbps\n0,20\n20,15\n40,10\n60,7.5\n80,10\n100,15\n120,20\n";
    BandwidthTrace::parse(text).expect("it is a trace")
}

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When its first bit leaves.
    pub begins: Timestamp,
    /// When the server has it.
    pub arrives: Timestamp,
    /// When the camera knows that.
    pub acknowledged: Timestamp,
}

/// One camera's link. Messages go through it in order, one at a time.
#[derive(Clone, Debug)]
pub struct EmulatedUplink {
    trace: BandwidthTrace,
    /// The place in the trace at time 0.
    offset: Duration,
    round_trip: Duration,
    /// From a message's arrival until the host acknowledges it.
    host: Duration,
    /// When the last message is through.
    is_free_at: Timestamp,
}

impl EmulatedUplink {
    /// A link that nothing has been sent over, at this place of its trace.
    pub fn new(
        trace: BandwidthTrace,
        offset: Duration,
        round_trip: Duration,
        host: Duration,
    ) -> Self {
        EmulatedUplink {
            trace,
            offset,
            round_trip,
            host,
            is_free_at: Timestamp::ZERO,
        }
    }

    /// Time to the server and back.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// From a message's arrival until the host acknowledges it.
    pub fn host(&self) -> Duration {
        self.host
    }

    /// Sends a message.
    pub fn send(&mut self, now: Timestamp, bits: f64) -> Sent {
        let begins = now.max(self.is_free_at);
        let from = self.offset + begins.since(Timestamp::ZERO);
        let through = self.trace.time_of(self.trace.carried(from) + bits);
        self.is_free_at = Timestamp::ZERO + through.saturating_sub(self.offset);
        let arrives = self.is_free_at + self.round_trip / 2;
        Sent {
            begins,
            arrives,
            acknowledged: arrives + self.host + self.round_trip / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(4);

    fn link(trace: BandwidthTrace, host_ms: u64) -> EmulatedUplink {
        EmulatedUplink::new(trace, Duration::ZERO, TRIP, Duration::from_millis(host_ms))
    }

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_frame_takes_its_bits_over_the_rate_and_half_a_round_trip() {
        let mut link = link(BandwidthTrace::constant(8e6), 1);
        let sent = link.send(ms(1_990), 400e3);
        assert_eq!([sent.arrives, sent.acknowledged], [ms(2_042), ms(2_045)]);
        let behind = link.send(ms(2_000), 8e3);
        assert_eq!([behind.begins, behind.arrives], [ms(2_040), ms(2_043)]);
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
        let mut link = EmulatedUplink::new(rates.clone(), NONE, NONE, NONE);
        assert_eq!(link.send(ms(500), 1e6).arrives, ms(1_250));
        // Once around: 1.5 Mbit of this second, a second of 1 Mbit/s.
        assert_eq!(link.send(ms(1_250), 2.5e6).arrives, ms(3_000));
        let mut link = EmulatedUplink::new(rates, Duration::from_secs(1), NONE, NONE);
        assert_eq!(link.send(ms(0), 1e6).arrives, ms(500));
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
