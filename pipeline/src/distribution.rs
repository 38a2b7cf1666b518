//! Execution times as random variables (ORLOJ §4): an empirical distribution whose density is uniform within bins,
//! the maximum of several such variables, the time of a batch, and the distribution learnt of an application.
//!
//! Times here are plain milliseconds; schedulers convert at their boundary. Nothing here keeps a clock: the time is
//! an argument. The code calls a distribution a *law*.

mod batch;
pub(crate) mod learner;
mod maximum;

pub use batch::{BatchForm, BatchPoint, BatchTime, Fit, FitError, normal_cdf};
pub use learner::{
    Learner, LearnerError, Learnt, SAMPLES_ENOUGH, SAMPLES_MAX, WINDOW_DEFAULT, Window, prior,
};
pub use maximum::Maximum;

/// Bins by default. They are so fine that the position inside a bin hardly matters; with eight bins a mean taken at
/// bin midpoints is up to a third too low.
pub const BINS_DEFAULT: usize = 96;
/// Most bins. More cost memory and time for each decision and add no precision.
pub const BINS_MAX: usize = 1024;
/// Largest value that is accepted as a time, in ms: eleven days.
pub const TIME_MS_MAX: f64 = 1e9;
/// Width of the one bin that equal samples fall into, relative to their value: the distribution of a static model.
const SPIKE_WIDTH: f64 = 1e-6;

/// Why numbers do not make a distribution.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// There are no samples.
    #[error("there are no samples")]
    Empty,
    /// A sample, edge or mass is NaN, infinite, negative, or beyond [`TIME_MS_MAX`].
    #[error("{what} {at} is {value}; times and masses are numbers from 0 to {max}", max = TIME_MS_MAX)]
    Value {
        /// `sample`, `edge` or `mass`.
        what: &'static str,
        /// Its position.
        at: usize,
        /// Its value.
        value: f64,
    },
    /// An edge is not above the one before it.
    #[error("edge {at} is not above the one before it")]
    Edges {
        /// Its position.
        at: usize,
    },
    /// The number of masses does not match the number of bins.
    #[error("{edges} edges need {} masses, there are {masses}", edges.saturating_sub(1))]
    Count {
        /// Edges given.
        edges: usize,
        /// Masses given.
        masses: usize,
    },
    /// All masses are zero.
    #[error("all masses are zero")]
    NoMass,
    /// A number of bins that is zero or too large.
    #[error("{bins} bins; 1 to {BINS_MAX} are possible")]
    Bins {
        /// The number.
        bins: usize,
    },
}

/// A law on non-negative times in ms: rising edges, and a density that is uniform within each bin.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    edges: Vec<f64>,
    /// P(L <= edge): from 0 to 1.
    cdf: Vec<f64>,
    mean: f64,
}

/// One bin of a [`Distribution`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Lower edge, ms.
    pub low: f64,
    /// Upper edge, ms.
    pub high: f64,
    /// Probability of the bin.
    pub mass: f64,
}

impl Bin {
    /// Probability per ms: the density `h` of ORLOJ's equation (2), which does not hold with a mass.
    pub fn density(self) -> f64 {
        self.mass / (self.high - self.low)
    }
}

impl Distribution {
    /// The distribution of these samples (ms): `bins` bins of equal width from the least to the largest sample. Equal
    /// samples make one very narrow bin.
    ///
    /// # Errors
    /// When there are no samples, a sample is not a time, or the number of bins is out of range.
    pub fn from_samples(
        samples: impl IntoIterator<Item = f64>,
        bins: usize,
    ) -> Result<Self, DistributionError> {
        check_bins(bins)?;
        let samples: Vec<f64> = samples.into_iter().collect();
        check_values("sample", &samples)?;
        let low = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let high = samples.iter().copied().fold(0.0, f64::max);
        if samples.is_empty() {
            return Err(DistributionError::Empty);
        }
        if high - low <= high * SPIKE_WIDTH {
            return Ok(Self::spike(high));
        }
        let width = (high - low) / bins as f64;
        let mut masses = vec![0.0; bins];
        for sample in samples {
            let bin = ((sample - low) / width) as usize;
            masses[bin.min(bins - 1)] += 1.0;
        }
        let mut edges: Vec<f64> = (0..bins).map(|i| low + width * i as f64).collect();
        edges.push(high);
        Ok(Self::of(edges, &masses))
    }

    /// The law with these bins; masses need not sum to one.
    ///
    /// # Errors
    /// When edges do not rise, a number is not a time or mass, counts do not match, or all masses are zero.
    pub fn from_bins(edges: Vec<f64>, masses: &[f64]) -> Result<Self, DistributionError> {
        check_bins(edges.len().saturating_sub(1))?;
        if masses.len() + 1 != edges.len() {
            return Err(DistributionError::Count {
                edges: edges.len(),
                masses: masses.len(),
            });
        }
        check_values("edge", &edges)?;
        check_values("mass", masses)?;
        if let Some(at) = (1..edges.len()).find(|&i| edges[i] <= edges[i - 1]) {
            return Err(DistributionError::Edges { at });
        }
        if masses.iter().sum::<f64>() <= 0.0 {
            return Err(DistributionError::NoMass);
        }
        Ok(Self::of(edges, masses))
    }

    /// All mass at `value`, in a bin just below it, so that a deadline of exactly that value is met.
    fn spike(value: f64) -> Self {
        let high = value.max(f64::MIN_POSITIVE / SPIKE_WIDTH);
        Self::of(vec![high * (1.0 - SPIKE_WIDTH), high], &[1.0])
    }

    fn of(edges: Vec<f64>, masses: &[f64]) -> Self {
        let total: f64 = masses.iter().sum();
        let mut cdf = Vec::with_capacity(edges.len());
        let mut sum = 0.0;
        cdf.push(0.0);
        for mass in masses {
            sum += mass;
            cdf.push((sum / total).min(1.0));
        }
        Self::from_cdf(edges, cdf)
    }

    /// From P(L <= edge); the mean is computed.
    fn from_cdf(edges: Vec<f64>, mut cdf: Vec<f64>) -> Self {
        // A sum of shares is one only up to rounding.
        *cdf.last_mut().expect("a law has edges") = 1.0;
        let mut law = Distribution {
            edges,
            cdf,
            mean: 0.0,
        };
        // Equation (5) of ORLOJ with the integrand l f(l), which the paper prints without the factor l: exact for
        // uniform bins.
        law.mean = law.bins().map(|b| b.mass * 0.5 * (b.low + b.high)).sum();
        law
    }

    /// The same bins with a given mean, where it is known better than from the bins.
    fn with_mean(mut self, mean: f64) -> Self {
        self.mean = mean;
        self
    }

    /// A mixture with the given weights, on `bins` equal bins over the range of all.
    ///
    /// # Errors
    /// No part, weights that are not numbers or all zero, a number of bins out of range.
    pub fn mixture(parts: &[(f64, &Distribution)], bins: usize) -> Result<Self, DistributionError> {
        check_bins(bins)?;
        let weights: Vec<f64> = parts.iter().map(|part| part.0).collect();
        check_values("mass", &weights)?;
        let total: f64 = weights.iter().sum();
        let Some((low, high)) = range(parts.iter().map(|part| part.1)) else {
            return Err(DistributionError::Empty);
        };
        if total <= 0.0 {
            return Err(DistributionError::NoMass);
        }
        let edges = equal_edges(low, high, bins);
        let share = |x: f64| parts.iter().map(|(w, law)| w / total * law.cdf(x)).sum();
        let cdf = edges.iter().map(|&x| share(x)).collect();
        let mean = parts.iter().map(|(w, law)| w / total * law.mean).sum();
        Ok(Self::from_cdf(edges, cdf).with_mean(mean))
    }

    /// The bins, in order.
    pub fn bins(&self) -> impl ExactSizeIterator<Item = Bin> + '_ {
        (1..self.edges.len()).map(|i| Bin {
            low: self.edges[i - 1],
            high: self.edges[i],
            mass: self.cdf[i] - self.cdf[i - 1],
        })
    }

    /// Edges of the bins, ms, rising.
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// Least possible time, ms.
    pub fn low(&self) -> f64 {
        self.edges[0]
    }

    /// Largest possible time, ms.
    pub fn high(&self) -> f64 {
        self.edges[self.edges.len() - 1]
    }

    /// The expected time, ms.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Its variance, ms squared.
    pub fn variance(&self) -> f64 {
        let spread = |b: Bin| {
            let (low, high) = (b.low - self.mean, b.high - self.mean);
            b.mass * (low * low + low * high + high * high) / 3.0
        };
        self.bins().map(spread).sum()
    }

    /// P(L <= x).
    pub fn cdf(&self, x: f64) -> f64 {
        let Some(i) = self.bin_of(x) else {
            return if x < self.low() { 0.0 } else { 1.0 };
        };
        let part = (x - self.edges[i]) / (self.edges[i + 1] - self.edges[i]);
        self.cdf[i] + part * (self.cdf[i + 1] - self.cdf[i])
    }

    /// The density at x, per ms; at an edge that of the bin above it.
    pub fn density(&self, x: f64) -> f64 {
        self.bin_of(x).map_or(0.0, |i| {
            (self.cdf[i + 1] - self.cdf[i]) / (self.edges[i + 1] - self.edges[i])
        })
    }

    /// The least x with P(L <= x) >= q, ms; q is taken into 0..=1.
    pub fn quantile(&self, q: f64) -> f64 {
        let q = q.clamp(0.0, 1.0);
        let i = self.cdf.partition_point(|&p| p < q).max(1);
        let (below, above) = (self.cdf[i - 1], self.cdf[i]);
        if q <= below {
            return self.edges[i - 1];
        }
        let part = (q - below) / (above - below);
        self.edges[i - 1] + part * (self.edges[i] - self.edges[i - 1])
    }

    /// The distribution of `offset + factor * L`. Densities are divided by the factor: the Jacobian that ORLOJ's
    /// equation (9) leaves out.
    ///
    /// # Panics
    /// When the offset is negative or the factor not positive: both come from a checked [`BatchTime`].
    pub fn scaled(&self, offset: f64, factor: f64) -> Self {
        assert!(
            offset >= 0.0 && factor > 0.0,
            "a batch takes a positive time"
        );
        let mean = offset + factor * self.mean;
        let high = offset + factor * self.high();
        // Beside a large offset, narrow bins would vanish in rounding and their densities would grow without bound.
        if factor * (self.high() - self.low()) <= high * SPIKE_WIDTH {
            return Self::spike(high).with_mean(mean);
        }
        let least = high * SPIKE_WIDTH / BINS_MAX as f64;
        let (mut edges, mut cdf): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
        for (x, share) in self.edges.iter().zip(&self.cdf) {
            let edge = offset + factor * x;
            match edges.last() {
                Some(last) if edge - last < least => {
                    // The bin joins the one before it.
                    if let (Some(last), true) = (cdf.last_mut(), edges.len() > 1) {
                        *last = *share;
                    }
                }
                _ => {
                    edges.push(edge);
                    cdf.push(*share);
                }
            }
        }
        Distribution { edges, cdf, mean }
    }

    /// The same distribution on fewer bins of equal width; the mean is kept.
    ///
    /// # Errors
    /// A number of bins out of range.
    pub fn coarser(&self, bins: usize) -> Result<Self, DistributionError> {
        Self::mixture(&[(1.0, self)], bins)
    }

    fn bin_of(&self, x: f64) -> Option<usize> {
        let above = self.edges.partition_point(|&edge| edge <= x);
        (above > 0 && above < self.edges.len()).then(|| above - 1)
    }
}

/// Least and largest time of all.
fn range<'a>(laws: impl Iterator<Item = &'a Distribution>) -> Option<(f64, f64)> {
    laws.map(|law| (law.low(), law.high()))
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

fn equal_edges(low: f64, high: f64, bins: usize) -> Vec<f64> {
    let width = (high - low) / bins as f64;
    let mut edges: Vec<f64> = (0..bins).map(|i| low + width * i as f64).collect();
    edges.push(high);
    edges
}

fn check_bins(bins: usize) -> Result<(), DistributionError> {
    if (1..=BINS_MAX).contains(&bins) {
        Ok(())
    } else {
        Err(DistributionError::Bins { bins })
    }
}

fn check_values(what: &'static str, values: &[f64]) -> Result<(), DistributionError> {
    // NaN is in no range.
    match values
        .iter()
        .position(|value| !(0.0..=TIME_MS_MAX).contains(value))
    {
        None => Ok(()),
        Some(at) => Err(DistributionError::Value {
            what,
            at,
            value: values[at],
        }),
    }
}

#[cfg(test)]
mod tests;
