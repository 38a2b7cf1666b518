//! A metric with labels. Series are kept in order, so that two scrapes of one state are equal; otherwise it is like
//! prometheus-client's family, which is a hash map.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// One metric for each set of labels. Clones share the series.
#[derive(Debug)]
pub(super) struct Family<L, M> {
    series: Arc<RwLock<BTreeMap<L, M>>>,
}

impl<L, M> Clone for Family<L, M> {
    fn clone(&self) -> Self {
        Family {
            series: self.series.clone(),
        }
    }
}

impl<L, M> Default for Family<L, M> {
    fn default() -> Self {
        Family {
            series: Arc::default(),
        }
    }
}

impl<L: Ord, M: Clone> Family<L, M> {
    /// The metric of these labels, for metrics that begin at zero.
    pub(super) fn handle(&self, labels: L) -> M
    where
        M: Default,
    {
        self.handle_or(labels, M::default)
    }

    /// The metric of these labels; made by `make` when it is the first.
    pub(super) fn handle_or(&self, labels: L, make: impl FnOnce() -> M) -> M {
        self.series
            .write()
            .entry(labels)
            .or_insert_with(make)
            .clone()
    }
}

impl<L, M> EncodeMetric for Family<L, M>
where
    L: EncodeLabelSet,
    M: EncodeMetric + TypedMetric,
{
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (labels, metric) in self.series.read().iter() {
            metric.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}
