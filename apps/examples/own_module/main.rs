//! A server with a module type of one's own, beside those of the library:
//!
//!     cargo run --release -p spillgate --example own_module
//!     spillgate stream scene: --pipeline daylight --server http://127.0.0.1:7700
//!
//! To make one, copy this folder into a crate that depends on the crates named below.

mod daylight;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use spillgate::cores::Cores;
use spillgate::embedded::Deployment;
use spillgate::files;
use spillgate::server::{Server, ServerConfig};
use spillgate_backend::clock::Clock;

use daylight::Daylight;

/// Served unless another file is named.
const PIPELINE: &str = "apps/examples/own_module/pipeline.yaml";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut library = spillgate_modules::library();
    library.register(Daylight);

    let file = std::env::args().nth(1);
    let file = Path::new(file.as_deref().unwrap_or(PIPELINE));
    let loaded = files::load(file, &library.catalog())?;
    let deployment = Deployment {
        base_dir: loaded.base_dir(),
        pipeline: loaded.pipeline,
        profiles: loaded.profiles,
        families: Default::default(),
    };
    let config = ServerConfig {
        listen: "127.0.0.1:7700".parse()?,
        admin: None,
        connections: 64,
        connections_per_address: 64,
        calls_per_connection: 64,
        memory: 256 << 20,
        idle: Duration::from_secs(300),
        connection_age: None,
        seed: 0,
        security: Default::default(),
        decoders: 1,
        drain: Duration::from_secs(5),
        clock: Clock::start(),
        telemetry: Default::default(),
        placing: None,
        cores: Cores::default(),
        part: None,
        link_listen: None,
    };
    let server = Server::start(config, vec![deployment], Arc::new(library)).await?;
    println!("serving {} at http://{}", file.display(), server.address);
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}
