//! The distribution of one application's execution times on one model variant, from a sliding window of samples. The
//! window starts afresh when the times jump (ORLOJ §3.2, long-term feedback).

use std::collections::VecDeque;
use std::time::Duration;

use super::{BINS_DEFAULT, Distribution, DistributionError, TIME_MS_MAX, check_bins};
use crate::time::Timestamp;

/// Most samples of a window: 64 KiB, and forty of them lie above the 99th percentile.
pub const SAMPLES_MAX: usize = 4096;
/// From this number of samples on, the window determines the distribution; below it, the prior does.
pub const SAMPLES_ENOUGH: usize = 8;
/// Newest samples that are compared with the older ones: few, so that a jump shows after sixteen requests.
const RECENT: usize = 16;
/// Largest distance of the two distribution functions that chance explains: sixteen samples of one distribution
/// exceed it once in a million trials (Kolmogorov and Smirnov).
const DISTANCE_MAX: f64 = 0.68;
/// Means may differ by this factor before it counts as a jump. A narrow distribution that moves by a hundredth also
/// fails the other test, but the window follows such a move by itself.
const RATIO_MAX: f64 = 1.5;

/// Which samples count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Most samples, up to [`SAMPLES_MAX`].
    pub samples: usize,
    /// Greatest age of a sample; the newest [`SAMPLES_ENOUGH`] are kept whatever their age.
    pub age: Duration,
}

/// The newest 2048 samples of ten minutes.
pub const WINDOW_DEFAULT: Window = Window {
    samples: 2048,
    age: Duration::from_secs(600),
};

/// Why a window or a sample is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LearnerError {
    /// The window could never hold enough samples.
    #[error(
        "the window holds {samples} samples of {age:?}; it needs {SAMPLES_ENOUGH} to {SAMPLES_MAX} samples and an age above zero"
    )]
    Window {
        /// As asked for.
        samples: usize,
        /// As asked for.
        age: Duration,
    },
    /// The prior or the number of bins is wrong.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
}

/// The effect of one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Learnt {
    /// It joined the window.
    Added,
    /// The times jumped: all but the newest samples were discarded.
    Jumped {
        /// Mean of the discarded samples, ms.
        from: f64,
        /// Mean of the newest samples, ms.
        to: f64,
    },
}

/// The distribution used while there are no samples: uniform from half to one and a half of the expected time.
///
/// # Errors
/// The mean is not a time, or is zero.
pub fn prior(mean_ms: f64) -> Result<Distribution, DistributionError> {
    Distribution::from_bins(vec![0.5 * mean_ms, 1.5 * mean_ms], &[1.0])
}

/// The window of one application.
#[derive(Clone, Debug)]
pub struct Learner {
    window: Window,
    bins: usize,
    samples: VecDeque<(Timestamp, f64)>,
    /// Distribution of the samples at the last request for it; the prior at first.
    law: Distribution,
    is_stale: bool,
    jumps: u64,
}

impl Learner {
    /// An empty window; `prior` counts until [`SAMPLES_ENOUGH`] samples are there.
    ///
    /// # Errors
    /// A window of no samples or no age, a number of bins out of range.
    pub fn new(window: Window, bins: usize, prior: Distribution) -> Result<Self, LearnerError> {
        check_bins(bins)?;
        let holds = (SAMPLES_ENOUGH..=SAMPLES_MAX).contains(&window.samples);
        if !holds || window.age.is_zero() {
            return Err(LearnerError::Window {
                samples: window.samples,
                age: window.age,
            });
        }
        Ok(Learner {
            window,
            bins,
            samples: VecDeque::new(),
            law: prior,
            is_stale: false,
            jumps: 0,
        })
    }

    /// The default window and bins over a prior with that mean.
    ///
    /// # Errors
    /// The mean is not a time, or is zero.
    pub fn with_prior(mean_ms: f64) -> Result<Self, LearnerError> {
        Self::new(WINDOW_DEFAULT, BINS_DEFAULT, prior(mean_ms)?)
    }

    /// Adds the execution time of one request alone, in ms.
    ///
    /// # Errors
    /// NaN, infinite, negative, beyond [`TIME_MS_MAX`]; then nothing changes.
    pub fn observe(&mut self, now: Timestamp, time_ms: f64) -> Result<Learnt, LearnerError> {
        if !(0.0..=TIME_MS_MAX).contains(&time_ms) {
            let refused = DistributionError::Value {
                what: "sample",
                at: self.samples.len(),
                value: time_ms,
            };
            return Err(refused.into());
        }
        self.samples.push_back((now, time_ms));
        self.is_stale = true;
        let jump = self.jump();
        if let Learnt::Jumped { .. } = jump {
            // A jump shows before all of the newest samples are of the new distribution: keep those that certainly
            // are.
            self.samples.drain(..self.samples.len() - SAMPLES_ENOUGH);
            self.jumps += 1;
        }
        while self.samples.len() > self.window.samples {
            self.samples.pop_front();
        }
        self.forget(now);
        Ok(jump)
    }

    /// The distribution to use at `now`.
    pub fn law(&mut self, now: Timestamp) -> &Distribution {
        self.forget(now);
        if self.is_stale && self.is_taught() {
            let times = self.samples.iter().map(|sample| sample.1);
            self.law = Distribution::from_samples(times, self.bins)
                .expect("samples were checked when they came");
            self.is_stale = false;
        }
        &self.law
    }

    /// Whether the distribution is from samples, not from the prior.
    pub fn is_taught(&self) -> bool {
        self.samples.len() >= SAMPLES_ENOUGH
    }

    /// When the newest sample came.
    pub fn newest(&self) -> Option<Timestamp> {
        self.samples.back().map(|&(at, _)| at)
    }

    /// Samples in the window.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether the window is empty.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// How often the times jumped.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    fn forget(&mut self, now: Timestamp) {
        while self.samples.len() > SAMPLES_ENOUGH {
            let (at, _) = self.samples[0];
            if now.since(at) <= self.window.age {
                break;
            }
            self.samples.pop_front();
            self.is_stale = true;
        }
    }

    /// Compares the newest samples with the older ones. Both tests must fail: the means differ much, and so do the
    /// distribution functions. So a run of long requests of a broad distribution is not a jump.
    fn jump(&self) -> Learnt {
        let n = self.samples.len();
        if n < 2 * RECENT {
            return Learnt::Added;
        }
        let times = |from, to| self.samples.range(from..to).map(|sample| sample.1);
        let mut recent: Vec<f64> = times(n - RECENT, n).collect();
        recent.sort_unstable_by(f64::total_cmp);
        let to = recent.iter().sum::<f64>() / RECENT as f64;
        let from = times(0, n - RECENT).sum::<f64>() / (n - RECENT) as f64;
        if to <= from * RATIO_MAX && from <= to * RATIO_MAX {
            return Learnt::Added;
        }
        let older = times(0, n - RECENT);
        let mut counts = [0usize; RECENT + 1];
        for time in older {
            counts[recent.partition_point(|&r| r < time)] += 1;
        }
        let (mut below, mut distance) = (0usize, 0.0f64);
        for (i, count) in counts[..RECENT].iter().enumerate() {
            below += count;
            let share = below as f64 / (n - RECENT) as f64;
            distance = distance
                .max((share - i as f64 / RECENT as f64).abs())
                .max((share - (i + 1) as f64 / RECENT as f64).abs());
        }
        if distance > DISTANCE_MAX {
            Learnt::Jumped { from, to }
        } else {
            Learnt::Added
        }
    }
}
