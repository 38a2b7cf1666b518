//! Attacks on connections and ports.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Scene;
use crate::polite::Polite;
use crate::report::Outcome;
use crate::server::Server;
use crate::wire;

/// A probe is answered within this time.
const PROBE: Duration = Duration::from_secs(3);

fn polite() -> Polite {
    Polite {
        frame: Bytes::from_static(b"payload"),
        rate: 40.0,
    }
}

async fn two_stages(scene: &Scene) -> anyhow::Result<Server> {
    let file = scene.pipelines.join("two_stage.yaml");
    let server = Server::start(&scene.spillgate, &file, &[]).await?;
    polite().ask(server.address, Duration::from_secs(2)).await?;
    Ok(server)
}

pub(super) async fn pings(scene: &Scene) -> anyhow::Result<Outcome> {
    crowded(scene, two_stages(scene).await?, 1).await
}

pub(super) async fn descriptors(scene: &Scene) -> anyhow::Result<Outcome> {
    let file = scene.pipelines.join("two_stage.yaml");
    let server = Server::start_with(1024, &scene.spillgate, &file).await?;
    polite().ask(server.address, Duration::from_secs(2)).await?;
    crowded(scene, server, 4).await
}

/// More connections than a server has places for, from so many addresses, and more coming.
async fn crowded(scene: &Scene, server: Server, addresses: u8) -> anyhow::Result<Outcome> {
    let alone = polite().ask(server.address, scene.duration).await?;
    let from = |n: u32| {
        let last = 1 + (n % u32::from(addresses)) as u8;
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
    };
    let mut silent = Vec::new();
    for n in 0..1100 {
        silent.push(wire::connect_from(from(n), server.address, 1024).await);
    }
    // A newcomer, and one that stays while more come.
    let busy = polite();
    let staying = busy.ask(server.address, scene.duration);
    let more = async {
        for n in 0..200 {
            silent.push(wire::connect_from(from(n), server.address, 1024).await);
            tokio::time::sleep(scene.duration / 400).await;
        }
    };
    let (beside, ()) = tokio::join!(staying, more);
    let beside = beside?;
    let ready = probe(&server, "/readyz").await;
    server.stop().await?;
    Ok(Outcome {
        polite: Some((alone.good, beside.good)),
        holds: Some(ready),
        ..Outcome::default()
    })
}

/// Whether the admin port answers.
async fn probe(server: &Server, path: &str) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(server.admin).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer.starts_with("HTTP/1.1 200"))
    };
    matches!(tokio::time::timeout(PROBE, ask).await, Ok(Ok(true)))
}

pub(super) async fn admin(scene: &Scene) -> anyhow::Result<Outcome> {
    let server = two_stages(scene).await?;
    let mut silent = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(server.admin).await?;
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost:").await;
        silent.push(stream);
    }
    let mut answered = true;
    for path in ["/livez", "/readyz", "/metrics"] {
        answered &= probe(&server, path).await;
    }
    server.stop().await?;
    Ok(Outcome {
        holds: Some(answered),
        ..Outcome::default()
    })
}

pub(super) async fn names(scene: &Scene) -> anyhow::Result<Outcome> {
    let server = two_stages(scene).await?;
    let mut client = SpillgateClient::connect(format!("http://{}", server.address)).await?;
    let request = pb::InferRequest {
        pipeline: "n".repeat(10_000_000),
        frame: Some(pb::Frame::default()),
    };
    let status = client
        .infer(request)
        .await
        .expect_err("there is no such pipeline");
    server.stop().await?;
    Ok(Outcome {
        holds: Some(status.message().len() < 1000),
        ..Outcome::default()
    })
}

pub(super) async fn resets(scene: &Scene) -> anyhow::Result<Outcome> {
    let server = two_stages(scene).await?;
    let alone = polite().ask(server.address, scene.duration).await?;
    let address = server.address;
    let attack = tokio::spawn(async move {
        loop {
            let Ok(connection) = wire::connect(address, 1024).await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            // Until the server has enough of this connection. Paced, since the attacker has the same cores.
            while let Ok((_, mut stream)) = wire::call(&connection, address, "Infer").await {
                stream.send_reset(h2::Reason::CANCEL);
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
        }
    });
    let beside = polite().ask(server.address, scene.duration).await?;
    attack.abort();
    server.stop().await?;
    Ok(Outcome {
        polite: Some((alone.good, beside.good)),
        ..Outcome::default()
    })
}

/// Frames of HTTP/2 that fit together by chance only: types, flags, streams and lengths from a seed.
fn garbage(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for _ in 0..1 + draw(40) {
        let most = if draw(4) == 0 { 3000 } else { 40 };
        let length = draw(most) as usize;
        bytes.extend([
            0,
            (length >> 8) as u8,
            length as u8,
            draw(11) as u8,
            draw(256) as u8,
        ]);
        bytes.extend([0, 0, 0, draw(8) as u8]);
        bytes.extend((0..length).map(|_| draw(256) as u8));
    }
    bytes
}

pub(super) async fn nonsense(scene: &Scene) -> anyhow::Result<Outcome> {
    let mut server = two_stages(scene).await?;
    let alone = polite().ask(server.address, scene.duration).await?;
    let address = server.address;
    let attack = tokio::spawn(async move {
        for seed in 1.. {
            if let Ok(mut stream) = TcpStream::connect(address).await {
                let _ = stream.write_all(&garbage(seed)).await;
                let mut answer = [0; 1024];
                let read = stream.read(&mut answer);
                let _ = tokio::time::timeout(Duration::from_millis(5), read).await;
            }
        }
    });
    let beside = polite().ask(server.address, scene.duration).await?;
    attack.abort();
    let lives = server.lives();
    server.stop().await?;
    Ok(Outcome {
        polite: Some((alone.good, beside.good)),
        holds: Some(lives),
        ..Outcome::default()
    })
}
