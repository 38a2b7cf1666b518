//! What a process serves: of each group of pipelines that are rolled out together a revision of their definition, and during a rollout a
//! second one beside it; and those that end with their last request. Alone, a process has one group. In a set each pipeline is one.

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
use crate::served::Served;
use crate::start_error::StartError;
use crate::status::StatusReader;

/// Most revisions that live beside the newest one: the one before it, and one that ends. Each holds its threads and models until it
/// ends, so a further reload waits.
pub(crate) const ENDING_MAX: usize = 2;

/// What is served now. Clones share it.
#[derive(Clone)]
pub(crate) struct Serving {
    state: Arc<RwLock<State>>,
}

struct State {
    groups: Vec<Group>,
    /// The server ends: nothing takes the place of what is served any more.
    is_closed: bool,
}

/// Pipelines that are rolled out together.
struct Group {
    /// All revisions that hold devices.
    live: Vec<(RevisionId, Served)>,
    admission: Admission,
    /// As the rollout shows them.
    views: Vec<RevisionView>,
    /// The publication that it serves, or tries to; 0: what the files say.
    generation: u64,
}

impl Group {
    fn new(id: RevisionId, served: Served) -> Self {
        Group {
            live: vec![(id, served)],
            admission: Admission::One(id),
            views: Vec::new(),
            generation: 0,
        }
    }

    /// What most new requests go to.
    fn now(&self) -> Option<&Served> {
        let share = |(id, _): &&(RevisionId, Served)| self.admission.share_of(*id);
        let most = self.live.iter().max_by_key(share)?;
        (share(&most) > Share::NONE).then_some(&most.1)
    }
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
        let embedded = Arc::new(Embedded::start(context, &revision.deployments, None)?);
        for (id, name) in embedded.device_names() {
            telemetry.register_device(*id, name);
        }
        let groups = match &context.set {
            None => vec![Group::new(revision.id, Served::all(embedded))],
            Some(set) => {
                telemetry.register_processes(set.processes.clone());
                let each = Served::each(&embedded).into_iter();
                let each = each.zip(&revision.deployments);
                each.map(|(served, of)| Group::new(of.revision(), served))
                    .collect()
            }
        };
        let state = State {
            groups,
            is_closed: false,
        };
        let serving = Serving {
            state: Arc::new(RwLock::new(state)),
        };
        telemetry.register_queue_lengths(Box::new({
            let serving = serving.clone();
            move || {
                let now = serving.now();
                now.iter().flat_map(Served::queue_lengths).collect()
            }
        }));
        telemetry.register_planners(Box::new({
            let serving = serving.clone();
            move || {
                let mut all = PlannerReadings::default();
                let now = serving.now();
                now.iter().for_each(|served| served.planners(&mut all));
                all
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
        let (set, clock) = (context.set.clone(), context.clock.clone());
        move || {
            let mut reader = StatusReader::empty(role.clone(), began);
            reader.now = clock.now();
            reader.complaints = set
                .as_ref()
                .map_or_else(Vec::new, |set| set.complaints.all());
            let state = serving.state.read();
            for group in &state.groups {
                let Some(now) = group.now() else { continue };
                now.embedded.add_to(&mut reader, now.positions());
                let views = now.positions().iter().map(|_| group.views.clone());
                reader.revisions.extend(views);
            }
            for embedded in distinct(state.groups.iter().filter_map(Group::now)) {
                reader.devices.extend(embedded.devices());
            }
            reader
        }
    }

    /// What most new requests go to. Of a group of which one revision has ended and the next one is not ready there is nothing.
    pub(crate) fn now(&self) -> Vec<Served> {
        let state = self.state.read();
        state
            .groups
            .iter()
            .filter_map(Group::now)
            .cloned()
            .collect()
    }

    /// The same of one group.
    pub(crate) fn now_of(&self, group: usize) -> Option<Served> {
        self.state.read().groups[group].now().cloned()
    }

    /// What runs that, each once; and whether there is something of each group.
    pub(crate) fn running(&self) -> (Vec<Arc<Embedded>>, bool) {
        let state = self.state.read();
        let now = || state.groups.iter().filter_map(Group::now);
        (distinct(now()), now().count() == state.groups.len())
    }

    /// The hosts of what most new requests go to.
    pub(crate) fn hosts(&self) -> Vec<Arc<PipelineHost>> {
        let now = self.now();
        now.iter().flat_map(Served::hosts).collect()
    }

    /// The revision of a group, if it lives.
    pub(crate) fn of(&self, group: usize, id: RevisionId) -> Option<Served> {
        let state = self.state.read();
        let mut live = state.groups[group].live.iter();
        let found = live.find(|(of, _)| *of == id);
        found.map(|(_, served)| served.clone())
    }

    /// All of a group that may have requests.
    pub(crate) fn all_of(&self, group: usize) -> Vec<(RevisionId, Served)> {
        self.state.read().groups[group].live.clone()
    }

    /// All that may have requests.
    pub(crate) fn all(&self) -> Vec<Served> {
        let state = self.state.read();
        let all = state.groups.iter().flat_map(|group| &group.live);
        all.map(|(_, served)| served.clone()).collect()
    }

    /// What runs all that may have requests, each once.
    pub(crate) fn all_running(&self) -> Vec<Arc<Embedded>> {
        distinct(self.all().iter())
    }

    /// The hosts of all that may have requests.
    pub(crate) fn all_hosts(&self) -> Vec<Arc<PipelineHost>> {
        self.all().iter().flat_map(Served::hosts).collect()
    }

    /// Requests that have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.all_hosts().iter().map(|host| host.in_flight()).sum()
    }

    /// From now on nothing takes the place of what is served.
    pub(crate) fn close(&self) {
        self.state.write().is_closed = true;
    }

    /// Whether the server ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.read().is_closed
    }

    /// Another revision of a group runs.
    ///
    /// # Errors
    /// It, where the server ends.
    pub(crate) fn add(&self, group: usize, id: RevisionId, served: Served) -> Result<(), Served> {
        let mut state = self.state.write();
        if state.is_closed {
            return Err(served);
        }
        state.groups[group].live.push((id, served));
        Ok(())
    }

    /// New requests of a group go there from now on.
    pub(crate) fn admit(&self, group: usize, admission: Admission) {
        self.state.write().groups[group].admission = admission;
    }

    /// The revisions of a group, as its rollout shows them.
    pub(crate) fn views(&self, group: usize) -> Vec<RevisionView> {
        self.state.read().groups[group].views.clone()
    }

    /// The same, and the generation that is served.
    pub(crate) fn reports(&self, group: usize) -> (Vec<RevisionView>, u64) {
        let group = &self.state.read().groups[group];
        (group.views.clone(), group.generation)
    }

    /// What `/status` shows of the revisions of a group, and others are told. Whether that is something else than before.
    pub(crate) fn show(&self, group: usize, views: Vec<RevisionView>, generation: u64) -> bool {
        let group = &mut self.state.write().groups[group];
        let is_new = (&group.views, group.generation) != (&views, generation);
        (group.views, group.generation) = (views, generation);
        is_new
    }

    /// The revision has ended.
    pub(crate) fn forget(&self, group: usize, ended: &Served) {
        let mut state = self.state.write();
        let live = &mut state.groups[group].live;
        live.retain(|(_, of)| !Arc::ptr_eq(&of.embedded, &ended.embedded));
    }

    /// What the requests of each live revision came to, for metrics.
    fn readings(&self) -> Vec<RevisionReading> {
        let state = self.state.read();
        let of = |admission: Admission, id: RevisionId, host: &PipelineHost| {
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
        let mut readings = Vec::new();
        for group in &state.groups {
            for (id, served) in &group.live {
                let hosts = served.hosts();
                readings.extend(hosts.iter().map(|host| of(group.admission, *id, host)));
            }
        }
        readings
    }
}

/// What runs these, each once.
fn distinct<'a>(served: impl Iterator<Item = &'a Served>) -> Vec<Arc<Embedded>> {
    let mut all: Vec<Arc<Embedded>> = Vec::new();
    for of in served {
        if !all.iter().any(|known| Arc::ptr_eq(known, &of.embedded)) {
            all.push(of.embedded.clone());
        }
    }
    all
}
