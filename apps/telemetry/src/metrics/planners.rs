//! Readings of the State Planners, read at each scrape.

use std::fmt;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::labels::{ClientLabels, ModuleLabels, NamedLabels, PipelineLabels, StreamLabels};
use super::{
    CLIENT_GOOD, CLIENT_REFUSED, CLIENT_REQUESTS, GATE, PLANNER_CAPACITY, PLANNER_DOWNSTREAM,
    PLANNER_EXECUTED, PLANNER_OFFERED, PLANNER_ORDER, PLANNER_PACE, PLANNER_QUEUEING,
    PLANNER_WORKERS, STREAM_GOOD, STREAM_REFUSED, STREAM_REQUESTS, STREAMS, WORKERS_SERVING,
    WORKERS_WANTED,
};

/// The state that the State Planner of one module last published, and its guidance.
#[derive(Clone, Debug)]
pub struct PlannerReading {
    /// The pipeline.
    pub pipeline: String,
    /// The module.
    pub module: String,
    /// Requests offered to it, per second.
    pub offered: f64,
    /// Requests that it executed, per second.
    pub executed: f64,
    /// Capacity of its workers in requests a second; infinite when batches take no time.
    pub capacity: f64,
    /// Workers that serve.
    pub workers: u32,
    /// Measured over profiled execution time.
    pub pace: f64,
    /// Mean queueing delay in seconds.
    pub queueing: f64,
    /// The time that a request is expected to need after it, in seconds.
    pub downstream: f64,
    /// Its brokers serve the highest remaining budget first.
    pub highest_first: bool,
}

/// How many workers a module has and should have.
#[derive(Clone, Debug)]
pub struct WorkersReading {
    /// The pipeline.
    pub pipeline: String,
    /// The module.
    pub module: String,
    /// Workers that it should have.
    pub wanted: u32,
    /// Workers that take requests.
    pub serving: u32,
}

/// All readings of a process.
#[derive(Clone, Debug, Default)]
pub struct PlannerReadings {
    /// One a module whose planner publishes.
    pub modules: Vec<PlannerReading>,
    /// One a module whose controller is here, but for the source.
    pub workers: Vec<WorkersReading>,
    /// Pipeline and rate of its entry gate in requests a second; no entry for an open gate.
    pub gates: Vec<(String, f64)>,
    /// Pipeline, and what its clients sent and got.
    pub clients: Vec<(String, ClientReading)>,
    /// Pipeline, and what its streams with names sent and got.
    pub named: Vec<(String, ClientReading)>,
    /// Streams, where a module's variants are chosen.
    pub streams: Vec<StreamsReading>,
}

/// Streams that one variant serves and one thing keeps from a better one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsReading {
    /// The pipeline.
    pub pipeline: String,
    /// The module.
    pub module: String,
    /// The variant: its model file and input size.
    pub variant: String,
    /// What keeps them from the next better one, in a word; empty for the best.
    pub obstacle: &'static str,
    /// How many.
    pub count: u32,
}

/// The requests of one client.
#[derive(Clone, Debug)]
pub struct ClientReading {
    /// Its name.
    pub name: String,
    /// Requests that it sent.
    pub requests: u64,
    /// Completed in time.
    pub good: u64,
    /// Refused.
    pub refused: u64,
}

/// Reads the planners.
pub type ReadPlanners = Box<dyn Fn() -> PlannerReadings + Send + Sync>;

#[derive(Default)]
pub(super) struct PlannerCollector {
    pub(super) sources: RwLock<Vec<ReadPlanners>>,
}

impl fmt::Debug for PlannerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlannerCollector({} sources)", self.sources.read().len())
    }
}

/// Name, help, and value of a reading.
type Part = (&'static str, &'static str, fn(&PlannerReading) -> f64);

const PARTS: [Part; 8] = [
    (
        PLANNER_OFFERED,
        "Requests offered to a module, per second",
        |r| r.offered,
    ),
    (
        PLANNER_EXECUTED,
        "Requests that a module executed, per second",
        |r| r.executed,
    ),
    (
        PLANNER_CAPACITY,
        "Requests a second that a module can serve",
        |r| r.capacity,
    ),
    (PLANNER_WORKERS, "Workers of a module that serve", |r| {
        f64::from(r.workers)
    }),
    (
        PLANNER_PACE,
        "Measured over profiled execution time of a module's batches",
        |r| r.pace,
    ),
    (
        PLANNER_QUEUEING,
        "Mean queueing delay that a module published",
        |r| r.queueing,
    ),
    (
        PLANNER_DOWNSTREAM,
        "What a request is expected to need after a module",
        |r| r.downstream,
    ),
    (
        PLANNER_ORDER,
        "1 when a module serves the highest budget first",
        |r| f64::from(u8::from(r.highest_first)),
    ),
];

/// Name, help, and value of a reading of workers.
type OfWorkers = (&'static str, &'static str, fn(&WorkersReading) -> u32);

const OF_WORKERS: [OfWorkers; 2] = [
    (WORKERS_WANTED, "Workers that a module should have", |r| {
        r.wanted
    }),
    (
        WORKERS_SERVING,
        "Workers of a module that take requests",
        |r| r.serving,
    ),
];

/// Name, help, and value of a client's reading.
type OfClient = (&'static str, &'static str, fn(&ClientReading) -> u64);

const OF_CLIENTS: [OfClient; 3] = [
    (CLIENT_REQUESTS, "Requests that a client sent", |r| {
        r.requests
    }),
    (
        CLIENT_GOOD,
        "Requests of a client completed within their deadline",
        |r| r.good,
    ),
    (
        CLIENT_REFUSED,
        "Requests of a client that were never accepted",
        |r| r.refused,
    ),
];

const OF_STREAMS: [OfClient; 3] = [
    (STREAM_REQUESTS, "Requests on a stream", |r| r.requests),
    (
        STREAM_GOOD,
        "Requests on a stream completed within their deadline",
        |r| r.good,
    ),
    (
        STREAM_REFUSED,
        "Requests on a stream that were never accepted",
        |r| r.refused,
    ),
];

impl Collector for PlannerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut all = PlannerReadings::default();
        for read in self.sources.read().iter() {
            let PlannerReadings {
                modules,
                workers,
                gates,
                clients,
                named,
                streams,
            } = read();
            all.named.extend(named);
            all.streams.extend(streams);
            all.clients.extend(clients);
            all.modules.extend(modules);
            all.workers.extend(workers);
            all.gates.extend(gates);
        }
        for (name, help, value) in PARTS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for reading in &all.modules {
                let labels = ModuleLabels {
                    pipeline: reading.pipeline.clone(),
                    module: reading.module.clone(),
                };
                let value = value(reading);
                // A module that takes no time bounds nothing: there is no number for its capacity.
                if value.is_finite() {
                    metric.encode_family(&labels)?.encode_gauge(&value)?;
                }
            }
        }
        for (name, help, value) in OF_WORKERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for reading in &all.workers {
                let labels = ModuleLabels {
                    pipeline: reading.pipeline.clone(),
                    module: reading.module.clone(),
                };
                metric
                    .encode_family(&labels)?
                    .encode_gauge(&value(reading))?;
            }
        }
        let help = "Requests a second that the entry gate lets pass";
        let mut metric = encoder.encode_descriptor(GATE, help, None, MetricType::Gauge)?;
        for (pipeline, rate) in all.gates {
            let labels = PipelineLabels { pipeline };
            metric.encode_family(&labels)?.encode_gauge(&rate)?;
        }
        let help = "Streams by the variant that serves them, and what keeps them from a better one";
        let mut metric = encoder.encode_descriptor(STREAMS, help, None, MetricType::Gauge)?;
        for streams in all.streams {
            let labels = StreamLabels {
                pipeline: streams.pipeline,
                module: streams.module,
                variant: streams.variant,
                obstacle: streams.obstacle,
            };
            metric
                .encode_family(&labels)?
                .encode_gauge(&streams.count)?;
        }
        for (name, help, value) in OF_CLIENTS {
            // The encoder adds the suffix.
            let name = name.trim_end_matches("_total");
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (pipeline, reading) in &all.clients {
                let labels = ClientLabels {
                    pipeline: pipeline.clone(),
                    client: reading.name.clone(),
                };
                let mut metric = metric.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, _, u64>(&value(reading), None)?;
            }
        }
        for (name, help, value) in OF_STREAMS {
            let name = name.trim_end_matches("_total");
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (pipeline, reading) in &all.named {
                let labels = NamedLabels {
                    pipeline: pipeline.clone(),
                    stream: reading.name.clone(),
                };
                let mut metric = metric.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, _, u64>(&value(reading), None)?;
            }
        }
        Ok(())
    }
}
