//! Brings what devices report to the pipelines that it is for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_backend::job::{Job, Ran};
use spillgate_backend::operator::OperatorError;
use spillgate_controller::host::{MemberResult, PipelineHost};
use spillgate_controller::record::BatchRecord;
use spillgate_pipeline::action::{self, Load};
use spillgate_pipeline::id::{BatchId, DeviceId, GatewayId, RequestId, WorkerId};
use spillgate_pipeline::message::{Address, Incarnation, Place, ToGateway};
use spillgate_pipeline::request::ModuleTimes;
use spillgate_pipeline::time::Timestamp;
use spillgate_worker::device::{Finished, Upstream};
use spillgate_worker::placed::RanBatch;

/// Passes the reports of devices to hosts. A worker belongs to one host. Hosts have ways to their devices, so devices keep no host: what
/// they say to one that is gone is heard by nobody.
pub(crate) struct Upstreams {
    /// The one in which the devices number their batches.
    life: Incarnation,
    routes: IndexMap<WorkerId, Weak<PipelineHost>, FxBuildHasher>,
    hosts: Vec<Weak<PipelineHost>>,
}

impl Upstreams {
    /// For devices that number their batches in that life.
    pub(crate) fn new(life: Incarnation, hosts: &[Arc<PipelineHost>]) -> Self {
        let of = |host: &Arc<PipelineHost>| {
            let route = |place: &Place| (place.worker, Arc::downgrade(host));
            host.workers().map(route).collect::<Vec<_>>()
        };
        Upstreams {
            life,
            routes: hosts.iter().flat_map(of).collect(),
            hosts: hosts.iter().map(Arc::downgrade).collect(),
        }
    }

    fn host(&self, worker: WorkerId) -> Option<Arc<PipelineHost>> {
        self.routes[&worker].upgrade()
    }

    /// A batch of a fleet ran: each worker of which it has requests hears of its own.
    pub(crate) fn ran(&self, batch: RanBatch) {
        let RanBatch {
            id,
            members,
            results,
            started_at,
            expected,
            told_end,
            ended_at,
            ..
        } = batch;
        let ran_together = members.len() as u32;
        let mut rest: Vec<_> = members.into_iter().zip(results).collect();
        while let Some((first, _)) = rest.first() {
            let worker = first.worker;
            let (own, others) = rest.into_iter().partition(|(m, _)| m.worker == worker);
            rest = others;
            let own: Vec<(action::Member<Arc<Job>>, Ran)> = own;
            let Some(host) = self.host(worker) else {
                continue;
            };
            let place = host.place(worker);
            let record = BatchRecord {
                device: place.device,
                batch: BatchId(id.0),
                module: place.module,
                worker,
                variant: own
                    .first()
                    .map(|(m, _)| m.request.variant)
                    .unwrap_or_default(),
                size: own.len() as u32,
                ran_together,
                started_at,
                expected_end: started_at + expected,
                told_end,
                ended_at,
                incarnation: self.life,
                is_traced: own.iter().any(|(m, _)| m.payload.is_traced()),
            };
            note(&record, own.iter().map(|(m, _)| m.request.id));
            let members = own.into_iter().map(|(member, result)| MemberResult {
                request: member.request,
                job: member.payload,
                times: times(&record, member.arrived_at, member.batched_at, member.load),
                result,
            });
            host.finished(&record, &[], members);
        }
    }
}

/// Says which requests were in a batch.
fn note(record: &BatchRecord, requests: impl Iterator<Item = RequestId>) {
    tracing::debug!(
        target: "spillgate::batch",
        device = record.device.0, worker = record.worker.0, batch = record.batch.0,
        took_ms = record.ended_at.since(record.started_at).as_secs_f64() * 1e3,
        requests = ?requests.map(|id| id.0).collect::<Vec<_>>(),
        "ended"
    );
}

/// The way of a request through the module of its batch.
fn times(
    batch: &BatchRecord,
    arrived_at: Timestamp,
    batched_at: Timestamp,
    load: Option<Load>,
) -> ModuleTimes {
    ModuleTimes {
        module: batch.module,
        worker: batch.worker,
        arrived_at,
        batched_at,
        started_at: batch.started_at,
        ended_at: batch.ended_at,
        batch: batch.batch,
        batch_size: batch.size,
        incarnation: batch.incarnation,
        load,
    }
}

impl Upstream for Upstreams {
    fn tell(&self, worker: WorkerId, home: GatewayId, message: ToGateway) {
        if let Some(host) = self.host(worker) {
            host.device_says(worker, home, message);
        }
    }

    fn finished(&self, finished: Finished) {
        let Finished {
            device,
            batch,
            results,
            load,
            told_end,
            ended_at,
            forecasters,
        } = finished;
        let record = BatchRecord {
            device,
            batch: batch.id,
            module: batch.module,
            worker: batch.worker,
            variant: batch
                .members
                .first()
                .map(|m| m.request.variant)
                .unwrap_or_default(),
            size: batch.members.len() as u32,
            ran_together: batch.members.len() as u32,
            started_at: batch.started_at,
            expected_end: batch.expected_end,
            told_end,
            ended_at,
            incarnation: self.life,
            is_traced: batch.members.iter().any(|m| m.payload.is_traced()),
        };
        note(&record, batch.members.iter().map(|m| m.request.id));
        let all = batch.members.into_iter().zip(results);
        let members = all.map(|(member, result)| MemberResult {
            request: member.request,
            job: member.payload,
            times: times(
                &record,
                member.arrived_at,
                member.batched_at,
                // What was read before it came, it did not wait for.
                load.filter(|load| member.arrived_at < load.to),
            ),
            result,
        });
        if let Some(host) = self.host(record.worker) {
            host.finished(&record, &forecasters, members);
        }
    }

    fn reran(&self, worker: WorkerId, took: Duration) {
        if let Some(host) = self.host(worker) {
            host.reran(worker, took);
        }
    }

    fn loaded(&self, worker: WorkerId, result: Result<(), OperatorError>) {
        let result = result.map_err(|error| error.to_string());
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
