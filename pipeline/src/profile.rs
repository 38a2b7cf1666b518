//! Latency profiles: how long a batch of a module takes on a device, by batch size.

use std::time::Duration;

use indexmap::IndexMap;

/// Measured execution time of one batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLatency {
    /// Requests in the batch.
    pub batch: u32,
    /// Mean.
    pub mean: Duration,
    /// Median.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
}

/// Execution time of one module variant on one kind of device, for rising batch sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleProfile {
    /// Points with rising `batch`, at least one.
    pub points: Vec<BatchLatency>,
}

impl ModuleProfile {
    /// A profile with no spread: `alpha + beta * batch` for batches of 1 to `max`.
    pub fn linear(alpha: Duration, beta: Duration, max: u32) -> Self {
        let points = (1..=max)
            .map(|batch| {
                let d = alpha + beta * batch;
                BatchLatency {
                    batch,
                    mean: d,
                    p50: d,
                    p99: d,
                }
            })
            .collect();
        ModuleProfile { points }
    }

    /// Mean execution time of a batch of `size`: linear between points, by the last slope beyond them,
    /// proportional below the first.
    pub fn mean(&self, size: u32) -> Duration {
        let ns = |p: &BatchLatency| p.mean.as_nanos() as f64;
        let size_f = f64::from(size.max(1));
        let after = self.points.partition_point(|p| p.batch < size);
        let value = match self.points.as_slice() {
            [] => 0.0,
            [only] => {
                ns(only)
                    * if size > only.batch {
                        size_f / f64::from(only.batch)
                    } else {
                        1.0
                    }
            }
            points => {
                let hi = after.clamp(1, points.len() - 1);
                let (a, b) = (&points[hi - 1], &points[hi]);
                let slope = (ns(b) - ns(a)) / f64::from(b.batch - a.batch);
                ns(a) + slope * (size_f - f64::from(a.batch))
            }
        };
        Duration::from_nanos(value.max(0.0).round() as u64)
    }
}

/// All profiles of a pipeline: kind of device (`cpu`, `cuda`, `emulated`) -> module -> variant key
/// (see [`crate::pipeline::Variant::profile_key`]; `-` for types without a model) -> profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileSet {
    /// The tables.
    pub devices: IndexMap<String, IndexMap<String, IndexMap<String, ModuleProfile>>>,
    /// The file it was read from, for messages.
    pub origin: Option<String>,
}

impl ProfileSet {
    /// The profile of a module's variant on a kind of device.
    pub fn get(&self, device_kind: &str, module: &str, variant: &str) -> Option<&ModuleProfile> {
        self.devices.get(device_kind)?.get(module)?.get(variant)
    }

    /// Adds or replaces a profile.
    pub fn insert(&mut self, device_kind: &str, module: &str, variant: &str, p: ModuleProfile) {
        self.devices
            .entry(device_kind.to_owned())
            .or_default()
            .entry(module.to_owned())
            .or_default()
            .insert(variant.to_owned(), p);
    }
}

/// Kind of a device by its name: `cuda:1` is a `cuda`.
pub fn device_kind(device: &str) -> &str {
    device.split(':').next().unwrap_or(device)
}
