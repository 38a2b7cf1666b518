//! What gateways and controllers tell a device.

use super::{Answer, Lent};
use spillgate_pipeline::id::{DeviceId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::request::{DropReason, Request};
use spillgate_pipeline::schedule::Application;

/// A worker of a pipeline and the device that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The worker.
    pub worker: WorkerId,
    /// The module that it serves.
    pub module: ModuleId,
    /// Its device.
    pub device: DeviceId,
}

/// A request on its way to a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival<L> {
    /// The worker that it is dispatched to.
    pub worker: WorkerId,
    /// The request.
    pub request: Request,
    /// What it carries.
    pub payload: L,
}

/// What a device is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ToDevice<L> {
    /// By a gateway: serve these requests. They travel together, so that they may start as one batch.
    Requests(Vec<Arrival<L>>),
    /// By a gateway: what it has for a worker that asked.
    Answer(Answer<L>),
    /// By a gateway: forget a request that waits at that worker. It ended, or another worker has it.
    Cancel(WorkerId, RequestId),
    /// By a gateway: drop a request for this reason if it still waits at that worker.
    Withdraw(WorkerId, RequestId, DropReason),
    /// By a gateway: from now on this number stands for another application. Its execution times are to be forgotten.
    Reassigned(Application),
    /// By a controller: new guidance for a worker's broker.
    Guide(WorkerId, Guidance),
    /// By a controller: make a worker ready, and say when it is.
    Load(WorkerId),
    /// By a controller: give back what a worker holds once it has no more requests.
    Unload(WorkerId),
}

impl<L> ToDevice<L> {
    /// The same with other payloads. Requests that have none are left out.
    pub(super) fn filter_map<M>(
        self,
        mut payload: impl FnMut(WorkerId, &Request, L) -> Option<M>,
    ) -> ToDevice<M> {
        match self {
            ToDevice::Requests(arrivals) => {
                let each = arrivals.into_iter().filter_map(|a| {
                    Some(Arrival {
                        worker: a.worker,
                        request: a.request,
                        payload: payload(a.worker, &a.request, a.payload)?,
                    })
                });
                ToDevice::Requests(each.collect())
            }
            ToDevice::Answer(answer) => {
                let worker = answer.worker;
                let each = answer.requests.into_iter().filter_map(|lent| {
                    Some(Lent {
                        request: lent.request,
                        since: lent.since,
                        payload: payload(worker, &lent.request, lent.payload)?,
                    })
                });
                ToDevice::Answer(Answer {
                    worker,
                    serial: answer.serial,
                    order: answer.order,
                    waiting: answer.waiting,
                    requests: each.collect(),
                })
            }
            ToDevice::Cancel(worker, request) => ToDevice::Cancel(worker, request),
            ToDevice::Withdraw(worker, request, reason) => {
                ToDevice::Withdraw(worker, request, reason)
            }
            ToDevice::Reassigned(application) => ToDevice::Reassigned(application),
            ToDevice::Guide(worker, guidance) => ToDevice::Guide(worker, guidance),
            ToDevice::Load(worker) => ToDevice::Load(worker),
            ToDevice::Unload(worker) => ToDevice::Unload(worker),
        }
    }

    /// The requests that it brings, and the worker that each is for.
    pub fn requests(&self) -> Vec<(WorkerId, RequestId)> {
        match self {
            ToDevice::Requests(arrivals) => {
                let each = arrivals.iter().map(|a| (a.worker, a.request.id));
                each.collect()
            }
            ToDevice::Answer(answer) => {
                let each = answer.requests.iter();
                each.map(|lent| (answer.worker, lent.request.id)).collect()
            }
            _ => Vec::new(),
        }
    }
}
