//! The pipelines of a revision, and what runs them.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller::host::PipelineHost;
use spillgate_link::links::PeerLinks;

use crate::embedded::Embedded;

/// Pipelines of what runs in a process, which are one revision. Clones share it.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) embedded: Arc<Embedded>,
    /// Their positions there.
    pipelines: Arc<[usize]>,
}

impl Served {
    /// All pipelines of what runs.
    pub(crate) fn all(embedded: Arc<Embedded>) -> Self {
        let pipelines = (0..embedded.hosts.len()).collect();
        Served {
            embedded,
            pipelines,
        }
    }

    /// Each pipeline by itself.
    pub(crate) fn each(embedded: &Arc<Embedded>) -> Vec<Self> {
        let each = (0..embedded.hosts.len()).map(|pipeline| Served {
            embedded: embedded.clone(),
            pipelines: [pipeline].into(),
        });
        each.collect()
    }

    pub(crate) fn positions(&self) -> &[usize] {
        &self.pipelines
    }

    pub(crate) fn hosts(&self) -> Vec<Arc<PipelineHost>> {
        let hosts = self.pipelines.iter();
        hosts.map(|i| self.embedded.hosts[*i].clone()).collect()
    }

    /// The links of the pipelines; none where there are no other processes.
    pub(crate) fn links(&self) -> Vec<Arc<PeerLinks>> {
        let links = self.pipelines.iter();
        let links = links.filter_map(|i| self.embedded.links.get(*i).cloned());
        links.collect()
    }

    /// Gateways of other processes that are met.
    pub(crate) fn gateways(&self) -> usize {
        let links = self.links();
        links
            .iter()
            .map(|links| links.gateways())
            .max()
            .unwrap_or(0)
    }

    /// Ends the links of the pipelines, and waits until others can know.
    pub(crate) async fn part(&self) {
        for pipeline in &*self.pipelines {
            self.embedded.part(*pipeline).await;
        }
    }

    /// Ends the device threads, each within `limit`, unless other pipelines still run on them. Names those that were busy.
    pub(crate) fn stop(&self, limit: Duration) -> Vec<String> {
        match self.embedded.ends(&self.pipelines) {
            true => self.embedded.stop(limit),
            false => Vec::new(),
        }
    }
}
