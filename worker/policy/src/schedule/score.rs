//! The time-varying priority score of ORLOJ (§4.1): the expected cost of not serving a request now, per expected time of
//! its batch.
//!
//! With the law of the batch's time uniform within bins and an exponential delay of rate b, the score of a request
//! with deadline D at time t is `p(t) = c / E[L] * E[1{L <= D-t} e^(-b (D-t-L))]`. Deviations from the printed
//! equation (2): h is a density, not a mass (with a mass the order is wrong across bins, applications and sizes);
//! sums over bins are kept as of a bin's edge, so that no e^(b l) is ever formed, which overflows for slow models.

use std::time::Duration;

use spillgate_pipeline::distribution::{BINS_MAX, Distribution};
use spillgate_pipeline::time::Timestamp;

/// Default rate b of the anticipated delay, per ms (ORLOJ §4.4).
pub const DELAY_RATE: f64 = 1e-4;
/// Default number of bins with which scores are computed.
const SCORE_BINS: usize = 12;
/// Least delay rate: with others scores might exceed the range of a double.
const DELAY_RATE_MIN: f64 = 1e-9;
/// See [`DELAY_RATE_MIN`].
const DELAY_RATE_MAX: f64 = 1.0;

const _: () = assert!(DELAY_RATE_MIN <= DELAY_RATE && DELAY_RATE <= DELAY_RATE_MAX);
const _: () = assert!(0 < SCORE_BINS && SCORE_BINS <= BINS_MAX);

/// How `orloj` scores requests. Mean finish rates hardly move with either (docs/evaluation/orloj.md).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scoring {
    /// Rate b of the anticipated delay, per ms; 1e-9 to 1.
    pub delay_rate: f64,
    /// Most bins of the law of a batch's time, 1 to [`BINS_MAX`]; each is a milestone.
    pub bins: usize,
}

impl Default for Scoring {
    fn default() -> Self {
        Scoring {
            delay_rate: DELAY_RATE,
            bins: SCORE_BINS,
        }
    }
}

impl Scoring {
    /// Whether the parameters are in range.
    pub(super) fn is_valid(&self) -> bool {
        (DELAY_RATE_MIN..=DELAY_RATE_MAX).contains(&self.delay_rate)
            && (1..=BINS_MAX).contains(&self.bins)
    }
}

/// Most steps of a cost function.
pub const STEPS_MAX: usize = 4;

/// One step of a cost function: from then on a late answer costs this much more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The answer must be there by then to avoid the cost.
    pub deadline: Timestamp,
    /// Cost added by missing it; positive.
    pub cost: f64,
}

/// A piece-wise step cost function (ORLOJ, Appendix B): the score is the sum over its steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    steps: [Step; STEPS_MAX],
    count: usize,
}

impl Steps {
    /// One deadline, with the cost one.
    pub fn single(deadline: Timestamp) -> Self {
        let step = Step {
            deadline,
            cost: 1.0,
        };
        Steps {
            steps: [step; STEPS_MAX],
            count: 1,
        }
    }

    /// From cumulative levels, as Appendix B writes them: after each deadline the whole cost is that level. `None` when
    /// there are no levels or more than [`STEPS_MAX`], or one is not finite.
    pub fn levels(levels: &[(Timestamp, f64)]) -> Option<Self> {
        let &(deadline, _) = levels.first()?;
        let valid = levels.iter().all(|level| level.1.is_finite());
        if levels.len() > STEPS_MAX || !valid {
            return None;
        }
        let mut steps = Steps::single(deadline);
        steps.count = levels.len();
        let mut below = 0.0;
        for (step, &(deadline, level)) in steps.steps.iter_mut().zip(levels) {
            *step = Step {
                deadline,
                cost: level - below,
            };
            below = level;
        }
        Some(steps)
    }

    /// The steps, in order.
    pub fn iter(&self) -> impl Iterator<Item = Step> + '_ {
        self.steps[..self.count].iter().copied()
    }
}

/// The law of one kind of batch, ready to score requests by.
#[derive(Clone, Debug)]
pub struct ScoreLaw {
    rate: f64,
    edges: Vec<f64>,
    /// Density within each bin, and zero beyond the last edge.
    densities: Vec<f64>,
    /// By edge: the sum over all bins below it, at a slack of that edge.
    sums: Vec<f64>,
    mean: f64,
}

impl ScoreLaw {
    /// For batches of that law and an anticipated delay of `rate` per ms.
    ///
    /// # Panics
    /// When the rate is not positive: it is a constant of the scheduler.
    pub fn new(law: &Distribution, rate: f64) -> Self {
        assert!(
            rate > 0.0 && rate.is_finite(),
            "a delay has a positive rate"
        );
        let mut sums = vec![0.0];
        let mut densities = Vec::with_capacity(law.edges().len());
        for bin in law.bins() {
            let fade = -rate * (bin.high - bin.low);
            let below = sums[sums.len() - 1] * fade.exp();
            sums.push(below - bin.density() / rate * fade.exp_m1());
            densities.push(bin.density());
        }
        densities.push(0.0);
        ScoreLaw {
            rate,
            edges: law.edges().to_vec(),
            densities,
            sums,
            mean: law.mean(),
        }
    }

    /// The expected time, ms.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The score of a request with the cost one and that much time to its deadline, per ms.
    pub fn score(&self, slack_ms: f64) -> f64 {
        let Some(i) = self.bin_of(slack_ms) else {
            return 0.0;
        };
        let fade = -self.rate * (slack_ms - self.edges[i]);
        let inside = -self.densities[i] / self.rate * fade.exp_m1();
        (self.sums[i] * fade.exp() + inside) / self.mean
    }

    /// The score under several steps, each as (slack in ms, cost added).
    pub fn score_of_steps(&self, steps: impl IntoIterator<Item = (f64, f64)>) -> f64 {
        let steps = steps.into_iter();
        steps.map(|(slack, cost)| cost * self.score(slack)).sum()
    }

    /// The score as a line in `x = e^(b (t - base))`, which holds until the milestone: (alpha, beta, milestone). The
    /// milestone is given as the slack at which the next bin begins. `until_base_ms` is the deadline minus the base.
    pub fn line(&self, slack_ms: f64, until_base_ms: f64) -> (f64, f64, Option<f64>) {
        let Some(i) = self.bin_of(slack_ms) else {
            return (0.0, 0.0, None);
        };
        let level = self.densities[i] / self.rate;
        let fade = (-self.rate * (until_base_ms - self.edges[i])).exp();
        let alpha = (self.sums[i] - level) * fade / self.mean;
        (alpha, level / self.mean, Some(self.edges[i]))
    }

    /// The bin that the slack falls into, the one beyond the last edge included; none below the first.
    fn bin_of(&self, slack_ms: f64) -> Option<usize> {
        let above = self.edges.partition_point(|&edge| edge <= slack_ms);
        above.checked_sub(1)
    }
}

/// That many ms as a span; zero if negative.
pub(crate) fn span(ms: f64) -> Duration {
    Duration::from_nanos((ms.max(0.0) * 1e6) as u64)
}

/// A duration in ms.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests;
