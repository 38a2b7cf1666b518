//! Frames of a session, and what processes say of processes. A session's clock judges the times in its frames.

use std::sync::Arc;

use bytes::Bytes;
use spillgate_pipeline::id::{Incarnation, ModuleId};
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::link as pb;
use spillgate_protocol::membership::{
    Listed, MEMBERS_MAX, Member, MemberDevice, MemberList, MemberState, MemberWorker,
};
use spillgate_protocol::session::{
    ADDRESS_BYTES_MAX, Answer, Frame, Greeting, NAME_BYTES_MAX, PipelineHash, ROLES_MAX,
    VERSION_BYTES_MAX, WireVersions,
};

use super::error::{Field, WireError, field};
use super::publication;
use pb::listed::State;
use pb::packet::Content;

pub(super) fn encode(frame: &Frame) -> Content {
    match frame {
        Frame::Greeting(greeting) => {
            let member = &greeting.member;
            Content::Greeting(Box::new(pb::Greeting {
                version: member.version.to_string(),
                pipeline: Bytes::copy_from_slice(&greeting.hash.0),
                incarnation: member.incarnation.0,
                member: Some(encode_member(&Member {
                    version: "".into(),
                    incarnation: Incarnation(0),
                    ..Member::clone(member)
                })),
                pipeline_name: greeting.pipeline.to_string(),
                set: greeting.set.to_string(),
                wire_oldest: greeting.wire.oldest,
                wire_newest: greeting.wire.newest,
                published: greeting.published.as_deref().map(publication::encode),
            }))
        }
        Frame::Heartbeat { sent_at } => Content::Heartbeat(pb::Heartbeat {
            sent_at: sent_at.as_ns(),
        }),
        Frame::Answer(answer) => Content::HeartbeatAnswer(pb::HeartbeatAnswer {
            heartbeat_sent_at: answer.heartbeat_sent_at.as_ns(),
            received_at: answer.received_at.as_ns(),
            sent_at: answer.sent_at.as_ns(),
        }),
    }
}

fn encode_member(member: &Member) -> pb::Member {
    let device = |device: &MemberDevice| pb::MemberDevice {
        name: device.name.to_string(),
        workers: (device.workers.iter())
            .map(|worker| pb::MemberWorker {
                module: u32::from(worker.module.0),
                profile: worker.profile,
            })
            .collect(),
    };
    pb::Member {
        name: member.name.to_string(),
        incarnation: member.incarnation.0,
        version: member.version.to_string(),
        address: member.address.as_deref().unwrap_or_default().to_owned(),
        is_gateway: member.is_gateway,
        controllers: member.controllers.iter().map(|m| u32::from(m.0)).collect(),
        devices: member.devices.iter().map(device).collect(),
    }
}

fn text(of: Field, text: String, most: usize) -> Result<Arc<str>, WireError> {
    of.at_most_bytes(text.len(), most)?;
    Ok(text.into())
}

fn decode_member(member: pb::Member) -> Result<Member, WireError> {
    let of = |name| field("Member", name);
    of("controllers").at_most(member.controllers.len(), ROLES_MAX)?;
    of("devices").at_most(member.devices.len(), ROLES_MAX)?;
    let n_workers: usize = member.devices.iter().map(|d| d.workers.len()).sum();
    field("MemberDevice", "workers").at_most(n_workers, ROLES_MAX)?;
    let module = |of: Field, id: u32| Ok::<_, WireError>(ModuleId(of.u16(id)?));
    let controllers = member.controllers.into_iter();
    let devices = member.devices.into_iter().map(|device| {
        let workers = device.workers.into_iter().map(|worker| {
            Ok(MemberWorker {
                module: module(field("MemberWorker", "module"), worker.module)?,
                profile: worker.profile,
            })
        });
        Ok(MemberDevice {
            name: text(field("MemberDevice", "name"), device.name, NAME_BYTES_MAX)?,
            workers: workers.collect::<Result<_, WireError>>()?,
        })
    });
    let address = text(of("address"), member.address, ADDRESS_BYTES_MAX)?;
    Ok(Member {
        name: text(of("name"), member.name, NAME_BYTES_MAX)?,
        incarnation: Incarnation(member.incarnation),
        version: text(of("version"), member.version, VERSION_BYTES_MAX)?,
        address: (!address.is_empty()).then_some(address),
        is_gateway: member.is_gateway,
        controllers: controllers
            .map(|id| module(of("controllers"), id))
            .collect::<Result<_, _>>()?,
        devices: devices.collect::<Result<_, WireError>>()?,
    })
}

pub(super) fn encode_members(list: &MemberList) -> pb::Members {
    let state = |state| match state {
        MemberState::Joining => State::Joining,
        MemberState::Serving => State::Serving,
        MemberState::Leaving => State::Leaving,
        MemberState::Suspected => State::Suspected,
    };
    let listed = list.iter().map(|listed| pb::Listed {
        member: Some(encode_member(&listed.member)),
        state: state(listed.state).into(),
    });
    pb::Members {
        listed: listed.collect(),
    }
}

pub(super) fn decode_members(members: pb::Members) -> Result<MemberList, WireError> {
    field("Members", "listed").at_most(members.listed.len(), MEMBERS_MAX)?;
    let listed = members.listed.into_iter().map(|listed| {
        // A state that is not known here is one of a process that registered.
        let state = match State::try_from(listed.state) {
            Ok(State::Leaving) => MemberState::Leaving,
            Ok(State::Suspected) => MemberState::Suspected,
            Ok(State::Serving) => MemberState::Serving,
            Ok(State::Joining) | Err(_) => MemberState::Joining,
        };
        let member = field("Listed", "member").required(listed.member)?;
        Ok(Listed {
            member: Arc::new(decode_member(member)?),
            state,
        })
    });
    listed.collect()
}

pub(super) fn decode_greeting(greeting: pb::Greeting) -> Result<Frame, WireError> {
    let of = |name| field("Greeting", name);
    let n_bytes = greeting.pipeline.len();
    let hash = <[u8; 32]>::try_from(&*greeting.pipeline).map_err(|_| {
        let was = format!("has {n_bytes} bytes");
        of("pipeline").wrong(was, "a SHA-256 has 32")
    })?;
    let member = decode_member(of("member").required(greeting.member)?)?;
    let version = text(of("version"), greeting.version, VERSION_BYTES_MAX)?;
    Ok(Frame::Greeting(Arc::new(Greeting {
        member: Arc::new(Member {
            version,
            incarnation: Incarnation(greeting.incarnation),
            ..member
        }),
        set: text(of("set"), greeting.set, NAME_BYTES_MAX)?,
        pipeline: text(of("pipeline_name"), greeting.pipeline_name, NAME_BYTES_MAX)?,
        hash: PipelineHash(hash),
        wire: WireVersions {
            oldest: greeting.wire_oldest,
            newest: greeting.wire_newest,
        },
        published: (greeting.published)
            .map(|published| publication::decode(published).map(Arc::new))
            .transpose()?,
    })))
}

pub(super) fn decode_heartbeat(heartbeat: pb::Heartbeat) -> Frame {
    Frame::Heartbeat {
        sent_at: Timestamp::from_ns(heartbeat.sent_at),
    }
}

pub(super) fn decode_answer(answer: pb::HeartbeatAnswer) -> Frame {
    Frame::Answer(Answer {
        heartbeat_sent_at: Timestamp::from_ns(answer.heartbeat_sent_at),
        received_at: Timestamp::from_ns(answer.received_at),
        sent_at: Timestamp::from_ns(answer.sent_at),
    })
}
