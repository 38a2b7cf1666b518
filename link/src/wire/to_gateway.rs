//! What devices and controllers tell a gateway.

use std::time::Duration;

use indexmap::IndexMap;
use spillgate_picture::Damage;
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::family::MEMBERS_MAX;
use spillgate_pipeline::id::{BatchId, Incarnation, MemberId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::spec::BATCH_MAX;
use spillgate_proto::link as pb;
use spillgate_protocol::message::{
    Ask, Fault, Filled, Finished, NAMED_MAX, Portion, Returned, Started, ToGateway,
};
use spillgate_protocol::values::Ports;

use super::bounds::{REQUESTS_MAX, ns};
use super::error::{WireError, field};
use super::{ItemOutputs, guidance, request, state, values};
use pb::finished::Result as Wire;
use pb::to_gateway::Message;

pub(super) fn encode(message: &ToGateway, brought: &[ItemOutputs]) -> pb::ToGateway {
    let message = match message {
        ToGateway::Started(started) => Message::Started(encode_started(started)),
        ToGateway::Finished {
            worker,
            batch,
            took,
            size,
            members,
        } => {
            debug_assert_eq!(brought.len(), members.len());
            Message::Finished(encode_finished(
                (*worker, *batch, *took, *size),
                members,
                brought,
            ))
        }
        ToGateway::Failed {
            worker,
            request,
            why,
        } => Message::Failed(pb::Failed {
            worker: worker.0,
            request: request.0,
            why: why.clone(),
        }),
        ToGateway::Dropped {
            worker,
            request,
            drop,
        } => Message::Dropped(Box::new(request::encode_drop(*worker, *request, drop))),
        ToGateway::Forgotten { worker, request } => Message::Forgotten(pb::Forgotten {
            worker: worker.0,
            request: request.0,
        }),
        ToGateway::Ask(ask) => Message::Ask(encode_ask(ask)),
        ToGateway::Withdrawn(worker, serial) => Message::Withdrawn(pb::Withdrawn {
            worker: worker.0,
            serial: *serial,
        }),
        ToGateway::Returned(returned) => Message::Returned(encode_returned(returned)),
        ToGateway::Leaves(worker) => Message::Leaves(worker.0),
        ToGateway::Plan(module, plan) => {
            Message::Plan(Box::new(guidance::encode_plan(u32::from(module.0), plan)))
        }
        ToGateway::State(state) => Message::State(Box::new(state::encode(state))),
        ToGateway::Clients(portion) => Message::Clients(encode_portion(portion)),
        ToGateway::Holds(worker, models) => Message::Holds(encode_holds(*worker, models)),
        ToGateway::Serve(worker) => Message::Serve(worker.0),
        ToGateway::Retire(worker) => Message::Retire(worker.0),
        ToGateway::Try(worker) => Message::TryOut(worker.0),
    };
    pb::ToGateway {
        message: Some(message),
    }
}

/// The message, and what the members of a batch that ended bring.
pub(super) fn decode(
    message: pb::ToGateway,
    incarnation: Incarnation,
) -> Result<(ToGateway, Vec<ItemOutputs>), WireError> {
    let message = match field("ToGateway", "message").required(message.message)? {
        Message::Finished(ended) => return decode_finished(ended, incarnation),
        Message::Started(started) => ToGateway::Started(decode_started(started)?),
        Message::Failed(failed) => ToGateway::Failed {
            worker: WorkerId(failed.worker),
            request: RequestId(failed.request),
            why: failed.why,
        },
        Message::Dropped(dropped) => ToGateway::Dropped {
            worker: WorkerId(dropped.worker),
            request: RequestId(dropped.request),
            drop: Box::new(request::decode_drop(&dropped)?),
        },
        Message::Forgotten(forgotten) => ToGateway::Forgotten {
            worker: WorkerId(forgotten.worker),
            request: RequestId(forgotten.request),
        },
        Message::Ask(ask) => ToGateway::Ask(decode_ask(ask)?),
        Message::Withdrawn(ask) => ToGateway::Withdrawn(WorkerId(ask.worker), ask.serial),
        Message::Returned(returned) => ToGateway::Returned(decode_returned(returned)?),
        Message::Leaves(worker) => ToGateway::Leaves(WorkerId(worker)),
        Message::Plan(plan) => {
            let module = ModuleId(field("Plan", "module").u16(plan.module)?);
            ToGateway::Plan(module, Box::new(guidance::decode_plan(*plan)?))
        }
        Message::State(state) => ToGateway::State(state::decode(*state)?),
        Message::Clients(portion) => ToGateway::Clients(Box::new(decode_portion(portion)?)),
        Message::Holds(holds) => decode_holds(&holds)?,
        Message::Serve(worker) => ToGateway::Serve(WorkerId(worker)),
        Message::Retire(worker) => ToGateway::Retire(WorkerId(worker)),
        Message::TryOut(worker) => ToGateway::Try(WorkerId(worker)),
    };
    Ok((message, Vec::new()))
}

fn encode_started(started: &Started) -> pb::Started {
    pb::Started {
        worker: started.worker.0,
        batch: started.batch.0,
        // A batch that does not fit is refused by the peer.
        size: u32::try_from(started.size).unwrap_or(u32::MAX),
        expected_end: started.expected_end.as_ns(),
    }
}

fn decode_started(started: pb::Started) -> Result<Started, WireError> {
    let of = |name| field("Started", name);
    Ok(Started {
        worker: WorkerId(started.worker),
        batch: BatchId(started.batch),
        size: of("size").up_to(started.size, BATCH_MAX)? as usize,
        expected_end: of("expected_end").time(started.expected_end)?,
    })
}

fn encode_finished(
    (worker, batch, took, size): (WorkerId, BatchId, Duration, u32),
    members: &[Finished],
    brought: &[ItemOutputs],
) -> pb::BatchEnded {
    let mut brought = brought.iter();
    let member = |member: &Finished| {
        let brought = brought.next();
        let outputs = brought.and_then(|b| b.outputs.as_ref());
        pb::Finished {
            request: member.request.0,
            result: Some(match &member.result {
                Ok(filled) => Wire::Filled(filled.bits()),
                Err(Fault::Module(text)) => Wire::ModuleFault(text.clone()),
                Err(Fault::Memory(text)) => Wire::MemoryFault(text.clone()),
            }),
            times: brought.map(|b| request::encode_times(&b.times)),
            outputs: outputs.map(|outputs| values::encode(outputs)),
            kept: brought.map_or(0, |b| b.kept.bits()),
            damage: brought.and_then(|b| b.damage).map_or(0, Damage::number),
        }
    };
    pb::BatchEnded {
        worker: worker.0,
        batch: batch.0,
        took_ns: ns(took),
        size,
        members: members.iter().map(member).collect(),
    }
}

fn decode_finished(
    ended: pb::BatchEnded,
    incarnation: Incarnation,
) -> Result<(ToGateway, Vec<ItemOutputs>), WireError> {
    let of = |name| field("BatchEnded", name);
    of("members").at_most(ended.members.len(), BATCH_MAX as usize)?;
    let mut members = Vec::with_capacity(ended.members.len());
    let mut brought = Vec::with_capacity(ended.members.len());
    for member in ended.members {
        let (member, its) = decode_member(member, incarnation)?;
        members.push(member);
        brought.push(its);
    }
    let message = ToGateway::Finished {
        worker: WorkerId(ended.worker),
        batch: BatchId(ended.batch),
        took: of("took_ns").span(ended.took_ns)?,
        size: of("size").up_to(ended.size, BATCH_MAX)?,
        members,
    };
    Ok((message, brought))
}

fn decode_member(
    member: pb::Finished,
    incarnation: Incarnation,
) -> Result<(Finished, ItemOutputs), WireError> {
    let times = field("Finished", "times").required(member.times)?;
    let of = |name| field("Finished", name);
    let result = match of("result").required(member.result)? {
        Wire::Filled(bits) => Ok(Filled::from_bits(bits)),
        Wire::ModuleFault(text) => Err(Fault::Module(text)),
        Wire::MemoryFault(text) => Err(Fault::Memory(text)),
    };
    if member.outputs.is_some() != result.is_ok() {
        let (was, right) = match result {
            Ok(_) => ("is missing", "a member whose module succeeded has them"),
            Err(_) => ("is there", "a member whose module failed has none"),
        };
        return Err(of("outputs").wrong(was.to_owned(), right));
    }
    let brought = ItemOutputs {
        times: request::decode_times(times, incarnation)?,
        outputs: member.outputs.map(values::decode).transpose()?,
        kept: Ports::from_bits(member.kept),
        damage: Damage::of_number(member.damage),
    };
    let member = Finished {
        request: RequestId(member.request),
        result,
    };
    Ok((member, brought))
}

fn encode_ask(ask: &Ask) -> pb::Ask {
    pb::Ask {
        worker: ask.worker.0,
        serial: ask.serial,
        most: ask.most,
        elsewhere: ask.elsewhere,
        starts_at: ask.starts_at.as_ns(),
        until: ask.until.map(|until| until.as_ns()),
    }
}

fn decode_ask(ask: pb::Ask) -> Result<Ask, WireError> {
    let of = |name| field("Ask", name);
    let until = |until| of("until").time(until);
    Ok(Ask {
        worker: WorkerId(ask.worker),
        serial: ask.serial,
        most: ask.most,
        elsewhere: ask.elsewhere,
        starts_at: of("starts_at").time(ask.starts_at)?,
        until: ask.until.map(until).transpose()?,
    })
}

fn encode_returned(returned: &Returned) -> pb::Returned {
    let request = |(request, since): &(RequestId, _)| pb::ReturnedRequest {
        request: request.0,
        since: spillgate_pipeline::time::Timestamp::as_ns(*since),
    };
    pb::Returned {
        worker: returned.worker.0,
        serial: returned.serial,
        elsewhere: returned.elsewhere,
        requests: returned.requests.iter().map(request).collect(),
    }
}

fn decode_returned(returned: pb::Returned) -> Result<Returned, WireError> {
    field("Returned", "requests").at_most(returned.requests.len(), REQUESTS_MAX)?;
    let request = |one: pb::ReturnedRequest| {
        let since = field("ReturnedRequest", "since").time(one.since)?;
        Ok((RequestId(one.request), since))
    };
    let requests: Result<Vec<_>, WireError> = returned.requests.into_iter().map(request).collect();
    Ok(Returned {
        worker: WorkerId(returned.worker),
        serial: returned.serial,
        elsewhere: returned.elsewhere,
        requests: requests?,
    })
}

fn encode_holds(worker: WorkerId, models: &[(MemberId, bool)]) -> pb::Holds {
    let are = |is_there: bool| {
        let those = models.iter().filter(move |(_, is)| *is == is_there);
        those.map(|(member, _)| u32::from(member.0)).collect()
    };
    pb::Holds {
        worker: worker.0,
        loaded: are(true),
        unloaded: are(false),
    }
}

fn decode_holds(holds: &pb::Holds) -> Result<ToGateway, WireError> {
    let models = |name, members: &[u32], is_there: bool| {
        let of = field("Holds", name);
        of.at_most(members.len(), MEMBERS_MAX)?;
        let member = |member: &u32| Ok((MemberId(of.u16(*member)?), is_there));
        members
            .iter()
            .map(member)
            .collect::<Result<Vec<_>, WireError>>()
    };
    let mut all = models("loaded", &holds.loaded, true)?;
    all.extend(models("unloaded", &holds.unloaded, false)?);
    Ok(ToGateway::Holds(WorkerId(holds.worker), all))
}

fn encode_portion(portion: &Portion) -> pb::Portion {
    let part = |(client, part): (&ClientKey, &f64)| pb::ClientPart {
        client: client.0,
        part: *part,
    };
    pb::Portion {
        rate: portion.rate,
        parts: portion.parts.iter().map(part).collect(),
    }
}

fn decode_portion(portion: pb::Portion) -> Result<Portion, WireError> {
    let of = |name| field("Portion", name);
    of("parts").at_most(portion.parts.len(), NAMED_MAX)?;
    let mut parts = IndexMap::default();
    for pb::ClientPart { client, part } in portion.parts {
        let part = field("ClientPart", "part").ratio(part)?;
        if parts.insert(ClientKey(client), part).is_some() {
            let was = format!("has client {client} twice");
            return Err(of("parts").wrong(was, "each client has one part"));
        }
    }
    Ok(Portion {
        rate: of("rate").capacity(portion.rate)?,
        parts,
    })
}
