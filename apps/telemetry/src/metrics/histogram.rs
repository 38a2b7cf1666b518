//! A histogram and a counter of seconds on atomics alone. prometheus-client's histogram takes a lock for each
//! observation, which device threads and the scrape would share. Sums are integers, so that no rounding errors add
//! up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

use super::buckets::Buckets;

/// Counts of whole numbers (nanoseconds, requests) by upper bound. Clones share the counts.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    buckets: &'static Buckets,
    /// One for each bound and one above them all.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    pub(super) fn new(buckets: &'static Buckets) -> Self {
        let counts = (0..=buckets.bounds.len())
            .map(|_| AtomicU64::new(0))
            .collect();
        Histogram {
            inner: Arc::new(Inner {
                buckets,
                counts,
                sum: AtomicU64::new(0),
            }),
        }
    }

    pub(super) fn observe(&self, value: u64) {
        let idx = self
            .inner
            .buckets
            .bounds
            .partition_point(|bound| *bound < value);
        self.inner.counts[idx].fetch_add(1, Ordering::Relaxed);
        self.inner.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(super) fn observe_duration(&self, span: Duration) {
        self.observe(nanoseconds(span));
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let Inner {
            buckets,
            counts,
            sum,
        } = &*self.inner;
        // Division rounds correctly: 100,000 / 1e9 prints as 0.0001, 100,000 * 1e-9 does not.
        let scaled = |value: u64| value as f64 / buckets.per_unit;
        let bounds = buckets
            .bounds
            .iter()
            .map(|bound| scaled(*bound))
            .chain([f64::INFINITY]);
        let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
        let table: Vec<(f64, u64)> = bounds.zip(counts).collect();
        // Computed from the same reading, so that the last bucket and the count agree.
        let count = table.iter().map(|(_, count)| count).sum();
        let sum = scaled(sum.load(Ordering::Relaxed));
        encoder.encode_histogram::<NoLabelSet>(sum, count, &table, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// A counter of seconds, kept in nanoseconds. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct Seconds {
    ns: Arc<AtomicU64>,
}

impl Seconds {
    /// Adds a span of time.
    pub(super) fn add(&self, span: Duration) {
        self.ns.fetch_add(nanoseconds(span), Ordering::Relaxed);
    }
}

impl TypedMetric for Seconds {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for Seconds {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let seconds = self.ns.load(Ordering::Relaxed) as f64 / 1e9;
        encoder.encode_counter::<NoLabelSet, _, u64>(&seconds, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::buckets::BATCH_SIZES;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&BATCH_SIZES);
        for value in [0, 1, 2, 3, 1_000_000] {
            histogram.observe(value);
        }
        let counts: Vec<u64> = histogram
            .inner
            .counts
            .iter()
            .map(|c| c.load(Ordering::Relaxed))
            .collect();
        assert_eq!(counts[..3], [2, 1, 1]);
        assert_eq!(counts.last(), Some(&1));
        assert_eq!(histogram.inner.sum.load(Ordering::Relaxed), 1_000_006);
    }
}
