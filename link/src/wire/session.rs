//! Frames of a session. Its clock judges the times in them.

use std::sync::Arc;

use bytes::Bytes;
use spillgate_pipeline::id::Incarnation;
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::link as pb;
use spillgate_protocol::session::{
    ADDRESSES_MAX, Answer, Frame, Greeting, PipelineHash, VERSION_BYTES_MAX,
};

use super::envelope::{decode_address, encode_address};
use super::error::{WireError, field};
use pb::packet::Content;

pub(super) fn encode(frame: &Frame) -> Content {
    match frame {
        Frame::Greeting(greeting) => Content::Greeting(pb::Greeting {
            addresses: greeting.addresses.iter().map(encode_address).collect(),
            version: greeting.version.clone(),
            pipeline: Bytes::copy_from_slice(&greeting.pipeline.0),
            incarnation: greeting.incarnation.0,
        }),
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

pub(super) fn decode_greeting(greeting: pb::Greeting) -> Result<Frame, WireError> {
    let pb::Greeting {
        addresses,
        version,
        pipeline,
        incarnation,
    } = greeting;
    let of = |name| field("Greeting", name);
    of("addresses").at_most(addresses.len(), ADDRESSES_MAX)?;
    of("version").at_most_bytes(version.len(), VERSION_BYTES_MAX)?;
    let hash = <[u8; 32]>::try_from(&*pipeline).map_err(|_| {
        let was = format!("has {} bytes", pipeline.len());
        of("pipeline").wrong(was, "a SHA-256 has 32")
    })?;
    let addresses: Result<Vec<_>, _> = addresses
        .into_iter()
        .map(|address| decode_address(of("addresses"), address))
        .collect();
    Ok(Frame::Greeting(Arc::new(Greeting {
        addresses: addresses?,
        version,
        pipeline: PipelineHash(hash),
        incarnation: Incarnation(incarnation),
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
