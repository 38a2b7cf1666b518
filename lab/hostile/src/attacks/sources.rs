//! Attacks by many sources, and by connections that only ask to be answered.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use spillgate_proto::pb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval_at};

use super::Scene;
use crate::polite::Polite;
use crate::report::Outcome;
use crate::server::{Server, fresh_folder};
use crate::{pipelines, wire};

/// Requests a second of sources that leave: four times what the pipeline serves.
const LEAVERS: f64 = 200.0;
/// How long each of them stays.
const STAYS: Duration = Duration::from_millis(10);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A module of 20 ms for each request, and a client that sends less than half of what it serves.
pub(super) async fn server(scene: &Scene, folder: &Path) -> anyhow::Result<(Server, Polite)> {
    let file = pipelines::echo(folder, 20, "200ms", "{ in_flight: 256 }")?;
    let server = Server::start(&scene.spillgate, &file, &[]).await?;
    let polite = Polite {
        frame: Bytes::from_static(b"payload"),
        rate: 20.0,
    };
    polite.ask(server.address, Duration::from_secs(2)).await?;
    Ok((server, polite))
}

/// An address of this machine, another one each time.
fn local(n: u32) -> IpAddr {
    let [_, b, c, d] = (n % 0xff_fffe + 2).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, b, c, d))
}

/// A source that asks once and leaves before it is answered.
async fn leaver(n: u32, address: SocketAddr) -> anyhow::Result<()> {
    let connection = wire::connect_from(local(n), address, 1 << 16).await?;
    let (_answer, mut stream) = wire::call(&connection, address, "Infer").await?;
    let request = pb::InferRequest {
        pipeline: String::new(),
        frame: Some(pb::Frame {
            data: Bytes::from_static(b"payload"),
            ..Default::default()
        }),
    };
    wire::send(&mut stream, wire::message(&request), STAYS).await;
    let _ = stream.send_data(Bytes::new(), true);
    tokio::time::sleep(STAYS).await;
    Ok(())
}

pub(super) async fn leavers(scene: &Scene) -> anyhow::Result<Outcome> {
    let folder = fresh_folder()?;
    let (server, polite) = server(scene, &folder).await?;
    let alone = polite.ask(server.address, scene.duration).await?;
    let address = server.address;
    let attack = tokio::spawn(async move {
        let mut ticks = interval_at(Instant::now(), Duration::from_secs_f64(1.0 / LEAVERS));
        for n in 0.. {
            ticks.tick().await;
            tokio::spawn(leaver(n, address));
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let beside = polite.ask(server.address, scene.duration).await?;
    attack.abort();
    server.stop().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(Outcome {
        polite: Some((alone.good, beside.good)),
        holds: Some(beside.answered == beside.asked),
        ..Outcome::default()
    })
}

pub(super) async fn ping_flood(scene: &Scene) -> anyhow::Result<Outcome> {
    flood(
        scene,
        &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        b"too_many_pings",
    )
    .await
}

pub(super) async fn settings_flood(scene: &Scene) -> anyhow::Result<Outcome> {
    flood(scene, &[0, 0, 0, 4, 0, 0, 0, 0, 0], b"too_many_settings").await
}

/// A connection that sends nothing but this frame hears why it is closed.
async fn flood(scene: &Scene, frame: &[u8], why: &[u8]) -> anyhow::Result<Outcome> {
    let folder = fresh_folder()?;
    let (server, polite) = server(scene, &folder).await?;
    let alone = polite.ask(server.address, scene.duration).await?;
    let flood = async {
        let mut heard = Vec::new();
        let mut stream = TcpStream::connect(server.address).await?;
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        bytes.extend(frame.repeat(100_000));
        let (mut read, mut write) = stream.split();
        let send = async {
            let _ = write.write_all(&bytes).await;
        };
        let hear = async {
            let _ = tokio::time::timeout(PATIENCE, read.read_to_end(&mut heard)).await;
        };
        tokio::join!(send, hear);
        anyhow::Ok(heard.windows(why.len()).any(|bytes| bytes == why))
    };
    let (heard, beside) = tokio::join!(flood, polite.ask(server.address, scene.duration));
    let (heard, beside) = (heard?, beside?);
    server.stop().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(Outcome {
        polite: Some((alone.good, beside.good)),
        holds: Some(heard),
        ..Outcome::default()
    })
}
