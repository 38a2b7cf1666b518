//! One client: sends its frames when they are due, receives the answers, and accounts for each frame once.
//!
//! A single task owns the table of frames that wait for their answer. Sending never waits for the network: a frame
//! for which the connection has no room is refused here, as `client: backlog`. When the server ends the stream in
//! order, it goes on elsewhere without a lost frame (`moving`). When the server is lost, waiting frames fail with the
//! cause. Then the client ends and planned frames fail as well. A client that reconnects goes on instead, and due
//! frames fail until the server is back.

mod losing;
pub(crate) mod moving;
mod sending;
mod silence;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use image::RgbImage;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_response::Message as Response;
use spillgate_proto::pb::{StreamRequest, StreamResponse};
use spillgate_scenes::GroundTruth;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::losing::{client_result, lost_cause};
use self::moving::{ended_in_order, room};
use self::silence::at;
use super::adapting::{Adapting, WantedSide};
use super::board::{Board, Lost};
use super::clock::FrameClock;
use super::open_stream::OpenStream;
use super::producer::{Made, Prepared, Producer};
use super::saver::{Saver, SaverConfig};
use super::trace::{FrameTrace, SpanExport, Tracer};
use crate::connect::Server;
use crate::record::{FrameEnd, Origin, SentAs};
use crate::resize::Scale;

/// Most planned frames that are recorded as failed when the server is gone: `--frames` may ask for any number.
pub(crate) const UNSENT_MAX: u64 = 100_000;
/// After the last frame, answers are waited for this much longer than they may take.
pub(crate) const ANSWER_GRACE: Duration = Duration::from_secs(2);
/// Answers may take this long at most, whatever the server says: so long it keeps requests of a client without an SLO.
pub(crate) const ANSWER_LONGEST: Duration = Duration::from_secs(600);
/// The reason of a frame that failed with its connection.
const LOST: &str = "connection_lost";

/// The settings of a client.
#[derive(Clone)]
pub(crate) struct SessionConfig {
    pub(crate) client: usize,
    pub(crate) server: Server,
    pub(crate) pipeline: String,
    pub(crate) name: Arc<str>,
    pub(crate) in_order: bool,
    pub(crate) latest_only: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) application: String,
    /// By module: which model of its family.
    pub(crate) models: HashMap<String, String>,
    pub(crate) trace_sample: Option<f64>,
    pub(crate) spans: Option<SpanExport>,
    /// Tells a live source that its frames are wanted.
    pub(crate) runs: Arc<AtomicBool>,
    /// It reconnects to a lost server.
    pub(crate) reconnect: bool,
    /// Its frames have the size that the server asks for and the link bears.
    pub(crate) wanted: Option<WantedSide>,
}

/// A frame that waits for its answer.
struct Waiting {
    due: Duration,
    sent: Duration,
    sent_as: SentAs,
    /// It may have to be sent again.
    made: Made,
    picture: Option<Arc<RgbImage>>,
    truth: Option<Arc<GroundTruth>>,
    origin: Origin,
    trace: FrameTrace,
    scale: Scale,
    /// By a server that shuts down.
    was_given_up: bool,
}

/// An open stream, before its first frame.
pub(crate) struct Session {
    config: SessionConfig,
    link: OpenStream,
    pub(crate) frames_per_second: Option<f64>,
    /// How the source wants its frames to be sent.
    pub(crate) is_live: bool,
    pub(crate) has_times: bool,
    frames: mpsc::Receiver<Result<Prepared>>,
    first: Option<Prepared>,
    frame_count: Option<u64>,
}

/// The end of a client.
#[derive(Debug, Default)]
pub(crate) struct SessionEnd {
    /// Total delay of its schedule by the source.
    pub(crate) slipped: Duration,
    /// Frames drawn and saved, and frames skipped because saving was too slow.
    pub(crate) saved: (u64, u64),
    /// Why frames could not be saved.
    pub(crate) unsaved: Option<anyhow::Error>,
    /// The source ended in an error.
    pub(crate) source_error: Option<anyhow::Error>,
    /// The stream broke.
    pub(crate) lost: Option<String>,
}

impl Session {
    /// Connects, opens the stream, and waits for the first frame of the source; not for a live one that may come when it likes.
    pub(crate) async fn open(config: SessionConfig, producer: Producer) -> Result<Self> {
        let link = OpenStream::open(&config).await?;
        let mut frames = producer.frames;
        let none = "the source has no frames";
        let first = match producer.is_live {
            false => Some(frames.recv().await.context(none)??),
            true if config.reconnect => None,
            true => tokio::select! {
                // Biased: it is dropped with a source that failed, which says why.
                biased;
                Ok(()) = producer.is_there => None,
                failed = frames.recv() => Some(failed.context(none)??),
            },
        };
        Ok(Session {
            config,
            link,
            frames_per_second: producer.frames_per_second,
            is_live: producer.is_live,
            has_times: producer.has_times,
            frames,
            first,
            frame_count: producer.frame_count,
        })
    }

    /// The server's answer to opening the stream.
    pub(crate) fn opened(&self) -> &pb::StreamOpened {
        &self.link.opened
    }

    /// Streams until the source ends, `stop` is cancelled, or the server is gone. Then it waits for the answers that are out, as long as
    /// they may take; once `interrupted` is cancelled, only as long as the SLO.
    pub(crate) async fn run(
        mut self,
        board: &Board,
        run_start: Instant,
        clock: FrameClock,
        saving: SaverConfig,
        stop: CancellationToken,
        interrupted: CancellationToken,
    ) -> Result<SessionEnd> {
        let saver = if saving.is_wanted() {
            Some(Saver::start(saving)?)
        } else {
            None
        };
        self.config.runs.store(true, Ordering::Relaxed);
        let tracer = Tracer::new(self.config.trace_sample, self.config.spans.as_ref());
        let adapting = adapt(&self.config, &self.link.opened, &clock);
        let mut running = Running {
            board,
            run_start,
            clock,
            adapting,
            saver,
            tracer,
            waiting: BTreeMap::new(),
            held: VecDeque::new(),
            moves: 0,
            next_number: 0,
            outgoing: self.link.outgoing.take(),
            sending: true,
            opened: self.link.opened.clone(),
            heard: Instant::now(),
            interrupted,
            config: self.config,
            frames: self.frames,
            frame_count: self.frame_count,
        };
        let mut end = running.exchange(self.link, self.first, stop).await;
        end.slipped = running.clock.slipped();
        if let Some(saver) = running.saver {
            match tokio::task::spawn_blocking(|| saver.finish()).await? {
                Ok(saved) => end.saved = saved,
                Err(error) => end.unsaved = Some(error),
            }
        }
        Ok(end)
    }
}

struct Running<'a> {
    board: &'a Board,
    run_start: Instant,
    clock: FrameClock,
    /// Its part in the adaptation, where client and server take part.
    adapting: Option<Adapting>,
    saver: Option<Saver>,
    tracer: Tracer,
    waiting: BTreeMap<u64, Waiting>,
    /// Of these, those that are to be sent, in order: the stream moved, or moves.
    held: VecDeque<u64>,
    /// How often the stream moved since the last answer.
    moves: usize,
    next_number: u64,
    config: SessionConfig,
    frames: mpsc::Receiver<Result<Prepared>>,
    frame_count: Option<u64>,
    /// The sending end, while there is a server.
    outgoing: Option<mpsc::Sender<StreamRequest>>,
    /// Whether frames are still to come.
    sending: bool,
    opened: pb::StreamOpened,
    /// When the server's last message came.
    heard: Instant,
    /// The user wants it to end.
    interrupted: CancellationToken,
}

/// What becomes of a stream that was opened just now.
fn adapt(
    config: &SessionConfig,
    opened: &pb::StreamOpened,
    clock: &FrameClock,
) -> Option<Adapting> {
    let wanted = config.wanted.clone()?;
    let patience = match span(opened.longest_ms) {
        Duration::ZERO => ANSWER_LONGEST,
        longest => longest.min(ANSWER_LONGEST),
    };
    Adapting::new(opened, clock.frames_per_second(), patience, wanted)
}

/// The stream, or the attempts to open it again.
enum Attempt {
    Open(Box<OpenStream>),
    /// Its server ended it in order.
    Moving {
        cause: String,
        attempt: Pin<Box<dyn Future<Output = Option<OpenStream>> + Send>>,
    },
    Lost {
        since: Instant,
        cause: String,
        attempt: Pin<Box<dyn Future<Output = OpenStream> + Send>>,
    },
}

/// The events of a session.
enum Arrival {
    Answer(Result<Option<StreamResponse>, Status>),
    Moved(Option<OpenStream>),
    Reopened(OpenStream),
}

impl Attempt {
    async fn next(&mut self) -> Arrival {
        match self {
            Attempt::Open(link) => Arrival::Answer(link.answers.message().await),
            Attempt::Moving { attempt, .. } => Arrival::Moved(attempt.await),
            Attempt::Lost { attempt, .. } => Arrival::Reopened(attempt.await),
        }
    }
}

impl Running<'_> {
    async fn exchange(
        &mut self,
        link: OpenStream,
        first: Option<Prepared>,
        stop: CancellationToken,
    ) -> SessionEnd {
        let mut end = SessionEnd::default();
        let mut way = Attempt::Open(Box::new(link));
        // The next frame and when it is due.
        let mut next = first.map(|frame| self.schedule(frame));
        let mut give_up_at = None;
        let interrupted = self.interrupted.clone();
        let mut hurries = false;
        loop {
            let due = next.as_ref().map(|(_, due)| *due);
            let reports_at = self.adapting.as_ref().map(Adapting::reports_at);
            if !self.sending
                && let Attempt::Lost { cause, .. } = &way
            {
                end.lost = Some(cause.clone());
                return end;
            }
            let silent_at = self.silent_at(&way);
            // Unbiased: no arm may starve another at high rates.
            let lost = tokio::select! {
                arrival = way.next() => match arrival {
                    Arrival::Answer(Ok(Some(message))) => {
                        self.answered(message);
                        None
                    }
                    Arrival::Answer(Ok(None)) if !self.sending => {
                        self.unanswered(&mut end, "the server ended the stream without it");
                        return end;
                    }
                    Arrival::Answer(Ok(None)) => Some("the server ended the stream".to_owned()),
                    Arrival::Answer(Err(status)) if ended_in_order(&status) && self.may_move() => {
                        if !self.sending && self.waiting.is_empty() {
                            return end;
                        }
                        way = self.move_on(&lost_cause(&status));
                        None
                    }
                    Arrival::Answer(Err(status)) => Some(lost_cause(&status)),
                    Arrival::Reopened(link) | Arrival::Moved(Some(link)) => {
                        way = self.resume(way, link);
                        None
                    }
                    Arrival::Moved(None) => match &way {
                        Attempt::Moving { cause, .. } => Some(cause.clone()),
                        _ => None,
                    },
                },
                () = at(silent_at) => Some(self.silence()),
                frame = self.frames.recv(), if self.sending && next.is_none() => {
                    match frame {
                        Some(Ok(frame)) => next = Some(self.schedule(frame)),
                        Some(Err(error)) => {
                            end.source_error = Some(error);
                            give_up_at = Some(self.stop_sending());
                        }
                        None => give_up_at = Some(self.stop_sending()),
                    }
                    None
                }
                () = at(due), if self.sending => {
                    if let Some((frame, due)) = next.take() {
                        let waits = self.holds_frames(&way);
                        self.send(frame, due, waits);
                    }
                    None
                }
                () = room(self.outgoing.as_ref()), if !self.held.is_empty() => {
                    self.send_held();
                    None
                }
                () = at(reports_at), if self.outgoing.is_some() => {
                    self.report();
                    None
                }
                () = stop.cancelled(), if self.sending => {
                    next = None;
                    give_up_at = Some(self.stop_sending());
                    None
                }
                () = interrupted.cancelled(), if !self.sending && !hurries => {
                    hurries = true;
                    let soon = Instant::now() + self.answers_take();
                    give_up_at = give_up_at.map(|at| at.min(soon));
                    None
                }
                () = at(give_up_at) => {
                    self.unanswered(&mut end, "the server did not answer in time");
                    return end;
                }
            };
            match lost {
                None => {}
                Some(cause) if self.config.reconnect && self.sending && !stop.is_cancelled() => {
                    way = self.wait_for_server(cause);
                }
                Some(cause) => {
                    self.lose(&cause, &mut end, due, stop.is_cancelled());
                    return end;
                }
            }
        }
    }

    /// The server is gone and may come back: waiting frames have failed.
    fn wait_for_server(&mut self, cause: String) -> Attempt {
        self.outgoing = None;
        self.fail_waiting(LOST, &cause);
        let name = &self.config.name;
        let line = format!("{name}: {cause}; trying to reach the server again");
        self.board.screen.line(&line);
        Attempt::Lost {
            since: Instant::now(),
            cause,
            attempt: Box::pin(OpenStream::reopen(self.config.clone())),
        }
    }

    fn resume(&mut self, lost: Attempt, mut link: OpenStream) -> Attempt {
        if let Attempt::Lost { since, .. } = lost {
            let (name, away) = (&self.config.name, since.elapsed().as_secs_f64());
            let line = format!("{name}: the server is back after {away:.1}s");
            self.board.screen.line(&line);
            self.board.reconnected(Lost::Server);
        }
        self.outgoing = link.outgoing.take();
        self.opened = link.opened.clone();
        self.heard = Instant::now();
        self.adapting = adapt(&self.config, &link.opened, &self.clock);
        if self.held.is_empty() && !self.sending {
            self.outgoing = None;
        }
        Attempt::Open(Box::new(link))
    }

    fn schedule(&mut self, frame: Prepared) -> (Prepared, Instant) {
        let now = Instant::now();
        if frame.after_gap {
            self.clock.restart(now, frame.at);
        }
        let slipped = self.clock.slipped();
        let due = self.clock.due(now, frame.at);
        self.board.slipped(self.clock.slipped() - slipped);
        (frame, due)
    }

    fn answered(&mut self, message: StreamResponse) {
        self.heard = Instant::now();
        let mut result = match (message.message, &mut self.adapting) {
            (Some(Response::Result(result)), None) => result,
            (Some(Response::Result(result)), Some(adapting)) => {
                adapting.came(result.number);
                result
            }
            (Some(Response::Received(frame)), Some(adapting)) => {
                adapting.received(&frame);
                return;
            }
            (Some(Response::Clock(clock)), Some(adapting)) => {
                adapting.answered(&clock);
                return;
            }
            (Some(Response::Asked(asked)), Some(adapting)) => {
                adapting.asked(&asked);
                return;
            }
            _ => {
                self.board.stray();
                return;
            }
        };
        if self.is_for_another(&result) {
            return;
        }
        let Some(mut waiting) = self.waiting.remove(&result.number) else {
            self.board.stray();
            return;
        };
        self.moves = 0;
        waiting.scale.map_back(&mut result);
        waiting.trace.ended(result.outcome());
        self.close(waiting, result);
    }

    /// A frame that waited has this result.
    fn close(&mut self, waiting: Waiting, result: pb::Result) {
        let end = FrameEnd {
            client: self.config.client,
            name: self.config.name.clone(),
            origin: Some(waiting.origin),
            due: waiting.due,
            sent: Some(waiting.sent),
            sent_as: waiting.sent_as,
            ended: self.run_start.elapsed(),
            result,
        };
        self.end(end, waiting.picture, waiting.truth);
    }

    fn end(
        &mut self,
        end: FrameEnd,
        picture: Option<Arc<RgbImage>>,
        truth: Option<Arc<GroundTruth>>,
    ) {
        self.board.ended(&end, truth.as_deref());
        if let (Some(saver), Some(picture)) = (&mut self.saver, picture) {
            saver.save(picture, end);
        }
    }

    /// No more frames; returns when to stop waiting for answers.
    fn stop_sending(&mut self) -> Instant {
        self.sending = false;
        // Frames that wait to be sent go first.
        if self.held.is_empty() {
            self.outgoing = None;
        }
        let take = self.answers_take();
        if take > self.slo() + ANSWER_GRACE && !self.waiting.is_empty() {
            let (name, n, take) = (&self.config.name, self.waiting.len(), take.as_secs());
            let line = format!(
                "{name}: waiting for {n} answers without an SLO, {take} s at most; Ctrl-C gives them up"
            );
            self.board.screen.line(&line);
        }
        Instant::now() + take
    }

    /// How long answers are waited for that are out now.
    fn answers_take(&self) -> Duration {
        let slo = self.slo();
        let longest = span(self.opened.longest_ms).min(ANSWER_LONGEST);
        let asked = self.config.timeout.unwrap_or(longest).min(longest);
        let take = match self.interrupted.is_cancelled() {
            true => slo,
            false => asked.max(slo),
        };
        take + ANSWER_GRACE
    }

    fn slo(&self) -> Duration {
        span(self.opened.slo_ms).min(ANSWER_LONGEST)
    }
}

/// What a server says in milliseconds; none where it says nonsense.
fn span(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}
