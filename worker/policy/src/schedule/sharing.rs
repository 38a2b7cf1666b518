//! How much of their time the members of a batch share, learnt from the batches that ran.
//!
//! A batch of [`BatchForm::Shrinking`] takes `s longest + (1 - s) sum` of its members' times alone. What a profile says
//! of s is what its example input gives: the shipped classifier with three people a frame, each through all segments, shows
//! s = 0, and requests with one person of whom half leave at the first exit s = 0.5. Whoever believes the former forms batches
//! half as large as would be best. So s follows what batches took, by least squares on the expected lengths:
//! `1 - took / sum = s (1 - longest / sum)`.

use spillgate_pipeline::distribution::{BatchForm, BatchTime};

/// What the profile says counts as much as so many batches in which half could be shared.
const PROFILE_WEIGHT: f64 = 4.0;
/// What a batch counts for when the next one ran: the last hundred settle s to some hundredths.
const FADING: f64 = 0.99;
/// s counts once it is this much off, since all that was computed from it is computed anew then.
const CHANGE: f64 = 0.05;
/// At least this is expected to be shared. Without, all sizes look alike, batches would be of one, and nothing would
/// be learnt any more.
pub(super) const SHARED_MIN: f64 = 0.05;
/// Bound of `took / sum`: a pause of the machine says nothing of s.
const TOOK_MAX: f64 = 1.5;

/// What the times of a batch's members alone are expected to be together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lengths {
    /// The longest, ms.
    pub longest_ms: f64,
    /// All of them, ms.
    pub sum_ms: f64,
}

/// The estimate of s.
#[derive(Debug)]
pub(super) struct Sharing {
    /// What one request takes per length: c1 + c2.
    total: f64,
    /// Sums over the batches: of (1 - longest / sum)^2, and of that times what was saved.
    squares: f64,
    products: f64,
    applied: f64,
}

impl Sharing {
    /// Of a module with that profile: `None` where the form has nothing to learn.
    pub(super) fn new(profiled: &BatchTime) -> Option<Sharing> {
        let [c0, c1, c2] = profiled.constants();
        let total = c1 + c2;
        if profiled.form() != BatchForm::Shrinking || c0 > 0.0 || total <= 0.0 {
            return None;
        }
        let squares = PROFILE_WEIGHT * 0.25;
        let shared = (c1 / total).max(SHARED_MIN);
        Some(Sharing {
            total,
            squares,
            products: squares * shared,
            applied: shared,
        })
    }

    /// Takes in what a batch of members with these lengths took at the profile's pace. True when the time of batches
    /// changes by it.
    pub(super) fn observe(&mut self, lengths: Lengths, took_ms: f64) -> bool {
        let alone = self.total * lengths.sum_ms;
        let x = 1.0 - lengths.longest_ms / lengths.sum_ms;
        let saved = 1.0 - (took_ms / alone).min(TOOK_MAX);
        // Of one member nothing is shared.
        if x.is_nan() || x <= 0.0 {
            return false;
        }
        self.squares = FADING * self.squares + x * x;
        self.products = FADING * self.products + x * saved;
        let shared = (self.products / self.squares).clamp(SHARED_MIN, 1.0);
        if (shared - self.applied).abs() < CHANGE {
            return false;
        }
        self.applied = shared;
        true
    }

    /// The time of batches as learnt, at the profile's pace.
    pub(super) fn time(&self) -> BatchTime {
        let (once, each) = (self.applied, 1.0 - self.applied);
        let time = BatchTime::new(
            BatchForm::Shrinking,
            0.0,
            self.total * once,
            self.total * each,
        );
        time.expect("shares are between 0 and 1")
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn sharing(c1: f64, c2: f64) -> Sharing {
        let time = BatchTime::new(BatchForm::Shrinking, 0.0, c1, c2).unwrap();
        Sharing::new(&time).unwrap()
    }

    /// Runs batches of 2 to 8 members, exponential lengths of mean 1, of which so much is shared; how often s changed.
    fn run(sharing: &mut Sharing, shared: f64, batches: u32, seed: u64) -> u32 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut changes = 0;
        for _ in 0..batches {
            let k = rng.random_range(2..=8u32);
            let lengths: Vec<f64> = (0..k)
                .map(|_| -f64::ln(1.0 - rng.random::<f64>()))
                .collect();
            let longest = lengths.iter().copied().fold(0.0, f64::max);
            let sum: f64 = lengths.iter().sum();
            let expected = Lengths {
                // The largest of k exponential ones: the k-th harmonic number.
                longest_ms: (1..=k).map(|i| 1.0 / f64::from(i)).sum(),
                sum_ms: f64::from(k),
            };
            let took = shared * longest + (1.0 - shared) * sum;
            changes += u32::from(sharing.observe(expected, took));
        }
        changes
    }

    #[test]
    fn what_is_shared_is_learnt_from_expected_lengths_alone() {
        for (seed, shared) in [(1, 0.1), (2, 0.5), (3, 0.9)] {
            for profiled in [0.05, 0.5, 0.95] {
                let mut sharing = sharing(profiled, 1.0 - profiled);
                run(&mut sharing, shared, 400, seed);
                let [c0, c1, c2] = sharing.time().constants();
                assert!((c1 - shared).abs() < 0.12, "{profiled} {shared}: {c1}");
                assert!((c0, c1 + c2) == (0.0, 1.0) || (c1 + c2 - 1.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn it_rests_once_it_is_right_and_follows_a_change() {
        let mut sharing = sharing(0.5, 0.5);
        run(&mut sharing, 0.5, 200, 4);
        let changes = run(&mut sharing, 0.5, 2000, 5);
        assert!(changes < 100, "{changes} of 2000");
        run(&mut sharing, 0.1, 400, 6);
        assert!((sharing.time().constants()[1] - 0.1).abs() < 0.12);
    }

    #[test]
    fn single_requests_and_wild_times_say_nothing() {
        let mut sharing = sharing(0.5, 0.5);
        let one = Lengths {
            longest_ms: 4.0,
            sum_ms: 4.0,
        };
        assert!(!sharing.observe(one, 40.0));
        assert!(!sharing.observe(Lengths::default(), 1.0));
        let two = Lengths {
            longest_ms: 3.0,
            sum_ms: 4.0,
        };
        for took in [1e9, f64::INFINITY, 0.0] {
            sharing.observe(two, took);
            let shared = sharing.time().constants()[1];
            assert!((SHARED_MIN..=1.0).contains(&shared));
        }
        assert_eq!(sharing.time().constants()[0], 0.0);
    }

    #[test]
    fn only_a_form_of_shares_is_learnt() {
        let padded = BatchTime::new(BatchForm::Padded, 0.0, 1.0, 0.0).unwrap();
        let fixed = BatchTime::new(BatchForm::Shrinking, 1.0, 0.5, 0.5).unwrap();
        assert!(Sharing::new(&padded).is_none() && Sharing::new(&fixed).is_none());
    }
}
