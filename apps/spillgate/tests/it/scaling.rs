//! Workers that follow the load in a server, over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{TestServer, frame};
use expect_test::expect;
use serde_json::Value;
use spillgate::external_scaler::CONNECTIONS_MAX;
use spillgate_proto::externalscaler as keda;
use spillgate_proto::externalscaler::external_scaler_client::ExternalScalerClient;
use spillgate_proto::pb;
use tokio::net::TcpStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// A worker holds 50 requests a second; there can be three.
const PIPELINE: &str = r#"
name: scaled
slo: 200ms
source: { payload: bytes }
modules:
  a: { op: slow, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 }, workers: { min: 1, max: 3 } }
outputs: { payload: $a.payload }
"#;

async fn workers(server: &TestServer, metric: &str) -> f64 {
    let metrics = server.metrics().await;
    let mut lines = metrics.lines();
    let of_a = format!("{metric}{{pipeline=\"scaled\",module=\"a\"}} ");
    lines
        .find_map(|line| line.strip_prefix(&of_a))
        .map_or(0.0, |value| value.parse().unwrap())
}

/// Answers in time, by the second in which their requests were sent, at 100 requests a second.
async fn offer(server: &TestServer, seconds: u64) -> Vec<u32> {
    let mut calls = Vec::new();
    let client = server.client().await;
    let start = server.clock.now();
    for i in 0..seconds * 100 {
        server.advance_to(start + Duration::from_millis(10 * i));
        let mut client = client.clone();
        let call = async move {
            let request = pb::InferRequest {
                pipeline: String::new(),
                frame: Some(frame(i, b"x")),
            };
            (i / 100, client.infer(request).await.is_ok())
        };
        calls.push(server.send(call).await);
    }
    let mut good = vec![0; seconds as usize];
    for call in calls {
        let (second, is_good) = server.answer(call).await;
        good[second as usize] += u32::from(is_good);
    }
    good
}

/// What a trigger of KEDA names.
fn trigger(of: &[(&str, &str)]) -> keda::ScaledObjectRef {
    let entry = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    keda::ScaledObjectRef {
        name: "workers-of-a".to_owned(),
        namespace: "default".to_owned(),
        scaler_metadata: of.iter().map(entry).collect(),
    }
}

async fn keda(address: SocketAddr) -> ExternalScalerClient<Channel> {
    let url = format!("http://{address}");
    ExternalScalerClient::connect(url).await.unwrap()
}

/// The replicas that KEDA would want: the metric over its target, rounded up.
async fn replicas(
    client: &mut ExternalScalerClient<Channel>,
    of: &keda::ScaledObjectRef,
) -> Result<f64, Status> {
    let specs = client.get_metric_spec(of.clone()).await?.into_inner();
    let [spec] = &specs.metric_specs[..] else {
        panic!("{specs:?}");
    };
    assert_eq!(spec.target_size as f64, spec.target_size_float);
    let request = keda::GetMetricsRequest {
        scaled_object_ref: Some(of.clone()),
        metric_name: spec.metric_name.clone(),
    };
    let values = client.get_metrics(request).await?.into_inner();
    let [value] = &values.metric_values[..] else {
        panic!("{values:?}");
    };
    assert_eq!(value.metric_name, "workers-wanted");
    assert_eq!(value.metric_value as f64, value.metric_value_float);
    Ok((value.metric_value_float / spec.target_size_float).ceil())
}

#[tokio::test(flavor = "multi_thread")]
async fn keda_wants_as_many_replicas_as_there_should_be_workers() {
    let server = TestServer::start(&[PIPELINE]).await;
    let mut client = keda(server.scaler().await).await;
    let a = trigger(&[("pipeline", "scaled"), ("module", "a")]);
    // Before the controller looked at the load it knows nothing, and KEDA is to leave the replicas as they are.
    let unknown = replicas(&mut client, &a).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unavailable, "{unknown}");
    offer(&server, 3).await;
    assert_eq!(replicas(&mut client, &a).await.unwrap(), 3.0);
    assert!(
        client
            .is_active(a.clone())
            .await
            .unwrap()
            .into_inner()
            .result
    );
    let stream = client.stream_is_active(a.clone()).await.unwrap();
    let mut stream = stream.into_inner();
    assert!(stream.message().await.unwrap().unwrap().result);
    let mut refused = Vec::new();
    for of in [
        &[("pipeline", "scaled")][..],
        &[("pipeline", "scaled"), ("module", "b")],
        &[("pipeline", "scaled"), ("module", "source")],
        &[("pipeline", "scalde"), ("module", "a")],
    ] {
        let status = client.is_active(trigger(of)).await.unwrap_err();
        refused.push(format!("{:?}: {}", status.code(), status.message()));
    }
    let other = keda::GetMetricsRequest {
        scaled_object_ref: Some(a),
        metric_name: "queue".to_owned(),
    };
    let status = client.get_metrics(other).await.unwrap_err();
    refused.push(format!("{:?}: {}", status.code(), status.message()));
    expect![[r#"
        InvalidArgument: metadata: module is missing; write pipeline: NAME and module: NAME
        NotFound: metadata: module: no module named "b" has its controller in this process; here are a
        NotFound: metadata: module: no module named "source" has its controller in this process; here are a
        NotFound: metadata: pipeline: no pipeline named "scalde" has its controller in this process; here are scaled
        NotFound: no metric named "queue"; here is workers-wanted
    "#]].assert_eq(&(refused.join("\n") + "\n"));
    server.stop().await;
    // The port closes with the server, and the stream with it.
    assert!(!matches!(stream.message().await, Ok(Some(_))));
}

/// Connections that say nothing give way to KEDA's.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_keep_keda_out() {
    let server = TestServer::start(&[PIPELINE]).await;
    let address = server.scaler().await;
    let mut silent = Vec::new();
    for _ in 0..2 * CONNECTIONS_MAX {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut client = keda(address).await;
    let a = trigger(&[("pipeline", "scaled"), ("module", "a")]);
    assert!(client.is_active(a).await.unwrap().into_inner().result);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_start_when_more_is_offered_than_the_least_can_serve() {
    let server = TestServer::start(&[PIPELINE]).await;
    let good = offer(&server, 8).await;
    println!("good answers in each second: {good:?}");
    assert!(good[0] < 75, "one worker serves 50 a second: {good:?}");
    let later: u32 = good[4..].iter().sum();
    assert!(later >= 380, "all of them, once workers came: {good:?}");
    for metric in [
        "spillgate_planner_workers",
        "spillgate_workers_wanted",
        "spillgate_workers_serving",
    ] {
        assert_eq!(workers(&server, metric).await, 3.0, "{metric}");
    }
    let (_, status) = server.get("/status").await;
    let status: Value = serde_json::from_str(&status).unwrap();
    let scaling = &status["pipelines"][0]["modules"][1]["scaling"];
    assert_eq!(scaling["wanted"], 3, "{scaling}");
    let reason = scaling["reason"].as_str().unwrap();
    assert!(reason.contains("one worker serves 50.0/s"), "{reason}");
    server.stop().await;
}
