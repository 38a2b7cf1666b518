//! A whole server in this process, over real sockets, on emulated devices: deadlines, cancellation, bounds,
//! order, bad input, dead devices, drain. Each test has a server of its own on a free port.

#[path = "serving/deaths.rs"]
mod deaths;
#[path = "serving/families.rs"]
mod families;
#[path = "serving/objects.rs"]
mod objects;
#[path = "serving/own_module.rs"]
mod own_module;
#[path = "serving/pipes.rs"]
mod pipes;
mod support;

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_request::Message as Ask;
use spillgate_proto::pb::stream_response::Message as Reply;
use support::{TestServer, frame, open_stream, result_of};
use tokio_stream::StreamExt;
use tonic::{Code, Request};

/// Two modules of 20 ms at batch 1 on devices of their own, SLO 200 ms.
const TWO_STAGES: &str = r#"
name: stages
slo: 200ms
source: { payload: bytes }
modules:
  a: { op: slow, inputs: { payload: $source.payload }, device: "emulated:0", batch: { max: 1 } }
  b: { op: slow, inputs: { payload: $a.payload }, device: "emulated:1", batch: { max: 1 } }
outputs: { payload: $b.payload }
policy: { drop: deadline }
limits: { in_flight_per_stream: 100 }
"#;

fn infer(data: &'static [u8]) -> pb::InferRequest {
    pb::InferRequest {
        pipeline: "stages".to_owned(),
        frame: Some(frame(1, data)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_passes_all_modules_and_says_where_its_time_went() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let result = server
        .client()
        .await
        .infer(infer(b"payload"))
        .await
        .unwrap()
        .into_inner();
    let result = result.result.unwrap();
    assert_eq!(result.outcome(), pb::Outcome::Completed);
    assert!(result.emulated, "emulated devices are said to be so");
    let names: Vec<&str> = result.timings.iter().map(|t| t.module.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    for timing in &result.timings {
        assert!((20.0..60.0).contains(&timing.execution_ms), "{timing:?}");
    }
    let value = result.outputs["payload"].value.clone();
    assert_eq!(
        value,
        Some(pb::value::Value::Data(b"payload".as_slice().into()))
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_expires_by_timer_while_the_device_is_busy() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let mut client = server.client().await;
    // On a machine that is busy elsewhere a single answer may come late: one in time proves the timer,
    // since without it none could come before the device is free, 15 ms later.
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let mut blocker = server.client().await;
        let blocking = tokio::spawn(async move { blocker.infer(infer(b"x")).await });
        tokio::time::sleep(Duration::from_millis(5)).await;
        let start = Instant::now();
        let mut request = Request::new(infer(b"y"));
        request.get_mut().frame.as_mut().unwrap().timeout_ms = 6.0;
        let status = client.infer(request).await.unwrap_err();
        fastest = fastest.min(start.elapsed());
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        let result = result_of(&status);
        assert_eq!(
            (result.module.as_str(), result.reason.as_str()),
            ("a", "expired")
        );
        blocking.await.unwrap().unwrap();
    }
    assert!(fastest < Duration::from_millis(13), "{fastest:?}");
    server.stop().await;
}

/// The status of a call whose message comes some time after its headers.
async fn status_of_late_message(server: &TestServer, timeout: &str, late: Duration) -> String {
    let message = prost::Message::encode_to_vec(&infer(b"late"));
    let mut framed = vec![0];
    framed.extend((message.len() as u32).to_be_bytes());
    framed.extend(message);
    let body = tokio_stream::once(framed).then(move |bytes| async move {
        tokio::time::sleep(late).await;
        Ok::<_, tonic::Status>(http_body::Frame::data(bytes::Bytes::from(bytes)))
    });
    let request = http::Request::post(format!("{}/spillgate.v1.Spillgate/Infer", server.url()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(tonic::body::Body::new(http_body_util::StreamBody::new(
            body,
        )))
        .unwrap();
    let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let (head, body) = http.request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().unwrap_or(&head.headers);
    let status = head
        .headers
        .get("grpc-status")
        .or(trailers.get("grpc-status"));
    status.unwrap().to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_timeout_counts_from_the_headers() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let late = Duration::from_millis(120);
    // The two modules take 40 ms from when the message is there. On a machine that is busy elsewhere one
    // call says little: the server may hear of its headers late, or run the modules late.
    let expired = (Code::DeadlineExceeded as i32).to_string();
    for (timeout, expected) in [("10S", "0"), ("140m", expired.as_str())] {
        let mut seen = Vec::new();
        while seen.len() < 10 && seen.last().is_none_or(|status| status != expected) {
            seen.push(status_of_late_message(&server, timeout, late).await);
        }
        assert_eq!(seen.last().unwrap(), expected, "{timeout}: {seen:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_timeout_is_a_deadline_and_is_capped_at_the_slo() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let mut client = server.patient_client();
    let mut blocker = server.client().await;
    let blocking = tokio::spawn(async move { blocker.infer(infer(b"x")).await });
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut request = Request::new(infer(b"y"));
    request
        .metadata_mut()
        .insert("grpc-timeout", "5m".parse().unwrap());
    let status = client.infer(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let mut request = Request::new(infer(b"z"));
    request
        .metadata_mut()
        .insert("grpc-timeout", "nonsense".parse().unwrap());
    assert_eq!(
        client.infer(request).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    blocking.await.unwrap().unwrap();
    // Overload: who claims an hour gets no more than the SLO of 200 ms.
    let start = Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let mut client = client.clone();
        calls.spawn(async move {
            let mut request = Request::new(infer(b"h"));
            request
                .metadata_mut()
                .insert("grpc-timeout", "1H".parse().unwrap());
            client.infer(request).await
        });
    }
    let answers = calls.join_all().await;
    assert!(
        start.elapsed() < Duration::from_millis(700),
        "{:?}",
        start.elapsed()
    );
    let expired = answers
        .iter()
        .filter(|a| {
            a.as_ref()
                .is_err_and(|s| s.code() == Code::DeadlineExceeded)
        })
        .count();
    assert!(
        expired >= 25,
        "{expired} of 40 expired; ten fit into 200 ms"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_work() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let client = server.client().await;
    let mut calls = Vec::new();
    for _ in 0..8 {
        let mut client = client.clone();
        calls.push(tokio::spawn(async move { client.infer(infer(b"x")).await }));
    }
    server
        .until("all are in flight", |s| s.in_flight() == 8)
        .await;
    for call in &calls {
        call.abort();
    }
    server
        .until("the work is freed", |s| s.in_flight() == 0)
        .await;
    // Nothing waits any more: the next request runs after the one batch that cannot be stopped.
    let start = Instant::now();
    server.client().await.infer(infer(b"next")).await.unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(140),
        "{:?}",
        start.elapsed()
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_frees_its_work() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let (ask, replies) = open_stream(&server, pb::StreamOpen::default()).await;
    for n in 0..8 {
        ask.send(Ask::Frame(frame(n, b"x"))).await.unwrap();
    }
    server
        .until("all are in flight", |s| s.in_flight() == 8)
        .await;
    drop(replies);
    drop(ask);
    server
        .until("the work is freed", |s| s.in_flight() == 0)
        .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_frame_of_a_stream_gets_one_result_in_order_when_asked() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let open = pb::StreamOpen {
        in_order: true,
        ..Default::default()
    };
    let (ask, mut replies) = open_stream(&server, open).await;
    let n = 60;
    for number in 0..n {
        ask.send(Ask::Frame(frame(number, b"x"))).await.unwrap();
    }
    drop(ask);
    let mut results = Vec::new();
    while let Some(reply) = replies.next().await {
        if let Some(Reply::Result(result)) = reply.unwrap().message {
            results.push(result);
        }
    }
    let numbers: Vec<u64> = results.iter().map(|r| r.number).collect();
    assert_eq!(
        numbers,
        (0..n).collect::<Vec<_>>(),
        "one result each, in order"
    );
    let count = |o| results.iter().filter(|r| r.outcome() == o).count();
    assert!(count(pb::Outcome::Completed) >= 5);
    assert!(
        count(pb::Outcome::Dropped) >= 40,
        "60 frames of 20 ms do not fit into 200 ms"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_frame_wins_when_asked() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let open = pb::StreamOpen {
        latest_only: true,
        ..Default::default()
    };
    let (ask, mut replies) = open_stream(&server, open).await;
    for number in 0..6 {
        ask.send(Ask::Frame(frame(number, b"x"))).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(ask);
    let mut completed = Vec::new();
    let mut superseded = Vec::new();
    while let Some(reply) = replies.next().await {
        if let Some(Reply::Result(r)) = reply.unwrap().message {
            match r.outcome() {
                pb::Outcome::Completed => completed.push(r.number),
                _ => {
                    assert_eq!(r.reason, "superseded");
                    assert_eq!(r.code, Code::Aborted as i32);
                    superseded.push(r.number);
                }
            }
        }
    }
    assert_eq!(
        completed.first(),
        Some(&0),
        "the first was executing already"
    );
    assert_eq!(completed.last(), Some(&5), "the last is served");
    assert!(superseded.len() >= 3, "{superseded:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_a_bound_is_answered_at_once() {
    let bounded = TWO_STAGES.replace(
        "in_flight_per_stream: 100",
        "in_flight: 3, in_flight_per_stream: 2, frame_bytes: 1000",
    );
    let server = TestServer::start(&[&bounded]).await;
    let (ask, mut replies) = open_stream(&server, pb::StreamOpen::default()).await;
    for number in 0..3 {
        ask.send(Ask::Frame(frame(number, b"x"))).await.unwrap();
    }
    let first = loop {
        if let Some(Reply::Result(r)) = replies.next().await.unwrap().unwrap().message {
            break r;
        }
    };
    assert_eq!(first.number, 2, "the refusal overtakes the work");
    assert_eq!(first.outcome(), pb::Outcome::Refused);
    assert!(
        first.detail.contains("limits.in_flight_per_stream"),
        "{}",
        first.detail
    );
    let mut client = server.client().await;
    let third = {
        let mut c = client.clone();
        tokio::spawn(async move { c.infer(infer(b"x")).await })
    };
    server
        .until("three are in flight", |s| s.in_flight() == 3)
        .await;
    let status = client.infer(infer(b"x")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status.message().contains("limits.in_flight"),
        "{}",
        status.message()
    );
    let large: &'static [u8] = Box::leak(vec![0u8; 1001].into_boxed_slice());
    let status = client.infer(infer(large)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status.message().contains("limits.frame_bytes"),
        "{}",
        status.message()
    );
    third.await.unwrap().unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_told_so_and_nobody_else_is_affected() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let mut client = server.client().await;
    let with = |f: fn(&mut pb::InferRequest)| {
        let mut request = infer(b"x");
        f(&mut request);
        request
    };
    for (request, code, text) in [
        (
            with(|r| r.pipeline = "nope".to_owned()),
            Code::NotFound,
            "this server serves: stages",
        ),
        (with(|r| r.frame = None), Code::InvalidArgument, "no frame"),
        (
            with(|r| r.frame.as_mut().unwrap().format = 99),
            Code::InvalidArgument,
            "format 99",
        ),
        (
            with(|r| r.frame.as_mut().unwrap().format = 1),
            Code::InvalidArgument,
            "takes bytes",
        ),
        (
            with(|r| r.frame.as_mut().unwrap().timeout_ms = f64::NAN),
            Code::InvalidArgument,
            "timeout_ms",
        ),
    ] {
        let status = client.infer(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
    }
    let unnamed = pb::InferRequest {
        pipeline: String::new(),
        ..infer(b"x")
    };
    client
        .infer(unnamed)
        .await
        .expect("one pipeline needs no name");
    let (ask, replies) = tokio::sync::mpsc::channel(4);
    let _ = ask
        .send(pb::StreamRequest {
            message: Some(Ask::Frame(frame(0, b"x"))),
        })
        .await;
    let stream = tokio_stream::wrappers::ReceiverStream::new(replies);
    let status = client.stream(stream).await.unwrap_err();
    assert!(status.message().contains("must carry `open`"), "{status}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_module_fails_its_batch_and_readiness_sees_it() {
    let pipeline = TWO_STAGES.replace(
        "op: slow, inputs: { payload: $a",
        "op: fragile, inputs: { payload: $a",
    );
    let other = TWO_STAGES
        .replace("name: stages", "name: other")
        .replace("emulated:0", "emulated:2")
        .replace("emulated:1", "emulated:3");
    let server = TestServer::start(&[&pipeline, &other]).await;
    let mut client = server.client().await;
    client.infer(infer(b"fine")).await.unwrap();
    assert_eq!(server.ready().await, Ok(()));
    let status = client.infer(infer(b"refuse")).await.unwrap_err();
    assert_eq!(
        status.code(),
        Code::Internal,
        "an error of a module fails its request alone"
    );
    assert!(status.message().contains("cannot be computed"), "{status}");
    client.infer(infer(b"fine")).await.unwrap();
    let status = client.infer(infer(b"panic")).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().contains("panicked: told to"), "{status}");
    let status = client.infer(infer(b"fine")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(result_of(&status).reason, "no_worker");
    assert_eq!(
        server.ready().await,
        Err("dead devices: emulated:1\n".to_owned())
    );
    server.until_not_serving().await;
    let elsewhere = pb::InferRequest {
        pipeline: "other".to_owned(),
        ..infer(b"fine")
    };
    client.infer(elsewhere).await.expect("other devices go on");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_bound_behind_a_batch_that_panics_is_answered() {
    let pipeline = TWO_STAGES
        .replace(
            "op: slow, inputs: { payload: $a",
            "op: fragile, inputs: { payload: $a",
        )
        .replace("policy: { drop: deadline }\n", "");
    let server = TestServer::start(&[&pipeline]).await;
    let client = server.client().await;
    let mut calls = tokio::task::JoinSet::new();
    for payload in [b"panic late".as_slice(), b"bound", b"waits"] {
        let mut client = client.clone();
        calls.spawn(async move { client.infer(infer(payload)).await });
        // In this order at the second module.
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    let start = Instant::now();
    for answer in calls.join_all().await {
        let code = answer.unwrap_err().code();
        assert!(matches!(code, Code::Internal | Code::Unavailable), "{code}");
    }
    assert!(
        start.elapsed() < Duration::from_millis(190),
        "no deadline answers"
    );
    assert_eq!(server.in_flight(), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_what_is_in_flight_and_refuses_the_rest() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let client = server.client().await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let mut client = client.clone();
        calls.spawn(async move { client.infer(infer(b"x")).await });
    }
    server
        .until("all are in flight", |s| s.in_flight() == 4)
        .await;
    let start = Instant::now();
    let ended = server.stop().await;
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(ended.aborted, 0);
    assert!(ended.busy_devices.is_empty());
    for answer in calls.join_all().await {
        answer.expect("what was accepted is finished");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pipelines_share_a_device() {
    let other = TWO_STAGES.replace("name: stages", "name: other");
    let server = TestServer::start(&[TWO_STAGES, &other]).await;
    let mut calls = tokio::task::JoinSet::new();
    for (i, name) in ["stages", "other", "stages", "other"]
        .into_iter()
        .enumerate()
    {
        let mut client = server.client().await;
        let request = pb::InferRequest {
            pipeline: name.to_owned(),
            frame: Some(frame(i as u64, b"x")),
        };
        calls.spawn(async move { client.infer(request).await });
    }
    for answer in calls.join_all().await {
        answer.unwrap();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_description_tell_what_happened() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let mut client = server.client().await;
    for _ in 0..3 {
        client.infer(infer(b"x")).await.unwrap();
    }
    let described = client
        .describe(pb::DescribeRequest::default())
        .await
        .unwrap()
        .into_inner();
    let pipeline = &described.pipelines[0];
    assert_eq!((pipeline.name.as_str(), pipeline.slo_ms), ("stages", 200.0));
    assert_eq!(pipeline.modules[1].after, ["a"]);
    assert!(
        pipeline.graph_dot.starts_with("digraph"),
        "{}",
        pipeline.graph_dot
    );
    let metrics = server.metrics().await;
    let good = metrics
        .lines()
        .find(|l| l.starts_with("spillgate_gateway_good_requests_total"))
        .unwrap_or_else(|| panic!("no goodput in {metrics}"));
    assert!(good.ends_with(" 3"), "{good}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_greeting_do_not_lock_others_out() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let mut silent = Vec::new();
    for _ in 0..support::CONNECTIONS {
        silent.push(server.connect().await);
    }
    let waiting = tokio::time::timeout(Duration::from_secs(10), async {
        server.client().await.infer(infer(b"x")).await
    });
    waiting.await.expect("a place is free again").unwrap();
    drop(silent);
    server.stop().await;
}
