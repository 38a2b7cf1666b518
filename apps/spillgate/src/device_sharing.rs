//! What decides about the models of devices, and how much memory it has for them.

use std::sync::Arc;

use indexmap::IndexMap;
use spillgate_backend::operator::OperatorError;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::action::PAGE_BYTES;
use spillgate_pipeline::placement::{Decider, PlacementPolicy};
use spillgate_pipeline::policy::POLICY_DEFAULT;
use spillgate_pipeline::profile::device_kind;

use crate::start_error::StartError;

/// How the devices of a server are shared by models.
#[derive(Clone, Debug)]
pub struct DeviceSharing {
    /// What decides about them.
    pub decider: Decider,
    /// Models get fair shares of device time.
    pub is_fair: bool,
    /// Bytes for weights, by device: `cuda:0`, or `emulated` for each emulated one. Of a device that is not here all fit.
    pub memory: IndexMap<String, u64>,
}

impl Default for DeviceSharing {
    fn default() -> Self {
        DeviceSharing {
            decider: Decider::default(),
            is_fair: true,
            memory: IndexMap::new(),
        }
    }
}

impl DeviceSharing {
    /// A device that was given memory and serves nothing here, with what would be right.
    pub fn unknown<'n>(
        &self,
        devices: impl Iterator<Item = &'n str> + Clone,
    ) -> Option<StartError> {
        let is_here = |name: &String| devices.clone().any(|d| d == name || device_kind(d) == name);
        let unknown = self.memory.keys().find(|name| !is_here(name))?;
        let here: Vec<&str> = devices.collect();
        Some(StartError::Device {
            device: unknown.clone(),
            cause: OperatorError::Other(format!(
                "memory for weights is given for it, but no module runs on it; modules run on {}",
                here.join(", ")
            )),
        })
    }

    /// Says which settings count nothing here, and what would heed them.
    pub(crate) fn tell_unheeded(&self, pipelines: &[Arc<Pipeline>]) {
        for told in self.unheeded(pipelines) {
            tracing::warn!("{told}");
        }
    }

    fn unheeded(&self, pipelines: &[Arc<Pipeline>]) -> Vec<String> {
        let mut told = Vec::new();
        let by = self.decider.name();
        let placement = self.decider.placement();
        if !self.is_fair && placement.is_none_or(|name| !name.recipe().is_fair) {
            let ours = PlacementPolicy::default().name();
            told.push(format!(
                "--fairness off changes nothing: the placement {by} has no fair shares; {ours} has"
            ));
        }
        let replaced = pipelines.iter().filter(|_| placement.is_some());
        for pipeline in replaced {
            let (name, drop) = (&pipeline.name, pipeline.policy.drop);
            if drop != POLICY_DEFAULT.drop {
                told.push(format!(
                    "pipeline {name}: drop: {} does not count, since the placement {by} decides which requests are served; --placement brokers \
                     heeds it",
                    drop.name()
                ));
            }
        }
        told
    }

    /// Bytes for weights of a device; `None`: all that it is given fits.
    pub fn memory_of(&self, device: &str) -> Option<u64> {
        let memory = self.memory.get(device);
        memory
            .or_else(|| self.memory.get(device_kind(device)))
            .copied()
    }

    /// Pages of a device's cache.
    pub(crate) fn pages(&self, device: &str) -> u32 {
        let pages = self
            .memory_of(device)
            .map_or(u64::MAX, |bytes| bytes / PAGE_BYTES);
        // A sum of caches is counted in as many bits.
        u32::try_from(pages).unwrap_or(u32::MAX / 4)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillgate_pipeline::policy::DropPolicy;
    use spillgate_pipeline::testing::noop_pipeline;

    use super::*;

    #[test]
    fn settings_that_do_not_count_are_told() {
        let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0]], &[]);
        pipeline.policy = POLICY_DEFAULT;
        let told = |decider: &str, is_fair, pipeline: &Pipeline| {
            let sharing = DeviceSharing {
                decider: Decider::by_name(decider).expect("a name"),
                is_fair,
                ..DeviceSharing::default()
            };
            sharing.unheeded(&[Arc::new(pipeline.clone())]).join("\n")
        };
        assert_eq!(told("spillgate", false, &pipeline), "");
        assert_eq!(told("lru", true, &pipeline), "");
        assert_eq!(
            told("brokers", false, &pipeline),
            "--fairness off changes nothing: the placement brokers has no fair shares; spillgate has"
        );
        pipeline.policy.drop = DropPolicy::PARD;
        assert_eq!(told("brokers", true, &pipeline), "");
        let name = &pipeline.name;
        assert_eq!(
            told("lru", true, &pipeline),
            format!(
                "pipeline {name}: drop: pard does not count, since the placement lru decides which requests are served; --placement brokers \
                 heeds it"
            )
        );
    }
}
