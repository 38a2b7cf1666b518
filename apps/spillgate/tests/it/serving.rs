//! A whole server in this process, over real sockets: deadlines, cancellation, bounds, order, bad input, modules that panic, drain, pictures. Each
//! test has a server of its own on a free port.

mod families;
mod messages;
mod objects;
mod own_module;
mod pictures;
mod pipes;

use std::time::Duration;

use crate::support::{TestServer, frame, open_stream, result_of};
use http_body_util::BodyExt;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_proto::pb::{stream_request::Message as Ask, stream_response::Message as Reply};
use tokio_stream::StreamExt;
use tonic::{Code, Request, Response, Status};

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

/// A call of `Infer` that owns what it needs.
fn call(
    server: &TestServer,
    request: impl tonic::IntoRequest<pb::InferRequest>,
) -> impl Future<Output = Result<Response<pb::InferResponse>, Status>> + Send + 'static {
    let request = request.into_request();
    let url = server.url();
    async move {
        let mut client = SpillgateClient::connect(url).await.unwrap();
        client.infer(request).await
    }
}

/// Serves a payload: its result, or why there is none.
async fn serve(server: &TestServer, data: &'static [u8]) -> Result<pb::Result, Status> {
    let answer = server.serve(call(server, infer(data))).await;
    answer.map(|answer| answer.into_inner().result.unwrap())
}

/// Which modules a request passed, how long it waited for each, and how long each took, in milliseconds.
fn timings(result: &pb::Result) -> Vec<(&str, f64, f64)> {
    let all = result.timings.iter();
    all.map(|t| {
        let waited = t.queueing_ms + t.batch_wait_ms;
        (t.module.as_str(), waited, t.execution_ms)
    })
    .collect()
}

const MS: Duration = Duration::from_millis(1);
const NS: Duration = Duration::from_nanos(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_request_passes_all_modules_and_says_where_its_time_went() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let result = serve(&server, b"payload").await.unwrap();
    assert_eq!(result.outcome(), pb::Outcome::Completed);
    assert!(result.emulated, "emulated devices are said to be so");
    assert_eq!(timings(&result), [("a", 0.0, 20.0), ("b", 0.0, 20.0)]);
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
    let blocking = server.send(call(&server, infer(b"x"))).await;
    server.advance(MS * 5);
    let mut request = infer(b"y");
    request.frame.as_mut().unwrap().timeout_ms = 6.0;
    let expiring = server.send(call(&server, request)).await;
    server.advance(MS * 6 - NS);
    assert_eq!(server.in_flight(), 2);
    server.advance(NS);
    assert_eq!(server.in_flight(), 1, "the device is busy for 9 ms more");
    let status = expiring.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let result = result_of(&status);
    assert_eq!(
        (result.module.as_str(), result.reason.as_str()),
        ("a", "expired")
    );
    server.answer(blocking).await.unwrap();
    server.stop().await;
}

/// The status of a call whose message comes some time after its headers.
async fn status_of_late_message(server: &TestServer, timeout: &str, late: Duration) -> String {
    let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let call = |comes: tokio::sync::oneshot::Receiver<()>| {
        let message = prost::Message::encode_to_vec(&infer(b"late"));
        let mut framed = vec![0];
        framed.extend((message.len() as u32).to_be_bytes());
        framed.extend(message);
        let body = tokio_stream::once(framed);
        let mut comes = Some(comes);
        let body = body.then(move |bytes| {
            let comes = comes.take().expect("there is one message");
            async move {
                comes.await.unwrap();
                Ok::<_, Status>(http_body::Frame::data(bytes::Bytes::from(bytes)))
            }
        });
        let request = http::Request::post(format!("{}/spillgate.v1.Spillgate/Infer", server.url()))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", timeout)
            .body(tonic::body::Body::new(http_body_util::StreamBody::new(
                body,
            )))
            .unwrap();
        let answer = http.request(request);
        async move {
            let (head, body) = answer.await.unwrap().into_parts();
            let body = body.collect().await.unwrap();
            let trailers = body.trailers().unwrap_or(&head.headers);
            let status = head.headers.get("grpc-status");
            let status = status.or(trailers.get("grpc-status"));
            status.unwrap().to_str().unwrap().to_owned()
        }
    };
    // The connection is there with the first call. What the server holds grows once the headers of the second are there.
    let (comes, message) = tokio::sync::oneshot::channel();
    comes.send(()).unwrap();
    assert_eq!(server.serve(call(message)).await, "0");
    let held = server.held().await;
    let (comes, message) = tokio::sync::oneshot::channel();
    let call = tokio::spawn(call(message));
    while server.held().await <= held {
        tokio::task::yield_now().await;
    }
    server.advance(late);
    comes.send(()).unwrap();
    server.answer(call).await
}

/// The message comes 120 ms after the headers, and the second module begins 20 ms later.
#[tokio::test(flavor = "multi_thread")]
async fn grpc_timeout_counts_from_the_headers() {
    let expired = (Code::DeadlineExceeded as i32).to_string();
    for (timeout, expected) in [("10S", "0"), ("141m", "0"), ("139m", expired.as_str())] {
        let server = TestServer::start(&[TWO_STAGES]).await;
        let status = status_of_late_message(&server, timeout, MS * 120).await;
        assert_eq!(status, expected, "{timeout}");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_timeout_is_a_deadline_and_is_capped_at_the_slo() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let client = server.patient_client();
    let timed = |timeout: &str, data| {
        let mut client = client.clone();
        let mut request = Request::new(infer(data));
        let timeout = timeout.parse().unwrap();
        request.metadata_mut().insert("grpc-timeout", timeout);
        async move { client.infer(request).await }
    };
    let blocking = server.send(call(&server, infer(b"x"))).await;
    let expiring = server.send(timed("5m", b"y")).await;
    server.advance(MS * 5);
    let status = expiring.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let status = timed("nonsense", b"z").await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    server.answer(blocking).await.unwrap();
    // Overload: who claims an hour gets no more than the SLO of 200 ms.
    let mut calls = Vec::new();
    for _ in 0..40 {
        calls.push(server.send(timed("1H", b"h")).await);
    }
    server.advance(MS * 200);
    assert_eq!(server.in_flight(), 0, "nothing waits longer");
    let mut expired = 0;
    for answer in calls {
        match answer.await.unwrap() {
            Ok(_) => {}
            Err(status) => {
                assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
                expired += 1;
            }
        }
    }
    assert_eq!(expired, 31, "nine fit into 200 ms, the first of them in 40");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_work() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let mut calls = Vec::new();
    for _ in 0..8 {
        calls.push(server.send(call(&server, infer(b"x"))).await);
    }
    server.advance(MS * 5);
    for call in &calls {
        call.abort();
    }
    server
        .until("the work is freed", |s| s.in_flight() == 0)
        .await;
    // Nothing waits any more: the next request runs after the one batch that cannot be stopped.
    let result = serve(&server, b"next").await.unwrap();
    assert_eq!(timings(&result), [("a", 15.0, 20.0), ("b", 0.0, 20.0)]);
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

/// Also the frame that is being accepted at that moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_while_frames_come_frees_its_work() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    for cut in 0..100 {
        let (ask, replies) = open_stream(&server, pb::StreamOpen::default()).await;
        let feeding = tokio::spawn(async move {
            let mut n = 0;
            while ask.send(Ask::Frame(frame(n, b"x"))).await.is_ok() {
                n += 1;
            }
        });
        for _ in 0..cut {
            tokio::task::yield_now().await;
        }
        drop(replies);
        feeding.abort();
        server
            .until("the work is freed", |s| s.in_flight() == 0)
            .await;
    }
    server.stop().await;
}

/// All results of a stream.
async fn results(mut replies: tonic::Streaming<pb::StreamResponse>) -> Vec<pb::Result> {
    let mut results = Vec::new();
    while let Some(reply) = replies.next().await {
        if let Some(Reply::Result(result)) = reply.unwrap().message {
            results.push(result);
        }
    }
    results
}

#[tokio::test(flavor = "multi_thread")]
async fn every_frame_of_a_stream_gets_one_result_in_order_when_asked() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let open = pb::StreamOpen {
        in_order: true,
        ..Default::default()
    };
    let (ask, replies) = open_stream(&server, open).await;
    let n = 60;
    for number in 0..n {
        ask.send(Ask::Frame(frame(number, b"x"))).await.unwrap();
    }
    server
        .until("all are in flight", |s| s.in_flight() == n as usize)
        .await;
    drop(ask);
    let results = server.answer(tokio::spawn(results(replies))).await;
    let numbers: Vec<u64> = results.iter().map(|r| r.number).collect();
    assert_eq!(
        numbers,
        (0..n).collect::<Vec<_>>(),
        "one result each, in order"
    );
    let count = |o| results.iter().filter(|r| r.outcome() == o).count();
    let counts = (count(pb::Outcome::Completed), count(pb::Outcome::Dropped));
    assert_eq!(counts, (9, 51), "nine frames fit into 200 ms");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_frame_wins_when_asked() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let open = pb::StreamOpen {
        latest_only: true,
        ..Default::default()
    };
    let (ask, replies) = open_stream(&server, open).await;
    for number in 0..6 {
        ask.send(Ask::Frame(frame(number, b"x"))).await.unwrap();
    }
    drop(ask);
    let results = server.answer(tokio::spawn(results(replies))).await;
    let mut completed = Vec::new();
    let mut superseded = Vec::new();
    for result in results {
        match result.outcome() {
            pb::Outcome::Completed => completed.push(result.number),
            _ => {
                assert_eq!(result.reason, "superseded");
                assert_eq!(result.code, Code::Aborted as i32);
                superseded.push(result.number);
            }
        }
    }
    assert_eq!(
        completed.first(),
        Some(&0),
        "the first was executing already"
    );
    assert_eq!(completed.last(), Some(&5), "the last is served");
    assert_eq!(completed.len() + superseded.len(), 6);
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
    let third = server.send(call(&server, infer(b"x"))).await;
    assert_eq!(server.in_flight(), 3);
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
    server.answer(third).await.unwrap();
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
    let answer = server.serve(call(&server, unnamed)).await;
    answer.expect("one pipeline needs no name");
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
async fn a_panicking_module_fails_its_batch_and_its_device_serves_on() {
    let pipeline = TWO_STAGES.replace(
        "op: slow, inputs: { payload: $a",
        "op: fragile, inputs: { payload: $a",
    );
    let other = TWO_STAGES
        .replace("name: stages", "name: other")
        .replace("emulated:0", "emulated:2")
        .replace("emulated:1", "emulated:3");
    let server = TestServer::start(&[&pipeline, &other]).await;
    serve(&server, b"fine").await.unwrap();
    assert_eq!(server.ready().await, Ok(()));
    let status = serve(&server, b"refuse").await.unwrap_err();
    assert_eq!(
        status.code(),
        Code::Internal,
        "an error of a module fails its request alone"
    );
    assert!(status.message().contains("cannot be computed"), "{status}");
    serve(&server, b"fine").await.unwrap();
    let status = serve(&server, b"panic").await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().contains("panicked: told to"), "{status}");
    serve(&server, b"fine").await.unwrap();
    assert_eq!(server.ready().await, Ok(()));
    let elsewhere = pb::InferRequest {
        pipeline: "other".to_owned(),
        ..infer(b"fine")
    };
    let answer = server.serve(call(&server, elsewhere)).await;
    answer.expect("other devices go on");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_bound_behind_a_batch_that_panics_is_served() {
    let pipeline = TWO_STAGES
        .replace(
            "op: slow, inputs: { payload: $a",
            "op: fragile, inputs: { payload: $a",
        )
        .replace("policy: { drop: deadline }\n", "");
    let server = TestServer::start(&[&pipeline]).await;
    let begun = server.clock.now();
    let mut calls = Vec::new();
    for payload in [b"panic late".as_slice(), b"bound", b"waits"] {
        calls.push(server.send(call(&server, infer(payload))).await);
        // In this order at the second module.
        server.advance(MS * 4);
    }
    let mut calls = calls.into_iter();
    let failed = server.answer(calls.next().unwrap()).await.unwrap_err();
    assert_eq!(failed.code(), Code::Internal, "{failed}");
    for call in calls {
        server.answer(call).await.unwrap();
    }
    let took = server.clock.now().since(begun);
    assert!(took < MS * 190, "no deadline answers: {took:?}");
    assert_eq!(server.in_flight(), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_what_is_in_flight_and_refuses_the_rest() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(server.send(call(&server, infer(b"x"))).await);
    }
    let ended = server.stop().await;
    assert_eq!(ended.aborted, 0);
    assert!(ended.busy_devices.is_empty());
    for call in calls {
        let answer = call.await.unwrap();
        answer.expect("what was accepted is finished");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pipelines_share_a_device() {
    let other = TWO_STAGES.replace("name: stages", "name: other");
    let server = TestServer::start(&[TWO_STAGES, &other]).await;
    let mut calls = Vec::new();
    for (i, name) in ["stages", "other", "stages", "other"]
        .into_iter()
        .enumerate()
    {
        let request = pb::InferRequest {
            pipeline: name.to_owned(),
            frame: Some(frame(i as u64, b"x")),
        };
        calls.push(server.send(call(&server, request)).await);
    }
    for call in calls {
        server.answer(call).await.unwrap();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_description_tell_what_happened() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let mut client = server.client().await;
    for _ in 0..3 {
        serve(&server, b"x").await.unwrap();
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
    for _ in 0..crate::support::CONNECTIONS {
        silent.push(server.connect().await);
    }
    // Those that do not greet give way after a while of real time.
    let answer = server
        .answer(tokio::spawn(call(&server, infer(b"x"))))
        .await;
    answer.expect("a place is free again");
    drop(silent);
    server.stop().await;
}
