//! Predicts how long an action takes on a device, from what the same action took before. [`Predictor`] does so by kind of
//! action, model and size. A [`Rule`] is its estimator, by name. There are two sorts:
//!
//! | rule | what it learns | who uses it |
//! |---|---|---|
//! | `last-10-max`, `last-10-mean`, `last-10-median`, `ewma` | durations, each size apart (Clockwork §5.2: a rolling profile) | batch schedulers `clockwork`, `clockwork-mean`; placements, as single [`Estimator`]s |
//! | `pace-ewma` | one factor over the profile for all sizes: measured over profiled time | brokers |
//! | `pace-window` | the same over a span of time, and how much single batches deviate | State Planners |
//! | `pace-held` | the same, in force once it is off by much | batch schedulers that know distributions |
//!
//! A rolling profile needs no profile that is right, but measures each size anew. A pace needs one batch of any size to
//! correct all of them, but keeps the shape of the profile.
//!
//! [`Estimator`] is the rolling profile of one action, and [`Pace`] the factor of one model. [`PredictionErrors`] counts
//! by how much predictions were wrong.
//!
//! What is learnt must not refuse its own learning: a model whose estimate exceeds its SLO never runs again, and so is never
//! measured again. One rule holds for all of them (`fading`): what nothing confirms fades, so that a probe passes. And a
//! single duration far above the others must not decide: estimators that follow the largest duration have a cap for that
//! ([`Cap`]), and paces bound what a single batch can do.
//!
//! The distribution of the lengths of an application's requests ([`crate::distribution::Learner`]) is no rule here. It
//! predicts requests and not actions: it knows requests that ran alone, and the time of a batch follows from the
//! lengths of its members by [`crate::distribution::BatchTime`].

mod action;
pub(crate) mod errors;
mod fading;
mod last;
mod pace;
mod predictor;
#[cfg(test)]
mod properties;

use std::time::Duration;

use crate::time::Timestamp;
use fading::{Fading, nearer};

pub use action::{Action, ActionKind, ActionRecord};
pub use errors::{ErrorSummary, PredictionErrors};
pub use last::Last;
pub use pace::{Pace, PaceRule};
pub use predictor::{Predictor, Rule};

/// Durations that a rolling profile keeps (Clockwork §5.2).
pub const WINDOW: usize = 10;
/// The new duration's weight in an exponentially weighted mean.
const EWMA_WEIGHT: f64 = 0.2;

/// Makes the names and their properties from one list.
macro_rules! estimators {
    ($($(#[$doc:meta])* $name:ident: $text:literal;)*) => {
        /// Estimators by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EstimatorName {
            $($(#[$doc])* $name,)*
        }

        impl EstimatorName {
            /// All of them.
            pub const ALL: [EstimatorName; [$(EstimatorName::$name),*].len()] =
                [$(EstimatorName::$name),*];

            /// Its name in settings and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(EstimatorName::$name => $text,)*
                }
            }
        }
    };
}

estimators! {
    /// The `ceil(0.99 n)`-th of the last `n`: of ten, their largest (Clockwork §5.2).
    LastMax: "last-10-max";
    /// The mean of the last ten.
    LastMean: "last-10-mean";
    /// The lower median of the last ten.
    LastMedian: "last-10-median";
    /// The exponentially weighted mean of all.
    Ewma: "ewma";
}

/// What an estimate cannot exceed, whatever was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cap {
    /// Nothing: the paper's estimate.
    None,
    /// This many times the duration that was profiled before serving.
    Seed(f64),
    /// This many times the lower median of the window. A single duration is its own median: the cap holds from the second
    /// duration on.
    Median(f64),
    /// This many times what the action typically takes, and no duration counts for more in a mean: the larger of the seed
    /// and of the lower median of a full window, in which the seed stands for durations that were not measured yet. So no
    /// few outliers raise it, not even the first durations, and an action that has become slower than its profile is
    /// believed once half of the window says so.
    Typical(f64),
}

/// The rolling profile of one action: what it was profiled to take, and what it took.
#[derive(Clone, Debug)]
pub struct Estimator {
    name: EstimatorName,
    cap: Cap,
    seed: Duration,
    last: Last,
    mean_ns: f64,
    /// From what was measured.
    learnt: Duration,
    /// In force: what has not faded of it.
    estimate: Duration,
    fading: Fading,
}

impl Estimator {
    /// An estimator with a window of [`WINDOW`] durations. Until the first is measured, its estimate is `seed`.
    pub fn new(name: EstimatorName, cap: Cap, seed: Duration) -> Self {
        Estimator::with_window(name, cap, seed, WINDOW)
    }

    /// The same with a window of another length.
    ///
    /// # Panics
    /// When the window is 0.
    pub fn with_window(name: EstimatorName, cap: Cap, seed: Duration, window: usize) -> Self {
        Estimator {
            name,
            cap,
            seed,
            last: Last::new(window),
            mean_ns: seed.as_nanos() as f64,
            learnt: seed,
            estimate: seed,
            fading: Fading::default(),
        }
    }

    /// How long the action is expected to take.
    pub fn estimate(&self) -> Duration {
        self.estimate
    }

    /// What it was profiled to take.
    pub fn seed(&self) -> Duration {
        self.seed
    }

    /// The action took that long.
    pub fn observe(&mut self, now: Timestamp, took: Duration) {
        self.fading.confirm(now);
        let (learnt, faded) = (self.learnt.as_secs_f64(), self.estimate.as_secs_f64());
        if nearer(took.as_secs_f64(), learnt, faded) != learnt {
            self.begin_anew(self.estimate);
        }
        self.last.push(took);
        let median = self.last.percentile(50).unwrap_or(took);
        let cap = match self.cap {
            Cap::None => Duration::MAX,
            Cap::Seed(times) => most(self.seed, times),
            Cap::Median(times) => most(median, times),
            Cap::Typical(times) => most(self.typical(), times),
        };
        let counts_at_most = match self.cap {
            Cap::Typical(_) => cap,
            Cap::None | Cap::Seed(_) | Cap::Median(_) => Duration::MAX,
        };
        let took_ns = took.min(counts_at_most).as_nanos() as f64;
        self.mean_ns += EWMA_WEIGHT * (took_ns - self.mean_ns);
        let uncapped = match self.name {
            EstimatorName::LastMax => self.last.percentile(99).unwrap_or(took),
            EstimatorName::LastMean => {
                let (len, _) = self.last.len_and_missing();
                let sum: Duration = self.last.iter().map(|d| d.min(counts_at_most)).sum();
                nanoseconds(sum.as_nanos() as f64 / len as f64)
            }
            EstimatorName::LastMedian => median,
            EstimatorName::Ewma => nanoseconds(self.mean_ns),
        };
        self.learnt = uncapped.min(cap);
        self.estimate = self.learnt;
    }

    /// What it is expected to take at that time.
    pub fn at(&self, now: Timestamp) -> Duration {
        if self.learnt <= self.seed {
            return self.learnt;
        }
        let (seed, learnt) = (self.seed.as_nanos() as f64, self.learnt.as_nanos() as f64);
        nanoseconds(self.fading.of(now, seed, learnt))
    }

    /// Time passed: an estimate above the seed that nothing confirms fades.
    pub fn age(&mut self, now: Timestamp) {
        self.estimate = self.at(now);
    }

    /// As if nothing had been measured, but for that expectation.
    fn begin_anew(&mut self, expected: Duration) {
        self.forget();
        self.mean_ns = expected.as_nanos() as f64;
        self.learnt = expected;
        self.estimate = expected;
    }

    /// The larger of the seed and of the lower median of a full window, in which the seed stands for what is not measured
    /// yet.
    fn typical(&self) -> Duration {
        let (len, missing) = self.last.len_and_missing();
        let n = (len + missing).div_ceil(2).saturating_sub(missing);
        self.last.nth(n).unwrap_or_default().max(self.seed)
    }

    /// Forgets what was measured. An action that is expected to take too long never runs, and so would never be measured
    /// again.
    pub fn forget(&mut self) {
        let (len, missing) = self.last.len_and_missing();
        *self = Estimator::with_window(self.name, self.cap, self.seed, len + missing);
    }

    /// What was measured holds no more, as its device has become faster: the action is expected to take so many times what
    /// was profiled, at most.
    pub fn doubt(&mut self, times: f64) {
        let expected = most(self.seed, times);
        if self.learnt > expected {
            self.begin_anew(expected);
        }
    }
}

/// That many times a duration, in whole nanoseconds below.
fn most(duration: Duration, times: f64) -> Duration {
    Duration::from_nanos((duration.as_nanos() as f64 * times) as u64)
}

fn nanoseconds(ns: f64) -> Duration {
    Duration::from_nanos(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Duration = Duration::from_nanos(3_646_956);
    /// The first of the durations is an outlier.
    const MEASURED: [u64; 5] = [23_711_430, 3_768_480, 3_729_665, 3_713_294, 3_658_874];

    fn after_each(name: EstimatorName, cap: Cap) -> Vec<u64> {
        let mut estimator = Estimator::with_window(name, cap, SEED, 5);
        assert_eq!(estimator.estimate(), SEED);
        let each = MEASURED.iter().map(|&ns| {
            estimator.observe(Timestamp::ZERO, Duration::from_nanos(ns));
            estimator.estimate().as_nanos() as u64
        });
        each.collect()
    }

    #[test]
    fn estimates_equal_those_of_an_independent_program() {
        assert_eq!(
            after_each(EstimatorName::LastMax, Cap::None),
            [23_711_430; 5]
        );
        assert_eq!(
            after_each(EstimatorName::LastMean, Cap::None),
            [23_711_430, 13_739_955, 10_403_192, 8_730_717, 7_716_349]
        );
        assert_eq!(
            after_each(EstimatorName::LastMedian, Cap::None),
            [23_711_430, 3_768_480, 3_768_480, 3_729_665, 3_729_665]
        );
        assert_eq!(
            after_each(EstimatorName::LastMax, Cap::Median(1.5)),
            [23_711_430, 5_652_720, 5_652_720, 5_594_497, 5_594_497]
        );
    }

    #[test]
    fn an_outlier_leaves_the_window_after_ten_more() {
        let ms = Duration::from_millis;
        let mut estimator = Estimator::new(EstimatorName::LastMax, Cap::None, ms(4));
        estimator.observe(Timestamp::ZERO, ms(30));
        for _ in 1..WINDOW {
            estimator.observe(Timestamp::ZERO, ms(4));
            assert_eq!(estimator.estimate(), ms(30));
        }
        estimator.observe(Timestamp::ZERO, ms(4));
        assert_eq!(estimator.estimate(), ms(4));
    }

    #[test]
    fn a_capped_estimate_stays_within_its_cap_whatever_was_measured() {
        let ms = Duration::from_millis;
        for name in EstimatorName::ALL {
            let mut estimator = Estimator::new(name, Cap::Seed(1.5), ms(4));
            for took in [0, 4, 400, 40_000, 4] {
                estimator.observe(Timestamp::ZERO, ms(took));
                assert!(estimator.estimate() <= ms(6), "{}", name.name());
            }
        }
    }

    #[test]
    fn a_device_that_is_always_slower_than_its_profile_is_believed() {
        let ms = Duration::from_millis;
        for name in EstimatorName::ALL {
            let mut estimator = Estimator::new(name, Cap::Typical(1.5), ms(4));
            for n in 1..60 {
                estimator.observe(Timestamp::ZERO, ms(20));
                // Five of ten durations are half of the window.
                let cap = if n < 5 { ms(6) } else { ms(30) };
                assert!(estimator.estimate() <= cap, "{} {n}", name.name());
            }
            let estimate = estimator.estimate().as_secs_f64();
            assert!((estimate - 0.02).abs() < 1e-6, "{}", name.name());
        }
    }

    #[test]
    fn what_is_doubted_is_expected_to_take_no_longer_than_that_and_what_is_forgotten_the_profile() {
        let ms = Duration::from_millis;
        let mut estimator = Estimator::new(EstimatorName::LastMedian, Cap::Typical(1.5), ms(4));
        for (took, after) in [(5, 5), (20, 6)] {
            (0..WINDOW).for_each(|_| estimator.observe(Timestamp::ZERO, ms(took)));
            assert_eq!(estimator.estimate(), ms(took));
            estimator.doubt(1.5);
            assert_eq!(estimator.estimate(), ms(after));
        }
        estimator.forget();
        assert_eq!(estimator.estimate(), ms(4));
    }

    #[test]
    fn a_mean_with_a_cap_forgets_an_outlier_soon() {
        let ms = Duration::from_millis;
        let mut estimator = Estimator::new(EstimatorName::Ewma, Cap::Typical(1.5), ms(4));
        estimator.observe(Timestamp::ZERO, ms(40_000));
        assert_eq!(estimator.estimate(), Duration::from_micros(4_400));
        let mut by_seed = Estimator::new(EstimatorName::Ewma, Cap::Seed(1.5), ms(4));
        by_seed.observe(Timestamp::ZERO, ms(40_000));
        assert_eq!(by_seed.estimate(), ms(6));
    }
}
