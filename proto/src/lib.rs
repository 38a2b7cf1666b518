//! The wire format: what is generated from `proto/spillgate/v1/spillgate.proto`, and the codec of its messages.

mod codec;

pub use codec::{SizedCodec, SizedEncoder};

/// The generated messages, client and server.
pub mod pb {
    #![allow(missing_docs, clippy::all, unreachable_pub, reason = "generated code")]
    tonic::include_proto!("spillgate.v1");
}

/// The file descriptors, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/spillgate_descriptor.bin"));
