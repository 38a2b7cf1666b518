//! Workers that follow the load in a server, over real sockets.

use std::time::Duration;

use crate::support::{TestServer, frame};
use serde_json::Value;
use spillgate_proto::pb;

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
