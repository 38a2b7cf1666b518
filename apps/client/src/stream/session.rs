//! One client: sends its frames when they are due, takes the answers, and accounts for each frame once.
//!
//! A single task owns the ledger of frames that wait for their answer. Sending never waits for the network: a
//! frame for which the connection has no room is refused here, as `client: backlog`. When the server goes away,
//! what waits and what was planned fails with the cause, and the client ends; it does not connect again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use image::RgbImage;
use spillgate_proto::pb;
use spillgate_proto::pb::stream_request::Message as Request;
use spillgate_proto::pb::stream_response::Message as Response;
use spillgate_proto::pb::{Outcome, StreamRequest, StreamResponse};
use spillgate_scenes::GroundTruth;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use super::board::Board;
use super::clock::FrameClock;
use super::producer::{Prepared, Producer};
use super::saver::{Saver, SaverConfig};
use super::trace::{FrameTrace, SpanExport, Tracer};
use crate::connect::{connect, refused_call};
use crate::record::FrameEnd;

/// Frames handed to the connection and not yet written: more means that the network is slower than the video.
const OUTGOING_MAX: usize = 32;
/// A server answers `open` at once.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);
/// When the server is gone, at most so many planned frames are written down as failed: `--frames` may ask
/// for any number.
const UNSENT_MAX: u64 = 100_000;
/// Once all is sent, answers are waited for this much longer than the pipeline's SLO.
const ANSWER_GRACE: Duration = Duration::from_secs(2);

/// What a client is told.
#[derive(Clone)]
pub(crate) struct SessionConfig {
    pub(crate) client: usize,
    pub(crate) server: String,
    pub(crate) pipeline: String,
    pub(crate) name: String,
    pub(crate) in_order: bool,
    pub(crate) latest_only: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) application: String,
    pub(crate) trace_sample: Option<f64>,
    pub(crate) spans: Option<SpanExport>,
}

/// A frame that waits for its answer.
struct Waiting {
    due: Duration,
    sent: Duration,
    picture: Option<Arc<RgbImage>>,
    truth: Option<Arc<GroundTruth>>,
    trace: FrameTrace,
}

/// An open stream, before its first frame.
pub(crate) struct Session {
    config: SessionConfig,
    pub(crate) opened: pb::StreamOpened,
    pub(crate) frames_per_second: Option<f64>,
    frames: mpsc::Receiver<Result<Prepared>>,
    first: Option<Prepared>,
    frame_count: Option<u64>,
    outgoing: Option<mpsc::Sender<StreamRequest>>,
    answers: Streaming<StreamResponse>,
}

/// How a client ended.
#[derive(Debug, Default)]
pub(crate) struct SessionEnd {
    /// By how much the source was behind its schedule.
    pub(crate) slipped: Duration,
    /// Frames drawn and saved, and frames for which saving was too slow.
    pub(crate) saved: (u64, u64),
    /// The source ended in an error.
    pub(crate) source_error: Option<anyhow::Error>,
    /// The stream broke.
    pub(crate) lost: Option<String>,
}

impl Session {
    /// Connects, opens the stream, and waits for the first frame of the source.
    pub(crate) async fn open(config: SessionConfig, producer: Producer) -> Result<Self> {
        let mut client = connect(&config.server).await?;
        let (outgoing, requests) = mpsc::channel(OUTGOING_MAX);
        let open = pb::StreamOpen {
            pipeline: config.pipeline.clone(),
            in_order: config.in_order,
            latest_only: config.latest_only,
            client: config.name.clone(),
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
        let (answers, opened) = timeout(OPEN_TIME_MAX, opening)
            .await
            .map_err(|_| anyhow!("the server did not open the stream within {OPEN_TIME_MAX:?}"))?
            .map_err(|status| refused_call(&status))?;
        let Some(StreamResponse {
            message: Some(Response::Opened(opened)),
        }) = opened
        else {
            bail!("the server did not answer `open`; is it a Spillgate server of this version?");
        };
        let mut frames = producer.frames;
        let first = frames.recv().await.context("the source has no frames")??;
        Ok(Session {
            config,
            opened,
            frames_per_second: producer.frames_per_second,
            frames,
            first: Some(first),
            frame_count: producer.frame_count,
            outgoing: Some(outgoing),
            answers,
        })
    }

    /// Streams until the source ends, `stop` is cancelled, or the server is gone.
    pub(crate) async fn run(
        self,
        board: &Board,
        run_start: Instant,
        clock: FrameClock,
        saving: SaverConfig,
        stop: CancellationToken,
    ) -> Result<SessionEnd> {
        let saver = if saving.is_wanted() {
            Some(Saver::start(saving)?)
        } else {
            None
        };
        let tracer = Tracer::new(self.config.trace_sample, self.config.spans.as_ref());
        let mut running = Running {
            board,
            run_start,
            clock,
            saver,
            tracer,
            waiting: BTreeMap::new(),
            next_number: 0,
            session: self,
        };
        let mut end = running.exchange(stop).await?;
        end.slipped = running.clock.slipped();
        if let Some(saver) = running.saver {
            end.saved = tokio::task::spawn_blocking(|| saver.finish()).await??;
        }
        Ok(end)
    }
}

struct Running<'a> {
    board: &'a Board,
    run_start: Instant,
    clock: FrameClock,
    saver: Option<Saver>,
    tracer: Tracer,
    waiting: BTreeMap<u64, Waiting>,
    next_number: u64,
    session: Session,
}

impl Running<'_> {
    async fn exchange(&mut self, stop: CancellationToken) -> Result<SessionEnd> {
        let mut end = SessionEnd::default();
        // The next frame and when it is due.
        let mut next = self.session.first.take().map(|frame| self.schedule(frame));
        let mut give_up_at = None;
        loop {
            let due = next.as_ref().map(|(_, due)| *due);
            let sending = self.session.outgoing.is_some();
            // Unbiased: no arm may starve another at high rates.
            tokio::select! {
                answer = self.session.answers.message() => match answer {
                    Ok(Some(StreamResponse { message: Some(Response::Result(result)) })) => {
                        self.answered(result)?;
                    }
                    Ok(Some(_)) => self.board.stray(),
                    Ok(None) if sending => {
                        let cause = "the server ended the stream";
                        self.lose(cause, &mut end, due, stop.is_cancelled())?;
                        return Ok(end);
                    }
                    Ok(None) => {
                        self.fail_waiting("no_answer", "the server ended the stream without it")?;
                        return Ok(end);
                    }
                    Err(status) => {
                        let cause = lost_cause(&status);
                        self.lose(&cause, &mut end, due, stop.is_cancelled())?;
                        return Ok(end);
                    }
                },
                frame = self.session.frames.recv(), if sending && next.is_none() => match frame {
                    Some(Ok(frame)) => next = Some(self.schedule(frame)),
                    Some(Err(error)) => {
                        end.source_error = Some(error);
                        give_up_at = Some(self.stop_sending());
                    }
                    None => give_up_at = Some(self.stop_sending()),
                },
                () = sleep_until(due.unwrap_or(self.run_start)), if sending && due.is_some() => {
                    if let Some((frame, due)) = next.take() {
                        self.send(frame, due)?;
                    }
                }
                () = stop.cancelled(), if sending => {
                    next = None;
                    give_up_at = Some(self.stop_sending());
                }
                () = sleep_until(give_up_at.unwrap_or(self.run_start)), if give_up_at.is_some() => {
                    self.fail_waiting("no_answer", "the server did not answer in time")?;
                    return Ok(end);
                }
            }
        }
    }

    fn schedule(&mut self, frame: Prepared) -> (Prepared, Instant) {
        let due = self.clock.due(Instant::now());
        (frame, due)
    }

    fn send(&mut self, frame: Prepared, due: Instant) -> Result<()> {
        let number = self.next_number;
        self.next_number += 1;
        let due = due.saturating_duration_since(self.run_start);
        let bytes = frame.encoded.data.len();
        let trace = self.tracer.next(number);
        let message = pb::Frame {
            number,
            format: frame.encoded.format.into(),
            data: frame.encoded.data,
            width: frame.encoded.width,
            height: frame.encoded.height,
            timeout_ms: self
                .session
                .config
                .timeout
                .map_or(0.0, |t| t.as_secs_f64() * 1e3),
            traceparent: trace.traceparent.clone(),
            tracestate: String::new(),
            application: self.session.config.application.clone(),
        };
        let request = StreamRequest {
            message: Some(Request::Frame(message)),
        };
        let room = match &self.session.outgoing {
            Some(outgoing) => outgoing.try_send(request).is_ok(),
            None => false,
        };
        if room {
            self.board.sent(bytes);
            let sent = self.run_start.elapsed();
            let waiting = Waiting {
                due,
                sent,
                picture: frame.picture,
                truth: frame.truth,
                trace,
            };
            self.waiting.insert(number, waiting);
            return Ok(());
        }
        let detail = "the connection does not take frames as fast as they are due";
        let result = client_result(number, Outcome::Refused, "backlog", detail);
        self.end(
            FrameEnd {
                client: self.session.config.client,
                due,
                sent: None,
                ended: self.run_start.elapsed(),
                result,
            },
            frame.picture,
            None,
        )
    }

    fn answered(&mut self, result: pb::Result) -> Result<()> {
        let Some(mut waiting) = self.waiting.remove(&result.number) else {
            self.board.stray();
            return Ok(());
        };
        waiting.trace.ended(result.outcome());
        let end = FrameEnd {
            client: self.session.config.client,
            due: waiting.due,
            sent: Some(waiting.sent),
            ended: self.run_start.elapsed(),
            result,
        };
        self.end(end, waiting.picture, waiting.truth)
    }

    fn end(
        &mut self,
        end: FrameEnd,
        picture: Option<Arc<RgbImage>>,
        truth: Option<Arc<GroundTruth>>,
    ) -> Result<()> {
        self.board.ended(&end, truth.as_deref())?;
        if let (Some(saver), Some(picture)) = (&mut self.saver, picture) {
            let latency = end.latency();
            saver.save(picture, end.result, latency);
        }
        Ok(())
    }

    /// No more frames; when to stop waiting for answers.
    fn stop_sending(&mut self) -> Instant {
        self.session.outgoing = None;
        let slo = Duration::try_from_secs_f64(self.session.opened.slo_ms / 1e3);
        Instant::now() + slo.unwrap_or_default() + ANSWER_GRACE
    }

    /// The stream broke: what waits has failed, and so has what was planned and can no longer be sent.
    fn lose(
        &mut self,
        cause: &str,
        end: &mut SessionEnd,
        due: Option<Instant>,
        stopping: bool,
    ) -> Result<()> {
        end.lost = Some(cause.to_owned());
        self.fail_waiting("connection_lost", cause)?;
        let planned = self.session.frame_count.unwrap_or(self.next_number);
        if self.session.outgoing.take().is_none() || stopping {
            return Ok(());
        }
        let mut due = due;
        let until = planned.min(self.next_number + UNSENT_MAX);
        for number in self.next_number..until {
            let at = due.take().unwrap_or_else(|| self.clock.due(Instant::now()));
            let due = at.saturating_duration_since(self.run_start);
            let result = client_result(number, Outcome::Failed, "connection_lost", cause);
            let client = self.session.config.client;
            let ended = self.run_start.elapsed();
            self.end(
                FrameEnd {
                    client,
                    due,
                    sent: None,
                    ended,
                    result,
                },
                None,
                None,
            )?;
        }
        Ok(())
    }

    fn fail_waiting(&mut self, reason: &str, cause: &str) -> Result<()> {
        for (number, mut waiting) in std::mem::take(&mut self.waiting) {
            waiting.trace.ended(Outcome::Failed);
            let end = FrameEnd {
                client: self.session.config.client,
                due: waiting.due,
                sent: Some(waiting.sent),
                ended: self.run_start.elapsed(),
                result: client_result(number, Outcome::Failed, reason, cause),
            };
            self.end(end, waiting.picture, None)?;
        }
        Ok(())
    }
}

/// The client's own account of a frame that the server did not answer.
fn client_result(number: u64, outcome: Outcome, reason: &str, detail: &str) -> pb::Result {
    let code = if outcome == Outcome::Refused {
        Code::ResourceExhausted
    } else {
        Code::Unavailable
    };
    pb::Result {
        number,
        outcome: outcome.into(),
        code: code.into(),
        module: "client".to_owned(),
        reason: reason.to_owned(),
        detail: detail.to_owned(),
        ..Default::default()
    }
}

fn lost_cause(status: &Status) -> String {
    let message = status.message().replace('\n', " ");
    match status.code() {
        // What tonic says of a connection that broke.
        Code::Unknown | Code::Internal | Code::Cancelled => {
            format!("the connection to the server was lost: {message}")
        }
        code => format!("the server ended the stream: {code:?}: {message}"),
    }
}
