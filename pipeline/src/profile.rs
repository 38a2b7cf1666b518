//! Latency profiles: how long a batch of a module takes on a device, by batch size.

use std::time::Duration;

use indexmap::IndexMap;

use crate::pipeline::Module;

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
    /// How long reading the model takes, where it was measured.
    pub load: Option<Duration>,
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
        ModuleProfile { points, load: None }
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
/// (see [`Module::profile_key`]) -> profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileSet {
    /// The tables.
    pub devices: IndexMap<String, IndexMap<String, IndexMap<String, ModuleProfile>>>,
    /// The file it was read from, for messages.
    pub origin: Option<String>,
}

impl ProfileSet {
    /// Takes over what is missing here from another set.
    pub fn fill_from(&mut self, other: &ProfileSet) {
        for (kind, modules) in &other.devices {
            for (module, variants) in modules {
                for (variant, profile) in variants {
                    if self.get(kind, module, variant).is_none() {
                        self.insert(kind, module, variant, profile.clone());
                    }
                }
            }
        }
    }

    /// The profile of a module's variant on a kind of device.
    pub fn get(&self, device_kind: &str, module: &str, variant: &str) -> Option<&ModuleProfile> {
        self.devices.get(device_kind)?.get(module)?.get(variant)
    }

    /// The profile of a module's variant on a device; `None` for types without a model that no profile knows: they take no
    /// time of their own.
    ///
    /// # Errors
    /// When the module has a model and no profile knows the variant.
    pub fn of(
        &self,
        module: &Module,
        variant: usize,
        device: &str,
    ) -> Result<Option<&ModuleProfile>, NoProfile> {
        let kind = device_kind(device);
        let key = module.profile_key(variant);
        match self.get(kind, &module.name, &key) {
            Some(profile) => Ok(Some(profile)),
            None if module.variants.is_empty() => Ok(None),
            None => Err(NoProfile {
                module: module.name.clone(),
                variant: key,
                kind: kind.to_owned(),
            }),
        }
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

/// A module that would run for an unknown time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("module {module}: no profile for \"{variant}\" on {kind}")]
pub struct NoProfile {
    /// The module.
    pub module: String,
    /// The variant's key.
    pub variant: String,
    /// The kind of device.
    pub kind: String,
}

/// Batch sizes that are measured, and that schedulers choose from: 1, 2, 4, ... and the largest. Times of those between
/// are interpolated.
pub fn batch_sizes(max: u32) -> Vec<u32> {
    let doubled = std::iter::successors(Some(1u32), |size| size.checked_mul(2));
    let mut sizes: Vec<u32> = doubled.take_while(|size| *size < max).collect();
    sizes.push(max.max(1));
    sizes
}

/// Kind of a device by its name: that of `cuda:1` is `cuda`.
pub fn device_kind(device: &str) -> &str {
    device.split(':').next().unwrap_or(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_sizes_double_up_to_the_largest() {
        assert_eq!(batch_sizes(1), [1]);
        assert_eq!(batch_sizes(8), [1, 2, 4, 8]);
        assert_eq!(batch_sizes(6), [1, 2, 4, 6]);
    }
}
