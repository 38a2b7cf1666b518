//! Flags that say how models share devices.

use crate::device_name::resolve_device;
use crate::device_sharing::DeviceSharing;
use clap::{Args, ValueEnum};
use indexmap::IndexMap;
use spillgate_pipeline::placement::Decider;

use super::offered;
use super::ranges::memory;

/// Whether models get fair shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fairness {
    /// They do.
    On,
    /// As many requests as can be are served, whatever model they are for.
    Off,
}

/// How models share devices.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceSharingArgs {
    /// Let a placement decide which models are in the memory of devices and which batch runs next [default where --device gives
    /// memory: spillgate; else devices keep the models that they have loaded]
    #[arg(long, env = "SPILLGATE_PLACEMENT", value_name = "NAME", value_parser = offered::placements())]
    placement: Option<String>,
    /// Memory that a device has for weights, like cuda:0,memory=12GiB; `emulated` stands for each emulated one (repeatable)
    #[arg(long, env = "SPILLGATE_DEVICES", value_name = "NAME,memory=SIZE", value_delimiter = ';', value_parser = device)]
    device: Vec<(String, u64)>,
    /// Whether models get fair shares of device time.
    #[arg(long, env = "SPILLGATE_FAIRNESS", value_enum, default_value = "on")]
    fairness: Fairness,
}

impl DeviceSharingArgs {
    /// What was asked for; `None`: devices keep their models.
    pub(crate) fn sharing(&self) -> Option<DeviceSharing> {
        if self.placement.is_none() && self.device.is_empty() {
            return None;
        }
        let decider = self.placement.as_deref().and_then(Decider::by_name);
        let memory: IndexMap<String, u64> = self.device.iter().cloned().collect();
        Some(DeviceSharing {
            decider: decider.unwrap_or_default(),
            is_fair: self.fairness == Fairness::On,
            memory,
        })
    }
}

/// Reads a device and its memory.
pub(crate) fn device(text: &str) -> Result<(String, u64), String> {
    let expected = "give a device and its memory for weights, like cuda:0,memory=12GiB";
    let (name, setting) = text.split_once(',').ok_or(expected)?;
    let (key, size) = setting.split_once('=').ok_or(expected)?;
    if key.trim() != "memory" {
        return Err(format!("the setting \"{key}\" is unknown; {expected}"));
    }
    Ok((resolve_device(name.trim()), memory(size.trim())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_name_and_memory() {
        let (name, bytes) = device("cuda:0,memory=12GiB").unwrap();
        assert_eq!((name.as_str(), bytes), ("cuda:0", 12 << 30));
        assert_eq!(
            device("cpu, memory=640MiB").unwrap(),
            ("cpu:0".to_owned(), 640 << 20)
        );
        for wrong in [
            "cuda:0",
            "cuda:0,640MiB",
            "cuda:0,memory=",
            "cuda:0,memory=1KiB",
            "cuda:0,size=1GiB",
        ] {
            assert!(device(wrong).is_err(), "{wrong}");
        }
    }
}
