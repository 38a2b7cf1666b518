//! One stream of frames. A task reads frames and submits them; results come back through a bounded
//! channel in which each accepted frame has its place reserved, so that the one who ends a request never
//! waits for a slow reader. A client that does not read its results is no longer read from.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::request::DropReason;
use spillgate_proto::pb;
use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Status, Streaming};

use super::{Gateway, client_name};
use crate::convert;
use crate::host::{OnEnd, PipelineHost};
use crate::record::RequestRecord;

/// Answers that may wait for a slow reader beyond those of frames in flight.
const ANSWERS_WAITING: usize = 64;

/// An answer on its way to the client: `sequence` counts the stream's frames.
enum Answer {
    Ended(u64, Arc<RequestRecord>),
    Refused(u64, Box<pb::Result>),
    Broken(Status),
}

/// The answers of one stream.
pub struct Results {
    opened: Option<pb::StreamOpened>,
    answers: mpsc::Receiver<Answer>,
    /// For `in_order`: the next frame to answer, and answers that came before their turn.
    turn: Option<(u64, BTreeMap<u64, pb::Result>)>,
    ready: VecDeque<pb::Result>,
    open: Arc<OpenFrames>,
}

/// The stream's frames in flight. When the client goes away, they are cancelled.
struct OpenFrames {
    host: Arc<PipelineHost>,
    frames: Mutex<IndexMap<u64, Option<RequestId>, FxBuildHasher>>,
}

impl OpenFrames {
    fn ids(&self) -> Vec<RequestId> {
        self.frames.lock().values().copied().flatten().collect()
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        for id in self.open.ids() {
            self.open.host.cancel(id);
        }
    }
}

/// Opens a stream: its first message says for which pipeline.
pub(super) async fn serve(
    gateway: Gateway,
    request: Request<Streaming<pb::StreamRequest>>,
) -> Result<Results, Status> {
    let mut frames = request.into_inner();
    let first = frames.message().await?.and_then(|m| m.message);
    let Some(pb::stream_request::Message::Open(open)) = first else {
        return Err(Status::invalid_argument(
            "the first message of a stream must carry `open`",
        ));
    };
    let host = gateway.host(&open.pipeline)?.clone();
    let in_flight_max = host.pipeline().limits.in_flight_per_stream;
    let (tx, answers) = mpsc::channel(in_flight_max + ANSWERS_WAITING);
    let opened = pb::StreamOpened {
        pipeline: host.pipeline().name.clone(),
        slo_ms: host.pipeline().slo.as_secs_f64() * 1e3,
        in_flight_max: in_flight_max as u32,
    };
    let open_frames = Arc::new(OpenFrames {
        host: host.clone(),
        frames: Mutex::default(),
    });
    let reader = Reader {
        gateway,
        host,
        client: client_name(&open.client),
        latest_only: open.latest_only,
        in_flight_max,
        open: open_frames.clone(),
        tx,
    };
    // Ends with the client's last frame, with the connection, or when `Results` is dropped.
    tokio::spawn(reader.run(frames));
    Ok(Results {
        opened: Some(opened),
        answers,
        turn: open.in_order.then(|| (0, BTreeMap::new())),
        ready: VecDeque::new(),
        open: open_frames,
    })
}

struct Reader {
    gateway: Gateway,
    host: Arc<PipelineHost>,
    client: Arc<str>,
    latest_only: bool,
    in_flight_max: usize,
    open: Arc<OpenFrames>,
    tx: mpsc::Sender<Answer>,
}

impl Reader {
    async fn run(self, mut frames: Streaming<pb::StreamRequest>) {
        let mut sequence = 0;
        loop {
            // A place for this frame's answer; `Err` when the client has gone.
            let Ok(place) = self.tx.clone().reserve_owned().await else {
                return;
            };
            let message = tokio::select! {
                message = frames.next() => message,
                () = self.tx.closed() => return,
            };
            let frame = match message {
                None => return,
                Some(Err(status)) => {
                    place.send(Answer::Broken(status));
                    return;
                }
                Some(Ok(pb::StreamRequest { message })) => message,
            };
            let Some(pb::stream_request::Message::Frame(frame)) = frame else {
                let text = "after `open` each message of a stream must carry a frame";
                place.send(Answer::Broken(Status::invalid_argument(text)));
                return;
            };
            self.take(sequence, frame, place);
            sequence += 1;
        }
    }

    fn take(&self, sequence: u64, frame: pb::Frame, place: mpsc::OwnedPermit<Answer>) {
        let number = frame.number;
        if self.latest_only {
            for id in self.open.ids() {
                self.host.supersede(id);
            }
        }
        if self.open.frames.lock().len() >= self.in_flight_max {
            let detail = format!(
                "refused: {} frames of this stream are in flight already (limits.in_flight_per_stream)",
                self.in_flight_max
            );
            let reason = DropReason::QueueFull.label();
            self.host.note_refused(reason);
            let refused = convert::refused(number, Code::ResourceExhausted, reason, detail);
            place.send(Answer::Refused(sequence, Box::new(refused)));
            return;
        }
        // The place is shared, since the request may end before `submit` says that it was accepted.
        let place = Arc::new(Mutex::new(Some(place)));
        let on_end: OnEnd = Box::new({
            let (place, open) = (place.clone(), self.open.clone());
            move |record| {
                open.frames.lock().swap_remove(&sequence);
                if let Some(place) = place.lock().take() {
                    place.send(Answer::Ended(sequence, record));
                }
            }
        });
        let refuse = |result: Box<pb::Result>| {
            self.open.frames.lock().swap_remove(&sequence);
            if let Some(place) = place.lock().take() {
                place.send(Answer::Refused(sequence, result));
            }
        };
        self.open.frames.lock().insert(sequence, None);
        let client = self.client.clone();
        match self
            .gateway
            .submission(&self.host, frame, None, None, client, on_end)
        {
            Err(result) => refuse(result),
            Ok(submission) => match self.host.submit(submission) {
                Err(refusal) => refuse(Box::new(convert::refusal(number, refusal))),
                Ok(id) => {
                    if let Some(open) = self.open.frames.lock().get_mut(&sequence) {
                        *open = Some(id);
                    }
                }
            },
        }
        if self.tx.is_closed() {
            // The client went away between the last look and now.
            for id in self.open.ids() {
                self.host.cancel(id);
            }
        }
    }
}

impl Results {
    fn queue(&mut self, sequence: u64, result: pb::Result) {
        match &mut self.turn {
            None => self.ready.push_back(result),
            Some((next, early)) => {
                early.insert(sequence, result);
                while let Some(result) = early.remove(next) {
                    self.ready.push_back(result);
                    *next += 1;
                }
            }
        }
    }
}

impl Stream for Results {
    type Item = Result<pb::StreamResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let respond = |message| pb::StreamResponse {
            message: Some(message),
        };
        if let Some(opened) = self.opened.take() {
            return Poll::Ready(Some(Ok(respond(pb::stream_response::Message::Opened(
                opened,
            )))));
        }
        loop {
            if let Some(result) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(respond(pb::stream_response::Message::Result(
                    result,
                )))));
            }
            match self.answers.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Answer::Broken(status))) => return Poll::Ready(Some(Err(status))),
                Poll::Ready(Some(Answer::Ended(sequence, record))) => {
                    self.queue(sequence, convert::result(&record));
                }
                Poll::Ready(Some(Answer::Refused(sequence, result))) => {
                    self.queue(sequence, *result);
                }
            }
        }
    }
}
