//! A Spillgate server of a few lines, on port 0: answers as a test tells it to.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message;
use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_server::{Spillgate, SpillgateServer};
use spillgate_proto::pb::stream_request::Message as Request;
use spillgate_proto::pb::stream_response::Message as Response;
use spillgate_proto::pb::{Outcome, StreamResponse};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request as Call, Response as Reply, Status, Streaming};

/// What the server does with the frame of a number.
pub(crate) type Behaviour = fn(u64) -> Answer;

const SLO_MS: f64 = 200.0;
/// How long an answer takes that is slow: longer than a client with an SLO waits.
pub(crate) const SLOW: Duration = Duration::from_secs(3);

/// Frames of this application are refused, whatever the behaviour.
const UNWANTED: &str = "unwanted";

fn answer_to(frame: &pb::Frame, number: u64, behaviour: Behaviour) -> Answer {
    if frame.application == UNWANTED {
        Answer::Refused
    } else {
        behaviour(number)
    }
}

/// What becomes of one frame.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Completed,
    Late,
    Dropped,
    Refused,
    /// Nothing, ever.
    Silence,
    /// Completed, after [`SLOW`].
    Slow,
    /// Completed, when a frame comes that is answered at once.
    Held,
    /// The same answer two times.
    Twice,
    /// The call breaks.
    Break,
    /// Given up by a server that shuts down.
    GivenUp,
    /// The call ends in order, as with a server that shuts down.
    End,
}

pub(crate) struct FakeServer {
    pub(crate) url: String,
    frames: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl FakeServer {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        Self::start_for(behaviour, None).await
    }

    /// Refuses calls without this token.
    pub(crate) async fn start_for(behaviour: Behaviour, token: Option<&'static str>) -> Self {
        Self::start_with(behaviour, token, SLO_MS).await
    }

    /// Its clients have no SLO.
    pub(crate) async fn start_without_slo(behaviour: Behaviour) -> Self {
        Self::start_with(behaviour, None, 600_000.0).await
    }

    async fn start_with(
        behaviour: Behaviour,
        token: Option<&'static str>,
        longest_ms: f64,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let fake = Fake {
            behaviour,
            longest_ms,
            frames: Arc::default(),
        };
        let frames = fake.frames.clone();
        let task = tokio::spawn(async move {
            // Without it the kernel holds a second small segment back until the first is acknowledged.
            let incoming = StreamExt::map(TcpListenerStream::new(listener), |stream| {
                stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            });
            let server = tonic::transport::Server::builder()
                .layer(tonic::service::InterceptorLayer::new(move |call| {
                    check(call, token)
                }))
                .add_service(SpillgateServer::new(fake).max_decoding_message_size(64 << 20));
            server.serve_with_incoming(incoming).await.unwrap();
        });
        FakeServer {
            url: format!("http://{address}"),
            frames,
            task,
        }
    }

    /// Frames that have come.
    pub(crate) fn seen(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Waits until so many frames have come.
    pub(crate) async fn has_seen(&self, frames: u64) {
        while self.seen() < frames {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn check(call: Call<()>, token: Option<&str>) -> Result<Call<()>, Status> {
    let Some(token) = token else {
        return Ok(call);
    };
    let given = call.metadata().get("authorization");
    match given.and_then(|value| value.to_str().ok()) {
        Some(given) if given == format!("Bearer {token}") => Ok(call),
        _ => Err(Status::unauthenticated("no valid token")),
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// google.rpc.Status and google.protobuf.Any, which carry the result of a unary call that did not complete.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

struct Fake {
    behaviour: Behaviour,
    longest_ms: f64,
    frames: Arc<AtomicU64>,
}

fn result(number: u64, answer: Answer) -> pb::Result {
    let outcome = match answer {
        Answer::Late => Outcome::Late,
        Answer::Dropped | Answer::GivenUp => Outcome::Dropped,
        Answer::Refused => Outcome::Refused,
        _ => Outcome::Completed,
    };
    let served = matches!(outcome, Outcome::Completed | Outcome::Late);
    let area = pb::Box {
        x0: 10.0,
        y0: 30.0,
        x1: 60.0,
        y1: 55.0,
        label: "vehicle".into(),
        score: 0.9,
    };
    let boxes = pb::value::Value::Boxes(pb::BoxList { boxes: vec![area] });
    pb::Result {
        number,
        outcome: outcome.into(),
        code: match outcome {
            _ if matches!(answer, Answer::GivenUp) => Code::Unavailable.into(),
            Outcome::Dropped => Code::DeadlineExceeded.into(),
            Outcome::Refused => Code::ResourceExhausted.into(),
            _ => 0,
        },
        module: if served {
            String::new()
        } else {
            "detect".into()
        },
        reason: if served {
            String::new()
        } else if matches!(answer, Answer::GivenUp) {
            "draining".into()
        } else {
            "estimate".into()
        },
        detail: if served {
            String::new()
        } else {
            "needs 50ms, has 20ms".into()
        },
        latency_ms: 5.0,
        outputs: std::iter::once(("vehicles".to_owned(), pb::Value { value: Some(boxes) }))
            .filter(|_| served)
            .collect(),
        timings: vec![pb::ModuleTiming {
            module: "detect".into(),
            execution_ms: 4.0,
            batch_size: 2,
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[tonic::async_trait]
impl Spillgate for Fake {
    type StreamStream = Pin<Box<dyn Stream<Item = Result<StreamResponse, Status>> + Send>>;

    async fn infer(
        &self,
        request: Call<pb::InferRequest>,
    ) -> Result<Reply<pb::InferResponse>, Status> {
        let frame = request.into_inner().frame.unwrap_or_default();
        let number = self.frames.fetch_add(1, Ordering::Relaxed);
        let answer = answer_to(&frame, number, self.behaviour);
        let result = result(frame.number, answer);
        match answer {
            Answer::Dropped | Answer::Refused => {
                let code = Code::from_i32(result.code);
                let detail = result.detail.clone();
                let any = Any {
                    type_url: "type.googleapis.com/spillgate.v1.Result".into(),
                    value: result.encode_to_vec(),
                };
                let details = RpcStatus {
                    code: result.code,
                    message: detail.clone(),
                    details: vec![any],
                };
                Err(Status::with_details(
                    code,
                    detail,
                    details.encode_to_vec().into(),
                ))
            }
            Answer::Break => Err(Status::internal("the module failed")),
            Answer::Silence => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Err(Status::internal("unreachable"))
            }
            _ => Ok(Reply::new(pb::InferResponse {
                result: Some(result),
            })),
        }
    }

    async fn stream(
        &self,
        request: Call<Streaming<pb::StreamRequest>>,
    ) -> Result<Reply<Self::StreamStream>, Status> {
        let mut requests = request.into_inner();
        let Some(pb::StreamRequest {
            message: Some(Request::Open(open)),
        }) = requests.message().await?
        else {
            return Err(Status::invalid_argument(
                "the first message must carry `open`",
            ));
        };
        if !matches!(open.pipeline.as_str(), "" | "fake") {
            let name = open.pipeline;
            return Err(Status::not_found(format!(
                "no pipeline named \"{name}\"; there is: fake"
            )));
        }
        let (sender, answers) = tokio::sync::mpsc::channel(64);
        let (behaviour, frames) = (self.behaviour, self.frames.clone());
        let longest_ms = self.longest_ms;
        tokio::spawn(async move {
            let opened = pb::StreamOpened {
                pipeline: "fake".into(),
                slo_ms: SLO_MS,
                in_flight_max: 64,
                longest_ms,
                adapts: false,
            };
            let send = async |message| {
                sender
                    .send(Ok(StreamResponse {
                        message: Some(message),
                    }))
                    .await
            };
            let _ = send(Response::Opened(opened)).await;
            let mut held = Vec::new();
            let mut is_silent = false;
            while let Ok(Some(request)) = requests.message().await {
                let Some(Request::Frame(frame)) = request.message else {
                    continue;
                };
                frames.fetch_add(1, Ordering::Relaxed);
                let answer = answer_to(&frame, frame.number, behaviour);
                match answer {
                    Answer::Silence => is_silent = true,
                    Answer::Held => held.push(frame.number),
                    Answer::Slow => {
                        let (sender, number) = (sender.clone(), frame.number);
                        tokio::spawn(async move {
                            tokio::time::sleep(SLOW).await;
                            let message = Some(Response::Result(result(number, Answer::Completed)));
                            let _ = sender.send(Ok(StreamResponse { message })).await;
                        });
                    }
                    Answer::Break => {
                        let _ = sender.send(Err(Status::unknown("it fell over"))).await;
                        return;
                    }
                    Answer::End => {
                        let _ = sender.send(Err(Status::unavailable("shutting down"))).await;
                        return;
                    }
                    _ => {
                        for number in held.drain(..) {
                            let completed = result(number, Answer::Completed);
                            let _ = send(Response::Result(completed)).await;
                        }
                        for _ in 0..if matches!(answer, Answer::Twice) {
                            2
                        } else {
                            1
                        } {
                            let _ = send(Response::Result(result(frame.number, answer))).await;
                        }
                    }
                }
            }
            if is_silent {
                // It has answers to give, and does not.
                sender.closed().await;
            }
        });
        Ok(Reply::new(ReceiverStream::new(answers).boxed_stream()))
    }

    async fn describe(
        &self,
        _: Call<pb::DescribeRequest>,
    ) -> Result<Reply<pb::DescribeResponse>, Status> {
        let pipeline = pb::PipelineDescription {
            name: "fake".into(),
            slo_ms: 200.0,
            source: "image".into(),
            ..Default::default()
        };
        Ok(Reply::new(pb::DescribeResponse {
            pipelines: vec![pipeline],
            version: "0".into(),
        }))
    }
}

trait Boxed: Stream + Sized + Send + 'static {
    fn boxed_stream(self) -> Pin<Box<dyn Stream<Item = Self::Item> + Send>> {
        Box::pin(StreamExt::map(self, |item| item))
    }
}

impl<S: Stream + Send + 'static> Boxed for S {}
