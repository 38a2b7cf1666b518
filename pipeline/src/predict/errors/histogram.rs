//! Counts of signed numbers in buckets whose width grows with the number.

use super::ErrorSummary;

/// Buckets to each doubling: two to the power of this. A number is within 1/32 of the middle of its bucket.
const FINE_BITS: u32 = 4;
/// See [`FINE_BITS`].
const FINE: usize = 1 << FINE_BITS;
/// Numbers from two to the power of this on share the last bucket: 18 minutes in ns.
const BITS: u32 = 40;
/// Buckets of one sign.
pub(crate) const BUCKETS: usize = (BITS - FINE_BITS + 1) as usize * FINE;

/// Counts by bucket, from the least number to the largest.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: vec![0; 2 * BUCKETS].into(),
            count: 0,
            sum: 0,
            min: i64::MAX,
            max: i64::MIN,
        }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, value: i64) {
        let bucket = bucket(value.unsigned_abs());
        let at = if value < 0 {
            BUCKETS - 1 - bucket
        } else {
            BUCKETS + bucket
        };
        self.counts[at] += 1;
        self.count += 1;
        self.sum += i128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    pub(super) fn summary(&self) -> Option<ErrorSummary> {
        let n = i128::from(self.count);
        (n > 0).then(|| ErrorSummary {
            count: self.count,
            mean_ns: (self.sum / n) as i64,
            p1_ns: self.percentile(1),
            p50_ns: self.percentile(50),
            p99_ns: self.percentile(99),
            max_ns: self.max,
        })
    }

    /// The `ceil(percent / 100 n)`-th smallest, as the middle of its bucket.
    fn percentile(&self, percent: u64) -> i64 {
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100);
        let mut below = 0;
        let at = self.counts.iter().position(|&count| {
            below += u128::from(count);
            below >= rank
        });
        let middle = at.map_or(self.max, |at| {
            if at < BUCKETS {
                -(middle(BUCKETS - 1 - at) as i64)
            } else {
                middle(at - BUCKETS) as i64
            }
        });
        middle.clamp(self.min, self.max)
    }
}

/// The bucket of a number: the first ones hold one number each.
fn bucket(value: u64) -> usize {
    let value = value.min((1 << BITS) - 1);
    if value < FINE as u64 {
        return value as usize;
    }
    let doublings = value.ilog2() - FINE_BITS;
    let fine = (value >> doublings) as usize - FINE;
    (doublings as usize + 1) * FINE + fine
}

/// The number in the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    if bucket < FINE {
        return bucket as u64;
    }
    let doublings = (bucket / FINE - 1) as u32;
    let least = ((FINE + bucket % FINE) as u64) << doublings;
    least + (1 << doublings) / 2
}
