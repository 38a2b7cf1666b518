//! Which hosts take new requests: those of one revision, or of two while admission moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use indexmap::IndexMap;
use parking_lot::RwLock;
use spillgate_controller_policy::rollout::{Admission, RevisionId};

use crate::host::PipelineHost;

/// Pipelines by name.
type Hosts = IndexMap<String, Arc<PipelineHost>>;

/// The hosts of the revisions that take requests, and which takes which: of pipelines that are rolled out together.
pub(super) struct Served {
    admission: Admission,
    /// The one that most requests go to first.
    revisions: Vec<(RevisionId, Hosts)>,
    /// They stay known, and take no requests.
    is_gap: bool,
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
            is_gap: false,
        }
    }

    /// The pipeline of that name that takes requests with this key. One that a single revision has is served by that.
    fn host(&self, name: &str, key: u64) -> Option<&Arc<PipelineHost>> {
        let chosen = self.admission.choose(key);
        let first = self.revisions.iter().filter(|(id, _)| Some(*id) == chosen);
        let mut all = first.chain(&self.revisions);
        all.find_map(|(_, hosts)| hosts.get(name))
    }

    /// Each pipeline, of the revision that most of its requests go to.
    fn all(&self) -> impl Iterator<Item = Arc<PipelineHost>> {
        let mut all = Hosts::default();
        for (name, host) in self.revisions.iter().flat_map(|(_, hosts)| hosts) {
            all.entry(name.clone()).or_insert_with(|| host.clone());
        }
        all.into_values()
    }
}

/// What is served, by the groups of pipelines that are rolled out together.
pub(super) struct Groups(Vec<Arc<Served>>);

impl Groups {
    /// The pipeline of that name that takes requests with this key.
    pub(super) fn host(&self, name: &str, key: u64) -> Option<&Arc<PipelineHost>> {
        self.0.iter().find_map(|served| served.host(name, key))
    }

    /// Each pipeline, of the revision that most of its requests go to.
    pub(super) fn all(&self) -> Vec<Arc<PipelineHost>> {
        self.0.iter().flat_map(|served| served.all()).collect()
    }

    /// Whether no revision of the pipeline takes requests.
    fn is_gap(&self, name: &str) -> bool {
        let mut gaps = self.0.iter().filter(|served| served.is_gap);
        gaps.any(|served| served.host(name, 0).is_some())
    }
}

/// What is served now.
pub(super) struct Serves {
    groups: RwLock<Arc<Groups>>,
    /// Rises when another one is served: streams look theirs up anew.
    generation: AtomicU64,
    /// Of some pipeline two revisions take requests.
    is_split: AtomicBool,
    /// Of some pipeline no revision takes any.
    has_gap: AtomicBool,
    requests: AtomicU64,
}

impl Serves {
    pub(super) fn new(groups: impl IntoIterator<Item = Served>) -> Self {
        Serves {
            groups: RwLock::new(Arc::new(Groups(groups.into_iter().map(Arc::new).collect()))),
            generation: AtomicU64::new(0),
            is_split: AtomicBool::new(false),
            has_gap: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        }
    }

    pub(super) fn now(&self) -> Arc<Groups> {
        self.groups.read().clone()
    }

    pub(super) fn replace(&self, group: usize, by: Served) {
        let mut groups = self.groups.write();
        let mut all = groups.0.clone();
        all[group] = Arc::new(by);
        let is_split = |of: &Arc<Served>| matches!(of.admission, Admission::Split { .. });
        self.is_split
            .store(all.iter().any(is_split), Ordering::Release);
        let has_gap = all.iter().any(|of| of.is_gap);
        self.has_gap.store(has_gap, Ordering::Release);
        *groups = Arc::new(Groups(all));
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// What is served of a group stays known, and takes no requests.
    pub(super) fn nobody(&self, group: usize) {
        let served = self.now().0[group].clone();
        let gap = Served {
            admission: served.admission,
            revisions: served.revisions.clone(),
            is_gap: true,
        };
        self.replace(group, gap);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether two revisions take requests.
    pub(super) fn is_split(&self) -> bool {
        self.is_split.load(Ordering::Acquire)
    }

    /// Whether no request of the pipeline is taken.
    pub(super) fn is_gap(&self, name: &str) -> bool {
        self.has_gap.load(Ordering::Acquire) && self.now().is_gap(name)
    }

    /// The key of a request that belongs to no stream with a name.
    pub(super) fn request_key(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }
}
