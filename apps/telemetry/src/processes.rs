//! The processes of a set, as traces name them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::RwLock;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::WorkerId;

/// Where a worker is: its process, and its position there.
#[derive(Clone, Debug)]
struct WorkerAt {
    process: Arc<str>,
    position: u32,
}

/// The workers of a pipeline.
type ByWorker = HashMap<WorkerId, WorkerAt>;

/// By address of the pipeline: each of its revisions gives ids of its own. The address belongs to it while it is here.
type ByPipeline = HashMap<usize, (Weak<Pipeline>, ByWorker)>;

/// In which process what runs. Clones share it.
#[derive(Clone, Debug)]
pub struct Processes {
    /// The name of this process.
    pub(crate) here: Arc<str>,
    /// A worker that left stays until another one has its id, since what it did is exported later: so they are no more
    /// than there were workers at one time. Pipelines that nobody has any more go when another one comes.
    workers: Arc<RwLock<ByPipeline>>,
}

impl Processes {
    /// This process, and no other one.
    pub fn new(here: &str) -> Self {
        Processes {
            here: here.into(),
            workers: Arc::default(),
        }
    }

    /// These workers of a pipeline are in the process of that name from now on, in this order.
    pub fn join(
        &self,
        pipeline: &Arc<Pipeline>,
        process: &Arc<str>,
        workers: impl IntoIterator<Item = WorkerId>,
    ) {
        let workers = workers.into_iter().zip(0..).map(|(worker, position)| {
            let process = process.clone();
            (worker, WorkerAt { process, position })
        });
        let mut all = self.workers.write();
        all.retain(|_, (pipeline, _)| pipeline.strong_count() > 0);
        let of = all.entry(key(pipeline));
        let (_, of) = of.or_insert_with(|| (Arc::downgrade(pipeline), ByWorker::new()));
        of.extend(workers);
    }

    /// The process of a worker of a pipeline. What no worker of another one does, a source of bytes above all, is done here.
    pub(crate) fn of(&self, pipeline: &Arc<Pipeline>, worker: WorkerId) -> Arc<str> {
        let workers = self.workers.read();
        let at = workers
            .get(&key(pipeline))
            .and_then(|(_, of)| of.get(&worker));
        at.map_or(&self.here, |at| &at.process).clone()
    }

    /// A worker by its position in its process: ids differ between processes, and this does not.
    pub(crate) fn position(&self, pipeline: &Arc<Pipeline>, worker: WorkerId) -> WorkerId {
        let workers = self.workers.read();
        let at = workers
            .get(&key(pipeline))
            .and_then(|(_, of)| of.get(&worker));
        at.map_or(worker, |at| WorkerId(at.position))
    }
}

fn key(pipeline: &Arc<Pipeline>) -> usize {
    Arc::as_ptr(pipeline).addr()
}

/// Known once a process serves; never where it is alone.
pub(crate) type KnownProcesses = Arc<OnceLock<Processes>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn processes_with_other_ids_name_a_worker_alike() {
        let [one, other] = [(); 2].map(|()| testing::pipeline());
        let (gateway, worker) = (Processes::new("gateway-0"), Processes::new("a-0"));
        gateway.join(&one, &"a-1".into(), [WorkerId(3)]);
        gateway.join(&one, &"a-0".into(), [WorkerId(5), WorkerId(4)]);
        worker.join(&one, &"a-0".into(), [WorkerId(1), WorkerId(2)]);
        for (at_gateway, at_worker) in [(5, 1), (4, 2)] {
            assert_eq!(
                gateway.position(&one, WorkerId(at_gateway)),
                worker.position(&one, WorkerId(at_worker))
            );
        }
        assert_eq!(&*gateway.of(&one, WorkerId(4)), "a-0");
        // Another revision of the pipeline has the same name.
        assert_eq!(&*gateway.of(&other, WorkerId(4)), "gateway-0");
    }

    #[test]
    fn pipelines_that_are_gone_are_forgotten() {
        let processes = Processes::new("gateway-0");
        for _ in 0..8 {
            processes.join(&testing::pipeline(), &"a-0".into(), [WorkerId(1)]);
        }
        assert_eq!(processes.workers.read().len(), 1);
    }
}
