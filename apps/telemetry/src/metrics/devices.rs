//! Metrics of the devices of a process, read at each scrape: the weights that they hold, and by how much predictions were wrong.

use std::fmt;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use serde::{Deserialize, Serialize};

use super::labels::{DeviceLabels, PredictionLabels, RefusedActionLabels};
use super::{
    DEVICE_COLD, DEVICE_FAILED_LOADS, DEVICE_LOADS, DEVICE_PREDICTION_ERROR, DEVICE_REFUSED,
    DEVICE_UNLOADS, DEVICE_WEIGHT_PAGES, DEVICE_WEIGHT_PAGES_LIMIT, DEVICE_WORKSPACE,
};

/// The weights of a device whose memory holds some of the models, or whose modules have families, and what became of them since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsReading {
    /// Pages of 16 MiB that hold weights, or are to; `None` where all models stay that were read.
    pub pages: Option<u32>,
    /// All its pages; `None` there, too.
    pub pages_limit: Option<u32>,
    /// Bytes of its memory that a batch takes while it runs, beside the weights, of the model that needs most; as measured when it
    /// started.
    #[serde(default)]
    pub workspace: Option<u64>,
    /// Batches that ran.
    pub batches: u64,
    /// Requests in them that waited until the weights of their model were read.
    pub cold: u64,
    /// Weights that were read.
    pub loads: u64,
    /// Weights that could not be read.
    pub failed_loads: u64,
    /// Models that gave way to others.
    pub unloads: u64,
    /// Actions that did not run.
    pub refused: RefusedReading,
}

/// Actions that a device refused, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedReading {
    /// Batches whose window had passed.
    pub late_batches: u64,
    /// Loads whose window had passed.
    pub late_loads: u64,
    /// Actions whose model gave way before they began.
    pub not_loaded: u64,
    /// Loads for which there were too few free pages.
    pub no_pages: u64,
}

impl RefusedReading {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_cause().iter().map(|(_, count)| count).sum()
    }

    fn by_cause(&self) -> [(&'static str, u64); 4] {
        [
            ("late_batch", self.late_batches),
            ("late_load", self.late_loads),
            ("not_loaded", self.not_loaded),
            ("no_pages", self.no_pages),
        ]
    }
}

/// Errors of one kind of prediction since the device began, measured minus expected, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorReading {
    /// What was predicted: `execute`, `rerun`, `load`.
    pub action: &'static str,
    /// Of its `duration` or its `completion`.
    pub of: &'static str,
    /// Quantile and error.
    pub quantiles: [(&'static str, f64); 3],
}

/// A device of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceReading {
    /// Its name.
    pub device: String,
    /// Where its memory holds some of the models, or a module has a family.
    pub weights: Option<WeightsReading>,
    /// Of each kind of action that ended.
    pub errors: Vec<ErrorReading>,
}

/// Reads the devices.
pub type ReadDevices = Box<dyn Fn() -> Vec<DeviceReading> + Send + Sync>;

#[derive(Default)]
pub(super) struct DeviceCollector {
    pub(super) source: RwLock<Option<ReadDevices>>,
}

impl fmt::Debug for DeviceCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceCollector")
    }
}

/// Name, help, and value of a reading.
type Gauge = (
    &'static str,
    &'static str,
    fn(&WeightsReading) -> Option<u64>,
);

const GAUGES: [Gauge; 3] = [
    (
        DEVICE_WEIGHT_PAGES,
        "Pages of a device that hold weights, or are to",
        |r| r.pages.map(u64::from),
    ),
    (
        DEVICE_WEIGHT_PAGES_LIMIT,
        "Pages that a device has for weights",
        |r| r.pages_limit.map(u64::from),
    ),
    (
        DEVICE_WORKSPACE,
        "Bytes of a device's memory that a batch takes while it runs, of the model that needs most",
        |r| r.workspace,
    ),
];

/// Name, help, and value of a reading.
type Count = (&'static str, &'static str, fn(&WeightsReading) -> u64);

const COUNTS: [Count; 4] = [
    (
        DEVICE_COLD,
        "Requests that ran after they had waited for the weights of their model",
        |r| r.cold,
    ),
    (DEVICE_LOADS, "Models whose weights were read", |r| r.loads),
    (
        DEVICE_FAILED_LOADS,
        "Models whose weights could not be read",
        |r| r.failed_loads,
    ),
    (DEVICE_UNLOADS, "Models that gave way to others", |r| {
        r.unloads
    }),
];

impl Collector for DeviceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let readings = self.source.read().as_ref().map(|read| read());
        let readings = readings.unwrap_or_default();
        let placed = || {
            let of = |r: &DeviceReading| {
                let device = r.device.clone();
                Some((DeviceLabels { device }, r.weights?))
            };
            readings.iter().filter_map(of)
        };
        for (name, help, value) in GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, weights) in placed() {
                let Some(value) = value(&weights) else {
                    continue;
                };
                let value = value as i64;
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        for (name, help, value) in COUNTS {
            // The encoder adds the suffix.
            let name = name.trim_end_matches("_total");
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, weights) in placed() {
                let mut metric = metric.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, u64, u64>(&value(&weights), None)?;
            }
        }
        let name = DEVICE_REFUSED.trim_end_matches("_total");
        let help = "Actions that a device refused";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (DeviceLabels { device }, weights) in placed() {
            for (cause, count) in weights.refused.by_cause() {
                let device = device.clone();
                let labels = RefusedActionLabels { device, cause };
                let mut metric = metric.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, u64, u64>(&count, None)?;
            }
        }
        let help = "Error of what was predicted of a device's actions since it began: measured minus expected";
        let name = DEVICE_PREDICTION_ERROR;
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for reading in &readings {
            for error in &reading.errors {
                for (quantile, value) in error.quantiles {
                    let labels = PredictionLabels {
                        device: reading.device.clone(),
                        action: error.action,
                        of: error.of,
                        quantile,
                    };
                    metric.encode_family(&labels)?.encode_gauge(&value)?;
                }
            }
        }
        Ok(())
    }
}
