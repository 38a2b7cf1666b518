//! Messages that no honest client sends.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_names_too_many_models_is_refused_before_they_are_read() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let naming = |n: usize| {
        let mut request = infer(b"x");
        let models = (0..n).map(|i| (format!("m{i}"), String::new()));
        request.frame.as_mut().unwrap().models = models.collect();
        request
    };
    let mut client = server.client().await;
    let status = client.infer(naming(1025)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert_eq!(
        status.message(),
        "spillgate.v1.Frame.models has more than 1024 entries"
    );
    // The connection lives, and fewer are looked at: this pipeline has none of them.
    let status = client.infer(naming(1024)).await.unwrap_err();
    assert!(!status.message().contains("more than"), "{status}");
    let (ask, mut replies) = open_stream(&server, pb::StreamOpen::default()).await;
    assert!(replies.next().await.unwrap().is_ok(), "it is open");
    let frame = naming(1025).frame.unwrap();
    ask.send(Ask::Frame(frame)).await.unwrap();
    let status = replies.next().await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    serve(&server, b"x").await.expect("others are served");
    server.stop().await;
}

/// Bytes as a whole call of `Infer`: the status of HTTP and that of gRPC.
async fn posted(server: &TestServer, content_type: &str, message: &[u8]) -> (u16, String) {
    let executor = hyper_util::rt::TokioExecutor::new();
    let http = hyper_util::client::legacy::Client::builder(executor)
        .http2_only(true)
        .build_http();
    let mut framed = vec![0];
    framed.extend((message.len() as u32).to_be_bytes());
    framed.extend(message);
    let request = http::Request::post(format!("{}/spillgate.v1.Spillgate/Infer", server.url()))
        .header("content-type", content_type)
        .header("te", "trailers")
        .body(http_body_util::Full::new(bytes::Bytes::from(framed)))
        .unwrap();
    let (head, body) = http.request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().unwrap_or(&head.headers);
    let status = head.headers.get("grpc-status");
    let status = status.or(trailers.get("grpc-status"));
    let status = status.map_or("", |status| status.to_str().unwrap());
    (head.status.as_u16(), status.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_message_are_an_invalid_argument() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    let invalid = (Code::InvalidArgument as i32).to_string();
    // A field that is cut short, a varint without end, a group, text that is no UTF-8, a frame given twice.
    for message in [
        &[0x12, 9, 1][..],
        &[0xff; 11],
        &[0x0b],
        &[0x0a, 1, 0xff],
        &[0x12, 0, 0x12, 0],
    ] {
        let (http, grpc) = posted(&server, "application/grpc", message).await;
        assert_eq!((http, &grpc), (200, &invalid), "{message:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_not_of_grpc_get_status_415() {
    let server = TestServer::start(&[TWO_STAGES]).await;
    for content_type in [
        "application/json",
        "application/grpc-web",
        "application/grpc+json",
        "application/grpcx",
        "",
    ] {
        let answer = posted(&server, content_type, b"").await;
        assert_eq!(answer, (415, String::new()), "{content_type}");
    }
    for content_type in [
        "application/grpc",
        "application/grpc+proto",
        "Application/gRPC; charset=utf-8",
    ] {
        let (http, _) = posted(&server, content_type, b"").await;
        assert_eq!(http, 200, "{content_type}");
    }
    server.stop().await;
}
