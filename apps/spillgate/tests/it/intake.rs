//! Frames that do not fit: they are refused one by one, and their streams live.

use spillgate_process::account::Account;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_request::Message as Ask;
use spillgate_proto::pb::stream_response::Message as Answer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::support::TestServer;

const PIPELINE: &str = "{ name: p, slo: 60s, policy: { drop: none }, limits: { frame_bytes: 4194304 }, modules: { sky: { op: daylight, \
                        inputs: { image: $source.frame }, device: \"emulated:0\" } }, outputs: { sky: $sky.labels } }";
/// Bytes of a line.
const LINE: usize = 3000;
/// Lines of a picture of 3 MB.
const LARGE: usize = 1000;

/// An open stream of a client.
struct Stream {
    ask: mpsc::Sender<pb::StreamRequest>,
    answers: Streaming<pb::StreamResponse>,
    next: u64,
}

impl Stream {
    /// Sends a picture without colours, of so many lines of a thousand pixels.
    async fn send(&mut self, lines: usize) {
        let frame = pb::Frame {
            number: self.next,
            format: pb::FrameFormat::Rgb8.into(),
            data: vec![7; LINE * lines].into(),
            width: 1000,
            height: lines as u32,
            ..Default::default()
        };
        let message = Some(Ask::Frame(frame));
        self.ask.send(pb::StreamRequest { message }).await.unwrap();
        self.next += 1;
    }

    /// The result of the frame that was sent last.
    async fn answered(&mut self) -> pb::Result {
        let answer = self.answers.message().await;
        let answer = answer.expect("the stream lives").expect("it goes on");
        let Some(Answer::Result(result)) = answer.message else {
            panic!("no result: {answer:?}");
        };
        assert_eq!(result.number, self.next - 1);
        result
    }
}

/// Streams over one connection.
async fn open(server: &TestServer, n: usize) -> Vec<Stream> {
    let client = server.client().await;
    let mut streams = Vec::new();
    for _ in 0..n {
        let (ask, asked) = mpsc::channel(1);
        let message = Some(Ask::Open(pb::StreamOpen::default()));
        ask.send(pb::StreamRequest { message }).await.unwrap();
        let answers = client.clone().stream(ReceiverStream::new(asked)).await;
        let mut answers = answers.unwrap().into_inner();
        assert!(answers.message().await.unwrap().is_some(), "it is open");
        streams.push(Stream {
            ask,
            answers,
            next: 1,
        });
    }
    streams
}

// Over five seconds: 192 pictures of 3 MB go through a socket.
#[tokio::test(flavor = "multi_thread")]
async fn streams_of_a_client_that_may_not_hold_all_their_frames_take_turns() {
    const STREAMS: usize = 16;
    const ROUNDS: usize = 12;
    // Half of the memory is one client's.
    let pipeline = PIPELINE.replace("limits: { ", "limits: { pixels: 1500000, ");
    let server = TestServer::live(&[&pipeline], |setup| {
        setup.context.account = Account::new(32 << 20);
    })
    .await;
    let mut streams = open(&server, STREAMS).await;
    let mut completed = [0; STREAMS];
    let mut refused = 0;
    for _ in 0..ROUNDS {
        for stream in &mut streams {
            stream.send(LARGE).await;
        }
        for (stream, completed) in streams.iter_mut().zip(&mut completed) {
            let result = stream.answered().await;
            match result.outcome() {
                pb::Outcome::Completed => *completed += 1,
                pb::Outcome::Refused => {
                    assert_eq!(result.reason, "memory", "{result:?}");
                    assert_eq!(result.code, tonic::Code::ResourceExhausted as i32);
                    assert!(result.detail.contains("(--memory)"), "{result:?}");
                    refused += 1;
                }
                _ => panic!("{result:?}"),
            }
        }
    }
    assert!(refused > 0, "all frames fit: {completed:?}");
    assert!(completed.iter().all(|n| *n > 0), "{completed:?}");
    // All is given back but for the streams themselves.
    for stream in &mut streams {
        stream.send(1).await;
        assert_eq!(stream.answered().await.outcome(), pb::Outcome::Completed);
    }
    let held = server.held().await;
    assert!(held < 4 << 20, "{held} bytes are held");
    drop(streams);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_over_the_limit_is_refused_alone() {
    let server = TestServer::live(&[PIPELINE], |_| {}).await;
    let mut stream = open(&server, 1).await.remove(0);
    // 1398 lines fit into 4 MiB.
    for (lines, is_taken) in [
        (1, true),
        (3000, false),
        (1398, true),
        (1399, false),
        (1, true),
    ] {
        stream.send(lines).await;
        let result = stream.answered().await;
        if is_taken {
            assert_eq!(result.outcome(), pb::Outcome::Completed, "{result:?}");
            continue;
        }
        assert_eq!(result.outcome(), pb::Outcome::Refused, "{result:?}");
        assert_eq!(result.code, tonic::Code::ResourceExhausted as i32);
        assert_eq!(result.reason, "frame_too_large");
        assert!(result.detail.contains("(limits.frame_bytes)"), "{result:?}");
    }
    server.stop().await;
}
