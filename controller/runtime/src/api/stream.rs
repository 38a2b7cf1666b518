//! One stream of frames. A task reads frames and submits them. Each frame has a reserved place for its answer until the
//! answer is read, so the thread that ends a request never waits for a slow reader. The server stops reading from a
//! client that does not read its results.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_controller_policy::refusal::Refusal;
use spillgate_controller_policy::rollout::key_of;
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::request::BACKGROUND_LONGEST;
use spillgate_proto::pb;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Status, Streaming};

use super::adapting::{Notices, StreamUplink};
use super::{Api, Asked, Shared, client_of};
use crate::convert;
use crate::edge::{Call, Unread};
use crate::host::{Listening, OnEnd, PipelineHost};
use crate::record::RequestRecord;

/// Answers that may wait for a slow reader beyond those of frames in flight.
pub(crate) const ANSWERS_WAITING: usize = 64;

/// An answer on its way to the client: `sequence` counts the stream's frames.
struct Answer {
    sequence: u64,
    reply: Reply,
    place: Place,
}

enum Reply {
    Ended(Arc<RequestRecord>),
    Refused(Box<pb::Result>),
    Broken(Status),
}

impl Reply {
    fn refused(number: u64, refusal: &Refusal) -> Self {
        Reply::Refused(Box::new(convert::refused(number, refusal)))
    }
}

/// The place of an answer, from before its frame is read until the answer is.
struct Place {
    _permit: OwnedSemaphorePermit,
    /// Once there is an answer.
    _unread: Option<Unread>,
}

/// The answers of one stream.
pub(crate) struct Results {
    opened: Option<pb::StreamOpened>,
    answers: mpsc::UnboundedReceiver<Answer>,
    /// For `in_order`: the next frame to answer, and answers that came before their turn. They keep their places.
    turn: Option<(u64, BTreeMap<u64, Answer>)>,
    ready: VecDeque<Answer>,
    open: Arc<OpenFrames<Accepted>>,
    /// Of a stream that adapts.
    notices: Option<(Arc<Notices>, Arc<PipelineHost>)>,
}

/// The stream's frames in flight. When the client leaves, they are cancelled, and so is one that is accepted just then.
struct OpenFrames<A> {
    inner: Mutex<Frames<A>>,
}

struct Frames<A> {
    /// By sequence; what was accepted for each, once it is.
    open: IndexMap<u64, Option<A>, FxBuildHasher>,
    client_left: bool,
}

impl<A: Clone> Frames<A> {
    fn accepted(&self) -> Vec<A> {
        self.open.values().flatten().cloned().collect()
    }
}

/// A request where it was accepted.
type Accepted = (Arc<PipelineHost>, RequestId);

impl<A: Clone> OpenFrames<A> {
    fn new() -> Self {
        let inner = Frames {
            open: IndexMap::default(),
            client_left: false,
        };
        OpenFrames {
            inner: Mutex::new(inner),
        }
    }

    fn len(&self) -> usize {
        self.inner.lock().open.len()
    }

    fn begin(&self, sequence: u64) {
        self.inner.lock().open.insert(sequence, None);
    }

    /// Notes what was accepted. Whether it is to be cancelled, because the client has left meanwhile.
    #[must_use]
    fn accept(&self, sequence: u64, accepted: A) -> bool {
        let mut inner = self.inner.lock();
        if let Some(open) = inner.open.get_mut(&sequence) {
            *open = Some(accepted);
        }
        inner.client_left
    }

    fn end(&self, sequence: u64) {
        self.inner.lock().open.swap_remove(&sequence);
    }

    fn accepted(&self) -> Vec<A> {
        self.inner.lock().accepted()
    }

    /// The client leaves; what is to be cancelled.
    fn leave(&self) -> Vec<A> {
        let mut inner = self.inner.lock();
        inner.client_left = true;
        inner.accepted()
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        for (host, id) in self.open.leave() {
            host.cancel(id);
        }
    }
}

/// Opens a stream: its first message says for which pipeline.
pub(super) async fn serve(
    api: Arc<Api>,
    call: Arc<Call>,
    request: Request<Streaming<pb::StreamRequest>>,
) -> Result<Results, Status> {
    let (metadata, _, mut frames) = request.into_parts();
    let first = match frames.message().await? {
        Some(in_band) => received(&call, in_band)?,
        None => None,
    };
    let Some(pb::stream_request::Message::Open(open)) = first else {
        return Err(Status::invalid_argument(
            "the first message of a stream must carry `open`",
        ));
    };
    // Before the pipeline is looked up: one that is replaced meanwhile is looked up again.
    let generation = api.serves.generation();
    let client = client_of(&call, &open.client);
    let key = match (open.client.is_empty(), open.adapts) {
        (false, _) => Some(key_of(client.as_bytes())),
        // Its variants are chosen by one revision.
        (true, true) => Some(api.serves.request_key()),
        (true, false) => None,
    };
    let host = api.host(
        &call,
        &open.pipeline,
        key.unwrap_or_else(|| api.serves.request_key()),
    );
    let host = host.map_err(|refusal| convert::call_refused(&refusal))?;
    let in_flight_max = host.pipeline().limits.in_flight_per_stream;
    drop(call.take_message());
    // As many as there are places.
    let (tx, answers) = mpsc::unbounded_channel();
    let shared = Shared::new(&call, &host.pipeline().clients, metadata.as_ref(), true);
    let slo = host.pipeline().slo;
    let longest = match shared.may_be_background(&host.pipeline().clients, host.rights()) {
        true => BACKGROUND_LONGEST.max(slo),
        false => slo,
    };
    let opened = pb::StreamOpened {
        pipeline: host.pipeline().name.clone(),
        slo_ms: slo.as_secs_f64() * 1e3,
        in_flight_max: in_flight_max as u32,
        longest_ms: longest.as_secs_f64() * 1e3,
        adapts: open.adapts,
    };
    let notices = open.adapts.then(Arc::<Notices>::default);
    let uplink = notices.clone().map(|notices| {
        let link = StreamUplink::new(notices);
        let listening = link.listen(&host, shared.stream_key());
        (link, listening)
    });
    let open_frames = Arc::new(OpenFrames::new());
    let reader = Reader {
        api,
        generation,
        client,
        key,
        shared,
        latest_only: open.latest_only,
        in_flight_max,
        open: open_frames.clone(),
        places: Arc::new(Semaphore::new(in_flight_max + ANSWERS_WAITING)),
        uplink,
        host: host.clone(),
        call,
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
        // All hosts of a process have one clock.
        notices: notices.map(|notices| (notices, host)),
    })
}

/// The message that came in the place of an empty one, or this one.
///
/// # Errors
/// When it is malformed.
fn received(
    call: &Call,
    in_band: pb::StreamRequest,
) -> Result<Option<pb::stream_request::Message>, Status> {
    match call.take_handed() {
        None => Ok(in_band.message),
        Some(bytes) => Ok(spillgate_proto::decode::<pb::StreamRequest>(bytes)?.message),
    }
}

struct Reader {
    api: Arc<Api>,
    /// Of the pipelines among which `host` is.
    generation: u64,
    host: Arc<PipelineHost>,
    client: Arc<str>,
    /// What decides about the revision of all its frames; `None`: each has a key of its own.
    key: Option<u64>,
    shared: Shared,
    latest_only: bool,
    in_flight_max: usize,
    open: Arc<OpenFrames<Accepted>>,
    places: Arc<Semaphore>,
    call: Arc<Call>,
    /// Of a stream that adapts.
    uplink: Option<(StreamUplink, Listening)>,
    tx: mpsc::UnboundedSender<Answer>,
}

/// Answers one frame, once.
struct Answering {
    sequence: u64,
    call: Arc<Call>,
    permit: OwnedSemaphorePermit,
    tx: mpsc::UnboundedSender<Answer>,
}

impl Answering {
    fn reply(self, reply: Reply) {
        let place = Place {
            _permit: self.permit,
            _unread: Some(self.call.unread()),
        };
        // A client that has gone needs no answer.
        let _ = self.tx.send(Answer {
            sequence: self.sequence,
            reply,
            place,
        });
    }
}

impl Reader {
    async fn run(mut self, mut frames: Streaming<pb::StreamRequest>) {
        let mut sequence = 0;
        let call = self.call.clone();
        let mut is_to_end = std::pin::pin!(call.is_to_end());
        loop {
            let permit = tokio::select! {
                permit = self.places.clone().acquire_owned() => permit,
                () = self.tx.closed() => return,
                why = &mut is_to_end => return self.end(sequence, why).await,
            };
            let Ok(permit) = permit else { return };
            let answering = Answering {
                sequence,
                call: self.call.clone(),
                permit,
                tx: self.tx.clone(),
            };
            let message = tokio::select! {
                message = frames.next() => message,
                () = self.tx.closed() => return,
                why = &mut is_to_end => {
                    drop(answering);
                    return self.end(sequence, why).await;
                }
            };
            let message = match message {
                None => return,
                Some(Err(status)) => return answering.reply(Reply::Broken(status)),
                Some(Ok(in_band)) => match received(&self.call, in_band) {
                    Err(status) => return answering.reply(Reply::Broken(status)),
                    Ok(message) => message,
                },
            };
            let frame = match (message, &mut self.uplink) {
                (Some(pb::stream_request::Message::Frame(frame)), _) => frame,
                (Some(pb::stream_request::Message::Report(report)), Some((link, _))) => {
                    drop(self.call.take_message());
                    let heard = link.report(self.host.now(), &report);
                    if let Err(refusal) = self.follow() {
                        return answering.reply(Reply::Broken(convert::call_refused(&refusal)));
                    }
                    if let (Some(heard), Some((_, listening))) = (heard, &self.uplink) {
                        listening.reports(heard);
                    }
                    continue;
                }
                _ => {
                    let text = "after `open` each message of a stream must carry a frame, or a report where the stream adapts";
                    return answering.reply(Reply::Broken(Status::invalid_argument(text)));
                }
            };
            if let Err(refusal) = self.follow() {
                return answering.reply(Reply::Broken(convert::call_refused(&refusal)));
            }
            if self.take(frame, answering).is_break() {
                return;
            }
            sequence += 1;
        }
    }

    /// Takes no more frames. Once those that were taken are answered, the stream ends with this status.
    async fn end(self, sequence: u64, why: Status) {
        let places = self.in_flight_max + ANSWERS_WAITING;
        let all = u32::try_from(places).unwrap_or(u32::MAX);
        let all = tokio::select! {
            all = self.places.clone().acquire_many_owned(all) => all,
            () = self.tx.closed() => return,
        };
        let Ok(permit) = all else { return };
        let answering = Answering {
            sequence,
            call: self.call.clone(),
            permit,
            tx: self.tx.clone(),
        };
        answering.reply(Reply::Broken(why));
    }

    /// Takes the pipeline of the stream's name that serves its next frame.
    ///
    /// # Errors
    /// When none is.
    fn follow(&mut self) -> Result<(), Refusal> {
        let serves = &self.api.serves;
        let generation = serves.generation();
        let each = self.key.is_none() && serves.is_split();
        if generation == self.generation && !each {
            return Ok(());
        }
        self.generation = generation;
        let key = self.key.unwrap_or_else(|| serves.request_key());
        let name = &self.host.pipeline().name;
        let host = self.api.host(&self.call, name, key)?;
        if !Arc::ptr_eq(&host, &self.host) {
            self.host = host;
            if let Some((link, listening)) = &mut self.uplink {
                *listening = link.listen(&self.host, self.shared.stream_key());
            }
        }
        Ok(())
    }

    /// Takes a frame; breaks when the stream is at its end.
    fn take(&self, frame: pb::Frame, answering: Answering) -> ControlFlow<()> {
        let (number, sequence) = (frame.number, answering.sequence);
        let slo = self.host.pipeline().slo;
        let uplink = self.uplink.as_ref();
        let sent_at = uplink.and_then(|(link, _)| {
            let came = (self.host.now(), self.call.message_took());
            link.came(came, &frame, slo)
        });
        if self.open.len() >= self.in_flight_max {
            let limit = self.in_flight_max;
            let refusal = Refusal::StreamFull { limit };
            self.host.note_refused(refusal.label());
            answering.reply(Reply::refused(number, &refusal));
            return ControlFlow::Continue(());
        }
        // It is shared, because the request may end before `submit` returns.
        let answering = Arc::new(Mutex::new(Some(answering)));
        let on_end: OnEnd = Box::new({
            let (answering, open) = (answering.clone(), self.open.clone());
            move |record| {
                open.end(sequence);
                if let Some(answering) = answering.lock().take() {
                    answering.reply(Reply::Ended(record));
                }
            }
        });
        let refuse = |reply: Reply| {
            self.open.end(sequence);
            if let Some(answering) = answering.lock().take() {
                answering.reply(reply);
            }
        };
        // Frames that this one takes the place of, if it is accepted.
        let older = if self.latest_only {
            self.open.accepted()
        } else {
            Vec::new()
        };
        self.open.begin(sequence);
        let asked = Asked {
            timeout: None,
            sent_at,
            traceparent: None,
            client: self.client.clone(),
            shared: self.shared.clone(),
        };
        let (api, host) = (&self.api, &self.host);
        match api.submit(host, &self.call, frame, asked, on_end) {
            Err(refusal) if refusal.ends_call() => {
                refuse(Reply::Broken(convert::call_refused(&refusal)));
                return ControlFlow::Break(());
            }
            Err(refusal) => refuse(Reply::refused(number, &refusal)),
            Ok(id) => {
                if self.open.accept(sequence, (host.clone(), id)) {
                    host.cancel(id);
                }
                for (host, id) in older {
                    host.supersede(id);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Results {
    fn queue(&mut self, answer: Answer) {
        match &mut self.turn {
            None => self.ready.push_back(answer),
            Some((next, early)) => {
                early.insert(answer.sequence, answer);
                while let Some(answer) = early.remove(next) {
                    self.ready.push_back(answer);
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
        if let Some((notices, host)) = &self.notices
            && let Some(message) = notices.next(cx, || host.now())
        {
            return Poll::Ready(Some(Ok(respond(message))));
        }
        loop {
            if let Some(Answer { reply, place, .. }) = self.ready.pop_front() {
                drop(place);
                let result = match reply {
                    Reply::Ended(record) => convert::result(&record),
                    Reply::Refused(result) => *result,
                    Reply::Broken(status) => return Poll::Ready(Some(Err(status))),
                };
                return Poll::Ready(Some(Ok(respond(pb::stream_response::Message::Result(
                    result,
                )))));
            }
            match ready!(self.answers.poll_recv(cx)) {
                None => return Poll::Ready(None),
                // The answer is about the stream: no other answer follows it, and it does not wait for its turn.
                Some(
                    broken @ Answer {
                        reply: Reply::Broken(_),
                        ..
                    },
                ) => self.ready.push_back(broken),
                Some(answer) => self.queue(answer),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_before_its_client_leaves_or_just_then_is_cancelled() {
        let open = OpenFrames::new();
        open.begin(0);
        assert!(!open.accept(0, "before"));
        open.begin(1);
        assert_eq!(open.leave(), ["before"]);
        assert!(open.accept(1, "just then"));
        open.end(0);
        assert_eq!(open.accepted(), ["just then"]);
    }
}
