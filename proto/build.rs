//! Compiles the .proto files with protox, so that no protoc is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let public = protox::compile(["spillgate/v1/spillgate.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // The link is private: reflection does not tell of it.
    std::fs::write(out.join("spillgate_descriptor.bin"), {
        use prost::Message;
        public.encode_to_vec()
    })?;
    let link = protox::compile(["spillgate/link/v1/link.proto"], ["proto"])?;
    // Payloads stay slices of the message they came in.
    let builder = tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::SizedCodec");
    builder.clone().compile_fds(public)?;
    // Lists have room for the largest kind of an entry: rare large ones are kept elsewhere.
    LARGE
        .iter()
        .fold(builder, |builder, path| builder.boxed(path))
        .compile_fds(link)?;
    Ok(())
}

/// Large messages of the link that are rare, or stand in lists beside small ones.
const LARGE: [&str; 8] = [
    "spillgate.link.v1.Packet.content.envelope",
    "spillgate.link.v1.Packet.content.lacking",
    "spillgate.link.v1.ToGateway.message.plan",
    "spillgate.link.v1.ToGateway.message.state",
    "spillgate.link.v1.ToGateway.message.dropped",
    "spillgate.link.v1.ToController.message.demand",
    "spillgate.link.v1.ToController.message.peer",
    "spillgate.link.v1.ToDevice.message.answer",
];
