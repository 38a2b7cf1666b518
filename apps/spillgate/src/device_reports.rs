//! Brings what devices report to the pipelines that it is for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_controller::host::{ItemResult, PipelineHost};
use spillgate_controller::record::BatchRecord;
use spillgate_pipeline::action::BatchItem;
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, WorkerId};
use spillgate_pipeline::request::ModuleTimes;
use spillgate_process::job::{Job, Ran};
use spillgate_protocol::message::{Address, Place, ToGateway};
use spillgate_worker::device::RanBatch;
use spillgate_worker::device::brokers::Upstream;

/// Passes the reports of devices to hosts. A worker belongs to one host. Hosts have ways to their devices, so devices keep no host: what
/// they say to one that is gone is heard by nobody.
pub(crate) struct DeviceReports {
    /// The one in which the devices number their batches.
    life: Incarnation,
    routes: IndexMap<WorkerId, Weak<PipelineHost>, FxBuildHasher>,
    hosts: Vec<Weak<PipelineHost>>,
}

impl DeviceReports {
    /// For devices that number their batches in that life.
    pub(crate) fn new(life: Incarnation, hosts: &[Arc<PipelineHost>]) -> Self {
        let of = |host: &Arc<PipelineHost>| {
            let route = |place: &Place| (place.worker, Arc::downgrade(host));
            host.workers().iter().map(route).collect::<Vec<_>>()
        };
        DeviceReports {
            life,
            routes: hosts.iter().flat_map(of).collect(),
            hosts: hosts.iter().map(Arc::downgrade).collect(),
        }
    }

    fn host(&self, worker: WorkerId) -> Option<Arc<PipelineHost>> {
        self.routes.get(&worker)?.upgrade()
    }

    /// A part of a batch ran: the requests of one worker, with their results.
    fn finished(&self, batch: &RanBatch, ran_together: u32, own: Vec<(BatchItem<Arc<Job>>, Ran)>) {
        let Some((first, _)) = own.first() else {
            return;
        };
        let (worker, variant) = (first.worker, first.request.variant);
        let Some(host) = self.host(worker) else {
            return;
        };
        let Some(place) = host.workers().get(worker) else {
            return;
        };
        let record = BatchRecord {
            device: place.device,
            batch: batch.id,
            module: place.module,
            worker,
            variant,
            size: own.len() as u32,
            ran_together,
            started_at: batch.started_at,
            expected_end: batch.expected_end,
            reported_end: batch.reported_end,
            ended_at: batch.ended_at,
            incarnation: self.life,
            is_traced: own.iter().any(|(m, _)| m.payload.is_traced()),
        };
        tracing::debug!(
            target: "spillgate::batch",
            device = record.device.0, worker = record.worker.0, batch = record.batch.0,
            took_ms = record.ended_at.since(record.started_at).as_secs_f64() * 1e3,
            requests = ?own.iter().map(|(m, _)| m.request.id.0).collect::<Vec<_>>(),
            "ended"
        );
        let members = own.into_iter().map(|(item, result)| ItemResult {
            times: ModuleTimes {
                module: record.module,
                worker: record.worker,
                arrived_at: item.arrived_at,
                batched_at: item.batched_at,
                started_at: record.started_at,
                ended_at: record.ended_at,
                batch: record.batch,
                batch_size: record.size,
                incarnation: record.incarnation,
                load: item.load,
            },
            request: item.request,
            job: item.payload,
            result,
        });
        host.finished(&record, &batch.forecasters, members);
    }
}

impl Upstream for DeviceReports {
    fn tell(&self, worker: WorkerId, home: GatewayId, message: ToGateway) {
        if let Some(host) = self.host(worker) {
            host.device_says(worker, home, message);
        }
    }

    /// Each worker of which the batch has requests hears of its own. A device without a placement has those of one.
    fn ran(&self, mut batch: RanBatch) {
        let members = std::mem::take(&mut batch.members);
        let results = std::mem::take(&mut batch.results);
        let n = members.len() as u32;
        let mut rest: Vec<_> = members.into_iter().zip(results).collect();
        while let Some((first, _)) = rest.first() {
            let worker = first.worker;
            let is_own = |(item, _): &(BatchItem<Arc<Job>>, Ran)| item.worker == worker;
            let (own, others) = match rest.iter().all(is_own) {
                true => (rest, Vec::new()),
                false => rest.into_iter().partition(is_own),
            };
            self.finished(&batch, n, own);
            rest = others;
        }
    }

    fn reran(&self, worker: WorkerId, took: Duration) {
        if let Some(host) = self.host(worker) {
            host.reran(worker, took);
        }
    }

    fn loaded(&self, worker: WorkerId, result: Result<(), String>) {
        if let Some(host) = self.host(worker) {
            host.worker_loaded(worker, result);
        }
    }

    fn down(&self, device: DeviceId, cause: &str) {
        for host in self.hosts.iter().filter_map(Weak::upgrade) {
            host.parted(&[Address::Device(device)], cause);
        }
    }
}
