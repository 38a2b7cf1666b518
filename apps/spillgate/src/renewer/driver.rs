//! Performs what the rollout decides, and tells it what happens. One task, which owns the rollout.

use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_controller::api::Api;
use spillgate_controller::host::{PipelineHost, RequestIds};
use spillgate_controller_policy::rollout::{
    Admission, Command, Outcomes, RevisionId, RolloutConfig, Share, Strategy,
};
use spillgate_telemetry::Telemetry;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::decides::{Decides, Happens};
use super::{RenewError, Renewed};
use crate::deployment::Revision;
use crate::embedded::{Embedded, STOP_LIMIT};
use crate::freed_memory;
use crate::health::service_of;
use crate::process_context::ProcessContext;
use crate::readiness::without_workers;
use crate::served::Served;
use crate::serving::{ENDING_MAX, Serving};

/// How long a revision had no request when it is drained: a stream that read a frame just before admission moved has submitted it by
/// then.
const SETTLES: Duration = Duration::from_secs(1);
/// How often is looked whether it has any.
const DRAIN_LOOK: Duration = Duration::from_millis(20);
/// How often the rollout hears of requests that ended: a revision that fails is to go within a second.
const LOOK: Duration = Duration::from_millis(200);

/// A revision that is to be served.
pub(super) struct Offer {
    pub(super) revision: Revision,
    /// The publication that it is of; 0: of none.
    pub(super) generation: u64,
    /// How it takes the place of the other one; `None`: as the process does by itself.
    pub(super) config: Option<RolloutConfig>,
    /// Hears what becomes of it, where somebody waits for that.
    pub(super) answer: Option<oneshot::Sender<Result<Renewed, RenewError>>>,
}

/// What clients of a process see.
pub(crate) struct Face {
    pub(crate) api: Arc<Api>,
    pub(crate) health: HealthReporter,
}

/// What the driver is told.
pub(super) enum Told {
    Offered(Offer),
    /// The revision of a publication cannot be read or served here; why.
    Unread(u64, RevisionId, String),
    Started(RevisionId, Result<Box<Embedded>, String>),
    Drained(RevisionId),
}

/// An offer that has no answer yet.
struct Pending {
    id: RevisionId,
    was_held: bool,
    answer: oneshot::Sender<Result<Renewed, RenewError>>,
}

pub(super) struct Driver {
    context: ProcessContext,
    telemetry: Arc<Telemetry>,
    serving: Serving,
    /// Of pipelines, in `serving`.
    group: usize,
    face: Option<Face>,
    decides: Decides,
    /// What may be started, or started again: those that are decided about.
    revisions: IndexMap<RevisionId, Revision, FxBuildHasher>,
    /// The publication that is served.
    generation: u64,
    /// Those that run, and whose modules do not all have workers yet.
    without_workers: Vec<RevisionId>,
    ids: Option<Arc<RequestIds>>,
    /// What was counted of the pipelines of live revisions.
    counted: IndexMap<(RevisionId, Arc<str>), Outcomes, FxBuildHasher>,
    draining: IndexMap<RevisionId, AbortHandle, FxBuildHasher>,
    ending: Vec<JoinHandle<()>>,
    /// The strategy of the revision that was offered last.
    strategy: Strategy,
    /// It waits until fewer revisions live.
    waiting: Option<Offer>,
    pending: Option<Pending>,
    tell: mpsc::Sender<Told>,
}

impl Driver {
    pub(super) fn new(
        context: ProcessContext,
        telemetry: Arc<Telemetry>,
        (serving, group): (Serving, usize),
        face: Option<Face>,
        (decides, revision): (Decides, Revision),
        tell: mpsc::Sender<Told>,
    ) -> Self {
        let serves = serving.of(group, revision.id);
        Driver {
            ids: serves.map(|served| served.embedded.ids()),
            strategy: context.rollout.strategy,
            context,
            telemetry,
            serving,
            group,
            face,
            decides,
            revisions: [(revision.id, revision)].into_iter().collect(),
            generation: 0,
            without_workers: Vec::new(),
            counted: IndexMap::default(),
            draining: IndexMap::default(),
            ending: Vec::new(),
            waiting: None,
            pending: None,
            tell,
        }
    }

    /// Runs until the server ends.
    pub(super) async fn run(mut self, mut told: mpsc::Receiver<Told>) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let heard = tokio::select! {
                heard = told.recv() => heard,
                _ = looks.tick() => None,
            };
            if self.serving.is_closed() {
                // Whoever waits for an answer hears that the server ends.
                return self.close(told).await;
            }
            match heard {
                Some(Told::Offered(offer)) => self.waiting = Some(offer),
                Some(Told::Started(id, Ok(embedded))) => self.started(id, *embedded).await,
                Some(Told::Started(id, Err(why))) => {
                    self.hears(Happens::NotStarted(id, &why)).await;
                }
                Some(Told::Unread(generation, id, why)) => {
                    self.generation = generation;
                    self.unread(id, &why).await;
                }
                Some(Told::Drained(id)) => {
                    if self.draining.swap_remove(&id).is_some() {
                        self.hears(Happens::Drained(id)).await;
                    }
                }
                None => self.look().await,
            }
            self.offer().await;
        }
    }

    /// Devices that have started meanwhile end.
    async fn close(self, mut told: mpsc::Receiver<Told>) {
        drop((self.waiting, self.pending, self.tell));
        while let Some(heard) = told.recv().await {
            if let Told::Started(_, Ok(embedded)) = heard {
                let _ = tokio::task::spawn_blocking(move || embedded.stop(STOP_LIMIT)).await;
            }
        }
    }

    async fn look(&mut self) {
        self.count().await;
        let live = self.serving.all_of(self.group);
        for (id, served) in &live {
            self.hears(Happens::Gateways(*id, served.gateways())).await;
        }
        let waits = take(&mut self.without_workers).into_iter();
        for id in waits {
            let Some((_, served)) = live.iter().find(|(of, _)| *of == id) else {
                continue;
            };
            match (self.unable(id), without_workers(&served.hosts())) {
                (Some(why), _) => drop(self.hears(Happens::NotStarted(id, &why)).await),
                (None, None) => self.ready(id).await,
                (None, Some(_)) => self.without_workers.push(id),
            }
        }
        let now = self.context.clock.now();
        if self.decides.next_wakeup().is_some_and(|at| at <= now) {
            self.hears(Happens::Wakeup).await;
        }
    }

    /// Why another process cannot serve a revision, as it says.
    fn unable(&self, id: RevisionId) -> Option<String> {
        let publishing = self.context.set.as_ref()?.publishing.as_ref()?;
        publishing.unable(self.group, self.generation, id)
    }

    /// Tells the policy of the requests that have ended since it was told last.
    async fn count(&mut self) {
        let live = self.serving.all_of(self.group);
        self.counted
            .retain(|(id, _), _| live.iter().any(|(of, _)| of == id));
        for (id, served) in &live {
            for host in served.hosts() {
                let name: Arc<str> = host.pipeline().name.as_str().into();
                let now = host.outcomes();
                let before = self.counted.entry((*id, name.clone())).or_default();
                let ended = now.since(std::mem::replace(before, now));
                if ended != Outcomes::default() {
                    self.hears(Happens::Ended(*id, &name, ended)).await;
                }
            }
        }
    }

    /// Offers what waits, if there is room.
    async fn offer(&mut self) {
        let Some(offer) = self.waiting.take() else {
            return;
        };
        let id = offer.revision.id;
        let was_held = self.decides.holds(id);
        // What follows gateways makes room itself, once it is told.
        let makes_room = matches!(self.decides, Decides::Inner(..));
        if !makes_room && !was_held && self.serving.all_of(self.group).len() > ENDING_MAX {
            self.waiting = Some(offer);
            return;
        }
        self.revisions.insert(id, offer.revision);
        self.generation = offer.generation;
        self.pending = offer.answer.map(|answer| Pending {
            id,
            was_held,
            answer,
        });
        let was_served = self.decides.share_of(id) > Share::NONE;
        let config = offer.config.unwrap_or(self.context.rollout);
        self.strategy = config.strategy;
        let n_commands = self.hears(Happens::Offered(id, config)).await;
        if was_served && n_commands == 0 {
            self.answer(Ok(Renewed::Same));
        }
    }

    /// A revision that is published cannot be served here.
    async fn unread(&mut self, id: RevisionId, why: &str) {
        match &self.decides {
            // Nothing was begun: the others hear of it.
            Decides::Gateway(_) => self.taken_back(id, why),
            Decides::Inner(..) => {
                // Nothing is to start, and nothing to give way to it.
                let config = RolloutConfig {
                    strategy: Strategy::Recreate,
                    ..self.context.rollout
                };
                self.hears(Happens::Offered(id, config)).await;
                self.hears(Happens::NotStarted(id, why)).await;
            }
        }
    }

    /// Tells the policy, and does what it says. Returns how much that was.
    async fn hears(&mut self, happens: Happens<'_>) -> usize {
        let now = self.context.clock.now();
        let commands = self.decides.on_event(now, happens);
        let n_commands = commands.len();
        for command in commands {
            self.perform(command).await;
        }
        let views = self.decides.view();
        self.revisions.retain(|id, _| self.decides.knows(*id));
        if self.serving.show(self.group, views, self.generation) {
            let live = self.serving.all_of(self.group);
            let links = live.iter().flat_map(|(_, served)| served.links());
            links.for_each(|links| links.report());
        }
        n_commands
    }

    async fn perform(&mut self, command: Command) {
        match command {
            Command::Start(id) => self.start(id),
            Command::Admit(admission) => self.admit(admission).await,
            Command::Drain(id) => self.drain(id),
            Command::End(id) => self.end(id),
            Command::TakenBack(id, why) => {
                let is_pending = self.pending.as_ref().is_some_and(|p| p.id == id);
                let why = match self.decides.admits_nobody() {
                    true => format!("{why}; the revision before is started again"),
                    false => why,
                };
                match is_pending {
                    true => self.answer(Err(RenewError::TakenBack(why))),
                    false => self.taken_back(id, &why),
                }
            }
            Command::Lost(why) => {
                tracing::error!(
                    "nothing is served: the revision before was to serve again, and {why}; correct it and send SIGHUP"
                );
                self.answer(Err(RenewError::TakenBack(why)));
            }
        }
    }

    /// A revision does not serve, or not any more. All gateways of a set go back together.
    fn taken_back(&self, id: RevisionId, why: &str) {
        tracing::warn!(revision = %id, "taken back: {why}");
        let set = self.context.set.as_ref();
        if let (Some(publishing), Decides::Gateway(_)) =
            (set.and_then(|set| set.publishing.as_ref()), &self.decides)
        {
            publishing.taken_back(self.group, id, why);
        }
    }

    fn answer(&mut self, answer: Result<Renewed, RenewError>) {
        if let Some(pending) = self.pending.take() {
            // Whoever asked may have gone.
            let _ = pending.answer.send(answer);
        }
    }

    fn start(&mut self, id: RevisionId) {
        let Some(revision) = self.revisions.get(&id).cloned() else {
            return;
        };
        let (context, tell) = (self.context.of_revision(&revision), self.tell.clone());
        let ids = self.ids.clone();
        let ending = match self.strategy {
            // What ends gives its memory back first.
            Strategy::Recreate => take(&mut self.ending),
            Strategy::AtOnce | Strategy::Share(_) => Vec::new(),
        };
        tokio::spawn(async move {
            for ended in ending {
                let _ = ended.await;
            }
            let starting = move || Embedded::start(&context, &revision.deployments, ids);
            let started = match tokio::task::spawn_blocking(starting).await {
                Ok(Ok(embedded)) => Ok(Box::new(embedded)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("the start failed".to_owned()),
            };
            // Where nobody listens any more the process ends.
            let _ = tell.send(Told::Started(id, started)).await;
        });
    }

    async fn started(&mut self, id: RevisionId, embedded: Embedded) {
        if !self.decides.knows(id) {
            // It was given up while it started.
            let _ = tokio::task::spawn_blocking(move || embedded.stop(STOP_LIMIT)).await;
            return;
        }
        for (id, name) in embedded.device_names() {
            self.telemetry.register_device(*id, name);
        }
        let served = Served::all(Arc::new(embedded));
        match self.serving.add(self.group, id, served.clone()) {
            Ok(()) => match (&self.context.role, &self.decides) {
                (None, _) => self.ready(id).await,
                (Some(role), decides) => {
                    served.embedded.join(role);
                    match decides {
                        Decides::Gateway(_) => self.without_workers.push(id),
                        Decides::Inner(..) => self.ready(id).await,
                    }
                }
            },
            Err(served) => {
                let _ = tokio::task::spawn_blocking(move || served.stop(STOP_LIMIT)).await;
            }
        }
    }

    async fn ready(&mut self, id: RevisionId) {
        // Those of the old revision that ended before admission moves are what the new one is compared with.
        self.count().await;
        self.hears(Happens::Ready(id)).await;
    }

    async fn admit(&mut self, admission: Admission) {
        let before = self.serving.now_of(self.group);
        self.serving.admit(self.group, admission);
        let live = self.serving.all_of(self.group).into_iter();
        let admitted = live.filter(|(id, _)| admission.share_of(*id) > Share::NONE);
        let admitted: Vec<(RevisionId, Served)> = admitted.collect();
        for (id, served) in &admitted {
            if let Some(draining) = self.draining.swap_remove(id) {
                draining.abort();
            }
            for host in served.hosts() {
                self.telemetry.register_pipeline(host.pipeline());
            }
        }
        if let Some(face) = &self.face {
            let hosts = admitted.iter().map(|(id, served)| (*id, served.hosts()));
            face.api.admit(self.group, admission, hosts);
            let before = before.iter().flat_map(Served::hosts).collect();
            self.tell_health(face, before, &admitted).await;
        }
        if let Some(pending) = &self.pending {
            let share = admission.share_of(pending.id);
            if share > Share::NONE {
                let renewed = match pending.was_held {
                    true => Renewed::Undone,
                    false => Renewed::Serves(share),
                };
                self.answer(Ok(renewed));
            }
        }
    }

    /// Pipelines that are served are SERVING; others are not, while nothing takes their place, or do not exist.
    async fn tell_health(
        &self,
        face: &Face,
        before: Vec<Arc<PipelineHost>>,
        admitted: &[(RevisionId, Served)],
    ) {
        if self.serving.is_closed() {
            return;
        }
        let name_of = |host: &Arc<PipelineHost>| service_of(&host.pipeline().name);
        let hosts = admitted.iter().flat_map(|(_, served)| served.hosts());
        let served: Vec<String> = hosts.map(|host| name_of(&host)).collect();
        let mut health = face.health.clone();
        for name in &served {
            let serving = ServingStatus::Serving;
            health.set_service_status(name, serving).await;
        }
        let before = before.iter().map(name_of);
        for gone in before.filter(|name| !served.contains(name)) {
            match admitted.is_empty() {
                true => {
                    let away = ServingStatus::NotServing;
                    health.set_service_status(&gone, away).await;
                }
                false => health.clear_service_status(&gone).await,
            }
        }
    }

    /// Says when the revision has no requests any more.
    fn drain(&mut self, id: RevisionId) {
        let Some(served) = self.serving.of(self.group, id) else {
            return;
        };
        let (drain, tell) = (self.context.drain, self.tell.clone());
        let draining = tokio::spawn(async move {
            let hosts = served.hosts();
            let in_flight = || hosts.iter().map(|host| host.in_flight()).sum::<usize>();
            let began = Instant::now();
            let mut idle_since = Instant::now();
            while idle_since.elapsed() < SETTLES && began.elapsed() < drain.max(SETTLES) {
                tokio::time::sleep(DRAIN_LOOK).await;
                if in_flight() > 0 {
                    idle_since = Instant::now();
                }
            }
            let aborted = in_flight();
            if aborted > 0 {
                tracing::warn!(
                    revision = %id,
                    aborted,
                    "requests of the revision did not end in time and were dropped"
                );
            }
            hosts.iter().for_each(|host| host.abort());
            // Where nobody listens any more the process ends.
            let _ = tell.send(Told::Drained(id)).await;
        });
        self.draining.insert(id, draining.abort_handle());
    }

    /// Stops the revision. One that has not started yet ends when it has.
    fn end(&mut self, id: RevisionId) {
        let Some(old) = self.serving.of(self.group, id) else {
            return;
        };
        if let Some(draining) = self.draining.swap_remove(&id) {
            draining.abort();
        }
        for host in old.hosts() {
            host.drain();
            host.abort();
        }
        let (serving, group) = (self.serving.clone(), self.group);
        self.ending.retain(|ending| !ending.is_finished());
        self.ending.push(tokio::spawn(async move {
            old.part().await;
            let stopped = tokio::task::spawn_blocking(move || {
                let busy = old.stop(STOP_LIMIT);
                serving.forget(group, &old);
                drop(old);
                // Models and queues of one revision are megabytes, and the next one has taken its own already.
                freed_memory::give_back();
                busy
            });
            for device in stopped.await.unwrap_or_default() {
                tracing::warn!(revision = %id, device, "a device of the revision was still busy");
            }
        }));
    }
}
