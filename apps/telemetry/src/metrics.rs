//! Prometheus metrics: their names, and one [`Metrics`] that holds them all.
//!
//! The hot path touches only atomics: the handles of a pipeline are looked up once, when it is
//! registered, and kept in arrays by `ModuleId` (`PipelineMetrics`). Nothing here has a request id as a label, and few
//! metrics a client's name: of tokens, and of a bounded number of other clients.
//!
//! Not here: percentiles and rates. Prometheus derives them from histograms and counters.

mod buckets;
mod devices;
mod edge;
mod family;
mod histogram;
mod labels;
mod peers;
mod pipeline;
mod planners;
mod read;
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

use devices::DeviceCollector;
pub use devices::{DeviceReading, ErrorReading, ReadDevices, WeightsReading};
use edge::EdgeCollector;
pub use edge::ReadEdge;
use family::Family;
use histogram::{Histogram, Seconds};
use labels::{
    CauseLabels, DeviceLabels, ErrorLabels, InvariantLabels, LostLabels, ModuleLabels,
    OutcomeLabels, PipelineLabels, QueueLabels, RefusedLabels, RequestLabels,
};
use peers::PeerCollector;
pub use peers::{PeerReading, ReadPeers};
use pipeline::PipelineMetrics;
use planners::PlannerCollector;
pub use planners::{ClientReading, PlannerReading, PlannerReadings, ReadPlanners};
use values::ValuesCollector;
pub use values::{ReadValues, ValuesReading};

/// Requests that ended: by pipeline, outcome, and for drops and failures module and reason.
pub const REQUESTS: &str = "spillgate_gateway_requests_total";
/// Requests completed within their deadline; their rate is the goodput.
pub const GOOD_REQUESTS: &str = "spillgate_gateway_good_requests_total";
/// Requests that were refused, by reason.
pub const REFUSED_REQUESTS: &str = "spillgate_gateway_refused_requests_total";
/// From admission to the end, by outcome.
pub const LATENCY: &str = "spillgate_gateway_latency_seconds";
/// The latency objective of a pipeline.
pub const SLO: &str = "spillgate_pipeline_slo_seconds";
/// Q of PARD: arrival at a module's worker until the forming batch.
pub const QUEUEING: &str = "spillgate_module_queueing_seconds";
/// W of PARD: forming batch until execution.
pub const BATCH_WAIT: &str = "spillgate_module_batch_wait_seconds";
/// D of PARD: execution of the batch, once for each of its requests.
pub const EXECUTION: &str = "spillgate_module_execution_seconds";
/// Requests in a batch.
pub const BATCH_SIZE: &str = "spillgate_module_batch_size_requests";
/// Times of finished requests that ran again, alone, on an idle device; batch schedulers learn from them.
pub const ALONE: &str = "spillgate_module_alone_seconds";
/// Difference between a batch's measured and expected duration, by direction.
pub const PREDICTION_ERROR: &str = "spillgate_module_prediction_error_seconds";
/// Published by a module's State Planner: requests offered to the module, per second.
pub const PLANNER_OFFERED: &str = "spillgate_planner_offered_requests_per_second";
/// As published: requests executed, per second.
pub const PLANNER_EXECUTED: &str = "spillgate_planner_executed_requests_per_second";
/// As published: capacity of its workers in requests a second.
pub const PLANNER_CAPACITY: &str = "spillgate_planner_capacity_requests_per_second";
/// As published: workers that serve.
pub const PLANNER_WORKERS: &str = "spillgate_planner_workers";
/// As published: measured over profiled execution time of its batches.
pub const PLANNER_PACE: &str = "spillgate_planner_pace_ratio";
/// As published: q of PARD, the mean queueing delay.
pub const PLANNER_QUEUEING: &str = "spillgate_planner_queueing_seconds";
/// L_sub of PARD: the time that a request is expected to need after the module.
pub const PLANNER_DOWNSTREAM: &str = "spillgate_planner_downstream_seconds";
/// 1 when the module's brokers serve the highest remaining budget first.
pub const PLANNER_ORDER: &str = "spillgate_planner_highest_budget_first";
/// Rate of the entry gate in requests a second.
pub const GATE: &str = "spillgate_gateway_gate_requests_per_second";
/// Requests that a client sent; of the clients of most requests, and of each token.
pub const CLIENT_REQUESTS: &str = "spillgate_client_requests_total";
/// Of these, completed in time.
pub const CLIENT_GOOD: &str = "spillgate_client_good_requests_total";
/// Of these, refused.
pub const CLIENT_REFUSED: &str = "spillgate_client_refused_requests_total";
/// Open connections, read at each scrape.
pub const CONNECTIONS: &str = "spillgate_edge_connections";
/// Most connections (`--connections`).
pub const CONNECTIONS_MAX: &str = "spillgate_edge_connections_limit";
/// Connections that were turned away: there was no place or memory for them.
pub const CONNECTIONS_TURNED_AWAY: &str = "spillgate_edge_connections_turned_away_total";
/// Connections closed: idle, silent, with unread answers, or in favour of a new one.
pub const CONNECTIONS_CLOSED: &str = "spillgate_edge_connections_closed_total";
/// Bytes held for clients.
pub const MEMORY_HELD: &str = "spillgate_edge_memory_held_bytes";
/// Bytes that may be held for clients (`--memory`).
pub const MEMORY_BUDGET: &str = "spillgate_edge_memory_limit_bytes";
/// 1 while there is a session with a process of the topology.
pub const PEER_MET: &str = "spillgate_peer_met";
/// 1 while it is silent.
pub const PEER_SUSPECTED: &str = "spillgate_peer_suspected";
/// The difference of its clock and this one is known within this.
pub const PEER_CLOCK_ERROR: &str = "spillgate_peer_clock_error_seconds";
/// Bytes that wait to be written to it.
pub const PEER_WAITING: &str = "spillgate_peer_waiting_bytes";
/// Bytes that were written to it since it was met.
pub const PEER_SENT: &str = "spillgate_peer_sent_bytes_total";
/// Bytes that came from it since it was met.
pub const PEER_RECEIVED: &str = "spillgate_peer_received_bytes_total";
/// Bytes of values that are kept for gateways of other processes.
pub const VALUES_KEPT: &str = "spillgate_values_kept_bytes";
/// Requests of other processes for which values are kept.
pub const VALUES_KEPT_REQUESTS: &str = "spillgate_values_kept_requests";
/// Requests of this gateway for which other processes keep values.
pub const VALUES_KNOWN_REQUESTS: &str = "spillgate_values_known_requests";
/// Bytes on the account.
pub const VALUES_HELD: &str = "spillgate_values_held_bytes";
/// Bytes that may be on it (`--memory`).
pub const VALUES_LIMIT: &str = "spillgate_values_limit_bytes";
/// Values that were not sent, since the process had them.
pub const VALUES_REFERENCES: &str = "spillgate_values_references_total";
/// Messages given back to gateways, since a value was kept no more.
pub const VALUES_GIVEN_BACK: &str = "spillgate_values_given_back_total";
/// Requests of gateways for which there was no room.
pub const VALUES_REFUSED: &str = "spillgate_values_refused_requests_total";
/// Pages of a device that hold weights, or are to, read at each scrape.
pub const DEVICE_WEIGHT_PAGES: &str = "spillgate_device_weight_pages";
/// Pages that a device has for weights (`--device NAME,memory=SIZE`).
pub const DEVICE_WEIGHT_PAGES_LIMIT: &str = "spillgate_device_weight_pages_limit";
/// Requests that ran after they had waited for the weights of their model.
pub const DEVICE_COLD: &str = "spillgate_device_cold_requests_total";
/// Models whose weights were read.
pub const DEVICE_LOADS: &str = "spillgate_device_loads_total";
/// Models whose weights could not be read.
pub const DEVICE_FAILED_LOADS: &str = "spillgate_device_failed_loads_total";
/// Models that gave way to others.
pub const DEVICE_UNLOADS: &str = "spillgate_device_unloads_total";
/// Actions that a device refused.
pub const DEVICE_REFUSED: &str = "spillgate_device_refused_actions_total";
/// Signed errors of what was predicted of a device's actions, as quantiles since it began.
pub const DEVICE_PREDICTION_ERROR: &str = "spillgate_device_prediction_error_seconds";
/// Requests that wait at a worker, read at each scrape.
pub const QUEUE_LENGTH: &str = "spillgate_worker_queue_length_requests";
/// Time a device spent on batches.
pub const DEVICE_BUSY: &str = "spillgate_device_busy_seconds_total";
/// Device time by the outcome of the requests, decoding left out; a batch's time is shared equally by its members.
/// The part of outcomes other than `completed` is the invalid rate.
pub const DEVICE_REQUEST_TIME: &str = "spillgate_device_request_time_seconds_total";
/// Spans that were exported.
pub const EXPORTED_SPANS: &str = "spillgate_telemetry_exported_spans_total";
/// Times that an invariant did not hold.
pub const BREACHES: &str = "spillgate_invariant_breaches_total";
/// Spans that were built but not exported, by cause.
pub const LOST_SPANS: &str = "spillgate_telemetry_lost_spans_total";
/// Sampled requests and batches of which no span was built, by kind and cause.
pub const LOST_RECORDS: &str = "spillgate_telemetry_lost_records_total";

/// All names, as in queries.
pub const ALL: [&str; 58] = [
    REQUESTS,
    GOOD_REQUESTS,
    REFUSED_REQUESTS,
    LATENCY,
    SLO,
    QUEUEING,
    BATCH_WAIT,
    EXECUTION,
    BATCH_SIZE,
    ALONE,
    PREDICTION_ERROR,
    PLANNER_OFFERED,
    PLANNER_EXECUTED,
    PLANNER_CAPACITY,
    PLANNER_QUEUEING,
    PLANNER_DOWNSTREAM,
    PLANNER_ORDER,
    PLANNER_WORKERS,
    PLANNER_PACE,
    GATE,
    CLIENT_REQUESTS,
    CLIENT_GOOD,
    CLIENT_REFUSED,
    CONNECTIONS,
    CONNECTIONS_MAX,
    CONNECTIONS_TURNED_AWAY,
    CONNECTIONS_CLOSED,
    MEMORY_HELD,
    MEMORY_BUDGET,
    PEER_MET,
    PEER_SUSPECTED,
    PEER_CLOCK_ERROR,
    PEER_WAITING,
    PEER_SENT,
    PEER_RECEIVED,
    VALUES_KEPT,
    VALUES_KEPT_REQUESTS,
    VALUES_KNOWN_REQUESTS,
    VALUES_HELD,
    VALUES_LIMIT,
    VALUES_REFERENCES,
    VALUES_GIVEN_BACK,
    VALUES_REFUSED,
    DEVICE_WEIGHT_PAGES,
    DEVICE_WEIGHT_PAGES_LIMIT,
    DEVICE_COLD,
    DEVICE_LOADS,
    DEVICE_FAILED_LOADS,
    DEVICE_UNLOADS,
    DEVICE_REFUSED,
    DEVICE_PREDICTION_ERROR,
    QUEUE_LENGTH,
    DEVICE_BUSY,
    DEVICE_REQUEST_TIME,
    EXPORTED_SPANS,
    BREACHES,
    LOST_SPANS,
    LOST_RECORDS,
];

/// Content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Most pipelines whose handles are cached. A reload adds one under the same name; the oldest is removed first, and
/// its series stay.
const PIPELINES_MAX: usize = 64;

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
        records + self.spans_export_failed.get() + self.spans_stopped.get()
    }
}

/// The families from which a pipeline takes its handles.
#[derive(Clone, Default)]
struct Families {
    requests: Family<RequestLabels, Counter>,
    good: Family<PipelineLabels, Counter>,
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
    edge: Arc<EdgeCollector>,
    peers: Arc<PeerCollector>,
    placed: Arc<DeviceCollector>,
    values: Arc<ValuesCollector>,
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
        let edge = Arc::new(EdgeCollector::default());
        registry.register_collector(Box::new(edge.clone()));
        let peers = Arc::new(PeerCollector::default());
        let placed = Arc::new(DeviceCollector::default());
        registry.register_collector(Box::new(peers.clone()));
        registry.register_collector(Box::new(placed.clone()));
        let values = Arc::new(ValuesCollector::default());
        registry.register_collector(Box::new(values.clone()));

        let record = |kind, cause| lost_records.handle(LostLabels { kind, cause });
        let span = |cause| lost_spans.handle(CauseLabels { cause });
        let losses = Losses {
            requests_queue_full: record("request", "queue_full"),
            batches_queue_full: record("batch", "queue_full"),
            requests_stopped: record("request", "stopped"),
            batches_stopped: record("batch", "stopped"),
            spans_export_failed: span("export_failed"),
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
            edge,
            peers,
            placed,
            values,
            losses,
        }
    }

    /// Makes the handles of a pipeline before its first request. A pipeline of the same name continues the same
    /// series.
    pub fn register_pipeline(&self, pipeline: &Arc<Pipeline>) {
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
