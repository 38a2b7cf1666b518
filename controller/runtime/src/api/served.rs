//! Which hosts take new requests: those of one revision, or of two while admission moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use indexmap::IndexMap;
use parking_lot::RwLock;
use spillgate_controller_policy::rollout::{Admission, RevisionId};

use crate::host::PipelineHost;

/// Pipelines by name.
type Hosts = IndexMap<String, Arc<PipelineHost>>;

/// The hosts of the revisions that take requests, and which takes which.
pub(super) struct Served {
    admission: Admission,
    /// The one that most requests go to first.
    revisions: Vec<(RevisionId, Hosts)>,
}

impl Served {
    pub(super) fn new(
        admission: Admission,
        hosts: impl IntoIterator<Item = (RevisionId, Vec<Arc<PipelineHost>>)>,
    ) -> Self {
        let named = |hosts: Vec<Arc<PipelineHost>>| {
            let hosts = hosts.into_iter();
            hosts.map(|h| (h.pipeline().name.clone(), h)).collect()
        };
        let revisions = hosts.into_iter().map(|(id, hosts)| (id, named(hosts)));
        let mut revisions: Vec<(RevisionId, Hosts)> = revisions.collect();
        revisions.sort_by_key(|(id, _)| std::cmp::Reverse(admission.share_of(*id)));
        Served {
            admission,
            revisions,
        }
    }

    /// The pipeline of that name that takes requests with this key. One that a single revision has is served by that.
    pub(super) fn host(&self, name: &str, key: u64) -> Option<&Arc<PipelineHost>> {
        let chosen = self.admission.choose(key);
        let first = self.revisions.iter().filter(|(id, _)| Some(*id) == chosen);
        let mut all = first.chain(&self.revisions);
        all.find_map(|(_, hosts)| hosts.get(name))
    }

    /// Each pipeline, of the revision that most of its requests go to.
    pub(super) fn all(&self) -> Vec<Arc<PipelineHost>> {
        let mut all = Hosts::default();
        for (name, host) in self.revisions.iter().flat_map(|(_, hosts)| hosts) {
            all.entry(name.clone()).or_insert_with(|| host.clone());
        }
        all.into_values().collect()
    }
}

/// What is served now.
pub(super) struct Serves {
    served: RwLock<Arc<Served>>,
    /// Rises when another one is served: streams look theirs up anew.
    generation: AtomicU64,
    /// Two revisions take requests.
    is_split: AtomicBool,
    /// No revision takes any.
    is_gap: AtomicBool,
    requests: AtomicU64,
}

impl Serves {
    pub(super) fn new(served: Served) -> Self {
        Serves {
            served: RwLock::new(Arc::new(served)),
            generation: AtomicU64::new(0),
            is_split: AtomicBool::new(false),
            is_gap: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        }
    }

    pub(super) fn now(&self) -> Arc<Served> {
        self.served.read().clone()
    }

    pub(super) fn replace(&self, by: Served) {
        let is_split = matches!(by.admission, Admission::Split { .. });
        *self.served.write() = Arc::new(by);
        self.is_split.store(is_split, Ordering::Release);
        self.is_gap.store(false, Ordering::Release);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// What is served stays known, and takes no requests.
    pub(super) fn nobody(&self) {
        self.is_gap.store(true, Ordering::Release);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether two revisions take requests.
    pub(super) fn is_split(&self) -> bool {
        self.is_split.load(Ordering::Acquire)
    }

    /// Whether no request is taken.
    pub(super) fn is_gap(&self) -> bool {
        self.is_gap.load(Ordering::Acquire)
    }

    /// The key of a request that belongs to no stream with a name.
    pub(super) fn request_key(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }
}
