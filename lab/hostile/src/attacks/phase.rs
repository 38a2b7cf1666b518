//! Streams of one address that send in step, beside a client that asks for less than its share: where its requests stand between
//! theirs must not matter.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_proto::pb::stream_request::Message as Ask;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, sleep_until};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::Scene;
use super::sources::server;
use crate::polite::Polite;
use crate::report::Outcome;
use crate::server::fresh_folder;

/// Requests a second of each stream.
const STEP: f64 = 10.0;
/// Frames of a stream that may wait to be sent.
const WAITING: usize = 64;
/// Another address than the polite client's.
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// One load: so many streams in step, and a polite client that sends so many requests a second so far behind each step, as a part of the
/// time between two. Its share is 25 of 50 a second.
struct Point {
    streams: usize,
    rate: f64,
    phase: f64,
}

const POINTS: [Point; 3] = [
    Point {
        streams: 4,
        rate: 20.0,
        phase: 0.0,
    },
    Point {
        streams: 40,
        rate: 15.0,
        phase: 0.3,
    },
    Point {
        streams: 100,
        rate: 20.0,
        phase: 0.9,
    },
];

pub(super) async fn phase(scene: &Scene) -> anyhow::Result<Outcome> {
    let folder = fresh_folder()?;
    let (server, _) = server(scene, &folder).await?;
    let (mut good_alone, mut good_beside, mut holds) = (0, 0, true);
    for Point {
        streams,
        rate,
        phase,
    } in POINTS
    {
        let polite = Polite {
            frame: Bytes::from_static(b"payload"),
            rate,
        };
        let alone = polite.ask(server.address, scene.duration).await?;
        let address = server.address;
        let begin = Instant::now() + Duration::from_secs(1);
        let attack = tokio::spawn(async move { in_step(address, streams, begin).await });
        // A second to fill the gate.
        let behind = Duration::from_secs_f64(1.0 + phase / STEP);
        sleep_until(begin + behind).await;
        let beside = polite.ask(server.address, scene.duration).await?;
        attack.abort();
        eprintln!(
            "  {streams} streams, {rate} a second, phase {phase}: {} of {}",
            beside.good, alone.good
        );
        holds &= beside.good as f64 >= 0.95 * alone.good as f64;
        good_alone += alone.good;
        good_beside += beside.good;
    }
    server.stop().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(Outcome {
        polite: Some((good_alone, good_beside)),
        holds: Some(holds),
        ..Outcome::default()
    })
}

/// Streams that send a frame each, all at once, again and again.
async fn in_step(address: SocketAddr, streams: usize, begin: Instant) -> anyhow::Result<()> {
    let channel = Endpoint::from_shared(format!("http://{address}"))?
        .local_address(Some(OTHER))
        .connect()
        .await?;
    let client = SpillgateClient::new(channel);
    let mut frames = Vec::new();
    for _ in 0..streams {
        let (send, receive) = mpsc::channel(WAITING);
        tokio::spawn(stream(client.clone(), receive));
        send.send(Ask::Open(pb::StreamOpen::default())).await?;
        frames.push(send);
    }
    let mut ticks = interval_at(begin, Duration::from_secs_f64(1.0 / STEP));
    for number in 0.. {
        ticks.tick().await;
        for stream in &frames {
            let frame = pb::Frame {
                number,
                data: Bytes::from_static(b"payload"),
                ..Default::default()
            };
            // A stream that takes no more misses this step.
            let _ = stream.try_send(Ask::Frame(frame));
        }
    }
    Ok(())
}

/// Sends what comes, and reads all answers.
async fn stream(mut client: SpillgateClient<Channel>, receive: mpsc::Receiver<Ask>) {
    let asks = ReceiverStream::new(receive).map(|message| pb::StreamRequest {
        message: Some(message),
    });
    if let Ok(answer) = client.stream(asks).await {
        let mut answers = answer.into_inner();
        while let Ok(Some(_)) = answers.message().await {}
    }
}
