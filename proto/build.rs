//! Compiles the .proto files with protox, so that no protoc is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["spillgate/v1/spillgate.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("spillgate_descriptor.bin"), {
        use prost::Message;
        files.encode_to_vec()
    })?;
    // Payloads stay slices of the message they came in.
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::SizedCodec")
        .compile_fds(files)?;
    Ok(())
}
