//! Streams whose clients adapt, over real sockets: what they are told, what is believed of what they say, and that those which lie, or
//! take no part, harm nobody else.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Sender, TestServer, frame, on_cpu, open_stream};
use indexmap::IndexMap;
use spillgate::device_sharing::DeviceSharing;
use spillgate_client::encode::{Encoding, encode};
use spillgate_client::source::{Content, SILENT, SourceSpec};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::action::PAGE_BYTES;
use spillgate_pipeline::placement::ServedBy;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_request::Message as Ask;
use spillgate_proto::pb::stream_response::Message as Reply;
use spillgate_proto::pb::value::Value;
use tonic::{Code, Streaming};

/// A module of 20 ms, SLO 200 ms.
const ONE_STAGE: &str = r#"
name: stage
slo: 200ms
source: { payload: bytes }
modules:
  a: { op: slow, inputs: { payload: $source.payload }, device: "emulated:0", batch: { max: 1 } }
outputs: { payload: $a.payload }
"#;

/// A detector that has a small and a large network.
const DETECTOR: &str = r#"
name: street
slo: 30s
policy: { adapt: spillgate }
modules:
  detect:
    op: detector
    variants:
      - { model: ../modules/models/road.pt, input: 192, accuracy: 0.783 }
      - { model: ../modules/models/road.pt, input: 320, accuracy: 0.872 }
    inputs: { image: $source.frame }
outputs: { vehicles: $detect.vehicles, people: $detect.people }
"#;

/// A stream of a client that adapts.
struct Camera<'a> {
    server: &'a TestServer,
    ask: Sender,
    replies: Streaming<pb::StreamResponse>,
}

impl<'a> Camera<'a> {
    async fn open(server: &'a TestServer) -> Self {
        let open = pb::StreamOpen {
            adapts: true,
            ..Default::default()
        };
        let (ask, replies) = open_stream(server, open).await;
        let mut camera = Camera {
            server,
            ask,
            replies,
        };
        match camera.next().await {
            Reply::Opened(opened) => assert!(opened.adapts),
            other => panic!("{other:?}"),
        }
        camera
    }

    async fn next(&mut self) -> Reply {
        let next = self.replies.message();
        let reply = self.server.until_ready(next).await.unwrap();
        reply.and_then(|reply| reply.message).expect("a message")
    }

    async fn send(&self, frame: pb::Frame) {
        self.ask.send(Ask::Frame(frame)).await.unwrap();
    }

    /// Says this of the link, after a tenth of a second: more often it would not be heard.
    async fn report(&self, clock_ns: u64, bandwidth: f64, round_trip_ms: f64) {
        self.server.advance(Duration::from_millis(100));
        let report = pb::LinkReport {
            clock_ns,
            bandwidth,
            round_trip_ms,
        };
        self.ask.send(Ask::Report(report)).await.unwrap();
    }

    /// The result of a frame.
    async fn result(&mut self, frame: pb::Frame) -> pb::Result {
        self.send(frame).await;
        loop {
            if let Reply::Result(result) = self.next().await {
                return result;
            }
        }
    }

    async fn clock(&mut self) -> pb::ClockAnswer {
        loop {
            if let Reply::Clock(clock) = self.next().await {
                return clock;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_is_acknowledged_when_it_comes_and_reports_are_answered() {
    let server = TestServer::start(&[ONE_STAGE]).await;
    let mut camera = Camera::open(&server).await;
    camera.report(77, 0.0, 0.0).await;
    let clock = camera.clock().await;
    assert_eq!(clock.client_ns, 77);
    assert!(
        0 < clock.came_ns && clock.came_ns <= clock.written_ns,
        "{clock:?}"
    );
    server.advance(Duration::from_millis(1));
    camera.send(frame(5, b"four")).await;
    let Reply::Received(received) = camera.next().await else {
        panic!("no acknowledgement");
    };
    assert_eq!((received.number, received.bytes), (5, 4));
    assert_eq!(received.clock_ns, clock.written_ns + 1_000_000);
    let Reply::Result(result) = camera.next().await else {
        panic!("no result");
    };
    assert_eq!(result.outcome(), pb::Outcome::Completed);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_take_no_part_hear_nothing_of_it() {
    let server = TestServer::start(&[ONE_STAGE]).await;
    let (ask, mut replies) = open_stream(&server, pb::StreamOpen::default()).await;
    let sent = pb::Frame {
        sent_at_ns: 1,
        ..frame(3, b"x")
    };
    ask.send(Ask::Frame(sent)).await.unwrap();
    let first = replies.message().await.unwrap().unwrap().message;
    assert!(matches!(first, Some(Reply::Opened(opened)) if !opened.adapts));
    let next = server.until_ready(replies.message()).await;
    match next.unwrap().unwrap().message {
        Some(Reply::Result(result)) => assert_eq!(result.outcome(), pb::Outcome::Completed),
        other => panic!("{other:?}"),
    }
    let report = pb::LinkReport::default();
    ask.send(Ask::Report(report)).await.unwrap();
    let status = replies.message().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_on_the_network_counts_as_far_as_the_reported_link_explains_it() {
    let server = TestServer::start(&[ONE_STAGE]).await;
    let mut camera = Camera::open(&server).await;
    let sent = |number, sent_at_ns| pb::Frame {
        sent_at_ns,
        ..frame(number, b"x")
    };
    let completed = pb::Outcome::Completed;
    let result = camera.result(sent(0, 1)).await;
    assert_eq!(
        result.outcome(),
        completed,
        "no report: nothing is believed"
    );
    camera.report(1, 1e9, 10.0).await;
    camera.clock().await;
    let result = camera.result(sent(1, 1)).await;
    assert_eq!(result.outcome(), completed, "10 ms at most are believed");
    camera.report(2, 1e9, 5000.0).await;
    let now = camera.clock().await.written_ns;
    let result = camera.result(sent(2, 1)).await;
    assert_eq!(
        (result.outcome(), &*result.reason),
        (pb::Outcome::Refused, "expired")
    );
    // Its time is over before it could run: 20 ms do not fit into what is left.
    let result = camera.result(sent(3, now - 185_000_000)).await;
    assert_ne!(result.outcome(), completed, "{result:?}");
    for sent_at in [0, u64::MAX] {
        let result = camera.result(sent(4, sent_at)).await;
        assert_eq!(result.outcome(), completed, "not in the future: {sent_at}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_and_floods_of_reports_harm_nobody() {
    let server = TestServer::start(&[ONE_STAGE]).await;
    let mut camera = Camera::open(&server).await;
    for bandwidth in [f64::NAN, -1.0, f64::INFINITY, 1e300, f64::MIN_POSITIVE] {
        camera.report(u64::MAX, bandwidth, -bandwidth).await;
        assert_eq!(camera.clock().await.client_ns, u64::MAX);
    }
    let mut flooding = Camera::open(&server).await;
    let began = server.clock.now();
    for clock_ns in 0..20_000 {
        let report = pb::LinkReport {
            clock_ns,
            bandwidth: 1e6,
            round_trip_ms: 1.0,
        };
        flooding.ask.send(Ask::Report(report)).await.unwrap();
    }
    for number in 0..5 {
        let result = camera.result(frame(number, b"x")).await;
        assert_eq!(result.outcome(), pb::Outcome::Completed);
    }
    let mut n_clocks = 0;
    flooding.send(frame(9, b"x")).await;
    loop {
        match flooding.next().await {
            Reply::Clock(_) => n_clocks += 1,
            Reply::Result(result) => {
                assert_eq!(result.outcome(), pb::Outcome::Completed);
                break;
            }
            _ => {}
        }
    }
    let most = server.clock.now().since(began).as_millis() / 50 + 2;
    assert!(n_clocks <= most, "{n_clocks} answers, {most} at most");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_holds_no_more_than_its_places() {
    let one = ONE_STAGE.to_owned() + "limits: { in_flight_per_stream: 2 }\n";
    let server = TestServer::start(&[&one]).await;
    let deaf = Camera::open(&server).await;
    let feeding = async {
        for number in 0..100_000 {
            let report = pb::LinkReport::default();
            deaf.ask.send(Ask::Report(report)).await.unwrap();
            deaf.send(frame(number, b"x")).await;
        }
    };
    let fed = tokio::time::timeout(Duration::from_millis(500), feeding).await;
    drop(fed);
    let mut camera = Camera::open(&server).await;
    let result = camera.result(frame(1, b"x")).await;
    assert_eq!(result.outcome(), pb::Outcome::Completed);
    drop(deaf);
    server
        .until("the work is freed", |s| s.in_flight() == 0)
        .await;
    server.stop().await;
}

/// A street with vehicles, 640 x 360.
fn street() -> pb::Frame {
    let source = SourceSpec::parse("scene:seed=7,size=640x360,density=1").unwrap();
    let mut source = source.open(0, SILENT).unwrap();
    loop {
        let frame = source.next_frame().unwrap().unwrap();
        if let Content::Picture(picture) = frame.content
            && !frame.truth.unwrap().vehicles.is_empty()
        {
            let encoded = encode(&picture, Encoding::Jpeg(90)).unwrap();
            return pb::Frame {
                data: encoded.data,
                ..Default::default()
            };
        }
    }
}

fn vehicles(result: &pb::Result) -> Vec<[f32; 4]> {
    match &result.outputs["vehicles"].value {
        Some(Value::Boxes(list)) => list
            .boxes
            .iter()
            .map(|b| [b.x0, b.y0, b.x1, b.y1])
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn boxes_come_back_in_pixels_of_the_camera() {
    let server = TestServer::over(vec![on_cpu(DETECTOR)], spillgate_modules::library()).await;
    let mut client = server.client().await;
    let plain = async move {
        let request = pb::InferRequest {
            pipeline: String::new(),
            frame: Some(street()),
        };
        client.infer(request).await
    };
    let plain = vehicles(
        &server
            .serve(plain)
            .await
            .unwrap()
            .into_inner()
            .result
            .unwrap(),
    );
    assert!(!plain.is_empty());
    let mut camera = Camera::open(&server).await;
    let result = camera.result(pb::Frame {
        source_width: 1280,
        source_height: 1080,
        ..street()
    });
    let scaled = vehicles(&result.await);
    let expected: Vec<[f32; 4]> = (plain.iter())
        .map(|[x0, y0, x1, y1]| [x0 * 2.0, y0 * 3.0, x1 * 2.0, y1 * 3.0])
        .collect();
    assert_eq!(scaled, expected);
    // A size that cannot be harms only who says it.
    let result = camera.result(pb::Frame {
        source_width: u32::MAX,
        source_height: 0,
        ..street()
    });
    assert_eq!(vehicles(&result.await), plain);
    server.stop().await;
}

/// Sends frames until the server asks for that longer side.
async fn until_asked(
    camera: &mut Camera<'_>,
    street: &pb::Frame,
    link: f64,
    side: u32,
) -> pb::AskedSize {
    let give_up = camera.server.clock.now() + Duration::from_secs(20);
    let mut asked = None;
    while camera.server.clock.now() < give_up {
        camera.report(1, link, 2.0).await;
        camera.send(street.clone()).await;
        loop {
            match camera.next().await {
                Reply::Asked(new) => asked = Some(new),
                Reply::Result(result) => {
                    // Whether or not it does as it was told.
                    assert_eq!(result.outcome(), pb::Outcome::Completed, "{result:?}");
                    break;
                }
                _ => {}
            }
        }
        if let Some(asked) = asked.take()
            && asked.side == side
        {
            return asked;
        }
    }
    panic!("{side} was not asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_asked_for_the_size_that_its_link_bears() {
    let server = TestServer::over(vec![on_cpu(DETECTOR)], spillgate_modules::library()).await;
    let mut camera = Camera::open(&server).await;
    let street = street();
    let fast = until_asked(&mut camera, &street, 1e9, 320).await;
    assert_eq!(fast.variant, 1);
    assert!(fast.reason.starts_with("detect is served by"), "{fast:?}");
    // At about ten frames a second a side of 320 takes more than this, and one of 192 less.
    let bits = street.data.len() as f64 * 8.0 * 10.0 * (256.0 / 640.0) * (256.0 / 640.0);
    let slow = until_asked(&mut camera, &street, bits, 192).await;
    assert_eq!(slow.variant, 0);
    until_asked(&mut camera, &street, 1e9, 320).await;
    server.stop().await;
}

/// A camera that ignores what it is asked for, one that lies about its size, one that never reports again, and one whose connection stands
/// still in the middle of a frame for ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn cameras_that_misbehave_make_no_polite_one_small_or_late() {
    let server = TestServer::over(vec![on_cpu(DETECTOR)], spillgate_modules::library()).await;
    let street = street();
    let mut polite = Camera::open(&server).await;
    until_asked(&mut polite, &street, 1e9, 320).await;
    let stalled = stalled_upload(&server).await;
    let mut deaf = Camera::open(&server).await;
    let mut liar = Camera::open(&server).await;
    let mut silent = Camera::open(&server).await;
    silent.report(1, 1e5, 2.0).await;
    let lie = pb::Frame {
        source_width: 7,
        source_height: u32::MAX,
        ..street.clone()
    };
    let until = server.clock.now() + Duration::from_secs(10);
    let (mut n, mut asked_deaf) = (0, None);
    while server.clock.now() < until {
        polite.report(1, 1e9, 2.0).await;
        polite.send(street.clone()).await;
        // Frames of 640 pixels, whatever it is asked for, over a link that bears none of them.
        deaf.report(1, 1e5, 2.0).await;
        deaf.send(street.clone()).await;
        liar.report(1, 1e12, -5.0).await;
        liar.send(lie.clone()).await;
        silent.send(street.clone()).await;
        for (camera, is_polite) in [
            (&mut polite, true),
            (&mut deaf, false),
            (&mut liar, false),
            (&mut silent, false),
        ] {
            loop {
                match camera.next().await {
                    Reply::Asked(asked) if is_polite => {
                        panic!("a polite camera was asked for another size: {asked:?}")
                    }
                    Reply::Asked(asked) => asked_deaf = Some(asked.side).max(asked_deaf),
                    Reply::Result(result) => {
                        assert_eq!(result.outcome(), pb::Outcome::Completed, "{result:?}");
                        break;
                    }
                    _ => {}
                }
            }
        }
        n += 1;
    }
    assert!(n >= 10, "{n} rounds in ten seconds");
    assert!(asked_deaf.is_some(), "the others were told sizes");
    // The rest of the frame comes, and is answered: it was a stream of the server all the time.
    until_answered(stalled).await;
    server.stop().await;
}

/// A connection that has sent the begin of a frame, and sends nothing more.
async fn stalled_upload(server: &TestServer) -> tokio::net::TcpStream {
    use tokio::io::AsyncWriteExt;
    let mut stream = server.connect().await;
    // HPACK without compression: a literal with a name of its own each.
    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", "/spillgate.v1.Spillgate/Stream"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        headers.push(0);
        for text in [name, value] {
            headers.push(text.len() as u8);
            headers.extend(text.as_bytes());
        }
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(http2_frame(4, 0, 0, &[]));
    bytes.extend(http2_frame(1, 4, 1, &headers));
    // A message of 40,000 bytes is announced, and 1,000 of them come.
    let mut body = vec![0, 0, 0, 0x9c, 0x40];
    body.resize(1_005, 0);
    bytes.extend(http2_frame(0, 0, 1, &body));
    stream.write_all(&bytes).await.unwrap();
    stream
}

fn http2_frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Sends the 39,000 bytes that are missing, and reads until there is an answer: headers of the first stream.
async fn until_answered(mut stream: tokio::net::TcpStream) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for _ in 0..3 {
        let more = http2_frame(0, 0, 1, &[0; 13_000]);
        stream.write_all(&more).await.unwrap();
    }
    let answered = async {
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut body = vec![0; length as usize];
            stream.read_exact(&mut body).await.unwrap();
            if head[3] == 1 && head[5..] == 1u32.to_be_bytes() {
                return;
            }
        }
    };
    let answered = tokio::time::timeout(Duration::from_secs(10), answered).await;
    answered.expect("an answer");
}

/// LOADs of a server with that many pages for weights, whose detector runs its large, its small and its large variant.
async fn loads(detector: &str, pages: u64) -> u64 {
    let placing = DeviceSharing {
        memory: IndexMap::from([("cpu:0".to_owned(), pages * PAGE_BYTES)]),
        ..DeviceSharing::default()
    };
    let mut deployment = on_cpu(detector);
    let pipeline = Pipeline::clone(&deployment.pipeline);
    let by = ServedBy::one_process(placing.decider);
    deployment.pipeline = Arc::new(pipeline.served_by(by));
    let server = TestServer::with(vec![deployment], spillgate_modules::library(), |setup| {
        setup.context.sharing = Some(placing);
    });
    let server = server.await;
    let mut camera = Camera::open(&server).await;
    let street = street();
    let bits = street.data.len() as f64 * 8.0 * 10.0 * (256.0 / 640.0) * (256.0 / 640.0);
    for (link, side) in [(1e9, 320), (bits, 192), (1e9, 320)] {
        until_asked(&mut camera, &street, link, side).await;
        let result = camera.result(street.clone()).await;
        assert!(!vehicles(&result).is_empty(), "{pages} {side}: {result:?}");
    }
    let (_, status) = server.get("/status").await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let did = status["devices"].as_array().unwrap().iter();
    let n = did.filter_map(|d| d["weights"]["loads"].as_u64()).sum();
    server.stop().await;
    n
}

/// The weights in one file are a page. With room for one, the other is loaded before it runs; with room for both they are there from the
/// start.
#[tokio::test(flavor = "multi_thread")]
async fn under_a_placement_a_variant_of_another_file_is_loaded_before_it_runs() {
    let other = DETECTOR.replacen("../modules/", "../modules/../modules/", 1);
    let n = loads(&other, 1).await;
    assert!((2..=20).contains(&n), "{n} loads");
    assert_eq!(loads(&other, 2).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn under_a_placement_variants_of_one_file_run_with_the_same_weights() {
    assert_eq!(loads(DETECTOR, 1).await, 0);
}
