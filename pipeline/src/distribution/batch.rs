//! The time of a batch from the lengths of its members: the forms, their fit to a profile, the distribution of the
//! time.

use super::{BINS_DEFAULT, Distribution, Maximum, equal_edges};
use crate::profile::ModuleProfile;

/// Least weight of a length, so that a length can be computed from any time.
const FACTOR_MIN: f64 = 1e-6;

/// Which terms the time of a batch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchForm {
    /// `c0 + c1 k max(l)`: members are padded to the longest and computed one after another (ORLOJ, equation 3,
    /// as printed).
    Padded,
    /// `c0 + c1 max(l)`: padded, but the device computes the members side by side.
    Longest,
    /// `c0 + c1 max(l) + c2 sum(l)`: stages from which members exit. A stage costs a fixed part while any member is
    /// left, and a part for each member left. This is exact when the two have the same ratio in all stages.
    Shrinking,
    /// `c0 + c2 sum(l)`: work on each object of each member.
    PerObject,
}

impl BatchForm {
    /// All forms, the simplest first.
    pub const ALL: [BatchForm; 4] = [
        BatchForm::Padded,
        BatchForm::Longest,
        BatchForm::PerObject,
        BatchForm::Shrinking,
    ];

    /// Name in reports.
    pub fn label(self) -> &'static str {
        match self {
            BatchForm::Padded => "padded",
            BatchForm::Longest => "longest",
            BatchForm::Shrinking => "shrinking",
            BatchForm::PerObject => "per_object",
        }
    }

    /// The factors of `c1` and `c2`.
    fn terms(self, size: u32, longest: f64, sum: f64) -> [f64; 2] {
        match self {
            BatchForm::Padded => [f64::from(size) * longest, 0.0],
            BatchForm::Longest => [longest, 0.0],
            BatchForm::Shrinking => [longest, sum],
            BatchForm::PerObject => [0.0, sum],
        }
    }
}

/// The time of a batch of a module: its form and constants. The constants multiply a request's *length* l, and the
/// time of a request alone is `c0 + (c1 + c2) l`. This deviates from ORLOJ, whose profile "measured alone"
/// contradicts its equation (3) unless c0 = 0 and c1 = 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchTime {
    form: BatchForm,
    c0: f64,
    c1: f64,
    c2: f64,
}

/// One measurement of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchPoint {
    /// Size that was computed, padding included.
    pub size: u32,
    /// Length of its longest member, ms.
    pub longest_ms: f64,
    /// Lengths of all members together, ms.
    pub sum_ms: f64,
    /// Its execution time, ms.
    pub took_ms: f64,
}

/// A fitted form and its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The form with its constants.
    pub time: BatchTime,
    /// Root of the mean squared relative error over the points.
    pub error: f64,
    /// Largest relative error of a point.
    pub error_max: f64,
}

/// Why a batch time is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// A constant is NaN, infinite or negative, or all constants that multiply lengths are zero.
    #[error(
        "c0 {c0}, c1 {c1}, c2 {c2}: constants are finite and not negative, and one of c1 and c2 that the form has is positive"
    )]
    Constants {
        /// Fixed part, ms.
        c0: f64,
        /// Factor of the longest.
        c1: f64,
        /// Factor of the sum.
        c2: f64,
    },
    /// A measurement is not valid.
    #[error(
        "point {at}: size, lengths and time must be finite and positive, and the sum no less than the longest"
    )]
    Point {
        /// Its position.
        at: usize,
    },
    /// Not enough measurements for the constants.
    #[error(
        "{points} points do not settle the constants; give batches of at least two sizes or lengths"
    )]
    Points {
        /// How many there are.
        points: usize,
    },
}

impl BatchTime {
    /// A form with known constants: `c0` in ms, the others without unit. Constants that the form lacks are zero.
    /// Where no constant multiplies a length (a batch takes the same time whatever is in it), lengths count a
    /// millionth.
    ///
    /// # Errors
    /// A constant is NaN, infinite or negative, or the form lacks it.
    pub fn new(form: BatchForm, c0: f64, c1: f64, c2: f64) -> Result<Self, FitError> {
        let [has_longest, has_sum] = form.terms(1, 1.0, 1.0);
        let valid = [c0, c1, c2].iter().all(|c| c.is_finite() && *c >= 0.0);
        let fits = (c1 == 0.0 || has_longest > 0.0) && (c2 == 0.0 || has_sum > 0.0);
        if !valid || !fits {
            return Err(FitError::Constants { c0, c1, c2 });
        }
        let (mut c1, mut c2) = (c1, c2);
        if c1 + c2 < FACTOR_MIN {
            c1 = FACTOR_MIN * has_longest.min(1.0);
            c2 = FACTOR_MIN - c1;
        }
        Ok(BatchTime { form, c0, c1, c2 })
    }

    /// The constants with the least mean squared relative error over the points, none of them negative.
    ///
    /// # Errors
    /// Points are not valid measurements, or they are too few or too alike to determine the constants.
    pub fn fit(form: BatchForm, points: &[BatchPoint]) -> Result<Fit, FitError> {
        for (at, p) in points.iter().enumerate() {
            let positive = [p.longest_ms, p.sum_ms, p.took_ms]
                .iter()
                .all(|x| x.is_finite() && *x > 0.0);
            if p.size == 0 || !positive || p.sum_ms < p.longest_ms {
                return Err(FitError::Point { at });
            }
        }
        // Relative errors: each row is divided by its measured time.
        let row = |p: &BatchPoint| {
            let [longest, sum] = form.terms(p.size, p.longest_ms, p.sum_ms);
            [1.0, longest, sum].map(|term| term / p.took_ms)
        };
        let rows: Vec<[f64; 3]> = points.iter().map(row).collect();
        let mut best: Option<Fit> = None;
        // Least squares on every subset of the constants; the best subset without a negative constant wins.
        for subset in 1..8usize {
            let Some(c) = least_squares(&rows, subset) else {
                continue;
            };
            let Ok(time) = BatchTime::new(form, c[0], c[1], c[2]) else {
                continue;
            };
            let errors = points
                .iter()
                .map(|p| time.ms(p.size, p.longest_ms, p.sum_ms) / p.took_ms - 1.0);
            let squares: f64 = errors.clone().map(|e| e * e).sum();
            let fit = Fit {
                time,
                error: (squares / points.len() as f64).sqrt(),
                error_max: errors.map(f64::abs).fold(0.0, f64::max),
            };
            if best.is_none_or(|other| fit.error < other.error) {
                best = Some(fit);
            }
        }
        best.filter(|_| points.len() >= 2).ok_or(FitError::Points {
            points: points.len(),
        })
    }

    /// The form that fits best; of equally good forms (within a thousandth) the simplest.
    ///
    /// # Errors
    /// When none fits.
    pub fn fit_best(points: &[BatchPoint]) -> Result<Fit, FitError> {
        let mut best: Result<Fit, FitError> = Err(FitError::Points {
            points: points.len(),
        });
        for form in BatchForm::ALL {
            match (BatchTime::fit(form, points), &best) {
                (Ok(fit), Ok(other)) if fit.error + 1e-3 >= other.error => {}
                (Ok(fit), _) => best = Ok(fit),
                (Err(error), Err(_)) => best = Err(error),
                (Err(_), Ok(_)) => {}
            }
        }
        best
    }

    /// From a profile by batch size alone: every member has the length `length_ms`, which defines the scale of
    /// lengths.
    ///
    /// # Errors
    /// As [`BatchTime::fit`].
    pub fn from_profile(profile: &ModuleProfile, length_ms: f64) -> Result<Fit, FitError> {
        let point = |p: &crate::profile::BatchLatency| BatchPoint {
            size: p.batch,
            longest_ms: length_ms,
            sum_ms: length_ms * f64::from(p.batch),
            took_ms: p.mean.as_secs_f64() * 1e3,
        };
        let points: Vec<BatchPoint> = profile.points.iter().map(point).collect();
        BatchTime::fit(BatchForm::Padded, &points)
    }

    /// The same on a device that takes `pace` times as long.
    ///
    /// # Panics
    /// When the pace is not positive and finite.
    pub fn slowed(&self, pace: f64) -> Self {
        assert!(pace > 0.0 && pace.is_finite(), "a device has some pace");
        BatchTime {
            form: self.form,
            c0: self.c0 * pace,
            c1: self.c1 * pace,
            c2: self.c2 * pace,
        }
    }

    /// Its form.
    pub fn form(&self) -> BatchForm {
        self.form
    }

    /// c0 in ms, c1, c2.
    pub fn constants(&self) -> [f64; 3] {
        [self.c0, self.c1, self.c2]
    }

    /// Time of a batch computed at that size, ms.
    pub fn ms(&self, size: u32, longest_ms: f64, sum_ms: f64) -> f64 {
        let [longest, sum] = self.form.terms(size, longest_ms, sum_ms);
        self.c0 + self.c1 * longest + self.c2 * sum
    }

    /// Factor of the longest member at that size.
    pub fn per_longest(&self, size: u32) -> f64 {
        self.c1 * self.form.terms(size, 1.0, 0.0)[0]
    }

    /// Factor of the members' sum.
    pub fn per_sum(&self) -> f64 {
        self.c2
    }

    /// Time of a request alone, ms.
    pub fn alone_ms(&self, length_ms: f64) -> f64 {
        self.ms(1, length_ms, length_ms)
    }

    /// Length of a request that took this long alone: the sample that a profiler gives to a
    /// [`Learner`](super::Learner). Zero when the request took less than c0.
    pub fn length_ms(&self, alone_ms: f64) -> f64 {
        ((alone_ms - self.c0) / (self.c1 + self.c2)).max(0.0)
    }

    /// Distribution of the time of a batch computed at `size` with `n` members of each distribution.
    ///
    /// Exact up to levelling within bins where only the longest member counts, or where there is one member. Where
    /// the sum counts, the sum of the other members is taken as normal within each of `STRATA` equal slices of the
    /// longest.
    ///
    /// # Panics
    /// When there is no member.
    pub fn law(&self, size: u32, members: &[(&Distribution, u32)]) -> Distribution {
        let count: u32 = members.iter().map(|member| member.1).sum();
        let maximum = Maximum::new(members);
        if count == 1 {
            let factor = self.per_longest(size) + self.c2;
            return maximum.levelled().scaled(self.c0, factor);
        }
        if self.c2 == 0.0 {
            let factor = self.per_longest(size);
            return maximum.levelled().scaled(self.c0, factor);
        }
        self.with_sum(size, members, &maximum.levelled(), count)
    }

    fn with_sum(
        &self,
        size: u32,
        members: &[(&Distribution, u32)],
        longest: &Distribution,
        count: u32,
    ) -> Distribution {
        let per_longest = self.per_longest(size);
        // All members but the longest; each of them may be the longest.
        let others = f64::from(count - 1) / f64::from(count);
        let slice = |i: usize| {
            let at = longest.quantile((i as f64 + 0.5) / STRATA as f64);
            let mut sum = (0.0, 0.0);
            for (law, n) in members {
                let (mean, variance) = truncated(law, at);
                sum.0 += f64::from(*n) * mean;
                sum.1 += f64::from(*n) * variance;
            }
            let mean = self.c0 + per_longest * at + self.c2 * (at + others * sum.0);
            (mean, self.c2 * (others * sum.1).sqrt())
        };
        let slices: Vec<(f64, f64)> = (0..STRATA).map(slice).collect();
        let least: f64 = members.iter().map(|m| f64::from(m.1) * m.0.low()).sum();
        let most: f64 = members.iter().map(|m| f64::from(m.1) * m.0.high()).sum();
        let low = self.c0 + per_longest * longest.low() + self.c2 * least;
        let high = self.c0 + per_longest * longest.high() + self.c2 * most;
        let edges = equal_edges(low, high, BINS_DEFAULT);
        let below = |x: &f64| {
            let sum: f64 = slices.iter().map(|&(m, sd)| normal_cdf(*x, m, sd)).sum();
            sum / STRATA as f64
        };
        let mut cdf: Vec<f64> = edges.iter().map(below).collect();
        cdf[0] = 0.0;
        cdf[BINS_DEFAULT] = 1.0;
        let mean = self.c0
            + per_longest * longest.mean()
            + self.c2
                * members
                    .iter()
                    .map(|m| f64::from(m.1) * m.0.mean())
                    .sum::<f64>();
        Distribution::from_cdf(edges, cdf).with_mean(mean)
    }
}

/// Equal slices of the distribution of the longest member; within each the sum of the others is taken as normal.
pub(crate) const STRATA: usize = 16;

/// Mean and variance under the condition that the value is at most `at`.
fn truncated(law: &Distribution, at: f64) -> (f64, f64) {
    let (mut mass, mut first, mut second) = (0.0, 0.0, 0.0);
    for bin in law.bins().take_while(|bin| bin.low < at) {
        let high = bin.high.min(at);
        let part = bin.density() * (high - bin.low);
        mass += part;
        first += part * 0.5 * (bin.low + high);
        second += part * (bin.low * bin.low + bin.low * high + high * high) / 3.0;
    }
    if mass <= 0.0 {
        return (at.min(law.low()), 0.0);
    }
    let mean = first / mass;
    (mean, (second / mass - mean * mean).max(0.0))
}

/// The normal distribution function, to 1e-7 (Abramowitz and Stegun 7.1.26); a step where there is no spread.
pub fn normal_cdf(x: f64, mean: f64, deviation: f64) -> f64 {
    if deviation <= 0.0 {
        return if x >= mean { 1.0 } else { 0.0 };
    }
    let z = (x - mean) / (deviation * std::f64::consts::SQRT_2);
    let t = 1.0 / (1.0 + 0.327_591_1 * z.abs());
    let series = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let tail = 0.5 * series * (-z * z).exp();
    if z >= 0.0 { 1.0 - tail } else { tail }
}

/// Solves for the constants in `subset` (bits), the others zero; every row should give one.
fn least_squares(rows: &[[f64; 3]], subset: usize) -> Option<[f64; 3]> {
    let columns: Vec<usize> = (0..3).filter(|c| subset & (1 << c) != 0).collect();
    let n = columns.len();
    let mut a = vec![vec![0.0; n + 1]; n];
    for row in rows {
        for (i, &ci) in columns.iter().enumerate() {
            for (j, &cj) in columns.iter().enumerate() {
                a[i][j] += row[ci] * row[cj];
            }
            a[i][n] += row[ci];
        }
    }
    for i in 0..n {
        let scale = rows.iter().map(|row| row[columns[i]].powi(2)).sum::<f64>();
        // The rest of a column after elimination of the columns before it: nothing, so it adds no information.
        if a[i][i] <= scale * 1e-12 {
            return None;
        }
        let pivot = a[i].clone();
        for (j, row) in a.iter_mut().enumerate() {
            if j != i {
                let factor = row[i] / pivot[i];
                for (value, pivot) in row.iter_mut().zip(&pivot) {
                    *value -= factor * pivot;
                }
            }
        }
    }
    let mut solution = [0.0; 3];
    for (i, &column) in columns.iter().enumerate() {
        solution[column] = a[i][n] / a[i][i];
    }
    Some(solution)
}
