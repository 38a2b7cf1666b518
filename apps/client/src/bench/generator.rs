//! Sends requests when they are due and receives the answers, on one thread.
//!
//! Open loop: the pacer decides when, and nothing that the server does delays the next request. Closed loop: each
//! answer releases the next request. Latencies count from the due time, so a request that was sent late (no CPU time,
//! a stuck connection) does not look faster than it was.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use spillgate_proto::pb;
use spillgate_proto::pb::Outcome;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::measure::{Ended, Measure};
use super::pacer::Pacer;
use super::payloads::Order;
use super::streams::{Event, NotTaken, Streams};
use super::wire::{CONNECTION_LOST, Connections, NO_ANSWER, Reply, client_failure};

/// Most requests that wait for their answers at once. With more, the server is not answering at all: further requests
/// fail here, and memory stays bounded.
pub(crate) const IN_FLIGHT_MAX: usize = 65_536;
/// How long answers are waited for after the last request.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// The transport of requests.
pub(crate) enum Transport {
    Unary(Box<Connections>),
    /// Streams, with the fields of the frames on them.
    Stream(Streams, Vec<pb::Frame>),
}

impl Transport {
    /// The payloads.
    fn payloads(&self) -> usize {
        match self {
            Transport::Unary(connections) => connections.requests(),
            Transport::Stream(_, frames) => frames.len(),
        }
    }
}

/// When requests are sent.
pub(crate) enum Source {
    /// When the pacer says so.
    Open(Pacer),
    /// So many in flight, until this moment.
    Closed(usize, Instant),
}

/// A request that waits for its answer.
struct Waiting {
    due: Duration,
    sent: Option<Duration>,
    call: Option<AbortHandle>,
    stream: usize,
    payload: usize,
}

pub(crate) struct Generator {
    start: Instant,
    transport: Transport,
    order: Order,
    /// When the client gives up.
    patience: Option<Duration>,
    calls: JoinSet<(u64, Reply)>,
    /// By number, which is the order of due times.
    waiting: BTreeMap<u64, Waiting>,
    next_number: u64,
    measure: Measure,
}

impl Generator {
    pub(crate) fn new(
        start: Instant,
        transport: Transport,
        order: Order,
        patience: Option<Duration>,
        measure: Measure,
    ) -> Self {
        Generator {
            start,
            transport,
            order,
            patience,
            calls: JoinSet::new(),
            waiting: BTreeMap::new(),
            next_number: 0,
            measure,
        }
    }

    /// Runs to the end of the source, or until `stop`, and waits for the last answers. `tell` gets one line a second.
    pub(crate) async fn run(
        mut self,
        mut source: Source,
        stop: CancellationToken,
        mut tell: impl FnMut(String),
    ) -> Result<Measure> {
        const SECOND: Duration = Duration::from_secs(1);
        let mut seconds = interval_at(self.start + SECOND, SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut give_up_at = None;
        if let Source::Closed(concurrency, _) = source {
            for _ in 0..concurrency {
                self.send(self.start.elapsed());
            }
        }
        loop {
            if give_up_at.is_some() && self.waiting.is_empty() {
                break;
            }
            let impatient_at = self.first_impatient();
            tokio::select! {
                due = next_due(&mut source), if give_up_at.is_none() => match due {
                    Some(due) => self.send(due),
                    None => give_up_at = Some(Instant::now() + ANSWER_WAIT_MAX),
                },
                Some(joined) = self.calls.join_next() => {
                    // A call that was given up is cancelled; it is counted already.
                    if let Ok((number, reply)) = joined {
                        let sent = reply.sent.map(|at| at.saturating_duration_since(self.start));
                        self.answered(number, sent, reply.result);
                        self.follow(&source, give_up_at);
                    }
                }
                Some(event) = next_event(&mut self.transport) => match event {
                    Event::Answered(result) => {
                        self.answered(result.number, None, *result);
                        self.follow(&source, give_up_at);
                    }
                    Event::Lost(stream, cause) => self.lose(stream, &cause),
                },
                () = sleep_until(impatient_at.unwrap_or(self.start)), if impatient_at.is_some() => {
                    self.give_up_impatient();
                    self.follow(&source, give_up_at);
                }
                _ = seconds.tick() => tell(self.measure.line(self.start.elapsed(), self.waiting.len())),
                () = stop.cancelled(), if give_up_at.is_none() => {
                    give_up_at = Some(Instant::now() + ANSWER_WAIT_MAX);
                }
                () = sleep_until(give_up_at.unwrap_or(self.start)), if give_up_at.is_some() => {
                    for number in self.waiting.keys().copied().collect::<Vec<_>>() {
                        self.fail(number, NO_ANSWER, "the server did not answer in time");
                    }
                }
            }
        }
        if let Source::Open(pacer) = &source {
            pacer.stop();
            self.measure.overrun(pacer.overrun());
        }
        self.measure.finish(self.start.elapsed());
        Ok(self.measure)
    }

    /// In a closed loop each end releases the next request.
    fn follow(&mut self, source: &Source, give_up_at: Option<Instant>) {
        if let Source::Closed(concurrency, until) = source
            && give_up_at.is_none()
            && self.waiting.len() < *concurrency
            && Instant::now() < *until
        {
            self.send(self.start.elapsed());
        }
    }

    fn send(&mut self, due: Duration) {
        let number = self.next_number;
        self.next_number += 1;
        let payload = self.order.next(self.transport.payloads());
        let mut waiting = Waiting {
            due,
            sent: None,
            call: None,
            stream: 0,
            payload,
        };
        if self.waiting.len() >= IN_FLIGHT_MAX {
            self.waiting.insert(number, waiting);
            self.fail(
                number,
                "in_flight",
                "too many requests wait for their answers",
            );
            return;
        }
        match &mut self.transport {
            Transport::Unary(connections) => {
                let call = connections.call(payload);
                waiting.call = Some(self.calls.spawn(async move { (number, call.await) }));
                self.waiting.insert(number, waiting);
            }
            Transport::Stream(streams, frames) => {
                let frame = pb::Frame {
                    number,
                    ..frames[payload].clone()
                };
                let taken = streams.send(frame);
                waiting.sent = taken.ok().map(|_| self.start.elapsed());
                waiting.stream = taken.unwrap_or(0);
                self.waiting.insert(number, waiting);
                match taken {
                    Ok(_) => {}
                    Err(NotTaken::Full) => {
                        let detail = "the connection does not take frames that fast";
                        self.fail(number, "backlog", detail);
                    }
                    Err(NotTaken::Ended) => {
                        self.fail(number, CONNECTION_LOST, "the stream has ended");
                    }
                }
            }
        }
    }

    fn answered(&mut self, number: u64, sent: Option<Duration>, result: pb::Result) {
        // An answer to a request that was given up; it is counted already.
        if let Some(waiting) = self.waiting.remove(&number) {
            let sent = sent.or(waiting.sent);
            self.measure.add(&Ended {
                due: waiting.due,
                sent,
                at: self.start.elapsed(),
                payload: waiting.payload,
                result,
            });
        }
    }

    fn fail(&mut self, number: u64, reason: &str, detail: &str) {
        let mut result = client_failure(reason, detail);
        if reason == GAVE_UP {
            result.code = Code::DeadlineExceeded.into();
        }
        debug_assert_eq!(result.outcome(), Outcome::Failed);
        if let Some(call) = self.waiting.get(&number).and_then(|w| w.call.as_ref()) {
            // Ends the call: the server sees a cancellation.
            call.abort();
        }
        self.answered(number, None, result);
    }

    fn lose(&mut self, stream: usize, cause: &str) {
        let of_stream =
            |(number, waiting): (&u64, &Waiting)| (waiting.stream == stream).then_some(*number);
        for number in self
            .waiting
            .iter()
            .filter_map(of_stream)
            .collect::<Vec<_>>()
        {
            self.fail(number, CONNECTION_LOST, cause);
        }
    }

    fn first_impatient(&self) -> Option<Instant> {
        let (_, first) = self.waiting.first_key_value()?;
        Some(self.start + first.due + self.patience?)
    }

    fn give_up_impatient(&mut self) {
        while self
            .first_impatient()
            .is_some_and(|at| at <= Instant::now())
        {
            let Some((&number, _)) = self.waiting.first_key_value() else {
                return;
            };
            self.fail(number, GAVE_UP, "the client's own time was over");
        }
    }
}

/// The reason of a request that the client gave up.
const GAVE_UP: &str = "gave_up";

async fn next_due(source: &mut Source) -> Option<Duration> {
    match source {
        Source::Open(pacer) => pacer.due.recv().await,
        Source::Closed(_, until) => {
            sleep_until(*until).await;
            None
        }
    }
}

async fn next_event(transport: &mut Transport) -> Option<Event> {
    match transport {
        Transport::Unary(_) => None,
        Transport::Stream(streams, _) => streams.events.recv().await,
    }
}
