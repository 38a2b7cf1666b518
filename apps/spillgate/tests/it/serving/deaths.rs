//! Devices that die while others serve the same module.

use tonic::Code;

use super::{MS, TWO_STAGES, call, infer};
use crate::support::TestServer;

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
    let mut calls = Vec::new();
    for payload in [b"panic late".as_slice(), b"1", b"2", b"3", b"4"] {
        calls.push(server.send(call(&server, infer(payload))).await);
        server.advance(MS * 2);
    }
    let mut answers = Vec::new();
    for call in calls {
        answers.push(server.answer(call).await);
    }
    let failed: Vec<_> = answers.iter().filter_map(|a| a.as_ref().err()).collect();
    assert!(
        matches!(failed[..], [status] if status.code() == Code::Internal),
        "only the frame that killed it fails: {failed:?}"
    );
    assert_eq!(server.in_flight(), 0);
    server.stop().await;
}
