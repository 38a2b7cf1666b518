//! W3C trace contexts: one a frame, sampled by chance.

use std::hash::{BuildHasher, RandomState};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Makes `traceparent` headers.
pub(crate) struct Tracer {
    sample: Option<f64>,
    rng: ChaCha8Rng,
}

impl Tracer {
    /// `sample` is the share of frames to be traced; without one the server decides by itself.
    pub(crate) fn new(sample: Option<f64>) -> Self {
        // Trace ids must differ between runs: the standard library's random hash keys are the seed.
        Self::with_seed(sample, RandomState::new().hash_one(0))
    }

    fn with_seed(sample: Option<f64>, seed: u64) -> Self {
        Tracer {
            sample,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// The next frame's header; empty when the server is to decide.
    pub(crate) fn next_traceparent(&mut self) -> String {
        let Some(sample) = self.sample else {
            return String::new();
        };
        let flags = u8::from(self.rng.random::<f64>() < sample);
        // All zeros means "none" in both fields.
        let trace = self.rng.random::<u128>().max(1);
        let span = self.rng.random::<u64>().max(1);
        format!("00-{trace:032x}-{span:016x}-{flags:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_well_formed_and_sampled_at_the_given_share() {
        let mut tracer = Tracer::with_seed(Some(0.25), 1);
        let headers: Vec<String> = (0..4000).map(|_| tracer.next_traceparent()).collect();
        for header in &headers {
            let parts: Vec<&str> = header.split('-').collect();
            let lengths: Vec<usize> = parts.iter().map(|p| p.len()).collect();
            assert_eq!(lengths, [2, 32, 16, 2], "{header}");
        }
        let sampled = headers.iter().filter(|h| h.ends_with("-01")).count();
        assert!((900..1100).contains(&sampled), "{sampled}");
        assert_eq!(Tracer::with_seed(None, 1).next_traceparent(), "");
    }
}
