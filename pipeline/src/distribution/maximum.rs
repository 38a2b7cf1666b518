//! The largest of several independent times (an order statistic): a padded batch is as slow as its slowest member.

use super::{Bin, Distribution, range};

/// The maximum of independent variables, `n` of each distribution (ORLOJ §4.2).
///
/// Its distribution function is the product of the members' functions: O(k), without cancellation. This deviates from
/// equation (8), whose 2^k - 1 alternating terms lose four digits at k = 16. It also deviates from the remark below
/// equation (6) that F^k would be too inaccurate: inside a bin each factor is linear, so the integral of the product
/// is that of a polynomial, and a Gauss rule of k/2 + 1 nodes gives it exactly.
#[derive(Clone, Debug)]
pub struct Maximum<'a> {
    parts: Vec<(&'a Distribution, u32)>,
    count: u32,
}

impl<'a> Maximum<'a> {
    /// The maximum over `n` draws of each distribution.
    ///
    /// # Panics
    /// When there is no draw: a batch has members.
    pub fn new(parts: &[(&'a Distribution, u32)]) -> Self {
        let parts: Vec<_> = parts.iter().copied().filter(|part| part.1 > 0).collect();
        let count = parts.iter().map(|part| part.1).sum();
        assert!(count > 0, "a batch has members");
        Maximum { parts, count }
    }

    /// P(max <= x).
    pub fn cdf(&self, x: f64) -> f64 {
        let power = |part: &(&Distribution, u32)| part.0.cdf(x).powi(part.1 as i32);
        self.parts.iter().map(power).product()
    }

    /// The density at x, per ms.
    pub fn density(&self, x: f64) -> f64 {
        let of = |i: usize| {
            let (law, n) = self.parts[i];
            let others = self.parts.iter().enumerate();
            let others: f64 = others
                .map(|(j, (other, m))| other.cdf(x).powi(*m as i32 - i32::from(i == j)))
                .product();
            f64::from(n) * law.density(x) * others
        };
        (0..self.parts.len()).map(of).sum()
    }

    /// The expected maximum, ms, exact up to rounding.
    pub fn mean(&self) -> f64 {
        let edges = self.edges();
        let rule = gauss_legendre(self.count as usize / 2 + 1);
        let mut mean = edges[0];
        // Value and slope of each part's distribution function within the current bin.
        let mut lines: Vec<(f64, f64, i32)> = Vec::with_capacity(self.parts.len());
        for (low, high) in edges.iter().zip(&edges[1..]) {
            lines.clear();
            lines.extend(self.parts.iter().map(|(law, n)| {
                let at_low = law.cdf(*low);
                (at_low, law.cdf(*high) - at_low, *n as i32)
            }));
            let product = |u: f64| -> f64 {
                let power = |&(at, slope, n): &(f64, f64, i32)| (at + slope * u).powi(n);
                lines.iter().map(power).product()
            };
            let below: f64 = rule.iter().map(|&(u, weight)| weight * product(u)).sum();
            mean += (high - low) * (1.0 - below);
        }
        mean
    }

    /// As a distribution with the members' edges. Masses of bins and mean are exact; the density inside a bin is
    /// levelled.
    pub fn levelled(&self) -> Distribution {
        let edges = self.edges();
        let cdf = edges.iter().map(|&x| self.cdf(x)).collect();
        Distribution::from_cdf(edges, cdf).with_mean(self.mean())
    }

    /// Probability and bounds of each bin of [`Maximum::levelled`].
    pub fn bins(&self) -> Vec<Bin> {
        self.levelled().bins().collect()
    }

    /// All edges of the members, from the largest of their least times to the largest time.
    fn edges(&self) -> Vec<f64> {
        let (_, high) = range(self.parts.iter().map(|part| part.0)).expect("a batch has members");
        let lows = self.parts.iter().map(|part| part.0.low());
        // Below this value at least one member is not done.
        let low = lows.fold(0.0, f64::max);
        let mut edges: Vec<f64> = self
            .parts
            .iter()
            .flat_map(|part| part.0.edges())
            .copied()
            .filter(|&x| x >= low && x <= high)
            .collect();
        edges.sort_unstable_by(f64::total_cmp);
        edges.dedup();
        edges
    }
}

/// Nodes and weights on 0..1 that integrate polynomials up to degree `2 n - 1` exactly: the roots of the Legendre
/// polynomial, by Newton's method from the usual first guess.
fn gauss_legendre(n: usize) -> Vec<(f64, f64)> {
    let degree = n as f64;
    let node = |i: usize| {
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (degree + 0.5)).cos();
        let mut slope = 1.0;
        // It converges quadratically: four steps are enough from this guess, two more cost nothing.
        for _ in 0..6 {
            let (mut previous, mut value) = (1.0, x);
            for j in 2..=n {
                let j = j as f64;
                (previous, value) = (
                    value,
                    ((2.0 * j - 1.0) * x * value - (j - 1.0) * previous) / j,
                );
            }
            slope = degree * (x * value - previous) / (x * x - 1.0);
            x -= value / slope;
        }
        (0.5 * (1.0 - x), 1.0 / ((1.0 - x * x) * slope * slope))
    };
    (0..n).map(node).collect()
}
