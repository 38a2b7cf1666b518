//! Messages that are larger than the server takes, or packed.

use std::io::Write;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use prost::Message;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_request::Message as Ask;
use spillgate_proto::pb::stream_response::Message as Said;
use tokio_stream::StreamExt;
use tonic::Code;

use crate::support::{TestServer, open_stream, result_of};

const SMALL: &str = "
name: small
slo: 10s
source: { payload: bytes }
modules:
  a: { op: slow, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 } }
outputs: { payload: $a.payload }
limits: { frame_bytes: 1000 }
";
/// Far more than the server takes in one message.
const LARGE: usize = 5 << 20;

fn frame(number: u64, bytes: usize) -> pb::Frame {
    pb::Frame {
        number,
        data: vec![7; bytes].into(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_over_the_limit_is_refused_alone_and_its_stream_lives() {
    let server = TestServer::start(&[SMALL]).await;
    let (ask, mut replies) = open_stream(&server, pb::StreamOpen::default()).await;
    for (number, bytes) in [(0, LARGE), (1, 10), (2, LARGE), (3, 1001), (4, 1000)] {
        ask.send(Ask::Frame(frame(number, bytes))).await.unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let reply = server.until_ready(replies.next()).await.unwrap().unwrap();
        let Some(Said::Result(result)) = reply.message else {
            continue;
        };
        let is_refused = result.outcome() == pb::Outcome::Refused;
        assert_eq!(is_refused, result.code == Code::ResourceExhausted as i32);
        assert_eq!(is_refused, result.detail.contains("(limits.frame_bytes)"));
        if is_refused {
            let says = format!(
                "the frame has {} bytes",
                if result.number == 3 { 1001 } else { LARGE }
            );
            assert!(result.detail.starts_with(&says), "{result:?}");
        }
        seen.push((result.number, is_refused));
    }
    seen.sort_unstable();
    assert_eq!(
        seen,
        [(0, true), (1, false), (2, true), (3, true), (4, false)]
    );
    let request = pb::InferRequest {
        frame: Some(frame(9, LARGE)),
        ..Default::default()
    };
    let status = server.client().await.infer(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(result_of(&status).number, 9);
    server.stop().await;
}

/// A call of `Infer` whose message is packed as the header says: the status of gRPC, and what came.
async fn infer(server: &TestServer, encoding: &str, packed: &[u8]) -> (i32, Bytes) {
    let executor = hyper_util::rt::TokioExecutor::new();
    let http = hyper_util::client::legacy::Client::builder(executor)
        .http2_only(true)
        .build_http();
    let mut framed = vec![1];
    framed.extend((packed.len() as u32).to_be_bytes());
    framed.extend(packed);
    let request = http::Request::post(format!("{}/spillgate.v1.Spillgate/Infer", server.url()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-encoding", encoding)
        .body(Full::new(Bytes::from(framed)))
        .unwrap();
    let answer = server.until_ready(http.request(request)).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = server.until_ready(body.collect()).await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let status = trailers
        .get("grpc-status")
        .or(head.headers.get("grpc-status"));
    let status = status.unwrap().to_str().unwrap().parse().unwrap();
    (status, body.to_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_messages_are_served_and_one_that_grows_over_the_limit_is_refused() {
    let server = TestServer::start(&[SMALL]).await;
    let packed = |bytes: usize| {
        let request = pb::InferRequest {
            frame: Some(frame(1, bytes)),
            ..Default::default()
        };
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&request.encode_to_vec()).unwrap();
        encoder.finish().unwrap()
    };
    let (status, body) = infer(&server, "gzip", &packed(1000)).await;
    assert_eq!(status, Code::Ok as i32);
    let answer = pb::InferResponse::decode(&body[5..]).unwrap();
    assert_eq!(answer.result.unwrap().outcome(), pb::Outcome::Completed);
    for bytes in [1001, LARGE] {
        let (status, _) = infer(&server, "gzip", &packed(bytes)).await;
        assert_eq!(status, Code::ResourceExhausted as i32, "{bytes}");
    }
    let (status, _) = infer(&server, "zstd", &packed(10)).await;
    assert_eq!(status, Code::Unimplemented as i32);
    server.stop().await;
}
