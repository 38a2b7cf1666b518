//! The transport of `bench --stream`: one stream a connection, frames spread over them in turn.
//!
//! A stream that breaks is not opened again: its frames fail, with the cause.

use anyhow::{Context, Result, bail};
use spillgate_proto::pb;
use spillgate_proto::pb::StreamRequest;
use spillgate_proto::pb::stream_request::Message as Request;
use spillgate_proto::pb::stream_response::Message as Response;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::connect::{PROMPT_TIME_MAX, Server};

/// Frames handed to a connection and not yet written.
pub(crate) const OUTGOING_MAX: usize = 1024;
/// Answers that the generator has not yet taken, over all streams.
const ANSWERS_MAX: usize = 4096;

/// An event of a stream.
pub(crate) enum Event {
    Answered(Box<pb::Result>),
    /// The stream with this index has ended.
    Lost(usize, String),
}

/// Why a frame could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The connection has no room.
    Full,
    /// The stream has ended.
    Ended,
}

/// Open streams.
pub(crate) struct Streams {
    outgoing: Vec<mpsc::Sender<StreamRequest>>,
    pub(crate) events: mpsc::Receiver<Event>,
    next: usize,
    /// Tasks that read the answers; they end with this.
    _readers: JoinSet<()>,
}

impl Streams {
    pub(crate) async fn open(server: &Server, n: usize, pipeline: &str) -> Result<Self> {
        let (sender, events) = mpsc::channel(ANSWERS_MAX);
        let mut streams = Streams {
            outgoing: Vec::new(),
            events,
            next: 0,
            _readers: JoinSet::new(),
        };
        for idx in 0..n {
            let (mut client, _) = server.connect().await?;
            let (outgoing, requests) = mpsc::channel(OUTGOING_MAX);
            let open = pb::StreamOpen {
                pipeline: pipeline.to_owned(),
                client: format!("bench-{idx}"),
                ..Default::default()
            };
            outgoing
                .send(StreamRequest {
                    message: Some(Request::Open(open)),
                })
                .await
                .context("the stream closed before it was opened")?;
            let opening = async {
                let response = client.stream(ReceiverStream::new(requests)).await?;
                let mut answers = response.into_inner();
                let opened = answers.message().await?;
                Ok::<_, Status>((answers, opened))
            };
            let (mut answers, opened) = timeout(PROMPT_TIME_MAX, opening)
                .await
                .map_err(|_| server.silent("the opening of a stream"))?
                .map_err(|status| server.refused(&status))?;
            if !matches!(opened.and_then(|o| o.message), Some(Response::Opened(_))) {
                bail!(
                    "the server did not answer `open`; is it a Spillgate server of this version?"
                );
            }
            let sender = sender.clone();
            streams._readers.spawn(async move {
                let cause = loop {
                    match answers.message().await {
                        Ok(Some(pb::StreamResponse {
                            message: Some(Response::Result(result)),
                        })) => {
                            let answered = Event::Answered(Box::new(result));
                            if sender.send(answered).await.is_err() {
                                return;
                            }
                        }
                        Ok(Some(_)) => {}
                        Ok(None) => break "the server ended the stream".to_owned(),
                        Err(status) => break status.message().to_owned(),
                    }
                };
                // When the run is over the receiver is gone.
                let _ = sender.send(Event::Lost(idx, cause)).await;
            });
            streams.outgoing.push(outgoing);
        }
        Ok(streams)
    }

    /// The index of the stream that took the frame.
    ///
    /// # Errors
    /// When its connection has no room, or the stream has ended.
    pub(crate) fn send(&mut self, frame: pb::Frame) -> std::result::Result<usize, NotTaken> {
        let idx = self.next;
        self.next = (self.next + 1) % self.outgoing.len();
        let request = StreamRequest {
            message: Some(Request::Frame(frame)),
        };
        match self.outgoing[idx].try_send(request) {
            Ok(()) => Ok(idx),
            Err(TrySendError::Full(_)) => Err(NotTaken::Full),
            Err(TrySendError::Closed(_)) => Err(NotTaken::Ended),
        }
    }
}
