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
