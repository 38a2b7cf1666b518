//! A server of a few lines that takes part in the adaptation of streams, as a test tells it to.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_server::{Spillgate, SpillgateServer};
use spillgate_proto::pb::stream_request::Message as Request;
use spillgate_proto::pb::stream_response::Message as Response;
use spillgate_proto::pb::{Outcome, StreamResponse};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request as Call, Response as Reply, Status, Streaming};

/// How the server takes part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    /// As it should. From the frame of that number on it asks for that longer side.
    Asks(u64, u32),
    /// It neither acknowledges frames nor answers reports.
    Silent,
    /// Its acknowledgements, clocks and sizes make no sense.
    Nonsense,
}

/// A frame as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) size: (u32, u32),
    pub(crate) source: (u32, u32),
    pub(crate) bytes: usize,
    pub(crate) timeout_ms: f64,
    pub(crate) sent_at_ns: u64,
    pub(crate) came_at_ns: u64,
}

pub(crate) struct AdaptiveServer {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    reports: Arc<Mutex<Vec<pb::LinkReport>>>,
    task: JoinHandle<()>,
}

impl AdaptiveServer {
    pub(crate) async fn start(part: Part) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, reports) = (Arc::default(), Arc::default());
        let fake = Fake {
            part,
            seen: Arc::clone(&seen),
            reports: Arc::clone(&reports),
        };
        let task = tokio::spawn(async move {
            let incoming = StreamExt::map(TcpListenerStream::new(listener), |stream| {
                stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            });
            let service = SpillgateServer::new(fake).max_decoding_message_size(64 << 20);
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        });
        AdaptiveServer {
            url,
            seen,
            reports,
            task,
        }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn reports(&self) -> Vec<pb::LinkReport> {
        self.reports.lock().unwrap().clone()
    }
}

impl Drop for AdaptiveServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Fake {
    part: Part,
    seen: Arc<Mutex<Vec<Seen>>>,
    reports: Arc<Mutex<Vec<pb::LinkReport>>>,
}

fn size_of(data: &[u8]) -> (u32, u32) {
    let reader = image::ImageReader::new(std::io::Cursor::new(data));
    let reader = reader.with_guessed_format().unwrap();
    reader.into_dimensions().unwrap()
}

/// What is said to a message of the client.
fn says(part: Part, message: &Request, now_ns: u64) -> Vec<Response> {
    match (part, message) {
        (Part::Silent, Request::Frame(frame)) => vec![result(frame.number)],
        (Part::Silent, _) => Vec::new(),
        (Part::Asks(from, side), Request::Frame(frame)) => {
            let received = pb::FrameReceived {
                number: frame.number,
                bytes: frame.data.len() as u64,
                clock_ns: now_ns,
            };
            let asked = (frame.number == from).then(|| asked(side));
            let said = [Response::Received(received), result(frame.number)];
            said.into_iter().chain(asked).collect()
        }
        (Part::Asks(..), Request::Report(report)) => vec![clock(report.clock_ns, now_ns, now_ns)],
        (Part::Nonsense, Request::Frame(frame)) => {
            let received = |number| {
                Response::Received(pb::FrameReceived {
                    number,
                    bytes: u64::MAX,
                    clock_ns: 0,
                })
            };
            let sides = [0, 1, u32::MAX, 17];
            let side = sides[frame.number as usize % sides.len()];
            vec![
                received(frame.number + 1000),
                received(frame.number),
                received(frame.number),
                asked(side),
                result(frame.number),
            ]
        }
        (Part::Nonsense, Request::Report(report)) => vec![
            clock(report.clock_ns.wrapping_add(1), 5, 5),
            clock(report.clock_ns, u64::MAX, 0),
            clock(report.clock_ns, 0, u64::MAX),
            clock(report.clock_ns, u64::MAX, u64::MAX),
        ],
        (_, Request::Open(_)) => Vec::new(),
    }
}

fn asked(side: u32) -> Response {
    Response::Asked(pb::AskedSize {
        side,
        ..Default::default()
    })
}

fn clock(client_ns: u64, came_ns: u64, written_ns: u64) -> Response {
    Response::Clock(pb::ClockAnswer {
        client_ns,
        came_ns,
        written_ns,
    })
}

fn result(number: u64) -> Response {
    let area = pb::Box {
        x1: 60.0,
        y1: 55.0,
        ..Default::default()
    };
    let boxes = pb::value::Value::Boxes(pb::BoxList { boxes: vec![area] });
    let value = pb::Value { value: Some(boxes) };
    Response::Result(pb::Result {
        number,
        outcome: Outcome::Completed.into(),
        outputs: [("vehicles".to_owned(), value)].into(),
        ..Default::default()
    })
}

#[tonic::async_trait]
impl Spillgate for Fake {
    type StreamStream = Pin<Box<dyn Stream<Item = Result<StreamResponse, Status>> + Send>>;

    async fn infer(&self, _: Call<pb::InferRequest>) -> Result<Reply<pb::InferResponse>, Status> {
        Err(Status::unimplemented("streams only"))
    }

    async fn stream(
        &self,
        request: Call<Streaming<pb::StreamRequest>>,
    ) -> Result<Reply<Self::StreamStream>, Status> {
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|m| m.message);
        let Some(Request::Open(open)) = first else {
            return Err(Status::invalid_argument(
                "the first message must carry `open`",
            ));
        };
        let (sender, answers) = tokio::sync::mpsc::channel(64);
        let (part, seen, reports) = (self.part, self.seen.clone(), self.reports.clone());
        tokio::spawn(async move {
            let opened = Response::Opened(pb::StreamOpened {
                pipeline: "fake".into(),
                slo_ms: 1000.0,
                in_flight_max: 64,
                longest_ms: 1000.0,
                adapts: open.adapts,
            });
            let send = async |message| {
                let message = Some(message);
                sender.send(Ok(StreamResponse { message })).await
            };
            let _ = send(opened).await;
            let began = Instant::now();
            while let Ok(Some(request)) = requests.message().await {
                let now_ns = began.elapsed().as_nanos() as u64;
                let Some(message) = request.message else {
                    continue;
                };
                match &message {
                    Request::Frame(frame) => seen.lock().unwrap().push(Seen {
                        size: size_of(&frame.data),
                        source: (frame.source_width, frame.source_height),
                        bytes: frame.data.len(),
                        timeout_ms: frame.timeout_ms,
                        sent_at_ns: frame.sent_at_ns,
                        came_at_ns: now_ns,
                    }),
                    Request::Report(report) => reports.lock().unwrap().push(*report),
                    Request::Open(_) => {}
                }
                for said in says(part, &message, now_ns) {
                    let _ = send(said).await;
                }
            }
        });
        Ok(Reply::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn describe(
        &self,
        _: Call<pb::DescribeRequest>,
    ) -> Result<Reply<pb::DescribeResponse>, Status> {
        Err(Status::unimplemented("streams only"))
    }
}
