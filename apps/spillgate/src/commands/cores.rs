//! Flags that give devices cores of their own.

use crate::cores::{Cores, CoresError};
use crate::device_name::resolve_device;
use clap::Args;

/// Cores that devices have for themselves.
#[derive(Args, Clone, Debug)]
pub(crate) struct CoreArgs {
    /// Core of the machine on which the batches of a device execute, and no other thread of this process, like cpu=1 (repeatable)
    #[arg(long, env = "SPILLGATE_CORES", value_name = "DEVICE=CORE", value_delimiter = ',', value_parser = core)]
    core: Vec<(String, usize)>,
}

impl CoreArgs {
    /// All other threads keep away from these cores from now on. To be called before threads start others.
    ///
    /// # Errors
    /// See [`Cores::reserve`].
    pub(crate) fn reserve(&self) -> Result<Cores, CoresError> {
        Cores::reserve(self.core.iter().cloned())
    }
}

/// Reads a device and its core.
fn core(text: &str) -> Result<(String, usize), String> {
    let expected = "give a device and a core of the machine, like cpu=1";
    let (name, core) = text.split_once('=').ok_or(expected)?;
    let core = core.trim().parse().map_err(|_| expected)?;
    match name.trim() {
        "" => Err(expected.to_owned()),
        name => Ok((resolve_device(name), core)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_and_a_core() {
        assert_eq!(core("cpu=1"), Ok(("cpu:0".to_owned(), 1)));
        assert_eq!(core("cuda:1 = 12"), Ok(("cuda:1".to_owned(), 12)));
        for wrong in ["", "cpu", "=1", "cpu=", "cpu=-1", "cpu=one", "1"] {
            assert!(core(wrong).is_err(), "{wrong}");
        }
    }
}
