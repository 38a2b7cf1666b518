//! What travels between two processes of a cluster, and its conversion to and from the messages of
//! `proto/spillgate/link/v1/link.proto`.
//!
//! [`encode`] shares payloads and copies the rest. [`decode`] believes nothing: whatever bytes a peer sends, it returns a packet
//! whose numbers and lists are within the [`bounds`], or a [`WireError`] that names the field. It does not know the pipeline:
//! whether an id belongs to it, and whether the sender may say so, is for the receiver to check.

pub mod bounds;
mod envelope;
mod error;
mod guidance;
mod parcel;
mod publication;
mod request;
mod session;
mod state;
mod to_controller;
mod to_device;
mod to_gateway;
mod values;

use std::sync::Arc;

use spillgate_picture::{Damage, Frame};
use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::request::ModuleTimes;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::value::Value;
use spillgate_proto::link as pb;
use spillgate_protocol::membership::MemberList;
use spillgate_protocol::message::Envelope;
use spillgate_protocol::publication::{Operated, Operation, Publication, RevisionReports};
use spillgate_protocol::session::{Frame as SessionFrame, NAME_BYTES_MAX};
use spillgate_protocol::values::Ports;

use pb::packet::Content;

pub use error::WireError;
use error::field;

/// An output of a module on its way.
#[derive(Clone, Debug, PartialEq)]
pub enum Carried {
    /// The value.
    Value(Value),
    /// The receiver keeps it.
    Kept,
    /// Nothing there uses it.
    Unused,
}

/// What a request carries to a worker of another process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parcel {
    /// The frame as its client sent it. Its own check is that of the module that decodes it, as for any client's frame.
    pub frame: Option<Frame>,
    /// Outputs of modules before the worker's.
    pub outputs: Vec<(ModuleId, Vec<Carried>)>,
    /// The process keeps large values of the request, those that come here and those that it makes, until it hears that the
    /// request has ended.
    pub keep: bool,
    /// Spans of the request are exported.
    pub is_traced: bool,
}

/// What a member of a batch that ended brings, beside what the gateway's policy hears of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemOutputs {
    /// Its way through the module, by the sender's clock.
    pub times: ModuleTimes,
    /// The outputs of the module; there exactly where it succeeded.
    pub outputs: Option<Vec<Carried>>,
    /// Those that the worker's process keeps.
    pub kept: Ports,
    /// What is damaged in the request's picture.
    pub damage: Option<Damage>,
}

/// What travels on a connection, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Packet {
    /// Of the session.
    Session(SessionFrame),
    /// From one role to another.
    Message {
        /// The message.
        envelope: Envelope<Parcel>,
        /// One entry a member, in their order, where the message is
        /// [`ToGateway::Finished`](spillgate_protocol::message::ToGateway::Finished). Empty otherwise.
        brought: Vec<ItemOutputs>,
        /// The process of the worker of which a controller speaks.
        listed: Option<Arc<str>>,
    },
    /// The peer may not be what it greets as: what is wrong and what would be right. At most [`bounds::REASON_BYTES_MAX`] bytes.
    Refused(String),
    /// By a gateway: these requests have ended. What the receiver keeps for them is not needed any more.
    Ended(Vec<RequestId>),
    /// By a worker: these requests of a gateway are given back, with empty parcels, since theirs name values that the process does
    /// not keep. They are to be sent again with all values.
    Lacking(Envelope<Parcel>),
    /// By a controller, to a gateway: the processes with workers. At most
    /// [`MEMBERS_MAX`](spillgate_protocol::membership::MEMBERS_MAX).
    Members(MemberList),
    /// The process ends what it has, and then goes.
    Leaves,
    /// Something is wrong with the receiver, and the session goes on: what, and what would be right. At most
    /// [`bounds::REASON_BYTES_MAX`] bytes.
    Notice(String),
    /// By a gateway or controller: what all processes are to serve of a pipeline.
    Published(Arc<Publication>),
    /// What the sender's revisions of the pipeline do.
    Revisions(RevisionReports),
    /// The first packet of an operator.
    Operation(Operation),
    /// The answer to it.
    Operated(Operated),
}

impl Packet {
    /// Replaces each time of the sender's clock by that of the receiver's: see
    /// [`Session::to_mine`](spillgate_protocol::session::Session::to_mine). The times of a session's frames stay: the session
    /// reads them itself.
    pub fn translate(&mut self, to_mine: impl Fn(Timestamp) -> Timestamp) {
        let (envelope, brought) = match self {
            Packet::Message {
                envelope, brought, ..
            } => (envelope, &mut brought[..]),
            Packet::Lacking(envelope) => (envelope, &mut [][..]),
            Packet::Session(_)
            | Packet::Refused(_)
            | Packet::Ended(_)
            | Packet::Members(_)
            | Packet::Leaves
            | Packet::Notice(_)
            | Packet::Published(_)
            | Packet::Revisions(_)
            | Packet::Operation(_)
            | Packet::Operated(_) => return,
        };
        for ItemOutputs { times, .. } in brought {
            for at in [
                &mut times.arrived_at,
                &mut times.batched_at,
                &mut times.started_at,
                &mut times.ended_at,
            ] {
                *at = to_mine(*at);
            }
        }
        envelope.message.translate(to_mine);
    }
}

/// A packet as it is written. Payloads are shared. Each member of a batch that ended needs its entry in `brought`: the peer refuses
/// a member without.
pub fn encode(packet: &Packet) -> pb::Packet {
    let content = match packet {
        Packet::Session(frame) => session::encode(frame),
        Packet::Message {
            envelope,
            brought,
            listed,
        } => {
            let listed = listed.as_deref().unwrap_or_default();
            Content::Envelope(Box::new(envelope::encode(envelope, brought, listed)))
        }
        Packet::Refused(reason) => Content::Refused(pb::Refused {
            reason: cut(reason),
        }),
        Packet::Ended(requests) => Content::Ended(pb::Ended {
            requests: requests.iter().map(|id| id.0).collect(),
        }),
        Packet::Lacking(envelope) => {
            Content::Lacking(Box::new(envelope::encode(envelope, &[], "")))
        }
        Packet::Members(list) => Content::Members(session::encode_members(list)),
        Packet::Leaves => Content::Leaving(pb::Leaves {}),
        Packet::Notice(text) => Content::Notice(pb::Notice { text: cut(text) }),
        Packet::Published(published) => {
            Content::Published(Box::new(publication::encode(published)))
        }
        Packet::Revisions(reports) => Content::Revisions(pb::Revisions {
            revisions: publication::encode_reports(&reports.revisions),
            generation: reports.generation,
        }),
        Packet::Operation(operation) => {
            Content::Operation(Box::new(publication::encode_operation(operation)))
        }
        Packet::Operated(operated) => {
            Content::Operated(Box::new(publication::encode_operated(operated)))
        }
    };
    pb::Packet {
        content: Some(content),
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(bounds::REASON_BYTES_MAX)].to_owned()
}

/// A packet as it was read; `None` for one of a kind that this version does not know. Payloads are shared.
///
/// # Errors
/// When a field is missing, has no meaning in this version or is out of its bounds. The sender speaks no version of the wire that
/// this one speaks, or is broken.
pub fn decode(packet: pb::Packet) -> Result<Option<Packet>, WireError> {
    let Some(content) = packet.content else {
        return Ok(None);
    };
    Ok(Some(match content {
        Content::Greeting(greeting) => Packet::Session(session::decode_greeting(*greeting)?),
        Content::Heartbeat(heartbeat) => Packet::Session(session::decode_heartbeat(heartbeat)),
        Content::HeartbeatAnswer(answer) => Packet::Session(session::decode_answer(answer)),
        Content::Envelope(envelope) => {
            let n = envelope.listed.len();
            field("Envelope", "listed").at_most_bytes(n, NAME_BYTES_MAX)?;
            let listed = (n > 0).then(|| Arc::from(&*envelope.listed));
            let Some((envelope, brought)) = envelope::decode(*envelope)? else {
                return Ok(None);
            };
            Packet::Message {
                envelope,
                brought,
                listed,
            }
        }
        Content::Refused(pb::Refused { reason }) => {
            let n = reason.len();
            field("Refused", "reason").at_most_bytes(n, bounds::REASON_BYTES_MAX)?;
            Packet::Refused(reason)
        }
        Content::Ended(pb::Ended { requests }) => {
            field("Ended", "requests").at_most(requests.len(), bounds::REQUESTS_MAX)?;
            Packet::Ended(requests.into_iter().map(RequestId).collect())
        }
        Content::Lacking(envelope) => Packet::Lacking(envelope::decode_lacking(*envelope)?),
        Content::Members(members) => Packet::Members(session::decode_members(members)?),
        Content::Leaving(pb::Leaves {}) => Packet::Leaves,
        Content::Notice(pb::Notice { text }) => {
            field("Notice", "text").at_most_bytes(text.len(), bounds::REASON_BYTES_MAX)?;
            Packet::Notice(text)
        }
        Content::Published(published) => {
            Packet::Published(Arc::new(publication::decode(*published)?))
        }
        Content::Revisions(reports) => Packet::Revisions(RevisionReports {
            generation: reports.generation,
            revisions: publication::decode_reports(reports.revisions)?,
        }),
        Content::Operation(operation) => match publication::decode_operation(*operation)? {
            Some(operation) => Packet::Operation(operation),
            None => return Ok(None),
        },
        Content::Operated(operated) => Packet::Operated(publication::decode_operated(*operated)?),
    }))
}
