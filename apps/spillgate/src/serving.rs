//! What a process serves: a revision of its definition, and during a rollout a second one beside it; and those that end with their
//! last request.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLock;
use spillgate_controller::host::PipelineHost;
use spillgate_controller_policy::rollout::{Admission, RevisionId, RevisionView, Share};
use spillgate_telemetry::Telemetry;
use spillgate_telemetry::metrics::{PlannerReadings, RevisionReading};

use crate::deployment::Revision;
use crate::embedded::Embedded;
use crate::process_context::ProcessContext;
use crate::start_error::StartError;
use crate::status::StatusReader;

/// Most revisions that live beside the newest one: the one before it, and one that ends. Each holds its threads and models until it
/// ends, so a further reload waits.
pub(crate) const ENDING_MAX: usize = 2;

/// What is served now. Clones share it.
#[derive(Clone)]
pub(crate) struct Serving {
    revisions: Arc<RwLock<Revisions>>,
}

struct Revisions {
    /// All that hold devices.
    live: Vec<(RevisionId, Arc<Embedded>)>,
    admission: Admission,
    /// As the rollout shows them.
    views: Vec<RevisionView>,
    /// The server ends: nothing takes the place of what is served any more.
    is_closed: bool,
}

impl Serving {
    /// Starts what a process holds, observed by its telemetry.
    ///
    /// # Errors
    /// When a device, model or profile is missing.
    pub(crate) fn start(
        context: &ProcessContext,
        telemetry: &Telemetry,
        revision: &Revision,
    ) -> Result<Self, StartError> {
        for deployment in &revision.deployments {
            telemetry.register_pipeline(&deployment.pipeline);
        }
        let embedded = Embedded::start(context, &revision.deployments, None)?;
        for (id, name) in embedded.device_names() {
            telemetry.register_device(*id, name);
        }
        if let Some(role) = &context.role {
            telemetry.register_processes(embedded.processes(role));
        }
        let revisions = Revisions {
            live: vec![(revision.id, Arc::new(embedded))],
            admission: Admission::One(revision.id),
            views: Vec::new(),
            is_closed: false,
        };
        let serving = Serving {
            revisions: Arc::new(RwLock::new(revisions)),
        };
        telemetry.register_queue_lengths(Box::new({
            let serving = serving.clone();
            move || {
                let now = serving.now();
                now.map_or_else(Vec::new, |now| (now.queue_lengths())())
            }
        }));
        telemetry.register_planners(Box::new({
            let serving = serving.clone();
            move || {
                let now = serving.now();
                now.map_or_else(PlannerReadings::default, |now| (now.planners())())
            }
        }));
        telemetry.register_revisions(Box::new({
            let serving = serving.clone();
            move || serving.readings()
        }));
        Ok(serving)
    }

    /// Reads the state of the process at any time.
    pub(crate) fn status(&self, context: &ProcessContext) -> impl Fn() -> StatusReader + use<> {
        let (serving, role, began) = (self.clone(), context.role.clone(), Instant::now());
        let clock = context.clock.clone();
        move || StatusReader {
            revisions: serving.views(),
            now: clock.now(),
            ..Embedded::status(serving.now().as_deref(), role.clone(), began)
        }
    }

    /// What most new requests go to; `None` while one revision has ended and the next one is not ready.
    pub(crate) fn now(&self) -> Option<Arc<Embedded>> {
        let revisions = self.revisions.read();
        let share = |(id, _): &&(RevisionId, Arc<Embedded>)| revisions.admission.share_of(*id);
        let most = revisions.live.iter().max_by_key(share)?;
        (share(&most) > Share::NONE).then(|| most.1.clone())
    }

    /// The revision, if it lives.
    pub(crate) fn of(&self, id: RevisionId) -> Option<Arc<Embedded>> {
        let revisions = self.revisions.read();
        let mut live = revisions.live.iter();
        let found = live.find(|(of, _)| *of == id);
        found.map(|(_, embedded)| embedded.clone())
    }

    /// All that may have requests.
    pub(crate) fn all(&self) -> Vec<(RevisionId, Arc<Embedded>)> {
        self.revisions.read().live.clone()
    }

    /// The hosts of all that may have requests.
    pub(crate) fn all_hosts(&self) -> Vec<Arc<PipelineHost>> {
        let all = self.all();
        all.iter()
            .flat_map(|(_, e)| e.hosts.iter().cloned())
            .collect()
    }

    /// Requests that have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.all_hosts().iter().map(|host| host.in_flight()).sum()
    }

    /// From now on nothing takes the place of what is served.
    pub(crate) fn close(&self) {
        self.revisions.write().is_closed = true;
    }

    /// Whether the server ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.revisions.read().is_closed
    }

    /// Another revision can serve.
    ///
    /// # Errors
    /// It, where the server ends.
    pub(crate) fn add(&self, id: RevisionId, embedded: Embedded) -> Result<(), Box<Embedded>> {
        let mut revisions = self.revisions.write();
        if revisions.is_closed {
            return Err(Box::new(embedded));
        }
        revisions.live.push((id, Arc::new(embedded)));
        Ok(())
    }

    /// New requests go there from now on.
    pub(crate) fn admit(&self, admission: Admission) {
        self.revisions.write().admission = admission;
    }

    /// The revisions, as the rollout shows them.
    pub(crate) fn views(&self) -> Vec<RevisionView> {
        self.revisions.read().views.clone()
    }

    /// What `/status` shows of the revisions.
    pub(crate) fn show(&self, views: Vec<RevisionView>) {
        self.revisions.write().views = views;
    }

    /// The revision has ended.
    pub(crate) fn forget(&self, ended: &Arc<Embedded>) {
        let mut revisions = self.revisions.write();
        revisions.live.retain(|(_, e)| !Arc::ptr_eq(e, ended));
    }

    /// What the requests of each live revision came to, for metrics.
    fn readings(&self) -> Vec<RevisionReading> {
        let admission = self.revisions.read().admission;
        let of = |id: RevisionId, host: &PipelineHost| {
            let outcomes = host.outcomes();
            RevisionReading {
                pipeline: host.pipeline().name.clone(),
                revision: id.to_string(),
                share: admission.share_of(id).part(),
                requests: [
                    ("completed", outcomes.in_time),
                    ("late", outcomes.late),
                    ("dropped", outcomes.dropped),
                    ("failed", outcomes.failed),
                ],
            }
        };
        let all = self.all().into_iter();
        let each = all.map(|(id, e)| e.hosts.iter().map(|h| of(id, h)).collect::<Vec<_>>());
        each.flatten().collect()
    }
}
