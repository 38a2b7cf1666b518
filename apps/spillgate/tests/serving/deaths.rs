//! Devices that die while others serve the same module.

use std::time::Duration;

use tonic::Code;

use super::support::TestServer;
use super::{TWO_STAGES, infer};

/// The frame that kills a worker fails; what waited behind it is served by the other worker.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_worker_had_is_served_by_another() {
    let pipeline = TWO_STAGES
        .replace("slo: 200ms", "slo: 2s")
        .replace(
            "op: slow, inputs: { payload: $a",
            "op: fragile, inputs: { payload: $a",
        )
        .replace(
            "policy: { drop: deadline }",
            "policy: { drop: deadline, dispatch: round-robin }",
        )
        .replace(
            "device: \"emulated:1\"",
            "workers: 2, device: [\"emulated:1\", \"emulated:2\"]",
        );
    let server = TestServer::start(&[&pipeline]).await;
    let client = server.client().await;
    let mut calls = tokio::task::JoinSet::new();
    for payload in [b"panic late".as_slice(), b"1", b"2", b"3", b"4"] {
        let mut client = client.clone();
        calls.spawn(async move { client.infer(infer(payload)).await });
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let answers = calls.join_all().await;
    let failed: Vec<_> = answers.iter().filter_map(|a| a.as_ref().err()).collect();
    assert!(
        matches!(failed[..], [status] if status.code() == Code::Internal),
        "only the frame that killed it fails: {failed:?}"
    );
    assert_eq!(server.in_flight(), 0);
    server.stop().await;
}
