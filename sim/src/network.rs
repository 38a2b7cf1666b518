//! A camera's link to the server: a trace of rates that repeats, over which frames go one after another, and the estimate that
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
use std::fmt;
use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

/// A rate holds for this long.
pub const STEP: Duration = Duration::from_secs(1);
/// Acknowledgements that an estimate counts are at most this old.
pub const ESTIMATED: Duration = Duration::from_secs(1);
/// Header of a trace as text.
const HEADER: &str = "second,mbps";
/// Rates of a trace, in Mbit/s: above 0, or a frame would never be through.
const MBPS_BOUNDS: [f64; 2] = [1e-3, 1e6];

/// Bits a second, one for each second, repeated without end.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates(Vec<f64>);

impl Rates {
    /// The same rate always.
    ///
    /// # Panics
    /// When it is not above 0.
    pub fn constant(bits: f64) -> Self {
        assert!(bits > 0.0 && bits.is_finite(), "a link of {bits} bit/s");
        Rates(vec![bits])
    }

    /// The synthetic trace of the evaluation (§7.2): 20, 15, 10, 7.5 Mbit/s and back, 20 s each.
    pub fn synthetic() -> Self {
        let mbps = [20.0, 15.0, 10.0, 7.5, 10.0, 15.0, 20.0];
        Rates(mbps.iter().flat_map(|m| [m * 1e6; 20]).collect())
    }

    /// Reads a trace: a line a second, with `second,mbps` as the header.
    ///
    /// # Errors
    /// Says the line, and what to write there.
    pub fn parse(text: &str) -> Result<Self, BadRates> {
        let wrong = |line: usize, problem: String| Err(BadRates { line, problem });
        let mut lines = text.lines();
        let found = lines.next().unwrap_or("").trim();
        if found != HEADER {
            return wrong(1, format!("the header is {found:?}; write {HEADER}"));
        }
        let mut rates = Vec::new();
        for (idx, line) in lines.enumerate() {
            let of_second = line.split_once(',').filter(|(second, _)| {
                let second = second.trim().parse::<usize>();
                second == Ok(rates.len())
            });
            let [least, most] = MBPS_BOUNDS;
            let mbps = of_second.and_then(|(_, mbps)| mbps.trim().parse::<f64>().ok());
            let Some(mbps) = mbps.filter(|m| (least..=most).contains(m)) else {
                let second = rates.len();
                return wrong(
                    idx + 2,
                    format!("{line:?}; write {second} and a rate from {least} to {most}"),
                );
            };
            rates.push(mbps * 1e6);
        }
        if rates.is_empty() {
            return wrong(2, "there are no rates".to_owned());
        }
        Ok(Rates(rates))
    }

    /// How long it is until it repeats.
    pub fn period(&self) -> Duration {
        STEP * self.0.len() as u32
    }

    /// When so many bits are through that begin at `from`.
    fn through(&self, from: Timestamp, bits: f64) -> Timestamp {
        let step = STEP.as_nanos() as u64;
        let (mut now, mut left) = (from.as_ns(), bits);
        loop {
            let interval = now / step;
            let rate = self.0[(interval % self.0.len() as u64) as usize];
            let takes = (left / rate * 1e9).round() as u64;
            let room = (interval + 1) * step - now;
            if takes <= room {
                return Timestamp::from_ns(now + takes);
            }
            left -= rate * room as f64 * 1e-9;
            now += room;
        }
    }
}

/// Why a trace is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRates {
    /// Its line, from 1.
    pub line: usize,
    /// What is wrong, and what to write.
    pub problem: String,
}

impl fmt::Display for BadRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for BadRates {}

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
    rates: Rates,
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
    pub fn new(rates: Rates, offset: Duration, round_trip: Duration, host: Duration) -> Self {
        Link {
            rates,
            offset,
            round_trip,
            host,
            is_free_at: Timestamp::ZERO,
        }
    }

    /// Sends a frame.
    pub fn send(&mut self, now: Timestamp, bits: f64) -> Sent {
        let begins = now.max(self.is_free_at);
        let through = self.rates.through(begins + self.offset, bits);
        self.is_free_at = through - self.offset;
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

    fn link(rates: Rates, host_ms: u64) -> Link {
        Link::new(rates, Duration::ZERO, TRIP, Duration::from_millis(host_ms))
    }

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_frame_takes_its_bits_over_the_rate_and_half_a_round_trip() {
        let mut link = link(Rates::constant(8e6), 1);
        let sent = link.send(ms(1_990), 400e3);
        assert_eq!([sent.arrives, sent.acknowledged], [ms(2_042), ms(2_045)]);
    }

    #[test]
    fn a_link_that_is_too_slow_queues_without_end() {
        // 25 frames a second of 400 kbit are 10 Mbit/s: each frame waits 10 ms more than the one before.
        let mut link = link(Rates::constant(8e6), 0);
        for n in 0..100 {
            let sent = link.send(ms(40 * n), 400e3);
            assert_eq!(sent.arrives, ms(50 * (n + 1) + 2));
        }
    }

    #[test]
    fn rates_change_within_a_frame_and_repeat() {
        let rates = Rates::parse("second,mbps\n0,1\n1,2\n").unwrap();
        assert_eq!(rates.period(), Duration::from_secs(2));
        // From 0.5 s: half a second at 1 Mbit/s, then a quarter at 2.
        const NONE: Duration = Duration::ZERO;
        let mut link = Link::new(rates.clone(), NONE, NONE, NONE);
        assert_eq!(link.send(ms(500), 1e6).arrives, ms(1_250));
        // Once around: 1.5 Mbit of this second, a second of 1 Mbit/s.
        assert_eq!(link.send(ms(1_250), 2.5e6).arrives, ms(3_000));
        let mut link = Link::new(rates, STEP, NONE, NONE);
        assert_eq!(link.send(ms(0), 1e6).arrives, ms(500));
    }

    /// The estimate after frames of so many bits, 25 a second for two seconds, over 8 Mbit/s.
    fn estimate(bits: f64, host_ms: u64) -> f64 {
        let mut link = link(Rates::constant(8e6), host_ms);
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
        let rates = Rates::parse("second,mbps\n0,20\n1,5\n2,5\n").unwrap();
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
    fn a_bad_trace_says_its_line() {
        let cases = [
            ("mbps\n1\n", 1),
            ("second,mbps\n", 2),
            ("second,mbps\n0,1\n1,0\n", 3),
            ("second,mbps\n0,1\n2,1\n", 3),
            ("second,mbps\n0,nan\n", 2),
        ];
        for (text, line) in cases {
            assert_eq!(Rates::parse(text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn the_synthetic_trace_follows_its_law() {
        let rates = Rates::synthetic();
        assert_eq!(rates.period(), Duration::from_secs(140));
        let at = |s: usize| rates.0[s] / 1e6;
        assert_eq!([0, 25, 45, 65, 139].map(at), [20.0, 15.0, 10.0, 7.5, 20.0]);
    }
}
