//! Attacks on the places of the entry gate and on the decoders.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use jpeg_encoder::ColorType;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};

use super::Scene;
use crate::pictures;
use crate::pipelines;
use crate::polite::Polite;
use crate::report::Outcome;
use crate::server::{Server, fresh_folder};
use crate::wire;

/// A request that hostile clients repeat.
#[derive(Clone)]
pub(crate) struct Bad {
    pub(crate) frame: pb::Frame,
    pub(crate) rate: f64,
    /// The clients leave after that time.
    pub(crate) leave: Option<Duration>,
    /// On this many connections in turn.
    pub(crate) connections: usize,
}

impl Bad {
    pub(crate) fn new(data: impl Into<Bytes>, rate: f64) -> Self {
        Bad {
            frame: pb::Frame {
                data: data.into(),
                ..Default::default()
            },
            rate,
            leave: None,
            connections: 1,
        }
    }

    /// Sends requests until it is stopped.
    pub(crate) async fn ask(self, address: SocketAddr) -> anyhow::Result<()> {
        let mut clients = Vec::new();
        for _ in 0..self.connections {
            clients.push(SpillgateClient::connect(format!("http://{address}")).await?);
        }
        let mut ticks = interval_at(Instant::now(), Duration::from_secs_f64(1.0 / self.rate));
        let mut calls = JoinSet::new();
        for n in 0.. {
            ticks.tick().await;
            while calls.try_join_next().is_some() {}
            let mut client = clients[n % clients.len()].clone();
            let request = pb::InferRequest {
                pipeline: String::new(),
                frame: Some(self.frame.clone()),
            };
            let leave = self.leave.unwrap_or(Duration::from_secs(60));
            calls.spawn(async move {
                let _ = tokio::time::timeout(leave, client.infer(request)).await;
            });
        }
        Ok(())
    }
}

/// The good answers of a polite client alone, and during an attack.
async fn beside(scene: &Scene, file: &Path, polite: Polite, bad: Bad) -> anyhow::Result<Outcome> {
    beside_attack(scene, file, polite, |address| bad.ask(address)).await
}

async fn beside_attack<F>(
    scene: &Scene,
    file: &Path,
    polite: Polite,
    attack: impl FnOnce(SocketAddr) -> F,
) -> anyhow::Result<Outcome>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let server = Server::start(&scene.spillgate, file, &[]).await?;
    // The first requests are slower, and planners learn for a second or two.
    polite.ask(server.address, Duration::from_secs(2)).await?;
    let alone = polite.ask(server.address, scene.duration).await?;
    let attack = tokio::spawn(attack(server.address));
    // Long enough that the effect of the attack on the plans shows, too.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let beside = polite.ask(server.address, scene.duration).await?;
    attack.abort();
    server.stop().await?;
    Ok(Outcome {
        polite: Some((alone.good, beside.good)),
        holds: Some(beside.answered == beside.asked),
        ..Outcome::default()
    })
}

async fn beside_two_stages(scene: &Scene, bad: Bad) -> anyhow::Result<Outcome> {
    let polite = Polite {
        frame: Bytes::from_static(b"payload"),
        rate: 40.0,
    };
    beside(scene, &scene.pipelines.join("two_stage.yaml"), polite, bad).await
}

/// A detector of 20 ms, and a client that sends it 30 pictures a second.
async fn beside_a_detector(scene: &Scene, bad: Bad) -> anyhow::Result<Outcome> {
    let folder = fresh_folder()?;
    let polite = Polite {
        frame: pictures::honest(320, 240).into(),
        rate: 30.0,
    };
    let outcome = beside(scene, &pipelines::look(&folder, 20, "200ms")?, polite, bad).await;
    std::fs::remove_dir_all(folder)?;
    outcome
}

/// The shipped traffic pipeline, and a client that sends it four pictures a second.
async fn beside_traffic(scene: &Scene, bad: Bad) -> anyhow::Result<Outcome> {
    let polite = Polite {
        frame: pictures::honest(640, 360).into(),
        rate: 4.0,
    };
    beside(scene, &scene.pipelines.join("traffic.yaml"), polite, bad).await
}

pub(super) async fn hurry(scene: &Scene) -> anyhow::Result<Outcome> {
    let mut bad = Bad::new("payload", 300.0);
    bad.frame.timeout_ms = 1.0;
    beside_two_stages(scene, bad).await
}

pub(super) async fn unpacking(scene: &Scene) -> anyhow::Result<Outcome> {
    let polite = Polite {
        frame: Bytes::from_static(b"payload"),
        rate: 40.0,
    };
    let file = scene.pipelines.join("two_stage.yaml");
    beside_attack(scene, &file, polite, |address| async move {
        // Nothing comes of it in time: what it costs is unpacking it.
        let whole = wire::packed(&pb::InferRequest {
            pipeline: String::new(),
            frame: Some(pb::Frame {
                data: vec![0; 15_000_000].into(),
                timeout_ms: 1.0,
                ..Default::default()
            }),
        })?;
        let mut connections = Vec::new();
        for _ in 0..4 {
            connections.push(wire::connect(address, 1 << 16).await?);
        }
        let mut ticks = interval_at(Instant::now(), Duration::from_millis(50));
        for n in 0.. {
            ticks.tick().await;
            let connection = &connections[n % connections.len()];
            let (answer, mut stream) =
                wire::call_with(connection, address, "Infer", "gzip").await?;
            wire::send(&mut stream, whole.clone(), Duration::from_secs(1)).await;
            let _ = stream.send_data(Bytes::new(), true);
            tokio::spawn(answer);
        }
        Ok(())
    })
    .await
}

pub(super) async fn unreadable(scene: &Scene) -> anyhow::Result<Outcome> {
    // The header is right, and what follows is not.
    let mut picture = pictures::honest(320, 240);
    picture.truncate(picture.len() / 2);
    beside_a_detector(scene, Bad::new(picture, 300.0)).await
}

pub(super) async fn empty(scene: &Scene) -> anyhow::Result<Outcome> {
    beside_a_detector(scene, Bad::new("", 300.0)).await
}

pub(super) async fn cancelled(scene: &Scene) -> anyhow::Result<Outcome> {
    let bad = Bad {
        leave: Some(Duration::from_millis(5)),
        ..Bad::new("payload", 300.0)
    };
    beside_two_stages(scene, bad).await
}

pub(super) async fn scans(scene: &Scene) -> anyhow::Result<Outcome> {
    beside_traffic(
        scene,
        Bad::new(pictures::empty_scans(7680, 4320, 89, ColorType::Rgb), 1.0),
    )
    .await
}

pub(super) async fn bits(scene: &Scene) -> anyhow::Result<Outcome> {
    beside_traffic(scene, Bad::new(pictures::bits(7680, 4320), 4.0)).await
}

pub(super) async fn costly(scene: &Scene) -> anyhow::Result<Outcome> {
    // About 90 ms each, and the detector itself is cheap: only decoding is contended.
    let bad = Bad {
        connections: 4,
        ..Bad::new(pictures::empty_scans(1920, 1080, 89, ColorType::Luma), 40.0)
    };
    beside_a_detector(scene, bad).await
}

pub(super) async fn blocks(scene: &Scene) -> anyhow::Result<Outcome> {
    // As large as its size allows; a smaller picture would be refused by its header.
    let picture = pictures::empty_blocks(2600, 1000, 15_000_000);
    beside_traffic(scene, Bad::new(picture, 1.0)).await
}

/// Refusals are no work that others wait for.
pub(super) async fn near_names(scene: &Scene) -> anyhow::Result<Outcome> {
    let folder = fresh_folder()?;
    let polite = Polite {
        frame: pictures::honest(320, 240).into(),
        rate: 30.0,
    };
    let file = pipelines::family(&folder, 20, 12_000)?;
    let mut bad = Bad::new(polite.frame.clone(), 300.0);
    let wrong = format!("{:048}near", 0);
    bad.frame.models.insert("look".to_owned(), wrong);
    let outcome = beside(scene, &file, polite, bad).await;
    std::fs::remove_dir_all(folder)?;
    outcome
}

/// What one client's pictures took refuses no other's for long.
pub(super) async fn healing(scene: &Scene) -> anyhow::Result<Outcome> {
    let folder = fresh_folder()?;
    let file = pipelines::look(&folder, 20, "2s")?;
    let server = Server::start(&scene.spillgate, &file, &[]).await?;
    let large = Polite {
        frame: pictures::grey(5600, 3750).into(),
        rate: 2.0,
    };
    let alone = large.ask(server.address, scene.duration * 3).await?;
    let bad = Bad::new(pictures::empty_blocks(140, 140, 60_000), 20.0);
    let attack = tokio::spawn(bad.ask(server.address));
    tokio::time::sleep(Duration::from_secs(1)).await;
    attack.abort();
    let beside = large.ask(server.address, scene.duration * 3).await?;
    server.stop().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(Outcome {
        polite: Some((alone.good, beside.good)),
        holds: Some(beside.answered == beside.asked),
        ..Outcome::default()
    })
}
