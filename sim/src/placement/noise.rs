//! How measured durations stray from profiled ones: a little always, sometimes a bit more, seldom very much, and never below the profile.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::scenario::System;
use crate::draw::normal;

/// The durations of one device's actions.
#[derive(Debug)]
pub(super) struct Noise {
    rng: ChaCha8Rng,
    sigma: f64,
    jitter: (f64, f64),
    spike: (f64, f64),
    is_silent: bool,
}

impl Noise {
    pub(super) fn new(system: &System, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(system.noise_seed);
        rng.set_stream(stream);
        Noise {
            rng,
            sigma: system.noise_sigma,
            jitter: (system.noise_jitter_p, system.noise_jitter_ms),
            spike: (system.noise_spike_p, system.noise_spike_ms),
            is_silent: system.noise_sigma <= 0.0
                && system.noise_jitter_p <= 0.0
                && system.noise_spike_p <= 0.0,
        }
    }

    /// How long an action takes that was profiled to take `base`.
    pub(super) fn takes(&mut self, base: Duration) -> Duration {
        if self.is_silent {
            return base;
        }
        let mut ms = base.as_secs_f64() * 1e3;
        ms *= 1.0 + self.sigma * normal(&mut self.rng).abs();
        if self.rng.random::<f64>() < self.jitter.0 {
            ms += self.jitter.1 * self.rng.random::<f64>();
        }
        if self.rng.random::<f64>() < self.spike.0 {
            ms += self.spike.1 * (0.5 + self.rng.random::<f64>());
        }
        Duration::from_nanos((ms * 1e6) as u64)
    }
}
