//! Waiting before a peer is dialled again: exponential backoff with full jitter, from "Exponential Backoff And Jitter" (AWS
//! Architecture Blog, 2015). Each wait is drawn evenly between 0 and a bound that doubles, so processes that lost the same
//! peer do not dial it at the same time.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    /// The bound of the next wait.
    bound: Duration,
    rng: ChaCha8Rng,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Backoff {
            first,
            longest,
            bound: first,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// The next wait. The bound of the one after it is twice as long.
    pub(super) fn next(&mut self) -> Duration {
        let most = u64::try_from(self.bound.as_nanos()).unwrap_or(u64::MAX);
        self.bound = self.bound.saturating_mul(2).min(self.longest);
        Duration::from_nanos(self.rng.random_range(0..=most))
    }

    /// The next wait has the first bound again.
    pub(super) fn reset(&mut self) {
        self.bound = self.first;
    }

    /// The next wait has the longest bound.
    pub(super) fn lengthen(&mut self) {
        self.bound = self.longest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn waits_are_spread_below_a_bound_that_doubles() {
        let mut longest_seen = [Duration::ZERO; 8];
        for seed in 0..200 {
            let mut backoff = Backoff::new(ms(100), ms(5_000), seed);
            for (i, longest) in longest_seen.iter_mut().enumerate() {
                let wait = backoff.next();
                assert!(wait <= ms(100 << i).min(ms(5_000)), "seed {seed}, wait {i}");
                *longest = wait.max(*longest);
            }
        }
        for (i, longest) in longest_seen.into_iter().enumerate() {
            let bound = ms(100 << i).min(ms(5_000));
            assert!(longest > bound.mul_f64(0.9), "wait {i}: {longest:?}");
        }
    }

    #[test]
    fn the_bound_can_be_set_to_either_end() {
        let mut backoff = Backoff::new(ms(1), ms(60_000), 1);
        backoff.lengthen();
        assert_eq!(backoff.bound, ms(60_000));
        backoff.reset();
        assert!(backoff.next() <= ms(1));
    }

    #[test]
    fn equal_seeds_give_equal_waits() {
        let waits = |seed| {
            let mut backoff = Backoff::new(ms(100), ms(5_000), seed);
            std::array::from_fn::<_, 8, _>(|_| backoff.next())
        };
        assert_eq!(waits(7), waits(7));
        assert_ne!(waits(7), waits(8));
    }
}
