//! Metrics and traces behind one [`Observer`].

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spillgate_controller::record::{BatchRecord, Observer, RequestRecord};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, ModuleId};
use spillgate_pipeline::invariants::Invariant;

use crate::entry::{BatchEntry, Entry, RequestEntry};
use crate::exporter::{Exporter, ExporterConfig};
use crate::metrics::{
    Metrics, QueueLengths, ReadCertificates, ReadDevices, ReadEdge, ReadPeers, ReadPlanners,
    ReadRevisions, ReadValues,
};
use crate::processes::{KnownProcesses, Processes};
use crate::request_log;
use crate::sampler::Sampler;

/// Entries that wait for the exporter by default: 160 ms of 50,000 requests a second, three times the number that
/// arrives between two looks at the queue; one or two megabytes.
pub(crate) const QUEUE_CAPACITY: usize = 8192;
/// How long one export may take by default. A collector on the same network answers in milliseconds.
pub(crate) const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of telemetry.
#[derive(Clone, Debug)]
pub struct TelemetryConfig {
    /// Where spans are sent: OTLP over gRPC, `http://host:4317`. Without it there are no traces.
    pub otlp_endpoint: Option<String>,
    /// `service.name` of the spans.
    pub service_name: String,
    /// Part of the traces that begin here which is sampled, 0 to 1. A client's own choice has priority.
    pub sample_ratio: f64,
    /// Requests and batches that may wait for the exporter; further ones are lost and counted.
    pub queue_capacity: usize,
    /// How long one export may take.
    pub export_timeout: Duration,
    /// Seed of trace and span ids; draw it anew in each process.
    pub seed: u64,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        TelemetryConfig {
            otlp_endpoint: None,
            service_name: "spillgate".to_owned(),
            sample_ratio: 1.0,
            queue_capacity: QUEUE_CAPACITY,
            export_timeout: EXPORT_TIMEOUT,
            seed: 0,
        }
    }
}

/// Why telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The exporter did not start.
    #[error("cannot send traces to {endpoint}: {reason}")]
    Exporter {
        /// The endpoint.
        endpoint: String,
        /// The problem.
        reason: String,
    },
    /// The ratio lies outside 0 to 1.
    #[error("the sample ratio is {0}; it must lie between 0 and 1")]
    SampleRatio(f64),
}

/// Metrics and traces of one process.
pub struct Telemetry {
    metrics: Arc<Metrics>,
    sampler: Sampler,
    exporter: Option<Exporter>,
    processes: KnownProcesses,
}

impl Telemetry {
    /// Sets up metrics and, where there is an endpoint, starts the thread that exports spans.
    /// `epoch` reads the moment from which timestamps count, on the wall clock as that goes when it is called.
    ///
    /// # Errors
    /// When the endpoint is not a URL, or the ratio is out of range. A collector that does not answer is not an
    /// error.
    pub fn new(
        config: TelemetryConfig,
        epoch: impl Fn() -> SystemTime + Send + 'static,
    ) -> Result<Self, TelemetryError> {
        if !(0.0..=1.0).contains(&config.sample_ratio) {
            return Err(TelemetryError::SampleRatio(config.sample_ratio));
        }
        let metrics = Arc::new(Metrics::new());
        let processes = KnownProcesses::default();
        let start = |endpoint: String| {
            let exporter_config = ExporterConfig {
                endpoint: endpoint.clone(),
                service_name: config.service_name,
                queue_capacity: config.queue_capacity,
                export_timeout: config.export_timeout,
                epoch: Box::new(epoch),
                // Not the sampler's seed: span ids must not repeat halves of trace ids.
                seed: !config.seed,
                processes: processes.clone(),
            };
            Exporter::start(exporter_config, metrics.clone())
                .map_err(|reason| TelemetryError::Exporter { endpoint, reason })
        };
        let exporter = config.otlp_endpoint.map(start).transpose()?;
        // Without an endpoint nothing is sampled, so that nothing is copied in vain.
        let ratio = if exporter.is_some() {
            config.sample_ratio
        } else {
            0.0
        };
        let sampler = Sampler::new(ratio, config.seed);
        Ok(Telemetry {
            metrics,
            sampler,
            exporter,
            processes,
        })
    }

    /// Decides at admission whether a request is traced.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Has traces name the processes of the topology, from the first request on; once.
    pub fn register_processes(&self, processes: Processes) {
        let _ = self.processes.set(processes);
    }

    /// Makes the metrics of a pipeline before its first request.
    pub fn register_pipeline(&self, pipeline: &Arc<Pipeline>) {
        self.metrics.register_pipeline(pipeline);
    }

    /// Gives a device its name in metrics (`cuda:0`).
    pub fn register_device(&self, device: DeviceId, name: &str) {
        self.metrics.register_device(device, name);
    }

    /// Adds a source of queue lengths, read at each scrape.
    pub fn register_queue_lengths(&self, read: QueueLengths) {
        self.metrics.register_queue_lengths(read);
    }

    /// Sets the reader of the edge.
    pub fn register_edge(&self, read: ReadEdge) {
        self.metrics.register_edge(read);
    }

    /// Adds a source of planner readings, read at each scrape.
    pub fn register_planners(&self, read: ReadPlanners) {
        self.metrics.register_planners(read);
    }

    /// Sets the reader of the files with certificates.
    pub fn register_certificates(&self, read: ReadCertificates) {
        self.metrics.register_certificates(read);
    }

    /// Sets the reader of the other processes of the topology.
    pub fn register_peers(&self, read: ReadPeers) {
        self.metrics.register_peers(read);
    }

    /// Sets the reader of this process's devices.
    pub fn register_devices(&self, read: ReadDevices) {
        self.metrics.register_devices(read);
    }

    /// Sets the reader of values that processes exchange.
    pub fn register_values(&self, read: ReadValues) {
        self.metrics.register_values(read);
    }

    /// Sets the reader of the live revisions, called at each scrape.
    pub fn register_revisions(&self, read: ReadRevisions) {
        self.metrics.register_revisions(read);
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The text of a scrape; its content type is [`crate::metrics::CONTENT_TYPE`].
    pub fn render(&self) -> String {
        self.metrics.render()
    }

    /// Exports the queue, for at most `timeout`, and blocks for as long: do not call it on an async task. Call it
    /// once everything else has ended. Entries that cannot be exported in that time are lost and counted, and so are
    /// later ones. Returns whether nothing was lost.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        self.exporter
            .as_ref()
            .is_none_or(|exporter| exporter.shutdown(timeout))
    }
}

impl Observer for Telemetry {
    fn request_ended(&self, record: &Arc<RequestRecord>) {
        self.metrics.request_ended(record);
        request_log::ended(record);
        if record.trace.sampled
            && let Some(exporter) = &self.exporter
        {
            exporter.push(Entry::Request(RequestEntry::of(record)));
        }
    }

    fn request_refused(&self, pipeline: &Arc<Pipeline>, reason: &'static str) {
        self.metrics.request_refused(pipeline, reason);
    }

    fn reran(&self, pipeline: &Arc<Pipeline>, module: ModuleId, took: Duration) {
        self.metrics.reran(pipeline, module, took);
    }

    fn breached(&self, pipeline: &Arc<Pipeline>, invariant: Invariant) {
        self.metrics.breached(pipeline, invariant);
    }

    fn batch_ended(&self, pipeline: &Arc<Pipeline>, record: &BatchRecord) {
        self.metrics.batch_ended(pipeline, record);
        if record.is_traced
            && let Some(exporter) = &self.exporter
        {
            let pipeline = pipeline.clone();
            let record = *record;
            exporter.push(Entry::Batch(BatchEntry { pipeline, record }));
        }
    }
}
