//! A client that sends numbered requests at a steady rate and writes down every answer to each of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_proto::pb::stream_request::Message as Ask;
use spillgate_proto::pb::stream_response::Message as Said;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::pipelines::MODULES;

/// A lost gateway is dialled again after this long.
const PAUSE: Duration = Duration::from_millis(100);
/// Frames that wait for a stream to take them.
const WAITING: usize = 1024;
/// No answer takes longer than this, on a busy machine.
const ANSWERED: Duration = Duration::from_secs(15);

/// One request and its answers.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) at: Instant,
    answers: Vec<(Instant, pb::Outcome)>,
    /// Why the first answer is not a good one.
    reason: String,
    /// Its stream broke before there was an answer.
    is_lost: bool,
    /// Its result is not of this request, or has a module twice or not at all.
    is_wrong: bool,
}

/// How requests ended, as the client sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) requests: usize,
    pub(super) completed: usize,
    pub(super) late: usize,
    pub(super) dropped: usize,
    pub(super) failed: usize,
    pub(super) refused: usize,
    /// Lost with the connection to their gateway.
    pub(super) lost: usize,
    /// Without any answer on a connection that stood.
    pub(super) missing: usize,
    /// With more than one answer.
    pub(super) twice: usize,
    /// With the result of another request, or with a module that is not exactly once in it.
    pub(super) wrong: usize,
}

impl Counts {
    /// Those that have no good answer.
    pub(super) fn bad(&self) -> usize {
        self.requests - self.completed
    }

    /// Completed ones in percent.
    pub(super) fn goodput(&self) -> f64 {
        100.0 * self.completed as f64 / self.requests.max(1) as f64
    }

    pub(super) fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.completed += other.completed;
        self.late += other.late;
        self.dropped += other.dropped;
        self.failed += other.failed;
        self.refused += other.refused;
        self.lost += other.lost;
        self.missing += other.missing;
        self.twice += other.twice;
        self.wrong += other.wrong;
    }
}

/// The requests of one client, by number, and what came of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    asked: Vec<Asked>,
    /// The longest time that a module took for a request.
    longest_run: Duration,
}

impl Sheet {
    fn answered(&mut self, result: &pb::Result, client: usize) {
        let Some(asked) = self.asked.get_mut(result.number as usize) else {
            return;
        };
        asked.answers.push((Instant::now(), result.outcome()));
        if asked.reason.is_empty() {
            asked.reason.clone_from(&result.reason);
            if result.outcome() == pb::Outcome::Failed {
                asked.reason += &format!(": {}", result.detail);
            }
        }
        if result.outcome() == pb::Outcome::Completed {
            let mut ran: Vec<&str> = result.timings.iter().map(|t| t.module.as_str()).collect();
            ran.sort_unstable();
            let payload = result.outputs.get("payload").and_then(|v| v.value.as_ref());
            let sent = payload_of(client, result.number);
            let is_mine = matches!(payload, Some(pb::value::Value::Data(d)) if **d == sent);
            asked.is_wrong |= !is_mine || ran != MODULES;
            for timing in &result.timings {
                let took = Duration::from_secs_f64(timing.execution_ms.max(0.0) / 1e3);
                self.longest_run = self.longest_run.max(took);
            }
        }
    }

    /// Requests that were sent in this time.
    pub(super) fn between(&self, from: Instant, to: Instant) -> Counts {
        let mut counts = Counts::default();
        for asked in self.asked.iter().filter(|a| a.at >= from && a.at < to) {
            counts.requests += 1;
            match asked.answers.first().map(|(_, outcome)| outcome) {
                Some(pb::Outcome::Completed) => counts.completed += 1,
                Some(pb::Outcome::Late) => counts.late += 1,
                Some(pb::Outcome::Dropped) => counts.dropped += 1,
                Some(pb::Outcome::Failed) => counts.failed += 1,
                Some(_) => counts.refused += 1,
                None if asked.is_lost => counts.lost += 1,
                None => counts.missing += 1,
            }
            counts.twice += usize::from(asked.answers.len() > 1);
            counts.wrong += usize::from(asked.is_wrong);
        }
        counts
    }

    /// The longest time from a request to its answer.
    pub(super) fn longest_wait(&self) -> Duration {
        let waits = self.asked.iter();
        let waits = waits.filter_map(|a| Some(a.answers.first()?.0 - a.at));
        waits.max().unwrap_or_default()
    }

    pub(super) fn longest_run(&self) -> Duration {
        self.longest_run
    }

    pub(super) fn all(&self) -> Counts {
        let end = Instant::now();
        self.asked
            .first()
            .map_or(Counts::default(), |a| self.between(a.at, end))
    }

    /// Requests that were not served: when they were sent, in seconds since the first one, with the reasons that they got.
    pub(super) fn not_served(&self) -> Vec<(u64, &str)> {
        let Some(first) = self.asked.first() else {
            return Vec::new();
        };
        let with_reason = self.asked.iter().filter(|a| !a.reason.is_empty());
        with_reason
            .map(|a| ((a.at - first.at).as_secs(), a.reason.as_str()))
            .collect()
    }

    /// When requests were completed, of several clients.
    pub(super) fn completions(sheets: &[Sheet]) -> Vec<Instant> {
        let asked = sheets.iter().flat_map(|s| &s.asked);
        let good = asked.filter_map(|a| {
            let (at, outcome) = a.answers.first()?;
            (*outcome == pb::Outcome::Completed).then_some(*at)
        });
        let mut times: Vec<Instant> = good.collect();
        times.sort_unstable();
        times
    }
}

/// What a request brings: nobody else's.
fn payload_of(client: usize, number: u64) -> Vec<u8> {
    format!("client {client}, request {number}").into_bytes()
}

/// Clients at work.
pub(super) struct Load {
    sheets: Vec<Arc<Mutex<Sheet>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    runtime: Handle,
}

impl Load {
    /// Sends so many requests a second to each gateway. The clients have the positions of their gateways.
    pub(super) fn start(runtime: &Handle, gateways: &[SocketAddr], rate: f64) -> Self {
        let mut load = Load {
            sheets: Vec::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            runtime: runtime.clone(),
        };
        load.join(gateways, rate);
        load
    }

    /// Sends so many more to each of these gateways from now on, by further clients.
    pub(super) fn join(&mut self, gateways: &[SocketAddr], rate: f64) {
        for address in gateways {
            let sheet: Arc<Mutex<Sheet>> = Arc::default();
            let client = Client {
                number: self.sheets.len(),
                address: *address,
                sheet: sheet.clone(),
                stop: self.stop.clone(),
            };
            self.sheets.push(sheet);
            self.tasks.spawn_on(client.run(rate), &self.runtime);
        }
    }

    /// Sends no more, and waits for all answers. A request that has none by then is missing.
    pub(super) fn finish(self) -> Vec<Sheet> {
        self.stop.cancel();
        self.tasks.close();
        self.runtime.block_on(self.tasks.wait());
        let sheets = self.sheets.iter();
        sheets.map(|s| s.lock().unwrap().clone()).collect()
    }
}

struct Client {
    number: usize,
    address: SocketAddr,
    sheet: Arc<Mutex<Sheet>>,
    stop: CancellationToken,
}

impl Client {
    /// Streams, again and again where the gateway goes away.
    async fn run(self, rate: f64) {
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
        // What a busy machine delayed is sent all the same.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while !self.stop.is_cancelled() {
            let first = self.sheet.lock().unwrap().asked.len();
            self.stream(&mut ticks).await;
            for asked in &mut self.sheet.lock().unwrap().asked[first..] {
                asked.is_lost = asked.answers.is_empty() && !self.stop.is_cancelled();
            }
            tokio::time::sleep(PAUSE).await;
            ticks.reset();
        }
    }

    /// One stream, until it breaks or all is answered.
    async fn stream(&self, ticks: &mut tokio::time::Interval) {
        let Ok(mut client) = SpillgateClient::connect(format!("http://{}", self.address)).await
        else {
            return;
        };
        let (frames, sent) = mpsc::channel(WAITING);
        let open = Ask::Open(pb::StreamOpen::default());
        let _ = frames.try_send(request(open));
        let Ok(answers) = client.stream(ReceiverStream::new(sent)).await else {
            return;
        };
        let mut answers = answers.into_inner();
        let mut frames = Some(frames);
        let mut give_up = None;
        loop {
            let over = async {
                match give_up {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = answers.next() => match answer {
                    Some(Ok(pb::StreamResponse { message })) => {
                        if let Some(Said::Result(result)) = message {
                            self.sheet.lock().unwrap().answered(&result, self.number);
                        }
                    }
                    _ => return,
                },
                () = self.stop.cancelled(), if frames.is_some() => {
                    frames = None;
                    give_up = Some(tokio::time::Instant::now() + ANSWERED);
                }
                () = over => return,
                _ = ticks.tick(), if frames.is_some() => {
                    let number = self.next_number();
                    let frame = pb::Frame {
                        number,
                        data: payload_of(self.number, number).into(),
                        ..Default::default()
                    };
                    if let Some(frames) = &frames {
                        let _ = frames.try_send(request(Ask::Frame(frame)));
                    }
                }
            }
        }
    }

    /// Notes that a request is sent now.
    fn next_number(&self) -> u64 {
        let sheet = &mut self.sheet.lock().unwrap().asked;
        sheet.push(Asked {
            at: Instant::now(),
            answers: Vec::new(),
            reason: String::new(),
            is_lost: false,
            is_wrong: false,
        });
        sheet.len() as u64 - 1
    }
}

fn request(message: Ask) -> pb::StreamRequest {
    pb::StreamRequest {
        message: Some(message),
    }
}
