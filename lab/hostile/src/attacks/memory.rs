//! Attacks on memory.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_proto::pb::stream_request::Message as Ask;
use tokio::task::JoinSet;

use super::Scene;
use crate::pictures;
use crate::pipelines;
use crate::report::Outcome;
use crate::server::{Server, fresh_folder};
use crate::wire::{self, Connection};

/// The default memory budget of a server.
const BUDGET_MB: f64 = 256.0;
/// A server that takes nothing for this long takes nothing more.
const PATIENCE: Duration = Duration::from_millis(500);
/// An attack holds its bytes for this long.
const HOLD: Duration = Duration::from_secs(3);
/// Answers are not read: HTTP/2 takes this much of one all the same.
const UNREAD: u32 = 1024;

/// Attacks a server's memory, and then sends it a request, because it must still live. The server may end or refuse any
/// part of an attack.
async fn attacked<F>(
    scene: &Scene,
    file: &Path,
    attack: impl FnOnce(SocketAddr) -> F,
) -> anyhow::Result<Outcome>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut server = Server::start(&scene.spillgate, file, &[]).await?;
    describe(server.address).await?;
    let address = server.address;
    let (ended, memory) = server.memory_during(BUDGET_MB, attack(address)).await;
    if let Err(error) = ended {
        eprintln!("  the attack ended early: {error:#}");
    }
    let answers = server.lives() && describe(server.address).await.is_ok();
    server.stop().await?;
    Ok(Outcome {
        memory: Some(memory),
        holds: Some(answers),
        ..Outcome::default()
    })
}

async fn describe(address: SocketAddr) -> anyhow::Result<()> {
    let mut client = SpillgateClient::connect(format!("http://{address}")).await?;
    client.describe(pb::DescribeRequest::default()).await?;
    Ok(())
}

/// A server that echoes its payloads.
async fn echo_attacked<F>(
    scene: &Scene,
    ms: u32,
    limits: &str,
    attack: impl FnOnce(SocketAddr) -> F,
) -> anyhow::Result<Outcome>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let folder = fresh_folder()?;
    let file = pipelines::echo(&folder, ms, "20s", limits)?;
    let outcome = attacked(scene, &file, attack).await;
    std::fs::remove_dir_all(folder)?;
    outcome
}

fn request(data: Bytes) -> pb::InferRequest {
    pb::InferRequest {
        pipeline: String::new(),
        frame: Some(pb::Frame {
            data,
            ..Default::default()
        }),
    }
}

fn infer(data: Bytes) -> Bytes {
    wire::message(&request(data))
}

fn asking(message: Ask) -> Bytes {
    wire::message(&pb::StreamRequest {
        message: Some(message),
    })
}

fn frame(number: u64, data: Bytes) -> Bytes {
    asking(Ask::Frame(pb::Frame {
        number,
        data,
        ..Default::default()
    }))
}

pub(super) async fn unfinished(scene: &Scene) -> anyhow::Result<Outcome> {
    echo_attacked(
        scene,
        1,
        "{ frame_bytes: 16777216 }",
        |address| async move {
            let connection = wire::connect(address, UNREAD).await?;
            let mut calls = Vec::new();
            let whole = infer(vec![7; 16_000_000].into());
            for _ in 0..128 {
                let (answer, mut stream) = wire::call(&connection, address, "Infer").await?;
                wire::send(&mut stream, whole.slice(..whole.len() - 1), PATIENCE / 5).await;
                calls.push((answer, stream));
            }
            tokio::time::sleep(HOLD).await;
            Ok(())
        },
    )
    .await
}

pub(super) async fn claimed(scene: &Scene) -> anyhow::Result<Outcome> {
    echo_attacked(
        scene,
        1,
        "{ frame_bytes: 1000000000 }",
        |address| async move {
            let connection = wire::connect(address, UNREAD).await?;
            let mut calls = Vec::new();
            for _ in 0..102 {
                let (answer, mut stream) = wire::call(&connection, address, "Infer").await?;
                wire::send(&mut stream, wire::claim(999_999_999), PATIENCE).await;
                calls.push((answer, stream));
            }
            tokio::time::sleep(HOLD).await;
            Ok(())
        },
    )
    .await
}

pub(super) async fn refused(scene: &Scene) -> anyhow::Result<Outcome> {
    let limits = "{ in_flight_per_stream: 1 }";
    echo_attacked(scene, 15_000, limits, |address| async move {
        let connection = wire::connect(address, 1 << 30).await?;
        let (_answer, mut stream) = wire::call(&connection, address, "Stream").await?;
        let open = Ask::Open(pb::StreamOpen {
            in_order: true,
            ..Default::default()
        });
        wire::send(&mut stream, asking(open), PATIENCE).await;
        let many: Vec<u8> = (0..100_000).flat_map(|n| frame(n, "x".into())).collect();
        wire::send(&mut stream, many.into(), PATIENCE).await;
        tokio::time::sleep(HOLD).await;
        Ok(())
    })
    .await
}

pub(super) async fn unread_streams(scene: &Scene) -> anyhow::Result<Outcome> {
    echo_attacked(scene, 1, "{ in_flight: 4096 }", |address| async move {
        let mut open: Vec<(Connection, _, _)> = Vec::new();
        let data = Bytes::from(vec![7; 1 << 20]);
        for _ in 0..60 {
            let connection = wire::connect(address, UNREAD).await?;
            let (answer, mut stream) = wire::call(&connection, address, "Stream").await?;
            wire::send(
                &mut stream,
                asking(Ask::Open(pb::StreamOpen::default())),
                PATIENCE,
            )
            .await;
            for n in 0..64 {
                let whole = frame(n, data.clone());
                if wire::send(&mut stream, whole.clone(), PATIENCE / 10).await < whole.len() {
                    break;
                }
            }
            open.push((connection, answer, stream));
        }
        tokio::time::sleep(HOLD).await;
        Ok(())
    })
    .await
}

pub(super) async fn unread_calls(scene: &Scene) -> anyhow::Result<Outcome> {
    echo_attacked(scene, 1, "{ in_flight: 4096 }", |address| async move {
        let connection = wire::connect(address, UNREAD).await?;
        let mut calls = Vec::new();
        let whole = infer(vec![7; 5 << 20].into());
        for _ in 0..256 {
            let (answer, mut stream) = wire::call(&connection, address, "Infer").await?;
            wire::send(&mut stream, whole.clone(), PATIENCE / 10).await;
            let _ = stream.send_data(Bytes::new(), true);
            calls.push((answer, stream));
        }
        tokio::time::sleep(HOLD).await;
        Ok(())
    })
    .await
}

/// A message whose frame names so many models, each with three letters.
fn naming(models: u32) -> Bytes {
    let letters = |n: u32| [14, 7, 0].map(|shift| char::from((n >> shift) as u8 & 0x7f));
    let models = (0..models).map(|n| (String::from_iter(letters(n)), String::new()));
    wire::message(&pb::InferRequest {
        pipeline: String::new(),
        frame: Some(pb::Frame {
            models: models.collect(),
            ..Default::default()
        }),
    })
}

pub(super) async fn keys(scene: &Scene) -> anyhow::Result<Outcome> {
    let limits = "{ frame_bytes: 16777216 }";
    echo_attacked(scene, 1, limits, |address| async move {
        let whole = naming(2_000_000);
        let mut calls = Vec::new();
        for _ in 0..12 {
            let connection = wire::connect(address, UNREAD).await?;
            let (answer, mut stream) = wire::call(&connection, address, "Infer").await?;
            wire::send(&mut stream, whole.clone(), PATIENCE).await;
            let _ = stream.send_data(Bytes::new(), true);
            calls.push((connection, answer, stream));
        }
        tokio::time::sleep(HOLD).await;
        Ok(())
    })
    .await
}

pub(super) async fn bombs(scene: &Scene) -> anyhow::Result<Outcome> {
    let limits = "{ frame_bytes: 16777216 }";
    echo_attacked(scene, 1000, limits, |address| async move {
        let whole = wire::packed(&request(vec![0; 15_000_000].into()))?;
        let mut calls = Vec::new();
        for _ in 0..64 {
            let connection = wire::connect(address, UNREAD).await?;
            let (answer, mut stream) =
                wire::call_with(&connection, address, "Infer", "gzip").await?;
            wire::send(&mut stream, whole.clone(), PATIENCE).await;
            let _ = stream.send_data(Bytes::new(), true);
            calls.push((connection, answer, stream));
        }
        tokio::time::sleep(HOLD).await;
        Ok(())
    })
    .await
}

pub(super) async fn too_large(scene: &Scene) -> anyhow::Result<Outcome> {
    let limits = "{ frame_bytes: 1048576 }";
    echo_attacked(scene, 1, limits, |address| async move {
        let open = asking(Ask::Open(pb::StreamOpen::default()));
        let large = frame(1, vec![7; 100_000_000].into());
        let mut streams = JoinSet::new();
        for _ in 0..8 {
            let (open, large) = (open.clone(), large.clone());
            streams.spawn(async move {
                let connection = wire::connect(address, UNREAD).await?;
                let (answer, mut stream) = wire::call(&connection, address, "Stream").await?;
                wire::send(&mut stream, open, PATIENCE).await;
                let sent = wire::send(&mut stream, large.clone(), PATIENCE).await;
                anyhow::ensure!(sent == large.len(), "the stream ended after {sent} bytes");
                drop(answer);
                anyhow::Ok(())
            });
        }
        while let Some(ended) = streams.join_next().await {
            ended??;
        }
        Ok(())
    })
    .await
}

pub(super) async fn pictures(scene: &Scene) -> anyhow::Result<Outcome> {
    let folder = fresh_folder()?;
    let file = pipelines::look(&folder, 1000, "60s")?;
    let outcome = attacked(scene, &file, |address| async move {
        let mut calls = Vec::new();
        let whole = infer(pictures::grey(7680, 4320).into());
        // As many clients as there are pictures: no share of one client holds them back.
        for _ in 0..35 {
            let connection = wire::connect(address, UNREAD).await?;
            let (answer, mut stream) = wire::call(&connection, address, "Infer").await?;
            wire::send(&mut stream, whole.clone(), PATIENCE).await;
            let _ = stream.send_data(Bytes::new(), true);
            calls.push((connection, answer, stream));
        }
        tokio::time::sleep(HOLD * 2).await;
        Ok(())
    })
    .await;
    std::fs::remove_dir_all(folder)?;
    outcome
}

pub(super) async fn small_frames(scene: &Scene) -> anyhow::Result<Outcome> {
    let limits = "{ in_flight_per_stream: 1 }";
    echo_attacked(scene, 15_000, limits, |address| async move {
        let mut open = Vec::new();
        for _ in 0..4 {
            // Once answers wait, the stream is no longer read; the messages that it then sends stay in HTTP/2.
            let connection = wire::connect(address, UNREAD).await?;
            let (answer, mut stream) = wire::call(&connection, address, "Stream").await?;
            let in_order = Ask::Open(pb::StreamOpen {
                in_order: true,
                ..Default::default()
            });
            wire::send(&mut stream, asking(in_order), PATIENCE).await;
            for n in 0..200 {
                wire::send(&mut stream, frame(n, "x".into()), PATIENCE).await;
            }
            for n in 0..1_000_000u32 {
                let byte = Bytes::from_static(b"x");
                if wire::send(&mut stream, byte, PATIENCE).await == 0 {
                    break;
                }
                if n % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            open.push((connection, answer, stream));
        }
        tokio::time::sleep(HOLD).await;
        Ok(())
    })
    .await
}
