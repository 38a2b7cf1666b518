//! A batch while it is put together: the distribution of its time, which is updated with each member that joins. The
//! cost of an update does not depend on the number of members.

use spillgate_pipeline::distribution::{BatchTime, Distribution, normal_cdf};

use super::sharing::Lengths;

/// Bins of the common grid on which distribution functions are multiplied.
const GRID_BINS: usize = 96;
/// Number of equal slices of the longest member's law, where the members' sum counts as well.
const SLICES: usize = 8;

const _: () = assert!(GRID_BINS >= 2 && SLICES > 0);

/// Distribution functions of all applications on one grid: the edges of its bins and their middles.
#[derive(Debug)]
pub(crate) struct Grid {
    nodes: Vec<f64>,
    /// By law, then by node.
    cdfs: Vec<f64>,
    means: Vec<f64>,
    variances: Vec<f64>,
}

impl Grid {
    /// Of these laws.
    pub(crate) fn new(laws: &[Distribution]) -> Grid {
        // Nodes at the quantiles of each law: the grid is fine wherever one of the laws changes, whatever their common
        // range.
        let each = (GRID_BINS / laws.len()).max(2);
        let mut edges: Vec<f64> = laws
            .iter()
            .flat_map(|law| (0..=each).map(move |q| law.quantile(q as f64 / each as f64)))
            .collect();
        edges.sort_unstable_by(f64::total_cmp);
        edges.dedup();
        let mut nodes = vec![edges[0]];
        for pair in edges.windows(2) {
            nodes.push(0.5 * (pair[0] + pair[1]));
            nodes.push(pair[1]);
        }
        let cdfs = laws
            .iter()
            .flat_map(|law| nodes.iter().map(|&x| law.cdf(x)));
        Grid {
            cdfs: cdfs.collect(),
            nodes,
            means: laws.iter().map(Distribution::mean).collect(),
            variances: laws.iter().map(Distribution::variance).collect(),
        }
    }

    fn cdf(&self, law: usize) -> &[f64] {
        &self.cdfs[law * self.nodes.len()..(law + 1) * self.nodes.len()]
    }
}

/// The members so far.
#[derive(Debug, Default)]
pub(crate) struct Forming {
    /// P(longest <= node): the product of the members' distribution functions.
    product: Vec<f64>,
    count: u32,
    mean_sum: f64,
    variance_sum: f64,
}

impl Forming {
    pub(crate) fn clear(&mut self, grid: &Grid) {
        self.product.clear();
        self.product.resize(grid.nodes.len(), 1.0);
        self.count = 0;
        self.mean_sum = 0.0;
        self.variance_sum = 0.0;
    }

    pub(crate) fn push(&mut self, grid: &Grid, law: usize) {
        for (product, cdf) in self.product.iter_mut().zip(grid.cdf(law)) {
            *product *= cdf;
        }
        self.count += 1;
        self.mean_sum += grid.means[law];
        self.variance_sum += grid.variances[law];
    }

    /// The expected length of the longest member, ms: Simpson's rule on the bins, exact for three members and within 1e-5
    /// for many.
    fn longest(&self, grid: &Grid) -> f64 {
        let nodes = &grid.nodes;
        let mut below = 0.0;
        let mut i = 0;
        while i + 2 < nodes.len() {
            let three = self.product[i] + 4.0 * self.product[i + 1] + self.product[i + 2];
            below += (nodes[i + 2] - nodes[i]) * three;
            i += 2;
        }
        nodes[nodes.len() - 1] - below / 6.0
    }

    /// The expected times of the members alone.
    pub(crate) fn lengths(&self, grid: &Grid) -> Lengths {
        Lengths {
            longest_ms: self.longest(grid),
            sum_ms: self.mean_sum,
        }
    }

    /// The expected time of the batch when it is computed at `size`.
    pub(crate) fn outlook(&self, grid: &Grid, time: &BatchTime, size: u32) -> Outlook {
        let longest = self.longest(grid);
        let mean_ms = time.ms(size, longest, self.mean_sum);
        // Alone, the member is its own sum.
        let alone = self.count == 1;
        let per_longest = time.per_longest(size) + if alone { time.per_sum() } else { 0.0 };
        let fixed = time.ms(size, 0.0, 0.0);
        let has_sum = time.per_sum() > 0.0 && !alone;
        let mut slices = [(0.0, 0.0); SLICES];
        if has_sum {
            // All members but the longest. Each member is the longest with the same probability.
            let others = f64::from(self.count - 1) / f64::from(self.count);
            let rest = (self.mean_sum - longest).max(0.0);
            let deviation = time.per_sum() * (others * self.variance_sum).sqrt();
            for (i, slice) in slices.iter_mut().enumerate() {
                let at = self.quantile(grid, (i as f64 + 0.5) / SLICES as f64);
                let mean = fixed + per_longest * at + time.per_sum() * (at + rest);
                *slice = (mean, deviation);
            }
        }
        Outlook {
            mean_ms,
            fixed,
            per_longest,
            has_sum,
            slices,
        }
    }

    /// The time that the batch keeps within with probability `q`, ms, by its longest member. The sum counts with its
    /// mean.
    pub(crate) fn mostly_ms(&self, grid: &Grid, time: &BatchTime, size: u32, q: f64) -> f64 {
        time.ms(size, self.quantile(grid, q), self.mean_sum)
    }

    fn quantile(&self, grid: &Grid, q: f64) -> f64 {
        let i = self.product.partition_point(|&p| p < q);
        grid.nodes[i.min(grid.nodes.len() - 1)]
    }

    /// P(the batch has ended after `within_ms`).
    pub(crate) fn on_time(&self, grid: &Grid, outlook: &Outlook, within_ms: f64) -> f64 {
        if outlook.has_sum {
            let each = outlook.slices.iter();
            let sum: f64 = each.map(|&(m, sd)| normal_cdf(within_ms, m, sd)).sum();
            return sum / SLICES as f64;
        }
        let x = (within_ms - outlook.fixed) / outlook.per_longest;
        let above = grid.nodes.partition_point(|&node| node <= x);
        if above == 0 {
            return 0.0;
        }
        if above == grid.nodes.len() {
            return 1.0;
        }
        let (low, high) = (grid.nodes[above - 1], grid.nodes[above]);
        let (below, beyond) = (self.product[above - 1], self.product[above]);
        below + (x - low) / (high - low) * (beyond - below)
    }
}

/// The time of a batch as expected.
#[derive(Clone, Debug)]
pub(crate) struct Outlook {
    /// E, ms.
    pub(crate) mean_ms: f64,
    fixed: f64,
    per_longest: f64,
    has_sum: bool,
    /// Mean and deviation within each slice of the longest member's law.
    slices: [(f64, f64); SLICES],
}
