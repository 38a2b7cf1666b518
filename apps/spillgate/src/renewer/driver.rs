//! Performs what the rollout decides, and tells it what happens. One task, which owns the rollout.

use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_controller::api::Api;
use spillgate_controller::host::{PipelineHost, RequestIds};
use spillgate_controller_policy::rollout::{
    Admission, Command, Event, Outcomes, RevisionId, Rollout, Share, Strategy,
};
use spillgate_telemetry::Telemetry;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::{RenewError, Renewed};
use crate::deployment::{Deployment, Revision};
use crate::embedded::{Embedded, STOP_LIMIT};
use crate::freed_memory;
use crate::health::service_of;
use crate::process_context::ProcessContext;
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
    pub(super) answer: oneshot::Sender<Result<Renewed, RenewError>>,
}

/// What the driver is told.
pub(super) enum Told {
    Offered(Offer),
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
    api: Arc<Api>,
    health: HealthReporter,
    rollout: Rollout,
    /// What may be started, or started again: by revision, those that the rollout knows.
    deployments: IndexMap<RevisionId, Vec<Deployment>, FxBuildHasher>,
    ids: Option<Arc<RequestIds>>,
    /// What was counted of the pipelines of live revisions.
    counted: IndexMap<(RevisionId, Arc<str>), Outcomes, FxBuildHasher>,
    draining: IndexMap<RevisionId, AbortHandle, FxBuildHasher>,
    ending: Vec<JoinHandle<()>>,
    /// It waits until fewer revisions live.
    waiting: Option<Offer>,
    pending: Option<Pending>,
    tell: mpsc::Sender<Told>,
}

impl Driver {
    pub(super) fn new(
        context: ProcessContext,
        telemetry: Arc<Telemetry>,
        (serving, api): (Serving, Arc<Api>),
        health: HealthReporter,
        (rollout, revision): (Rollout, Revision),
        tell: mpsc::Sender<Told>,
    ) -> Self {
        Driver {
            ids: serving.of(revision.id).map(|embedded| embedded.ids()),
            context,
            telemetry,
            serving,
            api,
            health,
            rollout,
            deployments: [(revision.id, revision.deployments)].into_iter().collect(),
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
                    self.rollout_hears(Event::NotStarted(id, &why)).await;
                }
                Some(Told::Drained(id)) => {
                    if self.draining.swap_remove(&id).is_some() {
                        self.rollout_hears(Event::Drained(id)).await;
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
        let now = self.context.clock.now();
        if self.rollout.next_wakeup().is_some_and(|at| at <= now) {
            self.rollout_hears(Event::Wakeup).await;
        }
    }

    /// Tells the rollout of the requests that have ended since it was told last.
    async fn count(&mut self) {
        let live = self.serving.all();
        self.counted
            .retain(|(id, _), _| live.iter().any(|(of, _)| of == id));
        for (id, embedded) in &live {
            for host in &embedded.hosts {
                let name: Arc<str> = host.pipeline().name.as_str().into();
                let now = host.outcomes();
                let before = self.counted.entry((*id, name.clone())).or_default();
                let ended = now.since(std::mem::replace(before, now));
                if ended != Outcomes::default() {
                    self.rollout_hears(Event::Ended(*id, &name, ended)).await;
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
        let was_held = self.rollout.holds(id);
        if !was_held && self.serving.all().len() > ENDING_MAX {
            self.waiting = Some(offer);
            return;
        }
        self.deployments.insert(id, offer.revision.deployments);
        self.pending = Some(Pending {
            id,
            was_held,
            answer: offer.answer,
        });
        let was_served = self.rollout.admission().share_of(id) > Share::NONE;
        let n_commands = self.rollout_hears(Event::Offered(id)).await;
        if was_served && n_commands == 0 {
            self.answer(Ok(Renewed::Same));
        }
    }

    /// Tells the rollout, and does what it says. Returns how much that was.
    async fn rollout_hears(&mut self, event: Event<'_>) -> usize {
        let mut commands = Vec::new();
        let now = self.context.clock.now();
        self.rollout.on_event(now, event, &mut commands);
        let n_commands = commands.len();
        for command in commands {
            self.perform(command).await;
        }
        let views = self.rollout.view();
        self.deployments.retain(|id, _| self.rollout.knows(*id));
        self.serving.show(views);
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
                let why = match self.rollout.admission() {
                    Admission::Nobody => format!("{why}; the revision before is started again"),
                    _ => why,
                };
                match is_pending {
                    true => self.answer(Err(RenewError::TakenBack(why))),
                    false => tracing::warn!(revision = %id, "taken back: {why}"),
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

    fn answer(&mut self, answer: Result<Renewed, RenewError>) {
        if let Some(pending) = self.pending.take() {
            // Whoever asked may have gone.
            let _ = pending.answer.send(answer);
        }
    }

    fn start(&mut self, id: RevisionId) {
        let (context, tell) = (self.context.clone(), self.tell.clone());
        let deployments = self.deployments.get(&id).cloned().unwrap_or_default();
        let ids = self.ids.clone();
        let ending = match self.context.rollout.strategy {
            // What ends gives its memory back first.
            Strategy::Recreate => take(&mut self.ending),
            Strategy::AtOnce | Strategy::Share(_) => Vec::new(),
        };
        tokio::spawn(async move {
            for ended in ending {
                let _ = ended.await;
            }
            let starting = move || Embedded::start(&context, &deployments, ids);
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
        for (id, name) in embedded.device_names() {
            self.telemetry.register_device(*id, name);
        }
        // Those of the old revision that ended before admission moves are what the new one is compared with.
        self.count().await;
        match self.serving.add(id, embedded) {
            Ok(()) => drop(self.rollout_hears(Event::Ready(id)).await),
            Err(embedded) => {
                let _ = tokio::task::spawn_blocking(move || embedded.stop(STOP_LIMIT)).await;
            }
        }
    }

    async fn admit(&mut self, admission: Admission) {
        let before = self.serving.now();
        self.serving.admit(admission);
        let live = self.serving.all().into_iter();
        let admitted = live.filter(|(id, _)| admission.share_of(*id) > Share::NONE);
        let admitted: Vec<(RevisionId, Arc<Embedded>)> = admitted.collect();
        for (id, embedded) in &admitted {
            if let Some(draining) = self.draining.swap_remove(id) {
                draining.abort();
            }
            for host in &embedded.hosts {
                self.telemetry.register_pipeline(host.pipeline());
            }
        }
        let hosts = admitted.iter().map(|(id, e)| (*id, e.hosts.clone()));
        self.api.admit(admission, hosts);
        self.tell_health(before.as_deref(), &admitted).await;
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
        before: Option<&Embedded>,
        admitted: &[(RevisionId, Arc<Embedded>)],
    ) {
        if self.serving.is_closed() {
            return;
        }
        let name_of = |host: &Arc<PipelineHost>| service_of(&host.pipeline().name);
        let hosts = admitted.iter().flat_map(|(_, e)| &e.hosts);
        let served: Vec<String> = hosts.map(name_of).collect();
        let mut health = self.health.clone();
        for name in &served {
            let serving = ServingStatus::Serving;
            health.set_service_status(name, serving).await;
        }
        let before = before.iter().flat_map(|e| &e.hosts).map(name_of);
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
        let Some(embedded) = self.serving.of(id) else {
            return;
        };
        let (drain, tell) = (self.context.drain, self.tell.clone());
        let draining = tokio::spawn(async move {
            let hosts = &embedded.hosts;
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
        let Some(old) = self.serving.of(id) else {
            return;
        };
        if let Some(draining) = self.draining.swap_remove(&id) {
            draining.abort();
        }
        for host in &old.hosts {
            host.drain();
            host.abort();
        }
        let serving = self.serving.clone();
        self.ending.retain(|ending| !ending.is_finished());
        self.ending.push(tokio::spawn(async move {
            let stopped = tokio::task::spawn_blocking(move || {
                let busy = old.stop(STOP_LIMIT);
                serving.forget(&old);
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
