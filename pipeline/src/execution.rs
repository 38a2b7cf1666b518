//! Expected execution times of a pipeline's modules on their devices, by module, variant and batch size. Plans, brokers
//! and estimates use them.

use std::ops::Index;
use std::time::Duration;

use crate::catalog::ValueType;
use crate::id::{ModuleId, VariantId};
use crate::pipeline::{Module, Pipeline};
use crate::profile::{NoProfile, ProfileSet};

/// Expected time to decode a frame until one is measured: a 720p JPEG on one core.
const DECODE_TIME: Duration = Duration::from_millis(5);

/// Expected execution times of a module's batches on one kind of device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleExecution {
    /// By ordinal of the variant, then by batch size from 1. Empty where no profile knows the variant. A module without
    /// a model has one.
    variants: Vec<Vec<Duration>>,
    /// Ordinal of the variant that serves.
    served: usize,
}

impl ModuleExecution {
    /// The execution times of a module on a device, for batches of 1 to its `batch: max`. A module without a model and
    /// without a profile takes no time of its own.
    ///
    /// # Errors
    /// When no profile knows the variant that serves.
    pub fn of(module: &Module, device: &str, profiles: &ProfileSet) -> Result<Self, NoProfile> {
        let mut variants = Vec::new();
        for variant in 0..module.variants.len().max(1) {
            let sizes = 1..=module.batch.max;
            variants.push(match profiles.of(module, variant, device) {
                Ok(Some(profile)) => sizes.map(|size| profile.mean(size)).collect(),
                Ok(None) => sizes.map(|_| Duration::ZERO).collect(),
                Err(missing) if variant == module.served() => return Err(missing),
                Err(_) => Vec::new(),
            });
        }
        Ok(ModuleExecution {
            variants,
            served: module.served(),
        })
    }

    /// The times of several variants, each by batch size from 1, of which the last serves where none is chosen.
    pub fn of_variants(variants: Vec<Vec<Duration>>) -> Self {
        ModuleExecution {
            served: variants.len().saturating_sub(1),
            variants,
        }
    }

    /// The times of the variant that serves, by batch size from 1.
    pub fn served(&self) -> &[Duration] {
        self.variant(self.served).unwrap_or_default()
    }

    /// The times of a variant, by batch size from 1; `None` when they are not known.
    pub fn variant(&self, variant: usize) -> Option<&[Duration]> {
        let times = self.variants.get(variant)?;
        (!times.is_empty()).then_some(times)
    }

    /// The same; those of the variant that serves where the variant's are not known.
    pub fn of_variant(&self, variant: VariantId) -> &[Duration] {
        self.variant(variant.idx()).unwrap_or_else(|| self.served())
    }

    /// The times of batches of which these parts of the requests are of each variant, by batch size from 1: the mean over requests.
    /// Without parts, those of the variant that serves.
    pub fn mixed(&self, parts: &[f32]) -> Vec<Duration> {
        let all: f32 = parts.iter().sum();
        if all <= 0.0 {
            return self.served().to_vec();
        }
        let mean = |size: usize| {
            let of = |(variant, part): (u16, &f32)| {
                let times = self.of_variant(VariantId(variant));
                let time = times.get(size).or(times.last()).copied();
                time.unwrap_or_default().mul_f64(f64::from(part / all))
            };
            (0..)
                .zip(parts)
                .filter(|(_, part)| **part > 0.0)
                .map(of)
                .sum()
        };
        (0..self.served().len()).map(mean).collect()
    }

    /// These variants alone, which are counted from 0 then. The last of them serves where none is chosen.
    pub fn only(&self, variants: &[VariantId]) -> Self {
        let times = variants.iter().map(|v| self.of_variant(*v).to_vec());
        ModuleExecution {
            variants: times.collect(),
            served: variants.len().saturating_sub(1),
        }
    }

    /// The variant that serves where none is chosen.
    pub fn served_variant(&self) -> VariantId {
        VariantId(self.served as u16)
    }
}

impl From<Vec<Duration>> for ModuleExecution {
    /// The times of the only variant.
    fn from(times: Vec<Duration>) -> Self {
        ModuleExecution {
            variants: vec![times],
            served: 0,
        }
    }
}

/// Expected execution times of all modules. `times[module ordinal]` are those of the variant that serves, by batch size
/// from 1; the source's are empty where nothing is decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionTimes(Vec<ModuleExecution>);

impl ExecutionTimes {
    /// The execution times of a pipeline, each of whose modules runs on the device of that name. Decoding is left out.
    ///
    /// # Errors
    /// When no profile knows a variant that serves.
    pub fn of(
        pipeline: &Pipeline,
        profiles: &ProfileSet,
        device: impl Fn(&Module) -> String,
    ) -> Result<Self, NoProfile> {
        let of_module = |module: &Module| ModuleExecution::of(module, &device(module), profiles);
        let modules = pipeline.modules[1..].iter().map(of_module);
        std::iter::once(Ok(ModuleExecution::default()))
            .chain(modules)
            .collect::<Result<_, _>>()
            .map(ExecutionTimes)
    }

    /// The same with the time that the source needs for decoding: pictures are decoded one by one, bytes pass as they are.
    pub fn with_decoding(mut self, pipeline: &Pipeline) -> Self {
        if pipeline.source.ty == ValueType::Image {
            self.set(ModuleId::SOURCE, vec![DECODE_TIME]);
        }
        self
    }

    /// Replaces the times of a module.
    pub fn set(&mut self, module: ModuleId, times: impl Into<ModuleExecution>) {
        self.0[module.idx()] = times.into();
    }

    /// How many modules there are, the source included.
    pub fn n_modules(&self) -> usize {
        self.0.len()
    }

    /// The times of a module by variant and batch size.
    pub fn of_module(&self, module: ModuleId) -> &ModuleExecution {
        &self.0[module.idx()]
    }

    /// The times of the variant that serves, by batch size from 1; `None` when there is no such module.
    pub fn get(&self, module: usize) -> Option<&[Duration]> {
        self.0.get(module).map(ModuleExecution::served)
    }

    /// The times of the variants that serve, by module.
    pub fn iter(&self) -> impl Iterator<Item = &[Duration]> {
        self.0.iter().map(ModuleExecution::served)
    }
}

impl Index<usize> for ExecutionTimes {
    type Output = [Duration];

    fn index(&self, module: usize) -> &[Duration] {
        self.0[module].served()
    }
}

impl FromIterator<Vec<Duration>> for ExecutionTimes {
    fn from_iter<I: IntoIterator<Item = Vec<Duration>>>(modules: I) -> Self {
        ExecutionTimes(modules.into_iter().map(ModuleExecution::from).collect())
    }
}

impl From<Vec<Vec<Duration>>> for ExecutionTimes {
    fn from(modules: Vec<Vec<Duration>>) -> Self {
        modules.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Variant;
    use crate::profile::ModuleProfile;
    use crate::testing::noop_pipeline;

    const MS: Duration = Duration::from_millis(1);

    fn variant(model: &str) -> Variant {
        Variant {
            model: model.to_owned(),
            input: None,
            accuracy: None,
        }
    }

    #[test]
    fn times_are_those_of_the_variant_that_serves() {
        let mut pipeline = noop_pipeline(100 * MS, &[&[0], &[1]], &[]);
        pipeline.modules[1].batch.max = 3;
        pipeline.modules[1].variants = vec![variant("small.pt"), variant("large.pt")];
        let mut profiles = ProfileSet::default();
        let device = |_: &Module| "cpu:0".to_owned();
        let times = ExecutionTimes::of(&pipeline, &profiles, device);
        assert_eq!(times.unwrap_err().variant, "large.pt");
        profiles.insert("cpu", "m1", "large.pt", ModuleProfile::linear(MS, MS, 2));
        let times = ExecutionTimes::of(&pipeline, &profiles, device).unwrap();
        assert_eq!(times.n_modules(), 3);
        assert_eq!(times[0], []);
        assert_eq!(times[1], [2 * MS, 3 * MS, 4 * MS]);
        assert!(times[2].iter().all(Duration::is_zero), "it has no model");
        assert!(times.get(3).is_none());
    }

    #[test]
    fn each_variant_has_times_of_its_own_as_far_as_they_are_known() {
        let mut pipeline = noop_pipeline(100 * MS, &[&[0]], &[]);
        let module = &mut pipeline.modules[1];
        module.batch.max = 2;
        module.variants = vec![variant("a.pt"), variant("b.pt"), variant("c.pt")];
        let mut profiles = ProfileSet::default();
        profiles.insert("cpu", "m1", "a.pt", ModuleProfile::linear(MS, MS, 2));
        profiles.insert("cpu", "m1", "c.pt", ModuleProfile::linear(5 * MS, MS, 2));
        let times = ModuleExecution::of(module, "cpu:0", &profiles).unwrap();
        assert_eq!(times.variant(0).unwrap(), [2 * MS, 3 * MS]);
        assert_eq!(times.variant(1), None);
        assert_eq!(times.served(), times.variant(2).unwrap());
        assert_eq!(times.variant(3), None);
    }

    #[test]
    fn only_pictures_are_decoded() {
        let mut pipeline = noop_pipeline(100 * MS, &[&[0]], &[]);
        let times: ExecutionTimes = vec![vec![], vec![MS]].into();
        let decoding = |pipeline: &Pipeline| times.clone().with_decoding(pipeline)[0].to_vec();
        pipeline.source.ty = ValueType::Image;
        assert_eq!(decoding(&pipeline), [DECODE_TIME]);
        pipeline.source.ty = ValueType::Bytes;
        assert_eq!(decoding(&pipeline), []);
    }
}
