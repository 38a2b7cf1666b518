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
mod request;
mod session;
mod state;
mod to_controller;
mod to_device;
mod to_gateway;
mod values;

use spillgate_picture::{Damage, Frame};
use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::request::ModuleTimes;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::value::Value;
use spillgate_proto::link as pb;
use spillgate_protocol::message::Envelope;
use spillgate_protocol::session::Frame as SessionFrame;
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
    },
    /// The peer may not be what it greets as: what is wrong and what would be right. At most [`bounds::REASON_BYTES_MAX`] bytes.
    Refused(String),
    /// By a gateway: these requests have ended. What the receiver keeps for them is not needed any more.
    Ended(Vec<RequestId>),
    /// By a worker: these requests of a gateway are given back, with empty parcels, since theirs name values that the process does
    /// not keep. They are to be sent again with all values.
    Lacking(Envelope<Parcel>),
}

impl Packet {
    /// Replaces each time of the sender's clock by that of the receiver's: see
    /// [`Session::to_mine`](spillgate_protocol::session::Session::to_mine). The times of a session's frames stay: the session
    /// reads them itself.
    pub fn translate(&mut self, to_mine: impl Fn(Timestamp) -> Timestamp) {
        let (envelope, brought) = match self {
            Packet::Message { envelope, brought } => (envelope, &mut brought[..]),
            Packet::Lacking(envelope) => (envelope, &mut [][..]),
            Packet::Session(_) | Packet::Refused(_) | Packet::Ended(_) => return,
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
        Packet::Message { envelope, brought } => {
            Content::Envelope(Box::new(envelope::encode(envelope, brought)))
        }
        Packet::Refused(reason) => Content::Refused(pb::Refused {
            reason: reason[..reason.floor_char_boundary(bounds::REASON_BYTES_MAX)].to_owned(),
        }),
        Packet::Ended(requests) => Content::Ended(pb::Ended {
            requests: requests.iter().map(|id| id.0).collect(),
        }),
        Packet::Lacking(envelope) => Content::Lacking(Box::new(envelope::encode(envelope, &[]))),
    };
    pb::Packet {
        content: Some(content),
    }
}

/// A packet as it was read. Payloads are shared.
///
/// # Errors
/// When a field is missing, has no meaning in this version or is out of its bounds. The sender is no process of this version,
/// or is broken.
pub fn decode(packet: pb::Packet) -> Result<Packet, WireError> {
    let content = field("Packet", "content").required(packet.content)?;
    Ok(match content {
        Content::Greeting(greeting) => Packet::Session(session::decode_greeting(greeting)?),
        Content::Heartbeat(heartbeat) => Packet::Session(session::decode_heartbeat(heartbeat)),
        Content::HeartbeatAnswer(answer) => Packet::Session(session::decode_answer(answer)),
        Content::Envelope(envelope) => {
            let (envelope, brought) = envelope::decode(*envelope)?;
            Packet::Message { envelope, brought }
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
    })
}
