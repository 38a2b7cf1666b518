//! The thread that turns queued entries into spans and sends them to an OTLP endpoint.
//!
//! It polls its queue instead of sleeping on it, so that adding an entry never wakes a thread: the hot path makes no
//! system call. While an export is under way the queue fills; entries that no longer fit are counted by their sender.
//! Exports run one at a time, each under a timeout. A failed export is not retried: spans of a server in trouble
//! would only pile up.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry_sdk::trace::SpanData;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::collector::{Collector, Rejected};
use crate::entry::Entry;
use crate::metrics::{Losses, Metrics};
use crate::processes::KnownProcesses;
use crate::spans::SpanBuilder;
use crate::wall::{ReadEpoch, Wall};

/// How often the queue is looked at: with a queue of 8192 entries this takes 160,000 a second, and an
/// idle server wakes 20 times a second.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time that a span waits for others to be exported with.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// Spans that are exported without waiting for more. At about 300 bytes each they are well below the 4 MB that gRPC
/// servers accept by default, also with the spans of one more entry.
const SPANS_PER_EXPORT: usize = 2048;

/// What the exporter is started with.
pub(crate) struct ExporterConfig {
    pub(crate) endpoint: String,
    pub(crate) service_name: String,
    pub(crate) queue_capacity: usize,
    pub(crate) export_timeout: Duration,
    pub(crate) epoch: ReadEpoch,
    pub(crate) seed: u64,
    pub(crate) processes: KnownProcesses,
}

/// The serving side's end of the queue.
pub(crate) struct Exporter {
    queue: SyncSender<Entry>,
    metrics: Arc<Metrics>,
    stop: Arc<Stop>,
    /// Signals that the thread is done. Locked by `shutdown` only.
    done: Mutex<Receiver<Infallible>>,
}

#[derive(Default)]
struct Stop {
    /// Set once: entries that are not exported by then are lost.
    deadline: Mutex<Option<Instant>>,
    wake: Notify,
}

impl Exporter {
    /// Starts the thread. Fails when the endpoint is not a URL or the thread cannot be started. Whether a collector
    /// listens there is not checked: it may come up later.
    pub(crate) fn start(config: ExporterConfig, metrics: Arc<Metrics>) -> Result<Self, String> {
        let (queue, entries) = mpsc::sync_channel(config.queue_capacity.max(1));
        let (started_tx, started) = mpsc::sync_channel(1);
        let (done_tx, done) = mpsc::sync_channel(0);
        let stop = Arc::new(Stop::default());
        let its_stop = stop.clone();
        let its_metrics = metrics.clone();
        let run = move || {
            let (answer, parts) = match prepare(&config) {
                Ok(parts) => (Ok(()), Some(parts)),
                Err(error) => (Err(error), None),
            };
            let sent = started_tx.try_send(answer);
            sent.expect("the starter waits, with room for one answer");
            let Some((runtime, collector)) = parts else {
                return;
            };
            let worker = Worker {
                entries,
                wall: Wall::new(config.epoch, Instant::now()),
                builder: SpanBuilder::new(config.seed, config.processes),
                spans: Vec::with_capacity(SPANS_PER_EXPORT),
                oldest_span_at: Instant::now(),
                collector,
                timeout: config.export_timeout,
                failing: false,
                rejecting: false,
                stop: its_stop,
                metrics: its_metrics,
            };
            runtime.block_on(worker.run());
            // Closes the channel: `shutdown` learns that the thread is done.
            drop(done_tx);
        };
        thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(run)
            .map_err(|error| error.to_string())?;
        started
            .recv()
            .map_err(|_| "the telemetry thread died".to_owned())??;
        Ok(Exporter {
            queue,
            metrics,
            stop,
            done: Mutex::new(done),
        })
    }

    /// Queues an entry, or counts it as lost.
    pub(crate) fn push(&self, entry: Entry) {
        let losses = self.metrics.losses();
        let counter = match self.queue.try_send(entry) {
            Ok(()) => return,
            Err(TrySendError::Full(Entry::Request(_))) => &losses.requests_queue_full,
            Err(TrySendError::Full(Entry::Batch(_))) => &losses.batches_queue_full,
            Err(TrySendError::Disconnected(Entry::Request(_))) => &losses.requests_stopped,
            Err(TrySendError::Disconnected(Entry::Batch(_))) => &losses.batches_stopped,
        };
        counter.inc();
    }

    /// Exports the queue, for at most `timeout`. Returns whether nothing was lost on the way.
    pub(crate) fn shutdown(&self, timeout: Duration) -> bool {
        let n_lost = self.metrics.losses().total();
        self.request_stop(Instant::now() + timeout);
        // The thread stops by itself at the deadline; the extra time is for noticing it.
        let ended = self.done.lock().recv_timeout(timeout + POLL_INTERVAL);
        matches!(ended, Err(RecvTimeoutError::Disconnected))
            && self.metrics.losses().total() == n_lost
    }

    fn request_stop(&self, deadline: Instant) {
        self.stop.deadline.lock().get_or_insert(deadline);
        self.stop.wake.notify_one();
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.request_stop(Instant::now());
    }
}

/// The thread's runtime, and the collector in it: its channel needs a runtime around it.
fn prepare(config: &ExporterConfig) -> Result<(Runtime, Collector), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let service = config.service_name.clone();
    let collector = async { Collector::new(&config.endpoint, service, config.export_timeout) };
    let collector = runtime.block_on(collector)?;
    Ok((runtime, collector))
}

/// The thread's state.
struct Worker {
    entries: Receiver<Entry>,
    wall: Wall,
    builder: SpanBuilder,
    spans: Vec<SpanData>,
    oldest_span_at: Instant,
    collector: Collector,
    timeout: Duration,
    /// The last export failed; logged once, not each time.
    failing: bool,
    /// The last export was taken in part; logged once, not each time.
    rejecting: bool,
    stop: Arc<Stop>,
    metrics: Arc<Metrics>,
}

impl Worker {
    async fn run(mut self) {
        loop {
            let drained = self.take_entries();
            let stop_at = *self.stop.deadline.lock();
            let due = self.spans.len() >= SPANS_PER_EXPORT
                || stop_at.is_some()
                || self.oldest_span_at.elapsed() >= FLUSH_INTERVAL;
            if due && !self.spans.is_empty() {
                let left = stop_at.map(|at| at.saturating_duration_since(Instant::now()));
                self.export(left.map_or(self.timeout, |left| left.min(self.timeout)))
                    .await;
            }
            match stop_at {
                Some(at) if Instant::now() >= at => return self.give_up(),
                Some(_) if drained => return,
                _ => {}
            }
            if drained {
                tokio::select! {
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                    () = self.stop.wake.notified() => {}
                }
            }
        }
    }

    /// Makes spans of queued entries, up to one export. Returns whether the queue is empty now.
    fn take_entries(&mut self) -> bool {
        while self.spans.len() < SPANS_PER_EXPORT {
            let Ok(entry) = self.entries.try_recv() else {
                return true;
            };
            if self.spans.is_empty() {
                self.oldest_span_at = Instant::now();
            }
            self.add(entry);
        }
        false
    }

    fn add(&mut self, entry: Entry) {
        // Once for all spans of the entry, so that their distances are right.
        self.builder.set_epoch(self.wall.epoch(Instant::now()));
        match entry {
            Entry::Request(entry) => self.builder.request(&entry, &mut self.spans),
            Entry::Batch(entry) => self.spans.push(self.builder.batch(&entry)),
        }
    }

    async fn export(&mut self, timeout: Duration) {
        let spans = std::mem::replace(&mut self.spans, Vec::with_capacity(SPANS_PER_EXPORT));
        let n_spans = spans.len() as u64;
        let result = match tokio::time::timeout(timeout, self.collector.send(spans)).await {
            Ok(result) => result,
            Err(_) => Err(format!("no answer in {} ms", timeout.as_millis())),
        };
        match result {
            Ok(rejected) => {
                let n_rejected = rejected.spans.min(n_spans);
                self.losses().spans_exported.inc_by(n_spans - n_rejected);
                self.losses().spans_rejected.inc_by(n_rejected);
                self.tell_rejected(&rejected);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("traces are exported again");
                }
            }
            Err(error) => {
                self.losses().spans_export_failed.inc_by(n_spans);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(error, "traces cannot be exported; what is lost is counted");
                }
            }
        }
    }

    fn tell_rejected(&mut self, rejected: &Rejected) {
        let is_rejecting = *rejected != Rejected::default();
        if is_rejecting && !self.rejecting {
            let Rejected { spans, said } = rejected;
            tracing::warn!(
                "the collector of traces rejected {spans} spans, which are counted: {said}"
            );
        }
        self.rejecting = is_rejecting;
    }

    /// Counts the remaining entries as lost.
    fn give_up(&mut self) {
        self.losses().spans_stopped.inc_by(self.spans.len() as u64);
        while let Ok(entry) = self.entries.try_recv() {
            match entry {
                Entry::Request(_) => self.losses().requests_stopped.inc(),
                Entry::Batch(_) => self.losses().batches_stopped.inc(),
            };
        }
    }

    fn losses(&self) -> &Losses {
        self.metrics.losses()
    }
}
