//! Whom a server serves: TLS, certificates of clients, tokens. Real sockets, and files that go with their test.

mod command;
mod files;
mod tls;

use crate::support::{TestServer, frame, result_of};
use files::Files;
use spillgate::reload::Reload;
use spillgate::security::Security;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_proto::pb::stream_request::Message as Ask;
use spillgate_proto::pb::stream_response::Message as Reply;
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

/// A pipeline of one module of 20 ms.
fn pipeline(name: &str) -> String {
    format!(
        "{{ name: {name}, slo: 2s, source: {{ payload: bytes }}, policy: {{ drop: deadline }}, modules: {{ a: {{ op: slow, inputs: \
         {{ payload: $source.payload }}, device: emulated, batch: {{ max: 1 }} }} }}, outputs: {{ payload: $a.payload }} }}"
    )
}

/// Names that nobody without rights may hear.
const NAMES: [&str; 2] = ["harbour", "airfield"];

async fn serve(files: &Files) -> TestServer {
    let specs = NAMES.map(pipeline);
    let security = Security::read(None, Some(files.path("tokens.yaml"))).unwrap();
    TestServer::live(&[&specs[0], &specs[1]], |setup| {
        setup.port.security = security
    })
    .await
}

async fn channel(server: &TestServer) -> Channel {
    let url = format!("http://{}", server.server.address);
    Channel::from_shared(url).unwrap().connect().await.unwrap()
}

/// A message with an `authorization` header, if there is one.
fn with<T>(authorization: Option<&str>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(value) = authorization {
        let value = value.parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    request
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn infer(pipeline: &str) -> pb::InferRequest {
    pb::InferRequest {
        pipeline: pipeline.to_owned(),
        frame: Some(frame(1, b"x")),
    }
}

/// Opens a stream and sends frames until there is an error, or all are answered.
async fn stream(
    channel: Channel,
    authorization: Option<&str>,
    pipeline: &str,
) -> Result<Vec<Reply>, Status> {
    let open = pb::StreamOpen {
        pipeline: pipeline.to_owned(),
        client: "front".to_owned(),
        ..Default::default()
    };
    let asks = [Ask::Open(open), Ask::Frame(frame(1, b"x"))].map(|message| pb::StreamRequest {
        message: Some(message),
    });
    let asks = with(authorization, tokio_stream::iter(asks));
    let replies = SpillgateClient::new(channel).stream(asks).await?;
    let mut replies = replies.into_inner();
    let mut all = Vec::new();
    while let Some(reply) = replies.next().await {
        all.extend(reply?.message);
    }
    Ok(all)
}

async fn describe(
    channel: Channel,
    authorization: Option<&str>,
    pipeline: &str,
) -> Result<Vec<String>, Status> {
    let message = pb::DescribeRequest {
        pipeline: pipeline.to_owned(),
    };
    let request = with(authorization, message);
    let described = SpillgateClient::new(channel).describe(request).await?;
    let pipelines = described.into_inner().pipelines;
    Ok(pipelines.into_iter().map(|p| p.name).collect())
}

async fn health(
    channel: Channel,
    authorization: Option<&str>,
    service: &str,
) -> Result<i32, Status> {
    let service = service.to_owned();
    let request = with(authorization, HealthCheckRequest { service });
    let checked = HealthClient::new(channel.clone()).check(request).await;
    checked.map(|answer| answer.into_inner().status)
}

async fn watch(
    channel: Channel,
    authorization: Option<&str>,
    service: &str,
) -> Result<i32, Status> {
    let service = service.to_owned();
    let request = with(authorization, HealthCheckRequest { service });
    let mut watched = HealthClient::new(channel)
        .watch(request)
        .await?
        .into_inner();
    Ok(watched.next().await.unwrap()?.status)
}

async fn reflect(channel: Channel, authorization: Option<&str>) -> Result<String, Status> {
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let request = with(authorization, tokio_stream::iter([list]));
    let mut client = ServerReflectionClient::new(channel);
    let mut replies = client.server_reflection_info(request).await?.into_inner();
    Ok(format!("{:?}", replies.next().await.unwrap()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_token_learns_nothing_whatever_is_asked() {
    let files = Files::new("nothing");
    let token = files.token("camera", "pipelines: all");
    let server = serve(&files).await;
    let known = bearer(&token);
    let wrong = [
        None,
        Some(""),
        Some("Bearer"),
        Some("Bearer "),
        Some("Bearer sgt_0"),
        Some("Basic Y2FtZXJhOg=="),
        Some(token.as_str()),
        Some("Bearer camera"),
    ];
    let channel = channel(&server).await;
    let mut said = Vec::new();
    for with_it in wrong {
        for name in NAMES.iter().copied().chain(["", "nowhere"]) {
            let mut api = SpillgateClient::new(channel.clone());
            said.push(api.infer(with(with_it, infer(name))).await.unwrap_err());
            said.push(stream(channel.clone(), with_it, name).await.unwrap_err());
            said.push(describe(channel.clone(), with_it, name).await.unwrap_err());
            let service = format!("pipeline/{name}");
            said.push(
                health(channel.clone(), with_it, &service)
                    .await
                    .unwrap_err(),
            );
            said.push(watch(channel.clone(), with_it, &service).await.unwrap_err());
        }
        said.push(health(channel.clone(), with_it, "").await.unwrap_err());
        said.push(reflect(channel.clone(), with_it).await.unwrap_err());
    }
    for status in &said {
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert_eq!(status.message(), said[0].message(), "one text for all");
        let all = format!("{status:?}");
        assert!(!NAMES.iter().any(|name| all.contains(name)), "{all}");
    }
    // And with one all of it answers.
    let ok = Some(known.as_str());
    stream(channel.clone(), ok, NAMES[0]).await.unwrap();
    assert_eq!(describe(channel.clone(), ok, "").await.unwrap(), NAMES);
    assert_eq!(health(channel.clone(), ok, "").await.unwrap(), 1);
    let reflected = reflect(channel.clone(), ok).await.unwrap();
    assert!(reflected.contains("spillgate.v1.Spillgate"), "{reflected}");
    assert!(!NAMES.iter().any(|name| reflected.contains(name)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_token_may_not_use_does_not_exist_for_it() {
    let files = Files::new("other");
    let token = bearer(&files.token("camera", "pipelines: [harbour]"));
    let nobody = bearer(&files.token("nobody", "pipelines: []"));
    let server = serve(&files).await;
    let channel = channel(&server).await;
    let mut api = SpillgateClient::new(channel.clone());
    for token in [token.as_str(), nobody.as_str()] {
        let ok = Some(token);
        let mut answers = Vec::new();
        // The second has the same length as the one that is there.
        for name in ["airfield", "nofield1"] {
            let service = format!("pipeline/{name}");
            let statuses = [
                api.infer(with(ok, infer(name))).await.unwrap_err(),
                stream(channel.clone(), ok, name).await.unwrap_err(),
                describe(channel.clone(), ok, name).await.unwrap_err(),
                health(channel.clone(), ok, &service).await.unwrap_err(),
                watch(channel.clone(), ok, &service).await.unwrap_err(),
            ];
            let said = statuses.map(|s| (s.code(), s.message().replace(name, "it")));
            assert!(
                said.iter().all(|(code, _)| *code == Code::NotFound),
                "{said:?}"
            );
            assert!(!format!("{said:?}").contains("airfield"), "{said:?}");
            answers.push(said);
        }
        assert_eq!(answers[0], answers[1]);
    }
    let ok = Some(token.as_str());
    assert_eq!(
        describe(channel.clone(), ok, "").await.unwrap(),
        ["harbour"]
    );
    assert_eq!(
        describe(channel.clone(), Some(&nobody), "").await.unwrap(),
        [""; 0]
    );
    assert_eq!(
        health(channel.clone(), ok, "pipeline/harbour")
            .await
            .unwrap(),
        1
    );
    // The only one that it may use needs no name.
    api.infer(with(ok, infer(""))).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_of_a_token_are_counted_over_all_its_connections() {
    let files = Files::new("in-flight");
    let [camera, other] =
        ["camera", "other"].map(|name| bearer(&files.token(name, "pipelines: all, in_flight: 2")));
    let specs = NAMES.map(pipeline);
    let security = Security::read(None, Some(files.path("tokens.yaml"))).unwrap();
    let specs = [specs[0].as_str(), &specs[1]];
    let server = TestServer::configured(&specs, |setup| setup.port.security = security).await;
    let ask = |token: &str| {
        let (request, url) = (with(Some(token), infer("harbour")), server.server.address);
        async move {
            let mut api = SpillgateClient::connect(format!("http://{url}"))
                .await
                .unwrap();
            api.infer(request).await.map(|_| ())
        }
    };
    for _ in 0..3 {
        let mut calls = Vec::new();
        for _ in 0..5 {
            calls.push(server.send(ask(&camera)).await);
        }
        let mut refused = Vec::new();
        for call in calls {
            refused.extend(server.answer(call).await.err());
        }
        assert_eq!(refused.len(), 3, "{refused:?}");
        for status in refused {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            assert_eq!(result_of(&status).reason, "token_in_flight");
        }
        // Those of others do not count, nor those that have ended or were refused.
        server.serve(ask(&other)).await.unwrap();
    }
    // What is wrong with a frame gives the place back, too, and so does a client that goes away.
    for _ in 0..5 {
        let mut api = server.client().await;
        let mut wrong = infer("harbour");
        wrong.frame.as_mut().unwrap().timeout_ms = -1.0;
        let status = api.infer(with(Some(&camera), wrong)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        server.send(ask(&camera)).await.abort();
        server
            .until("nothing is in flight", |s| s.in_flight() == 0)
            .await;
    }
    server.serve(ask(&camera)).await.unwrap();
    let metrics = server.metrics().await;
    let counted = r#"spillgate_gateway_refused_requests_total{pipeline="harbour",reason="token_in_flight"} 9"#;
    assert!(metrics.contains(counted), "{metrics}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rate_of_a_token_holds_over_all_its_connections_and_in_streams() {
    let files = Files::new("rate");
    let camera = bearer(&files.token("camera", "pipelines: all, rate: 0.01"));
    let other = bearer(&files.token("other", "pipelines: all"));
    let server = serve(&files).await;
    // Two that come together pass whatever the rate is; the next one has 100 s to wait.
    for i in 0..4 {
        let mut api = server.client().await;
        let answer = api.infer(with(Some(&camera), infer("harbour"))).await;
        match answer {
            Ok(_) => assert!(i < 2, "{i} passed"),
            Err(status) => {
                assert!(i >= 2, "{i}: {status}");
                assert_eq!(result_of(&status).reason, "token_rate");
                assert_eq!(status.code(), Code::ResourceExhausted);
            }
        }
        api.infer(with(Some(&other), infer("harbour")))
            .await
            .unwrap();
    }
    let replies = stream(channel(&server).await, Some(&camera), "harbour")
        .await
        .unwrap();
    let Some(Reply::Result(result)) = replies.last() else {
        panic!("{replies:?}");
    };
    assert_eq!(
        (result.outcome(), result.reason.as_str()),
        (pb::Outcome::Refused, "token_rate")
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_taken_away_ends_its_calls() {
    let files = Files::new("removed");
    let camera = bearer(&files.token("camera", "pipelines: all"));
    let server = serve(&files).await;
    let mut reload = Reload::default();
    server.server.add_to(&mut reload);
    let (send, asks) = tokio::sync::mpsc::channel(4);
    let ask = |message| pb::StreamRequest {
        message: Some(message),
    };
    let open = pb::StreamOpen {
        pipeline: "harbour".to_owned(),
        ..Default::default()
    };
    send.send(ask(Ask::Open(open))).await.unwrap();
    let asks = tokio_stream::wrappers::ReceiverStream::new(asks);
    let mut api = server.client().await;
    let mut replies = api
        .stream(with(Some(&camera), asks))
        .await
        .unwrap()
        .into_inner();
    replies.next().await.unwrap().unwrap();
    send.send(ask(Ask::Frame(frame(1, b"x")))).await.unwrap();
    replies.next().await.unwrap().unwrap();

    // A file that is wrong changes nothing.
    let before = files.read("tokens.yaml");
    files.write("tokens.yaml", "tokens: [{ name: camera }]");
    let (_, kept) = reload.run().remove(0);
    assert!(kept.unwrap_err().contains("sha256 is missing"));
    send.send(ask(Ask::Frame(frame(2, b"x")))).await.unwrap();
    replies.next().await.unwrap().unwrap();

    files.write("tokens.yaml", "tokens: []");
    let other = bearer(&files.token("other", "pipelines: all"));
    assert!(reload.run().remove(0).1.unwrap().starts_with("1 in "));
    send.send(ask(Ask::Frame(frame(3, b"x")))).await.unwrap();
    let status = replies.next().await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert!(replies.next().await.is_none(), "the stream is at its end");
    let status = api
        .infer(with(Some(&camera), infer("harbour")))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    api.infer(with(Some(&other), infer("harbour")))
        .await
        .unwrap();

    files.write("tokens.yaml", &before);
    assert!(reload.run()[0].1.is_ok());
    api.infer(with(Some(&camera), infer("harbour")))
        .await
        .unwrap();
    server.stop().await;
}
