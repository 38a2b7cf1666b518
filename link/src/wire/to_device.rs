//! What gateways and controllers tell a device.

use spillgate_pipeline::id::{RequestId, WorkerId};
use spillgate_proto::link as pb;
use spillgate_protocol::message::{Answer, Arrival, Lent, ToDevice};

use super::bounds::REQUESTS_MAX;
use super::error::{WireError, field};
use super::{Parcel, guidance, parcel, request};
use pb::to_device::Message;

pub(super) fn encode(message: &ToDevice<Parcel>) -> pb::ToDevice {
    let message = match message {
        ToDevice::Requests(arrivals) => Message::Requests(pb::Requests {
            arrivals: arrivals.iter().map(encode_arrival).collect(),
        }),
        ToDevice::Answer(answer) => Message::Answer(Box::new(encode_answer(answer))),
        ToDevice::Cancel(worker, request) => Message::Cancel(pb::Cancel {
            worker: worker.0,
            request: request.0,
        }),
        ToDevice::Withdraw(worker, request, reason) => Message::Withdraw(pb::Withdraw {
            worker: worker.0,
            request: request.0,
            reason: request::encode_reason(*reason).into(),
        }),
        ToDevice::Reassigned(application) => Message::Reassigned(u32::from(application.0)),
        ToDevice::Guide(worker, guidance) => Message::Guide(pb::Guide {
            worker: worker.0,
            guidance: Some(guidance::encode(guidance)),
        }),
        ToDevice::Load(worker) => Message::Load(worker.0),
        ToDevice::Unload(worker) => Message::Unload(worker.0),
    };
    pb::ToDevice {
        message: Some(message),
    }
}

pub(super) fn decode(message: pb::ToDevice) -> Result<ToDevice<Parcel>, WireError> {
    let of = field("ToDevice", "message");
    Ok(match of.required(message.message)? {
        Message::Requests(requests) => ToDevice::Requests(decode_requests(requests)?),
        Message::Answer(answer) => ToDevice::Answer(decode_answer(*answer)?),
        Message::Cancel(cancel) => {
            ToDevice::Cancel(WorkerId(cancel.worker), RequestId(cancel.request))
        }
        Message::Withdraw(withdraw) => {
            let of = field("Withdraw", "reason");
            let reason = request::decode_reason(of, withdraw.reason)?;
            let (worker, request) = (WorkerId(withdraw.worker), RequestId(withdraw.request));
            ToDevice::Withdraw(worker, request, reason)
        }
        Message::Reassigned(application) => {
            let of = field("ToDevice", "reassigned");
            ToDevice::Reassigned(request::decode_application(of, application)?)
        }
        Message::Guide(guide) => {
            let guidance = field("Guide", "guidance").required(guide.guidance)?;
            ToDevice::Guide(WorkerId(guide.worker), guidance::decode(guidance)?)
        }
        Message::Load(worker) => ToDevice::Load(WorkerId(worker)),
        Message::Unload(worker) => ToDevice::Unload(WorkerId(worker)),
    })
}

fn encode_arrival(arrival: &Arrival<Parcel>) -> pb::Arrival {
    pb::Arrival {
        worker: arrival.worker.0,
        request: Some(request::encode(&arrival.request)),
        parcel: parcel::encode(&arrival.payload),
    }
}

fn decode_requests(requests: pb::Requests) -> Result<Vec<Arrival<Parcel>>, WireError> {
    field("Requests", "arrivals").at_most(requests.arrivals.len(), REQUESTS_MAX)?;
    requests.arrivals.into_iter().map(decode_arrival).collect()
}

fn decode_arrival(arrival: pb::Arrival) -> Result<Arrival<Parcel>, WireError> {
    let request = field("Arrival", "request").required(arrival.request)?;
    Ok(Arrival {
        worker: WorkerId(arrival.worker),
        request: request::decode(request)?,
        payload: parcel::decode(arrival.parcel)?,
    })
}

fn encode_answer(answer: &Answer<Parcel>) -> pb::Answer {
    let lent = |lent: &Lent<Parcel>| pb::Lent {
        request: Some(request::encode(&lent.request)),
        since: lent.since.as_ns(),
        parcel: parcel::encode(&lent.payload),
    };
    pb::Answer {
        worker: answer.worker.0,
        serial: answer.serial,
        order: guidance::encode_order(answer.order).into(),
        waiting: answer.waiting,
        requests: answer.requests.iter().map(lent).collect(),
    }
}

fn decode_answer(answer: pb::Answer) -> Result<Answer<Parcel>, WireError> {
    let of = |name| field("Answer", name);
    of("requests").at_most(answer.requests.len(), REQUESTS_MAX)?;
    let requests: Result<Vec<_>, _> = answer.requests.into_iter().map(decode_lent).collect();
    Ok(Answer {
        worker: WorkerId(answer.worker),
        serial: answer.serial,
        order: guidance::decode_order(of("order"), answer.order)?,
        waiting: answer.waiting,
        requests: requests?,
    })
}

fn decode_lent(lent: pb::Lent) -> Result<Lent<Parcel>, WireError> {
    let of = |name| field("Lent", name);
    Ok(Lent {
        request: request::decode(of("request").required(lent.request)?)?,
        since: of("since").time(lent.since)?,
        payload: parcel::decode(lent.parcel)?,
    })
}
