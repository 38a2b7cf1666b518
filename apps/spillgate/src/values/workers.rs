//! What runs beside each worker, in its process.

use std::sync::Arc;

use parking_lot::RwLock;
use spillgate_pipeline::id::{ModuleId, WorkerId};
use spillgate_protocol::message::Place;

/// A worker, and what runs in its process.
#[derive(Clone, Debug)]
pub(super) struct KnownWorker {
    pub(super) module: ModuleId,
    /// The modules of all workers there, its own included.
    pub(super) beside: Arc<[ModuleId]>,
}

/// The workers of all processes, by id.
#[derive(Default)]
pub(super) struct KnownWorkers(RwLock<Vec<Option<KnownWorker>>>);

impl KnownWorkers {
    /// These are all workers of a process.
    pub(super) fn join(&self, places: &[Place]) {
        let mut modules: Vec<ModuleId> = places.iter().map(|place| place.module).collect();
        modules.sort_unstable();
        modules.dedup();
        let beside: Arc<[ModuleId]> = modules.into();
        let mut known = self.0.write();
        for Place { worker, module, .. } in places {
            if known.len() <= worker.idx() {
                known.resize(worker.idx() + 1, None);
            }
            known[worker.idx()] = Some(KnownWorker {
                module: *module,
                beside: beside.clone(),
            });
        }
    }

    /// These workers have left.
    pub(super) fn forget(&self, places: &[Place]) {
        let mut known = self.0.write();
        for place in places {
            if let Some(worker) = known.get_mut(place.worker.idx()) {
                *worker = None;
            }
        }
    }

    /// A worker; `None` where it has left, or never was.
    pub(super) fn get(&self, worker: WorkerId) -> Option<KnownWorker> {
        self.0.read().get(worker.idx())?.clone()
    }

    /// Its module.
    pub(super) fn module_of(&self, worker: WorkerId) -> Option<ModuleId> {
        let known = self.0.read();
        Some(known.get(worker.idx())?.as_ref()?.module)
    }
}
