//! The most recent samples of a measurement, for estimates that draw from them.

use std::collections::VecDeque;
use std::time::Duration;

use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::STATE_SAMPLES_MAX;

/// Samples that a reservoir keeps: those that a state holds.
pub const SAMPLES_MAX: usize = STATE_SAMPLES_MAX;

/// The most recent samples, at most [`SAMPLES_MAX`], none older than the window.
pub struct Reservoir {
    length: Duration,
    samples: VecDeque<(Timestamp, f32)>,
}

impl Reservoir {
    /// An empty reservoir.
    pub fn new(length: Duration) -> Self {
        Reservoir {
            length,
            samples: VecDeque::with_capacity(SAMPLES_MAX),
        }
    }

    /// Adds a sample in seconds.
    pub fn add(&mut self, now: Timestamp, sample: f32) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, sample));
    }

    /// Forgets all samples.
    pub fn clear(&mut self) {
        self.samples.clear();
    }

    /// The samples.
    pub fn samples(&mut self, now: Timestamp) -> Vec<f32> {
        while let Some((at, _)) = self.samples.front()
            && now.since(*at) > self.length
        {
            self.samples.pop_front();
        }
        self.samples.iter().map(|(_, s)| *s).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Timestamp {
        Timestamp::from_ns(n * 1_000_000)
    }

    #[test]
    fn a_reservoir_is_bounded_in_number_and_age() {
        let mut reservoir = Reservoir::new(Duration::from_secs(1));
        for i in 0..3 * SAMPLES_MAX as u64 {
            reservoir.add(ms(i / 4), i as f32);
        }
        assert_eq!(reservoir.samples(ms(768)).len(), SAMPLES_MAX);
        assert_eq!(reservoir.samples(ms(1_700)).len(), 272);
        assert!(reservoir.samples(ms(10_000)).is_empty());
    }
}
