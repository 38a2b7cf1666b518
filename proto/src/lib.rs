//! The wire formats: what is generated from `proto/spillgate/v1/spillgate.proto`, the public API, from
//! `proto/spillgate/link/v1/link.proto`, the link between processes, and from `proto/externalscaler/externalscaler.proto`, KEDA's
//! external scaler; and the codec of the first two's messages.

mod codec;
mod shape;

pub use codec::{BoundedDecoder, SizedCodec, SizedEncoder, decode};

/// The generated messages, client and server.
pub mod pb {
    #![allow(missing_docs, clippy::all, unreachable_pub, reason = "generated code")]
    tonic::include_proto!("spillgate.v1");
}

/// The generated messages of the link between processes, client and server.
pub mod link {
    #![allow(missing_docs, clippy::all, unreachable_pub, reason = "generated code")]
    tonic::include_proto!("spillgate.link.v1");
}

/// The generated messages of KEDA's external scaler, client and server.
pub mod externalscaler {
    #![allow(missing_docs, clippy::all, unreachable_pub, reason = "generated code")]
    tonic::include_proto!("externalscaler");
}

/// The file descriptors of the public API, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/spillgate_descriptor.bin"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reflection_tells_of_the_public_api_and_not_of_the_link() {
        let has = |package: &str| {
            let mut places = FILE_DESCRIPTOR_SET.windows(package.len());
            places.any(|place| place == package.as_bytes())
        };
        assert!(has("spillgate.v1"));
        assert!(!has("spillgate.link"));
    }
}
