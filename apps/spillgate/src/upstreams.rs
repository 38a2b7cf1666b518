//! Brings what devices report to the pipelines that it is for.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_backend::job::{Job, Ran};
use spillgate_backend::operator::OperatorError;
use spillgate_controller::host::{MemberResult, PipelineHost};
use spillgate_controller::record::BatchRecord;
use spillgate_pipeline::action;
use spillgate_pipeline::id::{ActionId, BatchId, DeviceId, GatewayId, WorkerId};
use spillgate_pipeline::message::{Address, Incarnation, ToGateway};
use spillgate_pipeline::request::ModuleTimes;
use spillgate_pipeline::time::Timestamp;
use spillgate_worker::device::{Finished, Forecasters, Upstream};
use spillgate_worker::placed::RanBatch;
use spillgate_worker_policy::broker;
use spillgate_worker_policy::device::Batch;

/// Passes the reports of devices to hosts. A worker belongs to one host.
pub(crate) struct Upstreams {
    /// The one in which the devices number their batches.
    life: Incarnation,
    routes: IndexMap<WorkerId, Arc<PipelineHost>, FxBuildHasher>,
    hosts: Vec<Arc<PipelineHost>>,
}

impl Upstreams {
    /// For devices that number their batches in that life.
    pub(crate) fn new(life: Incarnation, hosts: &[Arc<PipelineHost>]) -> Self {
        let of = |host: &Arc<PipelineHost>| {
            let host = host.clone();
            host.workers()
                .map(|w| w.worker)
                .collect::<Vec<_>>()
                .into_iter()
                .map(move |w| (w, host.clone()))
        };
        Upstreams {
            life,
            routes: hosts.iter().flat_map(of).collect(),
            hosts: hosts.to_vec(),
        }
    }

    fn host(&self, worker: WorkerId) -> &Arc<PipelineHost> {
        &self.routes[&worker]
    }

    /// A batch of a fleet ran: each worker of which it has requests hears of its own.
    pub(crate) fn ran(&self, batch: RanBatch) {
        let RanBatch {
            id,
            members,
            results,
            started_at,
            expected_end,
            ended_at,
            ..
        } = batch;
        let mut rest: Vec<_> = members.into_iter().zip(results).collect();
        while let Some((first, _)) = rest.first() {
            let worker = first.worker;
            let (own, others) = rest.into_iter().partition(|(m, _)| m.worker == worker);
            rest = others;
            self.brought(id, worker, own, [started_at, expected_end, ended_at]);
        }
    }

    fn brought(
        &self,
        id: ActionId,
        worker: WorkerId,
        of: Vec<(action::Member<Arc<Job>>, Ran)>,
        [started_at, expected_end, ended_at]: [Timestamp; 3],
    ) {
        let place = self.host(worker).place(worker);
        let (members, results) = of
            .into_iter()
            .map(|(m, result)| {
                let member = broker::Member {
                    request: m.request,
                    payload: m.payload,
                    arrived_at: m.arrived_at,
                    batched_at: m.batched_at,
                };
                (member, result)
            })
            .unzip();
        self.finished(Finished {
            device: place.device,
            batch: Batch {
                id: BatchId(id.0),
                worker,
                module: place.module,
                started_at,
                expected_end,
                members,
                sampled: None,
            },
            results,
            ended_at,
            forecasters: Forecasters::new(),
        });
    }
}

impl Upstream for Upstreams {
    fn tell(&self, worker: WorkerId, home: GatewayId, message: ToGateway) {
        self.host(worker).device_says(worker, home, message);
    }

    fn finished(&self, finished: Finished) {
        let Finished {
            device,
            batch,
            results,
            ended_at,
            forecasters,
        } = finished;
        let size = batch.members.len() as u32;
        let record = BatchRecord {
            device,
            batch: batch.id,
            module: batch.module,
            worker: batch.worker,
            size,
            started_at: batch.started_at,
            expected_end: batch.expected_end,
            ended_at,
            incarnation: self.life,
            is_traced: batch.members.iter().any(|m| m.payload.is_traced()),
        };
        tracing::debug!(
            target: "spillgate::batch",
            device = device.0, worker = batch.worker.0, batch = batch.id.0,
            took_ms = ended_at.since(batch.started_at).as_secs_f64() * 1e3,
            requests = ?batch.members.iter().map(|m| m.request.id.0).collect::<Vec<_>>(),
            "ended"
        );
        let members = batch
            .members
            .into_iter()
            .zip(results)
            .map(|(member, result)| MemberResult {
                request: member.request,
                job: member.payload,
                times: ModuleTimes {
                    module: batch.module,
                    worker: batch.worker,
                    arrived_at: member.arrived_at,
                    batched_at: member.batched_at,
                    started_at: batch.started_at,
                    ended_at,
                    batch: batch.id,
                    batch_size: size,
                    incarnation: record.incarnation,
                },
                result,
            });
        self.host(batch.worker)
            .finished(&record, &forecasters, members);
    }

    fn reran(&self, worker: WorkerId, took: Duration) {
        self.host(worker).reran(worker, took);
    }

    fn loaded(&self, worker: WorkerId, result: Result<(), OperatorError>) {
        let result = result.map_err(|error| error.to_string());
        self.host(worker).worker_loaded(worker, result);
    }

    fn down(&self, device: DeviceId, cause: &str) {
        for host in &self.hosts {
            host.parted(&[Address::Device(device)], cause);
        }
    }
}
