//! The ids in a message, from those of one process to those of another. Ids are dense in each process, and differ between processes.

use spillgate_pipeline::id::{RequestId, WorkerId};

use super::{Message, ToController, ToDevice, ToGateway};

/// What an id is called elsewhere; `None`: it is not known there.
pub trait Ids {
    /// A worker of the process that sends or receives the message.
    fn worker(&self, worker: WorkerId) -> Option<WorkerId>;
    /// A worker of any process, of which its controller speaks.
    fn listed(&self, worker: WorkerId) -> Option<WorkerId>;
    /// A request of the gateway that sends or receives the message.
    fn request(&self, request: RequestId) -> Option<RequestId>;
}

/// An id of the message is not known there. What was replaced before stays so: the message is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownId;

impl<L> Message<L> {
    /// Replaces each id.
    ///
    /// # Errors
    /// When one of them is not known.
    pub fn rename(&mut self, ids: &impl Ids) -> Result<(), UnknownId> {
        match self {
            Message::Gateway(message) => to_gateway(message, ids),
            Message::Controller(message) => to_controller(message, ids),
            Message::Device(message) => to_device(message, ids),
        }
    }
}

fn worker(id: &mut WorkerId, ids: &impl Ids) -> Result<(), UnknownId> {
    *id = ids.worker(*id).ok_or(UnknownId)?;
    Ok(())
}

fn request(id: &mut RequestId, ids: &impl Ids) -> Result<(), UnknownId> {
    *id = ids.request(*id).ok_or(UnknownId)?;
    Ok(())
}

fn to_gateway(message: &mut ToGateway, ids: &impl Ids) -> Result<(), UnknownId> {
    match message {
        ToGateway::Started(started) => worker(&mut started.worker, ids),
        ToGateway::Finished {
            worker: of,
            members,
            ..
        } => {
            worker(of, ids)?;
            let mut members = members.iter_mut();
            members.try_for_each(|member| request(&mut member.request, ids))
        }
        ToGateway::Failed {
            worker: of,
            request: id,
            ..
        }
        | ToGateway::Dropped {
            worker: of,
            request: id,
            ..
        }
        | ToGateway::Forgotten {
            worker: of,
            request: id,
        } => {
            worker(of, ids)?;
            request(id, ids)
        }
        ToGateway::Ask(ask) => worker(&mut ask.worker, ids),
        ToGateway::Returned(returned) => {
            worker(&mut returned.worker, ids)?;
            let mut requests = returned.requests.iter_mut();
            requests.try_for_each(|(id, _)| request(id, ids))
        }
        ToGateway::Withdrawn(of, _) | ToGateway::Leaves(of) | ToGateway::Holds(of, _) => {
            worker(of, ids)
        }
        ToGateway::Serve(of) | ToGateway::Retire(of) | ToGateway::Try(of) => {
            *of = ids.listed(*of).ok_or(UnknownId)?;
            Ok(())
        }
        ToGateway::Plan(..) | ToGateway::State(_) | ToGateway::Clients(_) => Ok(()),
    }
}

fn to_controller(message: &mut ToController, ids: &impl Ids) -> Result<(), UnknownId> {
    match message {
        ToController::Report(report) => worker(&mut report.worker, ids),
        ToController::Loaded(of, _) => worker(of, ids),
        ToController::Demand(_) | ToController::Clients(_) | ToController::Peer(_) => Ok(()),
    }
}

fn to_device<L>(message: &mut ToDevice<L>, ids: &impl Ids) -> Result<(), UnknownId> {
    match message {
        ToDevice::Requests(arrivals) => arrivals.iter_mut().try_for_each(|arrival| {
            worker(&mut arrival.worker, ids)?;
            request(&mut arrival.request.id, ids)
        }),
        ToDevice::Answer(answer) => {
            worker(&mut answer.worker, ids)?;
            let mut requests = answer.requests.iter_mut();
            requests.try_for_each(|lent| request(&mut lent.request.id, ids))
        }
        ToDevice::Cancel(of, id) | ToDevice::Withdraw(of, id, _) => {
            worker(of, ids)?;
            request(id, ids)
        }
        ToDevice::Guide(of, _) | ToDevice::Load(of) | ToDevice::Unload(of) => worker(of, ids),
        ToDevice::Reassigned(_) => Ok(()),
    }
}
