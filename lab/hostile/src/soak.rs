//! All kinds of clients together, for a long time: polite clients keep their good answers, each request is answered
//! once, and memory and descriptors do not grow.

use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use jpeg_encoder::ColorType;
use spillgate_proto::pb;
use tokio::task::JoinSet;

use crate::attacks::{Bad, Scene};
use crate::pictures;
use crate::pipelines;
use crate::polite::{Polite, Went};
use crate::report::Outcome;
use crate::server::{Server, fresh_folder};
use crate::wire;

/// The server's budget, in MB.
const BUDGET_MB: f64 = 256.0;
/// Descriptors that may be open after the soak in addition to those before: those of the next probe and the next
/// connection.
const DESCRIPTORS_SLACK: usize = 10;
/// How long polite clients are alone at most.
const ALONE_MAX: Duration = Duration::from_secs(30);
/// Polite clients.
const POLITE: u64 = 3;

/// Runs the soak.
pub(crate) async fn run(scene: &Scene, duration: Duration) -> anyhow::Result<Outcome> {
    let folder = fresh_folder()?;
    let file = pipelines::look(&folder, 20, "200ms")?;
    let server = Server::start(&scene.spillgate, &file, &[]).await?;
    let address = server.address;
    let polite = Polite {
        frame: pictures::honest(320, 240).into(),
        rate: 10.0,
    };
    ask_all(&polite, address, Duration::from_secs(2)).await?;
    let descriptors = server.descriptors();
    let alone = ask_all(&polite, address, duration.div_f64(4.0).min(ALONE_MAX)).await?;
    let mut broken = pictures::honest(320, 240);
    broken.truncate(broken.len() / 2);
    let hurry = Bad {
        frame: pb::Frame {
            timeout_ms: 1.0,
            ..Bad::new(polite.frame.clone(), 1.0).frame
        },
        ..Bad::new("", 50.0)
    };
    let cancelled = Bad {
        leave: Some(Duration::from_millis(5)),
        ..Bad::new(polite.frame.clone(), 30.0)
    };
    let bad = [
        Bad::new(broken, 50.0),
        Bad::new("", 50.0),
        Bad::new(vec![7; 20 << 20], 1.0),
        Bad::new(pictures::empty_scans(1920, 1080, 89, ColorType::Luma), 2.0),
        Bad::new(pictures::grey(7680, 4320), 1.0),
        hurry,
        cancelled,
    ];
    let attack = async {
        let mut clients = JoinSet::new();
        for bad in bad {
            clients.spawn(async move {
                let _ = bad.ask(address).await;
            });
        }
        clients.spawn(slow(address));
        clients.spawn(come_and_go(address));
        let went = ask_all(&polite, address, duration).await;
        clients.abort_all();
        while clients.join_next().await.is_some() {}
        went
    };
    let (beside, memory) = server.memory_during(BUDGET_MB, attack).await;
    let beside = beside?;
    ensure!(
        beside.answered == beside.asked,
        "{} of {} requests were answered",
        beside.answered,
        beside.asked
    );
    let left = server.descriptors();
    ensure!(
        left <= descriptors + DESCRIPTORS_SLACK,
        "{descriptors} descriptors were open before, {left} after"
    );
    let in_order = server.stop().await?;
    std::fs::remove_dir_all(folder)?;
    // As many as would have been good alone in the same time.
    let expected = alone.good as f64 / alone.asked as f64 * beside.asked as f64;
    Ok(Outcome {
        polite: Some((expected.round() as u64, beside.good)),
        memory: Some(memory),
        holds: Some(in_order),
    })
}

/// Several polite clients, each on a connection of its own.
async fn ask_all(
    polite: &Polite,
    address: std::net::SocketAddr,
    duration: Duration,
) -> anyhow::Result<Went> {
    let mut clients = JoinSet::new();
    for _ in 0..POLITE {
        let polite = polite.clone();
        clients.spawn(async move { polite.ask(address, duration).await });
    }
    let mut all = Went::default();
    while let Some(went) = clients.join_next().await {
        let went = went??;
        all.asked += went.asked;
        all.good += went.good;
        all.answered += went.answered;
    }
    Ok(all)
}

/// Sends a message byte by byte, again and again.
async fn slow(address: std::net::SocketAddr) {
    loop {
        if let Ok(connection) = wire::connect(address, 1024).await
            && let Ok((_answer, mut stream)) = wire::call(&connection, address, "Infer").await
        {
            wire::send(&mut stream, wire::claim(1_000_000), Duration::from_secs(1)).await;
            while wire::send(
                &mut stream,
                Bytes::from_static(b"x"),
                Duration::from_secs(1),
            )
            .await
                > 0
            {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Connects, begins a call and goes away, again and again.
async fn come_and_go(address: std::net::SocketAddr) {
    loop {
        if let Ok(connection) = wire::connect(address, 1024).await {
            let _call = wire::call(&connection, address, "Stream").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
