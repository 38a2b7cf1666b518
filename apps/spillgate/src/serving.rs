//! What a process serves now, and what it served before and has not ended yet: a reload puts a new definition beside the old
//! one, new requests go to the new one, and the old one ends with its last request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use spillgate_backend::operator::Library;
use spillgate_controller::api::Api;
use spillgate_controller::host::PipelineHost;
use spillgate_process::account::Account;
use spillgate_process::clock::Clock;
use spillgate_telemetry::Telemetry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::cores::Cores;
use crate::embedded::{Deployment, Embedded, StartError, Surroundings};
use crate::fleets::Placing;
use crate::freed_memory;
use crate::health::service_of;
use crate::server::STOP_LIMIT;

/// How long the old definition had no request when it ends: a stream that read a frame just before the change has submitted it by
/// then.
const SETTLES: Duration = Duration::from_secs(1);
/// How often is looked whether it has any.
const LOOK: Duration = Duration::from_millis(20);

/// Most definitions that end at a time. Each holds its threads and models until then, so a further reload waits.
pub(crate) const ENDING_MAX: usize = 2;

/// What is served now. Clones share it.
#[derive(Clone)]
pub(crate) struct Serving {
    generations: Arc<RwLock<Generations>>,
    /// Places for definitions that end. Closed when the server ends.
    ending: Arc<Semaphore>,
}

struct Generations {
    current: Arc<Embedded>,
    /// Earlier ones that still have requests.
    ending: Vec<Arc<Embedded>>,
    /// The server ends: nothing takes the place of what is served any more.
    is_closed: bool,
}

impl Serving {
    pub(crate) fn new(embedded: Embedded) -> Self {
        let generations = Generations {
            current: Arc::new(embedded),
            ending: Vec::new(),
            is_closed: false,
        };
        Serving {
            generations: Arc::new(RwLock::new(generations)),
            ending: Arc::new(Semaphore::new(ENDING_MAX)),
        }
    }

    /// What new requests go to.
    pub(crate) fn now(&self) -> Arc<Embedded> {
        self.generations.read().current.clone()
    }

    /// All that has requests.
    pub(crate) fn all(&self) -> Vec<Arc<Embedded>> {
        let generations = self.generations.read();
        let ending = generations.ending.iter().cloned();
        ending.chain([generations.current.clone()]).collect()
    }

    /// The hosts of all that has requests.
    pub(crate) fn all_hosts(&self) -> Vec<Arc<PipelineHost>> {
        let all = self.all();
        all.iter().flat_map(|e| e.hosts.iter().cloned()).collect()
    }

    /// Requests that have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.all_hosts().iter().map(|host| host.in_flight()).sum()
    }

    /// From now on nothing takes the place of what is served.
    pub(crate) fn close(&self) {
        self.generations.write().is_closed = true;
        self.ending.close();
    }

    /// Waits until another definition may end, and takes a place for it.
    ///
    /// # Errors
    /// When the server ends.
    async fn place_to_end(&self) -> Result<OwnedSemaphorePermit, RenewError> {
        if self.ending.available_permits() == 0 {
            tracing::info!(
                "a reload waits for an earlier definition, whose last requests have not ended"
            );
        }
        let place = self.ending.clone().acquire_owned().await;
        place.map_err(|_| RenewError::Ends)
    }

    /// Puts another in the place of what is served. Returns that one.
    ///
    /// # Errors
    /// The other one, where the server ends.
    fn replace(&self, by: Embedded) -> Result<Arc<Embedded>, Box<Embedded>> {
        let mut generations = self.generations.write();
        if generations.is_closed {
            return Err(Box::new(by));
        }
        let old = std::mem::replace(&mut generations.current, Arc::new(by));
        generations.ending.push(old.clone());
        Ok(old)
    }

    fn forget(&self, ended: &Arc<Embedded>) {
        let mut generations = self.generations.write();
        generations.ending.retain(|e| !Arc::ptr_eq(e, ended));
    }
}

/// Why another definition cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// Frames could become larger than connections take.
    #[error(
        "limits.frame_bytes of {pipeline} is {bytes}, and connections take {limit} at most since the start; restart to raise it"
    )]
    FrameBytes {
        /// The pipeline.
        pipeline: String,
        /// What it asks for.
        bytes: usize,
        /// What connections take.
        limit: usize,
    },
    /// Devices or models.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The server ends.
    #[error("the server ends")]
    Ends,
}

/// Replaces what a server serves.
pub(crate) struct Renewal {
    pub(crate) serving: Serving,
    pub(crate) api: Arc<Api>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) library: Arc<Library>,
    pub(crate) clock: Clock,
    pub(crate) n_decoders: usize,
    pub(crate) placing: Option<Placing>,
    pub(crate) cores: Cores,
    pub(crate) account: Arc<Account>,
    pub(crate) health: HealthReporter,
    /// Largest frame that connections take.
    pub(crate) frame_bytes: usize,
    /// How long requests of the old definition may take to end.
    pub(crate) drain: Duration,
}

impl Renewal {
    /// Serves these pipelines from now on. Returns once they serve; what was served ends in the background. To be called in a
    /// runtime, on a thread that may block.
    ///
    /// # Errors
    /// When they cannot be served. Then nothing changes.
    pub(crate) fn renew(&self, deployments: &[Deployment]) -> Result<(), RenewError> {
        for pipeline in deployments.iter().map(|d| &d.pipeline) {
            let bytes = pipeline.limits.frame_bytes;
            if bytes > self.frame_bytes {
                return Err(RenewError::FrameBytes {
                    pipeline: pipeline.name.clone(),
                    bytes,
                    limit: self.frame_bytes,
                });
            }
            self.telemetry.register_pipeline(pipeline);
        }
        let runtime = tokio::runtime::Handle::current();
        let place = runtime.block_on(self.serving.place_to_end())?;
        let new = Embedded::start(
            deployments,
            &self.library,
            Surroundings {
                clock: self.clock.clone(),
                observer: self.telemetry.clone(),
                n_decoders: self.n_decoders,
                part: None,
                replaces: Some(&self.serving.now()),
                account: self.account.clone(),
                placing: self.placing.as_ref(),
                cores: &self.cores,
                loading: &|_| {},
            },
        )?;
        for (id, name) in new.device_names() {
            self.telemetry.register_device(*id, name);
        }
        let hosts = new.hosts.clone();
        let old = self.serving.replace(new).map_err(|new| {
            new.stop(STOP_LIMIT);
            RenewError::Ends
        })?;
        self.api.replace(hosts.clone());
        runtime.block_on(self.tell_health(&old, &hosts));
        runtime.spawn(end(self.serving.clone(), old, self.drain, place));
        Ok(())
    }

    async fn tell_health(&self, old: &Embedded, hosts: &[Arc<PipelineHost>]) {
        let name_of = |host: &Arc<PipelineHost>| service_of(&host.pipeline().name);
        for host in hosts {
            let serving = ServingStatus::Serving;
            self.health.set_service_status(name_of(host), serving).await;
        }
        let mut health = self.health.clone();
        let kept: Vec<String> = hosts.iter().map(name_of).collect();
        for gone in old
            .hosts
            .iter()
            .map(name_of)
            .filter(|name| !kept.contains(name))
        {
            health.clear_service_status(&gone).await;
        }
    }
}

/// Ends what was served before, once it has no request any more.
async fn end(serving: Serving, old: Arc<Embedded>, drain: Duration, place: OwnedSemaphorePermit) {
    let in_flight = || old.hosts.iter().map(|host| host.in_flight()).sum::<usize>();
    let began = Instant::now();
    let mut idle_since = Instant::now();
    while idle_since.elapsed() < SETTLES && began.elapsed() < drain.max(SETTLES) {
        tokio::time::sleep(LOOK).await;
        if in_flight() > 0 {
            idle_since = Instant::now();
        }
    }
    let aborted = in_flight();
    if aborted > 0 {
        tracing::warn!(
            aborted,
            "requests of the old definition did not end in time and were dropped"
        );
    }
    for host in &old.hosts {
        host.drain();
        host.abort();
    }
    serving.forget(&old);
    let stopped = tokio::task::spawn_blocking(move || {
        let busy = old.stop(STOP_LIMIT);
        drop(old);
        // Models and queues of one definition are megabytes, and the next one has taken its own already.
        freed_memory::give_back();
        drop(place);
        busy
    });
    for device in stopped.await.unwrap_or_default() {
        tracing::warn!(device, "a device of the old definition was still busy");
    }
}
