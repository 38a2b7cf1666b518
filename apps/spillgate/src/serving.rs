//! What a process serves now, and what it served before and has not ended yet: a reload puts a new definition beside the old
//! one, new requests go to the new one, and the old one ends with its last request.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLock;
use spillgate_controller::host::PipelineHost;
use spillgate_telemetry::Telemetry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::deployment::Deployment;
use crate::embedded::Embedded;
use crate::process_context::ProcessContext;
use crate::start_error::StartError;
use crate::status::StatusReader;

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

/// The server ends.
pub(crate) struct ServerEnds;

impl Serving {
    /// Starts what a process holds, observed by its telemetry.
    ///
    /// # Errors
    /// When a device, model or profile is missing.
    pub(crate) fn start(
        context: &ProcessContext,
        telemetry: &Telemetry,
        deployments: &[Deployment],
    ) -> Result<Self, StartError> {
        for deployment in deployments {
            telemetry.register_pipeline(&deployment.pipeline);
        }
        let embedded = Embedded::start(context, deployments, None)?;
        for (id, name) in embedded.device_names() {
            telemetry.register_device(*id, name);
        }
        if let Some(role) = &context.role {
            telemetry.register_processes(embedded.processes(role));
        }
        let serving = Serving::new(embedded);
        telemetry.register_queue_lengths(Box::new({
            let serving = serving.clone();
            move || (serving.now().queue_lengths())()
        }));
        telemetry.register_planners(Box::new({
            let serving = serving.clone();
            move || (serving.now().planners())()
        }));
        Ok(serving)
    }

    /// Reads the state of the process at any time.
    pub(crate) fn status(&self, context: &ProcessContext) -> impl Fn() -> StatusReader + use<> {
        let (serving, role, began) = (self.clone(), context.role.clone(), Instant::now());
        move || serving.now().status(role.clone(), began)
    }

    fn new(embedded: Embedded) -> Self {
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
    pub(crate) async fn place_to_end(&self) -> Result<OwnedSemaphorePermit, ServerEnds> {
        if self.ending.available_permits() == 0 {
            tracing::info!(
                "a reload waits for an earlier definition, whose last requests have not ended"
            );
        }
        let place = self.ending.clone().acquire_owned().await;
        place.map_err(|_| ServerEnds)
    }

    /// Puts another in the place of what is served. Returns that one.
    ///
    /// # Errors
    /// The other one, where the server ends.
    pub(crate) fn replace(&self, by: Embedded) -> Result<Arc<Embedded>, Box<Embedded>> {
        let mut generations = self.generations.write();
        if generations.is_closed {
            return Err(Box::new(by));
        }
        let old = std::mem::replace(&mut generations.current, Arc::new(by));
        generations.ending.push(old.clone());
        Ok(old)
    }

    pub(crate) fn forget(&self, ended: &Arc<Embedded>) {
        let mut generations = self.generations.write();
        generations.ending.retain(|e| !Arc::ptr_eq(e, ended));
    }
}
