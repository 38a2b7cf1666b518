//! What gateways, devices and other controllers tell the controller of a module.

use spillgate_pipeline::clients::{CLASSES, Claim, ClientKey};
use spillgate_pipeline::id::{VariantId, WorkerId};
use spillgate_pipeline::spec::BATCH_MAX;
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::link as pb;
use spillgate_protocol::message::{
    BatchReport, ClientReport, Demand, NAMED_MAX, Offered, ToController,
};

use super::error::{Field, WireError, field};
use super::state;
use pb::to_controller::Message;

pub(super) fn encode(message: &ToController) -> pb::ToController {
    let message = match message {
        ToController::Demand(demand) => Message::Demand(Box::new(encode_demand(demand))),
        ToController::Clients(report) => Message::Clients(encode_clients(report)),
        ToController::Report(report) => Message::Report(encode_report(report)),
        ToController::Loaded(worker, is_ready) => Message::Loaded(pb::Loaded {
            worker: worker.0,
            is_ready: *is_ready,
        }),
        ToController::Peer(state) => Message::Peer(Box::new(state::encode(state))),
    };
    pb::ToController {
        message: Some(message),
    }
}

pub(super) fn decode(message: pb::ToController) -> Result<ToController, WireError> {
    let message = field("ToController", "message").required(message.message)?;
    Ok(match message {
        Message::Demand(demand) => ToController::Demand(Box::new(decode_demand(&demand)?)),
        Message::Clients(report) => ToController::Clients(Box::new(decode_clients(report)?)),
        Message::Report(report) => ToController::Report(decode_report(report)?),
        Message::Loaded(loaded) => ToController::Loaded(WorkerId(loaded.worker), loaded.is_ready),
        Message::Peer(state) => ToController::Peer(state::decode(*state)?),
    })
}

fn encode_demand(demand: &Demand) -> pb::Demand {
    pb::Demand {
        offered: demand.offered,
        returned: demand.returned,
        reached: demand.reached,
        skipped: demand.skipped,
        unasked: demand.unasked,
        asked: demand.asked.to_vec(),
    }
}

fn decode_demand(demand: &pb::Demand) -> Result<Demand, WireError> {
    Ok(Demand {
        offered: demand.offered,
        returned: demand.returned,
        reached: demand.reached,
        skipped: demand.skipped,
        unasked: demand.unasked,
        asked: field("Demand", "asked").exactly(&demand.asked)?,
    })
}

fn encode_clients(report: &ClientReport) -> pb::ClientReport {
    let named = |offered: &Offered| pb::Offered {
        client: offered.client.0,
        class: u32::from(offered.class),
        weight: offered.weight,
        rate: offered.rate,
        asked: offered.asked,
    };
    let rest = (0..).zip(&report.rest).filter_map(|(class, claim)| {
        claim.map(|claim| pb::RestOfClass {
            class,
            weight: claim.weight,
            rate: claim.rate,
        })
    });
    pb::ClientReport {
        capacity: report.capacity,
        named: report.named.iter().map(named).collect(),
        rest: rest.collect(),
    }
}

fn decode_clients(report: pb::ClientReport) -> Result<ClientReport, WireError> {
    let of = |name| field("ClientReport", name);
    of("named").at_most(report.named.len(), NAMED_MAX)?;
    let named: Result<Vec<_>, _> = report.named.into_iter().map(decode_offered).collect();
    let mut rest = [None; CLASSES];
    for one in report.rest {
        let class = decode_class(field("RestOfClass", "class"), one.class)?;
        if rest[usize::from(class)].is_some() {
            let was = format!("has class {class} twice");
            return Err(of("rest").wrong(was, "each class may have one entry"));
        }
        rest[usize::from(class)] = Some(Claim {
            weight: field("RestOfClass", "weight").positive(one.weight)?,
            rate: field("RestOfClass", "rate").rate(one.rate)?,
        });
    }
    Ok(ClientReport {
        capacity: of("capacity").capacity(report.capacity)?,
        named: named?,
        rest,
    })
}

fn decode_offered(offered: pb::Offered) -> Result<Offered, WireError> {
    let of = |name| field("Offered", name);
    Ok(Offered {
        client: ClientKey(offered.client),
        class: decode_class(of("class"), offered.class)?,
        weight: of("weight").positive(offered.weight)?,
        rate: of("rate").rate(offered.rate)?,
        asked: of("asked").positive(offered.asked)?,
    })
}

/// A priority class, below [`CLASSES`].
fn decode_class(of: Field, class: u32) -> Result<u8, WireError> {
    const LAST: u32 = CLASSES as u32 - 1;
    of.u8(of.up_to(class, LAST)?)
}

fn encode_report(report: &BatchReport) -> pb::BatchReport {
    let member = |(arrived_at, batched_at): &(Timestamp, Timestamp)| pb::BatchMember {
        arrived_at: arrived_at.as_ns(),
        batched_at: batched_at.as_ns(),
    };
    pb::BatchReport {
        worker: report.worker.0,
        variant: u32::from(report.variant.0),
        started_at: report.started_at.as_ns(),
        ended_at: report.ended_at.as_ns(),
        size: report.size,
        members: report.members.iter().map(member).collect(),
    }
}

fn decode_report(report: pb::BatchReport) -> Result<BatchReport, WireError> {
    let of = |name| field("BatchReport", name);
    of("members").at_most(report.members.len(), BATCH_MAX as usize)?;
    let member = |member: pb::BatchMember| {
        let of = |name| field("BatchMember", name);
        let arrived_at = of("arrived_at").time(member.arrived_at)?;
        Ok((arrived_at, of("batched_at").time(member.batched_at)?))
    };
    let members: Result<Vec<_>, WireError> = report.members.into_iter().map(member).collect();
    Ok(BatchReport {
        worker: WorkerId(report.worker),
        variant: VariantId(of("variant").u16(report.variant)?),
        started_at: of("started_at").time(report.started_at)?,
        ended_at: of("ended_at").time(report.ended_at)?,
        size: of("size").up_to(report.size, BATCH_MAX)?,
        members: members?,
    })
}
