//! Metrics of the revisions that live, read at each scrape: there are few of them, and their series go with them.

use std::fmt;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::labels::{RevisionLabels, RevisionOutcomeLabels};
use super::{REVISION_REQUESTS, REVISION_SHARE};

/// A pipeline of a revision.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionReading {
    /// Its name.
    pub pipeline: String,
    /// The id of the revision.
    pub revision: String,
    /// The part of the streams that go to it.
    pub share: f64,
    /// Its requests that ended, by outcome.
    pub requests: [(&'static str, u64); 4],
}

/// Reads the live revisions.
pub type ReadRevisions = Box<dyn Fn() -> Vec<RevisionReading> + Send + Sync>;

#[derive(Default)]
pub(super) struct RevisionCollector {
    pub(super) source: RwLock<Option<ReadRevisions>>,
}

impl fmt::Debug for RevisionCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RevisionCollector")
    }
}

impl Collector for RevisionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.source.read().as_ref().map(|read| read());
        let all = all.unwrap_or_default();
        let help = "Part of the streams that go to a revision.";
        let mut metric =
            encoder.encode_descriptor(REVISION_SHARE, help, None, MetricType::Gauge)?;
        for of in &all {
            let labels = RevisionLabels {
                pipeline: of.pipeline.clone(),
                revision: of.revision.clone(),
            };
            metric.encode_family(&labels)?.encode_gauge(&of.share)?;
        }
        let help = "Requests of a revision that ended, by outcome.";
        let name = REVISION_REQUESTS.trim_end_matches("_total");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for of in &all {
            for (outcome, count) in of.requests {
                let labels = RevisionOutcomeLabels {
                    pipeline: of.pipeline.clone(),
                    revision: of.revision.clone(),
                    outcome,
                };
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        Ok(())
    }
}
