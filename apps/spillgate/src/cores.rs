//! Cores that devices have for themselves.

use indexmap::IndexMap;
use spillgate_backend::operator::OperatorError;
use spillgate_worker::cores::{CoreError, leave};

use crate::start_error::StartError;

/// The core on which the batches of a device execute, by device. No other thread of the process runs there.
#[derive(Clone, Debug, Default)]
pub struct Cores(IndexMap<String, usize>);

/// Why a device cannot have a core.
#[derive(Debug, thiserror::Error)]
pub enum CoresError {
    /// Two devices would share it.
    #[error("core {core} is for both {first} and {second}: give each device a core of its own")]
    Shared {
        /// The core.
        core: usize,
        /// A device.
        first: String,
        /// Another one.
        second: String,
    },
    /// A device would have two.
    #[error(
        "{device} has core {first} and core {second}: its batches execute one after another, so give it one"
    )]
    Two {
        /// The device.
        device: String,
        /// A core.
        first: usize,
        /// Another one.
        second: usize,
    },
    /// The system does not have it, or not for this.
    #[error(transparent)]
    Core(#[from] CoreError),
}

impl Cores {
    /// The core of each device. From now on the other threads keep away from them. To be called before threads start others.
    ///
    /// # Errors
    /// When a core is not there or not allowed, is for two devices, or none is left.
    pub fn reserve(of: impl IntoIterator<Item = (String, usize)>) -> Result<Self, CoresError> {
        let mut cores: IndexMap<String, usize> = IndexMap::new();
        for (device, core) in of {
            if let Some(first) = cores.insert(device.clone(), core) {
                let second = core;
                return Err(CoresError::Two {
                    device,
                    first,
                    second,
                });
            }
        }
        for (second, &core) in &cores {
            let first = cores.iter().find(|(_, of)| **of == core);
            if let Some((first, _)) = first.filter(|(first, _)| *first != second) {
                let (first, second) = (first.clone(), second.clone());
                return Err(CoresError::Shared {
                    core,
                    first,
                    second,
                });
            }
        }
        if !cores.is_empty() {
            leave(cores.values().copied())?;
        }
        Ok(Cores(cores))
    }

    /// The core of a device; `None`: its threads run where the others do.
    pub(crate) fn of(&self, device: &str) -> Option<usize> {
        self.0.get(device).copied()
    }

    /// A device that was given a core and serves nothing here, with what would be right.
    pub(crate) fn unknown<'n>(
        &self,
        devices: impl Iterator<Item = &'n str> + Clone,
    ) -> Option<StartError> {
        let mut unknown = self
            .0
            .keys()
            .filter(|name| devices.clone().all(|d| d != *name));
        let device = unknown.next()?.clone();
        let here: Vec<&str> = devices.collect();
        let right = match here.is_empty() {
            true => {
                "no module runs in this process; give it to the one with that device".to_owned()
            }
            false => format!("no module runs on it; modules run on {}", here.join(", ")),
        };
        let cause = format!("a core is given for it, but {right}");
        let cause = OperatorError::Other(cause);
        Some(StartError::Device { device, cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_for_a_device_that_is_not_here_says_what_is() {
        let cores = Cores(IndexMap::from([("cpu:0".to_owned(), 1)]));
        let said = |devices: &[&'static str]| {
            let error = cores.unknown(devices.iter().copied());
            error.map(|error| error.to_string())
        };
        assert_eq!(said(&["cpu:0", "cuda:0"]), None);
        assert_eq!(
            said(&["cuda:0", "cuda:1"]).unwrap(),
            "cpu:0: a core is given for it, but no module runs on it; modules run on cuda:0, cuda:1"
        );
        assert_eq!(
            said(&[]).unwrap(),
            "cpu:0: a core is given for it, but no module runs in this process; give it to the one with that device"
        );
    }
}
