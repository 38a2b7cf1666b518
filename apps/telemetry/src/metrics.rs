//! Prometheus metrics: their names, and one [`Metrics`] that holds them all.
//!
//! The hot path touches only atomics: the handles of a pipeline are looked up once, when it is
//! registered, and kept in arrays by `ModuleId` (`PipelineMetrics`). Nothing here has a request id as a label, and few
//! metrics a client's name: of tokens, and of a bounded number of other clients.
//!
//! Not here: percentiles and rates. Prometheus derives them from histograms and counters.

mod buckets;
mod certificates;
mod devices;
mod edge;
mod family;
mod histogram;
mod labels;
mod names;
mod peers;
mod pipeline;
mod planners;
mod read;
mod revisions;
mod values;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use spillgate_controller::record::{BatchRecord, RequestRecord};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, ModuleId};
use spillgate_pipeline::invariants::Invariant;
use spillgate_pipeline::request::DropReason;

use certificates::CertificateCollector;
pub use certificates::{CertificateReading, ReadCertificates};
use devices::DeviceCollector;
pub use devices::{DeviceReading, ErrorReading, ReadDevices, RefusedReading, WeightsReading};
use edge::EdgeCollector;
pub use edge::ReadEdge;
use family::Family;
use histogram::{Histogram, Seconds};
use labels::{
    CauseLabels, DeviceLabels, ErrorLabels, InvariantLabels, LeftOutLabels, LostLabels,
    ModuleLabels, OutcomeLabels, PipelineLabels, QueueLabels, RefusedLabels, RequestLabels,
};
pub use names::*;
use peers::PeerCollector;
pub use peers::{PeerReading, ReadPeers};
use pipeline::PipelineMetrics;
use planners::PlannerCollector;
pub use planners::{
    ClientReading, PlannerReading, PlannerReadings, ReadPlanners, StreamsReading, WorkersReading,
};
use revisions::RevisionCollector;
pub use revisions::{ReadRevisions, RevisionReading};
use values::ValuesCollector;
pub use values::{ReadValues, ValuesReading};

/// Content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Most pipelines whose handles are cached. A reload adds one under the same name; the oldest is removed first, and
/// its series stay.
pub(crate) const PIPELINES_MAX: usize = 64;

/// Reads the queue lengths: pipeline, module, worker and waiting requests of each worker.
pub type QueueLengths = Box<dyn Fn() -> Vec<(String, String, u32, usize)> + Send + Sync>;

/// Counts of what telemetry sent and lost.
#[derive(Clone, Debug)]
pub struct Losses {
    /// Requests that found the queue full.
    pub requests_queue_full: Counter,
    /// Batches that found the queue full.
    pub batches_queue_full: Counter,
    /// Requests still queued when the time to shut down was over.
    pub requests_stopped: Counter,
    /// Batches still queued when the time to shut down was over.
    pub batches_stopped: Counter,
    /// Spans whose export failed or timed out.
    pub spans_export_failed: Counter,
    /// Spans that the collector did not take.
    pub spans_rejected: Counter,
    /// Spans not yet exported when the time to shut down was over.
    pub spans_stopped: Counter,
    /// Spans that were exported.
    pub spans_exported: Counter,
}

impl Losses {
    /// Everything that was lost, spans and records alike.
    pub(crate) fn total(&self) -> u64 {
        let records = self.requests_queue_full.get()
            + self.batches_queue_full.get()
            + self.requests_stopped.get()
            + self.batches_stopped.get();
        let spans = &[
            &self.spans_export_failed,
            &self.spans_rejected,
            &self.spans_stopped,
        ];
        records + spans.iter().map(|counter| counter.get()).sum::<u64>()
    }
}

/// The families from which a pipeline takes its handles.
#[derive(Clone, Default)]
struct Families {
    requests: Family<RequestLabels, Counter>,
    good: Family<PipelineLabels, Counter>,
    background: Family<OutcomeLabels, Counter>,
    damaged: Family<PipelineLabels, Counter>,
    left_out: Family<LeftOutLabels, Counter>,
    refused: Family<RefusedLabels, Counter>,
    latency: Family<OutcomeLabels, Histogram>,
    slo: Family<PipelineLabels, Gauge<f64, std::sync::atomic::AtomicU64>>,
    queueing: Family<ModuleLabels, Histogram>,
    batch_wait: Family<ModuleLabels, Histogram>,
    execution: Family<ModuleLabels, Histogram>,
    batch_size: Family<ModuleLabels, Histogram>,
    alone: Family<ModuleLabels, Histogram>,
    prediction_error: Family<ErrorLabels, Histogram>,
    device_request_time: Family<OutcomeLabels, Seconds>,
    breaches: Family<InvariantLabels, Counter>,
}

/// All metrics of a process.
pub struct Metrics {
    registry: Registry,
    families: Families,
    device_busy: Family<DeviceLabels, Seconds>,
    /// By `DeviceId`.
    devices: RwLock<Vec<Option<Seconds>>>,
    pipelines: RwLock<Vec<(Arc<Pipeline>, PipelineMetrics)>>,
    queue_lengths: Arc<QueueLengthCollector>,
    planners: Arc<PlannerCollector>,
    certificates: Arc<CertificateCollector>,
    edge: Arc<EdgeCollector>,
    peers: Arc<PeerCollector>,
    placed: Arc<DeviceCollector>,
    values: Arc<ValuesCollector>,
    revisions: Arc<RevisionCollector>,
    losses: Losses,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics without pipelines or devices.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let f = Families::default();
        let device_busy: Family<DeviceLabels, Seconds> = Family::default();
        let lost_records: Family<LostLabels, Counter> = Family::default();
        let lost_spans: Family<CauseLabels, Counter> = Family::default();
        let exported = Counter::default();
        let r = &mut registry;
        add(r, REQUESTS, "Requests that ended, by outcome", &f.requests);
        add(
            r,
            GOOD_REQUESTS,
            "Requests completed within their deadline",
            &f.good,
        );
        let help = "Frames that were served though their picture is damaged";
        add(r, DAMAGED_FRAMES, help, &f.damaged);
        let help = "Objects that modules did not look at, by reason";
        add(r, LEFT_OUT_OBJECTS, help, &f.left_out);
        let help = "Requests of clients without an SLO that ended, by outcome";
        add(r, BACKGROUND_REQUESTS, help, &f.background);
        add(
            r,
            REFUSED_REQUESTS,
            "Requests that were never accepted",
            &f.refused,
        );
        add(
            r,
            LATENCY,
            "From admission to the end of a request",
            &f.latency,
        );
        add(r, SLO, "Latency objective of the pipeline", &f.slo);
        add(
            r,
            QUEUEING,
            "Arrival at the worker until the forming batch",
            &f.queueing,
        );
        add(
            r,
            BATCH_WAIT,
            "Forming batch until execution",
            &f.batch_wait,
        );
        add(
            r,
            EXECUTION,
            "Execution of the batch, for each request",
            &f.execution,
        );
        add(r, BATCH_SIZE, "Requests in a batch", &f.batch_size);
        let help = "Execution of finished requests run again alone on an idle device";
        add(r, ALONE, help, &f.alone);
        let help = "Distance of a batch's duration from the expected one";
        add(r, PREDICTION_ERROR, help, &f.prediction_error);
        add(
            r,
            DEVICE_BUSY,
            "Time a device spent on batches",
            &device_busy,
        );
        let help = "Device time by the outcome of the requests it was spent on";
        add(r, DEVICE_REQUEST_TIME, help, &f.device_request_time);
        let help = "Times that what must hold did not: bugs of the server";
        add(r, BREACHES, help, &f.breaches);
        add(r, EXPORTED_SPANS, "Spans exported", &exported);
        add(r, LOST_SPANS, "Spans built but not exported", &lost_spans);
        add(
            r,
            LOST_RECORDS,
            "Sampled records without spans",
            &lost_records,
        );
        let queue_lengths = Arc::new(QueueLengthCollector::default());
        registry.register_collector(Box::new(queue_lengths.clone()));
        let planners = Arc::new(PlannerCollector::default());
        registry.register_collector(Box::new(planners.clone()));
        let certificates = Arc::new(CertificateCollector::default());
        registry.register_collector(Box::new(certificates.clone()));
        let edge = Arc::new(EdgeCollector::default());
        registry.register_collector(Box::new(edge.clone()));
        let peers = Arc::new(PeerCollector::default());
        let placed = Arc::new(DeviceCollector::default());
        registry.register_collector(Box::new(peers.clone()));
        registry.register_collector(Box::new(placed.clone()));
        let values = Arc::new(ValuesCollector::default());
        registry.register_collector(Box::new(values.clone()));
        let revisions = Arc::new(RevisionCollector::default());
        registry.register_collector(Box::new(revisions.clone()));

        let record = |kind, cause| lost_records.handle(LostLabels { kind, cause });
        let span = |cause| lost_spans.handle(CauseLabels { cause });
        let losses = Losses {
            requests_queue_full: record("request", "queue_full"),
            batches_queue_full: record("batch", "queue_full"),
            requests_stopped: record("request", "stopped"),
            batches_stopped: record("batch", "stopped"),
            spans_export_failed: span("export_failed"),
            spans_rejected: span("rejected"),
            spans_stopped: span("stopped"),
            spans_exported: exported,
        };
        Metrics {
            registry,
            families: f,
            device_busy,
            devices: RwLock::default(),
            pipelines: RwLock::default(),
            queue_lengths,
            planners,
            certificates,
            edge,
            peers,
            placed,
            values,
            revisions,
            losses,
        }
    }

    /// Makes the handles of a pipeline before its first request, and shows its objective. A pipeline of the same name continues the
    /// same series.
    pub fn register_pipeline(&self, pipeline: &Arc<Pipeline>) {
        let slo = self.families.slo.handle(PipelineLabels {
            pipeline: pipeline.name.clone(),
        });
        slo.set(pipeline.slo.as_secs_f64());
        let mut pipelines = self.pipelines.write();
        if pipelines
            .iter()
            .any(|(known, _)| Arc::ptr_eq(known, pipeline))
        {
            return;
        }
        if pipelines.len() == PIPELINES_MAX {
            pipelines.remove(0);
        }
        pipelines.push((
            pipeline.clone(),
            PipelineMetrics::new(pipeline, &self.families),
        ));
    }

    /// Gives a device its name (`cuda:0`); a device without a name is labelled by its number.
    pub fn register_device(&self, device: DeviceId, name: &str) {
        let busy = self.device_busy.handle(DeviceLabels {
            device: name.to_owned(),
        });
        let mut devices = self.devices.write();
        if devices.len() <= device.idx() {
            devices.resize(device.idx() + 1, None);
        }
        devices[device.idx()] = Some(busy);
    }

    /// Adds a source of queue lengths, read at each scrape.
    pub fn register_queue_lengths(&self, read: QueueLengths) {
        self.queue_lengths.sources.write().push(read);
    }

    /// Adds a source of planner readings, read at each scrape.
    pub fn register_planners(&self, read: ReadPlanners) {
        self.planners.sources.write().push(read);
    }

    /// Sets the reader of the files with certificates, called at each scrape.
    pub fn register_certificates(&self, read: ReadCertificates) {
        *self.certificates.source.write() = Some(read);
    }

    /// Sets the reader of the edge, called at each scrape.
    pub fn register_edge(&self, read: ReadEdge) {
        *self.edge.source.write() = Some(read);
    }

    /// Sets the reader of the other processes, called at each scrape.
    pub fn register_peers(&self, read: ReadPeers) {
        *self.peers.source.write() = Some(read);
    }

    /// Sets the reader of this process's devices, called at each scrape.
    pub fn register_devices(&self, read: ReadDevices) {
        *self.placed.source.write() = Some(read);
    }

    /// Sets the reader of values that processes exchange, called at each scrape.
    pub fn register_values(&self, read: ReadValues) {
        *self.values.source.write() = Some(read);
    }

    /// Sets the reader of the live revisions, called at each scrape.
    pub fn register_revisions(&self, read: ReadRevisions) {
        *self.revisions.source.write() = Some(read);
    }

    /// A request ended.
    pub fn request_ended(&self, record: &RequestRecord) {
        self.with_pipeline(&record.pipeline, |metrics| metrics.request_ended(record));
    }

    /// A request was refused.
    pub fn request_refused(&self, pipeline: &Arc<Pipeline>, reason: &'static str) {
        self.with_pipeline(pipeline, |metrics| metrics.refused.count(reason));
    }

    /// A batch ended.
    pub fn batch_ended(&self, pipeline: &Arc<Pipeline>, record: &BatchRecord) {
        self.with_pipeline(pipeline, |metrics| metrics.batch_ended(record));
        let measured = record.ended_at.since(record.started_at);
        if let Some(Some(busy)) = self.devices.read().get(record.device.idx()) {
            busy.add(measured);
            return;
        }
        self.register_device(record.device, &record.device.to_string());
        if let Some(Some(busy)) = self.devices.read().get(record.device.idx()) {
            busy.add(measured);
        }
    }

    /// What must hold did not.
    pub fn breached(&self, pipeline: &Arc<Pipeline>, invariant: Invariant) {
        let labels = InvariantLabels {
            pipeline: pipeline.name.clone(),
            invariant: invariant.id(),
        };
        self.families.breaches.handle(labels).inc();
    }

    /// A finished request ran again at a module, alone.
    pub fn reran(&self, pipeline: &Arc<Pipeline>, module: ModuleId, took: Duration) {
        self.with_pipeline(pipeline, |metrics| metrics.reran(module, took));
    }

    /// Counts of what telemetry sent and lost.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The text of a scrape: OpenMetrics, see [`CONTENT_TYPE`].
    pub fn render(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a string does not fail");
        text
    }

    /// Calls `update` with the handles of a pipeline; an unregistered pipeline is registered now.
    fn with_pipeline(&self, pipeline: &Arc<Pipeline>, update: impl Fn(&PipelineMetrics)) {
        let find = || {
            let pipelines = self.pipelines.read();
            let found = pipelines
                .iter()
                .rev()
                .find(|(known, _)| Arc::ptr_eq(known, pipeline));
            found.map(|(_, metrics)| update(metrics)).is_some()
        };
        if !find() {
            self.register_pipeline(pipeline);
            find();
        }
    }
}

#[derive(Default)]
struct QueueLengthCollector {
    sources: RwLock<Vec<QueueLengths>>,
}

impl fmt::Debug for QueueLengthCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "QueueLengthCollector({} sources)",
            self.sources.read().len()
        )
    }
}

impl Collector for QueueLengthCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Requests that wait at a worker.";
        let mut metric = encoder.encode_descriptor(QUEUE_LENGTH, help, None, MetricType::Gauge)?;
        for read in self.sources.read().iter() {
            for (pipeline, module, worker, length) in read() {
                let labels = QueueLabels {
                    pipeline,
                    module,
                    worker,
                };
                metric
                    .encode_family(&labels)?
                    .encode_gauge(&(length as i64))?;
            }
        }
        Ok(())
    }
}

/// Registers a metric under its name in queries; the encoder appends `_total` to counters itself.
fn add(registry: &mut Registry, name: &str, help: &str, metric: &(impl Metric + Clone)) {
    registry.register(
        name.strip_suffix("_total").unwrap_or(name),
        help,
        metric.clone(),
    );
}

/// Position of a reason in [`DropReason::ALL`].
fn reason_idx(reason: DropReason) -> usize {
    DropReason::ALL
        .iter()
        .position(|r| *r == reason)
        .expect("ALL holds every reason")
}

#[cfg(test)]
mod tests;
